//! The UDP node: verifies the datagram, finds its consumers and gives it to the app once for each, without a copy.
//! What enters begins with the UDP header and has the IPv4 header behind it (towards the headroom).

use core::net::{Ipv4Addr, SocketAddrV4};

use zerocopy::FromBytes;

use super::datagram::Datagram;
use super::ipv4::is_group;
use super::node::{Cx, Node, discard};
use super::outline::Outline;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::mem::{Loan, Mbuf, Verdict};
use crate::proto::{ConsumerId, Cursor, Flow, Found, InterfaceId, Subscriber};
use crate::wire::{Ipv4Header, UdpError, UdpHeader, ipv4, udp};

crate::drop_reasons! {
    /// Why the UDP node drops a datagram.
    pub enum UdpDrop {
        /// Fewer than 8 bytes.
        TooShort => "too_short",
        /// The length field states fewer than 8 bytes.
        BadLength => "bad_length",
        /// The length field states more bytes than the packet carries.
        Truncated => "truncated",
        /// The checksum is wrong.
        BadChecksum => "bad_checksum",
        /// The source is a group or the port is zero: nobody could answer it, nobody sent it.
        BadSource => "bad_source",
        /// Nobody bound the port or joined the group.
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

/// An app that takes datagrams.
pub trait UdpApp {
    /// A datagram for `datagram.consumer`. To keep its bytes, [`hold`](Datagram::hold) it.
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>);
}

/// What the UDP node does beyond finding consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpConfig {
    /// What to do about checksums that the NIC has not verified.
    pub checksum: ChecksumPolicy,
}

/// What to do about UDP checksums that the NIC has not verified. Zero on the wire means that the sender computed
/// none, and passes always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumPolicy {
    /// A wrong one is a drop: frames from a wire. Costs about 3 ns and 20 ns for each KiB.
    #[default]
    Verify,
    /// As `Verify`, but a field that holds no more than the sum of the pseudo header passes and is counted: the
    /// frame was taken on the sending machine, before its NIC finished the work. Captures made there, and virtual
    /// links (veth) between kernels.
    AcceptPartial,
    /// Nothing is verified: who forwards, or trusts the sequence numbers above.
    Ignore,
}

/// Finds the consumers of each datagram.
pub struct Udp {
    config: UdpConfig,
    /// Where datagrams that came in fragments are put together: the largest there is, with its header.
    scratch: Box<[u8]>,
    datagrams: Counter,
    bytes: Counter,
    deliveries: Counter,
    partial_checksums: Counter,
    drops: Drops<UdpDrop>,
}

/// What the headers say that the app may want to know.
#[derive(Clone, Copy)]
struct Envelope {
    flow: Flow,
    interface: InterfaceId,
    ttl: u8,
    tos: u8,
}

/// What the header says of a datagram that passed.
struct Passed {
    envelope: Envelope,
    payload_len: usize,
}

impl Envelope {
    #[inline(always)]
    fn new(ipv4: &Ipv4Header, udp: &UdpHeader, interface: InterfaceId) -> Self {
        let flow = Flow {
            local: SocketAddrV4::new(ipv4.destination(), udp.destination_port()),
            remote: SocketAddrV4::new(ipv4.source(), udp.source_port()),
        };
        Self { flow, interface, ttl: ipv4.ttl(), tos: ipv4.tos() }
    }

    /// The same from a datagram whose headers have been taken off.
    fn behind(mbuf: &Mbuf, interface: InterfaceId) -> Option<Self> {
        let headers = mbuf.behind(mbuf.l3_len() + udp::HEADER_LEN)?;
        let (ipv4, _) = Ipv4Header::ref_from_prefix(headers).ok()?;
        let (_, udp) = UdpHeader::ref_from_suffix(headers).ok()?;
        Some(Self::new(ipv4, udp, interface))
    }

