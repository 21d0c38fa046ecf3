//! An echo over a wire that loses frames both ways: a client sends, a server sends the bytes back,
//! and the figure is the time from the first byte sent to the last one returned. Each of the two is
//! a kernel socket or a worker of ours.
//!
//! ```text
//!  near: the client ── veth0 ═══ wire0 ─▶ mid: numgen random drop ◀─ wire1 ═══ veth1 ── far: the server
//! ```
//! Between them is a namespace that routes, and randomly drops frames that arrive at either of its
//! interfaces: so neither end is notified, as it would be of drops in its own egress, and both lose
//! frames at the same rate. A drop at a worker's interface would have no effect, because XDP runs
//! before it. As in [`goodput`](super::goodput), a frame is a segment of an MTU: with TSO and GRO a
//! kernel would send 2 MB as some forty frames instead of 1,400, and would lose correspondingly
//! few.
//!
//! Both ends run before other programs (SCHED_RR), and sleep for some microseconds while idle: a
//! worker that spins would block the kernel's timers on that core, which its peer needs. SYNs are
//! not dropped, because the handshake is not measured, and a repeated SYN takes a second
//! (RFC 6298 2.1) in either stack.

use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use wirepath::device::af_xdp::Mode;
use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, ListenOptions, TcpData, TcpEvent};
use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::proto::ConsumerId;
use wirepath::wire::MacAddr;
use wirepath_tests::netns::Namespace;

use super::goodput::run;
use super::pair::{End, FAR, NEAR};
use super::port::{self, PortSetup};
use super::round_trip::begin;
use super::sys;

/// A longer echo counts as this.
pub const LIMIT: Duration = Duration::from_secs(120);
const PORT: u16 = 7_000;
/// Our port, for which the program on the interface has a rule.
const ASKING_PORT: u16 = 7_001;
/// Bytes passed to the socket at a time.
const CHUNK_LEN: usize = 64 << 10;

/// The router's ends: one towards the near end, and one towards the far end. It forwards for both.
const MIDS: [End; 2] = [
    End { interface: "wire0", address: Ipv4Addr::new(10, 9, 1, 1), mac: MacAddr([2, 0, 0, 9, 1, 1]) },
    End { interface: "wire1", address: Ipv4Addr::new(10, 9, 1, 2), mac: MacAddr([2, 0, 0, 9, 1, 2]) },
];

/// The stack of the client, or of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// A kernel's socket with this congestion control.
    Kernel(&'static str),
    /// A worker of ours, with CUBIC.
    Ours,
}

/// The parameters of both contenders.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The frames lost each way, of a thousand.
    pub per_mille: u32,
    /// Bytes each way.
    pub len: usize,
}

/// The two ends, and the router between them.
struct LossyPair {
    near: Namespace,
    far: Namespace,
    _mid: Namespace,
}

impl LossyPair {
    /// Creates it: each direction loses `per_mille` frames of a thousand.
    fn new(per_mille: u32) -> Result<Self, String> {
        let (near, mid, far) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        for (namespace, end, before) in [(&near, NEAR, MIDS[0]), (&far, FAR, MIDS[1])] {
            namespace.veth(end.interface, &mid, before.interface)?;
            for (namespace, end) in [(namespace, end), (&mid, before)] {
                namespace.ip(&["link", "set", end.interface, "address", &end.mac.to_string()])?;
                run(namespace, "ethtool", &["-K", end.interface, "tso", "off", "gso", "off", "gro", "off"])?;
            }
            namespace.ip(&["addr", "add", &format!("{}/24", end.address), "dev", end.interface])?;
            let (address, station) = (end.address.to_string(), end.mac.to_string());
            mid.ip(&["route", "add", &address, "dev", before.interface])?;
            mid.ip(&["neigh", "replace", &address, "lladdr", &station, "dev", before.interface])?;
            let rule = format!(
                "table netdev {0} {{ chain in {{ type filter hook ingress device \"{0}\" priority 0; \
                 tcp flags & syn != syn numgen random mod 1000 < {per_mille} drop; }}; }}",
                before.interface
            );
            run(&mid, "nft", &[&rule])?;
        }
        for (namespace, end, other, before) in [(&near, NEAR, FAR, MIDS[0]), (&far, FAR, NEAR, MIDS[1])] {
            let (address, station) = (other.address.to_string(), before.mac.to_string());
            namespace.ip(&["neigh", "replace", &address, "lladdr", &station, "dev", end.interface])?;
        }
        mid.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .map_err(|error| format!("ip_forward: {error}"))?;
        Ok(Self { near, far, _mid: mid })
    }
}

/// Seconds that an echo takes, [`LIMIT`] at most.
///
/// # Errors
/// Why it could not be measured.
pub fn echo(cores: [usize; 2], client: Stack, server: Stack, task: Task) -> Result<f64, String> {
    let LossyPair { near, far, _mid } = &LossyPair::new(task.per_mille)?;
    let (ready, stopping) = (AtomicBool::new(false), AtomicBool::new(false));
    let took = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            far.run(|| {
                begin(cores[1]);
                let served = match server {
                    Stack::Kernel(congestion) => answer_by_kernel(congestion, &ready, &stopping),
                    Stack::Ours => answer(&ready, &stopping),
                };
                ready.store(true, Ordering::Release);
                served
            })
        });
        while !ready.load(Ordering::Acquire) {
            pause();
        }
        let took = near.run(|| {
            begin(cores[0]);
            match client {
                Stack::Kernel(congestion) => ask_by_kernel(congestion, task.len),
                Stack::Ours => ask(task.len),
            }
        });
        stopping.store(true, Ordering::Relaxed);
        serving.join().unwrap_or_else(|_| Err("the server panicked".to_owned())).and(took)
    })?;
    Ok(took.as_secs_f64())
}

