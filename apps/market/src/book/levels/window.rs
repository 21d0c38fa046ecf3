//! The prices of a side that are nearest to its best: an array by price, in which a level is found,
//! put and taken out without a search.

use super::NONE;
use crate::book::prefetch::prefetch;

/// Prices that share an entry: 64 of a ten-thousandth each, so that whole cents have an entry each.
/// Levels of one entry follow each other in the ladder's list.
const ENTRY_BITS: u32 = 6;
/// Entries of a window: the bits of a word. They span 41 cents.
const SPAN: i64 = u64::BITS as i64;
/// Entries in front of the best price of a window that is placed anew, because the next level may
/// be better: ten cents.
const LEAD: i64 = 16;

/// The window. Entry by entry its levels are better than all that are behind it; there are none in
/// front of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The first place that it covers.
    start: i64,
    /// Entries that have a level, by the low bits of their place.
    taken: u64,
    /// The best level of each entry, or [`NONE`], by the low bits of its place.
    firsts: [u32; SPAN as usize],
}

/// An entry's place in the order of all prices, the best first.
#[inline]
pub(super) const fn place(key: i64) -> i64 {
    key >> ENTRY_BITS
}

impl Window {
    pub(super) const EMPTY: Self = Self { start: 0, taken: 0, firsts: [NONE; SPAN as usize] };

    pub(super) const fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Whether the place is one of the window's.
    #[inline]
    pub(super) const fn covers(&self, place: i64) -> bool {
        (place.wrapping_sub(self.start) as u64) < SPAN as u64
    }

    /// Whether the place is in front of the window: better than all that it covers.
    pub(super) const fn is_in_front(&self, place: i64) -> bool {
        place < self.start
    }

    /// Whether the window would cover many more levels if it were placed anew at the best one.
    pub(super) const fn lags(&self, best: i64) -> bool {
        best - self.start > 2 * LEAD
    }

    /// Covers other places: a few in front of `best` and those behind it. Levels of places that are
    /// then covered no more must have left.
    pub(super) const fn move_to(&mut self, best: i64) {
        self.start = best - LEAD;
    }

    /// Whether the place would be covered by a window that was [moved](Self::move_to) to `best`.
    pub(super) const fn would_cover(best: i64, place: i64) -> bool {
        place < best - LEAD + SPAN
    }

    /// Fetches the entry of a place into the cache, whether it is covered or not.
    #[inline]
    pub(super) fn prefetch(&self, place: i64) {
        prefetch(&self.firsts[entry(place)]);
    }

    /// The best level at a place that is covered, or [`NONE`].
    #[inline]
    pub(super) const fn first(&self, place: i64) -> u32 {
        self.firsts[entry(place)]
    }

    /// Makes a level, or [`NONE`], the best one of a place that is covered.
    #[inline]
    pub(super) const fn set_first(&mut self, place: i64, level: u32) {
        let bit = 1 << entry(place);
        self.firsts[entry(place)] = level;
        self.taken = if level == NONE { self.taken & !bit } else { self.taken | bit };
    }

    /// The best level behind a place that is covered, or [`NONE`].
    #[inline]
    pub(super) const fn next(&self, place: i64) -> u32 {
        // The entries in the order of their places, and of those the ones behind.
        let behind = self.taken.rotate_right(entry(self.start) as u32) & ((u64::MAX - 1) << (place - self.start));
        match behind {
            0 => NONE,
            behind => self.firsts[entry(self.start + behind.trailing_zeros() as i64)],
        }
    }

    /// The best level of the last entry that has one, or [`NONE`].
    pub(super) const fn last(&self) -> u32 {
        match self.taken.rotate_right(entry(self.start) as u32) {
            0 => NONE,
            taken => self.firsts[entry(self.start + (SPAN - 1 - taken.leading_zeros() as i64))],
        }
    }
}

#[inline]
const fn entry(place: i64) -> usize {
    (place & (SPAN - 1)) as usize
}
