//! OUCH 5.0 over SoupBinTCP.
//!
//! After a login account queries follow. An answer is numbered, so it arrives behind the answers to
//! all that the venue had processed, and names the first UserRefNum that it has not seen. It may be
//! one to a query of an earlier connection, behind which orders were sent: [`Account`] knows which
//! answer counts. Later queries ask about requests without an answer.

use market::{Price, Side, Symbol};
use order_entry::Text;
use order_entry::orders::{OrderKey, OrderRules, Query, VenueMessage};
use order_entry::ouch::v50::{AccountQuery, CancelOrder, EnterOrder, MassCancel, ReplaceOrder};
use order_entry::ouch::{
    Account, Capacity, CrossType, Display, OrderTemplate, PRICE_MAX, QUANTITY_MAX, TimeInForce, YesNo, read,
};
use order_entry::session::{Output, SECOND_NS};
use order_entry::soupbin::{Client, ClientConfig, ClientEvent, Credentials, SessionId, StartNumber};

use super::{SendError, Session, SessionError, SessionEvent, WireOrder};

/// Bytes that are kept for a heartbeat, an account query and a mass cancel.
const SPARE: usize = 64;

/// How to log in, and as whom.
#[derive(Clone, Copy, Debug)]
pub struct Ouch50Config {
    /// User and password.
    pub credentials: Credentials,
    /// The firm, for mass cancels.
    pub firm: Text<4>,
    /// For whom the firm trades.
    pub capacity: Capacity,
    /// The venue is dead after this silence. By default 15 s.
    pub silence_ns_max: u64,
}

impl Ouch50Config {
    /// All defaults.
    pub const fn new(credentials: Credentials, firm: Text<4>) -> Self {
        Self { credentials, firm, capacity: Capacity::AGENCY, silence_ns_max: 15 * SECOND_NS }
    }
}

/// The session.
#[derive(Debug)]
pub struct Ouch50 {
    config: Ouch50Config,
    client: Client,
    account: Account,
    /// The venue has said on this connection which requests it has processed.
    is_recovered: bool,
    resume: (SessionId, u64),
    /// An order whose fields are patched before it is written.
    template: OrderTemplate,
    is_template_ioc: bool,
}

fn order(config: &Ouch50Config, is_ioc: bool) -> EnterOrder {
    EnterOrder {
        user_ref: 0.into(),
        side: order_entry::ouch::Side::BUY,
        quantity: 0.into(),
        symbol: Symbol::NONE,
        price: 0.into(),
        time_in_force: if is_ioc { TimeInForce::IMMEDIATE_OR_CANCEL } else { TimeInForce::DAY },
        display: Display::VISIBLE,
        capacity: config.capacity,
        intermarket_sweep: YesNo::NO,
        cross_type: CrossType::CONTINUOUS,
        cl_ord_id: Text::BLANK,
    }
}

impl Ouch50 {
    /// A session that begins with the day, or goes on after [`Session::resume`].
    pub fn new(config: Ouch50Config) -> Self {
        let client = ClientConfig { silence_ns_max: config.silence_ns_max, ..ClientConfig::new(config.credentials) };
        #[expect(clippy::expect_used, reason = "an order without options always fits its template")]
        let template = OrderTemplate::new(&order(&config, false), &[]).expect("an order without options fits");
        Self {
            client: Client::new(client),
            account: Account::new(),
            is_recovered: false,
            resume: (SessionId::BLANK, 1),
            template,
            is_template_ioc: false,
            config,
        }
    }

    fn open(&self) -> Result<(), SendError> {
        if self.is_open() { Ok(()) } else { Err(SendError::Closed) }
    }

