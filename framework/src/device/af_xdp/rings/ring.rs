//! The four rings shared with the kernel (Documentation/networking/af_xdp.rst): we produce fill and
//! tx, and the kernel consumes them; rx and completion are the reverse. One [`Cursor`] does the
//! arithmetic of all four.
//!
//! ```text
//!   consumer                producer (shared)       posted (ours)
//!   ──▶ [for the consumer] ──▶ [written, not shown] ──▶ [free] ──▶ consumer + len
//! ```
//!
//! Indices run freely and wrap at 2^32; a slot is `index & (len - 1)`. The kernel's index is
//! untrusted input: one that is off the ring counts as a fault and is ignored.
//!
//! This is `unsafe` because the kernel accesses the same memory.
//!
//! Invariants:
//! 1. The memory of a ring stays mapped as long as its `Memory` lives, in the process that mapped
//!    it, and a ring owns its `Memory`. A child of `fork` has none of it, and uses no ring.
//! 2. `producer`, `consumer` and `flags` point to aligned words of that memory, `slots` to `len`
//!    aligned slots in it; that is checked against the mapping's length when the ring is made.
//!    `len` is a power of two.
//! 3. A slot of a produced ring is written only while `posted - consumer < len`, so the kernel does
//!    not read it. A Release store of `producer` publishes it.
//! 4. A slot of a consumed ring is read only below the `producer` that an Acquire load has read,
//!    and a Release store of `consumer` returns it.
//! 5. Slots are plain data: any bytes the kernel writes are a valid value, and reads are volatile,
//!    so that a checked value is the value used.
//! 6. A ring has one owner on our side: it is neither `Clone` nor `Sync`, and changing it takes
//!    `&mut self`. So it may move to another thread.
//!
//! A broker that passes frames on stands in for the kernel
//! ([`broker`](crate::device::af_xdp::broker)), and then "the kernel" is the process at the other
//! end.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::io;
use std::os::fd::AsRawFd;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::mem::prefetch_line;

/// A descriptor of the rx and tx rings, `struct xdp_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Desc {
    /// Offset of the frame's bytes in the umem.
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) options: u32,
}

/// More buffers of the same frame follow (`XDP_PKT_CONTD`).
pub(crate) const MORE: u32 = 1;
/// The frame is a broker's own (`wire::handover`): the kernel sets no such bit.
pub(crate) const OF_BROKER: u32 = 1 << 31;

/// The kernel needs a system call to continue (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// Offsets of a ring's parts in its mapping, `struct xdp_ring_offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Offsets {
    pub(crate) producer: u64,
    pub(crate) consumer: u64,
    pub(crate) slots: u64,
    pub(crate) flags: u64,
}

/// The memory of a ring: pages shared with the kernel, or, for tests and Miri, plain memory with
/// both ends in one process.
enum Memory {
    Pages {
        base: NonNull<u8>,
        len: usize,
    },
    #[cfg(test)]
    Heap(#[expect(dead_code, reason = "it keeps the memory")] std::sync::Arc<[core::cell::UnsafeCell<u64>]>),
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self {
            // SAFETY: the range came from mmap, and the ring that used it is gone (1).
            Self::Pages { base, len } => unsafe {
                libc::munmap(base.as_ptr().cast(), *len);
            },
            #[cfg(test)]
            Self::Heap(_) => {}
        }
    }
}

/// Our index in a ring, and the kernel's as last read.
struct Cursor {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    len: u32,
    /// Our index, ahead of the one published to the kernel.
    ours: u32,
    /// The kernel's index as last read and validated.
    theirs: u32,
    faults: u64,
}

impl Cursor {
    fn shared(&self, word: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: the words are valid as long as the ring is (1, 2).
        unsafe { word.as_ref() }
    }

    /// Slots that a producer may write.
    fn free(&self) -> u32 {
        self.len - self.ours.wrapping_sub(self.theirs)
    }

    /// Slots that a consumer may read.
    fn filled(&self) -> u32 {
        self.theirs.wrapping_sub(self.ours)
    }

    /// Reads the kernel's consumer index, in a ring that we produce.
    fn look_at_consumer(&mut self) {
        let theirs = self.shared(self.consumer).load(Ordering::Acquire);
        let moved = theirs.wrapping_sub(self.theirs);
        self.accept(theirs, moved <= self.ours.wrapping_sub(self.theirs));
    }

    /// Reads the kernel's producer index, in a ring that we consume.
    fn look_at_producer(&mut self) {
        let theirs = self.shared(self.producer).load(Ordering::Acquire);
        let ahead = theirs.wrapping_sub(self.ours);
        self.accept(theirs, ahead <= self.len && ahead >= self.filled());
    }