    #[inline(always)]
    fn datagram<'a>(&self, consumer: ConsumerId, mbuf: &'a Mbuf, payload: &'a [u8]) -> Datagram<'a> {
        Datagram {
            consumer,
            source: self.flow.remote,
            destination: self.flow.local,
            interface: self.interface,
            timestamp: mbuf.timestamp(),
            ttl: self.ttl,
            tos: self.tos,
            vlan: mbuf.vlan(),
            payload,
            mbuf: mbuf.lend(),
        }
    }
}

impl Udp {
    /// Most bytes of a datagram's payload: what the IPv4 total length leaves.
    pub const PAYLOAD_LEN_MAX: usize = 65_535 - ipv4::HEADER_LEN - udp::HEADER_LEN;

    /// The node, with counters in the scope `udp` below `scope`.
    pub fn new(config: UdpConfig, scope: &Scope) -> Self {
        let scope = scope.scope("udp");
        Self {
            config,
            scratch: vec![0; udp::HEADER_LEN + Self::PAYLOAD_LEN_MAX].into_boxed_slice(),
            datagrams: scope.counter("datagrams", Unit::Datagrams),
            bytes: scope.counter("payload_bytes", Unit::Bytes),
            deliveries: scope.counter("deliveries", Unit::Events),
            partial_checksums: scope.counter("partial_checksums", Unit::Datagrams),
            drops: scope.drops(),
        }
    }

    /// Checks the header in front of `bytes`, which are the packet's in one piece.
    #[inline(always)]
    fn check(&self, mbuf: &Mbuf, bytes: &[u8], cx: &Cx<'_>) -> Result<Passed, UdpDrop> {
        let (header, payload) = UdpHeader::parse(bytes)?;
        let Some(ipv4) = ipv4_header(mbuf) else { return Err(UdpDrop::TooShort) };
        if is_group(ipv4.source()) || header.source_port() == 0 {
            return Err(UdpDrop::BadSource);
        }
        let good = match mbuf.l4_checksum() {
            Verdict::Good => true,
            Verdict::Bad => false,
            Verdict::Unknown if header.checksum() == 0 || self.config.checksum == ChecksumPolicy::Ignore => true,
            Verdict::Unknown => {
                let sum = header.sum(ipv4.source(), ipv4.destination()).append(payload);
                sum.is_valid() || self.is_accepted_partial(header, ipv4.source(), ipv4.destination())
            }
        };
        if !good {
            return Err(UdpDrop::BadChecksum);
        }
        Ok(Passed { envelope: Envelope::new(ipv4, header, cx.host.interface()), payload_len: payload.len() })
    }

    #[cold]
    fn is_accepted_partial(&self, header: &UdpHeader, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        let partial = header.has_partial_checksum(source, destination);
        let accepted = partial && self.config.checksum == ChecksumPolicy::AcceptPartial;
        self.partial_checksums.add(u64::from(accepted));
        accepted
    }

    /// Ends a datagram that `deliveries` consumers have had.
    #[inline(always)]
    fn finish(&mut self, mbuf: Mbuf, deliveries: u64, cx: &Cx<'_>) {
        if deliveries == 0 {
            return self.nobody(mbuf, cx);
        }
        self.datagrams.inc();
        self.bytes.add(mbuf.len() as u64);
        self.deliveries.add(deliveries);
        mbuf.free();
    }

