//! The limits of all tests: those of one instrument, which let its orders pass.

use order_entry::risk::{AccountLimits, InstrumentLimits, Limits, Rate, RateLimits, SelfMatch};

/// Orders of up to 1,000 shares within five percent, positions of up to 5,000.
pub fn limits() -> Box<Limits> {
    let rates = RateLimits { orders: Rate::new(1_000_000, 1_000), cancels: Rate::new(1_000_000, 1_000) };
    let mut limits = Limits::zero(1, 1, 1);
    limits.version = 1;
    limits.instruments[0] = InstrumentLimits {
        qty_max: 1_000,
        collar_bps: 500,
        spread_max_bps: 1_000,
        notional_max: i64::MAX,
        long_max: 5_000,
        short_max: 5_000,
        rates,
    };
    (limits.ports[0], limits.units[0]) = (rates, rates);
    limits.account = AccountLimits {
        buy_credit_max: i64::MAX,
        sell_credit_max: i64::MAX,
        duplicate_window_ns: 1,
        silence_max_ns: 1_000_000_000,
        self_match: SelfMatch::Refuse,
    };
    Box::new(limits)
}
