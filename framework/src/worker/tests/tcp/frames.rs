//! Segments in frames, as built by a peer that the test simulates.

use zerocopy::IntoBytes;

use super::*;
use crate::wire::checksum::PseudoHeader;
use crate::wire::{EtherType, EthernetFields, EthernetHeader, Ipv4Fields, Ipv4Header, Protocol, TcpFields, TcpHeader};

/// The source and destination of a segment.
pub(super) struct SegmentEnds {
    pub(super) from: (Ipv4Addr, MacAddr),
    pub(super) to: (Ipv4Addr, MacAddr),
}

/// A segment in a frame.
pub(super) fn frame(ends: &SegmentEnds, fields: &TcpFields, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let ((source, src), (destination, dst)) = (ends.from, ends.to);
    let mut header = TcpHeader::new(fields, options).unwrap();
    let behind = [options, payload].concat();
    let len = header.as_bytes().len() + behind.len();
    let pseudo = PseudoHeader { source, destination, protocol: Protocol::TCP, len: len as u16 };
    header.fill_checksum(pseudo.sum().append(&behind));
    let ipv4 = Ipv4Fields {
        source,
        destination,
        protocol: Protocol::TCP,
        ttl: 64,
        tos: 0,
        identification: 1,
        dont_fragment: true,
        payload_len: len,
    };
    let link = EthernetHeader::new(EthernetFields { dst, src, ethertype: EtherType::IPV4 });
    [link.as_bytes(), Ipv4Header::new(&ipv4).unwrap().as_bytes(), header.as_bytes(), &behind].concat()
}
