//! What both benches share: a table of rows, each with nanoseconds, the least and the median of 401
//! batches, and with instructions, which callgrind counts where valgrind is installed.
//!
//! With the name of a row as its argument the program runs one batch of that row alone, as
//! callgrind does. With `rows` it prints the rows for the report of wirepath-benches, which
//! compares them with what is promised.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

/// Calls of a batch: some 100 microseconds, so that most batches are not interrupted.
pub(crate) const BATCH: u64 = 1_000;
const BATCHES: usize = 401;

/// A row: its name, what it measures, and a function that prepares and runs one [`batch`].
pub(crate) type Row = (&'static str, &'static str, fn() -> Duration);

/// Whether the report asks for rows.
pub(crate) fn wants_rows() -> bool {
    std::env::args().nth(1).is_some_and(|name| name == "rows")
}

/// Prints a row for the report: the median of sorted samples, the least and the greatest.
pub(crate) fn print_row(name: &str, unit: &str, samples: &[f64]) {
    let (median, least, most) = (samples[samples.len() / 2], samples[0], samples[samples.len() - 1]);
    println!("row\t{name}\t{unit}\t{median}\t{least}\t{most}");
}

/// Prints the table or its rows, or runs the row that the command line names. Whether it printed
/// them.
pub(crate) fn run(title: &str, rows: &[Row]) -> bool {
    if wants_rows() {
        for (name, _, row) in rows {
            let times: Vec<_> = times(BATCHES, row).iter().map(|&time| nanoseconds(time)).collect();
            print_row(name, "ns", &times);
        }
        return true;
    }
    let name = std::env::args().nth(1).filter(|name| !name.starts_with("--"));
    if let Some((_, _, row)) = name.and_then(|name| rows.iter().find(|row| row.0 == name)) {
        println!("{:?}", row());
        return false;
    }
    println!("{title:60} {:>8} {:>8} {:>13}", "ns least", "median", "instructions");
    for (name, text, row) in rows {
        let instructions = instructions(name).map_or_else(|| "no valgrind".into(), |count| format!("{count:.0}"));
        let times = times(BATCHES, row);
        let (least, median) = (times[0], times[BATCHES / 2]);
        println!("{text:60} {:8.1} {:8.1} {instructions:>13}", nanoseconds(least), nanoseconds(median));
    }
    true
}

/// Nanoseconds of a call of a batch.
fn nanoseconds(batch: Duration) -> f64 {
    batch.as_nanos() as f64 / BATCH as f64
}

/// The sorted times of `count` runs, behind one that warms up.
pub(crate) fn times(count: usize, run: impl Fn() -> Duration) -> Vec<Duration> {
    run();
    let mut times: Vec<_> = (0..count).map(|_| run()).collect();
    times.sort();
    times
}

/// The time of `count` calls of `call` with 0, 1, 2 and so on.
pub(crate) fn batch(count: u64, call: impl FnMut(u64) -> u64) -> Duration {
    let start = Instant::now();
    black_box(measured_loop(count, call));
    start.elapsed()
}

/// Callgrind counts within this function alone, so that what a row prepares is not counted.
#[inline(never)]
fn measured_loop(count: u64, mut call: impl FnMut(u64) -> u64) -> u64 {
    (0..count).fold(0, |sum, idx| sum.wrapping_add(call(black_box(idx))))
}

/// Instructions of one call, from a batch in a process of its own.
fn instructions(name: &str) -> Option<f64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(["--toggle-collect=*measured_loop*"]).arg(std::env::current_exe().ok()?).arg(name);
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let count: f64 = text.split("Collected :").nth(1)?.split_whitespace().next()?.parse().ok()?;
    Some(count / BATCH as f64)
}
