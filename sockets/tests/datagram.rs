//! UDP sockets.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddrV4};

use common::{at, errno, wire};
use sockets::net::UdpSocket;
use sockets::{DatagramInfo, Errno, Kind, Ready, SendControl, SendFlags};
use wirepath::mem::Mbuf;
use wirepath::time::{Clock, Duration};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

#[test]
fn datagram_comes_with_its_sender_and_goes_back_to_it() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 0)).unwrap();
    let mut word = [0; 16];
    client.send_to(b"ping", at(2, 7)).unwrap();
    let (count, from) = server.recv_from(&mut word).unwrap();
    server.send_to(&word[..count], from).unwrap();
    assert_eq!(client.recv_from(&mut word).unwrap(), (4, at(2, 7)));
    assert_eq!((&word[..4], from), (&b"ping"[..], client.local_addr().unwrap()));
}

#[test]
fn empty_datagram_is_received_as_one() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    client.send_to(b"", at(2, 7)).unwrap();
    assert_eq!(server.recv_from(&mut [0; 4]).unwrap(), (0, at(1, 9)));
}

#[test]
fn datagram_longer_than_the_buffer_is_cut_and_its_length_known() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    for payload in [&b"a long datagram"[..], b"next"] {
        client.send_to(payload, at(2, 7)).unwrap();
    }
    let mut word = [0; 4];
    let (count, info) = server.recv_info(&mut word).unwrap();
    assert_eq!((count, info.len, &word), (4, 15, b"a lo"));
    server.recv(&mut word).unwrap();
    assert_eq!(&word, b"next");
}

#[test]
fn segments_of_a_send_leave_all_or_none() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    // The neighbor is known before.
    client.send_to(b"word", at(2, 7)).unwrap();
    server.recv(&mut [0; 4]).unwrap();
    let (parts, flags) = ([IoSlice::new(b"wordword")], SendFlags::default());
    let control = SendControl { segment_len: Some(4), ..SendControl::default() };
    let send = || {
        let to = Some(at(2, 7));
        wire.left.call(|sockets, cx| sockets.send_controlled(client.id(), &parts, to, flags, &control, cx))
    };
    let mut all: Vec<Mbuf> = wire.left.call(|_, cx| std::iter::from_fn(|| cx.pool.alloc()).collect());
    all.pop().unwrap().free();
    assert_eq!(send(), Err(Errno::EAGAIN));
    all.pop().unwrap().free();
    assert_eq!(send(), Ok(8));
    (0..2).for_each(|_| assert_eq!(server.recv(&mut [0; 8]).unwrap(), 4));
    all.into_iter().for_each(Mbuf::free);
}

#[test]
fn datagram_of_65_507_bytes_crosses_in_fragments_and_a_longer_one_is_refused() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let sent: Vec<u8> = (0..65_507_u32).map(|n| (n % 253) as u8).collect();
    client.send_to(&sent, at(2, 7)).unwrap();
    let mut got = vec![0; 65_536];
    let count = server.recv(&mut got).unwrap();
    assert!(got[..count] == sent[..]);
    assert_eq!(errno(client.send_to(&[0; 65_508], at(2, 7))), Some(Errno::EMSGSIZE));
}

#[test]
fn fragments_to_a_host_that_does_not_answer_wait_three_seconds_and_are_refused() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    assert_eq!(errno(client.send_to(&[0; 65_507], at(7, 7))), Some(Errno::EHOSTUNREACH));
    assert!(wire.clock.clone().now().as_nanos() >= 3_000_000_000);
}

