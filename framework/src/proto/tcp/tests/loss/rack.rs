//! RACK-TLP (RFC 8985): lost and late segments, and probes.

use crate::proto::tcp::state::connection::{LossFlags, Micros, Recovery, RetransmitTimer};
use crate::proto::tcp::tests::sender::{FIRST, MSS, Sender};
use crate::proto::tcp::tests::*;

/// Linux may acknowledge several segments out of order at once. The option begins with the latest
/// block, so it does not say in which order the blocks came.
#[test]
fn blocks_of_one_acknowledgment_are_no_reordering() {
    let mut sender = Sender::with_sack();
    sender.send(8);
    sender.wait_ms(10);
    sender.ack(0, &[(6, 7), (4, 5), (2, 3)]);
    assert!(!sender.connection().has(LossFlags::REORDERING_SEEN));
    assert_eq!((sender.marks().as_str(), sender.recovery()), ("LLSLSLS.", Recovery::Fast));
}

#[test]
fn three_segments_behind_it_make_one_lost() {
    let mut sender = Sender::with_sack();
    sender.send(6);
    sender.wait_ms(10);
    sender.ack(0, &[(1, 2)]);
    sender.ack(0, &[(1, 3)]);
    assert_eq!((sender.marks().as_str(), sender.recovery()), (".SS...", Recovery::Open));
    sender.ack(0, &[(1, 4)]);
    assert_eq!((sender.marks().as_str(), sender.recovery()), ("LSSS..", Recovery::Fast));
    assert_eq!(sender.resend(), [0]);
}

#[test]
fn one_segment_behind_it_makes_one_lost_after_a_quarter_of_a_round_trip() {
    let mut sender = Sender::with_sack();
    sender.send(2);
    sender.wait_ms(10);
    sender.ack(0, &[(1, 2)]);
    let connection = sender.connection();
    assert_eq!((connection.clock.timer, connection.sack.lost_len), (RetransmitTimer::Reordering, 0));
    assert_eq!(connection.clock.timer_at.since(sender.now), Duration::from_micros(2_500));
    sender.now = connection.clock.timer_at;
    sender.context(|cx| cx.on_reordering());
    assert_eq!((sender.marks().as_str(), sender.recovery()), ("LS", Recovery::Fast));
    assert_eq!(sender.resend(), [0]);
}

#[test]
fn retransmission_that_is_lost_is_sent_once_more() {
    let mut sender = Sender::with_sack();
    sender.connection_mut().congestion.cwnd = 100 * MSS;
    sender.send(10);
    sender.wait_ms(10);
    sender.ack(0, &[(1, 10)]);
    assert_eq!(sender.resend(), [0]);
    sender.wait_ms(1);
    sender.send(2);
    sender.wait_ms(12);
    sender.ack(0, &[(1, 12)]);
    assert_eq!(sender.resend(), [0], "what was sent after it has arrived");
}

#[test]
fn segment_that_comes_late_makes_the_sender_wait() {
    let mut sender = Sender::with_sack();
    sender.send(5);
    sender.wait_ms(10);
    sender.ack(0, &[(2, 3)]);
    sender.ack(2 + 1, &[]);
    assert!(sender.connection().has(LossFlags::REORDERING_SEEN));
    sender.send(6);
    sender.wait_ms(10);
    sender.ack(5, &[(6, 11)]);
    assert_eq!(
        (sender.recovery(), sender.connection().sack.lost_len),
        (Recovery::Open, 0),
        "five behind it say nothing yet"
    );
}

#[test]
fn duplicates_widen_the_reordering_window_once_in_a_round_trip() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(10);
    sender.ack(2, &[]);
    (0..3).for_each(|_| _ = sender.ack(2, &[(0, 1)]));
    assert_eq!(sender.connection().reordering.wnd_mult, 2);
    sender.send(5);
    sender.ack(10, &[]);
    sender.ack(11, &[]);
    sender.ack(11, &[(0, 1)]);
    assert_eq!(sender.connection().reordering.wnd_mult, 3);
}

