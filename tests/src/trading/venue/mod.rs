//! The exchange: one account's orders by OUCH 5.0 or 4.2 over SoupBinTCP, by FIX 4.4, BOE or
//! iLink 3, one login at a time.

mod named;
mod ouch;
mod ouch42;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};

use exchange_sim::{
    AccountSettings, BoeVersion, CancelOnDisconnect, Effect, FaultPlan, OrderServer, Venue, VenueSettings,
};
use market::{Price, Side, Symbol};
use order_entry::ouch::v50::EnterOrder;
use order_entry::ouch::{Side as OuchSide, TimeInForce};
use order_entry::soupbin::{Server, ServerConfig};

use super::network::{Shared, SimStream};
use super::script::Protocol;

/// The instruments, and their opening price.
pub(super) const SYMBOLS: [Symbol; 2] = [Symbol(*b"WIRE    "), Symbol(*b"PATH    ")];
pub(super) const OPENING: Price = Price(100_000);
/// The price of an order that was sent without one.
pub(super) const UNPRICED: Price = Price(0);
/// The time since 1970 at which the clocks begin.
pub(super) const EPOCH_NS: u64 = 1_795_727_114_000_000_000;
/// The account that trades, and the one that it trades with.
const TRADER: usize = 0;
const OTHER: usize = 1;

struct Line {
    stream: SimStream,
    soup: Server,
    is_logged_in: bool,
    position: usize,
    /// What waits to be a whole message.
    input: Vec<u8>,
    out: Vec<u8>,
    /// A fault: nothing is read or sent any more.
    silent_ns: Option<u64>,
}

/// The exchange and its connections.
pub(super) struct SimVenue {
    pub venue: Venue,
    network: Shared,
    machine: usize,
    lines: Vec<Line>,
    /// A connection that is alive has the account.
    is_taken: bool,
    protocol: Protocol,
    /// The account's session, where it does not trade by OUCH.
    named: Option<OrderServer>,
    /// Messages of the account that were counted.
    counted: usize,
    /// Live orders: instrument, side, open shares, price, or [`UNPRICED`].
    pub open: BTreeMap<u64, (usize, Side, u32, Price)>,
    /// Instrument and side of each order that was accepted.
    orders: BTreeMap<u64, (usize, Side)>,
    /// Of each instrument.
    pub positions: [i64; SYMBOLS.len()],
    /// Spent less earned.
    pub cash: i64,
    /// Ids of the account that have arrived.
    ids: BTreeSet<u64>,
    other_ref: u32,
    /// A broken rule of ours.
    pub fault: Option<String>,
    /// Orders and replaces that arrived.
    pub arrived: u64,
}

impl SimVenue {
    pub(super) fn new(
        network: &Shared,
        machine: usize,
        protocol: Protocol,
        faults: FaultPlan,
        keeps_orders: bool,
    ) -> Self {
        let mut accounts = Vec::new();
        for user in ["TRADER", "OTHER"] {
            let account = AccountSettings::new(user, "SECRET").expect("6 and 10 letters at most");
            let kept = if keeps_orders { CancelOnDisconnect::None } else { CancelOnDisconnect::All };
            accounts.push(AccountSettings { cancel_on_disconnect: kept, ..account });
        }
        let settings =
            VenueSettings { faults, ..VenueSettings::new(SYMBOLS.map(|symbol| (symbol, OPENING)).to_vec(), accounts) };
        let mut venue = Venue::new(settings);
        venue.open(0);
        Self {
            venue,
            network: network.clone(),
            machine,
            lines: Vec::new(),
            is_taken: false,
            protocol,
            named: match protocol {
                Protocol::Ouch | Protocol::Ouch42 => None,
                Protocol::Fix => Some(OrderServer::fix(TRADER, EPOCH_NS)),
                Protocol::Boe2 => Some(OrderServer::boe(BoeVersion::V2, TRADER, EPOCH_NS)),
                Protocol::Boe3 => Some(OrderServer::boe(BoeVersion::V3, TRADER, EPOCH_NS)),
                Protocol::Ilink3 => Some(OrderServer::ilink3(TRADER, EPOCH_NS)),
            },
            counted: 0,
            open: BTreeMap::new(),
            orders: BTreeMap::new(),
            positions: [0; SYMBOLS.len()],
            cash: 0,
            ids: BTreeSet::new(),
            other_ref: 0,
            fault: None,
            arrived: 0,
        }
    }

    /// The process ends and starts again: the day is on its disk.
    pub(super) fn restart(&mut self, now_ns: u64) {
        if self.lines.drain(..).any(|line| line.is_logged_in) {
            self.lost(now_ns);
        }
    }

    /// An order of the other account.
    pub(super) fn trade(&mut self, instrument: usize, side: Side, qty: u32, price: Price, now_ns: u64) {
        self.other_ref += 1;
        let side = if side == Side::Buy { OuchSide::BUY } else { OuchSide::SELL };
        let order = EnterOrder::new(side, SYMBOLS[instrument], TimeInForce::DAY);
        let (user_ref, quantity) = (self.other_ref.into(), qty.into());
        let order = EnterOrder { user_ref, quantity, price: (price.0 as u64).into(), ..order };
        let mut message = [0; 64];
        let len = order.emit(&[], &mut message).expect("an order has 47 bytes");
        // A fault of the other account's line does not matter here.
        let _ = self.venue.receive(OTHER, &message[..len], now_ns);
    }

