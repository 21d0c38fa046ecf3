//! A sender that finds out whether a timeout was spurious (F-RTO, RFC 5682).

use crate::proto::tcp::state::connection::Recovery;
use crate::proto::tcp::tests::line::{Line, options};
use crate::proto::tcp::tests::*;

/// Two segments and a short one are lost and the timer runs out; then the first of them arrives,
/// and the peer's window ends at `edge`. Meanwhile `waiting` bytes wait to be sent.
fn behind_a_timeout(options: &ConnectionOptions, waiting: u32, edge: u16) -> Line {
    let mut line = Line::with(&ConnectionOptions { congestion: Congestion::Reno, ..*options });
    line.connection().congestion.cwnd = 2_100;
    for len in [1_000, 1_000, 100, waiting] {
        line.send(len);
    }
    line.context().on_timeout();
    line.tick();
    assert_eq!(line.sent().len(), 4, "three segments, and the first of them again");
    line.after_ms(10);
    line.wnd = edge - 1_000;
    line.ack(1_000);
    line.tick();
    line
}

#[test]
fn two_new_segments_tell_whether_the_timeout_was_for_nothing() {
    let mut line = behind_a_timeout(&options(), 5_000, 60_000);
    assert_eq!(line.connection().recovery, Recovery::Probing);
    assert_eq!(line.sent(), ["2100+1000 ack 0", "3100+1000 ack 0"]);
}

/// RFC 5682 2.1 step 2: a sender that sends nothing new learns nothing, and lost data must not wait
/// for another timeout.
#[test]
fn new_data_that_nagle_holds_is_not_waited_for() {
    let mut line = behind_a_timeout(&ConnectionOptions { nodelay: false, ..options() }, 100, 60_000);
    assert_eq!(line.connection().recovery, Recovery::Loss);
    assert_eq!(line.sent(), ["1000+1000 ack 0 PSH", "2000+100 ack 0 PSH"]);
}

#[test]
fn new_data_that_the_window_is_too_small_for_is_not_waited_for() {
    let mut line = behind_a_timeout(&options(), 1_000, 2_400);
    assert_eq!(line.connection().recovery, Recovery::Loss);
    assert_eq!(line.sent(), ["1000+1000 ack 0 PSH", "2000+100 ack 0 PSH"]);
}
