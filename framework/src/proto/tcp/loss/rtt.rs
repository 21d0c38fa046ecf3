//! The RTT estimate and the retransmission timeout (RFC 6298). All in microseconds.

use crate::proto::tcp::state::connection::{Connection, Micros, coarse_seconds};
use crate::time::{Duration, Instant};
use crate::wire::tcp::Timestamps;

/// How long the minimum RTT holds: as on Linux five minutes, so that a longer path is noticed
/// eventually.
const RTT_MIN_AGE_S: u32 = ((300 * 1_000_000_000_u64) >> 30) as u32;
/// G of RFC 6298 2.3: the granularity of the timers.
pub(crate) const GRANULARITY_US: u64 = 262;
/// RFC 6298 2.5 allows a maximum of at least 60 s.
const RTO_MAX_US: u64 = 60_000_000;
/// An older timestamp is not credible.
const ECHO_AGE_MAX_MS: u32 = 600_000;

impl Connection {
    /// A round trip was measured (RFC 6298 2.2 and 2.3). There is a sample for each acknowledgment,
    /// not one for each round trip. So the deviation may grow at any time but shrinks only once in
    /// a round trip; otherwise one window of samples would erase it (RFC 7323 4.2, and Linux).
    #[inline(always)]
    pub(crate) fn take_rtt(&mut self, sample: Micros, is_new_round: bool, now: Instant) {
        let sample = sample.0.max(1);
        self.take_rtt_min(sample, now);
        let sample = u64::from(sample);
        let (srtt, rttvar) = (u64::from(self.rtt.srtt.0), u64::from(self.round.rttvar.0));
        if srtt == 0 {
            self.rtt.srtt = Micros(sample as u32);
            self.round.rttvar = Micros((sample / 2) as u32);
        } else {
            let deviation = sample.abs_diff(srtt);
            if deviation > rttvar || is_new_round {
                self.round.rttvar = Micros(((3 * rttvar + deviation) / 4) as u32);
            }
            self.rtt.srtt = Micros(((7 * srtt + sample + 4) / 8) as u32);
        }
        self.set_rto();
    }

    #[inline]
    fn set_rto(&mut self) {
        self.rtt.rto = self.measured_rto();
    }

    #[inline]
    fn measured_rto(&self) -> Micros {
        let variance = (4 * u64::from(self.round.rttvar.0)).max(GRANULARITY_US);
        let rto = (u64::from(self.rtt.srtt.0) + variance).max(self.options.rto_min_us.into());
        Micros(rto.min(RTO_MAX_US) as u32)
    }

    /// Data was acknowledged but gave no RTT sample. RFC 6298 5 keeps the backed-off timeout until
    /// there is a sample. Where a peer echoes no timestamps and many segments are lost, there may
    /// never be one, and the timeout would grow with each loss, to a minute. So a round trip
    /// without a timeout halves it. If it is then too short, it expires and is doubled again.
    #[cold]
    pub(crate) fn keep_timeout(&mut self, is_new_round: bool) {
        self.rtt.rto = match self.clock.backoff {
            0 if is_new_round => Micros(self.rtt.rto.0 / 2).max(self.measured_rto()),
            backoff => Micros::of(self.backed_off(backoff)),
        };
    }

    /// The recent minimum RTT: the path without queues.
    #[inline]
    fn take_rtt_min(&mut self, sample: u32, now: Instant) {
        let now_s = coarse_seconds(now);
        let is_old = now_s.wrapping_sub(self.round.rtt_min_at_s) > RTT_MIN_AGE_S;
        if sample <= self.round.rtt_min.0 || self.round.rtt_min == Micros::ZERO || is_old {
            self.round.rtt_min = Micros(sample);
            self.round.rtt_min_at_s = now_s;
        }
    }

    /// RTTM (RFC 7323 4.1), for data that was sent again: Karn's algorithm takes no sample of it,
    /// but the echoed timestamp shows which transmission the ACK is for. Coarse: our timestamps are
    /// milliseconds.
    pub(crate) fn echoed_rtt(&self, timestamps: Option<Timestamps>, now: Instant) -> Option<Duration> {
        let echo = timestamps?.echo_reply;
        let ms = self.ts.now(now).wrapping_sub(echo);
        (echo != 0 && ms <= ECHO_AGE_MAX_MS).then(|| Duration::from_millis(u64::from(ms).max(1)))
    }

    /// Whether another round trip has passed: the first acknowledgment of data that was sent after
    /// the last such one.
    #[inline]
    pub(crate) fn passes_round(&mut self) -> bool {
        if !self.snd.una.is_after(self.round.end) {
            return false;
        }
        self.round.end = self.snd.nxt;
        true
    }
}
