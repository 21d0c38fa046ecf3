//! How many levels the venue publishes of each instrument, by its definition.
//!
//! A channel defines some ten thousands of instruments, most of which do not trade on a day. So a
//! definition takes a place here, which has some 20 bytes, and the first message about an
//! instrument makes its book, which has 1.1 KB.

use super::DEPTH_MAX;
use crate::book::symbols::Symbols;
use crate::units::Symbol;

/// Definitions that are kept for each book that there may be.
const PER_BOOK: usize = 8;

/// The definitions of one channel.
#[derive(Clone, Debug)]
pub(super) struct Definitions {
    symbols: Symbols,
    /// By [`Liquidity`](crate::event::Liquidity); 0 where the definition does not say.
    depths: Vec<[u8; 2]>,
}

impl Definitions {
    /// For at most so many books; allocates.
    pub(super) fn new(books_max: usize) -> Self {
        let count = PER_BOOK.saturating_mul(books_max);
        Self { symbols: Symbols::new(count), depths: vec![[0; 2]; count] }
    }

    /// Bytes that [`Definitions::new`] allocates.
    pub(super) const fn memory(books_max: u128) -> u128 {
        let count = PER_BOOK as u128 * books_max;
        Symbols::memory(count) + size_of::<[u8; 2]>() as u128 * count
    }

    /// Keeps what a definition says. A later one takes its place. Whether there was one.
    pub(super) fn keep(&mut self, symbol: Symbol, depths: [u8; 2]) -> bool {
        let Some(place) = self.symbols.find_or_insert(symbol) else { return false };
        for (kept, depth) in self.depths[place.0 as usize].iter_mut().zip(depths) {
            if (1..=DEPTH_MAX as u8).contains(&depth) {
                *kept = depth;
            }
        }
        true
    }

    /// The depths of an instrument; 0 where they are not known.
    pub(super) fn depths(&self, symbol: Symbol) -> [u8; 2] {
        self.symbols.find(symbol).map_or([0; 2], |place| self.depths[place.0 as usize])
    }
}
