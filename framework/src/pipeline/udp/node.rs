//! The UDP node: verifies the datagram, finds its consumers and delivers it once to each, without a
//! copy. A packet enters at the UDP header, with the IPv4 header before it in the buffer.

use core::net::{Ipv4Addr, SocketAddrV4};

use zerocopy::FromBytes;

use super::datagram::Datagram;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::mem::{ChecksumStatus, Mbuf, MbufRef, gather};
use crate::pipeline::app::App;
use crate::pipeline::icmp::error::send_port_unreachable;
use crate::pipeline::node::{Cx, Node, discard, keeps_nothing};
use crate::pipeline::outline::NodeTree;
use crate::proto::{ConsumerId, DemuxMatch, Flow, InterfaceId, Subscriber};
use crate::wire::{Ipv4Header, UdpError, UdpHeader, ipv4, udp};

crate::drop_reasons! {
    /// Why the UDP node drops a datagram.
    pub(crate) enum UdpDrop {
        /// Fewer than 8 bytes.
        TooShort => "too_short",
        /// The length field states fewer than 8 bytes.
        BadLength => "bad_length",
        /// The length field states more bytes than the packet carries.
        Truncated => "truncated",
        /// The checksum is wrong.
        BadChecksum => "bad_checksum",
        /// No consumer bound the port or joined the group.
        NoConsumer => "no_consumer",
        /// Consumers joined the group, and the source filter of each of them excludes the sender.
        SourceFiltered => "source_filtered",
    }
}

impl From<UdpError> for UdpDrop {
    fn from(error: UdpError) -> Self {
        match error {
            UdpError::Short => Self::TooShort,
            UdpError::Length => Self::BadLength,
            UdpError::Truncated => Self::Truncated,
            UdpError::Checksum => Self::BadChecksum,
        }
    }
}

/// The configuration of the UDP node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpConfig {
    /// Policy for checksums that the NIC has not verified. By default [`ChecksumPolicy::Verify`].
    pub checksum: ChecksumPolicy,
}

/// Policy for UDP checksums that the NIC has not verified. Zero on the wire means that the sender
/// computed none, and always passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChecksumPolicy {
    /// A wrong one is a drop: frames from a wire. Costs about 3 ns and 20 ns for each KiB.
    #[default]
    Verify,
    /// As `Verify`, but a field that holds only the sum of the pseudo header passes and is counted:
    /// the frame was captured on the sending machine, before its NIC completed the checksum. This
    /// is the case in captures made there, and on virtual links (veth) between kernels.
    AcceptPartial,
    /// Nothing is verified: for forwarders, or where the application's sequence numbers suffice.
    Ignore,
}

/// Finds the consumers of each datagram.
pub struct Udp {
    config: UdpConfig,
    /// Linear buffer for datagrams that came in fragments: as long as the largest, with its header.
    scratch: Box<[u8]>,
    datagrams: Counter,
    bytes: Counter,
    /// Deliveries beyond the first of each datagram.
    copies: Counter,
    partial_checksums: Counter,
    drops: Drops<UdpDrop>,
}

/// The header fields that the app may need.
#[derive(Clone, Copy)]
struct Envelope {
    flow: Flow,
    ttl: u8,
    tos: u8,
}

/// The fields of an accepted datagram's header.
struct HeaderFields {
    envelope: Envelope,
    has_checksum: bool,
    payload_len: usize,
}

impl Envelope {
    #[inline(always)]
    fn new(ipv4: &Ipv4Header, udp: &UdpHeader) -> Self {
        let flow = Flow {
            local: SocketAddrV4::new(ipv4.destination(), udp.destination_port()),
            remote: SocketAddrV4::new(ipv4.source(), udp.source_port()),
        };
        Self { flow, ttl: ipv4.ttl(), tos: ipv4.tos() }
    }

    /// The compiler drops loads that the app does not use, where it can inline the app.
    #[inline(always)]
    fn datagram<'a>(&self, to: Recipient, mbuf: &'a Mbuf, payload: &'a [u8]) -> Datagram<'a> {
        Datagram {
            consumer: to.consumer,
            source: self.flow.remote,
            destination: self.flow.local,
            interface: to.interface,
            timestamp: mbuf.timestamp(),
            ttl: self.ttl,
            tos: self.tos,
            vlan: mbuf.vlan(),
            payload,
            mbuf: mbuf.lend(),
        }
    }
}

