//! Why a session of orders by BOE ended.

use core::fmt;

use crate::Text;
use crate::boe::{BoeError, LoginStatus, LogoutReason};

/// The rule that the venue broke, or why it refused us. The text is safe for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoeClientError {
    /// A rule of the session.
    Session(BoeError),
    /// The login was refused.
    LoginRejected {
        /// Why.
        status: LoginStatus,
        /// More about it.
        text: Text<60>,
    },
    /// The venue has ended the connection.
    Logout {
        /// Why.
        reason: LogoutReason,
        /// More about it.
        text: Text<60>,
    },
}

impl BoeClientError {
    /// The venue does not have what was received from it: it has lost its day, or the journal is of
    /// another one.
    pub const fn is_gap(&self) -> bool {
        matches!(self, Self::LoginRejected { status: LoginStatus::SEQUENCE_AHEAD, .. })
    }
}

impl From<BoeError> for BoeClientError {
    fn from(error: BoeError) -> Self {
        Self::Session(error)
    }
}

impl fmt::Display for BoeClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(error) => error.fmt(f),
            Self::LoginRejected { status, text } => {
                write!(f, "the venue refused the login: {status}")?;
                with(f, text)?;
                if self.is_gap() { f.write_str(": each day needs a journal of its own") } else { Ok(()) }
            }
            Self::Logout { reason, text } => {
                write!(f, "the venue has ended the session: {reason}")?;
                with(f, text)
            }
        }
    }
}

fn with(f: &mut fmt::Formatter<'_>, text: &Text<60>) -> fmt::Result {
    if text.trimmed().is_empty() { Ok(()) } else { write!(f, " ({text})") }
}

impl core::error::Error for BoeClientError {}
