//! TCP against the Linux kernel: connections in both directions, whose bytes arrive complete for
//! every fault of the wire.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use wirepath::device::fault::{FaultConfig, Faults};
use wirepath::device::steering::Rule;
use wirepath::pipeline::ChecksumPolicy;
use wirepath::pipeline::tcp::{
    CloseReason, Congestion, ConnectionId, ConnectionOptions, Keepalive, ListenOptions, TcpConfig, TcpNodeConfig,
};
use wirepath::proto::{HostEvent, Ipv4Prefix, Route};
use wirepath::time::Duration;
use wirepath_tests::live::{FAR, Live, LiveConfig, NEAR, OURS, Plan, THEIRS, Wire, has_program, peer, set, table};
use wirepath_tests::netns::Namespace;

const PORT: u16 = 7_000;
/// Enough for slow start, full windows and wrapping numbers, and little enough for every run.
const BULK: u64 = 16 << 20;

fn tcp() -> TcpConfig {
    TcpConfig { connections_max: 64, chunks_max: 4_096, ..TcpConfig::default() }
}

/// A wire with us on it.
fn start(test: &str) -> Option<(Wire, Live)> {
    let wire = Wire::new(test)?;
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR).with_tcp(tcp())).unwrap();
    Some((wire, live))
}

/// Which end begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Us,
    Them,
}

/// A connection on a quiet wire.
fn open(live: &Live, wire: &Wire, opens: Opens, plan: Plan) -> (ConnectionId, TcpStream) {
    open_with(live, (&wire.far, THEIRS), opens, plan)
}

/// A connection with the kernel in a namespace, at an address of it.
fn open_with(live: &Live, kernel: (&Namespace, Ipv4Addr), opens: Opens, plan: Plan) -> (ConnectionId, TcpStream) {
    match opens {
        Opens::Us => {
            let listener = peer::listener(kernel.0, 0);
            let port = listener.local_addr().unwrap().port();
            let id = live.dial((kernel.1, port), ConnectionOptions::default(), plan);
            (id, peer::accept(&listener).unwrap())
        }
        Opens::Them => {
            let before = live.with(|recorder, _| recorder.traffic.accepted.len());
            let stream = peer::connect(kernel.0, (OURS, PORT)).unwrap();
            (live.accepted(before), stream)
        }
    }
}

/// Sends this many bytes each way, at the same time, and checks every one of them.
fn transfer(live: &Live, id: ConnectionId, socket: &TcpStream, ours: u64, theirs: u64) {
    let before = live.with_worker(|worker, _| worker.tcp().tally());
    let start = Instant::now();
    let heard = peer::exchange(socket, theirs);
    let took = start.elapsed();
    let heard = heard.unwrap_or_else(|error| panic!("{error}: {:?}\n{}", live.end_of(id), table(&live.snapshot())));
    assert_eq!(heard, ours, "what the kernel has heard of us");
    live.until("the connection is closed", |live| live.end_of(id).closed.is_some());
    let end = live.end_of(id);
    assert_eq!((end.wrong_at, end.received), (None, theirs), "what we have heard of the kernel");
    assert_eq!(end.closed, Some(CloseReason::Finished));
    let rate = (ours + theirs) as f64 / took.as_secs_f64() / 1e6;
    let after = live.with_worker(|worker, _| worker.tcp().tally());
    println!(
        "{ours} bytes to the kernel and {theirs} from it in {took:?}, {rate:.0} MB/s; {} of our segments resent, {} probes, {} \
         timeouts, {} of theirs out of order",
        after.segments_resent - before.segments_resent,
        after.tail_loss_probes - before.tail_loss_probes,
        after.timeouts - before.timeouts,
        after.out_of_order - before.out_of_order
    );
}

fn bulk(test: &str, opens: Opens, ours: u64, theirs: u64) {
    let Some((wire, live)) = start(test) else { return };
    let plan = Plan::send(ours);
    live.listen(PORT, ListenOptions::default(), plan);
    let (id, socket) = open(&live, &wire, opens, plan);
    transfer(&live, id, &socket, ours, theirs);
    live.stop();
}

#[test]
fn bulk_that_we_connect_for_comes_whole_to_the_kernel() {
    bulk("bulk_that_we_connect_for_comes_whole_to_the_kernel", Opens::Us, BULK, 0);
}

