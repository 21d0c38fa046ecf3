//! The comparison with the truth of exchange-sim: for each line, sent = received + injected losses;
//! for both lines together, only the messages lost on both are missing.

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;

use market::truth::{BookTop, Group, LineTruth, PriceLevel, SequenceRange, TRUTH_HINT};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::feed::{ChannelTally, FeedTally, LineTally, Top};

/// The truth of a day, with those of its settings that the comparison needs.
pub type Truth = market::truth::Truth<DaySettings>;

/// The settings of a day that say which packets are its own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DaySettings {
    lines: [LineSettings; 2],
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct LineSettings {
    group: Group,
}

/// Reads the truth file.
pub fn read_truth(path: &Path) -> Result<Truth, Error> {
    let text = fs::read_to_string(path)
        .map_err(|error| Error::Failed(format!("cannot read {}: {error}; {TRUTH_HINT}", path.display())))?;
    Truth::parse(&text).map_err(|why| Error::Failed(format!("{}: {why}", path.display())))
}

/// The comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthCheck {
    /// Line A and line B.
    pub lines: Vec<TruthLine>,
    /// Messages that the exchange sent.
    pub sent: u64,
    /// Messages that were delivered in order.
    pub delivered: u64,
    /// Messages that were lost on both lines, by the truth.
    pub lost_on_both: u64,
    /// The gaps are exactly the ranges that were lost on both lines; where servers sent messages
    /// again, they have no more messages than that.
    pub gaps_agree: bool,
    /// Each book ends with the exchange's top; `None` where messages were lost on both lines, and
    /// no server healed the books, because then books may differ.
    pub tops_agree: Option<bool>,
    /// Everything agrees.
    pub agrees: bool,
    /// The differences, as sentences.
    pub differences: Vec<String>,
}

/// One line: `sent + duplicated = received + lost`, to the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthLine {
    /// `A` or `B`.
    pub name: char,
    /// Its group and port.
    pub group: SocketAddrV4,
    /// Messages that the exchange sent.
    pub sent: u64,
    /// Messages in packets that were sent twice.
    pub duplicated: u64,
    /// Messages that arrived.
    pub received: u64,
    /// Messages in packets that were lost on purpose.
    pub lost: u64,
}

impl TruthLine {
    /// Whether the sum holds.
    pub fn holds(&self) -> bool {
        self.sent + self.duplicated == self.received + self.lost
    }
}

impl TruthCheck {
    /// Compares everything that the truth has.
    pub(super) fn new(truth: &Truth, tally: &FeedTally, stopped: bool) -> Self {
        let mut differences = Vec::new();
        if stopped {
            differences.push("the replay was stopped before the end of the day".to_owned());
        }
        let lines: Vec<_> = (0..truth.lines.len()).map(|idx| check_line(truth, idx, tally, &mut differences)).collect();
        let delivered: u64 = tally.channels.iter().map(|channel| channel.sequence.delivered).sum();
        let recovered = recovered(&tally.channels);
        let missing: u64 = tally.channels.iter().map(|channel| channel.sequence.missing).sum();
        let expected = if recovered > 0 { truth.messages.saturating_sub(missing) } else { truth.receivable };
        if delivered != expected {
            differences.push(format!("{delivered} messages were delivered and {expected} could be"));
        }
        let gaps_agree = match recovered {
            0 => gaps_agree(&truth.lost_on_both.ranges, &tally.channels),
            _ => missing <= truth.lost_on_both.messages,
        };
        if !gaps_agree {
            differences.push("the gaps are not the ranges that were lost on both lines".to_owned());
        }
        let are_whole = tally.channels.iter().all(|channel| channel.recovery.is_some() && channel.books.stale == 0);
        let is_comparable = truth.lost_on_both.ranges.is_empty() || are_whole;
        let tops_agree = is_comparable.then(|| check_tops(truth, tally, &mut differences));
        if truth.lost_on_both.ranges.is_empty() {
            check_types(truth, tally, &mut differences);
        }
        Self {
            lines,
            sent: truth.messages,
            delivered,
            lost_on_both: truth.lost_on_both.messages,
            gaps_agree,
            tops_agree,
            agrees: differences.is_empty(),
            differences,
        }
    }

