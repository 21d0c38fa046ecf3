//! Options by which a socket waits, drops or ends otherwise: `TCP_DEFER_ACCEPT`,
//! `TCP_NOTSENT_LOWAT`, `IP_MINTTL`, `connect` to `AF_UNSPEC`, and what is read after the end.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::io::IoSlice;

use common::{Wire, at, wire};
use sockets::{EpollEvent, Errno, Interest, Kind, Ready, SendFlags, Shutdown, SocketId, Sockets, Stack};
use wirepath::time::Duration;

const IP: i32 = 0;
const SOCKET: i32 = 1;
const TCP: i32 = 6;
const SO_RCVLOWAT: i32 = 18;
const IP_TTL: i32 = 2;
const IP_MTU_DISCOVER: i32 = 10;
const IP_MINTTL: i32 = 21;
const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
const TCP_NODELAY: i32 = 1;
const TCP_DEFER_ACCEPT: i32 = 9;
const TCP_INFO: i32 = 11;
const TCP_NOTSENT_LOWAT: i32 = 25;

fn socket(stack: &Stack, kind: Kind) -> SocketId {
    stack.call(|sockets, _| sockets.socket(kind)).unwrap()
}

fn set(stack: &Stack, id: SocketId, level: i32, name: i32, value: i32) {
    stack.call(|sockets, cx| sockets.setsockopt(id, level, name, &value.to_ne_bytes(), cx)).unwrap();
}

fn info(stack: &Stack, id: SocketId) -> [u8; 248] {
    let mut out = [0; 248];
    stack.call(|sockets, cx| sockets.getsockopt(id, TCP, TCP_INFO, &mut out, cx)).unwrap();
    out
}

fn ready(stack: &Stack, id: SocketId) -> Ready {
    stack.call(|sockets, _| sockets.ready(id)).unwrap()
}

fn listener(wire: &Wire, deferred: i32) -> SocketId {
    let listener = socket(&wire.right, Kind::Stream);
    wire.right.call(|sockets, cx| sockets.bind(listener, at(2, 80), cx)).unwrap();
    set(&wire.right, listener, TCP, TCP_DEFER_ACCEPT, deferred);
    wire.right.call(|sockets, cx| sockets.listen(listener, 8, cx)).unwrap();
    listener
}

fn call(wire: &Wire) -> SocketId {
    let ours = socket(&wire.left, Kind::Stream);
    let _ = wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 80), cx));
    wire.settle();
    wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 80), cx)).unwrap();
    ours
}

fn accept(wire: &Wire, listener: SocketId) -> Result<SocketId, Errno> {
    wire.right.call(|sockets, _| sockets.accept(listener)).map(|(id, _)| id)
}

#[test]
fn deferred_connection_can_be_accepted_with_its_first_byte() {
    let wire = wire();
    let listener = listener(&wire, 30);
    let ours = call(&wire);
    assert_eq!((accept(&wire, listener), ready(&wire.right, listener)), (Err(Errno::EAGAIN), Ready::NONE));
    wire.left.call(|sockets, cx| sockets.send(ours, b"x", cx)).unwrap();
    wire.settle();
    let theirs = accept(&wire, listener).unwrap();
    assert_eq!(wire.right.call(|sockets, cx| sockets.recv(theirs, &mut [0; 2], cx)), Ok(1));
}

#[test]
fn deferred_connection_without_a_byte_can_be_accepted_after_its_time() {
    let wire = wire();
    let listener = listener(&wire, 3);
    call(&wire);
    wire.clock.advance(Duration::from_millis(2_500));
    wire.settle();
    assert_eq!(accept(&wire, listener), Err(Errno::EAGAIN));
    wire.clock.advance(Duration::from_millis(600));
    wire.settle();
    accept(&wire, listener).unwrap();
}

#[test]
fn deferred_connection_that_ends_can_be_accepted() {
    let wire = wire();
    let listener = listener(&wire, 30);
    let ours = call(&wire);
    wire.left.call(|sockets, cx| sockets.shutdown(ours, Shutdown::Write, cx)).unwrap();
    wire.settle();
    accept(&wire, listener).unwrap();
}

#[test]
fn listener_that_closes_resets_deferred_connections() {
    let wire = wire();
    let listener = listener(&wire, 30);
    let ours = call(&wire);
    wire.right.call(|sockets, cx| sockets.close(listener, cx)).unwrap();
    wire.settle();
    assert_eq!(wire.left.call(|sockets, _| sockets.take_error(ours)), Ok(Some(Errno::ECONNRESET)));
    assert!(wire.right.call(|sockets, _| sockets.is_empty()));
}

