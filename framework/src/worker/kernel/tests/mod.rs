//! The mirror without a kernel: tables filled by hand, and a worker's host at the other end of the
//! ring.

mod bond;
mod hostile;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::follower::{Follower, HostUpdate, LinkState};
use super::host_sync::{HostSync, RingFull};
use super::mirror::Mirror;
use super::socket::default_rules;
use super::tables::{
    Change, KernelLink, KernelNeighbor, KernelRoute, NeighborOrigin, RouteKind, RouteNextHop, RoutePosition, Rule,
    RuleAction, Tables, TablesState,
};
use super::view::View;
use super::wakeup::Wakeup;
use crate::counters::Block;
use crate::proto::{HashSeed, Host, HostConfig, HostError, InterfaceId, Ipv4Prefix, Resolution};
use crate::sys::socket::wait_readable;
use crate::time::Instant;
use crate::wire::{MacAddr, VlanTags};
use crate::worker::spsc::lossless;

const IDX: u32 = 2;
const OTHER: u32 = 3;
const MAIN: u32 = 254;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Ipv4Prefix {
    text.parse().unwrap()
}

fn link() -> KernelLink {
    KernelLink {
        idx: IDX,
        name: "eth1".into(),
        mac: MAC,
        mtu: 1500,
        up: true,
        carrier_ups: 1,
        controller: None,
        active_leg: None,
        one_leg: false,
    }
}

fn route_in(table: u32, network: &str, gateway: &str, metric: u32) -> KernelRoute {
    KernelRoute {
        table,
        network: prefix(network),
        metric,
        tos: 0,
        kind: RouteKind::Unicast,
        source: None,
        legs: vec![RouteNextHop { link: IDX, gateway: gateway.parse().ok() }],
    }
}

fn route(network: &str, gateway: &str) -> KernelRoute {
    route_in(MAIN, network, gateway, 0)
}

fn hole(network: &str) -> KernelRoute {
    KernelRoute { kind: RouteKind::Hole, legs: Vec::new(), ..route(network, "") }
}

fn rule(priority: u32, table: u32) -> Rule {
    Rule {
        priority,
        action: RuleAction::Table(table),
        from: None,
        to: None,
        bound_to: None,
        special: false,
        inverted: false,
        suppressed_len: None,
    }
}

fn neighbor(trust: NeighborOrigin) -> KernelNeighbor {
    KernelNeighbor { mac: PEER, trust }
}

/// A worker's host, whose MAC address and MTU the kernel's state replaces.
pub(super) fn config() -> HostConfig {
    HostConfig {
        interface: InterfaceId(0),
        mac: MacAddr([2, 0, 0, 0, 0, 0xff]),
        vlan: VlanTags::NONE,
        mtu: 9000,
        addresses_max: 4,
        routes_max: 48,
        neighbors_max: 4,
    }
}

/// A kernel with 10.0.0.1/24 on eth1, and a worker that follows it.
struct Scene {
    tables: Tables,
    host_sync: HostSync,
    follower: Follower,
    host: Host,
}

impl Scene {
    fn new() -> Self {
        Self::with_ring(256)
    }

    fn with_ring(capacity: usize) -> Self {
        let config = config();
        let (producer, consumer) = lossless::ring(capacity).unwrap();
        let mut scene = Self {
            tables: Tables::default(),
            host_sync: HostSync::new(config, producer).unwrap(),
            follower: Follower::new(consumer, lossless::ring(4).unwrap().0),
            host: Host::new(config, HashSeed::new(1, 2)).unwrap(),
        };
        scene.say(default_rules());
        scene.say([Change::Link(link()), Change::Address(IDX, prefix("10.0.0.1/24"))]);
        scene.say([Change::Route(route("10.0.0.0/24", ""), RoutePosition::First)]);
        scene
    }

