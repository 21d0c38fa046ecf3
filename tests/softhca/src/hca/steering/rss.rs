//! The Toeplitz hash, and which fields of a frame go into it. The input is headers; the output is
//! the hash and its type as the CQE carries them (mlx5.md 2.9). [`tir`](super::tir) decides which
//! queue a hash selects.

use super::parse::{Headers, L3, L4};
use crate::hca::control::Errno;

/// Bytes of the key: the longest input, two IPv6 addresses and two ports, and 4 bytes more.
const KEY_LEN: usize = 40;

const INPUT_MAX: usize = KEY_LEN - 4;

/// `IBV_RX_HASH_*`.
const SRC_IPV4: u64 = 1 << 0;
const DST_IPV4: u64 = 1 << 1;
const SRC_IPV6: u64 = 1 << 2;
const DST_IPV6: u64 = 1 << 3;
const SRC_TCP: u64 = 1 << 4;
const DST_TCP: u64 = 1 << 5;
const SRC_UDP: u64 = 1 << 6;
const DST_UDP: u64 = 1 << 7;

/// `hash_type`, bits 7:6 and 3:2.
const TYPE_IPV4: u8 = 1 << 6;
const TYPE_IPV6: u8 = 2 << 6;
const TYPE_TCP: u8 = 1 << 2;
const TYPE_UDP: u8 = 2 << 2;

/// Which fields are hashed: one kind of IP, one kind of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields(u64);

impl Fields {
    /// As the kernel's driver has it (Linux, `mlx5/qp.c`, `create_rss_raw_qp_tir`): both kinds of
    /// IP at once, or of ports, are EINVAL; tunnels' inner headers and unknown bits EOPNOTSUPP.
    pub(super) fn new(mask: u64) -> Result<Self, Errno> {
        if mask & !0xff != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let has = |bits: u64| mask & bits != 0;
        let both_ips = has(SRC_IPV4 | DST_IPV4) && has(SRC_IPV6 | DST_IPV6);
        let both_ports = has(SRC_TCP | DST_TCP) && has(SRC_UDP | DST_UDP);
        if both_ips || both_ports { Err(Errno(libc::EINVAL)) } else { Ok(Self(mask)) }
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }
}

/// A key, converted into the contribution of each byte at each position to the hash.
pub(super) struct Toeplitz {
    tables: Box<[[u32; 256]; INPUT_MAX]>,
}

impl Toeplitz {
    /// EINVAL for a key of another length.
    pub(super) fn new(key: &[u8]) -> Result<Self, Errno> {
        let key: &[u8; KEY_LEN] = key.try_into().map_err(|_| Errno(libc::EINVAL))?;
        let mut tables = Box::new([[0; 256]; INPUT_MAX]);
        for (place, table) in tables.iter_mut().enumerate() {
            for (byte, hash) in table.iter_mut().enumerate() {
                *hash = hash_of_byte(key, place, byte as u8);
            }
        }
        Ok(Self { tables })
    }

    /// The hash of up to 36 bytes.
    #[inline]
    pub(super) fn hash(&self, input: &[u8]) -> u32 {
        self.tables.iter().zip(input).fold(0, |hash, (table, &byte)| hash ^ table[usize::from(byte)])
    }

    /// The hash of the fields that the frame has, and its type: 0 and 0 where it has none of them.
    #[inline]
    pub(super) fn hash_frame(&self, fields: Fields, headers: &Headers, frame: &[u8]) -> (u32, u8) {
        let mut input = Input { bytes: [0; INPUT_MAX], len: 0 };
        let mut hash_type = 0;
        let l3 = &frame[headers.l3_offset..];
        match headers.l3 {
            L3::V4 => {
                let taken =
                    input.take(fields.has(SRC_IPV4), &l3[12..16]) | input.take(fields.has(DST_IPV4), &l3[16..20]);
                hash_type |= if taken { TYPE_IPV4 } else { 0 };
            }
            L3::V6 => {
                let taken =
                    input.take(fields.has(SRC_IPV6), &l3[8..24]) | input.take(fields.has(DST_IPV6), &l3[24..40]);
                hash_type |= if taken { TYPE_IPV6 } else { 0 };
            }
            L3::None => {}
        }
        let (src, dst, ports_type) = match headers.l4 {
            L4::Tcp => (SRC_TCP, DST_TCP, TYPE_TCP),
            L4::Udp => (SRC_UDP, DST_UDP, TYPE_UDP),
            L4::None => (0, 0, 0),
        };
        if let Some(ports) = headers.ports(frame) {
            let taken = input.take(fields.has(src), &ports[..2]) | input.take(fields.has(dst), &ports[2..]);
            hash_type |= if taken { ports_type } else { 0 };
        }
        (self.hash(&input.bytes[..input.len]), hash_type)
    }
}

/// Fields behind each other.
struct Input {
    bytes: [u8; INPUT_MAX],
    len: usize,
}

impl Input {
    #[inline]
    fn take(&mut self, wanted: bool, field: &[u8]) -> bool {
        if wanted {
            self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
            self.len += field.len();
        }
        wanted
    }
}

