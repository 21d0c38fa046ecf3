//! Why an order was refused, or lost shares.

/// Why an order was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// No such instrument.
    Symbol,
    /// No such owner.
    Owner,
    /// No shares, or more than an order may have.
    Quantity,
    /// Outside of the prices that exist, or between two ticks.
    Price,
    /// The instrument is closed.
    Closed,
    /// The instrument is halted, or the order must trade at once while the instrument is quoted.
    Halted,
    /// A pegged order and one with a minimum quantity rest hidden; a reserve shows shares.
    Display,
    /// The minimum quantity exceeds the order's shares.
    MinQuantity,
    /// These terms exclude each other.
    Terms,
    /// The order would take liquidity, and must not.
    PostOnly,
    /// A group for self-trade prevention is not 0.
    SelfTradeGroup,
    /// The engine has no room for another order.
    Full,
    /// Its time to end is over.
    Expired,
}

impl RejectReason {
    /// The reason's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Symbol => "symbol",
            Self::Owner => "owner",
            Self::Quantity => "quantity",
            Self::Price => "price",
            Self::Closed => "closed",
            Self::Halted => "halted",
            Self::Display => "display",
            Self::MinQuantity => "min_quantity",
            Self::Terms => "terms",
            Self::PostOnly => "post_only",
            Self::SelfTradeGroup => "self_trade_group",
            Self::Full => "full",
            Self::Expired => "expired",
        }
    }
}

/// Why an order lost shares without a trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// Its owner wished it.
    User,
    /// It had to trade at once, and could not (further).
    Immediate,
    /// Its time was over.
    Timeout,
    /// The operator wished it.
    Supervisory,
    /// It would have traded with its own group.
    SelfMatch,
    /// A replacement of it was invalid.
    Replace,
    /// The instrument was halted.
    Halted,
    /// The instrument was closed.
    Closed,
    /// It was for a cross that is over.
    CrossOver,
    /// It would have traded beyond the collar of a cross.
    Collar,
    /// The engine had no room.
    System,
}

impl CancelReason {
    /// The reason's letter in OUCH.
    pub const fn letter(self) -> u8 {
        match self {
            Self::User | Self::Replace => b'U',
            Self::Immediate | Self::CrossOver => b'I',
            Self::Timeout => b'T',
            Self::Supervisory => b'S',
            Self::SelfMatch => b'Q',
            Self::Halted => b'H',
            Self::Closed => b'E',
            Self::Collar => b'K',
            Self::System => b'Z',
        }
    }
}
