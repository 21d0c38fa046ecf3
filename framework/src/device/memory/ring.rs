//! One direction of the wire: a ring of frame slots between one producer and one consumer, which
//! may be on different threads. A short frame is written into its slot and read there. For a long
//! frame in one buffer the slot holds only its address: the producer keeps the buffer, as for a NIC
//! that reads it, until the consumer has copied it. So a long frame costs one copy, and slots that
//! are not written take no cache. A frame segmented from a longer one has its headers in the slot,
//! with the address of its payload.
//!
//! ```text
//!   consumer                    producer (private)
//!   head ──▶ [read] [read] ──▶ tail ──▶ [written, not yet published] ──▶ posted
//!
//!   [ long │ address ] ──▶ the bytes of an mbuf in `lent`, which is freed once the slot was returned
//!
//!   [ headers, long │ address ] ─┐
//!   [ headers, long │ address ] ─┴▶ the bytes of one mbuf in `lent`, at the last slot of its segments
//! ```
//!
//! A producer that is dropped copies its lent frames into the slots, with exclusive access to the
//! ring: the consumer holds `guard` while it reads long frames.
//!
//! Indices run freely and wrap at 2^32; a slot is `index & mask`.
//!
//! Invariants:
//! 1. `posted - head <= slots` at all times: the producer writes only slots that the consumer has
//!    returned by its Release store of `head`. The producer reads `head` by an Acquire load and
//!    derives `full_at` from it.
//! 2. The consumer reads only slots before the `tail` that it read by an Acquire load; the producer
//!    published them by a Release store after writing them, and does not touch them again until (1)
//!    returns them.
//! 3. There is one `Producer` and one `Consumer` for a ring, neither is `Clone`, and their methods
//!    take `&mut self`. So by (1) and (2) no slot is ever reached from both sides at once.
//! 4. There are `mask + 1` lengths and places of long frames, and `mask + 1` times `slot_blocks`
//!    blocks, at least [`SLOT_BLOCKS_MIN`], all zeroed and so initialized. So slot `index & mask`
//!    is inside all of them.
//! 5. A length marked [`LONG`] comes with the address of that many bytes, less those of its head,
//!    which are in the slot. The bytes belong to an mbuf that is in `lent` at this slot, or at a
//!    later slot of the same segmentation. The mbuf stays there, and its bytes are not written (the
//!    producer owns it, and others may only read), until the slot was returned (1), or until the
//!    producer has taken the guard, copied the bytes into the slot and removed the mark. Slots are
//!    returned in order, so this slot is returned before the later one.
//! 6. A reader of the address or the bytes of a long frame holds the guard, and has seen the mark
//!    since it took the guard. The consumer holds the guard until it returns frames, or is dropped.
//! 7. Only frames longer than [`COPIED_LEN_MAX`] are lent. A mark is removed by a Release store
//!    after the bytes were written. So a reader without the guard that finds such a length unmarked
//!    needs an Acquire fence before it reads the bytes.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::Arc;

use crate::mem::{CACHE_LINE, Mbuf, SHORT_MAX, Segments, copy_frame};

/// Bytes of a cache line. Slots are whole blocks and begin on one, so that a frame of 64 bytes is
/// one line, and frames are copied in whole blocks.
pub(super) const BLOCK: usize = CACHE_LINE;

/// Marks the length of a frame that lies outside the slot, except for its head.
const LONG: u32 = 1 << 31;
/// Bit offset of the head's length, below the mark and above the length of the whole frame.
const HEAD_SHIFT: u32 = 24;
/// Bytes of the longest head.
pub(super) const HEAD_LEN_MAX: usize = (1 << (31 - HEAD_SHIFT)) - 1;
/// Bytes of the longest frame that is lent.
const LENT_LEN_MAX: usize = (1 << HEAD_SHIFT) - 1;

#[repr(align(64))]
struct Block(UnsafeCell<[u8; BLOCK]>);

