//! TIME-WAIT: its end, and which connection makes way where the table is full (RFC 9293 3.6.1, RFC
//! 6191).

use crate::proto::tcp::tests::script::{ACK, FIN, ISN, RST, SYN, Script, accepted_with, closed, listening};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::Timestamps;

fn waiting(timestamps: Option<Timestamps>) -> Script {
    let mut script = accepted_with(timestamps);
    script.shutdown();
    script.next(ACK | FIN, b"");
    assert_eq!(script.state(), Some(State::TimeWait));
    script
}

#[test]
fn fin_that_comes_again_begins_the_wait_anew() {
    let mut script = waiting(None);
    script.pass(Duration::from_secs(50));
    let (seq, ack) = (script.seq - 1, script.ack);
    let (_, answers) = script.send(ACK | FIN, seq, ack, b"");
    assert_eq!(answers[0].ack, seq + 1);
    script.pass(Duration::from_secs(50));
    assert_eq!(script.end.tcp.len(), 1);
    script.pass(Duration::from_secs(11));
    script.pass(Duration::from_secs(1));
    assert!(script.end.tcp.is_empty());
}

#[test]
fn reset_does_not_end_it() {
    let mut script = waiting(None);
    script.next(RST, b"");
    assert_eq!(script.state(), Some(State::TimeWait));
}

#[test]
fn syn_with_a_later_number_opens_again_with_later_numbers_of_ours() {
    let mut script = waiting(None);
    let (seq, ours) = (script.seq + 1, script.ack);
    let (_, answers) = script.send(SYN, seq, Seq(0), b"");
    assert_eq!((answers[0].flags, answers[0].ack), (SYN | ACK, seq + 1));
    assert!(answers[0].seq.is_after(ours));
}

#[test]
fn syn_with_an_older_number_is_answered_with_where_we_are() {
    let mut script = waiting(None);
    let (seq, wanted) = (script.seq - 10, script.seq);
    let (_, answers) = script.send(SYN, seq, Seq(0), b"");
    assert_eq!((answers[0].flags, answers[0].ack), (ACK, wanted));
}

#[test]
fn syn_with_a_later_timestamp_opens_again_whatever_its_number() {
    let mut script = waiting(Some(Timestamps { value: 10, echo_reply: 0 }));
    let seq = script.seq - 10_000;
    script.timestamps = Some(Timestamps { value: 9, echo_reply: 0 });
    assert_eq!(script.send(SYN, seq, Seq(0), b"").1[0].flags, ACK);
    script.timestamps = Some(Timestamps { value: 11, echo_reply: 0 });
    assert_eq!(script.send(SYN, seq, Seq(0), b"").1[0].flags, SYN | ACK);
}

/// Any host that knows the ends can send a newer SYN.
#[test]
fn syn_that_nobody_takes_does_not_end_it() {
    let newer = Some(Timestamps { value: 11, echo_reply: 0 });
    let begun = || {
        let mut script = waiting(Some(Timestamps { value: 10, echo_reply: 0 }));
        script.timestamps = newer;
        script
    };
    // The listener is closed.
    let mut script = begun();
    let listener = ListenerId::new(0, 1);
    assert!(script.end.tcp.close_listener(listener));
    let (seq, wanted) = (script.seq + 7, script.seq);
    let (dropped, answers) = script.send(SYN, seq, Seq(0), b"");
    assert_eq!((dropped, answers[0].flags, answers[0].ack), (Some(TcpDrop::TimeWait), ACK, wanted));
    assert_eq!(script.state(), Some(State::TimeWait));
    // The backlog is full: a cookie could not store the lowest of our numbers.
    let mut script = begun();
    script.end.tcp.listeners.slots[0].embryonic = 128;
    let (dropped, answers) = script.send(SYN, seq, Seq(0), b"");
    assert_eq!((dropped, answers[0].flags), (Some(TcpDrop::TimeWait), ACK));
    assert_eq!(script.state(), Some(State::TimeWait));
    // The app refuses the peer, or the listener's limit is reached.
    for accept in [AcceptDecision::Ignore, AcceptDecision::Refuse] {
        let mut script = begun();
        let mut syn = Outgoing::bare(script.to, script.seq + 7, Seq(0), SYN);
        (syn.syn, syn.timestamps) = (Some(SynOptions::default()), newer);
        assert_eq!(script.end.hear_if((syn, Vec::new()), accept), Some(TcpDrop::Refused));
        assert_eq!(script.state(), Some(State::TimeWait), "{accept:?}");
    }
}

