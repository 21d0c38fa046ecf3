//! Frames that are longer than a buffer of the port, as over AF_XDP, whose buffers are a page at
//! most: the device writes such a frame in one piece, and it leaves as a chain of buffers. That is
//! one more copy of each frame; where every frame fits into a buffer, nothing of this is there.

use wirepath::mem::{Mbuf, Pool};

/// The piece of memory that frames are written in.
pub(super) struct LongFrames {
    frame: Box<[u8]>,
    /// Bytes of a buffer.
    room: usize,
}

impl LongFrames {
    /// For frames of up to `len_max` bytes, in buffers of `room` bytes.
    pub(super) fn new(len_max: usize, room: usize) -> Self {
        Self { frame: vec![0; len_max].into_boxed_slice(), room: room.max(1) }
    }

    /// Buffers of the longest frame.
    pub(super) fn buffers(&self) -> usize {
        self.frame.len().div_ceil(self.room)
    }

    /// The frame that `write` writes, as a chain. `write` is not called where the pool has not
    /// enough buffers for the longest frame.
    pub(super) fn next(&mut self, pool: &Pool, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Mbuf> {
        if pool.available() < self.buffers() {
            return None;
        }
        let len = write(&mut self.frame)?;
        let (first, rest) = self.frame[..len].split_at(len.min(self.room));
        let mut chain = pool.alloc_copy(first)?;
        for piece in rest.chunks(self.room) {
            chain.attach(pool.alloc_copy(piece).expect("as many buffers were available"));
        }
        Some(chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1000;

    /// The frame of `len` bytes as a chain, and its segments' lengths.
    fn chained(pool: &Pool, len: usize) -> Option<Vec<Vec<u8>>> {
        let mut frames = LongFrames::new(2500, ROOM);
        let chain = frames.next(pool, |frame| {
            (0..len).for_each(|at| frame[at] = at as u8);
            Some(len)
        })?;
        let segments = chain.segments().map(<[u8]>::to_vec).collect();
        chain.free();
        Some(segments)
    }

    #[test]
    fn frame_of_any_length_leaves_whole_and_in_as_few_buffers_as_it_fits() {
        let pool = Pool::heap(8).unwrap();
        for (len, lens) in [(60, &[60][..]), (1000, &[1000]), (1001, &[1000, 1]), (2500, &[1000, 1000, 500])] {
            let segments = chained(&pool, len).unwrap();
            assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), lens);
            assert!(segments.concat().into_iter().enumerate().all(|(at, byte)| byte == at as u8), "{len} bytes");
        }
        assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
    }

    #[test]
    fn frame_is_not_written_before_there_are_buffers_for_the_longest() {
        let pool = Pool::heap(3).unwrap();
        let taken = pool.alloc().unwrap();
        assert_eq!(chained(&pool, 60), None);
        taken.free();
        assert!(chained(&pool, 60).is_some());
    }
}
