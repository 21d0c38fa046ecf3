//! The ICMP node: answers echo requests in their own buffer, and reports errors about the app's
//! flows to the app.
//!
//! A packet enters at the ICMP header, with the IPv4 header before it in the buffer; only the app
//! gets something. Our own errors are sent by the node that drops the packet, see
//! [`send_icmp_error`](crate::pipeline::send_icmp_error).

use core::net::Ipv4Addr;

use zerocopy::{FromBytes, IntoBytes};

use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::Offload;
use crate::mem::{Mbuf, gather};
use crate::pipeline::answer::{ReplyLink, build};
use crate::pipeline::app::App;
use crate::pipeline::fragments;
use crate::pipeline::node::{Cx, Node, discard, keeps_nothing};
use crate::pipeline::outline::NodeTree;
use crate::pipeline::tcp::TcpSockets;
use crate::proto::DemuxMatch;
use crate::proto::icmp::is_single_host;
use crate::proto::tcp::IcmpRefusal;
use crate::proto::{
    ConsumerId, Destination, Flow, FlowError, FlowErrorKind, FragmentPiece, PathMtuClaim, PathMtuRefusal, TokenBucket,
    UnmatchedError, match_error, match_segment,
};
use crate::wire::icmpv4::{Icmpv4Error, Unreachable};
use crate::wire::{EtherType, Icmpv4Message, Ipv4Fields, Ipv4Header, Ipv4Packet, Protocol, checksum, ipv4, udp};

crate::drop_reasons! {
    /// Why the ICMP node drops a message.
    pub(crate) enum IcmpDrop {
        /// Fewer than 8 bytes.
        TooShort => "too_short",
        /// The checksum is wrong.
        BadChecksum => "bad_checksum",
        /// Sent to a group or a broadcast address: no host has to answer those (RFC 1122 3.2.2.6),
        /// and an answer would amplify an attack.
        NotUnicast => "not_unicast",
        /// An echo request whose source is not a single host.
        BadSource => "bad_source",
        /// Echo requests beyond the rate that we answer.
        EchoLimited => "echo_limited",
        /// An echo reply that no app has requested.
        UnrequestedReply => "unrequested_reply",
        /// Redirects, source quench, and unknown types.
        IgnoredType => "ignored_type",
        /// An error about a packet of a protocol other than UDP, or TCP where the worker has it.
        NotUdp => "not_udp",
        /// An error whose quote names no flow.
        NoFlow => "no_flow",
        /// An error about a packet that cannot be ours.
        NotOurs => "not_ours",
        /// An error about a flow that no socket here has.
        NoSocket => "no_socket",
        /// "Fragmentation needed" about a packet that may be fragmented, or that would have fitted.
        BadPathMtu => "bad_path_mtu",
        /// "Fragmentation needed" about a datagram whose identification is not that of the flow:
        /// forged (RFC 8899 4.6.1).
        UnprovenPathMtu => "unproven_path_mtu",
        /// "Fragmentation needed" about the datagrams of one flow beyond the number that is
        /// checked: an attacker guesses.
        PathMtuLimited => "path_mtu_limited",
        /// "Fragmentation needed" on a path that larger segments have passed: TCP lowers the MSS
        /// once such segments are lost (RFC 5927 7.2).
        PathMtuContradicted => "path_mtu_contradicted",
        /// An error about a segment that is not in flight: late or forged (RFC 5927 4.1).
        NotInFlight => "not_in_flight",
        /// An error about a connection whose handshake is done: the route may recover (RFC 5927
        /// 5.2).
        Established => "established",
        /// An echo request that was not answered: no route leads back.
        NoRoute => "no_route",
        /// An echo request that was not answered: no buffer is free.
        PoolEmpty => "pool_empty",
        /// An echo request that was not answered: the device's ring is full.
        RingFull => "ring_full",
        /// An echo request that was not answered: the NIC stripped a tag, and the buffer has no
        /// headroom to put it back.
        NoHeadroom => "no_headroom",
    }
}

impl From<Icmpv4Error> for IcmpDrop {
    fn from(error: Icmpv4Error) -> Self {
        match error {
            Icmpv4Error::Short => Self::TooShort,
            Icmpv4Error::Checksum => Self::BadChecksum,
        }
    }
}

