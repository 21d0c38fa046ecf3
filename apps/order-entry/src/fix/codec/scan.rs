//! Finds SOH in 64 bytes at once: one bit for each byte.
//!
//! On x86-64 this is SSE2, which every such processor has, through the safe functions of the crate
//! `safe_arch`, because this crate has no unsafe code; elsewhere it is arithmetic on eight bytes at
//! once.

use super::SOH;

/// Bytes of a block.
pub(super) const BLOCK_LEN: usize = 64;

/// Where SOH is in the 64 bytes at `at`, or in fewer where `bytes` ends before: bit n is byte n.
/// Some 5 instructions for each 16 bytes.
#[inline(always)]
pub(super) fn soh_bits(bytes: &[u8], at: usize) -> u64 {
    if let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        return of_block(block);
    }
    // The end: the last 64 bytes, shifted, because a copy of unknown length costs more.
    if let Some(block) = bytes.last_chunk() {
        let skip = (at + BLOCK_LEN).saturating_sub(bytes.len()) as u32;
        return of_block(block).checked_shr(skip).unwrap_or(0);
    }
    let mut block = [0; BLOCK_LEN];
    for (to, from) in block.iter_mut().zip(bytes.get(at..).unwrap_or(&[])) {
        *to = *from;
    }
    of_block(&block)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn of_block(block: &[u8; BLOCK_LEN]) -> u64 {
    use safe_arch::{cmp_eq_mask_i8_m128i, load_unaligned_m128i, move_mask_i8_m128i, set_splat_i8_m128i};

    let soh = set_splat_i8_m128i(SOH as i8);
    let (parts, _) = block.as_chunks::<16>();
    parts.iter().enumerate().fold(0, |bits, (idx, part)| {
        let found = move_mask_i8_m128i(cmp_eq_mask_i8_m128i(load_unaligned_m128i(part), soh));
        bits | u64::from(found as u16) << (16 * idx)
    })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn of_block(block: &[u8; BLOCK_LEN]) -> u64 {
    of_block_by_words(block)
}

/// The same on any processor: each byte that is SOH becomes a one bit, and a multiplication gathers
/// the eight bits of a word.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn of_block_by_words(block: &[u8; BLOCK_LEN]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;

    let (words, _) = block.as_chunks::<8>();
    words.iter().enumerate().fold(0, |bits, (idx, word)| {
        let differs = u64::from_le_bytes(*word) ^ (ONES * u64::from(SOH));
        // The high bit of a byte is set unless the byte is zero; no carry crosses a byte.
        let nonzero = ((differs & (ONES * 0x7f)) + ONES * 0x7f) | differs;
        let found = ((!nonzero >> 7) & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits | found << (8 * idx)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one_by_one(bytes: &[u8], at: usize) -> u64 {
        let rest = bytes.get(at..).unwrap_or(&[]).iter().take(BLOCK_LEN).enumerate();
        rest.filter(|(_, byte)| **byte == SOH).map(|(idx, _)| 1 << idx).sum()
    }

    proptest! {
        #[test]
        fn bits_are_those_of_a_search_byte_by_byte(
            bytes in proptest::collection::vec(prop_oneof![Just(SOH), any::<u8>()], 0..200),
            at in 0_usize..220,
        ) {
            let at = at.min(bytes.len());
            prop_assert_eq!(soh_bits(&bytes, at), one_by_one(&bytes, at));
        }

        #[test]
        fn both_ways_find_the_same(bytes in proptest::collection::vec(prop_oneof![Just(SOH), Just(0), any::<u8>()], 64)) {
            let block = bytes.first_chunk().unwrap();
            prop_assert_eq!(of_block(block), of_block_by_words(block));
        }
    }
}
