//! Price levels of all books in one pool: for each side of a book a balanced tree and a list from
//! the best price on.
//!
//! A level keeps its index in the pool while it lives, so an order stores its level's index. The
//! tree is a treap: its shape follows from randomly drawn priorities, not from the prices that a
//! feed sends, so no order of arrival makes it deep. The left side has the better prices.

use core::ops::{Deref, DerefMut};

use super::TopOfBook;
use crate::units::{Price, Side};

/// No level: where a side is empty, and beyond its last level.
pub const NONE: u32 = u32::MAX;

/// One side of one book.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    root: u32,
    best: u32,
}

impl Ladder {
    /// A side without levels.
    pub const EMPTY: Self = Self { root: NONE, best: NONE };

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

/// One price of one side, with what its owner keeps there: a level is used as its `T`.
#[derive(Clone, Copy, Debug)]
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

/// A field in the tree that holds an index.
#[derive(Clone, Copy)]
enum ChildLink {
    Root,
    Left(u32),
    Right(u32),
}

impl<T: Copy + Default> Levels<T> {
    /// Room for `capacity` levels of 40 bytes and a `T` each.
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

    /// The level at `price`. Most updates are at the best price, so that is tested first.
    #[inline]
    pub fn find(&self, ladder: &Ladder, side: Side, price: Price) -> Option<u32> {
        let key = key(side, price);
        if ladder.best != NONE && self.get(ladder.best).key == key {
            return Some(ladder.best);
        }
        let mut at = ladder.root;
        while at != NONE {
            let level = self.get(at);
            if level.key == key {
                return Some(at);
            }
            at = if key < level.key { level.left } else { level.right };
        }
        None
    }

    /// Inserts a level that holds `data` at a `price` that [`Levels::find`] does not find. `None`
    /// where the pool is empty.
    pub fn insert(&mut self, ladder: &mut Ladder, side: Side, price: Price, data: T) -> Option<u32> {
        let new = self.take_free()?;
        self.len += 1;
        let (key, priority) = (key(side, price), self.draw_priority());

        // Walks the whole path to `key`; the last turn each way gives the neighbors.
        let (mut better, mut worse) = (NONE, NONE);
        let (mut link, mut at) = (ChildLink::Root, ladder.root);
        while at != NONE && self.get(at).priority >= priority {
            if key < self.get(at).key {
                (worse, link, at) = (at, ChildLink::Left(at), self.get(at).left);
            } else {
                (better, link, at) = (at, ChildLink::Right(at), self.get(at).right);
            }
        }
        self.set(ladder, link, new);
        // The subtree below has lower priority: it is split at `key` and attached below the new
        // level.
        let (mut left, mut right) = (ChildLink::Left(new), ChildLink::Right(new));
        while at != NONE {
            if key < self.get(at).key {
                self.set(ladder, right, at);
                (worse, right, at) = (at, ChildLink::Left(at), self.get(at).left);
            } else {
                self.set(ladder, left, at);
                (better, left, at) = (at, ChildLink::Right(at), self.get(at).right);
            }
        }
        self.set(ladder, left, NONE);
        self.set(ladder, right, NONE);

        let level = self.get_mut(new);
        level.data = data;
        (level.key, level.side, level.priority) = (key, side, priority);
        self.join(ladder, better, new);
        self.join(ladder, new, worse);
        Some(new)
    }

    /// Takes a level out of its ladder and frees it.
    pub fn remove(&mut self, ladder: &mut Ladder, idx: u32) {
        let Level { key, mut left, mut right, better, worse, .. } = *self.get(idx);
        let (mut link, mut at) = (ChildLink::Root, ladder.root);
        while at != idx {
            assert!(at != NONE, "a level is removed from the ladder it is in");
            (link, at) = if key < self.get(at).key {
                (ChildLink::Left(at), self.get(at).left)
            } else {
                (ChildLink::Right(at), self.get(at).right)
            };
        }
        // Its two subtrees replace it, merged by priority.
        while left != NONE && right != NONE {
            if self.get(left).priority >= self.get(right).priority {
                self.set(ladder, link, left);
                (link, left) = (ChildLink::Right(left), self.get(left).right);
            } else {
                self.set(ladder, link, right);
                (link, right) = (ChildLink::Left(right), self.get(right).left);
            }
        }
        self.set(ladder, link, if left == NONE { right } else { left });
        self.join(ladder, better, worse);

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

    fn set(&mut self, ladder: &mut Ladder, link: ChildLink, to: u32) {
        match link {
            ChildLink::Root => ladder.root = to,
            ChildLink::Left(at) => self.get_mut(at).left = to,
            ChildLink::Right(at) => self.get_mut(at).right = to,
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

    /// Marsaglia's xorshift with 32 bits: never 0, period 2^32 - 1.
    fn draw_priority(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
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
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn depth(levels: &Levels<Total>, at: u32) -> usize {
        if at == NONE {
            return 0;
        }
        1 + depth(levels, levels.get(at).left).max(depth(levels, levels.get(at).right))
    }

    #[test]
    fn rising_prices_do_not_make_a_deep_tree() {
        let mut levels = Levels::new(4096);
        let mut ladder = Ladder::EMPTY;
        for price in 0..4096 {
            levels.insert(&mut ladder, Side::Sell, Price(price), Total::none(0)).unwrap();
        }
        // Twelve steps are the least for 4,096 levels; a treap needs about twice that.
        assert!(depth(&levels, ladder.root) < 40);
        assert_eq!(levels.insert(&mut ladder, Side::Sell, Price(-1), Total::none(0)), None);
    }

    #[test]
    fn extreme_prices_are_ordered() {
        let mut levels = Levels::new(3);
        let mut ladder = Ladder::EMPTY;
        for price in [i64::MIN, i64::MAX, 0] {
            levels.insert(&mut ladder, Side::Buy, Price(price), Total::none(0)).unwrap();
        }
        let prices: Vec<_> = levels.iter(&ladder).map(|level| level.price().0).collect();
        assert_eq!(prices, [i64::MAX, 0, i64::MIN]);
    }

    proptest! {
        #[test]
        fn ladder_agrees_with_a_sorted_map(
            buy in any::<bool>(),
            steps in proptest::collection::vec(-40_i64..40, 1..300),
        ) {
            let side = if buy { Side::Buy } else { Side::Sell };
            let mut levels = Levels::new(24);
            let mut ladder = Ladder::EMPTY;
            let mut map = BTreeMap::new();
            for price in steps {
                match levels.find(&ladder, side, Price(price)) {
                    Some(idx) => {
                        prop_assert_eq!(map.remove(&price), Some(idx));
                        levels.remove(&mut ladder, idx);
                    }
                    None => {
                        prop_assert!(!map.contains_key(&price));
                        let inserted = levels.insert(&mut ladder, side, Price(price), Total::none(7));
                        prop_assert_eq!(inserted.is_some(), map.len() < 24);
                        inserted.map(|idx| map.insert(price, idx));
                    }
                }
                let mut prices: Vec<_> = map.keys().copied().collect();
                if buy {
                    prices.reverse();
                }
                let listed: Vec<_> = levels.iter(&ladder).map(|level| level.price().0).collect();
                prop_assert_eq!(listed, prices);
                prop_assert_eq!(levels.len(), map.len());
            }
        }
    }
}
