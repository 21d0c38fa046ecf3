//! State of the port that only the kernel knows: the link, the presence of the device, and the
//! frames that found no buffer.
//!
//! ```text
//!  async events, the port, a count in /sys ──▶ look: a thread of the port (port_monitor.rs) ──▶ atomics ──▶ workers
//! ```
//!
//! A query of the port, and a read of the counter, are firmware commands: tens to hundreds of µs.
//! So workers make none: the functions they call ([`Watch::state`], [`Watch::take_fault`],
//! [`Watch::take_out_of_buffer`]) read atomics, make no system call and do not wait. The port is
//! queried at the start, after an event, and at intervals in case an event was lost. Only the
//! query's answer counts, not the event.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rdma_core_sys::verbs::{AsyncEvent, Context, Element, EventKind, PortState, VerbsError};

use super::port_counter::PortCounter;
use crate::device::RxState;

/// An error of a half of a queue that no CQE reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingError {
    /// Its ring is in error, and recovers by a reset.
    Ring,
    /// The completion queue is lost: it overran, or the NIC could not write to it. The NIC writes
    /// no more CQEs to it, and only a new queue recovers.
    Completions,
}

/// The queries about the port.
pub(crate) trait Source {
    /// The next pending event, if any: a system call, without a firmware command.
    fn next_event(&self) -> Result<Option<AsyncEvent>, VerbsError>;
    /// Whether the port has a link: on Ethernet firmware commands (linux
    /// drivers/infiniband/hw/mlx5/main.c, mlx5_query_port_roce: register PTYS, the vport's state).
    fn port_state(&self, port: u8) -> Result<PortState, VerbsError>;
    /// Whether the system still lists the device, as far as known.
    fn is_listed(&self) -> bool;
}

/// The kernel.
pub(crate) struct Kernel {
    context: Context,
    /// The device in sysfs, if it was there at the start: from another namespace it may be
    /// invisible.
    entry: Option<PathBuf>,
}

impl Kernel {
    /// An open device, which sysfs lists at `entry`.
    pub(crate) fn new(context: Context, entry: PathBuf) -> Self {
        Self { context, entry: Some(entry).filter(|entry| entry.exists()) }
    }
}

impl Source for Kernel {
    fn next_event(&self) -> Result<Option<AsyncEvent>, VerbsError> {
        self.context.next_event()
    }

    fn port_state(&self, port: u8) -> Result<PortState, VerbsError> {
        Ok(self.context.port(port)?.state)
    }

    fn is_listed(&self) -> bool {
        self.entry.as_ref().is_none_or(|entry| entry.exists())
    }
}

/// The state of a port, shared by its queues.
pub(crate) struct Watch<S = Kernel> {
    source: S,
    port: u8,
    out_of_buffer: Option<PortCounter>,
    /// Held by the thread that queries, until the answer is stored, so that an older answer never
    /// replaces a newer one.
    looking: Mutex<()>,
    state: AtomicU8,
    /// A query of the port is due: at the start, and after an event.
    is_due: AtomicBool,
    /// Frames that found no buffer and that no worker has counted yet.
    lost: AtomicU64,
    /// Objects in error that no CQE reported, until their queue takes them.
    faulted: Mutex<Vec<Element>>,
    /// Whether there are any.
    has_faulted: AtomicBool,
}

const UP: u8 = 0;
const DOWN: u8 = 1;
const REMOVED: u8 = 2;

/// Events read per check: the rest follow with the next.
const EVENTS_MAX: usize = 16;
/// Maximum number of objects in error: a port has fewer.
const FAULTED_MAX: usize = 256;

impl<S: Source> Watch<S> {
    /// The state of a port now.
    pub(in crate::device::mlx5) fn new(source: S, port: u8, out_of_buffer: Option<PortCounter>) -> Self {
        let watch = Self {
            source,
            port,
            out_of_buffer,
            looking: Mutex::default(),
            state: AtomicU8::new(DOWN),
            is_due: AtomicBool::new(true),
            lost: AtomicU64::new(0),
            faulted: Mutex::default(),
            has_faulted: AtomicBool::new(false),
        };
        watch.look();
        watch
    }

