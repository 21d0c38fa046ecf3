//! A process to be guarded: opens connections to a kernel by hand, over a packet socket, keeps a
//! roster of them, and then executes commands from standard input.
//!
//! `guarded NAMESPACE COUNT VLAN SKEW WHO`: COUNT connections to [`THEIRS`] port 5000, in VLAN
//! unless it is 0; the roster's SND.NXT differs by SKEW from the data that the peer has received;
//! if WHO is `spawn`, the process starts a guardian for itself.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::BufRead;
use std::net::SocketAddrV4;
use std::time::Duration;

use wirepath::pipeline::tcp::roster::Roster;
use wirepath::proto::{Flow, InterfaceId};
use wirepath::testing::roster::OpenConnection;
use wirepath::wire::ethernet::{EthernetFields, EthernetFrame, EthernetHeader};
use wirepath::wire::ipv4::Ipv4Header;
use wirepath::wire::tcp::{TcpFields, TcpFlags, TcpHeader};
use wirepath::wire::{EtherType, MacAddr, Protocol, VlanTag, VlanTags};
use wirepath::worker::guard;
use wirepath_tests::frames::segment;
use wirepath_tests::live::{NEAR, OURS, THEIRS};
use wirepath_tests::netns;
use wirepath_tests::packet::PacketSocket;
use zerocopy::FromBytes;

const TIMEOUT: Duration = Duration::from_secs(40);

fn main() {
    guard::serve_if_spawned();
    let arguments: Vec<String> = std::env::args().collect();
    let number = |idx: usize| arguments[idx].parse::<i64>().unwrap();
    let (count, vlan, skew) = (number(2) as u16, number(3) as u16, number(4));
    netns::enter(&arguments[1]).unwrap();
    let mut guard = (arguments[5] == "spawn").then(|| guard::spawn().unwrap());
    let interface: u32 = std::fs::read_to_string(format!("/sys/class/net/{NEAR}/ifindex"))
        .ok()
        .and_then(|idx| idx.trim().parse().ok())
        .unwrap_or_else(|| idx_by_ip(&arguments[1]));
    let mut roster = Roster::create("guarded", InterfaceId(interface), count.into()).unwrap();
    let socket = PacketSocket::open(NEAR).unwrap();
    for idx in 0..count {
        let mut connection = connect(&socket, 10_000 + idx, vlan);
        connection.snd_nxt = connection.snd_nxt.wrapping_add(skew as u32);
        roster.open(idx.into(), &connection);
    }
    println!("open {}", guard.as_ref().map_or(0, guard::Guard::pid));
    for line in std::io::stdin().lock().lines() {
        match &*line.unwrap() {
            // A worker panics, and the process goes on.
            "panic" => return outlive(roster),
            "close" => (0..count).for_each(|slot| roster.close(slot.into())),
            "guardian?" => println!("{}", guard.as_mut().is_some_and(guard::Guard::is_there)),
            _ => return,
        }
    }
}

fn outlive(roster: Roster) {
    let worker = std::thread::spawn(move || {
        let _roster = roster;
        panic!("as the test wants it");
    });
    assert!(worker.join().is_err());
    std::thread::sleep(TIMEOUT);
}

/// /sys shows the interfaces of the namespace that it was mounted in; `ip` asks.
fn idx_by_ip(namespace: &str) -> u32 {
    let said =
        std::process::Command::new("ip").args(["-n", namespace, "-o", "link", "show", "dev", NEAR]).output().unwrap();
    String::from_utf8_lossy(&said.stdout).split(':').next().unwrap().parse().unwrap()
}

/// A handshake by hand.
fn connect(socket: &PacketSocket, port: u16, vlan: u16) -> OpenConnection {
    let flow = Flow { local: SocketAddrV4::new(OURS, port), remote: SocketAddrV4::new(THEIRS, 5000) };
    let iss = u32::from(port) << 16;
    let mut connection = OpenConnection { flow, link: link(vlan), snd_nxt: iss, rcv_nxt: 0 };
    socket.send(&frame(&connection, TcpFlags::SYN)).unwrap();
    let header = loop {
        let received = socket.receive(TIMEOUT).unwrap();
        let Some(header) = segment_for(&received.frame, flow) else { continue };
        break header;
    };
    assert_eq!(header.flags(), TcpFlags::SYN | TcpFlags::ACK);
    (connection.snd_nxt, connection.rcv_nxt) = (iss + 1, header.seq().wrapping_add(1));
    socket.send(&frame(&connection, TcpFlags::ACK)).unwrap();
    connection
}

fn link(vlan: u16) -> arrayvec::ArrayVec<u8, 22> {
    let (dst, src) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
    let tags = if vlan == 0 { VlanTags::NONE } else { VlanTags::single(VlanTag::new(vlan)) };
    let mut bytes = [0; 22];
    let header = EthernetHeader::new(EthernetFields { dst, src, ethertype: EtherType::IPV4 });
    let len = header.emit_tagged(&tags, &mut bytes).unwrap();
    bytes[..len].iter().copied().collect()
}

fn frame(connection: &OpenConnection, flags: TcpFlags) -> Vec<u8> {
    let Flow { local, remote } = connection.flow;
    let fields = TcpFields {
        source_port: local.port(),
        destination_port: remote.port(),
        seq: connection.snd_nxt,
        ack: connection.rcv_nxt,
        flags,
        window: 60_000,
        urgent_pointer: 0,
    };
    [&connection.link[..], &segment([*local.ip(), *remote.ip()], &fields, &[])].concat()
}

fn segment_for(frame: &[u8], flow: Flow) -> Option<TcpHeader> {
    let ethernet = EthernetFrame::parse(frame).ok()?;
    let (ipv4, _) = Ipv4Header::ref_from_prefix(ethernet.payload).ok()?;
    if ethernet.ethertype != EtherType::IPV4 || ipv4.protocol() != Protocol::TCP {
        return None;
    }
    let (tcp, _) = TcpHeader::read_from_prefix(&ethernet.payload[ipv4.header_len()..]).ok()?;
    let is_it = ipv4.source() == *flow.remote.ip() && tcp.destination_port() == flow.local.port();
    is_it.then_some(tcp)
}
