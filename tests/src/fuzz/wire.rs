//! The wire formats: a header that is parsed and written again is the same, lengths are consistent,
//! loops end.

use std::net::Ipv4Addr;

use wirepath::testing::proto::copied_options;
use wirepath::wire::arp::{ArpFields, ArpPacket};
use wirepath::wire::checksum::Sum;
use wirepath::wire::ethernet::{EthernetFields, EthernetFrame, EthernetHeader};
use wirepath::wire::icmpv4::{Icmpv4Message, QuotedFlow};
use wirepath::wire::igmp::IgmpMessage;
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header, Ipv4Packet};
use wirepath::wire::tcp::{TcpHeader, TcpOptionList, TcpSegment};
use wirepath::wire::udp::{UdpFields, UdpHeader};
use wirepath::wire::{MacAddr, igmp};

/// More options than 40 bytes can hold.
const OPTIONS_MAX: usize = 40;
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// Frame, tags and the text of an address.
pub(super) fn ethernet(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data)
        && let Ok(mac) = text.parse::<MacAddr>()
    {
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }
    let Ok(frame) = EthernetFrame::parse(data) else { return };
    assert_eq!(frame.header_len() + frame.payload.len(), data.len());
    assert!(!frame.ethertype.is_vlan() && !frame.ethertype.is_length());
    let fields = EthernetFields { dst: frame.header.dst(), src: frame.header.src(), ethertype: frame.ethertype };
    let mut written = [0; 22];
    let len = EthernetHeader::new(fields).emit_tagged(&frame.tags, &mut written).expect("22 bytes hold two tags");
    assert_eq!(written[..len], data[..frame.header_len()]);
}

/// The packet and its padding.
pub(super) fn arp(data: &[u8]) {
    let Ok((packet, padding)) = ArpPacket::parse(data) else { return };
    assert_eq!(padding.len(), data.len() - 28);
    let fields = ArpFields {
        operation: packet.operation(),
        sender_mac: packet.sender_mac(),
        sender_ip: packet.sender_ip(),
        target_mac: packet.target_mac(),
        target_ip: packet.target_ip(),
    };
    let mut written = [0; 28];
    assert_eq!(ArpPacket::new(&fields).emit(&mut written), Ok(28));
    assert_eq!(written, data[..28]);
}

/// Header, options, checksums full and incremental, and the quote in an ICMP error.
pub(super) fn ipv4(data: &[u8]) {
    let _ = QuotedFlow::parse(data);
    let Ok(packet) = Ipv4Packet::parse(data) else { return };
    assert!(packet.total_len() <= data.len());
    assert_eq!(packet.header_len() + packet.payload.len(), packet.total_len());
    assert_eq!(packet.header_len(), 20 + packet.options.len());
    assert!(packet.options().count() <= OPTIONS_MAX);
    if let Ok(copied) = copied_options(packet.options()) {
        assert!(copied.len() <= packet.options.len() && copied.len().is_multiple_of(4));
    }

    let mut written = [0; 60];
    let len = packet.header.emit_with_options(packet.options, &mut written).expect("60 bytes hold any header");
    assert_eq!(written[..len], data[..packet.header_len()]);

    let mut header = *packet.header;
    header.fill_checksum(packet.options);
    check_header(&header, packet.options);
    // In one's complement there are two zeros.
    let same = header.checksum() % 0xffff == packet.header.checksum() % 0xffff;
    assert_eq!(packet.verify_checksum().is_ok(), same, "{:?}", packet.header);
    header.decrement_ttl();
    header.set_identification(header.total_len());
    header.set_fragment(packet.header.identification() & 0xfff8, packet.header.dont_fragment());
    check_header(&header, packet.options);

    let fields = Ipv4Fields {
        source: header.source(),
        destination: header.destination(),
        protocol: header.protocol(),
        ttl: header.ttl(),
        tos: header.tos(),
        identification: header.identification(),
        dont_fragment: header.dont_fragment(),
        payload_len: packet.payload.len(),
    };
    let header = Ipv4Header::with_options(&fields, packet.options).expect("lengths that were read can be written");
    check_header(&header, packet.options);
    assert_eq!(usize::from(header.total_len()), packet.total_len());
}

fn check_header(header: &Ipv4Header, options: &[u8]) {
    let mut bytes = [0; 60];
    let len = header.emit_with_options(options, &mut bytes).expect("60 bytes hold any header");
    assert!(Sum::of(&bytes[..len]).is_valid(), "the checksum of {header:?} is wrong");
}

