//! The re-request server of MoldUDP64: a receiver that missed messages requests them and gets them
//! by unicast.
//!
//! ```text
//!   publisher ── packets as made ──> [bounded queue] ──> archive ─┐
//!   receiver ── request (session, sequence, count) ──> check ─────┴─> one packet back to the requester
//! ```
//!
//! The server has a thread and a socket of its own; the publisher only hands packets over and never
//! waits for the server. What is answered is decided by [`market::rerequest_server`].

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use market::framing::mold_udp64::Request;
use market::rerequest_server::{Bounds, Pace, RerequestServer, ServerConfig, ServerCounts};

use crate::error::Error;
use crate::packetizer::Packet;
use crate::settings::Settings;

/// How long the thread waits for a request before it takes packets from the queue.
const READ_TIMEOUT: Duration = Duration::from_millis(10);
/// Packets queued for the thread: 50 ms of a million packets a second, five times what accumulates
/// in [`READ_TIMEOUT`].
const QUEUE_LEN: usize = 50_000;
/// The rate of one address: a thousand packets a second, some 30,000 messages. A lost millisecond
/// of the densest opening is some hundred packets.
const PACE: Pace = Pace { interval_ns: 1_000_000, burst: 256 };

/// The server's address and capacity.
#[derive(Clone, Debug)]
pub struct RerequestSettings {
    /// Its address and port.
    pub address: SocketAddrV4,
    /// The least number of newest messages that the server keeps. Each costs its bytes and, where
    /// packets have one message only, some 150 bytes more.
    pub messages: u64,
}

impl RerequestSettings {
    /// A second of the densest rates, ten seconds of usual ones: up to 200 MB.
    pub const MESSAGES_DEFAULT: u64 = 1_000_000;
}

/// Parses the server's address.
pub fn parse_server_address(text: &str) -> Result<SocketAddrV4, String> {
    const FORM: &str = "use ADDRESS:PORT such as 127.0.0.1:26478, or 0.0.0.0:26478 for all addresses of this host";
    match text.parse::<SocketAddrV4>() {
        Ok(address) if address.port() == 0 => Err(format!("port 0 cannot be reached; {FORM}")),
        Ok(address) => Ok(address),
        Err(_) => Err(format!("not an IPv4 address and port; {FORM}")),
    }
}

/// The outcomes of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RerequestCounts {
    /// What was answered and what was refused.
    pub requests: ServerCounts,
    /// Answers that the kernel did not send.
    pub unsent: u64,
    /// Packets that were not kept because the server's thread got no processor time for too long.
    pub unkept: u64,
}

impl fmt::Display for RerequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests.fmt(f)?;
        if self.unsent + self.unkept > 0 {
            write!(f, "; {} answers not sent, {} packets not kept", self.unsent, self.unkept)?;
        }
        Ok(())
    }
}

/// The publisher's handle of the server.
#[derive(Debug)]
pub(crate) struct Server {
    queue: SyncSender<Arc<Packet>>,
    unkept: u64,
    thread: JoinHandle<RerequestCounts>,
}

impl Server {
    /// Binds the socket and starts the thread.
    pub(crate) fn start(settings: &Settings, own: &RerequestSettings) -> Result<Self, Error> {
        let failed = |error| Error::Socket {
            what: format!("cannot answer re-requests at {} (name a free port of this host)", own.address),
            error,
        };
        let socket = UdpSocket::bind(own.address).map_err(failed)?;
        socket.set_read_timeout(Some(READ_TIMEOUT)).map_err(failed)?;
        let (queue, packets) = sync_channel(QUEUE_LEN);
        let handler = RequestHandler::new(settings, own, packets);
        let thread = thread::Builder::new().name("rerequest".into()).spawn(move || serve(&socket, handler));
        let thread = thread.map_err(|error| Error::System(format!("cannot start the re-request thread: {error}")))?;
        Ok(Self { queue, unkept: 0, thread })
    }

    /// Hands over a packet of data that is being published. Never waits: where the queue is full
    /// the packet is not kept.
    pub(crate) fn keep(&mut self, packet: Arc<Packet>) {
        self.unkept += u64::from(self.queue.try_send(packet).is_err());
    }

    /// Ends it.
    pub(crate) fn stop(self) -> RerequestCounts {
        drop(self.queue);
        let counts = self.thread.join().expect("the re-request server does not panic, whatever is asked");
        RerequestCounts { unkept: self.unkept, ..counts }
    }
}

/// Answers until the publisher has stopped.
fn serve(socket: &UdpSocket, mut handler: RequestHandler) -> RerequestCounts {
    // One byte more than a request shows that one is too long.
    let mut request = [0; Request::LEN + 1];
    let started = Instant::now();
    let mut unsent = 0;
    while handler.keep_packets() {
        let Ok((len, asker)) = receive(socket, &mut request) else { continue };
        // Packets that were published before the request arrived are kept before it is checked.
        handler.keep_packets();
        let now_ns = started.elapsed().as_nanos() as u64;
        // The socket is one of IPv4.
        let address = match asker.ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let Some(answer) = handler.server.answer(&request[..len], address, now_ns) else { continue };
        unsent += u64::from(socket.send_to(answer, asker).is_err());
    }
    RerequestCounts { requests: *handler.server.counts(), unsent, unkept: 0 }
}

fn receive(socket: &UdpSocket, request: &mut [u8]) -> Result<(usize, SocketAddr), ErrorKind> {
    socket.recv_from(request).map_err(|error| {
        let kind = error.kind();
        if !matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) {
            // An error such as lack of memory: there is nothing to answer, and no reason to spin.
            thread::sleep(READ_TIMEOUT);
        }
        kind
    })
}

/// The machine, and the queue of what it keeps.
struct RequestHandler {
    packets: Receiver<Arc<Packet>>,
    server: RerequestServer<Packet>,
}

impl RequestHandler {
    fn new(settings: &Settings, own: &RerequestSettings, packets: Receiver<Arc<Packet>>) -> Self {
        let config = ServerConfig {
            session: settings.session.bytes(),
            packet_len_max: settings.payload_max(),
            messages: own.messages,
            pace: PACE,
            bounds: Bounds::Silent,
        };
        Self { packets, server: RerequestServer::new(&config) }
    }

    /// Takes queued packets, one queue length at most. False once the publisher has stopped.
    fn keep_packets(&mut self) -> bool {
        for _ in 0..QUEUE_LEN {
            match self.packets.try_recv() {
                Ok(packet) => self.server.keep(packet),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_ends_when_the_publisher_has_gone() {
        let own = RerequestSettings { address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), messages: 5 };
        let (queue, packets) = sync_channel(10);
        let mut handler = RequestHandler::new(&Settings::default(), &own, packets);
        assert!(handler.keep_packets());
        drop(queue);
        assert!(!handler.keep_packets());
    }
}
