//! The application messages: bodies after the header. Lengths are the specification's, with the
//! header's ten bytes. Times are ns since 1970, prices have four decimals.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::tables::{self, Table};
use super::{Field, Optional};
use crate::Text;
use crate::boe::{BoeError, ReasonCode, RestatementReason, Side};
use crate::codec::layouts;

layouts! {
    skip 10, kind u8;

    /// Enter a new order. Symbol and capacity are required fields.
    0x38 NewOrder 35 {
        /// The client's identifier of the order.
        cl_ord_id: Text<20>,
        /// Buy, or which kind of sale.
        side: Side,
        /// Shares.
        quantity: U32,
    }

    /// Cancel an order.
    0x39 CancelOrder 30 {
        /// The order.
        orig_cl_ord_id: Text<20>,
    }

    /// Change an order. Quantity (the total, with the shares executed before) and price are
    /// required fields.
    0x3a ModifyOrder 50 {
        /// The order's new identifier.
        cl_ord_id: Text<20>,
        /// The order.
        orig_cl_ord_id: Text<20>,
    }

    /// Cancel many orders, on purge ports. After the bitfields come up to ten risk groups.
    0x47 PurgeOrders 11 {
        /// For the venue.
        reserved: u8,
    }

    /// An order was accepted.
    0x25 OrderAcknowledgment 47 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The venue's number, that of PITCH.
        order_id: U64,
        /// For the venue.
        reserved: u8,
    }

    /// An order was refused. It has no number, and is not replayed.
    0x26 OrderRejected 100 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
        /// For the venue.
        reserved: u8,
    }

    /// An order was changed.
    0x27 OrderModified 47 {
        /// Time.
        at_ns: U64,
        /// The order's new identifier.
        cl_ord_id: Text<20>,
        /// The venue's number, that it had before.
        order_id: U64,
        /// For the venue.
        reserved: u8,
    }

    /// The venue changed an order by itself.
    0x28 OrderRestated 48 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The venue's number.
        order_id: U64,
        /// Why.
        reason: RestatementReason,
        /// For the venue.
        reserved: u8,
    }

    /// A change was refused. It has no number, and is not replayed.
    0x29 UserModifyRejected 100 {
        /// Time.
        at_ns: U64,
        /// The identifier that the order would have had.
        cl_ord_id: Text<20>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
        /// For the venue.
        reserved: u8,
    }

    /// An order is no more.
    0x2a OrderCancelled 40 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Why.
        reason: ReasonCode,
        /// For the venue.
        reserved: u8,
    }

    /// A cancel was refused. It has no number, and is not replayed.
    0x2b CancelRejected 100 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
        /// For the venue.
        reserved: u8,
    }

    /// Shares of an order traded.
    0x2c OrderExecution 69 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The fill, unique for the day.
        exec_id: U64,
        /// Its shares.
        last_shares: U32,
        /// Its price.
        last_price: I64,
        /// Open shares; 0 is done.
        leaves: U32,
        /// Added, removed, routed, auction.
        base_liquidity: u8,
        /// More about it.
        sub_liquidity: u8,
        /// Where a routed order traded.
        contra_broker: Text<4>,
        /// For the venue.
        reserved: u8,
    }

    /// A fill is no more, or has another price.
    0x2d TradeCancelOrCorrect 93 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The venue's number.
        order_id: U64,
        /// The fill.
        exec_ref_id: U64,
        /// The order's side.
        side: Side,
        /// Liquidity of the fill.
        base_liquidity: u8,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Account that clears.
        clearing_account: Text<4>,
        /// Shares of the fill.
        last_shares: U32,
        /// Its price.
        last_price: I64,
        /// Its price now; 0 is none, the fill is cancelled.
        corrected_price: I64,
        /// When it traded.
        orig_at_ns: U64,
        /// For the venue.
        reserved: u8,
    }

    /// A mass cancel is done.
    0x36 MassCancelAcknowledgment 43 {
        /// Time.
        at_ns: U64,
        /// The mass cancel.
        mass_cancel_id: Text<20>,
        /// Orders that it cancelled.
        cancelled_count: U32,
        /// For the venue.
        reserved: u8,
    }

    /// A purge was refused.
    0x48 PurgeRejected 80 {
        /// Time.
        at_ns: U64,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
        /// For the venue.
        reserved: u8,
    }
}

