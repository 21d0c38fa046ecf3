//! Work that a driver may leave to the NIC when it sends: checksums, the VLAN tag, cutting a TCP
//! stream into frames.
//!
//! Checksums are computed in full: the field's content does not matter, and need not be the sum of
//! the pseudo header (mlx5.md 2.3). Inner headers of tunnels are not parsed, because no tunnel
//! offload is announced.

/// `cs_flags`: the IPv4 header's checksum.
pub(in crate::hca) const L3: u8 = 0x40;
/// `cs_flags`: TCP's or UDP's checksum.
pub(in crate::hca) const L4: u8 = 0x80;

const ETHER_TYPE: usize = 12;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// TCP flags that only the first (CWR) or the last (FIN, PSH) frame of a TSO burst keeps.
const FIN_AND_PSH: u8 = 0x01 | 0x08;
const CWR: u8 = 0x80;

/// Where the headers of a frame lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layers {
    l3: usize,
    ip: Ip,
    /// The first byte behind the IP header and its extensions.
    l4: usize,
    /// Where the IP packet ends; frames may be padded behind it.
    end: usize,
    /// TCP, UDP or another protocol; `None` where the packet is a fragment, which does not contain
    /// the whole checksummed data.
    protocol: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ip {
    V4,
    V6,
}

/// Fills in the checksums that `flags` request. `false` where the frame lacks a requested header,
/// or the header is damaged.
pub(in crate::hca) fn fill_checksums(frame: &mut [u8], flags: u8) -> bool {
    let Some(layers) = Layers::parse(frame) else { return false };
    if flags & L3 != 0 && layers.ip == Ip::V4 {
        let header = &mut frame[layers.l3..layers.l4];
        put_be16(header, 10, 0);
        let checksum = !fold(sum(0, header));
        put_be16(header, 10, checksum);
    }
    flags & L4 == 0 || fill_l4(frame, &layers)
}

/// TCP's or UDP's checksum.
fn fill_l4(frame: &mut [u8], layers: &Layers) -> bool {
    let (field, header_len) = match layers.protocol {
        Some(TCP) => (16, 20),
        Some(UDP) => (6, 8),
        _ => return false,
    };
    if layers.end < layers.l4 + header_len {
        return false;
    }
    let pseudo = layers.pseudo_header(frame);
    let segment = &mut frame[layers.l4..layers.end];
    put_be16(segment, field, 0);
    let checksum = !fold(sum(pseudo, segment));
    // In UDP 0 says that there is none; RFC 768.
    let checksum = if checksum == 0 && layers.protocol == Some(UDP) { 0xffff } else { checksum };
    put_be16(segment, field, checksum);
    true
}

/// Inserts EtherType and TCI of a tag behind the addresses.
pub(in crate::hca) fn insert_tag(frame: &mut Vec<u8>, tag: [u8; 4]) {
    if frame.len() >= ETHER_TYPE {
        frame.splice(ETHER_TYPE..ETHER_TYPE, tag);
    }
}

/// The headers that each frame of a TSO burst begins with.
#[derive(Clone, Copy, Debug)]
pub(in crate::hca) struct TsoHeaders {
    layers: Layers,
    len: usize,
    sequence: u32,
    identification: u16,
    flags: u8,
}

impl TsoHeaders {
    /// Reads them; `None` where they are not Ethernet, IP and TCP from the first to the last byte.
    pub(in crate::hca) fn parse(headers: &[u8]) -> Option<Self> {
        let (l3, ip) = find_ip(headers)?;
        let (l4, protocol) = skip_ip(headers, l3, ip)?;
        let tcp = headers.get(l4..)?;
        let tcp_len = usize::from(tcp.get(12)? >> 4) * 4;
        if protocol != Some(TCP) || tcp_len < 20 || tcp.len() != tcp_len {
            return None;
        }
        Some(Self {
            layers: Layers { l3, ip, l4, end: headers.len(), protocol },
            len: headers.len(),
            sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
            identification: u16::from_be_bytes([headers[l3 + 4], headers[l3 + 5]]),
            flags: tcp[13],
        })
    }

