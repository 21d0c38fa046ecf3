//! The truth: the file beside a generated capture that a feed handler's results are checked
//! against. exchange-sim writes it, feed-handler compares with it.
//!
//! ```text
//!   session                messages = sum of by_type = last_sequence
//!   packetizer             packets  = data + heartbeats + end_of_session        the same for both lines
//!   line A, line B         sent     = packets - lost + duplicated               for packets and for messages
//!   both lines together    messages = receivable + lost_on_both
//! ```
//!
//! [`Truth::check`] adds all of it up. A range in `lost_on_both` is a gap that a correct handler
//! reports, with two exceptions. A range that begins at number 1 looks like a late join to a
//! handler that starts with the first packet, and a range that ends at the last number shows only
//! in the end of the session. Adjacent lost packets are one range.

mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use values::{Group, Probability};

use crate::framing::PacketKind;

/// The next step for the reader of another file.
pub const TRUTH_HINT: &str = "give the .truth.json that exchange-sim generate writes beside its capture";

/// The whole account of one day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth<S> {
    /// The settings of the day; the same settings make it again. A reader's type may have only
    /// those that it needs.
    pub settings: S,
    /// Messages that the exchange sent.
    pub messages: u64,
    /// The same by ITCH type.
    pub by_type: BTreeMap<char, u64>,
    /// Number of the first message, 1.
    pub first_sequence: u64,
    /// Number of the last message.
    pub last_sequence: u64,
    /// Packets made for each line, before any fault.
    pub packets: Packets,
    /// Their outcome on line A and line B.
    pub lines: [LineTruth; 2],
    /// Packets that no line delivered.
    pub lost_on_both: LostOnBoth,
    /// Messages that at least one line delivered.
    pub receivable: u64,
    /// Orders that rest in the books at the end, for a handler that lost nothing.
    pub orders_resting: u64,
    /// Best bid and offer of each symbol at the end, for a handler that lost nothing.
    pub book_tops: Vec<BookTop>,
    /// The day was stopped before its end. The account is complete; the settings alone do not make
    /// this day again.
    #[serde(default)]
    pub stopped: bool,
    /// Heartbeats on each line before the day, while receivers joined. No other number here
    /// includes them: a receiver gets any number of them from none to all, depending on when it
    /// joined.
    #[serde(default)]
    pub heartbeats_before: u64,
}

/// Packets by kind, and the messages in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// With messages.
    pub data: u64,
    /// Without messages.
    pub heartbeats: u64,
    /// Ends of the session.
    pub end_of_session: u64,
    /// All three kinds.
    pub total: u64,
    /// Messages in them.
    pub messages: u64,
}

/// One line's account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineTruth {
    /// `A` or `B`.
    pub name: char,
    /// Packets that did not arrive.
    pub lost: Packets,
    /// Packets that arrived a second time; the extra copies are counted.
    pub duplicated: Packets,
    /// Packets that were held back by the injection.
    pub delayed: u64,
    /// Packets that arrived after a later one of their line because of that. Duplicates do not
    /// count.
    pub reordered: u64,
    /// Packets on the line, copies included: the number that a capture of the line holds.
    pub sent: Packets,
}

/// Packets and messages that were lost on line A and on line B.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostOnBoth {
    /// Data packets.
    pub packets: u64,
    /// Messages in them.
    pub messages: u64,
    /// Their numbers, in rising order and never adjacent.
    pub ranges: Vec<SequenceRange>,
}

/// Message numbers from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceRange {
    /// First number.
    pub first: u64,
    /// Last number.
    pub last: u64,
}

/// The top of one symbol's book.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookTop {
    /// Without padding.
    pub symbol: String,
    /// Its index in the messages of the day.
    pub locate: u16,
    /// Best bid, if there is one.
    pub bid: Option<PriceLevel>,
    /// Best offer, if there is one.
    pub ask: Option<PriceLevel>,
}

/// All shares at one price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceLevel {
    /// In units of 1/10,000 dollar, as in ITCH.
    pub price: u32,
    /// Shares of all orders of the level.
    pub shares: u64,
}

