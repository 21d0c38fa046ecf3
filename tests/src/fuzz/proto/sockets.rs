//! The tables behind the sockets compared with models: lists that are searched from end to end. The
//! input provides operations; after each of them every query gives the model's answer. An operation
//! that a full table refuses must change nothing.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::proto::{
    ConsumerId, Cursor, DemuxError, DemuxMatch, FilterError, FilterId, FilterMode, Flow, Group, HashSeed, InterfaceId,
    PortError, PortRange, Sharing, SocketCapacity, Subscriber, UdpSockets,
};
use wirepath::testing::proto::{
    Binding, Demux, DemuxCapacity, Membership, Ports, PortsCapacity, SourceFilterCapacity, SourceFilters,
};

use crate::fuzz::Input;

const SEED: HashSeed = HashSeed::new(3, 5);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ALSO_OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GROUPS: [Ipv4Addr; 2] = [Ipv4Addr::new(239, 0, 0, 1), Ipv4Addr::new(239, 128, 0, 1)];
const ADDRESSES: [Ipv4Addr; 4] = [Ipv4Addr::UNSPECIFIED, OURS, ALSO_OURS, GROUPS[0]];
const SOURCES: [Ipv4Addr; 4] =
    [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(10, 0, 0, 8), Ipv4Addr::BROADCAST];
const INTERFACES: [InterfaceId; 3] = [InterfaceId(0), InterfaceId(1), InterfaceId::ANY];

/// The demultiplexer, with cursors that live through changes.
pub(in crate::fuzz) fn demux(data: &[u8]) {
    let mut input = Input::new(data);
    let roomy = DemuxCapacity { locals: 64, connections: 64, shared_subscribers: 256 };
    let tight = DemuxCapacity { locals: 3, connections: 2, shared_subscribers: 4 };
    let is_roomy = input.u8() & 1 == 0;
    let mut pair = DemuxPair::new(if is_roomy { roomy } else { tight });
    while !input.is_empty() {
        let refused = pair.step(&mut input);
        assert!(!(is_roomy && refused == Some(DemuxError::Full)), "there is room for everything here");
        pair.compare();
    }
}

struct DemuxPair {
    demux: Demux,
    /// Subscribers by local end, in the order of their calls, each with a separate number.
    subscribers: Vec<(SocketAddrV4, Subscriber, u64)>,
    connections: Vec<(Flow, ConsumerId)>,
    next_number: u64,
    /// An open iteration, and the numbers of the subscribers that it may still return.
    walk: Option<(Cursor, Vec<u64>)>,
}

impl DemuxPair {
    fn new(capacity: DemuxCapacity) -> Self {
        let demux = Demux::new(capacity, SEED);
        Self { demux, subscribers: Vec::new(), connections: Vec::new(), next_number: 0, walk: None }
    }

    fn step(&mut self, input: &mut Input<'_>) -> Option<DemuxError> {
        let (kind, flow, consumer) = (input.below(8), flow(input), ConsumerId(input.below(3).into()));
        let subscriber = Subscriber { consumer, filter: FilterId::ANY };
        match kind {
            0..=2 => return self.bind(flow.local, subscriber),
            3 => {
                let wanted = (flow.local, subscriber);
                let place = self.subscribers.iter().position(|&(local, subscriber, _)| (local, subscriber) == wanted);
                assert_eq!(self.demux.unbind(flow.local, subscriber), place.is_some());
                place.map(|place| self.subscribers.remove(place));
            }
            4 => return self.connect(flow, consumer),
            5 => {
                let place = self.connections.iter().position(|(connected, _)| *connected == flow);
                let owner = place.map(|place| self.connections.remove(place).1);
                assert_eq!(self.demux.disconnect(flow), owner);
            }
            6 => {
                if let DemuxMatch::Many(cursor) = self.demux.lookup(flow) {
                    let expected = self.expected(flow).1;
                    assert!(cursor.len() == expected.len() && !cursor.is_empty());
                    self.walk = Some((cursor, expected));
                }
            }
            _ => self.walk_on(),
        }
        None
    }

