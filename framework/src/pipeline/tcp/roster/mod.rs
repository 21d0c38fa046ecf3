//! The roster: the open connections of a worker in a shared file, so that the guardian can reset
//! them when the worker is dead.
//!
//! ```text
//!  way out ──numbers of each segment that leaves──▶ ┌────────┐        ┌──────────┐
//!          ──way that was prepared anew───────────▶ │ Roster │──file──▶│ Rostered │──▶ worker::guard: RSTs
//!  machine ──opened, closed───────────────────────▶ └────────┘        └──────────┘
//! ```
//!
//! The file is locked for as long as its writer lives (as the counters' is), and is read only when
//! the lock is free: no one reads while the worker writes, so plain stores in order are enough. An
//! entry that a killed writer left half written is not open.

pub(crate) mod layout;
pub(crate) mod reader;
mod writer;

pub(crate) use layout::{LINK_LEN_MAX, OpenConnection, process_started};
pub(crate) use reader::Rostered;
pub use writer::Roster;