struct FrameRing {
    /// Length of the frame in each slot, with [`LONG`] if the frame is elsewhere. Atomic, because a
    /// producer that is dropped removes the marks.
    lens: Box<[AtomicU32]>,
    /// Addresses of long frames.
    places: Box<[UnsafeCell<*const u8>]>,
    blocks: Box<[Block]>,
    /// Blocks from one slot to the next.
    slot_blocks: usize,
    /// The number of slots, a power of two, minus one.
    mask: u32,
    /// Written by the producer. 128 bytes apart from `head`: the prefetcher fetches lines in pairs.
    tail: Padded<AtomicU32>,
    /// Written by the consumer.
    head: Padded<AtomicU32>,
    producer_gone: AtomicBool,
    /// Held while long frames are read or recalled.
    guard: AtomicBool,
}

#[repr(align(128))]
struct Padded<T>(T);

// SAFETY: the only data that is not atomic are the slots and the addresses of long frames, and (3)
// and (6) keep the two sides apart.
unsafe impl Sync for FrameRing {}
// SAFETY: all parts are plain memory; the addresses are dereferenced only where (5) and (6) allow
// it.
unsafe impl Send for FrameRing {}

/// The writing end.
pub(super) struct Producer {
    ring: Arc<FrameRing>,
    posted: u32,
    /// The value of `posted` at which the slots are used up that were free at the last read of the
    /// consumer's `head`.
    full_at: u32,
}

/// A producer that may lend buffers. It belongs to a worker, because its mbufs do.
pub(super) struct LendingProducer {
    producer: Producer,
    /// The mbufs of long frames, each at its slot, or at the last slot of its segments.
    lent: Box<[Option<Mbuf>]>,
    lent_count: u32,
    /// Position up to which mbufs were freed: none before it is lent.
    reaped: u32,
}

/// Longer frames are lent if they are in one buffer: copying three lines takes fewer instructions
/// than lending.
pub(super) const COPIED_LEN_MAX: usize = SHORT_MAX;

/// Each slot has room for a frame that is copied.
const SLOT_BLOCKS_MIN: usize = COPIED_LEN_MAX / BLOCK;

/// The segmentation of a frame. Behind its headers, which are in its first buffer, is payload for
/// `count` frames: each has `segment_len` bytes of it, and the last the remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) headers_len: usize,
    /// Bytes of the headers of each frame.
    pub(super) head_len: usize,
    pub(super) segment_len: usize,
    pub(super) count: u32,
}

/// A free slot, to be filled and posted.
pub(super) struct Slot<'a>(&'a mut Producer);

/// The reading end.
pub(super) struct Consumer {
    ring: Arc<FrameRing>,
    head: u32,
    /// The producer's `tail` as last read.
    tail: u32,
    /// Whether it holds the guard.
    is_guarded: bool,
}

/// Frames that can be read, oldest first. [`Consumer::give_back`] returns them to the producer.
pub(super) struct Frames<'a> {
    ring: &'a FrameRing,
    next: u32,
    end: u32,
    is_guarded: &'a mut bool,
}

/// A frame in the ring. One of at most [`COPIED_LEN_MAX`] bytes is read here, others by
/// [`Frames::bytes`].
pub(super) struct Frame<'a> {
    ring: &'a FrameRing,
    index: u32,
    /// The frame's length, with the mark if the frame is elsewhere.
    len: u32,
}

