//! Puts a worker together over any device: pool, queue, host, pipeline, sockets, connections. What
//! is not said follows from the device. A port of a live interface makes its worker by
//! [`LiveQueue::worker`](super::live::LiveQueue::worker), which knows the kernel's addresses and
//! routes; own trees of nodes are put together by [`Parts`].

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

/// Buffers for frames that the device holds, each way: as long as the rings of the devices here are
/// by default.
const RING_LEN: usize = 1_024;
/// Frames in one turn.
const BURST_LEN: usize = 32;
/// Bytes of an Ethernet header with two tags.
const LINK_HEADER_LEN: usize = ethernet::HEADER_LEN + 2 * vlan::TAG_LEN;
/// The longest MTU that is assumed of a device whose frames may be longer.
const MTU_MAX: usize = 9_000;

/// A worker in the making: see [`Worker::builder`].
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
    /// Begins a worker on queue 0 of a device: a host of its own with ARP, ICMP, IGMP, UDP and,
    /// where asked for, TCP. Call it on the worker's thread. Nothing is done before
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
    /// The same for a queue that was taken from its device already, which can do what
    /// `capabilities` say.
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

    /// An address of ours with its network's length. The first one is the source of what is sent.
    /// By default there is none.
    pub fn address(mut self, address: Ipv4Prefix) -> Self {
        self.addresses.push(address);
        self
    }

    /// A network behind a gateway; [`Ipv4Prefix::ALL`] is the default route. By default only the
    /// networks of its addresses are reached.
    pub fn route(mut self, network: Ipv4Prefix, gateway: Ipv4Addr) -> Self {
        self.routes.push((network, gateway));
        self
    }

    /// A neighbor that need not be asked for. By default all are asked for, by ARP.
    pub fn neighbor(mut self, address: Ipv4Addr, mac: MacAddr) -> Self {
        self.neighbors.push((address, mac));
        self
    }

    /// Our MAC address. By default a locally administered one made of the first IPv4 address, so
    /// that several workers on one wire differ.
    pub fn mac(self, mac: MacAddr) -> Self {
        Self { mac: Some(mac), ..self }
    }

    /// The MTU. By default what the device's longest frame has room for, 9000 at most.
    pub fn mtu(self, mtu: usize) -> Self {
        Self { mtu, ..self }
    }

    /// Takes frames for every station, and sends nothing by itself, neither ARP nor ICMP nor IGMP:
    /// for captures. By default it is a host of its own.
    pub fn promiscuous(self) -> Self {
        Self { is_promiscuous: true, ..self }
    }

    /// What to do about checksums that the device has not verified. By default they are verified.
    pub fn checksum(self, checksum: ChecksumPolicy) -> Self {
        Self { checksum, ..self }
    }

    /// How many groups, ports and consumers there may be. By default 2,048 groups and ports and
    /// 4,096 bindings ([`SocketCapacity`]).
    pub fn sockets(self, sockets: SocketCapacity) -> Self {
        Self { sockets, ..self }
    }

    /// Connections. By default there are none, and segments are counted and dropped.
    pub fn tcp(self, tcp: TcpConfig) -> Self {
        Self { tcp: Some(tcp), ..self }
    }

    /// Room in the pool for this many buffers that the app holds. By default none: what it holds is
    /// then short elsewhere.
    pub fn held(self, buffers: usize) -> Self {
        Self { held: buffers, ..self }
    }

    /// A pool of one's own. By default there is one of the best pages that the machine has
    /// (hugepages, else small ones).
    pub fn pool(self, pool: Pool) -> Self {
        Self { pool: Some(pool), ..self }
    }

    /// Where all secrets are derived from. By default it is random; a run that must repeat itself
    /// gives its own.
    pub fn seed(self, seed: HashSeed) -> Self {
        Self { seed, ..self }
    }

    /// Opens the queue and puts the worker together; its counters are registered in `scope`.
    ///
    /// # Errors
    /// One sentence: no memory, an address twice, a gateway that is not on a network of ours,
    /// limits of TCP that do not add up.
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

    /// What of the pool is not the app's and not that of connections.
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

/// Why there is no worker. Nothing is left behind.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerBuilderError {
    /// The queue cannot be opened.
    Device(DeviceError),
    /// The host cannot be as it was described.
    Host(HostError),
    /// The limits of TCP do not add up.
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
