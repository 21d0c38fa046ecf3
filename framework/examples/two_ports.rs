//! Ticks on one port, orders on another: each port has a separate worker, and a lossless ring
//! passes prices from one to the other, which takes some 100 ns on two cores of a socket. As root:
//! `cargo run --release -p wirepath --example two_ports -- eth1 eth2 10.0.0.1:9100`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;

use wirepath::prelude::*;

use wirepath::worker::spsc::lossless::{Consumer, Producer, ring};

pub(crate) const ORDER: &[u8; 38] = b"BUY 100 WIRE @ 00000000 IOC ACCOUNT 7\n";
const PRICE_AT: usize = 15;
const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 40_000);

type Price = [u8; 8];

/// On the first port: reads prices and hands on those that are worth an order.
struct Feed {
    prices: Producer<Price>,
    lost: u64, // what the trader had no room for: it is late already
}

impl App for Feed {
    fn on_datagram(&mut self, tick: &Datagram<'_>, _cx: &mut Cx<'_>) {
        let Some(price) = tick.payload.first_chunk() else { return };
        if price < b"00000100" && self.prices.push(*price).is_err() {
            self.lost += 1;
        }
    }

    fn on_stop(&mut self, _cx: &mut Cx<'_>) {
        println!("{} prices lost", self.lost);
    }
}

/// On the second port: fires an order for each price.
struct Trader {
    gateway: SocketAddrV4,
    prices: Consumer<Price>,
    order: Option<PreparedOrder>, // there while the gateway is
}

impl App for Trader {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        cx.tcp().connect(LOCAL, self.gateway, &ConnectionOptions::default(), ConsumerId(0))?;
        Ok(())
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        let Some(order) = &mut self.order else { return }; // prices wait until the gateway is there
        while let Some(price) = self.prices.pop() {
            let fired = order.patch(PRICE_AT, &price).map(|()| cx.tcp().fire(order));
            fired.map_or_else(|error| println!("{error}"), |sent| _ = sent.inspect_err(|error| println!("{error}")));
        }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { .. } => self.order = cx.tcp().prepare(connection, ORDER).ok(),
            TcpEvent::Closed(_) => self.order = None,
            _ => (),
        }
    }
}

/// Runs both until one of them ends.
pub(crate) fn run(feed: Port, orders: Port, gateway: SocketAddrV4) -> wirepath::Result<()> {
    let (producer, consumer) = ring(1_024).expect("a power of two");
    let answers = tcp_from(*gateway.ip(), gateway.port()).local_port(LOCAL.port());
    let feed = feed.subscribe(multicast([239, 1, 1, 1], 9000));
    let orders = orders.tcp().subscribe(answers);
    let feeding = thread::spawn(move || feed.run_app(Feed { prices: producer, lost: 0 }));
    orders.run_app(Trader { gateway, prices: consumer, order: None })?;
    feeding.join().expect("the feed does not panic")
}

fn main() -> wirepath::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let stop = StopFlag::on_signals()?; // one for both, so that neither outlives the other
    let [feed, orders] = [arguments.next(), arguments.next()].map(|name| name.expect("two ports, like eth1 eth2"));
    let gateway = arguments.next().unwrap_or_default().parse().expect("a gateway, like 10.0.0.1:9100");
    let open = |name: &str, role: &str| Ok::<_, wirepath::Error>(Port::open(name)?.named(role).stop_by(&stop));
    run(open(&feed, "feed")?, open(&orders, "orders")?, gateway)
}
