//! Congestion: marks on the packets that arrive are reported to their sender by a congestion
//! notification packet (CNP), and those that arrive slow what we send: DCQCN (Zhu and others,
//! "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015; InfiniBand A17.9.3).
//!
//! ```text
//!  packet with CE ─▶ Notifier ─▶ CNP, one in 50 µs     CNP ─▶ Pacer ─▶ time of the next packet
//! ```
//!
//! Rates are whole numbers of kbit/s. A queue pair that no CNP has reached pays one comparison for
//! each packet; one that is slowed pays a division too.

use zerocopy::IntoBytes;

use super::Qp;
use crate::roce::builder::Builder;
use crate::roce::tables::Tables;
use crate::wire::bth::Bth;
use crate::wire::icrc::Network;
use crate::wire::opcode::Transport;

/// Nanoseconds between two CNPs to a peer (the paper's N).
const CNP_SPAN: u64 = 50_000;
/// DSCP 48, by which NVIDIA's NICs send CNPs, so that switches may prefer them; not ECT.
const CNP_CLASS: u8 = 48 << 2;
/// Bytes of zeros behind the header of a CNP.
const CNP_RESERVED: [u8; 16] = [0; 16];

/// Kbit/s that no CNP goes below: a packet of 4096 bytes waits 3.4 ms then, far below the usual
/// timeout of 67 ms.
const RATE_MIN: u32 = 10_000;
/// Kbit/s by which the target rises in a round, once it was reached (the paper's R_AI).
const RATE_STEP: u32 = 40_000;
/// The same where time and bytes both say that it has been quiet for long: ten times, as in QCN.
const RATE_LEAP: u32 = 10 * RATE_STEP;
/// Nanoseconds of a round without a CNP, after which the rate rises and alpha falls.
const ROUND: u64 = 55_000;
/// Bytes after which the rate rises too.
const ROUND_BYTES: u32 = 10_000_000;
/// Rounds that lead back to the rate before the CNP, halving what is missing.
const RECOVERY_ROUNDS: u8 = 5;
/// Rounds of one call. A packet at the least rate waits for 61; who was silent for longer, and
/// heard no CNP, begins anew, as flows do: at the link's rate.
const ROUNDS_MAX: usize = 64;
/// Nanoseconds within which two CNPs count as one, as in the firmware of ConnectX NICs.
const CUT_SPAN: u64 = 4_000;
/// Nanoseconds of delay that a packet makes up for: a worker's turn may be longer than the time
/// between two packets.
const BURST_SPAN: u64 = 20_000;
/// Alpha, the estimated share of marked packets, is a fraction of this.
const ALPHA_ONE: u32 = 1 << 24;
/// As a power of two: a round and a CNP each move alpha by a 256th (the paper's g).
const GAIN: u32 = 8;

/// Tells the peer that its packets come with marks.
#[derive(Default)]
pub(crate) struct Notifier {
    /// No CNP is sent before.
    next_at: u64,
}

/// The rate of what is sent.
#[derive(Default)]
pub(crate) struct Pacer {
    /// Kbit/s; zero without a limit.
    rate: u32,
    /// The rate that it rises to.
    target: u32,
    alpha: u32,
    /// Bytes of this round.
    bytes: u32,
    rounds_by_time: u8,
    rounds_by_bytes: u8,
    /// The time of the next packet is not reached.
    is_waiting: bool,
    /// When this round began.
    round_at: u64,
    next_at: u64,
}

impl Notifier {
    /// A packet came with a mark: true if a CNP is due, because none was a moment ago.
    fn mark(&mut self, now: u64) -> bool {
        let is_due = now >= self.next_at;
        if is_due {
            self.next_at = now.saturating_add(CNP_SPAN);
        }
        is_due
    }
}

impl Pacer {
    #[inline]
    pub(super) const fn is_limited(&self) -> bool {
        self.rate != 0
    }

    /// The time of the next packet is not reached.
    #[inline]
    pub(super) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// When the next packet may be sent, if one waits.
    #[inline]
    pub(super) fn deadline(&self) -> Option<u64> {
        self.is_waiting.then_some(self.next_at)
    }

    /// Time has passed.
    pub(super) fn on_timer(&mut self, now: u64) {
        self.is_waiting &= now < self.next_at;
    }

    /// A CNP came; `line` is the link's rate.
    fn cut(&mut self, now: u64, line: u32) {
        self.catch_up(now, line);
        if !self.is_limited() {
            *self = Self { rate: line, alpha: ALPHA_ONE, next_at: now, ..Self::default() };
        } else if self.rounds_by_time == 0 && now.saturating_sub(self.round_at) < CUT_SPAN {
            return;
        }
        let cut = u64::from(self.rate) * u64::from(self.alpha) / u64::from(2 * ALPHA_ONE);
        self.target = self.rate;
        self.rate = (self.rate - cut as u32).max(RATE_MIN);
        self.alpha += (ALPHA_ONE - self.alpha) >> GAIN;
        (self.rounds_by_time, self.rounds_by_bytes, self.bytes) = (0, 0, 0);
        self.round_at = now;
    }

