//! The completer: what answers do to the requests that are under way (InfiniBand 9.7.5, 9.9.2).

use super::attributes::QpState;
use super::send_queue::Bytes;
use super::{Qp, Status, WorkCompletion};
use crate::roce::tables::Tables;
use crate::roce::timers::NEVER;
use crate::wire::aeth::{Aeth, Nak, Syndrome, credits, rnr_timer_ns};
use crate::wire::opcode::{Operation, Transport};
use crate::wire::packet::Message;
use crate::wire::psn::Psn;

/// A retry count that never ends, of RNR NAKs alone.
const FOR_EVER: u8 = 7;

impl Qp {
    /// Takes an answer.
    pub(super) fn take_response(&mut self, tables: &mut Tables, now: u64, psn: Psn, message: &Message<'_>) {
        let requester = &self.requester;
        let is_under_way = psn.since(requester.unacknowledged) >= 0 && psn.since(requester.sent) < 0;
        if !is_under_way || !matches!(self.state, QpState::Rts | QpState::Sqd) {
            if !self.take_credits(psn, message) {
                self.counters.stale_responses += 1;
            }
            return;
        }
        match (message.operation, message.aeth.map(Aeth::syndrome)) {
            (Operation::Acknowledge, Some(Syndrome::Ack(_))) => self.acknowledge(tables, now, psn),
            (Operation::Acknowledge, Some(Syndrome::RnrNak(code))) => self.take_rnr_nak(tables, now, psn, code),
            (Operation::Acknowledge, Some(Syndrome::Nak(nak))) => self.take_nak(tables, now, psn, nak),
            (Operation::Acknowledge, _) => self.counters.stale_responses += 1,
            _ => self.take_data(tables, now, psn, message),
        }
        if let Some((Syndrome::Ack(code), msn)) = message.aeth.map(|aeth| (aeth.syndrome(), aeth.msn())) {
            self.requester.credit_limit = credits(code).map(|credits| msn.wrapping_add(credits));
        }
        self.check_drained(tables);
    }

    /// Takes an acknowledgment that says anew what is done, and that the peer has more receives by
    /// now; false if it is none.
    #[cold]
    fn take_credits(&mut self, psn: Psn, message: &Message<'_>) -> bool {
        let Some((Syndrome::Ack(code), msn)) = message.aeth.map(|aeth| (aeth.syndrome(), aeth.msn())) else {
            return false;
        };
        let is_newest = psn.plus(1) == self.requester.unacknowledged;
        let (Some(limit), Some(credits)) = (self.requester.credit_limit, credits(code)) else { return false };
        let said = msn.wrapping_add(credits);
        let is_more = Psn::new(said).since(Psn::new(limit)) > 0;
        let is_taken = message.operation == Operation::Acknowledge && is_newest && is_more;
        if is_taken {
            self.requester.credit_limit = Some(said);
        }
        is_taken
    }

    /// All up to `psn` is done, except READs and atomic operations, whose answers are missing then.
    fn acknowledge(&mut self, tables: &mut Tables, now: u64, psn: Psn) {
        let before = self.requester.unacknowledged;
        let acknowledged = psn.plus(1).behind(before);
        let mut is_answer_missing = false;
        let mut position = self.sq.head;
        while position != self.requester.started {
            let wqe = self.sq.at(position);
            // Of the first request a part may be acknowledged before.
            if position != self.sq.head && wqe.psn.behind(before) >= acknowledged {
                break;
            }
            if wqe.operation.needs_response() {
                is_answer_missing = true;
                break;
            }
            let end = wqe.psn.plus(wqe.packets);
            if end.behind(before) > acknowledged {
                self.requester.unacknowledged = psn.plus(1);
                break;
            }
            self.requester.unacknowledged = end;
            position = position.wrapping_add(1);
        }
        if self.requester.unacknowledged != before {
            self.progress(now);
        }
        self.complete_acknowledged(tables);
        if is_answer_missing {
            self.counters.implied_naks += 1;
            self.retry(tables, false);
        }
    }

    /// Something was acknowledged: all retries are there again.
    #[inline]
    fn progress(&mut self, now: u64) {
        self.requester.refill(&self.settings);
        self.requester.has_gone_back = false;
        self.requester.waits_for_receive = false;
        self.restart_timer(now);
        if self.requester.next.since(self.requester.unacknowledged) < 0 {
            // It went back, and what it would send again has arrived after all.
            self.go_back(self.requester.unacknowledged);
        }
    }

