//! Our end of a veth pair: a worker on an AF_XDP port, put together as an application would.

use core::net::SocketAddrV4;
use std::sync::Arc;

use wirepath::counters::{Block, Scope};
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice, AfXdpRx, AfXdpTx, Mode};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Queue, TxQueue};
use wirepath::mem::{Layout, Pool, Region};
use wirepath::pipeline::tcp::{Tcp, TcpConfig, TcpNodeConfig, TcpSockets, TcpSocketsConfig, TcpTally};
use wirepath::pipeline::{
    App, ChecksumPolicy, Cx, EgressConfig, Ethernet, Ipv4, Ipv4Config, Ipv4Successors, Node, StackConfig, Udp,
    UdpConfig, UdpStack, Unhandled, Vlans, udp_stack,
};
use wirepath::proto::{
    ConsumerId, Group, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, Sharing, SocketCapacity,
    UdpSockets,
};
use wirepath::time::{Clock, TscClock};
use wirepath::wire::{EtherType, VlanTags};
use wirepath::worker::{Parts, Worker};

use super::pair::End;

/// The most frames that wait in each direction, unless set otherwise. Their buffers of 2 KiB stay
/// in a core's L2 cache; those of the default, 2048 frames, do not, and a copy into memory costs
/// the kernel more than a copy into the cache.
pub const RING_LEN: u32 = 512;
/// Buffers for the worker, besides two full rings.
const SPARE_BUFFERS: usize = 256;
/// Chunks of data that wait in connections: more than the kernel's default window. Their buffers
/// are used last, so that a connection with little in flight stays in the cache.
const CHUNKS: usize = 4_096;
/// The seed of the worker's hashes.
pub const SEED: HashSeed = HashSeed::new(1, 2);

/// The place of a worker.
#[derive(Clone, Copy, Debug)]
pub struct PortSetup {
    /// Its end of the pair.
    pub ours: End,
    /// Its neighbor.
    pub peer: End,
    /// The XDP mode of the program on the interface.
    pub mode: Mode,
    /// Frames that may wait, either way.
    pub ring_len: u32,
}

/// A worker on a live port. Created and used on one thread, which is in the port's namespace.
pub struct Port<Tx, N, A> {
    worker: Worker<AfXdpRx, Tx, N, A>,
    clock: TscClock,
    _device: AfXdpDevice,
}

impl<Tx: TxQueue, N: Node<A>, A: App> Port<Tx, N, A> {
    /// Opens a port that receives frames of `rule`. `wrap` may wrap the sending half.
    ///
    /// # Errors
    /// Why the port does not open, in words.
    pub fn open(
        place: PortSetup,
        rule: &Rule,
        wrap: impl FnOnce(AfXdpTx) -> Tx,
        pipeline: impl FnOnce(&Scope) -> N,
        app: A,
    ) -> Result<Self, String> {
        Self::open_with(place, None, rule, wrap, pipeline, app)
    }

    /// As [`open`](Self::open), with connections.
    fn open_with(
        PortSetup { ours, peer, mode, ring_len }: PortSetup,
        machine: Option<TcpConfig>,
        rule: &Rule,
        wrap: impl FnOnce(AfXdpTx) -> Tx,
        pipeline: impl FnOnce(&Scope) -> N,
        app: A,
    ) -> Result<Self, String> {
        // Half of a pool may wait in connections.
        let buffers = 2 * ring_len as usize + SPARE_BUFFERS + machine.map_or(0, |machine| 2 * machine.chunks_max);
        let config =
            AfXdpConfig { rx_ring_len: ring_len, tx_ring_len: ring_len, mode, ..AfXdpConfig::new(ours.interface) };
        let layout = Layout::umem(2048);
        let region = Region::heap(layout.region_len(buffers)).map_err(|error| error.to_string())?;
        let pool = Pool::new(Arc::new(region), layout).map_err(|error| error.to_string())?;
        let mut device = AfXdpDevice::open(&config).map_err(|error| error.to_string())?;
        device.steer(rule, 0).map_err(|error| error.to_string())?;
        let block = Block::heap();
        let scope = block.scope("worker0");
        let capabilities = device.capabilities();
        let queue = device.take_queue(0).map_err(|error| error.to_string())?;
        let (rx, tx) = queue.open(&pool, &scope).map_err(|error| error.to_string())?;
        let parts = Parts {
            rx,
            tx: wrap(tx),
            pipeline: pipeline(&scope),
            app,
            pool,
            host: host(ours, peer),
            sockets: UdpSockets::new(SocketCapacity::default(), SEED),
            egress: EgressConfig::quiet(SEED),
            burst_len: 32,
        };
        let mut worker = Worker::new(parts, &scope);
        if let Some(machine) = machine {
            let sockets = TcpSocketsConfig { machine, capabilities, seed: SEED };
            worker = worker.with_tcp(TcpSockets::new(&sockets, &scope).map_err(|error| error.to_string())?);
        }
        block.check().map_err(|error| error.to_string())?;
        let clock = TscClock::start().ok_or("the processor's counter does not run evenly")?;
        let mut port = Self { worker, clock, _device: device };
        // The first turn activates the steering rules.
        port.turn();
        Ok(port)
    }

