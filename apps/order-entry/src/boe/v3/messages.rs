//! The application messages: bodies after the header. Times are ns since 1970, prices have four
//! decimals, dates are numbers such as 20261127.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Text;
use crate::boe::{BoeError, Capacity, OrderType, ReasonCode, Side, TimeInForce};
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

    /// An order was accepted.
    1501 OrderAcknowledgment 173 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The venue's number.
        order_id: U64,
        /// Its side.
        side: Side,
        /// Its limit.
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
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Account that clears.
        clearing_account: Text<4>,
        /// Its contracts.
        quantity: U32,
        /// What happens to orders of one owner.
        prevent_match: PreventMatch,
        /// Expiration date of the instrument.
        maturity_date: U32,
        /// Opens or closes a position.
        open_close: u8,
        /// Open contracts.
        leaves: U32,
        /// Added or removed.
        base_liquidity: u8,
        /// When it expires.
        expire_ns: U64,
        /// More about liquidity.
        sub_liquidity: u8,
        /// Stop price.
        stop_price: I64,
        /// Number of the firm that clears in its place.
        cmta_number: U32,
        /// Kind of customer.
        cti_code: u8,
        /// By hand or by a machine.
        manual: u8,
        /// The operator.
        operator: Text<18>,
        /// Contracts executed.
        cumulative: U32,
        /// The frequent trader.
        frequent_trader: Text<6>,
        /// How the order came to the broker.
        handling: u8,
        /// When the venue received the order.
        received_ns: U64,
    }

    /// An order was refused. It has no number, and is not replayed.
    1502 OrderRejected 105 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// An order was changed.
    1503 OrderModified 113 {
        /// Time.
        at_ns: U64,
        /// Its new identifier.
        cl_ord_id: Text<20>,
        /// Its identifier before.
        orig_cl_ord_id: Text<20>,
        /// The venue's number.
        order_id: U64,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Its limit.
        price: I64,
        /// How it is priced.
        order_type: OrderType,
        /// Its contracts.
        quantity: U32,
        /// Open contracts.
        leaves: U32,
        /// Added or removed.
        base_liquidity: u8,
        /// Stop price.
        stop_price: I64,
        /// The frequent trader.
        frequent_trader: Text<6>,
        /// How the order came to the broker.
        handling: u8,
        /// When the venue received the change.
        received_ns: U64,
    }

    /// A change was refused. It has no number, and is not replayed.
    1504 ModifyRejected 125 {
        /// Time.
        at_ns: U64,
        /// The identifier that the order would have had.
        cl_ord_id: Text<20>,
        /// The order.
        orig_cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// Contracts of an order traded.
    1505 OrderExecution 103 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The fill.
        exec_id: U64,
        /// Its contracts.
        last_shares: U32,
        /// Its price.
        last_price: I64,
        /// Open contracts.
        leaves: U32,
        /// Added or removed.
        base_liquidity: u8,
        /// More about liquidity.
        sub_liquidity: u8,
        /// Its side.
        side: Side,
        /// The instrument.
        symbol: Text<8>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Expiration date of the instrument.
        maturity_date: U32,
        /// The fee.
        fee_code: Text<2>,
        /// Business date.
        trade_date: U32,
        /// Contracts that clear.
        clearing_size: U32,
        /// `P` a trade that is not final yet, `N` final.
        pending: u8,
        /// `1` simple, `2` part of a spread, `3` the spread.
        multileg: u8,
        /// Links the parts of a spread.
        secondary_exec_id: U64,
    }

    /// An order is no more.
    1506 OrderCancelled 53 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Why.
        reason: ReasonCode,
        /// When the venue received the cancel.
        received_ns: U64,
    }

    /// A cancel was refused. It has no number, and is not replayed.
    1507 CancelRejected 105 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// A mass cancel is done.
    1508 MassCancelAcknowledgment 52 {
        /// Time.
        at_ns: U64,
        /// The mass cancel.
        mass_cancel_id: Text<20>,
        /// Orders that it cancelled.
        cancelled_count: U32,
        /// When the venue received it.
        received_ns: U64,
    }

    /// A mass cancel was refused.
    1509 MassCancelRejected 101 {
        /// Time.
        at_ns: U64,
        /// The mass cancel.
        mass_cancel_id: Text<20>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// A purge is done.
    1510 PurgeAcknowledgment 52 {
        /// Time.
        at_ns: U64,
        /// The purge.
        mass_cancel_id: Text<20>,
        /// Orders that it cancelled.
        cancelled_count: U32,
        /// When the venue received it.
        received_ns: U64,
    }

    /// A purge was refused.
    1511 PurgeRejected 101 {
        /// Time.
        at_ns: U64,
        /// The purge.
        mass_cancel_id: Text<20>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// A fill is no more, or has another price.
    1512 TradeCancelOrCorrect 104 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The fill.
        exec_ref_id: U64,
        /// Its side.
        side: Side,
        /// Liquidity of the fill.
        base_liquidity: u8,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Account that clears.
        clearing_account: Text<4>,
        /// Contracts of the fill.
        last_shares: U32,
        /// Its price.
        last_price: I64,
        /// Its price now; 0 is none, the fill is cancelled.
        corrected_price: I64,
        /// When it traded.
        orig_at_ns: U64,
        /// The instrument.
        symbol: Text<8>,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Expiration date of the instrument.
        maturity_date: U32,
        /// Opens or closes a position.
        open_close: u8,
        /// Number of the firm that clears in its place.
        cmta_number: U32,
    }

    /// A trade at settlement has its price.
    1513 TasRestatement 116 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// The fill.
        exec_id: U64,
        /// Its side.
        side: Side,
        /// Limit of the order.
        price: I64,
        /// The instrument.
        symbol: Text<8>,
        /// Expiration date of the instrument.
        maturity_date: U32,
        /// Contracts of the fill.
        last_shares: U32,
        /// Its price.
        last_price: I64,
        /// The fee.
        fee_code: Text<2>,
        /// Business date.
        trade_date: U32,
        /// The price that clears.
        clearing_price: I64,
        /// The instrument that clears.
        clearing_symbol: Text<8>,
        /// Simple, part of a spread, the spread.
        multileg: u8,
        /// Links the parts of a spread.
        secondary_exec_id: U64,
    }
}

