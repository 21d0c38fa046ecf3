//! The client's end: negotiates, establishes, counts both ways, keeps the connection alive.

use zerocopy::IntoBytes;

use super::client_event::{ClientConfig, ClientEvent, Missing};
use super::client_state::{CLIENT_NUMBER_AT, Phase, SessionState};
use super::ranges::Ranges;
use super::{
    Establish, Frame, IlinkError, KEEP_ALIVE_LAPSED, NO_UUID, Negotiate, RETRANSMIT_MAX, RetransmitRequest, Sequence,
    Terminate, TerminateReason, emit, establish_signature, negotiate_signature,
};
use crate::Text;
use crate::session::{Fate, KeepAlive, Output, Reassembly, Recovery};

/// The client of one session, over any number of connections, one after the other. Memory is one
/// message, taken at the start.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    reassembly: Reassembly,
    keep_alive: KeepAlive,
    session: SessionState,
    /// A sequence with the lapsed flag was sent in this silence.
    is_lapse_told: bool,
    /// The code of a termination that is to be written: the venue terminated, and waits for our
    /// answer, or it broke a rule, and is told which.
    owes_terminate: Option<u16>,
}

impl Client {
    /// A client that is not connected, without a session.
    pub fn new(config: ClientConfig) -> Self {
        let interval_ns = u64::from(config.keep_alive_ms) * 1_000_000;
        Self {
            reassembly: Reassembly::new(config.message_len_max),
            keep_alive: KeepAlive::new(interval_ns, 2 * interval_ns, 0),
            session: SessionState {
                phase: Phase::Closed,
                uuid: 0,
                asked_uuid: 0,
                before: None,
                asked_ns: 0,
                asked_at_ns: 0,
                is_login_repeated: false,
                negotiated_twice: None,
                established_twice: None,
                next: 1,
                next_at_login: 1,
                expected: 1,
                open_request: None,
                retransmit_ns: 0,
                is_second_request: false,
                not_applied: Ranges::EMPTY,
                sent_again: Ranges::EMPTY,
                skipped: Ranges::EMPTY,
                is_gap_told: false,
            },
            is_lapse_told: false,
            owes_terminate: None,
            config,
        }
    }

    /// Continues a session from a journal: its identifier, our next number, the venue's next.
    pub fn resume(&mut self, uuid: u64, next: u32, expected: u32) {
        let (before, not_applied, sent_again, skipped) = (None, Ranges::EMPTY, Ranges::EMPTY, Ranges::EMPTY);
        self.session = SessionState {
            uuid,
            next,
            next_at_login: next,
            expected,
            before,
            not_applied,
            sent_again,
            skipped,
            ..self.session
        };
    }

    /// Begins a session on a connection that was just made. `uuid` must be above that of each
    /// session before, such as the microseconds since 1970; `wall_ns` is the time since 1970. The
    /// session before goes on where the venue refuses, or does not answer.
    ///
    /// # Errors
    ///
    /// `uuid` is not above the last, or the output is too small for 90 bytes.
    pub fn negotiate(
        &mut self,
        now_ns: u64,
        wall_ns: u64,
        uuid: u64,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        if uuid <= self.session.uuid {
            return Err(IlinkError::UuidNotRising { last: self.session.uuid, found: uuid });
        }
        self.emit_negotiate(wall_ns, uuid, output)?;
        self.session.asked_uuid = uuid;
        self.begin(Phase::Negotiating, now_ns, wall_ns);
        Ok(())
    }

    fn emit_negotiate(&self, wall_ns: u64, uuid: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        let identity = &self.config.identity;
        let mut message = Negotiate {
            signature: [0; 32],
            access_key: identity.access_key,
            uuid: uuid.into(),
            at_ns: wall_ns.into(),
            session: identity.session,
            firm: identity.firm,
        };
        message.signature = negotiate_signature(&identity.key, &message).unwrap_or_default();
        emit(Negotiate::KIND, message.as_bytes(), NO_CREDENTIALS, output)?;
        Ok(())
    }

    /// Establishes the session: after a negotiation on the same connection, or on one that was just
    /// made.
    ///
    /// # Errors
    ///
    /// There is no session, or the output is too small for 146 bytes.
    pub fn establish(&mut self, now_ns: u64, wall_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        if self.session.uuid == 0 || self.session.phase == Phase::Negotiating {
            return Err(IlinkError::State { state: "without a session" });
        }
        self.emit_establish(wall_ns, output)?;
        self.begin(Phase::Establishing, now_ns, wall_ns);
        Ok(())
    }

