//! A connection goes from one machine to another that listens at the same port.

use super::script::{ACK, FIN, ISN, RST, SYN, Script, accepted_with, listening};
use super::*;
use crate::wire::tcp::Timestamps;

const STAMPS: Timestamps = Timestamps { value: 77, echo_reply: 0 };

/// The next machine gets what the pipeline makes of a connection that has left: a SYN, an
/// acknowledgment, the data and the FIN.
fn arrive(departed: &Departed, received: &[u8]) -> Script {
    arrive_without(0, false, departed, received)
}

/// The same, where the first bytes of the data, or the FIN, are lost on the way.
fn arrive_without(lost: usize, loses_end: bool, departed: &Departed, received: &[u8]) -> Script {
    let mut next = listening(&ListenOptions::default());
    // Its clock is another one.
    next.end.now += Duration::from_secs(1_000);
    let stamp = |(value, ours)| Timestamps { value, echo_reply: ours };
    next.timestamps = departed.timestamps.map(stamp);
    let first = departed.next - received.len() as u32;
    let ours = departed.timestamps.map_or(0, |(_, ours)| ours);
    let end = departed.next + u32::from(departed.is_peer_closed);
    next.end.tcp.expect_arriving(Some((departed.iss, ours, end)));
    let (dropped, answers) = next.send(SYN, first - 1, Seq(0), b"");
    next.end.tcp.expect_arriving(None);
    assert_eq!((dropped, answers[0].flags, answers[0].seq), (None, SYN | ACK, departed.iss));
    (next.seq, next.ack) = (first, departed.iss + 1);
    if departed.is_established {
        next.next(ACK, b"");
        next.seq += lost as u32;
        next.next(ACK, &received[lost..]);
    }
    if departed.is_peer_closed && !loses_end {
        next.next(ACK | FIN, b"");
    }
    next
}

#[test]
fn connection_goes_on_at_another_machine_with_its_numbers_and_its_data() {
    for timestamps in [None, Some(STAMPS)] {
        let mut script = accepted_with(timestamps);
        script.next(ACK, b"asked");
        let (id, now) = (script.id(), script.end.now);
        let departed = script.end.tcp.hand_over(id, now).unwrap();
        assert!(script.end.tcp.is_empty() && script.answers().is_empty(), "its peer is sent nothing");
        assert_eq!((departed.next, departed.is_established, departed.is_peer_closed), (script.seq, true, false));

        let mut next = arrive(&departed, b"asked");
        assert_eq!((next.state(), &next.end.bytes[..]), (Some(State::Established), &b"asked"[..]));
        let (dropped, answers) = next.next(ACK, b" again");
        assert_eq!((dropped, &next.end.bytes[..]), (None, &b"asked again"[..]));
        assert!(answers.iter().all(|answer| answer.ack == script.seq + 6 && answer.seq == departed.iss + 1));
        let stamp = answers.iter().find_map(|answer| answer.timestamps).map(|stamps| stamps.value);
        let ours = departed.timestamps.map(|(_, ours)| ours);
        assert!(stamp >= ours && stamp.is_some() == timestamps.is_some(), "{stamp:?} after {ours:?}");
    }
}

#[test]
fn connection_whose_acknowledged_data_is_lost_on_the_way_is_reset_a_second_later() {
    let mut script = accepted_with(None);
    script.next(ACK, b"asked");
    let departed = script.end.tcp.hand_over(script.id(), script.end.now).unwrap();
    let mut next = arrive_without(5, false, &departed, b"asked");
    next.next(ACK, b" again");
    let resets = |answers: Vec<Outgoing>| answers.iter().filter(|answer| answer.flags.contains(RST)).count();
    assert_eq!((resets(next.pass(Duration::from_millis(900))), next.state()), (0, Some(State::Established)));
    assert_eq!(resets(next.pass(Duration::from_millis(200))), 1);
    assert_eq!((next.state(), &next.end.bytes[..]), (None, &b""[..]));

    let mut whole = arrive(&departed, b"asked");
    assert_eq!((resets(whole.pass(Duration::from_secs(2))), whole.state()), (0, Some(State::Established)));
}

