//! The UDP node: verifies the datagram, finds its consumers and gives it to the app once for each, without a copy.
//! What enters begins with the UDP header and has the IPv4 header behind it (towards the headroom).

use core::net::{Ipv4Addr, SocketAddrV4};

use super::datagram::Datagram;
use super::node::{Cx, Node, discard};
use super::outline::Outline;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::mem::{Mbuf, Verdict};
use crate::proto::{Flow, Found, InterfaceId, Subscriber};
use crate::time::Instant;
use crate::wire::checksum::Sum;
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
    /// Where datagrams that came in fragments are put together for the app: the largest there is.
    scratch: Box<[u8]>,
    datagrams: Counter,
    bytes: Counter,
    deliveries: Counter,
    partial_checksums: Counter,
    drops: Drops<UdpDrop>,
}

/// What the headers say.
#[derive(Clone, Copy)]
struct Envelope {
    flow: Flow,
    ttl: u8,
    tos: u8,
    interface: InterfaceId,
    timestamp: Option<Instant>,
    vlan: Option<u16>,
}

impl Udp {
    /// Most bytes of a datagram's payload: what the IPv4 total length leaves.
    pub const PAYLOAD_LEN_MAX: usize = 65_535 - ipv4::HEADER_LEN - udp::HEADER_LEN;

    /// The node, with counters in the scope `udp` below `scope`.
    pub fn new(config: UdpConfig, scope: &Scope) -> Self {
        let scope = scope.scope("udp");
        Self {
            config,
            scratch: vec![0; Self::PAYLOAD_LEN_MAX].into_boxed_slice(),
            datagrams: scope.counter("datagrams", Unit::Datagrams),
            bytes: scope.counter("payload_bytes", Unit::Bytes),
            deliveries: scope.counter("deliveries", Unit::Events),
            partial_checksums: scope.counter("partial_checksums", Unit::Datagrams),
            drops: scope.drops(),
        }
    }

    /// Checks the header, takes it and any padding off, and reads what the app wants to know.
    #[inline]
    fn check(&self, mbuf: &mut Mbuf, cx: &Cx<'_>) -> Result<Envelope, UdpDrop> {
        let header = match mbuf.is_linear() {
            true => *UdpHeader::parse(mbuf.bytes())?.0,
            false => chain_header(mbuf)?,
        };
        let Some(ipv4) = ipv4_header(mbuf) else { return Err(UdpDrop::TooShort) };
        let (source, destination) = (ipv4.source(), ipv4.destination());
        if source.is_multicast() || header.source_port() == 0 {
            return Err(UdpDrop::BadSource);
        }
        let envelope = Envelope {
            flow: Flow {
                local: SocketAddrV4::new(destination, header.destination_port()),
                remote: SocketAddrV4::new(source, header.source_port()),
            },
            ttl: ipv4.ttl(),
            tos: ipv4.tos(),
            interface: cx.host.interface(),
            timestamp: mbuf.timestamp(),
            vlan: mbuf.vlan(),
        };
        // What the IP payload has beyond the UDP length is padding and not part of the checksum.
        mbuf.trim_to(header.length().into());
        self.check_sum(mbuf, &header, source, destination)?;
        mbuf.advance(udp::HEADER_LEN);
        Ok(envelope)
    }

    #[inline]
    fn check_sum(
        &self,
        mbuf: &mut Mbuf,
        header: &UdpHeader,
        source: Ipv4Addr,
        destination: Ipv4Addr,
    ) -> Result<(), UdpDrop> {
        let good = match mbuf.l4_checksum() {
            Verdict::Good => true,
            Verdict::Bad => false,
            Verdict::Unknown if header.checksum() == 0 || self.config.checksum == ChecksumPolicy::Ignore => true,
            Verdict::Unknown => {
                datagram_sum(mbuf, header, source, destination).is_valid()
                    || self.is_accepted_partial(header, source, destination)
            }
        };
        if good { Ok(()) } else { Err(UdpDrop::BadChecksum) }
    }

    #[cold]
    fn is_accepted_partial(&self, header: &UdpHeader, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        let partial = header.has_partial_checksum(source, destination);
        let accepted = partial && self.config.checksum == ChecksumPolicy::AcceptPartial;
        self.partial_checksums.add(u64::from(accepted));
        accepted
    }

