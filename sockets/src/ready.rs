//! Readiness, by the bits of `poll(2)`, which those of epoll share.

use core::ops::{BitAnd, BitOr, BitOrAssign};

/// The readiness of a socket, or the readiness that a caller asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ready(pub u32);

impl Ready {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A read does not block (`POLLIN`): data, the peer's end, or a connection to accept.
    pub const IN: Self = Self(0x001);
    /// Something exceptional (`POLLPRI`): here an error, with `SO_SELECT_ERR_QUEUE`.
    pub const PRI: Self = Self(0x002);
    /// A write does not block (`POLLOUT`).
    pub const OUT: Self = Self(0x004);
    /// An error waits in `SO_ERROR`, or the error queue has entries (`POLLERR`). Always reported.
    pub const ERR: Self = Self(0x008);
    /// Both directions are closed (`POLLHUP`). Always reported.
    pub const HUP: Self = Self(0x010);
    /// `POLLRDNORM`: another name of [`IN`](Self::IN), which [`among`](Self::among) adds.
    pub const RDNORM: Self = Self(0x040);
    /// `POLLWRNORM`: another name of [`OUT`](Self::OUT).
    pub const WRNORM: Self = Self(0x100);
    /// The peer sends no more (`POLLRDHUP`).
    pub const RDHUP: Self = Self(0x2000);
    /// Reported without being asked for.
    pub const ALWAYS: Self = Self(Self::ERR.0 | Self::HUP.0);

    /// Everything.
    pub(crate) const ALL: Self = Self(u32::MAX);

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no bit is set.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The readiness that `poll` reports to a caller who asks for `asked`: also
    /// [`ALWAYS`](Self::ALWAYS), and `IN` and `OUT` by either of their names.
    #[inline]
    pub const fn among(self, asked: Self) -> Self {
        Self(self.with_names().0 & (asked.0 | Self::ALWAYS.0))
    }

    /// With the second names of `IN` and `OUT`, which are six bits above the first.
    #[inline]
    pub(crate) const fn with_names(self) -> Self {
        Self(self.0 | (self.0 & (Self::IN.0 | Self::OUT.0)) << 6)
    }

    /// `bits` where `condition`, else none.
    #[inline]
    pub(crate) const fn when(condition: bool, bits: Self) -> Self {
        if condition { bits } else { Self::NONE }
    }
}

impl BitOr for Ready {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Ready {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
