//! The prices that exist: from 0.0001 to 199,999.99, in cents from 1.00 on (Rule 612 of Regulation
//! NMS), below in 1/10,000.

use market::{Price, Side};

/// The highest limit, as in OUCH.
pub const PRICE_MAX: Price = Price(1_999_999_900);
/// From here on prices are whole cents.
const PENNY_FROM: i64 = Price::SCALE;
const PENNY: i64 = 100;

/// An order may have this limit.
pub(crate) const fn is_valid(price: Price) -> bool {
    price.0 >= 1 && price.0 <= PRICE_MAX.0 && (price.0 < PENNY_FROM || price.0 % PENNY == 0)
}

/// The highest price that exists and is not above `price`.
pub(crate) const fn floor(price: Price) -> Price {
    if price.0 < PENNY_FROM { price } else { Price(price.0 / PENNY * PENNY) }
}

/// The lowest price that exists and is not below `price`.
pub(crate) const fn ceil(price: Price) -> Price {
    if price.0 < PENNY_FROM { price } else { Price((price.0 + PENNY - 1) / PENNY * PENNY) }
}

/// The nearest price that exists at which an order of `side` does not reach `price`.
pub(crate) const fn next_to(side: Side, price: Price) -> Price {
    match side {
        Side::Buy => floor(Price(price.0 - 1)),
        Side::Sell => ceil(Price(price.0 + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_from_one_on_are_whole_cents() {
        for (price, valid) in [(0, false), (1, true), (9_999, true), (10_000, true), (10_001, false), (10_100, true)] {
            assert_eq!(is_valid(Price(price)), valid, "{price}");
        }
        assert!(is_valid(PRICE_MAX) && !is_valid(Price(PRICE_MAX.0 + 100)));
    }

    #[test]
    fn neighbor_of_a_price_is_on_the_own_side() {
        assert_eq!(next_to(Side::Buy, Price(10_000)), Price(9_999));
        assert_eq!(next_to(Side::Buy, Price(20_050)), Price(20_000));
        assert_eq!(next_to(Side::Sell, Price(20_050)), Price(20_100));
        assert_eq!(next_to(Side::Sell, Price(9_999)), Price(10_000));
    }
}
