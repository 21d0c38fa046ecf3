//! Why a session of orders by iLink 3 ended.

use core::fmt;

use crate::Text;
use crate::ilink3::{IlinkError, LoginRejectReason, TerminateReason};

/// The rule that the venue broke, or why it refused us. The text is safe for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IlinkClientError {
    /// A rule of the session.
    Session(IlinkError),
    /// The session or the connection was refused.
    Refused {
        /// The code of the reason.
        error: u16,
        /// The reason.
        reason: Text<48>,
        /// The venue has messages of ours below this number that the journal does not have.
        ahead: Option<u32>,
    },
    /// The venue has ended the connection.
    Terminated {
        /// The code of the reason.
        error: u16,
        /// The reason.
        reason: Text<48>,
    },
    /// The venue does not have messages that were received from it: it has lost its session, or
    /// the journal is of another one.
    Lost {
        /// The last number that was received.
        received: u32,
        /// The venue's last number.
        sent: u32,
    },
    /// The venue has not applied messages in the middle of a connection.
    NotApplied {
        /// The first of them.
        from: u32,
    },
    /// The request behind the login has no answer.
    NoAnswer,
    /// The venue could not even read the number of a message of ours.
    Unreadable,
}

impl IlinkClientError {
    /// One side does not know what the other has: a person must compare.
    pub const fn is_gap(&self) -> bool {
        matches!(self, Self::Refused { ahead: Some(_), .. } | Self::Lost { .. } | Self::NotApplied { .. })
    }
}

impl From<IlinkError> for IlinkClientError {
    fn from(error: IlinkError) -> Self {
        Self::Session(error)
    }
}

impl fmt::Display for IlinkClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(error) => error.fmt(f),
            Self::Refused { error, reason, ahead } => {
                write!(f, "the venue refused the login: {}", LoginRejectReason(*error))?;
                with(f, reason)?;
                match ahead {
                    Some(next) => write!(f, ": it has messages of ours up to {}, the journal has fewer", next - 1),
                    None => Ok(()),
                }
            }
            Self::Terminated { error, reason } => {
                write!(f, "the venue has ended the session: {}", TerminateReason(*error))?;
                with(f, reason)
            }
            Self::Lost { received, sent } => write!(
                f,
                "the venue's last message is {sent}, and {received} was received: each session needs a journal of its \
                 own"
            ),
            Self::NotApplied { from } => {
                write!(f, "the venue has not applied message {from}, which was sent on this connection")
            }
            Self::NoAnswer => f.write_str("the request behind the login has no answer"),
            Self::Unreadable => f.write_str("the venue could not read the number of a message"),
        }
    }
}

fn with(f: &mut fmt::Formatter<'_>, text: &Text<48>) -> fmt::Result {
    if text.trimmed().is_empty() { Ok(()) } else { write!(f, " ({text})") }
}

impl core::error::Error for IlinkClientError {}
