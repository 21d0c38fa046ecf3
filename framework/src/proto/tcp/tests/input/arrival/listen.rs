//! LISTEN (RFC 9293 3.10.7.2): accepted peers, the rate, and the names of listeners.

use crate::proto::tcp::tests::script::{ACK, FIN, ISN, RST, SYN, Script, accepted, listening};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::TcpFlags;

#[test]
fn acknowledgment_is_answered_by_a_reset() {
    let mut script = listening(&ListenOptions::default());
    let (dropped, answers) = script.send(ACK, Seq(7), Seq(9), b"");
    assert_eq!((dropped, answers[0].flags, answers[0].seq), (Some(TcpDrop::BadAck), RST, Seq(9)));
}

/// A peer with GTSM (RFC 5082) drops segments with another TTL than 255, resets as well.
#[test]
fn reset_leaves_as_the_segments_of_whom_it_is_about() {
    let connection = ConnectionOptions { ttl: 255, tos: 0x10, ..ConnectionOptions::default() };
    let mut script = listening(&ListenOptions { connection, ..ListenOptions::default() });
    let (_, answers) = script.send(ACK, Seq(7), Seq(9), b"");
    assert_eq!((answers[0].flags, answers[0].ttl, answers[0].tos), (RST, 255, 0x10));
    script.to.remote.set_port(SERVER.port() + 1);
    let (_, answers) = script.send(ACK, Seq(7), Seq(9), b"");
    assert_eq!((answers[0].flags, answers[0].ttl, answers[0].tos), (RST, 64, 0), "nobody listens there");

    let mut end = End::new(2);
    let (flow, now) = (Flow { local: SERVER, remote: CLIENT }, end.now);
    end.tcp.connect(flow, &connection, ConsumerId(1), now, &mut end.sent).unwrap();
    end.sent.0.clear();
    let (_, answers) = Script::new(end).send(SYN | ACK, Seq(7), Seq(9), b"");
    assert_eq!((answers[0].flags, answers[0].ttl, answers[0].tos), (RST, 255, 0x10), "an answer to another call");
}

#[test]
fn reset_and_bare_segment_and_syn_with_fin_do_nothing() {
    let mut script = listening(&ListenOptions::default());
    assert_eq!(script.send(RST, Seq(7), Seq(0), b"").1, vec![]);
    assert_eq!(script.send(TcpFlags::NONE, Seq(7), Seq(0), b""), (Some(TcpDrop::BadFlags), vec![]));
    assert_eq!(script.send(SYN | FIN, Seq(7), Seq(0), b""), (Some(TcpDrop::BadFlags), vec![]));
    assert!(script.end.tcp.is_empty());
}

#[test]
fn app_hears_of_a_peer_only_when_the_handshake_is_done() {
    let mut script = listening(&ListenOptions::default());
    let (_, answers) = script.next(SYN, b"");
    assert_eq!((answers[0].flags, answers[0].ack), (SYN | ACK, Seq(ISN + 1)));
    assert!(script.end.events.is_empty());
    script.next(ACK, b"");
    assert!(matches!(script.end.events[..], [TcpEvent::Connected { listener: Some(_) }]));
}

#[test]
fn data_that_completes_the_handshake_comes_after_connected() {
    let mut script = listening(&ListenOptions::default());
    script.next(SYN, b"");
    script.next(ACK, b"first");
    assert!(matches!(script.end.events[..], [TcpEvent::Connected { .. }, ..]));
    assert_eq!(script.end.bytes, b"first");
}

/// As the server sees it.
fn flow_to_server(script: &Script) -> Flow {
    Flow { local: script.to.remote, remote: script.to.local }
}