/// A ring of `slots` (a power of two) frames of up to `frame_len_max` bytes.
pub(super) fn ring(slots: u32, frame_len_max: usize) -> (Producer, Consumer) {
    assert!(slots.is_power_of_two(), "slots are masked, so their number is a power of two");
    // An odd number of cache lines spreads the slots over the sets of the L1 cache.
    let slot_blocks = frame_len_max.div_ceil(BLOCK).max(SLOT_BLOCKS_MIN) | 1;
    let ring = Arc::new(FrameRing {
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
        Producer { ring: Arc::clone(&ring), posted: 0, full_at: slots },
        Consumer { ring, head: 0, tail: 0, is_guarded: false },
    )
}

impl Producer {
    /// Slots that can be posted now.
    #[inline(always)]
    pub(super) fn room(&mut self) -> u32 {
        if self.is_full() { self.refresh_room() } else { self.known_room() }
    }

    /// The same, with a fresh read of the consumer's index.
    pub(super) fn refresh_room(&mut self) -> u32 {
        self.look_at_head();
        self.known_room()
    }

    #[inline(always)]
    fn known_room(&self) -> u32 {
        self.full_at.wrapping_sub(self.posted)
    }

    /// Whether no slot is known to be free.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.posted == self.full_at
    }

    /// Reads the consumer's index.
    fn look_at_head(&mut self) -> u32 {
        let head = self.ring.head.0.load(Ordering::Acquire);
        self.full_at = head.wrapping_add(self.ring.mask + 1);
        head
    }

    /// Advances past a slot that was written, including its length.
    #[inline(always)]
    fn pass(&mut self) {
        debug_assert!(!self.is_full(), "a slot that was posted was free");
        self.posted = self.posted.wrapping_add(1);
    }

    /// The next slot to fill; `None` if the ring is full.
    #[inline]
    pub(super) fn slot(&mut self) -> Option<Slot<'_>> {
        if self.room() == 0 { None } else { Some(Slot(self)) }
    }

    /// The same if a slot is already known to be free.
    #[inline(always)]
    pub(super) fn known_slot(&mut self) -> Option<Slot<'_>> {
        if self.is_full() { None } else { Some(Slot(self)) }
    }

    /// Publishes all posted frames to the consumer.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.tail.0.store(self.posted, Ordering::Release);
    }

    /// The next slot, which is free: its first `head_len` bytes, and the rest.
    #[inline(always)]
    fn parts_mut(&mut self, head_len: usize) -> (&mut [u8], &mut [u8]) {
        let ring = &*self.ring;
        // SAFETY: as in `Slot::bytes_mut`; the caller has checked that there is room.
        unsafe { core::slice::from_raw_parts_mut(ring.first_block(self.posted).cast(), ring.slot_blocks * BLOCK) }
            .split_at_mut(head_len)
    }

    /// Posts a frame whose head is in the next slot, which is free, and whose rest is lent. The
    /// caller keeps the mbuf of the rest (5).
    #[inline(always)]
    fn lend(&mut self, head_len: usize, rest: &[u8]) {
        let (ring, len) = (&*self.ring, head_len + rest.len());
        assert!(len <= ring.slot_blocks * BLOCK && len <= LENT_LEN_MAX, "lent is what would fit the slot");
        assert!(head_len <= HEAD_LEN_MAX, "a head longer than the mark can say");
        assert!(len > COPIED_LEN_MAX, "short frames are looked at in their slots");
        // SAFETY: inside the ring (4), free (1), and the address of a free slot is not read (6).
        unsafe { *ring.place_of(self.posted) = rest.as_ptr() };
        let mark = LONG | (head_len as u32) << HEAD_SHIFT;
        ring.len_of(self.posted).store(len as u32 | mark, Ordering::Relaxed);
        self.pass();
    }

    /// Posts a frame of `len` bytes that is wholly in the next slot, which is free.
    #[inline(always)]
    fn pass_filled(&mut self, len: usize) {
        assert!(len <= self.ring.slot_blocks * BLOCK, "a frame longer than its slot");
        self.ring.len_of(self.posted).store(len as u32, Ordering::Relaxed);
        self.pass();
    }
}

/// The payload of a frame being segmented, from the front.
struct Payload<'a> {
    buffers: Segments<'a>,
    /// The rest of the current buffer.
    buffer: &'a [u8],
    /// Bytes in this buffer and those behind it.
    left: usize,
}

impl<'a> Payload<'a> {
    /// The payload behind the headers, which are in the first buffer.
    fn behind(headers_len: usize, mbuf: &'a Mbuf) -> Self {
        let mut buffers = mbuf.segments();
        let first = buffers.next().unwrap_or(&[]);
        Self { buffers, buffer: &first[headers_len..], left: mbuf.len() - headers_len }
    }

