//! ICMP against the Linux kernel and its unmodified tools: replies to ping and traceroute, and
//! reports about datagrams that could not be delivered.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Output;

use wirepath::pipeline::{UdpOptions, UdpSendError, UdpSent};
use wirepath::proto::{FlowErrorKind, HostEvent, Ipv4Prefix, Route};
use wirepath::wire::icmpv4::{TimeExceeded, Unreachable};
use wirepath_tests::live::{Live, LiveConfig, NEAR, OURS, THEIRS, TIMEOUT, Wire, has_program, set, table, wait_until};
use wirepath_tests::netns::Namespace;

/// A wire with us on it.
fn start(test: &str) -> Option<(Wire, Live)> {
    let wire = Wire::new(test)?;
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR)).unwrap();
    Some((wire, live))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The number of replies that ping has got; a busy machine lets it send more requests than it
/// should.
fn received(output: &Output) -> usize {
    let said = text(output);
    let before = said.split(" received").next().and_then(|said| said.rsplit(' ').next());
    before.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no answers are counted in: {said}"))
}

#[test]
fn ping_of_every_size_is_answered() {
    let test = "ping_of_every_size_is_answered";
    if !has_program(test, "ping") {
        return;
    }
    let Some((wire, live)) = start(test) else { return };
    for size in ["0", "1", "56", "1472", "1473", "8000", "65507"] {
        // With -w it waits for three answers, and not for two round trips after the last question.
        let arguments = ["-n", "-c", "3", "-i", "0.01", "-w", "20", "-s", size, "10.9.0.1"];
        let output = wire.far.command("ping", &arguments).unwrap();
        assert!(received(&output) >= 3, "-s {size}: {}", text(&output));
    }
    let counters = live.stop();
    assert!(counters.count("host/icmp/echoes_answered") >= Some(21), "{}", table(&counters));
    assert_eq!(counters.count("host/icmp/messages"), counters.count("host/icmp/echoes_answered"));
}

#[test]
fn datagram_to_a_closed_port_is_refused_to_its_sender() {
    let Some((wire, live)) = start("datagram_to_a_closed_port_is_refused_to_its_sender") else { return };
    let socket = wire.socket((THEIRS, 0));
    socket.connect((OURS, 9)).unwrap();
    socket.send(b"anybody there?").unwrap();
    assert_eq!(socket.recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let counters = live.stop();
    assert_eq!(counters.count("host/udp/drop/no_consumer"), Some(1));
    assert_eq!(counters.count("host/egress/icmp_errors/sent"), Some(1));
}

#[test]
fn datagram_in_fragments_to_a_closed_port_is_refused_to_its_sender() {
    let Some((wire, live)) = start("datagram_in_fragments_to_a_closed_port_is_refused_to_its_sender") else { return };
    let socket = wire.socket((THEIRS, 0));
    socket.connect((OURS, 9)).unwrap();
    for size in [1_473, 4_000, 60_000] {
        socket.send(&vec![0; size]).unwrap();
        assert_eq!(socket.recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{size} bytes");
    }
    live.stop();
}

#[test]
fn refusals_have_a_rate_and_what_is_not_said_is_counted() {
    let Some((wire, live)) = start("refusals_have_a_rate_and_what_is_not_said_is_counted") else { return };
    let socket = wire.socket((THEIRS, 0));
    const COUNT: u64 = 500;
    // The first one waits for ARP, and so would the others, as far as the kernel permits.
    socket.send_to(b"?", (OURS, 9)).unwrap();
    live.until_count("udp/drop/no_consumer", 1);
    for _ in 1..COUNT {
        socket.send_to(b"?", (OURS, 9)).unwrap();
    }
    live.until_count("udp/drop/no_consumer", COUNT);
    let counters = live.stop();
    let count = |name: &str| counters.count(&format!("host/egress/icmp_errors/{name}")).unwrap();
    assert_eq!(count("sent") + count("drop/rate_limited"), COUNT);
    // 50 at once, then one each millisecond.
    assert!(count("sent") >= 50 && count("drop/rate_limited") > 0, "{}", table(&counters));
}

#[test]
fn ping_to_all_is_not_answered() {
    let test = "ping_to_all_is_not_answered";
    if !has_program(test, "ping") {
        return;
    }
    let Some((wire, live)) = start(test) else { return };
    for to in ["10.9.0.255", "224.0.0.1"] {
        let output = wire.far.command("ping", &["-b", "-c", "1", "-W", "0.2", to]).unwrap();
        assert_eq!(received(&output), 0, "{}", text(&output));
    }
    let counters = live.stop();
    assert_eq!(counters.count("host/icmp/drop/not_unicast"), Some(2));
    assert_eq!(counters.count("host/icmp/echoes_answered"), Some(0));
}

#[test]
fn closed_port_of_the_kernel_is_told_to_the_flow_that_sent_fragments() {
    let Some((_wire, live)) = start("closed_port_of_the_kernel_is_told_to_the_flow_that_sent_fragments") else {
        return;
    };
    let mut flow = live.connect(5_000, (THEIRS, 9), UdpOptions::default());
    // First something short: fragments wait for a neighbor only as far as there is room.
    live.send(&mut flow, b"?").unwrap();
    assert_eq!(live.error().kind, FlowErrorKind::Unreachable(Unreachable::Port));
    live.send(&mut flow, &[0; 60_000]).unwrap();
    let error = live.error();
    assert_eq!((error.kind, error.flow.remote), (FlowErrorKind::Unreachable(Unreachable::Port), flow.remote()));
    live.stop();
}

#[test]
fn closed_port_of_the_kernel_is_told_to_the_flow() {
    let Some((_wire, live)) = start("closed_port_of_the_kernel_is_told_to_the_flow") else { return };
    let mut flow = live.connect(5_000, (THEIRS, 9), UdpOptions::default());
    live.send(&mut flow, b"anybody there?").unwrap();
    let error = live.error();
    assert_eq!((error.kind, error.reporter), (FlowErrorKind::Unreachable(Unreachable::Port), THEIRS));
    assert_eq!((error.flow.local.port(), *error.flow.local.ip(), error.flow.remote), (5_000, OURS, flow.remote()));
    assert!(error.kind.is_hard() && error.path_mtu.is_none());
    live.stop();
}

#[test]
fn both_ends_exchange_datagrams() {
    let Some((wire, live)) = start("both_ends_exchange_datagrams") else { return };
    live.bind(7_000);
    let socket = wire.socket((THEIRS, 7_001));
    socket.send_to(b"to us", (OURS, 7_000)).unwrap();
    let received = live.receive(1).remove(0);
    assert_eq!(
        (&received.payload[..], received.source.to_string().as_str(), received.ttl),
        (&b"to us"[..], "10.9.0.2:7001", 64)
    );
    let mut flow = live.connect(7_002, (THEIRS, 7_001), UdpOptions::default());
    live.send(&mut flow, b"to them").unwrap();
    let mut bytes = [0; 100];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..len], from.to_string().as_str()), (&b"to them"[..], "10.9.0.1:7002"));
    live.stop();
    wait_until("the program goes with the host", || !wire.near.ip(&["link", "show", NEAR]).unwrap().contains("xdp"));
}

