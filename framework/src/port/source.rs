//! The source of a port's frames, from its options to the builders of its workers: an interface by
//! its [`LiveConfig`], or any device.

use super::control::Steering;
use super::error::{Error, Result};
use super::run::{Port, Settings};
use super::subscription::Subscription;
use crate::counters::Block;
use crate::device::tap::TapQueue;
use crate::device::{Capabilities, Device, Queue};
use crate::pipeline::tcp::TcpConfig;
use crate::pipeline::{App, ChecksumPolicy};
use crate::time::MonotonicClock;
use crate::worker::live::{DedicatedHost, FlowSpec, LiveConfig, LiveDevice, LiveHost, LivePort, LiveQueue, Owner};
use crate::worker::{HostDescription, HostProvider, StopFlag, WorkerBuilder, WorkerContext, affinity};

/// A source of frames for a [`Port`](super::Port): a name ([`Named`](super::Named)), the
/// [`LiveConfig`] of an interface, or any [`Device`]. A bound for functions that take a port of
/// any; other types cannot implement it.
pub trait PortSource: Sized {
    /// The queue of a worker.
    type Queue: Queue;
    /// The host of a worker.
    type HostProvider: HostProvider;
    /// The open port: the [`LivePort`] of an interface, or the device.
    type Open: Steering;
    /// The value of which a worker's thread makes a builder.
    #[doc(hidden)]
    type Taken: Send + 'static;

    /// Opens the port and takes the queues of its workers.
    #[doc(hidden)]
    fn open(
        self,
        settings: &Settings,
        subscriptions: &[Subscription],
        block: &Block,
        stop: &StopFlag,
    ) -> Result<OpenPort<Self>>;

    /// Whether it needs several workers, however many cores are named.
    #[doc(hidden)]
    fn has_several_queues(&self) -> bool {
        false
    }

    /// The builder of a worker, on its own thread.
    #[doc(hidden)]
    fn builder(taken: Self::Taken) -> WorkerBuilder<Self::Queue, Self::HostProvider>;

    /// Runs an app on each worker: see [`Port::run`].
    #[doc(hidden)]
    fn run<A: App>(self, settings: Settings, app: impl Fn(&WorkerContext) -> A + Send + Sync + 'static) -> Result<()> {
        let running = Port { source: self, settings }.start(move |builder, worker| {
            let built = builder.build(app(worker.context()), &worker.scope())?;
            let mut clock = MonotonicClock::start();
            let mut running = worker.start(built, &mut clock)?;
            running.run(&mut clock);
            running.finish(&mut clock);
            Ok(())
        })?;
        running.join()?.into_iter().collect()
    }
}

/// An open port, and the values that its workers need.
pub struct OpenPort<S: PortSource> {
    pub(super) port: S::Open,
    /// The workers' queues, by their index.
    pub(super) queues: Vec<(u16, S::Taken)>,
    /// The cores of the last workers; those before them are not pinned.
    pub(super) cores: Vec<usize>,
    /// The interface that the workers poll.
    pub(super) interface: Option<String>,
    /// On an interface that is shared with the kernel: the flows that come here beside those of the
    /// subscriptions.
    pub(super) shared: Option<Vec<FlowSpec>>,
    /// Lines for the log.
    pub(super) lines: Vec<String>,
}

impl<S: PortSource> OpenPort<S> {
    /// The same port as that of a source that may be one of several kinds.
    pub(super) fn wrap<T: PortSource>(
        self,
        port: impl FnOnce(S::Open) -> T::Open,
        taken: impl Fn(S::Taken) -> T::Taken,
    ) -> OpenPort<T> {
        OpenPort {
            port: port(self.port),
            queues: self.queues.into_iter().map(|(idx, queue)| (idx, taken(queue))).collect(),
            cores: self.cores,
            interface: self.interface,
            shared: self.shared,
            lines: self.lines,
        }
    }
}

impl PortSource for LiveConfig {
    type Queue = TapQueue<<LiveDevice as Device>::Queue>;
    type HostProvider = LiveHost;
    type Open = LivePort;
    type Taken = LiveQueue;

