//! The deadlines of all channels' open holes. A turn without an expired one reads one value,
//! however many channels there are.

/// No hole is open.
const NEVER_NS: u64 = u64::MAX;

pub(super) struct Deadlines {
    /// No deadline is earlier. A hole that was filled leaves its deadline behind, until a turn
    /// reads all of them.
    least_ns: u64,
    of_channels: Vec<u64>,
}

impl Deadlines {
    /// With room for `channels_max` channels.
    pub(super) fn new(channels_max: usize) -> Self {
        Self { least_ns: NEVER_NS, of_channels: Vec::with_capacity(channels_max) }
    }

    /// One more channel, which has no hole.
    pub(super) fn push(&mut self) {
        self.of_channels.push(NEVER_NS);
    }

    /// The channel has a hole.
    #[inline]
    pub(super) fn note(&mut self, idx: usize, deadline_ns: u64) {
        self.of_channels[idx] = deadline_ns;
        self.least_ns = self.least_ns.min(deadline_ns);
    }

    /// Whether a hole may have expired.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.least_ns <= now_ns
    }

    /// Calls `expire` for each channel whose hole may have expired; `expire` returns the channel's
    /// new deadline.
    #[cold]
    pub(super) fn expire(&mut self, now_ns: u64, mut expire: impl FnMut(usize) -> Option<u64>) {
        self.least_ns = NEVER_NS;
        for (idx, deadline_ns) in self.of_channels.iter_mut().enumerate() {
            if *deadline_ns <= now_ns {
                *deadline_ns = expire(idx).unwrap_or(NEVER_NS);
            }
            self.least_ns = self.least_ns.min(*deadline_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_channels_whose_time_is_over_are_looked_at() {
        let mut deadlines = Deadlines::new(3);
        (0..3).for_each(|_| deadlines.push());
        assert!(!deadlines.is_due(u64::MAX - 1));
        deadlines.note(2, 100);
        deadlines.note(0, 50);
        assert!(!deadlines.is_due(49) && deadlines.is_due(50));
        let mut looked = Vec::new();
        deadlines.expire(60, |idx| {
            looked.push(idx);
            None
        });
        assert_eq!(looked, [0]);
        assert!(!deadlines.is_due(99) && deadlines.is_due(100));
    }

    #[test]
    fn hole_that_was_filled_costs_one_look_and_the_next_one_keeps_its_time() {
        let mut deadlines = Deadlines::new(1);
        deadlines.push();
        deadlines.note(0, 50);
        deadlines.expire(50, |_| Some(80));
        assert!(!deadlines.is_due(79) && deadlines.is_due(80));
        deadlines.expire(80, |_| None);
        assert!(!deadlines.is_due(u64::MAX - 1));
    }
}
