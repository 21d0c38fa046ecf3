//! SYN-SENT (RFC 9293 3.10.7.3): the answers to our SYN.

use crate::proto::tcp::tests::script::{ACK, ISN, RST, SYN, Script, calling, closed};
use crate::proto::tcp::tests::*;

#[test]
fn answer_connects_and_is_acknowledged() {
    let mut script = calling();
    let (_, answers) = script.next(SYN | ACK, b"");
    assert_eq!((answers[0].flags, answers[0].ack), (ACK, Seq(ISN + 1)));
    assert_eq!(script.end.events, [TcpEvent::Connected { listener: None }]);
}

#[test]
fn wrong_acknowledgment_is_answered_by_a_reset_and_the_call_goes_on() {
    let mut script = calling();
    let ack = script.ack + 5;
    let (dropped, answers) = script.send(SYN | ACK, Seq(ISN), ack, b"");
    assert_eq!((dropped, answers[0].flags, answers[0].seq), (Some(TcpDrop::BadAck), RST, ack));
    assert_eq!(script.state(), Some(State::SynSent));
}

/// The peer is in TIME-WAIT of an earlier connection, and answers our SYN with a challenge ACK.
#[test]
fn syn_is_sent_again_at_once_after_the_reset_of_an_older_connection() {
    let mut script = calling();
    let (seq, old) = (script.ack - 1, script.ack + 5);
    script.send(ACK, Seq(ISN), old, b"");
    assert_eq!(script.pass(Duration::from_millis(1)), []);
    let answers = script.pass(Duration::from_millis(2));
    assert_eq!((answers.len(), answers[0].flags, answers[0].seq), (1, SYN, seq));
    // The next one waits as after a lost SYN, whatever the peer answers.
    script.send(ACK, Seq(ISN), old, b"");
    assert_eq!(script.pass(Duration::from_millis(1_500)), []);
    assert_eq!(script.pass(Duration::from_millis(1_000))[0].flags, SYN);
}

/// Many calls of a program that is started again meet connections of its last life.
#[test]
fn reset_of_an_older_connection_is_sent_where_strangers_have_used_up_the_limit() {
    let mut script = calling();
    let (to, ack) = (script.to, script.ack);
    script.to.local.set_port(to.local.port() - 1);
    while !script.send(ACK, Seq(ISN), Seq(9), b"").1.is_empty() {}
    script.to = to;
    let older = |script: &mut Script| script.send(ACK, Seq(ISN), ack + 5, b"").1;
    assert_eq!(older(&mut script)[0].flags, RST);
    assert_eq!(older(&mut script), [], "its second answer counts towards the limit");
}

#[test]
fn reset_counts_only_with_our_number() {
    let mut script = calling();
    let ack = script.ack;
    assert_eq!(script.send(RST | ACK, Seq(0), ack + 1, b""), (Some(TcpDrop::BadAck), vec![]));
    assert_eq!(script.send(RST, Seq(0), ack, b""), (Some(TcpDrop::BlindReset), vec![]));
    script.send(RST | ACK, Seq(0), ack, b"");
    assert_eq!(closed(&script), Some(CloseReason::Refused));
    assert!(script.end.tcp.is_empty());
}

#[test]
fn segment_without_syn_is_dropped() {
    let mut script = calling();
    assert_eq!(script.next(ACK, b"x"), (Some(TcpDrop::BadFlags), vec![]));
}

#[test]
fn data_with_the_answer_comes_after_connected() {
    let mut script = calling();
    script.next(SYN | ACK, b"hello");
    assert_eq!(script.end.events[0], TcpEvent::Connected { listener: None });
    assert_eq!(script.end.bytes, b"hello");
}

#[test]
fn calls_that_cross_connect() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    for (end, flow) in
        [(&mut a, Flow { local: CLIENT, remote: SERVER }), (&mut b, Flow { local: SERVER, remote: CLIENT })]
    {
        let now = end.now;
        end.id = Some(end.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut end.sent).unwrap());
    }
    settle(&mut a, &mut b);
    for end in [&a, &b] {
        assert_eq!(end.events, [TcpEvent::Connected { listener: None }]);
        assert_eq!(end.tcp.info(end.id.unwrap(), end.now).unwrap().state, State::Established);
    }
}

#[test]
fn router_that_knows_no_way_ends_a_call_and_no_connection() {
    let mut script = calling();
    let (flow, seq, now) = (Flow { local: SERVER, remote: CLIENT }, script.ack - 1, script.end.now);
    let wrong = script.end.tcp.unreachable(flow, seq + 1, now, &mut script.end.sent);
    assert_eq!(wrong, Err(IcmpRefusal::NotInFlight));
    script.end.tcp.unreachable(flow, seq, now, &mut script.end.sent).unwrap();
    script.answers();
    assert_eq!(closed(&script), Some(CloseReason::Unreachable));
}