    fn say(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.tables.apply(change);
        }
    }

    fn say_routes(&mut self, routes: impl IntoIterator<Item = KernelRoute>) {
        self.say(routes.into_iter().map(|route| Change::Route(route, RoutePosition::First)));
    }

    /// Runs mirror and worker until both are idle.
    fn settle(&mut self) {
        let view = View::of(&self.tables, Some(IDX));
        loop {
            let reported = self.host_sync.update(&view, |_| false);
            while self.follower.catch_up(&mut self.host) > 0 {}
            if reported.is_ok() {
                break;
            }
        }
        assert_eq!(self.follower.refused(), 0, "the worker's host refused what the model took");
    }

    /// The next hop of a packet without a known MAC address, "-" for no route.
    fn next_hop(&mut self, destination: &str) -> String {
        self.settle();
        match self.host.resolve(ip(destination), Instant::ZERO) {
            Resolution::NeighborMissing { next_hop, .. } => next_hop.to_string(),
            Resolution::NoRoute => "-".into(),
            other => format!("{other:?}"),
        }
    }

    fn check(&mut self, expected: &[(&str, &str)]) {
        for (destination, next_hop) in expected {
            assert_eq!(self.next_hop(destination), *next_hop, "to {destination}");
        }
    }
}

#[test]
fn interface_arrives_with_all_it_has() {
    let mut scene = Scene::new();
    scene.say_routes([route("0.0.0.0/0", "10.0.0.254")]);
    scene.check(&[("10.0.0.7", "10.0.0.7"), ("8.8.8.8", "10.0.0.254")]);
    assert_eq!((scene.host.mac(), scene.host.mtu()), (MAC, 1500));
    assert_eq!(scene.follower.link(), LinkState { idx: Some(IDX), up: true, carrier_ups: 1, ..LinkState::default() });
}

#[test]
fn full_ring_loses_nothing() {
    let mut scene = Scene::with_ring(2);
    scene.say_routes([route("0.0.0.0/0", "10.0.0.254"), route("10.1.0.0/16", "10.0.0.253")]);
    let view = View::of(&scene.tables, Some(IDX));
    assert_eq!(scene.host_sync.update(&view, |_| false), Err(RingFull));
    assert_eq!(scene.host_sync.update(&view, |_| false), Err(RingFull));
    scene.check(&[("10.1.2.3", "10.0.0.253"), ("8.8.8.8", "10.0.0.254")]);
}

#[test]
fn what_changed_back_while_the_ring_was_full_is_not_sent() {
    let mut scene = Scene::new();
    scene.settle();
    let before = scene.host.changes();
    scene.say_routes([route("10.1.0.0/16", "10.0.0.253")]);
    scene.say([Change::RouteGone(route("10.1.0.0/16", "10.0.0.253"))]);
    scene.settle();
    assert_eq!(scene.host.changes(), before);
}

#[test]
fn what_the_host_has_no_room_for_is_reported_and_not_sent() {
    let mut scene = Scene::new();
    for n in 2..=6 {
        scene.say([Change::Neighbor(IDX, Ipv4Addr::new(10, 0, 0, n), neighbor(NeighborOrigin::NetlinkEvents))]);
    }
    scene.settle();
    assert_eq!(scene.host_sync.refused(), [HostError::NeighborsFull]);
    scene.say([Change::NeighborGone(IDX, ip("10.0.0.2"))]);
    scene.settle();
    assert_eq!(scene.host_sync.refused(), []);
    assert!(matches!(scene.host.resolve(ip("10.0.0.6"), Instant::ZERO), Resolution::Station { .. }));
}

#[test]
fn neighbor_that_is_wanted_has_room_before_others() {
    let mut scene = Scene::new();
    let stranger = |n| Change::Neighbor(IDX, Ipv4Addr::new(10, 0, 0, n), neighbor(NeighborOrigin::NetlinkEvents));
    scene.say((2..=5).map(stranger));
    scene.settle();
    scene.say((6..=9).map(stranger));
    let view = View::of(&scene.tables, Some(IDX));
    scene.host_sync.update(&view, |address| address == ip("10.0.0.9")).unwrap();
    while scene.follower.catch_up(&mut scene.host) > 0 {}
    let known = |n| matches!(scene.host.resolve(Ipv4Addr::new(10, 0, 0, n), Instant::ZERO), Resolution::Station { .. });
    assert_eq!((2..=9).filter(|n| known(*n)).collect::<Vec<_>>(), [2, 3, 4, 9]);
    assert_eq!(scene.host_sync.refused().len(), 4);
}

