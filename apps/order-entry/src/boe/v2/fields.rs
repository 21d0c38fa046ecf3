//! The optional fields.

use zerocopy::little_endian::{I16, I64, U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::Table;
use crate::Text;
use crate::boe::{BoeError, Capacity, OrderType, Side, TimeInForce};

/// Declares the optional fields: name, type of the value, bytes in the specification.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident $value:ty, $len:literal;)*) => {
        /// The name of an optional field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FieldId {
            $($(#[$doc])* $name,)*
        }

        impl FieldId {
            /// Every field.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Bytes of the value.
            #[inline]
            pub const fn value_len(self) -> usize {
                match self {
                    $(Self::$name => $len,)*
                }
            }
        }

        $(const _: () = assert!(size_of::<$value>() == $len, "the value has another length than the specification");)*

        /// An optional field with its value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field {
            $($(#[$doc])* $name($value),)*
        }

        impl Field {
            /// The field's name.
            pub const fn id(&self) -> FieldId {
                match self {
                    $(Self::$name(_) => FieldId::$name,)*
                }
            }

            fn new(id: FieldId, value: &[u8]) -> Option<Self> {
                match id {
                    $(FieldId::$name => <$value>::read_from_bytes(value).ok().map(Self::$name),)*
                }
            }

            fn value(&self) -> &[u8] {
                match self {
                    $(Self::$name(value) => value.as_bytes(),)*
                }
            }
        }
    };
}

fields! {
    /// Account of the customer, echoed.
    Account Text<16>, 16;
    /// Whether the order shows its owner.
    AttributedQuote u8, 1;
    /// Added, removed, routed, auction.
    BaseLiquidity u8, 1;
    /// `Y`: cancel the original where the modify fails.
    CancelOrigOnReject u8, 1;
    /// For whom the firm trades.
    Capacity Capacity, 1;
    /// Account that clears.
    ClearingAccount Text<4>, 4;
    /// Firm that clears.
    ClearingFirm Text<4>, 4;
    /// Shares matched in a closing session.
    CmcMatchQuantity U32, 4;
    /// First and last closing session.
    CmcSessions Text<2>, 2;
    /// Which crosses the order takes part in.
    CrossTrade u8, 1;
    /// How far the order may go, two decimals.
    DiscretionAmount I16, 2;
    /// How the order is shown.
    DisplayIndicator u8, 1;
    /// The price shown, four decimals.
    DisplayPrice I64, 8;
    /// By how many shares the shown part varies.
    DisplayRange U32, 4;
    /// Text that the venue echoes.
    EchoText Text<64>, 64;
    /// Where to route.
    ExDestination u8, 1;
    /// Instruction.
    ExecInst u8, 1;
    /// When the order expires, ns since 1970.
    ExpireTime U64, 8;
    /// Further instruction.
    ExtExecInst u8, 1;
    /// The fee.
    FeeCode Text<2>, 2;
    /// Price of the fill, four decimals.
    LastPrice I64, 8;
    /// Shares of the fill.
    LastShares U32, 4;
    /// Open shares; 0 is done.
    LeavesQuantity U32, 4;
    /// Where shares were located.
    LocateBroker Text<4>, 4;
    /// Whether shares must be located.
    LocateRequired u8, 1;
    /// The mass cancel.
    MassCancelId Text<20>, 20;
    /// Filter, acknowledgment style and lock-out of a mass cancel.
    MassCancelInst Text<16>, 16;
    /// The unit that a purge is for.
    MatchingUnit u8, 1;
    /// Shares to show.
    MaxFloor U32, 4;
    /// The least shares of a fill.
    MinQuantity U32, 4;
    /// Shares.
    OrderQuantity U32, 4;
    /// How the order is priced.
    OrderType OrderType, 1;
    /// The order before the modify.
    OrigClOrdId Text<20>, 20;
    /// Distance to the price that it is tied to, four decimals.
    PegDifference I64, 8;
    /// What happens to orders of one owner: what, level, group.
    PreventMatch Text<3>, 3;
    /// Limit, four decimals.
    Price I64, 8;
    /// The group for purges.
    RiskGroupId U16, 2;
    /// Ends a lock-out.
    RiskReset Text<8>, 8;
    /// How routed orders are delivered.
    RouteDelivery Text<3>, 3;
    /// Routing instruction.
    RoutingInst Text<4>, 4;
    /// Routing strategy.
    RoutStrategy Text<6>, 6;
    /// Another number of the order, or the other order of a self match.
    SecondaryOrderId U64, 8;
    /// Buy, or which kind of sale.
    Side Side, 1;
    /// By how much an order may step up.
    StepUpAmount I64, 8;
    /// Stop price, four decimals.
    StopPrice I64, 8;
    /// More about liquidity.
    SubLiquidity u8, 1;
    /// The stock.
    Symbol Text<8>, 8;
    /// The stock's suffix.
    SymbolSuffix Text<8>, 8;
    /// How long the order lives.
    TimeInForce TimeInForce, 1;
    /// The price at which the order works, four decimals.
    WorkingPrice I64, 8;
}

/// The optional fields of a message, checked: each bit has a field, and each field its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optional<'a> {
    table: Table,
    bitfields: &'a [u8],
    values: &'a [u8],
}

