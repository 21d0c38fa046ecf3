//! A connection: its state, and what each message and each timer does to it (InfiniBand 12.9).
//!
//! ```text
//!  active:  ReqSent <-> ReqWait -REP-> RepReceived -ready-> Established
//!  passive: ReqReceived -accept-> RepReady -ready-> RepSent <-> RepWait -RTU-> Established
//!  both:    Established -disconnect-> DreqSent -DREP-> TimeWait -> Idle
//!           Established -DREQ-> TimeWait
//! ```

use super::config::CmError;
use super::event::{CmEvent, ConnParam, LocalQp};
use super::io::{Io, NEVER, nanos};
use super::slots::{CmId, ListenerId};
use crate::cm::mad::MAD_LEN;
use crate::cm::message::{About, Drep, Dreq, Message, Mra, REP_DATA_LEN, Rej, RejFields, Rep, Rtu, SidrRep, emit};
use crate::cm::reason::{RejectReason, SidrStatus};
use crate::roce::{Addresses, Mtu};
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    ReqSent,
    /// The peer has said that its answer takes longer.
    ReqWait,
    RepReceived,
    ReqReceived,
    /// Accepted, and the queue pair is not ready yet.
    RepReady,
    RepSent,
    RepWait,
    Established,
    DreqSent,
    TimeWait,
    SidrSent,
    SidrReceived,
    /// It has ended, and waits to be destroyed.
    Idle,
    /// It was refused and destroyed, and answers what comes again for a while.
    Refused,
}

pub(super) struct Connection {
    pub(super) id: CmId,
    pub(super) state: State,
    /// Destroyed by our program: it is forgotten when it has ended.
    pub(super) is_orphan: bool,
    pub(super) listener: Option<ListenerId>,
    pub(super) remote_comm_id: u32,
    /// That of the REQ or SIDR_REQ, which answers have too.
    pub(super) transaction: u64,
    pub(super) service_id: u64,
    pub(super) local: LocalQp,
    pub(super) agreed: ConnParam,
    /// How long an answer of the peer takes at most.
    pub(super) response_ns: u64,
    /// Times that a message is sent again.
    pub(super) retries: u8,
    pub(super) tries: u8,
    pub(super) mras: u8,
    pub(super) deadline: u64,
    /// The message that is sent again.
    pub(super) sent: [u8; MAD_LEN],
    /// What the peer's program has said last.
    pub(super) data: [u8; REP_DATA_LEN],
    pub(super) data_len: u8,
}

impl Connection {
    pub(super) fn new(id: CmId, state: State, addresses: Addresses, local: LocalQp) -> Self {
        let agreed = ConnParam {
            transport: Transport::Rc,
            addresses,
            qpn: Qpn::new(0),
            rq_psn: local.psn,
            sq_psn: Psn::default(),
            mtu: Mtu::B256,
            max_dest_rd_atomic: local.responder_resources,
            max_rd_atomic: local.initiator_depth,
            retry_cnt: 0,
            rnr_retry: 0,
            timeout: 0,
            traffic_class: 0,
        };
        Self {
            id,
            state,
            is_orphan: false,
            listener: None,
            remote_comm_id: 0,
            transaction: 0,
            service_id: 0,
            local,
            agreed,
            response_ns: 0,
            retries: 0,
            tries: 0,
            mras: 0,
            deadline: NEVER,
            sent: [0; MAD_LEN],
            data: [0; REP_DATA_LEN],
            data_len: 0,
        }
    }

    pub(super) fn keep_data(&mut self, data: &[u8]) {
        let len = data.len().min(self.data.len());
        self.data[..len].copy_from_slice(&data[..len]);
        self.data_len = len as u8;
    }

    pub(super) fn wait_until(&mut self, io: &mut Io, at: u64) {
        self.deadline = at;
        io.arm(at);
    }

    /// Sends a message that is repeated until an answer comes.
    pub(super) fn begin(&mut self, io: &mut Io, now: u64, state: State, mad: [u8; MAD_LEN]) {
        (self.state, self.sent, self.tries, self.mras) = (state, mad, 0, 0);
        io.send(now, self.agreed.addresses, mad);
        self.wait_until(io, now.saturating_add(self.response_ns));
    }

    /// Sends the last message once more.
    pub(super) fn repeat(&self, io: &mut Io, now: u64) {
        io.send(now, self.agreed.addresses, self.sent);
    }

    fn end(&mut self, io: &mut Io, event: Option<CmEvent>) {
        (self.state, self.deadline) = (State::Idle, NEVER);
        self.tell(io, event);
    }

    /// True if the last message that it sent to who asked is a REJ.
    pub(super) fn has_refused(&self) -> bool {
        self.listener.is_some() && matches!(Message::parse(&self.sent), Ok(Message::Rej(_)))
    }

    pub(super) fn tell(&self, io: &mut Io, event: Option<CmEvent>) {
        // Nobody asks any more.
        if let Some(event) = event.filter(|_| !self.is_orphan) {
            io.tell(event);
        }
    }

