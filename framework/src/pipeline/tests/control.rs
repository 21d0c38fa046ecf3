//! Tests of ARP and ICMP from received frame to sent frame, over a device that records the frames
//! posted to it.
use core::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::bench;
use crate::counters::Scope;
use crate::mem::Mbuf;
use crate::pipeline::*;
use crate::proto::{
    ConsumerId, ErrorLimit, FlowErrorKind, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, LearnFrom,
    NeighborConfig, NeighborRequest, ResolutionCause, Sharing, TokenBucket,
};
use crate::time::{Duration, Instant};
use crate::wire::icmpv4::{Echo, TimeExceeded, Unreachable};
use crate::wire::{
    ArpFields, ArpOperation, ArpPacket, EtherType, EthernetFields, EthernetFrame, EthernetHeader, Icmpv4Message,
    Ipv4Fields, Ipv4Header, Ipv4Packet, MacAddr, Protocol, UdpFields, UdpHeader, VlanTag, VlanTags,
};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const ANNE: ConsumerId = ConsumerId(1);

#[derive(Default)]
struct Recorder {
    errors: Vec<IcmpError<'static>>,
    answers: Vec<(u16, Vec<u8>)>,
    pings: bool,
}

impl App for Recorder {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    fn on_icmp_error(&mut self, error: &IcmpError<'_>, _: &mut Cx<'_>) {
        self.errors.push(error.without_quote());
    }

    fn on_echo_reply(&mut self, answer: &EchoReply<'_>, _: &mut Cx<'_>) -> bool {
        self.answers.push((answer.sequence, answer.data.to_vec()));
        self.pings
    }
}

/// `N` is the node under test, after the Ethernet node.
type Rig<N> = bench::Bench<N, Recorder>;

type Stack = HostStack;

fn rig<N: Node<Recorder>>(node: impl FnOnce(&Host, &Scope) -> N) -> Rig<N> {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: STATION,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 4,
        routes_max: 4,
        neighbors_max: 8,
    };
    let mut host = Host::new(config, HashSeed::new(1, 2)).unwrap();
    host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(OURS, 24).unwrap())).unwrap();
    let errors = Some(ErrorLimit::new(TokenBucket::new(10, 2)));
    Rig::new(host, Recorder::default(), EgressConfig { errors, ..EgressConfig::host(HashSeed::new(3, 4)) }, node)
}

fn stack() -> Rig<Stack> {
    stack_with(IcmpConfig::default())
}

fn stack_with(icmp: IcmpConfig) -> Rig<Stack> {
    let usual = HostStackConfig::new(HashSeed::new(3, 4));
    let arp = ArpConfig { announces: false, ..usual.arp };
    let config = HostStackConfig { vlans: Vlans::Any, icmp, igmp: None, arp, ..usual };
    rig(|host, scope| host_stack(config, host, scope))
}

impl<N: Node<Recorder>> Rig<N> {
    /// A turn without frames.
    fn tick(&mut self) {
        self.cx(|node, app, cx| {
            cx.tick_egress();
            node.tick(app, cx);
        });
    }

    /// Advances time by `seconds`.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            self.tick();
        }
    }

    /// The one frame that was posted.
    fn sent(&mut self) -> Vec<u8> {
        let mut frames = self.take_frames();
        assert_eq!(frames.len(), 1);
        frames.remove(0)
    }

    /// Every buffer is back in the pool.
    fn assert_conserved(&self) {
        let kept = self.stack.kept() + self.egress.kept() + self.outbox.frames.len();
        assert_eq!((self.pool.in_use(), self.pool.drops_without_reason()), (kept, 0));
    }
}

fn framed(dst: MacAddr, tags: &VlanTags, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 22];
    let header = EthernetHeader::new(EthernetFields { dst, src: PEER_STATION, ethertype });
    let len = header.emit_tagged(tags, &mut bytes).unwrap();
    [&bytes[..len], payload].concat()
}

