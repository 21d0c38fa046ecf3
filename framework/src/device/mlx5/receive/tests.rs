//! The receive half over plain memory: a fake NIC writes the entries that each test asks for.

#![allow(clippy::unwrap_used)] // a panic here is the report

use proptest::prelude::*;

use super::rx::Mlx5Rx;
use crate::counters::Block;
use crate::device::RxQueue;
use crate::device::mlx5::completion::reader::Mlx5RxDrop;
use crate::device::mlx5::testing::plain::{PLAIN_LKEY, PlainConfig, PlainMini, PlainNic, PlainStamps, plain_rx};
use crate::mem::{BURST_MAX, Burst, ChecksumStatus, Headers, L3, L4, Mbuf, Pool, RxInfo};
use crate::time::{Duration, Instant, UnixTime};

/// A queue, its NIC, and its worker's pool.
struct Rig {
    rx: Option<Mlx5Rx>,
    nic: PlainNic,
    pool: Pool,
    block: Block,
    now: Instant,
}

/// The rig for tests with one buffer per frame.
fn rig(config: PlainConfig) -> Rig {
    rig_of(config, 2 * config.wqes as usize + BURST_MAX)
}

fn rig_of(config: PlainConfig, buffers: usize) -> Rig {
    let (pool, block) = (Pool::heap(buffers).unwrap(), Block::heap());
    let (rx, nic) = plain_rx(config, &pool, &block.scope("q"));
    Rig { rx: Some(rx), nic, pool, block, now: Instant::from_nanos(1) }
}

impl Rig {
    fn rx(&mut self) -> &mut Mlx5Rx {
        self.rx.as_mut().unwrap()
    }

    /// Receives one burst, at most `limit` frames.
    fn receive(&mut self, limit: usize) -> Vec<Mbuf> {
        let mut burst = Burst::new();
        let received = self.rx.as_mut().unwrap().receive(&mut burst, limit, &self.pool, self.now);
        assert_eq!(received, burst.len());
        burst.drain(..).collect()
    }

    /// The lengths of a burst's frames, which are freed.
    fn lens(&mut self, limit: usize) -> Vec<usize> {
        let lens = |mbuf: Mbuf| {
            let len = mbuf.len();
            mbuf.free();
            len
        };
        self.receive(limit).into_iter().map(lens).collect()
    }

    fn dropped(&self, reason: Mlx5RxDrop) -> u64 {
        let name = <Mlx5RxDrop as crate::counters::DropReason>::NAMES[reason as usize];
        self.count(&format!("drop/{name}"))
    }

    fn count(&self, name: &str) -> u64 {
        let snapshot = self.block.snapshot();
        snapshot.count(&format!("q/rx/{name}")).or_else(|| snapshot.count(&format!("q/{name}"))).unwrap()
    }

    fn later(&mut self) {
        self.now += Duration::from_secs(20);
    }

    /// Ends the queue. Every buffer is free, and each frame is counted by name.
    fn close(mut self) -> Self {
        drop(self.rx.take());
        assert_eq!(
            (self.pool.in_use(), self.pool.drops_without_reason()),
            (0, 0),
            "buffers out, packets without a name"
        );
        self.block.check().unwrap();
        self
    }
}

// Rings and indices.

#[test]
fn every_wqe_is_posted_before_the_first_frame() {
    let rig = rig(PlainConfig { wqes: 8, stride: 64, ..PlainConfig::default() });
    assert_eq!(rig.nic.rq.producer_index(), 8);
    let room = rig.pool.layout().data_room() as u32;
    let addresses: Vec<u64> = (0..8)
        .map(|idx| {
            let (len, key, address) = rig.nic.rq.segment(idx, 0);
            assert_eq!((len, key), (room, PLAIN_LKEY));
            assert_eq!(rig.nic.rq.segment(idx, 1), (0, 0x100, 0), "the list is terminated");
            address
        })
        .collect();
    let base = rig.pool.region().base().as_ptr().addr() as u64;
    let stride = rig.pool.layout().stride() as u64;
    assert!(addresses.iter().all(|address| (address - base) % stride == 256), "behind metadata and headroom");
    rig.close();
}

#[test]
fn frame_is_in_the_buffer_that_its_wqe_named() {
    let mut rig = rig(PlainConfig { wqes: 4, cqes: 4, ..PlainConfig::default() });
    for idx in 0..50 {
        let address = rig.nic.rq.segment(idx, 0).2;
        rig.nic.frame(60 + idx, |_| ());
        let mut frames = rig.receive(32);
        let mbuf = frames.pop().unwrap();
        assert_eq!((mbuf.data_ptr().addr() as u64, mbuf.len()), (address, 60 + idx as usize));
        assert_ne!(rig.nic.rq.segment(idx, 0).2, address, "a fresh one took its place");
        mbuf.free();
    }
    rig.close();
}

#[test]
fn order_and_lengths_hold_over_many_turns_of_rings_of_all_sizes() {
    for (wqes, cqes, cqe_len) in [(1, 1, 64), (2, 4, 64), (8, 8, 128), (64, 64, 64), (64, 256, 64)] {
        let mut rig = rig(PlainConfig { wqes, cqes, cqe_len, ..PlainConfig::default() });
        let (mut sent, mut received) = (0, 0);
        for turn in 0..200 {
            for _ in 0..(turn * 7 % (wqes + 1)).min(rig.nic.room()) {
                rig.nic.frame(1 + sent % 1000, |_| ());
                sent += 1;
            }
            for len in rig.lens(1 + turn as usize % BURST_MAX) {
                assert_eq!(len as u32, 1 + received % 1000);
                received += 1;
            }
            assert_eq!(rig.nic.cq.consumer_index(), received);
            assert_eq!(rig.nic.rq.producer_index(), (received + wqes) & 0xffff);
        }
        while received < sent {
            received += rig.lens(BURST_MAX).len() as u32;
        }
        let rig = rig.close();
        assert_eq!(rig.count("frames"), u64::from(sent));
    }
}

#[test]
fn index_of_16_bits_wraps() {
    let mut rig = rig(PlainConfig { wqes: 64, cqes: 64, ..PlainConfig::default() });
    for turn in 0..(70_000 / 64) {
        (0..64).for_each(|_| rig.nic.frame(60, |_| ()));
        assert_eq!(rig.lens(64).len(), 64, "turn {turn}");
    }
    rig.close();
}

#[test]
fn limit_is_kept_and_the_rest_comes_next() {
    let mut rig = rig(PlainConfig::default());
    (1..=10).for_each(|len| rig.nic.frame(len, |_| ()));
    assert_eq!(rig.lens(0), [0; 0]);
    assert_eq!(rig.lens(3), [1, 2, 3]);
    assert_eq!(rig.lens(32), [4, 5, 6, 7, 8, 9, 10]);
    rig.close();
}

