//! The summary: what came in, what became of each packet and each message, and whether it adds up.
//!
//! ```text
//!   packets   read + copied by faults = delivered to the feed + dropped by name + merged from fragments + held
//!   messages  received on all lines   = delivered in order + duplicates + late + not kept
//!   truth     sent by the exchange    = received + injected losses, for each line and for both together
//! ```
//!
//! [`Summary`] is plain values; [`text`] prints it for people, and serde as one JSON object. What does not add up, and
//! whatever else failed, is a sentence in [`Summary::failures`], and the exit code follows.

mod account;
mod text;
mod truth;

use std::collections::BTreeMap;

use exchange_sim::Truth;
use market::TopOfBook;
use market::book::BookCounts;
use serde::{Serialize, Serializer};
use wirepath::counters::Snapshot;

use crate::feed::{BooksTally, ChannelTally, FeedTally, Latency, LineTally, Top, Tops};
use crate::format::Format;
use crate::plan::Plan;
use crate::sniff;

pub use account::{MessageAccount, PacketAccount};
pub use text::Table;
pub use truth::{TruthCheck, TruthLine};

/// How the run went, apart from the feed.
#[derive(Clone, Debug)]
pub struct Run {
    /// A signal ended it.
    pub stopped: bool,
    /// It ended after as many packets as were asked for.
    pub limited: bool,
    /// From the first poll to the last.
    pub seconds: f64,
    /// Where the worker ran.
    pub core: Core,
    /// Fragments that still wait for the rest.
    pub held: u64,
    /// Packets that ended without a name: a bug of ours.
    pub unnamed: u64,
    /// How the file ended.
    pub ending: Ending,
    /// Frames that the tap wrote, or why it could not.
    pub recorded: Option<Result<u64, String>>,
}

/// Where the worker ran.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Core {
    /// Its core; `None` where it was not pinned.
    pub number: Option<usize>,
    /// We chose it, not the user.
    pub chosen: bool,
}

/// How a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was not read to its end.
    Open,
    /// Behind its last record.
    Whole,
    /// In the middle of something; all before it was delivered.
    Truncated(String),
    /// In something that cannot be read.
    Damaged(String),
}

/// Everything that a replay found out. Counts are of packets or messages, as their names say.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The file.
    pub file: String,
    /// Its format.
    #[serde(serialize_with = "as_text")]
    pub format: Format,
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
    /// Messages that came again after they had been delivered: the other line's copy, or a repetition.
    pub duplicates: u64,
    /// Messages that came after their number had been given up.
    pub late: u64,
    /// Packets without messages.
    pub heartbeats: u64,
    /// Packets that said that the session is over.
    pub ends: u64,
    /// Times a feed began anew.
    pub restarts: u64,
    /// Packets that were dropped, by node and reason.
    pub drops: BTreeMap<String, u64>,
    /// Datagrams whose checksum field holds the sum of the pseudo header only, and that were taken all the same.
    pub partial_checksums: u64,
    /// The file ends in the middle of something.
    pub truncated: bool,
    /// In the middle of what, and where.
    pub truncation: Option<String>,
    /// A signal ended the run before the file did.
    pub stopped: bool,
    /// Everything adds up.
    pub accounted: bool,
    /// What became of packets.
    pub packet_account: PacketAccount,
    /// What became of messages.
    pub message_account: MessageAccount,
    /// Each channel.
    pub channels: Vec<ChannelSummary>,
    /// All channels' books together, without their tops.
    pub books: BooksSummary,
    /// How long packets took.
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
    /// What failed, in sentences. Empty where all is well.
    pub failures: Vec<String>,
}

/// Messages that the codec could not read.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Undecoded {
    /// Of a type that it does not know.
    pub unknown_type: u64,
    /// Of a known type with a wrong length.
    pub wrong_length: u64,
    /// Without a type.
    pub empty: u64,
}

/// One channel.
#[derive(Debug, Serialize)]
pub struct ChannelSummary {
    /// Its name, or its first group.
    pub name: String,
    /// Its number in the packets: IEX channel, Cboe unit.
    pub channel: u32,
    /// Delivered in order.
    pub messages: u64,
    /// See [`Summary::gaps`].
    pub gaps: u64,
    /// See [`Summary::missing`].
    pub missing: u64,
    /// The first gaps, as first and last number.
    pub gap_ranges: Vec<(u64, u64)>,
    /// See [`Summary::duplicates`].
    pub duplicates: u64,
    /// See [`Summary::late`].
    pub late: u64,
    /// See [`Summary::heartbeats`].
    pub heartbeats: u64,
    /// See [`Summary::ends`].
    pub ends: u64,
    /// See [`Summary::restarts`].
    pub restarts: u64,
    /// Holes that were filled by another line than the one that revealed them.
    pub healed_holes: u64,
    /// Holes that were filled by a late packet of the same line.
    pub reordered_holes: u64,
    /// Its lines.
    pub lines: Vec<LineSummary>,
    /// Its books.
    pub books: BooksSummary,
}

