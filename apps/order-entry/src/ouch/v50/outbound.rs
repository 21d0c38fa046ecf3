//! Messages of the venue. Offsets of the specification count from the type byte, which is not in
//! the structures. Times are nanoseconds since midnight New York.

use market::Symbol;
use zerocopy::big_endian::{U16, U32, U64};

use super::set::message_set;
use crate::Text;
use crate::codec::layouts;
use crate::ouch::{
    AiqStrategy, BrokenTradeReason, CancelReason, Capacity, CrossType, Display, LiquidityFlag, OrderState,
    RejectReason, RestateReason, Side, SystemEventCode, TimeInForce, YesNo,
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

    /// An order was accepted, as it stands here: the venue may have changed the display.
    b'A' OrderAccepted 62 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
        /// Its side.
        side: Side,
        /// Its shares.
        quantity: U32,
        /// The stock.
        symbol: Symbol,
        /// Its limit.
        price: U64,
        /// How long it lives.
        time_in_force: TimeInForce,
        /// Whether it is shown.
        display: Display,
        /// The venue's number, that of ITCH where the order is shown.
        order_ref: U64,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Intermarket sweep order.
        intermarket_sweep: YesNo,
        /// In which session or auction it takes part.
        cross_type: CrossType,
        /// Live, or dead at once.
        state: OrderState,
        /// The customer's text.
        cl_ord_id: Text<14>,
    }

    /// An order was replaced.
    b'U' OrderReplaced 66 {
        /// Time.
        at_ns: U64,
        /// The order that is gone.
        orig_user_ref: U32,
        /// The order in its place.
        user_ref: U32,
        /// Its side.
        side: Side,
        /// Its open shares.
        quantity: U32,
        /// The stock.
        symbol: Symbol,
        /// Its limit.
        price: U64,
        /// How long it lives.
        time_in_force: TimeInForce,
        /// Whether it is shown.
        display: Display,
        /// The venue's number.
        order_ref: U64,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Intermarket sweep order.
        intermarket_sweep: YesNo,
        /// In which session or auction it takes part.
        cross_type: CrossType,
        /// Live, or dead at once.
        state: OrderState,
        /// The customer's text.
        cl_ord_id: Text<14>,
    }

    /// Shares of an order were cancelled.
    b'C' OrderCanceled 18 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
        /// The shares taken off by this message alone.
        quantity: U32,
        /// Why.
        reason: CancelReason,
    }

    /// Shares of an order were cancelled because it would have traded with its owner.
    b'D' AiqCanceled 32 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
        /// The shares taken off by this message alone.
        decrement: U32,
        /// Always [`CancelReason::SELF_MATCH`].
        reason: CancelReason,
        /// The shares that would have traded.
        prevented: U32,
        /// The price at which they would have traded.
        price: U64,
        /// The flag that the fill would have had.
        liquidity: LiquidityFlag,
        /// The strategy that was used.
        strategy: AiqStrategy,
    }

    /// Shares of an order traded.
    b'E' OrderExecuted 34 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
        /// The shares of this fill alone.
        quantity: U32,
        /// Its price.
        price: U64,
        /// What it did to the book.
        liquidity: LiquidityFlag,
        /// The match, the same number on both sides and in ITCH.
        match_number: U64,
    }

    /// A trade is no more. The shares do not come back to the order.
    b'B' BrokenTrade 36 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
        /// The match of the fill.
        match_number: U64,
        /// Why.
        reason: BrokenTradeReason,
        /// The customer's text.
        cl_ord_id: Text<14>,
    }

    /// A message was refused. Its number is used up.
    b'J' OrderRejected 29 {
        /// Time.
        at_ns: U64,
        /// The number of the message.
        user_ref: U32,
        /// Why; see [`OrderRejected::reason`].
        reason_code: U16,
        /// The customer's text.
        cl_ord_id: Text<14>,
    }

    /// A cancel waits, because the order is in a cross; its answer follows.
    b'P' CancelPending 13 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
    }

    /// A cancel is not possible, because the order is in a cross.
    b'I' CancelReject 13 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
    }

    /// The venue gave an order another priority.
    b'T' OrderPriorityUpdate 30 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
        /// Its price now.
        price: U64,
        /// Whether it is shown now.
        display: Display,
        /// The venue's number now.
        order_ref: U64,
    }

    /// A modify was done.
    b'M' OrderModified 18 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
        /// Its side now.
        side: Side,
        /// Its open shares now.
        quantity: U32,
    }

    /// The venue changed an order by itself; options say what.
    b'R' OrderRestated 14 {
        /// Time.
        at_ns: U64,
        /// The order.
        user_ref: U32,
        /// Why.
        reason: RestateReason,
    }

    /// A mass cancel was accepted. The cancels follow, one for each order.
    b'X' MassCancelResponse 25 {
        /// Time.
        at_ns: U64,
        /// The request.
        user_ref: U32,
        /// The firm.
        firm: Text<4>,
        /// The stock, blank for all.
        symbol: Symbol,
    }

    /// Orders of a firm are no longer accepted.
    b'G' DisableOrderEntryResponse 17 {
        /// Time.
        at_ns: U64,
        /// The request.
        user_ref: U32,
        /// The firm.
        firm: Text<4>,
    }

    /// Orders of a firm are accepted again.
    b'K' EnableOrderEntryResponse 17 {
        /// Time.
        at_ns: U64,
        /// The request.
        user_ref: U32,
        /// The firm.
        firm: Text<4>,
    }

    /// The answer to an account query.
    b'Q' AccountQueryResponse 13 {
        /// Time.
        at_ns: U64,
        /// The next free UserRefNum: all below it have arrived.
        next_user_ref: U32,
    }
}

message_set! {
    /// A message of the venue, viewed in the packet.
    Outbound;
    SystemEvent optional
    OrderAccepted required
    OrderReplaced required
    OrderCanceled optional
    AiqCanceled optional
    OrderExecuted required
    BrokenTrade optional
    OrderRejected optional
    CancelPending optional
    CancelReject optional
    OrderPriorityUpdate optional
    OrderModified optional
    OrderRestated required
    MassCancelResponse required
    DisableOrderEntryResponse required
    EnableOrderEntryResponse required
    AccountQueryResponse optional
}

impl OrderRejected {
    /// Why the message was refused.
    pub const fn reason(&self) -> RejectReason {
        RejectReason(self.reason_code.get())
    }
}
