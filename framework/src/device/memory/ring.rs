//! One direction of the wire: a ring of frame slots between one producer and one consumer, which may be on different
//! threads. A short frame is written into its slot and read there. Of a long one in one buffer the slot only says where it is: the
//! buffer stays with the producer, as with a NIC that reads it, until the consumer has copied it. So a long frame costs one copy, and
//! the memory of slots that nobody writes is in nobody's cache.
//!
//! ```text
//!   consumer                    producer (private)
//!   head ──▶ [read] [read] ──▶ tail ──▶ [written, not yet published] ──▶ posted
//!
//!   [ long │ where ] ──▶ the bytes of an mbuf in `lent`, which goes home when the slot was given back
//! ```
//!
//! A producer that goes away writes what it has lent into the slots, while it has the ring for itself: `guard` is with the consumer while
//! it looks at long frames.
//!
//! Indices run freely and wrap at 2^32; a slot is `index & mask`.
//!
//! Invariants:
//! 1. `posted - head <= slots` at all times: the producer writes only slots that the consumer has given back by its
//!    Release store of `head`, which the producer read by an Acquire load and counted in its `room`.
//! 2. The consumer reads only slots before the `tail` that it read by an Acquire load; the producer published them by
//!    a Release store after writing them, and does not touch them again until (1) gives them back.
//! 3. There is one `Producer` and one `Consumer` for a ring, neither is `Clone`, and their methods take `&mut self`.
//!    So by (1) and (2) no slot is ever reached from both sides at once.
//! 4. There are `mask + 1` lengths and places of long frames, and `mask + 1` times `slot_blocks` blocks, at least one, all zeroed and so
//!    initialised. So slot `index & mask` is inside all of them.
//! 5. A length marked [`LONG`] comes with the address of that many bytes of an mbuf that stands in `lent` at the slot. It stays there, and
//!    nobody writes its bytes (the producer owns it, and others may only read), until the slot was given back (1), or until the
//!    producer has the guard, has copied the bytes into the slot and has taken the mark away.
//! 6. Who reads the address or the bytes of a long frame has the guard, and has seen the mark since it took it. It is the consumer's until
//!    it gives frames back, or goes away.
//! 7. Only frames longer than [`COPIED_LEN_MAX`] are lent. A mark is taken away by a Release store behind the bytes, so who finds none at
//!    such a length, without the guard, needs an Acquire fence before it reads them.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::Arc;

use crate::mem::{CACHE_LINE, Mbuf, SHORT_MAX, copy_frame};

/// Bytes of a cache line. Slots are whole blocks and begin on one, so that a frame of 64 bytes is one line, and
/// frames are copied in whole blocks.
pub(super) const BLOCK: usize = CACHE_LINE;

/// Marks the length of a frame that lies elsewhere.
const LONG: u32 = 1 << 31;

#[repr(align(64))]
struct Block(UnsafeCell<[u8; BLOCK]>);

struct Ring {
    /// Bytes of the frame in each slot, or elsewhere and [`LONG`]. Atomic as a producer that goes away takes the marks back.
    lens: Box<[AtomicU32]>,
    /// Where long frames are.
    places: Box<[UnsafeCell<*const u8>]>,
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
    /// Taken by who looks at long frames, or ends them.
    guard: AtomicBool,
}

#[repr(align(128))]
struct Padded<T>(T);

// SAFETY: the only data that is not atomic are the slots and the places of long frames, and (3) and (6) keep the two sides apart.
unsafe impl Sync for Ring {}
// SAFETY: all parts are plain memory; what the places lead to is read where (5) and (6) allow it.
unsafe impl Send for Ring {}

/// The end that writes frames.
pub(super) struct Producer {
    ring: Arc<Ring>,
    posted: u32,
    /// Slots that were free when the consumer's `head` was read last, less those posted since.
    room: u32,
}

/// A producer that may lend: it belongs to a worker, and its mbufs with it.
pub(super) struct Lender {
    producer: Producer,
    /// The mbufs of long frames, each at its slot.
    lent: Box<[Option<Mbuf>]>,
    lent_count: u32,
    /// Up to where they went home: none before it is lent.
    reaped: u32,
}

/// Longer frames are lent where they are in one buffer: three lines are copied by fewer instructions than lending takes.
pub(super) const COPIED_LEN_MAX: usize = SHORT_MAX;

/// A free slot, to be filled and posted.
pub(super) struct Slot<'a>(&'a mut Producer);

