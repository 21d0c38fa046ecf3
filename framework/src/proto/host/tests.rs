use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const NOW: Instant = Instant::from_nanos(1_000);

fn config() -> HostConfig {
    HostConfig {
        interface: InterfaceId(0),
        mac: MAC,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 2,
        routes_max: 4,
        neighbors_max: 2,
    }
}

/// 10.0.0.1/24 on the link, nothing else.
fn host() -> Host {
    let mut host = Host::new(config(), HashSeed::new(1, 2)).unwrap();
    host.apply(HostEvent::AddressAdded(prefix("10.0.0.1/24"))).unwrap();
    host
}

fn prefix(text: &str) -> Ipv4Prefix {
    text.parse().unwrap()
}

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn route(network: &str, gateway: &str, metric: u32) -> HostEvent {
    let route = Route { network: prefix(network), gateway: gateway.parse().ok(), source: ip("10.0.0.1"), metric };
    HostEvent::RouteAdded(route)
}

fn neighbor(address: &str) -> HostEvent {
    HostEvent::NeighborSet { address: ip(address), mac: PEER }
}

fn next_hop(host: &Host, destination: &str) -> Option<Ipv4Addr> {
    match host.resolve(ip(destination), NOW) {
        Resolution::NeighborMissing { next_hop, .. } => Some(next_hop),
        _ => None,
    }
}

#[test]
fn network_goes_with_its_prefix_though_the_address_stays_with_another() {
    let mut host = host();
    let wide = prefix("10.0.0.1/16");
    host.apply(HostEvent::AddressAdded(wide)).unwrap();
    host.apply(HostEvent::AddressRemoved(wide)).unwrap();
    assert!(host.is_own([10, 0, 0, 1].into()));
    assert!(host.route([10, 0, 0, 9].into()).is_some() && host.route([10, 0, 3, 9].into()).is_none());
}

#[test]
fn addresses_that_no_host_can_have_are_refused() {
    for text in ["0.0.0.0/8", "224.0.0.1/24", "255.255.255.255/32", "127.0.0.1/8", "10.0.1.0/24", "10.0.1.255/24"] {
        let event = HostEvent::AddressAdded(prefix(text));
        assert_eq!(host().apply(event), Err(HostError::NotAHostAddress(prefix(text).address())), "{text}");
    }
    // RFC 3021: both addresses of a /31 are hosts.
    host().apply(HostEvent::AddressAdded(prefix("10.0.1.0/31"))).unwrap();
}

#[test]
fn mac_addresses_that_no_station_can_have_are_refused() {
    for mac in [MacAddr::BROADCAST, MacAddr::ZERO, MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        let event = HostEvent::NeighborSet { address: ip("10.0.0.2"), mac };
        assert_eq!(host().apply(event), Err(HostError::NotAStation(mac)));
        assert_eq!(host().apply(HostEvent::Mac(mac)), Err(HostError::NotAStation(mac)));
        let host = Host::new(HostConfig { mac, ..config() }, HashSeed::new(1, 2));
        assert_eq!(host.err(), Some(HostError::NotAStation(mac)));
    }
}

#[test]
fn full_lists_refuse_and_keep_what_they_have() {
    let mut host = host();
    host.apply(HostEvent::AddressAdded(prefix("10.0.1.1/24"))).unwrap();
    assert_eq!(host.apply(HostEvent::AddressAdded(prefix("10.0.2.1/24"))), Err(HostError::AddressesFull));
    host.apply(route("10.3.0.0/16", "10.0.0.3", 0)).unwrap();
    host.apply(route("10.4.0.0/16", "10.0.0.4", 0)).unwrap();
    assert_eq!(host.apply(route("10.5.0.0/16", "10.0.0.5", 0)), Err(HostError::RoutesFull));
    host.apply(route("10.4.0.0/16", "10.0.0.9", 0)).unwrap();
    assert_eq!(next_hop(&host, "10.4.0.1"), Some(ip("10.0.0.9")));
    host.apply(neighbor("10.0.0.2")).unwrap();
    host.apply(neighbor("10.0.0.3")).unwrap();
    assert_eq!(host.apply(neighbor("10.0.0.4")), Err(HostError::NeighborsFull));
}

#[test]
fn gateway_off_the_link_is_refused() {
    for gateway in ["10.9.0.1", "10.0.0.1"] {
        assert_eq!(host().apply(route("0.0.0.0/0", gateway, 0)), Err(HostError::GatewayUnreachable(ip(gateway))));
    }
}

