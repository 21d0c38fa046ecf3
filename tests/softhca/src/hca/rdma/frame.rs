//! RoCE version 2 as Ethernet frames: IPv4 or IPv6 and UDP in front of the packet, the invariant
//! CRC behind it. InfiniBand Architecture Specification, annex A17.

use super::packet::Headers;
use crate::hca::control::Gid;
use crate::hca::receive::fcs::crc32;
use crate::hca::send::offload;

/// The port of RoCE version 2.
const UDP_PORT: u16 = 4791;

/// Bytes of the headers in front of a packet, without Ethernet's.
const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const ICRC_LEN: usize = 4;

/// The room for a GRH in front of a received datagram: 40 bytes, an IPv4 header in the last 20.
pub(super) const GRH_LEN: usize = 40;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const PROTOCOL_UDP: u8 = 17;

/// Where a packet goes, and as what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) source_mac: [u8; 6],
    pub(super) destination_mac: [u8; 6],
    pub(super) source: Gid,
    pub(super) destination: Gid,
    pub(super) traffic_class: u8,
    pub(super) flow_label: u32,
    pub(super) hop_limit: u8,
    pub(super) source_port: u16,
}

/// A packet that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived<'a> {
    pub(super) source: Gid,
    pub(super) destination: Gid,
    /// The header that a datagram's receiver gets.
    pub(super) grh: [u8; GRH_LEN],
    /// From the BTH to the pad.
    pub(super) packet: &'a [u8],
    /// Its check value is right.
    pub(super) is_intact: bool,
}

/// The source port of a flow between two queue pairs, as the kernel computes it
/// (`rdma_flow_label_to_udp_sport` after `rdma_calc_flow_label`).
pub(super) fn source_port(local: u32, remote: u32) -> u16 {
    let mut product = u64::from(local) * u64::from(remote);
    product ^= product >> 20;
    product ^= product >> 40;
    let label = (product & 0xf_ffff) as u32;
    ((label & 0x3fff) ^ (label & 0xf_c000) >> 14) as u16 | 0xc000
}

/// Writes the frame of a packet.
pub(super) fn emit(route: &Route, headers: &Headers, payload: &[u8], frame: &mut Vec<u8>) {
    let is_ipv4 = route.source.ipv4().is_some();
    frame.clear();
    frame.extend(route.destination_mac);
    frame.extend(route.source_mac);
    frame.extend(if is_ipv4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 });
    let ip_len = if is_ipv4 { IPV4_LEN } else { IPV6_LEN };
    frame.resize(ETHERNET_LEN + ip_len + UDP_LEN, 0);
    headers.emit(payload, frame);
    let udp_len = (frame.len() + ICRC_LEN - ETHERNET_LEN - ip_len) as u16;
    let ip = &mut frame[ETHERNET_LEN..];
    match (route.source.ipv4(), route.destination.ipv4()) {
        (Some(source), Some(destination)) => put_ipv4(&mut ip[..IPV4_LEN], route, source, destination, udp_len),
        _ => put_ipv6(&mut ip[..IPV6_LEN], route, udp_len),
    }
    let udp = &mut ip[ip_len..ip_len + UDP_LEN];
    udp[..2].copy_from_slice(&route.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    let check = icrc(&frame[ETHERNET_LEN..], ip_len);
    frame.extend(check);
}

fn put_ipv4(ip: &mut [u8], route: &Route, source: [u8; 4], destination: [u8; 4], udp_len: u16) {
    ip[0] = 0x45;
    ip[1] = route.traffic_class;
    ip[2..4].copy_from_slice(&(IPV4_LEN as u16 + udp_len).to_be_bytes());
    ip[6] = 0x40; // do not fragment
    ip[8] = route.hop_limit;
    ip[9] = PROTOCOL_UDP;
    ip[12..16].copy_from_slice(&source);
    ip[16..20].copy_from_slice(&destination);
    let checksum = !offload::fold(offload::sum(0, ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn put_ipv6(ip: &mut [u8], route: &Route, udp_len: u16) {
    let word = 6 << 28 | u32::from(route.traffic_class) << 20 | route.flow_label & 0xf_ffff;
    ip[..4].copy_from_slice(&word.to_be_bytes());
    ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
    ip[6] = PROTOCOL_UDP;
    ip[7] = route.hop_limit;
    ip[8..24].copy_from_slice(&route.source.0);
    ip[24..40].copy_from_slice(&route.destination.0);
}

/// The packet of a frame; `None` for frames that are not RoCE's.
pub(super) fn parse(frame: &[u8]) -> Option<Arrived<'_>> {
    let ip = frame.get(ETHERNET_LEN..)?;
    let mut grh = [0; GRH_LEN];
    let (ip_len, total, source, destination) = match frame[12..14].try_into().ok()? {
        ETHERTYPE_IPV4 => {
            let header = ip.get(..IPV4_LEN)?;
            // Options would be legal, and no RoCE sender writes any. Fragments are not.
            if header[0] != 0x45 || header[9] != PROTOCOL_UDP || be16(header, 6) & 0x3fff != 0 {
                return None;
            }
            grh[GRH_LEN - IPV4_LEN..].copy_from_slice(header);
            let address = |at: usize| Gid::from_ipv4([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            (IPV4_LEN, usize::from(be16(header, 2)), address(12), address(16))
        }
        ETHERTYPE_IPV6 => {
            let header = ip.get(..IPV6_LEN)?;
            if header[0] >> 4 != 6 || header[6] != PROTOCOL_UDP {
                return None;
            }
            grh.copy_from_slice(header);
            let address = |at: usize| header[at..at + 16].try_into().map(Gid).ok();
            (IPV6_LEN, IPV6_LEN + usize::from(be16(header, 4)), address(8)?, address(24)?)
        }
        _ => return None,
    };
    // Ethernet may have padded the frame.
    let ip = ip.get(..total)?;
    let udp = ip.get(ip_len..ip_len + UDP_LEN)?;
    if be16(udp, 2) != UDP_PORT {
        return None;
    }
    let packet = ip.get(ip_len + UDP_LEN..total.checked_sub(ICRC_LEN)?)?;
    let is_intact = packet.len() > BTH_RESERVED
        && usize::from(be16(udp, 4)) == total - ip_len
        && icrc(&ip[..total - ICRC_LEN], ip_len) == ip[total - ICRC_LEN..];
    Some(Arrived { source, destination, grh, packet, is_intact })
}

/// The byte of the BTH that routers may change: FECN, BECN and reserved bits.
const BTH_RESERVED: usize = 4;

/// The check value behind a packet, over network header, UDP header and packet, with ones in place
/// of what changes on the way.
fn icrc(bytes: &[u8], ip_len: usize) -> [u8; 4] {
    let mut masked = [0xff; 8].to_vec(); // for the local route header that RoCE has not
    masked.extend_from_slice(bytes);
    let ip = &mut masked[8..];
    if ip_len == IPV4_LEN {
        for at in [1, 8, 10, 11] {
            ip[at] = 0xff;
        }
    } else {
        ip[0] |= 0x0f;
        for at in [1, 2, 3, 7] {
            ip[at] = 0xff;
        }
    }
    for at in [ip_len + 6, ip_len + 7, ip_len + UDP_LEN + BTH_RESERVED] {
        ip[at] = 0xff;
    }
    crc32(&masked)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
