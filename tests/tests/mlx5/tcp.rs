//! TCP on a ConnectX, with the Linux kernel as the peer: a shared port, where a rule matches our
//! segments, and the device computes checksums and, where it can, cuts segments.
//!
//! Each test is two processes: it starts itself again under `softhca run` at our end of a veth, and
//! uses the kernel's sockets at the other.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Child;
use std::time::Instant;

use wirepath::counters::{Block, Reading};
use wirepath::device::mlx5::{Mlx5Device, Mlx5Rx, Mlx5Tx};
use wirepath::device::steering::Rule;
use wirepath::device::tap::TapDevice;
use wirepath::device::{Device, RxOf, RxQueue, TxOf, TxQueue};
use wirepath::pipeline::tcp::{
    CloseReason, ConnectionId, ConnectionOptions, ListenOptions, TcpConfig, TcpNodeConfig, TcpSent, TcpSockets,
    TcpSocketsConfig,
};
use wirepath::pipeline::{EgressConfig, HostStack, HostStackConfig, host_stack};
use wirepath::proto::{ConsumerId, HashSeed, Host, HostConfig, HostEvent, InterfaceId, SocketCapacity, UdpSockets};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::live::{DedicatedHost, LiveConfig, LiveDevice, LivePort, PortConfig};
use wirepath::worker::{Parts, StopFlag, Worker};
use wirepath_tests::connectx::{End, config, open, pool};
use wirepath_tests::live::{PIECE_LEN_MAX, Plan, Recorder, network, peer, stream};
use wirepath_tests::netns::Namespace;
use wirepath_tests::nic;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const OUR_PORT: u16 = 7_000;
const THEIR_PORT: u16 = 9_000;
const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa0]);
const THEIR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa1]);
/// Bytes each way.
const BULK: u64 = 4 << 20;
/// Bytes of a buffer that is handed over: several segments.
const LONG: usize = 8_000;
/// Bytes of the longest frame for a buffer of a live port, one segment, as in the pools of
/// `worker::live`.
const FRAME: usize = 1_500 + 22;
/// Bytes that are handed over as a copy at a time.
const COPY: usize = 64 << 10;
/// Frames of one step of the model.
const STEP: usize = 1_024;
/// Nothing here takes longer, on a machine that is busy with other tests.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// Set for the process at our end.
const INSIDE: &str = "WIREPATH_TEST_INSIDE";

/// A failed test leaves no polling process behind.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `kernel` at the far end of a veth while the same test, started anew, runs at ours.
fn beside_the_kernel(test: &str, options: &[&str], kernel: impl FnOnce(&Namespace, &TcpListener)) {
    let namespaces = softhca::testing::missing().map_or_else(|| Ok((Namespace::new()?, Namespace::new()?)), Err);
    let (near, far) = match namespaces {
        Ok(namespaces) => namespaces,
        Err(why) => return println!("SKIPPED {test}: {why}"),
    };
    near.veth("veth0", &far, "veth1").unwrap();
    near.ip(&["link", "set", "veth0", "address", &OUR_MAC.to_string()]).unwrap();
    far.ip(&["link", "set", "veth1", "address", &THEIR_MAC.to_string()]).unwrap();
    far.ip(&["address", "add", "10.77.0.1/24", "dev", "veth1"]).unwrap();
    let ours = OUR_MAC.to_string();
    far.ip(&["neighbor", "add", "10.77.0.2", "lladdr", &ours, "dev", "veth1", "nud", "permanent"]).unwrap();
    let offloads = far.command("ethtool", &["-K", "veth1", "tso", "off", "gso", "off"]);
    if !offloads.is_ok_and(|output| output.status.success()) {
        // Segments that the kernel would leave for its device to cut must come cut.
        return println!("SKIPPED {test}: no ethtool (apt-get install ethtool)");
    }
    let listener = peer::listener(&far, THEIR_PORT);
    let wire = ["--strict", "--manual", "--wire", "veth0"];
    let mut command = softhca::testing::command(&[&wire[..], options].concat()).unwrap();
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(INSIDE, test);
    let mut ours = Process(near.run(|| command.spawn()).unwrap());
    kernel(&far, &listener);
    let status = ours.0.wait().unwrap();
    assert!(status.success(), "our end, see above");
}

/// Sends back received data, to the end; returns how many bytes that was.
fn echo(mut socket: TcpStream) -> u64 {
    let (mut bytes, mut count) = (vec![0; 64 << 10], 0);
    loop {
        let len = match socket.read(&mut bytes) {
            // A child of another test has ended: the kernel does not go on with a read that has a
            // timeout.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        if len == 0 {
            return count;
        }
        socket.write_all(&bytes[..len]).unwrap();
        count += len as u64;
    }
}

