//! The error queue and stamps: `SO_TIMESTAMP`, `SO_TIMESTAMPING`, `IP_RECVERR`, `MSG_ZEROCOPY`.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};

use common::{Wire, at, wire};
use sockets::net::{TcpListener, TcpStream, UdpSocket};
use sockets::{
    Errno, ErrorOrigin, MessageTimestamps, MtuDiscover, Options, QueuedError, Ready, RecvFlags, SendFlags, SocketId,
    Stack, TimestampResolution, Timestamping,
};
use wirepath::time::{Clock, Duration};

const SOL_SOCKET: i32 = 1;

fn change(stack: &Stack, id: SocketId, change: impl Fn(&mut Options)) {
    stack
        .call(|sockets, cx| {
            let mut options = sockets.options(id)?;
            change(&mut options);
            sockets.set_options(id, &options, cx)
        })
        .unwrap();
}

/// Sets `SO_TIMESTAMPING` by number.
fn stamp(stack: &Stack, id: SocketId, flags: Timestamping) -> Result<(), Errno> {
    stack.call(|sockets, cx| sockets.setsockopt(id, SOL_SOCKET, 37, &flags.0.to_ne_bytes(), cx))
}

fn next_error(stack: &Stack, id: SocketId) -> Result<QueuedError, Errno> {
    stack.call(|sockets, _| sockets.recv_error(id, &mut [])).map(|(_, entry)| entry)
}

/// All entries: kind of the stamp, its number, whether it has a software and a hardware time.
fn stamps(stack: &Stack, id: SocketId) -> Vec<(u32, u32, bool, bool)> {
    let entries = std::iter::from_fn(|| next_error(stack, id).ok());
    entries
        .inspect(|entry| assert_eq!((entry.errno, entry.origin), (Errno::ENOMSG, ErrorOrigin::Timestamping)))
        .map(|entry| (entry.info, entry.data, entry.times.software.is_some(), entry.times.hardware.is_some()))
        .collect()
}

fn ready(stack: &Stack, id: SocketId) -> Ready {
    stack.call(|sockets, _| sockets.ready(id)).unwrap()
}

/// Numbers of a control message's value.
fn longs(value: &[u8]) -> Vec<u64> {
    value.as_chunks::<8>().0.iter().map(|long| u64::from_ne_bytes(*long)).collect()
}

/// The control messages of the next datagram that report times.
fn times_of_next(wire: &Wire, server: &UdpSocket) -> Vec<(i32, i32, Vec<u64>)> {
    let client = UdpSocket::bind(&wire.left, at(1, 0)).unwrap();
    wire.clock.advance(Duration::from_millis(1_234));
    client.send_to(b"tick", at(2, 7)).unwrap();
    wire.settle();
    let (_, info) = server.recv_info(&mut [0; 8]).unwrap();
    let messages = wire.right.call(|sockets, _| sockets.time_messages(server.id(), Some(&info))).unwrap();
    messages.into_iter().map(|(level, kind, value)| (level, kind, longs(&value))).collect()
}

fn connected(wire: &Wire) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let client = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn datagram_is_stamped_with_the_time_of_its_turn() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    assert_eq!(times_of_next(&wire, &server), []);
    for (unit, kind, per_second) in
        [(TimestampResolution::Microseconds, 29, 1_000_000), (TimestampResolution::Nanoseconds, 35, 1_000_000_000)]
    {
        server.set_options(|options| options.ancillary.timestamp = Some(unit)).unwrap();
        let sent_after = wire.clock.clone().now() + Duration::from_millis(1_234);
        let told = times_of_next(&wire, &server);
        let [(SOL_SOCKET, found, time)] = &told[..] else { panic!("{told:?}") };
        let nanos = time[0] * 1_000_000_000 + time[1] * (1_000_000_000 / per_second);
        let read_at = wire.clock.clone().now().as_nanos();
        assert_eq!(*found, kind);
        assert!((sent_after.as_nanos()..read_at).contains(&nanos), "{nanos} within {sent_after:?} to {read_at}");
    }
}

#[test]
fn timestamping_reports_a_software_time_only_to_who_asks_for_both() {
    let wire = wire();
    let server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    stamp(&wire.right, server.id(), Timestamping::RX_SOFTWARE).unwrap();
    assert_eq!(times_of_next(&wire, &server), []);
    stamp(&wire.right, server.id(), Timestamping::SOFTWARE).unwrap();
    assert_eq!(times_of_next(&wire, &server), []);
    stamp(&wire.right, server.id(), Timestamping::SOFTWARE | Timestamping::RX_SOFTWARE).unwrap();
    let told = times_of_next(&wire, &server);
    let [(SOL_SOCKET, 37, times)] = &told[..] else { panic!("{told:?}") };
    assert!(times[0] > 0 && times[2..] == [0; 4], "{times:?}");
}