    /// A datagram that came in fragments is put together first: the app gets its payload in one piece.
    #[cold]
    #[inline(never)]
    fn push_chain<A: UdpApp>(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        let mut scratch = core::mem::take(&mut self.scratch);
        let bytes = linearise(&mbuf, &mut scratch);
        match self.check(&mbuf, bytes, cx) {
            Ok(Passed { envelope, payload_len }) => {
                mbuf.narrow(udp::HEADER_LEN, payload_len);
                let payload = &bytes[udp::HEADER_LEN..udp::HEADER_LEN + payload_len];
                let deliveries = deliver(&envelope, &mbuf, payload, app, cx);
                self.finish(mbuf, deliveries, cx);
            }
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
        self.scratch = scratch;
    }

    /// Names why nobody got the datagram.
    #[cold]
    #[inline(never)]
    fn nobody(&mut self, mbuf: Mbuf, cx: &Cx<'_>) {
        let found = Envelope::behind(&mbuf, cx.host.interface()).map(|envelope| cx.sockets.lookup(envelope.flow));
        let reason = match found {
            None | Some(Found::Nobody) => UdpDrop::NoConsumer,
            Some(Found::One(_) | Found::Many(_)) => UdpDrop::SourceFiltered,
        };
        discard(mbuf, &mut self.drops, reason);
    }
}

impl<A: UdpApp> Node<A> for Udp {
    #[inline(always)]
    fn push(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        if !mbuf.is_plain() {
            return self.push_chain(mbuf, app, cx);
        }
        match self.check(&mbuf, mbuf.bytes(), cx) {
            Ok(Passed { envelope, payload_len }) => {
                // What the IP payload has beyond the UDP length is padding and not part of the datagram.
                mbuf.narrow(udp::HEADER_LEN, payload_len);
                let deliveries = deliver(&envelope, &mbuf, mbuf.bytes(), app, cx);
                self.finish(mbuf, deliveries, cx);
            }
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    #[inline]
    fn tick(&mut self, _app: &mut A, _cx: &mut Cx<'_>) {}

    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, outline: &mut Outline) {
        let says = format!("checksums {:?} where the NIC has not verified them", self.config.checksum);
        outline.node("udp", says, |_| ());
    }
}

/// Gives the datagram to its consumers; returns how many took it.
#[inline(always)]
fn deliver<A: UdpApp>(envelope: &Envelope, mbuf: &Mbuf, payload: &[u8], app: &mut A, cx: &mut Cx<'_>) -> u64 {
    match cx.sockets.lookup(envelope.flow) {
        Found::Nobody => 0,
        Found::One(subscriber) => {
            let datagram = envelope.datagram(subscriber.consumer, mbuf, payload);
            u64::from(offer(subscriber, &datagram, app, cx))
        }
        Found::Many(cursor) => offer_each(cursor, mbuf.lend(), payload, app, cx),
    }
}

/// Gives the datagram to one subscriber if its filter accepts the source.
#[inline(always)]
fn offer<A: UdpApp>(subscriber: Subscriber, datagram: &Datagram<'_>, app: &mut A, cx: &mut Cx<'_>) -> bool {
    if !cx.sockets.accepts(subscriber.filter, datagram.interface, *datagram.source.ip()) {
        return false;
    }
    app.on_datagram(datagram, cx);
    true
}

/// Gives the datagram to all of a list of subscribers; returns how many took it. A function of its own that reads the
/// headers again, so that the usual case above keeps nothing for it.
#[inline(never)]
fn offer_each<A: UdpApp>(mut cursor: Cursor, mbuf: Loan<'_>, payload: &[u8], app: &mut A, cx: &mut Cx<'_>) -> u64 {
    let Some(envelope) = Envelope::behind(&mbuf, cx.host.interface()) else { return 0 };
    let mut deliveries = 0;
    while let Some(subscriber) = cx.sockets.next(&mut cursor) {
        let datagram = envelope.datagram(subscriber.consumer, &mbuf, payload);
        deliveries += u64::from(offer(subscriber, &datagram, app, cx));
    }
    deliveries
}

/// The IPv4 header that was advanced over: fixed part only, at `l3_len` before the data.
#[inline]
fn ipv4_header(mbuf: &Mbuf) -> Option<&Ipv4Header> {
    let header = mbuf.behind(mbuf.l3_len())?;
    Ipv4Header::ref_from_prefix(header).ok().map(|(header, _)| header)
}

/// Puts a chain's bytes in one piece. An IP payload is never longer than the scratch: its length is 16 bits.
fn linearise<'a>(mbuf: &Mbuf, scratch: &'a mut [u8]) -> &'a [u8] {
    let mut len = 0;
    for segment in mbuf.segments() {
        let Some(room) = scratch.get_mut(len..len + segment.len()) else { break };
        room.copy_from_slice(segment);
        len += segment.len();
    }
    &scratch[..len]
}
