//! A queue pair: its state, its two queues, and the machines on them.
//!
//! ```text
//!  post_send ─▶ send queue ─▶ requester ─▶ request packets        answers ─▶ completer ─▶ completions
//!  request packets ─▶ responder ─▶ memory, receive queue, completions ─▶ answers
//! ```

pub(super) mod attributes;
mod completer;
pub(super) mod congestion;
mod requester;
mod responder;
mod responses;
mod send_queue;
mod unreliable;

pub use attributes::{ModifyError, QpAttributes, QpState};

use self::attributes::Settings;
use self::congestion::{Notifier, Pacer};
use self::requester::Requester;
use self::responder::Responder;
use self::responses::Answers;
use self::send_queue::SendQueue;
use super::counters::QpCounters;
use super::events::Event;
use super::handle::{CqHandle, PdHandle, QpHandle, SrqHandle};
use super::path::Template;
use super::receive_queue::ReceiveQueue;
use super::tables::Tables;
use super::timers::NEVER;
use super::work::{CompletionKind, MESSAGE_MAX, PostError, SendOperation, SendRequest, Sge, Status, WorkCompletion};
use crate::wire::bth::{Bth, BthFields};
use crate::wire::icrc::Network;
use crate::wire::opcode::{Opcode, Operation, Transport};
use crate::wire::packet::Message;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpOptions {
    /// The service. By default none: say which.
    pub transport: Transport,
    /// The protection domain of its memory. By default none: say which.
    pub pd: PdHandle,
    /// Where its sends complete. By default none: say which.
    pub send_cq: CqHandle,
    /// Where its receives complete. By default none: say which.
    pub recv_cq: CqHandle,
    /// Requests that its send queue takes. By default none: say how many.
    pub send_depth: u32,
    /// Receives that its receive queue takes. By default none: say how many.
    pub recv_depth: u32,
    /// Where its receives come from, instead of a queue of its own; of the same protection domain.
    /// By default none: say whether.
    pub srq: Option<SrqHandle>,
    /// Each send has a completion, whatever its request says. By default none: say whether.
    pub signals_all: bool,
}

/// With thousands of queue pairs each message waits for the lines of its own, so the fields stand
/// in the order of their use: a packet needs six of the thirteen lines of a slot, at either end. A
/// line begins where it says so; `lines` below checks it.
#[repr(C)]
pub(super) struct Qp {
    handle: QpHandle,
    qpn: Qpn,
    state: QpState,
    /// It stands in the queue of those that have a packet to send.
    pub(super) is_queued: bool,
    /// A part of a READ was answered: a request comes before the next.
    has_answered: bool,
    /// The pacer has a rate, so that it is to be asked.
    is_paced: bool,
    /// A notification of congestion is due.
    owes_cnp: bool,
    transport: Transport,
    signals_all: bool,
    /// Receives come from the shared queue at the place `rq.srq`.
    has_srq: bool,
    settings: Settings,
    /// Its first request begins the lines 1 and 2.
    sq: SendQueue,
    // Not for each packet.
    pacer: Pacer,
    /// But for its last two numbers, which begin line 7.
    pub(super) counters: QpCounters,
    /// The headers to the peer, from RTR on.
    template: Option<Template>,
    /// When its timer fires, which may be early.
    pub(super) timer_at: u64,
    send_cq: CqHandle,
    pd: PdHandle,
    /// Its ring of requests that are answered by data begins line 9.
    answers: Answers,
    responder: Responder,
    /// Line 10.
    requester: Requester,
    /// Line 11.
    recv_cq: CqHandle,
    rq: ReceiveQueue,
    notifier: Notifier,
}

/// Lines of a queue pair's slot, by what comes next.
pub(super) mod lines {
    use core::mem::{offset_of, size_of};

    use super::super::handle::SLOT_HEADER;
    use super::Qp;
    use crate::roce::counters::QpCounters;
    use crate::roce::qp::responses::Answers;
    use crate::roce::qp::send_queue::SendQueue;

    /// A request is posted or sent, or its answer comes.
    pub(in crate::roce) const REQUEST: [usize; 6] = [0, 1, 2, 7, 8, 10];
    /// A request of the peer comes.
    pub(in crate::roce) const ANSWER: [usize; 6] = [0, 7, 8, 9, 10, 11];

    const fn line(offset: usize) -> usize {
        let offset = SLOT_HEADER + offset;
        assert!(offset.is_multiple_of(64), "in the middle of a line");
        offset / 64
    }

