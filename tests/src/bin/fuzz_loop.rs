//! Runs mutations of the corpus for some time, where no fuzzer is installed: `cargo run -p
//! wirepath-tests --bin fuzz_loop TARGET SECONDS [FIRST_SEED]`. Prints the number of inputs, and
//! writes each input that failed, ten at most, to the temporary directory. The same seed makes the
//! same inputs from the same corpus.

use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs, panic};

use wirepath_tests::corpus;
use wirepath_tests::fuzz::target;
use wirepath_tests::mutate::{Random, mutate};

const FAILED_MAX: usize = 10;

fn main() -> ExitCode {
    let words: Vec<_> = env::args().skip(1).collect();
    let number = |idx: usize| words.get(idx).and_then(|word| word.parse::<u64>().ok());
    let (Some(target), Some(seconds)) = (words.first().and_then(|name| target(name)), number(1)) else {
        eprintln!("usage: fuzz_loop TARGET SECONDS [FIRST_SEED], TARGET being a folder of tests/corpus");
        return ExitCode::from(2);
    };
    let inputs: Vec<_> = corpus::read(target).into_iter().map(|(_, input)| input).collect();
    let (start, first) = (Instant::now(), number(2).unwrap_or(1 << 48));
    let (mut seed, mut failed) = (first, 0);
    while failed < FAILED_MAX && start.elapsed() < Duration::from_secs(seconds) {
        let input = mutate(&inputs, &mut Random::new(seed));
        if panic::catch_unwind(|| (target.run)(&input)).is_err() {
            let path = env::temp_dir().join(format!("{}-{seed:x}", target.name));
            let written = fs::write(&path, &input);
            eprintln!("FAILED: {} ({written:?})", path.display());
            failed += 1;
        }
        seed += 1;
    }
    println!("{}: {} inputs in {:?}, {failed} failed", target.name, seed - first, start.elapsed());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
