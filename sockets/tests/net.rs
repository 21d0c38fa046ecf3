//! What `std::net` has beside its basic calls: times, clones, iterators, and reads by reference.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use core::time::Duration;
use std::io::{ErrorKind, Read, Write};

use common::{at, wire};
use sockets::net::{TcpListener, TcpStream, UdpSocket};
use wirepath::time::Clock;

#[test]
fn connect_gives_up_after_its_time() {
    let wire = wire();
    // No host has this address.
    let connect = |time| TcpStream::connect_timeout(&wire.left, at(9, 80), time).map(drop);
    let mut clock = wire.clock.clone();
    let began = clock.now();
    assert_eq!(connect(Duration::from_millis(20)).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(clock.now().since(began).as_nanos() / 1_000_000, 20);
    assert_eq!(connect(Duration::ZERO).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(wire.left.call(|sockets, _| sockets.is_empty()));
    let _listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    TcpStream::connect_timeout(&wire.left, at(2, 80), Duration::from_secs(1)).unwrap();
}

#[test]
fn times_of_calls_are_those_that_were_set() {
    let wire = wire();
    let socket = UdpSocket::bind(&wire.left, at(1, 7_000)).unwrap();
    assert_eq!((socket.read_timeout().unwrap(), socket.write_timeout().unwrap()), (None, None));
    let [read, write] = [3, 4].map(|ms| Some(Duration::from_millis(ms)));
    socket.set_read_timeout(read).unwrap();
    socket.set_write_timeout(write).unwrap();
    assert_eq!((socket.read_timeout().unwrap(), socket.write_timeout().unwrap()), (read, write));
    assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(socket.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    socket.set_read_timeout(None).unwrap();
    assert_eq!(socket.read_timeout().unwrap(), None);
}

#[test]
fn clones_are_one_socket_that_closes_with_the_last_of_them() {
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    let mut theirs = listener.incoming().next().unwrap().unwrap();
    let mut reader = ours.try_clone().unwrap();
    (&ours).write_all(b"one").unwrap();
    drop(ours);
    wire.settle();
    theirs.write_all(b"two").unwrap();
    let mut word = [0; 3];
    reader.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"two");
    // As of the file that descriptors share.
    let other = reader.try_clone().unwrap();
    other.set_nonblocking(true).unwrap();
    assert_eq!(reader.read(&mut word).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop((reader, other));
    let mut all = Vec::new();
    theirs.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"one");
}

#[test]
fn peeked_datagram_is_received_afterwards() {
    let wire = wire();
    let ours = UdpSocket::bind(&wire.left, at(1, 7_000)).unwrap();
    let theirs = UdpSocket::bind(&wire.right, at(2, 7_000)).unwrap();
    ours.send_to(b"word", at(2, 7_000)).unwrap();
    let mut into = [0; 8];
    assert_eq!(theirs.peek_from(&mut into).unwrap(), (4, at(1, 7_000)));
    assert_eq!((theirs.peek(&mut into).unwrap(), theirs.recv(&mut into).unwrap()), (4, 4));
    assert_eq!(&into[..4], b"word");
    theirs.set_nonblocking(true).unwrap();
    assert_eq!(theirs.peek(&mut into).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn options_by_the_names_of_std_are_those_of_the_socket() {
    let wire = wire();
    let socket = UdpSocket::bind(&wire.left, at(1, 7_000)).unwrap();
    socket.set_ttl(9).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_multicast_loop_v4(false).unwrap();
    socket.set_multicast_ttl_v4(3).unwrap();
    let options = socket.options().unwrap();
    assert_eq!((socket.ttl().unwrap(), options.broadcast), (9, true));
    assert_eq!((options.multicast_loop, options.multicast_ttl), (false, 3));
    assert_eq!([0, 256].map(|ttl| socket.set_ttl(ttl).unwrap_err().kind()), [ErrorKind::InvalidInput; 2]);
    let _listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let stream = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    stream.set_nodelay(true).unwrap();
    assert!(stream.nodelay().unwrap());
}
