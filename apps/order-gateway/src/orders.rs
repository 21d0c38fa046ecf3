//! The strategy's hands: each request passes the checks and stands in the journal before it is
//! written.

use std::fmt;

use market::{Price, Side};
use order_entry::Refusal;
use order_entry::journal::JournalMemory;
use order_entry::orders::{Instructions, Order, OrderKey, OrderTable, OrderType, VenueEvent};
use order_entry::risk::{InstrumentIdx, Market, StrategyIdx};
use order_entry::session::VenueSession;

use crate::core::Core;
use crate::feed::Depth;
use crate::latency::Latency;

/// An order that a strategy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRequest {
    /// The instrument, by its position in the configuration.
    pub instrument: InstrumentIdx,
    /// Buy or sell.
    pub side: Side,
    /// Shares.
    pub qty: u32,
    /// The limit, which a pegged order does not pass. That of a market order says nothing.
    pub price: Price,
    /// How it is priced, how long it lives, and what else it says. What the venue's protocol cannot
    /// say is refused by the field's name, before anything is reserved.
    pub instructions: Instructions,
    /// Whose it is, by its position in the limits.
    pub strategy: StrategyIdx,
}

impl OrderRequest {
    /// A limit order of the first strategy, which rests where it does not trade.
    pub const fn limit(instrument: InstrumentIdx, side: Side, qty: u32, price: Price) -> Self {
        Self { instrument, side, qty, price, instructions: Instructions::PLAIN, strategy: StrategyIdx(0) }
    }

    /// A market order of the first strategy. Risk values it at the edge of the collar that is worth
    /// more, also a sale, and refuses it where there is no collar, or no reference price.
    pub const fn market(instrument: InstrumentIdx, side: Side, qty: u32) -> Self {
        let instructions = Instructions { order_type: OrderType::Market, ..Instructions::PLAIN };
        Self { instructions, ..Self::limit(instrument, side, qty, Price(0)) }
    }
}

/// What a strategy can do, for the time of one call of it.
#[derive(Debug)]
pub struct Orders<'a> {
    pub(crate) core: &'a mut dyn CoreCalls,
    pub(crate) now_ns: u64,
    /// Where it is measured, and a packet may be the cause.
    pub(crate) latency: Option<&'a mut Latency>,
    /// Of the book that the call tells of, where the feed is the gateway's own.
    pub(crate) depth: Option<Depth<'a>>,
}

/// The calls of a [`Core`] without its types, so that a strategy has none of them.
pub(crate) trait CoreCalls: fmt::Debug {
    fn new_order(&mut self, request: &OrderRequest, now_ns: u64) -> Result<u64, Refusal>;
    fn replace(&mut self, id: u64, terms: (u32, Price), now_ns: u64) -> Result<u64, Refusal>;
    fn cancel(&mut self, id: u64, now_ns: u64) -> Result<(), Refusal>;
    fn cancel_all(&mut self, now_ns: u64);
    fn kill(&mut self, now_ns: u64);
    fn order(&self, id: u64) -> Option<&Order>;
    fn table(&self) -> &OrderTable;
    fn position(&self, instrument: InstrumentIdx) -> Option<i64>;
    fn opening_position(&self, instrument: InstrumentIdx) -> Option<i64>;
    fn market(&self, instrument: InstrumentIdx) -> Option<Market>;
    fn is_armed(&self) -> bool;
    fn set_timer(&mut self, at_ns: Option<u64>);
    fn reason(&self, event: &VenueEvent) -> Option<&'static str>;
}

