//! The exchange that answers, on kernel sockets: order entry and drop copy over TCP, its book over
//! UDP on two lines.
//!
//! One thread polls all sockets and sleeps for a moment where none had anything. The venue is the
//! machine in `venue`; here are sockets and the clock, which begins at 09:29:55 with the program.

mod boe;
mod connection;
mod copies;
mod fix;
mod ilink3;
mod market_data;
mod operator;
mod order_port;
mod order_server;

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, TcpListener};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use market::{Price, Symbol};
use order_entry::boe::{V2, V3};
use order_entry::orders::TradeTotals;
use order_entry::soupbin::SessionId;
use wirepath::worker::StopFlag;

use crate::error::Error;
use crate::glimpse::{GlimpseCounts, GlimpseSettings};
use crate::rerequest::{RerequestCounts, RerequestSettings};
use crate::send_sockets::SendSockets;
use crate::session::START_NS;
use crate::settings::Settings;
use crate::venue::{Account, AccountSettings, CopiesOf, FaultPlan, Venue, VenueCounts, VenueSettings};

use boe::BoeSession;
use connection::{Connection, End, Port, Shared};
use copies::CopySession;
use fix::FixSession;
use ilink3::IlinkSession;
use market_data::MarketData;
pub use operator::{Operator, Script};
use order_port::{AnyPort, Clock, OrderPort, OrderSession, Turn};
pub use order_server::OrderServer;

/// How long the thread sleeps where no socket had anything.
const IDLE_SLEEP: Duration = Duration::from_micros(100);
/// A connection that a fault has silenced is dropped after this time, as one whose peer is dead.
const SILENT_NS_MAX: u64 = 15_000_000_000;
/// Connections at once.
const CONNECTIONS_MAX: usize = 256;

/// How an exchange is served.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The sockets of the lines.
    pub send_sockets: SendSockets,
    /// Where orders are entered: OUCH 5.0 over SoupBinTCP.
    pub orders: SocketAddrV4,
    /// Where accounts get copies of their trades. By default nowhere.
    pub drop_copy: Option<SocketAddrV4>,
    /// The re-request server of the feed. By default none.
    pub rerequest: Option<RerequestSettings>,
    /// Delay before the market opens. By default none.
    pub start_after: Duration,
    /// Who may log in.
    pub accounts: Vec<AccountSettings>,
    /// Messages a second of one account; those beyond are refused. By default none are.
    pub rate_max: Option<u32>,
    /// Shares that the venue bids and offers itself, at three prices on each side. By default 0.
    pub house_shares: u32,
    /// What goes wrong. By default nothing.
    pub faults: FaultPlan,
}

/// A version of BOE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoeVersion {
    /// Of US equities.
    V2,
    /// Of the futures exchange.
    V3,
}

/// What happened on a day.
#[derive(Clone, Debug)]
pub struct Served {
    /// Messages of accounts.
    pub counts: VenueCounts,
    /// Messages of the feed.
    pub published: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Of those, refused because there were too many.
    pub refused: u64,
    /// Connections whose peer broke a rule, and the first of the rules.
    pub violations: u64,
    /// The first broken rule, in words.
    pub violation: Option<String>,
    /// What the disk did not take, or give back, of the messages to accounts.
    pub disk: Option<String>,
    /// The counts of re-requests.
    pub rerequests: Option<RerequestCounts>,
    /// The counts of snapshots.
    pub snapshots: Option<GlimpseCounts>,
    /// What each account bought and sold, in the order of the settings.
    pub trades: Vec<TradeTotals>,
}

/// An exchange whose sockets are open.
pub struct Exchange {
    venue: Venue,
    market_data: MarketData,
    listeners: Vec<(TcpListener, Port)>,
    connections: Vec<Connection>,
    ports: Vec<Box<dyn AnyPort>>,
    /// Nanoseconds between 1970 and the begin of the day.
    epoch_ns: u64,
    session: SessionId,
    start_after: Duration,
    quote_for: Duration,
    operator: Option<Operator>,
    taken: Vec<bool>,
    served: Served,
}

