//! Sending datagrams. A [`UdpFlow`] holds the headers prepared, so that a send copies 42 bytes and
//! patches two lengths and two checksums. It tracks its host: when a route, a neighbor, an address
//! or a path's MTU changes, the next send prepares the headers again.
//!
//! A send takes everything or nothing; a failure is a [`UdpSendError`] that is also counted.

use super::send_error::UdpSendError;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use crate::device::Offload;
use crate::mem::Mbuf;
use crate::pipeline::fragments;
use crate::pipeline::node::Cx;
use crate::proto::{
    Flow, FragmentPiece, FragmentPlan, IdentificationKey, InterfaceId, NeighborRequest, Resolution, ResolutionCause,
};
use crate::time::{Duration, Instant};
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, EthernetFields};
use crate::wire::vlan::TAG_LEN;
use crate::wire::{
    EtherType, EthernetHeader, Ipv4Fields, Ipv4Header, MacAddr, Protocol, UdpFields, UdpHeader, VlanTag, VlanTags,
    ipv4, udp,
};
use zerocopy::IntoBytes;

/// How the UDP checksum is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checksum {
    /// By us, over the payload: about 20 ns for each KiB.
    #[default]
    Compute,
    /// By the NIC; only where its [`Capabilities`](crate::device::Capabilities) allow it. For
    /// fragments we compute it.
    Offload,
    /// Not at all: the field is zero, which IPv4 allows (RFC 768).
    Zero,
}

/// How a flow sends, by the names of the socket options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// TTL; by default 1 for groups (RFC 1112 6.1) and 64 for hosts.
    pub ttl: Option<u8>,
    /// Type of service: DSCP in the upper six bits, ECN in the lower two. By default 0.
    pub tos: u8,
    /// Tag control information of the VLAN tag; by default that of the interface. Priority in the
    /// upper three bits.
    pub vlan: Option<u16>,
    /// Forbid fragments: a datagram over the MTU is refused. By default off.
    pub dont_fragment: bool,
    /// A packet may be as long as the interface's MTU allows, although a router has reported less
    /// for the path. By default off.
    pub ignore_path_mtu: bool,
    /// How the checksum is computed. By default [`Checksum::Compute`].
    pub checksum: Checksum,
    /// Ring the doorbell with each datagram instead of at the end of the turn, for a flow of
    /// orders: the datagram, and all frames posted before it, leave before `send` returns. Over
    /// AF_XDP that is a system call a datagram ([`TxQueue`](crate::device::TxQueue) has the cost of
    /// each device); for several datagrams at once post them and call [`Cx::ring_doorbell`]. By
    /// default off.
    pub urgent: bool,
}

impl Default for UdpOptions {
    /// The defaults of a new socket; fragments are allowed.
    fn default() -> Self {
        Self {
            ttl: None,
            tos: 0,
            vlan: None,
            dont_fragment: false,
            ignore_path_mtu: false,
            checksum: Checksum::Compute,
            urgent: false,
        }
    }
}

/// Interval after which a flow without a path looks it up again although nothing seems to have
/// changed.
const RETRY: Duration = Duration::from_secs(1);

/// Bytes of the longest prepared header: Ethernet, two tags, IPv4, UDP.
const HEADERS_LEN_MAX: usize = ethernet::HEADER_LEN + 2 * TAG_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;

/// A sender to one destination, with its headers prepared: `connect` of a socket. Some 150 bytes;
/// make one for each destination, once.
#[derive(Clone, Debug)]
pub struct UdpFlow {
    local: SocketAddrV4,
    remote: SocketAddrV4,
    options: UdpOptions,
    /// Whether the source address is the route's, and not one that the caller chose.
    takes_source: bool,
    /// The cause of the neighbor's resolution: the app, for as long as the flow lives, or a single
    /// datagram.
    cause: ResolutionCause,
    /// The interface that the flow leaves by. On another one it sends the headers that were
    /// prepared last.
    interface: InterfaceId,
    next_hop: NextHop,
    /// The change counts of the host and the paths when the headers were prepared, and the time of
    /// the next lookup in any case.
    seen: u64,
    until: Instant,
    /// Ethernet header and tags.
    link: [u8; ethernet::HEADER_LEN + 2 * TAG_LEN],
    link_len: usize,
    /// For an empty payload; patched for each datagram.
    ipv4: Ipv4Header,
    identification: IdentificationKey,
    udp: UdpHeader,
    mtu: usize,
}

