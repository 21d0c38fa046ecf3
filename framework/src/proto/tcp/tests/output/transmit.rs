//! Segments that leave, and their times.

use proptest::prelude::*;

use crate::proto::tcp::output::transmit::Sending;
use crate::proto::tcp::state::connection::{AckOwed, InputFlags, OutputFlags};
use crate::proto::tcp::tests::line::{Line, MSS, options, stream};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::TcpFlags;

#[test]
fn data_leaves_at_once_and_carries_the_acknowledgment() {
    let mut line = Line::new();
    line.data(0, 10);
    line.send(20);
    assert_eq!(line.sent(), ["0+20 ack 10 PSH"]);
    line.tick();
    assert!(line.sent().is_empty(), "nothing is owed any more");
}

#[test]
fn long_chunk_leaves_in_segments_and_is_pushed_at_its_end() {
    let mut line = Line::new();
    line.send(2500);
    assert_eq!(line.sent(), ["0+1000 ack 0", "1000+1000 ack 0", "2000+500 ack 0 PSH"]);
}

#[test]
fn copied_data_leaves_segment_by_segment_and_is_pushed_where_the_call_ends() {
    let mut line = Line::new();
    assert_eq!(line.send_copy(2500), Ok(2500));
    assert_eq!(line.sent(), ["0+1000 ack 0", "1000+1000 ack 0", "2000+500 ack 0 PSH"]);
    assert_eq!(line.send_copy(2000), Ok(2000));
    assert_eq!(line.sent(), ["2500+1000 ack 0", "3500+1000 ack 0 PSH"]);
}

/// RFC 9293 3.9.1.2 (MUST-61): "the last buffered segment", also where the app has more data.
#[test]
fn copy_that_runs_out_of_buffers_or_chunks_is_pushed_where_it_ends() {
    let mut line = Line::new();
    let (id, now) = (line.id(), line.now);
    let mut buffers = vec![(); 2];
    let make = |piece: &[u8]| buffers.pop().map(|()| piece.to_vec());
    assert_eq!(line.tcp.send_copy(id, &stream(0, 3_000), make, now, &mut line.wire), Ok(2_000));
    assert_eq!(line.sent(), ["0+1000 ack 0", "1000+1000 ack 0 PSH"]);

    let mut line = Line::of(TcpConfig { chunks_max: 6, ..TcpConfig::default() }, &options());
    let taken = line.send_copy(9_000).unwrap() as u32;
    assert!((MSS..9_000).contains(&taken), "{taken}");
    let sent = line.sent();
    assert_eq!(sent.iter().filter(|segment| segment.contains("PSH")).count(), 1);
    assert_eq!(sent.last().unwrap(), &format!("{}+1000 ack 0 PSH", taken - MSS));
}

#[test]
fn copied_data_behind_the_window_waits_in_its_order() {
    let mut line = Line::new();
    (line.wnd, line.connection().snd.wnd) = (2_000, 2_000);
    assert_eq!(line.send_copy(2500), Ok(2500));
    assert_eq!(line.send_copy(1500), Ok(1500));
    assert_eq!(line.sent(), ["0+1000 ack 0", "1000+1000 ack 0"]);
    line.ack(2000);
    line.tick();
    // The second call fills the segment that the first one ends in.
    assert_eq!(line.sent(), ["2000+1000 ack 0 PSH", "3000+1000 ack 0 PSH"]);
}

#[test]
fn copied_data_that_finds_the_ring_full_goes_with_the_next_tick_once() {
    let mut line = Line::new();
    line.wire.room = 1;
    assert_eq!(line.send_copy(2500), Ok(2500));
    assert_eq!(line.sent(), ["0+1000 ack 0"]);
    line.wire.room = 100;
    line.tick();
    assert_eq!(line.sent(), ["1000+1000 ack 0", "2000+500 ack 0 PSH"]);
}

