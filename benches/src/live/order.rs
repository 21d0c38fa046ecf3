//! From a tick to the wire: an order that the first of 32 datagrams triggers, while the app still
//! has 31 to process.
//!
//! ```text
//!  near: a kernel's socket ── 32 datagrams ──▶ far: one turn of our worker ── the first ─▶ an order over TCP
//!        a kernel's listener ◀── the order ──────────────────────────────┘   the others ─▶ 2 µs of work each
//! ```
//!
//! One thread does everything in sequence, so that the burst is complete when the turn begins. A
//! frame sent by a veth has arrived when the system call that sends it returns; the clock is read
//! there, on the sending side of the queue.

use core::cell::Cell;
use core::net::SocketAddrV4;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use wirepath::device::af_xdp::{AfXdpTx, Mode};
use wirepath::device::{Offload, TxQueue};
use wirepath::forward;
use wirepath::mem::Mbuf;
use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, PreparedOrder, TcpEvent};
use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::proto::{ConsumerId, Sharing};
use wirepath::time;

use super::pair::{FAR, NEAR, Pair};
use super::port::{self, Port, PortSetup, RING_LEN, TcpStack};
use super::round_trip::until;
use super::sys::Batch;

const TICKS: u16 = 7_000;
const ORDERS: u16 = 7_001;
/// Our end of the connection.
const SESSION: u16 = 7_002;
/// Datagrams of a turn, at most.
const BURST: usize = 32;
/// Bytes of an order.
const ORDER_LEN: usize = 62;
/// The app's work on a datagram that triggers no order: a book update, some cache misses.
const WORK: Duration = Duration::from_micros(2);
/// Turns that may get the burst in pieces.
const PIECES_MAX: usize = 200;

/// The call that sends the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// By `fire`: it rings.
    Fire,
    /// By `post`, with the doorbell at the turn's end.
    Post,
}

/// Medians, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// From the start of the turn until the order is on the wire.
    pub tick_to_wire: f64,
    /// Within that call.
    pub call: f64,
}

/// The times of `count` orders, each after a separate burst.
///
/// # Errors
/// Why it could not be measured.
pub fn behind_a_burst(verb: Verb, count: usize) -> Result<Order, String> {
    let pair = Pair::new()?;
    let (ticks, gateway) = pair.near.run(|| {
        let open = || {
            let ticks = UdpSocket::bind(SocketAddrV4::new(NEAR.address, 0))?;
            ticks.connect(SocketAddrV4::new(FAR.address, TICKS))?;
            let gateway = TcpListener::bind(SocketAddrV4::new(NEAR.address, ORDERS))?;
            gateway.set_nonblocking(true)?;
            std::io::Result::Ok((ticks, gateway))
        };
        open().map_err(|error| format!("no sockets at {}: {error}", NEAR.address))
    })?;
    pair.far.run(|| {
        let rung = Rc::new(Cell::new(None));
        let place = PortSetup { ours: FAR, peer: NEAR, mode: Mode::Generic, ring_len: RING_LEN };
        let app = Trader { verb, session: None, order: None, is_waiting: false, call: Duration::ZERO };
        let mut port = port::open_all(place, |tx| Clocked { tx, rung: Rc::clone(&rung) }, app)?;
        let mut stream = call(&mut port, &gateway)?;
        let mut batch = Batch::new(vec![vec![7; 64]; BURST]);
        let (mut wires, mut calls, mut pieces) = (Vec::with_capacity(count), Vec::with_capacity(count), 0);
        while wires.len() < count {
            batch.send(&ticks).map_err(|error| format!("sending ticks: {error}"))?;
            port.with_app(|trader, _| trader.is_waiting = true);
            rung.set(None);
            let start = Instant::now();
            let received = port.turn();
            let left = rung.get();
            finish(&mut port, &mut stream)?;
            match left {
                Some(left) if received == BURST => {
                    wires.push(left - start);
                    calls.push(port.app().call);
                }
                _ if pieces == PIECES_MAX => return Err("the bursts come in pieces".to_owned()),
                _ => pieces += 1,
            }
        }
        Ok(Order { tick_to_wire: median(&mut wires), call: median(&mut calls) })
    })
}

