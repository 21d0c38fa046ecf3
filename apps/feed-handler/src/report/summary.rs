//! [`Summary`]: all of it, and the failures.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use wirepath::counters::Snapshot;

use super::account::{self, MessageAccount, PacketAccount};
use super::channel::{BooksSummary, ChannelSummary, LatencySummary};
use super::truth::{Truth, TruthCheck};
use crate::feed::{ChannelTally, FeedTally, Tops};
use crate::plan::FeedPlan;

/// The run's results, apart from the feed's.
#[derive(Clone, Debug)]
pub struct Run {
    /// The origin of the packets.
    pub source: PacketSource,
    /// A signal ended it.
    pub stopped: bool,
    /// The run ended after the requested number of packets.
    pub limited: bool,
    /// From the first poll to the last.
    pub seconds: f64,
    /// Where the worker ran.
    pub core: Core,
    /// Fragments that still wait for the rest.
    pub held: u64,
    /// Packets that ended without a reason: a bug of ours.
    pub without_reason: u64,
    /// How the file ended.
    pub ending: Ending,
    /// Frames that the tap wrote, or the reason why it wrote none.
    pub recorded: Option<Result<u64, String>>,
    /// Seed of the injected faults.
    pub fault_seed: Option<u64>,
}

/// Where the packets came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketSource {
    /// A file, which ends.
    File(PathBuf),
    /// A live interface.
    Port(String),
}

/// Where the worker ran.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Core {
    /// The worker's core; `None` where the worker was not pinned.
    pub number: Option<usize>,
    /// We chose it, not the user.
    pub chosen: bool,
}

/// How a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The capture was not read to its end.
    Open,
    /// After its last record.
    Whole,
    /// In the middle of a record; all before it was delivered.
    Truncated(String),
    /// In a record that cannot be read.
    Damaged(String),
}

/// All results of a run. Counts are of packets or messages, as their names say.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The file, or the interface.
    pub file: String,
    /// Whether it is an interface.
    pub live: bool,
    /// Its format, or the formats of its channels: `mold-itch50, iex-deep`.
    pub format: String,
    /// Packets that were read from the file.
    pub packets: u64,
    /// Messages that were delivered in order, each once.
    pub messages: u64,
    /// Of these, the decoded ones by type.
    pub by_type: BTreeMap<String, u64>,
    /// Of these, the ones that could not be decoded.
    pub undecoded: Undecoded,
    /// Ranges of numbers that no line brought.
    pub gaps: u64,
    /// Messages in them.
    pub missing: u64,
    /// Messages that came again after they had been delivered: the other line's copy, or a
    /// repetition.
    pub duplicates: u64,
    /// Messages that came after their number had been given up.
    pub late: u64,
    /// Packets without messages.
    pub heartbeats: u64,
    /// Packets that ended the session.
    pub ends: u64,
    /// Times that a feed restarted.
    pub restarts: u64,
    /// Packets that were dropped, by node and reason.
    pub drops: BTreeMap<String, u64>,
    /// Packets that were not sent, by `node.reason`.
    pub not_sent: BTreeMap<String, u64>,
    /// Datagrams to groups beyond those that a worker learns; they are among the drops too.
    pub groups_refused: u64,
    /// Datagrams whose checksum field holds the sum of the pseudo header only, and that were
    /// accepted all the same.
    pub partial_checksums: u64,
    /// The file ends in the middle of a record.
    pub truncated: bool,
    /// Which record, and where.
    pub truncation: Option<String>,
    /// A signal ended the run before the file did.
    pub stopped: bool,
    /// All sums hold.
    pub accounted: bool,
    /// The outcomes of packets.
    pub packet_account: PacketAccount,
    /// The outcomes of messages.
    pub message_account: MessageAccount,
    /// Each channel.
    pub channels: Vec<ChannelSummary>,
    /// All channels' books together, without their tops.
    pub books: BooksSummary,
    /// Latency of packets.
    pub latency_ns: LatencySummary,
    /// From the first poll to the last.
    pub seconds: f64,
    /// Packets read in a second.
    pub packets_per_second: f64,
    /// Messages delivered in a second.
    pub messages_per_second: f64,
    /// Where the worker ran.
    pub core: Core,
    /// Frames that were written to the capture.
    pub captured: Option<u64>,
    /// Seed of the injected faults.
    pub fault_seed: Option<u64>,
    /// The comparison with the truth file.
    pub truth: Option<TruthCheck>,
    /// The failures, as sentences. Empty where all is well.
    pub failures: Vec<String>,
}

/// Messages that the codec could not read.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Undecoded {
    /// Messages of an unknown type.
    pub unknown_type: u64,
    /// Messages of a known type with a wrong length.
    pub wrong_length: u64,
    /// Without a type.
    pub empty: u64,
    /// About instruments whose definition has not arrived.
    pub undefined: u64,
    /// Of all these, those that books are built from: they leave the books of their channel stale.
    pub lost_to_books: u64,
}

