//! Eight ASCII digits at once, both ways, as arithmetic on a 64-bit word.

/// `0` in each byte.
pub(super) const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The number in the first `len` bytes of `word` (little endian, so byte 0 is the first digit);
/// `None` where one of them is no digit. `len` is 1 to 8.
#[inline(always)]
pub(super) fn parse8(word: u64, len: usize) -> Option<u64> {
    debug_assert!((1..=8).contains(&len));
    let unused = 64 - 8 * (len as u32);
    // The digits move to the end, and the bytes before them become leading zeros.
    let digits = (word ^ ZEROS) << unused;
    // A byte above 9 sets its high bit in one of the two.
    if (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    Some(join(digits))
}

/// Eight digit values become one number: pairs, then fours, then all.
#[inline(always)]
pub(super) fn join(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let mask = 0x0000_00ff_0000_00ff;
    let high = (pairs & mask).wrapping_mul(100 + (1_000_000 << 32));
    let low = ((pairs >> 16) & mask).wrapping_mul(1 + (10_000 << 32));
    high.wrapping_add(low) >> 32
}

/// An unsigned number of 1 to 18 digits; leading zeros are allowed.
#[inline]
pub(super) fn parse(bytes: &[u8]) -> Option<u64> {
    let len = bytes.len();
    if len == 0 || len > 18 {
        return None;
    }
    if len <= 8 {
        return parse8(load(bytes), len);
    }
    let mut value = 0_u64;
    for byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// Up to eight bytes as a little-endian word, without a copy of unknown length: two loads that may
/// overlap.
#[inline(always)]
pub(super) fn load(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk() {
        return u64::from_le_bytes(*eight);
    }
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (len - 4));
    }
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        _ => 0,
    }
}

/// The eight digits of `value`, which is below 100,000,000, with leading zeros. Some 15
/// instructions, no division by an instruction.
#[inline(always)]
pub(super) fn eight(value: u32) -> [u8; 8] {
    debug_assert!(value < 100_000_000);
    let (high, low) = (u64::from(value / 10_000), u64::from(value % 10_000));
    let fours = high | low << 32;
    // Division by 100 of two numbers below 10,000: 10,486 / 2^20 is exact up to 43,698.
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | (fours - 100 * hundreds) << 16;
    // Division by 10 of four numbers below 100: 103 / 2^10 is exact up to 178.
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (pairs - 10 * tens) << 8;
    (digits + ZEROS).to_le_bytes()
}

/// The sum of the eight bytes of a word.
#[inline(always)]
pub(super) fn sum8(word: u64) -> u8 {
    let mask = 0x00ff_00ff_00ff_00ff;
    let pairs = (word & mask) + ((word >> 8) & mask);
    (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn signs_spaces_and_nothing_are_no_number() {
        for bytes in [&b""[..], b"-1", b"+1", b" 1", b"1 ", b"1a", b"0123456789012345678"] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn number_survives_both_ways(value in 0_u32..100_000_000) {
            prop_assert_eq!(eight(value).to_vec(), format!("{value:08}").into_bytes());
            prop_assert_eq!(parse(value.to_string().as_bytes()), Some(u64::from(value)));
        }

        #[test]
        fn text_parses_as_the_standard_library_does(text in "[0-9:/ ]{1,20}") {
            let expected = text.parse().ok().filter(|_| text.len() <= 18);
            prop_assert_eq!(parse(text.as_bytes()), expected);
        }

        #[test]
        fn sum_of_a_word_is_that_of_its_bytes(word in any::<u64>()) {
            prop_assert_eq!(sum8(word), super::super::checksum(&word.to_le_bytes()));
        }
    }
}
