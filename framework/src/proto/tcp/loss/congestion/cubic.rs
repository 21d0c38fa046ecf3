//! CUBIC (RFC 9438): the window grows with the cube of the time since the last loss, fast far from
//! the window at that loss, slow near it.
//!
//! Integers: bytes and milliseconds. The window is updated eight times in a window's worth of
//! acknowledgments, so that not each of them pays for the divisions.

use crate::proto::tcp::state::connection::Connection;
use crate::time::Instant;

/// beta_cubic = 0.7 (RFC 9438 4.6).
const BETA: (u64, u64) = (7, 10);
/// With fast convergence a flow that lost below the last maximum leaves room: (1 + beta) / 2
/// (RFC 9438 4.7).
const CONVERGENCE: (u64, u64) = (17, 20);
/// alpha_cubic = 3 (1 - beta) / (1 + beta) (RFC 9438 4.3).
const ALPHA: (u64, u64) = (9, 17);
/// An epoch is capped at this: the window is at its limit long before, and the cube fits 64 bits.
const EPOCH_MS_MAX: u64 = 200_000;

impl Connection {
    pub(super) fn grow_cubic(&mut self, acked: u32, now: Instant) {
        if !self.congestion.in_epoch {
            self.begin_epoch(now);
        }
        self.congestion.acked = self.congestion.acked.saturating_add(acked);
        if u64::from(self.congestion.acked) * 8 < u64::from(self.congestion.cwnd) {
            return;
        }
        let acked = core::mem::take(&mut self.congestion.acked);
        self.step_cubic(acked, now);
    }

    /// Congestion avoidance begins (RFC 9438 4.2): K is the time until the curve reaches W_max.
    fn begin_epoch(&mut self, now: Instant) {
        let (cwnd, mss) = (self.congestion.cwnd, u64::from(self.snd.mss));
        let state = &mut self.congestion;
        state.in_epoch = true;
        state.epoch_start_ms = ms(now);
        state.w_est = cwnd;
        state.acked = 0;
        state.w_max = state.w_max.max(cwnd);
        // K^3 = (W_max - cwnd_epoch) / C with C = 0.4 segments a second cubed.
        let below = u64::from(state.w_max - cwnd);
        state.k_ms = cube_root(below * 2_500_000_000 / mss.max(1)) as u32;
    }

    #[inline(never)]
    fn step_cubic(&mut self, acked: u32, now: Instant) {
        let (cwnd, mss, acked) = (u64::from(self.congestion.cwnd), u64::from(self.snd.mss), u64::from(acked));
        let elapsed = u64::from(ms(now).wrapping_sub(self.congestion.epoch_start_ms));
        // W_est grows as Reno would (RFC 9438 4.3): by alpha segments a window until W_max, then by
        // one.
        let state = &mut self.congestion;
        let share = mss * acked;
        let grown = if state.w_est < state.w_max { share * ALPHA.0 / ALPHA.1 } else { share } / cwnd.max(1);
        state.w_est = state.w_est.saturating_add(grown as u32);
        let (w_est, state) = (u64::from(state.w_est), *state);
        let w_cubic = |at: u64| window(at.min(EPOCH_MS_MAX), state.k_ms.into(), state.w_max.into(), mss);
        if w_cubic(elapsed) < w_est {
            // The Reno-friendly region.
            self.congestion.cwnd = self.congestion.cwnd.max(w_est.min(u64::from(u32::MAX)) as u32);
            return;
        }
        // RFC 9438 4.4 and 4.5: towards the curve's value a round trip later, by half a window each
        // at most.
        let rtt_ms = u64::from(self.rtt.srtt.0) / 1000;
        let target = w_cubic(elapsed + rtt_ms).clamp(cwnd, cwnd + cwnd / 2);
        let step = (target - cwnd) * acked / cwnd.max(1);
        self.congestion.cwnd = (cwnd + step).min(u64::from(u32::MAX)) as u32;
    }

    /// A loss (RFC 9438 4.6 and 4.7): the new ssthresh, where `used` bytes were in flight.
    pub(super) fn reduced_cubic(&mut self, used: u32) -> u32 {
        let cwnd = self.congestion.cwnd;
        let state = &mut self.congestion;
        state.in_epoch = false;
        state.w_max = if cwnd < state.w_max { part(cwnd, CONVERGENCE) } else { cwnd };
        part(used, BETA)
    }
}

fn part(of: u32, (numerator, denominator): (u64, u64)) -> u32 {
    (u64::from(of) * numerator / denominator) as u32
}

fn ms(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

/// W_cubic(t) = C (t - K)^3 + W_max (RFC 9438 4.2), in bytes.
fn window(at_ms: u64, k_ms: u64, w_max: u64, mss: u64) -> u64 {
    let apart = u128::from(at_ms.abs_diff(k_ms));
    let cubed = (apart * apart * apart * u128::from(mss) * 4 / 10_000_000_000).min(u128::from(u32::MAX)) as u64;
    if at_ms < k_ms { w_max.saturating_sub(cubed) } else { w_max + cubed }
}

/// The whole part of the cube root.
fn cube_root(of: u64) -> u64 {
    let (mut root, mut rest) = (0u64, of);
    for shift in (0..=63).rev().step_by(3) {
        root *= 2;
        let step = 3 * root * (root + 1) + 1;
        if rest >> shift >= step {
            rest -= step << shift;
            root += 1;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_root_is_rounded_down() {
        for root in [0u64, 1, 2, 3, 10, 1_000, 65_537, 1_000_003, 2_642_245] {
            let cube = root * root * root;
            assert_eq!(cube_root(cube), root);
            assert_eq!(cube_root(cube + 1), root.max(u64::from(root == 0)));
            if cube > 0 {
                assert_eq!(cube_root(cube - 1), root - 1);
            }
        }
        assert_eq!(cube_root(u64::MAX), 2_642_245);
    }

    #[test]
    fn curve_is_at_its_old_maximum_after_k() {
        let (mss, w_max) = (1_460, 1_000_000);
        let k = cube_root((w_max - w_max * 7 / 10) * 2_500_000_000 / mss);
        assert_eq!(window(k, k, w_max, mss), w_max);
        let start = window(0, k, w_max, mss);
        assert!(start.abs_diff(w_max * 7 / 10) < 2 * mss, "it begins where the loss left it: {start}");
        assert!(window(2 * k, k, w_max, mss) > w_max, "and goes beyond");
    }
}
