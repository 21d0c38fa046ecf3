//! One order: its terms, its chain of client ids, and what it waits for.

use arrayvec::ArrayVec;
use market::{Price, Side};

use super::instructions::Instructions;
use crate::risk::{InstrumentIdx, StrategyIdx};

/// Replaces of one order that may be unanswered at once.
pub(super) const PENDING: usize = 4;
/// Client ids by which an order is found: the last accepted one, the unanswered ones, and at least
/// three older ones, whose fills may still be on their way.
pub(super) const CHAIN: usize = 8;
/// Venue ids by which an order is found.
pub(super) const VENUE_IDS: usize = 4;

/// How an order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// It was never sent.
    Unsent,
    /// The venue did not take it.
    Rejected,
    /// All of it traded.
    Filled,
    /// What was open was canceled.
    Canceled,
}

/// What an order is, for a reader: of two that hold the later one in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Sent, and not answered.
    PendingNew,
    /// Live at the venue.
    Live,
    /// A replace is not answered.
    PendingReplace,
    /// A cancel is not answered.
    PendingCancel,
    /// Dead.
    Ended(End),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// The slot was never used.
    #[default]
    Free,
    Sent,
    Live,
    Ended(End),
}

/// A replace that the venue has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingReplace {
    /// Its client id.
    pub id: u64,
    /// The intended total with executions.
    pub qty: u32,
    /// The new price.
    pub price: Price,
    /// When it was sent.
    pub sent_ns: u64,
}

/// One order. The table writes it; all others read. A new order writes the first two cache lines.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub struct Order {
    /// What is traded.
    pub instrument: InstrumentIdx,
    /// Buy or sell.
    pub side: Side,
    /// Whose it is.
    pub strategy: StrategyIdx,
    pub(super) is_short: bool,
    pub(super) is_in_doubt: bool,
    /// What the venue said of it may be lost: nothing is known of it until the venue has told its
    /// status, or a person has compared.
    pub(super) is_unconfirmed: bool,
    /// The venue has processed all that was sent before a login behind it.
    pub(super) is_settled: bool,
    /// The slot is in the queue of ended orders.
    pub(super) is_queued: bool,
    pub(super) life: Life,
    /// Different for each order of the table, unlike its slot: part of an execution's key.
    pub(super) serial: u32,
    pub(super) qty: u32,
    pub(super) cum: u32,
    pub(super) busted: u32,
    pub(super) price: Price,
    /// The last accepted client id, or the first one before any is accepted.
    pub(super) accepted: u64,
    pub(super) sent_ns: u64,
    /// Oldest first.
    pub(super) chain: ArrayVec<u64, CHAIN>,
    /// When the cancel was sent that is not answered.
    pub(super) cancel_sent_ns: Option<u64>,
    /// When the venue was asked last for the order's status.
    pub(super) queried_ns: u64,
    /// Newest last.
    pub(super) venue_ids: ArrayVec<u64, VENUE_IDS>,
    pub(super) pending: ArrayVec<PendingReplace, PENDING>,
    pub(super) instructions: Instructions,
}

impl Order {
    /// The intended total with executions, as the venue accepted it last.
    pub const fn qty(&self) -> u32 {
        self.qty
    }

    /// Executed shares. They never fall: busted ones are counted apart.
    pub const fn cum(&self) -> u32 {
        self.cum
    }

    /// Executed shares that were busted or corrected away.
    pub const fn busted(&self) -> u32 {
        self.busted
    }

    /// Open shares: 0 when the order has ended.
    pub const fn leaves(&self) -> u32 {
        if self.is_live() { self.qty.saturating_sub(self.cum) } else { 0 }
    }

    /// Counts the orders of a table from the first one on, and wraps.
    pub const fn serial(&self) -> u32 {
        self.serial
    }

    /// Whether the order was opened before the one whose [`Order::serial`] is `serial`.
    pub const fn is_before(&self, serial: u32) -> bool {
        (self.serial.wrapping_sub(serial) as i32) < 0
    }

    /// The price, as the venue accepted it last.
    pub const fn price(&self) -> Price {
        self.price
    }

    /// How it is priced, how long it lives, and what else it says.
    pub const fn instructions(&self) -> &Instructions {
        &self.instructions
    }

    /// The worst price of the order where the venue states `price`: its own, unless that is the
    /// venue's to move.
    pub(crate) const fn worst_price(&self, price: Price) -> Price {
        if self.instructions.moves_price() { self.price } else { price }
    }

    /// The client id on which the next cancel or replace builds: the last accepted one.
    pub const fn accepted_id(&self) -> u64 {
        self.accepted
    }

    /// The venue's id, once it has told one.
    pub fn venue_id(&self) -> Option<u64> {
        self.venue_ids.last().copied()
    }

    /// Replaces without an answer, the oldest first.
    pub fn pending_replaces(&self) -> &[PendingReplace] {
        &self.pending
    }

    /// Whether the order is a sale that was marked short: its cancels and replaces are too.
    pub const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Whether the order may still trade: it was sent, and no end of it is known.
    pub const fn is_live(&self) -> bool {
        matches!(self.life, Life::Sent | Life::Live)
    }

    /// Whether the order was sent and the venue has said nothing about it.
    pub fn is_unacknowledged(&self) -> bool {
        self.life == Life::Sent
    }

    /// Whether a cancel of the order is not answered.
    pub const fn is_cancel_pending(&self) -> bool {
        self.cancel_sent_ns.is_some()
    }

    /// When the cancel was sent that has no answer yet.
    pub const fn cancel_sent_ns(&self) -> Option<u64> {
        self.cancel_sent_ns
    }

    /// Whether an answer is overdue, or the session restarted since the venue was heard.
    pub const fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Whether what the venue said of the order may be lost, and it has not told its status since.
    pub const fn is_unconfirmed(&self) -> bool {
        self.is_unconfirmed
    }

    /// Whether the order was sent before a login whose session has settled, so that it is not on
    /// its way any more.
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The state; `None` for a slot that was never used.
    pub const fn state(&self) -> Option<State> {
        Some(match self.life {
            Life::Free => return None,
            Life::Ended(end) => State::Ended(end),
            _ if self.cancel_sent_ns.is_some() => State::PendingCancel,
            Life::Sent => State::PendingNew,
            Life::Live if self.pending.is_empty() => State::Live,
            Life::Live => State::PendingReplace,
        })
    }

    /// The order and its replaces, as far as the venue has not answered; none of one that has
    /// ended.
    pub(super) fn unanswered_count(&self) -> usize {
        if self.is_live() { usize::from(self.life == Life::Sent) + self.pending.len() } else { 0 }
    }

    /// When the oldest request was sent that has no answer.
    pub(super) fn unanswered_since_ns(&self) -> Option<u64> {
        let new_ns = (self.life == Life::Sent).then_some(self.sent_ns);
        let replaces_ns = self.pending.first().map(|replace| replace.sent_ns);
        [new_ns, replaces_ns, self.cancel_sent_ns].into_iter().flatten().min()
    }
}
