//! Routers' reports, and which of them are accepted (RFC 5927).

use crate::proto::tcp::tests::line::{Line, MSS};
use crate::proto::tcp::tests::script::accepted;
use crate::proto::tcp::tests::*;

#[test]
fn claim_about_a_number_that_is_not_on_its_way_is_ignored() {
    let mut script = accepted();
    let (flow, now, ack) = (Flow { local: SERVER, remote: CLIENT }, script.end.now, script.ack);
    for seq in [ack - 1, ack, ack + 1] {
        let claim = script.end.tcp.path_mtu(flow, 600, seq, now, &mut script.end.sent);
        assert_eq!(claim, Err(IcmpRefusal::NotInFlight));
    }
}

#[test]
fn claim_makes_segments_smaller_and_not_smaller_than_any_link() {
    let mut script = accepted();
    let (id, flow, now, seq) = (script.id(), Flow { local: SERVER, remote: CLIENT }, script.end.now, script.ack);
    script.end.tcp.send(id, vec![7; 1000], now, &mut script.end.sent).unwrap();
    let tcp = &mut script.end.tcp;
    assert_eq!(tcp.path_mtu(flow, 1500, seq, now, &mut script.end.sent), Err(IcmpRefusal::NotSmaller));
    tcp.path_mtu(flow, 68, seq, now, &mut script.end.sent).unwrap();
    assert_eq!(tcp.info(id, now).unwrap().snd_mss, 552 - 40);
    script.end.sent.0.clear();
    script.end.tick();
    let again: Vec<_> = script.end.sent.0.iter().map(|(segment, bytes)| (segment.seq, bytes.len())).collect();
    assert_eq!(again, [(seq, 512), (seq + 512, 488)], "what was too large goes again in parts");
}

/// Otherwise it would wait until the override timer sends it in parts.
#[test]
fn full_segment_that_is_tried_again_leaves_at_once_whatever_timeouts_left_of_cwnd() {
    let mut line = Line::with(&ConnectionOptions::default());
    let connection = line.connection();
    (connection.snd.mss, connection.path.mss_max, connection.congestion.cwnd) = (512, MSS as u16, 512);
    connection.path.lowered_at_s = 1;
    line.after_s(700);
    line.context().raise_mss();
    assert_eq!((line.connection().snd.mss, line.connection().congestion.cwnd), (MSS as u16, MSS));
    line.send(MSS);
    line.tick();
    let lens: Vec<_> = line.wire.sent.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens, [MSS as usize]);
}

#[test]
fn segments_are_counted_and_routers_believed_beyond_four_billion() {
    let mut line = Line::new();
    let tally = &mut line.connection().tally;
    (tally.segments_out, tally.segments_in, tally.bytes_acked) = (u32::MAX.into(), u32::MAX.into(), 10 << 32);
    line.send(10);
    line.ack(10);
    line.send(1_000);
    let (id, now) = (line.id(), line.now);
    let info = line.tcp.info(id, now).unwrap();
    let beyond = 1 << 32;
    assert_eq!((info.segments_out, info.segments_in), (beyond + 1, beyond));
    assert_eq!((info.bytes_sent, info.bytes_acked), ((10 << 32) + 1_010, (10 << 32) + 10));
    let seq = line.connection().snd.una;
    let flow = Flow { local: CLIENT, remote: SERVER };
    let claim = line.tcp.path_mtu(flow, 600, seq, now, &mut line.wire);
    assert_eq!(claim, Ok(()), "ten bytes a segment have shown nothing");
}

#[test]
fn end_of_the_stream_is_no_byte_that_was_acknowledged() {
    let mut line = Line::new();
    line.send(10);
    line.finish();
    line.ack(11);
    let (id, now) = (line.id(), line.now);
    let info = line.tcp.info(id, now).unwrap();
    assert_eq!((info.bytes_sent, info.bytes_acked), (10, 10));
}

#[test]
fn established_connection_outlives_a_router_that_knows_no_way() {
    let mut script = accepted();
    let (id, flow, now, seq) = (script.id(), Flow { local: SERVER, remote: CLIENT }, script.end.now, script.ack);
    script.end.tcp.send(id, vec![7; 10], now, &mut script.end.sent).unwrap();
    let claim = script.end.tcp.unreachable(flow, seq, now, &mut script.end.sent);
    assert_eq!((claim, script.state()), (Err(IcmpRefusal::Soft), Some(State::Established)));
}
