//! The ring between a worker and its listeners: one writer that never waits, readers that may be
//! overrun and know by how much.
//!
//! ```text
//!   record: | kept, original len | kind | time | rx before | tx before | the frame's bytes, in words |
//!   CLAIMED ── raised before a record is written: everything older than CLAIMED - capacity may be overwritten
//!   WRITTEN ── raised after it: every record before WRITTEN is whole
//! ```
//!
//! Positions count words since the ring was made and only grow; position p is at index p modulo the
//! capacity. A reader copies the words between its own position and `WRITTEN`, then reads
//! `CLAIMED`. If `CLAIMED` has not lapped the reader's start, the copy is whole. Otherwise the
//! reader continues from a mark, a position where a record begins. Each record has the number of
//! frames received and sent before it, so the number of missed frames is exact.
//!
//! The writer's words are atomics; the reader works on copies of them and trusts no length in them.
//! All of it is safe code. Under `--cfg loom` the same code runs on loom's model of atomics.

use std::io;

use super::layout::{CLAIMED, MARKS, MARKS_LEN, RING, RX_FRAMES, TX_FRAMES, WRITTEN};

#[cfg(not(loom))]
use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};
use zerocopy::IntoBytes;

/// Words before a frame's bytes.
const HEAD: usize = 5;
/// Most bytes of a frame in a record: the longest IP packet with its Ethernet header would be
/// 65,549, and no device here accepts one; a longer frame is truncated, and its record shows it.
pub(super) const SNAP_MAX: usize = 65_528;
/// Words of the longest record.
const RECORD_WORDS_MAX: usize = HEAD + SNAP_MAX / 8;
/// Words that a reader copies at a time: 256 KiB stay in a core's own cache until they are parsed.
const COPY_WORDS: usize = 32_768;
/// Overruns that a reader retries in one call before it skips to the newest record.
const RESYNCS_MAX: usize = 4;
/// Attempts of a reader to join a busy ring before it gives up.
const JOINS_MAX: usize = 64;
/// Records without a frame that a reader skips per call.
const EMPTY_RECORDS_MAX: usize = 4_096;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It was received.
    Rx,
    /// It was sent.
    Tx,
}

/// Frames received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Received.
    pub rx: u64,
    /// Sent.
    pub tx: u64,
}

/// The header of a record. Without a direction it holds no frame: the device did not accept the
/// frame after all, or the record only updates the frame counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) direction: Option<Direction>,
    /// The tag that the NIC stripped or will insert.
    pub(super) vlan: Option<u16>,
    pub(super) timestamp_ns: u64,
    /// Frames before this one.
    pub(super) before: FrameCounts,
}

impl Head {
    const VOID: u64 = 0;
    const RX: u64 = 1;
    const TX: u64 = 2;
    const HAS_VLAN: u64 = 1 << 8;

    fn kind(&self) -> u64 {
        let direction = match self.direction {
            None => Self::VOID,
            Some(Direction::Rx) => Self::RX,
            Some(Direction::Tx) => Self::TX,
        };
        direction | self.vlan.map_or(0, |tci| Self::HAS_VLAN | u64::from(tci) << 16)
    }

    /// Decodes the words of a record, which may hold anything.
    fn read(words: &[u64; HEAD]) -> Result<Self, RingEnd> {
        let direction = match words[1] & 0xff {
            Self::VOID => None,
            Self::RX => Some(Direction::Rx),
            Self::TX => Some(Direction::Tx),
            _ => return Err(RingEnd::Damaged),
        };
        let vlan = (words[1] & Self::HAS_VLAN != 0).then_some((words[1] >> 16) as u16);
        let before = FrameCounts { rx: words[3], tx: words[4] };
        Ok(Self { direction, vlan, timestamp_ns: words[2], before })
    }

    /// Frames up to and including this record.
    fn after(&self) -> FrameCounts {
        let FrameCounts { rx, tx } = self.before;
        match self.direction {
            None => self.before,
            Some(Direction::Rx) => FrameCounts { rx: rx.wrapping_add(1), tx },
            Some(Direction::Tx) => FrameCounts { rx, tx: tx.wrapping_add(1) },
        }
    }
}

