//! The rules of BOE whose breach ends a session.

use core::fmt;

use crate::session::{Escaped, OutputFull};

/// Why a session ended, a message was refused, or a call was not possible. Bytes of the peer are
/// escaped in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoeError {
    /// A message that does not begin with the version's two bytes.
    Start {
        /// The two bytes.
        found: [u8; 2],
        /// Those of the version.
        expected: [u8; 2],
    },
    /// A message length that does not cover the header.
    TooShort {
        /// Bytes after the start.
        len: usize,
    },
    /// A message longer than this end was configured for.
    TooLong {
        /// Bytes of the message.
        len: usize,
        /// Bytes of the largest.
        len_max: usize,
    },
    /// A message with fewer bytes than its fields need, or more.
    Length {
        /// Its type.
        kind: u16,
        /// Bytes of its fixed fields.
        expected: usize,
        /// Bytes that arrived.
        found: usize,
    },
    /// A type that this direction of this version does not have.
    Unknown {
        /// The type.
        kind: u16,
    },
    /// A message that only the other end may send, or not in this state.
    Unexpected {
        /// Its type.
        kind: u16,
        /// The state.
        state: &'static str,
    },
    /// The venue's number is not the next of its unit.
    UnitSequence {
        /// The unit.
        unit: u8,
        /// The number that should come.
        expected: u32,
        /// The number that came.
        found: u32,
    },
    /// The client's number repeats or falls.
    ClientSequence {
        /// The last number.
        last: u32,
        /// The number that came.
        found: u32,
    },
    /// A bit that asks for a field that the table does not have, so that what follows it cannot be
    /// found.
    Bitfield {
        /// The bitfield, from 0.
        byte: u8,
        /// The bit, from 0, the lowest.
        bit: u8,
    },
    /// A group of the login that does not end where it says.
    Group {
        /// Its type.
        kind: u8,
    },
    /// No login, or no answer to it, in time.
    LoginTimeout {
        /// Time since the connection was made.
        waited_ns: u64,
    },
    /// No answer to a logout in time.
    LogoutTimeout {
        /// Time since the logout.
        waited_ns: u64,
    },
    /// Nothing was received for too long.
    Silence {
        /// Time since the last byte.
        silence_ns: u64,
    },
    /// The numbers of the day are used up.
    NumbersUsedUp,
    /// The call needs another state.
    State {
        /// The state.
        state: &'static str,
    },
    /// The output is too small; the session is unchanged.
    OutputFull(OutputFull),
}

impl From<OutputFull> for BoeError {
    fn from(full: OutputFull) -> Self {
        Self::OutputFull(full)
    }
}

impl fmt::Display for BoeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns / 1_000_000;
        match *self {
            Self::Start { ref found, ref expected } => {
                write!(f, "a message begins with \"{}\", this one with \"{}\"", Escaped(expected), Escaped(found))
            }
            Self::TooShort { len } => write!(f, "a message has at least its header, this one has {len} bytes"),
            Self::TooLong { len, len_max } => {
                write!(f, "a message has at most {len_max} bytes here, this one has {len}")
            }
            Self::Length { kind, expected, found } => {
                write!(f, "message {kind:#x} has {expected} bytes of fields, this one has {found}")
            }
            Self::Unknown { kind } => write!(f, "the version has no message {kind:#x}"),
            Self::Unexpected { kind, state } => write!(f, "message {kind:#x} must not arrive while {state}"),
            Self::UnitSequence { unit, expected, found } => {
                write!(f, "the numbers of unit {unit} go up by one: {expected} should come, not {found}")
            }
            Self::ClientSequence { last, found } => {
                write!(f, "a client's numbers never repeat or fall, this one is {found} after {last}")
            }
            Self::Bitfield { byte, bit } => {
                write!(f, "bits name fields of the table, bit {bit} of bitfield {byte} names none")
            }
            Self::Group { kind } => write!(f, "a group of the login ends where it says, group {kind:#x} does not"),
            Self::LoginTimeout { waited_ns } => {
                write!(f, "a login is sent and answered at once, this one is missing after {} ms", ms(waited_ns))
            }
            Self::LogoutTimeout { waited_ns } => {
                write!(f, "a logout is answered at once, this one is not after {} ms", ms(waited_ns))
            }
            Self::Silence { silence_ns } => {
                write!(f, "an idle peer sends a heartbeat each second, this one sent nothing for {} ms", ms(silence_ns))
            }
            Self::NumbersUsedUp => f.write_str("the session's numbers are used up"),
            Self::State { state } => write!(f, "the session is {state}"),
            Self::OutputFull(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for BoeError {}
