//! The requester: sends the packets of the send queue, and sends them again from memory
//! (InfiniBand 9.7.3).
//!
//! Sequence numbers say where it is: up to `unacknowledged` all is done, `next` is sent next, and
//! `sent` is behind all that were ever sent. To go back is to set `next` and the place in the
//! queue that belongs to it.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::attributes::{QpState, Settings};
use super::send_queue::{Bytes, SendQueue, SendWqe};
use super::{Qp, Status};
use crate::roce::builder::Builder;
use crate::roce::gather::ProtectionError;
use crate::roce::keys::WindowError;
use crate::roce::tables::Tables;
use crate::roce::timers::NEVER;
use crate::roce::work::SendOperation;
use crate::wire::bth::Bth;
use crate::wire::extended::{AtomicEth, Reth};
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;

/// Packets after which an acknowledgment is asked for within a message: half of the packets that
/// may be under way by default.
const ACK_REQUEST_AFTER: u8 = 64;

pub(crate) struct Requester {
    /// The oldest packet that is not acknowledged.
    pub(super) unacknowledged: Psn,
    /// The packet that is sent next.
    pub(super) next: Psn,
    /// Behind the last packet that was sent.
    pub(super) sent: Psn,
    /// Behind the last packet since it went back that the peer is to acknowledge: for one before it
    /// an answer is awaited.
    asked: Psn,
    /// The request that is sent next, as a position of the queue.
    pub(super) wqe: u32,
    /// Bytes of it that were sent.
    pub(super) offset: u32,
    /// Behind the last request of which a packet was sent.
    pub(super) started: u32,
    /// READs and atomic operations before `wqe` that are not answered.
    pub(super) reads: u8,
    packets_since_ack_request: u8,
    pub(super) retries_left: u8,
    pub(super) rnr_retries_left: u8,
    /// No packet is sent before the deadline: the peer had no receive.
    pub(super) waits_for_receive: bool,
    /// No frame could leave when the deadline was set.
    pub(super) waits_for_room: bool,
    /// It went back, and nothing was acknowledged since.
    pub(super) has_gone_back: bool,
    /// When to look again, if nothing comes.
    pub(super) deadline: u64,
    /// Messages that were started.
    messages: u32,
    /// The last message that the peer has a receive for, as far as it says.
    pub(super) credit_limit: Option<u32>,
    /// The request at this position fails, once those before it are complete.
    pub(super) fault: Option<(u32, Status)>,
}

impl Default for Requester {
    fn default() -> Self {
        Self {
            unacknowledged: Psn::default(),
            next: Psn::default(),
            sent: Psn::default(),
            asked: Psn::default(),
            wqe: 0,
            offset: 0,
            started: 0,
            reads: 0,
            packets_since_ack_request: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            waits_for_receive: false,
            waits_for_room: false,
            has_gone_back: false,
            deadline: NEVER,
            messages: 0,
            credit_limit: None,
            fault: None,
        }
    }
}

impl Requester {
    /// Begins at a sequence number.
    pub(super) fn start(&mut self, psn: Psn) {
        (self.unacknowledged, self.next, self.sent, self.asked) = (psn, psn, psn, psn);
    }

    /// The queue has begun at its first place again, and nothing is in it.
    #[inline]
    pub(super) fn reset(&mut self) {
        debug_assert!(self.wqe == self.started && self.offset == 0 && self.fault.is_none(), "something is under way");
        (self.wqe, self.started) = (0, 0);
    }

    /// All retries are there again.
    pub(super) fn refill(&mut self, settings: &Settings) {
        self.retries_left = settings.retry_cnt;
        self.rnr_retries_left = settings.rnr_retry;
    }

    /// Sends nothing any more, and waits for nothing: all requests before `tail` are flushed, and
    /// none is under way, so that whoever completes requests right now finds no more.
    pub(super) fn stop(&mut self, tail: u32) {
        (self.wqe, self.offset, self.started) = (tail, 0, tail);
        (self.waits_for_receive, self.waits_for_room) = (false, false);
        self.deadline = NEVER;
        self.fault = None;
    }

