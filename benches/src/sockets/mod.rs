//! The calls of sockets beside the framework's own API, over the same workers: what a call adds.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::time;

use sockets::{Kind, SocketId, Sockets, Stack};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::device::{Device, Queue};
use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, ListenOptions, TcpConfig, TcpData, TcpEvent};
use wirepath::pipeline::{App, Cx, HostStack};
use wirepath::proto::{ConsumerId, Group, HashSeed, InterfaceId};
use wirepath::time::{Clock, Duration, Instant};
use wirepath::wire::MacAddr;
use wirepath::worker::Worker;

use crate::feeder::Feeder;
use crate::frames::{OUR_MAC, PAYLOAD_LEN, SENDER_MAC, UdpChecksum, frame, group, shuffled};
use crate::receiver::{DigestApp, ROUND};
use crate::tcp::MESSAGE_LEN;

mod c_calls;
mod c_streams;
mod lines;

pub use lines::lines;

type HostWorker<A> = Worker<MemoryRx, MemoryTx, HostStack, A>;

/// A worker with all that a host has, and TCP.
fn worker<D: Device, A: App>(
    port: &mut D,
    host: u8,
    mac: MacAddr,
    app: A,
    block: &Block,
) -> Worker<<D::Queue as Queue>::Rx, <D::Queue as Queue>::Tx, HostStack, A> {
    let address = format!("10.0.0.{host}/24").parse().expect("an address");
    let worker = Worker::builder(port).expect("a fresh port has its queue").address(address).mac(mac);
    // The peer is known: nothing waits for ARP.
    let (peer, theirs) = (Ipv4Addr::new(10, 0, 0, 3 - host), if host == 1 { SENDER_MAC } else { OUR_MAC });
    let worker = worker.neighbor(peer, theirs).tcp(TcpConfig::default()).seed(HashSeed::new(1, host.into()));
    worker.held(2 * ROUND).build(app, &block.scope(&format!("host{host}"))).expect("some MB")
}

/// A clock that moves by half a microsecond with each look, and costs nothing else.
struct Steps(Instant);

impl Clock for Steps {
    fn now(&mut self) -> Instant {
        self.0 += Duration::from_nanos(500);
        self.0
    }
}

/// A member of a group, and the far end of its wire.
struct Wire {
    port: MemoryDevice,
    feeder: Feeder,
    block: Block,
}

impl Wire {
    fn new() -> Self {
        let (port, far_port) = pair("bench", MemoryConfig::default());
        let block = Block::heap();
        let frames = vec![frame(group(0), PAYLOAD_LEN, UdpChecksum::Zero)];
        let feeder = Feeder::new(far_port, frames, shuffled(1, 4_096, 1), &block.scope("feeder"));
        Self { port, feeder, block }
    }

    fn feed(&mut self) {
        self.feeder.drain();
        self.feeder.feed(ROUND);
    }
}

