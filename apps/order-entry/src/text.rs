//! Text fields of fixed width.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::session::Escaped;

/// Text of `LEN` bytes, padded on the right. Displayed without its padding, with everything but
/// printable ASCII escaped.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct Text<const LEN: usize>(pub [u8; LEN]);

impl<const LEN: usize> Text<LEN> {
    /// Spaces.
    pub const BLANK: Self = Self([b' '; LEN]);

    /// `text` padded with spaces; `None` where it is longer than `LEN` bytes.
    pub const fn new(text: &str) -> Option<Self> {
        Self::padded(text, b' ')
    }

    /// `text` padded with zeros, as Cboe and CME do; `None` where it is longer than `LEN` bytes.
    pub const fn zero_padded(text: &str) -> Option<Self> {
        Self::padded(text, 0)
    }

    const fn padded(text: &str, pad: u8) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() > LEN {
            return None;
        }
        let mut padded = [pad; LEN];
        let mut idx = 0;
        while idx < text.len() {
            padded[idx] = text[idx];
            idx += 1;
        }
        Some(Self(padded))
    }

    /// The bytes without spaces and zeros at the end.
    pub fn trimmed(&self) -> &[u8] {
        let pad = self.0.iter().rev().take_while(|&&byte| byte == b' ' || byte == 0).count();
        &self.0[..LEN - pad]
    }
}

impl<const LEN: usize> fmt::Display for Text<LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(self.trimmed()).fmt(f)
    }
}

impl<const LEN: usize> fmt::Debug for Text<LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_shown_without_padding_and_escaped() {
        assert_eq!(Text::<6>::new("abc"), Some(Text(*b"abc   ")));
        assert_eq!(Text::<3>::zero_padded("a"), Some(Text(*b"a\0\0")));
        assert_eq!(Text::<2>::new("abc"), None);
        assert_eq!(Text(*b"a\x1bc \0").to_string(), "a\\x1bc");
    }
}