/// The end that reads frames.
pub(super) struct Consumer {
    ring: Arc<Ring>,
    head: u32,
    /// The producer's `tail` as last read.
    tail: u32,
    /// Whether it has the guard.
    is_guarded: bool,
}

/// Frames that can be read, oldest first. They go back to the producer by [`Consumer::give_back`].
pub(super) struct Frames<'a> {
    ring: &'a Ring,
    next: u32,
    end: u32,
    is_guarded: &'a mut bool,
}

/// A frame in the ring. One of [`COPIED_LEN_MAX`] bytes at most is read here, any by [`Frames::bytes`].
pub(super) struct Frame<'a> {
    ring: &'a Ring,
    index: u32,
    /// Its length, marked where it lies elsewhere.
    len: u32,
}

/// A ring of `slots` (a power of two) frames of up to `frame_len_max` bytes.
pub(super) fn ring(slots: u32, frame_len_max: usize) -> (Producer, Consumer) {
    assert!(slots.is_power_of_two(), "slots are masked, so their number is a power of two");
    // An odd number of cache lines spreads the slots over the sets of the L1 cache.
    let slot_blocks = frame_len_max.div_ceil(BLOCK) | 1;
    let ring = Arc::new(Ring {
        lens: (0..slots).map(|_| AtomicU32::new(0)).collect(),
        places: (0..slots).map(|_| UnsafeCell::new(core::ptr::null())).collect(),
        blocks: (0..slots as usize * slot_blocks).map(|_| Block(UnsafeCell::new([0; BLOCK]))).collect(),
        slot_blocks,
        mask: slots - 1,
        tail: Padded(AtomicU32::new(0)),
        head: Padded(AtomicU32::new(0)),
        producer_gone: AtomicBool::new(false),
        guard: AtomicBool::new(false),
    });
    (
        Producer { ring: Arc::clone(&ring), posted: 0, room: slots },
        Consumer { ring, head: 0, tail: 0, is_guarded: false },
    )
}

impl Producer {
    /// Slots that can be posted now.
    #[inline(always)]
    pub(super) fn room(&mut self) -> u32 {
        if self.room == 0 { self.refresh_room() } else { self.room }
    }

    /// The same, with a fresh look at the consumer.
    pub(super) fn refresh_room(&mut self) -> u32 {
        self.look_at_head();
        self.room
    }

    /// How far the consumer has come.
    fn look_at_head(&mut self) -> u32 {
        let head = self.ring.head.0.load(Ordering::Acquire);
        self.room = self.ring.mask + 1 - self.posted.wrapping_sub(head);
        head
    }

    /// A slot has been written, and its length with it.
    #[inline(always)]
    fn pass(&mut self) {
        self.posted = self.posted.wrapping_add(1);
        self.room -= 1;
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

    /// Posts the slot with a copy of `frame`. Panics where the slot is shorter.
    #[inline(always)]
    pub(super) fn post_copy(mut self, frame: &[u8]) {
        self.copy(frame);
        self.give(frame.len());
    }

    /// Writes a copy of `frame`, which is not posted by it. Panics where the slot is shorter.
    #[inline(always)]
    pub(super) fn copy(&mut self, frame: &[u8]) {
        copy_frame(&mut self.bytes_mut()[..frame.len()], frame);
    }

    /// Posts the slot with a frame of `len` bytes in it. Panics where the slot is shorter.
    #[inline]
    pub(super) fn post(self, len: usize) {
        assert!(len <= self.0.ring.slot_blocks * BLOCK, "a frame longer than its slot");
        self.give(len);
    }

    /// The same for who has just written so many bytes.
    #[inline(always)]
    fn give(self, len: usize) {
        self.0.ring.len_of(self.0.posted).store(len as u32, Ordering::Relaxed);
        self.0.pass();
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.ring.producer_gone.store(true, Ordering::Release);
    }
}

impl Lender {
    /// Of a producer that has posted nothing yet.
    pub(super) fn new(producer: Producer) -> Self {
        let slots = producer.ring.lens.len();
        Self { producer, lent: (0..slots).map(|_| None).collect(), lent_count: 0, reaped: 0 }
    }

    /// As [`Producer::refresh_room`].
    pub(super) fn refresh_room(&mut self) -> u32 {
        self.producer.refresh_room()
    }

    /// As [`Producer::slot`].
    #[inline]
    pub(super) fn slot(&mut self) -> Option<Slot<'_>> {
        self.producer.slot()
    }

