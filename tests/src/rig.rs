//! A worker on one end of a wire in memory and a hand that pushes frames in at the other: the whole pipeline, from the
//! device to the app and back out, with the books of packets kept by the public counters alone.
//!
//! ```text
//!   hand ── wire ── device (with faults, or plain) ── worker: Ethernet ─ Ipv4 ─ Udp ─ Listener ── wire ── hand
//! ```

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::counters::{self, Block, Scope, Snapshot};
use wirepath::device::memory::{self, MemoryConfig, MemoryDevice, MemoryRx, MemoryTx};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{BURST_MAX, Burst, Held, Mbuf, Pool};
use wirepath::pipeline::{
    Accept, App, Cx, Datagram, EgressConfig, Ipv4Config, StackConfig, UdpApp, UdpConfig, UdpFlow, UdpOptions, UdpStack,
    Vlans, udp_stack,
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
/// Who sends, and gets the answers.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The worker's station.
pub const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// The peer's station.
pub const PEER_STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// How long fragments wait.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_millis(5);

/// The worker under test, on a queue `Q`.
pub type RigWorker<Q> = Worker<<Q as Queue>::Rx, <Q as Queue>::Tx, UdpStack, Listener>;

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
    /// What it keeps.
    pub held: VecDeque<Held>,
    held_max: usize,
    answer: Option<UdpFlow>,
}

impl App for Listener {}

impl UdpApp for Listener {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.deliveries += 1;
        self.bytes += datagram.payload.len() as u64;
        if self.held_max > 0 {
            self.held.truncate(self.held_max - 1);
            self.held.push_front(datagram.hold());
        }
        if let Some(flow) = &mut self.answer {
            // A full ring or an empty pool is counted by the egress; there is nobody to tell.
            let _ = flow.send(&datagram.payload[..datagram.payload.len().min(1_000)], cx);
        }
    }
}

/// The worker, the hand, and the counters of both.
pub struct Rig<Q: Queue> {
    // In the order in which they are dropped.
    /// The worker.
    pub worker: RigWorker<Q>,
    hand_rx: MemoryRx,
    hand_tx: MemoryTx,
    hand_pool: Pool,
    /// Frames that the empty wire takes.
    wire_room: usize,
    block: Block,
    now: Instant,
}

impl<Q: Queue> Rig<Q> {
    /// A rig whose worker has the queue of what `wrap` makes of its end of the wire.
    pub fn new<D: Device<Queue = Q>>(config: RigConfig, wrap: impl FnOnce(MemoryDevice) -> D) -> Self {
        let block = Block::heap_of(counters::Capacity { entries: 256, values: 4_096 });
        let wire = MemoryConfig { slots: config.slots, ..MemoryConfig::default() };
        let (mut outside, inside) = memory::pair("wire", wire);
        let hand_pool = Pool::heap(BURST_MAX).expect("the heap has room");
        let open = "the port has one queue";
        let queue = outside.take_queue(0).expect(open);
        let (hand_rx, mut hand_tx) = queue.open(&hand_pool, &block.scope("hand")).expect(open);
        let worker = worker(config, wrap(inside), &block.scope("worker0"));
        block.check().expect("the block has room for every counter");
        let wire_room = hand_tx.room();
        Self { worker, hand_rx, hand_tx, hand_pool, wire_room, block, now: Instant::from_nanos(1) }
    }

    /// Puts a frame on the wire; false where the wire is full. Longer ones than it carries end there, counted.
    pub fn inject(&mut self, frame: &[u8]) -> bool {
        let Some(mbuf) = self.hand_pool.alloc_copy(frame) else { return false };
        let taken = self.hand_tx.post(mbuf, Offload::default()).map_err(Mbuf::free).is_ok();
        self.hand_tx.ring_doorbell(self.now);
        taken
    }

    /// Lets time pass, then turns the worker once.
    pub fn poll(&mut self, after: Duration) -> usize {
        self.now += after;
        self.worker.poll_once(self.now)
    }

    /// Takes what the worker sent off the wire, and gives it to `take`.
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
        // A ring that faults made full is stalled for up to 33 turns. With a pool of one buffer, each fragment waits for
        // the one before it to run out of time.
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

    /// received = delivered + Σ named drops + still held, as far as frames have come into the pipeline.
    ///
    /// Of the fragments of a whole datagram one goes on; the others are merged into it.
    pub fn assert_conserved(&self) {
        let snapshot = self.snapshot();
        let count = |name: &str| count(&snapshot, name);
        let dropped = drops(&snapshot, |name| !name.contains("/device/") && !name.contains("/egress/"));
        let delivered = count("worker0/udp/datagrams") + count("worker0/ipv4/fragments_merged");
        let received = count("worker0/frames");
        assert_eq!(received, count("worker0/ethernet/frames"), "a frame was lost on the way to the pipeline");
        assert_eq!(received, delivered + dropped + self.worker.kept() as u64, "{}", table(&snapshot));
        let deliveries = count("worker0/udp/datagrams") + count("worker0/udp/copies");
        assert_eq!(deliveries, self.worker.app().deliveries);
        assert_eq!(self.worker.pool().unnamed(), 0, "an mbuf ended without a name");
    }

