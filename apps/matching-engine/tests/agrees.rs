//! The engine and a matcher that is obviously right do the same.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use common::reference::{Reference, line};
use common::{Flow, Rig, STOCK, Step};

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
