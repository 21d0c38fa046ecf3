//! ARP for IPv4 over Ethernet (RFC 826): requests and replies of 28 bytes.
//!
//! The neighbor table decides what to learn from a packet, and whether to answer.

use core::net::Ipv4Addr;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::field::{EmitError, EtherType, MacAddr};

/// Bytes of a packet for these two address families.
pub(crate) const PACKET_LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;

/// The operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArpOperation {
    /// Who has the target address?
    Request,
    /// The sender has it.
    Reply,
}

/// A packet as in the frame. A packet from `parse` is known to be Ethernet and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ArpPacket {
    hardware_type: U16,
    protocol_type: U16,
    hardware_len: u8,
    protocol_len: u8,
    operation: U16,
    sender_mac: MacAddr,
    sender_ip: [u8; 4],
    target_mac: MacAddr,
    target_ip: [u8; 4],
}

/// The values of a packet to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpFields {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's MAC address.
    pub sender_mac: MacAddr,
    /// The sender's IP address; unspecified in a probe (RFC 5227 2.1.1).
    pub sender_ip: Ipv4Addr,
    /// The target's MAC address; zero in a request.
    pub target_mac: MacAddr,
    /// The target's IP address: in a request the address to resolve, in a reply the requester's.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// A packet with these values.
    pub const fn new(fields: &ArpFields) -> Self {
        Self {
            hardware_type: U16::new(HARDWARE_ETHERNET),
            protocol_type: U16::new(EtherType::IPV4.0),
            hardware_len: 6,
            protocol_len: 4,
            operation: U16::new(match fields.operation {
                ArpOperation::Request => 1,
                ArpOperation::Reply => 2,
            }),
            sender_mac: fields.sender_mac,
            sender_ip: fields.sender_ip.octets(),
            target_mac: fields.target_mac,
            target_ip: fields.target_ip.octets(),
        }
    }

    /// The packet at the front of `bytes`, and the padding after it.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), ArpError> {
        let (packet, padding) = Self::ref_from_prefix(bytes).map_err(|_| ArpError::Short)?;
        if packet.hardware_type.get() != HARDWARE_ETHERNET {
            return Err(ArpError::HardwareType);
        }
        if packet.protocol_type.get() != EtherType::IPV4.0 {
            return Err(ArpError::ProtocolType);
        }
        if packet.hardware_len != 6 || packet.protocol_len != 4 {
            return Err(ArpError::AddressLength);
        }
        if !matches!(packet.operation.get(), 1 | 2) {
            return Err(ArpError::Operation);
        }
        // RFC 1812 3.3.2: a station's MAC address is never broadcast or multicast.
        if !packet.sender_mac.is_unicast() {
            return Err(ArpError::SenderMac);
        }
        Ok((packet, padding))
    }

    /// Writes the packet and returns its length of 28 bytes. The device pads to Ethernet's minimum.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, EmitError> {
        self.write_to_prefix(bytes).map_err(|_| EmitError::NoRoom)?;
        Ok(PACKET_LEN)
    }

    /// Request or reply.
    #[inline]
    pub fn operation(&self) -> ArpOperation {
        if self.operation.get() == 1 { ArpOperation::Request } else { ArpOperation::Reply }
    }

    /// The sender's MAC address.
    #[inline]
    pub const fn sender_mac(&self) -> MacAddr {
        self.sender_mac
    }

    /// The sender's IP address.
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        self.sender_ip.into()
    }

    /// The target's MAC address.
    #[inline]
    pub const fn target_mac(&self) -> MacAddr {
        self.target_mac
    }

    /// The target's IP address: in a request the address to resolve, in a reply the requester's.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        self.target_ip.into()
    }

    /// True for a probe: a host checks whether an address is free before taking it (RFC 5227
    /// 2.1.1).
    pub fn is_probe(&self) -> bool {
        self.operation() == ArpOperation::Request && self.sender_ip().is_unspecified()
    }

    /// True for an announcement, also called gratuitous: the sender announces its own address (RFC
    /// 5227 2.3).
    pub fn is_announcement(&self) -> bool {
        self.sender_ip == self.target_ip
    }
}

