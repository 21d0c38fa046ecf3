//! The lines of the table: what the project promises of RDMA.

use std::time::Instant;

use rdma::roce::Mtu;

use super::orders::{MirroredOrders, ORDERS, Reach};
use super::pair::{BURST_LEN, Pair, PairConfig};
use super::ports::Ports;
use crate::frames::shuffled;
use crate::measure::outside::Subject;
use crate::measure::sampling::{Spread, interleave};
use crate::measure::table::{DemuxMatch, Line};

/// Messages of a sample.
const MESSAGES: usize = 256;
/// WRITEs whose bytes are seen before the first is acknowledged: half a queue.
const UNACKNOWLEDGED: usize = 32;
/// Messages of a sample in bulk, and their bytes: a mebibyte.
const BULK: usize = 16;
const BULK_LEN: usize = 65_536;
/// Connections of a worker that has many.
const CONNECTIONS: u32 = 10_000;

/// All lines, each as soon as it is measured, without times for zero samples. `packets` counts
/// instructions and system calls of a path.
pub fn lines(samples: usize, packets: &Subject, mut add: impl FnMut(Line)) {
    let instructions = |path: &str| packets.instructions(path).map(Spread::exactly);
    messages(samples, instructions, &mut add);
    bulk(samples, instructions, &mut add);
    orders(samples, instructions, &mut add);
    connections(samples, &mut add);
    memory(&mut add);
    let mut pair = Pair::new(PairConfig::default());
    let before = allocations::count();
    (0..1_000_000).for_each(|_| pair.send());
    let allocated = Ok(Spread::exactly((allocations::count() - before) as f64));
    add(Line::new("allocations in a million SENDs, both ends", "count", allocated).at_most(0.0));
    let calls = packets.system_calls("rdma-send").map(Spread::exactly);
    add(Line::new("system calls a SEND, by strace of a million", "count", calls).at_most(0.0));
}

fn messages(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    let (mut sends, mut writes) = (Pair::new(PairConfig::default()), Pair::new(PairConfig::default()));
    let [sends, writes] = interleave(
        samples,
        [&mut || time(MESSAGES, || sends.send()), &mut || {
            let spent = time(UNACKNOWLEDGED, || writes.write(0));
            writes.complete();
            spent
        }],
    );
    let what = "RDMA SEND of 64 B, post to completion at both ends";
    add(Line::new(what, "ns", sends.spread()).at_most(250.0).hoping(150.0));
    add(Line::new("  instructions", "instr", instructions("rdma-send")));
    let what = "RDMA WRITE of 64 B, post to bytes at the other end";
    add(Line::new(what, "ns", writes.spread()).at_most(180.0).hoping(120.0));
    add(Line::new("  instructions, and for acknowledgment and completion", "instr", instructions("rdma-write")));
}

/// The ICRC is made by one end and checked by the other, on this same core.
fn bulk(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    for (mtu, path, least, hope) in
        [(Mtu::B4096, "rdma-bulk-4096", 40.0, 80.0), (Mtu::B1024, "rdma-bulk-1024", 25.0, 50.0)]
    {
        let mut pair = Pair::new(PairConfig { mtu, message_len: BULK_LEN, ..PairConfig::default() });
        let bits = (8 * BULK * BULK_LEN) as f64;
        let mut rate = || {
            let start = Instant::now();
            pair.write_bulk(BULK);
            bits / start.elapsed().as_nanos() as f64
        };
        let [rates] = interleave(samples, [&mut rate]);
        let what = format!("RDMA WRITE in bulk, MTU {mtu}, both ends, ICRC made and checked");
        add(Line::new(&what, "Gbit/s", rates.spread()).at_least(least).hoping(hope));
        add(Line::new("  instructions a packet", "instr", instructions(path)));
    }
}

/// The frame leaves in the turn of the port behind the order, or before it where the order waits.
fn orders(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    let orders = core::cell::RefCell::new(MirroredOrders::new());
    let sample = |reach| {
        let mut orders = orders.borrow_mut();
        let spent = time(ORDERS, || orders.order(reach));
        orders.settle();
        spent
    };
    let [plain, posted, framed] = interleave(
        samples,
        [&mut || sample(Reach::Journal), &mut || sample(Reach::Posted), &mut || sample(Reach::Framed)],
    );
    add(Line::new("an order's states, risk checks and record, without a mirror", "ns", plain.spread()));
    add(Line::new("  instructions", "instr", instructions("rdma-order")));
    let what = "journal mirrored by WRITE, added to an order's path: its WRITE posted";
    add(Line::new(what, "ns", posted.minus(&plain)).at_most(60.0).hoping(30.0));
    add(Line::new("  instructions, with the order's own", "instr", instructions("rdma-order-posted")));
    add(Line::new("journal mirrored by WRITE: posted, and its frame made", "ns", framed.minus(&plain)));
    add(Line::new("  instructions, with the order's own", "instr", instructions("rdma-order-framed")));
}

