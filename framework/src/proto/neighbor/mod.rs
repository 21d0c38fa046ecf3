//! The neighbors, by ARP (RFC 826, RFC 1122 2.3.2): requests MAC addresses, learns from replies
//! within rules, confirms entries before they expire, and keeps packets that cannot be sent yet.
//!
//! ```text
//!   queue ─▶ Asking ──answer──▶ Reachable ──30 s──▶ Probing (unicast) ──answer──▶ Reachable
//!              │ 3 tries                              │ 3 tries
//!              ▼                                      ▼
//!            gone: what waited comes back           Asking (broadcast), and the host does not believe it any more
//! ```
//! Requests to send, ARP packets and the time enter; packets to send, handles that may be sent or
//! come back with a reason, and events for the [`Host`] leave. No other machine writes ARP's
//! findings to the host. [`claim`](super::claim) handles our own addresses.
//!
//! A neighbor that our app requested is kept fresh until it is [removed](Neighbors::forget), used
//! or not: a gateway whose entry has expired costs an order some milliseconds, and a probe each 30
//! s costs nothing. A neighbor that only requested our address, or wanted to connect, expires.
//!
//! Source addresses can be forged, so entries are evicted in the order of [`ResolutionCause`]:
//! first those that connection attempts caused, the oldest first, then neighbors that requested our
//! address, then peers with connections to us; never neighbors that our app requested. A real peer
//! replies within a fraction of a millisecond, so it is known before forged ones have taken all
//! entries.
//!
//! A flood cannot make us broadcast without limit either: requests that remote hosts cause are
//! limited to a [rate](NeighborConfig::requests), those that our app causes are not.

mod event;
mod eviction;

use core::net::Ipv4Addr;

pub use event::{ArpOutcome, ArpSend, NeighborAction, NeighborDrop, NeighborRequest, NotLearned, ResolutionCause};

use eviction::{EvictionClass, EvictionQueues, QueueLink};

use super::hash::HashSeed;
use super::host::{Destination, Host, HostEvent, Resolution};
use super::rate_limit::TokenBucket;
use super::slab::{NIL, Slab};
use super::table::{AddressKey, Table};
use crate::time::{Duration, Instant};
use crate::wire::{ArpFields, ArpOperation, ArpPacket, MacAddr};

/// Time for which the first MAC address that replies is kept although another one replies. Two
/// stations that reply to one request (a proxy and the host itself) would otherwise alternate; a
/// longer time delays a gateway's failover by as much. Linux uses the same (`locktime`).
pub const LOCK_TIME: Duration = Duration::from_secs(1);

/// Time for which a neighbor that was learned from a request for our address is not evicted, so
/// that its connection attempt arrives before another host's request displaces it. Linux keeps a
/// new entry as long (`locktime`).
pub const UNKNOWN_STAYS: Duration = Duration::from_secs(1);

/// Neighbors that one [`Neighbors::tick`] checks. A poll never pays for a large table; a table of
/// 1024 takes 16 polls.
pub const SWEPT_PER_TICK_MAX: usize = 64;

