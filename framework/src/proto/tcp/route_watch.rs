//! RouteWatch out that are lost and found again: link down, no route, a neighbor that is not known.
//!
//! What finds no way has not left, and nothing has changed: data stays unsent, or lost, where it
//! stands. Its timer runs on, so that a connection without a way is given up as one whose peer is
//! silent. But who waits is not left to a timer that has backed off to a minute: the caller says
//! when ways may be others ([`Tcp::follow_routes`]), and all that found none are tried again with
//! the same tick.
//!
//! Who waits has a flag and stands in no list, as ways are lost by the link, for nearly all at
//! once, or never.
//!
//! The same look finds whose segments have become too long, where the MTU of our own interface is
//! less than it was.

use super::event::{CloseReason, ConnectionId};
use super::input::arrival::{less_options, receive_mss};
use super::machine::{Context, Tcp};
use super::payload::{Output, Payload};
use super::state::connection::{Connection, OutputFlags, RetransmitTimer, State, pending};
use crate::proto::Flow;
use crate::proto::slab::NIL;
use crate::time::Instant;

/// Places that one tick looks at for connections that found no way, or whose segments are too long.
const LOOKS_MAX: u32 = 1024;

/// Whether somebody found no way, and how far they were looked for since ways may have changed.
#[derive(Debug)]
pub(super) struct RouteWatch {
    /// What the caller said last.
    seen: u64,
    /// Somebody found none since the last look began.
    is_missed: bool,
    /// The interface's MTU at the last change; 0 before the first.
    link_mtu: usize,
    /// The next place to be looked at; `NIL` while nobody is looked for.
    next: u32,
}

impl RouteWatch {
    pub(super) const NEW: Self = Self { seen: 0, is_missed: false, link_mtu: 0, next: NIL };

    #[inline(always)]
    pub(super) fn is_looking(&self) -> bool {
        self.next != NIL
    }
}

impl<P: Payload> Tcp<P> {
    /// Says before a tick how often ways may have changed by now. Where that is more often than at
    /// the last, what found no way is tried again, and where the interface takes only shorter
    /// packets than it did, whose segments are too long has them shortened. A compare where it is
    /// not.
    #[inline(always)]
    pub fn follow_routes(&mut self, changes: u64, link_mtu: impl FnOnce() -> usize) {
        if self.shared.route_watch.seen != changes {
            self.begin_look(changes, link_mtu());
        }
    }

    /// The ends of a connection.
    pub fn flow(&self, id: ConnectionId) -> Option<Flow> {
        Some(self.connections[self.find(id)?].flow)
    }

    /// The ends of a connection, where bytes of it wait as no way leads from one to the other.
    pub fn waits_for_route(&self, id: ConnectionId) -> Option<Flow> {
        let connection = &self.connections[self.find(id)?];
        connection.has(OutputFlags::NO_ROUTE).then_some(connection.flow)
    }

    #[cold]
    fn begin_look(&mut self, changes: u64, link_mtu: usize) {
        let route_watch = &mut self.shared.route_watch;
        route_watch.seen = changes;
        let is_narrower = link_mtu < route_watch.link_mtu;
        route_watch.link_mtu = link_mtu;
        if is_narrower || route_watch.is_missed || route_watch.is_looking() {
            (route_watch.is_missed, route_watch.next) = (false, 0);
        }
    }

    /// Looks for those that found no way, and those whose segments the interface does not take any
    /// more, some with each tick.
    #[cold]
    pub(super) fn retry_unreachable<O: Output<P>>(&mut self, now: Instant, output: &mut O) {
        let begin = self.shared.route_watch.next;
        let mss = receive_mss(self.shared.route_watch.link_mtu, 0);
        let end = (self.connections.capacity() as u32).min(begin + LOOKS_MAX);
        for slot in begin..end {
            let Some(connection) = self.connections.get(slot) else { continue };
            if connection.takes_more_than(mss) {
                self.context(slot, output, now).fit_link(mss);
            }
            if self.connections[slot].has(OutputFlags::NO_ROUTE) {
                self.context(slot, output, now).try_way_again();
            }
        }
        self.shared.route_watch.next = if end == self.connections.capacity() as u32 { NIL } else { end };
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// A segment found no way.
    #[cold]
    pub(super) fn miss_way(&mut self) {
        self.connection.set(OutputFlags::NO_ROUTE);
        self.shared.route_watch.is_missed = true;
    }

    /// Our call waits for a way. Who made it hears so once: most often it is the cable, and nobody
    /// finds that by waiting for an answer.
    #[cold]
    pub(super) fn tell_no_route(&mut self) {
        let is_call = self.connection.state == State::SynSent;
        if is_call && !self.connection.has(OutputFlags::NO_ROUTE_TOLD) {
            self.connection.set(OutputFlags::NO_ROUTE_TOLD);
            self.tell(pending::NO_ROUTE);
        }
    }

    /// There may be a way again. That nothing was answered meanwhile says nothing of the network:
    /// the timer that has backed off begins anew, but one step behind, as of what left before
    /// nobody knows which transmission is answered.
    fn try_way_again(&mut self) {
        let connection = &mut *self.connection;
        connection.clear(OutputFlags::NO_ROUTE);
        if matches!(connection.clock.timer, RetransmitTimer::Timeout | RetransmitTimer::Persist) {
            connection.clock.limit_backoff(1);
            connection.clock.hasten(self.now + connection.backed_off(connection.clock.backoff));
        }
        self.flush_later();
        self.arm();
    }
}

impl Connection {
    /// Whether our segments may be longer than `mss` allows; of a call, whether what we offer is.
    fn takes_more_than(&self, mss: u16) -> bool {
        match self.state {
            State::Closed | State::TimeWait => false,
            State::SynSent => self.rcv.mss > mss,
            _ => self.snd.mss > less_options(mss, self),
        }
    }

    /// Why a call came to nothing that nobody answered.
    pub(super) fn unanswered(&self) -> CloseReason {
        if self.has(OutputFlags::NO_ROUTE) { CloseReason::NoRoute } else { CloseReason::NoAnswer }
    }
}