#[test]
fn wish_is_refused_where_the_ring_is_full_or_the_mirror_is_gone() {
    let (_tidings, consumer) = lossless::ring(2).unwrap();
    let (requests, mirror) = lossless::ring(2).unwrap();
    let mut follower = Follower::new(consumer, requests);
    assert_eq!([2, 3, 4].map(|n| follower.want(Ipv4Addr::new(10, 0, 0, n))), [true, true, false]);
    drop(mirror);
    assert!(!follower.want(ip("10.0.0.2")));
}

#[test]
fn worker_that_sleeps_is_woken_for_updates_and_wakes_the_mirror_for_requests() {
    let (mut updates, consumer) = lossless::ring(4).unwrap();
    let (requests, _mirror) = lossless::ring(4).unwrap();
    let [own, mirrors] = [(); 2].map(|()| Arc::new(Wakeup::new().unwrap()));
    let mut follower = Follower::new(consumer, requests).woken_by(Arc::clone(&own), Arc::clone(&mirrors));
    let is_readable = |wakeup: &Wakeup| wait_readable([Some(wakeup.fd())], Some(Duration::ZERO)).unwrap();
    assert!(!follower.arm() && !own.is_slept_on(), "its thread polls");
    assert_eq!(follower.sleep_on(), Some(own.fd()));
    assert!(!follower.arm() && own.is_slept_on());
    updates.push(HostUpdate::Link(LinkState::default())).unwrap();
    own.wake();
    assert!(is_readable(&own));
    assert!(follower.arm(), "the update comes before the next sleep");
    assert!(!is_readable(&own));
    mirrors.arm();
    assert!(follower.want(ip("10.0.0.2")) && is_readable(&mirrors));
}

#[test]
fn turn_that_does_not_wait_dumps_nothing() {
    let block = Block::heap();
    let mut mirror = Mirror::open(&block.scope("test")).unwrap();
    (0..3).for_each(|_| _ = mirror.turn(Duration::ZERO));
    assert_eq!(block.snapshot().count("test/kernel/dumps"), Some(1));
}

#[test]
fn link_that_flapped_unseen_is_a_change() {
    let mut scene = Scene::new();
    scene.settle();
    let before = scene.follower.link_changes();
    scene
        .say([Change::Link(KernelLink { up: false, ..link() }), Change::Link(KernelLink { carrier_ups: 2, ..link() })]);
    scene.settle();
    assert_eq!((scene.follower.link_changes(), scene.follower.link().up), (before + 1, true));
}

#[test]
fn interface_that_is_gone_takes_everything_along() {
    let mut scene = Scene::new();
    scene.say_routes([route("0.0.0.0/0", "10.0.0.254")]);
    scene.say([Change::Neighbor(IDX, ip("10.0.0.254"), neighbor(NeighborOrigin::Configured))]);
    scene.settle();
    assert_eq!(scene.tables.apply(Change::LinkGone(IDX)), TablesState::Incomplete);
    scene.settle();
    assert_eq!(scene.follower.link(), LinkState::default());
    assert_eq!((scene.host.addresses().len(), scene.host.routes().len()), (0, 0));
}

#[test]
fn changes_of_which_the_kernel_tells_a_part_ask_for_a_dump() {
    let mut tables = Scene::new().tables;
    assert_eq!(tables.apply(Change::Link(KernelLink { up: false, ..link() })), TablesState::Incomplete);
    assert_eq!(tables.apply(Change::AddressGone(IDX, prefix("10.0.0.1/24"))), TablesState::Incomplete);
    assert_eq!(tables.apply(Change::RouteGone(route("10.9.0.0/16", ""))), TablesState::Incomplete);
    assert_eq!(tables.apply(Change::RuleGone(rule(7, 7))), TablesState::Incomplete);
}

