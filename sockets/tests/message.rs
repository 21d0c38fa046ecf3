//! Bytes in several parts, flags of calls, data that waits for more, and groups of other sockets.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};

use common::{Wire, at, wire};
use sockets::{EpollEvent, Errno, Interest, Kind, PollSocket, Ready, RecvFlags, SendFlags, Shutdown, SocketId, Stack};
use wirepath::mem::Mbuf;
use wirepath::proto::InterfaceId;
use wirepath::time::Duration;

const MORE: SendFlags = SendFlags { more: true, zerocopy: false, resumes: false };
const LAST: SendFlags = SendFlags { more: false, zerocopy: false, resumes: false };
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);

/// A connection: the end at the left host, and that at the right.
fn connected(wire: &Wire) -> (SocketId, SocketId) {
    let listener = wire.right.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    wire.right.call(|sockets, cx| sockets.bind(listener, at(2, 80), cx)).unwrap();
    wire.right.call(|sockets, cx| sockets.listen(listener, 8, cx)).unwrap();
    let ours = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let _ = wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 80), cx));
    wire.settle();
    wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 80), cx)).unwrap();
    let (theirs, _) = wire.right.call(|sockets, _| sockets.accept(listener)).unwrap();
    (ours, theirs)
}

fn datagrams(stack: &Stack, local: SocketAddrV4) -> SocketId {
    let id = stack.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
    set(stack, id, 1, 2, 1);
    stack.call(|sockets, cx| sockets.bind(id, local, cx)).unwrap();
    id
}

fn set(stack: &Stack, id: SocketId, level: i32, name: i32, value: i32) {
    stack.call(|sockets, cx| sockets.setsockopt(id, level, name, &value.to_ne_bytes(), cx)).unwrap();
}

fn send(
    stack: &Stack,
    id: SocketId,
    parts: &[&[u8]],
    to: Option<SocketAddrV4>,
    flags: SendFlags,
) -> Result<usize, Errno> {
    let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    stack.call(|sockets, cx| sockets.send_parts(id, &parts, to, flags, cx))
}

fn recv(stack: &Stack, id: SocketId, flags: RecvFlags, lens: &[usize]) -> Result<(usize, Vec<u8>), Errno> {
    let mut into: Vec<_> = lens.iter().map(|len| vec![0; *len]).collect();
    let mut parts: Vec<_> = into.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    let (count, _) = stack.call(|sockets, cx| sockets.recv_parts(id, &mut parts, flags, cx))?;
    Ok((count, into.concat()))
}

