//! Resolves next hops to MAC addresses: sends requests for those that are not known, and keeps the
//! frames that wait for the reply.
//!
//! A shell around [`Neighbors`], owned by the egress, so that every sender reaches it by [the
//! egress's calls](super::calls). On an interface of our own the requests are ARP packets, and the
//! ARP node delivers the replies. On an interface that the kernel owns, the worker passes the
//! requests to the [mirror](crate::worker::kernel), and the replies appear in the host.

use core::net::SocketAddrV4;

use arrayvec::ArrayVec;

use crate::counters::{Counter, Drops, Gauge, Scope, Unit};
use crate::device::{Offload, TxQueue};
use crate::mem::{Mbuf, Pool};
use crate::pipeline::answer::LINK_LEN_MAX;
use crate::pipeline::node::discard;
use crate::proto::Host;
use crate::proto::tcp::Seq;
use crate::proto::{
    ArpSend, Flow, HashSeed, LearnFrom, NeighborAction, NeighborConfig, NeighborDrop, NeighborRequest, Neighbors,
    ResolutionCause,
};
use crate::time::Instant;
use crate::wire::ethernet::EthernetFields;
use crate::wire::tcp::TcpSegment;
use crate::wire::{ArpPacket, EtherType, EthernetHeader, Ipv4Packet, Protocol, VlanTags, arp, ethernet};

crate::drop_reasons! {
    /// Why a datagram that waited for its neighbor was not sent.
    pub(super) enum WaitingDrop {
        /// The device's ring was full when the answer came.
        RingFull => "ring_full",
        ..Neighbor(NeighborDrop),
    }
}

/// Requests that wait for the worker to pass them on at the end of its turn. A further request is
/// made a second later.
const REQUESTS_MAX: usize = 16;

/// Segments whose neighbor did not reply and that TCP is notified of in the same turn. TCP learns
/// of further ones when it sends again.
const UNREACHED_MAX: usize = 16;

/// Neighbors, and frames that wait for them.
pub(crate) struct Resolver {
    pub(super) neighbors: Neighbors<Mbuf>,
    pending_per_neighbor: usize,
    /// `Host::changes` when the host was last read.
    pub(super) host_changes: u64,
    pub(super) waiting: Gauge,
    pub(super) output: ResolverOutput,
}

/// The resolver's output.
pub(super) struct ResolverOutput {
    asks_by: LearnFrom,
    requests: ArrayVec<NeighborRequest, REQUESTS_MAX>,
    pub(super) unreached: ArrayVec<(Flow, Seq), UNREACHED_MAX>,
    requests_sent: Counter,
    /// Requests that found no buffer or no slot in the ring; the machine repeats them.
    unsent: Counter,
    /// Neighbors that were not requested because remote hosts had caused as many requests as the
    /// rate allows.
    pub(super) limited: Counter,
    resolved: Counter,
    drops: Drops<WaitingDrop>,
}

impl Resolver {
    /// Counters in the scope `neighbors` below `scope`. Allocates all its memory here.
    pub(crate) fn new(config: NeighborConfig, seed: HashSeed, scope: &Scope) -> Self {
        let scope = scope.scope("neighbors");
        Self {
            neighbors: Neighbors::new(config, seed),
            pending_per_neighbor: config.pending_per_neighbor,
            host_changes: 0,
            waiting: scope.gauge("waiting", Unit::Packets),
            output: ResolverOutput {
                asks_by: config.learn_from,
                requests: ArrayVec::new(),
                unreached: ArrayVec::new(),
                requests_sent: scope.counter("requests", Unit::Packets),
                unsent: scope.counter("unsent", Unit::Packets),
                limited: scope.counter("limited", Unit::Events),
                resolved: scope.counter("resolved", Unit::Packets),
                drops: scope.tx_drops(),
            },
        }
    }

    /// Frames that wait for a neighbor.
    pub(crate) fn pending(&self) -> usize {
        self.neighbors.pending()
    }

    /// Frames that may wait for one neighbor.
    pub(crate) fn pending_per_neighbor(&self) -> usize {
        self.pending_per_neighbor
    }

    /// Neighbors that are known or being resolved.
    pub(crate) fn len(&self) -> usize {
        self.neighbors.len()
    }

