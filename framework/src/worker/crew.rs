//! A crew: several workers, each a thread pinned to a core of its own, with its own queue, pool and pipeline. What
//! enters are [`Station`]s (a name, a core, and what to do there); what leaves is what each of them returned.
//!
//! The crew looks at the machine before it starts anybody and keeps what it found as a [`Report`]; it locks the
//! process's memory, pins each thread before it takes its memory (so that pages come from its own node), and stops
//! everybody where one fails. It does not build workers: that is done in the station, on its own thread, because
//! pools and queues never change threads.

use core::fmt;
use std::any::Any;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hugepages::MapRequest;

use super::affinity::{self, PinError};
use super::stop::StopFlag;
use super::topology::{self, Finding, Machine, Placement, Report, Severity};
use crate::mem::{Layout, Pool, PoolError, Region, RegionError};

/// What a station does on its thread.
type Duty<T> = Box<dyn FnOnce(&Post) -> T + Send>;

/// A worker to be started.
pub struct Station<T> {
    name: String,
    core: Option<usize>,
    interface: Option<String>,
    duty: Duty<T>,
}

impl<T> Station<T> {
    /// A station that does `duty` on a thread of its own, named `name`.
    pub fn new(name: impl Into<String>, duty: impl FnOnce(&Post) -> T + Send + 'static) -> Self {
        Self { name: name.into(), core: None, interface: None, duty: Box::new(duty) }
    }

    /// Pins it to `core`. Without, the scheduler moves it about: for tests and for machines that are shared.
    #[must_use]
    pub fn on_core(self, core: usize) -> Self {
        Self { core: Some(core), ..self }
    }

    /// Says which network interface it polls, so that its core's distance to it is looked at.
    #[must_use]
    pub fn polling(self, interface: impl Into<String>) -> Self {
        Self { interface: Some(interface.into()), ..self }
    }
}

/// Where a station's duty finds itself.
#[derive(Clone, Debug)]
pub struct Post {
    /// The station's name.
    pub name: String,
    /// The core that the thread is pinned to.
    pub core: Option<usize>,
    /// The NUMA node of that core.
    pub node: Option<u32>,
    /// The crew's stop: look at it, and leave when it is set.
    pub stop: StopFlag,
}

impl Post {
    /// A pool of at least `buffers` buffers in the best pages there are on this core's node, locked. Whether the
    /// kernel had to fall back to small pages stands in `pool.region().mapping()`: tell the user.
    pub fn pool(&self, buffers: usize, layout: Layout) -> Result<Pool, PostError> {
        let request = MapRequest { node: self.node, lock: true, ..MapRequest::new(layout.region_len(buffers)) };
        let region = Region::map(&request).map_err(PostError::Region)?;
        Pool::new(Arc::new(region), layout).map_err(PostError::Pool)
    }
}

/// Workers that run.
pub struct Crew<T> {
    members: Vec<(String, JoinHandle<Result<T, PinError>>)>,
    report: Report,
    stop: StopFlag,
}

impl<T: Send + 'static> Crew<T> {
    /// Looks at the machine, locks memory, and starts a thread for each station. `stop` stops them all.
    ///
    /// Two stations on one core, or a core that does not exist, are refused; all else that could be better is in
    /// [`Crew::report`], and so is memory that could not be locked.
    pub fn start(stations: Vec<Station<T>>, stop: &StopFlag) -> Result<Self, CrewError> {
        let machine = Machine::here();
        let mut report = inspect(&machine, &stations)?;
        if let Err(refused) = hugepages::lock_all() {
            let what = format!("memory is not locked, a page of it may be taken away: {refused}");
            report.findings.push(Finding { severity: Severity::Warning, what, remedy: None });
        }
        let mut crew = Self { members: Vec::new(), report, stop: stop.clone() };
        for station in stations {
            let name = station.name.clone();
            match crew.muster(station, &machine) {
                Ok(thread) => crew.members.push((name, thread)),
                Err(source) => {
                    crew.stop.stop();
                    return Err(CrewError::Thread { name, source });
                }
            }
        }
        Ok(crew)
    }

    /// What is good and what is not about the machine, for these workers.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Waits for all of them. Where one could not be pinned or panicked the others are stopped, and the first
    /// such failure is told.
    pub fn join(self) -> Result<Vec<T>, CrewError> {
        let mut done = Vec::new();
        let mut failure = None;
        for (name, thread) in self.members {
            match thread.join() {
                Ok(Ok(result)) => done.push(result),
                Ok(Err(source)) => failure = failure.or(Some(CrewError::Pin { name, source })),
                Err(panic) => failure = failure.or(Some(CrewError::Panicked { name, said: said(&*panic) })),
            }
        }
        match failure {
            None => Ok(done),
            Some(failure) => Err(failure),
        }
    }

    /// Starts one thread.
    fn muster(&self, station: Station<T>, machine: &Machine) -> std::io::Result<JoinHandle<Result<T, PinError>>> {
        let Station { name, core, duty, .. } = station;
        let node = core.and_then(|core| machine.node_of_core(core)).map(|node| node as u32);
        let post = Post { name: name.clone(), core, node, stop: self.stop.clone() };
        thread::Builder::new().name(name).spawn(move || {
            // A worker that is gone must not leave the others running as if all were well.
            let _alarm = StopOnFailure(post.stop.clone());
            if let Some(core) = post.core {
                affinity::pin(core).inspect_err(|_| post.stop.stop())?;
            }
            Ok(duty(&post))
        })
    }
}

