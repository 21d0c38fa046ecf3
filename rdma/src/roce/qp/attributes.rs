//! Attributes and states, as `ibv_modify_qp.3` demands them: an attribute that is missing or too
//! much is an error, and nothing changes.

use core::fmt;

use super::Qp;
use crate::roce::config::Mtu;
use crate::roce::events::Event;
use crate::roce::keys::Access;
use crate::roce::path::{Path, Template};
use crate::roce::tables::Tables;
use crate::wire::bth::Bth;
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QpState {
    /// New.
    #[default]
    Reset,
    /// Takes receives.
    Init,
    /// Answers the peer.
    Rtr,
    /// Sends too.
    Rts,
    /// Begins no further sends.
    Sqd,
    /// A send failed, of a service without acknowledgments; receives go on.
    Sqe,
    /// Failed: all requests are flushed.
    Err,
}

/// What `modify_qp` sets: what is `Some` is in its mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttributes {
    /// The next state.
    pub state: Option<QpState>,
    /// The place of the partition in the port's table: 0, where the default partition is.
    pub pkey_index: Option<u16>,
    /// The port: 1.
    pub port: Option<u8>,
    /// The key that datagrams must have.
    pub qkey: Option<u32>,
    /// What the peer may do.
    pub access: Option<Access>,
    /// The way to the peer.
    pub path: Option<Path>,
    /// The largest payload of a packet.
    pub mtu: Option<Mtu>,
    /// The peer's queue pair.
    pub destination: Option<Qpn>,
    /// The number of the first packet that arrives.
    pub rq_psn: Option<Psn>,
    /// READs and atomic operations that the peer may have under way. In SQD a smaller number than
    /// before changes nothing, because the peer may ask for its answers again.
    pub max_dest_rd_atomic: Option<u8>,
    /// The code of the time that the peer waits when it finds no receive, below 32.
    pub min_rnr_timer: Option<u8>,
    /// The number of the first packet that is sent.
    pub sq_psn: Option<Psn>,
    /// READs and atomic operations that may be under way at once; not 0 while some are queued.
    pub max_rd_atomic: Option<u8>,
    /// Times that a packet is sent again, below 8.
    pub retry_cnt: Option<u8>,
    /// Times that a message is sent again to a peer without a receive, below 8; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// The time to an acknowledgment, 4.096 µs · 2ⁿ, below 32; 0 is for ever.
    pub timeout: Option<u8>,
}

/// Why attributes were not taken. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModifyError {
    /// No such queue pair.
    UnknownQp,
    /// No step leads from the queue pair's state to this one.
    Transition(QpState, QpState),
    /// The step needs this attribute.
    Missing(&'static str),
    /// The step does not take this attribute.
    Extra(&'static str),
    /// The attribute has a value that the device, or nobody, has.
    Value(&'static str),
    /// `ibv_modify_qp` failed with this errno.
    Call(i32),
}

/// The attributes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) pkey: u16,
    pub(crate) qkey: u32,
    pub(crate) access: Access,
    pub(crate) mtu_shift: u8,
    pub(crate) destination: Qpn,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) timeout: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pkey: Bth::DEFAULT_PKEY,
            qkey: 0,
            access: Access::LOCAL_READ,
            mtu_shift: Mtu::B256.shift() as u8,
            destination: Qpn::default(),
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            max_rd_atomic: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            timeout: 0,
        }
    }
}

impl Settings {
    /// The time to an acknowledgment; `None` for ever.
    #[inline]
    pub(crate) const fn timeout_ns(&self) -> Option<u64> {
        match self.timeout {
            0 => None,
            exponent => Some(4096 << exponent),
        }
    }
}

/// The most that the device has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) mtu: Mtu,
    pub(crate) dest_rd_atomics: u8,
    pub(crate) rd_atomics: u8,
}

/// Attributes by their names in `ibv_qp_attr_mask`, a bit each.
const NAMES: [&str; 15] = [
    "PKEY_INDEX",
    "PORT",
    "QKEY",
    "ACCESS_FLAGS",
    "AV",
    "PATH_MTU",
    "DEST_QPN",
    "RQ_PSN",
    "MAX_DEST_RD_ATOMIC",
    "MIN_RNR_TIMER",
    "SQ_PSN",
    "MAX_QP_RD_ATOMIC",
    "RETRY_CNT",
    "RNR_RETRY",
    "TIMEOUT",
];
const PKEY: u16 = 1 << 0;
const PORT: u16 = 1 << 1;
const QKEY: u16 = 1 << 2;
const ACCESS: u16 = 1 << 3;
const AV: u16 = 1 << 4;
const MTU: u16 = 1 << 5;
const DEST_QPN: u16 = 1 << 6;
const RQ_PSN: u16 = 1 << 7;
const MAX_DEST_RD: u16 = 1 << 8;
const MIN_RNR: u16 = 1 << 9;
const SQ_PSN: u16 = 1 << 10;
const MAX_RD: u16 = 1 << 11;
const RETRY: u16 = 1 << 12;
const RNR_RETRY: u16 = 1 << 13;
const TIMEOUT: u16 = 1 << 14;