    pub(super) fn failure(&self) -> Option<String> {
        (!self.agrees).then(|| format!("the truth does not hold: {}", self.differences.join("; ")))
    }
}

/// Messages that a server sent again; they may have been lost on both lines.
fn recovered(channels: &[ChannelTally]) -> u64 {
    channels.iter().filter_map(|channel| channel.recovery).map(|recovery| recovery.answers.delivered).sum()
}

fn check_line(truth: &Truth, idx: usize, tally: &FeedTally, differences: &mut Vec<String>) -> TruthLine {
    let (line, settings): (&LineTruth, _) = (&truth.lines[idx], &truth.settings.lines[idx]);
    let group = SocketAddrV4::new(settings.group.address(), truth.settings.port);
    let received: Vec<&LineTally> =
        tally.channels.iter().flat_map(|channel| &channel.lines).filter(|received| received.group == group).collect();
    let sum = |count: fn(&LineTally) -> u64| received.iter().map(|received| count(received)).sum::<u64>();
    let checked = TruthLine {
        name: line.name,
        group,
        sent: truth.packets.messages,
        duplicated: line.duplicated.messages,
        received: sum(|received| received.counts.messages),
        lost: line.lost.messages,
    };
    if !checked.holds() {
        let TruthLine { name, sent, duplicated, received, lost, .. } = &checked;
        differences.push(format!(
            "line {name}: {sent} messages sent + {duplicated} duplicated are not {received} received + {lost} lost"
        ));
    }
    let packets = [
        ("data packets", line.sent.data, sum(|received| received.counts.packets)),
        ("heartbeats", line.sent.heartbeats + line.sent.end_of_session, sum(|received| received.counts.heartbeats)),
    ];
    for (what, sent, received) in packets {
        if sent != received {
            differences.push(format!("line {}: {sent} {what} were sent and {received} received", line.name));
        }
    }
    checked
}

/// Gaps may be adjacent where a heartbeat revealed the first and data the second; ranges never are.
fn gaps_agree(ranges: &[SequenceRange], channels: &[ChannelTally]) -> bool {
    let mut merged: Vec<SequenceRange> = Vec::new();
    for gap in channels.iter().flat_map(|channel| &channel.gaps) {
        match merged.last_mut() {
            Some(last) if last.last + 1 == gap.from => last.last = gap.to,
            _ => merged.push(SequenceRange { first: gap.from, last: gap.to }),
        }
    }
    let missing: u64 = channels.iter().map(|channel| channel.sequence.missing).sum();
    // The list of gaps is bounded; beyond it only the sum is compared.
    if channels.iter().any(|channel| channel.gaps.len() == ChannelTally::GAPS_MAX) {
        return missing == ranges.iter().map(|range| range.count()).sum::<u64>();
    }
    merged == ranges
}

fn check_types(truth: &Truth, tally: &FeedTally, differences: &mut Vec<String>) {
    for (&kind, &sent) in &truth.by_type {
        let counts = tally.channels.iter().map(|channel| channel.messages.by_type[usize::from(kind as u8)]);
        let decoded: u64 = counts.sum();
        if decoded != sent {
            differences.push(format!("{sent} messages of type {kind} were sent and {decoded} decoded"));
        }
    }
}

fn check_tops(truth: &Truth, tally: &FeedTally, differences: &mut Vec<String>) -> bool {
    let tops: Vec<&Top> = tally.channels.iter().flat_map(|channel| &channel.books.tops).collect();
    let differs =
        |expected: &&BookTop| !tops.iter().any(|top| top.symbol.as_str() == expected.symbol && is_same(top, expected));
    let different: Vec<_> = truth.book_tops.iter().filter(differs).collect();
    if let Some(first) = different.first() {
        differences.push(format!(
            "{} of {} books end with another top than the exchange's, {} for one",
            different.len(),
            truth.book_tops.len(),
            first.symbol
        ));
    }
    different.is_empty()
}

fn is_same(top: &Top, expected: &BookTop) -> bool {
    let side = |price: market::Price, shares: u64| (shares > 0).then_some((price.0, shares));
    let level = |level: &Option<PriceLevel>| level.as_ref().map(|level| (i64::from(level.price), level.shares));
    side(top.top.bid_px, top.top.bid_qty) == level(&expected.bid)
        && side(top.top.ask_px, top.top.ask_qty) == level(&expected.ask)
}