    fn emit_establish(&self, wall_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        let identity = &self.config.identity;
        let mut message = Establish {
            signature: [0; 32],
            access_key: identity.access_key,
            system: identity.system,
            system_version: identity.system_version,
            system_vendor: identity.system_vendor,
            uuid: self.session.uuid.into(),
            at_ns: wall_ns.into(),
            next_seq: self.session.next.into(),
            session: identity.session,
            firm: identity.firm,
            keep_alive_ms: self.config.keep_alive_ms.into(),
        };
        message.signature = establish_signature(&identity.key, &message).unwrap_or_default();
        emit(Establish::KIND, message.as_bytes(), NO_CREDENTIALS, output)?;
        Ok(())
    }

    fn begin(&mut self, phase: Phase, now_ns: u64, wall_ns: u64) {
        let interval_ns = u64::from(self.config.keep_alive_ms) * 1_000_000;
        let mut negotiated_twice = self.session.negotiated_twice;
        if self.session.phase != Phase::Negotiated {
            self.reassembly.clear();
            negotiated_twice = None;
        }
        self.keep_alive = KeepAlive::new(interval_ns, 2 * interval_ns, now_ns);
        (self.is_lapse_told, self.owes_terminate) = (false, None);
        self.session = SessionState {
            phase,
            asked_ns: now_ns,
            asked_at_ns: wall_ns,
            is_login_repeated: false,
            negotiated_twice,
            established_twice: None,
            open_request: None,
            is_gap_told: false,
            ..self.session
        };
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
    ) -> Result<Option<ClientEvent<'s>>, IlinkError> {
        let Self { config, reassembly, keep_alive, session, is_lapse_told, owes_terminate } = self;
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
            Ok(ClientEvent::Terminated { .. }) if session.phase == Phase::Terminating => session.phase = Phase::Closed,
            Ok(ClientEvent::Terminated { .. }) => {
                *owes_terminate = Some(TerminateReason::FINISHED.0);
                session.phase = Phase::Terminating;
            }
            // The venue is at it.
            Ok(ClientEvent::Retransmission(_) | ClientEvent::Message { is_retransmitted: true, .. }) => {
                session.retransmit_ns = now_ns;
            }
            Ok(_) => {}
        }
        event.map(Some)
    }

    /// Sends an application message of `template`, and returns its number, which is written into
    /// the block where all messages of a client have it.
    ///
    /// # Errors
    ///
    /// Not established, the block is too short for a number, the numbers are used up, or the output
    /// is too small.
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
        self.emit_numbered(now_ns, number, template, block, tail, output)?;
        self.session.next = after;
        Ok(number)
    }

    /// Sends a message again that the venue has not applied, under its number, once.
    ///
    /// # Errors
    ///
    /// The venue did not say that it misses `number`, or it was sent again or skipped since; else
    /// as [`send`](Self::send).
    pub fn send_again(
        &mut self,
        now_ns: u64,
        number: u32,
        template: u16,
        block: &[u8],
        tail: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        if !self.session.not_applied.has(number) {
            return Err(IlinkError::NotMissing { number });
        }
        self.emit_numbered(now_ns, number, template, block, tail, output)?;
        self.session.send_again(number);
        Ok(())
    }

    fn emit_numbered(
        &mut self,
        now_ns: u64,
        number: u32,
        template: u16,
        block: &[u8],
        tail: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.established()?;
        let short = IlinkError::Length { template, expected: CLIENT_NUMBER_AT + 4, found: block.len() };
        if block.len() < CLIENT_NUMBER_AT + 4 {
            return Err(short);
        }
        let block = emit(template, block, tail, output)?;
        block[CLIENT_NUMBER_AT..CLIENT_NUMBER_AT + 4].copy_from_slice(&number.to_le_bytes());
        self.keep_alive.sent(now_ns);
        Ok(())
    }

    /// Skips what the venue has not applied: tells our next number.
    ///
    /// # Errors
    ///
    /// Not established, or the output is too small for 26 bytes.
    pub fn skip(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        self.established()?;
        self.emit_sequence(now_ns, false, output)
    }

    /// Passes over our numbers below `next`, which nothing carries. [`skip`](Self::skip) tells the
    /// venue.
    pub fn pass_over(&mut self, next: u32) {
        self.session.next = next.max(self.session.next);
    }

    /// Asks for messages of the venue again, of this session, or of an earlier one by its
    /// identifier `last_uuid`. One request at a time.
    ///
    /// # Errors
    ///
    /// Another request is open, none or more than 2,500 messages, not established, or the output
    /// is too small for 42 bytes.
    pub fn request_retransmit(
        &mut self,
        now_ns: u64,
        wall_ns: u64,
        missing: Missing,
        last_uuid: Option<u64>,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.established()?;
        let count = u16::try_from(missing.count).ok().filter(|count| (1..=RETRANSMIT_MAX).contains(count));
        let count = count.filter(|_| self.session.open_request.is_none()).ok_or(IlinkError::Retransmit)?;
        self.emit_request((now_ns, wall_ns), (missing.from, count), last_uuid, output)?;
        self.session.open_request = Some((missing, last_uuid.unwrap_or(self.session.uuid)));
        self.session.is_second_request = false;
        Ok(())
    }

    fn emit_request(
        &mut self,
        (now_ns, wall_ns): (u64, u64),
        (from, count): (u32, u16),
        last_uuid: Option<u64>,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        let request = RetransmitRequest {
            uuid: self.session.uuid.into(),
            last_uuid: last_uuid.unwrap_or(NO_UUID).into(),
            at_ns: wall_ns.into(),
            from_seq: from.into(),
            count: count.into(),
        };
        emit(RetransmitRequest::KIND, request.as_bytes(), &[], output)?;
        self.keep_alive.sent(now_ns);
        (self.session.asked_at_ns, self.session.retransmit_ns) = (wall_ns, now_ns);
        Ok(())
    }

    /// Asks once more for messages that do not come, and ends the session where that does not help.
    fn ask_again(&mut self, now_ns: u64, wall_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        let Some((missing, of)) = self.session.open_request else { return Ok(()) };
        let waited_ns = now_ns.saturating_sub(self.session.retransmit_ns);
        if waited_ns < self.config.retransmit_ns_max {
            return Ok(());
        }
        if self.session.is_second_request {
            self.emit_terminate(now_ns, wall_ns, 0, output)?;
            self.session.phase = Phase::Closed;
            return Err(IlinkError::RetransmitTimeout { waited_ns });
        }
        let count = u16::try_from(missing.count).unwrap_or(RETRANSMIT_MAX);
        let last_uuid = (of != self.session.uuid).then_some(of);
        // Under the time of the first, so that a late answer to that is one to this.
        self.emit_request((now_ns, self.session.asked_at_ns), (missing.from, count), last_uuid, output)?;
        self.session.is_second_request = true;
        Ok(())
    }

    /// Ends the connection; the venue answers with the same.
    ///
    /// # Errors
    ///
    /// Not established, or the output is too small for 79 bytes.
    pub fn terminate(
        &mut self,
        now_ns: u64,
        wall_ns: u64,
        error: u16,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        self.established()?;
        self.emit_terminate(now_ns, wall_ns, error, output)?;
        (self.session.phase, self.session.asked_ns) = (Phase::Terminating, now_ns);
        Ok(())
    }

    /// Sends a keep-alive where one is due, a login without an answer once more, and the
    /// termination that answers the venue's or a broken rule. Call it at
    /// [`deadline_ns`](Self::deadline_ns), after received bytes were taken.
    ///
    /// # Errors
    ///
    /// The venue has been silent for two intervals, or messages that were asked for twice have not
    /// come (a termination was written), or a request of the session or a termination has no
    /// answer: the session is over. Or the output is too small.
    pub fn tick(&mut self, now_ns: u64, wall_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        if let Some(code) = self.owes_terminate {
            self.emit_terminate(now_ns, wall_ns, code, output)?;
            self.owes_terminate = None;
            self.session.phase = Phase::Closed;
        }
        match self.session.phase {
            Phase::Closed | Phase::Negotiated => return Ok(()),
            Phase::Negotiating | Phase::Establishing => return self.wait_for_login(now_ns, output),
            Phase::Terminating => {
                let waited_ns = now_ns.saturating_sub(self.session.asked_ns);
                if waited_ns >= self.config.terminate_ns_max {
                    self.session.phase = Phase::Closed;
                    return Err(IlinkError::TerminateTimeout { waited_ns });
                }
            }
            Phase::Established => {}
        }
        if let Some(silence_ns) = self.keep_alive.dead_silence_ns(now_ns) {
            if self.session.phase == Phase::Established {
                self.emit_terminate(now_ns, wall_ns, KEEP_ALIVE_LAPSED, output)?;
            }
            self.session.phase = Phase::Closed;
            return Err(IlinkError::Silence { silence_ns });
        }
        if self.session.phase == Phase::Established {
            self.ask_again(now_ns, wall_ns, output)?;
        }
        let lapse = !self.is_lapse_told && now_ns >= self.lapse_at_ns();
        if self.session.phase == Phase::Established && (lapse || self.keep_alive.is_heartbeat_due(now_ns)) {
            self.emit_sequence(now_ns, lapse, output)?;
            self.is_lapse_told |= lapse;
        }
        Ok(())
    }

    /// Sends a login without an answer once more, byte for byte: a late answer to the first is one
    /// to this, and where both are answered the second says nothing.
    fn wait_for_login(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), IlinkError> {
        if now_ns < self.login_deadline_ns() {
            return Ok(());
        }
        if self.session.is_login_repeated {
            self.session.phase = Phase::Closed;
            return Err(IlinkError::LoginTimeout { waited_ns: now_ns.saturating_sub(self.session.asked_ns) });
        }
        let (at_ns, asked_uuid, uuid) = (self.session.asked_at_ns, self.session.asked_uuid, self.session.uuid);
        match self.session.phase {
            Phase::Negotiating => {
                self.emit_negotiate(at_ns, asked_uuid, output)?;
                self.session.negotiated_twice = Some((asked_uuid, at_ns));
            }
            _ => {
                self.emit_establish(at_ns, output)?;
                self.session.established_twice = Some((uuid, at_ns));
            }
        }
        self.session.is_login_repeated = true;
        Ok(())
    }

    const fn login_deadline_ns(&self) -> u64 {
        let attempts = if self.session.is_login_repeated { 2 } else { 1 };
        self.session.asked_ns.saturating_add(self.config.login_ns_max.saturating_mul(attempts))
    }

    /// When [`tick`](Self::tick) has something to do; `None` where there is no connection.
    pub fn deadline_ns(&self) -> Option<u64> {
        let session = &self.session;
        match session.phase {
            _ if self.owes_terminate.is_some() => Some(0),
            Phase::Closed | Phase::Negotiated => None,
            Phase::Negotiating | Phase::Establishing => Some(self.login_deadline_ns()),
            Phase::Established => {
                let lapse_at_ns = if self.is_lapse_told { u64::MAX } else { self.lapse_at_ns() };
                let asked = session.open_request.map(|_| session.retransmit_ns);
                let again_at_ns = asked.map_or(u64::MAX, |at_ns| at_ns.saturating_add(self.config.retransmit_ns_max));
                Some(self.keep_alive.deadline_ns().min(lapse_at_ns).min(again_at_ns))
            }
            Phase::Terminating => {
                let ends_at_ns = session.asked_ns.saturating_add(self.config.terminate_ns_max);
                Some(self.keep_alive.dead_at_ns().min(ends_at_ns))
            }
        }
    }

    /// The connection is closed or broken. Session and numbers are kept.
    pub fn disconnected(&mut self) {
        self.session.phase = Phase::Closed;
        self.owes_terminate = None;
    }

    /// Whether orders may be sent.
    pub fn is_established(&self) -> bool {
        self.session.phase == Phase::Established
    }

    /// Whether a request for messages again is open.
    pub const fn is_retransmitting(&self) -> bool {
        self.session.open_request.is_some()
    }

    /// The session's identifier, our next number and the venue's next, for a journal.
    pub fn numbers(&self) -> (u64, u32, u32) {
        (self.session.uuid, self.session.next, self.session.expected)
    }

    fn lapse_at_ns(&self) -> u64 {
        self.keep_alive.dead_at_ns().saturating_sub(u64::from(self.config.keep_alive_ms) * 1_000_000)
    }

    fn established(&self) -> Result<(), IlinkError> {
        match self.session.phase {
            Phase::Established => Ok(()),
            phase => Err(IlinkError::State { state: phase.text() }),
        }
    }

    fn emit_sequence(&mut self, now_ns: u64, is_lapsed: bool, output: &mut Output<'_>) -> Result<(), IlinkError> {
        let message = Sequence {
            uuid: self.session.uuid.into(),
            next_seq: self.session.next.into(),
            fault_tolerance: u8::MAX,
            lapsed: u8::from(is_lapsed),
        };
        emit(Sequence::KIND, message.as_bytes(), &[], output)?;
        self.keep_alive.sent(now_ns);
        // The venue takes it for the decision to skip, whatever it was sent for.
        self.session.skip();
        Ok(())
    }

    fn emit_terminate(
        &mut self,
        now_ns: u64,
        wall_ns: u64,
        error: u16,
        output: &mut Output<'_>,
    ) -> Result<(), IlinkError> {
        let message = Terminate {
            reason: Text([0; 48]),
            uuid: self.session.uuid.into(),
            at_ns: wall_ns.into(),
            error: error.into(),
            split: u8::MAX,
        };
        emit(Terminate::KIND, message.as_bytes(), &[], output)?;
        self.keep_alive.sent(now_ns);
        Ok(())
    }
}

/// The length of the credentials after a negotiation and an establishment: there are none.
const NO_CREDENTIALS: &[u8] = &[0, 0];

impl Recovery for Client {
    /// By our number. The venue tells what it has not applied right after its acknowledgment of a
    /// connection, so that a message of an earlier connection was processed where the venue has
    /// told nothing of it and gone on to something else.
    fn fate(&self, number: u64) -> Fate {
        self.session.fate(number)
    }
}
