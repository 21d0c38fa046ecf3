//! How long a record takes from its writer to a reader in another process, and what that reader
//! costs the writer: `cargo bench -p wirepath-market-ring --bench fanout`.
//!
//! A writer that does nothing else writes faster than a cache line gets from one core to another:
//! what a reader adds then is beside its floor, the same stores and loads without a ring around
//! them. A feed handler decodes a message and updates a book before it writes.
//!
//! Writer and reader spin, each on a core of its own. Where there are no two idle cores that share
//! a cache, the figures are those of the scheduler.
#![allow(clippy::unwrap_used, missing_docs, reason = "a panic is the report of a bench")]

use std::array;
use std::env;
use std::hint::{black_box, spin_loop};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
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
const ROUNDS: usize = 24;
/// Steps of arithmetic that take as long as a message of a feed until it is written, some 50 ns.
const DECODING: u32 = 60;
/// Times that a patient reader spins where there is nothing new: some 0.8 µs here.
const PATIENCE: u32 = 32;

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [word, path, patience] = &arguments[..]
        && word == "reader"
    {
        return read(Path::new(path), patience.parse().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let latency = latency(&path);
    let ring = |steps, patience| effect(&|reads| cost(&path, steps, reads.then_some(patience)));
    let rows = [
        ("reader", ring(0, 1)),
        ("floor", effect(&floor)),
        ("patient-reader", ring(0, PATIENCE)),
        ("reader-of-feed", ring(DECODING, 1)),
    ];
    if arguments.first().is_some_and(|word| word == "rows") {
        print_row("latency", "ns", latency);
        return rows.into_iter().for_each(|(name, added)| print_row(name, "%", added));
    }
    println!(
        "write to read in another process: {:.0} ns in the median, {:.0} to {:.0}",
        latency.0, latency.1, latency.2
    );
    for (name, (median, least, greatest)) in rows {
        println!("{name}: a reader adds {median:.1} % to a write, {least:.1} to {greatest:.1}");
    }
}

/// What a reader adds to a write, in percent: the median, the least and the greatest of the rounds.
fn effect(cost: &dyn Fn(bool) -> f64) -> (f64, f64, f64) {
    let round = |round: usize| {
        let reads_first = round % 2 == 1;
        let (first, second) = (cost(reads_first), cost(!reads_first));
        let (without, with) = if reads_first { (second, first) } else { (first, second) };
        (with / without - 1.0) * 100.0
    };
    median((0..ROUNDS).map(round).collect())
}

/// The median, the least and the greatest of the way of a record.
fn latency(path: &Path) -> (f64, f64, f64) {
    let mut writer = RingWriter::create(path, &RingConfig::default()).unwrap();
    let mut reader = Reader::start(path, 1);
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

/// Nanoseconds of a write behind `steps` of decoding, with a reader of this patience or without
/// one.
fn cost(path: &Path, steps: u32, patience: Option<u32>) -> f64 {
    let mut writer = RingWriter::create(path, &RingConfig::default()).unwrap();
    let reader = patience.map(|patience| Reader::start(path, patience));
    let record = Record::new(0, Event::System(System { code: b'O', at_ns: 0 }));
    let cost = time(|| {
        decode(steps);
        writer.publish(&record);
    });
    writer.publish(&last());
    reader.into_iter().for_each(|mut reader| _ = reader.end());
    cost
}

/// Each step waits for the one before it.
fn decode(steps: u32) {
    (0..steps).fold(1, |value: u64, _| black_box(value).wrapping_mul(0x5851_f42d_4c95_7f2d));
}

/// The same stores as those of a record, sixteen words of which the first comes last, into memory
/// as large as the ring, and another core that loads each word once.
fn floor(reads: bool) -> f64 {
    let records = RingConfig::default().records;
    let ring: Arc<[[AtomicU64; 16]]> = (0..records).map(|_| array::from_fn(|_| AtomicU64::new(0))).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = reads.then(|| {
        let (ring, is_over) = (Arc::clone(&ring), Arc::clone(&is_over));
        thread::spawn(move || load_all(&ring, &is_over))
    });
    let mut number = 0;
    let cost = time(|| {
        let [stamp, body @ ..] = &ring[number as usize % records];
        body.iter().for_each(|word| word.store(number, Ordering::Relaxed));
        number += 1;
        stamp.store(number, Ordering::Release);
    });
    is_over.store(true, Ordering::Relaxed);
    reader.into_iter().for_each(|reader| _ = reader.join().unwrap());
    cost
}

fn load_all(ring: &[[AtomicU64; 16]], is_over: &AtomicBool) -> u64 {
    let (mut number, mut sum) = (0, 0_u64);
    while !is_over.load(Ordering::Relaxed) {
        let [stamp, body @ ..] = &ring[number as usize % ring.len()];
        match stamp.load(Ordering::Acquire) {
            stamp if stamp <= number => spin_loop(),
            stamp => {
                sum = body.iter().fold(sum, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)));
                number = stamp;
            }
        }
    }
    sum
}

/// Nanoseconds of a call, in the median of batches, by the thread's own time: where the machine
/// gives the core to someone else, the writer pays nothing.
fn time(mut write: impl FnMut()) -> f64 {
    let batch = |_| {
        let started = thread_time();
        (0..BATCH).for_each(|_| write());
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
    fn start(path: &Path, patience: u32) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        let mut child =
            command.arg("reader").arg(path).arg(patience.to_string()).stdout(Stdio::piped()).spawn().unwrap();
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

/// The other process: times each record that has a time, until the last one. Spins `patience` times
/// where there is nothing new.
fn read(path: &Path, patience: u32) {
    let mut reader = RingReader::open(path).unwrap();
    let mut times = Vec::with_capacity(RECORDS as usize);
    println!("ready");
    loop {
        match reader.read() {
            Read::Record { record, .. } if record.venue_seq == u64::MAX => break,
            Read::Record { record, .. } if record.publish_ns > 0 => {
                times.push(now_ns().saturating_sub(record.publish_ns) as f64);
            }
            Read::Empty => (0..patience).for_each(|_| spin_loop()),
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
