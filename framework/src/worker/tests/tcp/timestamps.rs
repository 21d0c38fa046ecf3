//! Transmit timestamps of orders, segments and datagrams, reported by the token of the request.

use super::orders::{fire, prepare};
use super::*;
use crate::pipeline::tcp::TcpSent;
use crate::pipeline::{TxTime, UdpFlow, UdpOptions};

/// All timestamps reported so far.
fn take_timestamps(line: &mut Line) -> Vec<(u64, u64)> {
    line.ask(|_, cx| {
        let next = || cx.take_timestamp().map(|TxTime { token, at }| (token, at.as_nanos()));
        core::iter::from_fn(next).collect()
    })
}

fn stamping(wanted: Wanted) -> Line {
    let mut line = Line::connected(wanted);
    line.ask(|_, cx| cx.enable_timestamps()).unwrap();
    line
}

#[test]
fn order_that_asks_is_told_when_it_left() {
    let mut line = stamping(Wanted::default());
    let mut order = prepare(&mut line, b"an order");
    let (fired, frames) = line.ask(|_, cx| cx.timestamped(7, |cx| cx.tcp().fire(&mut order)));
    assert_eq!((fired, frames), (Ok(TcpSent::Posted), 1));
    let left = line.now.as_nanos();
    line.turns(3);
    assert_eq!(take_timestamps(&mut line), [(7, left)]);

    // A send without a request is not reported, and does not shift the timestamps of sends with
    // one.
    fire(&mut line, &mut order).unwrap();
    let id = line.id();
    let (sent, frames) = line.ask(|_, cx| cx.timestamped(8, |cx| cx.tcp().send(id, b"by send")));
    assert_eq!((sent, frames), (Ok(7), 1));
    assert_eq!(take_timestamps(&mut line), [(8, line.now.as_nanos())]);
    line.turns(3);
    assert_eq!(line.server.app().received, b"an orderan orderby send");
    line.close();
}

#[test]
fn send_of_several_segments_is_told_of_each() {
    let mut line = stamping(Wanted::default());
    let id = line.id();
    let (sent, frames) = line.ask(|_, cx| cx.timestamped(9, |cx| cx.tcp().send(id, &pattern(3_000))));
    assert_eq!((sent, frames), (Ok(3_000), 3));
    assert_eq!(take_timestamps(&mut line).iter().map(|(token, _)| *token).collect::<Vec<_>>(), [9, 9, 9]);
    line.turn_until(|line| line.server.app().received.len() == 3_000);
    line.close();
}

#[test]
fn datagram_and_its_fragments_are_told_of() {
    let mut line = stamping(Wanted::default());
    let (local, remote) = (SocketAddrV4::new(address(1), 5_000), SocketAddrV4::new(address(2), 5_000));
    let mut flow = line.ask(|_, cx| UdpFlow::connect(local, remote, &UdpOptions::default(), cx)).unwrap();
    for (payload_len, expected) in [(64, 1), (2_000, 2)] {
        let (sent, frames) = line.ask(|_, cx| cx.timestamped(1, |cx| flow.send(&pattern(payload_len), cx)));
        assert_eq!((sent, frames), (Ok(crate::pipeline::UdpSent::Posted), expected));
        assert_eq!(take_timestamps(&mut line), vec![(1, line.now.as_nanos()); expected]);
    }
}

#[test]
fn what_waits_is_not_stamped_when_it_leaves() {
    let mut line = stamping(Wanted { asks: true, ..Wanted::default() });
    let stranger = SocketAddrV4::new(address(77), 5_000);
    let local = SocketAddrV4::new(address(1), 5_000);
    let mut flow = line.ask(|_, cx| UdpFlow::connect(local, stranger, &UdpOptions::default(), cx)).unwrap();
    let (sent, frames) = line.ask(|_, cx| cx.timestamped(1, |cx| flow.send(b"hello", cx)));
    assert_eq!((sent, frames), (Ok(crate::pipeline::UdpSent::Waiting), 0));
    assert_eq!(take_timestamps(&mut line), []);
}

