//! A worker on one end of a wire in memory, and an injector that pushes frames in at the other end:
//! the whole pipeline, from the device to the app and back out. Packets are accounted for by the
//! public counters alone.
//!
//! ```text
//!   hand ── wire ── device (with faults, or plain) ── worker: Ethernet ─ Ipv4 ─ Udp ─ Listener ── wire ── hand
//! ```
//! The nodes are those of a listener that is not a host, or those that the argument of
//! [`Rig::with_nodes`] builds.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::counters::{self, Block, Class, Reading, Sample, Scope, Snapshot};
use wirepath::device::memory::{self, MemoryConfig, MemoryDevice, MemoryRx, MemoryTx};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{BURST_MAX, Burst, Held, Mbuf, Pool};
use wirepath::pipeline::{
    AcceptedDestinations, App, Cx, Datagram, EgressConfig, Ipv4Config, Node, StackConfig, UdpConfig, UdpFlow,
    UdpOptions, UdpStack, Vlans, udp_stack,
};
use wirepath::proto::{
    ConsumerId, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, ReassemblyCapacity, SocketCapacity,
    UdpSockets,
};
use wirepath::time::{Duration, Instant};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::{Parts, Worker};

/// The worker's address.
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The host that sends, and gets the answers.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The worker's station.
pub const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// The peer's station.
pub const PEER_STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// How long fragments wait.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_millis(5);

/// The worker under test, on a queue `Q` and with the nodes `N`.
pub type RigWorker<Q, N = UdpStack> = Worker<<Q as Queue>::Rx, <Q as Queue>::Tx, N, Listener>;
/// The secret of all tables.
pub const SEED: HashSeed = HashSeed::new(11, 13);

/// How tight things are.
#[derive(Clone, Copy, Debug)]
pub struct RigConfig {
    /// Buffers in the worker's pool.
    pub buffers: usize,
    /// Frames that the wire holds in each direction.
    pub slots: u32,
    /// How many fragments may wait.
    pub reassembly: ReassemblyCapacity,
    /// Datagrams that the app keeps, the newest ones.
    pub held_max: usize,
    /// The app answers every datagram.
    pub answers: bool,
}

impl Default for RigConfig {
    fn default() -> Self {
        let reassembly = ReassemblyCapacity { datagrams: 4, pieces: 16, pieces_per_datagram: 8 };
        Self { buffers: 64, slots: 32, reassembly, held_max: 0, answers: false }
    }
}

/// The app: counts, keeps some datagrams, answers.
pub struct Listener {
    /// Datagrams that it was given, one for each consumer.
    pub deliveries: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// The datagrams that it keeps.
    pub held: VecDeque<Held>,
    held_max: usize,
    answer: Option<UdpFlow>,
}

impl App for Listener {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.deliveries += 1;
        self.bytes += datagram.payload.len() as u64;
        if self.held_max > 0 {
            self.held.truncate(self.held_max - 1);
            self.held.push_front(datagram.hold());
        }
        if let Some(flow) = &mut self.answer {
            // The egress counts a full ring or an empty pool; there is no caller to notify.
            let _ = flow.send(&datagram.payload[..datagram.payload.len().min(1_000)], cx);
        }
    }
}

/// The worker, the hand, and the counters of both.
pub struct Rig<Q: Queue, N: Node<Listener> = UdpStack> {
    // In the order in which they are dropped.
    /// The worker.
    pub worker: RigWorker<Q, N>,
    hand_rx: MemoryRx,
    hand_tx: MemoryTx,
    hand_pool: Pool,
    /// Frames that the empty wire takes.
    wire_room: usize,
    block: Block,
    now: Instant,
}

impl<Q: Queue> Rig<Q> {
    /// A rig whose worker has the queue of the device that `wrap` makes of its end of the wire.
    pub fn new<D: Device<Queue = Q>>(config: RigConfig, wrap: impl FnOnce(MemoryDevice) -> D) -> Self {
        Self::with_nodes(config, wrap, EgressConfig::quiet(SEED), |_, scope| stack(config.reassembly, scope))
    }
}

