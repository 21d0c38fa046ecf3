//! The owners of local ports, and the free ports: the rules of `bind` and `connect`.
//!
//! Its input is requests of consumers, with port 0 for "any"; its output is the local ends that
//! they get, or an error. The [`demux`](super::demux) is updated afterwards and does not know
//! owners. All of this is set-up work: it scans the bindings of one port, and no packet pays for
//! it.

use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::demux::{Flow, FlowKey};
use super::hash::HashSeed;
use super::ids::ConsumerId;
use super::slab::{NIL, Slab};
use super::table::Table;

/// Capacities. All of it is allocated at construction.
#[derive(Clone, Copy, Debug)]
pub struct PortsCapacity {
    /// Bound local ends, 24 bytes each and up to 96 for the first of a port.
    pub bindings: usize,
    /// Connected flows, 64 to 128 bytes each and up to 96 for the first of a port.
    pub connections: usize,
}

impl PortsCapacity {
    /// The bytes that [`Ports::new`] allocates: the sum of its three parts.
    pub fn bytes(self) -> usize {
        Table::<u64, PortUse>::bytes(self.ports())
            + Slab::<Bound>::bytes(self.bindings)
            + Table::<FlowKey, ConsumerId>::bytes(self.connections)
    }

    /// Different ports that can be in use.
    fn ports(self) -> usize {
        (self.bindings + self.connections).min(usize::from(u16::MAX))
    }
}

/// The ephemeral ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The dynamic ports of RFC 6335 6: none of them is registered.
    pub const DYNAMIC: Self = Self { first: 49_152, last: 65_535 };

    /// The range from `first` to `last`, both included; `None` where it is empty or contains port
    /// 0. Where a kernel shares the address, choose a range outside its
    /// `net.ipv4.ip_local_port_range`, because neither side sees the other's allocations.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || first > last { None } else { Some(Self { first, last }) }
    }

    pub(super) fn count(self) -> u32 {
        u32::from(self.last - self.first) + 1
    }

    /// The port `step` steps into the range; the first follows the last.
    pub(super) fn nth(self, step: u32) -> u16 {
        self.first + (step % self.count()) as u16
    }
}

/// A request to receive at a local end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Address, group or [`Ipv4Addr::UNSPECIFIED`] for all addresses; port 0 for one of the range.
    pub local: SocketAddrV4,
    /// The consumer.
    pub owner: ConsumerId,
    /// Shares the end with other bindings that share it too, as several readers of one group do.
    pub share: bool,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortError {
    /// Another binding has this end or one that overlaps it, and at least one of the two does not
    /// share.
    AddressInUse {
        /// Its owner.
        owner: ConsumerId,
    },
    /// This flow is connected already.
    FlowInUse {
        /// Its owner.
        owner: ConsumerId,
    },
    /// All ports of the range are in use.
    Exhausted,
    /// No room for another binding or connection.
    Full,
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressInUse { owner } => {
                write!(f, "address in use by consumer {}: choose another port, or let both share it", owner.0)
            }
            Self::FlowInUse { owner } => write!(f, "consumer {} is connected to the same peer already", owner.0),
            Self::Exhausted => f.write_str("all ephemeral ports are in use: widen the range or close some"),
            Self::Full => f.write_str("the table of ports is full: raise its capacity"),
        }
    }
}

impl core::error::Error for PortError {}

/// The ports of one worker.
#[derive(Debug)]
pub struct Ports {
    /// By port, in [`port_key`]'s form.
    uses: Table<u64, PortUse>,
    bound: Slab<Bound>,
    connections: Table<FlowKey, ConsumerId>,
    range: PortRange,
    seed: HashSeed,
    /// RFC 6056 3.3.3: counts the allocated ports, so that two requests for one peer try different
    /// ports first.
    next_ephemeral: u32,
}

/// One port: its bindings and its number of connections.
#[derive(Clone, Copy, Debug)]
struct PortUse {
    first: u32,
    connections: u32,
}

impl Default for PortUse {
    fn default() -> Self {
        Self { first: NIL, connections: 0 }
    }
}

#[derive(Debug)]
struct Bound {
    address: Ipv4Addr,
    owner: ConsumerId,
    share: bool,
    next: u32,
}