#[test]
fn burst_that_is_nearly_full_takes_what_fits() {
    let mut rig = rig(PlainConfig::default());
    (0..8).for_each(|_| rig.nic.frame(60, |_| ()));
    let mut burst = Burst::new();
    burst.extend(core::iter::from_fn(|| rig.pool.alloc()).take(BURST_MAX - 3));
    let now = rig.now;
    assert_eq!(rig.rx.as_mut().unwrap().receive(&mut burst, 32, &rig.pool, now), 3);
    burst.drain(..).for_each(Mbuf::free);
    assert_eq!(rig.lens(32).len(), 5);
    rig.close();
}

#[test]
#[should_panic(expected = "the pool that it was opened with")]
fn other_pool_is_refused() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.frame(60, |_| ());
    rig.pool = Pool::heap(64).unwrap();
    rig.receive(1);
}

#[test]
fn nothing_is_told_to_the_nic_where_nothing_came() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.cq.set_consumer_index(77);
    assert_eq!(rig.lens(32), [0; 0]);
    assert_eq!(rig.nic.cq.consumer_index(), 77);
    rig.close();
}

// Fields of CQEs.

#[test]
fn cqe_tells_of_checksums_headers_tag_hash_and_time() {
    let mut rig = rig(PlainConfig { has_hashes: true, stamps: PlainStamps::RealTime, ..PlainConfig::default() });
    rig.nic.frame(60, |cqe| {
        cqe[12..16].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
        cqe[16] = 0x44;
        cqe[29] |= 1;
        cqe[30..32].copy_from_slice(&0x6007_u16.to_be_bytes());
        cqe[48..56].copy_from_slice(&(1_700_000_000_u64 << 32 | 5).to_be_bytes());
        cqe[56..60].copy_from_slice(&(8_u32 | 0xab00_0000).to_be_bytes());
    });
    rig.nic.frame(60, |cqe| cqe[28..30].fill(0));
    let frames = rig.receive(32);
    let all = RxInfo {
        timestamp: Some(UnixTime::from_nanos(1_700_000_000_000_000_005)),
        ticks: None,
        flow_tag: Some(7),
        vlan: Some(0x6007),
        hash: Some(0xdead_beef),
        ip_checksum: ChecksumStatus::Good,
        l4_checksum: ChecksumStatus::Good,
        headers: Headers::UNKNOWN.with_l3(L3::Ipv4).with_l4(L4::Udp),
    };
    assert_eq!(frames[0].rx_info(), all);
    let nothing = RxInfo { timestamp: Some(UnixTime::from_nanos(0)), ..RxInfo::default() };
    assert_eq!(frames[1].rx_info(), nothing, "and nothing is inherited");
    frames.into_iter().for_each(Mbuf::free);
    rig.close();
}

#[test]
fn frame_looked_at_alone_tells_the_same_as_one_of_many() {
    for stamps in [PlainStamps::Off, PlainStamps::Ticks, PlainStamps::Wall, PlainStamps::RealTime] {
        for has_hashes in [false, true] {
            let mut rig = rig(PlainConfig { stamps, has_hashes, ..PlainConfig::default() });
            let fill = |cqe: &mut [u8; 64]| {
                (0..60).filter(|at| !(44..48).contains(at)).for_each(|at| cqe[at] = at as u8 ^ 0x5a);
                cqe[0] = 0;
            };
            rig.nic.frame(60, fill);
            // With immediate data it is not in the usual run.
            rig.nic.frame(60, fill);
            let (slot, owner) = (rig.nic.cq.slot() - 1, 0x30);
            rig.nic.cq.write(slot, |cqe| cqe[63] = owner | cqe[63] & 1);
            let frames = rig.receive(32);
            assert_eq!(frames.len(), 2);
            assert_eq!(frames[0].rx_info(), frames[1].rx_info(), "{stamps:?} {has_hashes}");
            frames.into_iter().for_each(Mbuf::free);
            rig.close();
        }
    }
}

#[test]
fn ticks_are_handed_on_where_that_was_asked_for() {
    let mut rig = rig(PlainConfig { stamps: PlainStamps::Ticks, ..PlainConfig::default() });
    rig.nic.frame(60, |cqe| cqe[48..56].copy_from_slice(&0x0123_4567_89ab_cdef_u64.to_be_bytes()));
    let mbuf = rig.receive(1).pop().unwrap();
    assert_eq!((mbuf.ticks(), mbuf.timestamp()), (Some(0x0123_4567_89ab_cdef), None));
    mbuf.free();
    rig.close();
}

#[test]
fn ticks_become_time_of_day() {
    let mut rig = rig(PlainConfig { stamps: PlainStamps::Wall, ..PlainConfig::default() });
    rig.nic.frame(60, |cqe| cqe[48..56].copy_from_slice(&987_654_321_u64.to_be_bytes()));
    let mbuf = rig.receive(1).pop().unwrap();
    assert_eq!((mbuf.ticks(), mbuf.timestamp()), (None, Some(UnixTime::from_nanos(987_654_321))));
    mbuf.free();
    rig.close();
}

#[test]
fn flow_tag_zero_is_a_tag_and_none_is_none() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.frame(60, |_| ());
    rig.nic.frame(60, |cqe| cqe[59] = crate::device::mlx5::completion::cqe::flow_tag_on_wire(0).unwrap() as u8);
    rig.nic.frame(60, |cqe| cqe[57..60].fill(0xff));
    let tags: Vec<_> = rig.receive(32).into_iter().map(|mbuf| (mbuf.flow_tag(), mbuf.free()).0).collect();
    assert_eq!(tags, [None, Some(0), Some(0xff_fffe)]);
    assert_eq!(crate::device::mlx5::completion::cqe::flow_tag_on_wire(0xff_fffe), Some(0xff_ffff));
    assert_eq!(crate::device::mlx5::completion::cqe::flow_tag_on_wire(0xff_ffff), None);
    rig.close();
}

#[test]
fn checksums_inside_a_tunnel_are_not_those_of_the_frame() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.frame(60, |cqe| cqe[0] = 1);
    rig.nic.frame(61, |_| ());
    let frames = rig.receive(32);
    assert_eq!((frames[0].ip_checksum(), frames[0].headers()), (ChecksumStatus::Unknown, Headers::UNKNOWN));
    assert_eq!(frames[1].ip_checksum(), ChecksumStatus::Good);
    frames.into_iter().for_each(Mbuf::free);
    rig.close();
}

