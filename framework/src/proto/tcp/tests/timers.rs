//! Timers.

use super::line::{Line, MSS, options};
use super::*;
use crate::proto::tcp::state::connection::State;
use crate::wire::tcp::TcpFlags;

const HOUR: u64 = 3_600;

#[test]
fn acknowledgment_waits_for_its_delay_and_no_longer() {
    let mut line = Line::with(&ConnectionOptions { ack_delay: Duration::from_millis(5), ..options() });
    line.connection().tally.bytes_received = 1 << 20;
    line.data(0, 10);
    line.tick();
    line.after_ms(4);
    assert!(line.sent().is_empty());
    line.after_ms(2);
    assert_eq!(line.sent(), ["0 ack 10"]);
    line.after_ms(100);
    assert!(line.sent().is_empty());
}

#[test]
fn data_takes_the_delayed_acknowledgment_along() {
    let mut line = Line::with(&ConnectionOptions { ack_delay: Duration::from_millis(5), ..options() });
    line.connection().tally.bytes_received = 1 << 20;
    line.data(0, 10);
    line.after_ms(1);
    line.send(1);
    line.ack(1);
    line.after_ms(100);
    assert_eq!(line.sent(), ["0+1 ack 10 PSH"]);
}

/// A connection with that many exchanges behind it, a request and its answer of ten bytes each.
fn after_exchanges(count: u32) -> Line {
    let (short, long) = (Duration::from_millis(1), Duration::from_millis(40));
    let options = ConnectionOptions { ack_delay: short, interactive_ack_delay: Some(long), ..options() };
    let mut line = Line::with(&options);
    line.connection().tally.bytes_received = 1 << 20;
    exchange(&mut line, count);
    line
}

fn exchange(line: &mut Line, count: u32) {
    for _ in 0..count {
        line.ack = line.written;
        line.data(line.bytes.len() as u32, 10);
        line.send(10);
    }
    line.ack = line.written;
    line.sent();
}

#[test]
fn acknowledgment_of_a_request_waits_for_the_answer_once_eight_have_taken_theirs_along() {
    let mut line = after_exchanges(8);
    line.data(80, 10);
    line.after_ms(39);
    assert!(line.sent().is_empty());
    line.send(10);
    assert_eq!(line.sent(), ["80+10 ack 90 PSH"]);

    let mut line = after_exchanges(7);
    line.data(70, 10);
    line.after_ms(2);
    assert_eq!(line.sent(), ["70 ack 80"], "seven are too few");
}

#[test]
fn answer_that_is_late_shortens_the_wait_of_the_next_seven() {
    let mut line = after_exchanges(8);
    line.data(80, 10);
    line.after_ms(41);
    assert_eq!(line.sent(), ["80 ack 90"]);
    line.send(10);
    exchange(&mut line, 6);
    line.data(150, 10);
    line.after_ms(2);
    assert_eq!(line.sent(), ["150 ack 160"]);
    line.send(10);
    exchange(&mut line, 1);
    line.data(170, 10);
    line.after_ms(2);
    assert!(line.sent().is_empty(), "eight were answered in time");
}

#[test]
fn first_half_of_a_request_waits_no_longer_after_any_number_of_exchanges() {
    let mut line = after_exchanges(0);
    for request in 0..20 {
        line.ack = line.written;
        line.data(10 * request, 5);
        line.after_ms(2);
        assert_eq!(line.sent().len(), 1, "a peer with Nagle's algorithm sends the second half now");
        line.data(10 * request + 5, 5);
        line.send(10);
        line.sent();
    }
}

/// A connection whose window is closed while 1000 bytes wait.
fn stuffed(options: &ConnectionOptions) -> Line {
    let mut line = Line::with(options);
    line.wnd = 0;
    line.ack(0);
    line.connection().snd.wnd = 0;
    line.send(1000);
    assert!(line.sent().is_empty());
    line
}

#[test]
fn closed_window_is_probed_ever_less_often() {
    let mut line = stuffed(&options());
    let rto_ms = line.connection().rtt.rto.span().as_nanos() / 1_000_000;
    line.after_ms(rto_ms - 1);
    assert!(line.sent().is_empty());
    line.after_ms(2);
    assert_eq!(line.sent(), ["-1 ack 0"], "after a retransmission timeout (RFC 9293 3.8.6.1)");
    line.after_ms(2 * rto_ms + 1);
    assert_eq!(line.sent().len(), 1);
    line.after_ms(3 * rto_ms);
    assert!(line.sent().is_empty());
    line.after_ms(rto_ms + 1);
    assert_eq!(line.sent().len(), 1);
}