impl From<UnmatchedError> for IcmpDrop {
    fn from(error: UnmatchedError) -> Self {
        match error {
            UnmatchedError::IgnoredType => Self::IgnoredType,
            UnmatchedError::NoFlow => Self::NoFlow,
            UnmatchedError::NotUdp => Self::NotUdp,
            UnmatchedError::NotOurs | UnmatchedError::NotUnicast => Self::NotOurs,
            UnmatchedError::MayFragment => Self::BadPathMtu,
            UnmatchedError::NoSocket => Self::NoSocket,
        }
    }
}

impl From<IcmpRefusal> for IcmpDrop {
    fn from(refusal: IcmpRefusal) -> Self {
        match refusal {
            IcmpRefusal::NoConnection => Self::NoSocket,
            IcmpRefusal::NotInFlight => Self::NotInFlight,
            IcmpRefusal::NotSmaller => Self::BadPathMtu,
            IcmpRefusal::Contradicted => Self::PathMtuContradicted,
            IcmpRefusal::Soft => Self::Established,
        }
    }
}

impl From<PathMtuRefusal> for IcmpDrop {
    fn from(refusal: PathMtuRefusal) -> Self {
        match refusal {
            PathMtuRefusal::Unproven => Self::UnprovenPathMtu,
            PathMtuRefusal::TooMany => Self::PathMtuLimited,
            PathMtuRefusal::WouldHaveFitted | PathMtuRefusal::NotSmaller | PathMtuRefusal::NoRoom => Self::BadPathMtu,
        }
    }
}

/// A problem with a packet that a consumer sent. Anyone who guesses the flow can forge an ICMP
/// error, so treat it as a hint, never as a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError<'a> {
    /// The app's consumer that has the flow.
    pub consumer: ConsumerId,
    /// Our end and the remote end.
    pub flow: Flow,
    /// The kind of error.
    pub kind: FlowErrorKind,
    /// The host that reports it: the remote end or a router.
    pub reporter: Ipv4Addr,
    /// The path MTU that we accept from the reporter; `None` where the error was about something
    /// else.
    pub path_mtu: Option<usize>,
    /// The quoted bytes of our packet: of a datagram from its payload on, often few or none; of a
    /// segment from its TCP header on.
    pub quoted: &'a [u8],
    /// The remaining TTL of the message that reports it.
    pub ttl: u8,
    /// The type of service of that message.
    pub tos: u8,
}

impl IcmpError<'_> {
    /// The error without the quoted bytes, to be kept for longer than the call.
    pub fn without_quote(&self) -> IcmpError<'static> {
        let Self { consumer, flow, kind, reporter, path_mtu, ttl, tos, .. } = *self;
        IcmpError { consumer, flow, kind, reporter, path_mtu, quoted: &[], ttl, tos }
    }
}

/// A reply to an echo request of the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoReply<'a> {
    /// The host that replied.
    pub source: Ipv4Addr,
    /// The packet's remaining TTL.
    pub ttl: u8,
    /// As in the request.
    pub identifier: u16,
    /// As in the request.
    pub sequence: u16,
    /// As in the request.
    pub data: &'a [u8],
}

/// The messages that the ICMP node answers.
#[derive(Clone, Copy, Debug)]
pub struct IcmpConfig {
    /// The rate of echo requests that are answered; None answers none, for captures. With a higher
    /// rate a flood of requests takes time from the feed; with a lower one `ping -f` reports
    /// losses. By default 100,000 a second and bursts of 1,000.
    pub echo: Option<TokenBucket>,
}

impl Default for IcmpConfig {
    /// 100,000 echo requests a second and bursts of 1,000, which `ping -f` stays below.
    fn default() -> Self {
        Self { echo: Some(TokenBucket::new(100_000, 1_000)) }
    }
}

/// Takes ICMP messages.
pub struct Icmp {
    echo: Option<TokenBucket>,
    /// Linear buffer for messages that came in fragments: as long as the longest message.
    scratch: Box<[u8]>,
    messages: Counter,
    echoes: Counter,
    errors: Counter,
    drops: Drops<IcmpDrop>,
}

/// The fields of the headers in front of a message.
#[derive(Clone, Copy)]
struct Envelope {
    link: ReplyLink,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    ttl: u8,
    tos: u8,
}

impl Envelope {
    fn behind(mbuf: &Mbuf, cx: &Cx<'_>) -> Option<Self> {
        let (header, _) = Ipv4Header::ref_from_prefix(mbuf.behind(mbuf.l3_len())?).ok()?;
        let link = ReplyLink::behind(mbuf, mbuf.l3_len(), cx.host)?;
        let (source, destination) = (header.source(), header.destination());
        Some(Self { link, source, destination, ttl: header.ttl(), tos: header.tos() })
    }

