//! The parts of a summary for each channel: its lines, its books, and the latency of its packets.

use std::collections::BTreeMap;

use market::{BookCounts, TopOfBook};
use serde::Serialize;

use crate::feed::{BooksTally, ChannelTally, Latency, LineTally, RecoveryTally, Top};

/// One channel.
#[derive(Debug, Serialize)]
pub struct ChannelSummary {
    /// Its name, or its first group.
    pub name: String,
    /// The format of its packets.
    pub format: &'static str,
    /// Its number in the packets: IEX channel, Cboe unit.
    pub channel: u32,
    /// Delivered in order.
    pub messages: u64,
    /// Its first number, where it was joined late on purpose (`first = "anywhere"`): its books lack
    /// what came before.
    pub joined_at: Option<u64>,
    /// See [`Summary::gaps`](super::Summary::gaps).
    pub gaps: u64,
    /// See [`Summary::missing`](super::Summary::missing).
    pub missing: u64,
    /// The first gaps, as first and last number.
    pub gap_ranges: Vec<(u64, u64)>,
    /// See [`Summary::duplicates`](super::Summary::duplicates).
    pub duplicates: u64,
    /// See [`Summary::late`](super::Summary::late).
    pub late: u64,
    /// Messages from before a restart that arrived after it.
    pub past: u64,
    /// Messages of packets whose session or numbers no second packet confirmed.
    pub doubted: u64,
    /// See [`Summary::heartbeats`](super::Summary::heartbeats).
    pub heartbeats: u64,
    /// See [`Summary::ends`](super::Summary::ends).
    pub ends: u64,
    /// See [`Summary::restarts`](super::Summary::restarts).
    pub restarts: u64,
    /// Holes that were filled by another line than the one that revealed them.
    pub healed_holes: u64,
    /// Holes that were filled by a late packet of the same line.
    pub reordered_holes: u64,
    /// Its lines.
    pub lines: Vec<LineSummary>,
    /// Its books.
    pub books: BooksSummary,
    /// What its servers brought; `None` where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoverySummary>,
}

/// What the servers of a channel brought.
#[derive(Debug, Serialize)]
pub struct RecoverySummary {
    /// Requests for messages, repeated ones included.
    pub requests: u64,
    /// Messages that were missing and came again.
    pub recovered: u64,
    /// Packets of the server that brought nothing missing.
    pub unasked: u64,
    /// Holes for which no answer came.
    pub unanswered: u64,
    /// Holes that were left to an image because they were too wide.
    pub too_wide: u64,
    /// Images that were asked for.
    pub images_requested: u64,
    /// Images that were put in the place of the books.
    pub images_applied: u64,
    /// Images that were refused: too old, doubtful, no longer wanted.
    pub images_refused: u64,
    /// Requests that brought no image.
    pub images_failed: u64,
    /// Times that the books were whole again by an image.
    pub images_completed: u64,
    /// Snapshots of single books that were applied, or confirmed one.
    pub snapshots_applied: u64,
    /// Of these, the ones that made a book anew.
    pub snapshots_adopted: u64,
    /// Snapshots that were too old, too far behind the live feed, or doubtful.
    pub snapshots_refused: u64,
    /// Times that a loop of snapshots had each instrument.
    pub snapshot_loops: u64,
    /// Times that the loop was left because all books were whole.
    pub snapshots_completed: u64,
    /// Definitions of instruments that a loop brought.
    pub definitions: u64,
    /// Messages of loops that could not be decoded.
    pub loops_undecoded: u64,
    /// Messages that were dropped from a queue behind an image or a snapshot because it was full.
    pub queue_overflowed: u64,
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
    /// Times that it skipped numbers, even where it brought them later.
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
    /// Stale: they lack something.
    pub stale: usize,
    /// Not stale, but what is missing may be theirs, or nobody has told their depth (CME).
    pub unconfirmed: usize,
    /// Messages that changed a book.
    pub applied: u64,
    /// References to orders that are not known.
    pub unknown_orders: u64,
    /// References that were added twice.
    pub repeated_orders: u64,
    /// Orders without shares.
    pub empty_orders: u64,
    /// Executions and cancels beyond the remaining size.
    pub beyond_size: u64,
    /// Refused for want of memory: orders, price levels, instruments.
    pub refused: u64,
    /// What books alone count that heal one by one (CME, B3), where it is not 0: updates of theirs
    /// that are missing, times that one was hurt and healed, snapshots that were not believed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub own_counts: BTreeMap<&'static str, u64>,
    /// Best bid and offer of the requested instruments.
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
    /// Stale.
    pub stale: bool,
}

