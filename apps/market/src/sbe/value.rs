//! Fields as values, and who looks at them: the common ground of both readings of a message.

use core::fmt;

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// The field is null, or not in this version of the message.
    Null,
    /// A number with a sign.
    Int(i64),
    /// A number without one.
    Uint(u64),
    /// A floating number.
    Float(f64),
    /// Characters or bytes, with their padding.
    Bytes(&'a [u8]),
}

impl fmt::Display for Value<'_> {
    /// Text is escaped, so that nothing on the wire reaches a terminal as a command.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Int(value) => value.fmt(f),
            Self::Uint(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes[..text_len(bytes)].escape_ascii()),
        }
    }
}

/// Bytes of text in a field that is padded with spaces or NULs.
pub fn text_len(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0 && byte != b' ').map_or(0, |last| last + 1)
}

/// Is shown a message's fields in their order. Groups are shown entry by entry.
pub trait Visitor {
    /// A message begins.
    fn message(&mut self, name: &str, template: u16, version: u16);

    /// A field of the root, or of the entry that began last.
    fn field(&mut self, name: &str, value: Value<'_>);

    /// A group of `count` entries begins.
    fn group(&mut self, name: &str, count: usize);

    /// An entry of the group begins.
    fn entry(&mut self);

    /// The group ends.
    fn end_group(&mut self);
}
