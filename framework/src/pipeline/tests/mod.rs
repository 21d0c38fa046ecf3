//! The whole tree from frame to app and back out, over a device that records posted frames.

pub(super) mod bench;
mod control;

use core::net::{Ipv4Addr, SocketAddrV4};

use super::*;
use crate::device::Offload;
use crate::mem::{ChecksumStatus, Held, Mbuf, Pool};
use crate::proto::{ConsumerId, Group, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, Sharing};
use crate::time::{Duration, UnixTime};
use crate::wire::checksum::Sum;
use crate::wire::{MacAddr, VlanTags};

pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
pub(super) const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(super) const PEER_STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub(super) const ANNE: ConsumerId = ConsumerId(1);
pub(super) const BERT: ConsumerId = ConsumerId(2);

/// An app that records what it receives.
#[derive(Default)]
pub(super) struct Recorder {
    heard: Vec<Heard>,
    held: Vec<Held>,
    hold: bool,
}

#[derive(Debug, PartialEq, Eq, Clone)]
struct Heard {
    consumer: u32,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    ttl: u8,
    tos: u8,
    vlan: Option<u16>,
    timestamp: Option<UnixTime>,
    payload: Vec<u8>,
}

impl App for Recorder {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
        self.heard.push(Heard {
            consumer: datagram.consumer.0,
            source: datagram.source,
            destination: datagram.destination,
            ttl: datagram.ttl,
            tos: datagram.tos,
            vlan: datagram.vlan,
            timestamp: datagram.timestamp,
            payload: datagram.payload.to_vec(),
        });
        if self.hold {
            self.held.push(datagram.hold());
        }
    }
}

pub(super) fn host() -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: STATION,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 4,
        routes_max: 4,
        neighbors_max: 4,
    };
    let mut host = Host::new(config, HashSeed::new(1, 2)).unwrap();
    let network = Ipv4Prefix::new(OURS, 24).unwrap();
    host.apply(HostEvent::AddressAdded(network)).unwrap();
    host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    host
}

type Bench = bench::Bench<UdpStack, Recorder>;

fn bench() -> Bench {
    bench_with(Some(STATION), Vlans::Any, UdpConfig::default())
}

fn bench_with(station: Option<MacAddr>, vlans: Vlans, udp: UdpConfig) -> Bench {
    let seed = HashSeed::new(3, 4);
    Bench::new(host(), Recorder::default(), EgressConfig::quiet(seed), |_, scope| {
        udp_stack(StackConfig { station, vlans, ipv4: Ipv4Config::new(seed), udp }, scope)
    })
}

impl Bench {
    fn tick(&mut self, after: Duration) {
        self.now += after;
        self.cx(Node::tick);
    }

    fn flow(&mut self, remote: SocketAddrV4, options: &UdpOptions) -> UdpFlow {
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5_000);
        self.cx(|_, _, cx| UdpFlow::connect(local, remote, options, cx)).unwrap()
    }

    /// The frames that a send to `remote` puts on the wire.
    fn sent(&mut self, remote: SocketAddrV4, options: &UdpOptions, payload: &[u8]) -> Vec<Vec<u8>> {
        let mut flow = self.flow(remote, options);
        self.cx(|_, _, cx| flow.send(payload, cx)).unwrap();
        self.take_frames()
    }

    /// received = delivered + Σ named drops + merged into others + still held; and every buffer is
    /// back in the pool.
    fn assert_conserved(&self) {
        let dropped = self.dropped(|name| !name.contains("/egress/"));
        let delivered = self.count("udp/datagrams") + self.count("ipv4/fragments_merged");
        let kept = Node::<Recorder>::kept(&self.stack);
        assert_eq!(self.pushed, delivered + dropped + kept as u64);
        let held = self.app.held.len() + self.outbox.frames.len();
        assert_eq!((self.pool.in_use(), self.pool.drops_without_reason()), (kept + held, 0));
    }
}

fn group(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(GROUP, port)
}

