use proptest::prelude::*;

use super::cboe_unit::CboeUnit;
use super::iex_tp::IexTp;
use super::itch_file::{FileEnd, FileMessages, ItchFile, whole_blocks};
use super::mold_udp64::{MoldHeader, MoldUdp64, Request};
use super::pillar::{PillarHeader, PillarPacket};
use super::*;

const SESSION: [u8; 10] = *b"000001059B";

fn mold(messages: &[&[u8]]) -> Vec<u8> {
    let mut out = [0; 1500];
    let mut writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(SESSION, 7), &mut out).unwrap();
    for message in messages {
        writer.push(message).unwrap();
    }
    writer.finish().to_vec()
}

fn error<F: Framing>(packet: &[u8]) -> &'static str {
    match F::parse(packet) {
        Ok(packet) => panic!("accepted: {:?}", packet.header),
        Err(error) => error.name(),
    }
}

#[test]
fn packet_shorter_than_its_header_is_refused() {
    assert_eq!(error::<MoldUdp64>(&[0; 19]), "header_short");
    assert_eq!(error::<IexTp>(&[1; 39]), "header_short");
    assert_eq!(error::<CboeUnit>(&[0; 7]), "header_short");
}

#[test]
fn count_larger_than_the_packet_is_refused_whole() {
    let mut packet = mold(&[b"one", b"two"]);
    packet[19] = 3;
    assert_eq!(error::<MoldUdp64>(&packet), "message_overrun");
}

#[test]
fn count_smaller_than_the_packet_is_refused_whole() {
    let mut packet = mold(&[b"one", b"two"]);
    packet[19] = 1;
    assert_eq!(error::<MoldUdp64>(&packet), "trailing_bytes");
}

#[test]
fn message_length_past_the_end_is_refused_whole() {
    let mut packet = mold(&[b"one", b"two"]);
    packet[26] = 4;
    assert_eq!(error::<MoldUdp64>(&packet), "message_overrun");
}

#[test]
fn request_has_its_length_and_no_other() {
    let request = Request { session: SESSION, seq: u64::MAX, count: 0xffff };
    let bytes = request.emit();
    assert_eq!(Request::parse(&bytes), Ok(request));
    assert_eq!(Request::parse(&bytes[..19]), Err(FramingError::HeaderShort { len: 19 }));
    assert_eq!(Request::parse(&[&bytes[..], b"x"].concat()), Err(FramingError::TrailingBytes { len: 1 }));
}

#[test]
fn session_name_survives_being_packed() {
    let packet = mold(&[]);
    let session = MoldUdp64::parse(&packet).unwrap().header.session;
    assert_eq!(mold_udp64::session_name(session), SESSION);
}

#[test]
fn mold_heartbeat_and_end_of_session_carry_the_next_number() {
    let heartbeat = mold(&[]);
    let header = MoldUdp64::parse(&heartbeat).unwrap().header;
    assert_eq!((header.kind, header.seq, header.count), (PacketKind::Heartbeat, 7, 0));
    let end = MoldHeader::emit_end_of_session(SESSION, 8);
    let packet = MoldUdp64::parse(&end).unwrap();
    assert_eq!((packet.header.kind, packet.header.seq, packet.header.end()), (PacketKind::EndOfSession, 8, 8));
    assert_eq!(packet.messages().count(), 0);
}

#[test]
fn mold_message_of_length_zero_is_legal() {
    let packet = mold(&[b"", b"x"]);
    let lengths: Vec<_> = MoldUdp64::parse(&packet).unwrap().messages().map(<[u8]>::len).collect();
    assert_eq!(lengths, [0, 1]);
}

#[test]
fn iex_version_and_length_are_checked() {
    let mut packet = [0; 40];
    assert_eq!(error::<IexTp>(&packet), "version");
    packet[0] = 1;
    packet[12] = 1;
    assert_eq!(error::<IexTp>(&packet), "length_mismatch");
}

#[test]
fn cboe_message_shorter_than_its_own_header_is_refused() {
    assert_eq!(error::<CboeUnit>(&[10, 0, 1, 1, 1, 0, 0, 0, 1, 0x20]), "message_overrun");
    assert_eq!(error::<CboeUnit>(&[9, 0, 1, 1, 1, 0, 0, 0, 0]), "message_overrun");
}

#[test]
fn cboe_messages_without_a_sequence_are_unsequenced() {
    let header = CboeUnit::parse(&[10, 0, 1, 1, 0, 0, 0, 0, 2, 0x20]).unwrap().header;
    assert_eq!((header.kind, header.channel), (PacketKind::Unsequenced, 1));
}