    /// A frame was sent: the next has to wait as long as this one takes at the rate.
    fn sent(&mut self, now: u64, frame_len: usize, line: u32) {
        self.catch_up(now, line);
        self.bytes += frame_len as u32;
        if self.bytes >= ROUND_BYTES {
            self.bytes -= ROUND_BYTES;
            self.rounds_by_bytes = self.rounds_by_bytes.saturating_add(1);
            self.rise(line);
        }
        if self.is_limited() {
            // Bits by kbit/s are milliseconds.
            let span = 8_000_000 * frame_len as u64 / u64::from(self.rate);
            self.next_at = self.next_at.max(now.saturating_sub(BURST_SPAN)).saturating_add(span);
            self.is_waiting = self.next_at > now;
        }
    }

    /// The rounds that have passed without a CNP.
    fn catch_up(&mut self, now: u64, line: u32) {
        for _ in 0..ROUNDS_MAX {
            if !self.is_limited() || now.saturating_sub(self.round_at) < ROUND {
                return;
            }
            self.round_at += ROUND;
            self.alpha -= self.alpha >> GAIN;
            self.rounds_by_time = self.rounds_by_time.saturating_add(1);
            self.rise(line);
        }
        *self = Self::default();
    }

    /// A round by time or by bytes: half of the way to the target, which rises after five.
    fn rise(&mut self, line: u32) {
        let (more, fewer) = if self.rounds_by_time > self.rounds_by_bytes {
            (self.rounds_by_time, self.rounds_by_bytes)
        } else {
            (self.rounds_by_bytes, self.rounds_by_time)
        };
        let step = match (more.saturating_sub(RECOVERY_ROUNDS), fewer.saturating_sub(RECOVERY_ROUNDS)) {
            (0, _) => 0,
            (_, 0) => RATE_STEP,
            (_, leaps) => RATE_LEAP * u32::from(leaps),
        };
        self.target = self.target.saturating_add(step).min(line);
        self.rate += (self.target.saturating_sub(self.rate)).div_ceil(2);
        if self.rate >= line {
            *self = Self::default();
        }
    }
}

impl Qp {
    /// Looks for a mark on a packet. Datagrams have no way back that is known here, so their
    /// senders hear nothing.
    #[inline]
    pub(super) fn note_mark(&mut self, now: u64, network: Network<'_>) {
        if network.is_marked() {
            self.counters.marked_rx += 1;
            if self.transport != Transport::Ud {
                self.owes_cnp |= self.notifier.mark(now);
            }
        }
    }

    /// Takes a CNP: what is sent becomes slower. Datagrams do not, because each may have taken
    /// another way.
    pub(in crate::roce) fn take_cnp(&mut self, tables: &Tables, now: u64) {
        self.counters.cnps_rx += 1;
        if self.transport != Transport::Ud {
            self.pacer.cut(now, tables.link_kbps);
            self.is_paced = self.pacer.is_limited();
        }
    }

    /// Writes the CNP that is due.
    #[cold]
    pub(super) fn send_cnp(&mut self, frame: &mut [u8]) -> Option<usize> {
        self.owes_cnp = false;
        let template = self.template.as_ref()?.with_class(CNP_CLASS);
        let bth = Bth::congestion_notification(self.settings.pkey, self.settings.destination);
        let mut builder = Builder::new(frame, &template, &bth);
        builder.push(CNP_RESERVED.as_bytes());
        self.counters.cnps_tx += 1;
        Some(builder.finish(&template))
    }

    /// The time of the next packet is not reached.
    #[inline]
    pub(super) const fn waits_for_pace(&self) -> bool {
        self.is_paced && self.pacer.is_waiting()
    }

    /// A request was sent, or data that answers a READ. CNPs and acknowledgments, those of atomic
    /// operations too, do not wait, so they take no time from what does.
    #[inline]
    pub(super) fn pace(&mut self, tables: &Tables, now: u64, frame_len: usize) {
        if self.is_paced {
            self.pacer.sent(now, frame_len, tables.link_kbps);
            self.is_paced = self.pacer.is_limited();
        }
    }
}

