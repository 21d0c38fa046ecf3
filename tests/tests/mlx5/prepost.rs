//! Preposted orders in the ring of a ConnectX: the frames that leave equal those of orders without
//! preposting, byte by byte and in the same order. Two workers on two strict software ConnectXs
//! that a cable connects, in virtual time; the receiver records each frame. Each test starts itself
//! again under `softhca run`.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use softhca::testing::is_inside;
use wirepath::counters::Block;
use wirepath::device::mlx5::{Mlx5Device, Mlx5Rx, Mlx5Tx};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, RxQueue};
use wirepath::forward;
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::pipeline::tcp::{
    CloseReason, ConnectionId, ConnectionOptions, ListenOptions, PreparedOrder, SendError, TcpConfig, TcpData,
    TcpEvent, TcpNodeConfig, TcpSent, TcpSockets, TcpSocketsConfig,
};
use wirepath::pipeline::{App, Cx, Datagram, EgressConfig, HostStack, HostStackConfig, host_stack};
use wirepath::proto::{
    ConsumerId, HashSeed, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, SocketCapacity, UdpSockets,
};
use wirepath::time::{Duration, Instant};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::{Parts, Worker};
use wirepath_tests::connectx::{End, config, open, pool};
use wirepath_tests::nic;

const DESK: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const EXCHANGE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 9_000);
const ORDER: &[u8] = b"BUY 0000000100 WIRE @ 0000000000 IOC ...........................";
/// Where the price is.
const PRICE: usize = 22;
/// Frames of one step of the model.
const STEP: usize = 1_024;
const TURN: Duration = Duration::from_micros(100);

fn inside(test: &str) -> bool {
    is_inside(test, &["--strict", "--devices", "2", "--manual"])
}

/// The app of both ends.
#[derive(Default)]
struct Session {
    connected: Vec<ConnectionId>,
    received: Vec<u8>,
    closed: Vec<CloseReason>,
}

impl App for Session {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { .. } => self.connected.push(id),
            TcpEvent::Closed(reason) => self.closed.push(reason),
            _ => (),
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        self.received.extend_from_slice(data.payload);
    }
}

/// Records received frames, and loses some of them.
struct Watched {
    inner: Mlx5Rx,
    seen: Rc<RefCell<Vec<Vec<u8>>>>,
    /// Frames with data that are lost next.
    losing: Rc<Cell<usize>>,
}

impl RxQueue for Watched {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let mut came = Burst::new();
        self.inner.receive(&mut came, limit, pool, now);
        for mbuf in came.drain(..) {
            let frame: Vec<u8> = mbuf.segments().flatten().copied().collect();
            let is_lost = self.losing.get() > 0 && !payload(&frame).is_empty();
            // All but ARP's announcements.
            if frame[12..14] == [0x08, 0] {
                self.seen.borrow_mut().push(frame);
            }
            if is_lost {
                self.losing.set(self.losing.get() - 1);
                mbuf.free();
            } else {
                burst.push(mbuf);
            }
        }
        burst.len()
    }

    // The test polls.
    forward!(inner: state, refresh_counters; by_default: wait_fd, arm);
}

/// A worker on a queue of a software ConnectX, and the values that must live as long as it.
struct Desk<R> {
    worker: Worker<R, Mlx5Tx, HostStack, Session>,
    block: Block,
    _device: Mlx5Device,
}

impl<R: RxQueue> Desk<R> {
    fn start(host: u8, wrap: impl FnOnce(Mlx5Rx) -> R) -> Self {
        let mut device = open(&config(["", "mlx5_0", "mlx5_1"][usize::from(host)]));
        device.steer(&Rule::ALL, 0).unwrap();
        let capabilities = device.capabilities();
        let End { rx, tx, block, pool, .. } = End::with_pool(&mut device, 0, pool(2_048, 1_522)).unwrap();
        let (seed, scope) = (HashSeed::new(host.into(), 29), block.scope("host"));
        let mac = |host| MacAddr([2, 0, 0, 0, 0, host]);
        let address = |host| Ipv4Addr::new(10, 77, 0, host);
        let host_config = HostConfig {
            interface: InterfaceId(0),
            mac: mac(host),
            vlan: VlanTags::NONE,
            mtu: 1500,
            addresses_max: 1,
            routes_max: 1,
            neighbors_max: 1,
        };
        let mut known = Host::new(host_config, seed).unwrap();
        known.apply(HostEvent::AddressAdded(Ipv4Prefix::new(address(host), 24).unwrap())).unwrap();
        known.apply(HostEvent::NeighborSet { address: address(3 - host), mac: mac(3 - host) }).unwrap();
        let stack = HostStackConfig { igmp: None, tcp: Some(TcpNodeConfig::default()), ..HostStackConfig::new(seed) };
        let machine = TcpConfig { connections_max: 8, chunks_max: 512, ..TcpConfig::default() };
        let tcp = TcpSockets::new(&TcpSocketsConfig { machine, capabilities, seed }, &scope).unwrap();
        let parts = Parts {
            rx: wrap(rx),
            tx,
            pipeline: host_stack(stack, &known, &scope),
            app: Session::default(),
            pool,
            host: known,
            sockets: UdpSockets::new(SocketCapacity::default(), seed),
            egress: EgressConfig::quiet(seed),
            burst_len: 32,
        };
        let worker = Worker::new(parts, &scope).with_tcp(tcp);
        block.check().unwrap();
        Self { worker, block, _device: device }
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(name).unwrap_or_else(|| panic!("nobody counts {name}"))
    }
}

