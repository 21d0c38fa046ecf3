//! Delegated numbers, without a report.

use crate::proto::tcp::tests::line::{Line, options};
use crate::proto::tcp::tests::*;

/// Ten bytes are delegated, and an order waits for their end.
fn abandoned(options: &ConnectionOptions) -> Line {
    let mut line = Line::with(options);
    let (id, now) = (line.id(), line.now);
    line.tcp.delegate(id, 10, now, &mut line.wire).unwrap();
    line.send(100);
    line
}

#[test]
fn keepalive_finds_a_dead_peer_while_numbers_are_delegated() {
    let keepalive = Keepalive { idle: Duration::from_secs(1), interval: Duration::from_secs(1), count: 3 };
    let mut line = abandoned(&ConnectionOptions { keepalive: Some(keepalive), ..options() });
    line.after_s(6);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::KeepaliveTimedOut)]);
    assert_eq!(line.tcp.chunks(), 0);
}

#[test]
fn user_timeout_counts_what_waits_behind_a_delegation() {
    let mut line = abandoned(&ConnectionOptions { user_timeout: Some(Duration::from_secs(10)), ..options() });
    line.after_s(9);
    assert!(line.events.is_empty());
    line.after_s(2);
    assert_eq!(line.events, [TcpEvent::Closed(CloseReason::TimedOut)]);
}

#[test]
fn user_timeout_begins_anew_when_the_delegation_ends() {
    let mut line = abandoned(&ConnectionOptions { user_timeout: Some(Duration::from_secs(10)), ..options() });
    line.after_s(9);
    let (id, now) = (line.id(), line.now);
    line.tcp.withdraw(id, now, &mut line.wire).unwrap();
    line.tick();
    assert_eq!(line.sent(), ["0+100 ack 0 PSH"]);
    line.after_s(5);
    assert!(line.events.is_empty());
}

#[test]
fn closing_ends_a_connection_whose_numbers_are_delegated() {
    let mut line = abandoned(&options());
    let (id, now) = (line.id(), line.now);
    line.tcp.close(id, now, &mut line.wire).unwrap();
    line.tick();
    assert_eq!(
        (line.sent(), line.events.pop()),
        (vec!["0 ack 0 RST".into()], Some(TcpEvent::Closed(CloseReason::Aborted)))
    );
    assert!(line.is_gone() && line.tcp.chunks() == 0);
}
