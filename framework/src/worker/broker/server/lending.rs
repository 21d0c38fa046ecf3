//! The queue of a client: the request, the tries to lend one, and the frames that come to it.

use std::time::Duration;

use super::requests::Answer;
use super::{Broker, system};
use crate::device::DeviceError;
use crate::device::af_xdp::broker::forwarded::ForwardedQueue;
use crate::device::broker::message::Reply;
use crate::device::broker::request::QueueRequest;
use crate::worker::broker::clients::{CLIENTS_MAX, Stock};
use crate::worker::broker::error::Refusal;
use crate::worker::broker::flows::ClientId;
use crate::worker::broker::waiting::{Lent, WaitingRequest};

/// How long a client waits for a queue at most: the kernel frees the queue of a process that was
/// killed some milliseconds later, and more than half a second where each core has much to do.
const LENDS_WITHIN: Duration = Duration::from_secs(2);

impl Broker {
    /// A client requests its queue, which it gets at once, or when the kernel has freed one.
    pub(super) fn request_queue(&mut self, id: ClientId, request: QueueRequest) -> Result<Answer, Refusal> {
        self.device.check(&request, self.config.memory_max).map_err(|sentence| Refusal::new(libc::EINVAL, sentence))?;
        let Some(client) = self.clients.get(id) else { return Err(Refusal::new(libc::ENOTCONN, "no such client")) };
        client.rights.are_any()?;
        if let Some(queue) = self.clients.take_closed(id) {
            self.device.end(queue);
        }
        if self.clients.get(id).is_some_and(|client| client.lent.is_some()) {
            return Err(Refusal::new(libc::EBUSY, "the client has its queue already: it gets one"));
        }
        self.clients.request_queue(id, request, self.config.user_memory_max)?;
        Ok(Answer { reply: None, icmp_errors: None, has_queue: false })
    }

    /// Tries to lend a queue to the waiting client whose turn it is.
    pub(super) fn lend_to_next(&mut self, report: &mut dyn FnMut(&str)) {
        let waiting = self.clients.iter().filter_map(|client| Some((client.id, client.peer.uid, client.waits?.tries)));
        let Some(id) = self.turns.next(waiting) else { return };
        let Some(waiting) = self.clients.get(id).and_then(|client| client.waits) else { return };
        let lent = self.lend(id, &waiting);
        if let Some(client) = self.clients.get(id) {
            client.waits = lent.is_none().then_some(WaitingRequest { tries: waiting.tries + 1, ..waiting });
        }
        let Some(lent) = lent else { return };
        if let (Err(_), Some(client)) = (&lent, self.clients.get(id)) {
            client.memory = 0;
        }
        let answer = lent.unwrap_or_else(|refusal| self.refuse(id, refusal, report));
        if !self.reply(id, &answer) {
            self.end_client(id, report);
        }
    }

    /// Lends a queue to a client that waits for one; `None` if it waits on.
    fn lend(&mut self, id: ClientId, waiting: &WaitingRequest) -> Option<Result<Answer, Refusal>> {
        let request = &waiting.request;
        if let Err(refusal) = self.clients.check_kept(id, self.config.user_memory_max) {
            // A process that has just ended, and the thread that passed its frames on, still have
            // them for a moment.
            return (waiting.since.elapsed() >= LENDS_WITHIN).then_some(Err(refusal));
        }
        let made = match &self.forwarder {
            Some(_) => self.lend_forwarded(id, request).map(Some),
            None => self.lend_queue(id, waiting),
        };
        let lent = match made {
            Ok(Some(lent)) => lent,
            Ok(None) if waiting.since.elapsed() < LENDS_WITHIN || !self.ended.is_empty() => return None,
            Ok(None) => {
                let sentence = format!(
                    "processes keep the sockets of queues of {}, which earlier clients had: end them",
                    self.config.port.interface()
                );
                return Some(Err(Refusal::new(libc::EBUSY, sentence)));
            }
            Err(refusal) => return Some(Err(refusal)),
        };
        let reply = lent.reply(request);
        if let Some(client) = self.clients.get(id) {
            client.lent = Some(lent);
        }
        Some(Ok(Answer { has_queue: true, ..reply.into() }))
    }

    /// A queue whose frames are passed on. Its number is the client's index.
    fn lend_forwarded(&mut self, id: ClientId, request: &QueueRequest) -> Result<Lent, Refusal> {
        let stock = Stock { interface: self.config.port.interface(), queues: CLIENTS_MAX as u16, more: "" };
        let queue = self.clients.candidates(id, stock)?[0];
        let user = self.clients.get(id).map_or(u32::MAX, |client| client.peer.uid);
        let (queue_of, end) = ForwardedQueue::make(request).map_err(|error| system("packet buffers", &error))?;
        self.clients.give(id, queue);
        if let Some(forwarder) = &self.forwarder {
            forwarder.add(queue.into(), user, queue_of);
        }
        Ok(Lent::Forwarded(end))
    }

    /// A queue of the interface; `None` if the kernel does not give the one that was tried.
    fn lend_queue(&mut self, id: ClientId, waiting: &WaitingRequest) -> Result<Option<Lent>, Refusal> {
        let (interface, more) = (self.config.port.interface(), self.device.more_queues());
        let mut candidates = self.clients.candidates(id, Stock { interface, queues: self.queues, more: &more })?;
        // One that can be lent at once is the first.
        candidates.sort_by_key(|queue| self.ended.has_queue(*queue));
        let is_free = !self.clients.was_refused_by_kernel(candidates[0]) && !self.ended.has_queue(candidates[0]);
        let queue = candidates[if is_free { 0 } else { waiting.tries % candidates.len() }];
        if self.ended.has_queue(queue) {
            return Ok(None);
        }
        let busy = |error: DeviceError| Refusal::new(libc::EBUSY, error.to_string());
        if self.clients.was_refused_by_kernel(queue) {
            if self.device.is_free(queue, &waiting.request).map_err(busy)? {
                // For the next try: a moment passes until the kernel frees it of the asking socket.
                self.clients.regain(queue);
            }
            return Ok(None);
        }
        let lent = self.device.lend(queue, &waiting.request).map_err(busy)?;
        match lent {
            Some(_) => self.clients.give(id, queue),
            None => self.clients.withhold(queue),
        }
        Ok(lent)
    }

    pub(super) fn connect(&mut self, id: ClientId) -> Result<Answer, Refusal> {
        let (queue, lent) = self.clients.lent(id)?;
        match (lent, &self.forwarder) {
            (Lent::Forwarded(_), Some(forwarder)) => forwarder.set_receiving(queue.into(), true),
            (Lent::Forwarded(_), None) => (),
            (lent, _) => {
                self.device.connect(queue, lent).map_err(|error| system("the frames of the client's queue", &error))?;
            }
        }
        Ok(Reply::Done.into())
    }
}
