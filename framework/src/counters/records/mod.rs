//! Records of fixed size in a shared file: one process writes them, others read each of them
//! whole, however it changes meanwhile.
//!
//! ```text
//! word 0       header     16 words    magic, version, sizes, how far records are used, who wrote it
//! then         sequences  one word a record: odd while it is written; raised by two with each change
//! then         records
//! ```
//! A lock that only the writer takes (a sequence lock): writing costs two stores more than the
//! words, and no reader can delay it. The caller defines the meaning of the words.

mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use reader::{RecordedProcess, RecordedProcesses};
pub use writer::Records;

use super::publish::Content;

const MAGIC: u64 = Content::Sockets.magic();
/// Raised with any change that an old reader would misread.
const VERSION: u64 = 1;
/// Words of the header.
const HEADER_WORDS: usize = 16;
/// Largest sizes that a reader accepts, so that a hostile header cannot cause a large allocation.
const RECORD_WORDS_MAX: usize = 64;
const CAPACITY_MAX: usize = 1 << 16;

/// Header words.
mod header {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const RECORD_WORDS: usize = 2;
    pub(super) const CAPACITY: usize = 3;
    /// The records from here on were never written.
    pub(super) const USED: usize = 4;
    pub(super) const PID: usize = 5;
    /// Nanoseconds since the Unix epoch.
    pub(super) const STARTED: usize = 6;
    pub(super) const APP_LEN: usize = 7;
    /// Eight words of UTF-8.
    pub(super) const APP: usize = 8;
}
