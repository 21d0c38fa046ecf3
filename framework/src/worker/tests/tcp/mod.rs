//! Two workers' TCP over frames, through a wire that may be bad.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod bad_input;
mod clients;
mod echo;
mod frames;
mod orders;
mod reset_connections;
mod silence;
mod timestamps;
mod trains;
mod untiring;

use core::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use crate::counters::{Block, Scope};
use crate::device::fault::{FaultConfig, FaultDevice, Faults};
use crate::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use crate::device::{Device, Queue, RxOf, TxOf};
use crate::mem::{Layout, Pool, Region};
use crate::pipeline::tcp::*;
use crate::pipeline::{App, Cx, EgressConfig, Ethernet, Ipv4, Ipv4Config, Ipv4Successors, Unhandled, Vlans};
use crate::proto::{
    ConsumerId, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, SocketCapacity, UdpSockets,
};
use crate::time::{Duration, Instant};
use crate::wire::{MacAddr, VlanTags};
use crate::worker::{Parts, Worker};

type Stack = Ethernet<Ipv4<Unhandled, Unhandled, Unhandled, Tcp>, Unhandled>;
type End = Worker<RxOf<FaultDevice<MemoryDevice>>, TxOf<FaultDevice<MemoryDevice>>, Stack, Talker>;

const SERVER: SocketAddrV4 = SocketAddrV4::new(address(2), 80);

/// Keeps received data, and sends it back if configured.
#[derive(Default)]
struct Talker {
    echoes: bool,
    /// While the peer accepts no more data, this app reads no more of the peer's data, and resumes
    /// on `Writable`.
    holds_back: bool,
    received: Vec<u8>,
    events: Vec<TcpEvent>,
    id: Option<ConnectionId>,
    /// Data that could not be sent back yet.
    owed: Vec<u8>,
    /// This many times it aborts the call instead of waiting for a route, and calls again.
    calls_left: usize,
}

impl Talker {
    /// Sends the pending data; true if none is left.
    fn pay(&mut self, cx: &mut Cx<'_>) -> bool {
        if let (Some(id), false) = (self.id, self.owed.is_empty()) {
            let sent = cx.tcp().send(id, &self.owed).unwrap_or(0);
            self.owed.drain(..sent);
        }
        self.owed.is_empty()
    }
}

impl App for Talker {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        if !self.holds_back {
            self.pay(cx);
        }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        self.id = Some(connection);
        self.events.push(event);
        if self.holds_back && event == TcpEvent::Writable && self.pay(cx) {
            cx.tcp().resume(connection).unwrap();
        }
        self.call_again(connection, event, cx);
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        self.received.extend_from_slice(data.payload);
        if self.echoes {
            self.owed.extend_from_slice(data.payload);
            if !self.pay(cx) && self.holds_back {
                cx.tcp().pause(data.connection).unwrap();
            }
        }
    }
}

/// A client, a server, and the time.
struct Line {
    client: End,
    server: End,
    now: Instant,
    block: Block,
    /// Buffers that each end's wire keeps for duplicate frames.
    stock: [usize; 2],
}

/// The options of a line.
#[derive(Clone, Copy, Default)]
struct Wanted {
    faults: Faults,
    seed: u64,
    echoes: bool,
    /// As `Talker::holds_back`.
    holds_back: bool,
    options: ConnectionOptions,
    /// Resolves neighbors, instead of using static ones.
    asks: bool,
    /// Buffers of each pool, if not 2048.
    buffers: Option<usize>,
    /// Bytes of a buffer, for ports with segmentation.
    cuts: Option<usize>,
}

impl Line {
    /// Connected through a listener at the server.
    fn connected(wanted: Wanted) -> Self {
        let (left, right) = pair("tcp", MemoryConfig { segments: wanted.cuts.is_some(), ..MemoryConfig::default() });
        let block = Block::heap();
        let (client, server) = (end(left, 1, &wanted, &block), end(right, 2, &wanted, &block));
        let now = Instant::ZERO + Duration::from_secs(1);
        let stock = [client.pool().in_use(), server.pool().in_use()];
        let mut line = Self { client, server, now, block, stock };
        let listen = ListenOptions { connection: wanted.options, ..ListenOptions::default() };
        line.server.with_app(now, |app, cx| {
            (app.echoes, app.holds_back) = (wanted.echoes, wanted.holds_back);
            cx.tcp().listen(SERVER, &listen).unwrap();
        });
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        line.ask(|_, cx| cx.tcp().connect(local, SERVER, &wanted.options, ConsumerId(1)).unwrap());
        line.turn_until(|line| line.client.app().id.is_some() && line.server.app().id.is_some());
        assert_eq!(line.client.app().events, [TcpEvent::Connected { listener: None }]);
        line
    }

