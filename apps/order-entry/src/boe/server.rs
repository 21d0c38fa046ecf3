//! The venue's end: judges the login, replays, numbers its messages for each unit.

use core::marker::PhantomData;

use super::version::emit_parts;
use super::{
    BoeError, LoginAnswer, LoginRequest, LoginStatus, LogoutReason, MESSAGE_LEN_MAX, Message, UnitSequences, Version,
};
use crate::Text;
use crate::session::{KeepAlive, Output, Reassembly, SECOND_NS};

/// How a server behaves.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// Bytes of the largest message to receive, of which the machine keeps one in pieces. By
    /// default 65,537, all that the length field allows.
    pub message_len_max: usize,
    /// Send a heartbeat after this time without another message. By default 1 s.
    pub heartbeat_ns: u64,
    /// The client is dead after this silence. By default 5 s.
    pub silence_ns_max: u64,
    /// A connection without a login ends after this time. By default 30 s.
    pub login_ns_max: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            message_len_max: MESSAGE_LEN_MAX,
            heartbeat_ns: SECOND_NS,
            silence_ns_max: 5 * SECOND_NS,
            login_ns_max: 30 * SECOND_NS,
        }
    }
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEvent<'a> {
    /// The client logs in: answer with [`Server::accept`] or [`Server::reject`].
    Login(LoginRequest<'a>),
    /// An application message.
    Message {
        /// The message.
        message: Message<'a>,
        /// It came before the replay was complete: reject it with reason `y`.
        is_during_replay: bool,
    },
    /// Nothing, from a client that is alive.
    Heartbeat,
    /// The client is done: answer with [`Server::logout`], then close.
    LogoutRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Connected { since_ns: u64 },
    LoggingIn,
    Replaying,
    Active,
}

impl State {
    const fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Connected { .. } => "not logged in",
            Self::LoggingIn => "logging in",
            Self::Replaying => "replaying",
            Self::Active => "active",
        }
    }
}

/// The venue's end of one session, over any number of connections, one after the other. The
/// messages to replay are the application's.
#[derive(Debug)]
pub struct Server<V> {
    config: ServerConfig,
    reassembly: Reassembly,
    keep_alive: KeepAlive,
    state: State,
    /// The last number sent from each unit.
    units: Box<[u32; 256]>,
    /// The client's last number.
    received: u32,
    version: PhantomData<V>,
}

