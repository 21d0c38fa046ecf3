//! Scripts in virtual time that check which requests are sent, which neighbors are learned, and
//! which handles come back.

use proptest::prelude::*;

use super::*;
use crate::proto::host::HostConfig;
use crate::proto::ids::InterfaceId;
use crate::proto::prefix::Ipv4Prefix;
use crate::wire::VlanTags;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const THIEF_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 66]);

struct Script {
    neighbors: Neighbors<u32>,
    host: Host,
    now: Instant,
    /// Requests: whole seconds since the start, and the destination.
    asked: Vec<(u64, MacAddr)>,
    resolved: Vec<(u32, MacAddr)>,
    released: Vec<(u32, NeighborDrop)>,
}

fn script() -> Script {
    let config = NeighborConfig {
        neighbors_max: 4,
        unknown_max: 2,
        pending_max: 5,
        pending_per_neighbor: 3,
        ..NeighborConfig::default()
    };
    script_with(config, 8)
}

fn script_with(config: NeighborConfig, host_neighbors: usize) -> Script {
    let host = HostConfig {
        interface: InterfaceId(0),
        mac: MAC,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 2,
        routes_max: 4,
        neighbors_max: host_neighbors,
    };
    let mut host = Host::new(host, HashSeed::new(1, 2)).unwrap();
    host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(OURS, 24).unwrap())).unwrap();
    Script {
        neighbors: Neighbors::new(config, HashSeed::new(3, 4)),
        host,
        now: Instant::ZERO,
        asked: Vec::new(),
        resolved: Vec::new(),
        released: Vec::new(),
    }
}

impl Script {
    fn with<T>(
        &mut self,
        call: impl FnOnce(&mut Neighbors<u32>, &mut Host, Instant, &mut dyn FnMut(NeighborAction<u32>)) -> T,
    ) -> T {
        let Self { neighbors, host, now, asked, resolved, released } = self;
        let at = now.as_nanos() / 1_000_000_000;
        call(neighbors, host, *now, &mut |action| match action {
            NeighborAction::Send(send) => {
                assert_eq!((send.packet.operation, send.packet.sender_mac), (ArpOperation::Request, MAC));
                assert_eq!(send.packet.sender_ip, OURS);
                asked.push((at, send.to));
            }
            NeighborAction::Resolved { handle, mac } => resolved.push((handle, mac)),
            NeighborAction::Released { handle, reason } => released.push((handle, reason)),
        })
    }

    fn queue(&mut self, next_hop: Ipv4Addr, handle: u32) {
        self.queue_for(ResolutionCause::App, next_hop, handle);
    }

    /// An answer to a caller.
    fn queue_answer(&mut self, next_hop: Ipv4Addr, handle: u32) {
        self.queue_for(ResolutionCause::Handshake, next_hop, handle);
    }

    fn queue_for(&mut self, cause: ResolutionCause, next_hop: Ipv4Addr, handle: u32) {
        let request = NeighborRequest { next_hop, source: OURS, cause };
        self.with(|neighbors, host, now, mut act| neighbors.queue(request, handle, host, now, &mut act));
    }

    fn keep(&mut self, request: NeighborRequest) -> Result<(), NeighborDrop> {
        self.with(|neighbors, host, now, mut act| neighbors.keep(request, host, now, &mut act))
    }

    fn receive(&mut self, operation: ArpOperation, sender: (Ipv4Addr, MacAddr), target_ip: Ipv4Addr) -> ArpOutcome {
        let (sender_ip, sender_mac) = sender;
        let fields = ArpFields { operation, sender_mac, sender_ip, target_mac: MacAddr::ZERO, target_ip };
        self.with(|neighbors, host, now, mut act| neighbors.receive(&ArpPacket::new(&fields), host, now, &mut act))
    }

    fn answer(&mut self) -> ArpOutcome {
        self.receive(ArpOperation::Reply, (PEER, PEER_MAC), OURS)
    }