fn all(stack: &Stack, id: SocketId) -> Vec<u8> {
    match recv(stack, id, RecvFlags::default(), &[100_000]) {
        Ok((count, bytes)) => bytes[..count].to_vec(),
        Err(Errno::EAGAIN) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// Segments that the peer has taken.
fn segments_in(stack: &Stack, id: SocketId) -> u32 {
    let mut info = [0; 248];
    stack.call(|sockets, cx| sockets.getsockopt(id, 6, 11, &mut info, cx)).unwrap();
    u32::from_ne_bytes(info[140..144].try_into().unwrap())
}

#[test]
fn parts_of_a_stream_share_segments_and_arrive_in_order() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    set(&wire.left, ours, 6, 1, 1);
    let before = segments_in(&wire.right, theirs);
    assert_eq!(send(&wire.left, ours, &[b"GET", b"", b" / ", b"HTTP"], None, LAST), Ok(10));
    wire.settle();
    assert_eq!(segments_in(&wire.right, theirs) - before, 1, "each part was a segment");
    assert_eq!(all(&wire.right, theirs), b"GET / HTTP");
    let body: Vec<u8> = (0..20_000u32).map(|byte| byte as u8).collect();
    assert_eq!(send(&wire.left, ours, &[b"head", &body, b"tail"], None, LAST), Ok(20_008));
    wire.settle();
    assert_eq!(all(&wire.right, theirs), [b"head", &body[..], b"tail"].concat());
}

#[test]
fn parts_beyond_the_send_buffer_are_taken_as_far_as_there_is_room() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    set(&wire.left, ours, 1, 7, 10_000);
    let part: Vec<u8> = (0..7_001u32).map(|byte| byte as u8).collect();
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    let whole = [b"ab", &part[..], &part, &part, b"z"].concat();
    for _ in 0..200 {
        let rest = &whole[sent.len()..];
        let (one, other) = rest.split_at(rest.len() / 3);
        match send(&wire.left, ours, &[one, other], None, LAST) {
            Ok(count) => sent.extend_from_slice(&rest[..count]),
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        wire.settle();
        got.extend(all(&wire.right, theirs));
        if sent.len() == whole.len() {
            break;
        }
    }
    wire.settle();
    got.extend(all(&wire.right, theirs));
    assert_eq!(got, whole);
}

#[test]
fn stream_reads_into_parts_leaves_what_is_peeked_and_throws_away_what_is_truncated() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    send(&wire.left, ours, &[b"0123456789"], None, LAST).unwrap();
    wire.settle();
    let [peek, truncate] = [(true, false), (false, true)].map(|(peek, truncate)| RecvFlags { peek, truncate });
    assert_eq!(recv(&wire.right, theirs, peek, &[3, 0, 4]), Ok((7, b"0123456".to_vec())));
    let both = RecvFlags { peek: true, truncate: true };
    assert_eq!(recv(&wire.right, theirs, both, &[4]), Ok((4, vec![0; 4])));
    assert_eq!(recv(&wire.right, theirs, truncate, &[1, 2]), Ok((3, vec![0; 3])));
    assert_eq!(recv(&wire.right, theirs, peek, &[2, 9]), Ok((7, b"3456789\0\0\0\0".to_vec())));
    assert_eq!(recv(&wire.right, theirs, RecvFlags::default(), &[2, 9]), Ok((7, b"3456789\0\0\0\0".to_vec())));
    assert_eq!(recv(&wire.right, theirs, truncate, &[2]), Err(Errno::EAGAIN));
}

#[test]
fn stream_with_more_to_come_waits_for_it_200_ms_at_most() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    set(&wire.left, ours, 6, 1, 1);
    send(&wire.left, ours, &[b"head"], None, MORE).unwrap();
    wire.settle();
    assert_eq!(all(&wire.right, theirs), b"");
    let queued = wire.left.call(|sockets, cx| sockets.unsent_len(ours, cx));
    assert_eq!(queued, Ok(4));
    send(&wire.left, ours, &[b"body"], None, LAST).unwrap();
    wire.settle();
    assert_eq!(all(&wire.right, theirs), b"headbody");

    send(&wire.left, ours, &[b"alone"], None, MORE).unwrap();
    wire.clock.advance(Duration::from_millis(190));
    wire.settle();
    assert_eq!(all(&wire.right, theirs), b"");
    wire.clock.advance(Duration::from_millis(20));
    wire.settle();
    assert_eq!(all(&wire.right, theirs), b"alone");
    assert_eq!(wire.left.call(|sockets, cx| sockets.unsent_len(ours, cx)), Ok(0));
}

#[test]
fn corked_stream_sends_whole_segments_and_the_rest_when_it_is_uncorked_or_ended() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    set(&wire.left, ours, 6, 3, 1);
    wire.left.call(|sockets, cx| sockets.send(ours, &[1; 2_000], cx)).unwrap();
    wire.settle();
    assert_eq!(all(&wire.right, theirs).len(), 1_448);
    set(&wire.left, ours, 6, 3, 0);
    wire.settle();
    assert_eq!(all(&wire.right, theirs).len(), 552);
    set(&wire.left, ours, 6, 3, 1);
    wire.left.call(|sockets, cx| sockets.send(ours, b"last", cx)).unwrap();
    wire.left.call(|sockets, cx| sockets.shutdown(ours, Shutdown::Write, cx)).unwrap();
    wire.settle();
    assert_eq!(all(&wire.right, theirs), b"last");
    assert_eq!(recv(&wire.right, theirs, RecvFlags::default(), &[9]).unwrap().0, 0, "the end follows");
}

