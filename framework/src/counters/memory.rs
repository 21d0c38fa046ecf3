//! The words themselves: a shared file mapping or heap memory, and the handles that keep it alive.
//!
//! This file is independent of names, kinds and formats. Above it everything is safe code over
//! `&[AtomicU64]`.
//!
//! Invariants:
//!
//! 1. A `Memory` owns `len > 0` zero-initialized words from `base` on, aligned to 128 bytes, at an
//!    address that never changes, until it is dropped. They are only ever accessed as `AtomicU64`,
//!    so another process or thread that reads or writes the same words cannot cause undefined
//!    behavior, only a surprising number.
//! 2. Every `Memory` is listed in `LIVE` with a count of the `WordsHandle` handles into it. It is
//!    removed from there and dropped only when that count returns to zero. A `WordsHandle` is
//!    counted from before it exists until after its last use.
//! 3. The pointer of a `WordsHandle` was made from the `base` of its `Memory` and covers at least
//!    one word and only words inside it.
//! 4. A mapped file has its whole length, and we made it: created with `create_new`, writable only
//!    by root and its owner. It has the blocks (`posix_fallocate`) of all words that are stored to:
//!    from the start, or, of words that only a listener has us write, since the listener came. So a
//!    store never hits a hole on a full file system. (If the owner truncates a live file, his own
//!    process gets SIGBUS, as with any mapped file.)
//!
//! Safe code would need an `Arc` beside each pointer: a counter of 16 bytes instead of 8.

use core::ops::{Deref, Range};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::files;

/// Two cache lines: the adjacent-line prefetcher of x86 moves pairs, so two writers must not share
/// a pair.
const ALIGN: usize = 128;

/// A handle on words of a `Memory` that keeps the memory alive: 8 bytes for a word or an array, 16
/// for a slice.
///
/// Neither `Clone` nor `Sync`, so that its owner is the only writer of the words through this
/// process's types. Making and dropping a handle takes a lock and belongs to set-up; access through
/// it costs nothing extra.
pub(crate) struct WordsHandle<T: ?Sized>(NonNull<T>);

// SAFETY: invariant 1: the words are atomics, which any thread may use; invariant 2 is kept under a
// lock.
unsafe impl<T: ?Sized> Send for WordsHandle<T> {}

impl WordsHandle<[AtomicU64]> {
    /// `len` fresh zeroed words of this process's own memory.
    pub(crate) fn heap(len: usize) -> Self {
        Self::first(Memory::heap(len))
    }

    /// `len` fresh words backed by `file`, which is new and empty: it is sized, mapped shared and
    /// faulted in.
    pub(crate) fn mapped(file: &File, len: usize) -> io::Result<Self> {
        Ok(Self::first(Memory::mapped(file, len, len)?))
    }

    /// The same, but only the first `allocated` words have memory. The others are not to be stored
    /// to before another process has given the file their blocks ([`allocate`](files::allocate)).
    pub(crate) fn mapped_in_part(file: &File, len: usize, allocated: usize) -> io::Result<Self> {
        Ok(Self::first(Memory::mapped(file, len, allocated)?))
    }

    /// A separate handle on some of these words.
    pub(crate) fn slice(&self, words: Range<usize>) -> WordsHandle<[AtomicU64]> {
        WordsHandle::hold(&self[words])
    }

    /// A separate handle on `N` words from `first` on.
    pub(super) fn array<const N: usize>(&self, first: usize) -> WordsHandle<[AtomicU64; N]> {
        let words: Option<&[AtomicU64; N]> = self[first..].first_chunk();
        WordsHandle::hold(words.expect("the directory hands out words inside the memory only"))
    }

    /// A separate handle on one word.
    pub(crate) fn word(&self, idx: usize) -> WordsHandle<AtomicU64> {
        WordsHandle::hold(&self[idx])
    }

    fn first(memory: Memory) -> Self {
        let words = NonNull::slice_from_raw_parts(memory.base, memory.len);
        live().insert(address(words), Live { memory, holds: 1 });
        Self(words)
    }
}

impl<T: ?Sized> WordsHandle<T> {
    /// Counts one more handle on the memory of `part`. The caller borrows `part` from a
    /// `WordsHandle`.
    fn hold(part: &T) -> Self {
        let part = NonNull::from_ref(part);
        let mut live = live();
        let memory = live.range_mut(..=address(part)).next_back();
        memory.expect("words that are held lie in a memory of the table").1.holds += 1;
        Self(part)
    }
}

