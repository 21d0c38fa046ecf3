//! A live queue before it is opened, and its worker with the usual pipeline.

use super::device::LiveDevice;
use super::host::LiveHost;
use crate::device::tap::{TapQueue, TapRx, TapTx};
use crate::device::{Capabilities, Device, Queue};
use crate::pipeline::HostStack;
use crate::worker::{Worker, WorkerBuilder};

/// The queue of either device.
type DeviceQueue = <LiveDevice as Device>::Queue;

/// A worker on a live queue with the usual pipeline.
pub type LiveWorker<A> = Worker<TapRx<<DeviceQueue as Queue>::Rx>, TapTx<<DeviceQueue as Queue>::Tx>, HostStack, A>;

/// One queue with its host; [`builder`](Self::builder) makes a worker of both.
pub struct LiveQueue {
    /// The queue index.
    pub idx: u16,
    /// Opened on the worker's thread, with the worker's pool. `wirepath capture` may attach to it.
    pub queue: TapQueue<DeviceQueue>,
    /// The capabilities of the device.
    pub capabilities: Capabilities,
    /// Addresses, routes, neighbors, and the settings of the nodes.
    pub live: LiveHost,
}

impl LiveQueue {
    /// Configures the worker on its own thread: this queue, this host, and TCP if the configuration
    /// enables it, with a roster of open connections for a [guardian](crate::worker::guard). Its
    /// first turn comes after [`build`](WorkerBuilder::build); joining groups is up to the app
    /// ([`Worker::with_app`]).
    pub fn builder(self) -> WorkerBuilder<TapQueue<DeviceQueue>, LiveHost> {
        WorkerBuilder::hosted(self.queue, self.capabilities, self.live)
    }
}
