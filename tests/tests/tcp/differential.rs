//! Our TCP and smoltcp's over the same scripts: 200 here, one for each seed of `make sim` there.

use wirepath_tests::differential;

#[test]
fn two_stacks_make_the_same_of_the_same_segments() {
    let mut sum = differential::Tally::default();
    let mut parted = Vec::new();
    for seed in 0..200 {
        match differential::run(seed) {
            Ok(tally) => sum.add(&tally),
            Err(why) => parted.push(why),
        }
    }
    assert!(parted.is_empty(), "{}", parted.join("\n"));
    assert!(sum.received > 1 << 20 && sum.sent > 1 << 20 && sum.wild > 20, "nothing was tried: {sum:?}");
}

/// The simulator gives smoltcp a ring without an end for this reason alone: where this fails,
/// smoltcp may have full rings again.
#[test]
fn smoltcp_forgets_a_fast_retransmission_that_finds_no_room() {
    assert!(differential::forgets_a_fast_retransmission_that_finds_no_room());
}
