//! TCP in virtual time: 100 seeds here, 10,000 in `make sim`. A seed that fails is printed with the
//! command that replays it.

use wirepath_tests::sim::{run_seed, run_seeds};

/// Seeds beyond the first 200 with which `make sim` has found errors: a wrong order of lost
/// segments, copies that fit no buffer, two answers to one SYN, resets that were never sent,
/// timeouts that grew without need, bursts that overflowed a queue again each time, acknowledgments
/// within a handshake that a full ring kept for ever, data that could not be cut for a
/// retransmission, and checks that were too strict.
const FOUND: [u64; 19] = [
    729, 1_042, 733, 3_499, 7_754, 1_798, 8_489, 2_962, 3_565, 6_101, 6_145, 9_342, 7_229, 7_774, 9_503, 2_576, 2_335,
    8_438, 7_828,
];

#[test]
fn what_was_found_once_does_not_come_back() {
    for seed in FOUND {
        let faults = run_seed(seed, false).faults;
        assert!(faults.is_empty(), "seed {seed} failed; replay it with: make sim SEED={seed}\n{faults:#?}");
    }
}

#[test]
fn streams_arrive_whole_whatever_the_network_does() {
    let summary = run_seeds(0, 100, 3, &());
    let lines = summary.failures.iter().flat_map(|(seed, faults)| {
        let replay = format!("seed {seed} failed; replay it with: make sim SEED={seed}\n");
        std::iter::once(replay).chain(faults.iter().map(|fault| format!("  {fault}\n")))
    });
    assert!(summary.failures.is_empty(), "{}", lines.collect::<String>());
    assert!(summary.bytes > 1 << 20, "only {} bytes in {} seeds: nothing was tried", summary.bytes, summary.seeds);
}
