//! Prices and quantities as fixed point.

use core::fmt;

use market::Price;

use super::digits;

/// A FIX float (price, quantity) in units of 10⁻⁸: no value of a venue has more decimals, and the
/// range of some ±92 billion holds any price and quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal(pub i64);

impl Decimal {
    /// Decimals that are kept.
    pub const DECIMALS: usize = 8;
    /// Units in one.
    pub const SCALE: i64 = 100_000_000;

    /// A whole number, such as a quantity of shares; saturates beyond some 92 billion.
    #[inline]
    pub const fn whole(value: i64) -> Self {
        Self(value.saturating_mul(Self::SCALE))
    }

    /// A price of four decimals; saturates beyond some 92 billion.
    #[inline]
    pub const fn from_price(price: Price) -> Self {
        Self(price.0.saturating_mul(Self::SCALE / Price::SCALE))
    }

    /// The price where four decimals hold it exactly.
    #[inline]
    pub const fn price(self) -> Option<Price> {
        let unit = Self::SCALE / Price::SCALE;
        if self.0 % unit == 0 { Some(Price(self.0 / unit)) } else { None }
    }

    /// The whole number where it is one.
    #[inline]
    pub const fn integer(self) -> Option<i64> {
        if self.0 % Self::SCALE == 0 { Some(self.0 / Self::SCALE) } else { None }
    }

    /// Reads a FIX float: an optional `-`, digits with at most one point among them, no exponent.
    /// `None` for anything else, for more than eight significant decimals, and beyond the range.
    /// Some 10 instructions for each text of up to eight bytes, a loop for a longer one.
    #[inline]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let short = (1..=8).contains(&text.len()).then(|| Self::parse_word(digits::load(text), text.len()));
        short.flatten().or_else(|| parse_long(text).map(Self))
    }

    /// The same, without the decimals behind the eighth.
    #[cold]
    pub fn parse_truncated(text: &[u8]) -> Option<Self> {
        let point = text.iter().position(|&byte| byte == b'.')?;
        let (kept, rest) = text.split_at_checked(point + 1 + Self::DECIMALS)?;
        if rest.iter().all(u8::is_ascii_digit) { Self::parse(kept) } else { None }
    }

    /// The same of the first `len` bytes of `word`, 1 to 8, without a sign: the point is taken out
    /// of the word, and the rest is one number.
    #[inline(always)]
    pub(super) fn parse_word(word: u64, len: usize) -> Option<Self> {
        // Bytes that differ from the point keep a high bit; the lowest zero byte is exact.
        let differs = word ^ 0x2e2e_2e2e_2e2e_2e2e;
        let found = differs.wrapping_sub(0x0101_0101_0101_0101) & !differs & 0x8080_8080_8080_8080;
        let before = (found.trailing_zeros() / 8) as usize;
        if before >= len {
            return Some(Self(digits::parse8(word, len)? as i64 * Self::SCALE));
        }
        if len == 1 {
            return None;
        }
        let low = (1_u64 << (8 * before)) - 1;
        let joined = (word & low) | (word >> 8 & !low);
        let units = *TO_UNITS.get(len - 1 - before)?;
        Some(Self(digits::parse8(joined, len - 1)? as i64 * units))
    }
}

/// Powers of ten that bring a number with n decimals to units.
const TO_UNITS: [i64; 9] = [100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];

fn parse_long(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let (mut value, mut decimals, mut digit_count) = (0_i64, None::<usize>, 0);
    for byte in text {
        match byte {
            b'.' if decimals.is_none() => decimals = Some(0),
            b'0'..=b'9' => {
                digit_count += 1;
                let digit = i64::from(byte - b'0');
                match &mut decimals {
                    // A zero behind the last decimal changes nothing.
                    Some(Decimal::DECIMALS) if digit == 0 => {}
                    Some(Decimal::DECIMALS) => return None,
                    Some(count) => {
                        *count += 1;
                        value = value.checked_add(digit * TO_UNITS[*count])?;
                    }
                    None => value = value.checked_mul(10)?.checked_add(digit * Decimal::SCALE)?,
                }
            }
            _ => return None,
        }
    }
    if digit_count == 0 {
        return None;
    }
    Some(if negative { -value } else { value })
}

impl fmt::Display for Decimal {
    /// As few decimals as the value needs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (units, scale) = (self.0.unsigned_abs(), Self::SCALE.unsigned_abs());
        let (mut rest, mut width) = (units % scale, Self::DECIMALS);
        if rest == 0 {
            return write!(f, "{sign}{}", units / scale);
        }
        while rest % 10 == 0 {
            rest /= 10;
            width -= 1;
        }
        write!(f, "{sign}{}.{rest:0width$}", units / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn float_of_fix_is_read_in_each_of_its_forms() {
        for (text, units) in [
            ("23.23", 2_323_000_000),
            ("00023.2300", 2_323_000_000),
            ("-23.23", -2_323_000_000),
            ("23.", 2_300_000_000),
            (".5", 50_000_000),
            ("0", 0),
            ("12345678", 1_234_567_800_000_000),
            ("0.00000001", 1),
            ("1.000000010000", 100_000_001),
        ] {
            assert_eq!(Decimal::parse(text.as_bytes()), Some(Decimal(units)), "{text}");
        }
    }

    #[test]
    fn no_float_of_fix_is_refused() {
        for text in ["", ".", "-", "-.", "+1", "1e5", "1.2.3", " 1", "1,5", "0.000000001", "99999999999", "--1"] {
            assert_eq!(Decimal::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn decimals_behind_the_eighth_are_left_out() {
        for (text, units) in [
            ("10.0666666666667", Some(1_006_666_666)),
            ("-0.123456789", Some(-12_345_678)),
            ("1.00000000x", None),
            ("1.0000000e-5", None),
            ("99999999999.123456789", None),
            ("1.5", None),
            ("15", None),
        ] {
            assert_eq!(Decimal::parse_truncated(text.as_bytes()), units.map(Decimal), "{text}");
        }
    }

    #[test]
    fn price_that_four_decimals_do_not_hold_is_none() {
        assert_eq!(Decimal(10_125_000_000).price(), Some(Price(1_012_500)));
        assert_eq!(Decimal(1).price(), None);
        assert_eq!(Decimal::whole(7).integer(), Some(7));
        assert_eq!(Decimal(1).integer(), None);
    }

    proptest! {
        #[test]
        fn value_survives_its_text(units in any::<i64>().prop_filter("the range is symmetric", |units| *units != i64::MIN)) {
            prop_assert_eq!(Decimal::parse(Decimal(units).to_string().as_bytes()), Some(Decimal(units)));
        }

        #[test]
        fn short_way_and_long_way_agree(text in "[0-9.]{1,8}") {
            prop_assert_eq!(Decimal::parse(text.as_bytes()).map(|value| value.0), parse_long(text.as_bytes()));
        }
    }
}