#[test]
fn nothing_leaves_beyond_the_window() {
    let mut line = Line::new();
    (line.wnd, line.connection().snd.wnd) = (2_000, 2_000);
    line.send(3000);
    assert_eq!(line.sent(), ["0+1000 ack 0", "1000+1000 ack 0"]);
    line.ack(1000);
    line.tick();
    assert_eq!(line.sent(), ["2000+1000 ack 0 PSH"]);
}

#[test]
fn window_smaller_than_a_segment_is_not_used_where_it_was_larger() {
    // RFC 9293 3.8.6.2.1: neither a full segment nor half of the largest window.
    let mut line = Line::new();
    line.connection().snd.wnd = 1_500;
    line.wnd = 1_500;
    line.send(3000);
    assert_eq!(line.sent(), ["0+1000 ack 0"]);
    line.ack(1000);
    line.tick();
    line.wnd = 900;
    line.ack(1000);
    line.tick();
    assert_eq!(line.sent(), ["1000+1000 ack 0"]);
    line.ack(2000);
    line.tick();
    assert!(line.sent().is_empty());
}

#[test]
fn half_of_the_largest_window_is_worth_a_segment() {
    let mut line = Line::new();
    (line.connection().snd.wnd, line.connection().rare_snd.wnd_max) = (600, 1_000);
    line.send(3000);
    assert_eq!(line.sent(), ["0+600 ack 0"]);
}

#[test]
fn nagle_holds_the_second_small_segment_until_the_first_is_acknowledged() {
    let mut line = Line::with(&ConnectionOptions { nodelay: false, ..options() });
    line.send(10);
    line.send(20);
    assert_eq!(line.sent(), ["0+10 ack 0 PSH"]);
    line.ack(10);
    line.tick();
    assert_eq!(line.sent(), ["10+20 ack 0 PSH"]);
}

#[test]
fn nodelay_sends_each_small_segment() {
    let mut line = Line::new();
    line.send(10);
    line.send(20);
    assert_eq!(line.sent(), ["0+10 ack 0 PSH", "10+20 ack 0 PSH"]);
}

#[test]
fn small_segments_that_are_lost_leave_again_as_one() {
    let mut line = Line::new();
    (0..5).for_each(|_| line.send(10));
    line.finish();
    line.sent();
    line.context().on_timeout();
    line.tick();
    assert_eq!(line.sent(), ["0+50 ack 0 PSH FIN"]);
    line.ack(51);
    assert_eq!((line.connection().snd.flight(), line.tcp.chunks()), (0, 0));
}

#[test]
fn lost_segments_are_joined_up_to_a_full_one_and_up_to_what_the_peer_has() {
    let mut line = Line::new();
    [400, 400, 400, 10, 10, 10].into_iter().for_each(|len| line.send(len));
    line.sent();
    line.note_received(0, Vec::new(), TcpFlags::ACK, |segment| {
        segment.sack_count = 1;
        segment.sacks[0] = Range { left: segment.ack + 1210, right: segment.ack + 1220 };
    });
    line.sent();
    line.context().on_timeout();
    (0..3).for_each(|_| line.context().transmit());
    assert_eq!(line.sent()[0], "0+800 ack 0 PSH");
    line.ack(800);
    line.tick();
    assert_eq!(line.sent(), ["800+410 ack 0 PSH", "1220+10 ack 0 PSH"]);
}

#[test]
fn end_of_a_long_message_does_not_wait_for_its_beginning() {
    let mut line = Line::with(&ConnectionOptions { nodelay: false, ..options() });
    line.send(2010);
    assert_eq!(line.sent(), ["0+1000 ack 0", "1000+1000 ack 0", "2000+10 ack 0 PSH"]);
    line.send(2010);
    assert_eq!(line.sent(), ["2010+1000 ack 0", "3010+1000 ack 0"], "a small one is on its way already");
}

