//! Retransmissions and their amount, RTT samples, and undone reductions.

use crate::proto::tcp::state::connection::{AppFlags, Micros, OutputFlags, Recovery, RetransmitTimer, State};
use crate::proto::tcp::tests::sender::{FIRST, MSS, Sender};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::TcpFlags;

#[test]
fn acknowledgment_of_what_was_never_sent_is_answered_and_dropped() {
    let mut sender = Sender::with_sack();
    sender.send(2);
    assert_eq!(sender.ack(3, &[]), Some(TcpDrop::BadAck));
    assert_eq!((sender.sent.0.len(), sender.connection().snd.flight()), (1, 2 * MSS), "RFC 5961 5.2");
}

#[test]
fn acknowledgment_older_than_the_largest_window_is_answered_and_dropped() {
    let mut sender = Sender::with_sack();
    sender.send(2);
    let window = sender.connection().rare_snd.wnd_max;
    let segment = sender.segment(FIRST - window - 1, &[]);
    assert_eq!(sender.note_received(&segment), Some(TcpDrop::BadAck));
    let segment = sender.segment(FIRST - window, &[]);
    assert_eq!(sender.note_received(&segment), None, "an old one is a duplicate");
    assert_eq!(sender.connection().snd.flight(), 2 * MSS);
}

#[test]
fn window_of_an_older_segment_is_not_taken() {
    let mut sender = Sender::with_sack();
    let mut segment = sender.segment(FIRST, &[]);
    (segment.seq, segment.wnd) = (Seq(100), 10);
    sender.note_received(&segment);
    (segment.seq, segment.wnd) = (Seq(99), 20);
    sender.note_received(&segment);
    assert_eq!(sender.connection().snd.wnd, 10 << 8);
}

#[test]
fn window_begins_with_ten_segments() {
    assert_eq!(Sender::with_sack().connection().congestion.cwnd, 10 * MSS);
}

#[test]
fn slow_start_doubles_the_window_in_a_round_trip() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(10);
    (1..=10).for_each(|segment| _ = sender.ack(segment, &[]));
    assert_eq!(sender.connection().congestion.cwnd, 20 * MSS);
}

#[test]
fn window_that_is_not_used_does_not_grow() {
    let mut sender = Sender::with_sack();
    for segment in 1..50 {
        sender.send(1);
        sender.wait_ms(10);
        sender.ack(segment, &[]);
    }
    assert_eq!(sender.connection().congestion.cwnd, 10 * MSS);
}

#[test]
fn reno_grows_by_a_segment_in_a_round_trip() {
    let mut sender = Sender::with_sack();
    sender.connection_mut().congestion.ssthresh = 10 * MSS;
    sender.send(10);
    sender.wait_ms(10);
    (1..=10).for_each(|segment| _ = sender.ack(segment, &[]));
    assert_eq!(sender.connection().congestion.cwnd, 11 * MSS);
}

#[test]
fn window_of_an_idle_connection_begins_anew() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(10);
    sender.ack(10, &[]);
    assert_eq!(sender.context(|cx| cx.cwnd_room()), 20 * MSS);
    sender.wait_ms(1_000);
    assert_eq!(sender.context(|cx| cx.cwnd_room()), 10 * MSS, "RFC 5681 4.1");
}

#[test]
fn no_congestion_control_leaves_the_peers_window() {
    let mut sender =
        Sender::measured(&ConnectionOptions { congestion: Congestion::None, ..ConnectionOptions::default() });
    sender.send(100);
    assert_eq!(sender.context(|cx| cx.cwnd_room()), u32::MAX);
}

/// The whole flight was too much at once: so it would be again, after twice the wait.
#[test]
fn no_congestion_control_begins_with_one_segment_after_a_timeout() {
    let mut sender =
        Sender::measured(&ConnectionOptions { congestion: Congestion::None, ..ConnectionOptions::default() });
    sender.send(100);
    sender.context(|cx| cx.on_timeout());
    assert_eq!(sender.resend(), [0]);
    sender.wait_ms(10);
    sender.ack(1, &[]);
    assert_eq!((sender.recovery(), sender.resend()), (Recovery::Loss, vec![1, 2]));
    sender.wait_ms(10);
    sender.ack(3, &[]);
    assert_eq!(sender.resend(), [3, 4, 5, 6]);
    sender.wait_ms(10);
    sender.ack(100, &[]);
    assert_eq!((sender.recovery(), sender.context(|cx| cx.cwnd_room())), (Recovery::Open, u32::MAX));
}

