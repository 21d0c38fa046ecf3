//! VLANs on a port of ours: three of them on one queue (none, 20, and 5 in a provider's 100), each
//! a host with its own address, and a port that is all in one. The kernels of the test machines
//! have no 802.1Q, so the far end is a packet socket, which writes and reads the tags itself.
//!
//! ```text
//!  near: AF_XDP ─▶ VlanTrunk ─▶ 10.9.0.1 │ 10.9.20.1 │ 10.9.5.1        veth0 ═══ veth1        far: packet socket, 10.9.x.2
//! ```
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use etherparse::{Icmpv4Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use wirepath::counters::{Block, Scope};
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpRx, AfXdpTx, Mode};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Queue};
use wirepath::pipeline::{
    App, ChecksumPolicy, Cx, Datagram, Egress, EgressConfig, HostStack, HostStackConfig, UdpConfig, UdpOptions,
    VlanInterface, VlanTrunk, Vlans, host_stack, send_to,
};
use wirepath::proto::{
    ConsumerId, Group, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, Sharing, SocketCapacity,
    UdpSockets,
};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::wire::arp::{ArpFields, ArpOperation, ArpPacket};
use wirepath::wire::{EtherType, MacAddr, VlanTag, VlanTags};
use wirepath::worker::live::{DedicatedHost, LiveConfig, LivePort, LiveWorker, PortConfig};
use wirepath::worker::{Parts, StopFlag, Worker};
use wirepath_tests::packet::{PacketSocket, Received, Tag};
use wirepath_tests::port::{TIMEOUT, Wire, config, open, pool, wire};

const VLAN: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;
/// For each leg its tags from the outside in, and the third byte of its network 10.9.x.0/24.
const LEGS: [(&[Tag], u8); 3] = [(&[], 0), (&[(VLAN, 20)], 20), (&[(SERVICE, 100), (VLAN, 5)], 5)];
/// A priority and no VLAN (IEEE 802.1Q 9.6).
const PRIORITY: &[Tag] = &[(VLAN, 0xe000)];
const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 9, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 9, 2]);
const ANYBODY: [u8; 6] = [0xff; 6];
const PORT: u16 = 9_000;

fn ours(network: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, network, 1)
}

fn theirs(network: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, network, 2)
}

/// An app that keeps received datagrams, and sends queued ones in the tick of their leg.
#[derive(Default)]
struct Recorder {
    heard: Vec<(InterfaceId, Vec<u8>)>,
    orders: Vec<(InterfaceId, SocketAddrV4)>,
}

impl App for Recorder {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        let here = cx.host.interface();
        for (_, remote) in self.orders.extract_if(.., |(interface, _)| *interface == here) {
            let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
            send_to(local, remote, &UdpOptions::default(), b"order", cx).unwrap();
        }
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        self.heard.push((datagram.interface, datagram.payload.to_vec()));
    }
}

/// The worker, with any tree of nodes, and the far end.
struct Scene<W> {
    worker: W,
    block: Block,
    peer: Peer,
    clock: MonotonicClock,
}

/// A worker that can be turned.
trait Turn {
    fn turn(&mut self, clock: &mut MonotonicClock);
}

type Trunked = Worker<AfXdpRx, AfXdpTx, VlanTrunk<HostStack>, Recorder>;

impl Turn for Trunked {
    fn turn(&mut self, clock: &mut MonotonicClock) {
        self.poll_once(clock.now());
    }
}

