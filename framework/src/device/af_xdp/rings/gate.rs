//! The receive gate of a queue: state shared by its two halves, and with the other queues of the
//! port.
//!
//! If the program's map has no entry for the queue, the kernel receives its frames. The first poll
//! or the first send, whichever is earlier, makes the entry. An answer must not arrive before that:
//! the kernel, which does not know our connections, would reset them, and ARP replies would be
//! lost. The fill ring is filled before: in the other order the first frames would find no buffer.
//!
//! The NIC decides which queue receives an answer. So no queue sends before all taken queues of the
//! port receive, as on a ConnectX. A queue that has sent once continues to send; a queue that is
//! taken later does not stop it.

use core::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::super::setup::port::{Awaited, Port};
use super::umem::Umem;
use crate::counters::{Counter, Scope, Unit};

/// The receive gate of one queue.
pub(in crate::device::af_xdp) struct Gate {
    port: Arc<Port>,
    queue: u16,
    umem: Rc<Umem>,
    state: Cell<State>,
    /// Until this queue receives, the others wait for it.
    awaited: Cell<Option<Awaited>>,
    /// Failed attempts to receive: the kernel refused the map entry, receives all frames, and we
    /// send none.
    connects_refused: Counter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel receives the frames.
    Shut,
    /// We receive them. The kernel may still receive those of other queues.
    Hearing,
    /// We receive them, and answers to our frames.
    Open,
    /// The receive half is gone: the kernel receives the frames for good.
    Over,
}

impl Gate {
    pub(in crate::device::af_xdp) fn new(awaited: Awaited, queue: u16, umem: Rc<Umem>, scope: &Scope) -> Self {
        Self {
            port: Arc::clone(awaited.port()),
            queue,
            umem,
            state: Cell::new(State::Shut),
            awaited: Cell::new(Some(awaited)),
            connects_refused: scope.scope("rx").counter("connects_refused", Unit::Events),
        }
    }

    /// Starts to receive, and returns whether frames may leave: a system call before the queue
    /// receives, a load and a compare afterwards.
    #[inline]
    pub(in crate::device::af_xdp) fn open(&self) -> bool {
        matches!(self.state.get(), State::Open | State::Over) || self.open_now()
    }

    #[cold]
    fn open_now(&self) -> bool {
        if self.state.get() == State::Shut {
            if self.port.connect(self.queue, self.umem.socket()).is_err() {
                self.connects_refused.inc();
                return false;
            }
            self.state.set(State::Hearing);
            drop(self.awaited.take());
        }
        if !self.port.all_hear() {
            return false;
        }
        self.state.set(State::Open);
        true
    }

    /// Returns the frames to the kernel, even while the send half lives on.
    pub(in crate::device::af_xdp) fn close(&self) {
        self.state.set(State::Over);
        drop(self.awaited.take());
        self.port.disconnect(self.queue);
    }
}