    fn accept(&mut self, theirs: u32, on_the_ring: bool) {
        if on_the_ring {
            self.theirs = theirs;
        } else {
            self.faults += 1;
        }
    }
}

/// The parts of either kind of ring.
struct MappedRing<T> {
    cursor: Cursor,
    slots: NonNull<T>,
    _memory: Memory,
    slot: PhantomData<T>,
}

// SAFETY: one owner (6), and its memory is not bound to a thread (1).
unsafe impl<T: Send> Send for MappedRing<T> {}

impl<T: Copy> MappedRing<T> {
    /// A ring over `memory_len` bytes at `base`, which `memory` keeps alive.
    fn over(base: NonNull<u8>, memory_len: usize, memory: Memory, offsets: &Offsets, len: u32) -> io::Result<Self> {
        let slots_end =
            (len as usize).checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offsets.slots as usize));
        let words = [offsets.producer, offsets.consumer, offsets.flags];
        let inside = words.iter().all(|&at| at as usize + size_of::<u32>() <= memory_len && at.is_multiple_of(4))
            && slots_end.is_some_and(|end| end <= memory_len)
            && (offsets.slots as usize).is_multiple_of(align_of::<T>());
        if !inside || !len.is_power_of_two() {
            return Err(io::Error::other("the kernel's ring offsets are outside its ring"));
        }
        // SAFETY: the offsets are inside the range (checked above).
        let at = |offset: u64| unsafe { base.add(offset as usize) };
        let (producer, consumer, flags) =
            (at(offsets.producer).cast(), at(offsets.consumer).cast(), at(offsets.flags).cast());
        let cursor = Cursor { producer, consumer, flags, len, ours: 0, theirs: 0, faults: 0 };
        Ok(Self { cursor, slots: at(offsets.slots).cast(), _memory: memory, slot: PhantomData })
    }

    /// Maps a ring of `len` slots of an AF_XDP socket.
    fn map(socket: &impl AsRawFd, page_offset: u64, offsets: &Offsets, len: u32) -> io::Result<Self> {
        let bytes = offsets.slots as usize + len as usize * size_of::<T>();
        // SAFETY: a new mapping of an open descriptor, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page_offset as libc::off_t,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                // A child of `fork` would keep the socket, and so the queue, by its copy of the
                // mapping. A failure leaves it that copy.
                // SAFETY: the range has just been mapped, and stays so in this process (1).
                unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
                Self::over(base, bytes, Memory::Pages { base, len: bytes }, offsets, len)
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: masked, so one of the `len` slots (2).
        unsafe { self.slots.add((index & (self.cursor.len - 1)) as usize) }
    }
}

/// A ring that we write: fill (addresses of free buffers) and tx (descriptors of frames).
pub(crate) struct ProducerRing<T>(MappedRing<T>);

/// A ring that we read: rx (descriptors of frames) and completion (addresses of sent buffers).
pub(crate) struct ConsumerRing<T>(MappedRing<T>);

impl<T: Copy + IntoBytes> ProducerRing<T> {
    /// Maps the ring. The socket has a ring of `len` slots already.
    pub(crate) fn map(socket: &impl AsRawFd, page_offset: u64, offsets: &Offsets, len: u32) -> io::Result<Self> {
        MappedRing::map(socket, page_offset, offsets, len).map(Self)
    }

    /// Slots in all.
    pub(crate) fn len(&self) -> u32 {
        self.0.cursor.len
    }

    /// Whether at least `wanted` slots can be posted now. Reads the kernel's index only if too few
    /// slots are known to be free.
    #[inline]
    pub(crate) fn has_room(&mut self, wanted: u32) -> bool {
        if self.0.cursor.free() < wanted {
            self.0.cursor.look_at_consumer();
        }
        self.0.cursor.free() >= wanted
    }

    /// Writes the next slot. Panics if the ring is full: check [`ProducerRing::has_room`].
    #[inline]
    pub(crate) fn post(&mut self, value: T) {
        self.write(value);
        self.0.cursor.ours = self.0.cursor.ours.wrapping_add(1);
    }

    /// Writes the next slot without advancing. Panics as [`post`](Self::post) does.
    #[inline]
    pub(crate) fn write(&mut self, value: T) {
        assert!(self.0.cursor.free() > 0, "post into a full ring");
        let slot = self.0.slot(self.0.cursor.ours);
        // SAFETY: the slot is free (3, asserted) and inside the ring (2).
        unsafe { slot.write_volatile(value) };
    }

    /// Publishes all posted slots to the kernel.
    #[inline]
    pub(crate) fn publish(&mut self) {
        let cursor = &self.0.cursor;
        cursor.shared(cursor.producer).store(cursor.ours, Ordering::Release);
    }

