use super::*;
use crate::counters::Block;
use crate::pipeline::tests::{ANNE, BERT, GROUP, OURS, PEER, PEER_STATION, Recorder, STATION, host, patched};
use crate::pipeline::{EgressConfig, Ethernet, Ipv4, Ipv4Config, Ipv4Successors, Udp, UdpConfig, Unhandled, Vlans};
use crate::proto::{Group, HostEvent, Ipv4Prefix};
use crate::time::Duration;
use crate::wire::igmp::{ALL_ROUTERS, IgmpSources, REPORT_V3_DESTINATION, RecordKind};
use crate::wire::{EthernetFrame, VlanTag, VlanTags};

type Stack = Ethernet<Ipv4<Udp, Unhandled, Igmp, Unhandled>, Unhandled>;

const SECOND: Duration = Duration::from_secs(1);
const FOREIGN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A stack that reports its sockets' groups, and the wire behind it.
type Bench = crate::pipeline::tests::bench::Bench<Stack, Recorder>;

fn bench() -> Bench {
    bench_with(IgmpConfig::new(HashSeed::new(3, 4)))
}

fn bench_with(config: IgmpConfig) -> Bench {
    let seed = HashSeed::new(3, 4);
    Bench::new(host(), Recorder::default(), EgressConfig::quiet(seed), |host, scope| {
        let next = Ipv4Successors {
            udp: Udp::new(UdpConfig::default(), scope),
            icmp: Unhandled::new("icmp", scope),
            igmp: Igmp::new(config, host, scope),
            tcp: Unhandled::new("tcp", scope),
        };
        let ipv4 = Ipv4::new(Ipv4Config::new(seed), next, scope);
        Ethernet::new(Some(STATION), Vlans::Any, ipv4, Unhandled::new("arp", scope), scope)
    })
}

impl Bench {
    /// Frames sent in the ticks of one instant.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        for _ in 0..200 {
            self.cx(Node::tick);
        }
        let frames = self.outbox.frames.drain(..);
        frames.map(|mbuf| (mbuf.bytes().to_vec(), mbuf.free()).0).collect()
    }

    fn sent_within(&mut self, span: Duration) -> Vec<Vec<u8>> {
        let mut sent = self.sent();
        for _ in 0..100 {
            self.now += Duration::from_nanos(span.as_nanos() / 100);
            sent.extend(self.sent());
        }
        sent
    }

    fn join(&mut self, group: Ipv4Addr) {
        self.sockets.join(ANNE, Group::new(group, 9_000)).unwrap();
    }

    /// received = accepted + Σ named drops, and every buffer is back in the pool.
    fn assert_conserved(&self) {
        assert_eq!(self.pushed, self.count("igmp/messages") + self.dropped(|_| true));
        assert_eq!((self.pool.in_use(), self.pool.drops_without_reason()), (self.outbox.frames.len(), 0));
    }
}

/// A frame of the peer. `alert` puts the router alert option into its header.
fn frame_from(source: Ipv4Addr, destination: Ipv4Addr, alert: bool, message: &IgmpMessage<'_>) -> Vec<u8> {
    let options: &[u8] = if alert { &ROUTER_ALERT } else { &[] };
    let mut bytes = [0; 1600];
    let len = message.emit(&mut bytes).unwrap();
    let fields = Ipv4Fields {
        source,
        destination,
        protocol: Protocol::IGMP,
        ttl: 1,
        tos: TOS,
        identification: 0,
        dont_fragment: false,
        payload_len: len,
    };
    let dst = MacAddr::multicast_ipv4(destination);
    let link = EthernetHeader::new(EthernetFields { dst, src: PEER_STATION, ethertype: EtherType::IPV4 });
    let mut frame = vec![0; 14 + ipv4::HEADER_LEN + options.len()];
    link.emit(&mut frame).unwrap();
    let header = Ipv4Header::with_options(&fields, options).unwrap();
    header.emit_with_options(options, &mut frame[14..]).unwrap();
    frame.extend_from_slice(&bytes[..len]);
    frame
}

fn query(version: IgmpVersion, group: Ipv4Addr) -> IgmpMessage<'static> {
    let (suppress, robustness, interval_s, sources) = (false, 2, 125, IgmpSources::NONE);
    let max_response_tenths = 10;
    IgmpMessage::Query(IgmpQuery { version, group, max_response_tenths, suppress, robustness, interval_s, sources })
}

fn general(version: IgmpVersion) -> Vec<u8> {
    frame_from(PEER, ALL_SYSTEMS, true, &query(version, Ipv4Addr::UNSPECIFIED))
}