/// The next hop of the flow's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextHop {
    /// The MAC address in the prepared header.
    Known,
    /// A next hop that is being resolved.
    Resolving(NeighborRequest),
    /// No path.
    Lost(UdpSendError),
}

/// The outcome of a datagram that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpSent {
    /// Posted; leaves with the next doorbell: of the turn, or [`Cx::ring_doorbell`]. For an
    /// [`urgent`](UdpOptions::urgent) flow the doorbell has been rung.
    Posted,
    /// Waits until its neighbor replies. `egress/neighbors/…` counts whether it was sent later.
    Waiting,
}

impl UdpFlow {
    /// Prepares the headers from `local` (an unspecified address becomes that of the route, and
    /// follows it) to `remote`. An unknown next hop is requested at once, where the host resolves
    /// neighbors at all. While the link is down the flow is created, and each send returns
    /// [`UdpSendError::LinkDown`].
    pub fn connect(
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &UdpOptions,
        cx: &mut Cx<'_>,
    ) -> Result<Self, UdpConnectError> {
        Self::connect_for(ResolutionCause::App, local, remote, options, cx)
    }

    fn connect_for(
        cause: ResolutionCause,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &UdpOptions,
        cx: &mut Cx<'_>,
    ) -> Result<Self, UdpConnectError> {
        let ports = UdpFields { source_port: local.port(), destination_port: remote.port(), payload_len: 0 };
        let mut flow = Self {
            local,
            remote,
            options: *options,
            takes_source: local.ip().is_unspecified(),
            cause,
            interface: cx.host.interface(),
            next_hop: NextHop::Known,
            seen: 0,
            until: Instant::ZERO,
            link: [0; ethernet::HEADER_LEN + 2 * TAG_LEN],
            link_len: 0,
            ipv4: ipv4_header(*local.ip(), *remote.ip(), options),
            identification: IdentificationKey::default(),
            udp: UdpHeader::new(&ports).expect("an empty datagram is not too long"),
            mtu: cx.host.mtu(),
        };
        flow.prepare(cx)?;
        Ok(flow)
    }

    /// The source address and port of the datagrams.
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// The destination address and port.
    pub fn remote(&self) -> SocketAddrV4 {
        self.remote
    }

    /// Bytes of the longest payload that fits one frame, as known at the last send.
    pub fn payload_len_max(&self) -> usize {
        self.mtu - ipv4::HEADER_LEN - udp::HEADER_LEN
    }

    /// Sends a copy of `payload`, in fragments where it is longer than the MTU allows. One frame
    /// costs an allocation from the pool, the copy, the headers and the post: about 20 ns for 64
    /// bytes.
    #[inline]
    pub fn send(&mut self, payload: &[u8], cx: &mut Cx<'_>) -> Result<UdpSent, UdpSendError> {
        self.refresh(cx);
        if payload.len() > self.payload_len_max() {
            return self.send_fragments(payload, cx);
        }
        let Some(mut mbuf) = cx.pool.alloc() else { return Err(cx.egress.refuse(UdpSendError::PoolEmpty)) };
        match mbuf.append(payload.len()) {
            Some(room) => room.copy_from_slice(payload),
            None => {
                mbuf.free();
                return self.send_fragments(payload, cx);
            }
        }
        self.send_current(mbuf, cx).map_err(|(error, mbuf)| {
            mbuf.free();
            error
        })
    }

    /// Sends the payload in `mbuf` without a copy: the headers go into its headroom, or into a
    /// buffer of their own where another handle holds the bytes. Returns the mbuf where it cannot
    /// be sent.
    #[inline]
    pub fn send_mbuf(&mut self, payload: Mbuf, cx: &mut Cx<'_>) -> Result<UdpSent, (UdpSendError, Mbuf)> {
        self.refresh(cx);
        if payload.len() > self.payload_len_max() {
            return Err((cx.egress.refuse(UdpSendError::DontFragment { mtu: self.mtu }), payload));
        }
        self.send_current(payload, cx)
    }

