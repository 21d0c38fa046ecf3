//! The front door as an author uses it, over captures and wires of plain memory.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use wirepath::Error;
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, pair};
use wirepath::device::pcap::{PcapConfig, PcapDevice};
use wirepath::mem::Mbuf;
use wirepath::pipeline::tcp::ListenError;
use wirepath::pipeline::{ChecksumPolicy, HostStack, Node, NodeTree, host_stack};
use wirepath::port::{PortSource, SubscriptionError};
use wirepath::prelude::*;
use wirepath::time::{Clock, MonotonicClock};
use wirepath::worker::live::LiveConfig;
use wirepath::worker::{Ended, Worker};

const GROUP: [u8; 4] = [239, 1, 1, 1];

/// Counts received datagrams, and stops at `enough`.
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

/// A capture of `count` datagrams to the group, and as many to another port.
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
            worker
                .with_app(Instant::ZERO, |_, cx| cx.udp().send_to(from, to, &UdpOptions::default(), b"tick"))
                .unwrap();
            worker.poll_once(Instant::ZERO);
        }
    }
    path
}

#[test]
fn pool_on_small_pages_is_told_with_its_price_and_the_remedy() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let reserved = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Total:")?.trim().parse().ok());
    let reserved: usize = reserved.unwrap_or(0);
    if reserved > 64 {
        return println!(
            "SKIPPED pool_on_small_pages_is_told: a pool beyond {reserved} hugepages takes too much memory"
        );
    }
    // Of more than 1 KiB each: more pages than there are.
    let buffers = (reserved + 1) * 2048;
    let (stop, (lines, told)) = (StopFlag::new(), mpsc::channel());
    stop.stop();
    let port = Port::open("memory:small-pages").unwrap().named("port-test").stop_by(&stop).held(buffers);
    port.log(move |line| lines.send(line.to_owned()).unwrap()).run(|_worker| ()).unwrap();
    let told: Vec<_> = told.iter().filter(|line| line.starts_with("note: FALLBACK to 4 KiB pages")).collect();
    assert!(told.len() == 1 && told[0].contains("hugepage-setup"), "{told:?}");
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

/// Replaces the checksums of a capture of [`capture`] by those that a sender leaves to its NIC: the
/// sum of the pseudo header alone.
fn leave_to_nic(path: &Path) {
    let (mut bytes, mut at) = (std::fs::read(path).unwrap(), 24);
    while at < bytes.len() {
        let frame_len = u32::from_le_bytes(bytes[at + 8..][..4].try_into().unwrap()) as usize;
        let ipv4 = &mut bytes[at + 16..][..frame_len][14..];
        at += 16 + frame_len;
        if ipv4[0] != 0x45 {
            continue; // ARP
        }
        let udp_len = u16::from_be_bytes([ipv4[24], ipv4[25]]);
        let words = ipv4[12..20].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum = words.sum::<u32>() + 17 + u32::from(udp_len);
        let folded = ((sum & 0xffff) + (sum >> 16)) as u16;
        ipv4[26..28].copy_from_slice(&folded.to_be_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}

/// Replays a capture through a port, and returns how many datagrams came and the lines of its log.
fn replayed(path: &Path, name: &str, options: impl FnOnce(Port) -> Port) -> (u64, Vec<String>) {
    let (count, stop, said) = (Arc::new(AtomicU64::new(0)), StopFlag::new(), Arc::new(Mutex::new(Vec::new())));
    let (counted, stopping, log) = (Arc::clone(&count), stop.clone(), Arc::clone(&said));
    let port = Port::open(&format!("pcap:{}", path.display())).unwrap().named(name).stop_by(&stop);
    options(port.log(move |line| log.lock().unwrap().push(line.to_owned())))
        .subscribe(multicast(GROUP, 9_000).consumer(7))
        .run(move |_| Counting { count: Arc::clone(&counted), enough: u64::MAX, stop: stopping.clone() })
        .unwrap();
    (count.load(Ordering::Relaxed), std::mem::take(&mut said.lock().unwrap()))
}

#[test]
fn checksums_that_a_nic_was_to_finish_are_accepted_from_a_capture_and_the_port_says_so() {
    let path = capture("port-partial.pcap", 50);
    leave_to_nic(&path);
    let (count, said) = replayed(&path, "port-test-partial", |port| port);
    assert_eq!(count, 50);
    assert!(said.iter().any(|line| line.starts_with("accepted: 100 packets")), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("dropped: udp/drop/no_consumer 50")), "{said:?}");
}

#[test]
fn port_says_at_its_end_why_nothing_came() {
    let path = capture("port-verified.pcap", 50);
    leave_to_nic(&path);
    let (count, said) = replayed(&path, "port-test-verified", |port| port.checksum(ChecksumPolicy::Verify));
    assert_eq!(count, 0);
    assert!(said.iter().any(|line| line.starts_with("dropped: udp/drop/bad_checksum 100")), "{said:?}");
}

/// Sends to the group until a receiver has had enough.
struct Sender;

impl App for Sender {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        let (from, to) = (SocketAddrV4::new([192, 0, 2, 2].into(), 5_000), SocketAddrV4::new(GROUP.into(), 9_000));
        // A full ring is room again a turn later.
        let _ = cx.udp().send_to(from, to, &UdpOptions::default(), b"tick");
    }
}