/// Each set bit adds the 32 bits of the key that begin at the bit's position.
fn hash_of_byte(key: &[u8; KEY_LEN], place: usize, byte: u8) -> u32 {
    let window = key[place..].iter().take(5).fold(0_u64, |window, &byte| window << 8 | u64::from(byte));
    (0..8).filter(|bit| byte & 0x80 >> bit != 0).fold(0, |hash, bit| hash ^ (window >> (8 - bit)) as u32)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// The key and the vectors of "Verifying the RSS Hash Calculation" in Microsoft's documentation
    /// of NDIS.
    const KEY: [u8; KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];

    /// A frame with nothing but addresses and ports.
    fn frame(l3: L3, addresses: &[u8], ports: [u16; 2]) -> (Headers, Vec<u8>) {
        let address_offset = if l3 == L3::V4 { 12 } else { 8 };
        let mut bytes = vec![0; 14 + address_offset];
        bytes.extend(addresses);
        let headers = Headers { l3_offset: 14, l4_offset: bytes.len(), l3, l4: L4::Tcp, ..Headers::default() };
        bytes.extend(ports.into_iter().flat_map(u16::to_be_bytes));
        (headers, bytes)
    }

    #[track_caller]
    fn check(l3: L3, addresses: &[u8], ports: [u16; 2], ip_only: u32, with_tcp: u32) {
        let (headers, frame) = frame(l3, addresses, ports);
        let toeplitz = Toeplitz::new(&KEY).unwrap();
        let (ips, type_ip) =
            if l3 == L3::V4 { (SRC_IPV4 | DST_IPV4, TYPE_IPV4) } else { (SRC_IPV6 | DST_IPV6, TYPE_IPV6) };
        let hash = |mask| toeplitz.hash_frame(Fields::new(mask).unwrap(), &headers, &frame);
        assert_eq!(hash(ips), (ip_only, type_ip));
        assert_eq!(hash(ips | SRC_TCP | DST_TCP), (with_tcp, type_ip | TYPE_TCP));
        assert_eq!(hash(ips | SRC_UDP | DST_UDP), (ip_only, type_ip), "it has no UDP ports");
    }

    fn check_v4(src: (Ipv4Addr, u16), dst: (Ipv4Addr, u16), ip_only: u32, with_tcp: u32) {
        let addresses = [src.0.octets(), dst.0.octets()].concat();
        check(L3::V4, &addresses, [src.1, dst.1], ip_only, with_tcp);
    }

    fn check_v6(src: (&str, u16), dst: (&str, u16), ip_only: u32, with_tcp: u32) {
        let octets = |address: &str| address.parse::<Ipv6Addr>().unwrap().octets();
        check(L3::V6, &[octets(src.0), octets(dst.0)].concat(), [src.1, dst.1], ip_only, with_tcp);
    }

    #[test]
    fn microsofts_vectors_for_ipv4() {
        let ip = Ipv4Addr::new;
        check_v4((ip(66, 9, 149, 187), 2794), (ip(161, 142, 100, 80), 1766), 0x323e_8fc2, 0x51cc_c178);
        check_v4((ip(199, 92, 111, 2), 14230), (ip(65, 69, 140, 83), 4739), 0xd718_262a, 0xc626_b0ea);
        check_v4((ip(24, 19, 198, 95), 12898), (ip(12, 22, 207, 184), 38024), 0xd2d0_a5de, 0x5c2b_394a);
        check_v4((ip(38, 27, 205, 30), 48228), (ip(209, 142, 163, 6), 2217), 0x8298_9176, 0xafc7_327f);
        check_v4((ip(153, 39, 163, 191), 44251), (ip(202, 188, 127, 2), 1303), 0x5d18_09c5, 0x10e8_28a2);
    }

    #[test]
    fn microsofts_vectors_for_ipv6() {
        check_v6(("3ffe:2501:200:1fff::7", 2794), ("3ffe:2501:200:3::1", 1766), 0x2cc1_8cd5, 0x4020_7d3d);
        check_v6(("3ffe:501:8::260:97ff:fe40:efab", 14230), ("ff02::1", 4739), 0x0f0c_461c, 0xdde5_1bbf);
        let (src, dst) = ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", "fe80::200:f8ff:fe21:67cf");
        check_v6((src, 44251), (dst, 38024), 0x4b61_e985, 0x02d1_feef);
    }

    #[test]
    fn a_frame_without_the_fields_hashes_to_nothing() {
        let (headers, frame) = frame(L3::V4, &[1; 8], [1, 2]);
        let toeplitz = Toeplitz::new(&KEY).unwrap();
        for mask in [0, SRC_IPV6 | DST_IPV6, SRC_UDP | DST_UDP] {
            assert_eq!(toeplitz.hash_frame(Fields::new(mask).unwrap(), &headers, &frame), (0, 0), "{mask:#x}");
        }
    }

    #[test]
    fn one_side_alone_may_be_hashed() {
        let (headers, frame) = frame(L3::V4, &[1, 2, 3, 4, 5, 6, 7, 8], [9, 10]);
        let toeplitz = Toeplitz::new(&KEY).unwrap();
        let (hash, _) = toeplitz.hash_frame(Fields::new(DST_IPV4 | SRC_TCP).unwrap(), &headers, &frame);
        assert_eq!(hash, toeplitz.hash(&[5, 6, 7, 8, 0, 9]));
    }

    #[test]
    fn fields_that_hardware_cannot_mix_are_refused() {
        for mask in [SRC_IPV4 | SRC_IPV6, DST_IPV4 | SRC_IPV6, SRC_TCP | DST_UDP] {
            assert_eq!(Fields::new(mask), Err(Errno(libc::EINVAL)), "{mask:#x}");
        }
        for mask in [1 << 8, 1 << 31] {
            assert_eq!(Fields::new(mask), Err(Errno(libc::EOPNOTSUPP)), "{mask:#x}");
        }
    }

    #[test]
    fn a_key_of_another_length_is_refused() {
        for len in [0, 39, 41, 128] {
            assert_eq!(Toeplitz::new(&vec![1; len]).err(), Some(Errno(libc::EINVAL)), "{len}");
        }
    }
}