impl QpAttributes {
    /// The attributes for a step to a state, and no other yet.
    pub fn to(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// The step from RESET to INIT of a connection, whose peer may do this.
    pub fn init(access: Access) -> Self {
        Self { pkey_index: Some(0), port: Some(1), access: Some(access), ..Self::to(QpState::Init) }
    }

    /// All attributes of a connection, for [`steps`](Self::steps): those of `ibv_rc_pingpong`, with
    /// one READ at once, packet numbers from 0 on and no right of the peer. A peer without a
    /// receive is asked again after 0.64 ms, and one without an answer after 67 ms. Seven times, so
    /// that a peer that is gone is a failure after half a second.
    pub fn connection(path: Path, destination: Qpn) -> Self {
        Self {
            state: None,
            pkey_index: Some(0),
            port: Some(1),
            qkey: None,
            access: Some(Access::LOCAL_READ),
            path: Some(path),
            mtu: Some(Mtu::B1024),
            destination: Some(destination),
            rq_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            sq_psn: Some(Psn::new(0)),
            max_rd_atomic: Some(1),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            timeout: Some(14),
        }
    }

    /// The same of a queue pair of datagrams, which have this key.
    pub fn datagrams(qkey: u32) -> Self {
        let (pkey_index, port, sq_psn) = (Some(0), Some(1), Some(Psn::new(0)));
        Self { pkey_index, port, qkey: Some(qkey), sq_psn, ..Self::default() }
    }

    /// The steps from RESET by INIT and RTR to RTS of a queue pair of this service, each with those
    /// of these attributes that it needs.
    pub fn steps(&self, transport: Transport) -> [Self; 3] {
        use QpState::{Init, Reset, Rtr, Rts};
        [(Reset, Init), (Init, Rtr), (Rtr, Rts)].map(|(from, to)| {
            let (needed, _) = demands(transport, from, to).unwrap_or_default();
            Self { state: Some(to), ..self.of_mask(needed) }
        })
    }

    /// Those of these attributes that a queue pair of this service and in this state has been
    /// given, with the state. One in ERR may not have been given all of them: they are a new one's.
    pub(crate) fn known_in(&self, transport: Transport, state: QpState) -> Self {
        let steps = match state {
            QpState::Reset => 0,
            QpState::Init => 1,
            QpState::Rtr => 2,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => 3,
        };
        let all = [(QpState::Reset, QpState::Init), (QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts)];
        let given = all[..steps].iter().filter_map(|(from, to)| demands(transport, *from, *to));
        Self { state: Some(state), ..self.of_mask(given.fold(0, |mask, (needed, _)| mask | needed)) }
    }

    /// The attributes of a mask alone.
    fn of_mask(&self, mask: u16) -> Self {
        fn keep<T>(mask: u16, bit: u16, value: Option<T>) -> Option<T> {
            value.filter(|_| mask & bit != 0)
        }
        Self {
            state: None,
            pkey_index: keep(mask, PKEY, self.pkey_index),
            port: keep(mask, PORT, self.port),
            qkey: keep(mask, QKEY, self.qkey),
            access: keep(mask, ACCESS, self.access),
            path: keep(mask, AV, self.path),
            mtu: keep(mask, MTU, self.mtu),
            destination: keep(mask, DEST_QPN, self.destination),
            rq_psn: keep(mask, RQ_PSN, self.rq_psn),
            max_dest_rd_atomic: keep(mask, MAX_DEST_RD, self.max_dest_rd_atomic),
            min_rnr_timer: keep(mask, MIN_RNR, self.min_rnr_timer),
            sq_psn: keep(mask, SQ_PSN, self.sq_psn),
            max_rd_atomic: keep(mask, MAX_RD, self.max_rd_atomic),
            retry_cnt: keep(mask, RETRY, self.retry_cnt),
            rnr_retry: keep(mask, RNR_RETRY, self.rnr_retry),
            timeout: keep(mask, TIMEOUT, self.timeout),
        }
    }

    fn mask(&self) -> u16 {
        let there = [
            self.pkey_index.is_some(),
            self.port.is_some(),
            self.qkey.is_some(),
            self.access.is_some(),
            self.path.is_some(),
            self.mtu.is_some(),
            self.destination.is_some(),
            self.rq_psn.is_some(),
            self.max_dest_rd_atomic.is_some(),
            self.min_rnr_timer.is_some(),
            self.sq_psn.is_some(),
            self.max_rd_atomic.is_some(),
            self.retry_cnt.is_some(),
            self.rnr_retry.is_some(),
            self.timeout.is_some(),
        ];
        (0..).zip(there).fold(0, |mask, (bit, is_there)| mask | u16::from(is_there) << bit)
    }

    /// The next state, if there is such a step with these attributes.
    pub(crate) fn check_step(&self, transport: Transport, from: QpState) -> Result<QpState, ModifyError> {
        let to = self.state.unwrap_or(from);
        let (needed, taken) = demands(transport, from, to).ok_or(ModifyError::Transition(from, to))?;
        let mask = self.mask();
        if let Some(name) = first_name(needed & !mask) {
            return Err(ModifyError::Missing(name));
        }
        match first_name(mask & !(needed | taken)) {
            Some(name) => Err(ModifyError::Extra(name)),
            None => Ok(to),
        }
    }

    /// The device has these values.
    pub(crate) fn check_values(&self, limits: Limits) -> Result<(), ModifyError> {
        let too_much = |value: Option<u8>, max: u8| value.is_some_and(|value| value > max);
        let wrong = [
            (self.pkey_index.is_some_and(|idx| idx != 0), "PKEY_INDEX"),
            (self.port.is_some_and(|port| port != 1), "PORT"),
            (self.mtu.is_some_and(|mtu| mtu > limits.mtu), "PATH_MTU"),
            (too_much(self.max_dest_rd_atomic, limits.dest_rd_atomics), "MAX_DEST_RD_ATOMIC"),
            (too_much(self.max_rd_atomic, limits.rd_atomics), "MAX_QP_RD_ATOMIC"),
            (too_much(self.min_rnr_timer, 31), "MIN_RNR_TIMER"),
            (too_much(self.retry_cnt, 7), "RETRY_CNT"),
            (too_much(self.rnr_retry, 7), "RNR_RETRY"),
            (too_much(self.timeout, 31), "TIMEOUT"),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, name)) => Err(ModifyError::Value(name)),
            None => Ok(()),
        }
    }
}

