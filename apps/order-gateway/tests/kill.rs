//! The kill switch, lines that break or stop reading, and venues that refuse its cancels.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use common::line::Line;
use common::{Buyer, RESERVE, SECOND, STOCK, TestGateway, Venue, book, config, gateway};
use order_entry::Refusal;
use order_entry::journal::{Journal, JournalError, StrategyName};
use order_entry::orders::{VenueEvent, VenueMessage, VenueStatus};
use order_entry::risk::{KillCause, KillSwitch, Level, LevelLimits, Limit, Rate, StrategyIdx};
use order_entry::session::{SessionEvent, VenueSession};
use order_gateway::{Core, CoreConfig, Gateway};

type LineGateway = Gateway<Buyer, Line, Vec<u8>>;

const MS: u64 = 1_000_000;

/// An armed gateway on a [`Line`] with `orders` live orders, the ids from 1 on.
fn on_line(kill: &KillSwitch, orders: u64) -> LineGateway {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut gateway = Gateway::new(Buyer::default(), Core::new(config(kill), Line::new(), journal));
    gateway.core_mut().arm(SECOND);
    for id in 1..=orders {
        gateway.on_book(&book(10, id * SECOND));
        say(&mut gateway, id, VenueEvent::Accepted { venue_id: 900 + id }, id * SECOND);
    }
    assert_eq!(gateway.core().orders().live_count() as u64, orders, "{:?}", gateway.strategy().refusals);
    gateway
}

fn say(gateway: &mut LineGateway, id: u64, event: VenueEvent, now_ns: u64) {
    gateway.core_mut().session_mut().say(id, event);
    gateway.received(&[], now_ns).unwrap();
}

fn canceled(gateway: &LineGateway) -> &[u64] {
    &gateway.core().session().canceled
}

#[test]
fn kill_on_a_line_that_has_stopped_reading_writes_nothing_until_it_reads() {
    let kill = KillSwitch::new();
    let mut gateway = on_line(&kill, 3);
    gateway.core_mut().session_mut().room = 0;
    kill.throw();
    gateway.tick(9 * SECOND).unwrap();
    let end = gateway.core().journal().end();
    (0..1_000).for_each(|turn| gateway.tick(9 * SECOND + turn).unwrap());
    assert_eq!(gateway.core().journal().end(), end);
    for room in 1..=3 {
        gateway.core_mut().session_mut().room = 1;
        (0..10).for_each(|turn| gateway.tick(9 * SECOND + turn).unwrap());
        assert_eq!(canceled(&gateway), &[1, 2, 3][..room]);
    }
}

#[test]
fn strategy_that_throws_the_switch_sends_no_order_behind_it_and_cancels_in_the_same_call() {
    let kill = KillSwitch::new();
    let mut gateway = on_line(&kill, 2);
    gateway.strategy_mut().kills = true;
    gateway.on_book(&book(10, 9 * SECOND));
    let refused = &gateway.strategy().refusals;
    assert!(matches!(refused[..], [Refusal::Risk(reject)] if reject.limit == Limit::Disarmed), "{refused:?}");
    assert_eq!((canceled(&gateway), kill.throws() > 0), (&[1, 2][..], true));
    let cause = gateway.core().killed().map(|killed| killed.cause);
    assert_eq!((cause, gateway.core().risk().is_armed()), (Some(KillCause::Program), false));
    gateway.core_mut().arm(10 * SECOND);
    gateway.on_book(&book(10, 10 * SECOND));
    assert_eq!((gateway.strategy().refusals.len(), gateway.core().killed()), (1, None), "until a person arms");
}

#[test]
fn strategy_that_throws_the_switch_with_each_book_has_everything_canceled_once() {
    let kill = KillSwitch::new();
    let mut gateway = by_one_message(&kill);
    for book_ns in [9 * SECOND, 9 * SECOND + 1, 9 * SECOND + 2] {
        gateway.strategy_mut().kills = true;
        gateway.on_book(&book(10, book_ns));
        gateway.tick(book_ns).unwrap();
    }
    assert_eq!(gateway.core().session().next_id(), 5, "three orders, and the mass cancel");
    let end = gateway.core().journal().end();
    let throws = kill.throws();
    gateway.strategy_mut().kills = true;
    gateway.on_book(&book(10, 9 * SECOND + 3));
    assert_eq!(gateway.core().journal().end(), end);
    assert!(!gateway.core_mut().arm_for(throws, 9 * SECOND + 4), "said before the last throw");
    kill.throw();
    gateway.tick(9 * SECOND + 5).unwrap();
    assert_eq!(gateway.core().session().next_id(), 6, "that of somebody else is obeyed");
}

