//! The sending side of an endpoint: posted requests become packets, answers complete them.
//! InfiniBand Architecture Specification, volume 1, 9.7.5.
//!
//! ```text
//!   queue:   SEND      READ          WRITE        SEND
//!   PSN   ── 7 8 9 ── 10 11 12 13 ── 14 15 16 ── 17 ──▶
//!              ▲                        ▲
//!              oldest that is not       next to send
//!              acknowledged
//! ```
//!
//! Each request gets its sequence numbers when it is posted. A packet is made of its number alone,
//! so going back is a matter of setting the next number to an earlier one: data are read from the
//! driver's memory again. UC and UD wait for no answer.

mod answers;

use std::collections::VecDeque;

use crate::hca::control::{QpAttributes, Service};
use crate::hca::environment::Dma;
use crate::hca::rdma::packet::{Atomic, Datagram, Form, Headers, Operation, Remote, psn, service};
use crate::hca::rdma::path::Path;
use crate::hca::rdma::request::{DatagramAddress, MESSAGE_LEN_MAX, Request, Rules, unread_control};
use crate::hca::send::{Control, Fault, Scratch, Sq, SqState, Transmitter, opcode};
use crate::hca::work::Work;

/// See the module.
pub(in crate::hca) struct Requester {
    service: Service,
    pd: u32,
    limits: Limits,
    queue: VecDeque<Request>,
    /// The number of the next request.
    psn_next: u32,
    /// The number of the next packet.
    psn_send: u32,
    /// One more than the highest number that was sent.
    psn_sent: u32,
    /// The oldest number that is not acknowledged.
    psn_oldest: u32,
    retries_left: u8,
    rnr_retries_left: u8,
    /// When the oldest packet counts as lost, in cycles.
    deadline: Option<u64>,
    /// The peer asked not to be sent to before.
    not_before: u64,
    /// The missing answer for which the requester has gone back already.
    gone_back_to: Option<u32>,
}

/// What the QP's attributes allow.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// Bytes of a packet's payload.
    mtu: u32,
    read_max: u8,
    timeout_ns: Option<u64>,
    retry_count: u8,
    rnr_retry: u8,
}

/// Requests that are fetched from the ring and not complete.
const QUEUE_MAX: usize = 64;

/// Packets on their way that are not acknowledged.
const WINDOW: u32 = 128;

/// A packet asks for an acknowledgment at least so often.
const ACK_PERIOD: u32 = 32;

/// A local ACK timeout may take up to four times its length (9.7.6.1.3).
const TIMEOUT_FACTOR: u64 = 2;

impl Requester {
    pub(super) fn new(service: Service, pd: u32) -> Self {
        Self {
            service,
            pd,
            limits: Limits::default(),
            queue: VecDeque::new(),
            psn_next: 0,
            psn_send: 0,
            psn_sent: 0,
            psn_oldest: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            deadline: None,
            not_before: 0,
            gone_back_to: None,
        }
    }

    /// Takes the QP's attributes over; `mtu` is in bytes.
    pub(super) fn configure(&mut self, attributes: &QpAttributes, mtu: u32) {
        self.limits = Limits {
            mtu,
            read_max: attributes.read_max,
            timeout_ns: (attributes.timeout > 0).then_some(TIMEOUT_FACTOR * (4096 << attributes.timeout)),
            retry_count: attributes.retry_count,
            rnr_retry: attributes.rnr_retry,
        };
        self.renew_retries();
    }

    /// Sets the number of the first packet.
    pub(super) fn begin(&mut self, first: u32) {
        (self.psn_next, self.psn_send, self.psn_sent, self.psn_oldest) = (first, first, first, first);
    }

    /// Whether no more requests are taken at the moment.
    pub(in crate::hca) fn is_full(&self) -> bool {
        self.queue.len() >= QUEUE_MAX
    }

    /// Takes the WQE in the scratch.
    pub(in crate::hca) fn post(&mut self, sq: &Sq, control: &Control, scratch: &Scratch, work: &Work<'_, '_>) {
        let len_max = if self.service == Service::Ud { self.limits.mtu } else { MESSAGE_LEN_MAX };
        let rules = Rules {
            service: self.service,
            len_max,
            read_max: self.limits.read_max,
            memory: &*work.memory,
            pd: self.pd,
        };
        let request = match control.opcode {
            opcode::NOP => {
                Ok(Request { fault: None, psn_count: 0, ..Request::failed(sq.ci, *control, Fault::Opcode(0)) })
            }
            opcode::UMR if self.service != Service::Ud => Request::parse_window(sq.ci, control, scratch, sq.number),
            _ => Request::parse(sq.ci, control, scratch, &rules),
        };
        match request {
            Ok(request) => self.push(request),
            Err(fault) => self.push(Request::failed(sq.ci, *control, fault)),
        }
    }