/// What a step needs, and what it takes beside that; `None` if there is no such step.
const fn demands(transport: Transport, from: QpState, to: QpState) -> Option<(u16, u16)> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    use Transport::{Rc, Uc, Ud};
    Some(match (from, to, transport) {
        (_, Reset | Err, _) => (0, 0),
        (Reset, Init, Ud) => (PKEY | PORT | QKEY, 0),
        (Reset, Init, _) => (PKEY | PORT | ACCESS, 0),
        (Init, Init, Ud) => (0, PKEY | PORT | QKEY),
        (Init, Init, _) => (0, PKEY | PORT | ACCESS),
        (Init, Rtr, Ud) => (0, PKEY | QKEY),
        (Init, Rtr, Uc) => (AV | MTU | DEST_QPN | RQ_PSN, ACCESS | PKEY),
        (Init, Rtr, Rc) => (AV | MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD | MIN_RNR, ACCESS | PKEY),
        (Rtr, Rts, Ud) => (SQ_PSN, QKEY),
        (Rtr, Rts, Uc) => (SQ_PSN, ACCESS),
        (Rtr, Rts, Rc) => (SQ_PSN | MAX_RD | RETRY | RNR_RETRY | TIMEOUT, ACCESS | MIN_RNR),
        (Rts, Sqd, _) => (0, 0),
        (Rts | Sqd, Rts, Rc) => (0, ACCESS | MIN_RNR),
        (Rts | Sqd | Sqe, Rts, Uc) => (0, ACCESS),
        (Rts | Sqd | Sqe, Rts, Ud) => (0, QKEY),
        (Sqd, Sqd, Ud) => (0, PKEY | QKEY),
        (Sqd, Sqd, Uc) => (0, AV | ACCESS | PKEY),
        (Sqd, Sqd, Rc) => (0, PORT | AV | TIMEOUT | RETRY | RNR_RETRY | MAX_RD | MAX_DEST_RD | ACCESS | PKEY | MIN_RNR),
        _ => return None,
    })
}

