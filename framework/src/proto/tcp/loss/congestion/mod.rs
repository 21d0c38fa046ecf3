//! How much may be on its way (RFC 5681, RFC 9438): what an acknowledgment adds to the window, and
//! what a loss takes.
//!
//! What enters: bytes acknowledged, and that something was lost. What leaves: `cwnd` and
//! `ssthresh`, in bytes. When something is lost, and what is sent then, is decided in `recovery`.

mod cubic;
mod reno;

use super::super::options::Congestion;
use super::super::state::connection::{Connection, LossFlags, Recovery};
use crate::time::Instant;

/// No window is larger: the peer's cannot be (RFC 7323 2.3).
const CWND_MAX: u32 = 1 << 30;

impl Connection {
    /// RFC 6928 2: ten segments, or what four of the old size would be.
    pub(in crate::proto::tcp) fn initial_window(&self) -> u32 {
        let mss = u32::from(self.snd.mss);
        (10 * mss).min(14_600.max(2 * mss))
    }

    /// So many bytes were acknowledged while nothing was lost. A window that is not used is not
    /// grown either: what was never sent says nothing about the path (RFC 7661 4.3).
    #[inline]
    pub(in crate::proto::tcp) fn grow_window(&mut self, acked: u32, now: Instant) {
        if !self.has(LossFlags::CWND_LIMITED | LossFlags::CWND_WAS_LIMITED) {
            // RFC 9438 4.2: the time in which the app does not use the window does not count, and
            // what begins anew at the same height of the curve goes on where it was.
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

    /// The window was too large when `used` was on its way: what remains of it is `ssthresh`.
    pub(in crate::proto::tcp) fn lower_ssthresh(&mut self, used: u32) {
        // FlightSize counts, not what would have been allowed (RFC 5681 3.1); and what limited
        // transmit added does not.
        let used = used.min(self.congestion.cwnd);
        let ssthresh = match self.congestion.kind {
            Congestion::Cubic => self.reduced_cubic(used),
            Congestion::Reno => used / 2,
            Congestion::None => return,
        };
        self.congestion.ssthresh = ssthresh.max(2 * u32::from(self.snd.mss));
    }

    /// Another algorithm takes over: it begins where the window is, and knows of no loss before.
    /// Where there was none the path has borne what is on its way, and that is where the window
    /// begins.
    pub(in crate::proto::tcp) fn change_congestion(&mut self, kind: Congestion) {
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
            // What would be given back was never counted.
            self.clear(LossFlags::UNDO);
            if self.recovery != Recovery::Open {
                self.lower_ssthresh(self.snd.flight());
            }
        }
    }

    /// The path's state is not known any more: the window begins to grow from where it is.
    pub(in crate::proto::tcp) fn forget_epoch(&mut self) {
        self.congestion.in_epoch = false;
        self.congestion.acked = 0;
    }

    /// Whether nothing but the peer's window limits what is on its way. After a timeout there is a
    /// limit also without congestion control: who sends all at once that was too much at once has
    /// it lost again, each time after twice the wait (RFC 5681 3.1).
    #[inline]
    pub(in crate::proto::tcp) fn is_unlimited(&self) -> bool {
        self.congestion.kind == Congestion::None && !matches!(self.recovery, Recovery::Probing | Recovery::Loss)
    }

    /// So much is on its way now: whether it is cwnd that keeps it from being more. In slow start
    /// half of it is enough, as it doubles in each round trip (RFC 7661 4.1, and Linux).
    #[inline]
    pub(in crate::proto::tcp) fn note_use(&mut self) {
        let used = self.pipe();
        let used =
            if self.congestion.cwnd < self.congestion.ssthresh { used * 2 } else { used + u32::from(self.snd.mss) };
        if used >= self.congestion.cwnd {
            self.set(LossFlags::CWND_LIMITED);
        }
    }

    /// Bytes more that may be on their way until [`note_use`](Self::note_use) has something to
    /// note.
    #[inline]
    pub(in crate::proto::tcp) fn unnoted_room(&self) -> u32 {
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
    pub(in crate::proto::tcp) fn begin_round(&mut self) {
        let was_limited = self.has(LossFlags::CWND_LIMITED);
        self.clear(LossFlags::CWND_LIMITED | LossFlags::CWND_WAS_LIMITED | LossFlags::DSACK_ROUND);
        if was_limited {
            self.set(LossFlags::CWND_WAS_LIMITED);
            // That it is the limit is to be noted again.
            self.send.forget_room();
        }
    }
}
