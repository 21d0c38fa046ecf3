//! A worker with its sockets and a clock. A call that would block polls the worker until it can
//! return, or until its timeout. One thread owns a stack and all its sockets; another thread that
//! wants sockets makes another stack, with a separate queue.

use core::cell::RefCell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;

use wirepath::device::{Doorbell, RxQueue, TxQueue};
use wirepath::pipeline::{Cx, Node};
use wirepath::time::{Clock, Duration, Instant};
use wirepath::worker::Worker;

use crate::epoll::EpollEvent;
use crate::errno::Errno;
use crate::ready::Ready;
use crate::table::{SocketId, Sockets};

/// Turns between two updates of the worker's gauges, as in a worker's own loop.
const PUBLISH_TURNS: u32 = 256;

/// A call that need not wait turns the worker too where its last turn is older than this: well
/// below the time that a peer waits for an acknowledgment, and long beside a turn without packets.
const TURN_EVERY: Duration = Duration::from_micros(50);

/// Reads that need no clock until one reads it for [`TURN_EVERY`].
const READS_WITHOUT_CLOCK: u32 = 16;

/// A [`Worker`] over any device whose app is [`Sockets`].
pub trait SocketWorker {
    /// One turn of the worker. Returns the number of received packets.
    fn turn(&mut self, now: Instant) -> usize;

    /// The same, but frames wait for the next doorbell, which [`leave`](Self::leave) rings.
    fn turn_without_doorbell(&mut self, now: Instant) -> usize;

    /// The sockets.
    fn sockets(&mut self) -> &mut Sockets;

    /// The sockets with their context, for calls. [`leave`](Self::leave) follows.
    fn enter(&mut self, now: Instant) -> (&mut Sockets, Cx<'_>);

    /// Has the frames that calls have posted leave.
    fn leave(&mut self, now: Instant);

    /// The same, but for a system call that it may need ([`TxQueue::defer_doorbell`]).
    fn leave_without_doorbell(&mut self, now: Instant) -> Option<Arc<dyn Doorbell>>;

    /// Makes a call of the sockets. Frames that it sends leave before it returns.
    fn with(&mut self, now: Instant, act: &mut dyn FnMut(&mut Sockets, &mut Cx<'_>)) {
        let (sockets, mut cx) = self.enter(now);
        act(sockets, &mut cx);
        self.leave(now);
    }

    /// The time at which [`turn`](Self::turn) next has work if no frame arrives before
    /// ([`Worker::next_deadline`]). A caller that is about to sleep asks for it, after a turn
    /// without packets.
    fn next_deadline(&mut self, now: Instant) -> Option<Instant>;

    /// The same for timers alone ([`Worker::next_timer`]).
    fn next_timer(&mut self, now: Instant) -> Option<Instant>;

    /// A descriptor that is readable while frames wait ([`Worker::wait_fd`]); `None` where the
    /// device has none.
    fn wait_fd(&self) -> Option<RawFd>;

    /// A descriptor that is readable once the kernel has news for the worker
    /// ([`Worker::update_fd`]): the caller sleeps on it too.
    fn update_fd(&mut self) -> Option<RawFd>;

    /// Updates the gauges ([`Worker::publish`]).
    fn publish(&mut self);

    /// Updates all counters ([`Worker::refresh`]).
    fn refresh(&mut self);
}

impl<Rx: RxQueue, Tx: TxQueue, N: Node<Sockets>> SocketWorker for Worker<Rx, Tx, N, Sockets> {
    fn turn(&mut self, now: Instant) -> usize {
        self.poll_once(now)
    }

    fn turn_without_doorbell(&mut self, now: Instant) -> usize {
        self.poll_without_doorbell(now)
    }

    fn sockets(&mut self) -> &mut Sockets {
        self.app_mut()
    }

    fn enter(&mut self, now: Instant) -> (&mut Sockets, Cx<'_>) {
        self.app_and_cx(now)
    }

    fn leave(&mut self, now: Instant) {
        self.tx_mut().ring_doorbell(now);
    }

    fn leave_without_doorbell(&mut self, now: Instant) -> Option<Arc<dyn Doorbell>> {
        self.tx_mut().defer_doorbell(now)
    }

    fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        Self::next_deadline(self, now)
    }

    fn next_timer(&mut self, now: Instant) -> Option<Instant> {
        Self::next_timer(self, now)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Self::wait_fd(self)
    }

    fn update_fd(&mut self) -> Option<RawFd> {
        Self::update_fd(self)
    }

    fn publish(&mut self) {
        Self::publish(self);
    }

    fn refresh(&mut self) {
        Self::refresh(self);
    }
}

/// How a waiting call sleeps, after it has spun for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Readable while frames wait; `None` for a device that can only be polled.
    pub fd: Option<RawFd>,
    /// Readable once the kernel has news for the worker: an address, a route, a neighbor, an ICMP
    /// error. `None` where the worker follows no interface of the kernel.
    pub updates: Option<RawFd>,
    /// The longest sleep: until the worker's next deadline or the call's.
    pub timeout: Option<Duration>,
}

