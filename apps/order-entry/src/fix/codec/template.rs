//! A message that is ready but for a few values of constant width.
//!
//! Numbers and prices are padded with zeros, which FIX allows (types int and float), so BodyLength
//! and all places stay. Each write changes the sum by its old and its new bytes, so CheckSum costs
//! the values alone, not the message.

use core::fmt;

use super::utc::{Precision, UtcText};
use super::{Decimal, SOH, checksum, digits};
use crate::fix::tag::tags;

/// The place of eight digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits(usize);
/// The place of a fixed prefix and sixteen digits behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(usize);
/// The place of a price: eight digits, a point, eight digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float(usize);
/// The place of one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Char(usize);

/// Why a value or a message is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TemplateError {
    /// The value needs more digits than its place has, or is negative.
    TooWide {
        /// The greatest value of the place, in units of the place.
        max: u64,
    },
    /// The sequence number needs more than eight digits. Reset the session.
    SequenceNumber,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooWide { max } => write!(f, "the value does not fit its place: 0 to {max} units do"),
            Self::SequenceNumber => f.write_str("MsgSeqNum (34) is beyond 99,999,999: reset the session"),
        }
    }
}

impl core::error::Error for TemplateError {}

/// Bytes in front of the body, of which the head takes the last: so places are known before the
/// head's length is.
const HEAD_ROOM: usize = 32;
/// Sixteen digits.
const ID_MAX: u64 = 9_999_999_999_999_999;
const EIGHT_MAX: u32 = 99_999_999;

/// Builds a [`Template`], field by field in the order of the message. Allocates.
#[derive(Debug)]
pub struct TemplateBuilder {
    begin_string: String,
    bytes: Vec<u8>,
    precision: Precision,
    times: Vec<usize>,
    seq: usize,
}

impl TemplateBuilder {
    /// Begins with the header: 35, 34, 49, 52, 56.
    pub fn new(begin_string: &str, msg_type: &str, sender: &str, target: &str, precision: Precision) -> Self {
        let (begin_string, bytes) = (begin_string.to_owned(), vec![0; HEAD_ROOM]);
        let mut builder = Self { begin_string, bytes, precision, times: Vec::new(), seq: 0 };
        builder.text(tags::MSG_TYPE, msg_type);
        builder.seq = builder.digits(tags::MSG_SEQ_NUM).0;
        builder.text(tags::SENDER_COMP_ID, sender);
        builder.utc(tags::SENDING_TIME);
        builder.text(tags::TARGET_COMP_ID, target);
        builder
    }

    /// A field whose value never changes. SOH in it is left out.
    pub fn text(&mut self, tag: u32, value: &str) -> &mut Self {
        self.place(tag, &value.replace(char::from(SOH), "").into_bytes());
        self
    }

    /// A field with the time of sending: TransactTime (60).
    pub fn utc(&mut self, tag: u32) -> &mut Self {
        let text = UtcText::new(self.precision).write(0).to_vec();
        let at = self.place(tag, &text);
        self.times.push(at);
        self
    }

    /// A field with a number of eight digits.
    pub fn digits(&mut self, tag: u32) -> Digits {
        Digits(self.place(tag, &[b'0'; 8]))
    }

    /// A field with an identifier: `prefix` and sixteen digits.
    pub fn id(&mut self, tag: u32, prefix: &str) -> Id {
        let text = format!("{prefix}{:016}", 0).replace(char::from(SOH), "");
        Id(self.place(tag, text.as_bytes()) + text.len() - 16)
    }

    /// A field with a price.
    pub fn float(&mut self, tag: u32) -> Float {
        Float(self.place(tag, b"00000000.00000000"))
    }

    /// A field with one character.
    pub fn char(&mut self, tag: u32) -> Char {
        Char(self.place(tag, b"0"))
    }

    /// The template. Places of the builder are places of this template alone.
    pub fn build(&self) -> Template {
        let body_len = self.bytes.len() - HEAD_ROOM;
        let head = format!("8={}\x019={body_len}\x01", self.begin_string);
        let start = HEAD_ROOM.saturating_sub(head.len());
        let mut bytes = self.bytes.clone();
        bytes.splice(start..HEAD_ROOM, head.bytes().take(HEAD_ROOM));
        let sum = checksum(&bytes[start..]);
        let sum_at = bytes.len() + 3;
        bytes.extend_from_slice(b"10=000\x01");
        let times = self.times.clone().into();
        let (bytes, clock) = (bytes.into(), Clock::new(self.precision));
        Template { bytes, start, sum, seq: Digits(self.seq), times, clock, sum_at }
    }

