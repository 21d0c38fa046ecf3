//! What a server is told at the start, and what it tells.

#[cfg(doc)]
use super::Server;
use super::{Establish, Frame, MESSAGE_LEN_MAX, Missing, Negotiate, RetransmitRequest};
use crate::session::SECOND_NS;

/// How a server behaves.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// Bytes of the largest message to receive, of which the machine keeps one in pieces. By
    /// default 65,535, all that the length field allows.
    pub message_len_max: usize,
    /// A connection that is not established ends after this time. By default 30 s.
    pub login_ns_max: u64,
    /// A termination has failed after this time without an answer. By default 2 s.
    pub terminate_ns_max: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { message_len_max: MESSAGE_LEN_MAX, login_ns_max: 30 * SECOND_NS, terminate_ns_max: 2 * SECOND_NS }
    }
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEvent<'a> {
    /// The client begins a session: check [`negotiate_signature`](super::negotiate_signature), and
    /// answer with [`Server::accept_negotiation`] or [`Server::reject_negotiation`].
    Negotiate(&'a Negotiate),
    /// The client begins a connection: check
    /// [`establish_signature`](super::establish_signature), and answer with
    /// [`Server::accept_establishment`] or [`Server::reject_establishment`].
    Establish(&'a Establish),
    /// An application message.
    Message {
        /// Its number.
        number: u32,
        /// The message.
        frame: Frame<'a>,
        /// Messages that are missing before this one: [`Server::tick`] tells the client.
        missing: Option<Missing>,
        /// It is one of those that were told as not applied, each of which is taken once.
        is_sent_again: bool,
    },
    /// The client asks for messages again: answer with [`Server::begin_retransmission`] or
    /// [`Server::reject_retransmission`].
    RetransmitRequest(&'a RetransmitRequest),
    /// Nothing, from a client that is alive; also its login once more, which [`Server::tick`]
    /// answers as before.
    KeepAlive {
        /// The client has heard nothing from us for an interval.
        is_lapsed: bool,
    },
    /// The client ended the connection. [`Server::tick`] answers; then close.
    Terminated {
        /// The code of the reason.
        error: u16,
    },
}
