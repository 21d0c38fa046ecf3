//! MEMX's replays: requests over TCP, one after the other, and the messages on the same connection,
//! which go on to the worker as packets of the feed.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddrV4;

use arrayvec::ArrayVec;
use market::framing::memx_udp::{MemxHeader, MemxUdp};
use market::framing::{Framing, Session};
use market::memx::replay::{ClientMessage, LoginToken, REPLAY, ServerMessage};
use market::{RerequestRange, RetryPolicy};
use wirepath::counters::Counter;

use super::connection::Connection;
use super::link::PACKET_LEN_MAX;

/// Time between two attempts to connect.
const RETRY_NS: u64 = 1_000_000_000;
/// A heartbeat is sent after this time without another message.
const HEARTBEAT_NS: u64 = 1_000_000_000;
/// The server is dead after this silence.
const SILENCE_NS_MAX: u64 = 5_000_000_000;
/// Requests that wait for the one before them. What is beyond is requested again.
const WAITING_MAX: usize = 256;
/// Packets that wait for the worker; the rest waits in the socket.
const PACKETS_MAX: usize = 256;
/// Bytes of one call to read.
const READ_LEN: usize = 64 * 1024;
const ENDLESS: &str = "a replay has no end: it is given up, and the next one is requested on another connection";
const BODY_LEN_MAX: usize = PACKET_LEN_MAX - MemxUdp::HEADER_LEN;

/// The client of one server.
pub(super) struct Replays {
    server: SocketAddrV4,
    token: LoginToken,
    /// A replay that brings nothing for so long has no end: the worker has given its hole up, and
    /// other requests wait behind it.
    patience_ns: u64,
    not_before_ns: u64,
    line: Option<Line>,
    waiting: VecDeque<Replay>,
    packets: VecDeque<ArrayVec<u8, PACKET_LEN_MAX>>,
}

/// A request, and which channel has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Replay {
    channel: u32,
    session: u64,
    range: RerequestRange,
}

/// A connection.
struct Line {
    connection: Connection,
    bytes: Vec<u8>,
    sent_ns: u64,
    heard_ns: u64,
    /// The active session, once the server has said it.
    session: Option<u64>,
    current: Option<Replay>,
    /// When the current request was sent, or its replay brought something last.
    moved_ns: u64,
    packet: Packet,
}

/// Messages of a replay on their way into a packet.
#[derive(Default)]
struct Packet {
    /// Number of the next message, once the replay has begun.
    next: Option<u64>,
    count: u16,
    body: ArrayVec<u8, BODY_LEN_MAX>,
}

impl Replays {
    pub(super) fn new(server: SocketAddrV4, token: LoginToken, retry: &RetryPolicy) -> Self {
        let (patience_ns, waiting, packets) = (retry.unanswered_ns(), VecDeque::new(), VecDeque::new());
        Self { server, token, patience_ns, not_before_ns: 0, line: None, waiting, packets }
    }

    /// Asks for messages, behind what was asked for before. `NotConnected` until the login is
    /// accepted: the request is made again after its timeout.
    pub(super) fn send(&mut self, channel: u32, session: Session, range: RerequestRange) -> io::Result<()> {
        let line = self.line.as_ref().filter(|line| line.session.is_some()).ok_or(ErrorKind::NotConnected)?;
        let replay = Replay { channel, session: session.0 as u64, range };
        if line.current != Some(replay) && !self.waiting.contains(&replay) && self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(replay);
        }
        Ok(())
    }

    /// Connects where that is due, reads what has come and asks for what waits: passes channel and
    /// first number of each refusal to `refused`. `endless` counts the replays that have no end.
    pub(super) fn poll(&mut self, now_ns: u64, endless: &Counter, mut refused: impl FnMut(u32, u64)) -> io::Result<()> {
        let Some(line) = &mut self.line else {
            if now_ns >= self.not_before_ns {
                self.not_before_ns = now_ns.saturating_add(RETRY_NS);
                self.line = Some(Line::connect(self.server, now_ns)?);
            }
            return Ok(());
        };
        let outcome = if self.packets.len() < PACKETS_MAX {
            line.poll(&self.token, now_ns)
                .and_then(|()| line.take(&mut self.packets, now_ns, &mut refused))
                .and_then(|()| line.ask(&mut self.waiting, now_ns, &mut refused))
        } else {
            Ok(())
        };
        if outcome.is_err() {
            self.line = None;
            self.waiting.clear();
            return outcome;
        }
        if line.is_stuck(now_ns, self.patience_ns) {
            // What such a server sends next may belong to this request or to the next one, so that
            // one is made on another connection.
            self.line = None;
            endless.inc();
            return Err(io::Error::other(ENDLESS));
        }
        Ok(())
    }

    /// The next packet of a replay.
    pub(super) fn next(&mut self) -> Option<ArrayVec<u8, PACKET_LEN_MAX>> {
        self.packets.pop_front()
    }
}