/// Capacities and times. All memory is allocated at construction.
#[derive(Clone, Copy, Debug)]
pub struct NeighborConfig {
    /// Neighbors, 96 bytes each and 64 to 128 of table. The host needs room for as many. With fewer
    /// than the network has, packets to further neighbors are dropped as
    /// `egress/neighbors/drop/no_room`. By default 256, as many as a network of 24 bits has.
    pub neighbors_max: usize,
    /// How many of them may be learned from requests for our address, without a request of ours.
    /// Beyond that number a new neighbor replaces the oldest one, if that is at least a second old.
    /// So a flood of requests with forged senders takes only these entries, and changes the table
    /// at most that many times a second. With zero, each host that requests our address costs a
    /// request of ours; with a higher number, a flood takes more of the table. By default 16.
    pub unknown_max: usize,
    /// Handles that wait for replies, for all neighbors together; those for callers are displaced
    /// by newer ones. The pool needs as many more buffers. With too few, packets are dropped while
    /// several neighbors are resolved. By default 64.
    pub pending_max: usize,
    /// The most handles that wait for one neighbor: at least one (RFC 1122 2.3.2.2). The newest
    /// stay; older ones are dropped as `egress/neighbors/drop/superseded`. With a higher number, a
    /// neighbor that does not reply takes the room of others. By default 8.
    pub pending_per_neighbor: usize,
    /// How long a reply is valid before it is confirmed. Shorter sends more requests; longer loses
    /// more packets when a neighbor changes its MAC address without an announcement. By default
    /// 30 s.
    pub reachable: Duration,
    /// Timeout of the first request; it doubles with each further one. RFC 1122 2.3.2.1 allows one
    /// request a second at most; longer delays the first packet when a request is lost. By default
    /// 1 s.
    pub retry: Duration,
    /// Requests before resolution fails, one at least. With fewer it fails when requests are lost;
    /// with more, packets to an absent neighbor wait longer. By default 3.
    pub tries: u32,
    /// The rate of requests for new neighbors that remote hosts cause: a bucket for each kind of
    /// [`ResolutionCause`], and no limit for our app. Every station of the network receives a
    /// request, so a higher rate makes us an attacker's amplifier; with a lower one we cannot reply
    /// to peers that we do not know and that did not request our address. By default 1,000 a second
    /// and bursts of 300.
    pub requests: TokenBucket,
    /// The source of the replies. By default [`LearnFrom::Arp`].
    pub learn_from: LearnFrom,
}

/// The source of the replies to our requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LearnFrom {
    /// ARP packets that we receive; we write them to the host.
    #[default]
    Arp,
    /// Another component resolves neighbors and writes them to the host, from which the machine
    /// reads them: the kernel, where it owns the interface. Requests then go to the kernel, which
    /// need not reply, and the machine never removes a neighbor from the host.
    Host,
}

impl Default for NeighborConfig {
    /// The bursts of 300 requests are somewhat more than there are entries.
    fn default() -> Self {
        Self {
            neighbors_max: 256,
            unknown_max: 16,
            pending_max: 64,
            pending_per_neighbor: 8,
            reachable: Duration::from_secs(30),
            retry: Duration::from_secs(1),
            tries: 3,
            requests: TokenBucket::new(1_000, 300),
            learn_from: LearnFrom::Arp,
        }
    }
}

impl NeighborConfig {
    /// The bytes that `Neighbors::new` allocates for handles of type `H`: the sum of its three
    /// parts.
    pub fn bytes<H>(&self) -> usize {
        Table::<AddressKey, u32>::bytes(self.neighbors_max)
            + Slab::<NeighborEntry>::bytes(self.neighbors_max)
            + Slab::<Pending<H>>::bytes(self.pending_max)
    }

    /// The timeout of request number `tries`.
    fn wait(&self, tries: u32) -> Duration {
        let factor = 1u64 << tries.saturating_sub(1).min(16);
        Duration::from_nanos(self.retry.as_nanos().saturating_mul(factor))
    }

    /// The timeout of all requests together.
    fn resolution_timeout(&self) -> Duration {
        (1..=self.tries).fold(Duration::ZERO, |sum, tries| sum + self.wait(tries))
    }
}

/// The neighbors of one interface, and the handles that wait for them.
#[derive(Debug)]
pub struct Neighbors<H> {
    config: NeighborConfig,
    /// Indices into `entries` by address.
    by_address: Table<AddressKey, u32>,
    entries: Slab<NeighborEntry>,
    eviction: EvictionQueues,
    pending: Slab<Pending<H>>,
    limits: Limits,
    sweep: Sweep,
}

/// The remaining requests that remote hosts may cause. Each kind has its own bucket, so that a
/// flood of one kind, whose addresses are unproven, does not block another kind.
#[derive(Debug)]
struct Limits {
    peers: TokenBucket,
    unsolicited: TokenBucket,
    handshakes: TokenBucket,
}

impl Limits {
    fn take(&mut self, cause: ResolutionCause, now: Instant) -> Result<(), NeighborDrop> {
        let may_ask = match cause {
            ResolutionCause::App => true,
            ResolutionCause::Connection => self.peers.take(now),
            ResolutionCause::Datagram => self.unsolicited.take(now),
            ResolutionCause::Handshake => self.handshakes.take(now),
        };
        if may_ask { Ok(()) } else { Err(NeighborDrop::RateLimited) }
    }
}

