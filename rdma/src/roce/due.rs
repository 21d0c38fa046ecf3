//! The queue pairs that have a packet to send, each once, in turn.

/// A ring as long as there are queue pairs.
pub(super) struct DueQueue {
    ring: Box<[u32]>,
    head: usize,
    len: usize,
}

impl DueQueue {
    pub(super) fn new(capacity: u32) -> Self {
        Self { ring: vec![0; capacity as usize].into(), head: 0, len: 0 }
    }

    /// Puts a queue pair at the end; the caller knows that it is not in.
    #[inline]
    pub(super) fn push(&mut self, idx: u32) {
        let mut at = self.head + self.len;
        if at >= self.ring.len() {
            at -= self.ring.len();
        }
        self.ring[at] = idx;
        self.len += 1;
    }

    /// Takes the first.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        let idx = self.ring[self.head];
        self.head += 1;
        if self.head == self.ring.len() {
            self.head = 0;
        }
        Some(idx)
    }

    /// Takes out a queue pair that is destroyed; the others keep their order.
    pub(super) fn remove(&mut self, idx: u32) {
        for _ in 0..self.len {
            if let Some(other) = self.pop().filter(|other| *other != idx) {
                self.push(other);
            }
        }
    }

    /// True if no queue pair has anything to send.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
}
