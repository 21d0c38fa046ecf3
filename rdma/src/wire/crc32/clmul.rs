//! CRC-32 by carry-less multiplication, sixteen bytes a step (Gopal and others, "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009), or twice sixteen
//! where the CPU has it: AMD's multiply 32 bytes in the time of 16.
//!
//! Invariants:
//! 1. [`remainder`] calls code that needs a feature of the CPU only where the CPU has it.
//! 2. A block is sixteen bytes of a slice, and loads of it need no alignment.
//!
//! Safe code cannot load a vector from bytes, nor call what the target's base does not have.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_clmulepi64_si128, _mm_extract_epi32, _mm_loadu_si128, _mm_or_si128,
    _mm_set_epi32, _mm_set_epi64x, _mm_slli_si128, _mm_srli_si128, _mm_xor_si128, _mm256_broadcastsi128_si256,
    _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_set_m128i,
    _mm256_xor_si256,
};
use core::sync::atomic::{AtomicU8, Ordering};

use super::{BLOCK, Block, Head, WORD, Word};

/// The polynomial of Ethernet, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial with its highest term, and the quotient of x⁶⁴ by it, both reflected.
const WITH_TERM: i64 = (POLYNOMIAL as i64) << 1 | 1;
const QUOTIENT: i64 = 0x1_f701_1641;

/// The remainder of xⁿ, reflected, one bit higher: the product of two reflected numbers is one bit
/// too low.
const fn power(n: u32) -> i64 {
    let (mut remainder, mut left) = (1_u32 << 31, n);
    while left > 0 {
        remainder = remainder >> 1 ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
        left -= 1;
    }
    (remainder as i64) << 1
}

/// The remainder of `head` and `rest` in a row, beginning with zero; `None` where the CPU does not
/// multiply without carry, or `rest` has no whole words.
#[inline]
pub(super) fn remainder<const N: usize>(head: impl Fn() -> [Head; N], rest: &[u8]) -> Option<u32> {
    let (blocks, odd) = rest.as_chunks();
    let (words, &[]) = odd.as_chunks::<WORD>() else { return None };
    match width() {
        // SAFETY: invariant 1.
        TWO if blocks.len() >= GROUP => Some(unsafe { folded_wide(head, blocks, words) }),
        // SAFETY: invariant 1.
        ONE | TWO => Some(unsafe { folded(head, blocks, words) }),
        _ => None,
    }
}

/// The CPU multiplies nothing, one block or two at once.
const NONE: u8 = 1;
const ONE: u8 = 2;
const TWO: u8 = 3;

/// What the CPU does, in one load: each question to the standard library takes several.
#[inline]
fn width() -> u8 {
    static WIDTH: AtomicU8 = AtomicU8::new(0);
    match WIDTH.load(Ordering::Relaxed) {
        0 => {
            let has_one = is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1");
            let has_two = is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx2");
            let width = if has_one && has_two {
                TWO
            } else if has_one {
                ONE
            } else {
                NONE
            };
            WIDTH.store(width, Ordering::Relaxed);
            width
        }
        width => width,
    }
}

/// Blocks of a step of four sums of two: fewer are not worth the way there and back.
const GROUP: usize = 8;

#[target_feature(enable = "pclmulqdq,sse4.1")]
fn folded<const N: usize>(head: impl Fn() -> [Head; N], blocks: &[Block], words: &[Word]) -> u32 {
    reduce(fold_words(fold_blocks(fold_head(head), blocks), words))
}

#[target_feature(enable = "pclmulqdq,sse4.1,vpclmulqdq,avx2")]
fn folded_wide<const N: usize>(head: impl Fn() -> [Head; N], blocks: &[Block], words: &[Word]) -> u32 {
    let sum = fold_head(head);
    let (groups, singles) = blocks.as_chunks::<GROUP>();
    let [first, groups @ ..] = groups else { return reduce(fold_words(fold_blocks(sum, singles), words)) };
    let (by_eight, by_two) = (_mm256_broadcastsi128_si256(keys::<1024>()), _mm256_broadcastsi128_si256(keys::<256>()));
    let mut sums = [load_two(first, 0), load_two(first, 1), load_two(first, 2), load_two(first, 3)];
    sums[0] = _mm256_set_m128i(load(&first[1]), fold(sum, load(&first[0]), keys::<128>()));
    for group in groups {
        sums[0] = fold_two(sums[0], load_two(group, 0), by_eight);
        sums[1] = fold_two(sums[1], load_two(group, 1), by_eight);
        sums[2] = fold_two(sums[2], load_two(group, 2), by_eight);
        sums[3] = fold_two(sums[3], load_two(group, 3), by_eight);
    }
    let [a, b, c, d] = sums;
    let both = fold_two(fold_two(fold_two(a, b, by_two), c, by_two), d, by_two);
    let sum = fold(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both), keys::<128>());
    reduce(fold_words(fold_blocks(sum, singles), words))
}

