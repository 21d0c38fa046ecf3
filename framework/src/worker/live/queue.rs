//! A live queue before it is opened, and its worker with the usual pipeline.

use super::device::LiveDevice;
use super::error::LiveError;
use super::host::LiveHost;
use crate::counters::Scope;
use crate::device::tap::{TapQueue, TapRx, TapTx};
use crate::device::{Capabilities, Device, Queue};
use crate::mem::Pool;
use crate::pipeline::tcp::roster::Roster;
use crate::pipeline::tcp::{TcpSockets, TcpSocketsConfig};
use crate::pipeline::{App, HostStack, host_stack};
use crate::proto::{SocketCapacity, UdpSockets};
use crate::worker::{Parts, Worker, WorkerContext, random_seed};

/// The queue of either device.
type DeviceQueue = <LiveDevice as Device>::Queue;

/// A worker on a live queue with the usual pipeline.
pub type LiveWorker<A> = Worker<TapRx<<DeviceQueue as Queue>::Rx>, TapTx<<DeviceQueue as Queue>::Tx>, HostStack, A>;

/// Frames per turn.
const BURST_LEN: usize = 32;

/// One queue with its host. For a pipeline of one's own, or a device around the queue, take the
/// parts; for the usual ones call [`worker`](Self::worker).
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
    /// Builds the usual worker on the calling thread: a pool with `held` buffers for `app` to keep,
    /// the queue, the [`host_stack`], sockets of the default capacity, and TCP if the configuration
    /// enables it, with a roster of open connections for a [guardian](crate::worker::guard). Its
    /// first turn comes next; joining groups is up to the app ([`Worker::with_app`]).
    ///
    /// # Errors
    /// One sentence: no memory, the queue is taken, the MTU too large. Every step is undone.
    pub fn worker<A: App>(
        self,
        app: A,
        held: usize,
        context: &WorkerContext,
        scope: &Scope,
    ) -> Result<LiveWorker<A>, LiveError> {
        let LiveHost { app: name, host, follower, egress, stack, layout, buffers, tcp } = self.live;
        let pool: Pool = context.pool(buffers.total() + held, layout)?;
        let (rx, tx) = self.queue.open(&pool, scope)?;
        let pipeline = host_stack(stack, &host, scope);
        let sockets = UdpSockets::new(SocketCapacity::default(), random_seed());
        let tcp = match tcp {
            Some(machine) => {
                let others = buffers.total() + held - machine.chunks_max;
                machine.check_pool(pool.capacity(), others).map_err(LiveError::Tcp)?;
                let config = TcpSocketsConfig { machine, capabilities: self.capabilities, seed: random_seed() };
                let mut tcp = TcpSockets::new(&config, scope).map_err(LiveError::Tcp)?;
                tcp.leave(others);
                let roster = Roster::create(&name, host.interface(), machine.connections_max);
                tcp.keep(roster.map_err(LiveError::Roster)?);
                tcp
            }
            None => TcpSockets::none(),
        };
        let parts = Parts { rx, tx, pipeline, app, pool, host, sockets, egress, burst_len: BURST_LEN };
        let mut worker = Worker::new(parts, scope).with_tcp(tcp);
        worker.follow(follower);
        Ok(worker)
    }
}
