//! The format of the shared file, version 3, in words of 64 bits in host byte order.
//!
//! ```text
//! word 0      header     64 words    magic, version, sizes, who wrote it, how much is published
//! word 64     directory  16 words an entry: kind, unit, class, where its value is, and its name
//! then        values     one word a counter, runs of words for texts and histograms
//! ```
//!
//! A writer fills an entry, then publishes it by raising `ENTRIES` with Release. A published entry
//! is constant; only its value changes. The reader's checks are in `snapshot.rs`.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::class::Class;
use super::publish::Content;
use super::unit::Unit;

/// The first eight bytes of the file.
pub(super) const MAGIC: u64 = Content::Counters.magic();
/// Raised with any change that an old reader would misread.
pub(super) const VERSION: u64 = 3;

/// Words of the header, with room for future fields.
pub(super) const HEADER_WORDS: usize = 64;
/// Words of one directory entry: one pair of cache lines.
pub(super) const ENTRY_WORDS: usize = 16;
/// Longest path of a value in bytes, such as `worker0/ethernet/rx_frames`.
pub(super) const NAME_MAX: usize = 96;
/// Longest application name in bytes.
pub(super) const APP_MAX: usize = 64;
/// Longest text value in bytes.
pub(super) const TEXT_MAX: usize = 256;
/// Most entries and value words that a reader accepts: 16 times the default, so that a hostile
/// header cannot cause a large allocation.
pub(super) const ENTRIES_MAX: u64 = 1 << 16;
pub(super) const VALUES_MAX: u64 = 1 << 22;

/// Header words.
pub(super) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const ENTRIES_CAPACITY: usize = 2;
    pub(crate) const VALUES_CAPACITY: usize = 3;
    pub(crate) const ENTRIES: usize = 4;
    pub(crate) const PID: usize = 5;
    /// Nanoseconds since the Unix epoch.
    pub(crate) const STARTED: usize = 6;
    pub(crate) const APP_LEN: usize = 7;
    /// Eight words of UTF-8.
    pub(crate) const APP: usize = 8;
}

/// The kind of a value. One byte of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Counter = 1,
    Gauge = 2,
    Text = 3,
    Histogram = 4,
}

impl Kind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Counter),
            2 => Some(Self::Gauge),
            3 => Some(Self::Text),
            4 => Some(Self::Histogram),
            _ => None,
        }
    }
}

/// What the number or text of an entry means.
#[derive(Clone, Copy)]
pub(super) struct Meaning {
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) class: Class,
}

impl Meaning {
    /// A value with which no packet ends.
    pub(super) const fn other(kind: Kind, unit: Unit) -> Self {
        Self { kind, unit, class: Class::Other }
    }

    /// A counter of packets that end.
    pub(super) const fn drops(class: Class, unit: Unit) -> Self {
        Self { kind: Kind::Counter, unit, class }
    }
}

/// One directory entry in the writer's form. Word 0: kind, unit, name length, class, then the
/// length of a text in the high half. Word 1: index of the first value word. Words 2 to 13: name.
pub(super) struct BlockEntry<'a> {
    pub(super) meaning: Meaning,
    pub(super) name: &'a str,
    pub(super) value: usize,
    pub(super) text_len: usize,
}

impl BlockEntry<'_> {
    /// Writes the entry. Readers ignore it before it is published.
    pub(super) fn store(&self, words: &[AtomicU64]) {
        let meaning = self.meaning;
        let head = [meaning.kind as u8, meaning.unit as u8, self.name.len() as u8, meaning.class as u8];
        let head = head.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        words[0].store(head | (self.text_len as u64) << 32, Relaxed);
        words[1].store(self.value as u64, Relaxed);
        store_text(&words[2..], self.name);
    }
}

/// Words that hold `len` bytes of text.
pub(super) fn text_words(len: usize) -> usize {
    len.div_ceil(8)
}

/// Writes `text`, eight bytes per word, zeros after its end.
pub(crate) fn store_text(words: &[AtomicU64], text: &str) {
    for (word, bytes) in words.iter().zip(text.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(padded), Relaxed);
    }
}

/// Makes the first `entries` entries visible to readers.
pub(super) fn publish(words: &[AtomicU64], entries: usize) {
    words[header::ENTRIES].store(entries as u64, Release);
}

/// Whether `path` consists of parts of printable ASCII without spaces, joined by `/`: safe to print
/// on any terminal.
pub(super) fn is_path(path: &str) -> bool {
    path.split('/').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic()))
}