    fn enter_timewait(&mut self, io: &mut Io, now: u64, event: Option<CmEvent>) {
        self.state = State::TimeWait;
        self.wait_until(io, now.saturating_add(nanos(io.config.ack_timeout)));
        self.tell(io, event);
    }

    /// A REQ that is ours already.
    pub(super) fn take_duplicate_req(&mut self, io: &mut Io, now: u64) {
        io.counters.duplicates += 1;
        match self.state {
            State::ReqReceived | State::RepReady => {
                let (local, remote) = (self.id.get(), self.remote_comm_id);
                let mra = Mra::new(self.transaction, local, remote, About::Req, io.config.service_timeout);
                io.send(now, self.agreed.addresses, emit(&mra));
            }
            State::RepSent | State::RepWait => self.repeat(io, now),
            State::DreqSent | State::TimeWait => {
                io.refuse(
                    now,
                    self.agreed.addresses,
                    (self.transaction, self.remote_comm_id),
                    RejectReason::StaleConnection,
                );
            }
            State::Idle | State::Refused if self.has_refused() => self.repeat(io, now),
            _ => {}
        }
    }

    pub(super) fn take_mra(&mut self, io: &mut Io, now: u64, mra: &Mra) {
        const MRAS_MAX: u8 = 15;
        let next = match (self.state, mra.about()) {
            (State::ReqSent | State::ReqWait, About::Req) => State::ReqWait,
            (State::RepSent | State::RepWait, About::Rep) => State::RepWait,
            _ => return io.counters.unexpected += 1,
        };
        if self.mras == MRAS_MAX {
            return io.counters.unexpected += 1;
        }
        (self.state, self.mras) = (next, self.mras + 1);
        let wait = nanos(mra.service_timeout()).saturating_add(self.response_ns);
        self.wait_until(io, now.saturating_add(wait));
    }

    pub(super) fn take_rep(&mut self, io: &mut Io, now: u64, rep: &Rep) {
        let fields = rep.fields();
        match self.state {
            State::ReqSent | State::ReqWait if fields.qpn.get() < 2 => io.counters.malformed += 1,
            State::ReqSent | State::ReqWait => {
                self.remote_comm_id = fields.local_comm_id;
                let agreed = &mut self.agreed;
                (agreed.qpn, agreed.sq_psn, agreed.rnr_retry) = (fields.qpn, fields.psn, fields.rnr_retry);
                agreed.max_rd_atomic = agreed.max_rd_atomic.min(fields.responder_resources);
                agreed.max_dest_rd_atomic = agreed.max_dest_rd_atomic.min(fields.initiator_depth);
                self.keep_data(rep.private_data());
                self.state = State::RepReceived;
                self.wait_until(io, now.saturating_add(io.config.accept_ns));
                self.tell(io, Some(CmEvent::ConnectResponse(self.id)));
            }
            _ if fields.local_comm_id != self.remote_comm_id => io.counters.unknown += 1,
            State::RepReceived => {
                io.counters.duplicates += 1;
                let (local, remote) = (self.id.get(), self.remote_comm_id);
                let mra = Mra::new(self.transaction, local, remote, About::Rep, io.config.service_timeout);
                io.send(now, self.agreed.addresses, emit(&mra));
            }
            State::Established => {
                io.counters.duplicates += 1;
                self.repeat(io, now);
            }
            _ => io.counters.duplicates += 1,
        }
    }

    pub(super) fn take_rtu(&mut self, io: &mut Io) {
        match self.state {
            State::RepSent | State::RepWait => self.establish(io),
            State::Established | State::DreqSent | State::TimeWait => io.counters.duplicates += 1,
            _ => io.counters.unexpected += 1,
        }
    }

    pub(super) fn establish(&mut self, io: &mut Io) {
        (self.state, self.deadline) = (State::Established, NEVER);
        self.tell(io, Some(CmEvent::Established(self.id)));
    }

    /// The queue pair is in RTS.
    pub(super) fn ready(&mut self, io: &mut Io, now: u64) -> Result<(), CmError> {
        match self.state {
            State::RepReceived => {
                self.sent = emit(&Rtu::new(self.transaction, self.id.get(), self.remote_comm_id));
                self.repeat(io, now);
                self.establish(io);
            }
            State::RepReady => self.begin(io, now, State::RepSent, self.sent),
            _ => return Err(CmError::State),
        }
        Ok(())
    }

