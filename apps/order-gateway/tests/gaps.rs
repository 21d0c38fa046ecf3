//! What is lost between a venue and a gateway: orders stop, and a person hears why.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use common::{SECOND, TestGateway, Venue, book, gateway, recovered};
use order_entry::journal::{Entry, Records};
use order_entry::risk::{KillCause, KillSwitch};
use order_entry::session::READ_ATTEMPTS;
use order_gateway::{Notice, journal_csv};

fn trading(kill: &KillSwitch) -> (TestGateway, Venue) {
    let (mut gateway, mut venue) = (gateway(kill, 1 << 16), Venue::new());
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    (gateway, venue)
}

fn notices(gateway: &mut TestGateway) -> Vec<Notice> {
    std::iter::from_fn(|| gateway.core_mut().take_notice(|| SECOND)).collect()
}

fn journal(gateway: &TestGateway) -> Vec<u8> {
    gateway.core().journal().memory().clone()
}

#[test]
fn gateway_whose_journal_lost_its_end_in_a_power_cut_is_disarmed_and_says_why() {
    let (mut before, mut venue) = trading(&KillSwitch::new());
    let cut = journal(&before);
    for qty in [100, 200] {
        before.on_book(&book(qty, SECOND + u64::from(qty)));
    }
    venue.pump(&mut before, SECOND);
    venue.disconnected();
    let mut after = recovered(cut);
    after.core_mut().arm(2 * SECOND);
    venue.connect(&mut after, 2 * SECOND);
    assert!(!after.core().risk().is_armed());
    assert_eq!(notices(&mut after), [Notice::Gap]);
    after.core_mut().arm(3 * SECOND);
    after.on_book(&book(100, 3 * SECOND));
    venue.pump(&mut after, 3 * SECOND);
    assert_eq!(venue.orders[2].user_ref.get(), 3, "a number that the venue has seen is not used again");
}

#[test]
fn order_that_the_venue_accepts_and_the_journal_does_not_have_stops_orders() {
    let (mut before, mut venue) = trading(&KillSwitch::new());
    let cut = journal(&before);
    before.on_book(&book(100, SECOND));
    venue.pump(&mut before, SECOND);
    venue.disconnected();
    venue.accept(0, SECOND);
    let mut after = recovered(cut);
    after.core_mut().arm(2 * SECOND);
    venue.connect(&mut after, 2 * SECOND);
    assert_eq!(notices(&mut after)[0], Notice::UnknownOrder);
}

#[test]
fn message_that_stays_unreadable_stops_orders_and_its_bytes_are_in_the_journal() {
    let (mut gateway, mut venue) = trading(&KillSwitch::new());
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    venue.say(b"?unreadable", SECOND);
    let mut answers = venue.answers_to_more(&[], SECOND);
    for _ in 1..READ_ATTEMPTS {
        gateway.received(&answers, SECOND).unwrap_err();
        venue.disconnect(&mut gateway, SECOND);
        gateway.connected(SECOND).unwrap();
        let login = gateway.core().to_send().to_vec();
        gateway.core_mut().sent(login.len());
        answers = venue.answers_to(&login, SECOND);
    }
    gateway.received(&answers, SECOND).unwrap();
    venue.pump(&mut gateway, SECOND);
    assert_eq!((gateway.core().counts().unread, gateway.core().risk().is_armed()), (1, false));
    assert!(matches!(notices(&mut gateway)[..], [Notice::Unread { .. }]));
    let order = gateway.core().orders().get(0).unwrap();
    assert!(order.is_live() && order.is_in_doubt(), "what the message said of it is lost");
    let mut csv = Vec::new();
    journal_csv(gateway.core().journal().memory(), None, &mut csv).unwrap().unwrap();
    assert!(String::from_utf8(csv).unwrap().contains("?unreadable"));
}

#[test]
fn thrown_switch_holds_after_a_restart_and_cancels_until_somebody_arms() {
    let kill = KillSwitch::new();
    let (mut before, mut venue) = trading(&kill);
    before.on_book(&book(100, SECOND));
    venue.pump(&mut before, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut before, SECOND);
    venue.is_deaf = true;
    kill.throw_for(KillCause::File);
    before.tick(2 * SECOND).unwrap();
    venue.pump(&mut before, 2 * SECOND);
    venue.disconnected();
    venue.is_deaf = false;
    let mut after = recovered(journal(&before));
    let [Notice::Killed(killed)] = notices(&mut after)[..] else { panic!("a person hears it once") };
    assert_eq!((killed.since_ns, killed.cause), (2 * SECOND, KillCause::File));
    assert!(after.core().status().starts_with("killed by the kill file since 19700101-00:00:02.000 UTC, until armed"));
    venue.connect(&mut after, 3 * SECOND);
    after.tick(3 * SECOND).unwrap();
    after.on_book(&book(100, 3 * SECOND));
    venue.pump(&mut after, 3 * SECOND);
    assert_eq!((venue.orders.len(), venue.mass_cancels), (1, 1));
    after.core_mut().arm(4 * SECOND);
    assert!(after.core().status().starts_with("armed; session open; "), "{}", after.core().status());
    assert_eq!(recovered(journal(&after)).core().killed(), None);
    let records = Records::new(after.core().journal().memory()).unwrap();
    let kills =
        records.filter(|record| Entry::decode(record.kind, record.payload) == Some(Entry::Killed(KillCause::File)));
    assert_eq!(kills.count(), 1);
}

#[test]
fn gateway_restarted_behind_the_end_of_a_session_uses_no_id_of_its_journal_again() {
    let (mut gateway, mut venue) = trading(&KillSwitch::new());
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.cancel(0, 100, SECOND);
    venue.end_session(SECOND);
    venue.pump(&mut gateway, SECOND);
    let mut next = recovered(gateway.core().journal().memory().clone());
    venue.connect(&mut next, 2 * SECOND);
    next.core_mut().arm(2 * SECOND);
    // The rates of before have drained.
    next.on_book(&book(100, 3 * SECOND));
    venue.pump(&mut next, 3 * SECOND);
    assert_eq!((next.strategy().refusals.as_slice(), next.strategy().ids.as_slice()), (&[][..], &[2][..]));
    assert_eq!(venue.orders[1].user_ref.get(), 2);
}
