//! The next hop of a connection's frames: the link header to it, cached, and the state of the host
//! that it was prepared for.

use core::fmt;
use core::net::Ipv4Addr;

use crate::pipeline::answer::{LINK_LEN_MAX, link_header};
use crate::pipeline::node::Cx;
use crate::proto::tcp::TcpConfig;
use crate::proto::{Flow, Host, NeighborRequest, Resolution, ResolutionCause};
use crate::time::Instant;
use crate::wire::{EtherType, MacAddr, ethernet};

/// Interval after which a missing next hop is looked up again although nothing seems to have
/// changed: about a second, in [`coarse`] time.
const RETRY: u32 = 60;

/// A prepared link header, kept up to date with its host as a UDP flow is. It takes half a cache
/// line and never crosses two.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct LinkHeaderCache {
    /// The lower 32 bits of the host's change count when it was prepared; 0 is never.
    seen: u32,
    /// Where there is no next hop: the time of the next lookup in any case, in [`coarse`] time.
    until: u32,
    /// If the next hop is to be requested, its address is here in place of the destination.
    link: [u8; LINK_LEN_MAX],
    /// 0 where there is no next hop.
    link_len: u8,
    /// The neighbor is being resolved.
    asked: bool,
}

const _: () = assert!(size_of::<LinkHeaderCache>() <= TcpConfig::LINK_HEADER_CACHE_LEN);

/// The ends of a connection, and the cause of the next hop's resolution.
#[derive(Clone, Copy)]
pub(super) struct NextHopRequest {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    cause: ResolutionCause,
}

impl NextHopRequest {
    pub(super) fn of(flow: Flow, cause: ResolutionCause) -> Self {
        Self { source: *flow.local.ip(), destination: *flow.remote.ip(), cause }
    }

    /// The request for the next hop.
    fn neighbor_request(self, next_hop: Ipv4Addr) -> NeighborRequest {
        NeighborRequest { next_hop, source: self.source, cause: self.cause }
    }
}

/// How far the next hop of a frame is resolved.
pub(super) enum NextHop<'a> {
    /// The frame leaves with this link header.
    Known(&'a [u8]),
    /// The frame waits for the neighbor's reply, which completes this link header.
    Resolving(&'a [u8], NeighborRequest),
    /// No route leads to the peer, or the link is down.
    None,
}

/// Why a peer cannot be reached from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextHopError {
    /// The link is down.
    LinkDown,
    /// No route leads there any more.
    NoRoute(Ipv4Addr),
    /// The MAC address of the next hop is not known.
    NeighborMissing(Ipv4Addr),
}

impl NextHopError {
    /// The part that is missing on the way to the next hop, if any.
    #[cold]
    pub(super) fn check(remote: Ipv4Addr, cx: &Cx<'_>) -> Option<Self> {
        if !cx.host.is_up() {
            return Some(Self::LinkDown);
        }
        match cx.host.resolve(remote, cx.now) {
            Resolution::Station { .. } => None,
            Resolution::NeighborMissing { next_hop, .. } => Some(Self::NeighborMissing(next_hop)),
            Resolution::Group { .. } | Resolution::Local | Resolution::NoRoute => Some(Self::NoRoute(remote)),
        }
    }
}

impl fmt::Display for NextHopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown => f.write_str("the link is down: check cable and switch"),
            Self::NoRoute(remote) => write!(f, "no route leads to {remote} any more: add one for its network"),
            Self::NeighborMissing(next_hop) => {
                write!(f, "the MAC address of {next_hop} is not known: check that it is there and answers ARP")
            }
        }
    }
}

impl LinkHeaderCache {
    /// Not prepared.
    pub(super) const NONE: Self = Self { seen: 0, until: 0, link: [0; LINK_LEN_MAX], link_len: 0, asked: false };

    /// The link header, where the neighbor is known.
    pub(super) fn known(&self) -> &[u8] {
        if self.asked { &[] } else { &self.link[..usize::from(self.link_len)] }
    }

    /// The link header, where it is still valid and the neighbor is known.
    #[inline]
    pub(super) fn current(&self, cx: &Cx<'_>) -> Option<&[u8]> {
        Some(self.known()).filter(|link| !link.is_empty() && self.seen == changes(cx.host) as u32)
    }

