//! The re-request server of MoldUDP64: a receiver that missed messages requests them and gets them
//! by unicast.
//!
//! ```text
//!   publisher ── packets as made ──> [bounded queue] ──> archive ─┐
//!   receiver ── request (session, sequence, count) ──> check ─────┴─> one packet back to the requester
//! ```
//!
//! The server has a thread and a socket of its own; the publisher only hands packets over and never
//! waits for the server. An answer is one packet with as many of the messages as fit, as the
//! specification says; the receiver requests the others again. A request that cannot be answered is
//! counted by its reason. A request of 20 bytes brings up to one MTU back, which is why each
//! address has a rate limit (`requesters`).

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use market::framing::FramingError;
use market::framing::mold_udp64::Request;

use crate::archive::Archive;
use crate::error::Error;
use crate::packetizer::Packet;
use crate::requesters::{Admission, Pace, Requesters};
use crate::settings::Settings;

/// How long the thread waits for a request before it takes packets from the queue.
const READ_TIMEOUT: Duration = Duration::from_millis(10);
/// Packets queued for the thread: 50 ms of a million packets a second, five times what accumulates
/// in [`READ_TIMEOUT`].
const QUEUE_LEN: usize = 50_000;
/// The long-run rate limit of one address: a thousand packets, some 30,000 messages a second.
const REQUEST_INTERVAL_NS: u64 = 1_000_000;
/// Requests at once: a lost millisecond of the densest opening is some hundred packets.
const REQUEST_BURST: u64 = 256;

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
    /// Requests answered.
    pub answered: u64,
    /// Messages in the answers.
    pub messages: u64,
    /// Answers that the kernel did not send.
    pub unsent: u64,
    /// Requests refused, by [`Refusal`].
    pub refused: [u64; Refusal::NAMES.len()],
    /// Packets that were not kept because the server's thread got no processor time for too long.
    pub unkept: u64,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Fewer than 20 bytes.
    Short,
    /// More than 20 bytes.
    Long,
    /// The request names another session.
    OtherSession,
    /// Numbers begin at 1.
    SequenceZero,
    /// The message is not sent yet.
    Future,
    /// The message is older than the kept ones.
    TooOld,
    /// No message was requested.
    CountZero,
    /// 0xFFFF is the end of the session and no count.
    CountLarge,
    /// The address exceeds its rate.
    TooOften,
    /// Too many addresses at once.
    TooMany,
}

impl Refusal {
    /// In the order of the reasons.
    pub const NAMES: [&'static str; 10] = [
        "short",
        "long",
        "other_session",
        "sequence_zero",
        "future",
        "too_old",
        "count_zero",
        "count_large",
        "too_often",
        "too_many_requesters",
    ];
}

impl RerequestCounts {
    /// Requests refused for a reason.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }
}

impl fmt::Display for RerequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused: u64 = self.refused.iter().sum();
        write!(f, "{} requests answered with {} messages, {refused} refused", self.answered, self.messages)?;
        for (name, count) in Refusal::NAMES.iter().zip(self.refused).filter(|(_, count)| *count > 0) {
            write!(f, ", {name} {count}")?;
        }
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
    while handler.keep_packets() {
        let Ok((len, asker)) = receive(socket, &mut request) else { continue };
        // Packets that were published before the request arrived are kept before it is checked.
        handler.keep_packets();
        let now_ns = started.elapsed().as_nanos() as u64;
        let Some(answer) = handler.answer(&request[..len], asker, now_ns) else { continue };
        if socket.send_to(answer, asker).is_err() {
            handler.counts.unsent += 1;
        }
    }
    handler.counts
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

/// Checks requests and builds answers. Has no socket and no clock.
struct RequestHandler {
    packets: Receiver<Arc<Packet>>,
    archive: Archive,
    requesters: Requesters,
    session: [u8; 10],
    out: Vec<u8>,
    counts: RerequestCounts,
}

