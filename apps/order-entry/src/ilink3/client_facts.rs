//! What received messages change of a client: its state, the numbers of both ends, what is missing.

use super::client_event::{ClientEvent, Missing};
use super::{
    EstablishmentAck, EstablishmentReject, Frame, IlinkError, NegotiationReject, NegotiationResponse, NotApplied,
    Retransmission, RetransmitReject, Sequence, Terminate,
};
use crate::session::{Fate, Resend};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Negotiating,
    Negotiated,
    Establishing,
    Established,
    Terminating,
}

impl State {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Negotiating => "negotiating",
            Self::Negotiated => "negotiated",
            Self::Establishing => "establishing",
            Self::Established => "established",
            Self::Terminating => "terminating",
        }
    }
}

/// What received messages change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) state: State,
    pub(super) uuid: u64,
    /// When the open request was made, on the clock of the machine and of the wall.
    pub(super) asked_ns: u64,
    pub(super) asked_at_ns: u64,
    /// Our next number, and what it was when the connection was established.
    pub(super) next: u32,
    pub(super) next_at_login: u32,
    /// The venue's next number.
    pub(super) expected: u32,
    /// The request for messages again that is open, and the session that it is about.
    pub(super) open_request: Option<(Missing, u64)>,
    pub(super) not_applied: Option<Missing>,
    /// The venue spoke of something else after its acknowledgment, so that it missed nothing but
    /// what it told.
    pub(super) is_gap_told: bool,
}

/// Where a client's messages have their number, and the venue's.
pub(super) const CLIENT_NUMBER_AT: usize = 17;
pub(super) const VENUE_NUMBER_AT: usize = 0;

/// The four bytes at `at`, a number.
pub(super) fn number_at(frame: &Frame<'_>, at: usize) -> Result<u32, IlinkError> {
    let short = IlinkError::Length { template: frame.template, expected: at + 4, found: frame.block.len() };
    let bytes = frame.block.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or(short)?;
    Ok(u32::from_le_bytes(*bytes))
}

