//! The example of ticks on one port and orders on another, over two wires of plain memory.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::SocketAddrV4;
use std::thread;

use wirepath::prelude::*;

#[path = "../examples/two_ports.rs"]
#[allow(dead_code)] // its `main`
mod two_ports;

/// The exchange: ticks in each turn.
struct Ticker;

impl App for Ticker {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        let (from, to) =
            (SocketAddrV4::new([192, 0, 2, 2].into(), 5_000), SocketAddrV4::new([239, 1, 1, 1].into(), 9_000));
        // A full ring has room again a turn later.
        let _ = cx.udp().send_to(from, to, &UdpOptions::default(), b"00000099");
    }
}

/// The gateway: reads orders until it has had enough.
struct Gateway {
    read: Vec<u8>,
    stop: StopFlag,
}

impl App for Gateway {
    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        self.read.extend_from_slice(data.payload);
        if self.read.len() >= 10 * two_ports::ORDER.len() {
            self.stop.stop();
        }
    }

    fn on_stop(&mut self, _: &mut Cx<'_>) {
        let mut orders = self.read.chunks_exact(two_ports::ORDER.len());
        assert!(orders.all(|order| order == b"BUY 100 WIRE @ 00000099 IOC ACCOUNT 7\n"));
    }
}

#[test]
fn tick_on_one_port_is_an_order_on_the_other() {
    let stop = StopFlag::new();
    let end = |wire: &str, address: [u8; 4]| {
        let port = Port::open(&format!("memory:two-ports-{wire}")).unwrap().named(&format!("two-ports-{wire}"));
        port.address(address, 24).stop_by(&stop).log(|_| ())
    };
    let (feed, orders) = (end("feed", [192, 0, 2, 1]), end("orders", [198, 51, 100, 1]));
    let (exchange, gateway) = (end("feed", [192, 0, 2, 2]), end("orders", [198, 51, 100, 2]));
    let gateway = gateway.tcp().subscribe(listen([198, 51, 100, 2], 9_100));
    let reading = Gateway { read: Vec::new(), stop: stop.clone() };
    let others = [thread::spawn(|| exchange.run_app(Ticker)), thread::spawn(|| gateway.run_app(reading))];
    two_ports::run(feed, orders, "198.51.100.2:9100".parse().unwrap()).unwrap();
    for other in others {
        other.join().unwrap().unwrap();
    }
}

#[test]
fn app_that_is_there_already_is_for_one_core() {
    let port = Port::open("memory:two-ports-cores").unwrap().cores([0, 1]);
    let refused = port.run_app(()).unwrap_err().to_string();
    assert!(refused.starts_with("run_app has one app, so it takes one core"), "{refused}");
}