/// The sender of orders, the exchange, and the cable between them.
struct Market {
    desk: Desk<Mlx5Rx>,
    exchange: Desk<Watched>,
    seen: Rc<RefCell<Vec<Vec<u8>>>>,
    losing: Rc<Cell<usize>>,
    now: Instant,
    /// Whether orders are made to stand.
    preposts: bool,
}

impl Market {
    fn open(preposts: bool) -> Self {
        let (seen, losing) = (Rc::default(), Rc::default());
        let desk = Desk::start(1, |rx| rx);
        let watch = |inner| Watched { inner, seen: Rc::clone(&seen), losing: Rc::clone(&losing) };
        let mut exchange = Desk::start(2, watch);
        let now = Instant::from_nanos(1_000_000_000);
        exchange.worker.with_app(now, |_, cx| cx.tcp().listen(EXCHANGE, &ListenOptions::default()).unwrap());
        Self { desk, exchange, seen, losing, now, preposts }
    }

    /// The desk connects.
    fn connect(&mut self, port: u16, options: &ConnectionOptions) -> ConnectionId {
        let local = SocketAddrV4::new(DESK, port);
        let id = self.ask(|cx| cx.tcp().connect(local, EXCHANGE, options, ConsumerId(0)).unwrap());
        self.turns(10);
        assert!(self.desk.worker.app().connected.contains(&id));
        id
    }

    fn ask<T>(&mut self, question: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        self.desk.worker.with_app(self.now, |_, cx| question(cx))
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.now += TURN;
            nic::step(STEP);
            self.desk.worker.poll_once(self.now);
            nic::step(STEP);
            self.exchange.worker.poll_once(self.now);
            nic::step(STEP);
        }
    }

    fn prepare(&mut self, id: ConnectionId, payload: &[u8]) -> PreparedOrder {
        self.ask(|cx| cx.tcp().prepare(id, payload).unwrap())
    }

    /// Preposts the order, in runs with preposting; returns whether it is in the ring.
    fn prepost(&mut self, order: &mut PreparedOrder) -> bool {
        self.preposts && self.ask(|cx| cx.tcp().prepost(order).unwrap())
    }

    fn fire(&mut self, order: &mut PreparedOrder, price: u64) -> Result<TcpSent, SendError> {
        order.patch(PRICE, format!("{price:010}").as_bytes()).unwrap();
        self.ask(|cx| cx.tcp().fire(order))
    }

    /// Orders that left from where they stood.
    fn stood(&self) -> u64 {
        self.desk.count("port/tx/preposts_fired")
    }

    /// The data that the exchange has read.
    fn read(&self) -> &[u8] {
        &self.exchange.worker.app().received
    }

    /// Checks that no buffer is left in use; returns the received frames.
    fn close(mut self) -> Vec<Vec<u8>> {
        self.turns(20);
        for frame in &*self.seen.borrow() {
            assert_eq!(tcp_sum(frame), 0xffff, "a wrong checksum: {frame:02x?}");
        }
        let frames = self.seen.take();
        let (pools, blocks) = (
            [self.desk.worker.pool().drops_without_reason(), self.exchange.worker.pool().drops_without_reason()],
            [self.desk.count("port/tx/completions_invalid"), self.desk.count("port/tx/completions_missed")],
        );
        assert_eq!((pools, blocks), ([0; 2], [0; 2]), "buffers without a name, completions of nothing");
        drop(self);
        assert_eq!(nic::diagnoses(), Vec::<String>::new());
        frames
    }
}