const fn address() -> SocketAddrV4 {
    SocketAddrV4::new(FAR.address, PORT)
}

/// Sleeps until there may be something to do.
fn pause() {
    thread::sleep(Duration::from_micros(20));
}

/// Sends received bytes back, until stopped.
fn answer_by_kernel(congestion: &str, ready: &AtomicBool, stopping: &AtomicBool) -> Result<(), String> {
    let listener = TcpListener::bind(address()).map_err(|error| format!("{}: {error}", address()))?;
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    ready.store(true, Ordering::Release);
    let (mut client, mut bytes, mut waiting) = (None, vec![0; CHUNK_LEN], 0..0);
    while !stopping.load(Ordering::Relaxed) {
        let Some(stream) = &mut client else {
            client = listener.accept().ok().map(|(stream, _)| prepared(stream, congestion)).transpose()?;
            pause();
            continue;
        };
        if waiting.is_empty() {
            waiting = 0..stream.read(&mut bytes).unwrap_or(0);
        }
        match stream.write(&bytes[waiting.clone()]) {
            Ok(len @ 1..) => waiting.start += len,
            _ => pause(),
        }
    }
    Ok(())
}

/// A non-blocking socket without Nagle's algorithm.
fn prepared(stream: TcpStream, congestion: &str) -> Result<TcpStream, String> {
    let prepare = || {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        sys::set_congestion_control(&stream, congestion)
    };
    prepare().map_err(|error| format!("{congestion}: {error}"))?;
    Ok(stream)
}

fn ask_by_kernel(congestion: &str, len: usize) -> Result<Duration, String> {
    let stream = TcpStream::connect(address()).map_err(|error| format!("{}: {error}", address()))?;
    let (mut stream, start) = (prepared(stream, congestion)?, Instant::now());
    let (mut bytes, mut sent, mut received) = (vec![7; CHUNK_LEN], 0, 0);
    while received < len && start.elapsed() < LIMIT {
        let before = sent + received;
        sent += stream.write(&bytes[..CHUNK_LEN.min(len - sent)]).unwrap_or(0);
        match stream.read(&mut bytes) {
            Ok(len) => received += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => (),
            Err(error) => return Err(format!("{}: {error}", address())),
        }
        if sent + received == before {
            pause();
        }
    }
    Ok(start.elapsed().min(LIMIT))
}

fn answer(ready: &AtomicBool, stopping: &AtomicBool) -> Result<(), String> {
    let place =
        PortSetup { ours: FAR, peer: End { mac: MIDS[1].mac, ..NEAR }, mode: Mode::Native, ring_len: port::RING_LEN };
    let mut port = port::open_tcp(place, PORT, Answerer::default())?;
    port.with_app(|_, cx| cx.tcp().listen(address(), &ListenOptions::default()))
        .map_err(|error| format!("{}: {error}", address()))?;
    ready.store(true, Ordering::Release);
    while !stopping.load(Ordering::Relaxed) {
        if port.turn() == 0 {
            pause();
        }
    }
    Ok(())
}

fn ask(len: usize) -> Result<Duration, String> {
    let place =
        PortSetup { ours: NEAR, peer: End { mac: MIDS[0].mac, ..FAR }, mode: Mode::Native, ring_len: port::RING_LEN };
    let asker = Asker { bytes: vec![7; CHUNK_LEN], len, sent: 0, received: 0, since: None };
    let mut port = port::open_tcp(place, ASKING_PORT, asker)?;
    let local = SocketAddrV4::new(NEAR.address, ASKING_PORT);
    port.with_app(|_, cx| cx.tcp().connect(local, address(), &ConnectionOptions::default(), ConsumerId(0)))
        .map_err(|error| format!("{}: {error}", address()))?;
    let start = Instant::now();
    let is_over = |asker: &Asker| asker.received >= len || asker.since.unwrap_or(start).elapsed() > LIMIT;
    while !is_over(port.app()) {
        if port.turn() == 0 {
            pause();
        }
    }
    let since = port.app().since.ok_or("the server does not answer")?;
    let took = since.elapsed().min(LIMIT);
    let tally = port.tally();
    println!(
        "   ours: {took:?}, {} resent, {} probes, {} timeouts",
        tally.segments_resent, tally.tail_loss_probes, tally.timeouts
    );
    Ok(took)
}

/// Sends `len` bytes as fast as the connection accepts them, and counts those that come back.
struct Asker {
    bytes: Vec<u8>,
    len: usize,
    sent: usize,
    received: usize,
    since: Option<Instant>,
}

impl App for Asker {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if matches!(event, TcpEvent::Connected { .. }) {
            self.since = Some(Instant::now());
        }
        if matches!(event, TcpEvent::Connected { .. } | TcpEvent::Writable) {
            while let Ok(len @ 1..) = cx.tcp().send(id, &self.bytes[..CHUNK_LEN.min(self.len - self.sent)]) {
                self.sent += len;
            }
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        self.received += data.payload.len();
    }
}

/// Sends received bytes back, as soon as the connection accepts them.
#[derive(Default)]
struct Answerer {
    waiting: VecDeque<u8>,
}

impl Answerer {
    fn send(&mut self, id: ConnectionId, cx: &mut Cx<'_>) {
        while let Ok(len @ 1..) = cx.tcp().send(id, self.waiting.as_slices().0) {
            self.waiting.drain(..len);
        }
    }
}

impl App for Answerer {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if event == TcpEvent::Writable {
            self.send(id, cx);
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        self.waiting.extend(data.payload);
        self.send(data.connection, cx);
    }
}
