//! The far end of the wire: puts frames into a memory device, outside of the measured time.

use wirepath::counters::Scope;
use wirepath::device::memory::{MemoryDevice, MemoryRx, MemoryTx};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Pool};
use wirepath::time::Instant;

/// A port whose sending half feeds the measured worker, and whose receiving half takes the frames
/// that come back.
pub struct Feeder {
    // Before the pool: mbufs must be dropped first.
    burst: Burst,
    tx: MemoryTx,
    rx: MemoryRx,
    pool: Pool,
    frames: Vec<Vec<u8>>,
    /// The order of the frames, repeated.
    order: Vec<u32>,
    next: usize,
}

impl Feeder {
    /// Feeds `frames` in `order`, over and over, through `port`.
    pub fn new(mut port: MemoryDevice, frames: Vec<Vec<u8>>, order: Vec<u32>, scope: &Scope) -> Self {
        let pool = Pool::heap(64).expect("64 buffers are 120 KB");
        let queue = port.take_queue(0).expect("a fresh port has its queue");
        let (rx, tx) = queue.open(&pool, scope).expect("the default pool holds the port's frames");
        Self { burst: Burst::new(), tx, rx, pool, frames, order, next: 0 }
    }

    /// Puts `count` frames onto the wire, which has room for them.
    pub fn feed(&mut self, count: usize) {
        self.tx.reap();
        for _ in 0..count {
            let frame = &self.frames[self.order[self.next] as usize];
            self.next = (self.next + 1) % self.order.len();
            let mbuf = self.pool.alloc_copy(frame).expect("posted buffers of short frames come home at once");
            let posted = self.tx.post(mbuf, Offload::NONE);
            assert!(posted.is_ok(), "the wire is full: feed no more than it has slots");
        }
        self.tx.ring_doorbell(Instant::ZERO);
    }

    /// Takes all frames that came back, and returns their number.
    pub fn drain(&mut self) -> usize {
        let mut count = 0;
        while self.rx.receive(&mut self.burst, 32, &self.pool, Instant::ZERO) > 0 {
            count += self.burst.len();
            for mbuf in self.burst.drain(..) {
                mbuf.free();
            }
        }
        count
    }
}