/// A datagram to the group as the peer would send it.
fn frame(payload: &[u8]) -> Vec<u8> {
    let mut peer = bench();
    let mut frame = peer.sent(group(9_000), &UdpOptions::default(), payload).remove(0);
    frame[6..12].copy_from_slice(&PEER_STATION.0);
    frame
}

/// The frame with other bytes at `at`, its IPv4 checksum corrected.
pub(super) fn patched(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    let header_len = usize::from(frame[14] & 15) * 4;
    frame[24..26].fill(0);
    let checksum = Sum::of(&frame[14..14 + header_len.max(20)]).finish();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Pushes one frame into a pipeline that joined the group; returns the one drop counter that
/// increased.
fn dropped(frame: &[u8]) -> String {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    bench.push(frame);
    bench.assert_conserved();
    let snapshot = bench.block.snapshot();
    let mut names = snapshot.samples.iter().filter(|sample| sample.class.is_drop()).map(|sample| sample.name.as_str());
    let name = names.find(|name| snapshot.count(name) == Some(1)).expect("one drop");
    name.trim_start_matches("worker0/").to_owned()
}

#[test]
fn datagram_reaches_the_consumer_with_all_a_socket_would_tell() {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let options = UdpOptions { ttl: Some(7), tos: 0xb8, vlan: Some(0x6014), ..UdpOptions::default() };
    let frame = bench.sent(group(9_000), &options, b"tick").remove(0);
    let mut mbuf = bench.pool.alloc_copy(&frame).unwrap();
    let timestamp = Some(UnixTime::from_nanos(42));
    mbuf.set_rx_info(&crate::mem::RxInfo { timestamp, ..Default::default() });
    bench.push_mbuf(mbuf);
    let heard = Heard {
        consumer: 1,
        source: SocketAddrV4::new(OURS, 5_000),
        destination: group(9_000),
        ttl: 7,
        tos: 0xb8,
        vlan: Some(0x6014),
        timestamp,
        payload: b"tick".to_vec(),
    };
    assert_eq!(bench.app.heard, [heard]);
    bench.assert_conserved();
}

#[test]
fn datagram_is_fanned_out_without_a_copy_and_may_be_held() {
    let mut bench = bench();
    bench.app.hold = true;
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    bench.sockets.join(BERT, Group::new(GROUP, 9_000)).unwrap();
    bench.push(&frame(b"tick"));
    let consumers: Vec<_> = bench.app.heard.iter().map(|heard| heard.consumer).collect();
    assert_eq!((consumers, bench.pool.in_use()), (vec![1, 2], 1));
    assert!(bench.app.held.iter().all(|held| held.bytes() == Some(b"tick")));
    bench.app.held.clear();
    assert_eq!((bench.pool.in_use(), bench.count("udp/datagrams"), bench.count("udp/copies")), (0, 1, 1));
}

#[test]
fn group_that_nobody_joined_is_a_named_drop() {
    let mut bench = bench();
    bench.push(&frame(b"tick"));
    assert_eq!(bench.count("udp/drop/no_consumer"), 1);
    bench.assert_conserved();
}

#[test]
fn source_that_every_filter_refuses_is_a_named_drop() {
    let mut bench = bench();
    bench.sockets.join_source(ANNE, Group::new(GROUP, 9_000), PEER).unwrap();
    bench.push(&frame(b"tick"));
    assert_eq!((bench.count("udp/drop/source_filtered"), bench.app.heard.len()), (1, 0));
    bench.assert_conserved();
}

#[test]
fn each_fault_has_its_own_reason() {
    let good = frame(b"0123456789");
    let with = |at: usize, bytes: &[u8]| patched(&good, at, bytes);
    let raw = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    for (frame, reason) in [
        (good[..13].to_vec(), "ethernet/drop/too_short"),
        (raw(12, 0x86), "ethernet/drop/unknown_ethertype"),
        (with(12, &[0x00, 0x40]), "ethernet/drop/not_ethernet_ii"),
        (with(0, &[2, 0, 0, 0, 0, 9]), "ethernet/drop/other_mac"),
        (good[..30].to_vec(), "ipv4/drop/too_short"),
        (with(14, &[0x65]), "ipv4/drop/bad_version"),
        (with(14, &[0x44]), "ipv4/drop/bad_header_length"),
        (with(16, &[0, 19]), "ipv4/drop/bad_total_length"),
        (with(16, &[9, 0]), "ipv4/drop/truncated"),
        (raw(24, good[24] ^ 1), "ipv4/drop/bad_checksum"),
        (with(26, &[224, 0, 0, 1]), "ipv4/drop/martian_source"),
        (with(30, &[10, 0, 0, 77]), "ipv4/drop/other_host"),
        (with(23, &[99]), "ipv4/drop/unknown_protocol"),
        (with(23, &[1]), "icmp/drop/not_handled"),
        (with(12, &[0x08, 0x06]), "arp/drop/not_handled"),
        (with(16, &[0, 27]), "udp/drop/too_short"),
        (with(38, &[0, 7]), "udp/drop/bad_length"),
        (with(38, &[0, 60]), "udp/drop/truncated"),
        (raw(45, good[45] ^ 1), "udp/drop/bad_checksum"),
        (with(36, &[1, 1]), "udp/drop/bad_checksum"),
    ] {
        assert_eq!(dropped(&frame), reason);
    }
}

#[test]
fn verdict_of_the_nic_replaces_the_computation() {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let mut wrong = frame(b"tick");
    wrong[24] ^= 1;
    wrong[40] ^= 1;
    for (verdict, heard) in [(ChecksumStatus::Good, 1), (ChecksumStatus::Bad, 1), (ChecksumStatus::Unknown, 1)] {
        let mut mbuf = bench.pool.alloc_copy(&wrong).unwrap();
        let info = crate::mem::RxInfo { ip_checksum: verdict, l4_checksum: verdict, ..Default::default() };
        mbuf.set_rx_info(&info);
        bench.push_mbuf(mbuf);
        assert_eq!(bench.app.heard.len(), heard, "{verdict:?}");
    }
    assert_eq!(bench.count("ipv4/drop/bad_checksum"), 2);
    bench.assert_conserved();
}

#[test]
fn unfinished_checksum_passes_only_where_the_policy_says_so() {
    // A capture made on the sending host: the field holds the sum of the pseudo header.
    let mut frame = frame(b"tick");
    let pseudo = Sum::of(&frame[26..34]).add_u16(17).add_u16(12).fold();
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    for (checksum, delivered) in
        [(ChecksumPolicy::Verify, 0), (ChecksumPolicy::AcceptPartial, 1), (ChecksumPolicy::Ignore, 1)]
    {
        let mut bench = bench_with(None, Vlans::Any, UdpConfig { checksum });
        bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
        bench.push(&frame);
        assert_eq!(bench.count("udp/datagrams"), delivered, "{checksum:?}");
        assert_eq!(bench.count("udp/partial_checksums"), u64::from(checksum == ChecksumPolicy::AcceptPartial));
        bench.assert_conserved();
    }
}

#[test]
fn sender_without_a_port_is_heard() {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let mut frame = frame(b"tick");
    frame[34..36].fill(0);
    let checksum = u16::from_be_bytes([frame[40], frame[41]]);
    let checksum = crate::wire::checksum::update_u16(checksum, 5_000, 0);
    frame[40..42].copy_from_slice(&checksum.to_be_bytes());
    bench.push(&frame);
    assert_eq!(bench.app.heard[0].source, SocketAddrV4::new(OURS, 0));
    bench.assert_conserved();
}

#[test]
fn padding_is_not_part_of_the_payload() {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let mut padded = frame(b"x");
    padded.resize(60, 0xee);
    bench.push(&padded);
    assert_eq!(bench.app.heard[0].payload, b"x");
}

#[test]
fn options_are_skipped_and_source_routes_refused() {
    for (kind, delivered, reason) in [(148, 1, 0), (131, 0, 1)] {
        let mut bench = bench();
        bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
        let mut frame = frame(b"tick");
        frame.splice(34..34, [kind, 4, 0, 0]);
        let total_len = u16::from_be_bytes([frame[16], frame[17]]) + 4;
        frame[16..18].copy_from_slice(&total_len.to_be_bytes());
        bench.push(&patched(&frame, 14, &[0x46]));
        assert_eq!((bench.app.heard.len(), bench.count("ipv4/drop/source_routed")), (delivered, reason));
        bench.assert_conserved();
    }
}

#[test]
fn vlans_that_are_not_ours_are_dropped_by_name() {
    for (vlans, tci, delivered) in [
        (Vlans::Only(20), Some(0x6014), 1),
        (Vlans::Only(20), Some(21), 0),
        (Vlans::Only(20), None, 0),
        (Vlans::Untagged, None, 1),
        (Vlans::Untagged, Some(0xe000), 1),
        (Vlans::Untagged, Some(20), 0),
        (Vlans::Any, Some(4_000), 1),
    ] {
        let mut bench = bench_with(None, vlans, UdpConfig::default());
        bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
        let frame = bench.sent(group(9_000), &UdpOptions { vlan: tci, ..Default::default() }, b"tick").remove(0);
        bench.push(&frame);
        assert_eq!(bench.app.heard.len(), delivered, "{vlans:?} {tci:?}");
        assert_eq!(bench.count("ethernet/drop/other_vlan"), 1 - delivered as u64);
        bench.assert_conserved();
    }
}

#[test]
fn datagrams_of_every_size_go_out_and_come_back() {
    for len in [0usize, 1, 18, 1_471, 1_472, 1_473, 1_480, 2_952, 8_000, 30_001, 65_507] {
        let mut bench = bench();
        bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
        let payload: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let frames = bench.sent(group(9_000), &UdpOptions::default(), &payload);
        assert_eq!(frames.len(), (len + 8).div_ceil(1_480), "{len} bytes");
        // The last fragment first: order must not matter.
        frames.iter().rev().for_each(|frame| bench.push(frame));
        assert_eq!(bench.app.heard.len(), 1, "{len} bytes");
        assert!(bench.app.heard[0].payload == payload, "{len} bytes");
        bench.assert_conserved();
    }
}

/// A datagram to the group in one frame, however long.
fn jumbo(payload: &[u8]) -> Vec<u8> {
    let fragments = bench().sent(group(9_000), &UdpOptions::default(), payload);
    let mut frame = fragments[0][..34].to_vec();
    fragments.iter().for_each(|fragment| frame.extend_from_slice(&fragment[34..]));
    let total_len = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total_len.to_be_bytes());
    patched(&frame, 20, &[0, 0])
}

