//! A port from its name to its workers, and back.

use std::collections::HashMap;
use std::env;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::account;
use super::built::{self, Capture};
use super::control::{Control, Steering};
use super::error::{Error, Result};
use super::handle::{PortHandle, Request};
use super::name::{PortName, live};
use super::serve::serve;
use super::subscription::Subscription;
use crate::counters::Block;
use crate::device::Device;
use crate::device::memory::{MemoryConfig, MemoryDevice, pair};
use crate::pipeline::tcp::TcpConfig;
use crate::pipeline::{App, ChecksumPolicy};
use crate::proto::Ipv4Prefix;
use crate::worker::live::{LiveConfig, LivePort, OwnHost, PortConfig, StaticRoute};
use crate::worker::topology::Severity;
use crate::worker::{StopFlag, Worker, WorkerBuilder, WorkerContext, WorkerGroup, WorkerSpec, affinity};

/// A port that is to run: see the [module](super) for a receiver.
///
/// ```
/// use wirepath::prelude::*;
///
/// /// Prints that its timer expired, and stops.
/// struct Once(StopFlag);
/// impl App for Once {
///     fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
///         cx.after(Duration::from_millis(1), 7)?;
///         Ok(())
///     }
///     fn on_timer(&mut self, token: u64, _: &mut Cx<'_>) {
///         println!("timer {token} was due");
///         self.0.stop();
///     }
/// }
///
/// let stop = StopFlag::new();
/// Port::open("memory:wire")?          // one end of a wire in the process; "eth1" is an interface
///     .address("192.0.2.1/24".parse().expect("an address and the length of its network"))
///     .subscribe(udp([192, 0, 2, 1], 5000))
///     .tcp()
///     .named("once")                  // for `wirepath stats`
///     .unpinned()                     // or .cores([2, 3]): a worker for each
///     .stop_by(&stop)                 // or Ctrl-C
///     .log(|line| eprintln!("{line}"))
///     .run_app(Once(stop.clone()))?;
/// # wirepath::Result::<()>::Ok(())
/// ```
#[must_use = "a port does nothing before it runs"]
pub struct Port {
    source: Source,
    settings: Settings,
}

/// The options of a port.
struct Settings {
    name: String,
    handle: PortHandle,
    requests: Receiver<Request>,
    tcp: Option<TcpConfig>,
    checksum: Option<ChecksumPolicy>,
    own: OwnHost,
    held: usize,
    cores: Option<Vec<usize>>,
    stop: Option<StopFlag>,
    log: Box<dyn FnMut(&str) + Send>,
}

/// The origin of a port's frames.
enum Source {
    Live(PortConfig),
    Pcap(Box<Capture>),
    Memory(MemoryDevice),
}

impl Source {
    fn open(name: &PortName) -> Result<Self> {
        if let Some(port) = live(name)? {
            return Ok(Self::Live(port));
        }
        Ok(match name {
            PortName::Pcap(path) => Self::Pcap(Box::new(built::pcap(path)?)),
            PortName::Memory(wire) => Self::Memory(end_of(wire)),
            PortName::AfXdp(_) | PortName::Mlx5(_) => unreachable!("they are live"),
        })
    }
}

/// One end of a wire: the first caller that names it gets one, the second the other.
fn end_of(wire: &str) -> MemoryDevice {
    static ENDS: LazyLock<Mutex<HashMap<String, MemoryDevice>>> = LazyLock::new(Mutex::default);
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    ends.remove(wire).unwrap_or_else(|| {
        let (near, far) = pair(wire, MemoryConfig::default());
        ends.insert(wire.to_owned(), far);
        near
    })
}

