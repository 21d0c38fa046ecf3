//! An order arrives: it is accepted, trades as far as it can, and rests or ends.

use market::{Price, Side, levels};

use super::admit::Admitted;
use super::{Cx, Engine};
use crate::arena::{NONE, Order, Place, Slot};
use crate::book::{any_price, lane, opposite, reaches};
use crate::event::{Accepted, Body, Rejected, Sink, TradingState};
use crate::order::{Display, Life, NewOrder, OrderId, PostOnly, Pricing, SelfTradeRule, Terms};
use crate::reason::{CancelReason, RejectReason};
use crate::ticks;

impl Engine {
    /// Enters an order at `now_ns`. It is accepted, and has then perhaps ended before this returns:
    /// the events say; or it is refused, of which there is one event too.
    pub fn submit<S: Sink>(&mut self, new: &NewOrder, now_ns: u64, sink: &mut S) -> Result<OrderId, RejectReason> {
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        let opened = self.admit(new, now_ns).and_then(|admitted| {
            let slot = self.open(new, admitted, 0).ok_or(RejectReason::Full)?;
            Ok((admitted, slot))
        });
        let (Admitted { symbol, plain }, slot) = match opened {
            Ok(opened) => opened,
            Err(reason) => {
                let body = Body::Rejected(Rejected { owner: new.owner, token: new.token, reason });
                cx.sink.take(&crate::event::Event { at_ns: now_ns, symbol: new.symbol, body });
                return Err(reason);
            }
        };
        let id = self.orders.id(slot);
        let price = plain.or_else(|| self.stated_price(slot, &new.terms)).unwrap_or_default();
        cx.emit(symbol, Body::Accepted(Accepted { order: self.state(slot), price }));
        match plain {
            Some(limit) => self.enter_plain(slot, limit, &mut cx),
            None => self.enter(slot, &new.terms, false, &mut cx),
        }
        self.settle(symbol, &mut cx);
        Ok(id)
    }

    /// The limit that the owner of a loose order is told: that of a post-only order that slides is
    /// the price that it slides to.
    pub(super) fn stated_price(&self, slot: Slot, terms: &Terms) -> Option<Price> {
        let order = self.orders.get(slot);
        let limit = limit_of(terms.pricing)?;
        if terms.post_only == PostOnly::No || self.book(order.symbol).state != TradingState::Trading {
            return Some(limit);
        }
        let taken = self.would_trade_at(order.symbol, order.side, limit, order.leaves);
        Some(taken.map_or(limit, |price| ticks::next_to(order.side, price)))
    }

    /// A live order, in no queue yet, of which `traded` shares have traded before. None where
    /// there is no room.
    #[inline(always)]
    pub(super) fn open(&mut self, new: &NewOrder, admitted: Admitted, traded: u32) -> Option<Slot> {
        let Admitted { symbol, plain } = admitted;
        let NewOrder { owner, token, side, self_trade, on_halt, ref terms, .. } = *new;
        let reference = self.references + 1;
        let order = Order {
            reference,
            token,
            owner: owner.0,
            leaves: terms.qty - traded,
            executed: traded,
            shown: 0,
            level: NONE,
            prev: NONE,
            next: NONE,
            group: self_trade.map_or(0, |self_trade| self_trade.group),
            generation: 0,
            symbol,
            place: Place::Loose,
            side,
            rule: self_trade.map_or(SelfTradeRule::CancelNewest, |self_trade| self_trade.rule),
            on_halt,
            is_plain: plain.is_some(),
            is_pegged: matches!(terms.pricing, Pricing::Peg(_)),
        };
        let slot = self.orders.insert(order, terms)?;
        self.references = reference;
        if let Life::Until(at_ns) = terms.life {
            self.expiries.push(at_ns, self.orders.id(slot), &self.orders);
        }
        if order.is_pegged {
            self.peg_links.push(&mut self.books[usize::from(symbol)].pegs, slot);
        }
        Some(slot)
    }

    /// As [`Engine::enter`] for a new order with plain terms: it trades as far as it can while the
    /// market is open, and rests.
    #[inline(always)]
    fn enter_plain<S: Sink>(&mut self, slot: Slot, limit: Price, cx: &mut Cx<'_, S>) {
        let order = self.orders.get(slot);
        let is_open = self.book(order.symbol).state == TradingState::Trading;
        if is_open && self.meets_best(order.symbol, order.side, limit) {
            self.take(slot, limit, cx);
            if self.forget_filled(slot) {
                return;
            }
        }
        self.rest(slot, Display::Full, limit, false, cx);
    }