#[test]
fn close_does_not_wait_for_nagle() {
    let mut line = Line::with(&ConnectionOptions { nodelay: false, ..options() });
    line.send(10);
    line.send(20);
    line.sent();
    line.finish();
    assert_eq!(line.sent(), ["10+20 ack 0 PSH FIN"]);
}

#[test]
fn fin_leaves_alone_where_the_window_ends_before_it() {
    let mut line = Line::new();
    line.wire.room = 0;
    line.send(1000);
    line.finish();
    (line.wire.room, line.wnd) = (usize::MAX, 1_000);
    line.ack(0);
    line.connection().snd.wnd = 1_000;
    line.tick();
    assert_eq!(line.sent(), ["0+1000 ack 0 PSH"]);
    line.ack(1000);
    line.tick();
    assert_eq!(line.sent(), ["1000 ack 0 FIN"]);
}

#[test]
fn busy_way_out_changes_nothing_and_is_tried_with_the_next_tick() {
    let mut line = Line::new();
    line.wire.room = 1;
    line.send(3000);
    assert_eq!(line.sent(), ["0+1000 ack 0"]);
    line.tick();
    assert!(line.sent().is_empty());
    line.wire.room = usize::MAX;
    line.tick();
    assert_eq!(line.sent(), ["1000+1000 ack 0", "2000+1000 ack 0 PSH"]);
    assert_eq!(line.tcp.tally().output_busy, 2);
}

#[test]
fn acknowledgment_that_found_no_room_is_owed() {
    let mut line = Line::new();
    line.wire.room = 0;
    line.data(1000, 1000);
    assert_eq!(line.connection().clock.ack_owed, AckOwed::Now);
    line.wire.room = 1;
    line.tick();
    assert_eq!(line.sent(), ["0 ack 0 sack 1000..2000"]);
}

#[test]
fn call_sends_so_much_and_leaves_the_rest_to_the_next_tick() {
    let mut line = Line::new();
    line.connection().snd.mss = 100;
    line.send(10_000);
    assert_eq!(line.sent().len(), 64);
    line.tick();
    assert_eq!(line.sent().len(), 36);
}

#[test]
fn device_that_segments_gets_whole_segments_at_once() {
    let mut line = Line::new();
    line.wire.segmentation_len_max = 4_500;
    line.send(10_300);
    assert_eq!(line.sent(), ["0+4000 ack 0 by 1000", "4000+4000 ack 0 by 1000", "8000+2300 ack 0 PSH by 1000"]);
}

#[test]
fn device_that_segments_does_not_lead_beyond_the_window() {
    let mut line = Line::new();
    line.wire.segmentation_len_max = 64_000;
    line.connection().snd.wnd = 5_500;
    line.send(10_000);
    assert_eq!(line.sent(), ["0+5000 ack 0 by 1000"]);
}

#[test]
fn chunk_is_cut_again_where_the_path_has_become_narrower() {
    let mut line = Line::new();
    line.send(1000);
    line.sent();
    line.connection().snd.mss = 400;
    let head = line.connection().send.queue.head;
    assert_eq!(line.context().resend(head), Sending::Sent);
    let next = line.tcp.shared.chunks[head].next;
    assert_eq!(line.context().resend(next), Sending::Sent);
    assert_eq!(line.sent(), ["0+400 ack 0", "400+400 ack 0"]);
    assert_eq!(line.connection().send.queue.count, 3);
}

#[test]
fn rate_is_kept_over_time_and_bursts_are_short() {
    let mut line = Line::with(&ConnectionOptions { pacing_rate: Some(1_000_000), ..options() });
    line.send(50_000);
    let mut counts = vec![line.sent().len()];
    for _ in 0..5 {
        line.after_ms(10);
        counts.push(line.sent().len());
        let acknowledged = line.connection().snd.nxt - line.connection().rare_snd.iss - 1;
        line.ack(acknowledged);
    }
    // A segment a millisecond.
    assert!(counts[0] <= 2 && counts[1..5].iter().all(|count| (9..=11).contains(count)), "{counts:?}");
}

