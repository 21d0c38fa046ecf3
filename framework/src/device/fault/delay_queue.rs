//! Frames that are held back, until their time or until enough others have overtaken them.

use super::frame_faults::Hold;
use crate::time::{Duration, Instant};

/// Maximum number of frames held back; a further frame passes at once. Held frames occupy buffers
/// of the pool.
pub(super) const HELD_BACK_MAX: usize = 128;

pub(super) struct DelayQueue<T> {
    waiting: Vec<Waiting<T>>,
}

struct Waiting<T> {
    frame: T,
    /// The latest time to leave.
    due: Instant,
    /// Leaves when this many frames have been seen in all; `None` if it waits for time only.
    overtaken_at: Option<u64>,
}

impl<T> DelayQueue<T> {
    pub(super) fn new() -> Self {
        Self { waiting: Vec::with_capacity(HELD_BACK_MAX) }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() == HELD_BACK_MAX
    }

    /// Holds back `frame`, which was number `seen` (counted from 1) and arrived at `now`. The
    /// caller has checked that there is room. [`Hold::No`] leaves at the next opportunity.
    pub(super) fn push(&mut self, frame: T, hold: Hold, now: Instant, seen: u64, wait_max: Duration) {
        debug_assert!(!self.is_full(), "held back more frames than there is room for");
        let (due, overtaken_at) = match hold {
            Hold::No => (Instant::ZERO, None),
            Hold::For(delay) => (now + delay, None),
            Hold::Behind(frames) => (now + wait_max, Some(seen.saturating_add(frames.into()))),
        };
        self.waiting.push(Waiting { frame, due, overtaken_at });
    }

    /// A frame that may leave; of several frames the one due first. `is_last` means that no other
    /// frame will overtake it.
    pub(super) fn take_due(&mut self, now: Instant, seen: u64, is_last: bool) -> Option<T> {
        let may_leave = |waiting: &Waiting<T>| {
            waiting.due <= now || waiting.overtaken_at.is_some_and(|overtaken_at| is_last || seen >= overtaken_at)
        };
        let waiting = self.waiting.iter().enumerate().filter(|(_, waiting)| may_leave(waiting));
        let (idx, _) = waiting.min_by_key(|(_, waiting)| waiting.due)?;
        Some(self.waiting.remove(idx).frame)
    }

    /// Removes any frame, to let it leave.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.waiting.pop().map(|waiting| waiting.frame)
    }
}
