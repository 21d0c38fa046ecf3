//! Pages that a client maps from a uverbs descriptor: registers of a UAR, which it writes, and
//! clocks, which it reads.
//!
//! Each page is mapped twice: once for the client, which may unmap it at any time, and once for the
//! NIC, at a fixed address. So it is a file in memory, which can be mapped any number of times.
//! mremap(2) can do the same for shared pages without a file, but valgrind does not know that.
//!
//! Invariants:
//! 1. A page of ours was mapped shared and writable by us, is never unmapped, and is touched only
//!    within its 4 KiB.
//! 2. Memory that both sides may access at the same time is aligned words, accessed as atomics.
//! 3. A mapping at an address that the client names is made as the client asked for it (MAP_FIXED
//!    is the client's promise).

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use libc::c_int;

use crate::clock::Now;

pub(crate) const PAGE_LEN: usize = 4096;

/// Where and how a client wants a page.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) address: usize,
    pub(crate) protection: c_int,
    pub(crate) flags: c_int,
}

/// A page that a client has mapped or may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Where we have it.
    address: usize,
    /// A descriptor, which stays open as long as the page is used.
    file: c_int,
    /// Where it is in the file.
    offset: u64,
}

impl Page {
    /// A page of zeros, mapped for us only.
    pub(crate) fn new() -> io::Result<Self> {
        let name = c"softhca".as_ptr();
        // SAFETY: a C string.
        let file = check(unsafe { libc::syscall(libc::SYS_memfd_create, name, libc::MFD_CLOEXEC) })? as c_int;
        // SAFETY: a file of our own.
        check(unsafe { libc::syscall(libc::SYS_ftruncate, file, PAGE_LEN) })?;
        Self::within(file, 0)
    }

    /// The page at `offset` of a file in memory.
    pub(crate) fn within(file: c_int, offset: u64) -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let address = map(file, offset, Wish { address: 0, protection, flags })?;
        Ok(Self { address, file, offset })
    }

    /// Our own address.
    pub(crate) fn address(self) -> u64 {
        self.address as u64
    }

    /// Maps it for a client: the client's address.
    pub(crate) fn share(self, wish: Wish) -> io::Result<usize> {
        map(self.file, self.offset, wish)
    }

    /// Shows the time as the free-running counter does: two big-endian words, high and low, that
    /// change together.
    pub(crate) fn show_core_clock(self, now: Now) {
        self.double_word(0).store(now.cycles.to_be(), Ordering::Release);
    }

    /// Shows how cycles become nanoseconds: `struct mlx5_ib_clock_info`, mlx5.md 2.9. A reader that
    /// sees bit 0 of the sign, or another sign afterwards, reads again.
    pub(crate) fn show_clock_info(self, now: Now) {
        let sign = self.word(0);
        let count = sign.load(Ordering::Relaxed);
        sign.store(count | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let shifts = u64::from(SHIFT) << 32 | 1 << SHIFT;
        for (at, value) in [(8, now.unix_ns), (16, now.cycles), (24, 0), (32, shifts), (40, u64::MAX), (48, OVERFLOW)] {
            self.double_word(at).store(value, Ordering::Relaxed);
        }
        sign.store((count | 1).wrapping_add(1), Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: 1, 2.
        unsafe { &*((self.address + at) as *const AtomicU32) }
    }

    fn double_word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: 1, 2.
        unsafe { &*((self.address + at) as *const AtomicU64) }
    }
}

/// A cycle is a nanosecond: `cycles * 2^SHIFT >> SHIFT`. Larger, and a difference of hours would no
/// longer fit into 64 bits.
const SHIFT: u32 = 21;
/// Cycles after which the page must have been updated: half of the range.
const OVERFLOW: u64 = 1 << (63 - SHIFT);

fn map(file: c_int, offset: u64, wish: Wish) -> io::Result<usize> {
    let flags = libc::MAP_SHARED | wish.flags & libc::MAP_FIXED;
    // SAFETY: a new mapping where the kernel likes, or 3.
    check(unsafe { libc::syscall(libc::SYS_mmap, wish.address, PAGE_LEN, wish.protection, flags, file, offset) })
}

fn check(result: libc::c_long) -> io::Result<usize> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(address: u64, at: usize, len: usize) -> Vec<u8> {
        use softhca::hca::Dma;
        let mut bytes = vec![0; len];
        crate::memory::HostMemory::new().read(address + at as u64, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn client_and_nic_see_the_same_page() {
        let page = Page::new().unwrap();
        let wish = Wish { address: 0, protection: libc::PROT_READ, flags: libc::MAP_SHARED };
        let shared = page.share(wish).unwrap() as u64;
        assert_ne!(shared, page.address());
        page.show_core_clock(Now { cycles: 0x0102_0304_0506_0708, unix_ns: 0 });
        assert_eq!(bytes(shared, 0, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn clock_info_is_stable_between_changes() {
        let page = Page::new().unwrap();
        for round in 1..4u32 {
            page.show_clock_info(Now { cycles: 1000, unix_ns: 5000 });
            assert_eq!(bytes(page.address(), 0, 4), (2 * round).to_ne_bytes());
        }
        let field = |at| u64::from_ne_bytes(bytes(page.address(), at, 8).try_into().unwrap());
        assert_eq!((field(8), field(16), field(24)), (5000, 1000, 0));
        let (mult, shift) = (field(32) as u32, (field(32) >> 32) as u32);
        assert_eq!((123_456_789 * u64::from(mult)) >> shift, 123_456_789);
    }
}
