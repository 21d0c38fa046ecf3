//! A morning of orders, journaled before each step, and rebuilt from every cut of the journal.

use market::{Price, Side, Symbol};

use super::*;
use crate::orders::{ExecId, Instructions, OrderCapacity, OrderKey, OrderRules, OrderTable, VenueEvent};
use crate::risk::{InstrumentIdx, KillSwitch, Limits, RiskCapacity, RiskGate, StrategyIdx};

const STOCK: InstrumentIdx = InstrumentIdx(0);

/// What must be the same after a replay: live orders by id, executed and open shares; position;
/// what is held.
type State = (Vec<(u64, u32, u32)>, Option<i64>, Option<(i64, i64)>);

struct World {
    table: OrderTable,
    gate: RiskGate,
    rebuild: Rebuild,
}

impl World {
    fn new() -> Self {
        let capacity = OrderCapacity { orders: 16, executions: 64, instruments: 1 };
        let limits = Box::new(Limits::zero(1, 1, 1));
        Self {
            table: OrderTable::new(capacity, OrderRules::default()),
            gate: RiskGate::new(limits, KillSwitch::new(), RiskCapacity { orders: 16, recent: 16 }),
            rebuild: Rebuild::new(),
        }
    }

    fn apply(&mut self, record: &Record<'_>) {
        self.rebuild.apply(record, &mut self.table, &mut self.gate);
    }

    fn state(&self) -> State {
        let live = self.table.live().map(|(_, order)| (order.accepted_id(), order.cum(), order.leaves()));
        (live.collect(), self.gate.position(STOCK), self.gate.open_qty(STOCK))
    }
}

fn morning() -> Vec<Entry> {
    let price = Price(1_000_000);
    let answer = |id, event| Entry::Answer { number: 7, key: OrderKey::Client(id), event };
    let fill = |id, exec, qty| answer(id, VenueEvent::Filled { exec: ExecId::from_number(exec), qty, price });
    let new = |id, side, qty| {
        let symbol = Symbol(*b"ZIEXT   ");
        Entry::Intent(Intent::New {
            id,
            symbol,
            instrument: STOCK,
            side,
            is_short: false,
            qty,
            price,
            strategy: StrategyIdx(0),
            instructions: Instructions::PLAIN,
        })
    };
    vec![
        Entry::Session(SessionMark { session: *b"   SESSION", next_inbound: 1, next_id: 1 }),
        Entry::Armed(true),
        new(1, Side::Buy, 100),
        answer(1, VenueEvent::Accepted { venue_id: 901 }),
        new(2, Side::Sell, 50),
        fill(1, 1, 40),
        Entry::Intent(Intent::Replace { target: 1, id: 3, qty: 150, price: Price(1_010_000) }),
        answer(2, VenueEvent::Rejected { reason: 1 }),
        fill(1, 2, 10),
        answer(1, VenueEvent::Replaced { id: 3, venue_id: 903 }),
        Entry::Intent(Intent::Cancel { target: 3 }),
        fill(3, 3, 30),
        answer(3, VenueEvent::Canceled { reason: 1 }),
        answer(3, VenueEvent::Busted { exec: ExecId::from_number(2) }),
        new(4, Side::Sell, 10),
        Entry::Unsent { id: 4 },
        new(5, Side::Buy, 20),
    ]
}

#[test]
fn state_rebuilt_from_a_journal_cut_at_any_byte_is_that_of_its_whole_records() {
    let mut journal = empty(8_192);
    let mut world = World::new();
    let mut states = vec![(journal.end(), world.state())];
    for entry in morning() {
        journal.append(entry.kind(), STAMP, &entry.encode()).unwrap();
        // The world of the process that wrote the journal.
        let payload = entry.encode();
        world.apply(&Record { seq: 0, kind: entry.kind(), stamp: STAMP, payload: &payload });
        states.push((journal.end(), world.state()));
    }
    assert_eq!(world.rebuild.counts(), RebuildCounts { applied: 17, unknown: 0, refused: 0 });
    assert_eq!(world.state(), (vec![(5, 0, 20)], Some(70), Some((20, 0))));
    assert_eq!((world.rebuild.session().next_id, world.rebuild.session().next_inbound), (6, 8));
    for cut in HEADER_LEN..=journal.end() {
        let mut again = World::new();
        Journal::recover(journal.memory()[..cut].to_vec(), 0, |record| again.apply(record)).unwrap();
        let expected = states.iter().rfind(|(end, _)| *end <= cut).unwrap();
        assert_eq!(again.state(), expected.1, "cut at {cut}");
    }
}

#[test]
fn request_without_an_answer_was_sent_as_far_as_anybody_knows() {
    let mut world = World::new();
    let entry = morning()[2];
    world.apply(&Record { seq: 0, kind: entry.kind(), stamp: STAMP, payload: &entry.encode() });
    assert_eq!(world.state(), (vec![(1, 0, 100)], Some(0), Some((100, 0))));
}

#[test]
fn record_of_an_unknown_kind_is_counted() {
    let mut world = World::new();
    world.apply(&Record { seq: 0, kind: 999, stamp: STAMP, payload: &[] });
    assert_eq!(world.rebuild.counts().unknown, 1);
}

