//! Packet sequence numbers: 24 bits that wrap (InfiniBand 9.7.1).

use core::fmt;

/// A packet sequence number. Two are compared by their distance, as long as it is below 2²³.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0xff_ffff;

    /// The low 24 bits of a number.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MASK)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of the packet that is `count` later.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// How many packets `self` is behind `earlier`, which is known to be no later.
    #[inline]
    pub const fn behind(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }

    /// How many packets `self` is behind `earlier`: negative where it is before it.
    #[inline]
    pub const fn since(self, earlier: Self) -> i32 {
        // The difference in the high 24 bits has its sign where an i32 has it.
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_hold_over_the_wrap() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!((last.plus(3).since(last), last.since(last.plus(3))), (3, -3));
        assert_eq!(last.plus(0x7f_ffff).since(last), 0x7f_ffff);
        assert_eq!(last.plus(0x80_0000).since(last), -0x80_0000);
        assert_eq!((last.plus(0x80_0000).behind(last), last.behind(last.plus(1))), (0x80_0000, 0xff_ffff));
    }
}