/// A socket of a [`poll`](Stack::poll): `struct pollfd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollSocket {
    /// The socket.
    pub socket: SocketId,
    /// The requested readiness.
    pub interest: Ready,
    /// The reported readiness.
    pub ready: Ready,
}

/// A worker with its sockets. A clone is another handle to the same worker.
#[derive(Clone)]
pub struct Stack(Rc<RefCell<Inner>>);

struct Inner {
    driver: Box<dyn SocketWorker>,
    clock: Box<dyn Clock>,
    /// The last reading of the clock.
    now: Instant,
    /// That of the last turn.
    turned: Instant,
    /// Reads without a clock since one with it.
    reads_without_clock: u32,
    /// Frames of calls and turns wait.
    holds_doorbell: bool,
    /// Turns until the gauges are updated.
    until_publish: u32,
    /// Called after a turn without packets while a call waits.
    idle: Rc<dyn Fn(u32)>,
    /// Called instead, from this many such turns in a row on.
    sleep: (u32, Rc<dyn Fn(Sleep)>),
}

impl Stack {
    /// The sockets of `worker`, in the time of `clock`. A waiting call spins, unless
    /// [`when_idle`](Self::when_idle) sets another behavior.
    pub fn over(worker: impl SocketWorker + 'static, clock: impl Clock + 'static) -> Self {
        let idle = Rc::new(|_| core::hint::spin_loop());
        let sleep: (u32, Rc<dyn Fn(Sleep)>) = (u32::MAX, Rc::new(|_| ()));
        Self(Rc::new(RefCell::new(Inner {
            driver: Box::new(worker),
            clock: Box::new(clock),
            now: Instant::ZERO,
            turned: Instant::ZERO,
            reads_without_clock: 0,
            holds_doorbell: false,
            until_publish: 0,
            idle,
            sleep,
        })))
    }

    /// Sets the function that a waiting call runs after a turn without packets: for example to
    /// yield, or to move the other end of a wire of plain memory. Its argument is the number of
    /// such turns in a row before this one.
    pub fn when_idle(&self, idle: impl Fn(u32) + 'static) {
        self.0.borrow_mut().idle = Rc::new(idle);
    }

    /// Sets the function with which a waiting call sleeps after `after_turns` turns in a row
    /// without packets: until frames come or the time is over, whichever is first. The sleep may
    /// end early.
    pub fn when_asleep(&self, after_turns: u32, sleep: impl Fn(Sleep) + 'static) {
        self.0.borrow_mut().sleep = (after_turns, Rc::new(sleep));
    }

    /// One turn of the worker: it receives, runs timers and sends waiting data. Returns the number
    /// of received packets. A program that makes no call of a socket for long should call this,
    /// because nothing else acknowledges the data of its peers. Does nothing where the worker is in
    /// a turn already.
    pub fn turn(&self) -> usize {
        let Ok(mut inner) = self.0.try_borrow_mut() else { return 0 };
        let (now, holds_doorbell) = (inner.read_clock(), inner.holds_doorbell);
        inner.turned = now;
        if inner.until_publish == 0 {
            inner.publish();
        }
        inner.until_publish -= 1;
        let driver = &mut inner.driver;
        let received = if holds_doorbell { driver.turn_without_doorbell(now) } else { driver.turn(now) };
        if received > 0 {
            driver.sockets().look_at_throttled();
        }
        received
    }

