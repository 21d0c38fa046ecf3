//! Faults around a wire in memory: the same seed gives the same faults, and every frame and mbuf is
//! accounted for.

use std::rc::Rc;

use super::damage::Stock;
use super::frame_faults::FaultDraws;
use super::rx::FaultRx;
use super::tx::FaultTx;
use super::*;
use crate::counters::Block;
use crate::device::memory::{MemoryConfig, MemoryRx, MemoryTx, pair};
use crate::device::testing::conformance::assert_conforms;
use crate::device::testing::wire_rig::{self, SLOTS, WireRig};
use crate::device::{Device, Offload, Queue, RxQueue, TxQueue, TxTimestamp};
use crate::mem::{Burst, Mbuf, Pool};
use crate::time::{Duration, Instant, UnixTime};

/// Two ports with the same faults on one wire.
struct Wire {
    pool: Pool,
    block: Block,
    near: (FaultRx<MemoryRx>, FaultTx<MemoryTx>),
    far: (FaultRx<MemoryRx>, FaultTx<MemoryTx>),
}

fn wire(config: FaultConfig) -> Wire {
    let (pool, block) = (Pool::heap(1_024).unwrap(), Block::heap());
    let (near, far) = wire_rig::wire();
    let open = |device, scope| {
        let queue = FaultDevice::new(device, config).unwrap().take_queue(0).unwrap();
        queue.open(&pool, &block.scope(scope)).unwrap()
    };
    let (near, far) = (open(near, "near"), open(far, "far"));
    Wire { pool, block, near, far }
}

fn rx_faults(seed: u64, rx: Faults) -> Wire {
    wire(FaultConfig { seed, rx, tx: Faults::NONE })
}

fn tx_faults(seed: u64, tx: Faults) -> Wire {
    wire(FaultConfig { seed, rx: Faults::NONE, tx })
}

fn frame(idx: u32) -> Vec<u8> {
    [&[0x55; 56][..], &idx.to_be_bytes()].concat()
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame.last_chunk().unwrap())
}

impl Wire {
    /// Posts from near; a full ring returns the frame's number.
    fn post(&mut self, idx: u32) -> Result<(), u32> {
        let mbuf = self.pool.alloc_copy(&frame(idx)).unwrap();
        self.near.1.post(mbuf, Offload::NONE).map_err(|mbuf| {
            let idx = number(mbuf.bytes());
            mbuf.free();
            idx
        })
    }

    /// Receives at far until there are no more frames.
    fn receive_at(&mut self, now: u64, limit: usize) -> Vec<Vec<u8>> {
        let (mut frames, mut burst) = (Vec::new(), Burst::new());
        while self.far.0.receive(&mut burst, limit, &self.pool, Instant::from_nanos(now)) > 0 {
            frames.extend(burst.iter().map(|mbuf| mbuf.bytes().to_vec()));
            burst.drain(..).for_each(Mbuf::free);
        }
        frames
    }

    /// Sends `count` frames a few at a time, one microsecond per turn, and returns all that arrive,
    /// including late ones.
    fn run(&mut self, count: u32, limit: usize) -> Vec<Vec<u8>> {
        let mut received = Vec::new();
        let mut idx = 0;
        for turn in 0..count + 2_000 {
            let now = u64::from(turn) * 1_000;
            self.near.1.reap();
            for _ in 0..7 {
                if idx < count && self.post(idx).is_ok() {
                    idx += 1;
                }
            }
            self.near.1.ring_doorbell(Instant::from_nanos(now));
            received.extend(self.receive_at(now, limit));
        }
        assert_eq!(idx, count, "all frames were posted");
        received
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(name).unwrap()
    }

    /// Checks that no buffer is in use, and that there were no drops without a reason.
    fn close(self) {
        let Self { pool, near, far, .. } = self;
        drop((near, far));
        assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
    }
}

const ALL: Faults = Faults {
    loss: 0.1,
    duplication: 0.1,
    corruption: 0.1,
    reordering: 0.1,
    delay: 0.1,
    delay_max: Duration::from_micros(50),
    ring_full: 0.01,
    ..Faults::NONE
};

#[test]
fn wrapper_without_faults_conforms() {
    let faultless = |device| FaultDevice::new(device, FaultConfig::default()).unwrap();
    assert_conforms(&mut WireRig::new(move || {
        let (near, far) = wire_rig::wire();
        (faultless(near), faultless(far))
    }));
}

#[test]
fn probability_over_one_is_refused() {
    let (near, _far) = pair("wire", MemoryConfig::default());
    let config = FaultConfig { rx: Faults { loss: 1.5, ..Faults::NONE }, ..FaultConfig::default() };
    let error = FaultDevice::new(near, config).err().unwrap().to_string();
    assert_eq!(error, "the fault probability rx.loss is 1.5: use a number from 0 to 1");
}

