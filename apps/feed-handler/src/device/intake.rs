//! Any queue of any device behind one type, so that one pipeline serves files, wrappers and ports.
//! The `dyn` costs once for each burst. The intake stamps bursts for the
//! [latency](crate::feed::Latency), and counts frames where the operator limits their number.

use wirepath::counters::Scope;
use wirepath::device::{DeviceError, Offload, Preposted, Queue, RxQueue, RxState, TxQueue, TxTimestamp};
use wirepath::mem::{Burst, Layout, Mbuf, Pool, Sizing};
use wirepath::time::{Clock, Instant, MonotonicClock};

use crate::feed::Received;

/// A queue of any device, to be sent to a worker.
pub struct AnyQueue {
    inner: Box<dyn Openable>,
    /// The most frames to receive; after them the device has ended. `None`: all.
    frames_max: Option<u64>,
    stamps: Option<(MonotonicClock, Received)>,
}

impl AnyQueue {
    /// The queue, of which no more than `frames_max` frames are received.
    pub fn new<Q: Queue + 'static>(queue: Q, frames_max: Option<u64>) -> Self {
        Self { inner: Box::new(queue), frames_max, stamps: None }
    }

    /// The same, which writes down in `received` when the present burst came.
    #[must_use]
    pub fn stamping(self, clock: MonotonicClock, received: Received) -> Self {
        Self { stamps: Some((clock, received)), ..self }
    }
}

impl Queue for AnyQueue {
    type Rx = Intake;
    type Tx = AnyTx;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Intake, AnyTx), DeviceError> {
        let (inner, tx) = self.inner.open_boxed(pool, scope)?;
        Ok((Intake { inner, frames_left: self.frames_max, stamps: self.stamps }, tx))
    }

    fn layout(&self, frame_len_max: usize) -> Layout {
        self.inner.layout_boxed(frame_len_max)
    }

    fn buffers(&self) -> Sizing {
        self.inner.buffers_boxed()
    }
}

/// A [`Queue`] behind a pointer.
trait Openable: Send {
    fn open_boxed(self: Box<Self>, pool: &Pool, scope: &Scope) -> Result<(Box<dyn RxQueue>, AnyTx), DeviceError>;
    fn layout_boxed(&self, frame_len_max: usize) -> Layout;
    fn buffers_boxed(&self) -> Sizing;
}

impl<Q: Queue + 'static> Openable for Q {
    fn open_boxed(self: Box<Self>, pool: &Pool, scope: &Scope) -> Result<(Box<dyn RxQueue>, AnyTx), DeviceError> {
        let (rx, tx) = (*self).open(pool, scope)?;
        Ok((Box::new(rx), AnyTx(Box::new(tx))))
    }

    fn layout_boxed(&self, frame_len_max: usize) -> Layout {
        self.layout(frame_len_max)
    }

    fn buffers_boxed(&self) -> Sizing {
        self.buffers()
    }
}

/// The receiving half of any queue.
pub struct Intake {
    inner: Box<dyn RxQueue>,
    frames_left: Option<u64>,
    stamps: Option<(MonotonicClock, Received)>,
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
            if let Some((clock, received)) = &mut self.stamps {
                received.set(clock.now());
            }
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
