//! Sequence numbers: a ring of 2^32, where "before" means less than half the ring away
//! (RFC 9293 3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number. No `Ord`: on a ring there is no smallest.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// `self < other` on the ring.
    #[inline(always)]
    pub const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// `self > other` on the ring.
    #[inline(always)]
    pub const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// `self <= other` on the ring.
    #[inline(always)]
    pub const fn is_at_most(self, other: Self) -> bool {
        !other.is_before(self)
    }

    /// `self >= other` on the ring.
    #[inline(always)]
    pub const fn is_at_least(self, other: Self) -> bool {
        !self.is_before(other)
    }

    /// The later of the two.
    #[inline(always)]
    pub const fn max(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline(always)]
    pub const fn min(self, other: Self) -> Self {
        if self.is_before(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Self;
    #[inline(always)]
    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for Seq {
    #[inline(always)]
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;
    #[inline(always)]
    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

impl Sub for Seq {
    type Output = u32;
    /// Numbers from `other` up to `self`, which must not be before it.
    #[inline(always)]
    fn sub(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let (last, first) = (Seq(u32::MAX), Seq(0));
        assert!(last.is_before(first) && first.is_after(last) && last.is_at_most(last) && last.is_at_least(last));
        assert_eq!((last + 1, first - 1, first - last), (first, last, 1));
        assert_eq!((last.max(first), last.min(first)), (first, last));
    }

    #[test]
    fn half_the_ring_away_is_before() {
        assert!(Seq(0x8000_0000).is_before(Seq(0)));
        assert!(!Seq(0x7fff_ffff).is_before(Seq(0)));
    }
}
