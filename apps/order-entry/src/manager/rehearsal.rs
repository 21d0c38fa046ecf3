//! The code of a new order, run without an order: a core has forgotten it where answers, timers and
//! other books ran in between, and an order that has to fetch it waits twice as long.

use std::hint::black_box;

use market::{Price, Side, Symbol};

use super::requests::{Cleared, Passage};
use crate::journal::{Cursor, HEADER_LEN, Journal, Stamp};
use crate::orders::{OrderCapacity, OrderRules, OrderTable};
use crate::risk::{
    AccountLimits, InstrumentIdx, InstrumentLimits, KillSwitch, Limits, Market, NewOrder, Rate, RateLimits,
    RiskCapacity, RiskGate, SelfMatch,
};

/// Time from one rehearsal to the next on their own clock.
const STEP_NS: u64 = 1_000_000;
const PRICE: Price = Price::from_cents(1_000);

/// A table, a gate and a journal of their own, with room for one order. Some 3 KB.
#[derive(Debug)]
pub(super) struct Rehearsal {
    table: OrderTable,
    gate: RiskGate,
    journal: Journal<Vec<u8>>,
    start: Cursor,
    count: u64,
}

impl Rehearsal {
    pub(super) fn new() -> Self {
        let capacity = OrderCapacity { orders: 1, executions: 1, instruments: 1 };
        let mut gate = RiskGate::new(wide(), KillSwitch::new(), RiskCapacity { orders: 1, recent: 4 });
        gate.arm();
        let memory = vec![0; HEADER_LEN + 256];
        let mut journal = Journal::create(memory, 0, 0, 0).expect("there is room for a header");
        let start = *journal.parts().0;
        Self { table: OrderTable::new(capacity, OrderRules::default()), gate, journal, start, count: 0 }
    }

    /// An order passes, is opened, and ends at once. Whether it passed.
    pub(super) fn run(&mut self) -> bool {
        self.count += 1;
        let (id, now_ns) = (self.count, self.count * STEP_NS);
        let instrument = InstrumentIdx(0);
        let order = NewOrder::limit(instrument, Side::Buy, 100, PRICE);
        let market = Market { reference: Some(PRICE), is_stale: false, heard_ns: now_ns, ..Market::default() };
        let (cursor, memory) = self.journal.parts();
        *cursor = self.start;
        let passage = Passage { table: &mut self.table, gate: &mut self.gate, cursor, memory };
        let stamp = Stamp { at_ns: now_ns, event_ns: now_ns };
        let passed = passage.pass(id, Symbol(*b"REHEARSE"), black_box(&order), &market, (now_ns, stamp));
        let Ok(Cleared { slot, passed, .. }) = passed else { return false };
        self.gate.hold(&passed, now_ns);
        self.table.open_in(slot, id, (instrument, order.side), (order.qty, PRICE), now_ns);
        self.table.abandon(slot);
        self.gate.ended(slot);
        true
    }
}

/// Limits that each rehearsal passes.
fn wide() -> Box<Limits> {
    let rate = Rate::new(u32::MAX, u32::MAX);
    let rates = RateLimits { orders: rate, cancels: rate };
    let mut limits = Limits::zero(1, 1, 1);
    limits.instruments[0] = InstrumentLimits {
        qty_max: u32::MAX,
        collar_bps: 1,
        spread_max_bps: 1_000,
        notional_max: i64::MAX,
        long_max: i64::MAX,
        short_max: 0,
        rates,
    };
    (limits.ports[0], limits.units[0]) = (rates, rates);
    limits.account = AccountLimits {
        buy_credit_max: i64::MAX,
        sell_credit_max: i64::MAX,
        duplicate_window_ns: 1,
        silence_max_ns: STEP_NS,
        self_match: SelfMatch::Refuse,
    };
    Box::new(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rehearsal_passes_all_checks() {
        let mut rehearsal = Rehearsal::new();
        assert!((0..100).all(|_| rehearsal.run()));
    }
}