// Invalid CQEs.

#[test]
fn frame_longer_than_its_buffer_is_dropped_and_the_next_one_comes() {
    let mut rig = rig(PlainConfig::default());
    let room = rig.pool.layout().data_room() as u32;
    for len in [60, room + 1, room, u32::MAX, 61] {
        rig.nic.frame(len, |_| ());
    }
    assert_eq!(rig.lens(32), [60, room as usize, 61]);
    assert_eq!(rig.dropped(Mlx5RxDrop::LengthInvalid), 2);
    // The ring is whole again.
    (0..64).for_each(|_| rig.nic.frame(60, |_| ()));
    assert_eq!(rig.lens(64).len() + rig.lens(64).len(), 64);
    rig.close();
}

#[test]
fn cqe_of_another_buffer_stops_the_queue_until_it_is_reset() {
    for by in [1_u16, 2, 63] {
        let mut rig = rig(PlainConfig::default());
        rig.nic.frame(60, |_| ());
        let wrong = (rig.nic.wqe_idx as u16).wrapping_add(by);
        rig.nic.frame(61, |cqe| cqe[60..62].copy_from_slice(&wrong.to_be_bytes()));
        rig.nic.frame(62, |_| ());
        assert_eq!(rig.lens(32), [60]);
        assert_eq!(rig.dropped(Mlx5RxDrop::IndexUnexpected), 1);
        recovers(rig, 2);
    }
}

/// Checks that the queue is reset on its next turn, that the frames in the CQ are counted, and that
/// new ones arrive.
fn recovers(mut rig: Rig, in_ring: u64) {
    rig.later();
    assert_eq!(rig.lens(32), [0; 0]);
    assert_eq!((rig.nic.objects.resets.get(), rig.nic.objects.readies.get()), (1, 1));
    assert_eq!((rig.dropped(Mlx5RxDrop::QueueReset), rig.count("resets")), (in_ring, 1));
    rig.nic.wqe_idx = 0;
    (1..=64).for_each(|len| rig.nic.frame(len, |_| ()));
    let lens: Vec<usize> = (1..=64).collect();
    assert_eq!([rig.lens(32), rig.lens(32)].concat(), lens);
    rig.close();
}

#[test]
fn opcode_that_is_not_of_receiving_is_counted_and_skipped() {
    let mut rig = rig(PlainConfig::default());
    for opcode in [0, 1, 4, 5, 6, 7, 12, 13] {
        rig.nic.cq.complete(opcode, 0, |_| ());
    }
    rig.nic.frame(60, |_| ());
    assert_eq!(rig.lens(32), [60]);
    assert_eq!(rig.dropped(Mlx5RxDrop::OpcodeUnexpected), 8);
    rig.close();
}

#[test]
fn format_that_was_not_asked_for_is_dropped() {
    let mut rig = rig(PlainConfig::default());
    for format in [1, 2, 3] {
        let idx = rig.nic.wqe_idx as u16;
        rig.nic.cq.complete(2, format, |cqe| cqe[60..62].copy_from_slice(&idx.to_be_bytes()));
        rig.nic.wqe_idx += 1;
    }
    rig.nic.frame(60, |_| ());
    assert_eq!(rig.lens(32), [60]);
    assert_eq!(rig.dropped(Mlx5RxDrop::FormatUnexpected), 3);
    rig.close();
}

#[test]
fn nic_that_writes_nothing_but_nonsense_does_not_hold_the_worker() {
    let mut rig = rig(PlainConfig { cqes: 1024, ..PlainConfig::default() });
    (0..1000).for_each(|_| rig.nic.cq.complete(0, 0, |_| ()));
    assert_eq!(rig.lens(32), [0; 0]);
    assert!(rig.nic.cq.consumer_index() < 100, "one turn does not read them all");
    (0..20).for_each(|_| assert_eq!(rig.lens(32), [0; 0]));
    assert_eq!(rig.dropped(Mlx5RxDrop::OpcodeUnexpected), 1000);
    rig.close();
}

#[test]
fn more_cqes_than_buffers_stop_the_queue() {
    let mut rig = rig(PlainConfig { wqes: 4, cqes: 16, ..PlainConfig::default() });
    (0..6).for_each(|_| rig.nic.frame(60, |_| ()));
    assert_eq!(rig.lens(32).len(), 4);
    assert_eq!(rig.dropped(Mlx5RxDrop::IndexUnexpected), 1);
}

// Frames in several buffers.

#[test]
fn frame_over_one_buffer_is_a_chain() {
    let config = PlainConfig { wqes: 8, cqes: 8, stride: 64, frame_len_max: 4000, ..PlainConfig::default() };
    let mut rig = rig_of(config, 64);
    let room = rig.pool.layout().data_room();
    for len in [60, room, room + 1, 2 * room, 2 * room + 1, 3 * room, 61] {
        rig.nic.frame(len as u32, |_| ());
    }
    for (idx, len) in (0..).zip([60, room, room + 1, 2 * room, 2 * room + 1, 3 * room, 61]) {
        let mbuf = rig.receive(1).pop().unwrap();
        let parts: Vec<usize> = mbuf.segments().map(<[u8]>::len).collect();
        assert_eq!((mbuf.len(), parts.len()), (len, len.div_ceil(room)), "frame {idx}");
        assert!(parts[..parts.len() - 1].iter().all(|&part| part == room));
        assert_eq!(mbuf.ip_checksum(), ChecksumStatus::Good);
        mbuf.free();
    }
    rig.close();
}

#[test]
fn segments_of_a_chain_are_the_buffers_of_its_wqe_in_order() {
    let config = PlainConfig { wqes: 4, cqes: 4, stride: 32, frame_len_max: 3000, ..PlainConfig::default() };
    let mut rig = rig_of(config, 32);
    let room = rig.pool.layout().data_room() as u32;
    for idx in 0..20 {
        let addresses = [0, 1].map(|segment| rig.nic.rq.segment(idx, segment));
        assert!(addresses.iter().all(|(len, key, _)| (*len, *key) == (room, PLAIN_LKEY)));
        // A short frame leaves the second buffer in place.
        let len = if idx % 3 == 0 { 60 } else { room + 60 };
        rig.nic.frame(len, |_| ());
        let mbuf = rig.receive(1).pop().unwrap();
        let seen: Vec<u64> = mbuf.segments().map(|part| part.as_ptr().addr() as u64).collect();
        let expected: Vec<u64> = addresses.iter().map(|(.., address)| *address).take(seen.len()).collect();
        assert_eq!((seen.len(), seen), (if len == 60 { 1 } else { 2 }, expected), "frame {idx}");
        mbuf.free();
        assert_eq!(rig.lens(1), [0; 0]);
    }
    rig.close();
}

