use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::aeth::{Aeth, Nak, Syndrome};
use super::bth::{Bth, BthFields};
use super::extended::{AtomicEth, Deth, Reth};
use super::opcode::{Opcode, Operation, Transport};
use super::packet::{Body, Packet, PacketError};
use super::psn::Psn;
use super::qpn::Qpn;

/// A packet with these headers behind its BTH, zero bytes to the next multiple of four, and an
/// ICRC of zero.
fn packet(opcode: Opcode, headers: &[&[u8]], payload: &[u8]) -> Vec<u8> {
    let pad = payload.len().next_multiple_of(4) - payload.len();
    let fields = BthFields {
        opcode,
        solicited: false,
        pad: pad as u8,
        pkey: Bth::DEFAULT_PKEY,
        destination: Qpn::new(0x12),
        ack_request: true,
        psn: Psn::new(5),
    };
    [Bth::new(&fields).as_bytes(), &headers.concat(), payload, &vec![0; pad], &[0; 4]].concat()
}

fn check(transport: Transport, operation: Operation, headers: &[&[u8]], payload: &[u8], words: &str) {
    let bytes = packet(Opcode::new(transport, operation), headers, payload);
    let read = Packet::parse(&bytes).unwrap();
    assert_eq!(read.to_string(), format!("{transport} {}, QP 0x000012, PSN 5, ack wanted{words}", operation.as_str()));
    let Body::Message(message) = read.body else { panic!("{read}") };
    assert_eq!(message.payload, payload);
    // One byte less is part of a header, or no multiple of four.
    let error = if payload.is_empty() { PacketError::Short } else { PacketError::Pad };
    assert_eq!(Packet::parse(&bytes[..bytes.len() - 1]), Err(error));
}

#[test]
fn each_operation_has_its_headers() {
    let (reth, atomic) = (Reth::new(0x7f00, 0x1200, 64), AtomicEth::new(0x7f00, 0x1200, 1, 2));
    let (aeth, deth) = (Aeth::new(Syndrome::Nak(Nak::RemoteAccess), 9), Deth::new(0x1111_1111, Qpn::new(0x13)));
    let (imm, key): ([u8; 4], [u8; 4]) = ([0, 0, 1, 2], [0, 0, 0x12, 0]);
    let memory = ", address 0x7f00, key 0x1200, 64 bytes";
    let (rc, uc, ud) = (Transport::Rc, Transport::Uc, Transport::Ud);
    check(rc, Operation::SendFirst, &[], b"1234", ", length 4");
    check(rc, Operation::SendOnlyImm, &[&imm], b"12345", ", immediate 0x00000102, length 5");
    check(rc, Operation::SendLastInvalidate, &[&key], b"", ", invalidates key 0x1200");
    check(uc, Operation::WriteFirst, &[reth.as_bytes()], b"1234", &format!("{memory}, length 4"));
    check(rc, Operation::WriteOnlyImm, &[reth.as_bytes(), &imm], b"", &format!("{memory}, immediate 0x00000102"));
    check(rc, Operation::ReadRequest, &[reth.as_bytes()], b"", memory);
    check(rc, Operation::Flush, &[&[0; 4], reth.as_bytes()], b"", memory);
    check(rc, Operation::ReadResponseMiddle, &[], b"1234", ", length 4");
    check(rc, Operation::Acknowledge, &[aeth.as_bytes()], b"", ", NAK: remote access error, MSN 9");
    check(rc, Operation::AtomicAcknowledge, &[aeth.as_bytes(), &[0; 8]], b"", ", NAK: remote access error, MSN 9");
    check(rc, Operation::FetchAdd, &[atomic.as_bytes()], b"", ", address 0x7f00, key 0x1200");
    check(ud, Operation::SendOnly, &[deth.as_bytes()], b"1", ", from QP 0x000013, Q_Key 0x11111111, length 1");
}

#[test]
fn congestion_notification_is_no_message() {
    let header = Bth::congestion_notification(Bth::DEFAULT_PKEY, Qpn::new(0x118));
    let bytes = [header.as_bytes(), &[0; 16], &[0; 4]].concat();
    let read = Packet::parse(&bytes).unwrap();
    assert_eq!((read.body, read.to_string()), (Body::CongestionNotification, "CNP, QP 0x000118".to_owned()));
}

#[test]
fn what_is_no_packet_is_refused_by_name() {
    let good = packet(Opcode(0x04), &[], b"1234");
    assert_eq!(Packet::parse(&good[..15]), Err(PacketError::Short));
    assert_eq!(Packet::parse(&packet(Opcode(0x55), &[], b"")), Err(PacketError::Opcode(Opcode(0x55))));
    let mut version = good.clone();
    version[1] |= 1;
    assert_eq!(Packet::parse(&version), Err(PacketError::Version));
    let mut pad = packet(Opcode(0x04), &[], b"");
    pad[1] |= 0x10;
    assert_eq!(Packet::parse(&pad), Err(PacketError::Short));
}

proptest! {
    #[test]
    fn any_bytes_are_a_packet_within_them_or_refused(bytes: Vec<u8>, opcode: u8) {
        let mut bytes = bytes;
        if let [first, flags, ..] = &mut bytes[..] {
            (*first, *flags) = (opcode, *flags & 0xf0);
        }
        if let Ok(Packet { bth, body: Body::Message(message), .. }) = Packet::parse(&bytes) {
            prop_assert!(message.payload.len() + Bth::LEN + bth.pad() + 4 <= bytes.len());
        }
    }
}
