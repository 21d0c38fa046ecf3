//! The sending half of the mlx5 device over plain memory: posted WQEs stay in the ring, and a fake
//! NIC completes them outside of the measured time.

use wirepath::counters::Block;
use wirepath::device::mlx5::Mlx5Tx;
use wirepath::device::{Offload, TxQueue};
use wirepath::mem::{Burst, Pool};
use wirepath::testing::mlx5::{PlainTxConfig, PlainTxNic, plain_tx};
use wirepath::time::Instant;

use crate::receiver::ROUND;

/// Frames between two doorbells.
const BURST_LEN: usize = 32;
/// Bytes of a frame, without its checksum.
const FRAME_LEN: usize = 60;

/// How frames are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posting {
    /// A burst at a time.
    Bursts,
    /// One by one, and a doorbell after a burst.
    Frames,
    /// One by one, each at once: inline, by BlueFlame.
    Urgent,
}

/// The sending half of a queue, and a fake NIC.
pub struct SendRings {
    tx: Mlx5Tx,
    nic: PlainTxNic,
    pool: Pool,
    bursts: Vec<Burst>,
}

impl SendRings {
    /// A ring of twice a round.
    pub fn new(multi_packet: bool) -> Self {
        let pool = Pool::heap(4 * ROUND).expect("some hundred buffers are 2 MB");
        let blocks = 2 * ROUND.next_power_of_two() as u32;
        let config = PlainTxConfig { blocks, cqes: blocks, multi_packet, ..PlainTxConfig::default() };
        let (tx, nic) =
            plain_tx(config, &pool, &Block::heap().scope("worker0")).expect("the ring has a size that works");
        Self { tx, nic, pool, bursts: Vec::new() }
    }

    /// Makes a round of frames. Not measured.
    pub fn prepare(&mut self) {
        let pool = &self.pool;
        let frame = || pool.alloc_copy(&[0x5a; FRAME_LEN]).expect("all that was sent is home");
        self.bursts = (0..ROUND / BURST_LEN).map(|_| (0..BURST_LEN).map(|_| frame()).collect()).collect();
    }

    /// Measured first: a round of frames becomes WQEs, with a doorbell for each burst.
    #[inline(always)]
    pub fn send(&mut self, posting: Posting) {
        for burst in &mut self.bursts {
            match posting {
                Posting::Bursts => _ = self.tx.post_burst(burst, Offload::NONE),
                Posting::Frames => post_each(&mut self.tx, burst, Offload::NONE),
                Posting::Urgent => post_each(&mut self.tx, burst, Offload::URGENT),
            }
            self.tx.ring_doorbell(Instant::ZERO);
        }
    }

    /// The NIC completes the posted frames. Not measured.
    pub fn complete(&mut self) {
        self.nic.complete_all();
    }

    /// Measured second: sent mbufs are reaped. Returns their number.
    #[inline(always)]
    pub fn reap(&mut self) -> usize {
        self.tx.reap()
    }

    /// Whether every buffer is back in the pool.
    pub fn is_home(&self) -> bool {
        self.pool.in_use() == 0 && self.pool.drops_without_reason() == 0
    }
}

/// The calls of an application that has one frame at a time. The ring has room.
#[inline(always)]
fn post_each(tx: &mut Mlx5Tx, burst: &mut Burst, offload: Offload) {
    for mbuf in burst.drain(..) {
        if let Err(mbuf) = tx.post(mbuf, offload) {
            mbuf.free();
        }
    }
}
