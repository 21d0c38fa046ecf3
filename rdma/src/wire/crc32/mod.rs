//! CRC-32 of Ethernet over headers and what is behind them.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod clmul;

use crc32fast::Hasher;

/// Bytes that are multiplied at once.
const BLOCK: usize = 16;
/// Bytes by which the length of a packet is counted.
const WORD: usize = 4;

/// Bytes as they are sent.
type Block = [u8; BLOCK];
type Word = [u8; WORD];
/// A block of headers in two halves, the first byte of each the lowest.
pub(super) type Head = [u64; 2];

/// The CRC-32 of `head` and `rest` in a row: their remainder, inverted at the end, but not at the
/// start. Zeros in front change nothing, so `head` begins with as many as fill a block.
///
/// By carry-less multiplication where the CPU has it and `rest` has whole words, else as
/// `crc32fast` does: by tables, or by the instructions of Arm.
#[inline]
pub(super) fn crc32<const N: usize>(head: impl Fn() -> [Head; N], rest: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(remainder) = clmul::remainder(&head, rest) {
        return !remainder;
    }
    portable(&head(), rest)
}

fn portable(head: &[Head], rest: &[u8]) -> u32 {
    // A hasher inverts at the start too: one that is given all ones there begins with zero.
    let mut hasher = Hasher::new_with_initial(!0);
    head.as_flattened().iter().for_each(|half| hasher.update(&half.to_le_bytes()));
    hasher.update(rest);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same_sum_of_any_length() {
        let bytes: Vec<u8> = (0..700_u32).map(|at| (at * 101 + at / 256 * 37 + 7) as u8).collect();
        let head = [[0x0011_2233_4455_6677, 0x0123_4567_89ab_cdef], [0x8899_aabb_ccdd_eeff, 0xfedc_ba98_7654_3210]];
        for len in 0..bytes.len() {
            let rest = &bytes[..len];
            assert_eq!(crc32(|| head, rest), portable(&head, rest), "{len} bytes behind a head");
            assert_eq!(crc32(|| [], rest), portable(&[], rest), "{len} bytes");
        }
    }

    #[test]
    fn check_value_of_the_catalog_is_that_of_nine_digits() {
        // All ones at the start are the first four bytes inverted.
        let mut block = [0; BLOCK];
        block[BLOCK - 9..].copy_from_slice(b"123456789");
        block[BLOCK - 9..][..4].iter_mut().for_each(|byte| *byte = !*byte);
        let head = [[0, 8].map(|at| u64::from_le_bytes(*block[at..].first_chunk().unwrap()))];
        assert_eq!(crc32(|| head, &[]), 0xcbf4_3926);
        assert_eq!(portable(&head, &[]), 0xcbf4_3926);
    }
}