#[test]
fn turn_looks_at_a_few_of_many_throttled_streams_and_the_next_at_others() {
    let wire = wire();
    let listener = listener(&wire, 0);
    let connected = |_| {
        let ours = call(&wire);
        accept(&wire, listener).unwrap();
        ours
    };
    let ours: Vec<SocketId> = (0..40).map(connected).collect();
    for id in &ours {
        set(&wire.left, *id, TCP, TCP_NOTSENT_LOWAT, 1_000);
        while wire.left.call(|sockets, cx| sockets.send(*id, &[7; 10_000], cx)).is_ok() {}
    }
    ours.iter().for_each(|id| set(&wire.left, *id, TCP, TCP_NOTSENT_LOWAT, 0));
    let writable = || ours.iter().filter(|id| ready(&wire.left, **id).has(Ready::OUT)).count();
    let mut counts = vec![writable()];
    for _ in 0..3 {
        wire.left.turn();
        counts.push(writable());
    }
    assert_eq!(counts, [0, 16, 32, 40]);
}

#[test]
fn corked_bytes_above_the_low_water_do_not_keep_the_send_out_that_has_them_leave() {
    let wire = wire();
    let listener = listener(&wire, 0);
    let ours = call(&wire);
    let theirs = accept(&wire, listener).unwrap();
    set(&wire.left, ours, TCP, TCP_NOTSENT_LOWAT, 100);
    let more = SendFlags { more: true, ..SendFlags::default() };
    let send = |len, flags| {
        let bytes = vec![7; len];
        wire.left.call(|sockets, cx| sockets.send_parts(ours, &[IoSlice::new(&bytes)], None, flags, cx))
    };
    assert_eq!(send(200, more), Ok(200));
    assert_eq!(send(10, SendFlags::default()), Ok(10));
    wire.settle();
    assert_eq!(wire.right.call(|sockets, _| sockets.readable_len(theirs)), Ok(210));
}

#[test]
fn stack_does_not_sleep_before_it_has_looked_at_each_throttled_stream() {
    let wire = wire();
    let listener = listener(&wire, 0);
    let connected = |_| {
        let ours = call(&wire);
        accept(&wire, listener).unwrap();
        ours
    };
    let ours: Vec<SocketId> = (0..20).map(connected).collect();
    for id in &ours {
        set(&wire.left, *id, TCP, TCP_NOTSENT_LOWAT, 1_000);
        while wire.left.call(|sockets, cx| sockets.send(*id, &[7; 10_000], cx)).is_ok() {}
    }
    let turns_before_sleep =
        || (0..100).take_while(|_| wire.left.sleep_until(None).is_none() && wire.left.turn() == 0).count();
    turns_before_sleep();
    ours.iter().for_each(|id| set(&wire.left, *id, TCP, TCP_NOTSENT_LOWAT, 0));
    assert_eq!(turns_before_sleep(), 2);
    assert!(ours.iter().all(|id| ready(&wire.left, *id).has(Ready::OUT)));
}

#[test]
fn low_water_of_a_byte_leaves_segments_whole() {
    let wire = wire();
    let listener = listener(&wire, 0);
    let ours = call(&wire);
    let theirs = accept(&wire, listener).unwrap();
    set(&wire.left, ours, TCP, TCP_NOTSENT_LOWAT, 1);
    assert_eq!(wire.left.call(|sockets, cx| sockets.send(ours, &[7; 1_000], cx)), Ok(1_000));
    // No acknowledgment of a first small segment has come.
    for host in [&wire.left, &wire.right] {
        host.turn();
    }
    assert_eq!(wire.right.call(|sockets, cx| sockets.recv(theirs, &mut [0; 2_000], cx)), Ok(1_000));
}

