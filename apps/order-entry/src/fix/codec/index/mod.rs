//! The places of a message's fields, found in one pass.

use core::fmt;

use super::frame::{MESSAGE_LEN_MAX, TRAILER_LEN};
use super::known_tag::{KnownTag, word_at};
use super::scan::{BLOCK_LEN, soh_bits};
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

/// Room for the places of one message's fields, used again for each. 32 bytes a field.
#[derive(Clone, Debug, Default)]
pub struct FieldIndex {
    fields: Box<[Field]>,
    /// The tags of the last messages, place by place: a venue's messages mostly have the same tags
    /// in the same order, and to compare with a tag costs a third of reading it.
    known: Box<[KnownTag]>,
    count: usize,
}

impl FieldIndex {
    /// Room for `fields_max` fields. An ExecutionReport has some 25; a report with groups,
    /// hundreds.
    pub fn new(fields_max: usize) -> Self {
        let count = fields_max.max(3);
        Self { fields: vec![Field::default(); count].into(), known: vec![KnownTag::NONE; count].into(), count: 0 }
    }

    /// Checks the frame, the length and the sum of `bytes`, which are one whole message, and finds
    /// its fields. Some 45 instructions a field, and 20 more where its tag is not that of the last
    /// message's field at this place.
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
        self.count = index(&mut self.fields, &mut self.known, bytes, end)?;
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
fn index(fields: &mut [Field], known: &mut [KnownTag], bytes: &[u8], end: usize) -> Result<usize, Garbled> {
    let (mut places, mut base, mut tag_at) = (fields.iter_mut().zip(known), 0, 0);
    let places_count = places.len();
    let body = bytes.get(..end).unwrap_or(bytes);
    while tag_at < end {
        let mut soh = soh_bits(body, base);
        while soh != 0 {
            let value_end = base + soh.trailing_zeros() as usize;
            soh &= soh - 1;
            let word = word_at(bytes, tag_at).ok_or(Garbled::Tag)?;
            let Some((field, known)) = places.next() else {
                return Err(KnownTag::read(word, bytes, tag_at).map_or(Garbled::Tag, |_| Garbled::TooManyFields));
            };
            if !known.is_at(word) {
                *known = KnownTag::read(word, bytes, tag_at).ok_or(Garbled::Tag)?;
            }
            let value_at = tag_at + known.len as usize;
            *field = Field::new(known.tag, value_at, value_end.wrapping_sub(value_at));
            tag_at = value_end + 1;
            if known.may_be_length
                && let Some(data) = data_of(bytes, *field, end)?
            {
                let (field, _) = places.next().ok_or(Garbled::TooManyFields)?;
                *field = data;
                tag_at = data.at() + data.value_len() + 1;
                // The next block begins with the next field.
                base = tag_at.wrapping_sub(BLOCK_LEN);
                break;
            }
        }
        base = base.wrapping_add(BLOCK_LEN);
    }
    if tag_at == end { Ok(places_count - places.len()) } else { Err(Garbled::Tag) }
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
mod tests;
