//! The client's end: logs in with what it received, takes the replay, numbers its messages.

use core::marker::PhantomData;

use super::client_event::{ClientConfig, ClientEvent};
use super::version::emit_parts;
use super::{BoeError, LoginRequest, LoginStatus, LogoutReason, Message, UnitSequence, UnspecifiedUnits, Version};
use crate::Text;
use crate::session::{Fate, KeepAlive, Output, Reassembly, Recovery, Resend};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    LoggingIn { since_ns: u64 },
    Replaying,
    Active,
    LoggedOut { since_ns: u64 },
}

impl State {
    const fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::LoggingIn { .. } => "logging in",
            Self::Replaying => "replaying",
            Self::Active => "active",
            Self::LoggedOut { .. } => "logged out",
        }
    }
}

/// The client of one session, over any number of connections of one day, one after the other.
/// Memory is one message and a number for each unit, taken at the start.
#[derive(Debug)]
pub struct Client<V> {
    config: ClientConfig,
    returns: (u8, Box<[u8]>),
    reassembly: Reassembly,
    keep_alive: KeepAlive,
    state: State,
    /// The last number from each unit; 0 is none.
    units: Box<[u32; 256]>,
    /// Our last number.
    sent: u32,
    /// What the venue told at login.
    told: Option<u32>,
    /// Our last number at login: those behind were sent on this connection, or never.
    sent_at_login: u32,
    /// What is known of the venue's messages.
    replay: Replay,
    version: PhantomData<V>,
}

