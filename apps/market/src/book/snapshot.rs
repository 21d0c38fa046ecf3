//! A book in a fixed form, for memory that other machines read: its best levels, and what they are
//! worth.
//!
//! ```text
//!   0  u16  the layout, 1              22  u16  zero
//!   2  u8   flags                      24  u64  number of its last event
//!   3  u8   levels of bids             32  u64  time of that event at the exchange
//!   4  u8   levels of offers           40  u64  when it arrived here
//!   5  three bytes of zero             48  ten bids: price, quantity, the best first
//!   8  the symbol, eight bytes        208  ten offers
//!  16  u32  the book within its channel
//!  20  u16  the channel
//! ```
//!
//! All numbers are little-endian. A price is an `i64` with nine decimals, a quantity a `u64`; times
//! are ns, that at the exchange as the feed has it, ours since 1970. The flags are 1, stale, and 2,
//! unconfirmed. Levels beyond the counts are zero.

use core::fmt;

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BookIdx, Books, DepthLevel};
use crate::units::{Price9, Side, Symbol};

/// Levels of a side that a snapshot has at most.
pub const SNAPSHOT_LEVELS: usize = 10;
/// The only layout so far.
const LAYOUT: u16 = 1;
const STALE: u8 = 1;
const UNCONFIRMED: u8 = 2;

/// The best levels of one book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BookSnapshot {
    layout: U16,
    flags: u8,
    counts: [u8; 2],
    zero: [u8; 3],
    symbol: Symbol,
    book: U32,
    channel: U16,
    zero_too: U16,
    seq: U64,
    exchange_ns: U64,
    receive_ns: U64,
    levels: [[SnapshotLevel; SNAPSHOT_LEVELS]; 2],
}

/// A price and what is there, as a snapshot has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SnapshotLevel {
    price: I64,
    qty: U64,
}

/// The last event of a book.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastEvent {
    /// The number of its message; 0 where it has none.
    pub seq: u64,
    /// Its time at the exchange, as the feed has it.
    pub exchange_ns: u64,
    /// When it arrived, in ns since 1970.
    pub receive_ns: u64,
}

impl BookSnapshot {
    /// The name of this layout, where publisher and reader agree on it by a number: "BK", and 1.
    pub const SCHEMA: u32 = u32::from_le_bytes(*b"BK\0\0") | (LAYOUT as u32) << 16;
    /// Bytes of a snapshot.
    pub const LEN: usize = size_of::<Self>();

    /// A book as it is now. Costs a look at each of its best levels.
    #[inline]
    pub fn of(books: &impl Books, book: BookIdx, channel: u16, last: LastEvent) -> Self {
        let mut snapshot = Self {
            flags: (u8::from(books.is_stale(book)) * STALE) | (u8::from(books.is_unconfirmed(book)) * UNCONFIRMED),
            symbol: books.symbol(book),
            seq: last.seq.into(),
            exchange_ns: last.exchange_ns.into(),
            receive_ns: last.receive_ns.into(),
            ..Self::gone(book, channel)
        };
        for (side, (to, count)) in
            [Side::Buy, Side::Sell].into_iter().zip(snapshot.levels.iter_mut().zip(&mut snapshot.counts))
        {
            let mut levels = [DepthLevel::default(); SNAPSHOT_LEVELS];
            let found = books.levels(book, side, &mut levels);
            for (to, level) in to.iter_mut().zip(&levels[..found]) {
                *to = SnapshotLevel { price: level.price.0.into(), qty: level.qty.into() };
            }
            *count = found as u8;
        }
        snapshot
    }

    /// A place whose book has another one now, or none: stale, empty and of no instrument.
    #[inline]
    pub fn gone(book: BookIdx, channel: u16) -> Self {
        Self {
            layout: LAYOUT.into(),
            flags: STALE,
            counts: [0; 2],
            zero: [0; 3],
            symbol: Symbol::NONE,
            book: book.0.into(),
            channel: channel.into(),
            zero_too: U16::ZERO,
            seq: U64::ZERO,
            exchange_ns: U64::ZERO,
            receive_ns: U64::ZERO,
            levels: [[SnapshotLevel::default(); SNAPSHOT_LEVELS]; 2],
        }
    }

    /// The snapshot in these bytes.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let snapshot = Self::read_from_bytes(bytes).map_err(|_| SnapshotError::Length)?;
        match snapshot.layout.get() {
            LAYOUT if snapshot.counts.iter().any(|&count| usize::from(count) > SNAPSHOT_LEVELS) => {
                Err(SnapshotError::Levels)
            }
            LAYOUT => Ok(snapshot),
            other => Err(SnapshotError::Layout(other)),
        }
    }

    /// The instrument.
    pub const fn symbol(&self) -> Symbol {
        self.symbol
    }

    /// The book within its channel.
    pub const fn book(&self) -> BookIdx {
        BookIdx(self.book.get())
    }

    /// The number of its channel.
    pub const fn channel(&self) -> u16 {
        self.channel.get()
    }

    /// Its last event.
    pub const fn last(&self) -> LastEvent {
        let (seq, exchange_ns, receive_ns) = (self.seq.get(), self.exchange_ns.get(), self.receive_ns.get());
        LastEvent { seq, exchange_ns, receive_ns }
    }

    /// As [`Books::is_stale`].
    pub const fn is_stale(&self) -> bool {
        self.flags & STALE != 0
    }

    /// As [`Books::is_unconfirmed`].
    pub const fn is_unconfirmed(&self) -> bool {
        self.flags & UNCONFIRMED != 0
    }

    /// Price and quantity of each level of a side, the best first.
    pub fn levels(&self, side: Side) -> impl Iterator<Item = (Price9, u64)> {
        let count = usize::from(self.counts[side as usize]);
        self.levels[side as usize].iter().take(count).map(|level| (Price9(level.price.get()), level.qty.get()))
    }
}

