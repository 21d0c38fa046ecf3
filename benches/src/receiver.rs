//! The product's receive path as a value: a memory device, [`Worker::poll_once`], Ethernet, IPv4,
//! UDP, and an app that reads each payload.

use std::time;

use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryRx, MemoryTx, pair};
use wirepath::device::{Device, Queue};
use wirepath::mem::{BURST_MAX, Pool};
use wirepath::pipeline::{
    App, Cx, Datagram, EgressConfig, Ipv4Config, StackConfig, UdpConfig, UdpStack, Vlans, udp_stack,
};
use wirepath::proto::{
    ConsumerId, Group, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, SocketCapacity, UdpSockets,
};
use wirepath::time::Instant;
use wirepath::wire::VlanTags;
use wirepath::worker::{Parts, Worker};

use crate::feeder::Feeder;
use crate::frames::{OUR_MAC, OURS, PAYLOAD_LEN, SENDER, SENDER_MAC, UdpChecksum, frame, group, shuffled};

/// Frames that are put onto the wire at a time: all slots of a default memory device.
pub const ROUND: usize = 256;

/// The traffic of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Reception {
    /// Joined groups; all get equally many frames.
    pub groups: u32,
    /// Consumers that join each group.
    pub consumers: u32,
    /// Whether each consumer names the one source that it wants.
    pub source_specific: bool,
    /// Bytes of each payload.
    pub payload_len: usize,
    /// Whether there is a UDP checksum to verify.
    pub checksum: UdpChecksum,
    /// Frames that one turn receives at most.
    pub burst_len: usize,
}

impl Default for Reception {
    /// The first line of the table: one consumer in one group from any source, frames of 64 bytes,
    /// bursts of 32, and no UDP checksum, the conditions of the plain C floor.
    fn default() -> Self {
        Self {
            groups: 1,
            consumers: 1,
            source_specific: false,
            payload_len: PAYLOAD_LEN,
            checksum: UdpChecksum::Zero,
            burst_len: 32,
        }
    }
}

/// The app: it reads the payload of each datagram.
#[derive(Debug, Default)]
pub struct DigestApp {
    /// Datagrams.
    pub received: u64,
    /// A digest of the payloads, so that the compiler omits no read.
    pub digest: u64,
}

impl App for DigestApp {
    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
        self.received += 1;
        let first = datagram.payload.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        self.digest = self.digest.wrapping_add(first) ^ u64::from(datagram.consumer.0);
    }
}

/// A worker with this app, and the far end of its wire.
pub struct Receiver<A = DigestApp> {
    worker: Worker<MemoryRx, MemoryTx, UdpStack, A>,
    feeder: Feeder,
    now: Instant,
}

impl Receiver<DigestApp> {
    /// Everything allocated and joined, nothing received.
    pub fn new(reception: Reception) -> Self {
        let (port, far_port) = pair("bench", MemoryConfig::default());
        let block = Block::heap();
        let order = shuffled(reception.groups, 4096, 1);
        let frames =
            (0..reception.groups).map(|idx| frame(group(idx), reception.payload_len, reception.checksum)).collect();
        let feeder = Feeder::new(far_port, frames, order, &block.scope("feeder"));
        let sockets = sockets(reception, HashSeed::new(1, 2));
        let worker = worker(port, DigestApp::default(), sockets, reception.burst_len, &block);
        Self::of(worker, feeder)
    }

    /// The app's results.
    pub fn app(&self) -> &DigestApp {
        self.worker.app()
    }
}

impl<A: App> Receiver<A> {
    /// The receiver with a worker and the device that feeds it.
    pub(crate) fn of(worker: Worker<MemoryRx, MemoryTx, UdpStack, A>, feeder: Feeder) -> Self {
        Self { worker, feeder, now: Instant::ZERO }
    }

    /// Fills the wire: [`ROUND`] frames. Not measured.
    pub fn feed(&mut self) {
        self.feeder.feed(ROUND);
    }

