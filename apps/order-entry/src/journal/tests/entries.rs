use market::{Price, Side, Symbol};

use super::*;
use crate::orders::{Display, ExecId, Instructions, OrderKey, OrderType, VenueEvent, VenueStatus};
use crate::risk::{InstrumentIdx, KillCause, Level, Limit, RiskReject, StrategyIdx};
use crate::text::Text;

fn with_instructions(instructions: Instructions) -> Entry {
    let (symbol, instrument, side) = (Symbol(*b"ZIEXT   "), InstrumentIdx(9), Side::Sell);
    let (qty, price, strategy) = (7, Price(-3), StrategyIdx(0));
    Entry::Intent(Intent::New { id: 1, symbol, instrument, side, is_short: true, qty, price, strategy, instructions })
}

pub(super) fn all() -> Vec<Entry> {
    let exec = ExecId(u128::MAX / 3);
    let (qty, price) = (7, Price(-3));
    let events = [
        VenueEvent::Accepted { venue_id: u64::MAX },
        VenueEvent::Rejected { reason: 1 },
        VenueEvent::Filled { exec, qty, price },
        VenueEvent::Reduced { by: 3, reason: u16::MAX },
        VenueEvent::Canceled { reason: 2 },
        VenueEvent::CancelRefused { reason: 3 },
        VenueEvent::Replaced { id: 1, venue_id: 2 },
        VenueEvent::ReplaceRefused { id: 1, reason: 2 },
        VenueEvent::Restated { qty, price, reason: 4 },
        VenueEvent::Busted { exec },
        VenueEvent::Corrected { exec, new_exec: ExecId(5), qty, price },
        VenueEvent::Status(VenueStatus { is_live: true, cum: 1, leaves: 2 }),
    ];
    let keys = [OrderKey::Client(5), OrderKey::Venue(6)];
    let answers = events.into_iter().flat_map(|event| keys.map(|key| Entry::Answer { number: 3, key, event }));
    let strategy = StrategyIdx(0x1234);
    let levels = [None, Some(Level::Account), Some(Level::Firm), Some(Level::Strategy(strategy))];
    let refused = Limit::ALL.map(|limit| {
        let level = levels[limit as usize % levels.len()];
        let reject = RiskReject { limit, allowed: -1, value: i64::MAX, level };
        Entry::Refused { instrument: InstrumentIdx(4), reject }
    });
    let (symbol, instrument) = (Symbol(*b"ZIEXT   "), InstrumentIdx(9));
    let others = [
        Entry::Intent(Intent::New {
            id: 1,
            symbol,
            instrument,
            side: Side::Buy,
            is_short: false,
            qty,
            price,
            strategy: StrategyIdx(0),
            instructions: Instructions::PLAIN,
        }),
        Entry::Intent(Intent::New {
            id: 1,
            symbol,
            instrument,
            side: Side::Sell,
            is_short: false,
            qty,
            price,
            strategy: StrategyIdx(0),
            instructions: Instructions::PLAIN,
        }),
        Entry::Intent(Intent::New {
            id: 1,
            symbol,
            instrument,
            side: Side::Sell,
            is_short: true,
            qty,
            price,
            strategy,
            instructions: Instructions::PLAIN,
        }),
        with_instructions(Instructions { is_post_only: true, ..Instructions::PLAIN }),
        with_instructions(Instructions {
            order_type: OrderType::Market,
            display: Display::Hidden,
            ..Instructions::PLAIN
        }),
        with_instructions(Instructions {
            order_type: OrderType::PrimaryPeg,
            peg_offset: i32::MIN,
            ..Instructions::PLAIN
        }),
        with_instructions(Instructions {
            order_type: OrderType::MidpointPeg,
            min_qty: 3,
            peg_offset: 100,
            ..Instructions::PLAIN
        }),
        with_instructions(Instructions {
            min_qty: 3,
            display: Display::Shares(4),
            ..Instructions::IMMEDIATE_OR_CANCEL
        }),
        Entry::Intent(Intent::Replace { target: 1, id: 2, qty, price }),
        Entry::Intent(Intent::Cancel { target: 2 }),
        Entry::Unsent { id: 3 },
        Entry::Session(SessionMark { session: *b"   SESSION", next_inbound: 8, next_id: 9 }),
        Entry::Armed(true),
        Entry::Armed(false),
        Entry::Limits { version: 3 },
        Entry::Standby { id: 11 },
        Entry::Killed(KillCause::File),
        Entry::Gap,
        Entry::CanceledAll,
        Entry::Unread { number: 7 },
        Entry::Opening { symbol, instrument, position: i64::MIN },
        Entry::Unblocked { symbol, instrument },
        Entry::Strategy {
            name: Text(*b"a strategy's name of 32 bytes..."),
            strategy: StrategyIdx(3),
            is_stopped: true,
        },
        Entry::Strategy { name: NO_NAME, strategy: StrategyIdx(0), is_stopped: false },
        Entry::Declared { name: Text(*b"a strategy's name of 32 bytes..."), strategy: StrategyIdx(3) },
        Entry::Received { number: u64::MAX },
    ];
    answers.chain(refused).chain(others).collect()
}

