//! Packet pacing: a sending queue waits so long after each frame that it keeps its rate
//! (mlx5.md 1.1 step 11).

/// When a queue may send again. Without a rate it always may.
#[derive(Debug, Default)]
pub(in crate::hca) struct Pace {
    /// kbit/s; 0 is no limit.
    rate: u32,
    /// Cycles, which are nanoseconds.
    due: u64,
}

impl Pace {
    /// Sets the rate, kbit/s; 0 takes it off.
    pub(in crate::hca) fn set_rate(&mut self, rate: u32) {
        self.rate = rate;
        self.due = 0;
    }

    /// Whether there is a rate at all: only then the clock needs to be asked.
    #[inline]
    pub(in crate::hca) fn is_limited(&self) -> bool {
        self.rate != 0
    }

    /// Whether the next frame may go now.
    pub(in crate::hca) fn is_due(&self, cycles: u64) -> bool {
        cycles >= self.due
    }

    /// A frame or several went now.
    pub(in crate::hca) fn sent(&mut self, bytes: u64, cycles: u64) {
        if self.rate != 0 {
            // bits / (kbit/s) are milliseconds.
            let ns = bytes * 8 * 1_000_000 / u64::from(self.rate);
            self.due = self.due.max(cycles) + ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_a_thousand_bytes_takes_eight_milliseconds_at_a_megabit() {
        let mut pace = Pace::default();
        pace.set_rate(1000);
        assert!(pace.is_due(0));
        pace.sent(1000, 5);
        assert!(!pace.is_due(8_000_004));
        assert!(pace.is_due(8_000_005));
    }

    #[test]
    fn an_idle_queue_saves_nothing_up() {
        let mut pace = Pace::default();
        pace.set_rate(1000);
        pace.sent(1000, 1_000_000_000);
        assert!(!pace.is_due(1_007_999_999));
    }

    #[test]
    fn rate_zero_is_no_limit() {
        let mut pace = Pace::default();
        pace.set_rate(1000);
        pace.sent(1000, 0);
        pace.set_rate(0);
        pace.sent(1_000_000, 0);
        assert!(!pace.is_limited() && pace.is_due(0));
    }
}