    /// Makes a frame, which begins with a copy of the headers, the `nth` of its burst.
    pub(in crate::hca) fn fix(&self, frame: &mut [u8], nth: u32, last: bool, mss: u16) {
        let Layers { l3, ip, l4, .. } = self.layers;
        let ip_len = (frame.len() - l3) as u16;
        match ip {
            Ip::V4 => {
                put_be16(frame, l3 + 2, ip_len);
                put_be16(frame, l3 + 4, self.identification.wrapping_add(nth as u16));
            }
            Ip::V6 => put_be16(frame, l3 + 4, ip_len.wrapping_sub(40)),
        }
        let sequence = self.sequence.wrapping_add(nth.wrapping_mul(u32::from(mss)));
        frame[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        let mut flags = self.flags;
        if nth > 0 {
            flags &= !CWR;
        }
        if !last {
            flags &= !FIN_AND_PSH;
        }
        frame[l4 + 13] = flags;
        debug_assert!(self.len <= frame.len(), "a frame begins with all the headers");
    }
}

impl Layers {
    fn parse(frame: &[u8]) -> Option<Self> {
        let (l3, ip) = find_ip(frame)?;
        let (l4, protocol) = skip_ip(frame, l3, ip)?;
        let ip_len = match ip {
            Ip::V4 => usize::from(be16(frame, l3 + 2)?),
            Ip::V6 => 40 + usize::from(be16(frame, l3 + 4)?),
        };
        let end = l3 + ip_len;
        if end > frame.len() || end < l4 {
            return None;
        }
        Some(Self { l3, ip, l4, end, protocol })
    }

    /// The sum of addresses, length and protocol; RFC 9293 3.1, RFC 8200 8.1.
    fn pseudo_header(&self, frame: &[u8]) -> u32 {
        let addresses = match self.ip {
            Ip::V4 => self.l3 + 12..self.l3 + 20,
            Ip::V6 => self.l3 + 8..self.l3 + 40,
        };
        let len = (self.end - self.l4) as u32;
        let protocol = u32::from(self.protocol.unwrap_or(0));
        sum((len >> 16) + (len & 0xffff) + protocol, &frame[addresses])
    }
}

/// Where the IP header begins, behind at most two tags.
fn find_ip(frame: &[u8]) -> Option<(usize, Ip)> {
    let mut at = ETHER_TYPE;
    for _ in 0..3 {
        match be16(frame, at)? {
            0x8100 | 0x88a8 => at += 4,
            0x0800 => return Some((at + 2, Ip::V4)),
            0x86dd => return Some((at + 2, Ip::V6)),
            _ => return None,
        }
    }
    None
}

/// The end of the IP header and its extensions, and the next protocol: `None` inside for a
/// fragment.
fn skip_ip(frame: &[u8], l3: usize, ip: Ip) -> Option<(usize, Option<u8>)> {
    match ip {
        Ip::V4 => {
            let header = frame.get(l3..l3 + 20)?;
            let len = usize::from(header[0] & 0x0f) * 4;
            if header[0] >> 4 != 4 || len < 20 || frame.len() < l3 + len {
                return None;
            }
            // More fragments, or an offset.
            let is_fragment = be16(header, 6)? & 0x3fff != 0;
            Some((l3 + len, if is_fragment { None } else { Some(header[9]) }))
        }
        Ip::V6 => {
            let header = frame.get(l3..l3 + 40)?;
            if header[0] >> 4 != 6 { None } else { skip_extensions(frame, l3 + 40, header[6]) }
        }
    }
}

/// Hop-by-hop 0, routing 43, destination 60; after a fragment header 44 the parser stops.
fn skip_extensions(frame: &[u8], mut at: usize, mut next: u8) -> Option<(usize, Option<u8>)> {
    while matches!(next, 0 | 43 | 60) {
        let extension = frame.get(at..at + 2)?;
        next = extension[0];
        at += usize::from(extension[1]) * 8 + 8;
    }
    if at > frame.len() {
        return None;
    }
    Some((at, if next == 44 { None } else { Some(next) }))
}

/// Adds 16-bit words to a sum that [`fold`] makes a ones-complement one; RFC 1071. An odd last byte
/// counts as the high one.
pub(in crate::hca) fn sum(start: u32, bytes: &[u8]) -> u32 {
    // 64 KiB of 0xffff stay below 2^32 - 2^17, so the sum cannot overflow for anything that a frame
    // holds.
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |byte| u32::from(*byte) << 8);
    words.fold(start + odd, |sum, word| sum + u32::from(u16::from_be_bytes([word[0], word[1]])))
}

/// Carries added back in.
pub(in crate::hca) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn put_be16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
