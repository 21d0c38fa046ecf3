//! Memory that a peer keeps for us, over any [`Provider`](crate::provider::Provider).
//!
//! ```text
//!  LogMirror: what was appended ─▶ WRITE ─▶ the same positions of the peer
//! ```
//!
//! A [`LogMirror`] keeps the peer's memory a copy of a log that is only appended to. WRITEs of a
//! reliable connection take place in order, so the copy is a beginning of the log at any time, but
//! for the last WRITE, of which a part may have arrived: records with a sequence number and a
//! checksum each, such as those of an order journal, show where it ends.

mod log;

pub use log::{LogMirror, MirrorCounters, MirrorOptions};

#[cfg(test)]
mod tests;