    /// Completes the requests that are acknowledged to their ends, and then the one that failed.
    pub(super) fn complete_acknowledged(&mut self, tables: &mut Tables) {
        while self.sq.head != self.requester.started {
            let wqe = self.sq.at(self.sq.head);
            if self.requester.unacknowledged.behind(wqe.psn) < wqe.packets {
                break;
            }
            self.complete_first(tables);
        }
        if let Some((position, status)) = self.requester.fault {
            match position.wrapping_sub(self.sq.head).cast_signed() {
                0 => self.fail(tables, status),
                // Only to be sent again could it not: it had arrived before.
                ..0 => self.requester.fault = None,
                1.. => {}
            }
        }
    }

    /// Completes the oldest request.
    fn complete_first(&mut self, tables: &mut Tables) {
        let wqe = self.sq.at(self.sq.head);
        let needs_response = wqe.operation.needs_response();
        let completion = WorkCompletion {
            wr_id: wqe.wr_id,
            status: Status::Success,
            kind: wqe.operation.kind(),
            byte_len: if needs_response { wqe.len } else { 0 },
            qpn: self.qpn,
            imm: None,
            invalidated: None,
            source: None,
        };
        let is_signaled = wqe.is_signaled;
        self.requester.reads -= u8::from(needs_response && self.requester.reads > 0);
        if self.requester.wqe == self.sq.head {
            // Behind a retry it stood in the way, has no packet, and was done before.
            (self.requester.wqe, self.requester.offset) = (self.sq.head.wrapping_add(1), 0);
        }
        self.sq.head = self.sq.head.wrapping_add(1);
        if is_signaled {
            self.push_completion(tables, self.send_cq, completion, false);
        }
    }

    /// The oldest request fails, and with it the queue pair.
    fn fail(&mut self, tables: &mut Tables, status: Status) {
        let wqe = self.sq.at(self.sq.head);
        let (wr_id, kind) = (wqe.wr_id, wqe.operation.kind());
        self.sq.head = self.sq.head.wrapping_add(1);
        self.complete(tables, self.send_cq, wr_id, kind, status);
        if self.transport == Transport::Rc {
            self.enter_error(tables);
        } else if self.state != QpState::Err {
            // Receives go on.
            self.state = QpState::Sqe;
            self.flush_sends(tables);
        }
    }

    fn take_rnr_nak(&mut self, tables: &mut Tables, now: u64, psn: Psn, code: u8) {
        self.counters.rnr_naks_rx += 1;
        if !self.acknowledge_before(tables, now, psn) || self.requester.waits_for_receive {
            return;
        }
        if self.settings.rnr_retry != FOR_EVER {
            let Some(left) = self.requester.rnr_retries_left.checked_sub(1) else {
                return self.fail(tables, Status::RnrRetryExceeded);
            };
            self.requester.rnr_retries_left = left;
        }
        self.go_back(psn);
        self.requester.waits_for_receive = true;
        self.requester.deadline = now.saturating_add(rnr_timer_ns(code));
    }

    fn take_nak(&mut self, tables: &mut Tables, now: u64, psn: Psn, nak: Nak) {
        self.counters.naks_rx[nak as usize] += 1;
        if !self.acknowledge_before(tables, now, psn) {
            return;
        }
        match nak {
            Nak::PsnSequence => self.retry(tables, true),
            nak => self.fail(tables, nak.into()),
        }
    }

    /// A NAK acknowledges all before it; false if that is not so, because an answer is missing, or
    /// because the queue pair failed of what came before.
    fn acknowledge_before(&mut self, tables: &mut Tables, now: u64, psn: Psn) -> bool {
        if psn != self.requester.unacknowledged {
            self.acknowledge(tables, now, psn.plus(0xff_ffff));
        }
        psn == self.requester.unacknowledged && self.state != QpState::Err
    }

    /// Sends again from the oldest packet that is not acknowledged. Without `is_asked` once only
    /// until something is acknowledged, because each later answer finds the same one missing.
    fn retry(&mut self, tables: &mut Tables, is_asked: bool) {
        let has_done_so = self.requester.has_gone_back && !is_asked;
        if self.state == QpState::Err || self.requester.waits_for_receive || has_done_so {
            return;
        }
        let Some(left) = self.requester.retries_left.checked_sub(1) else {
            return self.fail(tables, Status::RetryExceeded);
        };
        self.requester.retries_left = left;
        self.requester.has_gone_back = true;
        self.go_back(self.requester.unacknowledged);
    }

