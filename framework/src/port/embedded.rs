//! A port in a loop of the caller's own: one worker on the caller's thread, which polls it between
//! other work. It starts no thread for it and handles no signal.
//!
//! ```text
//!  the caller's thread
//!  Port::embed ─▶ on_start ─▶ poll … with_app … subscribe … poll ─▶ drop: on_stop, resets, counters
//! ```

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::account;
use super::control::{Control, Steering};
use super::error::{Error, Result, SubscriptionError};
use super::handle::Change;
use super::named::Named;
use super::run::{Log, Port, Settings, block};
use super::serve::RunningWorker;
use super::source::PortSource;
use super::subscription::Subscription;
use crate::counters::{Block, Scope, Snapshot};
use crate::device::{Queue, RxQueue, RxState};
use crate::pipeline::{App, Cx, HostStack};
use crate::sys::socket::{epoll, watch};
use crate::time::{Clock, Duration, Instant, MonotonicClock, TscClock};

/// The name of the only worker, in its counters.
const WORKER: &str = "worker0";

/// Turns between two publications of the gauges, as in a worker's own loop.
const PUBLISH_TURNS: u32 = 256;

/// The worker of a source.
type WorkerOf<S, A> =
    RunningWorker<<<S as PortSource>::Queue as Queue>::Rx, <<S as PortSource>::Queue as Queue>::Tx, HostStack, A>;

/// A port whose worker the caller polls: see [`Port::embed`]. It stays on its thread.
pub struct EmbeddedPort<A: App, S: PortSource = Named> {
    worker: OpenWorker<S, A>,
    subscriptions: Vec<Subscription>,
    clock: AnyClock,
    /// The time of the last turn, or of the first call after a sleep.
    now: Instant,
    /// Whether the caller may have slept since.
    is_asleep: bool,
    /// Readable while frames wait, or news of the kernel; made when it is first asked for.
    is_readable: Option<OwnedFd>,
    /// Frames of the last turn.
    received: usize,
    until_publish: u32,
    is_shared: bool,
    block: Arc<Block>,
    log: Log,
}

/// The worker, and the port that must live as long.
struct OpenWorker<S: PortSource, A> {
    /// The index of its queue.
    queue: u16,
    // Dropped in this order.
    running: WorkerOf<S, A>,
    port: S::Open,
}

/// The processor's counter where it runs evenly, else the system's clock.
enum AnyClock {
    Tsc(TscClock),
    System(MonotonicClock),
}

impl AnyClock {
    fn start() -> Self {
        TscClock::start().map_or_else(|| Self::System(MonotonicClock::start()), Self::Tsc)
    }
}

impl Clock for AnyClock {
    #[inline]
    fn now(&mut self) -> Instant {
        match self {
            Self::Tsc(clock) => clock.now(),
            Self::System(clock) => clock.now(),
        }
    }
}

impl<S: PortSource> Port<S> {
    /// Opens the port with one worker, on its first queue, that the caller polls on this thread:
    /// for an engine with a loop of its own. [`on_start`](App::on_start) is called before this
    /// returns, and [`on_stop`](App::on_stop) when the port is dropped. The options for cores do
    /// not apply, and no signal stops it. A [`handle`](Port::handle) finds that the port has ended:
    /// subscribe by [`EmbeddedPort::subscribe`].
    ///
    /// ```
    /// use wirepath::prelude::*;
    ///
    /// #[derive(Default)]
    /// struct Ticks(u64);
    /// impl App for Ticks {
    ///     fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
    ///         self.0 += 1;
    ///     }
    /// }
    ///
    /// let port = Port::open("memory:embedded")?.address([192, 0, 2, 1], 24).log(|_| ());
    /// let mut port = port.embed(Ticks::default())?;
    /// port.subscribe(udp([192, 0, 2, 1], 5000))?;
    /// for _ in 0..3 {
    ///     port.poll();
    ///     // and whatever else the loop does
    /// }
    /// assert_eq!(port.app().0, 0);
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    ///
    /// The same over a device, here of plain memory:
    ///
    /// ```
    /// use wirepath::device::memory::{MemoryConfig, pair};
    /// use wirepath::prelude::*;
    ///
    /// let (device, _far) = pair("wire", MemoryConfig::default());
    /// let port = Port::over(device).address([192, 0, 2, 1], 24);
    /// # let port = port.log(|_| ());
    /// let mut port = port.subscribe(multicast([239, 1, 1, 1], 9000)).embed(())?;
    /// assert_eq!(port.poll(), 0);
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Port::run).
    pub fn embed<A: App>(self, app: A) -> Result<EmbeddedPort<A, S>> {
        let Self { source, mut settings } = self;
        settings.check()?;
        if settings.cores.as_ref().is_some_and(|cores| cores.len() > 1) {
            let what = "an embedded port has one worker on the caller's thread, so it takes no list of cores";
            return Err(Error::Config(what.into()));
        }
        if source.has_several_queues() {
            let what = "an embedded port has one worker, so its configuration names one queue";
            return Err(Error::Config(what.into()));
        }
        // No thread is pinned.
        settings.cores = Some(Vec::new());
        let block = settings.block.take().unwrap_or_else(|| block(&settings.name, &mut settings.log));
        let subscriptions = settings.handle.run();
        let mut clock = AnyClock::start();
        let (worker, is_shared, log) = OpenWorker::open(source, settings, app, &block, &mut clock)?;
        block.check()?;
        let now = clock.now();
        let mut port = EmbeddedPort {
            worker,
            subscriptions: Vec::new(),
            clock,
            now,
            is_asleep: false,
            is_readable: None,
            received: 0,
            until_publish: 0,
            is_shared,
            block,
            log,
        };
        subscriptions.into_iter().try_for_each(|subscription| port.subscribe(subscription))?;
        port.with_app(|app, cx| app.on_start(cx)).map_err(Error::App)?;
        Ok(port)
    }
}