impl Line {
    fn connect(server: SocketAddrV4, now_ns: u64) -> io::Result<Self> {
        Ok(Self {
            connection: Connection::begin(server)?,
            bytes: Vec::with_capacity(2 * READ_LEN),
            sent_ns: now_ns,
            heard_ns: now_ns,
            session: None,
            current: None,
            moved_ns: now_ns,
            packet: Packet::default(),
        })
    }

    fn is_stuck(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.current.is_some() && now_ns.saturating_sub(self.moved_ns) >= patience_ns
    }

    fn send(&mut self, message: &ClientMessage, now_ns: u64) -> io::Result<()> {
        self.sent_ns = now_ns;
        self.connection.stream().ok_or(ErrorKind::NotConnected)?.write_all(&message.emit())
    }

    fn poll(&mut self, token: &LoginToken, now_ns: u64) -> io::Result<()> {
        if self.connection.established()?.is_some() {
            self.heard_ns = now_ns;
            self.send(&ClientMessage::Login(token.clone()), now_ns)?;
        }
        let Some(stream) = self.connection.stream() else { return Ok(()) };
        let start = self.bytes.len();
        self.bytes.resize(start + READ_LEN, 0);
        let read = stream.read(&mut self.bytes[start..]);
        self.bytes.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => self.heard_ns = now_ns,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if now_ns.saturating_sub(self.heard_ns) >= SILENCE_NS_MAX {
            return Err(ErrorKind::TimedOut.into());
        }
        if now_ns.saturating_sub(self.sent_ns) >= HEARTBEAT_NS {
            self.send(&ClientMessage::Heartbeat, now_ns)?;
        }
        Ok(())
    }

    /// Takes the messages that have come whole.
    fn take(
        &mut self,
        packets: &mut VecDeque<ArrayVec<u8, PACKET_LEN_MAX>>,
        now_ns: u64,
        refused: &mut impl FnMut(u32, u64),
    ) -> io::Result<()> {
        let Self { bytes, session, current, moved_ns, packet, .. } = self;
        let mut rest = &bytes[..];
        while let Some((message, behind)) = ServerMessage::split(rest) {
            rest = behind;
            match message {
                ServerMessage::LoginAccepted { mode: REPLAY } => {}
                ServerMessage::LoginAccepted { mode } => {
                    let mode = mode.escape_ascii();
                    return Err(io::Error::other(format!("it takes no requests for replays: its mode is {mode}")));
                }
                ServerMessage::LoginRejected { reason } => {
                    return Err(io::Error::other(format!("the login was refused: {}", reason.escape_ascii())));
                }
                ServerMessage::StartOfSession { session: active } => *session = Some(active),
                ServerMessage::EndOfSession => *session = None,
                ServerMessage::ReplayBegin { seq, .. } => {
                    *moved_ns = now_ns;
                    *packet = Packet { next: Some(seq), ..Packet::default() };
                }
                ServerMessage::Sequenced(message) => {
                    *moved_ns = now_ns;
                    if let Some(replay) = current {
                        packet.push(replay.session, message, packets)?;
                    }
                }
                ServerMessage::ReplayComplete | ServerMessage::ReplayRejected { .. } => {
                    if let Some(replay) = current.take() {
                        packet.finish(replay.session, packets);
                        if message != ServerMessage::ReplayComplete {
                            refused(replay.channel, replay.range.seq);
                        }
                    }
                    *packet = Packet::default();
                }
                ServerMessage::Heartbeat | ServerMessage::Other => {}
            }
        }
        let taken = bytes.len() - rest.len();
        bytes.drain(..taken);
        Ok(())
    }

    /// Sends the next request, where no other is under way.
    fn ask(
        &mut self,
        waiting: &mut VecDeque<Replay>,
        now_ns: u64,
        refused: &mut impl FnMut(u32, u64),
    ) -> io::Result<()> {
        let (Some(active), None) = (self.session, self.current) else { return Ok(()) };
        let Some(replay) = waiting.pop_front() else { return Ok(()) };
        let Replay { channel, session, range } = replay;
        if session != active {
            refused(channel, range.seq);
            return Ok(());
        }
        (self.current, self.moved_ns) = (Some(replay), now_ns);
        let RerequestRange { seq, count } = range;
        self.send(&ClientMessage::ReplayRequest { session, seq, count: count.into() }, now_ns)
    }
}

impl Packet {
    /// Adds a message of a replay that has begun; a packet that it does not fit goes first.
    fn push(
        &mut self,
        session: u64,
        message: &[u8],
        packets: &mut VecDeque<ArrayVec<u8, PACKET_LEN_MAX>>,
    ) -> io::Result<()> {
        let Some(next) = self.next else { return Ok(()) };
        let len = MemxUdp::PREFIX_LEN + message.len();
        if len > BODY_LEN_MAX {
            return Err(io::Error::other("a message is longer than any packet of the feed"));
        }
        if self.body.remaining_capacity() < len {
            self.finish(session, packets);
        }
        self.body.extend((message.len() as u16).to_be_bytes());
        self.body.extend(message.iter().copied());
        (self.next, self.count) = (Some(next.saturating_add(1)), self.count + 1);
        Ok(())
    }

