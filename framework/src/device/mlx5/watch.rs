//! Whether the port has a link and the device is there.
//!
//! The worker asks: `refresh_counters`, which it calls now and then and which may make system calls, reads what events wait
//! and how the port is, two calls that wait for nobody. So there is no thread that could be late or outlive the device,
//! and the data path reads one word. The state that counts is the one that the port itself tells, not the last event of it: an event that was lost or
//! that another queue's worker has taken changes nothing.

use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use rdma_core_sys::verbs::{AsyncEvent, Context, Element, EventKind, PortState, VerbsError};

use crate::device::RxState;

/// What no CQE can tell a half of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its ring is in error, and comes back when it is reset.
    Ring,
    /// Its completion queue is lost: it overran, or the NIC could not write to it. The NIC writes no more CQEs, and nothing but a
    /// new queue brings them back.
    Completions,
}

/// What is asked about the port.
pub(super) trait Source {
    /// The next event, if one waits.
    fn next_event(&self) -> Result<Option<AsyncEvent>, VerbsError>;
    /// Whether the port has a link.
    fn port_state(&self, port: u8) -> Result<PortState, VerbsError>;
}

impl Source for Context {
    fn next_event(&self) -> Result<Option<AsyncEvent>, VerbsError> {
        self.next_event()
    }

    fn port_state(&self, port: u8) -> Result<PortState, VerbsError> {
        Ok(self.port(port)?.state)
    }
}

/// The state of a port, shared by its queues.
pub(super) struct Watch<S = Context> {
    source: S,
    port: u8,
    state: AtomicU8,
    /// Objects that fell into error and could not say so by a CQE, until their queue asks.
    faulted: Mutex<Vec<Element>>,
}

const UP: u8 = 0;
const DOWN: u8 = 1;
const REMOVED: u8 = 2;

/// Events that are read in one look: more come with the next.
const EVENTS_MAX: usize = 16;
/// Objects in error that are remembered: a port has fewer.
const FAULTED_MAX: usize = 256;

impl<S: Source> Watch<S> {
    /// Of a port as it is now.
    pub(super) fn new(source: S, port: u8) -> Self {
        let watch = Self { source, port, state: AtomicU8::new(DOWN), faulted: Mutex::default() };
        watch.look();
        watch
    }

    /// Finds out how it is now: two system calls, more after an event.
    pub(super) fn look(&self) {
        if self.state.load(Ordering::Relaxed) == REMOVED {
            return;
        }
        let state = match self.read_events() {
            Some(removed) => removed,
            None => match self.source.port_state(self.port) {
                Ok(PortState::Active) => UP,
                Ok(_) => DOWN,
                Err(error) if is_removed(error) => REMOVED,
                // It did not say; it is as it was.
                Err(_) => return,
            },
        };
        self.state.store(state, Ordering::Relaxed);
    }

    /// As it was at the last look.
    #[inline]
    pub(super) fn state(&self) -> RxState {
        match self.state.load(Ordering::Relaxed) {
            UP => RxState::Open,
            DOWN => RxState::LinkDown,
            _ => RxState::Ended,
        }
    }

    /// What became of a half with this ring and this completion queue since it was last asked for.
    pub(super) fn take_fault(&self, ring: Element, cq: Element) -> Option<Fault> {
        let mut faulted = self.faulted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut take = |element| {
            let place = faulted.iter().position(|one| *one == element);
            place.map(|place| faulted.swap_remove(place)).is_some()
        };
        let (ring_failed, cq_failed) = (take(ring), take(cq));
        if cq_failed { Some(Fault::Completions) } else { ring_failed.then_some(Fault::Ring) }
    }

    /// Forgets what became of an object: it was reset, or it is a new one with the number of another.
    pub(super) fn forget(&self, element: Element) {
        self.faulted.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| *one != element);
    }

    /// Reads what waits; `REMOVED` where that is the news.
    fn read_events(&self) -> Option<u8> {
        // Held from reading to remembering: what its object has forgotten meanwhile, as a new one may have its number, stays so.
        let mut faulted = self.faulted.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..EVENTS_MAX {
            match self.source.next_event() {
                Ok(Some(AsyncEvent { kind: EventKind::DeviceFatal, .. })) => return Some(REMOVED),
                Ok(Some(AsyncEvent {
                    kind:
                        EventKind::QpFatal
                        | EventKind::QpRequestError
                        | EventKind::QpAccessError
                        | EventKind::WqFatal
                        | EventKind::CqError,
                    element,
                })) => {
                    if faulted.len() < FAULTED_MAX && !faulted.contains(&element) {
                        faulted.push(element);
                    }
                }
                Ok(Some(_)) => {}
                Err(error) if is_removed(error) => return Some(REMOVED),
                Ok(None) | Err(_) => return None,
            }
        }
        None
    }
}

