//! The server's end: receives the login, numbers its messages, keeps the connection alive.

use zerocopy::{FromBytes, IntoBytes};

use super::{
    Credentials, LoginAccepted, LoginRejectReason, LoginRequest, NumberField, PACKET_LEN_MAX, Packet, PacketType,
    SessionId, SoupError, emit,
};
use crate::session::{KeepAlive, Output, Reassembly, SECOND_NS};

/// How a server behaves.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// Bytes of the largest packet to receive, of which the machine keeps one in pieces. By default
    /// 65,537, all that the length field allows.
    pub packet_len_max: usize,
    /// Send a heartbeat after this time without another packet. By default 1 s, as the protocol
    /// says.
    pub heartbeat_ns: u64,
    /// The client is dead after this silence. By default 15 s.
    pub silence_ns_max: u64,
    /// A connection without a login ends after this time. By default 30 s.
    pub login_ns_max: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            packet_len_max: PACKET_LEN_MAX,
            heartbeat_ns: SECOND_NS,
            silence_ns_max: 15 * SECOND_NS,
            login_ns_max: 30 * SECOND_NS,
        }
    }
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEvent<'a> {
    /// The client logs in: answer with [`Server::accept`] or [`Server::reject`].
    Login(LoginRequest),
    /// A message.
    Unsequenced(&'a [u8]),
    /// Text for people. Display it escaped.
    Debug(&'a [u8]),
    /// Nothing, from a client that is alive.
    Heartbeat,
    /// The client is done: close the connection at once. The session is over.
    Logout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Connected { since_ns: u64 },
    LoggingIn,
    LoggedIn,
    Ended,
}

impl State {
    const fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Connected { .. } => "not logged in",
            Self::LoggingIn => "logging in",
            Self::LoggedIn => "logged in",
            Self::Ended => "over",
        }
    }
}

/// The server's end of one connection. The messages of the session, which later logins may ask for
/// again, are the application's: after [`accept`](Self::accept) it sends those from the accepted
/// number on, in order.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    reassembly: Reassembly,
    keep_alive: KeepAlive,
    state: State,
    next: u64,
}

