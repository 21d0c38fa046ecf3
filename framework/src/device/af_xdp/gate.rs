//! Whether a queue hears: what its two halves have to know of each other.
//!
//! A program without an entry for the queue gives its frames to the kernel. The entry is made by whichever comes first, the first poll
//! or the first frame that leaves: an answer must not come before there is somebody to hear it. The kernel, which knows nothing of our
//! connections, would reset them, and what a neighbour answers would be lost. The fill ring is full by then: the other way round the
//! first frames would find no buffer.

use core::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::port::Port;
use super::umem::Umem;

/// The way in of one queue.
pub(super) struct Gate {
    port: Arc<Port>,
    queue: u16,
    umem: Rc<Umem>,
    state: Cell<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel gets the frames.
    Shut,
    /// We get them.
    Open,
    /// The receiving half is gone: the kernel gets them for good.
    Over,
}

impl Gate {
    pub(super) fn new(port: Arc<Port>, queue: u16, umem: Rc<Umem>) -> Self {
        Self { port, queue, umem, state: Cell::new(State::Shut) }
    }

    /// Lets frames come: a system call where they do not yet, a load and a compare where they do.
    #[inline]
    pub(super) fn open(&self) {
        if self.state.get() == State::Shut {
            self.open_now();
        }
    }

    /// A queue whose interface is gone stays shut, and says so by its state.
    #[cold]
    fn open_now(&self) {
        if self.port.connect(self.queue, self.umem.socket()).is_ok() {
            self.state.set(State::Open);
        }
    }

    /// From now on the kernel gets the frames, also while the sending half lives on.
    pub(super) fn close(&self) {
        self.state.set(State::Over);
        self.port.disconnect(self.queue);
    }
}