/// The words on the writer's side.
pub(super) trait Words {
    fn load(&self, idx: usize, order: Ordering) -> u64;
    fn store(&self, idx: usize, value: u64, order: Ordering);

    /// Stores bytes unchanged, eight per word, in any order.
    fn store_bytes(&self, first: usize, chunks: &[[u8; 8]]) {
        for (idx, chunk) in (first..).zip(chunks) {
            self.store(idx, u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }
}

/// The words on a reader's side.
pub(super) trait Copies {
    /// Copies words from `first` on. A word may be old or new, but not half of each.
    fn copy(&self, first: usize, into: &mut [u64]) -> io::Result<()>;
}

/// The writing end. There is one, and it never waits for a reader.
pub(super) struct Writer<M> {
    words: M,
    capacity: u64,
    /// Position of the next record.
    next: u64,
    /// End of the record being written.
    end: u64,
    /// The block whose mark was set last.
    marked: u64,
}

impl<M: Words> Writer<M> {
    /// A writer over the words of a new file, all zero, whose ring has `capacity` words.
    pub(super) fn new(words: M, capacity: u64) -> Self {
        assert!(capacity.is_power_of_two(), "a ring's capacity is a power of two");
        Self { words, capacity, next: 0, end: 0, marked: u64::MAX }
    }

    pub(super) fn words(&self) -> &M {
        &self.words
    }

    /// Writes the first bytes of a frame of `len` bytes, at most `snap` of them. [`Writer::seal`]
    /// follows. Costs about a store per eight bytes.
    pub(super) fn offer<'a>(&mut self, len: usize, snap: usize, segments: impl Iterator<Item = &'a [u8]>) {
        let kept = len.min(snap);
        self.end = self.next + (HEAD + kept.div_ceil(8)) as u64;
        self.words.store(CLAIMED, self.end, Ordering::Relaxed);
        // A reader that sees one of the words below also sees, after its own fence, the claim
        // above.
        fence(Ordering::Release);
        self.put(self.next, kept as u64 | (len as u64) << 32);
        let mut pen = RingWriter { at: self.next + HEAD as u64, partial: 0, filled: 0 };
        let mut room = kept;
        for segment in segments {
            let part = &segment[..segment.len().min(room)];
            pen.write(self, part);
            room -= part.len();
        }
        pen.finish(self);
    }

    /// Completes the offered record and publishes it to readers.
    pub(super) fn seal(&mut self, head: &Head) {
        let words = [head.kind(), head.timestamp_ns, head.before.rx, head.before.tx];
        for (position, word) in (self.next + 1..).zip(words) {
            self.put(position, word);
        }
        let block = self.next / block_words(self.capacity);
        if block != self.marked {
            self.marked = block;
            self.words.store(MARKS + block as usize % MARKS_LEN, self.next, Ordering::Relaxed);
        }
        let after = head.after();
        self.words.store(RX_FRAMES, after.rx, Ordering::Relaxed);
        self.words.store(TX_FRAMES, after.tx, Ordering::Relaxed);
        self.next = self.end;
        self.words.store(WRITTEN, self.end, Ordering::Release);
    }

    /// Stores bytes from a position on, in two parts if they wrap around the end of the ring.
    #[inline]
    fn put_bytes(&self, position: u64, chunks: &[[u8; 8]]) {
        let begin = (position & (self.capacity - 1)) as usize;
        let (first, second) = chunks.split_at(chunks.len().min(self.capacity as usize - begin));
        self.words.store_bytes(RING + begin, first);
        self.words.store_bytes(RING, second);
    }

    #[inline]
    fn put(&self, position: u64, word: u64) {
        self.words.store(RING + (position & (self.capacity - 1)) as usize, word, Ordering::Relaxed);
    }
}

/// The writer's place within a frame: bytes are stored eight at a time, for any lengths of
/// segments.
struct RingWriter {
    at: u64,
    /// Bytes that do not fill a word yet, the first in the lowest byte.
    partial: u64,
    filled: u32,
}

impl RingWriter {
    #[inline]
    fn write<M: Words>(&mut self, writer: &Writer<M>, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        if self.filled == 0 {
            writer.put_bytes(self.at, whole);
            self.at += whole.len() as u64;
        } else {
            for chunk in whole {
                let chunk = u64::from_le_bytes(*chunk);
                self.put(writer, self.partial | chunk << (8 * self.filled));
                self.partial = chunk >> (64 - 8 * self.filled);
            }
        }
        for byte in rest {
            self.partial |= u64::from(*byte) << (8 * self.filled);
            self.filled += 1;
            if self.filled == 8 {
                self.put(writer, self.partial);
                (self.partial, self.filled) = (0, 0);
            }
        }
    }