    /// Prepares the headers again where the host or the path has changed; costs two loads and
    /// compares where neither has. Every send does so; call it for flows that are sent on while
    /// another interface of a [trunk](crate::pipeline::VlanTrunk) is active.
    #[inline]
    pub fn refresh(&mut self, cx: &mut Cx<'_>) {
        if self.seen != changes(cx) || cx.now >= self.until {
            self.follow(cx);
        }
    }

    #[cold]
    fn follow(&mut self, cx: &mut Cx<'_>) {
        if cx.host.interface() != self.interface {
            return;
        }
        if let Err(error) = self.prepare(cx) {
            self.next_hop = NextHop::Lost(match error {
                // A link that goes down removes its routes.
                _ if !cx.host.is_up() => UdpSendError::LinkDown,
                UdpConnectError::LocalAddress(address) | UdpConnectError::NoRoute(address) => {
                    UdpSendError::NoRoute(address)
                }
                UdpConnectError::NeighborMissing(next_hop) => UdpSendError::NeighborMissing(next_hop),
            });
            // Room for a request may appear later, without a notification.
            self.until = cx.now + RETRY;
        }
        self.seen = changes(cx);
    }

    /// Writes the headers for the host's current path to the remote end.
    fn prepare(&mut self, cx: &mut Cx<'_>) -> Result<(), UdpConnectError> {
        let destination = *self.remote.ip();
        let reported = if self.options.ignore_path_mtu { None } else { cx.egress.path_mtu(destination, cx.now) };
        let (mtu, until) = reported.unwrap_or((usize::MAX, Instant::MAX));
        (self.mtu, self.until) = (mtu.min(cx.host.mtu()), until);
        let (mac, source, next_hop) = match cx.host.resolve(destination, cx.now) {
            Resolution::Station { mac, source } => {
                self.keep_neighbor(source, cx);
                (mac, source, NextHop::Known)
            }
            Resolution::Group { mac, source } => (mac, source, NextHop::Known),
            Resolution::NeighborMissing { next_hop, source } => {
                let request = NeighborRequest { next_hop, source, cause: self.cause };
                if !cx.egress().keep_neighbor(request) {
                    return Err(UdpConnectError::NeighborMissing(next_hop));
                }
                (MacAddr::ZERO, source, NextHop::Resolving(request))
            }
            Resolution::Local => return Err(UdpConnectError::LocalAddress(destination)),
            Resolution::NoRoute => return Err(UdpConnectError::NoRoute(destination)),
        };
        if self.takes_source && source != *self.local.ip() {
            self.local.set_ip(source);
            self.ipv4 = ipv4_header(source, destination, &self.options);
        }
        if self.options.dont_fragment {
            self.ipv4.set_identification(cx.egress.proof(Flow { local: self.local, remote: self.remote }));
        }
        self.identification = cx.egress.identification_key(*self.local.ip(), destination, Protocol::UDP);
        let tags = self.options.vlan.map(|tci| VlanTags::single(VlanTag::from_tci(EtherType::VLAN, tci)));
        let fields = EthernetFields { dst: mac, src: cx.host.mac(), ethertype: EtherType::IPV4 };
        let emitted = EthernetHeader::new(fields).emit_tagged(&tags.unwrap_or(cx.host.vlan()), &mut self.link);
        self.link_len = emitted.expect("the array holds two tags");
        self.next_hop = if cx.host.is_up() { next_hop } else { NextHop::Lost(UdpSendError::LinkDown) };
        self.seen = changes(cx);
        Ok(())
    }

    /// Keeps the next hop fresh from now on, unless it was configured.
    fn keep_neighbor(&self, source: Ipv4Addr, cx: &mut Cx<'_>) {
        let destination = *self.remote.ip();
        let next_hop = cx.host.route(destination).and_then(|route| route.gateway).unwrap_or(destination);
        if cx.host.has_learned(next_hop) {
            // Without room it is not kept fresh, and is requested again when it is gone.
            let _ = cx.egress().keep_neighbor(NeighborRequest { next_hop, source, cause: self.cause });
        }
    }

