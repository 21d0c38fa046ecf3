//! The intake around a queue of any device: it stamps bursts for the
//! [latency](crate::feed::Latency), and counts frames where the operator limits their number.

use wirepath::counters::Scope;
use wirepath::device::{DeviceError, Queue, RxQueue, RxState};
use wirepath::forward;
use wirepath::mem::{Burst, Pool};
use wirepath::time::{Clock, Instant, MonotonicClock};

use crate::feed::Received;

/// A queue, or the receiving half of one, with an intake around it.
pub struct StampingQueue<T> {
    inner: T,
    /// The frames to receive yet; after them the device has ended. `None`: all.
    frames_left: Option<u64>,
    clock: MonotonicClock,
    received: Received,
}

impl<Q: Queue> StampingQueue<Q> {
    /// Around a queue, of which no more than `frames_max` frames are received. Writes down in
    /// `received` when the present burst came.
    pub fn new(inner: Q, frames_max: Option<u64>, clock: MonotonicClock, received: Received) -> Self {
        Self { inner, frames_left: frames_max, clock, received }
    }
}

impl<Q: Queue> Queue for StampingQueue<Q> {
    type Rx = StampingQueue<Q::Rx>;
    type Tx = Q::Tx;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Q::Tx), DeviceError> {
        let (inner, tx) = self.inner.open(pool, scope)?;
        let Self { frames_left, clock, received, .. } = self;
        Ok((StampingQueue { inner, frames_left, clock, received }, tx))
    }

    forward!(inner: layout, buffers, region);
}

impl<Rx: RxQueue> RxQueue for StampingQueue<Rx> {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let limit = self.frames_left.map_or(limit, |left| limit.min(usize::try_from(left).unwrap_or(limit)));
        if limit == 0 {
            return 0;
        }
        let received = self.inner.receive(burst, limit, pool, now);
        if received > 0 {
            self.received.set(self.clock.now());
            self.frames_left = self.frames_left.map(|left| left - received as u64);
        }
        received
    }

    fn state(&self) -> RxState {
        if self.frames_left == Some(0) { RxState::Ended } else { self.inner.state() }
    }

    forward!(inner: wait_fd, refresh_counters);
}
