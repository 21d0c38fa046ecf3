//! The exchange: one account's orders by OUCH 5.0 over SoupBinTCP, one login at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};

use exchange_sim::{AccountSettings, Effect, FaultPlan, Venue, VenueSettings};
use market::{Price, Side, Symbol};
use order_entry::ouch::OrderState;
use order_entry::ouch::v50::{EnterOrder, Inbound, Outbound};
use order_entry::ouch::{self, TimeInForce};
use order_entry::session::Output;
use order_entry::soupbin::{LoginRejectReason, Server, ServerConfig, ServerEvent, SessionId, judge_login};

use super::network::{Shared, SimStream};

/// The instrument and its opening price.
pub(super) const SYMBOL: Symbol = Symbol(*b"WIRE    ");
pub(super) const OPENING: Price = Price(100_000);
/// The account that trades, and the one that it trades with.
const TRADER: usize = 0;
const OTHER: usize = 1;

struct Line {
    stream: SimStream,
    soup: Server,
    is_logged_in: bool,
    position: usize,
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
    /// Messages of the account that were counted.
    counted: usize,
    /// Live orders: side, open shares, price; and the net position.
    pub open: BTreeMap<u64, (Side, u32, Price)>,
    sides: BTreeMap<u64, Side>,
    pub position: i64,
    numbers: BTreeSet<u32>,
    other_ref: u32,
    /// A broken rule of ours.
    pub fault: Option<String>,
    /// Orders and replaces that arrived.
    pub arrived: u64,
}

impl SimVenue {
    pub(super) fn new(network: &Shared, machine: usize, faults: FaultPlan, keeps_orders: bool) -> Self {
        let mut accounts = Vec::new();
        for user in ["TRADER", "OTHER"] {
            let account = AccountSettings::new(user, "SECRET").expect("6 and 10 letters at most");
            accounts.push(AccountSettings { cancel_on_disconnect: !keeps_orders, ..account });
        }
        let settings = VenueSettings { faults, ..VenueSettings::new(vec![(SYMBOL, OPENING)], accounts) };
        let mut venue = Venue::new(settings);
        venue.open(0);
        Self {
            venue,
            network: network.clone(),
            machine,
            lines: Vec::new(),
            counted: 0,
            open: BTreeMap::new(),
            sides: BTreeMap::new(),
            position: 0,
            numbers: BTreeSet::new(),
            other_ref: 0,
            fault: None,
            arrived: 0,
        }
    }

    /// The process ends and starts again: the day is on its disk.
    pub(super) fn restart(&mut self, now_ns: u64) {
        if self.lines.drain(..).any(|line| line.is_logged_in) {
            self.venue.disconnected(TRADER, now_ns);
        }
    }

