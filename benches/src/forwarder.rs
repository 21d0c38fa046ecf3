//! Four nodes with work, forwarding from one memory device to another: parse, lookup, TTL and IP
//! checksum, MAC rewrite.
//!
//! ```text
//!  device A ─▶ Parse ─▶ Lookup ─▶ Age ─▶ Rewrite ─▶ device B
//! ```
//! The nodes are written as a user of the framework would write them: each checks or changes one
//! thing and passes the packet on.

use core::net::SocketAddrV4;
use std::time;

use wirepath::counters::{Block, Counter, Drops, Scope, Unit};
use wirepath::device::memory::{MemoryConfig, MemoryRx, MemoryTx, pair};
use wirepath::device::{Device, Offload, Queue};
use wirepath::mem::{Mbuf, Pool};
use wirepath::pipeline::{App, Cx, EgressConfig, Node, NodeTree, discard};
use wirepath::proto::{
    ConsumerId, DemuxMatch, FilterId, Flow, HashSeed, Host, HostConfig, InterfaceId, SocketCapacity, Subscriber,
    UdpSockets,
};
use wirepath::testing::proto::{Demux, DemuxCapacity};
use wirepath::time::Instant;
use wirepath::wire::ethernet::{EthernetFields, EthernetFrame, EthernetHeader};
use wirepath::wire::ipv4::{Ipv4Header, Ipv4Packet};
use wirepath::wire::udp::UdpHeader;
use wirepath::wire::{EtherType, MacAddr, VlanTags};
use wirepath::worker::{Parts, Worker};
use zerocopy::FromBytes;

use crate::feeder::Feeder;
use crate::frames::{OUR_MAC, PAYLOAD_LEN, UdpChecksum, frame, group, shuffled};
use crate::receiver::ROUND;

/// Destinations in the table.
const ROUTES: u32 = 64;
/// Next hops in the table.
const HOPS: usize = 4;

wirepath::drop_reasons! {
    /// Why a frame is not forwarded.
    pub enum ForwardDrop {
        /// Not a valid IPv4 packet.
        Malformed => "malformed",
        /// The table has no route to the destination.
        NoRoute => "no_route",
        /// The packet's TTL has expired.
        TimeToLive => "time_to_live",
        /// The ring of the other device is full.
        RingFull => "ring_full",
    }
}

/// The metadata beside the packet: `Lookup` writes the next hop, `Rewrite` reads it.
#[derive(Debug, Default)]
pub struct Route {
    hop: usize,
}

impl App for Route {}

/// Checks the Ethernet and the IPv4 header.
pub struct Parse<N> {
    next: N,
    packets: Counter,
    drops: Drops<ForwardDrop>,
}

impl<N> Parse<N> {
    fn check(mbuf: &mut Mbuf) -> Result<(), ForwardDrop> {
        let malformed = |_| ForwardDrop::Malformed;
        let frame = EthernetFrame::parse(mbuf.bytes()).map_err(|_| ForwardDrop::Malformed)?;
        if frame.ethertype != EtherType::IPV4 || frame.header.dst() != OUR_MAC {
            return Err(ForwardDrop::Malformed);
        }
        let packet = Ipv4Packet::parse(frame.payload).map_err(malformed)?;
        packet.verify_checksum().map_err(malformed)?;
        let (l2_len, l3_len) = (frame.header_len(), packet.header_len());
        mbuf.set_l2_len(l2_len);
        mbuf.set_l3_len(l3_len);
        mbuf.advance(l2_len);
        Ok(())
    }
}

impl<N: Node<Route>> Node<Route> for Parse<N> {
    #[inline]
    fn push(&mut self, mut mbuf: Mbuf, app: &mut Route, cx: &mut Cx<'_>) {
        self.packets.inc();
        match Self::check(&mut mbuf) {
            Ok(()) => self.next.push(mbuf, app, cx),
            Err(reason) => discard(mbuf, &mut self.drops, reason),
        }
    }

    fn tick(&mut self, app: &mut Route, cx: &mut Cx<'_>) {
        self.next.tick(app, cx);
    }

    fn kept(&self) -> usize {
        self.next.kept()
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("parse", "Ethernet and IPv4", |outline| self.next.outline(outline));
    }
}

