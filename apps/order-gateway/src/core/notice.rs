//! What stopped orders, for a person.

use core::fmt;

use order_entry::journal::{Killed, MessageNumber};

use crate::text::utc;

/// Why no order passes until a person arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The kill switch was thrown, in this process or before it started.
    Killed(Killed),
    /// Messages of the venue, or of ours, are lost: live orders are in doubt.
    Gap,
    /// The venue's message of this number cannot be read, and was passed over.
    Unread {
        /// Its number.
        number: u64,
    },
    /// The venue reported an order that the journal does not have.
    UnknownOrder,
    /// The venue took back or corrected a trade that the journal does not have.
    UnknownExecution,
    /// An order that had ended lives, and there is no room to reserve for it.
    Unreserved,
    /// The connection broke behind a cancel of all orders, of which so many live: they are canceled
    /// again when the session is open.
    CancelAgain {
        /// How many.
        live: usize,
    },
    /// A thrown switch would end the connection, and so many orders live that end with their
    /// cancels alone.
    LineKept {
        /// How many.
        live: usize,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed(Killed { since_ns, cause }) => {
                write!(f, "the kill switch was thrown {cause} at {}: all orders are canceled", utc(*since_ns))
            }
            Self::Gap => f.write_str("messages between the venue and us are lost: live orders are in doubt"),
            Self::Unread { number } => write!(
                f,
                "the venue's message {} cannot be read and was passed over, its bytes are in the journal: live orders \
                 are in doubt",
                MessageNumber(*number)
            ),
            Self::UnknownOrder => f.write_str("the venue has an order of ours that the journal does not have"),
            Self::Unreserved => {
                f.write_str("an order that had ended lives, and its side rests at too many prices to reserve for it")
            }
            Self::CancelAgain { live } => {
                f.write_str("the connection broke behind a cancel of all orders: ")?;
                return write!(f, "{live} of them live, and are canceled again when the session is open");
            }
            Self::LineKept { live } => {
                f.write_str("the connection does not end behind the kill switch: ")?;
                return write!(
                    f,
                    "{live} orders live, which end by their cancels alone; they are sent again and again"
                );
            }
            Self::UnknownExecution => {
                f.write_str("the venue took back or corrected a trade of ours that the journal does not have")
            }
        }?;
        f.write_str("; no order passes until a person has compared, and arms")
    }
}
