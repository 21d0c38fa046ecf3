//! Multicast of programs under the preload library: groups of several interfaces, and senders and
//! receivers of one host, of which some are the kernel's.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use wirepath_tests::live::preload::{carried_by_kernel, compile, counter_of, echo, run, start, text, wire};
use wirepath_tests::live::{FAR, NEAR, OURS, Program, THEIRS, Wire, has_program, wait_until};
use wirepath_tests::netns::Namespace;

/// A second interface of the near end, which stays the kernel's, and the addresses of its ends.
const SECOND: &str = "second0";
const SECOND_NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 1);
const SECOND_FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 2);

/// A wire with two interfaces at its near end. Multicast without a named interface leaves by the
/// first.
fn two_wires(test: &str) -> Option<(Wire, Namespace)> {
    let wire = wire(test, &[])?;
    let other = Namespace::new().unwrap();
    wire.near.veth(SECOND, &other, "second1").unwrap();
    wire.near.ip(&["addr", "add", &format!("{SECOND_NEAR}/24"), "dev", SECOND]).unwrap();
    other.ip(&["addr", "add", &format!("{SECOND_FAR}/24"), "dev", "second1"]).unwrap();
    other.ip(&["route", "add", "default", "dev", "second1"]).unwrap();
    wire.near.ip(&["route", "add", "default", "dev", NEAR]).unwrap();
    Some((wire, other))
}

fn program(test: &str, folder: &tempfile::TempDir) -> Option<String> {
    compile(test, "groups.c", folder.path())
}

/// Repeats a text to a group until the flag is set.
fn repeat(sender: UdpSocket, words: &'static [u8], group: (Ipv4Addr, u16), is_over: &'static AtomicBool) {
    thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            // The far end of a veth pair that goes away refuses it.
            let _ = sender.send_to(words, group);
            thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn groups_of_two_interfaces_arrive_at_one_socket_whenever_they_were_joined() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let test = "groups_of_two_interfaces_arrive_at_one_socket_whenever_they_were_joined";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(test, &folder) else { return };
    let Some((wire, other)) = two_wires(test) else { return };
    repeat(wire.socket((THEIRS, 0)), b"first", (Ipv4Addr::new(239, 1, 1, 1), 5_000), &IS_OVER);
    let second = other.run(|| UdpSocket::bind((SECOND_FAR, 0)).unwrap());
    repeat(second, b"second", (Ipv4Addr::new(239, 1, 1, 2), 5_000), &IS_OVER);
    for second in [SECOND_NEAR.to_string(), SECOND.to_owned()] {
        let arguments = ["feeds", &OURS.to_string(), &second];
        let kernel = text(&wire.near.command(&program, &arguments).unwrap());
        let ours = text(&run(&wire, &program, &arguments));
        assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
        assert!(ours.contains("heard first\nheard second\n"), "{ours}");
    }
    IS_OVER.store(true, Ordering::Relaxed);
}

/// Datagrams that programs of the near end have read from its kernel's sockets.
fn read_from_kernel(wire: &Wire) -> u64 {
    counter_of(&wire.near, "Udp:", "InDatagrams")
}

#[test]
fn rule_decides_about_a_group_when_it_is_joined() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let test = "rule_decides_about_a_group_when_it_is_joined";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(test, &folder) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    let rules = folder.path().join("rules.toml");
    let text_of =
        |role, group| format!("[[rules]]\nuse = \"{role}\"\ntraffic = \"udp-receiver\"\nlocal = \"{group}\"\n");
    std::fs::write(&rules, text_of("os", "239.1.1.1") + &text_of("refuse", "239.1.1.8")).unwrap();
    repeat(wire.socket((THEIRS, 0)), b"first", (Ipv4Addr::new(239, 1, 1, 1), 5_000), &IS_OVER);
    let rules = format!("WIREPATH_RULES={}", rules.display());
    let said = text(&run(&wire, "env", &[&rules, &program, "ruled", &OURS.to_string()]));
    IS_OVER.store(true, Ordering::Relaxed);
    let expected = "bind: ok\njoin the kernel's: ok\nheard first\njoin the refused: EACCES\n\
                    join the refused before bind: EACCES\nbind: ok\n";
    assert_eq!(said, expected);
    assert!(read_from_kernel(&wire) > 0, "the group was not the kernel's");
}