/// One line of a channel.
#[derive(Debug, Serialize)]
pub struct LineSummary {
    /// `A`, `B` …, or its configured name.
    pub name: String,
    /// Its group and port.
    pub group: String,
    /// With messages.
    pub packets: u64,
    /// Without messages, ends of session included.
    pub heartbeats: u64,
    /// Messages in them.
    pub messages: u64,
    /// Messages that it brought first.
    pub first: u64,
    /// Of these, the ones that filled a hole another line had revealed.
    pub healed: u64,
    /// Messages that it had brought itself before.
    pub duplicates: u64,
    /// Times that it skipped numbers, also where it brought them later.
    pub gaps: u64,
    /// Numbers that it skipped and did not bring later.
    pub lost: u64,
}

/// Books of one channel or of all.
#[derive(Debug, Default, Serialize)]
pub struct BooksSummary {
    /// Instruments that were mentioned.
    pub instruments: usize,
    /// With a bid and an offer.
    pub two_sided: usize,
    /// Not to be trusted, as messages are missing.
    pub stale: usize,
    /// Messages that changed a book.
    pub applied: u64,
    /// References to orders that are not known.
    pub unknown_orders: u64,
    /// References that were added twice.
    pub repeated_orders: u64,
    /// Orders without shares.
    pub empty_orders: u64,
    /// Executions and cancels of more than there was.
    pub beyond_size: u64,
    /// Refused for want of memory: orders, price levels, instruments.
    pub refused: u64,
    /// Best bid and offer of the instruments that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tops: Vec<TopSummary>,
}

/// Best bid and offer, as text with four decimals; `null` where a side is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopSummary {
    /// The instrument.
    pub symbol: String,
    /// Best bid.
    pub bid: Option<String>,
    /// Shares there.
    pub bid_shares: u64,
    /// Best offer.
    pub ask: Option<String>,
    /// Shares there.
    pub ask_shares: u64,
    /// Not to be trusted.
    pub stale: bool,
}

/// How long packets took, in ns.
#[derive(Debug, Serialize)]
pub struct LatencySummary {
    /// What exactly.
    pub measures: &'static str,
    /// Packets that were measured.
    pub samples: u64,
    /// One packet of so many.
    pub every: u32,
    /// Half of the packets took no longer.
    pub p50: u64,
    /// 99 of 100 took no longer.
    pub p99: u64,
    /// 999 of 1,000 took no longer.
    #[serde(rename = "p99.9")]
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// What the latency is, for people who will compare it with another.
const MEASURES: &str = "from a burst in the worker's hands to the books up to date, the wait behind the burst's earlier \
                        packets included, reading the file not";

impl Summary {
    /// Adds everything up.
    pub fn new(plan: &Plan, truth: Option<&Truth>, run: Run, tally: &FeedTally, counters: &Snapshot) -> Self {
        let packet_account = PacketAccount::new(counters, &run);
        let message_account = MessageAccount::new(&tally.channels);
        let channels: Vec<_> = tally.channels.iter().map(ChannelSummary::new).collect();
        let sum = |count: fn(&ChannelSummary) -> u64| channels.iter().map(count).sum();
        let messages: u64 = sum(|channel| channel.messages);
        let per_second = |count: u64| if run.seconds > 0.0 { count as f64 / run.seconds } else { 0.0 };
        let (by_type, undecoded) = decoded(plan.format, &tally.channels);
        let truth = truth.map(|truth| TruthCheck::new(truth, tally, run.stopped));
        let mut summary = Self {
            file: plan.input.display().to_string(),
            format: plan.format,
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
            fault_seed: plan.faults.map(|faults| faults.seed),
            truth,
            failures: Vec::new(),
        };
        summary.find_failures(plan, &run);
        summary
    }

    /// Shows so many tops of each channel and no more.
    pub fn limit_tops(&mut self, tops: Tops) {
        let Tops::First(count) = tops else { return };
        self.channels.iter_mut().for_each(|channel| channel.books.tops.truncate(count));
    }

