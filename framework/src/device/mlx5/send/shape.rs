//! Selects the layout of a frame's WQE: the number of inline bytes, whether software or the NIC
//! inserts a tag, the number of pointers, or the reason why the frame can never be sent. Only
//! [`tx`](super::tx) writes WQEs.

use core::num::NonZeroU16;

use super::tx::Mlx5TxDrop;
use super::wqe::{CHECKSUM_L3, CHECKSUM_L4, ethernet_units};
use crate::device::Offload;
use crate::device::mlx5::setup::parts::TxFeatures;
use crate::mem::{Mbuf, Region};

/// Bytes of an Ethernet header, and of a tag, which is between its addresses and its EtherType.
pub(crate) const ETHERNET_LEN: usize = 14;
pub(crate) const TAG_LEN: usize = 4;
const TAG_OFFSET: usize = 12;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// The longest inline part possible: a header with options and tags, for segmentation.
pub(crate) const HEADER_LEN_MAX: usize = 256;

const IPV4_LEN_MIN: usize = 20;
const TCP_LEN_MIN: usize = 20;
/// Offset of TCP's data offset, in the upper four bits, counted in words (RFC 9293 3.1).
const TCP_DATA_OFFSET: usize = 12;

/// The limits and modes of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WqeLimits {
    pub(crate) capabilities: TxFeatures,
    /// Inline bytes that each WQE needs: 0 or 18.
    pub(crate) inline_len_min: usize,
    /// Inline bytes allowed if they are the whole frame.
    pub(crate) inline_len_max: usize,
    pub(crate) wqe_units_max: u32,
    /// Bytes of the longest header that segmentation repeats, a tag included.
    pub(crate) segmentation_header_len_max: usize,
}

/// How the VLAN tag of a frame is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// There is no tag.
    None,
    /// The device inserts it. Then nothing is inline, because both use the same field.
    ByDevice(u16),
    /// The driver, into the inline bytes.
    Inline(u16),
}

impl Tag {
    /// Bytes that it adds to the frame.
    pub(crate) fn len(self) -> usize {
        if self == Self::None { 0 } else { TAG_LEN }
    }
}

/// The layout of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WqeShape {
    pub(crate) checksums: u8,
    pub(crate) tag: Tag,
    /// The payload is cut into segments of this many bytes.
    pub(crate) segment_len: Option<NonZeroU16>,
    /// Inline bytes of the frame, without a tag.
    pub(crate) inline_len: usize,
    /// Inline length in the WQE: with the tag, and padded if the device requires more than the
    /// frame has.
    pub(crate) header_len: usize,
    /// Units of the whole WQE.
    pub(crate) units: u32,
    /// Whether pointers follow: the buffer must stay until the NIC has read it.
    pub(crate) has_pointers: bool,
}

