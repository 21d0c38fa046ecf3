//! The Internet checksum (RFC 1071): sums over bytes, checks, and updates after a patch.
//!
//! A [`Sum`] is a partial sum that records whether it covers an odd number of bytes, so a packet in
//! several pieces is summed piece by piece. Sums are kept in machine byte order: the one's
//! complement sum is independent of it (RFC 1071 2(B)), and numbers at the interface are in host
//! order.
//!
//! Measured on an EPYC without target flags: a 20-byte header is verified in 1 ns, 64 bytes are
//! summed in 3 ns, 1460 in 27 ns by words of 64 bits, in a third of that if the CPU has wider
//! registers.

#[allow(unsafe_code)]
mod lanes;

use core::net::Ipv4Addr;

use super::field::Protocol;

/// The one's complement sum of some bytes, not yet complemented.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Congruent modulo 0xffff to the sum of the 16-bit words in machine order; zero only if all
    /// bytes were zero. As 2^64 - 1 is a multiple of 0xffff, it is folded once, at the end.
    words: u64,
    /// True after an odd number of bytes: the next byte is the second half of a word.
    odd: bool,
}

impl Sum {
    /// The sum of no bytes.
    pub const EMPTY: Self = Self { words: 0, odd: false };

    /// The sum of `bytes`, of any length and alignment.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self { words: sum_bytes(bytes, 0), odd: bytes.len() & 1 != 0 }
    }

    /// Copies `from` into `to` and sums it: the bytes are read once. Panics if the lengths differ.
    #[inline]
    pub fn of_copy(to: &mut [u8], from: &[u8]) -> Self {
        Self { words: copy_bytes(to, from), odd: from.len() & 1 != 0 }
    }

    /// The sum of the bytes so far followed by `bytes`.
    #[inline(always)]
    pub fn append(self, bytes: &[u8]) -> Self {
        if self.odd {
            return self.combine(Self::of(bytes));
        }
        Self { words: sum_bytes(bytes, self.words), odd: bytes.len() & 1 != 0 }
    }

    /// The sum of the bytes so far followed by a piece that was summed separately.
    #[inline]
    pub fn combine(self, next: Self) -> Self {
        // A piece at an odd offset has its bytes in the other half of each word: rotate by one byte
        // (RFC 1071 2(B)).
        let words = if self.odd { next.words.rotate_left(8) } else { next.words };
        Self { words: add_u64(self.words, words), odd: self.odd ^ next.odd }
    }

    /// The sum after a range of the bytes was overwritten, at a cost that depends only on the
    /// range.
    ///
    /// # Panics
    /// If the patch changes the number of bytes.
    #[inline]
    pub fn patched(self, patch: Patch<'_>) -> Self {
        assert!(patch.old.len() == patch.new.len(), "a patch must keep the length");
        let turn = if patch.offset & 1 != 0 { 8 } else { 0 };
        let (old, new) = (sum_bytes(patch.old, 0).rotate_left(turn), sum_bytes(patch.new, 0).rotate_left(turn));
        // Adding the complement subtracts, modulo 0xffff.
        Self { words: add_u64(add_u64(self.words, !old), new), odd: self.odd }
    }

    /// Adds one field in host order. It counts as an even number of bytes, so it may be added at
    /// any time.
    #[inline]
    pub fn add_u16(self, value: u16) -> Self {
        Self { words: add_u64(self.words, value.to_be().into()), odd: self.odd }
    }

    /// Adds one field of 32 bits in host order, as [`add_u16`](Self::add_u16) does.
    #[inline]
    pub fn add_u32(self, value: u32) -> Self {
        self.add_words([value])
    }

    /// Adds fields of 32 bits in host order, as [`add_u16`](Self::add_u16) does. Two instructions
    /// each: a header that was just written field by field is slow to read back as words, so its
    /// sum is computed from the numbers.
    #[inline(always)]
    pub fn add_words<const N: usize>(self, words: [u32; N]) -> Self {
        const { assert!(N < 1 << 31, "the sum of all words fits 64 bits") };
        let mut sum = 0;
        for word in words {
            sum += u64::from(word.to_be());
        }
        Self { words: add_u64(self.words, sum), odd: self.odd }
    }

    /// The sum of fields of 32 bits in host order.
    #[inline(always)]
    pub fn of_words<const N: usize>(words: [u32; N]) -> Self {
        Self::EMPTY.add_words(words)
    }

    /// The checksum for the header field, in host order: the complement of the sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// The sum folded to 16 bits in host order, not complemented: the value that a NIC with
    /// checksum offload expects in the field.
    #[inline]
    pub fn fold(self) -> u16 {
        u16::from_be(fold_u32(fold_u64(self.words)))
    }

    /// True if the sum covers a correct checksum field: all ones (RFC 1071 1).
    #[inline]
    pub fn is_valid(self) -> bool {
        fold_u32(fold_u64(self.words)) == 0xffff
    }
}

