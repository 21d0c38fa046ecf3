//! A venue in plain memory: OUCH 5.0 over SoupBinTCP, which answers as a test tells it to.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use market::{Price, Side, Symbol};
use order_entry::journal::{Journal, JournalMemory};
use order_entry::orders::{Instructions, OrderCapacity, OrderEvent};
use order_entry::ouch::v50::{
    AccountQueryResponse, EnterOrder, Field, Inbound, OrderAccepted, OrderCanceled, OrderExecuted, OrderRejected,
};
use order_entry::ouch::{CancelReason, Capacity, LiquidityFlag, OrderState, OuchClient, RejectReason};
use order_entry::risk::{Bitmap, InstrumentIdx, KillSwitch, Route, StrategyIdx};
use order_entry::session::Output;
use order_entry::soupbin::{ClientConfig, Credentials, Server, ServerConfig, ServerEvent, SessionId};
use order_entry::{ManagerConfig, Refusal, Text};
use order_gateway::{BookEvent, Core, CoreConfig, Gateway, Instrument, KillLine, OrderRequest, Orders, Strategy};

pub use limits::limits;

mod limits;
pub mod line;

pub const SECOND: u64 = 1_000_000_000;
pub const STOCK: InstrumentIdx = InstrumentIdx(0);
pub const SYMBOL: Symbol = Symbol(*b"ZIEXT   ");
pub const RESERVE: usize = 4_096;

pub type TestGateway = Gateway<Buyer, OuchClient, Vec<u8>>;

/// Buys at the bid of each book, and keeps what it hears.
#[derive(Debug, Default)]
pub struct Buyer {
    pub ids: Vec<u64>,
    pub refusals: Vec<Refusal>,
    pub events: Vec<OrderEvent>,
    pub is_open: bool,
    pub side: Side,
    pub strategy: StrategyIdx,
    pub instructions: Instructions,
    /// The names of the reasons that it hears.
    pub reasons: Vec<&'static str>,
    /// The order that the next book replaces.
    pub replace: Option<u64>,
    /// The order that the next book cancels.
    pub cancel: Option<u64>,
    /// It throws the kill switch with the next book.
    pub kills: bool,
}

impl Strategy for Buyer {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        let Some((price, qty)) = book.bid else { return };
        if core::mem::take(&mut self.kills) {
            orders.kill();
        }
        if let Some(id) = self.replace.take() {
            self.ids.extend(orders.replace(id, qty, price));
            return;
        }
        if let Some(id) = self.cancel.take() {
            orders.cancel(id).unwrap();
            return;
        }
        let (instrument, strategy, instructions) = (book.instrument, self.strategy, self.instructions);
        let request = OrderRequest { strategy, instructions, ..OrderRequest::limit(instrument, self.side, qty, price) };
        match orders.send(&request) {
            Ok(id) => self.ids.push(id),
            Err(refusal) => self.refusals.push(refusal),
        }
    }

    fn on_order(&mut self, event: &OrderEvent, orders: &mut Orders<'_>) {
        self.reasons.extend(orders.reason(&event.event));
        self.events.push(*event);
    }

    fn on_session_open(&mut self, _orders: &mut Orders<'_>) {
        self.is_open = true;
    }

    fn on_session_closed(&mut self, _orders: &mut Orders<'_>) {
        self.is_open = false;
    }
}

/// A book with `qty` bid at 100 dollars, and an offer a cent higher.
pub fn book(qty: u32, at_ns: u64) -> BookEvent {
    let (bid, offer) = (Some((Price(1_000_000), qty)), Some((Price(1_000_100), qty)));
    BookEvent { instrument: STOCK, bid, offer, is_stale: false, is_halted: false, at_ns }
}

pub fn config(kill: &KillSwitch) -> CoreConfig {
    config_of(&[SYMBOL], kill)
}

/// Each instrument has the limits of [`limits`].
pub fn config_of(symbols: &[Symbol], kill: &KillSwitch) -> CoreConfig {
    let (mut limits, instruments) = (limits(), symbols.len());
    limits.instruments = vec![limits.instruments[0]; instruments].into();
    (limits.restricted, limits.shortable) = (Bitmap::new(instruments), Bitmap::new(instruments));
    CoreConfig {
        instruments: symbols.iter().map(|&symbol| Instrument { symbol, route: Route::default() }).collect(),
        manager: ManagerConfig {
            kill: kill.clone(),
            orders: OrderCapacity { orders: 64, executions: 256, instruments },
            recent: 64,
            ..ManagerConfig::new(*limits)
        },
        answer_timeout_ns: CoreConfig::ANSWER_TIMEOUT_NS,
        kill_line: KillLine::default(),
    }
}

