//! The process's memory as the NIC reaches it.
//!
//! Before a page is accessed, the kernel is asked to make it present, which it refuses where
//! nothing is mapped or where the page may not be written. The answer is remembered until
//! [`forget`](HostMemory::forget).
//!
//! Invariants:
//! 1. Only pages that the kernel has made present for this kind of access, since the last `forget`,
//!    are accessed. We cannot help a client that unmaps registered memory within that time; a real
//!    NIC has the memory pinned.
//! 2. The accessed memory is memory that the client gave to a NIC. So the client expects reads and
//!    writes that the compiler does not know of, and orders its accesses by ownership bits and
//!    barriers.
//! 3. Words that both sides touch at the same time are aligned, and accessed as atomics.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use softhca::hca::{Dma, Unmapped};

const PAGE_SHIFT: u32 = 12;
/// Pages that are remembered, each in the one place that its number names: 16 MiB at a time.
const REMEMBERED: usize = 4096;
/// No page has this number.
const NOTHING: u64 = u64::MAX;

/// Read, or also written. The values are those of madvise(2), Linux 5.14.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read = 22,
    Write = 23,
}

/// All of the process's memory.
pub(crate) struct HostMemory {
    /// Number of a page, doubled, and 1 where it may be written.
    remembered: Box<[Cell<u64>]>,
}

impl HostMemory {
    pub(crate) fn new() -> Self {
        Self { remembered: vec![Cell::new(NOTHING); REMEMBERED].into() }
    }

    /// Pages are tried again from now on: something may have been unmapped.
    pub(crate) fn forget(&self) {
        for page in &self.remembered {
            page.set(NOTHING);
        }
    }

    /// Whether all of the range can be touched.
    #[inline]
    fn reach(&self, address: u64, len: usize, access: Access) -> Result<(), Unmapped> {
        let end = address.checked_add(len as u64).ok_or(Unmapped)?;
        for page in address >> PAGE_SHIFT..=end.saturating_sub(1).max(address) >> PAGE_SHIFT {
            let known = &self.remembered[page as usize % REMEMBERED];
            let writable = page << 1 | 1;
            if known.get() != writable && (access == Access::Write || known.get() != page << 1) {
                known.set(NOTHING);
                try_page(page, access)?;
                known.set(page << 1 | u64::from(access == Access::Write));
            }
        }
        Ok(())
    }

    fn reach_word(&self, address: u64, len: usize, access: Access) -> Result<(), Unmapped> {
        if !address.is_multiple_of(len as u64) {
            return Err(Unmapped);
        }
        self.reach(address, len, access)
    }
}

#[cold]
fn try_page(page: u64, access: Access) -> Result<(), Unmapped> {
    // SAFETY: this advice does not change contents, and an unmapped address is an error.
    let result = unsafe { libc::syscall(libc::SYS_madvise, page << PAGE_SHIFT, 1usize << PAGE_SHIFT, access as i32) };
    if result == 0 { Ok(()) } else { Err(Unmapped) }
}

impl Dma for HostMemory {
    #[inline]
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        self.reach(address, into.len(), Access::Read)?;
        // SAFETY: 1, 2; the destination is ours.
        unsafe { std::ptr::copy(address as *const u8, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    #[inline]
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        self.reach(address, from.len(), Access::Write)?;
        // SAFETY: 1, 2.
        unsafe { std::ptr::copy(from.as_ptr(), address as *mut u8, from.len()) };
        Ok(())
    }

    #[inline]
    fn load_be32(&self, address: u64) -> Result<u32, Unmapped> {
        self.reach_word(address, 4, Access::Read)?;
        // SAFETY: 1, 2, 3.
        let word = unsafe { &*(address as *const AtomicU32) }.load(Ordering::Acquire);
        Ok(u32::from_be(word))
    }

    #[inline]
    fn store_be32(&self, address: u64, value: u32) -> Result<(), Unmapped> {
        self.reach_word(address, 4, Access::Write)?;
        // SAFETY: 1, 2, 3.
        unsafe { &*(address as *const AtomicU32) }.store(value.to_be(), Ordering::Release);
        Ok(())
    }

    fn swap_be32(&self, address: u64, value: u32) -> Result<u32, Unmapped> {
        self.reach_word(address, 4, Access::Write)?;
        // SAFETY: 1, 2, 3.
        let word = unsafe { &*(address as *const AtomicU32) }.swap(value.to_be(), Ordering::AcqRel);
        Ok(u32::from_be(word))
    }

    #[inline]
    fn publish(&self, address: u64, value: u8) -> Result<(), Unmapped> {
        self.reach(address, 1, Access::Write)?;
        // SAFETY: 1, 2, 3: a byte is always aligned.
        unsafe { &*(address as *const AtomicU8) }.store(value, Ordering::Release);
        Ok(())
    }

    fn swap_be64(&self, address: u64, value: u64) -> Result<u64, Unmapped> {
        self.reach_word(address, 8, Access::Write)?;
        // SAFETY: 1, 2, 3.
        let word = unsafe { &*(address as *const AtomicU64) }.swap(value.to_be(), Ordering::AcqRel);
        Ok(u64::from_be(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_is_mapped_nothing_is_touched() {
        let memory = HostMemory::new();
        for address in [0, 8, 4096, 1 << 46, u64::MAX - 7, u64::MAX - 4096] {
            assert_eq!(memory.read(address, &mut [0; 16]), Err(Unmapped), "{address:#x}");
            assert_eq!(memory.write(address, &[0; 16]), Err(Unmapped), "{address:#x}");
            assert_eq!(memory.load_be32(address & !3), Err(Unmapped), "{address:#x}");
        }
    }

    #[test]
    fn read_only_memory_is_read_and_not_written() {
        let memory = HostMemory::new();
        // A literal is in a part of the program that cannot be written.
        let text = "a literal that is long enough";
        let mut read = [0; 9];
        assert_eq!(memory.read(text.as_ptr() as u64, &mut read), Ok(()));
        assert_eq!(&read, b"a literal");
        assert_eq!(memory.write(text.as_ptr() as u64, b"x"), Err(Unmapped));
    }

    #[test]
    fn words_are_big_endian_and_aligned() {
        let memory = HostMemory::new();
        let words = [0u64; 2];
        let address = words.as_ptr() as u64;
        assert_eq!(memory.store_be32(address, 0x0102_0304), Ok(()));
        assert_eq!(memory.load_be32(address), Ok(0x0102_0304));
        assert_eq!(memory.swap_be64(address, 7), Ok(0x0102_0304_0000_0000));
        assert_eq!(memory.swap_be32(address + 4, 8), Ok(7));
        assert_eq!(memory.load_be32(address + 1), Err(Unmapped));
        assert_eq!(memory.swap_be64(address + 4, 0), Err(Unmapped));
        let mut bytes = [0; 16];
        assert_eq!(memory.publish(address + 15, 9), Ok(()));
        assert_eq!(memory.read(address, &mut bytes), Ok(()));
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9]);
    }
}
