//! ICMP against the Linux kernel and its unmodified tools: what answers to ping and traceroute, and who is told when
//! something goes wrong with a datagram.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::ErrorKind;
use std::process::Output;

use wirepath::pipeline::UdpOptions;
use wirepath::proto::FlowErrorKind;
use wirepath::wire::icmpv4::Unreachable;
use wirepath_tests::live::{Live, LiveConfig, NEAR, OURS, THEIRS, Wire, has_program, table, wait_until};

/// A wire with us on it.
fn start(test: &str) -> Option<(Wire, Live)> {
    let wire = Wire::new(test)?;
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR)).unwrap();
    Some((wire, live))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
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
        assert!(text(&output).contains(" 3 received"), "-s {size}: {}", text(&output));
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
