//! The packet type table: maps a CQE's header bits (bytes 28 and 29, mlx5.md 2.9) to the metadata
//! of the mbuf. It is made once per queue, and indexed by the bits themselves.
//!
//! A checksum that the NIC verified is [`ChecksumStatus::Good`]. Otherwise it is `Unknown`, not
//! `Bad`, because the bit is also clear if the NIC did not check; then the nodes verify the
//! checksum and name their drops. On a device that does not report checksum offload the bits are
//! ignored.

use core::ops::Deref;

use crate::device::mlx5::completion::clock::TimestampSource;
use crate::mem::{ChecksumStatus, Headers, L3, L4, PacketInfo, PacketInfoWord, RxInfo};
use crate::time::UnixTime;

/// The bits of bytes 28 and 29 that index the table: L3 and L4 checksum valid (28, bits 1 and 2),
/// and all of 29.
const INDEX_BITS: u32 = 0x06ff;

/// In byte 29.
const VLAN_STRIPPED: u32 = 1;
const IP_OPTIONS: u32 = 1 << 1;
const FRAGMENT: u32 = 1 << 7;
/// In byte 28.
const L3_OK: u32 = 1 << 9;
const L4_OK: u32 = 1 << 10;

/// The receive features that a queue was created with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxFeatures {
    pub(crate) stamps: TimestampSource,
    /// The queue is one of several that share a port by hash.
    pub(crate) has_hashes: bool,
    /// The device verifies checksums.
    pub(crate) has_checksums: bool,
}

/// The metadata of each packet type.
#[derive(Clone, Copy)]
pub(crate) struct PacketTypes<T = Box<Table>>(T);

type Table = [PacketInfoWord; INDEX_BITS as usize + 1];

impl PacketTypes {
    /// The table of a queue with these features.
    pub(crate) fn new(features: RxFeatures) -> Self {
        let mut kinds = Box::new([PacketInfoWord::default(); INDEX_BITS as usize + 1]);
        for (bits, known) in (0..).zip(kinds.iter_mut()) {
            *known = PacketInfo::of(&info(bits, features)).word();
        }
        Self(kinds)
    }

    /// The table itself, for a loop.
    #[inline(always)]
    pub(crate) fn view(&self) -> PacketTypes<&Table> {
        PacketTypes(&self.0)
    }
}

impl<T: Deref<Target = Table>> PacketTypes<T> {
    /// The metadata of a frame whose CQE has this word at byte 28.
    #[inline(always)]
    pub(crate) fn of(&self, headers: u32) -> PacketInfoWord {
        self.0[(headers >> 16 & INDEX_BITS) as usize]
    }

    /// The same if the bits describe the headers inside a tunnel, which the stack does not parse.
    #[cold]
    #[inline(never)]
    pub(crate) fn of_tunnel(&self, headers: u32) -> PacketInfoWord {
        self.of(headers & VLAN_STRIPPED << 16)
    }
}

fn info(bits: u32, RxFeatures { stamps, has_hashes, has_checksums }: RxFeatures) -> RxInfo {
    let has = |bit| bits & bit != 0;
    let (l3, l4) = (l3(bits), l4(bits));
    let mut headers = Headers::UNKNOWN;
    headers = l3.map_or(headers, |l3| headers.with_l3(l3));
    headers = l4.map_or(headers, |l4| headers.with_l4(l4));
    headers = if has(FRAGMENT) { headers.with_fragment() } else { headers };
    headers = if has(IP_OPTIONS) { headers.with_ip_options() } else { headers };
    let good = |good| if good && has_checksums { ChecksumStatus::Good } else { ChecksumStatus::Unknown };
    RxInfo {
        // Only presence matters here. A missing flow tag or hash is encoded in the value itself.
        timestamp: matches!(stamps, TimestampSource::Wall(_) | TimestampSource::RealTime)
            .then_some(UnixTime::default()),
        ticks: matches!(stamps, TimestampSource::Ticks).then_some(0),
        vlan: has(VLAN_STRIPPED).then_some(0),
        flow_tag: Some(0),
        hash: has_hashes.then_some(0),
        ip_checksum: good(has(L3_OK) && l3.is_some()),
        // The checksum of a fragment covers only a part.
        l4_checksum: good(has(L4_OK) && l4.is_some() && !has(FRAGMENT)),
        headers,
    }
}

