//! The host of one worker: addresses, routes and neighbors, from the kernel or from the
//! configuration, and the settings of the nodes and of egress that follow from them. Made on the
//! main thread, before a worker starts.

use super::config::{DedicatedHost, IgmpMode, LiveConfig, Owner};
use super::error::LiveError;
use crate::device::{Capabilities, Queue, rings};
use crate::mem::{BURST_MAX, Layout, Sizing};
use crate::pipeline::tcp::{TcpConfig, TcpNodeConfig};
use crate::pipeline::{ArpConfig, EgressConfig, HostStackConfig, IgmpConfig, Ipv4Config, UdpConfig, Vlans};
use crate::proto::{
    ErrorLimit, HashSeed, Host, HostConfig, HostError, HostEvent, InterfaceId, LearnFrom, NeighborConfig,
    ReporterConfig, Route,
};
use crate::wire::{IgmpVersion, MacAddr, VlanTags};
use crate::worker::builder::{HostProvider, Prepared, WorkerBuilderError};
use crate::worker::kernel::{Follower, KernelLink, Mirror};
use crate::worker::random_seed;

/// Addresses of an interface: the kernel's, and those that its routes use. 8 bytes each.
const ADDRESSES_MAX: usize = 64;
/// Routes out of one interface, 28 bytes each: a trading host has a handful.
const ROUTES_MAX: usize = 256;
/// Neighbors of a worker, some 200 bytes each: routers, exchanges, and unknown hosts; static ones
/// and resolved ones together.
const NEIGHBORS_MAX: usize = 512;
/// Updates that the mirror may queue before the worker has polled: a dump of full tables and some
/// more.
const HOST_UPDATES_MAX: usize = 1_024;
/// Bytes of the IPv4 header of an IGMP report, router alert included.
const IGMP_HEADER_LEN: usize = 24;

/// A worker's host with everything that depends on it. It can be moved to the worker's thread.
pub struct LiveHost {
    /// The application's name, by which a guardian identifies its connections.
    pub app: String,
    /// Addresses, routes and neighbors at the time of the call.
    pub host: Host,
    /// Follows the kernel's state, or on an interface of our own only its link: for
    /// [`Worker::follow`](crate::worker::Worker::follow).
    pub follower: Follower,
    /// The configuration of egress.
    pub egress: EgressConfig,
    /// The configuration of the nodes, for [`host_stack`](crate::pipeline::host_stack) or a tree of
    /// one's own.
    pub stack: HostStackConfig,
    /// The layout of the pool: buffers hold a frame of the interface in one piece, if any can.
    pub layout: Layout,
    /// Buffers of the pool, beside those that the application holds.
    pub buffers: Sizing,
    /// The TCP limits, for [`TcpSockets`](crate::pipeline::tcp::TcpSockets).
    pub tcp: Option<TcpConfig>,
}

impl LiveHost {
    /// Queries `mirror` about the interface and adds the configuration.
    pub(super) fn new(
        config: &LiveConfig,
        link: &KernelLink,
        is_virtual: bool,
        mirror: &mut Mirror,
    ) -> Result<Self, LiveError> {
        let seed = random_seed();
        let host_config = host_config(config, link);
        let mut host = Host::new(host_config, seed)?;
        let mut follower = mirror.follow(config.port.interface(), host_config, HOST_UPDATES_MAX)?;
        while follower.catch_up(&mut host) > 0 {}
        let is_own = match &config.owner {
            Owner::Shared => false,
            Owner::Dedicated(own) => {
                settle(&mut host, own, config.port.interface())?;
                true
            }
        };
        let neighbors = match is_own {
            true => NeighborConfig::default(),
            false => NeighborConfig { learn_from: LearnFrom::Host, ..NeighborConfig::default() },
        };
        let stack = HostStackConfig {
            vlans: vlans(config),
            ipv4: Ipv4Config::new(seed),
            udp: UdpConfig { checksum: config.checksum_on(is_virtual) },
            tcp: config.tcp.map(|_| TcpNodeConfig { checksum: config.checksum_on(is_virtual) }),
            arp: ArpConfig { announces: is_own, ..ArpConfig::new(seed) },
            igmp: (config.igmp == IgmpMode::Worker).then(|| igmp(seed, link.mtu, config.igmp_version_min)),
            ..HostStackConfig::new(seed)
        };
        Ok(Self {
            app: config.app.clone(),
            buffers: buffers(config, &neighbors, &stack.ipv4),
            host,
            follower,
            egress: EgressConfig {
                neighbors: Some(neighbors),
                errors: is_own.then(ErrorLimit::default),
                ..EgressConfig::quiet(seed)
            },
            stack,
            layout: config.port.layout(link.mtu),
            tcp: config.tcp,
        })
    }
}