    /// What a message of the venue means for the gateway.
    fn take(&mut self, number: u64, message: VenueMessage) -> SessionEvent {
        match message {
            VenueMessage::Answer { key, event, terms, is_dead } => {
                if let OrderKey::Client(id) = key {
                    self.account.answered(id);
                }
                SessionEvent::Answer { number, key, event, terms, is_dead }
            }
            VenueMessage::Refused { id, reason } => {
                self.account.answered(id);
                SessionEvent::RequestRefused { number, id, reason }
            }
            VenueMessage::Settled { next_id } if self.account.told(next_id as u32) => {
                self.is_recovered = true;
                SessionEvent::Recovered { number, next_id, is_final: true }
            }
            VenueMessage::Settled { next_id } if self.is_recovered => {
                SessionEvent::AnsweredBelow { number, below: next_id }
            }
            _ => SessionEvent::Other { number },
        }
    }
}

impl Session for Ouch50 {
    fn rules(&self) -> OrderRules {
        OrderRules { full_fill_voids_replaces: true }
    }

    fn resume(&mut self, session: [u8; 10], next_inbound: u64, next_id: u64) {
        self.resume = (SessionId::from_wire(session), next_inbound);
        self.account = Account::resumed(u32::try_from(next_id).unwrap_or(u32::MAX));
    }

