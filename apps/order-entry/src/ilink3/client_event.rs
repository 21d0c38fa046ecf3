//! What a client is told at the start, and what it tells.

#[cfg(doc)]
use super::Client;
use super::{Frame, Key, MESSAGE_LEN_MAX};
use crate::Text;
use crate::session::SECOND_NS;

/// Who logs in.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The session.
    pub session: Text<3>,
    /// The firm.
    pub firm: Text<5>,
    /// The key's identifier.
    pub access_key: Text<20>,
    /// The key.
    pub key: Key,
    /// Name of the trading system.
    pub system: Text<30>,
    /// Its version.
    pub system_version: Text<10>,
    /// Its vendor.
    pub system_vendor: Text<10>,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Who logs in.
    pub identity: Identity,
    /// Bytes of the largest message to receive, of which the machine keeps one in pieces. By
    /// default 65,535, all that the length field allows.
    pub message_len_max: usize,
    /// The longest silence before a keep-alive, ms. By default 10,000.
    pub keep_alive_ms: u16,
    /// A login without an answer is sent once more after this time, and has failed after the same
    /// time again. By default 10 s, as the keep-alive.
    pub login_ns_max: u64,
    /// A request for messages again is made once more after this time without one of them, and ends
    /// the session after the same time again. By default 10 s.
    pub retransmit_ns_max: u64,
    /// A termination has failed after this time without an answer. By default 2 s.
    pub terminate_ns_max: u64,
}

impl ClientConfig {
    /// All defaults, with `identity`.
    pub const fn new(identity: Identity) -> Self {
        Self {
            identity,
            message_len_max: MESSAGE_LEN_MAX,
            keep_alive_ms: 10_000,
            login_ns_max: 10 * SECOND_NS,
            retransmit_ns_max: 10 * SECOND_NS,
            terminate_ns_max: 2 * SECOND_NS,
        }
    }
}

/// Messages that are missing: `count` from `from` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The first number.
    pub from: u32,
    /// How many.
    pub count: u32,
}

impl Missing {
    pub(super) fn has(self, number: u32) -> bool {
        number.checked_sub(self.from).is_some_and(|idx| idx < self.count)
    }
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent<'a> {
    /// The session is negotiated: establish it.
    Negotiated {
        /// In how many days the key expires; 65535 is not said.
        key_expires_days: u16,
    },
    /// The session or connection is refused. The venue closes the connection.
    Refused {
        /// The code of the reason.
        error: u16,
        /// The reason.
        reason: Text<48>,
        /// The number of ours that the venue expects, where an establishment was refused.
        next: Option<u32>,
    },
    /// The connection is established: orders may be sent.
    Established {
        /// The venue's messages that we have not received, under this identifier of the session.
        /// Ask for them with [`Client::request_retransmit`].
        missed: Option<Missing>,
        /// The same of the session before, where one was negotiated since, with its identifier: ask
        /// for them by that.
        missed_before: Option<(u64, Missing)>,
        /// The venue's identifier of the session before, and the last number of it.
        previous: (u64, u32),
    },
    /// An application message.
    Message {
        /// Its number.
        number: u32,
        /// The message.
        frame: Frame<'a>,
        /// Messages that are missing before this one: ask for them, and hold this and the next
        /// ones back until they came.
        missing: Option<Missing>,
        /// It was asked for again.
        is_retransmitted: bool,
    },
    /// The messages that were asked for follow.
    Retransmission(Missing),
    /// The messages that were asked for do not follow.
    RetransmitRejected {
        /// The code of the reason.
        error: u16,
        /// The reason.
        reason: Text<48>,
    },
    /// The venue has not seen these of our messages: send them again, or skip them. What was not
    /// sent again when the next keep-alive is due is skipped by it.
    NotApplied(Missing),
    /// Nothing, from a venue that is alive; also its second answer to a login that was sent twice.
    KeepAlive {
        /// Messages of the venue that are missing.
        missing: Option<Missing>,
        /// The venue has heard nothing from us for an interval.
        is_lapsed: bool,
    },
    /// The venue ended the connection. [`Client::tick`] answers; then close.
    Terminated {
        /// The code of the reason.
        error: u16,
        /// The reason.
        reason: Text<48>,
    },
}