#[test]
fn told_twice_is_told_once() {
    let mut scene = Scene::new();
    scene.say([Change::Rule(rule(100, 100)), Change::Rule(rule(100, 100))]);
    scene.say([Change::Address(IDX, prefix("10.0.0.1/24"))]);
    scene.say_routes([route("10.0.0.0/24", "")]);
    assert_eq!(scene.tables.rules().len(), 4);
    assert_eq!(scene.tables.networks(MAIN).map(<[_]>::len).sum::<usize>(), 1);
    assert_eq!(scene.tables.addresses(IDX).count(), 1);
}

#[test]
fn configured_neighbor_that_is_now_only_heard_follows_the_kernel() {
    let mut scene = Scene::new();
    let moved = MacAddr([2, 0, 0, 0, 0, 10]);
    scene.say([Change::Neighbor(IDX, ip("10.0.0.2"), neighbor(NeighborOrigin::Configured))]);
    scene.settle();
    scene.say([Change::Neighbor(
        IDX,
        ip("10.0.0.2"),
        KernelNeighbor { mac: moved, trust: NeighborOrigin::NetlinkEvents },
    )]);
    scene.settle();
    let resolved = scene.host.resolve(ip("10.0.0.2"), Instant::ZERO);
    assert_eq!(resolved, Resolution::Station { mac: moved, source: ip("10.0.0.1") });
}

#[test]
fn smaller_metric_wins_and_the_larger_one_takes_over() {
    let mut scene = Scene::new();
    let best = route_in(MAIN, "0.0.0.0/0", "10.0.0.254", 10);
    scene.say_routes([best.clone(), route_in(MAIN, "0.0.0.0/0", "10.0.0.253", 20)]);
    scene.check(&[("8.8.8.8", "10.0.0.254")]);
    scene.say([Change::RouteGone(best)]);
    scene.check(&[("8.8.8.8", "10.0.0.253")]);
}

#[test]
fn first_of_equal_routes_is_used() {
    let mut scene = Scene::new();
    scene.say([Change::Route(route("10.1.0.0/16", "10.0.0.3"), RoutePosition::First)]);
    scene.say([Change::Route(route("10.1.0.0/16", "10.0.0.4"), RoutePosition::Last)]);
    scene.check(&[("10.1.0.1", "10.0.0.3")]);
    scene.say([Change::Route(route("10.1.0.0/16", "10.0.0.5"), RoutePosition::First)]);
    scene.check(&[("10.1.0.1", "10.0.0.5")]);
    scene.say([Change::Route(route("10.1.0.0/16", "10.0.0.6"), RoutePosition::InsteadOfFirst)]);
    scene.check(&[("10.1.0.1", "10.0.0.6")]);
}

#[test]
fn routes_of_other_interfaces_and_of_a_type_of_service_do_not_count() {
    let mut scene = Scene::new();
    let elsewhere = KernelRoute { legs: vec![RouteNextHop { link: OTHER, gateway: None }], ..route("10.2.0.0/16", "") };
    scene.say_routes([elsewhere, KernelRoute { tos: 8, ..route("10.3.0.0/16", "10.0.0.3") }]);
    scene.check(&[("10.2.0.1", "-"), ("10.3.0.1", "-")]);
}

#[test]
fn leg_of_this_interface_is_found_among_several() {
    let mut scene = Scene::new();
    let legs = vec![
        RouteNextHop { link: OTHER, gateway: Some(ip("10.9.0.1")) },
        RouteNextHop { link: IDX, gateway: Some(ip("10.0.0.9")) },
    ];
    scene.say_routes([KernelRoute { legs, ..route("10.2.0.0/16", "") }]);
    scene.check(&[("10.2.0.1", "10.0.0.9")]);
}

