//! Sockets that are not read, and an interface that is gone.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::io::{IoSlice, Read, Write};

use common::{at, errno, poor_wire, wire, wire_of_chunks};
use sockets::net::{TcpListener, TcpStream, UdpSocket};
use sockets::{Errno, Ready, SendFlags, Shutdown};
use wirepath::mem::Mbuf;
use wirepath::time::Duration;

/// More than the pool of a worker has buffers, at 128 each.
const UNREAD: u16 = 50;

#[test]
fn sockets_that_are_not_read_leave_buffers_for_the_others() {
    let (wire, copied) = poor_wire();
    let sender = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let unread: Vec<UdpSocket> =
        (0..UNREAD).map(|idx| UdpSocket::bind(&wire.right, at(2, 1_000 + idx)).unwrap()).collect();
    // The neighbor is known before the first of them.
    sender.send_to(b"?", at(2, 9)).unwrap();
    wire.settle();
    for round in 0..140_u8 {
        (0..UNREAD).for_each(|idx| _ = sender.send_to(&[round; 64], at(2, 1_000 + idx)).unwrap());
        wire.left.turn();
        wire.right.turn();
        wire.left.turn();
    }
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let mut client = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sent: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    let mut got = vec![0; sent.len()];
    for (part, into) in sent.chunks(10_000).zip(got.chunks_mut(10_000)) {
        client.write_all(part).unwrap();
        server.read_exact(into).unwrap();
    }
    assert!(got == sent, "other bytes");
    assert!(copied() > 1_000, "{} copies", copied());
    // All that a receive buffer has room for is still there, the oldest first.
    for socket in &unread {
        let mut word = [0; 100];
        for round in 0..128_u8 {
            assert_eq!(socket.recv(&mut word).unwrap(), 64);
            assert_eq!(word[..64], [round; 64]);
        }
        assert_eq!(wire.right.call(|sockets, _| sockets.dropped(socket.id())).unwrap(), 12);
    }
}

#[test]
fn gathered_send_is_told_of_room_after_the_pool_was_empty() {
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let client = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    let _server = listener.accept().unwrap();
    let parts = [IoSlice::new(b"one"), IoSlice::new(b"two")];
    let flags = SendFlags::default();
    let send = || wire.left.call(|sockets, cx| sockets.send_parts(client.id(), &parts, None, flags, cx));
    let is_writable = || wire.left.call(|sockets, _| sockets.ready(client.id())).unwrap().has(Ready::OUT);
    let all: Vec<Mbuf> = wire.left.call(|_, cx| std::iter::from_fn(|| cx.pool.alloc()).collect());
    assert_eq!((send(), is_writable()), (Err(Errno::EAGAIN), false));
    all.into_iter().for_each(Mbuf::free);
    wire.clock.advance(Duration::from_millis(5));
    wire.settle();
    assert!(is_writable());
    assert_eq!(send(), Ok(6));
}

#[test]
fn more_connections_than_chunks_end_when_all_are_closed_at_once() {
    let wire = wire_of_chunks(4);
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    for shuts in [false, true] {
        let connected = |_| (TcpStream::connect(&wire.left, at(2, 80)).unwrap(), listener.accept().unwrap().0);
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..10).map(connected).unzip();
        if shuts {
            ours.iter().for_each(|stream| stream.shutdown(Shutdown::Write).unwrap());
        } else {
            drop(ours);
        }
        for mut stream in theirs {
            stream.set_options(|options| options.receive_timeout = Some(Duration::from_secs(1))).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{shuts}");
        }
        wire.settle();
        wire.clock.advance(Duration::from_millis(5));
        wire.settle();
        assert_eq!(wire.right.call(|_, cx| cx.tcp().len()), 0, "{shuts}");
    }
}

#[test]
fn sockets_of_an_interface_that_is_gone_report_it_and_send_no_more() {
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let mut client = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    listener.accept().unwrap();
    let datagrams = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    wire.left.call(|sockets, cx| sockets.lose(Errno::ENETDOWN, cx));
    let ready = wire.left.call(|sockets, _| sockets.ready(client.id()).unwrap());
    assert!(ready.has(Ready::ERR) && ready.has(Ready::HUP), "{ready:?}");
    let mut byte = [0];
    assert_eq!(errno(client.read(&mut byte)), Some(Errno::ENETDOWN));
    assert_eq!(client.read(&mut byte).unwrap(), 0);
    assert_eq!(errno(client.write(b"x")), Some(Errno::EPIPE));
    assert_eq!(errno(datagrams.recv(&mut byte)), Some(Errno::ENETDOWN));
    assert_eq!(errno(datagrams.send_to(b"x", at(2, 7))), Some(Errno::ENETDOWN));
    assert_eq!(errno(TcpStream::connect(&wire.left, at(2, 80))), Some(Errno::ENETDOWN));
}