/// The message in a frame of ours, after the checks that each frame has to pass.
fn check_sent(frame: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> IgmpMessage<'_> {
    let link = EthernetFrame::parse(frame).unwrap();
    assert_eq!((link.header.src(), link.header.dst()), (STATION, MacAddr::multicast_ipv4(destination)));
    let packet = Ipv4Packet::parse(link.payload).unwrap();
    packet.verify_checksum().unwrap();
    let header = packet.header;
    assert_eq!((header.source(), header.destination(), header.protocol()), (source, destination, Protocol::IGMP));
    assert_eq!((header.ttl(), header.tos(), packet.options), (1, 0xc0, &ROUTER_ALERT[..]));
    assert_eq!(packet.total_len(), link.payload.len());
    IgmpMessage::parse(packet.payload).unwrap()
}

/// The records of a version 3 report of ours.
fn records(frame: &[u8]) -> Vec<(RecordKind, Ipv4Addr, Vec<Ipv4Addr>)> {
    let IgmpMessage::ReportV3(records) = check_sent(frame, OURS, REPORT_V3_DESTINATION) else { panic!("no report") };
    let records = records.map(|record| record.unwrap());
    records.map(|record| (record.kind, record.group, record.sources.iter().collect())).collect()
}

/// The drop reason that a member of the group counts for a message.
#[track_caller]
fn check_drop(frame: &[u8], reason: &str) {
    let mut bench = bench();
    bench.join(GROUP);
    bench.sent_within(SECOND);
    bench.push(frame);
    assert_eq!(bench.count(&format!("igmp/drop/{reason}")), 1);
    assert!(bench.sent_within(Duration::from_secs(11)).is_empty());
    bench.assert_conserved();
}

#[test]
fn hostile_messages_are_dropped_by_name() {
    use IgmpVersion::{V2, V3};
    let good = general(V3);
    check_drop(&patched(&good, 22, &[2]), "not_local");
    check_drop(&patched(&good, 42, &[1]), "bad_checksum");
    check_drop(&patched(&good, 16, &[0, 24 + 7]), "too_short");
    let without = |version, message| frame_from(PEER, version, false, &message);
    for version in [V2, V3] {
        check_drop(&without(ALL_SYSTEMS, query(version, Ipv4Addr::UNSPECIFIED)), "no_router_alert");
        check_drop(&frame_from(PEER, OURS, true, &query(version, Ipv4Addr::UNSPECIFIED)), "misdirected_query");
        check_drop(&frame_from(PEER, GROUP, true, &query(version, PEER)), "not_a_group");
    }
    check_drop(&without(GROUP, IgmpMessage::ReportV2(GROUP)), "no_router_alert");
    check_drop(&frame_from(PEER, GROUP, true, &IgmpMessage::ReportV2(PEER)), "not_a_group");
    check_drop(&frame_from(FOREIGN, GROUP, true, &IgmpMessage::ReportV2(GROUP)), "foreign_report");
    check_drop(&frame_from(Ipv4Addr::UNSPECIFIED, GROUP, true, &IgmpMessage::ReportV1(GROUP)), "foreign_report");
    check_drop(&frame_from(OURS, GROUP, true, &IgmpMessage::ReportV2(GROUP)), "foreign_report");
}

#[test]
fn any_byte_of_a_query_may_be_wrong() {
    let mut bench = bench();
    bench.join(GROUP);
    let sources = [[10, 0, 0, 7]; 20];
    let IgmpMessage::Query(query) = query(IgmpVersion::V3, GROUP) else { panic!("no query") };
    let query = IgmpMessage::Query(IgmpQuery { sources: IgmpSources::new(&sources), ..query });
    let good = frame_from(PEER, GROUP, true, &query);
    for at in 14..good.len() {
        for value in [0, 1, 0x7f, 0xff] {
            bench.push(&patched(&good, at, &[value]));
        }
        bench.push(&good[..at]);
        bench.sent();
    }
    bench.assert_conserved();
}

#[test]
fn joins_and_leaves_of_the_sockets_are_reported() {
    let mut bench = bench();
    bench.join(GROUP);
    let frames = bench.sent();
    assert_eq!(frames.len(), 1);
    assert_eq!(records(&frames[0]), [(RecordKind::ChangeToExclude, GROUP, vec![])]);
    assert_eq!(bench.sent_within(SECOND).len(), 1);
    // A second consumer changes nothing while another accepts any source; after that consumer
    // leaves, its source remains.
    bench.sockets.join_source(BERT, Group::new(GROUP, 9_000), PEER).unwrap();
    assert!(bench.sent_within(SECOND).is_empty());
    bench.sockets.leave(ANNE, Group::new(GROUP, 9_000)).unwrap();
    assert_eq!(records(&bench.sent()[0]), [(RecordKind::ChangeToInclude, GROUP, vec![PEER])]);
    bench.sent_within(SECOND);
    bench.sockets.close(BERT);
    assert_eq!(records(&bench.sent()[0]), [(RecordKind::BlockOldSources, GROUP, vec![PEER])]);
    assert_eq!((bench.sent_within(SECOND).len(), bench.count("igmp/reports_sent")), (1, 6));
    bench.assert_conserved();
}