impl Qp {
    /// Sets attributes, and goes to the next state.
    pub(crate) fn modify(
        &mut self,
        tables: &mut Tables,
        limits: Limits,
        attributes: &QpAttributes,
    ) -> Result<(), ModifyError> {
        let to = attributes.check_step(self.transport, self.state)?;
        attributes.check_values(limits)?;
        if attributes.max_rd_atomic == Some(0) && self.sq.has_response_to_come() {
            return Err(ModifyError::Value("MAX_QP_RD_ATOMIC"));
        }
        if self.transport == Transport::Ud {
            // A datagram is a packet, and has no path whose MTU could be another.
            self.settings.mtu_shift = limits.mtu.shift() as u8;
        }
        self.apply(attributes);
        self.enter(tables, to);
        Ok(())
    }

    /// The attributes that it has now: the packet numbers are those of the next packets.
    pub(crate) fn attributes(&self) -> QpAttributes {
        let settings = &self.settings;
        let all = QpAttributes {
            state: None,
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(settings.qkey),
            access: Some(settings.access.of_peer()),
            path: self.template.as_ref().map(Template::path),
            mtu: Mtu::ALL.into_iter().find(|mtu| mtu.shift() as u8 == settings.mtu_shift),
            destination: Some(settings.destination),
            rq_psn: Some(self.responder.expected),
            max_dest_rd_atomic: Some(settings.max_dest_rd_atomic),
            min_rnr_timer: Some(settings.min_rnr_timer),
            sq_psn: Some(self.requester.next),
            max_rd_atomic: Some(settings.max_rd_atomic),
            retry_cnt: Some(settings.retry_cnt),
            rnr_retry: Some(settings.rnr_retry),
            timeout: Some(settings.timeout),
        };
        all.known_in(self.transport, self.state)
    }

    fn apply(&mut self, attributes: &QpAttributes) {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        let settings = &mut self.settings;
        set(&mut settings.qkey, attributes.qkey);
        set(&mut settings.access, attributes.access);
        set(&mut settings.destination, attributes.destination);
        set(&mut settings.mtu_shift, attributes.mtu.map(|mtu| mtu.shift() as u8));
        set(&mut settings.max_dest_rd_atomic, attributes.max_dest_rd_atomic);
        set(&mut settings.min_rnr_timer, attributes.min_rnr_timer);
        set(&mut settings.max_rd_atomic, attributes.max_rd_atomic);
        set(&mut settings.retry_cnt, attributes.retry_cnt);
        set(&mut settings.rnr_retry, attributes.rnr_retry);
        set(&mut settings.timeout, attributes.timeout);
        let destination = settings.destination;
        if let Some(path) = attributes.path {
            self.template = Some(Template::new(&path, self.qpn, destination));
        }
        if attributes.max_dest_rd_atomic.is_some() {
            self.answers.grow(settings.max_dest_rd_atomic);
        }
        if let Some(psn) = attributes.rq_psn {
            self.responder.start(psn);
        }
        if let Some(psn) = attributes.sq_psn {
            self.requester.start(psn);
        }
        self.requester.refill(&self.settings);
    }

    fn enter(&mut self, tables: &mut Tables, to: QpState) {
        match to {
            QpState::Reset => self.reset(tables),
            QpState::Err => {
                self.enter_error(tables);
                // Also those that a refusal left: it was in the state ERR already.
                self.answers.clear();
            }
            QpState::Sqd if self.state != QpState::Sqd => {
                self.state = QpState::Sqd;
                self.check_drained(tables);
            }
            to => self.state = to,
        }
    }

    /// Says once that the last send is done.
    pub(super) fn check_drained(&mut self, tables: &mut Tables) {
        if self.state == QpState::Sqd && self.requester.drains(&self.sq) {
            tables.events.push(Event::SendQueueDrained(self.handle));
        }
    }
}

fn first_name(mask: u16) -> Option<&'static str> {
    NAMES.get(mask.trailing_zeros() as usize).copied()
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownQp => f.write_str("no such queue pair: it was destroyed, or belongs to another device"),
            Self::Transition(from, to) => write!(f, "no step from {from} to {to}: see ibv_modify_qp(3)"),
            Self::Missing(name) => write!(f, "the step needs the attribute {name}: see ibv_modify_qp(3)"),
            Self::Extra(name) => write!(f, "the step does not take the attribute {name}: see ibv_modify_qp(3)"),
            Self::Value(name) => write!(f, "the device does not have this value of {name}"),
            Self::Call(errno) => {
                write!(f, "ibv_modify_qp: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl core::error::Error for ModifyError {}
