//! Memory that others write without asking: the bytes of memory regions.
//!
//! Invariants:
//!
//! 1. The range of a [`Region`] is valid for reads and writes, and initialized, until the region
//!    is dropped: an [`Allocation`] lives as long, which is allocated or a mapping of a file, or
//!    the caller of [`Region::from_raw`] promises it.
//! 2. Nobody makes a reference to plain bytes of the range. All access is by atomic operations:
//!    of aligned words of eight bytes, and of single bytes at the ends. So threads that read and
//!    write the same word, or the same byte, at once cause no undefined behavior, only a surprising
//!    value.
//! 3. A [`Place`] is within its region, and borrows it.
//! 4. Long ranges are copied by vector instructions in assembly, which the compiler knows nothing
//!    of. On all processors of x86-64 that we know, each takes aligned words of eight bytes as a
//!    whole, and they appear in the order of the program: as good as relaxed atomic accesses. The
//!    last word of a write, which says that all is there, is an atomic access all the same.
//! 5. The memory of a packet pool ([`Region::of_pool`]) belongs to the owners of its mbufs, who
//!    make references to it. Of such a region requests name the bytes of mbufs that they own
//!    ([`Owned`]) alone, from their posts to their completions: those of a message, which nobody
//!    writes in that time, or those that a message is received into, which nobody else reads
//!    either. No peer has a right to it. Whoever posts checks that no other piece names it
//!    ([`PoolRegions`](super::owned::PoolRegions)): before the pool was registered a request could
//!    only guess its key.
//! 6. An [`Owned`] stands for an owner that belongs to the thread on which it was made. Only there
//!    is it released or taken back, once; elsewhere it is leaked.
//!
//! What does not hold by the rules of the language: where one thread reaches a byte of a word alone
//! while another reaches the whole word, and one of them writes, the accesses have two sizes, and
//! Rust defines nothing for them ([`core::sync::atomic`], "Memory model for atomic accesses").
//! The processors that wirepath runs on do: each access is one plain load or store there, and the
//! word is a mix of both values. Who wants to be on the safe side has messages begin and end at
//! multiples of eight.
//!
//! Safe code has no memory that two may write at once and that is not made of atomics from the
//! start.

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

const WORD: usize = size_of::<u64>();

/// Owned memory to register: zeroed, or of a file; aligned to 64 bytes. A clone is the same memory.
///
/// Reads and writes go by words, so that they may happen at any time, also while a peer writes. A
/// value of eight bytes at a multiple of eight that is written and read as a whole is never torn.
///
/// In which order the bytes of a peer appear is promised to one reader alone: who finds the last
/// aligned word of a packet by [`load_u64`](Self::load_u64) finds all bytes before it, of that
/// packet and of those before. Who reads by [`read`](Self::read) while a peer writes may find any
/// mix of old and new words; a completion, or such a word, says first that all is there.
#[derive(Clone)]
pub struct Buffer(Arc<Allocation>);

struct Allocation {
    start: NonNull<u8>,
    len: usize,
    source: Source,
}

/// Where memory is from, and so goes to.
enum Source {
    Heap(Layout),
    /// Unmapped when it is dropped.
    File {
        _map: MmapRaw,
    },
}

/// A range of memory to be registered.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    is_pool: bool,
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// What a request owns until it is complete: an mbuf, given up as a pointer.
#[derive(Debug)]
#[cfg_attr(not(feature = "port"), allow(unreachable_pub))] // only the framework has mbufs
pub struct Owned {
    raw: NonNull<u8>,
    release: unsafe fn(NonNull<u8>),
    thread: u64,
}

/// Some bytes of a region.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    start: NonNull<u8>,
    len: usize,
    region: PhantomData<&'a Region>,
}

impl Buffer {
    /// Alignment of the first byte: a cache line.
    pub const ALIGN: usize = 64;

