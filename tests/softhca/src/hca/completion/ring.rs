//! The memory of a completion queue: consecutive entries, a producer index here, a consumer index
//! in the doorbell record. The input is an entry and its index; the output is bytes in the driver's
//! memory, of which the entry's last byte is written last. It does not know completions.

use super::cqe::{Cqe, OP_OWN};
use crate::hca::{CqRequest, Dma, Unmapped};

/// Where the entries lie, and how far both sides have come.
#[derive(Debug)]
pub(super) struct CqRing {
    base: u64,
    /// A power of two.
    entries: u32,
    entry_len: u64,
    /// The lower half of a 128-byte entry is written as zeros, so that a whole cache line goes out.
    pads: bool,
    /// The consumer's word.
    doorbell: u64,
    /// The index of the next entry, free-running.
    producer: u32,
    /// The consumer's word as it was read last.
    consumer: u32,
}

impl CqRing {
    pub(super) fn new(request: &CqRequest) -> Self {
        Self {
            base: request.ring,
            entries: request.entries,
            entry_len: u64::from(request.entry_len),
            pads: request.pad_128,
            doorbell: request.doorbell,
            producer: 0,
            consumer: 0,
        }
    }

    pub(super) fn producer(&self) -> u32 {
        self.producer
    }

    /// Gives out the next index, or `None` where the driver still has that entry to read.
    #[inline]
    pub(super) fn advance(&mut self, dma: &dyn Dma) -> Result<Option<u32>, Unmapped> {
        if !self.has_room() {
            // Reads it only now, because the driver's cache line is expensive to read, and an old
            // index is never too high.
            self.consumer = dma.load_be32(self.doorbell)?;
        }
        Ok(self.has_room().then(|| self.take_next()))
    }

    /// Takes the next index, even if the driver has not read that entry yet.
    #[inline]
    pub(super) fn take_next(&mut self) -> u32 {
        let index = self.producer;
        self.producer = index.wrapping_add(1);
        index
    }

    /// Modulo twice the size, not 2^24: DPDK keeps 16 bits of its consumer index (mlx5.md 2.9). Any
    /// distance that means neither empty nor partly full counts as full, even where the driver
    /// wrote nonsense.
    #[inline]
    fn has_room(&self) -> bool {
        self.producer.wrapping_sub(self.consumer) & (2 * self.entries - 1) < self.entries
    }

    /// Entries from `index` to the end of the ring, itself included.
    pub(super) fn entries_to_end(&self, index: u32) -> u32 {
        self.entries - self.slot(index)
    }

    /// The owner bit that makes an entry of `index` the driver's.
    #[inline]
    pub(super) fn owner(&self, index: u32) -> bool {
        index & self.entries != 0
    }

    /// Writes an entry, and gives it to the driver with the last byte.
    #[inline]
    pub(super) fn publish(&self, index: u32, cqe: &Cqe, dma: &dyn Dma) -> Result<(), Unmapped> {
        let address = self.address(index);
        if self.pads {
            dma.write(address - 64, &[0; 64])?;
        }
        dma.write(address, &cqe[..OP_OWN])?;
        dma.publish(address + OP_OWN as u64, cqe[OP_OWN])
    }

    /// Writes the 64 bytes of an entry that is not given to the driver on its own: one inside a
    /// compressed session.
    pub(super) fn write_inner(&self, index: u32, bytes: &[u8; 64], dma: &dyn Dma) -> Result<(), Unmapped> {
        dma.write(self.address(index), bytes)
    }

    /// Where the 64 bytes of an entry lie: in a ring of 128 bytes in the upper half (mlx5.md 2.1).
    #[inline]
    fn address(&self, index: u32) -> u64 {
        self.base + u64::from(self.slot(index)) * self.entry_len + (self.entry_len - 64)
    }

    #[inline]
    fn slot(&self, index: u32) -> u32 {
        index & (self.entries - 1)
    }
}
