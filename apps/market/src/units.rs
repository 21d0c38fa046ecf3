//! The types that all feeds share: price, symbol, side, order reference, locate.
//!
//! Prices are fixed point with four decimals in an `i64`; there is no floating point anywhere in
//! this library.

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

/// An instrument's name: up to eight bytes of ASCII, left aligned, padded with spaces, exactly as
/// on the wire.
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

    /// The name without its padding; `?` where the sender's bytes are not text.
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
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
    fn price_prints_four_decimals_and_its_sign() {
        assert_eq!(Price(12_345).to_string(), "1.2345");
        assert_eq!(Price(-50).to_string(), "-0.0050");
        assert_eq!(Price(i64::MIN).to_string(), "-922337203685477.5808");
    }

    #[test]
    fn symbol_of_nine_bytes_is_refused() {
        assert_eq!(Symbol::new("ABCDEFGHI"), None);
    }

    #[test]
    fn symbol_prints_without_padding() {
        assert_eq!(Symbol::new("AAPL").unwrap().to_string(), "AAPL");
        assert_eq!(Symbol([0xff; 8]).as_str(), "?");
    }
}