    /// Passes on what there is as a packet.
    fn finish(&mut self, session: u64, packets: &mut VecDeque<ArrayVec<u8, PACKET_LEN_MAX>>) {
        let Some(next) = self.next.filter(|_| self.count > 0) else { return };
        let seq = next - u64::from(self.count);
        let header = MemxHeader { kind: MemxHeader::SEQUENCED, session, seq, count: self.count };
        let mut packet = ArrayVec::from_iter([0; MemxUdp::HEADER_LEN]);
        MemxUdp::emit_raw(&header, self.count.into(), self.body.len(), &mut packet);
        packet.extend(self.body.drain(..));
        packets.push_back(packet);
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

    use wirepath::counters::{Block, Unit};

    use super::*;

    const SESSION: u64 = 20_261_128;
    const MILLISECOND: u64 = 1_000_000;

    /// The server's side of one connection, behind its login.
    struct Server {
        stream: TcpStream,
        bytes: Vec<u8>,
    }

    impl Server {
        fn accept(listener: &TcpListener) -> Self {
            let (mut stream, _) = listener.accept().unwrap();
            let mut out = Vec::new();
            ServerMessage::LoginAccepted { mode: REPLAY }.emit(&mut out);
            ServerMessage::StartOfSession { session: SESSION }.emit(&mut out);
            stream.write_all(&out).unwrap();
            Self { stream, bytes: Vec::new() }
        }

        /// The first number of the next request.
        fn request(&mut self) -> u64 {
            loop {
                while let Some((message, rest)) = ClientMessage::split(&self.bytes) {
                    self.bytes = rest.to_vec();
                    if let Some(ClientMessage::ReplayRequest { seq, .. }) = message {
                        return seq;
                    }
                }
                let mut room = [0; 512];
                let len = self.stream.read(&mut room).unwrap();
                assert_ne!(len, 0, "the client has gone");
                self.bytes.extend_from_slice(&room[..len]);
            }
        }

        fn say(&mut self, messages: &[ServerMessage<'_>]) {
            let mut out = Vec::new();
            messages.iter().for_each(|message| message.emit(&mut out));
            self.stream.write_all(&out).unwrap();
        }
    }

    /// Polls at `now_ns` until `is_done`.
    fn poll(replays: &mut Replays, now_ns: u64, endless: &Counter, is_done: impl Fn(&Replays) -> bool) -> Vec<String> {
        let (mut said, until) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        while !is_done(replays) {
            assert!(Instant::now() < until, "nothing happens");
            let polled = replays.poll(now_ns, endless, |_, seq| panic!("{seq} is refused"));
            said.extend(polled.err().map(|error| error.to_string()));
            thread::yield_now();
        }
        said
    }

    #[test]
    fn replay_without_an_end_is_given_up_and_the_next_one_is_requested() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("an IPv4 address") };
        let endless = Block::heap().scope("answers").counter("endless_replays", Unit::Events);
        let token = LoginToken::new(b'P', "USER:SECRET").unwrap();
        let retry = RetryPolicy { delay_ns: 0, timeout_ns: 10 * MILLISECOND, attempts: 10, ..RetryPolicy::default() };
        let mut replays = Replays::new(address, token, &retry);
        let server = thread::spawn(move || {
            let mut server = Server::accept(&listener);
            assert_eq!(server.request(), 5);
            // It goes on to say that it lives, and not with the messages.
            server.say(&[ServerMessage::ReplayBegin { seq: 5, count: 2 }, ServerMessage::Sequenced(b"five")]);
            server.say(&[ServerMessage::Heartbeat]);
            let mut next = Server::accept(&listener);
            assert_eq!(next.request(), 9);
            next.say(&[ServerMessage::ReplayBegin { seq: 9, count: 1 }, ServerMessage::Sequenced(b"nine")]);
            next.say(&[ServerMessage::ReplayComplete]);
            // Both connections stay.
            (server, next)
        });
        let is_open = |replays: &Replays| replays.line.as_ref().is_some_and(|line| line.session.is_some());
        poll(&mut replays, 0, &endless, is_open);
        for seq in [5, 9] {
            replays.send(0, Session(SESSION.into()), RerequestRange { seq, count: 2 }).unwrap();
        }
        let has_begun = |replays: &Replays| replays.line.as_ref().is_some_and(|line| line.packet.count == 1);
        assert_eq!(poll(&mut replays, 0, &endless, has_begun), [""; 0]);
        assert_eq!(poll(&mut replays, 100 * MILLISECOND, &endless, |replays| replays.line.is_none()), [ENDLESS]);
        assert_eq!(endless.get(), 1);
        // The next attempt is due a second behind the first.
        assert_eq!(poll(&mut replays, RETRY_NS, &endless, |replays| !replays.packets.is_empty()), [""; 0]);
        let packet = replays.next().unwrap();
        assert_eq!(MemxUdp::parse(&packet).unwrap().messages().collect::<Vec<_>>(), [b"nine"]);
        drop(server.join().unwrap());
    }
}