#[test]
fn bulk_that_we_connect_for_comes_whole_to_us() {
    bulk("bulk_that_we_connect_for_comes_whole_to_us", Opens::Us, 0, BULK);
}

#[test]
fn bulk_that_we_accept_comes_whole_to_the_kernel() {
    bulk("bulk_that_we_accept_comes_whole_to_the_kernel", Opens::Them, BULK, 0);
}

#[test]
fn bulk_that_we_accept_comes_whole_to_us() {
    bulk("bulk_that_we_accept_comes_whole_to_us", Opens::Them, 0, BULK);
}

#[test]
fn bulk_comes_whole_both_ways_at_once() {
    for opens in [Opens::Us, Opens::Them] {
        bulk("bulk_comes_whole_both_ways_at_once", opens, BULK, BULK);
    }
}

/// The kernel's end behind a router, so that frames can be lost in either direction.
struct Routed {
    beyond: Namespace,
    wire: Wire,
}

const BEYOND: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 3);

fn routed(test: &str, mtu: &str) -> Option<Routed> {
    let wire = Wire::new(test)?;
    let beyond = Namespace::new().unwrap();
    wire.far.veth("veth2", &beyond, "veth3").unwrap();
    wire.far.ip(&["link", "set", "veth2", "mtu", mtu]).unwrap();
    wire.far.ip(&["addr", "add", "10.8.0.2/24", "dev", "veth2"]).unwrap();
    set(&wire.far, "ip_forward", "1");
    beyond.ip(&["link", "set", "veth3", "mtu", mtu]).unwrap();
    beyond.ip(&["addr", "add", "10.8.0.3/24", "dev", "veth3"]).unwrap();
    beyond.ip(&["route", "add", "default", "via", "10.8.0.2"]).unwrap();
    // A frame that is lost is one segment.
    for (namespace, interface) in [(&wire.far, FAR), (&wire.far, "veth2"), (&beyond, "veth3")] {
        let off = ["-K", interface, "tso", "off", "gso", "off", "gro", "off"];
        assert!(namespace.command("ethtool", &off).unwrap().status.success());
    }
    Some(Routed { beyond, wire })
}

fn start_routed(wire: &Wire, config: &LiveConfig) -> Live {
    let live = Live::start(&wire.near, config).unwrap();
    let network = Ipv4Prefix::new(Ipv4Addr::UNSPECIFIED, 0).unwrap();
    live.apply(HostEvent::RouteAdded(Route { network, gateway: Some(THEIRS), source: OURS, metric: 0 }));
    live
}

/// Loses this many frames of a thousand that arrive at an interface.
fn lose(namespace: &Namespace, interface: &str, per_mille: u32) {
    let rules = format!(
        "table netdev loss {{ chain in {{ type filter hook ingress device \"{interface}\" priority 0; \
         numgen random mod 1000 < {per_mille} counter drop; }}; }}"
    );
    let set = namespace.command("nft", &[&rules]).unwrap();
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
}

/// The congestion controls that the namespace may use: a new one may not use those that the kernel
/// calls restricted.
fn congestion_controls(namespace: &Namespace) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let (allowed, refused): (Vec<_>, Vec<_>) = all
        .split_whitespace()
        .map(str::to_owned)
        .partition(|name| namespace.run(|| std::fs::write(path, name)).is_ok());
    println!("congestion controls of the kernel's end: {allowed:?}; it may not have {refused:?}");
    allowed
}

/// The side that connects, and the bytes that each end sends: ours first.
type Way = (Opens, u64, u64);

/// Both directions at once, connected by either end, and each direction alone, which is shorter.
fn ways(len: u64) -> [Way; 4] {
    [(Opens::Us, len, len), (Opens::Them, len, len), (Opens::Them, len / 2, 0), (Opens::Us, 0, len / 2)]
}

/// Bulk over a wire that loses, with each congestion control of the kernel's end.
fn lossy(test: &str, per_mille: u32, ways: &[Way]) {
    lossy_with(test, per_mille, ConnectionOptions::default().rto_min, ways);
}