    /// Updates all counters, those that the kernel or the NIC keeps too. [`turn`](Self::turn) does
    /// so in time, where it is called often; a program that sleeps for long calls this some times a
    /// second, if its counters are to be true. A system call or two.
    pub fn refresh(&self) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.driver.refresh();
        }
    }

    /// Has frames that calls and turns post wait from now on (`true`), or leave with the next call
    /// or turn (`false`): for a caller that is about to send to many peers, where a doorbell is a
    /// system call. [`ring`](Self::ring) has them leave at once.
    pub fn hold_doorbell(&self, holds: bool) {
        self.0.borrow_mut().holds_doorbell = holds;
    }

    /// Has all posted frames leave.
    pub fn ring(&self) {
        let mut inner = self.0.borrow_mut();
        let now = inner.read_clock();
        inner.driver.leave(now);
    }

    /// The same, but for a system call that it may need: the caller makes it when other threads may
    /// use the stack again.
    pub fn defer_doorbell(&self) -> Option<Arc<dyn Doorbell>> {
        let mut inner = self.0.borrow_mut();
        let now = inner.now;
        inner.driver.leave_without_doorbell(now)
    }

    /// A call of the sockets that does not wait.
    #[inline]
    pub fn call<T>(&self, act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> T) -> T {
        let mut inner = self.0.borrow_mut();
        let now = inner.read_clock();
        inner.call(now, act)
    }

    /// A call that reads what has come: at the time of the last turn or call, and without a
    /// doorbell, because it sends nothing. Where it makes room for more, that follows with the next
    /// turn.
    #[inline]
    pub fn read<T>(&self, act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> T) -> T {
        let mut inner = self.0.borrow_mut();
        let now = inner.now;
        let (sockets, mut cx) = inner.driver.enter(now);
        act(sockets, &mut cx)
    }

    /// A call that sends nothing and needs no time: it reads no clock and rings no doorbell.
    #[inline]
    pub fn with_sockets<T>(&self, act: impl FnOnce(&mut Sockets) -> T) -> T {
        act(self.0.borrow_mut().driver.sockets())
    }

    /// A [`call`](Self::call), and a turn behind it where the last one is too old: acknowledgments,
    /// resets, answers to ARP and timers must not wait for a call that blocks, because a program
    /// may make none.
    #[inline]
    pub(crate) fn call_and_turn<T>(&self, act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> T) -> T {
        let result = self.call(act);
        self.turn_if_due();
        result
    }

    /// [`with_sockets`](Self::with_sockets) for a read that may find something, as most of a row
    /// do: `None` once in a while, when the caller is to make a call that reads the clock.
    #[inline]
    pub(crate) fn read_without_clock<T>(&self, act: impl FnOnce(&mut Sockets) -> T) -> Option<T> {
        let mut inner = self.0.borrow_mut();
        inner.reads_without_clock += 1;
        if inner.reads_without_clock > READS_WITHOUT_CLOCK {
            inner.reads_without_clock = 0;
            return None;
        }
        Some(act(inner.driver.sockets()))
    }

    #[inline]
    fn turn_if_due(&self) {
        let is_due = self.0.try_borrow().is_ok_and(|inner| inner.now >= inner.turned + TURN_EVERY);
        if is_due {
            self.turn();
        }
    }

    /// The time that the last call or turn read of the clock.
    #[inline]
    pub fn last_reading(&self) -> Instant {
        self.0.borrow().now
    }

    /// Repeats a call until it does not return `EAGAIN`, and polls the worker in between: once at
    /// least, also where `timeout` is zero, so that a program which asks again and again finds what
    /// has come. A call that succeeds at once polls it if the last turn is 50 µs old.
    ///
    /// # Errors
    /// The error of the call; `EAGAIN` once `timeout` is over, as with `SO_RCVTIMEO`.
    pub fn block<T>(
        &self,
        timeout: Option<Duration>,
        mut act: impl FnMut(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (mut deadline, mut idle_turns, mut has_turned) = (None, 0, false);
        loop {
            match self.call(&mut act) {
                Err(Errno::EAGAIN) => (),
                done => {
                    self.turn_if_due();
                    return done;
                }
            }
            let now = self.last_reading();
            let until = *deadline.get_or_insert(timeout.map(|timeout| now + timeout));
            match until.is_some_and(|until| now >= until) {
                false => self.wait(&mut idle_turns, until),
                true if has_turned => return Err(Errno::EAGAIN),
                true => _ = self.turn(),
            }
            has_turned = true;
        }
    }

    /// `poll`: returns how many of `sockets` are ready; 0 once `timeout` is over. A socket that is
    /// closed counts as ready, with `POLLNVAL` (0x20).
    pub fn poll(&self, sockets: &mut [PollSocket], timeout: Option<Duration>) -> usize {
        let ready = self.block(timeout, |table, _| {
            let count = sockets.iter_mut().filter_map(|entry| look(entry, table)).count();
            if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
        });
        ready.unwrap_or(0)
    }

    /// `epoll_wait`: returns how many `events` it stored; 0 once `timeout` is over.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: no room for an event.
    pub fn epoll_wait(&self, set: usize, events: &mut [EpollEvent], timeout: Option<Duration>) -> Result<usize, Errno> {
        if events.is_empty() {
            return Err(Errno::EINVAL);
        }
        let count = self.block(timeout, |table, _| match table.epoll_wait(set, events)? {
            0 => Err(Errno::EAGAIN),
            count => Ok(count),
        });
        match count {
            Err(Errno::EAGAIN) => Ok(0),
            other => other,
        }
    }

    /// One turn, followed by the idle function or a sleep where no packet came.
    fn wait(&self, idle_turns: &mut u32, until: Option<Instant>) {
        if self.turn() > 0 {
            *idle_turns = 0;
            return;
        }
        let turns = *idle_turns;
        *idle_turns = turns.saturating_add(1);
        // Called outside of the borrow, because it may turn another stack that turns this one.
        let (idle, (after_turns, sleep)) = {
            let inner = self.0.borrow();
            (inner.idle.clone(), inner.sleep.clone())
        };
        if turns < after_turns {
            return idle(turns);
        }
        if let Some(how) = self.sleep_until(until) {
            sleep(how);
        }
    }

    /// How a caller with its own wait may sleep, at most until `until`. `None` if the worker has
    /// work now.
    pub fn sleep_until(&self, until: Option<Instant>) -> Option<Sleep> {
        let mut inner = self.0.try_borrow_mut().ok()?;
        let now = inner.read_clock();
        let updates = inner.driver.update_fd();
        let next = [inner.driver.next_deadline(now), until].into_iter().flatten().min();
        if next.is_some_and(|next| next <= now) {
            return None;
        }
        Some(Sleep { fd: inner.driver.wait_fd(), updates, timeout: next.map(|next| next.since(now)) })
    }

    /// When the worker's next timer is due, as of the last call or turn: for a thread that has just
    /// made one while another thread sleeps as [`sleep_until`](Self::sleep_until) has said before.
    /// Reads no clock, and arms no descriptor.
    pub fn next_timer(&self) -> Option<Instant> {
        let mut inner = self.0.try_borrow_mut().ok()?;
        let now = inner.now;
        inner.driver.next_timer(now)
    }
}

impl Inner {
    #[cold]
    fn publish(&mut self) {
        self.until_publish = PUBLISH_TURNS;
        self.driver.publish();
    }

    #[inline]
    fn read_clock(&mut self) -> Instant {
        self.now = self.clock.now();
        self.now
    }

    #[inline]
    fn call<T>(&mut self, now: Instant, act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> T) -> T {
        let (sockets, mut cx) = self.driver.enter(now);
        let result = act(sockets, &mut cx);
        if !self.holds_doorbell {
            self.driver.leave(now);
        }
        result
    }
}

/// Reports the requested readiness that a socket has.
fn look(entry: &mut PollSocket, table: &Sockets) -> Option<()> {
    const POLLNVAL: Ready = Ready(0x20);
    entry.ready = match table.ready(entry.socket) {
        Ok(ready) => ready.among(entry.interest),
        Err(_) => POLLNVAL,
    };
    (!entry.ready.is_none()).then_some(())
}
