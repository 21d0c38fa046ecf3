//! Immediate sends, and the validity of the stored room: `SendQueue::fast_send_room`.

#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::proto::slab::NIL;
use crate::proto::tcp::output::interface::NoOutput;
use crate::proto::tcp::output::prepared::Numbers;
use crate::proto::tcp::segment::{PredictedFields, Range};
use crate::proto::tcp::state::connection::{
    AppFlags, Connection, InputFlags, LossFlags, Micros, OutputFlags, Recovery, RetransmitTimer, State,
};
use crate::proto::tcp::state::stored::switch;
use crate::proto::tcp::tests::*;
use crate::wire::tcp::Timestamps;

/// A change that prevents an immediate send, with its name.
type Change = (&'static str, fn(&mut Connection));

/// A client with an order in flight, and a known room for more.
fn warmed() -> (End, End) {
    let (mut client, server) = connected();
    assert!(fire(&mut client, b"first") && fire(&mut client, b"second"));
    assert!(connection(&client).send.fast_send_room > 100, "it was found out");
    (client, server)
}

fn connection(end: &End) -> &Connection {
    &end.tcp.connections[end.id.unwrap().slot]
}

/// Fires `bytes`, as an output that posts them would; returns whether they left.
fn fire(end: &mut End, bytes: &[u8]) -> bool {
    let (id, now) = (end.id.unwrap(), end.now);
    let Ok(header_template) = end.tcp.header_template(id) else { return false };
    let Some(permit) = end.tcp.send_permit(id, bytes.len(), now) else { return false };
    let Numbers { seq, ack, wnd, timestamps } = permit.numbers();
    end.sent.0.push((Outgoing { seq, ack, wnd, timestamps, ..header_template.outgoing }, bytes.to_vec()));
    permit.commit(bytes.to_vec());
    true
}

/// Whether an order may leave after a call in which the connection was changed.
fn leaves_after(change: impl FnOnce(&mut Connection)) -> bool {
    let (mut client, _server) = warmed();
    let now = client.now;
    change(client.tcp.context(client.id.unwrap().slot, &mut NoOutput, now).connection);
    fire(&mut client, b"third")
}

#[test]
fn turn_that_changes_nothing_closes_nothing() {
    assert!(leaves_after(|_| ()));
}

#[test]
fn each_condition_closes_the_way() {
    let changes: [Change; 13] = [
        ("the app has closed its side", |connection| connection.state = State::FinWait1),
        ("data waits", |connection| connection.send.next_unsent = connection.send.queue.tail),
        ("something is lost", |connection| connection.sack.lost_len = 1),
        ("a recovery is not over", |connection| connection.recovery = Recovery::Fast),
        ("the window was closed", |connection| connection.clock.timer = RetransmitTimer::Persist),
        ("congestion is to be echoed", |connection| connection.set(InputFlags::ECE_OWED)),
        ("a reduction is to be told", |connection| connection.set(OutputFlags::CWR_OWED)),
        ("numbers are somebody else's", |connection| connection.set(OutputFlags::DELEGATED)),
        ("a probe is due", |connection| connection.set(LossFlags::PROBE_DUE)),
        ("a rate is limited", |connection| connection.options.switches |= switch::PACING),
        ("small segments wait", |connection| connection.options.switches &= !switch::NODELAY),
        ("a duplicate is to be reported", |connection| connection.dsack.range = Range { left: Seq(1), right: Seq(2) }),
        ("the send buffer is full", |connection| connection.options.send_buffer = connection.send.len),
    ];
    for (why, change) in changes {
        assert!(!leaves_after(change), "{why}");
    }
}

#[test]
fn connection_that_the_app_let_go_of_takes_no_order() {
    let (mut client, _server) = warmed();
    let (id, now) = (client.id.unwrap(), client.now);
    client.tcp.context(id.slot, &mut NoOutput, now).connection.set(AppFlags::ORPHANED);
    assert!(client.tcp.send_permit(id, 5, now).is_none());
}

#[test]
fn each_window_closes_the_way() {
    let changes: [Change; 3] = [
        ("the peer's window", |connection| connection.snd.wnd = connection.snd.flight() + 4),
        ("the congestion window", |connection| connection.congestion.cwnd = connection.snd.flight() + 4),
        ("the segment", |connection| connection.snd.mss = 4),
    ];
    for (why, change) in changes {
        assert!(!leaves_after(change), "{why}");
    }
}

#[test]
fn order_goes_behind_what_was_sent_and_waits() {
    let (mut client, _server) = warmed();
    let (id, now) = (client.id.unwrap(), client.now);
    let window = connection(&client).snd.wnd as usize;
    client.tcp.send(id, vec![0; window + 1], now, &mut client.sent).unwrap();
    assert_ne!(connection(&client).send.next_unsent, NIL);
    assert!(!fire(&mut client, b"third"));
}

#[test]
fn acknowledgment_that_shows_a_smaller_window_is_believed() {
    let (mut client, _server) = warmed();
    let Connection { flow, rcv, snd, ts, .. } = *connection(&client);
    let timestamps = Some(Timestamps { value: ts.recent, echo_reply: 0 });
    let fields = PredictedFields { seq: rcv.nxt, ack: snd.una + 5, wnd: 0, len: 0, timestamps };
    assert!(client.tcp.receive_expected(flow, &fields, client.now).is_some(), "it is no turn like others");
    assert!(!fire(&mut client, b"third"), "nothing is sent outside of the window");
}

#[test]
fn window_that_is_smaller_by_what_has_arrived_leaves_the_room_as_it_was() {
    let (mut client, _server) = warmed();
    assert!(fire(&mut client, &[7; 1000]));
    let Connection { flow, rcv, snd, ts, .. } = *connection(&client);
    let before = connection(&client).send.fast_send_room;
    let timestamps = Some(Timestamps { value: ts.recent, echo_reply: 0 });
    let wnd = (snd.wnd - 1000).div_ceil(1 << snd.wscale);
    assert!(wnd << snd.wscale < snd.wnd, "it is smaller");
    let fields = PredictedFields { seq: rcv.nxt, ack: snd.nxt, wnd: wnd as u16, len: 0, timestamps };
    assert!(client.tcp.receive_expected(flow, &fields, client.now).is_some(), "it is no turn like others");
    assert_eq!((connection(&client).snd.wnd, connection(&client).send.fast_send_room), (wnd << snd.wscale, before));
}

#[test]
fn timer_that_comes_early_leaves_the_room_as_it_was() {
    let mut client = settled_and_timed();
    assert!(fire(&mut client, b"fourth"));
    let tick = connection(&client).clock.wheel_tick;
    let slot = client.id.unwrap().slot;
    // An acknowledgment changes the deadline likewise, without moving the wheel's entry.
    client.tcp.connections[slot].clock.timer_at += Duration::from_millis(20);
    let before = connection(&client).send.fast_send_room;
    assert!(before > 0);
    client.now += Duration::from_millis(22);
    client.tcp.tick(client.now, &mut client.sent);
    assert_ne!(connection(&client).clock.wheel_tick, tick, "the wheel has come, and is set again");
    assert_eq!(connection(&client).send.fast_send_room, before);
}

#[test]
fn room_is_used_up_byte_by_byte_and_found_anew_when_acknowledged() {
    let (mut client, mut server) = warmed();
    let before = connection(&client).send.fast_send_room;
    assert!(fire(&mut client, b"0123456789"));
    assert_eq!(connection(&client).send.fast_send_room, before - 10);
    let mut bytes = 0;
    while fire(&mut client, &[7; 1000]) {
        bytes += 1000;
        assert!(bytes < 1 << 20, "some window is used up");
    }
    let state = connection(&client);
    assert!(state.snd.flight() <= state.snd.wnd.min(state.congestion.cwnd), "and not passed");
    assert!(state.has(LossFlags::CWND_LIMITED), "that cwnd is the limit was noted");
    settle(&mut client, &mut server);
    assert!(fire(&mut client, &[7; 1000]));
}

/// Of a window of ten bytes eight leave, although more than six need to be recorded: two are left,
/// and not six.
#[test]
fn order_that_is_noted_takes_its_part_of_the_windows_too() {
    let (mut client, _server) = warmed();
    let now = client.now;
    let mut out = NoOutput;
    let cx = client.tcp.context(client.id.unwrap().slot, &mut out, now);
    let flight = cx.connection.snd.flight();
    (cx.connection.snd.wnd, cx.connection.congestion.cwnd) = (flight + 10, 2 * (flight + 6) + 2);
    assert!(fire(&mut client, b"12345678"));
    assert!(!fire(&mut client, b"123"), "the window has room for two");
    assert!(fire(&mut client, b"12"));
}

#[test]
fn order_after_an_idle_timeout_finds_the_window_as_at_the_beginning() {
    let (mut client, mut server) = warmed();
    settle(&mut client, &mut server);
    let slot = client.id.unwrap().slot;
    client.tcp.context(slot, &mut NoOutput, client.now).connection.congestion.cwnd = 1 << 20;
    assert!(fire(&mut client, b"third"));
    settle(&mut client, &mut server);
    assert!(connection(&client).send.fast_send_room > 0 && connection(&client).snd.flight() == 0);
    client.now += Duration::from_secs(60);
    assert!(fire(&mut client, b"fourth"));
    assert_eq!(connection(&client).congestion.cwnd, connection(&client).initial_window(), "RFC 5681 4.1");
}

/// All data is acknowledged, and a round trip took 10 ms.
fn settled_and_timed() -> End {
    let (mut client, mut server) = warmed();
    settle(&mut client, &mut server);
    let now = client.now;
    let (slot, mut out) = (client.id.unwrap().slot, NoOutput);
    let cx = client.tcp.context(slot, &mut out, now);
    (cx.connection.rtt.srtt, cx.connection.rtt.rto) = (Micros(10_000), Micros(300_000));
    assert!(fire(&mut client, b"third"));
    client
}

#[test]
fn first_order_on_its_way_sets_the_timer_and_the_second_hastens_the_probe() {
    let mut client = settled_and_timed();
    let (began, state) = (client.now, connection(&client));
    assert_eq!((state.clock.timer, state.clock.unacked_since), (RetransmitTimer::Probe, began));
    assert_eq!(state.clock.timer_at, began + Duration::from_millis(220), "a lone segment may be acknowledged late");
    client.now += Duration::from_millis(1);
    assert!(fire(&mut client, b"fourth"));
    assert_eq!(connection(&client).clock.timer_at, began + Duration::from_millis(21), "two are not");
    client.now += Duration::from_millis(1);
    assert!(fire(&mut client, b"fifth"));
    assert_eq!(connection(&client).clock.timer_at, began + Duration::from_millis(21), "it is moved when it comes");
}

#[test]
fn probe_waits_for_what_was_sent_last() {
    let mut client = settled_and_timed();
    let began = client.now;
    assert!(fire(&mut client, b"fourth"));
    client.now = began + Duration::from_millis(19);
    assert!(fire(&mut client, b"fifth"));
    client.sent.0.clear();
    for (ms, segments) in [(21, 0), (38, 0), (40, 1)] {
        client.tcp.tick(began + Duration::from_millis(ms), &mut client.sent);
        assert_eq!(client.sent.0.len(), segments, "after {ms} ms");
    }
}

#[test]
fn window_of_an_order_follows_what_waits_for_the_app() {
    let (mut client, mut server) = warmed();
    settle(&mut client, &mut server);
    let (id, now) = (client.id.unwrap(), client.now);
    let advertised = |client: &mut End| {
        assert!(fire(client, b"order"));
        client.sent.0.last().unwrap().0.wnd
    };
    let before = advertised(&mut client);
    client.tcp.pause(id).unwrap();
    server.tcp.send(server.id.unwrap(), vec![7; 9_000], now, &mut server.sent).unwrap();
    settle(&mut client, &mut server);
    let unread = connection(&client).rcv.in_order_len;
    assert!(unread > 0 && advertised(&mut client) < before);
    client.tcp.resume(id).unwrap();
    while client.tcp.next_data(id).is_some() {}
    assert_eq!(advertised(&mut client), before);
}
