//! Sums of many bytes in registers of 256 bits, where the CPU has them: a third of the
//! instructions, and of the time, that 64-bit words take. Which it is, is asked of what the
//! standard library remembers of the CPU: a load and a test a call.
//!
//! ```text
//!   16 words of a line, as signed numbers: each less 0x8000 ─▶ products with one, pairs added ─▶ 8 lanes of 32 bits
//! ```
//! There is an instruction that adds neighboring words into 32 bits, and it takes them as signed.
//! So the words are moved down by half of their range, which turning the highest bit does, and what
//! was taken off each is given back to the sum of all.
//!
//! Invariants:
//! 1. A function that is compiled for AVX2 is called only where the CPU was found to have it.
//! 2. A line has as many bytes as a register, and may begin anywhere.

/// Bytes of a line: a register.
pub(super) const LINE_LEN: usize = 32;

/// Fewer bytes are summed sooner without a call.
pub(super) const LEN_MIN: usize = 256;

/// So many lines at most, half a mebibyte: each adds at most 2 times 2^15 to a lane, either way.
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) const LINES_MAX: usize = 1 << 14;

/// The sum of the 16-bit words of all lines, in machine order; `None` where the CPU has no wide
/// registers, or there are too many lines.
#[inline]
pub(super) fn sum(lines: &[[u8; LINE_LEN]]) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && lines.len() <= LINES_MAX {
        // SAFETY: the CPU has it (1). Safe code cannot call what is compiled for another CPU than
        // the rest.
        return Some(unsafe { avx2::sum(lines) });
    }
    let _ = lines;
    None
}

/// Copies all lines, and says their sum. `None`, and nothing is copied, as above. Panics where `to`
/// is not as long as `from`.
#[inline]
pub(super) fn copy(to: &mut [[u8; LINE_LEN]], from: &[[u8; LINE_LEN]]) -> Option<u64> {
    assert!(to.len() == from.len(), "a copy is as long as what is copied");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && from.len() <= LINES_MAX {
        // SAFETY: the CPU has it (1). Safe code cannot call what is compiled for another CPU than
        // the rest.
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

    /// Each byte is read once: a block is in registers when it is written, and summed from there.
    /// Told line by line, the compiler makes a copy of it and reads it again, which takes a fifth
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
        // Three at most, which a loop would make a call of.
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

    /// Two sums side by side, as an addition waits for the one before it.
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

    /// The words of a line, each moved down, in pairs.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn pairs(words: __m256i) -> __m256i {
        let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
        _mm256_madd_epi16(signed, _mm256_set1_epi16(1))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(line: &[u8; LINE_LEN]) -> __m256i {
        // SAFETY: a line is as long as a register (2). Safe code loads numbers, and of these the
        // compiler makes a second load where they are added.
        unsafe { _mm256_loadu_si256(line.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn store(line: &mut [u8; LINE_LEN], words: __m256i) {
        // SAFETY: a line is as long as a register (2). There is no safe way from a register to
        // bytes.
        unsafe { _mm256_storeu_si256(line.as_mut_ptr().cast(), words) }
    }

    /// What the lanes hold of so many lines, and what was taken off each word.
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
