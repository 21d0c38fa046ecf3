//! A journal's instruments are those of its symbols, wherever the limits have them later.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use common::line::Line;
use common::{Buyer, RESERVE, SECOND, book, config_of};
use market::{Price, Side, Symbol};
use order_entry::Refusal;
use order_entry::journal::{Journal, JournalError, MissingInstrument};
use order_entry::orders::{ExecId, VenueEvent, VenueStatus};
use order_entry::risk::{InstrumentIdx, KillSwitch, Limit};
use order_gateway::{BookEvent, Core, Gateway};

type LineGateway = Gateway<Buyer, Line, Vec<u8>>;

const A: Symbol = Symbol(*b"A       ");
const B: Symbol = Symbol(*b"B       ");
const C: Symbol = Symbol(*b"C       ");
const FIRST: InstrumentIdx = InstrumentIdx(0);
const SECOND_PLACE: InstrumentIdx = InstrumentIdx(1);

/// Of A and B, armed, with an order in B for 100 shares of which 40 have traded.
fn with_an_order_in_b() -> LineGateway {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(config_of(&[A, B], &KillSwitch::new()), Line::new(), journal);
    let mut gateway = Gateway::new(Buyer::default(), core);
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&BookEvent { instrument: SECOND_PLACE, ..book(100, SECOND) });
    say(&mut gateway, VenueEvent::Accepted { venue_id: 901 });
    say(&mut gateway, VenueEvent::Filled { exec: ExecId::from_number(1), qty: 40, price: Price(1_000_000) });
    gateway
}

fn say(gateway: &mut LineGateway, event: VenueEvent) {
    gateway.core_mut().session_mut().say(1, event);
    gateway.received(&[], SECOND).unwrap();
}

fn recover(gateway: &LineGateway, symbols: &[Symbol]) -> Result<LineGateway, JournalError> {
    let journal = gateway.core().journal().memory().clone();
    let (core, rebuild) = Core::recover(config_of(symbols, &KillSwitch::new()), Line::new(), journal, RESERVE)?;
    assert_eq!(rebuild.counts().refused, 0);
    Ok(Gateway::new(Buyer::default(), core))
}

#[test]
fn journal_goes_on_under_limits_that_have_its_symbols_at_other_positions() {
    let mut after = recover(&with_an_order_in_b(), &[C, A, B]).unwrap();
    let risk = after.core().risk();
    assert_eq!([0, 1, 2].map(|idx| risk.position(InstrumentIdx(idx))), [Some(0), Some(0), Some(40)]);
    let open = [0, 1, 2].map(|idx| risk.open_qty(InstrumentIdx(idx)).unwrap());
    assert_eq!(open, [(0, 0), (0, 0), (60, 0)]);
    after.core_mut().cancel_all(2 * SECOND);
    assert_eq!(after.core().session().symbols, [B]);
}

#[test]
fn journal_with_shares_or_orders_of_a_symbol_without_limits_is_refused() {
    let mut before = with_an_order_in_b();
    let missing = |orders| JournalError::Missing(MissingInstrument { symbol: B, position: 40, orders });
    assert_eq!(recover(&before, &[C, A]).unwrap_err(), missing(1));
    say(&mut before, VenueEvent::Canceled { reason: 0 });
    assert_eq!(recover(&before, &[C, A]).unwrap_err(), missing(0));
    say(&mut before, VenueEvent::Busted { exec: ExecId::from_number(1) });
    // What is flat may go. Its requests were counted as refused, because no limits are theirs.
    let journal = before.core().journal().memory().clone();
    Core::recover(config_of(&[C, A], &KillSwitch::new()), Line::new(), journal, RESERVE).unwrap();
}

#[test]
fn block_and_its_end_are_those_of_the_symbol() {
    let mut before = with_an_order_in_b();
    say(&mut before, VenueEvent::Status(VenueStatus { is_live: true, cum: 99, leaves: 1 }));
    assert!(before.core().orders().is_blocked(SECOND_PLACE));
    let mut swapped = recover(&before, &[B, A]).unwrap();
    let blocked = |gateway: &LineGateway| [FIRST, SECOND_PLACE].map(|idx| gateway.core().orders().is_blocked(idx));
    assert_eq!(blocked(&swapped), [true, false]);
    swapped.core_mut().unblock(FIRST, 2 * SECOND);
    assert_eq!(blocked(&recover(&swapped, &[A, B]).unwrap()), [false, false]);
}

#[test]
fn opening_position_counts_for_limits_and_marks_of_sales_also_after_a_restart() {
    let mut config = config_of(&[A], &KillSwitch::new());
    config.manager.limits.instruments[0].long_max = 1_000;
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut gateway = Gateway::new(Buyer::default(), Core::new(config, Line::new(), journal));
    gateway.core_mut().set_opening_position(FIRST, 1_000, SECOND);
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(1, SECOND));
    let [Refusal::Risk(reject)] = gateway.strategy().refusals[..] else { panic!("refused once, by risk") };
    assert_eq!((reject.limit, reject.allowed, reject.value), (Limit::LongPosition, 1_000, 1_001));
    gateway.strategy_mut().side = Side::Sell;
    gateway.on_book(&book(1_000, 2 * SECOND));
    let order = gateway.core().orders().get(0).unwrap();
    assert!(order.is_live() && !order.is_short());

    let mut after = recover(&gateway, &[B, A]).unwrap();
    let core = after.core_mut();
    let end = core.journal().end();
    core.set_opening_position(SECOND_PLACE, 1_000, 3 * SECOND);
    assert_eq!((core.risk().position(SECOND_PLACE), core.journal().end()), (Some(1_000), end));
    core.set_opening_position(SECOND_PLACE, 400, 3 * SECOND);
    assert_eq!(core.risk().position(SECOND_PLACE), Some(400));
    assert_eq!(recover(&after, &[A]).unwrap().core().risk().position(FIRST), Some(400));
}
