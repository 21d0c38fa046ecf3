//! OUCH 4.2 as a client sees it.

use market::Price;
use order_entry::ouch::v42::Outbound;
use order_entry::ouch::{Capacity, CrossType, CustomerType, Display, Side, YesNo};

use super::super::{AccountSettings, Command, VenueSettings, Which};
use super::*;

const STOCK: Symbol = Symbol(*b"ZTEST   ");
const TEN: u32 = 100_000;

fn venue() -> Venue {
    let accounts = ["ALICE", "BOB"].map(|user| AccountSettings::new(user, "SECRET").unwrap());
    let listing = vec![(STOCK, Price::from_cents(10_00))];
    let mut venue = Venue::new(VenueSettings::new(listing, accounts.to_vec()));
    venue.open(0);
    venue
}

fn token(text: &str) -> Text<14> {
    Text::new(text).unwrap()
}

fn enter(name: &str, side: Side, shares: u32, price: u32) -> EnterOrder {
    EnterOrder {
        token: token(name),
        side,
        shares: shares.into(),
        stock: STOCK,
        price: price.into(),
        time_in_force: MARKET_HOURS.into(),
        firm: Text::new("FIRM").unwrap(),
        display: Display::VISIBLE,
        capacity: Capacity::PRINCIPAL,
        intermarket_sweep: YesNo::NO,
        min_quantity: 0.into(),
        cross_type: CrossType::CONTINUOUS,
        customer_type: CustomerType::DEFAULT,
    }
}

fn replace(name: &str, new: &str, shares: u32, price: u32) -> ReplaceOrder {
    ReplaceOrder {
        token: token(name),
        new_token: token(new),
        shares: shares.into(),
        price: price.into(),
        time_in_force: MARKET_HOURS.into(),
        display: Display::VISIBLE,
        intermarket_sweep: YesNo::NO,
        min_quantity: 0.into(),
    }
}

macro_rules! send {
    ($venue:expr, $account:expr, $message:expr) => {{
        let mut bytes = [0; 64];
        let len = $message.emit(&mut bytes).unwrap();
        $venue.receive_42($account, &bytes[..len], 1_000).unwrap()
    }};
}

fn story(venue: &Venue, account: usize) -> Vec<String> {
    let short = |message: &Vec<u8>| match Outbound::parse(message).unwrap() {
        Outbound::OrderAccepted(it) => format!("accepted {} {} {}", it.token, it.shares, it.firm),
        Outbound::OrderReplaced(it) => format!("replaced {} by {} {}", it.previous_token, it.token, it.shares),
        Outbound::Executed(it) => format!("executed {} {} at {}", it.token, it.shares, it.price),
        Outbound::OrderCanceled(it) => format!("canceled {} {} {}", it.token, it.decrement, it.reason),
        Outbound::OrderRejected(it) => format!("rejected {} {}", it.token, it.reason),
        Outbound::OrderModified(it) => format!("modified {} {}", it.token, it.shares),
        Outbound::BrokenTrade(it) => format!("broken {}", it.token),
        other => format!("{other:?}"),
    };
    venue.accounts()[account].messages_42().since(0).unwrap().iter().map(short).collect()
}

#[test]
fn orders_by_token_trade_change_and_end() {
    let mut venue = venue();
    send!(venue, 0, enter("one", Side::SELL, 500, TEN));
    send!(venue, 1, enter("one", Side::BUY, 200, TEN));
    // The intended total: 100 are left.
    send!(venue, 0, CancelOrder { token: token("one"), shares: 300.into() });
    send!(venue, 0, replace("one", "two", 400, TEN + 100));
    send!(venue, 0, ModifyOrder { token: token("two"), side: Side::SELL_SHORT, shares: 350.into() });
    send!(venue, 0, CancelOrder { token: token("two"), shares: 0.into() });
    venue.operate(Command::Break(2), 2_000).unwrap();
    let expected = [
        "accepted one 500 FIRM",
        "executed one 200 at 100000",
        "canceled one 200 user requested",
        "replaced one by two 200",
        "modified two 150",
        "canceled two 150 user requested",
        "broken one",
    ];
    assert_eq!(story(&venue, 0), expected);
    assert_eq!(story(&venue, 1), ["accepted one 200 FIRM", "executed one 200 at 100000", "broken one"]);
    assert!(venue.accounts()[0].messages().is_empty());
}

#[test]
fn token_that_was_used_is_ignored_and_one_of_a_replacement_that_failed_is_free() {
    let mut venue = venue();
    send!(venue, 0, enter("one", Side::SELL, 500, TEN));
    send!(venue, 0, enter("one", Side::SELL, 500, TEN));
    send!(venue, 0, replace("none", "two", 400, TEN));
    send!(venue, 0, replace("one", "two", 400, TEN + 1));
    send!(venue, 0, enter("two", Side::SELL, 100, TEN + 1));
    let expected = ["accepted one 500 FIRM", "canceled one 500 user requested", "rejected two invalid price"];
    assert_eq!(story(&venue, 0), expected);
    assert_eq!(venue.counts().ignored, 2);
}

#[test]
fn orders_are_rejected_by_reason() {
    let mut venue = venue();
    send!(venue, 0, EnterOrder { stock: Symbol(*b"NOBODY  "), ..enter("one", Side::BUY, 100, TEN) });
    send!(venue, 0, enter("two", Side::BUY, 0, TEN));
    send!(venue, 0, EnterOrder { cross_type: CrossType::RETAIL, ..enter("three", Side::BUY, 100, TEN) });
    venue.operate(Command::Halt(Which::One(STOCK)), 2_000).unwrap();
    send!(venue, 0, enter("four", Side::BUY, 100, TEN));
    let expected = [
        "rejected one invalid stock",
        "rejected two shares exceed threshold",
        "rejected three not allowed in this type of cross",
        "rejected four security halted",
    ];
    assert_eq!(story(&venue, 0), expected);
}
