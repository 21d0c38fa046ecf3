//! The messages of TOPS 1.6 and DEEP 1.0, little endian, as in the packet.
//!
//! All begin with the type, one byte whose meaning depends on the type, and the time. Prices are
//! four decimals in an `I64`.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::layouts;
use crate::event::{self, Event};
use crate::units::{Locate, Price, Symbol};

/// The first 10 bytes of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// The type byte.
    pub kind: u8,
    /// Flags, event or status: the meaning is below at each type.
    pub detail: u8,
    /// Time, ns since 1970.
    pub at: U64,
}

impl Head {
    /// The head of a message of type `kind` at `at_ns` since 1970.
    pub const fn new(kind: u8, detail: u8, at_ns: u64) -> Self {
        Self { kind, detail, at: U64::new(at_ns) }
    }

    /// Time, ns since 1970.
    #[inline]
    pub fn at_ns(&self) -> u64 {
        self.at.get()
    }
}

layouts! {
    head Head;

    /// The day as a whole. Detail: `O` start of messages, `S` start of system, `R` open, `M` close,
    /// `E` end of system, `C` end of messages.
    b'S' SystemEvent 10 {}

    /// An instrument of the day. Detail: 0x80 test, 0x40 when issued, 0x20 exchange traded product.
    b'D' SecurityDirectory 31 {
        /// The instrument.
        symbol: Symbol,
        /// Shares in a round lot.
        round_lot: U32,
        /// Official closing price of the day before, adjusted.
        previous_close: I64,
        /// Limit up, limit down tier.
        luld_tier: u8,
    }

    /// An instrument halts or trades. Detail: `H` halted, `O` order acceptance, `P` paused, `T`
    /// trades.
    b'H' TradingStatus 22 {
        /// The instrument.
        symbol: Symbol,
        /// Reason code.
        reason: [u8; 4],
    }

    /// An instrument is halted on IEX only. Detail: `O` halted, `N` not halted.
    b'O' OperationalHalt 18 {
        /// The instrument.
        symbol: Symbol,
    }

    /// Short sale price test restriction. Detail: 1 in effect, 0 not in effect.
    b'P' ShortSaleTest 19 {
        /// The instrument.
        symbol: Symbol,
        /// How it came about.
        reason: u8,
    }

    /// Retail liquidity. Detail: the side of the interest.
    b'I' RetailLiquidity 18 {
        /// The instrument.
        symbol: Symbol,
    }

    /// Opening or closing process of an instrument is done. Detail: `O` or `C`.
    b'E' SecurityEvent 18 {
        /// The instrument.
        symbol: Symbol,
    }

    /// Best bid and offer. Detail: 0x80 not available for trading, 0x40 pre- or post-market.
    b'Q' QuoteUpdate 42 {
        /// The instrument.
        symbol: Symbol,
        /// Shares bid, 0 for no bid.
        bid_qty: U32,
        /// Best bid.
        bid_px: I64,
        /// Best offer.
        ask_px: I64,
        /// Shares offered, 0 for no offer.
        ask_qty: U32,
    }

    /// Total bid at a price. Detail: bit 0 set where the book is consistent after this message.
    b'8' PriceLevelBuy 30 {
        /// The instrument.
        symbol: Symbol,
        /// Shares, 0 to remove the level.
        qty: U32,
        /// The price.
        price: I64,
    }

    /// Total offered at a price. Detail: bit 0 set where the book is consistent after this message.
    b'5' PriceLevelSell 30 {
        /// The instrument.
        symbol: Symbol,
        /// Shares, 0 to remove the level.
        qty: U32,
        /// The price.
        price: I64,
    }

    /// A trade. Detail: 0x80 intermarket sweep, 0x40 extended hours, 0x20 odd lot, 0x10
    /// trade-through exempt, 0x08 cross.
    b'T' Trade 38 {
        /// The instrument.
        symbol: Symbol,
        /// Shares.
        qty: U32,
        /// The price.
        price: I64,
        /// The trade's number.
        trade: U64,
    }

    /// A trade that is void. Detail as in [`Trade`].
    b'B' TradeBreak 38 {
        /// The instrument.
        symbol: Symbol,
        /// Shares.
        qty: U32,
        /// The price.
        price: I64,
        /// The number of the void trade.
        trade: U64,
    }

    /// Official opening or closing price. Detail: `Q` opening, `M` closing.
    b'X' OfficialPrice 26 {
        /// The instrument.
        symbol: Symbol,
        /// The price.
        price: I64,
    }

    /// The state of an auction. Detail: `O` opening, `C` closing, `I` IPO, `H` halt, `V`
    /// volatility.
    b'A' AuctionInfo 80 {
        /// The instrument.
        symbol: Symbol,
        /// Shares that would match.
        paired: U32,
        /// Reference price.
        reference: I64,
        /// Indicative clearing price.
        indicative: I64,
        /// Shares that would not match.
        imbalance: U32,
        /// Side of the imbalance.
        imbalance_side: u8,
        /// How often the auction was extended.
        extension: u8,
        /// Time of the auction, seconds since 1970.
        auction_s: U32,
        /// Clearing price of the auction book alone.
        auction_book: I64,
        /// Reference of the collar.
        collar_reference: I64,
        /// Lower collar.
        collar_lower: I64,
        /// Upper collar.
        collar_upper: I64,
    }
}

#[inline]
pub(super) fn system_event(m: &SystemEvent) -> Event {
    Event::System(event::System { at_ns: m.head.at_ns(), code: m.head.detail })
}

#[inline]
pub(super) fn directory(m: &SecurityDirectory) -> Event {
    Event::Directory(event::Directory {
        at_ns: m.head.at_ns(),
        locate: Locate::default(),
        symbol: m.symbol,
        round_lot: m.round_lot.get(),
    })
}

#[inline]
pub(super) fn status(head: &Head, symbol: Symbol, operational: bool) -> Event {
    Event::Status(event::Status {
        at_ns: head.at_ns(),
        locate: Locate::default(),
        symbol,
        state: head.detail,
        is_halted: is_halted(head.detail, operational),
        operational,
        follows_group: None,
    })
}

/// By the listing market an instrument is halted, or paused; order acceptance prepares an auction
/// (DEEP, Trading Status). On IEX alone `O` is the halt and `N` its end (Operational Halt Status).
const fn is_halted(state: u8, operational: bool) -> Option<bool> {
    match (operational, state) {
        (false, b'H' | b'P') | (true, b'O') => Some(true),
        (false, b'O' | b'T') | (true, b'N') => Some(false),
        _ => None,
    }
}

#[inline]
pub(super) fn trade(m: &Trade) -> Event {
    Event::Trade(event::Trade {
        at_ns: m.head.at_ns(),
        locate: Locate::default(),
        side: None,
        symbol: m.symbol,
        qty: m.qty.get().into(),
        price: Price(m.price.get()),
        trade: m.trade.get(),
    })
}

#[inline]
pub(super) fn trade_break(m: &TradeBreak) -> Event {
    Event::TradeBreak(event::TradeBreak { at_ns: m.head.at_ns(), trade: m.trade.get() })
}

#[inline]
pub(super) fn other(head: &Head) -> Event {
    Event::Other(event::Other { at_ns: head.at_ns(), kind: head.kind })
}
