//! The order in which neighbors are evicted: each entry is in one of a few queues, the oldest
//! first.

use super::{NeighborEntry, NeighborState, ResolutionCause};
use crate::proto::slab::{NIL, Slab};

/// The queue of a neighbor. Entries of a later queue are evicted before those of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionClass {
    /// Our app wants it: it is never evicted.
    App,
    /// We exchange data with it, and it is kept fresh.
    Peers,
    /// Known, and not kept fresh: it requested our address, or wanted to connect.
    Unused,
    /// Requested for a peer that wants to connect; our answer waits.
    Waiting,
    /// The same where no answer waits any more.
    Idle,
}

const CLASSES: usize = 5;

impl EvictionClass {
    /// The initial queue of an entry that is being resolved.
    pub(super) fn of(cause: ResolutionCause) -> Self {
        match cause {
            ResolutionCause::App => Self::App,
            ResolutionCause::Connection | ResolutionCause::Datagram => Self::Peers,
            ResolutionCause::Handshake => Self::Idle,
        }
    }

    /// Whether it is kept fresh until it is removed.
    pub(super) fn is_kept(self) -> bool {
        matches!(self, Self::App | Self::Peers)
    }
}

/// An entry's position in its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLink {
    pub(super) class: EvictionClass,
    prev: u32,
    next: u32,
}

impl QueueLink {
    /// A handle that is not queued yet; `class` is the queue that it will enter.
    pub(super) const fn new(class: EvictionClass) -> Self {
        Self { class, prev: NIL, next: NIL }
    }
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
    count: usize,
}

/// All queues.
#[derive(Debug)]
pub(super) struct EvictionQueues([Ends; CLASSES]);

impl EvictionQueues {
    pub(super) const EMPTY: Self = Self([Ends { first: NIL, last: NIL, count: 0 }; CLASSES]);

    /// The oldest entry of a queue.
    pub(super) fn first(&self, class: EvictionClass) -> Option<u32> {
        let Ends { first, .. } = self.0[class as usize];
        (first != NIL).then_some(first)
    }

    pub(super) fn count(&self, class: EvictionClass) -> usize {
        self.0[class as usize].count
    }

    /// The entry that is evicted first.
    pub(super) fn least(&self) -> Option<u32> {
        [EvictionClass::Idle, EvictionClass::Waiting, EvictionClass::Unused, EvictionClass::Peers]
            .into_iter()
            .find_map(|class| self.first(class))
    }

    /// Puts an entry, which is in no queue, at the end of one.
    pub(super) fn enter(&mut self, entries: &mut Slab<NeighborEntry>, idx: u32, class: EvictionClass) {
        let ends = &mut self.0[class as usize];
        entries[idx].link = QueueLink { class, prev: ends.last, next: NIL };
        match ends.last {
            NIL => ends.first = idx,
            last => entries[last].link.next = idx,
        }
        ends.last = idx;
        ends.count += 1;
    }

    /// Takes an entry out of its queue.
    pub(super) fn leave(&mut self, entries: &mut Slab<NeighborEntry>, idx: u32) {
        let QueueLink { class, prev, next } = entries[idx].link;
        let ends = &mut self.0[class as usize];
        ends.count -= 1;
        match prev {
            NIL => ends.first = next,
            prev => entries[prev].link.next = next,
        }
        match next {
            NIL => ends.last = prev,
            next => entries[next].link.prev = prev,
        }
    }

    /// Moves an entry to the end of another queue, or of its present one.
    pub(super) fn shift(&mut self, entries: &mut Slab<NeighborEntry>, idx: u32, class: EvictionClass) {
        self.leave(entries, idx);
        self.enter(entries, idx, class);
    }

    /// Another cause wants the neighbor: it moves to that cause's queue, and never to a later one
    /// than before.
    pub(super) fn rise(&mut self, entries: &mut Slab<NeighborEntry>, idx: u32, cause: ResolutionCause) {
        match (entries[idx].link.class, cause) {
            (EvictionClass::App, _) | (_, ResolutionCause::Handshake) => (),
            (_, ResolutionCause::App) => self.shift(entries, idx, EvictionClass::App),
            (_, ResolutionCause::Connection | ResolutionCause::Datagram) => {
                self.shift(entries, idx, EvictionClass::Peers)
            }
        }
    }

    /// The first handle waits for a neighbor, or the last no longer does.
    pub(super) fn follow(&mut self, entries: &mut Slab<NeighborEntry>, idx: u32) {
        let entry = &entries[idx];
        let class = match (entry.link.class, entry.state, entry.count) {
            (EvictionClass::Idle, NeighborState::Asking(_), 1..) => EvictionClass::Waiting,
            (EvictionClass::Waiting, NeighborState::Asking(_), 0) => EvictionClass::Idle,
            (EvictionClass::Waiting | EvictionClass::Idle, NeighborState::Reachable | NeighborState::Probing(_), _) => {
                EvictionClass::Unused
            }
            _ => return,
        };
        self.shift(entries, idx, class);
    }
}
