//! RACK-TLP (RFC 8985): a segment is lost if it was sent well before one that has arrived. Where no
//! acknowledgment arrives any more, a probe is sent.
//!
//! The input is each chunk that arrived, with the time it was sent, D-SACKs and the time; the
//! output is LOST marks and the deadline of the retransmission timer. It needs SACK; without SACK
//! `recovery` counts duplicate acknowledgments.
//!
//! The chunks in flight are in a lane in the order of their transmission, so that loss detection
//! reads only the lost chunks and one more (RFC 8985 6.2 step 5 reads all).

use super::recovery::{AckSample, Newest};
use super::rtt::GRANULARITY_US;
use crate::proto::slab::NIL;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::output::transmit::Sending;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Segment;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{Connection, InputFlags, LossFlags, Micros, Recovery, RetransmitTimer};
use crate::proto::tcp::state::queue::Lane;
use crate::proto::wheel::Wheel;
use crate::time::{Duration, Instant};

/// Segments that must have arrived out of order until the first is lost without further waiting
/// (RFC 5681 3.2).
const DUPLICATE_THRESHOLD: u32 = 3;
/// Recoveries without a D-SACK until the reordering window is a quarter of a round trip again
/// (RFC 8985 6.2 step 4).
const PERSIST: u8 = 16;
/// RFC 8985 7.2: before the first sample.
const PROBE_TIMEOUT_INITIAL: Duration = Duration::from_secs(1);

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// A chunk with that end has arrived (RFC 8985 6.2, steps 1 to 3).
    #[inline]
    pub(crate) fn note_delivered(&mut self, end: Seq, sent_at: Instant, resent: u8, ack_sample: &mut AckSample) {
        let connection = &mut *self.connection;
        // Compares with the state before this acknowledgment: it reports several in the order of
        // its blocks.
        if resent == 0 && end.is_at_most(ack_sample.fack) {
            connection.set(LossFlags::REORDERING_SEEN);
        }
        connection.rack.fack = connection.rack.fack.max(end);
        if resent == 0 && end.is_at_most(connection.loss.recovery_point) {
            ack_sample.originals = true;
        }
        let rtt = self.now.since(sent_at);
        // Not the last transmission, where the peer echoes an older timestamp, or the answer is too
        // fast.
        let is_older = |echo: u32| (echo.wrapping_sub(connection.ts.now(sent_at)) as i32) < 0;
        let echoes_older = resent != 0 && ack_sample.echo.is_some_and(is_older);
        if sent_at >= ack_sample.newest.sent_at {
            let is_known = resent == 0 || ack_sample.echo.is_some() && !echoes_older;
            ack_sample.newest = Newest { sent_at, is_known };
        }
        if resent != 0 && (echoes_older || Micros::floor(rtt) < connection.round.rtt_min) {
            return;
        }
        connection.rack.rtt = Micros::floor(rtt);
        if is_sent_after(sent_at, end, connection.rack_segment.xmit_ts, connection.rack.end_seq) {
            (connection.rack_segment.xmit_ts, connection.rack.end_seq) = (sent_at, end);
        }
    }

    /// Adapts the reordering window to the peer's reports (RFC 8985 6.2 step 4).
    pub(crate) fn adapt_reordering(&mut self, has_dsack: bool) {
        let connection = &mut *self.connection;
        if has_dsack && !connection.has(LossFlags::DSACK_ROUND) {
            connection.set(LossFlags::DSACK_ROUND);
            // Once in a round trip, which begins here.
            connection.round.end = connection.snd.nxt;
            connection.reordering.wnd_mult = connection.reordering.wnd_mult.saturating_add(1);
            connection.reordering.wnd_persist = PERSIST;
        }
    }

    /// Marks lost chunks, and records by when those still missing will be lost too (RFC 8985 6.2
    /// step 5).
    pub(crate) fn detect_losses(&mut self, ack_sample: &mut AckSample) {
        let wait = self.connection.rack.rtt.span() + self.connection.reordering_window().span();
        loop {
            let (connection, chunks) = (&mut *self.connection, &self.shared.chunks);
            let idx = connection.send.in_flight.head;
            if idx == NIL {
                return;
            }
            let (chunk, xmit_ts) = (&chunks[idx], connection.rack_segment.xmit_ts);
            if !is_sent_after(xmit_ts, connection.rack.end_seq, chunk.sent_at, chunk.end()) {
                return;
            }
            if chunk.sent_at + wait > self.now {
                // At this time all chunks sent before one that has arrived count as lost.
                ack_sample.lost_by = Some(xmit_ts + wait);
                return;
            }
            ack_sample.lost += chunk.seq_len();
            self.mark_lost(idx);
        }
    }

    /// The time allowed for reordering is over (RFC 8985 6.3).
    pub(crate) fn on_reordering(&mut self) {
        let mut ack_sample = AckSample::default();
        self.detect_losses(&mut ack_sample);
        if ack_sample.lost > 0 {
            self.enter_recovery();
        }
        if self.connection.recovery == Recovery::Fast {
            // The first retransmission goes now; the others with acknowledgments.
            self.reduce_window(&ack_sample);
        }
        self.reset_timer(&ack_sample);
        self.flush_later();
    }

    /// The probe's original deadline. Data that was sent since has moved it, which is computed only
    /// now.
    pub(crate) fn on_probe_time(&mut self, at: Instant) {
        let due = self.probe_due(at);
        if self.connection.has(LossFlags::PROBE_OUT) || due <= self.now {
            return self.on_probe();
        }
        self.connection.clock.start(RetransmitTimer::Probe, due);
    }

    /// No acknowledgment for two round trips: one more segment makes the peer answer (RFC 8985
    /// 7.3).
    pub(crate) fn on_probe(&mut self) {
        if self.connection.snd.flight() == 0 {
            return;
        }
        if self.connection.has(LossFlags::PROBE_OUT) {
            self.take_silence();
        } else {
            self.connection.clock.forget_probes();
        }
        let connection = &mut *self.connection;
        // The timeout follows in any case.
        connection.clock.start(RetransmitTimer::Timeout, self.now + connection.backed_off(connection.clock.backoff));
        connection.set(LossFlags::PROBE_DUE);
        let sent = connection.snd.nxt;
        self.transmit();
        let is_out = self.connection.snd.nxt != sent || !self.connection.has(LossFlags::PROBE_DUE);
        if !is_out && self.resend_last() == Sending::Busy {
            self.probe_again();
        }
        self.connection.clear(LossFlags::PROBE_DUE);
        let is_alone = self.is_alone();
        if self.connection.may_ask_again(is_alone) {
            self.connection.run_timer(is_alone, self.now);
        }
    }

    /// The probe was not answered either, although a peer answers a probe at once. So data is lost.
    /// A loss that is detected by time alone must be taken for congestion, and the next wait is
    /// twice as long (RFC 8961 4 (3) and (4)).
    #[cold]
    fn take_silence(&mut self) {
        self.enter_recovery();
        if self.connection.recovery == Recovery::Fast {
            self.reduce_window(&AckSample::default());
        }
        self.connection.clock.count_probe();
    }

    /// The output had no room for the probe: it is retried with the next tick of the wheel, until
    /// the timeout of the oldest data.
    #[cold]
    fn probe_again(&mut self) {
        let connection = &mut *self.connection;
        let timeout = connection.clock.unacked_since + connection.rtt.rto.span();
        if timeout > self.now {
            let soon = self.now + Duration::from_nanos(Wheel::TICK_NS);
            connection.clock.start(RetransmitTimer::Probe, soon.min(timeout));
        }
    }

    /// There is no new data to send: the last segment again.
    fn resend_last(&mut self) -> Sending {
        let connection = &mut *self.connection;
        let last = match connection.send.next_unsent {
            // A retransmission in a recovery may be the only segment that the peer lacks: the
            // newest in flight.
            _ if connection.is_recovering() => connection.send.in_flight.tail,
            NIL => connection.send.queue.tail,
            next => self.shared.chunks[next].prev,
        };
        let Some(chunk) = self.shared.chunks.get(last) else { return Sending::Nothing };
        let (len, mss) = (chunk.len, u32::from(connection.snd.mss).max(1));
        let mut idx = last;
        if len > mss {
            // The last segment of a chunk that the device cut.
            if !self.cut(last, (len - 1) / mss * mss) {
                return Sending::Busy;
            }
            idx = self.shared.chunks[last].next;
        }
        self.resend(idx)
    }

    /// A chunk has left while a probe is due: it is the probe.
    #[cold]
    pub(crate) fn note_probe(&mut self, is_resent: bool) {
        let connection = &mut *self.connection;
        connection.clear(LossFlags::PROBE_DUE | LossFlags::PROBE_IS_RESENT);
        connection.set(LossFlags::PROBE_OUT);
        if is_resent {
            connection.set(LossFlags::PROBE_IS_RESENT);
        }
        connection.rack.probe_end = connection.snd.nxt;
        self.shared.tally.tail_loss_probes += 1;
    }

    /// The outcome of the probe (RFC 8985 7.4.2).
    pub(crate) fn end_probe(&mut self, segment: &Segment, ack_sample: &AckSample) {
        let connection = &mut *self.connection;
        let end = connection.rack.probe_end;
        if ack_sample.delivered > 0 {
            connection.clock.forget_probes();
            if connection.is_recovering() {
                // The peer answers again, which was the aim: the window was reduced before.
                connection.settle_probe();
            }
        }
        if !connection.has(LossFlags::PROBE_OUT) || segment.ack.is_before(end) {
            return;
        }
        let is_reported = ack_sample
            .dsack
            .is_some_and(|range| range.right == end || range.left.is_before(end) && range.right.is_after(end));
        if !connection.has(LossFlags::PROBE_IS_RESENT) || is_reported {
            connection.settle_probe();
        } else if segment.ack.is_after(end) {
            // The segment was lost, and the probe replaced it: no other signal reaches the
            // congestion control.
            connection.settle_probe();
            if connection.recovery == Recovery::Open && !connection.is_unlimited() {
                // The data in flight then has arrived, and the current flight was sent since: as
                // Linux does, all that was allowed.
                connection.lower_ssthresh(connection.congestion.cwnd);
                connection.congestion.cwnd = connection.congestion.cwnd.min(connection.congestion.ssthresh);
            }
        } else if !ack_sample.advanced && segment.sack_count == 0 && segment.len == 0 {
            connection.settle_probe();
        }
    }

    /// Data has arrived, or was found lost: the retransmission timer changes its purpose, or
    /// restarts.
    pub(crate) fn reset_timer(&mut self, ack_sample: &AckSample) {
        let connection = &mut *self.connection;
        if let Some(at) = ack_sample.lost_by {
            connection.clock.start(RetransmitTimer::Reordering, at);
            return;
        }
        let may_ask = self.may_ask();
        let connection = &mut *self.connection;
        let is_over = match connection.clock.timer {
            RetransmitTimer::Off | RetransmitTimer::Reordering => true,
            // An arrival ends the silence that the probe was for.
            RetransmitTimer::Probe => !may_ask || connection.is_recovering() && ack_sample.delivered > 0,
            // A recovery has begun after a probe.
            RetransmitTimer::Timeout => may_ask && ack_sample.delivered > 0,
            RetransmitTimer::Persist => false,
        };
        if is_over || ack_sample.advanced {
            self.set_timer();
        }
    }

    /// Sets the retransmission timer for the data in flight: a probe where one is allowed, or the
    /// timeout (RFC 6298 5.3, RFC 8985 7.2).
    #[inline(always)]
    pub(crate) fn set_timer(&mut self) {
        let connection = &mut *self.connection;
        if connection.snd.flight() != 0 {
            self.out_of_line().restart_timer();
        } else if connection.clock.timer != RetransmitTimer::Persist {
            connection.clock.stop();
        }
    }

    pub(crate) fn restart_timer(&mut self) {
        self.connection.run_timer(self.is_alone(), self.now);
    }

    /// Whether a probe precedes the timeout, now.
    fn may_ask(&self) -> bool {
        self.connection.may_probe() || self.connection.may_ask_again(self.is_alone())
    }

    /// The deadline of a probe that was set for `at`: it follows the data sent last, but not beyond
    /// the timeout of the oldest (RFC 8985 7.2).
    fn probe_due(&self, at: Instant) -> Instant {
        let connection = &*self.connection;
        let Some(last) = self.shared.chunks.get(connection.send.in_flight.tail) else { return at };
        let timeout = (connection.clock.unacked_since + connection.rtt.rto.span()).max(at);
        (last.sent_at + connection.probe_timeout(self.is_alone())).min(timeout)
    }

    /// A second segment is in flight, so the peer has no reason to delay its acknowledgment any
    /// more.
    #[cold]
    pub(crate) fn reschedule_tlp(&mut self) {
        if self.connection.has(LossFlags::PROBE_OUT) {
            return;
        }
        let due = self.probe_due(self.connection.clock.timer_at);
        self.connection.clock.move_timer(due);
    }

    /// Whether just two segments are in flight.
    #[inline(always)]
    pub(crate) fn has_two_in_flight(&self) -> bool {
        let Lane { head, tail } = self.connection.send.in_flight;
        self.shared.chunks.get(tail).is_some_and(|last| last.earlier == head)
    }

    /// Whether a single segment is in flight.
    #[inline(always)]
    fn is_alone(&self) -> bool {
        let in_flight = self.connection.send.in_flight;
        in_flight.head == in_flight.tail && in_flight.head != NIL
    }
}

