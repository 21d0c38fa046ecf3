//! A manager that goes on from a journal has what its process had.

use super::*;
use crate::orders::{ExecId, VenueStatus};

/// The question came behind the cancel, and its time is not in the journal.
#[test]
fn replace_behind_a_cancel_that_was_swallowed_lives_after_a_restart_with_its_fill() {
    let rules = OrderRules { has_status: true, ..OrderRules::default() };
    let journal = Journal::create(vec![0; 1 << 12], 1, 0, 0).unwrap();
    let mut manager = OrderManager::new(ManagerConfig { rules, ..config() }, journal);
    manager.arm(1);
    let slot = buy(&mut manager, 1, 100).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 9 });
    manager.cancel(slot, Route::default(), 20).unwrap();
    assert!(manager.poll_unanswered(1_020, 1_000).is_some());
    take(&mut manager, 2, 1, VenueEvent::Status(VenueStatus { is_live: true, cum: 0, leaves: 100 }));
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 1_030, ..Market::default() };
    manager.replace(slot, 2, (150, TEN), (&market, Route::default()), 1_030).unwrap();
    take(&mut manager, 3, 2, VenueEvent::Replaced { id: 2, venue_id: 9 });
    take(&mut manager, 4, 2, VenueEvent::Filled { exec: ExecId::from_number(1), qty: 60, price: TEN });
    let memory = manager.journal().memory().clone();
    let (again, rebuild) = OrderManager::recover(ManagerConfig { rules, ..config() }, memory, 0).unwrap();
    assert_eq!(rebuild.counts().refused, 0);
    for manager in [manager, again] {
        let order = manager.orders().get(slot).unwrap();
        assert_eq!((order.accepted_id(), order.leaves(), order.state()), (2, 90, Some(State::Live)));
        assert_eq!(manager.risk().position(InstrumentIdx(0)), Some(60));
        assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((90, 0)));
    }
}

#[test]
fn journal_with_a_record_of_an_unknown_kind_is_refused() {
    let mut journal = Journal::create(vec![0; 1 << 12], 1, 0, 0).unwrap();
    journal.append(999, Stamp::default(), b"of a newer version").unwrap();
    let refusal = OrderManager::recover(config(), journal.memory().clone(), 0).unwrap_err();
    assert_eq!(refusal, JournalError::Unknown(1));
    assert_eq!(refusal.to_string(), "this program does not know the kinds of 1 of the journal's records");
}

#[test]
fn cancels_that_are_repeated_leave_the_room_for_answers() {
    let journal = Journal::create(vec![0; 2_048], 1, 0, 1_024).unwrap();
    let mut manager = OrderManager::new(config(), journal);
    manager.arm(1);
    let slot = buy(&mut manager, 1, 100).unwrap();
    manager.disconnected();
    (0..100).for_each(|now_ns| assert_eq!(manager.cancel_again(slot, now_ns), Ok(1)));
    assert!(manager.journal().end() <= 1_024);
    assert_eq!((manager.unjournaled(), manager.risk().is_armed()), (0, true));
    assert!(entries(&manager).contains(&Entry::Intent(Intent::Cancel { target: 1 })));
}

#[test]
fn what_was_lost_in_a_flat_instrument_uses_credit_when_it_has_no_limits_any_more() {
    let mut before = manager(4_096);
    buy(&mut before, 1, 100).unwrap();
    take(&mut before, 1, 1, VenueEvent::Accepted { venue_id: 9 });
    take(&mut before, 2, 1, VenueEvent::Filled { exec: ExecId::from_number(1), qty: 100, price: TEN });
    let sale = NewOrder::limit(InstrumentIdx(0), Side::Sell, 100, TEN);
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 20, ..Market::default() };
    before.new_order(2, SYMBOL, &sale, &market, 20).unwrap();
    take(&mut before, 3, 2, VenueEvent::Accepted { venue_id: 10 });
    let price = Price::from_cents(990);
    take(&mut before, 4, 2, VenueEvent::Filled { exec: ExecId::from_number(2), qty: 100, price });
    let lost = Price::from_cents(10).0 * 100;
    assert_eq!((before.risk().position(InstrumentIdx(0)), before.risk().cash()), (Some(0), lost));

    let others = ManagerConfig { symbols: vec![Symbol(*b"OTHER   ")].into(), ..config() };
    let (after, _) = OrderManager::recover(others, before.journal().memory().clone(), 0).unwrap();
    assert_eq!((after.risk().position(InstrumentIdx(0)), after.risk().cash()), (Some(0), lost));
}

