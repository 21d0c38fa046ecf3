//! The transmit offloads of a NIC, in software: segmentation of a TCP packet that is longer than a
//! frame, and insertion of checksums.
//!
//! ```text
//!  [ headers │ payload ······················ ]           as it is posted
//!  [ headers │ payload ] [ headers │ payload ] [ … ]      as it leaves
//!    seq, IPv4 length, identification and both checksums anew; PSH and FIN with the last, CWR with the first
//! ```
//!
//! The constant part of the headers is summed once per posted packet, so each segment costs a copy
//! of the headers, and the sum of its payload if the wire has checksums.

use core::num::NonZeroU16;

use super::ring::{Cut, HEAD_LEN_MAX};
use crate::device::Offload;
use crate::mem::{Mbuf, copy_frame};
use crate::wire::checksum::{Sum, checksum};
use crate::wire::tcp::TcpFlags;
use crate::wire::vlan::TAG_LEN;
use crate::wire::{Protocol, ipv4, tcp};

/// Offset of an 802.1Q tag: behind the two addresses.
pub(super) const TAG_OFFSET: usize = 12;

/// Offsets of fields in an IPv4 header.
const TOTAL_LEN: usize = 2;
const IDENTIFICATION: usize = 4;
const PROTOCOL: usize = 9;
const IPV4_CHECKSUM: usize = 10;
const ADDRESSES: usize = 12;
/// Offsets in a TCP header.
const SEQ: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
/// Offset in a UDP header.
const UDP_CHECKSUM: usize = 6;

/// The headers of a segmented packet; the sums leave out the fields that differ between segments.
pub(super) struct Headers {
    bytes: [u8; HEAD_LEN_MAX],
    len: usize,
    l3: usize,
    l4: usize,
    seq: u32,
    flags: u8,
    identification: u16,
    /// Sum of the IPv4 header without length and identification.
    ipv4_sum: Sum,
    /// Sum of pseudo-header and TCP header without length, sequence number and flags; `None` if
    /// checksums are skipped.
    tcp_sum: Option<Sum>,
}

impl Headers {
    /// Parses a packet's headers, adds the requested tag, and returns its segmentation. `None` if
    /// it is not TCP over IPv4 with its headers in the first buffer, at the offsets of its lengths.
    pub(super) fn of(mbuf: &Mbuf, offload: Offload, segment_len: NonZeroU16, sums: bool) -> Option<(Self, Cut)> {
        let frame = mbuf.bytes();
        let (l3, l4) = (mbuf.l2_len(), mbuf.l2_len() + mbuf.l3_len());
        let is_ipv4 = mbuf.l3_len() >= ipv4::HEADER_LEN && l3 >= TAG_OFFSET + 2;
        let len = l4 + usize::from(frame.get(l4 + DATA_OFFSET)? >> 4) * 4;
        let is_tcp = is_ipv4 && len >= l4 + tcp::HEADER_LEN && frame[l3 + PROTOCOL] == Protocol::TCP.0;
        let tag_len = if offload.vlan().is_some() { TAG_LEN } else { 0 };
        if !is_tcp || len > frame.len() || len + tag_len > HEAD_LEN_MAX {
            return None;
        }
        let mut bytes = [0; HEAD_LEN_MAX];
        tag(&frame[..len], offload.vlan(), &mut bytes);
        let mut headers = Self {
            bytes,
            len: len + tag_len,
            l3: l3 + tag_len,
            l4: l4 + tag_len,
            seq: u32::from_be_bytes(array(&frame[l4 + SEQ..])),
            flags: frame[l4 + FLAGS],
            identification: u16::from_be_bytes(array(&frame[l3 + IDENTIFICATION..])),
            ipv4_sum: Sum::EMPTY,
            tcp_sum: None,
        };
        headers.take_sums(sums);
        let segment_len = usize::from(segment_len.get());
        let count = (mbuf.len() - len).div_ceil(segment_len).max(1);
        Some((headers, Cut { headers_len: len, head_len: len + tag_len, segment_len, count: count as u32 }))
    }

    /// Clears the fields that differ between segments, and sums the rest.
    fn take_sums(&mut self, sums: bool) {
        let (ipv4, tcp) = self.bytes[self.l3..self.len].split_at_mut(self.l4 - self.l3);
        for field in [TOTAL_LEN, IDENTIFICATION, IPV4_CHECKSUM] {
            ipv4[field..field + 2].fill(0);
        }
        self.ipv4_sum = Sum::of(ipv4);
        if sums {
            tcp[SEQ..SEQ + 4].fill(0);
            tcp[TCP_CHECKSUM..TCP_CHECKSUM + 2].fill(0);
            tcp[FLAGS] = 0;
            let pseudo = Sum::of(&ipv4[ADDRESSES..ADDRESSES + 8]).add_u16(Protocol::TCP.0.into());
            self.tcp_sum = Some(pseudo.combine(Sum::of(tcp)));
        }
    }

