//! Which of my messages did you process before the line broke? Each protocol answers in its own
//! way; here the answers have one form.
//!
//! | protocol | how the venue answers | a message that was not processed |
//! |---|---|---|
//! | OUCH | is asked (`Q`), and tells the next free number | is sent again under the same number |
//! | Cboe BOE | tells at login how far it read, and replays its answers | gets a new number |
//! | iLink 3 | tells right after the login what it did not apply | is sent again, or skipped |
//! | FIX | asks for what it misses | is sent again as possible duplicate, or skipped |

/// What became of a message that has no answer yet, as far as the venue has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The venue has processed it: its answer was received, or had none.
    Processed,
    /// The venue has not processed it and never will, unless it is sent again.
    NotProcessed {
        /// How to send it again.
        resend: Resend,
    },
    /// The venue has not said yet.
    Unknown {
        /// How it may be sent again all the same, without a risk that it is processed twice; `None`
        /// where the answer must be waited for.
        resend: Option<Resend>,
    },
}

/// Under which number a message is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// Its own: the venue ignores a number that it has seen.
    SameNumber,
    /// A new one: the venue takes its own number for a fault of ours. Its identifier (ClOrdID)
    /// stays, so that the venue refuses the second of two.
    NewNumber,
}

/// Answers the question for one session.
pub trait Recovery {
    /// What became of our message `number`, which has no answer. Numbers are the protocol's own:
    /// UserRefNum, SequenceNumber, SeqNum, MsgSeqNum. A few comparisons.
    fn fate(&self, number: u64) -> Fate;
}
