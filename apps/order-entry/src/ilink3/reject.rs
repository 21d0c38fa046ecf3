//! Why CME refused, canceled or ended something, by name. The numbers are those of CME's lists of
//! reject codes of iLink 3 for futures and options.

use crate::codec::codes;
use crate::orders::VenueEvent;

codes! {
    /// Why an order (523), a replace (532) or a cancel (535) was rejected: OrdRejReason (103) and
    /// CxlRejReason (102) have the same numbers.
    RejectReason: u16;
    CLOSED = 3 "not while the market is closed",
    PAUSED = 1003 "not while the market is closed or paused",
    FIELD = 1011 "FIX field incorrect",
    PRICE_NOT_POSITIVE = 1012 "price must be greater than zero",
    QUALIFIER = 1013 "invalid order qualifier",
    NOT_AUTHORIZED = 1014 "user not authorized to trade",
    NO_OPPOSITE_LIMIT = 2013 "market order without an opposite limit",
    EXPIRE_DATE = 2019 "expire date before the end of the trading session",
    NOT_ON_BOOK = 2045 "order not on the book",
    DISCLOSED_ABOVE = 2046 "disclosed quantity above total or remaining quantity",
    UNKNOWN_CONTRACT = 2047 "unknown contract",
    OTHER_SENDER = 2048 "order of another sender",
    OTHER_SIDE = 2051 "order of another side",
    STOP_BELOW_TRIGGER = 2058 "stop limit must not be below the trigger",
    STOP_ABOVE_TRIGGER = 2059 "stop limit must not be above the trigger",
    SELL_STOP = 2060 "sell stop must be below the last trade",
    BUY_STOP = 2061 "buy stop must be above the last trade",
    OTHER_PRODUCT = 2100 "replace for another product than the order's",
    OTHER_MITIGATION = 2101 "in-flight mitigation other than that of the first replace",
    REPLACE_OTHER_SENDER = 2102 "replace by another sender than the order's",
    QUANTITY_RANGE = 2115 "quantity outside of the allowable range",
    POST_CLOSE = 2130 "order type not permitted in post-close or pre-open",
    PRICE_LIMITS = 2137 "price outside the limits",
    PRICE_BANDS = 2179 "price outside the bands",
    TYPE_OF_GROUP = 2311 "order type not permitted for the group",
    CROSS_IN_PROGRESS = 2500 "request for cross in progress",
    QUANTITY_TOO_LOW = 2501 "quantity too low",
    NO_VALUE_DATE = 4999 "instrument without a valid value date",
    ICEBERG = 5102 "replace must not make or end an iceberg",
    REJECTED = 7000 "order rejected",
    NOT_ON_BOOK_ANY_MORE = 7016 "order not on the book",
    NO_CANCEL = 7024 "market is in no-cancel",
    RESERVED = 7027 "order type not permitted while the market is reserved",
    DATE_PAST = 7028 "order session date is in the past",
    FORBIDDEN = 7029 "not while the market is forbidden",
    DISCLOSED_BELOW = 7613 "disclosed quantity below the minimum quantity",
    SELF_MATCH_ID = 7614 "self-match prevention ID not of this firm",
}