/// The same with a floor of the retransmission timeout, for both ends.
fn lossy_with(test: &str, per_mille: u32, rto_min: Duration, ways: &[Way]) {
    if !has_program(test, "nft") || !has_program(test, "ethtool") {
        return;
    }
    let Some(Routed { beyond, wire }) = routed(test, "1500") else { return };
    let floor = format!("{}ms", rto_min.as_nanos() / 1_000_000);
    beyond.ip(&["route", "change", "default", "via", "10.8.0.2", "rto_min", &floor]).unwrap();
    lose(&beyond, "veth3", per_mille);
    lose(&wire.far, "veth2", per_mille);
    for control in congestion_controls(&beyond) {
        set(&beyond, "tcp_congestion_control", &control);
        for &(opens, ours, theirs) in ways {
            let live = start_routed(&wire, &LiveConfig::own(NEAR).with_tcp(tcp()));
            print!("{per_mille} of 1000 frames lost each way, {control}, connected by {opens:?}: ");
            let plan = Plan::send(ours);
            live.listen(PORT, ListenOptions::default(), plan);
            let (id, socket) = open_with(&live, (&beyond, BEYOND), opens, plan);
            let options = ConnectionOptions { rto_min, ..ConnectionOptions::default() };
            live.with(move |_, cx| cx.tcp().set_options(id, &options)).unwrap();
            transfer(&live, id, &socket, ours, theirs);
            live.stop();
        }
    }
    for (namespace, end) in [(&beyond, "the kernel's"), (&wire.far, "our")] {
        let lost = lost(namespace);
        println!("{lost} frames were lost on the way to {end} end");
        assert!(lost > 0);
    }
}