impl<S: PortSource, A: App> OpenWorker<S, A> {
    /// Opens a source and builds its worker. Returns as well whether the interface is shared with
    /// the kernel, and the log.
    fn open(
        source: S,
        mut settings: Settings,
        app: A,
        block: &Arc<Block>,
        clock: &mut AnyClock,
    ) -> Result<(Self, bool, Log)> {
        let stop = settings.stop.take().unwrap_or_default();
        let mut open = source.open(&settings, &[], block, &stop)?;
        let Settings { requests, mut log, held, .. } = settings;
        open.lines.iter().for_each(|line| log(line));
        let (queue, taken) = open.queues.pop().expect("one queue was asked for");
        let worker = S::builder(taken).held(held).build(app, &block.scope(WORKER))?;
        let is_shared = open.shared.is_some();
        // The other end of its rings is unused, because `subscribe` is called on this thread.
        let end = Control::new(requests, Vec::new()).worker_end(queue, open.shared);
        let running = RunningWorker::begin(worker, end, stop, (Arc::clone(block), WORKER.to_owned()), clock.now());
        Ok((Self { queue, running, port: open.port }, is_shared, log))
    }

    fn subscribe(&mut self, subscription: &Subscription, now: Instant) -> Result<()> {
        let RunningWorker { worker, opened, .. } = &mut self.running;
        worker.with_app(now, |_, cx| opened.open(subscription, cx))?;
        let steered = self.port.add_flow(subscription);
        if steered.is_err() {
            worker.with_app(now, |_, cx| opened.close(subscription, cx));
        }
        steered
    }

    fn unsubscribe(&mut self, subscription: &Subscription, now: Instant) -> Result<()> {
        let RunningWorker { worker, opened, .. } = &mut self.running;
        let steered = self.port.remove_flow(subscription);
        worker.with_app(now, |_, cx| opened.close(subscription, cx));
        steered
    }
}

impl<A: App, S: PortSource> EmbeddedPort<A, S> {
    /// Reads the clock and makes one turn
    /// ([`Worker::poll_once`](crate::worker::Worker::poll_once)). Returns the number of frames
    /// received.
    #[inline]
    pub fn poll(&mut self) -> usize {
        self.wake();
        self.received = self.worker.running.worker.poll_once(self.now);
        if self.until_publish == 0 {
            self.publish();
        }
        self.until_publish -= 1;
        self.received
    }

    #[cold]
    fn publish(&mut self) {
        self.until_publish = PUBLISH_TURNS;
        self.worker.running.worker.publish();
    }