#[test]
fn corked_bytes_leave_at_once_when_nodelay_is_set() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    for (corks, flags) in [(0, MORE), (1, LAST)] {
        set(&wire.left, ours, 6, 3, corks);
        set(&wire.left, ours, 6, 1, 0);
        send(&wire.left, ours, &[b"order"], None, flags).unwrap();
        wire.settle();
        assert_eq!(all(&wire.right, theirs), b"");
        set(&wire.left, ours, 6, 1, 1);
        wire.right.turn();
        assert_eq!(all(&wire.right, theirs), b"order", "no time has passed");
    }
}

/// The same if the send buffer has no room for the bytes.
#[test]
fn corked_bytes_are_not_lost_by_close() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    set(&wire.left, ours, 1, 7, 5_000);
    set(&wire.left, ours, 6, 3, 1);
    let mut taken = 0;
    while let Ok(count) = wire.left.call(|sockets, cx| sockets.send(ours, &[3; 700], cx)) {
        taken += count;
    }
    assert!(taken >= 9_000, "{taken}");
    wire.left.call(|sockets, cx| sockets.close(ours, cx)).unwrap();
    let mut got = 0;
    for _ in 0..50 {
        wire.settle();
        got += all(&wire.right, theirs).len();
    }
    assert_eq!(got, taken);
}

#[test]
fn corked_bytes_leave_with_the_room_that_comes_after_their_time() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    set(&wire.left, ours, 1, 7, 5_000);
    set(&wire.left, ours, 6, 3, 1);
    let mut taken = 0;
    while let Ok(count @ 700) = wire.left.call(|sockets, cx| sockets.send(ours, &[3; 700], cx)) {
        taken += count;
    }
    let last = wire.left.call(|sockets, cx| sockets.send(ours, &[3; 700], cx)).unwrap_or(0);
    taken += last;
    let mut got = 0;
    for _ in 0..50 {
        wire.clock.advance(Duration::from_millis(250));
        wire.settle();
        got += all(&wire.right, theirs).len();
    }
    assert_eq!(got, taken);
}

#[test]
fn handshake_that_was_given_up_is_not_begun_again_by_who_waits_for_it() {
    let wire = wire();
    let ours = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let begun = wire.left.call(|sockets, cx| sockets.connect(ours, at(9, 80), cx));
    assert_eq!(begun, Err(Errno::EINPROGRESS));
    assert_eq!(wire.left.call(|sockets, cx| sockets.connected(ours, at(9, 80), cx)), Err(Errno::EALREADY));
    wire.left.call(|sockets, cx| sockets.shutdown(ours, Shutdown::Both, cx)).unwrap();
    let waited = wire.left.call(|sockets, cx| sockets.connected(ours, at(9, 80), cx));
    assert_eq!(waited, Err(Errno::ECONNRESET));
}

#[test]
fn timeout_of_a_stream_whose_peer_has_ended_is_reported_as_a_timeout() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    wire.right.call(|sockets, cx| sockets.shutdown(theirs, Shutdown::Write, cx)).unwrap();
    wire.settle();
    assert_eq!(recv(&wire.left, ours, RecvFlags::default(), &[9]).unwrap().0, 0);
    // TCP_USER_TIMEOUT.
    set(&wire.left, ours, 6, 18, 1_000);
    wire.left.call(|sockets, cx| sockets.send(ours, b"lost", cx)).unwrap();
    for _ in 0..100 {
        wire.clock.advance(Duration::from_millis(100));
        wire.left.turn();
    }
    assert_eq!(wire.left.call(|sockets, _| sockets.take_error(ours)), Ok(Some(Errno::ETIMEDOUT)));
}

#[test]
fn poll_reports_readiness_by_its_second_name() {
    let wire = wire();
    let (ours, theirs) = (datagrams(&wire.left, at(1, 0)), datagrams(&wire.right, at(2, 53)));
    wire.left.call(|sockets, cx| sockets.send_to(ours, b"x", at(2, 53), cx)).unwrap();
    wire.settle();
    let mut entries = [PollSocket { socket: theirs, interest: Ready::RDNORM, ready: Ready::NONE }];
    assert_eq!(wire.right.poll(&mut entries, Some(Duration::from_millis(1))), 1);
    assert_eq!(entries[0].ready, Ready::RDNORM);
}

/// All packet buffers of a host.
fn take_buffers(stack: &Stack) -> Vec<Mbuf> {
    stack.call(|_, cx| std::iter::from_fn(|| cx.pool.alloc()).collect())
}

