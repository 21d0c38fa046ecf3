//! One timer for each queue pair: a heap of deadlines.
//!
//! A deadline that moves later stays where it is, and is looked at again when it is reached: an
//! acknowledgment costs no work here, and a timer that fires early is put back.

/// A deadline that is never reached.
pub(super) const NEVER: u64 = u64::MAX;

/// The deadlines of all queue pairs, the earliest first.
pub(super) struct Timers {
    /// A heap by time.
    heap: Vec<Entry>,
    /// Where each queue pair stands in the heap, or [`ABSENT`].
    places: Box<[u32]>,
}

#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    idx: u32,
}

const ABSENT: u32 = u32::MAX;

impl Timers {
    pub(super) fn new(capacity: u32) -> Self {
        let places = vec![ABSENT; capacity as usize].into();
        Self { heap: Vec::with_capacity(capacity as usize), places }
    }

    /// Has the timer of a queue pair fire at `deadline`, or earlier where an earlier time stands.
    #[inline]
    pub(super) fn arm(&mut self, idx: u32, deadline: u64) {
        if deadline == NEVER {
            return;
        }
        match self.places[idx as usize] {
            ABSENT => {
                self.places[idx as usize] = self.heap.len() as u32;
                self.heap.push(Entry { at: deadline, idx });
                self.rise(self.heap.len() - 1);
            }
            place if self.heap[place as usize].at > deadline => {
                self.heap[place as usize].at = deadline;
                self.rise(place as usize);
            }
            _ => {}
        }
    }

    /// The earliest time; at it there may be nothing to do.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Takes a queue pair whose time is reached.
    pub(super) fn pop(&mut self, now: u64) -> Option<u32> {
        let first = *self.heap.first().filter(|entry| entry.at <= now)?;
        self.remove(first.idx);
        Some(first.idx)
    }

    /// Stops the timer of a queue pair.
    pub(super) fn remove(&mut self, idx: u32) {
        let place = core::mem::replace(&mut self.places[idx as usize], ABSENT);
        if place == ABSENT {
            return;
        }
        let Some(last) = self.heap.pop() else { return };
        if let Some(hole) = self.heap.get_mut(place as usize) {
            *hole = last;
            self.places[last.idx as usize] = place;
            self.rise(place as usize);
            self.sink(place as usize);
        }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.heap[place].at < self.heap[(place - 1) / 2].at {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = (2 * place + 1..self.heap.len()).take(2);
            let Some(child) = children.min_by_key(|child| self.heap[*child].at) else { return };
            if self.heap[child].at >= self.heap[place].at {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.places[self.heap[one].idx as usize] = one as u32;
        self.places[self.heap[other].idx as usize] = other as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn timers_fire_in_order_each_once(deadlines: [Option<u16>; 20], removed in 0_u32..20, earlier in 0_u32..20) {
            let mut timers = Timers::new(20);
            let mut model: Vec<(u64, u32)> = Vec::new();
            for (idx, deadline) in (0..).zip(deadlines) {
                let Some(deadline) = deadline else { continue };
                timers.arm(idx, u64::from(deadline));
                timers.arm(idx, u64::from(deadline) + 5);
                model.push((u64::from(deadline), idx));
            }
            timers.remove(removed);
            model.retain(|(_, idx)| *idx != removed);
            timers.arm(earlier, 0);
            model.retain(|(_, idx)| *idx != earlier);
            model.push((0, earlier));
            model.sort_unstable();
            let mut last = 0;
            for _ in 0..model.len() {
                let next = timers.next().unwrap();
                prop_assert!(next >= last);
                last = next;
                let idx = timers.pop(next).unwrap();
                prop_assert!(model.contains(&(next, idx)));
            }
            prop_assert_eq!((timers.next(), timers.pop(u64::MAX)), (None, None));
        }
    }
}
