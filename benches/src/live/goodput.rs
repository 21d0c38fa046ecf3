//! Goodput of a kernel socket over a lossy wire: from another kernel, or from a worker of ours.
//!
//! ```text
//!  near: the kernel's sender, or ours ── veth0 ═══ veth1 ──▶ numgen random drop ──▶ far: a kernel's socket
//! ```
//! *A loss is one frame of an MTU.* With TSO a kernel hands a veth up to 64 KB as one frame, and
//! with GRO a receiver sees one: then the loss rule would drop 45 segments at once of the kernel's
//! sender, a burst that no wire loses, but one segment of ours. So segmentation, GSO and GRO are
//! off at both ends, for both senders: each frame is a segment of an MTU of 1500, and each is lost
//! on its own. The kernel of the far end sees the same frames from either sender. Checksums keep
//! their defaults, to the kernel's advantage: over veth it computes none, while we compute ours.
//!
//! Sender and receiver run before other programs (SCHED_RR): a receiver that waits for its core
//! delays its acknowledgments, and the figure would be the scheduler's.
//!
//! A round trip takes microseconds here, so a timer of milliseconds dominates: the result depends
//! on how many losses are detected without one. [`SendCounts`] has the counts beside the rate.

use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{fs, thread};

use wirepath::device::af_xdp::{AfXdpTx, Mode};
use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, TcpEvent};
use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::proto::ConsumerId;
use wirepath_tests::netns::Namespace;

use super::pair::{self, Column, FAR, NEAR, Pair};
use super::port::{self, Port, PortSetup, TcpStack};
use super::round_trip::begin;
use super::sys;

const PORT: u16 = 7_000;
/// Our port, for which the program on the interface has a rule.
const SENDING_PORT: u16 = 7_001;
/// Bytes passed to the socket at a time.
const CHUNK_LEN: usize = 64 << 10;
/// Bytes that wait to be sent or acknowledged: the most that a kernel socket takes by default.
const SEND_BUFFER: u32 = 4 << 20;

/// The sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A kernel's socket with this congestion control.
    Kernel(&'static str),
    /// A worker of ours, with CUBIC.
    Ours,
}

/// The results of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendCounts {
    /// Gbit/s that the receiver's program read.
    pub rate: f64,
    /// Segments that were retransmitted.
    pub resent: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Segments that the receiver got twice.
    pub duplicates: u64,
    /// Segments that the receiver's kernel dropped for lack of room. While its program reads,
    /// arriving segments wait in the socket's backlog, whose length is reset only when it has run
    /// dry (`__release_sock`, net/core/sock.c): a sender that keeps up for long enough with a
    /// receiver on another core fills the backlog, and then loses segments on a wire without loss.
    pub refused: u64,
    /// Frames, that is acknowledgments, dropped for lack of room at the sender's interface.
    pub acks_dropped: u64,
}

/// Goodput in `window` where `per_mille` frames of a thousand are lost on their way to the
/// receiver.
///
/// # Errors
/// Why it could not be measured.
pub fn goodput(cores: [usize; 2], sender: Sender, per_mille: u32, window: Duration) -> Result<SendCounts, String> {
    let pair = Pair::new()?;
    for (namespace, interface) in [(&pair.near, NEAR.interface), (&pair.far, FAR.interface)] {
        run(namespace, "ethtool", &["-K", interface, "tso", "off", "gso", "off", "gro", "off"])?;
    }
    if per_mille > 0 {
        let rule = format!(
            "table netdev loss {{ chain in {{ type filter hook ingress device \"{}\" priority 0; \
             numgen random mod 1000 < {per_mille} drop; }}; }}",
            FAR.interface
        );
        run(&pair.far, "nft", &[&rule])?;
    }
    let listener =
        pair.far.run(|| TcpListener::bind(receiver())).map_err(|error| format!("{}: {error}", receiver()))?;
    let stopping = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            pair.near.run(|| {
                begin(cores[0]);
                let sent = match sender {
                    Sender::Kernel(congestion) => send_by_kernel(congestion, &stopping),
                    Sender::Ours => send(&stopping),
                }?;
                Ok(SendCounts { acks_dropped: pair::counted(NEAR, Column::Dropped)?, ..sent })
            })
        });
        let received = pair.far.run(|| {
            begin(cores[1]);
            receive(&listener, window).map(|rate| (rate, refused()))
        });
        stopping.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap_or_else(|_| Err("the sender panicked".to_owned()))?;
        let (rate, refused) = received?;
        Ok(SendCounts { rate, refused, ..sent })
    })
}

