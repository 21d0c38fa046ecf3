//! A check and the events of an order allocate nothing.
#![allow(clippy::unwrap_used)] // a panic here is the report

use market::{Price, Side};
use order_entry::risk::{
    InstrumentIdx, InstrumentLimits, KillSwitch, Limits, Market, NewOrder, Rate, RateLimits, Replace, RiskCapacity,
    RiskGate, Route,
};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

fn limits() -> Box<Limits> {
    let rates = RateLimits { orders: Rate::new(u32::MAX, 1_000), cancels: Rate::new(u32::MAX, 1_000) };
    let mut limits = Limits::zero(1, 1, 1);
    limits.instruments[0] = InstrumentLimits {
        qty_max: 1_000,
        collar_bps: 100,
        spread_max_bps: 1_000,
        notional_max: i64::MAX,
        long_max: i64::MAX,
        short_max: i64::MAX,
        rates,
    };
    (limits.ports[0], limits.units[0]) = (rates, rates);
    limits.account.buy_credit_max = i64::MAX;
    limits.account.duplicate_window_ns = 1;
    limits.account.silence_max_ns = u64::MAX;
    Box::new(limits)
}

#[test]
fn order_from_check_to_end_allocates_nothing() {
    let mut gate = RiskGate::new(limits(), KillSwitch::new(), RiskCapacity::default());
    gate.arm();
    let (instrument, route, price) = (InstrumentIdx(0), Route::default(), Price(1_000_000));
    let order = NewOrder::limit(instrument, Side::Buy, 100, price);
    let market = Market { reference: Some(price), is_stale: false, heard_ns: 0, ..Market::default() };
    let before = allocations::count();
    for round in 1..1_000 {
        let now_ns = round * 1_000;
        gate.check_new(0, &order, &market, now_ns).unwrap();
        gate.check_replace(0, &Replace { id: round, qty: 50, cum: 0, price, is_short: false, route }, &market, now_ns)
            .unwrap();
        gate.replaced(0, round);
        gate.traded(0, instrument, Side::Buy, (20, price));
        gate.check_cancel(instrument, route, now_ns).unwrap();
        gate.ended(0);
        assert!(gate.check_new(0, &NewOrder { qty: 1_001, ..order }, &market, now_ns).is_err());
    }
    assert_eq!(allocations::count(), before);
}
