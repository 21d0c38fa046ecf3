//! A tick over UDP fires an order over TCP before `on_datagram` returns. The order is prepared with
//! headers, checksums and payload; only its price is written. As root: `cargo run --release -p
//! wirepath --example tick_to_order -- eth1 10.0.0.1:9100`. A tick is eight digits, the price; at a
//! price of 100 or more it does not buy.
//!
//! TCP takes three words: `tcp()` gives the workers TCP, the subscription has the gateway's answers
//! steered to them, and `connect` calls from the port that the subscription names, so that the
//! kernel's own connections to the gateway stay with the kernel.

use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::prelude::*;

const ORDER: &[u8; 38] = b"BUY 100 WIRE @ 00000000 IOC ACCOUNT 7\n";
const PRICE_AT: usize = 15;
const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 40_000);

struct Trader {
    gateway: SocketAddrV4,
    order: Option<PreparedOrder>, // while the session is open
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
                Ok(TcpSent::Posted) => (), // it has left
                other => println!("not sent at once: {other:?}"),
            }
        }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { .. } => self.order = cx.tcp().prepare(connection, ORDER).ok(),
            TcpEvent::PeerClosed => _ = cx.tcp().close(connection),
            TcpEvent::Closed(reason) => {
                println!("the session has ended: {reason}");
                self.order = None;
                cx.after(Duration::from_secs(5), 0).expect("one timer at a time");
            }
            _ => (),
        }
    }

    fn on_timer(&mut self, _token: u64, cx: &mut Cx<'_>) {
        self.on_start(cx).unwrap_or_else(|error| println!("no session: {error}"));
    }
}

fn main() -> wirepath::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().unwrap_or("eth1".into());
    let gateway: SocketAddrV4 = arguments.next().unwrap_or_default().parse().expect("a gateway, like 10.0.0.1:9100");
    let answers = tcp_from(*gateway.ip(), gateway.port()).local_port(LOCAL.port());
    let port = Port::open(&port)?.tcp().subscribe(multicast([239, 1, 1, 1], 9000)).subscribe(answers);
    port.run(move |_worker| Trader { gateway, order: None })
}