#[test]
fn device_that_segments_gets_what_a_rate_gives_in_a_millisecond() {
    for (rate, sent) in [(2_500_000, "0+2000 ack 0 by 1000"), (10_000, "0+1000 ack 0")] {
        let mut line = Line::with(&ConnectionOptions { pacing_rate: Some(rate), ..options() });
        line.wire.segmentation_len_max = 64_000;
        line.send(10_000);
        assert_eq!(line.sent()[0], sent, "{rate} bytes a second");
        line.after_ms(1_100);
        assert!(
            line.sent()
                .iter()
                .all(|segment| segment.ends_with(&sent[sent.find(" ack").unwrap()..]) || segment.contains("PSH"))
        );
    }
}

#[test]
fn only_new_data_is_marked_as_ecn_capable() {
    let mut line = Line::new();
    line.connection().set(InputFlags::ECN | OutputFlags::CWR_OWED);
    line.send(1000);
    line.send(1000);
    let head = line.connection().send.queue.head;
    line.context().resend(head);
    line.context().send_ack();
    assert_eq!(line.sent(), ["0+1000 ack 0 PSH CWR ect", "1000+1000 ack 0 PSH ect", "0+1000 ack 0 PSH", "2000 ack 0"]);
}

#[test]
fn congestion_is_echoed_until_the_peer_has_reduced_its_window() {
    let mut line = Line::new();
    line.connection().set(InputFlags::ECN);
    line.note_received(0, stream(0, 10), TcpFlags::ACK, |segment| segment.ce = true);
    line.send(10);
    line.context().send_ack();
    assert_eq!(line.sent(), ["0+10 ack 10 PSH ECE ect", "10 ack 10 ECE"]);
    line.note_received(10, stream(10, 10), TcpFlags::ACK | TcpFlags::CWR, |_| ());
    line.tick();
    assert_eq!(line.sent(), ["10 ack 20"]);
}

#[test]
fn sack_blocks_take_only_what_the_data_leaves() {
    let mut line = Line::new();
    line.data(1000, 1000);
    line.sent();
    line.send(MSS);
    line.send(MSS - 12);
    assert_eq!(line.sent(), ["0+1000 ack 0 PSH", "1000+988 ack 0 PSH sack 1000..2000"]);
}

#[test]
fn acknowledgment_stays_within_a_window_that_was_taken_back() {
    let mut line = Line::new();
    line.send(2000);
    line.sent();
    line.connection().snd.wnd = 500;
    line.context().send_ack();
    assert_eq!(line.sent(), ["500 ack 0"]);
}

#[test]
fn challenge_acks_of_all_are_limited_by_a_number_that_nobody_knows() {
    let config = TcpConfig { connections_max: 1, challenge_acks_per_second: 1_000, ..TcpConfig::default() };
    let mut line = Line::of(config, &options());
    let mut counts = Vec::new();
    for _ in 0..8 {
        for _ in 0..2_000 {
            line.connection().rare_tally.challenges = 0;
            line.context().challenge_ack();
        }
        counts.push(line.sent().len());
        line.now += Duration::from_millis(1_100);
    }
    assert!(counts.iter().all(|count| (500..=1_000).contains(count)), "{counts:?}");
    counts.sort_unstable();
    counts.dedup();
    assert!(counts.len() > 4, "{counts:?}");
}

/// CVE-2016-5696: an attacker that knows the ends of one connection learns nothing about another,
/// and uses up none of its answers.
#[test]
fn challenge_acks_of_one_connection_leave_those_of_others() {
    let mut line = Line::new();
    (0..1_500).for_each(|_| line.context().challenge_ack());
    assert_eq!((line.sent().len(), line.tcp.tally().challenge_acks_suppressed), (10, 1_490));
    line.connection().rare_tally.challenges = 0;
    line.context().challenge_ack();
    assert_eq!(line.sent().len(), 1, "there are some left for others");
}