impl Port {
    /// A port by its name: `eth1` (AF_XDP), `mlx5:eth1` or `mlx5:0000:3b:00.0` (a ConnectX by its
    /// own queues), `pcap:day.pcap.gz` (a capture, at full speed), `memory:wire` (one end of a wire
    /// within the process: who opens the name first gets one end, who opens it next the other, and
    /// the third the first end of a new wire).
    ///
    /// # Errors
    /// The name names no port, or the capture cannot be read. Interfaces are opened by
    /// [`run`](Self::run).
    pub fn open(name: &str) -> Result<Self> {
        let program = env::current_exe().ok();
        let program = program.as_deref().and_then(|path| path.file_stem()).and_then(|name| name.to_str());
        let (handle, requests) = PortHandle::new();
        let settings = Settings {
            name: program.unwrap_or("wirepath").to_owned(),
            handle,
            requests,
            tcp: None,
            checksum: None,
            own: OwnHost::default(),
            held: 0,
            cores: None,
            stop: None,
            log: Box::new(|line| eprintln!("{line}")),
        };
        Ok(Self { source: Source::open(&name.parse()?)?, settings })
    }

    /// Subscribes. Without a subscription no frame is received, and the kernel keeps all.
    pub fn subscribe(self, subscription: Subscription) -> Self {
        self.settings.handle.begin_with(subscription);
        self
    }

    /// A handle to subscribe and unsubscribe from now on, also while the port runs: from other
    /// threads, and from apps.
    pub fn handle(&self) -> PortHandle {
        self.settings.handle.clone()
    }

    /// Enables TCP with up to 1,024 connections per worker; [`tcp_with`](Self::tcp_with) sets other
    /// limits. By default TCP is off, and segments are dropped and counted.
    pub fn tcp(self) -> Self {
        self.tcp_with(TcpConfig::default())
    }

    /// Enables TCP within these limits per worker. By default it is off.
    pub fn tcp_with(mut self, tcp: TcpConfig) -> Self {
        self.settings.tcp = Some(tcp);
        self
    }

    /// What to do about UDP and TCP checksums that the NIC has not verified. By default they are
    /// verified, but where frames may come from a stack that leaves them to a NIC, those that cover
    /// the pseudo header only are accepted too, and counted: on virtual links (veth), and in
    /// captures, which may have been taken there.
    pub fn checksum(mut self, policy: ChecksumPolicy) -> Self {
        self.settings.checksum = Some(policy);
        self
    }

    /// An address with its network's prefix length, for a host of the port's own beside the kernel:
    /// the kernel has no address on the interface, and the workers answer ARP, ICMP and IGMP.
    /// Without an address the port shares the interface with the kernel and follows its addresses,
    /// routes and neighbors.
    pub fn address(mut self, address: Ipv4Prefix) -> Self {
        self.settings.own.addresses.push(address);
        self
    }

    /// A route to a network behind a gateway, for a port with an [`address`](Self::address);
    /// [`Ipv4Prefix::ALL`] is the default route. By default only the networks of its addresses are
    /// reachable.
    pub fn route(mut self, network: Ipv4Prefix, gateway: core::net::Ipv4Addr) -> Self {
        self.settings.own.routes.push(StaticRoute { network, via: gateway });
        self
    }

    /// Adds this many buffers to each worker's pool, for its app to
    /// [hold](crate::pipeline::Datagram::hold). By default none: buffers that an app holds are then
    /// missing for receive.
    pub fn held(mut self, buffers: usize) -> Self {
        self.settings.held = buffers;
        self
    }

