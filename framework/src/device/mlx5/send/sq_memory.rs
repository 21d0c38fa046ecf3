//! The memory of a send ring, in units of 16 bytes: WQEs are written into it, and read back for
//! BlueFlame. Positions run freely and wrap with the ring, so that a WQE may cross its end.
//!
//! This is `unsafe` because the NIC reads the same memory. Unlike the rings that the NIC writes
//! ([`ring`](crate::device::mlx5::ring)), it only reads this ring, and only WQEs that it was
//! notified of. So the rest of the ring is ordinary memory, and is written by ordinary stores.
//!
//! Invariants:
//! 1. The parts of a queue are correct
//!    ([`MemoryOwner`](crate::device::mlx5::setup::parts::MemoryOwner)): the ring is as long as
//!    they state, aligned to 16 bytes, and lives as long as the owner. It is initialized: libmlx5
//!    makes it of fresh pages.
//! 2. The number of units is a power of two, and a position is masked before it is used, so it is
//!    always inside the ring.
//! 3. A unit has one owner on our side: a ring is not `Clone`, and writing takes `&mut self`.
//! 4. The barrier that makes written WQEs visible to the NIC precedes the write of the doorbell
//!    record ([`DoorbellRecord`](crate::device::mlx5::ring::DoorbellRecord)).

use core::ptr::NonNull;
use core::slice;

use super::wqe::{BLOCK_UNITS, UNIT_LEN, Unit};
use crate::device::mlx5::ring::MemoryOwner;
use crate::device::mlx5::setup::parts::SqParts;

/// The units of a send ring.
pub(crate) struct SqMemory {
    first: NonNull<Unit>,
    mask: u32,
    #[expect(dead_code, reason = "it keeps the memory")]
    memory_owner: MemoryOwner,
}

impl SqMemory {
    /// The ring in `parts`. Panics if its length is no power of two or its memory is not aligned.
    pub(crate) fn new(parts: &SqParts) -> Self {
        let count = parts.wqebb_count.checked_mul(BLOCK_UNITS).unwrap_or(0);
        assert!(count.is_power_of_two(), "a sending ring of {} blocks", parts.wqebb_count);
        assert!(parts.ring.addr().get().is_multiple_of(UNIT_LEN), "units are aligned");
        Self { first: parts.ring.cast(), mask: count - 1, memory_owner: parts.memory_owner.clone() }
    }

    /// Writes the unit at `position`.
    #[inline(always)]
    pub(crate) fn write(&mut self, position: u32, unit: Unit) {
        // SAFETY: inside the ring (2), whose memory lives (1) and whose only writer is this value
        // (3).
        unsafe { self.at(position).write(unit) }
    }

    /// The unit at `position`.
    #[inline(always)]
    pub(crate) fn read(&self, position: u32) -> Unit {
        // SAFETY: inside the ring (2), alive and initialized (1), written by us only (3).
        unsafe { self.at(position).read() }
    }

    /// Units from `position` to the end of the ring's memory.
    #[inline(always)]
    pub(crate) fn until_end(&self, position: u32) -> u32 {
        self.mask + 1 - (position & self.mask)
    }

    /// The `count` units from `position` on, for writing. Panics if they cross the end of the
    /// ring's memory. The NIC must not own them.
    #[inline(always)]
    pub(crate) fn run(&mut self, position: u32, count: u32) -> &mut [Unit] {
        assert!(count <= self.until_end(position), "a run over the end of the ring");
        // SAFETY: inside the ring (2, and as was just checked), initialized and alive (1), borrowed
        // with the ring (3).
        unsafe { slice::from_raw_parts_mut(self.at(position).as_ptr(), count as usize) }
    }

    /// The `count` units from `position` on, for reading: up to the end of the ring's memory, and
    /// from its beginning.
    #[inline(always)]
    pub(crate) fn runs(&self, position: u32, count: u32) -> (&[Unit], &[Unit]) {
        let head = count.min(self.until_end(position));
        let tail = (count - head).min(self.mask + 1);
        // SAFETY: both slices are inside the ring (2): the first ends with the ring, and the second
        // is not longer. Alive and initialized (1), and not written while the ring is borrowed (3).
        unsafe {
            let head = slice::from_raw_parts(self.at(position).as_ptr(), head as usize);
            (head, slice::from_raw_parts(self.first.as_ptr(), tail as usize))
        }
    }

    #[inline(always)]
    fn at(&self, position: u32) -> NonNull<Unit> {
        // SAFETY: a masked position is inside the ring (1, 2).
        unsafe { self.first.add((position & self.mask) as usize) }
    }
}