    const _: () = assert!(line(offset_of!(Qp, sq) + SendQueue::FIRST_AT) == 1);
    const _: () = assert!(line(offset_of!(Qp, counters) + offset_of!(QpCounters, packets_rx)) == 7);
    const _: () = assert!(line(offset_of!(Qp, answers) + Answers::RESOURCES_AT) == 9);
    const _: () = assert!(line(offset_of!(Qp, requester)) == 10);
    const _: () = assert!(line(offset_of!(Qp, recv_cq)) == 11);
    const _: () = assert!((SLOT_HEADER + size_of::<Qp>()).div_ceil(64) == 13);
}

impl Qp {
    pub(super) fn new(handle: QpHandle, qpn: Qpn, options: &QpOptions) -> Self {
        Self {
            handle,
            qpn,
            state: QpState::Reset,
            is_queued: false,
            has_answered: false,
            is_paced: false,
            owes_cnp: false,
            transport: options.transport,
            signals_all: options.signals_all,
            has_srq: options.srq.is_some(),
            settings: Settings::default(),
            sq: SendQueue::new(options.send_depth),
            pacer: Pacer::default(),
            counters: QpCounters::default(),
            template: None,
            timer_at: NEVER,
            send_cq: options.send_cq,
            pd: options.pd,
            answers: Answers::default(),
            responder: Responder::default(),
            requester: Requester::default(),
            recv_cq: options.recv_cq,
            rq: match options.srq {
                Some(srq) => ReceiveQueue::of_shared(srq.idx()),
                None => ReceiveQueue::new(options.recv_depth),
            },
            notifier: Notifier::default(),
        }
    }

    /// Its place in the table.
    #[inline]
    pub(super) const fn idx(&self) -> u32 {
        self.handle.idx()
    }

    #[inline]
    pub(super) const fn qpn(&self) -> Qpn {
        self.qpn
    }

    #[inline]
    pub(super) const fn state(&self) -> QpState {
        self.state
    }

    #[inline]
    pub(super) const fn transport(&self) -> Transport {
        self.transport
    }

    #[inline]
    pub(super) const fn pd(&self) -> PdHandle {
        self.pd
    }

    /// Where its sends and its receives complete.
    pub(super) const fn cqs(&self) -> [CqHandle; 2] {
        [self.send_cq, self.recv_cq]
    }

    /// Where its receives come from, instead of a queue of its own. It lives longer than this.
    #[inline]
    pub(super) fn srq(&self, tables: &Tables) -> Option<SrqHandle> {
        if self.has_srq { tables.srqs.handle_at(self.rq.srq) } else { None }
    }

    #[inline]
    pub(super) const fn pkey(&self) -> u16 {
        self.settings.pkey
    }

    /// What it was made of.
    pub(super) fn options(&self, tables: &Tables) -> QpOptions {
        QpOptions {
            transport: self.transport,
            pd: self.pd,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            send_depth: self.sq.depth,
            recv_depth: self.rq.depth,
            srq: self.srq(tables),
            signals_all: self.signals_all,
        }
    }

    /// Requests in its send queue and in its receive queue.
    pub(super) const fn lens(&self) -> [usize; 2] {
        [self.sq.tail.wrapping_sub(self.sq.head) as usize, self.rq.len() as usize]
    }

    /// The headers of its path; `None` of one of datagrams, or without a peer.
    pub(super) fn template_mut(&mut self) -> Option<&mut Template> {
        self.template.as_mut()
    }

    #[inline]
    pub(super) fn is_of_peer(&self, network: Network<'_>) -> bool {
        let is_peer = |template: &Template| template.is_of_peer(network);
        self.transport == Transport::Ud || self.template.as_ref().is_some_and(is_peer)
    }