impl HostProvider for LiveHost {
    fn layout(&self, _: &impl Queue, _: &Capabilities) -> Layout {
        self.layout
    }

    fn buffers(&self, _: &impl Queue) -> Sizing {
        self.buffers.clone()
    }

    fn prepare(self) -> Result<Prepared, WorkerBuilderError> {
        let Self { app, host, follower, egress, stack, tcp, .. } = self;
        Ok(Prepared { host, follower: Some(follower), egress, stack, tcp, roster: Some(app), seed: random_seed() })
    }
}

fn host_config(config: &LiveConfig, link: &KernelLink) -> HostConfig {
    HostConfig {
        interface: InterfaceId(link.idx),
        mac: link.mac,
        vlan: config.vlan,
        mtu: link.mtu,
        addresses_max: ADDRESSES_MAX,
        routes_max: ROUTES_MAX,
        neighbors_max: NEIGHBORS_MAX,
    }
}

/// The VLANs to accept: the host's VLAN, whose outer tag the rules have compared already, or else
/// those of the flows. If the flows differ, all VLANs pass, and the application checks each
/// datagram's.
fn vlans(config: &LiveConfig) -> Vlans {
    let mut wanted = config.flows.iter().map(|flow| flow.vlan);
    match (config.vlan.inner(), wanted.next()) {
        (Some(tag), _) => Vlans::Only(tag.vid()),
        (None, None) => Vlans::Untagged,
        (None, Some(first)) if wanted.all(|vlan| vlan == first) => first.map_or(Vlans::Untagged, Vlans::Only),
        (None, Some(_)) => Vlans::Any,
    }
}

/// Configures the host, if the kernel has no address there.
fn settle(host: &mut Host, own: &DedicatedHost, interface: &str) -> Result<(), LiveError> {
    if let Some(&address) = host.addresses().first() {
        return Err(LiveError::KernelHasAddress { interface: interface.into(), address });
    }
    Ok(apply(host, own).map_err(|fault| fault.error)?)
}

/// A part of a host's configuration that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedicatedHostFault {
    /// The part.
    pub part: DedicatedHostPart,
    /// The reason.
    pub error: HostError,
}

/// A part of an [`DedicatedHost`], by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DedicatedHostPart {
    /// The address with this index in [`DedicatedHost::addresses`].
    Address(usize),
    /// The route with this index in [`DedicatedHost::routes`].
    Route(usize),
    /// The neighbor with this index in [`DedicatedHost::neighbors`].
    Neighbor(usize),
}

impl DedicatedHost {
    /// Finds the first part that the host would refuse, before there is an interface: for callers
    /// that know on which line of a file the part is.
    pub fn check(&self) -> Result<(), DedicatedHostFault> {
        let config = HostConfig {
            interface: InterfaceId(1),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            vlan: VlanTags::NONE,
            mtu: 1500,
            addresses_max: ADDRESSES_MAX,
            routes_max: ROUTES_MAX,
            neighbors_max: NEIGHBORS_MAX,
        };
        let refused = |error| DedicatedHostFault { part: DedicatedHostPart::Address(0), error };
        let mut host = Host::new(config, HashSeed::new(0, 0)).map_err(refused)?;
        apply(&mut host, self)
    }
}

fn apply(host: &mut Host, own: &DedicatedHost) -> Result<(), DedicatedHostFault> {
    for (idx, address) in own.addresses.iter().enumerate() {
        let refused = |error| DedicatedHostFault { part: DedicatedHostPart::Address(idx), error };
        host.apply(HostEvent::AddressAdded(*address)).map_err(refused)?;
    }
    for (idx, route) in own.routes.iter().enumerate() {
        let on_link = own.addresses.iter().find(|address| address.contains(route.via));
        let source = on_link.or(own.addresses.first()).map_or(route.via, |address| address.address());
        let route = Route { network: route.network.network(), gateway: Some(route.via), source, metric: 0 };
        host.apply(HostEvent::RouteAdded(route))
            .map_err(|error| DedicatedHostFault { part: DedicatedHostPart::Route(idx), error })?;
    }
    for (idx, &(address, mac)) in own.neighbors.iter().enumerate() {
        let refused = |error| DedicatedHostFault { part: DedicatedHostPart::Neighbor(idx), error };
        host.apply(HostEvent::NeighborSet { address, mac }).map_err(refused)?;
    }
    Ok(())
}

