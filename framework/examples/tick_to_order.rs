//! A tick over UDP fires an order over TCP before `on_datagram` returns. The order is prepared with
//! headers, checksums and payload; only its price is written. As root: `cargo run --release -p
//! wirepath --example tick_to_order -- eth1 10.0.0.1:9100`. A tick is eight digits, the price; at a
//! price of 100 or more it does not buy.
//!
//! TCP takes three words: `tcp()` gives the workers TCP, the subscription has the gateway's answers
//! steered to them, and `connect` calls from the port that the subscription names.

use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::prelude::*;

pub(crate) const ORDER: &[u8; 38] = b"BUY 100 WIRE @ 00000000 IOC ACCOUNT 7\n";
const PRICE_AT: usize = 15;
/// The address that we connect from, so that the kernel's own connections to the gateway stay with
/// the kernel.
pub(crate) const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 40_000);

pub(crate) struct Trader {
    gateway: SocketAddrV4,
    order: Option<Template>, // there while the gateway is
    fired: u64,
}

impl Trader {
    pub(crate) fn new(gateway: SocketAddrV4) -> Self {
        Self { gateway, order: None, fired: 0 }
    }
}

impl App for Trader {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        cx.tcp().connect(LOCAL, self.gateway, &ConnectionOptions::default(), ConsumerId(0))?;
        Ok(())
    }

    fn on_datagram(&mut self, tick: &Datagram<'_>, cx: &mut Cx<'_>) {
        let (Some(price), Some(order)) = (tick.payload.first_chunk::<8>(), &mut self.order) else { return };
        if price < b"00000100" && order.patch(PRICE_AT, price).is_ok() {
            match cx.tcp().fire(order) {
                Ok(TcpSent::Posted) => self.fired += 1,
                Ok(waits) => println!("an order waits: {waits:?}"),
                Err(error) => println!("no order was sent: {error}"),
            }
        }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { .. } => self.order = cx.tcp().template(connection, ORDER).ok(),
            TcpEvent::PeerClosed => _ = cx.tcp().close(connection),
            TcpEvent::Closed(reason) => {
                println!("{} orders fired, the gateway is gone: {reason}", self.fired);
                self.order = None;
                cx.after(Duration::from_secs(5), 0).expect("one timer at a time"); // and is called again
            }
            _ => (),
        }
    }

    fn on_timer(&mut self, _token: u64, cx: &mut Cx<'_>) {
        self.on_start(cx).unwrap_or_else(|error| println!("{error}"));
    }
}

fn main() -> wirepath::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().unwrap_or("eth1".into());
    let gateway: SocketAddrV4 = arguments.next().unwrap_or_default().parse().expect("a gateway, like 10.0.0.1:9100");
    let answers = tcp_from(*gateway.ip(), gateway.port()).local_port(LOCAL.port());
    let port = Port::open(&port)?.tcp().subscribe(multicast([239, 1, 1, 1], 9000)).subscribe(answers);
    port.run(move |_worker| Trader::new(gateway))
}