    /// The link header, where it is still valid and has no tag: that of nearly all frames.
    #[inline(always)]
    pub(super) fn untagged(&self, host: &Host) -> Option<&[u8; ethernet::HEADER_LEN]> {
        let is_current = self.seen == changes(host) as u32;
        let is_usual = !self.asked && usize::from(self.link_len) == ethernet::HEADER_LEN;
        self.link.first_chunk().filter(|_| is_current && is_usual)
    }

    /// The current link header, prepared again where the host has changed; two loads and compares
    /// where not. `on_change` gets a newly prepared one.
    #[inline]
    pub(super) fn resolve_next_hop(
        &mut self,
        request: NextHopRequest,
        cx: &mut Cx<'_>,
        on_change: impl FnOnce(&Self),
    ) -> NextHop<'_> {
        if self.seen != changes(cx.host) as u32 || self.link_len == 0 && self.is_worth_a_look(cx.now) {
            self.prepare(request, cx);
            on_change(self);
        }
        let link = &self.link[..usize::from(self.link_len)];
        match self.asked {
            _ if link.is_empty() => NextHop::None,
            false => NextHop::Known(link),
            true => NextHop::Resolving(link, request.neighbor_request(self.next_hop())),
        }
    }

    /// Whether a next hop that was missing, or never looked up, may exist now.
    #[cold]
    fn is_worth_a_look(&self, now: Instant) -> bool {
        self.seen == 0 || (coarse(now).wrapping_sub(self.until) as i32) >= 0
    }

    /// The next hop that is being resolved.
    fn next_hop(&self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.link;
        Ipv4Addr::new(a, b, c, d)
    }

    #[cold]
    fn prepare(&mut self, request: NextHopRequest, cx: &mut Cx<'_>) {
        let destination = request.destination;
        *self = Self { until: coarse(cx.now).wrapping_add(RETRY), ..Self::NONE };
        let found = match cx.host.resolve(destination, cx.now) {
            _ if !cx.host.is_up() => None,
            Resolution::Station { mac, .. } => {
                let next_hop = cx.host.route(destination).and_then(|route| route.gateway).unwrap_or(destination);
                if request.cause != ResolutionCause::Handshake && cx.host.has_learned(next_hop) {
                    // Without room it is not kept fresh, and is requested again when it is gone.
                    let _ = cx.egress().keep_neighbor(request.neighbor_request(next_hop));
                }
                Some((mac, None))
            }
            Resolution::NeighborMissing { next_hop, .. } => {
                cx.egress().keep_neighbor(request.neighbor_request(next_hop)).then_some((MacAddr::ZERO, Some(next_hop)))
            }
            Resolution::Group { .. } | Resolution::Local | Resolution::NoRoute => None,
        };
        if let Some((mac, asked)) = found {
            let (link, len) = link_header(mac, EtherType::IPV4, &cx.host.vlan(), cx.host);
            (self.link, self.link_len, self.asked) = (link, len as u8, asked.is_some());
            if let Some(next_hop) = asked {
                self.link[..4].copy_from_slice(&next_hop.octets());
            }
        }
        self.seen = changes(cx.host) as u32;
    }
}

/// The link header of an answer to the MAC address that the segment came from, as for ICMP errors.
/// So a peer that is present is answered even where other callers have used up all neighbor entries
/// or requests.
#[cold]
pub(super) fn back(request: NextHopRequest, cx: &Cx<'_>) -> Option<([u8; LINK_LEN_MAX], usize)> {
    let sender = cx.egress.sender.filter(|sender| sender.address == request.destination)?;
    let is_answer = request.cause == ResolutionCause::Handshake && cx.egress.resolver.is_some() && cx.host.is_up();
    let is_unknown = matches!(cx.host.resolve(sender.address, cx.now), Resolution::NeighborMissing { .. });
    (is_answer && is_unknown).then(|| link_header(sender.station, EtherType::IPV4, &cx.host.vlan(), cx.host))
}

/// Units of 2^24 ns, about 17 ms: one shift.
fn coarse(now: Instant) -> u32 {
    (now.as_nanos() >> 24) as u32
}

/// Increments when anything changes that the link header depends on; never 0.
#[inline]
pub(super) fn changes(host: &Host) -> u64 {
    host.changes() + 1
}