/// A worker on a queue of a software ConnectX, and the values that must live as long as it.
struct Ours<R, T, D> {
    worker: Worker<R, T, HostStack, Recorder>,
    _device: D,
    clock: MonotonicClock,
    block: Block,
}

impl Ours<Mlx5Rx, Mlx5Tx, Mlx5Device> {
    /// With buffers for `buffer_len` bytes. Rules bring only the segments of our ports: a shared
    /// port.
    fn start(buffer_len: usize) -> Self {
        let mut device = open(&config("mlx5_0"));
        for port in [OUR_PORT, OUR_PORT + 1] {
            device.steer(&Rule::tcp(OURS, port), 0).unwrap();
        }
        let capabilities = device.capabilities();
        let End { rx, tx, block, pool, .. } = End::with_pool(&mut device, 0, pool(4_096, buffer_len)).unwrap();
        let (seed, scope) = (HashSeed::new(23, 29), block.scope("host"));
        let host_config = HostConfig {
            interface: InterfaceId(0),
            mac: OUR_MAC,
            vlan: VlanTags::NONE,
            mtu: 1500,
            addresses_max: 1,
            routes_max: 1,
            neighbors_max: 1,
        };
        let mut host = Host::new(host_config, seed).unwrap();
        host.apply(HostEvent::AddressAdded(network(OURS))).unwrap();
        // The event that the kernel of a shared port would report.
        host.apply(HostEvent::NeighborSet { address: THEIRS, mac: THEIR_MAC }).unwrap();
        let config = HostStackConfig { igmp: None, tcp: Some(TcpNodeConfig::default()), ..HostStackConfig::new(seed) };
        let machine = TcpConfig { connections_max: 4, chunks_max: 2_048, ..TcpConfig::default() };
        let tcp = TcpSockets::new(&TcpSocketsConfig { machine, capabilities, seed }, &scope).unwrap();
        let parts = Parts {
            rx,
            tx,
            pipeline: host_stack(config, &host, &scope),
            app: Recorder::default(),
            pool,
            host,
            sockets: UdpSockets::new(SocketCapacity::default(), seed),
            egress: EgressConfig::quiet(seed),
            burst_len: 32,
        };
        let worker = Worker::new(parts, &scope).with_tcp(tcp);
        block.check().unwrap();
        Self { worker, _device: device, clock: MonotonicClock::start(), block }
    }
}

/// As `worker::live` makes it: a port of our own, with ARP, a pool for frames of the interface, and
/// a roster.
type OursLive = Ours<RxOf<TapDevice<LiveDevice>>, TxOf<TapDevice<LiveDevice>>, LivePort>;

impl OursLive {
    fn start_live() -> Self {
        let owned = DedicatedHost { addresses: vec![network(OURS)], ..DedicatedHost::default() };
        let machine = TcpConfig { connections_max: 4, chunks_max: 2_048, ..TcpConfig::default() };
        let live = LiveConfig::new("veth0").named("live-tso").dedicated(owned).tcp_with(machine);
        let (block, stop) = (Block::heap(), StopFlag::new());
        let mut port = LivePort::open(
            &LiveConfig { port: PortConfig::Mlx5(config("veth0")), ..live },
            &block.scope("port"),
            &stop,
        )
        .unwrap();
        let queue = port.take_queue().unwrap().unwrap();
        let worker = queue.builder().build(Recorder::default(), &block.scope("host")).unwrap();
        block.check().unwrap();
        Self { worker, _device: port, clock: MonotonicClock::start(), block }
    }
}