#[test]
fn frame_over_several_buffers_is_one_datagram() {
    let payload: Vec<u8> = (0..5_000).map(|at| (at * 3) as u8).collect();
    let frame = jumbo(&payload);
    for (len, delivered) in [(frame.len(), 1), (frame.len() - 1, 0)] {
        let mut bench = bench();
        bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
        let mut rest: Option<Mbuf> = None;
        for part in frame[..len].chunks(1_400).rev() {
            let mut mbuf = bench.pool.alloc_copy(part).unwrap();
            if let Some(rest) = rest.take() {
                mbuf.attach(rest);
            }
            rest = Some(mbuf);
        }
        bench.push_mbuf(rest.unwrap());
        assert_eq!(bench.count("ipv4/drop/truncated"), 1 - delivered);
        assert!(
            bench.app.heard.len() as u64 == delivered && bench.app.heard.iter().all(|heard| heard.payload == payload)
        );
        bench.assert_conserved();
    }
}

#[test]
fn fragments_that_stay_alone_are_held_and_then_dropped_by_name() {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let mut frames = bench.sent(group(9_000), &UdpOptions::default(), &[1; 4_000]);
    frames.truncate(2);
    frames.iter().for_each(|frame| bench.push(frame));
    bench.push(&frames[0]);
    assert_eq!((bench.count("ipv4/fragments_held"), bench.count("ipv4/drop/fragment_duplicate")), (2, 1));
    bench.assert_conserved();
    bench.tick(Duration::from_secs(31));
    assert_eq!(bench.count("ipv4/drop/fragment_timeout"), 2);
    bench.assert_conserved();
}

