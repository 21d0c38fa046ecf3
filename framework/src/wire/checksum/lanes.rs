//! Sums of many bytes in registers of 256 bits, where the CPU has them: a third of the instructions, and of the time, that 64-bit words
//! take. Which it is, is asked of what the standard library remembers of the CPU: a load and a test a call.
//!
//! ```text
//!   16 words of a line, as signed numbers: each less 0x8000 ─▶ products with one, pairs added ─▶ 8 lanes of 32 bits
//! ```
//! There is an instruction that adds neighbouring words into 32 bits, and it takes them as signed. So the words are moved down by half of
//! their range, which turning the highest bit does, and what was taken off each is given back to the sum of all.
//!
//! Invariants:
//! 1. A function that is compiled for AVX2 is called only where the CPU was found to have it.

/// Bytes of a line: a register.
pub(super) const LINE_LEN: usize = 32;

/// Fewer bytes are summed sooner without a call.
pub(super) const LEN_MIN: usize = 256;

/// So many lines at most, half a mebibyte: each adds at most 2 times 2^15 to a lane, either way.
pub(super) const LINES_MAX: usize = 1 << 14;

/// The sum of the 16-bit words of all lines, in machine order; `None` where the CPU has no wide registers, or there are too many lines.
#[inline]
pub(super) fn sum(lines: &[[u8; LINE_LEN]]) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && lines.len() <= LINES_MAX {
        // SAFETY: the CPU has it (1). Safe code cannot call what is compiled for another CPU than the rest.
        return Some(unsafe { avx2::sum(lines) });
    }
    let _ = lines;
    None
}

/// Copies all lines, and says their sum. `None`, and nothing is copied, as above. Panics where `to` is not as long as `from`.
#[inline]
pub(super) fn copy(to: &mut [[u8; LINE_LEN]], from: &[[u8; LINE_LEN]]) -> Option<u64> {
    assert!(to.len() == from.len(), "a copy is as long as what is copied");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && from.len() <= LINES_MAX {
        // SAFETY: the CPU has it (1). Safe code cannot call what is compiled for another CPU than the rest.
        return Some(unsafe { avx2::copy(to, from) });
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_extract_epi64, _mm256_madd_epi16, _mm256_set_epi64x, _mm256_set1_epi16,
        _mm256_setzero_si256, _mm256_xor_si256,
    };

    use super::LINE_LEN;

    #[target_feature(enable = "avx2")]
    #[inline(never)]
    pub(super) fn sum(lines: &[[u8; LINE_LEN]]) -> u64 {
        let mut lanes = _mm256_setzero_si256();
        let (blocks, rest) = lines.as_chunks::<4>();
        for [a, b, c, d] in blocks {
            lanes = add(add(add(add(lanes, a), b), c), d);
        }
        for line in rest {
            lanes = add(lanes, line);
        }
        empty(lanes, lines.len())
    }

    /// Line by line: a loop that copies whole blocks is taken for one copy of all, which is then made first, and each byte read twice.
    #[target_feature(enable = "avx2")]
    #[inline(never)]
    pub(super) fn copy(to: &mut [[u8; LINE_LEN]], from: &[[u8; LINE_LEN]]) -> u64 {
        let mut lanes = _mm256_setzero_si256();
        let ((to_blocks, to_rest), (blocks, rest)) = (to.as_chunks_mut::<4>(), from.as_chunks::<4>());
        for ([to_a, to_b, to_c, to_d], [a, b, c, d]) in to_blocks.iter_mut().zip(blocks) {
            (*to_a, *to_b, *to_c, *to_d) = (*a, *b, *c, *d);
            lanes = add(add(add(add(lanes, a), b), c), d);
        }
        for (to, line) in to_rest.iter_mut().zip(rest) {
            *to = *line;
            lanes = add(lanes, line);
        }
        empty(lanes, from.len())
    }

    /// The lanes with those of a line added.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn add(lanes: __m256i, line: &[u8; LINE_LEN]) -> __m256i {
        let [a, b, c, d]: [i64; 4] = zerocopy::transmute!(*line);
        // One load.
        let words = _mm256_set_epi64x(d, c, b, a);
        let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
        _mm256_add_epi32(lanes, _mm256_madd_epi16(signed, _mm256_set1_epi16(1)))
    }

    /// What the lanes hold of so many lines, and what was taken off each word.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn empty(lanes: __m256i, lines: usize) -> u64 {
        let taken_off = (lines * LINE_LEN / 2) as i64 * 0x8000;
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
