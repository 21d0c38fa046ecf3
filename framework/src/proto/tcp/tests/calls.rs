//! Calls of the app: the effect of each, and its errors.

use super::line::{self, Line};
use super::script::{ACK, FIN, RST, SYN, accepted, calling, closed};
use super::*;
use crate::proto::tcp::state::connection::State;

#[test]
fn name_of_a_dead_connection_finds_nothing() {
    let mut script = accepted();
    script.next(RST, b"");
    let (id, now, sent) = (script.id(), script.end.now, &mut script.end.sent);
    let tcp = &mut script.end.tcp;
    assert_eq!(tcp.send(id, b"x".to_vec(), now, sent), Err((SendError::NotFound, b"x".to_vec())));
    assert_eq!(tcp.send_copy(id, b"x", |_| None, now, sent), Err(SendError::NotFound));
    assert_eq!(tcp.shutdown(id, now, sent), Err(CallError::NotFound));
    assert_eq!(tcp.close(id, now, sent), Err(CallError::NotFound));
    assert_eq!(tcp.abort(id, now, sent), Err(CallError::NotFound));
    assert_eq!(tcp.pause(id), Err(CallError::NotFound));
    assert_eq!(tcp.resume(id), Err(CallError::NotFound));
    assert_eq!(tcp.set_options(id, &ConnectionOptions::default(), now, sent), Err(CallError::NotFound));
    assert!(tcp.options(id).is_none() && tcp.info(id, now).is_none() && tcp.next_data(id).is_none());
    assert!(sent.0.is_empty());
}

#[test]
fn send_before_the_handshake_and_after_the_close_gives_the_data_back() {
    let mut script = calling();
    let (id, now) = (script.id(), script.end.now);
    let refused = script.end.tcp.send(id, b"x".to_vec(), now, &mut script.end.sent);
    assert_eq!(refused, Err((SendError::NotConnected, b"x".to_vec())));
    assert_eq!(script.end.tcp.shutdown(id, now, &mut script.end.sent), Err(CallError::NotConnected));
    script.next(SYN | ACK, b"");
    script.shutdown();
    let refused = script.end.tcp.send(id, b"x".to_vec(), now, &mut script.end.sent);
    assert_eq!(refused, Err((SendError::Closed, b"x".to_vec())));
    assert_eq!(script.end.tcp.shutdown(id, now, &mut script.end.sent), Ok(()), "again is no error");
}

#[test]
fn send_buffer_holds_what_it_says() {
    let mut script = accepted();
    let (id, now) = (script.id(), script.end.now);
    let options = ConnectionOptions { send_buffer: 10, ..ConnectionOptions::default() };
    script.end.tcp.set_options(id, &options, now, &mut script.end.sent).unwrap();
    let tcp = &mut script.end.tcp;
    let too_long = tcp.send(id, vec![0; 11], now, &mut script.end.sent).unwrap_err().0;
    assert_eq!(too_long, SendError::TooLong { limit: 10 });
    tcp.send(id, vec![0; 6], now, &mut script.end.sent).unwrap();
    assert_eq!(tcp.send(id, vec![0; 6], now, &mut script.end.sent).unwrap_err().0, SendError::Full);
    assert_eq!(tcp.send_copy(id, &[0; 6], |bytes| Some(bytes.to_vec()), now, &mut script.end.sent), Ok(4));
    assert_eq!(tcp.send_copy(id, &[0; 6], |_| None, now, &mut script.end.sent), Err(SendError::Full));
}

#[test]
fn copies_need_a_buffer() {
    let mut script = accepted();
    let (id, now) = (script.id(), script.end.now);
    let refused = script.end.tcp.send_copy(id, b"x", |_| None, now, &mut script.end.sent);
    assert_eq!(refused, Err(SendError::PoolEmpty));
}

#[test]
fn connect_to_what_is_no_host_or_taken_or_out_of_range_is_refused() {
    let mut end = End::new(1);
    let now = end.now;
    let options = ConnectionOptions::default();
    let mut connect = |local: SocketAddrV4, remote: SocketAddrV4, options: &ConnectionOptions| {
        end.tcp.connect(Flow { local, remote }, options, ConsumerId(1), now, &mut end.sent).map(|_| ())
    };
    let nowhere = SocketAddrV4::new(*SERVER.ip(), 0);
    assert_eq!(connect(CLIENT, nowhere, &options), Err(ConnectError::BadAddress(nowhere)));
    let group = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 1), 80);
    assert_eq!(connect(CLIENT, group, &options), Err(ConnectError::BadAddress(group)));
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7);
    assert_eq!(connect(any, SERVER, &options), Err(ConnectError::BadAddress(any)));
    let zero = ConnectionOptions { ttl: 0, ..options };
    assert!(matches!(connect(CLIENT, SERVER, &zero), Err(ConnectError::Option(_))));
    assert_eq!(connect(CLIENT, SERVER, &options), Ok(()));
    assert_eq!(connect(CLIENT, SERVER, &options), Err(ConnectError::AddressInUse { local: CLIENT, remote: SERVER }));
}

#[test]
fn port_zero_takes_free_ports_until_there_is_none() {
    let config = TcpConfig {
        ports: crate::proto::PortRange::new(100, 103).unwrap(),
        connections_max: 8,
        ..TcpConfig::default()
    };
    let mut end = End { tcp: Tcp::new(config, HashSeed::new(5, 6)).unwrap(), ..End::new(1) };
    end.tcp.listen(SocketAddrV4::new(*CLIENT.ip(), 102), &ListenOptions::default()).unwrap();
    let flow = Flow { local: SocketAddrV4::new(*CLIENT.ip(), 0), remote: SERVER };
    let now = end.now;
    let mut connect = || {
        let id = end.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut end.sent)?;
        Ok(end.tcp.info(id, now).unwrap().local.port())
    };
    let mut ports = [connect().unwrap(), connect().unwrap(), connect().unwrap()];
    ports.sort_unstable();
    assert_eq!(ports, [100, 101, 103]);
    assert_eq!(connect(), Err(ConnectError::NoPort { remote: SERVER }));
}

