//! [`Service`]: a publisher and its re-request server with their kernel sockets. One thread does
//! both: nothing of it is the feed's.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddrV4, UdpSocket};

use market::framing::mold_udp64::Request;
use market::rerequest_server::{Bounds, Pace, Refusal, RerequestServer, ServerConfig, ServerCounts};
use market_ring::RingReader;
use wirepath::counters::{Block, Counter, Scope, Unit};
use wirepath::proto::Ipv4Prefix;

use crate::publisher::{End, Outgoing, PACKET_LEN_MAX, Publisher, PublisherCounts, draw_session};

/// Packets that a turn sends before it looks for requests, and requests that it looks at then: a
/// flood of them takes a bounded part of the time.
const PACKETS_PER_TURN: usize = 64;
const REQUESTS_PER_TURN: usize = 16;

/// Where a service sends, and whom it answers.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    /// The group and port of the feed.
    pub group: SocketAddrV4,
    /// An address of the interface that sends, with its network: only addresses of that network are
    /// answered.
    pub from: Ipv4Prefix,
    /// Routers that packets may pass. By default 1: none.
    pub ttl: u32,
    /// Listeners on this host get the packets too.
    pub loopback: bool,
    /// The port of the re-request server, at `from`. By default none.
    pub rerequest: Option<u16>,
    /// Messages that it keeps at least.
    pub kept: u64,
    /// How often each address is answered.
    pub pace: Pace,
}

impl ServiceConfig {
    /// A service that sends from an address to a group, and answers no requests.
    pub const fn new(group: SocketAddrV4, from: Ipv4Prefix) -> Self {
        let (pace, kept) = (Self::PACE, Self::KEPT);
        Self { group, from, ttl: 1, loopback: false, rerequest: None, kept, pace }
    }

    /// A second of the densest rates: some 150 MB.
    pub const KEPT: u64 = 1_000_000;
    /// 5,000 answers a second, which are 55,000 messages and 60 Mbit/s to each address.
    pub const PACE: Pace = Pace { interval_ns: 200_000, burst: 256 };
}

/// What a turn was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There may be more to do at once.
    Busy,
    /// Nothing came: a caller may sleep for a moment.
    Idle,
    /// All is sent, the end of the session too.
    Ended(End),
}

/// A service could not be started.
#[derive(Debug)]
pub struct ServiceError {
    what: String,
    error: io::Error,
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl std::error::Error for ServiceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// See the [module's text](crate).
pub struct Service {
    ring: RingReader,
    publisher: Publisher,
    /// What the kernel did not take yet.
    unsent: Option<Outgoing>,
    group: UdpSocket,
    requests: Option<Requests>,
    counters: PublisherCounters,
    /// Why the kernel refuses packets, while it does.
    why_unsent: Option<String>,
}

impl Service {
    /// Opens the sockets; publishes what is in the ring, as far as it is safe, and what comes.
    pub fn start(
        config: &ServiceConfig,
        mut ring: RingReader,
        now_ns: u64,
        block: &Block,
    ) -> Result<Self, ServiceError> {
        ring.rewind();
        let publisher = Publisher::new(draw_session(), now_ns);
        let requests = config.rerequest.map(|port| Requests::open(config, port, publisher.session(), block));
        Ok(Self {
            ring,
            publisher,
            unsent: None,
            group: open_group(config)?,
            requests: requests.transpose()?,
            counters: PublisherCounters::new(&block.scope("publisher")),
            why_unsent: None,
        })
    }

    /// Goes on with the next ring, after [`Turn::Ended`], in a session of its own. Nothing of the
    /// old one is sent again.
    pub fn follow(&mut self, mut ring: RingReader, now_ns: u64) {
        ring.rewind();
        (self.ring, self.publisher) = (ring, Publisher::new(draw_session(), now_ns));
        if let Some(requests) = &mut self.requests {
            requests.begin(self.publisher.session());
        }
    }

    /// What has been sent in this session.
    pub fn counts(&self) -> &PublisherCounts {
        self.publisher.counts()
    }

    /// What was requested in this session.
    pub fn requests(&self) -> ServerCounts {
        self.requests.as_ref().map(|requests| *requests.server.counts()).unwrap_or_default()
    }

    /// Why the kernel refuses packets, where it does.
    pub fn why_unsent(&self) -> Option<&str> {
        self.why_unsent.as_deref()
    }

    /// Sends what is in the ring, and answers: bounded work, that waits for nobody.
    pub fn turn(&mut self, now_ns: u64) -> Turn {
        let before = *self.publisher.counts();
        let mut sent = 0;
        while sent < PACKETS_PER_TURN && self.send_next(now_ns) {
            sent += 1;
        }
        self.counters.add(&before, self.publisher.counts());
        let has_answered = self.requests.as_mut().is_some_and(|requests| requests.answer(now_ns));
        match self.publisher.end() {
            Some(end) if self.unsent.is_none() => Turn::Ended(end),
            _ if sent > 0 || has_answered => Turn::Busy,
            _ => Turn::Idle,
        }
    }

