//! The memory that a broker and a program both map behind the packet buffers, and the page of a
//! queue's register.
//!
//! ```text
//!  file   packet buffers │ status │ rings and doorbell records, page by page
//! ```
//!
//! Invariants:
//! 1. `base .. base + len` is one mapping, valid for reads and writes until this is dropped; the
//!    file behind it cannot become shorter (it is sealed).
//! 2. The first page holds the status: words of eight bytes, accessed as atomics by both sides. Any
//!    value is one.
//! 3. The pages behind it are handed out to one owner each (`taken`). What is in them is accessed
//!    by their owners alone; nothing here reads it.
//! 4. A register's page is one mapping of one page until it is dropped: of the device, or in its
//!    place of memory that no one else has. Nothing here reads it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use rdma_core_sys::verbs::RingMemory;

/// A word of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// The port: 0 up, 1 down, 2 gone.
    Port,
    /// Frames that found no buffer, in all.
    OutOfBuffer,
    /// How often a ring failed without a CQE.
    RxFaults,
    TxFaults,
    /// How often completions were lost.
    RxLosses,
    TxLosses,
    /// The relation of the NIC's clock to the wall clock (`clock`).
    ClockSequence,
    ClockNs,
    ClockTicks,
    ClockFraction,
    ClockRate,
    ClockMask,
}

/// The memory of rings, in one of the two processes.
pub(super) struct SharedRings {
    base: NonNull<u8>,
    len: usize,
    /// Places and lengths, sorted.
    taken: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: an address range; words are atomics (2), and pages belong to their owners (3).
unsafe impl Send for SharedRings {}
// SAFETY: as above.
unsafe impl Sync for SharedRings {}

impl SharedRings {
    /// Maps `len` bytes of a sealed file, from `at` on.
    pub(super) fn map(file: &File, at: u64, len: usize) -> io::Result<Self> {
        // SAFETY: a borrowed descriptor and no address.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let end = at.checked_add(len as u64);
        let holds = len >= page_len() && end.is_some_and(|end| file.metadata().is_ok_and(|file| file.len() >= end));
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || !holds {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let base = map(file.as_raw_fd(), at.cast_signed(), len, libc::PROT_READ | libc::PROT_WRITE)?;
        // A child of `fork` would keep the memory from the process that lends it.
        // SAFETY: the mapping of above, whole.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        Ok(Self { base, len, taken: Mutex::default() })
    }

    /// A word of the status.
    pub(super) fn status(&self, word: Status) -> &AtomicU64 {
        // SAFETY: in the first page (1, 2), which is aligned.
        unsafe { self.base.cast::<AtomicU64>().add(word as usize).as_ref() }
    }

    /// Where `len` bytes at `place` are in this process; `None` if they are not all inside, or not
    /// behind the status.
    pub(super) fn at(&self, place: u32, len: usize) -> Option<NonNull<u8>> {
        let place = place as usize;
        let is_inside = place >= page_len() && place.checked_add(len).is_some_and(|end| end <= self.len);
        // SAFETY: inside the mapping (1).
        is_inside.then(|| unsafe { self.base.add(place) })
    }

    /// The place of an address of this process, if it is inside.
    pub(super) fn place_of(&self, address: NonNull<u8>) -> Option<u32> {
        let place = address.addr().get().checked_sub(self.base.addr().get()).filter(|place| *place < self.len)?;
        place.try_into().ok()
    }
}

// SAFETY: pages are inside the mapping (1), zeroed, and given to one caller at a time (3).
unsafe impl RingMemory for SharedRings {
    fn allocate(&self, len: usize) -> Option<NonNull<u8>> {
        let len = len.max(1).checked_next_multiple_of(page_len())?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = page_len();
        let mut idx = 0;
        while idx < taken.len() && taken[idx].0 - place < len {
            place = taken[idx].0 + taken[idx].1;
            idx += 1;
        }
        if place.checked_add(len)? > self.len {
            return None;
        }
        taken.insert(idx, (place, len));
        // SAFETY: inside the mapping (1), and nobody's until now (3).
        let start = unsafe { self.base.add(place) };
        // SAFETY: as above, `len` bytes.
        unsafe { start.write_bytes(0, len) };
        Some(start)
    }

