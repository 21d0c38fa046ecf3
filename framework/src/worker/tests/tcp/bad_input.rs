//! Invalid calls from outside: each returns a typed error, nothing is lost, and nothing is sent
//! twice.

use super::frames::{SegmentEnds, frame};
use super::*;
use crate::device::{Offload, RxQueue, TxQueue};
use crate::mem::{Burst, Mbuf};
use crate::pipeline::{Egress, Node, VlanInterface, VlanTrunk};
use crate::wire::{TcpFields, TcpFlags};

/// An address on the link without a station.
const NOBODY: SocketAddrV4 = SocketAddrV4::new(address(77), 80);
/// An address beyond a router, for which there is no route.
const FAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A worker that resolves its neighbors, on a wire without answers.
fn end_without_peer() -> (End, MemoryDevice, Block, Instant) {
    let (left, right) = pair("tcp", MemoryConfig::default());
    let block = Block::heap();
    let wanted = Wanted { asks: true, ..Wanted::default() };
    let end = end(left, 1, &wanted, &block);
    (end, right, block, Instant::ZERO + seconds(1))
}

/// Polls each millisecond until the connection is closed, at most 600 s; returns the reason and the
/// time.
fn outcome(end: &mut End, begin: Instant) -> (CloseReason, Duration) {
    for ms in 0..600_000 {
        let now = begin + Duration::from_millis(ms);
        end.poll_once(now);
        if let [.., TcpEvent::Closed(reason)] = end.app().events[..] {
            return (reason, now.since(begin));
        }
    }
    panic!("it was never told how it ended: {:?}", end.app().events);
}

#[test]
fn no_route_is_told_at_once_and_takes_no_place() {
    let mut line = Line::connected(Wanted::default());
    let refused = line.ask(|_, cx| cx.tcp().connect(ANY, FAR, &ConnectionOptions::default(), ConsumerId(1)));
    let error = refused.unwrap_err();
    assert_eq!(error, ConnectError::NoRoute(*FAR.ip()));
    assert!(error.to_string().contains("add a route"), "{error}");
    assert_eq!(line.client.tcp().len(), 1, "the connection that there was");
    line.close();
}

/// Checks that the open connection still works: each byte once, both ways.
fn goes_on(mut line: Line) {
    let bytes = pattern(5_000);
    send_all(&mut line, &bytes);
    assert!(line.server.app().received == bytes, "each byte once, in order");
    assert_eq!(line.client.tcp().tally().segments_resent, 0);
    line.close();
}

#[test]
fn address_in_use_is_told_and_who_has_it_goes_on() {
    let mut line = Line::connected(Wanted::default());
    let (id, now) = (line.id(), line.now);
    let again = line.server.with_app(now, |_, cx| cx.tcp().listen(SERVER, &ListenOptions::default()));
    assert_eq!(again, Err(ListenError::AddressInUse(SERVER)));
    assert!(again.unwrap_err().to_string().contains("close that listener"));
    let (sent, options) = (line.count("1/tcp/segments_out"), ConnectionOptions::default());
    let (local, called) = line.ask(|_, cx| {
        let local = cx.tcp().info(id).unwrap().local;
        (local, cx.tcp().connect(local, SERVER, &options, ConsumerId(1)))
    });
    assert_eq!(called, Err(ConnectError::AddressInUse { local, remote: SERVER }));
    assert!(called.unwrap_err().to_string().contains("take local port 0"));
    assert_eq!((line.client.tcp().len(), line.count("1/tcp/segments_out")), (1, sent), "no SYN has left");
    goes_on(line);
}