/// The checksum of `bytes` in host order.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::of(bytes).finish()
}

/// True if a 20-byte IPv4 header sums to all ones. 13 instructions, no branch.
///
/// 2^16 is 1 modulo 65,535, so the sum of the 32-bit words is congruent to the folded sum of the
/// 16-bit ones, and that is all ones if the sum is congruent to 0 without being 0. One
/// multiplication tests for a positive multiple of 65,535: 0x1_0001_0001_0001 is minus the inverse
/// of 65,535 modulo 2^64. So it maps a multiple to minus its small quotient, and every other number
/// far away from these (Hacker's Delight 10-17).
#[inline]
pub fn verify_ipv4_header(header: &[u8; 20]) -> bool {
    const MINUS_INVERSE: u64 = 0x0001_0001_0001_0001;
    // Five words of 32 bits, divided by 65,535.
    const QUOTIENT_MAX: u64 = 5 * (u32::MAX as u64) / 0xffff;
    word_sum_ipv4_header(header).wrapping_mul(MINUS_INVERSE) >= QUOTIENT_MAX.wrapping_neg()
}

/// The checksum of a 20-byte IPv4 header, whose checksum field must be zero, in host order.
#[inline]
pub fn ipv4_header(header: &[u8; 20]) -> u16 {
    !u16::from_be(fold_u32(sum_ipv4_header(header)))
}

#[inline]
fn sum_ipv4_header(header: &[u8; 20]) -> u32 {
    fold_u64(word_sum_ipv4_header(header))
}

/// The sum of the header's 32-bit words.
#[inline]
fn word_sum_ipv4_header(header: &[u8; 20]) -> u64 {
    let (words, _) = header.as_chunks::<4>();
    let mut sum = 0;
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    sum
}

/// The pseudo-header that UDP and TCP include in the checksum (RFC 768, RFC 9293 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoHeader {
    /// Source address of the IPv4 header.
    pub source: Ipv4Addr,
    /// Destination address of the IPv4 header.
    pub destination: Ipv4Addr,
    /// UDP or TCP.
    pub protocol: Protocol,
    /// Bytes of the transport header and its payload.
    pub len: u16,
}

impl PseudoHeader {
    /// Its sum: start here, then append header and payload.
    #[inline]
    pub fn sum(self) -> Sum {
        let addresses = u64::from(u32::from_ne_bytes(self.source.octets()))
            + u64::from(u32::from_ne_bytes(self.destination.octets()));
        let rest = u64::from(u16::from(self.protocol.0).to_be()) + u64::from(self.len.to_be());
        Sum { words: addresses + rest, odd: false }
    }
}

/// The checksum after a 16-bit field changed from `old` to `new` (RFC 1624 equation 3).
///
/// Equal to a full computation, except that bytes that become all zero give 0x0000 instead of
/// 0xffff, the other zero of one's complement; both verify.
#[inline]
pub fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    // ~HC + ~m + m': three 16-bit numbers, so two folds leave no carry.
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// The checksum after an aligned 32-bit field, such as an address, changed from `old` to `new`.
#[inline]
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let sum = u64::from(!checksum) + u64::from(!old) + u64::from(new);
    let sum = fold_u64(sum);
    !fold_u32(sum)
}

/// A range of overwritten bytes, with the old and new content.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'a> {
    /// Offset of the first byte in the checksummed area; only whether it is odd matters.
    pub offset: usize,
    /// The old bytes.
    pub old: &'a [u8],
    /// The new bytes; as many as before.
    pub new: &'a [u8],
}

/// The checksum after a range of bytes was overwritten, at a cost that depends only on the range.
///
/// # Panics
/// If the patch changes the number of bytes.
#[inline]
pub fn update_bytes(checksum: u16, patch: Patch<'_>) -> u16 {
    Sum { words: (!checksum).to_be().into(), odd: false }.patched(patch).finish()
}

/// The sum of `before` and of all 16-bit words in machine order, modulo 0xffff; a last single byte
/// counts as the first of its word.
#[inline]
fn sum_bytes(bytes: &[u8], before: u64) -> u64 {
    if bytes.len() < lanes::LEN_MIN { sum_words(bytes, before) } else { sum_long(bytes, before) }
}

fn sum_long(bytes: &[u8], before: u64) -> u64 {
    let (lines, rest) = bytes.as_chunks();
    match lanes::sum(lines) {
        Some(sum) => sum_last(rest.as_chunks().0, bytes, add_u64(sum, before)),
        None => sum_words(bytes, before),
    }
}

