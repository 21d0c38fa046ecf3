//! The front door on an interface that is the kernel's too: the examples of the README, whole,
//! against a kernel that sends the ticks and reads the orders; and subscriptions that change.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fs, thread};

use wirepath::counters::{Reading, Snapshot};
use wirepath::prelude::*;
use wirepath::worker::live::sleep_on;
use wirepath_tests::live::{NEAR, OURS, Program, THEIRS, TIMEOUT, Wire, wait_until};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);

/// A wire whose near end has an address of its kernel's. Where there is none, prints why `test` is
/// skipped.
fn wire(test: &str) -> Option<Wire> {
    let wire = Wire::new(test)?;
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    Some(wire)
}

/// Starts an example at the near end, with its counters in `shm`. It ends by itself if its test
/// does not end it.
fn start(wire: &Wire, example: &str, shm: &Path, arguments: &[&str]) -> Program {
    let shm = format!("WIREPATH_SHM={}", shm.display());
    let line = ["--kill-after=5", "120", "env", &shm, example, NEAR];
    Program::start(&wire.near, "timeout", &[&line, arguments].concat())
}

/// The datagrams that an app has got by now; 0 as long as no program has its counters in `shm`.
fn datagrams(shm: &Path) -> u64 {
    let Some(program) = Snapshot::list(shm).ok().and_then(|mut list| list.running.pop()) else { return 0 };
    let counts = program.samples.iter().filter(|sample| sample.name.ends_with("udp/datagrams"));
    counts.map(|sample| if let Reading::Counter(count) = sample.reading { count } else { 0 }).sum()
}

#[test]
fn embedded_port_is_woken_by_its_descriptor_for_news_of_the_kernel_and_by_no_timer_until_then() {
    let test = "embedded_port_is_woken_by_its_descriptor_for_news_of_the_kernel_and_by_no_timer_until_then";
    let Some(wire) = wire(test) else { return };
    wire.near.run(|| {
        let mut port = Port::open(NEAR).unwrap().embed(()).unwrap();
        let fd = port.wait_fd().unwrap();
        let mut until_idle = || {
            while port.poll() > 0 || port.time_to_next().is_some_and(|next| next.as_nanos() == 0) {}
            port.time_to_next()
        };
        // News of the start may still come.
        while is_readable_within(fd, Duration::from_millis(100)) {
            until_idle();
        }
        // The kernel's tables were looked at each 20 ms.
        let next = until_idle();
        assert!(next.is_none_or(|next| next >= wirepath::time::Duration::from_millis(100)), "{next:?}");
        wire.near.ip(&["addr", "add", "198.51.100.1/24", "dev", NEAR]).unwrap();
        assert!(is_readable_within(fd, TIMEOUT), "nothing woke it");
    });
}

/// Whether a descriptor is readable before this time is over.
fn is_readable_within(fd: RawFd, time: Duration) -> bool {
    let begin = Instant::now();
    sleep_on([Some(fd)], Some(time));
    begin.elapsed() < time
}

#[test]
fn receiver_example_receives_its_group_and_prints_the_count() {
    let Some(wire) = wire("receiver_example_receives_its_group_and_prints_the_count") else { return };
    let (shm, ticker) = (tempfile::tempdir().unwrap(), wire.socket((THEIRS, 0)));
    let receiver = start(&wire, env!("CARGO_BIN_EXE_example_receiver"), shm.path(), &[]);
    let mut sent = 0;
    let mut send = || {
        ticker.send_to(b"tick", (GROUP, 9_000)).unwrap();
        sent += 1;
    };
    // Those before the receiver stood go to the kernel.
    wait_until("the receiver receives", || {
        send();
        datagrams(shm.path()) > 0
    });
    (0..100).for_each(|_| send());
    wait_until("the receiver has all", || datagrams(shm.path()) > 100);
    let said = receiver.interrupt();
    let count = said.lines().find_map(|line| line.strip_suffix(" datagrams")?.parse::<u64>().ok());
    assert!(count.is_some_and(|count| (101..=sent).contains(&count)), "of {sent} datagrams: {said}");
}

#[test]
fn tick_fires_an_order_through_the_front_door() {
    let Some(wire) = wire("tick_fires_an_order_through_the_front_door") else { return };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 0)).unwrap());
    let gateway = listener.local_addr().unwrap().to_string();
    let (shm, ticker) = (tempfile::tempdir().unwrap(), wire.socket((THEIRS, 0)));
    let trader = start(&wire, env!("CARGO_BIN_EXE_example_tick_to_order"), shm.path(), &[&gateway]);
    listener.set_nonblocking(true).unwrap();
    let mut session = None;
    wait_until("the trader connects", || {
        session = listener.accept().ok();
        session.is_some()
    });
    let (mut session, _) = session.unwrap();
    session.set_nonblocking(false).unwrap();
    session.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (mut order, mut len) = ([0; 38], None);
    // The first ticks may come before the order stands.
    wait_until("an order comes", || {
        ticker.send_to(b"00000099", (GROUP, 9_000)).unwrap();
        len = session.read(&mut order).ok();
        len.is_some()
    });
    let said = trader.interrupt();
    assert_eq!(len, Some(order.len()), "{said}");
    assert_eq!(&order, b"BUY 100 WIRE @ 00000099 IOC ACCOUNT 7\n");
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
    let Some(wire) = wire(test) else { return };
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
