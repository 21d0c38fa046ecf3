//! Messages to the venue. Offsets of the specification count from the type byte, which is not in
//! the structures.

use market::Symbol;
use zerocopy::big_endian::{U32, U64};

use super::set::message_set;
use crate::Text;
use crate::codec::layouts;
use crate::ouch::{Capacity, CrossType, Display, Side, TimeInForce, YesNo};

layouts! {
    skip 1, kind u8;

    /// Enter a new order. A UserRefNum not above the last is ignored in silence.
    b'O' EnterOrder 45 {
        /// The order's number, above all before on this account today.
        user_ref: U32,
        /// Buy, or which kind of sale.
        side: Side,
        /// Shares, from 1 to 999,999.
        quantity: U32,
        /// The stock.
        symbol: Symbol,
        /// Limit, four decimals; [`MARKET_PRICE`](crate::ouch::MARKET_PRICE) is market in a cross.
        price: U64,
        /// How long it lives.
        time_in_force: TimeInForce,
        /// Whether it is shown.
        display: Display,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Intermarket sweep order.
        intermarket_sweep: YesNo,
        /// In which session or auction it takes part.
        cross_type: CrossType,
        /// The customer's text. The venue does not check that it is unique.
        cl_ord_id: Text<14>,
    }

    /// Replace an order: another number, quantity and price, and the priority is lost.
    b'U' ReplaceOrder 38 {
        /// The order to replace.
        orig_user_ref: U32,
        /// The new order's number, above all before.
        user_ref: U32,
        /// New intended total of the chain, **with** the shares executed before.
        quantity: U32,
        /// Limit, four decimals.
        price: U64,
        /// How long it lives.
        time_in_force: TimeInForce,
        /// Whether it is shown.
        display: Display,
        /// Intermarket sweep order.
        intermarket_sweep: YesNo,
        /// The customer's text.
        cl_ord_id: Text<14>,
    }

    /// Cancel an order, or reduce it. It keeps its priority. A superfluous one is ignored in
    /// silence.
    b'X' CancelOrder 9 {
        /// The order.
        user_ref: U32,
        /// New intended total of the order, **with** the shares executed before; 0 cancels all
        /// that is open.
        quantity: U32,
    }

    /// Change the side among the kinds of sale, or reduce. The order keeps its priority.
    b'M' ModifyOrder 10 {
        /// The order.
        user_ref: U32,
        /// The side; see [`Side::may_become`].
        side: Side,
        /// New intended total of the order, **with** the shares executed before.
        quantity: U32,
    }

    /// Cancel all orders of a firm, of a symbol, of a side or group by options.
    b'C' MassCancel 17 {
        /// The request's number, above all before.
        user_ref: U32,
        /// The firm.
        firm: Text<4>,
        /// The stock; [`Symbol::NONE`] is all.
        symbol: Symbol,
    }

    /// Cancel all orders of a firm, and accept no further ones.
    b'D' DisableOrderEntry 9 {
        /// The request's number, above all before.
        user_ref: U32,
        /// The firm.
        firm: Text<4>,
    }

    /// Accept orders of a firm again.
    b'E' EnableOrderEntry 9 {
        /// The request's number, above all before.
        user_ref: U32,
        /// The firm.
        firm: Text<4>,
    }

    /// Ask for the next free UserRefNum.
    b'Q' AccountQuery 1 {}
}

message_set! {
    /// A message to the venue, viewed in the packet.
    Inbound;
    EnterOrder required
    ReplaceOrder required
    CancelOrder optional
    ModifyOrder optional
    MassCancel required
    DisableOrderEntry required
    EnableOrderEntry required
    AccountQuery optional
}

impl EnterOrder {
    /// An order that is shown, of an agency, to be continuously traded. The others of its fields
    /// are filled in by struct update, or patched in an
    /// [`OrderTemplate`](crate::ouch::OrderTemplate).
    pub fn new(side: Side, symbol: Symbol, time_in_force: TimeInForce) -> Self {
        Self {
            user_ref: 0.into(),
            side,
            quantity: 0.into(),
            symbol,
            price: 0.into(),
            time_in_force,
            display: Display::VISIBLE,
            capacity: Capacity::AGENCY,
            intermarket_sweep: YesNo::NO,
            cross_type: CrossType::CONTINUOUS,
            cl_ord_id: Text::BLANK,
        }
    }
}

impl Inbound<'_> {
    /// The new UserRefNum that the message takes; `None` where it names an order, or has none.
    pub fn takes_user_ref(&self) -> Option<u32> {
        match self {
            Self::EnterOrder(order) => Some(order.user_ref.get()),
            Self::ReplaceOrder(replace) => Some(replace.user_ref.get()),
            Self::MassCancel(cancel) => Some(cancel.user_ref.get()),
            Self::DisableOrderEntry(disable) => Some(disable.user_ref.get()),
            Self::EnableOrderEntry(enable) => Some(enable.user_ref.get()),
            Self::CancelOrder(_) | Self::ModifyOrder(_) | Self::AccountQuery(_) => None,
        }
    }
}