/// Copies `from` into `to`, and returns its sum. Long messages have a function of their own, so
/// that short ones do not save its registers.
#[inline(always)]
fn copy_bytes(to: &mut [u8], from: &[u8]) -> u64 {
    assert!(to.len() == from.len(), "a copy is as long as what is copied");
    if from.len() >= lanes::LEN_MIN {
        return copy_long(to, from);
    }
    to.copy_from_slice(from);
    sum_words(from, 0)
}

#[inline(never)]
fn copy_long(to: &mut [u8], from: &[u8]) -> u64 {
    let ((to_lines, _), (lines, rest)) = (to.as_chunks_mut(), from.as_chunks());
    let Some(sum) = lanes::copy(to_lines, lines) else {
        to.copy_from_slice(from);
        return sum_words(from, 0);
    };
    let (to_last, last) = (to.last_chunk_mut::<{ lanes::LINE_LEN }>(), from.last_chunk());
    if let (Some(to_last), Some(last)) = (to_last, last) {
        // It overlaps the preceding line.
        *to_last = *last;
    }
    sum_last(rest.as_chunks().0, from, sum)
}

/// The same word by word, for bytes that follow an existing sum.
///
/// Each addition of a block takes the carry of the previous addition, and the last one adds its
/// carry to a count: eight instructions for 32 bytes, including the loop. Two independent sums
/// would take twelve instructions, and would be faster only for lengths at which wide registers are
/// used anyway.
#[inline]
fn sum_words(bytes: &[u8], before: u64) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let (blocks, words) = words.as_chunks::<4>();
    let (mut sum, mut carries) = (before, 0);
    for block in blocks {
        let mut carry = false;
        for word in block {
            (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
        }
        carries += u64::from(carry);
    }
    // Then nothing is behind the blocks, as with messages of 64 bytes and usual headers.
    if bytes.len().is_multiple_of(32) {
        return add_u64(sum, carries);
    }
    add_u64(sum_last(words, bytes, sum), carries)
}

/// The sum of `before` and of the last bytes: at most three words that fill no block or line, and
/// the bytes after them.
#[inline]
fn sum_last(words: &[[u8; 8]], bytes: &[u8], before: u64) -> u64 {
    let (mut sum, mut carries) = (before, 0);
    // The limit is explicit, or the compiler would emit a loop for more.
    for word in words.iter().take(3) {
        let carry;
        (sum, carry) = sum.overflowing_add(u64::from_ne_bytes(*word));
        carries += u64::from(carry);
    }
    add_u64(add_u64(sum, last_word(bytes)), carries)
}

/// The bytes after the last whole word, as a word padded with zeros.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let len = bytes.len() % 8;
    if len == 0 {
        return 0;
    }
    match bytes.last_chunk() {
        // The word that ends with the bytes: the earlier bytes in it are shifted out.
        Some(word) => (u64::from_le_bytes(*word) >> (64 - 8 * len)).to_le(),
        None => sum_tail(bytes),
    }
}

/// The sum of fewer than eight bytes.
#[inline]
fn sum_tail(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum = words.first().map_or(0, |word| u64::from(u32::from_ne_bytes(*word)));
    let (words, rest) = rest.as_chunks::<2>();
    sum += words.first().map_or(0, |word| u64::from(u16::from_ne_bytes(*word)));
    sum + rest.first().map_or(0, |&byte| u64::from(u16::from_ne_bytes([byte, 0])))
}