#[test]
fn bytes_of_a_stream_have_the_time_of_the_segment_read_last() {
    let wire = wire();
    let (mut ours, mut theirs) = connected(&wire);
    theirs.set_options(|options| options.ancillary.timestamp = Some(TimestampResolution::Nanoseconds)).unwrap();
    let mut arrivals = Vec::new();
    for word in [b"one.", b"two."] {
        use std::io::Write;
        ours.write_all(word).unwrap();
        wire.settle();
        arrivals.push(wire.clock.clone().now());
        wire.clock.advance(Duration::from_secs(1));
    }
    let mut told = Vec::new();
    for len in [2, 6] {
        use std::io::Read;
        theirs.read_exact(&mut vec![0; len]).unwrap();
        let messages = wire.right.call(|sockets, _| sockets.time_messages(theirs.id(), None)).unwrap();
        told.push(longs(&messages[0].2)[0]);
    }
    let seconds: Vec<u64> = arrivals.iter().map(|at| at.as_nanos() / 1_000_000_000).collect();
    assert_eq!(told, seconds);
}

#[test]
fn icmp_error_is_queued_with_its_sender_and_the_bytes_of_the_datagram() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    client.set_options(|options| options.receive_errors = true).unwrap();
    client.send_to(b"anyone?", at(2, 7)).unwrap();
    wire.settle();
    assert!(ready(&wire.left, client.id()).has(Ready::ERR));
    let entry = next_error(&wire.left, client.id()).unwrap();
    assert_eq!((entry.errno, entry.origin, entry.kind, entry.code), (Errno::ECONNREFUSED, ErrorOrigin::Icmp, 3, 3));
    assert_eq!((entry.offender, entry.destination), (Some(Ipv4Addr::new(192, 0, 2, 2)), Some(at(2, 7))));
    assert_eq!(&entry.payload[..], b"anyone?");
    assert!(!ready(&wire.left, client.id()).has(Ready::ERR), "the error went with the entry");
}

#[test]
fn error_of_an_unconnected_socket_fails_its_next_call_once() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    client.send_to(b"silent", at(2, 7)).unwrap();
    wire.settle();
    assert_eq!(client.take_error().unwrap().map(|error| error.raw_os_error()), None);
    client.set_options(|options| options.receive_errors = true).unwrap();
    client.send_to(b"told", at(2, 7)).unwrap();
    wire.settle();
    let received = wire.left.call(|sockets, _| sockets.recv_from(client.id(), &mut [0; 4]).map(drop));
    assert_eq!(received, Err(Errno::ECONNREFUSED));
    assert!(ready(&wire.left, client.id()).has(Ready::ERR), "the entry stays");
}

#[test]
fn error_of_the_entry_behind_is_pending_once_one_is_taken() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    client.set_options(|options| options.receive_errors = true).unwrap();
    for port in [7, 8] {
        client.send_to(b"", at(2, port)).unwrap();
        wire.settle();
        let _ = client.take_error();
    }
    next_error(&wire.left, client.id()).unwrap();
    assert_eq!(client.take_error().unwrap().and_then(|error| error.raw_os_error()), Some(Errno::ECONNREFUSED.0));
    next_error(&wire.left, client.id()).unwrap();
    assert!(client.take_error().unwrap().is_none());
    assert_eq!(next_error(&wire.left, client.id()), Err(Errno::EAGAIN));
}

#[test]
fn turning_errors_off_forgets_those_that_wait() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let recverr = |on: i32| wire.left.call(|sockets, cx| sockets.setsockopt(client.id(), 0, 11, &on.to_ne_bytes(), cx));
    recverr(1).unwrap();
    client.send_to(b"", at(2, 7)).unwrap();
    wire.settle();
    recverr(0).unwrap();
    assert_eq!(next_error(&wire.left, client.id()), Err(Errno::EAGAIN));
}

#[test]
fn error_queue_holds_no_more_than_the_receive_buffer() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    client.set_options(|options| (options.receive_errors, options.receive_buffer) = (true, 4_608)).unwrap();
    let entry = QueuedError {
        errno: Errno::ENOMSG,
        origin: ErrorOrigin::Timestamping,
        kind: 0,
        code: 0,
        info: 0,
        data: 0,
        offender: None,
        destination: None,
        payload: [0; 32].into(),
        packet: None,
        times: MessageTimestamps::default(),
    };
    let push = || wire.left.call(|sockets, _| sockets.push_error(client.id(), entry.clone())).unwrap();
    let kept: Vec<bool> = (0..8).map(|_| push()).collect();
    // Each counts 800 bytes.
    assert_eq!(kept, [true, true, true, true, true, false, false, false]);
}