#[test]
fn what_waited_for_a_retransmission_measures_nothing() {
    for (mut sender, measured) in [(Sender::without_sack(), 10_000), (Sender::with_sack(), 10_000)] {
        sender.send(10);
        sender.wait_ms(5_000);
        sender.context(|cx| cx.on_timeout());
        assert_eq!(sender.resend(), [0]);
        sender.wait_ms(10);
        let echo = sender.connection().ts.now(sender.now) - 10;
        sender.ack_echoing(10, &[], echo);
        assert_eq!(sender.connection().rtt.srtt.0, measured, "Karn: nine of them stood at the peer for 5 s");
    }
}

#[test]
fn third_duplicate_has_the_first_segment_sent_again_without_sack() {
    let mut sender = Sender::without_sack();
    sender.send(10);
    sender.ack(0, &[]);
    assert_eq!(sender.context(|cx| cx.cwnd_room()), MSS, "limited transmit (RFC 3042)");
    sender.ack(0, &[]);
    assert_eq!(sender.context(|cx| cx.cwnd_room()), 2 * MSS);
    assert!(sender.resend().is_empty());
    sender.ack(0, &[]);
    assert_eq!((sender.recovery(), sender.resend()), (Recovery::Fast, vec![0]));
    assert_eq!((sender.connection().congestion.ssthresh, sender.connection().congestion.cwnd), (5 * MSS, 8 * MSS));
}

#[test]
fn partial_acknowledgment_has_the_next_hole_filled_without_sack() {
    let mut sender = Sender::without_sack();
    sender.send(10);
    (0..3).for_each(|_| _ = sender.ack(0, &[]));
    assert_eq!(sender.resend(), [0]);
    sender.ack(4, &[]);
    assert_eq!((sender.recovery(), sender.resend()), (Recovery::Fast, vec![4]));
    sender.ack(10, &[]);
    assert_eq!((sender.recovery(), sender.connection().congestion.cwnd), (Recovery::Open, 5 * MSS));
}

#[test]
fn duplicates_of_the_recovery_before_do_not_begin_another() {
    let mut sender = Sender::without_sack();
    sender.send(10);
    (0..3).for_each(|_| _ = sender.ack(0, &[]));
    sender.resend();
    sender.ack(10, &[]);
    sender.send(4);
    (0..5).for_each(|_| _ = sender.ack(10, &[]));
    assert_eq!(sender.recovery(), Recovery::Open, "RFC 6582 3.2 step 2");
}

#[test]
fn third_duplicate_counts_also_while_the_window_is_reduced() {
    let options = ConnectionOptions { ecn: true, sack: false, timestamps: false, ..ConnectionOptions::default() };
    let mut sender = Sender::measured(&options);
    sender.send(10);
    let mut segment = sender.segment(FIRST + MSS, &[]);
    segment.flags = TcpFlags::ACK | TcpFlags::ECE;
    sender.note_received(&segment);
    assert_eq!(sender.recovery(), Recovery::Reduced);
    (0..3).for_each(|_| _ = sender.ack(1, &[]));
    assert_eq!((sender.recovery(), sender.resend()), (Recovery::Fast, vec![1]));
}

#[test]
fn data_of_the_peer_is_no_duplicate() {
    let mut sender = Sender::without_sack();
    sender.send(10);
    let mut segment = sender.segment(FIRST, &[]);
    for _ in 0..5 {
        segment.len = 100;
        sender.note_received(&segment);
    }
    assert_eq!(sender.recovery(), Recovery::Open);
}

#[test]
fn window_shrinks_in_proportion_to_what_arrives() {
    let mut sender = Sender::with_sack();
    sender.connection_mut().congestion.cwnd = 20 * MSS;
    sender.send(20);
    sender.wait_ms(10);
    let mut resent = Vec::new();
    let mut sent = 0;
    for segment in 2..=20 {
        sender.ack(0, &[(1, segment)]);
        resent.extend(sender.resend());
        while sender.context(|cx| cx.cwnd_room()) >= MSS {
            sender.send(1);
            sent += 1;
        }
    }
    assert_eq!(resent, [0], "once");
    // Half of the window: ten of twenty segments, less the one that was sent again, plus two that
    // were sent before the loss was known.
    assert!((8..=11).contains(&sent), "{sent}");
    assert_eq!(sender.connection().congestion.ssthresh, 10 * MSS);
    sender.wait_ms(10);
    sender.ack(20 + sent, &[]);
    assert_eq!((sender.recovery(), sender.connection().congestion.cwnd), (Recovery::Open, 10 * MSS));
}

