//! A program under the preload library with an address of its own, which the kernel does not have:
//! ARP and ICMP are ours as well.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use wirepath_tests::live::preload::{library, start, text};
use wirepath_tests::live::{NEAR, OURS, Program, THEIRS, TIMEOUT, Wire, has_program, wait_until};

/// Echoes a connection and a datagram, then calls a server, also behind a router.
const PROGRAM: &str = "\
import socket, struct, sys
ours, theirs, far = sys.argv[1:]
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((ours, 7100))
listener.listen()
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(('0.0.0.0', 7200))
group = socket.inet_aton('239.3.3.3') + socket.inet_aton(ours)
datagrams.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
early = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
early.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
early.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
early.bind(('239.3.3.3', 7201))
print('ready', flush=True)
peer, _ = listener.accept()
peer.sendall(peer.recv(100))
for receiver in datagrams, datagrams, early:
    words, sender = receiver.recvfrom(100)
    datagrams.sendto(words, sender)
for host in theirs, far:
    client = socket.create_connection((host, 7300))
    print(host, client.getsockname()[0], client.recv(100).decode(), flush=True)
";

#[test]
fn program_serves_and_calls_from_an_address_of_its_own() {
    let test = "program_serves_and_calls_from_an_address_of_its_own";
    serves_and_calls(test, |wire, settings, program| start(wire, "env", &[&settings[..], program].concat()));
}

#[test]
#[ignore = "make soak: the same over other queues"]
fn program_serves_and_calls_from_an_address_of_its_own_over_a_connectx() {
    let test = "program_serves_and_calls_from_an_address_of_its_own_over_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    serves_and_calls(test, |wire, settings, program| {
        // The launcher preloads a library too, and ours stands in front of it.
        let line = format!("LD_PRELOAD={}:$LD_PRELOAD exec env \"$@\"", library().display());
        let port = format!("WIREPATH_INTERFACE=mlx5:{NEAR}");
        let software = softhca::testing::program().unwrap().to_str().unwrap();
        let before = ["run", "--wire", NEAR, "--", "sh", "-c", &line, "sh", &port, "WIREPATH_POLICY=refuse"];
        Program::start(&wire.near, software, &[&before[..], &settings, program].concat())
    });
}

/// `start` starts a program under the library with these settings of its environment.
fn serves_and_calls(test: &str, start: impl Fn(&Wire, [&str; 2], &[&str]) -> Program) {
    if !has_program(test, "python3") {
        return;
    }
    let Some(wire) = Wire::new(test) else { return };
    // A network behind the far end.
    let far = Ipv4Addr::new(198, 51, 100, 9);
    wire.far.ip(&["addr", "add", &format!("{far}/32"), "dev", "lo"]).unwrap();
    let server = wire.far.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 7_300)).unwrap());
    thread::spawn(move || {
        for mut socket in server.incoming().map_while(Result::ok) {
            let seen = socket.peer_addr().unwrap().ip();
            let _ = socket.write_all(format!("seen as {seen}").as_bytes());
        }
    });
    let address = format!("WIREPATH_ADDRESS={OURS}/24");
    let gateway = format!("WIREPATH_GATEWAY={THEIRS}");
    let [ours, theirs, behind] = [OURS, THEIRS, far].map(|host| host.to_string());
    let program = start(&wire, [&address, &gateway], &["python3", "-c", PROGRAM, &ours, &theirs, &behind]);
    let call = || wire.far.run(|| TcpStream::connect((OURS, 7_100)));
    let mut peer = None;
    wait_until("the program listens", || {
        peer = call().ok();
        peer.is_some()
    });
    let mut peer = peer.unwrap();
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    peer.write_all(b"stream").unwrap();
    let mut word = [0; 6];
    peer.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"stream");
    let ping = wire.far.command("ping", &["-c", "1", "-W", "5", &ours]);
    if let Ok(ping) = ping {
        assert!(ping.status.success(), "{}", text(&ping));
    }
    let socket: UdpSocket = wire.socket((THEIRS, 0));
    let mut bytes = [0; 100];
    for (words, to) in [
        (&b"unicast"[..], (OURS, 7_200)),
        (b"group", (Ipv4Addr::new(239, 3, 3, 3), 7_200)),
        (b"early", (Ipv4Addr::new(239, 3, 3, 3), 7_201)),
    ] {
        socket.send_to(words, to).unwrap();
        let (count, from) = socket.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..count], from), (words, (OURS, 7_200).into()));
    }
    let said = program.finish();
    assert!(said.contains(&format!("{THEIRS} {OURS} seen as {OURS}\n{far} {OURS} seen as {OURS}\n")), "{said}");
    let addresses = wire.near.command("ip", &["-4", "addr", "show", "dev", NEAR]).unwrap();
    assert_eq!(text(&addresses), "", "the kernel has no address");
}
