//! Bytes to messages and messages to bytes, without memory of what came before.

mod decimal;
mod digits;
mod frame;
mod group;
mod index;
mod known_tag;
mod scan;
mod template;
mod utc;
mod writer;

pub use decimal::Decimal;
pub use frame::{Frame, MESSAGE_LEN_MAX, frame};
pub use group::{Entries, Entry, GroupError};
pub use index::{Field, FieldIndex, Garbled, Message};
pub use template::{Char, Digits, Float, Id, Template, TemplateBuilder, TemplateError};
pub use utc::{Precision, UtcText, parse_utc};
pub use writer::{Unwritten, Writer};

/// The byte that ends each field (ASCII start of heading).
pub const SOH: u8 = 1;

/// The sum of all bytes modulo 256, as CheckSum (10) has it. Some 5 ns for 256 bytes, because the
/// compiler adds 16 bytes at once.
#[inline]
pub fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// An unsigned number of 1 to 18 digits; leading zeros are allowed. Some 15 instructions for up to
/// eight digits.
#[inline]
pub fn parse_number(text: &[u8]) -> Option<u64> {
    digits::parse(text)
}
