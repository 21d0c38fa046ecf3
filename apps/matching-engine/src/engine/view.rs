//! What can be asked of an engine between two calls.

use market::{Locate, Price, Side, TopOfBook};

use super::Engine;
use crate::book::lane;
use crate::event::{OrderState, TradingState};
use crate::order::{Display, Life, OrderId, Pricing, Terms};

/// A live order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderView {
    /// Its instrument.
    pub symbol: Locate,
    /// Owner, numbers, shares.
    pub state: OrderState,
    /// Displayed shares.
    pub shown: u32,
    /// At which price it trades.
    pub pricing: Pricing,
    /// How much of it others see.
    pub display: Display,
    /// How long it lives.
    pub life: Life,
}

impl Engine {
    /// An order, while it is live.
    pub fn order(&self, id: OrderId) -> Option<OrderView> {
        let slot = self.orders.find(id)?;
        let order = self.orders.get(slot);
        let symbol = super::locate(order.symbol);
        let Terms { pricing, display, life, .. } = if order.is_plain {
            Terms::limit(order.leaves, self.levels.get(order.level).price())
        } else {
            *self.orders.terms(slot)
        };
        Some(OrderView { symbol, state: self.state(slot), shown: order.shown, pricing, display, life })
    }

    /// Live orders.
    pub const fn orders_count(&self) -> usize {
        self.orders.len()
    }

    /// An instrument's state; closed where there is none.
    pub fn trading_state(&self, symbol: Locate) -> TradingState {
        self.symbol(symbol).map_or(TradingState::Closed, |symbol| self.book(symbol).state)
    }

    /// The price of an instrument's last trade.
    pub fn last(&self, symbol: Locate) -> Option<Price> {
        self.symbol(symbol).map(|symbol| self.book(symbol).last).filter(|last| last.0 > 0)
    }

    /// An instrument's best displayed bid and offer.
    pub fn top(&self, symbol: Locate) -> TopOfBook {
        let best = |side| self.displayed(symbol, side).next().unwrap_or_default();
        let ((bid_px, bid_qty), (ask_px, ask_qty)) = (best(Side::Buy), best(Side::Sell));
        TopOfBook { bid_px, bid_qty, ask_px, ask_qty }
    }

    /// Displayed prices of a side and the shares there, the best first.
    pub fn displayed(&self, symbol: Locate, side: Side) -> impl Iterator<Item = (Price, u64)> {
        let ladder = self.symbol(symbol).map(|symbol| self.book(symbol).ladders[usize::from(lane::resting(side))]);
        let ladder = ladder.unwrap_or(market::levels::Ladder::EMPTY);
        let mut at = ladder.best();
        core::iter::from_fn(move || {
            while at != market::levels::NONE {
                let level = self.levels.get(at);
                at = level.worse();
                if level.shown > 0 {
                    return Some((level.price(), level.shown));
                }
            }
            None
        })
    }

    /// The earliest time at which an order may end by itself: call [`Engine::expire`] then.
    pub fn next_expiry_ns(&self) -> Option<u64> {
        self.expiries.next_ns()
    }
}
