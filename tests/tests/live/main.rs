//! Live ports against the Linux kernel: one that is shared with it, and one that is ours. Each test
//! has its own namespaces.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant as Moment};

use wirepath::counters::{Block, default_directory};
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice};
use wirepath::pipeline::tcp::{ConnectionOptions, ListenOptions, TcpConfig, TcpData};
use wirepath::pipeline::{App, Cx, Datagram, IcmpError, UdpOptions, UdpSendToError, send_to};
use wirepath::proto::{ConsumerId, FlowErrorKind, Group, Sharing};
use wirepath::testing::roster::Rostered;
use wirepath::time::{Clock, MonotonicClock};
use wirepath::wire::icmpv4::Unreachable;
use wirepath::worker::StopFlag;
use wirepath::worker::live::{
    CaptureMode, DedicatedHost, FlowSpec, IgmpMode, LiveConfig, LivePort, LiveWorker, PortConfig,
};
use wirepath_tests::netns::Namespace;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const PORT: u16 = 9_000;
/// The far kernel's port that we connect to, and ours for that.
const EXCHANGE: u16 = 4_000;
const SESSION: u16 = 5_000;
/// Long enough for a machine with two busy cores.
const TIMEOUT: Duration = Duration::from_secs(40);

/// `near` with `veth0`, where we are, and `far` with `veth1` and 10.9.0.2, where the kernel is.
/// Prints the reason where they cannot be made.
struct Wire {
    near: Namespace,
    far: Namespace,
}

fn wire(test: &str) -> Option<Wire> {
    match Namespace::new() {
        Ok(near) => {
            let far = Namespace::new().unwrap();
            near.veth("veth0", &far, "veth1").unwrap();
            far.ip(&["address", "add", "10.9.0.2/24", "dev", "veth1"]).unwrap();
            Some(Wire { near, far })
        }
        Err(why) => {
            println!("SKIPPED {test}: {why}; run as root");
            None
        }
    }
}

/// Sends each datagram back, and remembers it.
#[derive(Default)]
struct Echo {
    received: Vec<Vec<u8>>,
    refused: Vec<UdpSendToError>,
    errors: Vec<IcmpError<'static>>,
}

impl App for Echo {
    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        cx.tcp().send(data.connection, data.payload).unwrap();
    }

    fn on_icmp_error(&mut self, error: &IcmpError<'_>, _: &mut Cx<'_>) {
        self.errors.push(error.without_quote());
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.received.push(datagram.payload.to_vec());
        if !datagram.destination.ip().is_multicast() {
            let sent = send_to(datagram.destination, datagram.source, &UdpOptions::default(), datagram.payload, cx);
            self.refused.extend(sent.err());
        }
    }
}

/// A port and its worker on the calling thread.
struct Live {
    worker: LiveWorker<Echo>,
    port: LivePort,
    clock: MonotonicClock,
    block: Block,
}

impl Live {
    fn open(config: LiveConfig) -> Result<Self, String> {
        let port = AfXdpConfig { rx_ring_len: 256, tx_ring_len: 256, ..AfXdpConfig::new(config.port.interface()) };
        let config = LiveConfig { port: PortConfig::AfXdp(port), ..config };
        let (block, stop) = (Block::heap(), StopFlag::new());
        let mut port = LivePort::open(&config, &block.scope("port"), &stop).map_err(|error| error.to_string())?;
        let queue = port.take_queue().map_err(|error| error.to_string())?.unwrap();
        let worker = queue.builder().build(Echo::default(), &block.scope("worker0"));
        let mut worker = worker.map_err(|error| error.to_string())?;
        block.check().unwrap();
        let mut clock = MonotonicClock::start();
        worker.with_app(clock.now(), |_, cx| {
            cx.sockets.join(ConsumerId(0), Group::new(GROUP, PORT)).unwrap();
            cx.sockets.bind(ConsumerId(1), SocketAddrV4::new(NEAR, PORT), Sharing::Exclusive).unwrap();
        });
        worker.poll_once(clock.now());
        Ok(Self { worker, port, clock, block })
    }

