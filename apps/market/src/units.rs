//! The types that all feeds share: price, symbol, side, order reference, locate.
//!
//! Prices are fixed point in an `i64`, with four decimals ([`Price`]) or, where a venue quotes
//! finer steps, with nine ([`Price9`]); there is no floating point anywhere in this library.

use core::{fmt, str};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A price in units of 1/10,000 of the currency: 1.2345 is `Price(12345)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(pub i64);

impl Price {
    /// Units in one whole unit of currency.
    pub const SCALE: i64 = 10_000;

    /// The price of a two-decimal field (Cboe short messages): cents times one hundred.
    pub const fn from_cents(cents: i64) -> Self {
        Self(cents * 100)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let units = self.0.unsigned_abs();
        let scale = Self::SCALE.unsigned_abs();
        write!(f, "{sign}{}.{:04}", units / scale, units % scale)
    }
}

/// A price in units of 1/1,000,000,000 of the currency, as futures venues quote: 0.015625, a
/// sixty-fourth, is `Price9(15_625_000)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price9(pub i64);

impl Price9 {
    /// Units in one whole unit of currency.
    pub const SCALE: i64 = 1_000_000_000;
    const PER_PRICE: i64 = Self::SCALE / Price::SCALE;

    /// The same price with four decimals; `None` where it has more.
    pub const fn exact(self) -> Option<Price> {
        if self.0 % Self::PER_PRICE == 0 { Some(Price(self.0 / Self::PER_PRICE)) } else { None }
    }

    /// The price with four decimals; where it has more, one that is worse for who trades against
    /// `side`: a bid is rounded down, an offer up.
    pub const fn rounded(self, side: Side) -> Price {
        let down = self.0.div_euclid(Self::PER_PRICE);
        let is_exact = self.0.rem_euclid(Self::PER_PRICE) == 0;
        match side {
            Side::Sell if !is_exact => Price(down + 1),
            _ => Price(down),
        }
    }
}

impl From<Price> for Price9 {
    /// Saturates beyond 9.2 thousand millions.
    fn from(price: Price) -> Self {
        Self(price.0.saturating_mul(Self::PER_PRICE))
    }
}

impl fmt::Display for Price9 {
    /// With four decimals at least, and as many as there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(price) = self.exact() {
            return price.fmt(f);
        }
        let sign = if self.0 < 0 { "-" } else { "" };
        let (units, scale) = (self.0.unsigned_abs(), Self::SCALE.unsigned_abs());
        let (mut decimals, mut width) = (units % scale, 9);
        while decimals.is_multiple_of(10) {
            decimals /= 10;
            width -= 1;
        }
        write!(f, "{sign}{}.{decimals:0width$}", units / scale)
    }
}

/// An instrument's name: up to eight bytes of ASCII, left aligned, padded with spaces, exactly as
/// on the wire. Feeds that name instruments by a number have a [`Symbol::from_number`].
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct Symbol(pub [u8; 8]);

impl Symbol {
    /// No instrument: eight spaces.
    pub const NONE: Self = Self([b' '; 8]);

    /// The symbol `name`, padded with spaces; `None` where it is longer than eight bytes.
    pub const fn new(name: &str) -> Option<Self> {
        let name = name.as_bytes();
        if name.len() > 8 {
            return None;
        }
        let mut padded = [b' '; 8];
        let mut idx = 0;
        while idx < name.len() {
            padded[idx] = name[idx];
            idx += 1;
        }
        Some(Self(padded))
    }

    /// The symbol of a six-byte field (Cboe PITCH), padded to eight.
    pub const fn from_six(six: [u8; 6]) -> Self {
        Self([six[0], six[1], six[2], six[3], six[4], six[5], b' ', b' '])
    }

    /// The symbol of an instrument that its feed knows by number. It differs from all names,
    /// because the first byte of a name is ASCII. The highest bit of `number` is lost.
    #[inline]
    pub const fn from_number(number: u64) -> Self {
        Self((number | Self::NUMBER).to_be_bytes())
    }

    /// The symbol that a text field of a message has, padded with spaces or zeros; [`Self::NONE`]
    /// where it is longer than eight bytes, because another one may begin so too.
    pub(crate) fn of_field(field: &[u8]) -> Self {
        let (front, rest) = field.split_at(field.len().min(8));
        let mut name = Self::NONE;
        if rest.iter().all(|byte| matches!(byte, 0 | b' ')) {
            name.0.iter_mut().zip(front).for_each(|(to, &byte)| *to = if byte == 0 { b' ' } else { byte });
        }
        name
    }