#[test]
fn frame_over_all_buffers_of_its_wqe_is_dropped() {
    let config = PlainConfig { wqes: 4, cqes: 4, stride: 32, frame_len_max: 3000, ..PlainConfig::default() };
    let mut rig = rig_of(config, 32);
    let room = rig.pool.layout().data_room() as u32;
    rig.nic.frame(2 * room + 1, |_| ());
    rig.nic.frame(2 * room, |_| ());
    assert_eq!(rig.lens(4), [2 * room as usize]);
    assert_eq!(rig.dropped(Mlx5RxDrop::LengthInvalid), 1);
    rig.close();
}

// The pool.

#[test]
fn empty_pool_lets_the_ring_run_dry_and_no_frame_is_lost() {
    let mut rig = rig_of(PlainConfig { wqes: 8, cqes: 8, ..PlainConfig::default() }, 8);
    assert_eq!(rig.pool.available(), 0, "all are posted");
    (1..=8).for_each(|len| rig.nic.frame(len, |_| ()));
    let held = rig.receive(5);
    assert_eq!(held.iter().map(Mbuf::len).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(rig.nic.room(), 0, "nothing could be posted");
    let rest = rig.receive(5);
    assert_eq!(rest.iter().map(Mbuf::len).collect::<Vec<_>>(), [6, 7, 8]);
    assert_eq!(rig.lens(5), [0; 0]);
    held.into_iter().for_each(Mbuf::free);
    assert_eq!(rig.lens(5), [0; 0]);
    assert_eq!(rig.nic.room(), 5, "what came home was posted");
    rest.into_iter().for_each(Mbuf::free);
    (1..=5).for_each(|len| rig.nic.frame(len, |_| ()));
    assert_eq!(rig.lens(5), [1, 2, 3, 4, 5]);
    assert!(rig.count("nombuf") > 0);
    rig.close();
}

#[test]
fn ring_that_ran_dry_is_refilled_over_several_turns() {
    let mut rig = rig_of(PlainConfig { wqes: 256, cqes: 256, ..PlainConfig::default() }, 256);
    (1..=256).for_each(|len| rig.nic.frame(len, |_| ()));
    let mut held: Vec<Mbuf> = Vec::new();
    while held.len() < 256 {
        held.extend(rig.receive(BURST_MAX));
    }
    assert_eq!(rig.nic.room(), 0);
    held.into_iter().for_each(Mbuf::free);
    for posted in [64, 128, 192, 256, 256] {
        assert_eq!(rig.lens(BURST_MAX), [0; 0]);
        assert_eq!(rig.nic.room(), posted);
    }
    rig.close();
}

#[test]
fn frames_go_on_while_a_long_ring_is_refilled() {
    let mut rig = rig_of(PlainConfig { wqes: 256, cqes: 256, ..PlainConfig::default() }, 256);
    (1..=256).for_each(|len| rig.nic.frame(len, |_| ()));
    for turn in 0..8 {
        let mut expected = turn * 32..turn * 32 + 32;
        assert!(rig.lens(32).into_iter().all(|len| expected.next() == Some(len - 1)) && expected.is_empty());
    }
    assert!(rig.nic.room() >= 128, "{} WQEs are posted", rig.nic.room());
    rig.close();
}

#[test]
fn empty_pool_is_asked_once_a_turn() {
    let mut rig = rig_of(PlainConfig { wqes: 8, cqes: 8, ..PlainConfig::default() }, 8);
    (1..=8).for_each(|len| rig.nic.frame(len, |_| ()));
    let held = rig.receive(6);
    assert_eq!((held.len(), rig.count("nombuf")), (6, 1));
    held.into_iter().for_each(Mbuf::free);
    rig.close();
}

#[test]
fn pool_that_is_short_of_buffers_for_a_burst_gives_what_it_has() {
    let mut rig = rig_of(PlainConfig { wqes: 16, cqes: 16, ..PlainConfig::default() }, 20);
    let mut held = Vec::new();
    for turn in 0..200_u32 {
        let room = rig.nic.room();
        (0..room.min(1 + turn % 16)).for_each(|_| rig.nic.frame(60 + turn % 7, |_| ()));
        held.extend(rig.receive(32));
        let keep = turn as usize % 12;
        held.drain(..held.len().saturating_sub(keep)).for_each(Mbuf::free);
    }
    held.into_iter().for_each(Mbuf::free);
    assert_eq!(rig.lens(0), [0; 0]);
    rig.close();
}

#[test]
fn ring_needs_more_buffers_than_the_pool_has_and_lives_with_fewer() {
    let mut rig = rig_of(PlainConfig { wqes: 64, ..PlainConfig::default() }, 10);
    assert_eq!(rig.nic.room(), 10);
    for _ in 0..30 {
        (0..rig.nic.room()).for_each(|_| rig.nic.frame(60, |_| ()));
        assert_eq!(rig.lens(32).len(), 10);
        assert_eq!(rig.lens(32).len(), 0);
        assert_eq!(rig.nic.room(), 10);
    }
    rig.close();
}

// Errors.

#[test]
fn each_syndrome_has_its_name_and_the_queue_comes_back() {
    let named = [
        (0x01, Mlx5RxDrop::LocalLength),
        (0x02, Mlx5RxDrop::LocalQpOperation),
        (0x04, Mlx5RxDrop::LocalProtection),
        (0x11, Mlx5RxDrop::LocalAccess),
        (0x22, Mlx5RxDrop::OtherSyndrome),
        (0x00, Mlx5RxDrop::OtherSyndrome),
    ];
    for (syndrome, reason) in named {
        let mut rig = rig(PlainConfig::default());
        rig.nic.frame(60, |_| ());
        rig.nic.cq.complete(14, 0, |cqe| {
            cqe[55] = syndrome;
            cqe[61] = 1;
        });
        (2..64).for_each(|idx| {
            rig.nic.cq.complete(14, 0, |cqe| {
                cqe[55] = 5;
                cqe[61] = idx;
            });
        });
        assert_eq!(rig.lens(32), [60]);
        assert_eq!(rig.dropped(reason), 1, "{syndrome:#x}");
        rig.later();
        assert_eq!(rig.lens(32), [0; 0]);
        assert_eq!((rig.count("flushed"), rig.dropped(Mlx5RxDrop::QueueReset)), (62, 0));
        rig.nic.wqe_idx = 0;
        (0..64).for_each(|_| rig.nic.frame(60, |_| ()));
        assert_eq!(rig.lens(64).len(), 64);
        rig.close();
    }
}

#[test]
fn queue_in_error_reads_nothing_until_the_kernel_has_reset_it() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.objects.failing.set(3);
    rig.nic.cq.complete(14, 0, |cqe| cqe[55] = 4);
    rig.nic.frame(60, |_| ());
    assert_eq!(rig.lens(32), [0; 0]);
    for tries in 1..=3 {
        rig.later();
        assert_eq!(rig.lens(32), [0; 0]);
        assert_eq!((rig.nic.objects.resets.get(), rig.nic.objects.readies.get()), (tries, 0));
        assert_eq!(rig.lens(32), [0; 0], "not at once");
        assert_eq!(rig.nic.objects.resets.get(), tries);
    }
    rig.nic.objects.failing.set(0);
    rig.later();
    assert_eq!(rig.lens(32), [0; 0]);
    assert_eq!(rig.nic.objects.readies.get(), 1);
    rig.nic.wqe_idx = 0;
    rig.nic.frame(61, |_| ());
    assert_eq!(rig.lens(32), [61]);
    rig.close();
}

