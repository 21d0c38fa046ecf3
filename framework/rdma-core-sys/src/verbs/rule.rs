//! Flow rules in verbs' format: an attribute, then specifications in the order of the headers
//! (mlx5.md 1.3). Input: the fields of a frame to match. Output: bytes for `ibv_create_flow`.
//!
//! A field is a value and a mask; bits outside the mask match anything. Numbers are in host order
//! here, and in network order in the bytes.

use core::mem::offset_of;

use crate::bindings::*;

/// The kind of traffic that a rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowKind {
    /// Traffic that matches its specifications.
    #[default]
    Normal,
    /// All traffic that no other rule matches; the kernel receives none of it.
    AllDefault,
    /// All multicast that no other rule matches.
    MulticastDefault,
    /// A copy of all traffic, in both directions.
    Sniffer,
}

/// Fields of the Ethernet header: value and mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EthernetMatch {
    /// Destination.
    pub destination: Option<[u8; 6]>,
    /// Source.
    pub source: Option<[u8; 6]>,
    /// EtherType, behind a VLAN tag if there is one.
    pub ethertype: Option<u16>,
    /// VLAN identifier, 12 bits: the rest of the tag matches anything.
    pub vlan: Option<u16>,
}

/// Fields of the IPv4 header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv4Match {
    /// Source.
    pub source: Option<[u8; 4]>,
    /// Destination.
    pub destination: Option<[u8; 4]>,
    /// Protocol. Needs the extended specification, which older devices lack: prefer
    /// [`FlowRule::udp`] and [`FlowRule::tcp`].
    pub protocol: Option<u8>,
}

/// Ports of UDP or TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortsMatch {
    /// Source.
    pub source: Option<u16>,
    /// Destination.
    pub destination: Option<u16>,
}

/// A new rule, on one port.
///
/// ```
/// use rdma_core_sys::verbs::{EthernetMatch, FlowRule, Ipv4Match, PortsMatch};
///
/// let group = Ipv4Match { destination: Some([239, 1, 1, 1]), ..Ipv4Match::default() };
/// let mac = EthernetMatch { destination: Some([0x01, 0x00, 0x5e, 1, 1, 1]), ..EthernetMatch::default() };
/// let ports = PortsMatch { destination: Some(30001), ..PortsMatch::default() };
/// let rule = FlowRule::new(1).ethernet(mac).ipv4(group).udp(ports).tag(7);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    port: u8,
    kind: FlowKind,
    priority: u16,
    dont_trap: bool,
    specs: Vec<u8>,
    spec_count: u8,
}

impl FlowRule {
    /// A rule on a port (from 1) without match fields. Specifications are added in the order of the
    /// headers.
    pub const fn new(port: u8) -> Self {
        Self { port, kind: FlowKind::Normal, priority: 0, dont_trap: false, specs: Vec::new(), spec_count: 0 }
    }

    /// A rule for a whole kind of traffic.
    pub fn of_kind(port: u8, kind: FlowKind) -> Self {
        Self { kind, ..Self::new(port) }
    }

    /// Of several rules that match a frame, the one with the lowest number wins.
    #[must_use]
    pub fn priority(self, priority: u16) -> Self {
        Self { priority, ..self }
    }

    /// The frame continues to other rules too. Not every device supports it.
    #[must_use]
    pub fn dont_trap(self) -> Self {
        Self { dont_trap: true, ..self }
    }

    /// Ethernet.
    #[must_use]
    pub fn ethernet(self, fields: EthernetMatch) -> Self {
        const VAL: usize = offset_of!(ibv_flow_spec_eth, val);
        const MASK: usize = offset_of!(ibv_flow_spec_eth, mask);
        const DST: usize = offset_of!(ibv_flow_eth_filter, dst_mac);
        const SRC: usize = offset_of!(ibv_flow_eth_filter, src_mac);
        const ETHERTYPE: usize = offset_of!(ibv_flow_eth_filter, ether_type);
        const VLAN: usize = offset_of!(ibv_flow_eth_filter, vlan_tag);
        self.spec(IBV_FLOW_SPEC_ETH, size_of::<ibv_flow_spec_eth>(), |spec| {
            let mut pair = |at, value: &[u8], mask: &[u8]| {
                put(spec, VAL + at, value);
                put(spec, MASK + at, mask);
            };
            if let Some(mac) = fields.destination {
                pair(DST, &mac, &[0xff; 6]);
            }
            if let Some(mac) = fields.source {
                pair(SRC, &mac, &[0xff; 6]);
            }
            if let Some(ethertype) = fields.ethertype {
                pair(ETHERTYPE, &ethertype.to_be_bytes(), &[0xff; 2]);
            }
            if let Some(vlan) = fields.vlan {
                pair(VLAN, &vlan.to_be_bytes(), &0x0fff_u16.to_be_bytes());
            }
        })
    }

