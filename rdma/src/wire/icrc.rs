//! The invariant CRC (InfiniBand 7.8.1, Annexes A16 and A17): CRC-32 of Ethernet over all that no
//! router changes, from the network header to the end of the pad.
//!
//! It begins with eight bytes of ones for the local route header that Ethernet does not have. What
//! may change on the way counts as ones: TOS, TTL and checksums, of IPv6 and of a GRH the class,
//! the flow label and the hop limit, and the byte of the BTH with FECN and BECN.

use crc32fast::Hasher;

/// Bytes of the ICRC, at the end of each packet, in little-endian order.
pub const ICRC_LEN: usize = 4;

/// Bytes of a BTH, of which one counts as ones.
const BTH_LEN: usize = 12;
/// The byte of the BTH with FECN and BECN.
const CONGESTION_AT: usize = 4;

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

/// The ICRC of a packet; `transport` is all from the BTH to the end of the pad. Some 20 ns for 64
/// bytes, and 10 bytes a ns beyond, where the CPU multiplies without carry. Of less than a BTH it
/// is the sum of what is there.
#[inline]
pub fn icrc(network: Network<'_>, transport: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    match network {
        Network::Ipv4(ip, udp) => {
            hasher.update(masked(&[&[0xff; 8], ip, udp], [9, 16, 18, 19, 34, 35], 0).as_slice(36))
        }
        Network::Ipv6(ip, udp) => {
            hasher.update(masked(&[&[0xff; 8], ip, udp], [9, 10, 11, 15, 54, 55], 0x0f).as_slice(56))
        }
        Network::Grh(grh) => hasher.update(masked(&[&[0xff; 8], grh], [9, 10, 11, 15, 15, 15], 0x0f).as_slice(48)),
    }
    let bth_len = transport.len().min(BTH_LEN);
    let (bth, rest) = transport.split_at(bth_len);
    let mut masked_bth = [0; BTH_LEN];
    masked_bth[..bth_len].copy_from_slice(bth);
    masked_bth[CONGESTION_AT] = 0xff;
    hasher.update(&masked_bth[..bth_len]);
    hasher.update(rest);
    hasher.finalize()
}

/// Headers in a row, in which single bytes count as ones.
struct Masked([u8; 56]);

impl Masked {
    #[inline]
    fn as_slice(&self, len: usize) -> &[u8] {
        &self.0[..len]
    }
}

/// Puts the parts behind each other, and ones into the bytes `ones_at`, and into the bits
/// `class_bits` of the first byte behind the eight: the upper half of a traffic class.
#[inline]
fn masked(parts: &[&[u8]], ones_at: [usize; 6], class_bits: u8) -> Masked {
    let mut bytes = [0; 56];
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    for at in ones_at {
        bytes[at] = 0xff;
    }
    bytes[8] |= class_bits;
    Masked(bytes)
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
