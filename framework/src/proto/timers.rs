//! Timers of an application: each expires once, returns a token that the app chose, and may be
//! canceled before.
//!
//! The input is delays and the time of each turn; the output is tokens, in the order of their
//! deadlines to within a tick. They use TCP's timer wheel, so the cost of setting and cancelling
//! does not depend on the number of timers, and a turn in which nothing is due costs a compare.

use super::alloc::without_madvise;
use super::slab::Slab;
use super::wheel::Wheel;
use crate::time::{Duration, Instant};

/// Timers that run at the same time by default: 64 bytes each.
pub(crate) const TIMERS_MAX: usize = 1_024;
/// Timers that one turn processes. The others follow in the next.
const BUDGET: u32 = 64;

/// Names a running timer until it expires or is canceled, and nothing after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    slot: u32,
    generation: u32,
}

impl TimerId {
    /// The name as a number, for callers in another language. Never 0.
    pub fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | (u64::from(self.slot) + 1)
    }

    /// The name that [`to_bits`](Self::to_bits) made a number of. Any other number names no timer,
    /// or one that runs and has these bits.
    pub fn from_bits(bits: u64) -> Self {
        Self { slot: (bits as u32).wrapping_sub(1), generation: (bits >> 32) as u32 }
    }
}

/// All timers are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimersFull {
    /// Their number.
    pub limit: usize,
}

impl core::fmt::Display for TimersFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "all {} timers of the worker run: cancel those that are not needed, or give it more", self.limit)
    }
}

impl core::error::Error for TimersFull {}

/// The timers of one worker.
#[derive(Debug)]
pub struct Timers {
    wheel: Wheel,
    timers: Slab<Timer>,
    generation: u32,
    limit: usize,
    /// Nothing is due before: a turn compares two numbers.
    quiet_until: Instant,
    /// The owner of timers that are set now, and the owner of the one that expired last.
    owner: u32,
    due_owner: u32,
}

#[derive(Debug)]
struct Timer {
    token: u64,
    generation: u32,
    owner: u32,
    deadline: Instant,
}

impl Timers {
    /// A set of at most `limit` timers; allocates its memory here.
    pub fn new(limit: usize) -> Self {
        Self {
            wheel: Wheel::new(limit, without_madvise),
            timers: Slab::new(limit),
            generation: 0,
            limit,
            quiet_until: Instant::MAX,
            owner: 0,
            due_owner: 0,
        }
    }

    /// Returns `token` `delay` from now: not earlier, and later by 262 µs at most plus the interval
    /// of turns.
    ///
    /// # Errors
    /// All timers are in use.
    pub fn after(&mut self, now: Instant, delay: Duration, token: u64) -> Result<TimerId, TimersFull> {
        self.generation = self.generation.wrapping_add(1);
        let (generation, deadline) = (self.generation, now + delay);
        let timer = Timer { token, generation, owner: self.owner, deadline };
        let slot = self.timers.insert(timer).map_err(|_| TimersFull { limit: self.limit })?;
        self.wheel.set(slot, deadline);
        self.quiet_until = self.quiet_until.min(deadline);
        Ok(TimerId { slot, generation })
    }

    /// Cancels a timer. False where it expired or was canceled before.
    pub fn cancel(&mut self, id: TimerId) -> bool {
        if self.timers.get(id.slot).is_none_or(|timer| timer.generation != id.generation) {
            return false;
        }
        self.wheel.clear(id.slot);
        self.timers.remove(id.slot);
        true
    }

    /// Timers set from now on belong to this one of several apps; returns the previous owner. 0
    /// where there is one app.
    #[inline]
    pub fn set_owner(&mut self, owner: u32) -> u32 {
        core::mem::replace(&mut self.owner, owner)
    }

    /// The owner of the timer that [`take_due`](Self::take_due) returned last.
    pub fn due_owner(&self) -> u32 {
        self.due_owner
    }