impl<V: Version> Client<V> {
    /// A client that is not connected.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            returns: (0, Box::default()),
            reassembly: Reassembly::new(config.message_len_max),
            keep_alive: KeepAlive::new(config.heartbeat_ns, config.silence_ns_max, 0),
            state: State::Closed,
            units: Box::new([0; 256]),
            sent: 0,
            told: None,
            sent_at_login: 0,
            replay: Replay::default(),
            version: PhantomData,
            config,
        }
    }

    /// Asks at each login for optional fields in the venue's messages: the groups of
    /// [`ReturnFields`](super::v2::ReturnFields), of version 2 alone.
    #[must_use]
    pub fn returning(mut self, fields: super::v2::ReturnFields) -> Self {
        self.returns = fields.into_groups();
        self
    }

    /// Continues a day: the last number received from `unit`, from a journal.
    pub fn set_received(&mut self, unit: u8, sequence: u32) {
        self.units[usize::from(unit)] = sequence;
    }

    /// Continues a day: our last number, from a journal.
    pub fn set_sent(&mut self, sequence: u32) {
        self.sent = self.sent.max(sequence);
    }

    /// The day is over: the units and we number anew from the next login on.
    pub fn begin_day(&mut self) {
        self.units.fill(0);
        (self.sent, self.sent_at_login, self.replay) = (0, 0, Replay::default());
    }

    /// Begins a connection that was just made: writes the login, with the last number of each unit.
    ///
    /// # Errors
    ///
    /// The output is too small: 34 bytes, 5 for each unit, and the groups of optional fields.
    pub fn connect(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), BoeError> {
        let mut units = [UnitSequence::new(0, 0); 255];
        let mut count = 0;
        for (unit, &sequence) in (0u8..=u8::MAX).zip(self.units.iter()).filter(|&(_, &sequence)| sequence > 0) {
            let Some(slot) = units.get_mut(count) else { break };
            *slot = UnitSequence::new(unit, sequence);
            count += 1;
        }
        let login = LoginRequest {
            credentials: self.config.credentials,
            unspecified: self.config.unspecified,
            units: &units[..count],
            returns: (self.returns.0, &self.returns.1),
        };
        emit_parts::<V>(V::KINDS.login, output, |output| V::write_login(&login, output))?;
        self.reassembly.clear();
        self.keep_alive = KeepAlive::new(self.config.heartbeat_ns, self.config.silence_ns_max, now_ns);
        self.state = State::LoggingIn { since_ns: now_ns };
        self.told = None;
        self.replay.begin();
        Ok(())
    }

    /// Takes one message from the front of `input`; `None` where `input` is used up. Call it until
    /// then. Where the session is over, input is discarded.
    ///
    /// # Errors
    ///
    /// The message breaks a rule; the session is over, and the caller closes the connection.
    #[inline]
    pub fn receive<'s, 'i: 's>(
        &'s mut self,
        now_ns: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<ClientEvent<'s>>, BoeError> {
        if self.state == State::Closed {
            *input = &[];
            return Ok(None);
        }
        if !input.is_empty() {
            self.keep_alive.received(now_ns);
        }
        let Self { config, reassembly, state, units, sent, told, sent_at_login, replay, .. } = self;
        let too_long = |len| BoeError::TooLong { len, len_max: config.message_len_max };
        let message = match reassembly.next(input, V::frame_len, too_long).map(|frame| frame.map(V::parse)) {
            Ok(None) => return Ok(None),
            Ok(Some(message)) => message,
            Err(error) => Err(error),
        };
        let mut session = Taking { config, state, units, sent, told, sent_at_login, replay };
        let event = message.and_then(|message| session.take::<V>(message));
        if event.is_err() {
            self.state = State::Closed;
        }
        event.map(Some)
    }

    /// Sends an application message of type `kind`, and returns its number.
    ///
    /// # Errors
    ///
    /// Not logged in or still replaying, the numbers are used up, or the output is too small.
    pub fn send(&mut self, now_ns: u64, kind: u16, body: &[u8], output: &mut Output<'_>) -> Result<u32, BoeError> {
        if self.state != State::Active {
            return Err(BoeError::State { state: self.state.text() });
        }
        let sequence = self.sent.checked_add(1).ok_or(BoeError::NumbersUsedUp)?;
        V::emit(&Message { kind, unit: 0, sequence, body }, output)?;
        self.keep_alive.sent(now_ns);
        self.sent = sequence;
        Ok(sequence)
    }

    /// Asks the venue to end the session; it answers with a logout.
    ///
    /// # Errors
    ///
    /// Not logged in, or the output is too small.
    pub fn logout(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), BoeError> {
        if !matches!(self.state, State::Active | State::Replaying) {
            return Err(BoeError::State { state: self.state.text() });
        }
        self.emit(now_ns, V::KINDS.logout_request, output)?;
        self.state = State::LoggedOut { since_ns: now_ns };
        Ok(())
    }

    /// Sends a heartbeat where one is due. Call it at [`deadline_ns`](Self::deadline_ns), after
    /// received bytes were taken.
    ///
    /// # Errors
    ///
    /// The venue has been silent, or the login or logout unanswered, for too long: the session is
    /// over. Or the output is too small.
    pub fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), BoeError> {
        match self.state {
            State::Closed => return Ok(()),
            State::LoggingIn { since_ns } => {
                let waited_ns = now_ns.saturating_sub(since_ns);
                if waited_ns >= self.config.login_ns_max {
                    self.state = State::Closed;
                    return Err(BoeError::LoginTimeout { waited_ns });
                }
            }
            State::Replaying | State::Active | State::LoggedOut { .. } => {
                if let Some(silence_ns) = self.keep_alive.dead_silence_ns(now_ns) {
                    self.state = State::Closed;
                    return Err(BoeError::Silence { silence_ns });
                }
            }
        }
        if let State::LoggedOut { since_ns } = self.state {
            let waited_ns = now_ns.saturating_sub(since_ns);
            if waited_ns >= self.config.logout_ns_max {
                self.state = State::Closed;
                return Err(BoeError::LogoutTimeout { waited_ns });
            }
            return Ok(());
        }
        if self.keep_alive.is_heartbeat_due(now_ns) {
            self.emit(now_ns, V::KINDS.client_heartbeat, output)?;
        }
        Ok(())
    }

    /// When [`tick`](Self::tick) has something to do; `None` where there is no connection.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Closed => None,
            State::LoggingIn { since_ns } => {
                Some(self.keep_alive.heartbeat_at_ns().min(since_ns.saturating_add(self.config.login_ns_max)))
            }
            State::Replaying | State::Active => Some(self.keep_alive.deadline_ns()),
            State::LoggedOut { since_ns } => {
                Some(self.keep_alive.dead_at_ns().min(since_ns.saturating_add(self.config.logout_ns_max)))
            }
        }
    }

    /// The connection is closed or broken. Numbers are kept for the next login.
    pub fn disconnected(&mut self) {
        self.state = State::Closed;
        self.told = None;
        self.replay.begin();
    }

    /// Whether orders may be sent.
    pub fn is_active(&self) -> bool {
        self.state == State::Active
    }

    /// The last number received from `unit`; 0 is none.
    pub fn received(&self, unit: u8) -> u32 {
        self.units[usize::from(unit)]
    }

    fn emit(&mut self, now_ns: u64, kind: u16, output: &mut Output<'_>) -> Result<(), BoeError> {
        V::emit(&Message { kind, unit: 0, sequence: 0, body: &[] }, output)?;
        self.keep_alive.sent(now_ns);
        Ok(())
    }
}