fn l3(bits: u32) -> Option<L3> {
    match bits >> 2 & 3 {
        1 => Some(L3::Ipv6),
        2 => Some(L3::Ipv4),
        _ => None,
    }
}

fn l4(bits: u32) -> Option<L4> {
    match bits >> 4 & 7 {
        // Also an empty ACK, and one with data.
        1 | 3 | 4 => Some(L4::Tcp),
        2 => Some(L4::Udp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: RxFeatures = RxFeatures { stamps: TimestampSource::Off, has_hashes: false, has_checksums: true };

    /// Checks the metadata for these bytes 28 and 29: L3 and L4 checksum status, headers.
    fn check(bytes: [u8; 2], verdicts: [ChecksumStatus; 2], headers: Headers) {
        check_with(FACTS, bytes, verdicts, headers);
    }

    fn check_with(features: RxFeatures, bytes: [u8; 2], verdicts: [ChecksumStatus; 2], headers: Headers) {
        let known = PacketTypes::new(features).of(u32::from_be_bytes([bytes[0], bytes[1], 0xff, 0xff]));
        let [ip_checksum, l4_checksum] = verdicts;
        assert_eq!(
            known,
            PacketInfo::of(&RxInfo { ip_checksum, l4_checksum, headers, flow_tag: Some(0), ..RxInfo::default() })
                .word(),
            "{bytes:x?}"
        );
    }

    use ChecksumStatus::{Good, Unknown};

    #[test]
    fn checksum_that_is_not_called_right_is_unknown() {
        let udp = Headers::UNKNOWN.with_l3(L3::Ipv4).with_l4(L4::Udp);
        check([0b001, 0x28], [Unknown, Unknown], udp);
        check([0b011, 0x28], [Good, Unknown], udp);
        check([0b101, 0x28], [Unknown, Good], udp);
        check([0b111, 0x28], [Good, Good], udp);
    }

    #[test]
    fn bits_of_a_device_that_checks_no_sums_are_no_verdict() {
        let udp = Headers::UNKNOWN.with_l3(L3::Ipv4).with_l4(L4::Udp);
        check_with(RxFeatures { has_checksums: false, ..FACTS }, [0b111, 0x28], [Unknown, Unknown], udp);
    }

    #[test]
    fn checksum_of_a_header_that_is_not_there_is_unknown() {
        check([0xff, 0x00], [Unknown, Unknown], Headers::UNKNOWN);
        check([0xff, 0x08], [Good, Unknown], Headers::UNKNOWN.with_l3(L3::Ipv4));
        check([0xff, 0x70], [Unknown, Unknown], Headers::UNKNOWN);
    }

    #[test]
    fn fragment_has_no_transport_checksum() {
        let headers = Headers::UNKNOWN.with_l3(L3::Ipv4).with_l4(L4::Udp).with_fragment();
        check([0xff, 0xa8], [Good, Unknown], headers);
    }

    #[test]
    fn every_kind_of_header_has_its_bits() {
        let (v4, v6) = (Headers::UNKNOWN.with_l3(L3::Ipv4), Headers::UNKNOWN.with_l3(L3::Ipv6));
        check([7, 0x18], [Good, Good], v4.with_l4(L4::Tcp));
        check([7, 0x34], [Good, Good], v6.with_l4(L4::Tcp));
        check([7, 0x44], [Good, Good], v6.with_l4(L4::Tcp));
        check([7, 0x2a], [Good, Good], v4.with_l4(L4::Udp).with_ip_options());
    }

    #[test]
    fn tunnel_tells_of_its_tag_only() {
        let kinds = PacketTypes::new(RxFeatures { stamps: TimestampSource::RealTime, has_hashes: true, ..FACTS });
        let word = u32::from_be_bytes([0xff, 0xff, 0, 7]);
        let expected = RxInfo {
            timestamp: Some(UnixTime::default()),
            vlan: Some(7),
            flow_tag: Some(0),
            hash: Some(0),
            ..RxInfo::default()
        };
        assert_eq!(kinds.of_tunnel(word), PacketInfo::of(&expected).word());
    }
}
