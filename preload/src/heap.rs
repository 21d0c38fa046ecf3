//! The memory of the library, which is its own and not of the program's `malloc`: a signal handler
//! may make calls of ours where it has interrupted `malloc` (man 7 signal-safety), and would wait
//! there for a lock that its own thread holds. Another thread that waits for this lock while it
//! holds an engine is no better.
//!
//! A heap of dlmalloc's over mappings of its own is behind one lock. Small blocks that a thread has
//! given back stay with it, up to [`CACHE_MAX`] bytes, so that calls mostly take no lock. A thread
//! whose blocks other threads give back takes several under one lock, once it has given one back
//! itself, and such another thread gives several back. The thread counts as within the engine
//! meanwhile: handlers run afterwards.
//!
//! Invariants:
//! 1. The heap is used by the thread that has locked it alone. No handler runs on top of that: its
//!    calls would go to the kernel, and need no memory.
//! 2. A cache is used by its own thread alone, and no handler on top of it.
//! 3. A block in a list of a cache is one of the heap's, of the class's size and [`ALIGN`], that
//!    nobody uses: its first word is the next one of the list, or null.
//! 4. Mappings are made where nothing is, and only what this file has mapped is changed.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

use dlmalloc::{Allocator, Dlmalloc};

use crate::engine::thread::{self, Thread};
use crate::{process, sys};

#[global_allocator]
static MEMORY: Memory = Memory;

static HEAP: Heap = Heap::new();

/// The alignment of each block, as of `malloc`'s.
const ALIGN: usize = 16;
/// Classes of blocks that threads keep: 16 bytes, 32 and so on.
const CLASSES: usize = 32;
/// The most bytes that a thread keeps.
const CACHE_MAX: usize = 16 * 1_024;
/// Blocks that move between a thread and the heap under one lock, where they are small, and the
/// bytes of larger ones.
const BATCH: usize = 16;
const BATCH_BYTES: usize = 2 * 1_024;
/// The least bytes of a mapping. One goes back to the kernel once no block of it is used.
const MAPPING: usize = 64 * 1_024;
/// Large blocks that are given back until the heap looks for such mappings.
const LOOKS_EVERY: usize = 256;

/// Blocks that a thread keeps for its next calls.
pub(crate) struct Cache {
    lists: [Cell<*mut u8>; CLASSES],
    bytes: Cell<usize>,
    state: Cell<CacheState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CacheState {
    /// Nothing was kept yet.
    Unused,
    /// The thread gives back at its end what it has kept.
    Used,
    /// It ends, and keeps none any more.
    Ended,
}

impl Cache {
    pub(crate) const fn new() -> Self {
        Self {
            lists: [const { Cell::new(null_mut()) }; CLASSES],
            bytes: Cell::new(0),
            state: Cell::new(CacheState::Unused),
        }
    }

    #[inline]
    fn take(&self, class: usize) -> *mut u8 {
        let block = self.lists[class].get();
        if !block.is_null() {
            // SAFETY: invariants 2 and 3.
            self.lists[class].set(unsafe { block.cast::<*mut u8>().read() });
            self.bytes.set(self.bytes.get() - size_of_class(class));
        }
        block
    }

    /// Keeps a block, which is one of the class. `false`: there is no room.
    #[inline]
    fn keep(&self, class: usize, block: *mut u8) -> bool {
        let bytes = self.bytes.get() + size_of_class(class);
        if bytes > CACHE_MAX || (self.state.get() != CacheState::Used && !self.begin()) {
            return false;
        }
        // SAFETY: invariants 2 and 3.
        unsafe { block.cast::<*mut u8>().write(self.lists[class].get()) };
        self.lists[class].set(block);
        self.bytes.set(bytes);
        true
    }
}

impl Cache {
    /// Takes a block of the heap, where the thread has none, and some for its next calls.
    #[cold]
    fn refill(&self, heap: &Heap, class: usize) -> *mut u8 {
        heap.with(|heap| {
            // SAFETY: a class's size is not 0.
            let block = unsafe { heap.malloc(size_of_class(class), ALIGN) };
            // To begin to keep blocks is libc's, which may need memory of the program's.
            let count = if self.state.get() == CacheState::Used { batch_of(class) } else { 1 };
            for _ in 1..count {
                // SAFETY: as above.
                let more = unsafe { heap.malloc(size_of_class(class), ALIGN) };
                if more.is_null() {
                    break;
                }
                if !self.keep(class, more) {
                    // SAFETY: the block has just been taken.
                    unsafe { heap.free(more, size_of_class(class), ALIGN) };
                    break;
                }
            }
            block
        })
    }