#[test]
fn datagram_above_the_mtu_that_may_not_be_fragmented_is_queued_with_the_mtu() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    client.send_to(b"", at(2, 7)).unwrap();
    client.set_options(|options| (options.receive_errors, options.mtu_discover) = (true, MtuDiscover::Do)).unwrap();
    assert_eq!(common::errno(client.send_to(&[0; 1_473], at(2, 7))), Some(Errno::EMSGSIZE));
    let entry = next_error(&wire.left, client.id()).unwrap();
    assert_eq!((entry.errno, entry.origin, entry.info), (Errno::EMSGSIZE, ErrorOrigin::Local, 1_500));
    assert_eq!(entry.destination, Some(SocketAddrV4::new([192, 0, 2, 2].into(), 0)));
}

#[test]
fn sent_datagrams_are_stamped_and_numbered() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let _server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    client.send_to(b"finds the neighbor", at(2, 7)).unwrap();
    wire.settle();
    let flags = Timestamping::TX_SOFTWARE | Timestamping::TX_SCHED | Timestamping::SOFTWARE | Timestamping::OPT_ID;
    stamp(&wire.left, client.id(), flags).unwrap();
    client.send_to(b"one", at(2, 7)).unwrap();
    assert!(ready(&wire.left, client.id()).has(Ready::ERR));
    client.send_to(b"two", at(2, 7)).unwrap();
    let numbers: Vec<_> = stamps(&wire.left, client.id());
    assert_eq!(numbers, [(1, 0, true, false), (0, 0, true, false), (1, 1, true, false), (0, 1, true, false)]);
}

#[test]
fn stamp_brings_the_frame_unless_it_is_not_wanted() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let _server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    client.send_to(b"finds the neighbor", at(2, 7)).unwrap();
    wire.settle();
    for (flags, len) in [(Timestamping::TX_SOFTWARE, 42 + 4), (Timestamping::TX_SOFTWARE | Timestamping::OPT_TSONLY, 0)]
    {
        stamp(&wire.left, client.id(), flags).unwrap();
        client.send_to(b"tick", at(2, 7)).unwrap();
        let (mut near, mut far) = ([0; 42], [0; 64]);
        let (copied, entry) = wire
            .left
            .call(|sockets, _| {
                sockets.recv_error(client.id(), &mut [IoSliceMut::new(&mut near), IoSliceMut::new(&mut far)])
            })
            .unwrap();
        assert_eq!((copied, entry.payload.len()), (len, len));
        assert_eq!(&far[..4], if len > 0 { b"tick" } else { &[0; 4] });
    }
}

#[test]
fn datagram_that_waits_for_its_neighbor_is_stamped_when_it_leaves() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let _server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    stamp(&wire.left, client.id(), Timestamping::TX_SOFTWARE).unwrap();
    client.send_to(b"waits", at(2, 7)).unwrap();
    assert_eq!(stamps(&wire.left, client.id()), []);
    wire.clock.advance(Duration::from_millis(1));
    let answered = wire.clock.clone().now();
    wire.settle();
    let entry = next_error(&wire.left, client.id()).unwrap();
    assert!(entry.times.software.unwrap().as_nanos() >= answered.as_nanos());
}

#[test]
fn bytes_of_a_stream_are_stamped_when_sent_and_when_acknowledged() {
    use std::io::Write;
    let wire = wire();
    let (mut ours, _theirs) = connected(&wire);
    ours.write_all(b"before").unwrap();
    wire.settle();
    let flags = Timestamping::TX_SOFTWARE | Timestamping::TX_ACK | Timestamping::OPT_ID;
    stamp(&wire.left, ours.id(), flags).unwrap();
    ours.write_all(b"four").unwrap();
    assert_eq!(stamps(&wire.left, ours.id()), [(0, 3, true, false)]);
    let sent_at = wire.clock.clone().now();
    wire.settle();
    wire.clock.advance(Duration::from_millis(50));
    wire.settle();
    let entry = next_error(&wire.left, ours.id()).unwrap();
    assert_eq!((entry.info, entry.data), (2, 3));
    assert!(entry.times.software.unwrap().as_nanos() > sent_at.as_nanos());
    ours.write_all(b"12345678").unwrap();
    assert_eq!(stamps(&wire.left, ours.id()), [(0, 11, true, false)]);
}

#[test]
fn stream_has_no_numbers_before_it_is_connected() {
    let wire = wire();
    let id = wire.left.call(|sockets, _| sockets.socket(sockets::Kind::Stream)).unwrap();
    assert_eq!(stamp(&wire.left, id, Timestamping::OPT_ID), Err(Errno::EINVAL));
    assert_eq!(stamp(&wire.left, id, Timestamping::TX_ACK), Ok(()));
}

