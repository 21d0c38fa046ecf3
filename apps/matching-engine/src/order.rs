//! An order as its owner enters it.

use market::{Locate, Price, Side};

/// The account or session that enters orders and gets the reports about them: an index below
/// [`Capacity::owners`](crate::Capacity::owners).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u32);

/// The engine's name for one live order: where it is stored, and how often that place was used
/// before. An old one finds nothing, until its place was used another four billion times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub u64);

/// An order to enter: see [`Engine::submit`](crate::Engine::submit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// Who enters it.
    pub owner: Owner,
    /// The owner's number for it, which each report about it carries.
    pub token: u64,
    /// The instrument.
    pub symbol: Locate,
    /// Its side.
    pub side: Side,
    /// Parties with the same group do not trade with each other. By default none.
    pub self_trade: Option<SelfTrade>,
    /// What a halt does with it. By default it is kept.
    pub on_halt: OnHalt,
    /// What a replacement may change.
    pub terms: Terms,
}

impl NewOrder {
    /// A displayed limit order for the day.
    pub const fn limit(owner: Owner, token: u64, symbol: Locate, side: Side, qty: u32, price: Price) -> Self {
        Self { owner, token, symbol, side, self_trade: None, on_halt: OnHalt::Keep, terms: Terms::limit(qty, price) }
    }
}

/// The part of an order that a replacement states anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Shares, with those that the order and its predecessors have traded (as OUCH and FIX count).
    pub qty: u32,
    /// At which price it trades.
    pub pricing: Pricing,
    /// How much of it others see.
    pub display: Display,
    /// How long it lives.
    pub life: Life,
    /// Whether it may take liquidity.
    pub post_only: PostOnly,
    /// It trades at least so many shares at once: when it arrives in sum, and while it rests with
    /// each contra order. Once fewer are left, these. 0 for any number.
    pub min_qty: u32,
}

impl Terms {
    /// A displayed limit order for the day.
    pub const fn limit(qty: u32, price: Price) -> Self {
        Self {
            qty,
            pricing: Pricing::Limit(price),
            display: Display::Full,
            life: Life::Day,
            post_only: PostOnly::No,
            min_qty: 0,
        }
    }

    /// The limit, where all else is as in [`Terms::limit`]: most orders have such terms.
    #[inline]
    pub(crate) const fn plain_limit(&self) -> Option<Price> {
        match *self {
            Self {
                pricing: Pricing::Limit(limit),
                display: Display::Full,
                life: Life::Day,
                post_only: PostOnly::No,
                min_qty: 0,
                ..
            } => Some(limit),
            _ => None,
        }
    }
}

/// At which price an order trades.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pricing {
    /// At this price or a better one.
    Limit(Price),
    /// At any price. What does not trade at once is canceled.
    Market,
    /// At a price that follows the displayed best prices. Never displayed.
    Peg(Peg),
    /// Rests apart until a trade at `trigger` or beyond (upwards for a buy, downwards for a sell);
    /// then a limit order, or without `limit` a market order.
    Stop {
        /// The price of the trade that wakes it.
        trigger: Price,
        /// Its limit from then on.
        limit: Option<Price>,
    },
}

/// See [`Pricing::Peg`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peg {
    /// The price that it follows.
    pub to: PegTo,
    /// Added to that price, towards the other side: positive is more aggressive. In 1/10,000.
    pub offset: i32,
    /// Never beyond this price.
    pub limit: Option<Price>,
}

/// The price that a pegged order follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PegTo {
    /// The best displayed price of its own side.
    Primary,
    /// The best displayed price of the other side.
    Market,
    /// Halfway between the two, rounded down to 1/10,000.
    Midpoint,
}

/// How much of an order others see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    /// All of it.
    Full,
    /// Nothing.
    Hidden,
    /// So many shares at a time, as often as shares are left: an iceberg. Each refill has a new
    /// order reference and is last at its price.
    Reserve(u32),
}

/// How long an order lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Until the symbol closes.
    Day,
    /// What does not trade at once is canceled.
    ImmediateOrCancel,
    /// Trades wholly at once, or not at all.
    FillOrKill,
    /// Until this time, ns.
    Until(u64),
    /// Takes part in this cross alone.
    Cross(CrossKind),
}

/// Which auction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrossKind {
    /// Opens the day.
    Opening,
    /// Ends it.
    Closing,
    /// Resumes trading after a halt.
    Halt,
}

/// Whether an order may take liquidity when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostOnly {
    /// It may.
    No,
    /// It is rejected if it would.
    Reject,
    /// It moves to one tick from the price that it would trade at.
    Slide,
}

/// What a halt does with a resting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHalt {
    /// It stays, and takes part in the cross that ends the halt.
    Keep,
    /// It is canceled.
    Cancel,
}

/// Self-trade prevention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfTrade {
    /// Orders of the same group do not trade with each other. Not 0.
    pub group: u32,
    /// What happens instead: the arriving order's rule.
    pub rule: SelfTradeRule,
}

/// What happens instead of a trade of two orders of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfTradeRule {
    /// The arriving order is canceled.
    CancelNewest,
    /// The resting order is canceled.
    CancelOldest,
    /// Both are.
    CancelBoth,
    /// Both lose the shares that they would have traded.
    Decrement,
}
