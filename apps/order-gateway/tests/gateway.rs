//! A gateway against a venue in plain memory.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use common::{Buyer, SECOND, STOCK, TestGateway, Venue, book, gateway, limits, recovered};
use market::Price;
use order_entry::journal::{Entry, Intent, Journal, JournalMemory, Records};
use order_entry::orders::State;
use order_entry::ouch::OuchClient;
use order_entry::risk::{KillSwitch, Limit};
use order_entry::session::SendError;
use order_entry::{ReasonCodes, Refusal};
use order_gateway::{Core, Gateway};

/// A gateway that is connected and armed.
fn trading() -> (TestGateway, Venue) {
    let (mut gateway, mut venue) = (gateway(&KillSwitch::new(), 1 << 16), Venue::new());
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    (gateway, venue)
}

fn live<M: JournalMemory>(gateway: &Gateway<Buyer, OuchClient, M>) -> Vec<(u64, u32, u32)> {
    let orders = gateway.core().orders();
    orders.live().map(|(_, order)| (order.accepted_id(), order.cum(), order.leaves())).collect()
}

fn entries(gateway: &TestGateway) -> Vec<Entry> {
    let records = Records::new(gateway.core().journal().memory()).unwrap();
    records.map(|record| Entry::decode(record.kind, record.payload).unwrap()).collect()
}

#[test]
fn order_reaches_the_venue_and_its_fill_the_position() {
    let (mut gateway, mut venue) = trading();
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    assert_eq!((venue.orders[0].quantity.get(), venue.orders[0].price.get()), (100, 1_000_000));
    assert_eq!(venue.orders[0].symbol, common::SYMBOL);
    venue.accept(0, SECOND);
    venue.fill(0, 40, 1, SECOND);
    venue.pump(&mut gateway, SECOND);
    assert_eq!((live(&gateway), gateway.core().risk().position(STOCK)), (vec![(1, 40, 60)], Some(40)));
    assert_eq!(gateway.strategy().events.len(), 2);
    venue.cancel(0, 60, SECOND);
    venue.pump(&mut gateway, SECOND);
    assert_eq!((live(&gateway), gateway.core().risk().open_qty(STOCK)), (vec![], Some((0, 0))));
}

#[test]
fn gateway_starts_disarmed() {
    let (mut gateway, mut venue) = (gateway(&KillSwitch::new(), 1 << 16), Venue::new());
    venue.connect(&mut gateway, SECOND);
    gateway.on_book(&book(100, SECOND));
    let [Refusal::Risk(reject)] = gateway.strategy().refusals[..] else { panic!("refused once, by risk") };
    assert_eq!(reject.limit, Limit::Disarmed);
    assert!(gateway.core().to_send().is_empty());
}

#[test]
fn no_order_leaves_before_the_session_has_recovered() {
    let (mut gateway, mut venue) = (gateway(&KillSwitch::new(), 1 << 16), Venue::new());
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(100, SECOND));
    assert_eq!(gateway.strategy().refusals, [Refusal::Session(SendError::Closed)]);
    venue.connect(&mut gateway, SECOND);
    assert!(gateway.strategy().is_open);
}

#[test]
fn refused_order_writes_nothing_but_its_reason() {
    let (mut gateway, _) = trading();
    gateway.on_book(&book(1_001, SECOND));
    assert!(gateway.core().to_send().is_empty());
    let Some(Entry::Refused { reject, .. }) = entries(&gateway).last().copied() else { panic!("the reason is last") };
    assert_eq!((reject.limit, reject.allowed, reject.value), (Limit::Quantity, 1_000, 1_001));
}