#[test]
fn queries_of_each_version_are_answered_in_it() {
    use IgmpVersion::{V1, V2, V3};
    let mut bench = bench();
    bench.join(GROUP);
    bench.sent_within(SECOND);
    for version in [V3, V2, V1] {
        bench.push(&general(version));
        let frames = bench.sent_within(Duration::from_secs(10));
        assert_eq!(frames.len(), 1);
        match version {
            V3 => assert_eq!(records(&frames[0]), [(RecordKind::ModeIsExclude, GROUP, vec![])]),
            V2 => assert_eq!(check_sent(&frames[0], OURS, GROUP), IgmpMessage::ReportV2(GROUP)),
            V1 => assert_eq!(check_sent(&frames[0], OURS, GROUP), IgmpMessage::ReportV1(GROUP)),
        }
    }
    assert_eq!((bench.count("igmp/queries"), bench.count("igmp/version")), (3, 1));
    bench.assert_conserved();
}

#[test]
fn query_without_router_alert_is_taken_in_version_1_and_where_it_may_be() {
    let plain = |version| frame_from(PEER, ALL_SYSTEMS, false, &query(version, Ipv4Addr::UNSPECIFIED));
    let mut strict = bench();
    strict.push(&plain(IgmpVersion::V1));
    assert_eq!(strict.count("igmp/queries"), 1);
    let config = IgmpConfig { require_router_alert: false, ..IgmpConfig::new(HashSeed::new(5, 6)) };
    let mut lenient = bench_with(config);
    lenient.push(&plain(IgmpVersion::V2));
    lenient.push(&plain(IgmpVersion::V3));
    assert_eq!(lenient.count("igmp/queries"), 2);
    lenient.assert_conserved();
}

#[test]
fn query_from_another_network_is_answered_and_not_believed() {
    let ask = |source| frame_from(source, ALL_SYSTEMS, true, &query(IgmpVersion::V2, Ipv4Addr::UNSPECIFIED));
    let mut bench = bench();
    bench.join(GROUP);
    bench.sent_within(Duration::from_secs(10));
    for (source, version, foreign) in [(FOREIGN, 3, 1), (OURS, 3, 2), (PEER, 2, 2)] {
        bench.push(&ask(source));
        assert_eq!(bench.sent_within(Duration::from_secs(11)).len(), 1, "{source}");
        assert_eq!((bench.count("igmp/version"), bench.count("igmp/foreign_queries")), (version, foreign), "{source}");
    }
    // A switch without an address.
    let mut bench = self::bench();
    bench.join(GROUP);
    bench.push(&ask(Ipv4Addr::UNSPECIFIED));
    bench.sent_within(Duration::from_secs(11));
    assert_eq!((bench.count("igmp/version"), bench.count("igmp/foreign_queries")), (2, 0));
    bench.assert_conserved();
}

#[test]
fn link_that_comes_back_hears_everything_again() {
    let host = host();
    let block = Block::heap();
    let mut node = Igmp::new(IgmpConfig::new(HashSeed::new(3, 4)), &host, &block.scope("worker0"));
    let now = Instant::from_nanos(1_000);
    node.reporter.set_filter(GROUP, FilterMode::Exclude, [], now).unwrap();
    assert!(node.reporter.is_due(now));
    node.set_link(false, now);
    assert!(!node.reporter.is_due(now));
    node.set_link(true, now);
    assert!(node.reporter.next(now).is_some());
}

#[test]
fn version_2_leave_goes_to_all_routers() {
    let mut bench = bench();
    bench.push(&general(IgmpVersion::V2));
    bench.join(GROUP);
    bench.sent();
    bench.sockets.close(ANNE);
    let frames = bench.sent();
    assert_eq!(check_sent(&frames[0], OURS, ALL_ROUTERS), IgmpMessage::Leave(GROUP));
    assert_eq!(bench.count("igmp/leaves_sent"), 1);
}

