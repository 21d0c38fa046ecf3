//! A port from its options to its workers.

use core::net::Ipv4Addr;
use std::env;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use super::control::Control;
use super::error::{Error, Result};
use super::handle::{PortHandle, Request};
use super::named::Named;
use super::running::RunningPort;
use super::serve::PortWorker;
use super::source::PortSource;
use super::subscription::Subscription;
use crate::counters::Block;
use crate::device::Device;
use crate::pipeline::tcp::TcpConfig;
use crate::pipeline::{App, ChecksumPolicy};
use crate::proto::Ipv4Prefix;
use crate::wire::EtherType;
use crate::worker::live::{DedicatedHost, LiveConfig, StaticRoute};
use crate::worker::topology::Severity;
use crate::worker::{StopFlag, WorkerBuilder, WorkerContext, WorkerGroup, WorkerSpec};

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
///     .address([192, 0, 2, 1], 24)
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
pub struct Port<S = Named> {
    pub(super) source: S,
    pub(super) settings: Settings,
}

/// Where a port's lines for the operator go.
pub(super) type Log = Box<dyn FnMut(&str) + Send>;

/// The options of a port.
pub struct Settings {
    pub(super) name: String,
    pub(super) handle: PortHandle,
    pub(super) requests: Receiver<Request>,
    pub(super) tcp: Option<TcpConfig>,
    pub(super) checksum: Option<ChecksumPolicy>,
    pub(super) own: DedicatedHost,
    /// An address whose network has more than 32 bits.
    wrong_prefix: Option<(Ipv4Addr, u8)>,
    pub(super) ethertypes: Vec<EtherType>,
    pub(super) is_promiscuous: bool,
    pub(super) held: usize,
    drains: bool,
    pub(super) cores: Option<Vec<usize>>,
    pub(super) block: Option<Arc<Block>>,
    pub(super) stop: Option<StopFlag>,
    pub(super) log: Log,
}

impl Port {
    /// A port by its name: `eth1` (AF_XDP), `mlx5:eth1` or `mlx5:0000:3b:00.0` (a ConnectX by its
    /// own queues), `pcap:day.pcap.gz` (a capture, at full speed), `memory:wire` (one end of a wire
    /// within the process: the first open of a name returns one end, the second the other, and the
    /// third the first end of a new wire).
    ///
    /// # Errors
    /// The name names no port, or the capture cannot be read. Interfaces are opened by
    /// [`run`](Self::run).
    pub fn open(name: &str) -> Result<Self> {
        let (source, mut settings) = (Named::open(&name.parse()?)?, Settings::new(program()));
        settings.is_promiscuous = source.is_capture();
        Ok(Self { source, settings })
    }

    /// Has a ConnectX stamp the frames that it receives, and those sent by
    /// [`Cx::timestamped`](crate::pipeline::Cx::timestamped). Opening the port fails if the NIC
    /// cannot. By default a ConnectX stamps no frame. Other devices do not need this option: they
    /// stamp frames in any case, or never.
    pub fn timestamps(mut self) -> Self {
        self.source.stamp();
        self
    }
}

impl Port<LiveConfig> {
    /// A port by its whole configuration: queues, VLANs, lengths of rings, IGMP, all that the
    /// options of a port have no method for. Its app is the port's [name](Self::named). Each of its
    /// queues has a worker; the options [`tcp`](Self::tcp), [`checksum`](Self::checksum) and
    /// [`address`](Self::address) replace its own.
    ///
    /// Its flows come here as those of subscriptions do, but the apps open the sockets for them.
    ///
    /// ```no_run
    /// use wirepath::device::af_xdp::AfXdpConfig;
    /// use wirepath::prelude::*;
    /// use wirepath::worker::live::{LiveConfig, PortConfig};
    ///
    /// let device = AfXdpConfig { rx_ring_len: 8_192, ..AfXdpConfig::new("eth1") };
    /// let config = LiveConfig { queues: vec![2, 3], ..LiveConfig::over(PortConfig::AfXdp(device)) };
    /// Port::from_config(config).cores([4, 5]).subscribe(multicast([239, 1, 1, 1], 9000)).run(|_worker| ())?;
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    pub fn from_config(config: LiveConfig) -> Self {
        Self { settings: Settings::new(config.app.clone()), source: config }
    }
}

