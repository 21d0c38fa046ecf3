//! Asks the CPU for the cache lines of a value ahead of their use: with thousands of queue pairs
//! each packet finds another one, of which no line is in a cache.
//!
//! Invariants:
//! 1. A prefetch reads nothing that the program sees, and faults at no address.
//!
//! Safe code has no prefetch.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for all lines of a value.
#[inline]
pub(super) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = core::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of::<T>()).step_by(LINE) {
            // SAFETY: invariant 1.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, LINE);
}
