//! The mirror's end of one worker's ring. It keeps a model of the worker's [`Host`] after all
//! updates sent so far, and sends the difference between that model and the view. So a full ring
//! loses nothing: an update that was not sent is still a difference the next time. A change that
//! was reverted meanwhile leaves no difference.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::follower::{HostUpdate, LinkState};
use super::tables::{KernelNeighbor, NeighborOrigin};
use super::view::View;
use crate::proto::{Host, HostConfig, HostError, HostEvent, Ipv4Prefix, Route};
use crate::time::Instant;
use crate::worker::random_seed;
use crate::worker::spsc::lossless::Producer;

/// The expiry of a learned neighbor: the kernel reports when it expires. The last instant of all
/// would mean a static entry.
const UNTIL_REMOVED: Instant = Instant::from_nanos(u64::MAX - 1);

/// The ring has no room: the remaining events are sent once it has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RingFull;

type Neighbors = BTreeMap<Ipv4Addr, KernelNeighbor>;

pub(super) struct HostSync {
    ring: Producer<HostUpdate>,
    model: Host,
    link: LinkState,
    neighbors: Neighbors,
    neighbors_max: usize,
    refused: Vec<HostError>,
}

impl HostSync {
    /// For a worker whose host is made with the same `config`, so that the model refuses the same
    /// updates as the host.
    pub(super) fn new(config: HostConfig, ring: Producer<HostUpdate>) -> Result<Self, HostError> {
        let model = Host::new(config, random_seed())?;
        Ok(Self {
            ring,
            model,
            link: LinkState::default(),
            neighbors: Neighbors::new(),
            neighbors_max: config.neighbors_max,
            refused: Vec::new(),
        })
    }

    /// Sends the differences, in an order in which each step is possible: removals first, then
    /// addresses, the networks on the link, the routes over them. If the host has no room for all
    /// neighbors, those that the worker `wants` come first.
    pub(super) fn update(&mut self, view: &View, wants: impl Fn(Ipv4Addr) -> bool) -> Result<(), RingFull> {
        self.refused.clear();
        self.update_link(view)?;
        let neighbors = self.choose_neighbors(view, wants);
        self.forget_neighbors(&neighbors)?;
        self.update_addresses(&view.addresses)?;
        self.update_routes(&view.routes)?;
        self.learn_neighbors(&neighbors)
    }

    /// The updates of the last call that do not fit the worker's host, and why.
    pub(super) fn refused(&self) -> &[HostError] {
        &self.refused
    }