    pub(super) fn take_rej(&mut self, io: &mut Io, now: u64, rej: &Rej) {
        let reason = rej.fields().reason;
        match self.state {
            State::ReqSent | State::ReqWait | State::RepReceived | State::ReqReceived => {
                // Our program may not have seen the request yet: its words stay.
                if self.state != State::ReqReceived {
                    self.keep_data(rej.private_data());
                }
                self.sent = [0; MAD_LEN];
                self.end(io, Some(CmEvent::Rejected(self.id, reason)));
            }
            State::RepReady | State::RepSent | State::RepWait => {
                self.keep_data(rej.private_data());
                self.enter_timewait(io, now, Some(CmEvent::Rejected(self.id, reason)));
            }
            // The peer has given up before our RTU arrived.
            State::Established | State::DreqSent => {
                self.enter_timewait(io, now, Some(CmEvent::Disconnected(self.id)));
            }
            _ => io.counters.unexpected += 1,
        }
    }

    /// Refuses, or takes back what was asked for; `about` is what the peer is told.
    pub(super) fn reject(&mut self, io: &mut Io, now: u64, reason: RejectReason, data: &[u8]) -> Result<(), CmError> {
        let (about, remote_comm_id) = match self.state {
            State::ReqReceived | State::RepReady => (About::Req, self.remote_comm_id),
            State::RepReceived => (About::Rep, self.remote_comm_id),
            State::ReqSent | State::ReqWait => (About::Other, 0),
            State::RepSent | State::RepWait => (About::Other, self.remote_comm_id),
            _ => return Err(CmError::State),
        };
        let (transaction, local_comm_id) = (self.transaction, self.id.get());
        let fields = RejFields { transaction, local_comm_id, remote_comm_id, about, reason };
        let guid = io.config.ca_guid.to_be_bytes();
        let info: &[u8] = if reason == RejectReason::Timeout { &guid } else { &[] };
        self.sent = emit(&Rej::new(&fields, info, data));
        self.repeat(io, now);
        (self.state, self.deadline) = (State::Idle, NEVER);
        Ok(())
    }

    pub(super) fn take_dreq(&mut self, io: &mut Io, now: u64, dreq: &Dreq) {
        if dreq.remote_qpn() != self.local.qpn || dreq.local_comm_id() != self.remote_comm_id {
            return io.counters.unknown += 1;
        }
        let drep = || emit(&Drep::new(dreq.transaction(), self.id.get(), self.remote_comm_id));
        match self.state {
            // Where it is not established here, the RTU was lost.
            State::Established | State::DreqSent | State::RepSent | State::RepWait => {
                io.send(now, self.agreed.addresses, drep());
                self.enter_timewait(io, now, Some(CmEvent::Disconnected(self.id)));
            }
            State::TimeWait | State::Idle => {
                io.counters.duplicates += 1;
                io.send(now, self.agreed.addresses, drep());
            }
            _ => io.counters.unexpected += 1,
        }
    }

    pub(super) fn take_drep(&mut self, io: &mut Io, now: u64) {
        match self.state {
            State::DreqSent => self.enter_timewait(io, now, Some(CmEvent::Disconnected(self.id))),
            State::TimeWait => io.counters.duplicates += 1,
            _ => io.counters.unexpected += 1,
        }
    }

    pub(super) fn disconnect(&mut self, io: &mut Io, now: u64) -> Result<(), CmError> {
        if !matches!(self.state, State::Established | State::RepSent | State::RepWait) {
            return Err(CmError::State);
        }
        let dreq = Dreq::new(io.next_transaction(), self.id.get(), self.remote_comm_id, self.agreed.qpn);
        self.begin(io, now, State::DreqSent, emit(&dreq));
        Ok(())
    }

    pub(super) fn take_sidr_rep(&mut self, io: &mut Io, rep: &SidrRep) {
        if self.state != State::SidrSent {
            return io.counters.duplicates += 1;
        }
        self.keep_data(rep.private_data());
        let event = match rep.status() {
            SidrStatus::Success => CmEvent::Resolved(self.id, rep.qpn(), rep.qkey()),
            status => CmEvent::NotResolved(self.id, status),
        };
        self.end(io, Some(event));
    }

    /// The deadline is reached.
    pub(super) fn on_timer(&mut self, io: &mut Io, now: u64) {
        self.deadline = NEVER;
        let is_repeated = matches!(
            self.state,
            State::ReqSent | State::ReqWait | State::RepSent | State::RepWait | State::DreqSent | State::SidrSent
        );
        if is_repeated && self.tries < self.retries {
            self.tries += 1;
            io.counters.retries += 1;
            self.repeat(io, now);
            return self.wait_until(io, now.saturating_add(self.response_ns));
        }
        match self.state {
            State::DreqSent => self.enter_timewait(io, now, Some(CmEvent::Disconnected(self.id))),
            State::TimeWait => self.end(io, Some(CmEvent::TimewaitExit(self.id))),
            State::Idle | State::Established => {}
            State::SidrSent => self.end(io, Some(CmEvent::Unreachable(self.id))),
            // Answered: its duplicates were answered too.
            State::SidrReceived | State::Refused => self.end(io, None),
            _ => {
                // No state of these refuses it.
                let _ = self.reject(io, now, RejectReason::Timeout, &[]);
                self.tell(io, Some(CmEvent::Unreachable(self.id)));
            }
        }
    }
}
