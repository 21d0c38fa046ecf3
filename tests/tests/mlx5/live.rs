//! A live port on a software ConnectX, at one end of a veth, whose flows change while it runs. Each
//! test is two processes: it starts itself again under `softhca run` at our end, and is the sender
//! at the other.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::RawFd;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use wirepath::counters::Block;
use wirepath::device::mlx5::{Feature, Mlx5Config, Mlx5Device};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Queue, RxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::pipeline::{App, Cx, Datagram, UdpFlow, UdpOptions, UdpSent};
use wirepath::proto::{ConsumerId, Group, Sharing};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::worker::StopFlag;
use wirepath::worker::broker::{Broker, BrokerConfig, BrokerError};
use wirepath::worker::live::{FlowSpec, LiveConfig, LivePort, LiveWorker, PortConfig, sleep_on};
use wirepath::worker::timeline::{NicClock, TimelineConfig, TimelineThread};
use wirepath_tests::connectx::config;
use wirepath_tests::netns::Namespace;
use wirepath_tests::nic;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const PORT: u16 = 9_000;
/// Frames of one step of the model.
const STEP: usize = 64;
/// Nothing here takes longer, on a machine that is busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Set for the process at our end.
const INSIDE: &str = "WIREPATH_TEST_INSIDE";

/// A failed test leaves no polling process behind.
struct Process(Child);

impl Process {
    fn has_ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends to the group and to our address from the far end of a veth, over and over, while the same
/// test, started anew, runs at ours.
fn beside_a_sender(test: &str) {
    let namespaces = softhca::testing::missing().map_or_else(|| Ok((Namespace::new()?, Namespace::new()?)), Err);
    let (near, far) = match namespaces {
        Ok(namespaces) => namespaces,
        Err(why) => return println!("SKIPPED {test}: {why}"),
    };
    near.veth("veth0", &far, "veth1").unwrap();
    near.ip(&["address", "add", "10.78.0.2/24", "dev", "veth0"]).unwrap();
    far.ip(&["address", "add", "10.78.0.1/24", "dev", "veth1"]).unwrap();
    let sender = far.run(|| UdpSocket::bind((Ipv4Addr::new(10, 78, 0, 1), 0)).unwrap());
    let mut command = softhca::testing::command(&["--strict", "--manual", "--wire", "veth0"]).unwrap();
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(INSIDE, test);
    let mut ours = Process(near.run(|| command.spawn()).unwrap());
    let status = loop {
        // While no one has our address, the kernel reports that at the next send.
        let _ = sender.send_to(b"group", (GROUP, PORT));
        let _ = sender.send_to(b"host", (OURS, PORT));
        match ours.has_ended() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(status.success(), "our end, see above");
}

/// Counts datagrams to the group, and to us.
#[derive(Default)]
struct Counts {
    group: usize,
    host: usize,
}

impl App for Counts {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        match datagram.payload {
            b"group" => self.group += 1,
            _ => self.host += 1,
        }
    }
}

struct Ours {
    worker: LiveWorker<Counts>,
    port: LivePort,
    clock: MonotonicClock,
}

impl Ours {
    fn start(config: LiveConfig) -> Self {
        let (block, stop) = (Block::heap(), StopFlag::new());
        let mut port = LivePort::open(&config, &block.scope("port"), &stop).unwrap();
        let queue = port.take_queue().unwrap().unwrap();
        let mut worker = queue.builder().build(Counts::default(), &block.scope("worker0")).unwrap();
        let mut clock = MonotonicClock::start();
        worker.with_app(clock.now(), |_, cx| {
            cx.sockets.join(ConsumerId(0), Group::new(GROUP, PORT)).unwrap();
            cx.sockets.bind(ConsumerId(1), SocketAddrV4::new(OURS, PORT), Sharing::Exclusive).unwrap();
        });
        Self { worker, port, clock }
    }

    /// Turns until it is so. The model moves with each turn.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Counts) -> bool) {
        let begin = Instant::now();
        while !is_so(self.worker.app()) {
            assert!(begin.elapsed() < TIMEOUT, "{what}");
            nic::step(STEP);
            self.worker.poll_once(self.clock.now());
            std::thread::yield_now();
        }
    }
}

fn is_member() -> bool {
    std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap().contains("030201EF")
}

fn to_kernel() -> u64 {
    nic::counter("rx_to_kernel").unwrap()
}