/// Opens the session, and prepares the order.
fn call(port: &mut Port<Clocked, TcpStack, Trader>, gateway: &TcpListener) -> Result<TcpStream, String> {
    port.with_app(|_, cx| {
        let bound = cx.sockets.bind(ConsumerId(0), SocketAddrV4::new(FAR.address, TICKS), Sharing::Exclusive);
        bound.map_err(|error| error.to_string())?;
        let (local, remote) = (SocketAddrV4::new(FAR.address, SESSION), SocketAddrV4::new(NEAR.address, ORDERS));
        let session = cx.tcp().connect(local, remote, &ConnectionOptions::default(), ConsumerId(0));
        session.map(drop).map_err(|error| error.to_string())
    })?;
    let mut stream = None;
    let is_open = until(|| {
        port.turn();
        stream = stream.take().or_else(|| gateway.accept().ok());
        stream.is_some() && port.app().session.is_some()
    });
    let (stream, _) = stream.filter(|_| is_open).ok_or("the gateway does not answer")?;
    stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).map_err(|error| error.to_string())?;
    port.with_app(|trader, cx| {
        let order = trader.session.map(|session| cx.tcp().prepare(session, &[b'8'; ORDER_LEN]));
        trader.order = order.and_then(Result::ok);
        trader.order.is_some().then_some(stream).ok_or_else(|| "the order cannot be prepared".to_owned())
    })
}

/// The gateway reads the order and confirms it; the rest of the burst is received.
fn finish(port: &mut Port<Clocked, TcpStack, Trader>, stream: &mut TcpStream) -> Result<(), String> {
    let (mut bytes, mut len) = ([0; ORDER_LEN], 0);
    let has_come = until(|| {
        port.turn();
        len += stream.read(&mut bytes[len..]).unwrap_or(0);
        len == ORDER_LEN
    });
    let is_confirmed = has_come && stream.write_all(b"K").is_ok();
    let is_quiet = until(|| port.turn() == 0);
    (is_confirmed && is_quiet).then_some(()).ok_or_else(|| "an order did not arrive".to_owned())
}

fn median(times: &mut [Duration]) -> f64 {
    let half = times.len() / 2;
    times.select_nth_unstable(half).1.as_nanos() as f64
}

/// Fires at the first datagram once it is armed.
struct Trader {
    verb: Verb,
    session: Option<ConnectionId>,
    order: Option<PreparedOrder>,
    is_waiting: bool,
    /// Time of the last call.
    call: Duration,
}

impl App for Trader {
    fn on_datagram(&mut self, _: &Datagram<'_>, cx: &mut Cx<'_>) {
        let start = Instant::now();
        match &mut self.order {
            Some(order) if self.is_waiting => {
                self.is_waiting = false;
                // A failure shows as a missing order.
                let _ = match self.verb {
                    Verb::Fire => cx.tcp().fire(order),
                    Verb::Post => cx.tcp().post(order),
                };
                self.call = start.elapsed();
            }
            _ => while start.elapsed() < WORK {},
        }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        if matches!(event, TcpEvent::Connected { .. }) {
            self.session = Some(connection);
        }
    }
}

/// Records when the doorbell is first rung.
struct Clocked {
    tx: AfXdpTx,
    rung: Rc<Cell<Option<Instant>>>,
}

impl Clocked {
    fn note(&self) {
        if self.rung.get().is_none() {
            self.rung.set(Some(Instant::now()));
        }
    }
}

impl TxQueue for Clocked {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let posted = self.tx.post(mbuf, offload);
        if offload.has(Offload::URGENT) {
            self.note();
        }
        posted
    }

    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        let posted = self.tx.post_urgent(mbuf);
        self.note();
        posted
    }

    fn ring_doorbell(&mut self, now: time::Instant) {
        self.tx.ring_doorbell(now);
        self.note();
    }

    // A preposted frame, or a doorbell that is deferred, would leave without its time.
    forward!(
        tx: post_unmarked, dry_run, reap, room, in_flight, has_timestamps, take_timestamp, refresh_counters;
        by_default: post_burst, prepost, preposted, fire_preposted, defer_doorbell
    );
}
