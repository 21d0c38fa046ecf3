//! What a client is told at the start, and what it tells.

use super::{Credentials, LoginStatus, LogoutReason, MESSAGE_LEN_MAX, Message, UnspecifiedUnits};
use crate::Text;
use crate::session::SECOND_NS;

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// Who logs in.
    pub credentials: Credentials,
    /// What the venue does about units from which nothing was received. By default it replays them
    /// from their first message.
    pub unspecified: UnspecifiedUnits,
    /// Bytes of the largest message to receive, of which the machine keeps one in pieces. By
    /// default 65,537, all that the length field allows.
    pub message_len_max: usize,
    /// Send a heartbeat after this time without another message. By default 1 s.
    pub heartbeat_ns: u64,
    /// The venue is dead after this silence. By default 5 s.
    pub silence_ns_max: u64,
    /// The login has failed after this time without an answer. By default 15 s.
    pub login_ns_max: u64,
    /// A logout has failed after this time without an answer, though heartbeats come. By default
    /// 2 s.
    pub logout_ns_max: u64,
}

impl ClientConfig {
    /// All defaults, with `credentials`.
    pub const fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            unspecified: UnspecifiedUnits::Replay,
            message_len_max: MESSAGE_LEN_MAX,
            heartbeat_ns: SECOND_NS,
            silence_ns_max: 5 * SECOND_NS,
            login_ns_max: 15 * SECOND_NS,
            logout_ns_max: 2 * SECOND_NS,
        }
    }
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent<'a> {
    /// The login was accepted; the replay follows.
    LoggedIn {
        /// The last of our messages that the venue has read.
        last_received: u32,
    },
    /// The login was refused. The venue closes the connection.
    LoginRejected {
        /// Why.
        status: LoginStatus,
        /// More about it.
        text: Text<60>,
    },
    /// The replay is over: orders may be sent.
    ReplayComplete,
    /// The replay is over, and orders may be sent, but messages that the venue told at login did
    /// not come: what became of our messages without an answer is not known. Their unit may go on
    /// behind the gap. Told of the first such unit.
    ReplayIncomplete {
        /// The unit.
        unit: u8,
        /// The last number that came.
        received: u32,
        /// The last number that the login told.
        told: u32,
    },
    /// An application message; those with a number are in order for each unit.
    Message(Message<'a>),
    /// Nothing, from a venue that is alive.
    Heartbeat,
    /// The venue ended the session.
    Logout {
        /// Why.
        reason: LogoutReason,
        /// More about it.
        text: Text<60>,
    },
}
