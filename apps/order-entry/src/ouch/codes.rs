//! The codes of fields of one byte, common to 5.0 and 4.2 unless a comment says otherwise.

use crate::codec::codes;

codes! {
    /// Buy, or which kind of sale.
    Side: u8;
    BUY = b'B' "buy",
    SELL = b'S' "sell",
    SELL_SHORT = b'T' "sell short",
    SELL_SHORT_EXEMPT = b'E' "sell short exempt",
}

impl Side {
    /// Whether it is one of the kinds of sale.
    pub const fn is_sale(self) -> bool {
        matches!(self, Self::SELL | Self::SELL_SHORT | Self::SELL_SHORT_EXEMPT)
    }

    /// Whether a modify may change this side to `other`.
    pub const fn may_become(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::SELL, Self::SELL_SHORT | Self::SELL_SHORT_EXEMPT) | (Self::SELL_SHORT_EXEMPT, Self::SELL_SHORT)
        )
    }
}

codes! {
    /// How long an order lives (5.0). 4.2 has seconds instead.
    TimeInForce: u8;
    DAY = b'0' "market hours",
    IMMEDIATE_OR_CANCEL = b'3' "immediate or cancel",
    EXTENDED_HOURS = b'5' "extended hours (GTX)",
    GOOD_TILL_TIME = b'6' "until the time of its option",
    AFTER_HOURS = b'E' "after hours",
}

codes! {
    /// Whether an order is shown.
    Display: u8;
    VISIBLE = b'Y' "visible",
    HIDDEN = b'N' "hidden",
    ATTRIBUTABLE = b'A' "visible with the firm's name",
    CONFORMANT = b'Z' "conformant",
    POST_ONLY = b'P' "post-only (4.2)",
    MIDPOINT = b'M' "midpoint peg (4.2)",
    MIDPOINT_POST_ONLY = b'W' "midpoint peg, post-only (4.2)",
}

codes! {
    /// For whom the firm trades.
    Capacity: u8;
    AGENCY = b'A' "agency",
    PRINCIPAL = b'P' "principal",
    RISKLESS_PRINCIPAL = b'R' "riskless principal",
    OTHER = b'O' "other",
}

codes! {
    /// `Y` or `N`: intermarket sweep, shares located, trade now.
    YesNo: u8;
    YES = b'Y' "yes",
    NO = b'N' "no",
}

codes! {
    /// In which session or auction an order takes part.
    CrossType: u8;
    CONTINUOUS = b'N' "continuous market",
    OPENING = b'O' "opening cross",
    CLOSING = b'C' "closing cross",
    HALT = b'H' "halt or IPO cross",
    SUPPLEMENTAL = b'S' "supplemental order",
    RETAIL = b'R' "retail",
    EXTENDED_LIFE = b'E' "extended life",
    AFTER_HOURS_CLOSE = b'A' "after hours close",
}

codes! {
    /// Whether an order that was accepted or replaced still lives.
    OrderState: u8;
    LIVE = b'L' "live",
    DEAD = b'D' "dead at once",
}

codes! {
    /// The day's events.
    SystemEventCode: u8;
    START_OF_DAY = b'S' "start of day",
    END_OF_DAY = b'E' "end of day",
}

codes! {
    /// Why an order was cancelled or reduced.
    CancelReason: u8;
    USER = b'U' "user requested",
    IMMEDIATE = b'I' "immediate or cancel, the rest",
    TIMEOUT = b'T' "its time is over",
    SUPERVISORY = b'S' "supervisory, by the venue's staff or cancel on disconnect",
    REGULATORY = b'D' "regulatory restriction",
    SELF_MATCH = b'Q' "self match prevention",
    SYSTEM = b'Z' "system cancel",
    COLLARS = b'K' "market collars",
    HALTED = b'H' "halted",
    CLOSED = b'E' "closed",
    POST_ONLY_SLIDE = b'F' "post-only, would slide for a displayed contra order",
    POST_ONLY_SLIDE_HIDDEN = b'G' "post-only, would slide for a hidden contra order",
    OPEN_PROTECTION = b'X' "open protection",
    DIRECT_LISTING = b'e' "direct listing",
    CROSS = b'C' "cross cancel (4.2)",
}

codes! {
    /// Why a trade was broken.
    BrokenTradeReason: u8;
    ERRONEOUS = b'E' "erroneous",
    CONSENT = b'C' "both parties agreed",
    SUPERVISORY = b'S' "supervisory",
    EXTERNAL = b'X' "a third party",
}

codes! {
    /// Why an order was restated.
    RestateReason: u8;
    DISPLAY_REFRESH = b'R' "reserve refreshed its display",
    DISPLAY_PRICE = b'P' "displayed price changed",
}

codes! {
    /// What a fill did to the book. Venues have more flags than these, for their fees.
    LiquidityFlag: u8;
    ADDED = b'A' "added",
    REMOVED = b'R' "removed",
    OPENING_CROSS = b'O' "opening cross",
    CLOSING_CROSS = b'C' "closing cross",
    HALT_CROSS = b'H' "halt or IPO cross",
    ADDED_HIDDEN = b'J' "added, not displayed",
    ADDED_MIDPOINT = b'k' "added, midpoint",
    REMOVED_MIDPOINT = b'm' "removed, midpoint",
    SUPPLEMENTAL = b'0' "supplemental order",
}

codes! {
    /// To what a price is tied.
    PriceType: u8;
    LIMIT = b'L' "limit",
    MARKET_PEG = b'P' "market peg",
    MIDPOINT_PEG = b'M' "midpoint peg",
    PRIMARY_PEG = b'R' "primary peg",
    MARKET_MAKER_PEG = b'Q' "market maker peg",
    MIDPOINT = b'm' "midpoint",
}

codes! {
    /// To what a discretion price is tied.
    DiscretionPriceType: u8;
    LIMIT = b'L' "limit",
    MARKET_PEG = b'P' "market peg",
    MIDPOINT_PEG = b'M' "midpoint peg",
    PRIMARY_PEG = b'R' "primary peg",
}

codes! {
    /// Whether an order may take liquidity.
    PostOnly: u8;
    POST_ONLY = b'P' "post only",
    NO = b'N' "may take",
}

codes! {
    /// Who the customer is.
    CustomerType: u8;
    RETAIL = b'R' "retail designated",
    NOT_RETAIL = b'N' "not retail designated",
    DEFAULT = b' ' "default of the port",
}

codes! {
    /// How the venue is to handle an order.
    HandleInstruction: u8;
    IMBALANCE_ONLY = b'I' "imbalance only",
}

codes! {
    /// How much an order weighed at the best price when it arrived.
    BboWeight: u8;
    UP_TO_0_2 = b'0' "0 to 0.2 %",
    UP_TO_1 = b'1' "0.2 to 1 %",
    UP_TO_2 = b'2' "1 to 2 %",
    ABOVE_2 = b'3' "above 2 %",
    UNSPECIFIED = b' ' "unspecified",
    SETS_QBBO = b'S' "sets the venue's best price while it joins the NBBO",
    IMPROVES_NBBO = b'N' "improves the NBBO",
}

codes! {
    /// What happens to two orders of one owner that would trade. A port's default applies without
    /// the option; the codes are the venue's, and only displayed here.
    AiqStrategy: u8;
}