impl<Q: Queue, N: Node<Listener>> Rig<Q, N> {
    /// A rig with another way out, and the nodes that `build` makes for its host.
    pub fn with_nodes<D: Device<Queue = Q>>(
        config: RigConfig,
        wrap: impl FnOnce(MemoryDevice) -> D,
        egress: EgressConfig,
        build: impl FnOnce(&Host, &Scope) -> N,
    ) -> Self {
        let block = Block::heap_of(counters::Capacity { entries: 1_024, values: 4_096 });
        let wire = MemoryConfig { slots: config.slots, ..MemoryConfig::default() };
        let (mut outside, inside) = memory::pair("wire", wire);
        // Long frames stay in their buffers while they are on the wire.
        let hand_pool = Pool::heap(BURST_MAX + (config.slots as usize).next_power_of_two()).expect("the heap has room");
        let open = "the port has one queue";
        let queue = outside.take_queue(0).expect(open);
        let (hand_rx, mut hand_tx) = queue.open(&hand_pool, &block.scope("hand")).expect(open);
        let worker = worker(config, wrap(inside), egress, build, &block.scope("worker0"));
        block.check().expect("the block has room for every counter");
        let wire_room = hand_tx.room();
        Self { worker, hand_rx, hand_tx, hand_pool, wire_room, block, now: Instant::from_nanos(1) }
    }

    /// Puts a frame on the wire; false where the wire is full. Longer ones than it carries end
    /// there, counted.
    pub fn inject(&mut self, frame: &[u8]) -> bool {
        self.hand_tx.reap();
        let Some(mbuf) = self.hand_pool.alloc_copy(frame) else { return false };
        let taken = self.hand_tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).is_ok();
        self.hand_tx.ring_doorbell(self.now);
        taken
    }

    /// Lets time pass, then turns the worker once.
    pub fn poll(&mut self, after: Duration) -> usize {
        self.now += after;
        self.worker.poll_once(self.now)
    }

    /// Takes the frames that the worker sent off the wire, and passes them to `take`.
    pub fn take_sent(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let mut burst = Burst::new();
        let count = self.hand_rx.receive(&mut burst, BURST_MAX, &self.hand_pool, self.now);
        for mbuf in burst.drain(..) {
            take(mbuf.bytes());
            mbuf.free();
        }
        count
    }

    /// Turns the worker until all frames are through and all that waited has run out of time.
    pub fn settle(&mut self) {
        self.worker.with_app(self.now, |app, _| {
            app.held_max = 0;
            app.held.clear();
        });
        // A ring that faults made full is stalled for up to 33 turns. With a pool of one buffer,
        // each fragment waits for the one before it to run out of time.
        let mut quiet = 0;
        while quiet < 40 {
            let received = self.poll(Duration::from_millis(1));
            let sent = self.take_sent(|_| ());
            let is_wire_empty = self.hand_tx.room() == self.wire_room;
            quiet = if is_wire_empty && received + sent + self.worker.kept() == 0 { quiet + 1 } else { 0 };
        }
    }

    /// Acts as the app does, outside a turn.
    pub fn with_app<T>(&mut self, act: impl FnOnce(&mut Listener, &mut Cx<'_>) -> T) -> T {
        self.worker.with_app(self.now, act)
    }

    /// All counters.
    pub fn snapshot(&self) -> Snapshot {
        self.block.snapshot()
    }

    /// received = delivered + Σ named drops + still held, as far as frames have come into the
    /// pipeline.
    ///
    /// Of the fragments of a complete datagram one is handed on; the others are merged into it. Our
    /// own frames that wait for their neighbor are held too, but were not received.
    pub fn assert_conserved(&self) {
        let snapshot = self.snapshot();
        let sum = |suffix: &str| sum(&snapshot, suffix);
        let received = count(&snapshot, "worker0/frames");
        let entered = sum("/ethernet/frames") + drops(&snapshot, |drop| drop.name.contains("/trunk/"));
        assert_eq!(received, entered, "a frame was lost on the way to the pipeline");
        let kept = self.worker.kept() as u64 - sum("/neighbors/waiting");
        assert_eq!(received, ended(&snapshot) + kept, "{}", table(&snapshot));
        let deliveries = sum("/udp/datagrams") + sum("/udp/copies");
        assert_eq!(deliveries, self.worker.app().deliveries);
        assert_eq!(self.worker.pool().drops_without_reason(), 0, "an mbuf ended without a reason");
    }

    /// After [`Rig::settle`]: all frames from the wire, and those that faults added, were delivered
    /// or dropped by name. All frames of the app are on the wire or dropped by name. No packet is
    /// held, and all buffers are free except the `stock` that a device keeps for itself.
    pub fn assert_settled(&self, stock: usize) {
        self.assert_rx_settled(stock);
        let snapshot = self.snapshot();
        let count = |name: &str| count(&snapshot, name);
        let sent = count("worker0/egress/frames") + count_or_zero(&snapshot, "worker0/device/fault/tx/duplicated");
        let ended = count("worker0/device/tx/frames")
            + drops(&snapshot, |drop| drop.name.contains("/device/") && drop.class == Class::TxDrop);
        assert_eq!(sent, ended, "{}", table(&snapshot));
    }

    /// The receiving half of [`Rig::assert_settled`], for nodes that send by themselves.
    pub fn assert_rx_settled(&self, stock: usize) {
        self.assert_conserved();
        let snapshot = self.snapshot();
        let entered =
            count(&snapshot, "hand/tx/frames") + count_or_zero(&snapshot, "worker0/device/fault/rx/duplicated");
        let refused = drops(&snapshot, |drop| drop.name.contains("/device/") && drop.class == Class::RxDrop);
        assert_eq!(entered, ended(&snapshot) + refused, "{}", table(&snapshot));
        assert_eq!(self.worker.kept(), 0);
        assert_eq!(self.worker.pool().in_use(), stock, "buffers went astray");
    }
}