#[test]
fn held_datagram_of_several_buffers_keeps_all_of_them() {
    let mut bench = bench();
    bench.app.hold = true;
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let payload: Vec<u8> = (0..4_000).map(|at| at as u8).collect();
    let frames = bench.sent(group(9_000), &UdpOptions::default(), &payload);
    frames.iter().for_each(|frame| bench.push(frame));
    let held = bench.app.held.pop().unwrap();
    assert_eq!(held.segments().flatten().copied().collect::<Vec<_>>(), payload);
    drop(held);
    assert_eq!(bench.pool.in_use(), 0);
}

#[test]
fn datagram_is_sent_whole_or_not_at_all() {
    let mut bench = bench();
    let mut flow = bench.flow(group(9_000), &UdpOptions::default());
    bench.outbox.room = 2;
    let sent = bench.cx(|_, _, cx| flow.send(&[0; 4_000], cx));
    assert_eq!((sent, bench.outbox.frames.len()), (Err(UdpSendError::RingFull), 0));
    bench.outbox.room = 64;
    let hoard: Vec<_> = core::iter::from_fn(|| bench.pool.alloc()).skip(2).collect();
    let sent = bench.cx(|_, _, cx| flow.send(&[0; 4_000], cx));
    assert_eq!((sent, bench.outbox.frames.len()), (Err(UdpSendError::PoolEmpty), 0));
    hoard.into_iter().for_each(Mbuf::free);
    assert_eq!(bench.cx(|_, _, cx| flow.send(&[0; 65_508], cx)), Err(UdpSendError::TooLong));
    let mut rigid = bench.flow(group(9_000), &UdpOptions { dont_fragment: true, ..Default::default() });
    assert_eq!(bench.cx(|_, _, cx| rigid.send(&[0; 1_473], cx)), Err(UdpSendError::DontFragment { mtu: 1_500 }));
    for reason in ["ring_full", "pool_empty", "too_long", "dont_fragment"] {
        assert_eq!(bench.count(&format!("egress/drop/{reason}")), 1, "{reason}");
    }
}