#[test]
fn cancel_of_a_thrown_switch_that_the_venue_refuses_is_sent_again_ever_more_seldom() {
    let kill = KillSwitch::new();
    let mut gateway = on_line(&kill, 2);
    kill.throw();
    gateway.tick(9 * SECOND).unwrap();
    say(&mut gateway, 1, VenueEvent::Canceled { reason: 0 }, 9 * SECOND);
    // After 0.1, 0.2, 0.4 and 0.8 s.
    let after = [100, 300, 700, 1_500];
    for (times, ms) in after.into_iter().enumerate() {
        say(&mut gateway, 2, VenueEvent::CancelRefused { reason: 7 }, 9 * SECOND);
        gateway.tick(9 * SECOND + (ms - 1) * MS).unwrap();
        assert_eq!(canceled(&gateway).len(), 2 + times, "not yet");
        gateway.tick(9 * SECOND + ms * MS).unwrap();
        assert_eq!(canceled(&gateway)[2..], [2].repeat(times + 1));
    }
    say(&mut gateway, 2, VenueEvent::Canceled { reason: 0 }, 20 * SECOND);
    (30..99).for_each(|second| gateway.tick(second * SECOND).unwrap());
    assert_eq!(canceled(&gateway).len(), 2 + after.len());
}

/// The venue takes the replace first, and then knows no order of the id that the cancel names.
#[test]
fn cancel_of_a_thrown_switch_that_crosses_a_replace_is_sent_again_with_the_new_id() {
    let kill = KillSwitch::new();
    let mut gateway = on_line(&kill, 1);
    gateway.strategy_mut().replace = Some(1);
    gateway.on_book(&book(20, 2 * SECOND));
    kill.throw();
    gateway.tick(2 * SECOND + MS).unwrap();
    assert_eq!(canceled(&gateway), [1]);
    say(&mut gateway, 1, VenueEvent::Replaced { id: 2, venue_id: 902 }, 2 * SECOND + MS);
    gateway.tick(2 * SECOND + 101 * MS).unwrap();
    assert_eq!(canceled(&gateway), [1], "the first has no answer yet");
    say(&mut gateway, 2, VenueEvent::CancelRefused { reason: 1 }, 2 * SECOND + 101 * MS);
    gateway.tick(2 * SECOND + 301 * MS).unwrap();
    assert_eq!(canceled(&gateway), [1, 2]);
    say(&mut gateway, 2, VenueEvent::Canceled { reason: 0 }, 3 * SECOND);
    assert_eq!(gateway.core().risk().open_qty(STOCK), Some((0, 0)));
}

#[test]
fn cancel_of_the_strategy_that_is_refused_behind_a_thrown_switch_is_sent_again() {
    let kill = KillSwitch::new();
    let mut gateway = on_line(&kill, 1);
    gateway.strategy_mut().cancel = Some(1);
    gateway.on_book(&book(20, 2 * SECOND));
    kill.throw();
    gateway.tick(2 * SECOND + MS).unwrap();
    assert_eq!(canceled(&gateway), [1], "that of the strategy, which has no answer yet");
    say(&mut gateway, 1, VenueEvent::CancelRefused { reason: 1 }, 2 * SECOND + MS);
    gateway.tick(2 * SECOND + 101 * MS).unwrap();
    assert_eq!(canceled(&gateway), [1, 1]);
}

#[test]
fn cancels_of_a_thrown_switch_that_the_line_lost_are_sent_again_after_the_reconnect() {
    let (kill, mut venue) = (KillSwitch::new(), Venue::new());
    let mut gateway = gateway(&kill, 1 << 16);
    venue.accept_one_order(&mut gateway);
    kill.throw();
    gateway.tick(SECOND).unwrap();
    venue.is_deaf = true;
    venue.pump(&mut gateway, SECOND);
    assert_eq!(venue.mass_cancels, 0);
    venue.disconnect(&mut gateway, SECOND);
    venue.is_deaf = false;
    for reconnects in 1..3 {
        venue.connect(&mut gateway, (1 + reconnects) * SECOND);
        gateway.tick((1 + reconnects) * SECOND).unwrap();
        venue.pump(&mut gateway, (1 + reconnects) * SECOND);
        assert_eq!(venue.mass_cancels as u64, reconnects, "the order lives until the venue has answered");
        venue.disconnect(&mut gateway, (1 + reconnects) * SECOND);
    }
}

