//! Races, each as a fact; the table; random histories.

mod properties;
mod races;
mod table;

use market::{Price, Side};

use super::*;
use crate::risk::InstrumentIdx;

pub(super) const STOCK: InstrumentIdx = InstrumentIdx(3);
pub(super) const PRICE: Price = Price(1_000_000);

/// A table of eight orders, of which the first, with id 1, buys 100.
pub(super) fn one_sent() -> OrderTable {
    let mut table = small(OrderRules::default());
    assert_eq!(table.open(1, (STOCK, Side::Buy), (100, PRICE), 10), Ok(0));
    table
}

pub(super) fn one_live() -> OrderTable {
    let mut table = one_sent();
    assert_eq!(by_id(&mut table, 1, VenueEvent::Accepted { venue_id: 901 }).effect, Effect::Accepted);
    table
}

pub(super) fn small(rules: OrderRules) -> OrderTable {
    OrderTable::new(OrderCapacity { orders: 8, executions: 16, instruments: 8 }, rules)
}

pub(super) fn by_id(table: &mut OrderTable, id: u64, event: VenueEvent) -> Outcome {
    table.apply(OrderKey::Client(id), &event)
}

pub(super) fn fill(table: &mut OrderTable, id: u64, exec: u64, qty: u32) -> Outcome {
    by_id(table, id, VenueEvent::Filled { exec: ExecId::from_number(exec), qty, price: PRICE })
}

pub(super) fn replace(table: &mut OrderTable, id: u64, qty: u32) -> u64 {
    table.request_replace(0, id, (qty, PRICE), 20).unwrap()
}

pub(super) fn replaced(table: &mut OrderTable, id: u64) -> Outcome {
    by_id(table, id, VenueEvent::Replaced { id, venue_id: 900 + id })
}

pub(super) fn replace_refused(table: &mut OrderTable, id: u64) -> Outcome {
    by_id(table, id, VenueEvent::ReplaceRefused { id, reason: 0 })
}

pub(super) fn canceled(table: &mut OrderTable, id: u64) -> Outcome {
    by_id(table, id, VenueEvent::Canceled { reason: b'U'.into() })
}

/// State, total, executed and open shares of the first order.
pub(super) fn order(table: &OrderTable) -> (State, u32, u32, u32) {
    let order = table.get(0).unwrap();
    (order.state().unwrap(), order.qty(), order.cum(), order.leaves())
}
