//! A host of ours against the Linux kernel: AF_XDP on one end of a cable, the kernel's stack on the
//! other, each in a network namespace of its own.
//!
//! ```text
//!  test ── acts ──▶ worker's thread in `near`: AF_XDP, host_stack, Recorder ── veth0 ═══ veth1 ── kernel in `far`
//!    └── sockets, ping, ip, tcpdump ───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The thread yields the processor when no frame came, because a machine of two cores also has to
//! run the kernel's softirqs, the peer and other tests. So this is not for measurements.
//! [`Live::stop`] checks that every frame is accounted for.

mod account;
mod iperf3;
pub mod peer;
pub mod preload;
mod program;
pub mod programs;
mod recorder;
mod traffic;
mod wire;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use wirepath::counters::{Block, Scope, Snapshot};
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice};
use wirepath::device::fault::{FaultConfig, FaultDevice};
use wirepath::device::steering::{Rule, RuleId};
use wirepath::device::{Capabilities, Device, Queue, RxOf, RxQueue, TxOf, TxQueue};
use wirepath::mem::{Layout, Pool, Region};
use wirepath::pipeline::tcp::{
    ConnectionId, ConnectionOptions, ListenOptions, ListenerId, TcpConfig, TcpInfo, TcpNodeConfig, TcpSockets,
    TcpSocketsConfig,
};
use wirepath::pipeline::{
    ArpConfig, ChecksumPolicy, Cx, Datagram, EgressConfig, HostStack, HostStackConfig, IcmpError, UdpConfig, UdpFlow,
    UdpOptions, UdpSendError, UdpSent, host_stack,
};
use wirepath::proto::{
    ConsumerId, Flow, Group, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, LearnFrom, NeighborConfig,
    Sharing, SocketCapacity, UdpSockets,
};
use wirepath::time::{Clock, Instant, MonotonicClock};
use wirepath::wire::VlanTags;
use wirepath::worker::kernel::{KernelLink, Mirror, MirrorThread};
use wirepath::worker::{Parts, StopFlag, Worker};

use crate::netns::{self, Namespace};

pub use account::table;
use account::{Account, count, drops};
pub use iperf3::Iperf3;
pub use program::Program;
pub use recorder::{Handler, Received, Recorder};
pub use traffic::{End, PIECE_LEN_MAX, Plan, Server, Traffic, is_stream, stream};
pub use wire::{FAR, NEAR, OURS, THEIRS, TIMEOUT, Wire, has_program, set, wait_until};

/// The configuration of a live host.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// The port.
    pub device: AfXdpConfig,
    /// The rules for our frames, on each queue that is taken.
    pub rules: Vec<Rule>,
    /// Buffers of the pool: for both rings, and for frames that wait.
    pub buffers: usize,
    /// Our own addresses. None where the kernel owns the interface and the mirror supplies them.
    pub addresses: Vec<Ipv4Prefix>,
    /// Whether the kernel has the interface too: its addresses, routes and neighbors are then
    /// followed.
    pub is_the_kernels: bool,
    /// Tags of our frames.
    pub vlan: VlanTags,
    /// The way out.
    pub egress: EgressConfig,
    /// The tree.
    pub stack: HostStackConfig,
    /// Connections; their chunks are buffers of the pool beside the others.
    pub tcp: Option<TcpConfig>,
    /// The device's faults. With any, frames are not balanced at the end.
    pub faults: FaultConfig,
}

impl LiveConfig {
    /// A host of its own with [`OURS`], on an interface of which the kernel gets no frames: we
    /// handle ARP, ICMP and IGMP.
    pub fn own(interface: &str) -> Self {
        let seed = HashSeed::new(17, 19);
        let device = AfXdpConfig { rx_ring_len: 1024, tx_ring_len: 512, ..AfXdpConfig::new(interface) };
        // The kernel leaves the checksums of its frames to a NIC, which veth does not have.
        let udp = UdpConfig { checksum: ChecksumPolicy::AcceptPartial };
        Self {
            device,
            rules: vec![Rule::ALL],
            buffers: 4096,
            addresses: vec![network(OURS)],
            is_the_kernels: false,
            vlan: VlanTags::NONE,
            egress: EgressConfig::host(seed),
            stack: HostStackConfig { udp, ..HostStackConfig::new(seed) },
            tcp: None,
            faults: FaultConfig::default(),
        }
    }

