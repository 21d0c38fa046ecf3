//! One worker of a port from its first poll to its last, on its own thread.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::control::{Answer, Command, WorkerEnd};
use super::error::{Error, Result};
use super::handle::enter_worker;
use super::opened::Opened;
use crate::counters::{Block, Scope};
use crate::device::{RxQueue, TxQueue};
use crate::pipeline::{App, Cx, Node};
use crate::time::{Clock, Duration as Span, Instant};
use crate::worker::{Ended, StopFlag, Worker, WorkerContext};

/// Interval between two polls of the ring before the first turn.
const START_PERIOD: Duration = Duration::from_micros(50);

/// The most turns after a stop, to receive the frames that arrived before it: the longest ring at
/// one frame a turn.
const DRAIN_TURNS: usize = 65_536;

/// The leave reports have been sent within this, 200 ms at most: a few turns, unless something
/// blocks them.
const LEAVING_MAX: Span = Span::from_millis(200);
/// If no report was sent for this long, all groups are left. Repetitions, up to a second later, are
/// not waited for.
const LEAVING_QUIET: Span = Span::from_millis(5);
/// The least turns for either: on a busy machine the time may be over before we were scheduled.
const LEAVING_TURNS: usize = 64;

/// The place of one worker in its [`Port`](super::Port), on the worker's own thread:
/// [`start`](Self::start) starts a worker there. See [`Port::start`](super::Port::start).
#[must_use = "without a start the port takes the worker as ended"]
pub struct PortWorker {
    pub(super) context: WorkerContext,
    pub(super) queue: u16,
    pub(super) block: Arc<Block>,
    pub(super) end: WorkerEnd,
    pub(super) drains: bool,
}

/// A worker of a port that has started: [`run`](Self::run) polls until the port stops, or a loop of
/// one's own does, and [`finish`](Self::finish) ends it.
///
/// ```
/// # use wirepath::device::memory::{MemoryConfig, pair};
/// use wirepath::prelude::*;
/// use wirepath::time::{Clock, MonotonicClock};
///
/// # let (device, _far) = pair("wire", MemoryConfig::default());
/// # let stop = StopFlag::new();
/// # stop.stop();
/// let port = Port::over(device).named("own-loop");
/// # let port = port.stop_by(&stop).log(|_| ());
/// let running = port.start(|builder, worker| {
///     let mut clock = MonotonicClock::start();
///     let built = builder.build((), &worker.scope())?;
///     let mut running = worker.start(built, &mut clock)?;
///     while running.goes_on(clock.now()) {
///         for _ in 0..256 {
///             running.worker().poll_once(clock.now());
///             // and whatever else this thread has to do
///         }
///     }
///     running.finish(&mut clock);
///     Ok::<_, wirepath::Error>(())
/// })?;
/// running.join()?.into_iter().collect::<Result<(), _>>()?;
/// # wirepath::Result::<()>::Ok(())
/// ```
#[must_use = "a worker that is not finished leaves its connections and groups open"]
pub struct RunningWorker<Rx, Tx, N, A> {
    pub(super) worker: Worker<Rx, Tx, N, A>,
    pub(super) opened: Opened,
    end: WorkerEnd,
    stop: StopFlag,
    reports: Reports,
    drains: bool,
    /// Once it is over.
    ended: Option<Ended>,
}

impl PortWorker {
    /// The thread's name, core and NUMA node, and the port's stop flag.
    pub fn context(&self) -> &WorkerContext {
        &self.context
    }

    /// The index of the worker's queue.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// The scope of the worker's counters: `worker0` and so on.
    pub fn scope(&self) -> Scope {
        self.block.scope(&self.context.name)
    }

    /// Opens the subscriptions, calls [`App::on_start`], and waits until all workers of the port
    /// have started.
    ///
    /// # Errors
    /// A socket refuses its subscription, the app does not start, or the counters do not fit.
    pub fn start<Rx: RxQueue, Tx: TxQueue, N: Node<A>, A: App>(
        self,
        mut worker: Worker<Rx, Tx, N, A>,
        clock: &mut impl Clock,
    ) -> Result<RunningWorker<Rx, Tx, N, A>> {
        let Self { context, block, mut end, drains, .. } = self;
        block.check()?;
        enter_worker();
        let shared = end.shared.take();
        let mut opened = worker.with_app(clock.now(), |_, cx| Opened::new(shared, cx));
        worker.with_app(clock.now(), |app, cx| {
            end.subscriptions.iter().try_for_each(|subscription| opened.open(subscription, cx))?;
            app.on_start(cx).map_err(Error::App)
        })?;
        let fallback = worker.pool().region().mapping().and_then(|mapping| mapping.fallback());
        end.say(Answer::Ready { fallback: fallback.map(ToString::to_string) });
        while !context.stop.is_stopping() {
            match end.commands.pop() {
                Some(Command::Go) => break,
                Some(command) => worker.with_app(clock.now(), |_, cx| end.execute(command, &mut opened, cx)),
                None => thread::sleep(START_PERIOD),
            }
        }
        let reports = Reports { block, worker: context.name };
        Ok(RunningWorker { worker, opened, end, stop: context.stop, reports, drains, ended: None })
    }
}

