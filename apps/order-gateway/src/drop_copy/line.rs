//! The drop copy over SoupBinTCP: its connection, and the trades that it brings.

use std::net::SocketAddrV4;
use std::time::Duration;

use market::Price;
use order_entry::orders::ExecId;
use order_entry::ouch::v50::Outbound;
use order_entry::session::Output;
use order_entry::soupbin::{Client, ClientConfig, ClientEvent, Credentials, SessionId};

use super::reconciler::Trade;
use crate::host::{Attempt, Attempted, Host, Stream, is_nothing};

const RETRY_NS: u64 = 1_000_000_000;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
const READ_LEN: usize = 16 * 1_024;
/// Bytes that may wait: a login, and heartbeats of three bytes a second.
const OUT_MAX: usize = 256;

/// Where the drop copy is, and who reads it.
#[derive(Clone, Copy, Debug)]
pub struct DropCopyConfig {
    /// Its address.
    pub address: SocketAddrV4,
    /// User and password.
    pub credentials: Credentials,
    /// A trade of one side alone is a difference after this time, and so is a drop copy without a
    /// connection. By default 5 s.
    pub lag: Duration,
}

/// A connection to the drop copy, made again when it breaks.
#[derive(Debug)]
pub struct DropCopyLine {
    config: DropCopyConfig,
    client: Client,
    stream: Option<Box<dyn Stream>>,
    attempt: Option<Attempt>,
    /// Bytes that wait for the connection.
    out: Vec<u8>,
    retry_ns: u64,
    /// Since when there is no session; `None` while there is one, and after it was told.
    absent_since_ns: Option<u64>,
}

impl DropCopyLine {
    /// A line that is not connected.
    pub fn new(config: DropCopyConfig, now_ns: u64) -> Self {
        let client = Client::new(ClientConfig::new(config.credentials));
        Self {
            config,
            client,
            stream: None,
            attempt: None,
            out: Vec::new(),
            retry_ns: 0,
            absent_since_ns: Some(now_ns),
        }
    }

    /// How long a side may lag.
    pub fn lag_ns(&self) -> u64 {
        u64::try_from(self.config.lag.as_nanos()).unwrap_or(u64::MAX)
    }

    /// One turn: `take` gets each trade. An error is what a person should see.
    pub fn turn(&mut self, now_ns: u64, host: &dyn Host, take: impl FnMut(Trade)) -> Result<(), String> {
        if self.stream.is_none() {
            self.connect(now_ns, host);
        }
        if let Err(why) = self.exchange(now_ns, take) {
            self.stream = None;
            self.client.disconnected();
            self.absent_since_ns = self.absent_since_ns.or(Some(now_ns));
            return Err(format!("the drop copy's connection has ended: {why}"));
        }
        Ok(())
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
            self.attempt = Attempt::begin(host, self.config.address, CONNECT_TIMEOUT).ok();
        }
        let stream = match self.attempt.take().map(|attempt| attempt.poll(now_ns)) {
            Some(Ok(Attempted::Open(stream))) => stream,
            Some(Ok(Attempted::Waiting(attempt))) => return self.attempt = Some(attempt),
            Some(Err(_)) | None => return,
        };
        let mut room = [0; 64];
        let mut output = Output::new(&mut room);
        let login = match self.client.session() {
            // From the day's first trade.
            session if session.is_blank() => self.client.connect(now_ns, SessionId::BLANK, 1, &mut output),
            _ => self.client.reconnect(now_ns, &mut output),
        };
        // What fails here is tried again.
        if login.is_ok() {
            self.stream = Some(stream);
            self.out.clear();
            self.out.extend_from_slice(output.written());
        }
    }

    fn exchange(&mut self, now_ns: u64, mut take: impl FnMut(Trade)) -> Result<(), String> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let (mut buffer, mut room) = ([0; READ_LEN], [0; 64]);
        match stream.read(&mut buffer) {
            Ok(0) => return Err("the venue closed it".to_owned()),
            Ok(len) => {
                let mut input = &buffer[..len];
                while let Some(event) = self.client.receive(now_ns, &mut input).map_err(|error| error.to_string())? {
                    match event {
                        ClientEvent::LoggedIn { .. } => self.absent_since_ns = None,
                        ClientEvent::LoginRejected(reason) => return Err(format!("the login was refused: {reason:?}")),
                        ClientEvent::Sequenced { message, .. } => read(message)?.into_iter().for_each(&mut take),
                        _ => (),
                    }
                }
            }
            Err(error) if is_nothing(&error) => (),
            Err(error) => return Err(error.to_string()),
        }
        let mut output = Output::new(&mut room);
        self.client.tick(now_ns, &mut output).map_err(|error| error.to_string())?;
        self.out.extend_from_slice(output.written());
        if self.out.len() > OUT_MAX {
            return Err("the venue takes no heartbeats".to_owned());
        }
        if !self.out.is_empty() {
            match stream.write(&self.out) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(error) if is_nothing(&error) => (),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}

/// The trade in a message; `None` for other messages.
fn read(message: &[u8]) -> Result<Option<Trade>, String> {
    let (message, _) = Outbound::parse(message).map_err(|error| error.to_string())?;
    Ok(match message {
        Outbound::OrderExecuted(executed) => {
            let price = i64::try_from(executed.price.get()).map_err(|_| "a price has more than 63 bits".to_owned())?;
            Some(Trade {
                id: executed.user_ref.get().into(),
                exec: ExecId::from_number(executed.match_number.get()),
                terms: Some((executed.quantity.get(), Price(price))),
            })
        }
        Outbound::BrokenTrade(broken) => Some(Trade {
            id: broken.user_ref.get().into(),
            exec: ExecId::from_number(broken.match_number.get()),
            terms: None,
        }),
        _ => None,
    })
}
