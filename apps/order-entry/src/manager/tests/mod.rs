use market::{Price, Side, Symbol};

use super::*;
use crate::journal::{HEADER_LEN, Intent, SessionMark};
use crate::orders::{End, OrderKey, State, StatedTerms, VenueEvent, VenueMessage};
use crate::risk::{
    AccountLimits, InstrumentIdx, InstrumentLimits, Level, LevelLimits, Limit, Market, NewOrder, Rate, RateLimits,
    Route, SelfMatch, StrategyIdx,
};

mod doubt;
mod replay;

const TEN: Price = Price::from_cents(1_000);
const SYMBOL: Symbol = Symbol(*b"WIRE    ");

fn limits() -> Limits {
    let rate = Rate::new(1_000, 1_000);
    let rates = RateLimits { orders: rate, cancels: rate };
    let mut limits = Limits::zero(1, 1, 1);
    limits.instruments[0] = InstrumentLimits {
        qty_max: 500,
        collar_bps: 100,
        spread_max_bps: 1_000,
        notional_max: i64::MAX,
        long_max: 1_000,
        short_max: 0,
        rates,
    };
    (limits.ports[0], limits.units[0]) = (rates, rates);
    limits.account = AccountLimits {
        buy_credit_max: i64::MAX,
        sell_credit_max: i64::MAX,
        duplicate_window_ns: 1,
        silence_max_ns: 1_000,
        self_match: SelfMatch::Refuse,
    };
    limits
}

fn config() -> ManagerConfig {
    let orders = OrderCapacity { orders: 16, executions: 16, instruments: 1 };
    ManagerConfig { orders, recent: 16, ..ManagerConfig::new(limits()) }
}

fn manager(journal_len: usize) -> OrderManager<Vec<u8>> {
    let journal = Journal::create(vec![0; journal_len], 1, 0, 0).unwrap();
    let mut manager = OrderManager::new(config(), journal);
    manager.arm(1);
    manager
}

fn buy(manager: &mut OrderManager<Vec<u8>>, id: u64, qty: u32) -> Result<usize, Refusal> {
    let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, qty, TEN);
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 10 * id, ..Market::default() };
    manager.new_order(id, SYMBOL, &order, &market, 10 * id)
}

fn take(manager: &mut OrderManager<Vec<u8>>, number: u64, id: u64, event: VenueEvent) {
    manager.take(number, &VenueMessage::answer(OrderKey::Client(id), event), 20);
}

fn entries(manager: &OrderManager<Vec<u8>>) -> Vec<Entry> {
    let records = crate::journal::Records::new(manager.journal().memory()).unwrap();
    records.map(|record| Entry::decode(record.kind, record.payload).unwrap()).collect()
}

#[test]
fn order_that_passed_stands_in_the_journal_and_holds_its_shares() {
    let mut manager = manager(4_096);
    let slot = buy(&mut manager, 1, 100).unwrap();
    assert!(matches!(entries(&manager)[1], Entry::Intent(_)));
    assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((100, 0)));
    assert_eq!(manager.orders().get(slot).unwrap().state(), Some(State::PendingNew));
}

#[test]
fn order_that_the_line_does_not_take_is_written_down_and_holds_nothing() {
    let mut manager = manager(4_096);
    let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, 100, TEN);
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 10, ..Market::default() };
    assert_eq!(manager.send_order(1, SYMBOL, &order, &market, 10, || false), Err(Refusal::Unsent));
    assert!(matches!(entries(&manager)[1..], [Entry::Intent(Intent::New { id: 1, .. }), Entry::Unsent { id: 1 }]));
    assert_eq!((manager.orders().live_count(), manager.risk().open_qty(InstrumentIdx(0))), (0, Some((0, 0))));
    // The venue never saw the order, but its rate and its twin's window are used.
    assert_eq!(manager.risk().counts().passed, 1);
}

#[test]
fn order_without_room_in_the_journal_is_not_sent_and_uses_no_rate() {
    let mut manager = manager(HEADER_LEN + 48);
    let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, 100, TEN);
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 10, ..Market::default() };
    let refusal = manager.send_order(1, SYMBOL, &order, &market, 10, || panic!("it was sent"));
    assert!(matches!(refusal, Err(Refusal::Journal(_))), "{refusal:?}");
    assert_eq!((manager.risk().counts().passed, manager.risk().open_qty(InstrumentIdx(0))), (0, Some((0, 0))));
}

#[test]
fn refused_order_opens_nothing_and_the_journal_has_its_reason() {
    let mut manager = manager(4_096);
    let refusal = buy(&mut manager, 1, 501).unwrap_err();
    assert!(matches!(refusal, Refusal::Risk(reject) if reject.limit == Limit::Quantity), "{refusal}");
    assert!(matches!(entries(&manager)[1], Entry::Refused { .. }));
    assert_eq!((manager.orders().live_count(), manager.risk().open_qty(InstrumentIdx(0))), (0, Some((0, 0))));
}