    /// The worker is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    fn update_link(&mut self, view: &View) -> Result<(), RingFull> {
        if self.link != view.link {
            self.ring.push(HostUpdate::Link(view.link)).map_err(|_| RingFull)?;
            self.link = view.link;
        }
        if let Some(mac) = view.mac.filter(|mac| *mac != self.model.mac()) {
            self.send(HostEvent::Mac(mac))?;
        }
        if let Some(mtu) = view.mtu.filter(|mtu| *mtu != self.model.mtu()) {
            self.send(HostEvent::Mtu(mtu))?;
        }
        Ok(())
    }

    fn update_addresses(&mut self, wanted: &[Ipv4Prefix]) -> Result<(), RingFull> {
        for gone in difference(self.model.addresses(), wanted) {
            self.send(HostEvent::AddressRemoved(gone))?;
        }
        for new in difference(wanted, self.model.addresses()) {
            self.send(HostEvent::AddressAdded(new))?;
        }
        Ok(())
    }

    /// Compares with the model after the addresses were applied: they add routes, and remove them.
    fn update_routes(&mut self, wanted: &[Route]) -> Result<(), RingFull> {
        let wanted = &one_for_each(wanted)[..];
        let stays = |held: &Route| wanted.iter().any(|wanted| is_same(held, wanted));
        let gone: Vec<_> = self.model.routes().iter().filter(|held| !stays(held)).copied().collect();
        for Route { network, metric, .. } in gone {
            self.send(HostEvent::RouteRemoved { network, metric })?;
        }
        for route in difference(wanted, self.model.routes()) {
            self.send(HostEvent::RouteAdded(route))?;
        }
        Ok(())
    }

    /// Selects the neighbors that fit the host: first requested ones, then static ones, then those
    /// it already has.
    fn choose_neighbors(&mut self, view: &View, wants: impl Fn(Ipv4Addr) -> bool) -> Neighbors {
        let excess = view.neighbors.len().saturating_sub(self.neighbors_max);
        if excess == 0 {
            return view.neighbors.clone();
        }
        self.refused.extend((0..excess).map(|_| HostError::NeighborsFull));
        let mut ranked: Vec<_> = view.neighbors.iter().map(|(address, neighbor)| (*address, *neighbor)).collect();
        ranked.sort_by_key(|(address, neighbor)| {
            (!wants(*address), neighbor.trust == NeighborOrigin::NetlinkEvents, !self.neighbors.contains_key(address))
        });
        ranked.into_iter().take(self.neighbors_max).collect()
    }

    fn forget_neighbors(&mut self, wanted: &Neighbors) -> Result<(), RingFull> {
        // A static entry that is now only learned must be removed first, or the host would keep it
        // as static.
        let ends = |address: &Ipv4Addr, held: &KernelNeighbor| {
            wanted.get(address).is_none_or(|now| {
                held.trust == NeighborOrigin::Configured && now.trust == NeighborOrigin::NetlinkEvents
            })
        };
        let gone: Vec<_> = self.neighbors.iter().filter(|(a, n)| ends(a, n)).map(|(address, _)| *address).collect();
        for address in gone {
            self.send(HostEvent::NeighborRemoved(address))?;
            self.neighbors.remove(&address);
        }
        Ok(())
    }

    fn learn_neighbors(&mut self, wanted: &Neighbors) -> Result<(), RingFull> {
        for (&address, &neighbor) in wanted {
            if self.neighbors.get(&address) == Some(&neighbor) {
                continue;
            }
            let mac = neighbor.mac;
            let taken = self.send(match neighbor.trust {
                NeighborOrigin::Configured => HostEvent::NeighborSet { address, mac },
                NeighborOrigin::NetlinkEvents => HostEvent::NeighborLearned { address, mac, until: UNTIL_REMOVED },
            })?;
            if taken {
                self.neighbors.insert(address, neighbor);
            }
        }
        Ok(())
    }

    /// Sends an event that the model accepts, and returns whether it did. Checks the ring first,
    /// because if the model were ahead of the sent updates, the event would never be sent.
    fn send(&mut self, event: HostEvent) -> Result<bool, RingFull> {
        if self.ring.is_full() {
            return Err(RingFull);
        }
        if let Err(refused) = self.model.apply(event) {
            self.refused.push(refused);
            return Ok(false);
        }
        let pushed = self.ring.push(HostUpdate::Host(event));
        assert!(pushed.is_ok(), "only this end fills the ring, and it had room");
        Ok(true)
    }
}

fn difference<T: Copy + PartialEq>(from: &[T], without: &[T]) -> Vec<T> {
    from.iter().filter(|item| !without.contains(item)).copied().collect()
}

/// A host has one route per network and metric. Of several, this selects the route on the link,
/// because other routes may lead over it. Routes on the link are listed first.
fn one_for_each(wanted: &[Route]) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::with_capacity(wanted.len());
    let (on_link, behind): (Vec<_>, Vec<_>) = wanted.iter().partition(|route| route.gateway.is_none());
    for route in on_link.into_iter().chain(behind) {
        if !routes.iter().any(|held| is_same(held, route)) {
            routes.push(*route);
        }
    }
    routes
}

fn is_same(one: &Route, other: &Route) -> bool {
    (one.network, one.metric) == (other.network, other.metric)
}
