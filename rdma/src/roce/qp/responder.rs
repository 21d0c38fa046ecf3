//! The responder: executes the requests of the peer, each once and in order (InfiniBand 9.7.4).

use core::sync::atomic::Ordering;

use super::attributes::QpState;
use super::responses::{Acknowledgment, ResourceData};
use super::send_queue::packet_count;
use super::{Qp, Status, WorkCompletion};
use crate::roce::events::Event;
use crate::roce::handle::{PdHandle, QpHandle};
use crate::roce::keys::{Access, Range, WindowError};
use crate::roce::tables::Tables;
use crate::roce::work::{CompletionKind, MESSAGE_MAX};
use crate::wire::aeth::Nak;
use crate::wire::bth::Bth;
use crate::wire::extended::Deth;
use crate::wire::opcode::{Operation, Transport};
use crate::wire::packet::Message;
use crate::wire::psn::Psn;

#[derive(Default)]
pub(crate) struct Responder {
    /// The number of the next packet.
    pub(super) expected: Psn,
    /// The last packet that was done and is answered by an acknowledgment. A READ or an atomic
    /// operation is answered by data, which may be lost: Linux rxe takes an acknowledgment of its
    /// number for that, and completes it without a byte.
    last_acknowledged: Psn,
    /// Messages that are done.
    messages: u32,
    pub(super) incoming: Incoming,
    /// A NAK or an RNR NAK was sent, and until the expected packet comes there is no other.
    is_silent: bool,
    /// An expected packet came since RTR.
    is_established: bool,
    /// Over an unreliable connection: the message lacks a part, and is dropped to its end.
    pub(super) is_dropping: bool,
    /// So many READs are behind `last_acknowledged` that it might compare as a number to come. The
    /// peer waits for none of before.
    is_stale: bool,
}

/// The message that has begun.
#[derive(Clone, Copy, Default)]
pub(super) enum Incoming {
    #[default]
    None,
    Send {
        /// Bytes that have come.
        len: u32,
    },
    Write(Write),
}

#[derive(Clone, Copy)]
pub(super) struct Write {
    rkey: u32,
    /// Where the next byte goes.
    address: u64,
    len: u32,
    /// Bytes that have not come.
    remaining: u32,
}

/// Packets of READs and atomic operations alone, behind which no acknowledgment is sent again: half
/// of the numbers that can be compared.
const STALE_AFTER: u32 = 1 << 22;

/// Why a request is not executed.
pub(super) enum Refusal {
    /// There is no receive for it.
    NotReady,
    /// By the peer's fault, or by ours; the receive in use, if any, ends with this status.
    Nak(Nak, Status),
}

const INVALID: Refusal = Refusal::Nak(Nak::InvalidRequest, Status::LocalQpOperation);
const NO_ACCESS: Refusal = Refusal::Nak(Nak::RemoteAccess, Status::LocalAccess);

impl Responder {
    /// Begins at a sequence number.
    pub(super) fn start(&mut self, psn: Psn) {
        *self = Self { expected: psn, last_acknowledged: psn.plus(0xff_ffff), ..Self::default() };
    }

    /// Goes on behind a request whose answer by data has `count` packets.
    fn pass(&mut self, count: u32) {
        self.is_stale |= self.expected.behind(self.last_acknowledged) + count > STALE_AFTER;
        self.expected = self.expected.plus(count);
    }

    /// What acknowledges anew, if anything does.
    fn acknowledged(&self) -> Option<Psn> {
        (!self.is_stale).then_some(self.last_acknowledged)
    }

    /// Messages that are done.
    pub(super) const fn messages(&self) -> u32 {
        self.messages
    }
}

impl Qp {
    /// True once an expected packet came, since RTR.
    pub(in crate::roce) const fn is_established(&self) -> bool {
        self.responder.is_established
    }

    /// Takes a request.
    pub(super) fn take_request(&mut self, tables: &mut Tables, bth: &Bth, message: &Message<'_>) {
        let psn = bth.psn();
        let ahead = psn.since(self.responder.expected);
        if ahead != 0 {
            return if ahead > 0 { self.miss_a_packet(psn) } else { self.take_duplicate(psn, message) };
        }
        self.note_first(tables);
        self.responder.is_silent = false;
        self.answers.withdraw_nak(psn, self.responder.acknowledged());
        match self.execute(tables, bth, message) {
            Ok(()) => {}
            Err(Refusal::NotReady) => {
                self.counters.rnr_naks_tx += 1;
                self.responder.is_silent = true;
                self.answers.acknowledge(psn, Acknowledgment::Rnr);
            }
            Err(Refusal::Nak(nak, status)) => {
                self.fail_receive(tables, message.operation, status);
                self.refuse(tables, psn, nak);
            }
        }
    }

