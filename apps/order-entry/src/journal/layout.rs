//! The bytes of the file's header and of a record's.

use std::{error, fmt};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::StrategyName;
use super::instruments::MissingInstrument;
use super::strategies::MissingStrategy;

/// Bytes before the first record.
pub const HEADER_LEN: usize = 64;
/// Bytes before a record's payload.
pub const RECORD_HEADER_LEN: usize = 40;
/// Bytes of the longest payload: the longest message of a session with a length of two bytes.
pub const PAYLOAD_MAX: usize = u16::MAX as usize;

const MAGIC: [u8; 8] = *b"WPORDERS";
/// The version that is written. Version 2 has openings, corrections with an id of their own, and
/// symbols of what is unblocked: a program that passes over them has wrong positions. Version 3 has
/// instructions of orders: one that does not know them replaces an order by another one.
const VERSION: u32 = 3;
/// The first version that is read.
const FIRST: u32 = 1;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileHeader {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    id: U64,
    created_ns: U64,
    zero: [u8; 32],
}

/// A record's header. The payload follows, with zeros up to a multiple of eight.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RecordHeader {
    /// Over everything behind `len`, from the sum of the record before and the length.
    pub(super) crc: U32,
    /// Bytes of the payload.
    pub(super) len: U32,
    pub(super) seq: U64,
    pub(super) at_ns: U64,
    pub(super) event_ns: U64,
    pub(super) kind: U16,
    pub(super) zero: [u8; 6],
}

impl FileHeader {
    /// The sum of the header with another `version`.
    fn sum_as(&self, version: u32) -> u32 {
        crc32c::crc32c(Self { version: version.into(), crc: 0.into(), ..*self }.as_bytes())
    }

    /// From which the first record's sum starts: the same in each version, so that a journal may be
    /// given another one.
    fn start(&self) -> u32 {
        self.sum_as(FIRST)
    }
}

const _: () = assert!(size_of::<FileHeader>() == HEADER_LEN);
const _: () = assert!(size_of::<RecordHeader>() == RECORD_HEADER_LEN);

/// Bytes that `crc` and `len` take, which the sum does not cover.
const UNCOVERED: usize = 8;

/// Memory that is no journal, has no room for one, or is of other instruments or another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalError {
    /// It is shorter than the file header.
    Short,
    /// It does not begin as a journal.
    NotAJournal,
    /// It is a journal of another version.
    Version(u32),
    /// The sum of the file header is wrong.
    HeaderSum,
    /// The run has no limits for an instrument of which the journal has shares or live orders.
    Missing(MissingInstrument),
    /// The run has no limits for a strategy of which the journal has live orders.
    MissingStrategy(MissingStrategy),
    /// The run has no limits for a strategy that was stopped.
    StoppedStrategy(StrategyName),
    /// So many records are of kinds that this program does not know.
    Unknown(u64),
    /// The run has older limits than those that were in force.
    StaleLimits {
        /// The version of those.
        journal: u64,
        /// That of the run's.
        offered: u64,
    },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "a journal has at least {HEADER_LEN} bytes"),
            Self::NotAJournal => f.write_str("the file is no order journal"),
            Self::Version(version) => {
                write!(f, "the journal has version {version}, this program reads {FIRST} to {VERSION}")
            }
            Self::HeaderSum => f.write_str("the sum of the journal's header is wrong"),
            Self::Missing(missing) => missing.fmt(f),
            Self::MissingStrategy(missing) => missing.fmt(f),
            Self::StoppedStrategy(name) => {
                write!(f, "there are no limits for the strategy {name}, which is stopped in the journal")
            }
            Self::Unknown(records) => {
                write!(f, "this program does not know the kinds of {records} of the journal's records")
            }
            Self::StaleLimits { journal, offered } => write!(
                f,
                "limits of version {offered} are older than those of version {journal}, which were in force by the \
                 journal"
            ),
        }
    }
}

impl error::Error for JournalError {}

/// The file header of the journal `id`, and the sum from which the first record's starts.
pub(super) fn file_header(id: u64, created_ns: u64) -> ([u8; HEADER_LEN], u32) {
    let (id, created_ns) = (id.into(), created_ns.into());
    let (version, zero) = (VERSION.into(), [0; 32]);
    let mut header = FileHeader { magic: MAGIC, version, crc: 0.into(), id, created_ns, zero };
    header.crc = header.sum_as(VERSION).into();
    (zerocopy::transmute!(header), header.start())
}

/// Gives a journal the version of this program, from whose records on no older one may read it. One
/// word is written, so that a process that dies leaves one header or the other.
pub(super) fn upgrade(header: &mut [u8; HEADER_LEN]) {
    let mut new: FileHeader = zerocopy::transmute!(*header);
    (new.version, new.crc) = (VERSION.into(), new.sum_as(VERSION).into());
    header[8..16].copy_from_slice(&new.as_bytes()[8..16]);
}

/// The journal's id and the sum from which the first record's starts.
pub(super) fn parse_file_header(memory: &[u8]) -> Result<(u64, u32), JournalError> {
    let (header, _) = FileHeader::read_from_prefix(memory).map_err(|_| JournalError::Short)?;
    if header.magic != MAGIC {
        return Err(JournalError::NotAJournal);
    }
    let version = header.version.get();
    if !(FIRST..=VERSION).contains(&version) {
        return Err(JournalError::Version(version));
    }
    let is_whole = header.sum_as(version) == header.crc.get();
    if is_whole { Ok((header.id.get(), header.start())) } else { Err(JournalError::HeaderSum) }
}

/// Bytes of a record with `len` bytes of payload.
pub(super) const fn record_len(len: usize) -> usize {
    RECORD_HEADER_LEN + len.next_multiple_of(8)
}

/// The sum of `record`, a whole one of [`record_len`] bytes, behind a record with the sum `before`.
pub(super) fn sum(before: u32, len: u32, record: &[u8]) -> u32 {
    crc32c::crc32c_append(before ^ len, &record[UNCOVERED..])
}