#[test]
fn stream_takes_its_low_water_of_unsent_bytes_and_few_more_and_wakes_below_half() {
    const LOW_WATER: usize = 10_000;
    let wire = wire();
    let listener = listener(&wire, 0);
    let ours = call(&wire);
    let theirs = accept(&wire, listener).unwrap();
    set(&wire.left, ours, TCP, TCP_NOTSENT_LOWAT, LOW_WATER as i32);
    let set_of = wire.left.call(|sockets, _| sockets.epoll_create());
    let interest = Interest { ready: Ready::OUT, ..Interest::default() };
    wire.left.call(|sockets, _| sockets.epoll_add(set_of, ours, 3, interest)).unwrap();
    let send = || wire.left.call(|sockets, cx| sockets.send(ours, &[7; 100_000], cx));
    let mut sent = 0;
    while let Ok(count) = send() {
        sent += count;
    }
    assert_eq!(send(), Err(Errno::EAGAIN));
    let unsent = u32::from_ne_bytes(info(&wire.left, ours)[144..148].try_into().unwrap());
    let few = LOW_WATER..LOW_WATER + 4 * 1_460;
    assert!(sent < 100_000 && few.contains(&(unsent as usize)), "{sent} sent, {unsent} not");
    let mut events = [EpollEvent { ready: Ready::NONE, data: 0 }; 2];
    assert_eq!(wire.left.call(|sockets, _| sockets.epoll_wait(set_of, &mut events)), Ok(0));
    let mut got = 0;
    while got < sent {
        wire.settle();
        got += wire.right.call(|sockets, cx| sockets.recv(theirs, &mut [0; 100_000], cx)).unwrap_or(0);
    }
    wire.settle();
    assert!(ready(&wire.left, ours).has(Ready::OUT));
    assert_eq!(wire.left.call(|sockets, _| sockets.epoll_wait(set_of, &mut events)), Ok(1));
    assert!(send().is_ok());
}

#[test]
fn low_water_above_what_the_buffer_holds_is_readable() {
    const LOW_WATER: usize = 4_096;
    let wire = wire();
    let listener = listener(&wire, 0);
    let ours = call(&wire);
    let theirs = accept(&wire, listener).unwrap();
    set(&wire.right, theirs, SOCKET, SO_RCVLOWAT, LOW_WATER as i32);
    set(&wire.left, ours, TCP, TCP_NODELAY, 1);
    let send = |segments: usize| {
        for _ in 0..segments {
            wire.left.call(|sockets, cx| sockets.send(ours, &[7; 20], cx)).unwrap();
            wire.settle();
        }
    };
    send(100);
    assert!(!ready(&wire.right, theirs).has(Ready::IN));
    send(50);
    let len = wire.right.call(|sockets, _| sockets.readable_len(theirs)).unwrap();
    assert!(len < LOW_WATER && ready(&wire.right, theirs).has(Ready::IN), "{len} bytes");
}

#[test]
fn datagram_with_less_than_the_least_ttl_is_dropped_and_counted() {
    let wire = wire();
    let (ours, theirs) = (socket(&wire.left, Kind::Datagram), socket(&wire.right, Kind::Datagram));
    wire.right.call(|sockets, cx| sockets.bind(theirs, at(2, 9_000), cx)).unwrap();
    set(&wire.right, theirs, IP, IP_MINTTL, 255);
    for (ttl, payload) in [(254, b"far "), (255, b"near")] {
        set(&wire.left, ours, IP, IP_TTL, ttl);
        wire.left.call(|sockets, cx| sockets.send_to(ours, payload, at(2, 9_000), cx)).unwrap();
        wire.settle();
    }
    let mut into = [0; 8];
    assert_eq!(wire.right.call(|sockets, _| sockets.recv_from(theirs, &mut into)).unwrap().0, 4);
    assert_eq!(&into[..4], b"near");
    assert_eq!(wire.right.call(|sockets, _| sockets.recv_from(theirs, &mut into)).err(), Some(Errno::EAGAIN));
    assert_eq!(wire.right.call(|sockets, _| sockets.below_ttl_min(theirs)), Ok(1));
}