#[test]
fn thrown_switch_cancels_everything_and_stays_until_armed_by_hand() {
    let kill = KillSwitch::new();
    let (mut gateway, mut venue) = (gateway(&kill, 1 << 16), Venue::new());
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(100, SECOND));
    kill.throw();
    gateway.on_book(&book(101, SECOND));
    assert_eq!(gateway.strategy().refusals.len(), 1);
    gateway.tick(SECOND).unwrap();
    gateway.tick(SECOND).unwrap();
    venue.pump(&mut gateway, SECOND);
    assert_eq!((venue.orders.len(), venue.mass_cancels), (1, 1));
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(102, SECOND));
    venue.pump(&mut gateway, SECOND);
    assert_eq!(venue.orders.len(), 2);
}

#[test]
fn switch_thrown_without_a_session_cancels_when_there_is_one() {
    let kill = KillSwitch::new();
    let (mut gateway, mut venue) = (gateway(&kill, 1 << 16), Venue::new());
    kill.throw();
    gateway.tick(SECOND).unwrap();
    venue.connect(&mut gateway, SECOND);
    gateway.tick(SECOND).unwrap();
    venue.pump(&mut gateway, SECOND);
    assert_eq!(venue.mass_cancels, 1);
}

#[test]
fn new_limits_hold_from_the_next_order_on() {
    let (mut gateway, _) = trading();
    let mut tighter = limits();
    (tighter.version, tighter.instruments[0].qty_max) = (2, 50);
    gateway.core_mut().set_limits(tighter, SECOND).unwrap();
    gateway.on_book(&book(51, SECOND));
    let [Refusal::Risk(reject)] = gateway.strategy().refusals[..] else { panic!("refused once, by risk") };
    assert_eq!((reject.limit, reject.allowed), (Limit::Quantity, 50));
}

#[test]
fn order_stands_in_the_journal_before_a_byte_of_it_is_written() {
    let (mut gateway, mut venue) = trading();
    for qty in 1..20 {
        gateway.on_book(&book(qty, SECOND + u64::from(qty)));
        let intended =
            entries(&gateway).iter().filter(|entry| matches!(entry, Entry::Intent(Intent::New { .. }))).count();
        venue.pump(&mut gateway, SECOND);
        assert_eq!(intended, venue.orders.len());
    }
}

#[test]
fn journal_without_room_stops_orders_and_not_answers() {
    let (mut gateway, mut venue) = (gateway(&KillSwitch::new(), 8_192), Venue::new());
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    for qty in 1..60 {
        gateway.on_book(&book(qty, SECOND + u64::from(qty)));
        venue.pump(&mut gateway, SECOND);
    }
    let last = gateway.strategy().refusals.last();
    assert!(matches!(last, Some(Refusal::Journal(_))), "{last:?}");
    let sent = venue.orders.len();
    assert_eq!(gateway.strategy().ids.len(), sent);
    (0..sent).for_each(|idx| venue.accept(idx, SECOND));
    venue.pump(&mut gateway, SECOND);
    assert_eq!(gateway.core().counts().unjournaled, 0);
    assert_eq!(gateway.core().orders().live_count(), sent);
}

/// Everything that the venue has seen is in the journal at any time, and comes back from it.
#[test]
fn gateway_restarted_after_any_step_has_the_venues_orders_and_position() {
    for crash in 0..=6 {
        let (mut gateway, mut venue) = trading();
        let mut restarted = None;
        for step in 0..=6 {
            if step == crash {
                venue.disconnected();
                let mut next = recovered(gateway.core().journal().memory().clone());
                venue.connect(&mut next, 2 * SECOND);
                next.core_mut().arm(2 * SECOND);
                gateway = next;
                restarted = Some(step);
            }
            let now_ns = (3 + step) * SECOND;
            match step {
                0 => gateway.on_book(&book(100, now_ns)),
                1 => venue.accept(0, now_ns),
                2 => venue.fill(0, 40, 1, now_ns),
                3 => gateway.on_book(&book(200, now_ns)),
                4 => venue.accept(1, now_ns),
                5 => venue.cancel(0, 60, now_ns),
                _ => venue.fill(1, 50, 2, now_ns),
            }
            venue.pump(&mut gateway, now_ns);
        }
        assert_eq!(restarted, Some(crash));
        assert_eq!(live(&gateway), [(2, 50, 150)], "crash before step {crash}");
        assert_eq!(gateway.core().risk().position(STOCK), Some(90), "crash before step {crash}");
        assert_eq!(gateway.core().risk().open_qty(STOCK), Some((150, 0)), "crash before step {crash}");
        assert_eq!(gateway.core().counts().alarms, 0, "crash before step {crash}");
    }
}

