//! Loss recovery: how much may be sent while data is missing, and when the recovery is over.
//!
//! ```text
//!            losses, duplicates                   RTO
//!   Open ──────────────────────▶ Fast        any ─────▶ Probing (F-RTO) ──▶ Loss
//!    │ ◀─── recovery_point ────────┘               ◀─ for nothing ─┘          │
//!    │ ECE ─▶ Reduced                              ◀──── recovery_point ──────┘
//! ```
//!
//! With SACK `rack` finds losses and proportional rate reduction (RFC 6937) paces the sending;
//! without it NewReno (RFC 6582) does both. A spurious recovery is undone: detected by timestamps
//! (Eifel, RFC 3522 and RFC 4015), by duplicates that the peer reports (RFC 3708), by F-RTO (RFC
//! 5682).

use crate::proto::slab::NIL;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{Range, Segment};
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{
    Connection, InputFlags, LossFlags, Micros, OutputFlags, Prr, Recovery, RetransmitTimer, Undo,
};
use crate::proto::tcp::state::queue::{RESENT, SACKED, SENT};
use crate::time::{Duration, Instant};

/// Retransmissions in a row until the path is doubted (RFC 9293 3.8.3: three at least).
const R1: u8 = 3;
/// Timeouts in a row until full segments are suspected to be too long for the path (RFC 4821 7.7,
/// RFC 8899 4.3).
const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// The segment sizes that are then tried, one after the other (RFC 4821 7.2, and the size that
/// every host accepts: RFC 1122 3.3.3), options included.
const SAFE_MSS: [u16; 2] = [1024, 512];

/// The new information in an acknowledgment. `input` creates it for each acknowledgment, and `loss`
/// completes it while it compares SACK blocks and looks for losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckSample {
    /// SND.UNA has moved.
    pub(crate) advanced: bool,
    /// Bytes that arrived, by number or by SACK.
    pub(crate) delivered: u32,
    /// Bytes acknowledged by number, including those that SACK had reported before.
    pub(crate) acked: u32,
    /// It repeats an earlier acknowledgment, and has no data (RFC 5681 2).
    pub(crate) is_duplicate: bool,
    /// Bytes found lost.
    pub(crate) lost: u32,
    /// Data from before that is still missing by then is lost too.
    pub(crate) lost_by: Option<Instant>,
    /// Data arrived that was sent only once, and before the recovery began.
    pub(crate) originals: bool,
    /// When the first of those acknowledged by number was sent.
    pub(crate) oldest_sent_at: Option<Instant>,
    /// When the last of all that has arrived was sent, where that is known.
    pub(crate) newest: Newest,
    /// Among those acknowledged by number is one that was sent more than once.
    pub(crate) resent: bool,
    /// TSecr.
    pub(crate) echo: Option<u32>,
    /// RACK.fack as it was before.
    pub(crate) fack: Seq,
    /// A duplicate that the peer reports.
    pub(crate) dsack: Option<Range>,
    /// With this acknowledgment all retransmissions of this recovery were duplicates.
    pub(crate) resends_were_needless: bool,
}