impl Ports {
    /// Allocates all its memory here (see [`PortsCapacity::bytes`]). `seed` is secret: it hides the
    /// next ephemeral port.
    pub fn new(capacity: PortsCapacity, range: PortRange, seed: HashSeed) -> Self {
        Self {
            uses: Table::new(capacity.ports(), seed),
            bound: Slab::new(capacity.bindings),
            connections: Table::new(capacity.connections, seed),
            range,
            seed,
            next_ephemeral: 0,
        }
    }

    /// Binds a local end and returns it: the requested one, with a port where that was 0.
    pub fn bind(&mut self, request: Binding) -> Result<SocketAddrV4, PortError> {
        if self.bound.free_count() == 0 {
            return Err(PortError::Full);
        }
        let address = *request.local.ip();
        let port = match request.local.port() {
            0 => self.choose(address, None, |ports, port| ports.is_idle(port))?,
            port => port,
        };
        if let Some(owner) = self.conflict(address, port, request.share, request.owner) {
            return Err(PortError::AddressInUse { owner });
        }
        let first = self.port(port).first;
        let bound = Bound { address, owner: request.owner, share: request.share, next: first };
        let Ok(idx) = self.bound.insert(bound) else { return Err(PortError::Full) };
        self.update(port, |uses| uses.first = idx);
        Ok(SocketAddrV4::new(address, port))
    }

    /// Releases a local end; false where `owner` does not have it.
    pub fn release(&mut self, local: SocketAddrV4, owner: ConsumerId) -> bool {
        let mut before = NIL;
        let mut idx = self.port(local.port()).first;
        while let Some(bound) = self.bound.get(idx) {
            let next = bound.next;
            if (bound.address, bound.owner) != (*local.ip(), owner) {
                (before, idx) = (idx, next);
                continue;
            }
            match self.bound.get_mut(before) {
                Some(before) => before.next = next,
                None => self.update(local.port(), |uses| uses.first = next),
            }
            self.bound.remove(idx);
            return true;
        }
        false
    }

    /// Allocates the requested flow and returns it, with a chosen local port where that was 0. A
    /// flow excludes only an equal flow, because a server has one local port and one flow for each
    /// of its peers. A chosen port is one without any other binding.
    pub fn connect(&mut self, request: Flow, owner: ConsumerId) -> Result<Flow, PortError> {
        if self.connections.is_full() {
            return Err(PortError::Full);
        }
        let with_port = |port| Flow { local: SocketAddrV4::new(*request.local.ip(), port), ..request };
        let flow = match request.local.port() {
            0 => with_port(self.choose(*request.local.ip(), Some(request.remote), |ports, port| {
                ports.port(port).first == NIL && ports.connection(with_port(port)).is_none()
            })?),
            _ => request,
        };
        if let Some(owner) = self.connection(flow) {
            return Err(PortError::FlowInUse { owner });
        }
        assert!(self.connections.insert(FlowKey::new(flow), owner), "there is room for this flow, and it is new");
        self.update(flow.local.port(), |uses| uses.connections += 1);
        Ok(flow)
    }

    /// Releases a flow and returns its owner.
    pub fn disconnect(&mut self, flow: Flow) -> Option<ConsumerId> {
        self.connection(flow)?;
        let owner = self.connections.remove(FlowKey::new(flow));
        self.update(flow.local.port(), |uses| uses.connections -= 1);
        owner
    }

    /// The owner of a flow.
    pub fn connection(&self, flow: Flow) -> Option<ConsumerId> {
        // Port 0 requests a port and is none itself; and the table uses all zeros for a free slot.
        if flow.local.port() == 0 {
            return None;
        }
        self.connections.get(FlowKey::new(flow)).copied()
    }