/// How many frames were lost in a namespace.
fn lost(namespace: &Namespace) -> u64 {
    let said = namespace.command("nft", &["list", "table", "netdev", "loss"]).unwrap().stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let count = said.split("packets ").nth(1).and_then(|after| after.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no packets are counted in {said}"))
}

#[test]
fn bulk_comes_whole_where_one_of_100_frames_is_lost() {
    lossy("bulk_comes_whole_where_one_of_100_frames_is_lost", 10, &ways(4 << 20));
}

#[test]
fn bulk_comes_whole_where_five_of_100_frames_are_lost() {
    lossy("bulk_comes_whole_where_five_of_100_frames_are_lost", 50, &ways(1 << 20));
}

#[test]
fn bulk_comes_whole_where_ten_of_100_frames_are_lost() {
    lossy("bulk_comes_whole_where_ten_of_100_frames_are_lost", 100, &ways(1 << 18));
}

/// Bulk each way at once over a device with faults.
fn faulty(test: &str, name: &str, faults: Faults) {
    if !has_program(test, "ethtool") {
        return;
    }
    let Some(wire) = Wire::new(test) else { return };
    // A veth that computes no checksum detects no damage either.
    assert!(wire.far.command("ethtool", &["-K", FAR, "tx", "off", "rx", "off"]).unwrap().status.success());
    let mut config = LiveConfig::own(NEAR).with_tcp(tcp());
    config.stack.tcp = Some(TcpNodeConfig { checksum: ChecksumPolicy::Verify });
    config.faults = FaultConfig { seed: 7, rx: faults, tx: faults };
    let live = Live::start(&wire.near, &config).unwrap();
    let len = 4 << 20;
    let plan = Plan::send(len);
    live.listen(PORT, ListenOptions::default(), plan);
    for opens in [Opens::Us, Opens::Them] {
        let (id, socket) = open(&live, &wire, opens, plan);
        transfer(&live, id, &socket, len, len);
    }
    let done = ["rx", "tx"].map(|half| live.count(&format!("device/fault/{half}/{name}")));
    println!(
        "{name}: {done:?} frames received and sent, {} segments with a wrong checksum",
        live.count("tcp/drop/bad_checksum")
    );
    assert!(done.iter().all(|count| *count > 20), "{name}: {done:?}");
    live.stop();
}

#[test]
fn bulk_comes_whole_where_frames_come_twice() {
    faulty("bulk_comes_whole_where_frames_come_twice", "duplicated", Faults { duplication: 0.05, ..Faults::NONE });
}

#[test]
fn bulk_comes_whole_where_frames_overtake_each_other() {
    let faults = Faults { reordering: 0.05, reorder_frames_max: 8, ..Faults::NONE };
    faulty("bulk_comes_whole_where_frames_overtake_each_other", "reordered", faults);
}

#[test]
fn bulk_comes_whole_where_bits_flip() {
    faulty("bulk_comes_whole_where_bits_flip", "corrupted", Faults { corruption: 0.01, ..Faults::NONE });
}

/// The fault device does not change buffers that the connection still holds, so our data is damaged
/// when it arrives.
#[test]
fn bulk_comes_whole_to_the_kernel_where_bytes_change() {
    let test = "bulk_comes_whole_to_the_kernel_where_bytes_change";
    if !has_program(test, "nft") || !has_program(test, "ethtool") {
        return;
    }
    let Some((wire, live)) = start(test) else { return };
    assert!(wire.far.command("ethtool", &["-K", FAR, "rx", "off"]).unwrap().status.success());
    let rules = format!(
        "table netdev loss {{ chain in {{ type filter hook ingress device \"{FAR}\" priority 0; \
         numgen random mod 100 < 1 meta length > 1000 counter @ll,1600,8 set 0xa5; }}; }}"
    );
    let set = wire.far.command("nft", &[&rules]).unwrap();
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let (id, socket) = open(&live, &wire, Opens::Us, Plan::send(BULK));
    transfer(&live, id, &socket, BULK, 0);
    println!("{} frames were damaged", lost(&wire.far));
    assert!(live.with_worker(|worker, _| worker.tcp().tally()).segments_resent > 20);
    live.stop();
}

#[test]
fn bulk_comes_whole_with_each_congestion_control_of_ours() {
    let Some((wire, live)) = start("bulk_comes_whole_with_each_congestion_control_of_ours") else { return };
    let listener = peer::listener(&wire.far, 0);
    let port = listener.local_addr().unwrap().port();
    for congestion in [Congestion::Cubic, Congestion::Reno, Congestion::None] {
        let options = ConnectionOptions { congestion, ..ConnectionOptions::default() };
        let id = live.dial((THEIRS, port), options, Plan::send(BULK));
        transfer(&live, id, &peer::accept(&listener).unwrap(), BULK, BULK);
    }
    live.stop();
}

const PAUSE: std::time::Duration = std::time::Duration::from_secs(2);

#[test]
fn window_that_the_kernel_closes_for_seconds_is_probed_until_it_opens() {
    let test = "window_that_the_kernel_closes_for_seconds_is_probed_until_it_opens";
    let Some((wire, live)) = start(test) else { return };
    let (id, socket) = open(&live, &wire, Opens::Us, Plan::send(BULK));
    live.until("the window is closed", |live| live.info(id).is_some_and(|info| info.snd_wnd < 1_500));
    std::thread::sleep(PAUSE);
    let info = live.info(id).unwrap();
    assert!(live.end_of(id).closed.is_none(), "{info:?}");
    transfer(&live, id, &socket, BULK, BULK);
    live.stop();
}

#[test]
fn window_that_we_close_for_seconds_holds_the_kernel_back() {
    let Some((wire, live)) = start("window_that_we_close_for_seconds_holds_the_kernel_back") else { return };
    let (id, socket) = open(&live, &wire, Opens::Us, Plan { paused: true, ..Plan::send(BULK) });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            live.until("our window is closed", |live| live.info(id).is_some_and(|info| info.rcv_wnd < 1_500));
            std::thread::sleep(PAUSE);
            assert_eq!(live.end_of(id).received, 0);
            live.with(move |_, cx| cx.tcp().resume(id)).unwrap();
        });
        transfer(&live, id, &socket, BULK, BULK);
    });
    live.stop();
}

