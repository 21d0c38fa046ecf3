//! The way to a peer: addresses, and the headers made of them once.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::wire::icrc::{ICRC_LEN, Network, icrc};
use crate::wire::qpn::Qpn;
use crate::wire::{GRH_ETHERTYPE, ROCE_PORT};

/// The way to a peer: what verbs call an address vector, with the Ethernet addresses resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The Ethernet header.
    pub link: Link,
    /// The addresses, and the version of RoCE with them.
    pub addresses: Addresses,
    /// TOS or traffic class: DSCP in the upper six bits, ECN in the lower two. With ECT in the
    /// lower two, switches mark packets where they are congested, and do not drop them; the peer
    /// notifies us then, and we send slower. Linux rxe notifies nobody: take 0 for such a peer.
    /// Datagrams are never ECT, because nothing slows them.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The next hop.
    pub destination: [u8; 6],
    /// Our port.
    pub source: [u8; 6],
    /// The tag of a VLAN: priority and number.
    pub vlan: Option<u16>,
}

/// From where to where, and by which version of RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// RoCEv2 over IPv4.
    Ipv4 {
        /// Ours.
        source: Ipv4Addr,
        /// The peer's.
        destination: Ipv4Addr,
    },
    /// RoCEv2 over IPv6.
    Ipv6 {
        /// Ours.
        source: Ipv6Addr,
        /// The peer's.
        destination: Ipv6Addr,
    },
    /// RoCEv1: GIDs in a global route header.
    Grh {
        /// Our GID.
        source: Ipv6Addr,
        /// The peer's GID.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Ours; one of IPv4 is `::ffff:a.b.c.d`, as a GID names it.
    pub const fn own(&self) -> Ipv6Addr {
        match self {
            Self::Ipv4 { source, .. } => source.to_ipv6_mapped(),
            Self::Ipv6 { source, .. } | Self::Grh { source, .. } => *source,
        }
    }

    /// The peer's.
    pub const fn peer(&self) -> Ipv6Addr {
        match self {
            Self::Ipv4 { destination, .. } => destination.to_ipv6_mapped(),
            Self::Ipv6 { destination, .. } | Self::Grh { destination, .. } => *destination,
        }
    }
}

const VLAN_ETHERTYPE: u16 = 0x8100;
const UDP_LEN: usize = 8;

impl Path {
    /// ECT(0), the mark of packets whose sender listens to congestion (RFC 3168).
    pub const ECN_CAPABLE: u8 = 0b10;

    /// The way to `destination`, with the traffic class [`ECN_CAPABLE`](Self::ECN_CAPABLE) and a
    /// hop limit of 64.
    pub const fn new(link: Link, addresses: Addresses) -> Self {
        Self { link, addresses, traffic_class: Self::ECN_CAPABLE, hop_limit: 64 }
    }
}

/// The headers of a path. Of each packet only lengths and a checksum differ.
#[derive(Clone)]
pub(super) struct Template {
    bytes: [u8; Self::LEN_MAX],
    /// Bytes of the Ethernet header.
    link_len: u8,
    len: u8,
    kind: Kind,
    /// The sum of the IPv4 header without its length.
    sum: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ipv4,
    Ipv6,
    Grh,
}

impl Template {
    /// Ethernet with a VLAN, IPv6 and UDP.
    pub(super) const LEN_MAX: usize = 18 + 40 + UDP_LEN;

    /// The headers of `path`; the UDP source port is that of the two queue pairs.
    pub(super) fn new(path: &Path, local: Qpn, remote: Qpn) -> Self {
        let mut writer = Writer { bytes: [0; Self::LEN_MAX], len: 0 };
        let (kind, ethertype) = match path.addresses {
            Addresses::Ipv4 { .. } => (Kind::Ipv4, 0x0800),
            Addresses::Ipv6 { .. } => (Kind::Ipv6, 0x86dd),
            Addresses::Grh { .. } => (Kind::Grh, GRH_ETHERTYPE),
        };
        writer.push(&path.link.destination);
        writer.push(&path.link.source);
        if let Some(tag) = path.link.vlan {
            writer.push(&VLAN_ETHERTYPE.to_be_bytes());
            writer.push(&tag.to_be_bytes());
        }
        writer.push(&u16::to_be_bytes(ethertype));
        let link_len = writer.len;
        match path.addresses {
            Addresses::Ipv4 { source, destination } => {
                // Version and length; no options; never fragmented (DF); UDP.
                writer.push(&[0x45, path.traffic_class, 0, 0, 0, 0, 0x40, 0, path.hop_limit, 17, 0, 0]);
                writer.push(&source.octets());
                writer.push(&destination.octets());
            }
            Addresses::Ipv6 { source, destination } => writer.push_v6(path, 17, source, destination),
            Addresses::Grh { source, destination } => writer.push_v6(path, 0x1b, source, destination),
        }
        let sum = sum(&writer.bytes[link_len..writer.len]);
        if kind != Kind::Grh {
            writer.push(&source_port(local, remote).to_be_bytes());
            writer.push(&ROCE_PORT.to_be_bytes());
            writer.push(&[0; 4]);
        }
        Self { bytes: writer.bytes, link_len: link_len as u8, len: writer.len as u8, kind, sum }
    }

