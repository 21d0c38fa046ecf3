//! The rates of requests as a judge sees them who knows the limits, and not how they are kept.

use order_entry::risk::InstrumentIdx;

use super::gateway::{PACES, Pace, Passed};
use super::venue::SYMBOLS;

/// A gateway's clock may be faster than the judge's: so many of 1,000 of its ns.
const CLOCK_MAX: u64 = 1_045;

/// A bucket that each message fills, and time empties.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    pace: Pace,
    empty_ns: u64,
}

impl Bucket {
    const fn new(pace: Pace) -> Self {
        Self { pace, empty_ns: 0 }
    }

    /// Whether another message is too many.
    fn overflows(&mut self, now_ns: u64) -> bool {
        let Pace(per_second, burst) = self.pace;
        let interval_ns = 1_000_000_000_000 / (u64::from(per_second) * CLOCK_MAX);
        self.empty_ns = self.empty_ns.max(now_ns) + interval_ns;
        // Times of two clocks are rounded.
        self.empty_ns > now_ns + interval_ns * u64::from(burst) + interval_ns / 100
    }
}

/// The buckets of all requests, whichever process sent them.
#[derive(Debug)]
pub(super) struct RateJudge {
    /// Of orders, and of cancels: each instrument's, then the port's and the unit's.
    orders: [[Bucket; SYMBOLS.len()]; 3],
    cancels: [[Bucket; SYMBOLS.len()]; 3],
}

impl RateJudge {
    pub(super) fn new() -> Self {
        let buckets = |which: usize| PACES.map(|paces| [Bucket::new(paces[which]); SYMBOLS.len()]);
        Self { orders: buckets(0), cancels: buckets(1) }
    }

    /// A process starts: its cancels wait for nothing that one before it has sent. Orders do.
    pub(super) fn restart(&mut self) {
        self.cancels = Self::new().cancels;
    }

    /// Judges a request that has passed.
    pub(super) fn judge(&mut self, passed: Passed, now_ns: u64) -> Result<(), String> {
        let (buckets, InstrumentIdx(instrument)) = match passed {
            Passed::Order(of) => (&mut self.orders, of),
            Passed::Cancel(of) => (&mut self.cancels, of),
        };
        for (level, name) in ["instrument", "port", "unit"].into_iter().enumerate() {
            // The port and the unit are the same for all.
            let of = if level == 0 { instrument as usize } else { 0 };
            if buckets[level][of].overflows(now_ns) {
                let Pace(per_second, burst) = buckets[level][of].pace;
                return Err(format!(
                    "rate exceeded: {passed:?} of the {name}, {per_second} a second and {burst} at once"
                ));
            }
        }
        Ok(())
    }
}
