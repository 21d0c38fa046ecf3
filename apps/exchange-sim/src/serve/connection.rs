//! One TCP connection: SoupBinTCP over a socket that never blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use order_entry::ouch::OuchError;
use order_entry::session::Output;
use order_entry::soupbin::{
    LoginRejectReason, LoginRequest, Server, ServerConfig, ServerEvent, SessionId, SoupError, judge_login,
};

use crate::venue::{Account, Effect, MessageLog, Venue};

/// Bytes that wait for a slow reader; then its messages wait in the account.
const PENDING_MAX: usize = 256 * 1024;
/// Bytes of one call to read.
const READ_LEN: usize = 16 * 1024;
/// Room for the longest packet that the venue sends.
const PACKET_ROOM: usize = 256;

/// A session that a fault tells of.
const OTHER_SESSION: &str = "OTHER";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Orders,
    /// Orders by OUCH 4.2.
    Orders42,
    DropCopy,
}

impl Port {
    pub(super) fn is_for_orders(self) -> bool {
        self != Self::DropCopy
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The peer closed it, or reset it.
    Closed,
    /// The peer logged out, or its login was refused.
    Done,
    /// A fault that was injected.
    Fault,
    /// The peer broke a rule of the session.
    Session(SoupError),
    /// The peer sent what is no message.
    Message(OuchError),
    /// The peer sent a message on the drop copy.
    ReadOnly,
    /// The file of the account's messages cannot be read.
    Unreadable(io::Error),
}

impl From<SoupError> for End {
    fn from(error: SoupError) -> Self {
        Self::Session(error)
    }
}

/// A connection and its session.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    soup: Server,
    pub(super) port: Port,
    /// Whose it is, once logged in.
    pub(super) account: Option<usize>,
    /// Messages of the account that are sent.
    position: usize,
    pending: Vec<u8>,
    /// Since when nothing is read or sent: an injected fault.
    pub(super) silent_ns: Option<u64>,
}

