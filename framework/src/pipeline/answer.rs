//! The Ethernet header of an answer: the packet that a node sends back for the one it is
//! processing. Answers follow the host's routes and neighbors; where the neighbor is not known,
//! they go to the MAC address that the frame came from.

use core::net::Ipv4Addr;

use crate::mem::{Mbuf, Pool};
use crate::proto::{Host, Resolution};
use crate::time::Instant;
use crate::wire::ethernet::{self, EthernetFields};
use crate::wire::vlan::TAG_LEN;
use crate::wire::{EtherType, EthernetFrame, EthernetHeader, MacAddr, VlanTag, VlanTags};

/// Bytes of the longest link header: two tags.
pub(super) const LINK_LEN_MAX: usize = ethernet::HEADER_LEN + 2 * TAG_LEN;

/// The link header of a received frame, reduced to the fields that an answer needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyLink {
    pub(super) src: MacAddr,
    pub(super) dst: MacAddr,
    /// Tags for the answer.
    tags: VlanTags,
}

impl ReplyLink {
    /// Reads the header that stands `advanced` bytes before the packet's data; `None` where the
    /// header is no longer in the buffer.
    pub(super) fn behind(mbuf: &Mbuf, advanced: usize, host: &Host) -> Option<Self> {
        let l2_len = mbuf.l2_len();
        let header = mbuf.behind(advanced + l2_len)?.get(..l2_len)?;
        let frame = EthernetFrame::parse(header).ok()?;
        let tags = match (host.vlan().is_empty(), frame.tags.is_empty(), mbuf.vlan()) {
            // The host's own VLAN: of two tags the NIC may have stripped the outer one, which
            // leaves no record.
            (false, ..) => host.vlan(),
            // In the VLAN of the question, or with its priority.
            (true, false, _) => frame.tags,
            // The NIC stripped the tag.
            (true, true, Some(tci)) => VlanTags::single(VlanTag::from_tci(EtherType::VLAN, tci)),
            (true, true, None) => VlanTags::NONE,
        };
        Some(Self { src: frame.header.src(), dst: frame.header.dst(), tags })
    }

    /// The MAC address on the way to `destination`: the neighbor's, or the frame's source. `None`
    /// where no route leads back.
    pub(super) fn station_to(&self, destination: Ipv4Addr, host: &Host, now: Instant) -> Option<MacAddr> {
        match host.resolve(destination, now) {
            Resolution::Station { mac, .. } => Some(mac),
            Resolution::NeighborMissing { .. } if self.src.is_unicast() => Some(self.src),
            _ => None,
        }
    }

    /// The answer's header and its length.
    pub(super) fn header(&self, dst: MacAddr, ethertype: EtherType, host: &Host) -> ([u8; LINK_LEN_MAX], usize) {
        link_header(dst, ethertype, &self.tags, host)
    }
}

/// The sender of the frame that is being processed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) address: Ipv4Addr,
    pub(super) station: MacAddr,
}

impl Sender {
    /// The sender of a packet from `address`, whose IPv4 header stands `advanced` bytes before its
    /// data.
    pub(super) fn of(mbuf: &Mbuf, advanced: usize, address: Ipv4Addr, host: &Host) -> Option<Self> {
        let station = ReplyLink::behind(mbuf, advanced, host)?.src;
        station.is_unicast().then_some(Self { address, station })
    }
}

/// A link header from our MAC address, and its length.
pub(super) fn link_header(
    dst: MacAddr,
    ethertype: EtherType,
    tags: &VlanTags,
    host: &Host,
) -> ([u8; LINK_LEN_MAX], usize) {
    let mut bytes = [0; LINK_LEN_MAX];
    let header = EthernetHeader::new(EthernetFields { dst, src: host.mac(), ethertype });
    let len = header.emit_tagged(tags, &mut bytes).expect("the array holds two tags");
    (bytes, len)
}

/// A frame assembled from several parts in a new buffer. `None` where no buffer is free or the
/// frame does not fit.
pub(super) fn build(parts: &[&[u8]], pool: &Pool) -> Option<Mbuf> {
    let mut frame = pool.alloc()?;
    for part in parts {
        let Some(room) = frame.append(part.len()) else {
            frame.free();
            return None;
        };
        room.copy_from_slice(part);
    }
    Some(frame)
}
