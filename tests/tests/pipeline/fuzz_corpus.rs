//! The corpus through the targets, and a little fuzzing without a fuzzer: mutations from a fixed
//! seed.

use std::time::{Duration, Instant};

use wirepath_tests::corpus;
use wirepath_tests::fuzz::{TARGETS, Target};
use wirepath_tests::mutate::{Random, mutate};

/// Mutations of a target, and the time after which a slow one is content with fewer: a debug build
/// on a slow machine stays below a minute for all of them together.
const MUTATIONS: usize = 3_000;
const TIME_MAX: Duration = Duration::from_millis(500);

/// Checks every target, and reports all that failed.
fn check_all(check: impl Fn(usize, &Target) -> Result<(), String>) {
    let failed: Vec<_> = TARGETS.iter().enumerate().filter_map(|(idx, target)| check(idx, target).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_corpus_file_keeps_the_promises_of_its_target() {
    check_all(|_, target| {
        let files = corpus::read(target);
        assert!(!files.is_empty(), "{} has no corpus: cargo run -p wirepath-tests --bin fuzz_seeds", target.name);
        files.iter().try_for_each(|(name, input)| corpus::check(target, input, name))
    });
}

#[test]
fn seeds_keep_the_promises_of_their_target() {
    check_all(|_, target| {
        let seeds = (target.seeds)();
        seeds.iter().try_for_each(|seed| corpus::check(target, seed, "a seed"))
    });
}

#[test]
fn mutations_of_the_corpus_keep_the_promises_too() {
    check_all(|idx, target| {
        let inputs: Vec<_> = corpus::read(target).into_iter().map(|(_, input)| input).collect();
        let start = Instant::now();
        for round in 0..MUTATIONS {
            if start.elapsed() > TIME_MAX {
                println!("{}: {round} of {MUTATIONS} mutations in {TIME_MAX:?}", target.name);
                break;
            }
            let seed = (idx as u64) << 32 | round as u64;
            let input = mutate(&inputs, &mut Random::new(seed));
            corpus::check(target, &input, &format!("mutation {seed:#x}"))?;
        }
        Ok(())
    });
}
