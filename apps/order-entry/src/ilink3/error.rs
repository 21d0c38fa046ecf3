//! The rules of iLink 3 whose breach ends a session.

use core::fmt;

use super::{Establish, Negotiate, TerminateReason};
use crate::session::OutputFull;

/// Why a session ended, a message was refused, or a call was not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IlinkError {
    /// A framing header with another encoding than 0xCAFE.
    Encoding {
        /// The encoding.
        found: u16,
    },
    /// A length that does not cover the headers and the block.
    TooShort {
        /// Bytes of the message.
        len: usize,
    },
    /// A message longer than this end was configured for.
    TooLong {
        /// Bytes of the message.
        len: usize,
        /// Bytes of the largest.
        len_max: usize,
    },
    /// Another schema than 8.
    Schema {
        /// The schema.
        found: u16,
    },
    /// A block with fewer bytes than its fields.
    Length {
        /// The template.
        template: u16,
        /// Bytes of the fields.
        expected: usize,
        /// Bytes that arrived.
        found: usize,
    },
    /// A message that only the other end may send, or not in this state.
    Unexpected {
        /// The template.
        template: u16,
        /// The state.
        state: &'static str,
    },
    /// An answer that does not repeat the identifier or time of its request.
    Echo {
        /// The template of the answer.
        template: u16,
    },
    /// The identifier of a message is not the session's.
    Uuid {
        /// The session's.
        expected: u64,
        /// The message's.
        found: u64,
    },
    /// The identifier of a new session is not above the last.
    UuidNotRising {
        /// The last.
        last: u64,
        /// The new one.
        found: u64,
    },
    /// A keep-alive whose next number is below the one that is expected.
    LowNextNumber {
        /// The next number.
        expected: u32,
        /// The keep-alive's.
        found: u32,
    },
    /// A number below the next that was not asked for.
    LowNumber {
        /// The next number.
        expected: u32,
        /// The number that came.
        found: u32,
    },
    /// A request for more than 2,500 messages again, for none, or while another is unanswered.
    Retransmit,
    /// A message that was applied is not to be sent again.
    NotMissing {
        /// Its number.
        number: u32,
    },
    /// No answer to a negotiation or establishment in time, or no such request.
    LoginTimeout {
        /// Time since the request.
        waited_ns: u64,
    },
    /// Messages that were asked for again, twice, do not come.
    RetransmitTimeout {
        /// Time since the second request, or the last message.
        waited_ns: u64,
    },
    /// No answer to a termination in time.
    TerminateTimeout {
        /// Time since the termination.
        waited_ns: u64,
    },
    /// Nothing was received for two keep-alive intervals.
    Silence {
        /// Time since the last byte.
        silence_ns: u64,
    },
    /// The numbers of the session are used up.
    NumbersUsedUp,
    /// The call needs another state.
    State {
        /// The state.
        state: &'static str,
    },
    /// The output is too small; the session is unchanged.
    OutputFull(OutputFull),
}

impl IlinkError {
    /// What a Terminate (507) says of a rule that the peer broke in an established session.
    pub(super) const fn terminate_reason(&self) -> TerminateReason {
        match self {
            Self::LowNumber { .. } => TerminateReason::NUMBER,
            Self::LowNextNumber { .. } => TerminateReason::NEXT_NUMBER,
            Self::Uuid { .. } => TerminateReason::UUID,
            Self::Echo { .. } => TerminateReason::TIMESTAMP,
            Self::Encoding { .. } => TerminateReason::FRAMING,
            Self::TooShort { .. } | Self::TooLong { .. } | Self::Schema { .. } | Self::Length { .. } => {
                TerminateReason::DECODING
            }
            Self::Unexpected { template: Negotiate::KIND, .. } => TerminateReason::ALREADY_NEGOTIATED,
            Self::Unexpected { template: Establish::KIND, .. } => TerminateReason::ALREADY_ESTABLISHED,
            _ => TerminateReason::OTHER,
        }
    }
}

impl From<OutputFull> for IlinkError {
    fn from(full: OutputFull) -> Self {
        Self::OutputFull(full)
    }
}

impl fmt::Display for IlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns / 1_000_000;
        match *self {
            Self::Encoding { found } => write!(f, "the framing header says 0xcafe, this one {found:#06x}"),
            Self::TooShort { len } => write!(f, "a message has its headers and block, this one has {len} bytes"),
            Self::TooLong { len, len_max } => {
                write!(f, "a message has at most {len_max} bytes here, this one has {len}")
            }
            Self::Schema { found } => write!(f, "messages are of schema 8, this one is of {found}"),
            Self::Length { template, expected, found } => {
                write!(f, "the block of template {template} has {expected} bytes, this one has {found}")
            }
            Self::Unexpected { template, state } => write!(f, "template {template} must not arrive while {state}"),
            Self::Echo { template } => {
                write!(f, "an answer repeats identifier and time of its request, this one ({template}) does not")
            }
            Self::Uuid { expected, found } => {
                write!(f, "messages have the session's identifier {expected}, this one has {found}")
            }
            Self::UuidNotRising { last, found } => {
                write!(f, "the identifier of a new session is above the last, {last}, this one is {found}")
            }
            Self::LowNumber { expected, found } | Self::LowNextNumber { expected, found } => {
                write!(f, "numbers go up: {expected} should come, not {found}")
            }
            Self::Retransmit => {
                f.write_str("one request for messages again is open at a time, for 1 to 2,500 messages")
            }
            Self::NotMissing { number } => write!(f, "number {number} is not one that the venue did not apply"),
            Self::LoginTimeout { waited_ns } => {
                write!(f, "a session is established at once, this one is not after {} ms", ms(waited_ns))
            }
            Self::RetransmitTimeout { waited_ns } => {
                write!(f, "messages that are asked for again come, these did not in {} ms", ms(waited_ns))
            }
            Self::TerminateTimeout { waited_ns } => {
                write!(f, "a termination is answered at once, this one is not after {} ms", ms(waited_ns))
            }
            Self::Silence { silence_ns } => {
                write!(f, "an idle peer sends a keep-alive, this one sent nothing for {} ms", ms(silence_ns))
            }
            Self::NumbersUsedUp => f.write_str("the session's numbers are used up"),
            Self::State { state } => write!(f, "the session is {state}"),
            Self::OutputFull(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for IlinkError {}
