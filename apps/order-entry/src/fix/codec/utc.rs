//! UTCTimestamp: `YYYYMMDD-HH:MM:SS`, with a fraction of 3, 6 or 9 digits or without.
//!
//! Time is nanoseconds since 1970 in UTC. Nothing here reads a clock.

use super::digits;

const SECOND_NS: u64 = 1_000_000_000;

/// Digits of a second's fraction. FIX 4.2 and 4.4 have milliseconds at most; finer ones came with
/// FIX 5.0 SP2, and many venues take them in older versions too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Three digits.
    #[default]
    Millis,
    /// Six digits.
    Micros,
    /// Nine digits.
    Nanos,
}

impl Precision {
    const fn digits(self) -> usize {
        match self {
            Self::Millis => 3,
            Self::Micros => 6,
            Self::Nanos => 9,
        }
    }

    /// Bytes of a timestamp: 21, 24 or 27.
    pub const fn text_len(self) -> usize {
        UtcText::WHOLE + 1 + self.digits()
    }
}

/// Writes timestamps. The date changes once a day and the time once a second, so most calls write
/// the fraction alone.
#[derive(Clone, Debug)]
pub struct UtcText {
    text: [u8; UtcText::LEN_MAX],
    precision: Precision,
    /// The second that `text` has, since 1970.
    second: u64,
}

impl UtcText {
    /// Bytes of `YYYYMMDD-HH:MM:SS`.
    pub(super) const WHOLE: usize = 17;
    /// Bytes of the longest timestamp.
    pub(crate) const LEN_MAX: usize = 27;

    /// A writer at 1970.
    pub fn new(precision: Precision) -> Self {
        let mut text = [b'0'; Self::LEN_MAX];
        text[..18].copy_from_slice(b"19700101-00:00:00.");
        Self { text, precision, second: 0 }
    }

    /// The timestamp of `utc_ns`. Years beyond 9999 keep their last four digits. Some 5 ns within a
    /// second, some 20 where the second changes.
    #[inline]
    pub fn write(&mut self, utc_ns: u64) -> &[u8] {
        let (second, nanos) = (utc_ns / SECOND_NS, (utc_ns % SECOND_NS) as u32);
        if second != self.second {
            self.set_second(second);
        }
        self.text[18..26].copy_from_slice(&digits::eight(nanos / 10));
        self.text[26] = b'0' + (nanos % 10) as u8;
        &self.text[..self.precision.text_len()]
    }

    #[cold]
    fn set_second(&mut self, second: u64) {
        let (day, second_of_day) = (second / 86_400, (second % 86_400) as u32);
        if day != self.second / 86_400 {
            let (year, month, day) = civil(day);
            self.text[..8].copy_from_slice(&digits::eight((year % 10_000) * 10_000 + month * 100 + day));
        }
        let (hour, minute, rest) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
        for (at, value) in [(9, hour), (12, minute), (15, rest)] {
            self.text[at] = b'0' + (value / 10) as u8;
            self.text[at + 1] = b'0' + (value % 10) as u8;
        }
        self.second = second;
    }
}

/// Nanoseconds since 1970 of a timestamp; `None` where it is none. A leap second (`:60`) is the
/// second after. Finer digits than nine are refused.
pub fn parse_utc(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = text.split_first_chunk::<{ UtcText::WHOLE }>()?;
    let (date, time): (&[u8; 8], &[u8; 8]) = (whole.first_chunk()?, whole.last_chunk()?);
    let date = digits::parse8(u64::from_le_bytes(*date), 8)? as u32;
    let (year, month, day) = (date / 10_000, date / 100 % 100, date % 100);
    // Digits become their values, and colons zero; then each pair is one number.
    let digits = u64::from_le_bytes(*time) ^ u64::from_le_bytes(*b"00:00:00");
    let above_nine = digits.wrapping_add(0x7676_7f76_767f_7676) | digits;
    if whole[8] != b'-' || above_nine & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = (digits.wrapping_mul(10).wrapping_add(digits >> 8)).to_le_bytes();
    let (hour, minute, second) = (u64::from(pairs[0]), u64::from(pairs[3]), u64::from(pairs[6]));
    if !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    if year < 1970 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    seconds.checked_mul(SECOND_NS)?.checked_add(parse_fraction(fraction)?)
}

#[inline(always)]
fn parse_fraction(fraction: &[u8]) -> Option<u64> {
    match *fraction {
        [] => Some(0),
        [b'.', tenths, hundredths, thousandths] => {
            let digit = |byte: u8| u64::from(byte.wrapping_sub(b'0'));
            let digits = [digit(tenths), digit(hundredths), digit(thousandths)];
            let is_number = digits.iter().all(|digit| *digit <= 9);
            is_number.then(|| (digits[0] * 100 + digits[1] * 10 + digits[2]) * 1_000_000)
        }
        [b'.', ref digits @ ..] if digits.len() <= 9 => {
            let scale = 10_u64.pow(9 - digits.len() as u32);
            Some(digits::parse(digits)? * scale)
        }
        _ => None,
    }
}

#[inline(always)]
fn days_of(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date. The year begins with March, so that the leap day is its last.
#[inline(always)]
fn days(year: u32, month: u32, day: u32) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (year, of_year) = (u64::from(year), u64::from((153 * month + 2) / 5 + day - 1));
    // 719,468 days lie between the first of March of the year 0 and 1970.
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

/// Year, month and day of a day since 1970.
fn civil(day: u64) -> (u32, u32, u32) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year as u32, month as u32, day_of_month as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamp_of_a_known_second() {
        let mut text = UtcText::new(Precision::Millis);
        assert_eq!(text.write(1_795_727_114_123_456_789), b"20261126-21:05:14.123");
        assert_eq!(UtcText::new(Precision::Nanos).write(951_782_400_000_000_009), b"20000229-00:00:00.000000009");
    }

    #[test]
    fn no_timestamp_is_refused() {
        for text in [
            "",
            "20261126",
            "20261126-21:05",
            "20261326-21:05:14",
            "20260230-21:05:14",
            "20261126 21:05:14",
            "20261126-24:05:14",
            "20261126-21:60:14",
            "20261126-21:05:61",
            "20261126-21:05:14.",
            "20261126-21:05:14.1234567890",
            "19691231-23:59:59",
            "2026112x-21:05:14",
            "99999999-99:99:99",
        ] {
            assert_eq!(parse_utc(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn seconds_and_leap_second_are_read() {
        let second = parse_utc(b"20161231-23:59:59").unwrap();
        assert_eq!(parse_utc(b"20161231-23:59:60"), Some(second + SECOND_NS));
        assert_eq!(parse_utc(b"20161231-23:59:59.5"), Some(second + SECOND_NS / 2));
    }

    proptest! {
        #[test]
        fn time_survives_its_text(times in proptest::collection::vec(0_u64..u64::MAX / 2, 1..8)) {
            let mut text = UtcText::new(Precision::Nanos);
            for utc_ns in times {
                prop_assert_eq!(parse_utc(text.write(utc_ns)), Some(utc_ns));
            }
        }
    }
}
