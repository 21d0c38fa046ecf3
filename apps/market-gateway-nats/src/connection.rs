//! A connection to a server, over a kernel socket that blocks for a bounded time.

use core::hash::{BuildHasher, Hasher};
use std::hash::RandomState;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::login::NatsServer;
use crate::wire::{self, ServerMessage};

/// How long a server may take to be connected, and to take what is sent.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that one call reads at most.
const READ_LEN: usize = 256 * 1024;
/// Bytes that were sent and stay in front of those that wait: these move once for so many.
const SENT_KEPT_MAX: usize = 1 << 20;

/// A connection after the greeting.
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of `output` that the kernel has taken.
    sent: usize,
    room: Box<[u8]>,
    /// Of this connection's inboxes. Drawn, because the subjects of a server are everyone's: with a
    /// name that another connection has too, each gets the answers of both.
    prefix: String,
    subscriptions: u64,
}

/// A subject to which answers come, to this connection and to no other.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    /// The subject.
    pub subject: String,
    /// The number of its subscription.
    pub subscription: u64,
}

/// Subjects to which numbered answers come, to this connection and to no other.
#[derive(Clone, Debug, Default)]
pub struct NumberedInbox {
    prefix: String,
}

impl NumberedInbox {
    /// The subject for the answer to a message of this number.
    pub fn subject(&self, number: u64) -> String {
        format!("{}.{number}", self.prefix)
    }

    /// The number of the message that is answered on this subject; `None` where it is not one of
    /// this inbox.
    pub fn number(&self, subject: &str) -> Option<u64> {
        subject.strip_prefix(self.prefix.as_str())?.strip_prefix('.')?.parse().ok()
    }
}

impl Connection {
    /// Connects and logs in, and waits until the server answers.
    pub fn open(server: &NatsServer) -> io::Result<Self> {
        let mut addresses = server.address.to_socket_addrs()?;
        let address = addresses.next().ok_or_else(|| io::Error::other("the name has no address"))?;
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let room = vec![0; READ_LEN].into_boxed_slice();
        let [high, low] = [0; 2].map(|_: u8| RandomState::new().build_hasher().finish());
        let prefix = format!("_INBOX.{high:016x}{low:016x}");
        let (input, output) = (Vec::new(), Vec::new());
        let mut connection = Self { stream, input, output, sent: 0, room, prefix, subscriptions: 0 };
        let options = server.login.options();
        connection.output.extend_from_slice(format!("CONNECT {options}\r\n").as_bytes());
        connection.flush(|_| ())?;
        Ok(connection)
    }

    /// Queues a message; `reply` may be empty.
    pub fn publish(&mut self, subject: &str, reply: &str, headers: &[(&str, &str)], payload: &[u8]) {
        wire::publish(&mut self.output, subject, reply, headers, payload);
    }

    /// Queues a subscription, and returns its number.
    pub fn subscribe(&mut self, subject: &str) -> u64 {
        self.subscriptions += 1;
        self.output.extend_from_slice(format!("SUB {subject} {}\r\n", self.subscriptions).as_bytes());
        self.subscriptions
    }

    /// Queues the subscription of an inbox. JetStream delivers to no subject that is subscribed by
    /// a wildcard, so this one is exact.
    pub fn open_inbox(&mut self) -> Inbox {
        let subject = self.next_inbox();
        let subscription = self.subscribe(&subject);
        Inbox { subject, subscription }
    }

    /// Queues the subscription of an inbox for many answers.
    pub fn open_numbered_inbox(&mut self) -> NumberedInbox {
        let prefix = self.next_inbox();
        self.subscribe(&format!("{prefix}.*"));
        NumberedInbox { prefix }
    }

    fn next_inbox(&self) -> String {
        format!("{}.{}", self.prefix, self.subscriptions + 1)
    }

    /// Bytes that are queued.
    pub fn queued(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Sends what is queued, and waits for the server to take it, five seconds at most.
    pub fn write_queued(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output[self.sent..])?;
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Sends what is queued, and waits until the server has obeyed it, five seconds at most, by a
    /// PING and its PONG, as a flush of NATS' own clients does: a subscription then has what other
    /// connections publish from now on. `each` gets the messages that come meanwhile.
    pub fn flush(&mut self, mut each: impl FnMut(ServerMessage<'_>)) -> io::Result<()> {
        self.output.extend_from_slice(b"PING\r\n");
        self.write_queued()?;
        let (mut is_confirmed, until) = (false, Instant::now() + PATIENCE);
        while !is_confirmed {
            if Instant::now() > until {
                return Err(ErrorKind::TimedOut.into());
            }
            self.poll(Duration::from_millis(100), |told| match told {
                ServerMessage::Pong => is_confirmed = true,
                other => each(other),
            })?;
        }
        Ok(())
    }

    /// Sends of what is queued as much as the server takes at once, and waits for nobody.
    pub fn write_queued_some(&mut self) -> io::Result<()> {
        if self.queued() == 0 {
            return Ok(());
        }
        self.stream.set_nonblocking(true)?;
        let written = write_some(&mut self.stream, &self.output[self.sent..]);
        self.stream.set_nonblocking(false)?;
        self.sent += written?;
        if self.queued() == 0 {
            self.output.clear();
            self.sent = 0;
        } else if self.sent >= SENT_KEPT_MAX {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Reads once, for `wait` at most, and shows what came. PINGs are answered, where `wait` is
    /// zero as far as the server takes the answers at once.
    pub fn poll(&mut self, wait: Duration, mut each: impl FnMut(ServerMessage<'_>)) -> io::Result<()> {
        let Some(len) = self.read(wait)? else { return Ok(()) };
        if len == 0 {
            return Err(ErrorKind::ConnectionReset.into());
        }
        self.input.extend_from_slice(&self.room[..len]);
        let mut taken = 0;
        while let Some((told, len)) = wire::parse(&self.input[taken..]).map_err(io::Error::other)? {
            match told {
                ServerMessage::Ping => self.output.extend_from_slice(b"PONG\r\n"),
                ServerMessage::Error(sentence) => return Err(io::Error::other(format!("the server says {sentence}"))),
                other => each(other),
            }
            taken += len;
        }
        self.input.drain(..taken);
        if wait.is_zero() { self.write_queued_some() } else { self.write_queued() }
    }

    /// Bytes that came; `None` where none did in time.
    fn read(&mut self, wait: Duration) -> io::Result<Option<usize>> {
        let is_zero = wait.is_zero();
        if is_zero {
            self.stream.set_nonblocking(true)?;
        } else {
            self.stream.set_read_timeout(Some(wait))?;
        }
        let read = self.stream.read(&mut self.room);
        if is_zero {
            self.stream.set_nonblocking(false)?;
        }
        match read {
            Ok(len) => Ok(Some(len)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// Bytes that a stream that does not block has taken.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        match stream.write(&bytes[taken..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => taken += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}