#[test]
fn kernel_is_reset_by_a_worker_that_hangs_up() {
    let Some((wire, live)) = start("kernel_is_reset_by_a_worker_that_hangs_up") else { return };
    live.listen(PORT, ListenOptions::default(), Plan::STAY);
    let opened = (0..40).map(|number| if number % 2 == 0 { Opens::Us } else { Opens::Them });
    let sockets: Vec<_> = opened.map(|opens| open(&live, &wire, opens, Plan::STAY).1).collect();
    assert_eq!(live.with_worker(|worker, now| worker.reset_connections(now)), 40);
    for mut socket in sockets {
        assert_eq!(socket.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    live.stop();
}

#[test]
fn closed_port_of_the_kernel_refuses() {
    let Some((_wire, live)) = start("closed_port_of_the_kernel_refuses") else { return };
    let id = live.dial((THEIRS, 9), ConnectionOptions::default(), Plan::STAY);
    live.until("it is refused", |live| live.end_of(id).closed == Some(CloseReason::Refused));
    live.stop();
}

#[test]
fn closed_port_of_ours_refuses() {
    let Some((wire, live)) = start("closed_port_of_ours_refuses") else { return };
    let refused = peer::connect(&wire.far, (OURS, 9)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    live.stop();
}

#[test]
fn reset_of_the_kernel_in_the_middle_ends_the_connection() {
    let Some((wire, live)) = start("reset_of_the_kernel_in_the_middle_ends_the_connection") else { return };
    let (id, mut socket) = open(&live, &wire, Opens::Us, Plan::send(1 << 40));
    socket.read_exact(&mut [0; 100_000]).unwrap();
    // Unread data makes the kernel reset.
    drop(socket);
    live.until("it is reset", |live| live.end_of(id).closed == Some(CloseReason::Reset));
    live.stop();
}

#[test]
fn reset_of_ours_in_the_middle_ends_the_connection() {
    let Some((wire, live)) = start("reset_of_ours_in_the_middle_ends_the_connection") else { return };
    let (id, mut socket) = open(&live, &wire, Opens::Us, Plan::send(1 << 40));
    socket.read_exact(&mut [0; 100_000]).unwrap();
    live.with(move |_, cx| cx.tcp().abort(id)).unwrap();
    let reset = peer::receive_stream(&socket).unwrap_err();
    assert!(matches!(reset.kind(), ErrorKind::ConnectionReset | ErrorKind::InvalidData), "{reset}");
    live.until("it is gone", |live| live.end_of(id).closed == Some(CloseReason::Aborted));
    live.stop();
}

#[test]
fn peer_that_is_gone_is_found_by_keepalive() {
    let Some((wire, live)) = start("peer_that_is_gone_is_found_by_keepalive") else { return };
    let listener = peer::listener(&wire.far, 0);
    // Linux answers one probe in 500 ms (tcp_invalid_ratelimit), and a busy machine some of them
    // late.
    let (idle, interval) = (Duration::from_millis(600), Duration::from_millis(600));
    let keepalive = Some(Keepalive { idle, interval, count: 5 });
    let options = ConnectionOptions { keepalive, ..ConnectionOptions::default() };
    let id = live.dial((THEIRS, listener.local_addr().unwrap().port()), options, Plan::STAY);
    let _socket = peer::accept(&listener).unwrap();
    // A peer that answers lives on.
    std::thread::sleep(PAUSE);
    assert_eq!(live.end_of(id).closed, None);
    wire.far.ip(&["addr", "flush", "dev", FAR]).unwrap();
    wire.far.ip(&["link", "set", FAR, "arp", "off"]).unwrap();
    live.until("it is found dead", |live| live.end_of(id).closed == Some(CloseReason::KeepaliveTimedOut));
    live.stop();
}

#[test]
fn router_with_shorter_frames_makes_segments_shorter() {
    let test = "router_with_shorter_frames_makes_segments_shorter";
    if !has_program(test, "ethtool") {
        return;
    }
    let Some(Routed { beyond, wire }) = routed(test, "1000") else { return };
    let live = start_routed(&wire, &LiveConfig::own(NEAR).with_tcp(tcp()));
    // The kernel's end would reveal the smaller MTU by its MSS.
    beyond.ip(&["link", "set", "veth3", "mtu", "1500"]).unwrap();
    let listener = peer::listener(&beyond, 0);
    let port = listener.local_addr().unwrap().port();
    let id = live.dial((BEYOND, port), ConnectionOptions::default(), Plan::send(1 << 20));
    transfer(&live, id, &peer::accept(&listener).unwrap(), 1 << 20, 0);
    let end = live.end_of(id);
    assert_eq!(end.info.map(|info| info.snd_mss), Some(1000 - 40 - 12));
    assert!(live.count("icmp/errors_delivered") >= 1);
    live.stop();
}

#[test]
fn network_that_is_unreachable_ends_the_handshake() {
    let Some((wire, live)) = start("network_that_is_unreachable_ends_the_handshake") else { return };
    set(&wire.far, "ip_forward", "1");
    wire.far.ip(&["route", "add", "unreachable", "10.7.0.0/24"]).unwrap();
    let network = Ipv4Prefix::new(Ipv4Addr::UNSPECIFIED, 0).unwrap();
    live.apply(HostEvent::RouteAdded(Route { network, gateway: Some(THEIRS), source: OURS, metric: 0 }));
    let id = live.dial(([10, 7, 0, 1].into(), 9), ConnectionOptions::default(), Plan::STAY);
    live.until("it is given up", |live| live.end_of(id).closed == Some(CloseReason::Unreachable));
    live.stop();
}

#[test]
fn kernel_with_the_port_keeps_its_own_connections() {
    let Some(wire) = Wire::new("kernel_with_the_port_keeps_its_own_connections") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let listener = peer::listener(&wire.far, 0);
    let port = listener.local_addr().unwrap().port();
    let connects = Rule { source_port: Some(port), ..Rule::protocol(wirepath::wire::Protocol::TCP) };
    let rules = [Rule::tcp(OURS, PORT), connects.from(THEIRS).to(OURS)];
    let live = Live::start(&wire.near, &LiveConfig::shared(NEAR, &rules).with_tcp(tcp())).unwrap();
    live.until("the mirror has told the address", |live| live.with(|_, cx| cx.host.is_own(OURS)));
    live.listen(PORT, ListenOptions::default(), Plan::send(1 << 20));
    for opens in [Opens::Us, Opens::Them] {
        let (id, socket) = match opens {
            Opens::Us => {
                let id = live.dial((THEIRS, port), ConnectionOptions::default(), Plan::send(1 << 20));
                (id, peer::accept(&listener).unwrap())
            }
            Opens::Them => open(&live, &wire, opens, Plan::send(1 << 20)),
        };
        transfer(&live, id, &socket, 1 << 20, 1 << 20);
    }
    let theirs = peer::listener(&wire.near, 0);
    let socket = peer::connect(&wire.far, (OURS, theirs.local_addr().unwrap().port())).unwrap();
    let accepted = peer::accept(&theirs).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(peer::exchange(&accepted, 1 << 20).unwrap(), 1 << 20));
        assert_eq!(peer::exchange(&socket, 1 << 20).unwrap(), 1 << 20);
    });
    live.stop();
}