/// A port that is entirely in one VLAN; it exists as long as its worker.
struct Tagged(LiveWorker<Recorder>, #[allow(dead_code, reason = "held, not read")] LivePort);

impl Turn for Tagged {
    fn turn(&mut self, clock: &mut MonotonicClock) {
        self.0.poll_once(clock.now());
    }
}

/// Does the same in the driver and behind it.
fn check(test: &str, act: impl Fn(&mut Scene<Trunked>) + Sync) {
    let Some(wire) = wire(test) else { return };
    quiet(&wire);
    for mode in [Mode::Native, Mode::Generic] {
        wire.near.run(|| {
            let (worker, block) = trunk(mode);
            let peer = wire.far.run(|| Peer(PacketSocket::open("veth1").unwrap()));
            let mut scene = Scene { worker, block, peer, clock: MonotonicClock::start() };
            scene.worker.turn(&mut scene.clock);
            act(&mut scene);
            assert_eq!(scene.worker.pool().drops_without_reason(), 0, "{mode:?}");
        });
    }
}

/// Takes the kernels' addresses away: theirs is the voice of the packet socket.
fn quiet(wire: &Wire) {
    wire.near.ip(&["addr", "flush", "dev", "veth0"]).unwrap();
    wire.far.ip(&["addr", "flush", "dev", "veth1"]).unwrap();
}

/// One queue with a host for each of [`LEGS`].
fn trunk(mode: Mode) -> (Trunked, Block) {
    let mut device = open(&AfXdpConfig { mode, ..config("veth0") });
    device.steer(&Rule::ALL, 0).unwrap();
    let (block, pool, seed) = (Block::heap(), pool(1024, 2048), HashSeed::new(17, 19));
    let scope = block.scope("worker");
    let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &scope).unwrap();
    let legs = LEGS.into_iter().zip(0u32..).map(|((tags, network), interface)| {
        leg(host(interface, tags, network), seed, &block.scope(&format!("leg{interface}")))
    });
    let mut sockets = UdpSockets::new(SocketCapacity::default(), seed);
    sockets.bind(ConsumerId(0), SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT), Sharing::Exclusive).unwrap();
    let parts = Parts {
        rx,
        tx,
        pipeline: VlanTrunk::new(legs.collect(), &scope),
        app: Recorder::default(),
        pool,
        // No interface exists outside the legs.
        host: host(99, &[], 99),
        sockets,
        egress: EgressConfig::quiet(seed),
        burst_len: 32,
    };
    let worker = Worker::new(parts, &scope);
    block.check().unwrap();
    (worker, block)
}

fn host(interface: u32, tags: &[Tag], network: u8) -> Host {
    let config = HostConfig {
        interface: InterfaceId(interface),
        mac: OUR_MAC,
        vlan: vlan_tags(tags),
        mtu: 1_500,
        addresses_max: 1,
        routes_max: 2,
        neighbors_max: 4,
    };
    let mut host = Host::new(config, HashSeed::new(1, 2)).unwrap();
    host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(ours(network), 24).unwrap())).unwrap();
    host
}

fn leg(host: Host, seed: HashSeed, scope: &Scope) -> VlanInterface<HostStack> {
    let udp = UdpConfig { checksum: ChecksumPolicy::Verify };
    let config = HostStackConfig { vlans: Vlans::Any, udp, ..HostStackConfig::new(seed) };
    VlanInterface {
        nodes: host_stack(config, &host, scope),
        egress: Egress::new(EgressConfig::host(seed), scope),
        host,
    }
}

fn vlan_tags(tags: &[Tag]) -> VlanTags {
    let tag = |(tpid, tci): &Tag| VlanTag::from_tci(EtherType(*tpid), *tci);
    match tags {
        [] => VlanTags::NONE,
        [only] => VlanTags::single(tag(only)),
        [outer, inner, ..] => VlanTags::double([tag(outer), tag(inner)]),
    }
}

impl<W: Turn> Scene<W> {
    /// Turns the worker until the far end gets a frame that `wanted` recognizes: its tags from the
    /// outside in, and the frame without them.
    fn expect<T>(&mut self, what: &str, mut wanted: impl FnMut(&[Tag], &[u8]) -> Option<T>) -> T {
        let start = std::time::Instant::now();
        while start.elapsed() < TIMEOUT {
            self.worker.turn(&mut self.clock);
            if let Some((tags, frame)) = self.peer.receive()
                && let Some(found) = wanted(&tags, &frame)
            {
                return found;
            }
        }
        panic!("the far end does not get {what}");
    }

    /// The tags of the reply to our request for `target`, and the MAC address in it.
    fn ask(&mut self, tags: &[Tag], network: u8, target: Ipv4Addr) -> (Vec<Tag>, ArpPacket) {
        self.peer.send(tags, arp(ArpOperation::Request, network, ANYBODY, target));
        self.expect("an ARP reply", |tags, frame| {
            let arp = arp_of(frame).filter(|arp| arp.operation() == ArpOperation::Reply)?;
            Some((tags.to_vec(), arp))
        })
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(name).unwrap()
    }