    /// `len` bytes of zero; at least one.
    ///
    /// # Panics
    /// If `len` is more than an address space has.
    pub fn zeroed(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), Self::ALIGN).expect("a buffer larger than the address space");
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self(Arc::new(Allocation { start, len: layout.size(), source: Source::Heap(layout) }))
    }

    /// The first `len` bytes of a file, which other processes may map too. Where one of them
    /// shortens the file, an access beyond its end ends the process (SIGBUS).
    ///
    /// # Errors
    /// The kernel refuses, or the file is shorter, or `len` is 0.
    pub fn map(file: &File, len: usize) -> io::Result<Self> {
        if len == 0 || file.metadata()?.len() < len as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file shorter than the memory"));
        }
        let map = MmapOptions::new().len(len).map_raw(file)?;
        let start = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(Arc::new(Allocation { start, len, source: Source::File { _map: map } })))
    }

    /// Bytes of the buffer.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The address of the first byte, which requests name.
    pub fn address(&self) -> u64 {
        self.0.start.as_ptr() as u64
    }

    /// The bytes from `at` on.
    ///
    /// # Panics
    /// If they are not all in the buffer.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        self.place(at, bytes.len()).read(bytes);
    }

    /// Writes the bytes from `at` on.
    ///
    /// # Panics
    /// If they are not all in the buffer.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.place(at, bytes.len()).write(bytes);
    }

    /// The word at `at`. All that its writer wrote before it is visible then (acquire).
    ///
    /// # Panics
    /// If it is not in the buffer, or `at` is no multiple of eight.
    pub fn load_u64(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Writes a word behind all that was written before (release).
    ///
    /// # Panics
    /// If it is not in the buffer, or `at` is no multiple of eight.
    pub fn store_u64(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.place(at, WORD).word().expect("a word that is not aligned to eight bytes")
    }

    fn place(&self, at: usize, len: usize) -> Place<'_> {
        place(self.0.start, self.len(), at, len).expect("bytes outside of the buffer")
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Source::Heap(layout) = self.source {
            // SAFETY: `zeroed` allocated it with this layout, and this is the last owner.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

// SAFETY: invariants 1 and 2: the memory belongs to no thread, and all access is atomic.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}
// SAFETY: as above; the promise of `from_raw` names other threads.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl From<&Buffer> for Region {
    fn from(buffer: &Buffer) -> Self {
        Self { start: buffer.0.start, len: buffer.len(), is_pool: false, _owner: Some(buffer.0.clone()) }
    }
}

impl Region {
    /// `len` bytes from `start` on: a pool, a mapped file, shared memory.
    ///
    /// # Safety
    /// The bytes are initialized, and valid for reads and writes by any thread, until the region
    /// is dropped. Until then nobody has a reference to bytes that a request or a peer may write,
    /// nor a shared one to bytes while they are written.
    pub const unsafe fn from_raw(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, is_pool: false, _owner: None }
    }

    /// The memory of a packet pool, which `owner` keeps.
    ///
    /// # Safety
    /// The bytes are initialized, and valid for reads and writes by any thread, until `owner` is
    /// dropped.
    #[cfg_attr(not(feature = "port"), allow(dead_code))] // only the framework has pools
    pub(crate) unsafe fn of_pool(start: NonNull<u8>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { start, len, is_pool: true, _owner: Some(owner) }
    }

    /// True for the memory of a packet pool.
    pub(crate) const fn is_pool(&self) -> bool {
        self.is_pool
    }

    /// The first byte.
    #[cfg(feature = "rdma-core")]
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes of the region.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if it has no byte.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// `len` bytes from `at` on; `None` if they are not all in the region.
    #[inline]
    pub(super) fn place(&self, at: usize, len: usize) -> Option<Place<'_>> {
        place(self.start, self.len, at, len)
    }
}