    /// IPv4.
    #[must_use]
    pub fn ipv4(self, fields: Ipv4Match) -> Self {
        const SRC: usize = offset_of!(ibv_flow_ipv4_ext_filter, src_ip);
        const DST: usize = offset_of!(ibv_flow_ipv4_ext_filter, dst_ip);
        const PROTO: usize = offset_of!(ibv_flow_ipv4_ext_filter, proto);
        // The extended filter begins with the plain one.
        const _: () = assert!(SRC == offset_of!(ibv_flow_ipv4_filter, src_ip));
        const _: () = assert!(DST == offset_of!(ibv_flow_ipv4_filter, dst_ip));
        let (kind, len, val, mask) = match fields.protocol {
            None => (
                IBV_FLOW_SPEC_IPV4,
                size_of::<ibv_flow_spec_ipv4>(),
                offset_of!(ibv_flow_spec_ipv4, val),
                offset_of!(ibv_flow_spec_ipv4, mask),
            ),
            Some(_) => (
                IBV_FLOW_SPEC_IPV4_EXT,
                size_of::<ibv_flow_spec_ipv4_ext>(),
                offset_of!(ibv_flow_spec_ipv4_ext, val),
                offset_of!(ibv_flow_spec_ipv4_ext, mask),
            ),
        };
        self.spec(kind, len, |spec| {
            for (at, address) in [(SRC, fields.source), (DST, fields.destination)] {
                if let Some(address) = address {
                    put(spec, val + at, &address);
                    put(spec, mask + at, &[0xff; 4]);
                }
            }
            if let Some(protocol) = fields.protocol {
                put(spec, val + PROTO, &[protocol]);
                put(spec, mask + PROTO, &[0xff]);
            }
        })
    }

    /// UDP.
    #[must_use]
    pub fn udp(self, ports: PortsMatch) -> Self {
        self.ports(IBV_FLOW_SPEC_UDP, ports)
    }

    /// TCP.
    #[must_use]
    pub fn tcp(self, ports: PortsMatch) -> Self {
        self.ports(IBV_FLOW_SPEC_TCP, ports)
    }

    /// A tag in the CQE of each packet, of which 24 bits are delivered.
    #[must_use]
    pub fn tag(self, tag: u32) -> Self {
        self.spec(IBV_FLOW_SPEC_ACTION_TAG, size_of::<ibv_flow_spec_action_tag>(), |spec| {
            put(spec, offset_of!(ibv_flow_spec_action_tag, tag_id), &tag.to_ne_bytes());
        })
    }

    /// The device drops matching packets.
    #[must_use]
    pub fn drop_packets(self) -> Self {
        self.spec(IBV_FLOW_SPEC_ACTION_DROP, size_of::<ibv_flow_spec_action_drop>(), |_| {})
    }

    fn ports(self, kind: ibv_flow_spec_type, ports: PortsMatch) -> Self {
        const VAL: usize = offset_of!(ibv_flow_spec_tcp_udp, val);
        const MASK: usize = offset_of!(ibv_flow_spec_tcp_udp, mask);
        const DST: usize = offset_of!(ibv_flow_tcp_udp_filter, dst_port);
        const SRC: usize = offset_of!(ibv_flow_tcp_udp_filter, src_port);
        self.spec(kind, size_of::<ibv_flow_spec_tcp_udp>(), |spec| {
            for (at, port) in [(DST, ports.destination), (SRC, ports.source)] {
                if let Some(port) = port {
                    put(spec, VAL + at, &port.to_be_bytes());
                    put(spec, MASK + at, &[0xff; 2]);
                }
            }
        })
    }

    /// Adds a specification, which starts with kind and length.
    fn spec(mut self, kind: ibv_flow_spec_type, len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let start = self.specs.len();
        self.specs.resize(start + len, 0);
        let spec = &mut self.specs[start..];
        put(spec, offset_of!(ibv_flow_spec_eth, type_), &kind.to_ne_bytes());
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        put(spec, offset_of!(ibv_flow_spec_eth, size), &len.to_ne_bytes());
        fill(spec);
        self.spec_count += 1;
        self
    }

