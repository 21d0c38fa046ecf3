//! Addresses of the socket calls: `sockaddr_in`, and `sockaddr_in6` with an IPv4 address in it
//! (RFC 4291 2.5.5.2), as in programs that open one socket for both families.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// The family of a socket. The engine speaks IPv4; an IPv6 socket names its IPv4 peers in mapped
/// form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Inet,
    Inet6,
}

/// Bytes of `sockaddr_in6`, the longer of the two.
pub(crate) const ADDRESS_LEN: usize = 28;

/// A parsed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    V4(SocketAddrV4),
    /// `AF_UNSPEC`: disconnects a socket.
    Unspecified,
    /// An address that we do not carry: the socket stays with the kernel.
    Other,
}

impl Family {
    pub(crate) const fn number(self) -> i32 {
        match self {
            Self::Inet => libc::AF_INET,
            Self::Inet6 => libc::AF_INET6,
        }
    }
}

/// Reads an address. `::` is the IPv4 wildcard as well.
pub(crate) fn parse(bytes: &[u8]) -> Address {
    let Some((family, rest)) = bytes.split_first_chunk::<2>() else { return Address::Other };
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_UNSPEC => Address::Unspecified,
        libc::AF_INET => parse_v4(rest).map_or(Address::Other, Address::V4),
        libc::AF_INET6 => parse_v6(rest).map_or(Address::Other, Address::V4),
        _ => Address::Other,
    }
}

/// Reads an address of either family, for a list; that of IPv4 in mapped form is one of IPv4.
pub(crate) fn parse_any(bytes: &[u8]) -> Option<SocketAddr> {
    if let Address::V4(address) = parse(bytes)
        && (i32::from(u16::from_ne_bytes(*bytes.first_chunk()?)) == libc::AF_INET || !address.ip().is_unspecified())
    {
        return Some(address.into());
    }
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let ip = Ipv6Addr::from(*rest.get(4..)?.first_chunk::<16>()?);
    let is_v6 = i32::from(u16::from_ne_bytes(*family)) == libc::AF_INET6;
    is_v6.then(|| SocketAddr::from((ip, u16::from_be_bytes(*port))))
}

/// Writes an address in the form of `family`, and returns its length.
pub(crate) fn format(address: SocketAddrV4, family: Family) -> ([u8; ADDRESS_LEN], usize) {
    let mut bytes = [0; ADDRESS_LEN];
    bytes[..2].copy_from_slice(&(family.number() as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match family {
        Family::Inet => {
            bytes[4..8].copy_from_slice(&address.ip().octets());
            (bytes, 16)
        }
        Family::Inet6 => {
            let ip = if address.ip().is_unspecified() { Ipv6Addr::UNSPECIFIED } else { address.ip().to_ipv6_mapped() };
            bytes[8..24].copy_from_slice(&ip.octets());
            (bytes, 28)
        }
    }
}

fn parse_v4(rest: &[u8]) -> Option<SocketAddrV4> {
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let ip = rest.first_chunk::<4>()?;
    // The structure has eight more bytes, which Linux requires and ignores.
    (rest.len() >= 12).then(|| SocketAddrV4::new(Ipv4Addr::from(*ip), u16::from_be_bytes(*port)))
}

fn parse_v6(rest: &[u8]) -> Option<SocketAddrV4> {
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let ip = Ipv6Addr::from(*rest.get(4..)?.first_chunk::<16>()?);
    let ip = if ip.is_unspecified() { Some(Ipv4Addr::UNSPECIFIED) } else { ip.to_ipv4_mapped() };
    Some(SocketAddrV4::new(ip?, u16::from_be_bytes(*port)))
}