#[test]
fn unread_datagrams_move_with_their_age_to_the_socket_that_takes_their_place() {
    let wire = wire();
    let first = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    for payload in [&b"one"[..], b"", b"three"] {
        client.send_to(payload, at(2, 7)).unwrap();
        wire.settle();
    }
    wire.clock.advance(Duration::from_millis(3));
    let right = &wire.right;
    let arrived = |info: &DatagramInfo| right.call(|_, cx| cx.now.since(info.arrived));
    let unread = right.call(|sockets, cx| sockets.take_unread(first.id(), cx)).unwrap();
    assert_eq!(right.call(|sockets, _| sockets.is_unused(first.id())), Ok(false));
    drop(first);
    let next = UdpSocket::bind(right, at(2, 7)).unwrap();
    let ago = Duration::from_millis(1);
    right.call(|sockets, cx| sockets.put_unread(next.id(), &unread, ago, cx)).unwrap();
    assert_eq!(right.call(|sockets, _| sockets.is_unused(next.id())), Ok(true));
    assert!(right.with_sockets(|sockets| sockets.ready(next.id())).unwrap().has(Ready::IN));
    let mut word = [0; 8];
    let ages = [&b"one"[..], b"", b"three"].map(|payload| {
        let (count, info) = next.recv_info(&mut word).unwrap();
        assert_eq!((&word[..count], info.source), (payload, at(1, 9)));
        arrived(&info)
    });
    assert!(ages.is_sorted_by(|one, next| one > next) && ages[2] >= Duration::from_millis(4), "{ages:?}");
}

#[test]
fn socket_that_stops_to_receive_keeps_what_its_port_has_received() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    // The neighbor is known before.
    client.send_to(b"word", at(2, 7)).unwrap();
    server.recv(&mut [0; 4]).unwrap();
    client.send_to(b"late", at(2, 7)).unwrap();
    wire.right.with_sockets(|sockets| sockets.stop_receiving(server.id())).unwrap();
    assert_eq!(server.recv(&mut [0; 4]).unwrap(), 4);
}

#[test]
fn connected_socket_takes_datagrams_of_its_peer_alone() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let [friend, other] = [9, 10].map(|port| UdpSocket::bind(&wire.left, at(1, port)).unwrap());
    server.connect(at(1, 9)).unwrap();
    other.send_to(b"other", at(2, 7)).unwrap();
    friend.send_to(b"friend", at(2, 7)).unwrap();
    let mut word = [0; 8];
    let count = server.recv(&mut word).unwrap();
    assert_eq!((&word[..count], server.peer_addr().unwrap()), (&b"friend"[..], at(1, 9)));
}

#[test]
fn connected_socket_keeps_its_source_address_when_an_option_changes() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 9)).unwrap();
    client.connect(at(2, 7)).unwrap();
    client.set_options(|options| options.ttl = 9).unwrap();
    assert_eq!(client.local_addr().unwrap(), at(1, 9));
}

#[test]
fn broadcast_needs_the_option_also_if_it_is_that_of_the_network() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let more = |to| {
        let flags = SendFlags { more: true, ..SendFlags::default() };
        let parts = [IoSlice::new(b"x")];
        wire.left.call(|sockets, cx| sockets.send_parts(client.id(), &parts, Some(to), flags, cx)).err()
    };
    for to in [at(255, 9), SocketAddrV4::new(Ipv4Addr::BROADCAST, 9)] {
        client.connect(at(2, 7)).unwrap();
        client.send(b"anybody?").unwrap();
        wire.settle();
        client.set_options(|options| options.broadcast = false).unwrap();
        let refused = [errno(client.send_to(b"x", to)), more(to), errno(client.connect(to))];
        assert_eq!(refused, [Some(Errno::EACCES); 3], "{to}");
        let error = wire.left.call(|sockets, _| sockets.take_error(client.id()));
        assert_eq!(error, Ok(Some(Errno::ECONNREFUSED)), "it is not what was reported");
        client.set_options(|options| options.broadcast = true).unwrap();
        client.send_to(b"x", to).unwrap();
        assert_eq!(errno(client.connect(to)), None);
        wire.left.call(|sockets, cx| sockets.disconnect(client.id(), cx)).unwrap();
    }
}

