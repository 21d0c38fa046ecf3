//! Sums of whole blocks in registers of 256 bits, where the CPU has them: a third of the instructions, and of the time, that 64-bit words
//! take. Which it is, is asked of what the standard library remembers of the CPU: a load and a test for a block of 1448 bytes.
//!
//! ```text
//!   16 words of a block, as signed numbers: each less 0x8000 ─▶ products with one, pairs added ─▶ 8 lanes of 32 bits
//! ```
//! There is an instruction that adds neighbouring words into 32 bits, and it takes them as signed. So the words are moved down by half of
//! their range, which turning the highest bit does, and what was taken off each is given back to the sum of all.
//!
//! Invariants:
//! 1. A function that is compiled for AVX2 is called only where the CPU was found to have it.

/// Bytes of a block.
pub(super) const BLOCK_LEN: usize = 128;

/// Fewer bytes are summed sooner without a call.
pub(super) const LEN_MIN: usize = 256;

/// The sum of the 16-bit words of all blocks, in machine order; `None` where the CPU has no wide registers.
#[inline]
pub(super) fn sum(blocks: &[[u8; BLOCK_LEN]]) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has it (1). Safe code cannot call what is compiled for another CPU than the rest.
        return Some(unsafe { avx2::sum(blocks) });
    }
    let _ = blocks;
    None
}

/// Copies all blocks, and says their sum. `None`, and nothing is copied, where the CPU has no wide registers. `to` is as long as `from`.
#[inline]
pub(super) fn copy(to: &mut [[u8; BLOCK_LEN]], from: &[[u8; BLOCK_LEN]]) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has it (1). Safe code cannot call what is compiled for another CPU than the rest.
        return Some(unsafe { avx2::copy(to, from) });
    }
    let _ = (to, from);
    None
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_extract_epi64, _mm256_madd_epi16, _mm256_set_epi64x, _mm256_set1_epi16,
        _mm256_setzero_si256, _mm256_xor_si256,
    };

    use super::BLOCK_LEN;

    /// After so many blocks the lanes are emptied: each block adds at most 4 times 2 times 2^15 to a lane, either way.
    const BLOCKS_MAX: usize = 4096;

    #[target_feature(enable = "avx2")]
    #[inline(never)]
    pub(super) fn sum(blocks: &[[u8; BLOCK_LEN]]) -> u64 {
        let mut total = 0;
        for blocks in blocks.chunks(BLOCKS_MAX) {
            let mut lanes = _mm256_setzero_si256();
            for block in blocks {
                lanes = add(lanes, block);
            }
            total += empty(lanes, blocks.len());
        }
        total
    }

    #[target_feature(enable = "avx2")]
    #[inline(never)]
    pub(super) fn copy(to: &mut [[u8; BLOCK_LEN]], from: &[[u8; BLOCK_LEN]]) -> u64 {
        let mut total = 0;
        for (to, from) in to.chunks_mut(BLOCKS_MAX).zip(from.chunks(BLOCKS_MAX)) {
            let mut lanes = _mm256_setzero_si256();
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
                lanes = add(lanes, from);
            }
            total += empty(lanes, from.len());
        }
        total
    }

    /// The lanes with those of a block added.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn add(mut lanes: __m256i, block: &[u8; BLOCK_LEN]) -> __m256i {
        let quarters: [[i64; 4]; 4] = zerocopy::transmute!(*block);
        for [a, b, c, d] in quarters {
            // One load.
            let words = _mm256_set_epi64x(d, c, b, a);
            let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
            lanes = _mm256_add_epi32(lanes, _mm256_madd_epi16(signed, _mm256_set1_epi16(1)));
        }
        lanes
    }

    /// What the lanes hold of so many blocks, and what was taken off each word.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn empty(lanes: __m256i, blocks: usize) -> u64 {
        let taken_off = (blocks * BLOCK_LEN / 2) as i64 * 0x8000;
        let pairs = [
            _mm256_extract_epi64::<0>(lanes),
            _mm256_extract_epi64::<1>(lanes),
            _mm256_extract_epi64::<2>(lanes),
            _mm256_extract_epi64::<3>(lanes),
        ];
        let sum: i64 = pairs.iter().map(|&pair| i64::from(pair as i32) + (pair >> 32)).sum();
        (sum + taken_off) as u64
    }
}
