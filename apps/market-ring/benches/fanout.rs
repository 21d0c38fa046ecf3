//! How long a record takes from its writer to a reader in another process, and what that reader
//! costs the writer: `cargo bench -p wirepath-market-ring --bench fanout`.
//!
//! Writer and reader spin, each on a core of its own. Where there are no two idle cores that share
//! a cache, the figures are those of the scheduler.
#![allow(clippy::unwrap_used, missing_docs, reason = "a panic is the report of a bench")]

use std::env;
use std::hint::spin_loop;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use market::event::{Event, System};
use market_ring::{Read, Record, RingConfig, RingReader, RingWriter};
use rustix::time::{ClockId, clock_gettime};

/// Records whose way is timed, and the time between two: the reader waits for each.
const RECORDS: u64 = 200_000;
const PAUSE: Duration = Duration::from_micros(2);
/// The writer's cost is timed by batches of so many, as many with a reader as without.
const BATCH: u64 = 1_000;
const BATCHES: usize = 1_001;
/// An even number: a round without a reader and one with one take turns at being first, so that
/// what the machine does in the meantime falls on both.
const ROUNDS: usize = 8;

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [word, path] = &arguments[..]
        && word == "reader"
    {
        return read(Path::new(path));
    }
    let folder = tempfile::tempdir().unwrap();
    let latency = latency(&folder.path().join("timed"));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let path = folder.path().join(round.to_string());
        if round % 2 == 0 {
            without.push(cost_without(&path));
            with.push(cost_with(&path));
        } else {
            with.push(cost_with(&path));
            without.push(cost_without(&path));
        }
    }
    let effects: Vec<_> = with.iter().zip(&without).map(|(with, without)| (with / without - 1.0) * 100.0).collect();
    if arguments.first().is_some_and(|word| word == "rows") {
        print_row("latency", "ns", latency);
        return print_row("reader", "%", median(effects));
    }
    println!(
        "write to read in another process: {:.0} ns in the median, {:.0} to {:.0}",
        latency.0, latency.1, latency.2
    );
    println!("a write: {:.1} ns without a reader, {:.1} ns with one", median(without).0, median(with).0);
}

/// The median, the least and the greatest of the way of a record.
fn latency(path: &Path) -> (f64, f64, f64) {
    let mut writer = RingWriter::create(path, &RingConfig::default()).unwrap();
    let mut reader = Reader::start(path);
    let mut next = Instant::now();
    for number in 1..=RECORDS {
        next += PAUSE;
        while Instant::now() < next {
            spin_loop();
        }
        let record = Record::new(number, Event::System(System { code: b'O', at_ns: 0 }));
        writer.publish(&Record { publish_ns: now_ns(), ..record });
    }
    writer.publish(&last());
    let line = reader.end();
    let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap(), numbers.next().unwrap())
}

fn cost_without(path: &Path) -> f64 {
    cost(&mut RingWriter::create(path, &RingConfig::default()).unwrap())
}

fn cost_with(path: &Path) -> f64 {
    let mut writer = RingWriter::create(path, &RingConfig::default()).unwrap();
    let mut reader = Reader::start(path);
    let cost = cost(&mut writer);
    writer.publish(&last());
    reader.end();
    cost
}

/// Nanoseconds of a write, in the median of batches, by the thread's own time: where the machine
/// gives the core to someone else, the writer pays nothing.
fn cost(writer: &mut RingWriter) -> f64 {
    let record = Record::new(0, Event::System(System { code: b'O', at_ns: 0 }));
    let batch = |_| {
        let started = thread_time();
        for _ in 0..BATCH {
            writer.publish(&record);
        }
        (thread_time() - started).as_nanos() as f64 / BATCH as f64
    };
    median((0..BATCHES).map(batch).collect()).0
}

/// The record that ends a reader.
const fn last() -> Record {
    Record::new(u64::MAX, Event::System(System { code: b'C', at_ns: 0 }))
}

/// A reader in another process.
struct Reader(Child);

impl Reader {
    /// Reads when this returns.
    fn start(path: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        let mut child = command.arg("reader").arg(path).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        let mut output = BufReader::with_capacity(1, child.stdout.as_mut().unwrap());
        output.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self(child)
    }

    /// What it says at its end.
    fn end(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(self.0.wait().unwrap().success());
        line
    }
}

/// The other process: times each record that has a time, until the last one.
fn read(path: &Path) {
    let mut reader = RingReader::open(path).unwrap();
    let mut times = Vec::with_capacity(RECORDS as usize);
    println!("ready");
    loop {
        match reader.read() {
            Read::Record { record, .. } if record.venue_seq == u64::MAX => break,
            Read::Record { record, .. } if record.publish_ns > 0 => {
                times.push(now_ns().saturating_sub(record.publish_ns) as f64);
            }
            Read::Empty => spin_loop(),
            _ => (),
        }
    }
    let (median, least, greatest) = median(times);
    println!("{median} {least} {greatest}");
}

/// The median, the least and the greatest; zeros of none.
fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or_default();
    (at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
}

/// For the report of wirepath-benches.
fn print_row(name: &str, unit: &str, (median, least, greatest): (f64, f64, f64)) {
    println!("row\t{name}\t{unit}\t{median}\t{least}\t{greatest}");
}

/// The time that the kernel gave this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Both processes have this clock.
fn now_ns() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}
