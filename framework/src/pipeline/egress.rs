//! The way out: a datagram gets its UDP, IPv4 and Ethernet headers and is posted. A [`UdpFlow`] holds the headers
//! prepared, so that a send copies 42 bytes and patches two lengths and two checksums.
//!
//! What enters are payloads; what leaves are frames at the device, whole or in fragments. A send either posts
//! everything or nothing, and says which of the two with a [`SendError`] that is also counted.

use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::node::Cx;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::Offload;
use crate::mem::Mbuf;
use crate::proto::{FragmentPiece, FragmentPlan, FragmentRequest, FragmentationError, Resolution};
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, EthernetFields};
use crate::wire::vlan::TAG_LEN;
use crate::wire::{
    EtherType, EthernetHeader, Ipv4Fields, Ipv4Header, MacAddr, Protocol, UdpFields, UdpHeader, VlanTag, VlanTags,
    ipv4, udp,
};
use zerocopy::IntoBytes;

crate::drop_reasons! {
    /// Why a datagram was not sent. The sender has been told as well.
    pub enum EgressDrop {
        /// No buffer is free for it.
        PoolEmpty => "pool_empty",
        /// The device's ring is full.
        RingFull => "ring_full",
        /// Longer than a UDP datagram can be.
        TooLong => "too_long",
        /// Longer than the MTU, and the flow forbids fragments.
        DontFragment => "dont_fragment",
    }
}

/// Counters of what is sent, one for each worker; handed to whoever sends in [`Cx`].
pub struct Egress {
    datagrams: Counter,
    fragments: Counter,
    frames: Counter,
    bytes: Counter,
    drops: Drops<EgressDrop>,
    /// Identification of the next datagram that routers may fragment (RFC 6864 4.3): one sequence for all flows, as
    /// flows may share their addresses.
    identification: u16,
}

impl Egress {
    /// Counters in the scope `egress` below `scope`.
    pub fn new(scope: &Scope) -> Self {
        let scope = scope.scope("egress");
        Self {
            datagrams: scope.counter("datagrams", Unit::Datagrams),
            fragments: scope.counter("fragments", Unit::Packets),
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            drops: scope.drops(),
            identification: 0,
        }
    }

    fn next_identification(&mut self) -> u16 {
        self.identification = self.identification.wrapping_add(1);
        self.identification
    }

    /// Counts a datagram that is not sent, and says why.
    #[cold]
    fn refuse(&mut self, error: SendError) -> SendError {
        self.drops.count(match error {
            SendError::PoolEmpty => EgressDrop::PoolEmpty,
            SendError::RingFull => EgressDrop::RingFull,
            SendError::TooLong => EgressDrop::TooLong,
            SendError::DontFragment { .. } => EgressDrop::DontFragment,
        });
        error
    }
}

/// Who computes the UDP checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// We do, over the payload: about 20 ns for each KiB.
    #[default]
    Compute,
    /// The NIC does; only where [`Capabilities`](crate::device::Capabilities) say that it can. Fragments are computed.
    Offload,
    /// Nobody does: the field is zero, which IPv4 allows (RFC 768).
    Zero,
}

/// How a flow sends, by the names of the socket options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Hops; by default 1 for groups (RFC 1112 6.1) and 64 for hosts.
    pub ttl: Option<u8>,
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Tag control information of the VLAN tag; by default that of the interface. Priority in the upper three bits.
    pub vlan: Option<u16>,
    /// Forbid fragments: a datagram over the MTU is refused.
    pub dont_fragment: bool,
    /// Who computes the checksum.
    pub checksum: Checksum,
}

impl Default for UdpOptions {
    /// What a fresh socket does; fragments are allowed.
    fn default() -> Self {
        Self { ttl: None, tos: 0, vlan: None, dont_fragment: false, checksum: Checksum::Compute }
    }
}

/// Bytes of the longest prepared header: Ethernet, two tags, IPv4, UDP.
const HEADERS_LEN_MAX: usize = ethernet::HEADER_LEN + 2 * TAG_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;

/// A sender to one destination, with its headers prepared: `connect` of a socket. Sixty-odd bytes; make one for each
/// destination, once.
#[derive(Clone, Debug)]
pub struct UdpFlow {
    local: SocketAddrV4,
    remote: SocketAddrV4,
    /// Ethernet header and tags.
    link: [u8; ethernet::HEADER_LEN + 2 * TAG_LEN],
    link_len: usize,
    /// For an empty payload; patched for each datagram.
    ipv4: Ipv4Header,
    udp: UdpHeader,
    mtu: usize,
    dont_fragment: bool,
    checksum: Checksum,
}

