//! Requests that are executed: SEND, WRITE, READ and atomics.

use super::{Incoming, LEN_MAX, Message, Refusal, Remembered, Responder, Terms, message};
use crate::hca::control::{AccessFlags, Service};
use crate::hca::memory::Purpose;
use crate::hca::rdma::answers::{Answer, AnswerKind, syndrome};
use crate::hca::rdma::packet::{Form, Headers, Operation, psn};
use crate::hca::rdma::receive_wqe::Source;
use crate::hca::work::Work;
use crate::hca::{RxMessage, RxMessageKind};

impl Responder {
    /// Executes the expected request, and acknowledges it.
    pub(super) fn execute(
        &mut self,
        incoming: &Incoming<'_>,
        terms: &Terms,
        source: &mut Source<'_>,
        work: &mut Work<'_, '_>,
    ) -> Result<(), Refusal> {
        let Incoming { form, headers, payload, .. } = incoming;
        if form.first != self.message.is_none() {
            return Err(Refusal::Invalid);
        }
        match form.operation {
            Operation::Send => self.take_send(incoming, terms, source, work)?,
            Operation::Write => self.take_write(incoming, terms, source, work)?,
            Operation::Read => return self.take_read(headers, terms, work),
            Operation::CompareSwap | Operation::FetchAdd => return self.take_atomic(*form, headers, terms, work),
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge => {
                return Err(Refusal::Invalid);
            }
        }
        work.counters.rdma_rx_bytes += payload.len() as u64;
        if form.last {
            self.message = None;
            self.msn = psn::add(self.msn, 1);
        }
        let number = self.psn;
        (self.psn, self.acknowledged) = (psn::add(number, 1), Some(number));
        if headers.ack_request && terms.service == Service::Rc {
            self.acknowledge(number, syndrome::ACK);
        }
        Ok(())
    }

    fn take_send(
        &mut self,
        incoming: &Incoming<'_>,
        terms: &Terms,
        source: &mut Source<'_>,
        work: &mut Work<'_, '_>,
    ) -> Result<(), Refusal> {
        let offset = match self.message {
            None => 0,
            Some(Message::Send { offset }) => offset,
            Some(Message::Write { .. }) => return Err(Refusal::Invalid),
        };
        check_payload(incoming, terms.mtu)?;
        let invalidated = incoming.headers.invalidate;
        if invalidated.is_some_and(|key| !work.memory.is_bound(terms.number, key)) {
            return Err(Refusal::Access);
        }
        if offset == 0 && self.message.is_none() {
            self.take_wqe(source, work)?;
        }
        self.store(offset, incoming.payload, terms, work)?;
        let offset = offset + incoming.payload.len() as u64;
        self.message = Some(Message::Send { offset });
        if incoming.form.last {
            // It is bound.
            let _ = invalidated.map(|key| work.memory.invalidate(terms.number, key));
            self.complete(message(incoming, offset), terms, work);
        }
        Ok(())
    }

    fn take_write(
        &mut self,
        incoming: &Incoming<'_>,
        terms: &Terms,
        source: &mut Source<'_>,
        work: &mut Work<'_, '_>,
    ) -> Result<(), Refusal> {
        check_payload(incoming, terms.mtu)?;
        let (address, rkey, len, offset) = match (self.message, incoming.headers.remote) {
            (None, Some(remote)) => (remote.address, remote.rkey, u64::from(remote.len), 0),
            (Some(Message::Write { address, rkey, len, offset }), None) => (address, rkey, len, offset),
            _ => return Err(Refusal::Invalid),
        };
        let count = incoming.payload.len() as u64;
        let is_end = offset + count == len;
        if !terms.access.allows_remote_write() || len > LEN_MAX || offset + count > len || is_end != incoming.form.last
        {
            return Err(Refusal::Invalid);
        }
        if offset == 0 && len > 0 {
            let reached = work.memory.reach_remote(terms.domain(), rkey, (address, len), Purpose::RemoteWrite);
            reached.map_err(|_| Refusal::Access)?;
        }
        if incoming.headers.immediate.is_some() {
            self.take_wqe(source, work)?;
        }
        if count > 0 {
            let at = address.wrapping_add(offset);
            let reached = work.memory.reach_remote(terms.domain(), rkey, (at, count), Purpose::RemoteWrite);
            let place = reached.map_err(|_| Refusal::Access)?;
            work.environment.dma.write(place, incoming.payload).map_err(|_| Refusal::Local)?;
        }
        self.message = Some(Message::Write { address, rkey, len, offset: offset + count });
        if let Some(word) = incoming.headers.immediate {
            let message = message(incoming, len);
            self.complete(RxMessage { kind: RxMessageKind::WriteImmediate(word), ..message }, terms, work);
        }
        Ok(())
    }

