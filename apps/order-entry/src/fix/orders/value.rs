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
    fn read(message: &Message<'a>, field: Field) -> Result<Self, Reason>;
    fn write(&self, tag: u32, out: &mut Writer<'_>);
}

impl<'a> Value<'a> for &'a [u8] {
    #[inline(always)]
    fn read(message: &Message<'a>, field: Field) -> Result<Self, Reason> {
        Ok(message.value(field))
    }

    fn write(&self, tag: u32, out: &mut Writer<'_>) {
        out.field(tag, self);
    }
}

impl Value<'_> for u64 {
    #[inline(always)]
    fn read(message: &Message<'_>, field: Field) -> Result<Self, Reason> {
        message.number_of(field).ok_or(Reason::Format)
    }

    fn write(&self, tag: u32, out: &mut Writer<'_>) {
        out.number(tag, *self);
    }
}

impl Value<'_> for Decimal {
    #[inline(always)]
    fn read(message: &Message<'_>, field: Field) -> Result<Self, Reason> {
        message.decimal_of(field).ok_or(Reason::Format)
    }

    fn write(&self, tag: u32, out: &mut Writer<'_>) {
        out.decimal(tag, *self);
    }
}

impl Value<'_> for Utc {
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

/// Declares a message: its fields with tag and type, `required` or `optional`, in rising order of
/// tags. One pass over the fields fills them; a field that is not listed is passed over, because
/// venues add some; one that comes twice is a defect (373=13).
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
                $(let mut $field: Option<$type> = None;)*
                for &found in message.fields() {
                    match found.tag() {
                        $($tag => set(&mut $field, $tag, message, found)?,)*
                        _ => {}
                    }
                }
                Ok(Self { $($field: messages!(@take $need $tag $field),)* })
            }

            /// Writes the fields behind the header.
            pub fn write(&self, out: &mut $crate::fix::codec::Writer<'_>) {
                $(messages!(@write $need $tag self.$field, out);)*
            }
        }
    )* };
    (@type required $type:ty) => { $type };
    (@type optional $type:ty) => { Option<$type> };
    (@take required $tag:literal $field:ident) => {
        match $field {
            Some(value) => value,
            None => return Err(Defect { tag: $tag, reason: Reason::Missing }),
        }
    };
    (@take optional $tag:literal $field:ident) => { $field };
    (@write required $tag:literal $value:expr, $out:ident) => { Value::write(&$value, $tag, $out) };
    (@write optional $tag:literal $value:expr, $out:ident) => {
        if let Some(value) = &$value {
            Value::write(value, $tag, $out);
        }
    };
}

pub(super) use messages;
