//! Ladders and levels fetched into the cache before they are needed.

use super::window::place;
use super::{Ladder, Levels, NONE, key};
use crate::book::prefetch::prefetch;
use crate::units::{Price, Side};

impl Ladder {
    /// Fetches into the cache what a search for the level at `price` begins with.
    #[inline]
    pub(in crate::book) fn prefetch(&self, side: Side, price: Price) {
        prefetch(self);
        self.window.prefetch(place(key(side, price)));
    }
}

impl<T: Copy + Default> Levels<T> {
    /// Fetches a level into the cache. Nothing where there is none.
    #[inline]
    pub fn prefetch(&self, idx: u32) {
        if let Some(level) = self.pool.get(idx as usize) {
            prefetch(level);
        }
    }

    /// Fetches the level at `price`, where it is one of those near the best.
    #[inline]
    pub(in crate::book) fn prefetch_at(&self, ladder: &Ladder, side: Side, price: Price) {
        let place = place(key(side, price));
        if ladder.window.covers(place) && ladder.window.first(place) != NONE {
            self.prefetch(ladder.window.first(place));
        }
    }
}