    /// True if nothing is under way, nor half sent.
    pub(super) fn drains(&self, sq: &SendQueue) -> bool {
        sq.head == self.started && self.offset == 0
    }

    /// True if the peer owes an answer. A message of which no packet asks for one yet may have to
    /// wait for its turn longer than an answer takes.
    #[inline]
    pub(super) fn awaits_answer(&self) -> bool {
        self.asked.since(self.unacknowledged) > 0
    }

    /// The sequence number of the next packet, and whether it was sent before.
    fn is_retransmit(&self) -> bool {
        self.next.since(self.sent) < 0
    }
}

/// A packet that is to be sent.
struct Request {
    /// The first packet of its message, or of a READ that is asked again for its rest.
    is_first: bool,
    is_last: bool,
    psn: Psn,
    /// Bytes of the message before it.
    offset: u32,
    /// Bytes of the message in it.
    len: u32,
    asks_for_ack: bool,
}

impl Qp {
    /// True if the requester can send a packet.
    #[inline]
    pub(super) fn can_request(&self, tables: &Tables) -> bool {
        let requester = &self.requester;
        let is_faulty = requester.fault.is_some_and(|(position, _)| position == requester.wqe);
        if requester.wqe == self.sq.tail || requester.waits_for_receive || is_faulty || self.waits_for_pace() {
            return false;
        }
        let goes_on = requester.offset > 0 || requester.wqe != requester.started;
        match self.state {
            QpState::Rts => {}
            QpState::Sqd if goes_on => {}
            _ => return false,
        }
        if requester.next.since(requester.unacknowledged).cast_unsigned() >= tables.unacknowledged_packets {
            return false;
        }
        let wqe = self.sq.at(requester.wqe);
        if requester.offset > 0 && !wqe.operation.needs_response() {
            return true;
        }
        let reads_max = if wqe.has_fence { 1 } else { self.settings.max_rd_atomic };
        let waits_for_reads = (wqe.has_fence || wqe.operation.needs_response()) && requester.reads >= reads_max;
        !waits_for_reads && self.has_credit(wqe)
    }

    /// True while requests wait of which not each packet has left since the requester last went
    /// back.
    pub(crate) const fn has_unsent_requests(&self) -> bool {
        self.requester.wqe != self.sq.tail
    }

    /// True if the peer has a receive for the message, does not say, or nothing else is under way:
    /// then one message asks again.
    #[inline]
    fn has_credit(&self, wqe: &SendWqe) -> bool {
        let requester = &self.requester;
        let Some(limit) = requester.credit_limit else { return true };
        if !wqe.operation.takes_receive() || requester.next == requester.unacknowledged {
            return true;
        }
        let ssn = if requester.wqe == requester.started { requester.messages.wrapping_add(1) } else { wqe.ssn };
        Psn::new(limit).since(Psn::new(ssn)) >= 0
    }

    /// Writes the next packet of the send queue.
    pub(super) fn send_request(&mut self, tables: &mut Tables, now: u64, frame: &mut [u8]) -> Option<usize> {
        if !self.can_request(tables) {
            return None;
        }
        let is_new = self.requester.wqe == self.requester.started;
        if is_new {
            self.start_message();
        }
        if self.sq.at(self.requester.wqe).packets == 0 {
            self.execute_local(tables, is_new);
            return None;
        }
        let request = self.next_packet(tables);
        match self.build(tables, &request, frame) {
            Ok(len) => {
                self.advance(now, &request);
                if self.transport != Transport::Rc {
                    // No answer will say that it has arrived: what is sent is done.
                    self.requester.unacknowledged = self.requester.next;
                    self.complete_acknowledged(tables);
                    self.check_drained(tables);
                }
                Some(len)
            }
            Err(ProtectionError) => {
                self.requester.fault = Some((self.requester.wqe, Status::LocalProtection));
                self.complete_acknowledged(tables);
                None
            }
        }
    }

