//! What becomes of a live order by a wish: smaller, gone, or another in its place.

use market::Locate;

use super::admit::Admitted;
use super::{Cx, Engine, NotLive};
use crate::arena::{NONE, Slot};
use crate::event::{Body, Replaced, Sink, TradingState};
use crate::order::{Life, NewOrder, OnHalt, OrderId, Owner, Pricing, SelfTrade, Terms};
use crate::reason::{CancelReason, RejectReason};

/// Why a replacement did not take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceError {
    /// The order is not live. Nothing happened.
    NotLive,
    /// The new terms are wrong. The order was canceled.
    Terms(RejectReason),
}

impl Engine {
    /// Cancels an order.
    pub fn cancel<S: Sink>(
        &mut self,
        id: OrderId,
        reason: CancelReason,
        now_ns: u64,
        sink: &mut S,
    ) -> Result<(), NotLive> {
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        let slot = self.find(id)?;
        self.withdraw_and_settle(slot, u32::MAX, reason, &mut cx);
        Ok(())
    }

    /// Makes an order smaller; it keeps its time. `qty` counts the shares that have traded, as the
    /// order's own quantity does: an order with as many or more is canceled. A larger quantity
    /// changes nothing, and there is no event.
    pub fn reduce<S: Sink>(&mut self, id: OrderId, qty: u32, now_ns: u64, sink: &mut S) -> Result<(), NotLive> {
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        let slot = self.find(id)?;
        let order = self.orders.get(slot);
        let decrement = order.leaves.saturating_sub(qty.saturating_sub(order.executed));
        if decrement > 0 {
            self.withdraw_and_settle(slot, decrement, CancelReason::User, &mut cx);
        }
        Ok(())
    }

    /// Puts an order with other terms in the place of one: a new id, a new reference, the last time
    /// at its price. Instrument, side and what concerns self-trades stay. The quantity counts what
    /// the old one has traded: with no more than that, the new one ends as it begins.
    pub fn replace<S: Sink>(
        &mut self,
        id: OrderId,
        token: u64,
        terms: &Terms,
        now_ns: u64,
        sink: &mut S,
    ) -> Result<OrderId, ReplaceError> {
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        let slot = self.find(id).map_err(|NotLive| ReplaceError::NotLive)?;
        let order = self.orders.get(slot);
        let (symbol, side) = (order.symbol, order.side);
        let admitted = self.admit_terms(symbol, terms, now_ns);
        if let Err(reason) = admitted.and_then(|()| self.check_post_only(symbol, side, terms)) {
            self.withdraw_and_settle(slot, u32::MAX, CancelReason::Replace, &mut cx);
            return Err(ReplaceError::Terms(reason));
        }
        let new = self.exchange(slot, token, terms, &mut cx);
        self.settle(symbol, &mut cx);
        Ok(new)
    }

    /// What [`Engine::replace`] would refuse `terms` for; it would cancel the order then, and
    /// this changes nothing. For protocols where a replacement that is refused leaves the order
    /// as it is.
    pub fn check_replacement(&self, id: OrderId, terms: &Terms, now_ns: u64) -> Result<(), ReplaceError> {
        let slot = self.find(id).map_err(|NotLive| ReplaceError::NotLive)?;
        let order = self.orders.get(slot);
        let admitted = self.admit_terms(order.symbol, terms, now_ns);
        let admitted = admitted.and_then(|()| self.check_post_only(order.symbol, order.side, terms));
        admitted.map_err(ReplaceError::Terms)
    }

    /// The replacement itself, of terms that make sense.
    fn exchange<S: Sink>(&mut self, slot: Slot, token: u64, terms: &Terms, cx: &mut Cx<'_, S>) -> OrderId {
        let order = self.orders.get_mut(slot);
        let self_trade = (order.group != 0).then_some(SelfTrade { group: order.group, rule: order.rule });
        let (symbol, side, executed) = (order.symbol, order.side, order.executed);
        let new = NewOrder {
            owner: Owner(order.owner),
            token,
            symbol: super::locate(symbol),
            side,
            self_trade,
            on_halt: order.on_halt,
            terms: *terms,
        };
        let was_displayed = self.detach(slot);
        self.orders.get_mut(slot).leaves = 0;
        let old = self.state(slot);
        self.end(slot);
        // The old order has just made room.
        let executed = executed.min(terms.qty);
        let admitted = Admitted { symbol, plain: terms.plain_limit() };
        let slot = self.open(&new, admitted, executed).expect("an order has just ended");
        let displayed = self.rests_at_once(slot, terms).filter(|_| was_displayed);
        let (id, price) = (self.orders.id(slot), self.stated_price(slot, terms).unwrap_or_default());
        let new = self.state(slot);
        cx.emit(symbol, Body::Replaced(Replaced { old, new, price, was_displayed, displayed }));
        if new.leaves == 0 {
            self.end(slot);
        } else {
            self.enter(slot, terms, displayed.is_some(), cx);
        }
        id
    }