/// A venue that stops reading beyond so many holds back cancels too.
#[test]
fn request_beyond_those_that_the_venue_may_leave_unanswered_is_refused_until_it_answers() {
    let journal = Journal::create(vec![0; 4_096], 1, 0, 0).unwrap();
    let mut manager = OrderManager::new(ManagerConfig { in_flight_max: 2, ..config() }, journal);
    manager.arm(1);
    let slot = buy(&mut manager, 1, 10).unwrap();
    buy(&mut manager, 2, 20).unwrap();
    let in_flight = RiskReject { limit: Limit::InFlight, allowed: 2, value: 3, level: None };
    assert_eq!(buy(&mut manager, 3, 30), Err(Refusal::Risk(in_flight)));
    assert_eq!(in_flight.to_string(), "requests in flight: the limit is 2, the order's value 3");
    assert!(matches!(entries(&manager).last(), Some(Entry::Refused { .. })));
    assert_eq!(manager.cancel(slot, Route::default(), 40), Ok(1), "a cancel passes");
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 5 });
    // A replace counts as well.
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 50, ..Market::default() };
    let second = manager.orders().find(OrderKey::Client(2)).unwrap();
    let replace = |manager: &mut OrderManager<Vec<u8>>, id: u64| {
        manager.replace(second, id, (20 + id as u32, TEN), (&market, Route::default()), 50)
    };
    assert_eq!(replace(&mut manager, 4), Ok(2));
    assert_eq!(replace(&mut manager, 5), Err(Refusal::Risk(in_flight)));
    // What has ended has no answer to come.
    take(&mut manager, 2, 2, VenueEvent::Canceled { reason: 0 });
    assert_eq!(manager.orders().unanswered_count(), 0);
}

#[test]
fn refusals_leave_the_room_for_answers_and_are_written_once_in_a_row() {
    let journal = Journal::create(vec![0; 4_096], 1, 0, 1_024).unwrap();
    let mut manager = OrderManager::new(config(), journal);
    manager.arm(1);
    let end = manager.journal().end();
    (1..4).for_each(|id| assert!(buy(&mut manager, id, 501).is_err()));
    assert_eq!((manager.unwritten_refusals(), entries(&manager).len()), (2, 2));
    // Each for another quantity, until there is no more room for them.
    (0..100).for_each(|more| assert!(buy(&mut manager, 1, 502 + more).is_err()));
    assert!(manager.journal().end() > end && manager.journal().end() <= 4_096 - 1_024);
    assert!(manager.unwritten_refusals() > 2 && manager.risk().is_armed());
    manager.arm(2);
    take(&mut manager, 1, 9, VenueEvent::Filled { exec: crate::orders::ExecId::from_number(9), qty: 60, price: TEN });
    manager.killed(KillCause::Command, 3);
    assert_eq!(manager.unjournaled(), 0);
    assert!(entries(&manager).contains(&Entry::Killed(KillCause::Command)));
}

#[test]
fn order_without_room_in_the_journal_is_not_opened() {
    // The header and the record of the arming.
    let mut manager = manager(64 + 48);
    assert!(matches!(buy(&mut manager, 1, 100), Err(Refusal::Journal(_))));
    assert_eq!((manager.orders().live_count(), manager.risk().open_qty(InstrumentIdx(0))), (0, Some((0, 0))));
}

#[test]
fn order_that_was_not_sent_releases_what_it_held() {
    let mut manager = manager(4_096);
    let slot = buy(&mut manager, 1, 100).unwrap();
    manager.unsent(1, 10);
    assert_eq!(manager.orders().get(slot).unwrap().state(), Some(State::Ended(End::Unsent)));
    assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((0, 0)));
}

#[test]
fn fill_moves_the_position_and_counts_once() {
    let mut manager = manager(4_096);
    buy(&mut manager, 1, 100).unwrap();
    let fill = VenueEvent::Filled { exec: crate::orders::ExecId::from_number(9), qty: 60, price: TEN };
    take(&mut manager, 1, 1, fill);
    take(&mut manager, 2, 1, fill);
    assert_eq!(manager.risk().position(InstrumentIdx(0)), Some(60));
    assert_eq!((manager.trades().bought, manager.trades().fills), (60, 1));
    assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((40, 0)));
}

#[test]
fn orders_that_the_venue_has_never_seen_end_when_it_has_settled() {
    let mut manager = manager(4_096);
    let seen = buy(&mut manager, 1, 100).unwrap();
    let unseen = buy(&mut manager, 2, 200).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 5 });
    manager.disconnected();
    manager.take(2, &VenueMessage::Settled { next_id: 2, is_final: true }, 30);
    assert_eq!(manager.orders().get(seen).unwrap().state(), Some(State::Live));
    assert!(!manager.orders().get(seen).unwrap().is_in_doubt());
    assert_eq!(manager.orders().get(unseen).unwrap().state(), Some(State::Ended(End::Unsent)));
    assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((100, 0)));
}