#[test]
fn port_where_nobody_is_makes_the_next_call_of_a_connected_socket_refused() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    client.connect(at(2, 7)).unwrap();
    client.send(b"anybody?").unwrap();
    wire.settle();
    assert_eq!(errno(client.recv(&mut [0; 4])), Some(Errno::ECONNREFUSED));
    client.set_options(|options| options.receive_timeout = Some(Duration::from_millis(1))).unwrap();
    assert_eq!(errno(client.recv(&mut [0; 4])), Some(Errno::EAGAIN), "it is reported once");
}

#[test]
fn full_receive_buffer_drops_the_newest_and_counts_them() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    server.set_options(|options| options.receive_buffer = 8 << 10).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    for number in 0..10_u8 {
        client.send_to(&[number], at(2, 7)).unwrap();
        wire.settle();
    }
    let mut got = [0; 1];
    let numbers: Vec<u8> = (0..4).map(|_| server.recv(&mut got).map(|_| got[0]).unwrap()).collect();
    let dropped = wire.right.call(|sockets, _| sockets.dropped(server.id())).unwrap();
    assert_eq!((numbers, dropped), (vec![0, 1, 2, 3], 6));
}

#[test]
fn long_datagrams_count_as_all_the_buffers_that_they_hold() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    server.set_options(|options| options.receive_buffer = 64 << 10).unwrap();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    for _ in 0..6 {
        client.send_to(&[1; 30_000], at(2, 7)).unwrap();
        wire.settle();
    }
    let dropped = wire.right.call(|sockets, _| sockets.dropped(server.id())).unwrap();
    assert_eq!(dropped, 3, "three of them hold 96 KiB of buffers, and the third was let in by the last free byte");
}

#[test]
fn group_is_received_by_each_member_until_it_leaves() {
    let wire = wire();
    let any = |port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let [one, other] = [(); 2].map(|()| {
        let id = wire.right.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
        wire.right
            .call(|sockets, cx| {
                let options = sockets::Options { reuse_address: true, multicast_all: false, ..sockets.options(id)? };
                sockets.set_options(id, &options, cx)?;
                sockets.bind(id, any(5_000), cx)?;
                sockets.join(id, GROUP, wirepath::proto::InterfaceId::ANY, None, cx)
            })
            .unwrap();
        id
    });
    let sender = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let heard = |id| wire.right.call(|sockets, _| sockets.recv_from(id, &mut [0; 8])).map(|(count, _)| count);
    sender.send_to(b"tick", SocketAddrV4::new(GROUP, 5_000)).unwrap();
    wire.settle();
    assert_eq!([one, other].map(heard), [Ok(4), Ok(4)]);
    wire.right.call(|sockets, cx| sockets.leave(one, GROUP, wirepath::proto::InterfaceId::ANY, None, cx)).unwrap();
    sender.send_to(b"tick", SocketAddrV4::new(GROUP, 5_000)).unwrap();
    wire.settle();
    assert_eq!([one, other].map(heard), [Err(Errno::EAGAIN), Ok(4)]);
}

#[test]
fn port_of_another_is_in_use_unless_both_share_it() {
    let wire = wire();
    let _first = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    assert_eq!(errno(UdpSocket::bind(&wire.right, at(2, 7))), Some(Errno::EADDRINUSE));
    assert_eq!(errno(UdpSocket::bind(&wire.right, at(5, 7))), Some(Errno::EADDRNOTAVAIL));
}

#[test]
fn unconnected_socket_has_no_destination() {
    let wire = wire();
    let socket = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    assert_eq!(errno(socket.send(b"where?")), Some(Errno::EDESTADDRREQ));
    assert_eq!(errno(socket.peer_addr()), Some(Errno::ENOTCONN));
    assert_eq!(wire.left.call(|sockets, _| sockets.ready(socket.id())), Ok(Ready::OUT));
}
