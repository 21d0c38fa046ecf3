//! Large pages for tables that are read at random: with ordinary ones a lookup among a million
//! connections waits for four page walks beside its loads. The kernel gives them as the table is
//! first touched where transparent hugepages are allowed by advice, as they are by default; where
//! they are not, nothing is lost.
//!
//! Invariants:
//! 1. The advice concerns the pages that lie in the range as a whole, and none that another
//!    allocation has a part of.
//! 2. It changes neither what stands in memory nor what may be done with it.

/// Bytes of a large page of x86-64, and of others with pages of 4 KiB. Smaller tables are left as
/// they are.
const LARGE: usize = 2 << 20;

/// Asks for large pages where `len` bytes from `start` on are to stand. A system call, at the
/// start.
pub(crate) fn advise_large_pages(start: *const u8, len: usize) {
    let skipped = start.align_offset(LARGE);
    let len = len.saturating_sub(skipped) / LARGE * LARGE;
    if len == 0 || cfg!(miri) {
        return;
    }
    // SAFETY: advice for whole pages (1) that only says how the kernel may back them (2). What it
    // answers is of no consequence.
    unsafe { libc::madvise(start.wrapping_add(skipped).cast_mut().cast(), len, libc::MADV_HUGEPAGE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_leaves_memory_as_it_is() {
        let table = vec![7u8; 3 * LARGE + 5];
        advise_large_pages(table.as_ptr(), table.len());
        advise_large_pages(table.as_ptr(), LARGE - 1);
        assert!(table.iter().all(|&byte| byte == 7));
    }
}