#[test]
fn each_entry_comes_back_as_it_was() {
    for entry in all() {
        assert_eq!(Entry::decode(entry.kind(), &entry.encode()), Some(entry));
    }
}

#[test]
fn intent_is_appended_as_the_record_of_its_entry() {
    let (mut one, mut other) = (empty(1_024), empty(1_024));
    for entry in all() {
        let Entry::Intent(intent) = entry else { continue };
        assert_eq!(one.append_intent(&intent, STAMP), other.append(entry.kind(), STAMP, &entry.encode()));
        assert_eq!(one.memory(), other.memory(), "{intent:?}");
    }
}

#[test]
fn new_order_leaves_the_room_that_is_kept_for_answers() {
    let symbol = Symbol(*b"ZIEXT   ");
    let (instrument, side) = (InstrumentIdx(0), Side::Buy);
    let new = Intent::New {
        id: 1,
        symbol,
        instrument,
        side,
        is_short: false,
        qty: 1,
        price: Price(1),
        strategy: StrategyIdx(0),
        instructions: Instructions::PLAIN,
    };
    let mut journal = Journal::create(vec![0; HEADER_LEN + 80 + 15], 77, 1, 16).unwrap();
    assert_eq!(journal.append_intent(&new, STAMP), Err(Full { needed: 96, left: 95 }));
    assert_eq!(journal.end(), HEADER_LEN);
}

#[test]
fn entry_that_is_cut_or_too_long_is_none() {
    // Behind one that was not read stand its bytes, and one without a payload cannot be cut.
    for entry in all().into_iter().filter(|entry| !matches!(entry, Entry::Unread { .. })) {
        let mut payload = entry.encode();
        payload.push(0);
        assert_eq!(Entry::decode(entry.kind(), &payload), None, "{entry:?}");
        // Old records are whole: they lack symbols, levels, strategies, their names and
        // instructions.
        let is_whole = |cut: &usize| match entry {
            Entry::Unblocked { .. } => *cut == 4,
            Entry::Strategy { .. } => *cut == 3,
            Entry::Refused { .. } => *cut == 21,
            Entry::Intent(Intent::New { .. }) => matches!(*cut, 33 | 35 | 36 | 40),
            _ => false,
        };
        for cut in (0..payload.len() - 1).filter(|cut| !is_whole(cut)) {
            assert_eq!(Entry::decode(entry.kind(), &payload[..cut]), None, "{entry:?} cut at {cut}");
        }
    }
}

#[test]
fn order_of_a_journal_of_version_2_says_nothing_else() {
    // As it was written before there were instructions: the strategy may be there.
    let before = Intent::New {
        id: 1,
        symbol: Symbol(*b"ZIEXT   "),
        instrument: InstrumentIdx(2),
        side: Side::Buy,
        is_short: false,
        qty: 100,
        price: Price(1_000_000),
        strategy: StrategyIdx(7),
        instructions: Instructions::PLAIN,
    };
    let payload = b"\x01\0\0\0\0\0\0\0ZIEXT   \x02\0\0\0B\x64\0\0\0\x40\x42\x0f\0\0\0\0\0\x07\0";
    assert_eq!(Entry::decode(1, payload), Some(Entry::Intent(before)));
    assert_eq!(Entry::Intent(before).encode().as_slice(), payload, "and an older program reads it");
}

#[test]
fn order_with_instructions_of_another_program_is_none() {
    let mut payload = with_instructions(Instructions::IMMEDIATE_OR_CANCEL).encode();
    payload[35] = 7;
    assert_eq!(Entry::decode(1, &payload), None);
}

#[test]
fn unknown_kinds_are_none() {
    assert_eq!(Entry::decode(0, &[]), None);
    assert_eq!(Entry::decode(12, &[0; 40]), None);
}
