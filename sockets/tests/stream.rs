//! TCP sockets: connect, accept, read, write, shut down, close, and the error of each.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::io::{Read, Write};

use common::{Wire, at, errno, wire};
use sockets::net::{TcpListener, TcpStream};
use sockets::{Errno, Kind, PollSocket, Ready, Shutdown};
use wirepath::time::Duration;

/// A connection of the left host to the right one.
fn connected(wire: &Wire) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    (ours, listener.accept().unwrap().0)
}

#[test]
fn bytes_arrive_in_order_and_once() {
    let wire = wire();
    let (mut ours, mut theirs) = connected(&wire);
    let sent: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    let mut got = Vec::new();
    let mut left = &sent[..];
    while got.len() < sent.len() {
        let count = left.len().min(7_000);
        let (now, rest) = left.split_at(count);
        ours.write_all(now).unwrap();
        left = rest;
        let mut part = [0; 3_000];
        let count = theirs.read(&mut part).unwrap();
        got.extend_from_slice(&part[..count]);
    }
    assert!(got == sent);
}

#[test]
fn both_ends_know_both_addresses() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    assert_eq!(ours.peer_addr().unwrap(), at(2, 80));
    assert_eq!(theirs.peer_addr().unwrap(), ours.local_addr().unwrap());
    assert_eq!(theirs.local_addr().unwrap(), at(2, 80));
}

#[test]
fn nobody_listens_is_connection_refused() {
    let wire = wire();
    assert_eq!(errno(TcpStream::connect(&wire.left, at(2, 81))), Some(Errno::ECONNREFUSED));
}

#[test]
fn nobody_answers_is_host_unreachable() {
    let wire = wire();
    assert_eq!(errno(TcpStream::connect(&wire.left, at(9, 80))), Some(Errno::EHOSTUNREACH));
}

#[test]
fn non_blocking_connect_goes_through_in_progress_already_zero_and_is_connected() {
    let wire = wire();
    let _listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let id = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let connect = || wire.left.call(|sockets, cx| sockets.connect(id, at(2, 80), cx));
    assert_eq!(connect(), Err(Errno::EINPROGRESS));
    assert_eq!(connect(), Err(Errno::EALREADY));
    wire.settle();
    assert_eq!(connect(), Ok(()));
    assert_eq!(connect(), Err(Errno::EISCONN));
}

#[test]
fn failed_connect_is_reported_once_by_so_error() {
    let wire = wire();
    let id = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let begun = wire.left.call(|sockets, cx| sockets.connect(id, at(2, 81), cx));
    wire.settle();
    let error = || wire.left.call(|sockets, _| sockets.take_error(id)).unwrap();
    let ready = wire.left.call(|sockets, _| sockets.ready(id)).unwrap();
    assert_eq!((begun, ready.has(Ready::ERR) && ready.has(Ready::HUP)), (Err(Errno::EINPROGRESS), true));
    assert_eq!([error(), error()], [Some(Errno::ECONNREFUSED), None]);
}

#[test]
fn unconnected_stream_reads_not_connected_and_writes_broken_pipe() {
    let wire = wire();
    let id = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let read = wire.left.call(|sockets, cx| sockets.recv(id, &mut [0; 4], cx));
    let sent = wire.left.call(|sockets, cx| sockets.send(id, b"no", cx));
    let ready = wire.left.call(|sockets, _| sockets.ready(id));
    assert_eq!((read, sent), (Err(Errno::ENOTCONN), Err(Errno::EPIPE)));
    assert_eq!(ready, Ok(Ready::OUT | Ready::HUP));
}

#[test]
fn end_of_the_peer_is_read_behind_its_data_and_we_still_send() {
    let wire = wire();
    let (mut ours, mut theirs) = connected(&wire);
    ours.write_all(b"last").unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    let mut word = Vec::new();
    theirs.read_to_end(&mut word).unwrap();
    theirs.write_all(b"answer").unwrap();
    let mut answer = [0; 6];
    ours.read_exact(&mut answer).unwrap();
    assert_eq!((&word[..], &answer), (&b"last"[..], b"answer"));
    assert_eq!(errno(ours.write(b"more")), Some(Errno::EPIPE));
}

#[test]
fn reset_of_the_peer_is_reported_once_then_the_end() {
    let wire = wire();
    let (mut ours, theirs) = connected(&wire);
    theirs.set_options(|options| options.linger = Some(Duration::ZERO)).unwrap();
    drop(theirs);
    wire.settle();
    let mut byte = [0];
    assert_eq!(errno(ours.read(&mut byte)), Some(Errno::ECONNRESET));
    assert_eq!(ours.read(&mut byte).unwrap(), 0);
    assert_eq!(errno(ours.write(&byte)), Some(Errno::EPIPE));
}