#[test]
fn group_that_a_connectx_is_not_asked_for_any_more_goes_to_the_kernel() {
    let test = "group_that_a_connectx_is_not_asked_for_any_more_goes_to_the_kernel";
    if std::env::var_os(INSIDE).is_none_or(|name| name != test) {
        return beside_a_sender(test);
    }
    let group = FlowSpec::udp(GROUP, PORT);
    let live = LiveConfig::new("veth0").flow(group.clone()).flow(FlowSpec::udp(OURS, PORT));
    let mut ours = Ours::start(LiveConfig { port: PortConfig::Mlx5(config("veth0")), ..live });
    ours.until("the group comes", |counts| counts.group > 0 && counts.host > 0);
    assert!(is_member());

    ours.port.remove_flow(&group).unwrap();
    assert!(!is_member());
    // Frames in the ring still arrive: a datagram to us that was sent later has overtaken none of
    // them.
    for _ in 0..4 {
        let before = ours.worker.app().host;
        ours.until("our own come", |counts| counts.host > before);
    }
    let (came, kernel) = (ours.worker.app().group, to_kernel());
    let before = ours.worker.app().host;
    ours.until("our own still come", |counts| counts.host > before + 4);
    assert_eq!(ours.worker.app().group, came);
    assert!(to_kernel() > kernel, "the group's frames go to the kernel");

    ours.port.add_flow(group).unwrap();
    assert!(is_member());
    ours.until("the group comes again", |counts| counts.group > came);
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}

/// The NIC's timestamp, converted to the worker's clock, lies between the turn before the send and
/// the turn that found it.
#[test]
fn datagram_of_a_connectx_is_told_when_it_left_on_the_workers_own_clock() {
    let test = "datagram_of_a_connectx_is_told_when_it_left_on_the_workers_own_clock";
    if std::env::var_os(INSIDE).is_none_or(|name| name != test) {
        return beside_a_sender(test);
    }
    let stamping = Mlx5Config { timestamps: Feature::Required, ..config("veth0") };
    let mut ours = Ours::start(LiveConfig::over(PortConfig::Mlx5(stamping)));
    let mut nic = ours.port.nic_clock().unwrap();
    // The model shows its clock at each step, and a NIC at all times.
    let stepped: NicClock = Box::new(move || {
        nic::step(1);
        nic()
    });
    let timeline = TimelineConfig { nic: Some(stepped), ..TimelineConfig::default() };
    let (_thread, mut readers) = TimelineThread::start(ours.clock, timeline, 1, &Block::heap().scope("app")).unwrap();

    let (local, remote) = (SocketAddrV4::new(OURS, PORT), SocketAddrV4::new(GROUP, PORT));
    let before = ours.clock.now();
    let (mut flow, sent) = ours.worker.with_app(before, |_, cx| {
        cx.enable_timestamps().unwrap();
        let mut flow = UdpFlow::connect(local, remote, &UdpOptions::default(), cx).unwrap();
        let sent = cx.timestamped(42, |cx| flow.send(b"stamped", cx));
        (flow, sent)
    });
    assert_eq!(sent, (Ok(UdpSent::Posted), 1));
    let mut told = None;
    let begin = Instant::now();
    while told.is_none() {
        assert!(begin.elapsed() < TIMEOUT, "the NIC never says when it left");
        nic::step(STEP);
        ours.worker.poll_once(ours.clock.now());
        told = ours.worker.with_app(ours.clock.now(), |_, cx| cx.take_timestamp());
    }
    let (told, after) = (told.unwrap(), ours.clock.now());
    assert_eq!(told.token, 42);
    let timeline = readers[0].latest();
    let left = timeline.instant_of_nic(told.at).unwrap();
    assert!(
        before <= left.at + left.error && left.at <= after + left.error,
        "{left:?} is not in {before:?}..={after:?}"
    );
    assert!(timeline.wall_of_nic(told.at).unwrap().error >= left.error);
    // A send without a request has no timestamp.
    ours.worker.with_app(after, |_, cx| flow.send(b"plain", cx)).unwrap();
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}

/// Whether a loop that sleeps on the descriptor is woken at once.
fn is_readable(fd: RawFd) -> bool {
    let (begin, sleep) = (Instant::now(), Duration::from_millis(5));
    sleep_on([Some(fd)], Some(sleep));
    begin.elapsed() < sleep
}

#[test]
fn next_frame_makes_the_descriptor_of_a_connectx_readable_after_each_sleep() {
    let test = "next_frame_makes_the_descriptor_of_a_connectx_readable_after_each_sleep";
    if std::env::var_os(INSIDE).is_none_or(|name| name != test) {
        return beside_a_sender(test);
    }
    let live = LiveConfig::new("veth0").flow(FlowSpec::udp(OURS, PORT));
    sleep_until_frames(Ours::start(LiveConfig { port: PortConfig::Mlx5(config("veth0")), ..live }));
}

#[test]
fn next_frame_makes_the_descriptor_of_a_lent_queue_readable_after_each_sleep() {
    let test = "next_frame_makes_the_descriptor_of_a_lent_queue_readable_after_each_sleep";
    if std::env::var_os(INSIDE).is_none_or(|name| name != test) {
        return beside_a_sender(test);
    }
    let broker = RunningBroker::start();
    sleep_until_frames(broker.client());
    broker.end().unwrap();
}