    /// Updates the state. Reads events and the count, and queries the port after an event: not for
    /// a worker.
    pub(in crate::device::mlx5) fn look(&self) {
        let _alone = lock(&self.looking);
        self.drain_events();
        if self.state.load(Ordering::Relaxed) != REMOVED && self.is_due.swap(false, Ordering::Relaxed) {
            self.ask_port();
        }
        let news = self.out_of_buffer.as_ref().map_or(0, PortCounter::take);
        self.lost.fetch_add(news, Ordering::Relaxed);
    }

    /// Reads the events, and queries the port also without any.
    pub(in crate::device::mlx5) fn ask(&self) {
        self.is_due.store(true, Ordering::Relaxed);
        self.look();
    }

    /// The last check of a closed queue, which waits until the kernel's cached count has expired.
    pub(in crate::device::mlx5) fn look_last(&self) {
        if self.out_of_buffer.is_some() {
            std::thread::sleep(PortCounter::LIFESPAN);
        }
        self.look();
    }

    /// The state at the last check.
    #[inline]
    pub(in crate::device::mlx5) fn state(&self) -> RxState {
        match self.state.load(Ordering::Relaxed) {
            UP => RxState::Open,
            DOWN => RxState::LinkDown,
            _ => RxState::Ended,
        }
    }

