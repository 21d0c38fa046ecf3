//! iLink 3 as a client sees it.

use order_entry::ilink3::{OrderCancelled, OrderFilled, OrderReplaced};
use zerocopy::FromZeros;

use super::super::named::{AnswerKind, OrderRefusal};
use super::super::{AccountSettings, VenueSettings};
use super::*;

const TEN: i64 = 10_000_000_000;

fn venue() -> Venue {
    let accounts = ["ALICE", "BOB"].map(|user| AccountSettings::new(user, "SECRET").unwrap());
    let listing = vec![(Symbol(*b"ZTEST   "), Price::from_cents(10_00))];
    let mut venue = Venue::new(VenueSettings::new(listing, accounts.to_vec()));
    venue.open(0);
    venue
}

fn enter(venue: &mut Venue, account: usize, side: u8, quantity: u32) {
    let order = NewOrder {
        cl_ord_id: Text::zero_padded("1").unwrap(),
        price: TEN.into(),
        quantity: quantity.into(),
        security_id: 1.into(),
        side,
        order_type: b'2',
        ..NewOrder::new_zeroed()
    };
    take_new(venue, account, &order, 1);
}

fn replace(venue: &mut Venue, name: &str, quantity: u32, ofm_override: u8) {
    let order_id = venue.accounts()[0].answers(PROTOCOL)[0].order.as_ref().unwrap().order_id;
    let replace = ReplaceOrder {
        cl_ord_id: Text::zero_padded(name).unwrap(),
        order_id: order_id.into(),
        price: TEN.into(),
        quantity: quantity.into(),
        security_id: 1.into(),
        side: 1,
        order_type: b'2',
        ofm_override,
        ..ReplaceOrder::new_zeroed()
    };
    take_replace(venue, 0, &replace, 2);
}

/// What the first account was told since its order was accepted: total, executed, open.
fn story(venue: &Venue) -> Vec<String> {
    let answers = venue.accounts()[0].answers(PROTOCOL).iter().skip(1);
    let written = answers.filter_map(|answer| write_answer(answer, 0, false));
    written
        .map(|it| match it.template {
            OrderReplaced::KIND => {
                let it = OrderReplaced::read_from_bytes(&it.block[..]).unwrap();
                format!("replaced {} {} {}", it.quantity, it.cumulative, it.leaves)
            }
            OrderFilled::KIND => {
                let it = OrderFilled::read_from_bytes(&it.block[..]).unwrap();
                format!("filled {}, open {}", it.last_quantity, it.leaves)
            }
            OrderCancelled::KIND => {
                let it = OrderCancelled::read_from_bytes(&it.block[..]).unwrap();
                format!("canceled {}", String::from_utf8_lossy(it.cl_ord_id.trimmed()))
            }
            template => format!("{template}"),
        })
        .collect()
}

/// An order for 10 that is filled 2.
fn filled_in_part() -> Venue {
    let mut venue = venue();
    enter(&mut venue, 0, 1, 10);
    enter(&mut venue, 1, 2, 2);
    venue
}

#[test]
fn replace_with_mitigation_takes_off_what_has_traded() {
    let mut venue = filled_in_part();
    replace(&mut venue, "2", 5, 1);
    assert_eq!(story(&venue), ["filled 2, open 8", "replaced 5 2 3"]);
}

#[test]
fn replace_without_mitigation_has_its_quantity_open() {
    let mut venue = filled_in_part();
    replace(&mut venue, "2", 5, 0);
    assert_eq!(story(&venue), ["filled 2, open 8", "replaced 7 2 5"]);
}

#[test]
fn first_replace_says_for_the_life_of_the_order_whether_fills_are_taken_off() {
    for (first, then) in [(1, ["replaced 9 2 7", "replaced 6 2 4"]), (0, ["replaced 11 2 9", "replaced 8 2 6"])] {
        let mut venue = filled_in_part();
        replace(&mut venue, "2", 9, first);
        replace(&mut venue, "3", 6, 1 - first);
        assert_eq!(story(&venue)[1..], then);
    }
}

#[test]
fn replace_with_mitigation_that_leaves_nothing_cancels_its_order() {
    let mut venue = filled_in_part();
    replace(&mut venue, "2", 2, 1);
    assert_eq!(story(&venue), ["filled 2, open 8", "canceled 2"]);
}

