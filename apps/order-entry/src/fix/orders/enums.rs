//! The characters of order fields, by their names in FIX.

/// Declares the values of a field of type char. A character that is not listed is refused as a
/// value (373=5), so a caller matches all that it can meet.
macro_rules! chars {
    ($($(#[$doc:meta])* $name:ident { $($wire:literal $variant:ident,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(
                #[doc = concat!("`", stringify!($wire), "` on the wire.")]
                $variant,
            )*
        }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The character on the wire.
            #[inline]
            pub const fn to_wire(self) -> u8 {
                match self { $(Self::$variant => $wire,)* }
            }

            /// The value of a character.
            #[inline]
            pub const fn from_wire(wire: u8) -> Option<Self> {
                match wire { $($wire => Some(Self::$variant),)* _ => None }
            }
        }
    )* };
}

chars! {
    /// Side (54).
    Side { b'1' Buy, b'2' Sell, b'5' SellShort, b'6' SellShortExempt, }

    /// OrdType (40).
    OrdType { b'1' Market, b'2' Limit, b'3' Stop, b'4' StopLimit, b'P' Pegged, }

    /// TimeInForce (59).
    TimeInForce {
        b'0' Day, b'1' GoodTillCancel, b'2' AtTheOpening, b'3' ImmediateOrCancel, b'4' FillOrKill,
        b'6' GoodTillDate, b'7' AtTheClose,
    }

    /// HandlInst (21), which FIX 4.2 requires.
    HandlInst { b'1' Private, b'2' Public, b'3' Manual, }

    /// OrderCapacity (528): for whom the order trades. FIX 4.2 says it in Rule80A (47), of whose
    /// many values two mean the same: an agency's `A` and a principal's `P`.
    OrderCapacity {
        b'A' Agency, b'G' Proprietary, b'I' Individual, b'P' Principal, b'R' RisklessPrincipal,
        b'W' AgentForOtherMember,
    }

    /// ExecType (150). FIX 4.2 says a fill as `1` or `2`, later versions as `F`.
    ExecType {
        b'0' New, b'1' PartialFill, b'2' Fill, b'3' DoneForDay, b'4' Canceled, b'5' Replaced,
        b'6' PendingCancel, b'7' Stopped, b'8' Rejected, b'9' Suspended, b'A' PendingNew,
        b'B' Calculated, b'C' Expired, b'D' Restated, b'E' PendingReplace, b'F' Trade,
        b'G' TradeCorrect, b'H' TradeCancel, b'I' OrderStatus,
    }

    /// OrdStatus (39).
    OrdStatus {
        b'0' New, b'1' PartiallyFilled, b'2' Filled, b'3' DoneForDay, b'4' Canceled, b'5' Replaced,
        b'6' PendingCancel, b'7' Stopped, b'8' Rejected, b'9' Suspended, b'A' PendingNew,
        b'B' Calculated, b'C' Expired, b'D' AcceptedForBidding, b'E' PendingReplace,
    }

    /// ExecTransType (20), which FIX 4.2 requires and later versions have not.
    ExecTransType { b'0' New, b'1' Cancel, b'2' Correct, b'3' Status, }

    /// CxlRejResponseTo (434): which request a 9 answers.
    CxlRejResponseTo { b'1' Cancel, b'2' Replace, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_character_names_one_value() {
        for value in ExecType::ALL {
            assert_eq!(ExecType::from_wire(value.to_wire()), Some(*value));
        }
        assert_eq!(Side::from_wire(b'x'), None);
    }
}