    /// Gives back a block of the class for which there is no room, and some that the thread keeps.
    #[cold]
    fn give_back(&self, heap: &Heap, class: usize, block: *mut u8) {
        heap.with(|heap| {
            let mut next = block;
            for _ in 0..batch_of(class) {
                // SAFETY: the caller's block is one of the class, and so are those of its list (3).
                unsafe { heap.free(next, size_of_class(class), ALIGN) };
                next = self.take(class);
                if next.is_null() {
                    return;
                }
            }
            self.keep(class, next);
        });
    }

    #[cold]
    fn begin(&self) -> bool {
        let begins = self.state.get() == CacheState::Unused && process::expect_end_of_thread();
        if begins {
            self.state.set(CacheState::Used);
        }
        begins
    }
}

/// A thread ends: what it has kept is the heap's again.
pub(crate) fn end_thread() {
    within(|thread| {
        thread.cache.state.set(CacheState::Ended);
        for class in 0..CLASSES {
            loop {
                let block = thread.cache.take(class);
                if block.is_null() {
                    break;
                }
                // SAFETY: invariant 3.
                HEAP.with(|heap| unsafe { heap.free(block, size_of_class(class), ALIGN) });
            }
        }
    });
}

/// Locks the heap before a `fork`, so that the child finds it whole.
pub(crate) fn lock_for_fork() {
    HEAP.lock.take();
}

/// Unlocks it after that, in the parent and in the child.
pub(crate) fn unlock_after_fork() {
    HEAP.lock.give_back();
}

/// The class of blocks of these needs, if threads keep them.
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let class = layout.size().wrapping_sub(1) / ALIGN;
    (class < CLASSES && layout.align() <= ALIGN).then_some(class)
}

#[inline]
const fn size_of_class(class: usize) -> usize {
    (class + 1) * ALIGN
}

/// How many of a class's blocks move under one lock.
const fn batch_of(class: usize) -> usize {
    let count = BATCH_BYTES / size_of_class(class);
    if count < BATCH { count } else { BATCH }
}

/// Calls `act` while no handler of the program's runs on this thread.
#[inline]
fn within<T>(act: impl FnOnce(&Thread) -> T) -> Option<T> {
    thread::with(|thread| {
        thread.enter();
        let done = act(thread);
        thread.leave();
        done
    })
}

struct Memory;

