//! The receiving half over plain memory: a NIC that writes what each test tells it to.

#![allow(clippy::unwrap_used)] // a panic here is the report

use super::plain::{PLAIN_LKEY, PlainConfig, PlainNic, PlainStamps, plain_rx};
use super::rx::{Mlx5Rx, Mlx5RxDrop};
use crate::counters::Block;
use crate::device::RxQueue;
use crate::mem::{BURST_MAX, Burst, Headers, L3, L4, Mbuf, Pool, RxInfo, Verdict};
use crate::time::{Duration, Instant, UnixTime};

/// A queue, its NIC, and its worker's pool.
struct Rig {
    rx: Option<Mlx5Rx>,
    nic: PlainNic,
    pool: Pool,
    block: Block,
    now: Instant,
}

/// What the tests of one buffer a frame begin with.
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

    /// One burst, `limit` at most.
    fn receive(&mut self, limit: usize) -> Vec<Mbuf> {
        let mut burst = Burst::new();
        let received = self.rx.as_mut().unwrap().receive(&mut burst, limit, &self.pool, self.now);
        assert_eq!(received, burst.len());
        burst.drain(..).collect()
    }

    /// The lengths of a burst's frames, which go home.
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

    /// Ends the queue. Every buffer is at home, and each frame has its name.
    fn close(mut self) -> Self {
        drop(self.rx.take());
        assert_eq!((self.pool.in_use(), self.pool.unnamed()), (0, 0), "buffers out, packets without a name");
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

// What CQEs tell.

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
        ip_checksum: Verdict::Good,
        l4_checksum: Verdict::Good,
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
            // With immediate data it is no frame of the usual run.
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
    rig.nic.frame(60, |cqe| cqe[59] = super::cqe::flow_tag_on_wire(0).unwrap() as u8);
    rig.nic.frame(60, |cqe| cqe[57..60].fill(0xff));
    let tags: Vec<_> = rig.receive(32).into_iter().map(|mbuf| (mbuf.flow_tag(), mbuf.free()).0).collect();
    assert_eq!(tags, [None, Some(0), Some(0xff_fffe)]);
    assert_eq!(super::cqe::flow_tag_on_wire(0xff_fffe), Some(0xff_ffff));
    assert_eq!(super::cqe::flow_tag_on_wire(0xff_ffff), None);
    rig.close();
}

#[test]
fn checksums_inside_a_tunnel_are_not_those_of_the_frame() {
    let mut rig = rig(PlainConfig::default());
    rig.nic.frame(60, |cqe| cqe[0] = 1);
    rig.nic.frame(61, |_| ());
    let frames = rig.receive(32);
    assert_eq!((frames[0].ip_checksum(), frames[0].headers()), (Verdict::Unknown, Headers::UNKNOWN));
    assert_eq!(frames[1].ip_checksum(), Verdict::Good);
    frames.into_iter().for_each(Mbuf::free);
    rig.close();
}

// What CQEs must not tell.

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

/// The queue is reset on its next turn; the frames that were in the CQ are counted, and new ones come.
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