    /// Whether a packet was sent. One for which the kernel has no room waits, and the ring with it.
    fn send_next(&mut self, now_ns: u64) -> bool {
        let packet = match self.unsent.take() {
            Some(packet) => packet,
            None => {
                let Some(packet) = self.publisher.next_packet(&mut self.ring, now_ns) else { return false };
                if let (Some(requests), Outgoing::Data(bytes)) = (&mut self.requests, &packet) {
                    requests.server.keep(bytes.clone());
                }
                packet
            }
        };
        match self.group.send(packet.bytes()) {
            Ok(_) => self.why_unsent = None,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.unsent = Some(packet);
                return false;
            }
            // It is lost, and may be requested.
            Err(error) => {
                self.counters.unsent.inc();
                self.why_unsent = Some(error.to_string());
            }
        }
        true
    }
}

/// The socket that sends: Linux uses the interface of a socket's bound address for multicast
/// (`ip_route_output_key`, the saddr case).
fn open_group(config: &ServiceConfig) -> Result<UdpSocket, ServiceError> {
    let from = config.from.address();
    let failed = |error| ServiceError {
        what: format!(
            "cannot send from {from} to {} (name an address of this host, see `ip -4 address`)",
            config.group
        ),
        error,
    };
    let socket = UdpSocket::bind((from, 0)).map_err(failed)?;
    socket.set_multicast_ttl_v4(config.ttl).map_err(failed)?;
    socket.set_multicast_loop_v4(config.loopback).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    socket.connect(config.group).map_err(failed)?;
    Ok(socket)
}

/// The re-request server.
struct Requests {
    socket: UdpSocket,
    network: Ipv4Prefix,
    config: ServerConfig,
    server: RerequestServer<[u8]>,
    counters: RequestCounters,
}

impl Requests {
    fn open(config: &ServiceConfig, port: u16, session: [u8; 10], block: &Block) -> Result<Self, ServiceError> {
        let address = SocketAddrV4::new(config.from.address(), port);
        let failed =
            |error| ServiceError { what: format!("cannot answer re-requests at {address} (name a free port)"), error };
        let socket = UdpSocket::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let (packet_len_max, bounds) = (PACKET_LEN_MAX, Bounds::Heartbeat);
        let own = ServerConfig { session, packet_len_max, messages: config.kept, pace: config.pace, bounds };
        let counters = RequestCounters::new(&block.scope("requests"));
        Ok(Self { socket, network: config.from, config: own, server: RerequestServer::new(&own), counters })
    }

    /// Forgets the packets of the last session.
    fn begin(&mut self, session: [u8; 10]) {
        self.config.session = session;
        self.server = RerequestServer::new(&self.config);
    }

    /// Whether a request came.
    fn answer(&mut self, now_ns: u64) -> bool {
        // One byte more than a request shows that one is too long.
        let mut request = [0; Request::LEN + 1];
        let mut has_come = false;
        for _ in 0..REQUESTS_PER_TURN {
            let Ok((len, asker)) = self.socket.recv_from(&mut request) else { break };
            has_come = true;
            let IpAddr::V4(address) = asker.ip() else { continue };
            if !self.network.contains(address) {
                self.counters.other_network.inc();
                continue;
            }
            let before = *self.server.counts();
            if let Some(answer) = self.server.answer(&request[..len], address, now_ns)
                && self.socket.send_to(answer, asker).is_err()
            {
                self.counters.unsent.inc();
            }
            self.counters.add(&before, self.server.counts());
        }
        has_come
    }
}

/// [`PublisherCounts`] for `wirepath stats`.
struct PublisherCounters {
    records: Counter,
    missed: Counter,
    packets: Counter,
    heartbeats: Counter,
    /// Packets that the kernel refused.
    unsent: Counter,
}

impl PublisherCounters {
    fn new(scope: &Scope) -> Self {
        Self {
            records: scope.counter("records", Unit::Events),
            missed: scope.counter("missed", Unit::Events),
            packets: scope.counter("packets", Unit::Datagrams),
            heartbeats: scope.counter("heartbeats", Unit::Datagrams),
            unsent: scope.counter("unsent", Unit::Datagrams),
        }
    }

    fn add(&self, before: &PublisherCounts, after: &PublisherCounts) {
        self.records.add(after.records - before.records);
        self.missed.add(after.missed - before.missed);
        self.packets.add(after.packets - before.packets);
        self.heartbeats.add(after.heartbeats - before.heartbeats);
    }
}

/// [`ServerCounts`] for `wirepath stats`.
struct RequestCounters {
    answered: Counter,
    messages: Counter,
    /// Answers that the kernel refused.
    unsent: Counter,
    /// By [`Refusal`].
    refused: [Counter; Refusal::NAMES.len()],
    /// Requests from other networks.
    other_network: Counter,
}

impl RequestCounters {
    fn new(scope: &Scope) -> Self {
        Self {
            answered: scope.counter("answered", Unit::Datagrams),
            messages: scope.counter("messages", Unit::Events),
            unsent: scope.counter("unsent", Unit::Datagrams),
            refused: Refusal::NAMES.map(|name| scope.drop_counter(name, Unit::Datagrams)),
            other_network: scope.drop_counter("other_network", Unit::Datagrams),
        }
    }

    fn add(&self, before: &ServerCounts, after: &ServerCounts) {
        self.answered.add(after.answered - before.answered);
        self.messages.add(after.messages - before.messages);
        for (counter, (before, after)) in self.refused.iter().zip(before.refused.iter().zip(after.refused)) {
            counter.add(after - before);
        }
    }
}
