//! Rules in their verbs form: a list of specifications with masks, and a priority (mlx5.md 1.3).
//! Pure: this file makes no calls to a device.
//!
//! A rule is a flow of the type `NORMAL`: an Ethernet specification, then one of IPv4 and one of
//! ports if the rule sets such fields, last the tag. Fields that it does not set have a mask of
//! zeros, so [`Rule::ALL`] is one empty Ethernet specification. The NIC has two differences from
//! [`Rule::matches`]:
//!
//! - a rule for a group also matches the group's MAC address, by which the NIC recognizes a group:
//!   a frame to the group's IP address and another MAC address does not match;
//! - a VLAN is that of an 802.1Q tag. An outer tag of 802.1ad is ignored.
//!
//! If queues share rules, a NIC hashes a flow by one kind of header only, so a rule that leaves the
//! protocol open becomes several flows ([`spread`]).
//!
//! If several rules match a frame, the one with the lowest priority number wins. Groups are an
//! exception: the kernel keeps their rules in a separate table after all others, where priorities
//! have no effect and the first entry that matches a frame takes it (linux
//! drivers/infiniband/hw/mlx5/fs.c, `MLX5_IB_FLOW_MCAST_PRIO`). The same group may go to several
//! queues, as one entry with several destinations. [`exclude`] reports the combinations that this
//! does not allow.

use core::net::Ipv4Addr;

use arrayvec::ArrayVec;

use crate::device::mlx5::completion::cqe::flow_tag_on_wire;
use crate::device::mlx5::config::RssFields;
use crate::device::steering::{Fields, Rule};
use crate::wire::{EtherType, MacAddr, Protocol};

/// One specification of a flow. `None` is a mask of zeros, a value is a mask of ones; for the VLAN
/// the mask has 12 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    Ethernet {
        destination: Option<MacAddr>,
        ethertype: Option<EtherType>,
        vlan: Option<u16>,
    },
    /// `protocol` is set if no specification of ports implies it.
    Ipv4 {
        source: Option<Ipv4Addr>,
        destination: Option<Ipv4Addr>,
        protocol: Option<Protocol>,
    },
    Tcp {
        source: Option<u16>,
        destination: Option<u16>,
    },
    Udp {
        source: Option<u16>,
        destination: Option<u16>,
    },
    Tag(u32),
}

/// A rule in the device's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(in crate::device::mlx5) specs: ArrayVec<Spec, 4>,
    /// The lowest number wins.
    pub(in crate::device::mlx5) priority: u16,
}

/// Priority numbers that every kernel has: some have eight, newer ones sixteen.
pub(crate) const PRIORITIES: u16 = 8;

impl Flow {
    /// The flow for `rule`, which passed [`Rule::check`].
    pub(in crate::device::mlx5) fn of(rule: &Rule) -> Self {
        let mut specs = ArrayVec::new();
        specs.push(ethernet(rule));
        if rule.source.is_some() || rule.destination.is_some() || rule.protocol.is_some() {
            specs.push(ipv4(rule));
        }
        let (source, destination) = (rule.source_port, rule.destination_port);
        match rule.protocol {
            Some(Protocol::TCP) => specs.push(Spec::Tcp { source, destination }),
            Some(Protocol::UDP) => specs.push(Spec::Udp { source, destination }),
            _ => {}
        }
        if let Some(tag) = rule.flow_tag.and_then(flow_tag_on_wire) {
            specs.push(Spec::Tag(tag));
        }
        Self { specs, priority: priority(rule) }
    }
}

fn ethernet(rule: &Rule) -> Spec {
    Spec::Ethernet { destination: destination_mac(rule), ethertype: rule.ethertype, vlan: rule.vlan }
}

/// The destination MAC address to match: the group's if the rule sets a group.
fn destination_mac(rule: &Rule) -> Option<MacAddr> {
    let group = rule.destination.filter(Ipv4Addr::is_multicast).map(MacAddr::multicast_ipv4);
    rule.destination_mac.or(group)
}

/// TCP and UDP have separate specifications, whose presence implies the protocol.
fn ipv4(rule: &Rule) -> Spec {
    let protocol = rule.protocol.filter(|protocol| !matches!(*protocol, Protocol::TCP | Protocol::UDP));
    Spec::Ipv4 { source: rule.source, destination: rule.destination, protocol }
}