#[test]
fn datagram_above_the_mtu_leaves_in_fragments_or_not_at_all_as_mtu_discover_says() {
    let wire = wire();
    let (ours, theirs) = (socket(&wire.left, Kind::Datagram), socket(&wire.right, Kind::Datagram));
    wire.right.call(|sockets, cx| sockets.bind(theirs, at(2, 9_000), cx)).unwrap();
    let send = |len| wire.left.call(|sockets, cx| sockets.send_to(ours, &vec![0; len], at(2, 9_000), cx));
    send(1).unwrap();
    wire.settle();
    let (fragments, refused) = (Ok(1_473), Err(Errno::EMSGSIZE));
    for (mode, sent) in [fragments, fragments, refused, refused, refused, fragments].into_iter().enumerate() {
        set(&wire.left, ours, IP, IP_MTU_DISCOVER, mode as i32);
        assert_eq!((send(1_472), send(1_473)), (Ok(1_472), sent), "{mode}");
    }
    let set_mode = |kind, mode: i32| {
        let id = socket(&wire.left, kind);
        wire.left.call(|sockets, cx| sockets.setsockopt(id, IP, IP_MTU_DISCOVER, &mode.to_ne_bytes(), cx))
    };
    assert_eq!((set_mode(Kind::Datagram, 6), set_mode(Kind::Datagram, -1)), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
    assert_eq!((set_mode(Kind::Stream, 2), set_mode(Kind::Stream, 4)), (Ok(()), Err(Errno::ENOPROTOOPT)));
}

#[test]
fn datagram_socket_that_binds_no_port_gets_one_with_its_peer() {
    let wire = wire();
    let ours = socket(&wire.left, Kind::Datagram);
    set(&wire.left, ours, IP, IP_BIND_ADDRESS_NO_PORT, 1);
    wire.left.call(|sockets, cx| sockets.bind(ours, at(1, 0), cx)).unwrap();
    assert_eq!(wire.left.call(|sockets, _| sockets.local_addr(ours)), Ok(at(1, 0)));
    wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 9_000), cx)).unwrap();
    let local = wire.left.call(|sockets, _| sockets.local_addr(ours)).unwrap();
    assert!(*local.ip() == *at(1, 0).ip() && local.port() != 0, "{local}");
}

#[test]
fn dissolved_connection_is_reset_and_its_socket_connects_again() {
    let wire = wire();
    let listener = listener(&wire, 0);
    let ours = call(&wire);
    let theirs = accept(&wire, listener).unwrap();
    wire.left.call(|sockets, cx| sockets.disconnect(ours, cx)).unwrap();
    wire.settle();
    assert_eq!(wire.right.call(|sockets, _| sockets.take_error(theirs)), Ok(Some(Errno::ECONNRESET)));
    // As on Linux, `tcp_disconnect`.
    assert_eq!(wire.left.call(|sockets, _| sockets.take_error(ours)), Ok(Some(Errno::ECONNRESET)));
    assert_eq!(wire.left.call(|sockets, _| sockets.peer_addr(ours)), Err(Errno::ENOTCONN));
    let _ = wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 80), cx));
    wire.settle();
    assert_eq!(wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 80), cx)), Ok(()));
    accept(&wire, listener).unwrap();
}

#[test]
fn dissolved_listener_refuses_and_can_listen_again() {
    let wire = wire();
    let listener = listener(&wire, 0);
    wire.right.call(|sockets, cx| sockets.disconnect(listener, cx)).unwrap();
    let ours = socket(&wire.left, Kind::Stream);
    let _ = wire.left.call(|sockets, cx| sockets.connect(ours, at(2, 80), cx));
    wire.settle();
    assert_eq!(wire.left.call(|sockets, _| sockets.take_error(ours)), Ok(Some(Errno::ECONNREFUSED)));
    wire.right.call(|sockets, cx| sockets.listen(listener, 8, cx)).unwrap();
    call(&wire);
    accept(&wire, listener).unwrap();
}

#[test]
fn connection_that_has_ended_still_has_its_figures() {
    let wire = wire();
    let listener = listener(&wire, 0);
    let ours = call(&wire);
    let theirs = accept(&wire, listener).unwrap();
    wire.left.call(|sockets, cx| sockets.send(ours, b"four", cx)).unwrap();
    wire.settle();
    wire.right.call(|sockets, cx| sockets.close(theirs, cx)).unwrap();
    wire.settle();
    let info = info(&wire.left, ours);
    const CLOSE: u8 = 7;
    assert_eq!((info[0], u64::from_ne_bytes(info[120..128].try_into().unwrap())), (CLOSE, 4));
}

#[test]
fn connection_shows_the_mtu_of_its_path_and_its_receive_window() {
    let wire = wire();
    let listener = listener(&wire, 0);
    let ours = call(&wire);
    accept(&wire, listener).unwrap();
    let info = info(&wire.left, ours);
    let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
    let [ato_us, snd_mss, pmtu, rcv_ssthresh, rcv_space, rcv_wnd] = [12, 16, 60, 64, 96, 232].map(word);
    const TIMESTAMPS: u8 = 1;
    let options_len = if info[5] & TIMESTAMPS != 0 { 12 } else { 0 };
    assert_eq!((ato_us, pmtu), (40_000, snd_mss + options_len + 40));
    assert!(rcv_wnd > 0 && [rcv_ssthresh, rcv_space] == [rcv_wnd; 2], "{rcv_ssthresh} {rcv_space} {rcv_wnd}");
}

