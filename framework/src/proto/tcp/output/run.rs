//! The payloads of one segment that the device cuts at their borders.

use crate::proto::tcp::state::queue::Chunks;

/// Payloads of consecutive pieces: all as long as a segment, except the last, which may be shorter.
pub struct Run<'a, P> {
    pub(super) chunks: &'a mut Chunks<P>,
    pub(super) last: u32,
    pub(super) count: u32,
    pub(super) len: u32,
}

impl<P> Run<'_, P> {
    /// Bytes of all pieces.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Always false: a run has at least one payload.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Passes all payloads to `take`, from the last to the first because chains are built that way,
    /// until it returns false. Returns whether it took all.
    pub fn all_from_the_last(&mut self, mut take: impl FnMut(&mut P) -> bool) -> bool {
        let mut idx = self.last;
        for _ in 0..self.count {
            let chunk = &mut self.chunks[idx];
            let is_taken = chunk.payload.as_mut().is_some_and(&mut take);
            if !is_taken {
                return false;
            }
            idx = chunk.prev;
        }
        true
    }
}
