//! The drop copy's connection, and the trades that it brings.

use std::net::SocketAddrV4;
use std::time::Duration;

use market::{Side, Symbol};
use order_entry::fix::session::SessionConfig;
use order_entry::fix::{CopiedSession, CopiedTrade, DropCopyEvent, FixDropCopy};
use order_entry::soupbin::Credentials;

use super::ouch::OuchCopies;
use super::reconciler::Trade;
use crate::host::{Attempt, Attempted, Host, Stream, is_nothing};

const RETRY_NS: u64 = 1_000_000_000;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
const READ_LEN: usize = 16 * 1_024;
/// Bytes that may wait: a login, heartbeats, requests for messages again.
const OUT_MAX: usize = 4_096;

/// Where the drop copy is, and how it speaks.
#[derive(Clone, Debug)]
pub struct DropCopyConfig {
    /// Its address.
    pub address: SocketAddrV4,
    /// Its protocol, and who reads it.
    pub protocol: DropCopyProtocol,
    /// A trade of one side alone is a difference after this time, and so is a drop copy without a
    /// connection. By default 5 s.
    pub lag: Duration,
}

/// How a drop copy speaks.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub enum DropCopyProtocol {
    /// OUCH 5.0 over SoupBinTCP, with the venue's user.
    Ouch(Credentials),
    /// FIX, for the orders of a session by whatever protocol.
    Fix {
        /// Names, version, heartbeats, hours.
        session: SessionConfig,
        /// By which protocol the orders were entered.
        of: CopiedSession,
    },
}

/// What a session of copies says.
#[derive(Clone, Debug)]
pub(super) enum Copied {
    LoggedIn,
    /// The instrument and the side of its order, where the copy says them.
    Trade(Trade, Option<(Symbol, Side)>),
    /// A copy that cannot be read, and why.
    Unread(String),
    /// The connection has told what the next one needs, and is over.
    TryAgain,
}

/// A session of copies, whatever its protocol.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Copies {
    Ouch(OuchCopies),
    Fix(FixDropCopy),
}

impl Copies {
    fn new(protocol: DropCopyProtocol, epoch_offset_ns: u64) -> Self {
        match protocol {
            DropCopyProtocol::Ouch(credentials) => Self::Ouch(OuchCopies::new(credentials)),
            DropCopyProtocol::Fix { session, of } => Self::Fix(FixDropCopy::new(session, of, epoch_offset_ns)),
        }
    }

    fn connected(&mut self, now_ns: u64) -> bool {
        match self {
            Self::Ouch(copies) => copies.connected(now_ns),
            Self::Fix(copies) => {
                copies.connected(now_ns);
                true
            }
        }
    }

    fn disconnected(&mut self) {
        match self {
            Self::Ouch(copies) => copies.disconnected(),
            Self::Fix(copies) => copies.disconnected(),
        }
    }

    /// Takes bytes from the front of `input`; `None` where they are used up.
    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<Copied>, String> {
        match self {
            Self::Ouch(copies) => copies.receive(now_ns, input),
            Self::Fix(copies) => loop {
                return Ok(match copies.receive(now_ns, input).map_err(|error| error.to_string())? {
                    None => None,
                    Some(DropCopyEvent::LoggedOn) => Some(Copied::LoggedIn),
                    Some(DropCopyEvent::Trade(it)) => {
                        let CopiedTrade { id, exec, terms, correction, .. } = it;
                        let trade = Trade { id, exec, terms, correction };
                        Some(Copied::Trade(trade, Some((it.symbol, it.side))))
                    }
                    Some(DropCopyEvent::Unread(why)) => Some(Copied::Unread(why.to_string())),
                    Some(DropCopyEvent::NumberUsed) => Some(Copied::TryAgain),
                    Some(_) => continue,
                });
            },
        }
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), String> {
        match self {
            Self::Ouch(copies) => copies.tick(now_ns),
            Self::Fix(copies) => copies.tick(now_ns).map_err(|error| error.to_string()),
        }
    }

    fn to_send(&self) -> &[u8] {
        match self {
            Self::Ouch(copies) => copies.to_send(),
            Self::Fix(copies) => copies.to_send(),
        }
    }

    fn sent(&mut self, len: usize) {
        match self {
            Self::Ouch(copies) => copies.sent(len),
            Self::Fix(copies) => copies.sent(len),
        }
    }
}

/// A connection to the drop copy, made again when it breaks.
#[derive(Debug)]
pub struct DropCopyLine {
    address: SocketAddrV4,
    lag: Duration,
    copies: Copies,
    stream: Option<Box<dyn Stream>>,
    attempt: Option<Attempt>,
    retry_ns: u64,
    /// Since when there is no session; `None` while there is one, and after it was told.
    absent_since_ns: Option<u64>,
    /// The first copy that could not be read since somebody took it.
    unread: Option<String>,
}

