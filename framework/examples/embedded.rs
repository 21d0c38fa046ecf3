//! wirepath inside a trading engine with its own loop: the engine calls `poll_once` when it likes,
//! between its other work, and an arriving tick fires an order on the same stack frame.
//!
//! `cargo run --release -p wirepath --example embedded`
//!
//! The "exchange" here is a second worker on the other end of a wire of plain memory, polled by the
//! same loop. On a NIC only the device changes.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::error::Error;

use wirepath::counters::{Block, Unit};
use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::pipeline::{App, Cx, Datagram, UdpConnectError, UdpFlow, UdpOptions};
use wirepath::proto::{ConsumerId, Group, Sharing};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::worker::Worker;

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
    let engine = Worker::builder(&mut engine_port)?.address("192.0.2.1/24".parse()?);
    let mut engine = engine.build(strategy, &block.scope("engine"))?;
    let exchange = Worker::builder(&mut exchange_port)?.address("192.0.2.2/24".parse()?);
    let mut exchange = exchange.build(Exchange { received: 0 }, &block.scope("exchange"))?;
    block.check()?;

    // Set-up through the same hands that the app has later.
    let mut clock = MonotonicClock::start();
    engine.with_app(clock.now(), |strategy, cx| -> Result<(), Box<dyn Error>> {
        cx.udp().join(CONSUMER, TICKS)?;
        strategy.orders = Some(flow(ENGINE, SocketAddrV4::new(EXCHANGE, ORDERS), cx)?);
        Ok(())
    })?;
    let mut ticks = exchange.with_app(clock.now(), |_, cx| -> Result<UdpFlow, Box<dyn Error>> {
        cx.udp().bind(CONSUMER, SocketAddrV4::new(EXCHANGE, ORDERS), Sharing::Exclusive)?;
        Ok(flow(EXCHANGE, SocketAddrV4::new(TICKS.group, TICKS.port), cx)?)
    })?;

    // The engine's own loop, which does its other work between the polls.
    let loops = block.scope("loop").counter("loops", Unit::Events);
    for price in 0..1_000u64 {
        let sent = exchange.with_app(clock.now(), |_, cx| ticks.send(&(price % 200).to_be_bytes(), cx));
        sent?;
        engine.poll_once(clock.now());
        exchange.poll_once(clock.now());
        loops.inc();
        // Values that change slowly are reported only now and then.
        if price % 256 == 0 {
            engine.publish();
        }
    }
    let (strategy, orders) = (engine.app(), exchange.app().received);
    println!("{} loops, {} ticks, {} orders sent, {orders} received", loops.get(), strategy.ticks, strategy.sent);
    assert_eq!((strategy.ticks, strategy.sent, orders), (1_000, 500, 500));
    Ok(())
}

fn flow(local: Ipv4Addr, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<UdpFlow, UdpConnectError> {
    cx.udp().connect(SocketAddrV4::new(local, 5_000), remote, &UdpOptions::default())
}