    /// One worker for each of these cores, pinned to it, on queues 0, 1 and so on. By default there
    /// is one worker: for an interface on the last core of the process's affinity mask, otherwise
    /// unpinned.
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.settings.cores = Some(cores.into_iter().collect());
        self
    }

    /// One unpinned worker: for tests, and for shared machines.
    pub fn unpinned(self) -> Self {
        self.cores([])
    }

    /// The name under which `wirepath stats` and `wirepath capture` find it. By default the name of
    /// the executable.
    pub fn named(mut self, app: &str) -> Self {
        self.settings.name = app.to_owned();
        self
    }

    /// Stops when this flag is set. By default SIGINT and SIGTERM stop it.
    pub fn stop_by(mut self, stop: &StopFlag) -> Self {
        self.settings.stop = Some(stop.clone());
        self
    }

    /// Receives lines for the operator: the choices made, possible improvements, and at the end
    /// what was dropped, by its counters. By default they go to standard error; `.log(|_| ())`
    /// silences them. Findings about cores say what mends them, and an [`unpinned`](Self::unpinned)
    /// port has none.
    pub fn log(mut self, log: impl FnMut(&str) + Send + 'static) -> Self {
        self.settings.log = Box::new(log);
        self
    }

    /// Runs an app on each worker until a signal arrives or the capture ends. `app` is called on
    /// the worker's own thread.
    ///
    /// A second signal ends the process at once, in case an app hangs: without
    /// [`on_stop`](App::on_stop), and its counters stay for `wirepath stats --clean`. Within 500 ms
    /// of the first it is ignored, because `timeout` sends its signal twice.
    ///
    /// # Errors
    /// One sentence; nothing is left on the interface.
    pub fn run<A: App>(self, app: impl Fn(&WorkerContext) -> A + Send + Sync + 'static) -> Result<()> {
        let Self { source, settings } = self;
        match source {
            Source::Live(port) => settings.run_live(port, app),
            Source::Pcap(device) => {
                let checksum = settings.checksum.unwrap_or(ChecksumPolicy::AcceptPartial);
                settings.run_one(*device, move |worker| worker.promiscuous().checksum(checksum), app)
            }
            Source::Memory(device) => {
                let checksum = settings.checksum.unwrap_or_default();
                settings.run_one(device, move |worker| worker.checksum(checksum), app)
            }
        }
    }

    /// Runs an existing app on one worker: for example one that owns an end of a
    /// [ring](crate::worker::spsc) to another worker.
    ///
    /// # Errors
    /// As [`run`](Self::run), and where the port has several cores.
    pub fn run_app<A: App + Send + 'static>(self, app: A) -> Result<()> {
        if self.settings.cores.as_ref().is_some_and(|cores| cores.len() > 1) {
            let what = "run_app has one app, so it takes one core: name one, or let run make an app for each";
            return Err(Error::Config(what.into()));
        }
        let app = Mutex::new(Some(app));
        self.run(move |_| {
            let mut app = app.lock().unwrap_or_else(PoisonError::into_inner);
            app.take().expect("a port of one core has one worker")
        })
    }
}

impl Settings {
    /// Starts a worker for each queue of an interface.
    fn run_live<A: App>(
        self,
        port: PortConfig,
        app: impl Fn(&WorkerContext) -> A + Send + Sync + 'static,
    ) -> Result<()> {
        let cores = self.cores.unwrap_or_else(|| last_core().into_iter().collect());
        let subscriptions = self.handle.run();
        let config = LiveConfig {
            tcp: self.tcp,
            checksum: self.checksum,
            queues: (0..cores.len().max(1) as u16).collect(),
            flows: subscriptions.iter().map(|subscription| subscription.flow.clone()).collect(),
            ..LiveConfig::over(port).named(&self.name)
        };
        let is_shared = self.own == OwnHost::default();
        let config = if is_shared { config } else { config.owned(self.own) };
        let (stop, mut log) = (stop(self.stop)?, self.log);
        let block = block(&self.name, &mut log);
        let mut port = LivePort::open(&config, &block.scope("port"), &stop)?;
        log(&port.describe());
        let (app, mut control) = (Arc::new(app), Control::new(self.requests, subscriptions));
        control = if is_shared { control.shared() } else { control };
        let mut specs = Vec::new();
        while let Some(queue) = port.take_queue()? {
            let (app, block) = (Arc::clone(&app), Arc::clone(&block));
            let (idx, name, end) = (queue.idx, format!("worker{}", queue.idx), control.worker_end(queue.idx));
            let spec = WorkerSpec::new(name.clone(), move |context: &WorkerContext| {
                let worker = queue.builder().held(self.held).build(app(context), &block.scope(&name));
                ended(worker.map_err(Error::from).and_then(|worker| serve(worker, &block, context, end)), context)
            });
            let spec = spec.polling(config.port.interface());
            specs.push(match cores.get(usize::from(idx)) {
                Some(&core) => spec.on_core(core),
                None => spec,
            });
        }
        port.notices().iter().for_each(|notice| log(&format!("note: {notice}")));
        let ended = start(specs, &stop, control, &mut port, &mut log);
        account::lines(&block.snapshot()).iter().for_each(|line| log(line));
        ended
    }