/// The more specific a rule, the higher its precedence: ports before addresses before link fields,
/// and more fields before fewer. The lowest number wins.
pub(crate) fn priority(rule: &Rule) -> u16 {
    let fields = rule.fields();
    let names = |any: &[Fields]| any.iter().any(|&field| fields.contains(field));
    let count = fields.count();
    if names(&[Fields::SOURCE_PORT, Fields::DESTINATION_PORT]) {
        // EtherType, protocol and a port at least.
        match count {
            ..=4 => 2,
            5..=6 => 1,
            _ => 0,
        }
    } else if names(&[Fields::SOURCE, Fields::DESTINATION, Fields::PROTOCOL]) {
        // EtherType and one more at least.
        match count {
            ..=2 => 5,
            3..=4 => 4,
            _ => 3,
        }
    } else if count > 0 {
        6
    } else {
        PRIORITIES - 1
    }
}

/// Whether the NIC cannot serve both rules, which have different queues or different tags.
pub(crate) fn exclude(one: &Rule, other: &Rule) -> bool {
    let [first, second] =
        [one, other].map(|rule| Rule { destination_mac: destination_mac(rule), flow_tag: None, ..*rule });
    let is_group = |rule: &Rule| rule.destination_mac.is_some_and(|mac| mac.is_multicast());
    if !overlap(&first, &second) {
        return false;
    }
    match (is_group(&first), is_group(&second)) {
        // Of two priorities one wins; two equal matches are one entry, which would copy frames, or
        // has two tags.
        (false, false) => first == second,
        // One entry has one tag, and only one of two entries takes a frame.
        (true, true) => first != second || one.flow_tag != other.flow_tag,
        (true, false) => covers(other, one),
        (false, true) => covers(one, other),
    }
}

/// Whether some frame matches both.
fn overlap(one: &Rule, other: &Rule) -> bool {
    fn meet<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
        one.is_none() || other.is_none() || one == other
    }
    meet(one.destination_mac, other.destination_mac)
        && meet(one.vlan, other.vlan)
        && meet(one.ethertype, other.ethertype)
        && meet(one.source, other.source)
        && meet(one.destination, other.destination)
        && meet(one.protocol, other.protocol)
        && meet(one.source_port, other.source_port)
        && meet(one.destination_port, other.destination_port)
}

/// Whether `rule`, which sets no group and so has precedence, takes frames that should be the
/// group's: it is the less specific one.
fn covers(rule: &Rule, group: &Rule) -> bool {
    priority(group) < priority(rule) || group.fields().contains(rule.fields())
}

/// The header fields by which a flow's frames are spread over the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spreader {
    /// None: all go to the first queue.
    None,
    /// Their IPv4 addresses.
    Addresses,
    /// Addresses and TCP ports.
    Tcp,
    /// Addresses and UDP ports.
    Udp,
}