#[derive(Clone, Copy, Debug)]
struct NeighborEntry {
    address: Ipv4Addr,
    /// Our address to send requests from.
    source: Ipv4Addr,
    mac: MacAddr,
    state: NeighborState,
    /// When the state ends.
    deadline: Instant,
    /// When the MAC address was learned or changed.
    changed: Instant,
    /// Its eviction queue.
    link: QueueLink,
    /// Handles that wait, oldest first.
    first: u32,
    last: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NeighborState {
    /// Unknown; number of broadcast requests sent.
    Asking(u32),
    /// Known and fresh.
    Reachable,
    /// Known; number of unicast requests sent to confirm it.
    Probing(u32),
}

#[derive(Debug)]
struct Pending<H> {
    handle: H,
    next: u32,
}

/// A walk over the entries that continues from tick to tick.
#[derive(Debug)]
struct Sweep {
    at: u32,
    /// No deadline is earlier.
    due: Instant,
    /// The earliest deadline that this walk has found, or that was set since the walk began.
    found: Instant,
}

impl<H> Neighbors<H> {
    /// Without neighbors. Allocates all its memory here (see [`NeighborConfig::bytes`]).
    pub fn new(config: NeighborConfig, seed: HashSeed) -> Self {
        assert!(
            config.tries > 0 && config.pending_per_neighbor > 0,
            "asking means at least once, waiting at least one"
        );
        Self {
            config,
            by_address: Table::new(config.neighbors_max, seed),
            entries: Slab::new(config.neighbors_max),
            eviction: EvictionQueues::EMPTY,
            pending: Slab::new(config.pending_max),
            limits: Limits { peers: config.requests, unsolicited: config.requests, handshakes: config.requests },
            sweep: Sweep { at: 0, due: Instant::MAX, found: Instant::MAX },
        }
    }

    /// Takes a handle that cannot be sent yet, and requests its neighbor. The handle comes back
    /// through `act`: at once where the neighbor is known, the table is full or the rate is used
    /// up; otherwise with the reply, or after the last request's timeout.
    pub fn queue(
        &mut self,
        request: NeighborRequest,
        handle: H,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(NeighborAction<H>),
    ) {
        if let Resolution::Station { mac, .. } = host.resolve(request.next_hop, now) {
            return act(NeighborAction::Resolved { handle, mac });
        }
        match self.ask(request, host, now, act) {
            Ok(idx) => self.wait(idx, handle, act),
            Err(reason) => act(NeighborAction::Released { handle, reason }),
        }
    }

    /// Keeps a neighbor resolved from now on, even though no handle waits for it: for gateways, at
    /// start. An error where the table is full or the rate is used up.
    pub fn keep(
        &mut self,
        request: NeighborRequest,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(NeighborAction<H>),
    ) -> Result<(), NeighborDrop> {
        self.ask(request, host, now, act).map(|_| ())
    }

    /// A neighbor's packets are not acknowledged (RFC 1122 3.3.1.4, negative advice): probes the
    /// neighbor now instead of at its expiry, but no more often than requests may be sent.
    pub fn negative_advice(
        &mut self,
        address: Ipv4Addr,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(NeighborAction<H>),
    ) {
        let Some(idx) = self.find(address) else { return };
        let entry = &self.entries[idx];
        let is_confirmed_now = entry.deadline + self.config.retry > now + self.config.reachable;
        if entry.state == NeighborState::Reachable && entry.link.class.is_kept() && !is_confirmed_now {
            self.expire(idx, host, now, act);
        }
    }

    /// Removes a neighbor: here and in the host.
    pub fn forget(&mut self, address: Ipv4Addr, host: &mut Host, act: &mut impl FnMut(NeighborAction<H>)) {
        if let Some(idx) = self.find(address) {
            self.remove(idx, NeighborDrop::Forgotten, host, act);
        }
    }

