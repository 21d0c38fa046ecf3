//! Steering rules: they select the frames that the device delivers to our queues. One type for all
//! devices; AF_XDP compiles it into a program, mlx5 into flow specifications, and [`Rule::matches`]
//! is the reference that both are tested against.
//!
//! A rule sets values for some fields and matches any value of the others. If the device shares its
//! port with the kernel, the kernel receives the frames that no rule matches.

use core::fmt;
use core::net::Ipv4Addr;
use core::ops::BitOr;

use crate::wire::{EtherType, EthernetFrame, Ipv4Packet, MacAddr, Protocol};

/// The match fields of a frame to be steered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Destination MAC address.
    pub destination_mac: Option<MacAddr>,
    /// VLAN identifier of the outermost tag, 0 to 4095; `None` takes tagged and untagged frames.
    pub vlan: Option<u16>,
    /// EtherType behind the tags.
    pub ethertype: Option<EtherType>,
    /// IPv4 source address.
    pub source: Option<Ipv4Addr>,
    /// IPv4 destination address.
    pub destination: Option<Ipv4Addr>,
    /// IPv4 protocol.
    pub protocol: Option<Protocol>,
    /// UDP or TCP source port.
    pub source_port: Option<u16>,
    /// UDP or TCP destination port.
    pub destination_port: Option<u16>,
    /// The tag that the device gives to frames of this rule, 24 bits. It is not compared with
    /// frames.
    pub flow_tag: Option<u32>,
}

impl Rule {
    /// Every frame.
    pub const ALL: Self = Self {
        destination_mac: None,
        vlan: None,
        ethertype: None,
        source: None,
        destination: None,
        protocol: None,
        source_port: None,
        destination_port: None,
        flow_tag: None,
    };

    /// UDP datagrams to an address and port, the usual rule for a multicast group.
    pub const fn udp(destination: Ipv4Addr, port: u16) -> Self {
        Self { destination_port: Some(port), ..Self::protocol(Protocol::UDP) }.to(destination)
    }

    /// TCP segments to an address and port.
    pub const fn tcp(destination: Ipv4Addr, port: u16) -> Self {
        Self { destination_port: Some(port), ..Self::protocol(Protocol::TCP) }.to(destination)
    }

    /// IGMP, for any group.
    pub const fn igmp() -> Self {
        Self::protocol(Protocol::IGMP)
    }

    /// ARP.
    pub const fn arp() -> Self {
        Self { ethertype: Some(EtherType::ARP), ..Self::ALL }
    }

    /// All IPv4 packets of a protocol.
    pub const fn protocol(protocol: Protocol) -> Self {
        Self { ethertype: Some(EtherType::IPV4), protocol: Some(protocol), ..Self::ALL }
    }

