//! The words of a file that several processes map.
//!
//! Invariants:
//!
//! 1. A `WriteWords` or `ReadWords` owns a mapping of at least `len` words, aligned to a page,
//!    which is not unmapped before its owner is dropped. The words are only ever accessed as
//!    `AtomicU64`, so another process that writes the same words cannot cause undefined behavior,
//!    only a surprising number.
//! 2. A mapping that is read-only is only ever loaded from: no store is reachable through
//!    `ReadWords`, which returns values and no references.
//!
//! If the owner of the file truncates it while it is mapped, an access gets SIGBUS, as with any
//! mapped file; the writer makes the file with its whole length and never truncates it.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::File;
use std::io;

use memmap2::{MmapOptions, MmapRaw};

/// Words that this process writes.
pub(crate) struct WriteWords {
    map: MmapRaw,
    len: usize,
}

/// Words that another process writes.
pub(crate) struct ReadWords {
    map: MmapRaw,
    len: usize,
}

impl WriteWords {
    /// Maps `len` words of a file that has them.
    pub(crate) fn map(file: &File, len: usize) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(len * 8).populate().map_raw(file)?, len })
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: invariant 1: the mapping has `len` words, is aligned to a page, and lives as long
        // as the borrow of `self`.
        unsafe { core::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }
}

impl ReadWords {
    /// Maps `len` words of a file that has them; stores to them are impossible.
    pub(crate) fn map(file: &File, len: usize) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(len * 8).map_raw_read_only(file)?, len })
    }

    /// A word; 0 past the end.
    #[inline(always)]
    pub(crate) fn load(&self, idx: usize, order: Ordering) -> u64 {
        self.words().get(idx).map_or(0, |word| word.load(order))
    }

    /// `N` words from `first` on, each loaded by itself; zeros past the end.
    #[inline(always)]
    pub(crate) fn copy<const N: usize>(&self, first: usize) -> [u64; N] {
        let words: Option<&[AtomicU64; N]> = self.words().get(first..).and_then(|rest| rest.first_chunk());
        words.map_or([0; N], |words| core::array::from_fn(|idx| words[idx].load(Ordering::Relaxed)))
    }

    /// Private, because a store through it would fault: invariant 2.
    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: invariant 1: the mapping has `len` words, is aligned to a page, and lives as long
        // as the borrow of `self`.
        unsafe { core::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }
}