#[test]
fn flood_of_pings_is_answered() {
    let test = "flood_of_pings_is_answered";
    if !has_program(test, "ping") {
        return;
    }
    let Some((wire, live)) = start(test) else { return };
    let output = wire.far.command("ping", &["-f", "-q", "-c", "2000", "-w", "20", "10.9.0.1"]).unwrap();
    assert!(received(&output) >= 2000, "{}", text(&output));
    assert!(live.stop().count("host/icmp/echoes_answered") >= Some(2000));
}

#[test]
fn traceroute_arrives_by_udp_and_by_icmp() {
    let test = "traceroute_arrives_by_udp_and_by_icmp";
    if !has_program(test, "traceroute") {
        return;
    }
    let Some(Routed { beyond, wire, live }) = routed(test) else { return };
    for (from, method, hops) in [
        (&wire.far, "-U", vec!["10.9.0.1"]),
        (&wire.far, "-I", vec!["10.9.0.1"]),
        (&beyond, "-U", vec!["10.8.0.2", "10.9.0.1"]),
        (&beyond, "-I", vec!["10.8.0.2", "10.9.0.1"]),
        // By default every probe goes to another port, and none of them is open.
        (&beyond, "-n", vec!["10.8.0.2", "10.9.0.1"]),
    ] {
        let output = from.command("traceroute", &["-n", method, "-q", "1", "-w", "5", "-m", "5", "10.9.0.1"]).unwrap();
        let said = text(&output);
        let seen: Vec<_> = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(seen, hops, "{method}: {said}");
        assert!(!said.contains('!'), "{method}: {said}");
    }
    live.stop();
}

/// Our host behind a router: the far namespace, with another link to the namespace beyond, whose
/// frames are shorter.
struct Routed {
    beyond: Namespace,
    wire: Wire,
    live: Live,
}

const BEYOND: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 3);
const NARROW: usize = 1_000;

fn routed(test: &str) -> Option<Routed> {
    let (wire, live) = start(test)?;
    let beyond = Namespace::new().unwrap();
    wire.far.veth("veth2", &beyond, "veth3").unwrap();
    let mtu = NARROW.to_string();
    wire.far.ip(&["link", "set", "veth2", "mtu", &mtu]).unwrap();
    wire.far.ip(&["addr", "add", "10.8.0.2/24", "dev", "veth2"]).unwrap();
    set(&wire.far, "ip_forward", "1");
    beyond.ip(&["link", "set", "veth3", "mtu", &mtu]).unwrap();
    beyond.ip(&["addr", "add", "10.8.0.3/24", "dev", "veth3"]).unwrap();
    beyond.ip(&["route", "add", "default", "via", "10.8.0.2"]).unwrap();
    let network = Ipv4Prefix::new(Ipv4Addr::UNSPECIFIED, 0).unwrap();
    live.apply(HostEvent::RouteAdded(Route { network, gateway: Some(THEIRS), source: OURS, metric: 0 }));
    Some(Routed { beyond, wire, live })
}

