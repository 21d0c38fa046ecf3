//! A queue of a device with somebody who sees each frame that is posted.

use wirepath::counters::Scope;
use wirepath::device::{DeviceError, Offload, Queue, TxQueue};
use wirepath::mem::{Burst, Layout, Mbuf, Pool, Sizing};
use wirepath::time::Instant;

/// Sees what is posted.
pub(crate) trait Observer: Send {
    /// Before a frame is posted.
    fn posts(&mut self, frame: &Mbuf);

    /// After an urgent one was.
    fn has_posted_urgent(&mut self);
}

pub(crate) struct Observed<Q, O> {
    pub(crate) queue: Q,
    pub(crate) observer: O,
}

impl<Q: Queue, O: Observer> Queue for Observed<Q, O> {
    type Rx = Q::Rx;
    type Tx = ObservedTx<Q::Tx, O>;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Self::Tx), DeviceError> {
        let (rx, tx) = self.queue.open(pool, scope)?;
        Ok((rx, ObservedTx { tx, observer: self.observer }))
    }

    fn layout(&self, frame_len_max: usize) -> Layout {
        self.queue.layout(frame_len_max)
    }

    fn buffers(&self) -> Sizing {
        self.queue.buffers()
    }
}

pub(crate) struct ObservedTx<Tx, O> {
    tx: Tx,
    observer: O,
}

impl<Tx: TxQueue, O: Observer> TxQueue for ObservedTx<Tx, O> {
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.observer.posts(&mbuf);
        self.tx.post(mbuf, offload)
    }

    #[inline]
    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.observer.posts(&mbuf);
        self.tx.post_urgent(mbuf)?;
        self.observer.has_posted_urgent();
        Ok(())
    }

    fn post_burst(&mut self, burst: &mut Burst, offload: Offload) -> usize {
        burst.iter().for_each(|mbuf| self.observer.posts(mbuf));
        self.tx.post_burst(burst, offload)
    }

    #[inline]
    fn ring_doorbell(&mut self, now: Instant) {
        self.tx.ring_doorbell(now);
    }

    #[inline]
    fn reap(&mut self) -> usize {
        self.tx.reap()
    }

    fn room(&mut self) -> usize {
        self.tx.room()
    }

    fn in_flight(&self) -> usize {
        self.tx.in_flight()
    }

    fn refresh_counters(&mut self) {
        self.tx.refresh_counters();
    }
}
