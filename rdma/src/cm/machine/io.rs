//! What the connections of a manager share: messages to be sent, events, the next timer.

use std::collections::VecDeque;

use super::config::{CmConfig, CmCounters};
use super::event::CmEvent;
use super::slots::CmId;
use crate::cm::mad::MAD_LEN;
use crate::cm::message::{About, Rej, RejFields, emit};
use crate::cm::reason::RejectReason;
use crate::roce::Addresses;

/// No time at all.
pub(super) const NEVER: u64 = u64::MAX;
/// Messages that wait for their way; each is repeated anyway.
const OUTGOING_MAX: usize = 256;
/// Of those, answers to messages without a connection. Whoever forges a REQ, a DREQ or a SIDR_REQ
/// names an address to which there may be no way, and must not take the places of connections.
const REFUSALS_MAX: usize = 64;
/// How long a message waits for its way.
const WAY_NS: u64 = 3_000_000_000;
/// Events of a connection until it is destroyed: request or response, the end, one between them.
const EVENTS_PER_CONNECTION: usize = 5;
/// The longest time that a peer's code stands for, 69 s: it says up to two hours.
pub(super) const CODE_MAX: u8 = 24;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It was sent.
    Sent,
    /// The way is not known yet.
    Wait,
    /// There is no way.
    Never,
}

struct Outgoing {
    addresses: Addresses,
    expires: u64,
    is_refusal: bool,
    mad: [u8; MAD_LEN],
}

pub(super) struct Io {
    pub(super) config: CmConfig,
    pub(super) counters: CmCounters,
    pub(super) next_at: u64,
    outgoing: VecDeque<Outgoing>,
    /// Of those, messages of no connection.
    refusals: usize,
    events: VecDeque<CmEvent>,
    transaction: u64,
}

/// The nanoseconds of a code.
pub(super) const fn nanos(code: u8) -> u64 {
    4096 << if code > CODE_MAX { CODE_MAX } else { code }
}

impl Io {
    pub(super) fn new(config: &CmConfig) -> Self {
        Self {
            config: *config,
            counters: CmCounters::default(),
            next_at: NEVER,
            outgoing: VecDeque::with_capacity(OUTGOING_MAX),
            refusals: 0,
            events: VecDeque::with_capacity(EVENTS_PER_CONNECTION * config.connections as usize),
            // The upper half is the sender's, as of all management datagrams.
            transaction: config.seed << 32,
        }
    }

    /// The number of a new exchange.
    pub(super) const fn next_transaction(&mut self) -> u64 {
        self.transaction = self.transaction.wrapping_add(1);
        self.transaction
    }

    /// Sends a message of a connection.
    pub(super) fn send(&mut self, now: u64, addresses: Addresses, mad: [u8; MAD_LEN]) {
        self.push(Outgoing { addresses, expires: now.saturating_add(WAY_NS), is_refusal: false, mad });
    }

    /// Answers a message that belongs to no connection, which anybody may send from an address that
    /// never answers: only so many of these wait for their way, so that those of connections have
    /// one.
    pub(super) fn answer(&mut self, now: u64, addresses: Addresses, mad: [u8; MAD_LEN]) {
        self.push(Outgoing { addresses, expires: now.saturating_add(WAY_NS), is_refusal: true, mad });
    }

    fn push(&mut self, message: Outgoing) {
        let is_full = message.is_refusal && self.refusals == REFUSALS_MAX;
        if is_full || self.outgoing.len() == OUTGOING_MAX {
            self.counters.overflows += 1;
            return;
        }
        self.refusals += usize::from(message.is_refusal);
        self.outgoing.push_back(message);
    }

    /// Refuses a message that belongs to no connection: `local_comm_id` is 0.
    pub(super) fn reject(&mut self, now: u64, addresses: Addresses, fields: &RejFields) {
        // A timeout names the adapter, so that a receiver without our name of it finds its own.
        let guid = self.config.ca_guid.to_be_bytes();
        let info: &[u8] = if fields.reason == RejectReason::Timeout { &guid } else { &[] };
        self.answer(now, addresses, emit(&Rej::new(fields, info, &[])));
    }

    /// Refuses a REQ without asking our program.
    pub(super) fn refuse(&mut self, now: u64, addresses: Addresses, req: (u64, u32), reason: RejectReason) {
        self.counters.rejected += 1;
        let (transaction, remote_comm_id) = req;
        let fields = RejFields { transaction, local_comm_id: 0, remote_comm_id, about: About::Req, reason };
        self.reject(now, addresses, &fields);
    }

    pub(super) fn tell(&mut self, event: CmEvent) {
        self.events.push_back(event);
    }

    pub(super) fn next_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Forgets the events of a connection that is destroyed.
    pub(super) fn forget(&mut self, id: CmId) {
        self.events.retain(|event| event.id() != id);
    }

    pub(super) fn arm(&mut self, at: u64) {
        self.next_at = self.next_at.min(at);
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Hands out each message that waits, once.
    pub(super) fn transmit(&mut self, now: u64, mut deliver: impl FnMut(Addresses, &[u8; MAD_LEN]) -> Delivery) {
        for _ in 0..self.outgoing.len() {
            let Some(message) = self.outgoing.pop_front() else { return };
            self.refusals -= usize::from(message.is_refusal);
            match deliver(message.addresses, &message.mad) {
                Delivery::Sent => self.counters.sent += 1,
                Delivery::Wait if now < message.expires => self.push(message),
                Delivery::Wait | Delivery::Never => self.counters.unreachable += 1,
            }
        }
    }
}

impl CmEvent {
    /// The connection that it is about.
    pub const fn id(&self) -> CmId {
        match self {
            Self::ConnectRequest(request) => request.id,
            Self::ConnectResponse(id)
            | Self::Established(id)
            | Self::Rejected(id, _)
            | Self::Unreachable(id)
            | Self::ConnectError(id, _)
            | Self::Disconnected(id)
            | Self::TimewaitExit(id)
            | Self::Resolved(id, ..)
            | Self::NotResolved(id, _) => *id,
        }
    }
}