    /// When [`tick`] has something to do next, not later.
    pub(crate) fn next_deadline(&self, host: &Host, now: Instant) -> Instant {
        let is_behind = !self.neighbors.is_empty() && self.host_changes != host.changes();
        if is_behind || !self.output.requests.is_empty() { now } else { self.neighbors.next_deadline() }
    }

    /// Whether a neighbor is asked for.
    pub(crate) fn is_asking(&self) -> bool {
        self.neighbors.is_asking()
    }

    /// The next segment that was not sent because its neighbor did not reply.
    pub(crate) fn next_unreached(&mut self) -> Option<(Flow, Seq)> {
        self.output.unreached.pop()
    }

    /// The next request that is not passed on yet.
    pub(crate) fn next_neighbor_request(&mut self) -> Option<NeighborRequest> {
        self.output.requests.pop()
    }
}

impl ResolverOutput {
    pub(super) fn perform(&mut self, action: NeighborAction<Mbuf>, tags: &VlanTags, pool: &Pool, tx: &mut dyn TxQueue) {
        match action {
            NeighborAction::Send(send) => self.ask(&send, tags, pool, tx),
            NeighborAction::Released { handle, reason } => {
                if reason == NeighborDrop::Unreachable {
                    self.unreached.extend(segment_of(&handle, tags).filter(|_| !self.unreached.is_full()));
                }
                discard(handle, &mut self.drops, reason.into());
            }
            NeighborAction::Resolved { handle: mut frame, mac } => {
                frame.bytes_mut()[..6].copy_from_slice(&mac.0);
                match tx.post(frame, Offload::NONE) {
                    Ok(()) => self.resolved.inc(),
                    Err(frame) => discard(frame, &mut self.drops, WaitingDrop::RingFull),
                }
            }
        }
    }

    fn ask(&mut self, send: &ArpSend, tags: &VlanTags, pool: &Pool, tx: &mut dyn TxQueue) {
        let is_asked = match self.asks_by {
            LearnFrom::Arp => send_arp(send, tags, pool, tx),
            LearnFrom::Host => {
                let (next_hop, source) = (send.packet.target_ip, send.packet.sender_ip);
                let request = NeighborRequest { next_hop, source, cause: ResolutionCause::App };
                self.requests.try_push(request).is_ok()
            }
        };
        if is_asked { self.requests_sent.inc() } else { self.unsent.inc() }
    }
}

/// The flow and sequence number of a segment of ours in `frame`; `None` where it holds none.
fn segment_of(frame: &Mbuf, tags: &VlanTags) -> Option<(Flow, Seq)> {
    let packet = Ipv4Packet::parse(frame.bytes().get(ethernet::HEADER_LEN + tags.len()..)?).ok()?;
    if packet.header.protocol() != Protocol::TCP {
        return None;
    }
    let header = TcpSegment::parse(packet.payload).ok()?.header;
    let flow = Flow {
        local: SocketAddrV4::new(packet.header.source(), header.source_port()),
        remote: SocketAddrV4::new(packet.header.destination(), header.destination_port()),
    };
    Some((flow, Seq(header.seq())))
}

/// Posts an ARP packet; false where there is no buffer or no slot.
pub(crate) fn send_arp(send: &ArpSend, tags: &VlanTags, pool: &Pool, tx: &mut dyn TxQueue) -> bool {
    let fields = EthernetFields { dst: send.to, src: send.packet.sender_mac, ethertype: EtherType::ARP };
    let mut bytes = [0; LINK_LEN_MAX + arp::PACKET_LEN];
    let len = EthernetHeader::new(fields).emit_tagged(tags, &mut bytes).expect("the array holds two tags");
    let packet_len = ArpPacket::new(&send.packet).emit(&mut bytes[len..]).expect("and a packet");
    let Some(frame) = pool.alloc_copy(&bytes[..len + packet_len]) else { return false };
    // A caller's transmit timestamp is for its own frame, not for an ARP request made on its
    // behalf.
    match tx.post_unmarked(frame, Offload::NONE) {
        Ok(()) => true,
        Err(frame) => {
            frame.free();
            false
        }
    }
}
