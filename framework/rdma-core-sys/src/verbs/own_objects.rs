//! The objects of a context whose device file another process has, too: which events are about
//! them, and their end.
//!
//! That process may make objects in the context, and the events of those come to us as well. An
//! event names its object by a number that its maker chose, and libibverbs takes the number for the
//! address of an object of its own, locks that, and counts in it. So such events are read here, and
//! libibverbs gets those alone that name one of our objects.
//!
//! The kernel gives a handle again. An object that the process has made under the handle of one of
//! ours is destroyed in its place, and libibverbs waits until all its events are acknowledged,
//! which nobody does. So once an event names no object of ours, none is destroyed: the kernel
//! removes them with the last descriptor of the file, and what libibverbs keeps of each is leaked.
//! Notifications that the process reads by a channel of its own do not come by here: by those it
//! has the thread wait that destroys its queue, and no other: who wants an event meanwhile gets
//! none.
//!
//! Invariants:
//! 1. An address in the list is of an object that the call of this kind made, and that has not been
//!    destroyed: it is removed under the lock under which it is destroyed.
//! 2. An event is read and acknowledged under the same lock. So no destruction waits for the
//!    acknowledgment of an event of ours, and none is given to an object that is gone.
//! 3. Structures that are read are plain C data: any bytes are a valid value.

use core::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::context::{AsyncEvent, Element, EventKind};
use super::error::VerbsError;
use crate::bindings::*;
use crate::load::Verbs;

/// Bytes of `struct ib_uverbs_async_event_desc` (rdma/ib_user_verbs.h): the element in 64 bits, the
/// kind in 32, 32 reserved.
const RECORD_LEN: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OwnObjects(Mutex<Objects>);

#[derive(Debug, Default)]
struct Objects {
    own: Vec<(u64, Element)>,
    /// An event that was read named none of them: the kernel counts it for another.
    has_others: bool,
}

impl OwnObjects {
    /// An object was made, which events name by its address.
    pub(super) fn add(&self, address: usize, element: Element) {
        self.objects().own.push((address as u64, element));
    }

    /// Destroys an object; what the call says, or `EBUSY` where it might wait for ever. No event is
    /// about the object from then on.
    pub(super) fn remove(&self, address: usize, destroy: impl FnOnce() -> i32) -> i32 {
        let mut objects = self.objects();
        let Some(place) = objects.own.iter().position(|(own, _)| *own == address as u64) else {
            // Of a kind that has no events.
            drop(objects);
            return destroy();
        };
        let answer = if objects.has_others { libc::EBUSY } else { destroy() };
        objects.own.swap_remove(place);
        answer
    }

    /// The next event, if one is pending and no object is being destroyed: that may take for ever,
    /// and nobody is to wait for it. One about an object of another process is of a kind that
    /// nobody knows, and about the device.
    pub(super) fn next_event(&self, fd: BorrowedFd<'_>, verbs: &Verbs) -> Result<Option<AsyncEvent>, VerbsError> {
        let Some(mut objects) = self.objects_if_free() else { return Ok(None) };
        let mut record = [0u8; RECORD_LEN];
        // SAFETY: the record is borrowed mutably for the call, with its own length (3).
        let len = unsafe { libc::read(fd.as_raw_fd(), record.as_mut_ptr().cast(), RECORD_LEN) };
        if len != RECORD_LEN as isize {
            let error = VerbsError::last("read of an event");
            return if len >= 0 || error.errno() == libc::EAGAIN { Ok(None) } else { Err(error) };
        }
        let (words, _) = record.as_chunks();
        let named = u64::from_ne_bytes(words[0]);
        let raw = words[1].first_chunk().map_or(0, |kind| u32::from_ne_bytes(*kind));
        let seen = |element| Ok(Some(AsyncEvent { kind: EventKind::of(raw), element }));
        let object = match about(raw) {
            About::Device => return seen(Element::Device),
            About::Port => return seen(Element::Port(named.try_into().unwrap_or_default())),
            About::Unknown => return Ok(Some(of_others(raw))),
            About::Object(is_of_kind) => objects.own.iter().find(|(own, element)| *own == named && is_of_kind(element)),
        };
        let Some((_, element)) = object else {
            objects.has_others = true;
            return Ok(Some(of_others(raw)));
        };
        // SAFETY: the address is of a living object of this kind (1), and the event was taken (2).
        unsafe {
            let mut event: ibv_async_event = zeroed();
            event.event_type = raw;
            event.element.cq = core::ptr::with_exposed_provenance_mut(named as usize);
            (verbs.ibv_ack_async_event)(&raw mut event);
        }
        seen(*element)
    }

    fn objects_if_free(&self) -> Option<MutexGuard<'_, Objects>> {
        match self.0.try_lock() {
            Ok(objects) => Some(objects),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event about no object of ours.
fn of_others(kind: ibv_event_type) -> AsyncEvent {
    AsyncEvent { kind: EventKind::Other(kind), element: Element::Device }
}

/// What an event of some kind names.
enum About {
    Device,
    Port,
    /// An object, for whose elements this holds.
    Object(fn(&Element) -> bool),
    /// Nothing that we have: of objects too, which may name any address.
    Unknown,
}

fn about(kind: ibv_event_type) -> About {
    match kind {
        IBV_EVENT_PORT_ACTIVE
        | IBV_EVENT_PORT_ERR
        | IBV_EVENT_LID_CHANGE
        | IBV_EVENT_PKEY_CHANGE
        | IBV_EVENT_SM_CHANGE
        | IBV_EVENT_CLIENT_REREGISTER
        | IBV_EVENT_GID_CHANGE => About::Port,
        IBV_EVENT_DEVICE_FATAL => About::Device,
        IBV_EVENT_CQ_ERR => About::Object(|element| matches!(element, Element::CompletionQueue(_))),
        IBV_EVENT_WQ_FATAL => About::Object(|element| matches!(element, Element::WorkQueue(_))),
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => About::Object(|element| matches!(element, Element::QueuePair(_))),
        _ => About::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn destruction_that_a_hostile_process_has_wait_keeps_nobody_from_events() {
        let own = Arc::new(OwnObjects::default());
        own.add(64, Element::CompletionQueue(1));
        let ((began, has_begun), (end, ends)) = (channel(), channel::<()>());
        let destroying = Arc::clone(&own);
        let destruction = thread::spawn(move || {
            destroying.remove(64, || {
                began.send(()).unwrap();
                ends.recv().map_or(1, |()| 0)
            })
        });
        has_begun.recv().unwrap();
        let (looked, has_looked) = channel();
        let looking = Arc::clone(&own);
        thread::spawn(move || looked.send(looking.objects_if_free().is_none()));
        assert_eq!(has_looked.recv(), Ok(true), "whoever wants an event goes on without");
        end.send(()).unwrap();
        assert_eq!(destruction.join().unwrap(), 0);
        assert!(own.objects_if_free().is_some());
    }
}
