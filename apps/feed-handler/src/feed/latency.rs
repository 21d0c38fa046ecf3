//! The latency of a packet: from the moment when the worker has its burst (the device has filled
//! the mbufs) to the end of the work on this packet, with its books up to date. It includes the
//! wait behind earlier packets of the burst, but not the reading of the capture.
//!
//! It costs one clock read (some 20 ns) for each burst and one for each packet that is measured.
//! The default is every seventh: a number without a common factor with the burst, so that each
//! position in a burst is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use wirepath::time::{Clock, Instant, MonotonicClock};

/// When the current burst was received: written by the intake, read by the sampler.
#[derive(Clone, Debug)]
pub struct Received(Arc<AtomicU64>);

impl Received {
    /// The present burst was received now.
    #[inline]
    pub fn set(&self, now: Instant) {
        // One thread writes and reads it: a plain store and a plain load.
        self.0.store(now.as_nanos(), Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Measures one packet of several.
pub struct Sampler {
    clock: MonotonicClock,
    received: Received,
    every: u32,
    left: u32,
    histogram: Histogram<u64>,
}

/// The measurements.
#[derive(Clone, Debug)]
pub struct Latency {
    /// Nanoseconds.
    pub histogram: Histogram<u64>,
    /// One packet in this many was measured.
    pub every: u32,
}

/// A packet that took longer counts as this long.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

impl Sampler {
    /// Measures one of `every` packets (0: none) against bursts stamped with the same clock, in
    /// [`received`](Self::received).
    pub fn new(mut clock: MonotonicClock, every: u32) -> Self {
        let received = Received(Arc::new(AtomicU64::new(clock.now().as_nanos())));
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants that fit");
        Self { clock, received, every, left: every, histogram }
    }

    /// Where the intake writes.
    pub fn received(&self) -> Received {
        self.received.clone()
    }

    /// The work on a packet is over.
    #[inline]
    pub fn packet_done(&mut self) {
        if self.left > 1 {
            self.left -= 1;
            return;
        }
        if self.every > 0 {
            self.left = self.every;
            let elapsed = self.clock.now().since(self.received.get());
            self.histogram.saturating_record(elapsed.as_nanos());
        }
    }

    /// The measurements so far.
    pub fn latency(&self) -> Latency {
        Latency { histogram: self.histogram.clone(), every: self.every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(every: u32, packets: u32) -> u64 {
        let mut sampler = Sampler::new(MonotonicClock::start(), every);
        (0..packets).for_each(|_| sampler.packet_done());
        sampler.latency().histogram.len()
    }

    #[test]
    fn one_of_so_many_packets_is_measured() {
        assert_eq!([measured(0, 70), measured(1, 70), measured(7, 70), measured(7, 6)], [0, 70, 10, 0]);
    }
}
