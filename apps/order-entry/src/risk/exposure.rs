//! Positions, open quantities and credit: sums that checks read and events move.

use market::{Price, Side};

use super::limits::{InstrumentLimits, Limits};
use super::multiplier::Multiplier;
use super::order::InstrumentIdx;
use super::own_levels::OwnLevels;
use super::rate::Bucket;
use super::reject::Limit;
use super::reservation::{Held, notional};

/// One value for buys and one for sells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BySide<T> {
    buy: T,
    sell: T,
}

impl<T> BySide<T> {
    pub(super) const fn new(buy: T, sell: T) -> Self {
        Self { buy, sell }
    }

    pub(super) const fn of(&self, side: Side) -> &T {
        match side {
            Side::Buy => &self.buy,
            Side::Sell => &self.sell,
        }
    }

    pub(super) const fn of_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Buy => &mut self.buy,
            Side::Sell => &mut self.sell,
        }
    }
}

pub(super) const fn other(side: Side) -> Side {
    match side {
        Side::Buy => Side::Sell,
        Side::Sell => Side::Buy,
    }
}

/// What one instrument has traded and has open: one cache line, and the first of each side's own
/// prices.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Exposure {
    /// Bought less sold.
    pub(super) position: i64,
    /// Quantity of live orders.
    pub(super) open: BySide<i64>,
    pub(super) orders_bucket: Bucket,
    pub(super) cancels_bucket: Bucket,
    /// Of one contract. It stays for a run, because the sums were made with it.
    pub(super) multiplier: Multiplier,
    pub(super) levels: BySide<OwnLevels>,
}

impl Exposure {
    pub(super) const fn new(multiplier: Multiplier) -> Self {
        Self {
            multiplier,
            position: 0,
            open: BySide::new(0, 0),
            orders_bucket: Bucket::EMPTY,
            cancels_bucket: Bucket::EMPTY,
            levels: BySide::new(OwnLevels::EMPTY, OwnLevels::EMPTY),
        }
    }

    /// Moves what an order holds from `held` to `needed`.
    pub(super) fn hold(&mut self, side: Side, held: Held, needed: Held) {
        *self.open.of_mut(side) += i64::from(needed.qty) - i64::from(held.qty);
    }

    /// The limit, its value and the position with all open orders of `side` and `more` filled.
    pub(super) const fn worst(&self, side: Side, more: i64, limits: &InstrumentLimits) -> (Limit, i64, i64) {
        let open = self.open.of(side).saturating_add(more);
        match side {
            Side::Buy => (Limit::LongPosition, limits.long_max, self.position.saturating_add(open)),
            Side::Sell => (Limit::ShortPosition, limits.short_max, open.saturating_sub(self.position)),
        }
    }
}

/// What all instruments, or all orders of one strategy, have traded and have open.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// Spent less earned.
    pub(super) cash: i64,
    /// Notional of live orders.
    pub(super) open: BySide<i64>,
}

impl Account {
    /// Moves what an order holds from `held` to `needed`.
    pub(super) fn hold(&mut self, side: Side, held: Held, needed: Held) {
        *self.open.of_mut(side) += needed.notional - held.notional;
    }

    /// Books money that was spent, or with `sign` −1 earned.
    pub(super) const fn trade(&mut self, money: i64, sign: i64) {
        self.cash = self.cash.saturating_add(sign * money);
    }

    /// The limit, its value and the credit used with `more`. An open sell gives no room to a buy,
    /// because it may never trade.
    pub(super) const fn used(&self, side: Side, more: i64, (buy_max, sell_max): (i64, i64)) -> (Limit, i64, i64) {
        let open = self.open.of(side).saturating_add(more);
        let (limit, allowed, spent) = match side {
            Side::Buy => (Limit::BuyCredit, buy_max, self.cash),
            Side::Sell => (Limit::SellCredit, sell_max, self.cash.saturating_neg()),
        };
        let spent = if spent > 0 { spent } else { 0 };
        (limit, allowed, open.saturating_add(spent))
    }
}

/// The sums of all instruments and of the account.
#[derive(Clone, Debug)]
pub(super) struct Exposures {
    pub(super) instruments: Box<[Exposure]>,
    pub(super) account: Account,
}

impl Exposures {
    pub(super) fn new(limits: &Limits) -> Self {
        let of = |idx| Exposure::new(limits.multiplier(InstrumentIdx(idx as u32)));
        Self { instruments: (0..limits.instruments.len()).map(of).collect(), account: Account::default() }
    }

    /// Of one contract of an instrument; 1 where it is none of these.
    pub(super) fn multiplier(&self, instrument: InstrumentIdx) -> Multiplier {
        self.instruments.get(instrument.0 as usize).map_or(Multiplier::ONE, |exposure| exposure.multiplier)
    }

    /// Moves what an order holds from `held` to `needed`.
    pub(super) fn hold(&mut self, instrument: InstrumentIdx, side: Side, held: Held, needed: Held) {
        self.instruments[instrument.0 as usize].hold(side, held, needed);
        self.account.hold(side, held, needed);
    }

    /// Books a trade; `sign` −1 reverses one. Of an instrument that is none of these the money
    /// alone.
    pub(super) fn trade(&mut self, instrument: InstrumentIdx, side: Side, (qty, price): (u32, Price), sign: i64) {
        let sign = if side == Side::Buy { sign } else { -sign };
        if let Some(Exposure { position, .. }) = self.instruments.get_mut(instrument.0 as usize) {
            *position = position.saturating_add(sign * i64::from(qty));
        }
        self.account.trade(notional(self.multiplier(instrument), qty, price), sign);
    }
}