    fn bind(&mut self, local: SocketAddrV4, subscriber: Subscriber) -> Option<DemuxError> {
        let bound = self.subscribers.iter().any(|&(other, twin, _)| (other, twin) == (local, subscriber));
        match self.demux.bind(local, subscriber) {
            Ok(()) => {
                assert!(!bound && local.port() != 0);
                self.subscribers.push((local, subscriber, self.next_number));
                self.next_number += 1;
                return None;
            }
            Err(DemuxError::Duplicate) => assert!(bound),
            Err(DemuxError::NoPort) => assert_eq!(local.port(), 0),
            Err(DemuxError::Full) => assert!(!bound),
            Err(error) => panic!("a bind is refused with {error}"),
        }
        Some(DemuxError::Full).filter(|_| !bound && local.port() != 0)
    }

    fn connect(&mut self, flow: Flow, consumer: ConsumerId) -> Option<DemuxError> {
        let connected = self.connections.iter().any(|(other, _)| *other == flow);
        let address = flow.local.ip();
        match self.demux.connect(flow, consumer) {
            Ok(()) => {
                assert!(!connected);
                self.connections.push((flow, consumer));
            }
            Err(DemuxError::Duplicate) => assert!(connected),
            Err(DemuxError::NoPort) => assert_eq!(flow.local.port(), 0),
            Err(DemuxError::LocalNotUnicast) => assert!(address.is_unspecified() || address.is_multicast()),
            Err(DemuxError::Full) => return Some(DemuxError::Full),
        }
        None
    }

    /// A subscriber that has unsubscribed since gets nothing more, one that has subscribed since
    /// gets nothing yet, and none gets anything twice.
    fn walk_on(&mut self) {
        let Some((cursor, expected)) = &mut self.walk else { return };
        let place = expected.iter().position(|number| self.subscribers.iter().any(|(_, _, other)| other == number));
        let next = place.map(|place| {
            let number = expected[place];
            expected.drain(..=place);
            self.subscribers.iter().find(|(_, _, other)| *other == number).expect("it was found").1
        });
        assert_eq!(self.demux.next(cursor), next);
        if next.is_none() {
            self.walk = None;
        }
    }

    /// Whom the model gives a datagram to: one connected consumer, or subscribers by number.
    fn expected(&self, flow: Flow) -> (Option<ConsumerId>, Vec<u64>) {
        let connected = self.connections.iter().find(|(other, _)| *other == flow);
        if let Some((_, consumer)) = connected {
            return (Some(*consumer), Vec::new());
        }
        let at =
            |local| self.subscribers.iter().filter(move |(other, _, _)| *other == local).map(|&(_, _, number)| number);
        let named: Vec<u64> = at(flow.local).collect();
        let is_unicast = !flow.local.ip().is_multicast();
        if !named.is_empty() || !is_unicast {
            return (None, named);
        }
        (None, at(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, flow.local.port())).collect())
    }

    fn compare(&self) {
        assert_eq!(self.demux.connections(), self.connections.len());
        for flow in flows() {
            let (connected, numbers) = self.expected(flow);
            let subscriber =
                |number: &u64| self.subscribers.iter().find(|(_, _, other)| other == number).map(|one| one.1);
            let mut expected: Vec<_> = numbers.iter().filter_map(subscriber).collect();
            expected.extend(connected.map(|consumer| Subscriber { consumer, filter: FilterId::ANY }));
            let found = match self.demux.lookup(flow) {
                DemuxMatch::None => Vec::new(),
                DemuxMatch::One(subscriber) => vec![subscriber],
                DemuxMatch::Many(mut cursor) => std::iter::from_fn(|| self.demux.next(&mut cursor)).collect(),
            };
            assert_eq!(found, expected, "{flow:?}");
        }
    }
}

fn flow(input: &mut Input<'_>) -> Flow {
    let local = SocketAddrV4::new(input.pick(&ADDRESSES), input.below(3).into());
    let remote = SocketAddrV4::new(input.pick(&SOURCES), u16::from(input.below(2)) * 1_000);
    Flow { local, remote }
}