/// The second strategy buys, trades and replaces; its credit is the same after a restart.
#[test]
fn strategies_have_after_a_restart_what_they_had() {
    let of = |credit: i64| LevelLimits {
        qty_max: 500,
        notional_max: i64::MAX,
        buy_credit_max: TEN.0 * credit,
        sell_credit_max: i64::MAX,
        orders: Rate::new(1_000, 1_000),
    };
    let config = || {
        let mut config = config();
        config.limits.strategies = [of(500), of(300)].into();
        config
    };
    let mut manager = OrderManager::new(config(), Journal::create(vec![0; 1 << 12], 1, 0, 0).unwrap());
    manager.arm(1);
    let order = |strategy: u16, qty| {
        let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, qty, TEN);
        NewOrder { strategy: StrategyIdx(strategy), ..order }
    };
    let market = |now_ns| Market { reference: Some(TEN), is_stale: false, heard_ns: now_ns, ..Market::default() };
    let slot = manager.new_order(1, SYMBOL, &order(1, 100), &market(10), 10).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 9 });
    take(&mut manager, 2, 1, VenueEvent::Filled { exec: ExecId::from_number(1), qty: 40, price: TEN });
    manager.replace(slot, 2, (200, TEN), (&market(20), Route::default()), 20).unwrap();
    take(&mut manager, 3, 2, VenueEvent::Replaced { id: 2, venue_id: 9 });
    manager.new_order(3, SYMBOL, &order(1, 50), &market(30), 30).unwrap();
    let memory = manager.journal().memory().clone();
    let (mut again, rebuild) = OrderManager::recover(config(), memory, 0).unwrap();
    assert_eq!(rebuild.counts().refused, 0);
    again.arm(40);
    for manager in [&mut manager, &mut again] {
        assert_eq!(manager.orders().get(slot).unwrap().strategy, StrategyIdx(1));
        // By then its rates have drained.
        let later = |ns: u64| 2_000_000_000 + ns;
        let refused = manager.new_order(4, SYMBOL, &order(1, 51), &market(later(50)), later(50));
        let Err(Refusal::Risk(reject)) = refused else { panic!("{refused:?}") };
        assert_eq!((reject.limit, reject.level), (Limit::BuyCredit, Some(Level::Strategy(StrategyIdx(1)))));
        // 200 in all of one order and 50 of another, of which 40 are bought.
        assert_eq!((reject.value, reject.allowed), (TEN.0 * 301, TEN.0 * 300));
        assert!(manager.new_order(5, SYMBOL, &order(1, 50), &market(later(60)), later(60)).is_ok());
        let another = manager.new_order(6, SYMBOL, &order(0, 500), &market(later(70)), later(70));
        assert!(another.is_ok(), "another strategy's credit");
    }
}

/// What a person has raised or lowered since stays so.
#[test]
fn limits_that_are_older_than_those_of_the_journal_are_refused_after_a_restart() {
    let of = |version| {
        let mut config = config();
        config.limits.version = version;
        config
    };
    let mut manager = manager(4_096);
    manager.set_limits(of(3).limits, 10).unwrap();
    for (version, is_taken) in [(0, false), (2, false), (3, true), (4, true)] {
        let again = OrderManager::recover(of(version), manager.journal().memory().clone(), 0);
        assert_eq!(again.is_ok(), is_taken, "version {version}");
        let Err(why) = again else { continue };
        let (why, own) = (why.to_string(), format!("version {version}"));
        assert!(why.contains("version 3") && why.contains(&own), "{why}");
    }
}

/// Orders live at the venue, and nobody else can cancel them.
#[test]
fn standby_with_older_limits_than_the_journal_goes_on_and_leaves_the_journals_version() {
    let mut manager = manager(4_096);
    let mut newer = config().limits;
    newer.version = 3;
    let slot = buy(&mut manager, 1, 100).unwrap();
    manager.set_limits(newer, 10).unwrap();
    let of = ManagerConfig { takes_older_limits: true, ..config() };
    let (mut again, rebuild) = OrderManager::recover(of, manager.journal().memory().clone(), 0).unwrap();
    assert_eq!((rebuild.limits_version(), again.risk().limits().version), (3, 0));
    again.note_limits(20);
    assert_eq!(again.cancel_past_rates(slot, 20), Ok(1));
    assert!(OrderManager::recover(config(), again.journal().memory().clone(), 0).is_err(), "it is still the journal's");
}