impl<V: Version> Server<V> {
    /// A server without a connection.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            reassembly: Reassembly::new(config.message_len_max),
            keep_alive: KeepAlive::new(config.heartbeat_ns, config.silence_ns_max, 0),
            state: State::Closed,
            units: Box::new([0; 256]),
            received: 0,
            version: PhantomData,
            config,
        }
    }

    /// A client has connected. Numbers of the session are kept.
    pub fn connected(&mut self, now_ns: u64) {
        self.reassembly.clear();
        self.keep_alive = KeepAlive::new(self.config.heartbeat_ns, self.config.silence_ns_max, now_ns);
        self.state = State::Connected { since_ns: now_ns };
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
    ) -> Result<Option<ServerEvent<'s>>, BoeError> {
        if self.state == State::Closed {
            *input = &[];
            return Ok(None);
        }
        if !input.is_empty() {
            self.keep_alive.received(now_ns);
        }
        let Self { config, reassembly, state, received, .. } = self;
        let too_long = |len| BoeError::TooLong { len, len_max: config.message_len_max };
        let event = match reassembly.next(input, V::frame_len, too_long).map(|frame| frame.map(V::parse)) {
            Ok(None) => return Ok(None),
            Ok(Some(message)) => message.and_then(|message| Self::take(message, state, received)),
            Err(error) => Err(error),
        };
        if event.is_err() {
            *state = State::Closed;
        }
        event.map(Some)
    }

    #[inline]
    fn take<'p>(message: Message<'p>, state: &mut State, received: &mut u32) -> Result<ServerEvent<'p>, BoeError> {
        let kind = message.kind;
        let kinds = V::KINDS;
        if kind == kinds.client_heartbeat {
            return Ok(ServerEvent::Heartbeat);
        }
        if kind == kinds.login && matches!(state, State::Connected { .. }) {
            let login = V::read_login(message.body)?;
            *state = State::LoggingIn;
            return Ok(ServerEvent::Login(login));
        }
        let is_during_replay = *state == State::Replaying;
        if !is_during_replay && *state != State::Active {
            return Err(BoeError::Unexpected { kind, state: state.text() });
        }
        if kind == kinds.logout_request {
            return Ok(ServerEvent::LogoutRequest);
        }
        if !V::is_client_message(kind) {
            return Err(BoeError::Unexpected { kind, state: state.text() });
        }
        if message.sequence <= *received {
            return Err(BoeError::ClientSequence { last: *received, found: message.sequence });
        }
        *received = message.sequence;
        Ok(ServerEvent::Message { message, is_during_replay })
    }

    /// Accepts the login, and lists the last number sent from each of `units`. Then replay with
    /// [`send_again`](Self::send_again), and end with [`complete_replay`](Self::complete_replay).
    ///
    /// # Errors
    ///
    /// No login waits for an answer, or the output is too small.
    pub fn accept(&mut self, now_ns: u64, units: UnitSequences<'_>, output: &mut Output<'_>) -> Result<(), BoeError> {
        self.answer(now_ns, LoginStatus::ACCEPTED, &Text([0; 60]), units, output)?;
        self.state = State::Replaying;
        Ok(())
    }

    /// Refuses the login. Close the connection after the output was sent.
    ///
    /// # Errors
    ///
    /// No login waits for an answer, or the output is too small.
    pub fn reject(
        &mut self,
        now_ns: u64,
        status: LoginStatus,
        text: &Text<60>,
        output: &mut Output<'_>,
    ) -> Result<(), BoeError> {
        self.answer(now_ns, status, text, &[], output)?;
        self.state = State::Closed;
        Ok(())
    }

    fn answer(
        &mut self,
        now_ns: u64,
        status: LoginStatus,
        text: &Text<60>,
        units: UnitSequences<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), BoeError> {
        self.expect(State::LoggingIn)?;
        let answer = LoginAnswer { status, text: *text, last_received: self.received, units };
        emit_parts::<V>(V::KINDS.login_response, output, |output| V::write_login_answer(&answer, output))?;
        self.keep_alive.sent(now_ns);
        Ok(())
    }

    /// Sends a message of an earlier connection again, with its unit and number.
    ///
    /// # Errors
    ///
    /// Not replaying, or the output is too small.
    pub fn send_again(&mut self, now_ns: u64, message: &Message<'_>, output: &mut Output<'_>) -> Result<(), BoeError> {
        self.expect(State::Replaying)?;
        self.emit(now_ns, message, output)
    }

    /// Ends the replay.
    ///
    /// # Errors
    ///
    /// Not replaying, or the output is too small.
    pub fn complete_replay(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), BoeError> {
        self.expect(State::Replaying)?;
        self.emit(now_ns, &session_message(V::KINDS.replay_complete), output)?;
        self.state = State::Active;
        Ok(())
    }

    /// Sends an application message, and returns its number: 0 where its type has none, as rejects.
    ///
    /// # Errors
    ///
    /// Not logged in, the numbers are used up, or the output is too small.
    pub fn send(
        &mut self,
        now_ns: u64,
        kind: u16,
        unit: u8,
        body: &[u8],
        output: &mut Output<'_>,
    ) -> Result<u32, BoeError> {
        if !V::is_sequenced(kind) {
            if !matches!(self.state, State::Active | State::Replaying) {
                return Err(BoeError::State { state: self.state.text() });
            }
            self.emit(now_ns, &Message { kind, unit: 0, sequence: 0, body }, output)?;
            return Ok(0);
        }
        self.expect(State::Active)?;
        let sequence = self.units[usize::from(unit)].checked_add(1).ok_or(BoeError::NumbersUsedUp)?;
        self.emit(now_ns, &Message { kind, unit, sequence, body }, output)?;
        self.units[usize::from(unit)] = sequence;
        Ok(sequence)
    }

    /// Numbers a message that happens while the client is away, and is replayed to it later.
    ///
    /// # Errors
    ///
    /// The numbers are used up.
    pub fn number_unsent(&mut self, unit: u8) -> Result<u32, BoeError> {
        let sequence = self.units[usize::from(unit)].checked_add(1).ok_or(BoeError::NumbersUsedUp)?;
        self.units[usize::from(unit)] = sequence;
        Ok(sequence)
    }

    /// Ends the session. Close the connection after the output was sent.
    ///
    /// # Errors
    ///
    /// Not logged in, or the output is too small.
    pub fn logout(
        &mut self,
        reason: LogoutReason,
        text: &Text<60>,
        units: UnitSequences<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), BoeError> {
        if !matches!(self.state, State::Active | State::Replaying) {
            return Err(BoeError::State { state: self.state.text() });
        }
        let received = self.received;
        emit_parts::<V>(V::KINDS.logout, output, |output| V::write_logout(reason, text, received, units, output))?;
        self.state = State::Closed;
        Ok(())
    }

    /// Sends a heartbeat where one is due. Call it at [`deadline_ns`](Self::deadline_ns), after
    /// received bytes were taken.
    ///
    /// # Errors
    ///
    /// The client has been silent, or has not logged in, for too long: the session is over. Or the
    /// output is too small.
    pub fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), BoeError> {
        match self.state {
            State::Closed => return Ok(()),
            State::Connected { since_ns } => {
                let waited_ns = now_ns.saturating_sub(since_ns);
                if waited_ns >= self.config.login_ns_max {
                    self.state = State::Closed;
                    return Err(BoeError::LoginTimeout { waited_ns });
                }
                return Ok(());
            }
            State::LoggingIn | State::Replaying | State::Active => {}
        }
        if let Some(silence_ns) = self.keep_alive.dead_silence_ns(now_ns) {
            self.state = State::Closed;
            return Err(BoeError::Silence { silence_ns });
        }
        if self.state != State::LoggingIn && self.keep_alive.is_heartbeat_due(now_ns) {
            self.emit(now_ns, &session_message(V::KINDS.server_heartbeat), output)?;
        }
        Ok(())
    }

    /// When [`tick`](Self::tick) has something to do; `None` where there is no connection.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Closed => None,
            State::Connected { since_ns } => Some(since_ns.saturating_add(self.config.login_ns_max)),
            State::LoggingIn => Some(self.keep_alive.dead_at_ns()),
            State::Replaying | State::Active => Some(self.keep_alive.deadline_ns()),
        }
    }

    /// The connection is closed or broken.
    pub fn disconnected(&mut self) {
        self.state = State::Closed;
    }

    /// The last number sent from `unit`; 0 is none.
    pub fn sent(&self, unit: u8) -> u32 {
        self.units[usize::from(unit)]
    }

    /// The client's last number.
    pub fn received(&self) -> u32 {
        self.received
    }

    fn expect(&self, state: State) -> Result<(), BoeError> {
        if self.state == state { Ok(()) } else { Err(BoeError::State { state: self.state.text() }) }
    }

    fn emit(&mut self, now_ns: u64, message: &Message<'_>, output: &mut Output<'_>) -> Result<(), BoeError> {
        V::emit(message, output)?;
        self.keep_alive.sent(now_ns);
        Ok(())
    }
}

/// A message of the session without a body.
const fn session_message(kind: u16) -> Message<'static> {
    Message { kind, unit: 0, sequence: 0, body: &[] }
}
