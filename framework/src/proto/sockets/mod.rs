//! UDP sockets: bind, connect, join and leave with the semantics of sockets, over the
//! demultiplexing table, the source filters and the ports. The application's consumers make the
//! calls; the UDP node reads the two resulting tables for each datagram. An address is shared by
//! the rules of the kernel's sockets: groups are shared freely, a unicast address has one owner
//! unless all agree ([`Sharing`]).
//!
//! Everything is allocated at construction. The capacities are the only limits; there is no limit
//! of 20 groups as in Linux.

mod peers;

use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::demux::{Cursor, Demux, DemuxCapacity, DemuxError, DemuxMatch, Flow, Sharing, Subscriber};
use super::hash::HashSeed;
use super::ids::{ConsumerId, FilterId, InterfaceId};
use super::ports::{self, PortError, PortRange, Ports, PortsCapacity};
use super::source_filter::{FilterError, FilterMode, Membership, ReceptionState, SourceFilterCapacity, SourceFilters};

/// The capacities of one worker's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketCapacity {
    /// Different local ends: groups or addresses with a port. By default 2,048.
    pub locals: usize,
    /// Bindings of all consumers together: one for each consumer at each local end and interface.
    /// By default 4,096.
    pub bindings: usize,
    /// Connected flows. By default 1,024.
    pub connections: usize,
    /// Sources in all filters together. By default 20,480.
    pub sources: usize,
}

impl Default for SocketCapacity {
    /// A feed handler of a large venue: 2,048 groups, two consumers each, ten sources to a group.
    /// About 1 MiB.
    fn default() -> Self {
        Self { locals: 2_048, bindings: 4_096, connections: 1_024, sources: 20_480 }
    }
}

/// The datagrams of a group that a consumer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The multicast address.
    pub group: Ipv4Addr,
    /// The UDP port.
    pub port: u16,
    /// The interface that they arrive on; [`InterfaceId::ANY`] for any.
    pub interface: InterfaceId,
}

impl Group {
    /// A group on any interface.
    pub const fn new(group: Ipv4Addr, port: u16) -> Self {
        Self { group, port, interface: InterfaceId::ANY }
    }
}

