//! A listener's queue of connections that nobody has accepted yet.

use std::collections::VecDeque;

use wirepath::pipeline::tcp::ListenerId;

use crate::ready::Ready;
use crate::table::SocketId;

/// A socket that listens.
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    /// Directions that were shut before it listened: those of what it accepts are shut as well, as
    /// Linux does.
    pub(crate) shut: (bool, bool),
    /// Connections whose handshake is done, the oldest first.
    queue: VecDeque<SocketId>,
    /// Linux's `somaxconn` rule: one more than `listen` was told.
    backlog: usize,
}

impl Listener {
    pub(crate) fn new(id: ListenerId, shut: (bool, bool), backlog: usize) -> Self {
        Self { id, shut, queue: VecDeque::new(), backlog: backlog.saturating_add(1) }
    }

    /// A second `listen` changes the backlog alone.
    pub(crate) fn set_backlog(&mut self, backlog: usize) {
        self.backlog = backlog.saturating_add(1);
    }

    /// Whether a SYN is ignored, so that the caller tries again later (Linux `sk_acceptq_is_full`).
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.backlog
    }

    pub(crate) fn push(&mut self, socket: SocketId) {
        self.queue.push_back(socket);
    }

    pub(crate) fn pop(&mut self) -> Option<SocketId> {
        self.queue.pop_front()
    }

    /// A connection that ended before it was accepted stays in the queue: `accept` returns it, and
    /// its first read says how it ended.
    pub(crate) fn ready(&self) -> Ready {
        Ready::when(!self.queue.is_empty(), Ready::IN)
    }
}