impl<D: Device> Port<D>
where
    D::Queue: 'static,
{
    /// A port over any device, for example one with faults or a recording around another. Its
    /// workers are hosts of their own, on queue 0, or on the first queues where
    /// [`cores`](Self::cores) names several. A device that steers gets its rules from its owner,
    /// not from subscriptions.
    ///
    /// ```
    /// use wirepath::device::capture::{CaptureConfig, CaptureDevice, Directions};
    /// use wirepath::device::memory::{MemoryConfig, pair};
    /// use wirepath::prelude::*;
    ///
    /// # let path = std::env::temp_dir().join(format!("wirepath-port-over-{}.pcap", std::process::id()));
    /// # let (stop, file) = (StopFlag::new(), path.clone());
    /// # stop.stop();
    /// let (near, _far) = pair("wire", MemoryConfig::default());
    /// let recorded = CaptureDevice::new(near, CaptureConfig { path, directions: Directions::Rx, epoch_ns: 0 });
    /// let port = Port::over(recorded).address([192, 0, 2, 1], 24).named("recorder");
    /// # let port = port.stop_by(&stop).log(|_| ());
    /// port.subscribe(udp([192, 0, 2, 1], 5000)).run(|_worker| ())?;
    /// # std::fs::remove_file(file).expect("it was recorded");
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    pub fn over(device: D) -> Self {
        Self { source: device, settings: Settings::new(program()) }
    }

    /// Receives frames for every station and sends nothing by itself, as a port of a capture does:
    /// see [`WorkerBuilder::promiscuous`]. By default each worker is a host of its own.
    pub fn promiscuous(mut self) -> Self {
        self.settings.is_promiscuous = true;
        self
    }
}

impl<S> Port<S> {
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

    /// The policy for UDP and TCP checksums that the NIC has not verified. By default the worker
    /// verifies them. On virtual links (veth) and in captures, where a sending stack may have left
    /// the checksum to its NIC, it also accepts a checksum that covers the pseudo header only, and
    /// counts it.
    pub fn checksum(mut self, policy: ChecksumPolicy) -> Self {
        self.settings.checksum = Some(policy);
        self
    }

    /// An address with its network's prefix length, for a host of the port's own beside the kernel:
    /// the kernel has no address on the interface, and the workers answer ARP, ICMP and IGMP.
    /// Without an address the port shares the interface with the kernel and follows its addresses,
    /// routes and neighbors.
    ///
    /// A `prefix_len` above 32 is an error of [`run`](Self::run).
    pub fn address(mut self, address: impl Into<Ipv4Addr>, prefix_len: u8) -> Self {
        let address = address.into();
        match Ipv4Prefix::new(address, prefix_len) {
            Some(prefix) => self.settings.own.addresses.push(prefix),
            None => self.settings.wrong_prefix = Some((address, prefix_len)),
        }
        self
    }

    /// A route to a network behind a gateway, for a port with an [`address`](Self::address);
    /// [`Ipv4Prefix::ALL`] is the default route. By default only the networks of its addresses are
    /// reachable.
    pub fn route(mut self, network: Ipv4Prefix, gateway: Ipv4Addr) -> Self {
        self.settings.own.routes.push(StaticRoute { network, via: gateway });
        self
    }

    /// Has the frames of a protocol beside IPv4 come to
    /// [`App::on_frame`](crate::pipeline::App::on_frame), and not to the kernel. By default of
    /// none. A broker refuses it.
    ///
    /// ```
    /// use wirepath::mem::Mbuf;
    /// use wirepath::prelude::*;
    /// use wirepath::wire::EtherType;
    ///
    /// const PTP: EtherType = EtherType(0x88f7);
    ///
    /// struct Syncs(u64);
    /// impl App for Syncs {
    ///     fn on_frame(&mut self, ethertype: EtherType, _frame: &Mbuf, _cx: &mut Cx<'_>) -> bool {
    ///         self.0 += u64::from(ethertype == PTP);
    ///         ethertype == PTP
    ///     }
    /// }
    ///
    /// let port = Port::open("memory:ptp")?.address([192, 0, 2, 1], 24).ethertype(PTP);
    /// # drop(port);
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    pub fn ethertype(mut self, ethertype: EtherType) -> Self {
        self.settings.ethertypes.push(ethertype);
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
    /// unpinned. The queues of a [configuration](Port::from_config) have a worker each in any case:
    /// by default on the last cores, and with fewer cores than queues those of the first queues are
    /// not pinned.
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.settings.cores = Some(cores.into_iter().collect());
        self
    }

    /// One unpinned worker: for tests, and for shared machines.
    pub fn unpinned(self) -> Self {
        self.cores([])
    }

    /// The name under which `wirepath stats` and `wirepath capture` find it. By default the name of
    /// the executable, or that in its [configuration](Port::from_config).
    pub fn named(mut self, app: &str) -> Self {
        self.settings.name = app.to_owned();
        self
    }

