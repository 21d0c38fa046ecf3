//! Threads that sleep until one of their sockets is ready. One of them, the leader, sleeps on the
//! device and on the worker's timers, and wakes the others, so a frame wakes one thread instead of
//! all.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use sockets::{Errno, Ready, SocketId};

use super::gather::Gathering;
use super::polling::Polling;
use super::table::FileId;
use super::{Engine, State, sets, thread};
use crate::sys;

/// A thread that sleeps until one of its sockets is ready.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    eventfd: i32,
    interest: WaitFor,
    /// It was woken, and has not run yet.
    is_woken: bool,
}

/// The event that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Socket(SocketId, Ready),
    /// An epoll set, by its file.
    Set(FileId),
    /// Several sockets: the thread checks them itself.
    Any,
}

impl Engine {
    /// Registers this thread as a waiter: a change of its sockets wakes it. Returns whether it
    /// leads the others: then it sleeps on the device and the worker's timers.
    pub(crate) fn begin_wait(&mut self, eventfd: i32, interest: WaitFor) -> bool {
        // Earlier changes concern the other waiters only, because this thread has just checked its
        // sockets.
        self.wake_waiters();
        self.sleeps += 1;
        self.waiters.push(Waiter { eventfd, interest, is_woken: false });
        thread::begin_wait(self.number);
        if self.leader == 0 {
            self.leader = eventfd;
        }
        self.leader == eventfd
    }

    /// The leader sleeps for that long at most; `None` for as long as nothing happens. Returns the
    /// time after which it looks at the timers. That is sooner where an earlier leader would have
    /// looked sooner: so a timer that each call sets and each answer clears again, such as the one
    /// of a segment that is sent again, wakes the leader once in the timer's span instead of once
    /// a call.
    pub(crate) fn lead_for(&mut self, longest: Option<u64>) -> Option<u64> {
        let now = self.time().ns;
        let until = longest.map_or(u64::MAX, |ns| now.saturating_add(ns));
        if self.leader_until <= now || self.leader_until > until {
            self.leader_until = until;
        }
        (self.leader_until != u64::MAX).then(|| self.leader_until - now)
    }

    /// Wakes the leader where a timer is due before it would look: another thread has set it, and
    /// is about to leave. A thread that polls turns the worker itself.
    #[inline]
    pub(super) fn wake_leader_for_timer(&mut self) {
        if self.leader != 0 && self.may_have_timer && !self.polling.is_on(self.time()) {
            self.may_have_timer = false;
            self.compare_timers();
        }
    }