#[test]
fn peer_that_answers_may_keep_its_window_closed_for_ever() {
    let mut line = stuffed(&options());
    for _ in 0..2 * HOUR {
        line.after_s(1);
        if !line.sent().is_empty() {
            line.ack(0);
        }
    }
    assert!(line.events.is_empty());
    // Once a minute, so an opened window is noticed soon, also where its update was lost.
    assert!((118..150).contains(&line.tcp.tally().zero_window_probes), "{}", line.tcp.tally().zero_window_probes);
    line.wnd = 60_000;
    line.ack(0);
    line.tick();
    assert_eq!(line.sent(), ["0+1000 ack 0 PSH"]);
    assert_eq!(line.connection().clock.backoff, 0);
}

#[test]
fn peer_that_answers_no_probe_is_given_up() {
    let mut line = stuffed(&options());
    line.after_s(HOUR);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::TimedOut)]);
    assert_eq!(line.sent().len(), usize::from(TcpConfig::default().retries));
}

#[test]
fn window_smaller_than_a_segment_is_used_in_the_end() {
    let mut line = stuffed(&options());
    line.wnd = 100;
    line.ack(0);
    line.connection().snd.wnd = 100;
    line.tick();
    assert!(line.sent().is_empty(), "silly");
    line.after_s(2);
    assert_eq!(line.sent()[0], "0+100 ack 0");
}

#[test]
fn probe_without_room_is_sent_later() {
    let mut line = stuffed(&options());
    line.wire.room = 0;
    line.after_s(3);
    assert_eq!(line.tcp.tally().zero_window_probes, 0);
    line.wire.room = usize::MAX;
    line.after_s(2);
    assert_eq!(line.sent(), ["-1 ack 0"]);
}

#[test]
fn peer_that_takes_its_window_back_and_answers_is_not_given_up() {
    let mut line = Line::new();
    line.send(1000);
    line.sent();
    line.wnd = 0;
    for _ in 0..2 * HOUR {
        line.ack(0);
        line.after_s(1);
    }
    assert!(line.events.is_empty());
    line.wnd = 60_000;
    line.ack(1000);
    assert_eq!(line.tcp.chunks(), 0);
}

#[test]
fn who_shuts_down_does_not_linger() {
    let mut line = Line::with(&ConnectionOptions { linger: Linger::For(Duration::from_secs(1)), ..kept_alive() });
    line.finish();
    line.after_s(11);
    line.ack(0);
    line.after_s(2);
    assert!(line.events.is_empty(), "{:?}", line.events);
}

fn kept_alive() -> ConnectionOptions {
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), count: 3 };
    ConnectionOptions { keepalive: Some(keepalive), ..options() }
}

/// RFC 9293 3.8.4 (MUST-28).
#[test]
fn keepalive_waits_for_two_hours_unless_it_is_told_otherwise() {
    let mut line = Line::with(&ConnectionOptions { keepalive: Some(Keepalive::default()), ..options() });
    line.now += Duration::from_secs(7_199);
    line.tick();
    assert!(line.sent().is_empty());
    line.after_s(2);
    assert_eq!(line.sent(), ["-1 ack 0"]);
}

#[test]
fn silent_peer_is_probed_and_given_up() {
    let mut line = Line::with(&kept_alive());
    line.after_s(9);
    assert!(line.sent().is_empty());
    line.after_s(2);
    assert_eq!(line.sent(), ["-1 ack 0"]);
    line.after_s(4);
    assert_eq!(line.sent(), ["-1 ack 0", "-1 ack 0"]);
    assert!(line.events.is_empty());
    line.after_s(2);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::KeepaliveTimedOut)]);
    assert_eq!(line.sent(), ["0 ack 0 RST"]);
}

#[test]
fn options_that_are_set_again_do_not_keep_a_silent_peer_alive() {
    let mut line = Line::with(&kept_alive());
    let (id, ttl) = (line.id(), ConnectionOptions { ttl: 9, ..kept_alive() });
    for half_seconds in 0..34 {
        line.after_ms(500);
        let options = if half_seconds % 2 == 0 { kept_alive() } else { ttl };
        // The last finds no connection.
        let _ = line.tcp.set_options(id, &options, line.now, &mut line.wire);
    }
    assert_eq!(line.tcp.tally().keepalive_probes, 3);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::KeepaliveTimedOut)]);
}

#[test]
fn shorter_idle_time_moves_the_next_probe_and_counts_on() {
    let mut line = Line::with(&kept_alive());
    line.after_s(11);
    assert_eq!(line.sent(), ["-1 ack 0"]);
    let keepalive = Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(2), count: 3 };
    let shorter = ConnectionOptions { keepalive: Some(keepalive), ..options() };
    line.tcp.set_options(line.id(), &shorter, line.now, &mut line.wire).unwrap();
    line.after_ms(10);
    assert_eq!(line.sent(), ["-1 ack 0"], "at once");
    line.after_s(5);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::KeepaliveTimedOut)]);
}

