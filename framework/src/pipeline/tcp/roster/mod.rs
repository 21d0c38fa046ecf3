//! The roster: the open connections of a worker in a shared file, so that somebody else can end
//! them when the worker is gone.
//!
//! ```text
//!  way out ──numbers of each segment that leaves──▶ ┌────────┐        ┌──────────┐
//!          ──way that was prepared anew───────────▶ │ Roster │──file──▶│ Rostered │──▶ worker::guard: RSTs
//!  machine ──opened, closed───────────────────────▶ └────────┘        └──────────┘
//! ```
//!
//! The file is locked for as long as its writer lives (as the counters' is), and is only read when
//! the lock is free: nobody reads while somebody writes, so plain stores in order are enough. What
//! a writer was killed in the middle of is an entry that is not open.

mod layout;
mod reader;
mod writer;

pub use layout::{LINK_LEN_MAX, OpenConnection, process_started};
pub use reader::Rostered;
pub use writer::Roster;
