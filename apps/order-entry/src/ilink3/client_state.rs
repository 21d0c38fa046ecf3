//! What received messages change of a client: its phase, the numbers of both ends, what is missing.

use super::client_event::{ClientEvent, Missing};
use super::ranges::Ranges;
use super::{
    EstablishmentAck, EstablishmentReject, Frame, IlinkError, NegotiationReject, NegotiationResponse, NotApplied,
    Retransmission, RetransmitReject, Sequence, Terminate,
};
use crate::session::{Fate, Resend};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Closed,
    Negotiating,
    Negotiated,
    Establishing,
    Established,
    Terminating,
}

impl Phase {
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
pub(super) struct SessionState {
    pub(super) phase: Phase,
    pub(super) uuid: u64,
    /// The identifier that is being negotiated.
    pub(super) asked_uuid: u64,
    /// The session before, and the venue's next number in it.
    pub(super) before: Option<(u64, u32)>,
    /// When the open request was made, on the clock of the machine and of the wall.
    pub(super) asked_ns: u64,
    pub(super) asked_at_ns: u64,
    /// The login that is open was sent twice.
    pub(super) is_login_repeated: bool,
    /// Identifier and time of the negotiation, and of the establishment, that this connection has
    /// sent twice, and of which one answer has not come.
    pub(super) negotiated_twice: Option<(u64, u64)>,
    pub(super) established_twice: Option<(u64, u64)>,
    /// Our next number, and what it was when the connection was established.
    pub(super) next: u32,
    pub(super) next_at_login: u32,
    /// The venue's next number.
    pub(super) expected: u32,
    /// The request for messages again that is open, and the session that it is about.
    pub(super) open_request: Option<(Missing, u64)>,
    /// When the venue last did something about it, and whether it was made twice.
    pub(super) retransmit_ns: u64,
    pub(super) is_second_request: bool,
    /// Our messages that the venue has not applied; those of them that were sent again since; and
    /// those that were skipped.
    pub(super) not_applied: Ranges,
    pub(super) sent_again: Ranges,
    pub(super) skipped: Ranges,
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

impl SessionState {
    #[inline]
    pub(super) fn take<'p>(&mut self, frame: Frame<'p>) -> Result<ClientEvent<'p>, IlinkError> {
        let template = frame.template;
        let is_live = matches!(self.phase, Phase::Established | Phase::Terminating);
        match template {
            // Of the venue's application messages all have number and identifier in front.
            519.. if is_live => self.message(frame),
            Sequence::KIND if is_live => self.sequence(frame.view()?),
            NotApplied::KIND if is_live => {
                let message: &NotApplied = frame.view()?;
                self.same_uuid(message.uuid.get())?;
                let told = Missing { from: message.from_seq.get(), count: message.count.get() };
                self.not_applied.insert(told);
                self.sent_again.remove(told);
                Ok(ClientEvent::NotApplied(told))
            }
            Terminate::KIND => {
                let message: &Terminate = frame.view()?;
                self.asked_uuid(message.uuid.get())?;
                Ok(ClientEvent::Terminated { error: message.error.get(), reason: message.reason })
            }
            _ => self.rare(frame),
        }
    }

