//! Programs that never wait in a call: each call of theirs turns the worker often enough.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::io::{ErrorKind, Read, Write};

use common::{Wire, at, errno, wire};
use sockets::net::{TcpListener, TcpStream, UdpSocket};
use sockets::{EpollEvent, Errno, Interest, PollSocket, Ready, Shutdown, Trigger};
use wirepath::time::Duration;

/// Makes calls of the left host, `between` apart, until one returns something. The right host
/// turns, and nothing else turns the left one.
fn until<T>(wire: &Wire, between: Duration, mut call: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1_000 {
        if let Some(done) = call() {
            return done;
        }
        wire.right.turn();
        wire.clock.advance(between);
    }
    panic!("1,000 calls have returned nothing");
}

fn ready<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        done => Some(done.unwrap()),
    }
}

const STEP: Duration = Duration::from_micros(10);

/// A connection from the left host to the right one, whose left end does not block.
fn connected(wire: &Wire) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, listener.accept().unwrap().0)
}

#[test]
fn nonblocking_reads_in_a_loop_find_what_has_come() {
    let wire = wire();
    let (mut ours, mut theirs) = connected(&wire);
    theirs.write_all(b"hello").unwrap();
    let mut into = [0; 8];
    assert_eq!(until(&wire, STEP, || ready(ours.read(&mut into))), 5);
}

#[test]
fn nonblocking_accepts_in_a_loop_find_a_connection() {
    let wire = wire();
    let listener = TcpListener::bind(&wire.left, at(1, 80)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let id = wire.right.call(|sockets, _| sockets.socket(sockets::Kind::Stream)).unwrap();
    let begun = wire.right.call(|sockets, cx| sockets.connect(id, at(1, 80), cx));
    assert_eq!(begun, Err(Errno::EINPROGRESS));
    until(&wire, STEP, || ready(listener.accept()));
}

#[test]
fn polls_and_epoll_waits_without_time_find_what_has_come() {
    let wire = wire();
    let (ours, mut theirs) = connected(&wire);
    theirs.write_all(b"hello").unwrap();
    let mut sockets = [PollSocket { socket: ours.id(), interest: Ready::IN, ready: Ready::NONE }];
    until(&wire, STEP, || (wire.left.poll(&mut sockets, Some(Duration::ZERO)) > 0).then_some(()));

    let other = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let set = wire.left.call(|sockets, _| sockets.epoll_create());
    let interest = Interest { ready: Ready::IN, trigger: Trigger::Level, one_shot: false, exclusive: false, data: 7 };
    wire.left.call(|sockets, _| sockets.epoll_add(set, other.id(), 5, interest)).unwrap();
    let sender = UdpSocket::bind(&wire.right, at(2, 9)).unwrap();
    sender.send_to(b"one", at(1, 9)).unwrap();
    let mut events = [EpollEvent { ready: Ready::NONE, data: 0 }; 4];
    let mut wait = || wire.left.epoll_wait(set, &mut events, Some(Duration::ZERO)).unwrap();
    until(&wire, STEP, || (wait() > 0).then_some(()));
}

#[test]
fn sockets_that_are_always_ready_do_not_hide_what_comes_for_others() {
    let wire = wire();
    let (ours, mut theirs) = connected(&wire);
    theirs.write_all(b"hello").unwrap();
    let writable = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let mut sockets = [
        PollSocket { socket: writable.id(), interest: Ready::OUT, ready: Ready::NONE },
        PollSocket { socket: ours.id(), interest: Ready::IN, ready: Ready::NONE },
    ];
    until(&wire, STEP, || (wire.left.poll(&mut sockets, None) == 2).then_some(()));
}

#[test]
fn writer_that_never_reads_takes_acknowledgments_and_a_reset() {
    let wire = wire();
    let (mut ours, mut theirs) = connected(&wire);
    theirs.set_nonblocking(true).unwrap();
    let (mut written, mut got) = (0, 0);
    // More than the first congestion window, and less than the send buffer.
    until(&wire, Duration::from_micros(100), || {
        if written < 100_000 {
            written += ours.write(&[7; 1_000]).unwrap();
        } else {
            ours.take_error().unwrap();
        }
        got += ready(theirs.read(&mut [0; 8_000])).unwrap_or(0);
        (got == 100_000).then_some(())
    });
    theirs.set_options(|options| options.linger = Some(Duration::ZERO)).unwrap();
    drop(theirs);
    let reset = until(&wire, Duration::from_micros(100), || ours.write(&[7]).err());
    assert_eq!(errno::<()>(Err(reset)), Some(Errno::ECONNRESET));
}

#[test]
fn datagrams_to_a_peer_whose_address_is_asked_for_leave_with_later_ones() {
    let wire = wire();
    let ours = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let theirs = UdpSocket::bind(&wire.right, at(2, 9)).unwrap();
    theirs.set_nonblocking(true).unwrap();
    until(&wire, Duration::from_millis(1), || {
        ours.send_to(b"tick", at(2, 9)).unwrap();
        ready(theirs.recv(&mut [0; 8]))
    });
}

#[test]
fn reader_of_datagrams_that_wait_answers_the_peer_meanwhile() {
    let wire = wire();
    let ours = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let theirs = UdpSocket::bind(&wire.right, at(2, 9)).unwrap();
    for _ in 0..100 {
        theirs.send_to(b"tick", at(1, 9)).unwrap();
        wire.settle();
    }
    let (_ours, mut other) = connected(&wire);
    other.write_all(b"to be acknowledged").unwrap();
    other.set_nonblocking(true).unwrap();
    let is_acknowledged = || {
        let mut info = [0; 104];
        wire.right.call(|sockets, cx| sockets.getsockopt(other.id(), 6, 11, &mut info, cx)).unwrap();
        u32::from_ne_bytes(*info[24..].first_chunk().unwrap()) == 0
    };
    assert!(!is_acknowledged());
    for _ in 0..100 {
        ours.recv(&mut [0; 8]).unwrap();
        wire.clock.advance(Duration::from_millis(2));
        wire.right.turn();
    }
    assert!(is_acknowledged());
}

#[test]
fn nonblocking_recv_of_datagrams_that_are_shut_down_would_block() {
    let wire = wire();
    let ours = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    ours.connect(at(2, 9)).unwrap();
    wire.left.call(|sockets, cx| sockets.shutdown(ours.id(), Shutdown::Read, cx)).unwrap();
    assert_eq!(ours.recv(&mut [0; 8]).unwrap(), 0);
    ours.set_nonblocking(true).unwrap();
    assert_eq!(errno(ours.recv(&mut [0; 8])), Some(Errno::EAGAIN));
}
