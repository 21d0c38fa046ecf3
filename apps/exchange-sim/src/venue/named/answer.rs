//! What the venue tells about an order that its owner named, before a protocol has words for it.

use std::sync::Arc;

use market::{Price, Side, Symbol};
use matching_engine::{CancelReason, Liquidity, OrderId, RejectReason, Terms};

/// A message to the account.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When, on the venue's clock.
    pub at_ns: u64,
    /// Its number among the account's answers of the protocol: an identifier of the report.
    pub number: u64,
    /// What happened.
    pub kind: AnswerKind,
    /// The identifier of the order, or of the request that this answers.
    pub cl_ord_id: Vec<u8>,
    /// The order's identifier before that request.
    pub orig_cl_ord_id: Option<Vec<u8>>,
    /// The order as it is then; none where the request named none.
    pub order: Option<NamedOrder>,
    /// The bytes of the request that this answers, where that is not the one that made the order.
    pub request: Option<Arc<[u8]>>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerKind {
    /// The order is live.
    Accepted,
    /// The order was refused, and never existed.
    Rejected(OrderRefusal),
    /// It traded.
    Executed {
        /// Shares.
        qty: u32,
        /// Price.
        price: Price,
        /// The trade's number, that of the feed.
        match_number: u64,
        /// The order's part in it.
        liquidity: Liquidity,
    },
    /// It lost shares without a trade, perhaps all.
    Canceled {
        /// Why.
        reason: CancelReason,
        /// Shares that it lost.
        decrement: u32,
        /// Because of a replacement beyond the rate.
        is_rate: bool,
    },
    /// It has new terms.
    Replaced,
    /// Nothing: its owner has asked what it is.
    Status,
    /// Its reserve shows shares again, under a new time.
    Refreshed {
        /// The price.
        price: Price,
    },
    /// A trade of it is void.
    Broken {
        /// Its shares.
        qty: u32,
        /// Its price.
        price: Price,
        /// Its number.
        match_number: u64,
        /// The number of the answer that told it.
        fill: Option<u64>,
    },
    /// A request to change it was refused.
    Refused(Refused, OrderRefusal),
    /// All orders of an instrument, or of the account, were canceled.
    MassCanceled {
        /// How many.
        count: u32,
    },
}

/// Which request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// To cancel.
    Cancel,
    /// To replace.
    Replace,
    /// To cancel many.
    MassCancel,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRefusal {
    /// Its identifier was used.
    Duplicate,
    /// The order that it names never existed.
    Unknown,
    /// The order that it names has ended.
    TooLate,
    /// More came than the rate allows.
    Rate,
    /// The account must not enter orders now.
    Disabled,
    /// The session still replays.
    DuringReplay,
    /// The protocol or this venue does not know such terms.
    Terms(&'static str),
    /// The engine's reason.
    Engine(RejectReason),
}

impl OrderRefusal {
    /// The reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate ClOrdID",
            Self::Unknown => "unknown order",
            Self::TooLate => "too late",
            Self::Rate => "too many orders",
            Self::Disabled => "order entry is disabled",
            Self::DuringReplay => "received during replay",
            Self::Terms(text) => text,
            Self::Engine(RejectReason::Symbol) => "unknown symbol",
            Self::Engine(reason) => reason.name(),
        }
    }
}

/// The state of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderStatus {
    /// Live, without a fill.
    New,
    /// Live, with a fill.
    PartiallyFilled,
    /// All of it traded.
    Filled,
    /// Canceled.
    Canceled,
    /// Its time is over.
    Expired,
    /// Another took its place.
    Replaced,
    /// Refused.
    Rejected,
}

/// An order, or one that was refused.
#[derive(Clone, Debug)]
pub struct NamedOrder {
    /// The identifier of the request that made it.
    pub cl_ord_id: Vec<u8>,
    pub(super) id: Option<OrderId>,
    /// What it asked for; none where that made no sense.
    pub(super) terms: Option<Terms>,
    /// The reference of the chain's first order; 0 before it is accepted.
    pub order_id: u64,
    /// The instrument.
    pub symbol: Symbol,
    /// Buy or sell.
    pub side: Side,
    /// Its limit.
    pub price: Option<Price>,
    /// Shares, with those that are executed.
    pub qty: u32,
    /// Shares executed.
    pub executed: u32,
    /// Shares left.
    pub leaves: u32,
    /// Shares times price of what is executed.
    pub paid: i64,
    /// Its state.
    pub status: OrderStatus,
    /// The bytes of the request that made it, for what answers repeat.
    pub request: Arc<[u8]>,
}

impl NamedOrder {
    /// What is told of an order that never was.
    pub(super) fn unknown(cl_ord_id: &[u8], symbol: Symbol, side: Side) -> Self {
        Self {
            cl_ord_id: cl_ord_id.to_vec(),
            id: None,
            terms: None,
            order_id: 0,
            symbol,
            side,
            price: None,
            qty: 0,
            executed: 0,
            leaves: 0,
            paid: 0,
            status: OrderStatus::Rejected,
            request: [].into(),
        }
    }
}
