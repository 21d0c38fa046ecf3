//! Ways out that are lost and found again: link down, no route, a neighbour that is not known.
//!
//! What finds no way has not left, and nothing has changed: data stays unsent, or lost, where it stands. Its timer runs on, so that a
//! connection without a way is given up as one whose peer is silent. But who waits is not left to a timer that has backed off to a minute:
//! the caller says when ways may be others ([`Tcp::follow_ways`]), and all that found none are tried again with the same tick.
//!
//! Who waits has a flag and stands in no list, as ways are lost by the link, for nearly all at once, or never.

use super::connection::{Connection, RetransmitTimer, State, flag, pending};
use super::event::{CloseReason, ConnectionId};
use super::machine::{Tcp, Turn};
use super::payload::{Output, Payload};
use crate::proto::Flow;
use crate::proto::slab::NIL;
use crate::time::Instant;

/// Places that one tick looks at for connections that found no way.
const LOOKS_MAX: u32 = 1024;

/// Whether somebody found no way, and how far they were looked for since ways may have changed.
#[derive(Debug)]
pub(super) struct Ways {
    /// What the caller said last.
    seen: u64,
    /// Somebody found none since the last look began.
    is_missed: bool,
    /// The next place to be looked at; `NIL` while nobody is looked for.
    next: u32,
}

impl Ways {
    pub(super) const NEW: Self = Self { seen: 0, is_missed: false, next: NIL };

    #[inline(always)]
    pub(super) fn is_looking(&self) -> bool {
        self.next != NIL
    }
}

impl<P: Payload> Tcp<P> {
    /// Says before a tick how often ways may have changed by now. Where that is more often than at the last, what found no way is tried
    /// again. A compare where it is not.
    #[inline(always)]
    pub fn follow_ways(&mut self, changes: u64) {
        if self.shared.ways.seen != changes {
            self.begin_look(changes);
        }
    }

    /// The ends of a connection.
    pub fn flow(&self, id: ConnectionId) -> Option<Flow> {
        Some(self.connections[self.find(id)?].flow)
    }

    /// The ends of a connection, where bytes of it wait as no way leads from one to the other.
    pub fn waits_for_way(&self, id: ConnectionId) -> Option<Flow> {
        let connection = &self.connections[self.find(id)?];
        connection.has(flag::NO_WAY).then_some(connection.flow)
    }

    #[cold]
    fn begin_look(&mut self, changes: u64) {
        let ways = &mut self.shared.ways;
        ways.seen = changes;
        if ways.is_missed || ways.is_looking() {
            (ways.is_missed, ways.next) = (false, 0);
        }
    }

    /// Looks for those that found no way, some with each tick.
    #[cold]
    pub(super) fn look_for_wayless<O: Output<P>>(&mut self, now: Instant, output: &mut O) {
        let begin = self.shared.ways.next;
        let end = (self.connections.capacity() as u32).min(begin + LOOKS_MAX);
        for slot in begin..end {
            if self.connections.get(slot).is_some_and(|connection| connection.has(flag::NO_WAY)) {
                self.turn(slot, output, now).try_way_again();
            }
        }
        self.shared.ways.next = if end == self.connections.capacity() as u32 { NIL } else { end };
    }
}

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// A segment found no way.
    #[cold]
    pub(super) fn miss_way(&mut self) {
        self.connection.set(flag::NO_WAY);
        self.shared.ways.is_missed = true;
    }

    /// Our call waits for a way. Who made it hears so once: most often it is the cable, and nobody finds that by waiting for an answer.
    #[cold]
    pub(super) fn tell_no_way(&mut self) {
        let is_call = self.connection.state == State::SynSent;
        if is_call && !self.connection.has(flag::NO_WAY_TOLD) {
            self.connection.set(flag::NO_WAY_TOLD);
            self.tell(pending::NO_WAY);
        }
    }

    /// There may be a way again. That nothing was answered meanwhile says nothing of the network: the timer that has backed off begins anew,
    /// but one step behind, as of what left before nobody knows which transmission is answered.
    fn try_way_again(&mut self) {
        let connection = &mut *self.connection;
        connection.clear(flag::NO_WAY);
        if matches!(connection.timer, RetransmitTimer::Timeout | RetransmitTimer::Persist) {
            connection.backoff = connection.backoff.min(1);
            connection.timer_at = connection.timer_at.min(self.now + connection.backed_off(connection.backoff));
        }
        self.flush_later();
        self.arm();
    }
}

impl Connection {
    /// Why a call came to nothing that nobody answered.
    pub(super) fn unanswered(&self) -> CloseReason {
        if self.has(flag::NO_WAY) { CloseReason::NoWay } else { CloseReason::NoAnswer }
    }
}