#[test]
fn full_table_refuses_a_call() {
    let mut end = End::new(1);
    let now = end.now;
    for port in 0..=8 {
        let flow = Flow { local: SocketAddrV4::new(*CLIENT.ip(), 1000 + port), remote: SERVER };
        let result = end.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut end.sent);
        assert_eq!(result.err(), (port == 8).then_some(ConnectError::TooMany { limit: 8 }));
    }
}

#[test]
fn abort_resets_the_peer_and_tells_the_app() {
    let mut script = accepted();
    let (id, now, seq) = (script.id(), script.end.now, script.ack);
    script.end.tcp.abort(id, now, &mut script.end.sent).unwrap();
    let answers = script.answers();
    assert!(answers[0].flags.contains(RST) && answers[0].seq == seq);
    assert_eq!(closed(&script), Some(CloseReason::Aborted));
}

/// More of them than resets can wait.
#[test]
fn resets_of_all_connections_leave_though_they_find_no_room_at_first() {
    const COUNT: usize = 200;
    let config = TcpConfig { connections_max: COUNT, chunks_max: 1024, ..TcpConfig::default() };
    let Line { mut tcp, mut wire, now, .. } = Line::of(config, &line::options());
    for port in 1..COUNT as u16 {
        let flow = Flow { local: SocketAddrV4::new(*CLIENT.ip(), 1000 + port), remote: SERVER };
        let id = tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut wire).unwrap();
        tcp.connections[id.slot() as u32].state = State::Established;
    }
    (wire.sent, wire.room) = (Vec::new(), 0);
    let (mut aborted, mut next) = tcp.abort_from(0, usize::MAX, now, &mut wire);
    assert_eq!(tcp.abort_from(next.unwrap(), usize::MAX, now, &mut wire), (0, next), "who would not be told stands");
    while let Some(first) = next {
        let count;
        wire.room = 10;
        (count, next) = tcp.abort_from(first, usize::MAX, now, &mut wire);
        aborted += count;
    }
    let reported: std::collections::HashSet<_> = wire.sent.iter().map(|(reset, _)| reset.flow.local.port()).collect();
    assert_eq!((aborted, reported.len(), wire.sent.len()), (COUNT, COUNT, COUNT));
    assert_eq!(tcp.tally().resets_lost, 0);
}

#[test]
fn abort_of_a_call_sends_nothing() {
    let mut script = calling();
    let (id, now) = (script.id(), script.end.now);
    script.end.tcp.abort(id, now, &mut script.end.sent).unwrap();
    assert!(script.answers().is_empty());
    assert_eq!(closed(&script), Some(CloseReason::Aborted));
}

#[test]
fn close_with_no_time_to_linger_resets() {
    let mut script = accepted();
    let (id, now) = (script.id(), script.end.now);
    let options = ConnectionOptions { linger: Linger::For(Duration::ZERO), ..ConnectionOptions::default() };
    script.end.tcp.set_options(id, &options, now, &mut script.end.sent).unwrap();
    assert_eq!(script.end.tcp.options(id), Some(options));
    script.end.tcp.close(id, now, &mut script.end.sent).unwrap();
    assert!(script.answers().iter().any(|answer| answer.flags.contains(RST)));
}

#[test]
fn close_with_unread_data_resets() {
    let mut script = accepted();
    let (id, now) = (script.id(), script.end.now);
    script.end.tcp.pause(id).unwrap();
    script.next(ACK, b"unread");
    script.end.tcp.close(id, now, &mut script.end.sent).unwrap();
    assert!(script.answers().iter().any(|answer| answer.flags.contains(RST)));
    assert_eq!(closed(&script), Some(CloseReason::Aborted));
}

#[test]
fn paused_app_gets_its_data_when_it_resumes_and_the_end_after_it() {
    let mut script = accepted();
    let id = script.id();
    script.end.tcp.pause(id).unwrap();
    script.next(ACK, b"wait ");
    script.next(ACK | FIN, b"for me");
    assert!(script.end.bytes.is_empty() && !script.end.events.contains(&TcpEvent::PeerClosed));
    script.end.tcp.resume(id).unwrap();
    script.answers();
    assert_eq!(script.end.bytes, b"wait for me");
    assert_eq!(script.end.events[1..], [TcpEvent::Readable, TcpEvent::PeerClosed]);
}

#[test]
fn options_come_back_as_they_were_set() {
    let options = ConnectionOptions {
        nodelay: false,
        quickack: true,
        keepalive: Some(Keepalive::default()),
        user_timeout: Some(Duration::from_secs(9)),
        linger: Linger::For(Duration::from_secs(2)),
        congestion: Congestion::Reno,
        rto_min: Duration::from_millis(5),
        pacing_rate: Some(1_000_000),
        mss_max: Some(900),
        ttl: 3,
        tos: 0x10,
        ..ConnectionOptions::default()
    };
    let mut script = accepted();
    let (id, now) = (script.id(), script.end.now);
    script.end.tcp.set_options(id, &options, now, &mut script.end.sent).unwrap();
    assert_eq!(script.end.tcp.options(id), Some(options));
    let wrong = ConnectionOptions { receive_buffer: 0, ..options };
    assert!(matches!(script.end.tcp.set_options(id, &wrong, now, &mut script.end.sent), Err(CallError::Option(_))));
    assert_eq!(script.end.tcp.options(id), Some(options));
}
