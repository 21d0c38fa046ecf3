//! The host of a worker and the settings of its nodes: described call by call, or taken from a live
//! port.

use core::net::Ipv4Addr;

use super::{WorkerBuilder, WorkerBuilderError};
use crate::device::either::Either;
use crate::device::{Capabilities, Queue};
use crate::mem::{BURST_MAX, Layout, Sizing};
use crate::pipeline::tcp::{TcpConfig, TcpNodeConfig};
use crate::pipeline::{
    AcceptedDestinations, ChecksumPolicy, EgressConfig, HostStackConfig, IcmpConfig, Ipv4Config, UdpConfig, Vlans,
};
use crate::proto::{HashSeed, Host, HostConfig, HostError, HostEvent, InterfaceId, Ipv4Prefix, NeighborConfig, Route};
use crate::wire::{MacAddr, VlanTags, ethernet, vlan};
use crate::worker::kernel::Follower;
use crate::worker::random_seed;

/// Bytes of an Ethernet header with two tags.
const LINK_HEADER_LEN: usize = ethernet::HEADER_LEN + 2 * vlan::TAG_LEN;
/// The MTU assumed at most, even if the device's frames may be longer.
const MTU_MAX: usize = 9_000;

/// The source of a worker's host: a [`HostDescription`], the
/// [`LiveHost`](crate::worker::live::LiveHost) of a port, or either. A bound for functions that
/// take a [`WorkerBuilder`] of any; other types cannot implement it.
pub trait HostProvider {
    /// The layout of the pool.
    #[doc(hidden)]
    fn layout(&self, queue: &impl Queue, capabilities: &Capabilities) -> Layout;

    /// The pool's buffers beside those of the app.
    #[doc(hidden)]
    fn buffers(&self, queue: &impl Queue) -> Sizing;

    /// The host, and the settings derived from it.
    #[doc(hidden)]
    fn prepare(self) -> Result<Prepared, WorkerBuilderError>;
}

/// A host ready to be moved into a worker.
pub struct Prepared {
    pub(crate) host: Host,
    /// Applies the kernel's changes to the host.
    pub(crate) follower: Option<Follower>,
    pub(crate) egress: EgressConfig,
    pub(crate) stack: HostStackConfig,
    pub(crate) tcp: Option<TcpConfig>,
    /// The application name of the roster of open connections.
    pub(crate) roster: Option<String>,
    pub(crate) seed: HashSeed,
}

/// A host as described to a [`WorkerBuilder`].
pub struct HostDescription {
    addresses: Vec<Ipv4Prefix>,
    routes: Vec<(Ipv4Prefix, Ipv4Addr)>,
    neighbors: Vec<(Ipv4Addr, MacAddr)>,
    mac: Option<MacAddr>,
    mtu: usize,
    is_promiscuous: bool,
    checksum: ChecksumPolicy,
    tcp: Option<TcpConfig>,
    seed: HashSeed,
}

impl<Q: Queue> WorkerBuilder<Q> {
    /// A local address with its network's prefix length. The first one is the default source
    /// address. By default there is none.
    pub fn address(mut self, address: Ipv4Prefix) -> Self {
        self.hosting.addresses.push(address);
        self
    }

    /// A route to a network behind a gateway; [`Ipv4Prefix::ALL`] is the default route. By default
    /// only the networks of its addresses are reachable.
    pub fn route(mut self, network: Ipv4Prefix, gateway: Ipv4Addr) -> Self {
        self.hosting.routes.push((network, gateway));
        self
    }

    /// A static neighbor. By default all are resolved by ARP.
    pub fn neighbor(mut self, address: Ipv4Addr, mac: MacAddr) -> Self {
        self.hosting.neighbors.push((address, mac));
        self
    }

    /// The local MAC address. By default a locally administered one derived from the first IPv4
    /// address, so that several workers on one wire differ.
    pub fn mac(mut self, mac: MacAddr) -> Self {
        self.hosting.mac = Some(mac);
        self
    }

    /// The MTU. By default derived from the device's longest frame, at most 9000.
    pub fn mtu(mut self, mtu: usize) -> Self {
        self.hosting.mtu = mtu;
        self
    }

    /// Receives frames for every station and every IPv4 destination, and sends no frames by itself
    /// (ARP, ICMP, IGMP): for captures. By default the worker is a host of its own.
    pub fn promiscuous(mut self) -> Self {
        self.hosting.is_promiscuous = true;
        self
    }

    /// The treatment of checksums that the device has not verified. By default the worker verifies
    /// them.
    pub fn checksum(mut self, checksum: ChecksumPolicy) -> Self {
        self.hosting.checksum = checksum;
        self
    }

    /// Enables TCP within these limits. By default it is off, and segments are counted and dropped.
    pub fn tcp(mut self, tcp: TcpConfig) -> Self {
        self.hosting.tcp = Some(tcp);
        self
    }

