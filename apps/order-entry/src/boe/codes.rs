//! Codes of fields of one byte, of both versions.

use crate::codec::codes;

codes! {
    /// The venue's answer to a login.
    LoginStatus: u8;
    ACCEPTED = b'A' "accepted",
    NOT_AUTHORIZED = b'N' "not authorized",
    DISABLED = b'D' "session disabled",
    IN_USE = b'B' "session in use",
    INVALID_SESSION = b'S' "invalid session",
    SEQUENCE_AHEAD = b'Q' "sequence ahead of what the venue has sent",
    INVALID_UNIT = b'I' "invalid unit",
    INVALID_BITFIELD = b'F' "invalid return bitfield",
    INVALID_MESSAGE = b'M' "invalid login request",
}

codes! {
    /// Why the venue ends a session.
    LogoutReason: u8;
    USER = b'U' "user requested",
    END_OF_DAY = b'E' "end of day",
    ADMINISTRATIVE = b'A' "administrative",
    PROTOCOL_VIOLATION = b'!' "protocol violation",
}

codes! {
    /// Why an order was rejected or cancelled.
    ReasonCode: u8;
    ADMIN = b'A' "admin",
    UNKNOWN_MATURITY = b'B' "unknown maturity date (futures)",
    UNDEFINED = b'C' "capacity undefined; unknown product (futures)",
    DUPLICATE = b'D' "duplicate identifier",
    REDUCED = b'E' "size reduced by a restatement",
    NO_QUOTE = b'F' "failed to quote",
    HALTED = b'H' "halted",
    DATA_CENTER = b'I' "incorrect data center",
    TOO_LATE = b'J' "too late to cancel",
    RATE = b'K' "order rate exceeded",
    CROSSES_NBBO = b'L' "price exceeds the cross range, or would lock or cross the NBBO",
    SIZE = b'M' "order size exceeded; too little liquidity (futures)",
    NO_LIQUIDITY = b'N' "ran out of liquidity",
    UNKNOWN_ORDER = b'O' "no such order",
    PENDING_FILL = b'P' "not modified, because a fill is pending",
    FIRST_TRADE = b'Q' "waiting for the first trade",
    NO_ROUTING = b'R' "routing unavailable",
    SHORT_SALE = b'S' "short sale price violation",
    TRADE_THROUGH = b'T' "fill would trade through the NBBO",
    USER = b'U' "user requested",
    WOULD_WASH = b'V' "would trade with its owner",
    WOULD_REMOVE = b'W' "post-only order would remove liquidity",
    EXPIRED = b'X' "expired",
    UNKNOWN_SYMBOL = b'Y' "symbol not supported",
    UNFORESEEN = b'Z' "unforeseen",
    RISK_FIRM = b'f' "risk: firm or group",
    PERSISTED = b'h' "order persisted",
    RISK_ACCESS = b'm' "risk: market access limit",
    RISK_CONFIGURATION = b'n' "risk: configuration insufficient",
    MAX_OPEN_ORDERS = b'o' "too many open orders",
    RELOAD = b'r' "reserve reloaded",
    RISK_PRODUCT = b's' "risk: symbol or product",
    LIMIT_UP_DOWN = b'u' "limit up, limit down",
    REMOVE_ON_UNSLIDE = b'w' "would remove liquidity when it unslides",
    CROSSED = b'x' "crossed market",
    DURING_REPLAY = b'y' "received during replay",
    SESSION_END = b'z' "session end",
}

codes! {
    /// Why the venue changed an order by itself.
    RestatementReason: u8;
    MARKET_CLOSE = b'C' "market close",
    RELOAD = b'L' "reserve reloaded",
    REPRICE = b'P' "repriced",
    LIQUIDITY = b'Q' "liquidity updated",
    REROUTE = b'R' "rerouted",
    SHIP_AND_POST = b'S' "reduced by ship and post",
    WASH = b'W' "reduced, would trade with its owner",
}

codes! {
    /// What became of a request to end a lock-out (version 3).
    RiskResetResult: u8;
    IGNORED = b' ' "ignored",
    SUCCESS = b'Y' "lock-out ended",
    GROUP_RESET = b'D' "lock-out of the group ended",
    FIRM_LIMIT = b'F' "too many resets of the firm",
    GROUP_LIMIT = b'C' "too many resets of the group",
    PRODUCT_LIMIT = b'S' "too many resets of the product",
    EMPTY = b'E' "names no lock-out",
    DATA_CENTER = b'I' "incorrect data center",
    PRODUCT = b'U' "invalid product",
    CLEARING_FIRM = b'c' "invalid clearing firm",
    DURING_REPLAY = b'y' "received during replay",
}

codes! {
    /// Buy, or which kind of sale.
    Side: u8;
    BUY = b'1' "buy",
    SELL = b'2' "sell",
    SELL_SHORT = b'5' "sell short",
    SELL_SHORT_EXEMPT = b'6' "sell short exempt",
}

codes! {
    /// How an order is priced.
    OrderType: u8;
    MARKET = b'1' "market",
    LIMIT = b'2' "limit",
    STOP = b'3' "stop",
    STOP_LIMIT = b'4' "stop limit",
    PEG = b'P' "peg",
}

codes! {
    /// How long an order lives.
    TimeInForce: u8;
    DAY = b'0' "day",
    GOOD_TILL_CANCEL = b'1' "until cancelled",
    AT_THE_OPEN = b'2' "at the open (equities)",
    IMMEDIATE_OR_CANCEL = b'3' "immediate or cancel",
    FILL_OR_KILL = b'4' "fill or kill",
    GOOD_TILL_DATE = b'6' "until a time",
    AT_THE_CLOSE = b'7' "at the close (equities)",
}

codes! {
    /// For whom the firm trades.
    Capacity: u8;
    AGENCY = b'A' "agency",
    PRINCIPAL = b'P' "principal",
    RISKLESS_PRINCIPAL = b'R' "riskless principal",
    CUSTOMER = b'C' "customer (futures)",
    FIRM = b'F' "firm (futures)",
}