/// Frames that came into the pipeline and have ended: delivered, merged, taken by a node, or
/// dropped by name.
fn ended(snapshot: &Snapshot) -> u64 {
    let is_of_the_pipeline = |drop: &Sample| drop.class == Class::RxDrop && !drop.name.contains("/device/");
    // These two count drops among the packets that they have counted as received.
    let counts_all = |name: &str| ["/arp/", "/icmp/"].iter().any(|node| name.contains(node) && has_all(snapshot, name));
    let delivered = sum(snapshot, "/udp/datagrams") + sum(snapshot, "/ipv4/fragments_merged");
    let taken =
        ["/arp/packets", "/icmp/messages", "/igmp/messages"].iter().map(|node| sum(snapshot, node)).sum::<u64>();
    delivered + taken + drops(snapshot, |drop| is_of_the_pipeline(drop) && !counts_all(&drop.name))
}

/// Whether the node of a drop counts all that comes to it.
fn has_all(snapshot: &Snapshot, drop: &str) -> bool {
    let node = drop.split("/drop/").next().unwrap_or(drop);
    ["packets", "messages"].iter().any(|all| snapshot.count(&format!("{node}/{all}")).is_some())
}

/// The sum of the counters of one name, in all scopes of the worker.
pub fn sum(snapshot: &Snapshot, suffix: &str) -> u64 {
    sum_of(snapshot, |sample| sample.name.ends_with(suffix))
}

/// The sum of the drops that `of` selects, without those of the injector.
pub fn drops(snapshot: &Snapshot, of: impl Fn(&Sample) -> bool) -> u64 {
    sum_of(snapshot, |sample| sample.class.is_drop() && of(sample))
}

