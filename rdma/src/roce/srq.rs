//! Shared receive queues: receives for the messages of many queue pairs.

use super::handle::PdHandle;
use super::receive_queue::{ReceiveQueue, ReceiveWqe};

pub(super) struct Srq {
    pub(super) queue: ReceiveQueue,
    pub(super) pd: PdHandle,
    /// An event is due when fewer receives are left; 0 for none.
    limit: u32,
    /// Queue pairs that take from it.
    pub(super) users: u32,
}

impl Srq {
    pub(super) fn new(pd: PdHandle, depth: u32) -> Self {
        Self { queue: ReceiveQueue::new(depth), pd, limit: 0, users: 0 }
    }

    /// Asks for one event when fewer than `limit` receives are left.
    pub(super) const fn arm(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Takes a receive out; true beside it if the limit is reached, once.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(ReceiveWqe, bool)> {
        let receive = *self.queue.first()?;
        self.queue.pop();
        let is_reached = self.queue.len() < self.limit;
        if is_reached {
            self.limit = 0;
        }
        Some((receive, is_reached))
    }
}
