//! Price levels of all books in one pool: for each side of a book a list from the best price on, an
//! array by price over those that are nearest to the best one (`window`), and a balanced tree of
//! those behind (`tree`).
//!
//! A level keeps its index in the pool while it lives, so an order stores its level's index. Near
//! the best price a level is found, added and removed in a few steps. Prices far from it need a
//! search in the tree: some ten steps for a thousand of them. The array follows the best price: a
//! price that becomes the best one from far away costs a step in the tree for each level that the
//! array has no place for any more, and the array takes them back when it is empty.

mod prefetch;
mod tree;
mod window;

use core::ops::{Deref, DerefMut};

use window::{Window, place};

use super::TopOfBook;
use crate::units::{Price, Side};

/// No level: where a side is empty, and beyond its last level.
pub const NONE: u32 = u32::MAX;

/// One side of one book. 288 bytes, of which the first 32 and a few of the others are in use at a
/// time.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Ladder {
    best: u32,
    /// The root of the tree of the levels behind the window, and the best of these.
    root: u32,
    behind: u32,
    window: Window,
}

impl Ladder {
    /// A side without levels.
    pub const EMPTY: Self = Self { best: NONE, root: NONE, behind: NONE, window: Window::EMPTY };

    /// The level with the best price, or [`NONE`].
    pub const fn best(&self) -> u32 {
        self.best
    }
}

/// The total at one price, which the books of a feed keep at each level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    pub(super) qty: u64,
    pub(super) orders: u32,
    pub(super) book: u32,
}

impl Total {
    /// Nothing yet, in `book`.
    pub(super) const fn none(book: u32) -> Self {
        Self { qty: 0, orders: 0, book }
    }
}

/// One price of one side, with what its owner keeps there: a level is used as its `T`. A cache
/// line, where `T` has 24 bytes at most.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Level<T> {
    data: T,
    /// Smaller is better, on both sides.
    key: i64,
    side: Side,
    priority: u32,
    left: u32,
    right: u32,
    better: u32,
    worse: u32,
}

impl<T> Level<T> {
    /// The side of its ladder.
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Its price.
    pub const fn price(&self) -> Price {
        Price(key(self.side, Price(self.key)))
    }

    /// No level of its ladder has a better price. Known without a look at the ladder.
    pub const fn is_best(&self) -> bool {
        self.better == NONE
    }

    /// The next level of the ladder, with a worse price, or [`NONE`].
    pub const fn worse(&self) -> u32 {
        self.worse
    }
}

impl<T> Deref for Level<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.data
    }
}

impl<T> DerefMut for Level<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.data
    }
}

/// Inverts bids, so that on both sides a smaller key is a better price. The function is its own
/// inverse and, unlike a negation, cannot overflow.
const fn key(side: Side, price: Price) -> i64 {
    match side {
        Side::Buy => !price.0,
        Side::Sell => price.0,
    }
}

/// The pool. It allocates when it is constructed, and never again.
#[derive(Clone, Debug)]
pub struct Levels<T> {
    pool: Vec<Level<T>>,
    /// First level that was freed; the others follow by `worse`.
    free: u32,
    /// Levels from here on were not used since the last clear.
    unused: u32,
    len: usize,
    random: u32,
}

impl<T: Copy + Default> Levels<T> {
    /// Room for `capacity` levels of 64 bytes each, more where a `T` has more than 24.
    pub fn new(capacity: usize) -> Self {
        let unused = Level {
            data: T::default(),
            key: 0,
            side: Side::Buy,
            priority: 0,
            left: NONE,
            right: NONE,
            better: NONE,
            worse: NONE,
        };
        Self { pool: vec![unused; capacity], free: NONE, unused: 0, len: 0, random: 0x9e37_79b9 }
    }

    /// Bytes that [`Levels::new`] allocates.
    pub const fn memory(capacity: u128) -> u128 {
        capacity * size_of::<Level<T>>() as u128
    }

