//! What a frame wants of the NIC, in one word: so that it is looked at once, and carried in a register.

use core::num::NonZeroU16;
use core::ops::BitOr;

use super::wqe::{CHECKSUM_L3, CHECKSUM_L4};
use crate::device::Offload;

/// An [`Offload`] as a word: flags, of which the lowest are the Ethernet segment's own, then the tag, then the segment length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wishes(u64);

impl Wishes {
    /// Nothing.
    pub(super) const NONE: Self = Self(0);
    /// Checksums.
    pub(super) const CHECKSUMS: Self = Self((CHECKSUM_L3 | CHECKSUM_L4) as u64);
    /// When it left.
    pub(super) const TIMESTAMP: Self = Self(1 << 8);
    /// At once.
    pub(super) const URGENT: Self = Self(1 << 9);
    const VLAN: Self = Self(1 << 10);
    const TCI_SHIFT: u32 = 16;
    const SEGMENT_SHIFT: u32 = 32;

    #[inline(always)]
    pub(super) fn of(offload: Offload) -> Self {
        let Offload { ip_checksum, l4_checksum, segment_len, vlan, timestamp, urgent } = offload;
        let flag = |is_set, flag: u64| if is_set { flag } else { 0 };
        let segment = segment_len.map_or(0, |len| u64::from(len.get()) << Self::SEGMENT_SHIFT);
        let tag = vlan.map_or(0, |tci| u64::from(tci) << Self::TCI_SHIFT | Self::VLAN.0);
        let checksums = flag(ip_checksum, CHECKSUM_L3.into()) | flag(l4_checksum, CHECKSUM_L4.into());
        Self(checksums | flag(timestamp, Self::TIMESTAMP.0) | flag(urgent, Self::URGENT.0) | tag | segment)
    }

    /// The checksums as the Ethernet segment has them.
    #[inline(always)]
    pub(super) fn checksums(self) -> u8 {
        self.0 as u8
    }

    /// Whether all of these flags are among them.
    #[inline(always)]
    pub(super) fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether nothing is wished for but what is in `allowed`.
    #[inline(always)]
    pub(super) fn are_within(self, allowed: Self) -> bool {
        self.0 & !allowed.0 == 0
    }

    /// The tag to insert.
    pub(super) fn vlan(self) -> Option<u16> {
        self.has(Self::VLAN).then_some((self.0 >> Self::TCI_SHIFT) as u16)
    }

    /// The bytes of the segments into which the payload is cut.
    pub(super) fn segment_len(self) -> Option<NonZeroU16> {
        NonZeroU16::new((self.0 >> Self::SEGMENT_SHIFT) as u16)
    }
}

impl BitOr for Wishes {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn word_says_what_the_offload_said(
            ip_checksum: bool, l4_checksum: bool, timestamp: bool, urgent: bool, segment: u16, vlan: Option<u16>
        ) {
            let segment_len = NonZeroU16::new(segment);
            let wishes = Wishes::of(Offload { ip_checksum, l4_checksum, segment_len, vlan, timestamp, urgent });
            prop_assert_eq!((wishes.vlan(), wishes.segment_len()), (vlan, segment_len));
            prop_assert_eq!((wishes.has(Wishes::TIMESTAMP), wishes.has(Wishes::URGENT)), (timestamp, urgent));
            prop_assert_eq!(wishes.checksums(), u8::from(ip_checksum) << 6 | u8::from(l4_checksum) << 7);
            let others = timestamp || urgent || vlan.is_some() || segment > 0;
            prop_assert_eq!(wishes.are_within(Wishes::CHECKSUMS), !others);
            prop_assert_eq!(wishes == Wishes::NONE, !others && !ip_checksum && !l4_checksum);
        }
    }
}
