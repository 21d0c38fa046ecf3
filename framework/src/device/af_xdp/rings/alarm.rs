//! How a queue whose frames a broker passes on becomes readable: the broker wakes who has set the
//! alarm, once, by a word on the queue's socket. The kernel needs none of this, because it knows
//! who polls.
//!
//! After a turn without frames either the alarm is set, or the word of the last one is on its way
//! or waits to be read. So a loop that sleeps after such a turn is woken by the next frame.

use core::cell::Cell;
use std::os::fd::OwnedFd;

use super::ring::{ConsumerRing, Desc};
use super::sys;

/// The alarm of one queue.
#[derive(Default)]
pub(crate) struct Alarm {
    /// Someone sleeps on the descriptor at times. A loop that only polls costs the broker no system
    /// call.
    pub(crate) is_wanted: Cell<bool>,
}

impl Alarm {
    /// Sets the alarm after a turn without frames, unless it is set. Returns whether a frame has
    /// come meanwhile, for which there may be no word.
    #[inline]
    pub(crate) fn set(&self, rx: &mut ConsumerRing<Desc>, socket: &OwnedFd) -> bool {
        self.is_wanted.get() && !rx.needs_wakeup() && self.rearm(rx, socket)
    }

    /// The broker has taken the flag, so its word comes. Until then the alarm remains unset: the
    /// word makes the socket readable.
    #[cold]
    fn rearm(&self, rx: &mut ConsumerRing<Desc>, socket: &OwnedFd) -> bool {
        if sys::kick_rx(socket).is_err() {
            return false;
        }
        rx.set_needs_wakeup(true);
        rx.has(1)
    }
}