#[test]
fn mbuf_that_cannot_be_sent_comes_back_as_it_was() {
    let mut bench = bench();
    let mut flow = bench.flow(group(9_000), &UdpOptions::default());
    bench.outbox.room = 0;
    for hold in [false, true] {
        let mbuf = bench.pool.alloc_copy(b"order").unwrap();
        let held = hold.then(|| mbuf.hold());
        let (error, mbuf) = bench.cx(|_, _, cx| flow.send_mbuf(mbuf, cx)).unwrap_err();
        assert_eq!((error, mbuf.bytes()), (UdpSendError::RingFull, &b"order"[..]));
        mbuf.free();
        drop(held);
        assert_eq!((bench.pool.in_use(), bench.pool.drops_without_reason()), (0, 0));
    }
}

#[test]
fn held_payload_is_sent_behind_a_header_of_its_own() {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let mut flow = bench.flow(group(9_000), &UdpOptions::default());
    let mbuf = bench.pool.alloc_copy(b"kept until acknowledged").unwrap();
    let held = mbuf.hold();
    bench.cx(|_, _, cx| flow.send_mbuf(mbuf, cx)).unwrap();
    assert_eq!(bench.outbox.frames[0].segments().count(), 2);
    let frame = bench.take_frames().remove(0);
    assert_eq!(held.bytes(), Some(&b"kept until acknowledged"[..]));
    drop(held);
    bench.push(&frame);
    assert_eq!(bench.app.heard[0].payload, b"kept until acknowledged");
    bench.assert_conserved();
}

