//! Assembles a worker over any device: pool, queue, host, pipeline, sockets, connections. Defaults
//! are derived from the device. A port of a live interface makes its worker by
//! [`LiveQueue::worker`](super::live::LiveQueue::worker), which knows the kernel's addresses and
//! routes; custom node trees are assembled by [`Parts`].

use core::fmt;
use core::net::Ipv4Addr;
use std::sync::Arc;

use hugepages::MapRequest;

use super::poll::{Parts, Worker};
use super::seed::random_seed;
use crate::counters::Scope;
use crate::device::{Capabilities, Device, DeviceError, Queue};
use crate::mem::{BURST_MAX, Layout, Pool, PoolError, Region, RegionError, Sizing};
use crate::pipeline::tcp::{TcpConfig, TcpConfigError, TcpNodeConfig, TcpSockets, TcpSocketsConfig};
use crate::pipeline::{
    App, ChecksumPolicy, EgressConfig, HostStack, HostStackConfig, Ipv4Config, UdpConfig, Vlans, host_stack,
};
use crate::proto::{
    HashSeed, Host, HostConfig, HostError, HostEvent, InterfaceId, Ipv4Prefix, NeighborConfig, Route, SocketCapacity,
    UdpSockets,
};
use crate::wire::{MacAddr, VlanTags, ethernet, vlan};

/// Buffers for frames that the device holds, each way: the default ring length of the devices here.
const RING_LEN: usize = 1_024;
/// Frames per turn.
const BURST_LEN: usize = 32;
/// Bytes of an Ethernet header with two tags.
const LINK_HEADER_LEN: usize = ethernet::HEADER_LEN + 2 * vlan::TAG_LEN;
/// The MTU assumed at most, even if the device's frames may be longer.
const MTU_MAX: usize = 9_000;

/// A worker being configured: see [`Worker::builder`].
#[must_use]
pub struct WorkerBuilder<Q> {
    queue: Q,
    capabilities: Capabilities,
    addresses: Vec<Ipv4Prefix>,
    routes: Vec<(Ipv4Prefix, Ipv4Addr)>,
    neighbors: Vec<(Ipv4Addr, MacAddr)>,
    mac: Option<MacAddr>,
    mtu: usize,
    is_promiscuous: bool,
    checksum: ChecksumPolicy,
    sockets: SocketCapacity,
    tcp: Option<TcpConfig>,
    pool: Option<Pool>,
    held: usize,
    seed: HashSeed,
}

impl Worker<(), (), (), ()> {
    /// Configures a worker on queue 0 of a device: a host of its own with ARP, ICMP, IGMP, UDP and,
    /// if enabled, TCP. Call it on the worker's thread. Nothing is opened before
    /// [`build`](WorkerBuilder::build).
    ///
    /// # Errors
    /// The queue is taken.
    ///
    /// ```
    /// use wirepath::counters::Block;
    /// use wirepath::device::memory::{MemoryConfig, pair};
    /// use wirepath::pipeline::{App, Cx, Datagram};
    /// use wirepath::time::Instant;
    /// use wirepath::worker::Worker;
    ///
    /// struct Ticks(u64);
    /// impl App for Ticks {
    ///     fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
    ///         self.0 += 1;
    ///     }
    /// }
    ///
    /// let (mut near, _far) = pair("wire", MemoryConfig::default());
    /// let block = Block::heap();
    /// let worker = Worker::builder(&mut near)?.address("192.0.2.1/24".parse()?);
    /// let mut worker = worker.build(Ticks(0), &block.scope("worker0"))?;
    /// worker.poll_once(Instant::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder<D: Device>(device: &mut D) -> Result<WorkerBuilder<D::Queue>, DeviceError> {
        let capabilities = device.capabilities();
        Ok(WorkerBuilder::new(device.take_queue(0)?, capabilities))
    }
}

impl<Q: Queue> WorkerBuilder<Q> {
    /// As [`Worker::builder`], for a queue that was already taken from a device with these
    /// `capabilities`.
    pub fn new(queue: Q, capabilities: Capabilities) -> Self {
        let mtu = capabilities.frame_len_max.saturating_sub(LINK_HEADER_LEN).min(MTU_MAX);
        Self {
            queue,
            capabilities,
            addresses: Vec::new(),
            routes: Vec::new(),
            neighbors: Vec::new(),
            mac: None,
            mtu,
            is_promiscuous: false,
            checksum: ChecksumPolicy::Verify,
            sockets: SocketCapacity::default(),
            tcp: None,
            pool: None,
            held: 0,
            seed: random_seed(),
        }
    }

    /// A local address with its network's prefix length. The first one is the default source
    /// address. By default there is none.
    pub fn address(mut self, address: Ipv4Prefix) -> Self {
        self.addresses.push(address);
        self
    }

    /// A route to a network behind a gateway; [`Ipv4Prefix::ALL`] is the default route. By default
    /// only the networks of its addresses are reachable.
    pub fn route(mut self, network: Ipv4Prefix, gateway: Ipv4Addr) -> Self {
        self.routes.push((network, gateway));
        self
    }

    /// A static neighbor. By default all are resolved by ARP.
    pub fn neighbor(mut self, address: Ipv4Addr, mac: MacAddr) -> Self {
        self.neighbors.push((address, mac));
        self
    }

    /// The local MAC address. By default a locally administered one derived from the first IPv4
    /// address, so that several workers on one wire differ.
    pub fn mac(self, mac: MacAddr) -> Self {
        Self { mac: Some(mac), ..self }
    }

    /// The MTU. By default derived from the device's longest frame, at most 9000.
    pub fn mtu(self, mtu: usize) -> Self {
        Self { mtu, ..self }
    }

