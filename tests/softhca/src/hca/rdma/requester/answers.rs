//! Answers of the peer: they complete requests, or have the requester go back or give up.

use super::Requester;
use crate::hca::Syndrome;
use crate::hca::rdma::packet::{Ack, Form, Headers, Operation, psn};
use crate::hca::rdma::request::VALUE_LEN;
use crate::hca::send::{Fault, Sq, SqState};
use crate::hca::work::Work;

/// `rnr_retry` for retries without end.
const FOR_EVER: u8 = 7;

impl Requester {
    /// Takes an answer of the peer. `false` where it answers nothing that was asked.
    pub(in crate::hca::rdma) fn take_answer(
        &mut self,
        form: Form,
        headers: &Headers,
        payload: &[u8],
        sq: &mut Sq,
        work: &mut Work<'_, '_>,
    ) -> bool {
        let is_outstanding = psn::distance(self.psn_oldest, headers.psn) >= 0
            && psn::distance(headers.psn, self.psn_sent) > 0
            && sq.state == SqState::Ready;
        if !is_outstanding {
            return false;
        }
        let before = (self.psn_oldest, self.queue.len());
        match (form.operation, headers.ack) {
            (Operation::ReadResponse, _) => self.take_response(form, headers, payload, sq, work),
            (Operation::AtomicAcknowledge, _) => {
                let original = headers.original.unwrap_or_default();
                self.take_response(form, headers, &original.to_ne_bytes(), sq, work);
            }
            (_, Some(ack)) => self.take_ack(ack, headers.psn, sq, work),
            (_, None) => return false,
        }
        if (self.psn_oldest, self.queue.len()) != before {
            self.made_progress(work.environment.clock.cycles());
        }
        true
    }

    /// Answers came: retries and time begin anew.
    fn made_progress(&mut self, now: u64) {
        self.renew_retries();
        let is_waiting = psn::distance(self.psn_oldest, self.psn_sent) > 0 && !self.queue.is_empty();
        self.deadline = self.limits.timeout_ns.filter(|_| is_waiting).map(|timeout| now.max(self.not_before) + timeout);
    }

    pub(super) fn renew_retries(&mut self) {
        (self.retries_left, self.rnr_retries_left) = (self.limits.retry_count, self.limits.rnr_retry);
    }

    fn take_ack(&mut self, ack: Ack, number: u32, sq: &mut Sq, work: &mut Work<'_, '_>) {
        let now = work.environment.clock.cycles();
        let before = psn::add(number, psn::BEFORE);
        match (ack.syndrome >> 5, ack.syndrome & 0x1f) {
            (0, _) => {
                self.acknowledge(number, sq, work);
            }
            (1, code) => {
                if self.acknowledge(before, sq, work) {
                    self.wait_for_receiver(number, code, now, sq, work);
                }
            }
            (3, 0) => {
                if self.acknowledge(before, sq, work) {
                    self.retry_from(number, now, sq, work);
                }
            }
            (3, code) => {
                let syndrome = match code {
                    1 => Syndrome::RemoteInvalidRequest,
                    2 => Syndrome::RemoteAccess,
                    3 => Syndrome::RemoteOperation,
                    _ => Syndrome::BadResponse,
                };
                if self.acknowledge(before, sq, work) {
                    self.fail(Fault::Peer(syndrome), sq, work);
                }
            }
            _ => self.fail(Fault::Peer(Syndrome::BadResponse), sq, work),
        }
    }

    /// Completes all requests up to the number. `false` where an answer with data was lost before
    /// it, and is asked for again.
    fn acknowledge(&mut self, number: u32, sq: &mut Sq, work: &mut Work<'_, '_>) -> bool {
        while let Some(front) = self.queue.front() {
            if psn::distance(front.psn_end(), number) < -1 {
                break;
            }
            if front.is_answered() {
                let missing = front.missing(self.limits.mtu);
                self.ask_again(missing, sq, work);
                return false;
            }
            let end = front.psn_end();
            self.complete_front(sq, work);
            self.set_oldest(end);
        }
        let inside_answer = self.queue.front().is_some_and(|front| front.is_answered() && front.has(number));
        if !inside_answer && psn::distance(self.psn_oldest, number) >= 0 {
            self.set_oldest(psn::add(number, 1));
        }
        true
    }