    /// An order of the other account.
    pub(super) fn trade(&mut self, side: Side, qty: u32, price: Price, now_ns: u64) {
        self.other_ref += 1;
        let side = if side == Side::Buy { ouch::Side::BUY } else { ouch::Side::SELL };
        let order = EnterOrder::new(side, SYMBOL, TimeInForce::DAY);
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
            let (out, silent_ns) = (Vec::new(), None);
            self.lines.push(Line { stream, soup, is_logged_in: false, position: 0, out, silent_ns });
        }
        self.venue.tick(now_ns);
        for mut line in std::mem::take(&mut self.lines) {
            if self.poll(&mut line, now_ns) {
                self.lines.push(line);
            } else if line.is_logged_in {
                self.venue.disconnected(TRADER, now_ns);
            }
        }
        self.count();
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
                if !self.take(line, &buffer[..len], now_ns) {
                    return false;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => (),
            Err(_) => return false,
        }
        if line.silent_ns.is_some() {
            return true;
        }
        let mut room = [0; 256];
        let mut output = Output::new(&mut room);
        if line.soup.tick(now_ns, &mut output).is_err() {
            return false;
        }
        line.out.extend_from_slice(output.written());
        self.pack(line, now_ns);
        match line.stream.write(&line.out) {
            _ if line.out.is_empty() => true,
            Ok(len) => {
                line.out.drain(..len);
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    fn pack(&self, line: &mut Line, now_ns: u64) {
        let messages = self.venue.accounts()[TRADER].messages();
        while line.is_logged_in && line.position < messages.len() && line.out.len() < 4_096 {
            let mut room = [0; 256];
            let mut output = Output::new(&mut room);
            line.soup.send(now_ns, &messages[line.position], &mut output).expect("there is room");
            line.out.extend_from_slice(output.written());
            line.position += 1;
        }
    }

    fn take(&mut self, line: &mut Line, bytes: &[u8], now_ns: u64) -> bool {
        let mut input = bytes;
        loop {
            match line.soup.receive(now_ns, &mut input) {
                Ok(None) => return true,
                Ok(Some(ServerEvent::Login(login))) => {
                    let account = &self.venue.accounts()[TRADER];
                    let session = SessionId::new("S1").expect("ten letters at most");
                    let next = account.messages().len() as u64 + 1;
                    let judged = judge_login(&login, &account.settings().credentials, session, next);
                    let is_taken = self.lines.iter().any(|line| line.is_logged_in && line.silent_ns.is_none());
                    let judged = if is_taken { Err(LoginRejectReason::SessionNotAvailable) } else { judged };
                    let mut room = [0; 256];
                    let mut output = Output::new(&mut room);
                    let Ok(number) = judged else { return false };
                    line.soup.accept(now_ns, session, number, &mut output).expect("there is room");
                    (line.is_logged_in, line.position) = (true, number as usize - 1);
                    line.out.extend_from_slice(output.written());
                }
                Ok(Some(ServerEvent::Unsequenced(message))) => {
                    self.judge(message);
                    match self.venue.receive(TRADER, message, now_ns) {
                        Ok(Effect::None) => (),
                        Ok(Effect::Break) => return false,
                        Ok(Effect::GoSilent) => {
                            line.silent_ns = Some(now_ns);
                            line.is_logged_in = false;
                            self.venue.disconnected(TRADER, now_ns);
                            return true;
                        }
                        Err(error) => self.fault = Some(format!("the gateway sent what is no message: {error}")),
                    }
                }
                Ok(Some(ServerEvent::Logout)) => return false,
                Ok(Some(_)) => (),
                Err(error) => {
                    self.fault = Some(format!("the gateway broke a rule of the session: {error}"));
                    return false;
                }
            }
        }
    }

    /// Nothing arrives twice.
    fn judge(&mut self, message: &[u8]) {
        let Ok((message, _)) = Inbound::parse(message) else { return };
        let Some(number) = message.takes_user_ref() else { return };
        self.arrived += 1;
        if !self.numbers.insert(number) {
            self.fault = Some(format!("sent twice: the number {number}"));
        }
    }

    /// The position and the open orders by the account's own messages.
    fn count(&mut self) {
        let messages = self.venue.accounts()[TRADER].messages();
        for message in &messages[self.counted..] {
            let Ok((message, _)) = Outbound::parse(message) else { continue };
            let reduce = |open: &mut BTreeMap<u64, (Side, u32, Price)>, id: u64, by: u32| {
                if let Some(order) = open.get_mut(&id) {
                    order.1 -= by;
                    if order.1 == 0 {
                        open.remove(&id);
                    }
                }
            };
            match message {
                Outbound::OrderAccepted(it) => {
                    let side = if it.side.is_sale() { Side::Sell } else { Side::Buy };
                    self.sides.insert(it.user_ref.get().into(), side);
                    if it.state == OrderState::LIVE {
                        let price = Price(it.price.get() as i64);
                        self.open.insert(it.user_ref.get().into(), (side, it.quantity.get(), price));
                    }
                }
                Outbound::OrderReplaced(it) => {
                    let side = if it.side.is_sale() { Side::Sell } else { Side::Buy };
                    self.sides.insert(it.user_ref.get().into(), side);
                    self.open.remove(&u64::from(it.orig_user_ref.get()));
                    if it.state == OrderState::LIVE {
                        let price = Price(it.price.get() as i64);
                        self.open.insert(it.user_ref.get().into(), (side, it.quantity.get(), price));
                    }
                }
                Outbound::OrderExecuted(it) => {
                    let (id, qty) = (u64::from(it.user_ref.get()), it.quantity.get());
                    let sign = if self.sides[&id] == Side::Buy { 1 } else { -1 };
                    self.position += sign * i64::from(qty);
                    reduce(&mut self.open, id, qty);
                }
                Outbound::OrderCanceled(it) => reduce(&mut self.open, it.user_ref.get().into(), it.quantity.get()),
                _ => (),
            }
        }
        self.counted = messages.len();
    }

    /// The position with all open orders of a side filled: long, short.
    pub(super) fn worst(&self) -> (i64, i64) {
        let open = |of: Side| -> i64 {
            self.open.values().filter(|(side, ..)| *side == of).map(|(_, qty, _)| i64::from(*qty)).sum()
        };
        (self.position + open(Side::Buy), open(Side::Sell) - self.position)
    }
}
