//! Limits of slots: whatever remote clients do, some slots are left for our own connections, and
//! for other clients.

use crate::proto::tcp::tests::*;
use crate::wire::tcp::TcpFlags;

const ACK: TcpFlags = TcpFlags::ACK;

/// A server with that table and these options of its listener.
fn server(connections_max: usize, listen: &ListenOptions) -> End {
    let config = TcpConfig { connections_max, chunks_max: 1024, ..TcpConfig::default() };
    let mut end = End::new(2);
    end.tcp = Tcp::new(config, HashSeed::new(2, 2)).unwrap();
    end.tcp.listen(SERVER, listen).unwrap();
    end
}

fn peer(host: u32, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from_bits(0x0a01_0000 + host), port)
}

/// A peer sends a SYN; returns its drop reason, otherwise the number of our answer.
fn call(server: &mut End, from: SocketAddrV4) -> Result<Seq, TcpDrop> {
    server.sent.0.clear();
    let flow = Flow { local: from, remote: SERVER };
    let syn = SynOptions { mss: Some(1460), ..SynOptions::default() };
    let syn = Outgoing { wnd: 60_000, syn: Some(syn), ..Outgoing::bare(flow, Seq(7), Seq(0), TcpFlags::SYN) };
    match server.note_received((syn, Vec::new())) {
        Some(reason) => Err(reason),
        None => Ok(server.sent.0.last().unwrap().0.seq),
    }
}

/// And completes it.
fn answer(server: &mut End, from: SocketAddrV4, iss: Seq) -> Option<TcpDrop> {
    server.sent.0.clear();
    let flow = Flow { local: from, remote: SERVER };
    server.note_received((Outgoing { wnd: 60_000, ..Outgoing::bare(flow, Seq(8), iss + 1, ACK) }, Vec::new()))
}

fn join(server: &mut End, from: SocketAddrV4) -> Option<TcpDrop> {
    match call(server, from) {
        Ok(iss) => answer(server, from, iss),
        Err(reason) => Some(reason),
    }
}

/// The number of connections that a peer gets when it begins `count`.
fn joined(server: &mut End, host: u32, count: u16) -> usize {
    (1..=count).filter(|port| join(server, peer(host, *port)).is_none()).count()
}

/// Connections that can be opened until the table is full.
fn dialed(server: &mut End) -> usize {
    let (now, options) = (server.now, ConnectionOptions::default());
    (1..=2_000)
        .take_while(|port| {
            let flow = Flow { local: SERVER, remote: peer(9_999, *port) };
            server.tcp.connect(flow, &options, ConsumerId(1), now, &mut server.sent).is_ok()
        })
        .count()
}

fn names(server: &End) -> Vec<ConnectionId> {
    let tcp = &server.tcp;
    let name = |slot| tcp.connections.get(slot).map(|found| ConnectionId { slot, generation: found.generation });
    (0..tcp.connections.capacity() as u32).filter_map(name).collect()
}

#[test]
fn order_session_is_dialed_while_idle_connections_of_one_host_fill_the_table() {
    let mut server = server(1_024, &ListenOptions::default());
    assert_eq!(joined(&mut server, 1, 2_000), 256, "ListenOptions::connections_per_source");
    assert_eq!(join(&mut server, peer(1, 2_001)), Some(TcpDrop::SourceFull));
    assert_eq!(
        (2..10).map(|host| joined(&mut server, host, 256)).sum::<usize>(),
        960 - 256,
        "TcpConfig::active_open_reserve"
    );
    assert_eq!(call(&mut server, peer(10, 1)), Err(TcpDrop::TableFull));
    assert_eq!(dialed(&mut server), 64);
    assert_eq!(server.tcp.len(), 1_024);
}

#[test]
fn host_that_holds_what_it_may_leaves_the_others_their_places() {
    let mut server = server(1_024, &ListenOptions::default());
    joined(&mut server, 1, 2_000);
    assert!((2..600).all(|host| join(&mut server, peer(host, 1)).is_none()));
}

#[test]
fn our_connects_leave_clients_the_unreserved_slots() {
    let unlimited = ListenOptions { connections_per_source: None, ..ListenOptions::default() };
    let mut server = server(32, &unlimited);
    let (now, options) = (server.now, ConnectionOptions::default());
    for port in 1..=10 {
        let flow = Flow { local: SERVER, remote: peer(9_999, port) };
        server.tcp.connect(flow, &options, ConsumerId(1), now, &mut server.sent).unwrap();
    }
    assert_eq!(joined(&mut server, 1, 100), 22, "two places are kept, and they are taken");
}

/// The reserve leaves no loophole: with the table full of abandoned handshakes, a real peer brings
/// a cookie back.
#[test]
fn handshakes_take_no_place_of_calls_and_leave_some_to_cookies() {
    let mut server = server(32, &ListenOptions::default());
    let answered = (1..=200).filter(|host| call(&mut server, peer(*host, 1)).is_ok()).count();
    assert_eq!(answered, 200, "by cookies");
    assert!(server.tcp.len() < 30 && server.tcp.tally().syn_cookies_sent > 150);
    assert_eq!(join(&mut server, peer(1_000, 1)), None);
    assert_eq!(dialed(&mut server), 32 - server.tcp.tally().passive_opens as usize);
}

#[test]
fn handshakes_leave_places_to_cookies_however_many_are_for_calls() {
    let config =
        TcpConfig { connections_max: 32, active_open_reserve: Some(16), chunks_max: 1024, ..TcpConfig::default() };
    let mut server = End::new(2);
    server.tcp = Tcp::new(config, HashSeed::new(2, 2)).unwrap();
    server.tcp.listen(SERVER, &ListenOptions::default()).unwrap();
    let answered = (1..=200).filter(|host| call(&mut server, peer(*host, 1)).is_ok()).count();
    assert_eq!((answered, join(&mut server, peer(1_000, 1))), (200, None), "by cookies");
}

