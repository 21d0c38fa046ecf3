//! Decodes rtnetlink messages into [`Change`]s: selects the attributes that matter for IPv4.
//! Messages about anything else (IPv6, bridge tables, clones in the routing cache) yield no change.
//! The library parses the bytes.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::{NLM_F_APPEND, NLM_F_MULTIPART, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    BondAllPortActive, BondMode, InfoBond, InfoData, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType};
use netlink_packet_route::rule::{RuleAction as Action, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::tables::{
    Change, KernelLink, KernelNeighbor, KernelRoute, NeighborOrigin, RouteKind, RouteNextHop, RoutePosition, Rule,
    RuleAction,
};
use crate::proto::Ipv4Prefix;
use crate::wire::MacAddr;

/// The change in a message; None if it does not concern IPv4. `flags` are those of its netlink
/// header.
pub(super) fn change(message: &RouteNetlinkMessage, flags: u16) -> Option<Change> {
    match message {
        RouteNetlinkMessage::NewLink(message) if is_plain(message) => link(message).map(Change::Link),
        RouteNetlinkMessage::DelLink(message) if is_plain(message) => Some(Change::LinkGone(message.header.index)),
        RouteNetlinkMessage::NewAddress(message) => {
            address(message).map(|address| Change::Address(message.header.index, address))
        }
        RouteNetlinkMessage::DelAddress(message) => {
            address(message).map(|address| Change::AddressGone(message.header.index, address))
        }
        RouteNetlinkMessage::NewRoute(message) => route(message).map(|route| Change::Route(route, place(flags))),
        RouteNetlinkMessage::DelRoute(message) => route(message).map(Change::RouteGone),
        RouteNetlinkMessage::NewRule(message) => rule(message).map(Change::Rule),
        RouteNetlinkMessage::DelRule(message) => rule(message).map(Change::RuleGone),
        RouteNetlinkMessage::NewNeighbour(message) => neighbor(message),
        RouteNetlinkMessage::DelNeighbour(message) => {
            let address = neighbor_address(message)?;
            Some(Change::NeighborGone(message.header.ifindex, address))
        }
        _ => None,
    }
}

/// Bridges report their ports in link messages of another family: a port that leaves a bridge still
/// exists.
fn is_plain(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}

fn link(message: &LinkMessage) -> Option<KernelLink> {
    let flags = message.header.flags;
    let mut name = None;
    let mut link = KernelLink {
        idx: message.header.index,
        name: String::new(),
        mac: MacAddr::ZERO,
        mtu: 0,
        up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        carrier_ups: 0,
        controller: None,
        active_leg: None,
        one_leg: false,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu as usize,
            LinkAttribute::Address(bytes) => link.mac = mac(bytes).unwrap_or(MacAddr::ZERO),
            LinkAttribute::CarrierUpCount(count) => link.carrier_ups = *count,
            LinkAttribute::Controller(idx) => link.controller = Some(*idx).filter(|idx| *idx != 0),
            LinkAttribute::LinkInfo(info) => read_bond(info, &mut link),
            _ => {}
        }
    }
    Some(KernelLink { name: name?, ..link })
}

/// A bond sends IFLA_BOND_ACTIVE_SLAVE while it has an active leg, in the modes that have one. In
/// active-backup it drops frames that arrive on the others, unless `all_slaves_active` is set
/// (bond_handle_frame in drivers/net/bonding/bond_main.c).
fn read_bond(info: &[LinkInfo], link: &mut KernelLink) {
    let bond = info.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Bond(bond)) => Some(bond),
        _ => None,
    });
    let (mut is_active_backup, mut takes_all) = (false, false);
    for attribute in bond.into_iter().flatten() {
        match attribute {
            InfoBond::Mode(mode) => is_active_backup = *mode == BondMode::ActiveBackup,
            InfoBond::ActivePort(idx) => link.active_leg = Some(*idx).filter(|idx| *idx != 0),
            InfoBond::AllPortsActive(takes) => takes_all = *takes == BondAllPortActive::Delivered,
            _ => {}
        }
    }
    link.one_leg = is_active_backup && !takes_all;
}

fn address(message: &AddressMessage) -> Option<Ipv4Prefix> {
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(IpAddr::V4(address)) => local = Some(*address),
            AddressAttribute::Address(IpAddr::V4(address)) => peer = Some(*address),
            _ => {}
        }
    }
    let own = local.or(peer)?;
    // On a point-to-point link the network is the peer's; our own prefix is the address alone, and
    // a route leads to the peer.
    let len = if peer.is_some_and(|peer| peer != own) { 32 } else { message.header.prefix_len };
    Ipv4Prefix::new(own, len)
}