const MANY: usize = 10_000;

/// A permit for `count` sockets, for one test at a time, because the kernel's ends are descriptors
/// of this process. Prints that `test` is skipped where so many are not allowed.
fn descriptors(test: &str) -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id().to_string();
    let raised = Command::new("prlimit").args(["--pid", &pid, "--nofile=20000:20000"]).output();
    if raised.is_ok_and(|output| output.status.success()) {
        return Some(turn);
    }
    println!("SKIPPED {test}: a process may not have 20,000 descriptors here");
    None
}

fn start_many(wire: &Wire) -> Live {
    let tcp = TcpConfig { connections_max: 16 << 10, chunks_max: 16 << 10, ..TcpConfig::default() };
    set(&wire.far, "ip_local_port_range", "10000 65000");
    Live::start(&wire.near, &LiveConfig::own(NEAR).with_tcp(tcp)).unwrap()
}

#[test]
fn ten_thousand_connections_are_accepted_at_once() {
    let test = "ten_thousand_connections_are_accepted_at_once";
    let Some(wire) = Wire::new(test) else { return };
    let Some(_turn) = descriptors(test) else { return };
    let live = start_many(&wire);
    let unlimited = ListenOptions { connections_per_source: None, ..ListenOptions::default() };
    live.listen(PORT, unlimited, Plan::send(1_000));
    let start = Instant::now();
    let sockets: Vec<_> = (0..MANY).map(|_| peer::connect(&wire.far, (OURS, PORT)).unwrap()).collect();
    live.until("all are connected", |live| live.with(|recorder, _| recorder.traffic.accepted.len()) == MANY);
    println!("{MANY} connections were accepted in {:?}", start.elapsed());
    for socket in &sockets {
        peer::send_stream(socket, 1_000).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
    }
    for socket in &sockets {
        assert_eq!(peer::receive_stream(socket).unwrap(), 1_000);
    }
    check_many(&live);
    println!("and had 1,000 bytes each way after {:?}", start.elapsed());
    live.stop();
}

