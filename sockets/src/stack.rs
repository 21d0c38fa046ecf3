//! A worker with its sockets and a clock, and what a call does that would block: it polls the
//! worker until it need not, or until its time is over. One thread owns a stack and all sockets of
//! it; a thread that wants sockets of its own makes a stack of its own, with a queue of its own.

use core::cell::RefCell;
use std::rc::Rc;

use wirepath::device::{RxQueue, TxQueue};
use wirepath::pipeline::{Cx, Node};
use wirepath::time::{Clock, Duration, Instant};
use wirepath::worker::Worker;

use crate::epoll::EpollEvent;
use crate::errno::Errno;
use crate::ready::Ready;
use crate::table::{SocketId, Sockets};

/// Whoever turns the crank: a [`Worker`] whose app is [`Sockets`], over whichever device.
pub trait Drive {
    /// One look at the queue with all that follows; says how many packets came.
    fn turn(&mut self, now: Instant) -> usize;

    /// A call of the sockets; what it sends leaves before it returns.
    fn with(&mut self, now: Instant, act: &mut dyn FnMut(&mut Sockets, &mut Cx<'_>));
}

impl<Rx: RxQueue, Tx: TxQueue, N: Node<Sockets>> Drive for Worker<Rx, Tx, N, Sockets> {
    fn turn(&mut self, now: Instant) -> usize {
        self.poll_once(now)
    }

    fn with(&mut self, now: Instant, act: &mut dyn FnMut(&mut Sockets, &mut Cx<'_>)) {
        self.with_app(now, |sockets, cx| act(sockets, cx));
    }
}

/// A socket of a [`poll`](Stack::poll): `struct pollfd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollSocket {
    /// Which.
    pub socket: SocketId,
    /// Asked for.
    pub interest: Ready,
    /// Reported.
    pub ready: Ready,
}

/// A worker with its sockets. Cloning it gives another handle to the same.
#[derive(Clone)]
pub struct Stack(Rc<RefCell<Inner>>);

struct Inner {
    driver: Box<dyn Drive>,
    clock: Box<dyn Clock>,
    /// Done when a turn brought nothing and a call still waits.
    idle: Rc<dyn Fn(u32)>,
}

impl Stack {
    /// The sockets of `worker`, in the time of `clock`. A call that waits spins, unless
    /// [`when_idle`](Self::when_idle) says otherwise.
    pub fn over(worker: impl Drive + 'static, clock: impl Clock + 'static) -> Self {
        let idle = Rc::new(|_| core::hint::spin_loop());
        Self(Rc::new(RefCell::new(Inner { driver: Box::new(worker), clock: Box::new(clock), idle })))
    }

    /// What a call does that waits and found nothing in a turn: yield, sleep, or move the other end
    /// of a wire of plain memory. It is told how many such turns this call has made before.
    pub fn when_idle(&self, idle: impl Fn(u32) + 'static) {
        self.0.borrow_mut().idle = Rc::new(idle);
    }

    /// One turn of the worker: what arrived is taken, timers run, what waits is sent. Says how many
    /// packets came. A program that does not call for long should, as nobody else acknowledges what
    /// its peers send. Nothing where the worker is in a turn already.
    pub fn turn(&self) -> usize {
        let Ok(mut inner) = self.0.try_borrow_mut() else { return 0 };
        let now = inner.clock.now();
        inner.driver.turn(now)
    }

    /// A call of the sockets that does not wait.
    pub fn call<T>(&self, mut act: impl FnMut(&mut Sockets, &mut Cx<'_>) -> T) -> T {
        let mut inner = self.0.borrow_mut();
        let now = inner.clock.now();
        let mut result = None;
        inner.driver.with(now, &mut |sockets, cx| result = Some(act(sockets, cx)));
        result.expect("the driver made the call")
    }

    /// Repeats a call until it returns something else than `EAGAIN`, and polls the worker in
    /// between.
    ///
    /// # Errors
    /// That of the call; `EAGAIN` once `timeout` is over, as of a socket with `SO_RCVTIMEO`.
    pub fn block<T>(
        &self,
        timeout: Option<Duration>,
        mut act: impl FnMut(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (mut deadline, mut idle_turns) = (None, 0);
        loop {
            match self.call(&mut act) {
                Err(Errno::EAGAIN) => (),
                done => return done,
            }
            let now = self.0.borrow_mut().clock.now();
            let until = *deadline.get_or_insert(timeout.map(|timeout| now + timeout));
            if until.is_some_and(|until| now >= until) {
                return Err(Errno::EAGAIN);
            }
            self.wait(&mut idle_turns);
        }
    }

    /// `poll`: how many of `sockets` are ready for something; 0 once `timeout` is over. A socket
    /// that is closed counts as ready, with `POLLNVAL` (0x20).
    pub fn poll(&self, sockets: &mut [PollSocket], timeout: Option<Duration>) -> usize {
        let ready = self.block(timeout, |table, _| {
            let count = sockets.iter_mut().filter_map(|entry| look(entry, table)).count();
            if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
        });
        ready.unwrap_or(0)
    }

    /// `epoll_wait`: how many of `events` were filled in; 0 once `timeout` is over.
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

    /// A turn, and what is done where it brought nothing.
    fn wait(&self, idle_turns: &mut u32) {
        if self.turn() == 0 {
            // Outside of the borrow: it may turn another stack, which waits for this one.
            let idle = self.0.borrow().idle.clone();
            idle(*idle_turns);
            *idle_turns = idle_turns.saturating_add(1);
        }
    }
}

/// Reports what a socket is ready for, of what was asked for.
fn look(entry: &mut PollSocket, table: &Sockets) -> Option<()> {
    const POLLNVAL: Ready = Ready(0x20);
    entry.ready = match table.ready(entry.socket) {
        Ok(ready) => ready & (entry.interest | Ready::ALWAYS),
        Err(_) => POLLNVAL,
    };
    (!entry.ready.is_none()).then_some(())
}
