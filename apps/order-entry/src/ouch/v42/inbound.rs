//! Messages to the venue.

use market::Symbol;
use zerocopy::big_endian::U32;

use super::set::message_set;
use crate::Text;
use crate::codec::layouts;
use crate::ouch::{Capacity, CrossType, CustomerType, Display, Side, YesNo};

layouts! {
    skip 1, kind u8;

    /// Enter a new order.
    b'O' EnterOrder 49 {
        /// The order's token, not used before today.
        token: Text<14>,
        /// Buy, or which kind of sale.
        side: Side,
        /// Shares, from 1 to 999,999.
        shares: U32,
        /// The stock.
        stock: Symbol,
        /// Limit; [`MARKET_PRICE`](crate::ouch::MARKET_PRICE) is market in a cross.
        price: U32,
        /// Seconds to live, or [`IMMEDIATE_OR_CANCEL`](super::IMMEDIATE_OR_CANCEL),
        /// [`MARKET_HOURS`](super::MARKET_HOURS), [`SYSTEM_HOURS`](super::SYSTEM_HOURS).
        time_in_force: U32,
        /// The firm, blank for the account's own.
        firm: Text<4>,
        /// Whether it is shown.
        display: Display,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Intermarket sweep order.
        intermarket_sweep: YesNo,
        /// The least shares of a fill; 0 is none.
        min_quantity: U32,
        /// In which session or auction it takes part.
        cross_type: CrossType,
        /// Retail or not.
        customer_type: CustomerType,
    }

    /// Replace an order: another token, quantity and price, and the priority is lost.
    b'U' ReplaceOrder 47 {
        /// The order to replace.
        token: Text<14>,
        /// The new order's token.
        new_token: Text<14>,
        /// Shares.
        shares: U32,
        /// Limit.
        price: U32,
        /// As of [`EnterOrder`].
        time_in_force: U32,
        /// Whether it is shown.
        display: Display,
        /// Intermarket sweep order.
        intermarket_sweep: YesNo,
        /// The least shares of a fill; 0 is none.
        min_quantity: U32,
    }

    /// Cancel an order, or reduce it. It keeps its priority.
    b'X' CancelOrder 19 {
        /// The order.
        token: Text<14>,
        /// New intended total of the order, **with** the shares executed before; 0 cancels all
        /// that is open.
        shares: U32,
    }

    /// Change the side among the kinds of sale, or reduce. The order keeps its priority.
    b'M' ModifyOrder 20 {
        /// The order.
        token: Text<14>,
        /// The side; see [`Side::may_become`].
        side: Side,
        /// New intended total of the order, **with** the shares executed before.
        shares: U32,
    }

    /// Let a resting order take liquidity now.
    b'N' TradeNow 15 {
        /// The order.
        token: Text<14>,
    }
}

message_set! {
    /// A message to the venue, viewed in the packet.
    Inbound;
    EnterOrder ReplaceOrder CancelOrder ModifyOrder TradeNow
}
