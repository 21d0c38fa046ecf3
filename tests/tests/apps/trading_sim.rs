//! Seeds of the simulation of a gateway, its standby and its exchange.

use wirepath_tests::trading::run_seeds;

#[test]
fn orders_positions_and_journals_agree_after_crashes_and_takeovers() {
    check(0..40);
}

/// A mass cancel takes a number, and stands in the journal as that alone. In these seeds a power
/// cut follows it.
#[test]
fn number_of_a_mass_cancel_is_on_the_disk_before_it_leaves() {
    for seed in [214, 1_039] {
        assert_eq!(run_seeds(seed..seed + 1).failures, []);
    }
}

/// In the seeds that still fail no gateway leads at the end, or the one that does is not let in by
/// its venue.
#[test]
#[ignore = "some seeds fail; run it by hand, in release"]
fn orders_positions_and_journals_agree_in_fifteen_hundred_seeds() {
    check(0..1_500);
}

fn check(seeds: core::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let summary = run_seeds(seeds);
    for (seed, story) in &summary.failures {
        println!("seed {seed}: {story}\n");
    }
    assert!(summary.failures.is_empty(), "{} of {count} seeds failed", summary.failures.len());
    assert!(summary.requests > 100 * count && summary.takeovers > count, "little happened: {summary:?}");
}