#[test]
fn nothing_is_posted_to_a_queue_that_did_not_become_ready() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.cq.complete(14, 0, |cqe| cqe[55] = 2);
    rig.lens(32);
    let objects = std::rc::Rc::clone(&rig.nic.objects);
    objects.failing_readies.set(1);
    rig.later();
    assert_eq!(rig.lens(32), [0; 0]);
    assert_eq!((objects.resets.get(), objects.readies.get(), rig.nic.rq.producer_index()), (1, 1, 0));
    rig.later();
    assert_eq!(rig.lens(32), [0; 0]);
    assert_eq!((objects.resets.get(), objects.readies.get(), rig.nic.rq.producer_index()), (2, 2, 64));
    rig.close();
}

#[test]
fn frames_that_are_too_long_are_recovered_from_each_time_at_the_same_pace() {
    let mut rig = rig(PlainConfig::default());
    let objects = std::rc::Rc::clone(&rig.nic.objects);
    for round in 1..=20 {
        rig.nic.cq.complete(14, 0, |cqe| cqe[55] = 0x01);
        assert_eq!(rig.lens(32), [0; 0]);
        rig.now += Duration::from_millis(1);
        assert_eq!(rig.lens(32), [0; 0]);
        assert_eq!((objects.resets.get(), objects.readies.get()), (round, round), "a millisecond after each error");
    }
    assert_eq!(rig.dropped(Mlx5RxDrop::LocalLength), 20);
    rig.close();
}

#[test]
fn error_without_a_cqe_is_heard_of_by_the_kernel() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.objects.has_failed.set(true);
    rig.nic.objects.out_of_buffer.set(7);
    rig.rx().refresh_counters();
    assert_eq!(rig.dropped(Mlx5RxDrop::OutOfBuffer), 7);
    recovers(rig, 0);
}

#[test]
fn queue_that_has_lost_its_completions_reads_nothing_more_and_gives_every_buffer_back() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.objects.has_lost_cq.set(true);
    rig.rx().refresh_counters();
    rig.nic.frame(60, |_| ());
    for _ in 0..3 {
        rig.later();
        assert_eq!(rig.lens(32), [0; 0]);
    }
    assert_eq!((rig.nic.objects.resets.get(), rig.count("cq_errors")), (0, 1));
    rig.close();
}

#[test]
fn index_that_an_old_libmlx5_wrote_into_the_record_is_put_right() {
    let mut rig = rig(PlainConfig::default());
    (0..40).for_each(|_| rig.nic.frame(60, |_| ()));
    assert_eq!(rig.lens(64).len(), 40);
    rig.nic.cq.complete(14, 0, |cqe| cqe[55] = 1);
    rig.lens(64);
    // `mlx5_cq_clean` counts from its own index, unless libmlx5 knows that we own the CQ.
    rig.nic.cq.set_consumer_index(1);
    rig.later();
    rig.lens(64);
    assert_eq!(rig.nic.cq.consumer_index(), 41);
    rig.close();
}

#[test]
fn frames_in_the_ring_of_a_queue_that_is_dropped_are_counted() {
    let mut rig = rig(PlainConfig { mini: Some(PlainMini::Hash), ..PlainConfig::default() });
    rig.nic.session(&[60; 9], |_| ());
    rig.nic.frame(60, |_| ());
    rig.nic.session(&[60; 20], |_| ());
    assert_eq!(rig.lens(4).len(), 4, "five of the first session are left");
    let rig = rig.close();
    assert_eq!(rig.dropped(Mlx5RxDrop::QueueClosed), 5 + 1 + 20);
    assert_eq!(rig.nic.objects.resets.get(), 1, "the NIC has let go of the buffers before they went home");
}

#[test]
fn buffers_that_the_nic_does_not_let_go_of_stay_with_it() {
    let mut rig = rig(PlainConfig { wqes: 8, ..PlainConfig::default() });
    rig.nic.frame(60, |_| ());
    assert_eq!(rig.lens(1).len(), 1);
    rig.nic.objects.failing.set(1);
    drop(rig.rx.take());
    assert_eq!((rig.pool.in_use(), rig.pool.drops_without_reason(), rig.count("leaked")), (8, 0, 8));
    // On a striding ring these bytes are in its buffer.
    let mut rig = self::rig(striding());
    let before = rig.nic.mprq_buffer_owners();
    rig.nic.objects.failing.set(1);
    drop(rig.rx.take());
    assert_eq!((rig.nic.mprq_buffer_owners(), rig.pool.in_use(), rig.count("leaked")), (before, 0, 0));
}

// Compressed sessions.

fn compressing(mini: PlainMini) -> PlainConfig {
    PlainConfig { wqes: 128, cqes: 128, has_hashes: true, mini: Some(mini), ..PlainConfig::default() }
}

#[test]
fn session_of_every_length_at_every_place_of_the_ring() {
    for cqe_len in [64, 128] {
        for offset in 0..16 {
            let mut rig = rig(PlainConfig { cqe_len, ..compressing(PlainMini::Hash) });
            (0..offset * 8 + offset % 8).for_each(|_| rig.nic.frame(60, |_| ()));
            while !rig.lens(64).is_empty() {}
            for count in 1..=64 {
                let lens: Vec<u32> = (0..count).map(|idx| 100 + idx).collect();
                rig.nic.session(&lens, |cqe| cqe[59] = 9);
                // The array of a session of one lies where the next entry goes.
                let mut frames = if count == 1 { rig.receive(64) } else { Vec::new() };
                rig.nic.frame(70, |_| ());
                frames.extend(rig.receive(64));
                frames.extend(rig.receive(64));
                let last = frames.pop().unwrap();
                assert_eq!((frames.len() as u32, last.len(), last.flow_tag()), (count, 70, None));
                for (idx, mbuf) in (0..).zip(&frames) {
                    let expected = (100 + idx as usize, Some(1 + idx), Some(8), ChecksumStatus::Good);
                    let seen = (mbuf.len(), mbuf.rx_info().hash, mbuf.flow_tag(), mbuf.l4_checksum());
                    assert_eq!(seen, expected, "frame {idx} of {count} at {offset}");
                }
                last.free();
                frames.into_iter().for_each(Mbuf::free);
            }
            rig.close();
        }
    }
}