/// An order for 100 of the first account, at 10 where it has a limit.
fn order(order_type: u8, time_in_force: u8) -> NewOrder {
    NewOrder {
        cl_ord_id: Text::zero_padded("1").unwrap(),
        price: (if matches!(order_type, b'2' | b'4') { TEN } else { NO_PRICE }).into(),
        stop_price: (if matches!(order_type, b'3' | b'4') { TEN } else { NO_PRICE }).into(),
        quantity: 100.into(),
        min_quantity: u32::MAX.into(),
        display_quantity: u32::MAX.into(),
        security_id: 1.into(),
        side: 1,
        order_type,
        time_in_force,
        ..NewOrder::new_zeroed()
    }
}

fn terms(venue: &Venue) -> Option<Terms> {
    venue.terms_of_named(0, PROTOCOL, Target::ClOrdId(b"1"))
}

#[test]
fn each_order_type_of_cme_is_the_engines() {
    let ten = Price::from_cents(10_00);
    let limit = |cents| Terms::limit(100, Price::from_cents(cents));
    let stop = |cents| Pricing::Stop { trigger: ten, limit: Some(Price::from_cents(cents)) };
    let reserve = NewOrder { display_quantity: 10.into(), ..order(b'2', 0) };
    let cases = [
        (order(b'2', 0), limit(10_00)),
        (order(b'2', 1), limit(10_00)),
        (reserve, Terms { display: Display::Reserve(10), ..limit(10_00) }),
        // The other side is at 10.00: up to 1 % above, or no further.
        (order(b'1', 0), limit(10_10)),
        (order(b'K', 0), limit(10_00)),
        (order(b'3', 0), Terms { pricing: stop(10_10), ..limit(10_00) }),
        (order(b'4', 0), Terms { pricing: stop(10_00), ..limit(10_00) }),
    ];
    for (order, expected) in cases {
        let mut venue = venue();
        enter(&mut venue, 1, 2, 40);
        take_new(&mut venue, 0, &order, 1);
        assert_eq!(terms(&venue), Some(expected), "{}", char::from(order.order_type));
    }
}

#[test]
fn orders_of_cme_that_end_at_once_trade_what_they_may() {
    let minimum = NewOrder { min_quantity: 50.into(), ..order(b'2', 3) };
    for (order, filled) in [(order(b'2', 3), 40), (order(b'2', 4), 0), (minimum, 0)] {
        let mut venue = venue();
        enter(&mut venue, 1, 2, 40);
        take_new(&mut venue, 0, &order, 1);
        let order = venue.accounts()[0].named_order(PROTOCOL, Target::ClOrdId(b"1")).unwrap();
        assert_eq!((order.executed, order.leaves), (filled, 0));
    }
}

#[test]
fn orders_of_cme_that_make_no_sense_are_refused_by_name() {
    let cases = [
        (order(b'1', 0), "a market order needs a price on the other side"),
        (order(b'P', 0), "OrdType must be 1, 2, 3, 4 or K"),
        (order(b'2', 9), "TimeInForce must be 0, 1, 3, 4 or 6"),
        (NewOrder { price: NO_PRICE.into(), ..order(b'2', 0) }, "the order's type needs a price"),
        (NewOrder { price: (TEN + 1).into(), ..order(b'2', 0) }, "a price must have at most four decimals"),
        (NewOrder { min_quantity: 50.into(), ..order(b'2', 0) }, "MinQty needs TimeInForce 3"),
        (NewOrder { side: 3, ..order(b'2', 0) }, "Side must be 1 or 2"),
    ];
    for (order, why) in cases {
        let mut venue = venue();
        take_new(&mut venue, 0, &order, 1);
        let kind = venue.accounts()[0].answers(PROTOCOL).last().unwrap().kind;
        assert_eq!(kind, AnswerKind::Rejected(OrderRefusal::Terms(why)));
    }
}

#[test]
fn mass_action_of_a_side_that_is_none_cancels_nothing() {
    let mut venue = venue();
    take_new(&mut venue, 0, &order(b'2', 0), 1);
    let action = MassAction { scope: 7, side: 9, time_in_force: NONE, ..MassAction::new_zeroed() };
    take_mass_action(&mut venue, 0, &action, 2);
    assert!(terms(&venue).is_some());
    take_mass_action(&mut venue, 0, &MassAction { side: NONE, ..action }, 3);
    assert!(terms(&venue).is_none());
}