#[test]
fn syns_beyond_the_rate_are_dropped() {
    let mut script = listening(&ListenOptions { syns_per_second: Some(2), ..ListenOptions::default() });
    for port in 1..=4 {
        script.to.local.set_port(port);
        let wanted = if port > 2 { Some(TcpDrop::SynRateExceeded) } else { None };
        let flow = flow_to_server(&script);
        assert_eq!(script.end.tcp.refuses_syn(flow, script.end.now), port > 2, "{port}");
        assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").0, wanted, "{port}");
    }
    let elsewhere = SocketAddrV4::new(*SERVER.ip(), SERVER.port() + 1);
    let flow = Flow { local: elsewhere, ..flow_to_server(&script) };
    assert!(!script.end.tcp.refuses_syn(flow, script.end.now), "nobody listens: that is another matter");
    script.pass(Duration::from_millis(500));
    assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").0, None);
}

#[test]
fn who_listens_anew_or_nearer_takes_syns_where_another_refused() {
    let options = ListenOptions { syns_per_second: Some(1), ..ListenOptions::default() };
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER.port());
    let mut script = Script::new(End::new(2));
    let first = script.end.tcp.listen(any, &options).unwrap();
    let refuses = |script: &mut Script| script.end.tcp.refuses_syn(flow_to_server(script), script.end.now);
    assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").0, None);
    assert!(refuses(&mut script) && refuses(&mut script), "the second asks the memory of the first");
    script.end.tcp.close_listener(first);
    assert!(!refuses(&mut script), "nobody listens");
    script.end.tcp.listen(any, &options).unwrap();
    assert!(!refuses(&mut script));
    script.to.local.set_port(1);
    assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").0, None);
    assert!(refuses(&mut script));
    script.end.tcp.listen(SERVER, &options).unwrap();
    assert!(!refuses(&mut script));
}

#[test]
fn closing_the_listener_forgets_its_handshakes_and_keeps_its_connections() {
    let mut script = accepted();
    script.to.local.set_port(1);
    script.send(SYN, Seq(7), Seq(0), b"");
    assert_eq!(script.end.tcp.len(), 2);
    let Some(TcpEvent::Connected { listener: Some(listener) }) = script.end.events.first().copied() else { panic!() };
    assert!(script.end.tcp.close_listener(listener));
    assert!(!script.end.tcp.close_listener(listener));
    assert_eq!((script.end.tcp.len(), script.state()), (1, Some(State::Established)));
}

#[test]
fn name_of_a_listener_that_is_closed_is_not_that_of_the_next_in_its_place() {
    let mut end = End::new(2);
    let options = ListenOptions::default();
    let first = end.tcp.listen(SERVER, &options).unwrap();
    assert!(end.tcp.close_listener(first));
    let second = end.tcp.listen(SERVER, &options).unwrap();
    assert_eq!(first.slot(), second.slot(), "the place is used again");
    assert!(first != second && !end.tcp.close_listener(first), "a name that was kept too long closes nothing");
    let mut script = Script::new(end);
    let (_, answers) = script.next(SYN, b"");
    assert_eq!(answers[0].flags, SYN | ACK);
    script.ack = answers[0].seq + 1;
    script.next(ACK, b"");
    assert_eq!(script.end.events, [TcpEvent::Connected { listener: Some(second) }]);
}

/// A handshake that outlives its listener does not count for the next one.
#[test]
fn next_listener_in_the_place_has_its_whole_backlog() {
    let mut script = listening(&ListenOptions { backlog: 1, ..ListenOptions::default() });
    let first = script.end.tcp.listeners.slots[0].id;
    for round in 0..70_000_u32 {
        assert!(script.end.tcp.close_listener(if round == 0 { first } else { script.end.tcp.listeners.slots[0].id }));
        script.end.tcp.listen(SERVER, &ListenOptions::default()).unwrap();
        assert_ne!(script.end.tcp.listeners.slots[0].id.0, u32::MAX, "that is nobody's name");
    }
    script.next(SYN, b"");
    assert_eq!(script.end.tcp.listeners.slots[0].embryonic, 1);
    let id = script.end.tcp.listeners.slots[0].id;
    assert!(script.end.tcp.close_listener(id));
    script.end.tcp.listen(SERVER, &ListenOptions::default()).unwrap();
    assert_eq!((script.end.tcp.listeners.slots[0].embryonic, script.end.tcp.len()), (0, 0));
}

