//! A token bucket in integers: a rate and a burst.
//!
//! The state is one instant, the time at which the bucket would be full again (generic cell rate
//! algorithm, ITU-T I.371). So no timer refills the bucket, and nothing drifts.

use core::net::Ipv4Addr;

use super::hash::HashSeed;
use crate::time::Instant;

/// Permits `per_second` events a second on average and `burst` at once. Full at the beginning.
///
/// ICMP errors need one (RFC 1812 4.3.2.8): without it a flood of bad packets would make us send a
/// second flood.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Nanoseconds that one token takes to come back.
    interval_ns: u64,
    /// Nanoseconds that an empty bucket takes to hold all but one token.
    tolerance_ns: u64,
    full_at: Instant,
}

impl TokenBucket {
    /// A full bucket. Intervals are whole nanoseconds, rounded down: 3 a second become 3.000000003,
    /// and a billion or more has no limit.
    pub const fn new(per_second: u32, burst: u32) -> Self {
        assert!(per_second > 0 && burst > 0, "a bucket that never gives is a closed door: leave the event out");
        let interval_ns = 1_000_000_000 / per_second as u64;
        Self { interval_ns, tolerance_ns: interval_ns * (burst as u64 - 1), full_at: Instant::ZERO }
    }

    /// Whether no token is left. Takes none.
    #[inline]
    pub fn is_empty(&self, now: Instant) -> bool {
        now < self.empty_until()
    }

    /// When the next token is available, if none is taken. In the past where there is one.
    #[inline]
    pub fn empty_until(&self) -> Instant {
        Instant::from_nanos(self.full_at.as_nanos().saturating_sub(self.tolerance_ns))
    }

    /// Takes zero, one or two tokens as `noise` decides, one on average, so that no one can count
    /// the remaining tokens. Returns false and changes nothing where there is no token. Linux's
    /// ICMP does the same (`icmp_global_allow`).
    pub fn take_about_one(&mut self, now: Instant, noise: u64) -> bool {
        let is_there = !self.is_empty(now);
        for _ in 0..noise % 3 {
            self.take(now);
        }
        is_there
    }

    /// Takes a token. Returns false and changes nothing where there is none. About 1 ns.
    #[inline]
    pub fn take(&mut self, now: Instant) -> bool {
        if self.is_empty(now) {
            return false;
        }
        let begin = self.full_at.max(now).as_nanos();
        self.full_at = Instant::from_nanos(begin.saturating_add(self.interval_ns));
        true
    }
}

/// Limits answers to remote hosts: a total for each second, and at most a quarter of it for one
/// host.
///
/// An exact limit for all hosts is a side channel: a host that uses up all answers but one, and
/// then requests the last, learns whether another host got an answer in between (CVE-2016-5696,
/// CVE-2020-25705). So the total is drawn at random for each second, between half of the nominal
/// limit and all of it, and only a host itself uses up its share.
#[derive(Clone, Copy, Debug)]
pub struct PeerLimit {
    shares: PeerShares,
    per_second: u32,
    second: u64,
    left: u32,
}

impl PeerLimit {
    /// At most `per_second` answers in a second. `seed` keeps the limit unpredictable.
    pub fn new(per_second: u32, seed: HashSeed) -> Self {
        Self { shares: PeerShares::new(seed), per_second, second: u64::MAX, left: 0 }
    }

    /// Takes one answer for `peer`; false where the total or its share is used up in this second.
    pub fn take(&mut self, peer: Ipv4Addr, now: Instant) -> bool {
        let second = second(now);
        if second != self.second {
            let fewer = self.shares.seed.sip(&[second, NOISE]) % u64::from(self.per_second / 2 + 1);
            (self.second, self.left) = (second, self.per_second - fewer as u32);
        }
        let is_there = self.left > 0 && self.shares.take(peer.to_bits().into(), self.per_second.div_ceil(4), now);
        self.left -= u32::from(is_there);
        is_there
    }
}

/// The shares of remote hosts in this second.
pub type PeerShares = Shares<64>;

/// The shares used in this second, indexed by a hash of the owner's number. Two owners may share a
/// counter; the pairs change every second, and no owner can know them.
#[derive(Clone, Copy, Debug)]
pub struct Shares<const PLACES: usize> {
    seed: HashSeed,
    second: u64,
    had: [u32; PLACES],
}

/// Not the number of any second.
const NOISE: u64 = u64::MAX;

impl<const PLACES: usize> Shares<PLACES> {
    /// Without used shares.
    pub fn new(seed: HashSeed) -> Self {
        Self { seed, second: u64::MAX, had: [0; PLACES] }
    }

    /// Takes one of the `share` that `whose` has in a second; false where the share is used up.
    pub fn take(&mut self, whose: u64, share: u32, now: Instant) -> bool {
        let had = self.had(whose, now);
        let is_there = *had < share;
        *had += u32::from(is_there);
        is_there
    }

    /// Whether the `share` that `whose` has in a second is used up. Takes none.
    pub fn is_used_up(&mut self, whose: u64, share: u32, now: Instant) -> bool {
        *self.had(whose, now) >= share
    }

