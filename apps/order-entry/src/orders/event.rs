//! What a venue says about an order, and what that changes.

use market::{Price, Side};

use super::id_map::ExecId;
use super::order::End;
use crate::risk::{InstrumentIdx, StrategyIdx};

/// An answer or a report about one order, as a session's codec reads it. Reasons are the venue's
/// own codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VenueEvent {
    /// The order is live. Where the venue accepted other terms, a [`VenueEvent::Restated`] follows.
    Accepted {
        /// The venue's id.
        venue_id: u64,
    },
    /// The order never lived.
    Rejected {
        /// Why.
        reason: u16,
    },
    /// It traded.
    Filled {
        /// The execution's id.
        exec: ExecId,
        /// Shares of this execution.
        qty: u32,
        /// At this price.
        price: Price,
    },
    /// A part was canceled: on request, by a decrement of self-match prevention, by the venue.
    Reduced {
        /// So many shares less.
        by: u32,
        /// Why.
        reason: u16,
    },
    /// What was open was canceled, on request or not.
    Canceled {
        /// Why.
        reason: u16,
    },
    /// A cancel was refused: the order is what it was.
    CancelRefused {
        /// Why.
        reason: u16,
    },
    /// The replace `id` was accepted.
    Replaced {
        /// Its client id.
        id: u64,
        /// The venue's id, which may be a new one.
        venue_id: u64,
    },
    /// The replace `id` was refused: the last accepted terms hold.
    ReplaceRefused {
        /// Its client id.
        id: u64,
        /// Why.
        reason: u16,
    },
    /// The venue changed the order's terms.
    Restated {
        /// The intended total with executions.
        qty: u32,
        /// The price.
        price: Price,
        /// Why.
        reason: u16,
    },
    /// An execution counts no more.
    Busted {
        /// The execution's id.
        exec: ExecId,
    },
    /// An execution had other terms.
    Corrected {
        /// The execution's id, or that of an earlier correction of it (ExecRefID of FIX).
        exec: ExecId,
        /// The correction's own id, by which later messages may name the execution (ExecID).
        new_exec: ExecId,
        /// Shares that it really had.
        qty: u32,
        /// The price that it really had.
        price: Price,
    },
    /// The answer to a status query, or what a venue lists after a restart.
    Status(VenueStatus),
}

impl VenueEvent {
    /// The venue's own code of the reason, which [`ReasonCodes`](crate::ReasonCodes) names; `None`
    /// where an event of this kind has none.
    pub const fn reason(&self) -> Option<u16> {
        match *self {
            Self::Rejected { reason }
            | Self::Reduced { reason, .. }
            | Self::Canceled { reason }
            | Self::CancelRefused { reason }
            | Self::ReplaceRefused { reason, .. }
            | Self::Restated { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Whether the venue refused what was asked for.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::CancelRefused { .. } | Self::ReplaceRefused { .. })
    }
}

/// An order as its venue has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VenueStatus {
    /// Whether it lives. An order that the venue does not know does not.
    pub is_live: bool,
    /// Executed shares.
    pub cum: u32,
    /// Open shares.
    pub leaves: u32,
}

/// What changed besides the states of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Nothing that holds shares or money: the event was a repetition, or answered a request.
    #[default]
    None,
    /// The order is live from now on.
    Accepted,
    /// Shares were traded.
    Traded {
        /// So many.
        qty: u32,
        /// At this price.
        price: Price,
    },
    /// The terms are others.
    Restated {
        /// Open shares.
        leaves: u32,
        /// The price.
        price: Price,
    },
    /// The replace of this client id was refused.
    ReplaceRefused {
        /// Its client id.
        id: u64,
    },
    /// An execution was reversed.
    Reversed {
        /// Its shares.
        qty: u32,
        /// Its price.
        price: Price,
    },
    /// An execution was replaced by another one.
    Corrected {
        /// What counted.
        old: (u32, Price),
        /// What counts.
        new: (u32, Price),
    },
    /// An order that had ended lives: it must be reserved again.
    Revived {
        /// Open shares.
        leaves: u32,
        /// The price.
        price: Price,
    },
}

/// Something that a person should see. The event was booked as far as it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Alarm {
    /// No order has this id. Nothing was booked.
    UnknownOrder,
    /// The bust or correction of an execution that the table does not have. Nothing was booked, and
    /// the instrument is blocked until a person unblocks it.
    UnknownExecution,
    /// An order traded after it had ended.
    FillAfterEnd,
    /// An order traded more than its total.
    Overfill,
    /// A live order was rejected.
    RejectOfLive,
    /// A replace was accepted after the order had ended, or an order that was taken for one that
    /// never lived.
    Revived,
    /// The venue's numbers are not ours: the instrument is blocked until a person unblocks it.
    Differs,
    /// An execution's price has more decimals than ours: the nearest was booked, and sums of money
    /// are not exact any more.
    RoundedPrice,
}

/// An event of one order, and what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderEvent {
    /// A client id of the order: the one that the venue named, or the last accepted one.
    pub id: u64,
    /// What the venue said.
    pub event: VenueEvent,
    /// What it changed, of which instrument and side.
    pub outcome: Outcome,
}

/// What an event did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The order's slot; `None` for an order that is not known.
    pub slot: Option<usize>,
    /// Its instrument.
    pub instrument: InstrumentIdx,
    /// Its side.
    pub side: Side,
    /// Whose it is.
    pub strategy: StrategyIdx,
    /// Whether it lived before the event.
    pub was_live: bool,
    /// The replace that the event accepted, by its answer or by a fill of its id. It comes before
    /// the effect.
    pub replaced: Option<u64>,
    /// What else changed.
    pub effect: Effect,
    /// The order ended with this event.
    pub ended: Option<End>,
    /// The event was seen before, and changed nothing.
    pub is_duplicate: bool,
    /// For a person to see.
    pub alarm: Option<Alarm>,
}