#[test]
fn option_out_of_range_is_told_and_all_stays_as_it_was() {
    let mut line = Line::connected(Wanted::default());
    let id = line.id();
    let wrong = ConnectionOptions { rto_min: Duration::ZERO, ..ConnectionOptions::default() };
    let error = wrong.check().unwrap_err();
    line.ask(|_, cx| {
        let before = cx.tcp().options(id);
        assert_eq!(cx.tcp().set_options(id, &wrong), Err(CallError::Option(error)));
        assert_eq!(cx.tcp().options(id), before);
        assert_eq!(cx.tcp().connect(ANY, SERVER, &wrong, ConsumerId(1)), Err(ConnectError::Option(error)));
        let listen = ListenOptions { connection: wrong, ..ListenOptions::default() };
        assert_eq!(cx.tcp().listen(SocketAddrV4::new(*ANY.ip(), 80), &listen), Err(ListenError::Option(error)));
    });
    assert!(error.to_string().contains("rto_min must be 1 ms to 60 s"), "{error}");
    assert_eq!(line.client.tcp().len(), 1);
    goes_on(line);
}

/// A SYN during a full backlog is not refused: a cookie makes the connection, and its data arrives
/// once.
#[test]
fn full_backlog_turns_nobody_away_and_nothing_comes_twice() {
    let mut line = Line::connected(Wanted::default());
    let (port, now) = (SocketAddrV4::new(*SERVER.ip(), 81), line.now);
    let listen = ListenOptions { backlog: 1, ..ListenOptions::default() };
    line.server.with_app(now, |_, cx| _ = cx.tcp().listen(port, &listen).unwrap());
    let call = |cx: &mut Cx<'_>| cx.tcp().connect(ANY, port, &ConnectionOptions::default(), ConsumerId(1)).unwrap();
    let calls = line.ask(|_, cx| [call(cx), call(cx), call(cx)]);
    line.turns(10);
    assert_eq!(line.server.tcp().tally().syn_cookies_accepted, 2, "one place, and three calls at once");
    for (id, order) in calls.into_iter().zip([b"buy ", b"sell", b"stop"]) {
        line.ask(|_, cx| assert_eq!(cx.tcp().send(id, order), Ok(4)));
        line.turns(10);
    }
    assert_eq!(line.server.app().received, b"buy sellstop");
    assert_eq!(line.client.tcp().tally().segments_resent, 0);
    let none = ListenOptions { backlog: 0, ..ListenOptions::default() };
    let error = line.ask(|_, cx| cx.tcp().listen(SocketAddrV4::new(*ANY.ip(), 81), &none)).unwrap_err();
    assert!(error.to_string().contains("backlog must be"), "{error}");
}

#[test]
fn full_table_refuses_a_call_and_those_that_stand_go_on() {
    let mut line = Line::connected(Wanted::default());
    let options = ConnectionOptions::default();
    let mut calls = Vec::new();
    let error = loop {
        match line.ask(|_, cx| cx.tcp().connect(ANY, SERVER, &options, ConsumerId(1))) {
            Ok(id) => calls.push(id),
            Err(error) => break error,
        }
    };
    assert_eq!((error, calls.len()), (ConnectError::TooMany { limit: 4 }, 3));
    assert!(error.to_string().contains("raise TcpConfig::connections_max"), "{error}");
    line.turns(5);
    for id in calls {
        line.ask(|_, cx| cx.tcp().abort(id).unwrap());
    }
    line.turns(5);
    assert_eq!(line.client.tcp().len(), 1, "the places of those that are gone are free");
}

#[test]
fn limits_that_do_not_add_up_make_no_tcp() {
    let machine = TcpConfig { chunks_max: 0, ..TcpConfig::default() };
    let config = TcpSocketsConfig {
        machine,
        capabilities: pair("tcp", MemoryConfig::default()).0.capabilities(),
        seed: HashSeed::new(1, 2),
    };
    let error = TcpSockets::new(&config, &Block::heap().scope("1")).err().unwrap();
    assert_eq!(error, TcpConfigError::OutOfRange { name: "chunks_max", value: 0, min: 2, max: 1 << 28 });
    assert!(error.to_string().contains("raise it to 2 at least"), "{error}");
    let unrepeated = TcpConfig { retries: 0, ..TcpConfig::default() };
    assert_eq!(unrepeated.check(), Err(TcpConfigError::OutOfRange { name: "retries", value: 0, min: 1, max: 255 }));
}

