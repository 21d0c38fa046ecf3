//! Prices at which own orders of one side rest, the best one last: a new order must not meet them.

use market::{Price, Side};

/// Prices of one side and instrument. An order beyond them is refused, so the work of each call is
/// bounded.
pub(super) const LEVELS: usize = 16;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct OwnLevels {
    count: u32,
    /// Rising ranks, so the last one is the best.
    levels: [Level; LEVELS],
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// The price for buys, its complement for sells.
    rank: i64,
    orders: u32,
}

/// Makes a greater number the better price. The complement, unlike the negation, cannot overflow.
const fn rank(side: Side, price: Price) -> i64 {
    match side {
        Side::Buy => price.0,
        Side::Sell => !price.0,
    }
}

impl OwnLevels {
    pub(super) const EMPTY: Self = Self { count: 0, levels: [Level { rank: 0, orders: 0 }; LEVELS] };

    /// The best own price of this `side`.
    #[inline]
    pub(super) fn best(&self, side: Side) -> Option<Price> {
        let last = self.count().checked_sub(1)?;
        // The rank is its own inverse.
        Some(Price(rank(side, Price(self.levels[last].rank))))
    }

    /// Whether an order at `price` finds a place.
    #[inline]
    pub(super) fn has_room(&self, side: Side, price: Price) -> bool {
        self.count() < LEVELS || self.levels.iter().any(|level| level.rank == rank(side, price))
    }

    /// Adds an order. The caller asked [`OwnLevels::has_room`].
    #[inline]
    pub(super) fn add(&mut self, side: Side, price: Price) {
        let (rank, count) = (rank(side, price), self.count());
        let place = self.place(rank);
        if place > 0 && self.levels[place - 1].rank == rank {
            self.levels[place - 1].orders += 1;
            return;
        }
        assert!(count < LEVELS, "an own order was added without room for its price");
        if place < count {
            self.levels.copy_within(place..count, place + 1);
        }
        self.levels[place] = Level { rank, orders: 1 };
        self.count += 1;
    }

    /// Takes an order out again.
    pub(super) fn remove(&mut self, side: Side, price: Price) {
        let (rank, count) = (rank(side, price), self.count());
        let place = self.place(rank);
        assert!(place > 0 && self.levels[place - 1].rank == rank, "an own order was removed that was not added");
        self.levels[place - 1].orders -= 1;
        if self.levels[place - 1].orders == 0 {
            self.levels.copy_within(place..count, place - 1);
            self.count -= 1;
        }
    }

    const fn count(&self) -> usize {
        self.count as usize
    }

    /// The position behind all ranks that are not greater: from the best one down, because orders
    /// come and go near it.
    #[inline]
    fn place(&self, rank: i64) -> usize {
        let mut place = self.count();
        while place > 0 && self.levels[place - 1].rank > rank {
            place -= 1;
        }
        place
    }
}
