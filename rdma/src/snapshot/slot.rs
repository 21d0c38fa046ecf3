//! A table of slots, and what a peer has read of one.

use core::fmt;

use crate::roce::{Buffer, Region};

const WORD: usize = 8;
/// The version in front, and behind the value the sum and the lower half of the version.
const OVERHEAD: usize = 2 * WORD;

/// Bytes of the slot of a value.
pub const fn slot_len(value_len: usize) -> usize {
    OVERHEAD + value_len.next_multiple_of(WORD)
}

/// The writer of a table of slots, in memory that is registered for READs of peers.
///
/// One thread publishes. It takes no lock, and never waits for a reader.
#[derive(Debug)]
pub struct Publisher {
    memory: Buffer,
    value_len: usize,
    /// Of each slot, even.
    versions: Box<[u64]>,
    /// A value with zeros up to a whole word.
    padded: Box<[u8]>,
}

impl Publisher {
    /// `count` slots of values of `value_len` bytes, without a value yet. This allocates.
    pub fn new(count: usize, value_len: usize) -> Self {
        Self {
            memory: Buffer::zeroed(count * slot_len(value_len)),
            value_len,
            versions: vec![0; count].into(),
            padded: vec![0; value_len.next_multiple_of(WORD)].into(),
        }
    }

    /// The memory, to be registered with [`Access::REMOTE_READ`](crate::roce::Access::REMOTE_READ).
    pub fn region(&self) -> Region {
        Region::from(&self.memory)
    }

    /// The same memory, for a reader on this machine.
    pub fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// How many slots there are.
    pub const fn slots(&self) -> usize {
        self.versions.len()
    }

    /// Where the slot `idx` begins in that memory.
    pub const fn position(&self, idx: usize) -> usize {
        idx * slot_len(self.value_len)
    }

    /// Publishes a value in the slot `idx`, in the place of the one before. One copy and one sum.
    ///
    /// # Panics
    /// If there is no such slot, or the value has another length than all.
    #[inline]
    pub fn publish(&mut self, idx: usize, value: &[u8]) {
        assert_eq!(value.len(), self.value_len, "a value of another length");
        let (at, version) = (self.position(idx), self.versions[idx]);
        // Odd: a reader between this word and the last one sees that.
        self.memory.store_u64(at, (version + 1).to_le());
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        self.padded[..value.len()].copy_from_slice(value);
        self.memory.write(at + WORD, &self.padded);
        let version = version + 2;
        self.memory.store_u64(at + WORD + self.padded.len(), trailer(version, &self.padded).to_le());
        self.memory.store_u64(at, version.to_le());
        self.versions[idx] = version;
    }
}

/// The sum over a version and its value, and the version's lower half.
fn trailer(version: u64, padded: &[u8]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&version.to_le_bytes());
    hasher.update(padded);
    u64::from(hasher.finalize()) << 32 | version & 0xffff_ffff
}

/// Why there is no value in bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SlotError {
    /// Nothing was published yet.
    Empty,
    /// The value was being written: read again.
    Torn,
    /// The bytes are not as many as a slot has.
    Length,
}

/// The value in the bytes of a slot that were READ, and its version, which grows by two with each
/// value.
///
/// # Errors
/// [`SlotError`]. Bytes of a peer that is no publisher are torn, but for a chance of one in 2³².
pub fn parse(slot: &[u8], value_len: usize) -> Result<(u64, &[u8]), SlotError> {
    if slot.len() != slot_len(value_len) {
        return Err(SlotError::Length);
    }
    let (front, rest) = slot.split_first_chunk::<WORD>().ok_or(SlotError::Length)?;
    let (padded, back) = rest.split_last_chunk::<WORD>().ok_or(SlotError::Length)?;
    let (version, back) = (u64::from_le_bytes(*front), u64::from_le_bytes(*back));
    match version {
        0 => Err(SlotError::Empty),
        _ if version & 1 == 1 || back != trailer(version, padded) => Err(SlotError::Torn),
        _ => Ok((version, &padded[..value_len])),
    }
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "nothing was published yet",
            Self::Torn => "the value was being written: read again",
            Self::Length => "not as many bytes as a slot has",
        })
    }
}

impl core::error::Error for SlotError {}