    /// Turns the worker until a counter has reached `count`.
    fn until_count(&mut self, name: &str, count: u64) {
        let start = std::time::Instant::now();
        while self.count(name) < count {
            assert!(start.elapsed() < TIMEOUT, "{name} stays below {count}");
            self.worker.turn(&mut self.clock);
            std::thread::yield_now();
        }
        assert_eq!(self.count(name), count, "{name}");
    }
}

/// The far end: 10.9.x.2 in each VLAN.
struct Peer(PacketSocket);

impl Peer {
    fn send(&self, tags: &[Tag], frame: Vec<u8>) {
        let tags: Vec<u8> =
            tags.iter().flat_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat()).collect();
        self.0.send(&[&frame[..12], &tags, &frame[12..]].concat()).unwrap();
    }

    /// A frame of ours, without its tags, which the kernel has taken off in part.
    fn receive(&self) -> Option<(Vec<Tag>, Vec<u8>)> {
        let Received { mut frame, tag } = self.0.receive(Duration::from_millis(1)).ok()?;
        let mut tags = Vec::from_iter(tag);
        let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        while matches!(word(&frame, 12), VLAN | SERVICE) {
            tags.push((word(&frame, 12), word(&frame, 14)));
            frame.drain(12..16);
        }
        Some((tags, frame))
    }
}

/// An ARP request or reply of the far end.
fn arp(operation: ArpOperation, network: u8, to: [u8; 6], target: Ipv4Addr) -> Vec<u8> {
    arp_from(operation, theirs(network), to, target)
}

fn arp_from(operation: ArpOperation, sender: Ipv4Addr, to: [u8; 6], target: Ipv4Addr) -> Vec<u8> {
    let fields = ArpFields {
        operation,
        sender_mac: PEER_MAC,
        sender_ip: sender,
        target_mac: MacAddr(if to == ANYBODY { [0; 6] } else { to }),
        target_ip: target,
    };
    let mut frame = [&to[..], &PEER_MAC.0, &[0x08, 0x06], &[0; 28]].concat();
    ArpPacket::new(&fields).emit(&mut frame[14..]).unwrap();
    frame
}

fn arp_of(frame: &[u8]) -> Option<ArpPacket> {
    let is_arp = frame[12..14] == [0x08, 0x06];
    is_arp.then(|| *ArpPacket::parse(&frame[14..]).unwrap().0)
}

fn datagram(to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(PEER_MAC.0, OUR_MAC.0).ipv4([10, 9, 0, 2], to.octets(), 64).udp(7, PORT);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).unwrap();
    frame
}

fn ping(network: u8, to: MacAddr, seq: u16) -> Vec<u8> {
    let (source, destination) = (theirs(network).octets(), ours(network).octets());
    let builder = PacketBuilder::ethernet2(PEER_MAC.0, to.0).ipv4(source, destination, 64).icmpv4_echo_request(7, seq);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"are you there?").unwrap();
    frame
}

/// From whom an echo reply is, its number and its data.
fn echo_reply_of(frame: &[u8]) -> Option<(Ipv4Addr, u16, Vec<u8>)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) = (packet.net, packet.transport) else {
        return None;
    };
    let Icmpv4Type::EchoReply(echo) = icmp.icmp_type() else { return None };
    Some((ip.header().source_addr(), echo.seq, icmp.payload().to_vec()))
}

#[test]
fn question_is_answered_in_its_own_vlan_with_the_address_of_that_vlan() {
    check("question_is_answered_in_its_own_vlan_with_the_address_of_that_vlan", |scene| {
        for (tags, network) in LEGS {
            // An address of another VLAN is not here: the first answer is the one to the second
            // question.
            scene.peer.send(tags, arp(ArpOperation::Request, network, ANYBODY, ours(network ^ 1)));
            let (answered, arp) = scene.ask(tags, network, ours(network));
            assert_eq!((&answered[..], arp.sender_ip(), arp.sender_mac()), (tags, ours(network), OUR_MAC));
        }
        for other in LEGS.map(|(_, network)| ours(network)).into_iter().skip(1) {
            scene.peer.send(&[], arp(ArpOperation::Request, 0, ANYBODY, other));
        }
        let (answered, arp) = scene.ask(PRIORITY, 0, ours(0));
        assert_eq!((&answered[..], arp.sender_ip()), (PRIORITY, ours(0)), "a priority is no VLAN, and is kept");
    });
}