    /// The seed of all secrets. By default it is random; a reproducible run sets its own.
    pub fn seed(mut self, seed: HashSeed) -> Self {
        self.hosting.seed = seed;
        self
    }
}

impl HostDescription {
    pub(super) fn new(capabilities: &Capabilities) -> Self {
        Self {
            addresses: Vec::new(),
            routes: Vec::new(),
            neighbors: Vec::new(),
            mac: None,
            mtu: capabilities.frame_len_max.saturating_sub(LINK_HEADER_LEN).min(MTU_MAX),
            is_promiscuous: false,
            checksum: ChecksumPolicy::Verify,
            tcp: None,
            seed: random_seed(),
        }
    }

    fn host(&self) -> Result<Host, HostError> {
        let first = self.addresses.first().map_or(Ipv4Addr::UNSPECIFIED, |address| address.address());
        let [a, b, c, d] = first.octets();
        let config = HostConfig {
            interface: InterfaceId(0),
            mac: self.mac.unwrap_or(MacAddr([2, 0, a, b, c, d])),
            vlan: VlanTags::NONE,
            mtu: self.mtu,
            addresses_max: self.addresses.len().max(1),
            // The network of each address is a route too.
            routes_max: self.addresses.len().max(1) + self.routes.len(),
            neighbors_max: self.neighbors.len() + NeighborConfig::default().neighbors_max,
        };
        let mut host = Host::new(config, self.seed)?;
        for address in &self.addresses {
            host.apply(HostEvent::AddressAdded(*address))?;
        }
        for &(network, gateway) in &self.routes {
            let on_link = self.addresses.iter().find(|address| address.contains(gateway));
            let source = on_link.map_or(first, |address| address.address());
            host.apply(HostEvent::RouteAdded(Route {
                network: network.network(),
                gateway: Some(gateway),
                source,
                metric: 0,
            }))?;
        }
        for &(address, mac) in &self.neighbors {
            host.apply(HostEvent::NeighborSet { address, mac })?;
        }
        Ok(host)
    }

    fn stack(&self) -> HostStackConfig {
        let checksum = self.checksum;
        let usual = HostStackConfig {
            udp: UdpConfig { checksum },
            tcp: self.tcp.map(|_| TcpNodeConfig { checksum }),
            ..HostStackConfig::new(self.seed)
        };
        if !self.is_promiscuous {
            return usual;
        }
        HostStackConfig {
            is_promiscuous: true,
            vlans: Vlans::Any,
            ipv4: Ipv4Config { accept: AcceptedDestinations::Any, ..usual.ipv4 },
            icmp: IcmpConfig { echo: None },
            igmp: None,
            ..usual
        }
    }
}

impl HostProvider for HostDescription {
    fn layout(&self, queue: &impl Queue, capabilities: &Capabilities) -> Layout {
        queue.layout(capabilities.frame_len_max)
    }

    fn buffers(&self, queue: &impl Queue) -> Sizing {
        let sizing = queue.buffers().part("burst", BURST_MAX, "in the hands of the pipeline").part(
            "reassembly",
            Ipv4Config::new(self.seed).reassembly.pieces,
            "fragments that wait for the rest",
        );
        let sizing = match self.is_promiscuous {
            true => sizing,
            false => {
                let pending = NeighborConfig::default().pending_max;
                sizing.part("neighbors", pending, "datagrams that wait for a MAC address")
            }
        };
        match self.tcp {
            Some(tcp) => sizing.and(connections(tcp)),
            None => sizing,
        }
    }

    fn prepare(self) -> Result<Prepared, WorkerBuilderError> {
        let egress = if self.is_promiscuous { EgressConfig::quiet(self.seed) } else { EgressConfig::host(self.seed) };
        Ok(Prepared {
            host: self.host()?,
            follower: None,
            egress,
            stack: self.stack(),
            tcp: self.tcp,
            roster: None,
            seed: self.seed,
        })
    }
}

impl<L: HostProvider, R: HostProvider> HostProvider for Either<L, R> {
    fn layout(&self, queue: &impl Queue, capabilities: &Capabilities) -> Layout {
        match self {
            Self::Left(host) => host.layout(queue, capabilities),
            Self::Right(host) => host.layout(queue, capabilities),
        }
    }

    fn buffers(&self, queue: &impl Queue) -> Sizing {
        match self {
            Self::Left(host) => host.buffers(queue),
            Self::Right(host) => host.buffers(queue),
        }
    }

    fn prepare(self) -> Result<Prepared, WorkerBuilderError> {
        match self {
            Self::Left(host) => host.prepare(),
            Self::Right(host) => host.prepare(),
        }
    }
}

fn connections(tcp: TcpConfig) -> Sizing {
    let why = "data that waits to be acknowledged, or for what is missing before it";
    Sizing::new().part("connections", tcp.chunks_max, why)
}