#[test]
fn listener_takes_as_many_as_it_is_told_and_more_when_one_is_gone() {
    let mut server = server(64, &ListenOptions { connections_max: Some(2), ..ListenOptions::default() });
    let other = SocketAddrV4::new(*SERVER.ip(), 81);
    server.tcp.listen(other, &ListenOptions::default()).unwrap();
    assert_eq!([1, 2, 3].map(|host| join(&mut server, peer(host, 1))), [None, None, Some(TcpDrop::ListenerFull)]);
    let (first, now) = (names(&server)[0], server.now);
    server.tcp.abort(first, now, &mut server.sent).unwrap();
    server.tick();
    assert_eq!([4, 5].map(|host| join(&mut server, peer(host, 1))), [None, Some(TcpDrop::ListenerFull)]);
}

/// A handshake's source can be forged: if it counted, the named host could be locked out.
#[test]
fn handshakes_in_the_name_of_a_host_take_nothing_from_it() {
    let few = ListenOptions { connections_per_source: Some(2), ..ListenOptions::default() };
    let mut server = server(1_024, &few);
    assert!((1..=100).all(|port| call(&mut server, peer(1, port)).is_ok()), "which somebody else sends");
    assert_eq!(joined(&mut server, 1, 1_000), 2);
}

/// A peer with more handshakes than allowed connections is reset when it completes them.
#[test]
fn connection_beyond_the_limit_is_reset_when_its_handshake_is_done() {
    for backlog in [16, 1] {
        let few = ListenOptions { connections_per_source: Some(2), backlog, ..ListenOptions::default() };
        let mut server = server(64, &few);
        let open: Vec<_> = (1..=3).map(|port| (peer(1, port), call(&mut server, peer(1, port)).unwrap())).collect();
        let ends: Vec<_> = open.into_iter().map(|(from, iss)| answer(&mut server, from, iss)).collect();
        assert_eq!(ends, [None, None, Some(TcpDrop::SourceFull)], "backlog {backlog}");
        assert_eq!(server.sent.0[0].0.flags, TcpFlags::RST);
        assert_eq!((server.tcp.len(), server.events.len()), (2, 2));
    }
}

/// A peer that closes counts no more once its first FIN is answered: TIME-WAIT does not count.
#[test]
fn time_wait_counts_as_no_session_and_takes_no_slot_of_clients() {
    let few = ListenOptions { connections_per_source: Some(1), ..ListenOptions::default() };
    let mut server = server(16, &few);
    for port in 1..=40 {
        assert_eq!(join(&mut server, peer(1, port)), None, "{port}");
        let (id, now) = (server.id.unwrap(), server.now);
        server.tcp.shutdown(id, now, &mut server.sent).unwrap();
        let fin = server.sent.0.last().unwrap().0;
        let flow = Flow { local: peer(1, port), remote: SERVER };
        let flags = ACK | TcpFlags::FIN;
        server
            .note_received((Outgoing { wnd: 60_000, ..Outgoing::bare(flow, Seq(8), fin.seq + 1, flags) }, Vec::new()));
        assert_eq!(server.events.last(), Some(&TcpEvent::Closed(CloseReason::Finished)));
    }
    assert_eq!(server.tcp.len(), 16);
}

/// In any case a connection that is gone is no longer counted.
#[test]
fn counts_are_nothing_when_all_are_gone() {
    let mut server = server(64, &ListenOptions { backlog: 4, ..ListenOptions::default() });
    for host in 1..=20 {
        joined(&mut server, host, 2);
        let _ = call(&mut server, peer(host, 9));
    }
    for (idx, id) in names(&server).into_iter().enumerate() {
        let now = server.now;
        let _ = match idx % 2 {
            0 => server.tcp.abort(id, now, &mut server.sent),
            _ => server.tcp.close(id, now, &mut server.sent),
        };
    }
    for _ in 0..2_000 {
        server.now += Duration::from_secs(1);
        server.tick();
    }
    assert_eq!((server.tcp.len(), server.tcp.shared.admission.left()), (0, 60));
    assert_eq!(server.tcp.shared.admission.sessions(), 0);
}

/// A client that has vanished without a FIN keeps its slot for two hours and eleven minutes, not
/// for ever.
#[test]
fn keepalive_is_on_for_whom_a_listener_takes_by_default() {
    let mut server = server(8, &ListenOptions::default());
    assert_eq!(join(&mut server, peer(1, 1)), None);
    let begin = server.now;
    let options = server.tcp.options(server.id.unwrap()).unwrap();
    assert_eq!((options.keepalive, ConnectionOptions::default().keepalive), (Some(Keepalive::default()), None));
    while !server.tcp.is_empty() {
        server.now += Duration::from_secs(1);
        server.tick();
    }
    assert_eq!(server.events.last(), Some(&TcpEvent::Closed(CloseReason::KeepaliveTimedOut)));
    assert_eq!((server.now.since(begin).as_nanos() / 60_000_000_000), 120 + 11);
}

#[test]
fn reserve_of_more_places_than_there_are_is_refused() {
    let config = TcpConfig { connections_max: 8, active_open_reserve: Some(9), ..TcpConfig::default() };
    let error = config.check().unwrap_err();
    assert_eq!(error.to_string(), "TcpConfig::active_open_reserve is 9: lower it to 8 at most");
    assert_eq!(
        [8, 16, 1_024].map(|count| TcpConfig { connections_max: count, ..TcpConfig::default() }.active_open_reserve()),
        [0, 1, 64]
    );
}
