//! A record of the ring: an event with its times and flags, as sixteen words.
//!
//! The words have one meaning for all events, so that a program in C reads a record as one struct:
//!
//! ```text
//!    0 seq + 1      4 publish ns                   8 order, or the old one   12 price of the offer
//!    1 venue seq    5 kind, flags, channel, locate 9 trade, or the new order 13 shares of the offer
//!    2 exchange ns  6 side, letter, bits          10 price, or of the bid    14 zero
//!    3 receive ns   7 symbol                      11 shares, or of the bid   15 zero
//! ```

use market::event::{
    Add, Cancel, Clear, Clock, Delete, Directory, Event, Execute, Modify, Other, PriceLevel, Quote, Replace, Status,
    System, Trade, TradeBreak,
};
use market::{Locate, OrderRef, Price, Side, Symbol};

use crate::layout::RECORD_WORDS;

/// Words of a record after its sequence.
pub(crate) const BODY_WORDS: usize = RECORD_WORDS - 1;

/// What a consumer should know of a record beyond its event. A set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more records belong to this event of the exchange: books are consistent now.
    pub const END_OF_EVENT: Self = Self(1);
    /// The record is a part of an image, and nothing happened at the exchange.
    pub const SNAPSHOT: Self = Self(2);
    /// Messages of the venue are missing before this record.
    pub const GAP_BEFORE: Self = Self(4);
    /// The instrument's book misses something and is not to be traded on.
    pub const STALE: Self = Self(8);

    /// Both sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// An event on its way to consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The sequence number that the venue gave to the message.
    pub venue_seq: u64,
    /// When the packet arrived, ns since 1970 or of the NIC's clock, as the publisher's
    /// documentation says; 0 where unknown.
    pub receive_ns: u64,
    /// When the publisher wrote the record, ns of the same clock; 0 where unknown.
    pub publish_ns: u64,
    /// The feed's channel, as the publisher numbers them.
    pub channel: u16,
    /// See [`Flags`].
    pub flags: Flags,
    /// The event; its own time is the exchange's.
    pub event: Event,
}

impl Record {
    /// A record of channel 0 that is an event of its own, without times.
    pub const fn new(venue_seq: u64, event: Event) -> Self {
        Self { venue_seq, receive_ns: 0, publish_ns: 0, channel: 0, flags: Flags::END_OF_EVENT, event }
    }

    /// The words after the sequence.
    pub(crate) fn to_words(self) -> [u64; BODY_WORDS] {
        let Fields { kind, at_ns, locate, side, letter, bits, symbol, order, other, price, qty, ask_px, ask_qty } =
            Fields::of(&self.event);
        let head = u64::from(kind) | u64::from(self.flags.0) << 8 | u64::from(self.channel) << 16;
        [
            self.venue_seq,
            at_ns,
            self.receive_ns,
            self.publish_ns,
            head | u64::from(locate) << 32,
            u64::from(side) | u64::from(letter) << 8 | u64::from(bits) << 16,
            symbol,
            order,
            other,
            price as u64,
            qty,
            ask_px as u64,
            ask_qty,
            0,
            0,
        ]
    }

    /// The record of such words; `None` where the kind of event is none that is known here.
    pub(crate) fn from_words(words: &[u64; BODY_WORDS]) -> Option<Self> {
        let [
            venue_seq,
            at_ns,
            receive_ns,
            publish_ns,
            head,
            small,
            symbol,
            order,
            other,
            price,
            qty,
            ask_px,
            ask_qty,
            ..,
        ] = *words;
        let fields = Fields {
            kind: head as u8,
            at_ns,
            locate: (head >> 32) as u32,
            side: small as u8,
            letter: (small >> 8) as u8,
            bits: (small >> 16) as u8,
            symbol,
            order,
            other,
            price: price as i64,
            qty,
            ask_px: ask_px as i64,
            ask_qty,
        };
        let (channel, flags) = ((head >> 16) as u16, Flags((head >> 8) as u8));
        Some(Self { venue_seq, receive_ns, publish_ns, channel, flags, event: fields.event()? })
    }
}

