//! A trade that the drop copy alone has.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use common::line::Line;
use common::{Buyer, RESERVE, SECOND, SYMBOL, TestGateway, Venue, book, config, gateway, session};
use market::{Price, Side, Symbol};
use order_entry::journal::Journal;
use order_entry::orders::{ExecId, OrderKey, VenueEvent};
use order_entry::risk::KillSwitch;
use order_gateway::drop_copy::{Difference, Trade};
use order_gateway::{Core, Gateway};

mod common;

const LAG: u64 = 5 * SECOND;

const fn trade(exec: u64, qty: u32) -> Trade {
    Trade { id: 1, exec: ExecId::from_number(exec), terms: Some((qty, Price(1_000_000))), correction: None }
}

/// A gateway with an order of 100 shares that the venue has accepted, and with a drop copy.
fn rig() -> (TestGateway, Venue) {
    let (mut gateway, mut venue) = (gateway(&KillSwitch::new(), 1 << 16), Venue::new());
    gateway.core_mut().reconcile(LAG);
    venue.accept_one_order(&mut gateway);
    assert_eq!(gateway.reconcile(SECOND), None);
    (gateway, venue)
}

fn bought(gateway: &TestGateway) -> u32 {
    let orders = gateway.core().orders();
    orders.get(orders.find(OrderKey::Client(1)).unwrap()).unwrap().cum()
}

#[test]
fn trade_that_the_session_has_missed_is_booked_once_and_stops_orders() {
    let (mut gateway, mut venue) = rig();
    gateway.core_mut().drop_copied(trade(7, 30), None, 2 * SECOND);
    assert_eq!((gateway.reconcile(2 * SECOND + LAG - 1), bought(&gateway)), (None, 0));
    assert_eq!(gateway.reconcile(2 * SECOND + LAG), Some(Difference::OnlyTheirs(trade(7, 30))));
    assert_eq!((bought(&gateway), gateway.core().counts().missed), (30, 1));
    assert!(!gateway.core().risk().is_armed());
    let filled = VenueEvent::Filled { exec: ExecId::from_number(7), qty: 30, price: Price(1_000_000) };
    assert_eq!(gateway.strategy().events.last().map(|event| event.event), Some(filled));
    // The session brings it after all, and the drop copy again.
    venue.fill(0, 30, 7, 9 * SECOND);
    venue.pump(&mut gateway, 9 * SECOND);
    gateway.core_mut().drop_copied(trade(7, 30), None, 9 * SECOND);
    assert_eq!(gateway.reconcile(u64::MAX), None);
    assert_eq!((bought(&gateway), gateway.core().counts().missed), (30, 1));
}

#[test]
fn booked_trade_is_in_the_journal() {
    let (mut gateway, _) = rig();
    gateway.core_mut().drop_copied(trade(7, 30), None, 2 * SECOND);
    assert!(gateway.reconcile(2 * SECOND + LAG).is_some());
    let journal = gateway.core().journal().memory().clone();
    let (core, _) = Core::recover(config(&KillSwitch::new()), session(), journal, RESERVE).unwrap();
    let mut again = Gateway::new(Buyer::default(), core);
    assert_eq!(bought(&again), 30);
    // The drop copy tells the day from the first trade on.
    again.core_mut().reconcile(LAG);
    again.core_mut().drop_copied(trade(7, 30), None, SECOND);
    assert_eq!((again.reconcile(u64::MAX), again.core().reconciled()), (None, 1));
}

#[test]
fn trade_that_a_closed_session_brings_when_it_opens_is_booked_by_the_session() {
    let (mut gateway, mut venue) = rig();
    venue.disconnect(&mut gateway, 2 * SECOND);
    venue.fill(0, 30, 7, 2 * SECOND);
    gateway.core_mut().drop_copied(trade(7, 30), None, 2 * SECOND);
    assert_eq!(gateway.reconcile(2 * SECOND + LAG), Some(Difference::Awaited(trade(7, 30))));
    assert_eq!((bought(&gateway), gateway.core().risk().is_armed()), (0, true));
    venue.connect(&mut gateway, 9 * SECOND);
    assert_eq!((bought(&gateway), gateway.core().reconciled()), (30, 1));
    assert_eq!(gateway.reconcile(u64::MAX), None);
    assert_eq!((gateway.core().counts().missed, gateway.core().risk().is_armed()), (0, true));
}

#[test]
fn trade_that_the_drop_copy_never_has_stops_orders() {
    let (mut gateway, mut venue) = rig();
    venue.fill(0, 30, 7, 2 * SECOND);
    venue.pump(&mut gateway, 2 * SECOND);
    assert_eq!(gateway.reconcile(2 * SECOND + LAG), Some(Difference::OnlyOurs(trade(7, 30))));
    assert_eq!((bought(&gateway), gateway.core().risk().is_armed()), (30, false));
}

