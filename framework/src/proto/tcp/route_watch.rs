//! Lost paths and their return. A path is lost when the link is down, there is no route, or the
//! neighbor is not known.
//!
//! A segment without a path does not leave, and nothing changes: data stays queued, unsent or lost.
//! Its timer keeps running, so that a connection without a path is given up like one whose peer
//! does not answer. But it need not wait for a timer that has backed off to a minute: the caller
//! reports that paths may have changed ([`Tcp::follow_routes`]), and the next tick retries all
//! connections without a path.
//!
//! A waiting connection has a flag and is in no list, because most often either no connection has
//! lost its path or, with the link, nearly all have.
//!
//! The same scan finds connections whose segments have become too long because the MTU of our own
//! interface has shrunk.

use super::event::{CloseReason, ConnectionId};
use super::input::arrival::{less_options, receive_mss};
use super::machine::{Context, Tcp};
use super::output::interface::Output;
use super::payload::Payload;
use super::state::connection::{Connection, OutputFlags, Pending, RetransmitTimer, State};
use crate::proto::Flow;
use crate::proto::slab::NIL;
use crate::time::Instant;

/// Slots that one tick checks for connections without a path, or with too long segments.
const SCANNED_MAX: u32 = 1024;

/// Whether a connection found no path, and the progress of the walk since paths may have changed.
#[derive(Debug)]
pub(super) struct RouteWatch {
    /// The caller's last change count.
    seen: u64,
    /// A connection found none since the last walk began.
    has_unrouted: bool,
    /// The interface's MTU at the last change; 0 before the first.
    link_mtu: usize,
    /// The next slot to check; `NIL` while no scan is in progress.
    next: u32,
}

impl RouteWatch {
    pub(super) const NEW: Self = Self { seen: 0, has_unrouted: false, link_mtu: 0, next: NIL };

    #[inline(always)]
    pub(super) fn is_scanning(&self) -> bool {
        self.next != NIL
    }

    /// Whether the caller's last change is known.
    pub(super) fn has_seen(&self, changes: u64) -> bool {
        self.seen == changes
    }

    /// Whether a connection found no path since the last walk.
    pub(super) fn has_unrouted(&self) -> bool {
        self.has_unrouted
    }
}

impl<P: Payload> Tcp<P> {
    /// Reports before a tick the number of changes of paths. Where it has increased, segments
    /// without a path are tried again, and where the interface's MTU has shrunk, too long segments
    /// are shortened. Costs a compare where it has not increased.
    #[inline(always)]
    pub fn follow_routes(&mut self, changes: u64, link_mtu: impl FnOnce() -> usize) {
        if self.shared.route_watch.seen != changes {
            self.begin_scan(changes, link_mtu());
        }
    }

    /// The ends of a connection.
    pub fn flow(&self, id: ConnectionId) -> Option<Flow> {
        Some(self.connections[self.find(id)?].flow)
    }

    /// The ends of a connection that has data waiting because no path leads from one end to the
    /// other.
    pub fn waits_for_route(&self, id: ConnectionId) -> Option<Flow> {
        let connection = &self.connections[self.find(id)?];
        connection.has(OutputFlags::NO_ROUTE).then_some(connection.flow)
    }

    #[cold]
    fn begin_scan(&mut self, changes: u64, link_mtu: usize) {
        let route_watch = &mut self.shared.route_watch;
        route_watch.seen = changes;
        let is_narrower = link_mtu < route_watch.link_mtu;
        route_watch.link_mtu = link_mtu;
        if is_narrower || route_watch.has_unrouted || route_watch.is_scanning() {
            (route_watch.has_unrouted, route_watch.next) = (false, 0);
        }
    }

    /// Walks over connections without a path, and those whose segments exceed the interface's MTU,
    /// some with each tick.
    #[cold]
    pub(super) fn retry_unreachable<O: Output<P>>(&mut self, now: Instant, output: &mut O) {
        let begin = self.shared.route_watch.next;
        let mss = receive_mss(self.shared.route_watch.link_mtu, 0);
        let end = (self.connections.capacity() as u32).min(begin + SCANNED_MAX);
        for slot in begin..end {
            let Some(connection) = self.connections.get(slot) else { continue };
            if connection.takes_more_than(mss) {
                self.context(slot, output, now).fit_link(mss);
            }
            if self.connections[slot].has(OutputFlags::NO_ROUTE) {
                self.context(slot, output, now).retry_route();
            }
        }
        self.shared.route_watch.next = if end == self.connections.capacity() as u32 { NIL } else { end };
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// A segment found no path.
    #[cold]
    pub(super) fn note_no_route(&mut self) {
        self.connection.set(OutputFlags::NO_ROUTE);
        self.shared.route_watch.has_unrouted = true;
    }

    /// Our SYN waits for a path. The app gets one event: usually the cable is unplugged, and the
    /// app would not learn of that while it waits for the answer.
    #[cold]
    pub(super) fn notify_no_route(&mut self) {
        let is_call = self.connection.state == State::SynSent;
        if is_call && !self.connection.has(OutputFlags::NO_ROUTE_REPORTED) {
            self.connection.set(OutputFlags::NO_ROUTE_REPORTED);
            self.notify(Pending::NO_ROUTE);
        }
    }

    /// There may be a path again. Without a path the missing acknowledgments do not indicate
    /// congestion, so the backed-off timer starts again. It starts one step later, because an
    /// acknowledgment of data that left before may be for either transmission.
    fn retry_route(&mut self) {
        let connection = &mut *self.connection;
        connection.clear(OutputFlags::NO_ROUTE);
        if matches!(connection.clock.timer, RetransmitTimer::Timeout | RetransmitTimer::Persist) {
            connection.clock.limit_backoff(1);
            connection.clock.lower_deadline(self.now + connection.backed_off(connection.clock.backoff));
        }
        self.flush_later();
        self.arm();
    }
}

impl Connection {
    /// Whether our segments may be longer than `mss` allows; for a connection attempt, whether our
    /// offer is.
    fn takes_more_than(&self, mss: u16) -> bool {
        match self.state {
            State::Closed | State::TimeWait => false,
            State::SynSent => self.rcv.mss > mss,
            _ => self.snd.mss > less_options(mss, self),
        }
    }

    /// Why an unanswered connection attempt ended.
    pub(super) fn unanswered(&self) -> CloseReason {
        if self.has(OutputFlags::NO_ROUTE) { CloseReason::NoRoute } else { CloseReason::NoAnswer }
    }
}