impl DropCopyLine {
    /// A line that is not connected. `epoch_offset_ns` is added to the clock of the calls for UTC.
    pub fn new(config: DropCopyConfig, now_ns: u64, epoch_offset_ns: u64) -> Self {
        let DropCopyConfig { address, protocol, lag } = config;
        Self {
            address,
            lag,
            copies: Copies::new(protocol, epoch_offset_ns),
            stream: None,
            attempt: None,
            retry_ns: 0,
            absent_since_ns: Some(now_ns),
            unread: None,
        }
    }

    /// The wall clock has stepped: this is added from now on.
    pub fn set_epoch_offset_ns(&mut self, epoch_offset_ns: u64) {
        if let Copies::Fix(copies) = &mut self.copies {
            copies.set_epoch_offset_ns(epoch_offset_ns);
        }
    }

    /// The first copy that could not be read since the last call, and why. A trade may be in it.
    pub fn take_unread(&mut self) -> Option<String> {
        self.unread.take()
    }

    /// How long a side may lag.
    pub fn lag_ns(&self) -> u64 {
        u64::try_from(self.lag.as_nanos()).unwrap_or(u64::MAX)
    }

    /// One turn: `take` gets each trade, and its order's instrument and side where the copy says
    /// them. An error is what a person should see.
    pub fn turn(
        &mut self,
        now_ns: u64,
        host: &dyn Host,
        take: impl FnMut(Trade, Option<(Symbol, Side)>),
    ) -> Result<(), String> {
        if self.stream.is_none() {
            self.connect(now_ns, host);
        }
        match self.exchange(now_ns, take) {
            Ok(true) => Ok(()),
            // What the venue has told is no news for people.
            Ok(false) => {
                self.close(now_ns);
                Ok(())
            }
            Err(why) => {
                self.close(now_ns);
                Err(format!("the drop copy's connection has ended: {why}"))
            }
        }
    }

    fn close(&mut self, now_ns: u64) {
        self.stream = None;
        self.copies.disconnected();
        self.absent_since_ns = self.absent_since_ns.or(Some(now_ns));
    }

    /// Whether the drop copy has been away for longer than a side may lag; told once.
    pub fn is_absent(&mut self, now_ns: u64) -> bool {
        let is_absent = self.absent_since_ns.is_some_and(|since| now_ns.saturating_sub(since) >= self.lag_ns());
        if is_absent {
            self.absent_since_ns = None;
        }
        is_absent
    }

    /// Goes on with the attempt that is under way, or begins one when its time has come. One that
    /// fails is made again, without a word: a drop copy that stays away is told of.
    fn connect(&mut self, now_ns: u64, host: &dyn Host) {
        if self.attempt.is_none() && now_ns >= self.retry_ns {
            self.retry_ns = now_ns.saturating_add(RETRY_NS);
            self.attempt = Attempt::begin(host, self.address, CONNECT_TIMEOUT).ok();
        }
        let stream = match self.attempt.take().map(|attempt| attempt.poll(now_ns)) {
            Some(Ok(Attempted::Open(stream))) => stream,
            Some(Ok(Attempted::Waiting(attempt))) => return self.attempt = Some(attempt),
            Some(Err(_)) | None => return,
        };
        // What fails here is tried again.
        if self.copies.connected(now_ns) {
            self.stream = Some(stream);
        }
    }

    /// Whether the connection goes on.
    fn exchange(&mut self, now_ns: u64, mut take: impl FnMut(Trade, Option<(Symbol, Side)>)) -> Result<bool, String> {
        let Some(stream) = &mut self.stream else { return Ok(true) };
        let mut buffer = [0; READ_LEN];
        match stream.read(&mut buffer) {
            Ok(0) => return Err("the venue closed it".to_owned()),
            Ok(len) => {
                let mut input = &buffer[..len];
                while let Some(copied) = self.copies.receive(now_ns, &mut input)? {
                    match copied {
                        Copied::LoggedIn => self.absent_since_ns = None,
                        Copied::Trade(trade, of) => take(trade, of),
                        Copied::Unread(why) => _ = self.unread.get_or_insert(why),
                        Copied::TryAgain => return Ok(false),
                    }
                }
            }
            Err(error) if is_nothing(&error) => (),
            Err(error) => return Err(error.to_string()),
        }
        self.copies.tick(now_ns)?;
        let out = self.copies.to_send();
        if out.len() > OUT_MAX {
            return Err("the venue takes no heartbeats".to_owned());
        }
        if !out.is_empty() {
            match stream.write(out) {
                Ok(len) => self.copies.sent(len),
                Err(error) if is_nothing(&error) => (),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(true)
    }
}
