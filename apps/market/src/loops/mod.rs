//! Recovery from loops of multicast packets that bring a channel's snapshots and definitions again
//! and again, as CME's MDP 3.0, B3's UMDF and T7's EOBI have them.
//!
//! ```text
//!   lines A, B ─ LoopLines ─ messages ─┬─ Recovery        each snapshot to its book
//!                                      └─ DefinitionLoop  whether each instrument was defined
//! ```
//!
//! The machines are the same for all feeds; a [`LoopFeed`] is what they ask a feed's decoder.

mod assembly;
mod definitions;
mod lines;
mod orders;
mod recovery;

pub use definitions::{Definition, DefinitionLoop};
pub use lines::{LoopCounts, LoopLines};
pub(crate) use orders::OpenSnapshot;
pub use recovery::{Recovery, RecoveryConfig, RecoveryCounts};

use crate::codec::Decoder;
use crate::framing::Session;
use crate::units::Symbol;

/// A decoder of a feed whose books heal by loops. What it says of a message costs its header. A
/// snapshot is decoded by a copy of it, as it is when the snapshot is whole.
pub trait LoopFeed: Decoder + Default + Clone {
    /// Bytes of the messages of one snapshot that are kept until the last of them is there; 0 where
    /// each snapshot, or each part of one, is one message. A longer snapshot is of no use.
    const SNAPSHOT_LEN_MAX: usize = 0;
    /// Whether the venue's books are empty where the live feed restarts; otherwise only the loop
    /// says what they have.
    const RESTARTS_EMPTY: bool = true;

    /// The place of a message in the loop of snapshots, for books that are built by order, or by
    /// level. It is of the loop's packet `packet`; what messages before it have said holds where no
    /// packet is missing between.
    fn part(&mut self, packet: u64, message: &[u8], by_order: bool) -> SnapshotPart;

    /// Whether all books of the channel are empty behind a live message, as they should be.
    fn empties_books(message: &[u8]) -> bool;

    /// Whether a live message may be about an instrument.
    fn is_about(message: &[u8], symbol: Symbol) -> bool;

    /// What a message defines; `None` where it defines no instrument that books are built of.
    fn definition(message: &[u8]) -> Option<Definition>;
}

/// What a message is in the loop of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotPart {
    /// A loop begins, of a feed that says so.
    LoopStart {
        /// Instruments of the loop before, where none of its packets is known to be missing.
        before: Option<u32>,
    },
    /// A snapshot begins, and is whole with this message where it announces no orders.
    Head(SnapshotHead),
    /// Orders of the snapshot that began last.
    Orders {
        /// The instrument.
        symbol: Symbol,
        /// How many.
        count: u32,
    },
    /// No snapshot of these books.
    Other,
}

/// What the head of a snapshot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHead {
    /// The instrument.
    pub symbol: Symbol,
    /// The number of the last live packet in it.
    pub last_seq: u64,
    /// The session of that packet, where the feed says so.
    pub session: Option<Session>,
    /// Instruments of the loop, where the feed says so.
    pub total: Option<u32>,
    /// Orders that follow in messages of their own.
    pub orders: u32,
    /// The instrument's snapshot is whole with this one.
    pub is_last_part: bool,
}

#[cfg(test)]
mod tests;