    /// Calls the app between two turns ([`Worker::with_app`](crate::worker::Worker::with_app)), in
    /// the time of the last turn, or of now where [`time_to_next`](Self::time_to_next) was asked
    /// since. Frames that it posts leave before this returns.
    #[inline]
    pub fn with_app<T>(&mut self, act: impl FnOnce(&mut A, &mut Cx<'_>) -> T) -> T {
        if self.is_asleep {
            self.wake();
        }
        self.worker.running.worker.with_app(self.now, act)
    }

    /// As [`with_app`](Self::with_app), and frames that it posts leave with the next turn, or by
    /// [`Cx::ring_doorbell`].
    #[inline]
    pub fn with_app_batched<T>(&mut self, act: impl FnOnce(&mut A, &mut Cx<'_>) -> T) -> T {
        if self.is_asleep {
            self.wake();
        }
        self.worker.running.worker.with_app_batched(self.now, act)
    }

    fn wake(&mut self) {
        self.is_asleep = false;
        self.now = self.clock.now();
    }

    /// Subscribes: the sockets first, then the rules and memberships. System calls on an interface.
    ///
    /// # Errors
    /// The subscription was refused, and nothing has changed.
    pub fn subscribe(&mut self, subscription: Subscription) -> Result<()> {
        let mut subscriptions = self.subscriptions.clone();
        Change::Subscribe(subscription.clone()).apply(&mut subscriptions)?;
        if !subscription.is_for(self.worker.queue) {
            return Err(SubscriptionError::NoQueue(subscription.flow.queue.unwrap_or_default()).of(&subscription));
        }
        self.worker.subscribe(&subscription, self.now)?;
        self.subscriptions = subscriptions;
        Ok(())
    }

    /// Takes a subscription back: the rules and memberships first, then the sockets.
    ///
    /// # Errors
    /// There is no such subscription; or as [`PortHandle::unsubscribe`](super::PortHandle).
    pub fn unsubscribe(&mut self, subscription: &Subscription) -> Result<()> {
        Change::Unsubscribe(subscription.clone()).apply(&mut self.subscriptions)?;
        self.worker.unsubscribe(subscription, self.now)
    }

    /// A descriptor that is readable while frames wait
    /// ([`Worker::wait_fd`](crate::worker::Worker::wait_fd)), or news of the kernel do
    /// ([`Worker::update_fd`](crate::worker::Worker::update_fd)): for an epoll set. The port owns
    /// it. `None` where the device can only be polled.
    ///
    /// From the first call on [`time_to_next`](Self::time_to_next) counts on the caller sleeping on
    /// it. Without a free descriptor for the two, it is the one for frames, and the kernel's tables
    /// are looked at each 20 ms.
    pub fn wait_fd(&mut self) -> Option<RawFd> {
        let worker = &mut self.worker.running.worker;
        let frames = worker.wait_fd()?;
        if self.is_readable.is_none()
            && let Ok(set) = epoll()
            && watch(&set, frames).is_ok()
        {
            // From here on the kernel's news wake who sleeps on it.
            if let Some(updates) = worker.update_fd() {
                // It fails for want of kernel memory alone.
                let _ = watch(&set, updates);
            }
            self.is_readable = Some(set);
        }
        Some(self.is_readable.as_ref().map_or(frames, AsRawFd::as_raw_fd))
    }

    /// How long the caller may sleep on [`wait_fd`](Self::wait_fd) before it polls again: zero if
    /// it must poll at once, `None` if only a frame or a call brings work
    /// ([`Worker::next_deadline`](crate::worker::Worker::next_deadline)). Call this just before the
    /// sleep.
    pub fn time_to_next(&mut self) -> Option<Duration> {
        self.wake();
        let next = self.worker.running.worker.next_deadline(self.now)?;
        self.is_asleep = true;
        Some(next.since(self.now))
    }

    /// Reads the clock: calls until the next turn use this time. For a call whose time must not be
    /// that of the last turn, such as [`Cx::after`], by a caller that may have been busy since.
    #[inline]
    pub fn read_clock(&mut self) -> Instant {
        self.wake();
        self.now
    }

    /// The time of the last turn, since the port was opened.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Whether no frame will come any more: the capture is over, or the interface is gone.
    pub fn has_ended(&self) -> bool {
        self.received == 0 && self.worker.running.worker.rx().state() == RxState::Ended
    }

    /// Whether the interface is shared with the kernel: then TCP connects only where a subscription
    /// brings the answers here.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The subscriptions that are open.
    pub fn subscriptions(&self) -> &[Subscription] {
        &self.subscriptions
    }

    /// All counters, read now, with the gauges as they were at most 256 turns ago.
    pub fn counters(&self) -> Snapshot {
        self.block.snapshot()
    }

    /// A scope of the port's counters for values of the caller's own, at set-up. [`Block::check`]
    /// was called when the port was opened: names that are used twice, or find no room, are not
    /// published.
    pub fn scope(&self, name: &str) -> Scope {
        self.block.scope(name)
    }

    /// The app.
    pub fn app(&self) -> &A {
        self.worker.running.worker.app()
    }

    /// The app, for calls that need neither time nor context.
    #[inline]
    pub fn app_mut(&mut self) -> &mut A {
        self.worker.running.worker.app_mut()
    }
}

/// The app is stopped, connections are reset, groups are left, and the counters' last lines are
/// logged.
impl<A: App, S: PortSource> Drop for EmbeddedPort<A, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let Self { worker, clock, .. } = self;
        worker.running.end_in_order(clock);
        let Self { block, log, .. } = self;
        account::lines(&block.snapshot()).iter().for_each(|line| log(line));
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddrV4;

    use super::*;
    use crate::pipeline::{AppError, Datagram, UdpOptions, send_to};
    use crate::port::udp;
    use crate::proto::TimerId;

    const NEAR: [u8; 4] = [192, 0, 2, 1];
    const FAR: [u8; 4] = [192, 0, 2, 2];

    #[derive(Default)]
    struct Heard {
        started: bool,
        payloads: Vec<Vec<u8>>,
        timers: Vec<u64>,
    }

    impl App for Heard {
        fn on_start(&mut self, _: &mut Cx<'_>) -> core::result::Result<(), AppError> {
            self.started = true;
            Ok(())
        }

        fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
            self.payloads.push(datagram.payload.to_vec());
        }

        fn on_timer(&mut self, token: u64, _: &mut Cx<'_>) {
            self.timers.push(token);
        }

        fn next_deadline(&self, _: &Cx<'_>) -> Instant {
            Instant::MAX
        }
    }

