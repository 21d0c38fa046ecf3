//! A log-linear histogram in rows: each power of two is cut into the same number of steps, as many as leave the whole
//! readable.

use hdrhistogram::Histogram;

/// Lines that fit a screen with all that stands above them: one a row, and one a gap between rows.
const LINES_MAX: usize = 24;
/// Steps of a power of two, from fine to coarse.
const STEPS: [u64; 4] = [8, 4, 2, 1];

/// So many values from `from` to below `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
}

/// The rows that are not empty, in order.
pub(super) fn rows(values: &Histogram<u64>) -> Vec<Row> {
    let fitting = STEPS.iter().map(|&steps| cut(values, steps)).find(|rows| lines(rows) <= LINES_MAX);
    fitting.unwrap_or_else(|| cut(values, 1))
}

fn lines(rows: &[Row]) -> usize {
    rows.len() + rows.windows(2).filter(|pair| pair[0].to != pair[1].from).count()
}

fn cut(values: &Histogram<u64>, steps: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for value in values.iter_recorded() {
        let count = value.count_since_last_iteration();
        let (from, to) = step(value.value_iterated_to(), steps);
        match rows.last_mut() {
            Some(row) if row.from == from => row.count += count,
            _ => rows.push(Row { from, to, count }),
        }
    }
    rows
}

/// Where the step that `value` is in begins, and where the next one does.
fn step(value: u64, steps: u64) -> (u64, u64) {
    let octave = 1 << value.max(1).ilog2();
    // Below the number of steps each value is a step of its own.
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
        check(&[1024, 1100, 1151, 1152], &[(1024, 1152, 3), (1152, 1280, 1)]);
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
