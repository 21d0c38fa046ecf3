//! What a venue says of an order and should not: a person is told, by the order and its instrument.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use common::line::Line;
use common::{Buyer, RESERVE, SECOND, book, config};
use market::Price;
use order_entry::journal::Journal;
use order_entry::orders::{ExecId, VenueEvent, VenueMessage, VenueStatus};
use order_entry::risk::KillSwitch;
use order_entry::session::SessionEvent;
use order_gateway::{Core, Gateway};

type LineGateway = Gateway<Buyer, Line, Vec<u8>>;

const ACCEPTED: VenueEvent = VenueEvent::Accepted { venue_id: 901 };
const CANCELED: VenueEvent = VenueEvent::Canceled { reason: 0 };
const REJECTED: VenueEvent = VenueEvent::Rejected { reason: 0 };

/// An armed gateway whose order 1, for 100 shares, is on its way.
fn trading(kill: &KillSwitch) -> LineGateway {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut gateway = Gateway::new(Buyer::default(), Core::new(config(kill), Line::new(), journal));
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(100, SECOND));
    gateway
}

fn filled(exec: u64, qty: u32) -> VenueEvent {
    VenueEvent::Filled { exec: ExecId::from_number(exec), qty, price: Price(1_000_000) }
}

/// What a person is told when the venue says this of order 1.
fn told(events: &[VenueEvent]) -> Vec<String> {
    let mut gateway = trading(&KillSwitch::new());
    events.iter().for_each(|event| gateway.core_mut().session_mut().say(1, *event));
    gateway.received(&[], SECOND).unwrap();
    sentences(&mut gateway)
}

fn sentences(gateway: &mut LineGateway) -> Vec<String> {
    std::iter::from_fn(|| gateway.core_mut().take_notice(|| SECOND)).map(|notice| notice.to_string()).collect()
}

#[test]
fn each_alarm_is_a_sentence_with_its_order_and_instrument() {
    let other = VenueEvent::Status(VenueStatus { is_live: true, cum: 0, leaves: 50 });
    let busted = VenueEvent::Busted { exec: ExecId::from_number(7) };
    let unblock = "no order of ZIEXT passes until a person has compared, and says `unblock ZIEXT`";
    let differs = format!("order 1 ZIEXT: the venue's account of it is not ours; {unblock}");
    for (events, sentence) in [
        (&[ACCEPTED, filled(1, 150)][..], "order 1 ZIEXT: the venue filled 50 beyond its quantity: they are booked"),
        (&[ACCEPTED, CANCELED, filled(1, 40)], "order 1 ZIEXT: the venue filled 40 behind its end: they are booked"),
        (&[ACCEPTED, REJECTED], "order 1 ZIEXT: the venue rejected it when it was live: it has ended"),
        (&[REJECTED, ACCEPTED], "order 1 ZIEXT: it had ended, and lives at the venue: it is live again"),
        (&[ACCEPTED, other], &differs),
    ] {
        assert_eq!(told(events), [sentence], "{events:?}");
    }
    let [stop, alarm] = &told(&[ACCEPTED, busted])[..] else { panic!("two sentences") };
    assert!(stop.contains("no order passes until a person has compared, and arms"), "{stop}");
    assert!(alarm.starts_with("order 1 ZIEXT: the venue took back or corrected a trade"), "{alarm}");
    assert!(alarm.ends_with(unblock), "{alarm}");
    assert!(told(&[ACCEPTED, filled(1, 100)]).is_empty());
}

#[test]
fn order_that_is_not_known_is_told_to_a_gateway_that_is_disarmed_too() {
    let mut gateway = trading(&KillSwitch::new());
    gateway.core_mut().disarm(SECOND);
    gateway.core_mut().session_mut().say(99, filled(1, 10));
    gateway.received(&[], SECOND).unwrap();
    assert_eq!(sentences(&mut gateway), ["order 99: the venue has it, and the journal does not: nothing is booked"]);
}

#[test]
fn alarms_take_no_room_of_what_stopped_orders_and_those_without_room_are_counted() {
    let kill = KillSwitch::new();
    let mut gateway = trading(&kill);
    gateway.core_mut().disarm(SECOND);
    (100..112).for_each(|id| gateway.core_mut().session_mut().say(id, filled(1, 10)));
    gateway.received(&[], SECOND).unwrap();
    kill.throw();
    gateway.tick(SECOND).unwrap();
    let told = sentences(&mut gateway);
    assert!(told[0].starts_with("the kill switch was thrown"), "{told:?}");
    assert_eq!(told.len(), 1 + 8 + 1, "{told:?}");
    assert_eq!(told[9], "4 more alarms came: compare all orders with the venue");
    assert!(sentences(&mut gateway).is_empty());
}

#[test]
fn orders_whose_answers_are_lost_are_told() {
    let mut gateway = trading(&KillSwitch::new());
    let message = VenueMessage::AnsweredBelow { below: 2, asked_ns: SECOND };
    gateway.core_mut().session_mut().said.push_back(SessionEvent::Message { number: 0, message });
    gateway.received(&[], SECOND).unwrap();
    let sentence = "1 orders have no answer of the venue, and none will come: compare them";
    assert_eq!(sentences(&mut gateway), [sentence]);
}

#[test]
fn status_has_the_last_alarm_and_what_is_blocked() {
    let mut gateway = trading(&KillSwitch::new());
    let other = VenueEvent::Status(VenueStatus { is_live: true, cum: 0, leaves: 50 });
    gateway.core_mut().session_mut().say(1, other);
    gateway.received(&[], SECOND).unwrap();
    let status = gateway.core().status();
    assert!(status.starts_with("armed; blocked until compared ZIEXT; session open;"), "{status}");
    assert!(status.contains("1 alarms (the last of an order: order 1 ZIEXT: the venue's account"), "{status}");
}
