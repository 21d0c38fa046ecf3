//! One direction of the wire: a ring of frame slots between one producer and one consumer, which may be on different
//! threads. Slots are written and read in place.
//!
//! ```text
//!   consumer                    producer (private)
//!   head ──▶ [read] [read] ──▶ tail ──▶ [written, not yet published] ──▶ posted
//! ```
//!
//! Indices run freely and wrap at 2^32; a slot is `index & mask`.
//!
//! Invariants:
//! 1. `posted - head <= slots` at all times: the producer writes only slots that the consumer has given back by its
//!    Release store of `head`, which the producer read by an Acquire load.
//! 2. The consumer reads only slots before the `tail` that it read by an Acquire load; the producer published them by
//!    a Release store after writing them, and does not touch them again until (1) gives them back.
//! 3. There is one `Producer` and one `Consumer` for a ring, neither is `Clone`, and their methods take `&mut self`.
//!    So by (1) and (2) no slot is ever reached from both sides at once.
//! 4. Slots are `stride` bytes apart in `bytes`, which was zeroed, so every byte is initialised.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

/// Frame bytes are copied in blocks of a cache line, so a slot ends on one.
pub(super) const BLOCK: usize = 64;

struct Ring {
    /// Bytes of the frame in each slot.
    lens: Box<[UnsafeCell<u32>]>,
    bytes: Box<[UnsafeCell<u8>]>,
    stride: usize,
    /// Written by the producer. 128 bytes apart from `head`: the prefetcher fetches lines in pairs.
    tail: Padded<AtomicU32>,
    /// Written by the consumer.
    head: Padded<AtomicU32>,
    producer_gone: AtomicBool,
}

#[repr(align(128))]
struct Padded<T>(T);

// SAFETY: the only data that is not atomic are the slots, and (3) keeps the two sides apart.
unsafe impl Sync for Ring {}
// SAFETY: all parts are plain memory.
unsafe impl Send for Ring {}

/// The end that writes frames.
pub(super) struct Producer {
    ring: Arc<Ring>,
    posted: u32,
    /// The consumer's `head` as last read.
    head: u32,
}

/// The end that reads frames.
pub(super) struct Consumer {
    ring: Arc<Ring>,
    head: u32,
    /// The producer's `tail` as last read.
    tail: u32,
}

/// A ring of `slots` (a power of two) frames of up to `frame_len_max` bytes.
pub(super) fn ring(slots: u32, frame_len_max: usize) -> (Producer, Consumer) {
    assert!(slots.is_power_of_two(), "slots are masked, so their number is a power of two");
    // An odd number of cache lines spreads the slots over the sets of the L1 cache.
    let stride = (frame_len_max.div_ceil(BLOCK) | 1) * BLOCK;
    let ring = Arc::new(Ring {
        lens: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
        bytes: (0..slots as usize * stride).map(|_| UnsafeCell::new(0)).collect(),
        stride,
        tail: Padded(AtomicU32::new(0)),
        head: Padded(AtomicU32::new(0)),
        producer_gone: AtomicBool::new(false),
    });
    (Producer { ring: Arc::clone(&ring), posted: 0, head: 0 }, Consumer { ring, head: 0, tail: 0 })
}

impl Producer {
    /// Slots that can be posted now.
    #[inline]
    pub(super) fn room(&mut self) -> u32 {
        let slots = self.ring.slots();
        if self.posted.wrapping_sub(self.head) == slots {
            self.head = self.ring.head.0.load(Ordering::Acquire);
        }
        slots - self.posted.wrapping_sub(self.head)
    }

    /// The same, with a fresh look at the consumer.
    pub(super) fn refresh_room(&mut self) -> u32 {
        self.head = self.ring.head.0.load(Ordering::Acquire);
        self.room()
    }

    /// The next slot to fill, its whole length; `None` where the ring is full. It is posted by [`Producer::post`].
    #[inline]
    pub(super) fn slot(&mut self) -> Option<&mut [u8]> {
        if self.room() == 0 {
            return None;
        }
        let ring = &*self.ring;
        let start = (self.posted & ring.mask()) as usize * ring.stride;
        let slot = &ring.bytes[start..start + ring.stride];
        // SAFETY: the slot is free (1) and reached by this producer alone (3); `UnsafeCell<u8>` has the layout of u8.
        Some(unsafe { core::slice::from_raw_parts_mut(UnsafeCell::raw_get(slot.as_ptr()), ring.stride) })
    }

    /// Posts the slot that [`Producer::slot`] lent last, with a frame of `len` bytes in it. Panics where the ring is full.
    #[inline]
    pub(super) fn post(&mut self, len: u32) {
        assert!(self.room() > 0, "post without a free slot");
        let ring = &*self.ring;
        // SAFETY: the slot is free (1) and reached by this producer alone (3).
        unsafe { *ring.lens[(self.posted & ring.mask()) as usize].get() = len };
        self.posted = self.posted.wrapping_add(1);
    }

    /// Shows the consumer all that was posted.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.tail.0.store(self.posted, Ordering::Release);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.ring.producer_gone.store(true, Ordering::Release);
    }
}

impl Consumer {
    /// Frames that can be read now, looking at the producer only when those known are used up.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.head == self.tail {
            self.tail = self.ring.tail.0.load(Ordering::Acquire);
        }
        self.tail.wrapping_sub(self.head)
    }

    /// The frame `ahead` of the oldest: its length in bytes and its slot. Panics past what [`Consumer::available`] said.
    #[inline]
    pub(super) fn frame(&self, ahead: u32) -> (usize, &[u8]) {
        assert!(ahead < self.tail.wrapping_sub(self.head), "read past the published frames");
        let ring = &*self.ring;
        let idx = (self.head.wrapping_add(ahead) & ring.mask()) as usize;
        let slot = &ring.bytes[idx * ring.stride..(idx + 1) * ring.stride];
        // SAFETY: the slot is published (2) and the producer stays away until it is given back (1, 3).
        unsafe {
            (*ring.lens[idx].get() as usize, core::slice::from_raw_parts(slot.as_ptr().cast::<u8>(), ring.stride))
        }
    }

    /// Gives the `count` oldest frames back to the producer.
    #[inline]
    pub(super) fn give_back(&mut self, count: u32) {
        assert!(count <= self.tail.wrapping_sub(self.head), "give back more than was read");
        self.head = self.head.wrapping_add(count);
        self.ring.head.0.store(self.head, Ordering::Release);
    }

    /// Whether the producer is gone and all it published has been read.
    pub(super) fn is_ended(&self) -> bool {
        self.ring.producer_gone.load(Ordering::Acquire) && self.ring.tail.0.load(Ordering::Acquire) == self.head
    }
}

impl Ring {
    fn slots(&self) -> u32 {
        self.lens.len() as u32
    }

    fn mask(&self) -> u32 {
        self.slots() - 1
    }
}