/// The data that was sent last, of that which an acknowledgment reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newest {
    pub(crate) sent_at: Instant,
    /// Whether we know which transmission arrived: there was only one, or the peer echoes the
    /// timestamp of one.
    pub(crate) is_known: bool,
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// The connection is established: it may begin to send (RFC 5681 3.1).
    pub(crate) fn begin_congestion(&mut self) {
        let connection = &mut *self.connection;
        let was_resent = connection.clock.backoff > 0;
        if !was_resent && connection.clock.unacked_since != Instant::MAX {
            // RFC 6298 3: of a SYN that was sent once.
            let sample = Micros::floor(self.now.since(connection.clock.unacked_since));
            connection.take_rtt(sample, true, self.now);
        } else if was_resent {
            // RFC 6298 5.7.
            connection.rtt.rto = connection.rtt.rto.max(Micros::of(Duration::from_secs(3)));
        }
        connection.congestion.cwnd = match connection.clock.backoff {
            0 | 1 => connection.initial_window(),
            // RFC 5681 3.1: the SYN was lost. Once may be chance (RFC 6928 2, and Linux).
            _ => connection.snd.mss.into(),
        };
        connection.congestion.ssthresh = u32::MAX;
        connection.clock.forget_backoff();
        connection.clock.wait_since(Instant::MAX);
        connection.recovery = Recovery::Open;
        connection.loss.recovery_point = connection.rare_snd.iss;
        connection.round.end = connection.snd.una;
        connection.rack.fack = connection.snd.una;
        connection.clock.stop();
    }

    /// The next chunk to send again, where the congestion window has room for it.
    pub(crate) fn next_lost(&mut self) -> Option<u32> {
        let connection = &*self.connection;
        let idx = connection.loss.lost.head;
        // F-RTO sends new data first, because the old data may not be lost at all (RFC 5682 2.1
        // step 2b).
        if idx == NIL || connection.recovery == Recovery::Probing && connection.has(LossFlags::FRTO_ADVANCED) {
            return None;
        }
        let len = self.shared.chunks[idx].seq_len().min(connection.snd.mss.into());
        // NewReno retransmits the segment that it knows to be lost at any window (RFC 6582 3.2).
        let is_unmetered = connection.recovery == Recovery::Fast && !connection.has(InputFlags::SACK);
        (is_unmetered || len <= self.cwnd_room()).then_some(idx)
    }

    /// Bytes that the congestion window has room for.
    #[inline(always)]
    pub(crate) fn cwnd_room(&mut self) -> u32 {
        let connection = &mut *self.connection;
        let pipe = connection.pipe();
        if connection.is_unlimited() {
            return u32::MAX;
        }
        let is_usual = connection.has(InputFlags::SACK) && !connection.has(LossFlags::PROBE_DUE);
        // RFC 5681 4.1 needs the idle time.
        if is_usual && (pipe != 0 || self.now.since(connection.rack_segment.xmit_ts) <= connection.rtt.rto.span()) {
            return connection.congestion.cwnd.saturating_sub(pipe);
        }
        self.out_of_line().unusual_room(pipe)
    }

    #[inline(never)]
    fn unusual_room(&mut self, pipe: u32) -> u32 {
        let mss = u32::from(self.connection.snd.mss);
        let connection = &mut *self.connection;
        // RFC 5681 4.1: after a timeout's time of idleness the window restarts.
        let idle = self.now.since(connection.rack_segment.xmit_ts);
        if connection.snd.flight() == 0
            && connection.rack_segment.xmit_ts != Instant::ZERO
            && idle > connection.rtt.rto.span()
        {
            connection.congestion.cwnd = connection.congestion.cwnd.min(connection.initial_window());
            connection.forget_epoch();
        }
        let mut window = connection.congestion.cwnd;
        if !connection.has(InputFlags::SACK) && connection.recovery == Recovery::Open {
            // RFC 3042: each of the first two duplicates lets a new segment leave. With SACK they
            // leave the pipe.
            window = window.saturating_add(connection.sack.sacked_count.min(2) * mss);
        }
        let room = window.saturating_sub(pipe);
        if pipe == 0 || connection.has(LossFlags::PROBE_DUE) { room.max(mss) } else { room }
    }

    /// A chunk has left: SND.NXT is behind it.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, idx: u32, is_resent: bool) {
        self.mark_sent(idx, is_resent);
        let seq_len = self.shared.chunks[idx].seq_len();
        self.on_its_way(seq_len, is_resent);
    }

    /// A chunk of `seq_len` numbers was marked as sent: does the other bookkeeping.
    #[inline(always)]
    pub(crate) fn on_its_way(&mut self, seq_len: u32, is_resent: bool) {
        let connection = &mut *self.connection;
        if connection.clock.unacked_since == Instant::MAX {
            connection.clock.wait_since(self.now);
        }
        connection.note_use();
        if connection.recovery != Recovery::Open || is_resent || connection.has(LossFlags::PROBE_DUE) {
            self.out_of_line().note_sent(seq_len, is_resent);
        }
        match self.connection.clock.timer {
            RetransmitTimer::Probe if self.has_two_in_flight() => self.reschedule_tlp(),
            // RFC 8985 7.2 moves the probe with new data. It is moved when its time comes
            // (`on_probe_time`).
            RetransmitTimer::Probe => (),
            // RFC 6298 5.1.
            RetransmitTimer::Off | RetransmitTimer::Persist => self.out_of_line().set_timer(),
            RetransmitTimer::Timeout | RetransmitTimer::Reordering => (),
        }
    }

    #[cold]
    fn note_sent(&mut self, seq_len: u32, is_resent: bool) {
        let connection = &mut *self.connection;
        connection.loss.prr.out = connection.loss.prr.out.saturating_add(seq_len);
        if is_resent && connection.has(LossFlags::UNDO) && connection.recovery != Recovery::Open {
            connection.loss.undo.resent += seq_len.div_ceil(u32::from(connection.snd.mss).max(1));
            if connection.loss.undo.resent_ts == 0 {
                connection.loss.undo.resent_ts = connection.ts.now(self.now);
            }
        }
        if connection.has(LossFlags::PROBE_DUE) {
            self.note_probe(is_resent);
        }
    }

    /// Processes an ACK during loss recovery, or one that starts it.
    pub(crate) fn recover(&mut self, segment: &Segment, ack_sample: &mut AckSample, is_congested: bool) {
        let was = self.connection.recovery;
        if ack_sample.resends_were_needless || self.is_echo_of_original(ack_sample) {
            self.undo();
        }
        if self.connection.recovery == Recovery::Probing && (ack_sample.delivered > 0 || ack_sample.is_duplicate) {
            self.detect_spurious_timeout(ack_sample);
        }
        if self.connection.has(InputFlags::SACK) {
            self.adapt_reordering(ack_sample.dsack.is_some());
            self.end_probe(segment, ack_sample);
            self.finish_recovery();
            self.detect_losses(ack_sample);
        } else {
            self.count_duplicates(ack_sample);
            self.finish_recovery();
        }
        // A loss during a recovery that is still unsent at its end begins another.
        if ack_sample.lost > 0 || self.connection.loss.lost.head != NIL {
            self.enter_recovery();
        }
        if is_congested && self.connection.recovery == Recovery::Open {
            self.enter_reduced();
        }
        match self.connection.recovery {
            Recovery::Fast | Recovery::Reduced => self.reduce_window(ack_sample),
            Recovery::Open if ack_sample.advanced && was == Recovery::Open => {
                self.connection.grow_window(ack_sample.acked, self.now);
            }
            Recovery::Loss => {
                self.connection.set(LossFlags::CWND_LIMITED);
                self.connection.grow_window(ack_sample.delivered, self.now);
            }
            Recovery::Open | Recovery::Probing => (),
        }
    }

    /// All data in flight at the beginning of the recovery has arrived.
    fn finish_recovery(&mut self) {
        let connection = &mut *self.connection;
        if connection.recovery == Recovery::Open || connection.snd.una.is_before(connection.loss.recovery_point) {
            return;
        }
        if matches!(connection.recovery, Recovery::Fast | Recovery::Reduced) && !connection.is_unlimited() {
            // RFC 6937 3 and RFC 6582 3.2 step 3: independent of the rate in the meantime.
            connection.congestion.cwnd = connection.congestion.ssthresh;
        }
        if connection.recovery != Recovery::Reduced {
            connection.count_recovery();
        }
        connection.recovery = Recovery::Open;
        connection.clear(LossFlags::FRTO_ADVANCED);
        if !connection.has(InputFlags::SACK) {
            connection.sack.sacked_count = 0;
        }
    }

    /// Something is lost: the window is reduced, once in a round trip.
    pub(crate) fn enter_recovery(&mut self) {
        let connection = &mut *self.connection;
        match connection.recovery {
            Recovery::Fast | Recovery::Loss | Recovery::Probing => return,
            Recovery::Open => connection.begin_reduction(true),
            Recovery::Reduced => (),
        }
        connection.recovery = Recovery::Fast;
        connection.loss.recovery_point = connection.snd.nxt;
        connection.clear(LossFlags::PROBE_OUT);
        self.shared.tally.fast_recoveries += 1;
    }

    /// The network marked our packets (RFC 3168 6.1.2): reduces as for a loss, but retransmits
    /// nothing.
    fn enter_reduced(&mut self) {
        let connection = &mut *self.connection;
        connection.begin_reduction(false);
        connection.recovery = Recovery::Reduced;
        connection.loss.recovery_point = connection.snd.nxt;
    }

    /// The window while it shrinks: in proportion to the data that arrives, so that the sender
    /// never stops (RFC 6937 3).
    pub(crate) fn reduce_window(&mut self, ack_sample: &AckSample) {
        let connection = &mut *self.connection;
        if connection.is_unlimited() {
            return;
        }
        let mss = u32::from(connection.snd.mss);
        if connection.recovery == Recovery::Fast && !connection.has(InputFlags::SACK) {
            return connection.inflate_window(ack_sample, mss);
        }
        let (pipe, ssthresh) = (connection.pipe(), connection.congestion.ssthresh);
        let prr = &mut connection.loss.prr;
        prr.delivered = prr.delivered.saturating_add(ack_sample.delivered);
        let count = if pipe > ssthresh {
            let share = u64::from(prr.delivered) * u64::from(ssthresh);
            let allowed = share.div_ceil(u64::from(prr.recover_fs.max(1))).min(u64::from(u32::MAX)) as u32;
            allowed.saturating_sub(prr.out)
        } else {
            // Slow start back to ssthresh, where nothing more was lost; otherwise by the delivered
            // bytes.
            let limit = prr.delivered.saturating_sub(prr.out).max(ack_sample.delivered);
            let more = if ack_sample.advanced && ack_sample.lost == 0 { mss } else { 0 };
            (ssthresh - pipe).min(limit + more)
        };
        // The first retransmission is not limited. With an empty pipe there is no limit either,
        // because no acknowledgment would come to allow a segment.
        let count = if prr.out == 0 || pipe == 0 { count.max(mss) } else { count };
        connection.congestion.cwnd = pipe + count;
    }

    /// Duplicate acknowledgments, where there is no SACK to say which data they report
    /// (RFC 5681 3.2, RFC 6582 3.2).
    fn count_duplicates(&mut self, ack_sample: &mut AckSample) {
        let connection = &mut *self.connection;
        if ack_sample.advanced {
            connection.sack.sacked_count = 0;
            // A partial acknowledgment: the new first segment is lost as well.
            if connection.recovery == Recovery::Fast && connection.snd.una.is_before(connection.loss.recovery_point) {
                self.mark_first_lost();
            }
            return;
        }
        // RFC 6582 3.2 step 2: those of the recovery before do not begin another.
        let is_new = connection.snd.una != connection.loss.recovery_point;
        let may_begin = matches!(connection.recovery, Recovery::Open | Recovery::Reduced);
        if connection.sack.sacked_count == 3 && may_begin && is_new {
            ack_sample.lost += self.mark_first_lost();
        }
    }

    fn mark_first_lost(&mut self) -> u32 {
        let idx = self.connection.send.queue.head;
        match self.shared.chunks.get(idx) {
            Some(chunk) if chunk.flags & (SENT | SACKED | RESENT) == SENT => {
                let len = chunk.seq_len();
                self.mark_lost(idx);
                len
            }
            _ => 0,
        }
    }

    /// The retransmission timer has run out (RFC 6298 5.4 to 5.7, RFC 5681 3.1).
    pub(crate) fn on_timeout(&mut self) {
        let connection = &mut *self.connection;
        if connection.snd.flight() == 0 {
            return;
        }
        if connection.clock.backoff >= self.shared.config.retries
            && connection.r2_expired(&self.shared.config, self.now)
        {
            return self.give_up();
        }
        self.shared.tally.timeouts += 1;
        let rare = &mut connection.rare_tally;
        rare.timeouts = rare.timeouts.saturating_add(1);
        if self.shared.chunks.get(connection.send.queue.head).is_some_and(|first| first.has(SACKED)) {
            // The peer discarded data that it had reported by SACK (RFC 2018 8).
            self.forget_sacks();
        }
        self.enter_loss();
        self.mark_all_lost();
        self.accept_path_mtu();
        self.suspect_black_hole();
        let connection = &mut *self.connection;
        connection.clock.back_off();
        self.report_path_problem();
        let connection = &mut *self.connection;
        connection.clock.start(RetransmitTimer::Timeout, self.now + connection.backed_off(connection.clock.backoff));
        self.flush_later();
    }

    /// From R1 retransmissions on the path is doubted (RFC 9293 3.8.3).
    pub(crate) fn report_path_problem(&mut self) {
        if self.connection.clock.backoff >= R1 {
            self.shared.tally.negative_advice += 1;
            self.output.negative_advice(*self.connection.flow.remote.ip());
        }
    }

    fn enter_loss(&mut self) {
        let connection = &mut *self.connection;
        // RFC 5681 3.1: a second timeout of the same segment does not lower ssthresh again.
        // RFC 5682 2.1 step 1: then F-RTO does not apply, nor does it where more than the first
        // segment was retransmitted.
        let is_first = connection.clock.backoff == 0;
        let is_silence = connection.is_silence_alone();
        let may_be_spurious = matches!(connection.recovery, Recovery::Open | Recovery::Reduced) || is_silence;
        if is_first && connection.recovery != Recovery::Loss && !is_silence {
            connection.begin_reduction(true);
        }
        connection.recovery = if is_first && may_be_spurious { Recovery::Probing } else { Recovery::Loss };
        connection.loss.recovery_point = connection.snd.nxt;
        connection.clear(LossFlags::FRTO_ADVANCED | LossFlags::PROBE_OUT | LossFlags::PROBE_DUE);
        connection.forget_epoch();
        if !connection.is_unlimited() {
            connection.congestion.cwnd = connection.snd.mss.into();
        }
        if !connection.has(InputFlags::SACK) {
            connection.sack.sacked_count = 0;
        }
    }

    /// Full segments do not arrive, but the path may carry shorter ones: makes segments shorter for
    /// a while (RFC 4821 7.7). `transmit` cuts the segments that were sent already.
    fn suspect_black_hole(&mut self) {
        let connection = &*self.connection;
        let mss = connection.snd.mss;
        // After an earlier black hole once is enough.
        let timeouts_max = if connection.has(InputFlags::MSS_PROBE) { 1 } else { BLACK_HOLE_TIMEOUTS };
        let is_full = self.shared.chunks.get(connection.send.queue.head).is_some_and(|chunk| chunk.len >= mss.into());
        let Some(nth) = connection.clock.backoff.saturating_add(1).checked_sub(timeouts_max).filter(|_| is_full) else {
            return;
        };
        if let Some(&shorter) = SAFE_MSS.get(usize::from(nth)).filter(|&&shorter| shorter < mss) {
            self.avoid_black_hole(shorter);
        }
    }

    /// F-RTO (RFC 5682 2.1 and 3.1): whether data that is acknowledged after a timeout was sent
    /// before the timeout.
    fn detect_spurious_timeout(&mut self, ack_sample: &AckSample) {
        let connection = &mut *self.connection;
        if connection.snd.una.is_at_least(connection.loss.recovery_point) {
            // All of it at once is inconclusive.
            connection.recovery = Recovery::Loss;
        } else if connection.has(LossFlags::FRTO_ADVANCED) {
            // Step 3: only the first segment was retransmitted, so the rest is from before.
            if ack_sample.originals {
                return self.undo();
            }
            connection.recovery = Recovery::Loss;
            if !connection.is_unlimited() {
                // Step 3a. The two new segments are in flight: with less there would be no room for
                // lost data.
                connection.congestion.cwnd = 3 * u32::from(connection.snd.mss);
            }
        } else if ack_sample.advanced && self.open_for_new_data() {
            // Step 2b: send two new segments.
            self.connection.set(LossFlags::FRTO_ADVANCED);
        } else {
            self.connection.recovery = Recovery::Loss;
        }
    }

    /// Opens the window by two segments for unsent data. Returns false and changes nothing where no
    /// unsent data could leave: F-RTO would then wait for its acknowledgment until the next
    /// timeout.
    fn open_for_new_data(&mut self) -> bool {
        let connection = &mut *self.connection;
        let cwnd = connection.pipe() + 2 * u32::from(connection.snd.mss);
        let before = core::mem::replace(&mut connection.congestion.cwnd, cwnd);
        let may_leave = self.may_send_new();
        if !may_leave {
            self.connection.congestion.cwnd = before;
        }
        may_leave
    }

    /// The peer echoes a timestamp from before the first retransmission: it acknowledges the
    /// original (RFC 3522 3.2).
    fn is_echo_of_original(&self, ack_sample: &AckSample) -> bool {
        let connection = &*self.connection;
        let undo = &connection.loss.undo;
        let is_before = |echo: u32| (echo.wrapping_sub(undo.resent_ts) as i32) < 0;
        connection.has(LossFlags::UNDO)
            && connection.recovery != Recovery::Open
            && ack_sample.advanced
            && undo.resent_ts != 0
            && connection.snd.una.is_after(undo.marker)
            && ack_sample.echo.is_some_and(is_before)
    }

    /// The recovery was spurious: back to its beginning (RFC 4015 3.2).
    fn undo(&mut self) {
        self.unmark_lost();
        let connection = &mut *self.connection;
        connection.congestion.cwnd = connection.congestion.cwnd.max(connection.loss.undo.cwnd);
        connection.congestion.ssthresh = connection.congestion.ssthresh.max(connection.loss.undo.ssthresh);
        connection.congestion.w_max = connection.congestion.w_max.max(connection.loss.undo.cwnd);
        connection.forget_epoch();
        connection.recovery = Recovery::Open;
        connection.clock.forget_backoff();
        // The data was not lost but late.
        connection.set(LossFlags::REORDERING_SEEN);
        connection.clear(LossFlags::UNDO | LossFlags::FRTO_ADVANCED);
        if !connection.has(InputFlags::SACK) {
            connection.sack.sacked_count = 0;
        }
        self.shared.tally.undone_recoveries += 1;
    }
}

