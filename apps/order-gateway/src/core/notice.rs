//! What stopped orders, and what a person must look at.

use core::fmt;

use arrayvec::ArrayVec;
use market::Symbol;
use order_entry::journal::{Killed, MessageNumber};
use order_entry::orders::Alarm;

use crate::text::utc;

/// Why no order passes until a person arms, or what of an order a person must look at.
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
    /// The venue said something of an order that should not be.
    Alarm(OrderAlarm),
    /// So many orders have no answer, and none will come: their state is not known.
    Unanswered {
        /// How many.
        orders: u64,
    },
    /// So many alarms, of a second or less, are not told one by one.
    MoreAlarms {
        /// How many.
        count: u64,
    },
}

impl Notice {
    /// Whether it is an alarm, of which thousands may come: it leaves room to what stops orders.
    pub const fn is_alarm(&self) -> bool {
        matches!(self, Self::Alarm(_) | Self::Unanswered { .. } | Self::MoreAlarms { .. })
    }
}

/// An alarm, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderAlarm {
    /// What is wrong.
    pub alarm: Alarm,
    /// A client id of the order; 0 where the venue named an id of its own that is not known.
    pub id: u64,
    /// The order's instrument; `None` of an order that is not known.
    pub symbol: Option<Symbol>,
    /// Shares that traded and should not have; 0 where it is not about shares.
    pub shares: u32,
}

impl OrderAlarm {
    /// One of an order that is not known.
    pub const fn new(alarm: Alarm, id: u64) -> Self {
        Self { alarm, id, symbol: None, shares: 0 }
    }
}

impl fmt::Display for OrderAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alarm, id, symbol, shares } = self;
        match id {
            0 => f.write_str("an order of another id than ours")?,
            id => write!(f, "order {id}")?,
        }
        if let Some(symbol) = symbol {
            write!(f, " {symbol}")?;
        }
        f.write_str(": ")?;
        match alarm {
            Alarm::UnknownOrder => f.write_str("the venue has it, and the journal does not: nothing is booked"),
            Alarm::UnknownExecution => f.write_str(
                "the venue took back or corrected a trade that the journal does not have: nothing is booked",
            ),
            Alarm::FillAfterEnd => write!(f, "the venue filled {shares} behind its end: they are booked"),
            Alarm::Overfill => write!(f, "the venue filled {shares} beyond its quantity: they are booked"),
            Alarm::RejectOfLive => f.write_str("the venue rejected it when it was live: it has ended"),
            Alarm::Revived => f.write_str("it had ended, and lives at the venue: it is live again"),
            Alarm::Differs => f.write_str("the venue's account of it is not ours"),
            Alarm::RoundedPrice => f.write_str(
                "the price of a trade has more than four decimals: the nearest is booked, and sums of money are not exact",
            ),
            other => write!(f, "{other:?}"),
        }?;
        match symbol {
            Some(symbol) if matches!(alarm, Alarm::UnknownExecution | Alarm::Differs) => {
                write!(f, "; no order of {symbol} passes until a person has compared, and says `unblock {symbol}`")
            }
            _ => Ok(()),
        }
    }
}

/// Alarms that are told one by one in a second.
const ALARMS: usize = 8;
const SECOND_NS: u64 = 1_000_000_000;

/// What a person was not told yet.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// What stopped orders: alarms, which may be many, do not take their room. The first ones name
    /// the cause.
    stops: ArrayVec<Notice, 8>,
    alarms: ArrayVec<Notice, ALARMS>,
    /// Alarms that are told as a number.
    more: u64,
    told: Told,
}

/// The alarms of a second that a person was told.
#[derive(Debug, Default)]
struct Told {
    since_ns: Option<u64>,
    alarms: usize,
    /// The number of the others was told.
    has_more: bool,
}

impl Told {
    /// Begins with another second where this one is over.
    fn look(&mut self, now_ns: u64) {
        if self.since_ns.is_none_or(|since_ns| now_ns.saturating_sub(since_ns) >= SECOND_NS) {
            *self = Self { since_ns: Some(now_ns), ..Self::default() };
        }
    }
}

impl Notices {
    pub(super) fn push(&mut self, notice: Notice) {
        match notice {
            Notice::Alarm(_) | Notice::Unanswered { .. } | Notice::Unread { .. } => {
                self.more += u64::from(self.alarms.try_push(notice).is_err());
            }
            _ => self.push_stop(notice),
        }
    }

    /// One that stopped orders, though most of its kind do not.
    pub(super) fn push_stop(&mut self, notice: Notice) {
        // A stop that is not told yet is told once.
        if !self.stops.contains(&notice) {
            _ = self.stops.try_push(notice);
        }
    }

    /// The next one, those that stopped orders first. A day's answers may all be alarms, and who
    /// reads 8 of them in a second reads no more: the others are a number.
    pub(super) fn pop(&mut self, clock: impl FnOnce() -> u64) -> Option<Notice> {
        if let Some(stop) = self.stops.pop_at(0) {
            return Some(stop);
        }
        if self.alarms.is_empty() && self.more == 0 {
            return None;
        }
        self.told.look(clock());
        if self.told.alarms < ALARMS
            && let Some(alarm) = self.alarms.pop_at(0)
        {
            self.told.alarms += 1;
            return Some(alarm);
        }
        self.more += self.alarms.drain(..).len() as u64;
        if self.more == 0 || core::mem::replace(&mut self.told.has_more, true) {
            return None;
        }
        Some(Notice::MoreAlarms { count: core::mem::take(&mut self.more) })
    }
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
                f.write_str("the connection, or the gateway, ended behind a cancel of all orders: ")?;
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
            // These alone stop no order.
            Self::Alarm(alarm) => return alarm.fmt(f),
            Self::Unanswered { orders } => {
                return write!(f, "{orders} orders have no answer of the venue, and none will come: compare them");
            }
            Self::MoreAlarms { count } => {
                return write!(f, "{count} more alarms came: compare all orders with the venue");
            }
        }?;
        f.write_str("; no order passes until a person has compared, and arms")
    }
}