#[test]
fn datagrams_to_a_group_leave_by_the_named_interface() {
    let test = "datagrams_to_a_group_leave_by_the_named_interface";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(test, &folder) else { return };
    let Some((wire, other)) = two_wires(test) else { return };
    let group = Ipv4Addr::new(239, 1, 1, 9);
    for (place, words, address) in
        [(&wire.far, "answer by the first", THEIRS), (&other, "answer by the second", SECOND_FAR)]
    {
        let socket = place.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5_002)).unwrap();
            socket.join_multicast_v4(&group, &address).unwrap();
            socket
        });
        thread::spawn(move || {
            let mut bytes = [0; 64];
            while let Ok((_, from)) = socket.recv_from(&mut bytes) {
                socket.send_to(words.as_bytes(), from).unwrap();
            }
        });
    }
    for part in ["asks", "aimed"] {
        let arguments = [part, &OURS.to_string(), SECOND];
        let kernel = text(&wire.near.command(&program, &arguments).unwrap());
        let ours = text(&run(&wire, &program, &arguments));
        assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
        assert_eq!(ours.matches("heard answer").count(), 3, "{ours}");
    }
}

#[test]
fn corked_datagram_to_a_group_is_one_on_the_wire_and_for_members_here() {
    let test = "corked_datagram_to_a_group_is_one_on_the_wire_and_for_members_here";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(test, &folder) else { return };
    let Some(wire) = routed(test, &[]) else { return };
    let socket = wire.far.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5_007)).unwrap();
        socket.join_multicast_v4(&Ipv4Addr::new(239, 1, 1, 7), &THEIRS).unwrap();
        socket
    });
    thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(format!("answer to {len}").as_bytes(), from).unwrap();
        }
    });
    let arguments = ["corks", &OURS.to_string()];
    let kernel = text(&wire.near.command(&program, &arguments).unwrap());
    let ours = text(&run(&wire, &program, &arguments));
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    assert_eq!(ours.matches("heard onetwo\nheard answer to 6\n").count(), 2, "{ours}");
}

#[test]
fn sender_without_members_here_asks_the_kernel_for_them_once() {
    let test = "sender_without_members_here_asks_the_kernel_for_them_once";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(test, &folder) else { return };
    let Some(wire) = routed(test, &[]) else { return };
    let arguments = ["lonely", &OURS.to_string()];
    let kernel = text(&wire.near.command(&program, &arguments).unwrap());
    if kernel.contains("reads: -") {
        return eprintln!("SKIPPED {test}: this kernel counts no reads (CONFIG_TASK_IO_ACCOUNTING)");
    }
    assert_eq!(text(&run(&wire, &program, &arguments)), kernel);
}

#[test]
fn each_member_of_the_program_hears_its_own_datagram_once() {
    let test = "each_member_of_the_program_hears_its_own_datagram_once";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(test, &folder) else { return };
    let Some((wire, _other)) = two_wires(test) else { return };
    for interface in [OURS.to_string(), SECOND_NEAR.to_string()] {
        let kernel = text(&wire.near.command(&program, &["self", &interface]).unwrap());
        let ours = text(&run(&wire, &program, &["self", &interface]));
        assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
        assert!(ours.contains("heard three\nheard four\nmore: 0 2\n"), "{ours}");
    }
}