    /// Says once that an expected packet came. Another one may be of a connection before, whose
    /// queue pair had this number.
    pub(super) fn note_first(&mut self, tables: &mut Tables) {
        if !self.responder.is_established {
            self.responder.is_established = true;
            tables.established += 1;
            if self.state == QpState::Rtr {
                tables.events.push(Event::CommunicationEstablished(self.handle));
            }
        }
    }

    /// A packet before this one is missing: says so once.
    fn miss_a_packet(&mut self, psn: Psn) {
        self.counters.out_of_sequence += 1;
        if !self.responder.is_silent {
            self.responder.is_silent = true;
            self.counters.naks_tx[Nak::PsnSequence as usize] += 1;
            self.answers.acknowledge(psn, Acknowledgment::Nak(Nak::PsnSequence));
        }
    }

    /// A request that was executed: it is acknowledged, or answered again if the peer has the right
    /// still, and changes nothing.
    fn take_duplicate(&mut self, psn: Psn, message: &Message<'_>) {
        self.counters.duplicates += 1;
        let access = self.settings.access;
        match message.operation {
            Operation::ReadRequest => {
                if let Some(reth) = message.reth.filter(|_| access.has(Access::REMOTE_READ)) {
                    self.answers.replay_read(psn, reth, self.settings.mtu_shift.into());
                }
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                if access.has(Access::REMOTE_ATOMIC) {
                    self.answers.replay_atomic(psn);
                }
            }
            // Also behind a NAK that was sent: where it was lost, the peer may have no room for the
            // packet that it named before the others are acknowledged.
            _ => {
                if let Some(done) = self.responder.acknowledged() {
                    self.answers.acknowledge_again(done);
                }
            }
        }
    }

    /// Executes the expected packet.
    pub(super) fn execute(&mut self, tables: &mut Tables, bth: &Bth, message: &Message<'_>) -> Result<(), Refusal> {
        let operation = message.operation;
        let continues = match self.responder.incoming {
            Incoming::None => operation.is_first(),
            Incoming::Send { .. } => {
                matches!(
                    operation,
                    Operation::SendMiddle
                        | Operation::SendLast
                        | Operation::SendLastImm
                        | Operation::SendLastInvalidate
                )
            }
            Incoming::Write(_) => {
                matches!(operation, Operation::WriteMiddle | Operation::WriteLast | Operation::WriteLastImm)
            }
        };
        if !continues {
            return Err(INVALID);
        }
        match operation {
            Operation::SendFirst
            | Operation::SendMiddle
            | Operation::SendLast
            | Operation::SendLastImm
            | Operation::SendLastInvalidate
            | Operation::SendOnly
            | Operation::SendOnlyImm
            | Operation::SendOnlyInvalidate => self.execute_send(tables, bth, message),
            Operation::WriteFirst
            | Operation::WriteMiddle
            | Operation::WriteLast
            | Operation::WriteLastImm
            | Operation::WriteOnly
            | Operation::WriteOnlyImm => self.execute_write(tables, bth, message),
            Operation::ReadRequest => self.execute_read(tables, bth, message),
            Operation::CompareSwap | Operation::FetchAdd => self.execute_atomic(tables, bth, message),
            _ => Err(INVALID),
        }
    }

    /// The packet's payload has the length that its place in the message demands.
    fn check_len(&self, message: &Message<'_>) -> Result<u32, Refusal> {
        let (len, mtu) = (message.payload.len(), 1 << self.settings.mtu_shift);
        let is_right = match (message.operation.is_first(), message.operation.is_last()) {
            (_, false) => len == mtu,
            (false, true) => (1..=mtu).contains(&len),
            (true, true) => len <= mtu,
        };
        if is_right { Ok(len as u32) } else { Err(INVALID) }
    }