    /// Restricts the rule to one source address: source-specific multicast, or a peer.
    #[must_use]
    pub const fn from(self, source: Ipv4Addr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Restricts the rule to one destination address.
    #[must_use]
    pub const fn to(self, destination: Ipv4Addr) -> Self {
        Self { destination: Some(destination), ..self }
    }

    /// Restricts the rule to one VLAN.
    #[must_use]
    pub const fn on_vlan(self, vlan: u16) -> Self {
        Self { vlan: Some(vlan), ..self }
    }

    /// Adds a flow tag for frames that match.
    #[must_use]
    pub const fn tagged(self, flow_tag: u32) -> Self {
        Self { flow_tag: Some(flow_tag), ..self }
    }

    /// The fields that the rule sets.
    pub fn fields(&self) -> Fields {
        let mut fields = Fields::NONE;
        for (named, field) in [
            (self.destination_mac.is_some(), Fields::DESTINATION_MAC),
            (self.vlan.is_some(), Fields::VLAN),
            (self.ethertype.is_some(), Fields::ETHERTYPE),
            (self.source.is_some(), Fields::SOURCE),
            (self.destination.is_some(), Fields::DESTINATION),
            (self.protocol.is_some(), Fields::PROTOCOL),
            (self.source_port.is_some(), Fields::SOURCE_PORT),
            (self.destination_port.is_some(), Fields::DESTINATION_PORT),
        ] {
            if named {
                fields = fields | field;
            }
        }
        fields
    }

    /// Checks that the rule is valid: a field of an inner header needs the outer header before it,
    /// and numbers are in range. Devices refuse every rule that this refuses.
    pub fn check(&self) -> Result<(), SteerError> {
        let ipv4 = self.ethertype == Some(EtherType::IPV4);
        let l3_named = self.source.is_some() || self.destination.is_some() || self.protocol.is_some();
        if l3_named && !ipv4 {
            return Err(SteerError::NeedsIpv4);
        }
        let l4 = matches!(self.protocol, Some(Protocol::UDP | Protocol::TCP));
        if (self.source_port.is_some() || self.destination_port.is_some()) && !l4 {
            return Err(SteerError::NeedsPorts);
        }
        if self.vlan.is_some_and(|vlan| vlan > 4095) {
            return Err(SteerError::Vlan(self.vlan.unwrap_or_default()));
        }
        if self.flow_tag.is_some_and(|tag| tag >= 1 << 24) {
            return Err(SteerError::FlowTag(self.flow_tag.unwrap_or_default()));
        }
        Ok(())
    }

    /// Whether the rule matches `frame`. The reference in software: 10 to 30 ns.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let Ok(ethernet) = EthernetFrame::parse(frame) else {
            return *self == Self { flow_tag: self.flow_tag, ..Self::ALL };
        };
        is(self.destination_mac, ethernet.header.dst())
            && (self.vlan.is_none() || self.vlan == ethernet.tags.outer().map(|tag| tag.vid()))
            && is(self.ethertype, ethernet.ethertype)
            && self.matches_ipv4(ethernet.payload)
    }

    fn matches_ipv4(&self, bytes: &[u8]) -> bool {
        if self.source.is_none() && self.destination.is_none() && self.protocol.is_none() {
            return true;
        }
        let Ok(packet) = Ipv4Packet::parse(bytes) else { return false };
        is(self.source, packet.header.source())
            && is(self.destination, packet.header.destination())
            && is(self.protocol, packet.header.protocol())
            && self.matches_ports(&packet)
    }

    fn matches_ports(&self, packet: &Ipv4Packet<'_>) -> bool {
        if self.source_port.is_none() && self.destination_port.is_none() {
            return true;
        }
        // Later fragments carry no ports; no NIC can match them either.
        if packet.header.fragment_offset() != 0 {
            return false;
        }
        let Some(&[a, b, c, d]) = packet.payload.first_chunk() else { return false };
        is(self.source_port, u16::from_be_bytes([a, b])) && is(self.destination_port, u16::from_be_bytes([c, d]))
    }
}

fn is<T: PartialEq>(wanted: Option<T>, value: T) -> bool {
    wanted.is_none_or(|wanted| wanted == value)
}

impl fmt::Display for Rule {
    /// For the operator: `udp to 224.67.0.199:16642 vlan 20`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.protocol, self.ethertype) {
            (Some(protocol), _) => write!(f, "{protocol}")?,
            (None, Some(ethertype)) => write!(f, "{ethertype}")?,
            (None, None) => write!(f, "all frames")?,
        }
        endpoint(f, "from", self.source, self.source_port)?;
        endpoint(f, "to", self.destination, self.destination_port)?;
        if let Some(mac) = self.destination_mac {
            write!(f, " mac {mac}")?;
        }
        if let Some(vlan) = self.vlan {
            write!(f, " vlan {vlan}")?;
        }
        Ok(())
    }
}

fn endpoint(f: &mut fmt::Formatter<'_>, side: &str, address: Option<Ipv4Addr>, port: Option<u16>) -> fmt::Result {
    match (address, port) {
        (None, None) => Ok(()),
        (Some(address), None) => write!(f, " {side} {address}"),
        (None, Some(port)) => write!(f, " {side} port {port}"),
        (Some(address), Some(port)) => write!(f, " {side} {address}:{port}"),
    }
}