#[test]
fn earlier_table_wins_over_a_longer_prefix_in_a_later_one() {
    let mut scene = Scene::new();
    scene.say([Change::Rule(rule(100, 100))]);
    scene.say_routes([route_in(100, "10.0.0.0/8", "10.0.0.3", 0), route("10.1.0.0/16", "10.0.0.4")]);
    scene.say_routes([route_in(100, "10.0.0.3/32", "", 0), route("0.0.0.0/0", "10.0.0.3")]);
    scene.check(&[("10.1.0.1", "10.0.0.3"), ("8.8.8.8", "10.0.0.3")]);
    scene.say([Change::RuleGone(rule(100, 100))]);
    scene.check(&[("10.1.0.1", "10.0.0.4")]);
}

#[test]
fn rule_for_a_destination_reaches_no_further() {
    let mut scene = Scene::new();
    scene.say([Change::Rule(Rule { to: Some(prefix("10.1.0.0/16")), ..rule(100, 100) })]);
    scene.say_routes([route_in(100, "0.0.0.0/0", "10.0.0.3", 0), route_in(100, "10.0.0.0/8", "10.0.0.5", 0)]);
    scene.say_routes([route_in(100, "10.1.7.0/24", "10.0.0.7", 0), route("0.0.0.0/0", "10.0.0.4")]);
    scene.check(&[("10.1.0.1", "10.0.0.5"), ("10.1.7.1", "10.0.0.7"), ("10.2.0.1", "10.0.0.4")]);
}

#[test]
fn rule_for_all_but_a_destination_leaves_that_out() {
    let mut scene = Scene::new();
    scene.say([Change::Rule(Rule { to: Some(prefix("128.0.0.0/1")), inverted: true, ..rule(100, 100) })]);
    scene.say_routes([route_in(100, "0.0.0.0/0", "10.0.0.3", 0), route("0.0.0.0/0", "10.0.0.4")]);
    scene.say_routes([route_in(100, "10.0.0.0/24", "", 0)]);
    scene.check(&[("8.8.8.8", "10.0.0.3"), ("200.0.0.1", "10.0.0.4")]);
}

#[test]
fn rule_for_a_source_means_routes_that_send_from_it() {
    let mut scene = Scene::new();
    for (from, priority, table) in [("10.0.0.1/32", 100, 100), ("10.7.0.0/16", 99, 99)] {
        scene.say([Change::Rule(Rule { from: Some(prefix(from)), ..rule(priority, table) })]);
    }
    scene.say_routes([route_in(99, "0.0.0.0/0", "10.0.0.9", 0), route_in(100, "0.0.0.0/0", "10.0.0.3", 0)]);
    scene.say_routes([route_in(100, "10.0.0.0/24", "", 0)]);
    scene.check(&[("8.8.8.8", "10.0.0.3")]);
}

#[test]
fn rules_that_no_plain_packet_meets_are_passed_over() {
    let mut scene = Scene::new();
    let others = [
        Rule { special: true, ..rule(90, 100) },
        Rule { bound_to: Some("eth9".into()), ..rule(91, 100) },
        Rule { inverted: true, ..rule(92, 100) },
    ];
    scene.say(others.map(Change::Rule));
    scene.say_routes([route_in(100, "0.0.0.0/0", "10.0.0.3", 0), route("0.0.0.0/0", "10.0.0.4")]);
    scene.check(&[("8.8.8.8", "10.0.0.4")]);
    // The rules of WireGuard: `not fwmark X lookup 100`, and before it main without its default
    // route.
    scene.say([Change::Rule(Rule { suppressed_len: Some(0), ..rule(80, MAIN) })]);
    scene.say([Change::Rule(Rule { special: true, inverted: true, ..rule(93, 100) })]);
    scene.check(&[("8.8.8.8", "10.0.0.3"), ("10.0.0.8", "10.0.0.8")]);
}

