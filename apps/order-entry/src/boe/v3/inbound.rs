//! Messages to the venue: bodies after the header. Times are ns since 1970, prices have four
//! decimals, dates are numbers such as 20261127.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::set::message_set;
use crate::Text;
use crate::boe::{Capacity, OrderType, Side, TimeInForce};
use crate::codec::layouts;

/// What happens to two orders of one owner that would trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PreventMatch {
    /// `N` cancel the newest, `O` the oldest, `B` both.
    pub modifier: u8,
    /// `N` none, `F` firm, `M` the clearing firm's identifier.
    pub level: u8,
    /// The trading group.
    pub group: u8,
}

/// Which orders a mass cancel is for, and how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MassCancelInst {
    /// `A` all firms, `F` the clearing firm of the message.
    pub firm_filter: u8,
    /// `M` a cancel for each order, `S` one acknowledgment, `B` both.
    pub acknowledgment: u8,
    /// `N` no lock-out, `L` until a risk reset.
    pub lockout: u8,
    /// `B` both, `S` simple orders, `C` spreads.
    pub instruments: u8,
    /// `C` cancel orders until cancelled or until a date, `P` preserve them.
    pub long_lived: u8,
    /// Unused.
    pub reserved: [u8; 11],
}

layouts! {
    skip 12, kind u16;

    /// Enter a new order.
    1008 NewOrder 143 {
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// Buy or sell.
        side: Side,
        /// Contracts.
        quantity: U32,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Account that clears.
        clearing_account: Text<4>,
        /// Limit.
        price: I64,
        /// How it is priced.
        order_type: OrderType,
        /// How long it lives.
        time_in_force: TimeInForce,
        /// The least contracts of a fill.
        min_quantity: U32,
        /// The instrument.
        symbol: Text<8>,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Account of the customer.
        account: Text<16>,
        /// What happens to orders of one owner.
        prevent_match: PreventMatch,
        /// When it expires.
        expire_ns: U64,
        /// Expiration date of the instrument, where the symbol is a product.
        maturity_date: U32,
        /// `O` opens a position, `C` closes, `N` neither.
        open_close: u8,
        /// Number of the firm that clears in its place.
        cmta_number: U32,
        /// Stop price.
        stop_price: I64,
        /// The group, for purges.
        group_id: U16,
        /// Kind of customer, `1` to `4`.
        cti_code: u8,
        /// `Y` by hand, `N` by a machine.
        manual: u8,
        /// The operator.
        operator: Text<18>,
        /// The frequent trader.
        frequent_trader: Text<6>,
        /// How the order came to the broker.
        handling: u8,
        /// Country of the operator.
        country: Text<2>,
    }

    /// Change an order. The quantity is the total, with the contracts executed before.
    1002 ModifyOrder 104 {
        /// The order's new identifier.
        cl_ord_id: Text<20>,
        /// The order.
        orig_cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Contracts.
        quantity: U32,
        /// Limit.
        price: I64,
        /// How it is priced.
        order_type: OrderType,
        /// `Y`: cancel the original where the modify fails.
        cancel_orig_on_reject: u8,
        /// Stop price.
        stop_price: I64,
        /// `Y` by hand, `N` by a machine.
        manual: u8,
        /// The operator.
        operator: Text<18>,
        /// The frequent trader.
        frequent_trader: Text<6>,
        /// How the order came to the broker.
        handling: u8,
    }

    /// Cancel an order.
    1003 CancelOrder 55 {
        /// The order.
        orig_cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// `Y` by hand, `N` by a machine.
        manual: u8,
        /// The operator.
        operator: Text<18>,
    }

    /// Cancel many orders of this session.
    1004 MassCancelOrder 77 {
        /// The mass cancel.
        mass_cancel_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// The product.
        product: Text<6>,
        /// Which orders, and how it is answered.
        instruction: MassCancelInst,
        /// `Y` by hand, `N` by a machine.
        manual: u8,
        /// The operator.
        operator: Text<18>,
    }

    /// Cancel many orders of all sessions of the firm. The groups follow, as many as the count
    /// says.
    1005 PurgeOrders 78 {
        /// The purge.
        mass_cancel_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// The product.
        product: Text<6>,
        /// Which orders, and how it is answered.
        instruction: MassCancelInst,
        /// `Y` by hand, `N` by a machine.
        manual: u8,
        /// The operator.
        operator: Text<18>,
        /// How many groups follow.
        group_count: u8,
    }

    /// End a lock-out.
    1007 ResetRisk 48 {
        /// The request.
        risk_status_id: Text<16>,
        /// Which lock-outs.
        reset: Text<8>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// The product.
        product: Text<6>,
        /// The group.
        group_id: U16,
    }
}

message_set! {
    /// A message to the venue, viewed in the stream.
    Inbound;
    NewOrder ModifyOrder CancelOrder MassCancelOrder PurgeOrders ResetRisk
}