#[test]
fn two_ports_of_one_wire_hear_each_other() {
    let (count, stop) = (Arc::new(AtomicU64::new(0)), StopFlag::new());
    let (counted, stopping) = (Arc::clone(&count), stop.clone());
    let receiver = Port::open("memory:port-test-wire").unwrap().named("port-test-a").stop_by(&stop);
    let sender = Port::open("memory:port-test-wire").unwrap().named("port-test-b").stop_by(&stop);
    let sending = thread::spawn({
        let sender = sender.address([192, 0, 2, 2], 24).log(|_| ());
        || sender.run(|_| Sender)
    });
    receiver
        .address([192, 0, 2, 1], 24)
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
fn network_of_more_than_32_bits_is_refused_before_anything_is_opened() {
    let port = || Port::open("memory:port-test-prefix").unwrap().stop_by(&StopFlag::new()).log(|_| ());
    let refused = port().address([192, 0, 2, 1], 33).run(|_| ()).unwrap_err();
    assert!(refused.to_string().starts_with("192.0.2.1/33: the prefix of a network has 32 bits"), "{refused}");
    assert!(port().address([192, 0, 2, 1], 33).embed(()).is_err());
    assert!(port().address([192, 0, 2, 1], 32).embed(()).is_ok());
}

#[test]
fn connections_without_tcp_are_refused_by_their_subscription() {
    let port = Port::open("memory:port-test-tcp").unwrap().named("port-test-d").stop_by(&StopFlag::new());
    let port = port.address([192, 0, 2, 1], 24).subscribe(listen([192, 0, 2, 1], 80));
    let refused = port.run(|_| ()).unwrap_err().to_string();
    assert!(refused.starts_with("cannot subscribe to TCP to 192.0.2.1:80: "), "{refused}");
}

#[test]
fn errors_travel_between_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Error>();
}

/// Stops the port from a timer, and has canceled another.
#[derive(Default)]
struct Timed {
    canceled: bool,
    stop: Option<StopFlag>,
    heard: Arc<AtomicU64>,
}

impl App for Timed {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        let early = cx.after(Duration::from_millis(1), 1)?;
        cx.after(Duration::from_millis(3), 2)?;
        self.canceled = cx.cancel(early);
        Ok(())
    }

    fn on_timer(&mut self, token: u64, _: &mut Cx<'_>) {
        self.heard.fetch_add(token, Ordering::Relaxed);
        self.stop.iter().for_each(StopFlag::stop);
    }
}

#[test]
fn timer_comes_to_the_app_and_a_canceled_one_does_not() {
    let (heard, stop) = (Arc::new(AtomicU64::new(0)), StopFlag::new());
    let (hearing, stopping) = (Arc::clone(&heard), stop.clone());
    let port = Port::open("memory:port-test-timers").unwrap().named("port-test-e").stop_by(&stop);
    port.run(move |_| Timed { stop: Some(stopping.clone()), heard: Arc::clone(&hearing), ..Timed::default() }).unwrap();
    assert_eq!(heard.load(Ordering::Relaxed), 2);
}