/// The kinds, as `include/market_ring.h` numbers them; a number is never used again for another.
mod kind {
    pub(super) const ADD: u8 = 1;
    pub(super) const EXECUTE: u8 = 2;
    pub(super) const CANCEL: u8 = 3;
    pub(super) const DELETE: u8 = 4;
    pub(super) const REPLACE: u8 = 5;
    pub(super) const MODIFY: u8 = 6;
    pub(super) const TRADE: u8 = 7;
    pub(super) const TRADE_BREAK: u8 = 8;
    pub(super) const QUOTE: u8 = 9;
    pub(super) const PRICE_LEVEL: u8 = 10;
    pub(super) const DIRECTORY: u8 = 11;
    pub(super) const STATUS: u8 = 12;
    pub(super) const SYSTEM: u8 = 13;
    pub(super) const CLEAR: u8 = 14;
    pub(super) const CLOCK: u8 = 15;
    pub(super) const OTHER: u8 = 16;
}

/// The execution counts as volume, the status is this venue's alone, the quote can be traded, the
/// level leaves a consistent book: each event has one such bit at most.
const FLAG: u8 = 1;
/// The price is there.
const HAS_PRICE: u8 = 2;
/// The remaining shares are there.
const HAS_REMAINING: u8 = 4;
/// The letter of a side that is unknown.
const NO_SIDE: u8 = 0;

/// The fields of all events; an event leaves the others zero.
#[derive(Default)]
struct Fields {
    kind: u8,
    at_ns: u64,
    locate: u32,
    side: u8,
    letter: u8,
    bits: u8,
    symbol: u64,
    order: u64,
    other: u64,
    price: i64,
    qty: u64,
    ask_px: i64,
    ask_qty: u64,
}

impl Fields {
    #[inline]
    fn of(event: &Event) -> Self {
        let none = Self::default();
        match *event {
            Event::Add(Add { locate, side, qty, at_ns, order, price, symbol }) => Self {
                kind: kind::ADD,
                at_ns,
                locate: locate.0.into(),
                side: side.to_wire(),
                qty: qty.into(),
                order: order.0,
                price: price.0,
                symbol: word(symbol),
                ..none
            },
            Event::Execute(Execute { locate, printable, qty, at_ns, order, trade, price, remaining }) => Self {
                kind: kind::EXECUTE,
                at_ns,
                locate: locate.0.into(),
                bits: bit(printable, FLAG) | bit(price.is_some(), HAS_PRICE) | bit(remaining.is_some(), HAS_REMAINING),
                qty: qty.into(),
                order: order.0,
                other: trade,
                price: price.unwrap_or_default().0,
                ask_qty: remaining.unwrap_or_default().into(),
                ..none
            },
            Event::Cancel(Cancel { locate, qty, at_ns, order }) => {
                Self { kind: kind::CANCEL, at_ns, locate: locate.0.into(), qty: qty.into(), order: order.0, ..none }
            }
            Event::Delete(Delete { locate, at_ns, order }) => {
                Self { kind: kind::DELETE, at_ns, locate: locate.0.into(), order: order.0, ..none }
            }
            Event::Replace(Replace { locate, qty, at_ns, old, new, price }) => Self {
                kind: kind::REPLACE,
                at_ns,
                locate: locate.0.into(),
                qty: qty.into(),
                order: old.0,
                other: new.0,
                price: price.0,
                ..none
            },
            Event::Modify(Modify { qty, at_ns, order, price }) => {
                Self { kind: kind::MODIFY, at_ns, qty: qty.into(), order: order.0, price: price.0, ..none }
            }
            Event::Trade(Trade { locate, side, at_ns, price, trade, symbol, qty }) => Self {
                kind: kind::TRADE,
                at_ns,
                locate: locate.0.into(),
                side: side.map_or(NO_SIDE, Side::to_wire),
                other: trade,
                price: price.0,
                qty,
                symbol: word(symbol),
                ..none
            },
            Event::TradeBreak(TradeBreak { at_ns, trade }) => {
                Self { kind: kind::TRADE_BREAK, at_ns, other: trade, ..none }
            }
            Event::Quote(Quote { available, bid_qty, at_ns, bid_px, ask_px, symbol, ask_qty }) => Self {
                kind: kind::QUOTE,
                at_ns,
                bits: bit(available, FLAG),
                price: bid_px.0,
                qty: bid_qty.into(),
                ask_px: ask_px.0,
                ask_qty: ask_qty.into(),
                symbol: word(symbol),
                ..none
            },
            Event::PriceLevel(PriceLevel { side, complete, qty, at_ns, price, symbol }) => Self {
                kind: kind::PRICE_LEVEL,
                at_ns,
                side: side.to_wire(),
                bits: bit(complete, FLAG),
                qty: qty.into(),
                price: price.0,
                symbol: word(symbol),
                ..none
            },
            Event::Directory(Directory { locate, round_lot, at_ns, symbol }) => Self {
                kind: kind::DIRECTORY,
                at_ns,
                locate: locate.0.into(),
                qty: round_lot.into(),
                symbol: word(symbol),
                ..none
            },
            Event::Status(Status { locate, state, operational, at_ns, symbol }) => Self {
                kind: kind::STATUS,
                at_ns,
                locate: locate.0.into(),
                letter: state,
                bits: bit(operational, FLAG),
                symbol: word(symbol),
                ..none
            },
            Event::System(System { code, at_ns }) => Self { kind: kind::SYSTEM, at_ns, letter: code, ..none },
            Event::Clear(Clear { at_ns }) => Self { kind: kind::CLEAR, at_ns, ..none },
            Event::Clock(Clock { at_ns }) => Self { kind: kind::CLOCK, at_ns, ..none },
            Event::Other(Other { kind, at_ns }) => Self { kind: kind::OTHER, at_ns, letter: kind, ..none },
        }
    }