/// A set of fields that rules may name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields(u8);

impl Fields {
    /// No field.
    pub const NONE: Self = Self(0);
    /// Destination MAC address.
    pub const DESTINATION_MAC: Self = Self(1);
    /// Identifier of the outermost VLAN tag.
    pub const VLAN: Self = Self(2);
    /// EtherType behind the tags.
    pub const ETHERTYPE: Self = Self(4);
    /// IPv4 source address.
    pub const SOURCE: Self = Self(8);
    /// IPv4 destination address.
    pub const DESTINATION: Self = Self(16);
    /// IPv4 protocol.
    pub const PROTOCOL: Self = Self(32);
    /// UDP or TCP source port.
    pub const SOURCE_PORT: Self = Self(64);
    /// UDP or TCP destination port.
    pub const DESTINATION_PORT: Self = Self(128);
    /// Every field.
    pub const ALL: Self = Self(255);

    /// Whether all fields of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The number of fields in the set.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The fields of both.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Fields {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Identifies a rule in place, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub(super) u32);

/// Why a rule was not installed. The other rules do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SteerError {
    /// Addresses or a protocol without EtherType IPv4.
    NeedsIpv4,
    /// Ports without UDP or TCP.
    NeedsPorts,
    /// A VLAN identifier over 4095.
    Vlan(u16),
    /// A flow tag over 24 bits.
    FlowTag(u32),
    /// The device cannot match on these fields.
    Unsupported {
        /// Fields of the rule that the device cannot match.
        fields: Fields,
    },
    /// No more rules fit.
    TableFull {
        /// Maximum number of rules.
        rules_max: usize,
    },
    /// The device cannot serve this rule beside another one with another queue or another flow tag.
    Overlaps {
        /// The other rule, which is in place.
        other: Rule,
    },
    /// The device has no such queue.
    NoQueue {
        /// The requested queue.
        idx: u16,
    },
    /// The rule is not in place.
    NoRule {
        /// The requested rule.
        id: RuleId,
    },
    /// The process lacks the privilege to steer.
    NoPermission {
        /// The capabilities that a process without root needs for this device, for setcap(8).
        capabilities: &'static str,
    },
    /// The kernel or the NIC refused the rule.
    Refused {
        /// The system's error number.
        errno: i32,
    },
    /// The broker that the queue is from refused the rule.
    Broker {
        /// The error number that it gave.
        errno: i32,
    },
}

impl fmt::Display for SteerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsIpv4 => {
                write!(f, "the rule names an address or protocol but not IPv4: add the EtherType 0x0800")
            }
            Self::NeedsPorts => write!(f, "the rule names a port but neither UDP nor TCP: add the protocol"),
            Self::Vlan(vlan) => write!(f, "there is no VLAN {vlan}: use 0 to 4095"),
            Self::FlowTag(tag) => {
                write!(f, "the flow tag {tag} does not fit 24 bits of the device: use less than 16,777,215")
            }
            Self::Unsupported { fields } => write!(
                f,
                "the device cannot match on all fields of the rule ({fields:?} are missing): use a rule with fewer"
            ),
            Self::TableFull { rules_max } => {
                write!(f, "the device holds {rules_max} rules and all are in use: take one back, or match on less")
            }
            Self::Overlaps { other } => write!(
                f,
                "the device cannot tell its frames from those of `{other}`, which go to another queue or with another flow tag: use the \
                 same queue and tag for both, or rules that name no frame in common"
            ),
            Self::NoQueue { idx } => write!(f, "there is no queue {idx} to steer to"),
            Self::NoRule { id } => write!(f, "rule {} is not in place", id.0),
            Self::NoPermission { capabilities } => write!(
                f,
                "no permission for this rule: run as root, or give the program all that it needs with `setcap {capabilities}+ep PROGRAM`"
            ),
            Self::Broker { errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(f, "the broker refuses the flow ({error}): its log says why, and what to do")
            }
            Self::Refused { errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(
                    f,
                    "the system did not take the rule ({error}); the others are in place: use fewer or simpler rules"
                )
            }
        }
    }
}