    fn finish<M: Words>(mut self, writer: &Writer<M>) {
        if self.filled > 0 {
            self.put(writer, self.partial);
        }
    }

    #[inline]
    fn put<M: Words>(&mut self, writer: &Writer<M>, word: u64) {
        // In memory the bytes have the order of the frame, on machines of either byte order.
        writer.put(self.at, word.to_le());
        self.at += 1;
    }
}

/// Why a ring yields no more records.
#[derive(Debug)]
pub(super) enum RingEnd {
    Io(io::Error),
    /// Its content was not written by this writer's code.
    Damaged,
}

impl From<io::Error> for RingEnd {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A reading end. Each has its own position and its own counts.
pub(super) struct Reader<C> {
    words: C,
    capacity: u64,
    /// The position of the next record.
    next: u64,
    /// Frames up to that position.
    seen: FrameCounts,
    missed: FrameCounts,
    /// `buffer[at..filled]` is a copy of the ring from `next` on.
    buffer: Vec<u64>,
    at: usize,
    filled: usize,
}

/// A frame in a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) direction: Direction,
    pub(super) vlan: Option<u16>,
    pub(super) timestamp_ns: u64,
    pub(super) original_len: usize,
    pub(super) bytes: &'a [u8],
}

impl<C: Copies> Reader<C> {
    /// A reader without a position: [`Reader::join`] sets it. `capacity` is that of the ring, a
    /// power of two.
    pub(super) fn new(words: C, capacity: u64) -> Self {
        let buffer = vec![0; COPY_WORDS.min(capacity as usize)];
        let (seen, missed) = (FrameCounts::default(), FrameCounts::default());
        Self { words, capacity, next: 0, seen, missed, buffer, at: 0, filled: 0 }
    }

