//! Options that the SYNs negotiate.

use crate::proto::tcp::tests::script::{ACK, ISN, SYN, accepted_with, listening};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::{TcpFlags, Timestamps};

fn syn_ack(options: ConnectionOptions, syn: SynOptions, flags: TcpFlags) -> Outgoing {
    let mut script = listening(&ListenOptions { connection: options, ..ListenOptions::default() });
    let mut segment = Outgoing::bare(script.to, Seq(ISN), Seq(0), flags);
    segment.syn = Some(syn);
    segment.timestamps = Some(Timestamps { value: 5, echo_reply: 0 });
    script.end.note_received((segment, Vec::new()));
    script.answers().remove(0)
}

const ALL: SynOptions = SynOptions { mss: Some(1000), window_scale: Some(9), sack_permitted: true };

#[test]
fn option_is_answered_where_both_have_it() {
    let answer = syn_ack(ConnectionOptions::default(), ALL, SYN);
    let said = answer.syn.unwrap();
    assert_eq!((said.mss, said.window_scale, said.sack_permitted), (Some(1460), Some(3), true));
    assert_eq!(answer.timestamps.unwrap().echo_reply, 5);
}

#[test]
fn option_that_the_peer_lacks_is_not_answered() {
    let answer = syn_ack(ConnectionOptions::default(), SynOptions::default(), SYN);
    let said = answer.syn.unwrap();
    assert_eq!((said.window_scale, said.sack_permitted), (None, false));
}

#[test]
fn option_that_is_off_is_not_answered() {
    let options = ConnectionOptions { sack: false, timestamps: false, ..ConnectionOptions::default() };
    let answer = syn_ack(options, ALL, SYN);
    assert_eq!((answer.syn.unwrap().sack_permitted, answer.timestamps), (false, None));
}

#[test]
fn ecn_is_agreed_by_both_bits_and_by_us_wanting_it() {
    let both = SYN | TcpFlags::ECE | TcpFlags::CWR;
    let on = ConnectionOptions { ecn: true, ..ConnectionOptions::default() };
    assert_eq!(syn_ack(on, ALL, both).flags, SYN | ACK | TcpFlags::ECE);
    assert_eq!(syn_ack(on, ALL, SYN | TcpFlags::ECE).flags, SYN | ACK);
    assert_eq!(syn_ack(ConnectionOptions::default(), ALL, both).flags, SYN | ACK);
}

#[test]
fn segments_carry_the_smaller_mss_less_the_timestamps() {
    for (mss, timestamps, wanted) in
        [(Some(1000), None, 1000), (None, None, 536), (Some(9000), None, 1460), (Some(1), None, 64)]
    {
        let mut script = listening(&ListenOptions::default());
        let mut segment = Outgoing::bare(script.to, Seq(ISN), Seq(0), SYN);
        segment.syn = Some(SynOptions { mss, ..SynOptions::default() });
        segment.timestamps = timestamps;
        script.end.note_received((segment, Vec::new()));
        script.ack = script.answers()[0].seq + 1;
        script.seq += 1;
        script.next(ACK, b"");
        assert_eq!(script.end.tcp.info(script.id(), script.end.now).unwrap().snd_mss, wanted);
    }
    let script = accepted_with(Some(Timestamps { value: 1, echo_reply: 0 }));
    assert_eq!(script.end.tcp.info(script.id(), script.end.now).unwrap().snd_mss, 1448);
}