#[test]
fn datagrams_reach_the_host_of_their_vlan_and_unknown_vlans_are_named_drops() {
    check("datagrams_reach_the_host_of_their_vlan_and_unknown_vlans_are_named_drops", |scene| {
        let unknown: [&[Tag]; 5] =
            [&[(VLAN, 21)], &[(VLAN, 100)], &[(VLAN, 5)], &[(SERVICE, 5), (VLAN, 100)], &[(SERVICE, 20), (VLAN, 5)]];
        for tags in unknown {
            scene.peer.send(tags, datagram(ours(20), b"nobody"));
        }
        let known =
            [(&[][..], 0, 0), (PRIORITY, 0, 0), (LEGS[1].0, 20, 1), (LEGS[2].0, 5, 2), (&[(VLAN, 0xb014)], 20, 1)];
        for (tags, network, _) in known {
            scene.peer.send(tags, datagram(ours(network), &[network]));
        }
        // To the address of another VLAN.
        scene.peer.send(LEGS[1].0, datagram(ours(5), b"nobody"));
        scene.until_count("worker/trunk/drop/unknown_vlan", unknown.len() as u64);
        scene.until_count("leg1/ipv4/drop/other_host", 1);
        let expected: Vec<_> = known.iter().map(|(_, network, leg)| (InterfaceId(*leg), vec![*network])).collect();
        assert_eq!(scene.worker.app().heard, expected);
    });
}

#[test]
fn ping_is_answered_in_its_vlan() {
    check("ping_is_answered_in_its_vlan", |scene| {
        for ((tags, network), seq) in LEGS.into_iter().zip(1..) {
            scene.ask(tags, network, ours(network));
            scene.peer.send(tags, ping(network, OUR_MAC, seq));
            let reply = scene.expect("an echo reply", |tags, frame| Some((tags.to_vec(), echo_reply_of(frame)?)));
            assert_eq!(reply, (tags.to_vec(), (ours(network), seq, b"are you there?".to_vec())));
        }
    });
}

#[test]
fn our_questions_and_datagrams_leave_with_the_tags_of_their_vlan() {
    check("our_questions_and_datagrams_leave_with_the_tags_of_their_vlan", |scene| {
        for ((tags, network), interface) in LEGS.into_iter().zip(0..) {
            let remote = SocketAddrV4::new(theirs(network), 7);
            let clock = &mut scene.clock;
            scene.worker.with_app(clock.now(), |app, _| app.orders.push((InterfaceId(interface), remote)));
            let question = scene.expect("our question", |tags, frame| {
                let arp = arp_of(frame).filter(|arp| arp.target_ip() == *remote.ip())?;
                Some((tags.to_vec(), arp.operation(), arp.sender_ip(), arp.sender_mac()))
            });
            assert_eq!(question, (tags.to_vec(), ArpOperation::Request, ours(network), OUR_MAC));
            scene.peer.send(tags, arp(ArpOperation::Reply, network, OUR_MAC.0, ours(network)));
            let sent = scene.expect("our datagram", |tags, frame| {
                let packet = SlicedPacket::from_ethernet(frame).ok()?;
                let Some(TransportSlice::Udp(udp)) = packet.transport else { return None };
                Some((tags.to_vec(), frame[..6].to_vec(), udp.destination_port(), udp.payload().to_vec()))
            });
            assert_eq!(sent, (tags.to_vec(), PEER_MAC.0.to_vec(), 7, b"order".to_vec()));
        }
    });
}

