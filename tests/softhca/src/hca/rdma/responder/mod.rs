//! The receiving side of an endpoint: requests of the peer, in the order of its checks. InfiniBand
//! Architecture Specification, volume 1, 9.7.4 (RC), 9.8.3 (UC), 9.8.4 (UD).
//!
//! RC: a request ahead of the expected number is refused once, one behind it is a duplicate, which
//! is acknowledged or answered again and never executed a second time. UC: a gap drops the message
//! that it is in. UD: each packet is a message.

mod execute;

use std::collections::VecDeque;

use crate::hca::control::{AccessFlags, EventKind, Service};
use crate::hca::rdma::answers::{Answer, AnswerKind, Answers, syndrome};
use crate::hca::rdma::frame::{Arrived, GRH_LEN};
use crate::hca::rdma::packet::{Form, Headers, Operation, psn};
use crate::hca::rdma::receive_wqe::{ReceiveWqe, Source};
use crate::hca::receive::RqFault;
use crate::hca::work::Work;
use crate::hca::{Completion, CompletionKind, RxMessage, RxMessageKind, Syndrome};

/// See the module.
pub(super) struct Responder {
    pub(super) answers: Answers,
    /// The number of the next request.
    psn: u32,
    /// The number of the last request that is answered by an acknowledgment; `None` where so many
    /// were answered by data since that it may be taken for one to come. To acknowledge a READ or
    /// an atomic says that its data was sent, and Linux rxe takes it for them.
    acknowledged: Option<u32>,
    /// Messages that were completed.
    msn: u32,
    /// A request ahead was refused: further ones are dropped until the expected one comes.
    is_silent: bool,
    message: Option<Message>,
    /// The WQE of the message at hand; UC: or of one that was dropped, for the next one.
    wqe: Option<ReceiveWqe>,
    /// READs and atomics, for their duplicates.
    remembered: VecDeque<Remembered>,
}

/// A message of which some packets came.
#[derive(Clone, Copy, Debug)]
enum Message {
    Send { offset: u64 },
    Write { address: u64, rkey: u32, len: u64, offset: u64 },
}

/// A request that was executed.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    psn: u32,
    /// A READ's memory.
    address: u64,
    rkey: u32,
    len: u64,
    /// An atomic's answer.
    original: Option<u64>,
}

/// A request, taken apart.
pub(super) struct Incoming<'a> {
    pub(super) form: Form,
    pub(super) headers: &'a Headers,
    pub(super) payload: &'a [u8],
    pub(super) arrived: &'a Arrived<'a>,
}

/// What the endpoint is and allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) service: Service,
    pub(super) pd: u32,
    pub(super) number: u32,
    pub(super) user_index: u32,
    pub(super) receive_cq: u32,
    pub(super) access: AccessFlags,
    pub(super) qkey: u32,
    pub(super) mtu: u32,
    pub(super) read_max: u8,
    pub(super) rnr_timer: u8,
    /// Datagrams and unreliable messages wait for a WQE, as behind priority flow control.
    pub(super) is_patient: bool,
}

impl Terms {
    /// The domain, and the number for whose peer windows are bound.
    fn domain(&self) -> (u32, u32) {
        (self.pd, self.number)
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was executed, answered, or dropped.
    Done,
    /// It waits for a receive WQE; nothing happened.
    Waits,
    /// The endpoint is in error.
    Failed(EventKind),
}

/// Why a request is not executed.
enum Refusal {
    /// No receive WQE.
    NotReady,
    /// It is impossible.
    Invalid,
    /// The peer has no right to this memory.
    Access,
    /// It failed here.
    Local,
}

impl From<RqFault> for Refusal {
    fn from(fault: RqFault) -> Self {
        match fault {
            RqFault::TooLong { .. } => Self::Invalid,
            _ => Self::Local,
        }
    }
}

/// The longest READ and WRITE.
const LEN_MAX: u64 = 1 << 31;

impl Responder {
    pub(super) fn new() -> Self {
        Self {
            answers: Answers::default(),
            psn: 0,
            acknowledged: None,
            msn: 0,
            is_silent: false,
            message: None,
            wqe: None,
            remembered: VecDeque::new(),
        }
    }

    /// Sets the number of the first request.
    pub(super) fn begin(&mut self, first: u32) {
        (self.psn, self.acknowledged) = (first, Some(psn::add(first, psn::BEFORE)));
    }

    /// Goes on behind a request that is answered by `count` packets with data.
    fn pass(&mut self, count: u32) {
        self.psn = psn::add(self.psn, count);
        let next = self.psn;
        self.acknowledged = self.acknowledged.filter(|number| (0..1 << 22).contains(&psn::distance(*number, next)));
    }

