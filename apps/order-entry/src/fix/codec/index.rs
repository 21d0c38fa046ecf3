//! The places of a message's fields, found in one pass.

use core::fmt;

use super::frame::{MESSAGE_LEN_MAX, TRAILER_LEN};
use super::scan::{BLOCK_LEN, soh_bits};
use super::{Decimal, SOH, checksum, digits, parse_utc};
use crate::fix::tag::{data_field_of, may_be_length, tags};

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
    /// A field without `=`, or whose tag is no number of 1 to 8 digits.
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

/// A field: its tag, and where its value is. One word, so that the index writes it at once.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Field(u64);

impl Field {
    #[inline(always)]
    const fn new(tag: u32, at: usize, len: usize) -> Self {
        Self(tag as u64 | (at as u64) << 32 | (len as u64) << 48)
    }

    /// The tag.
    #[inline(always)]
    pub const fn tag(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    const fn at(self) -> usize {
        (self.0 >> 32) as u16 as usize
    }

    /// Bytes of the value.
    #[inline(always)]
    pub(crate) const fn value_len(self) -> usize {
        (self.0 >> 48) as usize
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}, {} bytes", self.tag(), self.at(), self.value_len())
    }
}

/// Room for the places of one message's fields, used again for each. Eight bytes a field.
#[derive(Clone, Debug, Default)]
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
    /// its fields. Some 40 instructions a field.
    #[inline]
    pub fn parse<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Message<'a>, Garbled> {
        if bytes.len() > MESSAGE_LEN_MAX {
            return Err(Garbled::TooLong);
        }
        if !bytes.starts_with(b"8=") {
            return Err(Garbled::BeginString);
        }
        let end = bytes.len().checked_sub(TRAILER_LEN).ok_or(Garbled::Trailer)?;
        check_trailer(bytes, end)?;
        self.count = index(&mut self.fields, bytes, end)?;
        let message = self.message(bytes);
        let [_, length, kind, ..] = message.fields else { return Err(Garbled::MsgType) };
        let body_at = length.at() + length.value_len() + 1;
        if length.tag() != tags::BODY_LENGTH || message.number_of(*length) != Some((end - body_at) as u64) {
            return Err(Garbled::BodyLength);
        }
        if kind.tag() != tags::MSG_TYPE {
            return Err(Garbled::MsgType);
        }
        Ok(message)
    }

    /// The message that was parsed last, in the same bytes.
    #[inline]
    pub(crate) fn message<'a>(&'a self, bytes: &'a [u8]) -> Message<'a> {
        Message { bytes, fields: self.fields.get(..self.count).unwrap_or(&[]) }
    }
}

/// Finds the fields up to `end`, where the trailer stands; the byte before it is SOH. Returns how
/// many there are. One pass: the bits of a block say where values end, and the eight bytes at the
/// front of a field have its tag and its `=`.
#[inline(always)]
fn index(fields: &mut [Field], bytes: &[u8], end: usize) -> Result<usize, Garbled> {
    let (mut count, mut base, mut tag_at) = (0, 0, 0);
    while tag_at < end {
        let mut soh = soh_bits(bytes, base);
        while soh != 0 {
            let value_end = base + soh.trailing_zeros() as usize;
            soh &= soh - 1;
            let Some((tag, tag_len)) = tag_of(bytes, tag_at) else { return Err(Garbled::Tag) };
            let value_at = tag_at + tag_len + 1;
            let Some(field) = fields.get_mut(count) else { return Err(Garbled::TooManyFields) };
            *field = Field::new(tag, value_at, value_end.wrapping_sub(value_at));
            count += 1;
            tag_at = value_end + 1;
            if may_be_length(tag)
                && let Some(data) = data_of(bytes, fields[count - 1], end)?
            {
                *fields.get_mut(count).ok_or(Garbled::TooManyFields)? = data;
                count += 1;
                tag_at = data.at() + data.value_len() + 1;
                // The next block begins with the next field.
                base = tag_at.wrapping_sub(BLOCK_LEN);
                break;
            }
            if tag_at >= end {
                break;
            }
        }
        base = base.wrapping_add(BLOCK_LEN);
    }
    if tag_at == end { Ok(count) } else { Err(Garbled::Tag) }
}

