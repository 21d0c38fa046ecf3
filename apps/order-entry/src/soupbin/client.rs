//! The client's end: logs in, counts the server's messages, keeps the connection alive.

use zerocopy::{FromBytes, IntoBytes};

use super::client_event::{ClientConfig, ClientEvent, StartNumber};
use super::{LoginAccepted, LoginRejectReason, Packet, PacketType, SessionId, SoupError, emit};
use crate::session::{KeepAlive, Output, Reassembly};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    LoggingIn { since_ns: u64, asked: u64 },
    LoggedIn,
    LoggedOut,
    Ended,
}

impl State {
    const fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::LoggingIn { .. } => "logging in",
            Self::LoggedIn => "logged in",
            Self::LoggedOut => "logged out",
            Self::Ended => "over",
        }
    }
}

/// The client of one session, over any number of connections, one after the other. A call costs
/// some ten nanoseconds and allocates nothing; memory is one packet, taken at the start.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    reassembly: Reassembly,
    keep_alive: KeepAlive,
    state: State,
    session: SessionId,
    next: u64,
}

impl Client {
    /// A client that is not connected.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            reassembly: Reassembly::new(config.packet_len_max),
            keep_alive: KeepAlive::new(config.heartbeat_ns, config.silence_ns_max, 0),
            state: State::Closed,
            session: SessionId::BLANK,
            next: 1,
            config,
        }
    }

    /// Begins a connection that was just made: writes the login for `session`
    /// ([`SessionId::BLANK`] is the active one) from message `number` on (1 is all, 0 begins with
    /// the next new one). What was left of the last connection is forgotten.
    ///
    /// # Errors
    ///
    /// The output is too small for 49 bytes.
    pub fn connect(
        &mut self,
        now_ns: u64,
        session: SessionId,
        number: u64,
        output: &mut Output<'_>,
    ) -> Result<(), SoupError> {
        let login = self.config.credentials.login(session, number);
        emit(PacketType::LoginRequest, login.as_bytes(), output)?;
        self.reassembly.clear();
        self.keep_alive = KeepAlive::new(self.config.heartbeat_ns, self.config.silence_ns_max, now_ns);
        self.state = State::LoggingIn { since_ns: now_ns, asked: number };
        (self.session, self.next) = (session, number);
        Ok(())
    }

    /// Begins a connection that continues the session where the last one broke; after the end of
    /// a session, the next one from its first message.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn reconnect(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SoupError> {
        self.connect(now_ns, self.session, self.next, output)
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
    ) -> Result<Option<ClientEvent<'s>>, SoupError> {
        if self.state == State::Closed {
            *input = &[];
            return Ok(None);
        }
        if !input.is_empty() {
            self.keep_alive.received(now_ns);
        }
        let Self { config, reassembly, state, session, next, .. } = self;
        let too_long = |len| SoupError::TooLong { len, len_max: config.packet_len_max };
        let event = match reassembly.next(input, Packet::len, too_long) {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => Packet::parse(bytes).and_then(|packet| Self::take(packet, state, session, next)),
            Err(error) => Err(error),
        };
        if event.is_err() {
            *state = State::Closed;
        }
        event.map(Some)
    }

    #[inline]
    fn take<'p>(
        packet: Packet<'p>,
        state: &mut State,
        session: &mut SessionId,
        next: &mut u64,
    ) -> Result<ClientEvent<'p>, SoupError> {
        match (packet.kind, *state) {
            (PacketType::Sequenced, State::LoggedIn | State::LoggedOut) => {
                let number = *next;
                // 2^64 messages do not occur, but the server may say that they did.
                *next = number.saturating_add(1);
                Ok(ClientEvent::Sequenced { number, message: packet.payload })
            }
            (PacketType::Unsequenced, State::LoggedIn | State::LoggedOut) => {
                Ok(ClientEvent::Unsequenced(packet.payload))
            }
            (PacketType::ServerHeartbeat, _) => Ok(ClientEvent::Heartbeat),
            (PacketType::Debug, _) => Ok(ClientEvent::Debug(packet.payload)),
            (PacketType::LoginAccepted, State::LoggingIn { asked, .. }) => {
                let told = Self::accepted(packet.payload, *session)?;
                *state = State::LoggedIn;
                (*session, *next) = told;
                let start = StartNumber::new(asked, *next);
                Ok(ClientEvent::LoggedIn { session: *session, next: *next, start })
            }
            (PacketType::LoginRejected, State::LoggingIn { .. }) => {
                *state = State::Closed;
                let reason = packet.payload.first().copied().unwrap_or_default();
                Ok(ClientEvent::LoginRejected(LoginRejectReason::from_wire(reason)))
            }
            (PacketType::EndOfSession, State::LoggedIn | State::LoggedOut) => {
                *state = State::Ended;
                (*session, *next) = (SessionId::BLANK, 1);
                Ok(ClientEvent::EndOfSession)
            }
            (kind, state) => Err(SoupError::Unexpected { kind, state: state.text() }),
        }
    }

    /// Session and number of the server's answer to a login for `asked`.
    #[cold]
    fn accepted(payload: &[u8], asked: SessionId) -> Result<(SessionId, u64), SoupError> {
        let wrong_length = SoupError::PayloadLength {
            kind: PacketType::LoginAccepted,
            expected: size_of::<LoginAccepted>(),
            found: payload.len(),
        };
        let answer = LoginAccepted::ref_from_bytes(payload).map_err(|_| wrong_length)?;
        let session = SessionId::from_wire(answer.session);
        if !asked.is_blank() && session != asked {
            return Err(SoupError::OtherSession { asked, told: session });
        }
        match answer.number.get()? {
            0 => Err(SoupError::NumberZero),
            number => Ok((session, number)),
        }
    }

    /// Sends a message (`U`). It has no number, and may be lost with the connection.
    ///
    /// # Errors
    ///
    /// Not logged in, or the output is too small.
    pub fn send(&mut self, now_ns: u64, message: &[u8], output: &mut Output<'_>) -> Result<(), SoupError> {
        self.logged_in()?;
        self.emit(now_ns, PacketType::Unsequenced, message, output)
    }

    /// Whether messages may be sent, and that one was, which the caller has prepared as a whole
    /// packet and sends itself.
    ///
    /// # Errors
    ///
    /// Not logged in.
    #[inline]
    pub fn sent(&mut self, now_ns: u64) -> Result<(), SoupError> {
        self.logged_in()?;
        self.keep_alive.sent(now_ns);
        Ok(())
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

    /// Asks the server to close the connection. Messages may still arrive until it does.
    ///
    /// # Errors
    ///
    /// Not logged in, or the output is too small.
    pub fn logout(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SoupError> {
        self.logged_in()?;
        self.emit(now_ns, PacketType::LogoutRequest, &[], output)?;
        self.state = State::LoggedOut;
        Ok(())
    }

    /// Sends a heartbeat where one is due. Call it at [`deadline_ns`](Self::deadline_ns), after
    /// received bytes were taken.
    ///
    /// # Errors
    ///
    /// The server has been silent, or the login unanswered, for too long: the session is over. Or
    /// the output is too small.
    pub fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SoupError> {
        match self.state {
            State::Closed | State::Ended => return Ok(()),
            State::LoggingIn { since_ns, .. } => {
                let waited_ns = now_ns.saturating_sub(since_ns);
                if waited_ns >= self.config.login_ns_max {
                    self.state = State::Closed;
                    return Err(SoupError::LoginTimeout { waited_ns });
                }
            }
            State::LoggedIn | State::LoggedOut => {
                if let Some(silence_ns) = self.keep_alive.dead_silence_ns(now_ns) {
                    self.state = State::Closed;
                    return Err(SoupError::Silence { silence_ns });
                }
            }
        }
        if self.state != State::LoggedOut && self.keep_alive.is_heartbeat_due(now_ns) {
            self.emit(now_ns, PacketType::ClientHeartbeat, &[], output)?;
        }
        Ok(())
    }

    /// When [`tick`](Self::tick) has something to do; `None` where there is no connection.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Closed | State::Ended => None,
            State::LoggingIn { since_ns, .. } => {
                Some(self.keep_alive.heartbeat_at_ns().min(since_ns.saturating_add(self.config.login_ns_max)))
            }
            State::LoggedIn => Some(self.keep_alive.deadline_ns()),
            State::LoggedOut => Some(self.keep_alive.dead_at_ns()),
        }
    }

    /// The connection is closed or broken. Session and number are kept for
    /// [`reconnect`](Self::reconnect).
    pub fn disconnected(&mut self) {
        self.state = State::Closed;
    }

    /// Whether messages may be sent.
    pub fn is_logged_in(&self) -> bool {
        self.state == State::LoggedIn
    }

    /// The session; blank before the first login and after the end of a session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The number of the next message.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    #[inline]
    fn logged_in(&self) -> Result<(), SoupError> {
        match self.state {
            State::LoggedIn => Ok(()),
            state => Err(SoupError::State { state: state.text() }),
        }
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