/// The venue's numbers are other ones in the replay alone: the process of the journal went on.
#[test]
fn orders_that_a_journal_has_behind_a_block_live_again_with_their_fills() {
    let price = Price(1_000_000);
    let (symbol, instrument) = (Symbol(*b"ZIEXT   "), STOCK);
    let strategy = StrategyIdx(0);
    let new = |id, side| {
        Entry::Intent(Intent::New {
            id,
            symbol,
            instrument,
            side,
            is_short: false,
            qty: 50,
            price,
            strategy,
            instructions: Instructions::PLAIN,
        })
    };
    let answer = |id, event| Entry::Answer { number: 0, key: OrderKey::Client(id), event };
    let fill = |id, exec, qty| answer(id, VenueEvent::Filled { exec: ExecId::from_number(exec), qty, price });
    let mut world = World::new();
    for entry in [
        new(1, Side::Buy),
        answer(1, VenueEvent::Accepted { venue_id: 901 }),
        answer(1, VenueEvent::Busted { exec: ExecId::from_number(99) }),
        new(2, Side::Buy),
        fill(2, 1, 30),
        Entry::Intent(Intent::Replace { target: 1, id: 3, qty: 80, price }),
        answer(3, VenueEvent::Replaced { id: 3, venue_id: 903 }),
        fill(3, 2, 10),
    ] {
        world.apply(&Record { seq: 0, kind: entry.kind(), stamp: STAMP, payload: &entry.encode() });
    }
    assert_eq!(world.rebuild.counts(), RebuildCounts { applied: 8, unknown: 0, refused: 0 });
    assert_eq!(world.state(), (vec![(3, 10, 70), (2, 30, 20)], Some(40), Some((90, 0))));
    assert!(world.table.is_blocked(STOCK));
}

#[test]
fn instrument_that_was_unblocked_by_its_position_alone_is_unblocked() {
    for mut world in [World::new(), World { rebuild: Rebuild::of(&[Symbol(*b"ZIEXT   ")], &[]), ..World::new() }] {
        world.table.block(STOCK);
        world.apply(&Record { seq: 0, kind: 10, stamp: STAMP, payload: &STOCK.0.to_le_bytes() });
        assert_eq!(world.rebuild.counts().unknown, 0);
        assert!(!world.table.is_blocked(STOCK));
    }
}

#[test]
fn each_unit_has_its_last_number_until_another_session_begins() {
    let mut world = World::new();
    let session = |session| Entry::Session(SessionMark { session, next_inbound: 0, next_id: 1 });
    let received = |unit, sequence| Entry::Received { number: UnitNumbers::number(unit, sequence) };
    let unread = Entry::Unread { number: UnitNumbers::number(200, 5) };
    for entry in
        [session(*b"BOE 2     "), received(3, 9), received(0, 1), session(*b"BOE 2     "), received(3, 10), unread]
    {
        world.apply(&Record { seq: 0, kind: entry.kind(), stamp: STAMP, payload: &entry.encode() });
    }
    assert_eq!(world.rebuild.units().iter().collect::<Vec<_>>(), [(3, 10), (0, 1), (200, 5)]);
    assert_eq!(world.rebuild.session().next_inbound, 0);
    let entry = Entry::Session(SessionMark::default());
    world.apply(&Record { seq: 0, kind: entry.kind(), stamp: STAMP, payload: &entry.encode() });
    assert_eq!(world.rebuild.units().iter().count(), 0);
}

#[test]
fn number_of_a_unit_is_shown_with_it() {
    assert_eq!(MessageNumber(UnitNumbers::number(255, u32::MAX)).to_string(), "4294967295 of unit 255");
    assert_eq!(MessageNumber(12).to_string(), "12");
    assert_eq!(UnitNumbers::split(u64::MAX >> 1), None);
}

/// Its fills would count, and nothing of its other orders would be known to the limits.
#[test]
fn instrument_with_an_order_that_cannot_be_reserved_again_is_blocked() {
    let new = |id: u64, qty| {
        let (symbol, instrument, side) = (Symbol(*b"ZIEXT   "), STOCK, Side::Buy);
        let price = Price(1_000_000 + id as i64 * 100);
        let (strategy, instructions) = (StrategyIdx(0), Instructions::PLAIN);
        let is_short = false;
        Entry::Intent(Intent::New { id, symbol, instrument, side, is_short, qty, price, strategy, instructions })
    };
    let applied = |entries: &mut dyn Iterator<Item = Entry>| {
        let mut world = World::new();
        entries.for_each(|entry| {
            world.apply(&Record { seq: 0, kind: entry.kind(), stamp: STAMP, payload: &entry.encode() });
        });
        (world.rebuild.counts().refused, world.table.is_blocked(STOCK))
    };
    assert_eq!(applied(&mut (1..=16).map(|id| new(id, 1))), (0, false), "as many as there is room for");
    // The table of the test has room for 16.
    assert_eq!(applied(&mut (1..=17).map(|id| new(id, 1))), (1, true));
    let replace = Entry::Intent(Intent::Replace { target: 1, id: 99, qty: 2, price: Price(5) });
    let orders = (1..=16).map(|id| new(id, 1));
    assert_eq!(applied(&mut orders.chain([replace])), (1, true), "a side rests at 16 prices at most");
}