    /// Receives frames for every station, and sends nothing by itself, neither ARP nor ICMP nor
    /// IGMP: for captures. By default it is a host of its own.
    pub fn promiscuous(self) -> Self {
        Self { is_promiscuous: true, ..self }
    }

    /// The treatment of checksums that the device has not verified. By default the worker verifies
    /// them.
    pub fn checksum(self, checksum: ChecksumPolicy) -> Self {
        Self { checksum, ..self }
    }

    /// The capacity for groups, ports and consumers. By default 2,048 groups and ports and 4,096
    /// bindings ([`SocketCapacity`]).
    pub fn sockets(self, sockets: SocketCapacity) -> Self {
        Self { sockets, ..self }
    }

    /// Enables TCP within these limits. By default it is off, and segments are counted and dropped.
    pub fn tcp(self, tcp: TcpConfig) -> Self {
        Self { tcp: Some(tcp), ..self }
    }

    /// Adds this many buffers to the pool for the app to hold. By default none: buffers that it
    /// holds are then missing elsewhere.
    pub fn held(self, buffers: usize) -> Self {
        Self { held: buffers, ..self }
    }

    /// A pool made by the caller. By default there is one in the largest pages available
    /// (hugepages, else small ones).
    pub fn pool(self, pool: Pool) -> Self {
        Self { pool: Some(pool), ..self }
    }

    /// The seed of all secrets. By default it is random; a reproducible run sets its own.
    pub fn seed(self, seed: HashSeed) -> Self {
        Self { seed, ..self }
    }

    /// Opens the queue and assembles the worker; its counters are registered in `scope`.
    ///
    /// # Errors
    /// One sentence: no memory, a duplicate address, a gateway that is not on a network of the
    /// host, contradictory TCP limits.
    pub fn build<A: App>(
        mut self,
        app: A,
        scope: &Scope,
    ) -> Result<Worker<Q::Rx, Q::Tx, HostStack, A>, WorkerBuilderError> {
        let host = self.host()?;
        let stack = self.stack();
        let others = self.buffers(&stack).total() + self.held;
        let pool = match self.pool.take() {
            Some(pool) => pool,
            None => self.map_pool(others)?,
        };
        let (rx, tx) = self.queue.open(&pool, scope)?;
        let tcp = match self.tcp {
            Some(machine) => {
                let config = TcpSocketsConfig { machine, capabilities: self.capabilities, seed: self.seed };
                let mut tcp = TcpSockets::new(&config, scope).map_err(WorkerBuilderError::Tcp)?;
                tcp.leave(others);
                tcp
            }
            None => TcpSockets::none(),
        };
        let parts = Parts {
            rx,
            tx,
            pipeline: host_stack(stack, &host, scope),
            app,
            pool,
            host,
            sockets: UdpSockets::new(self.sockets, self.seed),
            egress: if self.is_promiscuous { EgressConfig::quiet(self.seed) } else { EgressConfig::host(self.seed) },
            burst_len: BURST_LEN,
        };
        Ok(Worker::new(parts, scope).with_tcp(tcp))
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
            routes_max: self.routes.len().max(1),
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
        let usual = HostStackConfig::new(self.seed);
        HostStackConfig {
            is_promiscuous: self.is_promiscuous,
            vlans: if self.is_promiscuous { Vlans::Any } else { Vlans::Untagged },
            udp: UdpConfig { checksum: self.checksum },
            tcp: self.tcp.map(|_| TcpNodeConfig { checksum: self.checksum }),
            igmp: usual.igmp.filter(|_| !self.is_promiscuous),
            ipv4: Ipv4Config::new(self.seed),
            ..usual
        }
    }

    /// The pool's buffers beside those of the app and of TCP.
    fn buffers(&self, stack: &HostStackConfig) -> Sizing {
        Sizing::new()
            .part("receiving", RING_LEN, "lent to the device, for frames to come")
            .part("sending", RING_LEN, "posted, and not on the wire yet")
            .part("burst", BURST_MAX, "in the hands of the pipeline")
            .part("reassembly", stack.ipv4.reassembly.pieces, "fragments that wait for the rest")
            .part("neighbors", NeighborConfig::default().pending_max, "datagrams that wait for a MAC address")
    }

    fn map_pool(&self, others: usize) -> Result<Pool, WorkerBuilderError> {
        let layout = Layout::for_frames(self.capabilities.frame_len_max);
        let buffers = others + self.tcp.map_or(0, |tcp| tcp.chunks_max);
        let region = Region::map(&MapRequest::new(layout.region_len(buffers))).map_err(WorkerBuilderError::Region)?;
        Pool::new(Arc::new(region), layout).map_err(WorkerBuilderError::Pool)
    }
}

/// Why the worker could not be built. Nothing is left behind.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerBuilderError {
    /// The queue cannot be opened.
    Device(DeviceError),
    /// The description of the host is invalid.
    Host(HostError),
    /// The TCP limits contradict each other.
    Tcp(TcpConfigError),
    /// No memory for the pool.
    Region(RegionError),
    /// The memory cannot be cut into buffers.
    Pool(PoolError),
}

impl fmt::Display for WorkerBuilderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Host(error) => write!(f, "the host cannot be as described: {error}"),
            Self::Tcp(error) => error.fmt(f),
            Self::Region(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for WorkerBuilderError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(match self {
            Self::Device(error) => error,
            Self::Host(error) => error,
            Self::Tcp(error) => error,
            Self::Region(error) => error,
            Self::Pool(error) => error,
        })
    }
}

impl From<DeviceError> for WorkerBuilderError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<HostError> for WorkerBuilderError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}
