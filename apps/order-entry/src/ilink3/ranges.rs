//! Sets of numbers as a few ranges, without an allocation.

use super::Missing;

/// Ranges that a set holds. Each is one broken line, or one number out of the middle of another.
const RANGES_MAX: usize = 16;

/// Numbers, as ranges that rise and do not touch. Where a range too many comes, the lowest is given
/// up, and remembered as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    ranges: [Missing; RANGES_MAX],
    len: usize,
    /// Numbers below this one may have been given up.
    pub(super) given_up_below: u32,
}

impl Ranges {
    pub(super) const EMPTY: Self =
        Self { ranges: [Missing { from: 0, count: 0 }; RANGES_MAX], len: 0, given_up_below: 0 };

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn as_slice(&self) -> &[Missing] {
        &self.ranges[..self.len]
    }

    #[inline]
    pub(super) fn has(&self, number: u32) -> bool {
        self.as_slice().iter().any(|range| range.has(number))
    }

    /// Adds all numbers of `range`.
    pub(super) fn insert(&mut self, range: Missing) {
        if range.count == 0 {
            return;
        }
        let (mut from, mut end) = (u64::from(range.from), end(range));
        let before = core::mem::take(&mut self.ranges);
        let before = &before[..core::mem::take(&mut self.len)];
        for other in before {
            if end_touches(*other, from, end) {
                (from, end) = (from.min(u64::from(other.from)), end.max(self::end(*other)));
            }
        }
        let mut is_placed = false;
        for other in before.iter().filter(|other| !end_touches(**other, from, end)) {
            if !is_placed && u64::from(other.from) > from {
                self.push(of(from, end));
                is_placed = true;
            }
            self.push(*other);
        }
        if !is_placed {
            self.push(of(from, end));
        }
    }

    /// Takes out all numbers of `range`.
    pub(super) fn remove(&mut self, range: Missing) {
        if range.count == 0 {
            return;
        }
        let (from, end) = (u64::from(range.from), end(range));
        let before = core::mem::take(&mut self.ranges);
        let before = &before[..core::mem::take(&mut self.len)];
        for other in before {
            let (low, high) = (u64::from(other.from), self::end(*other));
            for (low, high) in [(low, high.min(from)), (low.max(end), high)] {
                if low < high {
                    self.push(of(low, high));
                }
            }
        }
    }

    fn push(&mut self, range: Missing) {
        if self.len == RANGES_MAX {
            let lowest = end(self.ranges[0]);
            self.given_up_below = self.given_up_below.max(u32::try_from(lowest).unwrap_or(u32::MAX));
            self.ranges.rotate_left(1);
            self.len -= 1;
        }
        self.ranges[self.len] = range;
        self.len += 1;
    }
}

/// The number behind a range.
fn end(range: Missing) -> u64 {
    u64::from(range.from) + u64::from(range.count)
}

/// Whether a range and the numbers `from..end` have one in common, or are next to each other.
fn end_touches(range: Missing, from: u64, end: u64) -> bool {
    u64::from(range.from) <= end && from <= self::end(range)
}

/// The numbers `from..end`, which are within 32 bits because `from` is.
fn of(from: u64, end: u64) -> Missing {
    Missing { from: from as u32, count: u32::try_from(end - from).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_hold_the_numbers_of_a_set(
            steps in prop::collection::vec((any::<bool>(), 0u32..30, 0u32..6), 0..40),
        ) {
            let (mut ranges, mut set) = (Ranges::EMPTY, BTreeSet::new());
            for (is_insert, from, count) in steps {
                let range = Missing { from, count };
                if is_insert {
                    ranges.insert(range);
                    set.extend(from..from + count);
                } else {
                    ranges.remove(range);
                    set.retain(|number| !range.has(*number));
                }
                prop_assert!((0..40).all(|number| ranges.has(number) == set.contains(&number)));
                prop_assert!(ranges.as_slice().windows(2).all(|two| end(two[0]) < u64::from(two[1].from)));
            }
        }
    }

    #[test]
    fn lowest_range_is_given_up_where_one_too_many_comes() {
        let mut ranges = Ranges::EMPTY;
        for idx in 0..=RANGES_MAX as u32 {
            ranges.insert(Missing { from: 10 * idx, count: 2 });
        }
        assert!(!ranges.has(1) && ranges.has(10) && ranges.has(10 * RANGES_MAX as u32 + 1));
        assert_eq!(ranges.given_up_below, 2);
        ranges.insert(Missing { from: u32::MAX, count: u32::MAX });
        ranges.remove(Missing { from: 0, count: u32::MAX });
        assert_eq!(ranges.as_slice(), [Missing { from: u32::MAX, count: u32::MAX }]);
    }
}
