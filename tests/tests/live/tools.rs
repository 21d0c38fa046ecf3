//! Multicast from programs that do not know us, and to them: socat, iperf 2 and sockperf, each
//! where it is installed. All sent datagrams are received.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::Ipv4Addr;
use std::time::Duration;

use wirepath::pipeline::UdpOptions;
use wirepath_tests::live::{FAR, Live, LiveConfig, NEAR, Program, Received, Wire, has_program, wait_until};

const TO_US: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const TO_THEM: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 2);
const COUNT: usize = 500;

fn start(test: &str, program: &str) -> Option<(Wire, Live)> {
    if !has_program(test, program) {
        return None;
    }
    let wire = Wire::new(test)?;
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR)).unwrap();
    live.join(TO_US, 7_000);
    Some((wire, live))
}

/// Waits until a program of the far kernel is a member of our group.
fn until_joined(wire: &Wire) {
    let group = TO_THEM.to_string();
    wait_until("the receiver joins", || wire.far.ip(&["maddr", "show", "dev", FAR]).unwrap().contains(&group));
}

/// Sends datagrams to the group, slowly enough for a receive buffer of 208 KiB.
fn send(live: &Live, datagrams: impl Iterator<Item = Vec<u8>>) {
    let mut flow = live.connect(7_002, (TO_THEM, 7_001), UdpOptions::default());
    for (number, datagram) in datagrams.enumerate() {
        live.send(&mut flow, &datagram).unwrap();
        if number % 20 == 19 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// UDP datagrams that the far kernel has sent; its programs' numbers differ, because iperf counts
/// one that it does not send.
fn sent_by_kernel(wire: &Wire) -> usize {
    let tables = wire.far.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).unwrap();
    let mut lines = tables.lines().filter(|line| line.starts_with("Udp:")).map(str::split_whitespace);
    let (mut names, mut values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.position(|name| name == "OutDatagrams").unwrap();
    values.nth(place).unwrap().parse().unwrap()
}

/// Whether nothing waits in the far kernel's socket of a port, to which all has been sent.
fn is_drained(wire: &Wire, port: u16) -> bool {
    let table = wire.far.run(|| std::fs::read_to_string("/proc/thread-self/net/udp")).unwrap();
    let line = table.lines().find(|line| line.contains(&format!(":{port:04X} "))).unwrap();
    line.split_whitespace().nth(4).unwrap().ends_with(":00000000")
}

/// The number after some words in a program's output.
fn number_after(said: &str, words: &str) -> usize {
    let rest = said.split(words).nth(1).unwrap_or_else(|| panic!("no {words} in: {said}"));
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number behind {words} in: {said}"))
}

/// Takes the received datagrams, which must be those that were sent.
fn all_arrive(wire: &Wire, live: Live, said: &str) -> Vec<Received> {
    let sent = sent_by_kernel(wire);
    // A busy machine keeps sockperf from its rate.
    assert!(sent >= COUNT / 10, "{sent} were sent: {said}");
    let received = live.receive(sent);
    let counters = live.stop();
    assert_eq!((received.len(), counters.count("host/udp/datagrams")), (sent, Some(sent as u64)), "{said}");
    received
}

#[test]
fn what_socat_sends_arrives() {
    let test = "what_socat_sends_arrives";
    let Some((wire, live)) = start(test, "socat") else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..COUNT * 1_000).map(|at| (at / 1_000 + at) as u8).collect();
    std::fs::write(file.path(), &bytes).unwrap();
    let from = format!("FILE:{}", file.path().display());
    let said =
        Program::start(&wire.far, "socat", &["-u", "-b", "1000", &from, "UDP4-DATAGRAM:239.1.1.1:7000"]).finish();
    let received = all_arrive(&wire, live, &said);
    assert_eq!(received.iter().flat_map(|datagram| datagram.payload.clone()).collect::<Vec<_>>(), bytes);
}

#[test]
fn socat_receives_what_we_send() {
    let test = "socat_receives_what_we_send";
    let Some((wire, live)) = start(test, "socat") else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let to = format!("OPEN:{},append", file.path().display());
    let _socat =
        Program::start(&wire.far, "socat", &["-u", "UDP4-RECV:7001,ip-add-membership=239.1.1.2:10.9.0.2", &to]);
    until_joined(&wire);
    send(&live, (0..COUNT).map(|number| vec![number as u8; 1_000]));
    wait_until("socat has written all", || file.path().metadata().unwrap().len() as usize == COUNT * 1_000);
    let expected: Vec<u8> = (0..COUNT).flat_map(|number| vec![number as u8; 1_000]).collect();
    assert!(std::fs::read(file.path()).unwrap() == expected);
    live.stop();
}

#[test]
fn what_iperf_sends_arrives() {
    let test = "what_iperf_sends_arrives";
    let Some((wire, live)) = start(test, "iperf") else { return };
    let arguments = ["-c", "239.1.1.1", "-u", "-p", "7000", "-b", "40M", "-l", "1000", "-n", "500000", "-T", "1"];
    let said = Program::start(&wire.far, "iperf", &arguments).finish();
    all_arrive(&wire, live, &said);
}

#[test]
fn iperf_receives_what_we_send() {
    let test = "iperf_receives_what_we_send";
    let Some((wire, live)) = start(test, "iperf") else { return };
    let arguments = ["-s", "-u", "-B", "239.1.1.2", "-p", "7001", "-P", "1", "-l", "1000"];
    let iperf = Program::start(&wire.far, "iperf", &arguments);
    until_joined(&wire);
    // Its datagrams begin with a number and the time; a negative number is the last.
    let datagram = |number: i32| {
        let time = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let words = [number, time.as_secs() as i32, time.subsec_micros() as i32, number >> 31];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(i32::to_be_bytes).collect();
        bytes.resize(1_000, 0);
        bytes
    };
    send(&live, (1..=COUNT as i32).map(datagram).chain((0..10).map(|_| datagram(-(COUNT as i32) - 1))));
    let said = iperf.finish();
    // Lost of all, the last one counted.
    assert!(said.contains(&format!("0/{} (0%)", COUNT + 1)), "{said}");
    live.stop();
}

#[test]
fn what_sockperf_sends_arrives() {
    let test = "what_sockperf_sends_arrives";
    let Some((wire, live)) = start(test, "sockperf") else { return };
    let arguments = ["throughput", "-i", "239.1.1.1", "-p", "7000", "-m", "100", "--mps", "1000", "-t", "1"];
    let said = Program::start(&wire.far, "sockperf", &[&arguments[..], &["--mc-tx-if", "10.9.0.2"]].concat()).finish();
    all_arrive(&wire, live, &said);
}

#[test]
fn sockperf_receives_what_we_send() {
    let test = "sockperf_receives_what_we_send";
    let Some((wire, live)) = start(test, "sockperf") else { return };
    let arguments = ["server", "-i", "239.1.1.2", "-p", "7001", "--mc-rx-if", "10.9.0.2"];
    let sockperf = Program::start(&wire.far, "sockperf", &arguments);
    // It joins first, and counts nothing until its warm-up is over.
    wait_until("sockperf receives", || sockperf.receives());
    // Its header: a number, flags (1: from a client), the length.
    let datagram = |number: u64| {
        let mut bytes = [&number.to_be_bytes()[..], &1u16.to_be_bytes(), &100u32.to_be_bytes()].concat();
        bytes.resize(100, 0);
        bytes
    };
    send(&live, (1..=COUNT as u64).map(datagram));
    wait_until("sockperf has read all", || is_drained(&wire, 7_001) && sockperf.receives());
    let said = sockperf.interrupt();
    assert_eq!(number_after(&said, "Total"), COUNT, "{said}");
    live.stop();
}