#[test]
fn connection_that_is_not_to_wait_for_its_peers_end_is_reset() {
    const TCP_LINGER2: i32 = 8;
    for (linger, error) in [(0, None), (-1, Some(Errno::ECONNRESET))] {
        let wire = wire();
        let listener = listener(&wire, 0);
        let ours = call(&wire);
        let theirs = accept(&wire, listener).unwrap();
        set(&wire.left, ours, TCP, TCP_LINGER2, linger);
        wire.left.call(|sockets, cx| sockets.shutdown(ours, Shutdown::Write, cx)).unwrap();
        wire.settle();
        wire.left.call(|sockets, cx| sockets.close(ours, cx)).unwrap();
        wire.settle();
        let got = wire.right.call(|sockets, _| sockets.take_error(theirs)).unwrap();
        // A socket that has read the peer's end gets the error of a write.
        assert_eq!(got.is_some(), error.is_some(), "{linger}: {got:?}");
    }
}

#[test]
fn option_of_a_standing_listener_is_that_of_its_next_connections() {
    let wire = wire();
    let listener = listener(&wire, 0);
    set(&wire.right, listener, IP, IP_TTL, 7);
    call(&wire);
    let theirs = accept(&wire, listener).unwrap();
    let mut out = [0; 4];
    wire.right.call(|sockets, cx| sockets.getsockopt(theirs, IP, IP_TTL, &mut out, cx)).unwrap();
    assert_eq!(i32::from_ne_bytes(out), 7);
}

#[test]
fn second_name_of_input_and_output_is_reported_to_who_asks_by_it() {
    let wire = wire();
    let id = socket(&wire.left, Kind::Datagram);
    let set = wire.left.call(|sockets, _| sockets.epoll_create());
    let interest = Interest { ready: Ready::RDNORM | Ready::WRNORM, ..Interest::default() };
    wire.left.call(|sockets, _| sockets.epoll_add(set, id, 3, interest)).unwrap();
    let mut events = [EpollEvent { ready: Ready::NONE, data: 0 }; 2];
    assert_eq!(wire.left.call(|sockets, _| sockets.epoll_wait(set, &mut events)), Ok(1));
    assert_eq!(events[0].ready, Ready::WRNORM);
}

#[test]
fn has_option_says_which_numbers_are_taken() {
    let wire = wire();
    for kind in [Kind::Stream, Kind::Datagram] {
        let id = socket(&wire.left, kind);
        for (level, name) in [1, IP, TCP, 17].into_iter().flat_map(|level| (0..110).map(move |name| (level, name))) {
            let set = wire.left.call(|sockets, cx| sockets.setsockopt(id, level, name, &[0; 4], cx));
            let got = wire.left.call(|sockets, cx| sockets.getsockopt(id, level, name, &mut [0; 8], cx));
            let is_taken =
                set != Err(Errno::ENOPROTOOPT) || !matches!(got, Err(Errno::ENOPROTOOPT | Errno::EOPNOTSUPP));
            assert_eq!(Sockets::has_option(kind, level, name), is_taken, "{kind:?} {level} {name}");
        }
    }
}

#[test]
fn timer_that_ends_a_connection_moves_its_socket_without_a_frame() {
    const TCP_USER_TIMEOUT: i32 = 18;
    let wire = wire();
    listener(&wire, 0);
    let ours = call(&wire);
    set(&wire.left, ours, TCP, TCP_USER_TIMEOUT, 1_000);
    wire.left.call(|sockets, cx| sockets.send(ours, b"unanswered", cx)).unwrap();
    let moves = || {
        wire.left.turn();
        wire.left.call(|sockets, _| sockets.take_moved())
    };
    moves();
    assert!(!moves(), "nothing has happened");
    // The peer takes no turn, and hears nothing.
    while wire.left.call(|sockets, _| sockets.take_error(ours)) == Ok(None) {
        wire.clock.advance(Duration::from_millis(100));
        if moves() {
            assert_eq!(wire.left.call(|sockets, _| sockets.take_error(ours)), Ok(Some(Errno::ETIMEDOUT)));
            return;
        }
    }
    panic!("it ended, and nobody would have been woken");
}
