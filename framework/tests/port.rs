//! The front door as an author uses it, over captures and wires of plain memory.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use wirepath::Error;
use wirepath::counters::Block;
use wirepath::device::pcap::{PcapConfig, PcapDevice};
use wirepath::prelude::*;
use wirepath::worker::{StopFlag, Worker};

const GROUP: [u8; 4] = [239, 1, 1, 1];

/// Counts what comes, and stops at `enough`.
struct Counting {
    count: Arc<AtomicU64>,
    enough: u64,
    stop: StopFlag,
}

impl App for Counting {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        assert_eq!(datagram.consumer, ConsumerId(7));
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 >= self.enough {
            self.stop.stop();
        }
    }
}

/// A capture of so many datagrams to the group, and as many to another port.
fn capture(name: &str, count: u64) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let config = PcapConfig { record: Some(path.clone()), ..PcapConfig::default() };
    let mut device = PcapDevice::open(&config).unwrap();
    let block = Block::heap();
    let worker = Worker::builder(&mut device).unwrap().address("192.0.2.9/24".parse().unwrap());
    let mut worker = worker.build((), &block.scope("writer")).unwrap();
    for port in [9_000, 9_001] {
        for _ in 0..count {
            let (from, to) = (SocketAddrV4::new([192, 0, 2, 9].into(), 5_000), SocketAddrV4::new(GROUP.into(), port));
            worker.with_app(Instant::ZERO, |_, cx| send_to(from, to, &UdpOptions::default(), b"tick", cx)).unwrap();
            worker.poll_once(Instant::ZERO);
        }
    }
    path
}

#[test]
fn capture_is_replayed_to_its_end_and_what_is_subscribed_comes() {
    let path = capture("port.pcap", 50);
    let (count, stop) = (Arc::new(AtomicU64::new(0)), StopFlag::new());
    let (counted, stopping) = (Arc::clone(&count), stop.clone());
    Port::open(&format!("pcap:{}", path.display()))
        .unwrap()
        .named("port-test")
        .stop_by(&stop)
        .subscribe(multicast(GROUP, 9_000).consumer(7))
        .run(move |_| Counting { count: Arc::clone(&counted), enough: u64::MAX, stop: stopping.clone() })
        .unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 50);
}

/// Sends to the group until somebody has had enough.
struct Sender;

impl App for Sender {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        let (from, to) = (SocketAddrV4::new([192, 0, 2, 2].into(), 5_000), SocketAddrV4::new(GROUP.into(), 9_000));
        // A full ring is room again a turn later.
        let _ = send_to(from, to, &UdpOptions::default(), b"tick", cx);
    }
}

#[test]
fn two_ports_of_one_wire_hear_each_other() {
    let (count, stop) = (Arc::new(AtomicU64::new(0)), StopFlag::new());
    let (counted, stopping) = (Arc::clone(&count), stop.clone());
    let receiver = Port::open("memory:port-test-wire").unwrap().named("port-test-a").stop_by(&stop);
    let sender = Port::open("memory:port-test-wire").unwrap().named("port-test-b").stop_by(&stop);
    let sending = thread::spawn({
        let sender = sender.address("192.0.2.2/24".parse().unwrap()).log(|_| ());
        || sender.run(|_| Sender)
    });
    receiver
        .address("192.0.2.1/24".parse().unwrap())
        .subscribe(multicast(GROUP, 9_000).source([192, 0, 2, 2]).consumer(7))
        .run(move |_| Counting { count: Arc::clone(&counted), enough: 10, stop: stopping.clone() })
        .unwrap();
    sending.join().unwrap().unwrap();
    assert!(count.load(Ordering::Relaxed) >= 10);
}

/// Does not start.
struct Refusing;

impl App for Refusing {
    fn on_start(&mut self, _: &mut Cx<'_>) -> Result<(), AppError> {
        Err("no symbols are configured".into())
    }
}

#[test]
fn app_that_does_not_start_ends_the_port_with_its_sentence() {
    let port = Port::open("memory:port-test-refusing").unwrap().named("port-test-c").stop_by(&StopFlag::new());
    let ended = port.run(|_| Refusing).unwrap_err();
    assert!(matches!(ended, Error::App(_)), "{ended}");
    assert_eq!(ended.to_string(), "no symbols are configured");
}

#[test]
fn connections_without_tcp_are_refused_by_their_subscription() {
    let port = Port::open("memory:port-test-tcp").unwrap().named("port-test-d").stop_by(&StopFlag::new());
    let port = port.address("192.0.2.1/24".parse().unwrap()).subscribe(listen([192, 0, 2, 1], 80));
    let refused = port.run(|_| ()).unwrap_err().to_string();
    assert!(refused.starts_with("cannot subscribe to TCP to 192.0.2.1:80: "), "{refused}");
}

#[test]
fn errors_travel_between_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Error>();
}

/// Stops the port from a timer, and has cancelled another.
#[derive(Default)]
struct Timed {
    cancelled: bool,
    stop: Option<StopFlag>,
    heard: Arc<AtomicU64>,
}

impl App for Timed {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        let early = cx.after(Duration::from_millis(1), 1)?;
        cx.after(Duration::from_millis(3), 2)?;
        self.cancelled = cx.cancel(early);
        Ok(())
    }

    fn on_timer(&mut self, token: u64, _: &mut Cx<'_>) {
        self.heard.fetch_add(token, Ordering::Relaxed);
        self.stop.iter().for_each(StopFlag::stop);
    }
}

#[test]
fn timer_comes_to_the_app_and_a_cancelled_one_does_not() {
    let (heard, stop) = (Arc::new(AtomicU64::new(0)), StopFlag::new());
    let (hearing, stopping) = (Arc::clone(&heard), stop.clone());
    let port = Port::open("memory:port-test-timers").unwrap().named("port-test-e").stop_by(&stop);
    port.run(move |_| Timed { stop: Some(stopping.clone()), heard: Arc::clone(&hearing), ..Timed::default() }).unwrap();
    assert_eq!(heard.load(Ordering::Relaxed), 2);
}