#[test]
fn ten_thousand_connections_are_made_at_once() {
    let test = "ten_thousand_connections_are_made_at_once";
    let Some(wire) = Wire::new(test) else { return };
    let Some(_turn) = descriptors(test) else { return };
    let live = start_many(&wire);
    let listener = peer::listener(&wire.far, 0);
    let port = listener.local_addr().unwrap().port();
    let start = Instant::now();
    let sockets = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| (0..MANY).map(|_| peer::accept(&listener).unwrap()).collect::<Vec<_>>());
        for _ in 0..MANY {
            live.dial((THEIRS, port), ConnectionOptions::default(), Plan::send(1_000));
        }
        accepting.join().unwrap()
    });
    println!("{MANY} connections were made in {:?}", start.elapsed());
    for socket in &sockets {
        assert_eq!(peer::exchange(socket, 1_000).unwrap(), 1_000);
    }
    check_many(&live);
    println!("and had 1,000 bytes each way after {:?}", start.elapsed());
    live.stop();
}

/// All have had their 1,000 bytes, and have ended in order.
fn check_many(live: &Live) {
    let finished = |live: &Live| {
        live.with(|recorder, _| {
            let ends = recorder.traffic.ends.values();
            ends.filter(|end| {
                end.closed == Some(CloseReason::Finished) && end.received == 1_000 && end.wrong_at.is_none()
            })
            .count()
        })
    };
    live.until("all have finished", |live| finished(live) == MANY);
}

/// Answers a request for a page with this many bytes of the stream.
fn serve_http(live: &Live, body: u64) {
    live.with(move |recorder, _| {
        let mut requests = std::collections::HashMap::<ConnectionId, Vec<u8>>::new();
        recorder.traffic.server = Some(Box::new(move |id, bytes, cx| {
            let request = requests.entry(id).or_default();
            request.extend_from_slice(bytes);
            if request.ends_with(b"\r\n\r\n") {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\nConnection: close\r\n\r\n");
                cx.tcp().send(id, head.as_bytes()).unwrap();
                requests.remove(&id);
                return Some(Plan::send(body));
            }
            None
        }));
    });
}

#[test]
fn curl_gets_its_page() {
    let test = "curl_gets_its_page";
    if !has_program(test, "curl") {
        return;
    }
    let Some((wire, live)) = start(test) else { return };
    live.listen(80, ListenOptions::default(), Plan::STAY);
    serve_http(&live, BULK);
    for _ in 0..3 {
        let page = wire.far.command("curl", &["-sS", "-f", "-m", "20", "http://10.9.0.1/day"]).unwrap();
        assert!(page.status.success(), "{}", String::from_utf8_lossy(&page.stderr));
        assert_eq!(page.stdout.len() as u64, BULK);
        assert!(wirepath_tests::live::is_stream(0, &page.stdout));
    }
    live.stop();
}

#[test]
fn traceroute_arrives_by_tcp() {
    let test = "traceroute_arrives_by_tcp";
    if !has_program(test, "traceroute") || !has_program(test, "ethtool") {
        return;
    }
    let Some(Routed { beyond, wire }) = routed(test, "1500") else { return };
    let live = start_routed(&wire, &LiveConfig::own(NEAR).with_tcp(tcp()));
    live.listen(80, ListenOptions::default(), Plan::STAY);
    // To a port that listens and one that does not.
    for (from, port, hops) in [
        (&wire.far, "80", vec!["10.9.0.1"]),
        (&beyond, "80", vec!["10.8.0.2", "10.9.0.1"]),
        (&beyond, "81", vec!["10.8.0.2", "10.9.0.1"]),
    ] {
        let arguments = ["-T", "-n", "-p", port, "-q", "1", "-w", "5", "-m", "5", "10.9.0.1"];
        let output = from.command("traceroute", &arguments).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let seen: Vec<_> = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(seen, hops, "port {port}: {said}{}", String::from_utf8_lossy(&output.stderr));
    }
    live.stop();
}

