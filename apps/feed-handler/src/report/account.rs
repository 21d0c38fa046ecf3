//! The two sums that must hold: every packet and every message is counted.

use std::collections::BTreeMap;

use serde::Serialize;
use wirepath::counters::{Class, Reading, Sample, Snapshot};

use super::Run;
use crate::feed::ChannelTally;
use crate::format::Format;

/// The outcomes of packets: `read + duplicated + icmp_errors_from_kernel = delivered + answered +
/// dropped + merged + held`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PacketAccount {
    /// Frames read from the file, or received on our queues, including those that the kernel
    /// dropped there.
    pub read: u64,
    /// Copied by the fault device.
    pub duplicated: u64,
    /// ICMP errors about our flows that the kernel received and copied to us.
    pub icmp_errors_from_kernel: u64,
    /// Datagrams that the feed accepted.
    pub delivered: u64,
    /// ARP, ICMP and IGMP packets that a host of our own handled.
    pub answered: u64,
    /// Dropped for a named reason, from the device to the feed.
    pub dropped: u64,
    /// Fragments merged into a datagram beside its first.
    pub merged: u64,
    /// Frames with neither outcome: fragments without the rest of their datagram, and frames that
    /// were still in the device when a signal came.
    pub held: u64,
    /// Packets that ended without a reason.
    pub without_reason: u64,
}

/// The outcomes of messages: `received = delivered + duplicates + late + past + doubted +
/// not_kept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MessageAccount {
    /// On all lines.
    pub received: u64,
    /// In order, each once.
    pub delivered: u64,
    /// Delivered before.
    pub duplicates: u64,
    /// Their sequence numbers were given up earlier.
    pub late: u64,
    /// Packets of before a restart that arrived after it.
    pub past: u64,
    /// In packets that claimed another session or numbers that no second packet confirmed: damaged
    /// or forged ones.
    pub doubted: u64,
    /// Should have waited, but no buffer was free for it.
    pub not_kept: u64,
    /// Messages given to the decoder: the delivered ones, or, where numbers are those of packets,
    /// what the delivered packets hold.
    pub built: u64,
    /// Of these, not decoded.
    pub undecoded: u64,
    /// Decoded.
    pub decoded: u64,
}

impl PacketAccount {
    pub(super) fn new(counters: &Snapshot, run: &Run) -> Self {
        let at_device: u64 = drops(counters).iter().filter(|(name, _)| name.starts_with("rx.")).map(|(_, n)| n).sum();
        let by_faults: u64 =
            drops(counters).iter().filter(|(name, _)| name.starts_with("fault.")).map(|(_, n)| n).sum();
        let read = count(counters, "rx/frames") + at_device;
        let duplicated = count(counters, "fault/rx/duplicated");
        // After a signal frames remain between the file and the worker.
        let in_device = if run.stopped || run.limited {
            (read + duplicated).saturating_sub(at_device + by_faults + count(counters, "frames"))
        } else {
            0
        };
        Self {
            read,
            duplicated,
            icmp_errors_from_kernel: count(counters, "icmp_errors_from_kernel"),
            delivered: count(counters, "feed/packets"),
            answered: taken(counters, "arp/packets", "arp.")
                + taken(counters, "icmp/messages", "icmp.")
                + count(counters, "igmp/messages"),
            dropped: drops(counters).values().sum(),
            merged: count(counters, "ipv4/fragments_merged"),
            held: run.held + in_device,
            without_reason: run.without_reason,
        }
    }

    /// Whether the sum holds.
    pub fn holds(&self) -> bool {
        let came = self.read + self.duplicated + self.icmp_errors_from_kernel;
        let went = self.delivered + self.answered + self.dropped + self.merged + self.held;
        came == went && self.without_reason == 0
    }

    pub(super) fn failure(&self) -> Option<String> {
        let Self {
            read,
            duplicated,
            icmp_errors_from_kernel,
            delivered,
            answered,
            dropped,
            merged,
            held,
            without_reason,
        } = self;
        (!self.holds()).then(|| {
            format!(
                "packets do not add up: {read} read + {duplicated} copied + {icmp_errors_from_kernel} ICMP errors from the kernel are not {delivered} delivered \
                 + {answered} answered + {dropped} dropped + {merged} merged + {held} held, {without_reason} without a reason; this is a bug, \
                 please report it"
            )
        })
    }
}