    /// Receives a packet that [`ArpPacket::parse`] has accepted. The machine learns from a reply to
    /// our request; from a packet to us from a known neighbor; from a packet to others from a known
    /// neighbor if its MAC address is new, which is then probed at once; and from a request for our
    /// address by an unknown neighbor, which is about to send to us (RFC 826, "Packet Reception"),
    /// as far as there is room for such neighbors.
    pub fn receive(
        &mut self,
        packet: &ArpPacket,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(NeighborAction<H>),
    ) -> ArpOutcome {
        let sender = packet.sender_ip();
        if packet.sender_mac() == host.mac() {
            return ArpOutcome::Ignored(NotLearned::OwnMac);
        }
        if !is_neighbor(sender, host) {
            return ArpOutcome::Ignored(NotLearned::NotANeighbor);
        }
        let for_us = host.is_own(packet.target_ip());
        match (self.find(sender), packet.operation()) {
            (Some(idx), _) => self.update(idx, packet.sender_mac(), for_us, host, now, act),
            (None, _) if !for_us => ArpOutcome::Ignored(NotLearned::NotForUs),
            (None, ArpOperation::Reply) => ArpOutcome::Ignored(NotLearned::Unsolicited),
            (None, ArpOperation::Request) => self.admit(packet, host, now, act),
        }
    }

    /// Call it after the host has changed. Sends the handles of all neighbors that the host now
    /// knows, from whatever source. Scans all neighbors, 2 ns each.
    pub fn follow(&mut self, host: &Host, now: Instant, act: &mut impl FnMut(NeighborAction<H>)) {
        for idx in 0..self.config.neighbors_max as u32 {
            let Some(entry) = self.entries.get(idx).filter(|entry| matches!(entry.state, NeighborState::Asking(_)))
            else {
                continue;
            };
            if let Resolution::Station { mac, .. } = host.resolve(entry.address, now) {
                self.settle(idx, mac, now, act);
            }
        }
    }

    /// Repeats requests, confirms aging entries, gives up. Costs one compare as long as nothing is
    /// due; otherwise processes at most [`SWEPT_PER_TICK_MAX`] neighbors.
    #[inline]
    pub fn tick(&mut self, host: &mut Host, now: Instant, act: &mut impl FnMut(NeighborAction<H>)) {
        if now >= self.sweep.due {
            self.sweep(host, now, act);
        }
    }

    /// The time at which [`tick`](Self::tick) next has work, or an earlier one; `Instant::MAX`
    /// where no neighbor is known or requested.
    pub fn next_deadline(&self) -> Instant {
        if self.is_empty() { Instant::MAX } else { self.sweep.due }
    }

    /// Whether any neighbor is being requested. Scans all neighbors, so call it only before a
    /// sleep.
    pub fn is_asking(&self) -> bool {
        !self.is_empty()
            && (0..self.config.neighbors_max as u32)
                .filter_map(|idx| self.entries.get(idx))
                .any(|entry| matches!(entry.state, NeighborState::Asking(_)))
    }

    /// Handles that wait now.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Neighbors that are known or being resolved.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&self, address: Ipv4Addr) -> Option<u32> {
        self.by_address.get(AddressKey::of(address)).copied()
    }

    /// The entry of a neighbor, which is requested where it is new; `cause` wants it from now on.
    fn ask(
        &mut self,
        request: NeighborRequest,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(NeighborAction<H>),
    ) -> Result<u32, NeighborDrop> {
        // All peers behind a router need it: no single peer owns it.
        let cause = if is_router(request.next_hop, host) { ResolutionCause::App } else { request.cause };
        if let Some(idx) = self.find(request.next_hop) {
            self.eviction.rise(&mut self.entries, idx, cause);
            if self.is_lost(idx, host, now) {
                self.limits.take(cause, now)?;
                self.entries[idx].state = NeighborState::Asking(0);
                self.ask_again(idx, host, now, act);
            }
            return Ok(idx);
        }
        self.limits.take(cause, now)?;
        if self.entries.free_count() == 0
            && let Some(idx) = self.eviction.least()
        {
            self.remove(idx, NeighborDrop::NoRoom, host, act);
        }
        let entry = NeighborEntry {
            address: request.next_hop,
            source: request.source,
            mac: MacAddr::ZERO,
            state: NeighborState::Asking(0),
            deadline: now,
            changed: now,
            link: QueueLink::new(EvictionClass::of(cause)),
            first: NIL,
            last: NIL,
            count: 0,
        };
        let idx = self.insert(entry).ok_or(NeighborDrop::NoRoom)?;
        self.ask_again(idx, host, now, act);
        Ok(idx)
    }

