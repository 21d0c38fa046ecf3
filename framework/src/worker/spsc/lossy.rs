//! One writer that never waits, any number of readers that may lose events and know how many.
//!
//! ```text
//!   slot:  | stamp | the event's bytes, as 64-bit words |      event n lives in slot n & mask
//!   stamp: n while the slot holds event n, n - 1 while event n is being written
//! ```
//!
//! A reader that waits for event n loads the stamp of its slot. If the stamp is smaller, event n is
//! not written yet. If it is n, the reader copies the words and loads the stamp again; an unchanged
//! stamp proves that the copy is whole. If the stamp is larger, before or after the copy, the
//! writer has lapped the reader, and event n is lost. The reader then goes to the oldest event that
//! is not being overwritten, and reports how many it skipped, so for each reader: written since it
//! joined = read + lost + not read yet.
//!
//! The stamp is in the cache line of the event, so an event of up to 56 bytes moves between cores
//! as one line, and several readers slow the writer only by sharing that line.
//!
//! All of it is safe code: the words are atomics, so a read during a write returns a stale or mixed
//! value but is never undefined, and `T` is limited to types for which any bytes are a value (no
//! padding, no pointers). Numbers of events are `u64` and wrap; only differences count.

use core::marker::PhantomData;

use arrayvec::ArrayVec;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::capacity::{self, CapacityError};
use super::sync::{Arc, AtomicBool, AtomicU64, CachePadded, Ordering, fence};

/// A type that may travel over a lossy ring: plain bytes, copied freely. Implemented for every type
/// that qualifies.
pub trait Event: Copy + Send + FromBytes + IntoBytes + Immutable {}

impl<T: Copy + Send + FromBytes + IntoBytes + Immutable> Event for T {}

/// Makes a ring of `capacity` events (a power of two) and gives its writer; readers come from
/// [`Writer::reader`]. Allocates and touches `capacity` slots, each the event and 8 bytes, padded
/// to 16, 32 or a multiple of 64.
pub fn ring<T: Event>(capacity: usize) -> Result<Writer<T>, CapacityError> {
    ring_starting_at(capacity, 0)
}

/// The same with the number of the first event chosen, so that tests see the numbers wrap around.
pub(super) fn ring_starting_at<T: Event>(capacity: usize, start: u64) -> Result<Writer<T>, CapacityError> {
    let ring = BroadcastRing::new::<T>(capacity::check(capacity)?, start);
    Ok(Writer { next: start, ring: Arc::new(ring), event: PhantomData })
}

/// The writing end. There is one, it never waits and never fails.
#[repr(align(128))]
pub struct Writer<T: Event> {
    next: u64,
    ring: Arc<BroadcastRing>,
    event: PhantomData<fn(T)>,
}

impl<T: Event> Writer<T> {
    /// Writes one event over the oldest one. Visible to readers at once. Costs the copy and three
    /// stores, regardless of the readers.
    #[inline]
    pub fn push(&mut self, event: &T) {
        let (stamp, words) = self.ring.slot::<T>(self.next);
        stamp.store(self.next.wrapping_sub(1), Ordering::Relaxed);
        // A reader that sees one of the words below also sees, after its own fence, the stamp
        // above.
        fence(Ordering::Release);
        store(words, event);
        stamp.store(self.next, Ordering::Release);

        self.next = self.next.wrapping_add(1);
        self.ring.next.0.store(self.next, Ordering::Release);
    }

    /// Writes all `events` in order. A burst longer than the ring leaves its last events.
    #[inline]
    pub fn push_burst(&mut self, events: &[T]) {
        for event in events {
            self.push(event);
        }
    }

    /// A new reader, whose first event is the next one written.
    pub fn reader(&self) -> Reader<T> {
        Reader { next: self.next, read: 0, lost: 0, ring: Arc::clone(&self.ring), event: PhantomData }
    }

    /// No reader is left: events written now will never be read.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.ring) == 1
    }
}

impl<T: Event> Drop for Writer<T> {
    fn drop(&mut self) {
        self.ring.writer_gone.0.store(true, Ordering::Release);
    }
}

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// The next event, whole.
    Event(T),
    /// This many events were overwritten before they were read (at least 1). The reader is now
    /// behind them.
    Lost(u64),
    /// Nothing new.
    Empty,
}