/// Declares the set of one direction.
macro_rules! message_set {
    ($(#[$doc:meta])* $set:ident; $($name:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $set<'a> {
            $(
                #[doc = concat!("See [`", stringify!($name), "`].")]
                $name(&'a $name),
            )*
        }

        impl<'a> $set<'a> {
            /// The types and their lengths in bytes, with the header.
            pub const LENGTHS: &'static [(u16, usize)] = &[$(($name::KIND, $name::LEN)),*];

            /// Lays the structure of a message of type `kind` over its body. Returns with it what
            /// follows the known fields: of a purge the groups, of the venue's messages the fields
            /// of later revisions.
            ///
            /// # Errors
            ///
            /// The body is no message of this direction that is known.
            pub fn parse(kind: u16, body: &'a [u8]) -> Result<(Self, &'a [u8]), BoeError> {
                match kind {
                    $($name::KIND => match $name::ref_from_prefix(body) {
                        Ok((view, tail)) => Ok((Self::$name(view), tail)),
                        Err(_) => {
                            Err(BoeError::Length { kind, expected: size_of::<$name>(), found: body.len() })
                        }
                    },)*
                    _ => Err(BoeError::Unknown { kind }),
                }
            }

            /// The body, to send with the type.
            pub fn as_bytes(&self) -> &'a [u8] {
                match *self {
                    $(Self::$name(view) => view.as_bytes(),)*
                }
            }
        }
    };
}

message_set! {
    /// A message to the venue, viewed in the stream.
    Inbound;
    NewOrder ModifyOrder CancelOrder MassCancelOrder PurgeOrders ResetRisk
}

message_set! {
    /// A message of the venue, viewed in the stream.
    Outbound;
    OrderAcknowledgment OrderRejected OrderModified ModifyRejected OrderExecution OrderCancelled CancelRejected
    MassCancelAcknowledgment MassCancelRejected PurgeAcknowledgment PurgeRejected TradeCancelOrCorrect TasRestatement
}
