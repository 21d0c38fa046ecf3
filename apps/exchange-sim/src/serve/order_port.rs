//! A port for orders by a protocol whose sessions outlive their connections: the first message of a
//! connection says whose it is, and the account's session goes on with it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};

use super::{CONNECTIONS_MAX, SILENT_NS_MAX, Served};
use crate::venue::{Effect, Venue};

/// Who has not logged on after this time is dropped.
const LOGON_NS_MAX: u64 = 10_000_000_000;
/// Bytes of one call to read.
const READ_LEN: usize = 16 * 1024;
/// Bytes that wait for the session; a login fits.
const INPUT_MAX: usize = 64 * 1024;
/// Bytes that wait for a slow reader; then its messages wait in the venue.
pub(super) const OUTPUT_MAX: usize = 256 * 1024;

/// The venue's time, and that of the day's begin since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) now_ns: u64,
    pub(super) epoch_ns: u64,
}

impl Clock {
    /// Nanoseconds since 1970.
    pub(super) const fn utc_ns(self) -> u64 {
        self.epoch_ns + self.now_ns
    }
}

/// What a session works with.
pub(super) struct Cx<'a> {
    pub(super) venue: &'a mut Venue,
    pub(super) account: usize,
    pub(super) clock: Clock,
}

/// The connection is over; why, where the peer broke a rule.
#[derive(Debug)]
pub(super) struct End(pub(super) Option<String>);

impl End {
    /// The peer broke a rule.
    pub(super) fn rule(error: impl ToString) -> Self {
        Self(Some(error.to_string()))
    }
}

/// Whose connection it is, by its first message.
#[derive(Debug)]
pub(super) enum Identified {
    /// The message is not whole.
    Incomplete,
    /// This account's.
    Account(usize),
    /// Nobody's; the rule that was broken.
    Nobody(&'static str),
}

/// Why a login is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginRefusal {
    /// No account has these credentials.
    NotAuthorized,
    /// A standby must not enter orders beside the first.
    InUse,
}

/// An account's session by one protocol.
pub(super) trait OrderSession: Sized {
    /// Whether it enters orders. Of those an account has one connection over all ports, else one at
    /// each port.
    const IS_FOR_ORDERS: bool = true;

    /// Whose connection it is. Takes nothing of `input`.
    fn identify(input: &[u8], venue: &Venue) -> Identified;

    /// The answer to a login that is refused; empty where the protocol answers with the end of the
    /// connection.
    fn refuse(input: &[u8], reason: LoginRefusal) -> Vec<u8>;

    /// The session of an account whose first login is `input`.
    fn new(input: &[u8]) -> Self;

    /// The account has a connection, whose login is taken next.
    fn connected(&mut self, cx: &mut Cx<'_>);

    /// Takes what was read.
    fn take(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<Effect, End>;

    /// Sends what is due, and the account's new answers, as many as fit. True where something was.
    fn send(&mut self, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<bool, End>;

    /// The connection is gone.
    fn disconnected(&mut self);

    /// Ends the session, at the end of the day.
    fn end(&mut self, output: &mut Vec<u8>, clock: Clock);
}

/// What a turn over the connections works with.
pub(super) struct Turn<'a> {
    pub(super) venue: &'a mut Venue,
    /// Accounts with a connection for orders that is alive.
    pub(super) taken: &'a mut [bool],
    pub(super) served: &'a mut Served,
    pub(super) clock: Clock,
}

/// A port, whatever its protocol.
pub(super) trait AnyPort: Send {
    /// One turn over all connections. True where one had something.
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool;

    /// Ends all sessions.
    fn end(&mut self, clock: Clock);
}

/// All of one protocol.
pub(super) struct OrderPort<S> {
    listener: TcpListener,
    /// Of each account, once it has logged on.
    sessions: Vec<Option<S>>,
    connections: Vec<Connection>,
    /// Accounts with a connection here, where it is not for orders.
    taken: Vec<bool>,
}

/// A connection, perhaps without a session yet.
struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    account: Option<usize>,
    since_ns: u64,
    /// Since when nothing is read or sent: an injected fault.
    silent_ns: Option<u64>,
}

impl<S: OrderSession> OrderPort<S> {
    pub(super) fn open(address: SocketAddrV4, accounts: usize) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let sessions = (0..accounts).map(|_| None).collect();
        Ok(Self { listener, sessions, connections: Vec::new(), taken: vec![false; accounts] })
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn accept(&mut self, now_ns: u64, served: &mut Served) -> bool {
        let before = self.connections.len();
        while let Ok((stream, _)) = self.listener.accept() {
            served.connections += 1;
            if self.connections.len() == CONNECTIONS_MAX {
                served.refused += 1;
                continue;
            }
            // A socket that cannot be set up is closed: its peer tries again.
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok() {
                let (input, output) = (Vec::new(), Vec::new());
                let (account, silent_ns) = (None, None);
                self.connections.push(Connection { stream, input, output, account, since_ns: now_ns, silent_ns });
            }
        }
        self.connections.len() > before
    }

    fn ended(&mut self, connection: &Connection, turn: &mut Turn<'_>) {
        let Some(account) = connection.account else { return };
        // A silent one's session may be another connection's by now.
        if connection.silent_ns.is_none() {
            self.lost(account, turn);
        }
    }