/// Latency of packets in ns; `None` where none was measured.
#[derive(Debug, Serialize)]
pub struct LatencySummary {
    /// The definition of the latency.
    pub measures: &'static str,
    /// Packets that were measured.
    pub samples: u64,
    /// One packet in this many.
    pub every: u32,
    /// Half of the packets took no longer.
    pub p50: Option<u64>,
    /// 99 of 100 took no longer.
    pub p99: Option<u64>,
    /// 999 of 1,000 took no longer.
    #[serde(rename = "p99.9")]
    pub p999: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
}

/// The definition of the latency, so that readers can compare it with other figures.
const MEASURES: &str = "from a burst in the worker's hands to the books up to date, the wait behind the burst's earlier \
                        packets included, the device's own work not";

impl ChannelSummary {
    pub(super) fn new(tally: &ChannelTally) -> Self {
        let sequence = &tally.sequence;
        Self {
            name: tally.name.clone(),
            format: tally.format.name(),
            channel: tally.channel,
            messages: sequence.delivered,
            joined_at: tally.joined_at,
            gaps: sequence.gaps,
            missing: sequence.missing,
            gap_ranges: tally.gaps.iter().map(|gap| (gap.from, gap.to)).collect(),
            duplicates: sequence.duplicates,
            late: sequence.late,
            past: sequence.past,
            doubted: sequence.doubted,
            heartbeats: sequence.heartbeats,
            ends: sequence.ends,
            restarts: sequence.restarts,
            healed_holes: tally.holes.healed,
            reordered_holes: tally.holes.reordered,
            lines: tally.lines.iter().map(LineSummary::new).collect(),
            books: BooksSummary::new(&tally.books),
            recovery: tally.recovery.as_ref().map(RecoverySummary::new),
        }
    }
}

impl RecoverySummary {
    fn new(tally: &RecoveryTally) -> Self {
        let RecoveryTally { requests, answers, too_wide, image, loops } = tally;
        Self {
            requests: requests.requested,
            recovered: answers.delivered,
            unasked: answers.unasked,
            unanswered: requests.given_up,
            too_wide: *too_wide,
            images_requested: image.requested,
            images_applied: image.applied,
            images_refused: image.too_old + image.doubtful + image.unwanted,
            images_failed: image.failed,
            images_completed: image.completed,
            snapshots_applied: loops.snapshots.applied,
            snapshots_adopted: loops.snapshots.adopted,
            snapshots_refused: loops.snapshots.refused(),
            snapshot_loops: loops.snapshots.loops,
            snapshots_completed: loops.snapshots.completed,
            definitions: loops.definitions,
            loops_undecoded: loops.undecoded,
            queue_overflowed: image.overflowed + loops.snapshots.overflowed,
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
    pub(super) fn new(tally: &BooksTally) -> Self {
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
            unconfirmed: tally.unconfirmed,
            applied,
            unknown_orders,
            repeated_orders,
            empty_orders,
            beyond_size,
            refused: orders_full + levels_full + books_full,
            own_counts: tally.own_counts.iter().copied().filter(|&(_, count)| count > 0).collect(),
            tops: tally.tops.iter().map(TopSummary::new).collect(),
        }
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.instruments += other.instruments;
        self.two_sided += other.two_sided;
        self.stale += other.stale;
        self.unconfirmed += other.unconfirmed;
        self.applied += other.applied;
        self.unknown_orders += other.unknown_orders;
        self.repeated_orders += other.repeated_orders;
        self.empty_orders += other.empty_orders;
        self.beyond_size += other.beyond_size;
        self.refused += other.refused;
        other.own_counts.iter().for_each(|(name, count)| *self.own_counts.entry(name).or_default() += count);
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
    pub(super) fn new(latency: &Latency) -> Self {
        let histogram = &latency.histogram;
        // Without a measurement there is no value; a 0 would be wrong.
        let some = |ns: u64| (!histogram.is_empty()).then_some(ns);
        Self {
            measures: MEASURES,
            samples: histogram.len(),
            every: latency.every,
            p50: some(histogram.value_at_quantile(0.5)),
            p99: some(histogram.value_at_quantile(0.99)),
            p999: some(histogram.value_at_quantile(0.999)),
            max: some(histogram.max()),
        }
    }
}
