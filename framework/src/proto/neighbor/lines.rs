//! The order in which neighbors are evicted: each entry is in one of a few queues, the oldest
//! first.

use super::{Asker, Entry, State};
use crate::proto::slab::{NIL, Slab};

/// The queue of a neighbor. Entries of a later queue are evicted before those of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Our app wants it: it is never evicted.
    App,
    /// We exchange data with it, and it is kept fresh.
    Peers,
    /// Known, and not kept fresh: it requested our address, or wanted to connect.
    Strangers,
    /// Requested for a peer that wants to connect; our answer waits.
    Waiting,
    /// The same where no answer waits any more.
    Idle,
}

const LINES: usize = 5;

impl Line {
    /// The initial queue of an entry that is being resolved.
    pub(super) fn of(asker: Asker) -> Self {
        match asker {
            Asker::App => Self::App,
            Asker::Peer | Asker::Unsolicited => Self::Peers,
            Asker::Caller => Self::Idle,
        }
    }

    /// Whether it is kept fresh until it is removed.
    pub(super) fn is_kept(self) -> bool {
        matches!(self, Self::App | Self::Peers)
    }
}

/// An entry's position in its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) line: Line,
    prev: u32,
    next: u32,
}

impl Place {
    /// Not queued yet; `line` is the queue that it will enter.
    pub(super) const fn new(line: Line) -> Self {
        Self { line, prev: NIL, next: NIL }
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
pub(super) struct Lines([Ends; LINES]);

impl Lines {
    pub(super) const EMPTY: Self = Self([Ends { first: NIL, last: NIL, count: 0 }; LINES]);

    /// The oldest entry of a queue.
    pub(super) fn first(&self, line: Line) -> Option<u32> {
        let Ends { first, .. } = self.0[line as usize];
        (first != NIL).then_some(first)
    }

    pub(super) fn count(&self, line: Line) -> usize {
        self.0[line as usize].count
    }

    /// The entry that is evicted first.
    pub(super) fn least(&self) -> Option<u32> {
        [Line::Idle, Line::Waiting, Line::Strangers, Line::Peers].into_iter().find_map(|line| self.first(line))
    }

    /// Puts an entry, which is in no queue, at the end of one.
    pub(super) fn enter(&mut self, entries: &mut Slab<Entry>, idx: u32, line: Line) {
        let ends = &mut self.0[line as usize];
        entries[idx].place = Place { line, prev: ends.last, next: NIL };
        match ends.last {
            NIL => ends.first = idx,
            last => entries[last].place.next = idx,
        }
        ends.last = idx;
        ends.count += 1;
    }

    /// Takes an entry out of its queue.
    pub(super) fn leave(&mut self, entries: &mut Slab<Entry>, idx: u32) {
        let Place { line, prev, next } = entries[idx].place;
        let ends = &mut self.0[line as usize];
        ends.count -= 1;
        match prev {
            NIL => ends.first = next,
            prev => entries[prev].place.next = next,
        }
        match next {
            NIL => ends.last = prev,
            next => entries[next].place.prev = prev,
        }
    }

    /// Moves an entry to the end of another queue, or of its own.
    pub(super) fn shift(&mut self, entries: &mut Slab<Entry>, idx: u32, line: Line) {
        self.leave(entries, idx);
        self.enter(entries, idx, line);
    }

    /// Another cause wants the neighbor: it moves to that cause's queue, and never to a later one
    /// than before.
    pub(super) fn rise(&mut self, entries: &mut Slab<Entry>, idx: u32, asker: Asker) {
        match (entries[idx].place.line, asker) {
            (Line::App, _) | (_, Asker::Caller) => (),
            (_, Asker::App) => self.shift(entries, idx, Line::App),
            (_, Asker::Peer | Asker::Unsolicited) => self.shift(entries, idx, Line::Peers),
        }
    }

    /// The first handle waits for a neighbor, or the last no longer does.
    pub(super) fn follow(&mut self, entries: &mut Slab<Entry>, idx: u32) {
        let entry = &entries[idx];
        let line = match (entry.place.line, entry.state, entry.count) {
            (Line::Idle, State::Asking(_), 1..) => Line::Waiting,
            (Line::Waiting, State::Asking(_), 0) => Line::Idle,
            (Line::Waiting | Line::Idle, State::Reachable | State::Probing(_), _) => Line::Strangers,
            _ => return,
        };
        self.shift(entries, idx, line);
    }
}
