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
//! 4. There are `mask + 1` lengths and `mask + 1` times `slot_blocks` blocks, at least one, all zeroed and so
//!    initialised. So slot `index & mask` is inside both.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use crate::mem::CACHE_LINE;

/// Bytes of a cache line. Slots are whole blocks and begin on one, so that a frame of 64 bytes is one line, and
/// frames are copied in whole blocks.
pub(super) const BLOCK: usize = CACHE_LINE;

#[repr(align(64))]
struct Block(UnsafeCell<[u8; BLOCK]>);

struct Ring {
    /// Bytes of the frame in each slot.
    lens: Box<[UnsafeCell<u32>]>,
    blocks: Box<[Block]>,
    /// Blocks from one slot to the next.
    slot_blocks: usize,
    /// The number of slots, a power of two, less one.
    mask: u32,
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

/// A free slot, to be filled and posted.
pub(super) struct Slot<'a>(&'a mut Producer);

/// The end that reads frames.
pub(super) struct Consumer {
    ring: Arc<Ring>,
    head: u32,
    /// The producer's `tail` as last read.
    tail: u32,
}

/// Frames that can be read, oldest first. They go back to the producer by [`Consumer::give_back`].
pub(super) struct Frames<'a> {
    ring: &'a Ring,
    next: u32,
    end: u32,
}

/// A frame in the ring: its length, the first block of its slot, and all of them.
pub(super) struct Frame<'a> {
    pub(super) len: usize,
    pub(super) first: &'a [u8; BLOCK],
    pub(super) blocks: &'a [[u8; BLOCK]],
}

/// A ring of `slots` (a power of two) frames of up to `frame_len_max` bytes.
pub(super) fn ring(slots: u32, frame_len_max: usize) -> (Producer, Consumer) {
    assert!(slots.is_power_of_two(), "slots are masked, so their number is a power of two");
    // An odd number of cache lines spreads the slots over the sets of the L1 cache.
    let slot_blocks = frame_len_max.div_ceil(BLOCK) | 1;
    let ring = Arc::new(Ring {
        lens: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
        blocks: (0..slots as usize * slot_blocks).map(|_| Block(UnsafeCell::new([0; BLOCK]))).collect(),
        slot_blocks,
        mask: slots - 1,
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
        let slots = self.ring.mask + 1;
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

    /// The next slot to fill; `None` where the ring is full.
    #[inline]
    pub(super) fn slot(&mut self) -> Option<Slot<'_>> {
        if self.room() == 0 { None } else { Some(Slot(self)) }
    }

    /// Shows the consumer all that was posted.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.tail.0.store(self.posted, Ordering::Release);
    }
}

impl Slot<'_> {
    /// The slot's whole length, with what was left there.
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let ring = &*self.0.ring;
        // SAFETY: inside the ring and initialised (4), free (1), and reached by this producer alone (3), which is
        // borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(ring.first_block(self.0.posted), ring.slot_blocks) }.as_flattened_mut()
    }

    /// Posts the slot with a copy of `frame`. Panics where the slot is shorter. A frame of 64 bytes, as many are, is one
    /// line: a few instructions, where a copy of any length is a call.
    #[inline(always)]
    pub(super) fn post_copy(mut self, frame: &[u8]) {
        self.copy(frame);
        self.post(frame.len());
    }

    /// Writes a copy of `frame`, which is not posted by it. Panics where the slot is shorter.
    #[inline(always)]
    pub(super) fn copy(&mut self, frame: &[u8]) {
        let to = &mut self.bytes_mut()[..frame.len()];
        match (to.split_first_chunk_mut::<BLOCK>(), frame.split_first_chunk::<BLOCK>()) {
            (Some((to, to_rest)), Some((line, rest))) => {
                *to = *line;
                copy_rest(to_rest, rest);
            }
            _ => to.copy_from_slice(frame),
        }
    }

    /// Posts the slot with a frame of `len` bytes in it. Panics where the slot is shorter.
    #[inline]
    pub(super) fn post(self, len: usize) {
        let ring = &*self.0.ring;
        assert!(len <= ring.slot_blocks * BLOCK, "a frame longer than its slot");
        // SAFETY: inside the ring (4), free (1) and reached by this producer alone (3).
        unsafe { *ring.len_of(self.0.posted) = len as u32 };
        self.0.posted = self.0.posted.wrapping_add(1);
    }
}

/// Copies what is behind the first line. One more or two, as orders have with their headers, in pieces of known length, of which the
/// last overlaps the one before: fewer instructions than a call.
#[inline(always)]
fn copy_rest(to: &mut [u8], from: &[u8]) {
    if from.len() > 2 * BLOCK || from.len() < BLOCK {
        if !from.is_empty() {
            to.copy_from_slice(from);
        }
        return;
    }
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<BLOCK>(), from.first_chunk::<BLOCK>()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<BLOCK>(), from.last_chunk::<BLOCK>()) {
        *to = *from;
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

    /// The `count` oldest frames. Panics past what [`Consumer::available`] said.
    #[inline]
    pub(super) fn frames(&self, count: u32) -> Frames<'_> {
        assert!(count <= self.tail.wrapping_sub(self.head), "read past the published frames");
        Frames { ring: &self.ring, next: self.head, end: self.head.wrapping_add(count) }
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

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: the slot is inside the ring and initialised (4), it is published (2), and the producer stays away
        // until it is given back (1, 3), for which the consumer must be borrowed mutably.
        let frame = unsafe {
            let len = *self.ring.len_of(self.next) as usize;
            let first = self.ring.first_block(self.next);
            let blocks = core::slice::from_raw_parts(first, self.ring.slot_blocks);
            Frame { len, first: &*first, blocks }
        };
        self.next = self.next.wrapping_add(1);
        Some(frame)
    }
}

impl Frame<'_> {
    /// The frame's bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.blocks.as_flattened()[..self.len]
    }
}

impl Ring {
    /// The first block of the slot at `index`.
    #[inline]
    fn first_block(&self, index: u32) -> *mut [u8; BLOCK] {
        let block = (index & self.mask) as usize * self.slot_blocks;
        // SAFETY: inside the ring (4).
        UnsafeCell::raw_get(unsafe { &raw const (*self.blocks.as_ptr().add(block)).0 })
    }

    /// Where the length of the slot at `index` stands.
    #[inline]
    fn len_of(&self, index: u32) -> *mut u32 {
        // SAFETY: inside the ring (4).
        UnsafeCell::raw_get(unsafe { self.lens.as_ptr().add((index & self.mask) as usize) })
    }
}
