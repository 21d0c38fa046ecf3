//! VLAN tags: 802.1Q and, for a second tag, 802.1ad (QinQ).
//!
//! A tag is four bytes between the source address and the EtherType:
//! `0:2 tag protocol identifier (0x8100 or 0x88a8)`,
//! `2:2 priority (3 bits), drop eligible (1), VLAN identifier (12)`.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ethernet::EthernetError;
use super::field::EtherType;

/// Bytes of one tag.
pub(crate) const TAG_LEN: usize = 4;
/// Maximum number of tags: a provider bridge adds one to the customer's one (802.1ad), and parsing
/// is bounded.
pub(crate) const TAGS_MAX: usize = 2;

/// One tag as it lies in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VlanTag {
    tpid: U16,
    tci: U16,
}

impl VlanTag {
    /// An 802.1Q tag with the low 12 bits of `vid` and priority 0.
    #[inline]
    pub const fn new(vid: u16) -> Self {
        Self::from_tci(EtherType::VLAN, vid & 0x0fff)
    }

    /// A tag from its identifier and its control information, as a NIC that strips tags reports it.
    #[inline]
    pub const fn from_tci(tpid: EtherType, tci: u16) -> Self {
        Self { tpid: U16::new(tpid.0), tci: U16::new(tci) }
    }

    /// The same tag with the low 3 bits of `pcp` as priority.
    #[inline]
    pub fn with_pcp(self, pcp: u8) -> Self {
        Self { tci: U16::new(self.tci() & 0x1fff | u16::from(pcp & 7) << 13), ..self }
    }

    /// The VLAN, 0 to 4095. A tag with 0 carries only a priority.
    #[inline]
    pub fn vid(&self) -> u16 {
        self.tci() & 0x0fff
    }

    /// Priority code point, 0 to 7.
    #[inline]
    pub fn pcp(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// Drop eligible indicator.
    #[inline]
    pub fn dei(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// Tag control information: priority, drop eligible and VLAN in 16 bits.
    #[inline]
    pub fn tci(&self) -> u16 {
        self.tci.get()
    }

    /// Tag protocol identifier.
    #[inline]
    pub fn tpid(&self) -> EtherType {
        EtherType(self.tpid.get())
    }
}

/// The tags of one frame, outer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTags {
    tags: [VlanTag; TAGS_MAX],
    count: u8,
}

impl VlanTags {
    /// An untagged frame.
    pub const NONE: Self = Self { tags: [VlanTag::new(0); TAGS_MAX], count: 0 };

    /// One tag.
    #[inline]
    pub const fn single(tag: VlanTag) -> Self {
        Self { tags: [tag, VlanTag::new(0)], count: 1 }
    }

    /// Two tags, the outer first.
    #[inline]
    pub const fn double(tags: [VlanTag; 2]) -> Self {
        Self { tags, count: 2 }
    }

    /// Strips the tags. `bytes` begins at the first EtherType, twelve bytes into the frame; returns
    /// the tags, the EtherType after them and the payload.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, EtherType, &[u8]), EthernetError> {
        let mut tags = Self::NONE;
        let mut bytes = bytes;
        loop {
            let (ethertype, payload) = U16::ref_from_prefix(bytes).map_err(|_| EthernetError::TagTruncated)?;
            let ethertype = EtherType(ethertype.get());
            if !ethertype.is_vlan() {
                return Ok((tags, ethertype, payload));
            }
            let (tag, rest) = VlanTag::ref_from_prefix(bytes).map_err(|_| EthernetError::TagTruncated)?;
            *tags.tags.get_mut(usize::from(tags.count)).ok_or(EthernetError::TooManyTags)? = *tag;
            tags.count += 1;
            bytes = rest;
        }
    }

    /// The tags, outer first.
    #[inline]
    pub fn as_slice(&self) -> &[VlanTag] {
        &self.tags[..usize::from(self.count).min(TAGS_MAX)]
    }

    /// The first tag of the frame: the only one, or the provider's.
    #[inline]
    pub fn outer(&self) -> Option<VlanTag> {
        self.as_slice().first().copied()
    }

    /// The tag next to the payload: the only one, or the customer's.
    #[inline]
    pub fn inner(&self) -> Option<VlanTag> {
        self.as_slice().last().copied()
    }

    /// Bytes that the tags take: 0, 4 or 8.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count as usize * TAG_LEN
    }

    /// True for an untagged frame.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}