fn give_back(wire: &Wire, buffers: Vec<Mbuf>) {
    buffers.into_iter().for_each(Mbuf::free);
    wire.clock.advance(Duration::from_millis(5));
    wire.settle();
}

#[test]
fn corked_bytes_leave_before_the_end_if_there_was_no_packet_buffer() {
    for (shuts, closes) in [(true, false), (false, true), (true, true)] {
        let wire = wire();
        let (ours, theirs) = connected(&wire);
        send(&wire.left, ours, &[b"last"], None, MORE).unwrap();
        let buffers = take_buffers(&wire.left);
        if shuts {
            wire.left.call(|sockets, cx| sockets.shutdown(ours, Shutdown::Write, cx)).unwrap();
        }
        if closes {
            wire.left.call(|sockets, cx| sockets.close(ours, cx)).unwrap();
        }
        wire.settle();
        assert_eq!(recv(&wire.right, theirs, RecvFlags::default(), &[9]), Err(Errno::EAGAIN));
        give_back(&wire, buffers);
        assert_eq!(all(&wire.right, theirs), b"last", "{shuts} {closes}");
        assert_eq!(recv(&wire.right, theirs, RecvFlags::default(), &[9]).unwrap().0, 0, "the end follows");
        wire.right.call(|sockets, cx| sockets.close(theirs, cx)).unwrap();
        wire.settle();
        let left = wire.right.call(|_, cx| cx.tcp().len());
        assert_eq!((closes, left), (closes, 0));
    }
}

#[test]
fn peer_that_sends_to_a_closed_socket_whose_bytes_wait_is_reset() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    send(&wire.left, ours, &[b"last"], None, MORE).unwrap();
    let buffers = take_buffers(&wire.left);
    wire.left.call(|sockets, cx| sockets.close(ours, cx)).unwrap();
    send(&wire.right, theirs, &[b"late"], None, LAST).unwrap();
    wire.settle();
    give_back(&wire, buffers);
    assert_eq!(recv(&wire.right, theirs, RecvFlags::default(), &[9]), Err(Errno::ECONNRESET));
    assert_eq!(wire.left.call(|_, cx| cx.tcp().len()), 0);
}

#[test]
fn datagram_of_parts_and_with_more_to_come_is_one() {
    let wire = wire();
    let (ours, theirs) = (datagrams(&wire.left, at(1, 0)), datagrams(&wire.right, at(2, 53)));
    let to = Some(at(2, 53));
    assert_eq!(send(&wire.left, ours, &[b"one", b"", b"two"], to, LAST), Ok(6));
    assert_eq!(send(&wire.left, ours, &[b"three"], to, MORE), Ok(5));
    // Its destination is known by now.
    assert_eq!(send(&wire.left, ours, &[b"four"], None, MORE), Ok(4));
    assert_eq!(wire.left.call(|sockets, cx| sockets.send_to(ours, b"five", at(2, 53), cx)), Ok(4));
    set(&wire.left, ours, 17, 1, 1);
    assert_eq!(send(&wire.left, ours, &[b"six"], to, LAST), Ok(3));
    set(&wire.left, ours, 17, 1, 0);
    wire.settle();
    let truncate = RecvFlags { truncate: true, ..RecvFlags::default() };
    assert_eq!(recv(&wire.right, theirs, truncate, &[2, 2]), Ok((6, b"onet".to_vec())));
    assert_eq!(recv(&wire.right, theirs, RecvFlags::default(), &[20]).unwrap().0, 13);
    assert_eq!(recv(&wire.right, theirs, RecvFlags::default(), &[4]), Ok((3, b"six\0".to_vec())));
    assert_eq!(recv(&wire.right, theirs, RecvFlags::default(), &[4]), Err(Errno::EAGAIN));
    assert_eq!(send(&wire.left, ours, &[&[0; 60_000]], to, MORE), Ok(60_000));
    assert_eq!(send(&wire.left, ours, &[&[0; 6_000]], to, MORE), Err(Errno::EMSGSIZE));
}