    /// The WQE at hand comes back flushed.
    pub(super) fn flush(&mut self, terms: &Terms, work: &mut Work<'_, '_>) {
        self.message = None;
        if let Some(wqe) = self.wqe.take() {
            work.counters.rx_flushed += 1;
            complete_error(&wqe, Syndrome::Flushed, 0, terms, work);
        }
    }

    /// Takes a request of the peer.
    pub(super) fn take(
        &mut self,
        incoming: &Incoming<'_>,
        terms: &Terms,
        source: &mut Source<'_>,
        work: &mut Work<'_, '_>,
    ) -> Outcome {
        match terms.service {
            Service::Rc => self.take_reliable(incoming, terms, source, work),
            Service::Uc => self.take_unreliable(incoming, terms, source, work),
            Service::Ud => self.take_datagram(incoming, terms, source, work),
        }
    }

    fn take_reliable(
        &mut self,
        incoming: &Incoming<'_>,
        terms: &Terms,
        source: &mut Source<'_>,
        work: &mut Work<'_, '_>,
    ) -> Outcome {
        match psn::distance(self.psn, incoming.headers.psn) {
            0 => {}
            1.. => {
                if !self.is_silent {
                    self.is_silent = true;
                    self.acknowledge(self.psn, syndrome::SEQUENCE);
                }
                return Outcome::Done;
            }
            _ => {
                work.counters.rdma_duplicates += 1;
                self.answer_duplicate(incoming);
                return Outcome::Done;
            }
        }
        self.is_silent = false;
        let (code, event) = match self.execute(incoming, terms, source, work) {
            Ok(()) => return Outcome::Done,
            Err(Refusal::NotReady) => {
                self.is_silent = true;
                self.acknowledge(self.psn, syndrome::RNR | terms.rnr_timer & 0x1f);
                return Outcome::Done;
            }
            Err(Refusal::Invalid) => (syndrome::INVALID_REQUEST, EventKind::QpRequestError),
            Err(Refusal::Access) => (syndrome::REMOTE_ACCESS, EventKind::QpAccessError),
            Err(Refusal::Local) => (syndrome::REMOTE_OPERATION, EventKind::QpFatal),
        };
        self.acknowledge(self.psn, code);
        Outcome::Failed(event)
    }

    fn take_unreliable(
        &mut self,
        incoming: &Incoming<'_>,
        terms: &Terms,
        source: &mut Source<'_>,
        work: &mut Work<'_, '_>,
    ) -> Outcome {
        if incoming.headers.psn != self.psn || incoming.form.first {
            // Packets are missing, or a message ended without its last packet.
            self.message = None;
        }
        let next = psn::add(incoming.headers.psn, 1);
        if self.message.is_none() && !incoming.form.first {
            work.counters.rdma_dropped += 1;
            self.psn = next;
            return Outcome::Done;
        }
        self.psn = incoming.headers.psn;
        let outcome = match self.execute(incoming, terms, source, work) {
            Ok(()) => Outcome::Done,
            Err(Refusal::NotReady) if terms.is_patient => return Outcome::Waits,
            Err(Refusal::Local) => Outcome::Failed(EventKind::QpFatal),
            Err(Refusal::NotReady | Refusal::Invalid | Refusal::Access) => {
                self.message = None;
                work.counters.rdma_dropped += 1;
                Outcome::Done
            }
        };
        self.psn = next;
        outcome
    }

    fn take_datagram(
        &mut self,
        incoming: &Incoming<'_>,
        terms: &Terms,
        source: &mut Source<'_>,
        work: &mut Work<'_, '_>,
    ) -> Outcome {
        let Some(datagram) = incoming.headers.datagram.filter(|datagram| datagram.qkey == terms.qkey) else {
            work.counters.rdma_dropped += 1;
            return Outcome::Done;
        };
        match self.take_wqe(source, work) {
            Ok(()) => {}
            Err(Refusal::NotReady) if terms.is_patient => return Outcome::Waits,
            Err(Refusal::NotReady) => {
                work.counters.rx_out_of_buffer += 1;
                return Outcome::Done;
            }
            Err(_) => return Outcome::Failed(EventKind::QpFatal),
        }
        let bytes = [&incoming.arrived.grh[..], incoming.payload].concat();
        if self.store(0, &bytes, terms, work).is_err() {
            return Outcome::Failed(EventKind::QpFatal);
        }
        let grh = if incoming.arrived.source.ipv4().is_some() { 2 } else { 1 };
        let message = RxMessage {
            source_qp: datagram.source,
            grh,
            ..message(incoming, (GRH_LEN + incoming.payload.len()) as u64)
        };
        self.complete(message, terms, work);
        Outcome::Done
    }

