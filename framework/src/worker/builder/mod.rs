//! Assembles a worker over any device: pool, queue, host, pipeline, sockets, connections. Defaults
//! are derived from the device. The host is described call by call, or comes from a
//! [live port](super::live), which knows the kernel's addresses and routes.

mod error;
mod hosting;

use std::sync::Arc;

use crate::counters::Scope;
use crate::device::{Capabilities, Device, DeviceError, Queue};
use crate::mem::{Pool, Region, Sizing};
use crate::pipeline::tcp::roster::Roster;
use crate::pipeline::tcp::{TcpConfig, TcpSockets, TcpSocketsConfig};
use crate::pipeline::{App, HostStack, HostStackConfig, Node, host_stack};
use crate::proto::{HashSeed, Host, SocketCapacity, UdpSockets};

use super::affinity;
use super::group::{PoolSetupError, pool_on};
use super::poll::{Parts, Worker};
use super::topology::{CpuList, Machine};

pub use error::WorkerBuilderError;
pub(super) use hosting::Prepared;
pub use hosting::{HostDescription, HostProvider};

/// Frames per turn.
const BURST_LEN: usize = 32;

/// A worker being configured: see [`Worker::builder`], and
/// [`LiveQueue::builder`](super::live::LiveQueue::builder) for a live port.
#[must_use]
pub struct WorkerBuilder<Q, H = HostDescription> {
    queue: Q,
    hosting: H,
    settings: Settings,
}

/// The part of a [`WorkerBuilder`] that depends neither on the kind of its queue nor of its host.
struct Settings {
    capabilities: Capabilities,
    sockets: SocketCapacity,
    burst_len: usize,
    pool: Option<Pool>,
    /// Buffers that the app holds.
    held: Sizing,
    /// Overrides the sum of all parts.
    buffers: Option<usize>,
    requires_hugepages: bool,
}

impl Worker<(), (), (), ()> {
    /// Configures a worker on queue 0 of a device: a host of its own with ARP, ICMP, IGMP, UDP and,
    /// if enabled, TCP. Call it on the worker's thread. Nothing is opened before
    /// [`build`](WorkerBuilder::build).
    ///
    /// # Errors
    /// The queue is taken.
    ///
    /// ```
    /// use wirepath::counters::Block;
    /// use wirepath::device::memory::{MemoryConfig, pair};
    /// use wirepath::pipeline::{App, Cx, Datagram};
    /// use wirepath::time::Instant;
    /// use wirepath::worker::Worker;
    ///
    /// struct Ticks(u64);
    /// impl App for Ticks {
    ///     fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
    ///         self.0 += 1;
    ///     }
    /// }
    ///
    /// let (mut near, _far) = pair("wire", MemoryConfig::default());
    /// let block = Block::heap();
    /// let worker = Worker::builder(&mut near)?.address("192.0.2.1/24".parse()?);
    /// let mut worker = worker.build(Ticks(0), &block.scope("worker0"))?;
    /// worker.poll_once(Instant::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder<D: Device>(device: &mut D) -> Result<WorkerBuilder<D::Queue>, DeviceError> {
        let capabilities = device.capabilities();
        Ok(WorkerBuilder::new(device.take_queue(0)?, capabilities))
    }
}

impl<Q: Queue> WorkerBuilder<Q> {
    /// As [`Worker::builder`], for a queue that was already taken from a device with these
    /// `capabilities`.
    pub fn new(queue: Q, capabilities: Capabilities) -> Self {
        let hosting = HostDescription::new(&capabilities);
        Self::hosted(queue, capabilities, hosting)
    }
}

impl<Q: Queue, H: HostProvider> WorkerBuilder<Q, H> {
    pub(super) fn hosted(queue: Q, capabilities: Capabilities, hosting: H) -> Self {
        let settings = Settings {
            capabilities,
            sockets: SocketCapacity::default(),
            burst_len: BURST_LEN,
            pool: None,
            held: Sizing::new(),
            buffers: None,
            requires_hugepages: false,
        };
        Self { queue, hosting, settings }
    }

    /// The capacity for groups, ports and consumers. By default 2,048 groups and ports and 4,096
    /// bindings ([`SocketCapacity`]).
    pub fn sockets(mut self, sockets: SocketCapacity) -> Self {
        self.settings.sockets = sockets;
        self
    }

    /// The most frames received per turn, 1 to [`BURST_MAX`](crate::mem::BURST_MAX). By default 32:
    /// with more, the answer to the first frame of a burst leaves later; with fewer, a doorbell and
    /// a refill serve fewer frames.
    pub fn burst_len(mut self, burst_len: usize) -> Self {
        self.settings.burst_len = burst_len;
        self
    }

    /// Adds this many buffers to the pool for the app to hold. By default none: buffers that it
    /// holds are then missing elsewhere.
    pub fn held(self, buffers: usize) -> Self {
        self.held_as("app", buffers, "held by the app")
    }