impl UdpFlow {
    /// Prepares the headers from `local` (an unspecified address becomes the interface's own) to `remote`. The host
    /// says which station the frames go to.
    pub fn connect(
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &UdpOptions,
        cx: &Cx<'_>,
    ) -> Result<Self, ConnectError> {
        let (station, address) = next_hop(*remote.ip(), cx)?;
        let source = if local.ip().is_unspecified() { address } else { *local.ip() };
        let local = SocketAddrV4::new(source, local.port());
        let tags = match options.vlan {
            Some(tci) => VlanTags::single(VlanTag::from_tci(EtherType::VLAN, tci)),
            None => cx.host.vlan(),
        };
        let fields = EthernetFields { dst: station, src: cx.host.mac(), ethertype: EtherType::IPV4 };
        let mut link = [0; ethernet::HEADER_LEN + 2 * TAG_LEN];
        let link_len = EthernetHeader::new(fields).emit_tagged(&tags, &mut link);
        let ttl = options.ttl.unwrap_or(if remote.ip().is_multicast() { 1 } else { 64 });
        let ipv4 = Ipv4Header::new(&Ipv4Fields {
            source,
            destination: *remote.ip(),
            protocol: Protocol::UDP,
            ttl,
            tos: options.tos,
            identification: 0,
            dont_fragment: options.dont_fragment,
            payload_len: udp::HEADER_LEN,
        });
        let ports = UdpFields { source_port: local.port(), destination_port: remote.port(), payload_len: 0 };
        Ok(Self {
            local,
            remote,
            link,
            link_len: link_len.expect("the array holds two tags"),
            ipv4: ipv4.expect("an empty datagram is not too long"),
            udp: UdpHeader::new(&ports).expect("an empty datagram is not too long"),
            mtu: cx.host.mtu(),
            dont_fragment: options.dont_fragment,
            checksum: options.checksum,
        })
    }

    /// The address and port that the datagrams come from.
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// The address and port that they go to.
    pub fn remote(&self) -> SocketAddrV4 {
        self.remote
    }

    /// Bytes of the longest payload that goes in one frame.
    pub fn payload_len_max(&self) -> usize {
        self.mtu - ipv4::HEADER_LEN - udp::HEADER_LEN
    }

    /// Sends a copy of `payload`, in fragments where it is longer than the MTU allows. One frame costs an allocation
    /// from the pool, the copy, the headers and the post: about 20 ns for 64 bytes.
    #[inline]
    pub fn send(&self, payload: &[u8], cx: &mut Cx<'_>) -> Result<(), SendError> {
        if payload.len() > self.payload_len_max() {
            return self.send_fragments(payload, cx);
        }
        let Some(mut mbuf) = cx.pool.alloc() else { return Err(cx.egress.refuse(SendError::PoolEmpty)) };
        match mbuf.append(payload.len()) {
            Some(room) => room.copy_from_slice(payload),
            None => {
                mbuf.free();
                return self.send_fragments(payload, cx);
            }
        }
        self.send_mbuf(mbuf, cx).map_err(|(error, mbuf)| {
            mbuf.free();
            error
        })
    }

    /// Sends the payload that stands in `mbuf`, without a copy: the headers go into its headroom, or into a buffer of
    /// their own where the bytes are held by somebody. It comes back where it cannot be sent.
    #[inline]
    pub fn send_mbuf(&self, payload: Mbuf, cx: &mut Cx<'_>) -> Result<(), (SendError, Mbuf)> {
        let len = payload.len();
        if len > self.payload_len_max() {
            return Err((cx.egress.refuse(SendError::DontFragment { mtu: self.mtu }), payload));
        }
        let mut headers = [0; HEADERS_LEN_MAX];
        let (headers_len, offload) = self.headers(&mut headers, &payload, cx.egress);
        let frame = match prepend(payload, &headers[..headers_len], cx) {
            Ok(mut frame) => {
                // Where the NIC finds the checksum's field.
                if offload.l4_checksum {
                    frame.set_l2_len(self.link_len);
                    frame.set_l3_len(ipv4::HEADER_LEN);
                }
                frame
            }
            Err(payload) => return Err((cx.egress.refuse(SendError::PoolEmpty), payload)),
        };
        let frame_len = frame.len() as u64;
        match cx.tx.post(frame, offload) {
            Ok(()) => {
                cx.egress.datagrams.inc();
                cx.egress.frames.inc();
                cx.egress.bytes.add(frame_len);
                Ok(())
            }
            Err(frame) => Err((cx.egress.refuse(SendError::RingFull), without_headers(frame, headers_len))),
        }
    }