fn sum_of(snapshot: &Snapshot, of: impl Fn(&Sample) -> bool) -> u64 {
    let of_the_worker = snapshot.samples.iter().filter(|sample| sample.name.starts_with("worker0/") && of(sample));
    let values = of_the_worker.map(|sample| match sample.reading {
        Reading::Counter(value) | Reading::Gauge(value) => value,
        Reading::Text(_) | Reading::Histogram(_) => 0,
    });
    values.sum()
}

fn count(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.count(name).unwrap_or_else(|| panic!("no counter {name} among these:\n{}", table(snapshot)))
}

fn count_or_zero(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.count(name).unwrap_or(0)
}

/// All counters that are not zero, for the message of a failed check.
pub fn table(snapshot: &Snapshot) -> String {
    let names = snapshot.samples.iter().map(|sample| sample.name.as_str());
    let rows = names.filter_map(|name| snapshot.count(name).filter(|value| *value > 0).map(|value| (name, value)));
    rows.map(|(name, value)| format!("{value:>8} {name}\n")).collect()
}

fn worker<D: Device, N: Node<Listener>>(
    config: RigConfig,
    mut device: D,
    egress: EgressConfig,
    build: impl FnOnce(&Host, &Scope) -> N,
    scope: &Scope,
) -> RigWorker<D::Queue, N> {
    let pool = Pool::heap(config.buffers).expect("the heap has room");
    let queue = device.take_queue(0).expect("the port has a queue");
    let (rx, tx) = queue.open(&pool, &scope.scope("device")).expect("buffers of the default size hold its frames");
    let host = host(InterfaceId(0), VlanTags::NONE);
    let capacity = SocketCapacity { locals: 32, bindings: 64, connections: 8, sources: 64 };
    let app = Listener {
        deliveries: 0,
        bytes: 0,
        held: VecDeque::with_capacity(config.held_max),
        held_max: config.held_max,
        answer: None,
    };
    let pipeline = build(&host, scope);
    let sockets = UdpSockets::new(capacity, SEED);
    let mut worker = Worker::new(Parts { rx, tx, pipeline, app, pool, host, sockets, egress, burst_len: 32 }, scope);
    if config.answers {
        worker.with_app(Instant::ZERO, |app, cx| {
            let local = SocketAddrV4::new(OURS, 5_000);
            let flow = UdpFlow::connect(local, SocketAddrV4::new(PEER, 5_001), &UdpOptions::default(), cx);
            app.answer = Some(flow.expect("the peer is a neighbor"));
        });
    }
    worker
}

/// The IPv4 node of the rigs.
pub fn ipv4(reassembly: ReassemblyCapacity) -> Ipv4Config {
    Ipv4Config {
        accept: AcceptedDestinations::LocalAddresses,
        reassembly,
        reassembly_timeout: REASSEMBLY_TIMEOUT,
        ..Ipv4Config::new(SEED)
    }
}

fn stack(reassembly: ReassemblyCapacity, scope: &Scope) -> UdpStack {
    let ipv4 = ipv4(reassembly);
    udp_stack(StackConfig { station: Some(STATION), vlans: Vlans::Any, ipv4, udp: UdpConfig::default() }, scope)
}

/// Our end of an interface: its address, and the peer as a neighbor.
pub fn host(interface: InterfaceId, vlan: VlanTags) -> Host {
    let config =
        HostConfig { interface, mac: STATION, vlan, mtu: 1500, addresses_max: 2, routes_max: 4, neighbors_max: 64 };
    let mut host = Host::new(config, SEED).expect("the MTU is large enough");
    let network = Ipv4Prefix::new(OURS, 24).expect("24 bits are a prefix");
    for event in [HostEvent::AddressAdded(network), HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }] {
        host.apply(event).expect("the host has room");
    }
    host
}

/// A consumer by number.
pub fn consumer(number: u8) -> ConsumerId {
    ConsumerId(number.into())
}
