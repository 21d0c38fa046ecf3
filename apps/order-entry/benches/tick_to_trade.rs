//! From a tick to an order, in memory: a frame is in the ring, a turn begins, and the order of the
//! trader of `examples/trader.rs` is posted. UDP, MoldUDP64, arbitration of lines, ITCH to books of
//! 200 instruments, decision, all risk checks, a record in the journal, OUCH in a prepared segment.
//!
//! ```console
//! $ cargo bench -p wirepath-order-entry --bench tick_to_trade
//! ```
//!
//! The time of each tick is taken, less that of the clock itself. *In a burst* ticks follow each
//! other, with two messages of other books before each; *after idle* other work has swept the
//! caches in between. callgrind counts the instructions of whole turns, a counting allocator
//! allocations, and strace system calls.
#![allow(clippy::unwrap_used, reason = "a bench may unwrap: a panic is the report")]

#[path = "trade/mod.rs"]
mod trade;

use std::hint::black_box;
use std::os::unix::process::parent_id;
use std::process::Command;
use std::time::Instant as Clock;

use trade::{Day, Times};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const TICKS: usize = 20_000;
/// Bytes of the journal's records of a tick, and more.
const JOURNAL: usize = 512 * TICKS + 4_096;
/// Bytes that other work touches between two ticks: more than the caches of a core hold.
const SWEEP: usize = 4 << 20;
/// What a run under valgrind or strace does.
const COUNTED: usize = 500;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("counted") => counted(true),
        Some("counted-quiet") => counted(false),
        _ => report(),
    }
}

fn report() {
    let clock_ns = clock_ns();
    println!("{:64} {:>8} {:>8}", "tick to trade, ns", "p50", "p99");
    let (burst, quiet) = (ticks(clock_ns, 0, true), ticks(clock_ns, 0, false));
    let idle = ticks(clock_ns, SWEEP, true);
    for (what, times) in [("in a burst", &burst), ("after idle", &idle)] {
        row(&format!("tick to trade in memory, {what}"), times, |times| times.to_app + times.in_app);
        row("  from the begin of the turn to the app: poll, IPv4, UDP", times, |times| times.to_app);
        row("  in the app: feed, book, decision, risk, journal, order", times, |times| times.in_app);
    }
    row("  in the app of a tick without an order: feed, book, decision", &quiet, |times| times.in_app);
    println!("the clock's own {clock_ns:.0} ns are subtracted from each time; load {}", load());
    for (what, verdict) in verdicts(&burst) {
        println!("{what}: {verdict}");
    }
    println!("instructions of a turn with an order: {}", instructions("counted"));
    println!("instructions of a turn without: {}", instructions("counted-quiet"));
    println!("allocations in {TICKS} ticks and orders: {}", allocations_of(TICKS));
    println!("system calls in {COUNTED} ticks and orders: {}", system_calls());
}

fn row(what: &str, times: &[Times], of: impl Fn(&Times) -> f64) {
    let [p50, p99] = percentiles(times, of);
    println!("{what:64} {p50:8.0} {p99:8.0}");
}

fn percentiles(times: &[Times], of: impl Fn(&Times) -> f64) -> [f64; 2] {
    let mut times: Vec<f64> = times.iter().map(of).collect();
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[times.len() * 99 / 100]]
}

/// The promises of the project.
fn verdicts(burst: &[Times]) -> [(&'static str, &'static str); 2] {
    let verdict = |ns: f64, must: f64, hope: f64| match ns {
        _ if ns <= hope => "hope",
        _ if ns <= must => "must",
        _ => "MISSED",
    };
    let [p50, p99] = percentiles(burst, |times| times.to_app + times.in_app);
    [
        ("p50, must <= 150, hope <= 80", verdict(p50, 150.0, 80.0)),
        ("p99, must <= 400, hope <= 300", verdict(p99, 400.0, 300.0)),
    ]
}

/// Ticks, each with an order where `is_bought`, after `sweep` bytes of other work.
fn ticks(clock_ns: f64, sweep: usize, is_bought: bool) -> Vec<Times> {
    let count = if sweep > 0 { TICKS / 20 } else { TICKS };
    let (mut day, mut swept) = (Day::open(JOURNAL), vec![1_u8; sweep]);
    let mut times = Vec::with_capacity(count);
    for idx in 0..count {
        let offer = if is_bought { day.offer() } else { 0 };
        if !is_bought {
            day.other();
        }
        swept.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
        black_box(&mut swept);
        times.push(day.timed_turn(clock_ns));
        let orders = day.finish(offer);
        assert_eq!(orders, if is_bought { idx as u64 + 1 } else { 0 }, "an order for each tick");
        day.others(2);
    }
    // The first ones find cold code.
    times.split_off(count / 10)
}

/// What two readings of the clock take, one after the other.
fn clock_ns() -> f64 {
    let mut times: Vec<_> = (0..10_001).map(|_| (Clock::now(), Clock::now())).map(|(a, b)| b - a).collect();
    times.sort();
    times[times.len() / 2].as_nanos() as f64
}

fn allocations_of(count: usize) -> u64 {
    let mut day = Day::open(JOURNAL);
    let mut allocated = 0;
    for _ in 0..count {
        let offer = day.offer();
        let before = allocations::count();
        day.turn();
        allocated += allocations::count() - before;
        day.finish(offer);
    }
    allocated
}

/// What valgrind and strace run.
fn counted(is_bought: bool) {
    let mut day = Day::open(JOURNAL);
    for _ in 0..COUNTED {
        let offer = if is_bought { day.offer() } else { 0 };
        if !is_bought {
            day.other();
        }
        // A call that changes nothing marks the begin and the end for strace.
        black_box(parent_id());
        measured_turn(&mut day);
        black_box(parent_id());
        day.finish(offer);
    }
}

#[inline(never)]
fn measured_turn(day: &mut Day) {
    day.turn();
}

fn instructions(part: &str) -> String {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(["--toggle-collect=*measured_turn*"]).arg(std::env::current_exe().unwrap()).arg(part);
    let Ok(output) = command.output() else { return "no valgrind".to_owned() };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = text.split("Collected :").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    count.map_or_else(|| text.clone(), |count| format!("{:.0}", count / COUNTED as f64))
}

/// Calls between two marks, of all turns.
fn system_calls() -> String {
    let mut command = Command::new("strace");
    command.args(["-o", "/dev/stderr"]).arg(std::env::current_exe().unwrap()).arg("counted");
    let Ok(output) = command.output() else { return "no strace".to_owned() };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (mut is_measured, mut count, mut marks) = (false, 0, 0);
    for line in text.lines() {
        if line.starts_with("getppid(") {
            (is_measured, marks) = (!is_measured, marks + 1);
        } else {
            count += usize::from(is_measured);
        }
    }
    if marks == 2 * COUNTED { count.to_string() } else { format!("{marks} marks instead of {}", 2 * COUNTED) }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
