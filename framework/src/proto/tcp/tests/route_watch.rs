//! Lost paths and their return.

use super::line::Line;
use super::*;

/// The link comes back, and the machine gets the event.
fn find_way(line: &mut Line) {
    line.wire.is_cut = false;
    let changes = line.now.as_nanos();
    line.tcp.follow_routes(changes, || 1500);
    line.tick();
}

#[test]
fn data_without_a_way_is_not_sent_and_leaves_when_there_is_one() {
    let mut line = Line::new();
    line.wire.is_cut = true;
    line.send(100);
    let (id, now) = (line.id(), line.now);
    assert_eq!(line.tcp.info(id, now).map(|info| (info.bytes_sent, info.segments_out)), Some((0, 0)));
    assert!(line.tcp.has_unsent(id) && line.tcp.waits_for_route(id).is_some());
    line.after_s(100);
    find_way(&mut line);
    assert_eq!(line.sent(), ["0+100 ack 0 PSH"]);
    assert!(line.tcp.waits_for_route(id).is_none());
    line.ack(100);
    assert_eq!(line.tcp.chunks(), 0);
}

#[test]
fn change_of_ways_moves_nobody_who_had_one() {
    let mut line = Line::new();
    line.send(100);
    line.sent();
    find_way(&mut line);
    assert!(line.sent().is_empty());
}

#[test]
fn segment_that_was_to_be_sent_again_leaves_with_the_way_and_its_timer_begins_anew() {
    let mut line = Line::new();
    line.send(100);
    line.sent();
    line.wire.is_cut = true;
    line.after_s(50);
    assert!(line.connection().clock.backoff > 4);
    find_way(&mut line);
    assert_eq!(line.sent(), ["0+100 ack 0 PSH"]);
    line.after_s(3);
    assert!(!line.sent().is_empty(), "the first after the outage may get lost as well");
}

#[test]
fn connection_without_a_way_is_given_up_as_one_whose_peer_is_silent() {
    let mut line = Line::new();
    line.wire.is_cut = true;
    line.send(100);
    line.after_s(1_000);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::TimedOut)]);
    assert_eq!(line.tcp.chunks(), 0);
}

#[test]
fn user_timeout_counts_data_that_finds_no_way() {
    let mut line = Line::with(&ConnectionOptions { user_timeout: Some(Duration::from_secs(5)), ..line::options() });
    line.wire.is_cut = true;
    line.send(100);
    line.after_s(6);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::TimedOut)]);
}

#[test]
fn syn_leaves_with_the_way_and_its_round_trip_is_that_of_the_network() {
    let mut line = Line::new();
    line.wire.is_cut = true;
    let flow = Flow { local: CLIENT, remote: SocketAddrV4::new(*SERVER.ip(), 81) };
    let id = line.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), line.now, &mut line.wire).unwrap();
    line.after_ms(900);
    find_way(&mut line);
    assert_eq!(line.wire.sent.len(), 1);
    let (syn, _) = line.wire.sent.remove(0);
    assert!(syn.syn.is_some());
    line.after_ms(10);
    let answer = Segment {
        seq: Seq(7),
        ack: syn.seq + 1,
        wnd: 1000,
        flags: crate::wire::tcp::TcpFlags::SYN | crate::wire::tcp::TcpFlags::ACK,
        len: 0,
        timestamps: None,
        sack_count: 0,
        sacks: [Range::default(); SACK_BLOCKS_MAX],
        syn: SynOptions::default(),
        ce: false,
    };
    line.tcp
        .receive(&Arrival { flow, segment: answer }, None, |_, _| AcceptDecision::Yes, line.now, &mut line.wire)
        .unwrap();
    let srtt = line.tcp.info(id, line.now).unwrap().srtt;
    assert!(srtt <= Duration::from_millis(11), "{srtt}");
}

/// A connection to `port` of the server, opened now.
fn call(line: &mut Line, options: &ConnectionOptions, port: u16) {
    let flow = Flow { local: CLIENT, remote: SocketAddrV4::new(*SERVER.ip(), port) };
    line.tcp.connect(flow, options, ConsumerId(1), line.now, &mut line.wire).unwrap();
}

