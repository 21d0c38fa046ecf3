//! The number of a queue pair: 24 bits.

use core::fmt;

/// The number of a queue pair.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// The queue pair of the connection manager, on each port.
    pub const CM: Self = Self(1);
    /// All queue pairs that have joined the group (unreliable datagrams).
    pub const MULTICAST: Self = Self(0xff_ffff);

    /// The low 24 bits of a number.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & 0xff_ffff)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Qpn {
    /// Six digits, as `ibv_rc_pingpong` and Wireshark print it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}