/// A reading end. Each reader has its own position and its own counts.
#[repr(align(128))]
pub struct Reader<T: Event> {
    next: u64,
    read: u64,
    lost: u64,
    ring: Arc<BroadcastRing>,
    event: PhantomData<fn() -> T>,
}

impl<T: Event> Reader<T> {
    /// The next event and the number of events lost before it, or nothing. Costs one copy at most;
    /// never waits for the writer.
    #[inline]
    pub fn read(&mut self) -> Next<T> {
        match self.copy() {
            Copied::Whole(event) => {
                self.advance();
                Next::Event(event)
            }
            Copied::Overwritten => Next::Lost(self.skip_overwritten()),
            Copied::Nothing => Next::Empty,
        }
    }

    /// Reads events into the free room of `into` and returns how many were lost before the first of
    /// them. The events of one burst are consecutive: a loss in the middle ends the burst, and the
    /// next one reports it.
    #[inline]
    pub fn read_burst<const BURST: usize>(&mut self, into: &mut ArrayVec<T, BURST>) -> u64 {
        let len_before = into.len();
        let mut lost = 0;
        while !into.is_full() {
            match self.copy() {
                Copied::Whole(event) => {
                    self.advance();
                    into.push(event);
                }
                // Once per call: if the writer is faster still, the burst remains empty and the
                // call returns.
                Copied::Overwritten if lost == 0 && into.len() == len_before => lost = self.skip_overwritten(),
                Copied::Overwritten | Copied::Nothing => break,
            }
        }
        lost
    }

    /// Events read so far.
    pub fn read_count(&self) -> u64 {
        self.read
    }

    /// Events lost so far: overwritten before this reader reached them.
    pub fn lost_count(&self) -> u64 {
        self.lost
    }

    /// The writer is gone. Events left in the ring can still be read.
    pub fn is_closed(&self) -> bool {
        self.ring.writer_gone.0.load(Ordering::Acquire)
    }

    /// Copies the next event if it is there and was not overwritten during the copy.
    #[inline]
    fn copy(&self) -> Copied<T> {
        let (stamp, words) = self.ring.slot::<T>(self.next);
        // Acquire: the words of an event are stored before its stamp.
        let before = stamp.load(Ordering::Acquire);
        if before != self.next {
            // The distance is a multiple of the capacity, or one less; its sign distinguishes past
            // from future.
            let is_past = (before.wrapping_sub(self.next) as i64) < 0;
            return if is_past { Copied::Nothing } else { Copied::Overwritten };
        }
        let event = load(words);
        // If one of the words came from a later event, the stamp below is at least the mark of that
        // event's beginning.
        fence(Ordering::Acquire);
        if stamp.load(Ordering::Relaxed) != before {
            return Copied::Overwritten;
        }
        Copied::Whole(event)
    }

    #[inline]
    fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.read += 1;
    }

    /// Goes to the oldest event that is not overwritten, and returns how many that skips.
    #[cold]
    fn skip_overwritten(&mut self) -> u64 {
        let written = self.ring.next.0.load(Ordering::Acquire);
        // Event `written` may be under way already, in the slot of the oldest: that one is not
        // safe, the next one is.
        let oldest = written.wrapping_sub(self.ring.capacity).wrapping_add(1);
        // The count of written events may become visible later than the stamp that led here. This
        // event is lost in any case.
        let skipped = (oldest.wrapping_sub(self.next) as i64).max(1) as u64;
        self.next = self.next.wrapping_add(skipped);
        self.lost += skipped;
        skipped
    }
}

/// The result of one attempt to copy an event.
enum Copied<T> {
    Whole(T),
    Overwritten,
    Nothing,
}

/// The state that writer and readers share.
struct BroadcastRing {
    /// The number of the next event: new readers begin there, and overrun readers resynchronize by
    /// it.
    next: CachePadded<AtomicU64>,
    writer_gone: CachePadded<AtomicBool>,
    words: Box<[AtomicU64]>,
    /// The word at which the first slot begins, on a cache line boundary.
    first: usize,
    /// Words from one slot to the next.
    stride: usize,
    capacity: u64,
}

