//! The sample strategies behind a restart: what the journal has of them is theirs again.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;
#[path = "../src/samples.rs"]
mod samples;

use common::{RESERVE, SECOND, Venue, book, config, session};
use market::Price;
use order_entry::journal::Journal;
use order_entry::ouch::{OuchClient, Side};
use order_entry::risk::KillSwitch;
use order_gateway::{BookEvent, Core, Gateway, Sample};
use samples::SampleStrategy;

type SampleGateway = Gateway<SampleStrategy, OuchClient, Vec<u8>>;

fn first(sample: Sample) -> SampleGateway {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(config(&KillSwitch::new()), session(), journal);
    Gateway::new(SampleStrategy::new(sample, 1, None), core)
}

/// A new process with the journal of `before`, and with a strategy that has no memory.
fn restarted(before: &SampleGateway, sample: Sample) -> SampleGateway {
    let journal = before.core().journal().memory().clone();
    let (core, _) = Core::recover(config(&KillSwitch::new()), session(), journal, RESERVE).unwrap();
    Gateway::new(SampleStrategy::new(sample, 1, None), core)
}

/// Connects, arms, and shows a book when the rates have drained that a restart finds full.
fn trade(gateway: &mut SampleGateway, venue: &mut Venue, book: &BookEvent) {
    let before_ns = book.at_ns - SECOND;
    venue.connect(gateway, before_ns);
    gateway.core_mut().arm(before_ns);
    show(gateway, venue, book);
}

fn show(gateway: &mut SampleGateway, venue: &mut Venue, book: &BookEvent) {
    gateway.on_book(book);
    venue.pump(gateway, book.at_ns);
}

/// A taker that has bought so many shares and was started again, and its first order since.
fn restarted_after_purchase(venue: &mut Venue, mut gateway: SampleGateway, shares: u32) -> SampleGateway {
    trade(&mut gateway, venue, &book(500, SECOND));
    assert_eq!((venue.orders[0].side, venue.orders[0].quantity.get()), (Side::BUY, 100));
    venue.accept(0, SECOND);
    venue.fill(0, shares, 1, SECOND);
    venue.pump(&mut gateway, SECOND);
    venue.disconnected();
    let mut gateway = restarted(&gateway, Sample::Taker);
    trade(&mut gateway, venue, &book(500, 3 * SECOND));
    gateway
}

#[test]
fn joiner_of_a_restart_moves_the_order_that_lives_and_sends_no_second_one() {
    let (mut venue, mut gateway) = (Venue::new(), first(Sample::Joiner));
    trade(&mut gateway, &mut venue, &book(500, SECOND));
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    venue.disconnected();

    let mut gateway = restarted(&gateway, Sample::Joiner);
    trade(&mut gateway, &mut venue, &book(500, 3 * SECOND));
    assert_eq!((venue.orders.len(), gateway.core().orders().live_count()), (1, 1), "the price is the bid");
    let moved = BookEvent { bid: Some((Price(999_900), 500)), ..book(500, 3 * SECOND + 1) };
    show(&mut gateway, &mut venue, &moved);
    assert_eq!((venue.orders.len(), gateway.core().orders().live_count()), (1, 1));
    assert_eq!(gateway.core().counts().replaces, 1, "the order of before follows the bid");
}

#[test]
fn taker_of_a_restart_sells_what_it_bought_before() {
    let mut venue = Venue::new();
    restarted_after_purchase(&mut venue, first(Sample::Taker), 100);
    assert_eq!(venue.orders.len(), 2);
    assert_eq!((venue.orders[1].side, venue.orders[1].quantity.get()), (Side::SELL, 100));
}

#[test]
fn taker_of_a_restart_waits_for_the_order_that_lives() {
    let (mut venue, mut gateway) = (Venue::new(), first(Sample::Taker));
    trade(&mut gateway, &mut venue, &book(500, SECOND));
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    venue.disconnected();

    let mut gateway = restarted(&gateway, Sample::Taker);
    trade(&mut gateway, &mut venue, &book(500, 3 * SECOND));
    assert_eq!(venue.orders.len(), 1);
    venue.fill(0, 100, 1, 3 * SECOND);
    venue.pump(&mut gateway, 3 * SECOND);
    show(&mut gateway, &mut venue, &book(500, 3 * SECOND + 1));
    assert_eq!((venue.orders.len(), venue.orders[1].quantity.get()), (2, 100));
}

#[test]
fn taker_of_a_restart_sells_what_it_bought_and_not_what_the_account_held_before() {
    let (mut venue, mut gateway) = (Venue::new(), first(Sample::Taker));
    gateway.core_mut().set_opening_position(common::STOCK, 300, SECOND);
    let mut gateway = restarted_after_purchase(&mut venue, gateway, 100);
    assert_eq!((venue.orders[1].side, venue.orders[1].quantity.get()), (Side::SELL, 100));
    venue.accept(1, 3 * SECOND);
    venue.fill(1, 100, 2, 3 * SECOND);
    venue.pump(&mut gateway, 3 * SECOND);
    show(&mut gateway, &mut venue, &book(500, 4 * SECOND));
    assert_eq!(venue.orders[2].side, Side::BUY);
}

/// The venue has filled more than the order's quantity.
#[test]
fn taker_sells_a_large_purchase_in_orders_of_its_size() {
    let mut venue = Venue::new();
    restarted_after_purchase(&mut venue, first(Sample::Taker), 300);
    assert_eq!((venue.orders[1].side, venue.orders[1].quantity.get()), (Side::SELL, 100));
}

/// The taker's sale, in the place of one that rests, is of the same strategy.
#[test]
fn joiner_leaves_a_sale_that_lives_where_it_is() {
    let (mut venue, mut gateway) = (Venue::new(), first(Sample::Taker));
    trade(&mut gateway, &mut venue, &book(500, SECOND));
    venue.accept(0, SECOND);
    venue.fill(0, 100, 1, SECOND);
    venue.pump(&mut gateway, SECOND);
    show(&mut gateway, &mut venue, &book(500, SECOND + 1));
    assert_eq!(venue.orders[1].side, Side::SELL);
    venue.accept(1, SECOND + 1);
    venue.pump(&mut gateway, SECOND + 1);
    venue.disconnected();

    let mut gateway = restarted(&gateway, Sample::Joiner);
    let moved = BookEvent { bid: Some((Price(999_900), 500)), ..book(500, 3 * SECOND) };
    trade(&mut gateway, &mut venue, &moved);
    assert_eq!(gateway.core().counts().replaces, 0);
    assert_eq!((venue.orders.len(), venue.orders[2].side), (3, Side::BUY), "a bid of its own");
}
