//! Sums of many bytes in 256-bit registers, if the CPU has AVX2: a third of the instructions, and
//! of the time, that 64-bit words take. The standard library caches the CPU's features: the check
//! is a load and a test per call.
//!
//! ```text
//!   16 words of a line, as signed numbers: each less 0x8000 ─▶ products with one, pairs added ─▶ 8 lanes of 32 bits
//! ```
//! One instruction adds neighboring 16-bit words into 32 bits, but treats the words as signed. So
//! we subtract half of their range from the words, by flipping the highest bit, and add it back to
//! the total at the end.
//!
//! Invariants:
//! 1. A function that is compiled for AVX2 is called only if the CPU has it.
//! 2. A line has as many bytes as a register, and may have any alignment.

/// Bytes of a line, the size of a register.
pub(super) const LINE_LEN: usize = 32;

/// For fewer bytes the word sum is faster, because it needs no call.
pub(super) const LEN_MIN: usize = 256;

/// Maximum number of lines, half a mebibyte: each adds at most 2 times 2^15 to a lane, in either
/// direction.
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) const LINES_MAX: usize = 1 << 14;

/// The sum of the 16-bit words of all lines, in machine order; `None` if the CPU lacks AVX2, or
/// there are too many lines.
#[inline]
pub(super) fn sum(lines: &[[u8; LINE_LEN]]) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && lines.len() <= LINES_MAX {
        // SAFETY: the CPU has AVX2 (1). Safe code cannot call a function that is compiled for
        // another CPU.
        return Some(unsafe { avx2::sum(lines) });
    }
    let _ = lines;
    None
}

/// Copies all lines, and returns their sum. `None`, without a copy, as for `sum`. Panics if the
/// lengths of `to` and `from` differ.
#[inline]
pub(super) fn copy(to: &mut [[u8; LINE_LEN]], from: &[[u8; LINE_LEN]]) -> Option<u64> {
    assert!(to.len() == from.len(), "a copy is as long as what is copied");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && from.len() <= LINES_MAX {
        // SAFETY: the CPU has AVX2 (1). Safe code cannot call a function that is compiled for
        // another CPU.
        return Some(unsafe { avx2::copy(to, from) });
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_extract_epi64, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi16,
        _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
    };

    use super::LINE_LEN;

    #[target_feature(enable = "avx2")]
    #[inline(never)]
    pub(super) fn sum(lines: &[[u8; LINE_LEN]]) -> u64 {
        let mut lanes = Lanes::zero();
        let (blocks, rest) = lines.as_chunks::<4>();
        for [a, b, c, d] in blocks {
            lanes.add([load(a), load(b), load(c), load(d)]);
        }
        for line in rest {
            lanes.add_one(load(line));
        }
        empty(lanes, lines.len())
    }

    /// Reads each byte once: a block is in registers when it is written, and is summed from there.
    /// Written line by line, the compiler would emit a copy and read it again, which takes a fifth
    /// longer.
    #[target_feature(enable = "avx2")]
    #[inline(never)]
    pub(super) fn copy(to: &mut [[u8; LINE_LEN]], from: &[[u8; LINE_LEN]]) -> u64 {
        let mut lanes = Lanes::zero();
        let ((to_blocks, to_rest), (blocks, rest)) = (to.as_chunks_mut::<4>(), from.as_chunks::<4>());
        for ([to_a, to_b, to_c, to_d], [a, b, c, d]) in to_blocks.iter_mut().zip(blocks) {
            let block @ [a, b, c, d] = [load(a), load(b), load(c), load(d)];
            store(to_a, a);
            store(to_b, b);
            store(to_c, c);
            store(to_d, d);
            lanes.add(block);
        }
        // At most three lines: for a loop the compiler would emit a call.
        let ((to_pair, to_last), (pair, last)) = (to_rest.as_chunks_mut::<2>(), rest.as_chunks::<2>());
        if let ([to_a, to_b], [[a, b]]) = (to_pair.as_flattened_mut(), pair) {
            let (a, b) = (load(a), load(b));
            store(to_a, a);
            store(to_b, b);
            lanes.add_one(a);
            lanes.add_one(b);
        }
        if let ([to], [line]) = (to_last, last) {
            let words = load(line);
            store(to, words);
            lanes.add_one(words);
        }
        empty(lanes, from.len())
    }

    /// Two independent sums, because each addition has to wait for the previous one of the same
    /// sum.
    struct Lanes(__m256i, __m256i);

    impl Lanes {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn zero() -> Self {
            Self(_mm256_setzero_si256(), _mm256_setzero_si256())
        }

        #[target_feature(enable = "avx2")]
        #[inline]
        fn add(&mut self, [a, b, c, d]: [__m256i; 4]) {
            self.0 = _mm256_add_epi32(self.0, _mm256_add_epi32(pairs(a), pairs(b)));
            self.1 = _mm256_add_epi32(self.1, _mm256_add_epi32(pairs(c), pairs(d)));
        }

        #[target_feature(enable = "avx2")]
        #[inline]
        fn add_one(&mut self, words: __m256i) {
            self.0 = _mm256_add_epi32(self.0, pairs(words));
        }
    }

    /// The words of a line with the offset subtracted, added in pairs.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn pairs(words: __m256i) -> __m256i {
        let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
        _mm256_madd_epi16(signed, _mm256_set1_epi16(1))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(line: &[u8; LINE_LEN]) -> __m256i {
        // SAFETY: a line is as long as a register (2). In safe code, which loads integers, the
        // compiler emits a second load for the addition.
        unsafe { _mm256_loadu_si256(line.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn store(line: &mut [u8; LINE_LEN], words: __m256i) {
        // SAFETY: a line is as long as a register (2). There is no safe conversion from a register
        // to bytes.
        unsafe { _mm256_storeu_si256(line.as_mut_ptr().cast(), words) }
    }

    /// The total of the lanes after `lines` lines, with the subtracted offsets added back.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn empty(lanes: Lanes, lines: usize) -> u64 {
        let lanes = _mm256_add_epi32(lanes.0, lanes.1);
        let taken_off = (lines * LINE_LEN / 2) as i64 * 0x8000;
        let pairs = [
            _mm256_extract_epi64::<0>(lanes),
            _mm256_extract_epi64::<1>(lanes),
            _mm256_extract_epi64::<2>(lanes),
            _mm256_extract_epi64::<3>(lanes),
        ];
        let mut sum = 0;
        for pair in pairs {
            sum += i64::from(pair as i32) + (pair >> 32);
        }
        (sum + taken_off) as u64
    }
}