/// Waits for something that another thread brings about.
fn until(there: impl Fn() -> bool) {
    while !there() {
        thread::yield_now();
    }
}

/// Sends to a port of the group in each turn, and counts.
struct Stream {
    port: u16,
    sent: Arc<AtomicU64>,
}

impl App for Stream {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        let (from, to) = (SocketAddrV4::new([192, 0, 2, 2].into(), 5_000), SocketAddrV4::new(GROUP.into(), self.port));
        if cx.udp().send_to(from, to, &UdpOptions::default(), b"tick").is_ok() {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A port on a wire whose other end sends to port 9000 of the group; the numbers of sent and
/// received datagrams.
struct Streamed {
    handle: PortHandle,
    stop: StopFlag,
    sent: Arc<AtomicU64>,
    came: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<wirepath::Result<()>>>,
}

impl Streamed {
    fn new(wire: &str) -> Self {
        let (stop, [sent, came]) = (StopFlag::new(), [(); 2].map(|()| Arc::new(AtomicU64::new(0))));
        let end = |address: [u8; 4]| {
            let port = Port::open(&format!("memory:{wire}")).unwrap().named(wire).stop_by(&stop).log(|_| ());
            port.address(address, 24)
        };
        let (receiver, sender) = (end([192, 0, 2, 1]), end([192, 0, 2, 2]));
        let handle = receiver.handle();
        let (count, stopping, sending) = (Arc::clone(&came), stop.clone(), Arc::clone(&sent));
        let (starting, started) = mpsc::sync_channel(1);
        let counting = move |_: &_| {
            starting.send(()).unwrap();
            Counting { count: Arc::clone(&count), enough: u64::MAX, stop: stopping.clone() }
        };
        let threads = vec![
            thread::spawn(move || receiver.run(counting)),
            thread::spawn(move || sender.run(move |_| Stream { port: 9_000, sent: Arc::clone(&sending) })),
        ];
        started.recv().unwrap();
        Self { handle, stop, sent, came, threads }
    }

    /// The number of datagrams received while `count` more were sent.
    fn came_while_sending(&self, count: u64) -> u64 {
        let (sent, came) = (self.sent.load(Ordering::Relaxed), self.came.load(Ordering::Relaxed));
        until(|| self.sent.load(Ordering::Relaxed) >= sent + count);
        self.came.load(Ordering::Relaxed) - came
    }

    fn end(self) {
        self.stop.stop();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    }
}

#[test]
fn group_is_subscribed_to_and_taken_back_while_the_port_runs() {
    let port = Streamed::new("port-test-handle");
    let group = || multicast(GROUP, 9_000).consumer(7);
    assert_eq!(port.came_while_sending(5_000), 0);
    port.handle.subscribe(group()).unwrap();
    until(|| port.came.load(Ordering::Relaxed) > 0);
    port.handle.unsubscribe(&group()).unwrap();
    assert_eq!(port.came_while_sending(5_000), 0);
    port.handle.subscribe(group()).unwrap();
    let before = port.came.load(Ordering::Relaxed);
    until(|| port.came.load(Ordering::Relaxed) > before);
    port.end();
}

#[test]
fn group_of_two_subscriptions_stays_until_both_are_taken_back() {
    let port = Streamed::new("port-test-handle-two");
    let from = |source: [u8; 4]| multicast(GROUP, 9_000).source(source).consumer(7);
    for source in [[192, 0, 2, 2], [192, 0, 2, 3]] {
        port.handle.subscribe(from(source)).unwrap();
    }
    port.handle.unsubscribe(&from([192, 0, 2, 3])).unwrap();
    let before = port.came.load(Ordering::Relaxed);
    until(|| port.came.load(Ordering::Relaxed) > before);
    port.handle.unsubscribe(&from([192, 0, 2, 2])).unwrap();
    assert_eq!(port.came_while_sending(1_000), 0);
    port.end();
}

#[test]
fn refused_subscription_says_why_and_changes_nothing() {
    let port = Streamed::new("port-test-handle-refused");
    let refused = |result: wirepath::Result<()>, subscription: &str, reason| match result {
        Err(Error::Subscription { what, why }) => assert_eq!((&*what, why), (subscription, reason)),
        other => panic!("{subscription}: {other:?}"),
    };
    let group = || multicast(GROUP, 9_000).consumer(7);
    port.handle.subscribe(group()).unwrap();
    refused(port.handle.subscribe(group()), "UDP to 239.1.1.1:9000", SubscriptionError::Duplicate);
    let other = multicast([239, 1, 1, 2], 9_000);
    refused(port.handle.unsubscribe(&other), "UDP to 239.1.1.2:9000", SubscriptionError::NotSubscribed);
    let tcp = port.handle.subscribe(listen([192, 0, 2, 1], 80));
    refused(tcp, "TCP to 192.0.2.1:80", SubscriptionError::Listen(ListenError::NoTcp));
    refused(port.handle.subscribe(group().queue(3)), "UDP to 239.1.1.1:9000 queue 3", SubscriptionError::NoQueue(3));
    // Any source of it is wanted already: of a filter of some sources its sockets know nothing.
    port.handle.subscribe(multicast(GROUP, 9_000).source([192, 0, 2, 3]).consumer(7)).unwrap_err();
    let before = port.came.load(Ordering::Relaxed);
    until(|| port.came.load(Ordering::Relaxed) > before);
    let handle = port.handle.clone();
    port.end();
    assert!(matches!(handle.subscribe(group()), Err(Error::Ended)));
    assert!(matches!(handle.try_subscribe(group()).map(drop), Err(Error::Ended)));
}

#[test]
fn address_is_bound_and_given_back_while_the_port_runs() {
    let port = Streamed::new("port-test-handle-bind");
    for _ in 0..2 {
        port.handle.subscribe(udp([192, 0, 2, 1], 7)).unwrap();
        let refused = port.handle.subscribe(udp([192, 0, 2, 1], 7).consumer(1)).unwrap_err().to_string();
        assert!(refused.starts_with("cannot subscribe to UDP to 192.0.2.1:7: "), "{refused}");
        port.handle.unsubscribe(&udp([192, 0, 2, 1], 7)).unwrap();
    }
    port.end();
}

#[test]
fn what_is_asked_for_before_the_port_runs_stands_when_it_does() {
    let port = Port::open("memory:port-test-before").unwrap();
    let handle = port.handle();
    handle.subscribe(udp([192, 0, 2, 1], 7)).unwrap();
    assert!(handle.subscribe(udp([192, 0, 2, 1], 7)).is_err(), "it is there already");
    handle.unsubscribe(&udp([192, 0, 2, 1], 7)).unwrap();
    handle.subscribe(listen([192, 0, 2, 1], 80)).unwrap();
    let port = port.named("port-test-before").stop_by(&StopFlag::new()).log(|_| ());
    let refused = port.run(|_| ()).unwrap_err().to_string();
    assert!(refused.starts_with("cannot subscribe to TCP to 192.0.2.1:80: "), "{refused}");
    drop(handle);
}

/// Asks for the group as it starts, and again where it must not wait.
struct Asking {
    handle: PortHandle,
    pending: Option<Pending>,
    counting: Counting,
}

impl App for Asking {
    fn on_start(&mut self, _: &mut Cx<'_>) -> Result<(), AppError> {
        let waits = self.handle.subscribe(multicast(GROUP, 9_000)).unwrap_err().to_string();
        assert!(waits.contains("a worker cannot wait for itself"), "{waits}");
        self.pending = Some(self.handle.try_subscribe(multicast(GROUP, 9_000).consumer(7))?);
        Ok(())
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        if let Some(mut pending) = self.pending.take() {
            pending.answer().unwrap().unwrap();
        }
        self.counting.on_datagram(datagram, cx);
    }
}

/// The same for a capture: no frame is missed.
#[test]
fn what_an_app_asks_for_at_its_start_stands_before_the_first_frame() {
    let path = capture("port-asked.pcap", 50);
    let (count, stop) = (Arc::new(AtomicU64::new(0)), StopFlag::new());
    let (counted, stopping) = (Arc::clone(&count), stop.clone());
    let port = Port::open(&format!("pcap:{}", path.display())).unwrap().named("port-test-asked").stop_by(&stop);
    let handle = port.handle();
    let counting = move || Counting { count: Arc::clone(&counted), enough: u64::MAX, stop: stopping.clone() };
    port.run(move |_| Asking { handle: handle.clone(), pending: None, counting: counting() }).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 50);
}

/// Reports the number of buffers of its worker.
struct Buffers {
    count: Arc<AtomicU64>,
    stop: StopFlag,
}

impl App for Buffers {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        self.count.store(cx.pool.capacity() as u64, Ordering::Relaxed);
        self.stop.stop();
        Ok(())
    }
}

