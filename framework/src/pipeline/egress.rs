//! The way out: what everybody who sends shares. Counters, the neighbors and what waits for them,
//! the MTUs of paths, the errors that senders are told, and the identifications of packets. One for
//! each worker, in [`Cx`] beside the device.
//!
//! What enters are payloads, by [`UdpFlow`](super::UdpFlow); what leaves are frames at the device,
//! whole or in fragments.

use core::net::Ipv4Addr;

use super::answer::Sender;
use super::arp::resolver::{self, Resolver};
use super::icmp::error::IcmpErrors;
use super::node::Cx;
use super::timestamps::Asked;
use super::udp::flow::SendError;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::proto::{
    ErrorLimit, Flow, HashSeed, IdentificationKey, Identifications, NeighborConfig, NeighborRequest, PathMtuClaim,
    PathMtuConfig, PathMtuRefusal, PathMtus,
};
use crate::time::Instant;
use crate::wire::Protocol;

crate::drop_reasons! {
    /// Why a datagram was not sent. The sender has been told as well.
    pub(crate) enum EgressDrop {
        /// No buffer is free for it.
        PoolEmpty => "pool_empty",
        /// The device's ring is full.
        RingFull => "ring_full",
        /// Longer than a UDP datagram can be.
        TooLong => "too_long",
        /// Longer than the MTU, and the flow forbids fragments.
        DontFragment => "dont_fragment",
        /// No route leads there any more.
        NoRoute => "no_route",
        /// The link is down.
        LinkDown => "link_down",
        /// The MAC address of the next hop is not known, and it cannot wait for it.
        NeighborMissing => "neighbor_missing",
    }
}

/// What the way out does beyond sending.
#[derive(Clone, Copy, Debug)]
pub struct EgressConfig {
    /// Who asks for neighbors that are not known; what is sent to them waits. None: nobody asks,
    /// and only neighbors that were configured, or told by the kernel, are sent to. The pool needs
    /// `pending_max` buffers more.
    pub neighbors: Option<NeighborConfig>,
    /// How many errors tell senders what became of their packets; None for replays and on
    /// interfaces that are the kernel's: it answers for them.
    pub errors: Option<ErrorLimit>,
    /// MTUs of paths.
    pub path_mtus: PathMtuConfig,
    /// The secret of the tables.
    pub seed: HashSeed,
}

impl EgressConfig {
    /// Asks nobody and tells nobody: replays, benches, hosts whose neighbors are configured.
    pub fn quiet(seed: HashSeed) -> Self {
        Self { neighbors: None, errors: None, path_mtus: PathMtuConfig::default(), seed }
    }

    /// A host of its own: ARP, and errors at Linux's rate.
    pub fn host(seed: HashSeed) -> Self {
        Self { neighbors: Some(NeighborConfig::default()), errors: Some(ErrorLimit::default()), ..Self::quiet(seed) }
    }
}

/// What everybody who sends shares; handed to them in [`Cx`].
pub struct Egress {
    pub(super) datagrams: Counter,
    pub(super) fragments: Counter,
    pub(super) frames: Counter,
    pub(super) bytes: Counter,
    drops: Drops<EgressDrop>,
    /// Of packets that routers may fragment: of all that we send, as flows may share their
    /// addresses.
    identifications: Identifications,
    pub(super) resolver: Option<Resolver>,
    pub(super) errors: Option<IcmpErrors>,
    path_mtus: PathMtus,
    path_changes: u64,
    /// Whose segment the machine is looking at, where it may have to be answered to who sent it.
    pub(super) sender: Option<Sender>,
    /// Frames that were marked to be stamped, once somebody wants that.
    pub(super) asked: Option<Box<Asked>>,
    /// Those that were marked and whose time will never come.
    pub(super) timestamps_lost: Counter,
}