    /// Sends a payload that fits one frame.
    #[inline]
    fn send_current(&self, payload: Mbuf, cx: &mut Cx<'_>) -> Result<UdpSent, (UdpSendError, Mbuf)> {
        if let NextHop::Lost(error) = self.next_hop {
            return Err((cx.egress.refuse(error), payload));
        }
        let mut headers = [0; HEADERS_LEN_MAX];
        let (headers_len, offload) = self.headers(&mut headers, &payload, cx);
        let frame = match prepend(payload, &headers[..headers_len], cx) {
            Ok(mut frame) => {
                // The NIC needs the position of the checksum field.
                if offload.has(Offload::L4_CHECKSUM) {
                    frame.set_l2_len(self.link_len);
                    frame.set_l3_len(ipv4::HEADER_LEN);
                }
                frame
            }
            Err(payload) => return Err((cx.egress.refuse(UdpSendError::PoolEmpty), payload)),
        };
        let frame_len = frame.len() as u64;
        match self.leave(frame, offload, cx) {
            Ok(sent) => {
                cx.egress.datagrams.inc();
                cx.egress.frames.inc();
                cx.egress.bytes.add(frame_len);
                Ok(sent)
            }
            Err((error, frame)) => Err((cx.egress.refuse(error), without_headers(frame, headers_len))),
        }
    }

    /// Posts a frame, or lets it wait for its neighbor.
    #[inline]
    fn leave(&self, frame: Mbuf, offload: Offload, cx: &mut Cx<'_>) -> Result<UdpSent, (UdpSendError, Mbuf)> {
        match self.next_hop {
            NextHop::Known => match cx.tx.post(frame, offload) {
                Ok(()) => Ok(UdpSent::Posted),
                Err(frame) => Err((UdpSendError::RingFull, frame)),
            },
            // Another interface's resolver cannot resolve it.
            NextHop::Resolving(request) if cx.host.interface() != self.interface => {
                Err((UdpSendError::NeighborMissing(request.next_hop), frame))
            }
            NextHop::Resolving(request) => match cx.egress().queue(frame, request) {
                Ok(()) => Ok(UdpSent::Waiting),
                Err(frame) => Err((UdpSendError::NeighborMissing(request.next_hop), frame)),
            },
            NextHop::Lost(error) => Err((error, frame)),
        }
    }

