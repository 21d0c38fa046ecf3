//! What the engine does, one event at a time: each holds all that both the owner's report and the
//! public feed are made of.

use market::{Locate, OrderRef, Price, Side};

use crate::order::{CrossKind, OrderId, Owner};
use crate::reason::{CancelReason, RejectReason};

/// Takes the engine's events, in the order in which they happen.
pub trait Sink {
    /// One event. Called within the call to the engine that caused it.
    fn take(&mut self, event: &Event);
}

impl Sink for Vec<Event> {
    fn take(&mut self, event: &Event) {
        self.push(*event);
    }
}

/// Something happened to an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time of the call that caused it, ns.
    pub at_ns: u64,
    /// The instrument. Of a reject, that which the order named.
    pub symbol: Locate,
    /// What happened.
    pub body: Body,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// An order is live.
    Accepted(Accepted),
    /// An order was refused, and never existed.
    Rejected(Rejected),
    /// Shares are displayed under a reference that is new.
    Displayed(Displayed),
    /// Two orders traded.
    Executed(Executed),
    /// An order lost shares, perhaps all.
    Canceled(Canceled),
    /// An order took the place of another.
    Replaced(Replaced),
    /// A stop order woke up.
    Triggered(OrderState),
    /// A trade is void.
    Broken(Broken),
    /// An auction took place: the sum of its executions, which precede it.
    Crossed(Crossed),
    /// What an auction would do now.
    Imbalance(Imbalance),
    /// The instrument halts, is quoted, trades, or closes.
    StateChanged(TradingState),
}

/// An order as an event leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderState {
    /// The engine's name for it.
    pub id: OrderId,
    /// Its owner.
    pub owner: Owner,
    /// The owner's number for it.
    pub token: u64,
    /// Its reference: what the feed calls it while it is displayed.
    pub reference: OrderRef,
    /// Its side.
    pub side: Side,
    /// Shares that are left; 0 means that the order has ended.
    pub leaves: u32,
    /// Shares that it and its predecessors have traded.
    pub executed: u32,
}

/// See [`Body::Accepted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The order.
    pub order: OrderState,
    /// Its limit; 0 for one without.
    pub price: Price,
}

/// See [`Body::Rejected`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Who entered it.
    pub owner: Owner,
    /// The owner's number for it.
    pub token: u64,
    /// Why.
    pub reason: RejectReason,
}

/// See [`Body::Displayed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Displayed {
    /// The order, with the reference that is displayed.
    pub order: OrderState,
    /// Shares that others see.
    pub shares: u32,
    /// At this price.
    pub price: Price,
    /// The order has just been entered; otherwise it was refilled or moved, and its owner learns
    /// the new reference.
    pub is_new: bool,
}

/// See [`Body::Executed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The trade's number. All executions of one cross share one.
    pub match_number: u64,
    /// Shares.
    pub qty: u32,
    /// At this price.
    pub price: Price,
    /// The order that rested; in a cross the buy.
    pub maker: Party,
    /// The order that arrived; in a cross the sell.
    pub taker: Party,
    /// The cross that it is part of.
    pub cross: Option<CrossKind>,
}

/// One side of a trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// The order after the trade, under the reference that traded.
    pub order: OrderState,
    /// The shares were displayed.
    pub displayed: bool,
}

/// See [`Body::Canceled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canceled {
    /// The order after it.
    pub order: OrderState,
    /// Shares that it lost.
    pub decrement: u32,
    /// Why.
    pub reason: CancelReason,
    /// What the feed shows of it.
    pub public: Removed,
    /// Where self-trade prevention did it: the price of the trade that was prevented.
    pub prevented_at: Option<Price>,
}

/// What the feed shows of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Nothing: the shares were not displayed.
    Nothing,
    /// So many displayed shares less.
    Part(u32),
    /// The displayed order is gone.
    All,
}

/// See [`Body::Replaced`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The order that ended, without leaves.
    pub old: OrderState,
    /// The order that lives from now on.
    pub new: OrderState,
    /// The new order's limit; 0 for one without.
    pub price: Price,
    /// The old one was displayed, so the feed removes it.
    pub was_displayed: bool,
    /// The new one is displayed at once with so many shares: the feed replaces the old one by it.
    /// Otherwise a [`Body::Displayed`] follows where it comes to rest.
    pub displayed: Option<u32>,
}

/// See [`Body::Broken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The trade's number.
    pub match_number: u64,
    /// Its shares.
    pub qty: u32,
    /// Its price.
    pub price: Price,
    /// The buyer, and the buyer's number for the order.
    pub buyer: (Owner, u64),
    /// The seller, and the seller's number for the order.
    pub seller: (Owner, u64),
    /// The first event of this number: the feed breaks a number once.
    pub is_first: bool,
}

/// See [`Body::Crossed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossed {
    /// Which auction.
    pub kind: CrossKind,
    /// The number of its executions; one of its own where nothing traded.
    pub match_number: u64,
    /// Shares that traded.
    pub shares: u64,
    /// Their price; 0 where nothing traded.
    pub price: Price,
}

/// See [`Body::Imbalance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Which auction.
    pub kind: CrossKind,
    /// Shares that would trade.
    pub paired: u64,
    /// Shares that would not, at the same price.
    pub imbalance: u64,
    /// Their side; none where nothing is left over.
    pub side: Option<Side>,
    /// The price if orders for this cross alone took part; 0 for none.
    pub far: Price,
    /// The price if all orders took part; 0 for none.
    pub near: Price,
    /// The price that both are nearest to.
    pub reference: Price,
}

/// Whether and how an instrument trades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TradingState {
    /// Orders are refused, none rests.
    #[default]
    Closed,
    /// Orders are refused, those that rest may be canceled.
    Halted,
    /// Orders are collected for a cross and do not trade.
    Quoting,
    /// Orders trade as they arrive.
    Trading,
}