#[test]
fn certain_loss_delivers_nothing() {
    for mut wire in
        [rx_faults(1, Faults { loss: 1.0, ..Faults::NONE }), tx_faults(1, Faults { loss: 1.0, ..Faults::NONE })]
    {
        assert!(wire.run(100, 32).is_empty());
        assert_eq!(wire.count("far/fault/rx/drop/loss") + wire.count("near/fault/tx/drop/loss"), 100);
        wire.close();
    }
}

#[test]
fn every_frame_and_fault_is_accounted_for() {
    for seed in 0..20 {
        let mut wire = wire(FaultConfig { seed, rx: ALL, tx: ALL });
        let received = wire.run(1_000, 32).len() as u64;
        let count = |name: &str| wire.count(name);
        let twins = count("near/fault/tx/duplicated") + count("far/fault/rx/duplicated");
        let lost =
            count("near/fault/tx/drop/loss") + count("far/fault/rx/drop/loss") + count("far/fault/rx/drop/ring_full");
        assert_eq!(received + lost, 1_000 + twins, "seed {seed}");
        assert!(lost > 0 && twins > 0 && count("near/fault/tx/ring_full") > 0, "seed {seed}");
        wire.close();
    }
}

#[test]
fn same_seed_gives_the_same_faults() {
    let run = |seed| wire(FaultConfig { seed, rx: ALL, tx: ALL }).run(1_000, 32);
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn received_faults_do_not_depend_on_the_bursts() {
    let faults = Faults { delay: 0.0, ..ALL };
    let run = |limit| rx_faults(5, faults).run(1_000, limit);
    assert_eq!(run(1), run(32));
    assert_eq!(run(64), run(7));
}

#[test]
fn duplicate_follows_its_frame() {
    let mut wire = rx_faults(1, Faults { duplication: 1.0, ..Faults::NONE });
    let numbers: Vec<_> = wire.run(3, 32).iter().map(|frame| number(frame)).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2]);
    wire.close();
}

#[test]
fn sent_duplicate_comes_with_the_doorbell() {
    let mut wire = tx_faults(1, Faults { duplication: 1.0, ..Faults::NONE });
    let numbers: Vec<_> = wire.run(3, 32).iter().map(|frame| number(frame)).collect();
    assert_eq!(numbers, [0, 1, 2, 0, 1, 2]);
    wire.close();
}

#[test]
fn corruption_flips_one_bit() {
    for mut wire in [
        rx_faults(1, Faults { corruption: 1.0, ..Faults::NONE }),
        tx_faults(1, Faults { corruption: 1.0, ..Faults::NONE }),
    ] {
        for (idx, received) in (0..).zip(wire.run(50, 32)) {
            let differing: u32 = received.iter().zip(frame(idx)).map(|(one, other)| (one ^ other).count_ones()).sum();
            assert_eq!(differing, 1, "frame {idx}");
        }
        wire.close();
    }
}

#[test]
fn held_bytes_are_never_corrupted() {
    let mut wire = tx_faults(1, Faults { corruption: 1.0, ..Faults::NONE });
    let mbuf = wire.pool.alloc_copy(&frame(9)).unwrap();
    let held = mbuf.hold();
    wire.near.1.post(mbuf, Offload::NONE).unwrap();
    wire.near.1.ring_doorbell(Instant::ZERO);
    assert_eq!(wire.receive_at(0, 32), [frame(9)]);
    assert_eq!((wire.count("near/fault/tx/not_applied"), wire.count("near/fault/tx/corrupted")), (1, 0));
    assert_eq!(held.bytes().unwrap(), frame(9));
    drop(held);
    wire.close();
}

#[test]
fn reordered_frame_is_overtaken() {
    let mut wire = rx_faults(2, Faults { reordering: 0.2, ..Faults::NONE });
    let numbers: Vec<_> = wire.run(1_000, 32).iter().map(|frame| number(frame)).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..1_000), "each arrives once");
    let late = numbers.iter().enumerate().map(|(place, &number)| place as i64 - i64::from(number)).max();
    assert!((1..=4).contains(&late.unwrap()), "overtaken by one to four: {late:?}");
    assert!(wire.count("far/fault/rx/reordered") > 100);
    wire.close();
}

#[test]
fn lonely_reordered_frame_comes_in_the_end() {
    let mut wire = rx_faults(2, Faults { reordering: 1.0, ..Faults::NONE });
    wire.post(0).unwrap();
    wire.near.1.ring_doorbell(Instant::ZERO);
    assert!(wire.receive_at(0, 32).is_empty());
    assert!(wire.receive_at(999_999, 32).is_empty());
    assert_eq!(wire.receive_at(1_000_000, 32), [frame(0)]);
    wire.close();
}