    fn find_failures(&mut self, plan: &Plan, run: &Run) {
        let mut failures = Vec::new();
        if let Ending::Damaged(sentence) = &run.ending {
            failures.push(sentence.clone());
        }
        if let Some(Err(sentence)) = &run.recorded {
            failures.push(sentence.clone());
        }
        let heard =
            self.channels.iter().flat_map(|channel| &channel.lines).any(|line| line.packets + line.heartbeats > 0);
        if !heard && !run.stopped && failures.is_empty() {
            failures.push(sniff::explain(plan));
        }
        failures.extend(self.packet_account.failure());
        failures.extend(self.message_account.failure());
        failures.extend(self.truth.as_ref().and_then(TruthCheck::failure));
        self.failures = failures;
    }
}

impl ChannelSummary {
    fn new(tally: &ChannelTally) -> Self {
        let sequence = &tally.sequence;
        Self {
            name: tally.name.clone(),
            channel: tally.channel,
            messages: sequence.delivered,
            gaps: sequence.gaps,
            missing: sequence.missing,
            gap_ranges: tally.gaps.iter().map(|gap| (gap.from, gap.to)).collect(),
            duplicates: sequence.duplicates,
            late: sequence.late,
            heartbeats: sequence.heartbeats,
            ends: sequence.ends,
            restarts: sequence.restarts,
            healed_holes: tally.holes.healed,
            reordered_holes: tally.holes.reordered,
            lines: tally.lines.iter().map(LineSummary::new).collect(),
            books: BooksSummary::new(&tally.books),
        }
    }
}

impl LineSummary {
    fn new(tally: &LineTally) -> Self {
        let counts = &tally.counts;
        Self {
            name: tally.name.clone(),
            group: tally.group.to_string(),
            packets: counts.packets,
            heartbeats: counts.heartbeats,
            messages: counts.messages,
            first: counts.first,
            healed: counts.healed,
            duplicates: counts.duplicates,
            gaps: counts.gaps,
            lost: counts.lost,
        }
    }
}

impl BooksSummary {
    fn new(tally: &BooksTally) -> Self {
        let BookCounts {
            applied,
            unknown_orders,
            repeated_orders,
            empty_orders,
            beyond_size,
            orders_full,
            levels_full,
            books_full,
        } = tally.counts;
        Self {
            instruments: tally.instruments,
            two_sided: tally.two_sided,
            stale: tally.stale,
            applied,
            unknown_orders,
            repeated_orders,
            empty_orders,
            beyond_size,
            refused: orders_full + levels_full + books_full,
            tops: tally.tops.iter().map(TopSummary::new).collect(),
        }
    }

    fn plus(mut self, other: &Self) -> Self {
        self.instruments += other.instruments;
        self.two_sided += other.two_sided;
        self.stale += other.stale;
        self.applied += other.applied;
        self.unknown_orders += other.unknown_orders;
        self.repeated_orders += other.repeated_orders;
        self.empty_orders += other.empty_orders;
        self.beyond_size += other.beyond_size;
        self.refused += other.refused;
        self
    }
}

impl TopSummary {
    fn new(top: &Top) -> Self {
        let TopOfBook { bid_px, bid_qty, ask_px, ask_qty } = top.top;
        Self {
            symbol: top.symbol.to_string(),
            bid: (bid_qty > 0).then(|| bid_px.to_string()),
            bid_shares: bid_qty,
            ask: (ask_qty > 0).then(|| ask_px.to_string()),
            ask_shares: ask_qty,
            stale: top.stale,
        }
    }
}

impl LatencySummary {
    fn new(latency: &Latency) -> Self {
        let histogram = &latency.histogram;
        Self {
            measures: MEASURES,
            samples: histogram.len(),
            every: latency.every,
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// Messages of all channels by type, and those without one.
fn decoded(format: Format, channels: &[ChannelTally]) -> (BTreeMap<String, u64>, Undecoded) {
    let (mut by_type, mut undecoded) = (BTreeMap::new(), Undecoded::default());
    for counts in channels.iter().map(|channel| &channel.messages) {
        for (kind, count) in counts.iter() {
            *by_type.entry(format.kind_name(kind)).or_default() += count;
        }
        undecoded.unknown_type += counts.unknown;
        undecoded.wrong_length += counts.wrong_length;
        undecoded.empty += counts.empty;
    }
    (by_type, undecoded)
}

fn as_text<S: Serializer>(value: &impl ToString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}