    /// Polls until `done`; whether that came about.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let start = Moment::now();
        while start.elapsed() < TIMEOUT {
            self.worker.poll_once(self.clock.now());
            if done(self) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    fn has_received(&mut self, count: usize) -> bool {
        self.until(|live| live.worker.app().received.len() >= count)
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(name).unwrap()
    }
}

fn shared() -> LiveConfig {
    LiveConfig::new("veth0").flow(FlowSpec::udp(GROUP, PORT)).flow(FlowSpec::udp(NEAR, PORT))
}

fn own() -> LiveConfig {
    let addresses = vec![format!("{NEAR}/24").parse().unwrap()];
    shared().dedicated(DedicatedHost { addresses, ..DedicatedHost::default() })
}

/// A kernel socket of `far`, that waits for answers only so long.
fn socket(far: &Namespace) -> UdpSocket {
    let socket = far.run(|| UdpSocket::bind((FAR, 0)).unwrap());
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket
}

/// Sends to `to` until an answer comes; the answer.
fn ask(live: &mut Live, socket: &UdpSocket, to: Ipv4Addr) -> Option<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut answer = [0; 64];
    let mut len = None;
    let mut next = Moment::now();
    live.until(|_| {
        if Moment::now() >= next {
            socket.send_to(b"hello", (to, PORT)).unwrap();
            next = Moment::now() + Duration::from_secs(1);
        }
        len = socket.recv(&mut answer).ok();
        len.is_some()
    });
    Some(answer[..len?].to_vec())
}

#[test]
fn kernel_keeps_what_we_did_not_ask_for() {
    let Some(Wire { near, far }) = wire("kernel_keeps_what_we_did_not_ask_for") else { return };
    near.ip(&["address", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
    let sender = socket(&far);
    near.run(|| {
        let mut live = Live::open(shared()).unwrap();
        assert!(live.port.describe().contains("shared with the kernel"), "{}", live.port.describe());
        let members = std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap();
        assert!(members.contains("030201EF"), "the kernel holds the membership: {members}");
        let kernel = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT + 1)).unwrap();
        kernel.set_read_timeout(Some(TIMEOUT)).unwrap();

        sender.send_to(b"ours", (GROUP, PORT)).unwrap();
        sender.send_to(b"the kernel's", (GROUP, PORT + 1)).unwrap();
        sender.send_to(b"also the kernel's", (NEAR, PORT + 1)).unwrap();
        assert!(live.has_received(1));
        assert_eq!(live.worker.app().received, [b"ours"]);
        let mut bytes = [0; 64];
        for expected in [b"the kernel's".as_slice(), b"also the kernel's"] {
            let len = kernel.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], expected);
        }
    });
}

