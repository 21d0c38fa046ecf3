//! Pegged orders: hidden, at a price that follows the displayed best prices.
//!
//! They are priced anew when a call has changed the best bid or offer: all of them that move leave
//! the book first, then each arrives at its new price in the order in which it was entered. So a
//! call costs a walk over its book's pegged orders where the best prices have changed.

use market::levels::NONE;
use market::{Price, Side};

use super::{Cx, Engine};
use crate::arena::{Place, Slot};
use crate::book::{lane, opposite};
use crate::event::{Sink, TradingState};
use crate::order::{Life, Peg, PegTo, Pricing};
use crate::reason::CancelReason;
use crate::ticks::PRICE_MAX;

impl Engine {
    /// A new pegged order arrives, or waits for a price.
    pub(super) fn enter_peg<S: Sink>(&mut self, slot: Slot, cx: &mut Cx<'_, S>) {
        let (symbol, terms) = (self.orders.get(slot).symbol, *self.orders.terms(slot));
        let tops = self.displayed_best(symbol);
        match self.peg_price(slot, tops) {
            Some(price) if self.book(symbol).state == TradingState::Trading => {
                self.arrive(slot, &terms, price, false, cx);
            }
            _ if terms.life == Life::ImmediateOrCancel => {
                self.withdraw(slot, u32::MAX, CancelReason::Immediate, None, cx);
            }
            _ => {}
        }
    }

    /// Prices the pegged orders anew where the best prices have changed. True where they have: what
    /// arrives may change them again, by a trade, or by a self-trade that was prevented.
    pub(super) fn reprice<S: Sink>(&mut self, symbol: u16, cx: &mut Cx<'_, S>) -> bool {
        let book = self.book(symbol);
        if book.pegs.is_empty() || book.state != TradingState::Trading {
            return false;
        }
        let tops = self.displayed_best(symbol);
        if tops == self.book(symbol).pegged_by {
            return false;
        }
        self.book_mut(symbol).pegged_by = tops;
        self.lift_pegs(symbol, tops);
        self.book_mut(symbol).peg_cursor = self.book(symbol).pegs.head;
        while self.book(symbol).peg_cursor != NONE {
            let slot = self.book(symbol).peg_cursor;
            self.book_mut(symbol).peg_cursor = self.peg_links.next(slot);
            if self.orders.get(slot).place == Place::Loose
                && let Some(price) = self.peg_price(slot, self.displayed_best(symbol))
            {
                let terms = *self.orders.terms(slot);
                self.arrive(slot, &terms, price, false, cx);
            }
        }
        true
    }

    /// Takes those out of the book whose price changes.
    fn lift_pegs(&mut self, symbol: u16, tops: [Price; 2]) {
        let mut at = self.book(symbol).pegs.head;
        while at != NONE {
            let order = self.orders.get(at);
            let is_placed = order.place != Place::Loose;
            if is_placed && self.peg_price(at, tops) != Some(self.levels.get(order.level).price()) {
                self.detach(at);
            }
            at = self.peg_links.next(at);
        }
    }

    /// Takes all of them out of the book: it does not trade for now.
    pub(super) fn park_pegs(&mut self, symbol: u16) {
        let mut at = self.book(symbol).pegs.head;
        while at != NONE {
            self.detach(at);
            at = self.peg_links.next(at);
        }
        // No pair of prices is equal to this one, so that they are priced when it trades again.
        self.book_mut(symbol).pegged_by = [Price(-1); 2];
    }

    /// A pegged order has ended.
    #[cold]
    pub(super) fn forget_peg(&mut self, slot: Slot) {
        let symbol = usize::from(self.orders.get(slot).symbol);
        if self.books[symbol].peg_cursor == slot {
            self.books[symbol].peg_cursor = self.peg_links.next(slot);
        }
        self.peg_links.remove(&mut self.books[symbol].pegs, slot);
    }

    /// Best displayed bid and offer; 0 for none.
    pub(super) fn displayed_best(&self, symbol: u16) -> [Price; 2] {
        [Side::Buy, Side::Sell].map(|side| {
            let mut at = self.book(symbol).ladders[usize::from(lane::resting(side))].best();
            while at != NONE {
                let level = self.levels.get(at);
                if level.shown > 0 {
                    return level.price();
                }
                at = level.worse();
            }
            Price(0)
        })
    }

    /// The price at which a pegged order stands, given the best prices; none where it cannot have
    /// one.
    fn peg_price(&self, slot: Slot, tops: [Price; 2]) -> Option<Price> {
        let side = self.orders.get(slot).side;
        let Pricing::Peg(Peg { to, offset, limit }) = self.orders.terms(slot).pricing else { return None };
        let best = |side: Side| Some(tops[side as usize]).filter(|price| price.0 > 0);
        let base = match to {
            PegTo::Primary => best(side)?,
            PegTo::Market => best(opposite(side))?,
            PegTo::Midpoint => Price((best(Side::Buy)?.0 + best(Side::Sell)?.0) / 2),
        };
        let price = match side {
            Side::Buy => Price(base.0 + i64::from(offset)).min(limit.unwrap_or(PRICE_MAX)),
            Side::Sell => Price(base.0 - i64::from(offset)).max(limit.unwrap_or_default()),
        };
        (price.0 >= 1 && price <= PRICE_MAX).then_some(price)
    }
}
