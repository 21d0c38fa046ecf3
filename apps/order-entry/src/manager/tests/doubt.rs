//! Orders of which nothing is known for sure, and a gate that stays disarmed.

use super::*;
use crate::journal::Killed;
use crate::orders::{ExecId, VenueStatus};

fn status(manager: &mut OrderManager<Vec<u8>>, id: u64, leaves: u32) {
    take(manager, 0, id, VenueEvent::Status(VenueStatus { is_live: leaves > 0, cum: 0, leaves }));
}

fn settle(manager: &mut OrderManager<Vec<u8>>, next_id: u64) {
    manager.take(0, &VenueMessage::Settled { next_id, is_final: false }, 30);
}

#[test]
fn bust_or_correction_of_shares_that_are_not_known_stops_orders() {
    let (exec, new_exec) = (ExecId::from_number(9), ExecId::from_number(10));
    let events = [VenueEvent::Busted { exec }, VenueEvent::Corrected { exec, new_exec, qty: 60, price: TEN }];
    // Of an order that is known, and of one that is not.
    for (id, event) in [1, 77].into_iter().flat_map(|id| events.map(|event| (id, event))) {
        let mut manager = manager(1 << 12);
        buy(&mut manager, 1, 100).unwrap();
        take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 9 });
        take(&mut manager, 2, id, event);
        assert!(!manager.risk().is_armed(), "{event:?} of {id}");
        assert_eq!(manager.orders().is_blocked(InstrumentIdx(0)), id == 1);
    }
}

/// Own orders rest at as many prices as the gate knows, and none is the revived one's.
#[test]
fn order_that_lives_again_without_room_for_its_reservation_stops_orders_and_its_fill_counts() {
    let orders = OrderCapacity { orders: 32, executions: 16, instruments: 1 };
    let journal = Journal::create(vec![0; 1 << 14], 1, 0, 0).unwrap();
    let mut manager = OrderManager::new(ManagerConfig { orders, ..config() }, journal);
    manager.arm(1);
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 100, ..Market::default() };
    for id in 1..=17 {
        let price = if id == 1 { TEN } else { Price(TEN.0 - 50 * id) };
        let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, 10, price);
        manager.new_order(id as u64, SYMBOL, &order, &market, 100 + id as u64).unwrap();
        if id == 1 {
            take(&mut manager, 1, 1, VenueEvent::Rejected { reason: 0 });
        }
    }
    take(&mut manager, 2, 1, VenueEvent::Accepted { venue_id: 9 });
    assert!(!manager.risk().is_armed() && manager.orders().is_blocked(InstrumentIdx(0)));
    take(&mut manager, 3, 1, VenueEvent::Filled { exec: ExecId::from_number(1), qty: 4, price: TEN });
    let (again, _) =
        OrderManager::recover(ManagerConfig { orders, ..config() }, manager.journal().memory().clone(), 0).unwrap();
    for manager in [manager, again] {
        assert_eq!(manager.risk().position(InstrumentIdx(0)), Some(4));
        assert!(manager.orders().is_blocked(InstrumentIdx(0)));
    }
}

/// What the venue said of it may be lost with the reports.
#[test]
fn order_behind_a_gap_is_in_doubt_until_the_venue_has_told_its_status_also_after_a_restart() {
    let mut manager = manager(1 << 16);
    buy(&mut manager, 1, 100).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 9 });
    manager.disconnected();
    manager.logged_in(&SessionMark { next_id: 2, ..SessionMark::default() }, true, 30);
    settle(&mut manager, 2);
    let (mut again, _) = OrderManager::recover(config(), manager.journal().memory().clone(), 0).unwrap();
    settle(&mut again, 2);
    for manager in [&mut manager, &mut again] {
        let order = manager.orders().get(0).unwrap();
        assert!(order.is_in_doubt() && order.is_unconfirmed() && !manager.risk().is_armed());
        status(manager, 1, 100);
        assert!(!manager.orders().get(0).unwrap().is_in_doubt());
    }
}

/// Its answer may be among the messages that are lost: at BOE one that could not be read, or that a
/// replay left out before a restart.
#[test]
fn order_behind_a_gap_is_not_unsent_because_a_venue_that_tells_no_ids_said_nothing_of_it() {
    let mut manager = manager(1 << 16);
    buy(&mut manager, 1, 100).unwrap();
    buy(&mut manager, 2, 100).unwrap();
    take(&mut manager, 1, 2, VenueEvent::Accepted { venue_id: 9 });
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 20, ..Market::default() };
    manager.replace(1, 3, (50, TEN), (&market, Route::default()), 20).unwrap();
    manager.disconnected();
    manager.unread(7, b"what the venue said of one of them", 30);
    let (mut again, _) = OrderManager::recover(config(), manager.journal().memory().clone(), 0).unwrap();
    for manager in [&mut manager, &mut again] {
        manager.take(0, &VenueMessage::Settled { next_id: 1, is_final: true }, 40);
        let (first, second) = (manager.orders().get(0).unwrap(), manager.orders().get(1).unwrap());
        assert!(first.is_live() && first.is_in_doubt(), "{first:?}");
        assert_eq!(second.pending_replaces().len(), 1);
    }
}

