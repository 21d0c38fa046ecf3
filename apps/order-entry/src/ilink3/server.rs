//! The venue's end: judges negotiation and establishment, counts both ways, keeps the connection
//! alive.

use zerocopy::IntoBytes;

use super::client_state::VENUE_NUMBER_AT;
use super::ranges::Ranges;
use super::server_event::{ServerConfig, ServerEvent};
use super::server_state::{Phase, SessionState};
use super::{
    EstablishmentAck, EstablishmentReject, Frame, IlinkError, KEEP_ALIVE_LAPSED, Missing, NO_UUID, NegotiationReject,
    NegotiationResponse, NotApplied, Retransmission, RetransmitReject, RetransmitRequest, Sequence, Terminate,
    TerminateReason, emit,
};
use crate::Text;
use crate::session::{KeepAlive, Output, Reassembly};

/// The venue's end of one session, over any number of connections, one after the other.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    reassembly: Reassembly,
    keep_alive: KeepAlive,
    since_ns: u64,
    session: SessionState,
    is_lapse_told: bool,
    /// The code of a termination that is to be written: an answer, or the rule that was broken.
    owes_terminate: Option<u16>,
}

impl Server {
    /// A server without a connection and a session.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            reassembly: Reassembly::new(config.message_len_max),
            keep_alive: KeepAlive::new(u64::MAX, u64::MAX, 0),
            since_ns: 0,
            session: SessionState {
                phase: Phase::Closed,
                uuid: 0,
                previous: (0, 0),
                asked: (0, 0, 0),
                response: None,
                acknowledgment: None,
                owes_answer: None,
                keep_alive_ms: 0,
                next: 1,
                expected: 1,
                not_applied: Ranges::EMPTY,
                owed: Ranges::EMPTY,
                again_uuid: 0,
                terminating_ns: 0,
            },
            is_lapse_told: false,
            owes_terminate: None,
            config,
        }
    }

    /// A client has connected. Session and numbers are kept.
    pub fn connected(&mut self, now_ns: u64) {
        self.reassembly.clear();
        self.since_ns = now_ns;
        self.session.phase = Phase::Connected;
        (self.session.response, self.session.acknowledgment, self.session.owes_answer) = (None, None, None);
        (self.is_lapse_told, self.owes_terminate) = (false, None);
    }

    /// Takes one message from the front of `input`; `None` where `input` is used up. Call it until
    /// then. Where the session is over, input is discarded.
    ///
    /// # Errors
    ///
    /// The message breaks a rule; the session is over. Where it was established, the next
    /// [`tick`](Self::tick) writes a termination that says which rule. Then the caller closes the
    /// connection.
    #[inline]
    pub fn receive<'s, 'i: 's>(
        &'s mut self,
        now_ns: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<ServerEvent<'s>>, IlinkError> {
        let Self { config, reassembly, keep_alive, session, is_lapse_told, owes_terminate, .. } = self;
        if session.phase == Phase::Closed {
            *input = &[];
            return Ok(None);
        }
        if !input.is_empty() {
            keep_alive.received(now_ns);
            *is_lapse_told = false;
        }
        let too_long = |len| IlinkError::TooLong { len, len_max: config.message_len_max };
        let event = match reassembly.next(input, Frame::len, too_long) {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => Frame::parse(bytes).and_then(|frame| session.take(frame)),
            Err(error) => Err(error),
        };
        match event {
            Err(error) => {
                *owes_terminate = (session.phase == Phase::Established).then_some(error.terminate_reason().0);
                session.phase = Phase::Closed;
            }
            Ok(ServerEvent::Terminated { .. }) if session.phase == Phase::Terminating => session.phase = Phase::Closed,
            Ok(ServerEvent::Terminated { .. }) => {
                *owes_terminate = Some(TerminateReason::FINISHED.0);
                session.phase = Phase::Terminating;
            }
            Ok(_) => {}
        }
        event.map(Some)
    }

    /// Accepts a negotiation: a new session, whose numbers begin at 1 both ways.
    ///
    /// # Errors
    ///
    /// No negotiation waits for an answer, its identifier is not above the last, or the output is
    /// too small for 47 bytes.
    pub fn accept_negotiation(&mut self, output: &mut Output<'_>) -> Result<(), IlinkError> {
        self.expect(Phase::Negotiating)?;
        let (uuid, at_ns, _) = self.session.asked;
        if uuid <= self.session.uuid {
            return Err(IlinkError::UuidNotRising { last: self.session.uuid, found: uuid });
        }
        let previous = (self.session.uuid, self.session.next - 1);
        let message = NegotiationResponse {
            uuid: uuid.into(),
            at_ns: at_ns.into(),
            key_expires_days: u16::MAX.into(),
            fault_tolerance: 1,
            split: u8::MAX,
            previous_seq: previous.1.into(),
            previous_uuid: previous.0.into(),
            environment: u8::MAX,
        };
        emit(NegotiationResponse::KIND, message.as_bytes(), &[0, 0], output)?;
        self.session = SessionState {
            phase: Phase::Connected,
            uuid,
            previous,
            response: Some(message),
            next: 1,
            expected: 1,
            not_applied: Ranges::EMPTY,
            owed: Ranges::EMPTY,
            ..self.session
        };
        Ok(())
    }

    /// Refuses a negotiation. Close the connection after the output was sent.
    ///
    /// # Errors
    ///
    /// No negotiation waits for an answer, or the output is too small for 81 bytes.
    pub fn reject_negotiation(
        &mut self,
        error: u16,
        reason: &Text<48>,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.expect(Phase::Negotiating)?;
        let (uuid, at_ns, _) = self.session.asked;
        let message = NegotiationReject {
            reason: *reason,
            uuid: uuid.into(),
            at_ns: at_ns.into(),
            error: error.into(),
            fault_tolerance: 1,
            split: u8::MAX,
            environment: u8::MAX,
        };
        emit(NegotiationReject::KIND, message.as_bytes(), &[], output)?;
        self.session.phase = Phase::Closed;
        Ok(())
    }

    /// Accepts an establishment, and tells at once which of the client's messages were not applied.
    ///
    /// # Errors
    ///
    /// No establishment waits for an answer, it is for another session, the client's next number is
    /// below what was received (reject it then), or the output is too small for 51 bytes. Each hole
    /// takes 29 more, with a [`tick`](Self::tick) later where there is no room.
    pub fn accept_establishment(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        self.expect(Phase::Establishing)?;
        let (uuid, at_ns, next) = self.session.asked;
        if uuid != self.session.uuid {
            return Err(IlinkError::Uuid { expected: self.session.uuid, found: uuid });
        }
        if next < self.session.expected {
            return Err(IlinkError::LowNumber { expected: self.session.expected, found: next });
        }
        let is_first = self.session.next == 1;
        let (previous_uuid, previous_seq) =
            if is_first { self.session.previous } else { (uuid, self.session.next - 1) };
        let message = EstablishmentAck {
            uuid: uuid.into(),
            at_ns: at_ns.into(),
            next_seq: self.session.next.into(),
            previous_seq: previous_seq.into(),
            previous_uuid: previous_uuid.into(),
            keep_alive_ms: self.session.keep_alive_ms.into(),
            key_expires_days: u16::MAX.into(),
            fault_tolerance: 1,
            split: u8::MAX,
            environment: u8::MAX,
        };
        emit(EstablishmentAck::KIND, message.as_bytes(), &[], output)?;
        let interval_ns = u64::from(self.session.keep_alive_ms) * 1_000_000;
        self.keep_alive = KeepAlive::new(interval_ns, 2 * interval_ns, now_ns);
        (self.session.phase, self.session.acknowledgment) = (Phase::Established, Some(message));
        self.session.miss_until(next);
        // All that is still missing, not the newest hole alone. The rest follows by `tick`.
        (self.session.owed, self.session.again_uuid) = (self.session.not_applied, uuid);
        match self.emit_not_applied(now_ns, output) {
            Err(IlinkError::OutputFull(_)) => Ok(()),
            done => done,
        }
    }

    /// Refuses an establishment, and tells the number that is expected. Close the connection after
    /// the output was sent.
    ///
    /// # Errors
    ///
    /// No establishment waits for an answer, or the output is too small for 85 bytes.
    pub fn reject_establishment(
        &mut self,
        error: u16,
        reason: &Text<48>,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.expect(Phase::Establishing)?;
        let (uuid, at_ns, _) = self.session.asked;
        let message = EstablishmentReject {
            reason: *reason,
            uuid: uuid.into(),
            at_ns: at_ns.into(),
            next_seq: self.session.expected.into(),
            error: error.into(),
            fault_tolerance: 1,
            split: u8::MAX,
            environment: u8::MAX,
        };
        emit(EstablishmentReject::KIND, message.as_bytes(), &[], output)?;
        self.session.phase = Phase::Closed;
        Ok(())
    }

    /// Sends an application message of `template`, and returns its number: number and identifier
    /// are written into the block, where all messages of the venue have them.
    ///
    /// # Errors
    ///
    /// Not established, the block is too short, the numbers are used up, or the output is too
    /// small.
    pub fn send(
        &mut self,
        now_ns: u64,
        template: u16,
        block: &[u8],
        tail: &[u8],
        output: &mut Output<'_>,
    ) -> Result<u32, IlinkError> {
        let number = self.session.next;
        let after = number.checked_add(1).ok_or(IlinkError::NumbersUsedUp)?;
        self.emit_numbered(now_ns, (self.session.uuid, number), template, block, tail, output)?;
        self.session.next = after;
        Ok(number)
    }

    /// Sends a message again that the client asked for, under its number, of the session of the
    /// last [`begin_retransmission`](Self::begin_retransmission). The caller sets its flag of a
    /// possible repetition.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_again(
        &mut self,
        now_ns: u64,
        number: u32,
        template: u16,
        block: &[u8],
        tail: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.emit_numbered(now_ns, (self.session.again_uuid, number), template, block, tail, output)
    }

    fn emit_numbered(
        &mut self,
        now_ns: u64,
        (uuid, number): (u64, u32),
        template: u16,
        block: &[u8],
        tail: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.expect(Phase::Established)?;
        let short = IlinkError::Length { template, expected: 12, found: block.len() };
        if block.len() < 12 {
            return Err(short);
        }
        let block = emit(template, block, tail, output)?;
        block[VENUE_NUMBER_AT..VENUE_NUMBER_AT + 4].copy_from_slice(&number.to_le_bytes());
        block[4..12].copy_from_slice(&uuid.to_le_bytes());
        self.keep_alive.sent(now_ns);
        Ok(())
    }

    /// Numbers a message that happens while the client is away.
    ///
    /// # Errors
    ///
    /// The numbers are used up.
    pub fn number_unsent(&mut self) -> Result<u32, IlinkError> {
        let number = self.session.next;
        self.session.next = number.checked_add(1).ok_or(IlinkError::NumbersUsedUp)?;
        Ok(number)
    }

    /// Tells that the messages of `request` follow; then they do, by
    /// [`send_again`](Self::send_again).
    ///
    /// # Errors
    ///
    /// Not established, or the output is too small for 43 bytes.
    pub fn begin_retransmission(
        &mut self,
        now_ns: u64,
        request: &RetransmitRequest,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.expect(Phase::Established)?;
        let message = Retransmission {
            uuid: request.uuid,
            last_uuid: request.last_uuid,
            at_ns: request.at_ns,
            from_seq: request.from_seq,
            count: request.count,
            split: u8::MAX,
        };
        emit(Retransmission::KIND, message.as_bytes(), &[], output)?;
        let last_uuid = request.last_uuid.get();
        self.session.again_uuid = if last_uuid == NO_UUID { self.session.uuid } else { last_uuid };
        self.keep_alive.sent(now_ns);
        Ok(())
    }

    /// Refuses to send the messages of `request` again.
    ///
    /// # Errors
    ///
    /// Not established, or the output is too small for 87 bytes.
    pub fn reject_retransmission(
        &mut self,
        now_ns: u64,
        request: &RetransmitRequest,
        error: u16,
        reason: &Text<48>,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.expect(Phase::Established)?;
        let message = RetransmitReject {
            reason: *reason,
            uuid: request.uuid,
            last_uuid: request.last_uuid,
            at_ns: request.at_ns,
            error: error.into(),
            split: u8::MAX,
        };
        emit(RetransmitReject::KIND, message.as_bytes(), &[], output)?;
        self.keep_alive.sent(now_ns);
        Ok(())
    }

    /// Ends the connection; the client answers with the same.
    ///
    /// # Errors
    ///
    /// Not established, or the output is too small for 79 bytes.
    pub fn terminate(&mut self, now_ns: u64, error: u16, output: &mut Output<'_>) -> Result<(), IlinkError> {
        self.expect(Phase::Established)?;
        self.emit_terminate(now_ns, error, output)?;
        (self.session.phase, self.session.terminating_ns) = (Phase::Terminating, now_ns);
        Ok(())
    }

    /// Sends what is owed: what was not applied, a termination, a keep-alive, the answer to a login
    /// that came twice. Call it after each message that misses others, and at
    /// [`deadline_ns`](Self::deadline_ns).
    ///
    /// # Errors
    ///
    /// The client has been silent for two intervals (a termination was written), or has not
    /// established a session: the session is over. Or the output is too small.
    pub fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        if let Some(code) = self.owes_terminate {
            self.emit_terminate(now_ns, code, output)?;
            self.owes_terminate = None;
            self.session.phase = Phase::Closed;
        }
        self.answer_again(now_ns, output)?;
        match self.session.phase {
            Phase::Closed => return Ok(()),
            Phase::Connected | Phase::Negotiating | Phase::Establishing => {
                let waited_ns = now_ns.saturating_sub(self.since_ns);
                if waited_ns < self.config.login_ns_max {
                    return Ok(());
                }
                self.session.phase = Phase::Closed;
                return Err(IlinkError::LoginTimeout { waited_ns });
            }
            Phase::Terminating => {
                let waited_ns = now_ns.saturating_sub(self.session.terminating_ns);
                if waited_ns >= self.config.terminate_ns_max {
                    self.session.phase = Phase::Closed;
                    return Err(IlinkError::TerminateTimeout { waited_ns });
                }
                // Nothing is said behind a termination.
                return Ok(());
            }
            Phase::Established => {}
        }
        self.emit_not_applied(now_ns, output)?;
        if let Some(silence_ns) = self.keep_alive.dead_silence_ns(now_ns) {
            if self.session.phase == Phase::Established {
                self.emit_terminate(now_ns, KEEP_ALIVE_LAPSED, output)?;
            }
            self.session.phase = Phase::Closed;
            return Err(IlinkError::Silence { silence_ns });
        }
        let lapse = !self.is_lapse_told && now_ns >= self.lapse_at_ns();
        if self.session.phase == Phase::Established && (lapse || self.keep_alive.is_heartbeat_due(now_ns)) {
            let message = Sequence {
                uuid: self.session.uuid.into(),
                next_seq: self.session.next.into(),
                fault_tolerance: 1,
                lapsed: u8::from(lapse),
            };
            emit(Sequence::KIND, message.as_bytes(), &[], output)?;
            self.keep_alive.sent(now_ns);
            self.is_lapse_told |= lapse;
        }
        Ok(())
    }

    /// When [`tick`](Self::tick) has something to do; `None` where there is no connection.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.session.phase {
            _ if self.owes_terminate.is_some() => Some(0),
            Phase::Closed => None,
            _ if self.session.owes_answer.is_some() => Some(0),
            Phase::Terminating => Some(self.session.terminating_ns.saturating_add(self.config.terminate_ns_max)),
            Phase::Established if !self.session.owed.is_empty() => Some(0),
            Phase::Connected | Phase::Negotiating | Phase::Establishing => {
                Some(self.since_ns.saturating_add(self.config.login_ns_max))
            }
            Phase::Established if !self.is_lapse_told => Some(self.keep_alive.deadline_ns().min(self.lapse_at_ns())),
            Phase::Established => Some(self.keep_alive.deadline_ns()),
        }
    }

    /// The connection is closed or broken.
    pub fn disconnected(&mut self) {
        self.session.phase = Phase::Closed;
        self.owes_terminate = None;
    }

    /// The session's identifier, our next number and the client's next.
    pub fn numbers(&self) -> (u64, u32, u32) {
        (self.session.uuid, self.session.next, self.session.expected)
    }

    fn lapse_at_ns(&self) -> u64 {
        self.keep_alive.dead_at_ns().saturating_sub(u64::from(self.session.keep_alive_ms) * 1_000_000)
    }

    fn expect(&self, phase: Phase) -> Result<(), IlinkError> {
        if self.session.phase == phase { Ok(()) } else { Err(IlinkError::State { state: self.session.phase.text() }) }
    }

    /// The answer to a login once more, byte for byte, where the login came once more. Nothing is
    /// said behind a termination.
    fn answer_again(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        let Some(template) = self.session.owes_answer else { return Ok(()) };
        if !matches!(self.session.phase, Phase::Closed | Phase::Terminating) {
            match (template, &self.session.response, &self.session.acknowledgment) {
                (NegotiationResponse::KIND, Some(message), _) => {
                    emit(NegotiationResponse::KIND, message.as_bytes(), &[0, 0], output)?;
                }
                (_, _, Some(message)) => {
                    emit(EstablishmentAck::KIND, message.as_bytes(), &[], output)?;
                }
                _ => {}
            }
            self.keep_alive.sent(now_ns);
        }
        self.session.owes_answer = None;
        Ok(())
    }

    fn emit_not_applied(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        while let Some(&missing) = self.session.owed.as_slice().first() {
            let Missing { from, count } = missing;
            let message = NotApplied {
                uuid: self.session.uuid.into(),
                from_seq: from.into(),
                count: count.into(),
                split: u8::MAX,
            };
            emit(NotApplied::KIND, message.as_bytes(), &[], output)?;
            self.session.owed.remove(missing);
            self.keep_alive.sent(now_ns);
        }
        Ok(())
    }

    fn emit_terminate(&mut self, now_ns: u64, error: u16, output: &mut Output<'_>) -> Result<(), IlinkError> {
        let message = Terminate {
            reason: Text([0; 48]),
            uuid: self.session.uuid.into(),
            at_ns: 0.into(),
            error: error.into(),
            split: u8::MAX,
        };
        emit(Terminate::KIND, message.as_bytes(), &[], output)?;
        self.keep_alive.sent(now_ns);
        Ok(())
    }
}
