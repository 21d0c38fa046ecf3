use std::thread;

use super::*;
use crate::counters::Block;
use crate::device::steering::{Rule, SteerError};
use crate::device::testing::conformance::assert_conforms;
use crate::device::testing::wire_rig::WireRig;
use crate::device::{Device, DeviceError, Offload, Queue, RxQueue, RxState, TxQueue};
use crate::mem::{Burst, ChecksumStatus, Pool};
use crate::time::Instant;

const SLOTS: u32 = if cfg!(miri) { 8 } else { 64 };

/// Small under Miri, which takes a second to zero ten of the default slots.
fn config() -> MemoryConfig {
    let usual = MemoryConfig::default();
    MemoryConfig { slots: SLOTS, frame_len_max: if cfg!(miri) { 256 } else { usual.frame_len_max }, ..usual }
}

#[test]
fn memory_device_conforms() {
    for config in [config(), MemoryConfig { segments: true, ..config() }] {
        assert_conforms(&mut WireRig::of(config, move || pair("wire", config)));
    }
}

/// Two ports, opened on this thread with one pool.
struct Wire {
    pool: Pool,
    block: Block,
    near: (MemoryRx, MemoryTx),
    far: (MemoryRx, MemoryTx),
    far_device: MemoryDevice,
}

fn wire() -> Wire {
    let block = Block::heap();
    let pool = Pool::heap(256).unwrap();
    let (mut near, mut far) = pair("wire", config());
    let near = near.take_queue(0).unwrap().open(&pool, &block.scope("near")).unwrap();
    let far_queue = far.take_queue(0).unwrap().open(&pool, &block.scope("far")).unwrap();
    Wire { pool, block, near, far: far_queue, far_device: far }
}

impl Wire {
    fn send(&mut self, frame: &[u8]) {
        self.near.1.post(self.pool.alloc_copy(frame).unwrap(), Offload::NONE).unwrap();
        self.near.1.ring_doorbell(Instant::ZERO);
    }

    /// The flow tags of all frames that arrive.
    fn received_tags(&mut self) -> Vec<Option<u32>> {
        let mut burst = Burst::new();
        self.far.0.receive(&mut burst, 64, &self.pool, Instant::ZERO);
        burst.drain(..).map(|mbuf| (mbuf.flow_tag(), mbuf.free()).0).collect()
    }
}

const ARP_FRAME: [u8; 14] = [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x08, 0x06];
const OTHER_FRAME: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];

#[test]
fn rules_change_while_it_runs_and_the_rest_is_counted() {
    let mut wire = wire();
    wire.send(&OTHER_FRAME);
    assert_eq!(wire.received_tags(), [None]);

    let id = wire.far_device.steer(&Rule::arp().tagged(7), 0).unwrap();
    wire.send(&ARP_FRAME);
    wire.send(&OTHER_FRAME);
    assert_eq!(wire.received_tags(), [Some(7)]);
    assert_eq!(wire.block.snapshot().count("far/rx/drop/not_steered"), Some(1));

    wire.far_device.unsteer(id).unwrap();
    wire.send(&OTHER_FRAME);
    assert_eq!(wire.received_tags(), [None]);
    assert_eq!(wire.far_device.unsteer(id), Err(SteerError::NoRule { id }));
}

#[test]
fn ring_is_full_on_request() {
    let mut wire = wire();
    wire.near.1.set_ring_full(true);
    let mbuf = wire.near.1.post(wire.pool.alloc_copy(&OTHER_FRAME).unwrap(), Offload::NONE).unwrap_err();
    assert_eq!((wire.near.1.room(), wire.block.snapshot().count("near/tx/ring_full")), (0, Some(1)));
    wire.near.1.set_ring_full(false);
    assert!(wire.near.1.post(mbuf, Offload::NONE).is_ok());
}

/// Long frames are lent, and very short ones and chains take another path than most.
#[test]
fn urgent_frame_of_any_kind_leaves_without_a_doorbell() {
    let mut wire = wire();
    let long = vec![7; 1_500.min(config().frame_len_max)];
    for frame in [&OTHER_FRAME[..], &long] {
        wire.near.1.post_urgent(wire.pool.alloc_copy(frame).unwrap()).unwrap();
        assert_eq!(wire.received_tags(), [None], "{} bytes", frame.len());
    }
    let mut chain = wire.pool.alloc_copy(&[7; 100]).unwrap();
    chain.attach(wire.pool.alloc_copy(&[7; 100]).unwrap());
    wire.near.1.post_urgent(chain).unwrap();
    assert_eq!(wire.received_tags(), [None], "a chain");
}

#[test]
fn offload_that_it_has_not_is_a_named_drop() {
    let mut wire = wire();
    let offload = Offload::L4_CHECKSUM;
    assert!(wire.near.1.post(wire.pool.alloc_copy(&OTHER_FRAME).unwrap(), offload).is_ok());
    assert_eq!(wire.block.snapshot().count("near/tx/drop/offload_unsupported"), Some(1));
    assert_eq!(wire.pool.in_use(), 0);
}

#[test]
fn peer_that_is_gone_ends_the_queue_after_its_last_frame() {
    let mut wire = wire();
    wire.send(&OTHER_FRAME);
    drop(wire.near);
    assert_eq!(wire.far.0.state(), RxState::Open);
    let mut burst = Burst::new();
    wire.far.0.receive(&mut burst, 64, &wire.pool, Instant::ZERO);
    burst.drain(..).for_each(crate::mem::Mbuf::free);
    assert_eq!(wire.far.0.state(), RxState::Ended);
}

