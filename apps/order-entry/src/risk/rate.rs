//! Rate limits as buckets: one time stamp each (GCRA), no division on the hot path.

/// So many messages a second, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Time that one message fills.
    interval_ns: u64,
    /// Time that a full bucket holds; 0 passes nothing.
    depth_ns: u64,
}

impl Rate {
    /// No message at all: what every rate is until it is set.
    pub const ZERO: Self = Self { interval_ns: 1, depth_ns: 0 };

    /// `per_second` messages, of which `burst` may come at once. Either of them zero: none at all.
    pub const fn new(per_second: u32, burst: u32) -> Self {
        if per_second == 0 || burst == 0 {
            return Self::ZERO;
        }
        // Rounded up, so that a second never holds one more than was said.
        let interval_ns = 1_000_000_000_u64.div_ceil(per_second as u64);
        Self { interval_ns, depth_ns: interval_ns * burst as u64 }
    }

    /// The rate less `percent` of it: the part of a venue's limit that is left unused, because the
    /// venue measures with its clock and its window.
    pub const fn with_headroom(per_second: u32, burst: u32, percent: u32) -> Self {
        let left = 100_u64.saturating_sub(percent as u64);
        Self::new((per_second as u64 * left / 100) as u32, (burst as u64 * left / 100) as u32)
    }

    /// Messages that a full bucket holds.
    pub const fn burst(&self) -> u64 {
        self.depth_ns / self.interval_ns
    }
}

impl Default for Rate {
    /// [`Rate::ZERO`].
    fn default() -> Self {
        Self::ZERO
    }
}

/// How full one bucket is: the time at which it will be empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    empty_ns: u64,
}

/// The bucket would overflow: the messages that it would then hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow(pub(super) u64);

impl Bucket {
    /// Without a message.
    pub(super) const EMPTY: Self = Self { empty_ns: 0 };

    /// As full at `now_ns` as `rate` lets it be.
    pub(super) const fn full(rate: Rate, now_ns: u64) -> Self {
        Self { empty_ns: now_ns.saturating_add(rate.depth_ns) }
    }

    /// The bucket with one message more, for [`Bucket::commit`].
    #[inline]
    pub(super) fn with_one(&mut self, rate: Rate, now_ns: u64) -> Result<Self, Overflow> {
        let depth_end_ns = now_ns.saturating_add(rate.depth_ns);
        if self.empty_ns > depth_end_ns {
            // A clock that stepped back, or a rate that became lower, leaves a full bucket, which
            // drains from now on.
            self.empty_ns = depth_end_ns;
        }
        let empty_ns = self.empty_ns.max(now_ns).saturating_add(rate.interval_ns);
        if empty_ns > depth_end_ns {
            return Err(Overflow((empty_ns - now_ns).div_ceil(rate.interval_ns)));
        }
        Ok(Self { empty_ns })
    }

    /// Makes `next`, of [`Bucket::with_one`], the state.
    pub(super) fn commit(&mut self, next: Self) {
        *self = next;
    }
}