impl MessageAccount {
    pub(super) fn new(channels: &[ChannelTally]) -> Self {
        let sum = |count: fn(&ChannelTally) -> u64| channels.iter().map(count).sum();
        Self {
            received: sum(|channel| {
                let answers =
                    channel.recovery.map_or(0, |recovery| recovery.answers.messages - recovery.answers.dropped);
                answers + channel.lines.iter().map(|line| line.counts.messages).sum::<u64>()
            }),
            delivered: sum(|channel| channel.sequence.delivered),
            duplicates: sum(|channel| channel.sequence.duplicates),
            late: sum(|channel| channel.sequence.late),
            past: sum(|channel| channel.sequence.past),
            doubted: sum(|channel| channel.sequence.doubted),
            not_kept: sum(|channel| channel.not_kept),
            built: sum(|channel| channel.built),
            undecoded: sum(|channel| channel.messages.total() - channel.messages.decoded()),
            decoded: sum(|channel| channel.messages.decoded()),
        }
    }

    /// Whether the sum holds.
    pub fn holds(&self) -> bool {
        let Self { received, delivered, duplicates, late, past, doubted, not_kept, .. } = *self;
        received == delivered + duplicates + late + past + doubted + not_kept
            && self.built == self.decoded + self.undecoded
    }

    pub(super) fn failure(&self) -> Option<String> {
        let Self { received, delivered, duplicates, late, past, doubted, not_kept, built, undecoded, decoded } = self;
        (!self.holds()).then(|| {
            format!(
                "messages do not add up: {received} received are not {delivered} delivered + {duplicates} duplicates + \
                 {late} late + {past} past + {doubted} doubted + {not_kept} not kept, or {built} given to the decoder not {decoded} decoded + {undecoded} not; this is a bug, \
                 please report it"
            )
        })
    }
}

/// The sum of a counter over all workers; 0 where none has that name.
pub(crate) fn count(counters: &Snapshot, name: &str) -> u64 {
    let of_workers = |sample: &&Sample| of_worker(&sample.name) == Some(name);
    counters.samples.iter().filter(of_workers).filter_map(|sample| counters.count(&sample.name)).sum()
}

/// The part behind `worker0/`, `worker1/` …, and behind the format where a worker has several.
fn of_worker(name: &str) -> Option<&str> {
    let (number, rest) = name.strip_prefix("worker")?.split_once('/')?;
    let rest = match rest.split_once('/') {
        Some((format, rest)) if format.parse::<Format>().is_ok() => rest,
        _ => rest,
    };
    number.bytes().all(|digit| digit.is_ascii_digit()).then_some(rest)
}

/// Packets that a node accepted, of those that `counter` counts. A node that only counts drops has
/// no such counter.
fn taken(counters: &Snapshot, counter: &str, node: &str) -> u64 {
    let dropped: u64 = drops(counters).iter().filter(|(name, _)| name.starts_with(node)).map(|(_, count)| count).sum();
    count(counters, counter).saturating_sub(dropped)
}

/// Every drop reason of received packets, as `ethernet.other_vlan`, with its count.
pub(super) fn drops(counters: &Snapshot) -> BTreeMap<String, u64> {
    named(counters, Class::RxDrop)
}

/// The same for packets that were not sent.
pub(super) fn not_sent(counters: &Snapshot) -> BTreeMap<String, u64> {
    named(counters, Class::TxDrop)
}

/// A dropped packet may have a second reason of the other class: why no error was sent to its
/// sender.
fn named(counters: &Snapshot, class: Class) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    for sample in counters.samples.iter().filter(|sample| sample.class == class) {
        let Reading::Counter(dropped) = sample.reading else { continue };
        let Some(name) = of_worker(&sample.name) else { continue };
        if let Some((node, reason)) = name.split_once("/drop/")
            && dropped > 0
        {
            *drops.entry(format!("{}.{reason}", node.replace('/', "."))).or_default() += dropped;
        }
    }
    drops
}