impl Undecoded {
    /// All of them.
    pub(super) fn total(&self) -> u64 {
        self.unknown_type + self.wrong_length + self.empty + self.undefined
    }
}

impl Summary {
    /// Builds the summary.
    pub fn new(plan: &FeedPlan, truth: Option<&Truth>, run: Run, tally: &FeedTally, counters: &Snapshot) -> Self {
        let packet_account = PacketAccount::new(counters, &run);
        let message_account = MessageAccount::new(&tally.channels);
        let channels: Vec<_> = tally.channels.iter().map(ChannelSummary::new).collect();
        let sum = |count: fn(&ChannelSummary) -> u64| channels.iter().map(count).sum();
        let messages: u64 = sum(|channel| channel.messages);
        let per_second = |count: u64| if run.seconds > 0.0 { count as f64 / run.seconds } else { 0.0 };
        let (by_type, undecoded) = decoded(&tally.channels);
        let truth = truth.map(|truth| TruthCheck::new(truth, tally, run.stopped));
        let mut summary = Self {
            file: match &run.source {
                PacketSource::File(path) => path.display().to_string(),
                PacketSource::Port(interface) => interface.clone(),
            },
            live: matches!(run.source, PacketSource::Port(_)),
            format: plan.format_names(),
            packets: packet_account.read,
            messages,
            by_type,
            undecoded,
            gaps: sum(|channel| channel.gaps),
            missing: sum(|channel| channel.missing),
            duplicates: sum(|channel| channel.duplicates),
            late: sum(|channel| channel.late),
            heartbeats: sum(|channel| channel.heartbeats),
            ends: sum(|channel| channel.ends),
            restarts: sum(|channel| channel.restarts),
            drops: account::drops(counters),
            not_sent: account::not_sent(counters),
            groups_refused: tally.groups_refused,
            partial_checksums: account::count(counters, "udp/partial_checksums"),
            truncated: matches!(run.ending, Ending::Truncated(_)),
            truncation: match &run.ending {
                Ending::Truncated(place) => Some(place.clone()),
                _ => None,
            },
            stopped: run.stopped,
            accounted: packet_account.holds() && message_account.holds(),
            packets_per_second: per_second(packet_account.read),
            packet_account,
            message_account,
            books: channels.iter().fold(BooksSummary::default(), |sum, channel| sum.plus(&channel.books)),
            channels,
            latency_ns: LatencySummary::new(&tally.latency),
            seconds: run.seconds,
            messages_per_second: per_second(messages),
            core: run.core,
            captured: run.recorded.as_ref().and_then(|recorded| recorded.as_ref().ok().copied()),
            fault_seed: run.fault_seed,
            truth,
            failures: Vec::new(),
        };
        summary.find_failures(&run);
        summary
    }

    /// Limits the tops of book that are shown of each channel.
    pub fn limit_tops(&mut self, tops: Tops) {
        let Tops::First(count) = tops else { return };
        self.channels.iter_mut().for_each(|channel| channel.books.tops.truncate(count));
    }

    /// Whether any packet of the format arrived.
    pub fn received_anything(&self) -> bool {
        self.channels.iter().flat_map(|channel| &channel.lines).any(|line| line.packets + line.heartbeats > 0)
    }

    fn find_failures(&mut self, run: &Run) {
        let mut failures = Vec::new();
        if let Ending::Damaged(sentence) = &run.ending {
            failures.push(sentence.clone());
        }
        if let Some(Err(sentence)) = &run.recorded {
            failures.push(sentence.clone());
        }
        failures.extend(self.packet_account.failure());
        failures.extend(self.message_account.failure());
        failures.extend(self.truth.as_ref().and_then(TruthCheck::failure));
        self.failures = failures;
    }
}

/// Messages of all channels by type, with the format where there are several, and those without a
/// type.
fn decoded(channels: &[ChannelTally]) -> (BTreeMap<String, u64>, Undecoded) {
    let (mut by_type, mut undecoded) = (BTreeMap::new(), Undecoded::default());
    let is_mixed = channels.iter().any(|channel| channel.format != channels[0].format);
    for channel in channels {
        let (format, counts) = (channel.format, &channel.messages);
        for (kind, count) in counts.iter() {
            let kind = format.kind_name(kind);
            let name = if is_mixed { format!("{format} {kind}") } else { kind };
            *by_type.entry(name).or_default() += count;
        }
        undecoded.unknown_type += counts.unknown;
        undecoded.wrong_length += counts.wrong_length;
        undecoded.empty += counts.empty;
        undecoded.undefined += counts.undefined;
        undecoded.lost_to_books += counts.lost_to_books;
    }
    (by_type, undecoded)
}
