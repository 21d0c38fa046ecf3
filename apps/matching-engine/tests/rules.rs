//! Rules that a random flow meets too seldom, a day each.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use market::{Locate, Price, Side};
use matching_engine::{
    Body, BreakError, Capacity, CrossKind, CrossTerms, Display, Engine, Event, NewOrder, Owner, Peg, PegTo, PostOnly,
    Pricing, SelfTrade, SelfTradeRule, Terms,
};

const STOCK: Locate = Locate(1);
const TEN: Price = Price::from_cents(10_00);

/// An engine that trades, and the place of its events.
fn open(capacity: Capacity) -> (Engine, Vec<Event>) {
    let (mut engine, mut events) = (Engine::new(capacity), Vec::new());
    engine.quote(STOCK, 0, &mut events).unwrap();
    cross(&mut engine, &mut events);
    (engine, events)
}

fn cross(engine: &mut Engine, events: &mut Vec<Event>) {
    let terms = CrossTerms { reference: TEN, collar: None };
    engine.cross(STOCK, CrossKind::Opening, &terms, 0, events).unwrap();
}

fn sell(token: u64, qty: u32, price: Price) -> NewOrder {
    NewOrder::limit(Owner(1), token, STOCK, Side::Sell, qty, price)
}

fn buy(token: u64, qty: u32, price: Price) -> NewOrder {
    NewOrder::limit(Owner(2), token, STOCK, Side::Buy, qty, price)
}

#[test]
fn peg_whose_arrival_canceled_the_best_price_does_not_stay_there() {
    let (mut engine, mut events) = open(Capacity::default());
    let self_trade = Some(SelfTrade { group: 7, rule: SelfTradeRule::CancelOldest });
    let pricing = Pricing::Peg(Peg { to: PegTo::Market, offset: 0, limit: None });
    let terms = Terms { pricing, display: Display::Hidden, ..Terms::limit(100, TEN) };
    // The peg waits for an offer; the first one is of its own group, and ends.
    engine.submit(&NewOrder { self_trade, terms, ..buy(1, 100, TEN) }, 1, &mut events).unwrap();
    engine.submit(&NewOrder { self_trade, ..sell(2, 100, TEN) }, 2, &mut events).unwrap();
    let hidden = Terms { display: Display::Hidden, ..Terms::limit(100, TEN) };
    engine.submit(&NewOrder { terms: hidden, ..sell(3, 100, TEN) }, 3, &mut events).unwrap();
    assert!(!events.iter().any(|event| matches!(event.body, Body::Executed(_))), "no offer is displayed");
}

#[test]
fn cross_of_which_executions_were_forgotten_is_not_broken_in_part() {
    let (mut engine, mut events) = (Engine::new(Capacity { trades: 2, ..Capacity::default() }), Vec::new());
    engine.quote(STOCK, 0, &mut events).unwrap();
    engine.submit(&sell(1, 300, TEN), 1, &mut events).unwrap();
    for token in 2..=4 {
        engine.submit(&buy(token, 100, TEN), 1, &mut events).unwrap();
    }
    cross(&mut engine, &mut events);
    assert_eq!(engine.break_trade(1, 2, &mut events), Err(BreakError::Unknown));
    engine.submit(&sell(5, 100, TEN), 3, &mut events).unwrap();
    engine.submit(&buy(6, 100, TEN), 3, &mut events).unwrap();
    assert_eq!(engine.break_trade(2, 4, &mut events), Ok(()));
}

#[test]
fn post_only_order_that_slides_is_told_the_price_at_which_it_rests() {
    let (mut engine, mut events) = open(Capacity::default());
    engine.submit(&sell(1, 100, TEN), 1, &mut events).unwrap();
    let slides = Terms { post_only: PostOnly::Slide, ..Terms::limit(100, Price::from_cents(10_05)) };
    let id = engine.submit(&NewOrder { terms: slides, ..buy(2, 100, TEN) }, 2, &mut events).unwrap();
    let told = |events: &[Event]| {
        events.iter().rev().find_map(|event| match event.body {
            Body::Accepted(it) => Some(it.price),
            Body::Replaced(it) => Some(it.price),
            _ => None,
        })
    };
    assert_eq!(told(&events), Some(Price::from_cents(9_99)));
    engine.replace(id, 3, &Terms { qty: 50, ..slides }, 3, &mut events).unwrap();
    assert_eq!(told(&events), Some(Price::from_cents(9_99)));
}

#[test]
fn minimum_that_can_trade_when_the_market_opens_does() {
    let (mut engine, mut events) = (Engine::new(Capacity::default()), Vec::new());
    engine.quote(STOCK, 0, &mut events).unwrap();
    let minimum = Terms { min_qty: 100, display: Display::Hidden, ..Terms::limit(100, Price::from_cents(10_05)) };
    engine.submit(&NewOrder { terms: minimum, ..buy(1, 100, TEN) }, 1, &mut events).unwrap();
    engine.submit(&sell(2, 300, TEN), 1, &mut events).unwrap();
    cross(&mut engine, &mut events);
    let Some(Body::Executed(trade)) = events.iter().map(|event| event.body).find(|it| matches!(it, Body::Executed(_)))
    else {
        panic!("the book is crossed")
    };
    assert_eq!((trade.qty, trade.price, trade.taker.order.token), (100, TEN, 1));
}
