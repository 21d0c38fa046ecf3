//! The roster: the open connections of a worker in a shared file, so that the guardian can reset
//! them when the worker is dead.
//!
//! ```text
//!  way out ──numbers of each segment that leaves──▶ ┌────────┐        ┌──────────┐
//!          ──way that was prepared anew───────────▶ │ Roster │──file──▶│ Rostered │──▶ worker::guard: RSTs
//!  machine ──opened, closed───────────────────────▶ └────────┘        └──────────┘
//! ```
//!
//! The writer locks the file for as long as it lives, as it does that of the counters, and the file
//! is read only when the lock is free. So no one reads while the worker writes, and plain stores in
//! order are enough. An entry that a killed writer left half written is not open.

// Public for fuzzers, which reach the reader with `testing`.
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub))]
pub(crate) mod layout;
#[cfg_attr(not(feature = "testing"), allow(dead_code, unreachable_pub))]
pub(crate) mod reader;
mod writer;

pub(crate) use layout::{LINK_LEN_MAX, OpenConnection, process_started};
pub(crate) use reader::Rostered;
pub use writer::Roster;