#[test]
fn delayed_frame_waits_for_its_time() {
    let faults = Faults { delay: 1.0, delay_max: Duration::from_micros(10), ..Faults::NONE };
    for mut wire in [rx_faults(1, faults), tx_faults(1, faults)] {
        (0..20).for_each(|idx| wire.post(idx).unwrap());
        let mut counts = [0, 5_000, 10_000].map(|now| {
            wire.near.1.ring_doorbell(Instant::from_nanos(now));
            wire.receive_at(now, 32).len()
        });
        assert!(counts[1] > 0 && counts[2] > 0, "{counts:?}");
        counts[0] += counts[1] + counts[2];
        assert_eq!(counts[0], 20);
        wire.close();
    }
}

#[test]
fn full_ring_refuses_until_it_was_reaped() {
    let mut wire = tx_faults(1, Faults { ring_full: 1.0, ring_full_max: 1, ..Faults::NONE });
    assert_eq!(wire.post(0), Ok(()));
    wire.near.1.ring_doorbell(Instant::ZERO);
    wire.near.1.reap();
    assert_eq!(wire.near.1.room(), 0);
    assert_eq!(wire.post(1), Err(1));
    wire.near.1.reap();
    assert_eq!(wire.post(1), Ok(()));
    assert_eq!(wire.count("near/fault/tx/ring_full"), 1);
    wire.close();
}

#[test]
fn refused_frame_is_untouched() {
    let mut wire = tx_faults(1, Faults { corruption: 1.0, duplication: 1.0, ..Faults::NONE });
    (0..SLOTS).for_each(|idx| wire.post(idx).unwrap());
    let mbuf = wire.pool.alloc_copy(&frame(77)).unwrap();
    let back = wire.near.1.post(mbuf, Offload::NONE).unwrap_err();
    assert_eq!(back.bytes(), frame(77));
    back.free();
    wire.close();
}

#[test]
fn small_pool_keeps_buffers_to_receive_into() {
    let stock = Stock::new(true);
    for buffers in 1..8 {
        let pool = Pool::heap(buffers).unwrap();
        stock.fill(&pool);
        assert!(pool.available() > 0, "the stock took all of {buffers}");
        while let Some(mbuf) = stock.take() {
            mbuf.free();
        }
    }
}

#[test]
fn empty_pool_does_without_duplicates() {
    let mut wire = rx_faults(1, Faults { duplication: 1.0, ..Faults::NONE });
    wire.post(0).unwrap();
    wire.near.1.ring_doorbell(Instant::ZERO);
    let mut hoard: Vec<_> = std::iter::from_fn(|| wire.pool.alloc()).collect();
    hoard.pop().unwrap().free();
    assert_eq!(wire.receive_at(0, 32).len(), 1);
    assert_eq!(wire.count("far/fault/rx/not_applied"), 1);
    hoard.into_iter().for_each(Mbuf::free);
    wire.close();
}

/// A NIC that only stamps frames on request.
#[derive(Default)]
struct StampingTx {
    asked: u64,
    reported: u64,
    sent: Vec<u32>,
}

impl TxQueue for StampingTx {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.sent.push(number(mbuf.bytes()));
        self.asked += u64::from(offload.has(Offload::TIMESTAMP));
        mbuf.free();
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Instant) {}

    fn reap(&mut self) -> usize {
        0
    }

    fn room(&mut self) -> usize {
        usize::MAX
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        let sequence = self.reported;
        self.reported += u64::from(sequence < self.asked);
        (sequence < self.asked).then_some(TxTimestamp { sequence, at: UnixTime::default() })
    }

    fn refresh_counters(&mut self) {}
}

#[test]
fn timestamps_keep_the_numbers_that_the_worker_counts() {
    let (pool, block) = (Pool::heap(128).unwrap(), Block::heap());
    let stock = Rc::new(Stock::new(true));
    stock.fill(&pool);
    let faults = Faults { loss: 0.3, reordering: 0.3, duplication: 0.2, ..Faults::NONE };
    let mut tx = FaultTx::new(StampingTx::default(), FaultDraws::new(4, 0, faults), stock, &block.scope("near"));
    for idx in 0..40 {
        let offload = Offload::TIMESTAMP;
        tx.post(pool.alloc_copy(&frame(idx)).unwrap(), offload).unwrap();
    }
    tx.ring_doorbell(Instant::from_nanos(5));
    let mut stamped: Vec<_> = std::iter::from_fn(|| tx.take_timestamp()).map(|stamp| stamp.sequence as u32).collect();
    let mut sent = tx.inner().sent.clone();
    stamped.sort_unstable();
    sent.sort_unstable();
    assert!(sent.len() > 20 && sent.len() > stamped.len(), "some are sent twice");
    sent.dedup();
    assert_eq!(stamped, sent);
}
