//! Normalised events: the meaning of all feeds' messages, in one vocabulary.
//!
//! An event is 64 bytes at most and `Copy`, so it travels through registers, a ring, or a call.
//! `at_ns` is the exchange's time in the feed's own epoch: since midnight New York for ITCH and
//! PITCH, since 1970 for IEX.
//!
//! The layouts are fixed (`repr(C)`): narrow fields in the first eight bytes, then the time, then
//! wide fields, so that most fields of all events have the same offsets. With other layouts the
//! compiler puts a byte of one event where another event has a part of a price, and has to repack
//! both where the arms of a decoder join.

use crate::units::{Locate, OrderRef, Price, Side, Symbol};

/// One message's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// An order rests on the book from now on.
    Add(Add),
    /// A resting order traded.
    Execute(Execute),
    /// A resting order became smaller.
    Cancel(Cancel),
    /// A resting order is gone.
    Delete(Delete),
    /// A resting order is gone and another takes its place, with the same side and instrument.
    Replace(Replace),
    /// A resting order keeps its reference and has a new quantity and price.
    Modify(Modify),
    /// A trade that does not touch the displayed book.
    Trade(Trade),
    /// A trade that is void.
    TradeBreak(TradeBreak),
    /// The best bid and offer of an instrument.
    Quote(Quote),
    /// The total at one price of an instrument.
    PriceLevel(PriceLevel),
    /// An instrument's name, and on Nasdaq its index.
    Directory(Directory),
    /// An instrument halts, pauses or trades.
    Status(Status),
    /// The market as a whole: start, open, close, end.
    System(System),
    /// All orders of this unit are gone.
    Clear(Clear),
    /// The feed's clock moved to the next second.
    Clock(Clock),
    /// A known message that changes no book and prints no trade (imbalances, participants, collars
    /// …).
    Other(Other),
}

/// See [`Event::Add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Add {
    /// The instrument's index, where the feed has one.
    pub locate: Locate,
    /// Its side.
    pub side: Side,
    /// Its displayed shares.
    pub qty: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The order.
    pub order: OrderRef,
    /// Its limit.
    pub price: Price,
    /// The instrument.
    pub symbol: Symbol,
}

/// See [`Event::Execute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Execute {
    /// The instrument's index, where the feed has one.
    pub locate: Locate,
    /// Whether the print counts as volume.
    pub printable: bool,
    /// Shares that traded.
    pub qty: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The resting order.
    pub order: OrderRef,
    /// The trade's number.
    pub trade: u64,
    /// The price of the print where it is not the order's own.
    pub price: Option<Price>,
    /// Remaining shares, if the feed has them; otherwise the resting size decreases by `qty`.
    pub remaining: Option<u32>,
}

/// See [`Event::Cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Cancel {
    /// The instrument's index, where the feed has one.
    pub locate: Locate,
    /// Shares taken off it.
    pub qty: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The order.
    pub order: OrderRef,
}

/// See [`Event::Delete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Delete {
    /// The instrument's index, where the feed has one.
    pub locate: Locate,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The order.
    pub order: OrderRef,
}

/// See [`Event::Replace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Replace {
    /// The instrument's index, where the feed has one.
    pub locate: Locate,
    /// Its displayed shares.
    pub qty: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The order that goes.
    pub old: OrderRef,
    /// The order that comes, behind all others at its price.
    pub new: OrderRef,
    /// Its limit.
    pub price: Price,
}

/// See [`Event::Modify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Modify {
    /// Its displayed shares from now on.
    pub qty: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The order.
    pub order: OrderRef,
    /// Its limit from now on.
    pub price: Price,
}

/// See [`Event::Trade`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Trade {
    /// The instrument's index, where the feed has one.
    pub locate: Locate,
    /// The side of the resting order, if the feed has it.
    pub side: Option<Side>,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The price.
    pub price: Price,
    /// The trade's number.
    pub trade: u64,
    /// The instrument.
    pub symbol: Symbol,
    /// Shares; 64 bits, because a cross prints whole auctions.
    pub qty: u64,
}

/// See [`Event::TradeBreak`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TradeBreak {
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The number of the void trade.
    pub trade: u64,
}

/// See [`Event::Quote`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Quote {
    /// The instrument can be traded now.
    pub available: bool,
    /// Shares bid there; 0 where there is no bid.
    pub bid_qty: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// Best bid.
    pub bid_px: Price,
    /// Best offer.
    pub ask_px: Price,
    /// The instrument.
    pub symbol: Symbol,
    /// Shares offered there; 0 where there is no offer.
    pub ask_qty: u32,
}

/// See [`Event::PriceLevel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PriceLevel {
    /// The side.
    pub side: Side,
    /// The book is consistent after this one; while false its top is in transition.
    pub complete: bool,
    /// Shares there from now on; 0 removes the level.
    pub qty: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The price.
    pub price: Price,
    /// The instrument.
    pub symbol: Symbol,
}

/// See [`Event::Directory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Directory {
    /// The instrument's index for the day, where the feed has one.
    pub locate: Locate,
    /// Shares in a round lot.
    pub round_lot: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The instrument.
    pub symbol: Symbol,
}

/// See [`Event::Status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Status {
    /// The instrument's index, where the feed has one.
    pub locate: Locate,
    /// The feed's own letter (`T` trades, `H` halted, `P` paused, `Q` quotes only …).
    pub state: u8,
    /// Set if the state is this venue's alone: trading may go on elsewhere.
    pub operational: bool,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The instrument.
    pub symbol: Symbol,
}

/// See [`Event::System`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct System {
    /// The feed's own letter (`O` start of messages … `C` end of messages).
    pub code: u8,
    /// Exchange time, ns.
    pub at_ns: u64,
}

impl System {
    /// The code of the last message of a day, for all feeds.
    pub const END_OF_MESSAGES: u8 = b'C';
}

/// See [`Event::Clear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Clear {
    /// Exchange time, ns.
    pub at_ns: u64,
}

/// See [`Event::Clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Clock {
    /// Exchange time, ns.
    pub at_ns: u64,
}

/// See [`Event::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Other {
    /// The message's type byte.
    pub kind: u8,
    /// Exchange time, ns.
    pub at_ns: u64,
}

const _: () = assert!(size_of::<Event>() <= 64, "an event must stay within one cache line");
