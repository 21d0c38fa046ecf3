//! A tick that arrives over UDP fires an order over TCP within the same `poll_once`: the order is
//! prepared with its headers and checksums, and only the price is written.
//!
//! `cargo run --release -p wirepath --example order`
//!
//! The exchange is a second worker on the other end of a wire of plain memory. To run the same
//! trader on a NIC, as root, at an address that the kernel does not have, with ticks of
//! 239.1.1.1:9000 and your gateway: `… --example order -- eth1 10.0.0.2/24 10.0.0.1:9100`.

mod cli;
mod link;

use core::fmt::Display;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::error::Error;
use std::process::ExitCode;

use wirepath::counters::{Block, Scope};
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::pipeline::tcp::{
    ConnectError, ConnectionId, ConnectionOptions, ListenOptions, PreparedOrder, TcpConfig, TcpData, TcpEvent, TcpSent,
};
use wirepath::pipeline::{App, AppError, Cx, Datagram, HostStack, UdpOptions};
use wirepath::port::{Port, multicast};
use wirepath::proto::{ConsumerId, Group, Ipv4Prefix};
use wirepath::time::{Clock, Duration, Instant, MonotonicClock};
use wirepath::worker::Worker;

pub(crate) const EXCHANGE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TICKS: Group = Group::new(Ipv4Addr::new(239, 1, 1, 1), 9_000);
pub(crate) const GATEWAY: SocketAddrV4 = SocketAddrV4::new(EXCHANGE, 9_100);
const CONSUMER: ConsumerId = ConsumerId(1);

/// The form of an order; the price is written at `PRICE_AT`.
const ORDER: &[u8; 40] = b"BUY 100 WIRE @ 0000000000 IOC ACCOUNT 7\n";
const PRICE_AT: usize = 15;
/// A gateway that refuses, or is gone, is called again after so long: often enough for a restart,
/// and no flood.
const CALL_AGAIN: Duration = Duration::from_secs(5);

pub(crate) type End<A> = Worker<MemoryRx, MemoryTx, HostStack, A>;

/// Buys whenever the price, the first eight bytes of a tick, is below 100.
pub(crate) struct Trader {
    gateway: SocketAddrV4,
    /// There while the gateway is.
    pub(crate) order: Option<PreparedOrder>,
    /// When the gateway is to be called again.
    call_at: Option<Instant>,
    link: link::Link,
    ticks: u64,
    fired: u64,
}

impl Trader {
    pub(crate) fn new(gateway: SocketAddrV4) -> Self {
        Self { gateway, order: None, call_at: None, link: link::Link::default(), ticks: 0, fired: 0 }
    }

    /// An order does not wait for others: nodelay is on by default.
    pub(crate) fn call(&self, cx: &mut Cx<'_>) -> Result<ConnectionId, ConnectError> {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        cx.tcp().connect(any, self.gateway, &ConnectionOptions::default(), CONSUMER)
    }

    fn call_again(&mut self, cx: &mut Cx<'_>) {
        self.call_at = None;
        if let Err(error) = self.call(cx) {
            self.gone(&error, cx);
        }
    }

    /// No order can be sent until the gateway is back.
    fn gone(&mut self, why: &dyn Display, cx: &Cx<'_>) {
        println!("no gateway: {why}; calling again in {CALL_AGAIN}");
        (self.order, self.call_at) = (None, Some(cx.now + CALL_AGAIN));
    }
}

impl App for Trader {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        self.call(cx)?;
        Ok(())
    }

    /// Between ticks the path of an order is kept warm; no frame leaves by that.
    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.link.look(cx.host);
        if let Some(order) = &mut self.order {
            // If the order cannot leave now, firing it will show that.
            let _ = cx.tcp().warm(order);
        } else if self.call_at.is_some_and(|at| at <= cx.now) {
            self.call_again(cx);
        }
    }

    fn on_datagram(&mut self, tick: &Datagram<'_>, cx: &mut Cx<'_>) {
        let (Some(price), Some(order)) = (tick.payload.first_chunk(), &mut self.order) else { return };
        self.ticks += 1;
        let price = u64::from_be_bytes(*price);
        if price >= 100 {
            return;
        }
        let mut digits = [b'0'; 10];
        (digits[8], digits[9]) = (b'0' + (price / 10) as u8, b'0' + (price % 10) as u8);
        order.patch(PRICE_AT, &digits).expect("the price has its place in the order");
        match cx.tcp().fire(order) {
            Ok(TcpSent::Posted) => self.fired += 1,
            Ok(TcpSent::Queued) => println!("the order at {price} waits for the exchange to read"),
            Ok(TcpSent::Unreachable(missing)) => println!("the order at {price} has not left: {missing}"),
            Ok(other) => println!("the order at {price} has not left: {other:?}"),
            Err(error) => println!("the order at {price} was not sent: {error}"),
        }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match event {
            // The way is known now, and the form of a segment: the order is prepared once.
            TcpEvent::Connected { .. } => match cx.tcp().prepare(connection, ORDER) {
                Ok(order) => self.order = Some(order),
                Err(error) => {
                    eprintln!("no order can be sent to this gateway: {error}");
                    // `Closed` follows, and the gateway is called again.
                    let _ = cx.tcp().abort(connection);
                }
            },
            TcpEvent::NoRoute => {
                let missing = cx.tcp().unreachable(connection).map_or(String::new(), |missing| missing.to_string());
                println!("the call to the gateway waits: {missing}");
            }
            TcpEvent::PeerClosed => {
                // The gateway ends the session, and reads no order any more. `Closed` follows.
                self.order = None;
                let _ = cx.tcp().close(connection);
            }
            TcpEvent::Closed(reason) => self.gone(&reason, cx),
            _ => (),
        }
    }

    fn on_tcp_data(&mut self, _: &TcpData<'_>, _: &mut Cx<'_>) {}
}