    /// Whether an order reaches the best price of the other side.
    #[inline]
    pub(super) fn meets_best(&self, symbol: u16, side: Side, limit: Price) -> bool {
        let best = self.book(symbol).ladders[usize::from(lane::resting(opposite(side)))].best();
        best != levels::NONE && reaches(side, limit, self.levels.get(best).price())
    }

    /// Brings a loose order to where its terms want it.
    pub(super) fn enter<S: Sink>(&mut self, slot: Slot, terms: &Terms, is_quiet: bool, cx: &mut Cx<'_, S>) {
        let order = self.orders.get(slot);
        let (side, symbol) = (order.side, order.symbol);
        if let Life::Cross(kind) = terms.life {
            let limit = limit_of(terms.pricing).unwrap_or(any_price(side));
            if !self.enqueue(slot, lane::cross(kind, side), limit) {
                self.withdraw(slot, u32::MAX, CancelReason::System, None, cx);
            }
            return;
        }
        match terms.pricing {
            Pricing::Stop { trigger, .. } => self.enter_stop(slot, trigger, cx),
            Pricing::Peg(_) => self.enter_peg(slot, cx),
            Pricing::Limit(limit) if self.book(symbol).state != TradingState::Trading => {
                self.rest(slot, terms.display, limit, is_quiet, cx);
            }
            Pricing::Limit(limit) => self.arrive(slot, terms, limit, is_quiet, cx),
            Pricing::Market => self.arrive(slot, terms, any_price(side), false, cx),
        }
    }

    /// Trades a loose order up to `limit` while the market is open, and rests or cancels what is
    /// left.
    pub(super) fn arrive<S: Sink>(
        &mut self,
        slot: Slot,
        terms: &Terms,
        limit: Price,
        is_quiet: bool,
        cx: &mut Cx<'_, S>,
    ) {
        let order = self.orders.get(slot);
        let Terms { life, post_only, min_qty, .. } = *terms;
        let need = if life == Life::FillOrKill { order.leaves } else { min_qty.min(order.leaves) };
        if need > 0 && self.available(slot, limit, need) < need {
            return self.rest_or_cancel(slot, terms, limit, false, cx);
        }
        if post_only == PostOnly::Slide
            && let Some(price) = self.would_trade_at(order.symbol, order.side, limit, order.leaves)
        {
            let slid = ticks::next_to(order.side, price);
            return self.rest_or_cancel(slot, terms, slid, false, cx);
        }
        if !is_quiet {
            self.take(slot, limit, cx);
        }
        self.rest_or_cancel(slot, terms, limit, is_quiet, cx);
    }

    fn rest_or_cancel<S: Sink>(&mut self, slot: Slot, terms: &Terms, limit: Price, is_quiet: bool, cx: &mut Cx<'_, S>) {
        if self.forget_filled(slot) {
            return;
        }
        let order = self.orders.get(slot);
        let is_immediate = matches!(terms.life, Life::ImmediateOrCancel | Life::FillOrKill);
        if is_immediate || limit == any_price(order.side) || limit.0 < 1 {
            self.withdraw(slot, u32::MAX, CancelReason::Immediate, None, cx);
        } else {
            self.rest(slot, terms.display, limit, is_quiet, cx);
        }
    }

    /// Forgets an arriving order without shares: its executions, or its cancel, have told. False
    /// where it has some left.
    #[inline]
    fn forget_filled(&mut self, slot: Slot) -> bool {
        let order = self.orders.get(slot);
        if order.leaves > 0 {
            return false;
        }
        if order.place != Place::Free {
            self.end(slot);
        }
        true
    }
}

/// The limit that an owner stated.
#[inline]
pub(super) const fn limit_of(pricing: Pricing) -> Option<Price> {
    match pricing {
        Pricing::Limit(limit) => Some(limit),
        Pricing::Market => None,
        Pricing::Peg(peg) => peg.limit,
        Pricing::Stop { limit, .. } => limit,
    }
}
