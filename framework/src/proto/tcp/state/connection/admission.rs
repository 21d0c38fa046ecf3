//! The listener that accepted the connection, and the connection's share of the limits for remote
//! clients.
//!
//! After all fields that every segment needs. Written by `listening`, and by `input` where a SYN
//! opens the connection.

use crate::proto::slab::NIL;
use crate::proto::tcp::event::ListenerId;

/// The listener that accepted it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedBy {
    /// For a connection that we opened, the id of no listener.
    pub(crate) id: ListenerId,
}

impl AcceptedBy {
    pub(super) const NOBODY: Self = Self { id: ListenerId(NIL) };

    /// `None` where the connection is a call of ours.
    pub(crate) fn listener(self) -> Option<ListenerId> {
        (self.id.0 != NIL).then_some(self.id)
    }
}

/// How a remote client's connection is [counted](crate::proto::tcp::listening::admission).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted(u8);

impl Counted {
    pub(super) const NOT: Self = Self(0);
    pub(crate) const PLACE: Self = Self(1 << 0);
    pub(crate) const SESSION: Self = Self(1 << 1);

    pub(crate) fn has(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }

    pub(crate) fn insert(&mut self, what: Self) {
        self.0 |= what.0;
    }
}
