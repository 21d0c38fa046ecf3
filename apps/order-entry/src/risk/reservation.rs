//! What one live order holds of position and credit.

use arrayvec::ArrayVec;
use market::{Price, Side};

use super::multiplier::Multiplier;
use super::order::{InstrumentIdx, StrategyIdx};

/// Replaces of one order that may be unanswered at once. Venues answer within microseconds, and a
/// strategy that is further ahead has lost count.
pub(super) const PENDING: usize = 4;

/// A price, and the quantity that is open at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) price: Price,
    pub(super) leaves: u32,
}

impl Terms {
    /// What they are worth.
    pub(super) const fn notional(self, multiplier: Multiplier) -> i64 {
        notional(multiplier, self.leaves, self.price)
    }
}

/// What a quantity is worth at the price's magnitude, because a spread's price may be negative.
pub(super) const fn notional(multiplier: Multiplier, qty: u32, price: Price) -> i64 {
    multiplier.money(qty, Price(price.0.saturating_abs()))
}

/// The price by which an order meets others of the account: a market order meets all of them,
/// whatever it is valued at.
pub(super) const fn level_price(is_market: bool, side: Side, price: Price) -> Price {
    match side {
        _ if !is_market => price,
        Side::Buy => Price(i64::MAX),
        Side::Sell => Price(i64::MIN),
    }
}

/// The most that may trade of an order, and the most that it may cost: what is reserved for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) qty: u32,
    pub(super) notional: i64,
}

/// All but replaces is in the first cache line, which is all that a new order writes.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Reservation {
    pub(super) is_live: bool,
    pub(super) side: Side,
    pub(super) is_market: bool,
    pub(super) instrument: InstrumentIdx,
    pub(super) strategy: StrategyIdx,
    /// What the venue accepted last, or was asked for first.
    pub(super) working: Terms,
    pub(super) held: Held,
    /// Replaces without an answer, the oldest first, by the client's id. A slot without a live
    /// order has none.
    pub(super) pending: ArrayVec<(u64, Terms), PENDING>,
}

impl Reservation {
    pub(super) const FREE: Self = Self {
        is_live: false,
        side: Side::Buy,
        is_market: false,
        instrument: InstrumentIdx(0),
        strategy: StrategyIdx(0),
        working: Terms { price: Price(0), leaves: 0 },
        held: Held { qty: 0, notional: 0 },
        pending: ArrayVec::new_const(),
    };

    /// The price at which the working order stands among those of the account.
    pub(super) const fn level(&self) -> Price {
        level_price(self.is_market, self.side, self.working.price)
    }

    /// What the last request that the venue may accept asked for.
    pub(super) fn last_terms(&self) -> Terms {
        self.pending.last().map_or(self.working, |(_, terms)| *terms)
    }

    /// What the order needs now.
    pub(super) fn needed(&self, multiplier: Multiplier) -> Held {
        match self.pending.is_empty() {
            true => Held { qty: self.working.leaves, notional: self.working.notional(multiplier) },
            false => self.most(self.working, multiplier),
        }
    }

    /// What it needs with another replace under way.
    pub(super) fn needed_with(&self, terms: Terms, multiplier: Multiplier) -> Held {
        self.most(terms, multiplier)
    }

    /// The most that its terms and `more` allow. They follow each other, and their totals count
    /// executions: what trades by some terms is gone from those behind them. So each price may be
    /// paid for the shares that dearer ones leave.
    fn most(&self, more: Terms, multiplier: Multiplier) -> Held {
        let mut all = ArrayVec::<Terms, { PENDING + 2 }>::new();
        all.push(self.working);
        all.push(more);
        all.extend(self.pending.iter().map(|(_, terms)| *terms));
        all.sort_unstable_by_key(|terms| core::cmp::Reverse(terms.price.0.saturating_abs()));
        let nothing = Held { qty: 0, notional: 0 };
        all.iter().fold(nothing, |held, terms| {
            let left = terms.leaves.saturating_sub(held.qty);
            let worth = notional(multiplier, left, terms.price);
            Held { qty: held.qty + left, notional: held.notional.saturating_add(worth) }
        })
    }
}