/// Finds the next hop by destination address and port.
pub struct Lookup<N> {
    next: N,
    routes: Demux,
    packets: Counter,
    drops: Drops<ForwardDrop>,
}

impl<N> Lookup<N> {
    #[inline]
    fn find(&self, mbuf: &Mbuf) -> Option<usize> {
        let (ipv4, _) = Ipv4Header::ref_from_prefix(mbuf.bytes()).ok()?;
        let (udp, _) = UdpHeader::ref_from_prefix(mbuf.bytes().get(mbuf.l3_len()..)?).ok()?;
        let local = SocketAddrV4::new(ipv4.destination(), udp.destination_port());
        if let Some(route) = self.routes.only_consumer(local) {
            return Some(route.0 as usize);
        }
        let remote = SocketAddrV4::new(ipv4.source(), udp.source_port());
        match self.routes.lookup(Flow { local, remote }) {
            DemuxMatch::One(route) => Some(route.consumer.0 as usize),
            DemuxMatch::None | DemuxMatch::Many(_) => None,
        }
    }
}

impl<N: Node<Route>> Node<Route> for Lookup<N> {
    #[inline]
    fn push(&mut self, mbuf: Mbuf, app: &mut Route, cx: &mut Cx<'_>) {
        self.packets.inc();
        match self.find(&mbuf) {
            Some(hop) => {
                app.hop = hop;
                self.next.push(mbuf, app, cx);
            }
            None => discard(mbuf, &mut self.drops, ForwardDrop::NoRoute),
        }
    }

    fn tick(&mut self, app: &mut Route, cx: &mut Cx<'_>) {
        self.next.tick(app, cx);
    }

    fn kept(&self) -> usize {
        self.next.kept()
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("lookup", format!("{} routes", self.routes.locals()), |outline| self.next.outline(outline));
    }
}

/// Decrements the TTL and updates the header's checksum.
pub struct Age<N> {
    next: N,
    packets: Counter,
    drops: Drops<ForwardDrop>,
}

impl<N: Node<Route>> Node<Route> for Age<N> {
    #[inline]
    fn push(&mut self, mut mbuf: Mbuf, app: &mut Route, cx: &mut Cx<'_>) {
        self.packets.inc();
        let alive = Ipv4Header::mut_from_prefix(mbuf.bytes_mut()).is_ok_and(|(header, _)| header.decrement_ttl());
        match alive {
            true => self.next.push(mbuf, app, cx),
            false => discard(mbuf, &mut self.drops, ForwardDrop::TimeToLive),
        }
    }

    fn tick(&mut self, app: &mut Route, cx: &mut Cx<'_>) {
        self.next.tick(app, cx);
    }

    fn kept(&self) -> usize {
        self.next.kept()
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("age", "TTL and checksum", |outline| self.next.outline(outline));
    }
}

/// Writes the Ethernet header of the next hop and posts the frame.
pub struct Rewrite {
    hops: [EthernetHeader; HOPS],
    packets: Counter,
    drops: Drops<ForwardDrop>,
}

impl Node<Route> for Rewrite {
    #[inline]
    fn push(&mut self, mut mbuf: Mbuf, app: &mut Route, cx: &mut Cx<'_>) {
        self.packets.inc();
        let written = mbuf.prepend(EthernetHeader::LEN).is_some_and(|room| self.hops[app.hop].emit(room).is_ok());
        if !written {
            return discard(mbuf, &mut self.drops, ForwardDrop::Malformed);
        }
        if let Err(mbuf) = cx.tx.post(mbuf, Offload::NONE) {
            discard(mbuf, &mut self.drops, ForwardDrop::RingFull);
        }
    }

    fn tick(&mut self, _app: &mut Route, _cx: &mut Cx<'_>) {}

    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("rewrite", format!("{HOPS} next hops"), |_| ());
    }
}

type Chain = Parse<Lookup<Age<Rewrite>>>;

