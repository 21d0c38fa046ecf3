//! D, F, G, H, q from the trader; 8, 9, r from the exchange.
//!
//! OrderQty (38) of a replace is the new total of the order with what is executed, not what is to
//! be left. Text and identifiers are bytes of the received message, and may hold anything but SOH.
//! A report is not refused for a field that changes nothing of what it says: a fill counts, however
//! its average price is written.

use super::defect::{Defect, Reason};
use super::enums::{CxlRejResponseTo, ExecTransType, ExecType, HandlInst, OrdStatus, OrdType, Side, TimeInForce};
use super::value::{Utc, Value, messages};
use crate::fix::codec::Decimal;

messages! {
    /// A new order (D).
    b"D" NewOrderSingle {
        /// Account.
        optional 1 account: &'a [u8],
        /// The trader's identifier, unique for the day.
        required 11 cl_ord_id: &'a [u8],
        /// Instructions, characters between spaces.
        optional 18 exec_inst: &'a [u8],
        /// Required in FIX 4.2.
        optional 21 handl_inst: HandlInst,
        /// Shares; absent where the order is an amount of money.
        optional 38 order_qty: Decimal,
        /// Market, limit and others.
        required 40 ord_type: OrdType,
        /// Limit.
        optional 44 price: Decimal,
        /// Side.
        required 54 side: Side,
        /// Instrument.
        required 55 symbol: &'a [u8],
        /// How long the order lives; a day where absent.
        optional 59 time_in_force: TimeInForce,
        /// When the order was made.
        required 60 transact_time: Utc,
        /// The price of the trade that wakes a stop.
        optional 99 stop_px: Decimal,
        /// The least to fill at once.
        optional 110 min_qty: Decimal,
        /// Shares to show; 0 for none.
        optional 111 max_floor: Decimal,
        /// When the order ends.
        optional 126 expire_time: Utc,
        /// Added to the price that a pegged order follows.
        optional 211 peg_offset: Decimal,
    }

    /// A request to cancel an order (F).
    b"F" CancelRequest {
        /// Account.
        optional 1 account: &'a [u8],
        /// The identifier of this request.
        required 11 cl_ord_id: &'a [u8],
        /// The exchange's identifier of the order.
        optional 37 order_id: &'a [u8],
        /// Shares of the order.
        optional 38 order_qty: Decimal,
        /// The identifier of the order, or of its last replacement.
        required 41 orig_cl_ord_id: &'a [u8],
        /// Side of the order.
        required 54 side: Side,
        /// Instrument of the order.
        required 55 symbol: &'a [u8],
        /// When the request was made.
        required 60 transact_time: Utc,
    }

    /// A request to replace an order (G).
    b"G" ReplaceRequest {
        /// Account.
        optional 1 account: &'a [u8],
        /// The identifier of this request, and of the order once it is replaced.
        required 11 cl_ord_id: &'a [u8],
        /// Instructions, characters between spaces.
        optional 18 exec_inst: &'a [u8],
        /// Required in FIX 4.2.
        optional 21 handl_inst: HandlInst,
        /// The exchange's identifier of the order.
        optional 37 order_id: &'a [u8],
        /// The new total of shares, with those that are executed.
        optional 38 order_qty: Decimal,
        /// Market, limit and others.
        required 40 ord_type: OrdType,
        /// The identifier of the order, or of its last replacement.
        required 41 orig_cl_ord_id: &'a [u8],
        /// New limit.
        optional 44 price: Decimal,
        /// Side of the order.
        required 54 side: Side,
        /// Instrument of the order.
        required 55 symbol: &'a [u8],
        /// How long the order lives.
        optional 59 time_in_force: TimeInForce,
        /// When the request was made.
        required 60 transact_time: Utc,
        /// The price of the trade that wakes a stop.
        optional 99 stop_px: Decimal,
        /// The least to fill at once.
        optional 110 min_qty: Decimal,
        /// Shares to show; 0 for none.
        optional 111 max_floor: Decimal,
        /// When the order ends.
        optional 126 expire_time: Utc,
        /// Added to the price that a pegged order follows.
        optional 211 peg_offset: Decimal,
    }

    /// A question what became of an order (H).
    b"H" StatusRequest {
        /// The identifier of the order, or of its last replacement.
        required 11 cl_ord_id: &'a [u8],
        /// The exchange's identifier of the order.
        optional 37 order_id: &'a [u8],
        /// Side of the order.
        required 54 side: Side,
        /// Instrument of the order.
        required 55 symbol: &'a [u8],
    }

    /// What became of an order (8).
    b"8" ExecutionReport {
        /// Account.
        optional 1 account: &'a [u8],
        /// Average price of what is executed.
        lenient 6 avg_px: Decimal,
        /// The identifier of the order, or of the request that this answers.
        optional 11 cl_ord_id: &'a [u8],
        /// Executed so far.
        required 14 cum_qty: Decimal,
        /// The exchange's identifier of this report.
        required 17 exec_id: &'a [u8],
        /// The report that this one cancels or corrects.
        optional 19 exec_ref_id: &'a [u8],
        /// Required in FIX 4.2: whether this report is new, or cancels or corrects one.
        optional 20 exec_trans_type: ExecTransType,
        /// Price of this fill.
        lenient 31 last_px: Decimal,
        /// Shares of this fill.
        optional 32 last_qty: Decimal,
        /// The exchange's identifier of the order.
        required 37 order_id: &'a [u8],
        /// Shares of the order.
        lenient 38 order_qty: Decimal,
        /// State of the order.
        required 39 ord_status: OrdStatus,
        /// Market, limit and others.
        lenient 40 ord_type: OrdType,
        /// The identifier before the request that this answers.
        optional 41 orig_cl_ord_id: &'a [u8],
        /// Limit.
        lenient 44 price: Decimal,
        /// Side.
        required 54 side: Side,
        /// Instrument.
        required 55 symbol: &'a [u8],
        /// Text for people.
        optional 58 text: &'a [u8],
        /// How long the order lives.
        lenient 59 time_in_force: TimeInForce,
        /// When it happened.
        lenient 60 transact_time: Utc,
        /// Why the order was rejected.
        lenient 103 ord_rej_reason: u64,
        /// What the report is about.
        required 150 exec_type: ExecType,
        /// Shares that may still be executed.
        required 151 leaves_qty: Decimal,
        /// Why the order was changed by the exchange.
        lenient 378 exec_restatement_reason: u64,
    }

    /// A request to cancel or to replace was refused (9).
    b"9" CancelReject {
        /// Account.
        optional 1 account: &'a [u8],
        /// The identifier of the request.
        required 11 cl_ord_id: &'a [u8],
        /// The exchange's identifier of the order, `NONE` where it knows none.
        required 37 order_id: &'a [u8],
        /// State of the order.
        required 39 ord_status: OrdStatus,
        /// The identifier of the order in the request.
        required 41 orig_cl_ord_id: &'a [u8],
        /// Text for people.
        optional 58 text: &'a [u8],
        /// When it happened.
        lenient 60 transact_time: Utc,
        /// 0 too late, 1 unknown order, 3 already pending, 6 duplicate ClOrdID.
        lenient 102 cxl_rej_reason: u64,
        /// Which request.
        required 434 cxl_rej_response_to: CxlRejResponseTo,
    }

    /// A request to cancel many orders (q).
    b"q" MassCancel {
        /// The identifier of this request.
        required 11 cl_ord_id: &'a [u8],
        /// Side of the orders; both where absent.
        optional 54 side: Side,
        /// Instrument of the orders.
        optional 55 symbol: &'a [u8],
        /// When the request was made.
        required 60 transact_time: Utc,
        /// 1 of a security, 7 all.
        required 530 request_type: u64,
    }

    /// What became of a request to cancel many orders (r).
    b"r" MassCancelReport {
        /// The identifier of the request.
        optional 11 cl_ord_id: &'a [u8],
        /// The exchange's identifier of the request.
        required 37 order_id: &'a [u8],
        /// Text for people.
        optional 58 text: &'a [u8],
        /// The request's type.
        required 530 request_type: u64,
        /// 0 refused, else the type that was done.
        required 531 response: u64,
        /// Why it was refused.
        optional 532 reject_reason: u64,
        /// Orders that were cancelled.
        optional 533 total_affected: u64,
    }
}

