//! The tag at the front of a field: read once, then recognized.
//!
//! A venue's messages mostly have the same tags in the same order. To compare a field's first bytes
//! with the tag that was at this place before costs a third of reading its digits.

use super::digits;
use crate::fix::tag::may_be_length;

/// A tag as a message has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownTag {
    /// Its digits and `=`, and which bytes of a word these are.
    text: u64,
    mask: u64,
    pub(super) tag: u32,
    /// Digits and `=`.
    pub(super) len: u16,
    pub(super) may_be_length: bool,
}

impl KnownTag {
    /// No field begins like it.
    pub(super) const NONE: Self = Self { text: 1, mask: 0, tag: 0, len: 0, may_be_length: false };

    /// Whether it is the tag of the field that `word` begins.
    #[inline(always)]
    pub(super) const fn is_at(&self, word: u64) -> bool {
        word & self.mask == self.text
    }

    /// The tag at `at`, where `word` is; `None` where there is none: a field that ends before a `=`
    /// has SOH among the digits.
    #[inline]
    pub(super) fn read(word: u64, bytes: &[u8], at: usize) -> Option<Self> {
        let (tag, digit_count) = parse(word, bytes, at)?;
        let known = Self { tag, len: digit_count as u16 + 1, may_be_length: may_be_length(tag), ..Self::NONE };
        if digit_count >= 8 {
            // The word has no `=`: such a tag is read each time.
            return Some(known);
        }
        let mask = u64::MAX >> (56 - 8 * digit_count);
        Some(Self { text: word & mask, mask, ..known })
    }
}

/// The first eight bytes of a field. They can always be read: a field has two at least, and a
/// trailer of seven follows.
#[inline(always)]
pub(super) fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The tag and how many digits it has.
#[inline]
fn parse(word: u64, bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    // The `=` behind one to four digits: the lowest bit that is found is exact.
    let differs = (word >> 8) as u32 ^ 0x3d3d_3d3d;
    let found = differs.wrapping_sub(0x0101_0101) & !differs & 0x8080_8080;
    if found == 0 {
        return parse_long(bytes, at);
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
fn parse_long(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let len = rest.iter().take(9).position(|byte| *byte == b'=')?;
    Some((digits::parse(&rest[..len])? as u32, len))
}