    /// The owners of exactly this local end, the latest first.
    pub fn owners(&self, local: SocketAddrV4) -> impl Iterator<Item = ConsumerId> + '_ {
        self.bound_to(local.port()).filter(move |bound| bound.address == *local.ip()).map(|bound| bound.owner)
    }

    /// RFC 6056 3.3.3, simple hash-based selection: each peer sees ports rise from a different
    /// offset, and cannot infer the ports that another peer sees. Tries each port of the range
    /// once.
    fn choose(
        &mut self,
        address: Ipv4Addr,
        remote: Option<SocketAddrV4>,
        is_free: impl Fn(&Self, u16) -> bool,
    ) -> Result<u16, PortError> {
        let remote = remote.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let addresses = u64::from(address.to_bits()) << 32 | u64::from(remote.ip().to_bits());
        let offset = self.seed.sip(&[addresses, u64::from(remote.port())]) as u32;
        let count = self.range.count();
        for _ in 0..count {
            let step = offset.wrapping_add(self.next_ephemeral) % count;
            self.next_ephemeral = self.next_ephemeral.wrapping_add(1);
            let port = self.range.first + step as u16;
            if is_free(self, port) {
                return Ok(port);
            }
        }
        Err(PortError::Exhausted)
    }

    /// The owner of an overlapping end at this port, unless it and the new binding both share. An
    /// owner cannot share with itself: the two bindings would be indistinguishable.
    fn conflict(&self, address: Ipv4Addr, port: u16, share: bool, owner: ConsumerId) -> Option<ConsumerId> {
        let overlaps = |other: Ipv4Addr| other == address || other.is_unspecified() || address.is_unspecified();
        let tolerates = |bound: &Bound| {
            let twice = bound.owner == owner && bound.address == address;
            share && bound.share && !twice
        };
        let mut bound = self.bound_to(port);
        bound.find(|bound| overlaps(bound.address) && !tolerates(bound)).map(|bound| bound.owner)
    }

    fn bound_to(&self, port: u16) -> impl Iterator<Item = &Bound> + '_ {
        let mut next = self.port(port).first;
        core::iter::from_fn(move || {
            let bound = self.bound.get(next)?;
            next = bound.next;
            Some(bound)
        })
    }

    fn is_idle(&self, port: u16) -> bool {
        self.uses.get(port_key(port)).is_none()
    }

    fn port(&self, port: u16) -> PortUse {
        self.uses.get(port_key(port)).copied().unwrap_or_default()
    }

    /// Changes the entry of a port, which exists exactly while the port is in use.
    fn update(&mut self, port: u16, change: impl FnOnce(&mut PortUse)) {
        let mut uses = self.uses.remove(port_key(port)).unwrap_or_default();
        change(&mut uses);
        if uses.first != NIL || uses.connections > 0 {
            assert!(self.uses.insert(port_key(port), uses), "there are as many entries as users of ports");
        }
    }
}

