//! FINs: either side closes first, both at once, and a FIN before missing data (RFC 9293 3.6).

use crate::proto::tcp::tests::script::{ACK, FIN, RST, accepted, closed};
use crate::proto::tcp::tests::*;

#[test]
fn peer_closes_first() {
    let mut script = accepted();
    let (_, answers) = script.next(ACK | FIN, b"");
    assert_eq!(answers[0].ack, script.seq);
    assert_eq!(script.state(), Some(State::CloseWait));
    let fin = script.shutdown();
    assert!(fin[0].flags.contains(FIN));
    assert_eq!(script.state(), Some(State::LastAck));
    script.next(ACK, b"");
    assert_eq!(closed(&script), Some(CloseReason::Finished));
    assert!(script.end.tcp.is_empty(), "who closes last does not wait");
}

#[test]
fn we_close_first_and_wait() {
    let mut script = accepted();
    script.shutdown();
    assert_eq!(script.state(), Some(State::FinWait1));
    script.next(ACK, b"");
    assert_eq!(script.state(), Some(State::FinWait2));
    script.next(ACK, b"late news");
    assert_eq!(script.end.bytes, b"late news", "the peer may still send");
    let (_, answers) = script.next(ACK | FIN, b"");
    assert_eq!(answers[0].ack, script.seq);
    assert_eq!(script.state(), Some(State::TimeWait));
    assert_eq!(closed(&script), Some(CloseReason::Finished));
    script.pass(Duration::from_secs(61));
    script.pass(Duration::from_secs(1));
    assert!(script.end.tcp.is_empty());
}

#[test]
fn fin_that_acknowledges_ours_goes_straight_to_time_wait() {
    let mut script = accepted();
    script.shutdown();
    script.next(ACK | FIN, b"");
    assert_eq!(script.state(), Some(State::TimeWait));
}

#[test]
fn fins_that_cross_wait_on_both_sides() {
    let mut script = accepted();
    let ack = script.ack;
    script.shutdown();
    let seq = script.seq;
    script.send(ACK | FIN, seq, ack, b"");
    assert_eq!(script.state(), Some(State::Closing));
    script.send(ACK, seq + 1, ack + 1, b"");
    assert_eq!(script.state(), Some(State::TimeWait));
}

#[test]
fn fin_before_data_that_is_missing_waits_for_it() {
    let mut script = accepted();
    let (seq, ack) = (script.seq, script.ack);
    script.send(ACK | FIN, seq + 3, ack, b"");
    assert_eq!(script.state(), Some(State::Established));
    let (_, answers) = script.send(ACK, seq, ack, b"abc");
    assert_eq!(answers.last().unwrap().ack, seq + 4);
    assert_eq!((script.state(), &script.end.bytes[..]), (Some(State::CloseWait), &b"abc"[..]));
}

#[test]
fn fin_that_comes_again_is_acknowledged_and_told_once() {
    let mut script = accepted();
    let (seq, ack) = (script.seq, script.ack);
    for _ in 0..3 {
        assert_eq!(script.send(ACK | FIN, seq, ack, b"").1.last().unwrap().ack, seq + 1);
    }
    let reported = script.end.events.iter().filter(|event| **event == TcpEvent::PeerClosed).count();
    assert_eq!(reported, 1);
}

#[test]
fn fin_beyond_the_window_is_none() {
    let mut script = accepted();
    let (seq, ack) = (script.seq + (1 << 20), script.ack);
    script.send(ACK | FIN, seq, ack, b"");
    assert_eq!(script.state(), Some(State::Established));
}

#[test]
fn data_after_the_peers_fin_is_not_delivered() {
    let mut script = accepted();
    script.next(ACK | FIN, b"");
    script.next(ACK, b"more");
    assert!(script.end.bytes.is_empty());
}

#[test]
fn data_for_an_app_that_is_gone_is_answered_by_a_reset() {
    let mut script = accepted();
    let (id, now) = (script.id(), script.end.now);
    script.end.tcp.close(id, now, &mut script.end.sent).unwrap();
    script.answers();
    let (_, answers) = script.next(ACK, b"more");
    assert!(answers.iter().any(|answer| answer.flags.contains(RST)));
    assert_eq!(closed(&script), Some(CloseReason::Aborted));
}

#[test]
fn reset_in_last_ack_tells_of_no_error() {
    let mut script = accepted();
    script.next(ACK | FIN, b"");
    let ack = script.ack;
    script.shutdown();
    let seq = script.seq;
    script.send(RST, seq, ack, b"");
    assert_eq!(closed(&script), Some(CloseReason::Finished));
}
