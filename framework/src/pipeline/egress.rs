//! The egress, which all senders share: counters, neighbors and the frames that wait for them, path
//! MTUs, ICMP errors, and IP identifications. One for each worker, in [`Cx`](super::Cx) beside the
//! device.
//!
//! Payloads enter by [`UdpFlow`](super::UdpFlow); frames leave to the device, whole or in
//! fragments. [`EgressCalls`] has its own operations, with only the parts of a worker that they
//! need; those on neighbors are in [`calls`](super::arp::calls).

use core::net::Ipv4Addr;

use super::answer::Sender;
use super::arp::resolver::Resolver;
use super::icmp::error_rate::IcmpErrors;
use super::pending_timestamps::PendingTimestamps;
use super::udp::send_error::UdpSendError;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::TxQueue;
use crate::mem::Pool;
use crate::proto::{
    ErrorLimit, Flow, HashSeed, Host, IdentificationKey, Identifications, NeighborConfig, NeighborRequest,
    PathMtuClaim, PathMtuConfig, PathMtuRefusal, PathMtus,
};
use crate::time::Instant;
use crate::wire::Protocol;

crate::drop_reasons! {
    /// Why a datagram was not sent. The sender gets the same reason as a result.
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
        /// The MAC address of the next hop is not known, and the datagram cannot wait for it.
        NeighborMissing => "neighbor_missing",
    }
}

/// The features of the way out beyond sending.
#[derive(Clone, Copy, Debug)]
pub struct EgressConfig {
    /// The resolver for neighbors that are not known; frames to them wait. `None`: nothing is
    /// resolved, and frames go only to neighbors that the configuration or the kernel supplies. The
    /// pool needs `pending_max` more buffers. By default [`NeighborConfig::default`] for a
    /// [host](Self::host), and `None` for a [quiet](Self::quiet) one.
    pub neighbors: Option<NeighborConfig>,
    /// The rate of ICMP errors that we send. A higher rate lets datagrams to closed ports take our
    /// time and makes us an amplifier; at a lower one senders wait for timeouts. `None` for
    /// replays, and on interfaces that the kernel owns: it sends the errors. By default 1,000 a
    /// second and bursts of 50 for a [host](Self::host), and `None` for a [quiet](Self::quiet) one.
    pub errors: Option<ErrorLimit>,
    /// MTUs of paths that routers report. By default [`PathMtuConfig::default`].
    pub path_mtus: PathMtuConfig,
    /// The secret that seeds the tables' hashes and the IPv4 identifications. It has no default:
    /// with a predictable one, an attacker can fill a bucket of a table or forge an ICMP error.
    /// [`random_seed`](crate::worker::random_seed) draws one.
    pub seed: HashSeed,
}

impl EgressConfig {
    /// No ARP and no ICMP errors: replays, benches, hosts with configured neighbors.
    pub fn quiet(seed: HashSeed) -> Self {
        Self { neighbors: None, errors: None, path_mtus: PathMtuConfig::default(), seed }
    }

    /// A host of its own: ARP, and ICMP errors at Linux's rate.
    pub fn host(seed: HashSeed) -> Self {
        Self { neighbors: Some(NeighborConfig::default()), errors: Some(ErrorLimit::default()), ..Self::quiet(seed) }
    }
}

/// The state that all senders share; they reach it in [`Cx`](super::Cx).
pub struct Egress {
    pub(super) datagrams: Counter,
    pub(super) fragments: Counter,
    pub(super) frames: Counter,
    pub(super) bytes: Counter,
    drops: Drops<EgressDrop>,
    /// For packets that routers may fragment. One table for all flows, because flows may share
    /// their addresses.
    identifications: Identifications,
    pub(super) resolver: Option<Resolver>,
    pub(super) errors: Option<IcmpErrors>,
    path_mtus: PathMtus,
    path_changes: u64,
    /// The sender of the segment that the machine is processing, where the answer may have to go
    /// back to its MAC address.
    pub(super) sender: Option<Sender>,
    /// Frames that were marked for a transmit timestamp, once an app has enabled them.
    pub(super) pending_timestamps: Option<Box<PendingTimestamps>>,
    /// Marked frames whose timestamp will never arrive.
    pub(super) timestamps_lost: Counter,
}

/// The egress, and the parts of a worker that it needs: not the sockets, the connections and the
/// timers.
pub(super) struct EgressCalls<'a> {
    pub(super) egress: &'a mut Egress,
    pub(super) host: &'a mut Host,
    pub(super) pool: &'a Pool,
    pub(super) tx: &'a mut dyn TxQueue,
    pub(super) now: Instant,
}