fn arp(operation: ArpOperation, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Vec<u8> {
    arp_from(PEER_STATION, operation, sender_ip, target_ip)
}

fn arp_from(sender_mac: MacAddr, operation: ArpOperation, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Vec<u8> {
    let packet = ArpPacket::new(&ArpFields { operation, sender_mac, sender_ip, target_mac: STATION, target_ip });
    framed(STATION, &VlanTags::NONE, EtherType::ARP, packet.as_bytes())
}

fn ipv4_packet(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let fields = Ipv4Fields {
        source,
        destination,
        protocol,
        ttl: 3,
        tos: 0x20,
        identification: 7,
        dont_fragment: true,
        payload_len: payload.len(),
    };
    [Ipv4Header::new(&fields).unwrap().as_bytes(), payload].concat()
}

fn icmp(message: &Icmpv4Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(&mut bytes).unwrap();
    bytes
}

fn ipv4_frame(destination: Ipv4Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    framed(STATION, &VlanTags::NONE, EtherType::IPV4, &ipv4_packet(PEER, destination, protocol, payload))
}

fn icmp_frame(message: &Icmpv4Message<'_>) -> Vec<u8> {
    ipv4_frame(OURS, Protocol::ICMP, &icmp(message))
}

fn ping(data: &[u8]) -> Vec<u8> {
    icmp_frame(&Icmpv4Message::EchoRequest(Echo { identifier: 9, sequence: 1, data }))
}

fn datagram_bytes(payload: &[u8]) -> Vec<u8> {
    let ports = UdpFields { source_port: 5_000, destination_port: 7, payload_len: payload.len() };
    [UdpHeader::new(&ports).unwrap().as_bytes(), payload].concat()
}

/// A frame's addresses, and its packet.
fn opened(frame: &[u8]) -> (MacAddr, MacAddr, Ipv4Packet<'_>) {
    let parsed = EthernetFrame::parse(frame).unwrap();
    let packet = Ipv4Packet::parse(parsed.payload).unwrap();
    packet.verify_checksum().unwrap();
    (parsed.header.dst(), parsed.header.src(), packet)
}

#[test]
fn question_for_our_address_is_answered_in_its_vlan() {
    let tags = VlanTags::double([VlanTag::from_tci(EtherType::QINQ, 5), VlanTag::new(6)]);
    for tags in [VlanTags::NONE, VlanTags::single(VlanTag::new(20)), tags] {
        let mut rig = stack();
        let question = arp(ArpOperation::Request, PEER, OURS);
        rig.push(&framed(MacAddr::BROADCAST, &tags, EtherType::ARP, &question[14..]));
        let sent = rig.sent();
        let frame = EthernetFrame::parse(&sent).unwrap();
        assert_eq!((frame.header.dst(), frame.header.src(), frame.tags), (PEER_STATION, STATION, tags));
        let (reply, _) = ArpPacket::parse(frame.payload).unwrap();
        assert_eq!((reply.operation(), reply.sender_mac(), reply.sender_ip()), (ArpOperation::Reply, STATION, OURS));
        assert_eq!((reply.target_mac(), reply.target_ip()), (PEER_STATION, PEER));
        rig.assert_conserved();
    }
}

#[test]
fn arp_packets_that_teach_nothing_are_dropped_by_name() {
    let stranger = Ipv4Addr::new(10, 0, 0, 77);
    let short = framed(STATION, &VlanTags::NONE, EtherType::ARP, &[0; 27]);
    let mut other = arp(ArpOperation::Request, PEER, OURS);
    other[21] = 9;
    let group = arp_from(MacAddr::BROADCAST, ArpOperation::Reply, PEER, OURS);
    for (frame, reason) in [
        (short, "too_short"),
        (other, "other_kind"),
        (group, "sender_mac"),
        (arp(ArpOperation::Request, PEER, stranger), "not_for_us"),
        (arp(ArpOperation::Reply, PEER, OURS), "unsolicited"),
        (arp(ArpOperation::Reply, [224, 0, 0, 1].into(), OURS), "not_a_neighbor"),
        (arp_from(STATION, ArpOperation::Request, OURS, OURS), "own_mac"),
    ] {
        let mut rig = stack();
        rig.push(&frame);
        assert_eq!((rig.count(&format!("arp/drop/{reason}")), rig.outbox.frames.len()), (1, 0), "{reason}");
        rig.assert_conserved();
    }
}

#[test]
fn conflict_is_dropped_by_name_and_defended() {
    let mut rig = stack();
    rig.push(&arp(ArpOperation::Reply, OURS, PEER));
    rig.push(&arp(ArpOperation::Request, OURS, OURS));
    assert_eq!((rig.count("arp/conflicts"), rig.count("arp/drop/address_conflict")), (2, 2));
    let defense = rig.sent();
    let (packet, _) = ArpPacket::parse(&defense[14..]).unwrap();
    assert_eq!((&defense[..6], packet.is_announcement(), packet.sender_ip()), (&[0xff; 6][..], true, OURS));
}

#[test]
fn probe_for_our_address_is_answered_though_nothing_is_learned() {
    let mut rig = stack();
    rig.push(&arp(ArpOperation::Request, Ipv4Addr::UNSPECIFIED, OURS));
    assert_eq!((rig.count("arp/answered"), rig.count("arp/learned")), (1, 0));
}

#[test]
fn question_that_cannot_be_answered_is_counted() {
    let mut rig = stack();
    rig.outbox.room = 0;
    rig.push(&arp(ArpOperation::Request, PEER, OURS));
    assert_eq!(rig.count("arp/drop/ring_full"), 1);
    let mbuf = rig.pool.alloc_copy(&arp(ArpOperation::Request, PEER, OURS)).unwrap();
    let hoard: Vec<_> = core::iter::from_fn(|| rig.pool.alloc()).collect();
    rig.cx(|node, app, cx| node.push(mbuf, app, cx));
    hoard.into_iter().for_each(Mbuf::free);
    assert_eq!(rig.count("arp/drop/pool_empty"), 1);
    rig.assert_conserved();
}

fn arp_rig() -> Rig<Arp> {
    let config = ArpConfig { announces: false, ..ArpConfig::new(HashSeed::new(7, 8)) };
    rig(|_, scope| Arp::new(config, scope))
}

impl Rig<Arp> {
    fn send(&mut self, payload: &[u8]) -> Result<UdpSent, UdpSendToError> {
        let (local, remote) = (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5_000), SocketAddrV4::new(PEER, 7));
        self.cx(|_, _, cx| send_to(local, remote, &UdpOptions::default(), payload, cx))
    }

    /// An ARP packet as the Ethernet node hands it on.
    fn hear(&mut self, frame: &[u8]) {
        let mut mbuf = self.pool.alloc_copy(frame).unwrap();
        mbuf.set_l2_len(14);
        mbuf.advance(14);
        self.cx(|arp, app, cx| arp.push(mbuf, app, cx));
    }
}

#[test]
fn datagrams_wait_for_their_neighbor_and_go_in_order() {
    let mut rig = arp_rig();
    assert_eq!(rig.send(b"first"), Ok(UdpSent::Waiting));
    assert_eq!(rig.send(b"second"), Ok(UdpSent::Waiting));
    assert_eq!(rig.count("egress/neighbors/waiting"), 2);
    let question = rig.sent();
    let (packet, _) = ArpPacket::parse(&question[14..]).unwrap();
    assert_eq!((&question[..6], packet.sender_ip(), packet.target_ip()), (&[0xff; 6][..], OURS, PEER));
    rig.hear(&arp(ArpOperation::Reply, PEER, OURS));
    let frames = rig.take_frames();
    let payloads: Vec<_> = frames
        .iter()
        .map(|frame| {
            let (dst, src, packet) = opened(frame);
            assert_eq!((dst, src), (PEER_STATION, STATION));
            let (udp, payload) = UdpHeader::parse(packet.payload).unwrap();
            udp.verify_checksum(OURS, PEER, payload).unwrap();
            assert_eq!((udp.source_port(), udp.destination_port()), (5_000, 7));
            payload.to_vec()
        })
        .collect();
    assert_eq!(payloads, [&b"first"[..], b"second"]);
    assert_eq!(rig.send(b"third"), Ok(UdpSent::Posted));
    assert_eq!((rig.count("egress/neighbors/waiting"), rig.count("egress/neighbors/resolved")), (0, 2));
    rig.assert_conserved();
}

#[test]
fn datagram_that_waited_looks_like_one_that_did_not() {
    let mut rig = arp_rig();
    rig.send(b"tick").unwrap();
    rig.take_frames();
    rig.hear(&arp(ArpOperation::Reply, PEER, OURS));
    let mut waited = rig.sent();
    rig.send(b"tick").unwrap();
    let mut direct = rig.sent();
    for frame in [&mut waited, &mut direct] {
        // Identification, and the checksum over it.
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    assert_eq!(waited, direct);
}

#[test]
fn datagram_to_a_silent_neighbor_is_a_named_drop() {
    let mut rig = arp_rig();
    rig.send(b"tick").unwrap();
    rig.run(10);
    assert_eq!((rig.count("egress/neighbors/drop/unreachable"), rig.count("egress/neighbors/requests")), (1, 3));
    rig.take_frames();
    rig.assert_conserved();
}

#[test]
fn datagrams_beyond_the_bound_and_at_a_full_ring_are_named_drops() {
    let mut rig = arp_rig();
    let too_many = vec![0; 1_472 * 9];
    assert_eq!(rig.send(&too_many), Err(UdpSendToError::Send(UdpSendError::NeighborMissing(PEER))));
    (0..10).for_each(|_| assert_eq!(rig.send(b"tick"), Ok(UdpSent::Waiting)));
    assert_eq!(rig.count("egress/neighbors/drop/superseded"), 2);
    rig.outbox.room = rig.outbox.frames.len() + 3;
    rig.hear(&arp(ArpOperation::Reply, PEER, OURS));
    assert_eq!((rig.count("egress/neighbors/resolved"), rig.count("egress/neighbors/drop/ring_full")), (3, 5));
    rig.assert_conserved();
}

#[test]
fn question_without_a_buffer_is_asked_again() {
    let mut rig = arp_rig();
    let hoard: Vec<_> = core::iter::from_fn(|| rig.pool.alloc()).collect();
    let request = NeighborRequest { next_hop: PEER, source: OURS, cause: ResolutionCause::App };
    assert!(rig.cx(|_, _, cx| cx.keep_neighbor(request)));
    hoard.into_iter().for_each(Mbuf::free);
    rig.run(1);
    assert_eq!((rig.count("egress/neighbors/unsent"), rig.count("egress/neighbors/requests")), (1, 1));
}

/// A flow to the peer, prepared once.
fn flow(rig: &mut Rig<Stack>, options: &UdpOptions) -> UdpFlow {
    let (local, remote) = (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5_000), SocketAddrV4::new(PEER, 7));
    rig.cx(|_, _, cx| UdpFlow::connect(local, remote, options, cx)).unwrap()
}

#[test]
fn flow_follows_its_neighbor_address_and_link() {
    let mut rig = stack();
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    let mut flow = flow(&mut rig, &UdpOptions::default());
    let moved = MacAddr([2, 0, 0, 0, 0, 9]);
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: moved }).unwrap();
    assert_eq!(rig.cx(|_, _, cx| flow.send(b"tick", cx)), Ok(UdpSent::Posted));
    assert_eq!(opened(&rig.sent()).0, moved);

    let second = Ipv4Prefix::new(Ipv4Addr::new(10, 0, 0, 3), 24).unwrap();
    rig.host.apply(HostEvent::AddressAdded(second)).unwrap();
    rig.host.apply(HostEvent::AddressRemoved(Ipv4Prefix::new(OURS, 24).unwrap())).unwrap();
    assert_eq!(rig.cx(|_, _, cx| flow.send(b"tick", cx)), Ok(UdpSent::Posted));
    assert_eq!(opened(&rig.sent()).2.header.source(), second.address());

    rig.host.apply(HostEvent::Link { is_up: false }).unwrap();
    assert_eq!(rig.cx(|_, _, cx| flow.send(b"tick", cx)), Err(UdpSendError::LinkDown));
    rig.host.apply(HostEvent::Link { is_up: true }).unwrap();
    assert_eq!(rig.cx(|_, _, cx| flow.send(b"tick", cx)), Ok(UdpSent::Posted));
    assert_eq!(rig.count("egress/drop/link_down"), 1);
}

