//! Frames by the project's own emitters, and a hand that makes damaged checksums right.

use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::wire::checksum::{PseudoHeader, Sum};
use wirepath::wire::ethernet::{EthernetFields, EthernetFrame, EthernetHeader};
use wirepath::wire::igmp::{IgmpMessage, IgmpQuery, IgmpSources, IgmpVersion};
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header};
use wirepath::wire::tcp::{TcpFields, TcpHeader};
use wirepath::wire::udp::{UdpFields, UdpHeader};
use wirepath::wire::{EtherType, MacAddr, Protocol, VlanTags};
use zerocopy::IntoBytes;

use crate::rig::{OURS, PEER, PEER_STATION, STATION};

/// A datagram to be put into a frame, or into fragments.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The tags.
    pub tags: VlanTags,
    /// The sender.
    pub source: SocketAddrV4,
    /// To whom.
    pub destination: SocketAddrV4,
    /// Identification, which fragments have in common.
    pub identification: u16,
    /// Options of the IPv4 header.
    pub options: Vec<u8>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// From the peer to a group or to us.
    pub fn to(destination: Ipv4Addr, port: u16, payload: &[u8]) -> Self {
        Self {
            tags: VlanTags::NONE,
            source: SocketAddrV4::new(PEER, 7_000),
            destination: SocketAddrV4::new(destination, port),
            identification: 0,
            options: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    /// The frame in one piece.
    pub fn emit(&self) -> Vec<u8> {
        self.packet(&self.datagram(), 0, false)
    }

    /// The frames of its fragments, `len` bytes of the datagram in each; a multiple of 8.
    pub fn fragments(&self, len: usize) -> Vec<Vec<u8>> {
        let datagram = self.datagram();
        let starts = (0..datagram.len()).step_by(len);
        let piece = |start: usize| {
            let end = (start + len).min(datagram.len());
            self.packet(&datagram[start..end], start as u16, end < datagram.len())
        };
        starts.map(piece).collect()
    }

    fn datagram(&self) -> Vec<u8> {
        let fields = UdpFields {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
            payload_len: self.payload.len(),
        };
        let mut header = UdpHeader::new(&fields).expect("a payload that fits a datagram");
        header.fill_checksum(*self.source.ip(), *self.destination.ip(), &self.payload);
        let mut bytes = vec![0; 8];
        header.emit(&mut bytes).expect("8 bytes hold the header");
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    fn packet(&self, payload: &[u8], offset: u16, more: bool) -> Vec<u8> {
        let fields = Ipv4Fields {
            source: *self.source.ip(),
            destination: *self.destination.ip(),
            protocol: Protocol::UDP,
            ttl: 8,
            tos: 0,
            identification: self.identification,
            dont_fragment: false,
            payload_len: payload.len(),
        };
        let mut header = Ipv4Header::with_options(&fields, &self.options).expect("a payload that fits a packet");
        header.set_fragment(offset, more);
        let mut bytes = vec![0; 60];
        let len = header.emit_with_options(&self.options, &mut bytes).expect("60 bytes hold the header");
        bytes.truncate(len);
        bytes.extend_from_slice(payload);
        self.link(EtherType::IPV4, &bytes)
    }

    /// The Ethernet header and tags in front of any packet.
    pub fn link(&self, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
        let group = *self.destination.ip();
        let dst = match group {
            OURS => STATION,
            _ if group.is_multicast() => MacAddr::multicast_ipv4(group),
            _ => MacAddr::BROADCAST,
        };
        let header = EthernetHeader::new(EthernetFields { dst, src: PEER_STATION, ethertype });
        let mut bytes = vec![0; 22];
        let len = header.emit_tagged(&self.tags, &mut bytes).expect("22 bytes hold two tags");
        bytes.truncate(len);
        bytes.extend_from_slice(packet);
        bytes
    }
}

/// The packet of a TCP segment without data, from the first of two hosts to the second. Options are
/// whole words.
pub fn segment(ends: [Ipv4Addr; 2], fields: &TcpFields, options: &[u8]) -> Vec<u8> {
    data_segment(ends, fields, options, &[])
}

/// The same with data.
pub fn data_segment([source, destination]: [Ipv4Addr; 2], fields: &TcpFields, options: &[u8], data: &[u8]) -> Vec<u8> {
    let mut tcp = TcpHeader::new(fields, options).expect("options of whole words");
    let len = tcp.as_bytes().len() + options.len() + data.len();
    let pseudo = PseudoHeader { source, destination, protocol: Protocol::TCP, len: len as u16 };
    tcp.fill_checksum(pseudo.sum().append(options).append(data));
    let fields = Ipv4Fields {
        source,
        destination,
        protocol: Protocol::TCP,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        payload_len: len,
    };
    let ipv4 = Ipv4Header::new(&fields).expect("a header fits a packet");
    [ipv4.as_bytes(), tcp.as_bytes(), options, data].concat()
}

/// A general query of IGMP version 1, as a router of that version sends it: no router alert, no
/// maximum response time.
pub fn general_query_v1(router: Ipv4Addr) -> Vec<u8> {
    let message = IgmpMessage::Query(IgmpQuery {
        version: IgmpVersion::V1,
        group: Ipv4Addr::UNSPECIFIED,
        max_response_tenths: 0,
        suppress: false,
        robustness: 0,
        interval_s: 0,
        sources: IgmpSources::NONE,
    });
    let fields = Ipv4Fields {
        source: router,
        destination: IgmpQuery::ALL_SYSTEMS,
        protocol: Protocol::IGMP,
        ttl: 1,
        tos: 0,
        identification: 0,
        dont_fragment: false,
        payload_len: 8,
    };
    let (dst, src) = (MacAddr::multicast_ipv4(IgmpQuery::ALL_SYSTEMS), MacAddr([2, 0, 0, 0, 0, 9]));
    let mut frame = vec![0; 14 + 20 + 8];
    let link = EthernetHeader::new(EthernetFields { dst, src, ethertype: EtherType::IPV4 });
    link.emit(&mut frame).expect("the frame has room");
    Ipv4Header::new(&fields).expect("the fields are right").emit(&mut frame[14..]).expect("the frame has room");
    message.emit(&mut frame[34..]).expect("the frame has room");
    frame
}

/// Corrects the checksums of an IPv4 header and of an ICMP or IGMP message, and removes that of a
/// UDP header, so that damage elsewhere reaches the later checks. Does not change other frames than
/// IPv4.
pub fn mend(bytes: &mut [u8]) {
    let Ok(frame) = EthernetFrame::parse(bytes) else { return };
    let start = frame.header_len();
    let Some(packet) = bytes.get_mut(start..) else { return };
    let header_len = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    if header_len < 20 || packet.len() < header_len {
        return;
    }
    packet[10..12].fill(0);
    let sum = Sum::of(&packet[..header_len]).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let is_first = packet[6] & 0x1f == 0 && packet[7] == 0;
    let (protocol, total_len) = (Protocol(packet[9]), usize::from(u16::from_be_bytes([packet[2], packet[3]])));
    let Some(message) = packet.get_mut(header_len..).filter(|_| is_first) else { return };
    let message_len = total_len.saturating_sub(header_len).min(message.len());
    match protocol {
        Protocol::UDP => message.get_mut(6..8).into_iter().for_each(|checksum| checksum.fill(0)),
        Protocol::ICMP | Protocol::IGMP if message_len >= 4 => {
            message[2..4].fill(0);
            let sum = Sum::of(&message[..message_len]).finish();
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {}
    }
}