#[test]
fn session_ends_in_a_later_burst() {
    let mut rig = rig(compressing(PlainMini::Checksum));
    let lens: Vec<u32> = (1..=50).collect();
    rig.nic.session(&lens, |cqe| cqe[29] |= 1);
    rig.nic.frame(99, |_| ());
    let mut seen = Vec::new();
    for limit in [1, 7, 8, 9, 1, 20, 3] {
        let frames = rig.receive(limit);
        assert_eq!(frames.len(), limit);
        assert!(
            frames.iter().all(|mbuf| (mbuf.rx_info().hash, mbuf.vlan()) == (None, Some(0))),
            "checksums are no hashes"
        );
        seen.extend(frames.iter().map(|mbuf| mbuf.len() as u32));
        frames.into_iter().for_each(Mbuf::free);
    }
    assert_eq!(rig.lens(32), [50, 99]);
    assert_eq!(seen, lens[..49]);
    rig.close();
}

#[test]
fn slots_of_a_session_are_the_nics_as_soon_as_it_was_read() {
    let mut rig = rig(compressing(PlainMini::Hash));
    rig.nic.session(&[60; 64], |_| ());
    assert_eq!(rig.lens(1).len(), 1);
    assert_eq!(rig.nic.cq.consumer_index(), 64);
    (0..64).for_each(|_| rig.nic.frame(61, |_| ()));
    assert_eq!(rig.lens(64), [60; 63].into_iter().chain([61]).collect::<Vec<_>>());
    rig.close();
}

#[test]
fn garbage_in_the_holes_of_a_session_is_no_entry_of_the_next_turn() {
    let mut rig = rig(PlainConfig { wqes: 16, cqes: 16, ..compressing(PlainMini::Hash) });
    for turn in 0..20_u32 {
        // The last byte of an array is that of a length: it looks like an owner and an opcode.
        let lens: Vec<u32> = (0..16).map(|idx| 0x420 + 0x10 * (idx % 2) + turn % 2).collect();
        rig.nic.session(&lens, |_| ());
        assert_eq!(rig.lens(64).len(), 16, "turn {turn}");
        assert_eq!(rig.lens(64), [0; 0]);
    }
    rig.close();
}

#[test]
fn frame_of_a_session_that_is_too_long_is_dropped_alone() {
    let mut rig = rig(compressing(PlainMini::Hash));
    let room = rig.pool.layout().data_room() as u32;
    rig.nic.session(&[60, room + 1, 61, u32::MAX, 62], |_| ());
    assert_eq!(rig.lens(64), [60, 61, 62]);
    assert_eq!(rig.dropped(Mlx5RxDrop::LengthInvalid), 2);
    rig.close();
}

#[test]
fn session_while_the_pool_is_empty_is_handed_on() {
    let mut rig = rig_of(PlainConfig { wqes: 32, cqes: 32, ..compressing(PlainMini::Hash) }, 32);
    rig.nic.session(&[60; 20], |_| ());
    let held = rig.receive(64);
    assert_eq!(held.len(), 20);
    assert_eq!(rig.nic.room(), 12);
    held.into_iter().for_each(Mbuf::free);
    assert_eq!(rig.lens(64), [0; 0]);
    assert_eq!(rig.nic.room(), 32);
    rig.close();
}

#[test]
fn session_that_cannot_be_stops_the_queue() {
    for count in [0, 65, 127, 128, 0x8000_0000, u32::MAX] {
        let mut rig = rig(compressing(PlainMini::Hash));
        rig.nic.cq.complete(2, 3, |cqe| cqe[44..48].copy_from_slice(&u32::to_be_bytes(count)));
        assert_eq!(rig.lens(64), [0; 0]);
        assert_eq!(rig.dropped(Mlx5RxDrop::SessionInvalid), 1, "{count}");
        rig.close();
    }
}

#[test]
fn session_of_more_frames_than_buffers_stops_the_queue() {
    let mut rig = rig(PlainConfig { wqes: 8, ..compressing(PlainMini::Hash) });
    rig.nic.frame(60, |_| ());
    rig.nic.session(&[60; 8], |_| ());
    assert_eq!(rig.lens(64), [60]);
    assert_eq!(rig.dropped(Mlx5RxDrop::SessionInvalid), 1);
    rig.close();
}

#[test]
fn session_of_another_buffer_stops_the_queue() {
    let mut rig = rig(compressing(PlainMini::Hash));
    rig.nic.wqe_idx = 3;
    rig.nic.session(&[60; 8], |_| ());
    assert_eq!(rig.lens(64), [0; 0]);
    assert_eq!(rig.dropped(Mlx5RxDrop::IndexUnexpected), 1);
    rig.close();
}

#[test]
fn place_in_the_cq_that_a_session_has_taken_away_is_found_again() {
    for (before, count) in [(0, 0), (5, 65), (120, 127), (130, 3), (200, u32::MAX)] {
        let mut rig = rig(compressing(PlainMini::Hash));
        for _ in 0..before {
            rig.nic.frame(60, |_| ());
            assert_eq!(rig.lens(1), [60]);
        }
        let title = rig.nic.cq.slot();
        rig.nic.session(&[60; 30], |_| ());
        rig.nic.cq.write(title, |cqe| {
            cqe[44..48].copy_from_slice(&count.to_be_bytes());
            // The session is for another buffer, so its length cannot be checked.
            cqe[61] ^= u8::from(count == 3);
        });
        assert_eq!(rig.lens(64), [0; 0]);
        rig.later();
        assert_eq!(rig.lens(64), [0; 0]);
        assert_eq!((rig.nic.objects.readies.get(), rig.nic.rq.producer_index()), (1, 1), "one WQE, to find the place");
        rig.nic.wqe_idx = 0;
        rig.later();
        assert_eq!(rig.lens(64), [0; 0], "nothing came yet");
        rig.nic.frame(61, |_| ());
        rig.later();
        assert_eq!(rig.lens(64), [0; 0], "it has to be seen twice");
        rig.later();
        assert_eq!((rig.lens(64), rig.nic.rq.producer_index()), (vec![61], 129), "{before} {count}");
        rig.nic.session(&[62; 30], |_| ());
        (0..40).for_each(|_| rig.nic.frame(63, |_| ()));
        assert_eq!([rig.lens(64), rig.lens(64)].concat(), [vec![62; 30], vec![63; 40]].concat());
        assert_eq!(rig.nic.objects.resets.get(), 1);
        rig.close();
    }
}