    fn free(&self, start: NonNull<u8>) {
        let place = start.addr().get().wrapping_sub(self.base.addr().get());
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).retain(|taken| taken.0 != place);
    }
}

impl Drop for SharedRings {
    fn drop(&mut self) {
        // SAFETY: the mapping of above, whole (1).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The page of a queue's register, in the process that rings it.
pub(super) struct RegisterPage {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range; who writes to the register is the doorbell's matter.
unsafe impl Send for RegisterPage {}
// SAFETY: as above.
unsafe impl Sync for RegisterPage {}

impl RegisterPage {
    /// Maps page `number` of the device's file.
    pub(super) fn map(file: BorrowedFd<'_>, number: u32) -> io::Result<Self> {
        let len = page_len();
        let at = i64::from(number).checked_mul(len as i64).ok_or(io::ErrorKind::InvalidInput)?;
        let base = map(file.as_raw_fd(), at, len, libc::PROT_WRITE)?;
        // A child of `fork` would keep the device's file, and with it the queue.
        // SAFETY: the mapping of above, whole.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        Ok(Self { base, len })
    }

    /// Lets go of the device's file: plain memory takes the place of the page, so that a late
    /// doorbell rings nothing. Where the kernel refuses, the page stays.
    pub(super) fn let_go(&self) {
        let (access, flags) = (libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: over the mapping of above, whole, which nothing reads (4).
        unsafe { libc::mmap(self.base.as_ptr().cast(), self.len, access, flags, -1, 0) };
    }

    /// The register of `len` bytes at `place`, if it is inside.
    pub(super) fn register(&self, place: u32, len: usize) -> Option<NonNull<u8>> {
        let is_inside = (place as usize).checked_add(len).is_some_and(|end| end <= self.len);
        // SAFETY: inside the page (4).
        is_inside.then(|| unsafe { self.base.add(place as usize) })
    }
}

impl Drop for RegisterPage {
    fn drop(&mut self) {
        // SAFETY: the mapping of above, whole (4).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Bytes of a page of this machine: the unit in which memory is mapped and handed out, and what a
/// register's page is.
pub(crate) fn page_len() -> usize {
    // SAFETY: no address is passed.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(len).unwrap_or(4096)
}

fn map(fd: i32, at: i64, len: usize, access: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, at) };
    match NonNull::new(base.cast::<u8>()) {
        Some(start) if base != libc::MAP_FAILED => Ok(start),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Adds to a word that one side writes.
pub(super) fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::device::broker::sys::memory;

    /// Of the machines that tests run on.
    const PAGE_LEN: usize = 4096;

    fn rings(pages: usize) -> (File, SharedRings) {
        let file = memory(pages * PAGE_LEN).unwrap();
        let rings = SharedRings::map(&file, 0, pages * PAGE_LEN).unwrap();
        (file, rings)
    }

    #[test]
    fn pages_are_handed_out_once_and_again_when_they_are_free() {
        let (_file, rings) = rings(4);
        let place = |start: Option<NonNull<u8>>| start.and_then(|start| rings.place_of(start));
        let first = rings.allocate(1);
        let second = rings.allocate(PAGE_LEN + 1);
        assert_eq!((place(first), place(second)), (Some(4096), Some(2 * 4096)));
        assert_eq!(rings.allocate(1), None, "all are taken");
        rings.free(first.unwrap());
        assert_eq!(rings.allocate(PAGE_LEN + 1), None);
        assert_eq!(place(rings.allocate(PAGE_LEN)), Some(4096));
        rings.free(second.unwrap());
        assert_eq!(place(rings.allocate(2 * PAGE_LEN)), Some(2 * 4096));
    }

    #[test]
    fn places_outside_and_those_of_the_status_are_none() {
        let (_file, rings) = rings(2);
        assert!(rings.at(4096, 4096).is_some());
        for (place, len) in [(0, 8), (4095, 1), (4096, 4097), (8192, 1), (u32::MAX, usize::MAX)] {
            assert_eq!(rings.at(place, len), None, "{len} at {place}");
        }
        assert_eq!(rings.place_of(NonNull::dangling()), None);
    }

    #[test]
    fn both_sides_see_the_status_and_the_rings() {
        let (file, ours) = rings(2);
        let theirs = SharedRings::map(&file, 0, 2 * PAGE_LEN).unwrap();
        add(ours.status(Status::TxLosses), 7);
        assert_eq!(theirs.status(Status::TxLosses).load(Ordering::Acquire), 7);
        let start = ours.allocate(64).unwrap();
        assert_ne!(theirs.at(ours.place_of(start).unwrap(), 64).unwrap(), start);
    }

    #[test]
    fn page_that_was_let_go_keeps_no_file_and_takes_a_late_doorbell() {
        let file = memory(page_len()).unwrap();
        let page = RegisterPage::map(file.as_fd(), 0).unwrap();
        let register = page.register(64, 8).unwrap().cast::<AtomicU64>();
        // SAFETY: in the page, and aligned.
        let ring = || unsafe { register.as_ref() }.store(7, Ordering::Relaxed);
        ring();
        let begins = format!("{:x}-", page.base.as_ptr().addr());
        let file_of = || {
            let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
            let line = mappings.lines().find(|line| line.starts_with(&begins));
            line.and_then(|line| line.split_whitespace().nth(5)).map(str::to_owned)
        };
        assert!(file_of().is_some_and(|name| name.contains("wirepath-umem")));
        page.let_go();
        ring();
        assert_eq!(file_of(), None);
    }

    #[test]
    fn file_that_is_too_short_or_may_become_shorter_is_refused() {
        let file = memory(2 * PAGE_LEN).unwrap();
        for (at, len) in [(0, 3 * PAGE_LEN), (PAGE_LEN as u64, 2 * PAGE_LEN), (u64::MAX, PAGE_LEN), (0, 0)] {
            assert!(SharedRings::map(&file, at, len).is_err(), "{len} at {at}");
        }
        let unsealed = tempfile::tempfile().unwrap();
        unsealed.set_len(8192).unwrap();
        assert!(SharedRings::map(&unsealed, 0, 8192).is_err());
    }
}
