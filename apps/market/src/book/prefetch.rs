//! Lines of memory fetched into the cache before they are needed.

/// Fetches the cache line in which `place` begins, without waiting for it. Nothing on processors
/// other than x86-64.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    safe_arch::prefetch_t0(place);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