#[test]
fn socat_sends_a_file_and_gets_another() {
    let test = "socat_sends_a_file_and_gets_another";
    if !has_program(test, "socat") {
        return;
    }
    let Some((wire, live)) = start(test) else { return };
    live.listen(PORT, ListenOptions::default(), Plan::send(BULK));
    let file = tempfile::NamedTempFile::new().unwrap();
    let pieces = (0..BULK).step_by(1 << 16).map(|at| wirepath_tests::live::stream(at, 1 << 16));
    std::fs::write(file.path(), pieces.collect::<Vec<_>>().concat()).unwrap();
    let from = format!("OPEN:{},rdonly!!STDOUT", file.path().display());
    let got = wire.far.command("socat", &["-t", "20", &from, "TCP:10.9.0.1:7000"]).unwrap();
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert_eq!(got.stdout.len() as u64, BULK);
    assert!(wirepath_tests::live::is_stream(0, &got.stdout));
    let id = live.accepted(0);
    live.until("all of it came", |live| live.end_of(id).received == BULK);
    assert_eq!(live.end_of(id).wrong_at, None);
    live.stop();
}

#[test]
fn iperf3_measures_both_ways() {
    let test = "iperf3_measures_both_ways";
    if !has_program(test, "iperf3") {
        return;
    }
    let Some((wire, live)) = start(test) else { return };
    live.listen(5_201, ListenOptions::default(), Plan::STAY);
    for direction in [&[][..], &["-R"], &["-P", "4"]] {
        let server = wirepath_tests::live::Iperf3::default();
        live.with(move |recorder, _| recorder.traffic.server = Some(server.into_server()));
        let arguments = [&["-c", "10.9.0.1", "-t", "1", "-f", "m"], direction].concat();
        let output = wire.far.command("timeout", &[&["20", "iperf3"], &arguments[..]].concat()).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        // A stream's last bytes come when the client is gone.
        live.until("all connections are closed", |live| {
            live.with(|recorder, _| {
                let traffic = &recorder.traffic;
                traffic.accepted.iter().all(|id| traffic.ends.get(id).is_some_and(|end| end.closed.is_some()))
            })
        });
        println!("{}", said.lines().filter(|line| line.contains("receiver")).collect::<Vec<_>>().join("\n"));
    }
    live.stop();
}

/// A goal of the project; `make soak` has the time for it.
const GIBIBYTE: u64 = 1 << 30;
/// Each direction, connected by the end that sends nothing, and both directions at once.
const GIBIBYTES: [Way; 3] = [(Opens::Them, GIBIBYTE, 0), (Opens::Us, 0, GIBIBYTE), (Opens::Us, GIBIBYTE, GIBIBYTE)];
/// A round trip takes some 100 µs here. With the usual 200 ms both ends would wait nearly all the
/// time where many frames are lost: a gibibyte took the better part of an hour.
const RTO_MIN: Duration = Duration::from_millis(5);

#[test]
#[ignore = "gibibytes take a minute"]
fn gibibyte_comes_whole_to_the_kernel_to_us_and_both_ways_at_once() {
    let test = "gibibyte_comes_whole_to_the_kernel_to_us_and_both_ways_at_once";
    let Some(wire) = Wire::new(test) else { return };
    for control in congestion_controls(&wire.far) {
        set(&wire.far, "tcp_congestion_control", &control);
        for (opens, ours, theirs) in GIBIBYTES {
            let live = Live::start(&wire.near, &LiveConfig::own(NEAR).with_tcp(tcp())).unwrap();
            print!("no frames lost, {control}, connected by {opens:?}: ");
            let plan = Plan::send(ours);
            live.listen(PORT, ListenOptions::default(), plan);
            let (id, socket) = open(&live, &wire, opens, plan);
            transfer(&live, id, &socket, ours, theirs);
            live.stop();
        }
    }
}

#[test]
#[ignore = "gibibytes take minutes where frames are lost"]
fn gibibyte_comes_whole_where_one_of_100_frames_is_lost() {
    lossy_with("gibibyte_comes_whole_where_one_of_100_frames_is_lost", 10, RTO_MIN, &GIBIBYTES);
}

#[test]
#[ignore = "gibibytes take minutes where so many frames are lost"]
fn gibibyte_comes_whole_where_five_of_100_frames_are_lost() {
    lossy_with("gibibyte_comes_whole_where_five_of_100_frames_are_lost", 50, RTO_MIN, &GIBIBYTES);
}

#[test]
#[ignore = "gibibytes take half an hour where so many frames are lost"]
fn gibibyte_comes_whole_where_ten_of_100_frames_are_lost() {
    lossy_with("gibibyte_comes_whole_where_ten_of_100_frames_are_lost", 100, RTO_MIN, &GIBIBYTES);
}