impl<T: ?Sized> Deref for WordsHandle<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: invariants 2 and 3: the memory is alive while this handle is counted, and the
        // pointer lies in it; invariant 1: `T` is one or several `AtomicU64`, so shared access is
        // always sufficient.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> Drop for WordsHandle<T> {
    fn drop(&mut self) {
        let mut gone = None;
        let mut live = live();
        if let Some((&base, entry)) = live.range_mut(..=address(self.0)).next_back() {
            entry.holds -= 1;
            if entry.holds == 0 {
                gone = live.remove(&base);
            }
        }
        // Unmapping is a system call: not while the lock is held.
        drop(live);
        drop(gone.map(|entry| entry.memory));
    }
}

/// The memories that have handles, by address.
static LIVE: Mutex<BTreeMap<usize, Live>> = Mutex::new(BTreeMap::new());

struct Live {
    memory: Memory,
    holds: usize,
}

fn live() -> MutexGuard<'static, BTreeMap<usize, Live>> {
    // Nothing panics between two changes of the table, so a poisoned lock still guards a consistent
    // one.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address<T: ?Sized>(pointer: NonNull<T>) -> usize {
    pointer.cast::<u8>().addr().get()
}

struct Memory {
    base: NonNull<AtomicU64>,
    len: usize,
    origin: Origin,
}

enum Origin {
    Heap,
    Mapped,
}

// SAFETY: invariant 1: a `Memory` is the only owner of its words, and freeing them works from any
// thread.
unsafe impl Send for Memory {}

impl Memory {
    fn heap(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has a size above zero (asserted there). Zeroed bytes are valid
        // `AtomicU64`s: invariant 1.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base.cast()) else { handle_alloc_error(layout) };
        Self { base, len, origin: Origin::Heap }
    }

    fn mapped(file: &File, len: usize, allocated: usize) -> io::Result<Self> {
        let bytes = Self::layout(len).size();
        files::allocate(file, Self::layout(allocated).size() as u64)?;
        file.set_len(bytes as u64)?;
        // Populated now, so that the first count of a worker does not fault; a part cannot be,
        // because the rest would be allocated as well.
        let populate = if allocated == len { libc::MAP_POPULATE } else { 0 };
        let flags = libc::MAP_SHARED | populate;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists;
        // the file has all the bytes that are mapped: invariant 4. A new file reads as zeros:
        // invariant 1.
        let base = unsafe {
            libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast()) else { return Err(io::Error::other("mapped at address zero")) };
        Ok(Self { base, len, origin: Origin::Mapped })
    }

    fn layout(len: usize) -> Layout {
        assert!(len > 0, "a memory has at least one word");
        let words = Layout::array::<AtomicU64>(len).and_then(|layout| layout.align_to(ALIGN));
        words.expect("the words of a counter block fit the address space")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let layout = Self::layout(self.len);
        match self.origin {
            // SAFETY: invariant 2: no handle is left; allocated in `heap` with this same layout.
            Origin::Heap => unsafe { dealloc(self.base.as_ptr().cast(), layout) },
            Origin::Mapped => {
                // SAFETY: invariant 2: no handle is left, and `mapped` made the mapping with this
                // length. The call cannot fail for an existing mapping, and a failure would only
                // leak.
                unsafe { libc::munmap(self.base.as_ptr().cast(), layout.size()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn part_outlives_the_whole() {
        let whole = WordsHandle::heap(64);
        let word = whole.word(63);
        let array = whole.array::<4>(8);
        word.store(7, Relaxed);
        drop(whole);
        assert_eq!(word.load(Relaxed), 7);
        assert_eq!(array[3].load(Relaxed), 0);
    }

    #[test]
    fn memory_goes_with_its_last_handle() {
        let whole = WordsHandle::heap(16);
        let base = address(whole.0);
        let word = whole.word(15);
        drop(whole);
        assert!(live().contains_key(&base));
        // Read under the lock after the drop: another test may get the same address right after.
        drop(word);
        let again = live().get(&base).map(|entry| entry.memory.len);
        assert_ne!(again, Some(16));
    }

    #[test]
    #[should_panic(expected = "inside the memory")]
    fn array_past_the_end_is_refused() {
        WordsHandle::heap(8).array::<4>(5);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn mapped_words_are_the_bytes_of_the_file() {
        let file = tempfile::tempfile().unwrap();
        let words = WordsHandle::mapped(&file, 512).unwrap();
        words[1].store(u64::from_ne_bytes(*b"wirepath"), Relaxed);
        let mut bytes = [0; 16];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0\0\0\0\0\0\0\0wirepath");
        assert_eq!(address(words.0) % ALIGN, 0);
    }
}