// SAFETY: each block is one of the heap's, of at least the size and the alignment that were asked
// for, until it is given back.
unsafe impl GlobalAlloc for Memory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = within(|thread| match class_of(layout) {
            Some(class) => match thread.cache.take(class) {
                block if block.is_null() => thread.cache.refill(&HEAP, class),
                block => block,
            },
            None => HEAP.take(layout.size(), layout.align()),
        });
        block.unwrap_or(null_mut())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        within(|thread| {
            match class_of(layout) {
                Some(class) if thread.cache.keep(class, block) => (),
                Some(class) => thread.cache.give_back(&HEAP, class, block),
                // SAFETY: the caller's block is one of `alloc` for this layout.
                None => HEAP.with(|heap| unsafe { heap.free(block, layout.size(), layout.align()) }),
            }
        });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if class_of(layout).is_some() {
            // SAFETY: as the caller promises; the block has the size of the layout.
            return unsafe {
                let block = self.alloc(layout);
                if !block.is_null() {
                    block.write_bytes(0, layout.size());
                }
                block
            };
        }
        // Pages of a new mapping are zero, and stay untouched.
        // SAFETY: the caller promises that the size is not 0.
        let zeroed = |heap: &mut Dlmalloc<Mappings>| unsafe { heap.calloc(layout.size(), layout.align()) };
        within(|_| HEAP.with(zeroed)).unwrap_or(null_mut())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the alignment and the new size make a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (class_of(layout), class_of(new)) {
            (Some(before), Some(after)) if before == after => block,
            (None, None) => {
                // SAFETY: the caller's block is one of the heap's for this layout.
                let moved =
                    |heap: &mut Dlmalloc<Mappings>| unsafe { heap.realloc(block, layout.size(), layout.align(), size) };
                within(|_| HEAP.with(moved)).unwrap_or(null_mut())
            }
            _ => {
                // SAFETY: as the caller promises; both blocks have the bytes that are copied.
                unsafe {
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

struct Heap {
    lock: Lock,
    /// How often the lock was taken.
    #[cfg(test)]
    locks: AtomicU32,
    memory: UnsafeCell<Dlmalloc<Mappings>>,
}

// SAFETY: invariant 1.
unsafe impl Sync for Heap {}

impl Heap {
    const fn new() -> Self {
        let mut memory = Dlmalloc::new_with_allocator(Mappings);
        assert!(memory.set_granularity(MAPPING), "a power of two");
        memory.set_max_release_check_rate(LOOKS_EVERY);
        Self {
            lock: Lock::new(),
            #[cfg(test)]
            locks: AtomicU32::new(0),
            memory: UnsafeCell::new(memory),
        }
    }

    fn take(&self, size: usize, align: usize) -> *mut u8 {
        // SAFETY: the size is not 0, because that of a layout to allocate is not.
        self.with(|heap| unsafe { heap.malloc(size, align) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Dlmalloc<Mappings>) -> T) -> T {
        self.lock.take();
        #[cfg(test)]
        self.locks.fetch_add(1, Ordering::Relaxed);
        // SAFETY: invariant 1.
        let done = act(unsafe { &mut *self.memory.get() });
        self.lock.give_back();
        done
    }
}

/// A lock that neither allocates nor touches `errno` (futex(2)).
struct Lock(AtomicU32);

impl Lock {
    const FREE: u32 = 0;
    const TAKEN: u32 = 1;
    /// Taken, and threads sleep until it is free.
    const AWAITED: u32 = 2;
    /// Looks before the thread sleeps: the heap is mostly free again within some 100 ns.
    const LOOKS: u32 = 100;

    const fn new() -> Self {
        Self(AtomicU32::new(Self::FREE))
    }

    #[inline]
    fn take(&self) {
        if self.0.compare_exchange(Self::FREE, Self::TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..Self::LOOKS {
            core::hint::spin_loop();
            if self.0.load(Ordering::Relaxed) == Self::FREE
                && self.0.compare_exchange(Self::FREE, Self::TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
        while self.0.swap(Self::AWAITED, Ordering::Acquire) != Self::FREE {
            sys::futex_wait(&self.0, Self::AWAITED);
        }
    }

    #[inline]
    fn give_back(&self) {
        if self.0.swap(Self::FREE, Ordering::Release) == Self::AWAITED {
            sys::futex_wake(&self.0);
        }
    }
}

/// A multiple of each kernel's pages: those of aarch64 have up to 64 KiB.
const PAGE: usize = if cfg!(target_arch = "aarch64") { 65_536 } else { 4_096 };

/// Where the heap has its memory from: the kernel.
struct Mappings;

// SAFETY: invariant 4: memory of a mapping is zero, and the heap's alone until it gives it back.
unsafe impl Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        // A gap behind each, because dlmalloc joins mappings without one, and gives back none that
        // is joined.
        let Some(memory) = sys::map(size + PAGE) else { return (null_mut(), 0, 0) };
        // SAFETY: invariant 4.
        unsafe { sys::unmap(memory.wrapping_add(size), PAGE) };
        (memory, size, 0)
    }

    fn remap(&self, memory: *mut u8, size: usize, new: usize, can_move: bool) -> *mut u8 {
        // SAFETY: invariant 4.
        unsafe { sys::remap(memory, size, new, can_move) }.unwrap_or(null_mut())
    }

    fn free_part(&self, memory: *mut u8, size: usize, new: usize) -> bool {
        // SAFETY: invariant 4.
        unsafe { sys::unmap(memory.wrapping_add(new), size - new) }
    }

    fn free(&self, memory: *mut u8, size: usize) -> bool {
        // SAFETY: invariant 4.
        unsafe { sys::unmap(memory, size) }
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{alloc, alloc_zeroed, dealloc, realloc};
    use std::thread::spawn;

    use super::*;

    /// A block that begins and ends with its number.
    struct Block(*mut u8, Layout, u8);

    impl Block {
        fn new(layout: Layout, number: u8) -> Self {
            // SAFETY: the size is not 0, and the block is the test's alone.
            let block = unsafe { if number.is_multiple_of(2) { alloc(layout) } else { alloc_zeroed(layout) } };
            assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()), "{layout:?}");
            let block = Self(block, layout, number);
            if !number.is_multiple_of(2) {
                assert_eq!(block.ends(), [0, 0], "{layout:?}");
            }
            block.mark()
        }

        fn ends(&self) -> [u8; 2] {
            // SAFETY: both are within the block.
            unsafe { [self.0.read(), self.0.add(self.1.size() - 1).read()] }
        }

        fn mark(self) -> Self {
            // SAFETY: both are within the block.
            unsafe {
                self.0.write(self.2);
                self.0.add(self.1.size() - 1).write(self.2);
            }
            self
        }

        fn resized(self, size: usize) -> Self {
            assert_eq!(self.ends(), [self.2; 2], "{:?}", self.1);
            // SAFETY: the block is one of `alloc` for this layout.
            let block = unsafe { realloc(self.0, self.1, size) };
            assert!(!block.is_null() && block.addr().is_multiple_of(self.1.align()), "{:?} to {size}", self.1);
            let (number, layout) = (self.2, Layout::from_size_align(size, self.1.align()).expect("the size is small"));
            core::mem::forget(self);
            // SAFETY: within the block.
            assert_eq!(unsafe { block.read() }, number, "to {layout:?}");
            Self(block, layout, number).mark()
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            assert_eq!(self.ends(), [self.2; 2], "{:?}", self.1);
            // SAFETY: the block is one of `alloc` for this layout.
            unsafe { dealloc(self.0, self.1) };
        }
    }

    fn plays_with_blocks(seed: u64) -> Vec<Option<Block>> {
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut blocks: Vec<Option<Block>> = (0..64).map(|_| None).collect();
        for turn in 0..20_000 {
            let below = [40, 600, 5_000, 400_000][random(4)];
            let size = 1 + random(below);
            let place = random(blocks.len());
            blocks[place] = match blocks[place].take() {
                Some(block) if turn % 3 == 0 => Some(block.resized(size)),
                Some(_) if turn % 3 == 1 => None,
                _ => Some(Block::new(Layout::from_size_align(size, 1 << random(8)).expect("small"), turn as u8)),
            };
        }
        blocks
    }

    // The thread that ends gives its blocks to another one, which gives them back.
    #[test]
    fn blocks_of_all_sizes_and_threads_are_whole_and_zero_where_they_should_be() {
        /// A block is memory, which any thread may use.
        struct Sent(Vec<Option<Block>>);
        // SAFETY: as said above.
        unsafe impl Send for Sent {}
        let threads: Vec<_> = (1..=4).map(|seed| spawn(move || Sent(plays_with_blocks(seed)))).collect();
        threads.into_iter().for_each(|thread| drop(thread.join().expect("no block was damaged").0));
    }

    #[test]
    fn thread_keeps_no_more_than_its_bytes_and_nothing_once_it_has_ended() {
        let cache = Cache::new();
        cache.state.set(CacheState::Used);
        let mut memory = vec![0_u128; 2 * CACHE_MAX / ALIGN];
        let blocks = memory.chunks_mut(CLASSES).map(|block| block.as_mut_ptr().cast::<u8>());
        let kept: Vec<*mut u8> = blocks.take_while(|block| cache.keep(CLASSES - 1, *block)).collect();
        assert_eq!(kept.len(), CACHE_MAX / size_of_class(CLASSES - 1));
        assert_eq!(cache.take(CLASSES - 2), null_mut(), "of another class there is none");
        kept.iter().rev().for_each(|block| assert_eq!(cache.take(CLASSES - 1), *block));
        assert_eq!((cache.take(CLASSES - 1), cache.bytes.get()), (null_mut(), 0));
        cache.state.set(CacheState::Ended);
        assert!(!cache.keep(0, memory.as_mut_ptr().cast()));
    }

    /// One thread takes blocks, another one gives them back.
    #[test]
    fn blocks_that_threads_hand_on_take_a_lock_for_several() {
        const BLOCKS: usize = 16_000;
        for class in [0, 7, CLASSES - 1] {
            let (heap, [taker, giver]) = (Heap::new(), [const { Cache::new() }; 2]);
            [&taker, &giver].into_iter().for_each(|cache| cache.state.set(CacheState::Used));
            for _ in 0..BLOCKS {
                let block = match taker.take(class) {
                    block if block.is_null() => taker.refill(&heap, class),
                    block => block,
                };
                assert!(!block.is_null());
                if !giver.keep(class, block) {
                    giver.give_back(&heap, class, block);
                }
            }
            assert!([&taker, &giver].iter().all(|cache| cache.bytes.get() <= CACHE_MAX), "{class}");
            let locks = heap.locks.load(Ordering::Relaxed) as usize;
            assert!(locks <= 2 * BLOCKS / batch_of(class) + 1, "{locks} locks, class {class}");
        }
    }

    #[test]
    fn memory_that_is_given_back_is_the_kernels_again() {
        let heap = Heap::new();
        let blocks: Vec<*mut u8> = (0..64_000).map(|_| heap.take(1_000, ALIGN)).collect();
        let mapped = || {
            let pages = blocks.iter().map(|block| block.map_addr(|address| address & !(PAGE - 1)));
            // SAFETY: the kernel writes one byte, and nothing where there is no memory.
            pages.filter(|page| unsafe { libc::mincore(page.cast(), 1, [0].as_mut_ptr()) } == 0).count()
        };
        assert_eq!(mapped(), blocks.len());
        // SAFETY: each block is given back once.
        blocks.iter().for_each(|block| heap.with(|heap| unsafe { heap.free(*block, 1_000, ALIGN) }));
        assert!(mapped() < blocks.len() / 10, "{} blocks of {} are still there", mapped(), blocks.len());
    }
}
