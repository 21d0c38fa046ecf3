//! The fields of the CQE about a received frame's headers and checksums; mlx5.md 2.9, bytes 20, 28
//! and 29.

use crate::hca::steering::parse::{be16, tcp_header_len};
use crate::hca::steering::{Headers, L3, L4};

/// Byte 28: the frame is one; the IP header is right (IPv6 has nothing to be wrong); the checksum
/// of TCP or UDP is.
const L2_OK: u8 = 1 << 0;
const L3_OK: u8 = 1 << 1;
const L4_OK: u8 = 1 << 2;

/// Byte 29.
const HAS_OPTIONS: u8 = 1 << 1;
const IS_FRAGMENT: u8 = 1 << 7;
/// Byte 29, bit 0: the C-VLAN tag is in the CQE, and no longer in the frame.
pub(super) const VLAN_STRIPPED: u8 = 1 << 0;

const TCP_FLAG_ACK: u8 = 0x10;
const TCP_FLAGS_FIN_SYN_RST: u8 = 0x07;

/// The findings that do not depend on the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Byte 28.
    pub(super) verdicts: u8,
    /// Byte 29.
    pub(super) types: u8,
    /// Bytes 20 and 21: the sum over the bytes after L2 without padding, not complemented.
    pub(super) checksum: u16,
}

impl Verdict {
    #[inline]
    pub(super) fn of(headers: &Headers, frame: &[u8]) -> Self {
        let header = sum(&frame[headers.l3_offset..headers.l4_offset]);
        let payload = sum(&frame[headers.l4_offset..headers.l3_end]);
        let mut verdicts = L2_OK;
        let is_whole = is_whole(headers, frame);
        // The sum is over the header alone, which ends where the payload begins.
        if is_whole && (headers.l3 == L3::V6 || fold(header) == 0xffff) {
            verdicts |= L3_OK;
        }
        if is_whole && l4_is_ok(headers, frame, payload) {
            verdicts |= L4_OK;
        }
        Self { verdicts, types: types(headers, frame), checksum: fold(header + payload) }
    }
}

fn types(headers: &Headers, frame: &[u8]) -> u8 {
    let l3 = match headers.l3 {
        L3::None => 0,
        L3::V6 => 1,
        L3::V4 => 2,
    };
    let l4 = match headers.l4 {
        L4::None => 0,
        L4::Udp => 2,
        L4::Tcp => tcp_type(&frame[headers.l4_offset..headers.l3_end]),
    };
    let options = if headers.has_options { HAS_OPTIONS } else { 0 };
    let fragment = if headers.is_fragment { IS_FRAGMENT } else { 0 };
    l4 << 4 | l3 << 2 | options | fragment
}

/// 3 for an acknowledgment without data, 4 for one with data, 1 for other segments.
fn tcp_type(tcp: &[u8]) -> u8 {
    let has_data = tcp.len() > tcp_header_len(tcp);
    match (tcp[13] & TCP_FLAG_ACK != 0, tcp[13] & TCP_FLAGS_FIN_SYN_RST != 0, has_data) {
        (true, false, false) => 3,
        (true, false, true) => 4,
        _ => 1,
    }
}

/// Whether there is an IP packet, and all of it is in the frame.
fn is_whole(headers: &Headers, frame: &[u8]) -> bool {
    let named_end = |field: usize, base: usize| base + usize::from(be16(frame, headers.l3_offset + field));
    match headers.l3 {
        L3::None => false,
        L3::V4 => named_end(2, headers.l3_offset) == headers.l3_end,
        L3::V6 => named_end(4, headers.l3_offset + 40) == headers.l3_end,
    }
}

fn l4_is_ok(headers: &Headers, frame: &[u8], payload: u64) -> bool {
    let l4 = &frame[headers.l4_offset..headers.l3_end];
    match headers.l4 {
        L4::None => false,
        L4::Tcp => fold(payload + pseudo_header(headers, frame)) == 0xffff,
        // RFC 768: none was computed. RFC 8200 8.1: IPv6 does not allow that.
        L4::Udp if be16(l4, 6) == 0 => headers.l3 == L3::V4,
        L4::Udp => usize::from(be16(l4, 4)) == l4.len() && fold(payload + pseudo_header(headers, frame)) == 0xffff,
    }
}

/// Addresses, length and protocol; RFC 9293 3.1, RFC 8200 8.1.
fn pseudo_header(headers: &Headers, frame: &[u8]) -> u64 {
    let addresses = match headers.l3 {
        L3::V6 => 8..40,
        L3::V4 | L3::None => 12..20,
    };
    let len = headers.l3_end - headers.l4_offset;
    sum(&frame[headers.l3_offset..][addresses]) + len as u64 + u64::from(headers.protocol)
}

/// The sum of the big-endian 16-bit words, not folded; RFC 1071. An odd byte at the end counts as
/// the upper half of one.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    let mut total = 0_u64;
    for chunk in &mut chunks {
        let [a, b, c, d, e, f, g, h] = *chunk else { continue };
        // Two halves of 32 bits: 2^32 of them fit before the sum could run over. Words of 32 bits
        // sum to the same once folded.
        total += u64::from(u32::from_be_bytes([a, b, c, d])) + u64::from(u32::from_be_bytes([e, f, g, h]));
    }
    for pair in chunks.remainder().chunks(2) {
        total += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
    }
    total
}

/// Folded to 16 bits with the carries added back.
#[inline]
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