#[test]
fn nic_stamps_what_leaves_by_it_and_the_software_stamp_is_left_out() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let _server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    client.send_to(b"finds the neighbor", at(2, 7)).unwrap();
    wire.settle();
    let both = Timestamping::TX_SOFTWARE | Timestamping::TX_HARDWARE | Timestamping::OPT_ID;
    stamp(&wire.left, client.id(), both).unwrap();
    client.send_to(b"one", at(2, 7)).unwrap();
    wire.settle();
    assert_eq!(stamps(&wire.left, client.id()), [(0, 0, false, true)]);
    stamp(&wire.left, client.id(), both | Timestamping::OPT_TX_SWHW).unwrap();
    client.send_to(b"two", at(2, 7)).unwrap();
    wire.settle();
    assert_eq!(stamps(&wire.left, client.id()), [(0, 1, true, false), (0, 1, false, true)]);
}

#[test]
fn nic_stamps_the_last_byte_of_a_send() {
    use std::io::Write;
    let wire = wire();
    let (mut ours, _theirs) = connected(&wire);
    stamp(&wire.left, ours.id(), Timestamping::TX_HARDWARE | Timestamping::OPT_ID).unwrap();
    // Three segments.
    ours.write_all(&[0; 4_000]).unwrap();
    wire.settle();
    assert_eq!(stamps(&wire.left, ours.id()), [(0, 3_999, false, true)]);
}

#[test]
fn completions_of_sends_in_a_row_are_one_entry() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let _server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    let flags = SendFlags { zerocopy: true, ..SendFlags::default() };
    let send = |times: usize| {
        for _ in 0..times {
            let parts = [IoSlice::new(b"tick")];
            wire.left.call(|sockets, cx| sockets.send_parts(client.id(), &parts, Some(at(2, 7)), flags, cx)).unwrap();
        }
    };
    send(1);
    assert_eq!(next_error(&wire.left, client.id()), Err(Errno::EAGAIN), "SO_ZEROCOPY is off");
    change(&wire.left, client.id(), |options| options.zerocopy = true);
    send(3);
    let entry = next_error(&wire.left, client.id()).unwrap();
    assert_eq!((entry.errno, entry.origin, entry.code), (Errno(0), ErrorOrigin::Zerocopy, 1));
    assert_eq!((entry.info, entry.data), (0, 2));
    send(1);
    let entry = next_error(&wire.left, client.id()).unwrap();
    assert_eq!((entry.info, entry.data), (3, 3));
}

#[test]
fn accepted_connection_has_the_listeners_stamps() {
    use std::io::Write;
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    stamp(&wire.right, listener.id(), Timestamping::RX_SOFTWARE | Timestamping::SOFTWARE).unwrap();
    let mut ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    let theirs = listener.accept().unwrap().0;
    ours.write_all(b"word").unwrap();
    wire.settle();
    let mut word = [0; 4];
    let told = wire.right.call(|sockets, cx| {
        sockets.recv_parts(theirs.id(), &mut [IoSliceMut::new(&mut word)], RecvFlags::default(), cx)?;
        sockets.time_messages(theirs.id(), None)
    });
    assert_eq!(told.unwrap().iter().map(|message| message.1).collect::<Vec<_>>(), [37]);
}

#[test]
fn stamps_asked_for_by_name_are_those_asked_for_by_number() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    let _server = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    client.send_to(b"finds the neighbor", at(2, 7)).unwrap();
    wire.settle();
    let flags = Timestamping::TX_HARDWARE | Timestamping::OPT_ID;
    client.set_options(|options| options.timestamping = flags).unwrap();
    client.send_to(b"tick", at(2, 7)).unwrap();
    wire.settle();
    let (_, entry) = client.recv_error(&mut []).unwrap();
    assert!(entry.data == 0 && entry.times.hardware.is_some(), "{entry:?}");
    let unknown = client.set_options(|options| options.timestamping = Timestamping(1 << 15));
    assert_eq!(common::errno(unknown), Some(Errno::EINVAL));
    assert_eq!(client.options().unwrap().timestamping, flags);
}

#[test]
fn error_is_exceptional_where_the_socket_asks_for_it() {
    let wire = wire();
    let client = UdpSocket::bind(&wire.left, at(1, 9)).unwrap();
    client.set_options(|options| (options.receive_errors, options.select_error_queue) = (true, true)).unwrap();
    client.send_to(b"", at(2, 7)).unwrap();
    wire.settle();
    assert!(ready(&wire.left, client.id()).has(Ready::PRI));
}
