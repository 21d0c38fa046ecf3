//! SYN-RECEIVED: events that end a handshake begun by a peer, and events that do not.

use crate::proto::tcp::tests::script::{ACK, FIN, ISN, RST, SYN, Script, listening};
use crate::proto::tcp::tests::*;

fn half_open() -> Script {
    let mut script = listening(&ListenOptions::default());
    let (_, answers) = script.next(SYN, b"");
    script.ack = answers[0].seq + 1;
    script
}

#[test]
fn wrong_acknowledgment_is_answered_by_a_reset_and_changes_nothing() {
    let mut script = half_open();
    let (seq, ack) = (script.seq, script.ack + 1);
    let (dropped, answers) = script.send(ACK, seq, ack, b"");
    assert_eq!((dropped, answers[0].flags, answers[0].seq), (Some(TcpDrop::BadAck), RST, ack));
    assert_eq!(script.next(ACK, b"").0, None);
    assert_eq!(script.state(), Some(State::Established));
}

#[test]
fn exact_reset_returns_to_listen_without_a_word_to_the_app() {
    let mut script = half_open();
    let (seq, ack) = (script.seq, script.ack);
    assert_eq!(script.send(RST, seq, ack, b"").1, vec![]);
    assert!(script.end.tcp.is_empty() && script.end.events.is_empty());
}

#[test]
fn reset_in_the_window_that_is_not_exact_is_challenged() {
    let mut script = half_open();
    let (seq, ack) = (script.seq + 1, script.ack);
    let (dropped, answers) = script.send(RST, seq, ack, b"");
    assert_eq!((dropped, answers.len()), (Some(TcpDrop::BlindReset), 1));
    assert_eq!(script.end.tcp.len(), 1);
}

#[test]
fn syn_that_comes_again_is_answered_again() {
    let mut script = half_open();
    let (_, answers) = script.send(SYN, Seq(ISN), Seq(0), b"");
    assert_eq!((answers.len(), answers[0].flags), (1, SYN | ACK));
}

/// A forged client makes us send the named host no more than that.
#[test]
fn syn_that_comes_again_and_again_is_answered_a_few_times_in_a_second() {
    let mut script = half_open();
    let mut answers_in_a_second = || {
        let answers = (0..1_000).map(|_| script.send(SYN, Seq(ISN), Seq(0), b""));
        let (answered, dropped): (Vec<_>, Vec<_>) = answers.partition(|(_, answers)| !answers.is_empty());
        assert!(dropped.iter().all(|(why, _)| *why == Some(TcpDrop::SynRateExceeded)));
        script.pass(Duration::from_millis(1_100));
        answered.len()
    };
    assert_eq!([answers_in_a_second(), answers_in_a_second()], [10, 10]);
    let (_, answers) = script.next(ACK, b"");
    assert_eq!((answers, script.state()), (vec![], Some(State::Established)));
}

#[test]
fn peer_that_only_repeats_its_syn_does_not_keep_its_place() {
    let mut script = half_open();
    for _ in 0..220 {
        script.send(SYN, Seq(ISN), Seq(0), b"");
        script.pass(Duration::from_millis(900));
        if script.end.tcp.is_empty() {
            return;
        }
    }
    assert!(script.end.tcp.is_empty());
}

#[test]
fn new_syn_in_the_window_returns_to_listen() {
    let mut script = half_open();
    script.send(SYN, Seq(ISN + 50), Seq(0), b"");
    assert!(script.end.tcp.is_empty());
}

#[test]
fn handshake_that_ends_makes_room_in_the_backlog() {
    let mut script = listening(&ListenOptions { backlog: 1, ..ListenOptions::default() });
    for port in 1..=3 {
        script.to.local.set_port(port);
        (script.seq, script.ack) = (Seq(ISN), Seq(0));
        let (_, answers) = script.next(SYN, b"");
        script.ack = answers[0].seq + 1;
        if port == 1 {
            script.next(ACK, b"")
        } else {
            script.next(RST, b"")
        };
    }
    assert_eq!(script.end.tcp.tally().syn_cookies_sent, 0);
}

#[test]
fn fin_with_the_acknowledgment_closes_the_peers_side() {
    let mut script = half_open();
    script.next(ACK | FIN, b"bye");
    assert_eq!(script.end.bytes, b"bye");
    assert_eq!(script.state(), Some(State::CloseWait));
    assert!(matches!(script.end.events[..], [TcpEvent::Connected { .. }, .., TcpEvent::PeerClosed]));
}