    /// Adds the field and returns where its value begins.
    fn place(&mut self, tag: u32, value: &[u8]) -> usize {
        self.bytes.extend_from_slice(format!("{tag}=").as_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.bytes.push(SOH);
        at
    }
}

/// CheckSum's three digits, and SOH.
const SUMS: [[u8; 4]; 256] = {
    let mut sums = [[SOH; 4]; 256];
    let mut sum = 0;
    while sum < 256 {
        sums[sum] = [b'0' + (sum / 100) as u8, b'0' + (sum / 10 % 10) as u8, b'0' + (sum % 10) as u8, SOH];
        sum += 1;
    }
    sums
};

/// A message whose values are written in place. Nothing is allocated after [`TemplateBuilder`].
#[derive(Clone, Debug)]
pub struct Template {
    /// The message from `start` on.
    bytes: Box<[u8]>,
    start: usize,
    /// The sum of the message's bytes before the trailer.
    sum: u8,
    seq: Digits,
    /// Where the timestamps are, SendingTime first.
    times: Box<[usize]>,
    clock: Clock,
    sum_at: usize,
}

impl Template {
    /// Writes a number of at most eight digits. Some 25 instructions.
    #[inline(always)]
    pub fn set_digits(&mut self, place: Digits, value: u64) -> Result<(), TemplateError> {
        match u32::try_from(value) {
            Ok(value @ 0..=EIGHT_MAX) => {
                self.patch(place.0, digits::eight(value));
                Ok(())
            }
            _ => Err(TemplateError::TooWide { max: EIGHT_MAX.into() }),
        }
    }

    /// Writes the sixteen digits of an identifier.
    #[inline(always)]
    pub fn set_id(&mut self, place: Id, value: u64) -> Result<(), TemplateError> {
        if value > ID_MAX {
            return Err(TemplateError::TooWide { max: ID_MAX });
        }
        let at = place.0;
        self.patch(at, digits::eight((value / 100_000_000) as u32));
        self.patch(at + 8, digits::eight((value % 100_000_000) as u32));
        Ok(())
    }

    /// Writes a price, which is not negative and below 100,000,000.
    #[inline(always)]
    pub fn set_float(&mut self, place: Float, value: Decimal) -> Result<(), TemplateError> {
        let Some(units @ 0..=ID_MAX) = u64::try_from(value.0).ok() else {
            return Err(TemplateError::TooWide { max: ID_MAX });
        };
        let at = place.0;
        self.patch(at, digits::eight((units / 100_000_000) as u32));
        self.patch(at + 9, digits::eight((units % 100_000_000) as u32));
        Ok(())
    }

    /// Writes one character. SOH becomes `?`, because it would begin a field.
    #[inline(always)]
    pub fn set_char(&mut self, place: Char, value: u8) {
        let value = if value == SOH { b'?' } else { value };
        let old = &mut self.bytes[place.0];
        self.sum = self.sum.wrapping_sub(*old).wrapping_add(value);
        *old = value;
    }

    /// Writes the number, the times and the sum, and returns the message. Some 80 instructions
    /// within a second.
    #[inline(always)]
    pub fn finish(&mut self, seq: u64, utc_ns: u64) -> Result<&[u8], TemplateError> {
        self.set_digits(self.seq, seq).map_err(|_| TemplateError::SequenceNumber)?;
        self.set_times(utc_ns);
        let sum = SUMS[usize::from(self.sum)];
        self.bytes[self.sum_at..self.sum_at + 4].copy_from_slice(&sum);
        Ok(&self.bytes[self.start..])
    }

    /// MsgType (35).
    pub fn msg_type(&self) -> &[u8] {
        let value = self.bytes.get(HEAD_ROOM + 3..).unwrap_or(&[]);
        value.split(|byte| *byte == SOH).next().unwrap_or(&[])
    }

    #[inline(always)]
    fn set_times(&mut self, utc_ns: u64) {
        let Some(last) = self.clock.last_bytes(utc_ns) else {
            self.set_whole_times(utc_ns);
            return;
        };
        let len = self.clock.precision.text_len();
        for idx in 0..self.times.len() {
            self.patch(self.times[idx] + len - 8, last);
        }
    }

    /// All of the timestamps: once a second, and each time where they have nanoseconds.
    #[cold]
    fn set_whole_times(&mut self, utc_ns: u64) {
        let text = self.clock.whole(utc_ns);
        for at in &self.times {
            let old = &mut self.bytes[*at..*at + text.len()];
            self.sum = self.sum.wrapping_sub(checksum(old)).wrapping_add(checksum(text));
            old.copy_from_slice(text);
        }
    }

    #[inline(always)]
    fn patch(&mut self, at: usize, new: [u8; 8]) {
        let place: &mut [u8; 8] =
            self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()).expect("a place of this template");
        let (old, new_word) = (u64::from_le_bytes(*place), u64::from_le_bytes(new));
        self.sum = self.sum.wrapping_sub(digits::sum8(old)).wrapping_add(digits::sum8(new_word));
        *place = new;
    }
}