#[test]
fn group_that_is_wanted_later_is_joined_and_steered() {
    let Some(Wire { near, far }) = wire("group_that_is_wanted_later_is_joined_and_steered") else { return };
    near.ip(&["address", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
    let sender = socket(&far);
    near.run(|| {
        let mut live = Live::open(shared()).unwrap();
        let later = Ipv4Addr::new(239, 1, 2, 4);
        live.port.add_flow(FlowSpec::udp(later, PORT)).unwrap();
        // One without an address is to those that the interface had at start.
        let unnamed = FlowSpec::udp(Ipv4Addr::UNSPECIFIED, PORT + 2);
        live.port.add_flow(unnamed.clone()).unwrap();
        assert!(live.port.rules().any(|rule| rule.contains(&format!("10.9.0.1:{}", PORT + 2))));
        live.port.remove_flow(&unnamed).unwrap();
        live.worker
            .with_app(live.clock.now(), |_, cx| cx.sockets.join(ConsumerId(0), Group::new(later, PORT)))
            .unwrap();
        let members = std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap();
        assert!(members.contains("040201EF"), "the kernel holds the membership: {members}");
        sender.send_to(b"later", (later, PORT)).unwrap();
        assert!(live.has_received(1));
    });
}

#[test]
fn group_that_is_wanted_no_more_goes_back_to_the_kernel() {
    let Some(Wire { near, far }) = wire("group_that_is_wanted_no_more_goes_back_to_the_kernel") else { return };
    near.ip(&["address", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
    let sender = socket(&far);
    near.run(|| {
        let mut live = Live::open(shared()).unwrap();
        let is_member = || std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap().contains("030201EF");
        let (first, second) = (FlowSpec::udp(GROUP, PORT), FlowSpec::udp(GROUP, PORT + 1));
        live.port.add_flow(second.clone()).unwrap();
        live.worker
            .with_app(live.clock.now(), |_, cx| cx.sockets.join(ConsumerId(0), Group::new(GROUP, PORT + 1)))
            .unwrap();
        sender.send_to(b"both", (GROUP, PORT)).unwrap();
        assert!(live.has_received(1));

        // The rule and membership that the other flow needs stay.
        live.port.remove_flow(&first).unwrap();
        assert!(is_member());
        assert_eq!(live.port.rules().filter(|rule| rule.contains("239.1.2.3")).count(), 1);
        let kernel = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
        kernel.set_read_timeout(Some(TIMEOUT)).unwrap();
        sender.send_to(b"the kernel's again", (GROUP, PORT)).unwrap();
        sender.send_to(b"still ours", (GROUP, PORT + 1)).unwrap();
        let mut bytes = [0; 64];
        assert_eq!(kernel.recv(&mut bytes).unwrap(), 18);
        assert!(live.has_received(2));
        assert_eq!(live.worker.app().received, [b"both".as_slice(), b"still ours"]);

        live.port.remove_flow(&second).unwrap();
        assert!(!is_member());
        let again = live.port.remove_flow(&second).unwrap_err().to_string();
        assert!(again.contains("UDP to 239.1.2.3:9001 is not wanted"), "{again}");
        assert_eq!(live.port.rules().count(), 1, "that of our address");

        // And back.
        live.port.add_flow(first).unwrap();
        assert!(is_member());
        sender.send_to(b"back", (GROUP, PORT)).unwrap();
        assert!(live.has_received(3));
    });
}

#[test]
fn error_about_our_flow_that_comes_to_the_kernel_reaches_it() {
    let Some(Wire { near, far: _far }) = wire("error_about_our_flow_that_comes_to_the_kernel_reaches_it") else {
        return;
    };
    near.ip(&["address", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
    near.run(|| {
        let mut live = Live::open(shared()).unwrap();
        let (ours, closed) = (SocketAddrV4::new(NEAR, PORT), SocketAddrV4::new(FAR, 7_777));
        let mut next = Moment::now();
        // Longer than the part of an error that is passed on.
        let told = live.until(|live| {
            if Moment::now() >= next {
                next = Moment::now() + Duration::from_millis(500);
                let sent = live
                    .worker
                    .with_app(live.clock.now(), |_, cx| send_to(ours, closed, &UdpOptions::default(), &[7; 800], cx));
                assert!(sent.is_ok(), "{sent:?}");
            }
            !live.worker.app().errors.is_empty()
        });
        assert!(told, "{:?}", live.block.snapshot());
        let error = live.worker.app().errors[0];
        assert_eq!((error.consumer, error.flow.local, error.flow.remote), (ConsumerId(1), ours, closed));
        assert_eq!(error.kind, FlowErrorKind::Unreachable(Unreachable::Port));
        assert!(
            live.count("worker0/icmp_errors_from_kernel") >= 1
                && live.count("worker0/icmp_errors_from_kernel_lost") == 0
        );
    });
}

#[test]
fn shared_port_sends_by_the_kernels_neighbors() {
    let Some(Wire { near, far }) = wire("shared_port_sends_by_the_kernels_neighbors") else { return };
    near.ip(&["address", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
    let peer = socket(&far);
    near.run(|| {
        let mut live = Live::open(shared()).unwrap();
        let answer = ask(&mut live, &peer, NEAR);
        assert_eq!(answer.as_deref(), Some(b"hello".as_slice()), "{:?}", live.worker.app().refused);
    });
}

/// Connects to the far kernel's `port` and from there to ours, and echoes data; no connection is
/// reset.
fn echo(live: &mut Live, far: &Namespace) {
    let listener = far.run(|| TcpListener::bind((FAR, EXCHANGE)).unwrap());
    let options = ConnectionOptions::default();
    let remote = SocketAddrV4::new(FAR, EXCHANGE);
    let connected = live.until(|live| {
        let local = SocketAddrV4::new(NEAR, SESSION);
        live.worker.with_app(live.clock.now(), |_, cx| cx.tcp().connect(local, remote, &options, ConsumerId(0))).is_ok()
    });
    assert!(connected);
    let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
    live.worker.with_app(live.clock.now(), |_, cx| cx.tcp().listen(local, &ListenOptions::default()).unwrap());
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let (accepted, from) = listener.accept().unwrap();
            assert_eq!(from.port(), SESSION);
            let connected = far.run(|| TcpStream::connect((NEAR, PORT)).unwrap());
            for mut stream in [accepted, connected] {
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.write_all(b"order").unwrap();
                let mut answer = [0; 5];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"order");
            }
        });
        assert!(live.until(|_| peer.is_finished()), "{:?}", live.block.snapshot());
        peer.join().unwrap();
    });
    // A guardian would find them.
    let rosters = Rostered::list(&default_directory()).unwrap();
    assert!(rosters.iter().any(|roster| roster.pid == std::process::id() && roster.has_writer()), "{rosters:?}");
    assert_eq!(live.worker.tcp().tally().resets_in, 0);
}

#[test]
fn connections_of_a_shared_port_are_ours_and_the_kernels_its_own() {
    let Some(Wire { near, far }) = wire("connections_of_a_shared_port_are_ours_and_the_kernels_its_own") else {
        return;
    };
    near.ip(&["address", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
    near.run(|| {
        let exchange = SocketAddrV4::new(FAR, EXCHANGE);
        let config = shared()
            .tcp_with(TcpConfig { connections_max: 16, chunks_max: 256, ..TcpConfig::default() })
            .flow(FlowSpec::tcp(Ipv4Addr::UNSPECIFIED, PORT))
            .flow(FlowSpec::tcp_from(exchange).to_port(SESSION));
        let mut live = Live::open(config).unwrap();
        echo(&mut live, &far);
        // The kernel connects to the same exchange, and is listened to beside us.
        let listener = far.run(|| TcpListener::bind((FAR, EXCHANGE)).unwrap());
        let mut kernel = TcpStream::connect(exchange).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        for _ in 0..3 {
            accepted.write_all(b"fill").unwrap();
            live.until(|_| true);
            let mut bytes = [0; 4];
            kernel.read_exact(&mut bytes).unwrap();
        }
        assert_eq!(live.worker.tcp().tally().resets_out, 0);
    });
}

#[test]
fn connections_of_a_port_of_our_own_need_no_kernel() {
    let Some(Wire { near, far }) = wire("connections_of_a_port_of_our_own_need_no_kernel") else { return };
    near.run(|| {
        let tcp = TcpConfig { connections_max: 16, chunks_max: 256, ..TcpConfig::default() };
        echo(&mut Live::open(own().tcp_with(tcp)).unwrap(), &far);
    });
}

#[test]
fn host_of_our_own_answers_arp_and_datagrams() {
    let Some(Wire { near, far }) = wire("host_of_our_own_answers_arp_and_datagrams") else { return };
    let peer = socket(&far);
    near.run(|| {
        let mut live = Live::open(own()).unwrap();
        assert!(live.port.describe().contains("ours, as 10.9.0.1/24, IGMP of our own"), "{}", live.port.describe());
        let answer = ask(&mut live, &peer, NEAR);
        assert_eq!(answer.as_deref(), Some(b"hello".as_slice()), "{:?}", live.worker.app().refused);
        assert!(live.count("worker0/arp/answered") >= 1);
        assert!(live.until(|live| live.count("worker0/igmp/reports_sent") >= 1), "the group is reported");
        peer.send_to(b"tick", (GROUP, PORT)).unwrap();
        let received = |live: &mut Live| live.worker.app().received.contains(&b"tick".to_vec());
        assert!(live.until(received));
    });
}

#[test]
fn what_cannot_be_is_one_sentence_and_leaves_nothing() {
    let Some(Wire { near, far: _far }) = wire("what_cannot_be_is_one_sentence_and_leaves_nothing") else { return };
    near.ip(&["address", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
    near.run(|| {
        let refused = |config: LiveConfig, says: &str| {
            let sentence = Live::open(config).err().unwrap();
            assert!(sentence.contains(says), "{says:?} is not in {sentence:?}");
            assert!(!sentence.contains('\n'), "{sentence}");
        };
        refused(LiveConfig::new("veth9"), "no interface veth9");
        refused(own(), "ip address del 10.9.0.1/24 dev veth0");
        refused(LiveConfig::new("lo"), "lo has no MAC address");
        refused(LiveConfig { queues: vec![7], igmp: IgmpMode::Off, ..LiveConfig::new("veth0") }, "queue");
        let taken = AfXdpDevice::open(&AfXdpConfig::new("veth0")).unwrap();
        refused(shared(), "already has an XDP program");
        drop(taken);
        let live = Live::open(shared()).unwrap();
        refused(shared(), "this process");
        drop(live);
        Live::open(shared()).unwrap();
    });
    assert!(!near.ip(&["link", "show", "dev", "veth0"]).unwrap().contains("xdp"), "nothing is left on the interface");
}

#[test]
fn interface_that_is_all_ours_says_so() {
    let Some(Wire { near, far: _far }) = wire("interface_that_is_all_ours_says_so") else { return };
    near.run(|| {
        let addresses = vec![format!("{NEAR}/24").parse().unwrap()];
        let config =
            shared().dedicated(DedicatedHost { addresses, takes: CaptureMode::Everything, ..DedicatedHost::default() });
        let live = Live::open(config).unwrap();
        assert!(live.port.rules().eq(["all frames"]));
        assert!(live.port.notices().iter().any(|notice| notice.contains("all ours")));
    });
}