    /// Frees all levels of all ladders. The cost does not depend on their number.
    pub fn clear(&mut self) {
        self.free = NONE;
        self.unused = 0;
        self.len = 0;
    }

    /// A level by its index.
    #[inline]
    pub fn get(&self, idx: u32) -> &Level<T> {
        &self.pool[idx as usize]
    }

    /// A level by its index, to change what its owner keeps there.
    #[inline]
    pub fn get_mut(&mut self, idx: u32) -> &mut Level<T> {
        &mut self.pool[idx as usize]
    }

    /// Levels in all ladders.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No ladder has a level.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The level at `price`.
    #[inline]
    pub fn find(&self, ladder: &Ladder, side: Side, price: Price) -> Option<u32> {
        let key = key(side, price);
        let mut at = NONE;
        if ladder.window.covers(place(key)) {
            at = ladder.window.first(place(key));
            // Where others share the entry, or follow it.
            while at != NONE && self.get(at).key < key {
                at = self.get(at).worse;
            }
        } else if ladder.root != NONE {
            at = self.find_in_tree(ladder, key);
        }
        (at != NONE && self.get(at).key == key).then_some(at)
    }

    /// Inserts a level that holds `data` at a `price` that [`Levels::find`] does not find. `None`
    /// where the pool is empty.
    #[inline]
    pub fn insert(&mut self, ladder: &mut Ladder, side: Side, price: Price, data: T) -> Option<u32> {
        let new = self.take_free()?;
        self.len += 1;
        let key = key(side, price);
        let level = self.get_mut(new);
        (level.data, level.key, level.side) = (data, key, side);
        if !ladder.window.covers(place(key)) {
            self.move_window(ladder, place(key));
        }
        let (better, worse) = if ladder.window.covers(place(key)) {
            self.put_into_window(ladder, key, new)
        } else {
            self.put_behind(ladder, new)
        };
        self.join(ladder, better, new);
        self.join(ladder, new, worse);
        Some(new)
    }

    /// Takes a level out of its ladder and frees it.
    #[inline]
    pub fn remove(&mut self, ladder: &mut Ladder, idx: u32) {
        let Level { key, better, worse, .. } = *self.get(idx);
        if ladder.window.covers(place(key)) {
            if ladder.window.first(place(key)) == idx {
                let is_shared = worse != NONE && place(self.get(worse).key) == place(key);
                ladder.window.set_first(place(key), if is_shared { worse } else { NONE });
            }
        } else {
            self.take_from_tree(ladder, idx);
            if ladder.behind == idx {
                ladder.behind = worse;
            }
        }
        self.join(ladder, better, worse);
        if ladder.window.is_empty() && ladder.behind != NONE {
            self.take_back(ladder);
        }
        let free = self.free;
        self.get_mut(idx).worse = free;
        self.free = idx;
        self.len -= 1;
    }

    /// The levels of a side, the best first.
    pub fn iter(&self, ladder: &Ladder) -> impl Iterator<Item = &Level<T>> {
        let mut at = ladder.best;
        core::iter::from_fn(move || {
            let level = self.pool.get(at as usize)?;
            at = level.worse;
            Some(level)
        })
    }

    fn take_free(&mut self) -> Option<u32> {
        if self.free != NONE {
            let free = self.free;
            self.free = self.get(free).worse;
            return Some(free);
        }
        if self.unused as usize == self.pool.len() {
            return None;
        }
        self.unused += 1;
        Some(self.unused - 1)
    }

