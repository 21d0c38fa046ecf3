//! A worker group: several workers, each on a thread pinned to a core of its own, with a queue, a
//! pool and a pipeline of its own. Input: [`WorkerSpec`]s (name, core, entry point). Output: the
//! entry points' results.
//!
//! The group inspects the machine before it starts a thread and keeps its findings as a
//! [`TopologyReport`]. It locks the process's memory, pins each thread before the thread allocates
//! (so that pages come from the thread's own NUMA node), and stops all threads if one fails. It
//! does not build workers: the entry point does so on its own thread, because pools and queues
//! never change threads.

use core::fmt;
use std::any::Any;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hugepages::MapRequest;

use super::affinity::{self, PinError};
use super::stop::StopFlag;
use super::topology::{self, Finding, Machine, Placement, Severity, TopologyReport};
use crate::mem::{Layout, Pool, PoolError, Region, RegionError};

/// The function that a worker runs on its thread.
type EntryPoint<T> = Box<dyn FnOnce(&WorkerContext) -> T + Send>;

/// A worker to be started.
pub struct WorkerSpec<T> {
    name: String,
    core: Option<usize>,
    interface: Option<String>,
    entry_point: EntryPoint<T>,
}

impl<T> WorkerSpec<T> {
    /// A worker that runs `entry_point` on a thread of its own, named `name`.
    pub fn new(name: impl Into<String>, entry_point: impl FnOnce(&WorkerContext) -> T + Send + 'static) -> Self {
        Self { name: name.into(), core: None, interface: None, entry_point: Box::new(entry_point) }
    }

    /// Pins it to `core`. Without a core the scheduler may move it: for tests and for shared
    /// machines.
    #[must_use]
    pub fn on_core(self, core: usize) -> Self {
        Self { core: Some(core), ..self }
    }

    /// Names the network interface it polls, so that the group checks its core's distance to the
    /// NIC.
    #[must_use]
    pub fn polling(self, interface: impl Into<String>) -> Self {
        Self { interface: Some(interface.into()), ..self }
    }
}

/// The argument of an entry point: its name, core, NUMA node and stop flag.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// The worker's name.
    pub name: String,
    /// The core that the thread is pinned to.
    pub core: Option<usize>,
    /// The NUMA node of that core.
    pub node: Option<u32>,
    /// The group's stop flag: the entry point checks it, and returns once it is set. An app of a
    /// [`Port`](crate::port::Port) keeps a clone, and [`stop`](StopFlag::stop) ends the port:
    /// `port.run(|worker| MyApp { stop: worker.stop.clone() })`.
    pub stop: StopFlag,
}

impl WorkerContext {
    /// A locked pool of at least `buffers` buffers in the largest pages available on this core's
    /// node. `pool.region().mapping()` contains a fallback to small pages, if the kernel made one:
    /// report it to the operator.
    pub fn pool(&self, buffers: usize, layout: Layout) -> Result<Pool, PoolSetupError> {
        pool_on(self.node, buffers, layout)
    }
}

/// A locked pool in the largest pages available, on one NUMA node or on any.
pub(super) fn pool_on(node: Option<u32>, buffers: usize, layout: Layout) -> Result<Pool, PoolSetupError> {
    let request = MapRequest { node, lock: true, ..MapRequest::new(layout.region_len(buffers)) };
    let region = Region::map(&request).map_err(PoolSetupError::Region)?;
    Pool::new(Arc::new(region), layout).map_err(PoolSetupError::Pool)
}

/// Running workers.
pub struct WorkerGroup<T> {
    members: Vec<(String, JoinHandle<Result<T, PinError>>)>,
    report: TopologyReport,
    stop: StopFlag,
}

