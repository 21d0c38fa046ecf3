//! The conformance suite counts polls and reads no clock; a NIC, and a kernel on a busy machine,
//! take time. So a receiving half without frames waits some time before it returns from a dry poll.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::time::Duration;

use wirepath::device::{RxQueue, RxState};
use wirepath::forward;
use wirepath::mem::{Burst, Pool};
use wirepath::time::{Clock, Instant, MonotonicClock};

/// Silence after which no more frames are on the way. A NIC needs microseconds; a process that
/// shares two cores with twenty others gets one of them again after some 60 ms.
pub const TIMEOUT: Duration = Duration::from_millis(100);
/// Polls without a frame after which the suite gives up.
const DRY_POLLS: u32 = 1_000;
/// Dry polls between two refreshes of the counters that only the kernel knows.
const REFRESH_POLLS: u32 = 50;
/// The pause between two dry polls: the sender of the frame may need the core.
const PAUSE: Duration = Duration::from_micros(5);

/// A receiving half that waits: a thousand dry polls in a row take the whole patience.
pub struct PatientRx<R, C = MonotonicClock> {
    rx: R,
    clock: C,
    patience: Duration,
    dry: u32,
    /// When the first dry poll in a row was.
    silent_since: Instant,
    /// Makes the other side move.
    step: fn(),
}

impl<R: RxQueue> PatientRx<R> {
    /// By the machine's clock. `step` is called before each poll.
    pub fn new(rx: R, patience: Duration, step: fn()) -> Self {
        Self { rx, clock: MonotonicClock::start(), patience, dry: 0, silent_since: Instant::ZERO, step }
    }
}

impl<R: RxQueue, C: Clock> PatientRx<R, C> {
    /// The time at which this dry poll may return: each has its share of the patience.
    fn due(&self) -> Instant {
        let share = self.patience * self.dry.min(DRY_POLLS) / DRY_POLLS;
        self.silent_since + wirepath::time::Duration::from_nanos(share.as_nanos() as u64)
    }
}

impl<R: RxQueue, C: Clock> RxQueue for PatientRx<R, C> {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        if self.dry == 0 {
            self.silent_since = self.clock.now();
        }
        self.dry += 1;
        loop {
            (self.step)();
            let count = self.rx.receive(burst, limit, pool, now);
            if count > 0 {
                self.dry = 0;
                return count;
            }
            if self.dry.is_multiple_of(REFRESH_POLLS) {
                self.rx.refresh_counters();
            }
            if self.clock.now() >= self.due() || self.rx.state() == RxState::Ended {
                return 0;
            }
            std::thread::sleep(PAUSE);
        }
    }

    // A loop that sleeps needs no patience.
    forward!(rx: state, refresh_counters; by_default: wait_fd, arm);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::connectx;

    /// Each look takes a microsecond.
    struct Slow(Rc<Cell<u64>>);

    impl Clock for Slow {
        fn now(&mut self) -> Instant {
            self.0.set(self.0.get() + 1);
            Instant::ZERO + wirepath::time::Duration::from_micros(self.0.get())
        }
    }

    /// A frame comes at a time.
    struct Late(Rc<Cell<u64>>, u64);

    impl RxQueue for Late {
        fn receive(&mut self, burst: &mut Burst, _: usize, pool: &Pool, _: Instant) -> usize {
            if self.0.get() < self.1 {
                return 0;
            }
            self.1 = u64::MAX;
            burst.push(pool.alloc().unwrap());
            1
        }

        fn state(&self) -> RxState {
            RxState::Open
        }

        fn refresh_counters(&mut self) {}
    }

    /// Microseconds until the suite gives up, or has the frame that comes after `at_us`.
    fn waits(at_us: u64) -> (u64, usize) {
        let (pool, mut burst, us) = (connectx::pool(8, 1518), Burst::new(), Rc::new(Cell::new(0)));
        let late = Late(Rc::clone(&us), at_us);
        let mut rx = PatientRx {
            rx: late,
            clock: Slow(Rc::clone(&us)),
            patience: Duration::from_millis(5),
            dry: 0,
            silent_since: Instant::ZERO,
            step: || (),
        };
        let count = (0..DRY_POLLS).map(|_| rx.receive(&mut burst, 1, &pool, Instant::ZERO)).find(|count| *count > 0);
        burst.drain(..).for_each(wirepath::mem::Mbuf::free);
        (us.get(), count.unwrap_or(0))
    }

    #[test]
    fn frame_that_takes_its_time_is_waited_for() {
        for at_us in [0, 10, 1_500, 4_900] {
            let (us, count) = waits(at_us);
            assert!(count == 1 && us <= at_us + 20, "{count} frames after {us} µs, due at {at_us}");
        }
    }

    #[test]
    fn silence_ends_when_patience_does() {
        let (us, count) = waits(u64::MAX);
        assert!(count == 0 && (5_000..8_000).contains(&us), "{count} frames after {us} µs");
    }
}
