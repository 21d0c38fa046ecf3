//! One interface from the view of IPv4: our addresses, the routes out of it, and the neighbors on
//! it.
//!
//! Its input is [`HostEvent`]s from a configuration, from netlink or from ARP; the machine does not
//! distinguish the sources. It answers queries: is a received packet for us, and to which MAC
//! address does a sent one go? Other machines learn neighbors and report groups, and send their
//! findings to this one as events.
//!
//! Routes are a short list, longest prefix first: a trading host has a handful, and a flow that
//! sends often caches the result until [`Host::changes`] changes.

use core::fmt;
use core::net::Ipv4Addr;

use super::hash::HashSeed;
use super::ids::InterfaceId;
use super::prefix::Ipv4Prefix;
use super::table::{AddressKey, Table};
use crate::time::Instant;
use crate::wire::MacAddr;
use crate::wire::vlan::VlanTags;

/// Identity and capacities of one interface. All memory is allocated at construction.
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// Its index, as in memberships and in the metadata of packets.
    pub interface: InterfaceId,
    /// Its MAC address.
    pub mac: MacAddr,
    /// The tags that its frames carry; [`VlanTags::NONE`] for none.
    pub vlan: VlanTags,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// Own addresses, 8 bytes each.
    pub addresses_max: usize,
    /// Routes, 28 bytes each; one is needed for each own address.
    pub routes_max: usize,
    /// Neighbors, 96 to 192 bytes each: the stations of the local network that we exchange packets
    /// with.
    pub neighbors_max: usize,
}

impl HostConfig {
    /// The bytes that [`Host::new`] allocates: the sum of its three parts.
    pub fn bytes(&self) -> usize {
        self.addresses_max * size_of::<Ipv4Prefix>()
            + self.routes_max * size_of::<Route>()
            + Table::<AddressKey, Neighbor>::bytes(self.neighbors_max)
    }
}

/// A route to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network.
    pub network: Ipv4Prefix,
    /// The gateway; `None` where the network is on the link.
    pub gateway: Option<Ipv4Addr>,
    /// The source address to send from.
    pub source: Ipv4Addr,
    /// Of two routes to the same network the smaller number wins.
    pub metric: u32,
}

/// A change of the interface's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostEvent {
    /// An address is ours, and its network is on the link: adds both. Repeating it changes nothing.
    AddressAdded(Ipv4Prefix),
    /// An address is no longer ours: removes it, and the routes that send from it.
    AddressRemoved(Ipv4Prefix),
    /// A route was added. It replaces a route with the same network and metric.
    RouteAdded(Route),
    /// A route is gone.
    RouteRemoved {
        /// Its network.
        network: Ipv4Prefix,
        /// Its metric.
        metric: u32,
    },
    /// A neighbor was configured: it stays until it is removed, and ARP does not change it.
    NeighborSet {
        /// Its address.
        address: Ipv4Addr,
        /// Its MAC address.
        mac: MacAddr,
    },
    /// A neighbor was learned: it is valid until `until`. Does not change a configured neighbor.
    NeighborLearned {
        /// Its address.
        address: Ipv4Addr,
        /// Its MAC address.
        mac: MacAddr,
        /// When it has to be confirmed.
        until: Instant,
    },
    /// A neighbor is gone.
    NeighborRemoved(Ipv4Addr),
    /// The largest IP packet changed.
    Mtu(usize),
    /// Our MAC address changed.
    Mac(MacAddr),
    /// The link came up, or went down.
    Link {
        /// Whether frames can leave and arrive.
        is_up: bool,
    },
}

/// Why an event was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// No room for another address.
    AddressesFull,
    /// No room for another route.
    RoutesFull,
    /// No room for another neighbor.
    NeighborsFull,
    /// No host can have this address.
    NotAHostAddress(Ipv4Addr),
    /// No single station can have this MAC address.
    NotAStation(MacAddr),
    /// The gateway is not on the link of any of our networks.
    GatewayUnreachable(Ipv4Addr),
    /// IPv4 needs 68 bytes (RFC 791 3.2).
    MtuTooSmall(usize),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressesFull => f.write_str("no room for another address: raise addresses_max"),
            Self::RoutesFull => f.write_str("no room for another route: raise routes_max"),
            Self::NeighborsFull => f.write_str("no room for another neighbor: raise neighbors_max"),
            Self::NotAHostAddress(address) => write!(f, "{address} cannot be the address of a host"),
            Self::NotAStation(mac) => write!(f, "{mac} cannot be the MAC address of one station"),
            Self::GatewayUnreachable(gateway) => {
                write!(f, "gateway {gateway} is on none of the interface's networks: add its address first")
            }
            Self::MtuTooSmall(mtu) => write!(f, "an MTU of {mtu} is below the 68 bytes that IPv4 needs"),
        }
    }
}