impl<R: RxQueue, T: TxQueue, D> Ours<R, T, D> {
    /// Turns until it is so. The model moves with each turn.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            nic::step(STEP);
            let now = self.clock.now();
            if self.worker.poll_once(now) == 0 {
                std::thread::yield_now();
            }
            nic::step(STEP);
            assert!(
                begin.elapsed() < TIMEOUT,
                "{what}: {:?} {:?}",
                self.worker.tcp().tally(),
                self.worker.app().traffic.ends
            );
        }
    }

    /// Sends the stream in buffers of several segments each, without a copy, as far as there is
    /// room.
    fn hand_over(&mut self, id: ConnectionId, sent: &mut u64) {
        let now = self.clock.now();
        self.worker.with_app(now, |_, cx| {
            while *sent < BULK {
                let len = (BULK - *sent).min(LONG.min(PIECE_LEN_MAX) as u64) as usize;
                let Some(mbuf) = cx.pool.alloc_copy(stream(*sent, len)) else { return };
                match cx.tcp().send_mbuf(id, mbuf) {
                    Ok(()) => *sent += len as u64,
                    Err((_, mbuf)) => return mbuf.free(),
                }
            }
        });
    }

    /// Sends the stream as copies that are longer than any buffer, as far as there is room.
    fn copy_over(&mut self, id: ConnectionId, sent: &mut u64) {
        let now = self.clock.now();
        self.worker.with_app(now, |_, cx| {
            while *sent < BULK {
                let len = (BULK - *sent).min(COPY.min(PIECE_LEN_MAX) as u64) as usize;
                match cx.tcp().send(id, stream(*sent, len)) {
                    Ok(taken) => *sent += taken as u64,
                    Err(_) => return,
                }
            }
        });
    }

    /// Frames of TCP that were posted.
    fn posted(&self) -> u64 {
        self.block.snapshot().count("host/tcp/segments_out").unwrap()
    }

    fn end(mut self) {
        self.until("all is quiet", |ours| ours.worker.tx_mut().in_flight() == 0);
        assert_eq!(self.worker.pool().drops_without_reason(), 0, "buffers that went without a name");
        drop(self);
        assert_eq!(nic::diagnoses(), Vec::<String>::new());
    }
}

/// Connects to the kernel, sends all data by `send` and receives it back; returns the number of
/// segments, and the number of frames in which they were posted.
fn call_the_kernel<R: RxQueue, T: TxQueue, D>(
    mut ours: Ours<R, T, D>,
    send: fn(&mut Ours<R, T, D>, ConnectionId, &mut u64),
) -> (u64, u64) {
    let (local, remote) = (SocketAddrV4::new(OURS, OUR_PORT + 1), SocketAddrV4::new(THEIRS, THEIR_PORT));
    let now = ours.clock.now();
    let id = ours.worker.with_app(now, |app, cx| {
        let id = cx.tcp().connect(local, remote, &ConnectionOptions::default(), ConsumerId(0)).unwrap();
        app.traffic.begin(id, Plan::STAY);
        id
    });
    let mut sent = 0;
    ours.until("all comes back", |ours| {
        let is_connected = ours.worker.app().traffic.ends[&id].is_connected;
        if is_connected {
            send(ours, id, &mut sent);
        }
        ours.worker.app().traffic.ends[&id].received == BULK
    });
    let now = ours.clock.now();
    ours.worker.with_app(now, |_, cx| cx.tcp().shutdown(id).unwrap());
    ours.until("it is over", |ours| ours.worker.app().traffic.ends[&id].closed.is_some());
    let end = &ours.worker.app().traffic.ends[&id];
    assert_eq!((end.wrong_at, end.closed), (None, Some(CloseReason::Finished)));
    let counts = (ours.worker.tcp().tally().segments_out, ours.posted());
    ours.end();
    counts
}

fn is_inside(test: &str) -> bool {
    std::env::var_os(INSIDE).is_some_and(|name| name == test)
}

#[test]
fn kernel_sends_back_what_a_connectx_cut_into_segments() {
    let test = "kernel_sends_back_what_a_connectx_cut_into_segments";
    if !is_inside(test) {
        return beside_the_kernel(test, &[], |_, listener| assert_eq!(echo(peer::accept(listener).unwrap()), BULK));
    }
    let (segments, frames) = call_the_kernel(Ours::start(LONG + 200), Ours::hand_over);
    assert!(segments > frames + 1_000, "{segments} segments in {frames} frames: the device has cut nothing");
}

#[test]
fn kernel_sends_back_what_a_connectx_cut_out_of_buffers_of_one_segment_each() {
    let test = "kernel_sends_back_what_a_connectx_cut_out_of_buffers_of_one_segment_each";
    if !is_inside(test) {
        return beside_the_kernel(test, &[], |_, listener| assert_eq!(echo(peer::accept(listener).unwrap()), BULK));
    }
    let (segments, frames) = call_the_kernel(Ours::start(FRAME), Ours::copy_over);
    assert!(segments > frames + 1_000, "{segments} segments in {frames} frames: buffers were not put together");
}

/// 64 KiB passed to `send` leave as one frame, which the device cuts: the byte counts and the
/// stream are the same on either end.
#[test]
fn kernel_sends_back_what_a_live_port_had_a_connectx_cut() {
    let test = "kernel_sends_back_what_a_live_port_had_a_connectx_cut";
    if !is_inside(test) {
        return beside_the_kernel(test, &[], |_, listener| assert_eq!(echo(peer::accept(listener).unwrap()), BULK));
    }
    let (segments, frames) = call_the_kernel(Ours::start_live(), Ours::copy_over);
    assert!(segments > frames + 1_000, "{segments} segments in {frames} frames: the device has cut nothing");
}

