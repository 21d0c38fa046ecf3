//! The mlx5 device's own rings, over plain memory: the NIC's CQEs and frames are written before the
//! measurement begins.

use wirepath::counters::Block;
use wirepath::device::RxQueue;
use wirepath::device::mlx5::Mlx5Rx;
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::testing::mlx5::{PlainConfig, PlainMini, PlainNic, PlainStamps, plain_rx};
use wirepath::time::Instant;

use crate::receiver::ROUND;

/// Frames that one call receives.
const BURST_LEN: usize = 32;

/// Bytes of a frame, without its checksum.
const FRAME_LEN: u32 = 60;

/// The contents of CQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cqes {
    /// A CQE for each frame, with checksum verdicts and header types.
    Plain,
    /// The same, and its arrival time, flow tag, hash and VLAN tag.
    Full,
    /// Sessions of 32, with the hash in each entry.
    Compressed,
}

/// The receiving half of a queue, and a fake NIC.
pub struct Rings {
    rx: Mlx5Rx,
    nic: PlainNic,
    pool: Pool,
    burst: Burst,
    cqes: Cqes,
}

impl Rings {
    /// Rings of twice a round.
    pub fn new(cqes: Cqes) -> Self {
        let wqes = 2 * ROUND as u32;
        let config = PlainConfig {
            cqes: wqes,
            wqes,
            stamps: if cqes == Cqes::Full { PlainStamps::Wall } else { PlainStamps::Off },
            has_hashes: cqes != Cqes::Plain,
            mini: (cqes == Cqes::Compressed).then_some(PlainMini::Hash),
            ..PlainConfig::default()
        };
        let pool = Pool::heap(4 * ROUND).expect("some hundred buffers are 2 MB");
        let (rx, nic) = plain_rx(config, &pool, &Block::heap().scope("worker0"));
        Self { rx, nic, pool, burst: Burst::new(), cqes }
    }

    /// Completes a round of frames. Not measured.
    pub fn feed(&mut self) {
        assert!(self.nic.room() >= ROUND as u32, "all that was received was posted again");
        match self.cqes {
            Cqes::Plain => (0..ROUND).for_each(|_| self.nic.frame(FRAME_LEN, |_| ())),
            Cqes::Full => (0..ROUND).for_each(|idx| self.nic.frame(FRAME_LEN, |cqe| tell_all(cqe, idx))),
            Cqes::Compressed => {
                (0..ROUND / BURST_LEN).for_each(|_| self.nic.session(&[FRAME_LEN; BURST_LEN], |cqe| cqe[16] = 0x44));
            }
        }
    }

    /// Measured: one burst, CQE to mbuf with refill.
    #[inline(always)]
    pub fn receive(&mut self) -> usize {
        self.rx.receive(&mut self.burst, BURST_LEN, &self.pool, Instant::ZERO)
    }

    /// Frees the frames of the burst.
    pub fn clear(&mut self) {
        self.burst.drain(..).for_each(Mbuf::free);
    }
}

fn tell_all(cqe: &mut [u8; 64], idx: usize) {
    cqe[12..16].copy_from_slice(&(idx as u32).to_be_bytes());
    cqe[16] = 0x44;
    cqe[29] |= 1;
    cqe[30..32].copy_from_slice(&0x6007_u16.to_be_bytes());
    cqe[48..56].copy_from_slice(&(1_700_000_000_000_000_000 + idx as u64).to_be_bytes());
    cqe[56..60].copy_from_slice(&7_u32.to_be_bytes());
}
