//! Any queue of any device behind one type, so that one pipeline serves files, wrappers and ports.
//! The `dyn` is paid once for each burst. On the way in, bursts are stamped for the
//! [latency](crate::feed::Latency), and counted where the operator wants so many frames and no
//! more.

use wirepath::counters::Scope;
use wirepath::device::{DeviceError, Offload, Preposted, Queue, RxQueue, RxState, TxQueue, TxTimestamp};
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::time::{Clock, Instant, MonotonicClock};

use crate::feed::Received;

/// A queue of a device that is not named here, on its way to a worker.
pub trait AnyQueue: Send {
    /// See [`Queue::open`].
    fn open_any(
        self: Box<Self>,
        pool: &Pool,
        scope: &Scope,
        config: IntakeConfig,
    ) -> Result<(Intake, AnyTx), DeviceError>;
}

impl<Q: Queue + 'static> AnyQueue for Q {
    fn open_any(
        self: Box<Self>,
        pool: &Pool,
        scope: &Scope,
        config: IntakeConfig,
    ) -> Result<(Intake, AnyTx), DeviceError> {
        let (rx, tx) = (*self).open(pool, scope)?;
        Ok((Intake { inner: Box::new(rx), frames_left: config.frames_max, config }, AnyTx(Box::new(tx))))
    }
}

/// What the intake does with bursts.
#[derive(Clone, Debug)]
pub struct IntakeConfig {
    /// Frames to receive; then the device has ended. `None`: all.
    pub frames_max: Option<u64>,
    /// Stamps bursts.
    pub clock: MonotonicClock,
    /// Where the stamp of the present burst is.
    pub received: Received,
}

/// The receiving half of any queue.
pub struct Intake {
    inner: Box<dyn RxQueue>,
    frames_left: Option<u64>,
    config: IntakeConfig,
}

impl Intake {
    /// Receives no more.
    pub fn close(&mut self) {
        self.frames_left = Some(0);
    }
}

impl RxQueue for Intake {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let limit = self.frames_left.map_or(limit, |left| limit.min(usize::try_from(left).unwrap_or(limit)));
        if limit == 0 {
            return 0;
        }
        let received = self.inner.receive(burst, limit, pool, now);
        if received > 0 {
            self.config.received.set(self.config.clock.now());
            self.frames_left = self.frames_left.map(|left| left - received as u64);
        }
        received
    }

    fn state(&self) -> RxState {
        if self.frames_left == Some(0) { RxState::Ended } else { self.inner.state() }
    }

    fn refresh_counters(&mut self) {
        self.inner.refresh_counters();
    }
}

/// The sending half of any queue.
pub struct AnyTx(Box<dyn TxQueue>);

impl TxQueue for AnyTx {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.0.post(mbuf, offload)
    }

    fn dry_run(&mut self, mbuf: Mbuf, offload: Offload) {
        self.0.dry_run(mbuf, offload);
    }

    fn prepost(&mut self, frame: &[u8]) -> Option<Preposted> {
        self.0.prepost(frame)
    }

    #[inline]
    fn preposted(&mut self, which: Preposted) -> Option<&mut [u8]> {
        self.0.preposted(which)
    }

    #[inline]
    fn fire_preposted(&mut self, which: Preposted) -> bool {
        self.0.fire_preposted(which)
    }

    #[inline]
    fn ring_doorbell(&mut self, now: Instant) {
        self.0.ring_doorbell(now);
    }

    #[inline]
    fn reap(&mut self) -> usize {
        self.0.reap()
    }

    fn room(&mut self) -> usize {
        self.0.room()
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    fn has_timestamps(&self) -> bool {
        self.0.has_timestamps()
    }

    fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        self.0.take_timestamp()
    }

    fn refresh_counters(&mut self) {
        self.0.refresh_counters();
    }
}