impl Packets {
    /// Counts one packet with this number of messages.
    pub fn count(&mut self, kind: PacketKind, messages: u16) {
        match kind {
            PacketKind::Data | PacketKind::SequenceReset | PacketKind::Unsequenced => self.data += 1,
            PacketKind::Heartbeat => self.heartbeats += 1,
            PacketKind::EndOfSession => self.end_of_session += 1,
        }
        self.total += 1;
        self.messages += u64::from(messages);
    }
}

impl SequenceRange {
    /// Numbers in the range.
    pub fn count(self) -> u64 {
        self.last - self.first + 1
    }
}

impl LostOnBoth {
    /// Counts one data packet, whose messages have the numbers from `first` on. Packets come in the
    /// order of their numbers.
    pub fn count(&mut self, first: u64, messages: u16) {
        let last = first + u64::from(messages) - 1;
        self.packets += 1;
        self.messages += u64::from(messages);
        match self.ranges.last_mut() {
            Some(range) if range.last + 1 == first => range.last = last,
            _ => self.ranges.push(SequenceRange { first, last }),
        }
    }
}

impl<S> Truth<S> {
    /// Adds up every total. The error names the first sum that is wrong: a bug here, or a file that
    /// was edited.
    pub fn check(&self) -> Result<(), String> {
        equal("messages and the sum of by_type", self.messages, self.by_type.values().sum())?;
        equal("messages and the numbers used", self.messages, self.last_sequence + 1 - self.first_sequence)?;
        equal("messages and those in packets", self.messages, self.packets.messages)?;
        self.packets.check("packets")?;
        for line in &self.lines {
            line.check(&self.packets)?;
        }
        let in_ranges = self.lost_on_both.ranges.iter().map(|range| range.count()).sum();
        equal("messages lost on both lines and their ranges", self.lost_on_both.messages, in_ranges)?;
        equal("messages and receivable + lost", self.messages, self.receivable + self.lost_on_both.messages)
    }

    /// Reads the text of a truth file and checks it. The error is a sentence.
    pub fn parse(text: &str) -> Result<Self, String>
    where
        S: DeserializeOwned,
    {
        let truth: Self =
            serde_json::from_str(text).map_err(|error| format!("not a truth file: {error}; {TRUTH_HINT}"))?;
        truth.check().map_err(|why| format!("{why}; {TRUTH_HINT}"))?;
        Ok(truth)
    }

    /// The text of the truth file. Fails where the settings cannot be written as JSON.
    pub fn to_text(&self) -> Result<String, String>
    where
        S: Serialize,
    {
        let mut text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        text.push('\n');
        Ok(text)
    }

    /// The path of a capture's truth: beside it, with `.truth.json` added to its name.
    #[must_use]
    pub fn path_beside(capture: &Path) -> PathBuf {
        let mut name = capture.as_os_str().to_owned();
        name.push(".truth.json");
        name.into()
    }
}

impl Packets {
    fn check(&self, what: &str) -> Result<(), String> {
        equal(&format!("{what} by kind"), self.total, self.data + self.heartbeats + self.end_of_session)
    }

    fn fields(&self) -> [(&'static str, u64); 5] {
        [
            ("data packets", self.data),
            ("heartbeats", self.heartbeats),
            ("ends of session", self.end_of_session),
            ("packets", self.total),
            ("messages", self.messages),
        ]
    }
}

impl LineTruth {
    fn check(&self, packets: &Packets) -> Result<(), String> {
        let fields = packets.fields().into_iter().zip(self.lost.fields());
        for (((what, made), (_, lost)), ((_, duplicated), (_, sent))) in
            fields.zip(self.duplicated.fields().into_iter().zip(self.sent.fields()))
        {
            let what = format!("{what} of line {}: sent + lost and made + duplicated", self.name);
            equal(&what, sent + lost, made + duplicated)?;
        }
        if self.reordered > self.delayed {
            return Err(format!("line {}: {} reordered, only {} delayed", self.name, self.reordered, self.delayed));
        }
        Ok(())
    }
}

fn equal(what: &str, left: u64, right: u64) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{what} do not agree: {left} and {right}")) }
}
