//! Seeds of the simulation of a gateway, its standby and its exchange; `make sim` runs 10,000.

use wirepath_tests::trading::{Protocol, run_seeds};

/// Orders, positions and journals agree after crashes and takeovers.
fn play(protocol: Protocol, count: u64) {
    let summary = run_seeds(protocol, 0..count);
    for (seed, story) in &summary.failures {
        println!("seed {seed}: {story}\nreplay it with: make sim SEED={seed}\n");
    }
    assert!(summary.failures.is_empty(), "{} of {count} seeds failed", summary.failures.len());
    let has_much = summary.requests > 50 * count && summary.takeovers > count && summary.stalls > 0;
    assert!(has_much, "little happened: {summary:?}");
}

#[test]
fn orders_positions_and_journals_agree_after_crashes_and_takeovers() {
    play(Protocol::Ouch, 100);
}

#[test]
fn orders_positions_and_journals_agree_by_fix_after_crashes_and_takeovers() {
    play(Protocol::Fix, 40);
}

#[test]
fn orders_positions_and_journals_agree_by_ouch_42_after_crashes_and_takeovers() {
    play(Protocol::Ouch42, 40);
}

#[test]
fn orders_positions_and_journals_agree_by_boe_2_after_crashes_and_takeovers() {
    play(Protocol::Boe2, 40);
}

#[test]
fn orders_positions_and_journals_agree_by_boe_3_after_crashes_and_takeovers() {
    play(Protocol::Boe3, 40);
}

#[test]
fn orders_positions_and_journals_agree_by_ilink_3_after_crashes_and_takeovers() {
    play(Protocol::Ilink3, 40);
}