impl<T: Send + 'static> WorkerGroup<T> {
    /// Inspects the machine, locks memory, and starts a thread for each worker. `stop` stops them
    /// all.
    ///
    /// Refuses two workers on one core, and a core that does not exist. All other findings are in
    /// [`WorkerGroup::report`], including memory that could not be locked.
    pub fn start(specs: Vec<WorkerSpec<T>>, stop: &StopFlag) -> Result<Self, WorkerGroupError> {
        let machine = Machine::here();
        let mut report = inspect(&machine, &specs)?;
        if let Err(refused) = hugepages::lock_all() {
            let what = format!("memory is not locked, a page of it may be taken away: {refused}");
            report.findings.push(Finding { severity: Severity::Warning, what, remedy: None });
        }
        let mut group = Self { members: Vec::new(), report, stop: stop.clone() };
        for spec in specs {
            let name = spec.name.clone();
            match group.spawn(spec, &machine) {
                Ok(thread) => group.members.push((name, thread)),
                Err(source) => {
                    group.stop.stop();
                    return Err(WorkerGroupError::Thread { name, source });
                }
            }
        }
        Ok(group)
    }

    /// The findings about the machine, good and bad, for these workers.
    pub fn report(&self) -> &TopologyReport {
        &self.report
    }

    /// Waits for all workers. If one could not be pinned or panicked, the others are stopped, and
    /// the first such failure is returned.
    pub fn join(self) -> Result<Vec<T>, WorkerGroupError> {
        let mut done = Vec::new();
        let mut failure = None;
        for (name, thread) in self.members {
            match thread.join() {
                Ok(Ok(result)) => done.push(result),
                Ok(Err(source)) => failure = failure.or(Some(WorkerGroupError::Pin { name, source })),
                Err(panic) => failure = failure.or(Some(WorkerGroupError::Panicked { name, said: said(&*panic) })),
            }
        }
        match failure {
            None => Ok(done),
            Some(failure) => Err(failure),
        }
    }

    /// Starts one thread.
    fn spawn(&self, spec: WorkerSpec<T>, machine: &Machine) -> std::io::Result<JoinHandle<Result<T, PinError>>> {
        let WorkerSpec { name, core, entry_point, .. } = spec;
        let node = core.and_then(|core| machine.node_of_core(core)).map(|node| node as u32);
        let worker = WorkerContext { name: name.clone(), core, node, stop: self.stop.clone() };
        thread::Builder::new().name(name).spawn(move || {
            // If a worker fails, the others must not run on as if all were well.
            let _alarm = StopOnFailure(worker.stop.clone());
            if let Some(core) = worker.core {
                affinity::pin(core).inspect_err(|_| worker.stop.stop())?;
            }
            Ok(entry_point(&worker))
        })
    }
}

/// Stops the group when the thread that owns it unwinds.
struct StopOnFailure(StopFlag);

impl Drop for StopOnFailure {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Checks the machine for the specs that have a core.
fn inspect<T>(machine: &Machine, specs: &[WorkerSpec<T>]) -> Result<TopologyReport, WorkerGroupError> {
    let placements: Vec<_> = specs
        .iter()
        .filter_map(|spec| Some(Placement { core: spec.core?, interface: spec.interface.as_deref() }))
        .collect();
    let report = topology::check(machine, &placements);
    let fault = report.at_least(Severity::Fault).next().cloned();
    fault.map_or(Ok(report), |fault| Err(WorkerGroupError::Machine(fault)))
}

/// The message of a panic.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    text.unwrap_or("nothing").to_owned()
}

/// Why a worker's pool could not be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolSetupError {
    /// The memory cannot be allocated.
    Region(RegionError),
    /// The memory cannot be cut into a pool.
    Pool(PoolError),
}

/// Why a group did not start, or failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerGroupError {
    /// The machine cannot run these workers.
    Machine(Finding),
    /// The system refused to start a thread.
    Thread {
        /// The worker.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A thread could not be pinned.
    Pin {
        /// The worker.
        name: String,
        /// Why.
        source: PinError,
    },
    /// A worker panicked, in the app's code or the library's: the panic message on standard error
    /// says where.
    Panicked {
        /// The worker.
        name: String,
        /// The panic message.
        said: String,
    },
}

