//! What a client is told at the start, and what it tells.

use super::{Credentials, LoginRejectReason, PACKET_LEN_MAX, SessionId};
use crate::session::SECOND_NS;

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// User and password.
    pub credentials: Credentials,
    /// Bytes of the largest packet to receive, of which the machine keeps one in pieces. By default
    /// 65,537, all that the length field allows.
    pub packet_len_max: usize,
    /// Send a heartbeat after this time without another packet. By default 1 s, as the protocol
    /// says.
    pub heartbeat_ns: u64,
    /// The server is dead after this silence. By default 15 s.
    pub silence_ns_max: u64,
    /// The login has failed after this time without an answer. By default 15 s.
    pub login_ns_max: u64,
}

impl ClientConfig {
    /// All defaults, with `credentials`.
    pub const fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            packet_len_max: PACKET_LEN_MAX,
            heartbeat_ns: SECOND_NS,
            silence_ns_max: 15 * SECOND_NS,
            login_ns_max: 15 * SECOND_NS,
        }
    }
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent<'a> {
    /// The login was accepted.
    LoggedIn {
        /// The session.
        session: SessionId,
        /// The number of the next message.
        next: u64,
        /// How it relates to the number asked for.
        start: StartNumber,
    },
    /// The login was refused. The server closes the connection.
    LoginRejected(LoginRejectReason),
    /// A numbered message.
    Sequenced {
        /// Its number.
        number: u64,
        /// Its bytes.
        message: &'a [u8],
    },
    /// A message without a number.
    Unsequenced(&'a [u8]),
    /// Text for people. Display it escaped.
    Debug(&'a [u8]),
    /// Nothing, from a server that is alive.
    Heartbeat,
    /// The session is over for good: the next login asks for session blank, message 1.
    EndOfSession,
}

/// The number of the first message, compared with the number asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartNumber {
    /// As asked.
    AsAsked,
    /// The newest was asked for, with 0.
    Newest,
    /// The server has fewer messages than we had received: it lost some, and will give their
    /// numbers to others. Alarm; what was received under these numbers may not have happened.
    ServerLost {
        /// The number asked for.
        asked: u64,
        /// The number of the next message.
        told: u64,
    },
    /// The server no longer has the messages from `asked` to before `told`: a gap that nobody
    /// fills.
    Gap {
        /// The number asked for.
        asked: u64,
        /// The number of the next message.
        told: u64,
    },
}

impl StartNumber {
    pub(super) const fn new(asked: u64, told: u64) -> Self {
        match asked {
            0 => Self::Newest,
            _ if told == asked => Self::AsAsked,
            _ if told < asked => Self::ServerLost { asked, told },
            _ => Self::Gap { asked, told },
        }
    }
}