    /// Takes a WQE that cannot be executed.
    pub(in crate::hca) fn post_fault(&mut self, position: u16, code: u8, fault: Fault) {
        self.push(Request::failed(position, unread_control(code), fault));
    }

    fn push(&mut self, mut request: Request) {
        request.psn_first = self.psn_next;
        if request.fault.is_none() && request.control.opcode != opcode::NOP && request.window.is_none() {
            request.psn_count = match request.is_atomic() {
                true => 1,
                false => (request.data.len.div_ceil(u64::from(self.limits.mtu.max(1))) as u32).max(1),
            };
        }
        self.psn_next = psn::add(self.psn_next, request.psn_count);
        self.queue.push_back(request);
    }

    /// Completes all requests as flushed.
    pub(super) fn flush(&mut self, sq: &mut Sq, work: &mut Work<'_, '_>) -> usize {
        let count = self.queue.len();
        for request in self.queue.drain(..) {
            sq.flush_at(request.position, request.control.mode, request.control.opcode, work);
        }
        self.deadline = None;
        count
    }

    /// Forgets all requests.
    pub(super) fn reset(&mut self) {
        *self = Self { limits: self.limits, ..Self::new(self.service, self.pd) };
    }

    /// Sends up to `budget` packets. Returns how many, and how many requests ended meanwhile.
    pub(super) fn transmit(
        &mut self,
        path: &Path<'_>,
        budget: usize,
        sq: &mut Sq,
        transmitter: &mut Transmitter,
        work: &mut Work<'_, '_>,
    ) -> usize {
        let now = work.environment.clock.cycles();
        let mut done = self.look_at_clock(now, sq, work);
        let mut payload = Vec::new();
        while done < budget && sq.state == SqState::Ready {
            done += self.end_front(sq, work);
            if sq.state != SqState::Ready || now < self.not_before || transmitter.is_busy() {
                break;
            }
            let Some(at) = self.next_to_send() else { break };
            let Some((headers, address)) = self.packet(at, path, work.environment.dma, &mut payload) else { continue };
            if psn::distance(headers.psn, self.psn_sent) > 0 {
                work.counters.rdma_retransmitted += 1;
            }
            match path.route(address.as_ref()) {
                Some(route) => path.send(&route, &headers, &payload, transmitter, work),
                None => self.queue[at].fault = Some(Fault::SourceGid { index: path.source_index(address.as_ref()) }),
            }
            self.sent(at, &headers, now);
            done += 1;
        }
        done + self.end_front(sq, work)
    }

