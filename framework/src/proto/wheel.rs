//! The deadlines of connections: a hierarchical timer wheel (Varghese and Lauck 1987). The cost of
//! setting, moving and clearing does not depend on the number of connections, nor does the cost of
//! advancing time while nothing is due.
//!
//! ```text
//!  level 0   256 slots of a tick, 262 µs        the next 67 ms
//!  level 1   256 slots of 256 ticks             the next 17 s
//!  level 2   …                                  the next 73 min
//!  level 3   …                                  6 days, of the 12 that it could
//! ```
//!
//! Empty slots are skipped on the highest level that has nothing there, so a clock that jumps by
//! hours costs no more than one that moves by a tick. Entries of a level whose time has come are
//! sorted into the levels below one by one, within the budget of the call; many at once delay only
//! each other.
//!
//! An entry is a number below the capacity, with one deadline. A deadline is rounded up to a tick,
//! so an entry is late by a tick at most plus the caller's poll interval. It fires early only where
//! the deadline is more than six days away; the caller then compares the time and sets it again.

use crate::proto::slab::NIL;
use crate::proto::{Madvise, allocate_table};
use crate::time::Instant;

/// The length of a tick, as a power of two of nanoseconds: 262 µs, a quarter of the millisecond
/// that we promise. With shorter ticks entries would cascade more often.
const TICK_SHIFT: u32 = 18;
/// Ticks that a deadline may lie ahead.
const AHEAD_MAX: u64 = 1 << 31;
const LEVELS: usize = 4;
const SLOT_BITS: u32 = 8;
const SLOTS: usize = 1 << SLOT_BITS;

/// Deadlines of numbered entries.
#[derive(Debug)]
pub(super) struct Wheel {
    /// First entry of each slot.
    heads: Box<[u32]>,
    /// Slots that are not empty, a bit each.
    occupied: [u64; LEVELS * SLOTS / 64],
    links: Box<[WheelNode]>,
    /// The next tick to process: earlier ones are done.
    tick: u64,
    /// No entry has an earlier tick. While a tick is being processed, only the entries that were in
    /// it are returned, and none is added to it. So an entry that sets itself again in the past
    /// blocks no other.
    earliest: u64,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct WheelNode {
    next: u32,
    prev: u32,
    /// Level and slot, or `NIL`.
    place: u32,
    /// The low half of its tick. 2^31 ticks are six days and a half.
    due: u32,
}

impl Wheel {
    /// For entries below `capacity`; memory is allocated here, and passed to `advise`.
    pub(super) fn new(capacity: usize, advise: Madvise) -> Self {
        Self {
            heads: vec![NIL; LEVELS * SLOTS].into_boxed_slice(),
            occupied: [0; LEVELS * SLOTS / 64],
            links: allocate_table(capacity, advise, |_| WheelNode { next: NIL, prev: NIL, place: NIL, due: 0 }),
            tick: 0,
            earliest: 0,
            len: 0,
        }
    }

    /// Bytes of an entry.
    pub(super) const ENTRY_LEN: usize = size_of::<WheelNode>();
    /// Nanoseconds of a tick.
    pub(super) const TICK_NS: u64 = 1 << TICK_SHIFT;

    /// The tick at which a deadline is due: its low half.
    #[inline]
    pub(super) const fn tick_of(deadline: Instant) -> u32 {
        deadline.as_nanos().div_ceil(Self::TICK_NS) as u32
    }

    /// The tick that has begun at a time: its low half.
    #[inline]
    pub(super) const fn floor_tick_of(at: Instant) -> u32 {
        (at.as_nanos() >> TICK_SHIFT) as u32
    }

    /// The address of an entry, for a prefetch.
    #[inline(always)]
    pub(super) fn address(&self, entry: u32) -> *const u8 {
        self.links.as_ptr().wrapping_add(entry as usize).cast()
    }

    /// Whether no entry has a deadline.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tick at which an entry is due, where it has a deadline.
    pub(super) fn due(&self, entry: u32) -> Option<u32> {
        self.is_set(entry).then(|| self.links[entry as usize].due)
    }

    /// Whether a tick is processed with the next step, or is overdue.
    pub(super) fn is_next(&self, tick: u32) -> bool {
        (tick.wrapping_sub(self.earliest.max(self.tick) as u32) as i32) <= 0
    }