#[test]
fn what_an_app_holds_has_its_room_in_the_pool() {
    let [usual, more] = [0, 20_000].map(|held| {
        let (count, stop) = (Arc::new(AtomicU64::new(0)), StopFlag::new());
        let port = Port::open("memory:port-test-held").unwrap().named("port-test-held").stop_by(&stop).log(|_| ());
        port.held(held).run_app(Buffers { count: Arc::clone(&count), stop }).unwrap();
        count.load(Ordering::Relaxed)
    });
    assert!(usual < 20_000 && more > 20_000 + usual / 2, "{usual} {more}: pages are filled with buffers");
}

/// A port over one end of a wire on which `count` datagrams to the group wait, and the other end.
fn port_with_waiting(count: usize) -> (Port<MemoryDevice>, impl Sized) {
    let (near, mut far) = pair("wire", MemoryConfig { slots: 1_024, ..MemoryConfig::default() });
    let worker = Worker::builder(&mut far).unwrap().address("192.0.2.2/24".parse().unwrap());
    let mut worker = worker.build((), &Block::heap().scope("far")).unwrap();
    let (from, to) = (SocketAddrV4::new([192, 0, 2, 2].into(), 5_000), SocketAddrV4::new(GROUP.into(), 9_000));
    for _ in 0..count {
        worker.with_app(Instant::ZERO, |_, cx| cx.udp().send_to(from, to, &UdpOptions::default(), b"tick")).unwrap();
        worker.poll_once(Instant::ZERO);
    }
    let port = Port::over(near).address([192, 0, 2, 1], 24).log(|_| ());
    (port.named("port-test-over").subscribe(multicast(GROUP, 9_000)), worker)
}