    fn next_identification(&self, cx: &mut Cx<'_>) -> u16 {
        let key = cx.egress.identification_key(self.destination, self.source, Protocol::ICMP);
        cx.egress.next_identification(key, cx.now)
    }

    /// The header of a reply of `payload_len` bytes. Routers may fragment it: the way back may have
    /// a smaller MTU, and a lost reply is not repeated.
    fn answer(&self, payload_len: usize, identification: u16) -> Option<Ipv4Header> {
        let fields = Ipv4Fields {
            source: self.destination,
            destination: self.source,
            protocol: Protocol::ICMP,
            ttl: 64,
            tos: self.tos,
            identification,
            dont_fragment: false,
            payload_len,
        };
        Ipv4Header::new(&fields).ok()
    }
}

impl Icmp {
    /// The node, with counters in the scope `icmp` below `scope`. Allocates all its memory here, 64
    /// KiB of it for messages that come in fragments.
    pub fn new(config: IcmpConfig, scope: &Scope) -> Self {
        let scope = scope.scope("icmp");
        Self {
            echo: config.echo,
            scratch: vec![0; usize::from(u16::MAX) - ipv4::HEADER_LEN].into_boxed_slice(),
            messages: scope.counter("messages", Unit::Messages),
            echoes: scope.counter("echoes_answered", Unit::Messages),
            errors: scope.counter("errors_delivered", Unit::Messages),
            drops: scope.drops(),
        }
    }