impl Connection {
    /// Whether the recovery began by an unanswered probe, and nothing has arrived since: the window
    /// was reduced for it, and the data may still be late.
    fn is_silence_alone(&self) -> bool {
        self.recovery == Recovery::Fast && self.sack.lost_len == 0 && self.snd.una == self.loss.undo.marker
    }

    /// Reduces the window for a loss or a mark, and stores the earlier values where that may be
    /// undone.
    fn begin_reduction(&mut self, may_undo: bool) {
        if self.has(InputFlags::ECN) {
            // RFC 3168 6.1.2: for any reason of the reduction.
            self.set(OutputFlags::CWR_OWED);
        }
        self.clear(LossFlags::UNDO);
        if may_undo {
            self.set(LossFlags::UNDO);
            let (cwnd, ssthresh) = (self.congestion.cwnd, self.congestion.ssthresh);
            self.loss.undo = Undo { cwnd, ssthresh, marker: self.snd.una, resent: 0, resent_ts: 0 };
        }
        self.loss.prr = Prr { delivered: 0, out: 0, recover_fs: self.snd.flight() };
        self.lower_ssthresh(self.snd.flight());
    }

    /// NewReno's window (RFC 6582 3.2): each duplicate means that a segment has left the network.
    fn inflate_window(&mut self, ack_sample: &AckSample, mss: u32) {
        if ack_sample.lost > 0 {
            self.congestion.cwnd = self.congestion.ssthresh.saturating_add(3 * mss);
        } else if ack_sample.is_duplicate {
            self.congestion.cwnd = self.congestion.cwnd.saturating_add(mss);
        } else if ack_sample.advanced {
            // Step 5: less the acknowledged bytes, and one more where that was a segment.
            let more = if ack_sample.delivered >= mss { mss } else { 0 };
            self.congestion.cwnd = (self.congestion.cwnd.saturating_sub(ack_sample.delivered) + more).max(mss);
        }
    }
}