    /// Whether the host's source has removed the neighbor.
    fn is_lost(&self, idx: u32, host: &Host, now: Instant) -> bool {
        let entry = &self.entries[idx];
        let is_settled = self.config.learn_from == LearnFrom::Host && entry.state == NeighborState::Reachable;
        is_settled && !matches!(host.resolve(entry.address, now), Resolution::Station { .. })
    }

    /// The host knows a neighbor that is being resolved: waiting handles are sent, and it is
    /// confirmed before it expires.
    fn settle(&mut self, idx: u32, mac: MacAddr, now: Instant, act: &mut impl FnMut(NeighborAction<H>)) {
        let entry = &mut self.entries[idx];
        (entry.mac, entry.changed, entry.state) = (mac, now, NeighborState::Reachable);
        self.set_deadline(idx, now + self.config.reachable);
        self.eviction.follow(&mut self.entries, idx);
        while let Some(handle) = self.take_first(idx) {
            act(NeighborAction::Resolved { handle, mac });
        }
    }

    fn insert(&mut self, entry: NeighborEntry) -> Option<u32> {
        let idx = self.entries.insert(entry).ok()?;
        let inserted = self.by_address.insert(AddressKey::of(entry.address), idx);
        assert!(inserted, "the table has a place for each entry, and the address was not there");
        self.eviction.enter(&mut self.entries, idx, entry.link.class);
        Some(idx)
    }

    /// Sends the next request: a broadcast while no MAC address is known, otherwise a unicast to
    /// confirm it.
    fn ask_again(&mut self, idx: u32, host: &Host, now: Instant, act: &mut impl FnMut(NeighborAction<H>)) {
        let entry = &mut self.entries[idx];
        let (to, tries) = match entry.state {
            NeighborState::Asking(tries) => {
                entry.state = NeighborState::Asking(tries + 1);
                (MacAddr::BROADCAST, tries + 1)
            }
            NeighborState::Probing(tries) => {
                entry.state = NeighborState::Probing(tries + 1);
                (entry.mac, tries + 1)
            }
            NeighborState::Reachable => return,
        };
        let packet = ArpFields {
            operation: ArpOperation::Request,
            sender_mac: host.mac(),
            sender_ip: entry.source,
            target_mac: MacAddr::ZERO,
            target_ip: entry.address,
        };
        self.set_deadline(idx, now + self.config.wait(tries));
        act(NeighborAction::Send(ArpSend { to, packet }));
    }

    fn set_deadline(&mut self, idx: u32, deadline: Instant) {
        self.entries[idx].deadline = deadline;
        self.sweep.due = self.sweep.due.min(deadline);
        self.sweep.found = self.sweep.found.min(deadline);
    }

    /// Puts a handle at the end of its neighbor's queue. Where the queue is full its oldest handle
    /// is dropped, because the newest packet is most likely still wanted (RFC 1122 2.3.2.2). Where
    /// no slot for a handle is free, the handle of the oldest caller is dropped.
    fn wait(&mut self, idx: u32, handle: H, act: &mut impl FnMut(NeighborAction<H>)) {
        let is_full = self.entries[idx].count as usize >= self.config.pending_per_neighbor;
        let giver = match (is_full, self.pending.free_count()) {
            (true, _) => Some(idx),
            (false, 0) => self.eviction.first(EvictionClass::Waiting).or(Some(idx)),
            (false, _) => None,
        };
        if let Some(handle) = giver.and_then(|giver| self.take_first(giver)) {
            act(NeighborAction::Released { handle, reason: NeighborDrop::Superseded });
        }
        let link = match self.pending.insert(Pending { handle, next: NIL }) {
            Ok(link) => link,
            Err(Pending { handle, .. }) => {
                return act(NeighborAction::Released { handle, reason: NeighborDrop::NoRoom });
            }
        };
        let entry = &mut self.entries[idx];
        let last = core::mem::replace(&mut entry.last, link);
        entry.count += 1;
        match self.pending.get_mut(last) {
            Some(last) => last.next = link,
            None => entry.first = link,
        }
        self.eviction.follow(&mut self.entries, idx);
    }