#[test]
fn mark_of_the_network_reduces_the_window_once_in_a_round_trip() {
    let options = ConnectionOptions { ecn: true, congestion: Congestion::Reno, ..ConnectionOptions::default() };
    let mut sender = Sender::measured(&options);
    sender.send(10);
    sender.wait_ms(10);
    for to in [1, 2, 3] {
        let mut segment = sender.segment(FIRST + to * MSS, &[]);
        segment.flags = TcpFlags::ACK | TcpFlags::ECE;
        sender.note_received(&segment);
    }
    let connection = sender.connection();
    assert_eq!((connection.recovery, connection.congestion.ssthresh), (Recovery::Reduced, 4_500));
    assert!(connection.has(OutputFlags::CWR_OWED) && connection.sack.lost_len == 0);
    sender.ack(10, &[]);
    assert_eq!((sender.recovery(), sender.connection().congestion.cwnd), (Recovery::Open, 4_500));
}

#[test]
fn timeout_sends_from_the_first_with_a_window_of_one() {
    let mut sender = Sender::with_sack();
    sender.send(4);
    sender.ack(0, &[(2, 3)]);
    sender.wait_ms(300);
    sender.context(|cx| cx.on_timeout());
    assert_eq!((sender.marks(), sender.resend()), ("LLSL".into(), vec![0]));
    let connection = sender.connection();
    assert_eq!((connection.clock.backoff, connection.clock.timer), (1, RetransmitTimer::Timeout));
    assert_eq!(connection.clock.timer_at, sender.now + connection.backed_off(1));
}

#[test]
fn connection_ends_when_retransmissions_run_out() {
    let mut sender = Sender::with_sack();
    sender.send(1);
    for _ in 0..15 {
        sender.context(|cx| cx.on_timeout());
        assert!(sender.recovery() != Recovery::Open);
    }
    assert_eq!(sender.connection().state, State::Established);
    sender.now += sender.tcp.shared.config.retries_timeout();
    sender.tcp.context(sender.slot, &mut sender.sent, sender.now).on_timeout();
    assert_eq!(sender.connection().ending.reason, CloseReason::TimedOut);
}

#[test]
fn full_segments_that_never_arrive_become_shorter() {
    let mut sender = Sender::with_sack();
    sender.connection_mut().snd.mss = 1_460;
    sender.send_len(1_460);
    let sizes: Vec<u16> = (0..5)
        .map(|_| {
            sender.context(|cx| cx.on_timeout());
            sender.connection().snd.mss
        })
        .collect();
    assert_eq!(sizes, [1_460, 1_460, 1_024, 512, 512]);
}

#[test]
fn short_segments_that_never_arrive_say_nothing_of_the_path() {
    let mut sender = Sender::with_sack();
    sender.send_len(100);
    (0..5).for_each(|_| sender.context(|cx| cx.on_timeout()));
    assert_eq!(sender.connection().snd.mss, MSS as u16);
}

#[test]
fn timeout_for_nothing_is_taken_back_by_the_echoed_time() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    let original = sender.connection().ts.now(sender.now);
    sender.wait_ms(300);
    sender.context(|cx| cx.on_timeout());
    assert_eq!(sender.resend(), [0]);
    sender.wait_ms(5);
    sender.ack_echoing(1, &[], original);
    let connection = sender.connection();
    assert_eq!(
        (connection.recovery, connection.congestion.cwnd, connection.sack.lost_len),
        (Recovery::Open, 10 * MSS, 0)
    );
    assert_eq!(sender.tcp.tally().undone_recoveries, 1);
}

#[test]
fn timeout_of_a_loss_is_not_taken_back() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(300);
    sender.context(|cx| cx.on_timeout());
    sender.resend();
    sender.wait_ms(10);
    sender.ack(1, &[]);
    assert_eq!(sender.recovery(), Recovery::Loss);
    assert_eq!(sender.tcp.tally().undone_recoveries, 0);
    assert!(!sender.resend().is_empty());
}

#[test]
fn recovery_is_taken_back_when_all_that_was_resent_was_there_twice() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(10);
    sender.ack(0, &[(1, 5)]);
    assert_eq!(sender.resend(), [0]);
    sender.wait_ms(1);
    sender.ack(5, &[]);
    assert_eq!(sender.recovery(), Recovery::Fast);
    sender.ack(5, &[(0, 1)]);
    assert_eq!((sender.recovery(), sender.connection().congestion.cwnd >= 10 * MSS), (Recovery::Open, true));
    assert_eq!(sender.tcp.tally().undone_recoveries, 1);
}