    /// Writes the headers of a datagram in one frame; returns their length and the offloads.
    #[inline]
    fn headers(&self, headers: &mut [u8; HEADERS_LEN_MAX], payload: &Mbuf, cx: &mut Cx<'_>) -> (usize, Offload) {
        let udp_len = udp::HEADER_LEN + payload.len();
        let mut ipv4 = self.ipv4;
        ipv4.set_total_len((ipv4::HEADER_LEN + udp_len) as u16);
        if !self.options.dont_fragment {
            ipv4.set_identification(cx.egress.next_identification(self.identification, cx.now));
        }
        let mut udp = self.udp;
        udp.set_length(udp_len as u16);
        let mut offload = Offload::URGENT.when(self.options.urgent);
        match self.options.checksum {
            Checksum::Zero => (),
            // The resolver posts a frame that waits, and does not know its offloads.
            Checksum::Offload if self.next_hop == NextHop::Known => {
                offload |= Offload::L4_CHECKSUM;
                udp.set_checksum(self.pseudo_sum(udp_len).fold());
            }
            Checksum::Compute | Checksum::Offload => {
                udp.set_checksum(self.udp_checksum(&udp, payload.segments()));
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
            // Zero means "no checksum", so a sum of zero is sent as 0xffff (RFC 768).
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
    fn send_fragments(&self, payload: &[u8], cx: &mut Cx<'_>) -> Result<UdpSent, UdpSendError> {
        let plan = self.plan(payload, cx).map_err(|error| cx.egress.refuse(error))?;
        let mut udp = self.udp;
        udp.set_length((udp::HEADER_LEN + payload.len()) as u16);
        if self.options.checksum != Checksum::Zero {
            udp.set_checksum(self.udp_checksum(&udp, core::iter::once(payload)));
        }
        let mut ipv4 = self.ipv4;
        ipv4.set_identification(cx.egress.next_identification(self.identification, cx.now));
        let mut sent = UdpSent::Posted;
        for piece in plan {
            let frame = self.fragment(piece, ipv4, &udp, payload, cx);
            let frame = frame.ok_or_else(|| cx.egress.refuse(UdpSendError::PoolEmpty))?;
            let frame_len = frame.len() as u64;
            // The last one rings the doorbell for all.
            let offload = Offload::URGENT.when(self.options.urgent && !piece.more);
            sent = self.leave(frame, offload, cx).map_err(|(error, frame)| {
                frame.free();
                cx.egress.refuse(error)
            })?;
            cx.egress.fragments.inc();
            cx.egress.frames.inc();
            cx.egress.bytes.add(frame_len);
        }
        cx.egress.datagrams.inc();
        Ok(sent)
    }

    /// The fragments; an error where there is no room for all of them.
    fn plan(&self, payload: &[u8], cx: &mut Cx<'_>) -> Result<FragmentPlan, UdpSendError> {
        let payload_len = udp::HEADER_LEN + payload.len();
        let plan = fragments::plan(payload_len, self.link_len, self.mtu, self.options.dont_fragment, cx)?;
        match self.next_hop {
            NextHop::Known => fragments::check_ring(&plan, cx)?,
            NextHop::Resolving(request) => fragments::check_waiting(&plan, request.next_hop, cx)?,
            NextHop::Lost(error) => return Err(error),
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

/// Sends one datagram without a prepared flow: `sendto` of a socket. Costs the preparation each
/// time, about 30 ns.
pub fn send_to(
    local: SocketAddrV4,
    remote: SocketAddrV4,
    options: &UdpOptions,
    payload: &[u8],
    cx: &mut Cx<'_>,
) -> Result<UdpSent, UdpSendToError> {
    // An app that answers every sender this way causes as many requests as there are peers.
    let flow = UdpFlow::connect_for(ResolutionCause::Datagram, local, remote, options, cx);
    let mut flow = flow.map_err(UdpSendToError::Connect)?;
    flow.send(payload, cx).map_err(UdpSendToError::Send)
}

/// The header of an empty datagram.
fn ipv4_header(source: Ipv4Addr, destination: Ipv4Addr, options: &UdpOptions) -> Ipv4Header {
    let fields = Ipv4Fields {
        source,
        destination,
        protocol: Protocol::UDP,
        ttl: options.ttl.unwrap_or(if destination.is_multicast() { 1 } else { 64 }),
        tos: options.tos,
        identification: 0,
        dont_fragment: options.dont_fragment,
        payload_len: udp::HEADER_LEN,
    };
    Ipv4Header::new(&fields).expect("an empty datagram is not too long")
}

/// Increments when anything changes that a prepared header depends on.
#[inline]
fn changes(cx: &Cx<'_>) -> u64 {
    cx.host.changes().wrapping_add(cx.egress.path_changes())
}

/// Puts the headers before the payload: into its headroom where we may write there, otherwise into
/// a buffer chained in front. Returns the payload where no buffer is free.
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
#[non_exhaustive]
pub enum UdpConnectError {
    /// The destination is this host: packets to itself do not belong on the wire.
    LocalAddress(Ipv4Addr),
    /// The MAC address of the next hop is not known.
    NeighborMissing(Ipv4Addr),
    /// No route leads there.
    NoRoute(Ipv4Addr),
}

/// Why a datagram without a prepared flow was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpSendToError {
    /// There is no path to the destination.
    Connect(UdpConnectError),
    /// There is a path, and the datagram was not sent.
    Send(UdpSendError),
}

impl fmt::Display for UdpConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LocalAddress(own) => {
                write!(f, "{own} is this host itself: use a ring between workers instead of the wire")
            }
            Self::NeighborMissing(next_hop) => {
                write!(f, "the MAC address of {next_hop} is not known: add it as a neighbor, or ask for it by ARP")
            }
            Self::NoRoute(destination) => write!(f, "no route leads to {destination}: add a route for its network"),
        }
    }
}

impl fmt::Display for UdpSendToError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::Send(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for UdpConnectError {}
impl core::error::Error for UdpSendToError {}