/// The connection breaks, another one is made, and the venue has told what it has of us.
fn reconnect(gateway: &mut LineGateway, now_ns: u64) {
    gateway.disconnected(now_ns);
    gateway.connected(now_ns).unwrap();
    let message = VenueMessage::Settled { next_id: gateway.core().session().next_id(), is_final: true };
    gateway.core_mut().session_mut().said.push_back(SessionEvent::Message { number: 0, message });
    gateway.received(&[], now_ns).unwrap();
    gateway.tick(now_ns).unwrap();
}

#[test]
fn cancels_of_a_person_that_the_line_lost_are_sent_again_to_the_orders_of_their_time_until_none_lives() {
    let mut gateway = on_line(&KillSwitch::new(), 2);
    gateway.core_mut().cancel_all(9 * SECOND);
    assert_eq!(canceled(&gateway), [1, 2]);
    reconnect(&mut gateway, 10 * SECOND);
    assert_eq!(canceled(&gateway), [1, 2, 1, 2]);
    gateway.on_book(&book(20, 11 * SECOND));
    assert_eq!(gateway.core().orders().live_count(), 3, "{:?}", gateway.strategy().refusals);
    let id = *gateway.strategy().ids.last().unwrap();
    say(&mut gateway, id, VenueEvent::Accepted { venue_id: 990 }, 11 * SECOND);
    // Who arms has not said that they are to stay.
    gateway.core_mut().arm(12 * SECOND);
    reconnect(&mut gateway, 12 * SECOND);
    assert_eq!(canceled(&gateway)[4..], [1, 2], "and not the new one");
    say(&mut gateway, 1, VenueEvent::Canceled { reason: 0 }, 13 * SECOND);
    say(&mut gateway, 2, VenueEvent::Canceled { reason: 0 }, 13 * SECOND);
    reconnect(&mut gateway, 14 * SECOND);
    assert_eq!(canceled(&gateway).len(), 6);
}

#[test]
fn cancels_of_a_person_go_on_in_the_next_process_and_not_to_orders_that_came_behind_them() {
    let mut gateway = on_line(&KillSwitch::new(), 3);
    gateway.core_mut().session_mut().room = 1;
    gateway.core_mut().cancel_all(9 * SECOND);
    assert!(gateway.core().is_sync_due());
    say(&mut gateway, 1, VenueEvent::Canceled { reason: 0 }, 9 * SECOND);
    gateway.core_mut().session_mut().room = usize::MAX;
    gateway.on_book(&book(20, 10 * SECOND));
    assert_eq!(canceled(&gateway), [1]);
    let memory = gateway.core().journal().memory().clone();
    let (core, _) = Core::recover(config(&KillSwitch::new()), Line::new(), memory, RESERVE).unwrap();
    let mut again = Gateway::new(Buyer::default(), core);
    let said = again.core_mut().take_notice(|| SECOND).unwrap().to_string();
    assert!(said.contains("2 of them live, and are canceled again when the session is open"), "{said}");
    reconnect(&mut again, 11 * SECOND);
    assert_eq!(canceled(&again), [2, 3]);
}

#[test]
fn cancel_of_a_person_without_a_live_order_is_not_written_down() {
    let mut gateway = on_line(&KillSwitch::new(), 0);
    let end = gateway.core().journal().end();
    gateway.core_mut().cancel_all(9 * SECOND);
    assert_eq!(gateway.core().journal().end(), end);
}

#[test]
fn cancels_of_a_person_that_stop_half_way_begin_anew_behind_a_broken_line() {
    let mut gateway = on_line(&KillSwitch::new(), 3);
    gateway.core_mut().session_mut().room = 1;
    gateway.core_mut().cancel_all(9 * SECOND);
    assert_eq!(canceled(&gateway), [1]);
    gateway.core_mut().session_mut().room = usize::MAX;
    reconnect(&mut gateway, 10 * SECOND);
    assert_eq!(canceled(&gateway)[1..], [1, 2, 3]);
}