    /// A request that was executed comes again: its answer was lost.
    fn answer_duplicate(&mut self, incoming: &Incoming<'_>) {
        let number = incoming.headers.psn;
        let Some(remote) = incoming.headers.remote.filter(|_| incoming.form.operation == Operation::Read) else {
            if incoming.headers.atomic.is_some() {
                self.answer_atomic_again(number);
            } else if let Some(acknowledged) = self.acknowledged {
                self.acknowledge(acknowledged, syndrome::ACK);
            }
            return;
        };
        let (address, len) = (remote.address, u64::from(remote.len));
        let is_part = |known: &Remembered| {
            let from = address.wrapping_sub(known.address);
            known.original.is_none()
                && known.rkey == remote.rkey
                && psn::distance(known.psn, number) >= 0
                && from <= known.len
                && len == known.len - from
        };
        if self.remembered.iter().any(is_part) {
            self.answers.drop_from(number);
            let kind = AnswerKind::Read { address, rkey: remote.rkey, len, offset: 0 };
            self.answers.push(Answer { psn: number, msn: self.msn, kind });
        }
    }

    fn answer_atomic_again(&mut self, number: u32) {
        let known = self.remembered.iter().find(|known| known.psn == number);
        if let Some(original) = known.and_then(|known| known.original) {
            self.answers.drop_from(number);
            self.answers.push(Answer { psn: number, msn: self.msn, kind: AnswerKind::Original(original) });
        }
    }

    fn remember(&mut self, request: Remembered, terms: &Terms) {
        self.remembered.push_back(request);
        while self.remembered.len() > usize::from(terms.read_max) {
            self.remembered.pop_front();
        }
    }

    fn acknowledge(&mut self, number: u32, syndrome: u8) {
        self.answers.push(Answer { psn: number, msn: self.msn, kind: AnswerKind::Ack { syndrome } });
    }

    /// Makes sure that there is a WQE for the message at hand.
    fn take_wqe(&mut self, source: &mut Source<'_>, work: &mut Work<'_, '_>) -> Result<(), Refusal> {
        if self.wqe.is_none() {
            self.wqe = source.take(work.environment.dma)?;
        }
        if self.wqe.is_some() { Ok(()) } else { Err(Refusal::NotReady) }
    }

    /// Stores bytes of a message in its WQE. Where they have no place there, the WQE fails.
    fn store(&mut self, offset: u64, bytes: &[u8], terms: &Terms, work: &mut Work<'_, '_>) -> Result<(), Refusal> {
        let Some(wqe) = &self.wqe else { return Err(Refusal::Local) };
        let Err(fault) = wqe.write(terms.pd, offset, bytes, work.memory, work.environment.dma) else { return Ok(()) };
        work.counters.rx_errors += 1;
        let number = terms.number;
        work.diagnoses.add(|| format!("queue pair {number:#x} receives: {fault}"));
        complete_error(wqe, fault.syndrome(), fault.vendor(), terms, work);
        self.wqe = None;
        Err(fault.into())
    }

    fn complete(&mut self, message: RxMessage, terms: &Terms, work: &mut Work<'_, '_>) {
        if let Some(wqe) = self.wqe.take() {
            work.counters.rdma_rx_messages += 1;
            hand_over(&wqe, CompletionKind::ReceivedMessage(message), terms, work);
        }
    }
}

/// The completion of a message of `len` bytes.
fn message(incoming: &Incoming<'_>, len: u64) -> RxMessage {
    let Headers { immediate, invalidate, solicited, .. } = *incoming.headers;
    let kind = match (immediate, invalidate) {
        (Some(word), _) => RxMessageKind::SendImmediate(word),
        (None, Some(key)) => RxMessageKind::SendInvalidate(key),
        (None, None) => RxMessageKind::Send,
    };
    RxMessage { byte_count: len as u32, kind, solicited, ..RxMessage::default() }
}

fn complete_error(wqe: &ReceiveWqe, syndrome: Syndrome, vendor: u8, terms: &Terms, work: &mut Work<'_, '_>) {
    hand_over(wqe, CompletionKind::ReceiveError { syndrome, vendor }, terms, work);
}

fn hand_over(wqe: &ReceiveWqe, kind: CompletionKind, terms: &Terms, work: &mut Work<'_, '_>) {
    let Terms { user_index, number: queue_number, receive_cq, .. } = *terms;
    let completion = Completion { user_index, queue_number, wqe_counter: wqe.position, kind };
    work.cqs.complete(receive_cq, &completion, work.environment);
}
