//! The kinds of headers of a received frame, and their positions. The parser checks only the fields
//! that it needs to go on. Damaged headers end the parse, and the headers found until then remain
//! valid. Checksums are the next file's ([`verdict`](crate::hca::receive::verdict)).

/// The headers found. Offsets are from the start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::hca) struct Headers {
    /// The tag, where the first EtherType is that of a C-VLAN.
    pub(in crate::hca) vlan: Option<u16>,
    /// The EtherType behind all tags.
    pub(in crate::hca) ether_type: u16,
    /// Where L2 ends.
    pub(in crate::hca) l3_offset: usize,
    pub(in crate::hca) l3: L3,
    /// The IPv4 header has options, or the IPv6 header extensions.
    pub(in crate::hca) has_options: bool,
    /// The packet is a fragment: ports and checksum are not parsed, even in the first fragment.
    pub(in crate::hca) is_fragment: bool,
    /// The protocol after IP; 0 where there is no IP.
    pub(in crate::hca) protocol: u8,
    /// Where IP's payload begins, and where it ends: a short frame is padded behind it.
    pub(in crate::hca) l4_offset: usize,
    pub(in crate::hca) l3_end: usize,
    pub(in crate::hca) l4: L4,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::hca) enum L3 {
    #[default]
    None,
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::hca) enum L4 {
    #[default]
    None,
    Tcp,
    Udp,
}

/// A frame shorter than its L2 header is none.
const ETHERNET_LEN: usize = 14;

const TAG_LEN: usize = 4;

/// Tags that are skipped: an S-VLAN and a C-VLAN.
const TAGS_MAX: usize = 2;

/// The most IPv6 extensions that are skipped; after more, the packet is opaque. Hardware has such a
/// bound too.
const EXTENSIONS_MAX: usize = 8;

const FRAGMENT: u8 = 44;
const TCP: u8 = 6;
const UDP: u8 = 17;

impl Headers {
    /// Walks the headers. `None` where there is not even an Ethernet header.
    #[inline]
    pub(in crate::hca) fn parse(frame: &[u8]) -> Option<Self> {
        if frame.len() < ETHERNET_LEN {
            return None;
        }
        let mut headers = Self { l3_offset: ETHERNET_LEN, l3_end: frame.len(), ..Self::default() };
        headers.ether_type = be16(frame, 12);
        for tag in 0..TAGS_MAX {
            let is_tag = matches!(headers.ether_type, 0x8100 | 0x88a8);
            if !is_tag || frame.len() < headers.l3_offset + TAG_LEN {
                break;
            }
            if tag == 0 && headers.ether_type == 0x8100 {
                headers.vlan = Some(be16(frame, headers.l3_offset));
            }
            headers.ether_type = be16(frame, headers.l3_offset + 2);
            headers.l3_offset += TAG_LEN;
        }
        headers.l4_offset = headers.l3_offset;
        match headers.ether_type {
            0x0800 => headers.parse_ipv4(frame),
            0x86dd => headers.parse_ipv6(frame),
            _ => {}
        }
        Some(headers)
    }

    fn parse_ipv4(&mut self, frame: &[u8]) {
        let ip = &frame[self.l3_offset..];
        if ip.len() < 20 || ip[0] >> 4 != 4 {
            return;
        }
        let header_len = usize::from(ip[0] & 0x0f) * 4;
        if header_len < 20 || header_len > ip.len() {
            return;
        }
        self.l3 = L3::V4;
        self.has_options = header_len > 20;
        self.protocol = ip[9];
        self.l4_offset = self.l3_offset + header_len;
        // An offset, or more to come.
        self.is_fragment = be16(ip, 6) & 0x3fff != 0;
        if self.end_at(self.l3_offset + usize::from(be16(ip, 2))) {
            self.parse_l4(frame);
        }
    }

    fn parse_ipv6(&mut self, frame: &[u8]) {
        let ip = &frame[self.l3_offset..];
        if ip.len() < 40 || ip[0] >> 4 != 6 {
            return;
        }
        self.l3 = L3::V6;
        self.protocol = ip[6];
        self.l4_offset = self.l3_offset + 40;
        if !self.end_at(self.l4_offset + usize::from(be16(ip, 4))) {
            return;
        }
        for _ in 0..EXTENSIONS_MAX {
            let len = match (self.protocol, frame.get(self.l4_offset..self.l3_end)) {
                (0 | 43 | 60, Some(&[_, len, ..])) => usize::from(len) * 8 + 8,
                (FRAGMENT, Some(_)) => 8,
                _ => break,
            };
            self.has_options = true;
            if self.l4_offset + len > self.l3_end {
                return;
            }
            self.is_fragment |= self.protocol == FRAGMENT;
            self.protocol = frame[self.l4_offset];
            self.l4_offset += len;
        }
        self.parse_l4(frame);
    }

    /// Takes the end that the IP header states, or the end of the frame where that is first:
    /// steering and hashing use the ports, not the length. `false` where the header itself extends
    /// beyond it.
    fn end_at(&mut self, end: usize) -> bool {
        if end < self.l4_offset {
            return false;
        }
        self.l3_end = end.min(self.l3_end);
        true
    }

    fn parse_l4(&mut self, frame: &[u8]) {
        let Some(l4) = frame.get(self.l4_offset..self.l3_end) else { return };
        if self.is_fragment {
            return;
        }
        self.l4 = match self.protocol {
            UDP if l4.len() >= 8 => L4::Udp,
            TCP if l4.len() >= 20 && (20..=l4.len()).contains(&tcp_header_len(l4)) => L4::Tcp,
            _ => L4::None,
        };
    }

    /// Source and destination port, as in the frame.
    #[inline]
    pub(in crate::hca) fn ports(&self, frame: &[u8]) -> Option<[u8; 4]> {
        match self.l4 {
            L4::None => None,
            L4::Tcp | L4::Udp => frame.get(self.l4_offset..)?.first_chunk().copied(),
        }
    }
}

/// Bytes of a TCP header that is there.
pub(in crate::hca) fn tcp_header_len(tcp: &[u8]) -> usize {
    usize::from(tcp[12] >> 4) * 4
}

/// The big-endian number at `at`, which is inside.
#[inline]
pub(in crate::hca) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
