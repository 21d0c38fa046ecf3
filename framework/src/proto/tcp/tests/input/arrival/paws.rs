//! Timestamps that are too old (RFC 7323 5).

use crate::proto::tcp::tests::script::{ACK, RST, accepted_with, closed};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::Timestamps;

const AT: u32 = 1000;

fn stamped(value: u32) -> Option<Timestamps> {
    Some(Timestamps { value, echo_reply: 0 })
}

#[test]
fn older_timestamp_is_refused_and_acknowledged() {
    let mut script = accepted_with(stamped(AT));
    script.timestamps = stamped(AT - 1);
    let (dropped, answers) = script.next(ACK, b"abc");
    assert_eq!((dropped, answers.len()), (Some(TcpDrop::PawsReject), 1));
    assert!(script.end.bytes.is_empty());
}

#[test]
fn segment_without_timestamp_is_dropped_in_silence_but_a_reset_counts() {
    let mut script = accepted_with(stamped(AT));
    script.timestamps = None;
    let (seq, ack) = (script.seq, script.ack);
    assert_eq!(script.send(ACK, seq, ack, b"abc"), (Some(TcpDrop::PawsReject), vec![]));
    script.send(RST, seq, ack, b"");
    assert_eq!(closed(&script), Some(CloseReason::Reset));
}

#[test]
fn reset_is_not_asked_for_its_age() {
    let mut script = accepted_with(stamped(AT));
    script.timestamps = stamped(AT - 500);
    script.next(RST, b"");
    assert_eq!(closed(&script), Some(CloseReason::Reset));
}

#[test]
fn after_24_days_of_silence_an_older_timestamp_is_believed() {
    let mut script = accepted_with(stamped(AT));
    script.end.now += Duration::from_secs(24 * 86_400 + 2);
    script.timestamps = stamped(AT - 1);
    script.next(ACK, b"abc");
    assert_eq!(script.end.bytes, b"abc");
}

#[test]
fn clock_that_goes_around_is_no_reason() {
    let mut script = accepted_with(stamped(u32::MAX));
    script.timestamps = stamped(3);
    script.next(ACK, b"abc");
    assert_eq!(script.end.bytes, b"abc");
}

#[test]
fn segment_out_of_order_does_not_move_ts_recent() {
    let mut script = accepted_with(stamped(AT));
    script.timestamps = stamped(AT + 10);
    let (seq, ack) = (script.seq + 3, script.ack);
    script.send(ACK, seq, ack, b"def");
    script.timestamps = stamped(AT + 5);
    assert_eq!(script.next(ACK, b"abc").0, None);
}
