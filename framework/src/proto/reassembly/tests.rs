use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const START: Instant = Instant::from_nanos(1_000);

/// A machine whose handles are numbers, and the list of the returned ones.
struct Bench {
    machine: Reassembly<u32>,
    released: Vec<(u32, ReassemblyDrop)>,
    now: Instant,
}

/// The outcome of a push.
#[derive(Debug, PartialEq)]
enum End {
    Kept,
    Complete(Vec<u32>),
    Dropped(ReassemblyDrop),
}

impl Bench {
    fn new(datagrams: usize, pieces: usize, pieces_per_datagram: usize) -> Self {
        let capacity = ReassemblyCapacity { datagrams, pieces, pieces_per_datagram };
        let machine = Reassembly::new(capacity, REASSEMBLY_TIMEOUT, HashSeed::new(1, 2));
        Self { machine, released: vec![], now: START }
    }

    fn push(&mut self, identification: u16, (offset, len, more): (u16, u16, bool), handle: u32) -> End {
        let fragment = Fragment { key: key(identification), offset, len, more, handle };
        match self.machine.push(fragment, self.now, &mut |r| self.released.push((r.handle, r.reason))) {
            Outcome::Kept => End::Kept,
            Outcome::Complete(complete) => End::Complete(complete.collect()),
            Outcome::Dropped(reason) => End::Dropped(reason),
        }
    }

    fn tick(&mut self, now: Instant) -> usize {
        self.now = now;
        self.machine.tick(now, &mut |r| self.released.push((r.handle, r.reason)))
    }

    /// The handles returned since the last call.
    fn released(&mut self) -> Vec<(u32, ReassemblyDrop)> {
        core::mem::take(&mut self.released)
    }
}

fn key(identification: u16) -> FragmentKey {
    FragmentKey {
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        protocol: 17,
        identification,
        scope: 0,
    }
}

#[test]
fn fragment_that_cannot_be_right_is_dropped_alone() {
    let mut bench = Bench::new(2, 4, 4);
    assert_eq!(bench.push(1, (0, 8, true), 1), End::Kept);
    for (fragment, reason) in [
        ((8, 0, false), ReassemblyDrop::ZeroLength),
        ((8, 9, true), ReassemblyDrop::NotMultipleOf8),
        ((4, 8, false), ReassemblyDrop::NotMultipleOf8),
        // Ping of death: the last fragment reaches beyond 65,535 bytes with its header.
        ((65_528, 1000, false), ReassemblyDrop::Oversize),
        ((65_512, 4, false), ReassemblyDrop::Oversize),
    ] {
        assert_eq!(bench.push(1, fragment, 2), End::Dropped(reason));
        assert_eq!(bench.released(), [(2, reason)]);
    }
    assert_eq!(bench.push(1, (8, 1, false), 3), End::Complete(vec![1, 3]));
}

#[test]
fn teardrop_drops_the_datagram_with_all_its_pieces() {
    let mut bench = Bench::new(2, 4, 4);
    assert_eq!(bench.push(1, (0, 40, true), 1), End::Kept);
    assert_eq!(bench.push(1, (24, 8, false), 2), End::Dropped(ReassemblyDrop::LengthConflict));
    assert_eq!(bench.released(), [(2, ReassemblyDrop::LengthConflict), (1, ReassemblyDrop::LengthConflict)]);
    assert_eq!(bench.push(1, (0, 40, true), 3), End::Kept);
    assert_eq!(bench.push(1, (24, 24, false), 4), End::Dropped(ReassemblyDrop::Overlap));
    assert_eq!(bench.released(), [(4, ReassemblyDrop::Overlap), (3, ReassemblyDrop::Overlap)]);
    assert_eq!((bench.machine.datagrams(), bench.machine.held()), (0, 0));
}

#[test]
fn every_kind_of_overlap_is_found() {
    // Held: [16, 32) and [48, 64).
    for (offset, len) in
        [(8, 16), (16, 8), (24, 8), (24, 16), (8, 32), (16, 24), (40, 16), (0, 128), (56, 16), (32, 24)]
    {
        let mut bench = Bench::new(2, 4, 4);
        assert_eq!(bench.push(1, (48, 16, true), 2), End::Kept);
        assert_eq!(bench.push(1, (16, 16, true), 1), End::Kept);
        assert_eq!(bench.push(1, (offset, len, true), 3), End::Dropped(ReassemblyDrop::Overlap), "{offset} {len}");
        assert_eq!(bench.released().len(), 3);
    }
}

#[test]
fn fragments_that_disagree_on_the_end_drop_the_datagram() {
    for second in [(24, 8, false), (8, 4, false), (16, 8, true), (24, 8, true)] {
        let mut bench = Bench::new(2, 4, 4);
        assert_eq!(bench.push(1, (16, 8, false), 1), End::Kept);
        assert_eq!(bench.push(1, second, 2), End::Dropped(ReassemblyDrop::LengthConflict), "{second:?}");
        assert_eq!(bench.released().len(), 2);
    }
}