impl core::error::Error for HostError {}

/// The kind of a received packet's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// One of our addresses.
    Local,
    /// A group; other tables know whether a consumer joined it.
    Group,
    /// All hosts: 255.255.255.255 or the broadcast address of one of our networks.
    Broadcast,
    /// Another host.
    Other,
}

/// The next hop of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// One station.
    Station {
        /// The MAC address of the destination or of the router to it.
        mac: MacAddr,
        /// The address to send from.
        source: Ipv4Addr,
    },
    /// A group or broadcast: no neighbor is needed.
    Group {
        /// The MAC address of the group, or the broadcast address.
        mac: MacAddr,
        /// The address to send from.
        source: Ipv4Addr,
    },
    /// Ourselves: the packet does not belong on the wire.
    Local,
    /// The next hop is known, but its MAC address is not, or no longer: request it.
    NeighborMissing {
        /// The address to resolve.
        next_hop: Ipv4Addr,
        /// The source address for the request and for the packet.
        source: Ipv4Addr,
    },
    /// No route leads there.
    NoRoute,
}

/// One interface.
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    addresses: Vec<Ipv4Prefix>,
    /// Longest prefix first, then the smallest metric: the first that contains a destination is its
    /// route.
    routes: Vec<Route>,
    neighbors: Table<AddressKey, Neighbor>,
    is_up: bool,
    changes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Neighbor {
    mac: MacAddr,
    /// [`Instant::MAX`] for one that was configured.
    until: Instant,
}

impl Host {
    /// An interface without addresses, with its link up. Allocates all its memory here (see
    /// [`HostConfig::bytes`]).
    pub fn new(config: HostConfig, seed: HashSeed) -> Result<Self, HostError> {
        check_station(config.mac)?;
        check_mtu(config.mtu)?;
        Ok(Self {
            config,
            addresses: Vec::with_capacity(config.addresses_max),
            routes: Vec::with_capacity(config.routes_max),
            neighbors: Table::new(config.neighbors_max, seed),
            is_up: true,
            changes: 0,
        })
    }

    /// Whether an address is our first: true for nearly every unicast packet to us. Three
    /// instructions; [`classify`](Self::classify) checks all of them.
    #[inline(always)]
    pub fn is_first_own(&self, address: Ipv4Addr) -> bool {
        self.addresses.first().is_some_and(|first| first.address() == address)
    }

    /// Classifies a received packet's destination. About 1 ns for groups and for the first address.
    #[inline]
    pub fn classify(&self, destination: Ipv4Addr) -> Destination {
        if destination.is_multicast() {
            return Destination::Group;
        }
        if self.is_own(destination) {
            return Destination::Local;
        }
        if self.is_broadcast(destination) { Destination::Broadcast } else { Destination::Other }
    }

    /// The next hop of a packet to `destination`. Costs a scan of the routes and one probe, 5 to
    /// 20 ns.
    pub fn resolve(&self, destination: Ipv4Addr, now: Instant) -> Resolution {
        match self.classify(destination) {
            Destination::Local => return Resolution::Local,
            Destination::Group => return self.to_all(destination, MacAddr::multicast_ipv4(destination)),
            Destination::Broadcast => return self.to_all(destination, MacAddr::BROADCAST),
            Destination::Other => {}
        }
        // Neither address may be a destination on a wire (RFC 1122 3.2.1.3), although a default
        // route contains both.
        if destination.is_unspecified() || destination.is_loopback() {
            return Resolution::NoRoute;
        }
        let Some(route) = self.route(destination) else { return Resolution::NoRoute };
        let (next_hop, source) = (route.gateway.unwrap_or(destination), route.source);
        match self.neighbors.get(AddressKey::of(next_hop)) {
            Some(neighbor) if now < neighbor.until || neighbor.until == Instant::MAX => {
                Resolution::Station { mac: neighbor.mac, source }
            }
            _ => Resolution::NeighborMissing { next_hop, source },
        }
    }