    /// Writes the headers of a datagram in one frame; returns their length and what the NIC has to do.
    #[inline]
    fn headers(&self, headers: &mut [u8; HEADERS_LEN_MAX], payload: &Mbuf, egress: &mut Egress) -> (usize, Offload) {
        let udp_len = udp::HEADER_LEN + payload.len();
        let mut ipv4 = self.ipv4;
        ipv4.set_total_len((ipv4::HEADER_LEN + udp_len) as u16);
        if !self.dont_fragment {
            ipv4.set_identification(egress.next_identification());
        }
        let mut udp = self.udp;
        udp.set_length(udp_len as u16);
        let mut offload = Offload::default();
        match self.checksum {
            Checksum::Zero => (),
            Checksum::Compute => udp.set_checksum(self.udp_checksum(&udp, payload.segments())),
            Checksum::Offload => {
                offload.l4_checksum = true;
                udp.set_checksum(self.pseudo_sum(udp_len).fold());
            }
        }
        let mut at = 0;
        for part in [&self.link[..self.link_len], ipv4.as_bytes(), udp.as_bytes()] {
            headers[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        (at, offload)
    }

    fn udp_checksum<'a>(&self, header: &UdpHeader, payload: impl Iterator<Item = &'a [u8]>) -> u16 {
        let sum = header.sum(*self.local.ip(), *self.remote.ip());
        match payload.fold(sum, Sum::append).finish() {
            // Zero means "no checksum", so a sum that happens to be zero is sent as its other form (RFC 768).
            0 => 0xffff,
            checksum => checksum,
        }
    }

    fn pseudo_sum(&self, udp_len: usize) -> Sum {
        let (source, destination) = (*self.local.ip(), *self.remote.ip());
        let protocol = Protocol::UDP;
        crate::wire::checksum::PseudoHeader { source, destination, protocol, len: udp_len as u16 }.sum()
    }

    /// Sends a datagram that is longer than one frame: all of its fragments or none.
    #[cold]
    fn send_fragments(&self, payload: &[u8], cx: &mut Cx<'_>) -> Result<(), SendError> {
        let plan = self.plan(payload, cx).map_err(|error| cx.egress.refuse(error))?;
        let mut udp = self.udp;
        udp.set_length((udp::HEADER_LEN + payload.len()) as u16);
        if self.checksum != Checksum::Zero {
            udp.set_checksum(self.udp_checksum(&udp, core::iter::once(payload)));
        }
        let mut ipv4 = self.ipv4;
        ipv4.set_identification(cx.egress.next_identification());
        for piece in plan {
            let frame = self.fragment(piece, ipv4, &udp, payload, cx);
            let frame = frame.ok_or_else(|| cx.egress.refuse(SendError::PoolEmpty))?;
            let frame_len = frame.len() as u64;
            if let Err(frame) = cx.tx.post(frame, Offload::default()) {
                frame.free();
                return Err(cx.egress.refuse(SendError::RingFull));
            }
            cx.egress.fragments.inc();
            cx.egress.frames.inc();
            cx.egress.bytes.add(frame_len);
        }
        cx.egress.datagrams.inc();
        Ok(())
    }

    /// The fragments, where there are buffers and slots for all of them.
    fn plan(&self, payload: &[u8], cx: &mut Cx<'_>) -> Result<FragmentPlan, SendError> {
        // A frame is no longer than a buffer holds, as each fragment is copied into one.
        let buffer_mtu = cx.pool.layout().data_room() - self.link_len;
        let plan = FragmentPlan::new(FragmentRequest {
            payload_len: udp::HEADER_LEN + payload.len(),
            header_len: ipv4::HEADER_LEN,
            later_header_len: ipv4::HEADER_LEN,
            mtu: self.mtu.min(buffer_mtu),
            dont_fragment: self.dont_fragment,
        });
        let plan = plan.map_err(|error| match error {
            FragmentationError::DontFragment { mtu } | FragmentationError::MtuTooSmall { mtu } => {
                SendError::DontFragment { mtu }
            }
            FragmentationError::Oversize => SendError::TooLong,
        })?;
        if cx.pool.available() < plan.len() {
            return Err(SendError::PoolEmpty);
        }
        if cx.tx.room() < plan.len() {
            return Err(SendError::RingFull);
        }
        Ok(plan)
    }

    /// One fragment as a frame. Its part of the datagram may begin with the UDP header.
    fn fragment(
        &self,
        piece: FragmentPiece,
        mut ipv4: Ipv4Header,
        udp: &UdpHeader,
        payload: &[u8],
        cx: &Cx<'_>,
    ) -> Option<Mbuf> {
        ipv4.set_total_len((ipv4::HEADER_LEN + piece.len) as u16);
        ipv4.set_fragment(piece.offset as u16, piece.more);
        let (udp, from) = match piece.offset {
            0 => (udp.as_bytes(), 0),
            offset => (&[][..], offset - udp::HEADER_LEN),
        };
        let part = &payload[from..from + piece.len - udp.len()];
        let mut mbuf = cx.pool.alloc()?;
        for bytes in [&self.link[..self.link_len], ipv4.as_bytes(), udp, part] {
            let Some(room) = mbuf.append(bytes.len()) else {
                mbuf.free();
                return None;
            };
            room.copy_from_slice(bytes);
        }
        Some(mbuf)
    }
}

/// Sends one datagram without a prepared flow: `sendto` of a socket. Costs the preparation each time, about 30 ns.
pub fn send_to(
    local: SocketAddrV4,
    remote: SocketAddrV4,
    options: &UdpOptions,
    payload: &[u8],
    cx: &mut Cx<'_>,
) -> Result<(), SendToError> {
    let flow = UdpFlow::connect(local, remote, options, cx).map_err(SendToError::Connect)?;
    flow.send(payload, cx).map_err(SendToError::Send)
}

/// The station that frames to `destination` go to, and the address to send from.
fn next_hop(destination: Ipv4Addr, cx: &Cx<'_>) -> Result<(MacAddr, Ipv4Addr), ConnectError> {
    match cx.host.resolve(destination, cx.now) {
        Resolution::Station { mac, source } | Resolution::Group { mac, source } => Ok((mac, source)),
        Resolution::Own => Err(ConnectError::Own(destination)),
        Resolution::NeighbourMissing { next_hop, .. } => Err(ConnectError::NeighbourMissing(next_hop)),
        Resolution::NoRoute => Err(ConnectError::NoRoute(destination)),
    }
}

/// Puts the headers before the payload: into its headroom where that is ours to write, else into a buffer chained in
/// front. The payload comes back where no buffer is free.
#[inline]
fn prepend(mut payload: Mbuf, headers: &[u8], cx: &Cx<'_>) -> Result<Mbuf, Mbuf> {
    if let Some(room) = payload.prepend(headers.len()) {
        room.copy_from_slice(headers);
        return Ok(payload);
    }
    let Some(mut front) = cx.pool.alloc_copy(headers) else { return Err(payload) };
    front.attach(payload);
    Ok(front)
}

/// Undoes [`prepend`].
#[cold]
fn without_headers(mut frame: Mbuf, headers_len: usize) -> Mbuf {
    match frame.detach() {
        Some(payload) if frame.len() == headers_len => {
            frame.free();
            payload
        }
        rest => {
            if let Some(rest) = rest {
                frame.attach(rest);
            }
            frame.advance(headers_len);
            frame
        }
    }
}

/// Why there is no flow to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The destination is this host: what it sends to itself does not belong on the wire.
    Own(Ipv4Addr),
    /// The MAC address of the next hop is not known.
    NeighbourMissing(Ipv4Addr),
    /// No route leads there.
    NoRoute(Ipv4Addr),
}

