//! One seed, or many of them on all cores.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::scenario::script;
use super::world::{Report, World};

/// The results of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    /// Runs.
    pub seeds: u64,
    /// Seeds that failed, and how: the lowest first.
    pub failures: Vec<(u64, Vec<String>)>,
    /// Frames that were carried.
    pub frames: u64,
    /// Bytes that apps received.
    pub bytes: u64,
    /// Virtual time in nanoseconds.
    pub virtual_ns: u128,
    /// Time that all runs took.
    pub took: Duration,
}

/// Runs a seed. A panic is an error like any other.
pub fn run_seed(seed: u64, is_traced: bool) -> Report {
    let run = || {
        let script = script(seed);
        if is_traced {
            println!("{script:#?}");
        }
        World::new(script, is_traced).run()
    };
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Report { faults: vec![format!("panic: {}", message(&*panic))], ..Report::default() })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// The progress reports of a run of many seeds.
pub trait Watcher: Sync {
    /// Each ten seconds: this many seeds have begun.
    fn progress(&self, _begun: u64) {}
    /// A seed failed.
    fn failed(&self, _seed: u64, _faults: &[String]) {}
}

/// No reports.
impl Watcher for () {}

/// Runs `count` seeds from `first` on, on as many threads as there are cores. Ends early after
/// `failures_max` failures.
pub fn run_seeds(first: u64, count: u64, failures_max: usize, watcher: &impl Watcher) -> Summary {
    let (begin, is_done) = (Instant::now(), AtomicBool::new(false));
    let summary = Mutex::new(Summary::default());
    on_all_cores(
        first..first + count,
        &is_done,
        |begun| watcher.progress(begun),
        |seed| {
            let report = run_seed(seed, false);
            if !report.faults.is_empty() {
                watcher.failed(seed, &report.faults);
            }
            let mut summary = summary.lock().expect("no thread panics while it holds the sum");
            summary.seeds += 1;
            summary.frames += report.frames;
            summary.bytes += report.bytes;
            summary.virtual_ns += u128::from(report.lasted);
            if !report.faults.is_empty() {
                summary.failures.push((seed, report.faults));
            }
            if summary.failures.len() >= failures_max {
                is_done.store(true, Ordering::Relaxed);
            }
        },
    );
    let mut summary = summary.into_inner().expect("no thread panics while it holds the sum");
    summary.failures.sort_by_key(|(seed, _)| *seed);
    summary.took = begin.elapsed();
    summary
}

/// Does `work` for each seed, on as many threads as there are cores, until `is_done`. Reports to
/// `progress` each ten seconds how many have begun.
pub fn on_all_cores(seeds: Range<u64>, is_done: &AtomicBool, progress: impl Fn(u64), work: impl Fn(u64) + Sync) {
    let (begin, next) = (Instant::now(), AtomicU64::new(seeds.start));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        while !is_done.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            work(seed);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut reported = 0;
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            let tens = begin.elapsed().as_secs() / 10;
            if tens > reported {
                reported = tens;
                progress(next.load(Ordering::Relaxed).min(seeds.end) - seeds.start);
            }
        }
    });
}