impl Exchange {
    /// Opens all sockets. Nothing is sent before [`Exchange::run`].
    ///
    /// # Errors
    ///
    /// The settings contradict each other, or an address is taken.
    pub fn open(settings: &Settings, serving: &Serving) -> Result<Self, Error> {
        settings.check()?;
        let session = SessionId::new(&settings.session.to_string()).unwrap_or(SessionId::BLANK);
        let mut listeners = vec![listen(serving.orders, Port::Orders)?];
        if let Some(address) = serving.drop_copy {
            listeners.push(listen(address, Port::DropCopy)?);
        }
        let venue = VenueSettings {
            rate_max: serving.rate_max,
            house_shares: serving.house_shares,
            faults: serving.faults.clone(),
            ..VenueSettings::new(crate::session::listing(settings), serving.accounts.clone())
        };
        Ok(Self {
            taken: vec![false; venue.accounts.len()],
            venue: Venue::new(venue),
            market_data: MarketData::open(settings, &serving.send_sockets, serving.rerequest.as_ref())?,
            listeners,
            connections: Vec::new(),
            ports: Vec::new(),
            epoch_ns: 0,
            session,
            start_after: serving.start_after,
            quote_for: Duration::ZERO,
            operator: None,
            served: Served {
                counts: VenueCounts::default(),
                published: 0,
                connections: 0,
                refused: 0,
                violations: 0,
                violation: None,
                disk: None,
                rerequests: None,
                snapshots: None,
                trades: Vec::new(),
            },
        })
    }