/// What is known of the messages that a venue has sent before a login.
#[derive(Debug)]
struct Replay {
    is_complete: bool,
    /// It ended before the last number of a unit that the login told.
    is_short: bool,
    /// The last number of each unit that the login told; 0 is none.
    told: Box<[u32; 256]>,
    /// Answers to our messages up to this number may be lost: their units were skipped, or went on
    /// behind a replay that was short.
    unanswered_to: u32,
}

impl Default for Replay {
    fn default() -> Self {
        Self { is_complete: false, is_short: false, told: Box::new([0; 256]), unanswered_to: 0 }
    }
}

impl Replay {
    /// A connection begins, or is over.
    fn begin(&mut self) {
        (self.is_complete, self.is_short) = (false, false);
        self.told.fill(0);
    }
}

/// The parts of a client that a received message changes, apart from the buffer that it lies in.
struct Taking<'c> {
    config: &'c ClientConfig,
    state: &'c mut State,
    units: &'c mut [u32; 256],
    sent: &'c mut u32,
    told: &'c mut Option<u32>,
    sent_at_login: &'c mut u32,
    replay: &'c mut Replay,
}

impl Taking<'_> {
    #[inline]
    fn take<'p, V: Version>(&mut self, message: Message<'p>) -> Result<ClientEvent<'p>, BoeError> {
        let kinds = V::KINDS;
        let kind = message.kind;
        let unexpected = BoeError::Unexpected { kind, state: self.state.text() };
        if kind == kinds.server_heartbeat {
            return Ok(ClientEvent::Heartbeat);
        }
        if kind == kinds.logout {
            return self.logout(&message);
        }
        if kind == kinds.login_response {
            return if matches!(self.state, State::LoggingIn { .. }) {
                self.answer::<V>(&message)
            } else {
                Err(unexpected)
            };
        }
        let is_from_client = kind == kinds.login
            || kind == kinds.logout_request
            || kind == kinds.client_heartbeat
            || V::is_client_message(kind);
        if is_from_client || matches!(self.state, State::Closed | State::LoggingIn { .. }) {
            return Err(unexpected);
        }
        if kind == kinds.replay_complete {
            if *self.state == State::Active {
                return Err(unexpected);
            }
            self.replay.is_complete = true;
            if *self.state == State::Replaying {
                *self.state = State::Active;
            }
            return Ok(self.replay_complete());
        }
        if V::is_sequenced(kind) {
            let last = &mut self.units[usize::from(message.unit)];
            let expected = last.checked_add(1).ok_or(BoeError::NumbersUsedUp)?;
            if message.sequence == expected {
                *last = expected;
            } else {
                self.unexpected_number(message.unit, expected, message.sequence)?;
            }
        }
        Ok(ClientEvent::Message(message))
    }

    /// The last number of each unit that the login told must have come: whatever was between is
    /// lost.
    #[cold]
    fn replay_complete<'p>(&mut self) -> ClientEvent<'p> {
        let mut units = (0u8..=u8::MAX).zip(self.units.iter().zip(self.replay.told.iter()));
        let Some((unit, (&received, &told))) = units.find(|(_, (received, told))| received < told) else {
            return ClientEvent::ReplayComplete;
        };
        self.replay.is_short = true;
        ClientEvent::ReplayIncomplete { unit, received, told }
    }

    /// A number that is not the next: right only where it ends what a replay left out.
    #[cold]
    fn unexpected_number(&mut self, unit: u8, expected: u32, found: u32) -> Result<(), BoeError> {
        let last = &mut self.units[usize::from(unit)];
        let told = self.replay.told[usize::from(unit)];
        if self.replay.is_complete && (expected..=told.saturating_add(1)).contains(&found) {
            *last = found;
            self.replay.unanswered_to = self.replay.unanswered_to.max(self.told.unwrap_or(0));
            return Ok(());
        }
        Err(BoeError::UnitSequence { unit, expected, found })
    }

    #[cold]
    fn answer<'p, V: Version>(&mut self, message: &Message<'p>) -> Result<ClientEvent<'p>, BoeError> {
        let answer = V::read_login_answer(message.body)?;
        if answer.status != LoginStatus::ACCEPTED {
            *self.state = State::Closed;
            return Ok(ClientEvent::LoginRejected { status: answer.status, text: answer.text });
        }
        if self.config.unspecified == UnspecifiedUnits::Skip {
            // Units of which we have nothing begin with their next message; what they have said was
            // perhaps about our messages.
            for unit in answer.units {
                let last = &mut self.units[usize::from(unit.unit)];
                if *last == 0 && unit.sequence.get() > 0 {
                    *last = unit.sequence.get();
                    self.replay.unanswered_to = self.replay.unanswered_to.max(answer.last_received);
                }
            }
        }
        for unit in answer.units {
            self.replay.told[usize::from(unit.unit)] = unit.sequence.get();
        }
        *self.state = State::Replaying;
        *self.told = Some(answer.last_received);
        *self.sent = (*self.sent).max(answer.last_received);
        *self.sent_at_login = *self.sent;
        Ok(ClientEvent::LoggedIn { last_received: answer.last_received })
    }

    #[cold]
    fn logout<'p>(&mut self, message: &Message<'p>) -> Result<ClientEvent<'p>, BoeError> {
        let short = BoeError::Length { kind: message.kind, expected: 61, found: message.body.len() };
        let (&reason, rest) = message.body.split_first().ok_or(short)?;
        let text = Text(*rest.first_chunk().ok_or(short)?);
        *self.state = State::Closed;
        Ok(ClientEvent::Logout { reason: LogoutReason(reason), text })
    }
}

impl<V> Recovery for Client<V> {
    /// By our sequence number. Rejects are not replayed, so that a message of an earlier connection
    /// without an answer after the replay was rejected, or has not arrived: it never existed,
    /// unless a unit was skipped or its replay was incomplete. One of this connection is on its
    /// way.
    fn fate(&self, number: u64) -> Fate {
        match self.told {
            None => Fate::Unknown { resend: None },
            Some(_) if number > u64::from(self.sent_at_login) => Fate::Unknown { resend: None },
            Some(last) if number > u64::from(last) => Fate::NotProcessed { resend: Resend::NewNumber },
            Some(_) if !self.replay.is_complete || self.replay.is_short => Fate::Unknown { resend: None },
            Some(_) if number <= u64::from(self.replay.unanswered_to) => Fate::Unknown { resend: None },
            Some(_) => Fate::NotProcessed { resend: Resend::NewNumber },
        }
    }
}
