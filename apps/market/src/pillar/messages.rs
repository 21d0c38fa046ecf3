//! The messages of the Integrated Feed that books and prints are made of, little endian, as in the
//! packet.
//!
//! A message begins with its own length and its type, and newer versions of the specification add
//! fields at its end: what is behind the fields below is not read. Prices are integers with the
//! decimals of their instrument.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::layouts;

/// The first 4 bytes of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// Bytes of the message, these included.
    pub len: U16,
    /// The type.
    pub kind: U16,
}

impl Head {
    /// The head of a message of `len` bytes and type `kind` (`AddOrder::LEN`, `AddOrder::KIND` …).
    pub const fn new(len: usize, kind: u8) -> Self {
        assert!(len <= u16::MAX as usize, "a message has 65,535 bytes at most");
        Self { len: U16::new(len as u16), kind: U16::new(kind as u16) }
    }
}

/// Instrument and time of a message about orders or trades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SymbolHead {
    /// ns since the last [`SourceTimeReference`] of the instrument's matching engine.
    pub source_time_ns: U32,
    /// The instrument's index.
    pub symbol_index: U32,
    /// Reserved.
    pub symbol_seq_num: U32,
}

layouts! {
    head Head;

    /// The numbers of the channel begin anew: this message is the first.
    1 SequenceNumberReset 14 {
        /// Seconds since 1970.
        source_time: U32,
        /// ns behind them.
        source_time_ns: U32,
        /// The feed.
        product_id: u8,
        /// The channel.
        channel_id: u8,
    }

    /// The next second of one matching engine begins.
    2 SourceTimeReference 16 {
        /// The matching engine.
        id: U32,
        /// Reserved.
        symbol_seq_num: U32,
        /// Seconds since 1970.
        source_time: U32,
    }

    /// The definition of an instrument.
    3 SymbolIndexMapping 44 {
        /// Its index, unique within the market.
        symbol_index: U32,
        /// Its name, ended by zeros.
        symbol: [u8; 11],
        /// Reserved.
        reserved_1: u8,
        /// The market.
        market_id: U16,
        /// Its matching engine.
        system_id: u8,
        /// Where it is listed.
        exchange_code: u8,
        /// Decimals of its prices.
        price_scale_code: u8,
        /// Its type.
        security_type: u8,
        /// Shares in a round lot.
        lot_size: U16,
        /// The last close.
        prev_close_price: U32,
        /// Volume of the last day.
        prev_close_volume: U32,
        /// Penny or nickel.
        price_resolution: u8,
        /// `Y` where round lots are accepted.
        round_lot: u8,
        /// The least step of a price, hundredths of a cent.
        mpv: U16,
        /// Shares in a unit of trade.
        unit_of_trade: U16,
        /// Reserved.
        reserved_2: U16,
    }

    /// All orders of an instrument are gone.
    32 SymbolClear 20 {
        /// Seconds since 1970.
        source_time: U32,
        /// ns behind them.
        source_time_ns: U32,
        /// The instrument's index.
        symbol_index: U32,
        /// Number of the instrument's next message.
        next_source_seq_num: U32,
    }

    /// An instrument halts, opens or closes.
    34 SecurityStatus 22 {
        /// Seconds since 1970.
        source_time: U32,
        /// ns behind them.
        source_time_ns: U32,
        /// The instrument's index.
        symbol_index: U32,
        /// Reserved.
        symbol_seq_num: U32,
        /// The new state: `4` halted, `5` resumed, `P` before the opening, `O` core session …
        security_status: u8,
        /// Why it halted.
        halt_condition: u8,
    }

    /// An order rests on the book.
    100 AddOrder 39 {
        /// Instrument and time.
        of: SymbolHead,
        /// The order.
        order_id: U64,
        /// Its limit.
        price: U32,
        /// Its displayed shares.
        volume: U32,
        /// `B` or `S`.
        side: u8,
        /// Its owner, or spaces.
        firm_id: [u8; 5],
        /// Reserved.
        reserved_1: u8,
    }

    /// A resting order has a new size and price.
    101 ModifyOrder 35 {
        /// Instrument and time.
        of: SymbolHead,
        /// The order.
        order_id: U64,
        /// Its limit from now on.
        price: U32,
        /// Its shares from now on.
        volume: U32,
        /// 0: it keeps its place in the queue.
        position_change: u8,
        /// Its side.
        side: u8,
        /// Reserved.
        reserved_2: u8,
    }

    /// A resting order is gone.
    102 DeleteOrder 25 {
        /// Instrument and time.
        of: SymbolHead,
        /// The order.
        order_id: U64,
        /// Reserved.
        reserved_1: u8,
    }

    /// A resting order traded.
    103 OrderExecution 42 {
        /// Instrument and time.
        of: SymbolHead,
        /// The order.
        order_id: U64,
        /// The trade's number.
        trade_id: U32,
        /// The price of the trade.
        price: U32,
        /// Shares that traded.
        volume: U32,
        /// 1: counts as volume.
        printable_flag: u8,
        /// Reserved.
        reserved_1: u8,
        /// Sale conditions.
        trade_cond: [u8; 4],
    }

    /// A resting order is gone, and another takes its place.
    104 ReplaceOrder 42 {
        /// Instrument and time.
        of: SymbolHead,
        /// The order that goes.
        order_id: U64,
        /// The order that comes.
        new_order_id: U64,
        /// Its limit.
        price: U32,
        /// Its displayed shares.
        volume: U32,
        /// Reserved.
        reserved: [u8; 2],
    }

    /// A trade against an order that was not displayed.
    110 NonDisplayedTrade 33 {
        /// Instrument and time.
        of: SymbolHead,
        /// The trade's number.
        trade_id: U32,
        /// The price.
        price: U32,
        /// Shares.
        volume: U32,
        /// 1: counts as volume.
        printable_flag: u8,
        /// Sale conditions.
        trade_cond: [u8; 4],
    }

    /// An auction traded.
    111 CrossTrade 29 {
        /// Instrument and time.
        of: SymbolHead,
        /// The cross's number.
        cross_id: U32,
        /// The price.
        price: U32,
        /// Shares.
        volume: U32,
        /// Which auction.
        cross_type: u8,
    }

    /// A trade that is void.
    112 TradeCancel 20 {
        /// Instrument and time.
        of: SymbolHead,
        /// The trade's number.
        trade_id: U32,
    }
}