fn port_key(port: u16) -> u64 {
    // Not zero, which marks a free slot.
    1 << 16 | u64::from(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
    const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

    fn ports(bindings: usize, connections: usize, range: (u16, u16)) -> Ports {
        let range = PortRange::new(range.0, range.1).unwrap();
        Ports::new(PortsCapacity { bindings, connections }, range, HashSeed::new(1, 2))
    }

    fn request(address: Ipv4Addr, port: u16, owner: u32, share: bool) -> Binding {
        Binding { local: SocketAddrV4::new(address, port), owner: ConsumerId(owner), share }
    }

    fn flow(local_port: u16, remote_port: u16) -> Flow {
        Flow { local: SocketAddrV4::new(HOST, local_port), remote: SocketAddrV4::new(HOST, remote_port) }
    }

    fn in_use(owner: u32) -> Result<SocketAddrV4, PortError> {
        Err(PortError::AddressInUse { owner: ConsumerId(owner) })
    }

    #[test]
    fn range_without_a_port_or_with_port_zero_is_none() {
        assert_eq!(PortRange::new(0, 5), None);
        assert_eq!(PortRange::new(6, 5), None);
        assert_eq!(PortRange::new(49_152, 65_535), Some(PortRange::DYNAMIC));
    }

    #[test]
    fn end_is_bound_once_unless_both_share() {
        let mut ports = ports(8, 0, (100, 200));
        ports.bind(request(HOST, 53, 1, false)).unwrap();
        assert_eq!(ports.bind(request(HOST, 53, 2, false)), in_use(1));
        assert_eq!(ports.bind(request(HOST, 53, 2, true)), in_use(1));
        ports.bind(request(GROUP, 53, 2, true)).unwrap();
        ports.bind(request(GROUP, 53, 3, true)).unwrap();
        assert_eq!(ports.bind(request(GROUP, 53, 4, false)), in_use(3));
        assert_eq!(ports.bind(request(GROUP, 53, 3, true)), in_use(3), "the same consumer twice");
        assert_eq!(ports.owners(SocketAddrV4::new(GROUP, 53)).count(), 2);
    }

    #[test]
    fn wildcard_overlaps_every_address_of_its_port() {
        let mut ports = ports(8, 0, (100, 200));
        ports.bind(request(ANY, 53, 1, false)).unwrap();
        assert_eq!(ports.bind(request(HOST, 53, 2, false)), in_use(1));
        ports.bind(request(HOST, 54, 2, false)).unwrap();
        assert_eq!(ports.bind(request(ANY, 54, 1, false)), in_use(2));
    }

    #[test]
    fn released_end_is_free_again() {
        let mut ports = ports(2, 0, (100, 200));
        let local = ports.bind(request(HOST, 53, 1, false)).unwrap();
        assert!(!ports.release(local, ConsumerId(2)));
        assert!(ports.release(local, ConsumerId(1)));
        assert!(!ports.release(local, ConsumerId(1)));
        ports.bind(request(HOST, 53, 2, false)).unwrap();
    }

    #[test]
    fn full_table_says_so() {
        let mut ports = ports(1, 0, (100, 200));
        ports.bind(request(HOST, 53, 1, false)).unwrap();
        assert_eq!(ports.bind(request(HOST, 54, 1, false)), Err(PortError::Full));
        assert_eq!(ports.connect(flow(1, 1), ConsumerId(1)), Err(PortError::Full));
    }

    #[test]
    fn ephemeral_ports_are_all_given_once_then_exhausted() {
        let mut ports = ports(32, 0, (100, 115));
        ports.bind(request(HOST, 107, 1, true)).unwrap();
        let given: HashSet<_> = (0..15).map(|_| ports.bind(request(ANY, 0, 1, true)).unwrap().port()).collect();
        assert_eq!(given, (100..=115).filter(|port| *port != 107).collect());
        assert_eq!(ports.bind(request(ANY, 0, 1, true)), Err(PortError::Exhausted));
    }

    #[test]
    fn range_to_the_last_port_does_not_overflow() {
        let mut ports = ports(4, 0, (65_535, 65_535));
        assert_eq!(ports.bind(request(HOST, 0, 1, false)).unwrap().port(), 65_535);
        assert_eq!(ports.bind(request(HOST, 0, 1, false)), Err(PortError::Exhausted));
    }

    #[test]
    fn flow_excludes_only_the_same_flow() {
        let mut ports = ports(4, 8, (100, 200));
        ports.bind(request(HOST, 53, 1, false)).unwrap();
        for remote_port in [0, 1, 2] {
            assert_eq!(ports.connect(flow(53, remote_port), ConsumerId(2)), Ok(flow(53, remote_port)));
        }
        assert_eq!(ports.connect(flow(53, 1), ConsumerId(3)), Err(PortError::FlowInUse { owner: ConsumerId(2) }));
        assert_eq!(ports.disconnect(flow(53, 1)), Some(ConsumerId(2)));
        assert_eq!(ports.disconnect(flow(53, 1)), None);
        assert_eq!(ports.connection(flow(53, 2)), Some(ConsumerId(2)));
    }

    #[test]
    fn one_ephemeral_port_serves_different_peers_but_nobody_bound() {
        let mut ports = ports(4, 8, (100, 100));
        assert_eq!(ports.connect(flow(0, 1), ConsumerId(1)), Ok(flow(100, 1)));
        assert_eq!(ports.connect(flow(0, 2), ConsumerId(1)), Ok(flow(100, 2)));
        assert_eq!(ports.connect(flow(0, 2), ConsumerId(1)), Err(PortError::Exhausted));
        assert_eq!(ports.bind(request(HOST, 0, 1, false)), Err(PortError::Exhausted));
        ports.disconnect(flow(100, 1)).unwrap();
        ports.disconnect(flow(100, 2)).unwrap();
        assert_eq!(ports.bind(request(HOST, 0, 1, false)).unwrap().port(), 100);
        assert_eq!(ports.connect(flow(0, 3), ConsumerId(1)), Err(PortError::Exhausted));
    }

    #[test]
    fn different_seeds_start_at_different_ports() {
        let first = |k0| {
            let capacity = PortsCapacity { bindings: 1, connections: 1 };
            let mut ports = Ports::new(capacity, PortRange::DYNAMIC, HashSeed::new(k0, 0));
            ports.connect(flow(0, 1), ConsumerId(1)).unwrap().local.port()
        };
        let ports: HashSet<_> = (0..100).map(first).collect();
        assert!(ports.len() > 95, "{} different ports of 100 seeds", ports.len());
    }
}