    /// Starts one worker on the only queue of a device without a kernel.
    fn run_one<D: Device + Send + 'static, A: App>(
        self,
        mut device: D,
        adapt: impl FnOnce(WorkerBuilder<D::Queue>) -> WorkerBuilder<D::Queue> + Send + 'static,
        app: impl Fn(&WorkerContext) -> A + Send + Sync + 'static,
    ) -> Result<()> {
        let cores = self.cores.unwrap_or_default();
        if cores.len() > 1 {
            return Err(Error::Config(format!("{} has one queue, so it takes one core", device.name())));
        }
        let (stop, mut log) = (stop(self.stop)?, self.log);
        let block = block(&self.name, &mut log);
        let (own, tcp, held) = (self.own, self.tcp, self.held);
        let mut control = Control::new(self.requests, self.handle.run());
        let end = control.worker_end(0);
        let counters = Arc::clone(&block);
        let spec = WorkerSpec::new("worker0", move |context: &WorkerContext| {
            let mut worker = adapt(Worker::builder(&mut device)?).held(held);
            worker = own.addresses.into_iter().fold(worker, WorkerBuilder::address);
            worker = own.routes.into_iter().fold(worker, |worker, route| worker.route(route.network, route.via));
            worker = tcp.into_iter().fold(worker, WorkerBuilder::tcp);
            let worker = worker.build(app(context), &block.scope("worker0"))?;
            ended(serve(worker, &block, context, end), context)
        });
        let spec = match cores.first() {
            Some(&core) => spec.on_core(core),
            None => spec,
        };
        let ended = start(vec![spec], &stop, control, &mut (), &mut log);
        account::lines(&counters.snapshot()).iter().for_each(|line| log(line));
        ended
    }
}

/// A worker that cannot start, or has ended, stops the others.
fn ended(result: Result<()>, context: &WorkerContext) -> Result<()> {
    context.stop.stop();
    result
}

/// Starts the workers, and serves subscribers until all workers have ended.
fn start(
    specs: Vec<WorkerSpec<Result<()>>>,
    stop: &StopFlag,
    control: Control,
    steering: &mut impl Steering,
    log: &mut dyn FnMut(&str),
) -> Result<()> {
    let group = WorkerGroup::start(specs, stop)?;
    group.report().at_least(Severity::Warning).for_each(|finding| log(&finding.to_string()));
    control.serve(steering, log);
    group.join()?.into_iter().collect()
}

/// The counters, in shared memory if possible. A failure there does not stop the port.
fn block(name: &str, log: &mut dyn FnMut(&str)) -> Arc<Block> {
    Arc::new(Block::create(name).unwrap_or_else(|error| {
        log(&format!("note: {error}; counting in private memory instead: `wirepath stats` will not see it"));
        Block::heap()
    }))
}

fn stop(given: Option<StopFlag>) -> Result<StopFlag> {
    Ok(given.map_or_else(StopFlag::on_signals, Ok)?)
}

/// The last core of the process's affinity mask, if it has more than one.
fn last_core() -> Option<usize> {
    let cores = affinity::current()?;
    cores.iter().last().filter(|_| cores.iter().count() > 1)
}