fn igmp(seed: HashSeed, mtu: usize, version_min: IgmpVersion) -> IgmpConfig {
    let report_len_max = mtu.saturating_sub(IGMP_HEADER_LEN);
    let reporter = ReporterConfig { report_len_max, version_min, ..ReporterConfig::default() };
    IgmpConfig { reporter, ..IgmpConfig::new(seed) }
}

fn buffers(config: &LiveConfig, neighbors: &NeighborConfig, ipv4: &Ipv4Config) -> Sizing {
    let (rx_ring_len, tx_ring_len) = config.port.ring_lens();
    let chunks = config.tcp.map_or(0, |tcp| tcp.chunks_max);
    rings(rx_ring_len, tx_ring_len)
        .part("burst", BURST_MAX, "in the hands of the pipeline")
        .part("reassembly", ipv4.reassembly.pieces, "fragments that wait for the rest")
        .part("neighbors", neighbors.pending_max, "datagrams that wait for a MAC address")
        .part("connections", chunks, "data that waits to be acknowledged, or for what is missing before it")
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::proto::{Ipv4Prefix, Resolution};
    use crate::time::Instant;
    use crate::wire::{EtherType, VlanTag};
    use crate::worker::live::{FlowSpec, StaticRoute};

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn prefix(text: &str) -> Ipv4Prefix {
        text.parse().unwrap()
    }

    fn host() -> Host {
        let config = HostConfig {
            interface: InterfaceId(3),
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
            vlan: VlanTags::NONE,
            mtu: 1500,
            addresses_max: 2,
            routes_max: 4,
            neighbors_max: 1,
        };
        Host::new(config, HashSeed::new(1, 2)).unwrap()
    }

    fn own(via: Ipv4Addr) -> DedicatedHost {
        DedicatedHost {
            addresses: vec![prefix("10.0.0.2/24"), prefix("10.1.0.2/24")],
            routes: vec![StaticRoute { network: Ipv4Prefix::ALL, via }],
            neighbors: vec![(ROUTER, MacAddr([2, 0, 0, 0, 0, 1]))],
            ..DedicatedHost::default()
        }
    }

    #[test]
    fn kernels_address_is_not_taken_over() {
        let mut host = host();
        host.apply(HostEvent::AddressAdded(prefix("10.0.0.7/24"))).unwrap();
        let refused = settle(&mut host, &own(ROUTER), "eth1").unwrap_err().to_string();
        assert!(refused.contains("ip address del 10.0.0.7/24 dev eth1"), "{refused}");
    }

    #[test]
    fn gateway_of_no_network_is_refused() {
        let far = Ipv4Addr::new(172, 16, 0, 1);
        let refused = settle(&mut host(), &own(far), "eth1").unwrap_err();
        assert!(matches!(refused, LiveError::Host(HostError::GatewayUnreachable(via)) if via == far), "{refused}");
    }

    #[test]
    fn static_host_sends_by_its_gateway() {
        let mut host = host();
        settle(&mut host, &own(ROUTER), "eth1").unwrap();
        let expected = Resolution::Station { mac: MacAddr([2, 0, 0, 0, 0, 1]), source: Ipv4Addr::new(10, 0, 0, 2) };
        assert_eq!(host.resolve(Ipv4Addr::new(8, 8, 8, 8), Instant::ZERO), expected);
    }

    #[test]
    fn vlans_are_those_that_are_wanted() {
        let flow = |vlan| FlowSpec { vlan, ..FlowSpec::udp(Ipv4Addr::new(239, 1, 1, 1), 1) };
        let config = LiveConfig::new("eth1");
        assert_eq!(vlans(&config), Vlans::Untagged);
        let tagged = |vlan| LiveConfig { vlan, ..config.clone() };
        assert_eq!(vlans(&tagged(VlanTags::single(VlanTag::new(3)))), Vlans::Only(3));
        let twice = VlanTags::double([VlanTag::from_tci(EtherType::QINQ, 100), VlanTag::new(5)]);
        assert_eq!(vlans(&tagged(twice)), Vlans::Only(5));
        assert_eq!(vlans(&config.clone().flow(flow(None))), Vlans::Untagged);
        assert_eq!(vlans(&config.clone().flow(flow(Some(4))).flow(flow(Some(4)))), Vlans::Only(4));
        assert_eq!(vlans(&config.flow(flow(Some(4))).flow(flow(None))), Vlans::Any);
    }

    #[test]
    fn pool_is_larger_than_both_rings() {
        let config = LiveConfig::new("eth1");
        let seed = HashSeed::new(1, 2);
        let total = buffers(&config, &NeighborConfig::default(), &Ipv4Config::new(seed)).total();
        assert_eq!(total, 2_048 + 1_024 + 64 + 256 + 64);
    }
}