/// Through all wrappers of a live port: none of them needs to see a preposted frame, so preposting
/// is possible.
#[test]
fn kernel_sends_back_the_orders_that_stood_on_a_live_port() {
    const ORDERS: u64 = 200;
    const LEN: usize = 64;
    let test = "kernel_sends_back_the_orders_that_stood_on_a_live_port";
    if !is_inside(test) {
        return beside_the_kernel(test, &[], |_, listener| {
            assert_eq!(echo(peer::accept(listener).unwrap()), ORDERS * LEN as u64);
        });
    }
    let mut ours = Ours::start_live();
    let (local, remote) = (SocketAddrV4::new(OURS, OUR_PORT + 1), SocketAddrV4::new(THEIRS, THEIR_PORT));
    let now = ours.clock.now();
    let id = ours.worker.with_app(now, |app, cx| {
        let id = cx.tcp().connect(local, remote, &ConnectionOptions::default(), ConsumerId(0)).unwrap();
        app.traffic.begin(id, Plan::STAY);
        id
    });
    ours.until("connected", |ours| ours.worker.app().traffic.ends[&id].is_connected);
    let now = ours.clock.now();
    let mut order = ours.worker.with_app(now, |_, cx| cx.tcp().prepare(id, &[0; LEN]).unwrap());
    for number in 0..ORDERS {
        let now = ours.clock.now();
        ours.worker.with_app(now, |_, cx| {
            assert_eq!(cx.tcp().prepost(&mut order), Ok(true));
            order.patch(0, stream(number * LEN as u64, LEN)).unwrap();
            assert_eq!(cx.tcp().fire(&mut order), Ok(TcpSent::Posted));
        });
        ours.until("it comes back", |ours| ours.worker.app().traffic.ends[&id].received == (number + 1) * LEN as u64);
    }
    let fired = ours.block.snapshot().samples.into_iter().find(|sample| sample.name.ends_with("tx/preposts_fired"));
    assert_eq!(fired.unwrap().reading, Reading::Counter(ORDERS));
    let now = ours.clock.now();
    ours.worker.with_app(now, |_, cx| cx.tcp().shutdown(id).unwrap());
    ours.until("it is over", |ours| ours.worker.app().traffic.ends[&id].closed.is_some());
    let end = &ours.worker.app().traffic.ends[&id];
    assert_eq!((end.wrong_at, end.closed), (None, Some(CloseReason::Finished)));
    ours.end();
}

#[test]
fn kernel_sends_back_what_a_live_port_on_a_connectx_without_tso_sends() {
    let test = "kernel_sends_back_what_a_live_port_on_a_connectx_without_tso_sends";
    if !is_inside(test) {
        let options = ["--without", "tso"];
        return beside_the_kernel(test, &options, |_, listener| {
            assert_eq!(echo(peer::accept(listener).unwrap()), BULK);
        });
    }
    let (segments, frames) = call_the_kernel(Ours::start_live(), Ours::copy_over);
    assert_eq!(segments, frames);
}

#[test]
fn kernel_sends_back_what_a_connectx_without_tso_sends() {
    let test = "kernel_sends_back_what_a_connectx_without_tso_sends";
    if !is_inside(test) {
        let options = ["--without", "tso"];
        return beside_the_kernel(test, &options, |_, listener| {
            assert_eq!(echo(peer::accept(listener).unwrap()), BULK);
        });
    }
    let (segments, frames) = call_the_kernel(Ours::start(LONG + 200), Ours::hand_over);
    assert_eq!(segments, frames);
}

#[test]
fn kernel_calls_a_port_that_a_rule_steers_to_a_connectx() {
    let test = "kernel_calls_a_port_that_a_rule_steers_to_a_connectx";
    if !is_inside(test) {
        return beside_the_kernel(test, &[], |far, _| {
            let socket = peer::connect(far, (OURS, OUR_PORT)).unwrap();
            assert_eq!(peer::exchange(&socket, BULK).unwrap(), BULK);
        });
    }
    let mut ours = Ours::start(FRAME);
    let now = ours.clock.now();
    ours.worker.with_app(now, |app, cx| {
        app.traffic.plan = Plan::send(BULK);
        cx.tcp().listen(SocketAddrV4::new(OURS, OUR_PORT), &ListenOptions::default()).unwrap();
    });
    // The kernel asks again where its first SYN came before us.
    ours.until("it is over", |ours| ours.worker.app().traffic.ends.values().any(|end| end.closed.is_some()));
    let end = ours.worker.app().traffic.ends.values().next().unwrap();
    assert_eq!((end.wrong_at, end.received, end.closed), (None, BULK, Some(CloseReason::Finished)));
    ours.end();
}