    /// Takes orders by FIX at `address` too, and returns where: for port 0 the kernel chooses one.
    /// The Logon's BeginString (8) says the version: 4.2, 4.4, or 5.0 SP2 over FIXT 1.1. Its
    /// SenderCompID (49) is an account's user, its TargetCompID (56) is EXCHANGE, and its Password
    /// (554) the account's. An account has one connection for orders at a time, over all protocols.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub fn open_fix(&mut self, address: SocketAddrV4) -> Result<SocketAddr, Error> {
        self.open_port::<FixSession>(address)
    }

    /// Takes orders by OUCH 4.2 over SoupBinTCP at `address` too, as at [`Serving::orders`] by 5.0.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub fn open_ouch42(&mut self, address: SocketAddrV4) -> Result<SocketAddr, Error> {
        let opened = listen(address, Port::Orders42)?;
        let local = opened.0.local_addr().map_err(|error| cannot_listen(address, error))?;
        self.listeners.push(opened);
        Ok(local)
    }

    /// Takes orders by Cboe's BOE at `address` too, version 2 (of US equities) or 3, as
    /// [`Exchange::open_fix`] does by FIX. The first four characters of an account's user are the
    /// login's user (version 3: its session), the others its sub-identifier. All instruments are of
    /// matching unit 1.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub fn open_boe(&mut self, address: SocketAddrV4, version: BoeVersion) -> Result<SocketAddr, Error> {
        match version {
            BoeVersion::V2 => self.open_port::<BoeSession<V2>>(address),
            BoeVersion::V3 => self.open_port::<BoeSession<V3>>(address),
        }
    }

    /// Takes orders by CME's iLink 3 at `address` too, as [`Exchange::open_fix`] does by FIX. The
    /// first three characters of an account's user are the login's session, the others its firm,
    /// and its password's bytes are the key of the signatures. The number of an instrument
    /// (SecurityID) is its position in the listing, from 1 on.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub fn open_ilink3(&mut self, address: SocketAddrV4) -> Result<SocketAddr, Error> {
        self.open_port::<IlinkSession>(address)
    }

    /// Gives accounts copies by FIX of their trades by one protocol at `address`, as drop copies of
    /// venues do, and returns where. The Logon is that of [`Exchange::open_fix`], on a session of
    /// its own whose numbers begin with the day. ClOrdID (11) and ExecID (17) are those of the
    /// protocol: of BOE the nine digits of base 36, of OUCH 4.2 token and match number.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub fn open_copies(&mut self, address: SocketAddrV4, of: CopiesOf) -> Result<SocketAddr, Error> {
        match of.idx() {
            0 => self.open_port::<CopySession<0>>(address),
            1 => self.open_port::<CopySession<1>>(address),
            2 => self.open_port::<CopySession<2>>(address),
            3 => self.open_port::<CopySession<3>>(address),
            _ => self.open_port::<CopySession<4>>(address),
        }
    }

    /// Sends images of all open orders (GLIMPSE over SoupBinTCP) to receivers of the feed.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub fn open_glimpse(&mut self, own: &GlimpseSettings) -> Result<(), Error> {
        self.market_data.open_glimpse(self.session, own)
    }

    /// Takes orders for the opening crosses for so long before the market opens. By default the
    /// market opens at once, and nobody is there for its crosses.
    pub fn quote_for(&mut self, duration: Duration) {
        self.quote_for = duration;
    }

    /// Publishes so many messages a second besides those of accounts while the market is open, as
    /// [`Venue::set_flow`]. By default none.
    pub fn set_flow(&mut self, per_second: u64, seed: u64) {
        self.venue.set_flow(per_second, seed);
    }

    /// Obeys an operator: halts, auctions, trades that are broken.
    pub fn set_operator(&mut self, operator: Operator) {
        self.operator = Some(operator);
    }

    fn open_port<S: OrderSession + Send + 'static>(&mut self, address: SocketAddrV4) -> Result<SocketAddr, Error> {
        let failed = |error| cannot_listen(address, error);
        let port = OrderPort::<S>::open(address, self.taken.len()).map_err(failed)?;
        let opened = port.address().map_err(failed)?;
        self.ports.push(Box::new(port));
        Ok(opened)
    }

    /// The ports, and what a turn of them works with.
    fn ports(&mut self, now_ns: u64) -> (&mut [Box<dyn AnyPort>], Turn<'_>) {
        let clock = Clock { now_ns, epoch_ns: self.epoch_ns };
        let turn = Turn { venue: &mut self.venue, taken: &mut self.taken, served: &mut self.served, clock };
        (&mut self.ports, turn)
    }

    /// The listed symbols with their reference prices.
    pub fn listing(&self) -> &[(Symbol, Price)] {
        self.venue.listing()
    }

    /// The address of order entry, and that of the drop copy: where port 0 was asked for, the
    /// kernel has chosen one.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect()
    }

    /// Serves until `stop`, then closes the market and ends all sessions, in some two seconds.
    ///
    /// # Errors
    ///
    /// The kernel refused a packet of the feed.
    pub fn run(mut self, stop: &StopFlag) -> Result<Served, Error> {
        let started = Instant::now();
        let now_ns = || START_NS + started.elapsed().as_nanos() as u64;
        let utc = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        self.epoch_ns = (utc.as_nanos() as u64).saturating_sub(START_NS);
        let (mut has_begun, mut is_open) = (false, false);
        while !stop.is_stopping() {
            if !has_begun && started.elapsed() >= self.start_after {
                self.venue.begin(now_ns());
                has_begun = true;
            }
            if !is_open && started.elapsed() >= self.start_after + self.quote_for {
                self.venue.open(now_ns());
                is_open = true;
            }
            let (venue, since_start) = (&mut self.venue, started.elapsed());
            let obeyed = self.operator.as_mut().is_some_and(|it| it.turn(venue, since_start, now_ns()));
            let flowed = is_open && self.venue.flow(now_ns());
            if !self.turn(now_ns())? && !obeyed && !flowed {
                thread::sleep(IDLE_SLEEP);
            }
        }
        self.end(&now_ns)
    }

    /// One turn over all sockets. True where one had something.
    fn turn(&mut self, now_ns: u64) -> Result<bool, Error> {
        let mut is_busy = self.accept(now_ns);
        self.venue.tick(now_ns);
        let mut idx = 0;
        while idx < self.connections.len() {
            let Self { venue, taken, session, connections, .. } = self;
            let connection = &mut connections[idx];
            let was_logged_in = connection.account.is_some();
            let shared = &mut Shared { venue, session: *session, taken, now_ns };
            match connection.poll(shared) {
                Ok(busy) => {
                    is_busy |= busy;
                    let is_dead = connection.silent_ns.is_some_and(|since| now_ns - since >= SILENT_NS_MAX);
                    let account = connection.account.filter(|_| !was_logged_in && connection.port.is_for_orders());
                    if is_dead {
                        self.remove(idx, now_ns);
                        continue;
                    }
                    idx += 1;
                    if let Some(account) = account {
                        idx -= self.remove_silent(account, idx, now_ns);
                    }
                }
                Err(end) => {
                    self.record(&end);
                    self.remove(idx, now_ns);
                    is_busy = true;
                }
            }
        }
        let (ports, mut turn) = self.ports(now_ns);
        for port in ports {
            is_busy |= port.turn(&mut turn);
        }
        self.market_data.publish(&self.venue.take_public());
        Ok(self.market_data.advance(now_ns)? || is_busy)
    }

    fn accept(&mut self, now_ns: u64) -> bool {
        let before = self.connections.len();
        for (listener, port) in &self.listeners {
            while let Ok((stream, _)) = listener.accept() {
                self.served.connections += 1;
                if self.connections.len() == CONNECTIONS_MAX {
                    self.served.refused += 1;
                    continue;
                }
                // A socket that cannot be set up is closed: its peer tries again.
                self.connections.extend(Connection::new(stream, *port, now_ns));
            }
        }
        self.connections.len() > before
    }

    /// A new login makes an end of the account's connections that a fault has silenced. How many of
    /// them were before `idx`.
    fn remove_silent(&mut self, account: usize, idx: usize, now_ns: u64) -> usize {
        let is_silent = |connection: &Connection| connection.account == Some(account) && connection.silent_ns.is_some();
        let mut before = 0;
        while let Some(at) = self.connections.iter().position(is_silent) {
            self.remove(at, now_ns);
            before += usize::from(at < idx);
        }
        before
    }

    fn remove(&mut self, idx: usize, now_ns: u64) {
        let connection = self.connections.remove(idx);
        // A silent one was lost when it fell silent: its account may have another session by now.
        let is_for_orders = connection.port.is_for_orders() && connection.silent_ns.is_none();
        if let Some(account) = connection.account.filter(|_| is_for_orders) {
            self.taken[account] = false;
            self.venue.disconnected(account, now_ns);
        }
    }

    fn record(&mut self, end: &End) {
        let words = match end {
            End::Closed | End::Done | End::Fault => return,
            End::Unreadable(error) => {
                let words = || format!("messages of before cannot be read: {error}");
                self.served.disk.get_or_insert_with(words);
                return;
            }
            End::Session(error) => error.to_string(),
            End::Message(error) => error.to_string(),
            End::ReadOnly => "the drop copy takes no messages".to_owned(),
        };
        self.served.violations += 1;
        self.served.violation.get_or_insert(words);
    }

    fn end(mut self, now_ns: &impl Fn() -> u64) -> Result<Served, Error> {
        self.venue.close(now_ns());
        // What the close has told the accounts is sent with this turn.
        self.turn(now_ns())?;
        for connection in &mut self.connections {
            connection.end_of_day(now_ns());
        }
        for port in &mut self.ports {
            port.end(Clock { now_ns: now_ns(), epoch_ns: self.epoch_ns });
        }
        self.market_data.finish();
        while !self.market_data.is_done() {
            self.market_data.advance(now_ns())?;
            thread::sleep(IDLE_SLEEP);
        }
        let (published, rerequests, snapshots) = self.market_data.stop();
        let trades = self.venue.accounts().iter().map(|account| *account.trades()).collect();
        let logs = self.venue.accounts().iter().flat_map(Account::logs);
        let kept = logs.filter_map(|log| Some(format!("messages of before stayed in memory: {}", log.error()?))).next();
        self.served.disk = self.served.disk.take().or(kept);
        Ok(Served { counts: self.venue.counts(), published, rerequests, snapshots, trades, ..self.served })
    }
}