    fn execute_send(&mut self, tables: &mut Tables, bth: &Bth, message: &Message<'_>) -> Result<(), Refusal> {
        let offset = if let Incoming::Send { len } = self.responder.incoming { len } else { 0 };
        if self.has_srq {
            self.has_receive(tables);
        }
        let Some(receive) = self.rq.first() else { return Err(Refusal::NotReady) };
        // What came before is not longer than the receive, and that is at most `MESSAGE_MAX`.
        let len = offset + self.check_len(message)?;
        if receive.len() < u64::from(len) {
            return Err(Refusal::Nak(Nak::InvalidRequest, Status::LocalLength));
        }
        let invalidated = message.invalidated_rkey;
        if invalidated.is_some_and(|key| !tables.regions.is_bound(key, self.handle)) {
            return Err(NO_ACCESS);
        }
        if tables.regions.scatter(self.pd, receive.sges(), offset, message.payload).is_err() {
            return Err(Refusal::Nak(Nak::RemoteOperational, Status::LocalProtection));
        }
        if let Some(key) = invalidated {
            tables.regions.invalidate(key, self.handle).map_err(|WindowError| NO_ACCESS)?;
        }
        self.accept(bth, 1);
        if message.operation.is_last() {
            self.responder.incoming = Incoming::None;
            self.responder.messages = self.responder.messages.wrapping_add(1);
            self.complete_receive(tables, CompletionKind::Receive, len, bth, message);
        } else {
            self.responder.incoming = Incoming::Send { len };
        }
        Ok(())
    }

    fn execute_write(&mut self, tables: &mut Tables, bth: &Bth, message: &Message<'_>) -> Result<(), Refusal> {
        if !self.settings.access.has(Access::REMOTE_WRITE) {
            return Err(INVALID);
        }
        let has_imm = message.operation.has_imm();
        if has_imm && !self.has_receive(tables) {
            return Err(Refusal::NotReady);
        }
        let part = self.check_len(message)?;
        let write = match (self.responder.incoming, message.reth) {
            (Incoming::Write(write), _) => write,
            (_, Some(reth)) => self.begin_write(tables, reth.rkey(), reth.address(), reth.len())?,
            _ => return Err(INVALID),
        };
        let is_last = message.operation.is_last();
        if part > write.remaining || is_last != (part == write.remaining) {
            return Err(INVALID);
        }
        if part > 0 {
            let range = Range { address: write.address, len: part };
            let place = tables.regions.resolve_remote(write.rkey, self.reach(), range, Access::REMOTE_WRITE);
            place.ok_or(NO_ACCESS)?.write(message.payload);
        }
        self.accept(bth, 1);
        if is_last {
            self.responder.incoming = Incoming::None;
            self.responder.messages = self.responder.messages.wrapping_add(1);
        } else {
            let (address, remaining) = (write.address.wrapping_add(part.into()), write.remaining - part);
            self.responder.incoming = Incoming::Write(Write { address, remaining, ..write });
        }
        if has_imm {
            self.complete_receive(tables, CompletionKind::ReceiveWriteImm, write.len, bth, message);
        }
        Ok(())
    }

    /// Checks the whole range of a WRITE before its first byte is written.
    fn begin_write(&self, tables: &Tables, rkey: u32, address: u64, len: u32) -> Result<Write, Refusal> {
        if len > MESSAGE_MAX {
            return Err(INVALID);
        }
        self.check_range(tables, rkey, Range { address, len }, Access::REMOTE_WRITE)?;
        Ok(Write { rkey, address, len, remaining: len })
    }

    /// What the peer's keys may be of: regions of the domain, and windows of this queue pair.
    #[inline]
    pub(super) const fn reach(&self) -> (QpHandle, PdHandle) {
        (self.handle, self.pd)
    }

    /// The key reaches the range; a range without a byte needs no key.
    fn check_range(&self, tables: &Tables, rkey: u32, range: Range, rights: Access) -> Result<(), Refusal> {
        if range.len > 0 && tables.regions.resolve_remote(rkey, self.reach(), range, rights).is_none() {
            return Err(NO_ACCESS);
        }
        Ok(())
    }

    fn execute_read(&mut self, tables: &mut Tables, bth: &Bth, message: &Message<'_>) -> Result<(), Refusal> {
        let Some(reth) = message.reth else { return Err(INVALID) };
        let may_read = self.settings.access.has(Access::REMOTE_READ);
        if !may_read || !self.answers.has_room() || reth.len() > MESSAGE_MAX {
            return Err(INVALID);
        }
        let (address, rkey, len) = (reth.address(), reth.rkey(), reth.len());
        self.check_range(tables, rkey, Range { address, len }, Access::REMOTE_READ)?;
        self.answer(bth, ResourceData::Read { address, rkey, len }, packet_count(len, self.settings.mtu_shift.into()));
        Ok(())
    }