    /// The same with another traffic class.
    pub(super) fn with_class(&self, class: u8) -> Self {
        let mut other = self.clone();
        let ip = &mut other.bytes[usize::from(self.link_len)..];
        if self.kind == Kind::Ipv4 {
            ip[1] = class;
            other.sum = sum(&ip[..20]);
        } else {
            // Between the version and the flow label.
            (ip[0], ip[1]) = (ip[0] & 0xf0 | class >> 4, class << 4 | ip[1] & 0x0f);
        }
        other
    }

    /// The path that it was made of, with the MAC addresses of now.
    #[cold]
    pub(super) fn path(&self) -> Path {
        let (macs, ip) = (&self.bytes, &self.bytes[usize::from(self.link_len)..]);
        // A tag stands between the addresses and the type of what follows.
        let vlan = (self.link_len == 18).then(|| u16::from_be_bytes(*array(macs, 14)));
        let link = Link { destination: *array(macs, 0), source: *array(macs, 6), vlan };
        let (traffic_class, hop_limit) = match self.kind {
            Kind::Ipv4 => (ip[1], ip[8]),
            Kind::Ipv6 | Kind::Grh => (ip[0] << 4 | ip[1] >> 4, ip[7]),
        };
        Path { link, addresses: self.addresses(), traffic_class, hop_limit }
    }

    /// From where to where.
    #[cold]
    pub(super) fn addresses(&self) -> Addresses {
        let ip = &self.bytes[usize::from(self.link_len)..];
        let [source, destination] = [8, 24].map(|at| Ipv6Addr::from(*array::<16>(ip, at)));
        match self.kind {
            Kind::Ipv4 => {
                let [source, destination] = [12, 16].map(|at| Ipv4Addr::from(*array::<4>(ip, at)));
                Addresses::Ipv4 { source, destination }
            }
            Kind::Ipv6 => Addresses::Ipv6 { source, destination },
            Kind::Grh => Addresses::Grh { source, destination },
        }
    }

    /// Goes by other MAC addresses from now on; true if they are others. A tag of a VLAN is not
    /// followed: it would make other headers.
    #[cold]
    pub(super) fn set_link(&mut self, link: &Link) -> bool {
        let macs = [link.destination, link.source];
        let has_changed = *macs.as_flattened() != self.bytes[..12];
        self.bytes[..12].copy_from_slice(macs.as_flattened());
        has_changed
    }

    /// Writes the headers, and returns their length: the place of the BTH. The rest of the longest
    /// headers is written too, because a length that the compiler knows takes a few instructions.
    #[inline]
    pub(super) fn copy_to(&self, frame: &mut [u8]) -> usize {
        frame[..Self::LEN_MAX].copy_from_slice(&self.bytes);
        usize::from(self.len)
    }

    /// Completes the headers in front of a packet of `roce_len` bytes, BTH and ICRC included.
    #[inline]
    pub(super) fn complete(&self, headers: &mut [u8], roce_len: usize) {
        let ip = &mut headers[usize::from(self.link_len)..];
        match self.kind {
            Kind::Ipv4 => {
                let udp_len = (UDP_LEN + roce_len) as u16;
                let len = (20 + udp_len).to_be_bytes();
                ip[2..4].copy_from_slice(&len);
                ip[10..12].copy_from_slice(&(!add(self.sum, len)).to_be_bytes());
                ip[24..26].copy_from_slice(&udp_len.to_be_bytes());
            }
            Kind::Ipv6 => {
                let udp_len = ((UDP_LEN + roce_len) as u16).to_be_bytes();
                ip[4..6].copy_from_slice(&udp_len);
                ip[44..46].copy_from_slice(&udp_len);
            }
            Kind::Grh => ip[4..6].copy_from_slice(&(roce_len as u16).to_be_bytes()),
        }
    }

    /// The ICRC of the packet behind these headers, of which `roce` is all but the ICRC itself.
    #[inline]
    pub(super) fn icrc(&self, headers: &[u8], roce: &[u8]) -> [u8; ICRC_LEN] {
        icrc(self.network(headers), roce).to_le_bytes()
    }