    /// Displayed shares of a loose order that comes to rest as it is.
    fn rests_at_once(&self, slot: Slot, terms: &Terms) -> Option<u32> {
        let order = self.orders.get(slot);
        let Pricing::Limit(limit) = terms.pricing else { return None };
        if !matches!(terms.life, Life::Day | Life::Until(_)) {
            return None;
        }
        let shown = super::queues::shown_of(terms.display, order.leaves);
        let trades = self.book(order.symbol).state == TradingState::Trading
            && self.would_trade_at(order.symbol, order.side, limit, order.leaves).is_some();
        (shown > 0 && !trades).then_some(shown)
    }

    /// Cancels all orders of an owner, or those in one instrument; the number of them. Reads
    /// four bytes for each order of the most that were ever live at once, and walks over the books
    /// where it found one.
    pub fn cancel_all<S: Sink>(
        &mut self,
        owner: Owner,
        symbol: Option<Locate>,
        reason: CancelReason,
        now_ns: u64,
        sink: &mut S,
    ) -> usize {
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        let before = self.orders.len();
        let mut at = self.orders.next_of(owner.0, 0);
        while at != NONE {
            if symbol.is_none_or(|symbol| symbol == super::locate(self.orders.get(at).symbol)) {
                self.withdraw(at, u32::MAX, reason, None, &mut cx);
            }
            at = self.orders.next_of(owner.0, at + 1);
        }
        let count = before - self.orders.len();
        if count > 0 {
            for symbol in 0..self.books.len() as u16 {
                self.settle(symbol, &mut cx);
            }
        }
        count
    }

    /// Cancels orders whose time is over. The other verbs do that first, so this is needed only
    /// where no order arrives: see [`Engine::next_expiry_ns`].
    pub fn expire<S: Sink>(&mut self, now_ns: u64, sink: &mut S) {
        self.expire_due(&mut Cx { now_ns, sink });
    }

    #[inline]
    pub(super) fn expire_due<S: Sink>(&mut self, cx: &mut Cx<'_, S>) {
        if self.expiries.is_due(cx.now_ns) {
            self.expire_all_due(cx);
        }
    }

    #[cold]
    fn expire_all_due<S: Sink>(&mut self, cx: &mut Cx<'_, S>) {
        while let Some(id) = self.expiries.pop(cx.now_ns) {
            if let Some(slot) = self.orders.find(id) {
                self.withdraw_and_settle(slot, u32::MAX, CancelReason::Timeout, cx);
            }
        }
    }

    #[inline]
    pub(super) fn withdraw_and_settle<S: Sink>(
        &mut self,
        slot: Slot,
        decrement: u32,
        reason: CancelReason,
        cx: &mut Cx<'_, S>,
    ) {
        let symbol = self.orders.get(slot).symbol;
        self.withdraw(slot, decrement, reason, None, cx);
        self.settle(symbol, cx);
    }

    /// Cancels the orders of a book that `which` selects, in the order of the ladders.
    pub(super) fn cancel_where<S: Sink>(
        &mut self,
        symbol: u16,
        reason: CancelReason,
        which: impl Fn(OnHalt) -> bool,
        cx: &mut Cx<'_, S>,
    ) {
        for lane in 0..crate::book::lane::COUNT {
            let mut at = self.book(symbol).ladders[usize::from(lane)].best();
            while at != NONE {
                let level = self.levels.get(at);
                let (shown, hidden, worse) = (level.shown_head(), level.hidden_head(), level.worse());
                for head in [shown, hidden] {
                    self.cancel_queue(head, reason, &which, cx);
                }
                at = worse;
            }
        }
        let mut at = self.book(symbol).pegs.head;
        while at != NONE {
            let next = self.peg_links.next(at);
            if which(self.orders.get(at).on_halt) {
                self.withdraw(at, u32::MAX, reason, None, cx);
            }
            at = next;
        }
    }

    fn cancel_queue<S: Sink>(
        &mut self,
        head: Slot,
        reason: CancelReason,
        which: &impl Fn(OnHalt) -> bool,
        cx: &mut Cx<'_, S>,
    ) {
        let mut at = head;
        while at != NONE {
            let order = self.orders.get(at);
            let next = order.next;
            if which(order.on_halt) {
                self.withdraw(at, u32::MAX, reason, None, cx);
            }
            at = next;
        }
    }
}