    /// The route of a destination: the longest prefix, then the smallest metric.
    pub fn route(&self, destination: Ipv4Addr) -> Option<&Route> {
        self.routes.iter().find(|route| route.network.contains(destination))
    }

    /// Applies an event. On an error nothing has changed.
    pub fn apply(&mut self, event: HostEvent) -> Result<(), HostError> {
        match event {
            HostEvent::AddressAdded(address) => self.add_address(address)?,
            HostEvent::AddressRemoved(address) => self.remove_address(address),
            HostEvent::RouteAdded(route) => self.add_route(route)?,
            HostEvent::RouteRemoved { network, metric } => {
                self.routes.retain(|route| (route.network, route.metric) != (network.network(), metric));
            }
            HostEvent::NeighborSet { address, mac } => self.set_neighbor(address, mac, Instant::MAX)?,
            HostEvent::NeighborLearned { address, mac, until } => {
                let held = self.neighbors.get(AddressKey::of(address));
                if held.is_some_and(|held| held.until == Instant::MAX || (held.mac, held.until) == (mac, until)) {
                    return Ok(());
                }
                self.set_neighbor(address, mac, until)?;
            }
            HostEvent::NeighborRemoved(address) => {
                self.neighbors.remove(AddressKey::of(address));
            }
            HostEvent::Mtu(mtu) => {
                check_mtu(mtu)?;
                self.config.mtu = mtu;
            }
            HostEvent::Mac(mac) => {
                check_station(mac)?;
                self.config.mac = mac;
            }
            HostEvent::Link { is_up } => self.is_up = is_up,
        }
        self.changes += 1;
        Ok(())
    }

    /// A valid neighbor has confirmed its MAC address: extends its validity. All resolutions stay
    /// the same, so cached ones need no new lookup. Returns false and changes nothing where the MAC
    /// address differs.
    pub fn confirm(&mut self, address: Ipv4Addr, mac: MacAddr, until: Instant, now: Instant) -> bool {
        let Some(held) = self.neighbors.get_mut(AddressKey::of(address)) else { return false };
        let is_known = held.mac == mac && now < held.until && held.until != Instant::MAX;
        if is_known {
            held.until = until;
        }
        is_known
    }

    /// Increments with every event that may change a resolution. A cached resolution is valid as
    /// long as this number stays the same and the neighbor's entry is valid. A
    /// [confirmation](Self::confirm) does not count.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether a neighbor was learned, valid still or not; false for one that was configured.
    pub fn has_learned(&self, address: Ipv4Addr) -> bool {
        self.neighbors.get(AddressKey::of(address)).is_some_and(|neighbor| neighbor.until != Instant::MAX)
    }

    /// The interface's index.
    #[inline]
    pub fn interface(&self) -> InterfaceId {
        self.config.interface
    }

    /// Our MAC address.
    pub fn mac(&self) -> MacAddr {
        self.config.mac
    }

    /// The tags of our frames.
    pub fn vlan(&self) -> VlanTags {
        self.config.vlan
    }

    /// Whether the link is up; true until an event says otherwise.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Bytes of the largest IP packet.
    pub fn mtu(&self) -> usize {
        self.config.mtu
    }

    /// Our addresses. The first is the source where no route names one.
    pub fn addresses(&self) -> &[Ipv4Prefix] {
        &self.addresses
    }