    /// Writes the headers of the next segment, which carries `payload`.
    #[inline(always)]
    pub(super) fn write_next(&mut self, place: &mut [u8], payload: &[u8], is_last: bool) {
        copy_frame(place, &self.bytes[..self.len]);
        let total_len = (self.len - self.l3 + payload.len()) as u16;
        let ipv4_sum = self.ipv4_sum.add_words([total_len.into(), self.identification.into()]);
        let ipv4: &mut [u8; ipv4::HEADER_LEN] = array_mut(&mut place[self.l3..]);
        put(ipv4, TOTAL_LEN, total_len.to_be_bytes());
        put(ipv4, IDENTIFICATION, self.identification.to_be_bytes());
        put(ipv4, IPV4_CHECKSUM, ipv4_sum.finish().to_be_bytes());
        let last = TcpFlags::PSH | TcpFlags::FIN;
        let flags = if is_last { self.flags } else { self.flags & !last.0 };
        let tcp: &mut [u8; tcp::HEADER_LEN] = array_mut(&mut place[self.l4..]);
        put(tcp, SEQ, self.seq.to_be_bytes());
        put(tcp, FLAGS, [flags]);
        if let Some(sum) = self.tcp_sum {
            let tcp_len = (self.len - self.l4 + payload.len()) as u32;
            let sum = sum.add_words([tcp_len, self.seq, flags.into()]).combine(Sum::of(payload));
            put(tcp, TCP_CHECKSUM, sum.finish().to_be_bytes());
        }
        self.seq = self.seq.wrapping_add(payload.len() as u32);
        self.identification = self.identification.wrapping_add(1);
        self.flags &= !TcpFlags::CWR.0;
    }
}

/// Fills in the requested checksums of a whole frame. False if it is not UDP or TCP over IPv4 at
/// the offsets of its lengths.
pub(super) fn finish(frame: &mut [u8], mbuf: &Mbuf, offload: Offload) -> bool {
    let tag_len = if offload.vlan().is_some() { TAG_LEN } else { 0 };
    let Some(packet) = frame.get_mut(mbuf.l2_len() + tag_len..) else { return false };
    let Some((ipv4, l4)) = packet.split_at_mut_checked(mbuf.l3_len()) else { return false };
    if ipv4.len() < ipv4::HEADER_LEN {
        return false;
    }
    if offload.has(Offload::IP_CHECKSUM) {
        put(ipv4, IPV4_CHECKSUM, [0; 2]);
        let sum = checksum(ipv4);
        put(ipv4, IPV4_CHECKSUM, sum.to_be_bytes());
    }
    !offload.has(Offload::L4_CHECKSUM) || finish_l4(ipv4, l4)
}

/// The field holds the sum of the pseudo-header.
fn finish_l4(ipv4: &[u8], l4: &mut [u8]) -> bool {
    let protocol = Protocol(ipv4[PROTOCOL]);
    let field = match protocol {
        Protocol::TCP => TCP_CHECKSUM,
        Protocol::UDP => UDP_CHECKSUM,
        _ => return false,
    };
    // Padding behind the packet is not part of the segment.
    let total_len = usize::from(u16::from_be_bytes(array(&ipv4[TOTAL_LEN..])));
    let Some(segment) = total_len.checked_sub(ipv4.len()).and_then(|len| l4.get_mut(..len)) else { return false };
    if segment.len() < field + 2 {
        return false;
    }
    let mut sum = checksum(segment);
    if sum == 0 && protocol == Protocol::UDP {
        // RFC 768: zero means no checksum, so a sum of zero is sent as all ones.
        sum = 0xffff;
    }
    put(segment, field, sum.to_be_bytes());
    true
}

/// Copies the first bytes of a frame, with a tag if requested; returns their number. Panics if
/// there is no room for them, or if the frame is shorter than the addresses.
#[inline]
pub(super) fn tag(first: &[u8], vlan: Option<u16>, to: &mut [u8]) -> usize {
    let Some(tci) = vlan else {
        to[..first.len()].copy_from_slice(first);
        return first.len();
    };
    to[..TAG_OFFSET].copy_from_slice(&first[..TAG_OFFSET]);
    put(to, TAG_OFFSET, 0x8100u16.to_be_bytes());
    put(to, TAG_OFFSET + 2, tci.to_be_bytes());
    to[TAG_OFFSET + TAG_LEN..first.len() + TAG_LEN].copy_from_slice(&first[TAG_OFFSET..]);
    first.len() + TAG_LEN
}

/// The first `N` bytes. Panics if there are fewer.
#[inline(always)]
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let Some(array) = bytes.first_chunk() else { panic!("a header is as long as was checked") };
    *array
}

/// The first `N` bytes for writing. With a known length, fields are written without further bounds
/// checks.
#[inline(always)]
fn array_mut<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    let Some(array) = bytes.first_chunk_mut() else { panic!("a header is as long as was checked") };
    array
}

/// Writes a field. Panics if the header is shorter.
#[inline(always)]
fn put<const N: usize>(header: &mut [u8], at: usize, field: [u8; N]) {
    *array_mut(&mut header[at..]) = field;
}

#[cfg(test)]
mod tests;
