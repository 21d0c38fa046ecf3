//! `make sim`: TCP in virtual time, and compared with smoltcp's TCP over the same segments, and an
//! order gateway with its standby and its exchange over our TCP, and two RoCE devices: 10,000 seeds
//! of each, or the number in SEEDS. `SEED=n` replays one seed and prints its trace; FROM=n begins
//! at that seed, PART=trading runs the order gateway's alone. A failed seed is printed at once, and
//! the run goes on. If any failed, the program lists them at the end and exits with 1.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use wirepath_tests::differential;
use wirepath_tests::sim::{Watcher, on_all_cores, run_seed, run_seeds};
use wirepath_tests::trading;

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
    report.faults.extend(trading::Protocol::ALL.into_iter().filter_map(|by| trading::run_seed(by, seed).err()));
    report.faults.extend(rdma::testing::run_seed(seed).err());
    report.faults.extend(rdma::testing::run_cm_seed(seed).err());
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
    // The panic's message is in the report.
    std::panic::set_hook(Box::new(|_| ()));
    let mut failed = BTreeSet::new();
    match std::env::var("PART").as_deref() {
        Err(_) | Ok("") => {
            failed.extend(connect(from, seeds));
            failed.extend(compare(from, seeds));
            failed.extend(trade_by_each(from, seeds));
            failed.extend(reach(from, seeds));
            failed.extend(meet(from, seeds));
        }
        Ok("trading") => failed.extend(trade_by_each(from, seeds)),
        Ok(part) => {
            eprintln!("sim: PART is {part}: the one part that runs alone is trading");
            return ExitCode::from(2);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("sim: failed: {}", failed.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    ExitCode::FAILURE
}

/// Connects hosts by TCP, and returns the seeds that failed.
fn connect(from: u64, seeds: u64) -> Vec<u64> {
    let summary = run_seeds(from, seeds, usize::MAX, &Printer { seeds });
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
    summary.failures.into_iter().map(|(seed, _)| seed).collect()
}

/// Prints each failure at once, and the progress of the run every ten seconds.
struct Printer {
    seeds: u64,
}

impl Watcher for Printer {
    fn progress(&self, begun: u64) {
        eprintln!("sim: {begun} of {} seeds", self.seeds);
    }

    fn failed(&self, seed: u64, faults: &[String]) {
        let faults = faults.iter().take(5).map(|fault| format!("sim:   {fault}\n")).collect::<String>();
        // One call, so that two threads do not mix their lines.
        print!("sim: seed {seed} failed; replay it with: make sim SEED={seed}\n{faults}");
    }
}

/// Plays the same scripts to two stacks, and returns the seeds after which the two differ.
fn compare(from: u64, seeds: u64) -> Vec<u64> {
    let (begin, sum, parted) = (Instant::now(), Mutex::new(differential::Tally::default()), Mutex::new(Vec::new()));
    on_all_cores(
        from..from + seeds,
        &AtomicBool::new(false),
        |_| (),
        |seed| match differential::run(seed) {
            Ok(tally) => sum.lock().expect("nobody panics with the sum in hand").add(&tally),
            Err(why) => {
                println!("sim: beside smoltcp: {why}; replay it with: make sim SEED={seed}");
                parted.lock().expect("nobody panics with the list in hand").push(seed);
            }
        },
    );
    let sum = sum.into_inner().expect("nobody panics with the sum in hand");
    let parted = parted.into_inner().expect("nobody panics with the list in hand");
    println!(
        "sim: {seeds} scripts beside smoltcp, {} parted; {} steps, {} bytes to the apps, {} from them; {:.1} s",
        parted.len(),
        sum.steps,
        sum.received,
        sum.sent,
        begin.elapsed().as_secs_f64()
    );
    parted
}

/// Trades by each protocol, one after the other.
fn trade_by_each(from: u64, seeds: u64) -> Vec<u64> {
    trading::Protocol::ALL.into_iter().flat_map(|by| trade(by, from, seeds)).collect()
}

/// Trades by a gateway that dies, and returns the seeds in which it and its exchange differ.
fn trade(protocol: trading::Protocol, from: u64, seeds: u64) -> Vec<u64> {
    let (begin, sum) = (Instant::now(), Mutex::new(trading::Summary::default()));
    on_all_cores(
        from..from + seeds,
        &AtomicBool::new(false),
        |_| (),
        |seed| {
            let result = trading::run_seed(protocol, seed);
            if let Err(story) = &result {
                println!("sim: trading: {story}\nsim: replay it with: make sim SEED={seed}");
            }
            sum.lock().expect("nobody panics with the sum in hand").add(seed, result);
        },
    );
    let sum = sum.into_inner().expect("nobody panics with the sum in hand");
    println!(
        "sim: {seeds} days of trading by {protocol:?}, {} failed; {} requests, {} starts, {} take-overs, {} turns kept by a disk; {:.1} s",
        sum.failures.len(),
        sum.requests,
        sum.starts,
        sum.takeovers,
        sum.stalls,
        begin.elapsed().as_secs_f64()
    );
    sum.failures.into_iter().map(|(seed, _)| seed).collect()
}

/// Reaches for memory by RDMA over a wire with every fault, and returns the seeds in which memory
/// or completions differ from the model.
fn reach(from: u64, seeds: u64) -> Vec<u64> {
    let (begin, sum) = (Instant::now(), Mutex::new((rdma::testing::Summary::default(), Vec::new())));
    on_all_cores(
        from..from + seeds,
        &AtomicBool::new(false),
        |_| (),
        |seed| {
            let result = rdma::testing::run_seed(seed);
            let mut sum = sum.lock().expect("nobody panics with the sum in hand");
            match result {
                Ok(summary) => sum.0.add(&summary),
                Err(why) => {
                    println!("sim: RDMA: seed {seed}: {why}; replay it with: make sim SEED={seed}");
                    sum.1.push(seed);
                }
            }
        },
    );
    let (sum, failed) = sum.into_inner().expect("nobody panics with the sum in hand");
    println!(
        "sim: {seeds} wires of RDMA, {} failed; {} requests, {} messages over UC and UD, {} into shared receives, {} \
         packets, {} sent again, {} connections broken, {} made anew; {:.1} s",
        failed.len(),
        sum.requests,
        sum.unreliable,
        sum.shared,
        sum.packets,
        sum.retransmits,
        sum.failures,
        sum.restarts,
        begin.elapsed().as_secs_f64()
    );
    failed
}

/// Connects by RDMA_CM, and returns the seeds in which an end saw what it ought not to see.
fn meet(from: u64, seeds: u64) -> Vec<u64> {
    let (begin, sum) = (Instant::now(), Mutex::new((rdma::testing::CmSummary::default(), Vec::new())));
    on_all_cores(
        from..from + seeds,
        &AtomicBool::new(false),
        |_| (),
        |seed| {
            let result = rdma::testing::run_cm_seed(seed);
            let mut sum = sum.lock().expect("nobody panics with the sum in hand");
            match result {
                Ok(summary) => sum.0.add(&summary),
                Err(why) => {
                    println!("sim: RDMA_CM: seed {seed}: {why}; replay it with: make sim SEED={seed}");
                    sum.1.push(seed);
                }
            }
        },
    );
    let (sum, failed) = sum.into_inner().expect("nobody panics with the sum in hand");
    println!(
        "sim: {seeds} wires of RDMA_CM, {} failed; {} ends established, {} refused, {} unreachable, {} deaths; {:.1} s",
        failed.len(),
        sum.established,
        sum.rejected,
        sum.unreachable,
        sum.deaths,
        begin.elapsed().as_secs_f64()
    );
    failed
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
