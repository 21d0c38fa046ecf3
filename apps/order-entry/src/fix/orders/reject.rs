//! Why an exchange refused, canceled or changed something, by the names of FIX 5.0 SP2. Earlier
//! versions have the first of these alone. Exchanges add numbers of their own.

use super::defect::{BusinessReason, Reason};
use crate::codec::codes;
use crate::orders::VenueEvent;

codes! {
    /// OrdRejReason (103): why an order was rejected.
    OrdRejReason: u16;
    BROKER_OPTION = 0 "broker or exchange option",
    UNKNOWN_SYMBOL = 1 "unknown symbol",
    EXCHANGE_CLOSED = 2 "exchange closed",
    EXCEEDS_LIMIT = 3 "order exceeds limit",
    TOO_LATE = 4 "too late to enter",
    UNKNOWN_ORDER = 5 "unknown order",
    DUPLICATE = 6 "duplicate order",
    DUPLICATE_VERBAL = 7 "duplicate of a verbally communicated order",
    STALE = 8 "stale order",
    TRADE_ALONG = 9 "trade along required",
    INVALID_INVESTOR = 10 "invalid investor ID",
    UNSUPPORTED = 11 "unsupported order characteristic",
    SURVEILLANCE = 12 "surveillance option",
    INCORRECT_QUANTITY = 13 "incorrect quantity",
    INCORRECT_ALLOCATED = 14 "incorrect allocated quantity",
    UNKNOWN_ACCOUNT = 15 "unknown account",
    PRICE_BAND = 16 "price exceeds current price band",
    PRICE_INCREMENT = 18 "invalid price increment",
    NO_REFERENCE = 19 "reference price not available",
    NOTIONAL = 20 "notional value exceeds threshold",
    RISK_THRESHOLD = 21 "algorithm risk threshold breached",
    SHORT_SELL = 22 "short sell not permitted",
    SHORT_SELL_SECURITY = 23 "short sell rejected, security pre-borrow restriction",
    SHORT_SELL_ACCOUNT = 24 "short sell rejected, account pre-borrow restriction",
    CREDIT = 25 "insufficient credit limit",
    CLIP_SIZE = 26 "exceeded clip size limit",
    NOTIONAL_AMOUNT = 27 "exceeded maximum notional order amount",
    DV01 = 28 "exceeded DV01/PV01 limit",
    CS01 = 29 "exceeded CS01 limit",
    OTHER = 99 "other",
}

codes! {
    /// CxlRejReason (102): why a cancel or a replace was refused.
    CxlRejReason: u16;
    TOO_LATE = 0 "too late to cancel",
    UNKNOWN_ORDER = 1 "unknown order",
    BROKER_OPTION = 2 "broker or exchange option",
    PENDING = 3 "order already in pending cancel or replace status",
    MASS_CANCEL = 4 "unable to process order mass cancel request",
    ORIG_TIME = 5 "OrigOrdModTime did not match the order's last TransactTime",
    DUPLICATE = 6 "duplicate ClOrdID received",
    EXCEEDS_PRICE = 7 "price exceeds current price",
    PRICE_BAND = 8 "price exceeds current price band",
    PRICE_INCREMENT = 18 "invalid price increment",
    OTHER = 99 "other",
}

codes! {
    /// MassCancelRejectReason (532): why a cancel of many orders was refused.
    MassCancelRejectReason: u16;
    NOT_SUPPORTED = 0 "mass cancel not supported",
    SECURITY = 1 "invalid or unknown security",
    UNDERLYING = 2 "invalid or unknown underlying security",
    PRODUCT = 3 "invalid or unknown product",
    CFI_CODE = 4 "invalid or unknown CFICode",
    SECURITY_TYPE = 5 "invalid or unknown security type",
    TRADING_SESSION = 6 "invalid or unknown trading session",
    MARKET = 7 "invalid or unknown market",
    MARKET_SEGMENT = 8 "invalid or unknown market segment",
    SECURITY_GROUP = 9 "invalid or unknown security group",
    ISSUER = 10 "invalid or unknown security issuer",
    UNDERLYING_ISSUER = 11 "invalid or unknown issuer of underlying security",
    OTHER = 99 "other",
}

codes! {
    /// ExecRestatementReason (378): why the exchange changed an order by itself.
    ExecRestatementReason: u16;
    CORPORATE_ACTION = 0 "GT corporate action",
    RENEWAL = 1 "GT renewal or restatement",
    VERBAL = 2 "verbal change",
    REPRICING = 3 "repricing of order",
    BROKER_OPTION = 4 "broker option",
    PARTIAL_DECLINE = 5 "partial decline of OrderQty",
    HALT = 6 "cancel on trading halt",
    SYSTEM_FAILURE = 7 "cancel on system failure",
    MARKET_OPTION = 8 "market option",
    NOT_BEST = 9 "canceled, not best",
    RECAP = 10 "warehouse recap",
    PEG_REFRESH = 11 "peg refresh",
    CONNECTION_LOSS = 12 "cancel on connection loss",
    LOGOUT = 13 "cancel on logout",
    TIME_PRIORITY = 14 "assign time priority",
    PRICE_VIOLATION = 15 "cancel for trade price violation",
    CROSS_IMBALANCE = 16 "cancel for cross imbalance",
    OTHER = 99 "other",
}

