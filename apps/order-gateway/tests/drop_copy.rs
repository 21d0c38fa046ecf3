//! A trade that the drop copy alone has.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use common::{Buyer, RESERVE, SECOND, SYMBOL, TestGateway, Venue, book, config, gateway, session};
use market::{Price, Side, Symbol};
use order_entry::orders::{ExecId, OrderKey, VenueEvent};
use order_entry::risk::KillSwitch;
use order_gateway::drop_copy::{Difference, Trade};
use order_gateway::{Core, Gateway};

mod common;

const LAG: u64 = 5 * SECOND;

const fn trade(exec: u64, qty: u32) -> Trade {
    Trade { id: 1, exec: ExecId::from_number(exec), terms: Some((qty, Price(1_000_000))), is_correction: false }
}

/// A gateway with an order of 100 shares that the venue has accepted, and with a drop copy.
fn rig() -> (TestGateway, Venue) {
    let (mut gateway, mut venue) = (gateway(&KillSwitch::new(), 1 << 16), Venue::new());
    gateway.core_mut().reconcile(LAG);
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
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
    let corrected = Trade { is_correction: true, ..trade(7, 20) };
    gateway.core_mut().drop_copied(corrected, None, 2 * SECOND);
    assert_eq!(gateway.reconcile(2 * SECOND), None, "it may be on its way");
    assert_eq!(gateway.reconcile(2 * SECOND + LAG), Some(Difference::Unbooked(corrected)));
    assert_eq!((bought(&gateway), gateway.core().counts().missed), (30, 0));
    assert!(!gateway.core().risk().is_armed());
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
