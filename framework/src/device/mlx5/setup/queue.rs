//! A queue before it is opened: one of our own port, or one that a broker lends.

use super::own_queue::OwnQueue;
use crate::counters::Scope;
use crate::device::mlx5::lend::LentQueue;
use crate::device::mlx5::receive::rx::Mlx5Rx;
use crate::device::mlx5::send::tx::Mlx5Tx;
use crate::device::{DeviceError, Queue};
use crate::mem::{Layout, Pool, Region, Sizing};

/// A queue before it is opened.
pub struct Mlx5Queue(pub(super) Source);

/// Who creates its rings.
pub(super) enum Source {
    Own(OwnQueue),
    Lent(Box<LentQueue>),
}

impl Queue for Mlx5Queue {
    type Rx = Mlx5Rx;
    type Tx = Mlx5Tx;

    /// Registers the pool's region, makes the rings and steers the rules to them. Takes some
    /// milliseconds, because the kernel pins the pool.
    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Mlx5Rx, Mlx5Tx), DeviceError> {
        match self.0 {
            Source::Own(queue) => queue.open(pool, scope),
            Source::Lent(queue) => queue.open(pool, scope),
        }
    }

    fn buffers(&self) -> Sizing {
        match &self.0 {
            Source::Own(queue) => queue.buffers(),
            Source::Lent(queue) => queue.buffers(),
        }
    }

    fn region(&mut self, layout: Layout, buffers: usize) -> Result<Option<Region>, DeviceError> {
        match &mut self.0 {
            Source::Own(_) => Ok(None),
            Source::Lent(queue) => queue.region(layout, buffers).map(Some),
        }
    }
}
