//! The receive queue: where messages of the peer go, one after the other.

use super::work::{MESSAGE_MAX, PostError, SGES_MAX, Sge};

/// A ring of receives. The first is in use while a message arrives, and leaves when it is
/// complete.
pub(crate) struct ReceiveQueue {
    ring: Box<[ReceiveWqe]>,
    head: u32,
    tail: u32,
    depth: u32,
}

/// A receive.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReceiveWqe {
    pub(crate) wr_id: u64,
    pub(crate) sges: [Sge; SGES_MAX],
}

impl ReceiveQueue {
    pub(crate) fn new(depth: u32) -> Self {
        let ring = vec![ReceiveWqe::default(); depth.next_power_of_two() as usize].into();
        Self { ring, head: 0, tail: 0, depth }
    }

    #[inline]
    pub(crate) fn post(&mut self, wr_id: u64, list: &[Sge]) -> Result<(), PostError> {
        if self.len() >= self.depth {
            return Err(PostError::QueueFull);
        }
        let mut sges = [Sge::default(); SGES_MAX];
        sges.get_mut(..list.len()).ok_or(PostError::TooManySges)?.copy_from_slice(list);
        let receive = ReceiveWqe { wr_id, sges };
        // So a message that fits is none too long, and its length fits into 32 bits.
        if receive.len() > MESSAGE_MAX.into() {
            return Err(PostError::Length);
        }
        self.put(receive);
        Ok(())
    }

    /// Puts in a receive that was taken out of a shared queue.
    #[inline]
    pub(crate) fn put(&mut self, receive: ReceiveWqe) {
        let at = self.tail as usize & (self.ring.len() - 1);
        self.ring[at] = receive;
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&ReceiveWqe> {
        if self.len() == 0 { None } else { Some(&self.ring[self.head as usize & (self.ring.len() - 1)]) }
    }

    /// Takes the first out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let wr_id = self.first()?.wr_id;
        self.head = self.head.wrapping_add(1);
        Some(wr_id)
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }
}

impl ReceiveWqe {
    /// Bytes that it can take.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.len)).sum()
    }
}
