//! Which bit stands for which field: a table for each message of a client, one for all messages of
//! the venue.

use super::FieldId;

/// Bit b of bitfield i stands for `TABLE[i][b]`.
pub type Table = &'static [[Option<FieldId>; 8]];

/// Declares a table; `_` is a bit that US equities do not use.
macro_rules! table {
    ($($(#[$doc:meta])* $name:ident [$([$($slot:tt),*])*])*) => { $(
        $(#[$doc])*
        pub(super) const $name: Table = &[$([$(table!(@ $slot)),*]),*];
    )* };
    (@ _) => { None };
    (@ $slot:ident) => { Some(FieldId::$slot) };
}

table! {
    /// Of a new order.
    NEW_ORDER [
        [ClearingFirm, ClearingAccount, Price, ExecInst, OrderType, TimeInForce, MinQuantity, MaxFloor]
        [Symbol, SymbolSuffix, _, _, _, _, Capacity, RoutingInst]
        [Account, DisplayIndicator, _, DiscretionAmount, PegDifference, PreventMatch, LocateRequired, ExpireTime]
        [_, _, _, RiskReset, _, _, _, _]
        [_, AttributedQuote, _, ExtExecInst, _, _, _, _]
        [DisplayRange, StopPrice, RoutStrategy, RouteDelivery, ExDestination, EchoText, _, _]
        [_, RiskGroupId, _, _, _, _, _, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, _, _, _, CrossTrade, _]
        [_, LocateBroker, CmcSessions, StepUpAmount, _, _, _, _]
    ]
    /// Of a cancel.
    CANCEL_ORDER [
        [ClearingFirm, _, _, _, _, _, _, _]
        [_, _, _, _, _, _, _, _]
    ]
    /// Of a modify.
    MODIFY_ORDER [
        [ClearingFirm, _, OrderQuantity, Price, OrderType, CancelOrigOnReject, ExecInst, Side]
        [MaxFloor, StopPrice, _, _, _, _, _, LocateBroker]
    ]
    /// Of a purge.
    PURGE_ORDERS [
        [ClearingFirm, _, MassCancelInst, _, MassCancelId, _, _, _]
        [Symbol, SymbolSuffix, _, _, _, _, _, MatchingUnit]
    ]
    /// Of all messages of the venue.
    RETURN [
        [Side, PegDifference, Price, ExecInst, OrderType, TimeInForce, MinQuantity, _]
        [Symbol, SymbolSuffix, _, _, _, _, Capacity, _]
        [Account, ClearingFirm, ClearingAccount, DisplayIndicator, MaxFloor, DiscretionAmount, OrderQuantity, PreventMatch]
        [_, _, _, _, _, _, _, _]
        [OrigClOrdId, LeavesQuantity, LastShares, LastPrice, DisplayPrice, WorkingPrice, BaseLiquidity, ExpireTime]
        [SecondaryOrderId, _, _, AttributedQuote, ExtExecInst, _, _, _]
        [SubLiquidity, _, _, _, _, _, _, _]
        [FeeCode, EchoText, StopPrice, RoutingInst, RoutStrategy, RouteDelivery, ExDestination, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, MassCancelId, _, _, _, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, _, _, _, _, _]
        [_, _, _, CrossTrade, _, _, LocateBroker, _]
        [_, _, _, CmcSessions, _, CmcMatchQuantity, StepUpAmount, _]
    ]
}
