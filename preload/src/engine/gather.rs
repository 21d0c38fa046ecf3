//! Gathers the frames of a server's answers: a thread that was told of several sockets at once
//! mostly answers each, and then waits again. Its frames leave together, with the last answer or
//! before the next wait, where each alone would be a system call: in copy mode that is most of what
//! a request costs.
//!
//! ```text
//!   epoll_wait: 5 ──▶ recv, send  recv, send  recv, send  recv, send  recv, send ──▶ epoll_wait
//!                            frames wait ───────────────────────────▶ doorbell
//! ```
//!
//! What makes it harmless:
//! 1. Only a program gathers that has accepted connections of ours, and has no datagram socket of
//!    ours: a trading engine's order leaves at once.
//! 2. A frame waits no longer than `WIREPATH_GATHER_US`, as seen by the next call of any thread,
//!    and some milliseconds by the background thread, where no other thread sleeps in a call.
//! 3. A program that computes between its answers for long is noticed by its late frames, and
//!    gathers no more but for a try now and then.

use std::sync::Arc;

use wirepath::device::Doorbell;

use crate::config;
use crate::engine::{ClockReading, Engine, State, thread};

/// What is known about the frames that wait.
pub(crate) struct Gathering {
    /// The thread within has answers left.
    has_answers: bool,
    /// Its frames wait for them.
    waits: bool,
    /// Calls and turns leave their frames in the ring.
    is_held: bool,
    /// Threads meet at the lock: frames leave after it is free, for so many more calls.
    contended: u32,
    /// Since when there may be frames in it.
    since: Option<ClockReading>,
    /// How late such frames were lately; see [`LATE`].
    lateness: u32,
    /// The program is a server.
    pub(crate) has_accepted: bool,
    /// A datagram socket was offloaded.
    pub(crate) has_datagrams: bool,
}

/// What one late doorbell adds to `lateness`; a timely one takes 1 off.
const LATE: u32 = 64;
/// The lateness from which on nothing is gathered.
const LATENESS_MAX: u32 = 4 * LATE;
/// Calls that find the lock free, until frames leave under it again.
const CONTENDED: u32 = 64;
/// A doorbell is late that rings after so many times the longest wait.
const LATE_TIMES: u64 = 4;

impl Gathering {
    pub(crate) const fn new() -> Self {
        Self {
            has_answers: false,
            waits: false,
            is_held: false,
            contended: 0,
            since: None,
            lateness: 0,
            has_accepted: false,
            has_datagrams: false,
        }
    }
}

impl Engine {
    /// This thread was told of so many events of ours.
    #[inline]
    pub(crate) fn begin_answers(&mut self, count: usize) {
        let is_server = self.gathering.has_accepted && !self.gathering.has_datagrams;
        if count < 2 || !is_server || config::gather_ns() == 0 {
            return;
        }
        if self.gathering.lateness >= LATENESS_MAX {
            self.gathering.lateness -= 1;
            return;
        }
        thread::set_answers(count as u32);
    }

    /// This thread is about to send an answer. Frames leave with the last one.
    #[inline]
    pub(crate) fn count_answer(&mut self) {
        if self.gathering.has_answers && thread::count_answer() == 0 {
            self.gathering.has_answers = false;
            self.wait_for_answers(false);
        }
    }

    /// The thread has entered: its frames wait while it has answers left, unless others have waited
    /// for long.
    #[inline]
    pub(super) fn hold_or_release(&mut self, has_answers: bool) {
        self.gathering.contended = self.gathering.contended.saturating_sub(1);
        self.gathering.has_answers = has_answers;
        let is_due = has_answers && self.gathering.since.is_some_and(|since| self.is_due(since));
        self.wait_for_answers(has_answers && !is_due);
    }

    fn is_due(&self, since: ClockReading) -> bool {
        self.time().since(since) >= config::gather_ns()
    }

    /// Another thread had the lock: while that is so, a frame's system call is made without it.
    #[inline]
    pub(super) fn note_contention(&mut self) {
        self.gathering.contended = CONTENDED;
    }

    #[inline]
    fn wait_for_answers(&mut self, waits: bool) {
        self.gathering.waits = waits;
        self.hold(waits || self.gathering.contended > 0);
    }

    /// The thread leaves: frames that wait no longer, and that no call has sent meanwhile, leave
    /// now, or by what is returned, once the thread has let the lock go.
    #[inline]
    pub(super) fn ring_if_due(&mut self) -> Option<Arc<dyn Doorbell>> {
        if self.gathering.since.is_none() || self.gathering.waits {
            return None;
        }
        let State::Open(stack) = &self.state else { return None };
        let doorbell = if self.gathering.contended > 0 {
            stack.defer_doorbell()
        } else {
            stack.ring();
            None
        };
        self.note_doorbell();
        doorbell
    }

    /// A call or a turn has posted its frames: they wait, or have left with all others.
    #[inline]
    pub(super) fn note_frames(&mut self) {
        match (self.gathering.is_held, self.gathering.since) {
            (true, None) => self.gathering.since = Some(self.time()),
            (false, Some(_)) => self.note_doorbell(),
            _ => (),
        }
    }

    fn note_doorbell(&mut self) {
        let Some(since) = self.gathering.since.take() else { return };
        let lateness = self.gathering.lateness;
        let is_late = self.time().since(since) > LATE_TIMES * config::gather_ns();
        self.gathering.lateness = if is_late { lateness + LATE } else { lateness.saturating_sub(1) };
    }

    fn hold(&mut self, holds: bool) {
        if self.gathering.is_held != holds
            && let State::Open(stack) = &self.state
        {
            stack.hold_doorbell(holds);
            self.gathering.is_held = holds;
        }
    }
}