fn flows() -> impl Iterator<Item = Flow> {
    let locals = ADDRESSES.into_iter().flat_map(|address| (0..3).map(move |port| SocketAddrV4::new(address, port)));
    locals.flat_map(|local| {
        let remotes = SOURCES.into_iter().flat_map(|address| [0, 1_000].map(|port| SocketAddrV4::new(address, port)));
        remotes.map(move |remote| Flow { local, remote })
    })
}

/// Source filters and their merge.
pub(in crate::fuzz) fn source_filters(data: &[u8]) {
    let mut input = Input::new(data);
    let roomy = SourceFilterCapacity { memberships: 64, sources: 256 };
    let tight = SourceFilterCapacity { memberships: 3, sources: 4 };
    let is_roomy = input.u8() & 1 == 0;
    let filters = SourceFilters::new(if is_roomy { roomy } else { tight }, SEED);
    let mut pair = FilterPair { filters, members: Vec::new() };
    while !input.is_empty() {
        let refused = pair.step(&mut input).err();
        let full = matches!(refused, Some(FilterError::MembershipsFull | FilterError::SourcesFull));
        assert!(!(is_roomy && full), "there is room for everything here");
        pair.compare();
    }
}

#[derive(Clone, Debug)]
struct Member {
    membership: Membership,
    mode: FilterMode,
    sources: BTreeSet<Ipv4Addr>,
}

impl Member {
    fn accepts(&self, interface: InterfaceId, source: Ipv4Addr) -> bool {
        let joined = self.membership.interface;
        let heard = joined == interface || joined == InterfaceId::ANY;
        heard && self.sources.contains(&source) == (self.mode == FilterMode::Include)
    }
}

struct FilterPair {
    filters: SourceFilters,
    members: Vec<Member>,
}

impl FilterPair {
    fn step(&mut self, input: &mut Input<'_>) -> Result<(), FilterError> {
        let membership = Membership {
            consumer: ConsumerId(input.below(2).into()),
            group: input.pick(&[GROUPS[0], GROUPS[1], OURS]),
            interface: input.pick(&INTERFACES),
        };
        let (kind, source) = (input.below(7), input.pick(&SOURCES));
        let place = self.members.iter().position(|member| member.membership == membership);
        let mode_of = |place: usize| self.members[place].mode;
        match kind {
            0 => {
                let joined = self.filters.join(membership).map(drop);
                self.check_join(membership, joined)?;
                self.members.push(Member { membership, mode: FilterMode::Exclude, sources: BTreeSet::new() });
            }
            1 => {
                let joined = self.filters.join_source(membership, source).map(drop);
                match place {
                    None => {
                        self.check_join(membership, joined)?;
                        let sources = BTreeSet::from([source]);
                        self.members.push(Member { membership, mode: FilterMode::Include, sources });
                    }
                    Some(place) => self.check_list(place, FilterMode::Include, source, joined)?,
                }
            }
            2 => {
                let lasts = self.filters.leave_source(membership, source)?;
                let place = place.expect("only a member leaves a source");
                assert_eq!(mode_of(place), FilterMode::Include);
                assert!(self.members[place].sources.remove(&source));
                assert_eq!(lasts, !self.members[place].sources.is_empty());
                if !lasts {
                    self.members.remove(place);
                }
            }
            3 => {
                let blocked = self.filters.block(membership, source);
                match place {
                    None => assert_eq!(blocked, Err(FilterError::NotAMember)),
                    Some(place) => self.check_list(place, FilterMode::Exclude, source, blocked)?,
                }
            }
            4 => {
                self.filters.unblock(membership, source)?;
                let place = place.expect("only a member unblocks");
                assert_eq!(mode_of(place), FilterMode::Exclude);
                assert!(self.members[place].sources.remove(&source));
            }
            5 => self.set(membership, place, input)?,
            _ => {
                let left = self.filters.leave(membership);
                assert_eq!(left.is_ok(), place.is_some());
                place.map(|place| self.members.remove(place));
            }
        }
        Ok(())
    }

