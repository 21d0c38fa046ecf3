//! A machine whose connections to the venue are wirepath's, and whose time is the worker's.

use std::cell::Cell;
use std::io;
use std::net::SocketAddrV4;
use std::rc::Rc;

use super::endpoint::Endpoint;
use crate::host::{Host, Stream, Waits};

/// The worker's time is brought up to the kernel's so often: both run at nearly the same rate.
const ALIGN_NS: u64 = 100_000_000;

/// The time of a turn, as the clock of the kernel's sockets counts.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnClock(Rc<Times>);

#[derive(Debug, Default)]
struct Times {
    now_ns: Cell<u64>,
    /// What the worker's clock lacks.
    ahead_ns: Cell<u64>,
    aligned_ns: Cell<Option<u64>>,
}

impl TurnClock {
    /// The worker's clock shows `worker_ns`. No clock is read.
    #[inline]
    pub(super) fn set(&self, worker_ns: u64) {
        let times = &*self.0;
        times.now_ns.set(times.now_ns.get().max(worker_ns.saturating_add(times.ahead_ns.get())));
    }

    /// The same at the end of a turn, where `kernel_ns` is read once in a while.
    pub(super) fn align(&self, worker_ns: u64, kernel_ns: impl FnOnce() -> u64) {
        let times = &*self.0;
        if times.aligned_ns.get().is_none_or(|at_ns| worker_ns.saturating_sub(at_ns) >= ALIGN_NS) {
            times.aligned_ns.set(Some(worker_ns));
            times.ahead_ns.set(kernel_ns().saturating_sub(worker_ns));
        }
        self.set(worker_ns);
    }
}

/// The venue's addresses are reached by wirepath, all others as `inner` does.
#[derive(Debug)]
pub struct WireHost<H> {
    pub(super) inner: H,
    pub(super) clock: TurnClock,
    pub(super) endpoint: Endpoint,
    venue: [Option<SocketAddrV4>; 2],
}

impl<H: Host> WireHost<H> {
    /// A machine in which `venue`, the primary and the secondary address, are reached by a port.
    pub fn new(inner: H, venue: [Option<SocketAddrV4>; 2]) -> Self {
        Self { inner, clock: TurnClock::default(), endpoint: Endpoint::default(), venue }
    }

    /// What its app needs of it.
    pub fn handle(&self) -> WireHandle<H>
    where
        H: Clone,
    {
        WireHandle { inner: self.inner.clone(), clock: self.clock.clone(), endpoint: self.endpoint.clone() }
    }
}

/// The app's hand on its run's machine.
#[derive(Debug)]
pub struct WireHandle<H> {
    pub(super) inner: H,
    pub(super) clock: TurnClock,
    pub(super) endpoint: Endpoint,
}

impl<H: Host> Host for WireHost<H> {
    fn now_ns(&self) -> u64 {
        self.clock.0.now_ns.get()
    }

    /// The kernel's clock without a system call: some 25 ns.
    fn clock_ns(&self) -> u64 {
        self.now_ns().max(self.inner.clock_ns())
    }

    fn epoch_offset_ns(&self) -> u64 {
        self.inner.epoch_offset_ns()
    }

    fn connect(&self, to: SocketAddrV4, waits: Waits) -> io::Result<Box<dyn Stream>> {
        if self.venue.contains(&Some(to)) {
            return Ok(self.endpoint.call(to));
        }
        self.inner.connect(to, waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its time goes on.
    #[derive(Debug)]
    struct Going(Cell<u64>);

    impl Host for Going {
        fn now_ns(&self) -> u64 {
            self.0.get()
        }

        fn epoch_offset_ns(&self) -> u64 {
            0
        }

        fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
            Err(io::ErrorKind::ConnectionRefused.into())
        }
    }

    #[test]
    fn clock_goes_on_within_a_turn_and_is_never_behind_it() {
        let host = WireHost::new(Going(Cell::new(1_000)), [None, None]);
        host.clock.align(10, || 1_000);
        host.inner.0.set(5_000);
        assert_eq!((host.now_ns(), host.clock_ns()), (1_000, 5_000));
        host.clock.set(9_000);
        assert_eq!((host.now_ns(), host.clock_ns()), (9_990, 9_990));
    }

    #[test]
    fn time_of_turns_follows_the_kernels_and_never_goes_back() {
        let clock = TurnClock::default();
        let now_ns = |clock: &TurnClock| clock.0.now_ns.get();
        clock.align(10, || 1_000_000_000);
        assert_eq!(now_ns(&clock), 1_000_000_000);
        clock.set(510);
        assert_eq!(now_ns(&clock), 1_000_000_500);
        clock.align(ALIGN_NS, || unreachable!("it was read a moment ago"));
        // The worker's clock is 300 ns fast, then 700 ns slow.
        clock.align(ALIGN_NS + 10, || 1_000_000_000 + ALIGN_NS - 300);
        assert_eq!(now_ns(&clock), 999_999_990 + ALIGN_NS);
        clock.align(2 * ALIGN_NS + 10, || 1_000_000_000 + 2 * ALIGN_NS + 700);
        assert_eq!(now_ns(&clock), 1_000_000_700 + 2 * ALIGN_NS);
    }
}