/// The headers of a datagram, which remain in the buffer before its data. Rarely needed fields are
/// read from here, so that the usual datagram need not carry them.
fn headers(payload: &Mbuf) -> Option<(&Ipv4Header, &UdpHeader)> {
    let headers = payload.behind(payload.l3_len() + udp::HEADER_LEN)?;
    let (ipv4, _) = Ipv4Header::ref_from_prefix(headers).ok()?;
    let (_, udp) = UdpHeader::ref_from_suffix(headers).ok()?;
    Some((ipv4, udp))
}

/// A recipient of a datagram.
struct Recipient {
    consumer: ConsumerId,
    interface: InterfaceId,
}

impl Udp {
    /// The most bytes of a datagram's payload: the maximum of the IPv4 total length, less the
    /// headers.
    pub const PAYLOAD_LEN_MAX: usize = 65_535 - ipv4::HEADER_LEN - udp::HEADER_LEN;

    /// The node, with counters in the scope `udp` below `scope`.
    pub fn new(config: UdpConfig, scope: &Scope) -> Self {
        let scope = scope.scope("udp");
        Self {
            config,
            scratch: vec![0; udp::HEADER_LEN + Self::PAYLOAD_LEN_MAX].into_boxed_slice(),
            datagrams: scope.counter("datagrams", Unit::Datagrams),
            bytes: scope.counter("payload_bytes", Unit::Bytes),
            copies: scope.counter("copies", Unit::Events),
            partial_checksums: scope.counter("partial_checksums", Unit::Datagrams),
            drops: scope.drops(),
        }
    }

    /// Checks the headers; `bytes` are the packet's in one piece, from the UDP header on. Source
    /// port 0 means that the sender wants no reply (RFC 768).
    #[inline(always)]
    fn check(mbuf: &Mbuf, bytes: &[u8]) -> Result<HeaderFields, UdpDrop> {
        let (header, payload) = UdpHeader::parse(bytes)?;
        let Some(ipv4) = ipv4_header(mbuf) else { return Err(UdpDrop::TooShort) };
        let has_checksum = header.checksum() != 0;
        Ok(HeaderFields { envelope: Envelope::new(ipv4, header), has_checksum, payload_len: payload.len() })
    }

    /// Whether the checksum verifies the payload.
    #[inline(always)]
    fn is_intact(&self, passed: &HeaderFields, mbuf: &Mbuf, payload: &[u8]) -> bool {
        match mbuf.l4_checksum() {
            ChecksumStatus::Unknown => !passed.has_checksum || self.verify(mbuf.lend(), payload),
            verdict => verdict == ChecksumStatus::Good,
        }
    }

    /// Out of line: so datagrams whose checksum needs no verification, because there is none or the
    /// NIC has verified it, save no registers for it.
    #[inline(never)]
    fn verify(&self, mbuf: MbufRef<'_>, payload: &[u8]) -> bool {
        let Some((ipv4, header)) = headers(&mbuf) else { return false };
        let (source, destination) = (ipv4.source(), ipv4.destination());
        match self.config.checksum {
            ChecksumPolicy::Ignore => true,
            ChecksumPolicy::AcceptPartial if self.is_partial(header, source, destination) => true,
            _ => header.sum(source, destination).append(payload).is_valid(),
        }
    }

    /// Tested before all bytes are summed: where the policy accepts a partial checksum, nearly
    /// every datagram has one.
    #[inline]
    fn is_partial(&self, header: &UdpHeader, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        let is_partial = header.has_partial_checksum(source, destination);
        self.partial_checksums.add(u64::from(is_partial));
        is_partial
    }

