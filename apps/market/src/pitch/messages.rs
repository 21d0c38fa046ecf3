//! The messages of Multicast PITCH 2, little endian, as in the packet.
//!
//! A message begins with its own length and its type. Prices are four decimals in a `U64`, two in
//! the `U16` of a short message. The messages of the gap and spin servers travel over TCP:
//! [`super::servers`].

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{layouts, message_set};
use crate::units::Symbol;

/// The first 6 bytes of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// Bytes of the message, this one included.
    pub len: u8,
    /// The type byte.
    pub kind: u8,
    /// ns since the last [`Time`] of the unit; in [`Time`] itself seconds since midnight New York.
    pub time: U32,
}

impl Head {
    /// The head of a message of `len` bytes and type `kind` (`AddLong::LEN`, `AddLong::KIND` …).
    pub const fn new(len: usize, kind: u8, time: u32) -> Self {
        assert!(len <= u8::MAX as usize, "a PITCH message has 255 bytes at most");
        Self { len: len as u8, kind, time: U32::new(time) }
    }
}

layouts! {
    head Head;

    /// The next second begins.
    0x20 Time 6 {}

    /// All orders of the unit are gone.
    0x97 UnitClear 6 {}

    /// An order rests on the book.
    0x21 AddLong 34 {
        /// The order.
        order: U64,
        /// `B` or `S`.
        side: u8,
        /// Shares.
        qty: U32,
        /// The instrument.
        symbol: [u8; 6],
        /// Its limit.
        price: U64,
        /// Bit 0: displayed.
        flags: u8,
    }

    /// An order rests on the book.
    0x22 AddShort 26 {
        /// The order.
        order: U64,
        /// `B` or `S`.
        side: u8,
        /// Shares.
        qty: U16,
        /// The instrument.
        symbol: [u8; 6],
        /// Its limit, two decimals.
        price: U16,
        /// Bit 0: displayed.
        flags: u8,
    }

    /// An order rests on the book, with its owner.
    0x2f AddExpanded 41 {
        /// The order.
        order: U64,
        /// `B` or `S`.
        side: u8,
        /// Shares.
        qty: U32,
        /// The instrument.
        symbol: Symbol,
        /// Its limit.
        price: U64,
        /// Bit 0: displayed.
        flags: u8,
        /// Its owner.
        participant: [u8; 4],
        /// Customer indicator.
        customer: u8,
    }

    /// A resting order traded at its own price.
    0x23 Executed 26 {
        /// The order.
        order: U64,
        /// Shares that traded.
        qty: U32,
        /// The execution's number.
        execution: U64,
    }

    /// A resting order traded at another price, or keeps another size than the difference.
    0x24 ExecutedAtPrice 38 {
        /// The order.
        order: U64,
        /// Shares that traded.
        qty: U32,
        /// Shares that are left.
        remaining: U32,
        /// The execution's number.
        execution: U64,
        /// The price of the print.
        price: U64,
    }

    /// A resting order became smaller.
    0x25 ReduceLong 18 {
        /// The order.
        order: U64,
        /// Shares taken off it.
        qty: U32,
    }

    /// A resting order became smaller.
    0x26 ReduceShort 16 {
        /// The order.
        order: U64,
        /// Shares taken off it.
        qty: U16,
    }

    /// A resting order has a new size and price.
    0x27 ModifyLong 27 {
        /// The order.
        order: U64,
        /// Its shares from now on.
        qty: U32,
        /// Its limit from now on.
        price: U64,
        /// Bit 0: displayed; bit 1: keeps its priority.
        flags: u8,
    }

    /// A resting order has a new size and price.
    0x28 ModifyShort 19 {
        /// The order.
        order: U64,
        /// Its shares from now on.
        qty: U16,
        /// Its limit from now on, two decimals.
        price: U16,
        /// Bit 0: displayed; bit 1: keeps its priority.
        flags: u8,
    }

    /// A resting order is gone.
    0x29 Delete 14 {
        /// The order.
        order: U64,
    }

    /// A trade against a hidden order.
    0x2a TradeLong 41 {
        /// The order.
        order: U64,
        /// Its side.
        side: u8,
        /// Shares.
        qty: U32,
        /// The instrument.
        symbol: [u8; 6],
        /// The price.
        price: U64,
        /// The execution's number.
        execution: U64,
    }

    /// A trade against a hidden order.
    0x2b TradeShort 33 {
        /// The order.
        order: U64,
        /// Its side.
        side: u8,
        /// Shares.
        qty: U16,
        /// The instrument.
        symbol: [u8; 6],
        /// The price, two decimals.
        price: U16,
        /// The execution's number.
        execution: U64,
    }

    /// A trade against a hidden order.
    0x30 TradeExpanded 43 {
        /// The order.
        order: U64,
        /// Its side.
        side: u8,
        /// Shares.
        qty: U32,
        /// The instrument.
        symbol: Symbol,
        /// The price.
        price: U64,
        /// The execution's number.
        execution: U64,
    }

    /// A trade that is void.
    0x2c TradeBreak 14 {
        /// The execution's number.
        execution: U64,
    }

    /// An instrument halts, quotes or trades.
    0x31 TradingStatus 18 {
        /// The instrument.
        symbol: Symbol,
        /// `A` takes orders for later, `H` halted, `Q` quotes only, `T` trades, `S` suspended by
        /// the exchange.
        state: u8,
        /// Short sale price test restriction.
        reg_sho: u8,
        /// Reserved.
        reserved: [u8; 2],
    }

    /// The state of an auction.
    0x95 AuctionUpdate 47 {
        /// The instrument.
        symbol: Symbol,
        /// `O` opening, `C` closing, `H` halt, `I` IPO.
        auction: u8,
        /// Reference price.
        reference: U64,
        /// Shares to buy at it.
        buy_qty: U32,
        /// Shares to sell at it.
        sell_qty: U32,
        /// Price of auction and continuous book together.
        indicative: U64,
        /// Price of the auction book alone.
        auction_only: U64,
    }

    /// An auction is done.
    0x96 AuctionSummary 27 {
        /// The instrument.
        symbol: Symbol,
        /// As in [`AuctionUpdate`].
        auction: u8,
        /// The price.
        price: U64,
        /// Shares.
        qty: U32,
    }

    /// Retail price improvement.
    0x98 RetailImprovement 15 {
        /// The instrument.
        symbol: Symbol,
        /// Side of the interest.
        interest: u8,
    }

    /// No more messages of this unit today.
    0x2d EndOfSession 6 {}
}

message_set! {
    kind at 1, length least;
    Time UnitClear AddLong AddShort AddExpanded Executed ExecutedAtPrice ReduceLong ReduceShort ModifyLong ModifyShort
    Delete TradeLong TradeShort TradeExpanded TradeBreak TradingStatus AuctionUpdate AuctionSummary RetailImprovement
    EndOfSession
}