    #[inline]
    fn network<'a>(&self, headers: &'a [u8]) -> Network<'a> {
        let ip = &headers[usize::from(self.link_len)..];
        // The lengths are those that `write` has written.
        match self.kind {
            Kind::Ipv4 => Network::Ipv4(array(ip, 0), array(ip, 20)),
            Kind::Ipv6 => Network::Ipv6(array(ip, 0), array(ip, 40)),
            Kind::Grh => Network::Grh(array(ip, 0)),
        }
    }

    /// True for a packet that comes from where ours go to, to where ours come from, by the same
    /// version of RoCE.
    #[inline]
    pub(super) fn is_of_peer(&self, network: Network<'_>) -> bool {
        let ours = &self.bytes[usize::from(self.link_len)..];
        match (self.kind, network) {
            (Kind::Ipv4, Network::Ipv4(ip, _)) => {
                array::<4>(ip, 12) == array(ours, 16) && array::<4>(ip, 16) == array(ours, 12)
            }
            (Kind::Ipv6, Network::Ipv6(ip, _)) | (Kind::Grh, Network::Grh(ip)) => {
                array::<16>(ip, 8) == array(ours, 24) && array::<16>(ip, 24) == array(ours, 8)
            }
            _ => false,
        }
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("headers shorter than the path's")
}

struct Writer {
    bytes: [u8; Template::LEN_MAX],
    len: usize,
}

impl Writer {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn push_v6(&mut self, path: &Path, next_header: u8, source: Ipv6Addr, destination: Ipv6Addr) {
        let first = 6 << 28 | u32::from(path.traffic_class) << 20;
        self.push(&first.to_be_bytes());
        self.push(&[0, 0, next_header, path.hop_limit]);
        self.push(&source.octets());
        self.push(&destination.octets());
    }
}

/// The sum of a header in ones' complement.
fn sum(header: &[u8]) -> u16 {
    header.as_chunks().0.iter().fold(0, |sum, word| add(sum, *word))
}

/// A sum in ones' complement.
#[inline]
fn add(sum: u16, word: [u8; 2]) -> u16 {
    let (sum, carry) = sum.overflowing_add(u16::from_be_bytes(word));
    sum + u16::from(carry)
}

/// The port that spreads queue pairs over the ways of a network, as Linux computes it
/// (`rdma_calc_flow_label`, `rdma_flow_label_to_udp_sport`).
fn source_port(local: Qpn, remote: Qpn) -> u16 {
    let product = u64::from(local.get()) * u64::from(remote.get());
    let folded = product ^ product >> 20;
    let label = (folded ^ folded >> 40) as u32 & 0xf_ffff;
    (label & 0x3fff ^ label >> 14) as u16 | 0xc000
}

#[cfg(test)]
mod tests {
    use super::super::frame::RoceFrame;
    use super::*;

    fn check(addresses: Addresses, vlan: Option<u16>) {
        let link = Link { destination: [2; 6], source: [4; 6], vlan };
        let path = Path::new(link, addresses);
        let template = Template::new(&path, Qpn::new(0x11), Qpn::new(0x12));
        assert_eq!(template.path(), path);
        let mut frame = [0; 128];
        let roce_at = template.copy_to(&mut frame);
        template.complete(&mut frame[..roce_at], 20);
        let end = roce_at + 20;
        frame[roce_at..end].copy_from_slice(&[7; 20]);
        let read = RoceFrame::parse(&frame[..end]).unwrap();
        assert_eq!(read.roce, [7; 20]);
        assert!(!template.is_of_peer(read.network), "it is ours, not the peer's");
        let back = match addresses {
            Addresses::Ipv4 { source, destination } => Addresses::Ipv4 { source: destination, destination: source },
            Addresses::Ipv6 { source, destination } => Addresses::Ipv6 { source: destination, destination: source },
            Addresses::Grh { source, destination } => Addresses::Grh { source: destination, destination: source },
        };
        assert!(Template::new(&Path::new(link, back), Qpn::new(1), Qpn::new(2)).is_of_peer(read.network));
    }

    #[test]
    fn frames_of_each_version_are_read_again() {
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let (six, other) = (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2));
        for vlan in [None, Some(0x6005)] {
            check(Addresses::Ipv4 { source, destination }, vlan);
            check(Addresses::Ipv6 { source: six, destination: other }, vlan);
            check(Addresses::Grh { source: six, destination: other }, vlan);
        }
    }

    #[test]
    fn source_port_is_the_one_that_linux_computes() {
        // 0x11 * 0x12 = 0x132: all folds are zero.
        assert_eq!(source_port(Qpn::new(0x11), Qpn::new(0x12)), 0xc132);
        // 0xffffff² = 0xfffffe000001; ^ >> 20 = 0xffffff0ffff1 ...
        let product: u64 = 0xff_ffff * 0xff_ffff;
        let folded = product ^ (product >> 20);
        let label = ((folded ^ (folded >> 40)) & 0xf_ffff) as u32;
        assert_eq!(
            u32::from(source_port(Qpn::new(0xff_ffff), Qpn::new(0xff_ffff))),
            ((label & 0x3fff) ^ ((label & 0xf_c000) >> 14)) | 0xc000
        );
    }
}