#[test]
fn jump_leaves_out_what_is_between() {
    let mut scene = Scene::new();
    scene.say([Change::Rule(Rule { action: RuleAction::Goto(200), ..rule(90, 0) }), Change::Rule(rule(100, 100))]);
    scene.say_routes([route_in(100, "0.0.0.0/0", "10.0.0.3", 0), route("0.0.0.0/0", "10.0.0.4")]);
    scene.check(&[("8.8.8.8", "10.0.0.4")]);
}

#[test]
fn holes_are_holes() {
    let mut scene = Scene::new();
    scene.say_routes([route("0.0.0.0/0", "10.0.0.254"), hole("10.0.0.0/8"), route("10.5.0.0/16", "10.0.0.5")]);
    scene.check(&[("10.6.0.1", "-"), ("10.5.0.1", "10.0.0.5"), ("10.0.0.8", "10.0.0.8"), ("11.0.0.1", "10.0.0.254")]);
    scene.say([Change::RouteGone(hole("10.0.0.0/8"))]);
    scene.check(&[("10.6.0.1", "10.0.0.254")]);
}

#[test]
fn hole_of_an_earlier_rule_hides_later_tables() {
    let mut scene = Scene::new();
    let closed = Rule { action: RuleAction::Hole, to: Some(prefix("10.6.0.0/16")), ..rule(100, 0) };
    scene.say([Change::Rule(closed)]);
    scene.say_routes([route("0.0.0.0/0", "10.0.0.254"), route("10.6.1.0/24", "10.0.0.5")]);
    scene.check(&[("10.6.1.1", "-"), ("10.6.2.1", "-"), ("10.7.0.1", "10.0.0.254")]);
}

#[test]
fn thrown_destination_is_looked_up_in_the_next_table() {
    let mut scene = Scene::new();
    scene.say([Change::Rule(rule(100, 100))]);
    let thrown = KernelRoute { kind: RouteKind::Throw, legs: Vec::new(), ..route_in(100, "10.0.0.0/8", "", 0) };
    scene.say_routes([thrown, route_in(100, "0.0.0.0/0", "10.0.0.3", 0), route("10.1.0.0/16", "10.0.0.4")]);
    scene.check(&[("10.1.0.1", "10.0.0.4"), ("8.8.8.8", "10.0.0.3"), ("10.2.0.1", "-")]);
}

#[test]
fn router_that_no_network_contains_is_on_the_link() {
    let mut scene = Scene::new();
    scene.say_routes([route("0.0.0.0/0", "172.31.1.1")]);
    scene.check(&[("8.8.8.8", "172.31.1.1")]);
}

#[test]
fn route_may_send_from_an_address_of_the_loopback_interface() {
    let mut scene = Scene::new();
    scene.say([Change::Address(1, prefix("10.99.0.1/32"))]);
    scene.say_routes([KernelRoute { source: Some(ip("10.99.0.1")), ..route("0.0.0.0/0", "10.0.0.254") }]);
    scene.settle();
    let resolved = scene.host.resolve(ip("8.8.8.8"), Instant::ZERO);
    assert_eq!(resolved, Resolution::NeighborMissing { next_hop: ip("10.0.0.254"), source: ip("10.99.0.1") });
    assert!(scene.host.is_own(ip("10.99.0.1")));
}

#[test]
fn address_without_its_network_is_one_without() {
    let mut scene = Scene::new();
    scene.say([Change::RouteGone(route("10.0.0.0/24", ""))]);
    scene.check(&[("10.0.0.7", "-")]);
    assert!(scene.host.is_own(ip("10.0.0.1")));
}

#[test]
fn second_address_of_a_network_inherits_its_route() {
    let mut scene = Scene::new();
    scene.say([Change::Address(IDX, prefix("10.0.0.2/24"))]);
    scene.settle();
    scene.say([Change::AddressGone(IDX, prefix("10.0.0.1/24"))]);
    scene.settle();
    let resolved = scene.host.resolve(ip("10.0.0.9"), Instant::ZERO);
    assert_eq!(resolved, Resolution::NeighborMissing { next_hop: ip("10.0.0.9"), source: ip("10.0.0.2") });
}