    fn take_first(&mut self, idx: u32) -> Option<H> {
        let entry = &mut self.entries[idx];
        let Pending { handle, next } = self.pending.remove(entry.first)?;
        entry.first = next;
        entry.count -= 1;
        if next == NIL {
            entry.last = NIL;
            self.eviction.follow(&mut self.entries, idx);
        }
        Some(handle)
    }

    /// An ARP packet arrived from a neighbor that is known or being resolved.
    fn update(
        &mut self,
        idx: u32,
        mac: MacAddr,
        for_us: bool,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(NeighborAction<H>),
    ) -> ArpOutcome {
        let entry = &mut self.entries[idx];
        let is_new = matches!(entry.state, NeighborState::Asking(_));
        let moved = !is_new && entry.mac != mac;
        if moved && now.since(entry.changed) < LOCK_TIME {
            return ArpOutcome::Ignored(NotLearned::TooSoon);
        }
        if !is_new && !moved && !for_us {
            return ArpOutcome::Ignored(NotLearned::NotForUs);
        }
        if is_new || moved {
            (entry.mac, entry.changed) = (mac, now);
        }
        let until = if for_us {
            entry.state = NeighborState::Reachable;
            self.set_deadline(idx, now + self.config.reachable);
            now + self.config.reachable + self.config.resolution_timeout()
        } else {
            entry.state = NeighborState::Probing(0);
            self.ask_again(idx, host, now, act);
            now + self.config.resolution_timeout()
        };
        let address = self.entries[idx].address;
        let is_known = !is_new && host.confirm(address, mac, until, now);
        if !is_known && host.apply(HostEvent::NeighborLearned { address, mac, until }).is_err() {
            self.remove(idx, NeighborDrop::NoRoom, host, act);
            return ArpOutcome::Ignored(NotLearned::NoRoom);
        }
        self.eviction.follow(&mut self.entries, idx);
        while let Some(handle) = self.take_first(idx) {
            act(NeighborAction::Resolved { handle, mac });
        }
        match (is_new, moved) {
            (true, _) => ArpOutcome::Answered,
            (_, true) => ArpOutcome::Moved,
            _ => ArpOutcome::Confirmed,
        }
    }

    /// An unknown neighbor requests our address, so we are about to exchange packets (RFC 826,
    /// "Packet Reception": "Am I the target protocol address? [...] add the triplet [...] to the
    /// translation table").
    fn admit(
        &mut self,
        packet: &ArpPacket,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(NeighborAction<H>),
    ) -> ArpOutcome {
        let (address, mac) = (packet.sender_ip(), packet.sender_mac());
        let until = now + self.config.reachable;
        let has_room = self.make_room_for_unknown(host, now, act);
        // The host's entry is taken last, so that a refusal leaves no trace.
        if !has_room || host.apply(HostEvent::NeighborLearned { address, mac, until }).is_err() {
            return ArpOutcome::Ignored(NotLearned::NoRoom);
        }
        let entry = NeighborEntry {
            address,
            source: packet.target_ip(),
            mac,
            state: NeighborState::Reachable,
            deadline: until,
            changed: now,
            link: QueueLink::new(EvictionClass::Unused),
            first: NIL,
            last: NIL,
            count: 0,
        };
        if let Some(idx) = self.insert(entry) {
            self.set_deadline(idx, until);
        }
        ArpOutcome::Unsolicited
    }

    /// Makes room for one more neighbor that requested our address: evicts the oldest such neighbor
    /// where their limit is reached, or otherwise a peer that has not replied.
    fn make_room_for_unknown(
        &mut self,
        host: &mut Host,
        now: Instant,
        act: &mut impl FnMut(NeighborAction<H>),
    ) -> bool {
        let may_grow = self.eviction.count(EvictionClass::Unused) < self.config.unknown_max;
        if may_grow && self.entries.free_count() > 0 {
            return true;
        }
        let oldest = self.eviction.first(EvictionClass::Unused);
        let old = oldest.filter(|idx| now.since(self.entries[*idx].changed) >= UNKNOWN_STAYS);
        let silent = self.eviction.first(EvictionClass::Idle).or(self.eviction.first(EvictionClass::Waiting));
        match silent.filter(|_| may_grow).or(old) {
            Some(idx) => self.remove(idx, NeighborDrop::NoRoom, host, act),
            None => return false,
        }
        true
    }

