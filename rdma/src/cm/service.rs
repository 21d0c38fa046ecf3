//! Which service of a host is meant, and between which addresses: the IP addressing of RDMA_CM
//! (InfiniBand Annex A11).

use core::net::Ipv6Addr;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What the ports of a service are counted in, as sockets of TCP and of UDP have theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// Connections.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
}

impl PortSpace {
    /// The service ID of a port.
    pub const fn service_id(self, port: u16) -> u64 {
        (self as u64) << 16 | port as u64
    }

    /// The space and the port that a service ID names; `None` for another service.
    pub const fn of_service(service_id: u64) -> Option<(Self, u16)> {
        let port = service_id as u16;
        match service_id >> 16 {
            0x0106 => Some((Self::Tcp, port)),
            0x0111 => Some((Self::Udp, port)),
            _ => None,
        }
    }
}

/// What RDMA_CM puts in front of the private data of a REQ and of a SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IpHeader {
    version: u8,
    ip_version: u8,
    port: U16,
    source: [u8; 16],
    destination: [u8; 16],
}

impl IpHeader {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// From `source` and its port to `destination`; addresses of IPv4 are `::ffff:a.b.c.d`.
    pub fn new(port: u16, source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        let is_four = source.to_ipv4_mapped().is_some();
        let octets = |address: Ipv6Addr| match address.to_ipv4_mapped() {
            // Twelve zeros in front, and not the prefix of a mapped address.
            Some(four) => u128::from(four.to_bits()).to_be_bytes(),
            None => address.octets(),
        };
        Self {
            version: 0,
            ip_version: if is_four { 4 << 4 } else { 6 << 4 },
            port: U16::new(port),
            source: octets(source),
            destination: octets(destination),
        }
    }

    /// The header in front of private data; `None` for another version.
    pub fn parse(private_data: &[u8]) -> Option<&Self> {
        let (header, _) = Self::ref_from_prefix(private_data).ok()?;
        (header.version == 0 && matches!(header.ip_version >> 4, 4 | 6)).then_some(header)
    }

    /// The sender's port.
    pub const fn port(&self) -> u16 {
        self.port.get()
    }

    /// The sender's address.
    pub fn source(&self) -> Ipv6Addr {
        self.address(&self.source)
    }

    /// The address that the sender asked for.
    pub fn destination(&self) -> Ipv6Addr {
        self.address(&self.destination)
    }

    fn address(&self, octets: &[u8; 16]) -> Ipv6Addr {
        if self.ip_version >> 4 == 4 {
            let four = core::net::Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]);
            return four.to_ipv6_mapped();
        }
        Ipv6Addr::from(*octets)
    }
}