#[test]
fn checksum_is_computed_left_out_or_asked_of_the_nic() {
    let mut bench = bench();
    let field = |frame: &[u8]| u16::from_be_bytes([frame[40], frame[41]]);
    let zero = UdpOptions { checksum: Checksum::Zero, ..Default::default() };
    assert_eq!(field(&bench.sent(group(9_000), &zero, b"tick")[0]), 0);
    let offload = UdpOptions { checksum: Checksum::Offload, ..Default::default() };
    let frame = bench.sent(group(9_000), &offload, b"tick").remove(0);
    assert_eq!(field(&frame), Sum::of(&frame[26..34]).add_u16(17).add_u16(12).fold());
    assert!(bench.outbox.offloads.last().unwrap().has(Offload::L4_CHECKSUM));
}

#[test]
fn unicast_goes_to_the_neighbor_and_to_bound_ports() {
    let mut bench = bench();
    let frame = bench.sent(SocketAddrV4::new(PEER, 7), &UdpOptions::default(), b"hello").remove(0);
    assert_eq!((&frame[..6], &frame[6..12], frame[22]), (&PEER_STATION.0[..], &STATION.0[..], 64));
    bench.sockets.bind(ANNE, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7), Sharing::Exclusive).unwrap();
    let mut answer = patched(&frame, 26, &[PEER.octets(), OURS.octets()].concat());
    answer[..6].copy_from_slice(&STATION.0);
    bench.push(&answer);
    assert_eq!((bench.app.heard.len(), bench.app.heard[0].source.ip()), (1, &PEER));
    bench.assert_conserved();
}

#[test]
fn destinations_without_a_way_are_refused_with_what_is_missing() {
    let mut bench = bench();
    let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5_000);
    let mut refused = |remote: [u8; 4]| {
        let remote = SocketAddrV4::new(remote.into(), 7);
        bench.cx(|_, _, cx| UdpFlow::connect(local, remote, &UdpOptions::default(), cx)).unwrap_err()
    };
    assert_eq!(refused([10, 0, 0, 1]), UdpConnectError::LocalAddress(OURS));
    assert_eq!(refused([10, 0, 0, 9]), UdpConnectError::NeighborMissing([10, 0, 0, 9].into()));
    assert_eq!(refused([192, 0, 2, 1]), UdpConnectError::NoRoute([192, 0, 2, 1].into()));
}

#[test]
fn outline_draws_the_tree() {
    let bench = bench();
    let mut outline = NodeTree::new();
    Node::<Recorder>::outline(&bench.stack, &mut outline);
    let names: Vec<String> =
        outline.to_string().lines().map(|line| line.trim_end().chars().take(12).collect()).collect();
    assert_eq!(
        names.iter().map(|name| name.trim_end()).collect::<Vec<_>>(),
        ["ethernet", "  ipv4", "    udp", "    icmp", "    igmp", "    tcp", "  arp"].map(|name| name)
    );
}

/// The frame over buffers of `len` bytes.
fn chained(pool: &Pool, frame: &[u8], len: usize) -> Mbuf {
    let mut rest: Option<Mbuf> = None;
    for part in frame.chunks(len).rev() {
        let mut mbuf = pool.alloc_copy(part).unwrap();
        if let Some(rest) = rest.take() {
            mbuf.attach(rest);
        }
        rest = Some(mbuf);
    }
    rest.unwrap()
}

#[test]
fn fragments_over_several_buffers_each_are_put_together() {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let payload: Vec<u8> = (0..4_000).map(|at| (at * 7) as u8).collect();
    let frames = bench.sent(group(9_000), &UdpOptions::default(), &payload);
    for frame in &frames {
        let mbuf = chained(&bench.pool, frame, 1_000);
        bench.push_mbuf(mbuf);
    }
    assert_eq!(bench.app.heard.len(), 1);
    assert!(bench.app.heard[0].payload == payload);
    bench.assert_conserved();
}

