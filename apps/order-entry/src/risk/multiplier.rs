//! What a contract is worth.

use core::fmt;

use market::Price;

/// The money of one contract for each 1 of its price: 50 for an E-mini S&P 500, whose price is in
/// points. A share has 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiplier(u64);

impl Multiplier {
    /// That of a share.
    pub const ONE: Self = Self(Price::SCALE as u64);
    /// The greatest in ten-thousandths: a billion.
    const MAX: u64 = 1_000_000_000 * Price::SCALE as u64;

    /// So many ten-thousandths, because there are contracts on a tenth of something; `None` for
    /// zero, and above a billion.
    pub const fn from_ten_thousandths(count: u64) -> Option<Self> {
        if count == 0 || count > Self::MAX { None } else { Some(Self(count)) }
    }

    /// Quantity times price times multiplier, in units of [`Price`]. What 64 bits do not hold is
    /// the greatest sum, which no limit allows. Of a share one multiplication and a comparison.
    #[inline]
    pub const fn money(self, qty: u32, price: Price) -> i64 {
        let most = if price.0 < 0 { i64::MIN } else { i64::MAX };
        let Some(points) = price.0.checked_mul(qty as i64) else { return most };
        if self.0 == Self::ONE.0 {
            return points;
        }
        match points.checked_mul(self.0 as i64) {
            Some(money) => money / Price::SCALE,
            None => most,
        }
    }
}

impl Default for Multiplier {
    /// That of a share.
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Multiplier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / Self::ONE.0, self.0 % Self::ONE.0);
        if rest == 0 { write!(f, "{whole}") } else { write!(f, "{whole}.{rest:04}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(count: u64) -> Multiplier {
        Multiplier::from_ten_thousandths(count).unwrap()
    }

    #[test]
    fn contract_is_worth_its_price_times_the_multiplier() {
        let price = Price(60_002_500);
        assert_eq!(Multiplier::ONE.money(2, price), 120_005_000);
        assert_eq!(of(50_0000).money(2, price), 6_000_250_000);
        assert_eq!(of(1000).money(3, price), 18_000_750);
        assert_eq!(of(50_0000).money(2, Price(-2500)), -25_0000);
    }

    #[test]
    fn sum_beyond_64_bits_is_the_greatest() {
        assert_eq!(of(50_0000).money(u32::MAX, Price(1 << 30)), i64::MAX);
        assert_eq!(of(50_0000).money(u32::MAX, Price(-1 << 30)), i64::MIN);
        assert_eq!(Multiplier::ONE.money(u32::MAX, Price(i64::MAX)), i64::MAX);
    }

    #[test]
    fn multiplier_is_above_zero_and_at_most_a_billion() {
        assert_eq!((Multiplier::from_ten_thousandths(0), Multiplier::from_ten_thousandths(u64::MAX)), (None, None));
        assert_eq!((of(50_0000).to_string(), of(1000).to_string()), ("50".to_owned(), "0.1000".to_owned()));
    }
}