#[test]
fn answers_while_nobody_listened_count_once() {
    let (mut gateway, mut venue) = trading();
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    venue.disconnect(&mut gateway, SECOND);
    venue.fill(0, 40, 1, SECOND);
    venue.cancel(0, 10, SECOND);
    venue.connect(&mut gateway, 2 * SECOND);
    assert_eq!((live(&gateway), gateway.core().risk().position(STOCK)), (vec![(1, 40, 50)], Some(40)));
    let order = gateway.core().orders().get(0).unwrap();
    assert_eq!((order.state(), order.is_in_doubt()), (Some(State::Live), false));
}

#[test]
fn order_that_the_venue_never_saw_is_over_after_the_reconnect() {
    let (mut gateway, mut venue) = trading();
    gateway.on_book(&book(100, SECOND));
    venue.is_deaf = true;
    venue.pump(&mut gateway, SECOND);
    assert_eq!(live(&gateway), [(1, 0, 100)], "silence proves nothing");
    venue.disconnect(&mut gateway, SECOND);
    venue.is_deaf = false;
    venue.connect(&mut gateway, 2 * SECOND);
    assert_eq!((live(&gateway), gateway.core().risk().open_qty(STOCK)), (vec![], Some((0, 0))));
    // Its number is used no more.
    gateway.on_book(&book(100, 2 * SECOND));
    venue.pump(&mut gateway, 2 * SECOND);
    assert_eq!(venue.orders[0].user_ref.get(), 2);
}

#[test]
fn venue_that_breaks_the_protocol_ends_the_session_with_the_rule() {
    let (mut gateway, _) = trading();
    let error = gateway.received(&[0, 3, b'S', b'?', 0], SECOND).unwrap_err();
    assert!(!error.to_string().is_empty());
    assert!(error.to_string().is_ascii());
}

#[test]
fn price_that_the_protocol_cannot_say_is_refused() {
    let (mut gateway, _) = trading();
    let mut book = book(100, SECOND);
    book.bid = Some((Price(-1), 100));
    gateway.on_book(&book);
    assert_eq!(gateway.strategy().refusals, [Refusal::Session(SendError::Range)]);
}

/// A disk that fails while `is_full`.
#[derive(Debug)]
struct Disk {
    bytes: Vec<u8>,
    is_full: Rc<Cell<bool>>,
}

