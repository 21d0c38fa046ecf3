//! Appends records, and goes on where an earlier process ended.

use std::ops::Range;
use std::{error, fmt};

use zerocopy::FromBytes;

use super::cursor::Cursor;
use super::entry::Intent;
use super::layout::{HEADER_LEN, JournalError, RecordHeader, file_header, record_len, upgrade};
use super::reader::{Record, Records, Tail};

/// The times of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When it was appended, in nanoseconds since the epoch.
    pub at_ns: u64,
    /// When its cause happened: the arrival of the tick or of the answer, or the venue's time.
    pub event_ns: u64,
}

/// The record does not fit. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Bytes that it needs, with those that are kept for answers.
    pub needed: usize,
    /// Bytes that are left.
    pub left: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the journal has {} bytes left, and {} are needed", self.left, self.needed)
    }
}

impl error::Error for Full {}

/// What [`Journal::recover`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Records that were replayed.
    pub records: u64,
    /// What follows the last of them.
    pub tail: Tail,
}

/// Bytes of two records of an order and more.
const WARM_LEN: usize = 192;

/// A journal in `memory`: a mapped file, or a plain vector.
#[derive(Debug)]
pub struct Journal<M> {
    memory: M,
    id: u64,
    next: Cursor,
}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Journal<M> {
    /// An empty journal. `id` must never have been used for another one, because it tells the
    /// records of this journal from those that the memory may have had before. Requests leave
    /// `reserve` bytes for answers, so that a journal stops orders before it stops itself.
    pub fn create(mut memory: M, id: u64, created_ns: u64, reserve: usize) -> Result<Self, JournalError> {
        let (header, crc) = file_header(id, created_ns);
        memory.as_mut().get_mut(..HEADER_LEN).ok_or(JournalError::Short)?.copy_from_slice(&header);
        Ok(Self { memory, id, next: Cursor { end: HEADER_LEN, seq: 1, crc, reserve } })
    }

    /// Gives each record of an existing journal to `replay`, up to the first bad one, and goes on
    /// behind the last good one.
    pub fn recover(
        memory: M,
        reserve: usize,
        mut replay: impl FnMut(&Record<'_>),
    ) -> Result<(Self, Recovery), JournalError> {
        let mut records = Records::new(memory.as_ref())?;
        records.by_ref().for_each(|record| replay(&record));
        let (id, end, seq, crc) = (records.id(), records.end(), records.next_seq(), records.last_sum());
        let recovery = Recovery { records: seq - 1, tail: records.tail() };
        Ok((Self { memory, id, next: Cursor { end, seq, crc, reserve } }, recovery))
    }

    /// Gives a recovered journal the version of this program, before it gets records that an older
    /// one does not know: that one refuses the journal from now on. Costs one word.
    pub fn upgrade(&mut self) {
        if let Some(header) = self.memory.as_mut().first_chunk_mut() {
            upgrade(header);
        }
    }

    /// Appends an answer, or anything else that must not be lost. Returns its number. One copy and
    /// one sum over the record.
    ///
    /// Panics where the payload is longer than [`PAYLOAD_MAX`](super::PAYLOAD_MAX).
    pub fn append(&mut self, kind: u16, stamp: Stamp, payload: &[u8]) -> Result<u64, Full> {
        self.next.append(self.memory.as_mut(), (kind, stamp), payload, 0)
    }

    /// Appends what is about to be sent. If it does not fit, it must not be sent.
    ///
    /// Panics where the payload is longer than [`PAYLOAD_MAX`](super::PAYLOAD_MAX).
    pub fn append_request(&mut self, kind: u16, stamp: Stamp, payload: &[u8]) -> Result<u64, Full> {
        self.next.append(self.memory.as_mut(), (kind, stamp), payload, self.next.reserve)
    }

    /// [`Journal::append_request`] of an intent: one sum and one copy of constant length where it
    /// is a new order.
    #[inline]
    pub fn append_intent(&mut self, intent: &Intent, stamp: Stamp) -> Result<u64, Full> {
        self.next.append_intent(self.memory.as_mut(), intent, stamp)
    }

    /// Where the next record goes, and the memory.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut Cursor, &mut [u8]) {
        (&mut self.next, self.memory.as_mut())
    }

    /// Writes zeros where the next record goes, so that it finds the memory in the cache; they are
    /// no record. For a moment without hurry.
    pub fn warm(&mut self) {
        let end = self.next.end;
        if let Some(room) = self.memory.as_mut().get_mut(end..end + WARM_LEN) {
            room.fill(0);
        }
    }

    /// Appends the whole records at the start of `bytes`, which [`Journal::written`] of another
    /// process's copy of this journal returned. Returns the bytes that were taken, or `None` where
    /// they do not continue this copy.
    pub fn follow(&mut self, bytes: &[u8], mut replay: impl FnMut(&Record<'_>)) -> Option<usize> {
        let mut records = Records::behind(bytes, self.next.seq, self.next.crc);
        let mut taken = 0;
        while let Some(record) = records.next() {
            let place = self.memory.as_mut().get_mut(self.next.end + taken..self.next.end + records.end())?;
            place.copy_from_slice(&bytes[taken..records.end()]);
            taken = records.end();
            replay(&record);
        }
        let is_bad = records.is_bad();
        let Cursor { end, reserve, .. } = self.next;
        self.next = Cursor { end: end + taken, seq: records.next_seq(), crc: records.last_sum(), reserve };
        (!is_bad).then_some(taken)
    }

    /// The bytes of the records from the position `from` on, which [`Journal::end`] returned
    /// before; for a standby, and for a sync.
    pub fn written(&self, from: usize) -> &[u8] {
        self.memory.as_ref().get(from..self.next.end).unwrap_or_default()
    }

    /// The sum of the record that takes these positions, and so of all before it; `None` where they
    /// are none of a record.
    pub fn sum_of(&self, record: Range<usize>) -> Option<u32> {
        let memory = self.memory.as_ref().get(..self.next.end)?;
        let is_behind_header = record.start >= HEADER_LEN;
        let bytes = memory.get(record).filter(|_| is_behind_header)?;
        let (header, _) = RecordHeader::read_from_prefix(bytes).ok()?;
        (record_len(header.len.get() as usize) == bytes.len()).then_some(header.crc.get())
    }

    /// The file header, with which a standby begins.
    pub fn header(&self) -> &[u8] {
        &self.memory.as_ref()[..HEADER_LEN]
    }

    /// The journal's id.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The position behind the last record.
    pub const fn end(&self) -> usize {
        self.next.end
    }

    /// The number of the next record.
    pub const fn next_seq(&self) -> u64 {
        self.next.seq
    }

    /// How much of the room that requests may take is used, in percent; at most 100.
    pub fn percent_used(&self) -> u64 {
        let (used, room) = self.use_of_requests();
        (used * 100).checked_div(room).map_or(100, |percent| percent.min(100))
    }

    /// Whether so many percent of the room that requests may take are used.
    pub fn has_used(&self, percent: u64) -> bool {
        let (used, room) = self.use_of_requests();
        used * 100 >= room * percent
    }

    /// Bytes that are used, and those that requests may take.
    fn use_of_requests(&self) -> (u64, u64) {
        let room = self.memory.as_ref().len().saturating_sub(self.next.reserve).saturating_sub(HEADER_LEN);
        ((self.next.end - HEADER_LEN) as u64, room as u64)
    }

    /// The memory, to sync it.
    pub const fn memory(&self) -> &M {
        &self.memory
    }
}
