//! Congestion control (RFC 5681, RFC 9438): the growth of the window by acknowledgments, and its
//! reduction by losses.
//!
//! The input is acknowledged bytes and losses; the output is `cwnd` and `ssthresh`, in bytes.
//! `recovery` decides when data is lost, and which data is sent then.

mod cubic;
mod reno;

use crate::proto::tcp::options::Congestion;
use crate::proto::tcp::state::connection::{Connection, LossFlags, Recovery};
use crate::time::Instant;

/// No window is larger: the peer's cannot be (RFC 7323 2.3).
const CWND_MAX: u32 = 1 << 30;

impl Connection {
    /// RFC 6928 2: ten segments, or the equivalent of four of the old size.
    pub(crate) fn initial_window(&self) -> u32 {
        let mss = u32::from(self.snd.mss);
        (10 * mss).min(14_600.max(2 * mss))
    }

    /// Grows the window after `acked` bytes were acknowledged without loss. An unused window does
    /// not grow: unsent data shows nothing about the path (RFC 7661 4.3).
    #[inline]
    pub(crate) fn grow_window(&mut self, acked: u32, now: Instant) {
        if !self.has(LossFlags::CWND_LIMITED | LossFlags::CWND_WAS_LIMITED) {
            // RFC 9438 4.2: time in which the app does not use the window does not count, and
            // growth resumes at the same height of the curve.
            self.congestion.in_epoch = false;
            return;
        }
        if self.congestion.cwnd < self.congestion.ssthresh {
            // RFC 5681 3.1, by bytes (RFC 3465), without its limit: an acknowledgment of a whole
            // burst counts in full, as on Linux.
            self.congestion.cwnd =
                self.congestion.cwnd.saturating_add(acked).min(self.congestion.ssthresh).min(CWND_MAX);
            return;
        }
        self.avoid_congestion(acked, now);
    }

    fn avoid_congestion(&mut self, acked: u32, now: Instant) {
        match self.congestion.kind {
            Congestion::Cubic => self.grow_cubic(acked, now),
            Congestion::Reno => self.grow_reno(acked),
            Congestion::None => (),
        }
        self.congestion.cwnd = self.congestion.cwnd.min(CWND_MAX);
    }

    /// The window was too large with `used` bytes in flight: its reduced value is `ssthresh`.
    pub(crate) fn lower_ssthresh(&mut self, used: u32) {
        // FlightSize counts, not the allowed bytes (RFC 5681 3.1); the addition of limited transmit
        // does not count.
        let used = used.min(self.congestion.cwnd);
        let ssthresh = match self.congestion.kind {
            Congestion::Cubic => self.reduced_cubic(used),
            Congestion::Reno => used / 2,
            Congestion::None => return,
        };
        self.congestion.ssthresh = ssthresh.max(2 * u32::from(self.snd.mss));
    }

    /// Another algorithm takes over: it begins at the current window, without an earlier loss.
    /// Without congestion control before, the path has carried the bytes in flight, and that is the
    /// initial window.
    pub(crate) fn change_congestion(&mut self, kind: Congestion) {
        if kind == self.congestion.kind {
            return;
        }
        let (was_none, was_unlimited) = (self.congestion.kind == Congestion::None, self.is_unlimited());
        self.congestion.change(kind);
        if was_unlimited {
            self.congestion.cwnd = self.snd.flight().max(self.initial_window());
        }
        if kind == Congestion::None {
            self.congestion.ssthresh = u32::MAX;
        }
        if was_none {
            // The undone reduction was never counted.
            self.clear(LossFlags::UNDO);
            if self.recovery != Recovery::Open {
                self.lower_ssthresh(self.snd.flight());
            }
        }
    }

    /// The path's state is no longer known: the window grows from its current size.
    pub(crate) fn forget_epoch(&mut self) {
        self.congestion.in_epoch = false;
        self.congestion.acked = 0;
    }

    /// Whether only the peer's window limits the bytes in flight. After a timeout there is a limit
    /// even without congestion control: a sender that repeats the burst that was too much loses it
    /// again, each time after twice the wait (RFC 5681 3.1).
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.congestion.kind == Congestion::None && !matches!(self.recovery, Recovery::Probing | Recovery::Loss)
    }

    /// Records whether cwnd limits the bytes in flight now. In slow start half of it is enough,
    /// because it doubles in each round trip (RFC 7661 4.1, and Linux).
    #[inline]
    pub(crate) fn note_use(&mut self) {
        let used = self.pipe();
        let used =
            if self.congestion.cwnd < self.congestion.ssthresh { used * 2 } else { used + u32::from(self.snd.mss) };
        if used >= self.congestion.cwnd {
            self.set(LossFlags::CWND_LIMITED);
        }
    }

    /// Bytes more that may be sent until [`note_use`](Self::note_use) has something to record.
    #[inline]
    pub(crate) fn unnoted_room(&self) -> u32 {
        if self.has(LossFlags::CWND_LIMITED) {
            return u32::MAX;
        }
        let free = if self.congestion.cwnd < self.congestion.ssthresh {
            self.congestion.cwnd / 2
        } else {
            self.congestion.cwnd.saturating_sub(self.snd.mss.into())
        };
        free.saturating_sub(self.pipe() + 1)
    }

    /// Another round trip has passed.
    #[inline]
    pub(crate) fn begin_round(&mut self) {
        let was_limited = self.has(LossFlags::CWND_LIMITED);
        self.clear(LossFlags::CWND_LIMITED | LossFlags::CWND_WAS_LIMITED | LossFlags::DSACK_ROUND);
        if was_limited {
            self.set(LossFlags::CWND_WAS_LIMITED);
            // Use of the whole window must be recorded again.
            self.send.forget_room();
        }
    }
}
