//! What a session tells its caller.

use core::fmt;

use super::store::StoreFull;
use crate::fix::codec::{Message, TemplateError};
use crate::fix::orders::Defect;

/// The time of a call. Timers follow the steady clock, so that a step of the other moves none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds of a clock that never steps.
    pub steady_ns: u64,
    /// Nanoseconds since 1970 in UTC, for timestamps and the schedule.
    pub utc_ns: u64,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Both sides are logged on.
    LoggedOn,
    /// Both numbers are 1 again: the peer's Logon or the schedule said so.
    Reset,
    /// An application message, in order.
    Message {
        /// The message.
        message: Message<'a>,
        /// Its number.
        seq: u64,
        /// It may have been sent before (43=Y). Each number is handed over once all the same.
        poss_dup: bool,
    },
    /// The peer refuses a message of ours by a rule of the session (3).
    Rejected(Message<'a>),
    /// A message of the peer that is for the caller, of the application or a Reject (3), breaks a
    /// rule of the session. It was refused, and its number is taken: what it says is lost here.
    Refused {
        /// MsgType (35), its first byte.
        msg_type: u8,
        /// Its number.
        seq: u64,
        /// The rule.
        defect: Defect,
    },
    /// The peer raised its next number without filling the gap (SequenceReset, 123=N): whatever it
    /// had sent in between never comes.
    Skipped {
        /// The first number that is passed over.
        from: u64,
    },
    /// The peer asked for a message of ours that is too old to be sent again, and was told to go on
    /// behind it: the peer has not processed it, and never will.
    NotResent {
        /// Its number.
        seq: u64,
    },
    /// The peer asks for messages of ours, from this number on. It has taken those before. What
    /// answers it, again or as a gap, is written with the next poll.
    ResendRequested {
        /// The first number.
        begin: u64,
    },
    /// The peer has answered [`Session::ask`](super::Session::ask): it has taken all that was sent
    /// before the question, or has asked for it, and all that it sent before has come.
    Answered {
        /// The question.
        id: u64,
    },
    /// The connection is to be closed, once the output is written.
    Disconnect(End),
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// Both sides logged out.
    LoggedOut,
    /// The peer logged out by itself.
    PeerLoggedOut,
    /// The first message is no Logon, or one that breaks a rule.
    NoLogon,
    /// A Logon within a session, without 141=Y.
    SecondLogon,
    /// No Logon, or no answer to ours, in time.
    LogonTimeout,
    /// No answer to our Logout in time.
    LogoutTimeout,
    /// Nothing from the peer for 2.4 heartbeat intervals, not even an answer to TestRequest.
    Silent,
    /// A number lower than expected, without PossDupFlag.
    SeqTooLow,
    /// A message without a number.
    NoSeq,
    /// The peer expects a number (789) that we have not reached.
    ExpectsTooHigh,
    /// BeginString (8) is that of another version.
    BeginString,
    /// CompIDs are those of others.
    CompId,
    /// SendingTime (52) is too far from our clock.
    SendingTime,
    /// Messages that are missing did not come whole, however often they were requested.
    NotResent,
    /// The session's span is over, or has not begun.
    Schedule,
    /// The peer does not read: the output is full.
    OutputFull,
    /// The store cannot keep what is sent.
    StoreFull,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoggedOut => "logged out",
            Self::PeerLoggedOut => "the peer logged out",
            Self::NoLogon => "the first message must be a Logon of this session",
            Self::SecondLogon => "a second Logon must reset the numbers (141=Y)",
            Self::LogonTimeout => "no Logon in time",
            Self::LogoutTimeout => "no answer to Logout in time",
            Self::Silent => "nothing from the peer for 2.4 heartbeat intervals",
            Self::SeqTooLow => "MsgSeqNum (34) must not be lower than expected without PossDupFlag (43)",
            Self::NoSeq => "each message must have MsgSeqNum (34)",
            Self::ExpectsTooHigh => "NextExpectedMsgSeqNum (789) must not be above the next number",
            Self::BeginString => "BeginString (8) must be that of the session",
            Self::CompId => "SenderCompID (49) and TargetCompID (56) must be those of the session",
            Self::SendingTime => "SendingTime (52) must be near the receiver's clock",
            Self::NotResent => {
                "a ResendRequest (2) must be answered by whole messages or a SequenceReset (4): three were not"
            }
            Self::Schedule => "the session is not open now",
            Self::OutputFull => "the peer does not read",
            Self::StoreFull => "the store of sent messages is full",
        })
    }
}

/// Why a message is not sent. Its number is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// Not logged on, and a message of this type would be filled as a gap later, so that the peer
    /// would never get it.
    NotLoggedOn,
    /// The store cannot keep it.
    Store(StoreFull),
    /// The peer does not read: the output is full.
    OutputFull,
    /// The message is longer than a message may be.
    TooLong,
    /// The template refuses a value.
    Template(TemplateError),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoggedOn => f.write_str("not logged on, and the message would not be sent later"),
            Self::Store(error) => error.fmt(f),
            Self::OutputFull => f.write_str("the output is full, because the peer does not read"),
            Self::TooLong => f.write_str("the message is too long"),
            Self::Template(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SendError {}

/// Counts of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Messages that were taken in, whole and in order.
    pub received: u64,
    /// Messages that were written, resends included.
    pub sent: u64,
    /// Pieces of input that were no message.
    pub garbled: u64,
    /// Messages that came twice and were left out.
    pub duplicates: u64,
    /// Messages that were kept behind a hole.
    pub queued: u64,
    /// Messages behind a hole that did not fit, and are requested again.
    pub queue_full: u64,
    /// Requests for a resend that were sent.
    pub resends_requested: u64,
    /// Messages that were sent again.
    pub resent: u64,
    /// Messages that were too old to be sent again.
    pub not_resent: u64,
    /// Rejects that were sent, of session and of business.
    pub rejects: u64,
    /// Bytes that came while no connection was open.
    pub unconnected_bytes: u64,
}