pub fn session() -> OuchClient {
    let credentials = Credentials::new("TRADER", "SECRET").unwrap();
    OuchClient::new(ClientConfig::new(credentials)).of_firm(Text::new("FIRM").unwrap(), Capacity::AGENCY)
}

/// A gateway with an empty journal of `len` bytes.
pub fn gateway(kill: &KillSwitch, len: usize) -> TestGateway {
    let journal = Journal::create(vec![0; len], 7, 0, RESERVE).unwrap();
    Gateway::new(Buyer::default(), Core::new(config(kill), session(), journal))
}

/// A gateway that goes on where `journal` ends.
pub fn recovered(journal: Vec<u8>) -> TestGateway {
    let (core, rebuild) = Core::recover(config(&KillSwitch::new()), session(), journal, RESERVE).unwrap();
    assert_eq!(rebuild.counts().refused, 0);
    Gateway::new(Buyer::default(), core)
}

pub struct Venue {
    server: Server,
    /// Numbered messages of the day.
    log: Vec<Vec<u8>>,
    pub orders: Vec<EnterOrder>,
    pub cancels: usize,
    pub mass_cancels: usize,
    /// It refuses mass cancels, as for a firm that it does not know.
    pub refuses_mass_cancels: bool,
    next_ref: u32,
    out: Vec<u8>,
    /// What arrives is lost.
    pub is_deaf: bool,
    /// Account queries that arrived.
    pub queries: usize,
}

impl Venue {
    pub fn new() -> Self {
        Self {
            server: Server::new(ServerConfig::default()),
            log: Vec::new(),
            orders: Vec::new(),
            cancels: 0,
            mass_cancels: 0,
            refuses_mass_cancels: false,
            next_ref: 1,
            out: Vec::new(),
            is_deaf: false,
            queries: 0,
        }
    }

    /// Connects, and lets the login and the account query pass.
    pub fn connect<T: Strategy, M: JournalMemory>(&mut self, gateway: &mut Gateway<T, OuchClient, M>, now_ns: u64) {
        self.server.connected(now_ns);
        gateway.connected(now_ns).unwrap();
        self.pump(gateway, now_ns);
    }

