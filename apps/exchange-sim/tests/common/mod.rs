//! A receiver that knows only the standards: frames by etherparse, MoldUDP64 by hand, one account
//! per line.

use std::collections::{BTreeMap, BTreeSet};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use exchange_sim::{Settings, Truth, write_capture};
use wirepath::device::pcap::Reader;

/// The messages that arrived on one line.
#[derive(Default)]
pub(crate) struct LineSeen {
    pub(crate) packets: u64,
    pub(crate) messages: u64,
    pub(crate) heartbeats: u64,
    pub(crate) ends: u64,
    /// First copies that came after a later packet.
    pub(crate) reordered: u64,
}

/// The packets of both lines together.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) lines: [LineSeen; 2],
    /// Each message by its number, from the line that brought it first.
    pub(crate) messages: BTreeMap<u64, Vec<u8>>,
}

/// Generates the day in memory.
pub(crate) fn day(settings: &Settings) -> (Vec<u8>, Truth) {
    let mut bytes = Vec::new();
    let truth = write_capture(settings, &mut bytes).unwrap();
    (bytes, truth)
}

/// Reads a capture back and checks each frame by the standards.
pub(crate) fn receive(capture: Vec<u8>, settings: &Settings) -> Seen {
    let mut reader = Reader::new(std::io::Cursor::new(capture)).unwrap();
    let mut seen = Seen::default();
    let mut copies = [BTreeSet::new(), BTreeSet::new()];
    let mut last_ns = 0;
    while let Some(record) = reader.next().unwrap() {
        assert!(record.timestamp_ns >= last_ns, "frames in the order of their times");
        last_ns = record.timestamp_ns;
        let (line_idx, identification, payload) = check_frame(record.bytes, settings);
        let line = &mut seen.lines[line_idx];
        line.packets += 1;
        // The identification numbers the packets of the day, so a test of at most 65,536 packets
        // sees copies by it.
        let newest = copies[line_idx].last().is_none_or(|&last| last < identification);
        if copies[line_idx].insert(identification) && !newest {
            line.reordered += 1;
        }
        match u16::from_be_bytes([payload[18], payload[19]]) {
            0 => line.heartbeats += 1,
            0xffff => line.ends += 1,
            count => {
                line.messages += u64::from(count);
                take_messages(payload, count, &mut seen.messages);
            }
        }
    }
    seen
}

fn take_messages(payload: &[u8], count: u16, messages: &mut BTreeMap<u64, Vec<u8>>) {
    let sequence = u64::from_be_bytes(payload[10..18].try_into().unwrap());
    let mut rest = &payload[20..];
    for number in sequence..sequence + u64::from(count) {
        let len = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        messages.entry(number).or_insert_with(|| rest[2..2 + len].to_vec());
        rest = &rest[2 + len..];
    }
    assert!(rest.is_empty());
}

/// Line, IPv4 identification and UDP payload of a frame whose header fields are all correct.
fn check_frame<'a>(frame: &'a [u8], settings: &Settings) -> (usize, u16, &'a [u8]) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(NetSlice::Ipv4(ipv4)) = &packet.net else { panic!("not IPv4") };
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("not UDP") };
    let header = ipv4.header();
    let group = header.destination_addr();
    let line_idx = settings.lines.iter().position(|line| line.group.address() == group).unwrap();
    let [_, b, c, d] = group.octets();
    assert_eq!(frame[..6], [0x01, 0x00, 0x5e, b & 0x7f, c, d]);
    assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
    assert!(header.dont_fragment() && !header.more_fragments());
    assert_eq!(header.ttl(), settings.ttl);
    assert!(header.total_len() <= settings.mtu);
    assert_eq!(usize::from(header.total_len()) + 14, frame.len());
    assert_eq!(udp.destination_port(), settings.port);
    let checksum = udp.to_header().calc_checksum_ipv4(&header.to_header(), udp.payload()).unwrap();
    assert_eq!(udp.checksum(), checksum);
    assert_eq!(udp.payload()[..10], settings.session.bytes());
    (line_idx, header.identification(), udp.payload())
}