/// The reason of an event where another message than usual has refused the request: the highest
/// three bits say which, because each message numbers for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fix) enum RefusedBy {
    /// A Reject (3), by SessionRejectReason (373).
    Session,
    /// A BusinessMessageReject (j), by BusinessRejectReason (380).
    Business,
    /// An OrderMassCancelReport (r), by MassCancelRejectReason (532).
    MassCancel,
}

const NUMBER: u16 = 0x1fff;
/// The number 0 of the field that a message of its kind has: the reason 0 says that there is none.
const ZERO: u16 = 0x7fff;

/// The reason of an event by the field that a message of its kind has.
pub(in crate::fix) const fn stated(number: Option<u64>) -> u16 {
    match number {
        None => 0,
        Some(0) => ZERO,
        Some(number) => number as u16 & ZERO,
    }
}

impl RefusedBy {
    const fn bits(self) -> u16 {
        match self {
            Self::Session => 0x8000,
            Self::Business => 0xa000,
            Self::MassCancel => 0xc000,
        }
    }

    /// The reason of an event. A number of the venue's own beyond 8,191 is cut.
    pub(in crate::fix) const fn reason(self, number: u64) -> u16 {
        self.bits() | number as u16 & NUMBER
    }

    const fn of(reason: u16) -> Option<Self> {
        match reason & !NUMBER {
            0x8000 => Some(Self::Session),
            0xa000 => Some(Self::Business),
            0xc000 => Some(Self::MassCancel),
            _ => None,
        }
    }

    fn name(self, number: u16) -> Option<&'static str> {
        match self {
            Self::Session => Reason::from_wire(number.into()).map(Reason::name),
            Self::Business => BusinessReason::from_wire(number.into()).map(BusinessReason::name),
            Self::MassCancel => MassCancelRejectReason(number).name(),
        }
    }
}

/// What the reason of an event means that the client has made of a message.
pub(crate) fn reason_name(event: &VenueEvent) -> Option<&'static str> {
    let reason = event.reason()?;
    if let Some(by) = RefusedBy::of(reason) {
        return by.name(reason & NUMBER);
    }
    let reason = match reason {
        0 => return None,
        ZERO => 0,
        reason => reason,
    };
    match event {
        VenueEvent::Rejected { .. } => OrdRejReason(reason).name(),
        VenueEvent::CancelRefused { .. } | VenueEvent::ReplaceRefused { .. } => CxlRejReason(reason).name(),
        VenueEvent::Reduced { .. } | VenueEvent::Restated { .. } => ExecRestatementReason(reason).name(),
        // ExecType (150).
        VenueEvent::Canceled { .. } => match u8::try_from(reason) {
            Ok(b'3') => Some("done for day"),
            Ok(b'4') => Some("canceled"),
            Ok(b'C') => Some("expired"),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the specification of FIX 5.0 SP2 numbers them.
    #[test]
    fn numbers_of_each_field_have_the_names_of_the_specification() {
        let numbers = |all: &[u16]| all.to_vec();
        let ord: Vec<u16> = (0..=16).chain(18..=29).chain([99]).collect();
        let cxl: Vec<u16> = (0..=8).chain([18, 99]).collect();
        let mass: Vec<u16> = (0..=11).chain([99]).collect();
        let restated: Vec<u16> = (0..=16).chain([99]).collect();
        assert_eq!(numbers(&OrdRejReason::ALL.iter().map(|it| it.0).collect::<Vec<_>>()), ord);
        assert_eq!(numbers(&CxlRejReason::ALL.iter().map(|it| it.0).collect::<Vec<_>>()), cxl);
        assert_eq!(numbers(&MassCancelRejectReason::ALL.iter().map(|it| it.0).collect::<Vec<_>>()), mass);
        assert_eq!(numbers(&ExecRestatementReason::ALL.iter().map(|it| it.0).collect::<Vec<_>>()), restated);
        let session = (0..=18).chain([99]).map(Reason::from_wire);
        let business = (0..=10).chain([18]).map(BusinessReason::from_wire);
        assert!(session.into_iter().all(|it| it.is_some()) && business.into_iter().all(|it| it.is_some()));
    }

    /// Events that the gateway makes itself have no reason, and a venue may leave it out.
    #[test]
    fn reason_that_nobody_stated_has_no_name() {
        assert_eq!(stated(None), 0);
        assert_eq!(reason_name(&VenueEvent::CancelRefused { reason: 0 }), None);
        assert_eq!(reason_name(&VenueEvent::Rejected { reason: stated(Some(0)) }), Some("broker or exchange option"));
    }

    #[test]
    fn same_number_means_what_its_message_says() {
        let rejected = |reason| reason_name(&VenueEvent::Rejected { reason });
        assert_eq!(rejected(5), Some("unknown order"));
        assert_eq!(rejected(RefusedBy::Session.reason(5)), Some("Value is incorrect (out of range) for this tag"));
        assert_eq!(rejected(RefusedBy::Business.reason(5)), Some("Conditionally required field missing"));
        assert_eq!(rejected(RefusedBy::MassCancel.reason(5)), Some("invalid or unknown security type"));
        assert_eq!(reason_name(&VenueEvent::CancelRefused { reason: stated(Some(0)) }), Some("too late to cancel"));
        assert_eq!(reason_name(&VenueEvent::Canceled { reason: u16::from(b'C') }), Some("expired"));
        assert_eq!(reason_name(&VenueEvent::Reduced { by: 0, reason: 11 }), Some("peg refresh"));
        // A venue's own.
        assert_eq!(rejected(7_613), None);
    }
}