    /// The same, with connections.
    #[must_use]
    pub fn with_tcp(mut self, tcp: TcpConfig) -> Self {
        self.tcp = Some(tcp);
        self.stack.tcp = Some(TcpNodeConfig { checksum: self.stack.udp.checksum });
        self
    }

    /// A port shared with the kernel, which has the addresses and answers ARP and ICMP: `rules` are
    /// ours.
    pub fn shared(interface: &str, rules: &[Rule]) -> Self {
        let own = Self::own(interface);
        let neighbors = NeighborConfig { learn_from: LearnFrom::Host, ..NeighborConfig::default() };
        Self {
            rules: rules.to_vec(),
            addresses: Vec::new(),
            is_the_kernels: true,
            egress: EgressConfig { neighbors: Some(neighbors), errors: None, ..own.egress },
            stack: HostStackConfig { igmp: None, arp: ArpConfig { announces: false, ..own.stack.arp }, ..own.stack },
            ..own
        }
    }
}

/// An address in its network of 24 bits.
pub fn network(address: Ipv4Addr) -> Ipv4Prefix {
    Ipv4Prefix::new(address, 24).expect("24 bits are a prefix")
}

/// The worker under test.
pub type LiveWorker = Worker<RxOf<FaultyPort>, TxOf<FaultyPort>, HostStack, Recorder>;
/// The port, around which faults are made.
type FaultyPort = FaultDevice<AfXdpDevice>;
type FaultyQueue = <FaultyPort as Device>::Queue;
type Act = Box<dyn FnOnce(&mut LiveWorker, Instant) + Send>;

/// A host that runs. Dropped, it ends without a check; [`stop`](Self::stop) it.
pub struct Live {
    /// For rules that change.
    device: Arc<Mutex<FaultDevice<AfXdpDevice>>>,
    queue: u16,
    /// Whether no fault makes or ends frames.
    is_balanced: bool,
    block: Block,
    acts: Option<mpsc::Sender<Act>>,
    thread: Option<JoinHandle<Account>>,
}

impl Live {
    /// Starts a host on queue 0 of an interface in `namespace`. It receives when this returns.
    ///
    /// # Errors
    /// The error of the device, the pool or the kernel.
    pub fn start(namespace: &Namespace, config: &LiveConfig) -> Result<Self, String> {
        Self::start_in(namespace.name(), config)
    }