    fn open(
        mut self,
        settings: &Settings,
        subscriptions: &[Subscription],
        block: &Block,
        stop: &StopFlag,
    ) -> Result<OpenPort<Self>> {
        let cores = settings.cores.clone().unwrap_or_else(|| last_cores(self.queues.len()));
        check_cores(self.port.interface(), self.queues.len(), &cores)?;
        self.app.clone_from(&settings.name);
        (self.tcp, self.checksum) = (settings.tcp.or(self.tcp), settings.checksum.or(self.checksum));
        self.ethertypes.extend(&settings.ethertypes);
        if settings.own != DedicatedHost::default() {
            self = self.dedicated(settings.own.clone());
        }
        let shared = matches!(self.owner, Owner::Shared).then(|| self.flows.clone());
        self.flows.extend(subscriptions.iter().map(|subscription| subscription.flow.clone()));
        let mut port = LivePort::open(&self, &block.scope("port"), stop)?;
        let mut queues = Vec::new();
        while let Some(queue) = port.take_queue()? {
            queues.push((queue.idx, queue));
        }
        let notices = port.notices();
        let notes = notices.iter().map(|notice| format!("note: {notice}"));
        let lines = [port.describe()].into_iter().chain(notes).collect();
        let interface = Some(self.port.interface().to_owned());
        Ok(OpenPort { port, queues, cores, interface, shared, lines })
    }

    fn has_several_queues(&self) -> bool {
        self.queues.len() > 1
    }

    fn builder(taken: LiveQueue) -> WorkerBuilder<Self::Queue, LiveHost> {
        taken.builder()
    }
}

impl<D: Device> PortSource for D
where
    D::Queue: 'static,
{
    type Queue = D::Queue;
    type HostProvider = HostDescription;
    type Open = D;
    type Taken = TakenQueue<D::Queue>;

    fn open(mut self, settings: &Settings, _: &[Subscription], _: &Block, _: &StopFlag) -> Result<OpenPort<Self>> {
        let (cores, capabilities) = (settings.cores.clone().unwrap_or_default(), self.capabilities());
        check_cores(self.name(), capabilities.queues.into(), &cores)?;
        let mut queues = Vec::new();
        for idx in 0..cores.len().max(1) as u16 {
            let queue = self.take_queue(idx)?;
            let (own, tcp, is_promiscuous) = (settings.own.clone(), settings.tcp, settings.is_promiscuous);
            // A capture may have been taken where a NIC was still to finish the checksums.
            let usual = if is_promiscuous { ChecksumPolicy::AcceptPartial } else { ChecksumPolicy::default() };
            let checksum = settings.checksum.unwrap_or(usual);
            queues.push((idx, TakenQueue { queue, capabilities, own, tcp, checksum, is_promiscuous }));
        }
        Ok(OpenPort { port: self, queues, cores, interface: None, shared: None, lines: Vec::new() })
    }

    fn builder(taken: TakenQueue<D::Queue>) -> WorkerBuilder<D::Queue> {
        let TakenQueue { queue, capabilities, own, tcp, checksum, is_promiscuous } = taken;
        let mut builder = WorkerBuilder::new(queue, capabilities).checksum(checksum);
        builder = own.addresses.into_iter().fold(builder, WorkerBuilder::address);
        builder = own.routes.into_iter().fold(builder, |builder, route| builder.route(route.network, route.via));
        builder = tcp.into_iter().fold(builder, WorkerBuilder::tcp);
        if is_promiscuous { builder.promiscuous() } else { builder }
    }
}

/// The queue of a device, with the options of its worker's host.
pub struct TakenQueue<Q> {
    queue: Q,
    capabilities: Capabilities,
    own: DedicatedHost,
    tcp: Option<TcpConfig>,
    checksum: ChecksumPolicy,
    is_promiscuous: bool,
}

fn check_cores(name: &str, queues: usize, cores: &[usize]) -> Result<()> {
    match (cores.len() > queues, queues) {
        (false, _) => Ok(()),
        (true, 1) => Err(Error::Config(format!("{name} has one queue, so it takes one core"))),
        (true, _) => Err(Error::Config(format!("{name} has {queues} queues, so it takes {queues} cores at most"))),
    }
}

/// The last `workers` cores of the process's affinity mask, if it has more than one.
fn last_cores(workers: usize) -> Vec<usize> {
    let cores: Vec<_> = affinity::current().iter().flat_map(|cores| cores.iter()).collect();
    if cores.len() > 1 { cores[cores.len().saturating_sub(workers)..].to_vec() } else { Vec::new() }
}
