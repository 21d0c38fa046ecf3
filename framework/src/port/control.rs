//! The thread that runs the port, while the workers run: it applies one change of the subscriptions
//! after the other. A change takes effect in all workers and in the kernel or the NIC, or nowhere.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use super::error::{Error, Result, SubscriptionError};
use super::handle::{Change, Request};
use super::subscription::Subscription;
use crate::device::Device;
use crate::device::either::Either;
use crate::worker::live::{FlowSpec, LivePort};
use crate::worker::spsc::lossless::{Consumer, Producer, ring};

/// Interval between two polls of the requests: the longest wait of a requester. In exchange no
/// requester makes a system call to wake this thread.
pub(super) const REQUEST_PERIOD: Duration = Duration::from_millis(5);
/// Interval between two polls of a worker's answers; a worker polls its commands every few µs.
const ANSWER_PERIOD: Duration = Duration::from_micros(200);
/// Commands and answers in flight: one change is made at a time, and `Go` is sent once.
const RING_LEN: usize = 4;

/// A command to a worker.
pub(super) enum Command {
    Subscribe(Subscription),
    Unsubscribe(Subscription),
    /// All workers have started, and their requests from `on_start` are done: receive.
    Go,
}

/// An answer of a worker.
pub(super) enum Answer {
    /// Its app has started.
    Ready {
        /// Why its pool is on small pages, if it is.
        fallback: Option<String>,
    },
    /// The command is done, or was refused without an effect.
    Done(Result<()>),
}

/// The worker's end of the rings. Dropping it signals that the worker has ended.
pub(super) struct WorkerEnd {
    /// The subscriptions at start.
    pub(super) subscriptions: Vec<Subscription>,
    /// On an interface that is shared with the kernel: the flows that come here beside those of the
    /// subscriptions.
    pub(super) shared: Option<Vec<FlowSpec>>,
    pub(super) commands: Consumer<Command>,
    pub(super) answers: Producer<Answer>,
}

/// The control thread's end of the rings.
struct Peer {
    queue: u16,
    commands: Producer<Command>,
    answers: Consumer<Answer>,
}

/// Steers frames to the port, and keeps memberships.
pub trait Steering {
    #[doc(hidden)]
    fn add_flow(&mut self, subscription: &Subscription) -> Result<()>;
    #[doc(hidden)]
    fn remove_flow(&mut self, subscription: &Subscription) -> Result<()>;
}

impl Steering for LivePort {
    fn add_flow(&mut self, subscription: &Subscription) -> Result<()> {
        Ok(Self::add_flow(self, subscription.flow.clone())?)
    }

    fn remove_flow(&mut self, subscription: &Subscription) -> Result<()> {
        Ok(Self::remove_flow(self, &subscription.flow)?)
    }
}

/// A port whose kind its name chose: that of an interface, or a device.
impl<D: Device> Steering for Either<LivePort, D> {
    fn add_flow(&mut self, subscription: &Subscription) -> Result<()> {
        match self {
            Self::Left(port) => Steering::add_flow(port, subscription),
            Self::Right(device) => Steering::add_flow(device, subscription),
        }
    }

    fn remove_flow(&mut self, subscription: &Subscription) -> Result<()> {
        match self {
            Self::Left(port) => Steering::remove_flow(port, subscription),
            Self::Right(device) => Steering::remove_flow(device, subscription),
        }
    }
}

/// The device's owner steers the frames of any other device.
impl<D: Device> Steering for D {
    fn add_flow(&mut self, _: &Subscription) -> Result<()> {
        Ok(())
    }

    fn remove_flow(&mut self, _: &Subscription) -> Result<()> {
        Ok(())
    }
}

/// The workers and their subscriptions.
pub(super) struct Control {
    requests: Receiver<Request>,
    subscriptions: Vec<Subscription>,
    peers: Vec<Peer>,
}

impl Control {
    pub(super) fn new(requests: Receiver<Request>, subscriptions: Vec<Subscription>) -> Self {
        Self { requests, subscriptions, peers: Vec::new() }
    }