/// The sockets of one worker.
#[derive(Debug)]
pub struct UdpSockets {
    demux: Demux,
    filters: SourceFilters,
    /// The owners of unicast addresses and ports.
    ports: Ports,
    /// The bindings of each consumer: read at set-up only, so a list is enough.
    bindings: Vec<Binding>,
    bindings_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Binding {
    local: SocketAddrV4,
    consumer: ConsumerId,
    kind: BindingKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BindingKind {
    /// `peer` is the flow to which its consumer has narrowed it.
    Unicast {
        sharing: Sharing,
        peer: Option<Flow>,
    },
    /// `asked` is the filter that the UDP node checks, or [`FilterId::ANY`] as long as it accepts
    /// everything.
    Member {
        filter: FilterId,
        asked: FilterId,
        interface: InterfaceId,
    },
    Connected(SocketAddrV4),
}

impl UdpSockets {
    /// Allocates all its memory here.
    pub fn new(capacity: SocketCapacity, seed: HashSeed) -> Self {
        let demux = DemuxCapacity {
            locals: capacity.locals,
            connections: capacity.connections,
            shared_subscribers: capacity.bindings,
        };
        let filters = SourceFilterCapacity { memberships: capacity.bindings, sources: capacity.sources };
        let ports = PortsCapacity { bindings: capacity.bindings, connections: capacity.connections };
        Self {
            demux: Demux::new(demux, seed),
            filters: SourceFilters::new(filters, seed),
            ports: Ports::new(ports, PortRange::DYNAMIC, seed),
            bindings: Vec::with_capacity(capacity.bindings),
            bindings_max: capacity.bindings,
        }
    }

    /// The receivers of a datagram of this flow: 3 to 5 ns. [`UdpSockets::accepts`] checks whether
    /// a subscriber wants its source.
    #[inline]
    pub fn lookup(&self, flow: Flow) -> DemuxMatch {
        self.demux.lookup(flow)
    }

    /// The receivers of a datagram to a unicast address of ours. Of consumers that share the
    /// address one gets it; with [`Sharing::Shared`] all get it.
    pub fn lookup_unicast(&self, flow: Flow) -> DemuxMatch {
        self.demux.lookup_unicast(flow)
    }

    /// The only consumer of a destination, without a source filter, where the home bucket has it:
    /// the usual result, before any other check. `None` is inconclusive: call
    /// [`UdpSockets::lookup`].
    #[inline(always)]
    pub fn only_consumer(&self, destination: SocketAddrV4) -> Option<ConsumerId> {
        self.demux.only_consumer(destination)
    }

    /// The next of several subscribers.
    #[inline]
    pub fn next(&self, cursor: &mut Cursor) -> Option<Subscriber> {
        self.demux.next(cursor)
    }

    /// Whether a subscriber's filter accepts a source that arrived on `interface`: one compare for
    /// any-source.
    #[inline]
    pub fn accepts(&self, filter: FilterId, interface: InterfaceId, source: Ipv4Addr) -> bool {
        filter.is_any() || self.filters.accepts(filter, interface, source)
    }

    /// Binds a unicast address, or [`Ipv4Addr::UNSPECIFIED`] for all of the host's, to a consumer.
    /// Port 0 requests an ephemeral one (RFC 6056); the result names it. Groups are joined instead.
    pub fn bind(
        &mut self,
        consumer: ConsumerId,
        local: SocketAddrV4,
        sharing: Sharing,
    ) -> Result<SocketAddrV4, SocketError> {
        if local.ip().is_multicast() {
            return Err(SocketError::GroupIsJoined(*local.ip()));
        }
        self.check_room()?;
        let request = ports::Binding { local, owner: consumer, share: sharing != Sharing::Exclusive };
        let local = self.ports.bind(request)?;
        if let Err(error) = self.demux.bind(local, Subscriber { consumer, filter: FilterId::ANY }) {
            self.ports.release(local, consumer);
            return Err(error.into());
        }
        self.bindings.push(Binding { local, consumer, kind: BindingKind::Unicast { sharing, peer: None } });
        if sharing != Sharing::Exclusive {
            self.settle_sharing(local);
            if let Err(error) = self.settle_peers(local.port()) {
                self.unbind(consumer, local);
                return Err(error);
            }
        }
        Ok(local)
    }

    /// Releases an address of [`bind`](UdpSockets::bind). False if the consumer has not bound it.
    pub fn unbind(&mut self, consumer: ConsumerId, local: SocketAddrV4) -> bool {
        let place = self.place_of(consumer, local);
        place.inspect(|&place| self.remove(place)).is_some()
    }

    /// Gives a consumer all datagrams of one flow, before any consumer that bound its local end.
    /// Local port 0 requests an ephemeral one; the result names it.
    pub fn connect(&mut self, consumer: ConsumerId, flow: Flow) -> Result<Flow, SocketError> {
        self.check_room()?;
        let flow = self.claim_flow(consumer, flow)?;
        self.bindings.push(Binding { local: flow.local, consumer, kind: BindingKind::Connected(flow.remote) });
        Ok(flow)
    }

    /// Joins a group from any source. Any number of consumers may join the same group, and each
    /// consumer on several ports. One filter serves all ports on which a consumer joined a group: a
    /// blocked source is blocked on this port too, and the join is refused where the consumer
    /// accepts only certain sources on another port.
    pub fn join(&mut self, consumer: ConsumerId, group: Group) -> Result<(), SocketError> {
        let filter = self.filters.filter(membership(consumer, group));
        if filter.is_some_and(|filter| self.filters.is_include(filter)) {
            return Err(SocketError::Filter(FilterError::WrongMode));
        }
        self.join_with(consumer, group, |filters, membership| filters.join(membership))
    }

    /// Joins a group for one more source (source-specific multicast). The first call joins, later
    /// ones add. The sources are those of all ports on which the consumer joined the group.
    pub fn join_source(&mut self, consumer: ConsumerId, group: Group, source: Ipv4Addr) -> Result<(), SocketError> {
        self.join_with(consumer, group, |filters, membership| filters.join_source(membership, source))
    }

    /// Removes one source; removing the last one leaves the group on all ports.
    pub fn leave_source(&mut self, consumer: ConsumerId, group: Group, source: Ipv4Addr) -> Result<(), SocketError> {
        let membership = membership(consumer, group);
        let filter = self.filters.filter(membership).ok_or(FilterError::NotAMember)?;
        if self.filters.is_only_source(filter, source) {
            self.leave_all_ports(consumer, group);
            return Ok(());
        }
        self.filters.leave_source(membership, source)?;
        Ok(())
    }

    /// Replaces the consumer's whole filter of a group: its mode and all its sources. Joins the
    /// group where the consumer has not joined it yet. An empty include list leaves the group on
    /// all ports (RFC 3678 4.1.3).
    pub fn set_filter(
        &mut self,
        consumer: ConsumerId,
        group: Group,
        mode: FilterMode,
        sources: &[Ipv4Addr],
    ) -> Result<(), SocketError> {
        if mode == FilterMode::Include && sources.is_empty() {
            self.leave_all_ports(consumer, group);
            return Ok(());
        }
        self.join_with(consumer, group, |filters, membership| {
            filters.set(membership, mode, sources)?;
            filters.filter(membership).ok_or(FilterError::NotAMember)
        })
    }

    /// Blocks one source of a group that was joined from any source.
    pub fn block(&mut self, consumer: ConsumerId, group: Group, source: Ipv4Addr) -> Result<(), SocketError> {
        self.filters.block(membership(consumer, group), source)?;
        self.settle(membership(consumer, group));
        Ok(())
    }

    /// Unblocks a source.
    pub fn unblock(&mut self, consumer: ConsumerId, group: Group, source: Ipv4Addr) -> Result<(), SocketError> {
        self.filters.unblock(membership(consumer, group), source)?;
        self.settle(membership(consumer, group));
        Ok(())
    }

    /// Leaves a group on one port and interface. The filter goes with the last port that used it.
    pub fn leave(&mut self, consumer: ConsumerId, group: Group) -> Result<(), SocketError> {
        let local = SocketAddrV4::new(group.group, group.port);
        let place = self.bindings.iter().position(|other| other.is_member(consumer, local, group.interface));
        match place {
            Some(place) => {
                self.remove(place);
                Ok(())
            }
            None => Err(SocketError::Filter(FilterError::NotAMember)),
        }
    }

    fn leave_all_ports(&mut self, consumer: ConsumerId, group: Group) {
        let is_member = |binding: &Binding| {
            let local = SocketAddrV4::new(group.group, binding.local.port());
            binding.is_member(consumer, local, group.interface)
        };
        while let Some(place) = self.bindings.iter().position(is_member) {
            self.remove(place);
        }
    }

    /// Ends everything that a consumer has bound, connected and joined. Returns the number of ended
    /// items.
    pub fn close(&mut self, consumer: ConsumerId) -> usize {
        let before = self.bindings.len();
        while let Some(place) = self.bindings.iter().position(|binding| binding.consumer == consumer) {
            self.remove(place);
        }
        before - self.bindings.len()
    }

    /// The merged filter of all consumers for a group on an interface, which IGMP reports (RFC 3376
    /// 3.2).
    pub fn reception_state(&self, group: Ipv4Addr, interface: InterfaceId) -> Option<ReceptionState<'_>> {
        self.filters.reception_state(group, interface)
    }

    /// Increments with every join, leave and change of a filter. One load, which the IGMP node
    /// makes once per poll.
    #[inline]
    pub fn membership_changes(&self) -> u64 {
        self.filters.changes()
    }

    /// Entries for memberships: the bound of [`UdpSockets::changed_group_at`].
    pub fn membership_places(&self) -> usize {
        self.filters.places()
    }

    /// The group of the membership in an entry, where the group has changed after `since`, an
    /// earlier value of [`membership_changes`](UdpSockets::membership_changes). Groups that every
    /// consumer has left do not appear.
    pub fn changed_group_at(&self, place: usize, since: u64) -> Option<Ipv4Addr> {
        self.filters.changed_at(place, since)
    }

    /// Local ends that a consumer bound or joined.
    pub fn locals(&self) -> usize {
        self.demux.locals()
    }

    /// One filter serves all ports on which a consumer joined a group; each port is a separate
    /// local end.
    fn join_with(
        &mut self,
        consumer: ConsumerId,
        group: Group,
        join: impl FnOnce(&mut SourceFilters, Membership) -> Result<FilterId, FilterError>,
    ) -> Result<(), SocketError> {
        if group.port == 0 {
            return Err(SocketError::Demux(DemuxError::NoPort));
        }
        let membership = membership(consumer, group);
        let local = SocketAddrV4::new(group.group, group.port);
        let bound = self.bindings.iter().any(|other| other.is_member(consumer, local, group.interface));
        let known = self.filters.filter(membership);
        if bound {
            join(&mut self.filters, membership)?;
            self.settle(membership);
            return Ok(());
        }
        self.check_room()?;
        let filter = match known {
            Some(filter) => self.join_second_port(local, Subscriber { consumer, filter }, membership, join)?,
            None => {
                let filter = join(&mut self.filters, membership)?;
                if let Err(error) = self.demux.bind(local, Subscriber { consumer, filter }) {
                    self.filters.leave(membership)?;
                    return Err(error.into());
                }
                filter
            }
        };
        let kind = BindingKind::Member { filter, asked: filter, interface: group.interface };
        self.bindings.push(Binding { local, consumer, kind });
        self.settle(membership);
        Ok(())
    }

    /// The group was joined on another port: that is the same filter. The port comes first, because
    /// it can be undone, and a change of the filter cannot.
    fn join_second_port(
        &mut self,
        local: SocketAddrV4,
        subscriber: Subscriber,
        membership: Membership,
        join: impl FnOnce(&mut SourceFilters, Membership) -> Result<FilterId, FilterError>,
    ) -> Result<FilterId, SocketError> {
        self.demux.bind(local, subscriber)?;
        match join(&mut self.filters, membership) {
            Ok(_) | Err(FilterError::AlreadyAMember | FilterError::SourceListed) => Ok(subscriber.filter),
            Err(error) => {
                self.demux.unbind(local, subscriber);
                Err(error.into())
            }
        }
    }

    /// The filter that the UDP node has to check: none, while this one accepts everything.
    fn asked(&self, filter: FilterId) -> FilterId {
        if self.filters.accepts_all(filter) { FilterId::ANY } else { filter }
    }

    /// After a filter has changed: the UDP node starts or stops checking it, on all ports of the
    /// membership.
    fn settle(&mut self, membership: Membership) {
        let Some(changed) = self.filters.filter(membership) else { return };
        let to = self.asked(changed);
        for Binding { local, consumer, kind } in &mut self.bindings {
            if let BindingKind::Member { filter, asked, .. } = kind
                && *filter == changed
            {
                let found = self.demux.refilter(*local, Subscriber { consumer: *consumer, filter: *asked }, to);
                assert!(found, "a member's binding is in the table");
                *asked = to;
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let Binding { local, consumer, kind } = self.bindings.swap_remove(place);
        match kind {
            BindingKind::Unicast { sharing, peer } => {
                self.demux.unbind(local, Subscriber { consumer, filter: FilterId::ANY });
                self.ports.release(local, consumer);
                if let Some(connected) = peer.and_then(|flow| self.connected(consumer, flow)) {
                    self.remove(connected);
                }
                if sharing != Sharing::Exclusive {
                    self.settle_sharing(local);
                }
            }
            BindingKind::Connected(remote) => {
                self.hand_flow_on(consumer, Flow { local, remote });
            }
            BindingKind::Member { filter, asked, interface } => {
                self.demux.unbind(local, Subscriber { consumer, filter: asked });
                let other_port = self
                    .bindings
                    .iter()
                    .any(|other| matches!(other.kind, BindingKind::Member { filter: theirs, .. } if theirs == filter));
                if !other_port {
                    let gone = self.filters.leave(Membership { consumer, group: *local.ip(), interface });
                    assert!(gone.is_ok(), "a member's binding has a filter");
                }
            }
        }
    }

    /// Tells the table who gets the datagrams of an address: all where one of its consumers wants
    /// that, one by the flow's hash where all agree to it, otherwise the one that bound it last.
    fn settle_sharing(&mut self, local: SocketAddrV4) {
        let at_local = self.bindings.iter().filter(|binding| binding.local == local);
        let kinds = at_local.filter_map(|binding| match binding.kind {
            BindingKind::Unicast { sharing, .. } => Some(sharing),
            BindingKind::Member { .. } | BindingKind::Connected(_) => None,
        });
        let together = kinds.reduce(|one, other| match (one, other) {
            (Sharing::Balanced, Sharing::Balanced) => Sharing::Balanced,
            (Sharing::Shared, _) | (_, Sharing::Shared) => Sharing::Shared,
            _ => Sharing::Latest,
        });
        if let Some(sharing) = together {
            self.demux.share(local, sharing);
        }
    }

    fn check_room(&self) -> Result<(), SocketError> {
        if self.bindings.len() < self.bindings_max { Ok(()) } else { Err(SocketError::Demux(DemuxError::Full)) }
    }
}

impl Binding {
    fn is_member(&self, consumer: ConsumerId, local: SocketAddrV4, interface: InterfaceId) -> bool {
        let same_interface = matches!(self.kind, BindingKind::Member { interface: theirs, .. } if theirs == interface);
        self.consumer == consumer && self.local == local && same_interface
    }
}

fn membership(consumer: ConsumerId, group: Group) -> Membership {
    Membership { consumer, group: group.group, interface: group.interface }
}

/// Why a socket call was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketError {
    /// A group cannot be bound as an address.
    GroupIsJoined(Ipv4Addr),
    /// Another consumer has the address or the flow exclusively, or no port is free.
    Port(PortError),
    /// The table of flows refused.
    Demux(DemuxError),
    /// The source filters refused.
    Filter(FilterError),
}

impl From<DemuxError> for SocketError {
    fn from(error: DemuxError) -> Self {
        Self::Demux(error)
    }
}

impl From<PortError> for SocketError {
    fn from(error: PortError) -> Self {
        Self::Port(error)
    }
}

impl From<FilterError> for SocketError {
    fn from(error: FilterError) -> Self {
        Self::Filter(error)
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupIsJoined(group) => write!(f, "{group} is a multicast group: join it instead of binding it"),
            Self::Port(error) => error.fmt(f),
            Self::Demux(error) => error.fmt(f),
            Self::Filter(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SocketError {}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
    const ANNE: ConsumerId = ConsumerId(1);
    const BERT: ConsumerId = ConsumerId(2);
    const CARL: ConsumerId = ConsumerId(3);
    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 8);

    fn sockets(bindings: usize) -> UdpSockets {
        let capacity = SocketCapacity { locals: bindings, bindings, connections: 4, sources: 64 };
        UdpSockets::new(capacity, HashSeed::new(1, 2))
    }

    /// The consumers that get a datagram from `source` to `local`.
    fn receivers(sockets: &UdpSockets, source: Ipv4Addr, local: SocketAddrV4) -> Vec<u32> {
        let flow = Flow { local, remote: SocketAddrV4::new(source, 7_000) };
        let mut subscribers = Vec::new();
        match sockets.lookup(flow) {
            DemuxMatch::None => (),
            DemuxMatch::One(subscriber) => subscribers.push(subscriber),
            DemuxMatch::Many(mut cursor) => subscribers.extend(core::iter::from_fn(|| sockets.next(&mut cursor))),
        }
        subscribers.retain(|subscriber| sockets.accepts(subscriber.filter, InterfaceId(0), source));
        subscribers.iter().map(|subscriber| subscriber.consumer.0).collect()
    }

    fn at(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(GROUP, port)
    }

    /// The consumer of a datagram from a port of the sender's to a unicast address.
    fn receiver(sockets: &UdpSockets, port: u16) -> Option<u32> {
        let (local, remote) = (SocketAddrV4::new(OURS, 1), SocketAddrV4::new(SENDER, port));
        match sockets.lookup_unicast(Flow { local, remote }) {
            DemuxMatch::One(subscriber) => Some(subscriber.consumer.0),
            DemuxMatch::None | DemuxMatch::Many(_) => None,
        }
    }

    #[test]
    fn consumer_of_one_peer_leaves_the_other_datagrams_to_those_that_share_its_address() {
        let peer = |port| Flow { local: SocketAddrV4::new(OURS, 1), remote: SocketAddrV4::new(SENDER, port) };
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 1);
        for sharing in [Sharing::Latest, Sharing::Balanced] {
            let mut sockets = sockets(8);
            sockets.bind(BERT, any, sharing).unwrap();
            sockets.narrow(BERT, any, peer(7)).unwrap();
            let who = |sockets: &UdpSockets| [7, 8, 9].map(|port| receiver(sockets, port));
            assert_eq!(who(&sockets), [Some(2); 3], "nobody shares it yet");
            sockets.bind(ANNE, any, sharing).unwrap();
            assert_eq!(who(&sockets), [Some(2), Some(1), Some(1)]);
            sockets.narrow(BERT, any, peer(8)).unwrap();
            assert_eq!(who(&sockets), [Some(1), Some(2), Some(1)]);
            sockets.bind(CARL, any, sharing).unwrap();
            sockets.narrow(CARL, any, peer(8)).unwrap();
            assert_eq!(who(&sockets), [Some(1), Some(3), Some(1)], "the last to connect is first");
            sockets.close(CARL);
            assert_eq!(who(&sockets), [Some(1), Some(2), Some(1)]);
            sockets.close(ANNE);
            assert_eq!(who(&sockets), [None, Some(2), None]);
            sockets.widen(BERT, any).unwrap();
            assert_eq!(who(&sockets), [Some(2); 3]);
            assert!(sockets.unbind(BERT, any));
            assert_eq!((who(&sockets), sockets.locals(), sockets.demux.connections()), ([None; 3], 0, 0));
        }
    }

    #[test]
    fn group_reaches_everybody_who_joined_it() {
        let mut sockets = sockets(8);
        sockets.join(ANNE, Group::new(GROUP, 1)).unwrap();
        sockets.join_source(BERT, Group::new(GROUP, 1), SENDER).unwrap();
        assert_eq!(receivers(&sockets, SENDER, at(1)), [1, 2]);
        assert_eq!(receivers(&sockets, OTHER, at(1)), [1]);
        assert_eq!(receivers(&sockets, SENDER, at(2)), []);
    }

    #[test]
    fn blocked_source_is_refused_until_unblocked() {
        let mut sockets = sockets(8);
        let group = Group::new(GROUP, 1);
        sockets.join(ANNE, group).unwrap();
        sockets.block(ANNE, group, SENDER).unwrap();
        assert_eq!(receivers(&sockets, SENDER, at(1)), []);
        assert_eq!(receivers(&sockets, OTHER, at(1)), [1]);
        sockets.unblock(ANNE, group, SENDER).unwrap();
        assert_eq!(receivers(&sockets, SENDER, at(1)), [1]);
    }

    #[test]
    fn any_source_join_asks_no_filter_until_a_source_is_blocked() {
        let mut sockets = sockets(8);
        let (group, other_port) = (Group::new(GROUP, 1), Group::new(GROUP, 2));
        let asked = |sockets: &UdpSockets, port| {
            let flow = Flow { local: at(port), remote: SocketAddrV4::new(SENDER, 7_000) };
            let DemuxMatch::One(subscriber) = sockets.lookup(flow) else { panic!("one consumer joined") };
            !subscriber.filter.is_any()
        };
        sockets.join(ANNE, group).unwrap();
        sockets.block(ANNE, group, SENDER).unwrap();
        // The second port comes while the filter is checked, and both follow it from then on.
        sockets.join(ANNE, other_port).unwrap();
        assert!(asked(&sockets, 1) && asked(&sockets, 2));
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, SENDER, at(2))), (vec![], vec![]));
        sockets.unblock(ANNE, group, SENDER).unwrap();
        assert!(!asked(&sockets, 1) && !asked(&sockets, 2));
        sockets.set_filter(ANNE, group, FilterMode::Include, &[OTHER]).unwrap();
        assert!(asked(&sockets, 1) && asked(&sockets, 2));
        assert_eq!((receivers(&sockets, SENDER, at(2)), receivers(&sockets, OTHER, at(2))), (vec![], vec![1]));
        let on_one_interface = Group { interface: InterfaceId(1), ..Group::new(GROUP, 3) };
        sockets.join(BERT, on_one_interface).unwrap();
        assert!(asked(&sockets, 3));
    }

    #[test]
    fn fan_follows_a_changed_filter() {
        let mut sockets = sockets(8);
        let group = Group::new(GROUP, 1);
        sockets.join(ANNE, group).unwrap();
        sockets.join(BERT, group).unwrap();
        sockets.block(BERT, group, SENDER).unwrap();
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, OTHER, at(1))), (vec![1], vec![1, 2]));
        assert_eq!((sockets.close(BERT), sockets.close(ANNE), sockets.locals()), (1, 1, 0));
    }

    #[test]
    fn filter_is_set_whole_and_replaced_whole() {
        let mut sockets = sockets(8);
        let group = Group::new(GROUP, 1);
        sockets.set_filter(ANNE, group, FilterMode::Include, &[SENDER]).unwrap();
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, OTHER, at(1))), (vec![1], vec![]));
        sockets.set_filter(ANNE, group, FilterMode::Exclude, &[SENDER]).unwrap();
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, OTHER, at(1))), (vec![], vec![1]));
    }

    #[test]
    fn including_nobody_leaves_the_group_on_all_ports() {
        let mut sockets = sockets(8);
        for port in [1, 2] {
            sockets.join_source(ANNE, Group::new(GROUP, port), SENDER).unwrap();
        }
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, SENDER, at(2))), (vec![1], vec![1]));
        sockets.set_filter(ANNE, Group::new(GROUP, 1), FilterMode::Include, &[]).unwrap();
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, SENDER, at(2))), (vec![], vec![]));
        assert_eq!((sockets.locals(), sockets.close(ANNE)), (0, 0));
    }

    #[test]
    fn second_port_without_room_leaves_the_filter_as_it_was() {
        let capacity = SocketCapacity { locals: 1, bindings: 8, connections: 1, sources: 8 };
        let mut sockets = UdpSockets::new(capacity, HashSeed::new(1, 2));
        sockets.join_source(ANNE, Group::new(GROUP, 1), SENDER).unwrap();
        let refused = sockets.join_source(ANNE, Group::new(GROUP, 2), OTHER);
        assert_eq!(refused, Err(SocketError::Demux(DemuxError::Full)));
        assert_eq!(receivers(&sockets, OTHER, at(1)), []);
    }

    #[test]
    fn one_consumer_joins_a_group_on_several_ports() {
        let mut sockets = sockets(8);
        sockets.join(ANNE, Group::new(GROUP, 1)).unwrap();
        sockets.join(ANNE, Group::new(GROUP, 2)).unwrap();
        sockets.leave(ANNE, Group::new(GROUP, 1)).unwrap();
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, SENDER, at(2))), (vec![], vec![1]));
        sockets.leave(ANNE, Group::new(GROUP, 2)).unwrap();
        assert!(sockets.reception_state(GROUP, InterfaceId::ANY).is_none());
    }

    #[test]
    fn any_source_on_a_second_port_is_refused_where_the_first_has_sources() {
        let mut sockets = sockets(8);
        sockets.join_source(ANNE, Group::new(GROUP, 1), SENDER).unwrap();
        let refused = Err(SocketError::Filter(FilterError::WrongMode));
        assert_eq!(sockets.join(ANNE, Group::new(GROUP, 2)), refused);
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, SENDER, at(2))), (vec![1], vec![]));
    }

    #[test]
    fn last_source_that_is_left_leaves_the_group() {
        let mut sockets = sockets(8);
        let group = Group::new(GROUP, 1);
        sockets.join_source(ANNE, group, SENDER).unwrap();
        sockets.join_source(ANNE, group, OTHER).unwrap();
        sockets.leave_source(ANNE, group, SENDER).unwrap();
        assert_eq!((receivers(&sockets, SENDER, at(1)), receivers(&sockets, OTHER, at(1))), (vec![], vec![1]));
        sockets.leave_source(ANNE, group, OTHER).unwrap();
        assert_eq!((sockets.locals(), sockets.close(ANNE)), (0, 0));
        assert_eq!(sockets.leave_source(ANNE, group, OTHER), Err(SocketError::Filter(FilterError::NotAMember)));
    }

    #[test]
    fn second_join_and_leave_without_join_are_refused() {
        let mut sockets = sockets(8);
        let group = Group::new(GROUP, 1);
        sockets.join(ANNE, group).unwrap();
        assert_eq!(sockets.join(ANNE, group), Err(SocketError::Filter(FilterError::AlreadyAMember)));
        assert_eq!(sockets.leave(BERT, group), Err(SocketError::Filter(FilterError::NotAMember)));
    }

    #[test]
    fn unicast_address_has_one_owner_unless_all_share() {
        let mut sockets = sockets(8);
        let local = SocketAddrV4::new(SENDER, 9);
        sockets.bind(ANNE, local, Sharing::Shared).unwrap();
        assert_eq!(
            sockets.bind(BERT, local, Sharing::Exclusive),
            Err(SocketError::Port(PortError::AddressInUse { owner: ANNE }))
        );
        sockets.bind(BERT, local, Sharing::Shared).unwrap();
        assert_eq!(receivers(&sockets, OTHER, local), [1, 2]);
        assert_eq!(sockets.bind(ANNE, at(9), Sharing::Shared), Err(SocketError::GroupIsJoined(GROUP)));
    }

    #[test]
    fn one_of_those_that_share_an_address_gets_a_datagram_where_they_agree() {
        let mut sockets = sockets(8);
        let local = SocketAddrV4::new(SENDER, 9);
        let one = |sockets: &UdpSockets, port| match sockets
            .lookup_unicast(Flow { local, remote: SocketAddrV4::new(OTHER, port) })
        {
            DemuxMatch::One(subscriber) => Some(subscriber.consumer),
            DemuxMatch::None | DemuxMatch::Many(_) => None,
        };
        sockets.bind(ANNE, local, Sharing::Balanced).unwrap();
        sockets.bind(BERT, local, Sharing::Balanced).unwrap();
        let chosen: Vec<_> = (1_000..1_100).map(|port| one(&sockets, port).unwrap()).collect();
        let of_anne = chosen.iter().filter(|consumer| **consumer == ANNE).count();
        assert!((20..=80).contains(&of_anne), "{of_anne} of 100 flows");
        assert!((1_000..1_100).map(|port| one(&sockets, port).unwrap()).eq(chosen), "a flow stays where it is");

        // A socket that does not balance gets all datagrams, because it bound last; after it the
        // newest of the others.
        sockets.bind(CARL, local, Sharing::Latest).unwrap();
        assert!((1_000..1_100).all(|port| one(&sockets, port) == Some(CARL)));
        assert!(sockets.unbind(CARL, local));
        assert!((1_000..1_100).any(|port| one(&sockets, port) == Some(ANNE)));
        assert_eq!(receivers(&sockets, OTHER, local), [1, 2], "a broadcast reaches all");
        sockets.bind(CARL, local, Sharing::Shared).unwrap();
        assert_eq!(one(&sockets, 1_000), None, "all get it");
    }

    #[test]
    fn unbound_address_is_free_and_the_other_owners_keep_theirs() {
        let mut sockets = sockets(8);
        let local = SocketAddrV4::new(SENDER, 9);
        sockets.bind(ANNE, local, Sharing::Shared).unwrap();
        sockets.bind(BERT, local, Sharing::Shared).unwrap();
        assert!(sockets.unbind(ANNE, local));
        assert!(!sockets.unbind(ANNE, local), "it is not bound any more");
        assert_eq!(receivers(&sockets, OTHER, local), [2]);
        assert!(sockets.unbind(BERT, local));
        sockets.bind(ANNE, local, Sharing::Exclusive).unwrap();
    }

    #[test]
    fn port_zero_is_answered_with_an_ephemeral_one() {
        let mut sockets = sockets(8);
        let local = sockets.bind(ANNE, SocketAddrV4::new(SENDER, 0), Sharing::Exclusive).unwrap();
        assert!(local.port() >= 49_152);
        assert_eq!(receivers(&sockets, OTHER, local), [1]);
        let flow = Flow { local: SocketAddrV4::new(SENDER, 0), remote: SocketAddrV4::new(OTHER, 7_000) };
        let flow = sockets.connect(BERT, flow).unwrap();
        assert_ne!(flow.local.port(), local.port());
        assert_eq!(receivers(&sockets, OTHER, flow.local), [2]);
    }

    #[test]
    fn connected_flow_comes_before_the_bound_address() {
        let mut sockets = sockets(8);
        let local = SocketAddrV4::new(SENDER, 9);
        sockets.bind(ANNE, local, Sharing::Exclusive).unwrap();
        sockets.connect(BERT, Flow { local, remote: SocketAddrV4::new(OTHER, 7_000) }).unwrap();
        assert_eq!(receivers(&sockets, OTHER, local), [2]);
        assert_eq!(receivers(&sockets, SENDER, local), [1]);
    }

    #[test]
    fn closed_consumer_gets_nothing_and_leaves_room() {
        let mut sockets = sockets(4);
        for _ in 0..100 {
            sockets.join(ANNE, Group::new(GROUP, 1)).unwrap();
            sockets.bind(ANNE, SocketAddrV4::new(SENDER, 2), Sharing::Exclusive).unwrap();
            let flow = Flow { local: SocketAddrV4::new(SENDER, 3), remote: SocketAddrV4::new(OTHER, 4) };
            sockets.connect(ANNE, flow).unwrap();
            assert_eq!(sockets.close(ANNE), 3);
        }
        assert_eq!(sockets.locals(), 0);
    }

    #[test]
    fn full_tables_refuse_and_change_nothing() {
        let mut sockets = sockets(1);
        sockets.join(ANNE, Group::new(GROUP, 1)).unwrap();
        assert_eq!(sockets.join(ANNE, Group::new(OTHER, 1)), Err(SocketError::Demux(DemuxError::Full)));
        assert_eq!(sockets.join(BERT, Group::new(GROUP, 1)), Err(SocketError::Demux(DemuxError::Full)));
        assert!(sockets.reception_state(OTHER, InterfaceId::ANY).is_none());
    }
}