    /// Registers the counters in this block, which the caller reads while the port runs and
    /// afterwards. By default the port makes one of its [name](Self::named), in shared memory if
    /// possible.
    pub fn counters(mut self, block: &Arc<Block>) -> Self {
        self.settings.block = Some(Arc::clone(block));
        self
    }

    /// At a stop, delivers the frames that arrived before it. By default the turn of the stop is
    /// the last one, and frames still in the ring are lost: so an app that stops at its own limit
    /// gets no more frames.
    pub fn drain(mut self) -> Self {
        self.settings.drains = true;
        self
    }

    /// Stops when this flag is set. By default SIGINT and SIGTERM stop it.
    pub fn stop_by(mut self, stop: &StopFlag) -> Self {
        self.settings.stop = Some(stop.clone());
        self
    }

    /// Receives lines for the operator: the choices made, possible improvements, and at the end the
    /// dropped packets, by counter. By default they go to standard error; `.log(|_| ())` silences
    /// them. Findings about cores come with a remedy; an [`unpinned`](Self::unpinned) port has
    /// none.
    pub fn log(mut self, log: impl FnMut(&str) + Send + 'static) -> Self {
        self.settings.log = Box::new(log);
        self
    }
}

impl<S: PortSource> Port<S> {
    /// Runs an app on each worker until a signal arrives or the capture ends. `app` is called on
    /// the worker's own thread.
    ///
    /// A second signal ends the process at once, in case an app hangs: without
    /// [`on_stop`](App::on_stop), and its counters stay for `wirepath stats --clean`. Within 500 ms
    /// of the first it is ignored, because `timeout` sends its signal twice.
    ///
    /// # Errors
    /// The error is one sentence; nothing is left on the interface.
    pub fn run<A: App>(self, app: impl Fn(&WorkerContext) -> A + Send + Sync + 'static) -> Result<()> {
        self.source.run(self.settings, app)
    }