#[test]
fn flow_that_is_made_while_the_link_is_down_says_so_until_it_is_up() {
    let mut rig = stack();
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    rig.host.apply(HostEvent::Link { is_up: false }).unwrap();
    let mut flow = flow(&mut rig, &UdpOptions::default());
    assert_eq!(rig.cx(|_, _, cx| flow.send(b"tick", cx)), Err(UdpSendError::LinkDown));
    rig.host.apply(HostEvent::Link { is_up: true }).unwrap();
    assert_eq!(rig.cx(|_, _, cx| flow.send(b"tick", cx)), Ok(UdpSent::Posted));
}

#[test]
fn flow_without_a_route_says_so_until_there_is_one() {
    let mut rig = stack();
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    let mut flow = flow(&mut rig, &UdpOptions::default());
    let address = Ipv4Prefix::new(OURS, 24).unwrap();
    rig.host.apply(HostEvent::AddressRemoved(address)).unwrap();
    assert_eq!(rig.cx(|_, _, cx| flow.send(b"tick", cx)), Err(UdpSendError::NoRoute(PEER)));
    rig.host.apply(HostEvent::AddressAdded(address)).unwrap();
    assert_eq!(rig.cx(|_, _, cx| flow.send(b"tick", cx)), Ok(UdpSent::Posted));
}

