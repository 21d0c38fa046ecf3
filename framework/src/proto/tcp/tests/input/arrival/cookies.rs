//! SYN cookies at a full backlog (RFC 4987).

use crate::proto::tcp::tests::script::{ACK, FIN, ISN, RST, SYN, Script, listening};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::Timestamps;

/// A listener whose backlog is one handshake, which is open.
fn full(options: ConnectionOptions) -> Script {
    let mut script = listening(&ListenOptions { backlog: 1, connection: options, ..ListenOptions::default() });
    script.to.local.set_port(1);
    script.send(SYN, Seq(7), Seq(0), b"");
    script.to.local = CLIENT;
    script
}

#[test]
fn full_backlog_is_answered_by_a_cookie_that_makes_the_connection() {
    let mut script = full(ConnectionOptions::default());
    let (_, answers) = script.next(SYN, b"");
    assert_eq!((answers[0].flags, script.end.tcp.len()), (SYN | ACK, 1));
    script.ack = answers[0].seq + 1;
    assert_eq!(script.next(ACK, b"order").0, None);
    assert_eq!(script.end.bytes, b"order");
    assert_eq!(script.state(), Some(State::Established));
    let info = script.end.tcp.info(script.id(), script.end.now).unwrap();
    assert_eq!((info.snd_mss, info.sack, info.timestamps), (1460, false, false));
    let tally = script.end.tcp.tally();
    assert_eq!((tally.syn_cookies_sent, tally.syn_cookies_accepted), (1, 1));
}

#[test]
fn options_survive_in_the_timestamp() {
    let mut script = full(ConnectionOptions::default());
    script.timestamps = Some(Timestamps { value: 5, echo_reply: 0 });
    let (_, answers) = script.next(SYN, b"");
    script.timestamps = Some(Timestamps { value: 6, echo_reply: answers[0].timestamps.unwrap().value });
    script.ack = answers[0].seq + 1;
    script.next(ACK, b"");
    let info = script.end.tcp.info(script.id(), script.end.now).unwrap();
    assert_eq!((info.snd_mss, info.sack, info.timestamps), (1460 - 12, true, true));
}

#[test]
fn data_that_comes_before_its_cookie_ends_nothing() {
    let mut script = full(ConnectionOptions::default());
    let (_, answers) = script.next(SYN, b"");
    let (first, ack) = (script.seq, answers[0].seq + 1);
    let (dropped, answers) = script.send(ACK, first + 5, ack, b" single");
    assert_eq!((dropped, answers.len(), script.end.tcp.len()), (Some(TcpDrop::BadAck), 0, 1));
    script.send(ACK, first, ack, b"order");
    assert_eq!(script.end.bytes, b"order", "the segment that was late");
}

#[test]
fn made_up_cookie_is_refused() {
    let mut script = full(ConnectionOptions::default());
    script.next(SYN, b"");
    script.ack += 1 << 3;
    let (dropped, answers) = script.next(ACK, b"");
    assert_eq!((dropped, answers[0].flags, script.end.tcp.len()), (Some(TcpDrop::BadAck), RST, 1));
}

/// Segments of an old connection have nothing to do with cookies: without a reset its peer would
/// retry for minutes.
#[test]
fn end_of_a_connection_that_is_forgotten_is_refused_also_while_cookies_are_out() {
    let mut script = full(ConnectionOptions::default());
    script.next(SYN, b"");
    let (dropped, answers) = script.send(FIN | ACK, Seq(77), Seq(0x0100_0000), b"the end");
    assert_eq!((dropped, answers[0].flags), (Some(TcpDrop::BadAck), RST));
}

/// One SYN was answered by a cookie, because the backlog was full, and the next by a stored number.
fn answered_twice() -> (Script, Seq, Seq) {
    let mut script = full(ConnectionOptions::default());
    let first = script.send(SYN, Seq(ISN), Seq(0), b"").1[0].seq;
    script.to.local.set_port(1);
    script.send(RST, Seq(8), Seq(0), b"");
    script.to.local = CLIENT;
    let second = script.next(SYN, b"").1[0].seq;
    assert_ne!(first, second);
    assert_eq!((script.end.tcp.len(), script.end.tcp.tally().syn_cookies_sent), (1, 1));
    (script, first, second)
}

#[test]
fn cookie_that_comes_back_while_the_handshake_stands_open_makes_the_connection() {
    let (mut script, first, _) = answered_twice();
    script.ack = first + 1;
    assert_eq!(script.next(ACK, b"order").0, None);
    assert_eq!((script.end.bytes.as_slice(), script.state()), (&b"order"[..], Some(State::Established)));
    let info = script.end.tcp.info(script.id(), script.end.now).unwrap();
    assert!(!info.sack, "the answer that the peer believes did not agree to it");
    assert_eq!((script.end.tcp.len(), script.end.tcp.listeners.slots[0].embryonic), (1, 0));
}

#[test]
fn data_before_such_a_cookie_ends_nothing() {
    let (mut script, first, _) = answered_twice();
    let (dropped, answers) = script.send(ACK, script.seq + 5, first + 1, b" single");
    assert_eq!((dropped, answers.len()), (Some(TcpDrop::BadAck), 0));
    script.send(ACK, script.seq, first + 1, b"order");
    assert_eq!(script.end.bytes, b"order");
}

#[test]
fn number_that_is_remembered_makes_the_connection_as_well() {
    let (mut script, _, second) = answered_twice();
    script.ack = second + 1;
    assert_eq!(script.next(ACK, b"order").0, None);
    assert_eq!((script.end.bytes.as_slice(), script.state()), (&b"order"[..], Some(State::Established)));
}

#[test]
fn cookie_is_void_after_its_time() {
    let mut script = full(ConnectionOptions::default());
    let (_, answers) = script.next(SYN, b"");
    script.ack = answers[0].seq + 1;
    script.end.now += Duration::from_secs(140);
    let (dropped, answers) = script.next(ACK, b"");
    assert_eq!((dropped, answers[0].flags), (Some(TcpDrop::BadAck), RST));
}

#[test]
fn flood_takes_no_more_than_the_backlog() {
    let mut script = listening(&ListenOptions { backlog: 4, ..ListenOptions::default() });
    for port in 1..=1000 {
        script.to.local.set_port(port);
        assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").1.len(), 1);
    }
    assert_eq!((script.end.tcp.len(), script.end.tcp.tally().syn_cookies_sent), (4, 996));
}
