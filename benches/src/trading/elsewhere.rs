//! Rows of benches that are in other packages, beside what they measure: each prints them where its
//! argument is `rows`.

use std::env;
use std::process::{Command, Stdio};
use std::thread::{Builder, JoinHandle};

use wirepath::worker::affinity;

use crate::measure::sampling::Spread;
use crate::measure::table::{Bound, Line, Promise};

/// A row, by the names that its bench gives it.
struct Row {
    package: &'static str,
    bench: &'static str,
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    /// None for a floor, and for what only explains its neighbor.
    promise: Option<Promise>,
}

const fn at_most(must: f64, hope: Option<f64>) -> Option<Promise> {
    Some(Promise { bound: Bound::AtMost, must, hope })
}

const fn at_least(must: f64, hope: Option<f64>) -> Option<Promise> {
    Some(Promise { bound: Bound::AtLeast, must, hope })
}

const fn row(
    (package, bench, name): (&'static str, &'static str, &'static str),
    (what, unit): (&'static str, &'static str),
    promise: Option<Promise>,
) -> Row {
    Row { package, bench, name, what, unit, promise }
}

const ORDERS: &str = "wirepath-order-entry";
const RING: &str = "wirepath-market-ring";

/// Rows of one bench are neighbors.
const ROWS: [Row; 17] = [
    row(
        (ORDERS, "tick_to_trade", "p50"),
        ("tick to trade in memory: a frame in the ring, an OUCH order posted, p50", "ns"),
        at_most(150.0, Some(80.0)),
    ),
    row((ORDERS, "tick_to_trade", "p99"), ("  p99", "ns"), at_most(400.0, Some(300.0))),
    row((ORDERS, "tick_to_trade", "allocations"), ("  allocations in 20,000", "count"), at_most(0.0, None)),
    row((ORDERS, "tick_to_trade", "system-calls"), ("  system calls in 500", "count"), at_most(0.0, None)),
    row((ORDERS, "orders", "check"), ("all risk checks of a new order", "ns"), at_most(50.0, Some(25.0))),
    row((ORDERS, "orders", "append"), ("an intent appended to the journal", "ns"), at_most(60.0, Some(30.0))),
    row(
        (ORDERS, "orders", "replay-million"),
        ("a journal of a million records replayed", "s"),
        at_most(0.5, Some(0.2)),
    ),
    row(
        ("order-gateway", "restart", "first-order"),
        ("restart of a gateway on a journal of a million records of its own, to its first order", "s"),
        at_most(1.0, None),
    ),
    row((ORDERS, "fix", "encode"), ("FIX NewOrderSingle from a template", "ns"), at_most(60.0, Some(30.0))),
    row((ORDERS, "fix", "parse"), ("FIX ExecutionReport framed, checked and read", "ns"), at_most(200.0, Some(100.0))),
    row(
        ("wirepath-matching-engine", "flow", "mixed-flow"),
        ("matching engine, mixed flow, one core", "M/s"),
        at_least(5.0, Some(10.0)),
    ),
    row(
        (RING, "fanout", "latency"),
        ("shared-memory fan-out: write to read in another process, p50", "ns"),
        at_most(200.0, Some(100.0)),
    ),
    row((RING, "fanout", "reader"), ("  a reader, added to a write", "%"), at_most(1.0, None)),
    row((RING, "fanout", "floor"), ("  the floor: a loop that loads, added to bare stores of a record", "%"), None),
    row((RING, "fanout", "patient-reader"), ("  a reader that looks again after 0.8 µs, added to a write", "%"), None),
    row(
        (RING, "fanout", "reader-of-feed"),
        ("  a reader, added to 50 ns of decoding and a write", "%"),
        at_most(1.0, None),
    ),
    row(
        ("market-gateway-nats", "fanout", "delivered"),
        ("NATS, one publisher: events delivered to four subscribers, in batches", "M/s"),
        at_least(1.0, Some(3.0)),
    ),
];

/// All lines, each bench when its first row comes.
pub(super) fn lines(mut add: impl FnMut(Line)) {
    let mut ran = (("", ""), Err(String::new()));
    for Row { package, bench, name, what, unit, promise } in ROWS {
        if ran.0 != (package, bench) {
            ran = ((package, bench), run(package, bench));
        }
        let found = ran.1.as_ref().map_err(Clone::clone).and_then(|output| find(output, name, unit));
        let line = Line::new(what, unit, found);
        add(match promise {
            Some(promise) => line.promising(promise),
            None => line,
        });
    }
}

/// What a bench prints. Cargo builds it where it is not built. A helper starts it, because the core
/// of this thread would be that of all its processes.
fn run(package: &str, bench: &str) -> Result<String, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["bench", "--quiet", "-p", package, "--bench", bench, "--", "rows"]).stderr(Stdio::inherit());
    let helper = affinity::spawn_helper(Builder::new().name("bench".into()), move || command.output());
    let output = helper.map(JoinHandle::join).map_err(|error| format!("no helper starts: {error}"))?;
    let output =
        output.map_err(|_| "the helper panicked")?.map_err(|error| format!("cargo does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("cargo bench -p {package} --bench {bench} failed")) }
}

/// The row of this name: `row`, its name, the unit, the median, the least, the greatest, between
/// tabs.
fn find(output: &str, name: &str, unit: &str) -> Result<Spread, String> {
    let rows = output.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let mut found = rows.filter(|row| row.first() == Some(&"row") && row.get(1) == Some(&name));
    let row = found.next().ok_or_else(|| format!("the bench has no row {name}: run it by itself"))?;
    let number = |at: usize| row.get(at).and_then(|text| text.parse::<f64>().ok());
    match (row.get(2) == Some(&unit), number(3), number(4), number(5)) {
        (true, Some(median), Some(min), Some(max)) => Ok(Spread { median, min, max }),
        _ => Err(format!("the row {name} is not in {unit}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_found_by_its_name_and_unit() {
        let output = "a table\nrow\tp50\tns\t90.5\t90\t91\nrow\tp99\tns\t300\t300\t300\n";
        assert_eq!(find(output, "p50", "ns"), Ok(Spread { median: 90.5, min: 90.0, max: 91.0 }));
        assert!(find(output, "p50", "s").is_err() && find(output, "p90", "ns").is_err());
        assert!(find("row\tp50\tns\tmany\t1\t2", "p50", "ns").is_err());
    }

    #[test]
    fn rows_of_a_bench_are_neighbors() {
        let mut benches: Vec<_> = ROWS.iter().map(|row| (row.package, row.bench)).collect();
        benches.dedup();
        let all = benches.len();
        benches.sort_unstable();
        benches.dedup();
        assert_eq!(benches.len(), all, "else a bench runs twice");
    }
}