fn chain(scope: &Scope) -> Chain {
    let seed = HashSeed::new(3, 4);
    let mut routes = Demux::new(DemuxCapacity { locals: ROUTES as usize, connections: 1, shared_subscribers: 1 }, seed);
    for idx in 0..ROUTES {
        let hop = Subscriber { consumer: ConsumerId(idx % HOPS as u32), filter: FilterId::ANY };
        routes.bind(destination(idx), hop).expect("the table has room for all routes");
    }
    let hops = core::array::from_fn(|hop| {
        let dst = MacAddr([2, 0, 0, 0, 1, hop as u8]);
        EthernetHeader::new(EthernetFields { dst, src: OUR_MAC, ethertype: EtherType::IPV4 })
    });
    let of = |name: &str| (scope.scope(name).counter("packets", Unit::Packets), scope.scope(name).drops());
    let (packets, drops) = of("rewrite");
    let rewrite = Rewrite { hops, packets, drops };
    let (packets, drops) = of("age");
    let age = Age { next: rewrite, packets, drops };
    let (packets, drops) = of("lookup");
    let lookup = Lookup { next: age, routes, packets, drops };
    let (packets, drops) = of("parse");
    Parse { next: lookup, packets, drops }
}

/// A unicast destination behind us.
fn destination(idx: u32) -> SocketAddrV4 {
    SocketAddrV4::new([10, 1, (idx >> 8) as u8, idx as u8].into(), group(idx).port())
}

/// A worker between two wires.
pub struct Forwarder {
    worker: Worker<MemoryRx, MemoryTx, Chain, Route>,
    before: Feeder,
    behind: Feeder,
    now: Instant,
}

impl Forwarder {
    /// Everything allocated, nothing forwarded.
    #[expect(clippy::new_without_default, reason = "it takes memory and makes devices; a default does neither")]
    pub fn new() -> Self {
        let block = Block::heap();
        let scope = block.scope("worker0");
        let (mut port_a, far_a) = pair("a", MemoryConfig::default());
        let (mut port_b, far_b) = pair("b", MemoryConfig::default());
        let pool = Pool::heap(ROUND).expect("some hundred buffers are 500 KB");
        let open = |port: &mut wirepath::device::memory::MemoryDevice, scope: &Scope| {
            let queue = port.take_queue(0).expect("a fresh port has its queue");
            queue.open(&pool, scope).expect("the default pool holds the port's frames")
        };
        let (rx, _) = open(&mut port_a, &scope.scope("a"));
        let (_, tx) = open(&mut port_b, &scope.scope("b"));
        let seed = HashSeed::new(1, 2);
        let pipeline = chain(&scope);
        let host = Host::new(host_config(), seed).expect("the configuration is valid");
        let sockets = UdpSockets::new(SocketCapacity { locals: 1, bindings: 1, connections: 1, sources: 1 }, seed);
        let parts = Parts {
            rx,
            tx,
            pipeline,
            app: Route::default(),
            pool,
            host,
            sockets,
            egress: EgressConfig::quiet(seed),
            burst_len: 32,
        };
        let worker = Worker::new(parts, &scope);
        let frames = (0..ROUTES).map(|idx| frame(destination(idx), PAYLOAD_LEN, UdpChecksum::Zero)).collect();
        let before = Feeder::new(far_a, frames, shuffled(ROUTES, 4096, 1), &block.scope("before"));
        let behind = Feeder::new(far_b, vec![], vec![], &block.scope("behind"));
        block.check().expect("the default block has room for one worker");
        Self { worker, before, behind, now: Instant::ZERO }
    }

    /// Fills the wire in front: [`ROUND`] frames.
    pub fn feed(&mut self) {
        self.before.feed(ROUND);
    }

    /// Measured: turns of the loop until the frames are on the other wire.
    #[inline(never)]
    pub fn drain(&mut self) {
        let mut left = ROUND;
        while left > 0 {
            self.now = Instant::from_nanos(self.now.as_nanos() + 500);
            left -= self.worker.poll_once(self.now);
        }
    }

    /// Empties the wire behind; every frame must have arrived.
    pub fn clear(&mut self) {
        assert_eq!(self.behind.drain(), ROUND, "frames were lost on the way");
    }

    /// Nanoseconds a packet in `drain`.
    pub fn time(&mut self, rounds: usize) -> f64 {
        let mut spent = time::Duration::ZERO;
        for _ in 0..rounds {
            self.feed();
            let start = time::Instant::now();
            self.drain();
            spent += start.elapsed();
            self.clear();
        }
        spent.as_nanos() as f64 / (rounds * ROUND) as f64
    }
}

fn host_config() -> HostConfig {
    HostConfig {
        interface: InterfaceId(0),
        mac: OUR_MAC,
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 1,
        neighbors_max: 1,
    }
}