    /// Takes a part of the answer to a READ, or the answer to an atomic operation.
    fn take_data(&mut self, tables: &mut Tables, now: u64, psn: Psn, message: &Message<'_>) {
        if !self.acknowledge_before(tables, now, psn) {
            return;
        }
        let shift = u32::from(self.settings.mtu_shift);
        let wqe = self.sq.at(self.sq.head);
        let offset = psn.since(wqe.psn).cast_unsigned() << shift;
        let value = message.original.map(u64::to_ne_bytes);
        let (bytes, is_expected) = match &value {
            Some(value) => (&value[..], wqe.operation.is_atomic()),
            None => {
                let len = (wqe.len - offset.min(wqe.len)).min(1 << shift);
                let is_last = offset + len == wqe.len;
                let fits = message.payload.len() == len as usize && message.operation.is_last() == is_last;
                (message.payload, wqe.operation.needs_response() && !wqe.operation.is_atomic() && fits)
            }
        };
        if !is_expected {
            return self.fail(tables, Status::BadResponse);
        }
        let Bytes::Sges(sges) = wqe.bytes() else { return };
        if tables.regions.scatter(self.pd, sges, offset, bytes).is_err() {
            return self.fail(tables, Status::LocalProtection);
        }
        self.requester.unacknowledged = psn.plus(1);
        self.progress(now);
        self.complete_acknowledged(tables);
    }

    /// The deadline is reached.
    pub(in crate::roce) fn on_timer(&mut self, tables: &mut Tables, now: u64) {
        if self.is_paced {
            self.pacer.on_timer(now);
        }
        if now < self.requester.deadline {
            return;
        }
        self.requester.deadline = NEVER;
        if self.requester.waits_for_receive {
            self.requester.waits_for_receive = false;
        } else if self.requester.waits_for_room && !(tables.is_blocked() && self.can_request(tables)) {
            // Frames have left since. Where one of its own did, an answer may be on its way.
            self.restart_timer(now);
        } else if self.requester.waits_for_room || self.requester.awaits_answer() {
            self.counters.timeouts += 1;
            self.retry(tables, true);
        }
    }

    /// When to look again; the end of time if nothing is awaited.
    #[inline]
    pub(in crate::roce) fn deadline(&self) -> u64 {
        let pace = if self.is_paced { self.pacer.deadline() } else { None };
        pace.map_or(self.requester.deadline, |at| at.min(self.requester.deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QpOptions, QpState};
    use super::*;
    use crate::roce::handle::Table;
    use crate::roce::tables::Tables;
    use crate::roce::work::{Data, MESSAGE_MAX, Remote, SendOperation, SendRequest, Sge};

    /// A queue pair with one WRITE of all 2²³ packets that a message may have.
    fn longest(tables: &mut Tables) -> Qp {
        let (mut pds, mut qps) = (Table::new(1), Table::new(1));
        let pd = pds.insert_with(|_| ()).unwrap();
        let cq = tables.cqs.insert_with(|_| crate::roce::cq::Cq::new(1)).unwrap();
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 1,
            recv_depth: 1,
            srq: None,
            signals_all: true,
        };
        let handle = qps.insert_with(|_| ()).unwrap();
        let mut qp = Qp::new(handle, crate::wire::qpn::Qpn::new(2), &options);
        let sge = [Sge { address: 0, len: MESSAGE_MAX, lkey: 0 }];
        let write = SendRequest::new(1, SendOperation::Write(Remote::default()), Data::Sges(&sge));
        qp.sq.post(&write, true, MESSAGE_MAX, 8).unwrap();
        qp.requester.start(Psn::new(5));
        qp.sq.at_mut(0).psn = Psn::new(5);
        (qp.state, qp.requester.started) = (QpState::Rts, 1);
        qp
    }

    #[test]
    fn longest_message_is_acknowledged_from_its_first_to_its_last_packet() {
        let mut tables = Tables::for_tests();
        let mut qp = longest(&mut tables);
        let end = Psn::new(5).plus(1 << 23);
        for done in [64, 1 << 22, (1 << 23) - 64] {
            (qp.requester.next, qp.requester.sent) = (Psn::new(5).plus(done), Psn::new(5).plus(done));
            qp.requester.wqe = 0;
            qp.acknowledge(&mut tables, 0, Psn::new(5).plus(done - 1));
            assert_eq!((qp.requester.unacknowledged, qp.sq.head), (Psn::new(5).plus(done), 0));
        }
        (qp.requester.next, qp.requester.sent, qp.requester.wqe) = (end, end, 1);
        qp.acknowledge(&mut tables, 0, end.plus(0xff_ffff));
        let done = tables.cqs.get_mut(qp.send_cq).unwrap().pop().unwrap();
        assert_eq!((done.status, qp.requester.unacknowledged), (Status::Success, end));
    }
}
