//! The machines that each datagram needs: the consumer lookup, the source filter, reassembly.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use wirepath::proto::FilterMode;
use wirepath::proto::{ConsumerId, DemuxMatch, FilterId, Flow, HashSeed, InterfaceId, ReassemblyCapacity, Subscriber};
use wirepath::testing::proto::{Demux, DemuxCapacity, Fragment, FragmentKey, Outcome, REASSEMBLY_TIMEOUT, Reassembly};
use wirepath::testing::proto::{Membership, SourceFilterCapacity, SourceFilters};
use wirepath::time::Instant;
use wirepath_benches::frames::{OURS, SENDER, group, shuffled};
use wirepath_benches::measure;

const SEED: HashSeed = HashSeed::new(1, 2);

fn plain(consumer: u32) -> Subscriber {
    Subscriber { consumer: ConsumerId(consumer), filter: FilterId::ANY }
}

/// A lookup among many groups, in an order without a pattern.
fn lookups(criterion: &mut Criterion) {
    let mut bench = criterion.benchmark_group("lookup");
    for count in [1, 64, 1_000, 100_000] {
        let capacity = DemuxCapacity { locals: count as usize, connections: 1, shared_subscribers: 1 };
        let mut demux = Demux::new(capacity, SEED);
        for idx in 0..count {
            demux.bind(group(idx), plain(idx)).expect("the table has room for all groups");
        }
        let order = shuffled(count, 65_536, 3);
        let mut next = order.iter().cycle();
        bench.bench_function(BenchmarkId::new("groups", count), |bencher| {
            bencher.iter(|| next.next().map(|idx| demux.only_consumer(black_box(group(*idx)))));
        });
    }
    bench.finish();
}

/// The cost of the other paths of a lookup.
fn lookup_paths(criterion: &mut Criterion) {
    let mut bench = criterion.benchmark_group("lookup path");
    let at = |address, port| SocketAddrV4::new(address, port);
    let any_group = *group(0).ip();
    let capacity = DemuxCapacity { locals: 8, connections: 8, shared_subscribers: 16 };
    let mut demux = Demux::new(capacity, SEED);
    let mut bind = |local, consumer| demux.bind(local, plain(consumer)).expect("the table has room");
    bind(at(any_group, 5_001), 1);
    bind(at(Ipv4Addr::UNSPECIFIED, 6_000), 1);
    (0..4).for_each(|consumer| bind(at(any_group, 5_000), consumer));
    demux.connect(Flow { local: at(OURS, 5_000), remote: SENDER }, ConsumerId(1)).expect("the table has room");
    for (name, local) in [
        ("one consumer", at(any_group, 5_001)),
        ("connected flow", at(OURS, 5_000)),
        ("list of four", at(any_group, 5_000)),
        ("wildcard", at(OURS, 6_000)),
        ("group that nobody joined", at(any_group, 5_002)),
        ("port that nobody bound", at(OURS, 5_002)),
    ] {
        bench.bench_function(name, |bencher| bencher.iter(|| receivers(&demux, black_box(local))));
    }
    bench.finish();
}

/// Walks over all subscribers of a datagram.
fn receivers(demux: &Demux, local: SocketAddrV4) -> u32 {
    match demux.lookup(Flow { local, remote: SENDER }) {
        DemuxMatch::None => 0,
        DemuxMatch::One(one) => one.consumer.0,
        DemuxMatch::Many(mut cursor) => {
            let mut sum = 0;
            while let Some(one) = demux.next(&mut cursor) {
                sum += one.consumer.0;
            }
            sum
        }
    }
}

fn source_filters(criterion: &mut Criterion) {
    let mut bench = criterion.benchmark_group("source filter");
    let mut filters = SourceFilters::new(SourceFilterCapacity { memberships: 8, sources: 4_096 }, SEED);
    let interface = InterfaceId(0);
    let member = |consumer| Membership { consumer: ConsumerId(consumer), group: *group(0).ip(), interface };
    let source = *SENDER.ip();
    let many: Vec<_> = (0..4_000).map(Ipv4Addr::from_bits).collect();
    let any = filters.join(member(1)).expect("there is room");
    let one = filters.join_source(member(2), source).expect("there is room");
    let many = filters.set(member(3), FilterMode::Exclude, &many).expect("there is room").unwrap_or(FilterId::ANY);
    let names = [("nobody asked", FilterId::ANY), ("any source", any), ("one source", one), ("4000 sources", many)];
    for (name, filter) in names {
        bench.bench_function(name, |bencher| {
            bencher.iter(|| filters.accepts(black_box(filter), interface, black_box(source)));
        });
    }
    bench.finish();
}

/// Datagrams of four fragments; a figure is for all four.
fn reassembly(criterion: &mut Criterion) {
    let mut bench = criterion.benchmark_group("reassembly of four fragments");
    for (name, offsets) in [("in order", [0, 1_480, 2_960, 4_440]), ("last first", [4_440, 2_960, 1_480, 0])] {
        let capacity = ReassemblyCapacity { datagrams: 1_024, pieces: 4_096, pieces_per_datagram: 64 };
        let mut machine = Reassembly::<u32>::new(capacity, REASSEMBLY_TIMEOUT, SEED);
        let mut identification = 0u16;
        bench.bench_function(name, |bencher| {
            bencher.iter(|| {
                identification = identification.wrapping_add(1);
                offsets.map(|offset| push(&mut machine, black_box(fragment(identification, offset))))
            });
        });
    }
    bench.finish();
}

fn fragment(identification: u16, offset: u16) -> Fragment<u32> {
    let (source, destination) = (*SENDER.ip(), OURS);
    let key = FragmentKey { source, destination, protocol: 17, identification, scope: 0 };
    Fragment { key, offset, len: 1_480, more: offset != 4_440, handle: 0 }
}

/// Fragments of the datagram that is now complete.
fn push(machine: &mut Reassembly<u32>, fragment: Fragment<u32>) -> usize {
    match machine.push(fragment, Instant::from_nanos(1), &mut |_| ()) {
        Outcome::Complete(pieces) => pieces.count(),
        Outcome::Kept | Outcome::Dropped(_) => 0,
    }
}

criterion_group! {
    name = benches;
    config = measure::criterion();
    targets = lookups, lookup_paths, source_filters, reassembly
}
criterion_main!(benches);
