//! The front door on an interface that is the kernel's too: the example of an order for a tick,
//! against a kernel that sends the ticks and reads the orders.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fs, thread};

use wirepath::prelude::*;
use wirepath_tests::live::{NEAR, OURS, THEIRS, Wire};

#[path = "../../../framework/examples/tick_to_order.rs"]
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

/// Counts received datagrams.
struct Counting {
    count: Arc<AtomicU64>,
}

impl App for Counting {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn group_that_is_subscribed_to_later_comes_to_us_and_then_to_the_kernel_again() {
    let test = "group_that_is_subscribed_to_later_comes_to_us_and_then_to_the_kernel_again";
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    let ticker = wire.socket((THEIRS, 0));
    let (stop, count) = (StopFlag::new(), Arc::new(AtomicU64::new(0)));
    let port = Port::open(NEAR).unwrap().named("live-port-later").unpinned().stop_by(&stop).log(|_| ());
    let (handle, counted) = (port.handle(), Arc::clone(&count));
    let (starting, started) = mpsc::sync_channel(1);
    let app = move |_: &_| {
        starting.send(()).unwrap();
        Counting { count: Arc::clone(&counted) }
    };
    thread::scope(|scope| {
        let running = scope.spawn(|| wire.near.run(|| port.run(app)));
        let _stops = StopAtEnd(&stop);
        started.recv().unwrap();
        wire.near.run(|| {
            let is_member = || fs::read_to_string("/proc/thread-self/net/igmp").unwrap().contains("010101EF");
            let kernel = UdpSocket::bind((GROUP, 9_000)).unwrap();
            kernel.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            assert!(!is_member());
            for _ in 0..2 {
                handle.subscribe(multicast(GROUP, 9_000).source(THEIRS)).unwrap();
                assert!(is_member());
                let before = count.load(Ordering::Relaxed);
                until(|| {
                    ticker.send_to(b"tick", (GROUP, 9_000)).unwrap();
                    thread::sleep(Duration::from_millis(1));
                    count.load(Ordering::Relaxed) > before
                });
                handle.unsubscribe(&multicast(GROUP, 9_000).source(THEIRS)).unwrap();
                assert!(!is_member());
                let came = count.load(Ordering::Relaxed);
                kernel.join_multicast_v4(&GROUP, &OURS).unwrap();
                until(|| {
                    ticker.send_to(b"the kernel's", (GROUP, 9_000)).unwrap();
                    kernel.recv(&mut [0; 64]).is_ok()
                });
                kernel.leave_multicast_v4(&GROUP, &OURS).unwrap();
                assert_eq!(count.load(Ordering::Relaxed), came);
            }
            // A flow that the port cannot steer is refused, and the sockets keep nothing of it.
            let refused = handle.subscribe(listen(OURS, 80)).unwrap_err().to_string();
            assert!(refused.contains("TCP to 10.9.0.1:80"), "{refused}");
            // One without an address is to those that the interface had at start.
            handle.subscribe(udp(Ipv4Addr::UNSPECIFIED, 80)).unwrap();
            handle.unsubscribe(&udp(Ipv4Addr::UNSPECIFIED, 80)).unwrap();
            handle.subscribe(udp(OURS, 80)).unwrap();
        });
        stop.stop();
        running.join().unwrap().unwrap();
    });
}

/// Waits for an event that one of many ticks causes.
fn until(mut there: impl FnMut() -> bool) {
    assert!((0..5_000).any(|_| there()), "it never came");
}

/// Stops the port however the thread ends, so that a failure is seen.
struct StopAtEnd<'a>(&'a StopFlag);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
