//! ICMP errors that we send about packets that we drop, within RFC 1122 3.2.2 and a rate. A node
//! passes in a reference to the packet that it is about to drop; a new frame, which quotes the
//! packet, is sent.

use zerocopy::{FromBytes, IntoBytes};

use super::error_rate::UnsentError;
use crate::device::Offload;
use crate::mem::Mbuf;
use crate::pipeline::answer::{ReplyLink, build};
use crate::pipeline::node::Cx;
use crate::proto::{ErrorRoute, FlowErrorKind, OffendingPacket};
use crate::wire::icmpv4::{self, QUOTED_LEN_MAX, Unreachable};
use crate::wire::{EtherType, Icmpv4Message, Ipv4Fields, Ipv4Header, Protocol, udp};

/// Sends a port unreachable, for a datagram whose UDP header has been advanced over.
#[cold]
pub fn send_port_unreachable(mbuf: &Mbuf, cx: &mut Cx<'_>) {
    let advanced = mbuf.l3_len() + udp::HEADER_LEN;
    send_icmp_error(FlowErrorKind::Unreachable(Unreachable::Port), mbuf, advanced, cx);
}

/// Sends the sender of a packet an error of this kind, where this host sends errors at all
/// ([`EgressConfig::errors`](crate::pipeline::EgressConfig::errors)). `advanced`: bytes from the
/// IPv4 header to the data, 0 in the IPv4 node and `l3_len` after it. Costs a buffer and three
/// short copies.
#[cold]
pub fn send_icmp_error(kind: FlowErrorKind, mbuf: &Mbuf, advanced: usize, cx: &mut Cx<'_>) {
    if cx.egress.errors.is_none() {
        return;
    }
    // Checked first, because datagrams for other hosts' groups may arrive in floods.
    let sent =
        if is_to_group(mbuf, advanced) { Err(UnsentError::NotUnicast) } else { try_send(kind, mbuf, advanced, cx) };
    if let Some(errors) = &mut cx.egress.errors {
        match sent {
            Ok(()) => errors.sent.inc(),
            Err(reason) => errors.drops.count(reason),
        }
    }
}

fn is_to_group(mbuf: &Mbuf, advanced: usize) -> bool {
    let header = mbuf.behind(advanced).and_then(|header| Ipv4Header::ref_from_prefix(header).ok());
    header.is_some_and(|(header, _)| header.destination().is_multicast())
}

fn try_send(kind: FlowErrorKind, mbuf: &Mbuf, advanced: usize, cx: &mut Cx<'_>) -> Result<(), UnsentError> {
    let link = ReplyLink::behind(mbuf, advanced, cx.host).ok_or(UnsentError::Malformed)?;
    let mut quote = [0; QUOTED_LEN_MAX];
    let quoted = quote_packet(mbuf, advanced, &mut quote).ok_or(UnsentError::Malformed)?;
    let offending = OffendingPacket { packet: quoted, link_destination: link.dst };
    let Some(errors) = &mut cx.egress.errors else { return Err(UnsentError::RateLimited) };
    let route = errors.limit.permit(offending, cx.host, cx.now)?;
    let station = link.station_to(route.destination, cx.host, cx.now).ok_or(UnsentError::NoRoute)?;

    let mut message = [0; icmpv4::HEADER_LEN + QUOTED_LEN_MAX];
    let message_len = write(kind, quoted).emit(&mut message).map_err(|_| UnsentError::Malformed)?;
    let ipv4 = ipv4_header(route, message_len).ok_or(UnsentError::Malformed)?;
    let (header, header_len) = link.header(station, EtherType::IPV4, cx.host);
    let parts = [&header[..header_len], ipv4.as_bytes(), &message[..message_len]];
    let frame = build(&parts, cx.pool).ok_or(UnsentError::PoolEmpty)?;
    cx.tx.post(frame, Offload::NONE).map_err(|frame| {
        frame.free();
        UnsentError::RingFull
    })
}

/// The part of a packet that an error quotes, from the IPv4 header on (RFC 1812 4.3.2.3).
fn quote_packet<'a>(mbuf: &Mbuf, advanced: usize, quote: &'a mut [u8; QUOTED_LEN_MAX]) -> Option<&'a [u8]> {
    let headers = mbuf.behind(advanced)?;
    let mut len = 0;
    for part in [headers, mbuf.bytes()] {
        let part = &part[..part.len().min(QUOTED_LEN_MAX - len)];
        quote[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    Some(&quote[..len])
}

fn write(kind: FlowErrorKind, quoted: &[u8]) -> Icmpv4Message<'_> {
    match kind {
        FlowErrorKind::Unreachable(code) => Icmpv4Message::DestinationUnreachable { code, quoted },
        FlowErrorKind::TimeExceeded(code) => Icmpv4Message::TimeExceeded { code, quoted },
        FlowErrorKind::ParameterProblem { code, pointer } => Icmpv4Message::ParameterProblem { code, pointer, quoted },
    }
}

/// Type of service 0 (RFC 1122 3.2.2); at most 576 bytes, so it is never fragmented.
fn ipv4_header(route: ErrorRoute, payload_len: usize) -> Option<Ipv4Header> {
    let fields = Ipv4Fields {
        source: route.source,
        destination: route.destination,
        protocol: Protocol::ICMP,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        payload_len,
    };
    Ipv4Header::new(&fields).ok()
}
