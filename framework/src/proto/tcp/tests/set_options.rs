//! Options that change on an open connection, or during its handshake.

use super::line::{Line, options, stream};
use super::*;

fn set(line: &mut Line, options: &ConnectionOptions) {
    let (id, now) = (line.id(), line.now);
    line.tcp.set_options(id, options, now, &mut line.wire).unwrap();
    line.tick();
}

#[test]
fn peer_hears_of_a_receive_buffer_that_has_grown() {
    let mut line = Line::with(&ConnectionOptions { receive_buffer: 2_000, ..options() });
    let id = line.id();
    line.tcp.pause(id).unwrap();
    line.data(0, 1_000);
    line.data(1_000, 1_000);
    line.tick();
    assert_eq!(line.windows().last(), Some(&0));
    set(&mut line, &ConnectionOptions { receive_buffer: 1 << 20, ..options() });
    assert_eq!(line.windows(), [65_535]);
    set(&mut line, &ConnectionOptions { receive_buffer: 1 << 20, ..options() });
    assert_eq!(line.windows(), [], "it knows");
}

#[test]
fn window_is_no_larger_than_its_scale_can_show() {
    let mut line = Line::with(&ConnectionOptions { receive_buffer: 10_000, ..options() });
    set(&mut line, &ConnectionOptions { receive_buffer: 1 << 20, ..options() });
    line.data(0, 10);
    line.after_ms(5);
    let (id, now) = (line.id(), line.now);
    assert_eq!(line.windows(), [65_535]);
    assert_eq!(line.tcp.info(id, now).unwrap().rcv_wnd, 65_535, "it says what the peer sees");
    assert_eq!(line.data(10 + 65_535, 10), Some(TcpDrop::NotAcceptable));
}

#[test]
fn app_hears_of_a_send_buffer_that_has_grown() {
    let mut line = Line::with(&ConnectionOptions { send_buffer: 2_000, ..options() });
    line.connection().snd.wnd = 0;
    line.send(1_500);
    let (id, now) = (line.id(), line.now);
    let refused = line.tcp.send(id, stream(1_500, 1_000), now, &mut line.wire).unwrap_err();
    assert_eq!((refused.0, &line.events[..]), (SendError::Full, &[][..]));
    set(&mut line, &ConnectionOptions { send_buffer: 10_000, ..options() });
    assert_eq!(line.events, [TcpEvent::Writable]);
    set(&mut line, &ConnectionOptions { send_buffer: 20_000, ..options() });
    assert_eq!(line.events, [TcpEvent::Writable], "once");
}

#[test]
fn user_timeout_that_comes_nearer_moves_the_wheel_at_once() {
    let mut client = End::new(1);
    let (flow, now) = (Flow { local: CLIENT, remote: SERVER }, client.now);
    let id = client.tcp.connect(flow, &options(), ConsumerId(1), now, &mut client.sent).unwrap();
    client.now += Duration::from_secs(66);
    client.tick();
    let now = client.now;
    for timeout in [120, 90, 5] {
        let options = ConnectionOptions { user_timeout: Some(Duration::from_secs(timeout)), ..options() };
        client.tcp.set_options(id, &options, now, &mut client.sent).unwrap();
        assert_eq!(client.tcp.check_timers(Some(now)), Ok(()), "{timeout} s");
    }
}

/// A connection whose options change while its SYN is on its way.
fn changed_in_syn_sent(before: &ConnectionOptions, after: &ConnectionOptions) -> (End, End) {
    let (mut client, mut server) = (End::new(1), End::new(2));
    let theirs = ListenOptions { connection: ConnectionOptions { ecn: true, ..options() }, ..ListenOptions::default() };
    server.tcp.listen(SERVER, &theirs).unwrap();
    let now = client.now;
    let id = client.tcp.connect(Flow { local: CLIENT, remote: SERVER }, before, ConsumerId(1), now, &mut client.sent);
    client.id = id.ok();
    client.tcp.set_options(client.id.unwrap(), after, now, &mut client.sent).unwrap();
    settle(&mut client, &mut server);
    (client, server)
}

#[test]
fn what_a_syn_has_offered_stays_offered() {
    let with = ConnectionOptions { ecn: true, ..options() };
    let without = ConnectionOptions { timestamps: false, sack: false, ecn: false, ..options() };
    for (before, after) in [(&with, &without), (&without, &with)] {
        let (mut client, mut server) = changed_in_syn_sent(before, after);
        let (id, now) = (client.id.unwrap(), client.now);
        client.tcp.send(id, b"order".to_vec(), now, &mut client.sent).unwrap();
        let (order, _) = client.sent.0.last().unwrap();
        assert_eq!((order.timestamps.is_some(), order.ect), (before.timestamps, before.ecn));
        settle(&mut client, &mut server);
        assert_eq!(server.bytes, b"order");
        let reported = client.tcp.options(id).unwrap();
        assert_eq!((reported.timestamps, reported.sack, reported.ecn), (before.timestamps, before.sack, before.ecn));
    }
}

#[test]
fn syn_that_is_sent_again_offers_the_same() {
    let mut client = End::new(1);
    let now = client.now;
    let id =
        client.tcp.connect(Flow { local: CLIENT, remote: SERVER }, &options(), ConsumerId(1), now, &mut client.sent);
    let without = ConnectionOptions { timestamps: false, sack: false, mss_max: Some(500), ..options() };
    client.tcp.set_options(id.unwrap(), &without, now, &mut client.sent).unwrap();
    client.now += Duration::from_secs(2);
    client.tick();
    let [(first, _), (again, _)] = &client.sent.0[..] else { panic!("two SYNs") };
    assert_eq!((first.syn, first.timestamps.is_some()), (again.syn, again.timestamps.is_some()));
}

#[test]
fn segments_are_as_short_as_was_asked_for_during_the_handshake() {
    let (mut client, _) =
        changed_in_syn_sent(&options(), &ConnectionOptions { mss_max: Some(500), timestamps: false, ..options() });
    let (id, now) = (client.id.unwrap(), client.now);
    client.tcp.send(id, vec![7; 1_000], now, &mut client.sent).unwrap();
    let lens: Vec<usize> = client.sent.0.iter().map(|(_, payload)| payload.len()).collect();
    assert_eq!(lens, [488, 488, 24], "less the timestamps");
}