    fn execute_atomic(&mut self, tables: &mut Tables, bth: &Bth, message: &Message<'_>) -> Result<(), Refusal> {
        let Some(atomic) = message.atomic else { return Err(INVALID) };
        let may_do = self.settings.access.has(Access::REMOTE_ATOMIC);
        if !may_do || !self.answers.has_room() || !atomic.address().is_multiple_of(8) {
            return Err(INVALID);
        }
        let range = Range { address: atomic.address(), len: 8 };
        let place = tables.regions.resolve_remote(atomic.rkey(), self.reach(), range, Access::REMOTE_ATOMIC);
        let Some(word) = place.ok_or(NO_ACCESS)?.word() else { return Err(INVALID) };
        let original = if message.operation == Operation::FetchAdd {
            word.fetch_add(atomic.swap_or_add(), Ordering::AcqRel)
        } else {
            let (compare, swap) = (atomic.compare(), atomic.swap_or_add());
            word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|found| found)
        };
        self.answer(bth, ResourceData::Atomic { original }, 1);
        Ok(())
    }

    /// A request that is answered by data is done; its answers take their numbers.
    fn answer(&mut self, bth: &Bth, data: ResourceData, count: u32) {
        self.responder.messages = self.responder.messages.wrapping_add(1);
        self.answers.push(data, bth.psn(), self.responder.messages, count);
        self.responder.pass(count);
    }

    /// The packet is done.
    #[inline]
    fn accept(&mut self, bth: &Bth, count: u32) {
        self.responder.expected = bth.psn().plus(count);
        (self.responder.last_acknowledged, self.responder.is_stale) = (bth.psn(), false);
        if bth.ack_request() && self.transport == Transport::Rc {
            self.answers.acknowledge_done(bth.psn());
        }
    }

    #[inline]
    pub(super) fn complete_receive(
        &mut self,
        tables: &mut Tables,
        kind: CompletionKind,
        byte_len: u32,
        bth: &Bth,
        message: &Message<'_>,
    ) {
        let Some(wr_id) = self.rq.pop() else { return };
        let (imm, source) = (message.imm, message.deth.map(Deth::source));
        let invalidated = message.invalidated_rkey;
        let completion =
            WorkCompletion { wr_id, status: Status::Success, kind, byte_len, qpn: self.qpn, imm, invalidated, source };
        self.push_completion(tables, self.recv_cq, completion, bth.is_solicited());
    }

    /// The receive that the refused message has, or would have had, ends with the status.
    pub(super) fn fail_receive(&mut self, tables: &mut Tables, operation: Operation, status: Status) {
        let is_send = matches!(self.responder.incoming, Incoming::Send { .. })
            || matches!(
                operation,
                Operation::SendFirst | Operation::SendOnly | Operation::SendOnlyImm | Operation::SendOnlyInvalidate
            );
        if (is_send || operation.has_imm())
            && let Some(wr_id) = self.rq.pop()
        {
            self.complete(tables, self.recv_cq, wr_id, CompletionKind::Receive, status);
        }
    }

    /// A request of the peer was refused for good.
    pub(super) fn fail_by_peer(&mut self, tables: &mut Tables, nak: Nak) {
        tables.events.push(match nak {
            Nak::RemoteAccess => Event::QpAccessError(self.handle),
            Nak::RemoteOperational => Event::QpFatal(self.handle),
            _ => Event::QpRequestError(self.handle),
        });
        self.enter_error(tables);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_the_last_acknowledgment_is_never_one_to_come_however_many_reads_are_behind_it() {
        for count in [1 << 16, 1 << 21, (1 << 22) - 1, 1 << 22, (1 << 23) - 1, 1 << 23] {
            let mut responder = Responder::default();
            responder.start(Psn::new(5));
            for _ in 0..600 {
                responder.pass(count);
                let is_before = |done: Psn| responder.expected.since(done) > 0;
                assert!(responder.acknowledged().is_none_or(is_before), "READs of {count} packets");
            }
        }
    }
}