    /// The number of an instrument that has no name.
    #[inline]
    pub const fn number(self) -> Option<u64> {
        let bits = u64::from_be_bytes(self.0);
        if bits & Self::NUMBER == 0 { None } else { Some(bits & !Self::NUMBER) }
    }

    const NUMBER: u64 = 1 << 63;

    /// The name without its padding; `?` where it is a number, or the sender's bytes are not text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.0.trim_ascii_end()).unwrap_or("?")
    }
}

impl Default for Symbol {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for Symbol {
    /// A number is printed with `#` in front; a byte that is no printable ASCII is escaped, so that
    /// what the wire brings does nothing to a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => f.pad(&format!("#{number}")),
            None => f.pad(&self.0.trim_ascii_end().escape_ascii().to_string()),
        }
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.number() {
            return write!(f, "#{number}");
        }
        write!(f, "\"{}\"", self.0.trim_ascii_end().escape_ascii())
    }
}

/// Which side of the book an order rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Side {
    /// A bid.
    #[default]
    Buy,
    /// An offer.
    Sell,
}

impl Side {
    /// `B` is a bid, anything else an offer: feeds have only the two, and a third must not stop the
    /// decoder.
    pub const fn from_wire(byte: u8) -> Self {
        if byte == b'B' { Self::Buy } else { Self::Sell }
    }

    /// The byte that stands for this side on the wire.
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Buy => b'B',
            Self::Sell => b'S',
        }
    }
}

/// The exchange's number for one resting order, unique for the day (per unit on Cboe).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderRef(pub u64);

/// Nasdaq's index of a stock, unique for the day; 0 means "no particular stock" and on feeds
/// without locates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locate(pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbol_with_bytes_that_are_no_text_is_printed_escaped() {
        let symbol = Symbol(*b"\x1b[2J\xff   ");
        assert_eq!((symbol.to_string(), format!("{symbol:?}")), ("\\x1b[2J\\xff".into(), "\"\\x1b[2J\\xff\"".into()));
        assert_eq!(
            (Symbol::from_six(*b"BRK.A ").to_string(), Symbol::from_number(7).to_string()),
            ("BRK.A".into(), "#7".into())
        );
    }

    #[test]
    fn price_prints_four_decimals_and_its_sign() {
        assert_eq!(Price(12_345).to_string(), "1.2345");
        assert_eq!(Price(-50).to_string(), "-0.0050");
        assert_eq!(Price(i64::MIN).to_string(), "-922337203685477.5808");
    }

    #[test]
    fn price_with_nine_decimals_is_rounded_away_from_who_would_trade() {
        let sixty_fourth = Price9(110_015_625_000);
        assert_eq!(sixty_fourth.exact(), None);
        assert_eq!(sixty_fourth.rounded(Side::Buy), Price(1_100_156));
        assert_eq!(sixty_fourth.rounded(Side::Sell), Price(1_100_157));
        assert_eq!(Price9(-37_630_000_000).exact(), Some(Price(-376_300)));
        assert_eq!(Price9(-1).rounded(Side::Buy), Price(-1));
        assert_eq!(Price9(-1).rounded(Side::Sell), Price(0));
        assert_eq!(Price9(i64::MAX).rounded(Side::Sell).0, i64::MAX / 100_000 + 1);
    }

    #[test]
    fn price_with_nine_decimals_prints_those_it_has() {
        assert_eq!(Price9(110_015_625_000).to_string(), "110.015625");
        assert_eq!(Price9(-500).to_string(), "-0.0000005");
        assert_eq!(Price9(4_500_250_000_000).to_string(), "4500.2500");
    }

    #[test]
    fn symbol_of_a_number_prints_it_and_is_no_name() {
        let symbol = Symbol::from_number(5_485);
        assert_eq!((symbol.number(), symbol.to_string().as_str()), (Some(5_485), "#5485"));
        assert_eq!(Symbol::new("AAPL").unwrap().number(), None);
        assert_eq!(format!("{:>6}", Symbol::from_number(1)), "    #1");
    }

    #[test]
    fn symbol_of_nine_bytes_is_refused() {
        assert_eq!(Symbol::new("ABCDEFGHI"), None);
    }

    #[test]
    fn symbol_prints_without_padding() {
        assert_eq!(Symbol::new("AAPL").unwrap().to_string(), "AAPL");
        assert_eq!(Symbol([0x7f, 0xff, 0, 0, 0, 0, 0, 0]).as_str(), "?");
    }
}