#[test]
fn same_fragment_twice_is_dropped_once_and_harms_nobody() {
    let mut bench = Bench::new(2, 4, 4);
    assert_eq!(bench.push(1, (8, 8, false), 1), End::Kept);
    assert_eq!(bench.push(1, (8, 8, false), 2), End::Dropped(ReassemblyDrop::Duplicate));
    assert_eq!(bench.released(), [(2, ReassemblyDrop::Duplicate)]);
    assert_eq!(bench.push(1, (0, 8, true), 3), End::Complete(vec![3, 1]));
}

#[test]
fn tiny_fragments_end_at_the_limit_of_pieces() {
    let mut bench = Bench::new(2, 128, 64);
    for piece in 0..64u16 {
        assert_eq!(bench.push(1, (piece * 8, 8, true), u32::from(piece)), End::Kept);
    }
    assert_eq!(bench.push(1, (512, 8, true), 64), End::Dropped(ReassemblyDrop::TooManyFragments));
    assert_eq!(bench.released().len(), 65);
    assert_eq!(bench.machine.held(), 0);
}

#[test]
fn oldest_datagram_makes_way_when_datagrams_run_out() {
    let mut bench = Bench::new(2, 8, 4);
    for identification in 1..=3 {
        assert_eq!(bench.push(identification, (0, 8, true), identification.into()), End::Kept);
    }
    assert_eq!(bench.released(), [(1, ReassemblyDrop::Evicted)]);
    assert_eq!(bench.push(2, (8, 8, false), 4), End::Complete(vec![2, 4]));
}

#[test]
fn oldest_other_datagram_makes_way_when_pieces_run_out() {
    let mut bench = Bench::new(4, 4, 4);
    assert_eq!(bench.push(1, (0, 8, true), 1), End::Kept);
    for (offset, handle) in [(0, 2), (8, 3), (16, 4)] {
        assert_eq!(bench.push(2, (offset, 8, true), handle), End::Kept);
    }
    assert_eq!(bench.push(1, (8, 8, true), 5), End::Kept);
    assert_eq!(bench.released(), [2, 3, 4].map(|handle| (handle, ReassemblyDrop::Evicted)));
    assert_eq!(bench.push(1, (16, 1, false), 6), End::Complete(vec![1, 5, 6]));
}

#[test]
fn datagram_times_out_counted_from_its_first_fragment() {
    let mut bench = Bench::new(2, 8, 4);
    assert_eq!(bench.push(1, (0, 8, true), 1), End::Kept);
    assert_eq!(bench.machine.deadline(), Some(START + REASSEMBLY_TIMEOUT));
    assert_eq!(bench.tick(START + REASSEMBLY_TIMEOUT - Duration::from_nanos(1)), 0);
    assert_eq!(bench.push(1, (8, 8, true), 2), End::Kept);
    assert_eq!(bench.tick(START + REASSEMBLY_TIMEOUT), 1);
    assert_eq!(bench.released(), [(1, ReassemblyDrop::Timeout), (2, ReassemblyDrop::Timeout)]);
    assert_eq!(bench.machine.deadline(), None);
}

#[test]
fn fragment_that_comes_late_does_not_join_what_nobody_has_expired_yet() {
    let mut bench = Bench::new(2, 8, 4);
    assert_eq!(bench.push(1, (0, 8, true), 1), End::Kept);
    bench.now = START + REASSEMBLY_TIMEOUT;
    assert_eq!(bench.push(1, (8, 8, false), 2), End::Kept);
    assert_eq!(bench.released(), [(1, ReassemblyDrop::Timeout)]);
}

#[test]
fn tick_expires_a_bounded_number_and_goes_on_next_time() {
    let count = EXPIRED_PER_TICK_MAX + 3;
    let mut bench = Bench::new(count, count, 1);
    for identification in 0..count as u16 {
        assert_eq!(bench.push(identification, (0, 8, true), identification.into()), End::Kept);
    }
    let late = START + REASSEMBLY_TIMEOUT;
    assert_eq!([bench.tick(late), bench.tick(late), bench.tick(late)], [EXPIRED_PER_TICK_MAX, 3, 0]);
    assert_eq!(bench.released().len(), count);
}

#[test]
fn datagrams_that_differ_in_one_field_are_not_mixed() {
    let one = key(1);
    let others = [
        FragmentKey { source: Ipv4Addr::new(10, 0, 0, 9), ..one },
        FragmentKey { destination: Ipv4Addr::new(10, 0, 0, 9), ..one },
        FragmentKey { protocol: 6, ..one },
        FragmentKey { identification: 2, ..one },
        FragmentKey { scope: 1, ..one },
        FragmentKey { source: [0; 4].into(), destination: [0; 4].into(), protocol: 0, identification: 0, scope: 0 },
        FragmentKey {
            source: [255; 4].into(),
            destination: [255; 4].into(),
            protocol: 255,
            identification: 0xffff,
            scope: u32::MAX,
        },
    ];
    let mut bench = Bench::new(8, 16, 4);
    let mut push = |key, offset, more, handle| {
        let fragment = Fragment { key, offset, len: 8, more, handle };
        match bench.machine.push(fragment, START, &mut |_| panic!("nothing is dropped")) {
            Outcome::Complete(complete) => complete.collect(),
            _ => vec![],
        }
    };
    for (idx, key) in others.iter().chain([&one]).enumerate() {
        assert!(push(*key, 0, true, idx as u32).is_empty());
    }
    assert_eq!(push(one, 8, false, 100), [7, 100]);
    for (idx, key) in others.iter().enumerate() {
        assert_eq!(push(*key, 8, false, 200), [idx as u32, 200]);
    }
}

