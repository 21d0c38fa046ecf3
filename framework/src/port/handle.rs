//! Subscribing while a port runs, from any thread: a bounded queue of requests to the thread that
//! called [`Port::run`](super::Port::run), and an answer to each.
//!
//! ```text
//!  any thread, or an app       thread of Port::run            each worker, between two turns
//!  PortHandle::subscribe ─queue─▶ one after the other ══ring══▶ its sockets join, bind, listen
//!           ▲                       │ then the kernel's part:        │
//!           └─────── answer ────────┤ rules, memberships  ◀══ring════┘
//! ```

use core::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::{Error, Result};
use super::subscription::Subscription;

/// Requests that may wait. An operator or an app asks for one or some at a time; who asks for more
/// waits, or asks again.
const REQUESTS_MAX: usize = 64;

thread_local! {
    /// Whether this thread is a port's worker, which must not wait for itself.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Subscribes and unsubscribes while a port runs: see [`Port::handle`](super::Port::handle). Clones
/// are handles of the same port.
///
/// ```
/// use std::thread;
/// use wirepath::prelude::*;
/// use wirepath::worker::StopFlag;
///
/// let stop = StopFlag::new();
/// let port = Port::open("memory:handle")?.unpinned().stop_by(&stop).log(|_| ());
/// let handle = port.handle();
/// let running = thread::spawn(move || port.run(|_worker| ()));
/// handle.subscribe(multicast([239, 1, 1, 1], 9000))?;
/// handle.unsubscribe(&multicast([239, 1, 1, 1], 9000))?;
/// stop.stop();
/// running.join().expect("no panic")?;
/// # wirepath::Result::<()>::Ok(())
/// ```
#[derive(Clone)]
pub struct PortHandle(Arc<Shared>);

struct Shared {
    requests: SyncSender<Request>,
    /// Set once, when the port runs; from then on nobody locks.
    is_running: AtomicBool,
    /// What it subscribes to when it runs.
    before: Mutex<Vec<Subscription>>,
}

/// What shall change.
pub(super) enum Change {
    Subscribe(Subscription),
    Unsubscribe(Subscription),
}

/// A change that somebody waits for.
pub(super) struct Request {
    pub(super) change: Change,
    answer: SyncSender<Result<()>>,
}

/// An answer that is still to come.
#[must_use = "the answer says whether it was refused, and why"]
pub struct Pending(Receiver<Result<()>>);

impl PortHandle {
    /// A handle, and where its requests come out.
    pub(super) fn new() -> (Self, Receiver<Request>) {
        let (requests, asked) = sync_channel(REQUESTS_MAX);
        let shared = Shared { requests, is_running: AtomicBool::new(false), before: Mutex::default() };
        (Self(Arc::new(shared)), asked)
    }

    /// The port is to begin with it.
    pub(super) fn begin_with(&self, subscription: Subscription) {
        self.before().push(subscription);
    }

    /// The port runs from now on, and begins with these.
    pub(super) fn run(&self) -> Vec<Subscription> {
        let mut before = self.before();
        self.0.is_running.store(true, Ordering::Release);
        core::mem::take(&mut before)
    }

    /// Subscribes, and waits until every worker's sockets have it and the kernel or the NIC steers
    /// it to them: some milliseconds. For threads that are not workers; an app takes
    /// [`try_subscribe`](Self::try_subscribe). Of a port that does not run yet it is as
    /// [`Port::subscribe`](super::Port::subscribe): what is refused ends [`run`](super::Port::run).
    ///
    /// # Errors
    /// What was refused, and why; nothing has changed then. The port has ended.
    pub fn subscribe(&self, subscription: Subscription) -> Result<()> {
        self.wait_for(Change::Subscribe(subscription))
    }

    /// Takes a subscription back, one of the start or a later one, by the same words. Frames of it
    /// that stand in a ring may still come until this returns. What another subscription needs as
    /// well stays.
    ///
    /// # Errors
    /// It is not subscribed to; the port has ended. Nothing has changed then. On a ConnectX a rule
    /// stands for one queue, and the NIC may refuse it for another queue that needs it too: those
    /// frames then go to the kernel.
    pub fn unsubscribe(&self, subscription: &Subscription) -> Result<()> {
        self.wait_for(Change::Unsubscribe(subscription.clone()))
    }

    /// Subscribes without waiting, for apps: no lock and no system call here, some 200 bytes of
    /// heap; the answer comes some milliseconds later, and frames may come before it. What an app
    /// asks for in [`on_start`](crate::pipeline::App::on_start) stands before the first frame is
    /// received.
    ///
    /// ```no_run
    /// use wirepath::prelude::*;
    ///
    /// /// Hears the group that a directory names.
    /// struct Follower {
    ///     handle: PortHandle,
    ///     asked: Option<Pending>,
    /// }
    ///
    /// impl App for Follower {
    ///     fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
    ///         let Some(&group) = datagram.payload.first_chunk::<4>() else { return };
    ///         if datagram.consumer == ConsumerId(0) {
    ///             self.asked = self.handle.try_subscribe(multicast(group, 9000).consumer(1)).ok();
    ///         }
    ///     }
    ///
    ///     fn tick(&mut self, _: &mut Cx<'_>) {
    ///         if let Some(answer) = self.asked.as_mut().and_then(Pending::answer) {
    ///             self.asked = None;
    ///             answer.unwrap_or_else(|error| eprintln!("{error}"));
    ///         }
    ///     }
    /// }
    ///
    /// fn main() -> wirepath::Result<()> {
    ///     let port = Port::open("eth1")?.subscribe(multicast([239, 1, 1, 1], 9000));
    ///     let handle = port.handle();
    ///     port.run(move |_worker| Follower { handle: handle.clone(), asked: None })
    /// }
    /// ```
    ///
    /// # Errors
    /// As many requests wait as there may be, 64; the port has ended.
    pub fn try_subscribe(&self, subscription: Subscription) -> Result<Pending> {
        self.request(Change::Subscribe(subscription))
    }

    /// Takes a subscription back without waiting, as [`try_subscribe`](Self::try_subscribe) gives
    /// it.
    ///
    /// # Errors
    /// As many requests wait as there may be, 64; the port has ended.
    pub fn try_unsubscribe(&self, subscription: &Subscription) -> Result<Pending> {
        self.request(Change::Unsubscribe(subscription.clone()))
    }

    fn wait_for(&self, change: Change) -> Result<()> {
        if IS_WORKER.get() {
            let why = "a worker cannot wait for itself: take the same call with try_, and look at its answer in tick or on_timer";
            return Err(refused(change.subscription(), why));
        }
        let Some(change) = self.change_before(change)? else { return Ok(()) };
        let (answer, pending) = sync_channel(1);
        self.0.requests.send(Request { change, answer }).map_err(|_| Error::Ended)?;
        pending.recv().unwrap_or(Err(Error::Ended))
    }

    fn request(&self, change: Change) -> Result<Pending> {
        let (answer, pending) = sync_channel(1);
        if let Some(change) = self.change_before(change)? {
            self.0.requests.try_send(Request { change, answer }).map_err(|refused| match refused {
                TrySendError::Full(_) => Error::Busy,
                TrySendError::Disconnected(_) => Error::Ended,
            })?;
        } else {
            let _ = answer.try_send(Ok(()));
        }
        Ok(Pending(pending))
    }

    /// Makes the change where the port does not run yet; gives it back where it does.
    fn change_before(&self, change: Change) -> Result<Option<Change>> {
        if self.0.is_running.load(Ordering::Acquire) {
            return Ok(Some(change));
        }
        let mut before = self.before();
        if self.0.is_running.load(Ordering::Acquire) {
            return Ok(Some(change));
        }
        change.apply(&mut before).map(|()| None)
    }

    fn before(&self) -> MutexGuard<'_, Vec<Subscription>> {
        // A list is whole whoever panicked beside it.
        self.0.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// The answer, once, when it has come: looks and does not wait.
    ///
    /// # Errors
    /// What was refused, and why; nothing has changed then. The port has ended.
    pub fn answer(&mut self) -> Option<Result<()>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::Ended)),
        }
    }
}

