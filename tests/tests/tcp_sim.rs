//! TCP in virtual time: 200 seeds here, 10,000 in `make sim`. A seed that fails is printed with the command that replays it.

use wirepath_tests::sim::run_seeds;

#[test]
fn streams_arrive_whole_whatever_the_network_does() {
    let summary = run_seeds(0, 200, 3, &());
    let lines = summary.failures.iter().flat_map(|(seed, faults)| {
        let replay = format!("seed {seed} failed; replay it with: make sim SEED={seed}\n");
        std::iter::once(replay).chain(faults.iter().map(|fault| format!("  {fault}\n")))
    });
    assert!(summary.failures.is_empty(), "{}", lines.collect::<String>());
    assert!(summary.bytes > 1 << 20, "only {} bytes in {} seeds: nothing was tried", summary.bytes, summary.seeds);
}