/// Each accepted connection of many a server has keepalive, and then another idle time.
#[test]
fn keepalive_puts_the_reset_of_a_connection_whose_data_is_lost_off_for_no_time() {
    let mut script = accepted_with(None);
    script.next(ACK, b"asked");
    let departed = script.end.tcp.hand_over(script.id(), script.end.now).unwrap();
    let mut next = arrive_without(5, false, &departed, b"asked");
    next.next(ACK, b" again");
    for idle in [7_200, 300] {
        let keepalive = Keepalive { idle: Duration::from_secs(idle), ..Keepalive::default() };
        let options = ConnectionOptions { keepalive: Some(keepalive), ..ConnectionOptions::default() };
        let (id, now) = (next.id(), next.end.now);
        next.end.tcp.set_options(id, &options, now, &mut next.end.sent).unwrap();
    }
    next.end.now += Duration::from_millis(1_100);
    assert!(next.answers().iter().any(|answer| answer.flags.contains(RST)));
}

#[test]
fn connection_whose_end_is_lost_on_the_way_is_reset_too() {
    let mut script = accepted_with(None);
    script.next(ACK | FIN, b"all");
    let departed = script.end.tcp.hand_over(script.id(), script.end.now).unwrap();
    let mut next = arrive_without(0, true, &departed, b"all");
    next.end.now += Duration::from_millis(1_100);
    assert!(next.answers().iter().any(|answer| answer.flags.contains(RST)));
}

#[test]
fn fin_of_the_peer_goes_with_its_connection() {
    let mut script = accepted_with(None);
    script.next(ACK | FIN, b"all");
    let (id, now) = (script.id(), script.end.now);
    let departed = script.end.tcp.hand_over(id, now).unwrap();
    assert!(departed.is_peer_closed && departed.next + 1 == script.seq);
    let next = arrive(&departed, b"all");
    assert_eq!((next.state(), &next.end.bytes[..]), (Some(State::CloseWait), &b"all"[..]));
}

#[test]
fn handshakes_of_a_listener_go_before_it_is_closed() {
    let mut script = listening(&ListenOptions::default());
    script.next(SYN, b"");
    let listener = script.end.tcp.listeners.slots[script.end.tcp.listeners.find(SERVER).unwrap()].id;
    let departed = script.end.tcp.hand_over_handshakes(listener, script.end.now);
    assert_eq!((departed.len(), departed[0].is_established, departed[0].next), (1, false, Seq(ISN + 1)));
    assert!(script.end.tcp.close_listener(listener) && script.end.tcp.is_empty());
    script.to.local.set_port(9);
    assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").1, vec![], "its peer calls again, and another answers");
    script.end.now += Duration::from_secs(10);
    assert!(script.send(SYN, Seq(7), Seq(0), b"").1[0].flags.contains(RST));
    let mut next = arrive(&departed[0], b"");
    next.next(ACK, b"first");
    assert_eq!((next.state(), &next.end.bytes[..]), (Some(State::Established), &b"first"[..]));
}

/// The SYN comes again, and the last frame of a handshake does not: its peer would wait for ever.
#[test]
fn listener_that_another_process_opens_again_leaves_syns_unanswered_and_resets_open_handshakes() {
    let mut script = listening(&ListenOptions::default());
    script.next(SYN, b"");
    let listener = script.end.tcp.listeners.slots[script.end.tcp.listeners.find(SERVER).unwrap()].id;
    script.end.tcp.silence_syns(listener, script.end.now);
    assert!(script.end.tcp.close_listener(listener));
    assert!(script.next(ACK, b"").1[0].flags.contains(RST));
    script.to.local.set_port(9);
    assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").1, vec![]);
}

#[test]
fn late_segments_of_a_connection_that_has_left_get_no_reset_for_ten_seconds() {
    let mut script = accepted_with(None);
    let (id, now) = (script.id(), script.end.now);
    script.end.tcp.hand_over(id, now).unwrap();
    assert_eq!(script.next(ACK, b"late"), (Some(TcpDrop::AfterClose), vec![]));
    script.end.now += Duration::from_secs(10);
    let (_, answers) = script.next(ACK, b"too late");
    assert_eq!(answers[0].flags, RST);
}

#[test]
fn connection_that_has_sent_stays() {
    let mut script = accepted_with(None);
    let (id, now) = (script.id(), script.end.now);
    script.shutdown();
    assert_eq!(script.end.tcp.hand_over(id, now), None);
    assert!(!script.end.tcp.is_empty());
}