/// Nanoseconds that each of so many things takes.
fn time_each(count: usize, mut act: impl FnMut()) -> f64 {
    let start = time::Instant::now();
    act();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Reception by an app.
pub struct OwnReception {
    worker: HostWorker<WithoutTick>,
    wire: Wire,
    now: Instant,
}

/// [`DigestApp`] without a tick.
#[derive(Default)]
struct WithoutTick(DigestApp);

impl App for WithoutTick {
    #[inline]
    fn on_datagram(&mut self, datagram: &wirepath::pipeline::Datagram<'_>, cx: &mut Cx<'_>) {
        self.0.on_datagram(datagram, cx);
    }
}

impl OwnReception {
    /// Joined, and nothing received.
    #[expect(clippy::new_without_default, reason = "it takes some milliseconds")]
    pub fn new() -> Self {
        let mut wire = Wire::new();
        let mut worker = worker(&mut wire.port, 1, OUR_MAC, WithoutTick::default(), &wire.block);
        let to = group(0);
        worker.with_app(Instant::ZERO, |_, cx| {
            cx.sockets.join(ConsumerId(1), Group::new(*to.ip(), to.port())).expect("a fresh table has room")
        });
        Self { worker, wire, now: Instant::ZERO }
    }

    /// Fills the wire. Not measured.
    pub fn feed(&mut self) {
        self.wire.feed();
    }

    /// Measured: turns until the wire is empty.
    pub fn drain(&mut self) {
        let mut left = ROUND;
        while left > 0 {
            self.now += Duration::from_nanos(500);
            left -= self.worker.poll_once(self.now);
        }
    }

    /// Nanoseconds a datagram.
    pub fn time(&mut self) -> f64 {
        self.feed();
        time_each(ROUND, || self.drain())
    }

    /// Datagrams that the app has read.
    pub fn received(&self) -> u64 {
        self.worker.app().0.received
    }
}

/// Reception by a socket.
pub struct SocketReception {
    stack: Stack,
    id: SocketId,
    wire: Wire,
    /// Datagrams that were read.
    pub received: u64,
    digest: u64,
}

impl SocketReception {
    /// Joined, and nothing received.
    #[expect(clippy::new_without_default, reason = "it takes some milliseconds")]
    pub fn new() -> Self {
        let mut wire = Wire::new();
        let worker = worker(&mut wire.port, 1, OUR_MAC, Sockets::new(64), &wire.block);
        let stack = Stack::over(worker, Steps(Instant::ZERO));
        let to = group(0);
        let id = stack.call(|sockets, cx| {
            let id = sockets.socket(Kind::Datagram)?;
            let options = sockets::Options { receive_buffer: 8 << 20, ..sockets.options(id)? };
            sockets.set_options(id, &options, cx)?;
            sockets.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, to.port()), cx)?;
            sockets.join(id, *to.ip(), InterfaceId::ANY, None, cx).map(|()| id)
        });
        Self { stack, id: id.expect("a fresh table has room"), wire, received: 0, digest: 0 }
    }

    /// Fills the wire. Not measured.
    pub fn feed(&mut self) {
        self.wire.feed();
    }

    /// Measured: a call for each datagram, and a turn where there is none.
    pub fn drain(&mut self) {
        let (mut left, mut bytes) = (ROUND, [0; PAYLOAD_LEN]);
        while left > 0 {
            match self.stack.with_sockets(|sockets| sockets.recv_from(self.id, &mut bytes)) {
                Ok(_) => {
                    left -= 1;
                    self.received += 1;
                    let first = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                    self.digest = self.digest.wrapping_add(first);
                }
                Err(_) => _ = self.stack.turn(),
            }
        }
    }

    /// Nanoseconds a datagram.
    pub fn time(&mut self) -> f64 {
        self.feed();
        time_each(ROUND, || self.drain())
    }
}

/// An app that counts what comes, and sends it back where it is a server.
#[derive(Default)]
struct Talker {
    echoes: bool,
    received: usize,
    connection: Option<ConnectionId>,
}

impl App for Talker {
    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        if let TcpEvent::Connected { .. } = event {
            self.connection = Some(connection);
        }
    }

    #[inline]
    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        self.received += data.payload.len();
        if self.echoes {
            cx.tcp().send(data.connection, data.payload).expect("an echo is no longer than what the peer sent");
        }
    }
}

/// The server of an exchange.
pub const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80);

/// Request and response by two apps.
pub struct OwnExchange {
    client: HostWorker<Talker>,
    server: HostWorker<Talker>,
    now: Instant,
}

impl OwnExchange {
    /// Connected.
    #[expect(clippy::new_without_default, reason = "it takes some milliseconds")]
    pub fn new() -> Self {
        let (mut left, mut right) = pair("tcp", MemoryConfig::default());
        let block = Block::heap();
        let mut client = worker(&mut left, 1, OUR_MAC, Talker::default(), &block);
        let app = Talker { echoes: true, ..Talker::default() };
        let mut server = worker(&mut right, 2, SENDER_MAC, app, &block);
        let now = Instant::ZERO;
        server.with_app(now, |_, cx| cx.tcp().listen(SERVER, &ListenOptions::default()).expect("the port is free"));
        client.with_app(now, |_, cx| {
            let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            let options = ConnectionOptions::default();
            cx.tcp().connect(local, SERVER, &options, ConsumerId(1)).expect("the server is known")
        });
        let mut pair = Self { client, server, now };
        (0..10).for_each(|_| pair.turn());
        pair
    }

