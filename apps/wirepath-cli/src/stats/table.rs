//! The report as a table for people: a tree of names, beside each its value, unit and rate.
//!
//! ```text
//! feed-handler  pid 4711  up 2m 03s
//! worker0
//!   last_poll      polling
//!   ethernet
//!     rx_frames    1,234,567 frames     1,234,567/s
//!     drop
//!       too_short          3 packets            0/s
//! ```

use std::time::{Duration, SystemTime};

use wirepath::counters::{Distribution, Reading, Sample, Unit, printable};
use wirepath::time;

use super::Process;

/// The whole table; zeros only where `all` asks for them.
pub(super) fn render(processes: &[Process], all: bool) -> String {
    let tables: Vec<String> = processes.iter().map(|process| render_process(process, all)).collect();
    tables.join("\n")
}

/// One line: its position in the tree, and the text beside the name.
struct Row {
    depth: usize,
    name: String,
    cells: Cells,
}

enum Cells {
    Scope,
    /// One text over all columns: a label, a histogram.
    Wide(String),
    Number {
        value: String,
        unit: Unit,
        rate: String,
    },
}

fn render_process(process: &Process, all: bool) -> String {
    let now = &process.now;
    let up = SystemTime::now().duration_since(now.started).unwrap_or_default();
    let whose = now.user.map_or(String::new(), |user| format!("  of user {user}"));
    let mut text = format!("{}  pid {}  up {}{whose}\n", now.app, now.pid, uptime(up));
    let rows = rows(process, all);
    if rows.is_empty() {
        text.push_str("nothing counted yet; --all shows the zeros\n");
        return text;
    }
    let names = rows.iter().map(|row| 2 * row.depth + row.name.len()).max().unwrap_or(0);
    let (values, rates) = widths(&rows);
    for row in &rows {
        let name = format!("{:indent$}{}", "", row.name, indent = 2 * row.depth);
        let line = match &row.cells {
            Cells::Scope => name,
            Cells::Wide(wide) => format!("{name:names$}  {wide}"),
            Cells::Number { value, unit, rate } => {
                format!("{name:names$}  {value:>values$} {unit:9}  {rate:>rates$}")
            }
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The lines of a process: a scope's name goes before its first value that is shown.
fn rows(process: &Process, all: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for sample in &process.now.samples {
        if !all && is_zero(&sample.reading) {
            continue;
        }
        let mut scopes: Vec<&str> = sample.name.split('/').collect();
        let name = scopes.pop().unwrap_or_default();
        let common = open.iter().zip(&scopes).take_while(|(open, scope)| open == scope).count();
        for (depth, scope) in scopes.iter().enumerate().skip(common) {
            rows.push(Row { depth, name: (*scope).to_owned(), cells: Cells::Scope });
        }
        rows.push(Row { depth: scopes.len(), name: name.to_owned(), cells: cells(sample, process) });
        open = scopes;
    }
    rows
}

fn cells(sample: &Sample, process: &Process) -> Cells {
    match &sample.reading {
        Reading::Text(text) => Cells::Wide(printable(text).to_string()),
        Reading::Histogram(distribution) => Cells::Wide(histogram(distribution, sample.unit)),
        Reading::Gauge(value) if sample.unit == Unit::ClockNanoseconds => {
            let moved = process.before.count(&sample.name) != Some(*value);
            Cells::Wide(if moved { "polling" } else { "stands still" }.to_owned())
        }
        Reading::Gauge(value) => Cells::Number { value: grouped(*value), unit: sample.unit, rate: String::new() },
        Reading::Counter(value) => {
            let change = process.now.change(&sample.name, &process.before);
            let rate = change.map_or(String::new(), |change| rate(change.per_second));
            Cells::Number { value: grouped(*value), unit: sample.unit, rate }
        }
    }
}

fn histogram(distribution: &Distribution, unit: Unit) -> String {
    let show = |value: u64| match unit {
        Unit::Nanoseconds => time::Duration::from_nanos(value).to_string(),
        unit => format!("{} {unit}", grouped(value)).trim_end().to_owned(),
    };
    let quantile = |quantile| show(distribution.quantile(quantile).unwrap_or(0));
    format!(
        "p50 {}  p99 {}  p99.9 {}  max {}  of {}",
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        show(distribution.max()),
        grouped(distribution.count())
    )
}

fn is_zero(reading: &Reading) -> bool {
    match reading {
        Reading::Counter(value) | Reading::Gauge(value) => *value == 0,
        Reading::Text(_) => false,
        Reading::Histogram(distribution) => distribution.count() == 0,
    }
}

fn widths(rows: &[Row]) -> (usize, usize) {
    rows.iter().fold((0, 0), |(values, rates), row| match &row.cells {
        Cells::Number { value, rate, .. } => (values.max(value.len()), rates.max(rate.len())),
        Cells::Scope | Cells::Wide(_) => (values, rates),
    })
}

fn rate(per_second: f64) -> String {
    // Below ten a second the fraction matters.
    if per_second > 0.0 && per_second < 10.0 {
        return format!("{per_second:.1}/s");
    }
    format!("{}/s", grouped(per_second.round() as u64))
}

/// Digits in groups of three.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn uptime(up: Duration) -> String {
    let seconds = up.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m {:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h {minutes:02}m"),
        _ => format!("{days}d {hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wirepath::counters::Block;

    /// The table of a block between two snapshots, without its first line.
    fn table(block: &Block, all: bool, meanwhile: impl FnOnce()) -> String {
        let before = block.snapshot();
        meanwhile();
        let mut now = block.snapshot();
        now.taken = before.taken + Duration::from_secs(1);
        let text = render(&[Process { now, before }], all);
        text.split_once('\n').unwrap().1.to_owned()
    }

    #[test]
    fn nothing_counted_says_so() {
        let block = Block::heap();
        let _rx = block.scope("worker0").counter("rx", Unit::Frames);
        assert_eq!(table(&block, false, || {}), "nothing counted yet; --all shows the zeros\n");
        assert_eq!(table(&block, true, || {}), "worker0\n  rx     0 frames     0/s\n");
    }

    #[test]
    fn tree_has_values_units_and_rates() {
        let block = Block::heap();
        let worker = block.scope("worker0");
        worker.text("device", "mlx5_0");
        let last_poll = worker.last_poll();
        let ethernet = worker.scope("ethernet");
        let (rx, _tx) = (ethernet.counter("rx_frames", Unit::Frames), ethernet.counter("tx_frames", Unit::Frames));
        let too_short = ethernet.drop_counter("too_short", Unit::Packets);
        too_short.add(3);
        let meanwhile = || {
            last_poll.set(17);
            rx.add(1_234_567);
        };
        assert_eq!(
            table(&block, false, meanwhile),
            "worker0\n\
             \x20 device         mlx5_0\n\
             \x20 last_poll      polling\n\
             \x20 ethernet\n\
             \x20   rx_frames    1,234,567 frames     1,234,567/s\n\
             \x20   drop\n\
             \x20     too_short          3 packets            0/s\n"
        );
    }

    #[test]
    fn worker_that_does_not_poll_stands_still() {
        let block = Block::heap();
        let last_poll = block.scope("w").last_poll();
        last_poll.set(5);
        assert_eq!(table(&block, false, || {}), "w\n  last_poll  stands still\n");
    }

    #[test]
    fn histogram_is_one_line_of_quantiles() {
        let block = Block::heap();
        let mut latency = block.scope("w").histogram("latency", Unit::Nanoseconds);
        latency.record(1_000);
        let expected = "w\n  latency  p50 1.00 µs  p99 1.00 µs  p99.9 1.00 µs  max 1.00 µs  of 1\n";
        assert_eq!(table(&block, false, || {}), expected);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, u64::MAX].map(grouped), ["0", "999", "1,000", "18,446,744,073,709,551,615"]);
        assert_eq!([0.0, 0.25, 12.4].map(rate), ["0/s", "0.2/s", "12/s"]);
        assert_eq!(
            [5, 65, 3_661, 90_000].map(|s| uptime(Duration::from_secs(s))),
            ["5s", "1m 05s", "1h 01m", "1d 01h"]
        );
    }
}