#[test]
fn verdict_on_a_fragment_says_nothing_of_the_datagram() {
    for verdict in [ChecksumStatus::Good, ChecksumStatus::Bad] {
        let mut bench = bench();
        bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
        let mut frames = bench.sent(group(9_000), &UdpOptions::default(), &[7; 4_000]);
        if verdict == ChecksumStatus::Good {
            frames[1][100] ^= 1;
        }
        for frame in &frames {
            let mut mbuf = bench.pool.alloc_copy(frame).unwrap();
            mbuf.set_l4_checksum(verdict);
            bench.push_mbuf(mbuf);
        }
        assert_eq!(bench.app.heard.len(), usize::from(verdict == ChecksumStatus::Bad), "{verdict:?}");
        bench.assert_conserved();
    }
}

#[test]
fn group_joined_on_the_interface_of_the_host_is_heard_there() {
    let mut bench = bench();
    let config = HostConfig {
        interface: InterfaceId(3),
        mac: STATION,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 4,
        routes_max: 4,
        neighbors_max: 4,
    };
    bench.host = Host::new(config, HashSeed::new(1, 2)).unwrap();
    bench.sockets.join(ANNE, Group { interface: InterfaceId(3), ..Group::new(GROUP, 9_000) }).unwrap();
    bench.push(&frame(b"tick"));
    assert_eq!(bench.app.heard.len(), 1);
}

#[test]
fn loopback_as_source_is_a_martian() {
    let own = patched(&frame(b"tick"), 26, &[127, 0, 0, 1]);
    let own = patched(&own, 40, &[0, 0]);
    assert_eq!(dropped(&own), "ipv4/drop/martian_source");
}

#[test]
fn offloaded_frame_says_where_its_headers_are() {
    let mut bench = bench();
    let offload = UdpOptions { checksum: Checksum::Offload, ..Default::default() };
    let mut flow = bench.flow(group(9_000), &offload);
    bench.cx(|_, _, cx| flow.send(b"tick", cx)).unwrap();
    assert_eq!((bench.outbox.frames[0].l2_len(), bench.outbox.frames[0].l3_len()), (14, 20));
    bench.take_frames();
}

/// Of fragments the last one rings, and takes the others along.
#[test]
fn urgent_flow_rings_once_for_each_datagram() {
    let mut bench = bench();
    let mut urgent = |urgent, len: usize| {
        let mut flow = bench.flow(group(9_000), &UdpOptions { urgent, ..Default::default() });
        bench.cx(|_, _, cx| flow.send(&vec![7; len], cx)).unwrap();
        bench.take_frames();
        bench.outbox.offloads.drain(..).map(|offload| offload.has(Offload::URGENT)).collect::<Vec<_>>()
    };
    assert_eq!((urgent(true, 64), urgent(false, 64)), (vec![true], vec![false]));
    assert_eq!((urgent(true, 4_000), urgent(false, 4_000)), (vec![false, false, true], vec![false; 3]));
}

#[test]
fn frame_in_a_view_is_a_frame_like_another() {
    let mut bench = bench();
    bench.sockets.join(ANNE, Group::new(GROUP, 9_000)).unwrap();
    let buffer = bench.pool.alloc_copy(&frame(b"tick")).unwrap();
    let view = bench.pool.view(buffer.hold()).unwrap();
    buffer.free();
    bench.push_mbuf(view);
    assert_eq!(bench.app.heard.len(), 1, "too_short {}", bench.count("udp/drop/too_short"));
    bench.assert_conserved();
}

#[test]
fn held_chain_that_was_sent_is_whole() {
    let mut bench = bench();
    let mut flow = bench.flow(group(9_000), &UdpOptions::default());
    let mbuf = chained(&bench.pool, &[7; 300], 100);
    let held = mbuf.hold();
    bench.cx(|_, _, cx| flow.send_mbuf(mbuf, cx)).unwrap();
    bench.take_frames();
    assert_eq!(held.segments().flatten().count(), 300);
}

#[test]
fn device_without_transmit_timestamps_is_refused_at_set_up() {
    let mut bench = bench();
    let refused = bench.cx(|_, _, cx| cx.enable_timestamps()).unwrap_err();
    assert!(refused.to_string().contains("does not say when frames leave"), "{refused}");
}
