//! One instrument's ladders and state.

use market::levels::{Ladder, NONE};
use market::{Price, Side};

use crate::event::TradingState;
use crate::links::List;
use crate::order::CrossKind;

/// Which ladder of a book.
pub(crate) mod lane {
    use super::{CrossKind, Side};

    /// Orders that trade as others arrive.
    pub(crate) const fn resting(side: Side) -> u8 {
        side as u8
    }

    /// Stop orders that sleep. Their best level is the one that wakes first.
    pub(crate) const fn stop(side: Side) -> u8 {
        2 + side as u8
    }

    /// Orders for one cross.
    pub(crate) const fn cross(kind: CrossKind, side: Side) -> u8 {
        4 + 2 * kind as u8 + side as u8
    }

    /// All of them.
    pub(crate) const COUNT: u8 = 10;
}

/// The book of one instrument. The first cache line is all that most orders touch.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Book {
    /// Price of the last trade; 0 before the first.
    pub(crate) last: Price,
    /// Pegged orders, whether they have a price or not.
    pub(crate) pegs: List,
    /// The pegged order that the walk in progress comes to next.
    pub(crate) peg_cursor: u32,
    pub(crate) stops: u32,
    pub(crate) state: TradingState,
    pub(crate) ladders: [Ladder; lane::COUNT as usize],
    /// Best bid and offer that pegged orders were priced by; 0 for none.
    pub(crate) pegged_by: [Price; 2],
    /// Where levels of the two resting ladders are.
    pub(crate) level_cache: [LevelCache; 2],
}

/// Levels of one ladder by a hash of their price: a level that is found here is found without the
/// ladder's tree. An entry is [`NONE`] or a level that is in the ladder now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelCache([u32; Self::LEN]);

impl LevelCache {
    const BITS: u32 = 6;
    const LEN: usize = 1 << Self::BITS;
    const EMPTY: Self = Self([NONE; Self::LEN]);

    /// The level that may be the one at `price`, or [`NONE`].
    #[inline]
    pub(crate) fn at(&mut self, price: Price) -> &mut u32 {
        // The fraction of the golden ratio: neighboring prices get entries far apart.
        let hash = (price.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &mut self.0[(hash >> (u64::BITS - Self::BITS)) as usize]
    }
}

impl Book {
    pub(crate) const EMPTY: Self = Self {
        last: Price(0),
        pegs: List::EMPTY,
        peg_cursor: crate::arena::NONE,
        stops: 0,
        state: TradingState::Closed,
        ladders: [Ladder::EMPTY; lane::COUNT as usize],
        pegged_by: [Price(0); 2],
        level_cache: [LevelCache::EMPTY; 2],
    };
}

/// The other side.
pub(crate) const fn opposite(side: Side) -> Side {
    match side {
        Side::Buy => Side::Sell,
        Side::Sell => Side::Buy,
    }
}

/// An order of `side` with this limit trades at `price`.
#[inline]
pub(crate) const fn reaches(side: Side, limit: Price, price: Price) -> bool {
    match side {
        Side::Buy => limit.0 >= price.0,
        Side::Sell => limit.0 <= price.0,
    }
}

/// A limit that reaches each price.
pub(crate) const fn any_price(side: Side) -> Price {
    match side {
        Side::Buy => Price(i64::MAX),
        Side::Sell => Price(i64::MIN),
    }
}