/// Counts for its own thread alone, and stops as it starts.
struct Alone {
    count: u64,
    stopped: bool,
}

impl App for Alone {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
        self.count += 1;
    }

    fn on_stop(&mut self, _: &mut Cx<'_>) {
        self.stopped = true;
    }
}

/// Datagrams that come to a port that was stopped before it started, of 600 that wait: each of its
/// turns takes one.
fn after_the_stop(option: fn(Port<MemoryDevice>) -> Port<MemoryDevice>) -> u64 {
    let (stop, (port, _far)) = (StopFlag::new(), port_with_waiting(600));
    stop.stop();
    let running = option(port.stop_by(&stop)).start(|builder, worker| {
        let mut clock = MonotonicClock::start();
        let built = builder.burst_len(1).build(Alone { count: 0, stopped: false }, &worker.scope()).unwrap();
        let mut running = worker.start(built, &mut clock).unwrap();
        assert_eq!(running.run(&mut clock), Ended::Stopped);
        let app = running.finish(&mut clock).into_app();
        assert!(app.stopped);
        app.count
    });
    running.unwrap().join().unwrap()[0]
}

#[test]
fn what_has_arrived_before_a_stop_is_delivered_where_the_port_drains() {
    let (usual, drained) = (after_the_stop(|port| port), after_the_stop(Port::drain));
    assert!(usual < 600, "{usual}");
    assert_eq!(drained, 600);
}

/// Counts what it hands on.
struct Watched(HostStack, Arc<AtomicU64>);