#[test]
fn own_address_group_and_port_none_are_no_peers() {
    let mut line = Line::connected(Wanted::default());
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 80);
    let own = SocketAddrV4::new(address(1), 80);
    let mut refused = |remote| {
        line.ask(|_, cx| cx.tcp().connect(ANY, remote, &ConnectionOptions::default(), ConsumerId(1))).unwrap_err()
    };
    for remote in [group, SocketAddrV4::new(address(2), 0)] {
        assert_eq!(refused(remote), ConnectError::BadAddress(remote));
    }
    assert_eq!(refused(own), ConnectError::LocalAddress(own));
    assert!(refused(own).to_string().contains("is an address of this host"), "{}", refused(own));
    line.close();
}

#[test]
fn address_that_is_not_ours_is_neither_listened_at_nor_called_from() {
    let mut line = Line::connected(Wanted::default());
    let foreign = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 9), 80);
    let error = NotOurs { address: *foreign.ip(), ours: Some(address(1)) };
    line.ask(|_, cx| {
        let listened = cx.tcp().listen(foreign, &ListenOptions::default());
        assert_eq!(listened, Err(ListenError::NotOurs(error)));
        let called = cx.tcp().connect(foreign, SERVER, &ConnectionOptions::default(), ConsumerId(1));
        assert_eq!(called, Err(ConnectError::NotOurs(error)));
    });
    assert!(error.to_string().contains(&format!("take {}", address(1))), "{error}");
    assert_eq!(line.client.tcp().len(), 1, "the connection that there was");
    line.close();
}

#[test]
fn call_without_a_link_is_told_at_once_and_leaves_when_the_link_is_up() {
    let mut line = Line::connected(Wanted::default());
    let first = line.id();
    line.ask(|app, cx| {
        app.events.clear();
        assert_eq!(cx.tcp().unreachable(first), None);
        cx.host.apply(HostEvent::Link { is_up: false }).unwrap();
        let id = cx.tcp().connect(ANY, SERVER, &ConnectionOptions::default(), ConsumerId(1)).unwrap();
        assert_eq!(cx.tcp().unreachable(id), Some(NextHopError::LinkDown), "told at once to who asks");
    });
    line.turn();
    assert_eq!(line.client.app().events, [TcpEvent::NoRoute], "and to who does not with the turn");
    line.turns(100_000);
    line.ask(|_, cx| cx.host.apply(HostEvent::Link { is_up: true }).unwrap());
    line.turns(10);
    assert_eq!(line.client.app().events, [TcpEvent::NoRoute, TcpEvent::Connected { listener: None }]);
    let id = line.id();
    line.ask(|_, cx| assert_eq!((cx.tcp().unreachable(id), cx.tcp().abort(id)), (None, Ok(()))));
}

#[test]
fn call_that_never_had_a_link_ends_by_a_name_that_says_so() {
    let (mut end, _wire, _, now) = end_without_peer();
    end.with_app(now, |_, cx| {
        cx.host.apply(HostEvent::Link { is_up: false }).unwrap();
        cx.tcp().connect(ANY, NOBODY, &ConnectionOptions::default(), ConsumerId(1)).unwrap();
    });
    let (reason, _) = outcome(&mut end, now);
    assert_eq!(reason, CloseReason::NoRoute);
    assert!(reason.to_string().contains("check cable"), "{reason}");
    rest(&mut end, now + seconds(600));
}

#[test]
fn neighbor_that_never_answers_ends_the_call_by_name_and_every_frame_comes_home() {
    let (mut end, _wire, block, now) = end_without_peer();
    let options = ConnectionOptions::default();
    end.with_app(now, |_, cx| cx.tcp().connect(ANY, NOBODY, &options, ConsumerId(1)).unwrap());
    let (reason, after) = outcome(&mut end, now);
    assert_eq!(reason, CloseReason::NoNeighbor);
    assert!(reason.to_string().contains("no answer to ARP"), "{reason}");
    assert!(after < seconds(10), "as long as a neighbor is asked, not as a call is repeated: {after}");
    assert_eq!((end.tcp().len(), end.tcp().chunks()), (0, 0));
    rest(&mut end, now + after);
    assert!(
        block.snapshot().count("1/egress/neighbors/drop/unreachable").unwrap() > 0,
        "the SYNs that waited are named"
    );
}

