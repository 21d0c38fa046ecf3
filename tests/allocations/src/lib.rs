//! Counts allocations. A binary that wants it installs [`Counting`] as its global allocator.
//!
//! Invariants:
//! 1. Every call goes to the system's allocator with its arguments unchanged, so its guarantees
//!    hold here too.
//! 2. A thread's counter is a thread-local without a destructor or lazy start, and the counter of
//!    all threads is a static, so counting never allocates.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

static OF_ALL: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with a counter in front.
pub struct Counting;

// SAFETY: the system's allocator keeps the contract (1), and the counters do not get in its way
// (2).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        BYTES.with(|bytes| bytes.set(bytes.get() + layout.size() as i64));
        OF_ALL.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract about `layout` is passed on (1).
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.with(|bytes| bytes.set(bytes.get() - layout.size() as i64));
        // SAFETY: the caller's contract that `pointer` came from `alloc` with `layout` is passed on
        // (1).
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations of this thread so far: fresh blocks, zeroed ones and grown ones. Zero where
/// [`Counting`] is not installed. Other threads, such as a test's harness, do not affect it.
pub fn count() -> u64 {
    COUNT.get()
}

/// Bytes that this thread has allocated and not freed: those that another thread frees stay in, and
/// those that it frees for another go out.
pub fn bytes() -> i64 {
    BYTES.get()
}

/// Allocations of all other threads so far.
pub fn count_elsewhere() -> u64 {
    OF_ALL.load(Ordering::Relaxed) - count()
}
