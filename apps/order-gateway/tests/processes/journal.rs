//! A gateway's journal, read by another process: how far it is, and what it comes to.

use std::collections::BTreeMap;
use std::path::Path;

use market::{Price, Side};
use order_entry::journal::{Entry, Intent, Rebuild, Records, SessionMark};
use order_entry::orders::{Effect, OrderRules, OrderTable, Outcome, TradeTotals};
use order_entry::ouch::OuchClient;
use order_entry::risk::{KillSwitch, RiskGate};

use crate::trader::{capacity, limits, risk};

/// What the records come to.
#[derive(Debug)]
pub struct Replayed {
    /// Orders with open shares, by the last accepted id: side, open shares and price.
    pub open: BTreeMap<u64, (Side, u32, Price)>,
    /// Orders and replaces that were about to be sent: shares and price.
    pub intents: BTreeMap<u64, (u32, Price)>,
    pub totals: TradeTotals,
    pub position: i64,
    pub alarms: Vec<String>,
    /// Where the session stands.
    pub session: SessionMark,
}

/// Records in the journal at `path` so far.
pub fn records(path: &Path) -> u64 {
    let Ok(memory) = std::fs::read(path) else { return 0 };
    Records::new(&memory).map_or(0, |records| records.count() as u64)
}

/// Replays the journal at `path` as a gateway of OUCH does.
pub fn replay(path: &Path) -> Replayed {
    replay_by(OuchClient::rules(), path)
}

pub fn replay_by(rules: OrderRules, path: &Path) -> Replayed {
    let memory = std::fs::read(path).unwrap();
    let mut table = OrderTable::new(capacity(), rules);
    let mut gate = RiskGate::new(limits(), KillSwitch::new(), risk());
    let (mut rebuild, mut intents, mut totals) = (Rebuild::new(), BTreeMap::new(), TradeTotals::default());
    let mut alarms = Vec::new();
    for record in Records::new(&memory).unwrap() {
        let entry = Entry::decode(record.kind, record.payload).unwrap();
        match entry {
            Entry::Intent(Intent::New { id, qty, price, .. } | Intent::Replace { id, qty, price, .. }) => {
                assert!(intents.insert(id, (qty, price)).is_none(), "the id {id} was used twice");
            }
            Entry::Answer { key, event, .. } => {
                // As the replay does it, which does not say what an event counted for.
                let outcome = table.apply(key, &event);
                assert!(gate.follow(&outcome, &table));
                count(&outcome, &mut totals);
                alarms.extend(outcome.alarm.map(|alarm| format!("{alarm:?} in record {}: {event:?}", record.seq)));
                continue;
            }
            _ => (),
        }
        rebuild.apply(&record, &mut table, &mut gate);
        assert_eq!(rebuild.counts().refused, 0, "record {}: {entry:?}", record.seq);
    }
    let open = table.live().map(|(_, order)| (order.accepted_id(), (order.side, order.leaves(), order.price())));
    let position = gate.position(order_entry::risk::InstrumentIdx(0)).unwrap();
    Replayed { open: open.collect(), intents, totals, position, alarms, session: rebuild.session() }
}

fn count(outcome: &Outcome, totals: &mut TradeTotals) {
    match outcome.effect {
        Effect::Traded { qty, price } => totals.add(outcome.side, qty, price),
        Effect::Reversed { qty, price } => totals.reverse(outcome.side, qty, price),
        _ => (),
    }
}