#[test]
fn close_with_unread_bytes_resets_the_peer() {
    let wire = wire();
    let (mut ours, theirs) = connected(&wire);
    ours.write_all(b"never read").unwrap();
    wire.settle();
    drop(theirs);
    wire.settle();
    assert_eq!(errno(ours.read(&mut [0])), Some(Errno::ECONNRESET));
}

#[test]
fn peeked_bytes_stay() {
    let wire = wire();
    let (mut ours, mut theirs) = connected(&wire);
    ours.write_all(b"abcdef").unwrap();
    let (mut peeked, mut read) = ([0; 4], [0; 6]);
    assert_eq!(theirs.peek(&mut peeked).unwrap(), 4);
    theirs.read_exact(&mut read).unwrap();
    assert_eq!((&peeked, &read), (b"abcd", b"abcdef"));
}

#[test]
fn read_gives_up_with_would_block_when_its_timeout_is_over() {
    let wire = wire();
    let (mut ours, _theirs) = connected(&wire);
    ours.set_options(|options| options.receive_timeout = Some(Duration::from_millis(5))).unwrap();
    assert_eq!(errno(ours.read(&mut [0])), Some(Errno::EAGAIN));
}

#[test]
fn reader_that_does_not_read_stops_the_writer_and_loses_nothing() {
    let wire = wire();
    let (mut ours, mut theirs) = connected(&wire);
    ours.set_nonblocking(true).unwrap();
    let (mut sent, mut stalls) = (0_usize, 0);
    while stalls < 5 {
        match ours.write(&[(sent / 1_000) as u8; 1_000]) {
            Ok(count) => sent += count,
            Err(_) => {
                wire.settle();
                stalls += 1;
            }
        }
    }
    ours.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent);
    assert!(sent < 4 << 20, "{sent} bytes were taken of a writer that nobody reads");
}

#[test]
fn empty_write_to_a_full_buffer_makes_no_room() {
    let wire = wire();
    let (mut ours, _theirs) = connected(&wire);
    ours.set_nonblocking(true).unwrap();
    while ours.write(&[0; 10_000]).is_ok() {}
    let _ = ours.write(&[]);
    let ready = wire.left.call(|sockets, _| sockets.ready(ours.id())).unwrap();
    assert!(!ready.has(Ready::OUT));
}

#[test]
fn second_listen_with_a_longer_backlog_has_room_for_more_handshakes() {
    let wire = wire();
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    wire.right.call(|sockets, cx| sockets.bind(id, at(2, 80), cx)).unwrap();
    for backlog in [1, 100] {
        wire.right.call(|sockets, cx| sockets.listen(id, backlog, cx)).unwrap();
    }
    // The peer's MAC address is known by then.
    let _first = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    for _ in 0..4 {
        let caller = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
        let _ = wire.left.call(|sockets, cx| sockets.connect(caller, at(2, 80), cx));
    }
    wire.settle();
    assert_eq!(wire.right.call(|_, cx| cx.tcp().tally().syn_cookies_sent), 0);
    assert!((0..5).all(|_| wire.right.call(|sockets, _| sockets.accept(id)).is_ok()));
}

#[test]
fn full_accept_queue_lets_nobody_in_until_one_is_accepted() {
    let wire = wire();
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    wire.right.call(|sockets, cx| sockets.bind(id, at(2, 80), cx)).unwrap();
    wire.right.call(|sockets, cx| sockets.listen(id, 1, cx)).unwrap();
    let call = || {
        let id = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
        let _ = wire.left.call(|sockets, cx| sockets.connect(id, at(2, 80), cx));
        wire.settle();
        id
    };
    let callers = [call(), call(), call()];
    let is_in = |id| wire.left.call(|sockets, _| sockets.peer_addr(id)).is_ok();
    assert_eq!(callers.map(is_in), [true, true, false], "a backlog of 1 has room for 2, as on Linux");
    wire.right.call(|sockets, _| sockets.accept(id)).unwrap();
    // The SYN is sent again after a second.
    (0..1_000).for_each(|_| {
        wire.clock.advance(Duration::from_millis(2));
        wire.settle();
    });
    assert!(is_in(callers[2]));
}

