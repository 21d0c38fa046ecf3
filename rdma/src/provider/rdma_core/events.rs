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
            if let Some(event) = self.note(event) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Does what follows from an event, and names it.
    fn note(&mut self, event: AsyncEvent) -> Option<Event> {
        if event.kind == EventKind::GidChange {
            self.gids.refresh();
        }
        self.named(event)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// The software ConnectX raises no such event, so it is handed over here. Another test has the
    /// way from the kernel's number to it.
    #[test]
    fn addresses_are_read_again_when_the_kernel_says_that_they_have_changed() {
        let test = "provider::rdma_core::events::tests::\
                    addresses_are_read_again_when_the_kernel_says_that_they_have_changed";
        if !softhca::testing::is_inside(test, &["--strict", "--address", "192.0.2.1"]) {
            return;
        }
        let mut nic = RdmaCore::open("mlx5_0").unwrap();
        let both: Vec<_> = nic.gids().collect();
        assert_eq!(both.len(), 2, "link-local, and that of the address");
        // A table of our own, without the second.
        let folder = Path::new("/sys/class/infiniband/mlx5_0/ports/1/gids");
        let first = std::fs::read_to_string(folder.join("0")).unwrap();
        assert!(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(folder).status().unwrap().success());
        std::fs::write(folder.join("0"), first).unwrap();
        let other = AsyncEvent { kind: EventKind::PortActive, element: Element::Port(1) };
        assert_eq!((nic.note(other), nic.gids().count()), (Some(Event::PortActive), 2));
        let change = AsyncEvent { kind: EventKind::GidChange, element: Element::Port(1) };
        assert_eq!(nic.note(change), Some(Event::GidChange));
        assert_eq!(nic.gids().collect::<Vec<_>>(), both[..1]);
    }
}
