//! Tests of blind and hostile peers: whatever they send, an established connection goes on, and
//! stored and sent data is bounded.

use super::*;
use crate::proto::tcp::segment::Range;
use crate::wire::tcp::TcpFlags;

/// A connection without timestamps: with them an attacker must guess one more number, and forged
/// segments would not reach the tested checks.
fn victims() -> (End, End) {
    connected_with(&ConnectionOptions { timestamps: false, ..ConnectionOptions::default() })
}

/// A pseudorandom word, the same in every run.
fn noise(word: u32) -> u32 {
    (u64::from(word).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u32
}

/// A segment that claims to come from the client.
fn forged(seq: Seq, ack: Seq, flags: TcpFlags) -> Outgoing {
    Outgoing { wnd: 60_000, ..Outgoing::bare(Flow { local: CLIENT, remote: SERVER }, seq, ack, flags) }
}

/// The client's next number and the server's, which only they know.
fn numbers(client: &End) -> (Seq, Seq) {
    let connection = &client.tcp.connections[client.id.unwrap().slot];
    (connection.snd.nxt, connection.rcv.nxt)
}

fn say(from: &mut End, to: &mut End, bytes: &[u8]) {
    let (id, now) = (from.id.unwrap(), from.now);
    from.tcp.send(id, bytes.to_vec(), now, &mut from.sent).unwrap();
    settle(from, to);
}

#[test]
fn flood_of_syns_is_remembered_by_nobody_and_a_connection_goes_on() {
    let (mut client, mut server) = victims();
    let (mut answers, mut said) = (0, Vec::new());
    for idx in 0..20_000 {
        let peer = SocketAddrV4::new(Ipv4Addr::from_bits(0x0b00_0000 + idx), 1_024 + (idx % 60_000) as u16);
        let flow = Flow { local: peer, remote: SERVER };
        let syn = SynOptions { mss: Some(1460), ..SynOptions::default() };
        let syn = Outgoing { syn: Some(syn), ..Outgoing::bare(flow, Seq(noise(idx)), Seq(0), TcpFlags::SYN) };
        server.note_received((syn, Vec::new()));
        answers += server.sent.0.drain(..).count();
        if idx % 1_000 == 0 {
            say(&mut client, &mut server, &idx.to_be_bytes());
            said.extend(idx.to_be_bytes());
        }
    }
    assert_eq!(server.bytes, said);
    assert!(server.tcp.len() <= 8, "{} connections", server.tcp.len());
    assert!(answers <= 20_000, "no more than one answer a SYN: {answers}");
    assert!(server.tcp.tally().syn_cookies_sent > 19_000);
}

#[test]
fn reset_that_does_not_know_the_number_resets_nothing() {
    let (mut client, mut server) = victims();
    let (next, theirs) = numbers(&client);
    for idx in 0..50_000 {
        // Half of the numbers are in the window: a blind attacker can hit it.
        let seq = if idx % 2 == 0 { next + 1 + noise(idx) % 60_000 } else { Seq(noise(idx)) };
        if seq != next {
            server.note_received((forged(seq, theirs, TcpFlags::RST), Vec::new()));
        }
    }
    let limit = u64::from(TcpConfig::default().challenge_acks_per_second);
    assert!(server.tcp.tally().challenge_acks <= limit, "{:?}", server.tcp.tally());
    server.sent.0.clear();
    say(&mut client, &mut server, b"still there");
    assert_eq!(server.bytes, b"still there");
}

#[test]
fn syn_in_a_connection_ends_nothing_and_is_answered_at_a_limited_rate() {
    let (mut client, mut server) = victims();
    let next = numbers(&client).0;
    for idx in 0..50_000 {
        server.note_received((forged(next + noise(idx) % 60_000, Seq(0), TcpFlags::SYN), Vec::new()));
    }
    let limit = TcpConfig::default().challenge_acks_per_second as usize;
    assert!(server.sent.0.len() <= limit + 1, "{} answers", server.sent.0.len());
    server.sent.0.clear();
    say(&mut client, &mut server, b"still there");
    assert_eq!(server.bytes, b"still there");
}

#[test]
fn data_of_who_guesses_the_number_and_not_the_acknowledgment_is_not_taken() {
    let (mut client, mut server) = victims();
    let (next, theirs) = numbers(&client);
    for idx in 0..20_000 {
        // RFC 5961 5.2: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT must be met too; a guess is
        // elsewhere.
        let ack = theirs + 1 + noise(idx) % (u32::MAX - 200_000);
        server.note_received((forged(next, ack, TcpFlags::ACK | TcpFlags::PSH), b"forged".to_vec()));
    }
    assert!(server.bytes.is_empty());
    server.sent.0.clear();
    say(&mut client, &mut server, b"true");
    assert_eq!(server.bytes, b"true");
}

/// RFC 5961 5.2: an acknowledgment number that the peer could send is not enough where it is older
/// than all data that was ever in flight.
#[test]
fn data_with_an_acknowledgment_far_from_ours_is_not_taken_either_side() {
    let (mut client, mut server) = victims();
    let (next, theirs) = numbers(&client);
    let window = server.tcp.connections[server.id.unwrap().slot].rare_snd.wnd_max;
    for ack in [theirs + 1, theirs + 0x7fff_ffff, theirs - (window + 1), theirs - 0x7fff_ffff] {
        let dropped = server.note_received((forged(next, ack, TcpFlags::ACK), b"forged".to_vec()));
        assert_eq!(dropped, Some(TcpDrop::BadAck), "{ack:?}, where {theirs:?} is next");
    }
    assert!(server.bytes.is_empty());
    assert_eq!(server.tcp.tally().challenge_acks, 4);
    server.sent.0.clear();
    say(&mut client, &mut server, b"true");
    assert_eq!(server.bytes, b"true");
}

/// Each end considers the other's numbers impossible and answers so; the other end considers that
/// answer impossible.
#[test]
fn ends_that_disagree_do_not_storm_each_other_with_acknowledgments() {
    let (mut client, mut server) = victims();
    let (next, theirs) = numbers(&client);
    server.note_received((forged(next, theirs, TcpFlags::ACK), vec![0; 1_000]));
    let limit = 2 * TcpConfig::default().challenge_acks_per_second as usize;
    assert!(storm(&mut client, &mut server) <= limit + 10);
}

/// Each end takes the other's acknowledgments for probes.
#[test]
fn ends_that_each_miss_a_byte_do_not_storm_each_other() {
    let (mut client, mut server) = victims();
    let (next, theirs) = numbers(&client);
    server.note_received((forged(next, theirs, TcpFlags::ACK), vec![0]));
    let flow = Flow { local: SERVER, remote: CLIENT };
    client.note_received((Outgoing { wnd: 60_000, ..Outgoing::bare(flow, theirs, next, TcpFlags::ACK) }, vec![0]));
    let exchanged = storm(&mut client, &mut server);
    assert!((3..=50).contains(&exchanged), "{exchanged} segments in one moment");
}

/// Segments that two ends exchange in one moment.
fn storm(client: &mut End, server: &mut End) -> usize {
    let mut exchanged = 0;
    for _ in 0..100_000 {
        client.tick();
        server.tick();
        let (from_client, from_server) = (core::mem::take(&mut client.sent.0), core::mem::take(&mut server.sent.0));
        exchanged += from_client.len() + from_server.len();
        if from_client.is_empty() && from_server.is_empty() {
            break;
        }
        from_client.into_iter().for_each(|segment| _ = server.note_received(segment));
        from_server.into_iter().for_each(|segment| _ = client.note_received(segment));
    }
    exchanged
}

#[test]
fn bytes_out_of_order_are_kept_with_a_bound_and_given_back() {
    let (mut client, mut server) = victims();
    let (next, theirs) = numbers(&client);
    for idx in 0..20_000 {
        // Every other byte, so that no two merge.
        server.note_received((forged(next + 1 + 2 * idx, theirs, TcpFlags::ACK), vec![idx as u8]));
    }
    assert!(server.tcp.chunks() <= 512, "no queue holds more than what is left: {}", server.tcp.chunks());
    server.sent.0.clear();
    client.tcp.abort(client.id.unwrap(), client.now, &mut client.sent).unwrap();
    settle(&mut client, &mut server);
    assert_eq!(server.tcp.chunks(), 0);
}

#[test]
fn sack_blocks_that_cannot_be_are_believed_by_nobody() {
    let (mut client, mut server) = victims();
    for _ in 0..20 {
        let (id, now) = (client.id.unwrap(), client.now);
        client.tcp.send(id, vec![7; 1_400], now, &mut client.sent).unwrap();
    }
    let sent = core::mem::take(&mut client.sent.0);
    let connection = &client.tcp.connections[client.id.unwrap().slot];
    let (una, nxt, theirs) = (connection.snd.una, connection.snd.nxt, connection.rcv.nxt);
    for idx in 0..10_000 {
        let block = |word: u32| Range { left: Seq(noise(word)), right: Seq(noise(word ^ 0xffff)) };
        let inverted = Range { left: una + 1_400, right: una };
        let beyond = Range { left: nxt, right: nxt + 1_400 };
        let flow = Flow { local: SERVER, remote: CLIENT };
        let ack = Outgoing { wnd: 60_000, ..Outgoing::bare(flow, theirs, una, TcpFlags::ACK) };
        client.note_received((
            Outgoing { sack_count: 4, sacks: [block(idx), inverted, beyond, block(!idx)], ..ack },
            Vec::new(),
        ));
    }
    client.tcp.connections[client.id.unwrap().slot].check_scoreboard(&client.tcp.shared.chunks);
    client.sent.0.clear();
    sent.into_iter().for_each(|segment| _ = server.note_received(segment));
    for _ in 0..100 {
        client.now += Duration::from_millis(100);
        server.now = client.now;
        settle(&mut client, &mut server);
    }
    assert_eq!((server.bytes.len(), client.tcp.chunks()), (28_000, 0));
}

/// A report of a duplicate that was never sent, or of an old duplicate, undoes no recovery.
#[test]
fn reports_of_duplicates_that_cannot_be_count_nothing() {
    let (mut client, _) = victims();
    let (id, now) = (client.id.unwrap(), client.now);
    client.tcp.send(id, vec![7; 1_400], now, &mut client.sent).unwrap();
    let connection = &client.tcp.connections[id.slot];
    let (una, nxt, theirs) = (connection.snd.una, connection.snd.nxt, connection.rcv.nxt);
    let long_ago = [Range { left: una - 1_000_000, right: una - 999_000 }, Range::default()];
    let never_sent = [Range { left: nxt + 100, right: nxt + 200 }, Range { left: una + 1, right: nxt + 1_000 }];
    for (count, [first, second]) in [(1, long_ago), (2, never_sent)] {
        let ack = Outgoing::bare(Flow { local: SERVER, remote: CLIENT }, theirs, una, TcpFlags::ACK);
        let sacks = [first, second, Range::default(), Range::default()];
        client.note_received((Outgoing { wnd: 60_000, sack_count: count, sacks, ..ack }, Vec::new()));
    }
    assert_eq!((client.tcp.tally().dsacks_in, client.tcp.tally().undone_recoveries), (0, 0));
}