#[test]
fn cancels_of_a_person_that_stop_half_way_go_on_behind_a_kill_that_was_lifted() {
    let kill = KillSwitch::new();
    let mut gateway = on_line(&kill, 3);
    gateway.core_mut().session_mut().room = 1;
    gateway.core_mut().cancel_all(9 * SECOND);
    assert_eq!(canceled(&gateway), [1]);
    kill.throw();
    gateway.tick(9 * SECOND).unwrap();
    gateway.core_mut().arm(9 * SECOND);
    gateway.core_mut().session_mut().room = usize::MAX;
    gateway.tick(10 * SECOND).unwrap();
    assert_eq!(canceled(&gateway)[1..], [2, 3]);
}

/// Its mass cancel would take the orders that came meanwhile.
#[test]
fn mass_cancel_of_a_person_that_the_line_lost_becomes_a_cancel_of_each_order() {
    let mut venue = Venue::new();
    let mut gateway = gateway(&KillSwitch::new(), 1 << 16);
    venue.accept_one_order(&mut gateway);
    venue.is_deaf = true;
    gateway.core_mut().cancel_all(2 * SECOND);
    venue.pump(&mut gateway, 2 * SECOND);
    venue.disconnect(&mut gateway, 2 * SECOND);
    venue.is_deaf = false;
    venue.connect(&mut gateway, 3 * SECOND);
    gateway.tick(3 * SECOND).unwrap();
    venue.pump(&mut gateway, 3 * SECOND);
    assert_eq!((venue.mass_cancels, venue.cancels), (0, 1));
}

/// A gateway by OUCH with two live orders, whose switch is thrown.
fn killed_by_ouch(venue: &mut Venue) -> TestGateway {
    let kill = KillSwitch::new();
    let mut gateway = gateway(&kill, 1 << 16);
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    for (idx, qty) in [(0, 100), (1, 200)] {
        gateway.on_book(&book(qty, SECOND + u64::from(qty)));
        venue.pump(&mut gateway, SECOND);
        venue.accept(idx, SECOND);
    }
    venue.pump(&mut gateway, SECOND);
    kill.throw();
    gateway.tick(2 * SECOND).unwrap();
    gateway
}

#[test]
fn venue_that_refuses_the_mass_cancel_gets_a_cancel_of_each_order() {
    let mut venue = Venue::new();
    venue.refuses_mass_cancels = true;
    let mut gateway = killed_by_ouch(&mut venue);
    venue.pump(&mut gateway, 2 * SECOND);
    gateway.tick(2 * SECOND).unwrap();
    venue.pump(&mut gateway, 2 * SECOND);
    assert_eq!((venue.mass_cancels, venue.cancels), (1, 2));
}

#[test]
fn mass_cancel_that_has_no_effect_is_followed_by_cancels_of_each_order_until_none_lives() {
    let mut venue = Venue::new();
    let mut gateway = killed_by_ouch(&mut venue);
    for (ms, cancels) in [(100, 0), (1_999, 0), (2_000, 2)] {
        gateway.tick(2 * SECOND + ms * MS).unwrap();
        venue.pump(&mut gateway, 2 * SECOND + ms * MS);
        assert_eq!((venue.mass_cancels, venue.cancels), (1, cancels));
    }
    venue.cancel(0, 100, 4 * SECOND);
    venue.cancel(1, 200, 4 * SECOND);
    venue.pump(&mut gateway, 4 * SECOND);
    (4..9).for_each(|second| gateway.tick(second * SECOND).unwrap());
    venue.pump(&mut gateway, 9 * SECOND);
    assert_eq!((gateway.core().orders().live_count(), venue.cancels), (0, 2));
}

/// A line whose mass cancel is 4, behind three orders of which the venue cancels the first alone.
fn by_one_message(kill: &KillSwitch) -> LineGateway {
    let mut gateway = on_line(kill, 3);
    gateway.core_mut().session_mut().has_mass_cancel = true;
    gateway
}

fn say_count(gateway: &mut LineGateway, count: u32, now_ns: u64) {
    let message = VenueMessage::MassCanceled { id: 4, count };
    gateway.core_mut().session_mut().said.push_back(SessionEvent::Message { number: 0, message });
    gateway.received(&[], now_ns).unwrap();
}

