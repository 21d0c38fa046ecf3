//! Messages of the venue.

use market::Symbol;
use zerocopy::big_endian::{U32, U64};

use super::set::message_set;
use crate::Text;
use crate::codec::layouts;
use crate::ouch::{
    BboWeight, BrokenTradeReason, CancelReason, Capacity, CrossType, Display, LiquidityFlag, OrderState,
    RejectReason42, Side, SystemEventCode, YesNo,
};

layouts! {
    skip 1, kind u8;

    /// The day begins or ends.
    b'S' SystemEvent 10 {
        /// Time.
        at_ns: U64,
        /// Which of the two.
        event: SystemEventCode,
    }

    /// An order was accepted.
    b'A' OrderAccepted 66 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// Its side.
        side: Side,
        /// Its shares.
        shares: U32,
        /// The stock.
        stock: Symbol,
        /// Its limit.
        price: U32,
        /// How long it lives.
        time_in_force: U32,
        /// The firm.
        firm: Text<4>,
        /// Whether it is shown.
        display: Display,
        /// The venue's number, that of ITCH where the order is shown.
        order_ref: U64,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Intermarket sweep order.
        intermarket_sweep: YesNo,
        /// The least shares of a fill.
        min_quantity: U32,
        /// In which session or auction it takes part.
        cross_type: CrossType,
        /// Live, or dead at once.
        state: OrderState,
        /// Its weight at the best price.
        bbo_weight: BboWeight,
    }

    /// An order was replaced.
    b'U' OrderReplaced 80 {
        /// Time.
        at_ns: U64,
        /// The order in place of the other.
        token: Text<14>,
        /// Its side.
        side: Side,
        /// Its open shares.
        shares: U32,
        /// The stock.
        stock: Symbol,
        /// Its limit.
        price: U32,
        /// How long it lives.
        time_in_force: U32,
        /// The firm.
        firm: Text<4>,
        /// Whether it is shown.
        display: Display,
        /// The venue's number.
        order_ref: U64,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Intermarket sweep order.
        intermarket_sweep: YesNo,
        /// The least shares of a fill.
        min_quantity: U32,
        /// In which session or auction it takes part.
        cross_type: CrossType,
        /// Live, or dead at once.
        state: OrderState,
        /// The order that is gone.
        previous_token: Text<14>,
        /// Its weight at the best price.
        bbo_weight: BboWeight,
    }

    /// Shares of an order were cancelled.
    b'C' OrderCanceled 28 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// The shares taken off by this message alone.
        decrement: U32,
        /// Why.
        reason: CancelReason,
    }

    /// Shares of an order were cancelled because it would have traded with its owner.
    b'D' AiqCanceled 37 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// The shares taken off by this message alone.
        decrement: U32,
        /// Why.
        reason: CancelReason,
        /// The shares that would have traded.
        prevented: U32,
        /// The price at which they would have traded.
        price: U32,
        /// The flag that the fill would have had.
        liquidity: LiquidityFlag,
    }

    /// Shares of an order traded.
    b'E' Executed 40 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// The shares of this fill alone.
        shares: U32,
        /// Its price.
        price: U32,
        /// What it did to the book.
        liquidity: LiquidityFlag,
        /// The match, the same number on both sides and in ITCH.
        match_number: U64,
    }

    /// Shares of an order traded, at a price that depends on a reference.
    b'G' ExecutedWithReferencePrice 45 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// The shares of this fill alone.
        shares: U32,
        /// Its price.
        price: U32,
        /// What it did to the book.
        liquidity: LiquidityFlag,
        /// The match.
        match_number: U64,
        /// The reference price.
        reference_price: U32,
        /// What the reference is.
        reference_type: u8,
    }

    /// A trade is no more. The shares do not come back to the order.
    b'B' BrokenTrade 32 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// The match of the fill.
        match_number: U64,
        /// Why.
        reason: BrokenTradeReason,
    }

    /// A trade has another price.
    b'F' TradeCorrection 41 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// The shares of the fill.
        shares: U32,
        /// Its price now.
        price: U32,
        /// What it did to the book.
        liquidity: LiquidityFlag,
        /// The match of the fill.
        match_number: U64,
        /// Why.
        reason: BrokenTradeReason,
    }

    /// An order was refused. Its token may not be used again.
    b'J' OrderRejected 24 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// Why.
        reason: RejectReason42,
    }

    /// A cancel waits, because the order is in a cross; its answer follows.
    b'P' CancelPending 23 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
    }

    /// A cancel is not possible, because the order is in a cross.
    b'I' CancelReject 23 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
    }

    /// The venue gave an order another priority.
    b'T' PriorityUpdate 36 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// Its price now.
        price: U32,
        /// Whether it is shown now.
        display: Display,
        /// The venue's number now.
        order_ref: U64,
    }

    /// A modify was done.
    b'M' OrderModified 28 {
        /// Time.
        at_ns: U64,
        /// The order.
        token: Text<14>,
        /// Its side now.
        side: Side,
        /// Its open shares now.
        shares: U32,
    }
}

message_set! {
    /// A message of the venue, viewed in the packet.
    Outbound;
    SystemEvent OrderAccepted OrderReplaced OrderCanceled AiqCanceled Executed ExecutedWithReferencePrice
    BrokenTrade TradeCorrection OrderRejected CancelPending CancelReject PriorityUpdate OrderModified
}