    /// As [`Producer::publish`].
    #[inline]
    pub(super) fn publish(&mut self) {
        self.producer.publish();
    }

    /// Frames whose mbufs have not gone home.
    pub(super) fn lent_count(&self) -> usize {
        self.lent_count as usize
    }

    /// Posts a frame of more than [`COPIED_LEN_MAX`] bytes where it is. It comes back where the ring is full. Panics at a chain, at a shorter
    /// frame, and where a slot is shorter than it.
    #[inline]
    pub(super) fn post_lent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        if self.producer.room() == 0 {
            return Err(mbuf);
        }
        let posted = self.producer.posted;
        let slot = (posted & self.producer.ring.mask) as usize;
        if posted.wrapping_sub(self.reaped) > self.producer.ring.mask {
            // The slot is back and nobody has asked: whoever asks later would take this frame for the one before it in the slot.
            self.reap();
        }
        if self.lent_count == 0 {
            self.reaped = posted;
        }
        let ring = &*self.producer.ring;
        let bytes = mbuf.bytes();
        assert!(mbuf.is_linear() && bytes.len() <= ring.slot_blocks * BLOCK, "lent is what would fit the slot");
        assert!(bytes.len() > COPIED_LEN_MAX, "short frames are looked at in their slots");
        // SAFETY: inside the ring (4), free (1), and nobody looks at the place of a free slot (6).
        unsafe { *ring.place_of(posted) = bytes.as_ptr() };
        ring.len_of(posted).store(bytes.len() as u32 | LONG, Ordering::Relaxed);
        self.lent[slot] = Some(mbuf);
        self.lent_count += 1;
        self.producer.pass();
        Ok(())
    }

    /// Sends the mbufs home whose slots were given back; returns how many.
    #[inline]
    pub(super) fn reap(&mut self) -> usize {
        if self.lent_count == 0 { 0 } else { self.reap_some() }
    }

    fn reap_some(&mut self) -> usize {
        let head = self.producer.look_at_head();
        let mut count = 0;
        // Frames before the first that was lent may not be back yet.
        while (head.wrapping_sub(self.reaped) as i32) > 0 && self.lent_count != 0 {
            if let Some(mbuf) = self.lent[(self.reaped & self.producer.ring.mask) as usize].take() {
                mbuf.free();
                self.lent_count -= 1;
                count += 1;
            }
            self.reaped = self.reaped.wrapping_add(1);
        }
        count
    }

    /// Writes all frames that were lent into their slots, and sends the mbufs home.
    #[cold]
    fn recall(&mut self) {
        self.producer.ring.take_guard();
        self.reap();
        while self.lent_count != 0 {
            if let Some(mbuf) = self.lent[(self.reaped & self.producer.ring.mask) as usize].take() {
                self.producer.ring.settle(self.reaped, mbuf.bytes());
                mbuf.free();
                self.lent_count -= 1;
            }
            self.reaped = self.reaped.wrapping_add(1);
        }
        self.producer.ring.leave_guard();
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        if self.lent_count != 0 {
            self.recall();
        }
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
    pub(super) fn frames(&mut self, count: u32) -> Frames<'_> {
        assert!(count <= self.tail.wrapping_sub(self.head), "read past the published frames");
        let (next, end) = (self.head, self.head.wrapping_add(count));
        Frames { ring: &self.ring, next, end, is_guarded: &mut self.is_guarded }
    }

    /// Gives the `count` oldest frames back to the producer.
    #[inline]
    pub(super) fn give_back(&mut self, count: u32) {
        assert!(count <= self.tail.wrapping_sub(self.head), "give back more than was read");
        self.head = self.head.wrapping_add(count);
        self.ring.head.0.store(self.head, Ordering::Release);
        self.look_away();
    }

    /// Looks at no long frame any more.
    #[inline]
    fn look_away(&mut self) {
        if self.is_guarded {
            self.is_guarded = false;
            self.ring.leave_guard();
        }
    }

    /// Whether the producer is gone and all it published has been read.
    pub(super) fn is_ended(&self) -> bool {
        self.ring.producer_gone.load(Ordering::Acquire) && self.ring.tail.0.load(Ordering::Acquire) == self.head
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.look_away();
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        if self.next == self.end {
            return None;
        }
        let index = self.next;
        self.next = index.wrapping_add(1);
        Some(Frame { ring: self.ring, index, len: self.ring.len_of(index).load(Ordering::Relaxed) })
    }
}