    fn had(&mut self, whose: u64, now: Instant) -> &mut u32 {
        let second = second(now);
        if second != self.second {
            (self.second, self.had) = (second, [0; PLACES]);
        }
        &mut self.had[self.seed.sip(&[second, whose]) as usize % PLACES]
    }
}

/// Units of 2^30 ns, a little more than a second.
fn second(now: Instant) -> u64 {
    now.as_nanos() >> 30
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    /// The number of `attempts` at `now` that succeed.
    fn taken(bucket: &mut TokenBucket, now: Instant, attempts: usize) -> usize {
        (0..attempts).filter(|_| bucket.take(now)).count()
    }

    #[test]
    fn full_bucket_gives_its_burst_and_no_more() {
        let mut bucket = TokenBucket::new(1000, 10);
        assert!(!bucket.is_empty(Instant::ZERO));
        assert_eq!(taken(&mut bucket, Instant::ZERO, 100), 10);
        assert!(bucket.is_empty(Instant::ZERO) && !bucket.is_empty(Instant::from_nanos(1_000_000)));
        assert_eq!(taken(&mut bucket, Instant::ZERO + Duration::from_nanos(999_999), 100), 0);
    }

    #[test]
    fn tokens_come_back_one_an_interval_and_never_more_than_the_burst() {
        let mut bucket = TokenBucket::new(1000, 10);
        let mut now = Instant::from_nanos(77);
        assert_eq!(taken(&mut bucket, now, 100), 10);
        now += Duration::from_millis(3);
        assert_eq!(taken(&mut bucket, now, 100), 3);
        now += Duration::from_secs(3600);
        assert_eq!(taken(&mut bucket, now, 100), 10);
    }

    fn peer(idx: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, idx)
    }

    /// The number of answers that one peer gets in each of ten seconds, when `others` answers went
    /// to other peers before.
    fn answers_after(others: u32) -> Vec<usize> {
        let mut limit = PeerLimit::new(1_000, HashSeed::new(1, 2));
        (0..10_u64)
            .map(|second| {
                let now = Instant::from_nanos(second << 30);
                (0..others).for_each(|_| _ = limit.take(peer(9), now));
                (0..1_000).filter(|_| limit.take(peer(1), now)).count()
            })
            .collect()
    }

    #[test]
    fn limit_does_not_reveal_how_many_errors_others_received() {
        assert_eq!(answers_after(0), [250; 10]);
        assert_eq!(answers_after(0), answers_after(200));
    }

    #[test]
    fn limit_of_all_is_another_in_each_second_and_never_more_than_was_said() {
        let mut limit = PeerLimit::new(1_000, HashSeed::new(1, 2));
        let counts: Vec<_> = (0..20_u64)
            .map(|second| {
                let now = Instant::from_nanos(second << 30);
                (0..10_000).filter(|idx| limit.take(peer((idx % 200) as u8), now)).count()
            })
            .collect();
        assert!(counts.iter().all(|count| (500..=1_000).contains(count)), "{counts:?}");
        let different: std::collections::HashSet<_> = counts.iter().collect();
        assert!(different.len() > 10, "{counts:?}");
    }

    #[test]
    fn limit_of_one_gives_one() {
        let mut limit = PeerLimit::new(1, HashSeed::new(1, 2));
        let taken = [1, 2].map(|idx| limit.take(peer(idx), Instant::ZERO));
        assert_eq!((taken, limit.take(peer(3), Instant::from_nanos(1 << 30))), ([true, false], true));
    }

    #[test]
    fn bucket_of_unknown_depth_keeps_its_rate() {
        let mut bucket = TokenBucket::new(1_000, 50);
        let seed = HashSeed::new(1, 2);
        let mut count = 0;
        let first = (0..200_u64).filter(|idx| bucket.take_about_one(Instant::ZERO, seed.sip(&[*idx]))).count();
        for ms in 1..10_000_u64 {
            let now = Instant::from_nanos(ms * 1_000_000);
            count += (0..3_u64).filter(|idx| bucket.take_about_one(now, seed.sip(&[ms, *idx]))).count();
        }
        assert!(first != 50 && (30..80).contains(&first), "{first}");
        assert!((9_000..20_000).contains(&count), "{count}");
    }

    #[test]
    fn asking_in_vain_costs_no_token() {
        let mut bucket = TokenBucket::new(1, 1);
        assert_eq!(taken(&mut bucket, Instant::ZERO, 1_000_000), 1);
        assert!(bucket.take(Instant::from_nanos(1_000_000_000)));
    }

    #[test]
    fn long_run_keeps_the_rate() {
        let mut bucket = TokenBucket::new(250, 5);
        let count: usize = (0..10_000).map(|ms| taken(&mut bucket, Instant::from_nanos(ms * 1_000_000), 1)).sum();
        assert_eq!(count, 2500 + 4);
    }

    #[test]
    fn end_of_time_does_not_overflow() {
        let mut bucket = TokenBucket::new(1, u32::MAX);
        assert!(bucket.take(Instant::MAX) && bucket.take(Instant::MAX));
    }
}
