//! The way back: the Ethernet header for what a node answers to a packet that it has in its hands.
//! Answers go where the host's routes and neighbors lead, and where a neighbor is not known, to the
//! station that the frame came from.

use core::net::Ipv4Addr;

use super::node::Cx;
use crate::mem::Mbuf;
use crate::proto::{Host, Resolution};
use crate::wire::ethernet::{self, EthernetFields};
use crate::wire::vlan::TAG_LEN;
use crate::wire::{EtherType, EthernetFrame, EthernetHeader, MacAddr, VlanTag, VlanTags};

/// Bytes of the longest link header: two tags.
pub(super) const LINK_LEN_MAX: usize = ethernet::HEADER_LEN + 2 * TAG_LEN;

/// The link header of a frame that was received, as far as an answer wants to know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) src: MacAddr,
    pub(super) dst: MacAddr,
    /// Tags for the answer.
    tags: VlanTags,
}

impl Link {
    /// Reads the header that stands `advanced` bytes before the packet's data; None where it is not
    /// there any more.
    pub(super) fn behind(mbuf: &Mbuf, advanced: usize, host: &Host) -> Option<Self> {
        let l2_len = mbuf.l2_len();
        let header = mbuf.behind(advanced + l2_len)?.get(..l2_len)?;
        let frame = EthernetFrame::parse(header).ok()?;
        let tags = match (host.vlan().is_empty(), frame.tags.is_empty(), mbuf.vlan()) {
            // Its own, because of two tags the NIC may have taken the outer one off, and nobody
            // remembers it.
            (false, ..) => host.vlan(),
            // In the VLAN of the question, or with its priority.
            (true, false, _) => frame.tags,
            // The NIC took the tag off.
            (true, true, Some(tci)) => VlanTags::single(VlanTag::from_tci(EtherType::VLAN, tci)),
            (true, true, None) => VlanTags::NONE,
        };
        Some(Self { src: frame.header.src(), dst: frame.header.dst(), tags })
    }

    /// The station on the way to `destination`: a neighbor, or who sent the frame. None where no
    /// route leads back.
    pub(super) fn station_to(&self, destination: Ipv4Addr, cx: &Cx<'_>) -> Option<MacAddr> {
        match cx.host.resolve(destination, cx.now) {
            Resolution::Station { mac, .. } => Some(mac),
            Resolution::NeighborMissing { .. } if self.src.is_unicast() => Some(self.src),
            _ => None,
        }
    }

    /// The answer's header: its bytes and how many.
    pub(super) fn header(&self, dst: MacAddr, ethertype: EtherType, host: &Host) -> ([u8; LINK_LEN_MAX], usize) {
        link_header(dst, ethertype, &self.tags, host)
    }
}

/// Who sent the frame that is being looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) address: Ipv4Addr,
    pub(super) station: MacAddr,
}

impl Sender {
    /// The sender of a packet whose IPv4 header stands `advanced` bytes before its data, and is
    /// from `address`.
    pub(super) fn of(mbuf: &Mbuf, advanced: usize, address: Ipv4Addr, host: &Host) -> Option<Self> {
        let station = Link::behind(mbuf, advanced, host)?.src;
        station.is_unicast().then_some(Self { address, station })
    }
}

/// A link header from us: its bytes and how many.
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

/// A frame of several parts in a buffer of its own. None where no buffer is free or it does not fit
/// one.
pub(super) fn build(parts: &[&[u8]], cx: &Cx<'_>) -> Option<Mbuf> {
    let mut frame = cx.pool.alloc()?;
    for part in parts {
        let Some(room) = frame.append(part.len()) else {
            frame.free();
            return None;
        };
        room.copy_from_slice(part);
    }
    Some(frame)
}