fn route(message: &RouteMessage) -> Option<KernelRoute> {
    let header = &message.header;
    if header.address_family != AddressFamily::Inet || header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let mut network = Ipv4Addr::UNSPECIFIED;
    let mut route = KernelRoute {
        table: u32::from(header.table),
        network: Ipv4Prefix::ALL,
        metric: 0,
        tos: header.tos,
        kind: route_kind(header.kind),
        source: None,
        legs: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Destination(RouteAddress::Inet(address)) => network = *address,
            RouteAttribute::PrefSource(RouteAddress::Inet(address)) => route.source = Some(*address),
            RouteAttribute::MultiPath(hops) => {
                route.legs.extend(hops.iter().filter_map(|hop| leg(Some(hop.interface_index), &hop.attributes)));
            }
            _ => {}
        }
    }
    if route.legs.is_empty() {
        route.legs.extend(leg(None, &message.attributes));
    }
    route.network = Ipv4Prefix::new(network, header.destination_prefix_length)?;
    Some(route)
}

/// One next hop: its interface is in the leg's own header, or among the attributes of a route with
/// one leg. None if there is no interface, or if the router has only an IPv6 address (RTA_VIA),
/// because that needs an IPv6 neighbor table.
fn leg(link: Option<u32>, attributes: &[RouteAttribute]) -> Option<RouteNextHop> {
    let (mut link, mut gateway) = (link, None);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(idx) => link = Some(*idx),
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => gateway = Some(*address),
            RouteAttribute::Via(_) => return None,
            _ => {}
        }
    }
    Some(RouteNextHop { link: link?, gateway })
}

fn route_kind(kind: RouteType) -> RouteKind {
    match kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit => RouteKind::Hole,
        RouteType::Throw => RouteKind::Throw,
        _ => RouteKind::Other,
    }
}

/// A dump lists routes in order; an event without NLM_F_APPEND inserts the route before its equals.
fn place(flags: u16) -> RoutePosition {
    match flags {
        _ if flags & NLM_F_MULTIPART != 0 => RoutePosition::Last,
        _ if flags & NLM_F_REPLACE != 0 => RoutePosition::InsteadOfFirst,
        _ if flags & NLM_F_APPEND != 0 => RoutePosition::Last,
        _ => RoutePosition::First,
    }
}

fn rule(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    if header.family != AddressFamily::Inet {
        return None;
    }
    let mut rule = Rule {
        priority: 0,
        action: RuleAction::Nothing,
        from: None,
        to: None,
        bound_to: None,
        special: header.tos != 0,
        inverted: header.flags.contains(RuleFlags::Invert),
        suppressed_len: None,
    };
    let (mut table, mut target) = (u32::from(header.table), 0);
    let (mut mark, mut mask) = (0, u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Goto(priority) => target = *priority,
            RuleAttribute::Source(IpAddr::V4(address)) => rule.from = Ipv4Prefix::new(*address, header.src_len),
            RuleAttribute::Destination(IpAddr::V4(address)) => rule.to = Ipv4Prefix::new(*address, header.dst_len),
            RuleAttribute::Oifname(name) => rule.bound_to = Some(name.clone()),
            RuleAttribute::FwMark(value) => mark = *value,
            RuleAttribute::FwMask(value) => mask = *value,
            // The kernel treats the host's own packets as received on the loopback interface.
            RuleAttribute::Iifname(name) => rule.special |= name != "lo",
            RuleAttribute::L3MDev(on) => rule.special |= on,
            // The kernel sends -1 for none.
            RuleAttribute::SuppressPrefixLen(len) => rule.suppressed_len = u8::try_from(*len).ok(),
            RuleAttribute::UidRange(_)
            | RuleAttribute::IpProtocol(_)
            | RuleAttribute::SourcePortRange(_)
            | RuleAttribute::DestinationPortRange(_) => rule.special = true,
            RuleAttribute::TunId(id) => rule.special |= *id != 0,
            _ => {}
        }
    }
    // Our packets have mark zero.
    rule.special |= mark & mask != 0;
    rule.action = match header.action {
        Action::ToTable => RuleAction::Table(table),
        Action::Goto => RuleAction::Goto(target),
        Action::Blackhole | Action::Unreachable | Action::Prohibit => RuleAction::Hole,
        _ => RuleAction::Nothing,
    };
    Some(rule)
}

fn neighbor(message: &NeighbourMessage) -> Option<Change> {
    let address = neighbor_address(message)?;
    let seen = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => mac(bytes),
        _ => None,
    });
    let trust = match message.header.state {
        NeighbourState::Permanent | NeighbourState::Noarp => Some(NeighborOrigin::Configured),
        NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => {
            Some(NeighborOrigin::NetlinkEvents)
        }
        _ => None,
    };
    let link = message.header.ifindex;
    Some(match (seen, trust) {
        (Some(mac), Some(trust)) => Change::Neighbor(link, address, KernelNeighbor { mac, trust }),
        _ if message.header.state == NeighbourState::Failed => Change::NeighborSilent(link, address),
        _ => Change::NeighborGone(link, address),
    })
}

fn neighbor_address(message: &NeighbourMessage) -> Option<Ipv4Addr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(*address),
        _ => None,
    })
}