    /// Nothing before the number needs to be sent again.
    fn set_oldest(&mut self, number: u32) {
        self.psn_oldest = number;
        if psn::distance(self.psn_send, number) > 0 {
            self.psn_send = number;
        }
    }

    /// A packet of the answer to a READ or an atomic.
    fn take_response(&mut self, form: Form, headers: &Headers, bytes: &[u8], sq: &mut Sq, work: &mut Work<'_, '_>) {
        let number = headers.psn;
        if !self.acknowledge(psn::add(number, psn::BEFORE), sq, work) {
            return;
        }
        let mtu = self.limits.mtu;
        let Some(front) = self.queue.front_mut() else { return };
        let is_of_front = front.has(number)
            && front.is_answered()
            && front.is_atomic() == (form.operation == Operation::AtomicAcknowledge);
        if !is_of_front {
            return self.fail(Fault::Peer(Syndrome::BadResponse), sq, work);
        }
        let missing = front.missing(mtu);
        match psn::distance(missing, number) {
            0 => {}
            1.. => return self.ask_again(missing, sq, work),
            _ => return, // a duplicate
        }
        let expected = (front.data.len - front.received).min(u64::from(mtu));
        let expected = if front.is_atomic() { VALUE_LEN } else { expected };
        if bytes.len() as u64 != expected {
            return self.fail(Fault::Peer(Syndrome::BadResponse), sq, work);
        }
        if let Err(fault) = front.data.write(front.received, bytes, work.environment.dma) {
            return self.fail(fault, sq, work);
        }
        front.received += bytes.len() as u64;
        if psn::add(number, 1) == front.psn_end() {
            self.complete_front(sq, work);
        }
        self.gone_back_to = None;
        self.set_oldest(psn::add(number, 1));
    }

    /// Asks once more for an answer that was lost. Those behind it that are still on their way ask
    /// no second time.
    fn ask_again(&mut self, missing: u32, sq: &mut Sq, work: &mut Work<'_, '_>) {
        if self.gone_back_to != Some(missing) {
            self.gone_back_to = Some(missing);
            self.retry_from(missing, work.environment.clock.cycles(), sq, work);
        }
    }

    /// Goes back to a number, unless that was done too often.
    pub(super) fn retry_from(&mut self, number: u32, now: u64, sq: &mut Sq, work: &mut Work<'_, '_>) {
        if self.retries_left == 0 {
            return self.fail(Fault::Peer(Syndrome::TransportRetry), sq, work);
        }
        self.retries_left -= 1;
        self.psn_send = number;
        self.deadline = self.limits.timeout_ns.map(|timeout| now + timeout);
    }

    /// The peer has no receive request: waits as long as it asks for.
    fn wait_for_receiver(&mut self, number: u32, code: u8, now: u64, sq: &mut Sq, work: &mut Work<'_, '_>) {
        if self.limits.rnr_retry != FOR_EVER {
            if self.rnr_retries_left == 0 {
                return self.fail(Fault::Peer(Syndrome::RnrRetry), sq, work);
            }
            self.rnr_retries_left -= 1;
        }
        self.psn_send = number;
        self.not_before = now + RNR_NS[usize::from(code)];
        self.deadline = self.limits.timeout_ns.map(|timeout| self.not_before + timeout);
    }
}

/// RNR timer codes in nanoseconds (9.7.5.2.8 of the specification).
const RNR_NS: [u64; 32] = {
    const HUNDREDTHS_MS: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    let mut ns = [0; 32];
    let mut code = 0;
    while code < 32 {
        ns[code] = HUNDREDTHS_MS[code] * 10_000;
        code += 1;
    }
    ns
};