    /// Goes back, or gives up, where the oldest packet was not acknowledged in time.
    fn look_at_clock(&mut self, now: u64, sq: &mut Sq, work: &mut Work<'_, '_>) -> usize {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return 0;
        }
        work.counters.rdma_timeouts += 1;
        self.retry_from(self.psn_oldest, now, sq, work);
        1
    }

    /// The request of the next packet, if it may go now.
    fn next_to_send(&self) -> Option<usize> {
        let at = self.queue.iter().position(|request| request.has(self.psn_send))?;
        let request = &self.queue[at];
        if request.fault.is_some() || psn::distance(self.psn_oldest, self.psn_send) >= WINDOW as i32 {
            return None;
        }
        if self.psn_send == request.psn_first {
            // What may name a window is sent when the window is changed.
            if self.queue.range(..at).any(|before| before.window.is_some()) {
                return None;
            }
            let outstanding = self.queue.range(..at).filter(|before| before.is_answered()).count();
            if request.is_answered() && outstanding >= usize::from(self.limits.read_max)
                || request.control.fence && outstanding > 0
            {
                return None;
            }
        }
        Some(at)
    }

    /// Builds the packet of the next number. `None` where the driver's memory is not there.
    fn packet(
        &mut self,
        at: usize,
        path: &Path<'_>,
        dma: &dyn Dma,
        payload: &mut Vec<u8>,
    ) -> Option<(Headers, Option<DatagramAddress>)> {
        let mtu = u64::from(self.limits.mtu.max(1));
        let request = &mut self.queue[at];
        let idx = psn::distance(request.psn_first, self.psn_send) as u32;
        let (first, last) = (idx == 0, idx + 1 == request.psn_count);
        let offset = u64::from(idx) * mtu;
        let mut headers = Headers { psn: self.psn_send, destination: path.destination, ..Headers::default() };
        payload.clear();
        let is_last_of_message = last && !request.is_answered();
        match request.operation {
            Operation::Read => {
                let len = (request.data.len - offset) as u32;
                headers.remote =
                    Some(Remote { address: request.address.wrapping_add(offset), rkey: request.rkey, len });
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let Request { address, rkey, operand, compare, .. } = *request;
                headers.atomic = Some(Atomic { address, rkey, operand, compare });
            }
            operation => {
                if operation == Operation::Write && first {
                    let Request { address, rkey, .. } = *request;
                    headers.remote = Some(Remote { address, rkey, len: request.data.len as u32 });
                }
                let len = mtu.min(request.data.len - offset);
                if let Err(fault) = request.data.read(offset, len, dma, payload) {
                    request.fault = Some(fault);
                    return None;
                }
            }
        }
        if is_last_of_message {
            (headers.immediate, headers.invalidate) = (request.immediate, request.invalidate);
            headers.solicited = request.control.solicited;
        }
        headers.ack_request =
            self.service == Service::Rc && !request.is_answered() && (last || idx % ACK_PERIOD == ACK_PERIOD - 1);
        let form = Form::opcode(request.operation, first, last, &headers);
        headers.opcode = form
            | match self.service {
                Service::Rc => service::RC,
                Service::Uc => service::UC,
                Service::Ud => service::UD,
            };
        if let Some(datagram) = request.datagram {
            headers.destination = datagram.destination;
            headers.datagram = Some(Datagram { qkey: path.qkey_for(datagram.qkey), source: path.number });
        }
        Some((headers, request.datagram))
    }

    /// Notes that the packet of a request went out.
    fn sent(&mut self, at: usize, headers: &Headers, now: u64) {
        let request = &mut self.queue[at];
        self.psn_send = match request.operation {
            Operation::Read => psn::add(request.psn_first, request.psn_count),
            _ => psn::add(headers.psn, 1),
        };
        if psn::distance(self.psn_sent, self.psn_send) > 0 {
            self.psn_sent = self.psn_send;
        }
        if self.service == Service::Rc {
            self.deadline = self.deadline.or_else(|| self.limits.timeout_ns.map(|timeout| now + timeout));
        } else {
            self.psn_oldest = self.psn_send;
        }
    }

    /// Ends requests at the front that are done or cannot be: those that wait for no answer, and
    /// those with a fault.
    fn end_front(&mut self, sq: &mut Sq, work: &mut Work<'_, '_>) -> usize {
        let mut ended = 0;
        while let Some(front) = self.queue.front_mut() {
            if let Some(change) = front.window.take()
                && work.memory.change_window(self.pd, sq.number, change).is_err()
            {
                front.fault = Some(Fault::Window);
            }
            let is_sent = psn::distance(front.psn_end(), self.psn_send) >= 0;
            if let Some(fault) = front.fault {
                self.fail(fault, sq, work);
            } else if front.psn_count == 0 || self.service != Service::Rc && is_sent {
                self.complete_front(sq, work);
            } else {
                break;
            }
            ended += 1;
        }
        ended
    }

    fn complete_front(&mut self, sq: &Sq, work: &mut Work<'_, '_>) {
        if let Some(request) = self.queue.pop_front() {
            sq.complete_at(request.position, &request.control, request.data.len as u32, work);
        }
    }

    /// Fails the oldest request, and the queue with it.
    fn fail(&mut self, fault: Fault, sq: &mut Sq, work: &mut Work<'_, '_>) {
        let Some(request) = self.queue.pop_front() else { return };
        sq.fail_at(request.position, fault, request.control.opcode, work);
        self.flush(sq, work);
    }
}

impl Request {
    /// Whether a number is one of its own.
    fn has(&self, number: u32) -> bool {
        let distance = psn::distance(self.psn_first, number);
        distance >= 0 && (distance as u32) < self.psn_count
    }

    /// The number behind its last.
    fn psn_end(&self) -> u32 {
        psn::add(self.psn_first, self.psn_count)
    }

    /// The number of the answer's next packet.
    fn missing(&self, mtu: u32) -> u32 {
        psn::add(self.psn_first, (self.received / u64::from(mtu.max(1))) as u32)
    }
}
