//! A port while its workers run, on the thread that started it.

use std::sync::Arc;
use std::thread;

use super::account;
use super::control::{Control, REQUEST_PERIOD};
use super::error::Result;
use super::run::Log;
use super::source::PortSource;
use crate::counters::Block;
use crate::worker::topology::TopologyReport;
use crate::worker::{StopFlag, WorkerGroup};

/// A port whose workers run: see [`Port::start`](super::Port::start). Dropping it stops them.
#[must_use = "dropping it stops the workers; join waits for them"]
pub struct RunningPort<S: PortSource, T> {
    pub(super) port: S::Open,
    pub(super) control: Control,
    /// There until it is joined.
    pub(super) group: Option<WorkerGroup<T>>,
    pub(super) report: TopologyReport,
    pub(super) stop: StopFlag,
    pub(super) block: Arc<Block>,
    pub(super) log: Log,
}

impl<S: PortSource, T: Send + 'static> RunningPort<S, T> {
    /// The open port: of an interface the [`LivePort`](crate::worker::live::LivePort), with its
    /// description, its clock, and the caller's own rules; of [`Port::over`](super::Port::over) the
    /// device; of [`Port::open`](super::Port::open) an [`Either`](crate::device::either::Either) of
    /// these.
    pub fn port(&mut self) -> &mut S::Open {
        &mut self.port
    }

    /// The findings about the machine, for these workers.
    pub fn report(&self) -> &TopologyReport {
        &self.report
    }

    /// Serves callers that subscribe by a [`PortHandle`](super::PortHandle) and wait for the
    /// result; false once all workers have ended. For a thread with work of its own:
    /// [`join`](Self::join) does the same until the end.
    pub fn serve(&mut self) -> bool {
        self.control.serve(&mut self.port)
    }

    /// Waits until all workers have ended, and returns their results, in the order of their queues.
    ///
    /// # Errors
    /// A thread could not be pinned, or panicked.
    pub fn join(mut self) -> Result<Vec<T>> {
        while self.serve() {
            thread::sleep(REQUEST_PERIOD);
        }
        let done = self.group.take().map_or(Ok(Vec::new()), WorkerGroup::join);
        account::lines(&self.block.snapshot()).iter().for_each(|line| (self.log)(line));
        Ok(done?)
    }
}

impl<S: PortSource, T> Drop for RunningPort<S, T> {
    fn drop(&mut self) {
        self.stop.stop();
    }
}
