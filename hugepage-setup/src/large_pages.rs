//! Large pages for tables that are read at random, which are too small or too many for hugepages of
//! their own: with 4 KiB pages a lookup among a million connections waits for four page walks in
//! addition to its loads. The kernel maps large pages at
//! the first touch if transparent hugepages are set to `madvise` (its default) or `always`;
//! otherwise the table works as before.
//!
//! Invariants:
//! 1. The advice covers only pages that are entirely inside the range, so none that another
//!    allocation shares.
//! 2. The advice changes neither the content of memory nor its access rights.

/// Bytes of a large page on x86-64 and on other machines with 4 KiB pages. Smaller tables get no
/// advice.
const LARGE: usize = 2 << 20;

/// Advises large pages for `len` bytes from `start` on: the room of a table, best before anything
/// is in it. A system call, at start.
pub fn advise_large_pages(start: *const u8, len: usize) {
    let skipped = start.align_offset(LARGE);
    let len = len.saturating_sub(skipped) / LARGE * LARGE;
    if len == 0 || cfg!(miri) {
        return;
    }
    // SAFETY: advice for whole pages (1) that changes only how the kernel backs them (2). A failure
    // has no consequence.
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
