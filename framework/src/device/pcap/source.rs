//! The source of a replay's records: the file during the replay, or memory that was filled before
//! the start.

use super::input::ByteOrder;
use super::reader::Found;
use super::{End, Error, Problem, Reader};

pub(super) enum Source {
    Stream(Reader),
    Arena(Arena),
}

impl Source {
    /// The place of the next record, valid until the next call.
    #[inline]
    pub(super) fn find(&mut self) -> Result<Option<Found>, Error> {
        match self {
            Self::Stream(reader) => reader.find(),
            Self::Arena(arena) => arena.find(),
        }
    }

    /// The bytes of the last record found.
    #[inline]
    pub(super) fn bytes(&self, found: &Found) -> &[u8] {
        match self {
            Self::Stream(reader) => reader.bytes(found),
            Self::Arena(arena) => &arena.records[found.range.clone()],
        }
    }

    /// How the capture ended, once all records were found.
    pub(super) fn end(&self) -> Option<End> {
        match self {
            Self::Stream(reader) => reader.end(),
            Self::Arena(arena) => arena.end,
        }
    }
}

/// All records of a capture, consecutive in memory, so that a replay reads memory in one direction:
/// `timestamp 8 | original length 4 | length 4 | bytes`.
pub(super) struct Arena {
    records: Vec<u8>,
    at: usize,
    end: Option<End>,
    /// The error that ended the reading of a damaged file, until the replay reaches it.
    error: Option<Error>,
}

const HEADER_LEN: usize = 16;

impl Arena {
    /// Reads the whole capture, if it needs at most `len_max` bytes. Damage in the file is no error
    /// here: the records before it are replayed.
    pub(super) fn load(mut reader: Reader, len_max: usize) -> Result<Self, Error> {
        let mut arena = Self { records: Vec::new(), at: 0, end: None, error: None };
        loop {
            match reader.next() {
                Ok(Some(record)) if arena.records.len() + HEADER_LEN + record.bytes.len() <= len_max => {
                    arena.records.extend_from_slice(&record.timestamp_ns.to_le_bytes());
                    arena.records.extend_from_slice(&record.original_len.to_le_bytes());
                    arena.records.extend_from_slice(&(record.bytes.len() as u32).to_le_bytes());
                    arena.records.extend_from_slice(record.bytes);
                }
                Ok(Some(_)) => {
                    let (name, offset) = (reader.name().to_string(), reader.offset());
                    return Err(Error { name, offset, problem: Problem::TooLarge(len_max) });
                }
                Ok(None) => break,
                Err(error) => {
                    arena.error = Some(error);
                    break;
                }
            }
        }
        arena.end = reader.end();
        Ok(arena)
    }

    #[inline]
    fn find(&mut self) -> Result<Option<Found>, Error> {
        if self.at == self.records.len() {
            return self.error.take().map_or(Ok(None), Err);
        }
        let timestamp_ns = ByteOrder::Little.u64(&self.records, self.at);
        let original_len = ByteOrder::Little.u32(&self.records, self.at + 8);
        let len = ByteOrder::Little.u32(&self.records, self.at + 12) as usize;
        let start = self.at + HEADER_LEN;
        self.at = start + len;
        Ok(Some(Found { timestamp_ns, original_len, range: start..start + len }))
    }
}