    fn connected(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SessionError> {
        let (session, number) = self.resume;
        self.is_recovered = false;
        self.client.connect(now_ns, session, number, output).map_err(|error| SessionError(error.to_string()))
    }

    fn disconnected(&mut self) {
        self.client.disconnected();
        self.account.disconnected();
        self.is_recovered = false;
    }

    fn receive(
        &mut self,
        now_ns: u64,
        input: &mut &[u8],
        output: &mut Output<'_>,
    ) -> Result<Option<SessionEvent>, SessionError> {
        loop {
            let failed = |error: order_entry::soupbin::SoupError| SessionError(error.to_string());
            let Some(event) = self.client.receive(now_ns, input).map_err(failed)? else { return Ok(None) };
            let event = match event {
                ClientEvent::LoggedIn { session, next, start } => {
                    let is_gap = matches!(start, StartNumber::ServerLost { .. } | StartNumber::Gap { .. });
                    self.resume = (session, next);
                    let event = SessionEvent::LoggedIn { session: session.to_wire(), next_inbound: next, is_gap };
                    for _ in 0..self.account.login_queries() {
                        query(&mut self.client, now_ns, output)?;
                    }
                    event
                }
                ClientEvent::LoginRejected(reason) => {
                    return Err(SessionError(format!("the venue refused the login: {reason:?}")));
                }
                ClientEvent::Sequenced { number, message } => {
                    self.resume.1 = number.saturating_add(1);
                    let message = read(message).map_err(|error| SessionError(error.to_string()))?;
                    self.take(number, message)
                }
                ClientEvent::EndOfSession => {
                    self.resume = (SessionId::BLANK, 1);
                    SessionEvent::Ended
                }
                _ => continue,
            };
            return Ok(Some(event));
        }
    }

    fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SessionError> {
        self.client.tick(now_ns, output).map_err(|error| SessionError(error.to_string()))
    }

    fn is_open(&self) -> bool {
        self.is_recovered && self.client.is_logged_in()
    }

    fn next_id(&self) -> u64 {
        u64::from(self.account.next_number())
    }

    fn skip_id(&mut self) {
        // At the day's last number the next order is refused for want of one.
        let _ = self.account.take();
    }

    fn may_send(&self, qty: u32, price: Price, output: &Output<'_>) -> Result<(), SendError> {
        self.open()?;
        if qty == 0 || qty > QUANTITY_MAX || price.0 <= 0 || price.0 > i64::from(PRICE_MAX) {
            return Err(SendError::Range);
        }
        if self.account.next_number() == u32::MAX {
            return Err(SendError::Ids);
        }
        if output.room() < self.template.bytes().len() + SPARE { Err(SendError::Room) } else { Ok(()) }
    }

    fn new_order(&mut self, now_ns: u64, wire: &WireOrder, output: &mut Output<'_>) -> Result<(), SendError> {
        self.may_send(wire.qty, wire.price, output)?;
        self.client.sent(now_ns).map_err(|_| SendError::Closed)?;
        let id = self.account.take().ok_or(SendError::Ids)?;
        if wire.is_ioc != self.is_template_ioc {
            self.template = OrderTemplate::new(&order(&self.config, wire.is_ioc), &[]).ok_or(SendError::Room)?;
            self.is_template_ioc = wire.is_ioc;
        }
        self.template.patch(id, wire.qty, wire.price.0 as u64);
        self.template.patch_side(match (wire.side, wire.is_short) {
            (Side::Buy, _) => order_entry::ouch::Side::BUY,
            (Side::Sell, false) => order_entry::ouch::Side::SELL,
            (Side::Sell, true) => order_entry::ouch::Side::SELL_SHORT,
        });
        let packet = output.take(self.template.bytes().len()).map_err(|_| SendError::Room)?;
        packet.copy_from_slice(self.template.bytes());
        packet[OrderTemplate::SYMBOL_AT..OrderTemplate::SYMBOL_AT + 8].copy_from_slice(&wire.symbol.0);
        Ok(())
    }

    fn replace(
        &mut self,
        now_ns: u64,
        target: u64,
        wire: &WireOrder,
        output: &mut Output<'_>,
    ) -> Result<(), SendError> {
        self.may_send(wire.qty, wire.price, output)?;
        let id = self.account.take().ok_or(SendError::Ids)?;
        let replace = ReplaceOrder {
            orig_user_ref: (target as u32).into(),
            user_ref: id.into(),
            quantity: wire.qty.into(),
            price: (wire.price.0 as u64).into(),
            time_in_force: TimeInForce::DAY,
            display: Display::VISIBLE,
            intermarket_sweep: YesNo::NO,
            cl_ord_id: Text::BLANK,
        };
        let mut message = [0; 64];
        let len = replace.emit(&[], &mut message).ok_or(SendError::Room)?;
        self.client.send(now_ns, &message[..len], output).map_err(|_| SendError::Closed)
    }

    fn cancel(&mut self, now_ns: u64, target: u64, output: &mut Output<'_>) -> Result<(), SendError> {
        self.open()?;
        let cancel = CancelOrder { user_ref: (target as u32).into(), quantity: 0.into() };
        let mut message = [0; 16];
        let len = cancel.emit(&[], &mut message).ok_or(SendError::Room)?;
        self.client.send(now_ns, &message[..len], output).map_err(|_| SendError::Room)
    }

    fn cancel_all(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<bool, SendError> {
        self.open()?;
        let id = self.account.take().ok_or(SendError::Ids)?;
        let cancel = MassCancel { user_ref: id.into(), firm: self.config.firm, symbol: Symbol::NONE };
        let mut message = [0; 32];
        let len = cancel.emit(&[], &mut message).ok_or(SendError::Room)?;
        self.client.send(now_ns, &message[..len], output).map_err(|_| SendError::Room)?;
        Ok(true)
    }

    fn ask_status(&mut self, now_ns: u64, _query: &Query, output: &mut Output<'_>) -> Result<bool, SendError> {
        self.open()?;
        query(&mut self.client, now_ns, output).map_err(|_| SendError::Room)?;
        self.account.asked();
        Ok(true)
    }

    fn logout(&mut self, now_ns: u64, output: &mut Output<'_>) {
        // A connection that is not logged in is closed by its owner alone.
        let _ = self.client.logout(now_ns, output);
    }
}

/// Asks for the first UserRefNum that the venue has not seen.
fn query(client: &mut Client, now_ns: u64, output: &mut Output<'_>) -> Result<(), SessionError> {
    let mut message = [0; 8];
    let len = AccountQuery {}.emit(&[], &mut message).unwrap_or_default();
    client.send(now_ns, &message[..len], output).map_err(|error| SessionError(error.to_string()))
}
