//! Sending, and its times (RFC 9293 3.8).
//!
//! ```text
//!  a call of the app, or the end of a burst ─▶ transmit ─▶ data: what is lost, then what is new, as the windows allow
//!        │                                         └─────▶ control: the acknowledgment, where no data carried it
//!        │                                                   again: once more, where the peer is silent behind a loss
//!        └─▶ at_once: new data with nothing before it
//! ```
//!
//! Data that cannot leave now stays queued, and its connection is processed again with the next
//! tick. `recovery` decides which data is lost, and how much may be in flight.

mod ack_repeat;
mod control;
mod data;
mod fast;
mod header;
mod run;

pub(crate) use data::{SEGMENTS_MAX, Sending};

use crate::proto::slab::NIL;
use crate::proto::tcp::machine::{Context, Tcp};
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::state::connection::{AckOwed, Connection, OutputFlags, State};
use crate::time::Instant;

/// The most connections that one tick sends for. Further ones wait for the next tick, so that no
/// tick delays the ring of received frames.
const FLUSH_MAX: u32 = 1024;

impl<P: Payload> Tcp<P> {
    /// Whether [`tick`](Self::tick) has anything to do. Two loads.
    #[inline(always)]
    pub fn is_due(&self, now: Instant) -> bool {
        !self.shared.flush.is_empty() || self.shared.wheel.is_due(now)
    }

    /// The time at which [`tick`](Self::tick) next has work, or an earlier one; `Instant::MAX`
    /// where only a segment or a call brings work. `changes` is the number of changes of paths. Not
    /// called on a packet's way.
    pub fn next_deadline(&self, now: Instant, changes: u64) -> Instant {
        let shared = &self.shared;
        if !shared.flush.is_empty() || self.has_events() {
            return now;
        }
        let watch = &shared.route_watch;
        if watch.is_scanning() || !watch.has_seen(changes) || !shared.owed_resets.is_empty() {
            // Done with the wheel's next tick.
            return shared.wheel.next_look();
        }
        shared.wheel.next_deadline()
    }

    /// Whether a connection waits for a route: the host's next change may bring one.
    pub fn misses_route(&self) -> bool {
        self.shared.route_watch.has_unrouted()
    }

    /// Call it after each burst, with the current time: sends the segments that waited for the end
    /// of the burst, and handles expired timers. Bounded work.
    #[inline]
    pub fn tick<O: Output<P>>(&mut self, now: Instant, output: &mut O) {
        if self.shared.route_watch.is_scanning() {
            self.retry_unreachable(now, output);
        }
        self.run_timers(now, output);
        if !self.shared.owed_resets.is_empty() {
            self.send_owed_resets(output);
        }
        if !self.shared.flush.is_empty() {
            self.flush(now, output);
        }
    }

    /// Sends for each connection in the list once.
    fn flush<O: Output<P>>(&mut self, now: Instant, output: &mut O) {
        let last = self.shared.flush.last();
        let busy = self.shared.tally.output_busy;
        for _ in 0..FLUSH_MAX {
            let Some(slot) = self.shared.flush.pop() else { return };
            if let Some(connection) =
                self.connections.get_mut(slot).filter(|connection| connection.has(OutputFlags::IN_FLUSH))
            {
                connection.clear(OutputFlags::IN_FLUSH);
                if connection.has_pending_work() {
                    self.context(slot, output, now).transmit();
                }
            }
            // A full ring is full for all: the next in the list is first the next time.
            if last == Some(slot) || self.shared.tally.output_busy != busy {
                return;
            }
        }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Sends the data that may be sent now, and then the due acknowledgment if no data carried it.
    #[inline]
    pub(crate) fn transmit(&mut self) {
        let connection = &*self.connection;
        if !(State::Established..=State::LastAck).contains(&connection.state) {
            return self.transmit_outside();
        }
        if connection.send.next_unsent != NIL || connection.sack.lost_len != 0 {
            self.send_data();
        }
        match self.connection.clock.ack_owed {
            AckOwed::Now => self.send_ack(),
            AckOwed::Delayed if self.connection.clock.ack_at <= self.now => self.send_late_ack(),
            AckOwed::Delayed | AckOwed::No => (),
        }
        self.arm();
    }

    /// Segments before the handshake is done, and after the end.
    #[cold]
    fn transmit_outside(&mut self) {
        match self.connection.state {
            State::SynSent | State::SynReceived if self.connection.has(OutputFlags::SYN_OWED) => self.send_syn(),
            State::SynReceived | State::TimeWait if self.is_ack_due() => self.send_ack(),
            _ => (),
        }
        self.arm();
    }

    #[inline]
    fn is_ack_due(&self) -> bool {
        let connection = &*self.connection;
        connection.clock.ack_owed == AckOwed::Now
            || (connection.clock.ack_owed == AckOwed::Delayed && connection.clock.ack_at <= self.now)
    }

    /// The output has no room: the next tick tries again.
    #[cold]
    pub(crate) fn try_again(&mut self) {
        self.shared.tally.output_busy += 1;
        self.flush_later();
    }
}

impl Connection {
    /// Whether any work is left. Most often the app has answered within the burst, and its answer
    /// has carried everything.
    #[inline]
    pub(crate) fn has_pending_work(&self) -> bool {
        self.clock.ack_owed != AckOwed::No
            || self.send.next_unsent != NIL
            || self.sack.lost_len != 0
            || self.state != State::Established
    }
}