#[test]
fn file_says_how_it_ended() {
    for (file, count, end) in [
        (&b"\0\x01a"[..], 1, FileEnd::Clean),
        (b"\0\x01a\0\0rest", 1, FileEnd::Marker),
        (b"\0\x01a\0", 1, FileEnd::Truncated { len: 1 }),
        (b"\0\x05ab", 0, FileEnd::Truncated { len: 4 }),
        (b"", 0, FileEnd::Clean),
    ] {
        let mut messages = FileMessages::new(file);
        assert_eq!(messages.by_ref().count(), count);
        assert_eq!(messages.end(), end);
    }
}

#[test]
fn chunk_of_a_file_ends_at_a_whole_block() {
    let chunk = b"\0\x01a\0\x02bc\0\x09d";
    let len = whole_blocks(chunk);
    assert_eq!(len, 7);
    assert_eq!(ItchFile::parse(&chunk[..len]).unwrap().messages().count(), 2);
    assert_eq!(error::<ItchFile>(chunk), "message_overrun");
}

#[test]
fn full_packet_refuses_the_message_and_stays_whole() {
    let mut out = [0; 26];
    let mut writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(SESSION, 1), &mut out).unwrap();
    writer.push(b"four").unwrap();
    assert_eq!(writer.push(b""), Err(PacketFull));
    let packet = writer.finish();
    assert_eq!(MoldUdp64::parse(packet).unwrap().messages().collect::<Vec<_>>(), [b"four"]);
}

/// For any bytes, a packet is refused whole or has exactly the messages that it counts.
fn check_hostile<F: Framing>(packet: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(parsed) = F::parse(packet) {
        let messages: Vec<_> = parsed.messages().collect();
        prop_assert_eq!(messages.len(), parsed.header.count as usize);
        let body: usize = messages.iter().map(|message| message.len() + F::PREFIX_LEN).sum();
        prop_assert_eq!(F::HEADER_LEN + body, packet.len());
    }
    Ok(())
}

fn check_round_trip<F: Framing>(raw: F::Raw, messages: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let mut out = vec![0; 4096];
    let mut writer = PacketWriter::<F>::new(raw, &mut out).unwrap();
    for message in messages {
        writer.push(message).unwrap();
    }
    let packet = F::parse(writer.finish()).unwrap();
    let parsed: Vec<_> = packet.messages().map(<[u8]>::to_vec).collect();
    prop_assert_eq!(parsed, messages);
    Ok(())
}

proptest! {
    #[test]
    fn hostile_bytes_are_refused_or_add_up(mut packet in proptest::collection::vec(any::<u8>(), 0..120)) {
        check_hostile::<MoldUdp64>(&packet)?;
        check_hostile::<ItchFile>(&packet)?;
        check_hostile::<CboeUnit>(&packet)?;
        // With a valid version and length, so that the blocks are reached.
        if packet.len() >= 40 {
            packet[0] = 1;
            let lengths = [(packet.len() - 40) as u8, 0, packet[14] % 4, 0];
            packet[12..16].copy_from_slice(&lengths);
        }
        check_hostile::<IexTp>(&packet)?;
        if packet.len() >= 8 {
            let lengths = [packet.len() as u8, 0, packet[2] % 4];
            packet[..3].copy_from_slice(&lengths);
        }
        check_hostile::<CboeUnit>(&packet)?;
        if packet.len() >= 16 {
            let lengths = [packet.len() as u8, 0, packet[2], packet[3] % 4];
            packet[..4].copy_from_slice(&lengths);
        }
        check_hostile::<PillarPacket>(&packet)?;
    }

    #[test]
    fn messages_survive_emit_and_parse(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 0..20),
    ) {
        check_round_trip::<MoldUdp64>(MoldHeader::new(SESSION, 1), &messages)?;
        check_round_trip::<ItchFile>(itch_file::RunHeader::default(), &messages)?;
        let raw = iex_tp::IexHeader {
            protocol: iex_tp::IexHeader::TOPS_1_6, channel: 1, session: 2, count: 0, offset: 3, seq: 4, sent_ns: 5,
        };
        check_round_trip::<IexTp>(raw, &messages)?;
        let own_length: Vec<_> =
            messages.iter().map(|body| [&[body.len() as u8 + 2, 0x20], &body[..]].concat()).collect();
        check_round_trip::<CboeUnit>(cboe_unit::UnitHeader { unit: 1, count: 0, seq: 1 }, &own_length)?;
        let own_length: Vec<_> =
            messages.iter().map(|body| [&[body.len() as u8 + 4, 0, 100, 0], &body[..]].concat()).collect();
        let raw = PillarHeader { delivery_flag: PillarHeader::ORIGINAL, count: 0, seq: 1, sent_ns: 1_000_000_005 };
        check_round_trip::<PillarPacket>(raw, &own_length)?;
    }
}