#[test]
fn neighbor_that_never_answers_ends_a_call_when_its_user_says() {
    let (mut end, _wire, _, now) = end_without_peer();
    let options = ConnectionOptions { user_timeout: Some(seconds(2)), ..ConnectionOptions::default() };
    end.with_app(now, |_, cx| cx.tcp().connect(ANY, NOBODY, &options, ConsumerId(1)).unwrap());
    let (reason, after) = outcome(&mut end, now);
    assert_eq!(reason, CloseReason::NoAnswer);
    assert!(after >= seconds(2) && after < seconds(3), "{after}");
    rest(&mut end, now + after);
}

/// Checks that frames that waited for the neighbor leave, and every buffer is free.
fn rest(end: &mut End, now: Instant) {
    for second in 0..10 {
        end.poll_once(now + seconds(second));
    }
    assert_eq!((end.pool().in_use(), end.pool().drops_without_reason()), (0, 0), "every buffer is home, by name");
}

#[test]
fn peer_that_is_gone_ends_the_connection_and_what_waited_goes_home() {
    let options = ConnectionOptions { user_timeout: Some(seconds(5)), ..ConnectionOptions::default() };
    let mut line = Line::connected(Wanted { options, ..Wanted::default() });
    let (id, gone) = (line.id(), HostEvent::NeighborRemoved(address(2)));
    line.ask(|_, cx| {
        cx.host.apply(gone).unwrap();
        assert_eq!(cx.tcp().send(id, b"into the void"), Ok(13));
    });
    line.turn_until(|line| line.client.app().events.contains(&TcpEvent::Closed(CloseReason::TimedOut)));
    assert_eq!((line.client.tcp().len(), line.client.tcp().chunks(), line.client.pool().in_use()), (0, 0, 0));
    assert!(line.server.app().received.is_empty() && line.count("1/tcp/output_lost") > 0);
}

#[test]
fn buffer_without_a_byte_comes_back() {
    let mut line = Line::connected(Wanted::default());
    let id = line.id();
    line.ask(|_, cx| {
        let empty = cx.pool.alloc().unwrap();
        let (error, mbuf) = cx.tcp().send_mbuf(id, empty).unwrap_err();
        assert_eq!(error, SendError::NotLinear);
        assert!(error.to_string().contains("copy them with send"), "{error}");
        let (error, mbuf) = cx.tcp().delegated(id, mbuf).unwrap_err();
        assert_eq!(error, DelegateError::Send(SendError::NotLinear));
        mbuf.free();
    });
    goes_on(line);
}

#[test]
fn send_after_close_gives_the_buffer_back_and_sends_nothing() {
    let mut line = Line::connected(Wanted::default());
    let id = line.id();
    line.ask(|_, cx| cx.tcp().shutdown(id).unwrap());
    line.turns(5);
    line.ask(|_, cx| {
        assert_eq!(cx.tcp().send(id, b"late"), Err(SendError::Closed));
        let mbuf = cx.pool.alloc_copy(b"late").unwrap();
        let (error, mbuf) = cx.tcp().send_mbuf(id, mbuf).unwrap_err();
        assert_eq!((error, mbuf.bytes()), (SendError::Closed, &b"late"[..]));
        assert!(error.to_string().contains("connect again to send more"), "{error}");
        mbuf.free();
        let error = cx.tcp().prepare(id, b"late").unwrap_err();
        assert!(error.to_string().contains("connect again to send more"), "{error}");
    });
    assert_eq!(line.client.pool().in_use(), 0);
    line.turns(50);
    assert!(line.server.app().received.is_empty());
    line.close();
}

