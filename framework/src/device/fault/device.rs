//! The wrapper around a device and its queues.

use std::rc::Rc;

use super::config::FaultConfig;
use super::damage::Stock;
use super::frame_faults::FaultDraws;
use super::rx::FaultRx;
use super::tx::FaultTx;
use crate::counters::Scope;
use crate::device::{Device, DeviceError, Queue};
use crate::forward;
use crate::mem::{BURST_MAX, Pool, Sizing};

/// A device whose queues have faults.
pub struct FaultDevice<D> {
    inner: D,
    config: FaultConfig,
}

/// A queue with faults, before a worker opens it.
pub struct FaultQueue<Q> {
    inner: Q,
    idx: u16,
    config: FaultConfig,
}

impl<D> FaultDevice<D> {
    /// Wraps `inner`. Refuses an invalid probability, and a length of zero.
    pub fn new(inner: D, config: FaultConfig) -> Result<Self, DeviceError> {
        config.rx.check("rx")?;
        config.tx.check("tx")?;
        Ok(Self { inner, config })
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: Device> Device for FaultDevice<D> {
    type Queue = FaultQueue<D::Queue>;

    fn take_queue(&mut self, idx: u16) -> Result<Self::Queue, DeviceError> {
        Ok(FaultQueue { inner: self.inner.take_queue(idx)?, idx, config: self.config })
    }

    forward!(inner: name, capabilities, steer, unsteer);
}

impl<Q: Queue> Queue for FaultQueue<Q> {
    type Rx = FaultRx<Q::Rx>;
    type Tx = FaultTx<Q::Tx>;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Self::Tx), DeviceError> {
        let FaultConfig { seed, rx, tx } = self.config;
        let stream = u64::from(self.idx) << 1;
        let stock = Rc::new(Stock::new(tx.duplication > 0.0));
        stock.fill(pool);
        let (inner_rx, inner_tx) = self.inner.open(pool, scope)?;
        let scope = scope.scope("fault");
        let rx = FaultRx::new(inner_rx, FaultDraws::new(seed, stream, rx), Rc::clone(&stock), &scope);
        Ok((rx, FaultTx::new(inner_tx, FaultDraws::new(seed, stream | 1, tx), stock, &scope)))
    }

    fn buffers(&self) -> Sizing {
        self.inner.buffers().part("faults", BURST_MAX * 4, "frames that the fault device holds back or copies")
    }

    forward!(inner: layout, region);
}