impl Connection {
    /// All data before SND.UNA has arrived, and nothing is missing: the last of it was sent at
    /// `sent_at`, and took `rtt` (RFC 8985 6.2, steps 1 to 3).
    #[inline(always)]
    pub(crate) fn note_delivered_in_order(&mut self, sent_at: Instant, rtt: Micros) {
        let end = self.snd.una;
        self.rack_segment.xmit_ts = sent_at;
        (self.rack.end_seq, self.rack.fack, self.rack.rtt) = (end, end, rtt);
    }

    /// RACK.reo_wnd (RFC 8985 6.2 step 4): how much later an earlier segment may arrive.
    fn reordering_window(&self) -> Micros {
        if !self.has(LossFlags::REORDERING_SEEN) {
            let is_enough = self.sack.sacked_count >= DUPLICATE_THRESHOLD
                || self.sack.sacked_len >= DUPLICATE_THRESHOLD * u32::from(self.snd.mss);
            if self.is_recovering() || is_enough {
                return Micros::ZERO;
            }
        }
        Micros((self.round.rtt_min.0 / 4).saturating_mul(self.reordering.wnd_mult.into())).min(self.rtt.srtt)
    }

    /// A recovery is over: one more without a D-SACK.
    pub(crate) fn count_recovery(&mut self) {
        self.reordering.wnd_persist = self.reordering.wnd_persist.saturating_sub(1);
        if self.reordering.wnd_persist == 0 {
            self.reordering.wnd_mult = 1;
        }
    }