fn mac(bytes: &[u8]) -> Option<MacAddr> {
    bytes.try_into().ok().map(MacAddr)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Parseable;

    use super::*;

    /// The message of a bond: link 24, mode 1 (active-backup), active leg 7. Its header and kind
    /// are from a real kernel (the recording in netlink-packet-route's tests, a bond without a
    /// leg); the rest is built from linux/if_link.h, because no available kernel has bonding.
    const BOND: [u8; 92] = [
        0, 0, 1, 0, 24, 0, 0, 0, 0x43, 0x14, 1, 0, 0, 0, 0, 0, // ifinfomsg: link 24, up, lower up
        10, 0, 3, 0, b'b', b'o', b'n', b'd', b'0', 0, 0, 0, // IFLA_IFNAME
        8, 0, 4, 0, 0xdc, 5, 0, 0, // IFLA_MTU 1500
        10, 0, 1, 0, 2, 0, 0, 0, 0, 0x18, 0, 0, // IFLA_ADDRESS
        44, 0, 18, 0, // IFLA_LINKINFO
        9, 0, 1, 0, b'b', b'o', b'n', b'd', 0, 0, 0, 0, // IFLA_INFO_KIND
        28, 0, 2, 0, // IFLA_INFO_DATA
        5, 0, 1, 0, 1, 0, 0, 0, // IFLA_BOND_MODE
        8, 0, 2, 0, 7, 0, 0, 0, // IFLA_BOND_ACTIVE_SLAVE
        8, 0, 3, 0, 100, 0, 0, 0, // IFLA_BOND_MIIMON
    ];
    const ACTIVE_LEG: usize = 80;

    fn bond(bytes: &[u8]) -> KernelLink {
        link(&LinkMessage::parse(bytes).unwrap()).unwrap()
    }

    #[test]
    fn active_leg_of_a_bond_is_read() {
        let expected = KernelLink {
            idx: 24,
            name: "bond0".into(),
            mac: MacAddr([2, 0, 0, 0, 0, 0x18]),
            mtu: 1500,
            up: true,
            carrier_ups: 0,
            controller: None,
            active_leg: Some(7),
            one_leg: true,
        };
        assert_eq!(bond(&BOND), expected);
    }

    #[test]
    fn failover_of_a_bond_is_another_leg_and_then_none() {
        let mut bytes = BOND;
        bytes[ACTIVE_LEG] = 8;
        assert_eq!(bond(&bytes).active_leg, Some(8));
        bytes[ACTIVE_LEG] = 0;
        assert_eq!(bond(&bytes).active_leg, None);
        // Without a working leg the kernel omits the attribute: here its type becomes
        // IFLA_BOND_UPDELAY.
        bytes[ACTIVE_LEG - 2] = 4;
        assert_eq!(bond(&bytes).active_leg, None);
    }

    #[test]
    fn link_that_leaves_a_bridge_is_not_gone() {
        let mut message = LinkMessage::default();
        message.header.interface_family = AddressFamily::Bridge;
        assert_eq!(change(&RouteNetlinkMessage::DelLink(message), 0), None);
    }

    #[test]
    fn neighbor_that_does_not_answer_is_not_known() {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = 2;
        let address = Ipv4Addr::new(10, 0, 0, 9);
        message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(address)));
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 9]));
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let known = |trust| Some(Change::Neighbor(2, address, KernelNeighbor { mac, trust }));
        let gone = Some(Change::NeighborGone(2, address));
        for (state, expected) in [
            (NeighbourState::Permanent, known(NeighborOrigin::Configured)),
            (NeighbourState::Noarp, known(NeighborOrigin::Configured)),
            (NeighbourState::Reachable, known(NeighborOrigin::NetlinkEvents)),
            (NeighbourState::Stale, known(NeighborOrigin::NetlinkEvents)),
            (NeighbourState::Delay, known(NeighborOrigin::NetlinkEvents)),
            (NeighbourState::Probe, known(NeighborOrigin::NetlinkEvents)),
            (NeighbourState::Incomplete, gone),
            (NeighbourState::Failed, Some(Change::NeighborSilent(2, address))),
        ] {
            message.header.state = state;
            assert_eq!(change(&RouteNetlinkMessage::NewNeighbour(message.clone()), 0), expected, "{state:?}");
        }
    }

    #[test]
    fn address_between_two_stations_stands_alone() {
        let mut message = AddressMessage::default();
        message.header.prefix_len = 24;
        message.attributes.push(AddressAttribute::Local(Ipv4Addr::new(10, 0, 0, 1).into()));
        message.attributes.push(AddressAttribute::Address(Ipv4Addr::new(10, 0, 0, 1).into()));
        assert_eq!(address(&message).map(|own| own.to_string()).as_deref(), Some("10.0.0.1/24"));
        message.attributes[1] = AddressAttribute::Address(Ipv4Addr::new(10, 9, 0, 1).into());
        assert_eq!(address(&message).map(|own| own.to_string()).as_deref(), Some("10.0.0.1/32"));
    }
}
