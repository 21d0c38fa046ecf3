//! The kill switch, lines that break or stop reading, and venues that refuse its cancels.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use common::line::Line;
use common::{Buyer, RESERVE, SECOND, STOCK, TestGateway, Venue, book, config, gateway};
use order_entry::journal::Journal;
use order_entry::orders::{VenueEvent, VenueStatus};
use order_entry::risk::KillSwitch;
use order_gateway::{Core, Gateway};

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
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
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
