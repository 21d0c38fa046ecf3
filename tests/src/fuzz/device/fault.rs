//! The device wrapper that misbehaves on purpose, with arbitrary faults: it counts each frame that
//! it loses, keeps no frame for ever, and returns every buffer.

use wirepath::counters::Block;
use wirepath::device::fault::{FaultConfig, FaultDevice, Faults};
use wirepath::device::memory::{self, MemoryConfig};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::time::{Duration, Instant};

use crate::fuzz::Input;

const SLOTS: u32 = 16;
const BUFFERS: usize = 256;

/// Frames out through one port with faults and in through the other.
pub(in crate::fuzz) fn device(data: &[u8]) {
    let mut input = Input::new(data);
    let config = FaultConfig { seed: input.u64(), rx: faults(&mut input), tx: faults(&mut input) };
    let block = Block::heap();
    let pool = Pool::heap(BUFFERS).expect("the heap has room");
    let (left, right) =
        memory::pair("wire", MemoryConfig { slots: SLOTS, frame_len_max: 200, ..MemoryConfig::default() });
    let mut left = FaultDevice::new(left, config).expect("probabilities up to one");
    let mut right = FaultDevice::new(right, config).expect("probabilities up to one");
    let open = "the port has one queue";
    let (left_rx, mut tx) = left.take_queue(0).expect(open).open(&pool, &block.scope("left")).expect(open);
    let (mut rx, right_tx) = right.take_queue(0).expect(open).open(&pool, &block.scope("right")).expect(open);

    let mut now = Instant::from_nanos(1);
    let (mut posted, mut received) = (0, 0);
    while !input.is_empty() {
        now += Duration::from_micros(input.below(50).into());
        posted += post(&mut tx, &pool, &mut input);
        if input.below(4) > 0 {
            tx.ring_doorbell(now);
            tx.reap();
        }
        received += receive(&mut rx, &pool, input.below(20).into(), now);
    }
    // All that was held back comes when its time is over.
    for _ in 0..1_000 {
        now += Duration::from_millis(1);
        tx.reap();
        tx.ring_doorbell(now);
        received += receive(&mut rx, &pool, 64, now);
    }
    assert_eq!(tx.in_flight(), 0, "frames are held back for ever");

    let snapshot = block.snapshot();
    let count = |name: &str| snapshot.count(name).unwrap_or_else(|| panic!("no counter {name}"));
    let sent = posted + count("left/fault/tx/duplicated") - count("left/fault/tx/drop/loss");
    // A duplicate that finds the ring full stays in the queue, so the number of frames sent is the
    // number that reached the other port's wire.
    assert_eq!(count("left/tx/frames"), sent);
    assert_eq!(count("right/rx/frames"), sent);
    let lost = count("right/fault/rx/drop/loss") + count("right/fault/rx/drop/ring_full");
    assert_eq!(received + lost, sent + count("right/fault/rx/duplicated"));
    drop((left_rx, tx, rx, right_tx));
    assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0), "buffers went astray");
}

fn faults(input: &mut Input<'_>) -> Faults {
    let mut probability = || match input.u8() {
        byte if byte < 128 => 0.0,
        byte => f64::from(byte - 128) / 127.0,
    };
    Faults {
        loss: probability(),
        duplication: probability(),
        corruption: probability(),
        reordering: probability(),
        delay: probability(),
        ring_full: probability(),
        reorder_frames_max: 1 + u32::from(input.u8()),
        delay_max: Duration::from_micros(input.u8().into()),
        ring_full_max: 1 + u32::from(input.below(16)),
    }
}

fn post(tx: &mut impl TxQueue, pool: &Pool, input: &mut Input<'_>) -> u64 {
    let mut posted = 0;
    for _ in 0..input.below(20) {
        let Some(mbuf) = pool.alloc_copy(input.take(60)) else { break };
        let room = tx.room();
        let offload = Offload::TIMESTAMP.when(input.below(8) == 0);
        match tx.post(mbuf, offload) {
            Ok(()) => posted += 1,
            Err(mbuf) => {
                assert_eq!(room, 0, "a queue that had room refused a frame");
                mbuf.free();
            }
        }
    }
    posted
}

fn receive(rx: &mut impl RxQueue, pool: &Pool, limit: usize, now: Instant) -> u64 {
    let mut burst = Burst::new();
    let received = rx.receive(&mut burst, limit, pool, now);
    assert!(received == burst.len() && received <= limit);
    burst.drain(..).for_each(Mbuf::free);
    received as u64
}
