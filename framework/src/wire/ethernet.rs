//! Ethernet II: the 14-byte header, and parsing of it and its VLAN tags.
//!
//! ```text
//!  0        6        12    14
//!  | dst    | src    | type | payload …                 untagged
//!  | dst    | src    | tag(4) | [tag(4)] | type | …     802.1Q, QinQ
//! ```
//! The device handles the frame check sequence, which is not in the bytes here. Padding is
//! included: the payload's own length field determines where it ends.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::field::{EmitError, EtherType, MacAddr};
use super::vlan::VlanTags;

/// Bytes of the header without tags.
pub(crate) const HEADER_LEN: usize = 14;

/// A parsed frame: the header, up to two tags, and the payload.
#[derive(Clone, Copy, Debug)]
pub struct EthernetFrame<'a> {
    /// The first 14 bytes. In a tagged frame its EtherType is the one of the outer tag: use
    /// `ethertype` below.
    pub header: &'a EthernetHeader,
    /// The tags between the addresses and the final EtherType.
    pub tags: VlanTags,
    /// The payload's type.
    pub ethertype: EtherType,
    /// All bytes that follow, padding included.
    pub payload: &'a [u8],
}

impl<'a> EthernetFrame<'a> {
    /// Parses the header and at most two tags. Untagged IPv4 takes the first branch.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, EthernetError> {
        let (header, payload) = EthernetHeader::parse(bytes)?;
        let ethertype = header.ethertype();
        if ethertype == EtherType::IPV4 {
            return Ok(Self { header, tags: VlanTags::NONE, ethertype, payload });
        }
        Self::parse_other(header, &bytes[HEADER_LEN - 2..])
    }

    /// Tagged frames and other types. `rest` begins at the first EtherType.
    fn parse_other(header: &'a EthernetHeader, rest: &'a [u8]) -> Result<Self, EthernetError> {
        let (tags, ethertype, payload) = VlanTags::parse(rest)?;
        if ethertype.is_length() {
            return Err(EthernetError::NotEthernetII);
        }
        Ok(Self { header, tags, ethertype, payload })
    }

    /// Bytes of the header and its tags: the offset of the payload.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.tags.len()
    }
}

/// The 14-byte header of an untagged frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    dst: MacAddr,
    src: MacAddr,
    ethertype: U16,
}

/// The values of a header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetFields {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// The payload's type.
    pub ethertype: EtherType,
}

impl EthernetHeader {
    /// Bytes of the header without tags.
    pub const LEN: usize = HEADER_LEN;

    /// A header with these values.
    #[inline]
    pub const fn new(fields: EthernetFields) -> Self {
        Self { dst: fields.dst, src: fields.src, ethertype: U16::new(fields.ethertype.0) }
    }

    /// The header at the front of `bytes`, and the bytes after it. Does not parse tags.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), EthernetError> {
        Self::ref_from_prefix(bytes).map_err(|_| EthernetError::Short)
    }

    /// Writes the header and returns its length of 14 bytes.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, EmitError> {
        self.write_to_prefix(bytes).map_err(|_| EmitError::NoRoom)?;
        Ok(HEADER_LEN)
    }

    /// Writes addresses, then the tags, then the EtherType of the payload; returns the bytes
    /// written.
    #[inline]
    pub fn emit_tagged(&self, tags: &VlanTags, bytes: &mut [u8]) -> Result<usize, EmitError> {
        let len = HEADER_LEN + tags.len();
        let bytes = bytes.get_mut(..len).ok_or(EmitError::NoRoom)?;
        let header = self.as_bytes();
        bytes[..12].copy_from_slice(&header[..12]);
        bytes[12..len - 2].copy_from_slice(tags.as_slice().as_bytes());
        bytes[len - 2..].copy_from_slice(&header[12..]);
        Ok(len)
    }

    /// Destination.
    #[inline]
    pub const fn dst(&self) -> MacAddr {
        self.dst
    }

    /// Whether `station` is the destination. Both addresses are compared where they are: of copies
    /// the compiler first makes numbers of 48 bits, twice as many instructions.
    #[inline(always)]
    pub(crate) fn is_to(&self, station: &MacAddr) -> bool {
        self.dst == *station
    }

    /// Source.
    #[inline]
    pub const fn src(&self) -> MacAddr {
        self.src
    }

    /// The type of the bytes that follow: a tag, if the frame has one.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(self.ethertype.get())
    }
}