    /// Slots that the kernel has not consumed yet, from a fresh read of its index.
    #[inline]
    pub(crate) fn unconsumed(&mut self) -> u32 {
        self.0.cursor.look_at_consumer();
        self.0.cursor.ours.wrapping_sub(self.0.cursor.theirs)
    }

    /// Whether the kernel waits for a system call.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        let cursor = &self.0.cursor;
        cursor.shared(cursor.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// Times that the kernel's index was off the ring.
    pub(crate) fn faults(&self) -> u64 {
        self.0.cursor.faults
    }

    /// Sets whether the reader of the ring must be woken (`XDP_RING_NEED_WAKEUP`).
    pub(crate) fn set_needs_wakeup(&self, needs: bool) {
        self.0.cursor.set_needs_wakeup(needs);
    }

    /// Whether the reader of the ring must be woken for the published entries; clears the flag, so
    /// that it is woken once.
    #[inline]
    pub(crate) fn take_needs_wakeup(&self) -> bool {
        fence(Ordering::SeqCst);
        self.needs_wakeup() && self.0.cursor.shared(self.0.cursor.flags).swap(0, Ordering::AcqRel) & NEED_WAKEUP != 0
    }
}

impl Cursor {
    /// Sets the flag, with a full fence behind it: what the other side published before it reads
    /// the flag is seen by a look at the ring from here on.
    fn set_needs_wakeup(&self, needs: bool) {
        self.shared(self.flags).store(if needs { NEED_WAKEUP } else { 0 }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

impl<T: Copy + FromBytes> ConsumerRing<T> {
    /// Sets whether the writer of the ring must wake us.
    pub(crate) fn set_needs_wakeup(&self, needs: bool) {
        self.0.cursor.set_needs_wakeup(needs);
    }

    /// Whether who writes the ring will wake us.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.0.cursor.shared(self.0.cursor.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// Whether at least `wanted` slots can be taken now.
    #[inline]
    pub(crate) fn has(&mut self, wanted: u32) -> bool {
        if self.0.cursor.filled() < wanted {
            self.0.cursor.look_at_producer();
        }
        self.0.cursor.filled() >= wanted
    }

    /// Maps the ring. The socket has a ring of `len` slots already.
    pub(crate) fn map(socket: &impl AsRawFd, page_offset: u64, offsets: &Offsets, len: u32) -> io::Result<Self> {
        MappedRing::map(socket, page_offset, offsets, len).map(Self)
    }

    /// Takes the oldest slot; reads the kernel's index only if all known slots are used up.
    /// [`ConsumerRing::give_back`] returns the slot.
    ///
    /// A read that finds nothing also prefetches the slot's line: when the index moves, both lines
    /// travel from the kernel's core at once instead of one after the other.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<T> {
        let slot = self.0.slot(self.0.cursor.ours);
        if self.0.cursor.filled() == 0 {
            self.0.cursor.look_at_producer();
            if self.0.cursor.filled() == 0 {
                prefetch_line(slot.as_ptr().cast());
                return None;
            }
        }
        self.0.cursor.ours = self.0.cursor.ours.wrapping_add(1);
        // SAFETY: below the producer's index (4) and inside the ring (2); any bytes are a value
        // (5).
        Some(unsafe { slot.read_volatile() })
    }

    /// Returns all taken slots to the kernel.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        let cursor = &self.0.cursor;
        cursor.shared(cursor.consumer).store(cursor.ours, Ordering::Release);
    }

    /// Times that the kernel's index was off the ring.
    pub(crate) fn faults(&self) -> u64 {
        self.0.cursor.faults
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use core::cell::UnsafeCell;
    use std::sync::Arc;

    use super::*;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, slots: 192 };

    /// A ring in memory, and the words by which a test acts as the kernel.
    pub(crate) struct Played {
        memory: Arc<[UnsafeCell<u64>]>,
    }

    impl Played {
        fn word(&self, offset: u64) -> &AtomicU32 {
            // SAFETY: inside the memory, aligned, and only ever used as an atomic.
            unsafe { &*self.memory[offset as usize / 8].get().cast() }
        }

        pub(crate) fn set_producer(&self, index: u32) {
            self.word(OFFSETS.producer).store(index, Ordering::Release);
        }

        pub(crate) fn set_consumer(&self, index: u32) {
            self.word(OFFSETS.consumer).store(index, Ordering::Release);
        }

        pub(crate) fn producer(&self) -> u32 {
            self.word(OFFSETS.producer).load(Ordering::Acquire)
        }

        pub(crate) fn consumer(&self) -> u32 {
            self.word(OFFSETS.consumer).load(Ordering::Acquire)
        }

        pub(crate) fn write<T: IntoBytes + Copy>(&self, slot: usize, value: T) {
            // SAFETY: one thread plays both sides; the slot is inside the memory.
            unsafe { self.slot::<T>(slot).write(value) };
        }

        pub(crate) fn read<T: FromBytes + Copy>(&self, slot: usize) -> T {
            // SAFETY: as for `write`.
            unsafe { self.slot::<T>(slot).read() }
        }

        /// All words of a slot: one of descriptors has two.
        fn slot<T>(&self, slot: usize) -> *mut T {
            let words = size_of::<T>() / 8;
            let at = OFFSETS.slots as usize / 8 + slot * words;
            UnsafeCell::raw_get(self.memory[at..at + words].as_ptr()).cast()
        }
    }

    fn ring<T: Copy>(len: u32) -> (MappedRing<T>, Played) {
        let words = OFFSETS.slots as usize / 8 + len as usize * size_of::<T>() / 8;
        let memory: Arc<[UnsafeCell<u64>]> = (0..words).map(|_| UnsafeCell::new(0)).collect();
        let base = NonNull::new(UnsafeCell::raw_get(memory.as_ptr()).cast::<u8>()).unwrap();
        let ring = MappedRing::over(base, words * 8, Memory::Heap(Arc::clone(&memory)), &OFFSETS, len).unwrap();
        (ring, Played { memory })
    }

    pub(crate) fn producer<T: Copy>(len: u32) -> (ProducerRing<T>, Played) {
        let (ring, kernel) = ring(len);
        (ProducerRing(ring), kernel)
    }

    pub(crate) fn consumer<T: Copy>(len: u32) -> (ConsumerRing<T>, Played) {
        let (ring, kernel) = ring(len);
        (ConsumerRing(ring), kernel)
    }

    #[test]
    fn full_ring_has_room_again_when_the_kernel_took_a_slot() {
        let (mut ring, kernel) = producer::<u64>(4);
        (0..4).for_each(|value| ring.post(value));
        assert!(!ring.has_room(1));
        assert_eq!(kernel.producer(), 0, "nothing is shown before it is published");
        ring.publish();
        kernel.set_consumer(1);
        assert!(ring.has_room(1) && !ring.has_room(2));
        assert_eq!((kernel.producer(), kernel.read::<u64>(3), ring.unconsumed()), (4, 3, 3));
    }

    #[test]
    fn indices_wrap_at_the_end_of_their_type() {
        let (mut ring, kernel) = producer::<u64>(2);
        let start = u32::MAX - 1;
        (ring.0.cursor.ours, ring.0.cursor.theirs) = (start, start);
        for step in 0..5u32 {
            assert!(ring.has_room(2));
            ring.post(step.into());
            ring.publish();
            kernel.set_consumer(start.wrapping_add(step + 1));
        }
        assert_eq!((ring.faults(), kernel.producer()), (0, 3));
    }

    #[test]
    fn consumer_reads_what_was_published_and_no_more() {
        let (mut ring, kernel) = consumer::<Desc>(4);
        assert_eq!(ring.take(), None);
        let desc = Desc { addr: 384, len: 60, options: MORE };
        kernel.write(0, desc);
        kernel.set_producer(1);
        assert_eq!((ring.take(), ring.take()), (Some(desc), None));
        assert_eq!(kernel.consumer(), 0);
        ring.give_back();
        assert_eq!(kernel.consumer(), 1);
    }

    #[test]
    fn index_off_the_ring_is_a_fault_and_moves_nothing() {
        let (mut ring, kernel) = consumer::<u64>(4);
        kernel.set_producer(5);
        assert_eq!((ring.take(), ring.faults()), (None, 1));
        kernel.set_producer(u32::MAX);
        assert_eq!((ring.take(), ring.faults()), (None, 2));
        kernel.set_producer(4);
        assert_eq!((ring.take(), ring.faults()), (Some(0), 2));

        let (mut ring, kernel) = producer::<u64>(4);
        (0..4).for_each(|value| ring.post(value));
        ring.publish();
        kernel.set_consumer(5);
        assert!(!ring.has_room(1));
        assert_eq!(ring.faults(), 1);
    }

    #[test]
    fn offsets_outside_the_mapping_are_refused() {
        let memory: Arc<[UnsafeCell<u64>]> = (0..64).map(|_| UnsafeCell::new(0)).collect();
        let base = NonNull::new(UnsafeCell::raw_get(memory.as_ptr()).cast::<u8>()).unwrap();
        let over = |offsets: Offsets, len| {
            MappedRing::<u64>::over(base, 512, Memory::Heap(Arc::clone(&memory)), &offsets, len).is_ok()
        };
        assert!(over(OFFSETS, 32));
        assert!(!over(OFFSETS, 64) && !over(OFFSETS, 3));
        assert!(!over(Offsets { producer: 510, ..OFFSETS }, 4));
        assert!(!over(Offsets { slots: 193, ..OFFSETS }, 4));
    }
}
