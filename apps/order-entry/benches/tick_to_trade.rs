//! From a tick to an order, in memory: a frame is in the ring, a turn begins, and the order of the
//! trader of `examples/trader.rs` is posted. UDP, MoldUDP64, arbitration of lines, ITCH to books of
//! 200 instruments, decision, all risk checks, a record in the journal, OUCH in a prepared segment.
//!
//! ```console
//! $ cargo bench -p wirepath-order-entry --bench tick_to_trade
//! ```
//!
//! The time is that from the begin of the turn, before the device is asked for frames, until the
//! device has the order and its doorbell. Between two such ticks the trader's loop turns eight
//! times: it takes the venue's answer, the end of the offer, heartbeats, and twice two messages of
//! other books. A turn with a message and no order ends with a rehearsal, which has the code of an
//! order in the cache again. Where the venue does its part is told apart:
//!
//! - *replayed*: the frames that the venue sent in an earlier run of the same day come again, so
//!   that the core runs nothing but the trader's loop, as it does where the venue is elsewhere.
//! - *beside*: the venue's host, TCP, feed and exchange run on the same core between the ticks, and
//!   take the caches.
//! - *after idle*: besides, other work has swept the caches.
//!
//! With `rows` it prints what the report of wirepath-benches compares with its promises.
//!
//! The clock's own time is subtracted. callgrind counts instructions, a counting allocator
//! allocations, and strace system calls.
#![allow(clippy::unwrap_used, reason = "a bench may unwrap: a panic is the report")]

#[path = "trade/counted.rs"]
mod counted;
#[path = "trade/mod.rs"]
mod trade;

use std::hint::black_box;
use std::time::Instant as Clock;

use trade::stamps::Notes;
use trade::{Day, TapeWriter, Times};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const TICKS: usize = 20_000;
/// Bytes of the journal's records of a tick, and more.
const JOURNAL: usize = 512 * TICKS + 4_096;
/// Bytes that other work touches between two ticks: more than the caches of a core hold.
const SWEEP: usize = 4 << 20;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("rows") => rows_of_the_report(),
        Some(part) if counted::run(part) => (),
        _ => report(),
    }
}

fn report() {
    let clock_ns = clock_ns();
    println!("{:64} {:>8} {:>8}", "tick to trade in memory, ns", "p50", "p99");
    let bare = Run { is_bare: true, ..Run::default() }.replayed(clock_ns);
    row("the framework alone: a datagram fires a prepared order", &bare, |times| times.to_post);
    let burst = Run::default().replayed(clock_ns);
    rows("in a burst, the venue replayed", &burst, &Run::split().replayed(clock_ns));
    let beside = Run::default().live(clock_ns, &TapeWriter::default());
    rows("in a burst, the venue beside", &beside, &Run::split().live(clock_ns, &TapeWriter::default()));
    let idle = Run { sweep: SWEEP, ..Run::default() };
    let idle_split = Run { sweep: SWEEP, ..Run::split() };
    rows("after idle", &idle.replayed(clock_ns), &idle_split.replayed(clock_ns));
    let quiet = Run { is_quiet: true, ..Run::default() }.replayed(clock_ns);
    row("a whole turn with two messages and no order, with its rehearsal", &quiet, |times| times.turn);
    println!("the clock's own {clock_ns:.0} ns are subtracted from each time; load {}", load());
    for (what, verdict) in verdicts(&burst) {
        println!("{what}: {verdict}");
    }
    counted::report();
    println!("allocations in {TICKS} ticks and orders: {}", allocations_of(TICKS));
}

/// Each has one sample: percentiles of a day, and a count.
fn rows_of_the_report() {
    let burst = Run::default().replayed(clock_ns());
    let [p50, p99] = percentiles(&burst, |times| times.to_post);
    let allocations = allocations_of(TICKS) as f64;
    let print = |(name, unit, value): (&str, &str, f64)| println!("row\t{name}\t{unit}\t{value}\t{value}\t{value}");
    [("p50", "ns", p50), ("p99", "ns", p99), ("allocations", "count", allocations)].into_iter().for_each(print);
    // Without strace there is no row, and the report says so.
    match counted::system_calls() {
        Ok(calls) => print(("system-calls", "count", calls as f64)),
        Err(why) => eprintln!("system calls are not counted: {why}"),
    }
}

fn rows(what: &str, times: &[Times], split: &[Times]) {
    row(&format!("tick to trade, {what}"), times, |times| times.to_post);
    row("  of that to the app: poll, Ethernet, IPv4, UDP", split, |times| times.to_app);
    row("  the rest of the turn: the order's record, timers", times, |times| times.turn - times.to_post);
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
    let [p50, p99] = percentiles(burst, |times| times.to_post);
    [
        ("p50 in a burst, must <= 150, hope <= 80", verdict(p50, 150.0, 80.0)),
        ("p99 in a burst, must <= 400, hope <= 300", verdict(p99, 400.0, 300.0)),
    ]
}

/// A day's ticks.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Bytes of other work before each tick.
    sweep: usize,
    /// Also when the app has the tick.
    is_split: bool,
    /// The ticks are worth no order.
    is_quiet: bool,
    /// The app fires, and does nothing else.
    is_bare: bool,
}

impl Run {
    fn split() -> Self {
        Self { is_split: true, ..Self::default() }
    }

    fn count(&self) -> usize {
        if self.sweep > 0 { TICKS / 20 } else { TICKS }
    }

    fn live(&self, clock_ns: f64, tape: &TapeWriter) -> Vec<Times> {
        self.ticks(Day::live(JOURNAL, tape), clock_ns)
    }

    fn replayed(&self, clock_ns: f64) -> Vec<Times> {
        let tape = TapeWriter::new();
        Self { sweep: 0, ..*self }.run(Day::live(JOURNAL, &tape), self.count(), clock_ns);
        self.ticks(Day::replayed(JOURNAL, tape.take()), clock_ns)
    }

    fn ticks(&self, day: Day, clock_ns: f64) -> Vec<Times> {
        let mut times = self.run(day, self.count(), clock_ns);
        // The first ones find cold code.
        times.split_off(self.count() / 10)
    }

    fn run(&self, mut day: Day, count: usize, clock_ns: f64) -> Vec<Times> {
        let notes = if self.is_split { Notes::AppAndPost } else { Notes::Post };
        let mut swept = vec![1_u8; self.sweep];
        let mut times = Vec::with_capacity(count);
        for idx in 0..count {
            if self.is_quiet {
                day.other()
            } else {
                day.offer()
            }
            swept.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&mut swept);
            day.fires_bare(self.is_bare);
            let turn = day.timed_turn(clock_ns, notes);
            day.fires_bare(false);
            assert_eq!(turn.to_post > 0.0, !self.is_quiet, "the order of tick {idx}");
            times.push(turn);
            day.finish();
            day.others(2);
        }
        times
    }
}

/// What two readings of the clock take, one after the other.
fn clock_ns() -> f64 {
    let mut times: Vec<_> = (0..10_001).map(|_| (Clock::now(), Clock::now())).map(|(a, b)| b - a).collect();
    times.sort();
    times[times.len() / 2].as_nanos() as f64
}

fn allocations_of(count: usize) -> u64 {
    let mut day = Day::live(JOURNAL, &TapeWriter::default());
    let mut allocated = 0;
    for _ in 0..count {
        day.offer();
        let before = allocations::count();
        day.turn();
        allocated += allocations::count() - before;
        day.finish();
    }
    allocated
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