impl<A: App> Node<A> for Watched {
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.push(mbuf, app, cx);
    }

    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>) {
        self.0.tick(app, cx);
    }

    fn kept(&self) -> usize {
        Node::<A>::kept(&self.0)
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("watched", "counts", |outline| Node::<A>::outline(&self.0, outline));
    }
}

#[test]
fn loop_nodes_and_counters_of_ones_own_serve_a_port_and_its_subscribers() {
    let (stop, block, passed) = (StopFlag::new(), Arc::new(Block::heap()), Arc::new(AtomicU64::new(0)));
    let (port, _far) = port_with_waiting(50);
    let (port, pass) = (port.stop_by(&stop).counters(&block), Arc::clone(&passed));
    let handle = port.handle();
    let mut running = port
        .start(move |builder, worker| {
            let (mut clock, pass) = (MonotonicClock::start(), Arc::clone(&pass));
            let nodes = move |stack, host: &_, scope: &_| Watched(host_stack(stack, host, scope), pass);
            let app = Alone { count: 0, stopped: false };
            let built = builder.build_with(app, &worker.scope(), nodes).unwrap();
            let mut running = worker.start(built, &mut clock).unwrap();
            while running.goes_on(clock.now()) {
                running.worker().poll_once(clock.now());
            }
            running.finish(&mut clock).into_app().count
        })
        .unwrap();
    let asked = thread::spawn(move || handle.subscribe(udp([192, 0, 2, 1], 7)));
    while !asked.is_finished() {
        assert!(running.serve(), "it runs until it is stopped");
    }
    asked.join().unwrap().unwrap();
    until(|| block.snapshot().count("worker0/udp/datagrams") == Some(50));
    stop.stop();
    assert_eq!(running.join().unwrap(), [50]);
    // Beside the datagrams, those of ARP and IGMP of the other end.
    assert!(passed.load(Ordering::Relaxed) >= 50);
}

#[test]
fn groups_are_left_and_the_reports_are_on_the_wire_when_a_port_has_ended() {
    let (stop, block) = (StopFlag::new(), Arc::new(Block::heap()));
    let (port, _far) = port_with_waiting(0);
    let running = port.stop_by(&stop).counters(&block).start(|builder, worker| {
        let mut clock = MonotonicClock::start();
        let built = builder.build((), &worker.scope()).unwrap();
        let mut running = worker.start(built, &mut clock).unwrap();
        running.run(&mut clock);
        running.finish(&mut clock);
    });
    let running = running.unwrap();
    let reports = || block.snapshot().count("worker0/igmp/reports_sent").unwrap();
    until(|| reports() > 0);
    let joined = reports();
    stop.stop();
    running.join().unwrap();
    assert!(reports() > joined, "{joined}");
}

#[test]
fn worker_that_fails_to_start_ends_the_port_and_says_why() {
    let (port, _far) = port_with_waiting(0);
    let running = port.stop_by(&StopFlag::new()).start(|builder, worker| {
        let built = builder.build(Refusing, &worker.scope())?;
        worker.start(built, &mut MonotonicClock::start()).map(drop)
    });
    let ended: wirepath::Result<Vec<()>> = running.unwrap().join().unwrap().into_iter().collect();
    assert_eq!(ended.unwrap_err().to_string(), "no symbols are configured");
}

#[test]
fn port_that_is_dropped_stops_its_workers() {
    let (stop, (port, _far)) = (StopFlag::new(), port_with_waiting(0));
    let (done, is_done) = mpsc::channel();
    let running = port.stop_by(&stop).start(move |builder, worker| {
        let mut clock = MonotonicClock::start();
        let built = builder.build((), &worker.scope()).unwrap();
        let ended = worker.start(built, &mut clock).unwrap().run(&mut clock);
        done.send(ended).unwrap();
    });
    drop(running.unwrap());
    assert_eq!(is_done.recv(), Ok(Ended::Stopped));
}