/// The session may have lost it, or the copy be wrong: which shares are held is for a person.
#[test]
fn correction_that_the_session_lacks_stops_orders_and_is_not_booked() {
    let (mut gateway, mut venue) = rig();
    venue.fill(0, 30, 7, 2 * SECOND);
    venue.pump(&mut gateway, 2 * SECOND);
    gateway.core_mut().drop_copied(trade(7, 30), None, 2 * SECOND);
    let corrected = Trade { correction: Some(ExecId::from_number(8)), ..trade(7, 20) };
    gateway.core_mut().drop_copied(corrected, None, 2 * SECOND);
    assert_eq!(gateway.reconcile(2 * SECOND), None, "it may be on its way");
    assert_eq!(gateway.reconcile(2 * SECOND + LAG), Some(Difference::Unbooked(corrected)));
    assert_eq!((bought(&gateway), gateway.core().counts().missed), (30, 0));
    assert!(!gateway.core().risk().is_armed());
}

/// A venue of FIX may name the first execution in each correction.
#[test]
fn second_correction_of_an_execution_that_the_session_lacks_stops_orders() {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(config(&KillSwitch::new()), Line::new(), journal);
    let mut gateway = Gateway::new(Buyer::default(), core);
    gateway.core_mut().reconcile(LAG);
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(100, SECOND));
    let (exec, price) = (ExecId::from_number(7), Price(1_000_000));
    let first = VenueEvent::Corrected { exec, new_exec: ExecId::from_number(8), qty: 20, price };
    for event in [VenueEvent::Accepted { venue_id: 901 }, VenueEvent::Filled { exec, qty: 30, price }, first] {
        gateway.core_mut().session_mut().say(1, event);
        gateway.received(&[0], SECOND).unwrap();
    }
    let corrected = |name, qty| Trade { correction: Some(ExecId::from_number(name)), ..trade(7, qty) };
    // The copy tells the day again with each connection.
    for _ in 0..2 {
        gateway.core_mut().drop_copied(trade(7, 30), None, SECOND);
        gateway.core_mut().drop_copied(corrected(8, 20), None, SECOND);
    }
    assert_eq!((gateway.reconcile(SECOND + LAG), gateway.core().reconciled()), (None, 4));
    gateway.core_mut().drop_copied(corrected(9, 10), None, 2 * SECOND + LAG);
    assert_eq!(gateway.reconcile(2 * SECOND + LAG), None, "it may be on its way");
    assert_eq!(gateway.reconcile(2 * SECOND + 2 * LAG), Some(Difference::Unbooked(corrected(9, 10))));
    assert!(!gateway.core().risk().is_armed());
}

#[test]
fn corrections_of_one_execution_are_compared_by_their_names() {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(config(&KillSwitch::new()), Line::new(), journal);
    let mut gateway = Gateway::new(Buyer::default(), core);
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(100, SECOND));
    let (exec, price) = (ExecId::from_number(7), Price(1_000_000));
    let correction = |name, qty| VenueEvent::Corrected { exec, new_exec: ExecId::from_number(name), qty, price };
    for event in [VenueEvent::Filled { exec, qty: 30, price }, correction(8, 20), correction(9, 10)] {
        gateway.core_mut().session_mut().say(1, event);
        gateway.received(&[0], SECOND).unwrap();
    }
    // As behind a restart: the session's corrections do not wait for the copy's.
    gateway.core_mut().reconcile(LAG);
    let corrected = |name, qty| Trade { correction: Some(ExecId::from_number(name)), ..trade(7, qty) };
    for copy in [trade(7, 30), corrected(8, 20), corrected(9, 10)] {
        gateway.core_mut().drop_copied(copy, None, SECOND);
    }
    assert_eq!((gateway.reconcile(u64::MAX), gateway.core().reconciled()), (None, 3));
    gateway.core_mut().drop_copied(corrected(9, 11), None, SECOND);
    assert_eq!(gateway.reconcile(SECOND), Some(Difference::Terms(corrected(9, 11))));
}

/// Ids begin at 1 with each journal, and with each session of the firm.
#[test]
fn copy_of_another_instrument_or_side_stops_orders_and_is_not_booked() {
    for of in [(Symbol(*b"OTHER   "), Side::Buy), (SYMBOL, Side::Sell)] {
        let (mut gateway, _) = rig();
        gateway.core_mut().drop_copied(trade(7, 30), Some(of), 2 * SECOND);
        assert_eq!(gateway.reconcile(2 * SECOND + LAG), Some(Difference::Unbooked(trade(7, 30))));
        assert_eq!((bought(&gateway), gateway.core().counts().missed), (0, 0));
        assert!(!gateway.core().risk().is_armed());
    }
    let (mut gateway, _) = rig();
    gateway.core_mut().drop_copied(trade(7, 30), Some((SYMBOL, Side::Buy)), 2 * SECOND);
    assert_eq!(gateway.reconcile(2 * SECOND + LAG), Some(Difference::OnlyTheirs(trade(7, 30))));
    assert_eq!(bought(&gateway), 30);
}

/// CME's copies name a future otherwise than the session does.
#[test]
fn copy_that_names_the_instrument_otherwise_is_the_sessions_trade_all_the_same() {
    let (mut gateway, mut venue) = rig();
    venue.fill(0, 30, 7, 2 * SECOND);
    venue.pump(&mut gateway, 2 * SECOND);
    gateway.core_mut().drop_copied(trade(7, 30), Some((Symbol(*b"OTHER   "), Side::Buy)), 2 * SECOND);
    assert_eq!((gateway.reconcile(u64::MAX), gateway.core().reconciled()), (None, 1));
}