    fn turn(&mut self) {
        self.now += Duration::from_micros(1);
        self.server.poll_once(self.now);
        self.client.poll_once(self.now);
    }

    /// Measured: a request and its response.
    pub fn exchange(&mut self) {
        let before = self.client.app().received;
        self.client.with_app(self.now, |app, cx| {
            let connection = app.connection.expect("connected");
            cx.tcp().send(connection, &[7; MESSAGE_LEN]).expect("the connection is open");
        });
        self.turn();
        assert_eq!(self.client.app().received - before, MESSAGE_LEN, "the response is there at once");
    }

    /// Nanoseconds a request with its response.
    pub fn time(&mut self, count: usize) -> f64 {
        time_each(count, || (0..count).for_each(|_| self.exchange()))
    }
}

/// Request and response by two sockets.
pub struct SocketExchange<W = fn()> {
    client: (Stack, SocketId),
    server: (Stack, SocketId),
    /// Has the wire carry what is on it, where that is not memory.
    carry: W,
}

impl SocketExchange {
    /// Connected in plain memory.
    #[expect(clippy::new_without_default, reason = "it takes some milliseconds")]
    pub fn new() -> Self {
        let (mut left, mut right) = pair("tcp", MemoryConfig::default());
        Self::over(&mut left, &mut right, || ())
    }
}

/// The client's port, for rules of a NIC.
pub const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 81);

impl<W: FnMut()> SocketExchange<W> {
    /// Connected over two ports that a wire joins, at the ends [`CLIENT`] and [`SERVER`].
    pub fn over<D: Device<Queue: Queue<Rx: 'static, Tx: 'static>>>(left: &mut D, right: &mut D, mut carry: W) -> Self {
        let block = Block::heap();
        let stack = |worker| Stack::over(worker, Steps(Instant::ZERO));
        let client = stack(worker(left, 1, OUR_MAC, Sockets::new(64), &block));
        let server = stack(worker(right, 2, SENDER_MAC, Sockets::new(64), &block));
        let made = |stack: &Stack| {
            stack.call(|sockets, cx| {
                let id = sockets.socket(Kind::Stream)?;
                let options = sockets::Options { nodelay: true, ..sockets.options(id)? };
                sockets.set_options(id, &options, cx).map(|()| id)
            })
        };
        let listener = made(&server).expect("a fresh table has room");
        let ours = made(&client).expect("a fresh table has room");
        server.call(|sockets, cx| sockets.bind(listener, SERVER, cx)).expect("the address is ours");
        server.call(|sockets, cx| sockets.listen(listener, 8, cx)).expect("the port is free");
        client.call(|sockets, cx| sockets.bind(ours, CLIENT, cx)).expect("the address is ours");
        let _ = client.call(|sockets, cx| sockets.connect(ours, SERVER, cx));
        for _ in 0..10 {
            server.turn();
            carry();
            client.turn();
            carry();
        }
        let (theirs, _) = server.call(|sockets, _| sockets.accept(listener)).expect("it has connected");
        Self { client: (client, ours), server: (server, theirs), carry }
    }

    /// Measured: a request and its response, by two calls of each end.
    pub fn exchange(&mut self) {
        let Self { client: (client, ours), server: (server, theirs), carry } = self;
        let (request, mut answer) = ([7; MESSAGE_LEN], [0; MESSAGE_LEN]);
        client.call(|sockets, cx| sockets.send(*ours, &request, cx)).expect("the connection is open");
        carry();
        server.turn();
        let count = server.call(|sockets, cx| sockets.recv(*theirs, &mut answer, cx)).expect("the request is there");
        server.call(|sockets, cx| sockets.send(*theirs, &answer[..count], cx)).expect("the connection is open");
        carry();
        client.turn();
        let count = client.call(|sockets, cx| sockets.recv(*ours, &mut answer, cx)).expect("the response is there");
        assert_eq!(count, MESSAGE_LEN);
    }

    /// Nanoseconds a request with its response.
    pub fn time(&mut self, count: usize) -> f64 {
        time_each(count, || (0..count).for_each(|_| self.exchange()))
    }
}
