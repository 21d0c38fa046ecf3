//! TIME-WAIT: late segments are answered, a repeated FIN restarts the wait, and a SYN that is
//! certainly newer opens the connection again (RFC 9293 3.10.7.4, RFC 1337, RFC 6191).

use super::Arrival;
use super::Received;
use super::TcpDrop;
use super::checks::is_older;
use crate::proto::ConsumerId;
use crate::proto::tcp::event::{CloseReason, ListenerId};
use crate::proto::tcp::listening::listener::AcceptDecision;
use crate::proto::tcp::machine::{Context, Tcp};
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Segment;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{AppFlags, Connection, InputFlags};
use crate::time::Instant;
use crate::wire::tcp::TcpFlags;

/// The action for a segment.
pub(super) enum TimeWaitAction {
    Drop,
    /// A new connection begins; this is the lowest of our numbers.
    Reopen(Seq),
}

/// The distance of our next connection's numbers from those of the last (Linux:
/// `tcp_timewait_state_process`): a window without scale.
const ISS_DISTANCE: u32 = 65_537;

impl<P: Payload> Tcp<P> {
    /// The wait ends with a new connection of the same ends, once all checks have accepted it.
    /// Otherwise any forged SYN would end it, which only has to be newer, so that late segments
    /// reach the next connection.
    pub(super) fn reopen<O: Output<P>>(
        &mut self,
        slot: u32,
        iss_min: Seq,
        arrival: &Arrival,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        let listener = self.listeners.choose(arrival.flow);
        // A cookie stores no lowest number for ours, so there must be a free slot.
        let has_room = self.can_admit_peer();
        let Some(idx) = listener.filter(|&idx| has_room && !self.listeners.slots[idx].is_full()) else {
            // Linux as well: as any late segment.
            self.context(slot, output, now).challenge_ack();
            return Err(TcpDrop::TimeWait);
        };
        self.admit(arrival, idx, accept, now, output)?;
        self.end_time_wait(slot, now, output);
        self.make_room_for_peer();
        let slot = self.open_passively(arrival, &arrival.segment, idx, now, output)?;
        let mut cx = self.context(slot, output, now);
        cx.connection.begin_above(iss_min);
        cx.send_syn();
        Ok(None)
    }

    /// Frees the ends of a connection in TIME-WAIT.
    pub(in crate::proto::tcp) fn end_time_wait<O: Output<P>>(&mut self, slot: u32, now: Instant, output: &mut O) {
        if self.connections[slot].has(AppFlags::ORPHANED) {
            return self.release(slot);
        }
        // The app has had no event of the connection's end yet.
        self.context(slot, output, now).close(CloseReason::Finished);
        self.detach(slot);
    }
}

impl Connection {
    /// The lowest number of the next connection of these ends, where this one is in TIME-WAIT.
    pub(crate) fn next_iss_min(&self) -> Seq {
        self.snd.nxt + ISS_DISTANCE
    }

    /// Our numbers begin at `iss_min` or later: an earlier connection of these ends is still known.
    pub(crate) fn begin_above(&mut self, iss_min: Seq) {
        if self.rare_snd.iss.is_before(iss_min) {
            self.rare_snd.iss = iss_min;
            (self.snd.una, self.snd.nxt, self.snd.wl2) = (iss_min, iss_min, iss_min);
        }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    pub(super) fn arrive_in_time_wait(&mut self, segment: &Segment) -> TimeWaitAction {
        // RFC 1337: a reset, perhaps an old one, must not end the wait.
        if segment.has(TcpFlags::RST) {
            return TimeWaitAction::Drop;
        }
        let is_first_syn = segment.has(TcpFlags::SYN) && !segment.flags.intersects(TcpFlags::ACK | TcpFlags::FIN);
        if is_first_syn && self.is_newer(segment) {
            return TimeWaitAction::Reopen(self.connection.next_iss_min());
        }
        if !segment.flags.intersects(TcpFlags::ACK | TcpFlags::SYN) {
            // Fifth: "if the ACK bit is off, drop the segment and return".
            return TimeWaitAction::Drop;
        }
        if self.is_last_fin(segment) {
            self.restart_time_wait();
            self.owe_ack_now();
        } else if segment.seq_len() > 0 || segment.seq != self.connection.rcv.nxt {
            self.challenge_ack();
        }
        TimeWaitAction::Drop
    }

    /// Whether the segment is the peer's FIN again: "the only thing that can arrive in this state".
    /// A forged FIN does not match (RFC 5961 5.2).
    fn is_last_fin(&self, segment: &Segment) -> bool {
        segment.has(TcpFlags::FIN)
            && !segment.has(TcpFlags::SYN)
            && segment.end() == self.connection.rcv.nxt
            && self.connection.is_in_ack_range(segment.ack)
    }

    /// RFC 6191 2: by the timestamp, and where that is inconclusive by the sequence number.
    fn is_newer(&self, segment: &Segment) -> bool {
        let connection = &*self.connection;
        let is_behind = segment.seq.is_after(connection.rcv.nxt);
        match segment.timestamps.filter(|_| connection.has(InputFlags::TIMESTAMPS)) {
            Some(timestamps) if timestamps.value == connection.ts.recent => is_behind,
            Some(timestamps) => !is_older(timestamps.value, connection.ts.recent),
            None => is_behind,
        }
    }

    /// Two maximum segment lifetimes from now. The list of waiting connections is in the order of
    /// their ends.
    pub(super) fn restart_time_wait(&mut self) {
        if self.connection.has(AppFlags::ORPHANED) {
            self.shared.ready.defer(self.slot);
        }
        self.idle_until(self.now + self.shared.config.time_wait);
    }
}