    fn take_read(&mut self, headers: &Headers, terms: &Terms, work: &mut Work<'_, '_>) -> Result<(), Refusal> {
        let remote = headers.remote.ok_or(Refusal::Invalid)?;
        let (address, rkey, len) = (remote.address, remote.rkey, u64::from(remote.len));
        let is_free = self.answers.reads() < usize::from(terms.read_max);
        if !terms.access.allows_remote_read() || len > LEN_MAX || !is_free {
            return Err(Refusal::Invalid);
        }
        if len > 0 {
            let reached = work.memory.reach_remote(terms.domain(), rkey, (address, len), Purpose::RemoteRead);
            reached.map_err(|_| Refusal::Access)?;
        }
        let number = self.psn;
        self.remember(Remembered { psn: number, address, rkey, len, original: None }, terms);
        self.msn = psn::add(self.msn, 1);
        self.pass(packets(len, terms.mtu));
        let kind = AnswerKind::Read { address, rkey, len, offset: 0 };
        self.answers.push(Answer { psn: number, msn: self.msn, kind });
        Ok(())
    }

    fn take_atomic(
        &mut self,
        form: Form,
        headers: &Headers,
        terms: &Terms,
        work: &mut Work<'_, '_>,
    ) -> Result<(), Refusal> {
        let atomic = headers.atomic.ok_or(Refusal::Invalid)?;
        let is_possible = terms.access.allows_remote_atomic() && terms.read_max > 0;
        if !is_possible || !atomic.address.is_multiple_of(8) {
            return Err(Refusal::Invalid);
        }
        let reached = work.memory.reach_remote(terms.domain(), atomic.rkey, (atomic.address, 8), Purpose::RemoteAtomic);
        let place = reached.map_err(|_| Refusal::Access)?;
        let dma = work.environment.dma;
        let mut value = [0; 8];
        dma.read(place, &mut value).map_err(|_| Refusal::Local)?;
        let original = u64::from_ne_bytes(value);
        let stored = match form.operation {
            Operation::FetchAdd => original.wrapping_add(atomic.operand),
            _ if original == atomic.compare => atomic.operand,
            _ => original,
        };
        dma.write(place, &stored.to_ne_bytes()).map_err(|_| Refusal::Local)?;
        let number = self.psn;
        self.remember(
            Remembered { psn: number, address: atomic.address, rkey: atomic.rkey, len: 0, original: Some(original) },
            terms,
        );
        self.msn = psn::add(self.msn, 1);
        self.pass(1);
        self.answers.push(Answer { psn: number, msn: self.msn, kind: AnswerKind::Original(original) });
        Ok(())
    }
}

/// A packet that is not its message's last is as long as may be.
fn check_payload(incoming: &Incoming<'_>, mtu: u32) -> Result<(), Refusal> {
    let Form { first, last, .. } = incoming.form;
    let (len, mtu) = (incoming.payload.len(), mtu as usize);
    let is_possible = match (first, last) {
        (_, false) => len == mtu,
        (false, true) => (1..=mtu).contains(&len),
        (true, true) => len <= mtu,
    };
    if is_possible { Ok(()) } else { Err(Refusal::Invalid) }
}

/// Packets of a message.
fn packets(len: u64, mtu: u32) -> u32 {
    (len.div_ceil(u64::from(mtu.max(1))) as u32).max(1)
}

impl AccessFlags {
    fn allows_remote_write(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    fn allows_remote_read(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    fn allows_remote_atomic(self) -> bool {
        self.0 & 1 << 3 != 0
    }
}