reasons! {
    /// Why bytes are not a valid ARP packet.
    ArpError {
        /// Fewer than 28 bytes.
        Short => "ARP packet short of 28 bytes",
        /// The hardware is not Ethernet.
        HardwareType => "ARP hardware is not Ethernet",
        /// The protocol is not IPv4.
        ProtocolType => "ARP protocol is not IPv4",
        /// The address lengths are not 6 and 4.
        AddressLength => "ARP address lengths are not 6 and 4",
        /// Neither request nor reply.
        Operation => "ARP operation is neither request nor reply",
        /// The sender's MAC address is a group or zero.
        SenderMac => "ARP sender MAC is not unicast",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: ArpFields = ArpFields {
        operation: ArpOperation::Request,
        sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        sender_ip: Ipv4Addr::new(10, 0, 0, 1),
        target_mac: MacAddr::ZERO,
        target_ip: Ipv4Addr::new(10, 0, 0, 2),
    };

    fn check(idx: usize, byte: u8, expected: ArpError) {
        let mut bytes = [0; 60];
        ArpPacket::new(&REQUEST).emit(&mut bytes).unwrap();
        bytes[idx] = byte;
        assert_eq!(ArpPacket::parse(&bytes).err(), Some(expected));
    }

    #[test]
    fn bad_packets_are_refused_by_name() {
        check(1, 6, ArpError::HardwareType);
        check(2, 0x86, ArpError::ProtocolType);
        check(4, 8, ArpError::AddressLength);
        check(5, 16, ArpError::AddressLength);
        check(7, 0, ArpError::Operation);
        check(7, 3, ArpError::Operation);
        check(8, 3, ArpError::SenderMac);
        assert_eq!(ArpPacket::parse(&[0; 27]), Err(ArpError::Short));
        assert_eq!(ArpPacket::new(&REQUEST).emit(&mut [0; 27]), Err(EmitError::NoRoom));
    }

    #[test]
    fn request_has_the_bytes_of_rfc_826() {
        let expected = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
        assert_eq!(ArpPacket::new(&REQUEST).as_bytes(), expected);
    }

    #[test]
    fn probe_and_announcement_are_told_apart() {
        let probe = ArpPacket::new(&ArpFields { sender_ip: Ipv4Addr::UNSPECIFIED, ..REQUEST });
        let announcement = ArpPacket::new(&ArpFields { target_ip: REQUEST.sender_ip, ..REQUEST });
        let request = ArpPacket::new(&REQUEST);
        assert!(probe.is_probe() && !probe.is_announcement());
        assert!(!announcement.is_probe() && announcement.is_announcement());
        assert!(!request.is_probe() && !request.is_announcement());
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes: [u8; 28]) {
            if let Ok((packet, _)) = ArpPacket::parse(&bytes) {
                prop_assert_eq!(packet.as_bytes(), bytes);
            }
        }

        #[test]
        fn written_packets_read_the_same(reply: bool, mac: [u8; 6], target_mac: [u8; 6], ips: [u32; 2]) {
            let fields = ArpFields {
                operation: if reply { ArpOperation::Reply } else { ArpOperation::Request },
                sender_mac: MacAddr([mac[0] & 0xfe | 2, mac[1], mac[2], mac[3], mac[4], mac[5]]),
                sender_ip: ips[0].into(),
                target_mac: MacAddr(target_mac),
                target_ip: ips[1].into(),
            };
            let mut bytes = [0xee; 46];
            ArpPacket::new(&fields).emit(&mut bytes).unwrap();
            let (packet, padding) = ArpPacket::parse(&bytes).unwrap();
            prop_assert_eq!(padding, [0xee; 18]);
            let read = ArpFields {
                operation: packet.operation(),
                sender_mac: packet.sender_mac(),
                sender_ip: packet.sender_ip(),
                target_mac: packet.target_mac(),
                target_ip: packet.target_ip(),
            };
            prop_assert_eq!(read, fields);
        }
    }
}
