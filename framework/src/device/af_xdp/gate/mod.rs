//! The receive gate of a queue: state shared by its two halves, and with the other queues of the
//! port.
//!
//! While the program's map has no entry for the queue, the kernel receives its frames. The first
//! poll or the first send, whichever is earlier, makes the entry. No answer may arrive before that,
//! because the kernel does not know our connections and would reset them, and ARP replies would be
//! lost. The fill ring is filled before the entry is made; otherwise the first frames would find no
//! buffer.
//!
//! The NIC decides which queue receives an answer. So no queue sends before all taken queues of the
//! port receive, as on a ConnectX. Once a queue has sent, it continues to send even if another
//! queue is taken later.

use core::cell::Cell;
use std::rc::Rc;

use super::rings::umem::Umem;
use super::setup::handle::{PendingQueue, PortHandle};
use crate::counters::{Counter, Scope, Unit};

/// The receive gate of one queue.
pub(super) struct Gate {
    port: PortHandle,
    queue: u16,
    umem: Rc<Umem>,
    state: Cell<GateState>,
    /// Until this queue receives, the others wait for it.
    awaited: Cell<Option<PendingQueue>>,
    /// Failed attempts to receive: the kernel refused the map entry, receives all frames, and we
    /// send none.
    connects_refused: Counter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateState {
    /// The kernel receives the frames.
    Shut,
    /// We receive them. The kernel may still receive those of other queues.
    Receiving,
    /// We receive them, and answers to our frames.
    Open,
    /// The receive half is gone: from now on the kernel receives the frames.
    Over,
}

impl Gate {
    pub(super) fn new(awaited: PendingQueue, queue: u16, umem: Rc<Umem>, scope: &Scope) -> Self {
        Self {
            port: awaited.port().clone(),
            queue,
            umem,
            state: Cell::new(GateState::Shut),
            awaited: Cell::new(Some(awaited)),
            connects_refused: scope.scope("rx").counter("connects_refused", Unit::Events),
        }
    }

    /// Starts to receive, and returns whether frames may leave: a system call before the queue
    /// receives, a load and a compare afterwards.
    #[inline]
    pub(super) fn open(&self) -> bool {
        matches!(self.state.get(), GateState::Open | GateState::Over) || self.open_now()
    }

    #[cold]
    fn open_now(&self) -> bool {
        if self.state.get() == GateState::Shut {
            if self.port.connect(self.queue, self.umem.socket()).is_err() {
                self.connects_refused.inc();
                return false;
            }
            self.state.set(GateState::Receiving);
            drop(self.awaited.take());
        }
        if !self.port.all_receive() {
            return false;
        }
        self.state.set(GateState::Open);
        true
    }

    /// Returns the frames to the kernel, even while the send half lives on.
    pub(super) fn close(&self) {
        self.state.set(GateState::Over);
        drop(self.awaited.take());
        self.port.disconnect(self.queue);
    }
}

#[cfg(test)]
mod tests;
