//! What an account bought and sold.

use core::fmt;

use market::{Price, Side};

use crate::risk::Multiplier;

/// Sums over an account's fills. The account's owner and its venue compare them at the end of a
/// day: they agree to the share and to the cent, or a fill was lost or counted twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TradeTotals {
    /// Fills, less those that were broken.
    pub fills: u64,
    /// Shares bought.
    pub bought: i64,
    /// What they cost, as [`Price`] counts.
    pub paid: i64,
    /// Shares sold.
    pub sold: i64,
    /// What they brought.
    pub earned: i64,
}

impl TradeTotals {
    /// Counts a fill of shares.
    pub fn add(&mut self, side: Side, qty: u32, price: Price) {
        self.add_for(side, qty, Multiplier::ONE.money(qty, price));
    }

    /// Counts a fill of `qty` contracts for `money`.
    pub fn add_for(&mut self, side: Side, qty: u32, money: i64) {
        self.fills += 1;
        self.book(side, qty, money, 1);
    }

    /// Takes a broken fill of shares out.
    pub fn reverse(&mut self, side: Side, qty: u32, price: Price) {
        self.reverse_for(side, qty, Multiplier::ONE.money(qty, price));
    }

    /// Takes a broken fill of `qty` contracts for `money` out.
    pub fn reverse_for(&mut self, side: Side, qty: u32, money: i64) {
        self.fills = self.fills.saturating_sub(1);
        self.book(side, qty, money, -1);
    }

    /// Sums that a venue's figures would overflow stay at their end.
    fn book(&mut self, side: Side, qty: u32, more: i64, sign: i64) {
        let (shares, money) = match side {
            Side::Buy => (&mut self.bought, &mut self.paid),
            Side::Sell => (&mut self.sold, &mut self.earned),
        };
        *shares = shares.saturating_add(sign * i64::from(qty));
        *money = money.saturating_add(more.saturating_mul(sign));
    }
}

impl fmt::Display for TradeTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fills, bought, paid, sold, earned } = *self;
        write!(f, "{fills} fills, {bought} bought for {}, {sold} sold for {}", Price(paid), Price(earned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_are_summed_and_a_broken_one_is_taken_out() {
        let mut totals = TradeTotals::default();
        totals.add(Side::Buy, 100, Price(10_5000));
        totals.add(Side::Buy, 50, Price(10_0000));
        totals.add(Side::Sell, 30, Price(11_0000));
        totals.reverse(Side::Buy, 100, Price(10_5000));
        assert_eq!(totals.to_string(), "2 fills, 50 bought for 500.0000, 30 sold for 330.0000");
    }

    #[test]
    fn sums_beyond_the_greatest_number_stay_there() {
        let mut totals = TradeTotals::default();
        totals.add(Side::Sell, u32::MAX, Price(i64::MAX));
        assert_eq!((totals.sold, totals.earned), (i64::from(u32::MAX), i64::MAX));
    }
}