/// What all connections share.
pub(super) struct Shared<'a> {
    pub(super) venue: &'a mut Venue,
    pub(super) session: SessionId,
    /// Accounts with a connection for orders that is alive.
    pub(super) taken: &'a mut [bool],
    pub(super) now_ns: u64,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, port: Port, now_ns: u64) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut soup = Server::new(ServerConfig::default());
        soup.connected(now_ns);
        Ok(Self { stream, soup, port, account: None, position: 0, pending: Vec::new(), silent_ns: None })
    }

    /// Reads, answers and sends what can be without waiting. True where something was.
    pub(super) fn poll(&mut self, shared: &mut Shared<'_>) -> Result<bool, End> {
        if self.silent_ns.is_some() {
            return Ok(false);
        }
        let has_read = self.read(shared)?;
        if self.silent_ns.is_some() {
            return Ok(true);
        }
        self.tick(shared.now_ns)?;
        let has_packed = self.pack(shared)?;
        Ok(self.write()? || has_read || has_packed)
    }

    fn read(&mut self, shared: &mut Shared<'_>) -> Result<bool, End> {
        let mut buffer = [0; READ_LEN];
        let len = match self.stream.read(&mut buffer) {
            Ok(0) => return Err(End::Closed),
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(_) => return Err(End::Closed),
        };
        let mut input = &buffer[..len];
        loop {
            match self.soup.receive(shared.now_ns, &mut input)? {
                None => return Ok(true),
                Some(ServerEvent::Login(login)) => self.login(&login, shared)?,
                Some(ServerEvent::Logout) => return Err(End::Done),
                Some(ServerEvent::Unsequenced(message)) => {
                    let Some(account) = self.account else { continue };
                    let effect = match self.port {
                        Port::Orders => shared.venue.receive(account, message, shared.now_ns),
                        Port::Orders42 => shared.venue.receive_42(account, message, shared.now_ns),
                        Port::DropCopy => return Err(End::ReadOnly),
                    };
                    match effect {
                        Ok(Effect::None) => {}
                        Ok(Effect::Break) => return Err(End::Fault),
                        Ok(Effect::GoSilent) => {
                            self.silent_ns = Some(shared.now_ns);
                            shared.taken[account] = false;
                            shared.venue.disconnected(account, shared.now_ns);
                            return Ok(true);
                        }
                        Err(error) => return Err(End::Message(error)),
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn login(&mut self, login: &LoginRequest, shared: &mut Shared<'_>) -> Result<(), End> {
        let mut bytes = [0; PACKET_ROOM];
        let mut output = Output::new(&mut bytes);
        let judged = self.judge(login, shared);
        match judged {
            Ok((account, number)) => {
                // The messages are the right ones: only the number that is told is off.
                let off = shared.venue.login_surprise();
                let told = number.checked_add_signed(off).filter(|&told| told > 0);
                let told = told.unwrap_or(number + off.unsigned_abs());
                // Who names no session takes any, and would go on with one that is none.
                let names_one = !SessionId::from_wire(login.session).is_blank();
                let (session, told) = match names_one && shared.venue.has_new_session() {
                    true => (SessionId::new(OTHER_SESSION).unwrap_or(SessionId::BLANK), 1),
                    false => (shared.session, told),
                };
                self.soup.accept(shared.now_ns, session, told, &mut output)?;
                (self.account, self.position) = (Some(account), number as usize - 1);
                if self.port.is_for_orders() {
                    shared.taken[account] = true;
                }
            }
            Err(reason) => self.soup.reject(shared.now_ns, reason, &mut output)?,
        }
        self.pending.extend_from_slice(output.written());
        if judged.is_err() {
            self.write()?;
            return Err(End::Done);
        }
        Ok(())
    }

    /// The account and the number of the first message that it wants.
    fn judge(&self, login: &LoginRequest, shared: &Shared<'_>) -> Result<(usize, u64), LoginRejectReason> {
        for (idx, account) in shared.venue.accounts().iter().enumerate() {
            let credentials = &account.settings().credentials;
            let next = log(account, self.port).len() as u64 + 1;
            match judge_login(login, credentials, shared.session, next) {
                Err(LoginRejectReason::NotAuthorized) => {}
                Err(reason) => return Err(reason),
                // One connection an account: a standby must not enter orders beside the first.
                Ok(_) if self.port.is_for_orders() && shared.taken[idx] => {
                    return Err(LoginRejectReason::SessionNotAvailable);
                }
                Ok(number) => return Ok((idx, number)),
            }
        }
        Err(LoginRejectReason::NotAuthorized)
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), End> {
        if self.soup.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            let mut bytes = [0; PACKET_ROOM];
            let mut output = Output::new(&mut bytes);
            self.soup.tick(now_ns, &mut output)?;
            self.pending.extend_from_slice(output.written());
        }
        Ok(())
    }

    /// Packs the account's new messages, as many as fit.
    fn pack(&mut self, shared: &Shared<'_>) -> Result<bool, End> {
        let Some(account) = self.account else { return Ok(false) };
        let messages = log(&shared.venue.accounts()[account], self.port);
        let before = self.position;
        while self.pending.len() < PENDING_MAX
            && let Some(message) = messages.get(self.position).map_err(End::Unreadable)?
        {
            let mut bytes = [0; PACKET_ROOM];
            let mut output = Output::new(&mut bytes);
            self.soup.send(shared.now_ns, &message, &mut output)?;
            self.pending.extend_from_slice(output.written());
            self.position += 1;
        }
        Ok(self.position > before)
    }

    fn write(&mut self) -> Result<bool, End> {
        if self.pending.is_empty() {
            return Ok(false);
        }
        match self.stream.write(&self.pending) {
            Ok(len) => drop(self.pending.drain(..len)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(_) => return Err(End::Closed),
        }
        Ok(true)
    }

    /// Ends the session for good, at the end of the day.
    pub(super) fn end_of_day(&mut self, now_ns: u64) {
        let mut bytes = [0; PACKET_ROOM];
        let mut output = Output::new(&mut bytes);
        if self.silent_ns.is_none() && self.soup.end_session(now_ns, &mut output).is_ok() {
            self.pending.extend_from_slice(output.written());
            // The last attempt: who does not read now has seen the heartbeats stop.
            let _ = self.write();
        }
    }
}

/// The messages that a port has for an account.
fn log(account: &Account, port: Port) -> &MessageLog {
    match port {
        Port::Orders => account.messages(),
        Port::Orders42 => account.messages_42(),
        Port::DropCopy => account.drop_copies(),
    }
}