/// Declares the set of one direction: each message with the table of its optional fields, or
/// `none`.
macro_rules! message_set {
    ($(#[$doc:meta])* $set:ident; $($name:ident $table:tt)*) => {
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
            pub const LENGTHS: &'static [(u8, usize)] = &[$(($name::KIND, $name::LEN)),*];

            /// Lays the structure of a message of type `kind` over its body, and checks its
            /// optional fields.
            ///
            /// # Errors
            ///
            /// The body is no message of this direction.
            pub fn parse(kind: u8, body: &'a [u8]) -> Result<(Self, Optional<'a>), BoeError> {
                match kind {
                    $($name::KIND => {
                        let (view, tail) = $name::ref_from_prefix(body).map_err(|_| short(kind, $name::LEN, body))?;
                        Ok((Self::$name(view), message_set!(@parse $table, kind, tail)?))
                    })*
                    _ => Err(BoeError::Unknown { kind: u16::from(kind) }),
                }
            }
        }

        $(message_set!(@emit $name $table);)*
    };
    (@parse none, $kind:ident, $tail:ident) => { no_fields($kind, $tail) };
    (@parse PURGE_ORDERS, $kind:ident, $tail:ident) => { purge_fields($kind, $tail) };
    (@parse $table:ident, $kind:ident, $tail:ident) => { fields($kind, tables::$table, $tail) };
    (@emit $name:ident none) => {
        impl $name {
            /// Writes the body to the front of `out` and returns its length; `None` where it does
            /// not fit.
            pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
                out.get_mut(..size_of::<Self>())?.copy_from_slice(self.as_bytes());
                Some(size_of::<Self>())
            }
        }
    };
    (@emit PurgeOrders PURGE_ORDERS) => {
        impl PurgeOrders {
            /// Writes the body with optional fields and at most ten risk groups to the front of
            /// `out` and returns its length; `None` where it does not fit, a purge cannot have one
            /// of the fields, or there are more groups.
            pub fn emit(&self, fields: &[Field], groups: &[u16], out: &mut [u8]) -> Option<usize> {
                let (front, tail) = out.split_at_mut_checked(size_of::<Self>())?;
                front.copy_from_slice(self.as_bytes());
                let mut middle = [0; 1 + 2 * RISK_GROUPS_MAX];
                middle[0] = u8::try_from(groups.len()).ok()?;
                let room = middle.get_mut(1..1 + 2 * groups.len())?;
                for (slot, group) in room.chunks_exact_mut(2).zip(groups) {
                    slot.copy_from_slice(&group.to_le_bytes());
                }
                let middle = &middle[..1 + 2 * groups.len()];
                Some(size_of::<Self>() + Optional::emit(tables::PURGE_ORDERS, fields, middle, tail)?)
            }
        }
    };
    (@emit $name:ident $table:ident) => {
        impl $name {
            /// Writes the body with optional fields to the front of `out` and returns its length;
            /// `None` where it does not fit, or the message cannot have one of the fields.
            pub fn emit(&self, fields: &[Field], out: &mut [u8]) -> Option<usize> {
                let (front, tail) = out.split_at_mut_checked(size_of::<Self>())?;
                front.copy_from_slice(self.as_bytes());
                Some(size_of::<Self>() + Optional::emit(tables::$table, fields, &[], tail)?)
            }
        }
    };
}

message_set! {
    /// A message to the venue, viewed in the stream.
    Inbound;
    NewOrder NEW_ORDER
    CancelOrder CANCEL_ORDER
    ModifyOrder MODIFY_ORDER
    PurgeOrders PURGE_ORDERS
}

message_set! {
    /// A message of the venue, viewed in the stream.
    Outbound;
    OrderAcknowledgment RETURN
    OrderRejected RETURN
    OrderModified RETURN
    OrderRestated RETURN
    UserModifyRejected RETURN
    OrderCancelled RETURN
    CancelRejected RETURN
    OrderExecution RETURN
    TradeCancelOrCorrect RETURN
    MassCancelAcknowledgment none
    PurgeRejected RETURN
}

/// The most risk groups that a purge may name.
const RISK_GROUPS_MAX: usize = 10;

/// The risk groups of a purge, from its body; none where the body is none of a purge.
impl PurgeOrders {
    /// The risk groups that the body of a purge names.
    pub fn risk_groups(body: &[u8]) -> impl Iterator<Item = u16> {
        let groups = body.get(size_of::<Self>()..).and_then(Optional::split_bitfields).and_then(|(_, rest)| {
            let (&count, rest) = rest.split_first()?;
            rest.get(..2 * usize::from(count))
        });
        groups.unwrap_or_default().as_chunks::<2>().0.iter().map(|&group| u16::from_le_bytes(group))
    }
}

fn short(kind: u8, len: usize, body: &[u8]) -> BoeError {
    BoeError::Length { kind: u16::from(kind), expected: len - 10, found: body.len() }
}

fn no_fields(kind: u8, tail: &[u8]) -> Result<Optional<'_>, BoeError> {
    if tail.is_empty() { Ok(Optional::NONE) } else { Err(short(kind, 10, tail)) }
}

fn fields(kind: u8, table: Table, tail: &[u8]) -> Result<Optional<'_>, BoeError> {
    let (bitfields, values) = Optional::split_bitfields(tail).ok_or(short(kind, 11, tail))?;
    Optional::new(kind, table, bitfields, values)
}

/// Of a purge the risk groups stand between bitfields and values.
fn purge_fields(kind: u8, tail: &[u8]) -> Result<Optional<'_>, BoeError> {
    let short = short(kind, 12, tail);
    let (bitfields, rest) = Optional::split_bitfields(tail).ok_or(short)?;
    let (&count, rest) = rest.split_first().ok_or(short)?;
    let values = rest.get(2 * usize::from(count)..).ok_or(short)?;
    Optional::new(kind, tables::PURGE_ORDERS, bitfields, values)
}