/// Reads orders.
#[derive(Default)]
pub(crate) struct Exchange {
    book: Vec<u8>,
}

impl App for Exchange {
    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        self.book.extend_from_slice(data.payload);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    cli::exit_code(run(&arguments))
}

pub(crate) fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    match arguments {
        [] => over_memory(),
        [interface, address, gateway] => {
            let gateway = cli::parse(gateway, "an address and a port, like 10.0.0.1:9100")?;
            on_a_port(interface, address, gateway)
        }
        _ => Err("usage: order [INTERFACE ADDRESS/LEN GATEWAY:PORT]".into()),
    }
}

/// An interface that is ours: the ticks are subscribed to, and the trader connects to its gateway.
fn on_a_port(interface: &str, address: &str, gateway: SocketAddrV4) -> Result<(), Box<dyn Error>> {
    let prefix: Ipv4Prefix = cli::parse(address, "an address with its network's length, like 10.0.0.2/24")?;
    let ticks = multicast(TICKS.group, TICKS.port).consumer(CONSUMER.0);
    let port = Port::open(interface)?.named("order").address(prefix.address(), prefix.len()).tcp().subscribe(ticks);
    Ok(port.run_app(Trader::new(gateway))?)
}

fn over_memory() -> Result<(), Box<dyn Error>> {
    let (near, far) = pair("wire", MemoryConfig::default());
    let block = Block::heap();
    let mut trader = worker(near, "192.0.2.1/24".parse()?, Trader::new(GATEWAY), &block.scope("trader"))?;
    let mut exchange = worker(far, "192.0.2.2/24".parse()?, Exchange::default(), &block.scope("exchange"))?;
    let mut clock = MonotonicClock::start();

    exchange.with_app(clock.now(), |_, cx| cx.tcp().listen(GATEWAY, &ListenOptions::default()))?;
    trader.with_app(clock.now(), |_, cx| cx.udp().join(CONSUMER, TICKS))?;
    trader.with_app(clock.now(), |trader, cx| trader.call(cx))?;
    while trader.app().order.is_none() {
        exchange.poll_once(clock.now());
        trader.poll_once(clock.now());
    }

    for number in 0..1_000u64 {
        let tick = (60 + number * 37 % 80).to_be_bytes();
        exchange.with_app(clock.now(), |_, cx| {
            let to = SocketAddrV4::new(TICKS.group, TICKS.port);
            cx.udp().send_to(SocketAddrV4::new(EXCHANGE, 5_000), to, &UdpOptions::default(), &tick)
        })?;
        // The tick comes in and the order goes out.
        trader.poll_once(clock.now());
        exchange.poll_once(clock.now());
    }
    for _ in 0..10 {
        trader.poll_once(clock.now());
        exchange.poll_once(clock.now());
    }

    let (app, book) = (trader.app(), &exchange.app().book);
    let orders = book.chunks(ORDER.len()).count() as u64;
    println!("{} ticks, {} orders fired, {orders} in the book; the last: {}", app.ticks, app.fired, last(book));
    assert_eq!(orders, app.fired, "each order arrived, once");
    Ok(())
}

fn last(book: &[u8]) -> String {
    book.rchunks(ORDER.len()).next().map_or(String::new(), |order| String::from_utf8_lossy(order).trim_end().to_owned())
}

/// A worker at `own` that takes datagrams and segments.
pub(crate) fn worker<A: App>(
    mut port: MemoryDevice,
    own: Ipv4Prefix,
    app: A,
    scope: &Scope,
) -> Result<End<A>, Box<dyn Error>> {
    Ok(Worker::builder(&mut port)?.address(own).tcp(TcpConfig::default()).build(app, scope)?)
}
