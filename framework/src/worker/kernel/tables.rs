//! The kernel's tables in our own types: links, addresses, routes, rules and neighbors of all
//! interfaces, IPv4 only.
//!
//! The input is [`Change`]s, from a dump or from an event; a repeated change has no effect. This
//! file is independent of sockets and bytes. If a change contradicts the tables, or is one for
//! which the kernel changes more than it reports, [`Tables::apply`] returns that, and the caller
//! must dump again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::proto::Ipv4Prefix;
use crate::wire::MacAddr;

/// The kernel's index of an interface. A new interface never gets an index that is in use; a
/// renamed interface keeps its index.
pub(super) type LinkIdx = u32;

/// An interface, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLink {
    /// The interface index; it survives a rename, and differs after the interface was removed and
    /// created again.
    pub idx: u32,
    /// Its name now.
    pub name: String,
    /// Its MAC address; zeros for interfaces without one.
    pub mac: MacAddr,
    /// Bytes of the largest packet, without the Ethernet header.
    pub mtu: usize,
    /// Set up by the operator, and with a carrier.
    pub up: bool,
    /// The kernel's count of carrier-up events; zero before Linux 4.16, which does not report it.
    pub carrier_ups: u32,
    /// The index of the bond or bridge that this is a part of.
    pub controller: Option<u32>,
    /// The index of the active leg of a bond in a mode that has one; None for all others and if no
    /// leg works.
    pub active_leg: Option<u32>,
    /// A bond in active-backup that accepts frames only on its active leg, as bonds do by default
    /// (`all_slaves_active`).
    pub one_leg: bool,
}

/// The handling of packets to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteKind {
    /// Send to one of the next hops.
    Unicast,
    /// Drop: blackhole, unreachable, prohibit.
    Hole,
    /// Continue with the next table.
    Throw,
    /// Local, broadcast and multicast entries: not ours to send.
    Other,
}

/// A next hop of a route; several if the kernel balances the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteNextHop {
    pub(super) link: LinkIdx,
    pub(super) gateway: Option<Ipv4Addr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelRoute {
    pub(super) table: u32,
    pub(super) network: Ipv4Prefix,
    pub(super) metric: u32,
    pub(super) tos: u8,
    pub(super) kind: RouteKind,
    pub(super) source: Option<Ipv4Addr>,
    pub(super) legs: Vec<RouteNextHop>,
}

/// The position of a new route among the routes to the same network with the same metric; the
/// kernel uses the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoutePosition {
    First,
    Last,
    InsteadOfFirst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleAction {
    Table(u32),
    Goto(u32),
    Hole,
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) priority: u32,
    pub(super) action: RuleAction,
    pub(super) from: Option<Ipv4Prefix>,
    pub(super) to: Option<Ipv4Prefix>,
    /// The name of the interface that the sender must be bound to.
    pub(super) bound_to: Option<String>,
    /// It also matches a property that our packets never have: a mark, a port, a user, an input
    /// interface.
    pub(super) special: bool,
    pub(super) inverted: bool,
    /// Routes with a prefix of at most this length are ignored.
    pub(super) suppressed_len: Option<u8>,
}

/// The source of the kernel's neighbor entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NeighborOrigin {
    /// Static, or without need of ARP.
    Configured,
    /// Learned: reachable, stale, or being resolved right now. The kernel reports its expiry.
    NetlinkEvents,
}

/// The kernel's state of one neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NeighborKnowledge {
    TablesState(NeighborOrigin),
    /// Never resolved, or being resolved.
    Unknown,
    /// Resolution failed: it has not answered.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelNeighbor {
    pub(super) mac: MacAddr,
    pub(super) trust: NeighborOrigin,
}

/// The change in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Link(KernelLink),
    LinkGone(LinkIdx),
    Address(LinkIdx, Ipv4Prefix),
    AddressGone(LinkIdx, Ipv4Prefix),
    Route(KernelRoute, RoutePosition),
    RouteGone(KernelRoute),
    Rule(Rule),
    RuleGone(Rule),
    Neighbor(LinkIdx, Ipv4Addr, KernelNeighbor),
    NeighborGone(LinkIdx, Ipv4Addr),
    /// The kernel tried to resolve it without an answer.
    NeighborSilent(LinkIdx, Ipv4Addr),
}

/// Whether the tables are complete after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TablesState {
    /// The tables have the kernel's whole state.
    All,
    /// More has changed than was reported: dump again.
    Incomplete,
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    links: BTreeMap<LinkIdx, KernelLink>,
    /// In the kernel's order: the first one of an interface is its primary address.
    addresses: Vec<(LinkIdx, Ipv4Prefix)>,
    /// By table, network and prefix length.
    routes: BTreeMap<(u32, u32, u8), Vec<KernelRoute>>,
    /// By priority; of the same priority, the older one first.
    rules: Vec<Rule>,
    neighbors: BTreeMap<(LinkIdx, Ipv4Addr), KernelNeighbor>,
    silent: BTreeSet<(LinkIdx, Ipv4Addr)>,
}

