//! `make sim`: TCP in virtual time, and beside smoltcp's over the same segments: 10,000 seeds of each, or as many as SEEDS says. `SEED=n` replays
//! one and prints its trace. Ends with 1 where a seed fails.

use std::process::ExitCode;

use wirepath_tests::differential;
use wirepath_tests::sim::{run_seed, run_seeds};

fn main() -> ExitCode {
    match (number("SEED"), number("SEEDS"), number("FROM")) {
        (Ok(Some(seed)), ..) => replay(seed),
        (Ok(None), Ok(seeds), Ok(from)) => run(from.unwrap_or(0), seeds.unwrap_or(10_000)),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => {
            eprintln!("sim: {why}");
            ExitCode::from(2)
        }
    }
}

fn replay(seed: u64) -> ExitCode {
    let mut report = run_seed(seed, true);
    report.faults.extend(differential::run(seed).err());
    report.faults.iter().for_each(|fault| println!("sim: seed {seed}: {fault}"));
    println!(
        "sim: seed {seed}: {} frames, {} bytes, {:.3} s of virtual time",
        report.frames,
        report.bytes,
        seconds(report.lasted.into())
    );
    if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(from: u64, seeds: u64) -> ExitCode {
    // What a panic says is in the report.
    std::panic::set_hook(Box::new(|_| ()));
    let summary = run_seeds(from, seeds, 20, |done| eprintln!("sim: {done} of {seeds} seeds"));
    for (seed, faults) in &summary.failures {
        println!("sim: seed {seed} failed; replay it with: make sim SEED={seed}");
        faults.iter().take(5).for_each(|fault| println!("sim:   {fault}"));
    }
    println!(
        "sim: {} seeds, {} failed; {} frames, {} bytes, {:.0} s of virtual time; {:.1} s, {:.0} seeds a second",
        summary.seeds,
        summary.failures.len(),
        summary.frames,
        summary.bytes,
        seconds(summary.virtual_ns),
        summary.took.as_secs_f64(),
        summary.seeds as f64 / summary.took.as_secs_f64()
    );
    let parted = compare(from, seeds);
    if summary.failures.is_empty() && parted == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The same scripts into two stacks; says how many of them part the two.
fn compare(from: u64, seeds: u64) -> u64 {
    let (begin, mut sum, mut parted) = (std::time::Instant::now(), differential::Tally::default(), 0);
    for seed in from..from + seeds {
        match differential::run(seed) {
            Ok(tally) => sum.add(&tally),
            Err(why) => {
                parted += 1;
                println!("sim: beside smoltcp: {why}");
            }
        }
    }
    println!(
        "sim: {seeds} scripts beside smoltcp, {parted} parted; {} steps, {} bytes to the apps, {} from them; {:.1} s",
        sum.steps,
        sum.received,
        sum.sent,
        begin.elapsed().as_secs_f64()
    );
    parted
}

fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}

fn number(name: &str) -> Result<Option<u64>, String> {
    let Ok(asked) = std::env::var(name) else { return Ok(None) };
    if asked.is_empty() {
        return Ok(None);
    }
    asked.replace(['_', ','], "").parse().map(Some).map_err(|_| format!("{name} is {asked}: use a number"))
}