#[test]
fn manager_goes_on_where_its_journal_ends() {
    let mut manager = manager(4_096);
    buy(&mut manager, 1, 100).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 5 });
    buy(&mut manager, 2, 200).unwrap();
    let memory = manager.journal().memory().clone();
    let (again, rebuild) = OrderManager::recover(config(), memory, 0).unwrap();
    assert_eq!((rebuild.session().next_id, rebuild.session().next_inbound), (3, 2));
    assert_eq!(again.risk().open_qty(InstrumentIdx(0)), Some((300, 0)));
    assert!(again.orders().live().all(|(_, order)| order.is_in_doubt()));
    assert!(!again.risk().is_armed());
}

/// The journal has the time since the epoch, and the calls a clock that begins with the process.
#[test]
fn order_of_a_journal_is_asked_about_when_time_has_passed_since_the_restart() {
    let epoch_offset_ns = 1_795_727_114_000_000_000;
    let config = || ManagerConfig { epoch_offset_ns, ..config() };
    let mut manager = OrderManager::new(config(), Journal::create(vec![0; 4_096], 1, 0, 0).unwrap());
    manager.arm(1);
    let slot = buy(&mut manager, 1, 100).unwrap();
    let (mut again, _) = OrderManager::recover(config(), manager.journal().memory().clone(), 0).unwrap();
    again.take(1, &VenueMessage::Settled { next_id: 2, is_final: false }, 50);
    assert_eq!(again.poll_unanswered(99, 100), None);
    assert_eq!(again.poll_unanswered(100, 100), Some(Query { slot, id: 1 }));
}

#[test]
fn cancel_of_a_journal_that_the_venue_has_ignored_is_over_after_the_first_question() {
    let mut manager = manager(4_096);
    let slot = buy(&mut manager, 1, 100).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 5 });
    manager.cancel(slot, Route::default(), 1_000).unwrap();
    let (mut again, _) = OrderManager::recover(config(), manager.journal().memory().clone(), 0).unwrap();
    again.take(2, &VenueMessage::AnsweredBelow { below: 2, asked_ns: 50 }, 60);
    assert_eq!(again.orders().get(slot).unwrap().state(), Some(State::Live));
}

#[test]
fn execution_at_a_rounded_price_is_booked_and_an_alarm_once() {
    let mut manager = manager(4_096);
    buy(&mut manager, 1, 100).unwrap();
    let event = VenueEvent::Filled { exec: crate::orders::ExecId::from_number(9), qty: 60, price: TEN };
    let rounded = VenueMessage::Answer { key: OrderKey::Client(1), event, terms: StatedTerms::Rounded, is_dead: false };
    let events = manager.take(1, &rounded, 20);
    assert_eq!((events.len(), events[0].outcome.alarm), (1, Some(Alarm::RoundedPrice)));
    manager.take(2, &rounded, 30);
    assert_eq!((manager.alarms(), manager.last_alarm()), (1, Some(Alarm::RoundedPrice)));
    assert_eq!((manager.risk().position(InstrumentIdx(0)), manager.risk().is_armed()), (Some(60), true));
}

/// An order that nobody knows trades past every limit.
#[test]
fn fill_of_an_unknown_order_stops_orders_until_a_person_arms() {
    let mut manager = manager(4_096);
    let fill = VenueEvent::Filled { exec: crate::orders::ExecId::from_number(9), qty: 60, price: TEN };
    take(&mut manager, 1, 77, fill);
    assert_eq!((manager.alarms(), manager.last_alarm()), (1, Some(Alarm::UnknownOrder)));
    let refusal = buy(&mut manager, 3, 100).unwrap_err();
    assert!(matches!(refusal, Refusal::Risk(reject) if reject.limit == Limit::Disarmed), "{refusal}");
    manager.arm(40);
    assert!(buy(&mut manager, 4, 100).is_ok());
}

#[test]
fn short_sale_is_known_as_one_after_a_restart() {
    let mut limits = limits();
    limits.instruments[0].short_max = 1_000;
    limits.shortable.set(InstrumentIdx(0), true);
    let config = ManagerConfig { limits: Box::new(limits), ..config() };
    let mut manager = OrderManager::new(config.clone(), Journal::create(vec![0; 4_096], 1, 0, 0).unwrap());
    manager.arm(1);
    let fill = VenueEvent::Filled { exec: crate::orders::ExecId::from_number(9), qty: 100, price: TEN };
    buy(&mut manager, 1, 100).unwrap();
    take(&mut manager, 1, 1, fill);
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 100, ..Market::default() };
    for id in [2, 3] {
        let order = NewOrder::limit(InstrumentIdx(0), Side::Sell, 60, TEN);
        manager.new_order(id, SYMBOL, &order, &market, 100 * id).unwrap();
    }
    let (again, _) = OrderManager::recover(config, manager.journal().memory().clone(), 0).unwrap();
    for manager in [manager, again] {
        let shorts: Vec<bool> = manager.orders().live().map(|(_, order)| order.is_short()).collect();
        assert_eq!(shorts, [false, true]);
    }
}

