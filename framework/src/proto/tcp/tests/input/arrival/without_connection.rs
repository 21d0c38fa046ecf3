//! Segments of no connection: the answers to a stranger (RFC 9293 3.10.7.1).

use crate::proto::tcp::tests::script::{ACK, RST, SYN, Script, listening};
use crate::proto::tcp::tests::*;

#[test]
fn segment_for_nobody_is_answered_by_a_reset_with_its_acknowledgment_as_number() {
    let mut script = Script::new(End::new(1));
    let (dropped, answers) = script.send(ACK, Seq(7), Seq(9), b"x");
    assert_eq!(dropped, Some(TcpDrop::NoConnection));
    assert_eq!((answers[0].flags, answers[0].seq), (RST, Seq(9)));
}

#[test]
fn syn_for_nobody_is_answered_by_a_reset_that_acknowledges_it() {
    let mut script = Script::new(End::new(1));
    let (_, answers) = script.send(SYN, Seq(7), Seq(0), b"");
    assert_eq!((answers[0].flags, answers[0].seq, answers[0].ack), (RST | ACK, Seq(0), Seq(8)));
}

#[test]
fn reset_is_never_answered() {
    let mut script = Script::new(End::new(1));
    assert_eq!(script.send(RST, Seq(7), Seq(0), b""), (Some(TcpDrop::NoConnection), vec![]));
}

#[test]
fn resets_are_answered_at_a_limited_rate() {
    let mut script = Script::new(End::new(1));
    let answers: usize = (0..5000).map(|idx| script.send(ACK, Seq(idx), Seq(9), b"").1.len()).sum();
    assert_eq!(answers, 250, "a quarter of TcpConfig::resets_per_second to one address");
    assert_eq!(script.end.tcp.tally().resets_suppressed, 4750);
    let answers: usize = (0..5000)
        .map(|idx| {
            script.to.local.set_ip(Ipv4Addr::from_bits(0x0a01_0000 + idx));
            script.send(ACK, Seq(idx), Seq(9), b"").1.len()
        })
        .sum();
    assert!((250..=750).contains(&answers), "{answers} more to all others");
}

#[test]
fn source_that_is_no_host_gets_nothing() {
    let mut script = listening(&ListenOptions::default());
    script.to.local = SocketAddrV4::new(Ipv4Addr::BROADCAST, 50_000);
    assert_eq!(script.send(SYN, Seq(7), Seq(0), b""), (Some(TcpDrop::BadAddress), vec![]));
    script.to.local = SocketAddrV4::new(*CLIENT.ip(), 0);
    assert_eq!(script.send(SYN, Seq(7), Seq(0), b""), (Some(TcpDrop::BadAddress), vec![]));
}
