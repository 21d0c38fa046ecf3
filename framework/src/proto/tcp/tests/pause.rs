//! A paused app gets the event of its connection's end.

use super::line::{Line, MSS, options};
use super::*;
use crate::proto::tcp::state::connection::State;
use crate::wire::tcp::TcpFlags;

/// Four bytes wait for an app that has paused.
fn paused(options: &ConnectionOptions) -> Line {
    let mut line = Line::with(options);
    let id = line.id();
    line.tcp.pause(id).unwrap();
    line.data(0, 4);
    line.tick();
    assert_eq!((line.bytes.len(), &line.events[..]), (0, &[][..]));
    line
}

/// The end is reported after the waiting data, which is not lost, and then the slot is free.
fn ends(line: Line, reason: CloseReason) {
    assert_eq!(line.events, [TcpEvent::Readable, TcpEvent::Closed(reason)]);
    line.assert_delivered(4);
    assert!(line.is_gone());
}

#[test]
fn paused_app_is_told_of_a_reset() {
    let mut line = paused(&options());
    line.note_received(4, Vec::new(), TcpFlags::RST, |_| ());
    ends(line, CloseReason::Reset);
}

#[test]
fn paused_app_is_told_that_the_peer_is_silent() {
    let keepalive = Keepalive { idle: Duration::from_secs(1), interval: Duration::from_secs(1), count: 3 };
    let mut line = paused(&ConnectionOptions { keepalive: Some(keepalive), ..options() });
    line.after_s(6);
    ends(line, CloseReason::KeepaliveTimedOut);
}

#[test]
fn paused_app_is_told_that_nothing_is_acknowledged() {
    let mut line = paused(&ConnectionOptions { user_timeout: Some(Duration::from_secs(3)), ..options() });
    line.send(10);
    line.after_s(6);
    ends(line, CloseReason::TimedOut);
}

#[test]
fn paused_app_is_told_of_room() {
    let mut line = paused(&ConnectionOptions { send_buffer: 1_000, ..options() });
    line.send(1_000);
    let (id, now) = (line.id(), line.now);
    assert_eq!(line.tcp.send(id, vec![1], now, &mut line.wire).unwrap_err().0, SendError::Full);
    line.ack(1_000);
    line.tick();
    assert_eq!(line.events, [TcpEvent::Writable], "the data waits on");
    line.resume();
    line.tick();
    line.assert_delivered(4);
}

#[test]
fn app_that_pauses_again_at_its_last_data_is_told_as_well() {
    let mut line = Line::new();
    let id = line.id();
    line.tcp.pause(id).unwrap();
    line.data(0, 1_000);
    line.data(1_000, 1_000);
    line.context().close(CloseReason::Reset);
    assert_eq!(line.tcp.next_event(), Some((id, ConsumerId(1), TcpEvent::Readable)));
    assert!(line.tcp.next_data(id).is_some());
    line.tcp.pause(id).unwrap();
    assert!(line.tcp.next_data(id).is_some());
    assert_eq!(line.tcp.next_event(), Some((id, ConsumerId(1), TcpEvent::Closed(CloseReason::Reset))));
    assert!(line.tcp.next_event().is_none() && line.is_gone());
}

#[test]
fn end_that_both_wanted_waits_for_the_app() {
    let mut line = paused(&options());
    line.note_received(4, Vec::new(), TcpFlags::FIN | TcpFlags::ACK, |_| ());
    line.finish();
    line.note_received(5, Vec::new(), TcpFlags::ACK, |segment| segment.ack += 1);
    assert_eq!((line.connection().state, &line.events[..]), (State::Closed, &[][..]));
    line.resume();
    line.tick();
    assert_eq!(line.events[..], [TcpEvent::PeerClosed, TcpEvent::Closed(CloseReason::Finished)]);
    line.assert_delivered(4);
}

/// The window counts bytes, so it cannot report to the peer that chunks are used up.
#[test]
fn small_messages_that_wait_take_no_chunk_each() {
    let mut line = Line::of(TcpConfig { chunks_max: 32, ..TcpConfig::default() }, &options());
    let id = line.id();
    line.tcp.pause(id).unwrap();
    for nth in 0..200 {
        assert_eq!(line.data(4 * nth, 4), None, "the {nth}th");
    }
    line.resume();
    line.tick();
    line.assert_delivered(800);
}

/// Once the hole is filled these segments wait for the app too: both share one limit of chunks.
#[test]
fn data_behind_a_hole_has_its_share_with_what_waits_in_order() {
    let mut line = Line::of(TcpConfig { chunks_max: 32, ..TcpConfig::default() }, &options());
    let id = line.id();
    line.tcp.pause(id).unwrap();
    (0..10).for_each(|nth| assert_eq!(line.data(nth * MSS, MSS), None));
    let is_kept = |nth: &u32| line.data(nth * MSS, MSS).is_none();
    let kept = (11..30).filter(is_kept).count();
    assert!((1..=6).contains(&kept), "{kept} behind ten of 32");
}