    /// Runs the client's app.
    fn ask<T>(&mut self, act: impl FnOnce(&mut Talker, &mut Cx<'_>) -> T) -> T {
        self.client.with_app(self.now, act)
    }

    fn turn(&mut self) {
        self.now += Duration::from_micros(100);
        self.client.poll_once(self.now);
        self.server.poll_once(self.now);
    }

    fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    /// Polls until the condition holds, at most 100 s.
    fn turn_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..1_000_000 {
            if is_so(self) {
                return;
            }
            self.turn();
        }
        panic!("it is never so: {:?} received {}", self.client.app().events, self.server.app().received.len());
    }

    fn id(&self) -> ConnectionId {
        self.client.app().id.unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(name).unwrap()
    }

    /// Closes both sides; then every buffer is free.
    fn close(mut self) {
        let id = self.id();
        self.ask(|_, cx| cx.tcp().shutdown(id).unwrap());
        self.turn_until(|line| line.server.app().events.contains(&TcpEvent::PeerClosed));
        let now = self.now;
        self.server.with_app(now, |app, cx| cx.tcp().shutdown(app.id.unwrap()).unwrap());
        self.turn_until(|line| line.client.app().events.contains(&TcpEvent::PeerClosed));
        self.turn_until(|line| line.client.tcp().chunks() + line.server.tcp().chunks() == 0);
        self.turns(100);
        for (end, stock) in [&self.client, &self.server].into_iter().zip(self.stock) {
            assert_eq!(
                (end.pool().in_use(), end.pool().drops_without_reason()),
                (stock, 0),
                "every buffer is home, by name"
            );
        }
        for end in ["1", "2"] {
            assert_eq!(self.count(&format!("{end}/tcp/drop/bad_checksum")), 0, "every checksum was right");
        }
    }
}

const fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

fn end(port: MemoryDevice, number: u8, wanted: &Wanted, block: &Block) -> End {
    let scope = block.scope(&number.to_string());
    let layout = wanted.cuts.map_or(Layout::default(), Layout::for_frames);
    let region = Region::heap(layout.region_len(wanted.buffers.unwrap_or(2048))).unwrap();
    let pool = Pool::new(Arc::new(region), layout).unwrap();
    let config = FaultConfig { seed: wanted.seed + u64::from(number), tx: wanted.faults, ..FaultConfig::default() };
    let mut port = FaultDevice::new(port, config).unwrap();
    let seed = HashSeed::new(number.into(), 7);
    let sockets = TcpSocketsConfig {
        machine: TcpConfig { connections_max: 4, chunks_max: 2048, ..TcpConfig::default() },
        capabilities: port.capabilities(),
        seed,
    };
    let (rx, tx) = port.take_queue(0).unwrap().open(&pool, &scope).unwrap();
    let parts = Parts {
        rx,
        tx,
        pipeline: stack(number, seed, &scope),
        app: Talker::default(),
        pool,
        host: host(number, seed),
        sockets: UdpSockets::new(SocketCapacity::default(), seed),
        egress: if wanted.asks { EgressConfig::host(seed) } else { EgressConfig::quiet(seed) },
        burst_len: 32,
    };
    Worker::new(parts, &scope).with_tcp(TcpSockets::new(&sockets, &scope).unwrap())
}

fn stack(number: u8, seed: HashSeed, scope: &Scope) -> Stack {
    let next = Ipv4Successors {
        udp: Unhandled::new("udp", scope),
        icmp: Unhandled::new("icmp", scope),
        igmp: Unhandled::new("igmp", scope),
        tcp: Tcp::new(TcpNodeConfig::default(), scope),
    };
    let ipv4 = Ipv4::new(Ipv4Config::new(seed), next, scope);
    Ethernet::new(Some(mac(number)), Vlans::Untagged, ipv4, Unhandled::new("arp", scope), scope)
}