#[test]
fn every_call_on_a_dead_connection_is_refused_and_its_place_serves_the_next() {
    let mut line = Line::connected(Wanted::default());
    let id = line.id();
    let mut order = line.ask(|_, cx| cx.tcp().prepare(id, b"for the first").unwrap());
    line.ask(|_, cx| cx.tcp().abort(id).unwrap());
    line.turns(5);
    let local = ANY;
    let next = line.ask(|_, cx| cx.tcp().connect(local, SERVER, &ConnectionOptions::default(), ConsumerId(1)).unwrap());
    line.turns(5);
    assert_eq!(next.slot(), id.slot());
    line.ask(|_, cx| {
        assert_eq!(cx.tcp().send(id, b"for the first"), Err(SendError::NotFound));
        let mbuf = cx.pool.alloc_copy(b"for the first").unwrap();
        let (error, mbuf) = cx.tcp().send_mbuf(id, mbuf).unwrap_err();
        assert_eq!(error, SendError::NotFound);
        assert!(error.to_string().contains("its Closed event gave the reason"), "{error}");
        mbuf.free();
        assert_eq!(cx.tcp().fire(&mut order), Err(SendError::NotFound));
        assert_eq!(cx.tcp().try_fire(&mut order), Err(SendError::NotFound));
        assert_eq!(cx.tcp().warm(&mut order), Err(SendError::NotFound));
        let calls =
            [cx.tcp().shutdown(id), cx.tcp().close(id), cx.tcp().abort(id), cx.tcp().pause(id), cx.tcp().resume(id)];
        assert_eq!(calls, [Err(CallError::NotFound); 5]);
        assert!(cx.tcp().info(id).is_none() && cx.tcp().options(id).is_none());
        assert_eq!(cx.tcp().send(next, b"for the second"), Ok(14));
    });
    line.turns(10);
    assert_eq!(line.server.app().received, b"for the second");
    line.close();
}

#[test]
fn worker_without_tcp_refuses_every_call() {
    let (mut end, _wire, _, now) = end_without_peer();
    end = end.with_tcp(TcpSockets::none());
    end.with_app(now, |_, cx| {
        let listened = cx.tcp().listen(SERVER, &ListenOptions::default());
        assert_eq!(listened, Err(ListenError::NoTcp));
        assert!(listened.unwrap_err().to_string().contains("with_tcp"));
        let called = cx.tcp().connect(ANY, SERVER, &ConnectionOptions::default(), ConsumerId(1));
        assert_eq!(called, Err(ConnectError::NoTcp));
        assert!(called.unwrap_err().to_string().contains("with_tcp"));
    });
}

/// Gives TCP to a worker on such a pipeline.
fn give_tcp<N: Node<Talker>>(pipeline: impl FnOnce(HashSeed, &Scope) -> N) {
    let (mut port, _) = pair("tcp", MemoryConfig::default());
    let (block, pool, seed) = (Block::heap(), Pool::heap(64).unwrap(), HashSeed::new(1, 7));
    let scope = block.scope("deaf");
    let machine = TcpConfig { connections_max: 4, chunks_max: 16, ..TcpConfig::default() };
    let sockets = TcpSocketsConfig { machine, capabilities: port.capabilities(), seed };
    let (rx, tx) = port.take_queue(0).unwrap().open(&pool, &scope).unwrap();
    let parts = Parts {
        rx,
        tx,
        pipeline: pipeline(seed, &scope),
        app: Talker::default(),
        pool,
        host: host(1, seed),
        sockets: UdpSockets::new(SocketCapacity::default(), seed),
        egress: EgressConfig::quiet(seed),
        burst_len: 32,
    };
    let _ = Worker::new(parts, &scope).with_tcp(TcpSockets::new(&sockets, &scope).unwrap());
}

#[test]
#[should_panic(expected = "set HostStackConfig::tcp")]
fn pipeline_without_the_tcp_node_is_given_no_tcp() {
    give_tcp(|_, scope| Unhandled::new("tcp", scope));
}

#[test]
#[should_panic(expected = "the legs of a VlanTrunk have no TCP")]
fn trunk_is_given_no_tcp() {
    give_tcp(|seed, scope| {
        let egress = Egress::new(EgressConfig::quiet(seed), scope);
        VlanTrunk::new(vec![VlanInterface { host: host(1, seed), egress, nodes: stack(1, seed, scope) }], scope)
    });
}