/// The connections take turns in no order that a cache could foresee: one exchange after the other,
/// of which each waits for the lines of its queue pairs, and in bursts, as a worker has them, whose
/// waits overlap. The packets of an exchange are the same in all three. Each way of the two has the
/// cache to itself with the one connection: side by side they would push out each other's lines,
/// which no worker does to itself.
fn connections(samples: usize, add: &mut impl FnMut(Line)) {
    let pair = |connections| Pair::new(PairConfig { depth: 4, connections, ..PairConfig::default() });
    let mut one = pair(1);
    let exchange = |pair: &mut Pair, connection| {
        pair.write(connection);
        pair.complete();
    };
    let (mut many, mut order) = (pair(CONNECTIONS), shuffled(CONNECTIONS, CONNECTIONS as usize, 3).into_iter().cycle());
    let [one_beside, many_in_turn] = interleave(
        samples / 4,
        [&mut || time(MESSAGES, || exchange(&mut one, 0)), &mut || {
            time(MESSAGES, || exchange(&mut many, order.next().unwrap_or(0) as usize))
        }],
    );
    drop(many);
    let (mut many, order) = (pair(CONNECTIONS), shuffled(CONNECTIONS, CONNECTIONS as usize, 4));
    let mut bursts = order.chunks_exact(BURST_LEN).cycle();
    let [one_again, bursts] = interleave(
        samples / 4,
        [&mut || time(MESSAGES, || exchange(&mut one, 0)), &mut || {
            let each = time(MESSAGES / BURST_LEN, || many.write_on_each(bursts.next().unwrap_or(&[])));
            each / BURST_LEN as f64
        }],
    );
    add(Line::new(
        "RDMA WRITE of 64 B over 10,000 connections in turn, to its completion",
        "ns",
        many_in_turn.spread(),
    ));
    add(Line::new("  over one connection", "ns", one_beside.spread()));
    add(Line::new("  10,000 over one", "x", many_in_turn.over(&one_beside)).at_most(2.5).hoping(1.5));
    add(Line::new("  in bursts of 32 over 10,000 connections, prefetched", "ns", bursts.spread()));
    add(Line::new("  10,000 in bursts over one, which has no bursts", "x", bursts.over(&one_again)));
    ports(samples, add);
}

/// The same bursts between two ports, whose nodes ask for the queue pairs where there are many.
fn ports(samples: usize, add: &mut impl FnMut(Line)) {
    let spreads = [64, CONNECTIONS].map(|connections| {
        let mut ports = Ports::new(connections);
        let order = shuffled(connections, connections as usize, 5);
        let mut bursts = order.chunks_exact(BURST_LEN).cycle();
        let mut sample = || {
            let each = time(MESSAGES / BURST_LEN, || ports.write_on_each(bursts.next().unwrap_or(&[])));
            each / BURST_LEN as f64
        };
        let [spread] = interleave(samples / 4, [&mut sample]);
        spread
    });
    for (connections, spread) in ["64", "10,000"].into_iter().zip(spreads) {
        let what = format!("RDMA WRITE of 64 B in bursts of 32 between ports, over {connections} connections");
        add(Line::new(&what, "ns", spread.spread()));
    }
}

/// Of both ends, half; the memory of the devices counts, and that of the messages not.
fn memory(add: &mut impl FnMut(Line)) {
    const COUNT: u32 = 1_000;
    let bytes = |connections, depth| {
        let before = allocations::bytes();
        let pair = Pair::new(PairConfig { connections, depth, ..PairConfig::default() });
        let bytes = allocations::bytes() - before;
        drop(pair);
        bytes as f64 / 2.0
    };
    let each = |depth| (bytes(COUNT + 1, depth) - bytes(1, depth)) / f64::from(COUNT);
    let (one, two) = (each(1), each(2));
    let idle = Ok(Spread::exactly(one));
    add(Line::new("memory of an idle RC queue pair, queues of one request", "B", idle).at_most(1024.0).hoping(512.0));
    let more = Ok(Spread::exactly(two - one));
    add(Line::new("  each further request of its send queue and of its receive queue", "B", more));
}

/// Nanoseconds of each of so many.
fn time(count: usize, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..count).for_each(|_| run());
    start.elapsed().as_nanos() as f64 / count as f64
}