/// Sends a datagram from each of two addresses of the far end to a group, at the port of whoever
/// asks for it, and then one to that socket itself.
fn send_by_two_addresses_on_request(wire: &Wire) {
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);
    wire.far.ip(&["addr", "add", &format!("{OTHER}/24"), "dev", FAR]).unwrap();
    let requests = wire.socket((THEIRS, 7_010));
    requests.set_read_timeout(None).unwrap();
    let senders = [(THEIRS, 'A'), (OTHER, 'B')].map(|(address, letter)| (wire.socket((address, 0)), letter));
    thread::spawn(move || {
        let mut bytes = [0; 16];
        while let Ok((len, from)) = requests.recv_from(&mut bytes) {
            let number = String::from_utf8_lossy(&bytes[..len]).into_owned();
            for (sender, letter) in &senders {
                let _ = sender.send_to(format!("{letter} {number}").as_bytes(), ("239.1.1.20", from.port()));
            }
            let _ = requests.send_to(format!("M {number}").as_bytes(), from);
        }
    });
}

#[test]
fn member_has_what_the_sources_that_it_wants_send_as_on_the_kernel() {
    let test = "member_has_what_the_sources_that_it_wants_send_as_on_the_kernel";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(test, &folder) else { return };
    let Some(wire) = routed(test, &[]) else { return };
    send_by_two_addresses_on_request(&wire);
    let arguments = ["sources", &OURS.to_string()];
    let kernel = text(&wire.near.command(&program, &arguments).unwrap());
    let before = read_from_kernel(&wire);
    let ours = text(&run(&wire, &program, &arguments));
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    assert!(!ours.contains("nothing") && ours.contains("block A: ok\nB: of B\n"), "{ours}");
    // Who is no member itself hears the group by the kernel.
    let by_the_kernel = read_from_kernel(&wire) - before;
    assert!((1..30).contains(&by_the_kernel), "{by_the_kernel} datagrams came by the kernel: {ours}");
}

/// Waits until a program of a namespace is a member of the group, which its kernel knows, also
/// where it is under the library.
fn until_a_member(namespace: &Namespace, group: Ipv4Addr) {
    let word = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    wait_until("the program joins", || {
        namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap()).contains(&word)
    });
}

#[test]
fn members_of_the_kernel_and_ours_on_one_host_hear_each_other() {
    let test = "members_of_the_kernel_and_ours_on_one_host_hear_each_other";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(test, &folder) else { return };
    let Some((wire, _other)) = two_wires(test) else { return };
    let interface = OURS.to_string();
    let receiver = Program::start(&wire.near, &program, &["receive", &interface, "from ours"]);
    until_a_member(&wire.near, Ipv4Addr::new(239, 1, 1, 6));
    let sent = text(&run(&wire, &program, &["transmit", &interface, "from ours"]));
    assert_eq!(receiver.finish(), "bind: ok\njoin: ok\nheard from ours\n", "{sent}");

    let receiver = start(&wire, &program, &["receive", &interface, "from the kernel"]);
    until_a_member(&wire.near, Ipv4Addr::new(239, 1, 1, 6));
    let sent = text(&wire.near.command(&program, &["transmit", &interface, "from the kernel"]).unwrap());
    assert_eq!(receiver.finish(), "bind: ok\njoin: ok\nheard from the kernel\n", "{sent}");
}

/// A namespace whose multicast has a route, as on a host with a gateway.
fn routed(test: &str, programs: &[&str]) -> Option<Wire> {
    let wire = wire(test, programs)?;
    wire.near.ip(&["route", "add", "default", "dev", NEAR]).unwrap();
    Some(wire)
}

const GROUP: &str = "239.2.2.2";

/// The near kernel has carried the lesser part of what was sent since the wire was made: what comes
/// before our engine has the group.
fn stays_with_ours(wire: &Wire, sent: u64) {
    let carried = carried_by_kernel(&wire.near);
    assert!(carried < sent / 2, "the kernel carried {carried} of {sent} packets");
}