    /// Whether one may be due: a compare.
    #[inline(always)]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.quiet_until
    }

    /// A budget for the timers of one turn, for [`take_due`](Self::take_due).
    pub fn budget() -> u32 {
        BUDGET
    }

    /// The token of a timer that has expired, and is removed. `None` where there is no other, or
    /// where `budget` is used up.
    pub fn take_due(&mut self, now: Instant, budget: &mut u32) -> Option<u64> {
        while let Some(slot) = self.wheel.take_due(now, budget) {
            // The wheel fires early where a deadline is more than six days away.
            match self.timers.get(slot) {
                Some(timer) if timer.deadline > now => self.wheel.set(slot, timer.deadline),
                _ => {
                    let timer = self.timers.remove(slot)?;
                    self.due_owner = timer.owner;
                    return Some(timer.token);
                }
            }
        }
        // With a budget that is used up, the next turn continues.
        self.quiet_until = if self.is_empty() { Instant::MAX } else { self.wheel.next_look() };
        None
    }

    /// When the next one may be due, not later; `Instant::MAX` where none runs.
    pub fn next_deadline(&self) -> Instant {
        self.wheel.next_deadline()
    }

    /// Timers that run.
    pub fn len(&self) -> usize {
        self.limit - self.timers.free_count()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn due(timers: &mut Timers, now: Instant) -> Vec<u64> {
        let mut budget = Timers::budget();
        core::iter::from_fn(|| timers.take_due(now, &mut budget)).collect()
    }

    #[test]
    fn timer_is_due_once_and_not_before_its_time() {
        let mut timers = Timers::new(2);
        timers.after(at(5), Duration::from_millis(10), 7).unwrap();
        assert!(due(&mut timers, at(14)).is_empty());
        assert_eq!(due(&mut timers, at(16)), [7]);
        assert!(due(&mut timers, at(1_000)).is_empty() && timers.is_empty());
    }

    #[test]
    fn canceled_timer_never_comes_and_its_name_is_nobodys() {
        let mut timers = Timers::new(1);
        let first = timers.after(at(0), Duration::from_millis(1), 1).unwrap();
        assert!(timers.cancel(first) && !timers.cancel(first));
        let second = timers.after(at(0), Duration::from_millis(1), 2).unwrap();
        assert!(!timers.cancel(first), "the name of an earlier timer in the same place");
        assert_eq!(due(&mut timers, at(2)), [2]);
        assert!(!timers.cancel(second));
    }

    #[test]
    fn one_timer_more_than_there_may_be_is_refused() {
        let mut timers = Timers::new(1);
        timers.after(at(0), Duration::from_millis(1), 1).unwrap();
        assert_eq!(timers.after(at(0), Duration::from_millis(1), 2), Err(TimersFull { limit: 1 }));
        assert_eq!(due(&mut timers, at(2)), [1]);
    }

    #[test]
    fn delay_beyond_the_wheel_is_kept() {
        let mut timers = Timers::new(1);
        let days = |days: u64| at(days * 24 * 3_600 * 1_000);
        timers.after(at(0), Duration::from_secs(20 * 24 * 3_600), 9).unwrap();
        for day in 1..20 {
            assert!(due(&mut timers, days(day)).is_empty(), "day {day}");
        }
        assert_eq!(due(&mut timers, days(20) + Duration::from_millis(1)), [9]);
    }

    #[test]
    fn one_turn_takes_a_bounded_number() {
        let mut timers = Timers::new(1_000);
        (0..1_000).for_each(|token| _ = timers.after(at(0), Duration::from_millis(1), token).unwrap());
        let taken = due(&mut timers, at(2)).len();
        assert!((1..=BUDGET as usize).contains(&taken), "{taken}");
        let mut all = taken;
        while timers.is_due(at(2)) {
            all += due(&mut timers, at(2)).len();
        }
        assert_eq!(all, 1_000);
    }
}