    /// Puts a level into the window that covers its place, and gives the next better and the next
    /// worse one.
    #[inline]
    fn put_into_window(&mut self, ladder: &mut Ladder, key: i64, new: u32) -> (u32, u32) {
        let (mut better, mut worse) = (NONE, ladder.window.first(place(key)));
        if worse == NONE {
            worse = match ladder.window.next(place(key)) {
                NONE => ladder.behind,
                next => next,
            };
        } else {
            while worse != NONE && self.get(worse).key < key {
                (better, worse) = (worse, self.get(worse).worse);
            }
        }
        if better == NONE {
            better = if worse == NONE { self.last_of_window(ladder) } else { self.get(worse).better };
            ladder.window.set_first(place(key), new);
        }
        (better, worse)
    }

    /// The worst level of the window of a ladder that has none behind it, or [`NONE`].
    fn last_of_window(&self, ladder: &Ladder) -> u32 {
        let mut last = ladder.window.last();
        while last != NONE && self.get(last).worse != NONE {
            last = self.get(last).worse;
        }
        last
    }

    /// Puts a level behind the window, and gives the next better and the next worse one.
    #[cold]
    fn put_behind(&mut self, ladder: &mut Ladder, new: u32) -> (u32, u32) {
        let (better, worse) = self.put_into_tree(ladder, new);
        if better != NONE {
            return (better, worse);
        }
        ladder.behind = new;
        let better = if worse == NONE { self.last_of_window(ladder) } else { self.get(worse).better };
        (better, worse)
    }

    /// A level comes at a place that the window does not cover: moves the window there where that
    /// is better than all others, and back to the best price where that has gone far away.
    #[cold]
    fn move_window(&mut self, ladder: &mut Ladder, new: i64) {
        if ladder.best == NONE {
            ladder.window.move_to(new);
        } else if ladder.window.is_in_front(new) {
            self.send_back(ladder, new);
            ladder.window.move_to(new);
        } else if ladder.window.lags(place(self.get(ladder.best).key)) {
            self.take_back(ladder);
        }
    }

    /// Puts the levels behind the window that it will not cover once it is moved to `best`.
    fn send_back(&mut self, ladder: &mut Ladder, best: i64) {
        loop {
            let (first, end) = (ladder.window.last(), ladder.behind);
            if first == NONE || Window::would_cover(best, place(self.get(first).key)) {
                return;
            }
            ladder.window.set_first(place(self.get(first).key), NONE);
            ladder.behind = first;
            let mut at = first;
            while at != end {
                self.put_into_tree(ladder, at);
                at = self.get(at).worse;
            }
        }
    }

    /// Moves the window to the best level, and takes those from the tree that it covers then.
    #[cold]
    fn take_back(&mut self, ladder: &mut Ladder) {
        ladder.window.move_to(place(self.get(ladder.best).key));
        while ladder.behind != NONE && ladder.window.covers(place(self.get(ladder.behind).key)) {
            let idx = ladder.behind;
            self.take_from_tree(ladder, idx);
            let Level { key, worse, .. } = *self.get(idx);
            if ladder.window.first(place(key)) == NONE {
                ladder.window.set_first(place(key), idx);
            }
            ladder.behind = worse;
        }
    }

    /// Makes two levels neighbors in the list; [`NONE`] as the better one makes the other the best.
    fn join(&mut self, ladder: &mut Ladder, better: u32, worse: u32) {
        if better == NONE {
            ladder.best = worse;
        } else {
            self.get_mut(better).worse = worse;
        }
        if worse != NONE {
            self.get_mut(worse).better = better;
        }
    }
}

impl Levels<Total> {
    /// Best bid and offer of a book's two sides, [`Side::Buy`] first.
    #[inline]
    pub(super) fn top(&self, [bids, asks]: &[Ladder; 2]) -> TopOfBook {
        let best = |ladder: &Ladder| match ladder.best() {
            NONE => (Price::default(), 0),
            idx => (self.get(idx).price(), self.get(idx).qty),
        };
        let ((bid_px, bid_qty), (ask_px, ask_qty)) = (best(bids), best(asks));
        TopOfBook { bid_px, bid_qty, ask_px, ask_qty }
    }
}

#[cfg(test)]
mod tests;
