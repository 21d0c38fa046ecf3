//! First to fourth: whether a segment belongs to this connection and is current, and the effect of
//! a reset or a SYN in it (RFC 9293 3.10.7.4, RFC 7323 5, RFC 5961 3 and 4).

use super::TcpDrop;
use crate::proto::tcp::event::CloseReason;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{PredictedFields, Segment};
use crate::proto::tcp::state::connection::{Connection, InputFlags, State, coarse_seconds};
use crate::time::Duration;
use crate::wire::tcp::TcpFlags;

/// RFC 7323 5.5: after 24 days TS.Recent may be from before the peer's clock wrapped.
const TS_RECENT_AGE_MAX: u32 = ((24 * 86_400 * 1_000_000_000_u64) >> 30) as u32;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Protection against wrapped sequence numbers (RFC 7323 5.3 R1). A reset is exempt (5.2).
    #[inline]
    pub(super) fn check_timestamps(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        if !self.connection.has(InputFlags::TIMESTAMPS) {
            return Ok(());
        }
        match segment.timestamps {
            Some(timestamps) if !is_older(timestamps.value, self.connection.ts.recent) => Ok(()),
            Some(_) => self.check_age(segment),
            // A reset is exempt, and a SYN is challenged: the peer may have restarted, without
            // timestamps.
            None if segment.flags.intersects(TcpFlags::RST | TcpFlags::SYN) => Ok(()),
            // RFC 7323 3.2: "SHOULD silently drop".
            None => Err(TcpDrop::PawsReject),
        }
    }

    /// An older timestamp is from the peer's past, unless TS.Recent itself is too old to compare.
    #[cold]
    fn check_age(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        let age = coarse_seconds(self.now).wrapping_sub(self.connection.ts.recent_at_s);
        if segment.has(TcpFlags::RST) || age > TS_RECENT_AGE_MAX {
            return Ok(());
        }
        if self.connection.is_overtaken_ack(segment) {
            self.process_old_ack(segment);
        } else {
            self.answer_unacceptable(segment);
        }
        Err(TcpDrop::PawsReject)
    }

    /// First: some of the segment's numbers must be in the window. The next number is acceptable
    /// even where the window is closed, for its acknowledgment; its data then finds no room.
    #[inline]
    pub(super) fn check_sequence(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        let connection = &*self.connection;
        if segment.seq == connection.rcv.nxt {
            return Ok(());
        }
        // Data that fits the buffer is accepted, even if the window has not shown the room.
        let edge = connection.advertised.adv.max(connection.rcv.nxt + connection.rcv_wnd());
        let is_in_window = if segment.seq_len() == 0 {
            // A segment that takes no number may be at the edge: a peer that has filled the window,
            // and lost an earlier segment, has its next number there, and its acknowledgment counts
            // (Linux: `tcp_sequence`). A reset there is outside (RFC 5961 3.2).
            let is_at_edge = segment.seq == edge && !segment.has(TcpFlags::RST);
            segment.seq.is_at_least(connection.rcv.nxt) && (segment.seq.is_before(edge) || is_at_edge)
        } else {
            segment.end().is_after(connection.rcv.nxt) && segment.seq.is_before(edge)
        };
        if is_in_window {
            return Ok(());
        }
        self.refuse(segment);
        Err(TcpDrop::NotAcceptable)
    }

    #[cold]
    fn refuse(&mut self, segment: &Segment) {
        if segment.has(TcpFlags::RST) {
            return;
        }
        if self.connection.had_of_late(segment) {
            self.note_arrival(&segment.predicted_fields());
        }
        self.answer_unacceptable(segment);
    }

    /// "An acknowledgment should be sent in reply": at once to a segment with data, and at a
    /// limited rate to probes and all others. Otherwise two ends that disagree would answer each
    /// other for ever.
    fn answer_unacceptable(&mut self, segment: &Segment) {
        self.note_old_data(segment);
        let is_probe = segment.seq + 1 == self.connection.rcv.nxt;
        let is_empty = segment.seq_len() == 0;
        if segment.has(TcpFlags::SYN) || is_empty && !is_probe {
            return self.challenge_ack();
        }
        // Of two ends that each miss a byte, every answer is the other's probe: so a limit per
        // second. The limit for all connections is not used, or one connection's storm would leave
        // the keepalive probes of others unanswered.
        if is_empty && !self.connection.take_challenge(self.now) {
            self.shared.tally.challenge_acks_suppressed += 1;
            return;
        }
        self.send_ack();
    }

    /// The segment counts: the peer is alive, and its timestamp is recorded (RFC 7323 4.3, rule 2).
    /// Call it only after the acknowledgment was checked: a segment that RFC 5961 5.2 discards must
    /// leave no trace. Otherwise a forged one could set a timestamp with which PAWS refuses the
    /// true peer.
    #[inline]
    pub(crate) fn note_arrival(&mut self, segment: &PredictedFields) {
        let connection = &mut *self.connection;
        connection.clock.note_received(self.now);
        if let Some(timestamps) = segment.timestamps
            && connection.has(InputFlags::TIMESTAMPS)
            && segment.seq.is_at_most(connection.advertised.last_ack_sent)
        {
            connection.ts.recent = timestamps.value;
            connection.ts.recent_at_s = coarse_seconds(self.now);
        }
    }

    /// Second and fourth, in a synchronized state.
    #[cold]
    #[inline(never)]
    pub(super) fn take_reset_or_syn(&mut self, segment: &Segment) -> TcpDrop {
        if !segment.has(TcpFlags::RST) {
            // RFC 5961 4.2: a restarted peer answers the challenge with an exact reset.
            self.challenge_ack();
            return TcpDrop::BlindSyn;
        }
        if !self.is_exact_reset(segment) {
            return TcpDrop::BlindReset;
        }
        self.shared.tally.resets_in += 1;
        // Where both have sent a FIN and only the acknowledgment of ours is missing, nothing is
        // lost: RFC 9293 signals nothing to the user.
        let is_over = matches!(self.connection.state, State::Closing | State::LastAck) && self.connection.send.len == 0;
        self.close(if is_over { CloseReason::Finished } else { CloseReason::Reset });
        TcpDrop::AfterClose
    }

    /// RFC 5961 3.2: a reset that is in the window, but not the next number, is challenged.
    pub(super) fn is_exact_reset(&mut self, segment: &Segment) -> bool {
        let is_exact = segment.seq == self.connection.rcv.nxt;
        if !is_exact {
            self.challenge_ack();
        }
        is_exact
    }
}