#[test]
fn neighbor_silences_version_2() {
    let mut bench = bench();
    bench.push(&general(IgmpVersion::V2));
    bench.join(GROUP);
    bench.sent_within(Duration::from_secs(11));
    bench.push(&general(IgmpVersion::V2));
    assert!(bench.sent().is_empty());
    bench.push(&frame_from(PEER, GROUP, true, &IgmpMessage::ReportV2(GROUP)));
    assert!(bench.sent_within(Duration::from_secs(11)).is_empty());
    bench.assert_conserved();
}

#[test]
fn thousand_joins_leave_in_few_full_frames() {
    let mut bench = bench();
    for group in 0..1_000 {
        bench.join(Ipv4Addr::from_bits(0xef01_0000 + group));
    }
    let frames = bench.sent();
    assert_eq!(frames.iter().map(|frame| records(frame).len()).collect::<Vec<_>>(), [183, 183, 183, 183, 183, 85]);
    assert!(frames.iter().all(|frame| frame.len() <= 1_514));
    assert_eq!((bench.sent_within(SECOND).len(), bench.count("igmp/groups")), (6, 1_000));
}

#[test]
fn one_tick_sends_four_messages_at_most() {
    let mut bench = bench();
    bench.push(&general(IgmpVersion::V2));
    for group in 0..20 {
        bench.join(Ipv4Addr::from_bits(0xef01_0000 + group));
    }
    let mut sent = Vec::new();
    while bench.outbox.frames.len() < 20 {
        let before = bench.outbox.frames.len();
        bench.cx(Node::tick);
        sent.push(bench.outbox.frames.len() - before);
    }
    assert_eq!(sent.into_iter().filter(|sent| *sent > 0).collect::<Vec<_>>(), [4; 5]);
}

#[test]
fn full_ring_and_empty_pool_delay_a_report() {
    let mut bench = bench();
    bench.join(GROUP);
    bench.outbox.room = 0;
    assert!(bench.sent().is_empty());
    bench.outbox.room = 1;
    let held_buffers: Vec<_> = core::iter::from_fn(|| bench.pool.alloc()).collect();
    assert!(bench.sent().is_empty());
    held_buffers.into_iter().for_each(Mbuf::free);
    assert_eq!(records(&bench.sent()[0]), [(RecordKind::ChangeToExclude, GROUP, vec![])]);
    assert_eq!(bench.count("igmp/not_sent"), 0);
    bench.assert_conserved();
}

#[test]
fn new_address_is_told_and_none_is_unspecified() {
    let mut bench = bench();
    bench.join(GROUP);
    bench.sent_within(SECOND);
    bench.host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    assert!(bench.sent_within(SECOND).is_empty());
    bench.host.apply(HostEvent::AddressRemoved(Ipv4Prefix::new(OURS, 24).unwrap())).unwrap();
    check_sent(&bench.sent()[0], Ipv4Addr::UNSPECIFIED, REPORT_V3_DESTINATION);
    let other = Ipv4Addr::new(10, 0, 9, 1);
    bench.host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(other, 24).unwrap())).unwrap();
    check_sent(&bench.sent()[0], other, REPORT_V3_DESTINATION);
}

#[test]
fn shrunken_mtu_shortens_reports() {
    let mut bench = bench();
    bench.host.apply(HostEvent::Mtu(68)).unwrap();
    for group in 0..10 {
        bench.join(Ipv4Addr::from_bits(0xef01_0000 + group));
    }
    let frames = bench.sent();
    assert_eq!(frames.iter().map(|frame| records(frame).len()).collect::<Vec<_>>(), [4, 4, 2]);
}

#[test]
fn tagged_interface_sends_tagged_reports() {
    let mut bench = bench();
    let config = crate::proto::HostConfig {
        interface: crate::proto::InterfaceId(0),
        mac: STATION,
        vlan: VlanTags::single(VlanTag::new(7)),
        mtu: 1500,
        addresses_max: 4,
        routes_max: 4,
        neighbors_max: 4,
    };
    bench.host = Host::new(config, HashSeed::new(1, 2)).unwrap();
    bench.join(GROUP);
    let frames = bench.sent();
    assert_eq!(EthernetFrame::parse(&frames[0]).unwrap().tags, config.vlan);
    check_sent(&frames[0], Ipv4Addr::UNSPECIFIED, REPORT_V3_DESTINATION);
}

#[test]
fn group_left_and_joined_while_nobody_looks_has_not_changed() {
    let mut bench = bench();
    bench.join(GROUP);
    bench.sent_within(SECOND);
    bench.sockets.close(ANNE);
    bench.join(GROUP);
    assert!(bench.sent_within(SECOND).is_empty());
}
