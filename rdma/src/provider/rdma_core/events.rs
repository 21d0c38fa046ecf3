//! What a NIC says unasked: notifications of armed completion queues, and asynchronous events, by
//! the handles of their objects.

use std::os::fd::BorrowedFd;

use rdma_core_sys::verbs::{AsyncEvent, Element, EventKind};

use super::{OBJECTS, RdmaCore, refused};
use crate::roce::handle::{Handle, Table};
use crate::roce::{CqHandle, DeviceError, Event};

impl RdmaCore {
    /// Readable while a notification is pending: for a thread that sleeps until a completion comes.
    pub fn notification_fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// Readable while an event is pending.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.context.async_fd()
    }

    /// The next notification; one of a queue that is no more is passed over.
    pub(super) fn take_notification(&self) -> Result<Option<CqHandle>, DeviceError> {
        while let Some(number) = self.channel.next_event().map_err(|error| refused(&error))? {
            if let Some(cq) = find(&self.cqs, |cq| cq.handle() == number) {
                return Ok(Some(cq));
            }
        }
        Ok(None)
    }

    /// The next event; those of objects that are no more, and those that mean nothing here, are
    /// passed over.
    pub(super) fn take_event(&mut self) -> Result<Option<Event>, DeviceError> {
        while let Some(event) = self.context.next_event().map_err(|error| refused(&error))? {
            if event.kind == EventKind::GidChange {
                self.gids.refresh();
            }
            if let Some(event) = self.named(event) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// An event with its object's handle.
    fn named(&self, AsyncEvent { kind, element }: AsyncEvent) -> Option<Event> {
        match element {
            Element::QueuePair(number) => {
                let qp = find(&self.qps, |qp| qp.queues.number() == number)?;
                Some(match kind {
                    EventKind::QpFatal => Event::QpFatal(qp),
                    EventKind::QpRequestError => Event::QpRequestError(qp),
                    EventKind::QpAccessError => Event::QpAccessError(qp),
                    EventKind::Established => Event::CommunicationEstablished(qp),
                    EventKind::SqDrained => Event::SendQueueDrained(qp),
                    EventKind::LastWqeReached => Event::LastWqeReached(qp),
                    _ => return None,
                })
            }
            Element::CompletionQueue(number) => find(&self.cqs, |cq| cq.handle() == number).map(Event::CqError),
            Element::SharedReceiveQueue(number) => {
                let srq = find(&self.srqs, |srq| srq.receives.handle() == number)?;
                let is_limit = kind == EventKind::SrqLimitReached;
                Some(if is_limit { Event::SrqLimitReached(srq) } else { Event::SrqError(srq) })
            }
            Element::Port(_) if kind == EventKind::PortActive => Some(Event::PortActive),
            Element::Port(_) if kind == EventKind::PortDown => Some(Event::PortError),
            Element::Port(_) if kind == EventKind::GidChange => Some(Event::GidChange),
            Element::Device if kind == EventKind::DeviceFatal => Some(Event::DeviceFatal),
            Element::Port(_) | Element::Device | Element::WorkQueue(_) => None,
        }
    }
}

/// The handle of the object that `is_it`: events are rare, and a table is looked through.
fn find<K, T>(table: &Table<K, T>, is_it: impl Fn(&T) -> bool) -> Option<Handle<K>> {
    let idx = (0..OBJECTS).find(|idx| table.at(*idx).is_some_and(&is_it))?;
    table.handle_at(idx)
}
