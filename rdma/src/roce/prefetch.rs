//! Asks the CPU for the cache lines of a value ahead of their use: with thousands of queue pairs
//! each packet finds another one, of which no line is in a cache.
//!
//! Invariants:
//! 1. A prefetch reads nothing that the program sees, and faults at no address.
//!
//! Safe code has no prefetch.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for some lines of a value, counted from its first byte.
#[inline]
pub(super) fn prefetch<T, const N: usize>(value: &T, lines: [usize; N]) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = core::ptr::from_ref(value).cast::<i8>();
        for line in lines {
            // SAFETY: invariant 1.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, lines, LINE);
}