    /// Answers to requests of the session.
    #[cold]
    fn rare<'p>(&mut self, frame: Frame<'p>) -> Result<ClientEvent<'p>, IlinkError> {
        match (frame.template, self.phase) {
            (NegotiationResponse::KIND, Phase::Negotiating) => {
                let message: &NegotiationResponse = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                self.negotiated();
                Ok(ClientEvent::Negotiated { key_expires_days: message.key_expires_days.get() })
            }
            (NegotiationReject::KIND, Phase::Negotiating) => {
                let message: &NegotiationReject = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                self.phase = Phase::Closed;
                Ok(ClientEvent::Refused { error: message.error.get(), reason: message.reason, next: None })
            }
            (EstablishmentAck::KIND, Phase::Establishing) => self.established(&frame),
            (EstablishmentReject::KIND, Phase::Establishing) => {
                let message: &EstablishmentReject = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                self.phase = Phase::Closed;
                let next = Some(message.next_seq.get());
                Ok(ClientEvent::Refused { error: message.error.get(), reason: message.reason, next })
            }
            (Retransmission::KIND, Phase::Established) => {
                let message: &Retransmission = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                let follows = Missing { from: message.from_seq.get(), count: message.count.get().into() };
                if !self.open_request.is_some_and(|(asked, _)| asked == follows) {
                    return Err(IlinkError::Echo { template: frame.template });
                }
                Ok(ClientEvent::Retransmission(follows))
            }
            (RetransmitReject::KIND, Phase::Established) => {
                let message: &RetransmitReject = frame.view()?;
                self.echo(&frame, message.uuid.get(), message.at_ns.get())?;
                self.open_request = None;
                Ok(ClientEvent::RetransmitRejected { error: message.error.get(), reason: message.reason })
            }
            _ => self.second_answer(&frame),
        }
    }

    /// The other answer to a login that was sent twice. The first has decided; the venue may refuse
    /// the second login because it has the first.
    fn second_answer<'p>(&mut self, frame: &Frame<'p>) -> Result<ClientEvent<'p>, IlinkError> {
        let unexpected = IlinkError::Unexpected { template: frame.template, state: self.phase.text() };
        let (twice, answered) = match frame.template {
            NegotiationResponse::KIND => {
                let message: &NegotiationResponse = frame.view()?;
                (&mut self.negotiated_twice, (message.uuid, message.at_ns))
            }
            NegotiationReject::KIND => {
                let message: &NegotiationReject = frame.view()?;
                (&mut self.negotiated_twice, (message.uuid, message.at_ns))
            }
            EstablishmentAck::KIND => {
                let message: &EstablishmentAck = frame.view()?;
                (&mut self.established_twice, (message.uuid, message.at_ns))
            }
            EstablishmentReject::KIND => {
                let message: &EstablishmentReject = frame.view()?;
                (&mut self.established_twice, (message.uuid, message.at_ns))
            }
            _ => return Err(unexpected),
        };
        let (uuid, at_ns) = answered;
        twice.take_if(|asked| *asked == (uuid.get(), at_ns.get())).ok_or(unexpected)?;
        Ok(ClientEvent::KeepAlive { missing: None, is_lapsed: false })
    }

    fn established<'p>(&mut self, frame: &Frame<'p>) -> Result<ClientEvent<'p>, IlinkError> {
        let message: &EstablishmentAck = frame.view()?;
        self.echo(frame, message.uuid.get(), message.at_ns.get())?;
        let (uuid, last) = (message.previous_uuid.get(), message.previous_seq.get());
        let missed = (uuid == self.uuid).then(|| self.missing_before(last.saturating_add(1))).flatten();
        if let Some(Missing { from, count }) = missed {
            self.expected = from.saturating_add(count);
        }
        let missed_before = self.before.filter(|&(before, _)| before == uuid && before != self.uuid);
        let missed_before = missed_before.and_then(|(before, expected)| {
            let count = last.saturating_add(1).saturating_sub(expected);
            (count > 0).then_some((before, Missing { from: expected, count }))
        });
        self.phase = Phase::Established;
        self.next_at_login = self.next;
        Ok(ClientEvent::Established { missed, missed_before, previous: (uuid, last) })
    }

    /// The session begins, and its numbers. What the venue has sent in the one before is not
    /// forgotten.
    fn negotiated(&mut self) {
        let before = (self.uuid > 0).then_some((self.uuid, self.expected));
        *self = Self {
            phase: Phase::Negotiated,
            uuid: self.asked_uuid,
            before,
            next: 1,
            next_at_login: 1,
            expected: 1,
            not_applied: Ranges::EMPTY,
            sent_again: Ranges::EMPTY,
            skipped: Ranges::EMPTY,
            ..*self
        };
    }

    /// A message of ours is sent again: what became of it is not known before the venue says.
    pub(super) fn send_again(&mut self, number: u32) {
        let one = Missing { from: number, count: 1 };
        self.not_applied.remove(one);
        self.sent_again.insert(one);
    }

    /// Our next number is told: what the venue has not applied, and we have not sent again, never
    /// comes under its number.
    pub(super) fn skip(&mut self) {
        for &range in self.not_applied.as_slice() {
            self.skipped.insert(range);
        }
        self.not_applied.remove(Missing { from: 0, count: u32::MAX });
    }

    fn sequence<'p>(&mut self, message: &Sequence) -> Result<ClientEvent<'p>, IlinkError> {
        self.same_uuid(message.uuid.get())?;
        let next = message.next_seq.get();
        if next < self.expected {
            return Err(IlinkError::LowNextNumber { expected: self.expected, found: next });
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
            && uuid == of
            && (number < self.expected || of != self.uuid)
        {
            // The last one ends the request.
            if number - asked.from + 1 == asked.count {
                self.open_request = None;
                if let Some((before, expected)) = &mut self.before
                    && *before == of
                {
                    *expected = number.saturating_add(1).max(*expected);
                }
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

    /// The identifier of a message that may answer a negotiation.
    fn asked_uuid(&self, found: u64) -> Result<(), IlinkError> {
        let expected = if self.phase == Phase::Negotiating { self.asked_uuid } else { self.uuid };
        if found == expected { Ok(()) } else { Err(IlinkError::Uuid { expected, found }) }
    }

    fn echo(&self, frame: &Frame<'_>, uuid: u64, at_ns: u64) -> Result<(), IlinkError> {
        if self.asked_uuid(uuid).is_ok() && at_ns == self.asked_at_ns {
            Ok(())
        } else {
            Err(IlinkError::Echo { template: frame.template })
        }
    }

    /// What became of our message `number`.
    pub(super) fn fate(&self, number: u64) -> Fate {
        if !matches!(self.phase, Phase::Established | Phase::Terminating) {
            return Fate::Unknown { resend: None };
        }
        let Ok(number) = u32::try_from(number) else { return Fate::Unknown { resend: None } };
        if self.not_applied.has(number) {
            return Fate::NotProcessed { resend: Resend::SameNumber };
        }
        if self.skipped.has(number) {
            return Fate::NotProcessed { resend: Resend::NewNumber };
        }
        let sets = [&self.not_applied, &self.sent_again, &self.skipped];
        let is_given_up = sets.iter().any(|ranges| number < ranges.given_up_below);
        let is_settled = self.is_gap_told && !is_given_up && !self.sent_again.has(number);
        if number < self.next_at_login && is_settled {
            return Fate::Processed;
        }
        Fate::Unknown { resend: None }
    }
}
