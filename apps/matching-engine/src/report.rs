//! The private view: what each owner learns from an event.

use market::{OrderRef, Price};

use crate::event::{Body, Event, Executed, OrderState, Party};
use crate::order::{CrossKind, Owner};
use crate::reason::{CancelReason, RejectReason};

/// What an owner learns of an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// It is live.
    Accepted {
        /// The order.
        order: OrderState,
        /// Its limit; 0 for none.
        price: Price,
    },
    /// It was refused, and never existed.
    Rejected {
        /// The owner's number for it.
        token: u64,
        /// Why.
        reason: RejectReason,
    },
    /// It traded.
    Executed {
        /// The order after it.
        order: OrderState,
        /// Shares.
        qty: u32,
        /// Price.
        price: Price,
        /// The trade's number, that of the public feed.
        match_number: u64,
        /// Its part in the trade.
        liquidity: Liquidity,
    },
    /// It lost shares without a trade.
    Canceled {
        /// The order after it.
        order: OrderState,
        /// Shares that it lost.
        decrement: u32,
        /// Why.
        reason: CancelReason,
        /// The price of the trade within the group that was prevented.
        prevented_at: Option<Price>,
    },
    /// It took the place of an older one.
    Replaced {
        /// The old one, without leaves.
        old: OrderState,
        /// The new one.
        new: OrderState,
        /// Its limit; 0 for none.
        price: Price,
    },
    /// It has another reference and time, because its reserve was refilled.
    PriorityUpdated {
        /// The order.
        order: OrderState,
        /// The price at which it is displayed.
        price: Price,
        /// The new reference.
        reference: OrderRef,
    },
    /// A stop woke up.
    Triggered {
        /// The order.
        order: OrderState,
    },
    /// A trade of it is void.
    Broken {
        /// The owner's number for the order, which may have ended since.
        token: u64,
        /// The trade's number.
        match_number: u64,
        /// Its shares.
        qty: u32,
        /// Its price.
        price: Price,
    },
}

impl Report {
    /// The owner's number for the order; of a replacement the new one's.
    pub const fn token(&self) -> u64 {
        match *self {
            Self::Accepted { order, .. }
            | Self::Executed { order, .. }
            | Self::Canceled { order, .. }
            | Self::PriorityUpdated { order, .. }
            | Self::Triggered { order }
            | Self::Replaced { new: order, .. } => order.token,
            Self::Rejected { token, .. } | Self::Broken { token, .. } => token,
        }
    }
}

/// An order's part in a trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liquidity {
    /// It was displayed, and another order came.
    Added,
    /// It was hidden, and another order came.
    AddedHidden,
    /// It came.
    Removed,
    /// Both were in a cross.
    Cross(CrossKind),
}

impl Liquidity {
    /// The letter in OUCH.
    pub const fn letter(self) -> u8 {
        match self {
            Self::Added => b'A',
            Self::AddedHidden => b'J',
            Self::Removed => b'R',
            Self::Cross(CrossKind::Opening) => b'O',
            Self::Cross(CrossKind::Closing) => b'C',
            Self::Cross(CrossKind::Halt) => b'H',
        }
    }
}

/// The reports that an event means, each with its owner: none, one or two, the resting order's
/// first.
pub fn reports(event: &Event) -> impl Iterator<Item = (Owner, Report)> {
    let (first, second) = match &event.body {
        Body::Accepted(it) => (Some((it.order.owner, Report::Accepted { order: it.order, price: it.price })), None),
        Body::Rejected(it) => (Some((it.owner, Report::Rejected { token: it.token, reason: it.reason })), None),
        Body::Displayed(it) if !it.is_new => {
            let report = Report::PriorityUpdated { order: it.order, price: it.price, reference: it.order.reference };
            (Some((it.order.owner, report)), None)
        }
        Body::Executed(it) => (Some(executed(it, &it.maker, false)), Some(executed(it, &it.taker, true))),
        Body::Canceled(it) => {
            let report = Report::Canceled {
                order: it.order,
                decrement: it.decrement,
                reason: it.reason,
                prevented_at: it.prevented_at,
            };
            (Some((it.order.owner, report)), None)
        }
        Body::Replaced(it) => {
            (Some((it.new.owner, Report::Replaced { old: it.old, new: it.new, price: it.price })), None)
        }
        Body::Triggered(order) => (Some((order.owner, Report::Triggered { order: *order })), None),
        Body::Broken(it) => {
            let of = |(owner, token): (Owner, u64)| {
                (owner, Report::Broken { token, match_number: it.match_number, qty: it.qty, price: it.price })
            };
            (Some(of(it.buyer)), Some(of(it.seller)))
        }
        Body::Displayed(_) | Body::Crossed(_) | Body::Imbalance(_) | Body::StateChanged(_) => (None, None),
    };
    [first, second].into_iter().flatten()
}

fn executed(trade: &Executed, party: &Party, is_taker: bool) -> (Owner, Report) {
    let liquidity = match (trade.cross, is_taker, party.displayed) {
        (Some(kind), _, _) => Liquidity::Cross(kind),
        (None, true, _) => Liquidity::Removed,
        (None, false, true) => Liquidity::Added,
        (None, false, false) => Liquidity::AddedHidden,
    };
    let Executed { qty, price, match_number, .. } = *trade;
    (party.order.owner, Report::Executed { order: party.order, qty, price, match_number, liquidity })
}