/// A connection in a reused slot with another peer: its first frame must not go to the former peer.
#[test]
fn frames_of_a_place_that_is_used_again_go_to_the_new_peer() {
    let (left, mut right) = pair("tcp", MemoryConfig::default());
    let block = Block::heap();
    let mut end = end(left, 1, &Wanted::default(), &block);
    let (pool, begin) = (Pool::heap(64).unwrap(), Instant::ZERO + seconds(1));
    let (mut rx, _tx) = right.take_queue(0).unwrap().open(&pool, &block.scope("peer")).unwrap();
    let stranger = SocketAddrV4::new(address(3), 80);
    end.with_app(begin, |_, cx| cx.host.apply(HostEvent::NeighborSet { address: address(3), mac: mac(3) }).unwrap());
    let mut slots = Vec::new();
    for (turn, (remote, station)) in [(SERVER, mac(2)), (stranger, mac(3)), (SERVER, mac(2))].into_iter().enumerate() {
        let now = begin + seconds(turn as u64);
        let id = end.with_app(now, |_, cx| {
            cx.tcp().connect(ANY, remote, &ConnectionOptions::default(), ConsumerId(1)).unwrap()
        });
        slots.push(id.slot());
        end.poll_once(now);
        let mut burst = Burst::new();
        rx.receive(&mut burst, 32, &pool, now);
        let destinations: Vec<_> = burst.drain(..).map(|mbuf| (mbuf.bytes()[..6].to_vec(), mbuf.free()).0).collect();
        assert_eq!(destinations, [station.0.to_vec()], "the SYN to {remote}");
        end.with_app(now, |_, cx| cx.tcp().abort(id).unwrap());
        end.poll_once(now);
    }
    assert_eq!(slots, [slots[0]; 3], "the place is used again");
}

/// A SYN from `address(3)` to a destination, whose checksum is off by `flaw`.
fn syn_to(destination: Ipv4Addr, station: MacAddr, flaw: u8) -> Vec<u8> {
    let fields = TcpFields {
        source_port: 5_000,
        destination_port: 80,
        seq: 7,
        ack: 0,
        flags: TcpFlags::SYN,
        window: 65_535,
        urgent_pointer: 0,
    };
    let ends = SegmentEnds { from: (address(3), mac(3)), to: (destination, station) };
    let mut frame = frame(&ends, &fields, &[], &[]);
    frame[14 + 20 + 17] ^= flaw;
    frame
}

/// Listens for `address(3)`, whose station is known, and other clients.
fn listen(end: &mut End, options: &ListenOptions, now: Instant) {
    end.with_app(now, |_, cx| {
        cx.host.apply(HostEvent::NeighborSet { address: address(3), mac: mac(3) }).unwrap();
        cx.tcp().listen(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 80), options).unwrap();
    });
}

/// RFC 9293 3.1 (MUST-3) and 3.9.2.3 (MUST-57): neither is answered, and each is counted by its
/// name.
#[test]
fn segments_with_a_wrong_checksum_or_to_many_are_dropped_in_silence() {
    let (mut end, mut right, block, begin) = end_without_peer();
    listen(&mut end, &ListenOptions::default(), begin);
    let pool = Pool::heap(64).unwrap();
    let (mut rx, mut tx) = right.take_queue(0).unwrap().open(&pool, &block.scope("peer")).unwrap();
    let group = Ipv4Addr::new(224, 0, 0, 1);
    let frames = [
        syn_to(address(1), mac(1), 1),
        syn_to(group, MacAddr([1, 0, 0x5e, 0, 0, 1]), 0),
        syn_to(address(255), MacAddr::BROADCAST, 0),
        syn_to(Ipv4Addr::BROADCAST, MacAddr::BROADCAST, 0),
        syn_to(address(1), mac(1), 0),
    ];
    for frame in frames {
        tx.post(pool.alloc_copy(&frame).unwrap(), Offload::NONE).unwrap();
    }
    tx.ring_doorbell(begin);
    end.poll_once(begin);
    let count = |name: &str| block.snapshot().count(&format!("1/tcp/drop/{name}")).unwrap();
    assert_eq!((count("bad_checksum"), count("not_unicast")), (1, 3));
    let mut burst = Burst::new();
    rx.receive(&mut burst, 32, &pool, begin);
    assert_eq!(burst.len(), 1, "the answer to the one that was sound");
    burst.drain(..).for_each(Mbuf::free);
}

