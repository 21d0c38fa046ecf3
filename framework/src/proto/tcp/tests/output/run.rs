//! Pieces that leave as one segment where the device cuts it.

use crate::proto::tcp::tests::line::{Line, options};
use crate::proto::tcp::tests::*;

/// A line to a device that takes `pieces_max` payloads as one segment.
fn line(pieces_max: usize) -> Line {
    line_with(pieces_max, &options())
}

fn line_with(pieces_max: usize, options: &ConnectionOptions) -> Line {
    let mut line = Line::with(options);
    (line.wire.segmentation_len_max, line.wire.pieces_max) = (64_000, pieces_max);
    line
}

#[test]
fn pieces_of_a_copy_leave_as_one_and_are_kept_each_for_itself() {
    let mut line = line(64);
    assert_eq!(line.send_copy(4_300), Ok(4_300));
    assert_eq!(line.sent(), ["0+4300 ack 0 PSH by 1000"]);
    assert_eq!((line.tcp.chunks(), line.tcp.tally().segments_out), (5, 5));
    line.ack(2_000);
    assert_eq!(line.tcp.chunks(), 3);
    line.ack(4_300);
    assert_eq!((line.tcp.chunks(), line.connection().snd.flight()), (0, 0));
}

#[test]
fn no_more_pieces_than_the_device_takes_and_as_long_as_it_cuts() {
    let mut line = line(3);
    assert_eq!(line.send_copy(5_000), Ok(5_000));
    assert_eq!(line.sent(), ["0+3000 ack 0 by 1000", "3000+2000 ack 0 PSH by 1000"]);
    line.wire.segmentation_len_max = 2_999;
    assert_eq!(line.send_copy(5_000), Ok(5_000));
    assert_eq!(
        line.sent(),
        ["5000+2000 ack 0 by 1000", "7000+2000 ack 0 by 1000", "9000+1000 ack 0 PSH"],
        "one alone is no run"
    );
}

#[test]
fn pieces_do_not_lead_beyond_the_windows() {
    let mut line = line(64);
    line.connection().snd.wnd = 3_500;
    assert_eq!(line.send_copy(10_000), Ok(10_000));
    assert_eq!(line.sent(), ["0+3000 ack 0 by 1000"], "what is left of the window is silly");
    let mut line = line_with(64, &ConnectionOptions { congestion: Congestion::Reno, ..options() });
    line.connection().congestion.cwnd = 2_700;
    assert_eq!(line.send_copy(10_000), Ok(10_000));
    assert_eq!(line.sent(), ["0+2000 ack 0 by 1000"]);
}

#[test]
fn run_that_finds_no_room_changes_nothing() {
    let mut line = line(64);
    line.wire.room = 0;
    assert_eq!(line.send_copy(4_000), Ok(4_000));
    assert_eq!((line.connection().snd.flight(), line.tcp.tally().segments_out), (0, 0));
    line.wire.room = 1;
    line.tick();
    assert_eq!(line.sent(), ["0+4000 ack 0 PSH by 1000"]);
}

#[test]
fn short_piece_waits_where_nagle_says_so_and_a_fin_goes_behind() {
    let mut line = line_with(64, &ConnectionOptions { nodelay: false, ..options() });
    assert_eq!(line.send_copy(500), Ok(500));
    assert_eq!(line.send_copy(2_300), Ok(2_300));
    assert_eq!(line.sent(), ["0+500 ack 0 PSH", "500+2000 ack 0 by 1000"]);
    line.finish();
    assert_eq!(line.sent(), ["2500+300 ack 0 PSH FIN"]);
}

#[test]
fn lost_piece_of_a_run_is_sent_again_alone() {
    let mut line = line(64);
    assert_eq!(line.send_copy(5_000), Ok(5_000));
    line.sent();
    line.now += Duration::from_millis(10);
    for right in [3_000, 4_000, 5_000] {
        line.sack(2_000, right);
    }
    line.after_ms(20);
    let sent = line.sent();
    assert_eq!(sent[..2], ["0+1000 ack 0", "1000+1000 ack 0"], "{sent:?}");
    line.ack(5_000);
    assert_eq!((line.tcp.chunks(), line.connection().snd.flight()), (0, 0));
}

#[test]
fn timeout_sends_one_segment_of_what_was_cut_by_the_device() {
    let mut line = line_with(64, &ConnectionOptions { congestion: Congestion::Reno, ..options() });
    line.connection().congestion.cwnd = 60_000;
    line.send(8_000);
    assert_eq!(line.sent(), ["0+8000 ack 0 PSH by 1000"]);
    // The ring has no room for the probe, nor for the timeout's segment.
    line.after_s(3);
    let sent = line.sent();
    let longest = |line: &String| !line.contains("by") && line.contains("+1000");
    assert!(sent.len() >= 2 && sent.iter().all(longest), "{sent:?}");
}

#[test]
fn short_end_of_what_the_device_cuts_is_a_small_segment_to_nagle() {
    let mut line = line_with(1, &ConnectionOptions { nodelay: false, ..options() });
    line.send(2_500);
    line.send(100);
    assert_eq!(line.sent(), ["0+2500 ack 0 PSH by 1000"]);
    line.ack(2_500);
    line.tick();
    assert_eq!(line.sent(), ["2500+100 ack 0 PSH"]);
}