codes! {
    /// BusinessRejectReason (380) of a Business Reject (521): why a message was refused as a whole.
    BusinessRejectReason: u16;
    OTHER = 0 "other",
    UNKNOWN_ID = 1 "unknown party details",
    UNKNOWN_SECURITY = 2 "unknown security",
    UNSUPPORTED_TYPE = 3 "unsupported message type",
    FIELD_MISSING = 5 "required field missing",
    NOT_AUTHORIZED = 6 "not authorized",
    THROTTLE = 8 "throttle limit exceeded",
    VALUE = 100 "value out of range for its tag",
    FORMAT = 101 "incorrect data format",
    KILL_SWITCH = 102 "kill switch",
    RISK_API = 103 "risk management API",
    CREDIT_CONTROLS = 104 "Globex credit controls",
    DELIVERABLE_SWAPS = 105 "not authorized for deliverable swap futures",
    RATE_SWAPS = 106 "not authorized for interest rate swap futures",
    INLINE_CREDIT = 107 "inline credit controls",
    PARTY_ID_USED = 108 "party details ID used before",
    NOT_DECODED = 109 "message could not be decoded",
    REPEATED_ENTRY = 110 "group entry appears more than once",
    TOO_MANY_PARTIES = 111 "too many party details definitions",
    PARTY_ERROR = 112 "technical error in registering party details",
    CROSS_VENUE_RISK = 113 "cross-venue risk",
    STATUS_UNAVAILABLE = 114 "order status not available",
    ENUM = 115 "value not supported",
    STATUS_NOT_FOUND = 116 "order status not found",
    MASS_STATUS = 117 "mass order status cannot be completed",
    TOO_MANY_REQUESTING = 118 "too many requesting party IDs",
    DUPLICATE_THRESHOLD = 119 "duplicate order threshold exceeded",
    ON_DEMAND = 120 "its party details definition was rejected",
    ON_DEMAND_MISMATCH = 121 "party details other than those of its definition",
    DEFINITION_OF_REJECTED = 122 "the message of the party details was rejected",
    ON_DEMAND_BETWEEN = 123 "a message between party details and their message",
    MASS_STATUS_IN_FLIGHT = 124 "a mass order status request is in flight",
    TOO_MANY_STATUS = 125 "too many order status requests in flight",
    PARTY_LIST_IN_FLIGHT = 126 "a party details list request is in flight",
    PARTY_LIST_EMPTY = 127 "party details list request without an ID",
    PARTY_LIST_BOTH = 128 "party details list request with both IDs",
    DEFINITION_BETWEEN = 129 "a message was sent between party details and their message",
    CROSS_FIRMS = 130 "cross of two firms",
    BACKUP = 131 "message type not supported on a backup",
    CROSS_SIDES = 132 "cross must have its buy side before its sell side",
    DUPLICATE_ID = 133 "duplicate ClOrdID",
    ORIGINAL_TRADE = 134 "value other than the original trade's",
    EXEC_NOT_FOUND = 135 "no such order and execution",
    EFIX_LIMIT = 136 "limit price must be zero for eFix",
    LATENCY_FLOOR = 137 "queued for the latency floor when the session ended",
    INTERNAL = 138 "internal technical error",
    MAX_SIZE = 139 "maximum order size exceeded",
    GFS = 140 "only FAK and FOK for government securities",
    BEHALF_SHORT = 141 "on-behalf user shorter than 6 characters",
    BEHALF_SELF = 142 "on-behalf user is the sender",
    BEHALF_FIRM = 143 "on-behalf user of another firm",
    BEHALF_QUOTES = 144 "quotes cannot be blocked on behalf",
    QUOTES_BLOCKED = 145 "blocked from quoting",
    BEHALF_UNAVAILABLE = 146 "cancel on behalf not available",
    BEHALF_NOT_AUTHORIZED = 147 "not authorized to cancel on behalf of the user",
    BEHALF_ILINK2 = 148 "no cancel on behalf of an iLink 2 order",
}

codes! {
    /// ExecRestatementReason (378) of a cancel (534): why the venue canceled by itself. 255 says
    /// that we asked.
    RestatementReason: u8;
    EXCHANGE = 8 "market (exchange) option",
    NOT_BEST = 9 "canceled, not best",
    CONNECTION_LOSS = 100 "cancel on disconnect",
    SELF_MATCH_OLDEST = 103 "self-match prevention, oldest order",
    CREDIT_CONTROLS = 104 "Globex credit controls",
    FIRMSOFT = 105 "by FirmSoft",
    RISK_API = 106 "risk management API",
    SELF_MATCH_NEWEST = 107 "self-match prevention, newest order",
    REST_TOO_SMALL = 108 "rest below the minimum order size",
    REQUEST_FOR_CROSS = 109 "request for cross",
    EXPIRATION = 110 "contract expired",
    SYSTEM = 111 "system cancel",
}

codes! {
    /// ErrorCodes of a Terminate (507): why the venue ends a connection.
    TerminateReason: u16;
    FINISHED = 0 "finished",
    UNNEGOTIATED = 2 "message before the negotiation",
    NOT_ESTABLISHED = 3 "message before the establishment",
    ALREADY_NEGOTIATED = 4 "already negotiated",
    NEGOTIATING = 5 "negotiation in progress",
    ALREADY_ESTABLISHED = 6 "already established",
    ESTABLISHING = 7 "establishment in progress",
    PORT_CLOSED = 8 "port closed, too many attempts to log in",
    VOLUME_CONTROLS = 9 "volume controls",
    NEXT_NUMBER = 10 "invalid NextSeqNo",
    NUMBER = 11 "invalid MsgSeqNum",
    LAST_NUMBER = 12 "invalid LastSeqNo",
    UUID = 13 "invalid UUID",
    TIMESTAMP = 14 "invalid timestamp",
    UUID_MISSING = 15 "UUID missing",
    TIMESTAMP_MISSING = 16 "RequestTimestamp missing",
    CODE_MISSING = 17 "Code missing",
    FRAMING = 18 "invalid framing header",
    DECODING = 19 "message could not be decoded",
    KEEP_ALIVE = 20 "keep-alive interval lapsed",
    NEXT_NUMBER_MISSING = 21 "NextSeqNo missing",
    LAPSED_MISSING = 22 "KeepAliveIntervalLapsed missing",
    BEFORE_LOGIN = 23 "message before the login",
    TERMINATING = 24 "termination in progress",
    OTHER = 25 "other",
    PRIMARY_DISCONNECTED = 26 "primary disconnected",
    PRIMARY_TERMINATED = 27 "primary terminated",
    SPLIT_REJECTED = 28 "split messages queued when the session ended",
    SPLIT_QUEUE = 29 "too many split messages queued",
}

