//! What a device counted, in shared memory: rows for `wirepath stats`, one for each queue pair.

use wirepath::counters::{Counter, Gauge, Scope, Unit};
use wirepath::time::{Duration, Instant};

use super::node::NodeCounters;
use crate::roce::{Device, DeviceCounters, QpCounters, QpHandle};

/// Between two publications: a reader looks four times a second, and a row costs some twenty
/// stores.
const SPAN: Duration = Duration::from_millis(10);

/// A value that is published: its name, its unit, and how it is found.
type Entry<T> = (&'static str, Unit, fn(&T) -> u64);

/// The counters of a port's device, and those of the port's node.
pub(super) struct Rows {
    device: DeviceRows,
    node: Vec<Counter>,
    node_drops: Vec<Counter>,
}

/// The published counters of a device, and when they are published next: of one that no port
/// carries, such as one on a cable. [`RoceNode::count_in`](crate::port::RoceNode::count_in) is the
/// same for a port.
pub struct DeviceRows {
    device: Vec<Counter>,
    device_drops: Vec<Counter>,
    /// One for each place of the device's table of queue pairs, as far as there are rows.
    qps: Vec<Row>,
    next_at: Instant,
    /// Packets in and out when they were published last.
    packets: u64,
}

struct Row {
    /// The number of the queue pair that has the place now, and its state; zeros for none.
    number: Gauge,
    state: Gauge,
    counters: Vec<Counter>,
    qp: Option<QpHandle>,
    /// What the row had counted before this queue pair.
    before: Vec<u64>,
}

impl Rows {
    /// Makes the rows. This allocates.
    pub(super) fn new(scope: &Scope, count: u32) -> Self {
        Self {
            device: DeviceRows::new(scope, count),
            node: register(scope, &NODE),
            node_drops: register_drops(scope, &NODE_DROPS),
        }
    }

    /// Publishes what was counted, if it is time.
    #[inline]
    pub(super) fn publish(&mut self, now: Instant, device: &Device, node: &NodeCounters) {
        if self.device.publish(now, device) {
            self.publish_node(node);
        }
    }

    /// When there is something new to publish.
    pub(super) fn deadline(&self, device: &Device) -> Instant {
        if packets(&device.counters()) == self.device.packets { Instant::MAX } else { self.device.next_at }
    }

    pub(super) fn publish_now(&mut self, device: &Device, node: &NodeCounters) {
        self.device.publish_now(device);
        self.publish_node(node);
    }

    fn publish_node(&self, node: &NodeCounters) {
        set(&self.node, &NODE, node, &[]);
        set(&self.node_drops, &NODE_DROPS, node, &[]);
    }
}

impl DeviceRows {
    /// Makes the rows of the device and of its first `qps` queue pairs in a scope. This allocates,
    /// some 6 KiB a row.
    pub fn new(scope: &Scope, qps: u32) -> Self {
        let (device, device_drops) = (register(scope, &DEVICE), register_drops(scope, &DEVICE_DROPS));
        let qps = (0..qps).map(|place| Row::new(&scope.scope(&format!("qp{place}")))).collect();
        Self { device, device_drops, qps, next_at: Instant::from_nanos(0), packets: 0 }
    }

    /// Publishes what was counted, if 10 ms have passed since; true if it did. To be called in each
    /// turn: it costs a compare, and some twenty stores a row where it publishes.
    #[inline]
    pub fn publish(&mut self, now: Instant, device: &Device) -> bool {
        let is_time = now >= self.next_at;
        if is_time {
            self.next_at = now + SPAN;
            self.publish_now(device);
        }
        is_time
    }

    /// Publishes what was counted, at the end.
    pub fn publish_now(&mut self, device: &Device) {
        let counters = device.counters();
        self.packets = packets(&counters);
        set(&self.device, &DEVICE, &counters, &[]);
        set(&self.device_drops, &DEVICE_DROPS, &counters, &[]);
        for (place, row) in (0..).zip(&mut self.qps) {
            row.publish(device, device.qp_at(place));
        }
    }
}

impl Row {
    fn new(scope: &Scope) -> Self {
        let (number, state) = (scope.gauge("number", Unit::Number), scope.gauge("state", Unit::Number));
        Self { number, state, counters: register(scope, &QP), qp: None, before: vec![0; QP.len()] }
    }

    fn publish(&mut self, device: &Device, qp: Option<QpHandle>) {
        if qp != self.qp {
            self.qp = qp;
            self.before.iter_mut().zip(&self.counters).for_each(|(before, counter)| *before = counter.get());
        }
        self.number.set(qp.and_then(|qp| device.qpn(qp)).map_or(0, |qpn| qpn.get().into()));
        self.state.set(qp.and_then(|qp| device.qp_state(qp)).map_or(0, |state| state as u64));
        if let Some(counters) = qp.and_then(|qp| device.qp_counters(qp)) {
            set(&self.counters, &QP, &counters, &self.before);
        }
    }
}

fn register<T>(scope: &Scope, entries: &[Entry<T>]) -> Vec<Counter> {
    entries.iter().map(|(name, unit, _)| scope.counter(name, *unit)).collect()
}

fn register_drops<T>(scope: &Scope, entries: &[Entry<T>]) -> Vec<Counter> {
    entries.iter().map(|(name, unit, _)| scope.drop_counter(name, *unit)).collect()
}

/// Sets the counters to what `from` says, and what was counted before.
fn set<T>(counters: &[Counter], entries: &[Entry<T>], from: &T, before: &[u64]) {
    for (idx, (counter, (_, _, value))) in counters.iter().zip(entries).enumerate() {
        let value = value(from).wrapping_add(before.get(idx).copied().unwrap_or(0));
        counter.add(value.wrapping_sub(counter.get()));
    }
}

fn packets(counters: &DeviceCounters) -> u64 {
    counters.packets_rx + counters.packets_tx
}

const DEVICE: [Entry<DeviceCounters>; 7] = [
    ("packets_rx", Unit::Packets, |device| device.packets_rx),
    ("packets_tx", Unit::Packets, |device| device.packets_tx),
    ("cnps_rx", Unit::Packets, |device| device.cnps_rx),
    ("mads_rx", Unit::Packets, |device| device.mads_rx),
    ("mads_tx", Unit::Packets, |device| device.mads_tx),
    ("events_lost", Unit::Events, |device| device.events_lost),
    ("cq_overruns", Unit::Events, |device| device.cq_overruns),
];

/// Packets that the device drops.
const DEVICE_DROPS: [Entry<DeviceCounters>; 10] = [
    ("mads", Unit::Packets, |device| device.mads_dropped),
    ("malformed", Unit::Packets, |device| device.malformed),
    ("icrc_errors", Unit::Packets, |device| device.icrc_errors),
    ("unknown_qp", Unit::Packets, |device| device.unknown_qp),
    ("qp_state", Unit::Packets, |device| device.qp_state),
    ("pkey_violations", Unit::Packets, |device| device.pkey_violations),
    ("wrong_transport", Unit::Packets, |device| device.wrong_transport),
    ("wrong_address", Unit::Packets, |device| device.wrong_address),
    ("qkey_violations", Unit::Packets, |device| device.qkey_violations),
    ("unknown_groups", Unit::Packets, |device| device.unknown_groups),
];

const NODE: [Entry<NodeCounters>; 1] = [("deferred", Unit::Polls, |node| node.deferred)];

/// Packets that the node drops before the device.
const NODE_DROPS: [Entry<NodeCounters>; 2] =
    [("without_headers", Unit::Packets, |node| node.without_headers), ("refused", Unit::Frames, |node| node.refused)];

const QP: [Entry<QpCounters>; 23] = [
    ("packets_rx", Unit::Packets, |qp| qp.packets_rx),
    ("packets_tx", Unit::Packets, |qp| qp.packets_tx),
    ("retransmits", Unit::Packets, |qp| qp.retransmits),
    ("duplicates", Unit::Packets, |qp| qp.duplicates),
    ("out_of_sequence", Unit::Packets, |qp| qp.out_of_sequence),
    ("stale_responses", Unit::Packets, |qp| qp.stale_responses),
    ("dropped", Unit::Messages, |qp| qp.dropped),
    ("access_violations", Unit::Messages, |qp| qp.access_violations),
    ("timeouts", Unit::Events, |qp| qp.timeouts),
    ("implied_naks", Unit::Events, |qp| qp.implied_naks),
    ("rnr_naks_rx", Unit::Packets, |qp| qp.rnr_naks_rx),
    ("rnr_naks_tx", Unit::Packets, |qp| qp.rnr_naks_tx),
    ("naks_rx/psn_sequence", Unit::Packets, |qp| qp.naks_rx[0]),
    ("naks_rx/invalid_request", Unit::Packets, |qp| qp.naks_rx[1]),
    ("naks_rx/remote_access", Unit::Packets, |qp| qp.naks_rx[2]),
    ("naks_rx/remote_operational", Unit::Packets, |qp| qp.naks_rx[3]),
    ("naks_tx/psn_sequence", Unit::Packets, |qp| qp.naks_tx[0]),
    ("naks_tx/invalid_request", Unit::Packets, |qp| qp.naks_tx[1]),
    ("naks_tx/remote_access", Unit::Packets, |qp| qp.naks_tx[2]),
    ("naks_tx/remote_operational", Unit::Packets, |qp| qp.naks_tx[3]),
    ("marked_rx", Unit::Packets, |qp| qp.marked_rx),
    ("cnps_tx", Unit::Packets, |qp| qp.cnps_tx),
    ("cnps_rx", Unit::Packets, |qp| qp.cnps_rx),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A row that shows the value of another one would send who reads it to the wrong end.
    #[test]
    fn each_row_of_a_queue_pair_has_a_counter_of_its_own() {
        let mut counters = QpCounters::default();
        let fields = [
            &mut counters.packets_rx,
            &mut counters.packets_tx,
            &mut counters.retransmits,
            &mut counters.duplicates,
            &mut counters.out_of_sequence,
            &mut counters.stale_responses,
            &mut counters.dropped,
            &mut counters.access_violations,
            &mut counters.timeouts,
            &mut counters.implied_naks,
            &mut counters.rnr_naks_rx,
            &mut counters.rnr_naks_tx,
        ];
        for (field, value) in fields.into_iter().zip(1..) {
            *field = value;
        }
        counters.naks_rx = [13, 14, 15, 16];
        counters.naks_tx = [17, 18, 19, 20];
        (counters.marked_rx, counters.cnps_tx, counters.cnps_rx) = (21, 22, 23);
        let shown = QP.map(|(_, _, value)| value(&counters));
        assert!(shown.into_iter().eq(1..=23), "{shown:?}");
    }
}
