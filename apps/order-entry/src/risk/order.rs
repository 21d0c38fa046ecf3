//! What a check is asked about: an order, a replace, and the state of the market.

use market::{Price, Side};

use crate::orders::Instructions;

/// The firm's number for an instrument: the position of its limits in the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstrumentIdx(pub u32);

/// The firm's number for a strategy: the position of its limits in the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrategyIdx(pub u16);

/// Where an order goes: both have rate limits of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The session that carries the order, by its position in [`Limits::ports`](super::Limits).
    pub port: u16,
    /// The venue's matching unit, by its position in [`Limits::units`](super::Limits).
    pub unit: u16,
}

/// An order that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// What is traded.
    pub instrument: InstrumentIdx,
    /// Buy or sell.
    pub side: Side,
    /// Shares or contracts.
    pub qty: u32,
    /// The worst price. That of a market order says nothing: it is valued at the edge of the
    /// collar that is worth more, and meets each own order of the other side.
    pub price: Price,
    /// How it is priced, how long it lives, and what else it says.
    pub instructions: Instructions,
    /// The session and unit.
    pub route: Route,
    /// Whose it is.
    pub strategy: StrategyIdx,
}

impl NewOrder {
    /// A limit order of the first strategy, by the first session and unit.
    pub const fn limit(instrument: InstrumentIdx, side: Side, qty: u32, price: Price) -> Self {
        let (route, strategy) = (Route { port: 0, unit: 0 }, StrategyIdx(0));
        Self { instrument, side, qty, price, instructions: Instructions::PLAIN, route, strategy }
    }
}

/// A change of a live order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replace {
    /// The client's id of this replace, with which its answer is reported.
    pub id: u64,
    /// The intended total with executions, as OUCH and FIX 38 count.
    pub qty: u32,
    /// Executed until now.
    pub cum: u32,
    /// The order is a sale that was marked short, and so is the replace. One of a long sale may not
    /// go beyond the position.
    pub is_short: bool,
    /// The new price.
    pub price: Price,
    /// The session and unit.
    pub route: Route,
}

/// What the feed says about the instrument when the order is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Market {
    /// The price that the collar surrounds: the last trade, the middle of the best bid and offer,
    /// or the reference of the limit up/limit down band. Without one each order is refused.
    pub reference: Option<Price>,
    /// Where the reference is the middle of the best bid and offer: the distance between them; else
    /// 0.
    pub spread: Price,
    /// The book has a gap, or its feed is not trusted.
    pub is_stale: bool,
    /// The venue has halted or paused the instrument.
    pub is_halted: bool,
    /// When the feed last delivered anything, heartbeats included.
    pub heard_ns: u64,
}
