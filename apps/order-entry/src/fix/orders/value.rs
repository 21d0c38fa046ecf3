//! How a field's value becomes a type, and the macro that declares messages of such fields.

use super::defect::Reason;
use super::enums::{CxlRejResponseTo, ExecTransType, ExecType, HandlInst, OrdStatus, OrdType, Side, TimeInForce};
use crate::fix::codec::{Decimal, Field, Message, Precision, UtcText, Writer, parse_utc};

/// A UTCTimestamp as nanoseconds since 1970. It is written with milliseconds, or with more digits
/// where it has more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utc(pub u64);

/// A value as a field has it.
pub(super) trait Value<'a>: Sized {
    /// What a required field has until it is read.
    const EMPTY: Self;

    fn read(message: &Message<'a>, field: Field) -> Result<Self, Reason>;
    fn write(&self, tag: u32, out: &mut Writer<'_>);

    /// The value of a field without which the message still says what it must.
    #[inline(always)]
    fn read_lenient(message: &Message<'a>, field: Field) -> Option<Self> {
        Self::read(message, field).ok()
    }
}

impl<'a> Value<'a> for &'a [u8] {
    const EMPTY: Self = &[];

    #[inline(always)]
    fn read(message: &Message<'a>, field: Field) -> Result<Self, Reason> {
        Ok(message.value(field))
    }

    fn write(&self, tag: u32, out: &mut Writer<'_>) {
        out.field(tag, self);
    }
}

impl Value<'_> for u64 {
    const EMPTY: Self = 0;

    #[inline(always)]
    fn read(message: &Message<'_>, field: Field) -> Result<Self, Reason> {
        message.number_of(field).ok_or(Reason::Format)
    }

    fn write(&self, tag: u32, out: &mut Writer<'_>) {
        out.number(tag, *self);
    }
}

impl Value<'_> for Decimal {
    const EMPTY: Self = Self(0);

    #[inline(always)]
    fn read(message: &Message<'_>, field: Field) -> Result<Self, Reason> {
        message.decimal_of(field).ok_or(Reason::Format)
    }

    fn write(&self, tag: u32, out: &mut Writer<'_>) {
        out.decimal(tag, *self);
    }

    /// A price that a venue prints as a double has any number of decimals.
    #[inline(always)]
    fn read_lenient(message: &Message<'_>, field: Field) -> Option<Self> {
        message.decimal_of(field).or_else(|| Self::parse_truncated(message.value(field)))
    }
}

impl Value<'_> for Utc {
    const EMPTY: Self = Self(0);

    #[inline(always)]
    fn read(message: &Message<'_>, field: Field) -> Result<Self, Reason> {
        parse_utc(message.value(field)).map(Self).ok_or(Reason::Format)
    }

    fn write(&self, tag: u32, out: &mut Writer<'_>) {
        let precision = match self.0 % 1_000_000 {
            0 => Precision::Millis,
            micros if micros % 1_000 == 0 => Precision::Micros,
            _ => Precision::Nanos,
        };
        out.field(tag, UtcText::new(precision).write(self.0));
    }
}

macro_rules! char_values {
    ($($name:ident)*) => { $(
        impl Value<'_> for $name {
            const EMPTY: Self = Self::ALL[0];

            #[inline(always)]
            fn read(message: &Message<'_>, field: Field) -> Result<Self, Reason> {
                if field.value_len() != 1 {
                    return Err(Reason::Format);
                }
                Self::from_wire(message.word(field) as u8).ok_or(Reason::Value)
            }

            fn write(&self, tag: u32, out: &mut Writer<'_>) {
                out.field(tag, &[self.to_wire()]);
            }
        }
    )* };
}

char_values! { CxlRejResponseTo ExecTransType ExecType HandlInst OrdStatus OrdType Side TimeInForce }

/// Declares a message: its fields with tag and type, in rising order of tags: `required`,
/// `optional`, or `lenient`, which is optional and left out where its value cannot be read. One
/// pass over the fields fills them; a field that is not listed is passed over, because venues add
/// some; one that comes twice is a defect (373=13).
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $msg_type:literal $name:ident {
            $($(#[$field_doc:meta])* $need:ident $tag:literal $field:ident: $type:ty,)*
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a> {
            $($(#[$field_doc])* pub $field: messages!(@type $need $type),)*
        }

        impl<'a> $name<'a> {
            /// MsgType (35).
            pub const MSG_TYPE: &'static [u8] = $msg_type;

            /// Reads the fields of a message of this type; the type itself is not looked at.
            #[inline]
            pub fn parse(message: &$crate::fix::codec::Message<'a>) -> Result<Self, Defect> {
                /// A bit of each field.
                #[allow(non_camel_case_types, reason = "the fields' names")]
                enum Bit {
                    $($field,)*
                }
                const REQUIRED: u32 = 0 $(| messages!(@required $need Bit::$field))*;

                // Written in place, because a copy of the whole costs more than a field.
                let mut read = Self { $($field: messages!(@empty $need $type),)* };
                let mut seen = 0_u32;
                for &found in message.fields() {
                    match found.tag() {
                        $($tag => {
                            let bit = 1 << Bit::$field as u32;
                            if seen & bit != 0 {
                                return Err(Defect { tag: $tag, reason: Reason::Repeated });
                            }
                            seen |= bit;
                            messages!(@read $need $tag $type, message, found, read.$field);
                        })*
                        _ => {}
                    }
                }
                if seen & REQUIRED == REQUIRED {
                    return Ok(read);
                }
                $(messages!(@missing $need $tag Bit::$field, seen);)*
                Ok(read)
            }

            /// Writes the fields behind the header.
            pub fn write(&self, out: &mut $crate::fix::codec::Writer<'_>) {
                $(messages!(@write $need $tag self.$field, out);)*
            }
        }
    )* };
    (@type required $type:ty) => { $type };
    (@type $need:ident $type:ty) => { Option<$type> };
    (@empty required $type:ty) => { <$type as Value<'a>>::EMPTY };
    (@empty $need:ident $type:ty) => { None };
    (@read lenient $tag:literal $type:ty, $message:ident, $found:ident, $into:expr) => {
        $into = <$type as Value<'a>>::read_lenient($message, $found)
    };
    (@read $need:ident $tag:literal $type:ty, $message:ident, $found:ident, $into:expr) => {
        match <$type as Value<'a>>::read($message, $found) {
            Ok(value) => $into = messages!(@put $need value),
            Err(reason) => return Err(Defect { tag: $tag, reason }),
        }
    };
    (@put required $value:ident) => { $value };
    (@put optional $value:ident) => { Some($value) };
    (@required required $bit:expr) => { 1 << $bit as u32 };
    (@required $need:ident $bit:expr) => { 0 };
    (@missing required $tag:literal $bit:expr, $seen:ident) => {
        if $seen >> $bit as u32 & 1 == 0 {
            return Err(Defect { tag: $tag, reason: Reason::Missing });
        }
    };
    (@missing $need:ident $tag:literal $bit:expr, $seen:ident) => {};
    (@write required $tag:literal $value:expr, $out:ident) => { Value::write(&$value, $tag, $out) };
    (@write $need:ident $tag:literal $value:expr, $out:ident) => {
        if let Some(value) = &$value {
            Value::write(value, $tag, $out);
        }
    };
}

pub(super) use messages;