#[test]
fn queue_is_taken_once_and_must_exist() {
    let (mut near, _far) = pair("wire", config());
    assert!(matches!(near.take_queue(1), Err(DeviceError::NoQueue { queues: 1, .. })));
    assert!(near.take_queue(0).is_ok());
    assert!(matches!(near.take_queue(0), Err(DeviceError::QueueTaken { .. })));
}

#[test]
fn pool_with_small_buffers_is_refused_at_open() {
    let config = MemoryConfig { slots: 8, frame_len_max: 9_000, ..MemoryConfig::default() };
    let (mut near, _far) = pair("wire", config);
    let pool = Pool::heap(8).unwrap();
    let opened = near.take_queue(0).unwrap().open(&pool, &Block::heap().scope("near"));
    assert!(matches!(opened, Err(DeviceError::BuffersTooSmall { frame_len_max: 9_000, .. })));
}

/// Short and long frames alternate.
fn numbered(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(if number.is_multiple_of(3) { 16 } else { 60 })
}

#[test]
fn long_frame_is_lent_until_it_was_received() {
    let mut wire = wire();
    let frame = [7; 240];
    wire.send(&OTHER_FRAME);
    wire.send(&frame);
    for _ in 0..2 {
        assert_eq!((wire.near.1.reap(), wire.near.1.in_flight(), wire.pool.in_use()), (0, 1, 1), "one is copied");
        let mut burst = Burst::new();
        assert_eq!(wire.far.0.receive(&mut burst, 1, &wire.pool, Instant::ZERO), 1);
        burst.drain(..).for_each(crate::mem::Mbuf::free);
    }
    assert_eq!((wire.near.1.reap(), wire.near.1.in_flight(), wire.pool.in_use()), (1, 0, 0));
}

#[test]
fn mbufs_of_long_frames_come_home_also_where_nobody_reaps() {
    let mut wire = wire();
    for number in 0..10 * SLOTS {
        wire.send(&numbered(number));
        assert_eq!(wire.received_tags(), [None]);
    }
    assert!(wire.pool.in_use() <= SLOTS as usize);
    assert_eq!(wire.pool.in_use(), wire.near.1.in_flight());
}

#[test]
fn sender_that_goes_leaves_its_long_frames_on_the_wire() {
    let mut wire = wire();
    (0..4).for_each(|number| wire.send(&numbered(number)));
    assert_eq!(wire.received_tags().len(), 4);
    (4..SLOTS).for_each(|number| wire.send(&numbered(number)));
    drop(wire.near);
    assert_eq!((wire.pool.in_use(), wire.pool.drops_without_reason()), (0, 0), "all are back at once");
    let mut burst = Burst::new();
    wire.far.0.receive(&mut burst, 64, &wire.pool, Instant::ZERO);
    let frames: Vec<_> = burst.drain(..).map(|mbuf| (mbuf.bytes().to_vec(), mbuf.free()).0).collect();
    assert_eq!(frames, (4..SLOTS).map(numbered).collect::<Vec<_>>());
    assert_eq!(wire.far.0.state(), RxState::Ended);
}

#[test]
fn ends_on_two_threads_lose_nothing() {
    let frames: u32 = if cfg!(miri) { 40 } else { 50_000 };
    let (mut near, mut far) = pair("wire", config());
    let (near, far) = (near.take_queue(0).unwrap(), far.take_queue(0).unwrap());
    let sender = thread::spawn(move || {
        let pool = Pool::heap(64).unwrap();
        let (_rx, mut tx) = near.open(&pool, &Block::heap().scope("near")).unwrap();
        for number in 0..frames {
            tx.reap();
            let mut mbuf = pool.alloc_copy(&numbered(number)).unwrap();
            while let Err(back) = tx.post(mbuf, Offload::NONE) {
                mbuf = back;
                tx.ring_doorbell(Instant::ZERO);
                thread::yield_now();
            }
        }
        tx.ring_doorbell(Instant::ZERO);
        // The port is dropped at once, and with it the pool: frames in flight must survive.
    });
    let pool = Pool::heap(64).unwrap();
    let (mut rx, _tx) = far.open(&pool, &Block::heap().scope("far")).unwrap();
    let mut expected: u32 = 0;
    while rx.state() != RxState::Ended {
        let mut burst = Burst::new();
        if rx.receive(&mut burst, 32, &pool, Instant::ZERO) == 0 {
            thread::yield_now();
        }
        for mbuf in burst.drain(..) {
            assert_eq!(mbuf.bytes(), numbered(expected));
            expected += 1;
            mbuf.free();
        }
    }
    sender.join().unwrap();
    assert_eq!(expected, frames);
}

#[test]
fn checksum_that_nobody_computed_is_good_where_the_wire_skips_them() {
    for skips_checksums in [false, true] {
        let config = MemoryConfig { skips_checksums, ..config() };
        let (mut left, mut right) = pair("wire", config);
        let (pool, block) = (Pool::heap(8).unwrap(), Block::heap());
        let (_, mut tx) = left.take_queue(0).unwrap().open(&pool, &block.scope("left")).unwrap();
        let (mut rx, _) = right.take_queue(0).unwrap().open(&pool, &block.scope("right")).unwrap();
        let offload = Offload::L4_CHECKSUM;
        tx.post(pool.alloc_copy(&[1; 60]).unwrap(), offload).unwrap();
        tx.ring_doorbell(Instant::ZERO);
        let mut burst = Burst::new();
        rx.receive(&mut burst, 8, &pool, Instant::ZERO);
        let verdicts: Vec<_> = burst.drain(..).map(|mbuf| (mbuf.l4_checksum(), mbuf.free()).0).collect();
        assert_eq!(verdicts, if skips_checksums { vec![ChecksumStatus::Good] } else { vec![] });
    }
}
