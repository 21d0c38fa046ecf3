//! The invariant CRC (InfiniBand 7.8.1, Annexes A16 and A17): CRC-32 of Ethernet over all that no
//! router changes, from the network header to the end of the pad.
//!
//! It begins with eight bytes of ones for the local route header that Ethernet does not have. What
//! may change on the way counts as ones: TOS, TTL and checksums, of IPv6 and of a GRH the class,
//! the flow label and the hop limit, and the byte of the BTH with FECN and BECN.

use super::crc32::{Head, crc32};

/// Bytes of the ICRC, at the end of each packet, in little-endian order.
pub const ICRC_LEN: usize = 4;

/// Bytes of a BTH.
const BTH_LEN: usize = 12;

/// The header in front of the BTH, as it is sent.
#[derive(Clone, Copy, Debug)]
pub enum Network<'a> {
    /// RoCEv2 over IPv4 without options, and UDP.
    Ipv4(&'a [u8; 20], &'a [u8; 8]),
    /// RoCEv2 over IPv6 without extensions, and UDP.
    Ipv6(&'a [u8; 40], &'a [u8; 8]),
    /// RoCEv1: a global route header.
    Grh(&'a [u8; 40]),
}

impl Network<'_> {
    /// A switch on the way was congested, and marked the packet (CE, RFC 3168).
    #[inline]
    pub const fn is_marked(&self) -> bool {
        let ecn = match self {
            Self::Ipv4(ip, _) => ip[1],
            Self::Ipv6(ip, _) | Self::Grh(ip) => ip[1] >> 4,
        };
        ecn & 0b11 == 0b11
    }
}

/// The ICRC of a packet; `transport` is all from the BTH to the end of the pad. Some 15 ns for 64
/// bytes, and 10 to 25 bytes a ns beyond, where the CPU multiplies without carry. Of less than a
/// BTH it is the sum of zeros in its place.
#[inline]
pub fn icrc(network: Network<'_>, transport: &[u8]) -> u32 {
    const NO_BTH: [u8; BTH_LEN] = [0; BTH_LEN];
    let (bth, rest) = transport.split_first_chunk().unwrap_or((&NO_BTH, transport));
    match network {
        Network::Ipv4(ip, udp) => crc32(|| ipv4(ip, udp, bth), rest),
        Network::Ipv6(ip, udp) => crc32(|| ipv6(ip, udp, bth), rest),
        Network::Grh(grh) => crc32(|| route(grh, bth), rest),
    }
}

/// Of the eight ones of the local route header the first four begin the sum, as all CRCs of
/// Ethernet begin; so it begins with zero, and zeros in front are as good as none. What remains are
/// four ones, and with the headers behind them whole blocks, or nearly.
const ONES: u64 = 0xffff_ffff;

/// Each half's lowest byte is its first: TOS 1, TTL 8 and checksum 10 of the IP header, checksum 6
/// of UDP and congestion 4 of the BTH count as ones.
#[inline]
fn ipv4(ip: &[u8; 20], udp: &[u8; 8], bth: &[u8; BTH_LEN]) -> [Head; 3] {
    [
        [ONES << 32, long(ip, 0) | 0xff00],
        [long(ip, 8) | 0xffff_00ff, word(ip, 16) | word(udp, 0) << 32],
        [word(udp, 4) | 0xffff_0000 | word(bth, 0) << 32, long(bth, 4) | 0xff],
    ]
}

/// Class and flow label, and the hop limit 7 of the IP header count as ones.
#[inline]
fn ipv6(ip: &[u8; 40], udp: &[u8; 8], bth: &[u8; BTH_LEN]) -> [Head; 4] {
    [
        [ONES | (word(ip, 0) | 0xffff_ff0f) << 32, long(ip, 4) | 0xff00_0000],
        [long(ip, 12), long(ip, 20)],
        [long(ip, 28), word(ip, 36) | word(udp, 0) << 32],
        [word(udp, 4) | 0xffff_0000 | word(bth, 0) << 32, long(bth, 4) | 0xff],
    ]
}

/// As of IPv6.
#[inline]
fn route(grh: &[u8; 40], bth: &[u8; BTH_LEN]) -> [Head; 4] {
    [
        [0, ONES | (word(grh, 0) | 0xffff_ff0f) << 32],
        [long(grh, 4) | 0xff00_0000, long(grh, 12)],
        [long(grh, 20), long(grh, 28)],
        [word(grh, 36) | word(bth, 0) << 32, long(bth, 4) | 0xff],
    ]
}

/// Four bytes of a header, the first the lowest.
#[inline]
fn word<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    u64::from(u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
}

/// Eight bytes of a header, the first the lowest.
#[inline]
fn long<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    word(header, at) | word(header, at + 4) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made once with Scapy: `IP(id=1144, flags='DF', tos=1, src=dst='192.168.0.7')/UDP(49152)` and
    /// a UC SEND of one packet; the sum is of an independent program.
    const UC_SEND: [u8; 60] = [
        0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, 192, 168, 0, 7, 192, 168, 0, 7, //
        0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2, //
        0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, //
        b'F', b'0', 0x81, 0x8b, 0xe2, 0x89, b'5', 0xd9, 0x0e, 0x9a, 0x95, b'P', b'T', 0x01, 0xbe, 0x88, b'^', b'P', 0,
        0,
    ];

    fn of_ipv4(packet: &[u8]) -> [u8; 4] {
        let (ip, rest) = packet.split_first_chunk().unwrap();
        let (udp, transport) = rest.split_first_chunk().unwrap();
        icrc(Network::Ipv4(ip, udp), transport).to_le_bytes()
    }

    #[test]
    fn packet_of_a_connectx_has_the_icrc_that_was_captured() {
        // A CNP of a ConnectX-4 Lx.
        let captured: [u8; 60] = [
            0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 10, 0, 17, 1, 10, 0, 18, 1, //
            0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, //
            0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00, //
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
            0x82, 0xfd, 0x00, 0x2a,
        ];
        let (packet, icrc) = captured.split_last_chunk::<4>().unwrap();
        assert_eq!(of_ipv4(packet), *icrc);
    }

    #[test]
    fn icrc_is_that_of_an_independent_program() {
        assert_eq!(of_ipv4(&UC_SEND), 0x78f3_53f3_u32.to_be_bytes());
    }

    #[test]
    fn what_a_router_changes_does_not_count_and_all_else_does() {
        let sum = of_ipv4(&UC_SEND);
        for at in 0..UC_SEND.len() {
            let mut changed = UC_SEND;
            changed[at] ^= 0x81;
            let counts = ![1, 8, 10, 11, 26, 27, 32].contains(&at);
            assert_eq!(of_ipv4(&changed) != sum, counts, "byte {at}");
        }
    }

    #[test]
    fn class_flow_label_and_hop_limit_of_ipv6_do_not_count() {
        let (ip, udp) = ([0x60; 40], [7; 8]);
        let sum = icrc(Network::Ipv6(&ip, &udp), &[5; 20]);
        for (at, bits) in [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)] {
            let mut changed = ip;
            changed[at] ^= bits;
            assert_eq!(icrc(Network::Ipv6(&changed, &udp), &[5; 20]), sum, "byte {at}");
            assert_eq!(icrc(Network::Grh(&changed), &[5; 20]), icrc(Network::Grh(&ip), &[5; 20]), "byte {at}");
        }
        for at in [0, 4, 6, 8, 39] {
            let mut changed = ip;
            changed[at] ^= 0x10;
            assert_ne!(icrc(Network::Ipv6(&changed, &udp), &[5; 20]), sum, "byte {at}");
        }
    }
}