impl AsRef<[u8]> for Disk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Disk {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl JournalMemory for Disk {
    fn before_send(&self, _from: usize, _len: usize) -> io::Result<()> {
        if self.is_full.get() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self, end: usize) -> io::Result<()> {
        self.before_send(0, end)
    }
}

/// The kernel takes for written what it could not write, and says so once: the next sync is good.
#[test]
fn disk_that_has_failed_once_stops_orders_whoever_arms_and_the_journal_replays_whole() {
    let is_full = Rc::new(Cell::new(false));
    let disk = Disk { bytes: vec![0; 1 << 16], is_full: is_full.clone() };
    let journal = Journal::create(disk, 7, 0, common::RESERVE).unwrap();
    let core = Core::new(common::config(&KillSwitch::new()), common::session(), journal);
    let mut gateway = Gateway::new(Buyer::default(), core);
    let mut venue = Venue::new();
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    let order = |gateway: &mut Gateway<_, _, Disk>, venue: &mut Venue, qty| {
        gateway.on_book(&book(qty, SECOND + u64::from(qty)));
        venue.pump(gateway, SECOND);
    };
    order(&mut gateway, &mut venue, 1);
    is_full.set(true);
    order(&mut gateway, &mut venue, 2);
    is_full.set(false);
    order(&mut gateway, &mut venue, 3);
    let refusals = &gateway.strategy().refusals;
    assert!(matches!(refusals[..], [Refusal::Disk, Refusal::Risk(reject)] if reject.limit == Limit::Disarmed));
    gateway.core_mut().arm(SECOND);
    order(&mut gateway, &mut venue, 4);
    assert_eq!(venue.orders.len(), 1, "what is not on the disk was not sent");
    assert_eq!(gateway.core().risk().open_qty(STOCK), Some((1, 0)));
    // Cancels do not wait for a disk.
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    gateway.core_mut().cancel_all(2 * SECOND);
    venue.pump(&mut gateway, 2 * SECOND);
    assert_eq!(venue.mass_cancels, 1);
    // Asserts that no record is refused.
    let next = recovered(gateway.core().journal().memory().bytes.clone());
    assert_eq!(live(&next), [(1, 0, 1)]);
}

/// A primary that forgot its standby in a power cut would send beside it.
#[test]
fn standby_whose_name_is_not_on_the_disk_is_not_taken() {
    let is_full = Rc::new(Cell::new(true));
    let disk = Disk { bytes: vec![0; 1 << 16], is_full: is_full.clone() };
    let journal = Journal::create(disk, 7, 0, common::RESERVE).unwrap();
    let mut core = Core::new(common::config(&KillSwitch::new()), common::session(), journal);
    assert_eq!(core.set_standby(5, SECOND).unwrap_err().kind(), io::ErrorKind::StorageFull);
    is_full.set(false);
    core.set_standby(5, SECOND).unwrap();
}

#[test]
fn clock_that_steps_back_costs_a_full_rate_and_one_that_leaps_costs_the_connection() {
    let (mut gateway, mut venue) = (gateway(&KillSwitch::new(), 1 << 16), Venue::new());
    venue.connect(&mut gateway, 100 * SECOND);
    gateway.core_mut().arm(100 * SECOND);
    gateway.on_book(&book(10, 100 * SECOND));
    gateway.tick(50 * SECOND).unwrap();
    // The rates of instrument, port and unit are full, and drain.
    let later = |ms: u64| 50 * SECOND + ms * 1_000_000;
    (0..4).for_each(|ms| gateway.on_book(&book(20 + ms as u32, later(ms))));
    venue.pump(&mut gateway, later(4));
    let is_rate = |refusal: &Refusal| matches!(refusal, Refusal::Risk(reject) if reject.to_string().contains("rate"));
    assert!(gateway.strategy().refusals.iter().all(is_rate), "{:?}", gateway.strategy().refusals);
    assert_eq!(venue.orders.len(), 2);
    let leap = 4_000 * SECOND;
    let error = gateway.tick(leap).unwrap_err();
    assert!(error.to_string().contains("sent nothing"), "{error}");
    venue.disconnect(&mut gateway, leap);
    venue.connect(&mut gateway, leap);
    gateway.on_book(&book(30, leap));
    venue.pump(&mut gateway, leap);
    assert_eq!((venue.orders.len(), gateway.core().counts().alarms), (3, 0));
}

#[test]
fn order_without_an_answer_is_asked_about_and_not_assumed_dead() {
    let (mut gateway, mut venue) = trading();
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    let asked = venue.queries;
    gateway.tick(2 * SECOND).unwrap();
    venue.pump(&mut gateway, 2 * SECOND);
    assert_eq!(venue.queries, asked, "not yet");
    gateway.tick(3 * SECOND).unwrap();
    gateway.tick(3 * SECOND).unwrap();
    venue.pump(&mut gateway, 3 * SECOND);
    assert_eq!((venue.queries, gateway.core().counts().queries), (asked + 1, 1));
    assert_eq!((live(&gateway), gateway.core().counts().alarms), (vec![(1, 0, 100)], 1));
    venue.accept(0, 4 * SECOND);
    venue.pump(&mut gateway, 4 * SECOND);
    assert!(!gateway.core().orders().get(0).unwrap().is_in_doubt());
}

#[test]
fn replace_that_the_venue_ignores_in_silence_is_over_after_the_question() {
    let (mut gateway, mut venue) = trading();
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    gateway.strategy_mut().replace = Some(1);
    gateway.on_book(&book(200, SECOND + 1));
    venue.pump(&mut gateway, SECOND + 1);
    assert_eq!(gateway.core().risk().open_qty(STOCK), Some((200, 0)), "either total may be in force");
    gateway.tick(4 * SECOND).unwrap();
    venue.pump(&mut gateway, 4 * SECOND);
    let order = gateway.core().orders().get(0).unwrap();
    assert_eq!((order.state(), order.is_in_doubt()), (Some(State::Live), false));
    assert_eq!(gateway.core().risk().open_qty(STOCK), Some((100, 0)));
}

#[test]
fn cancel_that_the_venue_ignores_in_silence_is_over_after_the_question() {
    let (mut gateway, mut venue) = trading();
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    gateway.strategy_mut().cancel = Some(1);
    gateway.on_book(&book(200, SECOND + 1));
    venue.pump(&mut gateway, SECOND + 1);
    assert_eq!(gateway.core().orders().get(0).unwrap().state(), Some(State::PendingCancel));
    gateway.tick(4 * SECOND).unwrap();
    venue.pump(&mut gateway, 4 * SECOND);
    let order = gateway.core().orders().get(0).unwrap();
    assert_eq!((order.state(), order.is_in_doubt()), (Some(State::Live), false));
}

/// The line breaks behind an answered question and an order: their answers come at the next login,
/// and the old one must not be taken for the new.
#[test]
fn answer_to_a_question_of_the_last_connection_says_nothing_about_orders_behind_it() {
    let (mut gateway, mut venue) = trading();
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    gateway.tick(4 * SECOND).unwrap();
    gateway.on_book(&book(50, 4 * SECOND));
    let bytes = gateway.core().to_send().to_vec();
    venue.receive(&bytes, 4 * SECOND);
    venue.accept(0, 4 * SECOND);
    venue.accept(1, 4 * SECOND);
    venue.answers_to_more(&[], 4 * SECOND);
    venue.disconnect(&mut gateway, 4 * SECOND);
    venue.connect(&mut gateway, 5 * SECOND);
    assert_eq!(live(&gateway), [(1, 0, 100), (2, 0, 50)]);
    assert_eq!(gateway.core().counts().alarms, 0);
}

#[test]
fn refused_requests_are_told_by_reason() {
    let (mut gateway, _) = trading();
    gateway.core_mut().disarm(SECOND);
    for price in [100, 101] {
        gateway.on_book(&book(price, SECOND));
    }
    let (counts, status) = (gateway.core().counts().to_string(), gateway.core().status());
    assert!(counts.contains(" 2 requests refused") && counts.contains("\n  refused: disarmed 2\n"), "{counts}");
    assert!(status.ends_with("; 2 requests refused: disarmed 2"), "{status}");
}

#[test]
fn refusal_of_the_venue_has_the_name_of_its_reason() {
    let (mut gateway, mut venue) = trading();
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.reject(1, SECOND);
    venue.pump(&mut gateway, SECOND);
    assert_eq!(gateway.core().last_refusal().unwrap().to_string(), "order 1: firm not authorized");
    let status = gateway.core().status();
    assert!(status.ends_with("; 1 refused by the venue, the last one order 1: firm not authorized"), "{status}");
    assert_eq!(gateway.strategy().reasons, ["firm not authorized"]);
    let mut csv = Vec::new();
    order_gateway::journal_csv(gateway.core().journal().memory(), Some(ReasonCodes::Ouch50), &mut csv)
        .unwrap()
        .unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(csv.contains("Rejected { reason: 12 } } firm not authorized"), "{csv}");
}