#[test]
fn membership_is_reported_in_its_vlan_only() {
    check("membership_is_reported_in_its_vlan_only", |scene| {
        let group = |leg: u8| Ipv4Addr::new(239, 9, 1, leg);
        let clock = &mut scene.clock;
        scene.worker.with_app(clock.now(), |_, cx| {
            for leg in 0..3 {
                let joined = Group { interface: InterfaceId(leg.into()), ..Group::new(group(leg), PORT) };
                cx.sockets.join(ConsumerId(1), joined).unwrap();
            }
        });
        // Each is said twice, the second time within a second (RFC 3376 8.1, 8.11).
        let mut reports = [0; 3];
        scene.expect("two reports in each VLAN", |tags, frame| {
            let packet = SlicedPacket::from_ethernet(frame).ok()?;
            let Some(NetSlice::Ipv4(ip)) = packet.net else { return None };
            if ip.payload().ip_number.0 != 2 {
                return None;
            }
            // A version 3 report with one record (RFC 3376 4.2): the group is 12 bytes in.
            let report = ip.payload().payload;
            let leg = LEGS.iter().position(|(of_leg, _)| *of_leg == tags).expect("tags of a leg");
            assert_eq!((report[0], &report[12..16]), (0x22, &group(leg as u8).octets()[..]));
            assert_eq!(ip.header().source_addr(), ours(LEGS[leg].1));
            reports[leg] += 1;
            reports.iter().all(|reports| *reports >= 2).then_some(())
        });
    });
}

/// A port of ours that is in VLAN 5 of a provider's VLAN 100 altogether, as a feed handler's
/// `vlan = "100.5"` makes it.
fn tagged_port(mode: Mode) -> (Tagged, Block) {
    let (block, stop) = (Block::heap(), StopFlag::new());
    let addresses = vec![Ipv4Prefix::new(ours(5), 24).unwrap()];
    let port = AfXdpConfig { mode, ..config("veth0") };
    let live = LiveConfig { port: PortConfig::AfXdp(port), vlan: vlan_tags(LEGS[2].0), ..LiveConfig::new("veth0") };
    let live = live.dedicated(DedicatedHost { addresses, ..DedicatedHost::default() });
    let mut port = LivePort::open(&live, &block.scope("port"), &stop).unwrap();
    let queue = port.take_queue().unwrap().unwrap();
    let worker = queue.builder().build(Recorder::default(), &block.scope("worker")).unwrap();
    block.check().unwrap();
    (Tagged(worker, port), block)
}

#[test]
fn port_in_one_vlan_answers_there_and_leaves_other_vlans_to_the_kernel() {
    let Some(wire) = wire("port_in_one_vlan_answers_there_and_leaves_other_vlans_to_the_kernel") else { return };
    quiet(&wire);
    let shown = wire.near.ip(&["-br", "link", "show", "veth0"]).unwrap();
    let mac: MacAddr = shown.split_whitespace().find(|word| word.matches(':').count() == 5).unwrap().parse().unwrap();
    for mode in [Mode::Native, Mode::Generic] {
        wire.near.run(|| {
            let (worker, block) = tagged_port(mode);
            let peer = wire.far.run(|| Peer(PacketSocket::open("veth1").unwrap()));
            let mut scene = Scene { worker, block, peer, clock: MonotonicClock::start() };
            scene.worker.turn(&mut scene.clock);
            for tags in [&[][..], PRIORITY, &[(VLAN, 5)], &[(SERVICE, 101), (VLAN, 5)]] {
                scene.peer.send(tags, arp(ArpOperation::Request, 5, ANYBODY, ours(5)));
            }
            // The rules see only the provider's tag; the node after them checks the other one.
            scene.peer.send(&[(SERVICE, 100), (VLAN, 6)], arp(ArpOperation::Request, 5, ANYBODY, ours(5)));
            scene.until_count("worker/ethernet/drop/other_vlan", 1);
            let frames = scene.count("worker/ethernet/frames");
            assert_eq!(frames, 1, "{mode:?}");
            let (tags, arp) = scene.ask(LEGS[2].0, 5, ours(5));
            assert_eq!((&tags[..], arp.sender_ip(), arp.sender_mac()), (LEGS[2].0, ours(5), mac));
            scene.peer.send(LEGS[2].0, ping(5, mac, 1));
            let reply = scene.expect("an echo reply", |tags, frame| Some((tags.to_vec(), echo_reply_of(frame)?)));
            assert_eq!((&reply.0[..], reply.1.0), (LEGS[2].0, ours(5)), "{mode:?}");
        });
    }
}