    fn take<A: App>(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) -> Result<(), (IcmpDrop, Mbuf)> {
        let Some(envelope) = Envelope::behind(&mbuf, cx) else { return Err((IcmpDrop::TooShort, mbuf)) };
        let to_us = cx.host.classify(envelope.destination) == Destination::Local;
        if !to_us || envelope.link.dst.is_multicast() {
            return Err((IcmpDrop::NotUnicast, mbuf));
        }
        if mbuf.is_plain() && mbuf.is_writable() {
            return self.take_plain(mbuf, &envelope, app, cx);
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let taken = self.take_gathered(gather(&mbuf, &mut scratch), &envelope, app, cx);
        self.scratch = scratch;
        match taken {
            Ok(()) => {
                mbuf.free();
                Ok(())
            }
            Err(reason) => Err((reason, mbuf)),
        }
    }

    /// Handles a message in one buffer of its own, which an echo reply reuses.
    fn take_plain<A: App>(
        &mut self,
        mut mbuf: Mbuf,
        envelope: &Envelope,
        app: &mut A,
        cx: &mut Cx<'_>,
    ) -> Result<(), (IcmpDrop, Mbuf)> {
        let is_echo = match self.read(mbuf.bytes(), envelope, app, cx) {
            Ok(is_echo) => is_echo,
            Err(reason) => return Err((reason, mbuf)),
        };
        if !is_echo {
            mbuf.free();
            return Ok(());
        }
        if mbuf.len() + ipv4::HEADER_LEN > cx.host.mtu() {
            let sent = self.send_fragments(mbuf.bytes_mut(), envelope, cx);
            return end(mbuf, sent);
        }
        self.answer_in_place(mbuf, envelope, cx)
    }

    fn take_gathered<A: App>(
        &mut self,
        message: &mut [u8],
        envelope: &Envelope,
        app: &mut A,
        cx: &mut Cx<'_>,
    ) -> Result<(), IcmpDrop> {
        if self.read(message, envelope, app, cx)? { self.send_fragments(message, envelope, cx) } else { Ok(()) }
    }

    /// Handles a message; true where it is an echo request that is to be answered.
    fn read<A: App>(
        &mut self,
        bytes: &[u8],
        envelope: &Envelope,
        app: &mut A,
        cx: &mut Cx<'_>,
    ) -> Result<bool, IcmpDrop> {
        match Icmpv4Message::parse(bytes)? {
            Icmpv4Message::EchoRequest(_) => self.permit_echo(envelope, cx).map(|()| true),
            Icmpv4Message::EchoReply(echo) => {
                let answer = EchoReply {
                    source: envelope.source,
                    ttl: envelope.ttl,
                    identifier: echo.identifier,
                    sequence: echo.sequence,
                    data: echo.data,
                };
                if app.on_echo_reply(&answer, cx) { Ok(false) } else { Err(IcmpDrop::UnrequestedReply) }
            }
            error => self.deliver(&error, envelope, app, cx).map(|()| false),
        }
    }

    fn permit_echo(&mut self, envelope: &Envelope, cx: &Cx<'_>) -> Result<(), IcmpDrop> {
        if !is_single_host(envelope.source, cx.host) {
            return Err(IcmpDrop::BadSource);
        }
        let permitted = self.echo.as_mut().is_some_and(|echo| echo.take(cx.now));
        if permitted { Ok(()) } else { Err(IcmpDrop::EchoLimited) }
    }

    /// Delivers an error to the consumers of the flow that it is about.
    fn deliver<A: App>(
        &mut self,
        message: &Icmpv4Message<'_>,
        envelope: &Envelope,
        app: &mut A,
        cx: &mut Cx<'_>,
    ) -> Result<(), IcmpDrop> {
        let error = match match_error(message, cx.host, cx.sockets) {
            Err(UnmatchedError::NotUdp) => return self.notify_connections(message, envelope, app, cx),
            matched => matched?,
        };
        let path_mtu = match error.kind {
            FlowErrorKind::Unreachable(Unreachable::FragmentationNeeded { mtu }) => {
                cx.egress.prove(error.flow, error.identification, cx.now).map_err(IcmpDrop::from)?;
                let claim = PathMtuClaim { destination: *error.flow.remote.ip(), mtu, packet_len: error.packet_len };
                Some(Self::lower_path_mtu(claim, cx)?)
            }
            _ => None,
        };
        let (flow, kind, reporter) = (error.flow, error.kind, envelope.source);
        let quoted = quoted_behind(message, udp::HEADER_LEN);
        let (ttl, tos) = (envelope.ttl, envelope.tos);
        let build = |consumer| IcmpError { consumer, flow, kind, reporter, path_mtu, quoted, ttl, tos };
        match cx.sockets.lookup_unicast(flow) {
            DemuxMatch::None => return Err(IcmpDrop::NoSocket),
            DemuxMatch::One(subscriber) => app.on_icmp_error(&build(subscriber.consumer), cx),
            DemuxMatch::Many(mut cursor) => {
                while let Some(subscriber) = cx.sockets.next(&mut cursor) {
                    app.on_icmp_error(&build(subscriber.consumer), cx);
                }
            }
        }
        self.errors.inc();
        Ok(())
    }

    /// Passes an error to the connection that it is about. The app learns the consequence by an
    /// event.
    fn notify_connections<A: App>(
        &self,
        message: &Icmpv4Message<'_>,
        envelope: &Envelope,
        app: &mut A,
        cx: &mut Cx<'_>,
    ) -> Result<(), IcmpDrop> {
        let (error, seq) = match_segment(message, cx.host)?;
        let is_of_mtu = matches!(error.kind, FlowErrorKind::Unreachable(Unreachable::FragmentationNeeded { .. }));
        if let Some((connection, consumer)) = cx.tcp.quoted(error.flow, seq).filter(|_| !is_of_mtu) {
            let FlowError { flow, kind, .. } = error;
            let (reporter, path_mtu, quoted) = (envelope.source, None, quoted_behind(message, 0));
            let (ttl, tos) = (envelope.ttl, envelope.tos);
            let error = IcmpError { consumer, flow, kind, reporter, path_mtu, quoted, ttl, tos };
            app.on_tcp_icmp_error(connection, &error, cx);
        }
        TcpSockets::take_error(&error, seq, cx).ok_or(IcmpDrop::NotUdp)??;
        if let FlowErrorKind::Unreachable(Unreachable::FragmentationNeeded { mtu }) = error.kind {
            let claim = PathMtuClaim { destination: *error.flow.remote.ip(), mtu, packet_len: error.packet_len };
            // The connection has applied the claim; this is for later connections to the same peer.
            let _ = Self::lower_path_mtu(claim, cx);
        }
        self.errors.inc();
        Ok(())
    }

    /// The path MTU to use after a claim.
    fn lower_path_mtu(claim: PathMtuClaim, cx: &mut Cx<'_>) -> Result<usize, IcmpDrop> {
        match cx.egress.lower_path_mtu(claim, cx.now) {
            Ok(mtu) => Ok(mtu),
            Err(PathMtuRefusal::NotSmaller | PathMtuRefusal::NoRoom) => {
                let held = cx.egress.path_mtu(claim.destination, cx.now);
                Ok(held.map_or(usize::from(claim.mtu), |(mtu, _)| mtu))
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Turns the request into its reply in place: another type, and new headers over the old ones.
    /// Options of the request are left out.
    fn answer_in_place(
        &mut self,
        mut mbuf: Mbuf,
        envelope: &Envelope,
        cx: &mut Cx<'_>,
    ) -> Result<(), (IcmpDrop, Mbuf)> {
        let Some(station) = envelope.link.station_to(envelope.source, cx.host, cx.now) else {
            return Err((IcmpDrop::NoRoute, mbuf));
        };
        let Some(ipv4) = envelope.answer(mbuf.len(), envelope.next_identification(cx)) else {
            return Err((IcmpDrop::TooShort, mbuf));
        };
        let (link, link_len) = envelope.link.header(station, EtherType::IPV4, cx.host);
        become_answer(mbuf.bytes_mut());
        for part in [ipv4.as_bytes(), &link[..link_len]] {
            match mbuf.prepend(part.len()) {
                Some(room) => room.copy_from_slice(part),
                None => return Err((IcmpDrop::NoHeadroom, mbuf)),
            }
        }
        match cx.tx.post(mbuf, Offload::NONE) {
            Ok(()) => {
                self.echoes.inc();
                Ok(())
            }
            Err(mbuf) => Err((IcmpDrop::RingFull, mbuf)),
        }
    }

    /// Answers a request that came in fragments, or is longer than the MTU, in fragments: all or
    /// none.
    #[cold]
    fn send_fragments(&mut self, message: &mut [u8], envelope: &Envelope, cx: &mut Cx<'_>) -> Result<(), IcmpDrop> {
        let station = envelope.link.station_to(envelope.source, cx.host, cx.now).ok_or(IcmpDrop::NoRoute)?;
        let (link, link_len) = envelope.link.header(station, EtherType::IPV4, cx.host);
        let plan = fragments::plan(message.len(), link_len, cx.host.mtu(), false, cx);
        let plan = plan.map_err(|_| IcmpDrop::PoolEmpty)?;
        fragments::check_ring(&plan, cx).map_err(|_| IcmpDrop::RingFull)?;
        become_answer(message);
        let identification = envelope.next_identification(cx);
        for FragmentPiece { offset, len, more } in plan {
            let header = envelope.answer(len, identification);
            let mut ipv4 = header.ok_or(IcmpDrop::TooShort)?;
            ipv4.set_fragment(offset as u16, more);
            let parts = [&link[..link_len], ipv4.as_bytes(), &message[offset..offset + len]];
            let frame = build(&parts, cx.pool).ok_or(IcmpDrop::PoolEmpty)?;
            if let Err(frame) = cx.tx.post(frame, Offload::NONE) {
                frame.free();
                return Err(IcmpDrop::RingFull);
            }
        }
        self.echoes.inc();
        Ok(())
    }
}

/// The quoted bytes of our packet, from an offset behind its IPv4 header on.
fn quoted_behind<'a>(message: &Icmpv4Message<'a>, offset: usize) -> &'a [u8] {
    let packet = message.quoted().and_then(|quoted| Ipv4Packet::parse_quoted(quoted).ok());
    packet.and_then(|packet| packet.payload.get(offset..)).unwrap_or_default()
}

impl<A: App> Node<A> for Icmp {
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        self.messages.inc();
        if let Err((reason, mbuf)) = self.take(mbuf, app, cx) {
            discard(mbuf, &mut self.drops, reason);
        }
    }

    keeps_nothing!(A);

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("icmp", "echoes answered, errors to the app", |_| ());
    }
}

/// Turns an echo request into a reply: the type changes from 8 to 0, the code is 0, the checksum
/// follows (RFC 1624).
fn become_answer(message: &mut [u8]) {
    let old = u16::from_be_bytes([message[0], message[1]]);
    let sum = u16::from_be_bytes([message[2], message[3]]);
    message[..2].fill(0);
    message[2..4].copy_from_slice(&checksum::update_u16(sum, old, 0).to_be_bytes());
}

/// Ends a request whose reply left in other buffers.
fn end(mbuf: Mbuf, sent: Result<(), IcmpDrop>) -> Result<(), (IcmpDrop, Mbuf)> {
    match sent {
        Ok(()) => {
            mbuf.free();
            Ok(())
        }
        Err(reason) => Err((reason, mbuf)),
    }
}
