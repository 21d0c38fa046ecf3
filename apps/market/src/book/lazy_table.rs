//! A table that is cleared in one step, however large it is. Each run of entries stores the number
//! of the last clear that it has seen, and a run that has not seen the latest clear counts as
//! empty. The run is filled with empty entries when one of them is next written, so the writes
//! after a clear pay for it, a page at a time.

use super::prefetch::prefetch;

/// Bytes that are cleared together, unless one entry is larger. More cost a longer write, fewer a
/// longer list of numbers; with a page the list of a table of 8 million entries of 16 bytes is 128
/// KiB, which stays in a cache.
const RUN_LEN: usize = 4096;

/// A table whose entries are all empty at first.
#[derive(Clone, Debug)]
pub(super) struct LazyTable<T> {
    entries: Vec<T>,
    /// For each run the last clear that it has seen.
    seen: Vec<u32>,
    emptying: u32,
    empty: T,
}

impl<T: Copy> LazyTable<T> {
    /// Entries that are cleared together: a power of two, by which a division is a shift.
    const RUN: usize = if size_of::<T>() < RUN_LEN { 1 << (RUN_LEN / size_of::<T>()).ilog2() } else { 1 };

    /// `len` entries, each of which is `empty`; allocates all memory.
    pub(super) fn new(len: usize, empty: T) -> Self {
        Self { entries: vec![empty; len], seen: vec![0; len.div_ceil(Self::RUN)], emptying: 0, empty }
    }

    /// Bytes that [`LazyTable::new`] allocates.
    pub(super) const fn memory(len: u128) -> u128 {
        len * size_of::<T>() as u128 + len.div_ceil(Self::RUN as u128) * size_of::<u32>() as u128
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn get(&self, idx: usize) -> &T {
        if self.seen[idx / Self::RUN] == self.emptying { &self.entries[idx] } else { &self.empty }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, idx: usize) -> &mut T {
        if self.seen[idx / Self::RUN] != self.emptying {
            self.renew(idx / Self::RUN);
        }
        &mut self.entries[idx]
    }

    /// Fetches an entry into the cache.
    #[inline]
    pub(super) fn prefetch(&self, idx: usize) {
        prefetch(&self.entries[idx]);
    }

    /// An entry that was written since the last clear; its run is not checked again.
    #[inline]
    pub(super) fn written_mut(&mut self, idx: usize) -> &mut T {
        debug_assert_eq!(self.seen[idx / Self::RUN], self.emptying, "the caller has found the entry in use");
        &mut self.entries[idx]
    }

    /// Clears all entries. Takes one step. After four billion calls it writes all entries once,
    /// because then the numbers repeat.
    pub(super) fn clear(&mut self) {
        self.emptying = self.emptying.wrapping_add(1);
        if self.emptying == 0 {
            self.entries.fill(self.empty);
            self.seen.fill(0);
        }
    }

    #[cold]
    fn renew(&mut self, run: usize) {
        let end = self.entries.len().min((run + 1) * Self::RUN);
        self.entries[run * Self::RUN..end].fill(self.empty);
        self.seen[run] = self.emptying;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn table_agrees_with_one_that_is_filled(
            steps in proptest::collection::vec((0_usize..700, prop::option::weighted(0.95, 1_u64..9)), 1..300),
            before_repeat in any::<bool>(),
        ) {
            let mut table = LazyTable::new(700, 0_u64);
            if before_repeat {
                // Entries that were written four billion clears ago, and not since, are as empty as
                // the rest.
                table.entries.fill(9);
                table.emptying = u32::MAX - 2;
            }
            let mut plain = vec![0_u64; 700];
            for (idx, value) in steps {
                match value {
                    Some(value) => (*table.get_mut(idx), plain[idx]) = (value, value),
                    None => {
                        table.clear();
                        plain.fill(0);
                    }
                }
                prop_assert!((0..700).all(|idx| *table.get(idx) == plain[idx]));
            }
        }
    }
}
