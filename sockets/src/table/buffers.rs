//! Packet buffers that wait in sockets. While most of them do, what comes is copied out of its
//! buffer, so that sockets that are not read do not keep all others from receiving.

use wirepath::counters::{Counter, Scope, Unit};
use wirepath::pipeline::Cx;

/// One part of the buffers that were free at first stays free.
const RESERVE: usize = 4;

/// The buffers of the worker's pool.
#[derive(Default)]
pub(super) struct Buffers {
    /// The most that were ever free.
    spare: usize,
    /// Segments and datagrams that were copied.
    copied: Option<Counter>,
}

impl Buffers {
    /// Counts in `scope`.
    pub(super) fn count_in(&mut self, scope: &Scope) {
        self.copied = Some(scope.counter("copied_from_scarce_buffers", Unit::Packets));
    }

    /// Whether bytes that have just come are to leave their buffer. Two loads and a comparison.
    #[inline]
    pub(super) fn are_scarce(&mut self, cx: &Cx<'_>) -> bool {
        let free = cx.pool.available();
        self.spare = self.spare.max(free);
        let are_scarce = free < self.spare / RESERVE;
        if are_scarce && let Some(copied) = &self.copied {
            copied.inc();
        }
        are_scarce
    }
}
