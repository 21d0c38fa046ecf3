//! The port for FIX: connections whose Logon says whose they are, and a session for each account
//! that outlives them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::SystemTime;

use order_entry::fix::codec::{FieldIndex, Frame, Message, frame};
use order_entry::fix::orders::{CancelRequest, Defect, NewOrderSingle, ReplaceRequest};
use order_entry::fix::session::{Event, MemoryStore, Now, Role, SendError, Session, SessionConfig, Version};
use order_entry::soupbin::{Credentials, SessionId};

use super::{CONNECTIONS_MAX, SILENT_NS_MAX, Served};
use crate::venue::{Effect, Venue};

/// The venue's SenderCompID (49).
const COMP_ID: &str = "EXCHANGE";
/// Who has not logged on after this time is dropped.
const LOGON_NS_MAX: u64 = 10_000_000_000;
/// Bytes of one call to read.
const READ_LEN: usize = 16 * 1024;
/// Bytes that wait for the session; a Logon fits.
const INPUT_MAX: usize = 64 * 1024;
/// Messages that a session keeps for resends, and their bytes: a long day's for one account.
const STORE: (usize, usize) = (1 << 18, 64 << 20);
/// Tags of the Logon.
const SENDER_COMP_ID: u32 = 49;
const PASSWORD: u32 = 554;

/// All of FIX.
pub(super) struct FixPort {
    listener: TcpListener,
    /// Of each account, once it has logged on.
    sessions: Vec<Option<Peer>>,
    connections: Vec<Connection>,
    index: FieldIndex,
}

/// An account's session.
struct Peer {
    session: Session<MemoryStore>,
    version: Version,
    /// Answers of the account that have a number.
    position: usize,
}

/// A connection, perhaps without a session yet.
struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    account: Option<usize>,
    since_ns: u64,
    /// Since when nothing is read or sent: an injected fault.
    silent_ns: Option<u64>,
}

/// The connection is over; why, where the peer broke a rule.
struct End(Option<String>);

impl FixPort {
    pub(super) fn open(address: SocketAddrV4, accounts: usize) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let sessions = (0..accounts).map(|_| None).collect();
        Ok(Self { listener, sessions, connections: Vec::new(), index: FieldIndex::new(64) })
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// One turn over all connections. True where one had something.
    pub(super) fn turn(&mut self, venue: &mut Venue, taken: &mut [bool], now_ns: u64, served: &mut Served) -> bool {
        let mut is_busy = self.accept(now_ns, served);
        for mut connection in std::mem::take(&mut self.connections) {
            match self.poll(&mut connection, venue, taken, now_ns) {
                Ok(busy) => {
                    is_busy |= busy;
                    self.connections.push(connection);
                }
                Err(End(rule)) => {
                    is_busy = true;
                    served.violations += u64::from(rule.is_some());
                    served.violation = served.violation.take().or(rule);
                    self.ended(&connection, venue, taken, now_ns);
                }
            }
        }
        is_busy
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
                let (input, account, silent_ns) = (Vec::new(), None, None);
                self.connections.push(Connection { stream, input, account, since_ns: now_ns, silent_ns });
            }
        }
        self.connections.len() > before
    }

    fn ended(&mut self, connection: &Connection, venue: &mut Venue, taken: &mut [bool], now_ns: u64) {
        let Some(account) = connection.account else { return };
        // A silent one's session may be another connection's by now.
        if connection.silent_ns.is_none() {
            if let Some(peer) = &mut self.sessions[account] {
                peer.session.disconnected();
            }
            taken[account] = false;
            venue.disconnected(account, now_ns);
        }
    }

    fn poll(
        &mut self,
        connection: &mut Connection,
        venue: &mut Venue,
        taken: &mut [bool],
        now_ns: u64,
    ) -> Result<bool, End> {
        if let Some(since_ns) = connection.silent_ns {
            return if now_ns - since_ns < SILENT_NS_MAX { Ok(false) } else { Err(End(None)) };
        }
        let has_read = connection.read()?;
        if connection.account.is_none() {
            if now_ns - connection.since_ns >= LOGON_NS_MAX {
                return Err(End(Some("no Logon in time".to_owned())));
            }
            if !self.identify(connection, venue, taken, now_ns)? {
                return Ok(has_read);
            }
        }
        let Some(account) = connection.account else { return Ok(has_read) };
        let Some(peer) = &mut self.sessions[account] else { return Ok(has_read) };
        let effect = peer.take(&mut connection.input, venue, account, now_ns);
        let has_packed = peer.pack(venue, account, now(now_ns))?;
        match effect {
            Ok(Effect::None) => {}
            // The answers have their numbers, and do not leave: the peer asks for them later.
            Ok(Effect::Break) => return Err(End(None)),
            Ok(Effect::GoSilent) => {
                connection.silent_ns = Some(now_ns);
                peer.session.disconnected();
                taken[account] = false;
                venue.disconnected(account, now_ns);
                return Ok(true);
            }
            Err(end) => {
                let _ = connection.write(&mut peer.session);
                return Err(end);
            }
        }
        Ok(connection.write(&mut peer.session)? || has_read || has_packed)
    }

    /// Finds whose connection it is by its first message. False while that is not whole.
    fn identify(
        &mut self,
        connection: &mut Connection,
        venue: &Venue,
        taken: &mut [bool],
        now_ns: u64,
    ) -> Result<bool, End> {
        let refused = || End(Some("the first message must be a Logon of an account".to_owned()));
        let len = match frame(&connection.input, INPUT_MAX) {
            Frame::Incomplete => return Ok(false),
            Frame::Message { len } => len,
            Frame::Garbled { .. } => return Err(refused()),
        };
        let logon = self.index.parse(&connection.input[..len]).map_err(|_| refused())?;
        let version = version_of(&logon).ok_or_else(refused)?;
        let account = account_of(&logon, venue).ok_or_else(refused)?;
        if taken[account] {
            // A standby must not enter orders beside the first.
            return Err(End(None));
        }
        let peer = self.sessions[account].get_or_insert_with(|| {
            let target = String::from_utf8_lossy(logon.get(SENDER_COMP_ID).unwrap_or_default()).into_owned();
            Peer::new(version, target)
        });
        peer.session.connected(now(now_ns));
        taken[account] = true;
        connection.account = Some(account);
        Ok(true)
    }

    /// Logs out of all sessions, at the end of the day.
    pub(super) fn end_of_day(&mut self, now_ns: u64) {
        for connection in &mut self.connections {
            let account = connection.account.filter(|_| connection.silent_ns.is_none());
            if let Some(peer) = account.and_then(|account| self.sessions[account].as_mut()) {
                peer.session.logout(now(now_ns), "end of the day");
                // The last attempt: who does not read now finds the connection closed.
                let _ = connection.write(&mut peer.session);
            }
        }
    }
}

