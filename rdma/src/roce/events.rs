//! What a device says unasked.

use std::collections::VecDeque;

use super::handle::{CqHandle, QpHandle, SrqHandle};

/// Something happened that no completion says (`ibv_get_async_event.3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A completion queue overran: completions are lost, and its queue pairs fail.
    CqError(CqHandle),
    /// A queue pair failed for a reason of our own.
    QpFatal(QpHandle),
    /// A peer sent an invalid request; the queue pair is in the state ERR.
    QpRequestError(QpHandle),
    /// A peer reached for memory without the right; the queue pair is in the state ERR.
    QpAccessError(QpHandle),
    /// The first expected packet came while the queue pair was in the state RTR.
    CommunicationEstablished(QpHandle),
    /// The last send is done, and the state SQD is reached.
    SendQueueDrained(QpHandle),
    /// A shared receive queue has fewer receives than its limit, which is none again now.
    SrqLimitReached(SrqHandle),
    /// A queue pair is in the state ERR, and takes no more receives of its shared queue.
    LastWqeReached(QpHandle),
    /// A shared receive queue of a NIC has failed.
    SrqError(SrqHandle),
    /// The port has a link.
    PortActive,
    /// The port has lost its link.
    PortError,
    /// The port has an address more, or less. A queue pair whose own address is gone goes on with
    /// it, and fails when answers do not come.
    GidChange,
    /// A NIC is gone, or has to be reset.
    DeviceFatal,
}

/// Events, and completion queues that notify, until somebody takes them.
pub(super) struct Events {
    events: VecDeque<Event>,
    capacity: usize,
    notified: VecDeque<CqHandle>,
    /// Events that found no room.
    pub(super) lost: u64,
}

impl Events {
    pub(super) fn new(capacity: u32, cqs: u32) -> Self {
        let capacity = capacity as usize;
        // A queue notifies once until it is armed again, so one place each is enough, until it is
        // taken from here.
        let notified = VecDeque::with_capacity(cqs as usize);
        Self { events: VecDeque::with_capacity(capacity), capacity, notified, lost: 0 }
    }

    /// Where there is no room, what is lost is that a connection was established: many are at a
    /// start, and their packets say it too.
    pub(super) fn push(&mut self, event: Event) {
        if self.events.len() >= self.capacity {
            self.lost += 1;
            let is_chatty = |event: &Event| matches!(event, Event::CommunicationEstablished(_));
            match self.events.iter().position(is_chatty) {
                Some(place) if !is_chatty(&event) => drop(self.events.remove(place)),
                _ => return,
            }
        }
        self.events.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn notify(&mut self, cq: CqHandle) {
        if self.notified.len() < self.notified.capacity() && !self.notified.contains(&cq) {
            self.notified.push_back(cq);
        }
    }

    /// Forgets a completion queue that is destroyed, so that it takes no place from the others.
    pub(super) fn forget(&mut self, cq: CqHandle) {
        self.notified.retain(|notified| *notified != cq);
    }

    pub(super) fn pop_notified(&mut self) -> Option<CqHandle> {
        self.notified.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::super::handle::Table;
    use super::*;

    #[test]
    fn event_that_nothing_else_says_takes_the_place_of_a_connection_that_was_established() {
        let (mut cqs, mut qps) = (Table::new(1), Table::new(1));
        let (cq, qp) = (cqs.insert_with(|_| ()).unwrap(), qps.insert_with(|_| ()).unwrap());
        let mut events = Events::new(3, 0);
        let pushed = [
            Event::QpFatal(qp),
            Event::CommunicationEstablished(qp),
            Event::SendQueueDrained(qp),
            Event::CqError(cq),
            Event::CommunicationEstablished(qp),
            Event::LastWqeReached(qp),
        ];
        pushed.into_iter().for_each(|event| events.push(event));
        let taken: Vec<_> = core::iter::from_fn(|| events.pop()).collect();
        assert_eq!(taken, [Event::QpFatal(qp), Event::SendQueueDrained(qp), Event::CqError(cq)]);
        assert_eq!(events.lost, 3);
    }
}