/// Why bytes are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Not as many bytes as a snapshot has.
    Length,
    /// Another layout than 1.
    Layout(u16),
    /// More levels than there is room for.
    Levels,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "a snapshot of a book has {} bytes", BookSnapshot::LEN),
            Self::Layout(layout) => write!(f, "layout {layout} of a book is not known here, only {LAYOUT}"),
            Self::Levels => write!(f, "a side of a book has {SNAPSHOT_LEVELS} levels at most here"),
        }
    }
}

impl core::error::Error for SnapshotError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{Capacity, OrderBooks, Quotes};
    use crate::event::{Add, Event, Quote};
    use crate::units::{Locate, OrderRef, Price};

    const LAST: LastEvent = LastEvent { seq: 7, exchange_ns: 8, receive_ns: 9 };

    fn books(prices: impl Iterator<Item = (Side, i64)>) -> OrderBooks {
        let mut books = OrderBooks::new(Capacity { books: 4, orders: 64, levels: 64 });
        for (order, (side, price)) in (1..).zip(prices) {
            books.apply(&Event::Add(Add {
                at_ns: 0,
                locate: Locate(1),
                symbol: Symbol::new("AAPL").unwrap(),
                order: OrderRef(order),
                side,
                qty: 100 + order as u32,
                price: Price(price),
            }));
        }
        books
    }

    #[test]
    fn snapshot_has_the_best_ten_levels_and_what_they_are_worth() {
        let mut books = books((1..=12).map(|cents| (Side::Buy, cents * 100)).chain([(Side::Sell, 1_300)]));
        books.mark_stale();
        let snapshot = BookSnapshot::of(&books, BookIdx(0), 3, LAST);
        let parsed = BookSnapshot::parse(snapshot.as_bytes()).unwrap();
        assert_eq!((BookSnapshot::LEN, parsed), (368, snapshot));
        assert_eq!((parsed.symbol(), parsed.book(), parsed.channel()), (Symbol::new("AAPL").unwrap(), BookIdx(0), 3));
        assert_eq!((parsed.last(), parsed.is_stale(), parsed.is_unconfirmed()), (LAST, true, false));
        let bids: Vec<_> = parsed.levels(Side::Buy).collect();
        let expected: Vec<_> = (3..=12).rev().map(|cents| (Price(cents * 100).into(), 100 + cents as u64)).collect();
        assert_eq!(bids, expected);
        assert_eq!(parsed.levels(Side::Sell).collect::<Vec<_>>(), [(Price(1_300).into(), 113)]);
    }

    /// The documented layout, byte for byte.
    #[test]
    fn layout_is_the_documented_one() {
        let snapshot = BookSnapshot::of(&books([(Side::Sell, 5)].into_iter()), BookIdx(0), 0x0102, LAST);
        let bytes = snapshot.as_bytes();
        assert_eq!(bytes[..8], [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[8..24], *b"AAPL    \0\0\0\0\x02\x01\0\0");
        assert_eq!([24, 32, 40].map(|at| bytes[at]), [7, 8, 9]);
        assert!(bytes[48..208].iter().all(|byte| *byte == 0), "there is no bid");
        assert_eq!(bytes[208..216], 500_000_i64.to_le_bytes());
        assert_eq!(bytes[216..224], 101_u64.to_le_bytes());
    }

    #[test]
    fn books_that_know_only_the_best_prices_have_one_level() {
        let mut books = Quotes::new(1);
        let symbol = Symbol::new("ZIEXT").unwrap();
        let (bid_px, ask_px) = (Price(10_000), Price(10_100));
        books.apply(&Event::Quote(Quote { at_ns: 1, symbol, bid_px, bid_qty: 5, ask_px, ask_qty: 0, available: true }));
        let snapshot = BookSnapshot::of(&books, BookIdx(0), 0, LAST);
        assert_eq!(snapshot.levels(Side::Buy).collect::<Vec<_>>(), [(bid_px.into(), 5)]);
        assert_eq!(snapshot.levels(Side::Sell).count(), 0);
    }

    #[test]
    fn bytes_of_others_are_refused_for_a_reason() {
        let snapshot = BookSnapshot::of(&books([(Side::Buy, 1)].into_iter()), BookIdx(0), 0, LAST);
        let changed = |at: usize, byte| {
            let mut bytes = snapshot.as_bytes().to_vec();
            bytes[at] = byte;
            BookSnapshot::parse(&bytes)
        };
        assert_eq!(changed(0, 2), Err(SnapshotError::Layout(2)));
        assert_eq!(changed(3, 11), Err(SnapshotError::Levels));
        assert_eq!(BookSnapshot::parse(&snapshot.as_bytes()[1..]), Err(SnapshotError::Length));
    }
}