    /// The next `len` bytes, if they are in one buffer.
    #[inline(always)]
    fn take_whole(&mut self, len: usize) -> Option<&'a [u8]> {
        if self.buffer.is_empty() {
            self.buffer = self.buffers.next().unwrap_or(&[]);
        }
        let (bytes, rest) = self.buffer.split_at_checked(len)?;
        (self.buffer, self.left) = (rest, self.left - len);
        Some(bytes)
    }

    /// Copies the next bytes into all of `place`, and returns it. Panics if there are too few.
    #[cold]
    fn gather<'p>(&mut self, place: &'p mut [u8]) -> &'p [u8] {
        let mut at = 0;
        while at < place.len() {
            let len = self.buffer.len().min(place.len() - at);
            if len == 0 {
                self.buffer = self.buffers.next().expect("no more is gathered than there is");
                continue;
            }
            let (bytes, rest) = self.buffer.split_at(len);
            place[at..at + len].copy_from_slice(bytes);
            (self.buffer, self.left, at) = (rest, self.left - len, at + len);
        }
        place
    }
}

impl Slot<'_> {
    /// The slot's whole length, with its old content.
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let ring = &*self.0.ring;
        // SAFETY: inside the ring and initialized (4), free (1), and accessed only by this producer
        // (3), which is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(ring.first_block(self.0.posted), ring.slot_blocks) }.as_flattened_mut()
    }

    /// Posts the slot with a copy of a frame of at most [`COPIED_LEN_MAX`] bytes; returns false,
    /// without an effect, if the frame is longer.
    #[inline(always)]
    pub(super) fn post_copy(mut self, frame: &[u8]) -> bool {
        let is_copied = self.copy(frame);
        if is_copied {
            self.0.pass();
        }
        is_copied
    }

    /// Writes such a copy and its length, without posting it.
    #[inline(always)]
    pub(super) fn copy(&mut self, frame: &[u8]) -> bool {
        let (ring, posted) = (&*self.0.ring, self.0.posted);
        // SAFETY: a slot has that many blocks (4); this slot is free (1), and only this producer,
        // which is borrowed mutably, accesses it (3).
        let place = unsafe { &mut *ring.first_block(posted).cast::<[u8; COPIED_LEN_MAX]>() };
        let Some(place) = place.get_mut(..frame.len()) else { return false };
        copy_frame(place, frame);
        // Computed last, so that no register is occupied by it during the copy.
        ring.len_of(posted).store(frame.len() as u32, Ordering::Relaxed);
        true
    }

    /// Posts the slot with a frame of `len` bytes in it. Panics if the slot is shorter.
    #[inline]
    pub(super) fn post(self, len: usize) {
        self.0.pass_filled(len);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.ring.producer_gone.store(true, Ordering::Release);
    }
}

impl LendingProducer {
    /// Wraps a producer that has posted nothing yet.
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

