//! The front door on an interface that is the kernel's too: the example of an order for a tick, against a kernel that sends
//! the ticks and reads the orders.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::thread;
use std::time::Duration;

use wirepath::prelude::*;
use wirepath::worker::StopFlag;
use wirepath_tests::live::{NEAR, OURS, THEIRS, Wire};

#[path = "../../framework/examples/tick_to_order.rs"]
#[allow(dead_code)] // its `main`
mod tick_to_order;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);

#[test]
fn tick_fires_an_order_through_the_front_door() {
    let Some(wire) = Wire::new("tick_fires_an_order_through_the_front_door") else { return };
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 0)).unwrap());
    let gateway = SocketAddrV4::new(THEIRS, listener.local_addr().unwrap().port());
    let ticker = wire.socket((THEIRS, 0));
    let stop = StopFlag::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _stops = StopAtEnd(&stop);
            let (mut session, _) = listener.accept().unwrap();
            session.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut order = [0; tick_to_order::ORDER.len()];
            // The first ticks may come before the order stands.
            let first = (0..1_000).find_map(|_| {
                ticker.send_to(b"00000099", (GROUP, 9_000)).unwrap();
                session.read(&mut order).ok()
            });
            assert_eq!(first, Some(order.len()), "no order came");
            assert_eq!(&order, b"BUY 100 WIRE @ 00000099 IOC ACCOUNT 7\n");
        });
        let ran = wire.near.run(|| {
            let answers = tcp_from(THEIRS, gateway.port()).local_port(tick_to_order::LOCAL.port());
            let port = Port::open(NEAR).unwrap().tcp().subscribe(multicast(GROUP, 9_000)).subscribe(answers);
            let port = port.named("live-port").unpinned().stop_by(&stop).log(|_| ());
            port.run(move |_| tick_to_order::Trader::new(gateway))
        });
        ran.unwrap();
    });
}

/// Stops the port however the thread ends, so that a failure is seen.
struct StopAtEnd<'a>(&'a StopFlag);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