#[test]
fn direction_that_is_shut_before_listening_is_shut_in_what_is_accepted() {
    let wire = wire();
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let shut = wire.right.call(|sockets, cx| sockets.shutdown(id, Shutdown::Write, cx));
    wire.right.call(|sockets, cx| sockets.bind(id, at(2, 80), cx)).unwrap();
    wire.right.call(|sockets, cx| sockets.listen(id, 1, cx)).unwrap();
    let mut ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    assert_eq!((shut, ours.read(&mut [0]).unwrap()), (Err(Errno::ENOTCONN), 0));
}

#[test]
fn direction_that_is_shut_before_connecting_ends_when_it_is_shut_again() {
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let id = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let shut = |wire: &Wire| wire.left.call(|sockets, cx| sockets.shutdown(id, Shutdown::Write, cx));
    assert_eq!(shut(&wire), Err(Errno::ENOTCONN));
    let _ = wire.left.call(|sockets, cx| sockets.connect(id, at(2, 80), cx));
    wire.settle();
    let (mut theirs, _) = listener.accept().unwrap();
    theirs.set_nonblocking(true).unwrap();
    wire.settle();
    assert_eq!(errno(theirs.read(&mut [0])), Some(Errno::EAGAIN));
    assert_eq!(shut(&wire), Ok(()));
    wire.settle();
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
}

#[test]
fn reset_behind_the_peers_end_is_epipe_also_where_sends_were_shut_before_connecting() {
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let id = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let _ = wire.left.call(|sockets, cx| sockets.shutdown(id, Shutdown::Write, cx));
    let _ = wire.left.call(|sockets, cx| sockets.connect(id, at(2, 80), cx));
    wire.settle();
    let (theirs, _) = listener.accept().unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    wire.settle();
    theirs.set_options(|options| options.linger = Some(Duration::ZERO)).unwrap();
    drop(theirs);
    wire.settle();
    assert_eq!(wire.left.call(|sockets, _| sockets.take_error(id)), Ok(Some(Errno::EPIPE)));
}

#[test]
fn listener_that_is_shut_wakes_accept_with_an_error() {
    let wire = wire();
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    wire.right.call(|sockets, cx| sockets.bind(id, at(2, 80), cx)).unwrap();
    wire.right.call(|sockets, cx| sockets.listen(id, 1, cx)).unwrap();
    wire.right.call(|sockets, cx| sockets.shutdown(id, Shutdown::Both, cx)).unwrap();
    assert_eq!(wire.right.call(|sockets, _| sockets.accept(id)), Err(Errno::EINVAL));
}

#[test]
fn port_that_is_listened_at_is_in_use() {
    let wire = wire();
    let _first = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    assert_eq!(errno(TcpListener::bind(&wire.right, at(2, 80))), Some(Errno::EADDRINUSE));
    assert_eq!(errno(TcpListener::bind(&wire.right, at(7, 80))), Some(Errno::EADDRNOTAVAIL));
}

#[test]
fn listener_at_port_zero_gets_one_that_is_free() {
    let wire = wire();
    let [one, other] = [0; 2].map(|port| TcpListener::bind(&wire.right, at(2, port)).unwrap());
    let [one, other] = [one, other].map(|listener| listener.local_addr().unwrap().port());
    assert!(one >= 49_152 && other >= 49_152 && one != other);
}

#[test]
fn poll_waits_for_what_was_asked_and_reports_no_more() {
    let wire = wire();
    let (mut ours, theirs) = connected(&wire);
    let mut entries = [PollSocket { socket: theirs.id(), interest: Ready::IN, ready: Ready::NONE }];
    let silent = wire.right.poll(&mut entries, Some(Duration::from_millis(1)));
    ours.write_all(b"x").unwrap();
    let ready = wire.right.poll(&mut entries, None);
    assert_eq!((silent, ready, entries[0].ready), (0, 1, Ready::IN));
}

#[test]
fn closed_socket_is_known_no_more() {
    let wire = wire();
    let id = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    wire.left.call(|sockets, cx| sockets.close(id, cx)).unwrap();
    assert_eq!(wire.left.call(|sockets, cx| sockets.close(id, cx)), Err(Errno::EBADF));
    let again = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    assert_ne!(again, id);
}

#[test]
fn connections_that_come_and_go_leave_no_socket_behind() {
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    for _ in 0..500 {
        let ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        drop((ours, theirs));
    }
    wire.settle();
    let open = |stack: &sockets::Stack| stack.call(|sockets, _| sockets.len());
    assert_eq!([open(&wire.left), open(&wire.right)], [0, 1]);
}