    /// As [`Producer::known_slot`].
    #[inline(always)]
    pub(super) fn known_slot(&mut self) -> Option<Slot<'_>> {
        self.producer.known_slot()
    }

    /// As [`Producer::publish`].
    #[inline]
    pub(super) fn publish(&mut self) {
        self.producer.publish();
    }

    /// Number of lent mbufs.
    pub(super) fn lent_count(&self) -> usize {
        self.lent_count as usize
    }

    /// Posts a frame of more than [`COPIED_LEN_MAX`] bytes in place. The frame is returned if the
    /// ring is full. Panics on a chain, on a shorter frame, and if a slot is shorter than the
    /// frame.
    #[inline]
    pub(super) fn post_lent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        if self.producer.room() == 0 {
            return Err(mbuf);
        }
        self.prepare(1);
        assert!(mbuf.is_linear(), "a chain is not in one place");
        self.producer.lend(0, mbuf.bytes());
        self.keep(mbuf);
        Ok(())
    }

    /// Posts the segments of a longer frame, all of them or none: the frame is returned if the ring
    /// has no room for all. `write_headers` receives the memory for each segment's headers, and the
    /// segment's payload. Payload in one buffer is lent if the segment is long enough; otherwise it
    /// is copied after the headers. Panics if a slot is shorter than a segment, or the headers are
    /// longer than [`HEAD_LEN_MAX`].
    pub(super) fn post_cut(
        &mut self,
        mbuf: Mbuf,
        cut: Cut,
        mut write_headers: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<(), Mbuf> {
        if self.producer.room() < cut.count && self.producer.refresh_room() < cut.count {
            return Err(mbuf);
        }
        self.prepare(cut.count);
        let mut payload = Payload::behind(cut.headers_len, &mbuf);
        let mut is_lent = false;
        for _ in 0..cut.count {
            let len = cut.segment_len.min(payload.left);
            let (headers, behind) = self.producer.parts_mut(cut.head_len);
            let is_long = cut.head_len + len > COPIED_LEN_MAX;
            let whole = if is_long { payload.take_whole(len) } else { None };
            write_headers(headers, whole.unwrap_or_else(|| payload.gather(&mut behind[..len])));
            match whole {
                Some(bytes) => {
                    self.producer.lend(cut.head_len, bytes);
                    is_lent = true;
                }
                None => self.producer.pass_filled(cut.head_len + len),
            }
        }
        match is_lent {
            true => self.keep(mbuf),
            false => mbuf.free(),
        }
        Ok(())
    }

    /// Prepares to lend in the next `count` slots, which are free.
    #[inline(always)]
    fn prepare(&mut self, count: u32) {
        let posted = self.producer.posted;
        if posted.wrapping_sub(self.reaped).wrapping_add(count - 1) > self.producer.ring.mask {
            // The slots were returned but not reaped: a later reap would mistake these frames for
            // those that were in the slots before.
            self.reap();
        }
        if self.lent_count == 0 {
            self.reaped = posted;
        }
    }

    /// Keeps the mbuf of the last posted frame or segments.
    #[inline(always)]
    fn keep(&mut self, mbuf: Mbuf) {
        let last = self.producer.posted.wrapping_sub(1);
        self.lent[(last & self.producer.ring.mask) as usize] = Some(mbuf);
        self.lent_count += 1;
    }

    /// Frees the mbufs whose slots were returned; returns how many.
    #[inline]
    pub(super) fn reap(&mut self) -> usize {
        if self.lent_count == 0 { 0 } else { self.reap_some() }
    }

    fn reap_some(&mut self) -> usize {
        let head = self.producer.look_at_head();
        let mut count = 0;
        // Frames before the first lent one may not be returned yet.
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

    /// Copies all lent frames into their slots, and frees the mbufs.
    #[cold]
    fn recall(&mut self) {
        self.producer.ring.take_guard();
        self.reap();
        while self.lent_count != 0 {
            self.producer.ring.settle(self.reaped);
            if let Some(mbuf) = self.lent[(self.reaped & self.producer.ring.mask) as usize].take() {
                mbuf.free();
                self.lent_count -= 1;
            }
            self.reaped = self.reaped.wrapping_add(1);
        }
        self.producer.ring.leave_guard();
    }
}

impl Drop for LendingProducer {
    fn drop(&mut self) {
        if self.lent_count != 0 {
            self.recall();
        }
    }
}

impl Consumer {
    /// Frames that can be read now; reads the producer's index only when all known frames are used
    /// up.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.head == self.tail {
            self.tail = self.ring.tail.0.load(Ordering::Acquire);
        }
        self.tail.wrapping_sub(self.head)
    }

    /// The `count` oldest frames. Panics if there are fewer, by [`Consumer::available`].
    #[inline]
    pub(super) fn frames(&mut self, count: u32) -> Frames<'_> {
        assert!(count <= self.tail.wrapping_sub(self.head), "read past the published frames");
        let (next, end) = (self.head, self.head.wrapping_add(count));
        Frames { ring: &self.ring, next, end, is_guarded: &mut self.is_guarded }
    }

    /// Returns the `count` oldest frames to the producer.
    #[inline]
    pub(super) fn give_back(&mut self, count: u32) {
        assert!(count <= self.tail.wrapping_sub(self.head), "give back more than was read");
        self.head = self.head.wrapping_add(count);
        self.ring.head.0.store(self.head, Ordering::Release);
        self.release_guard();
    }

    /// Releases the guard, after the last read of a long frame.
    #[inline]
    fn release_guard(&mut self) {
        if self.is_guarded {
            self.is_guarded = false;
            self.ring.leave_guard();
        }
    }

    /// Whether the producer is gone and all its frames were read.
    pub(super) fn is_ended(&self) -> bool {
        self.ring.producer_gone.load(Ordering::Acquire) && self.ring.tail.0.load(Ordering::Acquire) == self.head
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.release_guard();
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
    /// A frame's bytes: its headers at least, and the part that lies elsewhere.
    #[inline(always)]
    pub(super) fn bytes(&mut self, frame: &Frame<'a>) -> (&'a [u8], &'a [u8]) {
        self.parts(frame.index)
    }

    /// The bytes of the next frame, unless it is shorter than `len_min`. So runs of long frames are
    /// taken without a call for each.
    #[inline(always)]
    pub(super) fn next_of(&mut self, len_min: usize) -> Option<(&'a [u8], &'a [u8])> {
        if self.next == self.end {
            return None;
        }
        let index = self.next;
        // The mark makes a long frame's value larger.
        if (self.ring.len_of(index).load(Ordering::Relaxed) as usize) < len_min {
            return None;
        }
        self.next = index.wrapping_add(1);
        Some(self.parts(index))
    }

    /// The frame last returned, and those after it. A caller uses it to process some frames in a
    /// function that is not inlined, so that this iterator stays in registers.
    #[inline(always)]
    pub(super) fn from(&mut self, frame: &Frame<'a>) -> Frames<'_> {
        Frames { ring: self.ring, next: frame.index, end: self.end, is_guarded: self.is_guarded }
    }

    /// Continues behind the `count` frames from `frame` on. Panics if there are fewer.
    #[inline(always)]
    pub(super) fn go_on(&mut self, frame: &Frame<'a>, count: u32) {
        assert!(count <= self.end.wrapping_sub(frame.index), "more frames than there are");
        self.next = frame.index.wrapping_add(count);
    }

    /// Reads the length here, because a length read before the guard was taken may have lost its
    /// mark since (6).
    #[inline(always)]
    fn parts(&mut self, index: u32) -> (&'a [u8], &'a [u8]) {
        let ring = self.ring;
        let len = ring.len_of(index).load(Ordering::Relaxed);
        if len & LONG == 0 {
            // A producer that was just dropped may have written them (7).
            fence(Ordering::Acquire);
            // SAFETY: not marked.
            return (unsafe { ring.in_slot(index, len) }, &[]);
        }
        let len = if *self.is_guarded { len } else { self.look_again(index) };
        // SAFETY: the length was read with the guard (6).
        unsafe { ring.guarded(index, len) }
    }

    /// Takes the guard, and reads a frame's length again.
    #[inline(never)]
    fn look_again(&mut self, index: u32) -> u32 {
        self.ring.take_guard();
        *self.is_guarded = true;
        self.ring.len_of(index).load(Ordering::Relaxed)
    }
}

impl<'a> Frame<'a> {
    /// The line of a frame that fits one line, and its length.
    #[inline(always)]
    pub(super) fn line(&self) -> Option<(&'a [u8; BLOCK], usize)> {
        if self.len as usize > BLOCK {
            return None;
        }
        // SAFETY: the slot is inside the ring, has a block and is initialized (4), it is published
        // (2), a frame this short is never lent (7), and the producer does not touch the slot until
        // it is returned (1, 3), for which the consumer must be borrowed mutably.
        Some((unsafe { &*self.ring.first_block(self.index) }, self.len as usize))
    }

    /// The same for three lines.
    #[inline(always)]
    pub(super) fn lines(&self) -> Option<(&'a [[u8; BLOCK]; 3], usize)> {
        if self.len as usize > COPIED_LEN_MAX {
            return None;
        }
        // SAFETY: as in `line`, and the slot has three blocks.
        Some((unsafe { &*self.ring.first_block(self.index).cast() }, self.len as usize))
    }
}

impl FrameRing {
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

    /// The place of a long frame's address for the slot at `index`.
    #[inline]
    fn place_of(&self, index: u32) -> *mut *const u8 {
        // SAFETY: inside the ring (4).
        UnsafeCell::raw_get(unsafe { self.places.as_ptr().add((index & self.mask) as usize) })
    }

    /// The bytes of a long frame, or of a frame that its producer has copied into the slot because
    /// it was just dropped.
    ///
    /// # Safety
    /// The caller is the consumer, holds the guard, and has read the length since it took it.
    #[inline(always)]
    unsafe fn guarded(&self, index: u32, len: u32) -> (&[u8], &[u8]) {
        if len & LONG == 0 {
            // SAFETY: not marked; the producer wrote it before it released the guard.
            return (unsafe { self.in_slot(index, len) }, &[]);
        }
        let (head_len, rest_len) = parts_of(len);
        // SAFETY: the mark was seen with the guard (6), so the address points to that many bytes
        // (5), which stay there unchanged until the guard is released or the slot is returned, and
        // both need a mutable borrow of the consumer. The head is published like a frame in its
        // slot.
        let (head, rest) = unsafe {
            (self.in_slot(index, head_len), core::slice::from_raw_parts(*self.place_of(index), rest_len as usize))
        };
        if head.is_empty() { (rest, &[]) } else { (head, rest) }
    }

    /// A frame of `len` bytes in its slot. Panics if the slot is shorter.
    ///
    /// # Safety
    /// The caller is the consumer, and saw the frame published, with that length and not marked.
    #[inline]
    unsafe fn in_slot(&self, index: u32, len: u32) -> &[u8] {
        // SAFETY: the slot is inside the ring and initialized (4), it is published (2), and the
        // producer does not touch it until it is returned (1, 3), for which the consumer must be
        // borrowed mutably.
        let blocks = unsafe { core::slice::from_raw_parts(self.first_block(index), self.slot_blocks) };
        &blocks.as_flattened()[..len as usize]
    }

    /// Spins until the other side releases the guard, at most for a burst.
    fn take_guard(&self) {
        while self.guard.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
    }

    #[inline]
    fn leave_guard(&self) {
        self.guard.store(false, Ordering::Release);
    }

    /// Copies the lent part of the frame at `index` into its slot, behind its head. The caller is
    /// the producer, holds the guard and has the mbuf.
    fn settle(&self, index: u32) {
        let len = self.len_of(index).load(Ordering::Relaxed);
        if len & LONG == 0 {
            return;
        }
        let (head_len, rest_len) = parts_of(len);
        assert!((head_len + rest_len) as usize <= self.slot_blocks * BLOCK, "lent is what would fit the slot");
        // SAFETY: the address points to that many bytes (5), which are not in the slot, because
        // memory of the ring is never lent. The slot is inside the ring (4), and while the mark is
        // there the consumer reads neither its blocks nor, without the guard, the frame (5, 6).
        unsafe {
            let to = self.first_block(index).cast::<u8>().add(head_len as usize);
            core::ptr::copy_nonoverlapping(*self.place_of(index), to, rest_len as usize);
        }
        self.len_of(index).store(head_len + rest_len, Ordering::Release);
    }
}

/// The bytes of a frame's head and of its rest, from its marked length.
#[inline(always)]
fn parts_of(len: u32) -> (u32, u32) {
    let head_len = (len & !LONG) >> HEAD_SHIFT;
    (head_len, (len & LENT_LEN_MAX as u32) - head_len)
}