/// A link's rate as the pacer counts, of any number of Mbit/s.
pub(in crate::roce) fn link_kbps(link_mbps: u32) -> u32 {
    link_mbps.saturating_mul(1000).max(RATE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Gbit/s.
    const LINE: u32 = 10_000_000;

    fn cut_at(times: &[u64]) -> Pacer {
        let mut pacer = Pacer::default();
        times.iter().for_each(|at| pacer.cut(*at, LINE));
        pacer
    }

    #[test]
    fn first_notification_halves_the_rate_of_the_link() {
        let pacer = cut_at(&[1_000]);
        assert_eq!((pacer.rate, pacer.target), (LINE / 2, LINE));
        assert_eq!(cut_at(&[1_000, 1_000 + CUT_SPAN - 1]).rate, LINE / 2, "two at once are one");
        assert_eq!(cut_at(&[1_000, 1_000 + CUT_SPAN]).rate, LINE / 4);
    }

    #[test]
    fn notifications_for_ever_leave_the_least_rate() {
        let times: Vec<u64> = (0..100_000).map(|at| at * CNP_SPAN).collect();
        assert_eq!(cut_at(&times).rate, RATE_MIN);
    }

    #[test]
    fn each_quiet_round_halves_what_is_missing() {
        let mut pacer = cut_at(&[0]);
        for (round, missing) in (1..=5).zip([LINE / 4, LINE / 8, LINE / 16, LINE / 32, LINE / 64]) {
            pacer.catch_up(round * ROUND, LINE);
            assert_eq!(pacer.rate, LINE - missing, "round {round}");
        }
        pacer.catch_up(30 * ROUND, LINE);
        assert!(!pacer.is_limited(), "at the link's rate");
    }

    #[test]
    fn target_rises_by_steps_behind_the_recovery() {
        let mut pacer = cut_at(&[0, 10_000, 20_000]);
        let target = pacer.target;
        pacer.catch_up(20_000 + 5 * ROUND, LINE);
        assert_eq!(pacer.target, target);
        pacer.catch_up(20_000 + 7 * ROUND, LINE);
        assert_eq!(pacer.target, target + 2 * RATE_STEP);
        pacer.rounds_by_bytes = RECOVERY_ROUNDS + 2;
        pacer.rise(LINE);
        assert_eq!(pacer.target, target + 2 * RATE_STEP + 2 * RATE_LEAP);
    }

    #[test]
    fn quiet_rounds_make_the_next_cut_smaller() {
        let mut pacer = cut_at(&[0, CNP_SPAN, 2 * CNP_SPAN]);
        let now = 2 * CNP_SPAN + 10 * ROUND;
        pacer.catch_up(now, LINE);
        let before = pacer.rate;
        pacer.cut(now, LINE);
        // A half, less a 256th ten times.
        assert_eq!(u64::from(pacer.rate) * 1000 / u64::from(before), 519);
    }

    #[test]
    fn frames_leave_at_the_rate_also_where_turns_are_long() {
        // 1 Gbit/s for as long as the test takes: 1250 bytes in 10 µs.
        for turn in [1_000, 15_000] {
            let (mut sent, mut now) = (0, 0);
            let mut pacer = Pacer { rate: 1_000_000, target: 1_000_000, ..Pacer::default() };
            while now < 10_000_000 {
                now += turn;
                // Nothing rises.
                pacer.round_at = now;
                pacer.on_timer(now);
                while !pacer.is_waiting() {
                    pacer.sent(now, 1_250, LINE);
                    sent += 1;
                }
            }
            assert!((999..=1003).contains(&sent), "{sent} frames of 10 µs in 10 ms, turns of {turn} ns");
        }
    }

    #[test]
    fn flow_that_was_silent_begins_anew() {
        let mut pacer = cut_at(&(0..200).map(|at| at * CNP_SPAN).collect::<Vec<_>>());
        pacer.sent(1_000_000_000, 64, LINE);
        assert!(!pacer.is_limited() && !pacer.is_waiting());
        // A packet that waits is no silence.
        let mut pacer = cut_at(&(0..1000).map(|at| at * CNP_SPAN).collect::<Vec<_>>());
        let now = 999 * CNP_SPAN;
        pacer.sent(now, 4_198, LINE);
        let next = pacer.deadline().unwrap();
        pacer.catch_up(next, LINE);
        assert!(pacer.is_limited(), "{} rounds", (next - now) / ROUND);
    }

    #[test]
    fn peer_is_notified_once_in_fifty_microseconds() {
        let mut notifier = Notifier::default();
        let sent = (0..1_000).filter(|at| notifier.mark(at * 1_000));
        assert_eq!(sent.count(), 20);
    }

    #[test]
    fn any_order_of_times_and_lengths_is_survived() {
        let mut pacer = Pacer::default();
        for (step, now) in
            [u64::MAX, 0, u64::MAX, 5, u64::MAX - 1, 1 << 40, 3].into_iter().cycle().take(1000).enumerate()
        {
            match step % 3 {
                0 => pacer.cut(now, u32::MAX),
                _ if pacer.is_limited() => pacer.sent(now, 65_535, u32::MAX),
                _ => {}
            }
            pacer.on_timer(now);
        }
    }
}