    /// A datagram that came in fragments, or that is a view of another buffer, is linearized first:
    /// the app gets its payload in one piece.
    #[cold]
    #[inline(never)]
    fn push_chain<A: App>(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        let mut scratch = core::mem::take(&mut self.scratch);
        let bytes = &*gather(&mbuf, &mut scratch);
        match Self::check(&mbuf, bytes) {
            Ok(passed) => {
                mbuf.narrow(udp::HEADER_LEN, passed.payload_len);
                let payload = &bytes[udp::HEADER_LEN..udp::HEADER_LEN + passed.payload_len];
                let delivered = match self.is_intact(&passed, &mbuf, payload) {
                    true => deliver_each(mbuf.lend(), payload, app, cx),
                    false => Err(UdpDrop::BadChecksum),
                };
                self.end_shared(mbuf, passed.payload_len, delivered, cx);
            }
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
        self.scratch = scratch;
    }

    /// A datagram whose destination has source filters, several consumers, connected flows, or no
    /// consumer.
    #[inline(never)]
    fn push_shared<A: App>(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        let payload_len = mbuf.len();
        let delivered = deliver_each(mbuf.lend(), mbuf.bytes(), app, cx);
        self.end_shared(mbuf, payload_len, delivered, cx);
    }

    /// As [`end`](Self::end), and sends port unreachable where no consumer is found.
    fn end_shared(&mut self, mbuf: Mbuf, payload_len: usize, delivered: Result<u64, UdpDrop>, cx: &mut Cx<'_>) {
        if delivered == Err(UdpDrop::NoConsumer) {
            send_port_unreachable(&mbuf, cx);
        }
        self.end(mbuf, payload_len, delivered);
    }

    /// Ends a datagram and counts its outcome.
    #[inline(always)]
    fn end(&mut self, mbuf: Mbuf, payload_len: usize, delivered: Result<u64, UdpDrop>) {
        match delivered {
            Ok(deliveries) => {
                self.datagrams.inc();
                self.bytes.add(payload_len as u64);
                if deliveries > 1 {
                    self.copies.add(deliveries - 1);
                }
                mbuf.free();
            }
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    /// Finds the reason why a header was refused, by checking it again: so the code for a usual
    /// datagram carries no reasons.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, mbuf: Mbuf) {
        let reason = Self::check(&mbuf, mbuf.bytes()).err().unwrap_or(UdpDrop::TooShort);
        discard(mbuf, &mut self.drops, reason);
    }
}

impl<A: App> Node<A> for Udp {
    #[inline(always)]
    fn push(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        if !mbuf.is_plain() {
            return self.push_chain(mbuf, app, cx);
        }
        let Ok(passed) = Self::check(&mbuf, mbuf.bytes()) else { return self.refuse(mbuf) };
        // Bytes of the IP payload beyond the UDP length are padding.
        mbuf.narrow(udp::HEADER_LEN, passed.payload_len);
        if !self.is_intact(&passed, &mbuf, mbuf.bytes()) {
            return discard(mbuf, &mut self.drops, UdpDrop::BadChecksum);
        }
        let Some(consumer) = cx.sockets.only_consumer(passed.envelope.flow.local) else {
            return self.push_shared(mbuf, app, cx);
        };
        let to = Recipient { consumer, interface: cx.host.interface() };
        app.on_datagram(&passed.envelope.datagram(to, &mbuf, mbuf.bytes()), cx);
        self.end(mbuf, passed.payload_len, Ok(1));
    }

    keeps_nothing!(A);

    fn outline(&self, outline: &mut NodeTree) {
        let says = format!("checksums {:?} where the NIC has not verified them", self.config.checksum);
        outline.node("udp", says, |_| ());
    }
}

/// Delivers a payload to all its consumers; returns their number, or why there was none.
fn deliver_each<A: App>(mbuf: MbufRef<'_>, payload: &[u8], app: &mut A, cx: &mut Cx<'_>) -> Result<u64, UdpDrop> {
    let Some((ipv4, udp)) = headers(&mbuf) else { return Err(UdpDrop::TooShort) };
    let envelope = Envelope::new(ipv4, udp);
    let mut offer = |subscriber: Subscriber, cx: &mut Cx<'_>| {
        let to = Recipient { consumer: subscriber.consumer, interface: cx.host.interface() };
        let accepted = cx.sockets.accepts(subscriber.filter, to.interface, ipv4.source());
        if accepted {
            app.on_datagram(&envelope.datagram(to, &mbuf, payload), cx);
        }
        u64::from(accepted)
    };
    let found = match cx.host.is_own(ipv4.destination()) {
        true => cx.sockets.lookup_unicast(envelope.flow),
        false => cx.sockets.lookup(envelope.flow),
    };
    let deliveries = match found {
        DemuxMatch::None => return Err(UdpDrop::NoConsumer),
        DemuxMatch::One(subscriber) => offer(subscriber, cx),
        DemuxMatch::Many(mut cursor) => {
            let mut deliveries = 0;
            while let Some(subscriber) = cx.sockets.next(&mut cursor) {
                deliveries += offer(subscriber, cx);
            }
            deliveries
        }
    };
    if deliveries == 0 { Err(UdpDrop::SourceFiltered) } else { Ok(deliveries) }
}

/// The IPv4 header that was advanced over: its fixed part, at `l3_len` before the data.
#[inline(always)]
fn ipv4_header(mbuf: &Mbuf) -> Option<&Ipv4Header> {
    let header = mbuf.behind(mbuf.l3_len())?;
    Ipv4Header::ref_from_prefix(header).ok().map(|(header, _)| header)
}
