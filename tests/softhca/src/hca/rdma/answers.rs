//! What a responder has still to send, in the order of the requests: acknowledgments, and answers
//! with data, which are read from memory packet by packet.

use std::collections::VecDeque;

use super::packet::{Ack, Form, Headers, Operation, psn, service};
use super::path::Path;
use crate::hca::environment::Dma;
use crate::hca::memory::{Memory, Purpose};
use crate::hca::send::Transmitter;
use crate::hca::work::Work;

/// See the module.
#[derive(Default)]
pub(super) struct Answers {
    waiting: VecDeque<Answer>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) psn: u32,
    pub(super) msn: u32,
    pub(super) kind: AnswerKind,
}

/// The kinds of answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnswerKind {
    /// An acknowledgment, positive or negative.
    Ack { syndrome: u8 },
    /// The value that an atomic found.
    Original(u64),
    /// Memory from `offset` on.
    Read { address: u64, rkey: u32, len: u64, offset: u64 },
}

/// AETH syndromes (9.7.5.2.3 of the specification).
pub(super) mod syndrome {
    /// Without credits, as with a shared receive queue.
    pub(crate) const ACK: u8 = 0x1f;
    /// The timer code is added.
    pub(crate) const RNR: u8 = 0x20;
    pub(crate) const SEQUENCE: u8 = 0x60;
    pub(crate) const INVALID_REQUEST: u8 = 0x61;
    pub(crate) const REMOTE_ACCESS: u8 = 0x62;
    pub(crate) const REMOTE_OPERATION: u8 = 0x63;
}

impl Answers {
    /// READs that are not answered in full.
    pub(super) fn reads(&self) -> usize {
        self.waiting.iter().filter(|answer| matches!(answer.kind, AnswerKind::Read { .. })).count()
    }

    /// Adds an answer. A positive acknowledgment takes the place of one right before it.
    pub(super) fn push(&mut self, answer: Answer) {
        let is_ack = |answer: &Answer| matches!(answer.kind, AnswerKind::Ack { syndrome: syndrome::ACK });
        match self.waiting.back_mut() {
            Some(last) if is_ack(last) && is_ack(&answer) => *last = answer,
            _ => self.waiting.push_back(answer),
        }
    }

    /// Drops answers from a number on: the requests come again.
    pub(super) fn drop_from(&mut self, number: u32) {
        self.waiting.retain(|answer| psn::distance(number, answer.psn) < 0);
    }

    /// Sends up to `budget` packets. Returns how many.
    pub(super) fn send(
        &mut self,
        (pd, mtu): (u32, u32),
        path: &Path<'_>,
        budget: usize,
        transmitter: &mut Transmitter,
        work: &mut Work<'_, '_>,
    ) -> usize {
        let mut done = 0;
        let mut payload = Vec::new();
        while done < budget && !transmitter.is_busy() {
            let Some(answer) = self.waiting.front_mut() else { break };
            let sent = *answer;
            let is_done = answer.advance(mtu);
            if is_done {
                self.waiting.pop_front();
            }
            let headers =
                sent.headers(path.destination, mtu, (pd, path.number, work.memory), work.environment.dma, &mut payload);
            if headers.ack.is_some_and(|ack| ack.syndrome >> 5 == 1) {
                work.counters.rdma_rnr_naks += 1;
            } else if headers.ack.is_some_and(|ack| ack.syndrome >> 5 != 0) {
                work.counters.rdma_naks += 1;
            }
            if headers.ack.is_some_and(|ack| ack.syndrome == syndrome::REMOTE_OPERATION) {
                self.waiting.clear();
            }
            if let Some(route) = path.route(None) {
                path.send(&route, &headers, &payload, transmitter, work);
            }
            done += 1;
        }
        done
    }
}

impl Answer {
    /// Goes on to the next packet: whether there is none.
    fn advance(&mut self, mtu: u32) -> bool {
        match &mut self.kind {
            AnswerKind::Ack { .. } | AnswerKind::Original(_) => true,
            AnswerKind::Read { len, offset, .. } => {
                *offset += u64::from(mtu);
                self.psn = psn::add(self.psn, 1);
                *offset >= *len
            }
        }
    }

    /// The headers of the next packet, and its payload.
    fn headers(
        &self,
        destination: u32,
        mtu: u32,
        (pd, qp, memory): (u32, u32, &Memory),
        dma: &dyn Dma,
        payload: &mut Vec<u8>,
    ) -> Headers {
        payload.clear();
        let Self { psn, msn, kind } = *self;
        let mut headers = Headers { destination, psn, ..Headers::default() };
        let mut ack = Ack { syndrome: syndrome::ACK, msn };
        let (operation, first, last) = match kind {
            AnswerKind::Ack { syndrome } => {
                ack.syndrome = syndrome;
                (Operation::Acknowledge, true, true)
            }
            AnswerKind::Original(value) => {
                headers.original = Some(value);
                (Operation::AtomicAcknowledge, true, true)
            }
            AnswerKind::Read { address, rkey, len, offset } => {
                let count = (len - offset).min(u64::from(mtu));
                payload.resize(count as usize, 0);
                let place =
                    memory.reach_remote((pd, qp), rkey, (address.wrapping_add(offset), count), Purpose::RemoteRead);
                let read = match place {
                    _ if count == 0 => true,
                    Ok(place) => dma.read(place, payload).is_ok(),
                    Err(_) => false,
                };
                if read {
                    (Operation::ReadResponse, offset == 0, offset + count == len)
                } else {
                    // It was there when the request came.
                    payload.clear();
                    ack.syndrome = syndrome::REMOTE_OPERATION;
                    (Operation::Acknowledge, true, true)
                }
            }
        };
        let has_ack = operation != Operation::ReadResponse || first || last;
        headers.ack = has_ack.then_some(ack);
        headers.opcode = service::RC | Form::opcode(operation, first, last, &headers);
        headers
    }
}