    fn compare_timers(&mut self) {
        let State::Open(stack) = &self.state else { return };
        let Ok(next) = catch_unwind(AssertUnwindSafe(|| stack.next_timer())) else {
            let _: Result<(), Errno> = self.fail();
            return;
        };
        let next = next.map_or(u64::MAX, |next| next.as_nanos());
        if next < self.leader_until
            && let Some(leader) = self.waiters.iter_mut().find(|waiter| waiter.eventfd == self.leader)
            && !core::mem::replace(&mut leader.is_woken, true)
        {
            let _ = sys::write(leader.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Removes this thread from the waiters: it looks at its sockets now. After that it either
    /// sleeps again or calls [`hand_over`](Self::hand_over).
    pub(crate) fn end_wait(&mut self, eventfd: i32) {
        thread::end_wait(self.number);
        self.waiters.retain(|waiter| waiter.eventfd != eventfd);
        if self.leader == eventfd {
            self.leader = 0;
        }
    }

    /// A worker's timer was due: the sleeping threads look too, because the timer may be that of a
    /// socket of theirs.
    pub(crate) fn note_timer(&mut self) {
        self.has_moved |= !self.waiters.is_empty();
    }

    /// This thread returns to the program: another one that sleeps leads from now on.
    pub(crate) fn hand_over(&mut self) {
        if self.leader == 0
            && let Some(waiter) = self.waiters.iter_mut().find(|waiter| !waiter.is_woken)
        {
            waiter.is_woken = true;
            let _ = sys::write(waiter.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// This thread waits on an epoll set: of several that are exclusive for a socket, one with such
    /// a thread is woken.
    pub(crate) fn begin_watch(&mut self, file: FileId) {
        if thread::watches_in(self.number) {
            return;
        }
        if let Ok(Some(set)) = sets::part(file, self.number) {
            thread::begin_watch(file, self.number);
            let _ = self.look(|sockets| sockets.epoll_sleeps(set, true));
        }
    }

    /// It waits on the set no longer.
    pub(crate) fn end_watch(&mut self) {
        if let Some(file) = thread::end_watch(self.number)
            && let Ok(Some(set)) = sets::part(file, self.number)
        {
            let _ = self.look(|sockets| sockets.epoll_sleeps(set, false));
        }
    }

    /// This thread leaves its wait without a look at its sockets: what it was woken for is another
    /// thread's.
    pub(crate) fn leave_wait(&mut self) {
        let eventfd = thread::known_eventfd();
        let woken = self.waiters.iter().find(|waiter| waiter.eventfd == eventfd && waiter.is_woken);
        if let Some(Waiter { interest: WaitFor::Set(file), .. }) = woken.copied() {
            self.pass_on(file);
        }
        self.end_wait(eventfd);
        self.end_watch();
        self.hand_over();
    }

    /// Has another thread woken for what is ready in an epoll set.
    pub(crate) fn pass_on(&mut self, file: FileId) {
        if let Ok(Some(set)) = sets::part(file, self.number) {
            let _ = self.call(|sockets, _| sockets.epoll_rewake(set));
        }
    }

    /// Whether a thread sleeps on an epoll set that nobody has woken yet.
    pub(crate) fn has_sleeper_on(&self, file: FileId) -> bool {
        self.waiters.iter().any(|waiter| waiter.interest == WaitFor::Set(file) && !waiter.is_woken)
    }

    /// Whether threads sleep: they wake for packets and timers, and turn the worker.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Wakes all waiters after the worker was opened or has failed, because their descriptor has
    /// changed.
    pub(crate) fn wake_all(&mut self) {
        for waiter in &self.waiters {
            let _ = sys::write(waiter.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Forgets the parent's waiters in a child of `fork`, which has only one thread.
    pub(crate) fn forget_waiters(&mut self) {
        self.waiters.clear();
        (self.leader, self.leader_until, self.background, self.asks) = (0, 0, None, None);
        (self.polling, self.gathering) = (Polling::new(), Gathering::new());
    }

    pub(super) fn wake_waiters(&mut self) {
        let has_moved = core::mem::take(&mut self.has_moved);
        if (!has_moved || self.waiters.is_empty()) && !sets::are_shown() {
            return;
        }
        let mut moved = core::mem::take(&mut self.moved_sets);
        let _ = self.look(|sockets| {
            sockets.take_woken(|set| moved.push(set));
            Ok(())
        });
        if sets::are_shown() {
            for (file, set) in sets::shown_in(self.number) {
                let is_ready = self.look(|sockets| sockets.epoll_ready(set)).unwrap_or(false);
                sets::show_events(file, self.number, is_ready, moved.contains(&set));
            }
        }
        for idx in 0..if has_moved { self.waiters.len() } else { 0 } {
            let Waiter { eventfd, interest, is_woken } = self.waiters[idx];
            if is_woken {
                continue;
            }
            let is_ready = match interest {
                WaitFor::Any => true,
                WaitFor::Set(file) => match sets::part(file, self.number) {
                    Ok(Some(set)) => {
                        moved.contains(&set)
                            && !self.is_woken_for(interest)
                            && self.look(|sockets| sockets.epoll_ready(set)).unwrap_or(true)
                    }
                    Ok(None) => false,
                    Err(_) => true,
                },
                WaitFor::Socket(id, ready) => {
                    self.look(|sockets| sockets.ready(id)).map_or(true, |now| !now.among(ready).is_none())
                }
            };
            if is_ready {
                self.wakeups += 1;
                self.waiters[idx].is_woken = true;
                let _ = sys::write(eventfd, &1_u64.to_ne_bytes());
            }
        }
        moved.clear();
        self.moved_sets = moved;
    }

    /// Whether a thread of these waiters is about to run: it takes all that is ready in the set, or
    /// passes it on.
    pub(super) fn is_woken_for(&self, interest: WaitFor) -> bool {
        self.waiters.iter().any(|waiter| waiter.is_woken && waiter.interest == interest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use core::cell::Cell;
    use core::net::SocketAddrV4;
    use std::rc::Rc;

    use sockets::{Kind, Sockets, Stack};
    use wirepath::counters::Block;
    use wirepath::device::memory::{MemoryConfig, pair};
    use wirepath::pipeline::tcp::TcpConfig;
    use wirepath::time::{Clock, Duration, Instant};
    use wirepath::worker::Worker;

    use super::*;

    const FAR: SocketAddrV4 = SocketAddrV4::new(core::net::Ipv4Addr::new(192, 0, 2, 2), 7_000);

    #[derive(Clone)]
    struct TestClock(Rc<Cell<Instant>>);

    impl Clock for TestClock {
        fn now(&mut self) -> Instant {
            self.0.get()
        }
    }

    impl TestClock {
        fn advance(&self, span: Duration) {
            self.0.set(self.0.get() + span);
        }
    }

    /// An engine over a wire of plain memory, whose far end never answers.
    fn engine() -> (Engine, TestClock) {
        let clock = TestClock(Rc::new(Cell::new(Instant::ZERO + Duration::from_millis(1))));
        let (mut near, _) = pair("wire", MemoryConfig::default());
        let worker = Worker::builder(&mut near).unwrap().address("192.0.2.1/24".parse().unwrap());
        let worker = worker.tcp(TcpConfig { connections_max: 16, chunks_max: 256, ..TcpConfig::default() });
        let worker = worker.build(Sockets::new(16), &Block::heap().scope("near")).unwrap();
        let mut engine = Engine::new(0);
        engine.state = State::Open(Stack::over(worker, clock.clone()));
        engine.turn();
        (engine, clock)
    }

    /// A thread that leads sleeps on a socket of datagrams, which none come for.
    fn sleep(engine: &mut Engine, eventfd: i32) -> Option<u64> {
        let quiet = engine.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
        let how = engine.sleep().unwrap();
        assert!(engine.begin_wait(eventfd, WaitFor::Socket(quiet, Ready::IN)));
        let longest = engine.lead_for(how.timeout.map(|timeout| timeout.as_nanos()));
        engine.end();
        longest
    }

    fn begin_connect(engine: &mut Engine) {
        let id = engine.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
        assert_eq!(engine.call(|sockets, cx| sockets.connect(id, FAR, cx)), Err(Errno::EINPROGRESS));
    }

    fn was_woken(eventfd: i32) -> bool {
        sys::read(eventfd, &mut [0; 8]).is_ok()
    }

    #[test]
    fn leader_wakes_for_a_timer_that_another_thread_sets_while_it_sleeps() {
        let ((mut engine, clock), eventfd) = (engine(), sys::eventfd().unwrap());
        assert_eq!(sleep(&mut engine, eventfd), Some(2_000_000_000), "the address is announced again");
        begin_connect(&mut engine);
        engine.end();
        assert!(was_woken(eventfd), "the SYN has a timer");

        engine.end_wait(eventfd);
        engine.turn();
        assert!(sleep(&mut engine, eventfd).is_some());
        clock.advance(Duration::from_millis(1));
        begin_connect(&mut engine);
        engine.end();
        assert!(!was_woken(eventfd), "the timer of the second SYN is later than the leader looks");
    }

    #[test]
    fn timer_that_fires_while_nobody_leads_wakes_the_thread_of_its_socket() {
        let ((mut engine, clock), [leader, other]) = (engine(), [0; 2].map(|_| sys::eventfd().unwrap()));
        sleep(&mut engine, leader);
        let id = engine.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
        assert_eq!(engine.call(|sockets, cx| sockets.connect(id, FAR, cx)), Err(Errno::EINPROGRESS));
        assert!(!engine.begin_wait(other, WaitFor::Socket(id, Ready::OUT)));
        engine.end_wait(leader);
        engine.end();
        assert!(!was_woken(other), "the stream still connects");
        for _ in 0..1_000 {
            clock.advance(Duration::from_secs(1));
            engine.turn();
            engine.end();
        }
        assert!(was_woken(other), "the attempt has ended");
    }

    #[test]
    fn leader_sleeps_on_while_another_thread_polls() {
        let ((mut engine, _), eventfd) = (engine(), sys::eventfd().unwrap());
        sleep(&mut engine, eventfd);
        let now = engine.time();
        assert!(engine.polling.may_poll(1, now, 1, 8));
        begin_connect(&mut engine);
        engine.end();
        assert!(!was_woken(eventfd), "the thread that polls turns the worker");
        engine.polling.end(1);
        engine.end();
        assert!(was_woken(eventfd), "it does no longer");
    }

    #[test]
    fn leader_looks_as_soon_as_the_one_before_would_have() {
        let (mut engine, clock) = engine();
        engine.turn();
        assert_eq!(engine.lead_for(Some(1_000)), Some(1_000));
        clock.advance(Duration::from_nanos(400));
        engine.turn();
        assert_eq!(engine.lead_for(None), Some(600));
        clock.advance(Duration::from_nanos(700));
        engine.turn();
        assert_eq!(engine.lead_for(None), None, "that time is over");
    }
}
