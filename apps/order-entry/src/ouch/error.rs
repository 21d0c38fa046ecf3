//! Why bytes are no OUCH message.

use core::fmt;

/// The rule that a message breaks. Bytes of the peer are escaped in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OuchError {
    /// No type byte.
    Empty,
    /// A type that this direction of this version does not have.
    Unknown {
        /// The type byte.
        kind: u8,
    },
    /// Fewer bytes than the type's layout has, or in 4.2 another number.
    Length {
        /// The type byte.
        kind: u8,
        /// Bytes of the layout, with the length of an appendage that must be there.
        expected: usize,
        /// Bytes that arrived.
        found: usize,
    },
    /// The appendage's length is not that of what follows.
    AppendageLength {
        /// The type byte.
        kind: u8,
        /// Bytes that the field says.
        said: usize,
        /// Bytes that follow.
        found: usize,
    },
    /// An element of the appendage without a tag, or longer than the rest of the appendage.
    Element {
        /// The type byte.
        kind: u8,
        /// Where the element begins in the appendage.
        at: usize,
    },
    /// A known tag whose value has another length.
    ValueLength {
        /// The tag.
        tag: u8,
        /// Bytes of the tag's value.
        expected: usize,
        /// Bytes that arrived.
        found: usize,
    },
}

impl fmt::Display for OuchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("a message has a type byte, this one is empty"),
            Self::Unknown { kind } => write!(f, "the version has no message '{}'", kind.escape_ascii()),
            Self::Length { kind, expected, found } => {
                write!(f, "message '{}' has {expected} bytes, this one has {found}", kind.escape_ascii())
            }
            Self::AppendageLength { kind, said, found } => write!(
                f,
                "the appendage of message '{}' ends with the message: its length says {said} bytes, {found} follow",
                kind.escape_ascii()
            ),
            Self::Element { kind, at } => write!(
                f,
                "an element has a tag and ends in the appendage of message '{}', the one at {at} does not",
                kind.escape_ascii()
            ),
            Self::ValueLength { tag, expected, found } => {
                write!(f, "the value of tag {tag} has {expected} bytes, this one has {found}")
            }
        }
    }
}

impl core::error::Error for OuchError {}
