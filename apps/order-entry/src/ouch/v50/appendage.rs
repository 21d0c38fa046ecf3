//! The appendage: options, each an element of length, tag and value.

use zerocopy::big_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::Text;
use crate::ouch::{
    AiqStrategy, BboWeight, CustomerType, DiscretionPriceType, HandleInstruction, OuchError, PostOnly, PriceType, Side,
    YesNo,
};

/// The options of a message, checked: each element ends in the appendage, and each known tag has a
/// value of its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appendage<'a>(&'a [u8]);

impl<'a> Appendage<'a> {
    /// The appendage in the bytes after the fixed part of a message `kind`; `None` where there is
    /// none.
    #[inline]
    pub(super) fn parse(kind: u8, tail: &'a [u8]) -> Result<Option<Self>, OuchError> {
        match tail {
            [] => Ok(None),
            [0, 0] => Ok(Some(Self(&[]))),
            [high, low, elements @ ..] => {
                let said = usize::from(u16::from_be_bytes([*high, *low]));
                if said != elements.len() {
                    return Err(OuchError::AppendageLength { kind, said, found: elements.len() });
                }
                Self::check(kind, elements)?;
                Ok(Some(Self(elements)))
            }
            [_] => Err(OuchError::AppendageLength { kind, said: 0, found: 1 }),
        }
    }

    fn check(kind: u8, elements: &[u8]) -> Result<(), OuchError> {
        let mut rest = elements;
        while !rest.is_empty() {
            let at = elements.len() - rest.len();
            let (tag, value, after) = split_element(rest).ok_or(OuchError::Element { kind, at })?;
            match Field::value_len(tag) {
                Some(expected) if expected != value.len() => {
                    return Err(OuchError::ValueLength { tag, expected, found: value.len() });
                }
                _ => rest = after,
            }
        }
        Ok(())
    }

    /// Writes an appendage with its length to the front of `out` and returns how many bytes that
    /// are; `None` where it does not fit.
    pub fn emit(fields: &[Field<'_>], out: &mut [u8]) -> Option<usize> {
        let (len_field, mut rest) = out.split_first_chunk_mut::<2>()?;
        let mut len = 0;
        for field in fields {
            let value = field.value();
            let (element, after) = rest.split_at_mut_checked(2 + value.len())?;
            element[0] = u8::try_from(1 + value.len()).ok()?;
            element[1] = field.tag();
            element[2..].copy_from_slice(value);
            len += element.len();
            rest = after;
        }
        *len_field = u16::try_from(len).ok()?.to_be_bytes();
        Some(2 + len)
    }

    /// The options in their order.
    pub fn fields(self) -> Fields<'a> {
        Fields(self.0)
    }

    /// Whether there is no option.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The index that makes the key of an order together with its UserRefNum; 0 without the option.
    pub fn user_ref_idx(self) -> u8 {
        let mut fields = self.fields();
        fields.find_map(|field| if let Field::UserRefIdx(idx) = field { Some(idx) } else { None }).unwrap_or(0)
    }
}

/// Tag, value and rest of the element at the front.
#[inline]
fn split_element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    let (element, after) = rest.split_at_checked(usize::from(len))?;
    let (&tag, value) = element.split_first()?;
    Some((tag, value, after))
}

/// The options of an [`Appendage`].
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let (tag, value, rest) = split_element(self.0)?;
        self.0 = rest;
        Some(Field::new(tag, value))
    }
}

/// Declares the options: tag, name, type of the value, and its length in the specification.
macro_rules! fields {
    ($($tag:literal $name:ident $value:ty, $len:literal $doc:literal;)*) => {
        /// An option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Field<'a> {
            $(
                #[doc = concat!("Tag ", stringify!($tag), ": ", $doc)]
                $name($value),
            )*
            /// A tag that this library does not know, from a later revision.
            Unknown {
                /// The tag.
                tag: u8,
                /// Its value.
                value: &'a [u8],
            },
        }

        $(const _: () = assert!(size_of::<$value>() == $len, "the value has another length than the specification");)*

        impl<'a> Field<'a> {
            /// The known tags and the bytes of their values.
            pub const LENGTHS: &'static [(u8, usize)] = &[$(($tag, $len)),*];

            /// Bytes of a known tag's value.
            #[inline]
            const fn value_len(tag: u8) -> Option<usize> {
                match tag {
                    $($tag => Some($len),)*
                    _ => None,
                }
            }

            /// The option of a tag and its value; unknown where the value has another length.
            fn new(tag: u8, value: &'a [u8]) -> Self {
                match tag {
                    $($tag => match <$value>::read_from_bytes(value) {
                        Ok(value) => Self::$name(value),
                        Err(_) => Self::Unknown { tag, value },
                    },)*
                    _ => Self::Unknown { tag, value },
                }
            }

            /// The tag.
            pub const fn tag(&self) -> u8 {
                match self {
                    $(Self::$name(_) => $tag,)*
                    Self::Unknown { tag, .. } => *tag,
                }
            }

            /// The value's bytes.
            fn value(&self) -> &[u8] {
                match self {
                    $(Self::$name(value) => value.as_bytes(),)*
                    Self::Unknown { value, .. } => value,
                }
            }
        }
    };
}

fields! {
    1 SecondaryOrderRef U64, 8 "the reference number of the displayed part.";
    2 Firm Text<4>, 4 "the firm, where it is not the account's own.";
    3 MinQuantity U32, 4 "the least shares of a fill.";
    4 CustomerType CustomerType, 1 "retail or not.";
    5 MaxFloor U32, 4 "the shares to show of an order with a reserve.";
    6 PriceType PriceType, 1 "to what the price is tied.";
    7 PegOffset I32, 4 "distance to the price that it is tied to, four decimals, with its sign.";
    9 DiscretionPrice U64, 8 "the price to which the order may go.";
    10 DiscretionPriceType DiscretionPriceType, 1 "to what that price is tied.";
    11 DiscretionPegOffset I32, 4 "distance of that price, four decimals, with its sign.";
    12 PostOnly PostOnly, 1 "whether the order may take liquidity.";
    13 RandomReserve U32, 4 "by how many shares the shown part varies.";
    14 Route Text<4>, 4 "the routing strategy.";
    15 ExpireSeconds U32, 4 "seconds to live, below 86,400.";
    16 TradeNow YesNo, 1 "whether a resting order may take liquidity.";
    17 HandleInstruction HandleInstruction, 1 "how to handle the order.";
    18 BboWeight BboWeight, 1 "its weight at the best price.";
    22 DisplayQuantity U32, 4 "the shares shown now, of a restatement.";
    23 DisplayPrice U64, 8 "the price shown now, of a restatement.";
    24 GroupId U16, 2 "the customer's group, for mass cancels.";
    25 SharesLocated YesNo, 1 "whether shares to sell short were located. Not inherited by a replace.";
    26 LocateBroker Text<4>, 4 "where they were located. Not inherited by a replace.";
    27 Side Side, 1 "the side of a mass cancel.";
    28 UserRefIdx u8, 1 "the index that makes the key of an order together with its UserRefNum.";
    29 AiqStrategy AiqStrategy, 1 "what happens to orders of one owner that would trade.";
    30 AiqGroup U16, 2 "the orders that count as one owner's.";
}