impl RequestHandler {
    fn new(settings: &Settings, own: &RerequestSettings, packets: Receiver<Arc<Packet>>) -> Self {
        Self {
            packets,
            archive: Archive::new(own.messages),
            requesters: Requesters::new(Pace { interval_ns: REQUEST_INTERVAL_NS, burst: REQUEST_BURST }),
            session: settings.session.bytes(),
            out: vec![0; settings.payload_max()],
            counts: RerequestCounts::default(),
        }
    }

    /// Takes queued packets, one queue length at most. False once the publisher has stopped.
    fn keep_packets(&mut self) -> bool {
        for _ in 0..QUEUE_LEN {
            match self.packets.try_recv() {
                Ok(packet) => self.archive.keep(packet),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    /// The answer to a datagram, if it is a valid request.
    fn answer(&mut self, datagram: &[u8], asker: SocketAddr, now_ns: u64) -> Option<&[u8]> {
        let judged = self.judge(datagram).and_then(|request| self.admit(asker, now_ns).map(|()| request));
        let request = match judged {
            Ok(request) => request,
            Err(reason) => {
                self.counts.refused[reason as usize] += 1;
                return None;
            }
        };
        let answer = self.archive.emit(self.session, request.seq, request.count, &mut self.out);
        self.counts.answered += 1;
        self.counts.messages += u64::from(u16::from_be_bytes([answer[18], answer[19]]));
        Some(answer)
    }

    fn judge(&self, datagram: &[u8]) -> Result<Request, Refusal> {
        let request = Request::parse(datagram).map_err(|error| match error {
            FramingError::HeaderShort { .. } => Refusal::Short,
            _ => Refusal::Long,
        })?;
        if request.session != self.session {
            return Err(Refusal::OtherSession);
        }
        match request.count {
            0 => return Err(Refusal::CountZero),
            u16::MAX => return Err(Refusal::CountLarge),
            _ => {}
        }
        match request.seq {
            0 => Err(Refusal::SequenceZero),
            seq if seq >= self.archive.end() => Err(Refusal::Future),
            seq if seq < self.archive.begin() => Err(Refusal::TooOld),
            _ => Ok(request),
        }
    }

    fn admit(&mut self, asker: SocketAddr, now_ns: u64) -> Result<(), Refusal> {
        // The socket is one of IPv4.
        let address = match asker.ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        match self.requesters.admit(address, now_ns) {
            Admission::Granted => Ok(()),
            Admission::TooOften => Err(Refusal::TooOften),
            Admission::TooMany => Err(Refusal::TooMany),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::tests::packet;
    use market::framing::Framing;
    use market::framing::mold_udp64::MoldUdp64;
    use proptest::prelude::*;

    const ASKER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1234);

    /// A handler that keeps the messages 4 to 8 of nine; the ninth was made and is not sent yet.
    fn handler() -> (RequestHandler, SyncSender<Arc<Packet>>) {
        let settings = Settings { session: "SESSION000".parse().unwrap(), ..Settings::default() };
        let own = RerequestSettings { address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), messages: 5 };
        let (queue, packets) = sync_channel(10);
        for (sequence, count) in [(1, 3), (4, 1), (5, 4)] {
            queue.send(packet(sequence, count)).unwrap();
        }
        let mut handler = RequestHandler::new(&settings, &own, packets);
        assert!(handler.keep_packets());
        (handler, queue)
    }

    fn request(seq: u64, count: u16) -> Request {
        Request { session: *b"SESSION000", seq, count }
    }

    fn refused(datagram: &[u8], reason: Refusal) {
        let (mut handler, _queue) = handler();
        assert_eq!(handler.answer(datagram, ASKER, 0), None, "{reason:?}");
        assert_eq!(handler.counts.refused(reason), 1, "{reason:?}: {}", handler.counts);
        assert_eq!(handler.counts.refused.iter().sum::<u64>(), 1);
    }

    #[test]
    fn hostile_requests_are_counted_by_their_reason() {
        refused(&[], Refusal::Short);
        refused(&request(5, 1).emit()[..19], Refusal::Short);
        refused(&[0; 21], Refusal::Long);
        refused(&Request { session: *b"SESSION001", ..request(5, 1) }.emit(), Refusal::OtherSession);
        refused(&request(0, 1).emit(), Refusal::SequenceZero);
        refused(&request(9, 1).emit(), Refusal::Future);
        refused(&request(u64::MAX, 5).emit(), Refusal::Future);
        refused(&request(3, 5).emit(), Refusal::TooOld);
        refused(&request(5, 0).emit(), Refusal::CountZero);
        refused(&request(5, u16::MAX).emit(), Refusal::CountLarge);
    }

    #[test]
    fn request_is_answered_with_what_is_there() {
        let (mut handler, _queue) = handler();
        let answer = MoldUdp64::parse(handler.answer(&request(7, 100).emit(), ASKER, 0).unwrap()).unwrap();
        assert_eq!((answer.header.seq, answer.header.count), (7, 2));
        assert_eq!((handler.counts.answered, handler.counts.messages), (1, 2));
    }

    #[test]
    fn address_that_asks_too_often_is_refused_until_it_has_waited() {
        let (mut handler, _queue) = handler();
        let mut ask = |now_ns| handler.answer(&request(5, 1).emit(), ASKER, now_ns).is_some();
        assert_eq!((0..2 * REQUEST_BURST).filter(|_| ask(0)).count() as u64, REQUEST_BURST);
        assert!(ask(REQUEST_INTERVAL_NS));
        assert_eq!(handler.counts.refused(Refusal::TooOften), REQUEST_BURST);
    }

    #[test]
    fn refused_requests_cost_no_pace() {
        let (mut handler, _queue) = handler();
        for _ in 0..2 * REQUEST_BURST {
            handler.answer(&request(0, 1).emit(), ASKER, 0);
        }
        assert!(handler.answer(&request(5, 1).emit(), ASKER, 0).is_some());
    }

    #[test]
    fn desk_closes_when_the_publisher_has_gone() {
        let (mut handler, queue) = handler();
        drop(queue);
        assert!(!handler.keep_packets());
    }

    proptest! {
        #[test]
        fn any_request_brings_one_sound_packet_or_one_count(
            requests in prop::collection::vec((any_request(), any::<u8>(), 0..2_000_000_u64), 1..200),
        ) {
            let (mut handler, _queue) = handler();
            let payload_max = handler.out.len();
            let mut now_ns = 0_u64;
            for (datagram, asker, later_ns) in &requests {
                now_ns += later_ns;
                let asker = SocketAddr::new(Ipv4Addr::new(10, 0, 0, *asker).into(), 1);
                let Some(answer) = handler.answer(datagram, asker, now_ns) else { continue };
                prop_assert!(answer.len() <= payload_max);
                let asked = Request::parse(datagram).unwrap();
                let packet = MoldUdp64::parse(answer).unwrap();
                prop_assert_eq!(packet.header.seq, asked.seq);
                prop_assert!(packet.header.count <= u32::from(asked.count) && packet.header.end() <= 9);
                prop_assert_eq!(packet.messages().count(), packet.header.count as usize);
            }
            let refused: u64 = handler.counts.refused.iter().sum();
            prop_assert_eq!(handler.counts.answered + refused, requests.len() as u64);
        }
    }

    /// Most are for messages that are kept, or near them; some are random bytes.
    fn any_request() -> impl Strategy<Value = Vec<u8>> {
        let near = (0..12_u64, any::<u16>()).prop_map(|(seq, count)| request(seq, count).emit().to_vec());
        let far = (any::<u64>(), any::<u16>()).prop_map(|(seq, count)| request(seq, count).emit().to_vec());
        prop_oneof![8 => near, 2 => far, 1 => prop::collection::vec(any::<u8>(), 0..24)]
    }
}