    /// Two ports at the ends of a wire.
    fn ports(wire: &str) -> [EmbeddedPort<Heard>; 2] {
        [NEAR, FAR].map(|address| {
            let port = Port::open(&format!("memory:{wire}")).unwrap().address(address, 24).log(|_| ());
            port.embed(Heard::default()).unwrap()
        })
    }

    fn send(port: &mut EmbeddedPort<Heard>, payload: &[u8]) {
        let (us, them) = (SocketAddrV4::new(NEAR.into(), 40_000), SocketAddrV4::new(FAR.into(), 5_000));
        port.with_app(|_, cx| send_to(us, them, &UdpOptions::default(), payload, cx)).unwrap();
    }

    #[test]
    fn datagram_comes_where_it_is_subscribed_to_and_not_after() {
        let [mut near, mut far] = ports("embedded-datagram");
        assert!(far.app().started);
        let turns = |near: &mut EmbeddedPort<Heard>, far: &mut EmbeddedPort<Heard>| {
            for _ in 0..8 {
                near.poll();
                far.poll();
            }
        };
        send(&mut near, b"before");
        turns(&mut near, &mut far);
        far.subscribe(udp(FAR, 5_000)).unwrap();
        far.subscribe(udp(FAR, 5_000)).unwrap_err();
        far.subscribe(udp(FAR, 0)).unwrap_err();
        send(&mut near, b"meanwhile");
        turns(&mut near, &mut far);
        far.unsubscribe(&udp(FAR, 5_000)).unwrap();
        far.unsubscribe(&udp(FAR, 5_000)).unwrap_err();
        send(&mut near, b"after");
        turns(&mut near, &mut far);
        assert_eq!(far.app().payloads, [b"meanwhile"]);
        assert_eq!(far.counters().count("worker0/udp/drop/no_consumer"), Some(2));
    }

    #[test]
    fn caller_may_sleep_until_its_timer() {
        let [mut near, _far] = ports("embedded-timer");
        let id = near.with_app(|_, cx| cx.after(Duration::from_millis(200), 7)).unwrap();
        assert_eq!(TimerId::from_bits(id.to_bits()), id);
        near.poll();
        // On a busy machine the timer may have fired within that poll.
        let left = near.time_to_next();
        assert!(!near.app().timers.is_empty() || left.is_some_and(|left| left <= Duration::from_millis(201)));
        while near.app().timers.is_empty() {
            near.poll();
        }
        assert_eq!(near.app().timers, [7]);
    }
}