impl<'a> Orders<'a> {
    /// The whole book that [`Strategy::on_book`](crate::Strategy::on_book) tells of, as the packet
    /// leaves it. `None` in other calls, and where prices are quotes of a market-gateway.
    pub const fn depth(&self) -> Option<Depth<'a>> {
        self.depth
    }

    /// Sends an order. Returns its client id.
    pub fn send(&mut self, request: &OrderRequest) -> Result<u64, Refusal> {
        self.measured(|core, now_ns| core.new_order(request, now_ns))
    }

    /// Replaces the order that `id` names: `qty` is the intended total with executions. It keeps
    /// its instructions; a market order has no price to replace. Returns the new client id.
    pub fn replace(&mut self, id: u64, qty: u32, price: Price) -> Result<u64, Refusal> {
        self.measured(|core, now_ns| core.replace(id, (qty, price), now_ns))
    }

    /// Cancels what is open of the order that `id` names.
    pub fn cancel(&mut self, id: u64) -> Result<(), Refusal> {
        self.measured(|core, now_ns| core.cancel(id, now_ns))
    }

    #[inline]
    fn measured<T>(
        &mut self,
        request: impl FnOnce(&mut dyn CoreCalls, u64) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let Some(latency) = &mut self.latency else { return request(self.core, self.now_ns) };
        let decided = latency.decide();
        let sent = request(self.core, self.now_ns)?;
        latency.written(decided);
        Ok(sent)
    }

    /// Cancels all orders.
    pub fn cancel_all(&mut self) {
        self.core.cancel_all(self.now_ns);
    }

    /// Throws the kill switch, as a person's `kill` does: all orders are canceled, and none passes
    /// until a person arms. For a strategy that no longer believes what it sees.
    pub fn kill(&mut self) {
        self.core.kill(self.now_ns);
    }

    /// The order that `id` names, live or ended a while ago.
    pub fn get(&self, id: u64) -> Option<&Order> {
        self.core.order(id)
    }

    /// All live orders: after a start those that the journal had. A look at each slot of the table
    /// that was ever used.
    pub fn live(&self) -> impl Iterator<Item = &Order> {
        self.core.table().live().map(|(_, order)| order)
    }

    /// Bought less sold, with what the account held before.
    pub fn position(&self, instrument: InstrumentIdx) -> Option<i64> {
        self.core.position(instrument)
    }

    /// What the account held before the journal's first order.
    pub fn opening_position(&self, instrument: InstrumentIdx) -> Option<i64> {
        self.core.opening_position(instrument)
    }

    /// What the feed said last.
    pub fn market(&self, instrument: InstrumentIdx) -> Option<Market> {
        self.core.market(instrument)
    }

    /// Whether orders may pass.
    pub fn is_armed(&self) -> bool {
        self.core.is_armed()
    }

    /// What the reason of a venue's event means, by the names of its protocol; `None` where it has
    /// none, or a code that the protocol's documents do not have.
    pub fn reason(&self, event: &VenueEvent) -> Option<&'static str> {
        self.core.reason(event)
    }

    /// The time of this call, in nanoseconds.
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Has [`Strategy::on_timer`](crate::Strategy::on_timer) called at `at_ns`, in place of any
    /// other time; `None` for never.
    pub fn set_timer(&mut self, at_ns: Option<u64>) {
        self.core.set_timer(at_ns);
    }
}

impl<S: VenueSession, M: JournalMemory> CoreCalls for Core<S, M> {
    fn new_order(&mut self, request: &OrderRequest, now_ns: u64) -> Result<u64, Refusal> {
        self.send_order(request, now_ns)
    }

    fn replace(&mut self, id: u64, terms: (u32, Price), now_ns: u64) -> Result<u64, Refusal> {
        self.send_replace(id, terms, now_ns)
    }

    fn cancel(&mut self, id: u64, now_ns: u64) -> Result<(), Refusal> {
        let slot = self.orders().find(OrderKey::Client(id)).ok_or(Refusal::Unknown)?;
        self.send_cancel(slot, now_ns)
    }

    fn cancel_all(&mut self, now_ns: u64) {
        self.send_cancel_all(now_ns);
    }

    fn kill(&mut self, now_ns: u64) {
        self.throw_kill(now_ns);
    }

    fn order(&self, id: u64) -> Option<&Order> {
        self.orders().get(self.orders().find(OrderKey::Client(id))?)
    }

    fn table(&self) -> &OrderTable {
        self.orders()
    }

    fn position(&self, instrument: InstrumentIdx) -> Option<i64> {
        self.risk().position(instrument)
    }

    fn opening_position(&self, instrument: InstrumentIdx) -> Option<i64> {
        self.held_before(instrument)
    }

    fn market(&self, instrument: InstrumentIdx) -> Option<Market> {
        self.markets.get(instrument.0 as usize).copied()
    }

    fn is_armed(&self) -> bool {
        self.risk().is_armed()
    }

    fn set_timer(&mut self, at_ns: Option<u64>) {
        self.timer_ns = at_ns;
    }

    fn reason(&self, event: &VenueEvent) -> Option<&'static str> {
        self.session().reason_codes()?.name(event)
    }
}