#[test]
fn connectx_that_is_pulled_out_ends_its_broker_and_the_port_of_its_client() {
    let test = "connectx_that_is_pulled_out_ends_its_broker_and_the_port_of_its_client";
    if std::env::var_os(INSIDE).is_none_or(|name| name != test) {
        return beside_a_sender(test);
    }
    let broker = RunningBroker::start();
    let mut ours = broker.client();
    ours.until("frames come", |counts| counts.host > 0);
    assert!(nic::remove("mlx5_0"));
    let begin = Instant::now();
    let ended = loop {
        assert!(begin.elapsed() < TIMEOUT, "the port goes on");
        match ours.port.why_ended() {
            Some(why) => break why,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(ended, "the broker of veth0 has ended, and its program with it: start it again");
    let why = broker.thread.join().unwrap().unwrap_err().to_string();
    assert_eq!(why, "mlx5_0 is gone: see the kernel's log, and start the broker again");
}

#[test]
fn lent_queue_of_a_connectx_that_its_program_has_closed_is_taken_again() {
    let test = "lent_queue_of_a_connectx_that_its_program_has_closed_is_taken_again";
    if std::env::var_os(INSIDE).is_none_or(|name| name != test) {
        return beside_a_sender(test);
    }
    let broker = RunningBroker::start();
    let mut device = Mlx5Device::open(&broker.port()).unwrap();
    // A broker gives flows to sockets alone.
    let _twin = UdpSocket::bind((OURS, PORT)).unwrap();
    for round in 0..3 {
        let mut queue = device.take_queue(0).unwrap();
        assert!(device.take_queue(0).is_err(), "it is taken");
        let layout = queue.layout(1_518);
        let region = queue.region(layout, 256).unwrap().unwrap();
        let pool = Pool::new(Arc::new(region), layout).unwrap();
        let (mut rx, _tx) = queue.open(&pool, &Block::heap().scope("queue")).unwrap();
        // Those of the queue before went with it.
        device.steer(&Rule::udp(OURS, PORT), 0).unwrap();
        let (mut burst, mut clock, begin) = (Burst::new(), MonotonicClock::start(), Instant::now());
        while rx.receive(&mut burst, 1, &pool, clock.now()) == 0 {
            assert!(begin.elapsed() < TIMEOUT, "round {round}: no frame comes");
            nic::step(STEP);
            std::thread::yield_now();
        }
        burst.drain(..).for_each(Mbuf::free);
    }
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
    broker.end().unwrap();
}

/// A broker of the ConnectX, on a thread of this process.
struct RunningBroker {
    folder: TempDir,
    stop: StopFlag,
    thread: JoinHandle<Result<(), BrokerError>>,
}

impl RunningBroker {
    fn start() -> Self {
        let (folder, stop) = (tempfile::tempdir().unwrap(), StopFlag::new());
        let path = folder.path().join("socket");
        let config = BrokerConfig { path, ..BrokerConfig::over(PortConfig::Mlx5(config("veth0"))) };
        let (stopped, (opened, is_open)) = (stop.clone(), channel());
        let thread = std::thread::spawn(move || {
            let broker = Broker::open(config)?;
            opened.send(()).unwrap();
            broker.serve(&stopped, |_| ())
        });
        is_open.recv().expect("a broker that could be opened");
        Self { folder, stop, thread }
    }

    /// A worker over a queue that it lends, with its flow: there is none before the queue.
    fn client(&self) -> Ours {
        let mut ours = Ours::start(LiveConfig::over(PortConfig::Mlx5(self.port())));
        ours.port.add_flow(FlowSpec::udp(OURS, PORT)).unwrap();
        ours
    }

    /// Its port, for a client.
    fn port(&self) -> Mlx5Config {
        Mlx5Config { broker: Some(self.folder.path().join("socket")), ..config("veth0") }
    }

    fn end(self) -> Result<(), BrokerError> {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

/// Sleeps twenty times, and each time the next frame ends the sleep.
fn sleep_until_frames(mut ours: Ours) {
    let fd = ours.worker.wait_fd().unwrap();
    for sleep in 0..20 {
        // Without a step of the model no frame comes: the turns empty the ring.
        while ours.worker.poll_once(ours.clock.now()) > 0 {}
        ours.worker.next_deadline(ours.clock.now());
        assert!(!is_readable(fd), "sleep {sleep}: no frame has come");
        let (before, begin) = (ours.worker.app().host, Instant::now());
        while !is_readable(fd) {
            assert!(begin.elapsed() < TIMEOUT, "sleep {sleep}: no event for a frame");
            nic::step(STEP);
            std::thread::yield_now();
        }
        while ours.worker.poll_once(ours.clock.now()) > 0 {}
        assert!(ours.worker.app().host > before, "sleep {sleep}: woken without a frame");
    }
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}