impl Connection {
    /// Whether a segment repeats data of the last window: our acknowledgment was lost or late, and
    /// the peer will measure its round trip by the timestamp that the next acknowledgment echoes.
    /// RFC 7323 4.3 (2) says to echo this segment's timestamp; 5.3 R2 does not consider the case.
    /// With the first segment's timestamp the peer would measure how long it has waited, and after
    /// a few losses its timeout would be seconds. Linux takes the timestamp where the segment is
    /// the last one that was acknowledged (`tcp_sequence`, which compares with `rcv_wup`). A forger
    /// must have guessed numbers within the windows of both directions.
    fn had_of_late(&self, segment: &Segment) -> bool {
        let age = self.rcv.nxt - segment.seq;
        let is_ours = age <= self.rcv_wnd() && u64::from(age) <= self.tally.bytes_received;
        segment.len != 0 && is_ours && segment.has(TcpFlags::ACK) && self.is_in_ack_range(segment.ack)
    }

    /// Whether an acknowledgment is late only because others have overtaken it. Its report of
    /// arrived segments is still true. Where there are more gaps than a SACK option has blocks,
    /// perhaps no other segment reports these (Linux: `tcp_disordered_ack`, with the same limit for
    /// its age).
    fn is_overtaken_ack(&self, segment: &Segment) -> bool {
        let is_bare = segment.seq_len() == 0 && segment.has(TcpFlags::ACK);
        let is_late = segment.timestamps.is_some_and(|timestamps| {
            let age = self.ts.recent.wrapping_sub(timestamps.value);
            Duration::from_millis(age.into()) <= self.rtt.rto.span()
        });
        is_bare
            && is_late
            && self.state.is_synchronized()
            && segment.sack_count != 0
            && self.has(InputFlags::SACK)
            && segment.seq == self.rcv.nxt
            && self.snd.una - segment.ack <= self.rare_snd.wnd_max
    }
}

/// Whether a timestamp is before another on the ring of 2^32.
#[inline]
pub(super) fn is_older(value: u32, than: u32) -> bool {
    (value.wrapping_sub(than) as i32) < 0
}
