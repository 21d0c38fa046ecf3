//! The places of a message's fields, found in one pass.

use core::fmt;

use super::frame::{Head, MESSAGE_LEN_MAX, TRAILER_LEN};
use super::scan::{BLOCK_LEN, marks};
use super::{Decimal, SOH, checksum, digits, parse_utc};
use crate::fix::tag::{data_field_of, tags};

/// Why bytes are no message. FIX has such bytes ignored: they take no number, and so become a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Garbled {
    /// No `8=` at the front, or none that ends.
    BeginString,
    /// BodyLength (9) is not second, is no number, or does not lead to the trailer.
    BodyLength,
    /// Longer than a message may be.
    TooLong,
    /// The trailer is not `10=`, three digits and SOH.
    Trailer,
    /// The sum of the bytes is another than CheckSum (10).
    CheckSum,
    /// MsgType (35) is not third.
    MsgType,
    /// A field without `=`, or whose tag is no number of 1 to 8 digits without leading zeros.
    Tag,
    /// A length field whose data field does not end where the length says.
    DataLength,
    /// More fields than the index has room for.
    TooManyFields,
}

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeginString => "no BeginString (8) at the front",
            Self::BodyLength => "BodyLength (9) does not lead to the trailer",
            Self::TooLong => "the message is too long",
            Self::Trailer => "the trailer is not 10= and three digits",
            Self::CheckSum => "CheckSum (10) is not the sum of the bytes",
            Self::MsgType => "MsgType (35) is not the third field",
            Self::Tag => "a field has no tag",
            Self::DataLength => "a data field does not end where its length says",
            Self::TooManyFields => "the message has too many fields",
        })
    }
}

impl core::error::Error for Garbled {}

/// A field: its tag, and where its value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// The tag.
    pub tag: u32,
    at: u16,
    len: u16,
}

/// Room for the places of one message's fields, used again for each. Eight bytes a field.
#[derive(Clone, Debug)]
pub struct FieldIndex {
    fields: Box<[Field]>,
    count: usize,
}

impl FieldIndex {
    /// Room for `fields_max` fields. An ExecutionReport has some 25; a report with groups,
    /// hundreds.
    pub fn new(fields_max: usize) -> Self {
        Self { fields: vec![Field::default(); fields_max.max(3)].into(), count: 0 }
    }

    /// Checks the frame, the length and the sum of `bytes`, which are one whole message, and finds
    /// its fields. Some 25 instructions a field.
    #[inline]
    pub fn parse<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Message<'a>, Garbled> {
        if bytes.len() > MESSAGE_LEN_MAX {
            return Err(Garbled::TooLong);
        }
        let head = Head::parse(bytes)?.ok_or(Garbled::BodyLength)?;
        let end = bytes.len().checked_sub(TRAILER_LEN).ok_or(Garbled::Trailer)?;
        if head.body_at + head.body_len != end {
            return Err(Garbled::BodyLength);
        }
        check_trailer(bytes, end)?;
        self.count = 0;
        self.push(tags::BEGIN_STRING, 2, head.begin_end)?;
        self.push(tags::BODY_LENGTH, head.begin_end + 3, head.body_at - 1)?;
        self.index_body(bytes, head.body_at, end)?;
        let fields = self.fields.get(..self.count).unwrap_or(&[]);
        match fields {
            [_, _, Field { tag: tags::MSG_TYPE, .. }, ..] => Ok(Message { bytes, fields }),
            _ => Err(Garbled::MsgType),
        }
    }

    /// Finds the fields from `at` to `end`, where the trailer stands; the byte before it is SOH.
    #[inline(always)]
    fn index_body(&mut self, bytes: &[u8], at: usize, end: usize) -> Result<(), Garbled> {
        let (mut base, mut tag_at, mut value_at) = (at, at, 0);
        while tag_at < end {
            let mut marks = marks(bytes, base);
            let block = base;
            base += BLOCK_LEN;
            loop {
                if value_at == 0 {
                    let first = marks.equals & marks.equals.wrapping_neg();
                    if marks.soh & first.wrapping_sub(1) != 0 {
                        return Err(Garbled::Tag);
                    }
                    if first == 0 {
                        break;
                    }
                    value_at = block + first.trailing_zeros() as usize + 1;
                }
                if marks.soh == 0 {
                    break;
                }
                let first = marks.soh & marks.soh.wrapping_neg();
                let value_end = block + first.trailing_zeros() as usize;
                let tag = tag_of(bytes, tag_at, value_at - 1)?;
                self.push(tag, value_at, value_end)?;
                marks.soh ^= first;
                // A `=` within the value is no mark.
                marks.equals &= !(first | first.wrapping_sub(1));
                tag_at = value_end + 1;
                if let Some(data_tag) = data_field_of(tag)
                    && let Some(behind) = self.index_data(bytes, (value_at, value_end), data_tag, end)?
                {
                    tag_at = behind;
                    base = behind;
                    value_at = 0;
                    break;
                }
                value_at = 0;
                if tag_at >= end {
                    return Ok(());
                }
            }
        }
        if tag_at == end { Ok(()) } else { Err(Garbled::Tag) }
    }

    /// The data field behind a length field, whose value is at `length`: its value may hold any
    /// byte. Returns where the next field begins; `None` where another field follows.
    #[cold]
    fn index_data(
        &mut self,
        bytes: &[u8],
        length: (usize, usize),
        data_tag: u32,
        end: usize,
    ) -> Result<Option<usize>, Garbled> {
        let tag_at = length.1 + 1;
        let rest = bytes.get(tag_at..end).unwrap_or(&[]);
        let Some(tag_len) = rest.iter().take(9).position(|byte| *byte == b'=') else { return Ok(None) };
        if tag_of(bytes, tag_at, tag_at + tag_len)? != data_tag {
            return Ok(None);
        }
        let len = digits::parse(&bytes[length.0..length.1]).ok_or(Garbled::DataLength)? as usize;
        let value_at = tag_at + tag_len + 1;
        let value_end = value_at.saturating_add(len);
        if value_end >= end || bytes[value_end] != SOH {
            return Err(Garbled::DataLength);
        }
        self.push(data_tag, value_at, value_end)?;
        Ok(Some(value_end + 1))
    }

    #[inline(always)]
    fn push(&mut self, tag: u32, at: usize, end: usize) -> Result<(), Garbled> {
        let field = self.fields.get_mut(self.count).ok_or(Garbled::TooManyFields)?;
        *field = Field { tag, at: at as u16, len: (end - at) as u16 };
        self.count += 1;
        Ok(())
    }
}

