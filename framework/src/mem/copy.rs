//! Copies of frames. Most frames are a few cache lines long: a copy in pieces of constant length is
//! fewer instructions than a call that first dispatches on the length.

use super::mbuf::Mbuf;
use super::pool::CACHE_LINE as LINE;

const QUARTER: usize = LINE / 4;

/// Frames of one to three lines are copied piece by piece: orders with their headers are such.
pub(crate) const SHORT_MAX: usize = 3 * LINE;
pub(crate) const SHORT_MIN: usize = LINE;

/// Copies a frame to a slice of the same length. Panics if the lengths differ.
#[inline(always)]
pub(crate) fn copy_frame(to: &mut [u8], from: &[u8]) {
    let len = from.len();
    if !(SHORT_MIN..=SHORT_MAX).contains(&len) || to.len() != len {
        return copy_other(to, from);
    }
    copy_piece::<LINE>(to.first_chunk_mut(), from.first_chunk());
    if len > 2 * LINE {
        let (Some((_, to)), Some((_, from))) = (to.split_at_mut_checked(LINE), from.split_at_checked(LINE)) else {
            return;
        };
        copy_piece::<LINE>(to.first_chunk_mut(), from.first_chunk());
    }
    // The last piece overlaps the one before.
    match (len - 1) % LINE {
        0..QUARTER => copy_piece::<QUARTER>(to.last_chunk_mut(), from.last_chunk()),
        _ if len > LINE => copy_piece::<LINE>(to.last_chunk_mut(), from.last_chunk()),
        _ => (),
    }
}

/// A shorter or longer frame. Not inlined: around a call the compiler keeps less in registers.
#[inline(never)]
fn copy_other(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

/// One piece, which is present: the caller has checked the length.
#[inline(always)]
fn copy_piece<const LEN: usize>(to: Option<&mut [u8; LEN]>, from: Option<&[u8; LEN]>) {
    if let (Some(to), Some(from)) = (to, from) {
        *to = *from;
    }
}

/// Copies a chain's bytes into one piece: as many whole buffers as fit. An IP payload always fits
/// 64 KiB, because its length has 16 bits.
pub(crate) fn gather<'a>(mbuf: &Mbuf, scratch: &'a mut [u8]) -> &'a mut [u8] {
    let len = copy_segments(mbuf.segments(), scratch);
    &mut scratch[..len]
}

/// Copies segments one after the other, as many whole ones as fit; returns their bytes.
#[inline(always)]
pub(crate) fn copy_segments<'a>(segments: impl Iterator<Item = &'a [u8]>, to: &mut [u8]) -> usize {
    let mut len = 0;
    for segment in segments {
        let Some(room) = to.get_mut(len..len + segment.len()) else { break };
        room.copy_from_slice(segment);
        len += segment.len();
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_any_length_are_copied_whole_and_nothing_beside_them() {
        let from: Vec<u8> = (0..300u32).map(|n| (n * 7 + 1) as u8).collect();
        for len in 0..from.len() {
            let mut to = vec![0; from.len()];
            copy_frame(&mut to[..len], &from[..len]);
            assert_eq!((&to[..len], &to[len..]), (&from[..len], &vec![0; from.len() - len][..]), "{len} bytes");
        }
    }
}
