//! wirepath inside a trading engine that has a loop of its own: the engine calls `poll_once` when it likes, between its
//! other work, and a tick that arrives fires an order on the same stack frame.
//!
//! `cargo run --release -p wirepath --example embedded`
//!
//! The "exchange" here is a second worker on the other end of a wire of plain memory, polled by the same loop. On a
//! NIC only the device changes.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::error::Error;

use wirepath::counters::{Block, Unit};
use wirepath::device::memory::{MemoryConfig, MemoryQueue, MemoryRx, MemoryTx, pair};
use wirepath::device::{Device, Queue};
use wirepath::mem::Pool;
use wirepath::pipeline::{
    App, Cx, Datagram, EgressConfig, Ipv4Config, StackConfig, UdpConfig, UdpFlow, UdpOptions, UdpStack, Vlans,
    udp_stack,
};
use wirepath::proto::{
    ConsumerId, Group, Host, HostConfig, HostEvent, InterfaceId, Ipv4Prefix, Sharing, SocketCapacity, UdpSockets,
};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::{Parts, Worker, random_seed};

const ENGINE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const EXCHANGE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TICKS: Group = Group::new(Ipv4Addr::new(239, 1, 1, 1), 9_000);
const ORDERS: u16 = 9_001;
const CONSUMER: ConsumerId = ConsumerId(1);

/// Buys whenever the price, the first eight bytes of a tick, is below 100.
struct Strategy {
    orders: Option<UdpFlow>,
    ticks: u64,
    sent: u64,
}

impl App for Strategy {
    fn on_datagram(&mut self, tick: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.ticks += 1;
        let Some((price, _)) = tick.payload.split_first_chunk() else { return };
        let Some(orders) = &mut self.orders else { return };
        if u64::from_be_bytes(*price) < 100 && orders.send(b"BUY 100", cx).is_ok() {
            self.sent += 1;
        }
    }
}

/// Counts the orders it receives.
struct Exchange {
    received: u64,
}

impl App for Exchange {
    fn on_datagram(&mut self, _order: &Datagram<'_>, _cx: &mut Cx<'_>) {
        self.received += 1;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let block = Block::heap();
    let (mut engine_port, mut exchange_port) = pair("wire", MemoryConfig::default());
    let strategy = Strategy { orders: None, ticks: 0, sent: 0 };
    let mut engine = worker(engine_port.take_queue(0)?, ENGINE, EXCHANGE, strategy, &block)?;
    let mut exchange = worker(exchange_port.take_queue(0)?, EXCHANGE, ENGINE, Exchange { received: 0 }, &block)?;
    block.check()?;

    // Set-up through the same hands that the app has later.
    let mut clock = MonotonicClock::start();
    engine.with_app(clock.now(), |strategy, cx| -> Result<(), Box<dyn Error>> {
        cx.sockets.join(CONSUMER, TICKS)?;
        strategy.orders = Some(flow(ENGINE, SocketAddrV4::new(EXCHANGE, ORDERS), cx)?);
        Ok(())
    })?;
    let mut ticks = exchange.with_app(clock.now(), |_, cx| -> Result<UdpFlow, Box<dyn Error>> {
        cx.sockets.bind(CONSUMER, SocketAddrV4::new(EXCHANGE, ORDERS), Sharing::Exclusive)?;
        Ok(flow(EXCHANGE, SocketAddrV4::new(TICKS.group, TICKS.port), cx)?)
    })?;

    // The engine's own loop. What else it does, it does between the polls.
    let loops = block.scope("engine").counter("loops", Unit::Events);
    for price in 0..1_000u64 {
        let sent = exchange.with_app(clock.now(), |_, cx| ticks.send(&(price % 200).to_be_bytes(), cx));
        sent?;
        engine.poll_once(clock.now());
        exchange.poll_once(clock.now());
        loops.inc();
        // What changes slowly is told now and then.
        if price % 256 == 0 {
            engine.publish();
        }
    }
    let (strategy, orders) = (engine.app(), exchange.app().received);
    println!("{} loops, {} ticks, {} orders sent, {orders} received", loops.get(), strategy.ticks, strategy.sent);
    assert_eq!((strategy.ticks, strategy.sent, orders), (1_000, 500, 500));
    Ok(())
}

fn flow(local: Ipv4Addr, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<UdpFlow, wirepath::pipeline::ConnectError> {
    UdpFlow::connect(SocketAddrV4::new(local, 5_000), remote, &UdpOptions::default(), cx)
}

/// A worker with the usual stack at `own`, with `neighbour` on its link.
fn worker<A: App>(
    queue: MemoryQueue,
    own: Ipv4Addr,
    neighbour: Ipv4Addr,
    app: A,
    block: &Block,
) -> Result<Worker<MemoryRx, MemoryTx, UdpStack, A>, Box<dyn Error>> {
    let scope = block.scope(&own.to_string());
    let seed = random_seed();
    let pool = Pool::heap(512)?;
    let (rx, tx) = queue.open(&pool, &scope)?;
    let mac = |address: Ipv4Addr| MacAddr([2, 0, 0, 0, 0, address.octets()[3]]);
    let stack = StackConfig {
        station: Some(mac(own)),
        vlans: Vlans::Untagged,
        ipv4: Ipv4Config::new(seed),
        udp: UdpConfig::default(),
    };
    let mut host = Host::new(
        HostConfig {
            interface: InterfaceId(0),
            mac: mac(own),
            vlan: VlanTags::NONE,
            mtu: 1500,
            addresses_max: 1,
            routes_max: 1,
            neighbours_max: 1,
        },
        seed,
    )?;
    let network = Ipv4Prefix::new(own, 24).ok_or("a prefix has at most 32 bits")?;
    host.apply(HostEvent::AddressAdded(network))?;
    host.apply(HostEvent::NeighbourSet { address: neighbour, mac: mac(neighbour) })?;
    let sockets = UdpSockets::new(SocketCapacity::default(), seed);
    let pipeline = udp_stack(stack, &scope);
    Ok(Worker::new(
        Parts { rx, tx, pipeline, app, pool, host, sockets, egress: EgressConfig::quiet(seed), burst_len: 32 },
        &scope,
    ))
}