/// What an [`ExecutionReport`] says, the same for all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderOutcome {
    /// `last_qty` shares were executed at `last_px`.
    Fill,
    /// The fill `exec_ref_id` is taken back.
    FillCanceled,
    /// The fill `exec_ref_id` has another price or quantity.
    FillCorrected,
    /// The answer to a question about the order: nothing happened.
    Status,
    /// Anything else: the order's state is what happened.
    State(ExecType),
}

impl ExecutionReport<'_> {
    /// What the report says. FIX 4.2 has ExecTransType (20) for fills that are taken back or
    /// corrected, and says a fill by its state (150=1, 150=2); later versions have ExecTypes F, G
    /// and H.
    pub const fn outcome(&self) -> OrderOutcome {
        match self.exec_trans_type {
            Some(ExecTransType::Cancel) => return OrderOutcome::FillCanceled,
            Some(ExecTransType::Correct) => return OrderOutcome::FillCorrected,
            Some(ExecTransType::Status) => return OrderOutcome::Status,
            Some(ExecTransType::New) | None => {}
        }
        match self.exec_type {
            ExecType::PartialFill | ExecType::Fill | ExecType::Trade => OrderOutcome::Fill,
            ExecType::TradeCancel => OrderOutcome::FillCanceled,
            ExecType::TradeCorrect => OrderOutcome::FillCorrected,
            ExecType::OrderStatus => OrderOutcome::Status,
            other => OrderOutcome::State(other),
        }
    }
}

#[cfg(test)]
mod tests;