/// Why a datagram was not sent. Nothing of it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No buffer is free: the pool is too small, or somebody holds too much.
    PoolEmpty,
    /// The device's ring is full: poll, then try again.
    RingFull,
    /// Over 65,507 bytes.
    TooLong,
    /// Over what one frame takes, where fragments are forbidden or the payload is an mbuf.
    DontFragment {
        /// Bytes of an IPv4 packet that fit.
        mtu: usize,
    },
}

/// Why a datagram without a prepared flow was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendToError {
    /// There is no way to the destination.
    Connect(ConnectError),
    /// There is a way, and it was not taken.
    Send(SendError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(own) => write!(f, "{own} is this host itself: use a ring between workers instead of the wire"),
            Self::NeighbourMissing(next_hop) => {
                write!(f, "the MAC address of {next_hop} is not known: add it as a neighbour, or ask for it by ARP")
            }
            Self::NoRoute(destination) => write!(f, "no route leads to {destination}: add a route for its network"),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolEmpty => write!(f, "no packet buffer is free: make the pool larger, or hold fewer packets"),
            Self::RingFull => write!(f, "the transmit ring is full: send again after the next poll"),
            Self::TooLong => write!(f, "a UDP datagram carries at most 65,507 bytes"),
            Self::DontFragment { mtu } => {
                write!(f, "the datagram does not fit an MTU of {mtu} bytes and must not be fragmented")
            }
        }
    }
}

impl fmt::Display for SendToError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::Send(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConnectError {}
impl core::error::Error for SendError {}
impl core::error::Error for SendToError {}