/// If the neighbor was never resolved, or was given up, the send itself triggers the ARP request.
#[test]
fn question_for_a_neighbor_is_not_stamped_as_what_waits_for_the_answer() {
    let mut line = stamping(Wanted { asks: true, ..Wanted::default() });
    let [local, stranger, silent] = [1, 77, 78].map(|host| SocketAddrV4::new(address(host), 5_000));
    let questions = |line: &Line| line.count("1/egress/neighbors/requests");
    let (flow, frames) =
        line.ask(|_, cx| cx.timestamped(1, |cx| UdpFlow::connect(local, stranger, &UdpOptions::default(), cx)));
    let (mut flow, asked) = (flow.unwrap(), questions(&line));
    assert_eq!((frames, asked), (0, 1));

    for _ in 0..30 {
        line.now += Duration::from_secs(1);
        line.client.poll_once(line.now);
    }
    let asked = questions(&line);
    assert_eq!(asked, 3, "it was given up");
    let (sent, frames) = line.ask(|_, cx| cx.timestamped(2, |cx| flow.send(b"hello", cx)));
    assert_eq!((sent, frames, questions(&line)), (Ok(crate::pipeline::UdpSent::Waiting), 0, asked + 1));

    let (called, frames) = line.ask(|_, cx| {
        cx.timestamped(3, |cx| cx.tcp().connect(local, silent, &ConnectionOptions::default(), ConsumerId(1)))
    });
    assert_eq!((called.is_ok(), frames, questions(&line)), (true, 0, asked + 2));
    assert_eq!(take_timestamps(&mut line), []);
}

/// A due acknowledgment leaves with the call, if no data can carry it.
#[test]
fn acknowledgment_is_not_stamped_as_the_order_that_waits() {
    let options = ConnectionOptions { nodelay: false, ..ConnectionOptions::default() };
    let mut line = stamping(Wanted { options, ..Wanted::default() });
    let id = line.id();
    // The first bytes of a connection are acknowledged at once.
    let (now, plenty) = (line.now, pattern(30_000));
    line.server.with_app(now, |app, cx| cx.tcp().send(app.id.unwrap(), &plenty).unwrap());
    line.turn_until(|line| line.client.app().received.len() == plenty.len());
    line.turns(100);
    let now = line.now;
    line.ask(|_, cx| cx.tcp().send(id, b"first").unwrap());
    // The server has not received it when it sends, so the next small segment waits (Nagle).
    line.server.with_app(now, |app, cx| cx.tcp().send(app.id.unwrap(), b"quote").unwrap());
    line.client.poll_once(line.now);
    assert_eq!(line.client.app().received[plenty.len()..], *b"quote");

    line.now += options.ack_delay;
    let segments = |line: &Line| line.client.tcp().tally().segments_out;
    let before = segments(&line);
    let (sent, frames) = line.ask(|_, cx| cx.timestamped(1, |cx| cx.tcp().send(id, b"second")));
    assert_eq!((sent, frames, segments(&line) - before), (Ok(6), 0, 1));
    assert_eq!(take_timestamps(&mut line), []);
    line.turn_until(|line| line.server.app().received == b"firstsecond");
    line.close();
}

#[test]
fn frames_that_the_wire_loses_leave_the_others_their_tokens() {
    let faults = Faults { loss: 0.3, ..Faults::NONE };
    let mut line = stamping(Wanted { faults, seed: 3, ..Wanted::default() });
    let (local, remote) = (SocketAddrV4::new(address(1), 5_000), SocketAddrV4::new(address(2), 5_000));
    let mut flow = line.ask(|_, cx| UdpFlow::connect(local, remote, &UdpOptions::default(), cx)).unwrap();
    let mut all = Vec::new();
    for token in 0..200 {
        line.now += Duration::from_micros(1);
        line.ask(|_, cx| cx.timestamped(token, |cx| flow.send(b"tick", cx))).0.unwrap();
        all.extend(
            take_timestamps(&mut line)
                .into_iter()
                .map(|(token_of_frame, at)| (token_of_frame, at, token, line.now.as_nanos())),
        );
    }
    assert!((100..200).contains(&all.len()), "{} of 200 left", all.len());
    assert!(all.iter().all(|(token_of_frame, at, token, now)| (token_of_frame, at) == (token, now)), "{all:?}");
    assert_eq!(line.count("1/egress/timestamps_lost"), all.last().unwrap().0 + 1 - all.len() as u64);
}

#[test]
fn without_timestamps_a_send_is_a_send() {
    let mut line = Line::connected(Wanted::default());
    let id = line.id();
    let sent = line.ask(|_, cx| cx.timestamped(1, |cx| cx.tcp().send(id, b"hello")));
    assert_eq!(sent, (Ok(5), 0));
    assert_eq!(take_timestamps(&mut line), []);
    line.close();
}