/// Those of the start are no reload.
#[test]
fn limits_with_which_a_process_begins_are_in_its_journal_once() {
    let of = |version| {
        let mut config = config();
        config.limits.version = version;
        config
    };
    let mut manager = OrderManager::new(of(7), Journal::create(vec![0; 4_096], 1, 0, 0).unwrap());
    (1..3).for_each(|now_ns| manager.note_limits(now_ns));
    assert_eq!(entries(&manager), [Entry::Limits { version: 7 }]);
    let memory = manager.journal().memory().clone();
    let why = OrderManager::recover(of(6), memory.clone(), 0).unwrap_err();
    assert_eq!(why, JournalError::StaleLimits { journal: 7, offered: 6 });
    for (version, records) in [(7, 1), (8, 2)] {
        let (mut again, _) = OrderManager::recover(of(version), memory.clone(), 0).unwrap();
        again.note_limits(9);
        assert_eq!(entries(&again).len(), records, "version {version}");
    }
}

/// Ten a second and two at once.
fn with_rates() -> ManagerConfig {
    let (rate, mut config) = (Rate::new(10, 2), config());
    config.limits.instruments[0].rates = RateLimits { orders: rate, cancels: rate };
    config.limits.account.silence_max_ns = i64::MAX as u64;
    config
}

/// The venue counts what the process before has sent.
#[test]
fn rates_of_orders_are_full_after_a_restart_and_drain_from_when_a_person_arms() {
    const SECOND: u64 = 1_000_000_000;
    let mut manager = OrderManager::new(with_rates(), Journal::create(vec![0; 4_096], 1, 0, 0).unwrap());
    manager.arm(1);
    let slot = buy(&mut manager, 1, 100).unwrap();
    buy(&mut manager, 2, 200).unwrap();
    let (mut again, _) = OrderManager::recover(with_rates(), manager.journal().memory().clone(), 0).unwrap();
    again.arm(SECOND);
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: SECOND, ..Market::default() };
    let mut at = |id: u64, now_ns| {
        let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, id as u32, TEN);
        match again.new_order(id, SYMBOL, &order, &market, now_ns) {
            Ok(_) => None,
            Err(Refusal::Risk(reject)) => Some(reject.limit),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(at(3, SECOND), Some(Limit::InstrumentRate));
    assert_eq!(at(3, SECOND + SECOND / 10), None);
    assert_eq!(at(4, SECOND + SECOND / 10), Some(Limit::InstrumentRate));
    assert_eq!((at(5, 2 * SECOND), at(6, 2 * SECOND)), (None, None));
    assert_eq!(again.cancel(slot, Route::default(), SECOND), Ok(1), "a cancel waits for nothing");
    again.arm(2 * SECOND);
    let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, 7, TEN);
    assert!(again.new_order(7, SYMBOL, &order, &market, 2 * SECOND + SECOND / 10).is_ok(), "they are filled once");
}

/// Times are compared over the clocks of both processes.
#[test]
fn order_that_the_process_before_has_sent_a_moment_ago_is_a_duplicate_after_a_restart() {
    let of = |epoch_offset_ns| {
        let mut config = ManagerConfig { epoch_offset_ns, ..config() };
        config.limits.account.duplicate_window_ns = 1_000;
        config.limits.account.silence_max_ns = i64::MAX as u64;
        config
    };
    let mut manager = OrderManager::new(of(50_000), Journal::create(vec![0; 4_096], 1, 0, 0).unwrap());
    manager.arm(1);
    buy(&mut manager, 900, 100).unwrap();
    // It was sent at 59,000, which is 4,000 by the clock of the next one.
    let memory = manager.journal().memory().clone();
    let (mut again, _) = OrderManager::recover(of(55_000), memory, 0).unwrap();
    again.arm(2);
    for (id, at_ns, is_taken) in [(901, 4_999, false), (902, 5_000, true)] {
        let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, 100, TEN);
        let market = Market { reference: Some(TEN), is_stale: false, heard_ns: at_ns, ..Market::default() };
        // Its rate is another matter.
        let refusal = again.new_order(id, SYMBOL, &order, &market, at_ns).err();
        let is_duplicate = matches!(refusal, Some(Refusal::Risk(reject)) if reject.limit == Limit::Duplicate);
        assert_eq!(is_duplicate, !is_taken, "at {at_ns}: {refusal:?}");
    }
}