/// Messages, and the packets that errors quote.
pub(super) fn icmpv4(data: &[u8]) {
    let data = &with_checksum(data, 2);
    let Ok(message) = Icmpv4Message::parse(data) else { return };
    assert!(message.len() <= data.len());
    if let Some(quoted) = message.quoted() {
        let _ = QuotedFlow::parse(quoted);
    }
    let mut written = vec![0; message.len()];
    assert_eq!(message.emit(&mut written), Ok(written.len()));
    assert_eq!(Icmpv4Message::parse(&written), Ok(message));
}

/// Queries and reports of the three versions.
pub(super) fn igmp(data: &[u8]) {
    let data = &with_checksum(data, 2);
    let Ok(message) = IgmpMessage::parse(data) else { return };
    let mut written = vec![0; data.len()];
    let len = message.emit(&mut written).expect("a message is written in as many bytes as it was read from");
    assert_eq!(IgmpMessage::parse(&written[..len]), Ok(message));
    if let IgmpMessage::ReportV3(records) = message {
        report(records, data.len());
    }
}

/// The records, written one by one, are the same records; each takes eight bytes or more.
fn report(records: igmp::IgmpRecords<'_>, len: usize) {
    assert!(records.count() <= usize::from(records.stated_count()).min(len / igmp::IgmpRecord::LEN_MIN));
    let mut bytes = vec![0; len];
    let mut writer = igmp::ReportWriter::new(&mut bytes).expect("there was a header");
    for record in records.map_while(Result::ok) {
        writer.push(record.kind, record.group, record.sources.iter()).expect("what was read can be written");
    }
    let len = writer.finish();
    let Ok(IgmpMessage::ReportV3(again)) = IgmpMessage::parse(&bytes[..len]) else {
        panic!("a written report is not read as one");
    };
    assert!(again.eq(records.take_while(Result::is_ok)));
}

/// Header, length and checksum.
pub(super) fn udp(data: &[u8]) {
    let Ok((header, payload)) = UdpHeader::parse(data) else { return };
    assert_eq!(usize::from(header.length()), 8 + payload.len());
    let mut written = [0; 8];
    assert_eq!(header.emit(&mut written), Ok(8));
    assert_eq!(written, data[..8]);

    let (source_port, destination_port) = (header.source_port(), header.destination_port());
    let fields = UdpFields { source_port, destination_port, payload_len: payload.len() };
    let mut again = UdpHeader::new(&fields).expect("a length that was read can be written");
    again.fill_checksum(SOURCE, DESTINATION, payload);
    assert_ne!(again.checksum(), 0, "zero means that there is none");
    assert_eq!(again.verify_checksum(SOURCE, DESTINATION, payload), Ok(()));
    let verdict = header.verify_checksum(SOURCE, DESTINATION, payload);
    let same = header.checksum() == 0 || header.checksum() == again.checksum();
    // A sum of all ones can be written in two ways, of which zero is taken.
    assert!(verdict.is_ok() == same, "{verdict:?} for {header:?}, computed {:#06x}", again.checksum());
}

/// Header, options and checksum.
pub(super) fn tcp(data: &[u8]) {
    let Ok(segment) = TcpSegment::parse(data) else { return };
    assert_eq!(20 + segment.options.len() + segment.payload.len(), data.len());
    let mut list = TcpOptionList::EMPTY;
    let mut options = 0;
    for option in segment.options() {
        options += 1;
        if let Ok(option) = option {
            let _ = list.push(option);
        }
    }
    assert!(options <= OPTIONS_MAX && list.as_bytes().len() <= OPTIONS_MAX);
    assert!(list.as_bytes().len().is_multiple_of(4));
    let _ = segment.aligned_timestamps();

    let mut header = TcpHeader::new(&segment.header.fields(), segment.options).expect("options that were read");
    header.set_checksum(segment.header.checksum());
    let mut bytes = vec![0; 20 + segment.options.len()];
    assert_eq!(header.emit(segment.options, &mut bytes), Ok(bytes.len()));
    // Four reserved bits are not kept.
    bytes[12] |= data[12] & 0x0f;
    assert_eq!(bytes, data[..bytes.len()]);
    let _ = segment.verify_checksum(SOURCE, DESTINATION);
}

/// A fuzzer does not find checksums: the field at `offset` gets the right one, unless the last byte
/// of the input is odd.
fn with_checksum(data: &[u8], offset: usize) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if data.last().is_some_and(|last| last % 2 == 1) {
        return bytes;
    }
    if let Some(field) = bytes.get_mut(offset..offset + 2) {
        field.fill(0);
        let sum = Sum::of(&bytes).finish();
        bytes[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}
