//! Stop orders, and what follows a call: stops that its trades woke, pegged orders that it moved.

use market::{Price, Side};

use super::{Cx, Engine};
use crate::arena::{NONE, Slot};
use crate::book::{any_price, lane, reaches};
use crate::event::{Body, Sink, TradingState};
use crate::order::Pricing;
use crate::reason::CancelReason;

impl Engine {
    /// A new stop sleeps; [`Engine::settle`] wakes it at once where the last trade was there
    /// already.
    pub(super) fn enter_stop<S: Sink>(&mut self, slot: Slot, trigger: Price, cx: &mut Cx<'_, S>) {
        let order = self.orders.get(slot);
        let (side, symbol) = (order.side, order.symbol);
        if self.enqueue(slot, lane::stop(side), trigger) {
            self.book_mut(symbol).stops += 1;
        } else {
            self.withdraw(slot, u32::MAX, CancelReason::System, None, cx);
        }
    }

    /// Lets everything happen that a call has caused, until nothing more does. Each round but the
    /// last wakes a stop or follows best prices that have changed, which takes shares, so there are
    /// not more rounds than orders and shares.
    #[inline]
    pub(super) fn settle<S: Sink>(&mut self, symbol: u16, cx: &mut Cx<'_, S>) {
        let book = self.book(symbol);
        if book.stops > 0 || !book.pegs.is_empty() {
            self.settle_followers(symbol, cx);
        }
    }

    /// Wakes stops and prices pegged orders anew, in turn.
    #[cold]
    fn settle_followers<S: Sink>(&mut self, symbol: u16, cx: &mut Cx<'_, S>) {
        loop {
            let woke = self.wake_stop(symbol, cx);
            let moved = self.reprice(symbol, cx);
            if !woke && !moved {
                break;
            }
        }
    }

    /// Wakes the first stop whose trigger the last trade has reached.
    fn wake_stop<S: Sink>(&mut self, symbol: u16, cx: &mut Cx<'_, S>) -> bool {
        let book = self.book(symbol);
        if book.stops == 0 || book.state != TradingState::Trading || book.last.0 == 0 {
            return false;
        }
        for side in [Side::Buy, Side::Sell] {
            let book = self.book(symbol);
            let at = book.ladders[usize::from(lane::stop(side))].best();
            // A buy wakes when trades are at its trigger or above: as an order of that limit would
            // be reached from the other side.
            if at != NONE && reaches(side, book.last, self.levels.get(at).price()) {
                let slot = self.levels.get(at).hidden_head();
                self.wake(slot, cx);
                return true;
            }
        }
        false
    }

    fn wake<S: Sink>(&mut self, slot: Slot, cx: &mut Cx<'_, S>) {
        self.detach(slot);
        let order = self.orders.get(slot);
        let (symbol, side, terms) = (order.symbol, order.side, *self.orders.terms(slot));
        cx.emit(symbol, Body::Triggered(self.state(slot)));
        let limit = match terms.pricing {
            Pricing::Stop { limit: Some(limit), .. } => limit,
            _ => any_price(side),
        };
        self.arrive(slot, &terms, limit, false, cx);
    }
}
