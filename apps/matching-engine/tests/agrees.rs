//! The engine and a matcher that is obviously right do the same.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use common::reference::{Reference, line};
use common::{Flow, Rig, STOCK, Step};
use market::{Price, Side, TopOfBook};
use matching_engine::{CancelReason, CrossKind, CrossTerms, NewOrder, Owner};

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