fn host(number: u8, seed: HashSeed) -> Host {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: mac(number),
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 1,
        neighbors_max: 2,
    };
    let mut host = Host::new(config, seed).unwrap();
    host.apply(HostEvent::AddressAdded(Ipv4Prefix::new(address(number), 24).unwrap())).unwrap();
    host.apply(HostEvent::NeighborSet { address: address(3 - number), mac: mac(3 - number) }).unwrap();
    host
}

/// After the MTU has shrunk, retransmissions fit it, without a loss that reveals it.
#[test]
fn interface_whose_mtu_shrinks_has_shorter_segments_of_connections_that_stand() {
    let mut line = Line::connected(Wanted::default());
    let id = line.id();
    let mss = |line: &mut Line| line.ask(|_, cx| cx.tcp().info(id).unwrap().snd_mss);
    line.turns(10);
    let before = mss(&mut line);
    line.ask(|_, cx| cx.host.apply(HostEvent::Mtu(1000)).unwrap());
    line.turns(10);
    assert_eq!((before, mss(&mut line)), (1448, 948));
    line.ask(|_, cx| assert_eq!(cx.tcp().send(id, &[7; 3_000]), Ok(3_000)));
    line.turn_until(|line| line.server.app().received.len() == 3_000);
    assert_eq!(line.client.tcp().tally().segments_resent, 0);
    line.close();
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|idx| (idx.wrapping_mul(2_654_435_761) >> 17) as u8).collect()
}

/// Sends all of `bytes` and waits until they have arrived.
fn send_all(line: &mut Line, bytes: &[u8]) {
    send_all_from(line, bytes, 0);
}

/// The same if `sent` bytes were already accepted.
fn send_all_from(line: &mut Line, bytes: &[u8], mut sent: usize) {
    let id = line.id();
    for _ in 0..1_000_000 {
        if sent == bytes.len() {
            break;
        }
        sent += line.ask(|_, cx| cx.tcp().send(id, &bytes[sent..]).unwrap_or(0));
        line.turn();
    }
    assert_eq!(sent, bytes.len(), "what was handed over in 100 s");
    line.turn_until(|line| line.server.app().received.len() == bytes.len());
}

#[test]
fn bytes_are_echoed_over_a_good_wire() {
    let mut line = Line::connected(Wanted { echoes: true, ..Wanted::default() });
    let bytes = pattern(300_000);
    send_all(&mut line, &bytes);
    line.turn_until(|line| line.client.app().received.len() == bytes.len());
    assert!(line.client.app().received == bytes && line.server.app().received == bytes);
    assert_eq!(line.client.tcp().tally().segments_resent, 0);
    line.close();
}

#[test]
fn bytes_are_echoed_over_a_bad_wire() {
    let faults =
        Faults { loss: 0.03, duplication: 0.02, reordering: 0.05, ring_full: 0.002, ring_full_max: 8, ..Faults::NONE };
    let mut line = Line::connected(Wanted { faults, seed: 5, echoes: true, ..Wanted::default() });
    let bytes = pattern(300_000);
    send_all(&mut line, &bytes);
    line.turn_until(|line| line.client.app().received.len() == bytes.len());
    assert!(line.client.app().received == bytes && line.server.app().received == bytes);
    assert!(line.client.tcp().tally().segments_resent > 0);
    line.close();
}

#[test]
fn what_the_ports_cut_is_echoed_over_good_wires_and_bad_ones() {
    let bad = Faults { loss: 0.02, reordering: 0.05, ring_full: 0.002, ring_full_max: 8, ..Faults::NONE };
    for (faults, room) in [Faults::NONE, bad].into_iter().flat_map(|faults| [1_522, 16_000].map(|room| (faults, room)))
    {
        let options =
            ConnectionOptions { send_buffer: 200_000, receive_buffer: 90_000, ..ConnectionOptions::default() };
        let wanted = Wanted {
            faults,
            seed: 9,
            echoes: true,
            options,
            buffers: Some(512),
            cuts: Some(room),
            ..Wanted::default()
        };
        let mut line = Line::connected(wanted);
        let bytes = pattern(700_001);
        send_all(&mut line, &bytes);
        line.turn_until(|line| line.client.app().received.len() == bytes.len());
        assert!(line.client.app().received == bytes && line.server.app().received == bytes);
        let posts = line.count("1/tcp/segments_out");
        assert!(posts < line.client.tcp().tally().segments_out, "what leaves is less than what arrives");
        line.close();
    }
}