    /// One turn of the loop; returns the number of received frames.
    #[inline]
    pub fn turn(&mut self) -> usize {
        let now = self.clock.now();
        self.worker.poll_once(now)
    }

    /// Lets the app act outside a turn.
    #[inline]
    pub fn with_app<T>(&mut self, act: impl FnOnce(&mut A, &mut Cx<'_>) -> T) -> T {
        let now = self.clock.now();
        self.worker.with_app(now, act)
    }

    /// The app.
    pub fn app(&self) -> &A {
        self.worker.app()
    }

    /// The statistics of its connections.
    pub fn tally(&self) -> TcpTally {
        self.worker.tcp().tally()
    }
}

/// A port with the UDP stack, which receives datagrams to `local`: a group, or the address of
/// `ours`. XDP runs in generic mode, because a veth has no page frames of its own and in native
/// mode makes each by a copy (docs/decisions/0004).
///
/// # Errors
/// As [`Port::open`].
pub fn open_udp<A: App>(
    (ours, peer): (End, End),
    local: SocketAddrV4,
    app: A,
) -> Result<Port<AfXdpTx, UdpStack, A>, String> {
    let config = StackConfig {
        station: Some(ours.mac),
        vlans: Vlans::Any,
        ipv4: Ipv4Config::new(SEED),
        // A kernel leaves the checksums of frames over veth to a NIC that does not exist.
        udp: UdpConfig { checksum: ChecksumPolicy::AcceptPartial },
    };
    let rule = Rule::udp(*local.ip(), local.port());
    let place = PortSetup { ours, peer, mode: Mode::Generic, ring_len: RING_LEN };
    let mut port = Port::open(place, &rule, |tx| tx, |scope| udp_stack(config, scope), app)?;
    let taken = port.with_app(|_, cx| match local.ip().is_multicast() {
        true => cx.sockets.join(ConsumerId(0), Group::new(*local.ip(), local.port())),
        false => cx.sockets.bind(ConsumerId(0), local, Sharing::Exclusive).map(drop),
    });
    taken.map_err(|error| format!("{local}: {error}"))?;
    Ok(port)
}

/// The tree of a worker that only has connections: the kernel answers ARP and ICMP.
pub type TcpStack = Ethernet<Ipv4<Udp, Unhandled, Unhandled, Tcp>, Unhandled>;

/// A port with the TCP stack, which receives segments to our port `local`.
///
/// # Errors
/// As [`Port::open`].
pub fn open_tcp<A: App>(place: PortSetup, local: u16, app: A) -> Result<Port<AfXdpTx, TcpStack, A>, String> {
    open_tcp_with(place, &Rule::tcp(place.ours.address, local), |tx| tx, app)
}

/// The same for all packets to our address. `wrap` may wrap the sending half.
///
/// # Errors
/// As [`Port::open`].
pub fn open_all<Tx: TxQueue, A: App>(
    place: PortSetup,
    wrap: impl FnOnce(AfXdpTx) -> Tx,
    app: A,
) -> Result<Port<Tx, TcpStack, A>, String> {
    let rule = Rule { ethertype: Some(EtherType::IPV4), destination: Some(place.ours.address), ..Rule::ALL };
    open_tcp_with(place, &rule, wrap, app)
}

fn open_tcp_with<Tx: TxQueue, A: App>(
    place: PortSetup,
    rule: &Rule,
    wrap: impl FnOnce(AfXdpTx) -> Tx,
    app: A,
) -> Result<Port<Tx, TcpStack, A>, String> {
    let machine = TcpConfig { connections_max: 16, chunks_max: CHUNKS, ..TcpConfig::default() };
    // As for UDP above.
    let checksum = ChecksumPolicy::AcceptPartial;
    let stack = |scope: &Scope| {
        let next = Ipv4Successors {
            udp: Udp::new(UdpConfig { checksum }, scope),
            icmp: Unhandled::new("icmp", scope),
            igmp: Unhandled::new("igmp", scope),
            tcp: Tcp::new(TcpNodeConfig { checksum }, scope),
        };
        let ipv4 = Ipv4::new(Ipv4Config::new(SEED), next, scope);
        Ethernet::new(Some(place.ours.mac), Vlans::Any, ipv4, Unhandled::new("arp", scope), scope)
    };
    Port::open_with(place, Some(machine), rule, wrap, stack, app)
}

/// The interface's own address and its one neighbor.
fn host(ours: End, peer: End) -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: ours.mac,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 2,
        neighbors_max: 1,
    };
    let mut host = Host::new(config, SEED).expect("the configuration is valid");
    let network = Ipv4Prefix::new(ours.address, 24).expect("24 bits are a prefix");
    let neighbor = HostEvent::NeighborSet { address: peer.address, mac: peer.mac };
    for event in [HostEvent::AddressAdded(network), neighbor] {
        host.apply(event).expect("there is room for one of each");
    }
    host
}