    fn remove(&mut self, idx: u32, reason: NeighborDrop, host: &mut Host, act: &mut impl FnMut(NeighborAction<H>)) {
        while let Some(handle) = self.take_first(idx) {
            act(NeighborAction::Released { handle, reason });
        }
        self.eviction.leave(&mut self.entries, idx);
        let Some(entry) = self.entries.remove(idx) else { return };
        self.by_address.remove(AddressKey::of(entry.address));
        if !matches!(entry.state, NeighborState::Asking(_)) && self.config.learn_from == LearnFrom::Arp {
            remove_learned(entry.address, host);
        }
    }

    #[cold]
    fn sweep(&mut self, host: &mut Host, now: Instant, act: &mut impl FnMut(NeighborAction<H>)) {
        let end = self.config.neighbors_max as u32;
        let stop = end.min(self.sweep.at + SWEPT_PER_TICK_MAX as u32);
        for idx in self.sweep.at..stop {
            if self.entries.get(idx).is_some_and(|entry| entry.deadline <= now) {
                self.expire(idx, host, now, act);
            }
            if let Some(entry) = self.entries.get(idx) {
                self.sweep.found = self.sweep.found.min(entry.deadline);
            }
        }
        self.sweep.at = stop;
        if stop == end {
            self.sweep = Sweep { at: 0, due: self.sweep.found, found: Instant::MAX };
        }
    }

    /// A state's deadline has passed.
    fn expire(&mut self, idx: u32, host: &mut Host, now: Instant, act: &mut impl FnMut(NeighborAction<H>)) {
        let tries_max = self.config.tries;
        let entry = &mut self.entries[idx];
        match entry.state {
            NeighborState::Reachable if !entry.link.class.is_kept() => {
                return self.remove(idx, NeighborDrop::Unreachable, host, act);
            }
            NeighborState::Reachable if self.config.learn_from == LearnFrom::Host => {
                return self.renew(idx, host, now, act);
            }
            NeighborState::Reachable => entry.state = NeighborState::Probing(0),
            NeighborState::Asking(tries) | NeighborState::Probing(tries) if tries < tries_max => (),
            NeighborState::Asking(_) => return self.remove(idx, NeighborDrop::Unreachable, host, act),
            // Its MAC address may have changed, so the request is a broadcast now.
            NeighborState::Probing(_) => {
                entry.state = NeighborState::Asking(0);
                remove_learned(entry.address, host);
            }
        }
        self.ask_again(idx, host, now, act);
    }

    /// A neighbor that the host's source supplies is still in use: asks the source to confirm it.
    /// Where the source has removed it, it is requested again.
    fn renew(&mut self, idx: u32, host: &Host, now: Instant, act: &mut impl FnMut(NeighborAction<H>)) {
        self.entries[idx].state = NeighborState::Asking(0);
        self.ask_again(idx, host, now, act);
        if let Resolution::Station { mac, .. } = host.resolve(self.entries[idx].address, now) {
            self.settle(idx, mac, now, act);
        }
    }
}

/// Removes a neighbor from the host, unless it was configured there.
fn remove_learned(address: Ipv4Addr, host: &mut Host) {
    if host.has_learned(address) {
        let taken = host.apply(HostEvent::NeighborRemoved(address));
        assert!(taken.is_ok(), "a removal needs no room");
    }
}

/// Whether a station on the link may have this address.
fn is_neighbor(address: Ipv4Addr, host: &Host) -> bool {
    let on_link = host.route(address).is_some_and(|route| route.gateway.is_none());
    let is_host = !address.is_unspecified() && !address.is_loopback() && host.classify(address) == Destination::Other;
    on_link && is_host
}

/// Whether that address is a route's gateway.
fn is_router(address: Ipv4Addr, host: &Host) -> bool {
    host.routes().iter().any(|route| route.gateway == Some(address))
}

#[cfg(test)]
mod tests;