    /// Does what a request says of a memory window, once: behind a retry it stands in the way
    /// again.
    #[cold]
    fn execute_local(&mut self, tables: &mut Tables, is_new: bool) {
        let regions = &mut tables.regions;
        let done = match self.sq.at(self.requester.wqe).operation {
            SendOperation::BindWindow(with) if is_new => regions.bind(self.handle, self.pd, &with),
            SendOperation::Invalidate(key) if is_new => regions.invalidate(key, self.handle),
            _ => Ok(()),
        };
        match done {
            Ok(()) => self.requester.wqe = self.requester.wqe.wrapping_add(1),
            Err(WindowError) => {
                // It is not begun, so that no acknowledgment completes it.
                self.requester.started = self.requester.wqe;
                self.requester.fault = Some((self.requester.wqe, Status::MwBind));
            }
        }
        self.complete_acknowledged(tables);
        self.check_drained(tables);
    }

    /// Gives the next message its numbers.
    fn start_message(&mut self) {
        let requester = &mut self.requester;
        let wqe = self.sq.at_mut(requester.wqe);
        // The peer counts messages, for its credits.
        if !wqe.operation.is_local() {
            requester.messages = requester.messages.wrapping_add(1);
        }
        (wqe.psn, wqe.ssn) = (requester.next, requester.messages);
        requester.started = requester.wqe.wrapping_add(1);
    }

    /// What the next packet has in it.
    #[inline]
    fn next_packet(&self, tables: &Tables) -> Request {
        let requester = &self.requester;
        let wqe = self.sq.at(requester.wqe);
        let (offset, psn) = (requester.offset, requester.next);
        if wqe.operation.needs_response() {
            return Request { is_first: true, is_last: true, psn, offset, len: wqe.len - offset, asks_for_ack: true };
        }
        let len = (wqe.len - offset).min(1 << self.settings.mtu_shift);
        let is_last = offset + len == wqe.len;
        let under_way = psn.since(requester.unacknowledged).cast_unsigned() + 1;
        let asks_for_ack = is_last
            || requester.packets_since_ack_request >= ACK_REQUEST_AFTER
            || under_way >= tables.unacknowledged_packets;
        Request { is_first: offset == 0, is_last, psn, offset, len, asks_for_ack }
    }

    /// Writes the packet; its bytes come from memory, whether for the first time or not.
    #[inline]
    fn build(&self, tables: &Tables, request: &Request, frame: &mut [u8]) -> Result<usize, ProtectionError> {
        let wqe = self.sq.at(self.requester.wqe);
        let destination = wqe.destination();
        let template = match destination {
            Some(destination) => tables.ahs.get(destination.ah).map(|ah| &ah.template),
            None => self.template.as_ref(),
        };
        let template = template.ok_or(ProtectionError)?;
        let payload_len = if wqe.operation.needs_response() { 0 } else { request.len };
        let operation = wqe.operation.packet(request.is_first, request.is_last);
        let mut bth = self.bth(operation, request.psn, payload_len);
        bth.ack_request = request.asks_for_ack && self.transport == Transport::Rc;
        bth.solicited = wqe.is_solicited && request.is_last;
        if let Some(destination) = destination {
            bth.destination = destination.qpn;
        }
        let mut builder = Builder::new(frame, template, &Bth::new(&bth));
        if let Some(destination) = destination {
            builder.push(&self.deth(destination.qkey));
        }
        match wqe.operation {
            SendOperation::CompareSwap { remote, compare, swap } => {
                builder.push(&AtomicEth::new(remote.address, remote.rkey, swap, compare));
            }
            SendOperation::FetchAdd { remote, add } => {
                builder.push(&AtomicEth::new(remote.address, remote.rkey, add, 0));
            }
            SendOperation::Write(remote) | SendOperation::WriteImm(remote, _) | SendOperation::Read(remote)
                if request.is_first =>
            {
                let address = remote.address.wrapping_add(u64::from(request.offset));
                builder.push(&Reth::new(address, remote.rkey, wqe.len - request.offset));
            }
            _ => {}
        }
        if let SendOperation::SendInvalidate(key) = wqe.operation
            && request.is_last
        {
            builder.push(&U32::new(key));
        }
        if let Some(imm) = wqe.operation.imm().filter(|_| request.is_last) {
            builder.push(imm.as_bytes());
        }
        let payload = builder.payload(payload_len as usize);
        match wqe.bytes() {
            Bytes::Sges(sges) => tables.regions.gather(self.pd, sges, request.offset, payload)?,
            Bytes::Inline(bytes) => payload.copy_from_slice(&bytes[request.offset as usize..][..payload.len()]),
        }
        Ok(builder.finish(template))
    }