    /// Runs an existing app on one worker: for example one that owns an end of a
    /// [ring](crate::worker::spsc) to another worker.
    ///
    /// # Errors
    /// As [`run`](Self::run), and where the port has several cores or queues.
    pub fn run_app<A: App + Send + 'static>(self, app: A) -> Result<()> {
        if self.settings.cores.as_ref().is_some_and(|cores| cores.len() > 1) || self.source.has_several_queues() {
            let what = "run_app has one app, so it takes one core: name one, or let run make an app for each";
            return Err(Error::Config(what.into()));
        }
        let app = Mutex::new(Some(app));
        self.run(move |_| {
            let mut app = app.lock().unwrap_or_else(PoisonError::into_inner);
            app.take().expect("a port of one core has one worker")
        })
    }

    /// Starts the workers, and leaves to the caller the decisions of [`run`](Self::run). `work`
    /// runs on each worker's own thread: from the builder it makes a worker, with nodes, a pool or
    /// a queue of its own ([`build_with`](WorkerBuilder::build_with),
    /// [`wrap_queue`](WorkerBuilder::wrap_queue)), starts it at its place in the port, and polls
    /// it. [`RunningPort::join`] returns its result. A worker that ends stops the others.
    ///
    /// Returns when all workers have started, or have ended because they could not.
    ///
    /// ```
    /// use wirepath::device::memory::{MemoryConfig, pair};
    /// use wirepath::prelude::*;
    /// use wirepath::time::MonotonicClock;
    ///
    /// struct Ticks(u64);
    /// impl App for Ticks {
    ///     fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
    ///         self.0 += 1;
    ///     }
    /// }
    ///
    /// let (device, _far) = pair("wire", MemoryConfig::default());
    /// let stop = StopFlag::new();
    /// let port = Port::over(device).named("ticks").stop_by(&stop).subscribe(multicast([239, 1, 1, 1], 9000));
    /// # let port = port.log(|_| ());
    /// let running = port.start(|builder, worker| {
    ///     let mut clock = MonotonicClock::start();
    ///     let built = builder.burst_len(16).build(Ticks(0), &worker.scope())?;
    ///     let mut running = worker.start(built, &mut clock)?;
    ///     running.run(&mut clock);
    ///     Ok::<_, wirepath::Error>(running.finish(&mut clock).into_app().0)
    /// })?;
    /// stop.stop(); // or whatever this thread does until then
    /// for ticks in running.join()? {
    ///     println!("{} ticks", ticks?);
    /// }
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    ///
    /// A port by its name is started in the same way, whatever the name means:
    ///
    /// ```
    /// use wirepath::prelude::*;
    /// use wirepath::time::MonotonicClock;
    ///
    /// let stop = StopFlag::new();
    /// let port = Port::open("memory:start")?.stop_by(&stop); // or "eth1", "pcap:day.pcap.gz"
    /// # let port = port.log(|_| ());
    /// let running = port.start(|builder, worker| {
    ///     let mut clock = MonotonicClock::start();
    ///     let built = builder.build((), &worker.scope())?;
    ///     let mut running = worker.start(built, &mut clock)?;
    ///     let ended = running.run(&mut clock);
    ///     running.finish(&mut clock);
    ///     Ok::<_, wirepath::Error>(ended)
    /// })?;
    /// stop.stop();
    /// assert!(running.join()?.into_iter().all(|ended| ended.is_ok()));
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// The port cannot be opened, or its threads not be started: one sentence; nothing is left on
    /// the interface.
    pub fn start<T: Send + 'static>(
        self,
        work: impl Fn(WorkerBuilder<S::Queue, S::HostProvider>, PortWorker) -> T + Send + Sync + 'static,
    ) -> Result<RunningPort<S, T>> {
        let Self { source, mut settings } = self;
        settings.check()?;
        let stop = settings.stop.take().map_or_else(StopFlag::on_signals, Ok)?;
        let block = settings.block.take().unwrap_or_else(|| block(&settings.name, &mut settings.log));
        let subscriptions = settings.handle.run();
        let mut open = source.open(&settings, &subscriptions, &block, &stop)?;
        let Settings { requests, mut log, held, drains, .. } = settings;
        open.lines.iter().for_each(|line| log(line));
        let (work, mut control) = (Arc::new(work), Control::new(requests, subscriptions));
        let unpinned = open.queues.len() - open.cores.len().min(open.queues.len());
        let mut specs = Vec::new();
        for (number, (queue, taken)) in open.queues.into_iter().enumerate() {
            let end = control.worker_end(queue, open.shared.clone());
            let (work, block) = (Arc::clone(&work), Arc::clone(&block));
            let spec = WorkerSpec::new(format!("worker{number}"), move |context: &WorkerContext| {
                let _last = Last(&context.stop);
                let builder = S::builder(taken);
                let builder = if held > 0 { builder.held(held) } else { builder };
                work(builder, PortWorker { context: context.clone(), queue, block, end, drains })
            });
            let spec = match &open.interface {
                Some(interface) => spec.polling(interface),
                None => spec,
            };
            specs.push(match number.checked_sub(unpinned) {
                Some(idx) => spec.on_core(open.cores[idx]),
                None => spec,
            });
        }
        let group = WorkerGroup::start(specs, &stop)?;
        let report = group.report().clone();
        report.at_least(Severity::Warning).for_each(|finding| log(&finding.to_string()));
        control.begin(&mut open.port).iter().for_each(|fallback| log(&format!("note: {fallback}")));
        Ok(RunningPort { port: open.port, control, group: Some(group), report, stop, block, log })
    }
}

/// A worker that cannot start, or has ended, stops the others.
struct Last<'a>(&'a StopFlag);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Settings {
    fn new(name: String) -> Self {
        let (handle, requests) = PortHandle::new();
        Self {
            name,
            handle,
            requests,
            tcp: None,
            checksum: None,
            own: DedicatedHost::default(),
            wrong_prefix: None,
            ethertypes: Vec::new(),
            is_promiscuous: false,
            held: 0,
            drains: false,
            cores: None,
            block: None,
            stop: None,
            log: Box::new(|line| eprintln!("{line}")),
        }
    }

    /// Checks the options for contradictions, before anything is touched.
    pub(super) fn check(&self) -> Result<()> {
        match self.wrong_prefix {
            Some((address, prefix_len)) => Err(wrong_prefix(address, prefix_len)),
            None => Ok(()),
        }
    }
}

/// Says that an address has no such network.
fn wrong_prefix(address: Ipv4Addr, prefix_len: u8) -> Error {
    Error::Config(format!("{address}/{prefix_len}: the prefix of a network has 32 bits at most, as in {address}/24"))
}

/// The name of the executable.
fn program() -> String {
    let program = env::current_exe().ok();
    let name = program.as_deref().and_then(|path| path.file_stem()).and_then(|name| name.to_str());
    name.unwrap_or("wirepath").to_owned()
}

/// The counters, in shared memory if possible. A failure there does not stop the port.
pub(super) fn block(name: &str, log: &mut dyn FnMut(&str)) -> Arc<Block> {
    Arc::new(Block::create(name).unwrap_or_else(|error| {
        log(&format!("note: {error}; counting in private memory instead: `wirepath stats` will not see it"));
        Block::heap()
    }))
}