    /// Advances time by whole seconds.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            self.with(|neighbors, host, now, mut act| neighbors.tick(host, now, &mut act));
        }
    }

    /// Each neighbor is in one queue, and in the right one.
    fn check_lines(&self) {
        let Neighbors { entries, eviction, .. } = &self.neighbors;
        let all = [
            EvictionClass::App,
            EvictionClass::Peers,
            EvictionClass::Unused,
            EvictionClass::Waiting,
            EvictionClass::Idle,
        ];
        assert_eq!(all.iter().map(|line| eviction.count(*line)).sum::<usize>(), entries.len());
        for idx in 0..entries.capacity() as u32 {
            let Some(entry) = entries.get(idx) else { continue };
            let is_asked_for = matches!(entry.state, NeighborState::Asking(_));
            match entry.link.class {
                EvictionClass::Waiting => assert!(is_asked_for && entry.count > 0),
                EvictionClass::Idle => assert!(is_asked_for && entry.count == 0),
                EvictionClass::App | EvictionClass::Peers | EvictionClass::Unused => (),
            }
        }
    }

    fn believed(&self, address: Ipv4Addr) -> Option<MacAddr> {
        match self.host.resolve(address, self.now) {
            Resolution::Station { mac, .. } => Some(mac),
            _ => None,
        }
    }
}