#[test]
fn silence_is_asked_about_after_two_round_trips() {
    let mut sender = Sender::with_sack();
    sender.send(3);
    let connection = sender.connection();
    assert_eq!(connection.clock.timer, RetransmitTimer::Probe);
    assert_eq!(connection.clock.timer_at.since(sender.now), Duration::from_millis(20));
}

#[test]
fn probe_is_the_last_segment_again_where_there_is_nothing_new() {
    let mut sender = Sender::with_sack();
    sender.send(3);
    sender.wait_ms(20);
    sender.context(|cx| cx.on_probe());
    assert_eq!(sender.sent.0.len(), 1);
    assert_eq!(sender.sent.0[0].0.seq, FIRST + 2 * MSS);
    let connection = sender.connection();
    assert!(connection.has(LossFlags::PROBE_OUT) && connection.has(LossFlags::PROBE_IS_RESENT));
    assert_eq!((sender.marks().as_str(), connection.clock.timer), ("..R", RetransmitTimer::Probe));
}

/// By its part, however little is on its way by the time that it is known.
#[test]
fn probe_that_repaired_a_loss_reduces_the_window() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(20);
    sender.context(|cx| cx.on_probe());
    sender.wait_ms(10);
    sender.ack(10, &[]);
    assert_eq!(sender.connection().congestion.cwnd, 20 * MSS);
    sender.send(1);
    sender.ack(11, &[]);
    assert!(!sender.connection().has(LossFlags::PROBE_OUT));
    assert_eq!((sender.connection().congestion.ssthresh, sender.connection().congestion.cwnd), (10 * MSS, 10 * MSS));
}

#[test]
fn probe_that_was_there_twice_reduces_nothing() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(20);
    sender.context(|cx| cx.on_probe());
    sender.wait_ms(10);
    sender.ack(10, &[]);
    sender.ack(10, &[(9, 10)]);
    assert!(!sender.connection().has(LossFlags::PROBE_OUT));
    assert!(sender.connection().congestion.cwnd >= 10 * MSS);
}

#[test]
fn second_probe_in_a_row_is_congestion() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(20);
    sender.context(|cx| cx.on_probe());
    assert_eq!((sender.recovery(), sender.connection().congestion.ssthresh), (Recovery::Open, u32::MAX));
    let connection = sender.connection();
    assert_eq!(connection.clock.timer_at.since(sender.now), Duration::from_millis(40), "twice the wait");
    sender.wait_ms(40);
    sender.context(|cx| cx.on_probe());
    assert_eq!((sender.recovery(), sender.connection().congestion.ssthresh), (Recovery::Fast, 5 * MSS));
    assert_eq!(sender.sent.0.len(), 2);
}

/// Without a sample there is nothing to double.
#[test]
fn round_trip_that_is_not_known_is_asked_about_once() {
    let mut sender = Sender::with_sack();
    sender.send(3);
    sender.connection_mut().rtt.srtt = Micros::ZERO;
    sender.context(|cx| cx.on_probe());
    assert_eq!(sender.connection().clock.timer, RetransmitTimer::Timeout);
}

#[test]
fn there_is_no_probe_without_sack() {
    let mut sender = Sender::without_sack();
    sender.send(3);
    assert_eq!(sender.connection().clock.timer, RetransmitTimer::Timeout);
}

#[test]
fn app_that_keeps_sending_does_not_put_the_probe_off_for_ever() {
    let mut sender = Sender::with_sack();
    let begin = sender.now;
    for _ in 0..100 {
        sender.send_len(10);
        sender.wait_ms(15);
        if sender.connection().clock.timer_at <= sender.now {
            break;
        }
    }
    let rto = sender.connection().rtt.rto.span();
    assert!(sender.now.since(begin) <= rto + Duration::from_millis(15));
}
