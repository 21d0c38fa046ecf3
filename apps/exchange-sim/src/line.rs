//! One line: the path of packets from the exchange to the receiver.
//!
//! A packet is lost, or it departs after the line's latency. It may be held back so that others
//! overtake it, and it may depart twice. Each line has its own random stream and makes the same
//! draws for each packet, used or not, so that changing the loss of one line changes nothing else.

use std::cmp::Ordering;
use std::sync::Arc;

use market::truth::{LineTruth, Packets};

use crate::packetizer::Packet;
use crate::random::Random;
use crate::settings::{LineSettings, Settings};

/// A packet that is held back waits at least this long.
const REORDER_DELAY_NS_MIN: u64 = 10_000;
/// A packet that is held back waits less than this. A handler that waits longer for a hole to close
/// never counts a late packet as lost.
pub const REORDER_DELAY_NS_MAX: u64 = 100_000;
/// A second copy follows the first one within this time.
const DUPLICATE_DELAY_NS_MAX: u64 = 5_000;
/// From the exchange to the receiver: line B has the longer path.
const LATENCY_NS: [u64; 2] = [1_000, 3_000];
/// The latency varies by less than this.
const JITTER_NS: u64 = 2_000;
/// On the wire beside the payload: preamble, Ethernet, IPv4 and UDP headers, check sequence and
/// gap.
const WIRE_OVERHEAD_LEN: u64 = 8 + 14 + 20 + 8 + 4 + 12;

/// The delivery of a packet to the receiver. Deliveries are ordered by time and, at equal times, by
/// their number.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// When the receiver sees it, in nanoseconds since midnight New York.
    pub time_ns: u64,
    /// 0 for line A, 1 for line B; beyond these the lines of MDP 3.0, A and B of each feed in turn.
    pub line_idx: usize,
    /// The packet.
    pub packet: Arc<Packet>,
    /// The packet was delivered before.
    is_copy: bool,
    /// Position among the deliveries of its line: breaks ties, so that the order is the same in
    /// every run.
    number: u64,
}

/// Draws the losses and delays of packets and counts them.
#[derive(Debug)]
pub(crate) struct Line {
    idx: usize,
    settings: LineSettings,
    random: Random,
    /// When the wire is free: it carries one packet after the other, at 10 Gb/s.
    free_ns: u64,
    deliveries: u64,
    /// Highest packet that has arrived.
    arrived_idx: Option<u64>,
    truth: LineTruth,
}

impl Line {
    /// Line A (0) or B (1), or one of MDP 3.0, which has the faults of the line of its letter.
    pub(crate) fn new(settings: &Settings, idx: usize) -> Self {
        Self {
            idx,
            settings: settings.lines[idx % 2].clone(),
            random: Random::new(settings.seed, 2 + idx as u64),
            free_ns: 0,
            deliveries: 0,
            arrived_idx: None,
            truth: LineTruth {
                name: ['A', 'B'][idx % 2],
                lost: Packets::default(),
                duplicated: Packets::default(),
                delayed: 0,
                reordered: 0,
                sent: Packets::default(),
            },
        }
    }

    /// Takes a packet from the exchange and makes 0, 1 or 2 departures of it. True where it was
    /// lost.
    pub(crate) fn send(&mut self, packet: &Arc<Packet>, mut depart: impl FnMut(Delivery)) -> bool {
        let lost = self.random.chance(self.settings.loss.get());
        let held_back = self.random.chance(self.settings.reorder.get());
        let duplicated = self.random.chance(self.settings.duplicate.get());
        let latency_ns = LATENCY_NS[self.idx % 2] + self.random.below(JITTER_NS);
        let hold_ns = REORDER_DELAY_NS_MIN + self.random.below(REORDER_DELAY_NS_MAX - REORDER_DELAY_NS_MIN);
        let copy_ns = self.random.below(DUPLICATE_DELAY_NS_MAX);
        if lost {
            self.truth.lost.count(packet.kind, packet.count);
            return true;
        }
        let mut time_ns = self.transmit(packet, packet.time_ns + latency_ns);
        if held_back {
            self.truth.delayed += 1;
            time_ns += hold_ns;
        }
        depart(self.delivery(packet, time_ns, false));
        if duplicated {
            self.truth.duplicated.count(packet.kind, packet.count);
            depart(self.delivery(packet, time_ns + copy_ns, true));
        }
        false
    }

    /// Counts a departure as the receiver sees it. Called in the order of their times.
    pub(crate) fn arrive(&mut self, delivery: &Delivery) {
        self.truth.sent.count(delivery.packet.kind, delivery.packet.count);
        let overtaken = self.arrived_idx > Some(delivery.packet.idx);
        if overtaken && !delivery.is_copy {
            self.truth.reordered += 1;
        }
        self.arrived_idx = self.arrived_idx.max(Some(delivery.packet.idx));
    }

    /// The account so far.
    pub(crate) fn into_truth(self) -> LineTruth {
        self.truth
    }

    /// When a packet that is ready at `ready_ns` has been sent: 0.8 ns a byte after the one before
    /// it.
    fn transmit(&mut self, packet: &Packet, ready_ns: u64) -> u64 {
        let wire_len = packet.payload.len() as u64 + WIRE_OVERHEAD_LEN;
        self.free_ns = self.free_ns.max(ready_ns) + wire_len * 8 / 10;
        self.free_ns
    }

    fn delivery(&mut self, packet: &Arc<Packet>, time_ns: u64, is_copy: bool) -> Delivery {
        self.deliveries += 1;
        Delivery { time_ns, line_idx: self.idx, packet: Arc::clone(packet), is_copy, number: self.deliveries }
    }
}

impl Delivery {
    fn key(&self) -> (u64, usize, u64) {
        (self.time_ns, self.line_idx, self.number)
    }
}

impl Ord for Delivery {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Delivery {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Delivery {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Delivery {}