thread_local! {
    /// The number of this thread; no other ever has it.
    static THREAD: u64 = {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

// SAFETY: another thread can only drop it, which does nothing there (invariant 6).
unsafe impl Send for Owned {}
// SAFETY: nothing is reached by a shared reference.
unsafe impl Sync for Owned {}

impl Owned {
    /// Takes an owner that was made into a pointer.
    ///
    /// # Safety
    /// `raw` stands for an owner of this thread, and nobody else makes it into one again. `release`
    /// is for pointers of this kind, and may be called once on this thread.
    #[cfg_attr(not(feature = "port"), allow(dead_code))] // only the framework has mbufs
    pub(crate) unsafe fn new(raw: NonNull<u8>, release: unsafe fn(NonNull<u8>)) -> Self {
        Self { raw, release, thread: THREAD.with(|number| *number) }
    }

    /// The pointer, to be made into the owner again; `None` on another thread than its own, where
    /// the owner is leaked.
    #[cfg_attr(not(feature = "port"), allow(dead_code))] // only the framework has mbufs
    pub(crate) fn into_raw(self) -> Option<NonNull<u8>> {
        let raw = self.is_here().then_some(self.raw);
        core::mem::forget(self);
        raw
    }

    fn is_here(&self) -> bool {
        THREAD.with(|number| *number == self.thread)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: invariant 6: its thread, and it was not taken back.
            unsafe { (self.release)(self.raw) }
        }
    }
}

/// `len` bytes from `at` on of a range that lives for `'a`.
#[inline]
fn place<'a>(start: NonNull<u8>, whole: usize, at: usize, len: usize) -> Option<Place<'a>> {
    if at.checked_add(len)? > whole {
        return None;
    }
    // SAFETY: `at` is within the range, by the line above (invariant 1).
    let start = unsafe { start.add(at) };
    Some(Place { start, len, region: PhantomData })
}

impl<'a> Place<'a> {
    /// Writes as many bytes as both have.
    #[inline]
    pub(super) fn write(self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.len)];
        let (head, rest) = bytes.split_at(self.until_word().min(bytes.len()));
        let (words, tail) = rest.as_chunks::<WORD>();
        self.write_bytes(0, head);
        if let [words @ .., last] = words {
            let at = head.len();
            // SAFETY: invariants 2 and 3: aligned behind the head, and within the place.
            let store = |idx, word: &[u8; WORD], order| unsafe {
                self.word_at(at + idx * WORD).store(u64::from_ne_bytes(*word), order);
            };
            let from = words.as_ptr().cast();
            // SAFETY: as above.
            let done = unsafe { copy_pairs(from, self.start.as_ptr().add(at), words.len()) };
            for (idx, word) in words.iter().enumerate().skip(done) {
                store(idx, word, Ordering::Relaxed);
            }
            store(words.len(), last, Ordering::Release);
        }
        self.write_bytes(bytes.len() - tail.len(), tail);
    }

    /// Reads as many bytes as both have.
    #[inline]
    pub(super) fn read(self, bytes: &mut [u8]) {
        let len = bytes.len().min(self.len);
        let (head, rest) = bytes[..len].split_at_mut(self.until_word().min(len));
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        let (at, tail_at) = (head.len(), len - tail.len());
        self.read_bytes(0, head);
        let to = words.as_mut_ptr().cast();
        // SAFETY: invariants 2 and 3: aligned behind the head, and within the place.
        let done = unsafe { copy_pairs(self.start.as_ptr().add(at), to, words.len()) };
        for (idx, word) in words.iter_mut().enumerate().skip(done) {
            // SAFETY: as above.
            let shared = unsafe { self.word_at(at + idx * WORD) };
            *word = shared.load(Ordering::Relaxed).to_ne_bytes();
        }
        self.read_bytes(tail_at, tail);
    }

    /// The eight bytes as one word; `None` if there are fewer, or they are not aligned.
    #[inline]
    pub(super) fn word(self) -> Option<&'a AtomicU64> {
        if self.len < WORD || !self.start.addr().get().is_multiple_of(WORD) {
            return None;
        }
        // SAFETY: invariants 2 and 3, and the lines above.
        Some(unsafe { self.word_at(0) })
    }

    /// Bytes before the first aligned word.
    #[inline]
    fn until_word(self) -> usize {
        self.start.addr().get().wrapping_neg() % WORD
    }

    #[inline]
    fn write_bytes(self, from: usize, bytes: &[u8]) {
        for (idx, byte) in bytes.iter().enumerate() {
            // SAFETY: invariants 2 and 3: the callers pass bytes within the place.
            unsafe { self.byte_at(from + idx) }.store(*byte, Ordering::Release);
        }
    }

    #[inline]
    fn read_bytes(self, from: usize, bytes: &mut [u8]) {
        for (idx, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: as in `write_bytes`.
            *byte = unsafe { self.byte_at(from + idx) }.load(Ordering::Relaxed);
        }
    }

    /// # Safety
    /// `at` is within the place.
    #[inline]
    unsafe fn byte_at(self, at: usize) -> &'a AtomicU8 {
        debug_assert!(at < self.len);
        // SAFETY: invariants 1 to 3.
        unsafe { AtomicU8::from_ptr(self.start.add(at).as_ptr()) }
    }

    /// # Safety
    /// Eight bytes from `at` on are within the place, and aligned.
    #[inline]
    unsafe fn word_at(self, at: usize) -> &'a AtomicU64 {
        debug_assert!(at + WORD <= self.len);
        // SAFETY: invariants 1 to 3.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast().as_ptr()) }
    }
}