impl fmt::Display for PoolSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for WorkerGroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(finding) => match &finding.remedy {
                Some(remedy) => write!(f, "{}; {remedy}", finding.what),
                None => f.write_str(&finding.what),
            },
            Self::Thread { name, source } => {
                write!(f, "{name} could not be started: {source}; the limit on threads is `ulimit -u`")
            }
            Self::Pin { name, source } => write!(f, "{name}: {source}"),
            Self::Panicked { name, said } => {
                write!(
                    f,
                    "{name} panicked: {said}; standard error says at which line (RUST_BACKTRACE=1 for its callers)"
                )
            }
        }
    }
}

impl std::error::Error for PoolSetupError {}
impl std::error::Error for WorkerGroupError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_station_runs_where_it_was_put() {
        let stop = StopFlag::new();
        let spec = WorkerSpec::new("worker0", |worker: &WorkerContext| {
            (worker.core, affinity::current().map(|list| list.count()))
        });
        let group = WorkerGroup::start(vec![spec.on_core(0)], &stop).unwrap();
        assert_eq!(group.join().unwrap(), [(Some(0), Some(1))]);
    }

    #[test]
    fn two_stations_on_one_core_are_refused() {
        let spec = |name: &str| WorkerSpec::new(name, |_: &WorkerContext| ()).on_core(0);
        let refused = WorkerGroup::start(vec![spec("a"), spec("b")], &StopFlag::new()).err().unwrap();
        assert!(matches!(refused, WorkerGroupError::Machine(_)), "{refused}");
    }

    #[test]
    fn core_that_does_not_exist_is_refused() {
        let spec = WorkerSpec::new("a", |_: &WorkerContext| ()).on_core(100_000);
        assert!(matches!(WorkerGroup::start(vec![spec], &StopFlag::new()), Err(WorkerGroupError::Machine(_))));
    }

    /// The interface is in another network namespace, whose /sys does not show it, or there is no
    /// /sys.
    #[test]
    fn station_starts_though_sys_does_not_show_its_interface() {
        let spec = WorkerSpec::new("worker0", |_: &WorkerContext| 7).on_core(0).polling("elsewhere0");
        let group = WorkerGroup::start(vec![spec], &StopFlag::new()).unwrap();
        assert!(group.report().to_string().contains("\"elsewhere0\""), "{}", group.report());
        assert_eq!(group.join().unwrap(), [7]);
    }

    #[test]
    fn worker_that_panics_stops_the_others_and_is_named() {
        let good = WorkerSpec::new("good", |worker: &WorkerContext| {
            while !worker.stop.is_stopping() {
                thread::yield_now();
            }
        });
        let bad = WorkerSpec::new("bad", |_: &WorkerContext| panic!("ring index past its depth"));
        let failure = WorkerGroup::start(vec![good, bad], &StopFlag::new()).unwrap().join().err().unwrap();
        assert!(
            matches!(&failure, WorkerGroupError::Panicked { name, said } if name == "bad" && said.contains("past its depth"))
        );
    }

    #[test]
    fn panic_is_reported_without_a_guess_whose_it_was() {
        let app = WorkerSpec::new("quotes", |_: &WorkerContext| panic!("no such symbol"));
        let failure = WorkerGroup::start(vec![app], &StopFlag::new()).unwrap().join().map(|_: Vec<()>| ()).unwrap_err();
        let sentence = failure.to_string();
        assert!(sentence.starts_with("quotes panicked: no such symbol; "), "{sentence}");
        assert!(!sentence.contains("promise") && !sentence.contains("report it"), "{sentence}");
    }

    #[test]
    fn post_gives_a_pool_of_the_size_that_was_asked() {
        let spec = WorkerSpec::new("worker0", |worker: &WorkerContext| {
            let pool = worker.pool(64, Layout::default()).unwrap();
            (pool.capacity() >= 64, pool.region().mapping().is_some())
        });
        assert_eq!(WorkerGroup::start(vec![spec], &StopFlag::new()).unwrap().join().unwrap(), [(true, true)]);
    }
}