    fn set(&mut self, membership: Membership, place: Option<usize>, input: &mut Input<'_>) -> Result<(), FilterError> {
        let mode = input.pick(&[FilterMode::Include, FilterMode::Exclude]);
        let sources: Vec<_> = (0..input.below(5)).map(|_| input.pick(&SOURCES)).collect();
        let set = self.filters.set(membership, mode, &sources);
        let filter = match place {
            Some(_) => set?,
            None if mode == FilterMode::Include && sources.is_empty() => set?,
            None => {
                self.check_join(membership, set.map(drop))?;
                set?
            }
        };
        let leaves = mode == FilterMode::Include && sources.is_empty();
        assert_eq!(filter.is_none(), leaves);
        if let Some(place) = place {
            self.members.remove(place);
        }
        if !leaves {
            self.members.push(Member { membership, mode, sources: sources.into_iter().collect() });
        }
        Ok(())
    }

    /// A new membership is refused exactly where it is none, or overlaps one of the consumer's own.
    fn check_join(&self, membership: Membership, joined: Result<(), FilterError>) -> Result<(), FilterError> {
        let any = |interface| interface == InterfaceId::ANY;
        let overlaps = self.members.iter().map(|member| member.membership).any(|other| {
            let same_place =
                other.interface == membership.interface || any(other.interface) || any(membership.interface);
            (other.consumer, other.group) == (membership.consumer, membership.group) && same_place
        });
        let refusal = if !membership.group.is_multicast() {
            Some(FilterError::NotAGroup)
        } else {
            overlaps.then_some(FilterError::AlreadyAMember)
        };
        if !matches!(joined, Err(FilterError::MembershipsFull | FilterError::SourcesFull)) {
            assert_eq!(joined.err(), refusal);
        }
        joined
    }

    /// A source for a list is refused exactly where the list is the other kind or has it.
    fn check_list(
        &mut self,
        place: usize,
        mode: FilterMode,
        source: Ipv4Addr,
        listed: Result<(), FilterError>,
    ) -> Result<(), FilterError> {
        let member = &mut self.members[place];
        let refusal = if member.mode != mode {
            Some(FilterError::WrongMode)
        } else {
            member.sources.contains(&source).then_some(FilterError::SourceListed)
        };
        if listed != Err(FilterError::SourcesFull) {
            assert_eq!(listed.err(), refusal);
        }
        listed?;
        member.sources.insert(source);
        Ok(())
    }

    fn compare(&self) {
        assert_eq!(self.filters.memberships(), self.members.len());
        let listed: usize = self.members.iter().map(|member| member.sources.len()).sum();
        assert_eq!(self.filters.sources(), listed);
        for member in &self.members {
            let filter = self.filters.filter(member.membership).expect("a member has a filter");
            for (interface, source) in
                [InterfaceId(0), InterfaceId(1)].into_iter().flat_map(|i| SOURCES.map(|s| (i, s)))
            {
                let accepts = self.filters.accepts(filter, interface, source);
                assert_eq!(accepts, member.accepts(interface, source), "{member:?} on {interface:?} from {source}");
            }
        }
        for (group, interface) in GROUPS.into_iter().flat_map(|group| [0, 1].map(|idx| (group, InterfaceId(idx)))) {
            self.compare_merged(group, interface);
        }
    }