pub(super) fn run(namespace: &Namespace, program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = namespace.command(program, arguments).map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

const fn receiver() -> SocketAddrV4 {
    SocketAddrV4::new(FAR.address, PORT)
}

/// Takes a connection and reads for as long as `window`; Gbit/s.
fn receive(listener: &TcpListener, window: Duration) -> Result<f64, String> {
    let mut stream = accepted(listener)?;
    let (mut bytes, mut received, start) = (vec![0; 1 << 20], 0, Instant::now());
    stream.set_read_timeout(Some(window)).map_err(|error| error.to_string())?;
    while start.elapsed() < window {
        // Silence for the whole window is a rate of zero.
        received += stream.read(&mut bytes).unwrap_or(0);
    }
    Ok(8.0 * received as f64 / start.elapsed().as_nanos() as f64)
}

fn accepted(listener: &TcpListener) -> Result<TcpStream, String> {
    /// The handshake may be lost as well, and then takes a second and more.
    const TIMEOUT: Duration = Duration::from_secs(10);
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        if let Ok((stream, _)) = listener.accept() {
            return stream.set_nonblocking(false).map(|()| stream).map_err(|error| error.to_string());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err("no connection came to the receiver".to_owned())
}

/// Sends until stopped, by a blocking socket, as bulk senders use it.
fn send_by_kernel(congestion: &str, stopping: &AtomicBool) -> Result<SendCounts, String> {
    let mut stream = TcpStream::connect(receiver()).map_err(|error| format!("{}: {error}", receiver()))?;
    sys::set_congestion_control(&stream, congestion).map_err(|error| format!("{congestion}: {error}"))?;
    // A sender that is stopped may be waiting for room.
    stream.set_write_timeout(Some(Duration::from_millis(100))).map_err(|error| error.to_string())?;
    let bytes = vec![7; CHUNK_LEN];
    while !stopping.load(Ordering::Relaxed) {
        let _ = stream.write(&bytes);
    }
    let counts = counts();
    let count = |name| counted(&counts, name).unwrap_or(0);
    Ok(SendCounts {
        resent: count("RetransSegs"),
        timeouts: count("TCPTimeouts"),
        probes: count("TCPLossProbes"),
        duplicates: count("TCPDSACKRecv"),
        ..SendCounts::default()
    })
}

/// Segments that the kernel of the calling thread's namespace dropped for lack of room.
fn refused() -> u64 {
    let counts = counts();
    ["TCPBacklogDrop", "TCPRcvQDrop"].iter().filter_map(|name| counted(&counts, name)).sum()
}

/// The counters of the kernel in the calling thread's namespace.
fn counts() -> String {
    fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default()
        + &fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default()
}

/// A counter of the kernel: a line of names is followed by one of numbers.
fn counted(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(2).find_map(|pair| {
        let column = pair[0].split_whitespace().position(|word| word == name)?;
        pair[1].split_whitespace().nth(column)?.parse().ok()
    })
}

/// Sends until stopped.
fn send(stopping: &AtomicBool) -> Result<SendCounts, String> {
    let place = PortSetup { ours: NEAR, peer: FAR, mode: Mode::Native, ring_len: port::RING_LEN };
    let mut port: Port<AfXdpTx, TcpStack, Source> =
        port::open_tcp(place, SENDING_PORT, Source { bytes: vec![7; CHUNK_LEN] })?;
    let options = ConnectionOptions { send_buffer: SEND_BUFFER, ..ConnectionOptions::default() };
    let local = SocketAddrV4::new(NEAR.address, SENDING_PORT);
    port.with_app(|_, cx| cx.tcp().connect(local, receiver(), &options, ConsumerId(0)))
        .map_err(|error| format!("{}: {error}", receiver()))?;
    while !stopping.load(Ordering::Relaxed) {
        port.turn();
    }
    let tally = port.tally();
    Ok(SendCounts {
        resent: tally.segments_resent,
        timeouts: tally.timeouts,
        probes: tally.tail_loss_probes,
        duplicates: tally.dsacks_in,
        ..SendCounts::default()
    })
}

/// Always passes as much as the connection accepts.
struct Source {
    bytes: Vec<u8>,
}

impl App for Source {
    fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {}

    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if matches!(event, TcpEvent::Connected { .. } | TcpEvent::Writable) {
            while matches!(cx.tcp().send(id, &self.bytes), Ok(1..)) {}
        }
    }
}
