//! The fields that several formats share: MAC addresses, EtherTypes, IP protocol numbers, and the
//! errors of emit.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 48-bit Ethernet address in the order in which it is sent.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones: every station of the segment.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zeros: ARP's value for an unknown address.
    pub const ZERO: Self = Self([0; 6]);

    /// The address that carries an IPv4 multicast group: 01:00:5e and the low 23 bits
    /// (RFC 1112 6.4).
    ///
    /// 32 groups share each address, so a match on it never replaces a match on the group.
    #[inline]
    pub const fn multicast_ipv4(group: Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// True for group addresses, the broadcast among them: the lowest bit of the first byte.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// True for ff:ff:ff:ff:ff:ff.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.to_bits() == 0xffff_ffff_ffff
    }

    /// True for an address that one station may own: neither a group nor all zeros.
    #[inline]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && self.to_bits() != 0
    }

    /// The address in the low 48 bits: equality as one compare of registers.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    /// Reads six two-digit hexadecimal bytes with `:` or `-` between them, in either case.
    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let text = text.as_bytes();
        let separator = match text.get(2) {
            Some(&byte @ (b':' | b'-')) => byte,
            _ => return Err(MacAddrError::Form),
        };
        if text.len() != 17 {
            return Err(MacAddrError::Form);
        }
        let mut mac = [0; 6];
        for (idx, group) in text.chunks(3).enumerate() {
            if group.get(2).is_some_and(|&byte| byte != separator) {
                return Err(MacAddrError::Form);
            }
            mac[idx] = hex_digit(group[0])? << 4 | hex_digit(group[1])?;
        }
        Ok(Self(mac))
    }
}

fn hex_digit(byte: u8) -> Result<u8, MacAddrError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(MacAddrError::Digit),
    }
}

reasons! {
    /// Why a text is not a MAC address.
    MacAddrError {
        /// The text is not six pairs of digits with the same separator between them.
        Form => "a MAC address is six two-digit bytes like 02:00:5e:10:00:01",
        /// A pair holds something other than hexadecimal digits.
        Digit => "a MAC address has hexadecimal digits only, like 02:00:5e:10:00:01",
    }
}

/// The type of an Ethernet payload. Numbers below 0x0600 are lengths of 802.3 frames, not types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// A customer VLAN tag (802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// A service VLAN tag (802.1ad, QinQ).
    pub const QINQ: Self = Self(0x88a8);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);

    /// True for both tag protocol identifiers that we strip.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ)
    }

    /// True if the number is the length of an 802.3 frame (IEEE 802.3 3.2.6).
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 < 0x0600
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("IPv4"),
            Self::ARP => f.write_str("ARP"),
            Self::VLAN => f.write_str("802.1Q"),
            Self::QINQ => f.write_str("802.1ad"),
            Self::IPV6 => f.write_str("IPv6"),
            Self(other) => write!(f, "0x{other:04x}"),
        }
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The protocol of an IPv4 payload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP.
    pub const ICMP: Self = Self(1);
    /// IGMP.
    pub const IGMP: Self = Self(2);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ICMP => f.write_str("ICMP"),
            Self::IGMP => f.write_str("IGMP"),
            Self::TCP => f.write_str("TCP"),
            Self::UDP => f.write_str("UDP"),
            Self(other) => write!(f, "protocol {other}"),
        }
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

reasons! {
    /// Why a header was not written. The buffer may hold part of it.
    EmitError {
        /// The buffer ends before the header does.
        NoRoom => "buffer too short for the header",
        /// The payload does not fit a 16-bit length field.
        TooLong => "payload too long for the length field",
        /// The options are over 40 bytes or no multiple of 4.
        Options => "options over 40 bytes or not a multiple of 4",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_mac_texts_are_refused() {
        for text in
            ["", "02", "02:00:5e:10:00", "02:00:5e:10:00:01:", "02:00-5e:10:00:01", "2:0:5e:10:0:1:000", "€€€€€€"]
        {
            assert_eq!(text.parse::<MacAddr>(), Err(MacAddrError::Form), "{text}");
        }
        assert_eq!("02:00:5e:10:00:0g".parse::<MacAddr>(), Err(MacAddrError::Digit));
        assert_eq!("+2:00:5e:10:00:01".parse::<MacAddr>(), Err(MacAddrError::Digit));
    }

    #[test]
    fn mac_text_round_trips() {
        let mac = MacAddr([0x02, 0xff, 0x5e, 0x10, 0xab, 0x01]);
        assert_eq!(std::format!("{mac}"), "02:ff:5e:10:ab:01");
        assert_eq!("02:ff:5e:10:ab:01".parse(), Ok(mac));
        assert_eq!("02-FF-5E-10-AB-01".parse(), Ok(mac));
    }

    #[test]
    fn group_mac_takes_the_low_23_bits() {
        let mac = MacAddr::multicast_ipv4(Ipv4Addr::new(233, 215, 21, 4));
        assert_eq!(mac, MacAddr([0x01, 0x00, 0x5e, 0x57, 0x15, 0x04]));
        assert_eq!(mac, MacAddr::multicast_ipv4(Ipv4Addr::new(224, 87, 21, 4)));
    }

    #[test]
    fn mac_kinds_are_told_apart() {
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
        assert!(!MacAddr::ZERO.is_multicast() && !MacAddr::ZERO.is_unicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!MacAddr([1, 0, 0x5e, 0, 0, 1]).is_unicast());
    }
}
