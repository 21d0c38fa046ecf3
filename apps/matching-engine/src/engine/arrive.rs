//! An order arrives: it is accepted, trades as far as it can, and rests or ends.

use market::Price;

use super::{Cx, Engine};
use crate::arena::{NONE, Order, Place, Slot};
use crate::book::{any_price, lane};
use crate::event::{Accepted, Body, Rejected, Sink, TradingState};
use crate::order::{Life, NewOrder, OrderId, PostOnly, Pricing, SelfTradeRule, Terms};
use crate::reason::{CancelReason, RejectReason};
use crate::ticks;

impl Engine {
    /// Enters an order at `now_ns`. It is accepted, and has then perhaps ended before this returns:
    /// the events say; or it is refused, of which there is one event too.
    pub fn submit<S: Sink>(&mut self, new: &NewOrder, now_ns: u64, sink: &mut S) -> Result<OrderId, RejectReason> {
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        let admitted = self.admit(new, now_ns);
        let admitted = admitted.and_then(|symbol| {
            self.check_post_only(symbol, new.side, &new.terms)?;
            Ok((symbol, self.open(new, symbol, 0)?))
        });
        let (symbol, slot) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => {
                let body = Body::Rejected(Rejected { owner: new.owner, token: new.token, reason });
                cx.sink.take(&crate::event::Event { at_ns: now_ns, symbol: new.symbol, body });
                return Err(reason);
            }
        };
        let id = self.orders.id(slot);
        let price = limit_of(new.terms.pricing).unwrap_or_default();
        cx.emit(symbol, Body::Accepted(Accepted { order: self.state(slot), price }));
        self.enter(slot, &new.terms, false, &mut cx);
        self.settle(symbol, &mut cx);
        Ok(id)
    }

    /// A live order, in no queue yet, of whose quantity `executed` shares have traded.
    pub(super) fn open(&mut self, new: &NewOrder, symbol: u16, executed: u32) -> Result<Slot, RejectReason> {
        let NewOrder { owner, token, side, self_trade, on_halt, ref terms, .. } = *new;
        let reference = self.references + 1;
        let order = Order {
            reference,
            token,
            owner: owner.0,
            leaves: terms.qty - executed,
            executed,
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
            is_plain: terms.is_plain(),
            is_pegged: matches!(terms.pricing, Pricing::Peg(_)),
        };
        let slot = self.orders.insert(order, terms).ok_or(RejectReason::Full)?;
        self.references = reference;
        if let Life::Until(at_ns) = terms.life {
            self.expiries.push(at_ns, self.orders.id(slot), &self.orders);
        }
        if order.is_pegged {
            self.peg_links.push(&mut self.books[usize::from(symbol)].pegs, slot);
        }
        Ok(slot)
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
        let order = self.orders.get(slot);
        if order.leaves == 0 {
            // It traded wholly: its executions have told.
            if order.place != Place::Free {
                self.end(slot);
            }
            return;
        }
        let is_immediate = matches!(terms.life, Life::ImmediateOrCancel | Life::FillOrKill);
        if is_immediate || limit == any_price(order.side) || limit.0 < 1 {
            self.withdraw(slot, u32::MAX, CancelReason::Immediate, None, cx);
        } else {
            self.rest(slot, terms.display, limit, is_quiet, cx);
        }
    }
}

/// The limit that an owner stated.
pub(super) const fn limit_of(pricing: Pricing) -> Option<Price> {
    match pricing {
        Pricing::Limit(limit) => Some(limit),
        Pricing::Market => None,
        Pricing::Peg(peg) => peg.limit,
        Pricing::Stop { limit, .. } => limit,
    }
}