    /// An account is without its connection.
    fn lost(&mut self, account: usize, turn: &mut Turn<'_>) {
        if let Some(session) = &mut self.sessions[account] {
            session.disconnected();
        }
        *self.taken(account, turn) = false;
        if S::IS_FOR_ORDERS {
            turn.venue.disconnected(account, turn.clock.now_ns);
        }
    }

    /// Whether an account has its connection.
    fn taken<'a>(&'a mut self, account: usize, turn: &'a mut Turn<'_>) -> &'a mut bool {
        if S::IS_FOR_ORDERS { &mut turn.taken[account] } else { &mut self.taken[account] }
    }

    fn poll(&mut self, connection: &mut Connection, turn: &mut Turn<'_>) -> Result<bool, End> {
        let now_ns = turn.clock.now_ns;
        if let Some(since_ns) = connection.silent_ns {
            return if now_ns - since_ns < SILENT_NS_MAX { Ok(false) } else { Err(End(None)) };
        }
        let has_read = connection.read()?;
        if connection.account.is_none() && !self.identify(connection, turn)? {
            return Ok(has_read);
        }
        let Some(account) = connection.account else { return Ok(has_read) };
        let Some(session) = &mut self.sessions[account] else { return Ok(has_read) };
        let cx = &mut Cx { venue: turn.venue, account, clock: turn.clock };
        let effect = session.take(&mut connection.input, &mut connection.output, cx);
        let has_sent = session.send(&mut connection.output, cx);
        match effect {
            Ok(Effect::None) => {}
            // The answers have their numbers, and do not leave: the peer asks for them later.
            Ok(Effect::Break) => return Err(End(None)),
            Ok(Effect::GoSilent) => {
                connection.silent_ns = Some(now_ns);
                self.lost(account, turn);
                return Ok(true);
            }
            Err(end) => {
                let _ = connection.write();
                return Err(end);
            }
        }
        let has_sent = has_sent.inspect_err(|_| drop(connection.write()))?;
        Ok(connection.write()? || has_read || has_sent)
    }

    /// Finds whose connection it is by its first message. False while that is not whole.
    fn identify(&mut self, connection: &mut Connection, turn: &mut Turn<'_>) -> Result<bool, End> {
        let (account, refusal) = match S::identify(&connection.input, turn.venue) {
            Identified::Incomplete if turn.clock.now_ns - connection.since_ns >= LOGON_NS_MAX => {
                return Err(End::rule("no login in time"));
            }
            Identified::Incomplete => return Ok(false),
            Identified::Account(account) if *self.taken(account, turn) => (None, Some((LoginRefusal::InUse, None))),
            Identified::Account(account) => (Some(account), None),
            Identified::Nobody(rule) => (None, Some((LoginRefusal::NotAuthorized, Some(rule)))),
        };
        if let Some((reason, rule)) = refusal {
            connection.output = S::refuse(&connection.input, reason);
            let _ = connection.write();
            return Err(End(rule.map(str::to_owned)));
        }
        let Some(account) = account else { return Ok(false) };
        let session = self.sessions[account].get_or_insert_with(|| S::new(&connection.input));
        session.connected(&mut Cx { venue: turn.venue, account, clock: turn.clock });
        *self.taken(account, turn) = true;
        connection.account = Some(account);
        Ok(true)
    }
}

impl<S: OrderSession + Send> AnyPort for OrderPort<S> {
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut is_busy = self.accept(turn.clock.now_ns, turn.served);
        for mut connection in std::mem::take(&mut self.connections) {
            match self.poll(&mut connection, turn) {
                Ok(busy) => {
                    is_busy |= busy;
                    self.connections.push(connection);
                }
                Err(End(rule)) => {
                    is_busy = true;
                    turn.served.violations += u64::from(rule.is_some());
                    turn.served.violation = turn.served.violation.take().or(rule);
                    self.ended(&connection, turn);
                }
            }
        }
        is_busy
    }

    fn end(&mut self, clock: Clock) {
        for connection in &mut self.connections {
            let account = connection.account.filter(|_| connection.silent_ns.is_none());
            if let Some(session) = account.and_then(|account| self.sessions[account].as_mut()) {
                session.end(&mut connection.output, clock);
                // The last attempt: who does not read now finds the connection closed.
                let _ = connection.write();
            }
        }
    }
}

impl Connection {
    /// Reads where there is room for what is read and for its answers: who asks on without reading
    /// the answers waits.
    fn read(&mut self) -> Result<bool, End> {
        if self.input.len() >= INPUT_MAX || self.output.len() >= OUTPUT_MAX {
            return Ok(false);
        }
        let mut buffer = [0; READ_LEN];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(End(None)),
            Ok(len) => {
                self.input.extend_from_slice(&buffer[..len]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(_) => Err(End(None)),
        }
    }

    fn write(&mut self) -> Result<bool, End> {
        if self.output.is_empty() {
            return Ok(false);
        }
        match self.stream.write(&self.output) {
            Ok(len) => drop(self.output.drain(..len)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(_) => return Err(End(None)),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn who_does_not_read_the_answers_is_not_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
        peer.write_all(b"more").expect("it is open");
        let (stream, _) = listener.accept().expect("it has come");
        let (input, output) = (Vec::new(), vec![0; OUTPUT_MAX]);
        let mut connection = Connection { stream, input, output, account: None, since_ns: 0, silent_ns: None };
        assert!(matches!(connection.read(), Ok(false)));
        connection.output.clear();
        assert!(matches!(connection.read(), Ok(true)));
    }
}