#[test]
fn answer_to_a_probe_begins_the_silence_anew() {
    let mut line = Line::with(&kept_alive());
    line.after_s(13);
    assert_eq!(line.sent().len(), 2);
    line.ack(0);
    line.after_s(9);
    assert!(line.sent().is_empty());
    line.after_s(5);
    assert_eq!(line.sent().len(), 2, "counted from the beginning");
}

#[test]
fn segments_of_the_peer_put_the_probe_off() {
    let mut line = Line::with(&kept_alive());
    for at in 0..50 {
        line.data(at, 1);
        line.after_s(1);
    }
    assert_eq!(line.tcp.tally().keepalive_probes, 0);
}

#[test]
fn user_timeout_takes_the_place_of_the_count_of_probes() {
    // tcp(7): "when used with the TCP keepalive option, TCP_USER_TIMEOUT will override keepalive".
    let mut line = Line::with(&ConnectionOptions { user_timeout: Some(Duration::from_secs(30)), ..kept_alive() });
    line.after_s(29);
    assert!(line.events.is_empty());
    line.after_s(3);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::KeepaliveTimedOut)]);
}

#[test]
fn user_timeout_ends_a_connection_whose_data_is_not_acknowledged() {
    let mut line = Line::with(&ConnectionOptions { user_timeout: Some(Duration::from_millis(700)), ..options() });
    line.after_s(5);
    line.send(10);
    line.after_ms(699);
    assert!(line.events.is_empty());
    line.after_ms(2);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::TimedOut)]);
}

#[test]
fn user_timeout_ends_a_connection_whose_window_stays_closed() {
    let mut line = stuffed(&ConnectionOptions { user_timeout: Some(Duration::from_secs(20)), ..options() });
    for _ in 0..19 {
        line.after_s(1);
        line.ack(0);
    }
    assert!(line.events.is_empty());
    line.after_s(2);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::TimedOut)]);
}

#[test]
fn syn_is_sent_again_and_given_up() {
    let mut end = End::new(1);
    let flow = Flow { local: CLIENT, remote: SERVER };
    end.tcp.connect(flow, &options(), ConsumerId(1), end.now, &mut end.sent).unwrap();
    let begin = end.now;
    let mut sent_at = Vec::new();
    for _ in 0..200 {
        end.sent.0.drain(..).for_each(|(outgoing, _)| {
            assert!(outgoing.syn.is_some());
            sent_at.push(end.now.since(begin).as_nanos() / 1_000_000_000);
        });
        end.now += Duration::from_secs(1);
        end.tick();
    }
    // RFC 6298: 1 s, doubled each time, 60 s at most. The tick of the wheel rounds up, and this
    // clock moves by seconds.
    assert_eq!(sent_at.len(), 1 + usize::from(TcpConfig::default().syn_retries));
    let gaps: Vec<u64> = sent_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().zip([1, 2, 4, 8, 16, 32]).all(|(gap, wanted)| gap.abs_diff(wanted) <= 1), "{gaps:?}");
    assert_eq!(end.events, [TcpEvent::Closed(CloseReason::NoAnswer)]);
}

#[test]
fn syn_is_sent_again_as_often_as_its_connection_says() {
    let mut end = End::new(1);
    let flow = Flow { local: CLIENT, remote: SERVER };
    let options = ConnectionOptions { syn_retries: Some(2), ..options() };
    end.tcp.connect(flow, &options, ConsumerId(1), end.now, &mut end.sent).unwrap();
    for _ in 0..20 {
        end.now += Duration::from_secs(1);
        end.tick();
    }
    assert_eq!(end.sent.0.len(), 3);
    assert_eq!(end.events, [TcpEvent::Closed(CloseReason::NoAnswer)]);
}

#[test]
fn syn_that_found_no_room_leaves_with_the_next_tick() {
    let mut line = Line::new();
    line.connection().state = State::SynSent;
    line.wire.room = 0;
    line.context().send_syn();
    line.wire.room = 1;
    line.tick();
    assert!(line.sent()[0].ends_with("SYN"));
}

#[test]
fn syn_asks_for_ecn_once() {
    let mut line = Line::with(&ConnectionOptions { ecn: true, ..options() });
    line.connection().state = State::SynSent;
    line.context().send_syn();
    assert!(line.sent()[0].ends_with("SYN ECE CWR"));
    line.connection().clock.backoff = 1;
    line.context().send_syn();
    assert!(line.sent()[0].ends_with("SYN"), "RFC 3168 6.1.1.1");
}

#[test]
fn time_wait_ends() {
    let mut line = Line::new();
    line.finish();
    line.ack(1);
    line.note_received(0, Vec::new(), TcpFlags::ACK | TcpFlags::FIN, |_| ());
    assert_eq!(line.connection().state, State::TimeWait);
    line.after_s(59);
    assert!(!line.is_gone());
    line.after_s(2);
    assert!(line.is_gone());
}