    /// RFC 3376 3.2: the interface receives exactly the sources that at least one of its members
    /// wants.
    fn compare_merged(&self, group: Ipv4Addr, interface: InterfaceId) {
        let here = |member: &&Member| {
            let Membership { group: joined, interface: place, .. } = member.membership;
            joined == group && (place == interface || place == InterfaceId::ANY)
        };
        let Some(merged) = self.filters.reception_state(group, interface) else {
            return assert_eq!(self.members.iter().filter(here).count(), 0);
        };
        let excludes = self.members.iter().filter(here).any(|member| member.mode == FilterMode::Exclude);
        assert_eq!(merged.mode() == FilterMode::Exclude, excludes);
        let sources: Vec<_> = merged.sources().collect();
        let distinct: BTreeSet<_> = sources.iter().copied().collect();
        assert_eq!(distinct.len(), sources.len(), "a source is named twice");
        for source in SOURCES {
            let wanted = self.members.iter().filter(here).any(|member| member.accepts(interface, source));
            assert_eq!(distinct.contains(&source) == (merged.mode() == FilterMode::Include), wanted, "{source}");
        }
    }
}

/// The sockets as a whole: a refused operation has changed nothing, no consumer receives a group
/// that it did not join on that port and interface, and a closed consumer leaves nothing behind.
pub(in crate::fuzz) fn udp_sockets(data: &[u8]) {
    let mut input = Input::new(data);
    let roomy = SocketCapacity { locals: 64, bindings: 128, connections: 64, sources: 256 };
    let tight = SocketCapacity { locals: 3, bindings: 5, connections: 2, sources: 4 };
    let capacity = if input.u8() & 1 == 0 { roomy } else { tight };
    let mut sockets = UdpSockets::new(capacity, SEED);
    let mut members = BTreeSet::new();
    let mut before = Receivers::of(&sockets);
    while !input.is_empty() {
        let consumer = ConsumerId(input.below(3).into());
        let group = Group {
            group: input.pick(&GROUPS),
            port: 1 + u16::from(input.below(2)),
            interface: input.pick(&INTERFACES),
        };
        let granted = socket_step(&mut sockets, consumer, group, &mut input);
        let receivers = Receivers::of(&sockets);
        match granted {
            Granted::Joined => _ = members.insert((consumer, group.group, group.port, group.interface)),
            Granted::Left => _ = members.remove(&(consumer, group.group, group.port, group.interface)),
            Granted::LeftAllPorts => {
                members.retain(|member| (member.0, member.1, member.3) != (consumer, group.group, group.interface));
            }
            Granted::Closed => members.retain(|member| member.0 != consumer),
            Granted::Nothing => assert_eq!(receivers, before, "what was refused has changed something"),
            Granted::Other => {}
        }
        receivers.check(&members);
        before = receivers;
    }
    (0..3).for_each(|number| _ = sockets.close(ConsumerId(number)));
    assert_eq!(sockets.locals(), 0, "something of a closed consumer is left");
    assert!(
        GROUPS.iter().all(|&group| sockets.reception_state(group, InterfaceId(0)).is_none()),
        "a closed consumer is a member"
    );
}

enum Granted {
    Joined,
    Left,
    LeftAllPorts,
    Closed,
    Other,
    Nothing,
}

fn socket_step(sockets: &mut UdpSockets, consumer: ConsumerId, group: Group, input: &mut Input<'_>) -> Granted {
    let (kind, source) = (input.below(9), input.pick(&SOURCES));
    let local = SocketAddrV4::new(input.pick(&ADDRESSES[..3]), group.port);
    let (result, granted) = match kind {
        0 => (sockets.join(consumer, group), Granted::Joined),
        1 => (sockets.join_source(consumer, group, source), Granted::Joined),
        2 => {
            let mode = input.pick(&[FilterMode::Include, FilterMode::Exclude]);
            let sources: Vec<_> = (0..input.below(4)).map(|_| input.pick(&SOURCES)).collect();
            // An empty include list means leaving the group (RFC 3376 3.1).
            let leaves = mode == FilterMode::Include && sources.is_empty();
            let granted = if leaves { Granted::LeftAllPorts } else { Granted::Joined };
            (sockets.set_filter(consumer, group, mode, &sources), granted)
        }
        3 => (sockets.block(consumer, group, source), Granted::Other),
        4 => (sockets.unblock(consumer, group, source), Granted::Other),
        5 => (sockets.leave(consumer, group), Granted::Left),
        6 => {
            let sharing = input.pick(&[Sharing::Shared, Sharing::Exclusive]);
            (sockets.bind(consumer, local, sharing).map(drop), Granted::Other)
        }
        7 => {
            let remote = SocketAddrV4::new(source, 1_000);
            (sockets.connect(consumer, Flow { local, remote }).map(drop), Granted::Other)
        }
        _ => {
            sockets.close(consumer);
            (Ok(()), Granted::Closed)
        }
    };
    match result {
        Ok(()) => granted,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Granted::Nothing
        }
    }
}