    /// The attribute and the specifications, in words for alignment.
    pub(super) fn encode(&self) -> Vec<u64> {
        let head_len = size_of::<ibv_flow_attr>();
        let len = head_len + self.specs.len();
        let mut bytes = vec![0; len.next_multiple_of(8)];
        let kind = match self.kind {
            FlowKind::Normal => IBV_FLOW_ATTR_NORMAL,
            FlowKind::AllDefault => IBV_FLOW_ATTR_ALL_DEFAULT,
            FlowKind::MulticastDefault => IBV_FLOW_ATTR_MC_DEFAULT,
            FlowKind::Sniffer => IBV_FLOW_ATTR_SNIFFER,
        };
        let flags: u32 = if self.dont_trap { IBV_FLOW_ATTR_FLAGS_DONT_TRAP } else { 0 };
        put(&mut bytes, offset_of!(ibv_flow_attr, type_), &kind.to_ne_bytes());
        put(&mut bytes, offset_of!(ibv_flow_attr, size), &u16::try_from(len).unwrap_or(u16::MAX).to_ne_bytes());
        put(&mut bytes, offset_of!(ibv_flow_attr, priority), &self.priority.to_ne_bytes());
        put(&mut bytes, offset_of!(ibv_flow_attr, num_of_specs), &[self.spec_count]);
        put(&mut bytes, offset_of!(ibv_flow_attr, port), &[self.port]);
        put(&mut bytes, offset_of!(ibv_flow_attr, flags), &flags.to_ne_bytes());
        bytes[head_len..len].copy_from_slice(&self.specs);
        bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a rule, behind the attribute.
    fn specs(rule: &FlowRule) -> Vec<u8> {
        let words = rule.encode();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (head, specs) = bytes.split_at(size_of::<ibv_flow_attr>());
        assert_eq!(
            usize::from(head[8]) | usize::from(head[9]) << 8,
            head.len() + rule.specs.len(),
            "length in the attribute"
        );
        assert_eq!((head[12], head[13]), (rule.spec_count, rule.port));
        specs[..rule.specs.len()].to_vec()
    }

    #[test]
    fn rule_for_a_group_is_as_the_headers_say() {
        let mac =
            EthernetMatch { destination: Some([1, 0, 0x5e, 1, 2, 3]), vlan: Some(100), ..EthernetMatch::default() };
        let group =
            Ipv4Match { source: Some([10, 0, 0, 9]), destination: Some([239, 1, 2, 3]), ..Ipv4Match::default() };
        let ports = PortsMatch { destination: Some(30001), ..PortsMatch::default() };
        let rule = FlowRule::new(1).priority(3).ethernet(mac).ipv4(group).udp(ports).tag(0x0012_3456);
        let specs = specs(&rule);
        assert_eq!(rule.spec_count, 4);
        let (ethernet, specs) = specs.split_at(40);
        assert_eq!(ethernet[..6], [0x20, 0, 0, 0, 40, 0]);
        assert_eq!(ethernet[6..22], [1, 0, 0x5e, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100], "value");
        assert_eq!(ethernet[22..38], [255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0xff], "mask");
        let (ipv4, specs) = specs.split_at(24);
        assert_eq!(ipv4[..16], [0x30, 0, 0, 0, 24, 0, 0, 0, 10, 0, 0, 9, 239, 1, 2, 3]);
        assert_eq!(ipv4[16..], [0xff; 8]);
        let (udp, tag) = specs.split_at(16);
        assert_eq!(udp[..14], [0x41, 0, 0, 0, 16, 0, 0x75, 0x31, 0, 0, 0xff, 0xff, 0, 0], "destination port first");
        assert_eq!(tag, [0, 0x10, 0, 0, 12, 0, 0, 0, 0x56, 0x34, 0x12, 0], "in the host's order");
    }

    #[test]
    fn protocol_takes_the_extended_specification() {
        let igmp = Ipv4Match { protocol: Some(2), ..Ipv4Match::default() };
        let specs = specs(&FlowRule::new(1).ipv4(igmp));
        assert_eq!(specs[..8], [0x32, 0, 0, 0, 32, 0, 0, 0]);
        assert_eq!((specs[16], specs[28]), (2, 0xff));
        assert_eq!(specs.iter().filter(|byte| **byte != 0).count(), 4);
    }

    #[test]
    fn drop_is_a_specification_too() {
        let rule = FlowRule::new(2).tcp(PortsMatch { source: Some(80), ..PortsMatch::default() }).drop_packets();
        let specs = specs(&rule);
        assert_eq!(specs[..16], [0x40, 0, 0, 0, 16, 0, 0, 0, 0, 80, 0, 0, 0xff, 0xff, 0, 0]);
        assert_eq!(specs[16..], [1, 0x10, 0, 0, 8, 0, 0, 0]);
    }
}
