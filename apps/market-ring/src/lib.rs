//! Market data to other processes of this machine, by shared memory. One process writes, any number
//! read, and no reader can slow the writer: it never waits and knows of none of them.
//!
//! ```text
//!   file:  | header | group words | quotes, one an instrument | ring of records |
//!   ring:    a record of 128 bytes for each event, in order; a reader that is overrun is told the
//!            first and the last sequence that it missed
//!   quotes:  the latest best bid and offer of each instrument; a reader is told how many updates
//!            were merged
//! ```
//!
//! [`RingWriter`] makes the file and writes, [`RingReader`] maps it read-only and reads. Programs
//! in C read it with `include/market_ring.h`, which needs no library.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("nasdaq.ring");
//! use market::event::{Event, System};
//! use market_ring::{Read, Record, RingConfig, RingReader, RingWriter};
//!
//! let mut writer = RingWriter::create(&path, &RingConfig::default())?;
//! let mut reader = RingReader::open(&path)?;
//! writer.publish(&Record::new(7, Event::System(System { code: b'O', at_ns: 0 })));
//! assert!(matches!(reader.read(), Read::Record { seq: 0, record } if record.venue_seq == 7));
//! assert_eq!(reader.read(), Read::Empty);
//! # Ok(())
//! # }
//! ```
//!
//! A write and a read are copies of 128 bytes: no allocation, no system call, no lock, no clock.
//! The memory is little-endian and is read where it was written, on one machine.

mod display;
mod error;
mod fields;
mod layout;
mod memory;
mod quote;
mod reader;
mod record;
mod whole;
mod writer;

#[cfg(test)]
mod tests;

pub use error::{OpenError, OpenProblem};
pub use quote::{Conflated, Quote};
pub use reader::{Read, RingReader};
pub use record::{Flags, Record};
pub use whole::WholeChannels;
pub use writer::{RingConfig, RingWriter};