#[test]
fn replace_and_cancel_name_the_accepted_order() {
    let mut manager = manager(4_096);
    let slot = buy(&mut manager, 1, 100).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 5 });
    let market = Market { reference: Some(TEN), is_stale: false, heard_ns: 30, ..Market::default() };
    let target = manager.replace(slot, 2, (150, TEN), (&market, Route::default()), 30);
    assert_eq!(target, Ok(1));
    assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((150, 0)));
    manager.take(2, &VenueMessage::Refused { id: 2, reason: 7 }, 40);
    assert_eq!(manager.risk().open_qty(InstrumentIdx(0)), Some((100, 0)));
    assert_eq!(manager.cancel(slot, Route::default(), 50), Ok(1));
    assert_eq!(manager.orders().get(slot).unwrap().state(), Some(State::PendingCancel));
}

#[test]
fn warming_and_rehearsing_change_no_order_and_no_record() {
    let [mut warmed, mut other] = [manager(4_096), manager(4_096)];
    for id in 1..=20 {
        warmed.warm(id);
        assert_eq!(buy(&mut warmed, id, 100), buy(&mut other, id, 100), "order {id}");
        warmed.warm(id + 1);
        take(&mut warmed, id, id, VenueEvent::Canceled { reason: 0 });
        warmed.rehearse();
        take(&mut other, id, id, VenueEvent::Canceled { reason: 0 });
    }
    assert_eq!(entries(&warmed), entries(&other));
    assert_eq!(warmed.risk().counts(), other.risk().counts());
}

/// Memory that knows how much of it is on the disk.
#[derive(Debug)]
struct Disk {
    bytes: Vec<u8>,
    synced: std::cell::Cell<usize>,
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
    fn before_send(&self, from: usize, len: usize) -> io::Result<()> {
        self.synced.set(from + len);
        Ok(())
    }
}

#[test]
fn number_of_a_request_that_is_no_order_is_on_the_disk_when_it_is_marked() {
    let disk = Disk { bytes: vec![0; 4_096], synced: 0.into() };
    let mut manager = OrderManager::new(config(), Journal::create(disk, 1, 0, 0).unwrap());
    manager.mark(&SessionMark { next_id: 7, ..SessionMark::default() }, 1);
    assert_eq!(manager.journal().memory().synced.get(), manager.journal().end());
}

#[test]
fn order_that_the_venue_is_told_to_pass_over_is_over_and_those_before_are_in_doubt() {
    let mut manager = manager(4_096);
    let (first, second) = (buy(&mut manager, 1, 100).unwrap(), buy(&mut manager, 2, 100).unwrap());
    manager.disconnected();
    manager.take(0, &VenueMessage::NotProcessed { from: 2 }, 30);
    manager.take(0, &VenueMessage::Settled { next_id: 3, is_final: false }, 30);
    let state = |slot: usize| manager.orders().get(slot).unwrap().state();
    assert_eq!((state(first), state(second)), (Some(State::PendingNew), Some(State::Ended(End::Unsent))));
    assert!(manager.orders().get(first).unwrap().is_in_doubt());
    assert!(entries(&manager).contains(&Entry::Unsent { id: 2 }));
    assert_eq!(manager.alarms(), 0);
}

/// It asks for what it has answered: its record is gone, and what it did with the rest is unknown.
#[test]
fn venue_that_has_lost_its_record_ends_no_order_and_stops_new_ones() {
    let mut manager = manager(4_096);
    buy(&mut manager, 1, 100).unwrap();
    let second = buy(&mut manager, 2, 100).unwrap();
    take(&mut manager, 1, 1, VenueEvent::Accepted { venue_id: 7 });
    manager.disconnected();
    manager.take(0, &VenueMessage::NotProcessed { from: 1 }, 30);
    assert_eq!(manager.orders().get(second).unwrap().state(), Some(State::PendingNew));
    assert_eq!((manager.alarms(), manager.risk().open_qty(InstrumentIdx(0))), (1, Some((200, 0))));
    let refusal = buy(&mut manager, 3, 100).unwrap_err();
    assert!(matches!(refusal, Refusal::Risk(reject) if reject.limit == Limit::Disarmed), "{refusal}");
}
