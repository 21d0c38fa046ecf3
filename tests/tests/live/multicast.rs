//! Which of several receivers on one host get a multicast group's datagrams: two processes of ours,
//! a kernel's socket, and the senders among them. docs/multicast.md describes the results.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use wirepath::device::steering::Rule;
use wirepath::pipeline::UdpOptions;
use wirepath::proto::{ConsumerId, Group};
use wirepath_tests::live::{FAR, Live, LiveConfig, NEAR, OURS, THEIRS, TIMEOUT, Wire, network};
use wirepath_tests::netns::Namespace;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OTHER_GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 4);
const PORT: u16 = 9_000;
/// After this time a datagram that has not come will not come: thirty times longer than one takes
/// on a busy machine.
const SILENCE: Duration = Duration::from_millis(300);
const COUNT: usize = 100;

/// A socket of a kernel that is a member of `group` on the interface with `address`.
fn member(namespace: &Namespace, group: Ipv4Addr, port: u16, address: Ipv4Addr) -> UdpSocket {
    let socket = namespace.run(|| {
        let socket = UdpSocket::bind((group, port)).unwrap();
        socket.join_multicast_v4(&group, &address).unwrap();
        socket
    });
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

fn hear(socket: &UdpSocket) -> String {
    let mut bytes = [0; 100];
    let len = socket.recv(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// How many datagrams wait, until none has come for a while.
fn count_all(socket: &UdpSocket) -> usize {
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    std::iter::from_fn(|| socket.recv(&mut [0; 100]).ok()).count()
}

fn assert_silent(socket: &UdpSocket) {
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    // A process that is stopped and goes on has calls with a timeout interrupted (man 7 signal).
    let heard = loop {
        match socket.recv(&mut [0; 100]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            heard => break heard,
        }
    };
    assert!(matches!(heard.unwrap_err().kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
}

/// A wire whose near kernel has our address too, and a host of ours that joins the group.
fn shared(test: &str) -> Option<(Wire, Live)> {
    let wire = Wire::new(test)?;
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let live = Live::start(&wire.near, &LiveConfig::shared(NEAR, &[Rule::udp(GROUP, PORT)])).unwrap();
    live.join(GROUP, PORT);
    live.until("the mirror tells our address", |live| live.with(|_, cx| cx.host.is_own(OURS)));
    Some((wire, live))
}

#[test]
fn steered_group_does_not_reach_the_kernel_s_members_on_that_interface() {
    let Some((wire, live)) = shared("steered_group_does_not_reach_the_kernel_s_members_on_that_interface") else {
        return;
    };
    let same = member(&wire.near, GROUP, PORT, OURS);
    let other_port = member(&wire.near, GROUP, PORT + 1, OURS);
    let other_group = member(&wire.near, OTHER_GROUP, PORT, OURS);
    let sender = wire.socket((THEIRS, 0));
    let send = |group, port, text: &str| sender.send_to(text.as_bytes(), (group, port)).unwrap();
    send(GROUP, PORT, "steered");
    send(GROUP, PORT + 1, "another port");
    send(OTHER_GROUP, PORT, "another group");
    assert_eq!((hear(&other_port), hear(&other_group)), ("another port".into(), "another group".into()));
    assert_eq!(live.receive(1)[0].payload, b"steered");
    assert_silent(&same);
    // The kernel's membership has stayed: without us it receives the group again.
    live.stop();
    send(GROUP, PORT, "not steered any more");
    assert_eq!(hear(&same), "not steered any more");
}

#[test]
fn what_we_send_to_a_group_is_not_looped_back() {
    let Some((wire, live)) = shared("what_we_send_to_a_group_is_not_looped_back") else { return };
    let (near, far) = (member(&wire.near, GROUP, PORT, OURS), member(&wire.far, GROUP, PORT, THEIRS));
    let mut flow = live.connect(PORT, (GROUP, PORT), UdpOptions::default());
    live.send(&mut flow, b"from us").unwrap();
    assert_eq!(hear(&far), "from us");
    assert_silent(&near);
    assert_eq!(live.take_datagrams(), []);
    live.stop();
}

#[test]
fn what_the_kernel_of_our_host_sends_loops_to_its_own_sockets_only() {
    let Some((wire, live)) = shared("what_the_kernel_of_our_host_sends_loops_to_its_own_sockets_only") else { return };
    let (near, far) = (member(&wire.near, GROUP, PORT, OURS), member(&wire.far, GROUP, PORT, THEIRS));
    let sender = wire.near.run(|| UdpSocket::bind((OURS, 0))).unwrap();
    // Without a route for the group the kernel takes it from the address that the socket has.
    wire.near.ip(&["route", "add", "239.0.0.0/8", "dev", NEAR]).unwrap();
    sender.send_to(b"from our kernel", (GROUP, PORT)).unwrap();
    assert_eq!((hear(&near), hear(&far)), ("from our kernel".into(), "from our kernel".into()));
    std::thread::sleep(SILENCE);
    assert_eq!(live.take_datagrams(), []);
    live.stop();
}

#[test]
fn multicast_is_sent_with_one_hop_unless_more_are_asked_for() {
    let Some(wire) = Wire::new("multicast_is_sent_with_one_hop_unless_more_are_asked_for") else { return };
    let near = Live::start(&wire.near, &LiveConfig::own(NEAR)).unwrap();
    let far = LiveConfig { addresses: vec![network(Ipv4Addr::new(10, 9, 0, 3))], ..LiveConfig::own(FAR) };
    let far = Live::start(&wire.far, &far).unwrap();
    far.join(GROUP, PORT);
    for (ttl, expected) in [(None, 1), (Some(7), 7), (Some(0), 0), (Some(255), 255)] {
        let mut flow = near.connect(PORT, (GROUP, PORT), UdpOptions { ttl, ..UdpOptions::default() });
        near.send(&mut flow, b"?").unwrap();
        assert_eq!(far.receive(1)[0].ttl, expected, "{ttl:?}");
    }
    near.stop();
    far.stop();
}

#[test]
fn consumer_hears_the_sources_that_it_asked_for_and_no_others() {
    let Some(wire) = Wire::new("consumer_hears_the_sources_that_it_asked_for_and_no_others") else { return };
    let other = Ipv4Addr::new(10, 9, 0, 5);
    wire.far.ip(&["addr", "add", "10.9.0.5/24", "dev", FAR]).unwrap();
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR)).unwrap();
    let (one, all_but_one, all) = (ConsumerId(1), ConsumerId(2), ConsumerId(3));
    live.with(move |_, cx| {
        cx.sockets.join_source(one, Group::new(GROUP, PORT), THEIRS).unwrap();
        cx.sockets.join(all_but_one, Group::new(GROUP, PORT)).unwrap();
        cx.sockets.block(all_but_one, Group::new(GROUP, PORT), THEIRS).unwrap();
        cx.sockets.join_source(one, Group::new(OTHER_GROUP, PORT), THEIRS).unwrap();
        cx.sockets.join(all, Group::new(GROUP, PORT)).unwrap();
    });
    for source in [THEIRS, other] {
        wire.socket((source, 0)).send_to(b"?", (OTHER_GROUP, PORT)).unwrap();
        wire.socket((source, 0)).send_to(b"?", (GROUP, PORT)).unwrap();
    }
    let mut heard: Vec<_> =
        live.receive(5).iter().map(|d| (d.consumer.0, *d.destination.ip(), *d.source.ip())).collect();
    heard.sort();
    let expected =
        [(1, GROUP, THEIRS), (1, OTHER_GROUP, THEIRS), (2, GROUP, other), (3, GROUP, THEIRS), (3, GROUP, other)];
    assert_eq!(heard, expected);
    live.until_count("udp/drop/source_filtered", 1);
    live.stop();
}

/// A wire whose near end has two queues.
fn two_queues(test: &str) -> Option<Wire> {
    let wire = Wire::new(test)?;
    wire.near.ip(&["link", "del", NEAR]).unwrap();
    let queues = ["numtxqueues", "2", "numrxqueues", "2"];
    let pair = [&["link", "add", NEAR][..], &queues, &["type", "veth", "peer", "name", FAR], &queues].concat();
    wire.near.ip(&[&pair[..], &["netns", wire.far.name()]].concat()).unwrap();
    wire.near.ip(&["link", "set", NEAR, "up"]).unwrap();
    wire.far.ip(&["link", "set", FAR, "up"]).unwrap();
    wire.far.ip(&["addr", "add", "10.9.0.2/24", "dev", FAR]).unwrap();
    wire.far.ip(&["route", "add", "default", "dev", FAR]).unwrap();
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    Some(wire)
}

/// Datagrams of as many flows, which the far kernel spreads over the queues.
fn send_many(wire: &Wire) {
    for number in 0..COUNT {
        wire.socket((THEIRS, 0)).send_to(&number.to_be_bytes(), (GROUP, PORT)).unwrap();
    }
}

#[test]
fn each_queue_gets_its_share_of_a_group() {
    let Some(wire) = two_queues("each_queue_gets_its_share_of_a_group") else { return };
    let config = LiveConfig::shared(NEAR, &[Rule::udp(GROUP, PORT)]);
    let hosts = Live::start_queues(&wire.near, &config, 2).unwrap();
    hosts.iter().for_each(|host| host.join(GROUP, PORT));
    let kernel = member(&wire.near, GROUP, PORT, OURS);
    send_many(&wire);
    let mut received = vec![Vec::new(), Vec::new()];
    hosts[0].until("all have come", |_| {
        hosts.iter().zip(&mut received).for_each(|(host, received)| received.extend(host.take_datagrams()));
        received[0].len() + received[1].len() >= COUNT
    });
    assert!(received.iter().all(|share| share.len() > COUNT / 5), "{} and {}", received[0].len(), received[1].len());
    assert_silent(&kernel);
    hosts.into_iter().for_each(|host| _ = host.stop());
}

#[test]
fn kernel_s_members_get_what_comes_on_queues_that_are_not_ours() {
    let Some(wire) = two_queues("kernel_s_members_get_what_comes_on_queues_that_are_not_ours") else { return };
    let live = Live::start(&wire.near, &LiveConfig::shared(NEAR, &[Rule::udp(GROUP, PORT)])).unwrap();
    live.join(GROUP, PORT);
    let kernel = member(&wire.near, GROUP, PORT, OURS);
    send_many(&wire);
    let kernels = count_all(&kernel);
    let ours = live.receive(COUNT - kernels).len();
    assert_eq!(ours + kernels, COUNT);
    assert!(ours > COUNT / 5 && kernels > COUNT / 5, "{ours} ours and {kernels} the kernel's");
    live.stop();
}

#[test]
fn second_process_on_the_interface_is_told_who_has_it() {
    let Some((wire, live)) = shared("second_process_on_the_interface_is_told_who_has_it") else { return };
    let mut other = OtherProcess::start(&wire.near, NEAR, "10.9.0.3");
    let said = other.line();
    let holder = format!("{NEAR} already has an XDP program, kept by process {}", std::process::id());
    assert!(said.contains(&holder), "{said}");
    // And we have lost nothing by it.
    wire.socket((THEIRS, 0)).send_to(b"still ours", (GROUP, PORT)).unwrap();
    assert_eq!(live.receive(1)[0].payload, b"still ours");
    live.stop();
}

/// One host with three interfaces at a switch: ours, another process's, and the kernel's.
struct Switch {
    wire: Wire,
    live: Live,
    other: OtherProcess,
    kernel: UdpSocket,
}

const KERNELS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 4);

fn switch(test: &str) -> Option<Switch> {
    let wire = Wire::new(test)?;
    let (near, far) = (&wire.near, &wire.far);
    near.veth("veth2", far, "veth3").unwrap();
    near.veth("veth4", far, "veth5").unwrap();
    far.ip(&["addr", "flush", "dev", FAR]).unwrap();
    // The switch floods every group, because there is no querier.
    far.ip(&["link", "add", "switch", "type", "bridge", "mcast_snooping", "0"]).unwrap();
    for port in [FAR, "veth3", "veth5"] {
        far.ip(&["link", "set", port, "master", "switch"]).unwrap();
    }
    far.ip(&["link", "set", "switch", "up"]).unwrap();
    far.ip(&["addr", "add", "10.9.0.2/24", "dev", "switch"]).unwrap();
    far.ip(&["route", "add", "default", "dev", "switch"]).unwrap();
    near.ip(&["addr", "add", "10.9.0.4/24", "dev", "veth4"]).unwrap();
    let live = Live::start(near, &LiveConfig::own(NEAR)).unwrap();
    live.join(GROUP, PORT);
    let mut other = OtherProcess::start(near, "veth2", "10.9.0.3");
    assert_eq!(other.line(), "joined");
    let kernel = member(near, GROUP, PORT, KERNELS);
    Some(Switch { wire, live, other, kernel })
}

#[test]
fn members_on_interfaces_of_their_own_get_every_datagram_each() {
    let Some(mut switch) = switch("members_on_interfaces_of_their_own_get_every_datagram_each") else { return };
    let sender = switch.wire.socket((THEIRS, 0));
    for _ in 0..COUNT {
        sender.send_to(b"to all", (GROUP, PORT)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(switch.live.receive(COUNT).len(), COUNT);
    assert_eq!(count_all(&switch.kernel), COUNT);
    assert_eq!(switch.other.count(COUNT), COUNT);
    // Nothing came twice.
    std::thread::sleep(SILENCE);
    assert_eq!(switch.live.take_datagrams(), []);
    switch.live.stop();
}

#[test]
fn what_one_interface_sends_comes_in_on_the_others_of_the_host() {
    let Some(mut switch) = switch("what_one_interface_sends_comes_in_on_the_others_of_the_host") else { return };
    let mut flow = switch.live.connect(PORT, (GROUP, PORT), UdpOptions::default());
    switch.live.send(&mut flow, b"over the switch").unwrap();
    assert_eq!(hear(&switch.kernel), "over the switch");
    assert_eq!(switch.other.count(1), 1);
    assert_eq!(switch.live.take_datagrams(), []);
    // A kernel that has the address too drops datagrams that seem to come from itself.
    switch.wire.near.ip(&["addr", "add", "10.9.0.1/32", "dev", "lo"]).unwrap();
    switch.live.send(&mut flow, b"from whom?").unwrap();
    assert_eq!(switch.other.count(1), 1);
    assert_silent(&switch.kernel);
    // Only a port that sends frames back (hairpin) returns our own frames to us.
    switch.wire.far.ip(&["link", "set", FAR, "type", "bridge_slave", "hairpin", "on"]).unwrap();
    switch.live.send(&mut flow, b"and back").unwrap();
    assert_eq!(switch.live.receive(1)[0].source.to_string(), "10.9.0.1:9000");
    switch.live.stop();
}

/// Another process of ours: this test's program, which plays `in_a_process_of_its_own`.
struct OtherProcess {
    child: Child,
    says: BufReader<std::process::ChildStderr>,
}

const SCENE: &str = "WIREPATH_TEST_MULTICAST";

impl OtherProcess {
    fn start(namespace: &Namespace, interface: &str, address: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "in_a_process_of_its_own", "--nocapture"])
            .env(SCENE, format!("{} {interface} {address}", namespace.name()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stderr.take().unwrap());
        Self { child, says }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Asks for its datagrams, once it has as many.
    fn count(&mut self, enough: usize) -> usize {
        writeln!(self.child.stdin.as_ref().unwrap(), "{enough}").unwrap();
        self.line().parse().unwrap()
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: the other process, whose task is in the environment.
#[test]
fn in_a_process_of_its_own() {
    let Ok(scene) = std::env::var(SCENE) else { return };
    let [namespace, interface, address] = scene.split(' ').collect::<Vec<_>>()[..] else { panic!("{scene}") };
    let config = LiveConfig { addresses: vec![network(address.parse().unwrap())], ..LiveConfig::own(interface) };
    let live = match Live::start_in(namespace, &config) {
        Ok(live) => live,
        Err(why) => return eprintln!("{why}"),
    };
    live.join(GROUP, PORT);
    eprintln!("joined");
    for line in std::io::stdin().lines() {
        let enough = line.unwrap().parse().unwrap();
        eprintln!("{}", live.receive(enough).len());
    }
}