    /// Goes on behind the packet.
    #[inline]
    fn advance(&mut self, now: u64, request: &Request) {
        let is_retransmit = self.requester.is_retransmit();
        self.counters.retransmits += u64::from(is_retransmit);
        let (wqe, requester) = (self.sq.at(self.requester.wqe), &mut self.requester);
        let needs_response = wqe.operation.needs_response();
        requester.next = if needs_response { wqe.psn.plus(wqe.packets) } else { request.psn.plus(1) };
        if requester.next.since(requester.sent) > 0 {
            requester.sent = requester.next;
        }
        requester.reads += u8::from(needs_response);
        if request.asks_for_ack {
            (requester.packets_since_ack_request, requester.asked) = (0, requester.next);
        } else {
            requester.packets_since_ack_request += 1;
        }
        if request.is_last {
            requester.wqe = requester.wqe.wrapping_add(1);
            requester.offset = 0;
        } else {
            requester.offset += request.len;
        }
        // At a slow pace the time to an acknowledgment begins with the last packet, of which the
        // window bounds the number.
        if requester.deadline == NEVER || self.is_paced {
            self.restart_timer(now);
        }
    }

    /// Waits the whole time to an acknowledgment, if one is awaited.
    #[inline]
    pub(super) fn restart_timer(&mut self, now: u64) {
        let timeout = self.settings.timeout_ns().filter(|_| self.requester.awaits_answer());
        self.requester.deadline = timeout.map_or(NEVER, |timeout| now.saturating_add(timeout));
        self.requester.waits_for_room = false;
    }

    /// Has a packet to send, for which there is no room: waits for that as long as for an
    /// acknowledgment, unless it waits for something else already.
    #[cold]
    pub(in crate::roce) fn wait_for_room(&mut self, tables: &Tables, now: u64) {
        if self.requester.deadline != NEVER || !self.can_request(tables) {
            return;
        }
        if let Some(timeout) = self.settings.timeout_ns() {
            (self.requester.deadline, self.requester.waits_for_room) = (now.saturating_add(timeout), true);
        }
    }

    /// Sends again from a packet on. No answer is awaited before that is sent.
    pub(super) fn go_back(&mut self, to: Psn) {
        let shift = u32::from(self.settings.mtu_shift);
        let requester = &mut self.requester;
        (requester.next, requester.asked, requester.deadline) = (to, to, NEVER);
        requester.waits_for_room = false;
        (requester.reads, requester.offset) = (0, 0);
        // What could not be sent is tried again.
        requester.fault = None;
        // The first packet asks for an acknowledgment: where many are lost, that of a long
        // message's last packet may come back in none of all retries, and progress renews them.
        requester.packets_since_ack_request = ACK_REQUEST_AFTER;
        requester.wqe = self.sq.head;
        while requester.wqe != requester.started {
            let wqe = self.sq.at(requester.wqe);
            let packets = to.since(wqe.psn).cast_unsigned();
            if packets < wqe.packets {
                requester.offset = packets << shift;
                return;
            }
            requester.reads += u8::from(wqe.operation.needs_response());
            requester.wqe = requester.wqe.wrapping_add(1);
        }
    }
}
