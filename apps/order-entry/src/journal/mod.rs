//! The order journal: what was intended before it is sent, and what the venue answered.
//!
//! ```text
//!  file header │ record │ record │ record │ zeros …            preallocated, mapped by the caller
//!              └ CRC32C over itself, from the sum before it
//! ```
//!
//! The journal writes to any `&mut [u8]` and replays any `&[u8]`; mapping, sizes and syncs are the
//! caller's. A process that dies at any instruction loses nothing that was appended, because the
//! kernel has the pages; a power cut loses what was not synced. Recovery ends at the first bad
//! record. Each record's sum starts from the sum of the record before, so that no older record is
//! ever taken for the next one, whatever bytes the file had before.
//!
//! [`Entry`] is what an order gateway records, [`Rebuild`] makes order states and risk sums of it
//! again.

mod cursor;
mod entry;
mod fields;
mod instruments;
mod layout;
mod memory;
mod reader;
mod rebuild;
mod strategies;
mod units;
mod writer;

pub(crate) use cursor::Cursor;
pub use entry::{Entry, EntryBytes, Intent, NO_NAME, SessionMark, StrategyName};
pub use instruments::MissingInstrument;
pub use layout::{HEADER_LEN, JournalError, PAYLOAD_MAX, RECORD_HEADER_LEN};
pub use memory::JournalMemory;
pub use reader::{Mark, Record, Records, Remains, Tail};
pub use rebuild::{Killed, Rebuild, RebuildCounts};
pub use strategies::MissingStrategy;
pub use units::{MessageNumber, UnitNumbers};
pub use writer::{Full, Journal, Recovery, Stamp};

#[cfg(test)]
mod tests;
