//! A frame's transmit offloads in one word: checked by one test, and passed in a register.

use core::fmt;
use core::num::NonZeroU16;
use core::ops::{BitOr, BitOrAssign};

/// A frame's transmit offload flags (DPDK's `ol_flags`), the tag to insert and the segment length.
/// [`NONE`](Self::NONE), the default, means that the frame is complete.
///
/// ```
/// use wirepath::device::Offload;
///
/// let offload = Offload::L4_CHECKSUM | Offload::TIMESTAMP;
/// assert!(offload.has(Offload::TIMESTAMP) && !offload.has(Offload::URGENT));
/// assert_eq!(offload.with_vlan(0x6007).vlan(), Some(0x6007));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload(u64);

// From the lowest bit: eight flags as in mlx5's Ethernet segment, flags without a hardware
// encoding, then the tag control information, then the segment length.
impl Offload {
    /// No offload.
    pub const NONE: Self = Self(0);
    /// Fill in the IPv4 header checksum; the mbuf's `l2_len` and `l3_len` locate the header.
    pub const IP_CHECKSUM: Self = Self(1 << 6);
    /// Fill in the UDP or TCP checksum; the field holds the pseudo-header's sum.
    pub const L4_CHECKSUM: Self = Self(1 << 7);
    /// Report when the frame leaves: [`TxQueue::take_timestamp`](super::TxQueue::take_timestamp).
    pub const TIMESTAMP: Self = Self(1 << 8);
    /// Latency before throughput: the device rings before the post returns;
    /// [`TxQueue`](super::TxQueue) lists the cost.
    pub const URGENT: Self = Self(1 << 9);
    const VLAN: Self = Self(1 << 10);
    const TCI_SHIFT: u32 = 16;
    const SEGMENT_SHIFT: u32 = 32;

    /// Insert an 802.1Q tag with this tag control information; it replaces any tag set before.
    #[inline(always)]
    pub const fn with_vlan(self, tci: u16) -> Self {
        let others = self.0 & !((u16::MAX as u64) << Self::TCI_SHIFT);
        Self(others | (tci as u64) << Self::TCI_SHIFT | Self::VLAN.0)
    }

    /// Cut the TCP payload into segments of `len` bytes; 0 leaves it whole.
    #[inline(always)]
    pub const fn with_segment_len(self, len: u16) -> Self {
        let others = self.0 & !((u16::MAX as u64) << Self::SEGMENT_SHIFT);
        Self(others | (len as u64) << Self::SEGMENT_SHIFT)
    }

    /// These flags if the condition holds, otherwise no flags.
    #[inline(always)]
    pub const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// Without these flags.
    #[inline(always)]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Whether all of these flags are set.
    #[inline(always)]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether no flags beside `allowed` are set.
    #[inline(always)]
    pub const fn is_within(self, allowed: Self) -> bool {
        self.0 & !allowed.0 == 0
    }

    /// The tag control information of the tag to insert.
    #[inline(always)]
    pub const fn vlan(self) -> Option<u16> {
        if self.has(Self::VLAN) { Some((self.0 >> Self::TCI_SHIFT) as u16) } else { None }
    }

    /// The segment length for the payload.
    #[inline(always)]
    pub const fn segment_len(self) -> Option<NonZeroU16> {
        NonZeroU16::new((self.0 >> Self::SEGMENT_SHIFT) as u16)
    }

    /// The checksum flags, as in mlx5's Ethernet segment.
    #[inline(always)]
    pub(super) const fn checksums(self) -> u8 {
        self.0 as u8
    }
}

impl BitOr for Offload {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Offload {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            (Self::IP_CHECKSUM, "ip_checksum"),
            (Self::L4_CHECKSUM, "l4_checksum"),
            (Self::TIMESTAMP, "timestamp"),
            (Self::URGENT, "urgent"),
        ];
        let mut set = f.debug_set();
        for (flag, name) in flags {
            if self.has(flag) {
                set.entry(&format_args!("{name}"));
            }
        }
        self.vlan().inspect(|tci| _ = set.entry(&format_args!("vlan {tci:#x}")));
        self.segment_len().inspect(|len| _ = set.entry(&format_args!("segment_len {len}")));
        set.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn word_says_what_was_put_in(
            ip_checksum: bool, l4_checksum: bool, timestamp: bool, urgent: bool, segment: u16, vlan: Option<u16>
        ) {
            let flags = Offload::IP_CHECKSUM.when(ip_checksum)
                | Offload::L4_CHECKSUM.when(l4_checksum)
                | Offload::TIMESTAMP.when(timestamp)
                | Offload::URGENT.when(urgent);
            let offload = vlan.map_or(flags, |tci| flags.with_vlan(tci)).with_segment_len(segment);
            prop_assert_eq!((offload.vlan(), offload.segment_len()), (vlan, NonZeroU16::new(segment)));
            prop_assert_eq!((offload.has(Offload::TIMESTAMP), offload.has(Offload::URGENT)), (timestamp, urgent));
            prop_assert_eq!(offload.checksums(), u8::from(ip_checksum) << 6 | u8::from(l4_checksum) << 7);
            let others = timestamp || urgent || vlan.is_some() || segment > 0;
            prop_assert_eq!(offload.is_within(Offload::IP_CHECKSUM | Offload::L4_CHECKSUM), !others);
            prop_assert_eq!(offload == Offload::NONE, !others && !ip_checksum && !l4_checksum);
            prop_assert!(!offload.without(Offload::URGENT).has(Offload::URGENT));
        }
    }

    #[test]
    fn what_is_put_in_again_replaces_what_was_there() {
        let offload = Offload::URGENT.with_vlan(0xffff).with_segment_len(0xffff).with_vlan(1).with_segment_len(2);
        assert_eq!((offload.vlan(), offload.segment_len().map(u16::from)), (Some(1), Some(2)));
        assert!(offload.has(Offload::URGENT));
    }

    #[test]
    fn printed_it_names_what_is_wanted() {
        assert_eq!(format!("{:?}", Offload::L4_CHECKSUM.with_vlan(0x7)), "{l4_checksum, vlan 0x7}");
        assert_eq!(format!("{:?}", Offload::NONE), "{}");
    }
}
