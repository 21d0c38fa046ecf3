//! Threads that sleep until one of their sockets is ready. One of them, the leader, sleeps on the
//! device and on the worker's timers, and wakes the others, so a frame wakes one thread instead of
//! all.

use sockets::{Ready, SocketId};

use super::gather::Gathering;
use super::polling::Polling;
use super::table::FileId;
use super::{Engine, sets, thread};
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
        (self.leader, self.background, self.asks) = (0, None, None);
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