    /// Skips to the newest record: the first one read will be the next one written. False if the
    /// writer was in the middle of one each time: try again.
    pub(super) fn join(&mut self) -> Result<bool, RingEnd> {
        for _ in 0..JOINS_MAX {
            self.next = self.load(WRITTEN)?;
            // The counts are stored after a claim and before `WRITTEN` is raised. If neither has
            // moved meanwhile, the counts belong to that position.
            self.seen = FrameCounts { rx: self.load(RX_FRAMES)?, tx: self.load(TX_FRAMES)? };
            if self.load(CLAIMED)? == self.next {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn words(&self) -> &C {
        &self.words
    }

    /// Frames that were overwritten before this reader reached them.
    pub(super) fn missed(&self) -> FrameCounts {
        self.missed
    }

    /// The next frame, or none. Never waits for the writer.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, RingEnd> {
        for _ in 0..EMPTY_RECORDS_MAX {
            let len = match self.whole_record()? {
                Some(len) => len,
                None if !self.refill()? => return Ok(None),
                // The writer publishes whole records, and the longest fits the buffer.
                None => self.whole_record()?.ok_or(RingEnd::Damaged)?,
            };
            let start = self.at;
            let head: &[u64; HEAD] = self.buffer[start..].first_chunk().ok_or(RingEnd::Damaged)?;
            let (lens, head) = (head[0], Head::read(head)?);
            self.account(&head)?;
            self.at += len;
            self.next = self.next.wrapping_add(len as u64);
            let Some(direction) = head.direction else { continue };
            let bytes = &self.buffer[start + HEAD..start + len].as_bytes()[..lens as u32 as usize];
            let original_len = (lens >> 32) as usize;
            let Head { vlan, timestamp_ns, .. } = head;
            return Ok(Some(Record { direction, vlan, timestamp_ns, original_len, bytes }));
        }
        Ok(None)
    }

    /// The words of the next record, if the buffer has all of it.
    fn whole_record(&self) -> Result<Option<usize>, RingEnd> {
        let held = self.filled - self.at;
        if held < HEAD {
            return Ok(None);
        }
        let lens = self.buffer[self.at];
        let kept = lens as u32 as usize;
        if kept > SNAP_MAX || kept > (lens >> 32) as usize {
            return Err(RingEnd::Damaged);
        }
        let len = HEAD + kept.div_ceil(8);
        Ok((len <= held).then_some(len))
    }

    /// Takes over the counts of a record: the difference to the last ones was missed.
    fn account(&mut self, head: &Head) -> Result<(), RingEnd> {
        let (Some(rx), Some(tx)) = (head.before.rx.checked_sub(self.seen.rx), head.before.tx.checked_sub(self.seen.tx))
        else {
            return Err(RingEnd::Damaged);
        };
        self.missed.rx = self.missed.rx.saturating_add(rx);
        self.missed.tx = self.missed.tx.saturating_add(tx);
        self.seen = head.after();
        Ok(())
    }

    /// Copies new words, as many as the buffer holds; false if there are none.
    fn refill(&mut self) -> Result<bool, RingEnd> {
        (self.at, self.filled) = (0, 0);
        for _ in 0..RESYNCS_MAX {
            let waiting = self.load(WRITTEN)?.wrapping_sub(self.next);
            if waiting == 0 {
                return Ok(false);
            }
            if waiting <= self.capacity {
                let len = self.buffer.len().min(waiting as usize);
                self.copy_ring(len)?;
                if self.load(CLAIMED)?.wrapping_sub(self.next) <= self.capacity {
                    self.filled = len;
                    return Ok(true);
                }
            }
            self.resync()?;
        }
        self.next = self.load(WRITTEN)?;
        Ok(false)
    }

    /// After an overrun: skips to the first record behind the oldest quarter of the ring, which the
    /// writer overwrites next.
    fn resync(&mut self) -> Result<(), RingEnd> {
        let mut marks = [0; MARKS_LEN];
        let (written, claimed) = (self.load(WRITTEN)?, self.load(CLAIMED)?);
        self.copy(MARKS, &mut marks)?;
        if (written.wrapping_sub(self.next) as i64) < 0 {
            return Err(RingEnd::Damaged);
        }
        let block_words = block_words(self.capacity);
        let safe = claimed.wrapping_sub(self.capacity - self.capacity / 4);
        let blocks = ((safe / block_words).saturating_add(1)..=written / block_words).take(MARKS_LEN);
        let marks = blocks.map(|block| (block, marks[block as usize % MARKS_LEN]));
        let mut sound = marks.filter(|&(block, mark)| mark / block_words == block && mark <= written);
        self.next = sound.next().map_or(written, |(_, mark)| mark);
        Ok(())
    }

    /// Copies `len` words of the ring from the reader's position on, in two parts if they wrap
    /// around its end.
    fn copy_ring(&mut self, len: usize) -> io::Result<()> {
        let begin = (self.next & (self.capacity - 1)) as usize;
        let (first, second) = self.buffer[..len].split_at_mut(len.min(self.capacity as usize - begin));
        self.words.copy(RING + begin, first)?;
        if !second.is_empty() {
            self.words.copy(RING, second)?;
        }
        fence(Ordering::Acquire);
        Ok(())
    }

    fn load(&self, idx: usize) -> io::Result<u64> {
        let mut word = [0];
        self.copy(idx, &mut word)?;
        Ok(word[0])
    }

    /// Copies words; later reads are at least as new.
    fn copy(&self, first: usize, into: &mut [u64]) -> io::Result<()> {
        self.words.copy(first, into)?;
        fence(Ordering::Acquire);
        Ok(())
    }
}

/// Words of a block; each block has a mark.
fn block_words(capacity: u64) -> u64 {
    (capacity / MARKS_LEN as u64).max(1)
}

/// A ring must hold several of the longest records, or a reader would be overrun by one.
pub(super) const CAPACITY_MIN: u64 = (4 * RECORD_WORDS_MAX).next_power_of_two() as u64;
const _: () = assert!(COPY_WORDS >= RECORD_WORDS_MAX && COPY_WORDS as u64 <= CAPACITY_MIN);

#[cfg(test)]
pub(super) mod tests;