#[test]
fn header_has_the_hops_and_the_type_of_service_that_were_asked_for() {
    let mut line = Line::with(&ConnectionOptions { ttl: 7, tos: 0xb8, ..options() });
    line.send(1);
    line.context().send_reset();
    assert!(line.wire.sent.iter().all(|(outgoing, _)| (outgoing.ttl, outgoing.tos) == (7, 0xb8)));
}

/// An event for a sender.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32),
    Copy(u32),
    /// The peer acknowledges a part of the data in flight, and shows a window.
    Ack(u8, u16),
    /// The output has room for this many segments.
    Room(usize),
    After(u64),
    Mss(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1u32..5000).prop_map(Step::Send),
        2 => (1u32..9000).prop_map(Step::Copy),
        4 => (any::<u8>(), prop_oneof![Just(0u16), 1u16..800, 1000u16..60_000]).prop_map(|(part, wnd)| Step::Ack(part, wnd)),
        1 => (0usize..4).prop_map(Step::Room),
        2 => (1u64..3000).prop_map(Step::After),
        1 => (100u16..1400).prop_map(Step::Mss),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// No data leaves beyond the right edge that the peer has shown, and all leaves in the end,
    /// each byte under its number.
    #[test]
    fn stream_leaves_whole_and_within_the_window(
        steps in steps(),
        nodelay in any::<bool>(),
        device in prop_oneof![Just((0usize, 1usize)), Just((9000, 1)), Just((9000, 4))],
    ) {
        let mut line = Line::with(&ConnectionOptions { nodelay, ..options() });
        (line.wire.segmentation_len_max, line.wire.pieces_max) = device;
        let (mut edge, mut reached) = (60_000, 0);
        for step in steps {
            match step {
                Step::Send(len) if line.connection().send.len + len < 200_000 => {
                    // Short segments use up the connection's share of the chunks before its buffer.
                    let has_chunk = line.context().has_chunk();
                    prop_assert_eq!(line.try_send(len), if has_chunk { Ok(()) } else { Err(SendError::NoChunk) });
                }
                Step::Send(_) => (),
                Step::Copy(len) => _ = line.send_copy(len),
                Step::Ack(part, wnd) => {
                    let ack = line.ack + (reached - line.ack) * u32::from(part) / 255;
                    // A window is not taken back.
                    line.wnd = u32::from(wnd).max(edge - ack).min(u16::MAX.into()) as u16;
                    edge = edge.max(ack + u32::from(line.wnd));
                    line.ack(ack);
                }
                Step::Room(room) => line.wire.room = room,
                Step::After(ms) => line.after_ms(ms),
                Step::Mss(mss) => line.connection().snd.mss = mss,
            }
            line.tick();
            reached = line.check_sent(reached, edge)?;
        }
        (line.wire.room, line.wnd) = (usize::MAX, 60_000);
        for _ in 0..200 {
            line.ack(reached);
            line.after_ms(1);
            edge = reached + 60_000;
            reached = line.check_sent(reached, edge)?;
        }
        prop_assert_eq!(reached, line.written);
        line.ack(reached);
        prop_assert_eq!(line.tcp.chunks(), 0);
    }
}

/// RFC 9293 3.7.4: SND.SML is old, and after SND.UNA on the ring again.
#[test]
fn small_segment_of_two_gigabytes_ago_holds_nothing_back() {
    let mut line = Line::with(&ConnectionOptions { nodelay: false, ..options() });
    let una = line.connection().snd.una;
    line.connection().snd.small = una + 0x7000_0000;
    line.send(10);
    assert_eq!(line.sent(), ["0+10 ack 0 PSH"]);
    line.send(10);
    assert!(line.sent().is_empty(), "this one waits for the one before");
}