/// What calls answer once the kernel has taken the device away (linux drivers/infiniband/core/uverbs_main.c).
fn is_removed(error: VerbsError) -> bool {
    matches!(error.errno(), libc::EIO | libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};

    use super::*;

    struct Port {
        events: RefCell<Vec<Result<AsyncEvent, VerbsError>>>,
        state: Cell<Result<PortState, VerbsError>>,
    }

    impl Source for &Port {
        fn next_event(&self) -> Result<Option<AsyncEvent>, VerbsError> {
            let mut events = self.events.borrow_mut();
            if events.is_empty() { Ok(None) } else { events.remove(0).map(Some) }
        }

        fn port_state(&self, _port: u8) -> Result<PortState, VerbsError> {
            self.state.get()
        }
    }

    fn port() -> Port {
        Port { events: RefCell::default(), state: Cell::new(Ok(PortState::Active)) }
    }

    fn event(kind: EventKind, element: Element) -> Result<AsyncEvent, VerbsError> {
        Ok(AsyncEvent { kind, element })
    }

    fn errno(errno: i32) -> VerbsError {
        VerbsError::new("ibv_query_port", errno)
    }

    #[test]
    fn port_that_is_down_is_a_state_and_comes_back() {
        let port = port();
        port.state.set(Ok(PortState::Down));
        let watch = Watch::new(&port, 1);
        assert_eq!(watch.state(), RxState::LinkDown);
        port.state.set(Ok(PortState::Active));
        assert_eq!(watch.state(), RxState::LinkDown, "nobody has looked");
        watch.look();
        assert_eq!(watch.state(), RxState::Open);
    }

    #[test]
    fn what_the_port_says_counts_and_not_the_events() {
        let port = port();
        let watch = Watch::new(&port, 1);
        port.events.borrow_mut().push(event(EventKind::PortDown, Element::Port(1)));
        watch.look();
        assert_eq!(watch.state(), RxState::Open, "it is up again");
    }

    #[test]
    fn removed_device_is_removed_for_good() {
        for how in [event(EventKind::DeviceFatal, Element::Device), Err(errno(libc::EIO))] {
            let port = port();
            let watch = Watch::new(&port, 1);
            port.events.borrow_mut().push(how);
            watch.look();
            assert_eq!(watch.state(), RxState::Ended);
            watch.look();
            assert_eq!(watch.state(), RxState::Ended);
        }
        let port = port();
        port.state.set(Err(errno(libc::ENODEV)));
        assert_eq!(Watch::new(&port, 1).state(), RxState::Ended);
    }

    #[test]
    fn port_that_does_not_answer_is_as_it_was() {
        let port = port();
        let watch = Watch::new(&port, 1);
        port.state.set(Err(errno(libc::EINTR)));
        port.events.borrow_mut().push(Err(errno(libc::EINTR)));
        watch.look();
        assert_eq!(watch.state(), RxState::Open);
    }

    #[test]
    fn fault_is_told_once_to_the_queue_that_has_it() {
        let port = port();
        let watch = Watch::new(&port, 1);
        port.events.borrow_mut().extend([
            event(EventKind::WqFatal, Element::WorkQueue(7)),
            event(EventKind::WqFatal, Element::WorkQueue(7)),
            event(EventKind::QpFatal, Element::QueuePair(8)),
        ]);
        watch.look();
        let cq = Element::CompletionQueue(1);
        assert_eq!(watch.take_fault(Element::WorkQueue(8), cq), None);
        assert_eq!(watch.take_fault(Element::WorkQueue(7), cq), Some(Fault::Ring));
        assert_eq!(watch.take_fault(Element::WorkQueue(7), cq), None);
        assert_eq!(watch.take_fault(Element::QueuePair(8), cq), Some(Fault::Ring));
    }

    #[test]
    fn lost_completion_queue_is_the_news_whatever_its_ring_says() {
        let port = port();
        let watch = Watch::new(&port, 1);
        let (ring, cq) = (Element::QueuePair(7), Element::CompletionQueue(7));
        port.events.borrow_mut().extend([event(EventKind::CqError, cq), event(EventKind::QpFatal, ring)]);
        watch.look();
        assert_eq!(watch.take_fault(ring, Element::CompletionQueue(8)), Some(Fault::Ring));
        port.events.borrow_mut().push(event(EventKind::QpFatal, ring));
        watch.look();
        assert_eq!(watch.take_fault(ring, cq), Some(Fault::Completions));
        assert_eq!(watch.take_fault(ring, cq), None, "both were taken");
        port.events.borrow_mut().push(event(EventKind::CqError, cq));
        watch.look();
        watch.forget(cq);
        assert_eq!(watch.take_fault(ring, cq), None, "it was of another one with its number");
    }

    #[test]
    fn storm_of_events_is_read_in_portions() {
        let port = port();
        let watch = Watch::new(&port, 1);
        port.events.borrow_mut().extend((0..40).map(|_| event(EventKind::GidChange, Element::Port(1))));
        watch.look();
        assert_eq!(port.events.borrow().len(), 40 - EVENTS_MAX);
    }
}
