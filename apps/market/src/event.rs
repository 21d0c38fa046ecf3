//! Normalised events: the meaning of all feeds' messages, in one vocabulary.
//!
//! An event is 64 bytes at most and `Copy`, so it travels through registers, a ring, or a call.
//! `at_ns` is the exchange's time in the feed's own epoch: since midnight New York for ITCH and
//! PITCH, since 1970 for IEX and CME.
//!
//! The layouts are fixed (`repr(C)`): narrow fields in the first eight bytes, then the time, then
//! wide fields, so that most fields of all events have the same offsets. With other layouts the
//! compiler puts a byte of one event where another event has a part of a price, and has to repack
//! both where the arms of a decoder join.

use crate::units::{Locate, OrderRef, Price, Price9, Side, Symbol};

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
    /// A level of a book by its position.
    Depth(Depth),
    /// An order of a book that a venue also publishes by price, exact to nine decimals.
    Order(Order),
    /// A trade at one price, exact to nine decimals, as numbered by its instrument.
    TradeSummary(TradeSummary),
    /// An update that changes no book and counts in its instrument's numbers (statistics, limits,
    /// volume).
    Numbered(Numbered),
    /// All levels of an instrument are gone.
    BookReset(BookReset),
    /// A snapshot of an instrument's book begins; its levels follow.
    Snapshot(Snapshot),
    /// A part of a snapshot of an instrument's orders begins; the orders follow.
    OrderSnapshot(Snapshot),
    /// The snapshot, or the part of it, is over.
    SnapshotEnd(SnapshotEnd),
    /// An instrument's definition.
    Instrument(Instrument),
    /// The venue's event is over: books are consistent and may be acted on.
    EndOfEvent(EndOfEvent),
    /// All instruments of a group halt, pause or trade.
    GroupStatus(GroupStatus),
}

impl Event {
    /// The instrument that it is about; `None` where it is about an order that the feed names by
    /// its reference alone, or about no instrument.
    pub const fn symbol(&self) -> Option<Symbol> {
        Some(match self {
            Self::Add(of) => of.symbol,
            Self::Trade(of) => of.symbol,
            Self::Quote(of) => of.symbol,
            Self::PriceLevel(of) => of.symbol,
            Self::Directory(of) => of.symbol,
            Self::Status(of) => of.symbol,
            Self::Depth(of) => of.symbol,
            Self::Order(of) => of.symbol,
            Self::TradeSummary(of) => of.symbol,
            Self::Numbered(of) => of.symbol,
            Self::BookReset(of) => of.symbol,
            Self::Snapshot(of) | Self::OrderSnapshot(of) => of.symbol,
            Self::SnapshotEnd(of) => of.symbol,
            Self::Instrument(of) => of.symbol,
            Self::Execute(_) | Self::Cancel(_) | Self::Delete(_) | Self::Replace(_) | Self::Modify(_) => return None,
            Self::TradeBreak(_) | Self::System(_) | Self::Clear(_) | Self::Clock(_) => return None,
            Self::Other(_) | Self::EndOfEvent(_) | Self::GroupStatus(_) => return None,
        })
    }

    /// Its time at the exchange, in ns.
    pub const fn at_ns(&self) -> u64 {
        match self {
            Self::Add(of) => of.at_ns,
            Self::Execute(of) => of.at_ns,
            Self::Cancel(of) => of.at_ns,
            Self::Delete(of) => of.at_ns,
            Self::Replace(of) => of.at_ns,
            Self::Modify(of) => of.at_ns,
            Self::Trade(of) => of.at_ns,
            Self::TradeBreak(of) => of.at_ns,
            Self::Quote(of) => of.at_ns,
            Self::PriceLevel(of) => of.at_ns,
            Self::Directory(of) => of.at_ns,
            Self::Status(of) => of.at_ns,
            Self::System(of) => of.at_ns,
            Self::Clear(of) => of.at_ns,
            Self::Clock(of) => of.at_ns,
            Self::Other(of) => of.at_ns,
            Self::Depth(of) => of.at_ns,
            Self::Order(of) => of.at_ns,
            Self::TradeSummary(of) => of.at_ns,
            Self::Numbered(of) => of.at_ns,
            Self::BookReset(of) => of.at_ns,
            Self::Snapshot(of) | Self::OrderSnapshot(of) => of.at_ns,
            Self::SnapshotEnd(of) => of.at_ns,
            Self::Instrument(of) => of.at_ns,
            Self::EndOfEvent(of) => of.at_ns,
            Self::GroupStatus(of) => of.at_ns,
        }
    }
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
    /// Whether no order trades in this state, nor in an auction that it prepares; `None` where the
    /// state says nothing of that, or is none that is known here.
    pub is_halted: Option<bool>,
    /// Set if the state is this venue's alone, and tells nothing of a halt everywhere, which the
    /// venue tells apart: trading may go on elsewhere.
    pub operational: bool,
    /// Set where the instrument follows its group from now on, and `Some(false)` where its state is
    /// its own, whatever its group's; `None` where nothing changes.
    pub follows_group: Option<bool>,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The instrument; [`Symbol::NONE`] where it is each one of the channel. An operational state
    /// is then the channel's own, apart from those of its instruments; any other takes the place of
    /// the state of each.
    pub symbol: Symbol,
}