fn peer(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

#[test]
fn silent_neighbor_is_asked_three_times_with_longer_waits_then_given_up() {
    let mut script = script();
    script.queue(PEER, 1);
    script.run(6);
    assert!(script.released.is_empty());
    script.run(20);
    assert_eq!(script.asked, [0, 1, 3].map(|at| (at, MacAddr::BROADCAST)));
    assert_eq!(script.released, [(1, NeighborDrop::Unreachable)]);
    assert!(script.neighbors.is_empty());
}

/// Headers that were prepared for it, those of orders above all, are still valid.
#[test]
fn neighbor_that_confirms_its_station_leaves_the_host_as_it_was() {
    let mut script = script();
    script.queue(PEER, 1);
    assert_eq!(script.answer(), ArpOutcome::Answered);
    let before = script.host.changes();
    for second in 0..100 {
        let said = match second % 3 {
            0 => script.answer(),
            _ => script.receive(ArpOperation::Request, (PEER, PEER_MAC), OURS),
        };
        assert_eq!((said, script.believed(PEER)), (ArpOutcome::Confirmed, Some(PEER_MAC)));
        script.run(1);
    }
    assert_eq!(script.host.changes(), before, "believed all the time");
    assert_eq!(script.receive(ArpOperation::Request, (PEER, MacAddr([2, 9, 9, 9, 9, 9])), OURS), ArpOutcome::Moved);
    assert!(script.host.changes() > before, "another station is news");
}

#[test]
fn neighbor_that_is_back_after_nobody_looked_for_long_is_news() {
    let mut script = script();
    script.queue(PEER, 1);
    script.answer();
    let before = script.host.changes();
    // The worker was stalled: no request was sent meanwhile.
    script.now += Duration::from_secs(1_000);
    assert_eq!((script.believed(PEER), script.answer()), (None, ArpOutcome::Confirmed));
    assert!(script.believed(PEER).is_some() && script.host.changes() > before);
}

#[test]
fn further_packets_do_not_ask_again() {
    let mut script = script();
    (0..100).for_each(|handle| script.queue(PEER, handle));
    assert_eq!((script.asked.len(), script.released.len()), (1, 97));
    assert!(script.released.iter().all(|(_, reason)| *reason == NeighborDrop::Superseded));
    script.answer();
    assert_eq!(script.resolved, [97, 98, 99].map(|handle| (handle, PEER_MAC)));
}

#[test]
fn answer_lets_the_host_know_and_the_packets_go_in_order() {
    let mut script = script();
    script.queue(PEER, 1);
    script.queue(PEER, 2);
    assert_eq!(script.answer(), ArpOutcome::Answered);
    assert_eq!((script.resolved.clone(), script.believed(PEER)), (vec![(1, PEER_MAC), (2, PEER_MAC)], Some(PEER_MAC)));
    script.queue(PEER, 3);
    assert_eq!((script.resolved.last(), script.neighbors.pending()), (Some(&(3, PEER_MAC)), 0));
}

#[test]
fn full_queue_of_all_neighbors_refuses_the_newcomer() {
    let mut script = script();
    (0..3).for_each(|handle| script.queue(peer(2), handle));
    (3..5).for_each(|handle| script.queue(peer(3), handle));
    script.queue(peer(4), 5);
    assert_eq!(script.released, [(5, NeighborDrop::NoRoom)]);
    script.queue(peer(3), 6);
    assert_eq!(script.released[1], (3, NeighborDrop::Superseded));
}

#[test]
fn old_answer_is_checked_by_unicast_while_it_is_still_believed() {
    let mut script = script();
    script.queue(PEER, 1);
    script.answer();
    script.run(30);
    assert_eq!(script.asked[1..], [(30, PEER_MAC)]);
    assert_eq!((script.answer(), script.believed(PEER)), (ArpOutcome::Confirmed, Some(PEER_MAC)));
    script.run(29);
    assert_eq!(script.asked.len(), 2);
}

#[test]
fn neighbor_that_fell_silent_is_asked_of_all_and_then_gone() {
    let mut script = script();
    script.queue(PEER, 1);
    script.answer();
    script.run(36);
    assert_eq!(script.believed(PEER), Some(PEER_MAC));
    script.run(1);
    assert_eq!(script.believed(PEER), None);
    script.run(20);
    let (unicast, all) = (PEER_MAC, MacAddr::BROADCAST);
    assert_eq!(script.asked[1..], [(30, unicast), (31, unicast), (33, unicast), (37, all), (38, all), (40, all)]);
    assert!(script.neighbors.is_empty());
}

#[test]
fn moved_neighbor_is_followed_and_checked_at_once() {
    let mut script = script();
    script.queue(PEER, 1);
    script.answer();
    script.run(5);
    let moved = MacAddr([2, 0, 0, 0, 0, 3]);
    assert_eq!(script.receive(ArpOperation::Request, (PEER, moved), PEER), ArpOutcome::Moved);
    assert_eq!((script.believed(PEER), script.asked.last()), (Some(moved), Some(&(5, moved))));
    script.run(7);
    assert_eq!((script.believed(PEER), script.asked.last()), (None, Some(&(12, MacAddr::BROADCAST))));
    script.answer();
    assert_eq!(script.believed(PEER), Some(PEER_MAC));
}

#[test]
fn neighbor_that_is_doubted_is_checked_at_once_and_once() {
    let mut script = script();
    let negative_advice = |script: &mut Script| {
        script.with(|neighbors, host, now, mut act| neighbors.negative_advice(PEER, host, now, &mut act))
    };
    negative_advice(&mut script);
    script.queue(PEER, 1);
    script.answer();
    negative_advice(&mut script);
    assert_eq!(script.asked.len(), 1, "nobody is doubted who is not known, or who has just answered");
    script.run(5);
    negative_advice(&mut script);
    negative_advice(&mut script);
    assert_eq!((script.asked.len(), script.asked.last()), (2, Some(&(5, PEER_MAC))));
    script.answer();
    script.run(20);
    assert_eq!((script.believed(PEER), script.asked.len()), (Some(PEER_MAC), 2));
}

#[test]
fn second_answer_does_not_override_the_first_within_the_lock_time() {
    let mut script = script();
    script.queue(PEER, 1);
    script.answer();
    let thief = script.receive(ArpOperation::Reply, (PEER, THIEF_MAC), OURS);
    assert_eq!((thief, script.believed(PEER)), (ArpOutcome::Ignored(NotLearned::TooSoon), Some(PEER_MAC)));
}

#[test]
fn nothing_is_learned_from_what_nobody_asked_for() {
    let mut script = script();
    let far = Ipv4Addr::new(192, 0, 2, 1);
    for (operation, sender, target, reason) in [
        (ArpOperation::Reply, (PEER, PEER_MAC), OURS, NotLearned::Unsolicited),
        (ArpOperation::Request, (PEER, PEER_MAC), PEER, NotLearned::NotForUs),
        (ArpOperation::Request, (PEER, PEER_MAC), peer(9), NotLearned::NotForUs),
        (ArpOperation::Request, (OURS, THIEF_MAC), OURS, NotLearned::NotANeighbor),
        (ArpOperation::Request, (Ipv4Addr::UNSPECIFIED, PEER_MAC), OURS, NotLearned::NotANeighbor),
        (ArpOperation::Request, (far, PEER_MAC), OURS, NotLearned::NotANeighbor),
        (ArpOperation::Request, (peer(255), PEER_MAC), OURS, NotLearned::NotANeighbor),
        (ArpOperation::Request, (Ipv4Addr::new(224, 0, 0, 1), PEER_MAC), OURS, NotLearned::NotANeighbor),
        (ArpOperation::Request, (PEER, MAC), OURS, NotLearned::OwnMac),
    ] {
        assert_eq!(script.receive(operation, sender, target), ArpOutcome::Ignored(reason), "{sender:?} {target}");
    }
    assert!(script.neighbors.is_empty() && script.believed(PEER).is_none());
}

#[test]
fn unknown_neighbors_take_their_own_places_and_expire_without_a_probe() {
    let mut script = script();
    let heard: Vec<_> =
        (10..14).map(|last| script.receive(ArpOperation::Request, (peer(last), PEER_MAC), OURS)).collect();
    let full = ArpOutcome::Ignored(NotLearned::NoRoom);
    assert_eq!(heard, [ArpOutcome::Unsolicited, ArpOutcome::Unsolicited, full, full]);
    script.run(31);
    assert_eq!((script.neighbors.len(), script.asked.len(), script.believed(peer(10))), (0, 0, None));
}

#[test]
fn unknown_neighbor_that_we_request_stays_and_another_is_evicted() {
    let mut script = script();
    script.receive(ArpOperation::Request, (peer(10), PEER_MAC), OURS);
    script.receive(ArpOperation::Request, (peer(11), PEER_MAC), OURS);
    let request = NeighborRequest { next_hop: peer(10), source: OURS, cause: ResolutionCause::App };
    assert_eq!(script.keep(request), Ok(()));
    (2..5).for_each(|last| script.queue(peer(last), last.into()));
    assert_eq!((script.neighbors.len(), script.believed(peer(11))), (4, None));
    script.queue(peer(5), 5);
    assert_eq!(script.released, [(5, NeighborDrop::NoRoom)]);
    script.run(30);
    assert_eq!(script.asked.last(), Some(&(30, PEER_MAC)));
}

#[test]
fn configured_neighbor_survives_what_arp_hears() {
    let mut script = script();
    script.queue(PEER, 1);
    script.host.apply(HostEvent::NeighborSet { address: PEER, mac: THIEF_MAC }).unwrap();
    script.answer();
    script.run(100);
    assert_eq!(script.believed(PEER), Some(THIEF_MAC));
}

#[test]
fn full_host_gives_the_packets_back() {
    let mut script = script_with(NeighborConfig::default(), 0);
    script.queue(PEER, 1);
    assert_eq!(script.answer(), ArpOutcome::Ignored(NotLearned::NoRoom));
    assert_eq!(script.released, [(1, NeighborDrop::NoRoom)]);
}

#[test]
fn forgotten_neighbor_gives_its_packets_back() {
    let mut script = script();
    script.queue(PEER, 1);
    script.with(|neighbors, host, _, mut act| neighbors.forget(PEER, host, &mut act));
    assert_eq!(script.released, [(1, NeighborDrop::Forgotten)]);
}

#[test]
fn large_table_is_swept_over_several_ticks() {
    let config = NeighborConfig { neighbors_max: 200, pending_max: 200, ..NeighborConfig::default() };
    let mut script = script_with(config, 200);
    (2..202).for_each(|last| script.queue(peer(last), last.into()));
    script.now += Duration::from_secs(1);
    let asked = |script: &mut Script| {
        script.with(|neighbors, host, now, mut act| neighbors.tick(host, now, &mut act));
        script.asked.len() - 200
    };
    let counts: Vec<_> = (0..5).map(|_| asked(&mut script)).collect();
    assert_eq!(counts, [64, 128, 192, 200, 200]);
}

/// RFC 1122 2.3.2.2 wants the newest packet kept; for callers, whose addresses can be forged, the
/// newest request as well.
#[test]
fn question_of_a_newer_caller_takes_the_place_of_the_oldest() {
    let mut script = script();
    (10..30).for_each(|last| script.queue_answer(peer(last), last.into()));
    assert_eq!((script.neighbors.len(), script.asked.len()), (4, 20), "each is asked for");
    assert_eq!(script.released.len(), 16, "what waited for the others");
    assert_eq!(script.receive(ArpOperation::Reply, (peer(29), PEER_MAC), OURS), ArpOutcome::Answered);
    assert_eq!((script.resolved.clone(), script.believed(peer(29))), (vec![(29, PEER_MAC)], Some(PEER_MAC)));
    let late = script.receive(ArpOperation::Reply, (peer(10), PEER_MAC), OURS);
    assert_eq!(late, ArpOutcome::Ignored(NotLearned::Unsolicited));
}

/// Every station of the network receives a request: a host that connects from many addresses made
/// us its amplifier.
#[test]
fn questions_that_others_cause_have_a_rate_for_each_kind_and_those_of_the_app_none() {
    let mut script =
        script_with(NeighborConfig { requests: TokenBucket::new(10, 3), ..NeighborConfig::default() }, 256);
    let mut ask = |cause: ResolutionCause, range: core::ops::Range<u8>| {
        let before = script.asked.len();
        range.for_each(|last| script.queue_for(cause, peer(last), last.into()));
        let refused = script.released.drain(..).filter(|(_, why)| *why == NeighborDrop::RateLimited).count();
        script.now += Duration::from_millis(200);
        (script.asked.len() - before, refused)
    };
    assert_eq!(ask(ResolutionCause::Handshake, 10..30), (3, 17));
    assert_eq!(
        [ask(ResolutionCause::Datagram, 40..60), ask(ResolutionCause::Connection, 70..90)],
        [(3, 17); 2],
        "a flood of one kind is not another's"
    );
    assert_eq!(ask(ResolutionCause::App, 100..120), (20, 0));
    assert_eq!(ask(ResolutionCause::Handshake, 10..13), (0, 0), "they are asked for, and answers to them wait");
    assert_eq!(ask(ResolutionCause::Handshake, 13..30), (3, 14), "after 600 ms");
}

#[test]
fn caller_who_may_not_be_asked_for_takes_nobodys_place() {
    let mut script = script_with(
        NeighborConfig { neighbors_max: 3, requests: TokenBucket::new(1, 3), ..NeighborConfig::default() },
        8,
    );
    (10..20).for_each(|last| script.queue_answer(peer(last), last.into()));
    assert_eq!(script.neighbors.len(), 3);
    let kept: Vec<_> = (10..20).filter(|last| script.neighbors.find(peer(*last)).is_some()).collect();
    assert_eq!(kept, [10, 11, 12]);
}

#[test]
fn callers_take_no_place_from_those_whom_the_app_asks_for() {
    let mut script = script();
    let request = NeighborRequest { next_hop: peer(2), source: OURS, cause: ResolutionCause::App };
    assert_eq!(script.keep(request), Ok(()), "a gateway");
    script.queue(peer(3), 3);
    (10..250).for_each(|last| script.queue_answer(peer(last), last.into()));
    script.queue(peer(4), 4);
    script.queue(peer(5), 5);
    script.queue_answer(peer(9), 9);
    assert_eq!(script.released.last(), Some(&(9, NeighborDrop::NoRoom)), "the app has all places");
    for last in 2..6 {
        assert_eq!(script.receive(ArpOperation::Reply, (peer(last), PEER_MAC), OURS), ArpOutcome::Answered);
    }
    assert_eq!(script.resolved, [3, 4, 5].map(|handle| (handle, PEER_MAC)));
}

#[test]
fn router_of_callers_is_no_callers_neighbor() {
    let mut script = script();
    let far = Ipv4Prefix::new(Ipv4Addr::new(192, 0, 2, 0), 24).unwrap();
    let route = crate::proto::Route { network: far, gateway: Some(peer(2)), source: OURS, metric: 0 };
    script.host.apply(HostEvent::RouteAdded(route)).unwrap();
    script.queue_answer(peer(2), 2);
    (10..250).for_each(|last| script.queue_answer(peer(last), last.into()));
    assert_eq!(script.receive(ArpOperation::Reply, (peer(2), PEER_MAC), OURS), ArpOutcome::Answered);
    script.run(30);
    assert_eq!((script.believed(peer(2)), script.asked.last()), (Some(PEER_MAC), Some(&(30, PEER_MAC))), "kept fresh");
}

#[test]
fn answers_to_newer_callers_take_the_buffers_of_older_ones_and_of_nobody_else() {
    let mut script = script();
    script.queue(peer(2), 1);
    (0..3).for_each(|handle| script.queue_answer(peer(10), 10 + handle));
    (0..3).for_each(|handle| script.queue_answer(peer(11), 20 + handle));
    script.queue(peer(2), 2);
    let superseded: Vec<_> = script.released.iter().map(|(handle, _)| *handle).collect();
    assert_eq!(superseded, [10, 11, 12]);
    script.queue(peer(2), 3);
    script.queue(peer(3), 4);
    script.queue(peer(3), 5);
    assert_eq!(script.neighbors.pending(), 5);
    script.queue_answer(peer(12), 30);
    assert_eq!(script.released.last(), Some(&(30, NeighborDrop::NoRoom)), "all that waits is the app's");
}

/// A station that replies is known, and no more: a peer that connects from it may never complete
/// the handshake.
#[test]
fn caller_who_has_answered_is_let_go_unless_we_exchange_data() {
    let mut script = script();
    script.queue_answer(peer(10), 1);
    script.queue_answer(peer(11), 1);
    for last in [10, 11] {
        assert_eq!(script.receive(ArpOperation::Reply, (peer(last), PEER_MAC), OURS), ArpOutcome::Answered);
    }
    let request = NeighborRequest { next_hop: peer(10), source: OURS, cause: ResolutionCause::Connection };
    assert_eq!(script.keep(request), Ok(()));
    script.run(31);
    assert_eq!((script.believed(peer(10)), script.believed(peer(11))), (Some(PEER_MAC), None));
    assert_eq!(script.asked[2..], [(30, PEER_MAC), (31, PEER_MAC)], "it is kept fresh");
}

/// An entry that our app did not request and whose data is the oldest makes way: more stations may
/// connect in a year than there are entries.
#[test]
fn peer_of_old_makes_way_for_a_new_caller() {
    let mut script = script();
    for last in 10..14 {
        script.queue_for(ResolutionCause::Connection, peer(last), last.into());
        assert_eq!(script.receive(ArpOperation::Reply, (peer(last), PEER_MAC), OURS), ArpOutcome::Answered);
    }
    let request = NeighborRequest { next_hop: peer(10), source: OURS, cause: ResolutionCause::Connection };
    assert_eq!(script.keep(request), Ok(()));
    script.queue_answer(peer(20), 20);
    assert_eq!(script.receive(ArpOperation::Reply, (peer(20), PEER_MAC), OURS), ArpOutcome::Answered);
    let known: Vec<_> = [10, 11, 12, 13, 20].map(|last| script.believed(peer(last)).is_some()).into();
    assert_eq!(known, [true, false, true, true, true]);
}

/// RFC 826, "Packet Reception": a host that requests our address is about to send to us.
#[test]
fn caller_whose_question_was_answered_is_known_though_the_table_is_full_of_open_ones() {
    let mut script = script();
    (10..250).for_each(|last| script.queue_answer(peer(last), last.into()));
    assert_eq!(script.receive(ArpOperation::Request, (PEER, PEER_MAC), OURS), ArpOutcome::Unsolicited);
    script.queue_answer(PEER, 1);
    assert_eq!(script.resolved, [(1, PEER_MAC)]);
}

/// A flood of requests changes the neighbors, and so every flow's prepared headers, a few times a
/// second.
#[test]
fn unknown_neighbors_evict_only_each_other_and_after_a_second() {
    let mut script = script();
    script.queue(PEER, 1);
    script.answer();
    let ask = |script: &mut Script, last| script.receive(ArpOperation::Request, (peer(last), PEER_MAC), OURS);
    assert_eq!([10, 11].map(|last| ask(&mut script, last)), [ArpOutcome::Unsolicited; 2]);
    let before = script.host.changes();
    assert!((12..250).all(|last| ask(&mut script, last) == ArpOutcome::Ignored(NotLearned::NoRoom)));
    assert_eq!(script.host.changes(), before);
    script.run(1);
    assert_eq!([12, 13].map(|last| ask(&mut script, last)), [ArpOutcome::Unsolicited; 2]);
    let known: Vec<_> = [2, 10, 11, 12, 13].map(|last| script.believed(peer(last)).is_some()).into();
    assert_eq!(known, [true, false, false, true, true]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Queue(u8),
    Answer(u8),
    Hear { reply: bool, sender: u8, mac: u8, target: u8 },
    Forget(u8),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u8..9).prop_map(Step::Queue),
        (1u8..9).prop_map(Step::Answer),
        (any::<bool>(), 0u8..9, 1u8..4, 0u8..9).prop_map(|(reply, sender, mac, target)| Step::Hear {
            reply,
            sender,
            mac,
            target
        }),
        (1u8..9).prop_map(Step::Forget),
        (1u16..40_000).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever happens, each queued handle waits, was sent, or came back, and only once.
    #[test]
    fn every_handle_comes_back_once(steps in prop::collection::vec(step(), 1..200), host_room in 0usize..6) {
        let mut script = script_with(script().neighbors.config, host_room);
        let mut queued = 0u32;
        for step in steps {
            match step {
                Step::Queue(last) => {
                    queued += 1;
                    script.queue(peer(last), queued);
                }
                Step::Answer(last) => {
                    queued += 1;
                    script.queue_answer(peer(last), queued);
                }
                Step::Hear { reply, sender, mac, target } => {
                    let operation = if reply { ArpOperation::Reply } else { ArpOperation::Request };
                    script.receive(operation, (peer(sender), MacAddr([2, 0, 0, 0, 0, mac])), peer(target));
                }
                Step::Forget(last) => {
                    script.with(|neighbors, host, _, mut act| neighbors.forget(peer(last), host, &mut act));
                }
                Step::Wait(ms) => {
                    script.now += Duration::from_millis(ms.into());
                    script.with(|neighbors, host, now, mut act| neighbors.tick(host, now, &mut act));
                }
            }
            let back = script.resolved.len() + script.released.len();
            prop_assert_eq!(back + script.neighbors.pending(), queued as usize);
            prop_assert!(script.neighbors.len() <= 4);
            script.check_lines();
        }
        script.run(60);
        let mut handles: Vec<_> = script.resolved.iter().map(|(handle, _)| *handle).collect();
        handles.extend(script.released.iter().map(|(handle, _)| *handle));
        handles.sort_unstable();
        prop_assert_eq!(handles, (1..=queued).collect::<Vec<_>>());
        prop_assert_eq!(script.neighbors.pending(), 0);
    }
}