    /// Takes a request for the send queue.
    #[inline]
    pub(super) fn post_send(&mut self, tables: &mut Tables, request: &SendRequest<'_>) -> Result<(), PostError> {
        let is_datagram = self.transport == Transport::Ud;
        if is_datagram || request.destination.is_some() {
            self.check_datagram(tables, request)?;
        }
        if self.transport != Transport::Rc && matches!(request.operation, SendOperation::SendInvalidate(_)) {
            return Err(PostError::Operation);
        }
        match self.state {
            QpState::Rts | QpState::Sqd if request.operation.needs_response() && self.settings.max_rd_atomic == 0 => {
                Err(PostError::Operation)
            }
            QpState::Rts | QpState::Sqd => {
                let len_max = if is_datagram {
                    1 << self.settings.mtu_shift
                } else if request.operation.needs_response() {
                    self.read_len_max(tables)
                } else {
                    MESSAGE_MAX
                };
                let is_signaled = request.signaled || self.signals_all;
                self.reset_if_empty();
                self.sq.post(request, is_signaled, len_max, self.settings.mtu_shift.into())
            }
            QpState::Err | QpState::Sqe if self.sq.flushed >= self.sq.depth => Err(PostError::QueueFull),
            QpState::Err | QpState::Sqe => {
                self.flush_send(tables, request.wr_id, request.operation.kind());
                Ok(())
            }
            _ => Err(PostError::State),
        }
    }

    /// Begins at the first place of the send queue again, where nothing is in it.
    #[inline]
    fn reset_if_empty(&mut self) {
        if self.sq.is_empty() {
            self.sq.clear();
            self.requester.reset();
        }
    }

    /// The longest READ: each of its answers takes a sequence number, behind those of the window's
    /// packets, and fewer than 2²³ numbers in a row can be compared.
    #[inline]
    fn read_len_max(&self, tables: &Tables) -> u32 {
        let packets = (1 << 23) - 1 - u64::from(tables.unacknowledged_packets);
        (packets << self.settings.mtu_shift).min(MESSAGE_MAX.into()) as u32
    }

    /// Takes a receive.
    #[inline]
    pub(super) fn post_recv(&mut self, tables: &mut Tables, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        match self.state {
            _ if self.has_srq => Err(PostError::Operation),
            QpState::Reset => Err(PostError::State),
            QpState::Err if self.rq.flushed >= self.rq.depth => Err(PostError::QueueFull),
            QpState::Err => {
                self.flush_receive(tables, wr_id);
                Ok(())
            }
            _ => self.rq.post(wr_id, sges),
        }
    }

    /// Takes a packet of the peer.
    #[inline]
    pub(super) fn receive(
        &mut self,
        tables: &mut Tables,
        now: u64,
        network: Network<'_>,
        bth: &Bth,
        message: &Message<'_>,
    ) {
        self.counters.packets_rx += 1;
        self.note_mark(now, network);
        match self.transport {
            Transport::Rc if message.operation.is_response() => self.take_response(tables, now, bth.psn(), message),
            Transport::Rc => self.take_request(tables, bth, message),
            Transport::Uc => self.take_unreliable(tables, bth, message),
            Transport::Ud => self.take_datagram(tables, network, bth, message),
        }
    }

    /// True if a packet can be sent now.
    #[inline]
    pub(super) fn is_due(&self, tables: &Tables) -> bool {
        self.owes_cnp || self.has_answer() || self.can_request(tables)
    }

    /// Writes the next packet into the frame, a notification of congestion first; `None` if there
    /// is none.
    #[inline]
    pub(super) fn transmit(&mut self, tables: &mut Tables, now: u64, frame: &mut [u8]) -> Option<usize> {
        let len = if self.owes_cnp { self.send_cnp(frame) } else { self.send_message(tables, now, frame) };
        self.counters.packets_tx += u64::from(len.is_some());
        len
    }

    /// Answers go first. Requests take turns with the data of READs, so that a peer which never
    /// stops reading does not stop them.
    #[inline]
    fn send_message(&mut self, tables: &mut Tables, now: u64, frame: &mut [u8]) -> Option<usize> {
        if !core::mem::take(&mut self.has_answered) && self.has_answer() {
            return self.send_answer(tables, now, frame);
        }
        let Some(len) = self.send_request(tables, now, frame) else { return self.send_answer(tables, now, frame) };
        self.pace(tables, now, len);
        Some(len)
    }

