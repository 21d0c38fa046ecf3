//! Answers to frames that an app sends before its worker's first turn, as the examples do, come to
//! the app and not to the kernel: over AF_XDP, on a port of our own and on a shared one.
//!
//! Time stands still in these tests, so no lost frame is sent again, and an answer that came to the
//! kernel is missing for ever.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{SocketAddrV4, TcpListener, UdpSocket};
use std::time::{Duration, Instant as Moment};

use wirepath::counters::Block;
use wirepath::device::af_xdp::AfXdpConfig;
use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, TcpConfig, TcpEvent};
use wirepath::pipeline::{App, Cx, Datagram, UdpFlow, UdpOptions};
use wirepath::proto::{ConsumerId, Sharing};
use wirepath::time::Instant;
use wirepath::worker::StopFlag;
use wirepath::worker::live::{DedicatedHost, FlowSpec, LiveConfig, LivePort, LiveWorker, PortConfig};
use wirepath_tests::live::{FAR, NEAR, OURS, THEIRS, TIMEOUT, Wire};

const NOW: Instant = Instant::from_nanos(1_000_000_000);
/// Our ports and theirs.
const SESSION: u16 = 5_000;
const QUOTES: u16 = 5_001;

/// The owner of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Shared,
}

/// An app that keeps received datagrams.
#[derive(Default)]
struct Recorder {
    datagrams: Vec<Vec<u8>>,
    events: Vec<TcpEvent>,
}

impl App for Recorder {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        self.datagrams.push(datagram.payload.to_vec());
    }

    fn on_tcp_event(&mut self, _: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        self.events.push(event);
    }
}

/// A worker that has not taken a turn.
struct Unpolled {
    worker: LiveWorker<Recorder>,
    _port: LivePort,
}

impl Unpolled {
    /// Opens the app's end in the near namespace, where the calling thread is. `gateway` is the
    /// host that it may reach.
    fn open(wire: &Wire, whose: Whose, gateway: u16) -> Self {
        let port = AfXdpConfig { rx_ring_len: 256, tx_ring_len: 256, ..AfXdpConfig::new(NEAR) };
        let tcp = TcpConfig { connections_max: 16, chunks_max: 256, ..TcpConfig::default() };
        let config = LiveConfig::over(PortConfig::AfXdp(port)).tcp_with(tcp);
        let network = format!("{OURS}/24");
        let config = match whose {
            Whose::Ours => config
                .dedicated(DedicatedHost { addresses: vec![network.parse().unwrap()], ..DedicatedHost::default() }),
            Whose::Shared => {
                let station = wire.far.ip(&["-o", "link", "show", "dev", FAR]).unwrap();
                let station = station.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
                wire.near.ip(&["addr", "add", &network, "dev", NEAR]).unwrap();
                let neighbor = ["neigh", "replace", &THEIRS.to_string(), "lladdr", &station, "dev", NEAR];
                wire.near.ip(&neighbor).unwrap();
                config
                    .flow(FlowSpec::tcp_from(SocketAddrV4::new(THEIRS, gateway)).to_port(SESSION))
                    .flow(FlowSpec::udp(OURS, QUOTES))
            }
        };
        let (block, stop) = (Block::heap(), StopFlag::new());
        let mut port = LivePort::open(&config, &block.scope("port"), &stop).unwrap_or_else(|error| panic!("{error}"));
        let queue = port.take_queue().unwrap().unwrap();
        let worker = queue.builder().build(Recorder::default(), &block.scope("worker0"));
        Self { worker: worker.unwrap_or_else(|error| panic!("{error}")), _port: port }
    }

    /// Turns at one and the same moment until it is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&Recorder) -> bool) {
        let start = Moment::now();
        while !is_so(self.worker.app()) {
            assert!(start.elapsed() < TIMEOUT, "this does not come about: {what}; {:?}", self.worker.app().events);
            self.worker.poll_once(NOW);
            std::thread::yield_now();
        }
    }
}

/// Calls a gateway of the far kernel before the first turn.
fn call(test: &str, whose: Whose) {
    let Some(wire) = Wire::new(test) else { return };
    let gateway = wire.far.run(|| TcpListener::bind((THEIRS, 0)).unwrap());
    let remote = SocketAddrV4::new(THEIRS, gateway.local_addr().unwrap().port());
    wire.near.run(|| {
        let mut unpolled = Unpolled::open(&wire, whose, remote.port());
        unpolled.worker.with_app(NOW, |_, cx| {
            let local = SocketAddrV4::new(OURS, SESSION);
            cx.tcp().connect(local, remote, &ConnectionOptions::default(), ConsumerId(1)).unwrap();
        });
        unpolled.until("the connection stands", |ear| !ear.events.is_empty());
        assert_eq!(unpolled.worker.app().events, [TcpEvent::Connected { listener: None }]);
    });
    gateway.accept().unwrap();
}

#[test]
fn call_before_the_first_turn_is_answered_on_a_port_of_ours() {
    call("call_before_the_first_turn_is_answered_on_a_port_of_ours", Whose::Ours);
}

/// The kernel would answer the gateway with a reset.
#[test]
fn call_before_the_first_turn_is_answered_on_a_shared_port() {
    call("call_before_the_first_turn_is_answered_on_a_shared_port", Whose::Shared);
}

/// Sends a datagram to the far kernel before the first turn. The answer arrives before that turn.
fn ask(test: &str, whose: Whose) {
    let Some(wire) = Wire::new(test) else { return };
    let peer = wire.socket((THEIRS, 0));
    let remote = SocketAddrV4::new(THEIRS, peer.local_addr().unwrap().port());
    wire.near.run(|| {
        let mut unpolled = Unpolled::open(&wire, whose, 1);
        unpolled.worker.with_app(NOW, |_, cx| {
            let local = SocketAddrV4::new(OURS, QUOTES);
            cx.sockets.bind(ConsumerId(0), local, Sharing::Exclusive).unwrap();
            let mut flow = UdpFlow::connect(local, remote, &UdpOptions::default(), cx).unwrap();
            flow.send(b"ask", cx).unwrap();
        });
        if whose == Whose::Ours {
            // The datagram waits for its neighbor, which was requested before the first turn.
            answer_when_it_comes(&mut unpolled, &peer);
        } else {
            answer(&peer);
        }
        unpolled.until("the answer", |ear| ear.datagrams == [b"answer"]);
    });
}

fn answer(peer: &UdpSocket) {
    let mut bytes = [0; 16];
    let (len, from) = peer.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..len], from), (&b"ask"[..], (OURS, QUOTES).into()));
    peer.send_to(b"answer", from).unwrap();
}

fn answer_when_it_comes(unpolled: &mut Unpolled, peer: &UdpSocket) {
    peer.set_nonblocking(true).unwrap();
    let start = Moment::now();
    while peer.peek_from(&mut [0; 16]).is_err() {
        assert!(start.elapsed() < TIMEOUT, "the datagram does not leave: its neighbor's answer came to the kernel");
        unpolled.worker.poll_once(NOW);
        std::thread::sleep(Duration::from_micros(100));
    }
    answer(peer);
}

#[test]
fn datagram_before_the_first_turn_is_answered_on_a_port_of_ours() {
    ask("datagram_before_the_first_turn_is_answered_on_a_port_of_ours", Whose::Ours);
}

#[test]
fn datagram_before_the_first_turn_is_answered_on_a_shared_port() {
    ask("datagram_before_the_first_turn_is_answered_on_a_shared_port", Whose::Shared);
}
