//! Whether a queue hears: what its two halves have to know of each other, and of the other queues
//! of the port.
//!
//! A program without an entry for the queue gives its frames to the kernel. The entry is made by
//! whichever comes first, the first poll or the first frame that is to leave. An answer must not
//! come before there is somebody to hear it: the kernel, which knows nothing of our connections,
//! would reset them, and what a neighbor answers would be lost. The fill ring is full by then: the
//! other way round the first frames would find no buffer.
//!
//! The NIC decides on which queue an answer comes. So nothing leaves a queue before all that were
//! taken of the port hear, as on a ConnectX. A queue that has sent once sends on: one that is taken
//! later does not stop it.

use core::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::super::setup::port::{Awaited, Port};
use super::umem::Umem;
use crate::counters::{Counter, Scope, Unit};

/// The way in of one queue.
pub(in crate::device::af_xdp) struct Gate {
    port: Arc<Port>,
    queue: u16,
    umem: Rc<Umem>,
    state: Cell<State>,
    /// Until this queue hears, the others wait for it.
    awaited: Cell<Option<Awaited>>,
    /// Times that the kernel did not let frames come to us: it gets them all, and nothing leaves.
    connects_refused: Counter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel gets the frames.
    Shut,
    /// We get them. The kernel may still get those of other queues.
    Hearing,
    /// We get them, and what leaves is answered to us.
    Open,
    /// The receiving half is gone: the kernel gets the frames for good.
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

    /// Lets frames come, and says whether frames may leave: a system call where none come yet, a
    /// load and a compare where they do.
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

    /// From now on the kernel gets the frames, also while the sending half lives on.
    pub(in crate::device::af_xdp) fn close(&self) {
        self.state.set(State::Over);
        drop(self.awaited.take());
        self.port.disconnect(self.queue);
    }
}