/// A datagram of this flow on this interface reaches this consumer.
type Receiver = (Flow, InterfaceId, ConsumerId);

/// Which consumer receives which datagrams, over all flows and interfaces, and the merged filters
/// of the interfaces.
#[derive(Debug, PartialEq, Eq)]
struct Receivers {
    all: Vec<Receiver>,
    merged: Vec<Option<(FilterMode, BTreeSet<Ipv4Addr>)>>,
    locals: usize,
}

impl Receivers {
    fn of(sockets: &UdpSockets) -> Self {
        let mut all = Vec::new();
        for (flow, interface) in flows().flat_map(|flow| [0, 1].map(|idx| (flow, InterfaceId(idx)))) {
            let subscribers = match sockets.lookup(flow) {
                DemuxMatch::None => Vec::new(),
                DemuxMatch::One(subscriber) => vec![subscriber],
                DemuxMatch::Many(mut cursor) => std::iter::from_fn(|| sockets.next(&mut cursor)).collect(),
            };
            let accepted = |one: &&Subscriber| sockets.accepts(one.filter, interface, *flow.remote.ip());
            all.extend(subscribers.iter().filter(accepted).map(|one| (flow, interface, one.consumer)));
        }
        let places = GROUPS.into_iter().flat_map(|group| [0, 1].map(|idx| (group, InterfaceId(idx))));
        let merged = places.map(|(group, interface)| {
            sockets.reception_state(group, interface).map(|merged| (merged.mode(), merged.sources().collect()))
        });
        Self { merged: merged.collect(), all, locals: sockets.locals() }
    }

    fn check(&self, members: &BTreeSet<(ConsumerId, Ipv4Addr, u16, InterfaceId)>) {
        for (idx, &(flow, interface, consumer)) in self.all.iter().enumerate() {
            let (group, port) = (*flow.local.ip(), flow.local.port());
            let joined = |interface| members.contains(&(consumer, group, port, interface));
            let is_member = joined(interface) || joined(InterfaceId::ANY);
            assert!(!group.is_multicast() || is_member, "{consumer:?} hears {group}:{port} and did not join");
            let twice = self.all[..idx].iter().rev().take_while(|other| other.0 == flow);
            let mut twice = twice.filter(|other| **other == (flow, interface, consumer));
            assert!(!group.is_multicast() || twice.next().is_none(), "{consumer:?} hears {group}:{port} twice");
        }
    }
}

/// Ports: who may bind which end, and which ephemeral ports are assigned.
pub(in crate::fuzz) fn ports(data: &[u8]) {
    let mut input = Input::new(data);
    let tight = input.u8() & 1 == 1;
    let capacity = if tight {
        PortsCapacity { bindings: 3, connections: 2 }
    } else {
        PortsCapacity { bindings: 64, connections: 64 }
    };
    let range = PortRange::new(2, 5).expect("a range of ports");
    let mut pair =
        PortsPair { ports: Ports::new(capacity, range, SEED), capacity, bound: Vec::new(), flows: Vec::new() };
    while !input.is_empty() {
        pair.step(&mut input);
        pair.compare();
    }
}

struct PortsPair {
    ports: Ports,
    capacity: PortsCapacity,
    bound: Vec<Binding>,
    flows: Vec<(Flow, ConsumerId)>,
}

