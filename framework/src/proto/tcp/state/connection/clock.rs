//! Deadlines, and their purposes.
//!
//! [`Clock`] is in the third cache line, [`RareClock`] after all fields that every segment needs.
//! Written by `timers`, and by `output` at a limited rate. Other rooms set their deadlines by a
//! verb: `loss` the retransmission timer, `input` and `output` the acknowledgment.

use crate::proto::slab::NIL;
use crate::time::Instant;

/// When an acknowledgment is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AckOwed {
    #[default]
    No,
    /// By `ack_at`, or with the next segment before.
    Delayed,
    /// At the end of this burst.
    Now,
}

/// The purpose of the retransmission timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetransmitTimer {
    #[default]
    Off,
    /// RFC 6298.
    Timeout,
    /// A tail loss probe (RFC 8985 7).
    Probe,
    /// The time for reordering may be over: segments are lost by then (RFC 8985 6.2 step 5).
    Reordering,
    /// The peer's window is closed (RFC 9293 3.8.6.1).
    Persist,
}

/// The fields that segments update.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Clock {
    /// When `timer` expires.
    pub(in crate::proto::tcp) timer_at: Instant,
    pub(in crate::proto::tcp) ack_at: Instant,
    pub(in crate::proto::tcp) last_received_at: Instant,
    /// When the oldest unacknowledged data was first sent, for the user timeout.
    pub(in crate::proto::tcp) unacked_since: Instant,
    /// The tick of the wheel's entry, or `NIL` where it has none.
    pub(in crate::proto::tcp) wheel_tick: u32,
    pub(in crate::proto::tcp) timer: RetransmitTimer,
    pub(in crate::proto::tcp) ack_owed: AckOwed,
    /// Timeouts in a row.
    pub(in crate::proto::tcp) backoff: u8,
    /// Probes without an answer: of keepalive, of a closed window, or of a tail, except the last.
    /// One kind at a time.
    pub(in crate::proto::tcp) probes: u8,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            timer_at: Instant::MAX,
            ack_at: Instant::MAX,
            last_received_at: now,
            unacked_since: Instant::MAX,
            wheel_tick: NIL,
            timer: RetransmitTimer::Off,
            ack_owed: AckOwed::No,
            backoff: 0,
            probes: 0,
        }
    }

    /// Starts the retransmission timer for `timer`, until `at`.
    #[inline(always)]
    pub(in crate::proto::tcp) fn start(&mut self, timer: RetransmitTimer, at: Instant) {
        (self.timer, self.timer_at) = (timer, at);
    }

    /// Stops the retransmission timer.
    #[inline(always)]
    pub(in crate::proto::tcp) fn stop(&mut self) {
        self.start(RetransmitTimer::Off, Instant::MAX);
    }

    /// Moves the retransmission timer to `at`, with its purpose.
    pub(in crate::proto::tcp) fn move_timer(&mut self, at: Instant) {
        self.timer_at = at;
    }

    /// Moves the retransmission timer to `at`, where it would expire later.
    #[inline]
    pub(in crate::proto::tcp) fn lower_deadline(&mut self, at: Instant) {
        self.timer_at = self.timer_at.min(at);
    }

    /// A segment has arrived from the peer.
    #[inline(always)]
    pub(in crate::proto::tcp) fn note_received(&mut self, now: Instant) {
        self.last_received_at = now;
    }

    /// Unacknowledged data has waited since `at`; `MAX` where there is none.
    #[inline(always)]
    pub(in crate::proto::tcp) fn wait_since(&mut self, at: Instant) {
        self.unacked_since = at;
    }

    /// An acknowledgment is owed at the end of this burst.
    #[inline(always)]
    pub(in crate::proto::tcp) fn owe_ack_now(&mut self) {
        self.ack_owed = AckOwed::Now;
    }

    /// An acknowledgment is owed by `at`.
    #[inline(always)]
    pub(in crate::proto::tcp) fn owe_ack(&mut self, by: AckOwed, at: Instant) {
        (self.ack_owed, self.ack_at) = (by, at);
    }

    /// No acknowledgment is owed any more.
    #[inline(always)]
    pub(in crate::proto::tcp) fn settle_ack(&mut self) {
        self.owe_ack(AckOwed::No, Instant::MAX);
    }

    /// One more timeout in a row.
    pub(in crate::proto::tcp) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// Limits the next wait to that of `max` timeouts in a row.
    pub(in crate::proto::tcp) fn limit_backoff(&mut self, max: u8) {
        self.backoff = self.backoff.min(max);
    }

    /// The peer has answered, or a new wait begins.
    #[inline(always)]
    pub(in crate::proto::tcp) fn forget_backoff(&mut self) {
        self.backoff = 0;
    }

    /// One more probe without an answer.
    pub(in crate::proto::tcp) fn count_probe(&mut self) {
        self.probes = self.probes.saturating_add(1);
    }

    /// The probes were answered, or another kind begins.
    pub(in crate::proto::tcp) fn forget_probes(&mut self) {
        self.probes = 0;
    }
}

/// The fields that idle connections use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RareClock {
    /// Keepalive, FIN-WAIT-2, TIME-WAIT, linger: one at a time.
    pub(crate) idle_at: Instant,
    /// When the rate allows the next segment.
    pub(crate) pace_at: Instant,
}

impl RareClock {
    pub(super) const NEW: Self = Self { idle_at: Instant::MAX, pace_at: Instant::ZERO };
}