#[test]
fn call_that_finds_no_way_says_so_once_and_ends_by_that_name() {
    let user_timeout = Some(Duration::from_secs(5));
    for (options, after_s) in [(line::options(), 600), (ConnectionOptions { user_timeout, ..line::options() }, 6)] {
        let mut line = Line::new();
        line.wire.is_cut = true;
        call(&mut line, &options, 81);
        line.tick();
        assert_eq!(line.events, [TcpEvent::NoRoute], "at once");
        // Paths change, but none leads there.
        for changes in 1..4 {
            line.tcp.follow_routes(changes, || 1500);
            line.after_ms(500);
        }
        line.after_s(after_s);
        assert_eq!(line.events, [TcpEvent::NoRoute, TcpEvent::Closed(CloseReason::NoRoute)]);
    }
}

#[test]
fn call_that_has_left_and_is_not_answered_ends_by_that_name() {
    let mut line = Line::new();
    call(&mut line, &line::options(), 81);
    line.after_s(600);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::NoAnswer)]);
}

#[test]
fn call_whose_way_was_found_before_anybody_looked_says_nothing_of_it() {
    let mut line = Line::new();
    line.wire.is_cut = true;
    call(&mut line, &line::options(), 81);
    find_way(&mut line);
    assert!(!line.wire.sent.is_empty() && line.events.is_empty(), "{:?}", line.events);
}

#[test]
fn call_whose_way_is_lost_again_says_so_again() {
    let mut line = Line::new();
    line.wire.is_cut = true;
    call(&mut line, &line::options(), 81);
    line.tick();
    find_way(&mut line);
    line.wire.is_cut = true;
    line.after_s(10);
    assert_eq!(line.events, [TcpEvent::NoRoute, TcpEvent::NoRoute]);
}

/// The interface's MTU changes.
fn set_mtu(line: &mut Line, mtu: usize) {
    let changes = line.now.as_nanos();
    line.tcp.follow_routes(changes, || mtu);
    line.tick();
}

#[test]
fn interface_that_takes_less_has_segments_shortened_at_once() {
    let mut line = Line::new();
    set_mtu(&mut line, 1500);
    line.send(2_000);
    assert_eq!(line.sent(), ["0+1000 ack 0", "1000+1000 ack 0 PSH"]);
    line.after_ms(1);
    set_mtu(&mut line, 640);
    line.send(1_000);
    assert_eq!(line.sent(), ["2000+600 ack 0", "2600+400 ack 0 PSH"], "nothing is sent again for it");
    line.after_ms(1);
    set_mtu(&mut line, 1500);
    line.ack(3_000);
    line.send(700);
    assert_eq!(line.sent(), ["3000+600 ack 0", "3600+100 ack 0 PSH"], "more is tried after ten minutes");
}

#[test]
fn segment_that_was_too_long_for_the_interface_is_sent_again_in_shorter_ones() {
    let mut line = Line::new();
    set_mtu(&mut line, 1500);
    line.send(1_000);
    line.sent();
    line.after_ms(1);
    set_mtu(&mut line, 640);
    line.after_s(3);
    let sent = line.sent();
    assert!(!sent.is_empty() && sent.iter().all(|segment| !segment.contains("+1000")), "{sent:?}");
}

#[test]
fn interface_that_takes_more_than_it_did_or_enough_changes_nothing() {
    let mut line = Line::new();
    for mtu in [1500, 9000, 1040, 1041] {
        line.after_ms(1);
        set_mtu(&mut line, mtu);
    }
    assert_eq!((line.connection().snd.mss, line.connection().path.lowered_at_s), (1_000, 0));
}

#[test]
fn call_that_is_answered_after_the_interface_takes_less_sends_by_what_it_takes() {
    let mut line = Line::new();
    set_mtu(&mut line, 1500);
    call(&mut line, &line::options(), 81);
    line.after_ms(1);
    set_mtu(&mut line, 640);
    let slot = (0..4)
        .find(|&slot| line.tcp.connections.get(slot).is_some_and(|connection| connection.state == State::SynSent));
    assert_eq!(line.tcp.connections[slot.unwrap()].rcv.mss, 600);
}

/// The walk over all slots is split into ticks.
#[test]
fn all_who_found_no_way_are_tried_again_however_many_places_there_are() {
    let config = TcpConfig { connections_max: 3_000, chunks_max: 16, ..TcpConfig::default() };
    let mut line = Line::of(config, &line::options());
    line.wire.is_cut = true;
    for port in 1..2_500 {
        let flow = Flow { local: CLIENT, remote: SocketAddrV4::new(*SERVER.ip(), port) };
        let _ = line.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), line.now, &mut line.wire);
    }
    find_way(&mut line);
    (0..4).for_each(|_| line.tick());
    assert_eq!(line.wire.sent.len(), 2_498, "port 80 was taken");
}