impl Change {
    pub(super) fn subscription(&self) -> &Subscription {
        match self {
            Self::Subscribe(subscription) | Self::Unsubscribe(subscription) => subscription,
        }
    }

    /// Makes it to a list of what is subscribed to.
    pub(super) fn apply(self, subscriptions: &mut Vec<Subscription>) -> Result<()> {
        let place = subscriptions.iter().position(|other| other.is_same(self.subscription()));
        match (self, place) {
            (Self::Subscribe(subscription), None) => subscriptions.push(subscription),
            (Self::Unsubscribe(_), Some(place)) => drop(subscriptions.remove(place)),
            (Self::Subscribe(subscription), Some(_)) => {
                return Err(refused(&subscription, "it is subscribed to already"));
            }
            (Self::Unsubscribe(subscription), None) => return Err(refused(&subscription, "it is not subscribed to")),
        }
        Ok(())
    }
}

impl Request {
    /// Answers it. Who asked may be gone.
    pub(super) fn answer(self, answer: Result<()>) {
        let _ = self.answer.try_send(answer);
    }
}

/// From here on this thread is a worker.
pub(super) fn enter_worker() {
    IS_WORKER.set(true);
}

pub(super) fn refused(what: &Subscription, why: &str) -> Error {
    Error::Subscription { what: what.to_string(), why: why.to_owned() }
}