/// Stops the crew when the thread that owns it unwinds.
struct StopOnFailure(StopFlag);

impl Drop for StopOnFailure {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Checks the machine for the stations that have a core.
fn inspect<T>(machine: &Machine, stations: &[Station<T>]) -> Result<Report, CrewError> {
    let placements: Vec<_> = stations
        .iter()
        .filter_map(|station| Some(Placement { core: station.core?, interface: station.interface.as_deref() }))
        .collect();
    let report = topology::check(machine, &placements);
    let fault = report.at_least(Severity::Fault).next().cloned();
    fault.map_or(Ok(report), |fault| Err(CrewError::Machine(fault)))
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    text.unwrap_or("nothing").to_owned()
}

/// Why a station has no pool.
#[derive(Debug)]
pub enum PostError {
    /// No memory.
    Region(RegionError),
    /// Memory that does not work as a pool.
    Pool(PoolError),
}

/// Why a crew did not start, or did not end well.
#[derive(Debug)]
pub enum CrewError {
    /// The machine cannot run these workers.
    Machine(Finding),
    /// A thread was refused.
    Thread {
        /// The worker.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A thread could not be pinned.
    Pin {
        /// The worker.
        name: String,
        /// Why.
        source: PinError,
    },
    /// A worker panicked: the app's code or ours, which the panic's own lines on standard error tell.
    Panicked {
        /// The worker.
        name: String,
        /// What it said.
        said: String,
    },
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for CrewError {
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

impl std::error::Error for PostError {}
impl std::error::Error for CrewError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_station_runs_where_it_was_put() {
        let stop = StopFlag::new();
        let station = Station::new("worker0", |post: &Post| (post.core, affinity::current().map(|list| list.count())));
        let crew = Crew::start(vec![station.on_core(0)], &stop).unwrap();
        assert_eq!(crew.join().unwrap(), [(Some(0), Some(1))]);
    }

    #[test]
    fn two_stations_on_one_core_are_refused() {
        let station = |name: &str| Station::new(name, |_: &Post| ()).on_core(0);
        let refused = Crew::start(vec![station("a"), station("b")], &StopFlag::new()).err().unwrap();
        assert!(matches!(refused, CrewError::Machine(_)), "{refused}");
    }

    #[test]
    fn core_that_does_not_exist_is_refused() {
        let station = Station::new("a", |_: &Post| ()).on_core(100_000);
        assert!(matches!(Crew::start(vec![station], &StopFlag::new()), Err(CrewError::Machine(_))));
    }

    /// As in another network namespace's /sys, or without one.
    #[test]
    fn station_starts_though_sys_does_not_show_its_interface() {
        let station = Station::new("worker0", |_: &Post| 7).on_core(0).polling("elsewhere0");
        let crew = Crew::start(vec![station], &StopFlag::new()).unwrap();
        assert!(crew.report().to_string().contains("\"elsewhere0\""), "{}", crew.report());
        assert_eq!(crew.join().unwrap(), [7]);
    }

    #[test]
    fn worker_that_panics_stops_the_others_and_is_named() {
        let good = Station::new("good", |post: &Post| {
            while !post.stop.is_stopping() {
                thread::yield_now();
            }
        });
        let bad = Station::new("bad", |_: &Post| panic!("ring index past its depth"));
        let failure = Crew::start(vec![good, bad], &StopFlag::new()).unwrap().join().err().unwrap();
        assert!(
            matches!(&failure, CrewError::Panicked { name, said } if name == "bad" && said.contains("past its depth"))
        );
    }

    #[test]
    fn panic_is_reported_without_a_guess_whose_it_was() {
        let app = Station::new("quotes", |_: &Post| panic!("no such symbol"));
        let failure = Crew::start(vec![app], &StopFlag::new()).unwrap().join().map(|_: Vec<()>| ()).unwrap_err();
        let sentence = failure.to_string();
        assert!(sentence.starts_with("quotes panicked: no such symbol; "), "{sentence}");
        assert!(!sentence.contains("promise") && !sentence.contains("report it"), "{sentence}");
    }

    #[test]
    fn post_gives_a_pool_of_the_size_that_was_asked() {
        let station = Station::new("worker0", |post: &Post| {
            let pool = post.pool(64, Layout::default()).unwrap();
            (pool.capacity() >= 64, pool.region().mapping().is_some())
        });
        assert_eq!(Crew::start(vec![station], &StopFlag::new()).unwrap().join().unwrap(), [(true, true)]);
    }
}