#[inline(always)]
fn check_trailer(bytes: &[u8], end: usize) -> Result<(), Garbled> {
    let (body, trailer) = bytes.split_at(end);
    let ([.., SOH], [b'1', b'0', b'=', hundreds, tens, ones, SOH]) = (body, trailer) else {
        return Err(Garbled::Trailer);
    };
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u16::from(byte - b'0')).ok_or(Garbled::Trailer);
    let sum = digit(hundreds)? * 100 + digit(tens)? * 10 + digit(ones)?;
    if sum == u16::from(checksum(body)) { Ok(()) } else { Err(Garbled::CheckSum) }
}

/// The tag in the bytes from `at` to `end`.
#[inline(always)]
fn tag_of(bytes: &[u8], at: usize, end: usize) -> Result<u32, Garbled> {
    let len = end - at;
    // Eight bytes can always be read: a field has two at least, and a trailer of seven follows.
    let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { return Err(Garbled::Tag) };
    if len == 0 || len > 8 || (word[0] == b'0' && len > 1) {
        return Err(Garbled::Tag);
    }
    digits::parse8(u64::from_le_bytes(*word), len).map(|tag| tag as u32).ok_or(Garbled::Tag)
}

/// A message in the bytes that were received. Its trailer was checked and is not among its fields.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    fields: &'a [Field],
}

impl<'a> Message<'a> {
    /// All bytes from `8=` to the last SOH.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The fields in their order: 8, 9, 35, …, without 10.
    pub const fn fields(&self) -> &'a [Field] {
        self.fields
    }

    /// The value of a field of this message.
    #[inline(always)]
    pub fn value(&self, field: &Field) -> &'a [u8] {
        let at = usize::from(field.at);
        self.bytes.get(at..at + usize::from(field.len)).unwrap_or(&[])
    }

    /// BeginString (8).
    pub fn begin_string(&self) -> &'a [u8] {
        self.fields.first().map_or(&[], |field| self.value(field))
    }

    /// MsgType (35).
    #[inline]
    pub fn msg_type(&self) -> &'a [u8] {
        self.fields.get(2).map_or(&[], |field| self.value(field))
    }

    /// The value of the first field with this tag. A search: one comparison a field.
    #[inline]
    pub fn get(&self, tag: u32) -> Option<&'a [u8]> {
        self.fields.iter().find(|field| field.tag == tag).map(|field| self.value(field))
    }

    /// The first field with this tag as an unsigned number of at most 18 digits.
    pub fn number(&self, tag: u32) -> Option<u64> {
        digits::parse(self.get(tag)?)
    }

    /// The first field with this tag as a price or quantity.
    pub fn decimal(&self, tag: u32) -> Option<Decimal> {
        Decimal::parse(self.get(tag)?)
    }

    /// The first field with this tag as nanoseconds since 1970.
    pub fn utc(&self, tag: u32) -> Option<u64> {
        parse_utc(self.get(tag)?)
    }

    /// Whether the first field with this tag is `Y`.
    pub fn flag(&self, tag: u32) -> bool {
        self.get(tag) == Some(b"Y")
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
