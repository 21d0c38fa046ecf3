//! Received data: which is delivered, which is kept, and which reports the peer gets.

use proptest::prelude::*;

use crate::proto::tcp::state::connection::{AppFlags, InputFlags};
use crate::proto::tcp::tests::line::{Line, MSS, options, stream};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::TcpFlags;

/// A connection past its beginning, where acknowledgments come at once.
fn seasoned() -> Line {
    let mut line = Line::new();
    line.connection().tally.bytes_received = 1 << 20;
    line
}

#[test]
fn data_in_order_is_handed_over_as_it_comes() {
    let mut line = Line::new();
    (0..5).for_each(|idx| _ = line.data(idx * MSS, MSS));
    line.assert_delivered(5 * MSS);
    assert_eq!(line.tcp.chunks(), 0);
}

#[test]
fn data_beyond_a_hole_waits_and_each_is_answered() {
    let mut line = seasoned();
    line.data(1000, 1000);
    line.data(2000, 1000);
    assert_eq!(line.sent(), ["0 ack 0 sack 1000..2000", "0 ack 0 sack 1000..3000"]);
    line.assert_delivered(0);
    line.data(0, 1000);
    assert_eq!(line.sent(), ["0 ack 3000"], "filling the hole is acknowledged at once");
    line.assert_delivered(3000);
    assert_eq!(line.tcp.chunks(), 0);
}

#[test]
fn latest_range_is_told_first_and_no_more_than_three_with_timestamps() {
    let mut line = seasoned();
    for at in [1000, 3000, 5000, 7000] {
        line.data(at, 500);
    }
    line.sent();
    line.data(9000, 500);
    assert_eq!(line.sent(), ["0 ack 0 sack 9000..9500 sack 7000..7500 sack 5000..5500 sack 3000..3500"]);
    line.connection().set(InputFlags::TIMESTAMPS);
    line.context().send_ack();
    assert_eq!(line.sent(), ["0 ack 0 sack 9000..9500 sack 7000..7500 sack 5000..5500"]);
}

#[test]
fn ranges_that_touch_are_one() {
    let mut line = seasoned();
    line.data(1000, 1000);
    line.data(3000, 1000);
    line.sent();
    line.data(2000, 1000);
    assert_eq!(line.sent(), ["0 ack 0 sack 1000..4000"]);
}

#[test]
fn peer_without_sack_is_told_nothing_of_ranges() {
    let mut line = seasoned();
    line.connection().clear(InputFlags::SACK);
    line.data(1000, 1000);
    line.data(1000, 1000);
    assert_eq!(line.sent(), ["0 ack 0", "0 ack 0"]);
}

#[test]
fn duplicate_is_reported_once() {
    let mut line = seasoned();
    line.data(0, 1000);
    line.tick();
    line.sent();
    line.data(0, 500);
    line.tick();
    line.data(500, 700);
    line.send(1);
    assert_eq!(line.sent(), ["0 ack 1000 sack 0..500", "0+1 ack 1200 PSH sack 500..1000"]);
    line.send(1);
    assert_eq!(line.sent(), ["1+1 ack 1200 PSH"]);
    line.assert_delivered(1200);
}

#[test]
fn duplicate_out_of_order_is_reported_before_the_range_that_has_it() {
    let mut line = seasoned();
    line.data(1000, 1000);
    line.data(2000, 1000);
    line.sent();
    line.data(1500, 1000);
    assert_eq!(line.sent(), ["0 ack 0 sack 1500..2500 sack 1000..3000"]);
    line.context().send_ack();
    assert_eq!(line.sent(), ["0 ack 0 sack 1000..3000"]);
}

#[test]
fn data_beyond_the_window_is_cut_off() {
    let mut line = Line::with(&ConnectionOptions { receive_buffer: 2_000, ..options() });
    line.data(0, 3000);
    line.assert_delivered(2000);
    line.tick();
    line.data(3500, 3000);
    line.data(2000, 1500);
    line.assert_delivered(4000);
}

#[test]
fn segments_out_of_order_are_bounded_by_their_number() {
    let config = TcpConfig { connections_max: 1, chunks_max: 1000, reassembly_max: 10, ..TcpConfig::default() };
    let mut line = Line::of(config, &options());
    (1..100).for_each(|idx| _ = line.data(idx * 20, 10));
    assert_eq!(line.tcp.chunks(), 10);
    assert_eq!(line.sent().len(), 99, "each is answered");
}