#[test]
fn mtu_below_the_least_of_ipv4_is_refused() {
    assert_eq!(host().apply(HostEvent::Mtu(67)), Err(HostError::MtuTooSmall(67)));
    let mut host = host();
    host.apply(HostEvent::Mtu(9000)).unwrap();
    assert_eq!(host.mtu(), 9000);
}

#[test]
fn nothing_leaves_without_a_route() {
    assert_eq!(host().resolve(ip("10.0.1.1"), NOW), Resolution::NoRoute);
    let bare = Host::new(config(), HashSeed::new(1, 2)).unwrap();
    for destination in ["10.0.0.2", "239.1.1.1", "255.255.255.255"] {
        assert_eq!(bare.resolve(ip(destination), NOW), Resolution::NoRoute, "{destination}");
    }
}

#[test]
fn default_route_leads_neither_to_loopback_nor_to_nowhere() {
    let mut host = host();
    host.apply(route("0.0.0.0/0", "10.0.0.254", 0)).unwrap();
    assert_eq!(next_hop(&host, "8.8.8.8"), Some(ip("10.0.0.254")));
    for destination in ["127.0.0.1", "0.0.0.0"] {
        assert_eq!(host.resolve(ip(destination), NOW), Resolution::NoRoute);
    }
}

#[test]
fn longest_prefix_wins_then_the_smallest_metric() {
    let mut host = host();
    host.apply(route("0.0.0.0/0", "10.0.0.3", 0)).unwrap();
    host.apply(route("10.2.0.0/16", "10.0.0.4", 20)).unwrap();
    host.apply(route("10.2.0.0/16", "10.0.0.5", 10)).unwrap();
    assert_eq!(next_hop(&host, "10.2.3.4"), Some(ip("10.0.0.5")));
    assert_eq!(next_hop(&host, "10.3.3.4"), Some(ip("10.0.0.3")));
    assert_eq!(next_hop(&host, "10.0.0.77"), Some(ip("10.0.0.77")));
    host.apply(HostEvent::RouteRemoved { network: prefix("10.2.0.0/16"), metric: 10 }).unwrap();
    assert_eq!(next_hop(&host, "10.2.3.4"), Some(ip("10.0.0.4")));
}

#[test]
fn learned_neighbor_is_believed_until_its_time_and_never_over_a_configured_one() {
    let mut host = host();
    let until = Instant::from_nanos(2_000);
    let learned = |mac| HostEvent::NeighborLearned { address: ip("10.0.0.2"), mac, until };
    host.apply(learned(PEER)).unwrap();
    let station = |mac| Resolution::Station { mac, source: ip("10.0.0.1") };
    assert_eq!(host.resolve(ip("10.0.0.2"), NOW), station(PEER));
    assert_eq!(next_hop(&host, "10.0.0.2"), None);
    let missing = Resolution::NeighborMissing { next_hop: ip("10.0.0.2"), source: ip("10.0.0.1") };
    assert_eq!(host.resolve(ip("10.0.0.2"), until), missing);
    host.apply(neighbor("10.0.0.2")).unwrap();
    host.apply(learned(MAC)).unwrap();
    assert_eq!(host.resolve(ip("10.0.0.2"), Instant::MAX), station(PEER));
    host.apply(HostEvent::NeighborRemoved(ip("10.0.0.2"))).unwrap();
    assert_eq!(host.resolve(ip("10.0.0.2"), NOW), missing);
}

#[test]
fn neighbor_that_says_again_what_is_known_changes_no_answer() {
    let mut host = host();
    let [early, late, later] = [2_000, 3_000, 4_000].map(Instant::from_nanos);
    let address = ip("10.0.0.2");
    assert!(!host.confirm(address, PEER, early, NOW), "who is not known cannot be confirmed");
    host.apply(HostEvent::NeighborLearned { address, mac: PEER, until: early }).unwrap();
    let before = host.changes();
    assert!(host.confirm(address, PEER, late, NOW) && host.changes() == before);
    host.apply(HostEvent::NeighborLearned { address, mac: PEER, until: late }).unwrap();
    assert_eq!(host.changes(), before, "nor who is told of twice");
    assert_eq!(host.resolve(address, early), Resolution::Station { mac: PEER, source: ip("10.0.0.1") });
    assert!(!host.confirm(address, MAC, later, NOW), "another station is news");
    assert!(!host.confirm(address, PEER, later, late), "and so is one that was not believed any more");
    host.apply(neighbor("10.0.0.2")).unwrap();
    let before = host.changes();
    assert!(!host.confirm(address, PEER, later, NOW));
    host.apply(HostEvent::NeighborLearned { address, mac: MAC, until: later }).unwrap();
    assert_eq!(host.changes(), before, "one that was configured stays as it is");
}

