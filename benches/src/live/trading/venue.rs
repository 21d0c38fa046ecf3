//! The venue, on kernel sockets: it sends ticks and waits for their orders.

use core::net::SocketAddrV4;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use order_entry::session::Output;

use super::exchange::{Exchange, LINE_A, Packet};
use crate::live::pair::NEAR;
use crate::live::round_trip::{Times, until};

pub(super) const PORT: u16 = 9_100;
/// From a tick to the next: a trader's limit is 100 orders a second.
const PERIOD: Duration = Duration::from_millis(11);
/// A sleep of the venue, and how long before a tick the last of them ends.
const NAP: Duration = Duration::from_micros(200);
const AWAKE: Duration = Duration::from_millis(1);
/// Ticks before the measured ones.
const WARM_UP: usize = 50;
/// Half seconds in which a trader starts.
const STARTS_MAX: usize = 20;
/// Packets that the feed sends before it pauses, while it fills the books.
const FILL_BURST: u64 = 32;

/// What the venue has seen.
#[derive(Clone, Copy, Debug)]
pub(in crate::live) struct TickTimes {
    /// From the tick to its order.
    pub(in crate::live) order: Times,
    /// Of that, within the call that sends the tick.
    pub(in crate::live) send: Times,
}

/// The exchange and its sockets.
pub(super) struct Venue {
    exchange: Exchange,
    feed: UdpSocket,
    listener: TcpListener,
    stream: Option<TcpStream>,
    start: Instant,
}

impl Venue {
    /// Opens the sockets in the namespace of the calling thread.
    pub(super) fn open() -> Result<Self, String> {
        let open = || {
            let feed = UdpSocket::bind(SocketAddrV4::new(NEAR.address, 0))?;
            let listener = TcpListener::bind(SocketAddrV4::new(NEAR.address, PORT))?;
            listener.set_nonblocking(true)?;
            std::io::Result::Ok((feed, listener))
        };
        let (feed, listener) = open().map_err(|error| format!("no sockets at {}: {error}", NEAR.address))?;
        Ok(Self { exchange: Exchange::new(), feed, listener, stream: None, start: Instant::now() })
    }

    /// Waits until a trader has logged in, and fills the books.
    pub(super) fn wait_for_trader(&mut self) -> Result<(), String> {
        let has_come = (0..STARTS_MAX).any(|_| {
            until(|| {
                self.stream = self.stream.take().or_else(|| self.listener.accept().ok().map(|(stream, _)| stream));
                self.stream.is_some()
            })
        });
        let stream = self.stream.as_ref().filter(|_| has_come).ok_or("no trader has called")?;
        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).map_err(|error| error.to_string())?;
        let now_ns = self.now_ns();
        self.exchange.connected(now_ns);
        let is_open = until(|| self.turn().is_ok() && self.exchange.is_open());
        if !is_open {
            return Err("the trader does not log in".to_owned());
        }
        self.rest(Duration::from_millis(200))?;
        for order in 0..=Exchange::RESTING_ORDERS {
            let packet = self.exchange.fill(order);
            self.publish(&packet)?;
            if order % FILL_BURST == 0 {
                self.rest(Duration::from_micros(500))?;
            }
        }
        self.rest(Duration::from_millis(200))
    }

    /// Sends `count` ticks, each of which is answered by an order.
    pub(super) fn trade(&mut self, count: usize) -> Result<TickTimes, String> {
        let (mut orders, mut sends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for idx in 0..WARM_UP + count {
            let tick = self.exchange.offer();
            let start = Instant::now();
            self.publish(&tick)?;
            let sent = start.elapsed();
            let read = self.wait_for_order()?;
            if idx >= WARM_UP {
                orders.push(read - start);
                sends.push(sent);
            }
            self.answer()?;
            self.rest(PERIOD.saturating_sub(start.elapsed()))?;
        }
        Ok(TickTimes { order: Times::of(orders), send: Times::of(sends) })
    }

    /// When the order was read.
    fn wait_for_order(&mut self) -> Result<Instant, String> {
        let mut read = Ok(None);
        let has_come = until(|| {
            read = self.turn();
            read.is_err() || self.exchange.has_order()
        });
        match read? {
            Some(at) if has_come => Ok(at),
            _ => Err("a tick was not answered by an order".to_owned()),
        }
    }

    /// Answers the order, ends the offer, and has two orders of other books come and go.
    fn answer(&mut self) -> Result<(), String> {
        self.say(Exchange::answer)?;
        let gone = self.exchange.withdraw();
        let others = [self.exchange.other(), self.exchange.other()];
        gone.iter().chain(others.iter().flatten()).try_for_each(|packet| self.publish(packet))
    }

    /// The session's turns for that long: asleep in between, so that what else the core has to do
    /// is done then, and awake at the end, with what a tick needs in the caches.
    fn rest(&mut self, time: Duration) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn()?;
            if start.elapsed() + AWAKE < time {
                thread::sleep(NAP);
            }
        }
        self.say(Exchange::beat)
    }

    /// Takes what the trader has sent, if anything, and says when that was read.
    fn turn(&mut self) -> Result<Option<Instant>, String> {
        let mut bytes = [0; 512];
        let len = match self.stream.as_mut().map_or(Ok(0), |stream| stream.read(&mut bytes)) {
            Ok(0) => return Err("the trader has gone".to_owned()),
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(format!("the trader's connection: {error}")),
        };
        let at = Instant::now();
        self.say(|exchange, now_ns, output| exchange.receive(&bytes[..len], now_ns, output))?;
        Ok(Some(at))
    }

    /// Sends what the exchange says now.
    fn say(&mut self, speak: impl FnOnce(&mut Exchange, u64, &mut Output<'_>)) -> Result<(), String> {
        let (now_ns, mut buffer) = (self.now_ns(), [0; 512]);
        let mut output = Output::new(&mut buffer);
        speak(&mut self.exchange, now_ns, &mut output);
        let Some(stream) = self.stream.as_mut().filter(|_| !output.is_empty()) else { return Ok(()) };
        stream.write_all(output.written()).map_err(|error| format!("the trader's connection: {error}"))
    }

    fn publish(&self, packet: &Packet) -> Result<(), String> {
        self.feed.send_to(packet.bytes(), LINE_A).map(drop).map_err(|error| format!("the feed: {error}"))
    }

    fn now_ns(&self) -> u64 {
        1 + self.start.elapsed().as_nanos() as u64
    }
}