    /// Makes the end for the worker of this queue, on an interface that is `shared` with the kernel
    /// or ours.
    pub(super) fn worker_end(&mut self, queue: u16, shared: Option<Vec<FlowSpec>>) -> WorkerEnd {
        let (commands, reported) = ring(RING_LEN).expect("the length is a power of two");
        let (said, answers) = ring(RING_LEN).expect("the length is a power of two");
        self.peers.push(Peer { queue, commands, answers });
        let ours = self.subscriptions.iter().filter(|subscription| subscription.is_for(queue));
        WorkerEnd { subscriptions: ours.cloned().collect(), shared, commands: reported, answers: said }
    }

    /// Waits until all workers have started or failed to, and has them receive. Returns why pools
    /// are on small pages.
    pub(super) fn begin(&mut self, steering: &mut impl Steering) -> Vec<String> {
        let fallbacks = self.peers.iter_mut().filter_map(Peer::started).collect();
        self.serve(steering);
        self.peers.iter_mut().for_each(|peer| peer.tell(Command::Go));
        fallbacks
    }

    /// Serves the requests that wait; false once all workers have ended.
    pub(super) fn serve(&mut self, steering: &mut impl Steering) -> bool {
        while let Ok(request) = self.requests.try_recv() {
            let answer = match &request.change {
                Change::Subscribe(subscription) => self.subscribe(subscription, steering),
                Change::Unsubscribe(subscription) => self.unsubscribe(subscription, steering),
            };
            request.answer(answer);
        }
        self.peers.iter().any(|peer| !peer.answers.is_closed())
    }

    /// Opens the sockets before the rules: no frame is steered to a worker without a socket for it.
    fn subscribe(&mut self, subscription: &Subscription, steering: &mut impl Steering) -> Result<()> {
        let change = Change::Subscribe(subscription.clone());
        let mut subscriptions = self.subscriptions.clone();
        change.apply(&mut subscriptions)?;
        let mut ours: Vec<_> = self.peers.iter_mut().filter(|peer| subscription.is_for(peer.queue)).collect();
        if ours.is_empty() {
            return Err(SubscriptionError::NoQueue(subscription.flow.queue.unwrap_or_default()).of(subscription));
        }
        for idx in 0..ours.len() {
            if let Err(error) = ours[idx].open(subscription) {
                ours[..idx].iter_mut().for_each(|peer| peer.close(subscription));
                return Err(error);
            }
        }
        if let Err(error) = steering.add_flow(subscription) {
            ours.iter_mut().for_each(|peer| peer.close(subscription));
            return Err(error);
        }
        self.subscriptions = subscriptions;
        Ok(())
    }

    /// Closes the sockets after the rules: frames that arrive until then are delivered.
    fn unsubscribe(&mut self, subscription: &Subscription, steering: &mut impl Steering) -> Result<()> {
        Change::Unsubscribe(subscription.clone()).apply(&mut self.subscriptions)?;
        let steered = steering.remove_flow(subscription);
        for peer in self.peers.iter_mut().filter(|peer| subscription.is_for(peer.queue)) {
            peer.close(subscription);
        }
        steered
    }
}

impl Peer {
    /// Waits for the worker's start, and returns the reason if its pool is on small pages. A worker
    /// that could not start has stopped the others.
    fn started(&mut self) -> Option<String> {
        loop {
            match self.answers.pop() {
                Some(Answer::Ready { fallback }) => return fallback,
                Some(Answer::Done(_)) => return None,
                None if self.answers.is_drained() => return None,
                None => thread::sleep(ANSWER_PERIOD),
            }
        }
    }

    fn tell(&mut self, command: Command) {
        // One change is made at a time, so the ring has room; a worker that has ended receives
        // nothing.
        let _ = self.commands.push(command);
    }

    fn open(&mut self, subscription: &Subscription) -> Result<()> {
        self.tell(Command::Subscribe(subscription.clone()));
        self.answer()
    }

    fn close(&mut self, subscription: &Subscription) {
        self.tell(Command::Unsubscribe(subscription.clone()));
        // A worker that has ended has closed all its sockets.
        let _ = self.answer();
    }

    /// Waits for the next answer.
    fn answer(&mut self) -> Result<()> {
        loop {
            match self.answers.pop() {
                Some(Answer::Done(done)) => return done,
                Some(Answer::Ready { .. }) => return Ok(()),
                None if self.answers.is_drained() => return Err(Error::Ended),
                None => thread::sleep(ANSWER_PERIOD),
            }
        }
    }
}