    /// As [`held`](Self::held), with a name and a reason for [`sizing`](Self::sizing).
    pub fn held_as(mut self, name: &'static str, buffers: usize, why: &'static str) -> Self {
        self.settings.held = self.settings.held.part(name, buffers, why);
        self
    }

    /// The number of buffers in the pool, instead of the number that its users need. By default the
    /// sum of their needs, [`sizing`](Self::sizing).
    pub fn buffers(mut self, buffers: usize) -> Self {
        self.settings.buffers = Some(buffers);
        self
    }

    /// A pool made by the caller. By default there is one in the largest pages available
    /// (hugepages, otherwise small ones), locked, on the NUMA node of the cores that the thread may
    /// run on, if that is a single node. [`Region::mapping`](crate::mem::Region::mapping) of the
    /// worker's pool contains a fallback to small pages, if the kernel made one: report it to the
    /// operator.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.settings.pool = Some(pool);
        self
    }

    /// Makes a lack of hugepages an error. By default the worker falls back to small pages.
    pub fn require_hugepages(mut self) -> Self {
        self.settings.requires_hugepages = true;
        self
    }

    /// Wraps the queue, for example in one that counts or timestamps.
    pub fn wrap_queue<R: Queue>(self, wrap: impl FnOnce(Q) -> R) -> WorkerBuilder<R, H> {
        WorkerBuilder { queue: wrap(self.queue), hosting: self.hosting, settings: self.settings }
    }

    /// Wraps the source of the host, for a port whose kind is chosen when it is opened.
    pub(crate) fn wrap_host<I: HostProvider>(self, wrap: impl FnOnce(H) -> I) -> WorkerBuilder<Q, I> {
        WorkerBuilder { queue: self.queue, hosting: wrap(self.hosting), settings: self.settings }
    }

    /// The pool's buffers by purpose, for the operator.
    pub fn sizing(&self) -> Sizing {
        self.hosting.buffers(&self.queue).and(self.settings.held.clone())
    }

    /// Opens the queue and assembles the worker with [`host_stack`]; its counters are registered in
    /// `scope`.
    ///
    /// # Errors
    /// One sentence: no memory, a duplicate address, a gateway that is not on a network of the
    /// host, contradictory TCP limits.
    pub fn build<A: App>(
        self,
        app: A,
        scope: &Scope,
    ) -> Result<Worker<Q::Rx, Q::Tx, HostStack, A>, WorkerBuilderError> {
        self.build_with(app, scope, host_stack)
    }

    /// As [`build`](Self::build), with a custom tree of nodes. `tree` gets the settings of the
    /// usual nodes, the host, and the scope of its counters.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    ///
    /// # Panics
    /// TCP is enabled and the tree has no node for it, as [`Worker::with_tcp`].
    pub fn build_with<N: Node<A>, A: App>(
        mut self,
        app: A,
        scope: &Scope,
        tree: impl FnOnce(HostStackConfig, &Host, &Scope) -> N,
    ) -> Result<Worker<Q::Rx, Q::Tx, N, A>, WorkerBuilderError> {
        let sizing = self.sizing();
        let pool = match self.settings.pool.take() {
            Some(pool) => pool,
            None => self.map_pool(self.settings.buffers.unwrap_or(sizing.total()))?,
        };
        if self.settings.requires_hugepages
            && let Some(why) = lack_of_hugepages(pool.region())
        {
            return Err(WorkerBuilderError::NoHugepages(why));
        }
        let Prepared { host, follower, egress, stack, tcp, roster, seed } = self.hosting.prepare()?;
        let (rx, tx) = self.queue.open(&pool, scope)?;
        let pipeline = tree(stack, &host, scope);
        let tcp = match tcp {
            Some(machine) => {
                let mut tcp = connections(machine, self.settings.capabilities, seed, scope)?;
                tcp.reserve_buffers(sizing.total() - machine.chunks_max);
                if let Some(name) = roster {
                    let roster = Roster::create(&name, host.interface(), machine.connections_max);
                    tcp.set_roster(roster.map_err(WorkerBuilderError::Roster)?);
                }
                tcp
            }
            None => TcpSockets::none(),
        };
        let sockets = UdpSockets::new(self.settings.sockets, seed);
        let parts = Parts { rx, tx, pipeline, app, pool, host, sockets, egress, burst_len: self.settings.burst_len };
        let mut worker = Worker::new(parts, scope).with_tcp(tcp);
        if let Some(follower) = follower {
            worker.follow(follower);
        }
        Ok(worker)
    }

    fn map_pool(&mut self, buffers: usize) -> Result<Pool, WorkerBuilderError> {
        let layout = self.hosting.layout(&self.queue, &self.settings.capabilities);
        if let Some(region) = self.queue.region(layout, buffers)? {
            let pool = Pool::new(Arc::new(region), layout).map_err(PoolSetupError::Pool);
            return pool.map_err(WorkerBuilderError::Pool);
        }
        let node = affinity::current().and_then(|cores| node_of(&Machine::here(), &cores));
        pool_on(node, buffers, layout).map_err(WorkerBuilderError::Pool)
    }
}

