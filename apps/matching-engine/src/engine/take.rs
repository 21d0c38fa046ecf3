//! An arriving order trades with those that rest: the best price first, at a price the displayed
//! ones first, then by time.

use market::Price;
use market::levels::NONE;

use super::{Cx, Engine};
use crate::arena::{Place, Slot};
use crate::book::{lane, opposite, reaches};
use crate::event::{Body, Executed, Party, Sink};
use crate::order::{CrossKind, Owner, SelfTradeRule};
use crate::reason::CancelReason;
use crate::trades::Trade;

impl Engine {
    /// Trades a loose order with the other side, up to `limit`. It may be without shares after
    /// that, or canceled by self-trade prevention, and is then not yet forgotten if it traded.
    pub(super) fn take<S: Sink>(&mut self, taker: Slot, limit: Price, cx: &mut Cx<'_, S>) {
        let order = self.orders.get(taker);
        let (symbol, side) = (order.symbol, order.side);
        let lane = lane::resting(opposite(side));
        let mut at = self.book(symbol).ladders[usize::from(lane)].best();
        while at != NONE {
            let level = self.levels.get(at);
            let (price, worse) = (level.price(), level.worse());
            if !reaches(side, limit, price) {
                break;
            }
            let goes_on = self.take_level(taker, at, price, cx);
            self.prune(symbol, lane, at);
            if !goes_on {
                break;
            }
            at = worse;
        }
    }

    /// Trades at one price. False once the taker has no shares left.
    fn take_level<S: Sink>(&mut self, taker: Slot, level: u32, price: Price, cx: &mut Cx<'_, S>) -> bool {
        loop {
            let maker = self.levels.get(level).shown_head();
            if maker == NONE {
                break;
            }
            if !self.meet(taker, maker, price, cx) {
                return false;
            }
        }
        let mut maker = self.levels.get(level).hidden_head();
        while maker != NONE {
            let (next, min_qty) = (self.orders.get(maker).next, self.orders.min_qty(maker));
            if min_qty <= self.orders.get(taker).leaves && !self.meet(taker, maker, price, cx) {
                return false;
            }
            maker = next;
        }
        true
    }

    /// Two orders meet: they trade, or are of one group. False once the taker has no shares left.
    #[inline]
    fn meet<S: Sink>(&mut self, taker: Slot, maker: Slot, price: Price, cx: &mut Cx<'_, S>) -> bool {
        let (arriving, resting) = (self.orders.get(taker), self.orders.get(maker));
        if arriving.group != 0 && arriving.group == resting.group {
            return self.prevent(taker, maker, price, cx);
        }
        let qty = arriving.leaves.min(if resting.shown > 0 { resting.shown } else { resting.leaves });
        let match_number = self.new_match_number();
        self.trade(Pair { maker, taker, qty, price, match_number, cross: None }, cx);
        self.after_fill(maker, price, cx);
        self.orders.get(taker).leaves > 0
    }

    /// What happens instead of a trade within one group. False where the taker has ended.
    #[cold]
    fn prevent<S: Sink>(&mut self, taker: Slot, maker: Slot, price: Price, cx: &mut Cx<'_, S>) -> bool {
        let arriving = self.orders.get(taker);
        let common = arriving.leaves.min(self.orders.get(maker).leaves);
        let (of_maker, of_taker) = match arriving.rule {
            SelfTradeRule::CancelNewest => (0, u32::MAX),
            SelfTradeRule::CancelOldest => (u32::MAX, 0),
            SelfTradeRule::CancelBoth => (u32::MAX, u32::MAX),
            SelfTradeRule::Decrement => (common, common),
        };
        let ends = of_taker >= arriving.leaves;
        if of_maker > 0 {
            self.shrink(maker, of_maker, CancelReason::SelfMatch, Some(price), cx);
        }
        if of_taker > 0 {
            self.shrink(taker, of_taker, CancelReason::SelfMatch, Some(price), cx);
        }
        !ends
    }

    /// Moves shares between two orders and tells. Neither is forgotten yet.
    #[inline]
    pub(super) fn trade<S: Sink>(&mut self, pair: Pair, cx: &mut Cx<'_, S>) {
        let Pair { maker, taker, qty, price, match_number, cross } = pair;
        let (maker, taker) = (self.fill(maker, qty), self.fill(taker, qty));
        let symbol = self.orders.get(pair.maker).symbol;
        let of = |party: &Party| (party.order.owner, party.order.token);
        let (buyer, seller): ((Owner, u64), (Owner, u64)) = match maker.order.side {
            market::Side::Buy => (of(&maker), of(&taker)),
            market::Side::Sell => (of(&taker), of(&maker)),
        };
        let symbol_name = super::locate(symbol);
        self.trades.push(Trade { match_number, qty, price, buyer, seller, symbol: symbol_name, is_broken: false });
        self.book_mut(symbol).last = price;
        cx.emit(symbol, Body::Executed(Executed { match_number, qty, price, maker, taker, cross }));
    }

    /// Takes traded shares off an order: off the displayed ones, if it has any.
    #[inline]
    fn fill(&mut self, slot: Slot, qty: u32) -> Party {
        let order = self.orders.get_mut(slot);
        order.leaves -= qty;
        order.executed += qty;
        let displayed = order.shown > 0;
        if displayed {
            order.shown -= qty;
            let level = order.level;
            self.levels.get_mut(level).shown -= u64::from(qty);
        }
        Party { order: self.state(slot), displayed }
    }

    /// Forgets a resting order that has traded wholly, or shows more of its reserve. Its level
    /// stays, perhaps empty: the caller prunes it.
    #[inline]
    pub(super) fn after_fill<S: Sink>(&mut self, slot: Slot, price: Price, cx: &mut Cx<'_, S>) {
        let order = self.orders.get(slot);
        if order.leaves == 0 {
            self.end(slot);
        } else if order.shown == 0 && order.place == Place::Shown {
            self.refill(slot, price, cx);
        }
    }
}

/// Two orders that trade.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) maker: Slot,
    pub(super) taker: Slot,
    pub(super) qty: u32,
    pub(super) price: Price,
    pub(super) match_number: u64,
    pub(super) cross: Option<CrossKind>,
}