impl<'a> Optional<'a> {
    /// No field, of a message that has none.
    pub(super) const NONE: Self = Self { table: &[], bitfields: &[], values: &[] };

    /// Splits the bitfields with their count off the front of `bytes`.
    pub(super) fn split_bitfields(bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (&count, rest) = bytes.split_first()?;
        rest.split_at_checked(usize::from(count))
    }

    /// Checks that `values` are those that `bitfields` announce.
    pub(super) fn new(kind: u8, table: Table, bitfields: &'a [u8], values: &'a [u8]) -> Result<Self, BoeError> {
        let optional = Self { table, bitfields, values };
        let mut len = 0;
        for bit in optional.bits() {
            len += bit?.value_len();
        }
        if len != values.len() {
            return Err(BoeError::Length { kind: u16::from(kind), expected: len, found: values.len() });
        }
        Ok(optional)
    }

    /// The fields whose bits are set, in their order.
    fn bits(self) -> impl Iterator<Item = Result<FieldId, BoeError>> {
        // Inclusive: the number behind that of the 255th bitfield is asked for, too.
        (0u8..=u8::MAX).zip(self.bitfields).flat_map(move |(byte, &bits)| {
            (0u8..8).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| {
                let row = self.table.get(usize::from(byte));
                row.and_then(|row| row[usize::from(bit)]).ok_or(BoeError::Bitfield { byte, bit })
            })
        })
    }

    /// The fields in the order of their bits.
    pub fn fields(self) -> Fields<'a> {
        Fields { optional: self, byte: 0, bit: 0 }
    }

    /// Writes count and bitfields for `fields`, `middle`, and the values in the order of the bits,
    /// to the front of `out`, and returns how many bytes that are; `None` where they do not fit, or
    /// the table does not have a field.
    pub(super) fn emit(table: Table, fields: &[Field], middle: &[u8], out: &mut [u8]) -> Option<usize> {
        let place = |id: FieldId| {
            let places =
                (0u8..).zip(table).flat_map(|(byte, row)| (0u8..8).zip(row).map(move |(bit, slot)| (byte, bit, slot)));
            places.filter(|&(_, _, slot)| *slot == Some(id)).map(|(byte, bit, _)| (byte, bit)).next()
        };
        let mut count = 0;
        let mut bits = [0u8; 32];
        for field in fields {
            let (byte, bit) = place(field.id())?;
            *bits.get_mut(usize::from(byte))? |= 1 << bit;
            count = count.max(usize::from(byte) + 1);
        }
        let mut len = 0;
        let mut push = |bytes: &[u8]| {
            out.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
            len += bytes.len();
            Some(())
        };
        push(&[u8::try_from(count).ok()?])?;
        push(&bits[..count])?;
        push(middle)?;
        let set = table.iter().zip(bits).flat_map(|(row, bits)| {
            (0u8..8).zip(row).filter(move |&(bit, _)| bits & (1 << bit) != 0).filter_map(|(_, slot)| *slot)
        });
        for id in set {
            push(fields.iter().find(|field| field.id() == id)?.value())?;
        }
        Some(len)
    }
}

/// The fields of an [`Optional`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    optional: Optional<'a>,
    byte: usize,
    bit: usize,
}

impl Iterator for Fields<'_> {
    type Item = Field;

    fn next(&mut self) -> Option<Field> {
        loop {
            let bits = *self.optional.bitfields.get(self.byte)?;
            let (byte, bit) = (self.byte, self.bit);
            self.bit += 1;
            if self.bit == 8 {
                (self.byte, self.bit) = (byte + 1, 0);
            }
            if bits & (1 << bit) != 0 {
                let id = (*self.optional.table.get(byte)?)[bit]?;
                let (value, rest) = self.optional.values.split_at_checked(id.value_len())?;
                self.optional.values = rest;
                return Field::new(id, value);
            }
        }
    }
}