    /// Gives the datagram to its consumers.
    #[inline]
    fn deliver<A: UdpApp>(&mut self, mbuf: &Mbuf, envelope: &Envelope, app: &mut A, cx: &mut Cx<'_>) -> u64 {
        let payload = match mbuf.is_linear() {
            true => mbuf.bytes(),
            false => linearise(mbuf, &mut self.scratch),
        };
        let mut datagram = Datagram {
            consumer: Default::default(),
            source: envelope.flow.remote,
            destination: envelope.flow.local,
            interface: envelope.interface,
            timestamp: envelope.timestamp,
            ttl: envelope.ttl,
            tos: envelope.tos,
            vlan: envelope.vlan,
            payload,
            mbuf,
        };
        match cx.sockets.lookup(envelope.flow) {
            Found::Nobody => 0,
            Found::One(subscriber) => u64::from(offer(subscriber, &mut datagram, app, cx)),
            Found::Many(mut cursor) => {
                let mut deliveries = 0;
                while let Some(subscriber) = cx.sockets.next(&mut cursor) {
                    deliveries += u64::from(offer(subscriber, &mut datagram, app, cx));
                }
                deliveries
            }
        }
    }

    /// Names why nobody got the datagram.
    #[cold]
    fn nobody(&mut self, mbuf: Mbuf, flow: Flow, cx: &Cx<'_>) {
        let reason = match cx.sockets.lookup(flow) {
            Found::Nobody => UdpDrop::NoConsumer,
            Found::One(_) | Found::Many(_) => UdpDrop::SourceFiltered,
        };
        discard(mbuf, &mut self.drops, reason);
    }
}

impl<A: UdpApp> Node<A> for Udp {
    #[inline]
    fn push(&mut self, mut mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        let envelope = match self.check(&mut mbuf, cx) {
            Ok(envelope) => envelope,
            Err(reason) => return discard(mbuf, &mut self.drops, reason),
        };
        match self.deliver(&mbuf, &envelope, app, cx) {
            0 => self.nobody(mbuf, envelope.flow, cx),
            deliveries => {
                self.datagrams.inc();
                self.bytes.add(mbuf.len() as u64);
                self.deliveries.add(deliveries);
                mbuf.free();
            }
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

/// Gives the datagram to one subscriber if its filter accepts the source.
#[inline]
fn offer<A: UdpApp>(subscriber: Subscriber, datagram: &mut Datagram<'_>, app: &mut A, cx: &mut Cx<'_>) -> bool {
    if !cx.sockets.accepts(subscriber.filter, datagram.interface, *datagram.source.ip()) {
        return false;
    }
    datagram.consumer = subscriber.consumer;
    app.on_datagram(datagram, cx);
    true
}

/// The IPv4 header that was advanced over: fixed part only, at `l3_len` before the data.
#[inline]
fn ipv4_header(mbuf: &Mbuf) -> Option<&Ipv4Header> {
    let header = mbuf.behind(mbuf.l3_len())?;
    zerocopy::FromBytes::ref_from_prefix(header).ok().map(|(header, _)| header)
}

/// The UDP header of a datagram in several buffers.
#[cold]
fn chain_header(mbuf: &Mbuf) -> Result<UdpHeader, UdpDrop> {
    let bytes = mbuf.bytes();
    let Ok((header, _)) = zerocopy::FromBytes::ref_from_prefix(bytes) else { return Err(UdpDrop::TooShort) };
    let header: &UdpHeader = header;
    let length = usize::from(header.length());
    if length < udp::HEADER_LEN {
        return Err(UdpDrop::BadLength);
    }
    if length > mbuf.len() {
        return Err(UdpDrop::Truncated);
    }
    Ok(*header)
}

/// The sum that is all ones where the checksum is right. `mbuf` begins with the header and ends with the payload.
#[inline]
fn datagram_sum(mbuf: &Mbuf, header: &UdpHeader, source: Ipv4Addr, destination: Ipv4Addr) -> Sum {
    let sum = header.sum(source, destination);
    let mut segments = mbuf.segments();
    let first = segments.next().unwrap_or(&[]);
    let sum = sum.append(first.get(udp::HEADER_LEN..).unwrap_or(&[]));
    segments.fold(sum, Sum::append)
}

/// Puts a chain's bytes in one piece. A datagram is never longer than the scratch: its length is 16 bits.
#[cold]
fn linearise<'a>(mbuf: &Mbuf, scratch: &'a mut [u8]) -> &'a [u8] {
    let mut len = 0;
    for segment in mbuf.segments() {
        let Some(room) = scratch.get_mut(len..len + segment.len()) else { break };
        room.copy_from_slice(segment);
        len += segment.len();
    }
    &scratch[..len]
}
