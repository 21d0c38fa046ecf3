//! An IPv4 address with the length of its network's prefix, written 10.0.0.1/24.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

/// An address and the number of its leading bits that name the network. Also a network: then the
/// other bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Prefix {
    address: Ipv4Addr,
    len: u8,
}

impl Ipv4Prefix {
    /// All addresses: the network of a default route.
    pub const ALL: Self = Self { address: Ipv4Addr::UNSPECIFIED, len: 0 };

    /// `None` where `len` exceeds 32 bits.
    pub const fn new(address: Ipv4Addr, len: u8) -> Option<Self> {
        if len > 32 { None } else { Some(Self { address, len }) }
    }

    /// The address as given.
    #[inline]
    pub const fn address(self) -> Ipv4Addr {
        self.address
    }

    /// Leading bits that name the network, 0 to 32.
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// The same network without the bits that name a host.
    pub const fn network(self) -> Self {
        Self { address: Ipv4Addr::from_bits(self.address.to_bits() & self.mask()), len: self.len }
    }

    /// Whether `address` is in this network.
    #[inline]
    pub const fn contains(self, address: Ipv4Addr) -> bool {
        (self.address.to_bits() ^ address.to_bits()) & self.mask() == 0
    }

    /// The broadcast address of the network (RFC 922). Networks of one or two addresses have none
    /// (RFC 3021).
    #[inline]
    pub const fn broadcast(self) -> Option<Ipv4Addr> {
        if self.len > 30 { None } else { Some(Ipv4Addr::from_bits(self.address.to_bits() | !self.mask())) }
    }

    #[inline]
    const fn mask(self) -> u32 {
        // 64 bits, because a 32-bit value cannot be shifted by 32.
        (0xffff_ffff_0000_0000u64 >> self.len) as u32
    }
}

impl fmt::Display for Ipv4Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// The text is not an address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixError;

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an IPv4 prefix is an address and a length from 0 to 32, like 10.0.0.1/24")
    }
}

impl core::error::Error for PrefixError {}

impl FromStr for Ipv4Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = text.split_once('/').ok_or(PrefixError)?;
        if len.is_empty() || !len.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PrefixError);
        }
        let address = address.parse().map_err(|_| PrefixError)?;
        Self::new(address, len.parse().map_err(|_| PrefixError)?).ok_or(PrefixError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_prefix_is_refused() {
        for text in
            ["", "10.0.0.1", "10.0.0.1/", "10.0.0.1/33", "10.0.0.1/-1", "10.0.0.1/+8", "10.0.0/8", "10.0.0.1/8/8"]
        {
            assert_eq!(text.parse::<Ipv4Prefix>(), Err(PrefixError), "{text}");
        }
    }

    #[test]
    fn prefix_contains_its_network_only() {
        let check =
            |prefix: &str, address: &str| prefix.parse::<Ipv4Prefix>().unwrap().contains(address.parse().unwrap());
        assert!(check("10.1.2.3/24", "10.1.2.255") && !check("10.1.2.3/24", "10.1.3.0"));
        assert!(check("10.1.2.3/32", "10.1.2.3") && !check("10.1.2.3/32", "10.1.2.2"));
        assert!(check("0.0.0.0/0", "255.255.255.255"));
    }

    #[test]
    fn networks_of_one_or_two_addresses_have_no_broadcast() {
        let broadcast = |prefix: &str| prefix.parse::<Ipv4Prefix>().unwrap().broadcast();
        assert_eq!(broadcast("10.0.0.1/31"), None);
        assert_eq!(broadcast("10.0.0.1/32"), None);
        assert_eq!(broadcast("10.0.0.1/30"), Some(Ipv4Addr::new(10, 0, 0, 3)));
        assert_eq!(broadcast("10.1.2.3/8"), Some(Ipv4Addr::new(10, 255, 255, 255)));
    }

    #[test]
    fn network_is_the_prefix_without_its_host() {
        let prefix: Ipv4Prefix = "10.1.2.3/20".parse().unwrap();
        assert_eq!(prefix.network().to_string(), "10.1.0.0/20");
        assert_eq!(prefix.to_string(), "10.1.2.3/20");
    }
}