#[test]
fn orders_that_a_counted_mass_cancel_has_left_are_canceled_at_once() {
    for is_counted_first in [false, true] {
        let kill = KillSwitch::new();
        let mut gateway = by_one_message(&kill);
        kill.throw();
        gateway.tick(9 * SECOND).unwrap();
        if is_counted_first {
            say_count(&mut gateway, 1, 9 * SECOND);
            gateway.tick(9 * SECOND).unwrap();
            assert!(canceled(&gateway).is_empty(), "the message about the order is to come");
        }
        say(&mut gateway, 1, VenueEvent::Canceled { reason: 0 }, 9 * SECOND);
        if !is_counted_first {
            gateway.tick(9 * SECOND).unwrap();
            assert!(canceled(&gateway).is_empty(), "more may be canceled");
            say_count(&mut gateway, 1, 9 * SECOND);
        }
        gateway.tick(9 * SECOND).unwrap();
        assert_eq!(canceled(&gateway), [2, 3]);
    }
}

#[test]
fn orders_that_a_persons_counted_mass_cancel_has_left_are_canceled_and_none_behind_it() {
    let mut gateway = by_one_message(&KillSwitch::new());
    gateway.core_mut().cancel_all(9 * SECOND);
    gateway.on_book(&book(20, 9 * SECOND));
    say(&mut gateway, 5, VenueEvent::Accepted { venue_id: 905 }, 9 * SECOND);
    say(&mut gateway, 1, VenueEvent::Canceled { reason: 0 }, 9 * SECOND);
    say_count(&mut gateway, 1, 9 * SECOND);
    for second in 9..20 {
        gateway.tick(second * SECOND).unwrap();
    }
    assert_eq!(canceled(&gateway), [2, 3]);
}

#[test]
fn mass_cancel_of_a_person_without_an_answer_is_followed_by_cancels_of_each_order_once() {
    let mut gateway = by_one_message(&KillSwitch::new());
    gateway.core_mut().cancel_all(9 * SECOND);
    gateway.tick(11 * SECOND - MS).unwrap();
    assert!(canceled(&gateway).is_empty());
    for second in 11..20 {
        gateway.tick(second * SECOND).unwrap();
    }
    assert_eq!(canceled(&gateway), [1, 2, 3]);
}

/// The question about the order came behind the cancel, so the venue has not taken the cancel.
#[test]
fn cancel_of_a_thrown_switch_that_was_swallowed_is_sent_again_when_the_venue_says_that_the_order_lives() {
    let kill = KillSwitch::new();
    let mut gateway = on_line(&kill, 1);
    kill.throw();
    // The pauses end, and the first cancel has no answer; at last the venue is asked.
    for ms in [0, 100, 300, 700, 1_500, 2_000] {
        gateway.tick(9 * SECOND + ms * MS).unwrap();
        assert_eq!(canceled(&gateway), [1], "after {ms} ms");
    }
    say(&mut gateway, 1, VenueEvent::Status(VenueStatus { is_live: true, cum: 0, leaves: 10 }), 11 * SECOND);
    gateway.tick(9 * SECOND + 3_100 * MS).unwrap();
    assert_eq!(canceled(&gateway), [1, 1]);
}

/// Each of two strategies may trade as much as it likes.
fn with_strategies(kill: &KillSwitch) -> CoreConfig {
    let credit = i64::MAX;
    let (buy_credit_max, sell_credit_max, orders) = (credit, credit, Rate::new(1_000_000, 1_000));
    let of = LevelLimits { qty_max: 1_000, notional_max: credit, buy_credit_max, sell_credit_max, orders };
    let mut config = config(kill);
    config.manager.limits.strategies = [of, of].into();
    config
}

