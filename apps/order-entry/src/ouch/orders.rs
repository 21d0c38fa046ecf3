//! A session of OUCH 5.0 with its orders: everything between a strategy and a line.

use market::Symbol;

use super::{OuchClient, OuchClientError, words};
use crate::journal::{Journal, JournalMemory, SessionMark};
use crate::orders::OrderKey;
use crate::risk::{Market, NewOrder, Route};
use crate::session::{OrderTerms, SendError, SessionEvent};
use crate::soupbin::ClientConfig;
use crate::{ManagerConfig, OrderManager, Refusal};

/// An [`OuchClient`] and the [`OrderManager`] that takes its messages. Bytes to send wait in
/// [`OuchOrders::to_send`]; a prepared order does not pass through there.
///
/// ```text
///  strategy ── new_order ──> id ──> patched into a prepared packet ──> line
///  line ────── received ───> order states, journal, risk sums
/// ```
#[derive(Debug)]
pub struct OuchOrders<M> {
    /// The session.
    pub session: OuchClient,
    /// Its orders.
    pub orders: OrderManager<M>,
    /// The number of the order whose memory is in the cache.
    warm_for: u32,
    /// The code of an order may not be: other code ran since.
    is_cold: bool,
}

impl<M: JournalMemory> OuchOrders<M> {
    /// A day that begins, with a new journal. Orders pass when the manager is armed.
    pub fn new(client: ClientConfig, manager: ManagerConfig, journal: Journal<M>) -> Self {
        let manager = ManagerConfig { rules: OuchClient::rules(), ..manager };
        Self {
            session: OuchClient::new(client),
            orders: OrderManager::new(manager, journal),
            warm_for: 0,
            is_cold: true,
        }
    }

    /// The same, armed: for a program that a person starts in order to trade. After a throw of the
    /// kill switch it is armed again by [`OrderManager::arm`] alone.
    pub fn armed(mut self) -> Self {
        self.orders.arm(0);
        self
    }

    /// A connection was made: writes the login.
    pub fn connected(&mut self, now_ns: u64) -> Result<(), OuchClientError> {
        self.session.connected(now_ns)
    }

    /// The connection is gone. Orders are in doubt until the next one.
    pub fn disconnected(&mut self) {
        self.session.disconnected();
        self.orders.disconnected();
    }

    /// Takes received bytes: each message moves its order.
    ///
    /// # Errors
    ///
    /// The venue broke a rule, which the text names, or refused the login: the caller closes the
    /// connection.
    pub fn received(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), OuchClientError> {
        let mut input = bytes;
        self.is_cold = true;
        while let Some(event) = self.session.receive(now_ns, &mut input)? {
            match event {
                SessionEvent::LoggedIn { mark, is_gap } => self.orders.logged_in(&mark, is_gap, now_ns),
                SessionEvent::Message { number, message } => {
                    self.orders.take(number, &message, now_ns);
                }
                SessionEvent::Unread { number } => self.orders.unread(number, self.session.unread_bytes(), now_ns),
                SessionEvent::Ended => self.orders.logged_in(&SessionMark::default(), false, now_ns),
            }
        }
        Ok(())
    }

    /// Other code than an order's runs, that of a tick of the feed: the next
    /// [`OuchOrders::tick`] rehearses, unless an order follows.
    #[inline]
    pub const fn cool(&mut self) {
        self.is_cold = true;
    }

    /// Whether the next [`OuchOrders::tick`] rehearses: the caller then has its own part of an
    /// order in the cache too, such as that of the line.
    #[inline]
    pub const fn is_cold(&self) -> bool {
        self.is_cold
    }

    /// Heartbeats and timeouts of the session: call it in each turn. The turn of an order has it
    /// warm the memory of the next one, and that of an answer, or of a tick without an order,
    /// [rehearse](OrderManager::rehearse).
    ///
    /// # Errors
    ///
    /// The venue has been silent for too long: the caller closes the connection.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) -> Result<(), OuchClientError> {
        let next = self.session.next_id();
        if next != self.warm_for {
            self.warm_for = next;
            self.orders.warm(u64::from(next));
        }
        if core::mem::take(&mut self.is_cold) {
            self.orders.rehearse();
        }
        self.session.tick(now_ns)
    }

    /// Checks an order that is about to be sent, writes it down and opens it. Returns its
    /// UserRefNum. If nothing is sent after all, call [`OuchOrders::unsent`].
    #[inline]
    pub fn new_order(
        &mut self,
        symbol: Symbol,
        order: &NewOrder,
        market: &Market,
        now_ns: u64,
    ) -> Result<u32, Refusal> {
        self.send_order(symbol, order, market, now_ns, |_| true)
    }

    /// The same with the send in its middle: `send` gets the UserRefNum when the order has passed
    /// and stands in the journal, and sends it or returns false. What nobody waits for is written
    /// behind it, some 200 instructions.
    ///
    /// # Errors
    ///
    /// As [`OuchOrders::new_order`]; and [`Refusal::Unsent`] where `send` returned false.
    #[inline]
    pub fn send_order(
        &mut self,
        symbol: Symbol,
        order: &NewOrder,
        market: &Market,
        now_ns: u64,
        send: impl FnOnce(u32) -> bool,
    ) -> Result<u32, Refusal> {
        let NewOrder { qty, price, instructions, .. } = *order;
        words::check_50(&OrderTerms { qty, price, instructions }).map_err(Refusal::Session)?;
        let id = self.session.take_id(now_ns).ok_or(Refusal::Session(SendError::Closed))?;
        self.is_cold = false;
        self.orders.send_order(u64::from(id), symbol, order, market, now_ns, || send(id))?;
        Ok(id)
    }

    /// The order was not sent after all.
    #[cold]
    pub fn unsent(&mut self, id: u32, now_ns: u64) {
        self.orders.unsent(u64::from(id), now_ns);
    }

    /// Cancels what is open of the order with the UserRefNum `id`.
    pub fn cancel(&mut self, id: u32, route: Route, now_ns: u64) -> Result<(), Refusal> {
        if !self.session.is_open() {
            return Err(Refusal::Session(SendError::Closed));
        }
        let slot = self.orders.orders().find(OrderKey::Client(u64::from(id))).ok_or(Refusal::Unknown)?;
        let target = self.orders.cancel(slot, route, now_ns)?;
        self.session.cancel(now_ns, target as u32).map_err(|_| Refusal::Session(SendError::Closed))
    }

    /// Bytes to send, in order. Call [`OuchOrders::sent`] with as many as the line took.
    #[inline]
    pub fn to_send(&self) -> &[u8] {
        self.session.to_send()
    }

    /// The line took `len` bytes.
    #[inline]
    pub fn sent(&mut self, len: usize) {
        self.session.sent(len);
    }
}
