//! An auction takes place: all trade at one price, the best orders first, and the market is open.

use market::levels::NONE;
use market::{Locate, Price, Side};

use super::arrive::limit_of;
use super::auction::CrossTerms;
use super::states::NoSymbol;
use super::take::Pair;
use super::{Cx, Engine};
use crate::arena::Slot;
use crate::book::{lane, reaches};
use crate::event::{Body, Crossed, Sink, TradingState};
use crate::order::{CrossKind, OrderId};
use crate::reason::CancelReason;

impl Engine {
    /// Holds an auction among the orders for it and those in the book, and lets the instrument
    /// trade from then on. The executions come first, then [`Body::Crossed`] with their sum, which
    /// is 0 where nothing traded; orders for this auction that are left over are canceled, and
    /// those that the collar kept from trading with each other. Self-trades are not prevented in an
    /// auction. Orders with a minimum quantity, which take no part, trade then with what is left.
    pub fn cross<S: Sink>(
        &mut self,
        symbol: Locate,
        kind: CrossKind,
        terms: &CrossTerms,
        now_ns: u64,
        sink: &mut S,
    ) -> Result<(), NoSymbol> {
        let symbol = self.symbol(symbol).ok_or(NoSymbol)?;
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        let outcome = self.auction(symbol, kind, terms, true);
        let match_number = self.new_match_number();
        let price = outcome.map_or(Price(0), |outcome| outcome.price);
        let mut shares = 0;
        if outcome.is_some() {
            shares = self.pair_off(symbol, kind, price, match_number, &mut cx);
        }
        cx.emit(symbol, Body::Crossed(Crossed { kind, match_number, shares, price }));
        for side in [Side::Buy, Side::Sell] {
            self.cancel_lane(symbol, lane::cross(kind, side), &mut cx);
        }
        self.uncross(symbol, terms, &mut cx);
        self.change_state(symbol, TradingState::Trading, &mut cx);
        self.release_minimums(symbol, &mut cx);
        self.settle(symbol, &mut cx);
        Ok(())
    }

    /// Lets orders with a minimum, which took no part, trade with what the cross has left: those
    /// that reach the other side arrive anew, the oldest first.
    fn release_minimums<S: Sink>(&mut self, symbol: u16, cx: &mut Cx<'_, S>) {
        for id in self.minimums(symbol) {
            let Some(slot) = self.orders.find(id) else { continue };
            let (side, terms) = (self.orders.get(slot).side, *self.orders.terms(slot));
            if let Some(limit) = limit_of(terms.pricing).filter(|&limit| self.meets_best(symbol, side, limit)) {
                self.detach(slot);
                self.arrive(slot, &terms, limit, false, cx);
            }
        }
    }

    /// The orders with a minimum in the book, the oldest first.
    fn minimums(&self, symbol: u16) -> Vec<OrderId> {
        let mut found = Vec::new();
        for side in [Side::Buy, Side::Sell] {
            let mut at = self.book(symbol).ladders[usize::from(lane::resting(side))].best();
            while at != NONE {
                let level = self.levels.get(at);
                let mut slot = level.hidden_head();
                while slot != NONE {
                    let order = self.orders.get(slot);
                    if self.orders.min_qty(slot) > 0 && !order.is_pegged {
                        found.push((order.reference, self.orders.id(slot)));
                    }
                    slot = order.next;
                }
                at = level.worse();
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Trades all that trade at `price`; the shares.
    fn pair_off<S: Sink>(
        &mut self,
        symbol: u16,
        kind: CrossKind,
        price: Price,
        match_number: u64,
        cx: &mut Cx<'_, S>,
    ) -> u64 {
        let mut shares = 0;
        while let Some(buy) = self.next_in_cross(symbol, kind, Side::Buy, price)
            && let Some(sell) = self.next_in_cross(symbol, kind, Side::Sell, price)
        {
            let qty = self.at_once(buy).min(self.at_once(sell));
            shares += u64::from(qty);
            let pair = Pair { maker: buy, taker: sell, qty, price, match_number, cross: Some(kind) };
            self.trade(pair, cx);
            for slot in [buy, sell] {
                let order = self.orders.get(slot);
                let (lane, level) = (order.lane(), order.level);
                let at = self.levels.get(level).price();
                self.after_fill(slot, at, cx);
                if let Some(lane) = lane {
                    self.prune(symbol, lane, level);
                }
            }
        }
        shares
    }

    /// Shares of an order that trade in one execution: what is displayed comes before its reserve.
    fn at_once(&self, slot: Slot) -> u32 {
        let order = self.orders.get(slot);
        if order.shown > 0 { order.shown } else { order.leaves }
    }

    /// The next order of a side: the best limit first, market orders before all; at one limit
    /// displayed orders, those for the cross, hidden ones.
    fn next_in_cross(&self, symbol: u16, kind: CrossKind, side: Side, price: Price) -> Option<Slot> {
        let book = self.book(symbol);
        let cross = book.ladders[usize::from(lane::cross(kind, side))].best();
        let mut resting = book.ladders[usize::from(lane::resting(side))].best();
        let cross_price = (cross != NONE).then(|| self.levels.get(cross).price());
        while resting != NONE {
            let level = self.levels.get(resting);
            let here = level.price();
            if !reaches(side, here, price)
                || cross_price.is_some_and(|cross| cross != here && reaches(side, cross, here))
            {
                break;
            }
            if level.shown_head() != NONE {
                return Some(level.shown_head());
            }
            if cross_price == Some(here) {
                break;
            }
            if let Some(hidden) = self.first_in_auction(level.hidden_head()) {
                return Some(hidden);
            }
            resting = level.worse();
        }
        let cross_price = cross_price?;
        reaches(side, cross_price, price).then(|| self.levels.get(cross).hidden_head())
    }

    fn cancel_lane<S: Sink>(&mut self, symbol: u16, lane: u8, cx: &mut Cx<'_, S>) {
        loop {
            let level = self.book(symbol).ladders[usize::from(lane)].best();
            if level == NONE {
                break;
            }
            let slot = self.levels.get(level).hidden_head();
            self.withdraw(slot, u32::MAX, CancelReason::CrossOver, None, cx);
        }
    }

    /// Cancels orders that would trade with each other beyond the collar: within it the auction has
    /// left none.
    fn uncross<S: Sink>(&mut self, symbol: u16, terms: &CrossTerms, cx: &mut Cx<'_, S>) {
        let (low, high) = terms.bounds();
        while let Some(buy) = self.first_of_side(symbol, Side::Buy)
            && let Some(sell) = self.first_of_side(symbol, Side::Sell)
        {
            let [bid, ask] = [buy, sell].map(|slot| self.levels.get(self.orders.get(slot).level).price());
            if bid < ask {
                break;
            }
            let slot = if bid > high {
                buy
            } else if ask < low {
                sell
            } else {
                break;
            };
            self.withdraw(slot, u32::MAX, CancelReason::Collar, None, cx);
        }
    }

    /// The first order of a side in the book that takes part in auctions.
    fn first_of_side(&self, symbol: u16, side: Side) -> Option<Slot> {
        let mut at = self.book(symbol).ladders[usize::from(lane::resting(side))].best();
        while at != NONE {
            let level = self.levels.get(at);
            let first =
                self.first_in_auction(level.shown_head()).or_else(|| self.first_in_auction(level.hidden_head()));
            if first.is_some() {
                return first;
            }
            at = level.worse();
        }
        None
    }
}