/// Copies words two by two, in order, and returns how many; a last one that is alone is left. The
/// instructions are those of vectors, which no compiler makes of atomic accesses: of 4 KiB they
/// take half the time.
///
/// # Safety
/// Both sides have so many words and do not overlap. One of them may be shared, and is aligned to
/// words then (invariant 4).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_pairs(from: *const u8, to: *mut u8, words: usize) -> usize {
    let words = words & !1;
    // SAFETY: invariant 4. SSE is in the base of the target.
    unsafe {
        core::arch::asm!(
            "test {groups}, {groups}",
            "jz 3f",
            "2:",
            "movups {a}, [{from} + {at}]",
            "movups {b}, [{from} + {at} + 16]",
            "movups {c}, [{from} + {at} + 32]",
            "movups {d}, [{from} + {at} + 48]",
            "movups [{to} + {at}], {a}",
            "movups [{to} + {at} + 16], {b}",
            "movups [{to} + {at} + 32], {c}",
            "movups [{to} + {at} + 48], {d}",
            "add {at}, 64",
            "cmp {at}, {groups}",
            "jne 2b",
            "3:",
            "cmp {at}, {end}",
            "je 5f",
            "4:",
            "movups {a}, [{from} + {at}]",
            "movups [{to} + {at}], {a}",
            "add {at}, 16",
            "cmp {at}, {end}",
            "jne 4b",
            "5:",
            from = in(reg) from,
            to = in(reg) to,
            groups = in(reg) (words * WORD) & !63,
            end = in(reg) words * WORD,
            at = inout(reg) 0_usize => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
    words
}

/// Elsewhere all words are left.
///
/// # Safety
/// None is needed.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline]
unsafe fn copy_pairs(_: *const u8, _: *mut u8, _: usize) -> usize {
    0
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.len(), self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_that_were_written_at_any_alignment() {
        let buffer = Buffer::zeroed(64);
        let bytes: Vec<u8> = (1..=40).collect();
        for at in 0..16 {
            for len in 0..=bytes.len() {
                buffer.write(0, &[0; 64]);
                buffer.write(at, &bytes[..len]);
                let mut all = [0; 64];
                buffer.read(0, &mut all);
                assert_eq!(&all[at..at + len], &bytes[..len], "{len} bytes at {at}");
                assert!(all[..at].iter().chain(&all[at + len..]).all(|byte| *byte == 0), "{len} bytes at {at}");
                let mut part = vec![0; len];
                buffer.read(at, &mut part);
                assert_eq!(part, &bytes[..len]);
            }
        }
    }

    #[test]
    fn place_is_within_its_region() {
        let region = Region::from(&Buffer::zeroed(64));
        for (at, len, is_inside) in [(0, 64, true), (64, 0, true), (1, 64, false), (usize::MAX, 2, false)] {
            assert_eq!(region.place(at, len).is_some(), is_inside, "{len} bytes at {at}");
        }
    }
}