/// A lost segment of a larger send shares its buffer with the other segments, so headers cannot be
/// written into that buffer. Headers plus a view take two buffers, headers plus a copy only one.
#[test]
fn one_free_buffer_is_enough_to_send_a_part_of_a_buffer_again() {
    let mut line = Line::connected(Wanted { cuts: Some(8_192), ..Wanted::default() });
    let (id, bytes) = (line.id(), pattern(3_000));
    line.ask(|_, cx| assert_eq!(cx.tcp().send(id, &bytes), Ok(3_000)));
    let pool = line.client.pool();
    let hoard: Vec<_> = (1..pool.available()).filter_map(|_| pool.alloc()).collect();
    // The server receives nothing.
    for _ in 0..10_000 {
        line.now += Duration::from_micros(100);
        line.client.poll_once(line.now);
    }
    assert!(line.client.tcp().tally().segments_resent > 0);
    hoard.into_iter().for_each(crate::mem::Mbuf::free);
    line.turn_until(|line| line.server.app().received.len() == bytes.len());
    assert!(line.server.app().received == bytes);
    line.close();
}

#[test]
fn what_tcp_has_done_can_be_seen_from_outside() {
    let faults = Faults { loss: 0.1, ..Faults::NONE };
    let mut line = Line::connected(Wanted { faults, seed: 3, ..Wanted::default() });
    let (id, bytes) = (line.id(), pattern(100_000));
    line.ask(|_, cx| cx.tcp().send(id, &bytes).unwrap());
    line.turn_until(|line| line.server.app().received.len() == bytes.len());
    let tally = line.ask(|_, cx| cx.tcp().tally());
    assert!(tally.segments_resent > 0 && tally == line.client.tcp().tally());
    for _ in 0..2 {
        line.client.publish();
        let counted = ["segments_resent", "timeouts", "fast_recoveries", "active_opens"];
        let counted = counted.map(|name| line.count(&format!("1/tcp/{name}")));
        assert_eq!(counted, [tally.segments_resent, tally.timeouts, tally.fast_recoveries, 1]);
    }
}

#[test]
fn segments_that_a_paused_app_has_no_room_for_are_counted_by_name() {
    let mut line = Line::connected(Wanted { buffers: Some(64), ..Wanted::default() });
    let (id, now) = (line.id(), line.now);
    line.server.with_app(now, |app, cx| cx.tcp().pause(app.id.unwrap()).unwrap());
    for _ in 0..40 {
        // One segment each.
        let _ = line.ask(|_, cx| cx.tcp().send(id, &[7; 600]));
        line.turns(5);
    }
    assert!(line.count("2/tcp/drop/no_room") > 0);
    line.server.with_app(line.now, |app, cx| cx.tcp().resume(app.id.unwrap()).unwrap());
    line.turns(50_000);
    line.close();
}

/// A window in bytes cannot express that buffers run out: a peer that had sent into it would get no
/// answer, and retransmit ever later.
#[test]
fn small_segments_that_wait_for_a_paused_app_share_buffers() {
    let mut line = Line::connected(Wanted { buffers: Some(64), ..Wanted::default() });
    let (id, now, bytes) = (line.id(), line.now, pattern(100 * 40));
    line.server.with_app(now, |app, cx| cx.tcp().pause(app.id.unwrap()).unwrap());
    let before = line.server.pool().available();
    for message in bytes.chunks(40) {
        // One segment each.
        assert_eq!(line.ask(|_, cx| cx.tcp().send(id, message)), Ok(message.len()));
        line.turns(5);
    }
    assert!(before - line.server.pool().available() <= 4, "{before}, {}", line.server.pool().available());
    line.server.with_app(line.now, |app, cx| cx.tcp().resume(app.id.unwrap()).unwrap());
    line.turn_until(|line| line.server.app().received.len() == bytes.len());
    assert!(line.server.app().received == bytes);
    assert_eq!(line.count("2/tcp/drop/no_room"), 0);
    line.close();
}
