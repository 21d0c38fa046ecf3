//! The receive offload of a NIC for long TCP segments: it sums them during the copy, and marks
//! those with a correct checksum as good.
//!
//! ```text
//!  [ link, IPv4 │ TCP │ payload ········· ]   in the ring, or in the segmented packet's buffer
//!      copied    └─ copied and summed ───┘    the payload is read once
//! ```
//!
//! A frame with a wrong checksum is marked unknown, as NICs do: the receiver verifies it, and
//! counts the error. Unusual frames are marked unknown too: tagged or padded ones, fragments, and
//! those with IPv4 options.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::mem::{ChecksumStatus, copy_frame};
use crate::wire::checksum::{PseudoHeader, Sum};
use crate::wire::ethernet::EthernetHeader;
use crate::wire::{EtherType, Ipv4Header, Protocol, ethernet, ipv4};

/// The headers before the bytes that are summed.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Outer {
    link: EthernetHeader,
    ipv4: Ipv4Header,
}

/// Length of these headers.
const OUTER_LEN: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;

/// Copies a frame in two parts, the first of which has at least all headers, to a place of the same
/// length; returns its TCP checksum status.
#[inline]
pub(super) fn copy_verified(room: &mut [u8], head: &[u8], rest: &[u8]) -> ChecksumStatus {
    let (head_room, rest_room) = room.split_at_mut(head.len());
    let Some((pseudo, segment)) = segment_of(head, rest.len()) else {
        head_room.copy_from_slice(head);
        rest_room.copy_from_slice(rest);
        return ChecksumStatus::Unknown;
    };
    let sum = if rest.is_empty() {
        let (outer_room, segment_room) = head_room.split_at_mut(OUTER_LEN);
        outer_room.copy_from_slice(&head[..OUTER_LEN]);
        Sum::of_copy(segment_room, segment)
    } else {
        copy_frame(head_room, head);
        Sum::of(segment).combine(Sum::of_copy(rest_room, rest))
    };
    if pseudo.sum().combine(sum).is_valid() { ChecksumStatus::Good } else { ChecksumStatus::Unknown }
}

/// The pseudo-header of the segment, and its bytes in the frame's first part; `None` for an unusual
/// frame.
#[inline]
fn segment_of(head: &[u8], rest_len: usize) -> Option<(PseudoHeader, &[u8])> {
    let (Outer { link, ipv4 }, segment) = Outer::ref_from_prefix(head).ok()?;
    let len = segment.len() + rest_len;
    let is_usual = link.ethertype() == EtherType::IPV4
        && ipv4.protocol() == Protocol::TCP
        && ipv4.header_len() == ipv4::HEADER_LEN
        && usize::from(ipv4.total_len()) == ipv4::HEADER_LEN + len
        && !ipv4.is_fragment();
    let pseudo = PseudoHeader {
        source: ipv4.source(),
        destination: ipv4.destination(),
        protocol: Protocol::TCP,
        len: len as u16,
    };
    is_usual.then_some((pseudo, segment))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use core::net::Ipv4Addr;

    use zerocopy::IntoBytes;

    use super::*;
    use crate::wire::Ipv4Fields;
    use crate::wire::tcp::{self, TcpFields, TcpFlags, TcpHeader};

    /// A frame with a correct checksum and `payload_len` bytes of payload.
    fn frame(payload_len: usize) -> Vec<u8> {
        let payload: Vec<u8> = (0..payload_len).map(|at| (at * 7 + (at >> 8)) as u8).collect();
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let fields = Ipv4Fields {
            source,
            destination,
            protocol: Protocol::TCP,
            ttl: 64,
            tos: 0,
            identification: 0,
            dont_fragment: true,
            payload_len: tcp::HEADER_LEN + payload_len,
        };
        let ipv4 = Ipv4Header::new(&fields).unwrap();
        let fields = TcpFields {
            source_port: 1,
            destination_port: 2,
            seq: 3,
            ack: 4,
            flags: TcpFlags::ACK,
            window: 5,
            urgent_pointer: 0,
        };
        let mut tcp = TcpHeader::new(&fields, &[]).unwrap();
        let len = (tcp::HEADER_LEN + payload_len) as u16;
        let pseudo = PseudoHeader { source, destination, protocol: Protocol::TCP, len };
        tcp.fill_checksum(pseudo.sum().combine(Sum::of(&payload)));
        let link = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        [&link[..], ipv4.as_bytes(), tcp.as_bytes(), &payload].concat()
    }

    /// Copies a frame whose first part has `head_len` bytes, and checks that it is whole.
    #[track_caller]
    fn check(frame: &[u8], head_len: usize, expected: ChecksumStatus) {
        let mut room = vec![0; frame.len()];
        let (head, rest) = frame.split_at(head_len);
        assert_eq!(copy_verified(&mut room, head, rest), expected);
        assert_eq!(room, frame);
    }

    #[test]
    fn intact_segment_of_any_length_is_good_in_one_part_and_in_two() {
        let headers_len = OUTER_LEN + tcp::HEADER_LEN;
        for len in (139..200).chain([1459, 1460]) {
            let frame = frame(len);
            check(&frame, frame.len(), ChecksumStatus::Good);
            check(&frame, headers_len, ChecksumStatus::Good);
        }
    }

    #[test]
    fn nothing_is_said_of_a_segment_with_any_byte_damaged() {
        let good = frame(600);
        for at in (OUTER_LEN - 8..good.len()).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            check(&bad, bad.len(), ChecksumStatus::Unknown);
            check(&bad, OUTER_LEN + tcp::HEADER_LEN, ChecksumStatus::Unknown);
        }
    }

    #[test]
    fn nothing_is_said_of_frames_that_are_not_as_usual() {
        let good = frame(600);
        let changed = |at: usize, byte: u8| {
            let mut frame = good.clone();
            frame[at] = byte;
            frame
        };
        let padded = [&good[..], &[0; 6]].concat();
        let tagged = [&good[..12], &[0x81, 0, 0, 5], &good[12..]].concat();
        let (first_fragment, last_fragment) = (changed(20, 0x20), changed(21, 1));
        let (with_options, udp) = (changed(14, 0x46), changed(23, Protocol::UDP.0));
        for frame in [padded, tagged, first_fragment, last_fragment, with_options, udp, vec![0; 200]] {
            check(&frame, frame.len(), ChecksumStatus::Unknown);
            check(&frame, OUTER_LEN + tcp::HEADER_LEN, ChecksumStatus::Unknown);
        }
        check(&good[..20], 20, ChecksumStatus::Unknown);
    }
}