impl Egress {
    /// Counters in the scope `egress` below `scope`. Takes all memory.
    pub fn new(config: EgressConfig, scope: &Scope) -> Self {
        let scope = scope.scope("egress");
        Self {
            datagrams: scope.counter("datagrams", Unit::Datagrams),
            fragments: scope.counter("fragments", Unit::Packets),
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            drops: scope.drops(),
            identifications: Identifications::new(config.seed),
            resolver: config.neighbors.map(|neighbors| Resolver::new(neighbors, config.seed, &scope)),
            errors: config.errors.map(|limit| IcmpErrors::new(limit.keyed(config.seed), &scope)),
            path_mtus: PathMtus::new(config.path_mtus, config.seed),
            path_changes: 0,
            sender: None,
            asked: None,
            timestamps_lost: scope.counter("timestamps_lost", Unit::Events),
        }
    }

    /// Timers of what waits: bounded work, once per poll, a ns where nothing waits.
    #[inline]
    pub fn tick(cx: &mut Cx<'_>) {
        resolver::tick(cx);
    }

    /// Wants a neighbor to be known from now on: gateways, at start. A flow does it for its own
    /// next hop. False where there is no room, or nobody here asks for neighbors.
    pub fn keep_neighbor(request: NeighborRequest, cx: &mut Cx<'_>) -> bool {
        resolver::keep(request, cx)
    }

    /// Frames that wait for a neighbor.
    pub fn kept(&self) -> usize {
        self.resolver.as_ref().map_or(0, Resolver::pending)
    }

    /// Neighbors that are known or asked for.
    pub fn neighbors(&self) -> usize {
        self.resolver.as_ref().map_or(0, Resolver::len)
    }

    /// The next neighbor that somebody else is to be asked for
    /// ([`LearnFrom::Host`](crate::proto::LearnFrom::Host)).
    #[inline]
    pub fn next_neighbor_request(&mut self) -> Option<NeighborRequest> {
        self.resolver.as_mut()?.next_neighbor_request()
    }

    /// Bytes of the largest packet to a destination and until when that is believed, where a router
    /// told.
    pub fn path_mtu(&self, destination: Ipv4Addr, now: Instant) -> Option<(usize, Instant)> {
        self.path_mtus.lookup(destination, now)
    }

    /// The identification of the datagrams of a flow that forbids fragments.
    pub(super) fn proof(&self, flow: Flow) -> u16 {
        self.path_mtus.identification(flow)
    }

    /// Whether a datagram of that identification is one that the flow has sent.
    pub(super) fn prove(&mut self, flow: Flow, identification: u16, now: Instant) -> Result<(), PathMtuRefusal> {
        self.path_mtus.prove(flow, identification, now)
    }

    /// Takes a router's claim, and says which MTU holds now.
    pub(super) fn lower_path_mtu(&mut self, claim: PathMtuClaim, now: Instant) -> Result<usize, PathMtuRefusal> {
        let lowered = self.path_mtus.lower(claim, now)?;
        self.path_changes += 1;
        Ok(lowered)
    }

    /// Moves whenever a path's MTU does.
    #[inline]
    pub(super) fn path_changes(&self) -> u64 {
        self.path_changes
    }

    /// Where the identifications of packets between two ends are counted.
    pub(super) fn identification_key(
        &self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: Protocol,
    ) -> IdentificationKey {
        self.identifications.key(source, destination, protocol)
    }

    /// The identification of the next packet between two ends.
    #[inline]
    pub(super) fn next_identification(&mut self, key: IdentificationKey, now: Instant) -> u16 {
        self.identifications.next(key, now)
    }

    /// Counts a datagram that is not sent, and says why.
    #[cold]
    pub(super) fn refuse(&mut self, error: SendError) -> SendError {
        self.drops.count(match error {
            SendError::PoolEmpty => EgressDrop::PoolEmpty,
            SendError::RingFull => EgressDrop::RingFull,
            SendError::TooLong => EgressDrop::TooLong,
            SendError::DontFragment { .. } => EgressDrop::DontFragment,
            SendError::NoRoute(_) => EgressDrop::NoRoute,
            SendError::LinkDown => EgressDrop::LinkDown,
            SendError::NeighborMissing(_) => EgressDrop::NeighborMissing,
        });
        error
    }
}