#[test]
fn five_fragments_complete_in_all_120_orders() {
    let fragments = [(0, 8, true), (8, 16, true), (24, 8, true), (32, 1480, true), (1512, 3, false)];
    let mut orders = vec![vec![]];
    for _ in 0..5 {
        let longer = |order: Vec<usize>| {
            (0..5).filter(|n| !order.contains(n)).map(|n| [&order[..], &[n]].concat()).collect::<Vec<_>>()
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    assert_eq!(orders.len(), 120);
    let mut bench = Bench::new(2, 8, 8);
    for order in orders {
        for n in &order[..4] {
            assert_eq!(bench.push(1, fragments[*n], *n as u32), End::Kept, "{order:?}");
        }
        assert_eq!(
            bench.push(1, fragments[order[4]], order[4] as u32),
            End::Complete(vec![0, 1, 2, 3, 4]),
            "{order:?}"
        );
    }
    assert_eq!((bench.machine.datagrams(), bench.machine.held(), bench.released().len()), (0, 0, 0));
}

#[test]
fn largest_datagram_completes_and_tells_its_length() {
    let mut bench = Bench::new(1, 2, 2);
    assert_eq!(bench.push(1, (0, 65_512, true), 1), End::Kept);
    let last = Fragment { key: key(1), offset: 65_512, len: 3, more: false, handle: 2 };
    let Outcome::Complete(complete) = bench.machine.push(last, START, &mut |_| {}) else { panic!("it is whole") };
    assert_eq!((complete.datagram_len(), complete.len()), (DATAGRAM_PAYLOAD_MAX, 2));
    // The payloads are not taken: the machine does not keep them either.
    drop(complete);
    assert_eq!(bench.machine.held(), 0);
}

#[test]
fn datagram_of_one_fragment_is_complete_at_once() {
    assert_eq!(Bench::new(1, 1, 1).push(1, (0, 13, false), 7), End::Complete(vec![7]));
}

proptest! {
    #[test]
    fn every_handle_is_held_or_comes_back_once(
        pushes in prop::collection::vec((0u16..4, 0u16..8, 1u16..4, any::<bool>(), 0u64..4), 1..300),
    ) {
        let mut bench = Bench::new(3, 10, 6);
        let mut back = HashSet::new();
        for (handle, (identification, offset, len, more, seconds)) in pushes.iter().enumerate() {
            let now = bench.now + Duration::from_secs(*seconds);
            bench.tick(now);
            let (offset, len) = (offset * 8, len * 8 - u16::from(*seconds == 3));
            match bench.push(*identification, (offset, len, *more), handle as u32) {
                End::Complete(handles) => {
                    let last = *handles.last().unwrap();
                    let mut end = 0;
                    for &handle in &handles {
                        let (_, offset, len, more, seconds) = pushes[handle as usize];
                        prop_assert_eq!(offset * 8, end);
                        end += len * 8 - u16::from(seconds == 3);
                        prop_assert_eq!(more, handle != last);
                        prop_assert!(back.insert(handle));
                    }
                }
                End::Kept => prop_assert!(bench.released.iter().all(|(released, _)| *released != handle as u32)),
                End::Dropped(reason) => prop_assert!(bench.released.contains(&(handle as u32, reason))),
            }
            for (released, _) in bench.released() { prop_assert!(back.insert(released)); }
            prop_assert_eq!(back.len() + bench.machine.held(), handle + 1);
        }
        while bench.tick(Instant::MAX) > 0 {}
        for (released, _) in bench.released() { prop_assert!(back.insert(released)); }
        prop_assert_eq!(back.len(), pushes.len());
        prop_assert_eq!((bench.machine.datagrams(), bench.machine.held()), (0, 0));
    }

    #[test]
    fn what_fragmentation_cuts_reassembly_puts_together(
        payload_len in 1usize..20_000, mtu in 576usize..3000, seed in any::<u64>(),
    ) {
        use crate::proto::fragmentation::{FragmentPlan, FragmentRequest};
        let request = FragmentRequest { payload_len, header_len: 20, later_header_len: 20, mtu, dont_fragment: false };
        let mut pieces: Vec<_> = FragmentPlan::new(request).unwrap().enumerate().collect();
        pieces.sort_by_key(|(idx, _)| HashSeed::new(seed, 0).fold(*idx as u64));
        let mut bench = Bench::new(1, 64, 64);
        let mut end = End::Kept;
        for (idx, piece) in &pieces {
            prop_assert_eq!(end, End::Kept);
            end = bench.push(1, (piece.offset as u16, piece.len as u16, piece.more), *idx as u32);
        }
        prop_assert_eq!(end, End::Complete((0..pieces.len() as u32).collect()));
    }
}
