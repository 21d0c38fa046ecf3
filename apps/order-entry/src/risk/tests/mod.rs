//! Each test starts from an order that passes, and changes one thing.

mod checks;
mod levels;
mod rates;
mod reservations;
mod sums;

use market::{Price, Side};

use super::*;
use crate::orders::{Instructions, OrderType};

pub(super) const STOCK: InstrumentIdx = InstrumentIdx(1);
/// Those of a market order.
pub(super) const MARKET: Instructions = Instructions { order_type: OrderType::Market, ..Instructions::PLAIN };
pub(super) const SECOND: u64 = 1_000_000_000;

/// Two instruments, and an account that may do much.
pub(super) fn wide() -> Box<Limits> {
    let rates = RateLimits { orders: Rate::new(1_000_000, 1_000), cancels: Rate::new(1_000_000, 1_000) };
    let instrument = InstrumentLimits {
        qty_max: 1_000,
        collar_bps: 500,
        spread_max_bps: 1_000,
        notional_max: 1_000_000 * Price::SCALE,
        long_max: 5_000,
        short_max: 5_000,
        rates,
    };
    let mut limits = Limits::zero(2, 1, 1);
    limits.version = 1;
    limits.instruments.fill(instrument);
    limits.ports.fill(rates);
    limits.units.fill(rates);
    limits.shortable.set(STOCK, true);
    limits.account = AccountLimits {
        buy_credit_max: 10_000_000 * Price::SCALE,
        sell_credit_max: 10_000_000 * Price::SCALE,
        duplicate_window_ns: SECOND,
        silence_max_ns: SECOND,
        self_match: SelfMatch::Refuse,
    };
    Box::new(limits)
}

pub(super) fn gate(limits: Box<Limits>) -> RiskGate {
    let mut gate = RiskGate::new(limits, KillSwitch::new(), RiskCapacity { orders: 64, recent: 64 });
    gate.arm();
    gate
}

/// A gate whose limits differ from [`wide`] by one change.
pub(super) fn gate_with(change: impl FnOnce(&mut Limits)) -> RiskGate {
    let mut limits = wide();
    change(&mut limits);
    gate(limits)
}

pub(super) const fn dollars(dollars: i64) -> Price {
    Price(dollars * Price::SCALE)
}

pub(super) fn market() -> Market {
    Market { reference: Some(dollars(100)), is_stale: false, heard_ns: SECOND, ..Market::default() }
}

pub(super) fn buy(qty: u32, price: Price) -> NewOrder {
    let route = Route { port: 0, unit: 0 };
    let (instructions, strategy) = (Instructions::PLAIN, StrategyIdx(0));
    NewOrder { instrument: STOCK, side: Side::Buy, qty, price, instructions, route, strategy }
}

pub(super) fn sell(qty: u32, price: Price) -> NewOrder {
    NewOrder { side: Side::Sell, ..buy(qty, price) }
}

pub(super) fn replace(id: u64, qty: u32, cum: u32, price: Price) -> Replace {
    Replace { id, qty, cum, price, is_short: false, route: Route { port: 0, unit: 0 } }
}

/// Limit, its value and the order's.
pub(super) fn refused(gate: &mut RiskGate, order: &NewOrder) -> (Limit, i64, i64) {
    let reject = gate.check_new(63, order, &market(), SECOND).unwrap_err();
    (reject.limit, reject.allowed, reject.value)
}

pub(super) fn pass(gate: &mut RiskGate, slot: usize, order: &NewOrder) {
    assert_eq!(gate.check_new(slot, order, &market(), SECOND), Ok(()));
}