impl BroadcastRing {
    fn new<T>(capacity: usize, start: u64) -> Self {
        let stride = stride::<T>();
        let words: Box<[AtomicU64]> = (0..capacity * stride + LINE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let ring = Self {
            next: CachePadded(AtomicU64::new(start)),
            writer_gone: CachePadded(AtomicBool::new(false)),
            first: first_on_a_line(&words),
            words,
            stride,
            capacity: capacity as u64,
        };
        for offset in 0..ring.capacity {
            let event = start.wrapping_add(offset);
            let (stamp, _) = ring.slot::<T>(event);
            stamp.store(event.wrapping_sub(ring.capacity), Ordering::Relaxed);
        }
        ring
    }

    /// Stamp and words of the slot of an event.
    #[inline]
    fn slot<T>(&self, event: u64) -> (&AtomicU64, &[AtomicU64]) {
        let slot = (event & (self.capacity - 1)) as usize;
        let begin = self.first + slot * self.stride;
        let words = &self.words[begin..begin + 1 + words_of::<T>()];
        (&words[0], &words[1..])
    }
}

/// Words in a cache line.
const LINE_WORDS: usize = 8;

/// Words that a `T` fills, the last perhaps in part.
const fn words_of<T>() -> usize {
    size_of::<T>().div_ceil(size_of::<u64>())
}

/// Words of a slot such that no slot of up to a line straddles two, and longer ones begin on a
/// line.
const fn stride<T>() -> usize {
    let words = 1 + words_of::<T>();
    if words <= LINE_WORDS { words.next_power_of_two() } else { words.next_multiple_of(LINE_WORDS) }
}

fn first_on_a_line(words: &[AtomicU64]) -> usize {
    if size_of::<AtomicU64>() != size_of::<u64>() {
        return 0; // Loom's model of an atomic is larger, and has no cache lines.
    }
    words.as_ptr().align_offset(LINE_WORDS * size_of::<u64>())
}

/// Stores the bytes of `event`, eight at a time.
#[inline]
fn store<T: Event>(words: &[AtomicU64], event: &T) {
    let (whole, rest) = event.as_bytes().as_chunks::<8>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

/// Loads an event that `store` wrote. The value may be a mix of two events; the caller then
/// discards it.
#[inline]
fn load<T: Event>(words: &[AtomicU64]) -> T {
    let mut event = T::new_zeroed();
    let (whole, rest) = event.as_mut_bytes().as_chunks_mut::<8>();
    for (word, bytes) in words.iter().zip(whole.iter_mut()) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if !rest.is_empty() {
        let bytes = words[whole.len()].load(Ordering::Relaxed).to_ne_bytes();
        rest.copy_from_slice(&bytes[..rest.len()]);
    }
    event
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::thread;

    use super::*;

    /// Numbers wrap after ten events.
    const NEAR_THE_WRAP: u64 = u64::MAX - 9;

    fn ring_of_4(start: u64) -> (Writer<u32>, Reader<u32>) {
        let writer = ring_starting_at(4, start).unwrap();
        let reader = writer.reader();
        (writer, reader)
    }

    fn read_all(reader: &mut Reader<u32>) -> Vec<Next<u32>> {
        std::iter::repeat_with(|| reader.read()).take_while(|next| *next != Next::Empty).collect()
    }

    #[test]
    fn overrun_reader_learns_how_many_and_goes_on_with_the_oldest_safe_event() {
        for start in [0, NEAR_THE_WRAP] {
            let (mut writer, mut reader) = ring_of_4(start);
            writer.push_burst(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
            // 9 shares its slot with event 13, which may be under way.
            assert_eq!(
                read_all(&mut reader),
                [Next::Lost(10), Next::Event(10), Next::Event(11), Next::Event(12)],
                "from {start}"
            );
            assert_eq!((reader.read_count(), reader.lost_count()), (3, 10));
        }
    }

    #[test]
    fn reader_that_keeps_up_across_the_wrap_loses_nothing() {
        let (mut writer, mut reader) = ring_of_4(NEAR_THE_WRAP);
        for lap in 0..8 {
            writer.push_burst(&[lap, lap + 100, lap + 200]);
            assert_eq!(read_all(&mut reader), [lap, lap + 100, lap + 200].map(Next::Event));
        }
    }

    #[test]
    fn full_lap_is_read_whole_before_the_next_begins() {
        let (mut writer, mut reader) = ring_of_4(0);
        writer.push_burst(&[1, 2, 3, 4]);
        assert_eq!(read_all(&mut reader), [1, 2, 3, 4].map(Next::Event));
    }

    #[test]
    fn empty_ring_gives_nothing() {
        let (_writer, mut reader) = ring_of_4(0);
        let mut burst = ArrayVec::<u32, 4>::new();
        assert_eq!((reader.read(), reader.read_burst(&mut burst), burst.len()), (Next::Empty, 0, 0));
    }

    #[test]
    fn late_reader_begins_with_the_next_event() {
        let (mut writer, _reader) = ring_of_4(0);
        writer.push_burst(&[1, 2, 3]);
        let mut late = writer.reader();
        writer.push(&4);
        assert_eq!(read_all(&mut late), [Next::Event(4)]);
    }

    #[test]
    fn readers_keep_their_own_accounts() {
        let (mut writer, mut slow) = ring_of_4(0);
        let mut quick = writer.reader();
        for event in 0..6 {
            writer.push(&event);
            assert_eq!(quick.read(), Next::Event(event));
        }
        assert_eq!(slow.read(), Next::Lost(3));
        assert_eq!((quick.lost_count(), slow.lost_count()), (0, 3));
    }

    #[test]
    fn burst_reports_what_was_lost_before_it() {
        let (mut writer, mut reader) = ring_of_4(0);
        writer.push_burst(&[0, 1, 2, 3, 4, 5]);
        let mut burst = ArrayVec::<u32, 2>::new();
        assert_eq!((reader.read_burst(&mut burst), burst.as_slice()), (3, &[3, 4][..]));
    }

    #[test]
    fn events_of_any_length_come_out_as_they_went_in() {
        fn check<const LEN: usize>() {
            let mut writer = ring::<[u8; LEN]>(2).unwrap();
            let mut reader = writer.reader();
            let event = core::array::from_fn(|idx| idx as u8 ^ 0xa5);
            writer.push(&event);
            assert_eq!(reader.read(), Next::Event(event));
        }
        check::<0>();
        check::<1>();
        check::<7>();
        check::<8>();
        check::<13>();
        check::<56>();
        check::<57>();
        check::<200>();
    }

    #[test]
    fn slot_of_up_to_a_line_does_not_straddle_two() {
        let writer = ring::<[u64; 3]>(8).unwrap();
        for event in 0..8 {
            let (stamp, words) = writer.ring.slot::<[u64; 3]>(event);
            let line = |word: &AtomicU64| core::ptr::from_ref(word) as usize / 64;
            assert_eq!(line(stamp), line(&words[2]));
        }
    }

    #[test]
    fn dropped_peer_is_seen_by_either_end() {
        let (writer, reader) = ring_of_4(0);
        assert!(!reader.is_closed() && !writer.is_closed());
        drop(reader);
        assert!(writer.is_closed());
        let reader = writer.reader();
        drop(writer);
        assert!(reader.is_closed());
    }

    #[test]
    fn written_is_read_plus_lost_for_each_reader_and_nothing_is_torn() {
        let count: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let mut writer = ring_starting_at::<[u64; 5]>(16, u64::MAX - 100).unwrap();
        let readers: Vec<_> = [1, 8]
            .map(|pace| {
                let reader = writer.reader();
                thread::spawn(move || follow(reader, pace))
            })
            .into();
        for n in 0..count {
            writer.push(&[n, !n, n.rotate_left(17), n ^ 0x5555, n]);
            if n % 64 == 0 {
                thread::yield_now();
            }
        }
        drop(writer);
        for reader in readers {
            let (read, lost) = reader.join().unwrap();
            assert_eq!(read + lost, count, "read {read}, lost {lost}");
        }
    }

    /// Reads to the end, yields after each `pace` events, checks each event and each gap.
    fn follow(mut reader: Reader<[u64; 5]>, pace: u64) -> (u64, u64) {
        let mut expected = 0;
        loop {
            let closed = reader.is_closed(); // Before the read: what was written before the drop is seen by it.
            match reader.read() {
                Next::Event([n, inverse, rotated, xored, again]) => {
                    assert_eq!(n, expected);
                    assert_eq!([inverse, rotated, xored, again], [!n, n.rotate_left(17), n ^ 0x5555, n]);
                    expected += 1;
                }
                Next::Lost(count) => expected += count,
                Next::Empty if closed => return (reader.read_count(), reader.lost_count()),
                Next::Empty => thread::yield_now(),
            }
            if expected % pace == 0 {
                thread::yield_now();
            }
        }
    }
}