    /// After [`Rig::settle`]: what went onto the wire, and what faults added, was delivered or dropped by name; what
    /// the app sent is on the wire or dropped by name; nothing is held, and all buffers are at home but the `stock`
    /// that a device keeps for itself.
    pub fn assert_settled(&self, stock: usize) {
        self.assert_conserved();
        let snapshot = self.snapshot();
        let count = |name: &str| count(&snapshot, name);
        let entered = count("hand/tx/frames") + count_or_zero(&snapshot, "worker0/device/fault/rx/duplicated");
        let delivered = count("worker0/udp/datagrams") + count("worker0/ipv4/fragments_merged");
        let dropped = drops(&snapshot, |name| !name.contains("/egress/") && !name.contains("/tx/"));
        assert_eq!(entered, delivered + dropped, "{}", table(&snapshot));

        let sent = count("worker0/egress/frames") + count_or_zero(&snapshot, "worker0/device/fault/tx/duplicated");
        let ended = count("worker0/device/tx/frames")
            + drops(&snapshot, |name| name.contains("/device/") && name.contains("/tx/"));
        assert_eq!(sent, ended, "{}", table(&snapshot));
        assert_eq!(self.worker.kept(), 0);
        assert_eq!(self.worker.pool().in_use(), stock, "buffers went astray");
    }
}

/// The sum of the drops whose names `of` wants. Those of the hand that feeds the wire are nobody's business.
fn drops(snapshot: &Snapshot, of: impl Fn(&str) -> bool) -> u64 {
    let is_drop = |name: &str| name.starts_with("worker0/") && name.contains("/drop/") && of(name);
    let names = snapshot.samples.iter().map(|sample| sample.name.as_str());
    names.filter(|name| is_drop(name)).map(|name| count(snapshot, name)).sum()
}

fn count(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.count(name).unwrap_or_else(|| panic!("no counter {name} among these:\n{}", table(snapshot)))
}

fn count_or_zero(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.count(name).unwrap_or(0)
}

/// All counters that are not zero, for the message of a failed check.
fn table(snapshot: &Snapshot) -> String {
    let names = snapshot.samples.iter().map(|sample| sample.name.as_str());
    let rows = names.filter_map(|name| snapshot.count(name).filter(|value| *value > 0).map(|value| (name, value)));
    rows.map(|(name, value)| format!("{value:>8} {name}\n")).collect()
}

fn worker<D: Device>(config: RigConfig, mut device: D, scope: &Scope) -> RigWorker<D::Queue> {
    let seed = HashSeed::new(11, 13);
    let pool = Pool::heap(config.buffers).expect("the heap has room");
    let queue = device.take_queue(0).expect("the port has a queue");
    let (rx, tx) = queue.open(&pool, &scope.scope("device")).expect("buffers of the default size hold its frames");
    let host = host(seed);
    let capacity = SocketCapacity { locals: 32, bindings: 64, connections: 8, sources: 64 };
    let app = Listener {
        deliveries: 0,
        bytes: 0,
        held: VecDeque::with_capacity(config.held_max),
        held_max: config.held_max,
        answer: None,
    };
    let pipeline = stack(config.reassembly, seed, scope);
    let sockets = UdpSockets::new(capacity, seed);
    let mut worker = Worker::new(
        Parts { rx, tx, pipeline, app, pool, host, sockets, egress: EgressConfig::quiet(seed), burst_len: 32 },
        scope,
    );
    if config.answers {
        worker.with_app(Instant::ZERO, |app, cx| {
            let local = SocketAddrV4::new(OURS, 5_000);
            let flow = UdpFlow::connect(local, SocketAddrV4::new(PEER, 5_001), &UdpOptions::default(), cx);
            app.answer = Some(flow.expect("the peer is a neighbour"));
        });
    }
    worker
}

fn stack(reassembly: ReassemblyCapacity, seed: HashSeed, scope: &Scope) -> UdpStack {
    let ipv4 =
        Ipv4Config { accept: Accept::Own, reassembly, reassembly_timeout: REASSEMBLY_TIMEOUT, ..Ipv4Config::new(seed) };
    udp_stack(StackConfig { station: Some(STATION), vlans: Vlans::Any, ipv4, udp: UdpConfig::default() }, scope)
}

fn host(seed: HashSeed) -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: STATION,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 2,
        routes_max: 2,
        neighbours_max: 2,
    };
    let mut host = Host::new(config, seed).expect("the MTU is large enough");
    let network = Ipv4Prefix::new(OURS, 24).expect("24 bits are a prefix");
    for event in [HostEvent::AddressAdded(network), HostEvent::NeighbourSet { address: PEER, mac: PEER_STATION }] {
        host.apply(event).expect("the host has room");
    }
    host
}

/// A consumer by number.
pub fn consumer(number: u8) -> ConsumerId {
    ConsumerId(number.into())
}
