//! MEMX-TCP as far as a server of replays speaks it, big endian: who was not sent a message asks
//! for it again.
//!
//! A message is `0:1 type, 1:2 bytes that follow` and those bytes. After a login the server says
//! which requests it takes and which session is active; a replay is its begin, its messages as the
//! feed had them, and its end.
//!
//! ```text
//!   100 login          0:1 type of the token, then the token
//!   101 replay request 0:8 session, 8:8 first number, 16:4 count
//!     1 login accepted 0:1 mode (S, R, T)        2 login rejected 0:1 reason
//!     3 session starts 0:8 session               4 it ends
//!     5 replay begins  0:8 first number, 8:4 count   6 rejected 0:1 reason   7 complete 0:8 count
//!    11 a message of the feed                    0 heartbeat, of both ends
//! ```

use arrayvec::ArrayVec;

/// Bytes in front of each message.
const HEADER_LEN: usize = 3;

/// The proof of who logs in, as the venue has given it.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginToken {
    /// The letter of its type.
    pub kind: u8,
    token: ArrayVec<u8, { LoginToken::LEN_MAX }>,
}

impl LoginToken {
    /// Bytes of a token at most.
    pub const LEN_MAX: usize = 255;

    /// `None` where the token is empty or longer than that.
    pub fn new(kind: u8, token: &str) -> Option<Self> {
        let token = ArrayVec::try_from(token.as_bytes()).ok().filter(|token| !token.is_empty())?;
        Some(Self { kind, token })
    }
}

impl core::fmt::Debug for LoginToken {
    /// Without the token.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "LoginToken({})", self.kind.escape_ascii())
    }
}

/// A message of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a connection makes a few of them, and keeps none")]
pub enum ClientMessage {
    /// The first of a connection.
    Login(LoginToken),
    /// Asks for messages.
    ReplayRequest {
        /// Of this session.
        session: u64,
        /// The first of them.
        seq: u64,
        /// How many.
        count: u32,
    },
    /// It is there.
    Heartbeat,
}

/// Bytes of the longest [`ClientMessage`].
const CLIENT_LEN_MAX: usize = HEADER_LEN + 1 + LoginToken::LEN_MAX;

impl ClientMessage {
    /// Its bytes.
    pub fn emit(&self) -> ArrayVec<u8, CLIENT_LEN_MAX> {
        let mut out = ArrayVec::new();
        let mut put = |kind: u8, parts: &[&[u8]]| {
            let len: usize = parts.iter().map(|part| part.len()).sum();
            out.push(kind);
            for part in [&(len as u16).to_be_bytes()[..]].iter().chain(parts) {
                out.try_extend_from_slice(part).expect("the longest message fits");
            }
        };
        match self {
            Self::Login(login) => put(100, &[&[login.kind], &login.token]),
            Self::ReplayRequest { session, seq, count } => {
                put(101, &[&session.to_be_bytes(), &seq.to_be_bytes(), &count.to_be_bytes()]);
            }
            Self::Heartbeat => put(0, &[]),
        }
        out
    }

    /// Splits the first message off `bytes`: the message, where it is one of these, and the rest.
    /// `None` until it is whole. For servers of tests.
    pub fn split(bytes: &[u8]) -> Option<(Option<Self>, &[u8])> {
        let (kind, body, rest) = split(bytes)?;
        let message = match kind {
            0 => Some(Self::Heartbeat),
            100 => body.split_first().and_then(|(&kind, token)| {
                Some(Self::Login(LoginToken { kind, token: ArrayVec::try_from(token).ok()? }))
            }),
            101 => number(body, 0).zip(number(body, 8)).zip(body.get(16..20)).map(|((session, seq), count)| {
                let count = count.iter().fold(0, |count, &byte| count << 8 | u32::from(byte));
                Self::ReplayRequest { session, seq, count }
            }),
            _ => None,
        };
        Some((message, rest))
    }
}

/// A message of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMessage<'a> {
    /// The login is good; [`REPLAY`] is the mode of a server that takes requests for replays.
    LoginAccepted {
        /// Which requests it takes.
        mode: u8,
    },
    /// It is not.
    LoginRejected {
        /// `T`, `U` and `V` are about the token's form and type, `A` about its right.
        reason: u8,
    },
    /// The session that requests may name.
    StartOfSession {
        /// Its number.
        session: u64,
    },
    /// There is none any more.
    EndOfSession,
    /// The messages that were asked for follow.
    ReplayBegin {
        /// Number of the first.
        seq: u64,
        /// How many.
        count: u32,
    },
    /// They do not.
    ReplayRejected {
        /// `P` another session, `S` no such numbers, `R` and `A` no such requests.
        reason: u8,
    },
    /// That were all.
    ReplayComplete,
    /// A message of the feed.
    Sequenced(&'a [u8]),
    /// It is there.
    Heartbeat,
    /// One that says nothing to who asks for replays.
    Other,
}

/// The mode of a server of replays.
pub const REPLAY: u8 = b'R';