#[test]
fn flow_fragments_to_the_mtu_of_its_path_until_that_is_forgotten() {
    let mut rig = stack();
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    rig.sockets.bind(ANNE, SocketAddrV4::new(OURS, 5_000), Sharing::Exclusive).unwrap();
    let mut rigid = flow(&mut rig, &UdpOptions { dont_fragment: true, ..UdpOptions::default() });
    rig.cx(|_, _, cx| rigid.send(&[0; 1_472], cx)).unwrap();
    let quoted = rig.sent()[14..].to_vec();
    rig.push(&too_large(1_400, &quoted));
    assert_eq!(rig.cx(|_, _, cx| rigid.send(&[0; 1_400], cx)), Err(UdpSendError::DontFragment { mtu: 1_400 }));
    let mut soft = flow(&mut rig, &UdpOptions::default());
    rig.cx(|_, _, cx| soft.send(&[0; 1_400], cx)).unwrap();
    assert_eq!(rig.take_frames().len(), 2);
    rig.now += Duration::from_secs(601);
    rig.cx(|_, _, cx| rigid.send(&[0; 1_400], cx)).unwrap();
    assert_eq!(rig.take_frames().len(), 1);
}

#[test]
fn neighbor_that_the_kernel_resolves_is_wished_for_and_what_waits_goes() {
    let mut rig = arp_rig();
    let neighbors = NeighborConfig { learn_from: LearnFrom::Host, ..NeighborConfig::default() };
    let config = EgressConfig { neighbors: Some(neighbors), ..EgressConfig::quiet(HashSeed::new(3, 4)) };
    rig.egress = Egress::new(config, &rig.block.scope("kernel"));
    assert_eq!(rig.send(b"tick"), Ok(UdpSent::Waiting));
    assert_eq!(
        rig.egress.next_neighbor_request(),
        Some(NeighborRequest { next_hop: PEER, source: OURS, cause: ResolutionCause::App })
    );
    assert_eq!(rig.outbox.frames.len(), 0, "no ARP of ours");
    let learned =
        HostEvent::NeighborLearned { address: PEER, mac: PEER_STATION, until: Instant::from_nanos(u64::MAX - 1) };
    rig.host.apply(learned).unwrap();
    rig.tick();
    assert_eq!(opened(&rig.sent()).0, PEER_STATION);
    // A neighbor in use: the kernel is asked to probe it. A removed one: the kernel is asked for it
    // again.
    rig.run(31);
    assert!(rig.egress.next_neighbor_request().is_some());
    rig.host.apply(HostEvent::NeighborRemoved(PEER)).unwrap();
    assert_eq!(rig.send(b"tock"), Ok(UdpSent::Waiting));
    assert!(rig.egress.next_neighbor_request().is_some());
    // A tick walks a quarter of the table.
    rig.run(20);
    assert_eq!(rig.block.snapshot().count("kernel/egress/neighbors/drop/unreachable"), Some(1));
    rig.assert_conserved();
}

#[test]
fn claimed_address_is_answered_for_once_it_is_ours() {
    let mut rig = arp_rig();
    let second = Ipv4Addr::new(10, 0, 0, 5);
    let prefix = Ipv4Prefix::new(second, 24).unwrap();
    rig.cx(|arp, _, cx| arp.claim(prefix, cx)).unwrap();
    rig.run(1);
    rig.take_frames();
    rig.hear(&arp(ArpOperation::Request, PEER, second));
    assert_eq!(rig.count("arp/answered"), 0);
    rig.run(10);
    rig.take_frames();
    rig.hear(&arp(ArpOperation::Request, PEER, second));
    assert_eq!(rig.count("arp/answered"), 1);
}

