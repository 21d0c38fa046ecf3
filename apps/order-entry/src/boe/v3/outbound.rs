//! Messages of the venue: bodies after the header. Times are ns since 1970, prices have four
//! decimals, dates are numbers such as 20261127.

use zerocopy::little_endian::{I64, U32, U64};

use super::PreventMatch;
use super::set::message_set;
use crate::Text;
use crate::boe::{Capacity, OrderType, ReasonCode, RiskResetResult, Side, TimeInForce};
use crate::codec::layouts;

layouts! {
    skip 12, kind u16;

    /// An order was accepted.
    1501 OrderAcknowledgment 173 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The venue's number.
        order_id: U64,
        /// Its side.
        side: Side,
        /// Its limit.
        price: I64,
        /// How it is priced.
        order_type: OrderType,
        /// How long it lives.
        time_in_force: TimeInForce,
        /// The least contracts of a fill.
        min_quantity: U32,
        /// The instrument.
        symbol: Text<8>,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Account of the customer.
        account: Text<16>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Account that clears.
        clearing_account: Text<4>,
        /// Its contracts.
        quantity: U32,
        /// What happens to orders of one owner.
        prevent_match: PreventMatch,
        /// Expiration date of the instrument.
        maturity_date: U32,
        /// Opens or closes a position.
        open_close: u8,
        /// Open contracts.
        leaves: U32,
        /// Added or removed.
        base_liquidity: u8,
        /// When it expires.
        expire_ns: U64,
        /// More about liquidity.
        sub_liquidity: u8,
        /// Stop price.
        stop_price: I64,
        /// Number of the firm that clears in its place.
        cmta_number: U32,
        /// Kind of customer.
        cti_code: u8,
        /// By hand or by a machine.
        manual: u8,
        /// The operator.
        operator: Text<18>,
        /// Contracts executed.
        cumulative: U32,
        /// The frequent trader.
        frequent_trader: Text<6>,
        /// How the order came to the broker.
        handling: u8,
        /// When the venue received the order.
        received_ns: U64,
    }

    /// An order was refused. It has no number, and is not replayed.
    1502 OrderRejected 105 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// An order was changed.
    1503 OrderModified 113 {
        /// Time.
        at_ns: U64,
        /// Its new identifier.
        cl_ord_id: Text<20>,
        /// Its identifier before.
        orig_cl_ord_id: Text<20>,
        /// The venue's number.
        order_id: U64,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Its limit.
        price: I64,
        /// How it is priced.
        order_type: OrderType,
        /// Its contracts.
        quantity: U32,
        /// Open contracts.
        leaves: U32,
        /// Added or removed.
        base_liquidity: u8,
        /// Stop price.
        stop_price: I64,
        /// The frequent trader.
        frequent_trader: Text<6>,
        /// How the order came to the broker.
        handling: u8,
        /// When the venue received the change.
        received_ns: U64,
    }

    /// A change was refused. It has no number, and is not replayed.
    1504 ModifyRejected 125 {
        /// Time.
        at_ns: U64,
        /// The identifier that the order would have had.
        cl_ord_id: Text<20>,
        /// The order.
        orig_cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// Contracts of an order traded.
    1505 OrderExecution 103 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The fill.
        exec_id: U64,
        /// Its contracts.
        last_shares: U32,
        /// Its price.
        last_price: I64,
        /// Open contracts.
        leaves: U32,
        /// Added or removed.
        base_liquidity: u8,
        /// More about liquidity.
        sub_liquidity: u8,
        /// Its side.
        side: Side,
        /// The instrument.
        symbol: Text<8>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Expiration date of the instrument.
        maturity_date: U32,
        /// The fee.
        fee_code: Text<2>,
        /// Business date.
        trade_date: U32,
        /// Contracts that clear.
        clearing_size: U32,
        /// `P` a trade that is not final yet, `N` final.
        pending: u8,
        /// `1` simple, `2` part of a spread, `3` the spread.
        multileg: u8,
        /// Links the parts of a spread.
        secondary_exec_id: U64,
    }

    /// An order is no more.
    1506 OrderCancelled 53 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Why.
        reason: ReasonCode,
        /// When the venue received the cancel.
        received_ns: U64,
    }

    /// A cancel was refused. It has no number, and is not replayed.
    1507 CancelRejected 105 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// A mass cancel is done.
    1508 MassCancelAcknowledgment 52 {
        /// Time.
        at_ns: U64,
        /// The mass cancel.
        mass_cancel_id: Text<20>,
        /// Orders that it cancelled.
        cancelled_count: U32,
        /// When the venue received it.
        received_ns: U64,
    }

    /// A mass cancel was refused.
    1509 MassCancelRejected 101 {
        /// Time.
        at_ns: U64,
        /// The mass cancel.
        mass_cancel_id: Text<20>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// A purge is done.
    1510 PurgeAcknowledgment 52 {
        /// Time.
        at_ns: U64,
        /// The purge.
        mass_cancel_id: Text<20>,
        /// Orders that it cancelled.
        cancelled_count: U32,
        /// When the venue received it.
        received_ns: U64,
    }

    /// A purge was refused.
    1511 PurgeRejected 101 {
        /// Time.
        at_ns: U64,
        /// The purge.
        mass_cancel_id: Text<20>,
        /// Why.
        reason: ReasonCode,
        /// More about it.
        text: Text<60>,
    }

    /// A fill is no more, or has another price.
    1512 TradeCancelOrCorrect 104 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// The fill.
        exec_ref_id: U64,
        /// Its side.
        side: Side,
        /// Liquidity of the fill.
        base_liquidity: u8,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// Account that clears.
        clearing_account: Text<4>,
        /// Contracts of the fill.
        last_shares: U32,
        /// Its price.
        last_price: I64,
        /// Its price now; 0 is none, the fill is cancelled.
        corrected_price: I64,
        /// When it traded.
        orig_at_ns: U64,
        /// The instrument.
        symbol: Text<8>,
        /// For whom the firm trades.
        capacity: Capacity,
        /// Expiration date of the instrument.
        maturity_date: U32,
        /// Opens or closes a position.
        open_close: u8,
        /// Number of the firm that clears in its place.
        cmta_number: U32,
    }

    /// A trade at settlement has its price.
    1513 TasRestatement 116 {
        /// Time.
        at_ns: U64,
        /// The order.
        cl_ord_id: Text<20>,
        /// Firm that clears.
        clearing_firm: Text<4>,
        /// The fill.
        exec_id: U64,
        /// Its side.
        side: Side,
        /// Limit of the order.
        price: I64,
        /// The instrument.
        symbol: Text<8>,
        /// Expiration date of the instrument.
        maturity_date: U32,
        /// Contracts of the fill.
        last_shares: U32,
        /// Its price.
        last_price: I64,
        /// The fee.
        fee_code: Text<2>,
        /// Business date.
        trade_date: U32,
        /// The price that clears.
        clearing_price: I64,
        /// The instrument that clears.
        clearing_symbol: Text<8>,
        /// Simple, part of a spread, the spread.
        multileg: u8,
        /// Links the parts of a spread.
        secondary_exec_id: U64,
    }

    /// The answer to a request to end a lock-out.
    1522 ResetRiskAcknowledgment 37 {
        /// The request.
        risk_status_id: Text<16>,
        /// What became of it.
        result: RiskResetResult,
        /// When it came.
        received_ns: U64,
    }
}

message_set! {
    /// A message of the venue, viewed in the stream.
    Outbound;
    OrderAcknowledgment OrderRejected OrderModified ModifyRejected OrderExecution OrderCancelled CancelRejected
    MassCancelAcknowledgment MassCancelRejected PurgeAcknowledgment PurgeRejected TradeCancelOrCorrect TasRestatement
    ResetRiskAcknowledgment
}