    /// Fails of our own fault, or because the user says so: all that is queued is flushed.
    pub(super) fn enter_error(&mut self, tables: &mut Tables) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.answers = Answers::default();
        self.flush_sends(tables);
        while let Some(wr_id) = self.rq.pop() {
            self.flush_receive(tables, wr_id);
        }
        if self.has_srq {
            tables.events.push(Event::LastWqeReached(self.handle));
        }
    }

    fn flush_sends(&mut self, tables: &mut Tables) {
        self.requester.stop(self.sq.tail);
        while !self.sq.is_empty() {
            let wqe = self.sq.at(self.sq.head);
            let (wr_id, kind) = (wqe.wr_id, wqe.operation.kind());
            self.sq.head = self.sq.head.wrapping_add(1);
            self.flush_send(tables, wr_id, kind);
        }
    }

    fn flush_send(&mut self, tables: &mut Tables, wr_id: u64, kind: CompletionKind) {
        self.sq.flushed = self.sq.flushed.saturating_add(1);
        self.complete(tables, self.send_cq, wr_id, kind, Status::Flushed);
    }

    fn flush_receive(&mut self, tables: &mut Tables, wr_id: u64) {
        self.rq.flushed = self.rq.flushed.saturating_add(1);
        self.complete(tables, self.recv_cq, wr_id, CompletionKind::Receive, Status::Flushed);
    }

    /// The completion of a request that was flushed is polled: its place is free.
    pub(super) fn note_polled(&mut self, kind: CompletionKind) {
        let count = if kind.is_receive() { &mut self.rq.flushed } else { &mut self.sq.flushed };
        *count = count.saturating_sub(1);
    }

    /// True if there is a receive for a message: the first of the queue, or one that is taken from
    /// the shared queue now.
    #[inline]
    fn has_receive(&mut self, tables: &mut Tables) -> bool {
        self.rq.first().is_some() || self.take_shared(tables)
    }

    fn take_shared(&mut self, tables: &mut Tables) -> bool {
        let Some(handle) = self.srq(tables) else { return false };
        let Some((receive, is_limit)) = tables.srqs.get_mut(handle).and_then(|srq| srq.take()) else { return false };
        if is_limit {
            tables.events.push(Event::SrqLimitReached(handle));
        }
        self.rq.put(receive);
        true
    }

    /// Puts the receive of a message that was dropped back to the front of the shared queue: this
    /// queue pair may never get another message. Where the shared queue is full, it waits here.
    #[cold]
    pub(super) fn return_shared(&mut self, tables: &mut Tables) {
        let (Some(handle), Some(receive)) = (self.srq(tables), self.rq.first().copied()) else { return };
        if tables.srqs.get_mut(handle).is_some_and(|srq| srq.queue.put_back(receive)) {
            self.rq.pop();
        }
    }

    /// Gives the receive that a message has begun with back to the shared queue, for good. Where
    /// that is full again, the receive is flushed: none may vanish.
    pub(super) fn leave_shared(&mut self, tables: &mut Tables) {
        self.return_shared(tables);
        if self.has_srq
            && let Some(wr_id) = self.rq.pop()
        {
            self.flush_receive(tables, wr_id);
        }
    }

    /// Begins anew: nothing is left of what was queued or under way.
    fn reset(&mut self, tables: &mut Tables) {
        self.leave_shared(tables);
        self.state = QpState::Reset;
        self.settings = Settings::default();
        self.template = None;
        self.sq.clear();
        while self.rq.pop().is_some() {}
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.answers = Answers::default();
        (self.notifier, self.pacer) = (Notifier::default(), Pacer::default());
        (self.owes_cnp, self.is_paced) = (false, false);
    }

    /// Completes a request that has nothing but its status to say.
    fn complete(&mut self, tables: &mut Tables, cq: CqHandle, wr_id: u64, kind: CompletionKind, status: Status) {
        let completion = WorkCompletion {
            wr_id,
            status,
            kind,
            byte_len: 0,
            qpn: self.qpn,
            imm: None,
            invalidated: None,
            source: None,
        };
        self.push_completion(tables, cq, completion, status != Status::Success);
    }

    /// Puts a completion into its queue; a queue that overruns takes the queue pair with it.
    #[inline]
    fn push_completion(&mut self, tables: &mut Tables, cq: CqHandle, completion: WorkCompletion, is_solicited: bool) {
        if tables.complete(cq, completion, is_solicited) {
            return;
        }
        if self.state != QpState::Err {
            tables.events.push(Event::QpFatal(self.handle));
            self.enter_error(tables);
        }
    }

    /// A header of the peer's queue pair.
    #[inline]
    fn bth(&self, operation: Operation, psn: Psn, payload_len: u32) -> BthFields {
        BthFields {
            opcode: Opcode::new(self.transport, operation),
            solicited: false,
            pad: super::builder::pad(payload_len),
            pkey: self.settings.pkey,
            destination: self.settings.destination,
            ack_request: false,
            psn,
        }
    }
}