#[test]
fn echo_is_answered_in_the_buffer_of_the_request() {
    for data in [&b""[..], b"x", &[0xff; 56], &[7; 1_472]] {
        let mut rig = stack();
        rig.push(&ping(data));
        assert_eq!(rig.pool.in_use(), 1);
        let sent = rig.sent();
        let (dst, src, packet) = opened(&sent);
        assert_eq!((dst, src, packet.header.ttl(), packet.header.tos()), (PEER_STATION, STATION, 64, 0x20));
        assert_eq!((packet.header.source(), packet.header.destination()), (OURS, PEER));
        let echo = Echo { identifier: 9, sequence: 1, data };
        assert_eq!(Icmpv4Message::parse(packet.payload), Ok(Icmpv4Message::EchoReply(echo)));
        assert_eq!(rig.count("icmp/echoes_answered"), 1);
        rig.assert_conserved();
    }
}

#[test]
fn echo_goes_to_the_neighbor_that_the_host_knows() {
    let mut rig = stack();
    let known = MacAddr([2, 0, 0, 0, 0, 44]);
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: known }).unwrap();
    rig.push(&ping(b"x"));
    assert_eq!(opened(&rig.sent()).0, known);
}

#[test]
fn echo_with_options_is_answered_without_them() {
    let mut rig = stack();
    let mut frame = ping(b"x");
    frame.splice(34..34, [148, 4, 0, 0]);
    frame[14] = 0x46;
    frame[17] += 4;
    frame[24..26].fill(0);
    let sum = crate::wire::checksum::checksum(&frame[14..38]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    rig.push(&frame);
    assert_eq!(opened(&rig.sent()).2.options, []);
}

#[test]
fn long_echo_comes_and_goes_in_fragments() {
    let mut rig = stack();
    let data: Vec<u8> = (0..4_000).map(|at| at as u8).collect();
    let message = icmp(&Icmpv4Message::EchoRequest(Echo { identifier: 9, sequence: 1, data: &data }));
    for (idx, part) in message.chunks(1_480).enumerate() {
        let mut packet = ipv4_packet(PEER, OURS, Protocol::ICMP, part);
        let more = (idx + 1) * 1_480 < message.len();
        let (header, rest) = packet.split_at_mut(20);
        let mut fields = *Ipv4Packet::parse(&[&*header, &*rest].concat()).unwrap().header;
        fields.set_fragment((idx * 1_480) as u16, more);
        header.copy_from_slice(fields.as_bytes());
        rig.push(&framed(STATION, &VlanTags::NONE, EtherType::IPV4, &packet));
    }
    let frames = rig.take_frames();
    let mut answer = Vec::new();
    for frame in &frames {
        let (_, _, packet) = opened(frame);
        assert_eq!((packet.header.fragment_offset() as usize, packet.header.dont_fragment()), (answer.len(), false));
        answer.extend_from_slice(packet.payload);
    }
    let echo = Echo { identifier: 9, sequence: 1, data: &data };
    assert_eq!((frames.len(), Icmpv4Message::parse(&answer)), (3, Ok(Icmpv4Message::EchoReply(echo))));
    rig.assert_conserved();
}

#[test]
fn icmp_messages_that_are_not_taken_are_dropped_by_name() {
    let good = ping(b"0123");
    let mut wrong = good.clone();
    wrong[44] ^= 1;
    let answer = icmp_frame(&Icmpv4Message::EchoReply(Echo { identifier: 9, sequence: 1, data: b"" }));
    let redirect = icmp_frame(&Icmpv4Message::Other { kind: 5, code: 1, rest: [10, 0, 0, 9], payload: &[0; 28] });
    let quoted = ipv4_packet(OURS, PEER, Protocol::UDP, &datagram_bytes(b"tick"));
    let unreachable =
        |quoted: &[u8]| icmp_frame(&Icmpv4Message::DestinationUnreachable { code: Unreachable::Port, quoted });
    let mut own_source = good.clone();
    own_source[29] = 1;
    own_source[24..26].fill(0);
    let sum = crate::wire::checksum::checksum(&own_source[14..34]);
    own_source[24..26].copy_from_slice(&sum.to_be_bytes());
    let all = ipv4_frame([10, 0, 0, 255].into(), Protocol::ICMP, &good[34..]);
    let mut by_all = good.clone();
    by_all[..6].fill(0xff);
    for (frame, reason) in [
        (ipv4_frame(OURS, Protocol::ICMP, &[8, 0, 0, 0, 0, 0, 0]), "too_short"),
        (wrong, "bad_checksum"),
        (all, "not_unicast"),
        (by_all, "not_unicast"),
        (own_source, "bad_source"),
        (answer, "unrequested_reply"),
        (redirect, "ignored_type"),
        (unreachable(&quoted), "no_socket"),
        (unreachable(&quoted[..20]), "no_flow"),
        (unreachable(&ipv4_packet(PEER, OURS, Protocol::UDP, &[0; 8])), "not_ours"),
        (unreachable(&ipv4_packet(OURS, PEER, Protocol::TCP, &[0; 8])), "not_udp"),
    ] {
        let mut rig = stack();
        rig.push(&frame);
        assert_eq!((rig.count(&format!("icmp/drop/{reason}")), rig.outbox.frames.len()), (1, 0), "{reason}");
        rig.assert_conserved();
    }
}

#[test]
fn flood_of_echoes_is_answered_up_to_its_limit() {
    let mut rig = stack_with(IcmpConfig { echo: Some(TokenBucket::new(1, 3)) });
    (0..10).for_each(|_| rig.push(&ping(b"x")));
    assert_eq!((rig.count("icmp/echoes_answered"), rig.count("icmp/drop/echo_limited")), (3, 7));
}

#[test]
fn echo_at_a_full_ring_is_a_named_drop() {
    let mut rig = stack();
    rig.outbox.room = 0;
    rig.push(&ping(b"x"));
    assert_eq!(rig.count("icmp/drop/ring_full"), 1);
    rig.assert_conserved();
}

#[test]
fn answer_to_a_ping_of_the_app_reaches_it() {
    let mut rig = stack();
    rig.app.pings = true;
    rig.push(&icmp_frame(&Icmpv4Message::EchoReply(Echo { identifier: 9, sequence: 4, data: b"when" })));
    assert_eq!((rig.app.answers.clone(), rig.count("icmp/drop/unrequested_reply")), (vec![(4, b"when".to_vec())], 0));
}

const ASKED: Echo<'_> = Echo { identifier: 7, sequence: 1, data: b"when" };

fn ask(rig: &mut Rig<Stack>, echo: &Echo<'_>) -> Result<UdpSent, UdpSendToError> {
    rig.cx(|_, _, cx| send_echo(PEER, echo, cx))
}

#[test]
fn echo_that_cannot_be_asked_for_says_why() {
    let mut rig = stack();
    let refused = |rig: &mut Rig<Stack>, to: Ipv4Addr| rig.cx(|_, _, cx| send_echo(to, &ASKED, cx));
    assert_eq!(refused(&mut rig, OURS), Err(UdpSendToError::Connect(UdpConnectError::LocalAddress(OURS))));
    let far = Ipv4Addr::new(172, 16, 0, 1);
    assert_eq!(refused(&mut rig, far), Err(UdpSendToError::Connect(UdpConnectError::NoRoute(far))));
    let too_long = vec![0; 65_508];
    let echo = Echo { data: &too_long, ..ASKED };
    assert_eq!(ask(&mut rig, &echo), Err(UdpSendToError::Send(UdpSendError::TooLong)));
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    rig.take_frames();
    rig.outbox.room = 2;
    let three = Echo { data: &too_long[..4_000], ..ASKED };
    assert_eq!(ask(&mut rig, &three), Err(UdpSendToError::Send(UdpSendError::RingFull)));
    let hoard: Vec<_> = core::iter::from_fn(|| rig.pool.alloc()).collect();
    assert_eq!(ask(&mut rig, &ASKED), Err(UdpSendToError::Send(UdpSendError::PoolEmpty)));
    hoard.into_iter().for_each(Mbuf::free);
    rig.host.apply(HostEvent::Link { is_up: false }).unwrap();
    assert_eq!(ask(&mut rig, &ASKED), Err(UdpSendToError::Send(UdpSendError::LinkDown)));
    assert_eq!(rig.count("egress/drop/ring_full") + rig.count("egress/drop/link_down"), 2);
    rig.assert_conserved();
}

#[test]
fn echo_request_waits_for_its_neighbor_and_is_a_whole_message() {
    let mut rig = stack();
    assert_eq!(ask(&mut rig, &ASKED), Ok(UdpSent::Waiting));
    let question = rig.sent();
    assert_eq!(ArpPacket::parse(&question[14..]).unwrap().0.target_ip(), PEER);
    rig.push(&arp(ArpOperation::Reply, PEER, OURS));
    let waited = rig.sent();
    assert_eq!(ask(&mut rig, &ASKED), Ok(UdpSent::Posted));
    for frame in [waited, rig.sent()] {
        let (dst, src, packet) = opened(&frame);
        assert_eq!((dst, src, packet.header.source(), packet.header.ttl()), (PEER_STATION, STATION, OURS, 64));
        assert_eq!(Icmpv4Message::parse(packet.payload), Ok(Icmpv4Message::EchoRequest(ASKED)));
    }
    rig.assert_conserved();
}

#[test]
fn echo_request_to_a_silent_neighbor_is_a_named_drop() {
    let mut rig = stack();
    let nine = vec![0; 1_472 * 9];
    let too_many = Echo { data: &nine, ..ASKED };
    assert_eq!(ask(&mut rig, &too_many), Err(UdpSendToError::Send(UdpSendError::NeighborMissing(PEER))));
    assert_eq!(ask(&mut rig, &ASKED), Ok(UdpSent::Waiting));
    rig.run(10);
    assert_eq!(rig.count("egress/neighbors/drop/unreachable"), 1);
    rig.take_frames();
    rig.assert_conserved();
}

#[test]
fn long_echo_request_goes_in_fragments() {
    let mut rig = stack();
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    let data: Vec<u8> = (0..4_001u32).map(|n| n as u8).collect();
    let echo = Echo { data: &data, ..ASKED };
    assert_eq!(ask(&mut rig, &echo), Ok(UdpSent::Posted));
    let frames = rig.take_frames();
    let mut message = Vec::new();
    for frame in &frames {
        let (_, _, packet) = opened(frame);
        assert_eq!(usize::from(packet.header.fragment_offset()), message.len());
        message.extend_from_slice(packet.payload);
    }
    assert_eq!((frames.len(), Icmpv4Message::parse(&message)), (3, Ok(Icmpv4Message::EchoRequest(echo))));
    assert_eq!(rig.count("egress/fragments"), 3);
    rig.assert_conserved();
}

#[test]
fn error_reaches_each_consumer_of_the_flow() {
    let mut rig = stack();
    let local = SocketAddrV4::new(OURS, 5_000);
    rig.sockets.bind(ANNE, local, Sharing::Shared).unwrap();
    rig.sockets.bind(ConsumerId(2), local, Sharing::Shared).unwrap();
    let quoted = ipv4_packet(OURS, PEER, Protocol::UDP, &datagram_bytes(b"tick"));
    rig.push(&icmp_frame(&Icmpv4Message::DestinationUnreachable { code: Unreachable::Port, quoted: &quoted[..28] }));
    let consumers: Vec<_> = rig.app.errors.iter().map(|error| error.consumer.0).collect();
    let first = rig.app.errors[0];
    assert_eq!((consumers, first.flow.remote), (vec![1, 2], SocketAddrV4::new(PEER, 7)));
    assert_eq!((first.kind, first.path_mtu), (FlowErrorKind::Unreachable(Unreachable::Port), None));
    assert_eq!(rig.count("icmp/errors_delivered"), 1);
    rig.assert_conserved();
}

/// A packet of a flow that forbids fragments, from the IPv4 header on: a router quotes it in
/// `fragmentation needed`.
fn unfragmentable(rig: &mut Rig<Stack>) -> Vec<u8> {
    let local = SocketAddrV4::new(OURS, 5_000);
    rig.sockets.bind(ANNE, local, Sharing::Exclusive).unwrap();
    rig.host.apply(HostEvent::NeighborSet { address: PEER, mac: PEER_STATION }).unwrap();
    let whole = UdpOptions { dont_fragment: true, ..UdpOptions::default() };
    let sent = rig.cx(|_, _, cx| {
        let mut flow = UdpFlow::connect(local, SocketAddrV4::new(PEER, 7), &whole, cx).unwrap();
        flow.send(&[0; 1_472], cx)
    });
    assert_eq!(sent, Ok(UdpSent::Posted));
    rig.sent()[14..].to_vec()
}

fn too_large(mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let code = Unreachable::FragmentationNeeded { mtu };
    icmp_frame(&Icmpv4Message::DestinationUnreachable { code, quoted: &quoted[..548] })
}

#[test]
fn path_mtu_is_lowered_told_and_kept() {
    let mut rig = stack();
    let quoted = unfragmentable(&mut rig);
    for (mtu, reported) in [(1_400, Some(1_400)), (1_450, Some(1_400)), (1_500, None)] {
        rig.app.errors.clear();
        rig.push(&too_large(mtu, &quoted));
        assert_eq!(rig.app.errors.first().and_then(|error| error.path_mtu), reported, "{mtu}");
    }
    assert_eq!(rig.count("icmp/drop/bad_path_mtu"), 1);
}

#[test]
fn flow_that_ignores_the_path_mtu_sends_packets_of_the_interfaces() {
    let mut rig = stack();
    let quoted = unfragmentable(&mut rig);
    rig.push(&too_large(1_400, &quoted));
    let mut posted_by = |ignore_path_mtu| {
        let options = UdpOptions { dont_fragment: true, ignore_path_mtu, ..UdpOptions::default() };
        rig.cx(|_, _, cx| {
            let (local, remote) = (SocketAddrV4::new(OURS, 5_000), SocketAddrV4::new(PEER, 7));
            UdpFlow::connect(local, remote, &options, cx).unwrap().send(&[0; 1_472], cx)
        })
    };
    assert_eq!(posted_by(false), Err(UdpSendError::DontFragment { mtu: 1_400 }));
    assert_eq!(posted_by(true), Ok(UdpSent::Posted));
}

/// An attacker can know our address, our port and the peer: these do not prove that the attacker
/// saw a packet of ours.
#[test]
fn path_mtu_of_a_datagram_that_was_never_sent_is_not_believed() {
    let mut rig = stack();
    let quoted = unfragmentable(&mut rig);
    // The same packet with another identification, and with that identification on another flow.
    let made_up = |identification: u16| {
        let mut quoted = quoted.clone();
        quoted[4..6].copy_from_slice(&identification.to_be_bytes());
        quoted
    };
    let own = u16::from_be_bytes([quoted[4], quoted[5]]);
    for guess in 1..=3 {
        rig.push(&too_large(1_400, &made_up(own.wrapping_add(guess))));
    }
    assert_eq!(rig.count("icmp/drop/unproven_path_mtu"), 3);
    let mut other_port = quoted.clone();
    other_port[22..24].copy_from_slice(&8u16.to_be_bytes());
    rig.push(&too_large(1_400, &other_port));
    assert_eq!(rig.count("icmp/drop/unproven_path_mtu"), 4);
    // Datagrams whose length field is wrong, and one longer than our own link's MTU.
    let mut cut = quoted.clone();
    cut[25] ^= 1;
    let mut long = quoted.clone();
    long[2..4].copy_from_slice(&1_600u16.to_be_bytes());
    long[24..26].copy_from_slice(&1_580u16.to_be_bytes());
    rig.push(&too_large(1_400, &cut));
    rig.push(&too_large(1_400, &long));
    assert_eq!(rig.count("icmp/drop/not_ours"), 2);
    for guess in 0..100 {
        rig.push(&too_large(1_400, &made_up(own.wrapping_sub(1 + guess))));
    }
    assert_eq!((rig.count("icmp/drop/unproven_path_mtu"), rig.count("icmp/drop/path_mtu_limited")), (5, 99));
    assert!(rig.app.errors.is_empty());
    assert_eq!(rig.cx(|_, _, cx| cx.egress.path_mtu(PEER, cx.now)), None);
    // A genuine error is accepted again a moment later.
    rig.now += Duration::from_secs(2);
    rig.push(&too_large(1_400, &quoted));
    assert_eq!(rig.app.errors.len(), 1);
}

#[test]
fn port_unreachable_quotes_the_datagram_and_matches_at_its_sender() {
    let mut rig = stack();
    let datagram = datagram_bytes(&[7; 1_000]);
    rig.push(&ipv4_frame(OURS, Protocol::UDP, &datagram));
    let sent = rig.sent();
    let (dst, _, packet) = opened(&sent);
    assert_eq!((dst, packet.header.source(), packet.header.destination()), (PEER_STATION, OURS, PEER));
    assert_eq!(packet.header.total_len(), 576);
    let quoted = &ipv4_packet(PEER, OURS, Protocol::UDP, &datagram)[..548];
    let expected = Icmpv4Message::DestinationUnreachable { code: Unreachable::Port, quoted };
    assert_eq!(Icmpv4Message::parse(packet.payload), Ok(expected));
    assert_eq!(rig.count("egress/icmp_errors/sent"), 1);
    rig.assert_conserved();
}

#[test]
fn sender_learns_of_a_protocol_that_nobody_speaks_and_of_fragments_that_never_came() {
    let mut rig = stack();
    rig.push(&ipv4_frame(OURS, Protocol(99), b"hello"));
    let sent = rig.sent();
    let Ok(Icmpv4Message::DestinationUnreachable { code, .. }) = Icmpv4Message::parse(opened(&sent).2.payload) else {
        panic!("no unreachable");
    };
    assert_eq!(code, Unreachable::Protocol);

    let mut first = ipv4_frame(OURS, Protocol::UDP, &datagram_bytes(&[0; 64]));
    let mut header = *Ipv4Packet::parse(&first[14..]).unwrap().header;
    header.set_fragment(0, true);
    first[14..34].copy_from_slice(header.as_bytes());
    rig.push(&first);
    rig.run(61);
    let sent = rig.sent();
    let Ok(Icmpv4Message::TimeExceeded { code, .. }) = Icmpv4Message::parse(opened(&sent).2.payload) else {
        panic!("no time exceeded");
    };
    assert_eq!(code, TimeExceeded::Reassembly);
    rig.assert_conserved();
}

#[test]
fn errors_that_may_not_be_sent_are_counted_by_name() {
    let mut rig = stack();
    let datagram = datagram_bytes(b"tick");
    rig.push(&ipv4_frame([239, 1, 2, 3].into(), Protocol::UDP, &datagram));
    let mut by_all = ipv4_frame(OURS, Protocol::UDP, &datagram);
    by_all[..6].fill(0xff);
    rig.push(&by_all);
    (0..5).for_each(|_| rig.push(&ipv4_frame(OURS, Protocol::UDP, &datagram)));
    let unsent = |reason: &str| rig.count(&format!("egress/icmp_errors/drop/{reason}"));
    let limited = unsent("rate_limited");
    assert_eq!((unsent("not_unicast"), limited + rig.outbox.frames.len() as u64), (2, 5));
    assert!((1..5).contains(&limited), "about two are sent: {limited} were not");
    rig.assert_conserved();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random bytes after correct headers: nothing panics and no buffer is lost.
    #[test]
    fn hostile_bytes_lose_no_buffer(
        payloads in prop::collection::vec((0u8..3, prop::collection::vec(any::<u8>(), 0..80)), 1..40),
    ) {
        let mut rig = stack();
        rig.sockets.bind(ANNE, SocketAddrV4::new(OURS, 5_000), Sharing::Exclusive).unwrap();
        for (kind, mut bytes) in payloads {
            let frame = match kind {
                0 => {
                    let good = arp(ArpOperation::Request, PEER, OURS);
                    let keep = bytes.len().min(8);
                    bytes[..keep].copy_from_slice(&good[14..14 + keep]);
                    framed(STATION, &VlanTags::NONE, EtherType::ARP, &bytes)
                }
                1 => {
                    if bytes.len() >= 8 {
                        bytes[0] %= 13;
                        bytes[2..4].fill(0);
                        let sum = crate::wire::checksum::checksum(&bytes);
                        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
                    }
                    ipv4_frame(OURS, Protocol::ICMP, &bytes)
                }
                _ => ipv4_frame(OURS, Protocol::UDP, &[&datagram_bytes(b"")[..], &bytes].concat()),
            };
            rig.push(&frame);
            rig.run(1);
            rig.take_frames();
            rig.assert_conserved();
        }
    }
}
