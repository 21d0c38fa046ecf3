//! The Ethernet node checks that a frame is for us and on a VLAN of ours, and hands it to the node
//! of its protocol, or to the app where no node takes it. A packet enters at the destination
//! address and leaves after the last tag.

use super::app::App;
use super::node::{Cx, Node, discard};
use super::outline::NodeTree;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::mem::Mbuf;
use crate::time::Instant;
use crate::wire::handover::{self, Handover};
use crate::wire::{EtherType, EthernetError, EthernetFrame, EthernetHeader, MacAddr};

crate::drop_reasons! {
    /// Why the Ethernet node drops a frame.
    pub(crate) enum EthernetDrop {
        /// Fewer than 14 bytes.
        TooShort => "too_short",
        /// The frame ends inside a VLAN tag.
        TagTruncated => "tag_truncated",
        /// More than two VLAN tags.
        TooManyTags => "too_many_tags",
        /// An IEEE 802.3 length where the EtherType should be: spanning tree, CDP and their like.
        NotEthernetII => "not_ethernet_ii",
        /// A unicast frame to another station, flooded by a switch or seen in promiscuous mode.
        OtherMac => "other_mac",
        /// The frame has a VLAN that is not ours, or no tag where we require one.
        OtherVlan => "other_vlan",
        /// An EtherType that no node and no app takes.
        UnknownEtherType => "unknown_ethertype",
    }
}

impl From<EthernetError> for EthernetDrop {
    fn from(error: EthernetError) -> Self {
        match error {
            EthernetError::Short => Self::TooShort,
            EthernetError::TagTruncated => Self::TagTruncated,
            EthernetError::TooManyTags => Self::TooManyTags,
            EthernetError::NotEthernetII => Self::NotEthernetII,
        }
    }
}

/// The VLANs that a pipeline accepts. The innermost tag's identifier counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vlans {
    /// Tagged or not, every VLAN: replays.
    Any,
    /// Untagged frames, and those with identifier 0, which carry a priority only.
    Untagged,
    /// One VLAN.
    Only(u16),
}

impl Vlans {
    /// Nearly every frame is untagged: then no identifier is read.
    #[inline]
    fn accept(self, tci: Option<u16>) -> bool {
        let Some(tci) = tci else { return self.accept_vid(0) };
        self.accept_vid(tci & 0x0fff)
    }

    #[inline(always)]
    fn accept_vid(self, vid: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Untagged => vid == 0,
            Self::Only(wanted) => vid == wanted,
        }
    }
}

/// Checks the Ethernet header and hands IPv4 and ARP on.
pub struct Ethernet<I, R> {
    /// Our MAC address; `None` accepts every frame, for replays.
    station: Option<MacAddr>,
    host_changes: u64,
    vlans: Vlans,
    ipv4: I,
    arp: R,
    frames: Counter,
    drops: Drops<EthernetDrop>,
}

impl<I, R> Ethernet<I, R> {
    /// A node for frames to `station`, which follows the host's MAC address when that changes
    /// (`None`: accepts all frames), on `vlans`, in front of `ipv4` and `arp`.
    pub fn new(station: Option<MacAddr>, vlans: Vlans, ipv4: I, arp: R, scope: &Scope) -> Self {
        let scope = scope.scope("ethernet");
        let frames = scope.counter("frames", Unit::Frames);
        Self { station, host_changes: 0, vlans, ipv4, arp, frames, drops: scope.drops() }
    }

    /// Whether a frame is for us. Group frames always are: the tables behind know the groups.
    #[inline]
    fn is_for_us(&self, header: &EthernetHeader) -> bool {
        header.dst().is_multicast() || self.station.as_ref().is_none_or(|station| header.is_to(station))
    }

    /// Checks the header and removes it where the frame is for us. Returns the EtherType that
    /// follows.
    #[inline(always)]
    fn check(&self, mbuf: &mut Mbuf) -> Result<EtherType, EthernetDrop> {
        let frame = EthernetFrame::parse(mbuf.bytes())?;
        if !self.is_for_us(frame.header) {
            return Err(EthernetDrop::OtherMac);
        }
        let (ethertype, header_len, inner) = (frame.ethertype, frame.header_len(), frame.tags.inner());
        if let Some(tag) = inner {
            mbuf.set_vlan(tag.tci());
        }
        if !self.vlans.accept(mbuf.vlan()) {
            return Err(EthernetDrop::OtherVlan);
        }
        mbuf.set_l2_len(header_len);
        mbuf.advance(header_len);
        Ok(ethertype)
    }
}

impl<I, R> Ethernet<I, R> {
    /// The slow path, for frames that are tagged, malformed or not IPv4: checks the frame again,
    /// with every case.
    #[inline(never)]
    fn push_other<A: App>(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>)
    where
        I: Node<A>,
        R: Node<A>,
    {
        match self.check(&mut mbuf) {
            Ok(EtherType::IPV4) => self.ipv4.push(mbuf, app, cx),
            Ok(EtherType::ARP) => self.arp.push(mbuf, app, cx),
            Ok(handover::ETHERTYPE) if mbuf.flow_tag() == Some(handover::MARK) => self.push_handover(mbuf, app, cx),
            Ok(ethertype) if app.on_frame(ethertype, &mbuf, cx) => mbuf.free(),
            Ok(_) => discard(mbuf, &mut self.drops, EthernetDrop::UnknownEtherType),
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }
}

impl<I, R> Ethernet<I, R> {
    /// A segment of a connection that was another process's; the first one is its SYN.
    #[cold]
    fn push_handover<A>(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>)
    where
        I: Node<A>,
    {
        let Some((handover, packet)) = Handover::parse(mbuf.bytes()) else {
            return discard(mbuf, &mut self.drops, EthernetDrop::TooShort);
        };
        if cx.tcp().pass_on(handover, packet) {
            return mbuf.free();
        }
        mbuf.advance(handover::HEADER_LEN);
        cx.tcp().expect_arriving(handover.begins.then_some(handover));
        self.ipv4.push(mbuf, app, cx);
        cx.tcp().expect_arriving(None);
    }
}

impl<A: App, I: Node<A>, R: Node<A>> Node<A> for Ethernet<I, R> {
    /// Nearly every frame is untagged IPv4. This case is tested first and has its own copy of the
    /// checks, in which the compiler knows that there are no tags and how long the header is.
    #[inline(always)]
    fn push(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        self.frames.inc();
        let untagged = EthernetHeader::parse(mbuf.bytes()).map(|(header, _)| header.ethertype());
        if untagged == Ok(EtherType::IPV4) && self.check(&mut mbuf).is_ok() {
            return self.ipv4.push(mbuf, app, cx);
        }
        self.push_other(mbuf, app, cx);
    }

    #[inline]
    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>) {
        if self.host_changes != cx.host.changes() {
            self.host_changes = cx.host.changes();
            self.station = self.station.map(|_| cx.host.mac());
        }
        self.ipv4.tick(app, cx);
        self.arp.tick(app, cx);
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        if self.host_changes != cx.host.changes() {
            return cx.now;
        }
        self.ipv4.next_deadline(cx).min(self.arp.next_deadline(cx))
    }

    fn kept(&self) -> usize {
        self.ipv4.kept() + self.arp.kept()
    }

    fn outline(&self, outline: &mut NodeTree) {
        let station = self.station.map_or("any station".to_owned(), |mac| mac.to_string());
        let says = format!("{station}, VLANs {:?}", self.vlans);
        outline.node("ethernet", says, |outline| {
            self.ipv4.outline(outline);
            self.arp.outline(outline);
        });
    }
}