impl WqeShape {
    /// Writes the inline bytes into a cleared buffer, from as many segments as they span, with the
    /// tag inserted. Bytes that the device requires beyond them remain zero, the padding that the
    /// frame gets on the wire.
    pub(crate) fn gather(&self, mbuf: &Mbuf, header: &mut [u8; HEADER_LEN_MAX]) {
        let mut len = 0;
        for bytes in mbuf.segments() {
            let part = &bytes[..bytes.len().min(self.inline_len - len)];
            header[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        if let Tag::Inline(tci) = self.tag {
            header.copy_within(TAG_OFFSET..len, TAG_OFFSET + TAG_LEN);
            header[TAG_OFFSET..TAG_OFFSET + 2].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            header[TAG_OFFSET + 2..TAG_OFFSET + TAG_LEN].copy_from_slice(&tci.to_be_bytes());
        }
    }
}

/// The layout for any frame. `inline`: wholly inline if it is short enough.
pub(crate) fn of(
    mbuf: &Mbuf,
    offload: Offload,
    limits: &WqeLimits,
    region: &Region,
    inline: bool,
) -> Result<WqeShape, Mlx5TxDrop> {
    let len = mbuf.len();
    if len < ETHERNET_LEN {
        return Err(Mlx5TxDrop::TooShort);
    }
    let wanted = offload.checksums();
    if wanted != 0 && !limits.capabilities.checksums {
        return Err(Mlx5TxDrop::OffloadUnsupported);
    }
    let cut = match offload.segment_len() {
        Some(segment_len) => segmentation(mbuf, segment_len, limits, offload.vlan().is_some())?,
        None => None,
    };
    let tag_len = if offload.vlan().is_some() { TAG_LEN } else { 0 };
    let frame_len = cut.map_or(len, |cut| cut.header_len + usize::from(cut.segment_len.get())) + tag_len;
    if frame_len > limits.capabilities.frame_len_max as usize {
        return Err(Mlx5TxDrop::TooLong);
    }
    let by_device = limits.capabilities.vlan_insert && limits.inline_len_min == 0 && cut.is_none();
    let fits_inline = inline && len + tag_len <= limits.inline_len_max;
    let (inline_len, tag) = match (cut, offload.vlan()) {
        (Some(cut), tag) => (cut.header_len, tag.map_or(Tag::None, Tag::Inline)),
        (None, tag) if fits_inline => (len, tag.map_or(Tag::None, Tag::Inline)),
        (None, None) => (limits.inline_len_min.min(len), Tag::None),
        (None, Some(tci)) if by_device => (0, Tag::ByDevice(tci)),
        (None, Some(tci)) => (ETHERNET_LEN, Tag::Inline(tci)),
    };
    let inlined_tag_len = if matches!(tag, Tag::Inline(_)) { TAG_LEN } else { 0 };
    let header_len = (inline_len + inlined_tag_len).max(limits.inline_len_min);
    let mut pointers = 0;
    for bytes in behind(mbuf, inline_len) {
        if !is_inside(bytes, region) {
            return Err(Mlx5TxDrop::ForeignBuffer);
        }
        pointers += 1;
    }
    let units = 1 + ethernet_units(header_len) + pointers;
    if units > limits.wqe_units_max {
        return Err(Mlx5TxDrop::TooManySegments);
    }
    let both = CHECKSUM_L3 | CHECKSUM_L4;
    let checksums = if offload.segment_len().is_some() { both } else { wanted };
    let segment_len = cut.map(|cut| cut.segment_len);
    Ok(WqeShape { checksums, tag, segment_len, inline_len, header_len, units, has_pointers: pointers > 0 })
}

/// The segmentation of a payload.
#[derive(Clone, Copy)]
struct Cut {
    header_len: usize,
    segment_len: NonZeroU16,
}

/// The segmentation of a TCP packet; `None` if it is sent as one frame.
fn segmentation(
    mbuf: &Mbuf,
    segment_len: NonZeroU16,
    limits: &WqeLimits,
    is_tagged: bool,
) -> Result<Option<Cut>, Mlx5TxDrop> {
    if limits.capabilities.segmentation_len_max == 0 || !limits.capabilities.checksums {
        return Err(Mlx5TxDrop::OffloadUnsupported);
    }
    let l4_offset = mbuf.l2_len() + mbuf.l3_len();
    let data_offset = byte_at(mbuf, l4_offset + TCP_DATA_OFFSET).ok_or(Mlx5TxDrop::HeadersUnknown)?;
    let tcp_len = usize::from(data_offset >> 4) * 4;
    let header_len = l4_offset + tcp_len;
    let is_known = mbuf.l2_len() >= ETHERNET_LEN && mbuf.l3_len() >= IPV4_LEN_MIN && tcp_len >= TCP_LEN_MIN;
    if !is_known || header_len > mbuf.len() {
        return Err(Mlx5TxDrop::HeadersUnknown);
    }
    let inline_len = header_len + if is_tagged { TAG_LEN } else { 0 };
    if inline_len > limits.segmentation_header_len_max {
        return Err(Mlx5TxDrop::HeaderTooLong);
    }
    let payload_len = mbuf.len() - header_len;
    if payload_len > limits.capabilities.segmentation_len_max as usize {
        return Err(Mlx5TxDrop::TooLong);
    }
    Ok((payload_len > segment_len.get().into()).then_some(Cut { header_len, segment_len }))
}

/// The bytes of a frame from `offset` on, one slice per buffer, none of them empty.
pub(crate) fn behind(mbuf: &Mbuf, offset: usize) -> impl Iterator<Item = &[u8]> {
    let mut skip = offset;
    mbuf.segments().filter_map(move |bytes| {
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        (skipped < bytes.len()).then(|| &bytes[skipped..])
    })
}

fn byte_at(mbuf: &Mbuf, offset: usize) -> Option<u8> {
    behind(mbuf, offset).next().map(|bytes| bytes[0])
}

/// Whether the region's key covers these bytes.
pub(crate) fn is_inside(bytes: &[u8], region: &Region) -> bool {
    let offset = bytes.as_ptr().addr().wrapping_sub(region.base().addr().get());
    offset < region.len() && bytes.len() <= region.len() - offset
}