    /// Starts the retransmission timer now; the caller knows whether a single segment is in flight.
    #[inline(always)]
    pub(crate) fn run_timer(&mut self, is_alone: bool, now: Instant) {
        let (timer, at) = match self.may_probe() {
            true => (RetransmitTimer::Probe, now + self.probe_timeout(is_alone)),
            false => self.without_first_probe(is_alone, now),
        };
        self.clock.start(timer, at);
    }

    /// Sets the timer where a probe was sent or none is allowed: to the next probe, while that is
    /// well before the timeout, otherwise to the timeout.
    #[cold]
    fn without_first_probe(&self, is_alone: bool, now: Instant) -> (RetransmitTimer, Instant) {
        match self.may_ask_again(is_alone) {
            true => (RetransmitTimer::Probe, now + Duration::from_micros(self.next_probe_timeout(is_alone))),
            false => (RetransmitTimer::Timeout, now + self.backed_off(self.clock.backoff)),
        }
    }

    /// Whether a probe precedes the timeout (RFC 8985 7.2). Within a recovery the RFC relies on
    /// RACK to detect a lost retransmission, by later data that has arrived. Where there is no
    /// later data, as often with a window of few segments, only the timeout would detect the loss;
    /// so we probe there too.
    #[inline(always)]
    fn may_probe(&self) -> bool {
        let is_time = match self.recovery {
            Recovery::Open | Recovery::Reduced => self.sack.sacked_len == 0 && self.send.in_flight.head != NIL,
            Recovery::Fast | Recovery::Probing | Recovery::Loss => true,
        };
        is_time && self.has(InputFlags::SACK) && self.clock.backoff == 0 && !self.has(LossFlags::PROBE_OUT)
    }

