//! What received messages change of a server: its phase, the numbers of both ends, what is missing.

use super::client_state::{CLIENT_NUMBER_AT, number_at};
use super::ranges::Ranges;
use super::server_event::ServerEvent;
use super::{
    Establish, EstablishmentAck, Frame, IlinkError, Missing, Negotiate, NegotiationResponse, RETRANSMIT_MAX,
    RetransmitRequest, Sequence, Terminate,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Closed,
    Connected,
    Negotiating,
    Establishing,
    Established,
    Terminating,
}

impl Phase {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Connected => "not established",
            Self::Negotiating => "negotiating",
            Self::Establishing => "establishing",
            Self::Established => "established",
            Self::Terminating => "terminating",
        }
    }
}

/// What received messages change.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionState {
    pub(super) phase: Phase,
    pub(super) uuid: u64,
    pub(super) previous: (u64, u32),
    /// The identifier, time and next number of the open request.
    pub(super) asked: (u64, u64, u32),
    /// What answered the negotiation and the establishment of this connection.
    pub(super) response: Option<NegotiationResponse>,
    pub(super) acknowledgment: Option<EstablishmentAck>,
    /// One of them is to be sent again: its template.
    pub(super) owes_answer: Option<u16>,
    pub(super) keep_alive_ms: u16,
    /// Our next number, and the client's.
    pub(super) next: u32,
    pub(super) expected: u32,
    pub(super) not_applied: Ranges,
    /// Not applied, and not told on this connection yet.
    pub(super) owed: Ranges,
    /// The session that messages are sent again of.
    pub(super) again_uuid: u64,
    /// When we ended the connection.
    pub(super) terminating_ns: u64,
}

impl SessionState {
    #[inline]
    pub(super) fn take<'p>(&mut self, frame: Frame<'p>) -> Result<ServerEvent<'p>, IlinkError> {
        let template = frame.template;
        let is_live = matches!(self.phase, Phase::Established | Phase::Terminating);
        match template {
            514.. if is_live => self.message(frame),
            Sequence::KIND if is_live => {
                let message: &Sequence = frame.view()?;
                self.same_uuid(message.uuid.get())?;
                let next = message.next_seq.get();
                if next < self.expected {
                    return Err(IlinkError::LowNextNumber { expected: self.expected, found: next });
                }
                // The client skips what it does not send again.
                self.expected = next;
                (self.not_applied, self.owed) = (Ranges::EMPTY, Ranges::EMPTY);
                Ok(ServerEvent::KeepAlive { is_lapsed: message.lapsed == 1 })
            }
            Terminate::KIND => {
                let message: &Terminate = frame.view()?;
                self.same_uuid(message.uuid.get())?;
                Ok(ServerEvent::Terminated { error: message.error.get() })
            }
            Negotiate::KIND | Establish::KIND if self.is_again(&frame)? => {
                Ok(ServerEvent::KeepAlive { is_lapsed: false })
            }
            Negotiate::KIND if self.phase == Phase::Connected => {
                let message: &Negotiate = frame.view()?;
                self.asked = (message.uuid.get(), message.at_ns.get(), 0);
                self.phase = Phase::Negotiating;
                Ok(ServerEvent::Negotiate(message))
            }
            Establish::KIND if self.phase == Phase::Connected => {
                let message: &Establish = frame.view()?;
                self.asked = (message.uuid.get(), message.at_ns.get(), message.next_seq.get());
                self.keep_alive_ms = message.keep_alive_ms.get();
                self.phase = Phase::Establishing;
                Ok(ServerEvent::Establish(message))
            }
            RetransmitRequest::KIND if self.phase == Phase::Established => {
                let message: &RetransmitRequest = frame.view()?;
                self.same_uuid(message.uuid.get())?;
                if !(1..=RETRANSMIT_MAX).contains(&message.count.get()) {
                    return Err(IlinkError::Retransmit);
                }
                Ok(ServerEvent::RetransmitRequest(message))
            }
            _ => Err(IlinkError::Unexpected { template, state: self.phase.text() }),
        }
    }

    /// Whether this is the login that was answered, once more: its client had no answer in time,
    /// and gets the same again. One that waits for its answer gets that.
    fn is_again(&mut self, frame: &Frame<'_>) -> Result<bool, IlinkError> {
        let (uuid, at_ns, answer) = if frame.template == Negotiate::KIND {
            let message: &Negotiate = frame.view()?;
            let answer = self.response.as_ref().map(|answer| (answer.uuid, answer.at_ns));
            (message.uuid, message.at_ns, answer.map(|of| (NegotiationResponse::KIND, of)))
        } else {
            let message: &Establish = frame.view()?;
            let answer = self.acknowledgment.as_ref().map(|answer| (answer.uuid, answer.at_ns));
            (message.uuid, message.at_ns, answer.map(|of| (EstablishmentAck::KIND, of)))
        };
        let waits = match self.phase {
            Phase::Negotiating => frame.template == Negotiate::KIND,
            Phase::Establishing => frame.template == Establish::KIND,
            _ => false,
        };
        if waits {
            return Ok((self.asked.0, self.asked.1) == (uuid.get(), at_ns.get()));
        }
        let answer = answer.filter(|&(_, of)| of == (uuid, at_ns)).map(|(template, _)| template);
        self.owes_answer = answer.or(self.owes_answer);
        Ok(answer.is_some())
    }

    #[inline]
    fn message<'p>(&mut self, frame: Frame<'p>) -> Result<ServerEvent<'p>, IlinkError> {
        let number = number_at(&frame, CLIENT_NUMBER_AT)?;
        if number < self.expected {
            return if self.not_applied.has(number) {
                let one = Missing { from: number, count: 1 };
                self.not_applied.remove(one);
                self.owed.remove(one);
                Ok(ServerEvent::Message { number, frame, missing: None, is_sent_again: true })
            } else {
                Err(IlinkError::LowNumber { expected: self.expected, found: number })
            };
        }
        let missing = self.miss_until(number);
        self.expected = number.checked_add(1).ok_or(IlinkError::NumbersUsedUp)?;
        Ok(ServerEvent::Message { number, frame, missing, is_sent_again: false })
    }

    /// All messages before `number` that have not come are not applied.
    pub(super) fn miss_until(&mut self, number: u32) -> Option<Missing> {
        let count = number.saturating_sub(self.expected);
        if count == 0 {
            return None;
        }
        let missing = Missing { from: self.expected, count };
        self.not_applied.insert(missing);
        self.owed.insert(missing);
        self.expected = number;
        Some(missing)
    }

    fn same_uuid(&self, found: u64) -> Result<(), IlinkError> {
        if found == self.uuid { Ok(()) } else { Err(IlinkError::Uuid { expected: self.uuid, found }) }
    }
}