#[test]
fn time_to_linger_ends_the_waiting_alone() {
    let mut line = Line::with(&ConnectionOptions { linger: Linger::For(Duration::from_secs(2)), ..options() });
    line.send(100);
    let id = line.id();
    line.tcp.close(id, line.now, &mut line.wire).unwrap();
    line.wire.sent.clear();
    line.wire.is_cut = true;
    line.after_ms(1_990);
    line.wire.is_cut = false;
    line.after_ms(11);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::LingerTimedOut)]);
    assert!(line.sent().iter().all(|segment| !segment.contains("RST")));
    assert_eq!((line.tcp.len(), line.tcp.close(id, line.now, &mut line.wire)), (1, Err(CallError::NotFound)));
    line.ack(101);
    assert_eq!(line.tcp.chunks(), 0, "what was handed over has arrived");
    line.after_s(61);
    assert_eq!((line.tcp.len(), line.events.len()), (0, 1), "nobody hears how it ends");
}

#[test]
fn clock_that_jumps_makes_each_timer_run_once() {
    let mut line = Line::with(&kept_alive());
    line.now += Duration::from_secs(1000 * HOUR);
    line.tick();
    line.tick();
    assert_eq!(line.sent(), ["-1 ack 0"]);
}

/// Its app is gone, and ours has closed.
#[test]
fn peer_that_never_reads_does_not_keep_a_closed_connection() {
    let mut line = Line::new();
    line.wnd = 0;
    line.ack(0);
    line.send(1000);
    let (id, now) = (line.id(), line.now);
    line.tcp.close(id, now, &mut line.wire).unwrap();
    for _ in 0..3_600 {
        line.after_s(1);
        if line.is_gone() {
            break;
        }
        // It answers each probe.
        if !line.sent().is_empty() {
            line.ack(0);
        }
    }
    assert!(line.is_gone() && line.tcp.chunks() == 0, "{:?}", line.events);
}

#[test]
fn peer_that_does_not_read_is_waited_for_as_long_as_the_app_cares() {
    let mut line = Line::new();
    line.wnd = 0;
    line.ack(0);
    line.send(1000);
    for _ in 0..3_600 {
        line.after_s(1);
        if !line.sent().is_empty() {
            line.ack(0);
        }
    }
    assert!(!line.is_gone() && line.tcp.chunks() == 1);
}

/// RFC 9293 3.8.3: R2 is 100 s at least, and a switch that reboots takes a minute or two.
#[test]
fn low_floor_of_the_timeout_does_not_end_a_connection_early() {
    let options = ConnectionOptions { rto_min: Duration::from_millis(1), ..options() };
    for window in [60_000, 0] {
        let mut line = Line::with(&options);
        line.send(1);
        line.after_ms(1);
        line.wnd = window;
        line.ack(1);
        line.send(100);
        let begin = line.now;
        while line.events.is_empty() && line.now.since(begin) < Duration::from_secs(2_000) {
            line.after_s(1);
        }
        let after = line.now.since(begin);
        assert!((Duration::from_secs(500)..Duration::from_secs(700)).contains(&after), "{after}");
    }
}

#[test]
fn timers_of_others_run_out_beside_a_rate_that_holds_nothing_back() {
    let (mut client, mut server) =
        connected_with(&ConnectionOptions { pacing_rate: Some(10_000), ..ConnectionOptions::default() });
    let (id, now) = (client.id.unwrap(), client.now);
    client.tcp.send(id, b"order".repeat(20), now, &mut client.sent).unwrap();
    settle(&mut client, &mut server);
    let local = SocketAddrV4::new(*CLIENT.ip(), CLIENT.port() + 1);
    let (flow, options) = (Flow { local, remote: SERVER }, ConnectionOptions::default());
    client.tcp.connect(flow, &options, ConsumerId(1), now, &mut client.sent).unwrap();
    client.sent.0.clear();
    for _ in 0..1_500 {
        client.now += Duration::from_millis(1);
        client.tick();
    }
    let syns = client.sent.0.iter().filter(|(outgoing, _)| outgoing.flags.contains(TcpFlags::SYN)).count();
    assert_eq!(syns, 1, "sent again after a second");
}

#[test]
fn rate_that_is_taken_back_holds_nothing_back_any_more() {
    let mut line = Line::with(&ConnectionOptions { pacing_rate: Some(10_000), ..options() });
    line.send(3 * MSS);
    assert_eq!(line.sent().len(), 1);
    let (id, now) = (line.id(), line.now);
    line.tcp.set_options(id, &options(), now, &mut line.wire).unwrap();
    line.tick();
    assert_eq!(line.sent().len(), 2);
    line.ack(3 * MSS);
    line.after_ms(1_000);
    assert_eq!(line.tcp.check_timers(Some(line.now)), Ok(()));
}
