//! Numbers outside of the window, and segments without an acknowledgment (RFC 9293 3.10.7.4).

use crate::proto::tcp::tests::script::{ACK, accepted};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::TcpFlags;

#[test]
fn old_data_is_acknowledged_and_not_delivered_again() {
    let mut script = accepted();
    let seq = script.seq;
    script.next(ACK, b"abc");
    let ack = script.ack;
    let (dropped, answers) = script.send(ACK, seq, ack, b"abc");
    assert_eq!((dropped, answers[0].ack), (Some(TcpDrop::NotAcceptable), seq + 3));
    assert_eq!(script.end.bytes, b"abc");
}

#[test]
fn data_beyond_the_window_is_acknowledged_and_not_kept() {
    let mut script = accepted();
    let (seq, ack) = (script.seq + (1 << 20), script.ack);
    let (dropped, answers) = script.send(ACK, seq, ack, b"abc");
    assert_eq!((dropped, answers[0].ack), (Some(TcpDrop::NotAcceptable), script.seq));
    assert_eq!(script.end.tcp.chunks(), 0);
}

#[test]
fn keepalive_probes_are_answered_ten_a_second() {
    let mut script = accepted();
    let (seq, ack) = (script.seq - 1, script.ack);
    for second in 0..3 {
        script.end.now = Instant::ZERO + Duration::from_nanos((100 + 2 * second) << 30);
        let answers: usize = (0..3_000).map(|_| script.send(ACK, seq, ack, b"").1.len()).sum();
        assert_eq!(answers, 10);
    }
}

#[test]
fn segments_without_data_outside_the_window_are_answered_at_a_limited_rate() {
    let mut script = accepted();
    let (seq, ack) = (script.seq - 100, script.ack);
    let answers: usize = (0..5000).map(|_| script.send(ACK, seq, ack, b"").1.len()).sum();
    assert_eq!(answers, 10);
}

#[test]
fn segment_without_acknowledgment_is_dropped() {
    let mut script = accepted();
    assert_eq!(script.next(TcpFlags::PSH, b"x"), (Some(TcpDrop::BadFlags), vec![]));
}

#[test]
fn urgent_data_stays_in_line() {
    let mut script = accepted();
    script.next(ACK | TcpFlags::URG, b"abc");
    assert_eq!(script.end.bytes, b"abc");
}
