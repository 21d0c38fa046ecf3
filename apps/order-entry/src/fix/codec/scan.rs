//! Finds `=` and SOH in 64 bytes at once: one bit for each byte.
//!
//! On x86-64 this is SSE2, which every such processor has, through the safe functions of the crate
//! `safe_arch`, because this crate has no unsafe code; elsewhere it is arithmetic on eight bytes at
//! once.

/// Bytes of a block.
pub(super) const BLOCK_LEN: usize = 64;

/// Where the two separators of a block are: bit n is byte n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) soh: u64,
    pub(super) equals: u64,
}

/// The marks of the 64 bytes at `at`, or of fewer where `bytes` ends before. Some 15 instructions
/// for each 16 bytes.
#[inline(always)]
pub(super) fn marks(bytes: &[u8], at: usize) -> Marks {
    if let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        return of_block(block);
    }
    tail(bytes, at)
}

/// The end of `bytes`: its last 64 bytes, shifted, because a copy of unknown length costs more.
#[inline(always)]
fn tail(bytes: &[u8], at: usize) -> Marks {
    if let Some(block) = bytes.last_chunk() {
        let marks = of_block(block);
        let skip = (at + BLOCK_LEN).saturating_sub(bytes.len()) as u32;
        let shift = |bits: u64| bits.checked_shr(skip).unwrap_or(0);
        return Marks { soh: shift(marks.soh), equals: shift(marks.equals) };
    }
    let mut block = [0; BLOCK_LEN];
    for (to, from) in block.iter_mut().zip(bytes.get(at..).unwrap_or(&[])) {
        *to = *from;
    }
    of_block(&block)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn of_block(block: &[u8; BLOCK_LEN]) -> Marks {
    use safe_arch::{cmp_eq_mask_i8_m128i, load_unaligned_m128i, m128i, move_mask_i8_m128i, set_splat_i8_m128i};

    let bits = |part: m128i, wanted: m128i| u64::from(move_mask_i8_m128i(cmp_eq_mask_i8_m128i(part, wanted)) as u16);
    let (soh, equals) = (set_splat_i8_m128i(super::SOH as i8), set_splat_i8_m128i(b'=' as i8));
    let mut marks = Marks { soh: 0, equals: 0 };
    let (parts, _) = block.as_chunks::<16>();
    for (idx, part) in parts.iter().enumerate() {
        let part = load_unaligned_m128i(part);
        marks.soh |= bits(part, soh) << (16 * idx);
        marks.equals |= bits(part, equals) << (16 * idx);
    }
    marks
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn of_block(block: &[u8; BLOCK_LEN]) -> Marks {
    of_block_by_words(block)
}

/// The same on any processor: each byte that equals the wanted one becomes a one bit, and a
/// multiplication gathers the eight bits of a word.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn of_block_by_words(block: &[u8; BLOCK_LEN]) -> Marks {
    const ONES: u64 = 0x0101_0101_0101_0101;

    fn bits(word: u64, wanted: u8) -> u64 {
        let differs = word ^ (ONES * u64::from(wanted));
        // The high bit of a byte is set unless the byte is zero; no carry crosses a byte.
        let nonzero = ((differs & (ONES * 0x7f)) + ONES * 0x7f) | differs;
        ((!nonzero >> 7) & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56
    }

    let mut marks = Marks { soh: 0, equals: 0 };
    let (words, _) = block.as_chunks::<8>();
    for (idx, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        marks.soh |= bits(word, super::SOH) << (8 * idx);
        marks.equals |= bits(word, b'=') << (8 * idx);
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one_by_one(bytes: &[u8], at: usize) -> Marks {
        let rest = bytes.get(at..).unwrap_or(&[]).iter().take(BLOCK_LEN).enumerate();
        let bit = |wanted: u8| rest.clone().filter(|(_, byte)| **byte == wanted).map(|(idx, _)| 1 << idx).sum();
        Marks { soh: bit(1), equals: bit(b'=') }
    }

    proptest! {
        #[test]
        fn marks_are_those_of_a_search_byte_by_byte(
            bytes in proptest::collection::vec(prop_oneof![Just(1_u8), Just(b'='), any::<u8>()], 0..200),
            at in 0_usize..220,
        ) {
            let at = at.min(bytes.len());
            prop_assert_eq!(marks(&bytes, at), one_by_one(&bytes, at));
        }

        #[test]
        fn both_ways_find_the_same(bytes in proptest::collection::vec(prop_oneof![Just(1_u8), Just(0), any::<u8>()], 64)) {
            let block = bytes.first_chunk().unwrap();
            prop_assert_eq!(of_block(block), of_block_by_words(block));
        }
    }
}
