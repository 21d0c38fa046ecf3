//! The app's own ICMP echo requests. The [`Icmp`](crate::pipeline::Icmp) node delivers replies to
//! [`App::on_echo_reply`](crate::pipeline::App::on_echo_reply); matching them to requests, and
//! counting missing ones, is left to the app.

use core::net::Ipv4Addr;

use zerocopy::IntoBytes;

use crate::device::Offload;
use crate::mem::Mbuf;
use crate::pipeline::answer::{LINK_LEN_MAX, build, link_header};
use crate::pipeline::fragments;
use crate::pipeline::node::Cx;
use crate::pipeline::udp::flow::{UdpConnectError, UdpSendToError, UdpSent};
use crate::pipeline::udp::send_error::UdpSendError;
use crate::proto::{FragmentPiece, FragmentPlan, NeighborRequest, Resolution, ResolutionCause};
use crate::wire::checksum::Sum;
use crate::wire::icmpv4::{self, Echo};
use crate::wire::{EtherType, Icmpv4Message, Ipv4Fields, Ipv4Header, MacAddr, Protocol};

/// The TTL of an echo request, as `ping` has it.
const TTL: u8 = 64;

/// Sends an echo request to `destination`, in fragments where it is longer than the path MTU: all
/// of them or none. The request waits while the neighbor is being resolved. Each call looks up the
/// route, which takes some 50 ns: for measuring and probing, not for trading.
///
/// # Errors
/// No route, or the request could not be sent; the latter is counted among `egress/drop`.
pub fn send_echo(destination: Ipv4Addr, echo: &Echo<'_>, cx: &mut Cx<'_>) -> Result<UdpSent, UdpSendToError> {
    let way = EchoRoute::to(destination, cx).map_err(UdpSendToError::Connect)?;
    way.send(echo, cx).map_err(|error| UdpSendToError::Send(cx.egress.refuse(error)))
}

/// The route of a request, and the header in front of it.
struct EchoRoute {
    /// The request that resolves the next hop.
    request: NeighborRequest,
    is_known: bool,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    link: [u8; LINK_LEN_MAX],
    link_len: usize,
}

impl EchoRoute {
    fn to(destination: Ipv4Addr, cx: &mut Cx<'_>) -> Result<Self, UdpConnectError> {
        let gateway = cx.host.route(destination).and_then(|route| route.gateway);
        let next_hop = gateway.unwrap_or(destination);
        let (mac, source, is_known) = match cx.host.resolve(destination, cx.now) {
            Resolution::Station { mac, source } | Resolution::Group { mac, source } => (mac, source, true),
            Resolution::NeighborMissing { source, .. } => (MacAddr::ZERO, source, false),
            Resolution::Local => return Err(UdpConnectError::LocalAddress(destination)),
            Resolution::NoRoute => return Err(UdpConnectError::NoRoute(destination)),
        };
        let request = NeighborRequest { next_hop, source, cause: ResolutionCause::Datagram };
        // A learned neighbor is kept fresh, so that no later echo has to wait.
        let is_asked = (!is_known || cx.host.has_learned(next_hop)) && cx.egress().keep_neighbor(request);
        if !is_known && !is_asked {
            return Err(UdpConnectError::NeighborMissing(next_hop));
        }
        let (link, link_len) = link_header(mac, EtherType::IPV4, &cx.host.vlan(), cx.host);
        Ok(Self { request, is_known, source, destination, link, link_len })
    }

    fn send(&self, echo: &Echo<'_>, cx: &mut Cx<'_>) -> Result<UdpSent, UdpSendError> {
        if !cx.host.is_up() {
            return Err(UdpSendError::LinkDown);
        }
        let plan = self.plan(icmpv4::HEADER_LEN + echo.data.len(), cx)?;
        let key = cx.egress.identification_key(self.source, self.destination, Protocol::ICMP);
        let identification = cx.egress.next_identification(key, cx.now);
        let (is_whole, header) = (plan.len() == 1, header(echo));
        let mut sent = UdpSent::Posted;
        for piece in plan {
            let frame = self.frame(piece, identification, (&header, echo.data), cx).ok_or(UdpSendError::PoolEmpty)?;
            let frame_len = frame.len() as u64;
            sent = self.leave(frame, cx)?;
            cx.egress.frames.inc();
            cx.egress.bytes.add(frame_len);
            if !is_whole {
                cx.egress.fragments.inc();
            }
        }
        Ok(sent)
    }

    /// The fragments, or the one packet; an error where there is no room for all of it.
    fn plan(&self, message_len: usize, cx: &mut Cx<'_>) -> Result<FragmentPlan, UdpSendError> {
        let path_mtu = cx.egress.path_mtu(self.destination, cx.now).map_or(usize::MAX, |(mtu, _)| mtu);
        let mtu = path_mtu.min(cx.host.mtu());
        let plan = fragments::plan(message_len, self.link_len, mtu, false, cx)?;
        match self.is_known {
            true => fragments::check_ring(&plan, cx)?,
            false => fragments::check_waiting(&plan, self.request.next_hop, cx)?,
        }
        Ok(plan)
    }

    /// One packet as a frame: its part of the message, header and data.
    fn frame(
        &self,
        piece: FragmentPiece,
        identification: u16,
        (header, data): (&[u8; icmpv4::HEADER_LEN], &[u8]),
        cx: &Cx<'_>,
    ) -> Option<Mbuf> {
        let fields = Ipv4Fields {
            source: self.source,
            destination: self.destination,
            protocol: Protocol::ICMP,
            ttl: TTL,
            tos: 0,
            identification,
            dont_fragment: false,
            payload_len: piece.len,
        };
        let mut ipv4 = Ipv4Header::new(&fields).ok()?;
        ipv4.set_fragment(piece.offset as u16, piece.more);
        let (header, from) = match piece.offset {
            0 => (&header[..], 0),
            offset => (&[][..], offset - icmpv4::HEADER_LEN),
        };
        let part = &data[from..from + piece.len - header.len()];
        build(&[&self.link[..self.link_len], ipv4.as_bytes(), header, part], cx.pool)
    }

    /// Posts a frame, or lets it wait for its neighbor.
    fn leave(&self, frame: Mbuf, cx: &mut Cx<'_>) -> Result<UdpSent, UdpSendError> {
        let (left, error) = match self.is_known {
            true => (cx.tx.post(frame, Offload::NONE).map(|()| UdpSent::Posted), UdpSendError::RingFull),
            false => {
                let error = UdpSendError::NeighborMissing(self.request.next_hop);
                (cx.egress().queue(frame, self.request).map(|()| UdpSent::Waiting), error)
            }
        };
        left.map_err(|frame| {
            frame.free();
            error
        })
    }
}

/// The ICMP header, with the checksum over the whole message.
fn header(echo: &Echo<'_>) -> [u8; icmpv4::HEADER_LEN] {
    let mut bytes = [0; icmpv4::HEADER_LEN];
    let message = Icmpv4Message::EchoRequest(Echo { data: &[], ..*echo });
    message.emit(&mut bytes).expect("the array holds a header");
    bytes[2..4].fill(0);
    let checksum = Sum::of(&bytes).append(echo.data).finish();
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}