#[test]
fn no_connection_takes_more_of_the_store_than_it_leaves() {
    let config = TcpConfig { connections_max: 1, chunks_max: 100, ..TcpConfig::default() };
    let mut line = Line::of(config, &options());
    (1..1000).for_each(|idx| _ = line.data(idx * 20, 10));
    assert_eq!(line.tcp.chunks(), 47, "half of what is not kept for splitting");
    // Data that fills the hole needs no room.
    line.data(0, 20);
    line.assert_delivered(30);
}

#[test]
fn pool_with_fewer_buffers_than_chunks_is_not_used_up_by_what_is_kept() {
    let config = TcpConfig { connections_max: 1, chunks_max: 100, ..TcpConfig::default() };
    let mut line = Line::of(config, &options());
    line.tcp.limit_buffers(40);
    (1..1000).for_each(|idx| _ = line.data(idx * 20, 10));
    assert_eq!(line.tcp.chunks(), 20);
    line.tcp.limit_buffers(1_000);
    (1..1000).for_each(|idx| _ = line.data(idx * 20, 10));
    assert_eq!(line.tcp.chunks(), 47, "more buffers than chunks make no more chunks");
}

#[test]
fn paused_app_gets_its_data_when_it_goes_on() {
    let mut line = seasoned();
    line.connection().set(AppFlags::PAUSED);
    line.data(0, 1000);
    line.data(1000, 1000);
    line.tick();
    line.assert_delivered(0);
    assert_eq!(line.sent(), ["0 ack 2000"]);
    line.resume();
    line.assert_delivered(2000);
}

#[test]
fn window_closes_as_a_paused_app_fills_it_and_its_end_stays() {
    let mut line = Line::with(&ConnectionOptions { receive_buffer: 4_000, ..options() });
    line.connection().set(AppFlags::PAUSED);
    let mut windows = Vec::new();
    for at in [0, 1000, 2000, 3000] {
        line.data(at, 1000);
        line.tick();
        windows.extend(line.windows());
    }
    assert_eq!(windows, [3000, 2000, 1000, 0]);
    line.data(4000, 1);
    line.tick();
    assert_eq!(line.windows(), [0], "a probe is answered");
    line.resume();
    line.tick();
    assert_eq!(line.windows(), [4000], "the peer is told that the window is open");
    line.assert_delivered(4000);
}

#[test]
fn window_does_not_open_by_less_than_a_segment() {
    let mut line = Line::with(&ConnectionOptions { receive_buffer: 4_000, ..options() });
    line.connection().set(AppFlags::PAUSED);
    // Two consecutive ones fit no buffer, so each is kept by itself.
    let lens = [600, 1_000, 600, 1_000, 800];
    lens.into_iter().fold(0, |at, len| {
        line.data(at, len);
        at + len
    });
    line.tick();
    line.sent();
    let mut windows = Vec::new();
    line.connection().clear(AppFlags::PAUSED);
    for _ in lens {
        let id = line.id();
        line.tcp.next_data(id).unwrap();
        line.tick();
        windows.extend(line.windows());
    }
    // Each step is a full segment at least (RFC 9293 3.8.6.2.2).
    assert_eq!(windows, [1600, 3200]);
}

#[test]
fn second_full_segment_is_acknowledged_at_the_end_of_the_burst() {
    let mut line = seasoned();
    line.data(0, MSS);
    line.tick();
    assert!(line.sent().is_empty());
    line.data(MSS, MSS);
    line.data(2 * MSS, MSS);
    assert!(line.sent().is_empty(), "not before the burst ends");
    line.tick();
    assert_eq!(line.sent(), ["0 ack 3000"]);
}

#[test]
fn beginning_of_a_connection_is_acknowledged_at_once() {
    let mut line = Line::new();
    line.data(0, 10);
    line.tick();
    assert_eq!(line.sent(), ["0 ack 10"]);
}

#[test]
fn quickack_acknowledges_each_burst() {
    let mut line = Line::with(&ConnectionOptions { quickack: true, ..options() });
    line.connection().tally.bytes_received = 1 << 20;
    line.data(0, 10);
    line.tick();
    assert_eq!(line.sent(), ["0 ack 10"]);
}

