//! The target state of one interface for its worker, read from the tables.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::follower::{LEGS_MAX, LinkState};
use super::lookup;
use super::tables::{KernelLink, KernelNeighbor, LinkIdx, Tables};
use crate::proto::{Ipv4Prefix, Route};
use crate::wire::MacAddr;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) link: LinkState,
    /// None while there is no interface, or if it has no MAC address (loopback, tunnels).
    pub(super) mac: Option<MacAddr>,
    pub(super) mtu: Option<usize>,
    pub(super) addresses: Vec<Ipv4Prefix>,
    pub(super) routes: Vec<Route>,
    pub(super) neighbors: BTreeMap<Ipv4Addr, KernelNeighbor>,
}

impl View {
    /// The interface with this index; an empty view if it is gone.
    pub(super) fn of(tables: &Tables, idx: Option<LinkIdx>) -> Self {
        let Some(link) = idx.and_then(|idx| tables.link(idx)) else { return Self::default() };
        let mut addresses: Vec<_> = tables.addresses(link.idx).collect();
        let mut routes = lookup::routes(tables, link.idx, &link.name, &addresses);
        routes.extend(links_to_gateways(&routes));
        borrow_sources(&mut addresses, &routes);
        Self {
            link: link_state(link, tables),
            mac: Some(link.mac).filter(|mac| mac.is_unicast()),
            mtu: Some(link.mtu),
            addresses,
            routes,
            neighbors: tables.neighbors(link.idx).filter(|(_, neighbor)| neighbor.mac.is_unicast()).collect(),
        }
    }
}

fn link_state(link: &KernelLink, tables: &Tables) -> LinkState {
    let mut legs = [0; LEGS_MAX];
    for (place, leg) in legs.iter_mut().zip(tables.legs(link.idx)) {
        *place = leg;
    }
    let KernelLink { idx, up, carrier_ups, active_leg, one_leg, .. } = *link;
    LinkState { idx: Some(idx), up, carrier_ups, active_leg, legs, one_leg }
}

/// Routes to routers that are on the link although no network says so (`onlink`): the kernel
/// resolves them there, and a [`Host`](crate::proto::Host) requires a network.
fn links_to_gateways(routes: &[Route]) -> Vec<Route> {
    let mut missing: Vec<Route> = Vec::new();
    for route in routes {
        let Some(gateway) = route.gateway else { continue };
        let towards = routes.iter().filter(|route| route.network.contains(gateway));
        let best = towards.max_by_key(|route| (route.network.len(), u32::MAX - route.metric));
        let Some(network) = Ipv4Prefix::new(gateway, 32) else { continue };
        if best.is_none_or(|best| best.gateway.is_some()) && !missing.iter().any(|known| known.network == network) {
            missing.push(Route { network, gateway: None, metric: 0, source: route.source });
        }
    }
    missing
}

/// A route may send from an address of another interface, a loopback address of the host for
/// instance. The worker treats it as an own address too, like the kernel, which answers for it on
/// every interface.
fn borrow_sources(addresses: &mut Vec<Ipv4Prefix>, routes: &[Route]) {
    for route in routes {
        if !addresses.iter().any(|own| own.address() == route.source) {
            addresses.extend(Ipv4Prefix::new(route.source, 32));
        }
    }
}