/// A message asked for again is not to be had.
pub const MESSAGE_UNAVAILABLE: u8 = 31;
/// A refresh of an instrument's orders begins.
pub const REFRESH_HEADER: u8 = 35;
/// The state of an auction.
pub const IMBALANCE: u8 = 105;
/// An order of a refresh.
pub const ADD_ORDER_REFRESH: u8 = 106;
/// The shares of an auction's trade were others.
pub const CROSS_CORRECTION: u8 = 113;
/// Retail price improvement.
pub const RETAIL_PRICE_IMPROVEMENT: u8 = 114;
/// High, low, open, close and volume of an instrument's day.
pub const STOCK_SUMMARY: u8 = 223;

/// The types of the structures above and their lengths in bytes; newer messages may be longer.
pub const LENGTHS: &[(u8, usize)] = &[
    (SequenceNumberReset::KIND, SequenceNumberReset::LEN),
    (SourceTimeReference::KIND, SourceTimeReference::LEN),
    (SymbolIndexMapping::KIND, SymbolIndexMapping::LEN),
    (SymbolClear::KIND, SymbolClear::LEN),
    (SecurityStatus::KIND, SecurityStatus::LEN),
    (AddOrder::KIND, AddOrder::LEN),
    (ModifyOrder::KIND, ModifyOrder::LEN),
    (DeleteOrder::KIND, DeleteOrder::LEN),
    (OrderExecution::KIND, OrderExecution::LEN),
    (ReplaceOrder::KIND, ReplaceOrder::LEN),
    (NonDisplayedTrade::KIND, NonDisplayedTrade::LEN),
    (CrossTrade::KIND, CrossTrade::LEN),
    (TradeCancel::KIND, TradeCancel::LEN),
];