    /// As [`start`](Self::start), in a namespace that another process has made.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_in(namespace: &str, config: &LiveConfig) -> Result<Self, String> {
        let mut hosts = Self::start_all(namespace, config, 1)?;
        Ok(hosts.remove(0))
    }

    /// Starts a host on each of the first `queues` queues of one interface, a thread each.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_queues(namespace: &Namespace, config: &LiveConfig, queues: u16) -> Result<Vec<Self>, String> {
        Self::start_all(namespace.name(), config, queues)
    }

    fn start_all(namespace: &str, config: &LiveConfig, queues: u16) -> Result<Vec<Self>, String> {
        let (device, taken, link) = netns::run_in(namespace, || open(config, queues))?;
        let device = Arc::new(Mutex::new(device));
        taken.into_iter().map(|taken| Self::run(namespace, config, &device, taken, link.clone())).collect()
    }

    fn run(
        namespace: &str,
        config: &LiveConfig,
        device: &Arc<Mutex<FaultDevice<AfXdpDevice>>>,
        (queue, taken): (u16, FaultyQueue),
        link: KernelLink,
    ) -> Result<Self, String> {
        let block = Block::heap();
        let is_balanced = config.faults == FaultConfig { seed: config.faults.seed, ..FaultConfig::default() };
        let (acts, wanted) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (name, scope, config) = (namespace.to_owned(), block.scope("host"), config.clone());
        let capabilities = device.lock().unwrap_or_else(PoisonError::into_inner).capabilities();
        let thread = std::thread::spawn(move || {
            netns::enter(&name).expect("the namespace of this test can be entered");
            match build(&config, taken, capabilities, &link, &scope) {
                Ok((worker, mirror)) => turn(worker, mirror, &config, &tell, &wanted),
                Err(why) => {
                    let _ = tell.send(Err(why));
                    Account::default()
                }
            }
        });
        told.recv().map_err(|_| "the worker's thread panicked, see above")??;
        block.check().map_err(|error| error.to_string())?;
        Ok(Self { device: Arc::clone(device), queue, is_balanced, block, acts: Some(acts), thread: Some(thread) })
    }

    /// Runs `act` on the worker's thread between two turns, and returns its result.
    pub fn with_worker<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut LiveWorker, Instant) -> T + Send + 'static,
    ) -> T {
        let (tell, told) = mpsc::channel();
        let act: Act = Box::new(move |worker, now| {
            let _ = tell.send(act(worker, now));
        });
        let sent = self.acts.as_ref().is_some_and(|acts| acts.send(act).is_ok());
        assert!(sent, "the worker's thread has ended, see above");
        told.recv().expect("the worker's thread panicked, see above")
    }

    /// Acts as the app does, outside a turn.
    pub fn with<T: Send + 'static>(&self, act: impl FnOnce(&mut Recorder, &mut Cx<'_>) -> T + Send + 'static) -> T {
        self.with_worker(move |worker, now| worker.with_app(now, act))
    }

    /// Applies an event that another component reported to the host.
    pub fn apply(&self, event: HostEvent) {
        self.with(move |_, cx| cx.host.apply(event)).expect("the host has room");
    }

    /// Binds a port on all our addresses for consumer 0; 0 asks for a free one. Says which.
    pub fn bind(&self, port: u16) -> u16 {
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let bound = self.with(move |_, cx| cx.sockets.bind(ConsumerId(0), local, Sharing::Exclusive));
        bound.expect("the port is free").port()
    }

    /// Joins a group from any source, for consumer 0.
    pub fn join(&self, group: Ipv4Addr, port: u16) {
        self.with(move |_, cx| cx.sockets.join(ConsumerId(0), Group::new(group, port))).expect("there is room");
    }

    /// A flow to a remote end, from a port that is bound for consumer 1.
    pub fn connect(&self, port: u16, remote: (Ipv4Addr, u16), options: UdpOptions) -> UdpFlow {
        let remote = SocketAddrV4::new(remote.0, remote.1);
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let flow = self.with(move |_, cx| {
            let flow = UdpFlow::connect(local, remote, &options, cx).map_err(|error| error.to_string())?;
            if !remote.ip().is_multicast() {
                let ends = Flow { local: flow.local(), remote };
                cx.sockets.connect(ConsumerId(1), ends).map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(flow)
        });
        flow.unwrap_or_else(|error| panic!("no flow to {remote}: {error}"))
    }

    /// Sends by a flow.
    ///
    /// # Errors
    /// The flow's error.
    pub fn send(&self, flow: &mut UdpFlow, payload: &[u8]) -> Result<UdpSent, UdpSendError> {
        let (mut sender, payload) = (flow.clone(), payload.to_vec());
        let sent;
        (*flow, sent) = self.with(move |_, cx| {
            let sent = sender.send(&payload, cx);
            (sender, sent)
        });
        sent
    }

    /// Listens on a port of all our addresses. Accepted connections follow `plan`.
    pub fn listen(&self, port: u16, options: ListenOptions, plan: Plan) -> ListenerId {
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let listener = self.with(move |recorder, cx| {
            recorder.traffic.plan = plan;
            cx.tcp().listen(local, &options)
        });
        listener.unwrap_or_else(|error| panic!("port {port}: {error}"))
    }

    /// Begins a connection to a remote end, for consumer 0.
    pub fn dial(&self, remote: (Ipv4Addr, u16), options: ConnectionOptions, plan: Plan) -> ConnectionId {
        let remote = SocketAddrV4::new(remote.0, remote.1);
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let id = self.with(move |recorder, cx| {
            let id = cx.tcp().connect(local, remote, &options, ConsumerId(0))?;
            recorder.traffic.begin(id, plan);
            Ok::<_, wirepath::pipeline::tcp::ConnectError>(id)
        });
        id.unwrap_or_else(|error| panic!("{remote}: {error}"))
    }

    /// How a connection ended.
    pub fn end_of(&self, id: ConnectionId) -> End {
        self.with(move |recorder, _| recorder.traffic.ends.get(&id).cloned().unwrap_or_default())
    }

    /// Waits for a connection that a listener accepts, the `idx`-th of all.
    pub fn accepted(&self, idx: usize) -> ConnectionId {
        let mut id = None;
        self.until("a connection is accepted", |live| {
            id = live.with(move |recorder, _| recorder.traffic.accepted.get(idx).copied());
            id.is_some()
        });
        id.expect("it is there now")
    }

    /// The present state of a connection.
    pub fn info(&self, id: ConnectionId) -> Option<TcpInfo> {
        self.with(move |_, cx| cx.tcp().info(id))
    }

    /// Passes datagrams to the test's handler instead of keeping them.
    pub fn handle(&self, handler: impl FnMut(&Datagram<'_>, &mut Cx<'_>) + Send + 'static) {
        self.with(move |recorder, _| recorder.handler = Some(Box::new(handler)));
    }

    /// The datagrams that came since the last call.
    pub fn take_datagrams(&self) -> Vec<Received> {
        self.with(|recorder, _| std::mem::take(&mut recorder.datagrams))
    }

    /// The errors reported since the last call.
    pub fn take_errors(&self) -> Vec<IcmpError<'static>> {
        self.with(|recorder, _| std::mem::take(&mut recorder.errors))
    }

    /// Waits for `count` datagrams and takes them.
    pub fn receive(&self, count: usize) -> Vec<Received> {
        let mut received = Vec::new();
        self.until(&format!("{count} datagrams"), |live| {
            received.extend(live.take_datagrams());
            received.len() >= count
        });
        received
    }

    /// Waits for an error about a flow and takes it.
    pub fn error(&self) -> IcmpError<'static> {
        let mut errors = Vec::new();
        self.until("an ICMP error", |live| {
            errors.extend(live.take_errors());
            !errors.is_empty()
        });
        errors.remove(0)
    }

    /// Waits until the condition holds, and prints the counters where it does not.
    pub fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let start = std::time::Instant::now();
        while !done(self) {
            assert!(start.elapsed() < TIMEOUT, "this does not come about: {what}\n{}", table(&self.snapshot()));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until a counter has reached `count`.
    pub fn until_count(&self, name: &str, count: u64) {
        self.until(&format!("{name} = {count}"), |live| live.count(name) >= count);
    }

    /// One of the host's counters: `arp/answered`, `device/rx/frames`.
    pub fn count(&self, name: &str) -> u64 {
        count(&self.snapshot(), name)
    }

    /// The drops of a node or a half of the device, `device/rx` for instance, under all names.
    pub fn drops(&self, scope: &str) -> u64 {
        drops(&self.snapshot(), scope)
    }

    /// All counters.
    pub fn snapshot(&self) -> Snapshot {
        self.block.snapshot()
    }

    /// Sends the frames that `rule` names to this host's queue from now on.
    pub fn steer(&self, rule: &Rule) -> RuleId {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        device.steer(rule, self.queue).expect("a rule that makes sense")
    }

    /// Stops the worker, and checks that every frame and every buffer is accounted for:
    /// received = delivered + named drops + kept, and no buffer is astray.
    pub fn stop(mut self) -> Snapshot {
        let account = self.end().expect("it runs until now");
        let snapshot = self.snapshot();
        if self.is_balanced {
            account.check(&snapshot);
        }
        snapshot
    }

    fn end(&mut self) -> Option<Account> {
        self.acts = None;
        let ended = self.thread.take()?.join();
        Some(ended.expect("the worker's thread panicked, see above"))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.acts = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// The port, its queues with their numbers, and the kernel's state of the interface.
type Opened = (FaultyPort, Vec<(u16, FaultyQueue)>, KernelLink);

/// Opens the port with its rules, on a thread in its namespace, and asks the kernel about the
/// interface.
fn open(config: &LiveConfig, queues: u16) -> Result<Opened, String> {
    let mirror = Mirror::open(&Block::heap().scope("link")).map_err(|error| error.to_string())?;
    let interface = &config.device.interface;
    let link = mirror.link(interface).ok_or_else(|| format!("there is no interface {interface}"))?.clone();
    let device = AfXdpDevice::open(&config.device).map_err(|error| error.to_string())?;
    let mut device = FaultDevice::new(device, config.faults).map_err(|error| error.to_string())?;
    let mut taken = Vec::new();
    for idx in 0..queues {
        for rule in &config.rules {
            device.steer(rule, idx).map_err(|error| error.to_string())?;
        }
        taken.push((idx, device.take_queue(idx).map_err(|error| error.to_string())?));
    }
    Ok((device, taken, link))
}

/// Puts the worker together on its own thread.
fn build(
    config: &LiveConfig,
    queue: FaultyQueue,
    capabilities: Capabilities,
    link: &KernelLink,
    scope: &Scope,
) -> Result<(LiveWorker, Option<MirrorThread>), String> {
    let layout = Layout::umem(2048);
    let chunks = config.tcp.map_or(0, |tcp| tcp.chunks_max);
    let region = Region::heap(layout.region_len(config.buffers + chunks)).map_err(|error| error.to_string())?;
    let pool = Pool::new(Arc::new(region), layout).map_err(|error| error.to_string())?;
    let (rx, tx) = queue.open(&pool, &scope.scope("device")).map_err(|error| error.to_string())?;
    let host_config = HostConfig {
        interface: InterfaceId(0),
        mac: link.mac,
        vlan: config.vlan,
        mtu: link.mtu,
        addresses_max: 8,
        routes_max: 16,
        neighbors_max: 64,
    };
    let seed = config.egress.seed;
    let mut host = Host::new(host_config, seed).map_err(|error| error.to_string())?;
    for address in &config.addresses {
        host.apply(HostEvent::AddressAdded(*address)).map_err(|error| error.to_string())?;
    }
    let pipeline = host_stack(config.stack, &host, scope);
    let capacity = SocketCapacity { locals: 64, bindings: 64, connections: 64, sources: 64 };
    let sockets = UdpSockets::new(capacity, seed);
    let app = Recorder::default();
    let egress = config.egress;
    let tcp = match config.tcp {
        Some(machine) => TcpSockets::new(&TcpSocketsConfig { machine, capabilities, seed }, scope),
        None => Ok(TcpSockets::none()),
    };
    let tcp = tcp.map_err(|error| error.to_string())?;
    let parts = Parts { rx, tx, pipeline, app, pool, host, sockets, egress, burst_len: 32 };
    let mut worker = Worker::new(parts, scope).with_tcp(tcp);
    if !config.is_the_kernels {
        return Ok((worker, None));
    }
    let mut mirror = Mirror::open(scope).map_err(|error| error.to_string())?;
    worker.follow(mirror.follow(&link.name, host_config, 256).map_err(|error| error.to_string())?);
    let thread = mirror.start(&StopFlag::new()).map_err(|error| error.to_string())?;
    Ok((worker, Some(thread)))
}

/// Turns the worker until no handle to it is left.
fn turn(
    mut worker: LiveWorker,
    _mirror: Option<MirrorThread>,
    config: &LiveConfig,
    tell: &mpsc::Sender<Result<(), String>>,
    wanted: &mpsc::Receiver<Act>,
) -> Account {
    let mut clock = MonotonicClock::start();
    // The first turn opens the way for frames.
    worker.poll_once(clock.now());
    let _ = tell.send(Ok(()));
    let mut idle = 0;
    loop {
        let received = worker.poll_once(clock.now());
        idle = if received == 0 { idle + 1 } else { 0 };
        match wanted.try_recv() {
            Ok(act) => act(&mut worker, clock.now()),
            Err(TryRecvError::Empty) => rest(idle),
            Err(TryRecvError::Disconnected) => break,
        }
    }
    settle(&mut worker, &mut clock);
    Account {
        in_use: worker.pool().in_use(),
        lent: config.device.rx_ring_len as usize,
        kept: worker.kept() + worker.tcp().chunks(),
        in_flight: worker.tx_mut().in_flight(),
        unnamed: worker.pool().drops_without_reason(),
        deliveries: worker.app().deliveries,
    }
}

/// Yields the processor after `idle` turns without a frame: at first only briefly, because an
/// answer may be on its way, then for longer, because many tests run at the same time.
fn rest(idle: u32) {
    match idle {
        0 => {}
        1..256 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

/// Turns until no frame comes and none is on its way out; a link that is down keeps its frames.
fn settle(worker: &mut LiveWorker, clock: &mut MonotonicClock) {
    let (start, mut quiet) = (std::time::Instant::now(), 0);
    while quiet < 100 && start.elapsed() < Duration::from_secs(2) {
        let received = worker.poll_once(clock.now());
        quiet = if received == 0 && worker.tx_mut().in_flight() == 0 { quiet + 1 } else { 0 };
        std::thread::yield_now();
    }
    worker.rx_mut().refresh_counters();
    worker.tx_mut().refresh_counters();
    worker.publish();
}