/// The timestamps of a template: within a second only the last eight bytes change, the fraction and
/// what is before it.
#[derive(Clone, Debug)]
struct Clock {
    precision: Precision,
    text: UtcText,
    /// When the second began whose text the template has.
    second_ns: u64,
    /// The last eight bytes, with zeros where the fraction is.
    before: u64,
}

impl Clock {
    fn new(precision: Precision) -> Self {
        // A second that no time is in: the year is 2262.
        Self { precision, text: UtcText::new(precision), second_ns: 1 << 63, before: 0 }
    }

    /// The last eight bytes of the timestamp; `None` where bytes before them change as well.
    #[inline(always)]
    fn last_bytes(&self, utc_ns: u64) -> Option<[u8; 8]> {
        let nanos = utc_ns.wrapping_sub(self.second_ns);
        if nanos >= 1_000_000_000 || self.precision == Precision::Nanos {
            return None;
        }
        let fraction = u64::from_le_bytes(digits::eight(nanos as u32 / 10));
        Some((self.before | fraction << self.shift()).to_le_bytes())
    }

    fn whole(&mut self, utc_ns: u64) -> &[u8] {
        self.second_ns = utc_ns / 1_000_000_000 * 1_000_000_000;
        let shift = self.shift();
        let text = self.text.write(utc_ns);
        let last = text.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
        self.before = last & ((1 << shift) - 1);
        text
    }

    /// Bits of the last eight bytes that are before the fraction.
    #[inline(always)]
    const fn shift(&self) -> u32 {
        match self.precision {
            Precision::Millis => 40,
            Precision::Micros | Precision::Nanos => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FieldIndex;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn value_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut builder = TemplateBuilder::new("FIX.4.4", "D", "US", "THEM", Precision::Millis);
        let (digits, id, float) = (builder.digits(38), builder.id(11, "A"), builder.float(44));
        let mut template = builder.build();
        let before = template.finish(1, 0).unwrap().to_vec();
        assert_eq!(template.set_digits(digits, 100_000_000), Err(TemplateError::TooWide { max: 99_999_999 }));
        assert_eq!(template.set_id(id, ID_MAX + 1), Err(TemplateError::TooWide { max: ID_MAX }));
        assert_eq!(template.set_float(float, Decimal(-1)), Err(TemplateError::TooWide { max: ID_MAX }));
        assert_eq!(template.set_float(float, Decimal::whole(100_000_000)), Err(TemplateError::TooWide { max: ID_MAX }));
        assert_eq!(template.finish(100_000_000, 0), Err(TemplateError::SequenceNumber));
        assert_eq!(template.finish(1, 0).unwrap(), before);
    }

    fn precision() -> impl Strategy<Value = Precision> {
        prop_oneof![Just(Precision::Millis), Just(Precision::Micros), Just(Precision::Nanos)]
    }

    proptest! {
        #[test]
        fn each_message_of_a_template_has_its_values_and_its_sum(
            precision in precision(),
            steps in proptest::collection::vec(
                (1_u64..100_000_000, 0_u64..4_000_000_000, 0_u64..100_000_000, 0..=ID_MAX, 0..=ID_MAX as i64, any::<u8>()),
                1..6,
            ),
        ) {
            let mut builder = TemplateBuilder::new("FIX.4.4", "D", "US", "THEM", precision);
            let (quantity, id) = (builder.digits(38), builder.id(11, "AB"));
            let (price, side) = (builder.float(44), builder.char(54));
            let mut template = builder.utc(60).build();
            let mut index = FieldIndex::new(32);
            for (seq, utc_ns, shares, number, units, character) in steps {
                let utc_ns = 1_795_727_114_000_000_000 + utc_ns;
                template.set_digits(quantity, shares).unwrap();
                template.set_id(id, number).unwrap();
                template.set_float(price, Decimal(units)).unwrap();
                template.set_char(side, character);
                let bytes = template.finish(seq, utc_ns).unwrap();
                let message = index.parse(bytes).unwrap();
                prop_assert_eq!(message.number(34), Some(seq));
                prop_assert_eq!(message.number(38), Some(shares));
                prop_assert_eq!(message.get(11).map(<[u8]>::to_vec), Some(format!("AB{number:016}").into_bytes()));
                prop_assert_eq!(message.decimal(44), Some(Decimal(units)));
                let unit = 10_u64.pow(match precision { Precision::Millis => 6, Precision::Micros => 3, Precision::Nanos => 0 });
                prop_assert_eq!(message.utc(52), Some(utc_ns / unit * unit));
                prop_assert_eq!(message.utc(60), message.utc(52));
            }
        }
    }
}