/// See [`Event::GroupStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct GroupStatus {
    /// The feed's own code, as of [`Status::state`].
    pub state: u8,
    /// As of [`Status::is_halted`].
    pub is_halted: Option<bool>,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The group, which instruments name in their definitions ([`Instrument::group`]).
    pub group: Symbol,
    /// [`Symbol::NONE`], or the one instrument that is meant where it is of the group: the others
    /// have been told.
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

/// See [`Event::Depth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Depth {
    /// The side.
    pub side: Side,
    /// Whose orders the level is made of.
    pub liquidity: Liquidity,
    /// What happens at the position.
    pub action: DepthAction,
    /// The position, from 1 at the best price.
    pub level: u8,
    /// Orders there, 0 where the feed does not say.
    pub orders: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The price.
    pub price: Price9,
    /// The instrument.
    pub symbol: Symbol,
    /// The quantity there.
    pub qty: u64,
    /// The update's number among those of its instrument.
    pub rpt_seq: u32,
}

/// Whose orders a level is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Liquidity {
    /// Orders for this instrument.
    #[default]
    Direct,
    /// Orders for other instruments, which the venue would combine.
    Implied,
}

/// What happens at a position of a book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DepthAction {
    /// A level comes in, and those from there on move one down.
    New,
    /// The level has another quantity.
    Change,
    /// The level is gone, and those behind it move up.
    Delete,
    /// The levels up to and with this one are gone.
    DeleteThru,
    /// The levels from this one on are gone.
    DeleteFrom,
    /// The position has these contents, whatever it had.
    Overlay,
    /// The same, in a snapshot.
    Snapshot,
}

/// See [`Event::Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Order {
    /// The side.
    pub side: Side,
    /// What happens to the order.
    pub action: OrderAction,
    /// Its displayed quantity from now on.
    pub qty: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The order.
    pub order: OrderRef,
    /// Orders at one price trade in the order of this number; 0 where the feed does not say.
    pub priority: u64,
    /// Its limit.
    pub price: Price9,
    /// The instrument.
    pub symbol: Symbol,
}

/// What happens to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderAction {
    /// It rests from now on.
    New,
    /// It has another quantity, price or priority.
    Change,
    /// It is gone.
    Delete,
    /// It rests, in a snapshot.
    Snapshot,
}

/// See [`Event::TradeSummary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TradeSummary {
    /// The side that took, where there is one.
    pub aggressor: Option<Side>,
    /// What happens to the trade: [`DepthAction::Delete`] voids it.
    pub action: DepthAction,
    /// Orders that took part, 0 where the feed does not say.
    pub orders: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The price.
    pub price: Price9,
    /// The instrument.
    pub symbol: Symbol,
    /// The quantity.
    pub qty: u64,
    /// The trade's number, 0 where the feed gives none.
    pub trade: u32,
    /// The update's number among those of its instrument.
    pub rpt_seq: u32,
}

/// See [`Event::Numbered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Numbered {
    /// The message's type.
    pub kind: u8,
    /// The update's number among those of its instrument; 0 where it has none.
    pub rpt_seq: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The instrument.
    pub symbol: Symbol,
}

/// See [`Event::BookReset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BookReset {
    /// The update's number among those of its instrument.
    pub rpt_seq: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The instrument.
    pub symbol: Symbol,
}

/// See [`Event::Snapshot`] and [`Event::OrderSnapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Snapshot {
    /// The number of the instrument's last update in it; 0 where the feed does not say.
    pub rpt_seq: u32,
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The instrument.
    pub symbol: Symbol,
    /// The number of the channel's last packet in it.
    pub last_seq: u64,
    /// Snapshots in the whole loop; 0 where the feed does not say.
    pub total: u32,
    /// Which part of the instrument's snapshot it is, from 1.
    pub part: u32,
    /// Parts of the instrument's snapshot.
    pub parts: u32,
}

/// See [`Event::SnapshotEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SnapshotEnd {
    /// Exchange time, ns.
    pub at_ns: u64,
    /// The instrument.
    pub symbol: Symbol,
}

/// See [`Event::Instrument`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instrument {
    /// Levels of the direct book that the venue publishes; 0 where it has none.
    pub depth: u8,
    /// Levels of the implied book.
    pub implied_depth: u8,
    /// `A` added, `M` modified, `D` deleted.
    pub action: u8,
    /// Instruments in the whole loop; 0 where the feed does not say.
    pub total: u32,
    /// Exchange time of the definition, ns.
    pub at_ns: u64,
    /// The instrument.
    pub symbol: Symbol,
    /// The least step of its price; 0 where the step varies.
    pub tick: Price9,
    /// The first eight letters of its name.
    pub name: Symbol,
    /// The group whose states it follows; [`Symbol::NONE`] where the feed has none.
    pub group: Symbol,
}

/// See [`Event::EndOfEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EndOfEvent {
    /// Exchange time, ns.
    pub at_ns: u64,
}

const _: () = assert!(size_of::<Event>() <= 64, "an event must stay within one cache line");
