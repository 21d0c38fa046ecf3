//! Fifth phase of a segment's arrival: the acknowledgment (RFC 9293 3.10.7.4) and the peer's
//! window.
//!
//! Nearly all acknowledgments arrive while nothing is missing and report no loss: they take the
//! fast path, which frees acknowledged chunks, takes an RTT sample, grows the window and moves the
//! timer. All other acknowledgments go through `scoreboard` and `recovery`.

use super::arrival::TcpDrop;
use crate::proto::slab::NIL;
use crate::proto::tcp::loss::recovery::{AckSample, Newest};
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{PredictedFields, Segment};
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{
    AppFlags, InputFlags, LossFlags, Micros, OutputFlags, Recovery, RetransmitTimer, State,
};
use crate::proto::tcp::state::queue::{Dropped, SENT};
use crate::time::{Duration, Instant};
use crate::wire::tcp::TcpFlags;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Processes the acknowledgment and the window of a segment. The caller has found its sequence
    /// number acceptable.
    #[inline]
    pub(crate) fn process_ack(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        if !segment.has(TcpFlags::ACK) {
            return Err(TcpDrop::BadFlags);
        }
        if self.connection.state == State::SynReceived {
            self.take_handshake_ack(segment)?;
        }
        let acked = segment.ack.0.wrapping_sub(self.connection.snd.una.0);
        if acked > self.connection.snd.flight() {
            return self.unacceptable_ack(segment);
        }
        self.note_arrival(&segment.predicted_fields());
        let is_update = self.update_window(&segment.predicted_fields());
        if !self.connection.is_fast_path(segment) {
            self.slow_path_ack(segment, acked, is_update);
        } else if acked != 0 {
            self.fast_path_ack(segment.ack, acked);
        } else if segment.len == 0 && !is_update {
            self.take_duplicate(segment);
        }
        Ok(())
    }

    /// SYN-RECEIVED (RFC 9293 3.10.7.4): our SYN is acknowledged, or the segment is refused.
    #[cold]
    fn take_handshake_ack(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        let connection = &mut *self.connection;
        if segment.ack != connection.snd.nxt || connection.snd.una == connection.snd.nxt {
            return Err(TcpDrop::BadAck);
        }
        connection.snd.una = segment.ack;
        connection.snd.wnd = u32::from(segment.wnd) << connection.snd.wscale;
        connection.rare_snd.wnd_max = connection.rare_snd.wnd_max.max(connection.snd.wnd);
        (connection.snd.wl1, connection.snd.wl2) = (segment.seq, segment.ack);
        self.establish();
        Ok(())
    }

    /// An acknowledgment outside of SND.UNA to SND.NXT. An old one is a late duplicate: it changes
    /// nothing, but its segment's data counts, and so do its reports of duplicates (RFC 2883). An
    /// acknowledgment of unsent data, or one that is too old for this peer, is answered and dropped
    /// (RFC 5961 5.2).
    #[cold]
    fn unacceptable_ack(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        if self.connection.has(OutputFlags::DELEGATED) {
            let ack = self.acknowledge_delegated(segment.ack);
            if ack != segment.ack {
                return self.process_ack(&Segment { ack, ..*segment });
            }
        }
        if !self.connection.is_in_ack_range(segment.ack) {
            self.challenge_ack();
            return Err(TcpDrop::BadAck);
        }
        self.note_arrival(&segment.predicted_fields());
        if segment.sack_count != 0 && self.connection.has(InputFlags::SACK) {
            self.process_old_ack(segment);
        }
        Ok(())
    }

    /// An acknowledgment that others have overtaken, with SACK blocks: its number, its window and
    /// its congestion marks are out of date (Linux as well, `tcp_ack`: `old_ack`).
    pub(crate) fn process_old_ack(&mut self, segment: &Segment) {
        let flags = TcpFlags(segment.flags.0 & !TcpFlags::ECE.0);
        self.slow_path_ack(&Segment { flags, ..*segment }, 0, true);
    }

    /// Updates SND.WND, unless the segment is older than the one that set it (RFC 9293 3.10.7.4).
    /// Returns whether the window has changed.
    ///
    /// A retransmission of the peer has an old sequence number. But if it acknowledges more than
    /// any segment before, it is not an old segment: we take its window together with its
    /// acknowledgment, as Linux does (`tcp_may_update_window`). With the previous window, the new
    /// SND.UNA would move the right edge to where the peer has no room: the peer would drop
    /// segments there, and might even ignore their acknowledgments.
    #[inline(always)]
    pub(crate) fn update_window(&mut self, segment: &PredictedFields) -> bool {
        let connection = &mut *self.connection;
        let (wl1, wl2) = (connection.snd.wl1, connection.snd.wl2);
        if segment.seq.is_before(wl1) || segment.seq == wl1 && segment.ack.is_before(wl2) {
            if segment.ack.is_at_most(connection.snd.una) {
                return false;
            }
            connection.snd.wl2 = segment.ack;
        } else {
            (connection.snd.wl1, connection.snd.wl2) = (segment.seq, segment.ack);
        }
        let wnd = u32::from(segment.wnd) << connection.snd.wscale;
        if wnd == connection.snd.wnd {
            return false;
        }
        let has_grown = wnd > connection.snd.wnd;
        if (segment.ack + wnd).is_before(connection.snd.una + connection.snd.wnd) {
            // The right edge is lower than before. Most smaller windows are so by the data that
            // arrived.
            connection.send.forget_room();
        }
        connection.snd.wnd = wnd;
        connection.rare_snd.wnd_max = connection.rare_snd.wnd_max.max(wnd);
        if has_grown && connection.send.next_unsent != NIL {
            self.flush_later();
        }
        true
    }

    /// Nothing is missing, and more has arrived.
    #[inline(always)]
    pub(crate) fn fast_path_ack(&mut self, ack: Seq, acked: u32) {
        self.connection.snd.una = ack;
        self.connection.tally.bytes_acked += u64::from(acked);
        if self.connection.has_all_acknowledged() {
            return self.end_flight(acked);
        }
        if let Some((oldest, newest)) = self.free_in_order() {
            self.take_sample(acked, oldest, newest);
        }
        self.set_timer();
        self.note_progress();
        self.arm_by(self.connection.clock.timer_at);
    }

    /// All data has arrived, and none is queued, as after each order and each answer: no deadline
    /// moves earlier, and nothing can follow.
    #[inline(always)]
    fn end_flight(&mut self, acked: u32) {
        if let Some((oldest, newest)) = self.free_all() {
            self.take_sample(acked, oldest, newest);
        }
        let connection = &mut *self.connection;
        if connection.clock.timer != RetransmitTimer::Persist {
            connection.clock.stop();
        }
        connection.clock.wait_since(Instant::MAX);
        if connection.has(AppFlags::WANTS_ROOM) {
            self.out_of_line().offer_room();
        }
    }

    /// Data sent from `oldest` to `newest` has arrived.
    #[inline(always)]
    fn take_sample(&mut self, acked: u32, oldest: Instant, newest: Instant) {
        let now = self.now;
        let connection = &mut *self.connection;
        let is_new_round = connection.passes_round();
        let rtt = Micros::floor(now.since(oldest));
        connection.take_rtt(rtt, is_new_round, now);
        connection
            .note_delivered_in_order(newest, if newest == oldest { rtt } else { Micros::floor(now.since(newest)) });
        connection.grow_window(acked, now);
        if is_new_round {
            connection.begin_round();
        }
        connection.clock.forget_backoff();
    }

    /// Frees all chunks at once, so that no link has to be updated. The usual case after each
    /// order, and each answer.
    #[inline(always)]
    fn free_all(&mut self) -> Option<(Instant, Instant)> {
        let (connection, chunks) = (&mut *self.connection, &mut self.shared.chunks);
        let (mut idx, mut times) = (connection.send.queue.head, None);
        while let Some((next, sent_at)) = chunks.drop_after(idx, |chunk| (chunk.next, chunk.sent_at)) {
            let oldest = times.map_or(sent_at, |(oldest, _)| oldest);
            times = Some((oldest, sent_at));
            idx = next;
        }
        connection.send.forget_sent();
        times
    }

    /// Frees the chunks that SND.UNA has passed, where none is marked; returns when the first and
    /// the last of them were sent.
    #[inline(always)]
    fn free_in_order(&mut self) -> Option<(Instant, Instant)> {
        let connection = &mut *self.connection;
        let dropped = connection.send.drop_up_to(&mut self.shared.chunks, connection.snd.una);
        if self.is_first_cut() {
            return self.out_of_line().free_part(&dropped);
        }
        (dropped.count != 0).then_some((dropped.oldest, dropped.newest))
    }

    /// The same where SND.UNA is within a chunk that the device cut into segments: those before it
    /// have arrived as well.
    #[cold]
    fn free_part(&mut self, dropped: &Dropped) -> Option<(Instant, Instant)> {
        self.cut_first(&mut AckSample::default());
        let newest = self.shared.chunks.get(self.connection.send.queue.head)?.sent_at;
        Some((if dropped.count == 0 { newest } else { dropped.oldest }, newest))
    }

    /// SND.UNA has moved: there may be room for queued data.
    #[inline(always)]
    fn note_progress(&mut self) {
        let head = self.shared.chunks.get(self.connection.send.queue.head).filter(|head| head.has(SENT));
        let since = match head {
            None => Instant::MAX,
            // The time of the first transmission is not kept after a retransmission; some
            // transmission has arrived now.
            Some(head) if head.resent != 0 => self.now,
            Some(head) => head.sent_at,
        };
        let connection = &mut *self.connection;
        connection.clock.wait_since(since);
        if connection.has(AppFlags::WANTS_ROOM) {
            self.out_of_line().offer_room();
        }
        if self.connection.send.next_unsent != NIL || self.connection.sack.lost_len != 0 {
            self.flush_later();
        }
    }

    /// A duplicate acknowledgment (RFC 5681 2): data, window and number are not new. With SACK it
    /// would carry blocks, if the peer had any to report.
    #[cold]
    fn take_duplicate(&mut self, segment: &Segment) {
        if self.connection.snd.flight() != 0 && !self.connection.has(InputFlags::SACK) {
            self.slow_path_ack(segment, 0, false);
        }
    }

    /// Something is missing, was missing until now, or is reported missing.
    #[inline(never)]
    fn slow_path_ack(&mut self, segment: &Segment, acked: u32, is_update: bool) {
        let connection = &mut *self.connection;
        let echo = segment.timestamps.filter(|_| connection.has(InputFlags::TIMESTAMPS)).map(|times| times.echo_reply);
        let mut ack_sample =
            AckSample { advanced: acked != 0, acked, echo, fack: connection.rack.fack, ..AckSample::default() };
        if acked != 0 {
            connection.snd.una = segment.ack;
            connection.tally.bytes_acked += u64::from(acked);
            self.free_marked(&mut ack_sample);
        }
        let has_sack = self.connection.has(InputFlags::SACK);
        if has_sack && segment.sack_count != 0 {
            self.apply_sacks(segment, &mut ack_sample);
        }
        let is_flying = self.connection.snd.flight() != 0;
        ack_sample.is_duplicate =
            acked == 0 && segment.len == 0 && !is_update && !segment.has(TcpFlags::FIN) && is_flying;
        if !has_sack && ack_sample.is_duplicate {
            self.connection.sack.count_duplicate();
        }
        let is_new_round = self.measure(segment, &ack_sample);
        let is_congested = self.connection.has(InputFlags::ECN) && segment.has(TcpFlags::ECE);
        self.recover(segment, &mut ack_sample, is_congested);
        if is_new_round {
            self.connection.begin_round();
        }
        self.reset_timer(&ack_sample);
        if ack_sample.advanced {
            self.note_progress();
        }
        self.flush_later();
        self.arm();
    }

    /// Takes an RTT sample, where there is one; returns whether a round trip has passed. Karn:
    /// retransmitted data gives no sample, except by the echo of its timestamp (RFC 6298 3, RFC
    /// 7323 4.1).
    fn measure(&mut self, segment: &Segment, ack_sample: &AckSample) -> bool {
        let (connection, now) = (&mut *self.connection, self.now);
        let is_new_round = ack_sample.advanced && connection.passes_round();
        if connection.has(InputFlags::SACK) && connection.is_recovering() {
            self.measure_newest(ack_sample, is_new_round);
            return is_new_round;
        }
        if !ack_sample.advanced {
            return false;
        }
        let by_time = || connection.echoed_rtt(segment.timestamps.filter(|_| ack_sample.echo.is_some()), now);
        let sample: Option<Duration> = match ack_sample.oldest_sent_at {
            // Data that waited at the peer for a retransmission measures that wait, not the path.
            Some(sent_at) if !ack_sample.resent => Some(now.since(sent_at)),
            _ => by_time(),
        };
        if let Some(sample) = sample {
            connection.take_rtt(Micros::floor(sample), is_new_round, now);
        } else {
            connection.keep_timeout(is_new_round);
        }
        connection.clock.forget_backoff();
        is_new_round
    }

    /// Takes an RTT sample from the newest acknowledged data. Within a recovery an earlier
    /// acknowledgment may have been lost, and the oldest data may have arrived long ago. A sample
    /// from the oldest data, or from the echoed timestamp, would include the time without
    /// acknowledgments, and would lengthen the next timeout. The newest data has just arrived, if
    /// it was sent only once or the peer echoes its timestamp. SACK blocks give samples as well.
    fn measure_newest(&mut self, ack_sample: &AckSample, is_new_round: bool) {
        let (connection, now) = (&mut *self.connection, self.now);
        let Newest { sent_at, is_known } = ack_sample.newest;
        if is_known {
            connection.take_rtt(Micros::floor(now.since(sent_at)), is_new_round, now);
        } else if ack_sample.advanced {
            connection.keep_timeout(is_new_round);
        }
        if ack_sample.advanced {
            connection.clock.forget_backoff();
        }
    }
}

impl crate::proto::tcp::state::connection::Connection {
    /// RFC 5961 5.2: SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT. Any other is not of this
    /// connection, or a guess.
    pub(crate) fn is_in_ack_range(&self, ack: Seq) -> bool {
        self.snd.nxt - ack <= self.snd.flight() + self.rare_snd.wnd_max
    }

    /// Whether nothing is missing as far as we know, and the segment reports no loss.
    #[inline]
    fn is_fast_path(&self, segment: &Segment) -> bool {
        self.has_no_loss()
            && !self.has(LossFlags::PROBE_OUT | InputFlags::MSS_PROBE)
            && segment.sack_count == 0
            && !(segment.has(TcpFlags::ECE) && self.has(InputFlags::ECN))
    }

    /// Whether no data is queued, neither unacknowledged nor unsent.
    #[inline]
    fn has_all_acknowledged(&self) -> bool {
        self.snd.flight() == 0 && self.send.next_unsent == NIL
    }

    /// Whether nothing is missing as far as we know.
    #[inline]
    pub(crate) fn has_no_loss(&self) -> bool {
        self.sack.is_clear() && self.recovery == Recovery::Open
    }
}
