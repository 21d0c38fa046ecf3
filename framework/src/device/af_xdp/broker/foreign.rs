//! The umem of a client, as its broker reaches it: bytes of frames go in and out by copies. The
//! client writes the same memory at any time, so nothing that is read there is trusted, and no
//! reference to it is ever made.
//!
//! `unsafe`, because another process accesses the memory.
//!
//! Invariants:
//! 1. The memory is mapped, and its file sealed against becoming shorter, as long as the region
//!    lives, which this owns.
//! 2. Each range that is copied lies within the region: checked here, before each copy.
//! 3. Bytes are plain data: what a copy reads while the client writes is some bytes, and only the
//!    copy is looked at.

use core::ptr;

use crate::mem::{METADATA_LEN, Region};

/// Bytes before a frame in its chunk, as the kernel leaves them (`XDP_PACKET_HEADROOM`), behind the
/// metadata of the pool.
const FRAME_OFFSET: usize = METADATA_LEN + 256;

/// The umem of another process.
pub(super) struct ForeignUmem {
    region: Region,
    chunk_len: usize,
}

impl ForeignUmem {
    /// Chunks of `chunk_len`, a power of two.
    pub(super) fn new(region: Region, chunk_len: usize) -> Self {
        assert!(chunk_len.is_power_of_two() && chunk_len > FRAME_OFFSET, "the request was checked");
        Self { region, chunk_len }
    }

    /// Bytes of a frame that a chunk holds.
    pub(super) fn room(&self) -> usize {
        self.chunk_len - FRAME_OFFSET
    }

    /// Where a frame is in the chunk with this address, as the fill ring names it; `None` where the
    /// umem has no such chunk.
    #[inline]
    pub(super) fn place_of(&self, chunk: u64) -> Option<u64> {
        let start = chunk & !(self.chunk_len as u64 - 1);
        let end = start.checked_add(self.chunk_len as u64)?;
        (end <= self.region.len() as u64).then_some(start + FRAME_OFFSET as u64)
    }

    /// Whether the umem has these bytes, all in one chunk.
    #[inline]
    pub(super) fn has(&self, addr: u64, len: usize) -> bool {
        let offset = (addr & (self.chunk_len as u64 - 1)) as usize;
        addr < self.region.len() as u64 && offset + len <= self.chunk_len && self.place_of(addr).is_some()
    }

    /// Writes bytes at an address.
    #[inline]
    pub(super) fn write(&self, addr: u64, bytes: &[u8]) {
        assert!(self.has(addr, bytes.len()), "bytes outside the umem");
        // SAFETY: the range is within the region (1, 2), and `bytes` are ours, so they do not
        // overlap.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.region.base().as_ptr().add(addr as usize), bytes.len());
        }
    }

    /// Reads bytes from an address.
    #[inline]
    pub(super) fn read(&self, addr: u64, into: &mut [u8]) {
        assert!(self.has(addr, into.len()), "bytes outside the umem");
        // SAFETY: as for `write` (1, 2, 3).
        unsafe {
            ptr::copy_nonoverlapping(self.region.base().as_ptr().add(addr as usize), into.as_mut_ptr(), into.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_within_one_chunk_and_nowhere_else() {
        let umem = ForeignUmem::new(Region::heap(4 * 2048).unwrap(), 2048);
        for (addr, len) in [(0, 2048), (2047, 1), (3 * 2048 + 384, 1664), (4 * 2048 - 1, 1), (100, 0)] {
            assert!(umem.has(addr, len), "{addr} {len}");
        }
        for (addr, len) in [(0, 2049), (2047, 2), (4 * 2048, 0), (4 * 2048, 1), (u64::MAX, 1), (u64::MAX - 2047, 60)] {
            assert!(!umem.has(addr, len), "{addr} {len}");
        }
    }

    #[test]
    fn place_of_a_frame_is_behind_the_metadata_of_a_chunk_that_is_there() {
        let umem = ForeignUmem::new(Region::heap(2 * 2048).unwrap(), 2048);
        assert_eq!([0, 17, 2048, 4095].map(|chunk| umem.place_of(chunk)), [384, 384, 2432, 2432].map(Some));
        assert_eq!([4096, 1 << 40, u64::MAX].map(|chunk| umem.place_of(chunk)), [None; 3]);
        umem.write(384, b"frame");
        let mut bytes = [0; 5];
        umem.read(384, &mut bytes);
        assert_eq!(&bytes, b"frame");
    }
}
