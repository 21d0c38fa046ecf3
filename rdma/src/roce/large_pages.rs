//! Large pages for tables that are read at random: each page of 4 KiB has five queue pairs, and
//! with thousands of them each packet would wait for the walk to its page too. The kernel maps
//! large pages at the first touch if transparent hugepages are set to `madvise` (its default) or
//! `always`; otherwise a table works as before.
//!
//! Invariants:
//! 1. The advice covers only pages that are entirely inside of the table's memory, so none that
//!    another allocation shares.
//! 2. The advice changes neither the content of memory nor its access rights.
//!
//! Safe code has no such advice.

/// Bytes of a large page on x86-64 and on other machines with 4 KiB pages. Smaller tables get no
/// advice.
const LARGE: usize = 2 << 20;

/// Advises large pages for the room of a table, before anything is in it. A system call, at start.
pub(super) fn advise_large_pages<T>(table: &Vec<T>) {
    let start = table.as_ptr().cast::<u8>();
    let skipped = start.align_offset(LARGE);
    let len = (table.capacity() * size_of::<T>()).saturating_sub(skipped) / LARGE * LARGE;
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
    fn advice_leaves_a_table_as_it_is() {
        let mut table = vec![7_u8; 3 * LARGE + 5];
        table.shrink_to_fit();
        advise_large_pages(&table);
        advise_large_pages(&Vec::<u8>::new());
        assert!(table.iter().all(|byte| *byte == 7));
    }
}