    /// Whether each entry is in one slot, the one that it records, and all are counted. Walks over
    /// all: for tests.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let mut found = 0;
        for place in 0..LEVELS * SLOTS {
            let (mut entry, mut prev) = (self.heads[place], NIL);
            if (entry != NIL) != (self.occupied[place / 64] >> (place % 64) & 1 != 0) {
                return Err("a slot of the wheel and its bit do not agree");
            }
            while entry != NIL {
                let link = &self.links[entry as usize];
                found += 1;
                if link.place != place as u32 || link.prev != prev || found > self.len {
                    return Err("an entry of the wheel stands in two slots, or in none");
                }
                (prev, entry) = (entry, link.next);
            }
        }
        let placed = self.links.iter().filter(|link| link.place != NIL).count();
        if found == self.len && placed == found { Ok(()) } else { Err("the wheel has lost an entry") }
    }

    /// Whether the entry has a deadline.
    pub(super) fn is_set(&self, entry: u32) -> bool {
        self.links[entry as usize].place != NIL
    }

    /// Sets or moves the deadline of an entry.
    pub(super) fn set(&mut self, entry: u32, deadline: Instant) {
        let earliest = self.earliest.max(self.tick);
        let due = deadline.as_nanos().div_ceil(1 << TICK_SHIFT).clamp(earliest, self.tick + AHEAD_MAX);
        self.clear(entry);
        self.place(entry, due);
        self.len += 1;
    }

    /// Clears a deadline.
    pub(super) fn clear(&mut self, entry: u32) {
        if self.is_set(entry) {
            self.unlink(entry);
            self.len -= 1;
        }
    }

