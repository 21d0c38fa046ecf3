//! Resets and SYNs that an attacker may have guessed, and the challenges that answer them (RFC
//! 5961).

use crate::proto::tcp::tests::script::{ACK, RST, SYN, accepted, closed};
use crate::proto::tcp::tests::*;

#[test]
fn exact_reset_closes() {
    let mut script = accepted();
    assert_eq!(script.next(RST, b""), (Some(TcpDrop::AfterClose), vec![]));
    assert_eq!(closed(&script), Some(CloseReason::Reset));
    assert!(script.end.tcp.is_empty());
}

#[test]
fn reset_in_the_window_is_challenged_and_the_connection_stays() {
    let mut script = accepted();
    let (seq, ack) = (script.seq + 1, script.ack);
    let (dropped, answers) = script.send(RST, seq, ack, b"");
    assert_eq!((dropped, answers[0].flags, answers[0].ack), (Some(TcpDrop::BlindReset), ACK, script.seq));
    assert_eq!(script.state(), Some(State::Established));
}

#[test]
fn reset_outside_the_window_is_dropped_in_silence() {
    let mut script = accepted();
    for distance in [1 << 20, u32::MAX] {
        let (seq, ack) = (script.seq + distance, script.ack);
        assert_eq!(script.send(RST, seq, ack, b""), (Some(TcpDrop::NotAcceptable), vec![]));
    }
}

#[test]
fn syn_anywhere_is_challenged() {
    let mut script = accepted();
    for distance in [0, 1, 1 << 20, u32::MAX] {
        let seq = script.seq + distance;
        let (_, answers) = script.send(SYN, seq, Seq(0), b"");
        assert_eq!((answers.len(), answers[0].flags), (1, ACK), "{distance}");
    }
    assert_eq!((script.state(), script.end.tcp.tally().challenge_acks), (Some(State::Established), 4));
}

#[test]
fn challenges_are_limited() {
    let mut script = accepted();
    let seq = script.seq;
    let answers: usize = (0..5000).map(|_| script.send(SYN, seq, Seq(0), b"").1.len()).sum();
    assert_eq!((answers, script.end.tcp.tally().challenge_acks_suppressed), (10, 4990));
    assert_eq!(script.pass(Duration::from_millis(1_100)), []);
    assert_eq!(script.send(SYN, seq, Seq(0), b"").1.len(), 1);
}

#[test]
fn peer_that_restarted_gets_through_by_the_challenge() {
    let mut script = accepted();
    let (_, answers) = script.send(SYN, Seq(77), Seq(0), b"");
    // The answer of a host without the connection to our acknowledgment.
    script.send(RST, answers[0].ack, Seq(0), b"");
    assert_eq!(closed(&script), Some(CloseReason::Reset));
    let (_, answers) = script.send(SYN, Seq(77), Seq(0), b"");
    assert_eq!((answers[0].flags, answers[0].ack), (SYN | ACK, Seq(78)));
}