impl<'a> Frames<'a> {
    /// A frame's bytes.
    #[inline(always)]
    pub(super) fn bytes(&mut self, frame: &Frame<'a>) -> &'a [u8] {
        if frame.len & LONG != 0 {
            return self.ring.look_at_long(frame.index, self.is_guarded);
        }
        // A producer that has just gone may have written them (7).
        fence(Ordering::Acquire);
        // SAFETY: not marked.
        unsafe { self.ring.in_slot(frame.index, frame.len) }
    }
}

impl<'a> Frame<'a> {
    /// The line that a frame of one line at most lies in, and its length.
    #[inline(always)]
    pub(super) fn line(&self) -> Option<(&'a [u8; BLOCK], usize)> {
        if self.len as usize > BLOCK {
            return None;
        }
        // SAFETY: the slot is inside the ring, has a block and is initialised (4), it is published (2), so short a frame was never anywhere
        // else (7), and the producer stays away until it is given back (1, 3), for which the consumer must be borrowed mutably.
        Some((unsafe { &*self.ring.first_block(self.index) }, self.len as usize))
    }

    /// The same for three lines. `None` also where slots are shorter.
    #[inline(always)]
    pub(super) fn lines(&self) -> Option<(&'a [[u8; BLOCK]; 3], usize)> {
        if self.len as usize > COPIED_LEN_MAX || self.ring.slot_blocks < 3 {
            return None;
        }
        // SAFETY: as in `line`, and the slot has three blocks.
        Some((unsafe { &*self.ring.first_block(self.index).cast() }, self.len as usize))
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

    /// The length of the frame at `index`.
    #[inline]
    fn len_of(&self, index: u32) -> &AtomicU32 {
        // SAFETY: inside the ring (4).
        unsafe { self.lens.get_unchecked((index & self.mask) as usize) }
    }

    /// Where the address of a long frame at `index` stands.
    #[inline]
    fn place_of(&self, index: u32) -> *mut *const u8 {
        // SAFETY: inside the ring (4).
        UnsafeCell::raw_get(unsafe { self.places.as_ptr().add((index & self.mask) as usize) })
    }

    /// The bytes of a long frame, or of a short one after all: its producer has just gone. By an index, so that who has a short frame keeps
    /// it in registers.
    #[inline(never)]
    fn look_at_long(&self, index: u32, is_guarded: &mut bool) -> &[u8] {
        if !*is_guarded {
            self.take_guard();
            *is_guarded = true;
        }
        let len = self.len_of(index).load(Ordering::Relaxed);
        if len & LONG == 0 {
            // SAFETY: not marked; the producer wrote it before it left the guard to us.
            return unsafe { self.in_slot(index, len) };
        }
        // SAFETY: the mark was seen with the guard (6), so the place is that of so many bytes (5), and they are there and unchanged until
        // the guard is left or the slot given back, for which the consumer must be borrowed mutably.
        unsafe { core::slice::from_raw_parts(*self.place_of(index), (len & !LONG) as usize) }
    }

    /// A frame of `len` bytes in its slot. Panics where the slot is shorter.
    ///
    /// # Safety
    /// The caller is the consumer, and saw the frame published, with that length and not marked.
    #[inline]
    unsafe fn in_slot(&self, index: u32, len: u32) -> &[u8] {
        // SAFETY: the slot is inside the ring and initialised (4), it is published (2), and the producer stays away
        // until it is given back (1, 3), for which the consumer must be borrowed mutably.
        let blocks = unsafe { core::slice::from_raw_parts(self.first_block(index), self.slot_blocks) };
        &blocks.as_flattened()[..len as usize]
    }

    /// Waits for a look of the other side, which is no longer than a burst.
    fn take_guard(&self) {
        while self.guard.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
    }

    #[inline]
    fn leave_guard(&self) {
        self.guard.store(false, Ordering::Release);
    }

    /// Makes the long frame at `index` a short one. The caller is the producer, and has the guard.
    fn settle(&self, index: u32, bytes: &[u8]) {
        assert!(bytes.len() <= self.slot_blocks * BLOCK, "lent is what would fit the slot");
        // SAFETY: inside the ring (4), and as long as the mark is there the consumer looks at the slot's blocks as little as at the frame
        // without the guard (5, 6).
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.first_block(index).cast(), bytes.len()) };
        self.len_of(index).store(bytes.len() as u32, Ordering::Release);
    }
}