/// The host's ring takes no frame: its frames wait for the other host, which does not poll.
fn fill_ring(stack: &Stack, id: SocketId, to: SocketAddrV4) {
    while stack.call(|sockets, cx| sockets.send_to(id, b"filler", to, cx)).is_ok() {}
}

#[test]
fn corked_datagram_that_found_no_room_and_is_given_up_is_not_sent_with_the_next() {
    let wire = wire();
    let [ours, filler] = [0; 2].map(|_| datagrams(&wire.left, at(1, 0)));
    let [first, second] = [53, 54].map(|port| datagrams(&wire.right, at(2, port)));
    send(&wire.left, ours, &[b"?"], Some(at(2, 53)), LAST).unwrap();
    wire.settle();
    assert_eq!(all(&wire.right, first), b"?");
    send(&wire.left, ours, &[b"head"], Some(at(2, 53)), MORE).unwrap();
    fill_ring(&wire.left, filler, at(2, 9));
    assert_eq!(send(&wire.left, ours, &[b"body"], None, LAST), Err(Errno::EAGAIN));
    wire.left.call(|sockets, _| sockets.give_up_datagram(ours)).unwrap();
    wire.settle();
    send(&wire.left, ours, &[b"next"], Some(at(2, 54)), LAST).unwrap();
    wire.settle();
    assert_eq!((all(&wire.right, first), all(&wire.right, second)), (Vec::new(), b"next".to_vec()));
}

#[test]
fn corked_datagram_that_found_no_room_leaves_whole_when_the_call_is_repeated() {
    let wire = wire();
    let [ours, filler] = [0; 2].map(|_| datagrams(&wire.left, at(1, 0)));
    let theirs = datagrams(&wire.right, at(2, 53));
    send(&wire.left, ours, &[b"?"], Some(at(2, 53)), LAST).unwrap();
    wire.settle();
    assert_eq!(all(&wire.right, theirs), b"?");
    let parts: [&[u8]; 2] = [b"head", b"body"];
    for uncorks in [false, true] {
        send(&wire.left, ours, &[parts[0]], Some(at(2, 53)), MORE).unwrap();
        let last = || match uncorks {
            false => send(&wire.left, ours, &[parts[1]], None, LAST).map(|_| ()),
            true => wire.left.call(|sockets, cx| sockets.setsockopt(ours, 17, 1, &0i32.to_ne_bytes(), cx)),
        };
        if uncorks {
            send(&wire.left, ours, &[parts[1]], None, MORE).unwrap();
        }
        fill_ring(&wire.left, filler, at(2, 9));
        assert_eq!([last(), last()], [Err(Errno::EAGAIN); 2]);
        wire.settle();
        last().unwrap();
        wire.settle();
        let got = [0; 2].map(|_| all(&wire.right, theirs));
        assert_eq!(got, [b"headbody".to_vec(), Vec::new()], "{uncorks}");
    }
    send(&wire.left, ours, &[b"one"], Some(at(2, 53)), MORE).unwrap();
    fill_ring(&wire.left, filler, at(2, 9));
    wire.left.call(|sockets, cx| sockets.setsockopt(ours, 17, 1, &0i32.to_ne_bytes(), cx)).unwrap_err();
    wire.settle();
    send(&wire.left, ours, &[b"two"], Some(at(2, 53)), LAST).unwrap();
    wire.settle();
    assert_eq!([0; 2].map(|_| all(&wire.right, theirs)), [b"one", b"two"]);
}

#[test]
fn corked_datagram_that_became_too_long_is_gone_with_its_destination() {
    let wire = wire();
    let ours = datagrams(&wire.left, at(1, 0));
    let [one, other] = [53, 54].map(|port| datagrams(&wire.right, at(2, port)));
    let too_long = [0; 65_508];
    assert_eq!(send(&wire.left, ours, &[&too_long], Some(at(2, 53)), MORE), Err(Errno::EMSGSIZE));
    assert_eq!(send(&wire.left, ours, &[b"order"], Some(at(2, 54)), LAST), Ok(5));
    assert_eq!(send(&wire.left, ours, &[b"head"], Some(at(2, 53)), MORE), Ok(4));
    assert_eq!(send(&wire.left, ours, &[&too_long[..65_504]], None, LAST), Err(Errno::EMSGSIZE));
    assert_eq!(send(&wire.left, ours, &[b"next"], Some(at(2, 54)), LAST), Ok(4));
    wire.settle();
    assert_eq!((all(&wire.right, one), all(&wire.right, other)), (Vec::new(), b"order".to_vec()));
    assert_eq!(all(&wire.right, other), b"next");
}