/// The payload of a frame of TCP.
fn payload(frame: &[u8]) -> &[u8] {
    if frame[12..14] != [0x08, 0] {
        return &[];
    }
    let (total, data_offset) =
        (usize::from(u16::from_be_bytes([frame[16], frame[17]])), usize::from(frame[46] >> 4) * 4);
    &frame[14 + 20 + data_offset..14 + total]
}

/// The one's complement sum over all that the TCP checksum covers, including the checksum itself
/// (RFC 9293 3.1): all ones where it is correct. Shares no code with the library.
fn tcp_sum(frame: &[u8]) -> u16 {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let segment = &frame[34..14 + total];
    let mut covered = frame[26..34].to_vec();
    covered.extend([0, 6]);
    covered.extend((segment.len() as u16).to_be_bytes());
    covered.extend(segment);
    let mut sum: u32 =
        covered.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn order_of(price: u64) -> Vec<u8> {
    let mut order = ORDER.to_vec();
    order[PRICE..PRICE + 10].copy_from_slice(format!("{price:010}").as_bytes());
    order
}

/// A day: orders of two connections and of several lengths, alone and several at once, with all
/// kinds of frames between them that overwrite a preposted order. Returns the data that the
/// exchange has read, all frames, and the number of orders that left preposted.
fn day(preposts: bool) -> (Vec<u8>, Vec<Vec<u8>>, u64) {
    let mut market = Market::open(preposts);
    let usual = ConnectionOptions::default();
    let plain = ConnectionOptions { timestamps: false, ..usual };
    let (first, second) = (market.connect(1_024, &usual), market.connect(1_025, &plain));
    let mut orders = [
        market.prepare(first, ORDER),
        market.prepare(second, ORDER),
        market.prepare(first, &ORDER.repeat(3)),
        market.prepare(second, &ORDER.repeat(12)),
    ];
    for round in 0..96u64 {
        let idx = (round % 4) as usize;
        market.prepost(&mut orders[idx]);
        match round / 4 % 6 {
            // Alone, at once and some quiet turns later.
            0 => (),
            1 => market.turns(3),
            // The same connection sends before it, and another; nothing is rung for.
            2 => assert_eq!(market.ask(|cx| cx.tcp().send(first, b"cancel all ")), Ok(11)),
            3 => {
                assert_eq!(market.ask(|cx| cx.tcp().send(second, &[b'x'; 400])), Ok(400));
                assert!(!market.prepost(&mut orders[idx]) || preposts, "behind it");
            }
            // Some at once, and the last one stands no more.
            4 => {
                for other in &mut orders {
                    assert_eq!(market.fire(other, 7_000 + round), Ok(TcpSent::Posted));
                    market.prepost(other);
                }
                assert_eq!(market.ask(|cx| cx.tcp().warm(&mut orders[idx])), Ok(true));
            }
            // The peer has sent, and is acknowledged with the turn.
            _ => {
                let to = market.exchange.worker.app().connected[0];
                market.exchange.worker.with_app(market.now, |_, cx| cx.tcp().send(to, b"filled ").unwrap());
                market.turns(1);
            }
        }
        assert_eq!(market.fire(&mut orders[idx], round), Ok(TcpSent::Posted), "round {round}");
        // Only this turn rings the doorbell for the frames posted besides it.
        market.turns(1 + (round % 2) as usize);
    }
    market.turns(20);
    let (read, stood) = (market.read().to_vec(), market.stood());
    (read, market.close(), stood)
}

#[test]
fn orders_that_stood_are_the_same_frames_in_the_same_order() {
    if !inside("orders_that_stood_are_the_same_frames_in_the_same_order") {
        return;
    }
    let ((read, frames, stood), (read_by_copy, frames_by_copy, none)) = (day(true), day(false));
    assert_eq!((frames.len(), frames), (frames_by_copy.len(), frames_by_copy));
    assert_eq!(read, read_by_copy);
    // Those of three kinds of rounds, and some of a fourth.
    assert!(stood >= 48, "{stood} orders left from where they stood");
    assert_eq!(none, 0);
}

#[test]
fn lost_order_that_stood_is_sent_again_as_it_was() {
    if !inside("lost_order_that_stood_is_sent_again_as_it_was") {
        return;
    }
    let mut market = Market::open(true);
    let id = market.connect(1_024, &ConnectionOptions::default());
    let mut order = market.prepare(id, ORDER);
    let mut expected = Vec::new();
    for round in 0..20 {
        assert!(market.prepost(&mut order));
        assert_eq!(market.ask(|cx| cx.tcp().warm(&mut order)), Ok(true), "it stands on");
        market.losing.set((round % 3 == 1).into());
        assert_eq!(market.fire(&mut order, round), Ok(TcpSent::Posted));
        expected.extend(order_of(round));
        // The order's payload differs when it is sent again.
        order.patch(0, b"SELL").unwrap();
        assert!(market.prepost(&mut order), "another stands in the meantime");
        market.turns(if round % 2 == 0 { 1 } else { 5_000 });
        order.patch(0, b"BUY ").unwrap();
    }
    market.turns(10_000);
    assert_eq!((market.read(), market.stood()), (&expected[..], 20));
    assert!(market.desk.worker.tcp().tally().segments_resent >= 6);
    market.close();
}

#[test]
fn order_stands_for_a_connection_that_ends_and_never_leaves() {
    if !inside("order_stands_for_a_connection_that_ends_and_never_leaves") {
        return;
    }
    let mut market = Market::open(true);
    let options = ConnectionOptions::default();
    let ids = [1_024, 1_025, 1_026].map(|port| market.connect(port, &options));
    let mut orders = ids.map(|id| market.prepare(id, ORDER));
    // We end it: the reset takes the order's place.
    assert!(market.prepost(&mut orders[0]));
    market.ask(|cx| cx.tcp().abort(ids[0]).unwrap());
    assert!(market.fire(&mut orders[0], 1).is_err());
    market.turns(3);
    // The peer ends the connection: we send nothing more, and the order is still in the ring when
    // its connection is gone.
    assert!(market.prepost(&mut orders[1]));
    let theirs = market.exchange.worker.app().connected[1];
    market.exchange.worker.with_app(market.now, |_, cx| cx.tcp().abort(theirs).unwrap());
    market.turns(3);
    assert_eq!(market.desk.worker.app().closed.len(), 2);
    assert_eq!(market.fire(&mut orders[1], 2), Err(SendError::NotFound));
    assert_eq!(market.ask(|cx| cx.tcp().prepost(&mut orders[1])), Err(SendError::NotFound));
    market.turns(3);
    assert_eq!((market.read(), market.stood()), (&b""[..], 0));
    // The place is good for another.
    assert!(market.prepost(&mut orders[2]));
    assert_eq!(market.fire(&mut orders[2], 3), Ok(TcpSent::Posted));
    market.turns(3);
    assert_eq!((market.read(), market.stood()), (&order_of(3)[..], 1));
    market.close();
}

#[test]
fn order_that_finds_the_ring_full_leaves_later_once_and_in_order() {
    if !inside("order_that_finds_the_ring_full_leaves_later_once_and_in_order") {
        return;
    }
    let mut market = Market::open(true);
    let id = market.connect(1_024, &ConnectionOptions::default());
    let mut order = market.prepare(id, ORDER);
    let (mut expected, mut posted, mut queued) = (Vec::new(), 0, 0);
    // The NIC does not move: it takes nothing out of the ring of 64 blocks.
    for round in 0..60 {
        let stands = market.prepost(&mut order);
        match market.fire(&mut order, round).unwrap() {
            TcpSent::Posted => posted += 1,
            TcpSent::Queued => queued += 1,
            other => panic!("{other:?}"),
        }
        assert!(!stands || queued == 0, "it stands in a full ring");
        expected.extend(order_of(round));
    }
    assert!(posted > 10 && queued > 0, "{posted} posted, {queued} queued");
    market.turns(50);
    assert_eq!(market.read(), expected);
    assert!(market.prepost(&mut order), "there is room again");
    assert_eq!(market.fire(&mut order, 99), Ok(TcpSent::Posted));
    market.turns(3);
    assert!(market.read().ends_with(&order_of(99)));
    market.close();
}

#[test]
fn empty_pool_keeps_an_order_that_stands_from_leaving_without_its_copy() {
    if !inside("empty_pool_keeps_an_order_that_stands_from_leaving_without_its_copy") {
        return;
    }
    let mut market = Market::open(true);
    let id = market.connect(1_024, &ConnectionOptions::default());
    let mut order = market.prepare(id, ORDER);
    assert!(market.prepost(&mut order));
    let pool = market.desk.worker.pool();
    let hoard: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(market.fire(&mut order, 1), Err(SendError::PoolEmpty));
    hoard.into_iter().for_each(Mbuf::free);
    market.turns(3);
    assert_eq!((market.read(), market.stood()), (&b""[..], 0));
    assert_eq!(market.fire(&mut order, 2), Ok(TcpSent::Posted));
    market.turns(3);
    assert_eq!((market.read(), market.stood()), (&order_of(2)[..], 1), "it stood all the while");
    market.close();
}
