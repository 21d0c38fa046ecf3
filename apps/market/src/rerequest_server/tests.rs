use proptest::prelude::*;

use super::archive::tests::packet;
use super::*;

const SESSION: [u8; 10] = *b"SESSION000";
const ASKER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const PACE: Pace = Pace { interval_ns: 1_000_000, burst: 256 };

/// A server that keeps the messages 4 to 8 of nine; the ninth was made and is not sent yet.
fn server(bounds: Bounds) -> RerequestServer<[u8]> {
    let config = ServerConfig { session: SESSION, packet_len_max: 1_472, messages: 5, pace: PACE, bounds };
    let mut server = RerequestServer::new(&config);
    for (seq, count) in [(1, 3), (4, 1), (5, 4)] {
        server.keep(packet(seq, count));
    }
    server
}

fn request(seq: u64, count: u16) -> Request {
    Request { session: SESSION, seq, count }
}

fn refused(datagram: &[u8], reason: Refusal) {
    let mut server = server(Bounds::Silent);
    assert_eq!(server.answer(datagram, ASKER, 0), None, "{reason:?}");
    assert_eq!(server.counts.refused(reason), 1, "{reason:?}: {}", server.counts);
    assert_eq!(server.counts.refused.iter().sum::<u64>(), 1);
}

#[test]
fn hostile_requests_are_counted_by_their_reason() {
    refused(&[], Refusal::Short);
    refused(&request(5, 1).emit()[..19], Refusal::Short);
    refused(&[0; 21], Refusal::Long);
    refused(&Request { session: *b"SESSION001", ..request(5, 1) }.emit(), Refusal::OtherSession);
    refused(&request(0, 1).emit(), Refusal::SequenceZero);
    refused(&request(9, 1).emit(), Refusal::Future);
    refused(&request(u64::MAX, 5).emit(), Refusal::Future);
    refused(&request(3, 5).emit(), Refusal::TooOld);
    refused(&request(5, 0).emit(), Refusal::CountZero);
    refused(&request(5, u16::MAX).emit(), Refusal::CountLarge);
}

#[test]
fn request_is_answered_with_what_is_there() {
    let mut server = server(Bounds::Silent);
    let answer = MoldUdp64::parse(server.answer(&request(7, 100).emit(), ASKER, 0).unwrap()).unwrap();
    assert_eq!((answer.header.seq, answer.header.count), (7, 2));
    assert_eq!((server.counts.answered, server.counts.messages), (1, 2));
}

#[test]
fn request_beyond_the_kept_messages_brings_the_oldest_or_the_next_number() {
    let mut server = server(Bounds::Heartbeat);
    for (asked, told, reason) in [(3, 4, Refusal::TooOld), (9, 9, Refusal::Future), (u64::MAX, 9, Refusal::Future)] {
        let answer = server.answer(&request(asked, 5).emit(), ASKER, 0).unwrap();
        assert_eq!(answer.len(), Request::LEN, "no more comes back than was sent");
        let header = MoldUdp64::parse(answer).unwrap().header;
        assert_eq!((header.seq, header.count), (told, 0));
        assert!(server.counts.refused(reason) > 0);
    }
}

#[test]
fn address_that_asks_too_often_is_refused_until_it_has_waited() {
    for seq in [5, 3] {
        let mut server = server(Bounds::Heartbeat);
        let mut ask = |now_ns| server.answer(&request(seq, 1).emit(), ASKER, now_ns).is_some();
        assert_eq!((0..2 * PACE.burst).filter(|_| ask(0)).count() as u64, PACE.burst);
        assert!(ask(PACE.interval_ns));
        assert_eq!(server.counts.refused(Refusal::TooOften), PACE.burst);
    }
}

#[test]
fn refused_requests_cost_no_pace() {
    let mut server = server(Bounds::Silent);
    for _ in 0..2 * PACE.burst {
        server.answer(&request(0, 1).emit(), ASKER, 0);
        server.answer(&request(3, 1).emit(), ASKER, 0);
    }
    assert!(server.answer(&request(5, 1).emit(), ASKER, 0).is_some());
}

#[test]
fn packets_without_messages_are_not_kept() {
    let mut server = server(Bounds::Silent);
    for other in [&MoldHeader::emit_end_of_session(SESSION, 9)[..], b"", &[0; 20]] {
        server.keep(other.into());
    }
    assert!(server.answer(&request(8, 1).emit(), ASKER, 0).is_some());
}

proptest! {
    #[test]
    fn any_request_brings_one_sound_packet_or_one_count(
        requests in prop::collection::vec((any_request(), any::<u8>(), 0..2_000_000_u64), 1..200),
        tells in any::<bool>(),
    ) {
        let mut server = server(if tells { Bounds::Heartbeat } else { Bounds::Silent });
        let mut now_ns = 0_u64;
        for (datagram, asker, later_ns) in &requests {
            now_ns += later_ns;
            let Some(answer) = server.answer(datagram, Ipv4Addr::new(10, 0, 0, *asker), now_ns) else { continue };
            prop_assert!(answer.len() <= 1_472);
            let asked = Request::parse(datagram).unwrap();
            let packet = MoldUdp64::parse(answer).unwrap();
            prop_assert_eq!(packet.messages().count(), packet.header.count as usize);
            if packet.header.count == 0 {
                prop_assert!(tells && packet.header.seq != asked.seq || asked.seq == 9);
                continue;
            }
            prop_assert_eq!(packet.header.seq, asked.seq);
            prop_assert!(packet.header.count <= u32::from(asked.count) && packet.header.end() <= 9);
        }
        let refused: u64 = server.counts.refused.iter().sum();
        prop_assert_eq!(server.counts.answered + refused, requests.len() as u64);
    }
}

/// Most are for messages that are kept, or near them; some are random bytes.
fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let near = (0..12_u64, any::<u16>()).prop_map(|(seq, count)| request(seq, count).emit().to_vec());
    let far = (any::<u64>(), any::<u16>()).prop_map(|(seq, count)| request(seq, count).emit().to_vec());
    prop_oneof![8 => near, 2 => far, 1 => prop::collection::vec(any::<u8>(), 0..24)]
}