    /// Lets bytes pass both ways until there are none.
    pub fn pump<T: Strategy, M: JournalMemory>(&mut self, gateway: &mut Gateway<T, OuchClient, M>, now_ns: u64) {
        loop {
            let bytes = gateway.core().to_send().to_vec();
            gateway.core_mut().sent(bytes.len());
            if !self.is_deaf {
                self.receive(&bytes, now_ns);
            }
            let answers = std::mem::take(&mut self.out);
            gateway.received(&answers, now_ns).unwrap();
            if bytes.is_empty() && answers.is_empty() {
                return;
            }
        }
    }

    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        let mut input = bytes;
        loop {
            let event = match self.server.receive(now_ns, &mut input).unwrap() {
                None => return,
                Some(ServerEvent::Login(login)) => Err(login),
                Some(ServerEvent::Unsequenced(message)) => Ok(message.to_vec()),
                Some(_) => continue,
            };
            match event {
                Ok(message) => self.take(&message, now_ns),
                Err(login) => {
                    let next = login.number.get().unwrap().max(1);
                    let mut buffer = [0; 4_096];
                    let mut output = Output::new(&mut buffer);
                    self.server.accept(now_ns, SessionId::new("DAY").unwrap(), next, &mut output).unwrap();
                    for message in &self.log[next as usize - 1..] {
                        self.server.send(now_ns, message, &mut output).unwrap();
                    }
                    self.out.extend_from_slice(output.written());
                }
            }
        }
    }

    fn take(&mut self, message: &[u8], now_ns: u64) {
        let (message, options) = Inbound::parse(message).unwrap();
        if let Some(user_ref) = message.takes_user_ref() {
            assert!(user_ref >= self.next_ref, "a number was used twice");
            self.next_ref = user_ref + 1;
        }
        match message {
            Inbound::EnterOrder(order) => self.orders.push(*order),
            Inbound::CancelOrder(_) => self.cancels += 1,
            Inbound::MassCancel(cancel) => {
                self.mass_cancels += 1;
                if self.refuses_mass_cancels {
                    self.reject(cancel.user_ref.get(), now_ns);
                }
            }
            Inbound::AccountQuery(_) => {
                let idx = options.user_ref_idx();
                self.queries += usize::from(idx == 0);
                let answer = AccountQueryResponse { at_ns: 0.into(), next_user_ref: self.next_ref.into() };
                let mut bytes = [0; 64];
                let len = answer.emit(&[Field::UserRefIdx(idx)], &mut bytes).unwrap();
                self.say(&bytes[..len], now_ns);
            }
            _ => (),
        }
    }

    /// Numbers a message, and sends it where somebody is connected.
    pub fn say(&mut self, message: &[u8], now_ns: u64) {
        self.log.push(message.to_vec());
        let mut buffer = [0; 256];
        let mut output = Output::new(&mut buffer);
        if self.server.is_logged_in() {
            self.server.send(now_ns, message, &mut output).unwrap();
            self.out.extend_from_slice(output.written());
        }
    }

    pub fn accept(&mut self, idx: usize, now_ns: u64) {
        let order = self.orders[idx];
        let accepted = OrderAccepted {
            at_ns: 0.into(),
            user_ref: order.user_ref,
            side: order.side,
            quantity: order.quantity,
            symbol: order.symbol,
            price: order.price,
            time_in_force: order.time_in_force,
            display: order.display,
            order_ref: (900 + u64::from(order.user_ref.get())).into(),
            capacity: order.capacity,
            intermarket_sweep: order.intermarket_sweep,
            cross_type: order.cross_type,
            state: OrderState::LIVE,
            cl_ord_id: order.cl_ord_id,
        };
        let mut bytes = [0; 128];
        let len = accepted.emit(&[], &mut bytes).unwrap();
        self.say(&bytes[..len], now_ns);
    }

    pub fn fill(&mut self, idx: usize, qty: u32, match_number: u64, now_ns: u64) {
        let order = self.orders[idx];
        let executed = OrderExecuted {
            at_ns: 0.into(),
            user_ref: order.user_ref,
            quantity: qty.into(),
            price: order.price,
            liquidity: LiquidityFlag(b'A'),
            match_number: match_number.into(),
        };
        let mut bytes = [0; 128];
        let len = executed.emit(&[], &mut bytes).unwrap();
        self.say(&bytes[..len], now_ns);
    }

    pub fn reject(&mut self, user_ref: u32, now_ns: u64) {
        let (user_ref, reason_code) = (user_ref.into(), RejectReason::FIRM_NOT_AUTHORIZED.0.into());
        let rejected = OrderRejected { at_ns: 0.into(), user_ref, reason_code, cl_ord_id: Text::BLANK };
        let mut bytes = [0; 64];
        let len = rejected.emit(&[], &mut bytes).unwrap();
        self.say(&bytes[..len], now_ns);
    }

    pub fn cancel(&mut self, idx: usize, qty: u32, now_ns: u64) {
        let user_ref = self.orders[idx].user_ref;
        let reason = CancelReason(b'U');
        let canceled = OrderCanceled { at_ns: 0.into(), user_ref, quantity: qty.into(), reason };
        let mut bytes = [0; 64];
        let len = canceled.emit(&[], &mut bytes).unwrap();
        self.say(&bytes[..len], now_ns);
    }

    /// Ends the session: the next one has other messages, and the account's numbers begin anew.
    pub fn end_session(&mut self, now_ns: u64) {
        let mut buffer = [0; 64];
        let mut output = Output::new(&mut buffer);
        self.server.end_session(now_ns, &mut output).unwrap();
        self.out.extend_from_slice(output.written());
        (self.server, self.next_ref) = (Server::new(ServerConfig::default()), 1);
        self.log.clear();
    }

    /// Connects a gateway and arms it, and accepts the order of 100 shares that it sends.
    pub fn accept_one_order(&mut self, gateway: &mut TestGateway) {
        self.connect(gateway, SECOND);
        gateway.core_mut().arm(SECOND);
        gateway.on_book(&book(100, SECOND));
        self.pump(gateway, SECOND);
        self.accept(0, SECOND);
        self.pump(gateway, SECOND);
    }

    pub fn disconnect(&mut self, gateway: &mut TestGateway, now_ns: u64) {
        self.server.disconnected();
        gateway.disconnected(now_ns);
    }

    pub fn disconnected(&mut self) {
        self.server.disconnected();
    }

    /// Begins a connection with `bytes`, and returns what the venue answers.
    pub fn answers_to(&mut self, bytes: &[u8], now_ns: u64) -> Vec<u8> {
        self.server.connected(now_ns);
        self.answers_to_more(bytes, now_ns)
    }

    /// What the venue says after `bytes`.
    pub fn answers_to_more(&mut self, bytes: &[u8], now_ns: u64) -> Vec<u8> {
        self.receive(bytes, now_ns);
        std::mem::take(&mut self.out)
    }
}