    /// Measured: turns of the loop until a full wire is empty.
    #[inline(never)]
    pub fn drain(&mut self) {
        let mut left = ROUND;
        while left > 0 {
            self.now = Instant::from_nanos(self.now.as_nanos() + 500);
            left -= self.worker.poll_once(self.now);
        }
    }

    /// A turn of the loop without a frame.
    #[inline(never)]
    pub fn idle(&mut self) {
        self.now = Instant::from_nanos(self.now.as_nanos() + 20);
        self.worker.poll_once(self.now);
    }

    /// Feeds and drains `rounds` times; nanoseconds a packet in `drain`.
    pub fn time(&mut self, rounds: usize) -> f64 {
        let mut spent = time::Duration::ZERO;
        for _ in 0..rounds {
            self.feed();
            let start = time::Instant::now();
            self.drain();
            spent += start.elapsed();
        }
        spent.as_nanos() as f64 / (rounds * ROUND) as f64
    }

    /// Lets the app act, to send for example.
    pub fn with_app<T>(&mut self, act: impl FnOnce(&mut A, &mut Cx<'_>) -> T) -> T {
        self.worker.with_app(self.now, act)
    }

    /// Takes the frames that the app has sent off the wire.
    pub fn drain_sent(&mut self) -> usize {
        self.feeder.drain()
    }
}

/// A worker on a memory device, whose app gets the datagrams of its sockets.
pub(crate) fn worker<A: App>(
    mut port: impl Device<Queue: Queue<Rx = MemoryRx, Tx = MemoryTx>>,
    app: A,
    sockets: UdpSockets,
    burst_len: usize,
    block: &Block,
) -> Worker<MemoryRx, MemoryTx, UdpStack, A> {
    let seed = HashSeed::new(1, 2);
    let scope = block.scope("worker0");
    let pool = Pool::heap(BURST_MAX + ROUND).expect("some hundred buffers are 600 KB");
    let queue = port.take_queue(0).expect("a fresh port has its queue");
    let (rx, tx) = queue.open(&pool, &scope).expect("the default pool holds the port's frames");
    let config = StackConfig {
        station: Some(OUR_MAC),
        vlans: Vlans::Any,
        ipv4: Ipv4Config::new(seed),
        udp: UdpConfig::default(),
    };
    let parts = Parts {
        rx,
        tx,
        pipeline: udp_stack(config, &scope),
        app,
        pool,
        host: host(seed),
        sockets,
        egress: EgressConfig::quiet(seed),
        burst_len,
    };
    let worker = Worker::new(parts, &scope);
    block.check().expect("the default block has room for one worker");
    worker
}

/// The consumers of all groups, with the capacity for a large venue.
fn sockets(reception: Reception, seed: HashSeed) -> UdpSockets {
    let mut sockets = UdpSockets::new(SocketCapacity::default(), seed);
    for idx in 0..reception.groups {
        let end = group(idx);
        for consumer in 0..reception.consumers {
            let group = Group::new(*end.ip(), end.port());
            let joined = if reception.source_specific {
                sockets.join_source(ConsumerId(consumer), group, *SENDER.ip())
            } else {
                sockets.join(ConsumerId(consumer), group)
            };
            joined.expect("the default capacity is a large venue's");
        }
    }
    sockets
}

/// One interface with one neighbor, the sender.
fn host(seed: HashSeed) -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: OUR_MAC,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 4,
        routes_max: 4,
        neighbors_max: 4,
    };
    let mut host = Host::new(config, seed).expect("the configuration is valid");
    let network = Ipv4Prefix::new(OURS, 24).expect("24 bits are a prefix");
    let events = [HostEvent::AddressAdded(network), HostEvent::NeighborSet { address: *SENDER.ip(), mac: SENDER_MAC }];
    for event in events {
        host.apply(event).expect("there is room for one of each");
    }
    host
}
