//! A datagram and its echo over a veth pair, while both ends spin: two kernel sockets, or two of
//! our workers.

use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use wirepath::device::af_xdp::AfXdpTx;
use wirepath::pipeline::{App, Cx, Datagram, UdpFlow, UdpOptions, UdpStack};

use super::pair::{End, FAR, NEAR, Pair};
use super::port::{self, Port};
use super::sys;
use crate::measure::cores;

const PORT: u16 = 7_000;
/// Bytes of a datagram.
const LEN: usize = 64;
/// Timeout of an answer. The kernel stops real-time threads (SCHED_RR) for 50 ms of each second
/// where others wait.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Datagrams that may be lost at first.
const TRIES: usize = 5;
/// Round trips before the measured ones.
const WARM_UP: usize = 1_000;

/// The kind of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A connected non-blocking kernel socket.
    Kernel,
    /// A worker with the UDP stack on an AF_XDP port.
    Ours,
}

/// Times of round trips, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Times {
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |per_cent: usize| times[times.len() * per_cent / 100].as_nanos() as f64;
        Self { p50: at(50), p99: at(99) }
    }
}

/// The times of `count` round trips between a client and a server of these kinds.
///
/// # Errors
/// Why it could not be measured.
pub fn times_of(cores: [usize; 2], client: Kind, server: Kind, count: usize) -> Result<Times, String> {
    beside(cores, |ready, stopping| serve(server, ready, stopping), || ask(client, count))
}

/// Runs the client at the near end of a new pair and returns its result. The far end serves from
/// before the client's start until it is stopped.
pub(super) fn beside<T: Send>(
    cores: [usize; 2],
    serve: impl FnOnce(&AtomicBool, &AtomicBool) -> Result<(), String> + Send,
    ask: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    let pair = Pair::new()?;
    let (ready, stopping) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            pair.far.run(|| {
                begin(cores[1]);
                let served = serve(&ready, &stopping);
                ready.store(true, Ordering::Release);
                served
            })
        });
        while !ready.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        let asked = pair.near.run(|| {
            begin(cores[0]);
            ask()
        });
        stopping.store(true, Ordering::Relaxed);
        let served = serving.join().unwrap_or_else(|_| Err("the server panicked".to_owned()));
        served.and(asked)
    })
}

/// Pins the calling thread to a core as a real-time thread.
pub(super) fn begin(core: usize) {
    cores::pin(core);
    sys::run_first();
}

const fn at(end: End) -> SocketAddrV4 {
    SocketAddrV4::new(end.address, PORT)
}

/// Answers until stopped.
fn serve(kind: Kind, ready: &AtomicBool, stopping: &AtomicBool) -> Result<(), String> {
    let mut turn: Box<dyn FnMut()> = match kind {
        Kind::Kernel => {
            let (socket, mut bytes) = (socket(FAR, NEAR)?, [0; 2048]);
            Box::new(move || {
                if let Ok(len) = socket.recv(&mut bytes) {
                    // A client that is gone gets no answer.
                    let _ = socket.send(&bytes[..len]);
                }
            })
        }
        Kind::Ours => {
            let mut port = worker(FAR, NEAR, true)?;
            Box::new(move || {
                port.turn();
            })
        }
    };
    ready.store(true, Ordering::Release);
    while !stopping.load(Ordering::Relaxed) {
        turn();
    }
    Ok(())
}

/// Sends requests and waits for the answers.
fn ask(kind: Kind, count: usize) -> Result<Times, String> {
    let times = match kind {
        Kind::Kernel => {
            let (socket, mut bytes) = (socket(NEAR, FAR)?, [0; 2048]);
            let mut trip = || socket.send(&[7; LEN]).is_ok() && until(|| socket.recv(&mut bytes).is_ok());
            times(count, &mut trip)?
        }
        Kind::Ours => {
            let mut port = worker(NEAR, FAR, false)?;
            let mut trip = || {
                let received = port.app().received;
                port.with_app(Peer::ask);
                until(|| {
                    port.turn();
                    port.app().received > received
                })
            };
            times(count, &mut trip)?
        }
    };
    Ok(Times::of(times))
}

pub(super) fn times(count: usize, trip: &mut dyn FnMut() -> bool) -> Result<Vec<Duration>, String> {
    // The first ones may be lost while the programs are being attached to their interfaces.
    if !(0..TRIES).any(|_| trip()) || !(0..WARM_UP).all(|_| trip()) {
        return Err("no answer before the first datagram that counts".to_owned());
    }
    let mut times = Vec::with_capacity(count);
    for idx in 0..count {
        let start = Instant::now();
        if !trip() {
            return Err(format!("no answer to datagram {idx}"));
        }
        times.push(start.elapsed());
    }
    Ok(times)
}

/// Spins until `done`, or until the timeout; returns whether it was done.
pub(super) fn until(mut done: impl FnMut() -> bool) -> bool {
    /// The clock is read rarely, because the spinning is measured.
    const LOOKS: u32 = 1_000;
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if done() {
                return true;
            }
        }
        if start.elapsed() > TIMEOUT {
            return false;
        }
    }
}

fn socket(ours: End, peer: End) -> Result<UdpSocket, String> {
    let open = || {
        let socket = UdpSocket::bind(at(ours))?;
        socket.connect(at(peer))?;
        socket.set_nonblocking(true)?;
        std::io::Result::Ok(socket)
    };
    open().map_err(|error| format!("no socket for {}: {error}", at(ours)))
}

fn worker(ours: End, peer: End, answers: bool) -> Result<Port<AfXdpTx, UdpStack, Peer>, String> {
    let mut port = port::open_udp((ours, peer), at(ours), Peer { flow: None, answers, received: 0 })?;
    port.with_app(|app, cx| {
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
        app.flow = UdpFlow::connect(local, at(peer), &UdpOptions::default(), cx).ok();
        app.flow.is_some()
    })
    .then_some(port)
    .ok_or_else(|| format!("{} is no neighbor", at(peer)))
}

/// An end of ours.
struct Peer {
    flow: Option<UdpFlow>,
    answers: bool,
    received: u64,
}

impl Peer {
    fn ask(&mut self, cx: &mut Cx<'_>) {
        self.send(&[7; LEN], cx);
    }

    fn send(&mut self, payload: &[u8], cx: &mut Cx<'_>) {
        if let Some(flow) = &mut self.flow {
            // A failed send shows as a missing answer.
            let _ = flow.send(payload, cx);
        }
    }
}

impl App for Peer {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.received += 1;
        if self.answers {
            self.send(datagram.payload, cx);
        }
    }
}
