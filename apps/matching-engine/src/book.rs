//! One instrument's ladders and state.

use market::levels::Ladder;
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

/// The book of one instrument. Most orders touch the first cache line and a few lines of a ladder.
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