// Striding rings.

/// WQEs of sixteen strides of 64 bytes.
fn striding() -> PlainConfig {
    PlainConfig { wqes: 4, cqes: 64, stride: 32, striding: Some((6, 4)), ..PlainConfig::default() }
}

fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

#[test]
fn frames_are_copied_out_of_their_strides_over_many_turns() {
    for cqe_len in [64, 128] {
        let mut rig = rig_of(PlainConfig { cqe_len, ..striding() }, 64);
        assert_eq!(rig.nic.rq.producer_index(), 4);
        for idx in 0..500 {
            let expected = frame(1 + idx * 37 % 1000, idx);
            rig.nic.strided(&expected, |cqe| cqe[59] = 1);
            let mbuf = rig.receive(8).pop().unwrap();
            assert_eq!((mbuf.bytes(), mbuf.flow_tag()), (&expected[..], Some(0)), "frame {idx}");
            assert_eq!((mbuf.ip_checksum(), mbuf.is_writable()), (ChecksumStatus::Good, true));
            mbuf.free();
            assert_eq!(rig.nic.rq.producer_index(), (rig.nic.wqe_idx + 4) & 0xffff, "a WQE comes back as a whole");
        }
        rig.close();
    }
}

#[test]
fn wqe_of_a_striding_ring_names_its_part_of_the_memory_for_good() {
    let mut rig = rig_of(striding(), 64);
    // Behind the segment that links WQEs.
    let segments: Vec<_> = (0..4).map(|idx| rig.nic.rq.segment(idx, 1)).collect();
    let first = segments[0].2;
    for (idx, segment) in (0..).zip(&segments) {
        assert_eq!(*segment, (1024, PLAIN_LKEY, first + idx * 1024));
        assert_eq!(rig.nic.rq.segment(idx as u32, 0), (0, 0, 0));
    }
    (0..100).for_each(|_| {
        rig.nic.strided(&[1; 300], |_| ());
        assert_eq!(rig.lens(1), [300]);
    });
    assert_eq!(segments, (0..4).map(|idx| rig.nic.rq.segment(idx, 1)).collect::<Vec<_>>());
    rig.close();
}

#[test]
fn burst_goes_over_fillers_and_wqes() {
    let mut rig = rig_of(striding(), 64);
    // Five strides each: three a WQE, then a filler of one.
    let frames: Vec<_> = (0..12).map(|idx| frame(300, idx)).collect();
    frames.iter().for_each(|frame| rig.nic.strided(frame, |_| ()));
    let received = rig.receive(32);
    assert!(received.iter().map(Mbuf::bytes).eq(frames.iter().map(|frame| &frame[..])));
    received.into_iter().for_each(Mbuf::free);
    assert_eq!(rig.nic.rq.producer_index(), 3 + 4, "the filler of the last WQE has not been told of yet");
    rig.close();
}

#[test]
fn fillers_are_no_frames_that_a_closed_queue_loses() {
    let mut rig = rig_of(striding(), 64);
    (0..12).for_each(|idx| rig.nic.strided(&frame(300, idx), |_| ()));
    let rig = rig.close();
    assert_eq!(rig.dropped(Mlx5RxDrop::QueueClosed), 12);
}

#[test]
fn frame_of_a_striding_ring_over_one_buffer_is_a_chain() {
    let config = PlainConfig { wqes: 2, cqes: 128, striding: Some((8, 6)), ..striding() };
    let mut rig = rig_of(config, 64);
    let expected = frame(9000, 3);
    rig.nic.strided(&expected, |_| ());
    let mbuf = rig.receive(1).pop().unwrap();
    assert_eq!(mbuf.segments().collect::<Vec<_>>().concat(), expected);
    assert_eq!((mbuf.len(), mbuf.l4_checksum()), (9000, ChecksumStatus::Good));
    mbuf.free();
    rig.close();
}

#[test]
fn frames_wait_in_their_strides_while_the_pool_is_empty() {
    let mut rig = rig_of(striding(), 3);
    let frames: Vec<_> = (0..6).map(|idx| frame(64, idx)).collect();
    frames.iter().for_each(|frame| rig.nic.strided(frame, |_| ()));
    let held = rig.receive(32);
    assert_eq!(held.len(), 3);
    assert_eq!(rig.lens(32), [0; 0]);
    held.into_iter().for_each(Mbuf::free);
    let rest = rig.receive(32);
    assert!(rest.iter().map(Mbuf::bytes).eq(frames[3..].iter().map(|frame| &frame[..])));
    rest.into_iter().for_each(Mbuf::free);
    assert!(rig.count("nombuf") > 0);
    rig.close();
}

#[test]
fn compressed_session_tells_of_strides() {
    for mini in [PlainMini::ChecksumStride, PlainMini::Checksum, PlainMini::Hash] {
        let mut rig = rig_of(PlainConfig { mini: Some(mini), ..striding() }, 64);
        for turn in 0..40 {
            // 1 + 2 + 1 + 4 strides, twice a WQE, so that sessions also end with it; once over its
            // end.
            let lens = if turn % 5 == 4 { [64, 100, 10, 200].repeat(4) } else { vec![64, 100, 10, 200] };
            let frames: Vec<_> = lens.iter().map(|&len| frame(len, turn)).collect();
            rig.nic.strided_session(&frames.iter().map(|frame| &frame[..]).collect::<Vec<_>>());
            let mut received = rig.receive(3);
            received.extend(rig.receive(32));
            assert!(
                received.iter().map(Mbuf::bytes).eq(frames.iter().map(|frame| &frame[..])),
                "{mini:?}, turn {turn}"
            );
            received.into_iter().for_each(Mbuf::free);
        }
        rig.close();
    }
}