impl Tables {
    pub(super) fn apply(&mut self, change: Change) -> TablesState {
        match change {
            Change::Link(link) => return self.set_link(link),
            Change::LinkGone(idx) => {
                self.forget_link(idx);
                return TablesState::Incomplete;
            }
            Change::Address(link, address) => {
                if !self.addresses.contains(&(link, address)) {
                    self.addresses.push((link, address));
                }
            }
            Change::AddressGone(link, address) => {
                self.addresses.retain(|held| *held != (link, address));
                // The routes that send from it disappear without an event (fib_sync_down_addr in
                // net/ipv4/fib_semantics.c).
                return TablesState::Incomplete;
            }
            Change::Route(route, place) => self.add_route(route, place),
            Change::RouteGone(route) => return self.remove_route(&route),
            Change::Rule(rule) => {
                if !self.rules.contains(&rule) {
                    let place = self.rules.partition_point(|held| held.priority <= rule.priority);
                    self.rules.insert(place, rule);
                }
            }
            Change::RuleGone(rule) => match self.rules.iter().position(|held| *held == rule) {
                Some(idx) => drop(self.rules.remove(idx)),
                None => return TablesState::Incomplete,
            },
            Change::Neighbor(link, address, neighbor) => {
                self.silent.remove(&(link, address));
                self.neighbors.insert((link, address), neighbor);
            }
            Change::NeighborGone(link, address) => {
                self.silent.remove(&(link, address));
                self.neighbors.remove(&(link, address));
            }
            Change::NeighborSilent(link, address) => {
                self.neighbors.remove(&(link, address));
                self.silent.insert((link, address));
            }
        }
        TablesState::All
    }

    /// Records that the kernel was asked for a neighbor: its failed state ends, without an event.
    pub(super) fn ask(&mut self, link: LinkIdx, address: Ipv4Addr) {
        self.silent.remove(&(link, address));
    }

    pub(super) fn link(&self, idx: LinkIdx) -> Option<&KernelLink> {
        self.links.get(&idx)
    }

    pub(super) fn link_named(&self, name: &str) -> Option<&KernelLink> {
        self.links.values().find(|link| link.name == name)
    }

    /// The indices of the interfaces that are parts of a bond or bridge, in ascending order.
    pub(super) fn legs(&self, bond: LinkIdx) -> impl Iterator<Item = LinkIdx> {
        self.links.values().filter(move |link| link.controller == Some(bond)).map(|link| link.idx)
    }

    pub(super) fn addresses(&self, link: LinkIdx) -> impl Iterator<Item = Ipv4Prefix> {
        self.addresses.iter().filter(move |(of, _)| *of == link).map(|(_, address)| *address)
    }

    /// Whether an address is the host's own, on any interface.
    pub(super) fn is_own(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|(_, own)| own.address() == address)
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The routes of one table, grouped by network.
    pub(super) fn networks(&self, table: u32) -> impl Iterator<Item = &[KernelRoute]> {
        self.routes.range((table, 0, 0)..=(table, u32::MAX, u8::MAX)).map(|(_, routes)| routes.as_slice())
    }

    pub(super) fn neighbors(&self, link: LinkIdx) -> impl Iterator<Item = (Ipv4Addr, KernelNeighbor)> {
        let range = (link, Ipv4Addr::UNSPECIFIED)..=(link, Ipv4Addr::BROADCAST);
        self.neighbors.range(range).map(|((_, address), neighbor)| (*address, *neighbor))
    }

    /// The state of one neighbor.
    pub(super) fn knowledge(&self, link: LinkIdx, address: Ipv4Addr) -> NeighborKnowledge {
        match self.neighbors.get(&(link, address)) {
            Some(neighbor) => NeighborKnowledge::TablesState(neighbor.trust),
            None if self.silent.contains(&(link, address)) => NeighborKnowledge::Silent,
            None => NeighborKnowledge::Unknown,
        }
    }

    /// The number of entries.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let routes: usize = self.routes.values().map(Vec::len).sum();
        let others = self.rules.len() + self.neighbors.len() + self.silent.len();
        self.links.len() + self.addresses.len() + routes + others
    }

    fn set_link(&mut self, link: KernelLink) -> TablesState {
        let held = self.links.insert(link.idx, link.clone());
        // When the link goes down its routes disappear, without an event (fib_disable_ip in
        // net/ipv4/fib_frontend.c).
        let went_down = held.is_some_and(|held| held.up) && !link.up;
        if went_down { TablesState::Incomplete } else { TablesState::All }
    }

    fn forget_link(&mut self, idx: LinkIdx) {
        self.links.remove(&idx);
        self.addresses.retain(|(link, _)| *link != idx);
        self.neighbors.retain(|(link, _), _| *link != idx);
        self.silent.retain(|(link, _)| *link != idx);
    }

    fn add_route(&mut self, route: KernelRoute, place: RoutePosition) {
        let routes = self.routes.entry(key(&route)).or_default();
        if routes.contains(&route) {
            return;
        }
        let first = routes.iter().position(|held| (held.metric, held.tos) == (route.metric, route.tos));
        match (place, first) {
            (RoutePosition::InsteadOfFirst, Some(idx)) => routes[idx] = route,
            (RoutePosition::First, Some(idx)) => routes.insert(idx, route),
            _ => routes.push(route),
        }
    }

    fn remove_route(&mut self, route: &KernelRoute) -> TablesState {
        let Some(routes) = self.routes.get_mut(&key(route)) else { return TablesState::Incomplete };
        let Some(idx) = routes.iter().position(|held| held == route) else { return TablesState::Incomplete };
        routes.remove(idx);
        if routes.is_empty() {
            self.routes.remove(&key(route));
        }
        TablesState::All
    }
}

fn key(route: &KernelRoute) -> (u32, u32, u8) {
    (route.table, route.network.address().to_bits(), route.network.len())
}