/// A needless probe, or a copy that the network made, does not concern a recovery that is over.
#[test]
fn duplicate_of_what_was_sent_behind_a_recovery_does_not_take_it_back() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(10);
    sender.ack(0, &[(1, 5)]);
    assert_eq!(sender.resend(), [0]);
    sender.wait_ms(10);
    sender.ack(10, &[]);
    sender.send(1);
    sender.wait_ms(10);
    sender.ack(11, &[]);
    sender.ack(11, &[(10, 11)]);
    assert_eq!((sender.connection().congestion.cwnd, sender.tcp.tally().undone_recoveries), (5 * MSS, 0));
}

/// A merged retransmission is several segments at the peer, some of which it may have had before.
#[test]
fn recovery_of_a_chunk_is_taken_back_when_all_its_segments_were_there_twice() {
    for reports in [&[(0, 1), (1, 2), (2, 3), (3, 4)][..], &[(0, 4)]] {
        let mut sender = Sender::with_sack();
        sender.send_len(4 * MSS);
        sender.send(6);
        sender.wait_ms(10);
        sender.ack(0, &[(4, 8)]);
        assert_eq!(sender.resend(), [0]);
        sender.wait_ms(1);
        for &(left, right) in reports {
            assert_eq!(sender.tcp.tally().undone_recoveries, 0, "before {left} of {reports:?}");
            sender.ack(right, &[(left, right), (4, 8)]);
        }
        assert_eq!(sender.tcp.tally().undone_recoveries, 1, "{reports:?}");
    }
}

#[test]
fn segment_that_was_sent_again_measures_nothing_without_timestamps() {
    let mut sender = Sender::without_sack();
    sender.send(1);
    sender.wait_ms(500);
    sender.context(|cx| cx.on_timeout());
    sender.resend();
    let (srtt, rto) = (sender.connection().rtt.srtt, sender.connection().backed_off(1));
    sender.wait_ms(3);
    sender.ack(1, &[]);
    let connection = sender.connection();
    assert_eq!((connection.rtt.srtt, connection.rtt.rto, connection.clock.backoff), (srtt, Micros::of(rto), 0), "Karn");
}

#[test]
fn timeouts_of_earlier_losses_do_not_add_up_where_nothing_is_measured() {
    let mut sender = Sender::without_sack();
    sender.send(1);
    (0..3).for_each(|_| {
        sender.wait_ms(5_000);
        sender.context(|cx| cx.on_timeout());
        sender.resend();
    });
    sender.ack(1, &[]);
    let timeouts: Vec<u32> = (0..4u32)
        .map(|nth| {
            let first = 1 + nth * 5;
            sender.send(5);
            sender.connection_mut().congestion.cwnd = 10 * MSS;
            sender.context(|cx| cx.mark_lost(cx.connection.send.queue.head));
            assert_eq!(sender.resend(), [first]);
            sender.wait_ms(10);
            sender.ack(first + 5, &[]);
            sender.connection().rtt.rto.0 / 1_000
        })
        .collect();
    assert_eq!(timeouts, [800, 400, 200, 200], "each loss is repaired without one");
}

#[test]
fn timeout_follows_the_round_trip_and_stays_above_its_floor() {
    let options = ConnectionOptions { rto_min: Duration::from_millis(5), ..ConnectionOptions::default() };
    let mut sender = Sender::new(&options);
    let mut to = 0;
    let mut after = |ms: u64, sender: &mut Sender| {
        sender.send(1);
        to += 1;
        sender.wait_ms(ms);
        sender.ack(to, &[]);
        sender.connection().rtt.rto.0
    };
    assert_eq!(after(1, &mut sender), 5_000);
    (0..50).for_each(|_| _ = after(1, &mut sender));
    assert_eq!(sender.connection().rtt.srtt, Micros(1_000));
    assert!(after(40, &mut sender) > 40_000);
    (0..200).for_each(|_| _ = after(1, &mut sender));
    assert_eq!(sender.connection().rtt.rto, Micros(5_000));
    assert_eq!(sender.connection().round.rtt_min, Micros(1_000));
}

#[test]
fn app_that_was_refused_is_told_when_half_of_the_buffer_is_free() {
    let options = ConnectionOptions { send_buffer: 4 * MSS, ..ConnectionOptions::default() };
    let mut sender = Sender::measured(&options);
    sender.send(4);
    sender.connection_mut().set(AppFlags::WANTS_ROOM);
    sender.ack(1, &[]);
    assert!(sender.tcp.next_event().is_none());
    sender.ack(2, &[]);
    assert!(matches!(sender.tcp.next_event(), Some((_, _, TcpEvent::Writable))));
}