impl std::error::Error for SteerError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ethernet::EthernetFields;
    use crate::wire::{EthernetHeader, Ipv4Fields, Ipv4Header, VlanTag, VlanTags};

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    /// A UDP datagram from 10.0.0.1:5000 to 239.1.2.3:9000, tagged where asked.
    fn frame(vlan: Option<u16>) -> Vec<u8> {
        let tags = vlan.map_or(VlanTags::NONE, |vid| VlanTags::single(VlanTag::new(vid)));
        let mut bytes = vec![0; 14 + tags.len()];
        let dst = MacAddr::multicast_ipv4(GROUP);
        let fields = EthernetFields { dst, src: MacAddr::ZERO, ethertype: EtherType::IPV4 };
        EthernetHeader::new(fields).emit_tagged(&tags, &mut bytes).unwrap();
        let ipv4 = Ipv4Fields {
            source: SENDER,
            destination: GROUP,
            protocol: Protocol::UDP,
            ttl: 1,
            tos: 0,
            identification: 0,
            dont_fragment: true,
            payload_len: 8,
        };
        let mut header = [0; 20];
        Ipv4Header::new(&ipv4).unwrap().emit(&mut header).unwrap();
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&[0x13, 0x88, 0x23, 0x28, 0, 8, 0, 0]);
        bytes
    }

    #[test]
    fn rule_of_a_group_takes_its_datagrams_only() {
        assert!(Rule::udp(GROUP, 9000).matches(&frame(None)));
        assert!(!Rule::udp(GROUP, 9001).matches(&frame(None)));
        assert!(!Rule::udp(SENDER, 9000).matches(&frame(None)));
        assert!(!Rule::tcp(GROUP, 9000).matches(&frame(None)));
        assert!(!Rule::igmp().matches(&frame(None)) && !Rule::arp().matches(&frame(None)));
    }

    #[test]
    fn rule_with_a_source_takes_no_other_source() {
        assert!(Rule::udp(GROUP, 9000).from(SENDER).matches(&frame(None)));
        assert!(!Rule::udp(GROUP, 9000).from(GROUP).matches(&frame(None)));
    }

    #[test]
    fn rule_without_vlan_takes_tagged_and_untagged() {
        assert!(Rule::udp(GROUP, 9000).matches(&frame(Some(7))));
        assert!(Rule::udp(GROUP, 9000).on_vlan(7).matches(&frame(Some(7))));
        assert!(!Rule::udp(GROUP, 9000).on_vlan(7).matches(&frame(None)));
        assert!(!Rule::udp(GROUP, 9000).on_vlan(7).matches(&frame(Some(8))));
    }

    #[test]
    fn cut_frames_match_no_rule_that_names_what_is_missing() {
        let frame = frame(None);
        for len in 0..frame.len() - 4 {
            assert!(!Rule::udp(GROUP, 9000).matches(&frame[..len]), "{len} bytes");
            assert!(Rule::ALL.matches(&frame[..len]), "{len} bytes");
        }
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        let port = Some(1);
        let refused = |rule: Rule| rule.check().unwrap_err();
        assert_eq!(refused(Rule { destination: Some(GROUP), ..Rule::ALL }), SteerError::NeedsIpv4);
        assert_eq!(refused(Rule { source_port: port, ..Rule::igmp() }), SteerError::NeedsPorts);
        assert_eq!(refused(Rule::arp().on_vlan(4096)), SteerError::Vlan(4096));
        assert_eq!(refused(Rule::arp().tagged(1 << 24)), SteerError::FlowTag(1 << 24));
        assert_eq!(Rule::udp(GROUP, 9000).from(SENDER).on_vlan(1).tagged(5).check(), Ok(()));
    }

    #[test]
    fn rule_reads_as_an_operator_would_say_it() {
        assert_eq!(Rule::udp(GROUP, 9000).on_vlan(20).to_string().to_lowercase(), "udp to 239.1.2.3:9000 vlan 20");
    }
}