/// Adds with end-around carry.
#[inline]
fn add_u64(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

/// Adds both halves with end-around carry, in the upper half of one addition.
#[inline]
fn fold_u64(sum: u64) -> u32 {
    (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32
}

/// The same for fewer bits.
#[inline]
fn fold_u32(sum: u32) -> u16 {
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 word by word: the reference for everything here.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&byte| u32::from(byte));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).fold(), 0xddf2);
        assert_eq!(checksum(&bytes), 0x220d);
    }

    #[test]
    fn example_of_rfc_1624() {
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn sum_of_all_ones_does_not_overflow() {
        let bytes = [0xff; 9000];
        assert_eq!(checksum(&bytes), 0);
        assert!(Sum::of(&bytes).is_valid());
        assert!(!Sum::of(&[0; 9000]).is_valid());
    }

    #[test]
    fn every_length_and_alignment_equals_the_reference() {
        let bytes: Vec<u8> = (0..700u32).map(|n| (n.wrapping_mul(2654435761) >> 13) as u8).collect();
        for start in 0..8 {
            for end in (start..200).chain(240..bytes.len()) {
                assert_eq!(checksum(&bytes[start..end]), reference(&bytes[start..end]), "{start}..{end}");
            }
        }
    }

    #[test]
    fn longest_runs_of_extreme_words_fit_the_lanes() {
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            for lines in [lanes::LINES_MAX, lanes::LINES_MAX + 1] {
                let bytes = vec![byte; lines * lanes::LINE_LEN + 27];
                assert_eq!(checksum(&bytes), reference(&bytes), "{byte:#x}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "as long as")]
    fn copy_into_fewer_bytes_panics() {
        Sum::of_copy(&mut [0; 300], &[0; 400]);
    }

    /// The checksum of a pseudo-header in its wire form, as drawn in RFC 9293 3.1.
    fn pseudo_reference(pseudo: PseudoHeader) -> u16 {
        let [high, low] = pseudo.len.to_be_bytes();
        let tail = [0, pseudo.protocol.0, high, low];
        reference(&[&pseudo.source.octets()[..], &pseudo.destination.octets(), &tail].concat())
    }

    proptest! {
        #[test]
        fn any_bytes_equal_the_reference(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(checksum(&bytes), reference(&bytes));
            prop_assert_eq!(sum_words(&bytes, 0) % 0xffff, sum_bytes(&bytes, 0) % 0xffff, "both ways of summing");
            let mut copy = vec![0; bytes.len()];
            prop_assert_eq!(Sum::of_copy(&mut copy, &bytes).finish(), reference(&bytes));
            prop_assert_eq!(copy, bytes);
        }

        #[test]
        fn pieces_sum_like_the_whole(bytes: Vec<u8>, cuts: [prop::sample::Index; 2], field: u16) {
            let mut cuts = cuts.map(|cut| cut.index(bytes.len() + 1));
            cuts.sort_unstable();
            let [first, second] = cuts;
            let (a, b, c) = (&bytes[..first], &bytes[first..second], &bytes[second..]);
            let appended = Sum::of(a).append(b).append(c);
            prop_assert_eq!(appended.finish(), reference(&bytes));
            let combined = Sum::of(a).combine(Sum::of(b).combine(Sum::of(c)));
            prop_assert_eq!(combined.finish(), reference(&bytes));
            let with_field = [&field.to_be_bytes()[..], &bytes].concat();
            prop_assert_eq!(appended.add_u16(field).finish(), reference(&with_field));
            let wide = u32::from(field).wrapping_mul(0x0001_0f03);
            let with_field = [&wide.to_be_bytes()[..], &bytes].concat();
            prop_assert_eq!(appended.add_u32(wide).finish(), reference(&with_field));
            let words = [wide, u32::from(field), !wide];
            prop_assert_eq!(Sum::of_words(words).finish(), reference(words.map(u32::to_be_bytes).as_flattened()));
        }

        #[test]
        fn pseudo_header_sums_like_its_bytes(source: u32, destination: u32, protocol: u8, len: u16) {
            let (source, destination) = (source.into(), destination.into());
            let pseudo = PseudoHeader { source, destination, protocol: Protocol(protocol), len };
            prop_assert_eq!(pseudo.sum().finish(), pseudo_reference(pseudo));
        }

        #[test]
        fn header_verdict_equals_the_reference(mut header: [u8; 20], fix: bool) {
            if fix {
                header[10..12].fill(0);
                let checksum = ipv4_header(&header);
                prop_assert_eq!(checksum, reference(&header));
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            prop_assert_eq!(verify_ipv4_header(&header), reference(&header) == 0);
            prop_assert!(!fix || verify_ipv4_header(&header));
        }

        #[test]
        fn patched_bytes_update_to_the_full_checksum(
            bytes in prop::collection::vec(any::<u8>(), 8..100),
            new: [u8; 8],
            start: prop::sample::Index,
            len in 0usize..=8,
        ) {
            let offset = start.index(bytes.len() - 7);
            let mut after = bytes.clone();
            after[offset..offset + len].copy_from_slice(&new[..len]);
            // All zeros have two checksums; no header is all zeros.
            prop_assume!(bytes.iter().any(|&byte| byte != 0) && after.iter().any(|&byte| byte != 0));
            let (old, new) = (&bytes[offset..offset + len], &new[..len]);
            let updated = update_bytes(checksum(&bytes), Patch { offset, old, new });
            prop_assert_eq!(updated, checksum(&after));
            if let (Ok(old), Ok(new), 0) = (old.try_into(), new.try_into(), offset % 2) {
                let (old, new) = (u32::from_be_bytes(old), u32::from_be_bytes(new));
                prop_assert_eq!(update_u32(checksum(&bytes), old, new), updated);
            }
            if let (Ok(old), Ok(new), 0) = (old.try_into(), new.try_into(), offset % 2) {
                let (old, new) = (u16::from_be_bytes(old), u16::from_be_bytes(new));
                prop_assert_eq!(update_u16(checksum(&bytes), old, new), updated);
            }
        }
    }
}