impl Facts {
    #[inline]
    pub(super) fn take<'p>(&mut self, frame: Frame<'p>) -> Result<ClientEvent<'p>, IlinkError> {
        let template = frame.template;
        let is_live = matches!(self.state, State::Established | State::Terminating);
        match template {
            // Of the venue's application messages all have number and identifier in front.
            519.. if is_live => self.message(frame),
            Sequence::KIND if is_live => self.sequence(frame.view()?),
            NotApplied::KIND if is_live => {
                let message: &NotApplied = frame.view()?;
                self.same_uuid(message.uuid.get())?;
                let told = Missing { from: message.from_seq.get(), count: message.count.get() };
                self.not_applied = Some(told);
                Ok(ClientEvent::NotApplied(told))
            }
            Terminate::KIND => {
                let message: &Terminate = frame.view()?;
                self.same_uuid(message.uuid.get())?;
                Ok(ClientEvent::Terminated { error: message.error.get(), reason: message.reason })
            }
            _ => self.rare(frame),
        }
    }

    /// Answers to requests of the session.
    #[cold]
    fn rare<'p>(&mut self, frame: Frame<'p>) -> Result<ClientEvent<'p>, IlinkError> {
        match (frame.template, self.state) {
            (NegotiationResponse::KIND, State::Negotiating) => {
                let message: &NegotiationResponse = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                self.state = State::Negotiated;
                Ok(ClientEvent::Negotiated { key_expires_days: message.key_expires_days.get() })
            }
            (NegotiationReject::KIND, State::Negotiating) => {
                let message: &NegotiationReject = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                self.state = State::Closed;
                Ok(ClientEvent::Refused { error: message.error.get(), reason: message.reason, next: None })
            }
            (EstablishmentAck::KIND, State::Establishing) => self.established(&frame),
            (EstablishmentReject::KIND, State::Establishing) => {
                let message: &EstablishmentReject = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                self.state = State::Closed;
                let next = Some(message.next_seq.get());
                Ok(ClientEvent::Refused { error: message.error.get(), reason: message.reason, next })
            }
            (Retransmission::KIND, State::Established) => {
                let message: &Retransmission = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                let follows = Missing { from: message.from_seq.get(), count: message.count.get().into() };
                if !self.open_request.is_some_and(|(asked, _)| asked == follows) {
                    return Err(IlinkError::Echo { template: frame.template });
                }
                Ok(ClientEvent::Retransmission(follows))
            }
            (RetransmitReject::KIND, State::Established) => {
                let message: &RetransmitReject = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                self.open_request = None;
                Ok(ClientEvent::RetransmitRejected { error: message.error.get(), reason: message.reason })
            }
            (template, state) => Err(IlinkError::Unexpected { template, state: state.text() }),
        }
    }

    fn established<'p>(&mut self, frame: &Frame<'p>) -> Result<ClientEvent<'p>, IlinkError> {
        let message: &EstablishmentAck = frame.view()?;
        self.echo(frame, message.uuid.get(), message.at_ns.get())?;
        let (uuid, last) = (message.previous_uuid.get(), message.previous_seq.get());
        let missed = (uuid == self.uuid).then(|| self.missing_before(last.saturating_add(1))).flatten();
        if let Some(Missing { from, count }) = missed {
            self.expected = from.saturating_add(count);
        }
        self.state = State::Established;
        self.next_at_login = self.next;
        Ok(ClientEvent::Established { missed, previous: (uuid, last) })
    }

    fn sequence<'p>(&mut self, message: &Sequence) -> Result<ClientEvent<'p>, IlinkError> {
        self.same_uuid(message.uuid.get())?;
        let next = message.next_seq.get();
        if next < self.expected {
            return Err(IlinkError::LowNumber { expected: self.expected, found: next });
        }
        let missing = self.missing_before(next);
        self.expected = next;
        self.is_gap_told = true;
        Ok(ClientEvent::KeepAlive { missing, is_lapsed: message.lapsed == 1 })
    }

    #[inline]
    fn message<'p>(&mut self, frame: Frame<'p>) -> Result<ClientEvent<'p>, IlinkError> {
        let number = number_at(&frame, VENUE_NUMBER_AT)?;
        let short = IlinkError::Length { template: frame.template, expected: 12, found: frame.block.len() };
        let uuid = frame.block.get(4..).and_then(|rest| rest.first_chunk::<8>()).ok_or(short)?;
        let uuid = u64::from_le_bytes(*uuid);
        self.is_gap_told = true;
        if let Some((asked, of)) = self.open_request
            && asked.has(number)
            && (uuid == of || uuid == self.uuid)
            && (number < self.expected || of != self.uuid)
        {
            // The last one ends the request.
            if number - asked.from + 1 == asked.count {
                self.open_request = None;
            }
            return Ok(ClientEvent::Message { number, frame, missing: None, is_retransmitted: true });
        }
        self.same_uuid(uuid)?;
        if number < self.expected {
            return Err(IlinkError::LowNumber { expected: self.expected, found: number });
        }
        let missing = self.missing_before(number);
        self.expected = number.checked_add(1).ok_or(IlinkError::NumbersUsedUp)?;
        Ok(ClientEvent::Message { number, frame, missing, is_retransmitted: false })
    }

    fn missing_before(&self, number: u32) -> Option<Missing> {
        let count = number.saturating_sub(self.expected);
        (count > 0).then_some(Missing { from: self.expected, count })
    }

    fn same_uuid(&self, found: u64) -> Result<(), IlinkError> {
        if found == self.uuid { Ok(()) } else { Err(IlinkError::Uuid { expected: self.uuid, found }) }
    }

    fn echo(&self, frame: &Frame<'_>, uuid: u64, at_ns: u64) -> Result<(), IlinkError> {
        if uuid == self.uuid && at_ns == self.asked_at_ns {
            Ok(())
        } else {
            Err(IlinkError::Echo { template: frame.template })
        }
    }

    /// What became of our message `number`.
    pub(super) fn fate(&self, number: u64) -> Fate {
        if !matches!(self.state, State::Established | State::Terminating) {
            return Fate::Unknown { resend: None };
        }
        if let Ok(number) = u32::try_from(number)
            && self.not_applied.is_some_and(|missing| missing.has(number))
        {
            return Fate::NotProcessed { resend: Resend::SameNumber };
        }
        if number < u64::from(self.next_at_login) && self.is_gap_told {
            return Fate::Processed;
        }
        Fate::Unknown { resend: None }
    }
}