#[test]
fn dissolved_socket_hears_anybody_and_frees_the_port_that_connect_took() {
    let wire = wire();
    let ours = wire.left.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
    wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 53), cx)).unwrap();
    assert_ne!(wire.left.call(|sockets, _| sockets.local_addr(ours)).unwrap().port(), 0);
    wire.left.call(|sockets, cx| sockets.disconnect(ours, cx)).unwrap();
    assert_eq!(wire.left.call(|sockets, _| sockets.peer_addr(ours)), Err(Errno::ENOTCONN));
    assert_eq!(wire.left.call(|sockets, _| sockets.local_addr(ours)).unwrap().port(), 0);
    let bound = datagrams(&wire.left, at(1, 7_000));
    wire.left.call(|sockets, cx| sockets.connect(bound, at(2, 53), cx)).unwrap();
    wire.left.call(|sockets, cx| sockets.disconnect(bound, cx)).unwrap();
    assert_eq!(wire.left.call(|sockets, _| sockets.local_addr(bound)), Ok(at(1, 7_000)));
    let theirs = datagrams(&wire.right, at(2, 9_999));
    wire.right.call(|sockets, cx| sockets.send_to(theirs, b"x", at(1, 7_000), cx)).unwrap();
    wire.settle();
    assert_eq!(all(&wire.left, bound), b"x");
}

#[test]
fn socket_that_lingers_tells_when_its_peer_has_all() {
    let wire = wire();
    let (ours, theirs) = connected(&wire);
    let linger = [1i32, 5].map(i32::to_ne_bytes).concat();
    wire.left.call(|sockets, cx| sockets.setsockopt(ours, 1, 13, &linger, cx)).unwrap();
    send(&wire.left, ours, &[b"bye"], None, LAST).unwrap();
    let closing = wire.left.call(|sockets, cx| sockets.close_lingering(ours, cx)).unwrap().unwrap();
    assert!(wire.left.call(|sockets, cx| sockets.is_closing(closing, cx)));
    wire.settle();
    assert!(!wire.left.call(|sockets, cx| sockets.is_closing(closing, cx)));
    assert_eq!(all(&wire.right, theirs), b"bye");
    let other = wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    assert_eq!(wire.left.call(|sockets, cx| sockets.close_lingering(other, cx)), Ok(None));
}

fn any(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)
}

fn join(stack: &Stack, id: SocketId, group: Ipv4Addr, source: Option<Ipv4Addr>) {
    stack.call(|sockets, cx| sockets.join(id, group, InterfaceId::ANY, source, cx)).unwrap();
}

#[test]
fn group_reaches_sockets_of_its_port_that_did_not_join_it_unless_they_say_so() {
    let wire = wire();
    let member = datagrams(&wire.right, any(9_000));
    let other = datagrams(&wire.right, any(9_000));
    let bound = datagrams(&wire.right, SocketAddrV4::new(GROUP, 9_000));
    let alone = datagrams(&wire.right, any(9_000));
    set(&wire.right, alone, 0, 49, 0);
    let unicast = datagrams(&wire.right, at(2, 9_000));
    let sender = datagrams(&wire.left, at(1, 0));
    let to = SocketAddrV4::new(GROUP, 9_000);
    let heard = || {
        wire.left.call(|sockets, cx| sockets.send_to(sender, b"x", to, cx)).unwrap();
        wire.settle();
        [member, other, bound, alone, unicast].map(|id| all(&wire.right, id).len())
    };
    assert_eq!(heard(), [0; 5], "nobody joined");
    join(&wire.right, member, GROUP, None);
    assert_eq!(heard(), [1, 1, 1, 0, 0]);
    join(&wire.right, other, GROUP, Some(Ipv4Addr::new(198, 51, 100, 9)));
    assert_eq!(heard(), [1, 0, 1, 0, 0], "who joined for a source gets that source alone");
    set(&wire.right, alone, 0, 49, 1);
    assert_eq!(heard(), [1, 0, 1, 1, 0]);
    wire.right.call(|sockets, cx| sockets.close(member, cx)).unwrap();
    wire.left.call(|sockets, cx| sockets.send_to(sender, b"x", to, cx)).unwrap();
    wire.settle();
    assert_eq!([bound, alone].map(|id| all(&wire.right, id).len()), [0, 0], "from another source than is joined");
}