reasons! {
    /// Why bytes are not a valid Ethernet frame.
    EthernetError {
        /// Fewer than 14 bytes.
        Short => "Ethernet header short of 14 bytes",
        /// The frame ends inside a VLAN tag or before the EtherType after it.
        TagTruncated => "VLAN tag truncated",
        /// A third VLAN tag.
        TooManyTags => "more than two VLAN tags",
        /// An 802.3 length where the EtherType should be: spanning tree and other LLC traffic.
        NotEthernetII => "802.3 length instead of an EtherType",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::vlan::VlanTag;

    const HEADER: EthernetHeader = EthernetHeader::new(EthernetFields {
        dst: MacAddr([1, 0, 0x5e, 1, 2, 3]),
        src: MacAddr([2, 0, 0, 0, 0, 9]),
        ethertype: EtherType::IPV4,
    });

    fn frame(tags: &[VlanTag]) -> Vec<u8> {
        let mut bytes = HEADER.as_bytes()[..12].to_vec();
        bytes.extend_from_slice(tags.as_bytes());
        bytes.extend_from_slice(&[0x08, 0x00, 0xaa]);
        bytes
    }

    fn error(bytes: &[u8]) -> Option<EthernetError> {
        EthernetFrame::parse(bytes).err()
    }

    #[test]
    fn short_frames_are_refused_by_name() {
        let bytes = frame(&[VlanTag::new(5)]);
        assert_eq!(error(&bytes[..13]), Some(EthernetError::Short));
        for len in 14..18 {
            assert_eq!(error(&bytes[..len]), Some(EthernetError::TagTruncated), "{len} bytes");
        }
        assert_eq!(error(&bytes[..18]), None);
    }

    #[test]
    fn third_tag_is_refused() {
        assert_eq!(error(&frame(&[VlanTag::new(5); 2])), None);
        assert_eq!(error(&frame(&[VlanTag::new(5); 3])), Some(EthernetError::TooManyTags));
    }

    #[test]
    fn length_field_is_refused() {
        let mut bytes = frame(&[]);
        bytes[12..14].copy_from_slice(&[0x05, 0xff]);
        assert_eq!(error(&bytes), Some(EthernetError::NotEthernetII));
        bytes[12..14].copy_from_slice(&[0x06, 0x00]);
        assert_eq!(error(&bytes), None);
    }

    #[test]
    fn tags_are_stripped_and_written_back() {
        let outer = VlanTag::from_tci(EtherType::QINQ, 0xbfff);
        let inner = VlanTag::new(7).with_pcp(3);
        for tags in [VlanTags::NONE, VlanTags::single(inner), VlanTags::double([outer, inner])] {
            let bytes = frame(tags.as_slice());
            let parsed = EthernetFrame::parse(&bytes).unwrap();
            assert_eq!((parsed.tags, parsed.ethertype, parsed.payload), (tags, EtherType::IPV4, &[0xaa][..]));
            let mut written = [0; 22];
            let len = HEADER.emit_tagged(&tags, &mut written).unwrap();
            assert_eq!(written[..len], bytes[..parsed.header_len()]);
            assert_eq!(HEADER.emit_tagged(&tags, &mut written[..len - 1]), Err(EmitError::NoRoom));
        }
        assert_eq!((outer.vid(), outer.pcp(), outer.dei()), (4095, 5, true));
        assert_eq!((inner.vid(), inner.pcp(), inner.dei()), (7, 3, false));
    }
    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(mut bytes: Vec<u8>, types: [prop::sample::Index; 3]) {
            const TYPES: [[u8; 2]; 4] = [[0x81, 0x00], [0x88, 0xa8], [0x08, 0x00], [0x00, 0x2e]];
            for (at, ethertype) in [12, 16, 20].into_iter().zip(types) {
                if let Some(bytes) = bytes.get_mut(at..at + 2) {
                    bytes.copy_from_slice(&TYPES[ethertype.index(TYPES.len())]);
                }
            }
            if let Ok(frame) = EthernetFrame::parse(&bytes) {
                prop_assert_eq!(frame.header_len() + frame.payload.len(), bytes.len());
                prop_assert!(!frame.ethertype.is_vlan() && !frame.ethertype.is_length());
                let fields = EthernetFields { dst: frame.header.dst(), src: frame.header.src(), ethertype: frame.ethertype };
                let mut written = vec![0; frame.header_len()];
                EthernetHeader::new(fields).emit_tagged(&frame.tags, &mut written).unwrap();
                prop_assert_eq!(&written, &bytes[..frame.header_len()]);
            }
        }
    }
}
