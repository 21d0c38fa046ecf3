//! Counts the allocations of the calling thread. A binary that wants it installs it as its global
//! allocator.
//!
//! Invariants:
//! 1. Every call goes to the system's allocator with its arguments unchanged, so what holds for
//!    that one holds here.
//! 2. The counter is a thread-local without a destructor or lazy start, so counting never
//!    allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator with a counter in front.
pub struct Counting;

// SAFETY: the system's allocator keeps the contract (1), and the counter does not get in its way
// (2).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract about `layout` is passed on (1).
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract that `pointer` came from `alloc` with `layout` is passed on
        // (1).
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations of this thread so far: fresh blocks, zeroed ones and grown ones. Zero where
/// [`Counting`] is not installed.
pub fn count() -> u64 {
    COUNT.get()
}
