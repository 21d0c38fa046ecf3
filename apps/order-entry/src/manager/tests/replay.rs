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
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 1_030 };
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
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 20 };
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
    let market = |now_ns| Market { reference: Some(TEN), is_stale: false, heard_ns: now_ns };
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
        let refused = manager.new_order(4, SYMBOL, &order(1, 51), &market(50), 50);
        let Err(Refusal::Risk(reject)) = refused else { panic!("{refused:?}") };
        assert_eq!((reject.limit, reject.level), (Limit::BuyCredit, Some(Level::Strategy(StrategyIdx(1)))));
        // 200 in all of one order and 50 of another, of which 40 are bought.
        assert_eq!((reject.value, reject.allowed), (TEN.0 * 301, TEN.0 * 300));
        assert!(manager.new_order(5, SYMBOL, &order(1, 50), &market(60), 60).is_ok());
        assert!(manager.new_order(6, SYMBOL, &order(0, 500), &market(70), 70).is_ok(), "another strategy's credit");
    }
}
