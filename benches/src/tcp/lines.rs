//! The lines of the table: the promised figures, beside smoltcp's.

use core::cell::RefCell;

use super::crowd::Crowd;
use super::flood::Flood;
use super::orders::Orders;
use super::pair::{Cuts, PairConfig, Role, TcpPair};
use super::peer::SmoltcpPair;
use super::{Checksums, MESSAGE_LEN};
use crate::measure::sampling::{Samples, Spread, interleave};
use crate::measure::table::{DemuxMatch, Line};

/// Bytes of a sample in bulk: some 0.2 ms.
const BULK_LEN: usize = 2 << 20;
/// Requests of a sample.
const REQUESTS: usize = 500;
/// Segments of a sample are so many batches of 256.
const BATCHES: usize = 4;
/// Bursts of a sample under a flood of SYNs: some 0.2 ms.
const FLOODED_BURSTS: usize = 64;

/// All lines of TCP in memory, each as soon as it is measured, without times for zero samples;
/// `instructions` counts those of a path.
pub fn lines(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, mut add: impl FnMut(Line)) {
    bulk(samples, &instructions, &mut add);
    round_trips(samples, &instructions, &mut add);
    orders(samples, &instructions, &mut add);
    crowds(samples, &instructions, &mut add);
    flood(samples, &mut add);
    allocated(&mut add);
}

/// Gbit/s are measured directly, so higher is better. The wire is between two NICs that cut
/// segments, and compute and verify checksums, in software on this same core; the figure without
/// these offloads is reported beside it.
fn bulk(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    for (checksums, name, paths, least, hope) in [
        (Checksums::On, "checksums on", ["tcp-bulk-cut", "tcp-bulk"], 60.0, 80.0),
        (Checksums::Off, "checksums off", ["tcp-bulk-cut-unchecked", "tcp-bulk-unchecked"], 90.0, 120.0),
    ] {
        let config = PairConfig::one(checksums, Role::Sink);
        let mut ours = TcpPair::new(PairConfig { cuts: Cuts::Device, ..config });
        let mut uncut = TcpPair::new(config);
        let mut theirs = SmoltcpPair::new(checksums);
        let [ours, uncut, theirs] = interleave(
            samples,
            [&mut || ours.bulk(BULK_LEN), &mut || uncut.bulk(BULK_LEN), &mut || theirs.bulk(BULK_LEN)],
        );
        let title = format!("TCP bulk in memory, MTU 1500, both ends, the NIC cuts, {name}");
        add(Line::new(&title, "Gbit/s", ours.spread()).at_least(least).hoping(hope));
        add(Line::new("  smoltcp in the same run", "Gbit/s", theirs.spread()));
        add(Line::new("  wirepath over smoltcp", "x", ours.over(&theirs)).at_least(1.3));
        add(Line::new("  instructions a segment", "instr", instructions(paths[0])));
        add(Line::new("  without segmentation", "Gbit/s", uncut.spread()));
        add(Line::new("  without segmentation, over smoltcp", "x", uncut.over(&theirs)));
        add(Line::new("  without segmentation, instructions a segment", "instr", instructions(paths[1])));
    }
}

fn round_trips(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    let mut ours = TcpPair::new(PairConfig::one(Checksums::On, Role::Echo));
    let mut theirs = SmoltcpPair::new(Checksums::On);
    let mut unchecked = TcpPair::new(PairConfig::one(Checksums::Off, Role::Echo));
    let [ours, unchecked, theirs] = interleave(
        samples,
        [&mut || ours.round_trip(REQUESTS), &mut || unchecked.round_trip(REQUESTS), &mut || {
            theirs.round_trip(REQUESTS)
        }],
    );
    let title = format!("TCP request and response of {MESSAGE_LEN} B in memory, both ends");
    add(Line::new(&title, "ns", ours.spread()).at_most(145.0).hoping(130.0));
    add(Line::new("  checksums off", "ns", unchecked.spread()).at_most(135.0).hoping(120.0));
    add(Line::new("  smoltcp in the same run", "ns", theirs.spread()));
    let counted = Line::new("  instructions, both ends", "instr", instructions("tcp-round-trip"));
    add(counted.at_most(3000.0).hoping(2600.0));
}

fn orders(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    let mut orders = Orders::new();
    let [spent] = interleave(samples, [&mut || orders.time(BATCHES)]);
    let title = format!("TCP template of {MESSAGE_LEN} B patched and fired, posted in memory");
    add(Line::new(&title, "ns", spent.spread()).at_most(60.0).hoping(40.0).over_floor(30.0));
    add(Line::new("  instructions", "instr", instructions("tcp-fire")).at_most(340.0));
    add(Line::new("  over mlx5, instructions", "instr", instructions("mlx5-fire")));
    add(Line::new("  preposted over mlx5, instructions", "instr", instructions("mlx5-fire-preposted")));
    add(Line::new("  to prepost it before, instructions", "instr", instructions("mlx5-prepost")));
}

fn crowds(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    let count = |connections: usize| instructions(&format!("tcp-crowd-{connections}"));
    add(Line::new("TCP segment to the app and its answer, of one connection, instructions", "instr", count(1)));
    for (connections, most, hope) in [(1_000, 1.3, 1.1), (100_000, 2.5, 2.0), (1_000_000, 4.0, 3.0)] {
        let [one, many] = crowd_and_one(samples / 4, connections);
        let title = format!("TCP segment to the app and its answer, one of {connections} connections");
        add(Line::new(&title, "ns", many.spread()));
        add(Line::new("  over one connection", "x", many.over(&one)).at_most(most).hoping(hope));
        // Under callgrind a million take minutes to open.
        if connections <= 100_000 {
            add(Line::new("  instructions", "instr", count(connections)));
        }
    }
}

/// Samples of one connection, and of many in turn; many take seconds to open, so zero samples skip
/// them.
fn crowd_and_one(samples: usize, connections: usize) -> [Samples; 2] {
    if samples == 0 {
        return Default::default();
    }
    let (mut one, mut many) = (Crowd::new(1), Crowd::new(connections));
    interleave(samples, [&mut || one.time(BATCHES), &mut || many.time(BATCHES)])
}

/// Goodput, so higher is better.
fn flood(samples: usize, add: &mut impl FnMut(Line)) {
    // Both contenders take turns with the same two ends, so that they differ only in the SYNs.
    let flood = RefCell::new(Flood::new());
    let time = |is_flooded| flood.borrow_mut().time(FLOODED_BURSTS, is_flooded);
    let [calm, flooded] = interleave(samples, [&mut || time(false), &mut || time(true)]);
    let title = "TCP bulk in half of each burst, both ends, while SYNs from unknown hosts fill the other";
    add(Line::new(title, "Gbit/s", flooded.spread()));
    add(Line::new("  over the same without SYNs", "x", flooded.over(&calm)).at_least(0.8));
}

/// On an established connection: a million segments, half of them each way.
fn allocated(add: &mut impl FnMut(Line)) {
    let mut pair = TcpPair::new(PairConfig::one(Checksums::On, Role::Echo));
    let before = allocations::count();
    (0..500_000).for_each(|_| pair.exchange());
    let count = Ok(Spread::exactly((allocations::count() - before) as f64));
    add(Line::new("allocations in a million segments of a connection", "count", count).at_most(0.0));
}
