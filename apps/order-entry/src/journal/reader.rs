//! Reads records up to the first bad one.

use zerocopy::FromBytes;

use super::layout::{
    HEADER_LEN, JournalError, PAYLOAD_MAX, RECORD_HEADER_LEN, RecordHeader, parse_file_header, record_len, sum,
};
use super::writer::Stamp;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number, from 1 on.
    pub seq: u64,
    /// What it is: [`Entry`](super::Entry) names its own kinds.
    pub kind: u16,
    /// Its times.
    pub stamp: Stamp,
    /// Its content.
    pub payload: &'a [u8],
}

/// What follows the last good record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Zeros: nothing was appended.
    Clean,
    /// The memory's end.
    Full,
    /// Other bytes: an append that was cut short, a damaged record, or what the memory had before.
    Torn,
}

/// Bytes behind the last good record that are no zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Where they begin: behind the last good record.
    pub start: usize,
    /// As many as there are up to the last one that is no zero.
    pub len: usize,
    /// They are more than one record that was cut short: records that were whole once lie behind a
    /// damaged one, or behind a page that a power cut took.
    pub is_damage: bool,
}

/// The records of a journal, in order. An iterator that ends at the first bad one.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    memory: &'a [u8],
    id: u64,
    end: usize,
    seq: u64,
    crc: u32,
}

/// A place behind a whole record, from where a reader goes on when the memory has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    id: u64,
    end: usize,
    seq: u64,
    crc: u32,
}

impl Mark {
    /// The journal's id.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its position.
    pub const fn end(&self) -> usize {
        self.end
    }
}

impl<'a> Records<'a> {
    /// The records in `memory`, which begins with the file header.
    pub fn new(memory: &'a [u8]) -> Result<Self, JournalError> {
        let (id, crc) = parse_file_header(memory)?;
        Ok(Self { memory, id, end: HEADER_LEN, seq: 1, crc })
    }

    /// The records behind `mark`, where `memory` has grown since. What is before is not read again,
    /// unless it is another journal now: then its records from the first on.
    pub fn behind_mark(memory: &'a [u8], mark: Mark) -> Result<Self, JournalError> {
        let anew = Self::new(memory)?;
        let Mark { id, end, seq, crc } = mark;
        Ok(if anew.id == id && end <= memory.len() { Self { end, seq, crc, ..anew } } else { anew })
    }

    /// The place behind the last record that was returned.
    pub const fn mark(&self) -> Mark {
        Mark { id: self.id, end: self.end, seq: self.seq, crc: self.crc }
    }

    /// Records without a file header, behind the one with the sum `crc`.
    pub(super) const fn behind(bytes: &'a [u8], seq: u64, crc: u32) -> Self {
        Self { memory: bytes, id: 0, end: 0, seq, crc }
    }

    /// The journal's id.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The position behind the last record that was returned.
    pub const fn end(&self) -> usize {
        self.end
    }

    /// The number of the next record.
    pub const fn next_seq(&self) -> u64 {
        self.seq
    }

    /// The sum of the last record that was returned, and so of all before it.
    pub const fn last_sum(&self) -> u32 {
        self.crc
    }

    /// What follows the last record. Ask it when the iterator has ended.
    pub fn tail(&self) -> Tail {
        let rest = &self.memory[self.end..];
        match rest.get(..RECORD_HEADER_LEN) {
            None if rest.iter().all(|byte| *byte == 0) => Tail::Full,
            Some(header) if header.iter().all(|byte| *byte == 0) => Tail::Clean,
            _ => Tail::Torn,
        }
    }

    /// What lies behind the last record, other than zeros. Ask it when the iterator has ended.
    /// Costs a look at all of the memory that is left.
    pub fn remains(&self) -> Option<Remains> {
        const ZEROS: [u8; 4_096] = [0; 4_096];
        let rest = &self.memory[self.end..];
        let last = rest.chunks(ZEROS.len()).rposition(|chunk| *chunk != ZEROS[..chunk.len()])?;
        let before = last * ZEROS.len();
        let len = before + rest[before..rest.len().min(before + ZEROS.len())].iter().rposition(|byte| *byte != 0)? + 1;
        let next = self.header().map_or(0, |header| header.len.get() as usize);
        // A header that says too much was never one of ours.
        let next = if next > PAYLOAD_MAX { RECORD_HEADER_LEN } else { record_len(next) };
        Some(Remains { start: self.end, len, is_damage: len > next })
    }

    /// Whether a whole record follows that is none of this journal, rather than a part of one.
    pub(super) fn is_bad(&self) -> bool {
        match self.header() {
            Some(header) => {
                let len = header.len.get() as usize;
                len > PAYLOAD_MAX || self.memory.len() - self.end >= record_len(len)
            }
            None => false,
        }
    }

    fn header(&self) -> Option<RecordHeader> {
        RecordHeader::read_from_prefix(self.memory.get(self.end..)?).ok().map(|(header, _)| header)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let header = self.header()?;
        let len = header.len.get() as usize;
        if len > PAYLOAD_MAX || header.seq.get() != self.seq {
            return None;
        }
        let record = self.memory.get(self.end..self.end + record_len(len))?;
        let crc = sum(self.crc, header.len.get(), record);
        if crc != header.crc.get() {
            return None;
        }
        self.crc = crc;
        self.seq += 1;
        self.end += record.len();
        Some(Record {
            seq: header.seq.get(),
            kind: header.kind.get(),
            stamp: Stamp { at_ns: header.at_ns.get(), event_ns: header.event_ns.get() },
            payload: &record[RECORD_HEADER_LEN..RECORD_HEADER_LEN + len],
        })
    }
}
