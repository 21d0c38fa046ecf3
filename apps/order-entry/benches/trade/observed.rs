//! A queue of a device with somebody who sees each frame that is posted.

use wirepath::counters::Scope;
use wirepath::device::{DeviceError, Offload, Queue, TxQueue};
use wirepath::forward;
use wirepath::mem::{Burst, Mbuf, Pool};

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

    forward!(queue: layout, buffers, region);
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

    // A preposted frame would leave without its observer, and nothing here asks for timestamps.
    forward!(
        tx: dry_run, ring_doorbell, reap, room, in_flight, refresh_counters;
        by_default: post_unmarked, prepost, preposted, fire_preposted, has_timestamps, take_timestamp
    );
}