fn listen(address: SocketAddrV4, port: Port) -> Result<(TcpListener, Port), Error> {
    let listener = TcpListener::bind(address).map_err(|error| cannot_listen(address, error))?;
    listener.set_nonblocking(true).map_err(|error| cannot_listen(address, error))?;
    Ok((listener, port))
}

fn cannot_listen(address: SocketAddrV4, error: std::io::Error) -> Error {
    Error::Socket { what: format!("cannot listen at {address} (name a free port)"), error }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        writeln!(
            f,
            "{} messages of accounts, {} of them queries, {} messages published",
            counts.messages, counts.queries, self.published
        )?;
        writeln!(
            f,
            "  ignored {}, malformed {}, throttled {}; injected: lost acknowledgments {}, half-open {}, crossing \
             fills {}",
            counts.ignored,
            counts.malformed,
            counts.throttled,
            counts.lost_acks,
            counts.half_opens,
            counts.crossing_fills
        )?;
        write!(f, "  {} connections, {} refused, {} broke a rule", self.connections, self.refused, self.violations)?;
        if let Some(violation) = &self.violation {
            write!(f, "; the first: {violation}")?;
        }
        writeln!(f)?;
        self.disk.iter().try_for_each(|disk| writeln!(f, "  {disk}"))?;
        self.rerequests.iter().try_for_each(|counts| writeln!(f, "  {counts}"))?;
        self.snapshots.iter().try_for_each(|counts| writeln!(f, "  {counts}"))?;
        self.trades.iter().enumerate().try_for_each(|(idx, trades)| writeln!(f, "  account {}: {trades}", idx + 1))
    }
}