#[test]
fn strides_that_cannot_be_stop_the_queue() {
    // First stride and byte count of the second frame; the first takes strides 0 and 1.
    let cases = [
        (2, 0),
        (1, 1 << 16 | 64),
        (0, 1 << 16 | 64),
        (2, 15 << 16 | 64),
        (15, 2 << 16 | 64),
        (16, 1 << 16 | 64),
        (0xffff, 0x7fff << 16 | 64),
        (2, 1 << 31),
        (2, 1 << 31 | 15 << 16),
    ];
    for (first, byte_count) in cases {
        let mut rig = rig_of(striding(), 64);
        rig.nic.strided(&[1; 100], |_| ());
        rig.nic.strided(&[2; 64], |cqe| {
            cqe[60..62].copy_from_slice(&u16::to_be_bytes(first));
            cqe[44..48].copy_from_slice(&u32::to_be_bytes(byte_count));
        });
        assert_eq!(rig.lens(32), [100]);
        assert_eq!(rig.dropped(Mlx5RxDrop::StridesInvalid), 1, "{first} {byte_count:#x}");
        rig.later();
        rig.lens(32);
        (rig.nic.wqe_idx, rig.nic.stride) = (0, 0);
        rig.nic.strided(&[3; 70], |_| ());
        assert_eq!(rig.lens(32), [70], "it comes back");
        rig.close();
    }
}

#[test]
fn frame_longer_than_its_strides_is_dropped_alone() {
    let mut rig = rig_of(striding(), 64);
    rig.nic.strided(&[1; 64], |cqe| cqe[47] = 65);
    rig.nic.strided(&[1; 64], |_| ());
    assert_eq!(rig.lens(32), [64]);
    assert_eq!(rig.dropped(Mlx5RxDrop::LengthInvalid), 1);
    rig.close();
}

#[test]
fn cqe_of_another_wqe_stops_a_striding_queue() {
    let mut rig = rig_of(striding(), 64);
    rig.nic.strided(&[1; 64], |cqe| cqe[3] = 1);
    assert_eq!(rig.lens(32), [0; 0]);
    assert_eq!(rig.dropped(Mlx5RxDrop::IndexUnexpected), 1);
    rig.close();
}

#[test]
fn strides_that_were_told_of_as_nothing_are_skipped() {
    let mut rig = rig_of(striding(), 64);
    rig.nic.strided(&[1; 64], |_| ());
    rig.nic.stride = 7;
    rig.nic.strided(&[2; 64], |_| ());
    assert_eq!(rig.lens(32), [64, 64]);
    rig.close();
}

// A NIC that writes anything.

/// The next action of a hostile NIC.
#[derive(Clone, Debug)]
enum Act {
    /// Completes correctly: a frame, or a session, of such lengths.
    Frames(Vec<u32>),
    /// The same with bytes of the CQE changed.
    Changed(Vec<(usize, u8)>),
    /// Writes 64 bytes into a slot.
    Write(u32, Box<[u8; 64]>),
    /// Writes an entry that appears to be owned by software: opcode, format, then any bytes.
    Ours(u8, u8, Box<[u8; 64]>),
    /// The worker polls.
    Poll(usize),
    /// The worker frees the mbufs that it holds.
    Free(usize),
    /// Time passes.
    Wait,
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = || proptest::collection::vec(any::<u8>(), 64).prop_map(|bytes| Box::new(bytes.try_into().unwrap()));
    prop_oneof![
        4 => proptest::collection::vec(0..2000_u32, 1..40).prop_map(Act::Frames),
        2 => proptest::collection::vec((0..64_usize, any::<u8>()), 1..4).prop_map(Act::Changed),
        1 => (0..64_u32, bytes()).prop_map(|(slot, bytes)| Act::Write(slot, bytes)),
        2 => (prop_oneof![Just(2_u8), 0..16_u8], 0..4_u8, bytes()).prop_map(|(opcode, format, bytes)| Act::Ours(opcode, format, bytes)),
        6 => (0..=BURST_MAX).prop_map(Act::Poll),
        3 => (0..100_usize).prop_map(Act::Free),
        1 => Just(Act::Wait),
    ]
}

fn configs() -> impl Strategy<Value = PlainConfig> {
    let minis = prop_oneof![
        Just(None),
        Just(Some(PlainMini::Hash)),
        Just(Some(PlainMini::Checksum)),
        Just(Some(PlainMini::ChecksumStride))
    ];
    let stamps = prop_oneof![Just(PlainStamps::Off), Just(PlainStamps::Wall), Just(PlainStamps::RealTime)];
    let shapes = prop_oneof![Just((16, None)), Just((64, None)), Just((32, Some((6, 4))))];
    (0..6_u32, 0..2_u32, minis, stamps, any::<bool>(), shapes).prop_map(
        |(wqes_log, wide, mini, stamps, has_hashes, (stride, striding))| PlainConfig {
            wqes: 1 << wqes_log,
            cqes: if striding.is_some() { 16 << wqes_log } else { 2 << wqes_log },
            cqe_len: 64 << wide,
            stride,
            frame_len_max: if stride == 64 { 4000 } else { 1500 },
            stamps,
            has_hashes,
            mini,
            striding,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Whatever the NIC does: no panic, no lost buffer, and none with two owners.
    #[test]
    fn hostile_nic_costs_no_buffer(config in configs(), acts in proptest::collection::vec(act(), 1..60), spare in 0..100_usize) {
        let mut rig = rig_of(config, config.wqes as usize + spare);
        let mut held: Vec<Mbuf> = Vec::new();
        for act in acts {
            match act {
                Act::Frames(lens) if config.striding.is_some() => {
                    lens.iter().filter(|&&len| len <= 1024).for_each(|&len| rig.nic.strided(&frame(len as usize, 1), |_| ()));
                }
                Act::Frames(lens) if config.mini.is_some() => rig.nic.session(&lens, |_| ()),
                Act::Frames(lens) => lens.iter().for_each(|&len| rig.nic.frame(len, |_| ())),
                Act::Changed(changes) => {
                    let slot = rig.nic.cq.slot().wrapping_sub(1) % config.cqes;
                    rig.nic.cq.write(slot, |cqe| changes.iter().for_each(|&(at, byte)| cqe[at] = byte));
                }
                Act::Write(slot, bytes) => rig.nic.cq.write(slot, |cqe| *cqe = *bytes),
                Act::Ours(opcode, format, bytes) => rig.nic.cq.complete(opcode, format, |cqe| *cqe = *bytes),
                Act::Poll(limit) => held.extend(rig.receive(limit)),
                Act::Free(count) => {
                    let keep = held.len().saturating_sub(count);
                    held.drain(keep..).for_each(Mbuf::free);
                }
                Act::Wait => rig.later(),
            }
            let mut places: Vec<usize> =
                held.iter().flat_map(|mbuf| mbuf.segments().map(|part| part.as_ptr().addr()).collect::<Vec<_>>()).collect();
            let count = places.len();
            places.sort_unstable();
            places.dedup();
            prop_assert_eq!(places.len(), count, "a buffer is in two hands");
        }
        held.into_iter().for_each(Mbuf::free);
        rig.close();
    }
}