impl<'a> ServerMessage<'a> {
    /// Splits the first message off `bytes`: the message and the rest. `None` until it is whole.
    /// One that is shorter than its type is [`ServerMessage::Other`].
    pub fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (kind, body, rest) = split(bytes)?;
        let first = body.first().copied();
        let message = match kind {
            0 => Some(Self::Heartbeat),
            1 => first.map(|mode| Self::LoginAccepted { mode }),
            2 => first.map(|reason| Self::LoginRejected { reason }),
            3 => number(body, 0).map(|session| Self::StartOfSession { session }),
            4 => Some(Self::EndOfSession),
            5 => number(body, 0).zip(body.get(8..12)).map(|(seq, count)| {
                let count = count.iter().fold(0, |count, &byte| count << 8 | u32::from(byte));
                Self::ReplayBegin { seq, count }
            }),
            6 => first.map(|reason| Self::ReplayRejected { reason }),
            7 => Some(Self::ReplayComplete),
            11 => Some(Self::Sequenced(body)),
            _ => None,
        };
        Some((message.unwrap_or(Self::Other), rest))
    }

    /// Writes it behind `out`: for simulators and tests.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, body: &[u8]| {
            out.push(kind);
            out.extend((body.len() as u16).to_be_bytes());
            out.extend(body);
        };
        match *self {
            Self::Heartbeat => put(0, &[]),
            Self::LoginAccepted { mode } => put(1, &[mode]),
            Self::LoginRejected { reason } => put(2, &[reason]),
            Self::StartOfSession { session } => put(3, &session.to_be_bytes()),
            Self::EndOfSession => put(4, &[]),
            Self::ReplayBegin { seq, count } => put(5, &[&seq.to_be_bytes()[..], &count.to_be_bytes()].concat()),
            Self::ReplayRejected { reason } => put(6, &[reason]),
            Self::ReplayComplete => put(7, &[0; 8]),
            Self::Sequenced(message) => put(11, message),
            Self::Other => {}
        }
    }
}

/// Type, body and what follows; `None` until the message is whole.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let ([kind, high, low], rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let (body, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
    Some((*kind, body, rest))
}

fn number(body: &[u8], at: usize) -> Option<u64> {
    body.get(at..)?.first_chunk().map(|number| u64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_those_of_the_specification() {
        let login = ClientMessage::Login(LoginToken::new(b'P', "who").unwrap());
        assert_eq!(login.emit()[..], [100, 0, 4, b'P', b'w', b'h', b'o']);
        let request = ClientMessage::ReplayRequest { session: 9, seq: 513, count: 40 };
        let expected = [&[101, 0, 20][..], &[0; 7], &[9], &[0; 6], &[2, 1], &[0, 0, 0, 40]].concat();
        assert_eq!(request.emit()[..], expected);
        assert_eq!(ClientMessage::Heartbeat.emit()[..], [0, 0, 0]);
        for message in [login, request, ClientMessage::Heartbeat] {
            assert_eq!(ClientMessage::split(&message.emit()), Some((Some(message.clone()), &[][..])));
        }
    }

    #[test]
    fn each_message_of_a_server_is_read_as_it_was_written_and_not_before_it_is_whole() {
        let messages = [
            ServerMessage::LoginAccepted { mode: REPLAY },
            ServerMessage::LoginRejected { reason: b'A' },
            ServerMessage::StartOfSession { session: u64::MAX },
            ServerMessage::EndOfSession,
            ServerMessage::ReplayBegin { seq: 7, count: 513 },
            ServerMessage::ReplayRejected { reason: b'S' },
            ServerMessage::ReplayComplete,
            ServerMessage::Sequenced(b"message"),
            ServerMessage::Heartbeat,
        ];
        for message in messages {
            let mut bytes = Vec::new();
            message.emit(&mut bytes);
            assert!((0..bytes.len()).all(|len| ServerMessage::split(&bytes[..len]).is_none()));
            bytes.push(1);
            assert_eq!(ServerMessage::split(&bytes), Some((message, &[1][..])));
        }
        // Shorter than its type, and of no type.
        assert_eq!(ServerMessage::split(&[5, 0, 2, 1, 1]), Some((ServerMessage::Other, &[][..])));
        assert_eq!(ServerMessage::split(&[99, 0, 0]), Some((ServerMessage::Other, &[][..])));
    }

    proptest! {
        #[test]
        fn any_bytes_are_messages_or_the_beginning_of_one(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut rest, mut whole) = (&bytes[..], 0);
            while let Some((_, behind)) = ServerMessage::split(rest) {
                prop_assert_eq!(ClientMessage::split(rest).map(|(_, behind)| behind), Some(behind));
                whole += rest.len() - behind.len();
                rest = behind;
            }
            prop_assert_eq!(whole + rest.len(), bytes.len());
        }
    }

    #[test]
    fn token_is_not_printed() {
        let token = LoginToken::new(b'P', "secret").unwrap();
        assert_eq!(format!("{token:?}"), "LoginToken(P)");
        assert_eq!((LoginToken::new(b'P', ""), LoginToken::new(b'P', &"x".repeat(256))), (None, None));
    }
}