/// The outcome of an order of the strategy: its id, or the limit that refuses it.
fn order(gateway: &mut LineGateway, strategy: u16, qty: u32, now_ns: u64) -> Result<u64, Limit> {
    let before = gateway.strategy().ids.len();
    gateway.strategy_mut().strategy = StrategyIdx(strategy);
    gateway.on_book(&book(qty, now_ns));
    match gateway.strategy().refusals.last() {
        _ if gateway.strategy().ids.len() > before => Ok(gateway.strategy().ids[before]),
        Some(Refusal::Risk(reject)) => {
            assert_eq!(reject.level, Some(Level::Strategy(StrategyIdx(strategy))));
            Err(reject.limit)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn strategy_that_is_stopped_has_no_orders_and_others_trade_on_also_after_a_restart() {
    let kill = KillSwitch::new();
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut gateway = Gateway::new(Buyer::default(), Core::new(with_strategies(&kill), Line::new(), journal));
    gateway.core_mut().arm(SECOND);
    for (id, strategy) in [(1, 0), (2, 1), (3, 1)] {
        assert_eq!(order(&mut gateway, strategy, 10, id * SECOND), Ok(id));
        say(&mut gateway, id, VenueEvent::Accepted { venue_id: 900 + id }, id * SECOND);
    }
    assert!(!gateway.core_mut().kill_strategy(StrategyIdx(2), 4 * SECOND), "there is no third");
    assert!(gateway.core_mut().kill_strategy(StrategyIdx(1), 4 * SECOND));
    assert_eq!(canceled(&gateway), [2, 3]);
    let status = gateway.core().status();
    assert!(status.starts_with("armed; stopped strategies 1; session open; 3 live orders"), "{status}");
    assert_eq!(order(&mut gateway, 1, 10, 4 * SECOND), Err(Limit::StrategyStopped));
    assert!(order(&mut gateway, 0, 20, 4 * SECOND).is_ok());
    // A cancel that the venue refuses is sent again.
    say(&mut gateway, 2, VenueEvent::Canceled { reason: 0 }, 4 * SECOND);
    say(&mut gateway, 3, VenueEvent::CancelRefused { reason: 7 }, 4 * SECOND);
    gateway.tick(4 * SECOND + 99 * MS).unwrap();
    assert_eq!(canceled(&gateway), [2, 3]);
    gateway.tick(4 * SECOND + 100 * MS).unwrap();
    assert_eq!(canceled(&gateway), [2, 3, 3]);
    say(&mut gateway, 3, VenueEvent::CancelRefused { reason: 7 }, 5 * SECOND);
    // Neither a restart nor the arming of the gate lifts it.
    let memory = gateway.core().journal().memory().clone();
    let (core, _) = Core::recover(with_strategies(&kill), Line::new(), memory, RESERVE).unwrap();
    let mut again = Gateway::new(Buyer::default(), core);
    again.core_mut().arm(6 * SECOND);
    again.tick(6 * SECOND).unwrap();
    assert_eq!(canceled(&again), [3]);
    say(&mut again, 3, VenueEvent::Canceled { reason: 0 }, 6 * SECOND);
    assert_eq!(order(&mut again, 1, 30, 7 * SECOND), Err(Limit::StrategyStopped));
    assert!(again.core_mut().arm_strategy(StrategyIdx(1), 8 * SECOND));
    assert!(order(&mut again, 1, 30, 8 * SECOND).is_ok());
    (9..20).for_each(|second| again.tick(second * SECOND).unwrap());
    assert_eq!(canceled(&again), [3]);
}

#[test]
fn each_order_of_a_strategy_that_is_stopped_has_its_cancel_however_little_room_the_line_has() {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(with_strategies(&KillSwitch::new()), Line::new(), journal);
    let mut gateway = Gateway::new(Buyer::default(), core);
    gateway.core_mut().arm(SECOND);
    for id in 1..=3 {
        assert_eq!(order(&mut gateway, 1, 10, id * SECOND), Ok(id));
        say(&mut gateway, id, VenueEvent::Accepted { venue_id: 900 + id }, id * SECOND);
    }
    gateway.core_mut().session_mut().room = 0;
    gateway.core_mut().kill_strategy(StrategyIdx(1), 4 * SECOND);
    for turn in 1..=3 {
        gateway.core_mut().session_mut().room = 1;
        gateway.tick(4 * SECOND + turn * MS).unwrap();
        // The venue refuses each, so that its order could be canceled again at once.
        say(&mut gateway, turn, VenueEvent::CancelRefused { reason: 7 }, 4 * SECOND + turn * MS);
    }
    assert_eq!(canceled(&gateway), [1, 2, 3]);
}

/// Its position is another one as soon as a section is put before it, or taken away.
#[test]
fn strategy_that_is_stopped_is_found_by_its_name_wherever_it_stands_after_a_restart() {
    let named = |names: [&str; 2]| {
        let mut config = with_strategies(&KillSwitch::new());
        config.manager.strategies = names.map(|name| StrategyName::zero_padded(name).unwrap()).into();
        config
    };
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut core = Core::new(named(["joiner", "taker"]), Line::new(), journal);
    assert!(core.kill_strategy(StrategyIdx(1), SECOND));
    let again = |core: &Core<Line, Vec<u8>>, names| {
        Core::recover(named(names), Line::new(), core.journal().memory().clone(), RESERVE).map(|(core, _)| core)
    };
    for (names, place) in [(["joiner", "taker"], 1), (["taker", "joiner"], 0), (["taker", "other"], 0)] {
        let core = again(&core, names).unwrap();
        assert_eq!(core.risk().stopped_strategies().collect::<Vec<_>>(), [StrategyIdx(place)], "{names:?}");
        assert!(core.status().contains("stopped strategies taker;"), "{}", core.status());
    }
    let taker = StrategyName::zero_padded("taker").unwrap();
    assert_eq!(again(&core, ["joiner", "renamed"]).unwrap_err(), JournalError::StoppedStrategy(taker));
    assert!(core.arm_strategy(StrategyIdx(1), SECOND));
    assert!(again(&core, ["joiner", "renamed"]).is_ok());
}

/// Deleting all sections took the stop with them.
#[test]
fn strategy_that_is_stopped_is_not_forgotten_with_all_sections() {
    let mut config = with_strategies(&KillSwitch::new());
    config.manager.strategies = ["joiner", "taker"].map(|name| StrategyName::zero_padded(name).unwrap()).into();
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut core = Core::new(config, Line::new(), journal);
    assert!(core.kill_strategy(StrategyIdx(1), SECOND));
    let journal = core.journal().memory().clone();
    let recovered = Core::recover(common::config(&KillSwitch::new()), Line::new(), journal, RESERVE);
    assert!(matches!(recovered, Err(JournalError::StoppedStrategy(_))));
}

/// They were another one's, by its place in the file of limits.
#[test]
fn orders_stay_their_strategy_s_where_its_place_in_the_limits_is_another_one() {
    let named = |names: [&str; 2]| {
        let mut config = with_strategies(&KillSwitch::new());
        config.manager.strategies = names.map(|name| StrategyName::zero_padded(name).unwrap()).into();
        config
    };
    let again = |core: &Core<Line, Vec<u8>>, names| {
        Core::recover(named(names), Line::new(), core.journal().memory().clone(), RESERVE).map(|(core, _)| core)
    };
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut gateway = Gateway::new(Buyer::default(), Core::new(named(["joiner", "taker"]), Line::new(), journal));
    gateway.core_mut().arm(SECOND);
    assert_eq!(order(&mut gateway, 1, 10, SECOND), Ok(1));
    say(&mut gateway, 1, VenueEvent::Accepted { venue_id: 901 }, SECOND);
    let moved = again(gateway.core(), ["taker", "joiner"]).unwrap();
    assert_eq!(moved.orders().live().next().unwrap().1.strategy, StrategyIdx(0));
    let JournalError::MissingStrategy(missing) = again(gateway.core(), ["joiner", "renamed"]).unwrap_err() else {
        panic!("its order lives")
    };
    assert_eq!((missing.name, missing.orders), (StrategyName::zero_padded("taker").unwrap(), 1));
    // What comes behind is of the new places, and what was before keeps its strategy.
    let mut gateway = Gateway::new(Buyer::default(), moved);
    gateway.core_mut().arm(2 * SECOND);
    assert_eq!(order(&mut gateway, 1, 11, 4 * SECOND), Ok(2));
    for (names, places) in [(["taker", "joiner"], [0, 1]), (["joiner", "taker"], [1, 0])] {
        let core = again(gateway.core(), names).unwrap();
        let strategies: Vec<_> = core.orders().live().map(|(_, order)| order.strategy.0).collect();
        assert_eq!(strategies, places, "{names:?}");
    }
}

#[test]
fn replace_of_a_strategy_that_is_stopped_is_refused() {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(with_strategies(&KillSwitch::new()), Line::new(), journal);
    let mut gateway = Gateway::new(Buyer::default(), core);
    gateway.core_mut().arm(SECOND);
    assert_eq!(order(&mut gateway, 1, 10, SECOND), Ok(1));
    say(&mut gateway, 1, VenueEvent::Accepted { venue_id: 901 }, SECOND);
    gateway.core_mut().session_mut().room = 0;
    gateway.core_mut().kill_strategy(StrategyIdx(1), SECOND);
    assert!(canceled(&gateway).is_empty(), "the line has no room");
    gateway.core_mut().session_mut().room = 9;
    gateway.strategy_mut().replace = Some(1);
    gateway.on_book(&book(20, SECOND + MS));
    assert_eq!(gateway.core().counts().replaces, 0);
    gateway.tick(SECOND + 2 * MS).unwrap();
    assert_eq!(canceled(&gateway), [1]);
}