impl Peer {
    fn new(version: Version, target: String) -> Self {
        let config = SessionConfig {
            version,
            role: Role::Acceptor,
            sender: COMP_ID.to_owned(),
            target,
            supported_types: ["D", "F", "G"].map(str::to_owned).into(),
            ..SessionConfig::default()
        };
        Self { session: Session::new(config, MemoryStore::new(STORE.0, STORE.1)), version, position: 0 }
    }

    /// Gives the session what was read, and the venue the requests that come of it.
    fn take(&mut self, input: &mut Vec<u8>, venue: &mut Venue, account: usize, now_ns: u64) -> Result<Effect, End> {
        let now = now(now_ns);
        loop {
            let len = self.session.receive(now, input);
            input.drain(..len);
            while let Some(event) = self.session.poll(now) {
                let (message, seq) = match event {
                    Event::Message { message, seq, .. } => (message, seq),
                    Event::Disconnect(end) => return Err(End(Some(end.to_string()))),
                    _ => continue,
                };
                let msg_type = message.msg_type().to_vec();
                match request(&message, venue, account, now_ns) {
                    Ok(Effect::None) => {}
                    Ok(effect) => return Ok(effect),
                    Err(defect) => {
                        let rejected = self.session.reject(now, &msg_type, seq, defect);
                        rejected.map_err(|error| End(Some(error.to_string())))?;
                    }
                }
            }
            if len == 0 {
                return Ok(Effect::None);
            }
        }
    }

    /// Numbers the account's new answers, as many as fit.
    fn pack(&mut self, venue: &Venue, account: usize, now: Now) -> Result<bool, End> {
        let before = self.position;
        let answers = venue.accounts()[account].fix_answers();
        while let Some(answer) = answers.get(self.position).filter(|_| self.session.is_logged_on()) {
            let write = |out: &mut order_entry::fix::codec::Writer<'_>| answer.write(self.version, now.utc_ns, out);
            match self.session.send(now, answer.msg_type(), write) {
                Ok(_) => self.position += 1,
                Err(SendError::OutputFull) => break,
                Err(error) => return Err(End(Some(error.to_string()))),
            }
        }
        Ok(self.position > before)
    }
}

impl Connection {
    fn read(&mut self) -> Result<bool, End> {
        if self.input.len() >= INPUT_MAX {
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

    fn write(&mut self, session: &mut Session<MemoryStore>) -> Result<bool, End> {
        if session.output().is_empty() {
            return Ok(false);
        }
        match self.stream.write(session.output()) {
            Ok(len) => session.consume(len),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(_) => return Err(End(None)),
        }
        Ok(true)
    }
}

/// A message of the application, as one of the venue's requests.
fn request(message: &Message<'_>, venue: &mut Venue, account: usize, now_ns: u64) -> Result<Effect, Defect> {
    match message.msg_type() {
        b"D" => NewOrderSingle::parse(message).map(|order| venue.fix_new(account, &order, now_ns)),
        b"F" => CancelRequest::parse(message).map(|cancel| venue.fix_cancel(account, &cancel, now_ns)),
        b"G" => ReplaceRequest::parse(message).map(|replace| venue.fix_replace(account, &replace, now_ns)),
        // The session refuses other types.
        _ => Ok(Effect::None),
    }
}

fn version_of(logon: &Message<'_>) -> Option<Version> {
    let versions = [Version::Fix42, Version::Fix44, Version::Fix50Sp2];
    versions.into_iter().find(|version| version.begin_string().as_bytes() == logon.begin_string())
}

fn account_of(logon: &Message<'_>, venue: &Venue) -> Option<usize> {
    let text = |tag| logon.get(tag).and_then(|value| std::str::from_utf8(value).ok());
    let login = Credentials::new(text(SENDER_COMP_ID)?, text(PASSWORD)?)?.login(SessionId::BLANK, 1);
    venue.accounts().iter().position(|account| account.settings().credentials.match_login(&login))
}

fn now(now_ns: u64) -> Now {
    let utc = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Now { steady_ns: now_ns, utc_ns: utc.as_nanos() as u64 }
}
