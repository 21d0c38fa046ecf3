//! Prefetches a cache line, as the loop could for the bucket of a flow.
//!
//! Invariants:
//! 1. A prefetch of any address never faults and changes nothing.

/// Prefetches the line of `address`. Does nothing where the CPU is not an x86-64.
#[inline(always)]
pub fn line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an address is all that it takes (1).
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