    #[inline]
    fn event(self) -> Option<Event> {
        let Self { at_ns, locate, side, letter, symbol, order, other, price, qty, ask_px, ask_qty, .. } = self;
        let (locate, side, symbol) = (Locate(locate as u16), Side::from_wire(side), Symbol(symbol.to_le_bytes()));
        let (order, price, shares, flag) = (OrderRef(order), Price(price), qty as u32, self.has(FLAG));
        Some(match self.kind {
            kind::ADD => Event::Add(Add { locate, side, qty: shares, at_ns, order, price, symbol }),
            kind::EXECUTE => Event::Execute(Execute {
                locate,
                printable: flag,
                qty: shares,
                at_ns,
                order,
                trade: other,
                price: self.has(HAS_PRICE).then_some(price),
                remaining: self.has(HAS_REMAINING).then_some(ask_qty as u32),
            }),
            kind::CANCEL => Event::Cancel(Cancel { locate, qty: shares, at_ns, order }),
            kind::DELETE => Event::Delete(Delete { locate, at_ns, order }),
            kind::REPLACE => {
                Event::Replace(Replace { locate, qty: shares, at_ns, old: order, new: OrderRef(other), price })
            }
            kind::MODIFY => Event::Modify(Modify { qty: shares, at_ns, order, price }),
            kind::TRADE => {
                let side = (self.side != NO_SIDE).then_some(side);
                Event::Trade(Trade { locate, side, at_ns, price, trade: other, symbol, qty })
            }
            kind::TRADE_BREAK => Event::TradeBreak(TradeBreak { at_ns, trade: other }),
            kind::QUOTE => Event::Quote(Quote {
                available: flag,
                bid_qty: shares,
                at_ns,
                bid_px: price,
                ask_px: Price(ask_px),
                symbol,
                ask_qty: ask_qty as u32,
            }),
            kind::PRICE_LEVEL => {
                Event::PriceLevel(PriceLevel { side, complete: flag, qty: shares, at_ns, price, symbol })
            }
            kind::DIRECTORY => Event::Directory(Directory { locate, round_lot: shares, at_ns, symbol }),
            kind::STATUS => Event::Status(Status { locate, state: letter, operational: flag, at_ns, symbol }),
            kind::SYSTEM => Event::System(System { code: letter, at_ns }),
            kind::CLEAR => Event::Clear(Clear { at_ns }),
            kind::CLOCK => Event::Clock(Clock { at_ns }),
            kind::OTHER => Event::Other(Other { kind: letter, at_ns }),
            _ => return None,
        })
    }

    fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }
}

fn bit(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn word(symbol: Symbol) -> u64 {
    u64::from_le_bytes(symbol.0)
}