#[target_feature(enable = "pclmulqdq,sse4.1")]
fn fold_head<const N: usize>(head: impl Fn() -> [Head; N]) -> __m128i {
    let vector = |[low, high]: Head| _mm_set_epi64x(high.cast_signed(), low.cast_signed());
    let head = head();
    let Some((first, rest)) = head.split_first() else { return _mm_set_epi64x(0, 0) };
    rest.iter().fold(vector(*first), |sum, block| fold(sum, vector(*block), keys::<128>()))
}

/// Moves a sum over blocks.
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn fold_blocks(mut sum: __m128i, blocks: &[Block]) -> __m128i {
    let by_one = keys::<128>();
    let (groups, singles) = blocks.as_chunks::<4>();
    // Four sums in turn, because a product takes as long as four that overlap.
    if let [first, groups @ ..] = groups {
        let by_four = keys::<512>();
        let [mut b, mut c, mut d] = [load(&first[1]), load(&first[2]), load(&first[3])];
        let mut a = fold(sum, load(&first[0]), by_one);
        for group in groups {
            a = fold(a, load(&group[0]), by_four);
            b = fold(b, load(&group[1]), by_four);
            c = fold(c, load(&group[2]), by_four);
            d = fold(d, load(&group[3]), by_four);
        }
        sum = fold(fold(fold(a, b, by_one), c, by_one), d, by_one);
    }
    for block in singles {
        sum = fold(sum, load(block), by_one);
    }
    sum
}

/// Moves a sum over up to three words: its first bytes onto the rest of it with the words behind.
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn fold_words(sum: __m128i, words: &[Word]) -> __m128i {
    let word = |word: &Word| i64::from(u32::from_le_bytes(*word));
    let by_one = keys::<128>();
    match words {
        [] => sum,
        [a] => {
            let rest = _mm_or_si128(_mm_srli_si128::<4>(sum), _mm_set_epi64x(word(a) << 32, 0));
            fold(_mm_slli_si128::<12>(sum), rest, by_one)
        }
        [a, b] => {
            let rest = _mm_or_si128(_mm_srli_si128::<8>(sum), _mm_set_epi64x(word(b) << 32 | word(a), 0));
            fold(_mm_slli_si128::<8>(sum), rest, by_one)
        }
        [a, b, c, ..] => {
            let behind = _mm_set_epi64x(word(c) << 32 | word(b), word(a) << 32);
            let rest = _mm_or_si128(_mm_srli_si128::<12>(sum), behind);
            fold(_mm_slli_si128::<4>(sum), rest, by_one)
        }
    }
}

/// What a sum is multiplied by that moves by so many bits.
#[target_feature(enable = "sse4.1")]
fn keys<const BITS: u32>() -> __m128i {
    _mm_set_epi64x(const { power(BITS - 32) }, const { power(BITS + 32) })
}

/// Moves a sum onto the block behind it.
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn fold(sum: __m128i, block: __m128i, keys: __m128i) -> __m128i {
    let (low, high) = (_mm_clmulepi64_si128::<0x00>(sum, keys), _mm_clmulepi64_si128::<0x11>(sum, keys));
    _mm_xor_si128(_mm_xor_si128(low, high), block)
}

/// Moves two sums onto the two blocks behind them.
#[target_feature(enable = "vpclmulqdq,avx2")]
fn fold_two(sums: __m256i, blocks: __m256i, keys: __m256i) -> __m256i {
    let (low, high) = (_mm256_clmulepi64_epi128::<0x00>(sums, keys), _mm256_clmulepi64_epi128::<0x11>(sums, keys));
    _mm256_xor_si256(_mm256_xor_si256(low, high), blocks)
}

/// The remainder of the last sum, with 32 zero bits behind it: 128 bits to 96, to 64, to 32 by
/// Barrett's method.
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn reduce(sum: __m128i) -> u32 {
    let low_half = _mm_set_epi32(0, 0, 0, -1);
    let sum = _mm_xor_si128(_mm_clmulepi64_si128::<0x10>(sum, keys::<128>()), _mm_srli_si128::<8>(sum));
    let key = _mm_set_epi64x(0, const { power(64) });
    let sum = _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(_mm_and_si128(sum, low_half), key), _mm_srli_si128::<4>(sum));
    let barrett = _mm_set_epi64x(QUOTIENT, WITH_TERM);
    let quotient = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(sum, low_half), barrett);
    let product = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(quotient, low_half), barrett);
    _mm_extract_epi32::<1>(_mm_xor_si128(sum, product)).cast_unsigned()
}

#[target_feature(enable = "sse4.1")]
fn load(block: &Block) -> __m128i {
    const { assert!(BLOCK == size_of::<__m128i>()) };
    // SAFETY: invariant 2.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

/// The pair of blocks `idx` of a group.
#[target_feature(enable = "avx2")]
fn load_two(group: &[Block; GROUP], idx: usize) -> __m256i {
    let pair: &[Block; 2] = &group.as_chunks().0[idx];
    // SAFETY: invariant 2.
    unsafe { _mm256_loadu_si256(pair.as_ptr().cast()) }
}
