//! iLink 3 as a client sees it.

use order_entry::ilink3::{OrderCancelled, OrderFilled, OrderReplaced};
use zerocopy::FromZeros;

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
