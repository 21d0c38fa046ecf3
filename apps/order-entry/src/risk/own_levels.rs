//! Prices at which own orders of one side rest, the best one last: a new order must not meet them.

use market::{Price, Side};

/// Prices of one side and instrument. An order beyond them is refused, so the work of each call is
/// bounded.
pub(super) const LEVELS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct OwnLevels {
    /// Ranks, rising: the price for buys, its complement for sells. So the last one is the best.
    ranks: [i64; LEVELS],
    orders: [u32; LEVELS],
    count: u8,
}

/// Makes a greater number the better price. The complement, unlike the negation, cannot overflow.
const fn rank(side: Side, price: Price) -> i64 {
    match side {
        Side::Buy => price.0,
        Side::Sell => !price.0,
    }
}

impl OwnLevels {
    pub(super) const EMPTY: Self = Self { ranks: [0; LEVELS], orders: [0; LEVELS], count: 0 };

    /// The best own price of this `side`.
    pub(super) fn best(&self, side: Side) -> Option<Price> {
        let last = usize::from(self.count).checked_sub(1)?;
        // The rank is its own inverse.
        Some(Price(rank(side, Price(self.ranks[last]))))
    }

    /// Whether an order at `price` finds a place.
    pub(super) fn has_room(&self, side: Side, price: Price) -> bool {
        usize::from(self.count) < LEVELS || self.ranks.contains(&rank(side, price))
    }

    /// Adds an order. The caller asked [`OwnLevels::has_room`].
    pub(super) fn add(&mut self, side: Side, price: Price) {
        let rank = rank(side, price);
        let count = usize::from(self.count);
        let place = self.place(rank);
        if place > 0 && self.ranks[place - 1] == rank {
            self.orders[place - 1] += 1;
            return;
        }
        assert!(count < LEVELS, "an own order was added without room for its price");
        if place < count {
            self.ranks.copy_within(place..count, place + 1);
            self.orders.copy_within(place..count, place + 1);
        }
        self.ranks[place] = rank;
        self.orders[place] = 1;
        self.count += 1;
    }

    /// Takes an order out again.
    pub(super) fn remove(&mut self, side: Side, price: Price) {
        let rank = rank(side, price);
        let count = usize::from(self.count);
        let place = self.place(rank);
        assert!(place > 0 && self.ranks[place - 1] == rank, "an own order was removed that was not added");
        self.orders[place - 1] -= 1;
        if self.orders[place - 1] == 0 {
            self.ranks.copy_within(place..count, place - 1);
            self.orders.copy_within(place..count, place - 1);
            self.count -= 1;
        }
    }

    /// The position behind all ranks that are not greater: from the best one down, because orders
    /// come and go near it.
    fn place(&self, rank: i64) -> usize {
        let mut place = usize::from(self.count);
        while place > 0 && self.ranks[place - 1] > rank {
            place -= 1;
        }
        place
    }
}