#[test]
fn router_that_needs_smaller_packets_is_believed() {
    let Some(Routed { beyond, live, wire: _wire }) = routed("router_that_needs_smaller_packets_is_believed") else {
        return;
    };
    let socket = beyond.run(|| UdpSocket::bind((BEYOND, 7_001))).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let receive = || {
        let mut bytes = [0; 4_000];
        let len = socket.recv(&mut bytes).unwrap();
        bytes[..len].to_vec()
    };
    // The router fragments packets for which that is allowed, and sends no report.
    let mut flow = live.connect(5_000, (BEYOND, 7_001), UdpOptions::default());
    live.send(&mut flow, &[1; 1_472]).unwrap();
    assert_eq!(receive(), [1; 1_472]);
    // It refuses packets for which it is not, and reports the MTU; the flow accepts the MTU and
    // goes on.
    let whole = UdpOptions { dont_fragment: true, ..UdpOptions::default() };
    let mut flow = live.connect(5_001, (BEYOND, 7_001), whole);
    assert_eq!(live.send(&mut flow, &[2; 1_472]), Ok(UdpSent::Posted));
    let error = live.error();
    let kind = FlowErrorKind::Unreachable(Unreachable::FragmentationNeeded { mtu: NARROW as u16 });
    assert_eq!((error.kind, error.reporter, error.path_mtu), (kind, THEIRS, Some(NARROW)));
    assert_eq!((error.flow.local, error.flow.remote), (flow.local(), flow.remote()));
    assert_eq!(live.send(&mut flow, &[3; 1_472]), Err(UdpSendError::DontFragment { mtu: NARROW }));
    live.send(&mut flow, &[4; NARROW - 28]).unwrap();
    assert_eq!(receive(), [4; NARROW - 28]);
    // From now on we fragment ourselves.
    let mut flow = live.connect(5_002, (BEYOND, 7_001), UdpOptions::default());
    live.send(&mut flow, &[5; 1_472]).unwrap();
    assert_eq!(receive(), [5; 1_472]);
    assert_eq!(live.stop().count("host/egress/fragments"), Some(2));
}

#[test]
fn ping_over_a_narrow_link_is_answered() {
    let test = "ping_over_a_narrow_link_is_answered";
    if !has_program(test, "ping") {
        return;
    }
    let Some(Routed { beyond, live, wire: _wire }) = routed(test) else { return };
    for size in ["56", "972", "973", "1472", "8000", "65507"] {
        let output =
            beyond.command("ping", &["-n", "-c", "2", "-i", "0.01", "-w", "20", "-s", size, "10.9.0.1"]).unwrap();
        assert!(received(&output) >= 2, "-s {size}: {}", text(&output));
    }
    live.stop();
}

#[test]
fn packet_that_runs_out_of_hops_is_told_to_its_flow() {
    let Some(Routed { beyond, live, wire: _wire }) = routed("packet_that_runs_out_of_hops_is_told_to_its_flow") else {
        return;
    };
    let socket = beyond.run(|| UdpSocket::bind((BEYOND, 7_001))).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut flow = live.connect(5_000, (BEYOND, 7_001), UdpOptions { ttl: Some(1), ..UdpOptions::default() });
    live.send(&mut flow, b"one hop").unwrap();
    let error = live.error();
    assert_eq!((error.kind, error.reporter), (FlowErrorKind::TimeExceeded(TimeExceeded::Ttl), THEIRS));
    assert_eq!((error.flow.remote, error.kind.is_hard()), (flow.remote(), false));
    let mut flow = live.connect(5_001, (BEYOND, 7_001), UdpOptions { ttl: Some(2), ..UdpOptions::default() });
    live.send(&mut flow, b"two hops").unwrap();
    let mut bytes = [0; 100];
    assert_eq!(socket.recv(&mut bytes).unwrap(), 8);
    live.stop();
}

#[test]
fn host_and_network_that_are_unreachable_are_told_to_the_flow() {
    let Some(Routed { wire, live, beyond: _beyond }) =
        routed("host_and_network_that_are_unreachable_are_told_to_the_flow")
    else {
        return;
    };
    wire.far.ip(&["route", "add", "unreachable", "10.7.0.0/24"]).unwrap();
    wire.far.ip(&["route", "add", "prohibit", "10.6.0.0/24"]).unwrap();
    for (port, remote, expected) in
        [(5_000, [10, 7, 0, 1], Unreachable::Host), (5_001, [10, 6, 0, 1], Unreachable::Prohibited)]
    {
        let mut flow = live.connect(port, (remote.into(), 9), UdpOptions::default());
        live.send(&mut flow, b"?").unwrap();
        assert_eq!(live.error().kind, FlowErrorKind::Unreachable(expected));
    }
    live.stop();
}
