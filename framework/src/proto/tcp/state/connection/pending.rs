//! Events pending for the app.
//!
//! In the first cache line. Written by `machine`, which delivers them. The rooms in which an event
//! occurs insert or remove it by verbs.

use core::ops::BitOr;

/// A set of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending(u8);

impl Pending {
    pub(in crate::proto::tcp) const NONE: Self = Self(0);
    pub(in crate::proto::tcp) const CONNECTED: Self = Self(1 << 0);
    /// Data in order waits in `in_order`.
    pub(in crate::proto::tcp) const READABLE: Self = Self(1 << 1);
    pub(in crate::proto::tcp) const WRITABLE: Self = Self(1 << 2);
    pub(in crate::proto::tcp) const PEER_CLOSED: Self = Self(1 << 3);
    pub(in crate::proto::tcp) const CLOSED: Self = Self(1 << 4);
    pub(in crate::proto::tcp) const NO_ROUTE: Self = Self(1 << 5);

    #[inline(always)]
    pub(in crate::proto::tcp) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(in crate::proto::tcp) fn insert(&mut self, events: Self) {
        self.0 |= events.0;
    }

    #[inline(always)]
    pub(in crate::proto::tcp) fn remove(&mut self, events: Self) {
        self.0 &= !events.0;
    }

    /// Removes an event; false where it was not pending.
    #[inline(always)]
    pub(in crate::proto::tcp) fn take(&mut self, event: Self) -> bool {
        let is_set = self.0 & event.0 != 0;
        self.remove(event);
        is_set
    }
}

impl BitOr for Pending {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