codes! {
    /// ErrorCodes of a Negotiation Reject (502) or an Establishment Reject (505).
    LoginRejectReason: u16;
    HMAC = 0 "HMAC not authenticated",
    HMAC_UNAVAILABLE = 1 "HMAC not available",
    TIMESTAMP = 3 "invalid timestamp",
    HMAC_MISSING = 4 "HMAC signature missing",
    ACCESS_KEY_MISSING = 5 "access key missing",
    SESSION_MISSING = 6 "session missing",
    FIRM_MISSING = 7 "firm missing",
    TIMESTAMP_MISSING = 9 "RequestTimestamp missing",
    BLOCKED = 10 "session blocked",
    KEEP_ALIVE = 11 "invalid keep-alive interval",
    ACCESS_KEY = 12 "invalid access key",
    SESSION = 13 "invalid session",
    FIRM = 14 "invalid firm",
    VOLUME_CONTROLS = 15 "volume controls",
    SPLIT_REJECTED = 16 "split messages queued when the session ended",
    SPLIT_QUEUE = 17 "too many split messages queued",
    SYSTEM_NAME_MISSING = 18 "TradingSystemName missing",
    SYSTEM_VERSION_MISSING = 19 "TradingSystemVersion missing",
    SYSTEM_VENDOR_MISSING = 20 "TradingSystemVendor missing",
    KEEP_ALIVE_MISSING = 21 "keep-alive interval missing",
    SYSTEM_NAME = 23 "invalid TradingSystemName",
    SYSTEM_VERSION = 24 "invalid TradingSystemVersion",
    SYSTEM_VENDOR = 25 "invalid TradingSystemVendor",
    BACKUP_FIRST = 27 "designated backup before its primary",
    BACKUP_NEGOTIATION = 28 "no negotiation on a backup of an established primary",
}

codes! {
    /// MassActionRejectReason (1376) of an Order Mass Action Report (562).
    MassActionRejectReason: u8;
    NOT_SUPPORTED = 0 "mass action not supported",
    SECURITY = 1 "invalid or unknown security",
    MARKET_SEGMENT = 8 "invalid or unknown market segment",
    SECURITY_GROUP = 9 "invalid or unknown security group",
    OTHER = 99 "other",
}

/// Bits of an event's reason by a Business Reject, and by the report of a mass action, which number
/// for themselves; no other number has one.
const BUSINESS: u16 = 0x8000;
const MASS_ACTION: u16 = 0x4000;

/// The reason of an event of a Business Reject.
pub(in crate::ilink3) const fn business(reason: u16) -> u16 {
    BUSINESS | reason
}

/// The reason of an event of a mass action's report.
pub(in crate::ilink3) const fn mass_action(reason: u8) -> u16 {
    MASS_ACTION | reason as u16
}

/// What the reason of an event means that the client has made of a message.
pub(crate) fn reason_name(event: &VenueEvent) -> Option<&'static str> {
    let reason = event.reason()?;
    if reason & BUSINESS != 0 {
        return BusinessRejectReason(reason & !BUSINESS).name();
    }
    if reason & MASS_ACTION != 0 {
        return MassActionRejectReason(u8::try_from(reason & !MASS_ACTION).ok()?).name();
    }
    match event {
        VenueEvent::Canceled { .. } => RestatementReason(u8::try_from(reason).ok()?).name(),
        _ => RejectReason(reason).name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_number_means_what_its_message_says() {
        assert_eq!(reason_name(&VenueEvent::Rejected { reason: 2137 }), Some("price outside the limits"));
        assert_eq!(reason_name(&VenueEvent::CancelRefused { reason: 2045 }), Some("order not on the book"));
        assert_eq!(reason_name(&VenueEvent::Rejected { reason: business(103) }), Some("risk management API"));
        let resting = Some("self-match prevention, oldest order");
        assert_eq!(reason_name(&VenueEvent::Canceled { reason: 103 }), resting);
        let mass_action = mass_action(1);
        assert_eq!(reason_name(&VenueEvent::Rejected { reason: mass_action }), Some("invalid or unknown security"));
        assert_eq!(reason_name(&VenueEvent::Rejected { reason: 1 }), None);
    }

    #[test]
    fn business_rejects_and_terminations_are_those_of_the_list() {
        let business: Vec<u16> = BusinessRejectReason::ALL.iter().map(|it| it.0).collect();
        assert_eq!(business, [0, 1, 2, 3, 5, 6, 8].into_iter().chain(100..=148).collect::<Vec<u16>>());
        let terminations: Vec<u16> = TerminateReason::ALL.iter().map(|it| it.0).collect();
        assert_eq!(terminations, [0].into_iter().chain(2..=29).collect::<Vec<u16>>());
    }
}