impl<Rx: RxQueue, Tx: TxQueue, N: Node<A>, A: App> RunningWorker<Rx, Tx, N, A> {
    /// A worker in its caller's loop, without subscriptions; its counters are those of `scope`, a
    /// block and the worker's name there.
    pub(super) fn begin(
        mut worker: Worker<Rx, Tx, N, A>,
        mut end: WorkerEnd,
        stop: StopFlag,
        scope: (Arc<Block>, String),
        now: Instant,
    ) -> Self {
        let shared = end.shared.take();
        let opened = worker.with_app(now, |_, cx| Opened::new(shared, cx));
        let reports = Reports { block: scope.0, worker: scope.1 };
        Self { worker, opened, end, stop, reports, drains: false, ended: None }
    }

    /// The worker, for a loop of one's own.
    pub fn worker(&mut self) -> &mut Worker<Rx, Tx, N, A> {
        &mut self.worker
    }

    /// Polls until the port stops or its device has ended; with
    /// [`Port::drain`](super::Port::drain) then until a turn receives nothing.
    pub fn run(&mut self, clock: &mut impl Clock) -> Ended {
        let Self { worker, opened, end, stop, .. } = self;
        let ended = worker.run_with(clock, stop, |worker, now| end.execute_waiting(worker, opened, now));
        if ended == Ended::Stopped && self.drains {
            // Unless frames keep arriving.
            let _ = (0..DRAIN_TURNS).find(|_| worker.poll_once(clock.now()) == 0);
        }
        self.ended = Some(ended);
        ended
    }

    /// Whether a loop of one's own goes on; call it every few hundred turns. It opens and closes
    /// subscriptions, and updates the counters that are not written by each turn.
    pub fn goes_on(&mut self, now: Instant) -> bool {
        self.worker.publish();
        self.end.execute_waiting(&mut self.worker, &mut self.opened, now);
        self.ended = self.worker.ended(&self.stop);
        self.ended.is_none()
    }

    /// Ends it in order: calls [`App::on_stop`], resets the connections that are open, leaves the
    /// groups, and waits until the reports of that are on the wire, so that no switch goes on
    /// sending for minutes. Receives no frame meanwhile. Returns the worker with its results: the
    /// app, the pool, the packets that are kept.
    pub fn finish(mut self, clock: &mut impl Clock) -> Worker<Rx, Tx, N, A> {
        self.end_in_order(clock);
        self.worker
    }

    pub(super) fn end_in_order(&mut self, clock: &mut impl Clock) {
        let (reports, opened) = (self.reports.count(), &mut self.opened);
        let before = self.worker.with_app(clock.now(), |app, cx| {
            let before = cx.sockets.membership_changes();
            app.on_stop(cx);
            before
        });
        self.worker.reset_connections(clock.now());
        let has_left = self.worker.with_app(clock.now(), |_, cx| {
            opened.leave_groups(cx);
            cx.sockets.membership_changes() != before
        });
        if let (true, Some(reports)) = (has_left && self.ended != Some(Ended::DeviceEnded), reports) {
            self.leave(reports, clock);
        }
        self.worker.refresh();
    }

    /// Turns until the reports have left.
    fn leave(&mut self, before: u64, clock: &mut impl Clock) {
        let began = clock.now();
        let (mut last, mut changed) = (before, (began, 0));
        for turn in 0.. {
            let now = clock.now();
            self.worker.send_waiting(now);
            let count = self.reports.count().unwrap_or(last);
            if count != last {
                (last, changed) = (count, (now, turn));
            }
            let passed = |since: (Instant, usize), time| now.since(since.0) >= time && turn >= since.1 + LEAVING_TURNS;
            if last != before && passed(changed, LEAVING_QUIET) || passed((began, 0), LEAVING_MAX) {
                return;
            }
        }
    }
}

/// The counters of a worker's IGMP.
struct Reports {
    block: Arc<Block>,
    worker: String,
}

impl Reports {
    /// IGMP messages that the worker has sent; `None` if it does not speak IGMP.
    fn count(&self) -> Option<u64> {
        let snapshot = self.block.snapshot();
        let count = |name: &str| snapshot.count(&format!("{}/igmp/{name}", self.worker));
        Some(count("reports_sent")? + count("leaves_sent")?)
    }
}

impl WorkerEnd {
    fn say(&mut self, answer: Answer) {
        // One command is in flight at a time and has one answer, so there is room.
        let _ = self.answers.push(answer);
    }

    #[inline]
    fn execute_waiting<Rx: RxQueue, Tx: TxQueue, N: Node<A>, A: App>(
        &mut self,
        worker: &mut Worker<Rx, Tx, N, A>,
        opened: &mut Opened,
        now: Instant,
    ) {
        if let Some(command) = self.commands.pop() {
            worker.with_app(now, |_, cx| self.execute(command, opened, cx));
        }
    }

    fn execute(&mut self, command: Command, opened: &mut Opened, cx: &mut Cx<'_>) {
        let done = match command {
            Command::Go => return,
            Command::Subscribe(subscription) => opened.open(&subscription, cx),
            Command::Unsubscribe(subscription) => {
                opened.close(&subscription, cx);
                Ok(())
            }
        };
        self.say(Answer::Done(done));
    }
}