    /// Whether a tick has begun that was not processed yet.
    #[inline(always)]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.tick <= now.as_nanos() >> TICK_SHIFT
    }

    /// No entry is due before this time: the start of the next tick that was not processed yet.
    pub(super) fn next_look(&self) -> Instant {
        Instant::from_nanos(self.tick << TICK_SHIFT)
    }

    /// When [`take_due`](Self::take_due) has something to do next: an entry is due, or is sorted
    /// into a lower level, which happens at most three times for each. `Instant::MAX` where there
    /// is no entry. Reads up to sixteen words.
    pub(super) fn next_deadline(&self) -> Instant {
        if self.len == 0 {
            return Instant::MAX;
        }
        let is_now = self.heads[self.tick as usize % SLOTS] != NIL || self.tick.is_multiple_of(SLOTS as u64);
        let tick = if is_now { self.tick } else { self.next_tick() };
        Instant::from_nanos(tick.saturating_mul(Self::TICK_NS))
    }

    /// An entry whose deadline has passed; the deadline is cleared. A check of a slot and a step of
    /// an entry take one of `budget` each: `None` means that all due entries were returned, or that
    /// the budget is used up and the next call continues.
    #[inline]
    pub(super) fn take_due(&mut self, now: Instant, budget: &mut u32) -> Option<u32> {
        if self.is_due(now) { self.advance(now.as_nanos() >> TICK_SHIFT, budget) } else { None }
    }

    #[inline(never)]
    fn advance(&mut self, now: u64, budget: &mut u32) -> Option<u32> {
        while self.tick <= now {
            if self.len == 0 {
                self.tick = now + 1;
                return None;
            }
            if self.tick.is_multiple_of(SLOTS as u64) && !self.cascade(budget) {
                return None;
            }
            *budget = budget.checked_sub(1)?;
            let entry = self.heads[self.tick as usize % SLOTS];
            if entry != NIL {
                self.clear(entry);
                self.earliest = self.tick + 1;
                return Some(entry);
            }
            self.tick = self.next_tick().min(now + 1);
        }
        None
    }

    /// Moves the entries of higher levels that belong to the turn beginning with this tick into
    /// lower levels. False where the budget is used up.
    #[inline(never)]
    fn cascade(&mut self, budget: &mut u32) -> bool {
        for level in 1..LEVELS {
            let slot = self.slot_now(level);
            loop {
                let entry = self.heads[level * SLOTS + slot];
                if entry == NIL {
                    break;
                }
                let Some(left) = budget.checked_sub(1) else { return false };
                *budget = left;
                self.unlink(entry);
                self.place(entry, self.tick + u64::from(self.links[entry as usize].due.wrapping_sub(self.tick as u32)));
            }
            // Within a turn of this level, the level above has no entries to move.
            if slot != 0 {
                break;
            }
        }
        true
    }

    /// The slot of a level that the present is in.
    fn slot_now(&self, level: usize) -> usize {
        (self.tick >> (SLOT_BITS * level as u32)) as usize % SLOTS
    }

    /// The next tick at which an entry is due or must move down. Before the end of a turn of one
    /// level, no entry of the levels above is due or must move, so an entry found on the lowest
    /// level comes first.
    fn next_tick(&self) -> u64 {
        for level in 0..LEVELS {
            let shift = SLOT_BITS * level as u32;
            let turn = self.tick >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
            if let Some(slot) = self.next_occupied(level, self.slot_now(level) + 1) {
                return turn + ((slot as u64) << shift);
            }
            if level == LEVELS - 1 {
                // The highest level wraps: entries before the present belong to its next turn.
                let slot = self.next_occupied(level, 0).unwrap_or(0);
                return turn + (1 << (shift + SLOT_BITS)) + ((slot as u64) << shift);
            }
        }
        unreachable!("the last level returns")
    }

    fn next_occupied(&self, level: usize, from: usize) -> Option<usize> {
        let words = &self.occupied[level * SLOTS / 64..][..SLOTS / 64];
        let mut idx = from / 64;
        let mut word = *words.get(idx)? & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                return Some(idx * 64 + word.trailing_zeros() as usize);
            }
            idx += 1;
            word = *words.get(idx)?;
        }
    }

    /// Puts an entry into the slot of its deadline.
    #[inline]
    fn place(&mut self, entry: u32, due: u64) {
        // The level on which the two ticks differ, so that the slot's time comes when the level
        // below begins anew.
        let apart = (due ^ self.tick) >> SLOT_BITS;
        let level = (u64::BITS - apart.leading_zeros()).div_ceil(SLOT_BITS);
        // Around the end of the top level the two differ above it: the slot is still in the future.
        let level = level.min(LEVELS as u32 - 1);
        let slot = (due >> (SLOT_BITS * level)) as usize % SLOTS;
        let place = level as usize * SLOTS + slot;
        let next = core::mem::replace(&mut self.heads[place], entry);
        self.links[entry as usize] = WheelNode { next, prev: NIL, place: place as u32, due: due as u32 };
        if next != NIL {
            self.links[next as usize].prev = entry;
        }
        self.occupied[place / 64] |= 1 << (place % 64);
    }

    #[inline]
    fn unlink(&mut self, entry: u32) {
        let link = &mut self.links[entry as usize];
        let WheelNode { next, prev, place, .. } = *link;
        link.place = NIL;
        if next != NIL {
            self.links[next as usize].prev = prev;
        }
        if prev != NIL {
            self.links[prev as usize].next = next;
            return;
        }
        self.heads[place as usize] = next;
        if next == NIL {
            self.occupied[place as usize / 64] &= !(1 << (place % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use proptest::prelude::*;

    use super::*;
    use crate::proto::without_madvise;
    use crate::time::Duration;

    const TICK: u64 = 1 << TICK_SHIFT;

    fn drain(wheel: &mut Wheel, now: Instant) -> Vec<u32> {
        let mut budget = u32::MAX;
        core::iter::from_fn(|| wheel.take_due(now, &mut budget)).collect()
    }

    #[test]
    fn entry_is_due_at_its_deadline_and_not_before() {
        let mut wheel = Wheel::new(1, without_madvise);
        for (ms, from) in [(1, 0), (50, 1), (100, 60), (20_000, 200), (5_000_000, 30_000)] {
            let deadline = Instant::ZERO + Duration::from_millis(ms);
            drain(&mut wheel, Instant::ZERO + Duration::from_millis(from));
            wheel.set(0, deadline);
            assert!(drain(&mut wheel, Instant::from_nanos(deadline.as_nanos() - 1)).is_empty(), "{ms} ms early");
            assert_eq!(drain(&mut wheel, deadline + Duration::from_nanos(TICK)), [0], "{ms} ms");
        }
    }

    #[test]
    fn deadline_beyond_six_days_comes_early_and_is_set_again() {
        let mut wheel = Wheel::new(1, without_madvise);
        let deadline = Instant::ZERO + Duration::from_secs(8 * 86_400);
        let mut now = Instant::ZERO;
        let mut looks = 0;
        while now < deadline {
            wheel.set(0, deadline);
            while drain(&mut wheel, now).is_empty() {
                now += Duration::from_secs(3_600);
            }
            looks += 1;
        }
        assert!((2..4).contains(&looks), "{looks}");
    }

    #[test]
    fn clock_that_jumps_by_days_costs_a_few_looks() {
        let mut wheel = Wheel::new(2, without_madvise);
        let days = |days: u64| Instant::ZERO + Duration::from_secs(days * 86_400);
        for day in [1, 5, 9, 40, 41, 400] {
            wheel.set(0, days(day) + Duration::from_secs(7_200));
            wheel.set(1, days(day) + Duration::from_secs(4 * 86_400));
            let mut budget = 16;
            let taken: Vec<u32> = core::iter::from_fn(|| wheel.take_due(days(day + 1), &mut budget)).collect();
            assert!(budget > 0 && taken.contains(&0), "day {day}: {taken:?}, {budget} left");
        }
    }

    #[test]
    fn many_entries_of_one_slot_are_sorted_in_within_the_budget() {
        let mut wheel = Wheel::new(1000, without_madvise);
        let deadline = Instant::ZERO + Duration::from_secs(30);
        (0..1000).for_each(|entry| wheel.set(entry, deadline));
        let (mut taken, mut calls) = (0, 0);
        while taken < 1000 {
            let mut budget = 64;
            let before = taken;
            while wheel.take_due(deadline + Duration::from_nanos(TICK), &mut budget).is_some() {
                taken += 1;
            }
            assert!(taken - before <= 64);
            calls += 1;
        }
        assert!((3_000 / 64..3_000 / 64 + 10).contains(&calls), "sorted in twice, and taken: {calls}");
    }

    #[test]
    fn entries_that_set_themselves_again_in_the_past_stop_no_others() {
        let mut wheel = Wheel::new(3, without_madvise);
        let [past, other, now] = [250, 260, 270].map(|tick| Instant::from_nanos(tick * TICK));
        [past, past, other].into_iter().zip(0..).for_each(|(at, entry)| wheel.set(entry, at));
        let (mut budget, mut others) = (256, 0);
        while let Some(entry) = wheel.take_due(now, &mut budget) {
            match entry {
                2 => others += 1,
                _ => wheel.set(entry, past),
            }
        }
        assert!(others == 1 && budget > 0 && !wheel.is_due(now), "{others}, {budget} left");
        assert_eq!(wheel.check(), Ok(()));
    }

    #[test]
    fn work_of_a_call_is_bounded_by_its_budget() {
        let mut wheel = Wheel::new(1, without_madvise);
        wheel.set(0, Instant::from_nanos(3_000 * TICK));
        let now = Instant::from_nanos(4_000 * TICK);
        assert_eq!(wheel.take_due(now, &mut 2), None);
        assert_eq!(
            core::iter::from_fn(|| Some(wheel.take_due(now, &mut 2))).take(20).flatten().collect::<Vec<_>>(),
            [0]
        );
    }

    /// Fifths of a tick to a deadline: mostly seconds, sometimes days.
    fn span() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0u64..400_000, 2 => 0u64..400_000_000, 1 => 0u64..10_000_000_000]
    }

    /// Thirds of a tick between two polls.
    fn step() -> impl Strategy<Value = u64> {
        prop_oneof![6 => 0u64..3_000, 2 => 0u64..3_000_000, 1 => 0u64..6_000_000_000]
    }

    proptest! {
        /// The model is a list that is searched.
        #[test]
        fn due_entries_are_those_whose_deadline_passed(
            steps in prop::collection::vec((0u32..32, span(), step(), any::<bool>()), 1..200)
        ) {
            let (mut wheel, mut model, mut now) = (Wheel::new(32, without_madvise), [None::<u64>; 32], 0u64);
            for (entry, span, step, clear) in steps {
                now += step * TICK / 3;
                let mut due = drain(&mut wheel, Instant::from_nanos(now));
                due.sort_unstable();
                let passed = |at: &Option<u64>| at.is_some_and(|at| at.div_ceil(TICK) <= now / TICK);
                let wanted: Vec<u32> = (0..32).filter(|&idx| passed(&model[idx as usize])).collect();
                prop_assert_eq!(&due, &wanted);
                due.iter().for_each(|&idx| model[idx as usize] = None);
                if clear {
                    wheel.clear(entry);
                    model[entry as usize] = None;
                } else {
                    let at = now + span * TICK / 5;
                    wheel.set(entry, Instant::from_nanos(at));
                    // An entry that is due now is returned by the next call, also where its tick
                    // was processed already.
                    model[entry as usize] = Some(at.max((now / TICK + 1) * TICK));
                }
            }
        }
    }
}