#[test]
fn same_address_is_listened_at_once() {
    let mut script = listening(&ListenOptions::default());
    let again = script.end.tcp.listen(SERVER, &ListenOptions::default());
    assert_eq!(again, Err(ListenError::AddressInUse(SERVER)));
}

/// RFC 9293 3.9.1.1 (MUST-42). A listener on the address itself takes precedence over one on all
/// addresses.
#[test]
fn port_is_listened_at_by_several_at_addresses_of_their_own() {
    let mut script = listening(&ListenOptions::default());
    let tcp = &mut script.end.tcp;
    let at = |ip: Ipv4Addr| SocketAddrV4::new(ip, SERVER.port());
    let (second, third) = (at(Ipv4Addr::new(10, 0, 0, 3)), at(Ipv4Addr::new(10, 0, 0, 4)));
    let first = tcp.listeners.find(SERVER);
    assert_eq!(tcp.listeners.find(second), None);
    tcp.listen(second, &ListenOptions::default()).unwrap();
    tcp.listen(at(Ipv4Addr::UNSPECIFIED), &ListenOptions::default()).unwrap();
    assert_eq!(tcp.listeners.find(SERVER), first);
    let found = [SERVER, second, third].map(|local| tcp.listeners.find(local).unwrap());
    assert!(found[0] != found[1] && found[1] != found[2] && found[0] != found[2], "{found:?}");
}

/// Linux `inet_csk_bind_conflict`: all or none.
#[test]
fn address_is_shared_where_all_that_listen_there_say_so() {
    let (shared, alone) = (ListenOptions { reuse_port: true, ..Default::default() }, ListenOptions::default());
    let mut tcp = listening(&shared).end.tcp;
    assert_eq!(tcp.listen(SERVER, &alone), Err(ListenError::AddressInUse(SERVER)));
    let second = tcp.listen(SERVER, &shared).unwrap();
    assert_ne!(tcp.listen(SERVER, &shared).unwrap(), second);
    let mut tcp = listening(&alone).end.tcp;
    assert_eq!(tcp.listen(SERVER, &shared), Err(ListenError::AddressInUse(SERVER)));
}

#[test]
fn flow_is_always_the_same_sharers_and_each_gets_a_third_of_them() {
    let shared = ListenOptions { reuse_port: true, ..Default::default() };
    let mut script = listening(&shared);
    let tcp = &mut script.end.tcp;
    let others = [(); 2].map(|()| tcp.listen(SERVER, &shared).unwrap());
    let of = |tcp: &Tcp<_>, port| {
        let flow = Flow { local: SERVER, remote: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), port) };
        tcp.listeners.choose(flow).unwrap() as usize
    };
    let mut taken = [0; 3];
    (1..=3_000).for_each(|port| taken[of(tcp, port)] += 1);
    assert!(taken.iter().all(|&count| (850..1_150).contains(&count)), "{taken:?}");
    assert!((1..=3_000).all(|port| of(tcp, port) == of(tcp, port)));
    // The first in the table goes, and the others stay.
    let first = tcp.listeners.slots[tcp.listeners.find(SERVER).unwrap()].id;
    assert!(tcp.close_listener(first) && !tcp.close_listener(first));
    let mut taken = [0; 3];
    (1..=1_000).for_each(|port| taken[of(tcp, port)] += 1);
    assert!(taken[0] == 0 && taken[1] > 400 && taken[2] > 400, "{taken:?}");
    assert!(others.iter().all(|&id| tcp.close_listener(id)));
    assert_eq!(tcp.listeners.find(SERVER), None);
}