    /// Frames that the port dropped for lack of buffers, on any queue, since the last call: the
    /// kernel has one count for all of them.
    pub(in crate::device::mlx5) fn take_out_of_buffer(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Whether they are counted.
    pub(in crate::device::mlx5) fn counts_out_of_buffer(&self) -> bool {
        self.out_of_buffer.is_some()
    }

    /// The error of a half with this ring and this completion queue since the last call. Returns
    /// `None` while another thread reads events; the next call returns the error.
    pub(in crate::device::mlx5) fn take_fault(&self, ring: Element, cq: Element) -> Option<RingError> {
        if !self.has_faulted.load(Ordering::Relaxed) {
            return None;
        }
        let mut faulted = match self.faulted.try_lock() {
            Ok(faulted) => faulted,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut take = |element| {
            let place = faulted.iter().position(|one| *one == element);
            place.map(|place| faulted.swap_remove(place)).is_some()
        };
        let (ring_failed, cq_failed) = (take(ring), take(cq));
        self.has_faulted.store(!faulted.is_empty(), Ordering::Relaxed);
        if cq_failed { Some(RingError::Completions) } else { ring_failed.then_some(RingError::Ring) }
    }

    /// Reads the pending events, and then discards the errors of an object: it was reset, or it is
    /// new and reuses a number. The caller has made firmware commands already, and this makes none.
    pub(in crate::device::mlx5) fn forget(&self, element: Element) {
        self.drain_events();
        lock(&self.faulted).retain(|one| *one != element);
    }

    /// Reads events.
    fn drain_events(&self) {
        // Held from the read to the store. Another thread may discard an error meanwhile, because a
        // new object may reuse the number; the lock keeps it discarded.
        let mut faulted = lock(&self.faulted);
        if self.read_events(&mut faulted) {
            self.state.store(REMOVED, Ordering::Relaxed);
        }
        self.has_faulted.store(!faulted.is_empty(), Ordering::Relaxed);
    }

    /// Reads the pending events; returns whether the device was removed.
    fn read_events(&self, faulted: &mut Vec<Element>) -> bool {
        for _ in 0..EVENTS_MAX {
            match self.source.next_event() {
                Ok(Some(AsyncEvent { kind: EventKind::DeviceFatal, .. })) => return true,
                Ok(Some(AsyncEvent { kind: EventKind::PortActive | EventKind::PortDown, .. })) => {
                    self.is_due.store(true, Ordering::Relaxed);
                }
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
                // No firmware is involved in this call: the kernel returns EIO for a device that it
                // has removed.
                Err(error) if matches!(error.errno(), libc::EIO | libc::ENODEV) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
        false
    }

    fn ask_port(&self) {
        let state = match self.source.port_state(self.port) {
            Ok(PortState::Active) => UP,
            Ok(_) => DOWN,
            Err(error) if self.is_removed(error) => REMOVED,
            // The query failed; the state is unchanged, and the query is repeated.
            Err(_) => return self.is_due.store(true, Ordering::Relaxed),
        };
        // A removed device stays removed, whichever thread has noticed the removal.
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| (old != REMOVED).then_some(state));
    }

    /// Whether a command failed because the kernel has removed the device (linux
    /// drivers/infiniband/core/uverbs_main.c). It also maps many a firmware error of a device that
    /// is present to EIO (`cmd_status_to_err` of mlx5/core/cmd.c).
    fn is_removed(&self, error: VerbsError) -> bool {
        match error.errno() {
            libc::ENODEV => true,
            libc::EIO => !self.source.is_listed(),
            _ => false,
        }
    }
}

/// A panic of another holder leaves the content whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use core::cell::{Cell, RefCell};

    use super::*;

    struct Port {
        events: RefCell<Vec<Result<AsyncEvent, VerbsError>>>,
        state: Cell<Result<PortState, VerbsError>>,
        /// Calls for an event, and for the state.
        asked: Cell<(u32, u32)>,
        is_listed: Cell<bool>,
    }

    impl Source for &Port {
        fn next_event(&self) -> Result<Option<AsyncEvent>, VerbsError> {
            self.asked.set((self.asked.get().0 + 1, self.asked.get().1));
            let mut events = self.events.borrow_mut();
            if events.is_empty() { Ok(None) } else { events.remove(0).map(Some) }
        }

        fn port_state(&self, _port: u8) -> Result<PortState, VerbsError> {
            self.asked.set((self.asked.get().0, self.asked.get().1 + 1));
            self.state.get()
        }

        fn is_listed(&self) -> bool {
            self.is_listed.get()
        }
    }

    fn port() -> Port {
        Port {
            events: RefCell::default(),
            state: Cell::new(Ok(PortState::Active)),
            asked: Cell::default(),
            is_listed: Cell::new(true),
        }
    }

    fn watch(port: &Port) -> Watch<&Port> {
        Watch::new(port, 1, None)
    }

    fn event(kind: EventKind, element: Element) -> Result<AsyncEvent, VerbsError> {
        Ok(AsyncEvent { kind, element })
    }

    fn errno(errno: i32) -> VerbsError {
        VerbsError::new("ibv_query_port", errno)
    }

    #[test]
    fn what_a_worker_calls_asks_nobody_and_waits_for_nobody() {
        let port = port();
        let watch = watch(&port);
        port.events.borrow_mut().push(event(EventKind::WqFatal, Element::WorkQueue(7)));
        watch.look();
        let asked = port.asked.get();
        let (ring, cq) = (Element::WorkQueue(7), Element::CompletionQueue(1));
        let busy = (watch.looking.lock().unwrap(), watch.faulted.lock().unwrap());
        assert_eq!((watch.state(), watch.take_out_of_buffer()), (RxState::Open, 0));
        assert_eq!(watch.take_fault(ring, cq), None, "somebody has it");
        drop(busy);
        assert_eq!(watch.take_fault(ring, cq), Some(RingError::Ring), "it is not lost");
        assert_eq!(port.asked.get(), asked);
    }

    #[test]
    fn port_is_asked_at_the_start_and_after_an_event_of_it_only() {
        let port = port();
        let watch = watch(&port);
        let asked = || port.asked.get().1;
        assert_eq!(asked(), 1);
        port.events
            .borrow_mut()
            .extend([event(EventKind::WqFatal, Element::WorkQueue(7)), event(EventKind::GidChange, Element::Port(1))]);
        (0..10).for_each(|_| watch.look());
        assert_eq!(asked(), 1, "nothing happened to the port");
        port.events.borrow_mut().push(event(EventKind::PortDown, Element::Port(1)));
        (0..10).for_each(|_| watch.look());
        assert_eq!(asked(), 2);
        // A queue that resets reads the event, and leaves the query to others.
        port.events.borrow_mut().push(event(EventKind::PortActive, Element::Port(1)));
        watch.forget(Element::WorkQueue(7));
        assert_eq!(asked(), 2);
        watch.look();
        assert_eq!(asked(), 3);
    }

    #[test]
    fn port_that_is_down_is_a_state_and_comes_back() {
        let port = port();
        port.state.set(Ok(PortState::Down));
        let watch = watch(&port);
        assert_eq!(watch.state(), RxState::LinkDown);
        port.state.set(Ok(PortState::Active));
        watch.look();
        assert_eq!(watch.state(), RxState::LinkDown, "nobody has said anything");
        port.events.borrow_mut().push(event(EventKind::PortActive, Element::Port(1)));
        watch.look();
        assert_eq!(watch.state(), RxState::Open);
        port.state.set(Ok(PortState::Down));
        watch.ask();
        assert_eq!(watch.state(), RxState::LinkDown, "an event was lost");
    }

    #[test]
    fn what_the_port_says_counts_and_not_the_events() {
        let port = port();
        let watch = watch(&port);
        port.events.borrow_mut().push(event(EventKind::PortDown, Element::Port(1)));
        watch.look();
        assert_eq!(watch.state(), RxState::Open, "it is up again");
    }

    #[test]
    fn removed_device_is_removed_for_good() {
        for how in [event(EventKind::DeviceFatal, Element::Device), Err(errno(libc::EIO))] {
            let port = port();
            let watch = watch(&port);
            port.events.borrow_mut().push(how);
            watch.look();
            assert_eq!(watch.state(), RxState::Ended);
            watch.look();
            assert_eq!(watch.state(), RxState::Ended);
        }
        let port = port();
        port.state.set(Err(errno(libc::ENODEV)));
        assert_eq!(watch(&port).state(), RxState::Ended);
    }

    #[test]
    fn device_whose_firmware_refused_a_command_is_there() {
        let port = port();
        let watch = watch(&port);
        port.state.set(Err(errno(libc::EIO)));
        watch.ask();
        assert_eq!(watch.state(), RxState::Open);
        port.state.set(Ok(PortState::Down));
        watch.ask();
        assert_eq!(watch.state(), RxState::LinkDown);
        port.state.set(Err(errno(libc::EIO)));
        port.is_listed.set(false);
        watch.ask();
        assert_eq!(watch.state(), RxState::Ended, "nor does the system list it");
    }

    #[test]
    fn port_that_does_not_answer_is_as_it_was() {
        let port = port();
        let watch = watch(&port);
        port.state.set(Err(errno(libc::EINTR)));
        port.events.borrow_mut().push(event(EventKind::PortDown, Element::Port(1)));
        port.events.borrow_mut().push(Err(errno(libc::EINTR)));
        watch.look();
        assert_eq!(watch.state(), RxState::Open);
        port.state.set(Ok(PortState::Down));
        watch.look();
        assert_eq!(watch.state(), RxState::LinkDown, "it is asked again");
    }

    #[test]
    fn fault_is_told_once_to_the_queue_that_has_it() {
        let port = port();
        let watch = watch(&port);
        port.events.borrow_mut().extend([
            event(EventKind::WqFatal, Element::WorkQueue(7)),
            event(EventKind::WqFatal, Element::WorkQueue(7)),
            event(EventKind::QpFatal, Element::QueuePair(8)),
        ]);
        watch.look();
        let cq = Element::CompletionQueue(1);
        assert_eq!(watch.take_fault(Element::WorkQueue(8), cq), None);
        assert_eq!(watch.take_fault(Element::WorkQueue(7), cq), Some(RingError::Ring));
        assert_eq!(watch.take_fault(Element::WorkQueue(7), cq), None);
        assert_eq!(watch.take_fault(Element::QueuePair(8), cq), Some(RingError::Ring));
    }

    #[test]
    fn lost_completion_queue_is_the_news_whatever_its_ring_says() {
        let port = port();
        let watch = watch(&port);
        let (ring, cq) = (Element::QueuePair(7), Element::CompletionQueue(7));
        port.events.borrow_mut().extend([event(EventKind::CqError, cq), event(EventKind::QpFatal, ring)]);
        watch.look();
        assert_eq!(watch.take_fault(ring, Element::CompletionQueue(8)), Some(RingError::Ring));
        port.events.borrow_mut().push(event(EventKind::QpFatal, ring));
        watch.look();
        assert_eq!(watch.take_fault(ring, cq), Some(RingError::Completions));
        assert_eq!(watch.take_fault(ring, cq), None, "both were taken");
        port.events.borrow_mut().push(event(EventKind::CqError, cq));
        watch.look();
        watch.forget(cq);
        assert_eq!(watch.take_fault(ring, cq), None, "it was of another one with its number");
    }

    #[test]
    fn storm_of_events_is_read_in_portions() {
        let port = port();
        let watch = watch(&port);
        port.events.borrow_mut().extend((0..40).map(|_| event(EventKind::GidChange, Element::Port(1))));
        watch.look();
        assert_eq!(port.events.borrow().len(), 40 - EVENTS_MAX);
    }
}
