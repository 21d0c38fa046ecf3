//! A log-linear histogram in rows: each power of two is split into the same number of steps, as
//! many as keep the histogram readable. The slowest hundredth may span from microseconds to
//! seconds, so it has one row for each power of two and does not displace the other rows.

use hdrhistogram::Histogram;

/// Lines that fit a screen with the text above: one for each row and each gap between rows.
const LINES_MAX: usize = 28;
/// Steps of a power of two, from fine to coarse.
const STEPS: [u64; 6] = [32, 16, 8, 4, 2, 1];
/// The quantile at which the tail begins.
const TAIL: f64 = 0.99;

/// The number of values from `from` to below `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
}

/// The rows that are not empty, in order.
pub(super) fn rows(values: &Histogram<u64>) -> Vec<Row> {
    let body_end = values.value_at_quantile(TAIL);
    let fitting = STEPS.iter().map(|&steps| cut(values, steps, body_end)).find(|rows| lines(rows) <= LINES_MAX);
    fitting.unwrap_or_else(|| cut(values, 1, body_end))
}

fn lines(rows: &[Row]) -> usize {
    rows.len() + rows.windows(2).filter(|pair| pair[0].to != pair[1].from).count()
}

/// Rows with `steps` a power of two up to `body_end`, and with one after it.
fn cut(values: &Histogram<u64>, steps: u64, body_end: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for iterated in values.iter_recorded() {
        let (value, count) = (iterated.value_iterated_to(), iterated.count_since_last_iteration());
        let (from, to) = step(value, if value <= body_end { steps } else { 1 });
        match rows.last_mut() {
            Some(row) if value < row.to => row.count += count,
            // The first row of the tail begins where the body ends.
            last => {
                let from = last.map_or(from, |row| from.max(row.to));
                rows.push(Row { from, to, count });
            }
        }
    }
    rows
}

/// The start of the step that `value` is in, and that of the next one.
fn step(value: u64, steps: u64) -> (u64, u64) {
    let octave = 1 << value.max(1).ilog2();
    // Below the number of steps each value is its own step.
    let width = (octave / steps).max(1);
    let from = value / width * width;
    (from, from + width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[u64], expected: &[(u64, u64, u64)]) {
        let mut histogram = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
        values.iter().for_each(|&value| histogram.record(value).unwrap());
        let rows: Vec<_> = rows(&histogram).iter().map(|row| (row.from, row.to, row.count)).collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn nothing_has_no_rows() {
        check(&[], &[]);
    }

    #[test]
    fn narrow_values_get_fine_steps() {
        check(&[1024, 1030, 1055, 1056], &[(1024, 1056, 3), (1056, 1088, 1)]);
    }

    #[test]
    fn few_slow_ones_leave_the_others_their_fine_steps() {
        let fast = (0..500).map(|idx| 1024 + idx % 64);
        let slow = [1_100, 9_000, 10_000, 1 << 30];
        let rows = [(1024, 1056, 256), (1056, 1088, 244), (1088, 2048, 1), (8192, 16_384, 2), (1 << 30, 2 << 30, 1)];
        check(&fast.chain(slow).collect::<Vec<_>>(), &rows);
    }

    #[test]
    fn wide_values_get_coarse_steps() {
        let octaves: Vec<u64> = (0..20).flat_map(|bit| [1 << (bit + 10), 3 << (bit + 9)]).collect();
        let rows: Vec<_> = (0..20).map(|bit| (1 << (bit + 10), 2 << (bit + 10), 2)).collect();
        check(&octaves, &rows);
    }

    #[test]
    fn smallest_values_are_steps_of_one() {
        check(&[1, 2, 3], &[(1, 2, 1), (2, 3, 1), (3, 4, 1)]);
    }
}
