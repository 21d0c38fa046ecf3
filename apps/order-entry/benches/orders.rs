//! What an order costs before it is sent: its risk checks and its record in the journal. And how
//! long a journal takes to become order states and risk sums again.
//!
//! Nanoseconds are the least and the median of 401 batches; callgrind counts the instructions where
//! valgrind is installed. The replay of a million records is the least and the median of five.
//!
//! ```console
//! $ cargo bench -p wirepath-order-entry --bench orders
//! ```
#![allow(clippy::unwrap_used, reason = "a bench may unwrap: a panic is the report")]

mod measure;

use std::hint::black_box;
use std::time::Duration;

use market::{Price, Side, Symbol};
use measure::{BATCH, Row, batch, times};
use order_entry::journal::{Entry, Intent, Journal, RECORD_HEADER_LEN, Rebuild, Stamp};
use order_entry::orders::{ExecId, Instructions, OrderCapacity, OrderKey, OrderRules, OrderTable, VenueEvent};
use order_entry::risk::{
    InstrumentIdx, InstrumentLimits, KillSwitch, Limits, Market, NewOrder, Rate, RateLimits, RiskCapacity, RiskGate,
    Route, StrategyIdx,
};

const INSTRUMENTS: u32 = 1_000;
const PRICE: Price = Price(1_000_000);
/// Bytes of the longest record of an order's life.
const RECORD_LEN: usize = 96;
/// Records of the journal that is replayed whole.
const RECORDS: u64 = 1_000_000;

const ROWS: [Row; 4] = [
    ("check", "all risk checks of a new order, 1,000 instruments by turns", check),
    ("cancel", "the rates of a cancel", cancel),
    ("append", "a new order's intent encoded, summed and appended", append),
    ("replay", "a record replayed into order states and risk sums", replay),
];

fn main() {
    if measure::run("orders", &ROWS) {
        let journal = journal_of(RECORDS);
        let times = times(5, || replay_of(journal.clone(), RECORDS));
        if measure::wants_rows() {
            let seconds: Vec<_> = times.iter().map(Duration::as_secs_f64).collect();
            return measure::print_row("replay-million", "s", &seconds);
        }
        let record = RECORD_HEADER_LEN + intent(1).encode().len().next_multiple_of(8);
        println!("the record of an intent has {record} bytes");
        let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
        let (least, median) = (milliseconds(times[0]), milliseconds(times[2]));
        println!("a journal of {RECORDS} records is replayed in {least:.0} ms at least, {median:.0} ms in the median");
    }
}

/// Limits that pass every order.
fn wide() -> Box<Limits> {
    let rate = Rate::new(u32::MAX, u32::MAX);
    let rates = RateLimits { orders: rate, cancels: rate };
    let mut limits = Limits::zero(INSTRUMENTS as usize, 1, 1);
    limits.instruments.fill(InstrumentLimits {
        qty_max: 10_000,
        collar_bps: 500,
        spread_max_bps: 1_000,
        notional_max: i64::MAX,
        long_max: i64::MAX,
        short_max: i64::MAX,
        rates,
    });
    (limits.ports[0], limits.units[0]) = (rates, rates);
    limits.account.buy_credit_max = i64::MAX;
    limits.account.sell_credit_max = i64::MAX;
    limits.account.duplicate_window_ns = 1_000_000;
    limits.account.silence_max_ns = u64::MAX;
    (0..INSTRUMENTS).for_each(|instrument| limits.shortable.set(InstrumentIdx(instrument), true));
    Box::new(limits)
}

fn armed() -> RiskGate {
    let capacity = RiskCapacity { orders: BATCH as usize, recent: 4_096 };
    let mut gate = RiskGate::new(wide(), KillSwitch::new(), capacity);
    gate.arm();
    gate
}