#[test]
fn own_datagrams_to_a_group_come_back_to_its_members_unless_the_loop_is_off() {
    let wire = wire();
    let (ours, member) = (datagrams(&wire.left, at(1, 0)), datagrams(&wire.left, any(9_000)));
    let theirs = datagrams(&wire.right, any(9_000));
    join(&wire.left, member, GROUP, None);
    join(&wire.right, theirs, GROUP, None);
    let send = || {
        let to = SocketAddrV4::new(GROUP, 9_000);
        wire.left.call(|sockets, cx| sockets.send_to(ours, b"xyz", to, cx)).unwrap();
        wire.settle();
        [all(&wire.left, member).len(), all(&wire.right, theirs).len()]
    };
    assert_eq!(send(), [3, 3]);
    set(&wire.left, ours, 0, 34, 0);
    assert_eq!(send(), [0, 3]);
    set(&wire.left, ours, 0, 34, 1);
    set(&wire.left, ours, 0, 33, 0);
    assert_eq!(send(), [3, 0], "a TTL of 0 does not leave the host");
}

#[test]
fn exclusive_sets_wake_one_sleeper() {
    let wire = wire();
    let theirs = datagrams(&wire.right, at(2, 53));
    let ours = datagrams(&wire.left, at(1, 0));
    let exclusive = Interest { ready: Ready::IN, exclusive: true, ..Interest::default() };
    let sets = [0; 3].map(|_| wire.right.call(|sockets, _| sockets.epoll_create()));
    let [one, two, plain] = sets;
    wire.right.call(|sockets, _| sockets.epoll_add(one, theirs, 1, exclusive)).unwrap();
    wire.right.call(|sockets, _| sockets.epoll_add(two, theirs, 1, exclusive)).unwrap();
    wire.right
        .call(|sockets, _| sockets.epoll_add(plain, theirs, 1, Interest { exclusive: false, ..exclusive }))
        .unwrap();
    assert_eq!(wire.right.call(|sockets, _| sockets.epoll_modify(one, theirs, 1, exclusive)), Err(Errno::EINVAL));
    let woken = || {
        let mut woken = Vec::new();
        wire.right.call(|sockets, _| sockets.take_woken(|set| woken.push(set)));
        woken.sort_unstable();
        woken
    };
    // Threads check their sets before they sleep.
    for set in sets {
        assert_eq!(wire.right.call(|sockets, _| sockets.epoll_ready(set)), Ok(false));
        wire.right.call(|sockets, _| sockets.epoll_sleeps(set, true)).unwrap();
    }
    woken();
    wire.left.call(|sockets, cx| sockets.send_to(ours, b"x", at(2, 53), cx)).unwrap();
    wire.settle();
    assert_eq!(woken(), [one, plain]);
    assert_eq!(woken(), [0; 0]);
    // The thread of the first set was woken already, and is awaited.
    wire.left.call(|sockets, cx| sockets.send_to(ours, b"x", at(2, 53), cx)).unwrap();
    wire.settle();
    assert_eq!(woken(), [one, two, plain]);
    // To look takes no event.
    let mut events = [EpollEvent { ready: Ready::NONE, data: 0 }; 4];
    for _ in 0..2 {
        assert_eq!(wire.right.call(|sockets, _| sockets.epoll_ready(one)), Ok(true));
    }
    assert_eq!(wire.right.call(|sockets, _| sockets.epoll_wait(one, &mut events)), Ok(1));
    // The first is awake and busy: the next datagram wakes the other.
    wire.right.call(|sockets, _| sockets.epoll_sleeps(one, false)).unwrap();
    wire.left.call(|sockets, cx| sockets.send_to(ours, b"x", at(2, 53), cx)).unwrap();
    wire.settle();
    assert_eq!(woken(), [one, two, plain]);
}