#[test]
fn more_cores_than_queues_are_refused() {
    let (port, _far) = port_with_waiting(0);
    let refused = port.cores([0, 0]).run(|_| ()).unwrap_err().to_string();
    assert_eq!(refused, "wire.0 has one queue, so it takes one core");
    let config = LiveConfig { queues: vec![1, 2], ..LiveConfig::new("nosuch") };
    let port = || Port::from_config(config.clone()).named("port-test-config").stop_by(&StopFlag::new()).log(|_| ());
    let refused = port().cores([0, 0, 0]).run(|_| ()).unwrap_err().to_string();
    assert_eq!(refused, "nosuch has 2 queues, so it takes 2 cores at most");
    let refused = port().run_app(()).unwrap_err().to_string();
    assert!(refused.starts_with("run_app has one app"), "{refused}");
}

/// Counts datagrams, for its own thread.
#[derive(Default)]
struct Received(u64);

impl App for Received {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
        self.0 += 1;
    }
}

/// The datagrams of a port of any source, whose workers this file builds.
fn started<S: PortSource>(port: Port<S>) -> u64 {
    let running = port.start(|builder, worker| {
        let mut clock = MonotonicClock::start();
        let built = builder.burst_len(16).build(Received::default(), &worker.scope()).unwrap();
        let mut running = worker.start(built, &mut clock).unwrap();
        running.run(&mut clock);
        running.finish(&mut clock).into_app().0
    });
    running.unwrap().join().unwrap()[0]
}

/// The datagrams of a port of any source, in a loop of this file, until `count` have come or the
/// source has ended.
fn embedded<S: PortSource>(port: Port<S>, count: u64) -> u64 {
    let mut port = port.embed(Received::default()).unwrap();
    while port.app().0 < count && !port.has_ended() {
        port.poll();
    }
    port.app().0
}

/// Options of the ports below, and what they subscribe to.
fn subscribed<S>(port: Port<S>, name: &str) -> Port<S> {
    let port = port.named(name).stop_by(&StopFlag::new()).log(|_| ());
    port.subscribe(multicast(GROUP, 9_000))
}

#[test]
fn port_by_its_name_starts_workers_of_the_caller() {
    let path = capture("port-started.pcap", 50);
    let port = Port::open(&format!("pcap:{}", path.display())).unwrap();
    assert_eq!(started(subscribed(port, "port-test-started")), 50);
}

#[test]
fn capture_by_its_name_or_its_device_is_polled_in_the_loop_of_the_caller() {
    let path = capture("port-embedded.pcap", 50);
    let named = Port::open(&format!("pcap:{}", path.display())).unwrap();
    assert_eq!(embedded(subscribed(named, "port-test-embedded-a"), u64::MAX), 50);
    let device = PcapDevice::open(&PcapConfig { replay: Some(path), ..PcapConfig::default() }).unwrap();
    assert_eq!(embedded(subscribed(Port::over(device).promiscuous(), "port-test-embedded-b"), u64::MAX), 50);
}

#[test]
fn device_is_polled_in_the_loop_of_the_caller() {
    let (port, _far) = port_with_waiting(40);
    assert_eq!(embedded(port.stop_by(&StopFlag::new()), 40), 40);
}

#[test]
fn configuration_of_several_queues_is_not_embedded() {
    let config = LiveConfig { queues: vec![0, 1], ..LiveConfig::new("lo") };
    let refused = Port::from_config(config).log(|_| ()).embed(()).err().unwrap();
    assert!(matches!(refused, Error::Config(_)), "{refused}");
}

/// Every verb exists for every source: this compiles, and is not called.
#[allow(dead_code)]
fn each_verb_of_each_source(device: MemoryDevice, config: LiveConfig) -> wirepath::Result<()> {
    fn verbs<S: PortSource>(port: [Port<S>; 4]) -> wirepath::Result<()> {
        let [run, run_app, start, embed] = port;
        run.run(|_worker| ())?;
        run_app.run_app(())?;
        start.start(|_builder, _worker| ())?.join()?;
        embed.embed(()).map(drop)
    }
    let other = || pair("wire", MemoryConfig::default()).0;
    verbs([Port::open("eth1")?, Port::open("pcap:day.pcap")?, Port::open("memory:wire")?, Port::open("mlx5:eth1")?])?;
    verbs([device, other(), other(), other()].map(Port::over))?;
    verbs([config.clone(), config.clone(), config.clone(), config].map(Port::from_config))
}
