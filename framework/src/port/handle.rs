//! Subscribing while a port runs, from any thread: requests go through a bounded queue to the
//! thread that called [`Port::run`](super::Port::run), which answers each.
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

use super::error::{Error, Result, SubscriptionError};
use super::subscription::Subscription;

/// Requests that may be pending. An operator or an app makes one or some at a time; beyond that the
/// caller waits or tries again.
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
    /// Set once, when the port starts; from then on no caller takes the lock.
    is_running: AtomicBool,
    /// The subscriptions that the port starts with.
    before: Mutex<Vec<Subscription>>,
}

/// A change of the subscriptions.
pub(super) enum Change {
    Subscribe(Subscription),
    Unsubscribe(Subscription),
}

/// A change, and where to send its answer.
pub(super) struct Request {
    pub(super) change: Change,
    answer: SyncSender<Result<()>>,
}

/// A pending answer.
#[must_use = "the answer says whether it was refused, and why"]
pub struct Pending(Receiver<Result<()>>);

impl PortHandle {
    /// A handle, and the receiving end of its requests.
    pub(super) fn new() -> (Self, Receiver<Request>) {
        let (requests, asked) = sync_channel(REQUESTS_MAX);
        let shared = Shared { requests, is_running: AtomicBool::new(false), before: Mutex::default() };
        (Self(Arc::new(shared)), asked)
    }

    /// Adds a subscription that the port starts with.
    pub(super) fn begin_with(&self, subscription: Subscription) {
        self.before().push(subscription);
    }

    /// Marks the port as running and returns the subscriptions it starts with.
    pub(super) fn run(&self) -> Vec<Subscription> {
        let mut before = self.before();
        self.0.is_running.store(true, Ordering::Release);
        core::mem::take(&mut before)
    }

    /// Subscribes, and waits until every worker's sockets accept the subscription and the kernel or
    /// the NIC steers its frames to them: some milliseconds. Not for worker threads: an app calls
    /// [`try_subscribe`](Self::try_subscribe). Before the port runs this is
    /// [`Port::subscribe`](super::Port::subscribe), and a refusal ends [`run`](super::Port::run).
    ///
    /// # Errors
    /// The subscription was refused, with the reason, and nothing has changed; or the port has
    /// ended.
    pub fn subscribe(&self, subscription: Subscription) -> Result<()> {
        self.wait_for(Change::Subscribe(subscription))
    }

    /// Cancels a subscription that was made at the start or later and has the same description.
    /// Until this returns, frames that are already in a ring may still be delivered. Rules and
    /// memberships that another subscription needs remain.
    ///
    /// # Errors
    /// There is no such subscription, or the port has ended; then nothing has changed. On a
    /// ConnectX a rule belongs to one queue, and the NIC may refuse to move it to another queue
    /// that needs it too: the kernel then receives those frames.
    pub fn unsubscribe(&self, subscription: &Subscription) -> Result<()> {
        self.wait_for(Change::Unsubscribe(subscription.clone()))
    }

    /// Subscribes without waiting, for apps: no lock and no system call, some 200 bytes of heap.
    /// The answer follows some milliseconds later, and frames may arrive before it. Requests made
    /// in [`on_start`](crate::pipeline::App::on_start) are complete before the first frame is
    /// received.
    ///
    /// ```no_run
    /// use wirepath::prelude::*;
    ///
    /// /// Receives the group that a directory names.
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
    /// The request queue is full (64 requests), or the port has ended.
    pub fn try_subscribe(&self, subscription: Subscription) -> Result<Pending> {
        self.request(Change::Subscribe(subscription))
    }

    /// Cancels a subscription without waiting; the counterpart of
    /// [`try_subscribe`](Self::try_subscribe).
    ///
    /// # Errors
    /// The request queue is full (64 requests), or the port has ended.
    pub fn try_unsubscribe(&self, subscription: &Subscription) -> Result<Pending> {
        self.request(Change::Unsubscribe(subscription.clone()))
    }

    fn wait_for(&self, change: Change) -> Result<()> {
        if IS_WORKER.get() {
            return Err(SubscriptionError::OnWorker.of(change.subscription()));
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

    /// Applies the change if the port does not run yet; returns it otherwise.
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
        // A panic of another thread leaves the list whole.
        self.0.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// The answer, once it has arrived: polls and does not wait.
    ///
    /// # Errors
    /// The subscription was refused, with the reason, and nothing has changed; or the port has
    /// ended.
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

    /// Applies it to a list of subscriptions.
    pub(super) fn apply(self, subscriptions: &mut Vec<Subscription>) -> Result<()> {
        let place = subscriptions.iter().position(|other| other.is_same(self.subscription()));
        match (self, place) {
            (Self::Subscribe(subscription), None) => subscriptions.push(subscription),
            (Self::Unsubscribe(_), Some(place)) => drop(subscriptions.remove(place)),
            (Self::Subscribe(subscription), Some(_)) => {
                return Err(SubscriptionError::Duplicate.of(&subscription));
            }
            (Self::Unsubscribe(subscription), None) => {
                return Err(SubscriptionError::NotSubscribed.of(&subscription));
            }
        }
        Ok(())
    }
}

impl Request {
    /// Sends the answer. The requester may be gone.
    pub(super) fn answer(self, answer: Result<()>) {
        let _ = self.answer.try_send(answer);
    }
}

/// Marks this thread as a worker.
pub(super) fn enter_worker() {
    IS_WORKER.set(true);
}