#[test]
fn syns_beyond_the_rate_are_counted_by_name_and_nothing_else_of_them_is_looked_at() {
    let (mut end, mut right, block, begin) = end_without_peer();
    listen(&mut end, &ListenOptions { syns_per_second: Some(1), ..ListenOptions::default() }, begin);
    let pool = Pool::heap(64).unwrap();
    let (mut rx, mut tx) = right.take_queue(0).unwrap().open(&pool, &block.scope("peer")).unwrap();
    let count = |name: &str| block.snapshot().count(&format!("1/tcp/drop/{name}")).unwrap();
    let mut call = |flaws: &[u8], now| {
        for &flaw in flaws {
            tx.post(pool.alloc_copy(&syn_to(address(1), mac(1), flaw)).unwrap(), Offload::NONE).unwrap();
        }
        tx.ring_doorbell(now);
        end.poll_once(now);
        let mut answers = Burst::new();
        rx.receive(&mut answers, 32, &pool, now);
        let answered = answers.len();
        answers.drain(..).for_each(Mbuf::free);
        (answered, count("bad_checksum"), count("syn_rate_exceeded"))
    };
    assert_eq!(call(&[1, 0], begin), (1, 1, 0), "one that is damaged takes no time of the listener");
    assert_eq!(call(&[0, 1, 0], begin), (0, 1, 3), "there is none left");
}

#[test]
fn all_chunks_may_wait_where_the_pool_has_a_buffer_for_each_and_for_all_others() {
    let limit = |buffers, others| {
        let machine = TcpConfig { connections_max: 4, chunks_max: 1_000, ..TcpConfig::default() };
        let capabilities = pair("tcp", MemoryConfig::default()).0.capabilities();
        let config = TcpSocketsConfig { machine, capabilities, seed: HashSeed::new(1, 2) };
        let mut tcp = TcpSockets::new(&config, &Block::heap().scope("1")).unwrap();
        if let Some(others) = others {
            tcp.reserve_buffers(others);
        }
        tcp.limit_buffers(buffers);
        tcp.chunks_limit()
    };
    assert_eq!(limit(1_500, Some(500)), 1_000 - 62, "a sixteenth is for splitting");
    assert_eq!(limit(1_499, Some(500)), 749, "half of one that is too small");
    assert_eq!(limit(1_500, None), 750, "and of one of which nobody knows");
    assert_eq!(limit(2_000, None), 1_000 - 62);
}

/// More data may be queued than there are buffers: unsent and unread data would otherwise occupy
/// all of them, and no acknowledgment could be received.
#[test]
fn pool_smaller_than_the_chunks_is_not_used_up_and_all_arrives() {
    let mut line = Line::connected(Wanted { buffers: Some(48), ..Wanted::default() });
    let (bytes, mut sent, mut refused) = (pattern(200_000), 0, 0);
    let (id, now) = (line.id(), line.now);
    line.server.with_app(now, |app, cx| cx.tcp().pause(app.id.unwrap()).unwrap());
    for turn in 0..2_000_000 {
        match line.ask(|_, cx| cx.tcp().send(id, &bytes[sent..])) {
            Ok(len) => sent += len,
            Err(error) => refused += usize::from(error == SendError::NoChunk),
        }
        line.turn();
        for end in [&line.client, &line.server] {
            assert!(end.pool().available() >= 16, "{} of 48", end.pool().available());
        }
        if turn == 1_000 {
            let now = line.now;
            line.server.with_app(now, |app, cx| cx.tcp().resume(app.id.unwrap()).unwrap());
        }
        if line.server.app().received.len() == bytes.len() {
            break;
        }
    }
    assert!(line.server.app().received == bytes && refused > 0, "{sent} sent, {refused} refused");
    line.close();
}