#[test]
fn groups_and_broadcasts_need_no_neighbor() {
    let source = ip("10.0.0.1");
    for (destination, mac) in [
        ("239.129.2.3", MacAddr([1, 0, 0x5e, 1, 2, 3])),
        ("255.255.255.255", MacAddr::BROADCAST),
        ("10.0.0.255", MacAddr::BROADCAST),
    ] {
        assert_eq!(host().resolve(ip(destination), NOW), Resolution::Group { mac, source }, "{destination}");
    }
    assert_eq!(host().resolve(source, NOW), Resolution::Local);
}

#[test]
fn broadcast_leaves_from_the_address_of_its_network() {
    let mut host = host();
    host.apply(HostEvent::AddressAdded(prefix("10.0.1.1/24"))).unwrap();
    let expected = Resolution::Group { mac: MacAddr::BROADCAST, source: ip("10.0.1.1") };
    assert_eq!(host.resolve(ip("10.0.1.255"), NOW), expected);
}

#[test]
fn received_packets_are_told_apart() {
    let host = host();
    for (destination, expected) in [
        ("10.0.0.1", Destination::Local),
        ("10.0.0.2", Destination::Other),
        ("0.0.0.0", Destination::Other),
        ("10.0.0.255", Destination::Broadcast),
        ("255.255.255.255", Destination::Broadcast),
        ("224.0.0.1", Destination::Group),
    ] {
        assert_eq!(host.classify(ip(destination)), expected, "{destination}");
    }
}

#[test]
fn removed_address_takes_its_routes_along() {
    let mut host = host();
    host.apply(route("0.0.0.0/0", "10.0.0.3", 0)).unwrap();
    let before = host.changes();
    host.apply(HostEvent::AddressRemoved(prefix("10.0.0.1/24"))).unwrap();
    assert!(host.changes() > before);
    assert_eq!(host.resolve(ip("8.8.8.8"), NOW), Resolution::NoRoute);
    assert_eq!(host.classify(ip("10.0.0.1")), Destination::Other);
}

#[test]
fn second_address_of_a_network_inherits_its_route() {
    let mut host = host();
    host.apply(HostEvent::AddressAdded(prefix("10.0.0.7/24"))).unwrap();
    host.apply(HostEvent::AddressRemoved(prefix("10.0.0.1/24"))).unwrap();
    let expected = Resolution::NeighborMissing { next_hop: ip("10.0.0.2"), source: ip("10.0.0.7") };
    assert_eq!(host.resolve(ip("10.0.0.2"), NOW), expected);
}

#[test]
fn route_that_was_removed_stays_removed_when_an_address_goes() {
    let mut host = host();
    host.apply(HostEvent::AddressAdded(prefix("10.0.0.7/24"))).unwrap();
    host.apply(HostEvent::RouteRemoved { network: prefix("10.0.0.0/24"), metric: 0 }).unwrap();
    host.apply(HostEvent::AddressRemoved(prefix("10.0.0.1/24"))).unwrap();
    assert_eq!(host.resolve(ip("10.0.0.2"), NOW), Resolution::NoRoute);
}

#[test]
fn any_order_of_events_keeps_the_lists_within_their_limits() {
    let events = [
        HostEvent::AddressAdded(prefix("10.0.0.1/24")),
        HostEvent::AddressAdded(prefix("10.0.0.7/24")),
        HostEvent::AddressRemoved(prefix("10.0.0.1/24")),
        HostEvent::AddressRemoved(prefix("10.0.0.7/24")),
        HostEvent::RouteRemoved { network: prefix("10.0.0.0/24"), metric: 0 },
        route("10.0.0.0/24", "10.0.0.3", 0),
        route("10.1.0.0/16", "", 0),
        route("10.2.0.0/16", "", 0),
        route("10.3.0.0/16", "10.0.0.9", 0),
        route("0.0.0.0/0", "10.0.0.3", 5),
    ];
    let mut host = host();
    let mut state = 1u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // A refusal is a valid outcome too.
        let _ = host.apply(events[(state >> 33) as usize % events.len()]);
        assert!(host.addresses.len() <= 2 && host.routes.len() <= 4);
        assert!(host.routes.iter().all(|route| host.is_own(route.source)));
        assert!(host.routes.is_sorted_by_key(|route| (32 - route.network.len(), route.metric)));
    }
}
