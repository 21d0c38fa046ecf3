//! The rules of SoupBinTCP whose breach ends a session.

use core::fmt;

use super::{PacketType, SessionId};
use crate::session::{Escaped, OutputFull};

/// Why a session ended, or a call was refused. The text names the rule; bytes of the peer are
/// escaped in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoupError {
    /// A packet of length 0.
    NoType,
    /// A packet longer than this end was configured for.
    TooLong {
        /// Bytes of the packet.
        len: usize,
        /// Bytes of the largest packet.
        len_max: usize,
    },
    /// A type byte that the protocol does not have.
    UnknownType {
        /// The byte.
        kind: u8,
    },
    /// A type whose payload has always one length, with another.
    PayloadLength {
        /// The type.
        kind: PacketType,
        /// Bytes that the type has.
        expected: usize,
        /// Bytes that arrived.
        found: usize,
    },
    /// A type that only the other end may send, or only before or after the login.
    Unexpected {
        /// The type.
        kind: PacketType,
        /// In which state it arrived.
        state: &'static str,
    },
    /// A number that is not digits padded with spaces on the left, or exceeds 64 bits.
    BadNumber {
        /// The field.
        field: [u8; 20],
    },
    /// The server accepted the login with message number 0, while numbers begin at 1.
    NumberZero,
    /// The server accepted another session than the client asked for.
    OtherSession {
        /// The session asked for.
        asked: SessionId,
        /// The session accepted.
        told: SessionId,
    },
    /// No login, or no answer to it, in time.
    LoginTimeout {
        /// Time since the connection was made.
        waited_ns: u64,
    },
    /// Nothing was received for too long.
    Silence {
        /// Time since the last byte.
        silence_ns: u64,
    },
    /// The call needs another state: not logged in, or over.
    State {
        /// The state.
        state: &'static str,
    },
    /// The output is too small; the session is unchanged.
    OutputFull(OutputFull),
}

impl From<OutputFull> for SoupError {
    fn from(full: OutputFull) -> Self {
        Self::OutputFull(full)
    }
}

impl fmt::Display for SoupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns / 1_000_000;
        match *self {
            Self::NoType => f.write_str("a packet has at least a type byte, this one has length 0"),
            Self::TooLong { len, len_max } => {
                write!(f, "a packet has at most {len_max} bytes here, this one has {len}")
            }
            Self::UnknownType { kind } => write!(f, "the protocol has no packet type {}", Escaped(&[kind])),
            Self::PayloadLength { kind, expected, found } => {
                write!(f, "the payload of {kind:?} has {expected} bytes, this one has {found}")
            }
            Self::Unexpected { kind, state } => write!(f, "{kind:?} must not arrive while {state}"),
            Self::BadNumber { ref field } => {
                write!(f, "a number is digits after spaces, this one is \"{}\"", Escaped(field))
            }
            Self::NumberZero => f.write_str("message numbers begin at 1, the login was accepted with 0"),
            Self::OtherSession { asked, told } => {
                write!(f, "a login is accepted for the session asked for, {asked}, and not for {told}")
            }
            Self::LoginTimeout { waited_ns } => {
                write!(f, "a login is sent and answered at once, this one is missing after {} ms", ms(waited_ns))
            }
            Self::Silence { silence_ns } => {
                write!(f, "an idle peer sends a heartbeat each second, this one sent nothing for {} ms", ms(silence_ns))
            }
            Self::State { state } => write!(f, "the session is {state}"),
            Self::OutputFull(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for SoupError {}