    /// Whether an unanswered probe is followed by another: each probe waits twice as long as the
    /// one before, as in QUIC (RFC 9002 6.2.1), so that there are few probes, and none near the
    /// timeout, which is for a dead or congested path.
    fn may_ask_again(&self, is_alone: bool) -> bool {
        let is_soon = || 2 * self.next_probe_timeout(is_alone) <= u64::from(self.rtt.rto.0);
        self.has(LossFlags::PROBE_OUT) && self.clock.backoff == 0 && self.rtt.srtt != Micros::ZERO && is_soon()
    }

    /// Timeout of the answer to a probe, in microseconds.
    fn next_probe_timeout(&self, is_alone: bool) -> u64 {
        let first = (2 * u64::from(self.rtt.srtt.0)).max(GRANULARITY_US);
        (first << (u32::from(self.clock.probes) + 1).min(24)) + self.answer_delay(is_alone)
    }

    /// The time that a peer may take to acknowledge the data in flight. It may acknowledge a lone
    /// segment as late as the minimum timeout, as on Linux, but not where the segment fills a hole
    /// (RFC 5681 4.2), or where a retransmission makes it two.
    #[inline(always)]
    fn answer_delay(&self, is_alone: bool) -> u64 {
        let has_hole = || self.sack.sacked_len != 0 || self.snd.flight() > u32::from(self.snd.mss);
        if is_alone && !(self.is_recovering() && has_hole()) { self.options.rto_min_us.into() } else { 0 }
    }

    /// The outcome of the probe is known.
    fn settle_probe(&mut self) {
        self.clear(LossFlags::PROBE_OUT);
        self.clock.forget_probes();
    }

    /// Whether a loss was found, and its data is not yet known to have arrived.
    #[inline]
    pub(crate) fn is_recovering(&self) -> bool {
        matches!(self.recovery, Recovery::Fast | Recovery::Loss | Recovery::Probing)
    }

    /// PTO (RFC 8985 7.2), the timeout at most.
    #[inline(always)]
    fn probe_timeout(&self, is_alone: bool) -> Duration {
        if self.rtt.srtt == Micros::ZERO {
            return PROBE_TIMEOUT_INITIAL.min(self.rtt.rto.span());
        }
        let us = 2 * u64::from(self.rtt.srtt.0) + self.answer_delay(is_alone);
        Micros(us.min(self.rtt.rto.0.into()) as u32).span()
    }
}

/// RACK_sent_after: of two chunks that were sent in the same burst, the one that ends later counts
/// as sent later.
#[inline]
fn is_sent_after(at: Instant, end: Seq, other_at: Instant, other_end: Seq) -> bool {
    at > other_at || at == other_at && end.is_after(other_end)
}