fn connections(
    machine: TcpConfig,
    capabilities: Capabilities,
    seed: HashSeed,
    scope: &Scope,
) -> Result<TcpSockets, WorkerBuilderError> {
    TcpSockets::new(&TcpSocketsConfig { machine, capabilities, seed }, scope).map_err(WorkerBuilderError::Tcp)
}

/// Why packet buffers are not in hugepages, if they are not.
fn lack_of_hugepages(region: &Region) -> Option<String> {
    if region.is_shared() {
        return Some("a broker lends the packet buffers, in small pages: do without, or open the port yourself".into());
    }
    region.mapping()?.fallback().map(|fallback| fallback.shortage.to_string())
}

/// The NUMA node of these cores, if they share one and the machine has others. Otherwise binding
/// has no effect, and a container may forbid it.
fn node_of(machine: &Machine, cores: &CpuList) -> Option<u32> {
    let node = machine.node_of_core(cores.iter().next()?)?;
    let of_node = machine.cores_of_node(node)?;
    let is_near = cores.iter().all(|core| of_node.contains(core));
    let has_others = machine.online()?.iter().any(|core| !of_node.contains(core));
    (is_near && has_others).then_some(node as u32)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use super::*;
    use crate::counters::Block;
    use crate::device::memory::{MemoryConfig, pair};
    use crate::time::Instant;

    #[test]
    fn pool_is_on_the_node_of_the_threads_cores_where_that_is_one_of_several() {
        let root = tempfile::tempdir().unwrap();
        for (core, node) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
            fs::create_dir_all(root.path().join(format!("sys/devices/system/cpu/cpu{core}/node{node}"))).unwrap();
        }
        let write = |path: &str, text: &str| {
            let path = root.path().join("sys/devices/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("node/node0/cpulist", "0-1\n");
        write("node/node1/cpulist", "2-3\n");
        let machine = Machine::at(root.path());
        let node = |cores: &[usize]| node_of(&machine, &cores.iter().copied().collect());
        write("cpu/online", "0-3\n");
        assert_eq!([node(&[3]), node(&[2, 3]), node(&[1]), node(&[1, 2])], [Some(1), Some(1), Some(0), None]);
        write("cpu/online", "0-1\n");
        assert_eq!(node(&[0]), None, "there is no other");
    }

    #[test]
    fn pool_has_what_its_parts_need_or_what_was_asked_for_and_is_locked() {
        let build = |adapt: fn(WorkerBuilder<_>) -> WorkerBuilder<_>| {
            let (mut near, _far) = pair("wire", MemoryConfig { slots: 128, ..MemoryConfig::default() });
            let builder = adapt(Worker::builder(&mut near).unwrap());
            let total = builder.sizing().total();
            (builder.build((), &Block::heap().scope("worker0")).unwrap(), total)
        };
        let (usual, total) = build(|builder| builder.held(10));
        assert_eq!(total, 128 + 128 + 64 + 256 + 64 + 10);
        assert!(usual.pool().capacity() >= total, "in whole pages");
        let mapping = usual.pool().region().mapping().expect("it is mapped");
        assert!(mapping.locked() || mapping.lock_warning().is_some(), "it was asked for");
        assert!(build(|builder| builder.buffers(7_000)).0.pool().capacity() >= 7_000);
    }

    /// The network of each address is a route, beside those that were named.
    #[test]
    fn host_has_room_for_each_address_and_each_route() {
        let (mut near, _far) = pair("wire", MemoryConfig::default());
        let prefix = |text: &str| text.parse().unwrap();
        let builder = Worker::builder(&mut near).unwrap().address(prefix("10.0.0.2/24")).address(prefix("10.0.1.2/24"));
        let builder = builder.route(prefix("0.0.0.0/0"), Ipv4Addr::new(10, 0, 0, 1));
        let mut worker = builder.build((), &Block::heap().scope("worker0")).unwrap();
        let far = Ipv4Addr::new(192, 0, 2, 1);
        let gateway = worker.with_app(Instant::from_nanos(1), |(), cx| cx.host.route(far)?.gateway);
        assert_eq!(gateway, Some(Ipv4Addr::new(10, 0, 0, 1)));
    }

    #[cfg(feature = "af-xdp")]
    #[test]
    fn hugepages_of_memory_that_a_broker_lends_are_refused_in_a_sentence() {
        let file = crate::device::broker::sys::memory(1 << 16).unwrap();
        let lent = Region::shared(&file, 1 << 16).unwrap();
        assert!(lack_of_hugepages(&lent).is_some_and(|why| why.starts_with("a broker lends the packet buffers")));
        assert_eq!(lack_of_hugepages(&Region::heap(1 << 16).unwrap()), None);
    }
}