impl Server {
    /// A server without a connection.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            reassembly: Reassembly::new(config.packet_len_max),
            keep_alive: KeepAlive::new(config.heartbeat_ns, config.silence_ns_max, 0),
            state: State::Closed,
            next: 1,
            config,
        }
    }

    /// A client has connected. What was left of the last connection is forgotten.
    pub fn connected(&mut self, now_ns: u64) {
        self.reassembly.clear();
        self.keep_alive = KeepAlive::new(self.config.heartbeat_ns, self.config.silence_ns_max, now_ns);
        self.state = State::Connected { since_ns: now_ns };
    }

    /// Takes one packet from the front of `input`; `None` where `input` is used up. Call it until
    /// then. Where the session is over, input is discarded.
    ///
    /// # Errors
    ///
    /// The packet breaks a rule; the session is over, and the caller closes the connection.
    #[inline]
    pub fn receive<'s, 'i: 's>(
        &'s mut self,
        now_ns: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<ServerEvent<'s>>, SoupError> {
        if self.state == State::Closed {
            *input = &[];
            return Ok(None);
        }
        if !input.is_empty() {
            self.keep_alive.received(now_ns);
        }
        let Self { config, reassembly, state, .. } = self;
        let too_long = |len| SoupError::TooLong { len, len_max: config.packet_len_max };
        let event = match reassembly.next(input, Packet::len, too_long) {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => Packet::parse(bytes).and_then(|packet| Self::take(packet, state)),
            Err(error) => Err(error),
        };
        if event.is_err() {
            *state = State::Closed;
        }
        event.map(Some)
    }

    #[inline]
    fn take<'p>(packet: Packet<'p>, state: &mut State) -> Result<ServerEvent<'p>, SoupError> {
        match (packet.kind, *state) {
            (PacketType::Unsequenced, State::LoggedIn | State::Ended) => Ok(ServerEvent::Unsequenced(packet.payload)),
            (PacketType::ClientHeartbeat, _) => Ok(ServerEvent::Heartbeat),
            (PacketType::Debug, _) => Ok(ServerEvent::Debug(packet.payload)),
            (PacketType::LogoutRequest, _) => {
                *state = State::Closed;
                Ok(ServerEvent::Logout)
            }
            (PacketType::LoginRequest, State::Connected { .. }) => {
                let login = Self::login(packet.payload)?;
                *state = State::LoggingIn;
                Ok(ServerEvent::Login(login))
            }
            (kind, state) => Err(SoupError::Unexpected { kind, state: state.text() }),
        }
    }

    #[cold]
    fn login(payload: &[u8]) -> Result<LoginRequest, SoupError> {
        let wrong_length = SoupError::PayloadLength {
            kind: PacketType::LoginRequest,
            expected: size_of::<LoginRequest>(),
            found: payload.len(),
        };
        let login = LoginRequest::read_from_bytes(payload).map_err(|_| wrong_length)?;
        login.number.get()?;
        Ok(login)
    }

    /// Accepts the login: the next message of `session` that is sent on this connection has number
    /// `next`.
    ///
    /// # Errors
    ///
    /// No login waits for an answer, or the output is too small for 33 bytes.
    pub fn accept(
        &mut self,
        now_ns: u64,
        session: SessionId,
        next: u64,
        output: &mut Output<'_>,
    ) -> Result<(), SoupError> {
        self.expect(State::LoggingIn)?;
        let answer = LoginAccepted { session: session.to_wire(), number: NumberField::new(next) };
        self.emit(now_ns, PacketType::LoginAccepted, answer.as_bytes(), output)?;
        self.state = State::LoggedIn;
        self.next = next;
        Ok(())
    }

    /// Refuses the login. Close the connection after the output was sent.
    ///
    /// # Errors
    ///
    /// No login waits for an answer, or the output is too small for 4 bytes.
    pub fn reject(&mut self, now_ns: u64, reason: LoginRejectReason, output: &mut Output<'_>) -> Result<(), SoupError> {
        self.expect(State::LoggingIn)?;
        self.emit(now_ns, PacketType::LoginRejected, &[reason.to_wire()], output)?;
        self.state = State::Closed;
        Ok(())
    }

    /// Sends a numbered message (`S`), and returns its number.
    ///
    /// # Errors
    ///
    /// Not logged in, or the output is too small.
    pub fn send(&mut self, now_ns: u64, message: &[u8], output: &mut Output<'_>) -> Result<u64, SoupError> {
        self.expect(State::LoggedIn)?;
        self.emit(now_ns, PacketType::Sequenced, message, output)?;
        let number = self.next;
        self.next = number.saturating_add(1);
        Ok(number)
    }

    /// Sends a message without a number (`U`), which no later login can ask for.
    ///
    /// # Errors
    ///
    /// Not logged in, or the output is too small.
    pub fn send_unsequenced(&mut self, now_ns: u64, message: &[u8], output: &mut Output<'_>) -> Result<(), SoupError> {
        self.expect(State::LoggedIn)?;
        self.emit(now_ns, PacketType::Unsequenced, message, output)
    }

    /// Sends text for people, at any time while connected.
    ///
    /// # Errors
    ///
    /// Not connected, or the output is too small.
    pub fn send_debug(&mut self, now_ns: u64, text: &[u8], output: &mut Output<'_>) -> Result<(), SoupError> {
        if self.state == State::Closed {
            return Err(SoupError::State { state: self.state.text() });
        }
        self.emit(now_ns, PacketType::Debug, text, output)
    }

    /// Ends the session for good (`Z`), for this client. Close the connection after the output was
    /// sent.
    ///
    /// # Errors
    ///
    /// Not logged in, or the output is too small.
    pub fn end_session(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SoupError> {
        self.expect(State::LoggedIn)?;
        self.emit(now_ns, PacketType::EndOfSession, &[], output)?;
        self.state = State::Ended;
        Ok(())
    }

    /// Sends a heartbeat where one is due. Call it at [`deadline_ns`](Self::deadline_ns), after
    /// received bytes were taken.
    ///
    /// # Errors
    ///
    /// The client has been silent, or has not logged in, for too long: the session is over. Or the
    /// output is too small.
    pub fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SoupError> {
        match self.state {
            State::Closed | State::Ended => return Ok(()),
            State::Connected { since_ns } => {
                let waited_ns = now_ns.saturating_sub(since_ns);
                if waited_ns >= self.config.login_ns_max {
                    self.state = State::Closed;
                    return Err(SoupError::LoginTimeout { waited_ns });
                }
                return Ok(());
            }
            State::LoggingIn | State::LoggedIn => {}
        }
        if let Some(silence_ns) = self.keep_alive.dead_silence_ns(now_ns) {
            self.state = State::Closed;
            return Err(SoupError::Silence { silence_ns });
        }
        if self.state == State::LoggedIn && self.keep_alive.is_heartbeat_due(now_ns) {
            self.emit(now_ns, PacketType::ServerHeartbeat, &[], output)?;
        }
        Ok(())
    }

    /// When [`tick`](Self::tick) has something to do; `None` where there is no connection.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Closed | State::Ended => None,
            State::Connected { since_ns } => Some(since_ns.saturating_add(self.config.login_ns_max)),
            State::LoggingIn => Some(self.keep_alive.dead_at_ns()),
            State::LoggedIn => Some(self.keep_alive.deadline_ns()),
        }
    }

    /// The connection is closed or broken.
    pub fn disconnected(&mut self) {
        self.state = State::Closed;
    }

    /// Whether messages may be sent.
    pub fn is_logged_in(&self) -> bool {
        self.state == State::LoggedIn
    }

    /// The number of the next message.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    fn expect(&self, state: State) -> Result<(), SoupError> {
        if self.state == state { Ok(()) } else { Err(SoupError::State { state: self.state.text() }) }
    }

    fn emit(
        &mut self,
        now_ns: u64,
        kind: PacketType,
        payload: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), SoupError> {
        emit(kind, payload, output)?;
        self.keep_alive.sent(now_ns);
        Ok(())
    }
}

/// Judges a login for the one session `active`, whose next new message has number `next`: returns
/// the number of the first message to send. Who asks for more than exists is told `next`, so that
/// he sees what the server has lost.
///
/// # Errors
///
/// The reason to refuse the login: the credentials first, so that a stranger does not learn which
/// sessions exist.
pub fn judge_login(
    login: &LoginRequest,
    credentials: &Credentials,
    active: SessionId,
    next: u64,
) -> Result<u64, LoginRejectReason> {
    if !credentials.match_login(login) {
        return Err(LoginRejectReason::NotAuthorized);
    }
    let session = SessionId::from_wire(login.session);
    if !session.is_blank() && session != active {
        return Err(LoginRejectReason::SessionNotAvailable);
    }
    match login.number.get() {
        Ok(0) | Err(_) => Ok(next),
        Ok(number) => Ok(number.min(next)),
    }
}