impl PortsPair {
    fn step(&mut self, input: &mut Input<'_>) {
        let (kind, flow) = (input.below(4), flow_with_ports(input));
        let owner = ConsumerId(input.below(3).into());
        match kind {
            0 => self.bind(Binding { local: flow.local, owner, share: input.u8() & 1 == 0 }),
            1 => {
                let place = self.bound.iter().position(|bound| (bound.local, bound.owner) == (flow.local, owner));
                assert_eq!(self.ports.release(flow.local, owner), place.is_some());
                place.map(|place| self.bound.remove(place));
            }
            2 => self.connect(flow, owner),
            _ => {
                let place = self.flows.iter().position(|(other, _)| *other == flow);
                assert_eq!(self.ports.disconnect(flow), place.map(|place| self.flows.remove(place).1));
            }
        }
    }

    fn bind(&mut self, request: Binding) {
        match self.ports.bind(request) {
            Ok(local) => {
                let given = Binding { local, ..request };
                assert!(!self.bound.iter().any(|other| conflict(other, &given)), "{request:?} was granted");
                let chosen = request.local.port() == 0;
                assert!(!chosen || (2..=5).contains(&local.port()));
                assert!(chosen || local.port() == request.local.port());
                assert!(!(chosen && self.in_use(local.port())), "an ephemeral port that somebody uses");
                self.bound.push(given);
            }
            Err(PortError::AddressInUse { owner }) => {
                assert!(self.bound.iter().any(|other| other.owner == owner && conflict(other, &request)));
            }
            Err(PortError::Full) => assert_eq!(self.bound.len(), self.capacity.bindings),
            Err(PortError::Exhausted) => assert!(request.local.port() == 0 && (2..=5).all(|port| self.in_use(port))),
            Err(error) => panic!("a bind is refused with {error}"),
        }
    }

    fn connect(&mut self, request: Flow, owner: ConsumerId) {
        match self.ports.connect(request, owner) {
            Ok(flow) => {
                assert!(!self.flows.iter().any(|(other, _)| *other == flow));
                let chosen = request.local.port() == 0;
                assert!(!chosen || (2..=5).contains(&flow.local.port()));
                assert!(!(chosen && self.bound.iter().any(|other| other.local.port() == flow.local.port())));
                assert_eq!((flow.remote, flow.local.ip()), (request.remote, request.local.ip()));
                self.flows.push((flow, owner));
            }
            Err(PortError::FlowInUse { owner }) => assert!(self.flows.contains(&(request, owner))),
            Err(PortError::Full) => assert_eq!(self.flows.len(), self.capacity.connections),
            Err(PortError::Exhausted) => assert_eq!(request.local.port(), 0),
            Err(error) => panic!("a connection is refused with {error}"),
        }
    }

    fn in_use(&self, port: u16) -> bool {
        let bound = self.bound.iter().any(|bound| bound.local.port() == port);
        bound || self.flows.iter().any(|(flow, _)| flow.local.port() == port)
    }

    fn compare(&self) {
        for local in ADDRESSES.into_iter().flat_map(|address| (0..8).map(move |port| SocketAddrV4::new(address, port)))
        {
            let owners: BTreeSet<_> = self.ports.owners(local).collect();
            let bound = self.bound.iter().filter(|bound| bound.local == local).map(|bound| bound.owner);
            assert_eq!(owners, bound.collect());
        }
        for (flow, owner) in &self.flows {
            assert_eq!(self.ports.connection(*flow), Some(*owner));
        }
    }
}

fn flow_with_ports(input: &mut Input<'_>) -> Flow {
    let local = SocketAddrV4::new(input.pick(&ADDRESSES), input.below(8).into());
    Flow { local, remote: SocketAddrV4::new(input.pick(&SOURCES), u16::from(input.below(2)) * 1_000) }
}

/// Two ends that overlap, of which one does not share, or that could not be distinguished.
fn conflict(other: &Binding, request: &Binding) -> bool {
    let (theirs, ours) = (other.local.ip(), request.local.ip());
    let overlap = theirs == ours || theirs.is_unspecified() || ours.is_unspecified();
    let twin = other.owner == request.owner && theirs == ours;
    other.local.port() == request.local.port() && overlap && !(other.share && request.share && !twin)
}