/// The data field behind the length field `length`: its value may hold any byte. `None` where
/// another field follows, or where the tag is no length field after all.
#[cold]
fn data_of(bytes: &[u8], length: Field, end: usize) -> Result<Option<Field>, Garbled> {
    let Some(data_tag) = data_field_of(length.tag()) else { return Ok(None) };
    let length_end = length.at() + length.value_len();
    let tag_at = length_end + 1;
    let rest = bytes.get(tag_at..end).unwrap_or(&[]);
    let Some(tag_len) = rest.iter().take(9).position(|byte| *byte == b'=') else { return Ok(None) };
    if digits::parse(&rest[..tag_len]) != Some(data_tag.into()) {
        return Ok(None);
    }
    let len = digits::parse(&bytes[length.at()..length_end]).ok_or(Garbled::DataLength)? as usize;
    let value_at = tag_at + tag_len + 1;
    let value_end = value_at.saturating_add(len);
    if value_end >= end || bytes[value_end] != SOH {
        return Err(Garbled::DataLength);
    }
    Ok(Some(Field::new(data_tag, value_at, len)))
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

/// The tag at `at` and how many digits it has; `None` where there is none: a field that ends before
/// a `=` has SOH among the digits.
#[inline(always)]
fn tag_of(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    // Eight bytes can always be read: a field has two at least, and a trailer of seven follows.
    let word = u64::from_le_bytes(*bytes.get(at..at + 8)?.first_chunk()?);
    // The `=` behind one to four digits: the lowest bit that is found is exact.
    let differs = (word >> 8) as u32 ^ 0x3d3d_3d3d;
    let found = differs.wrapping_sub(0x0101_0101) & !differs & 0x8080_8080;
    if found == 0 {
        return long_tag(bytes, at);
    }
    // One less than the bits of the digits, which are moved behind leading zeros.
    let bits = found.trailing_zeros();
    let digits = (word as u32 ^ digits::ZEROS as u32) << (31 - bits);
    if (digits.wrapping_add(0x7676_7676) | digits) & 0x8080_8080 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    // The first pair times 100 meets the second in the upper half.
    Some(((pairs & 0x00ff_00ff).wrapping_mul(1 + (100 << 16)) >> 16, (bits / 8 + 1) as usize))
}

#[cold]
fn long_tag(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let len = rest.iter().take(9).position(|byte| *byte == b'=')?;
    Some((digits::parse(&rest[..len])? as u32, len))
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
    pub fn value(&self, field: Field) -> &'a [u8] {
        self.bytes.get(field.at()..field.at() + field.value_len()).unwrap_or(&[])
    }

    /// The first eight bytes of a value and of what follows it; the trailer is behind each field.
    #[inline(always)]
    pub(crate) fn word(&self, field: Field) -> u64 {
        let word = self.bytes.get(field.at()..field.at() + 8).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// The value of a field as an unsigned number of at most 18 digits. Some 15 instructions for up
    /// to eight digits.
    #[inline(always)]
    pub(crate) fn number_of(&self, field: Field) -> Option<u64> {
        match field.value_len() {
            len @ 1..=8 => digits::parse8(self.word(field), len),
            _ => digits::parse(self.value(field)),
        }
    }

    /// The value of a field as a price or quantity.
    #[inline(always)]
    pub(crate) fn decimal_of(&self, field: Field) -> Option<Decimal> {
        match field.value_len() {
            len @ 1..=8 => Decimal::parse_word(self.word(field), len).or_else(|| Decimal::parse(self.value(field))),
            _ => Decimal::parse(self.value(field)),
        }
    }

    /// BeginString (8).
    pub fn begin_string(&self) -> &'a [u8] {
        self.fields.first().map_or(&[], |field| self.value(*field))
    }

    /// MsgType (35).
    #[inline]
    pub fn msg_type(&self) -> &'a [u8] {
        self.fields.get(2).map_or(&[], |field| self.value(*field))
    }

    /// The value of the first field with this tag. A search: one comparison a field.
    #[inline]
    pub fn get(&self, tag: u32) -> Option<&'a [u8]> {
        self.fields.iter().find(|field| field.tag() == tag).map(|field| self.value(*field))
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
