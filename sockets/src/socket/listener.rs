//! A listener's queue of connections that are not accepted yet.

use std::collections::VecDeque;

use wirepath::pipeline::tcp::ListenerId;
use wirepath::time::Instant;

use crate::ready::Ready;
use crate::table::SocketId;

/// A socket that listens.
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    /// Directions that were shut before the socket listened: accepted connections have them shut as
    /// well, as on Linux.
    pub(crate) shut: (bool, bool),
    /// Connections whose handshake is done, the oldest first.
    queue: VecDeque<SocketId>,
    /// Connections that wait for their first data (`TCP_DEFER_ACCEPT`), and until when.
    pub(crate) deferred: Vec<(Instant, SocketId)>,
    /// Linux's `somaxconn` rule: one more than the argument of `listen`.
    backlog: usize,
    /// SYNs that found the queue full.
    pub(crate) ignored: u64,
}

impl Listener {
    pub(crate) fn new(id: ListenerId, shut: (bool, bool), backlog: usize) -> Self {
        let (queue, deferred, backlog) = (VecDeque::new(), Vec::new(), backlog.saturating_add(1));
        Self { id, shut, queue, deferred, backlog, ignored: 0 }
    }

    /// A second `listen` changes the backlog alone.
    pub(crate) fn set_backlog(&mut self, backlog: usize) {
        self.backlog = backlog.saturating_add(1);
    }

    /// Whether a SYN is ignored, so that the caller tries again later (Linux `sk_acceptq_is_full`).
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.backlog || self.deferred.len() >= self.backlog
    }

    /// Connections that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The argument of `listen`.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog - 1
    }

    pub(crate) fn push(&mut self, socket: SocketId) {
        self.queue.push_back(socket);
    }

    pub(crate) fn pop(&mut self) -> Option<SocketId> {
        self.queue.pop_front()
    }

    /// All connections that wait, also those that wait for their first data.
    pub(crate) fn take_all(&mut self) -> (Vec<SocketId>, usize) {
        let deferred = core::mem::take(&mut self.deferred);
        let count = deferred.len();
        let all = self.queue.drain(..).chain(deferred.into_iter().map(|(_, id)| id));
        (all.collect(), count)
    }

    /// A connection that ended before it was accepted stays in the queue: `accept` returns it, and
    /// its first read reports how it ended.
    pub(crate) fn ready(&self) -> Ready {
        Ready::when(!self.queue.is_empty(), Ready::IN)
    }
}