#[test]
fn sockperf_measures_multicast_as_a_client_and_as_a_server_of_ours() {
    let test = "sockperf_measures_multicast_as_a_client_and_as_a_server_of_ours";
    let server = ["server", "-i", GROUP, "-p", "11111"];
    let client = ["ping-pong", "-i", GROUP, "-p", "11111", "-t", "2", "--mps", "1000"];
    for is_server_ours in [false, true] {
        let Some(wire) = routed(test, &["sockperf"]) else { return };
        let (server, said) = match is_server_ours {
            false => {
                let server = Program::start(&wire.far, "sockperf", &server);
                until_a_member(&wire.far, GROUP.parse().unwrap());
                (server, text(&run(&wire, "sockperf", &client)))
            }
            true => {
                let server = start(&wire, "sockperf", &server);
                until_a_member(&wire.near, GROUP.parse().unwrap());
                (server, text(&wire.far.command("sockperf", &client).unwrap()))
            }
        };
        let served = server.interrupt();
        assert!(said.contains("dropped messages = 0; # duplicated messages = 0"), "{said}\n{served}");
        // 1,000 a second for two seconds.
        stays_with_ours(&wire, 2_000);
    }
}

#[test]
fn iperf_2_sends_and_receives_multicast() {
    let test = "iperf_2_sends_and_receives_multicast";
    let server = ["-s", "-u", "-B", GROUP, "-i", "1"];
    let client = ["-c", GROUP, "-u", "-T", "4", "-b", "1m", "-t", "1"];
    for is_server_ours in [false, true] {
        let Some(wire) = routed(test, &["iperf"]) else { return };
        let (server, said) = match is_server_ours {
            false => {
                let server = Program::start(&wire.far, "iperf", &server);
                until_a_member(&wire.far, GROUP.parse().unwrap());
                (server, text(&run(&wire, "iperf", &client)))
            }
            true => {
                let server = start(&wire, "iperf", &server);
                until_a_member(&wire.near, GROUP.parse().unwrap());
                (server, text(&wire.far.command("iperf", &client).unwrap()))
            }
        };
        let served = server.interrupt();
        assert!(said.contains("Sent "), "{said}\n{served}");
        assert!(served.contains("(0%)"), "{said}\n{served}");
        // 1 Mbit/s for a second.
        stays_with_ours(&wire, 85);
    }
}

/// Fills the way of a second interface, has a thread wait for room there, and calls by the first.
const WAITS_FOR_ROOM: &str = "import os, socket, sys, threading
peer, near, second = sys.argv[1:]
def member(made, group):
    made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(near))
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(('0.0.0.0', 5021)); here.settimeout(20); member(here, '239.1.1.9')
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.bind(('0.0.0.0', 5020))
made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(near))
made.sendto(b'here', ('239.1.1.9', 5021)); print(here.recv(9), flush=True)
made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(second))
try:
    while True: made.sendto(bytes(1400), socket.MSG_DONTWAIT, ('239.1.1.10', 5022))
except BlockingIOError: print('full', flush=True)
calls = socket.create_connection((peer, 7000))
def waits():
    global number
    number = threading.get_native_id()
    made.sendto(bytes(1400), ('239.1.1.10', 5022))
    print('had room', flush=True)
number = None
threading.Thread(target=waits, daemon=True).start()
# Until the thread is in a call that is no lock's.
while number is None or open(f'/proc/self/task/{number}/syscall').read().split()[0] in ('running', '98', '202'): pass
for turn in range(3): calls.sendall(b'echo'); print(calls.recv(4), flush=True)
os._exit(0)
";

#[test]
fn full_queue_of_another_interface_holds_up_no_other_thread() {
    let test = "full_queue_of_another_interface_holds_up_no_other_thread";
    if !has_program(test, "python3") || !has_program(test, "tc") {
        return;
    }
    let Some((wire, _other)) = two_wires(test) else { return };
    let rate = ["qdisc", "add", "dev", SECOND, "root", "tbf", "rate", "8bit", "burst", "1540", "limit", "1000000"];
    let limited = wire.near.command("tc", &rate).unwrap();
    if !limited.status.success() {
        eprintln!("SKIPPED {test}: the kernel has no token bucket filter: {}", text(&limited));
        return;
    }
    echo(&wire);
    let places = [THEIRS, OURS, SECOND_NEAR].map(|place| place.to_string());
    let words = ["-c", WAITS_FOR_ROOM, &places[0], &places[1], &places[2]];
    assert_eq!(text(&run(&wire, "python3", &words)), "b'here'\nfull\nb'echo'\nb'echo'\nb'echo'\n");
}
