//! Frames as the network and the checkers see them: untagged Ethernet, IPv4, TCP, by offsets and
//! with separate code for checksums, so that it does not share the errors of the code under test.

use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::mem::ChecksumStatus;

/// Bytes of the Ethernet header.
pub const LINK_LEN: usize = 14;

/// TCP's flags.
pub mod flag {
    /// No more data.
    pub const FIN: u8 = 1;
    /// Synchronize.
    pub const SYN: u8 = 2;
    /// Reset.
    pub const RST: u8 = 4;
    /// Push.
    pub const PSH: u8 = 8;
    /// The acknowledgment counts.
    pub const ACK: u8 = 16;
}

/// A TCP segment in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    /// The sender.
    pub source: SocketAddrV4,
    /// The receiver.
    pub destination: SocketAddrV4,
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK.
    pub ack: u32,
    /// Control bits.
    pub flags: u8,
    /// SEG.WND as in the segment.
    pub wnd: u16,
    /// Options.
    pub options: &'a [u8],
    /// Data.
    pub payload: &'a [u8],
    /// Both checksums are right.
    pub is_intact: bool,
    /// Bytes of the IPv4 packet.
    pub packet_len: usize,
}

impl Tcp<'_> {
    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The length in sequence numbers: SEG.LEN.
    pub fn seq_len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN))
    }

    /// The bytes of the option `kind`, without kind and length.
    pub fn option(&self, kind: u8) -> Option<&[u8]> {
        let mut rest = self.options;
        loop {
            match *rest {
                [] | [0, ..] => return None,
                [1, ..] => rest = &rest[1..],
                [found, len, ..] if len >= 2 && usize::from(len) <= rest.len() => {
                    if found == kind {
                        return Some(&rest[2..len.into()]);
                    }
                    rest = &rest[len.into()..];
                }
                _ => return None,
            }
        }
    }

    /// The blocks of a SACK option.
    pub fn sacks(&self) -> Vec<(u32, u32)> {
        let blocks = self.option(5).unwrap_or_default().chunks_exact(8);
        blocks.map(|block| (be32(block, 0), be32(block, 4))).collect()
    }
}

/// The IPv4 packet of a frame, where it is one.
pub fn ipv4(frame: &[u8]) -> Option<&[u8]> {
    let packet = frame.get(LINK_LEN..)?;
    let is_ipv4 = frame[12..14] == [8, 0] && packet.len() >= 20 && packet[0] >> 4 == 4;
    let total_len = if is_ipv4 { be16(packet, 2).into() } else { 0 };
    (is_ipv4 && total_len >= 20).then(|| packet.get(..total_len))?
}

/// The segment in a frame.
pub fn tcp(frame: &[u8]) -> Option<Tcp<'_>> {
    let packet = ipv4(frame)?;
    let header_len = usize::from(packet[0] & 15) * 4;
    let segment = packet.get(header_len..)?;
    if packet[9] != 6 || segment.len() < 20 {
        return None;
    }
    let data = usize::from(segment[12] >> 4) * 4;
    let end = |at: usize, port: usize| SocketAddrV4::new(address(packet, at), be16(segment, port));
    let is_intact = sum(0, &packet[..header_len]) == 0xffff && sum(pseudo(packet, segment.len()), segment) == 0xffff;
    Some(Tcp {
        source: end(12, 0),
        destination: end(16, 2),
        seq: be32(segment, 4),
        ack: be32(segment, 8),
        flags: segment[13],
        wnd: be16(segment, 14),
        options: segment.get(20..data)?,
        payload: segment.get(data..)?,
        is_intact,
        packet_len: packet.len(),
    })
}

/// The verdict of a NIC that verifies checksums.
pub fn verdict(frame: &[u8]) -> ChecksumStatus {
    match tcp(frame) {
        None => ChecksumStatus::Unknown,
        Some(segment) if segment.is_intact => ChecksumStatus::Good,
        Some(_) => ChecksumStatus::Bad,
    }
}