    pub(super) fn turn(&mut self, now_ns: u64) {
        while let Some(stream) = SimStream::accept(&self.network, self.machine) {
            let mut soup = Server::new(ServerConfig::default());
            soup.connected(now_ns);
            let (input, out, silent_ns) = (Vec::new(), Vec::new(), None);
            self.lines.push(Line { stream, soup, is_logged_in: false, position: 0, input, out, silent_ns });
        }
        self.venue.tick(now_ns);
        for mut line in std::mem::take(&mut self.lines) {
            if self.poll(&mut line, now_ns) {
                self.lines.push(line);
            } else if line.is_logged_in {
                self.lost(now_ns);
            }
        }
        match self.protocol {
            Protocol::Ouch => self.count_ouch(),
            Protocol::Ouch42 => self.count_ouch42(),
            Protocol::Fix => self.count_named(exchange_sim::Protocol::Fix),
            Protocol::Boe2 => self.count_named(exchange_sim::Protocol::Boe2),
            Protocol::Boe3 => self.count_named(exchange_sim::Protocol::Boe3),
            Protocol::Ilink3 => self.count_named(exchange_sim::Protocol::Ilink3),
        }
    }

    /// The account is without its connection.
    fn lost(&mut self, now_ns: u64) {
        self.is_taken = false;
        self.named.iter_mut().for_each(OrderServer::disconnected);
        self.venue.disconnected(TRADER, now_ns);
    }

    /// What a message did to its connection. False where it has ended.
    fn follow(&mut self, line: &mut Line, effect: Effect, now_ns: u64) -> bool {
        match effect {
            Effect::None => true,
            Effect::Break => false,
            Effect::GoSilent => {
                line.silent_ns = Some(now_ns);
                line.is_logged_in = false;
                self.lost(now_ns);
                true
            }
        }
    }

    /// False where the line has ended.
    fn poll(&mut self, line: &mut Line, now_ns: u64) -> bool {
        if let Some(since_ns) = line.silent_ns {
            return now_ns - since_ns < 15_000_000_000;
        }
        let mut buffer = [0; 4_096];
        match line.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(len) => {
                line.input.extend_from_slice(&buffer[..len]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => (),
            Err(_) => return false,
        }
        let is_over = if self.named.is_some() { !self.take_named(line, now_ns) } else { !self.take_ouch(line, now_ns) };
        if is_over {
            return false;
        }
        if line.silent_ns.is_some() {
            return true;
        }
        if self.named.is_none() && !self.pack(line, now_ns) {
            return false;
        }
        match line.stream.write(&line.out) {
            _ if line.out.is_empty() => true,
            Ok(len) => {
                line.out.drain(..len);
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// An order or a replace has arrived: nothing does twice.
    fn judge(&mut self, id: u64) {
        self.arrived += 1;
        if !self.ids.insert(id) {
            self.fault = Some(format!("sent twice: the id {id}"));
        }
    }

    /// Shares of an order are open no more.
    fn reduce(&mut self, id: u64, by: u32) {
        if let Some(order) = self.open.get_mut(&id) {
            order.2 -= by;
            if order.2 == 0 {
                self.open.remove(&id);
            }
        }
    }

    /// An order or a replace was accepted, and lives or not.
    fn enter(&mut self, id: u64, order: (usize, Side, u32, Price), is_live: bool) {
        self.orders.insert(id, (order.0, order.1));
        if is_live {
            self.open.insert(id, order);
        }
    }

    fn fill(&mut self, id: u64, qty: u32, price: Price) {
        let (instrument, side) = self.orders[&id];
        let bought = bought(side, qty);
        self.positions[instrument] += bought;
        self.cash += bought * price.0;
        self.reduce(id, qty);
    }

    /// What open buys and open sells may cost and earn, by their limits.
    pub(super) fn open_notional(&self) -> (i64, i64) {
        let open = |of: Side| -> i64 {
            let orders = self.open.values().filter(|(_, side, ..)| *side == of);
            orders.map(|(_, _, qty, price)| i64::from(*qty) * price.0).sum()
        };
        (open(Side::Buy), open(Side::Sell))
    }

    /// The position of an instrument with all open orders of a side filled: long, short.
    pub(super) fn worst(&self, instrument: usize) -> (i64, i64) {
        let open = |of: Side| -> i64 {
            let orders = self.open.values().filter(|(own, side, ..)| (*own, *side) == (instrument, of));
            orders.map(|(_, _, qty, _)| i64::from(*qty)).sum()
        };
        let position = self.positions[instrument];
        (position + open(Side::Buy), open(Side::Sell) - position)
    }
}

/// Shares that a trade adds to a position.
fn bought(side: Side, qty: u32) -> i64 {
    if side == Side::Buy { qty.into() } else { -i64::from(qty) }
}

/// The number of an instrument.
fn instrument_of(symbol: Symbol) -> usize {
    SYMBOLS.iter().position(|own| *own == symbol).expect("the venue has no other")
}
