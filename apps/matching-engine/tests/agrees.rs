//! The engine and a matcher that is obviously right do the same.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use common::reference::{Reference, line};
use common::{Flow, Rig, STOCK, Step};
use market::{Price, Side, TopOfBook};
use matching_engine::{
    Body, CancelReason, CrossKind, CrossTerms, Display, Life, NewOrder, Owner, SelfTrade, SelfTradeRule, Terms,
};

/// Plays `steps` steps of a seed on both.
fn play(seed: u64, steps: usize) {
    let (mut flow, mut rig, mut reference) = (Flow::new(seed, 1), Rig::new(1, 1 << 12), Reference::default());
    let mut events = Vec::new();
    let mut history = Vec::new();
    for number in 0..steps {
        let step = if number == 0 { Step::Quote(STOCK) } else { flow.next() };
        let now_ns = flow.now_ns();
        events.clear();
        reference.lines.clear();
        rig.apply(&step, now_ns, &mut events);
        reference.apply(&step, now_ns);
        let mut ours: Vec<String> = events.iter().filter_map(line).collect();
        // Which of many orders is canceled first is the engine's own choice.
        if matches!(step, Step::CancelAll(_) | Step::Halt(_) | Step::Close(_) | Step::Cross(..)) {
            sort_cancels(&mut ours);
            sort_cancels(&mut reference.lines);
        }
        history.push(format!("{step:?}\n    {}", reference.lines.join("\n    ")));
        let newest = history.len().saturating_sub(60);
        assert_eq!(ours, reference.lines, "seed {seed}, step {number}:\n{}", history[newest..].join("\n"));
    }
}

/// Puts each run of cancels in the order of the text.
fn sort_cancels(lines: &mut [String]) {
    for run in lines.chunk_by_mut(|a, b| a.starts_with("cancel") && b.starts_with("cancel")) {
        run.sort_unstable();
    }
}

#[test]
fn engine_agrees_with_a_sorted_vector_on_random_flow() {
    let seeds = std::env::var("ENGINE_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    let first = std::env::var("ENGINE_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..first + seeds {
        play(seed, 400);
    }
}

/// A ladder has more levels than its table of known ones has entries; levels end, and others take
/// their places in the pool.
#[test]
fn order_finds_the_level_of_its_price_among_a_thousand() {
    let (mut engine, mut events) = (Rig::new(1, 1 << 12).engine, Vec::new());
    let terms = CrossTerms { reference: Price::from_cents(10_00), collar: None };
    engine.quote(STOCK, 0, &mut events).unwrap();
    engine.cross(STOCK, CrossKind::Opening, &terms, 0, &mut events).unwrap();
    let prices: Vec<_> = (1..=1_000).map(|step| Price::from_cents(10_00 + step)).collect();
    for is_rising in [true, false] {
        for idx in (0..2_000).map(|idx| idx % 1_000) {
            let price = prices[if is_rising { idx } else { 999 - idx }];
            let new = NewOrder::limit(Owner(1), 1, STOCK, Side::Sell, 100, price);
            engine.submit(&new, 1, &mut events).unwrap();
        }
        assert!(engine.displayed(STOCK, Side::Sell).eq(prices.iter().map(|&price| (price, 200))));
        assert_eq!(engine.cancel_all(Owner(1), None, CancelReason::User, 2, &mut events), 2_000);
        assert_eq!(engine.top(STOCK), TopOfBook::default());
    }
}

/// Of the reserve 100 shares are met before the own order, and the rest moves behind it.
#[test]
fn fill_or_kill_that_would_meet_an_own_order_before_the_rest_of_a_reserve_is_killed_whole() {
    let (mut engine, mut events) = (Rig::new(1, 16).engine, Vec::new());
    let price = Price::from_cents(10_00);
    engine.quote(STOCK, 0, &mut events).unwrap();
    engine.cross(STOCK, CrossKind::Opening, &CrossTerms { reference: price, collar: None }, 0, &mut events).unwrap();
    let self_trade = Some(SelfTrade { group: 7, rule: SelfTradeRule::CancelNewest });
    let reserve = Terms { display: Display::Reserve(100), ..Terms::limit(1_000, price) };
    let fill_or_kill = Terms { life: Life::FillOrKill, ..Terms::limit(500, price) };
    let sell = |owner, token, qty| NewOrder::limit(Owner(owner), token, STOCK, Side::Sell, qty, price);
    let orders = [
        NewOrder { terms: reserve, ..sell(1, 1, 1_000) },
        NewOrder { self_trade, ..sell(2, 2, 100) },
        NewOrder { side: Side::Buy, self_trade, terms: fill_or_kill, ..sell(2, 3, 500) },
    ];
    for order in &orders {
        engine.submit(order, 1, &mut events).unwrap();
    }
    assert!(!events.iter().any(|event| matches!(event.body, Body::Executed(_))));
    let Body::Canceled(canceled) = events.last().unwrap().body else { panic!("the taker's end is last") };
    assert_eq!((canceled.order.token, canceled.decrement), (3, 500));
}