/// Merges as a NIC does: appends the payload of the next frame if its headers are equal and its
/// bytes follow, and returns their number. The TCP checksum remains that of the first frame; the
/// NIC reports it as correct.
pub fn merge(frame: &mut Vec<u8>, next: &[u8]) -> Option<usize> {
    let (first, second) = (tcp(frame)?, tcp(next)?);
    let header = |segment: &Tcp<'_>| (segment.source, segment.destination, segment.ack, segment.wnd);
    let follows = header(&first) == header(&second)
        && first.options == second.options
        && frame[LINK_LEN + 1] == next[LINK_LEN + 1]
        && first.flags == flag::ACK
        && second.flags & !flag::PSH == flag::ACK
        && second.seq == first.seq.wrapping_add(first.payload.len() as u32)
        && !first.payload.is_empty()
        && !second.payload.is_empty()
        && second.is_intact;
    if !follows {
        return None;
    }
    let (packet_len, flags) = (first.packet_len, second.flags);
    let (header_len, whole_len) = (usize::from(frame[LINK_LEN] & 15) * 4, packet_len + second.payload.len());
    frame.truncate(LINK_LEN + packet_len);
    frame.extend_from_slice(second.payload);
    let packet = &mut frame[LINK_LEN..];
    packet[header_len + 13] = flags;
    packet[2..4].copy_from_slice(&(whole_len as u16).to_be_bytes());
    packet[10..12].fill(0);
    let sum = !sum(0, &packet[..header_len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(second.payload.len())
}

/// Cuts the payload of a frame into segments and fills in their checksums, as a NIC does.
pub fn cut(frame: &[u8], l2_len: usize, l3_len: usize, segment_len: usize) -> Vec<Vec<u8>> {
    let tcp_len = usize::from(frame[l2_len + l3_len + 12] >> 4) * 4;
    let (headers, payload) = frame.split_at(l2_len + l3_len + tcp_len);
    let pieces: Vec<&[u8]> = if payload.is_empty() { vec![payload] } else { payload.chunks(segment_len).collect() };
    let (mut frames, mut offset) = (Vec::new(), 0);
    for (idx, piece) in pieces.iter().enumerate() {
        let mut frame = [headers, piece].concat();
        let (_, packet) = frame.split_at_mut(l2_len);
        let packet_len = packet.len() as u16;
        packet[2..4].copy_from_slice(&packet_len.to_be_bytes());
        let segment = &mut packet[l3_len..];
        let seq = be32(segment, 4).wrapping_add(offset);
        segment[4..8].copy_from_slice(&seq.to_be_bytes());
        if idx + 1 < pieces.len() {
            segment[13] &= !(flag::FIN | flag::PSH);
        }
        if idx > 0 {
            // RFC 3168 6.1.2: only the first segment has CWR.
            segment[13] &= 0x7f;
        }
        fill_checksums(&mut frame[l2_len..]);
        offset += piece.len() as u32;
        frames.push(frame);
    }
    frames
}

/// Fills in both checksums of a packet with a segment.
pub fn fill_checksums(packet: &mut [u8]) {
    let header_len = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let header = !sum(0, &packet[..header_len]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    let at = header_len + 16;
    packet[at..at + 2].fill(0);
    let start = pseudo(packet, packet.len() - header_len);
    let checksum = !sum(start, &packet[header_len..]);
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Marks a frame whose transport supports ECN as Congestion Experienced (RFC 3168 5).
pub fn mark_congestion(frame: &mut [u8]) {
    let Some(packet) = ipv4(frame) else { return };
    let header_len = usize::from(packet[0] & 15) * 4;
    if packet[1] & 3 == 0 {
        return;
    }
    let header = &mut frame[LINK_LEN..LINK_LEN + header_len];
    header[1] |= 3;
    header[10..12].fill(0);
    let checksum = !sum(0, header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The report of a router at `router` about a frame that is longer than the `mtu` of the next link
/// (RFC 1191 4), as a frame back to its sender.
pub fn too_big(frame: &[u8], router: Ipv4Addr, mtu: u16) -> Option<Vec<u8>> {
    let packet = ipv4(frame)?;
    let header_len = usize::from(packet[0] & 15) * 4;
    let quoted = &packet[..packet.len().min(header_len + 8)];
    let mut answer = [&frame[6..12], &frame[..6], &[8, 0]].concat();
    let total_len = (28 + quoted.len()) as u16;
    let mut header = vec![0x45, 0xc0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0];
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header.extend(router.octets());
    header.extend(&packet[12..16]);
    let checksum = !sum(0, &header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(quoted);
    let checksum = !sum(0, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    answer.extend(header);
    answer.extend(message);
    Some(answer)
}

/// A frame as one line of a trace.
pub fn describe(frame: &[u8]) -> String {
    let Some(segment) = tcp(frame) else {
        let kind = match frame.get(12..14) {
            Some([8, 6]) => "ARP",
            Some([8, 0]) if frame.get(23) == Some(&1) => "ICMP",
            _ => "frame",
        };
        return format!("{kind} of {} bytes", frame.len());
    };
    let names = [(flag::SYN, 'S'), (flag::FIN, 'F'), (flag::RST, 'R'), (flag::PSH, 'P'), (64, 'E'), (128, 'C')];
    let flags: String = names.iter().filter(|(bit, _)| segment.has(*bit)).map(|(_, name)| *name).collect();
    let end = segment.seq.wrapping_add(segment.seq_len());
    let ack = if segment.has(flag::ACK) { format!(" ack {}", segment.ack) } else { String::new() };
    let sacks: String = segment.sacks().iter().map(|(left, right)| format!(" {left}-{right}")).collect();
    let sacks = if sacks.is_empty() { sacks } else { format!(" sack{sacks}") };
    let damage = if segment.is_intact { "" } else { " DAMAGED" };
    let (from, to) = (segment.source, segment.destination);
    format!(
        "{from} > {to} [{flags}] {}..{end} ({}){ack} wnd {}{sacks}{damage}",
        segment.seq,
        segment.payload.len(),
        segment.wnd
    )
}

fn pseudo(packet: &[u8], len: usize) -> u32 {
    let words = packet[12..20].chunks_exact(2).map(|word| u32::from(be16(word, 0)));
    words.sum::<u32>() + 6 + len as u32
}

/// The folded sum of 16-bit words, not complemented.
fn sum(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    let mut sum = u64::from(start) + words.sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn address(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(be32(bytes, at))
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