impl Egress {
    /// Counters in the scope `egress` below `scope`. Allocates all its memory here.
    pub fn new(config: EgressConfig, scope: &Scope) -> Self {
        let scope = scope.scope("egress");
        Self {
            datagrams: scope.counter("datagrams", Unit::Datagrams),
            fragments: scope.counter("fragments", Unit::Packets),
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            drops: scope.tx_drops(),
            identifications: Identifications::new(config.seed),
            resolver: config.neighbors.map(|neighbors| Resolver::new(neighbors, config.seed, &scope)),
            errors: config.errors.map(|limit| IcmpErrors::new(limit.keyed(config.seed), &scope)),
            path_mtus: PathMtus::new(config.path_mtus, config.seed),
            path_changes: 0,
            sender: None,
            pending_timestamps: None,
            timestamps_lost: scope.counter("timestamps_lost", Unit::Events),
        }
    }

    /// When its timers have something to do next, not later; `Instant::MAX` for never.
    pub fn next_deadline(&self, host: &Host, now: Instant) -> Instant {
        self.resolver.as_ref().map_or(Instant::MAX, |resolver| resolver.next_deadline(host, now))
    }

    /// Whether any neighbor is being resolved. Scans all neighbors.
    pub fn awaits_neighbor(&self) -> bool {
        self.resolver.as_ref().is_some_and(Resolver::is_asking)
    }

    /// Frames that wait for a neighbor.
    pub fn kept(&self) -> usize {
        self.resolver.as_ref().map_or(0, Resolver::pending)
    }

    /// Neighbors that are known or being resolved.
    pub fn neighbors(&self) -> usize {
        self.resolver.as_ref().map_or(0, Resolver::len)
    }

    /// The next neighbor that waits to be resolved by the kernel. The worker passes the request to
    /// the kernel. `None` unless neighbors are learned from the host
    /// ([`LearnFrom::Host`](crate::proto::LearnFrom::Host)).
    #[inline]
    pub fn next_neighbor_request(&mut self) -> Option<NeighborRequest> {
        self.resolver.as_mut()?.next_neighbor_request()
    }

    /// The path MTU to a destination and its expiry, where a router reported one.
    pub fn path_mtu(&self, destination: Ipv4Addr, now: Instant) -> Option<(usize, Instant)> {
        self.path_mtus.lookup(destination, now)
    }

    /// The identification of the datagrams of a flow that forbids fragments: it proves that a quote
    /// is genuine.
    pub(super) fn proof(&self, flow: Flow) -> u16 {
        self.path_mtus.identification(flow)
    }

    /// Whether the flow has sent a datagram with that identification.
    pub(super) fn prove(&mut self, flow: Flow, identification: u16, now: Instant) -> Result<(), PathMtuRefusal> {
        self.path_mtus.prove(flow, identification, now)
    }

    /// Accepts a router's claim, and returns the MTU that holds now.
    pub(super) fn lower_path_mtu(&mut self, claim: PathMtuClaim, now: Instant) -> Result<usize, PathMtuRefusal> {
        let lowered = self.path_mtus.lower(claim, now)?;
        self.path_changes += 1;
        Ok(lowered)
    }

    /// Increments whenever a path MTU changes.
    #[inline]
    pub(super) fn path_changes(&self) -> u64 {
        self.path_changes
    }

    /// The key under which identifications between two addresses are counted.
    pub(super) fn identification_key(
        &self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: Protocol,
    ) -> IdentificationKey {
        self.identifications.key(source, destination, protocol)
    }

    /// The identification of the next packet between two addresses.
    #[inline]
    pub(super) fn next_identification(&mut self, key: IdentificationKey, now: Instant) -> u16 {
        self.identifications.next(key, now)
    }

    /// Counts a datagram that is not sent, and returns the reason.
    #[cold]
    pub(super) fn refuse(&mut self, error: UdpSendError) -> UdpSendError {
        self.drops.count(match error {
            UdpSendError::PoolEmpty => EgressDrop::PoolEmpty,
            UdpSendError::RingFull => EgressDrop::RingFull,
            UdpSendError::TooLong => EgressDrop::TooLong,
            UdpSendError::DontFragment { .. } => EgressDrop::DontFragment,
            UdpSendError::NoRoute(_) => EgressDrop::NoRoute,
            UdpSendError::LinkDown => EgressDrop::LinkDown,
            UdpSendError::NeighborMissing(_) => EgressDrop::NeighborMissing,
        });
        error
    }
}