/// The order `count`, a microsecond after the one before. An order with the same terms follows
/// after a multiple of 256,000 orders, long behind the window of the duplicates.
fn check_one(gate: &mut RiskGate, slot: u64, count: u64) -> u64 {
    let order = NewOrder {
        instrument: InstrumentIdx(count as u32 * 7 % INSTRUMENTS),
        side: if count & 1 == 0 { Side::Buy } else { Side::Sell },
        qty: 100 + (count as u32 & 0xff),
        price: PRICE,
        instructions: Instructions::PLAIN,
        route: Route::default(),
        strategy: StrategyIdx(0),
    };
    let now_ns = 1_000 * (1 + count);
    let market = Market { reference: Some(PRICE), is_stale: false, heard_ns: now_ns, ..Market::default() };
    let checked = gate.check_new(slot as usize, black_box(&order), black_box(&market), now_ns);
    assert!(checked.is_ok(), "{checked:?}");
    now_ns
}

fn check() -> Duration {
    let mut gate = armed();
    // The tables are in the cache, as those of a gateway that has run for a moment.
    for slot in 0..BATCH {
        check_one(&mut gate, slot, slot);
    }
    (0..BATCH as usize).for_each(|slot| gate.ended(slot));
    batch(BATCH, |slot| check_one(&mut gate, slot, BATCH + slot))
}

fn cancel() -> Duration {
    let mut gate = armed();
    batch(BATCH, |count| {
        let instrument = InstrumentIdx(count as u32 * 7 % INSTRUMENTS);
        let checked = gate.check_cancel(black_box(instrument), Route::default(), 1_000 * (1 + count));
        assert!(checked.is_ok(), "{checked:?}");
        count
    })
}

fn new(id: u64) -> Intent {
    let symbol = Symbol(*b"ZIEXT   ");
    let instrument = InstrumentIdx(id as u32 % INSTRUMENTS);
    Intent::New {
        id,
        symbol,
        instrument,
        side: Side::Buy,
        is_short: false,
        qty: 100,
        price: PRICE,
        strategy: StrategyIdx(0),
        instructions: Instructions::PLAIN,
    }
}

fn intent(id: u64) -> Entry {
    Entry::Intent(new(id))
}

fn append() -> Duration {
    // Not zeros, so that the allocator touches the memory before the measurement does.
    let mut journal = Journal::create(vec![1; BATCH as usize * RECORD_LEN], 1, 0, 0).unwrap();
    batch(BATCH, |id| journal.append_intent(&black_box(new(id)), Stamp { at_ns: id, event_ns: id }).unwrap())
}

/// A journal of orders, each with its acknowledgment, a fill and the cancel of what was left.
fn journal_of(records: u64) -> Vec<u8> {
    let mut journal = Journal::create(vec![0; 64 + records as usize * RECORD_LEN], 1, 0, 0).unwrap();
    for id in 0..records / 4 {
        let key = OrderKey::Client(id);
        let fill = VenueEvent::Filled { exec: ExecId::from_number(id), qty: 40, price: PRICE };
        let answers = [VenueEvent::Accepted { venue_id: id }, fill, VenueEvent::Canceled { reason: 0 }];
        let answers = answers.map(|event| Entry::Answer { number: 0, key, event });
        for entry in [intent(id)].into_iter().chain(answers) {
            journal.append(entry.kind(), Stamp { at_ns: id, event_ns: id }, &entry.encode()).unwrap();
        }
    }
    journal.memory().clone()
}

/// The replay of a batch, in one call.
fn replay() -> Duration {
    replay_of(journal_of(BATCH), BATCH)
}

fn replay_of(journal: Vec<u8>, records: u64) -> Duration {
    let mut table = OrderTable::new(OrderCapacity::default(), OrderRules::default());
    let mut gate = RiskGate::new(wide(), KillSwitch::new(), RiskCapacity::default());
    let (mut rebuild, mut journal) = (Rebuild::new(), Some(journal));
    let time = batch(1, |_| {
        let journal = journal.take().unwrap();
        let (_, recovery) =
            Journal::recover(journal, 0, |record| rebuild.apply(record, &mut table, &mut gate)).unwrap();
        recovery.records
    });
    assert_eq!((rebuild.counts().applied, rebuild.counts().refused), (records, 0));
    time
}