#[test]
fn fin_before_missing_data_takes_effect_when_it_came() {
    let mut line = seasoned();
    line.note_received(1000, stream(1000, 500), TcpFlags::ACK | TcpFlags::FIN, |_| ());
    assert!(line.events.is_empty());
    line.data(0, 1000);
    line.tick();
    line.assert_delivered(1500);
    assert_eq!(line.events.last(), Some(&TcpEvent::PeerClosed));
    assert_eq!(line.sent().last().unwrap(), "0 ack 1501");
}

/// Pieces of a stream of 4000 bytes, anywhere, of any length.
fn pieces() -> impl Strategy<Value = Vec<(u32, u32, bool)>> {
    prop::collection::vec((0u32..4000, 1u32..700, any::<bool>()), 1..120)
}

proptest! {
    /// Against a map of the received bytes: delivered is the contiguous prefix, and nothing is
    /// lost.
    #[test]
    fn stream_is_delivered_as_far_as_it_is_whole(pieces in pieces()) {
        let mut line = Line::new();
        let (mut came, mut edge) = ([false; 4000], 0);
        for (at, len, pauses) in pieces {
            let len = len.min(4000 - at);
            line.connection().clear(AppFlags::PAUSED);
            if pauses {
                line.connection().set(AppFlags::PAUSED);
            }
            line.data(at, len);
            came[at as usize..][..len as usize].fill(true);
            line.resume();
            let whole = came.iter().position(|came| !came).unwrap_or(4000) as u32;
            line.assert_delivered(whole);
            line.check_out_of_order(&came);
            line.tick();
            for (outgoing, _) in line.wire.sent.drain(..) {
                let right = outgoing.ack.0.wrapping_add(u32::from(outgoing.wnd)).wrapping_sub(edge);
                prop_assert!(edge == 0 || (right as i32) >= 0, "the right edge never moves left");
                edge = edge.wrapping_add(right);
            }
        }
    }
}

/// A segment, the reason why it is refused, and the data kept afterwards.
fn refused(line: &mut Line, at: u32, len: u32, why: TcpDrop) {
    let (before, next) = (line.tcp.chunks(), line.connection().rcv.nxt);
    assert_eq!(line.data(at, len), Some(why), "{len} bytes at {at}");
    assert_eq!((line.tcp.chunks(), line.connection().rcv.nxt), (before, next));
}

#[test]
fn each_segment_that_is_refused_has_a_reason() {
    let config = TcpConfig { connections_max: 1, chunks_max: 100, reassembly_max: 1, ..TcpConfig::default() };
    let mut line = Line::of(config, &ConnectionOptions { receive_buffer: 4_000, ..options() });
    assert_eq!(line.data(1000, 10), None, "kept");
    refused(&mut line, 1000, 10, TcpDrop::Duplicate);
    refused(&mut line, 1002, 3, TcpDrop::Duplicate);
    refused(&mut line, 2000, 10, TcpDrop::NoRoom);
    refused(&mut line, 4000, 10, TcpDrop::NotAcceptable);
    line.assert_delivered(0);
}

#[test]
fn data_that_a_paused_app_has_no_share_for_is_counted() {
    let config = TcpConfig { connections_max: 1, chunks_max: 16, ..TcpConfig::default() };
    let mut line = Line::of(config, &options());
    line.connection().set(AppFlags::PAUSED);
    let kept = (0..16).take_while(|idx| line.data(idx * MSS, MSS).is_none()).count() as u32;
    assert!((4..12).contains(&kept), "{kept}");
    refused(&mut line, kept * MSS, MSS, TcpDrop::NoRoom);
    line.resume();
    line.data(kept * MSS, MSS);
    line.assert_delivered((kept + 1) * MSS);
}

#[test]
fn data_behind_the_fin_of_its_own_side_is_counted() {
    let mut line = Line::new();
    line.note_received(0, Vec::new(), TcpFlags::FIN | TcpFlags::ACK, |_| ());
    assert_eq!(line.data(1, 10), Some(TcpDrop::AfterFin));
    line.assert_delivered(0);
}

/// RFC 2883 4: numbers half a ring after the first one can be duplicates too.
#[test]
fn duplicate_is_reported_however_long_the_stream_is() {
    let mut line = Line::new();
    line.data(0, 1000);
    line.sent();
    // As if more than two gigabytes had come before.
    let irs = line.connection().rare_rcv.irs;
    line.connection().rare_rcv.irs = irs - 0x9000_0000;
    line.connection().tally.bytes_received += 0x9000_0000;
    line.data(0, 1000);
    assert_eq!(line.sent(), ["0 ack 1000 sack 0..1000"]);
}
