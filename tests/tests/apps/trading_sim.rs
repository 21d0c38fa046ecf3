//! Seeds of the simulation of a gateway, its standby and its exchange; `make sim` runs 10,000.

use wirepath_tests::trading::run_seeds;

#[test]
fn orders_positions_and_journals_agree_after_crashes_and_takeovers() {
    const COUNT: u64 = 100;
    let summary = run_seeds(0..COUNT);
    for (seed, story) in &summary.failures {
        println!("seed {seed}: {story}\nreplay it with: make sim SEED={seed}\n");
    }
    assert!(summary.failures.is_empty(), "{} of {COUNT} seeds failed", summary.failures.len());
    assert!(summary.requests > 100 * COUNT && summary.takeovers > COUNT, "little happened: {summary:?}");
}
