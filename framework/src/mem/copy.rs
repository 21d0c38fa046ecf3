//! Copies of frames. Most are a few cache lines long: they are copied in pieces of known length, which is fewer instructions than a call
//! that first finds out how long they are.

use super::pool::CACHE_LINE as LINE;

/// Frames of one to three lines go piece by piece: orders with their headers are such.
pub(crate) const SHORT_MAX: usize = 3 * LINE;

/// Copies a frame to where there is just as much room. Panics where there is not.
#[inline(always)]
pub(crate) fn copy_frame(to: &mut [u8], from: &[u8]) {
    assert!(to.len() == from.len(), "a copy is as long as what it is of");
    match (to.split_first_chunk_mut::<LINE>(), from.split_first_chunk::<LINE>()) {
        (Some((to, to_rest)), Some((line, rest))) if from.len() <= SHORT_MAX => {
            *to = *line;
            copy_rest(to_rest, rest);
        }
        _ => to.copy_from_slice(from),
    }
}

/// What is behind the first line, two at most. The last piece overlaps the one before.
#[inline(always)]
fn copy_rest(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<LINE>(), from.first_chunk::<LINE>()) {
        *to = *from;
    } else if !from.is_empty() {
        return to.copy_from_slice(from);
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<LINE>(), from.last_chunk::<LINE>()) {
        *to = *from;
    }
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