/// The flows of a rule under a hash: one for each kind of header; the more specific ones have more
/// fields and so precedence.
pub(crate) fn spread(rule: &Rule, by: RssFields) -> ArrayVec<(Rule, Spreader), 4> {
    let mut flows = ArrayVec::new();
    let ipv4 = Rule { ethertype: Some(EtherType::IPV4), ..*rule };
    match (rule.ethertype, rule.protocol, by) {
        (Some(EtherType::IPV4), Some(Protocol::TCP), RssFields::Ports) => flows.push((*rule, Spreader::Tcp)),
        (Some(EtherType::IPV4), Some(Protocol::UDP), RssFields::Ports) => flows.push((*rule, Spreader::Udp)),
        (Some(EtherType::IPV4) | None, None, RssFields::Ports) => {
            flows.push((Rule { protocol: Some(Protocol::TCP), ..ipv4 }, Spreader::Tcp));
            flows.push((Rule { protocol: Some(Protocol::UDP), ..ipv4 }, Spreader::Udp));
            flows.push((ipv4, Spreader::Addresses));
        }
        (Some(EtherType::IPV4) | None, ..) => flows.push((ipv4, Spreader::Addresses)),
        (Some(_), ..) => {}
    }
    if rule.ethertype != Some(EtherType::IPV4) {
        flows.push((*rule, Spreader::None));
    }
    flows
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use proptest::prelude::*;

    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    /// A NIC in a few lines, from mlx5.md 1.3 and not from the code above: whether all
    /// specifications match the frame.
    fn takes(flow: &Flow, frame: &[u8]) -> bool {
        let be16 = |at: usize| frame.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let mut at = 12;
        let mut tag = None;
        while matches!(be16(at), Some(0x8100 | 0x88a8)) && at < 20 {
            tag = tag.or(be16(at + 2));
            at += 4;
        }
        let Some(ethertype) = be16(at) else { return flow.specs.iter().all(|spec| is_empty(*spec)) };
        let l3 = at + 2;
        let ipv4 = ethertype == 0x0800 && frame.get(l3).is_some_and(|byte| byte >> 4 == 4);
        let header_len = usize::from(frame.get(l3).copied().unwrap_or(0) & 15) * 4;
        let first = be16(l3 + 6).is_some_and(|fragment| fragment & 0x1fff == 0);
        let address = |at| frame.get(at..at + 4).map(|four: &[u8]| Ipv4Addr::new(four[0], four[1], four[2], four[3]));
        let is = |wanted: Option<u16>, value: Option<u16>| wanted.is_none() || wanted == value;
        let ports = |number: u8, source, destination| {
            let here = l3 + header_len;
            let read = |at| if first { be16(at) } else { None };
            ipv4 && frame.get(l3 + 9) == Some(&number) && is(source, read(here)) && is(destination, read(here + 2))
        };
        flow.specs.iter().all(|spec| match *spec {
            Spec::Ethernet { destination, ethertype: kind, vlan } => {
                destination.is_none_or(|mac| mac.0 == frame[..6])
                    && is(kind.map(|kind| kind.0), Some(ethertype))
                    && is(vlan, tag.map(|tag| tag & 0xfff))
            }
            Spec::Ipv4 { source, destination, protocol } => {
                ipv4 && source.is_none_or(|source| address(l3 + 12) == Some(source))
                    && destination.is_none_or(|destination| address(l3 + 16) == Some(destination))
                    && protocol.is_none_or(|protocol| frame.get(l3 + 9) == Some(&protocol.0))
            }
            Spec::Tcp { source, destination } => ports(6, source, destination),
            Spec::Udp { source, destination } => ports(17, source, destination),
            Spec::Tag(_) => true,
        })
    }

    fn is_empty(spec: Spec) -> bool {
        matches!(spec, Spec::Ethernet { destination: None, ethertype: None, vlan: None } | Spec::Tag(_))
    }

    #[test]
    fn group_is_named_by_its_mac_address_too() {
        let Spec::Ethernet { destination, ethertype, vlan } = Flow::of(&Rule::udp(GROUP, 9000)).specs[0] else {
            panic!()
        };
        assert_eq!(destination, Some(MacAddr([0x01, 0x00, 0x5e, 1, 2, 3])));
        assert_eq!((ethertype, vlan), (Some(EtherType::IPV4), None));
        let unicast = Flow::of(&Rule::udp(SENDER, 9000));
        assert!(matches!(unicast.specs[0], Spec::Ethernet { destination: None, .. }));
    }

    #[test]
    fn everything_is_one_empty_specification() {
        let flow = Flow::of(&Rule::ALL);
        assert!(flow.specs.len() == 1 && is_empty(flow.specs[0]));
        assert!(takes(&flow, &[]) && takes(&flow, &[0xff; 60]));
    }

    #[test]
    fn protocols_without_ports_are_named_in_the_ipv4_header() {
        let igmp = Flow::of(&Rule::igmp());
        assert_eq!(igmp.specs[1], Spec::Ipv4 { source: None, destination: None, protocol: Some(Protocol::IGMP) });
        let udp = Flow::of(&Rule::protocol(Protocol::UDP));
        assert_eq!(udp.specs[1], Spec::Ipv4 { source: None, destination: None, protocol: None });
        assert_eq!(udp.specs[2], Spec::Udp { source: None, destination: None });
    }

    #[test]
    fn tag_comes_last() {
        let flow = Flow::of(&Rule::udp(GROUP, 9000).from(SENDER).on_vlan(7).tagged(0));
        assert_eq!(flow.specs.len(), 4);
        assert_eq!(flow.specs[3], Spec::Tag(1), "the device says 0 of frames without a tag");
    }

    #[test]
    fn more_telling_rules_go_first() {
        let five_tuple = Rule { source_port: Some(1), ..Rule::tcp(GROUP, 2) }.from(SENDER);
        let rules = [
            five_tuple.on_vlan(3),
            Rule::udp(GROUP, 9000).from(SENDER),
            Rule { destination_port: Some(9000), ..Rule::protocol(Protocol::UDP) },
            Rule::protocol(Protocol::UDP).to(GROUP).from(SENDER).on_vlan(1),
            Rule::protocol(Protocol::UDP).to(GROUP),
            Rule::igmp().to(GROUP),
            Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL }.to(GROUP),
            Rule::arp(),
            Rule::ALL,
        ];
        let priorities: Vec<_> = rules.iter().map(|rule| Flow::of(rule).priority).collect();
        assert_eq!(priorities, [0, 1, 2, 3, 4, 4, 5, 6, 7]);
    }

    #[test]
    fn rule_that_leaves_the_kind_of_header_open_is_a_flow_for_each() {
        let check = |rule: Rule, by, expected: &[Spreader]| {
            let flows = spread(&rule, by);
            assert_eq!(flows.iter().map(|(_, spreader)| *spreader).collect::<Vec<_>>(), expected, "{rule}");
            assert_eq!(flows.last().map(|(last, _)| *last), Some(rule), "the rule itself comes last");
            assert!(flows.iter().all(|(flow, _)| flow.check().is_ok() && flow.flow_tag == rule.flow_tag));
            assert!(flows.is_sorted_by_key(|(flow, _)| priority(flow)), "{flows:?}");
        };
        use Spreader::{Addresses, None, Tcp, Udp};
        check(Rule::udp(GROUP, 9).tagged(7), RssFields::Ports, &[Udp]);
        check(Rule::tcp(SENDER, 9), RssFields::Ports, &[Tcp]);
        check(Rule::tcp(SENDER, 9), RssFields::Addresses, &[Addresses]);
        check(Rule::igmp(), RssFields::Ports, &[Addresses]);
        check(
            Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL }.to(GROUP),
            RssFields::Ports,
            &[Tcp, Udp, Addresses],
        );
        check(Rule::arp(), RssFields::Ports, &[None]);
        check(Rule::ALL, RssFields::Ports, &[Tcp, Udp, Addresses, None]);
        check(Rule::ALL.on_vlan(3).tagged(1), RssFields::Addresses, &[Addresses, None]);
    }

    #[test]
    fn rules_that_the_nic_cannot_both_serve_are_known() {
        let group = Rule::udp(GROUP, 9000);
        let check = |one: Rule, other: Rule, expected: bool| {
            assert_eq!([exclude(&one, &other), exclude(&other, &one)], [expected; 2], "`{one}` and `{other}`");
        };
        // The same group to two queues, in each of its forms, with one tag.
        check(group.tagged(3), group.tagged(3), false);
        check(group, Rule { destination_mac: Some(MacAddr::multicast_ipv4(GROUP)), ..group }, false);
        check(group, group.tagged(3), true);
        // One with more fields beside one with fewer.
        check(group, group.from(SENDER), true);
        check(group, group.on_vlan(7), true);
        check(group, Rule::protocol(Protocol::UDP).to(GROUP), true);
        check(group, Rule { destination_mac: Some(MacAddr::multicast_ipv4(GROUP)), ..Rule::ALL }, true);
        // Other groups, ports, sources, tags of VLANs: no frame matches both.
        check(group, Rule::udp(GROUP, 9001), false);
        check(group, Rule::udp(Ipv4Addr::new(239, 1, 2, 4), 9000), false);
        check(group.from(SENDER), group.from(Ipv4Addr::new(10, 0, 0, 2)), false);
        check(group.on_vlan(7), group.on_vlan(8), false);
        check(group, Rule::igmp(), false);
        // Unicast has priorities, but no copies.
        let station = Rule::udp(SENDER, 9000);
        check(station, station, true);
        check(station.tagged(1), station.tagged(2), true);
        check(station, Rule::protocol(Protocol::UDP).to(SENDER), false);
        check(station, Rule::ALL, false);
        // A rule without a group precedes any group.
        check(group, Rule::ALL, true);
        check(group, Rule::protocol(Protocol::UDP), true);
        check(group, Rule { destination_port: Some(9000), ..Rule::protocol(Protocol::UDP) }, true);
        let by_port = Rule { source_port: Some(1), destination_port: Some(2), ..Rule::protocol(Protocol::UDP) };
        check(by_port, Rule::protocol(Protocol::UDP).to(GROUP), false);
        check(Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL }.to(GROUP), Rule::arp(), false);
    }

    /// Frames and rules of few values, so that they match often. The frames are whole: NICs may
    /// differ on truncated ones.
    fn rules() -> impl Strategy<Value = Rule> {
        let macs = prop_oneof![Just(MacAddr::multicast_ipv4(GROUP)), Just(MacAddr([2, 0, 0, 0, 0, 1]))];
        let ethertypes = prop_oneof![4 => Just(EtherType::IPV4), 1 => Just(EtherType::ARP)];
        let addresses = || prop_oneof![Just(GROUP), Just(SENDER)];
        let protocols = prop_oneof![2 => Just(Protocol::UDP), 1 => Just(Protocol::TCP), 1 => Just(Protocol::IGMP)];
        let link = (of(macs), of(0u16..3), of(ethertypes));
        let rest = (of(addresses()), of(addresses()), of(protocols), of(1u16..3), of(1u16..3), of(0u32..5));
        (link, rest).prop_map(|((destination_mac, vlan, ethertype), rest)| {
            let (source, destination, protocol, source_port, destination_port, flow_tag) = rest;
            let ports = source_port.or(destination_port).is_some();
            let protocol =
                if ports { protocol.filter(|l4| *l4 != Protocol::IGMP).or(Some(Protocol::UDP)) } else { protocol };
            let l3 = source.is_some() || destination.is_some() || protocol.is_some();
            let ethertype = if l3 { Some(EtherType::IPV4) } else { ethertype };
            Rule {
                destination_mac,
                vlan,
                ethertype,
                source,
                destination,
                protocol,
                source_port,
                destination_port,
                flow_tag,
            }
        })
    }

    fn of<T: core::fmt::Debug + Clone + 'static>(
        value: impl Strategy<Value = T> + 'static,
    ) -> BoxedStrategy<Option<T>> {
        proptest::option::of(value).boxed()
    }

    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let macs = prop_oneof![Just([1, 0, 0x5e, 1, 2, 3]), Just([2, 0, 0, 0, 0, 1])];
        let kinds = prop_oneof![4 => Just(0x0800u16), 1 => Just(0x0806)];
        let addresses = || prop_oneof![Just(GROUP), Just(SENDER)];
        let protocols = prop_oneof![Just(17u8), Just(6), Just(2)];
        let fragments = prop_oneof![3 => Just(0u16), 1 => Just(0x2000), 1 => Just(0x2001)];
        let link = (macs, proptest::collection::vec(0u16..3, 0..3), kinds);
        let rest = (addresses(), addresses(), protocols, 0..2usize, fragments, 1u16..3, 1u16..3);
        (link, rest).prop_map(|((mac, tags, kind), rest)| {
            let (source, destination, protocol, options, fragment, source_port, destination_port) = rest;
            let mut frame = [&mac[..], &[2, 0, 0, 0, 0, 9]].concat();
            tags.iter().for_each(|tag| frame.extend([0x81, 0x00, 0x60, *tag as u8]));
            frame.extend(kind.to_be_bytes());
            let len = (20 + options * 4 + 8) as u16;
            frame.extend([0x45 + options as u8, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([0, 0]);
            frame.extend(fragment.to_be_bytes());
            frame.extend([64, protocol, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
            frame.extend(core::iter::repeat_n(1, options * 4));
            frame.extend(source_port.to_be_bytes());
            frame.extend(destination_port.to_be_bytes());
            frame.extend([0, 8, 0, 0]);
            frame
        })
    }

    proptest! {
        #[test]
        fn flows_take_what_the_rule_names(rule in rules(), frame in frames()) {
            prop_assert_eq!(rule.check(), Ok(()));
            let to_group_by_ip_only =
                rule.destination_mac.is_none() && rule.destination == Some(GROUP) && frame[..6] != [1, 0, 0x5e, 1, 2, 3];
            prop_assume!(!to_group_by_ip_only);
            prop_assert_eq!(takes(&Flow::of(&rule), &frame), rule.matches(&frame), "{:?}", rule);
        }
    }
}