#[test]
fn call_from_the_same_port_is_told_how_long_it_has_to_wait() {
    for (stamps, seconds) in [(None, 60), (Some(Timestamps { value: 10, echo_reply: 0 }), 1)] {
        let mut script = waiting(stamps);
        let last = script.ack;
        let (flow, options) = (Flow { local: SERVER, remote: CLIENT }, ConnectionOptions::default());
        let call = |script: &mut Script| {
            let now = script.end.now;
            script.end.tcp.connect(flow, &options, ConsumerId(1), now, &mut script.end.sent)
        };
        let refused = call(&mut script).unwrap_err();
        let wait = Duration::from_secs(seconds);
        assert_eq!(refused, ConnectError::InTimeWait { local: SERVER, remote: CLIENT, wait });
        assert!(refused.to_string().contains("TcpConfig::time_wait"), "{refused}");
        script.end.now += wait;
        script.end.id = Some(call(&mut script).unwrap());
        let answers = script.answers();
        assert_eq!(answers[0].flags, SYN);
        assert!(answers[0].seq.is_after(last), "behind those of the last");
        assert_eq!(script.state(), Some(State::SynSent));
    }
}

/// The app is paused: it has unread data, and no event of the end yet.
fn waiting_untold() -> Script {
    let mut script = accepted_with(Some(Timestamps { value: 10, echo_reply: 0 }));
    script.end.tcp.pause(script.id()).unwrap();
    script.next(ACK, b"unread");
    script.shutdown();
    script.next(ACK | FIN, b"");
    assert_eq!((script.state(), closed(&script)), (Some(State::TimeWait), None));
    script
}

fn call_from(port: u16, script: &mut Script) -> Result<ConnectionId, ConnectError> {
    let flow = Flow { local: SocketAddrV4::new(*SERVER.ip(), port), remote: CLIENT };
    let (options, now) = (ConnectionOptions::default(), script.end.now);
    script.end.tcp.connect(flow, &options, ConsumerId(1), now, &mut script.end.sent)
}

fn fill_by_calls(script: &mut Script) {
    for port in script.end.tcp.len() as u16..8 {
        call_from(1000 + port, script).unwrap();
    }
}

#[test]
fn call_that_finds_no_room_does_not_end_it() {
    let mut script = waiting_untold();
    fill_by_calls(&mut script);
    script.end.now += Duration::from_secs(1);
    assert_eq!(call_from(SERVER.port(), &mut script), Err(ConnectError::TooMany { limit: 8 }));
    assert_eq!(script.state(), Some(State::TimeWait));
}

#[test]
fn call_between_the_same_ends_takes_its_place_where_the_table_is_full() {
    let mut script = waiting(Some(Timestamps { value: 10, echo_reply: 0 }));
    fill_by_calls(&mut script);
    script.end.now += Duration::from_secs(1);
    assert!(call_from(SERVER.port(), &mut script).is_ok());
    assert_eq!((script.end.tcp.len(), script.end.tcp.tally().time_waits_recycled), (8, 0));
}

#[test]
fn syn_that_nobody_takes_ends_no_other_wait() {
    let mut script = waiting_untold();
    let mut syn = Outgoing::bare(script.to, script.seq + 7, Seq(0), SYN);
    (syn.syn, syn.timestamps) = (Some(SynOptions::default()), Some(Timestamps { value: 11, echo_reply: 0 }));
    // Another connection waits, without events.
    script.to.local.set_port(1);
    finish_one(&mut script);
    fill_by_calls(&mut script);
    for (accept, dropped, recycled) in [
        (AcceptDecision::Ignore, Some(TcpDrop::Refused), 0),
        (AcceptDecision::Refuse, Some(TcpDrop::Refused), 0),
        (AcceptDecision::Yes, None, 1),
    ] {
        assert_eq!(script.end.hear_if((syn, Vec::new()), accept), dropped, "{accept:?}");
        let tcp = &script.end.tcp;
        assert_eq!((tcp.len(), tcp.tally().time_waits_recycled), (8, recycled), "{accept:?}");
    }
}

/// A peer connects, and both sides close.
fn finish_one(script: &mut Script) {
    (script.seq, script.ack) = (Seq(ISN), Seq(0));
    let (_, answers) = script.next(SYN, b"");
    script.ack = answers[0].seq + 1;
    script.next(ACK, b"");
    script.shutdown();
    script.next(ACK | FIN, b"");
}

#[test]
fn oldest_makes_way_where_the_table_is_full() {
    let mut script = listening(&ListenOptions::default());
    for port in 1..=9 {
        script.to.local.set_port(port);
        finish_one(&mut script);
    }
    assert_eq!((script.end.tcp.len(), script.end.tcp.tally().time_waits_recycled), (8, 1));
}
