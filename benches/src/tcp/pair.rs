//! The product's TCP: two workers with a connection between them.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time;

use wirepath::counters::{Block, Scope};
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::device::{Device, Queue};
use wirepath::mem::{BURST_MAX, Layout, Pool, Region};
use wirepath::pipeline::tcp::{
    ConnectionId, ConnectionOptions, ListenOptions, Tcp, TcpConfig, TcpData, TcpEvent, TcpNodeConfig, TcpSockets,
    TcpSocketsConfig,
};
use wirepath::pipeline::{
    App, Cx, Datagram, EgressConfig, Ethernet, Ipv4, Ipv4Config, Ipv4Successors, Udp, UdpConfig, Unhandled, Vlans,
};
use wirepath::proto::{
    ConsumerId, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, Route, SocketCapacity, UdpSockets,
};
use wirepath::time::{Duration, Instant};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::{Parts, Worker};

use super::{BUFFER_LEN, CHUNK_LEN, Checksums, MESSAGE_LEN, wire};

/// The tree.
pub type Stack = Ethernet<Ipv4<Udp, Unhandled, Unhandled, Tcp>, Unhandled>;
/// An end.
pub type End = Worker<MemoryRx, MemoryTx, Stack, Talker>;

/// The server's address and port.
pub const SERVER: SocketAddrV4 = SocketAddrV4::new(address(2), 80);

/// The time at which all begins.
pub(super) const START: Instant = Instant::from_nanos(1_000_000_000);
/// Frames of a turn without bulk transfer.
pub(super) const BURST_LEN: usize = 32;

/// The app's work on its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Counts received bytes.
    Sink,
    /// Sends received bytes back.
    Echo,
}

/// The app of an end.
pub struct Talker {
    role: Role,
    /// Bytes received.
    pub received: usize,
    /// Connections, in the order in which they were created.
    pub connections: Vec<ConnectionId>,
}

impl App for Talker {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        if let TcpEvent::Connected { .. } = event {
            self.connections.push(connection);
        }
    }

    #[inline]
    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        self.received += data.payload.len();
        if self.role == Role::Echo {
            cx.tcp().send(data.connection, data.payload).expect("an echo is no longer than what the peer sent");
        }
    }
}

/// Two ends on one core.
pub struct TcpPair {
    /// The connecting end.
    pub client: End,
    /// The listening end.
    pub server: End,
    now: Instant,
    chunk: Vec<u8>,
}

/// The configuration of a pair.
#[derive(Clone, Copy, Debug)]
pub struct PairConfig {
    /// The handling of checksums.
    pub checksums: Checksums,
    /// The role of the server's app.
    pub server: Role,
    /// The place of segmentation.
    pub cuts: Cuts,
}

/// The place of segmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// The device, like a NIC that also verifies the checksums of received frames. The client's
    /// buffers hold [`CHUNK_LEN`].
    Device,
    /// TCP.
    Tcp,
}

impl PairConfig {
    /// A wire on which TCP cuts.
    pub fn one(checksums: Checksums, server: Role) -> Self {
        Self { checksums, server, cuts: Cuts::Tcp }
    }

    /// Frames of a turn. A bulk transfer spreads the cost of a turn and its acknowledgment over as
    /// many frames as possible; with 32, the answer to an order waits for fewer frames.
    fn burst_len(&self) -> usize {
        match self.cuts {
            Cuts::Device => BURST_MAX,
            Cuts::Tcp => BURST_LEN,
        }
    }
}

impl TcpPair {
    /// Connected, and nothing sent.
    pub fn new(config: PairConfig) -> Self {
        let segments = config.cuts == Cuts::Device;
        // A NIC that cuts also handles checksums.
        let offloads = MemoryConfig { segments, verifies_checksums: segments, ..wire(config.checksums) };
        let (left, right) = pair("tcp", offloads);
        let usual = EndConfig { host: 1, role: Role::Sink, connections: 1, burst_len: config.burst_len() };
        let client = end(left, sending_pool(config.cuts), &usual);
        let server = end(right, short_buffers(), &EndConfig { host: 2, role: config.server, ..usual });
        let mut pair = Self { client, server, now: START, chunk: vec![7; CHUNK_LEN] };
        listen(&mut pair.server, 1, &ListenOptions { connection: options(), ..ListenOptions::default() });
        pair.client.with_app(START, |_, cx| {
            let local = SocketAddrV4::new(address(1), 1_024);
            cx.tcp().connect(local, SERVER, &options(), ConsumerId(0)).expect("the port is free")
        });
        (0..10).for_each(|_| pair.turn());
        assert_eq!(pair.client.app().connections.len(), 1, "connected");
        pair
    }

    /// Gbit/s from one app to the other.
    pub fn bulk(&mut self, bytes: usize) -> f64 {
        let start = time::Instant::now();
        let before = self.server.app().received;
        while self.server.app().received - before < bytes {
            self.fill();
            self.turn();
        }
        8.0 * (self.server.app().received - before) as f64 / start.elapsed().as_nanos() as f64
    }

    /// Passes as much to the client's connection as it accepts.
    #[inline(never)]
    fn fill(&mut self) {
        let Self { client, chunk, now, .. } = self;
        client.with_app(*now, |app, cx| while matches!(cx.tcp().send(app.connections[0], chunk), Ok(1..)) {});
    }

    /// Nanoseconds for a request and its response, both ends.
    pub fn round_trip(&mut self, count: usize) -> f64 {
        let start = time::Instant::now();
        for _ in 0..count {
            self.exchange();
        }
        start.elapsed().as_nanos() as f64 / count as f64
    }