    /// Our routes, longest prefix first, then the smallest metric.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Whether an address is ours.
    #[inline]
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|own| own.address() == address)
    }

    /// Whether an address is that of all hosts: the limited broadcast, or that of one of our
    /// networks.
    #[inline]
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.addresses.iter().any(|own| own.broadcast() == Some(address))
    }

    /// For groups and broadcasts. The source is the address of that network, or of a route to the
    /// group, or the first one.
    fn to_all(&self, destination: Ipv4Addr, mac: MacAddr) -> Resolution {
        let first = self.addresses.first().map(|own| own.address());
        let source = self.route(destination).map(|route| route.source).or(first);
        source.map_or(Resolution::NoRoute, |source| Resolution::Group { mac, source })
    }

    fn remove_address(&mut self, removed: Ipv4Prefix) {
        let network = removed.network();
        let had_link_route = self.has_link_route(network);
        self.addresses.retain(|own| *own != removed);
        self.routes.retain(|route| self.addresses.iter().any(|own| own.address() == route.source));
        // The same address may exist with another prefix: that prefix's network goes with it.
        let is_ours = self.addresses.iter().any(|own| own.network() == network);
        self.routes.retain(|route| is_ours || route.network != network || route.gateway.is_some());
        if !had_link_route || self.has_link_route(network) {
            return;
        }
        // Another address of the same network takes its route over, in the freed entry.
        if let Some(heir) = self.addresses.iter().find(|own| own.network() == network) {
            let route = Route { network, gateway: None, source: heir.address(), metric: 0 };
            let taken = self.insert_route(route);
            assert!(taken.is_ok(), "a route was removed just now");
        }
    }

    fn add_address(&mut self, added: Ipv4Prefix) -> Result<(), HostError> {
        let address = added.address();
        check_host_address(address)?;
        if Some(address) == added.broadcast() || (added.len() < 31 && address == added.network().address()) {
            return Err(HostError::NotAHostAddress(address));
        }
        if self.addresses.contains(&added) {
            return Ok(());
        }
        if self.addresses.len() == self.config.addresses_max {
            return Err(HostError::AddressesFull);
        }
        let network = added.network();
        if !self.has_link_route(network) {
            self.insert_route(Route { network, gateway: None, source: address, metric: 0 })?;
        }
        self.addresses.push(added);
        Ok(())
    }

    fn has_link_route(&self, network: Ipv4Prefix) -> bool {
        self.routes.iter().any(|route| route.network == network && route.gateway.is_none())
    }

    fn add_route(&mut self, route: Route) -> Result<(), HostError> {
        if !self.is_own(route.source) {
            return Err(HostError::NotAHostAddress(route.source));
        }
        if let Some(gateway) = route.gateway {
            check_host_address(gateway)?;
            let on_link = self.route(gateway).is_some_and(|route| route.gateway.is_none());
            if !on_link || self.is_own(gateway) {
                return Err(HostError::GatewayUnreachable(gateway));
            }
        }
        self.insert_route(Route { network: route.network.network(), ..route })
    }

    fn insert_route(&mut self, route: Route) -> Result<(), HostError> {
        let same = |held: &Route| (held.network, held.metric) == (route.network, route.metric);
        if let Some(held) = self.routes.iter_mut().find(|held| same(held)) {
            *held = route;
            return Ok(());
        }
        if self.routes.len() == self.config.routes_max {
            return Err(HostError::RoutesFull);
        }
        let rank = |route: &Route| (32 - route.network.len(), route.metric);
        let place = self.routes.partition_point(|held| rank(held) <= rank(&route));
        self.routes.insert(place, route);
        Ok(())
    }

    fn set_neighbor(&mut self, address: Ipv4Addr, mac: MacAddr, until: Instant) -> Result<(), HostError> {
        check_host_address(address)?;
        check_station(mac)?;
        let neighbor = Neighbor { mac, until };
        if let Some(held) = self.neighbors.get_mut(AddressKey::of(address)) {
            *held = neighbor;
            return Ok(());
        }
        if self.neighbors.insert(AddressKey::of(address), neighbor) { Ok(()) } else { Err(HostError::NeighborsFull) }
    }
}

fn check_host_address(address: Ipv4Addr) -> Result<(), HostError> {
    let nobody = address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_loopback();
    if nobody { Err(HostError::NotAHostAddress(address)) } else { Ok(()) }
}

fn check_station(mac: MacAddr) -> Result<(), HostError> {
    if mac.is_unicast() { Ok(()) } else { Err(HostError::NotAStation(mac)) }
}

fn check_mtu(mtu: usize) -> Result<(), HostError> {
    const MTU_MIN: usize = 68;
    if mtu < MTU_MIN { Err(HostError::MtuTooSmall(mtu)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