#[test]
fn venue_with_a_status_is_asked_about_an_order_behind_a_gap_and_another_is_not() {
    for has_status in [true, false] {
        let journal = Journal::create(vec![0; 1 << 12], 1, 0, 0).unwrap();
        let rules = OrderRules { has_status, ..OrderRules::default() };
        let mut manager = OrderManager::new(ManagerConfig { rules, ..config() }, journal);
        manager.arm(1);
        buy(&mut manager, 1, 100).unwrap();
        take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 9 });
        assert_eq!(manager.poll_unanswered(1_000, 100), None);
        manager.gap(1_000);
        assert_eq!(manager.poll_unanswered(1_000, 100).is_some(), has_status);
    }
}

#[test]
fn person_who_has_compared_ends_the_doubt_behind_a_gap() {
    let mut manager = manager(1 << 12);
    buy(&mut manager, 1, 100).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 9 });
    manager.gap(1_000);
    manager.unblock(InstrumentIdx(0), 1_001);
    assert!(!manager.orders().get(0).unwrap().is_in_doubt());
}

#[test]
fn answer_that_the_order_is_unknown_ends_none_that_may_be_on_its_way() {
    let unknown = VenueMessage::Unknown { key: OrderKey::Client(1) };
    let mut manager = manager(1 << 12);
    buy(&mut manager, 1, 100).unwrap();
    manager.take(1, &unknown, 20);
    assert_eq!(manager.orders().get(0).unwrap().state(), Some(State::PendingNew));
    assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((100, 0)));
    // Its connection is gone, and the venue has processed what came over it.
    manager.disconnected();
    settle(&mut manager, 2);
    manager.take(2, &unknown, 30);
    assert_eq!(manager.orders().get(0).unwrap().state(), Some(State::Ended(End::Rejected)));
    let (again, _) = OrderManager::recover(config(), manager.journal().memory().clone(), 0).unwrap();
    assert_eq!(again.orders().live_count(), 0);
}

#[test]
fn order_that_was_taken_for_dead_lives_when_the_venue_accepts_it() {
    let mut manager = manager(1 << 12);
    buy(&mut manager, 1, 100).unwrap();
    settle(&mut manager, 2);
    manager.take(1, &VenueMessage::Unknown { key: OrderKey::Client(1) }, 20);
    take(&mut manager, 2, 1, VenueEvent::Accepted { venue_id: 9 });
    assert_eq!(manager.orders().get(0).unwrap().state(), Some(State::Live));
    assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((100, 0)));
    assert_eq!(manager.last_alarm(), Some(Alarm::Revived));
}

#[test]
fn status_of_terms_before_a_replace_says_nothing_of_those_in_force() {
    let mut manager = manager(1 << 12);
    buy(&mut manager, 1, 100).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 9 });
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 20, ..Market::default() };
    manager.replace(0, 2, (200, TEN), (&market, Route::default()), 20).unwrap();
    take(&mut manager, 2, 2, VenueEvent::Replaced { id: 2, venue_id: 9 });
    status(&mut manager, 1, 100);
    assert_eq!(manager.orders().get(0).unwrap().leaves(), 200);
    assert!(!manager.orders().is_blocked(InstrumentIdx(0)));
}

/// A process that goes on from the journal, whenever and wherever it starts, is as disarmed.
#[test]
fn thrown_switch_is_in_the_journal_until_somebody_arms() {
    let mut manager = manager(1 << 12);
    let killed = |manager: &OrderManager<Vec<u8>>| {
        let (_, rebuild) = OrderManager::recover(config(), manager.journal().memory().clone(), 0).unwrap();
        (rebuild.killed(), rebuild.is_armed())
    };
    assert_eq!(killed(&manager), (None, true));
    manager.killed(KillCause::Signal, 77);
    manager.disarm(78);
    assert_eq!(killed(&manager), (Some(Killed { since_ns: 77, cause: KillCause::Signal }), false));
    manager.arm(79);
    assert_eq!(killed(&manager), (None, true));
}