    /// A request and its response.
    #[inline(never)]
    pub fn exchange(&mut self) {
        let before = self.client.app().received;
        self.client.with_app(self.now, |app, cx| {
            cx.tcp().send(app.connections[0], &[7; MESSAGE_LEN]).expect("the connection is open");
        });
        self.turn_server();
        self.turn_client();
        assert_eq!(self.client.app().received - before, MESSAGE_LEN, "the response is there at once");
    }

    /// A turn of each end.
    pub fn turn(&mut self) {
        self.turn_client();
        self.turn_server();
    }

    /// A turn of the client.
    pub fn turn_client(&mut self) -> usize {
        self.now += Duration::from_micros(1);
        self.client.poll_once(self.now)
    }

    /// A turn of the server.
    pub fn turn_server(&mut self) -> usize {
        self.now += Duration::from_micros(1);
        self.server.poll_once(self.now)
    }

    /// The present.
    pub fn now(&self) -> Instant {
        self.now
    }
}

/// The address of a host.
pub(super) const fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

/// The options of all connections of the benches.
pub(super) fn options() -> ConnectionOptions {
    let buffer = BUFFER_LEN as u32;
    ConnectionOptions { send_buffer: buffer, receive_buffer: buffer, ..ConnectionOptions::default() }
}

/// Has a server listen on so many ports from 80 on.
pub(super) fn listen(server: &mut End, ports: u16, options: &ListenOptions) {
    server.with_app(START, |_, cx| {
        for port in 0..ports {
            let local = SocketAddrV4::new(*SERVER.ip(), SERVER.port() + port);
            cx.tcp().listen(local, options).expect("the port is free");
        }
    });
}

/// The configuration of an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndConfig {
    /// The last number of its address, and of its MAC address.
    pub host: u8,
    /// The role of its app.
    pub role: Role,
    /// The most connections.
    pub connections: usize,
    /// Frames of a turn.
    pub burst_len: usize,
}

/// An end with its own address, and the other one as a neighbor.
pub(super) fn end(mut port: MemoryDevice, pool: Pool, config: &EndConfig) -> End {
    let &EndConfig { host, role, connections, burst_len } = config;
    let block = Block::heap();
    let scope = block.scope("end");
    let capabilities = port.capabilities();
    let queue = port.take_queue(0).expect("a fresh port has its queue");
    let (rx, tx) = queue.open(&pool, &scope).expect("the default pool holds the port's frames");
    let seed = HashSeed::new(host.into(), 7);
    let machine = TcpConfig { connections_max: connections, active_open_reserve: Some(0), ..TcpConfig::default() };
    let sockets = TcpSocketsConfig { machine, capabilities, seed };
    let parts = Parts {
        rx,
        tx,
        pipeline: stack(host, seed, &scope),
        app: Talker { role, received: 0, connections: Vec::with_capacity(connections) },
        pool,
        host: host_with_peer(host, seed),
        sockets: UdpSockets::new(SocketCapacity::default(), seed),
        egress: EgressConfig::quiet(seed),
        burst_len,
    };
    Worker::new(parts, &scope).with_tcp(TcpSockets::new(&sockets, &scope).expect("the limits add up"))
}

/// Buffers for a frame of the MTU each.
pub(super) fn short_buffers() -> Pool {
    Pool::heap(4096).expect("4096 buffers are 8 MB")
}

/// Where the device cuts, buffers for a chunk each: a few, because few are in flight, and some for
/// acknowledgments.
fn sending_pool(cuts: Cuts) -> Pool {
    if cuts == Cuts::Tcp {
        return short_buffers();
    }
    let layout = Layout::for_frames(CHUNK_LEN);
    let region = Region::heap(layout.region_len(256)).expect("256 buffers are 16 MB, of which few are touched");
    Pool::new(Arc::new(region), layout).expect("a fresh region has no pool")
}

/// The MAC address of an end.
pub const fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

fn stack(host: u8, seed: HashSeed, scope: &Scope) -> Stack {
    let next = Ipv4Successors {
        udp: Udp::new(UdpConfig::default(), scope),
        icmp: Unhandled::new("icmp", scope),
        igmp: Unhandled::new("igmp", scope),
        tcp: Tcp::new(TcpNodeConfig::default(), scope),
    };
    let ipv4 = Ipv4::new(Ipv4Config::new(seed), next, scope);
    Ethernet::new(Some(mac(host)), Vlans::Untagged, ipv4, Unhandled::new("arp", scope), scope)
}

/// A host with its own address, and with the other end as a neighbor and as the gateway for random
/// sources.
fn host_with_peer(host: u8, seed: HashSeed) -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: mac(host),
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 2,
        neighbors_max: 2,
    };
    let own = Ipv4Prefix::new(address(host), 24).expect("24 bits are a prefix");
    let peer = HostEvent::NeighborSet { address: address(3 - host), mac: mac(3 - host) };
    let strangers = HostEvent::RouteAdded(Route {
        network: Ipv4Prefix::new(Ipv4Addr::UNSPECIFIED, 0).expect("no bits are a prefix"),
        gateway: Some(address(3 - host)),
        source: address(host),
        metric: 0,
    });
    let mut host = Host::new(config, seed).expect("there is room");
    for event in [HostEvent::AddressAdded(own), peer, strangers, HostEvent::Link { is_up: true }] {
        host.apply(event).expect("there is room");
    }
    host
}
