//! Orders by FIX: requests D, F and G in the engine's words, and what the engine reports as
//! messages 8 and 9. Versions differ only in how an answer is written. The sessions, with their
//! numbers, are the caller's.

mod answer;
mod requests;

use std::collections::BTreeMap;

use market::{Price, Side, Symbol};
use matching_engine::{CancelReason, OrderId, OrderState, RejectReason, Report};
use order_entry::Text;
use order_entry::fix::orders::{self, ExecType, OrdStatus, OrdType, TimeInForce};
use order_entry::ouch::v50::{BrokenTrade, OrderExecuted};
use order_entry::ouch::{self, BrokenTradeReason, LiquidityFlag};

pub use answer::FixAnswer;

use super::account::Key;
use super::answers::emit;
use answer::Execution;

/// Marks the engine's tokens of orders by FIX. OUCH's have 40 bits.
const TOKEN_BIT: u64 = 1 << 63;
/// The drop copy, which speaks OUCH, names an order by FIX with this index and the order's number.
const DROP_COPY_IDX: u8 = 255;

/// OrdRejReason (103).
mod ord_rej_reason {
    pub(super) const BROKER: u64 = 0;
    pub(super) const SYMBOL: u64 = 1;
    pub(super) const CLOSED: u64 = 2;
    pub(super) const DUPLICATE: u64 = 6;
    pub(super) const UNSUPPORTED: u64 = 11;
}

/// An order, or a request that was refused.
#[derive(Clone, Debug)]
struct Order {
    cl_ord_id: Vec<u8>,
    /// The identifier before the replacement that made this one.
    orig: Option<Vec<u8>>,
    id: Option<OrderId>,
    /// The reference of the chain's first order; 0 before it is accepted.
    order_id: u64,
    symbol: Symbol,
    side: orders::Side,
    ord_type: OrdType,
    time_in_force: TimeInForce,
    price: Option<Price>,
    qty: u32,
    executed: u32,
    leaves: u32,
    /// Shares times price of what is executed.
    paid: i64,
    status: OrdStatus,
}

/// The orders that one account has entered by FIX.
#[derive(Debug, Default)]
pub(super) struct FixOrders {
    orders: Vec<Order>,
    /// Identifiers that were used, and the orders of those that name one.
    cl_ord_ids: BTreeMap<Vec<u8>, Option<usize>>,
    /// The identifiers of reports of fills, by order and match.
    fills: BTreeMap<(usize, u64), String>,
    /// The identifier of the request to cancel that is at work.
    canceling: Option<Vec<u8>>,
    answers: Vec<FixAnswer>,
    exec_ids: u64,
}

impl FixOrders {
    pub(super) fn answers(&self) -> &[FixAnswer] {
        &self.answers
    }

    /// Tells a report, and gives the side of its order; none where the order is not by FIX.
    pub(super) fn report(&mut self, report: &Report) -> Option<Side> {
        let token = report.token();
        if token & TOKEN_BIT == 0 {
            return None;
        }
        let at = token as u32 as usize;
        let side = if self.orders.get(at)?.side == orders::Side::Buy { Side::Buy } else { Side::Sell };
        match *report {
            Report::Accepted { order, .. } => {
                self.orders[at].order_id = order.reference.0;
                self.follow(at, &order, OrdStatus::New);
                self.tell(at, ExecType::New, |_| {});
            }
            Report::Rejected { reason, .. } => self.reject(at, reject_code(reason), reason.name()),
            Report::Executed { order, qty, price, match_number, .. } => {
                self.orders[at].paid += i64::from(qty) * price.0;
                self.follow(at, &order, OrdStatus::Filled);
                let exec_id = format!("{}-{match_number}", self.exec_ids + 1);
                self.fills.insert((at, match_number), exec_id.clone());
                self.tell(at, ExecType::Trade, |answer| {
                    (answer.exec_id, answer.last) = (exec_id, Some((qty, price)));
                });
            }
            Report::Canceled { order, reason, .. } => self.canceled(at, &order, reason),
            Report::Replaced { old, new, .. } => self.replaced(old.token as u32 as usize, at, &new),
            Report::Broken { match_number, qty, price, .. } => {
                let order = &mut self.orders[at];
                order.executed = order.executed.saturating_sub(qty);
                order.paid -= i64::from(qty) * price.0;
                let exec_ref_id = self.fills.get(&(at, match_number)).cloned();
                self.tell(at, ExecType::TradeCancel, |answer| {
                    (answer.exec_ref_id, answer.last) = (exec_ref_id, Some((qty, price)));
                });
            }
            // FIX has no words for a new time, and this venue takes no stops by FIX.
            _ => {}
        }
        Some(side)
    }

    /// Takes over what the engine says of an order; `end` is its state without leaves.
    fn follow(&mut self, at: usize, state: &OrderState, end: OrdStatus) {
        let order = &mut self.orders[at];
        order.id = Some(state.id);
        (order.executed, order.leaves) = (state.executed, state.leaves);
        order.status = match (state.leaves, state.executed) {
            (0, _) => end,
            (_, 0) => OrdStatus::New,
            _ => OrdStatus::PartiallyFilled,
        };
    }

    fn canceled(&mut self, at: usize, order: &OrderState, reason: CancelReason) {
        let (end, kind) = match (reason, order.leaves) {
            (_, 1..) => (OrdStatus::Canceled, ExecType::Restated),
            (CancelReason::Timeout, _) => (OrdStatus::Expired, ExecType::Expired),
            _ => (OrdStatus::Canceled, ExecType::Canceled),
        };
        self.follow(at, order, end);
        if order.leaves > 0 {
            self.orders[at].qty = order.leaves + order.executed;
        }
        let request = self.canceling.clone();
        self.tell(at, kind, |answer| {
            answer.text = ouch::CancelReason(reason.letter()).name().unwrap_or("canceled");
            if let Some(request) = request {
                answer.orig_cl_ord_id = Some(std::mem::replace(&mut answer.cl_ord_id, request));
            }
        });
    }

    fn replaced(&mut self, old: usize, at: usize, state: &OrderState) {
        let Some(before) = self.orders.get_mut(old) else { return };
        (before.leaves, before.status) = (0, OrdStatus::Replaced);
        let (order_id, paid) = (before.order_id, before.paid);
        let order = &mut self.orders[at];
        (order.order_id, order.paid) = (order_id, paid);
        self.follow(at, state, OrdStatus::Filled);
        self.tell(at, ExecType::Replaced, |_| {});
    }

    fn reject(&mut self, at: usize, reason: u64, text: &'static str) {
        self.orders[at].status = OrdStatus::Rejected;
        self.tell(at, ExecType::Rejected, |answer| {
            (answer.reject_reason, answer.text) = (Some(reason), text);
        });
    }

    /// Adds an execution report of an order as it is now, which `change` completes.
    fn tell(&mut self, at: usize, kind: ExecType, change: impl FnOnce(&mut Execution)) {
        self.exec_ids += 1;
        let mut answer = Execution::of(&self.orders[at], kind, self.exec_ids);
        change(&mut answer);
        self.answers.push(FixAnswer::Execution(answer));
    }
}

const fn reject_code(reason: RejectReason) -> u64 {
    match reason {
        RejectReason::Symbol => ord_rej_reason::SYMBOL,
        RejectReason::Closed | RejectReason::Halted => ord_rej_reason::CLOSED,
        RejectReason::Terms | RejectReason::Display => ord_rej_reason::UNSUPPORTED,
        _ => ord_rej_reason::BROKER,
    }
}

/// The copy of a trade, or of one that was broken, of an order by FIX.
pub(super) fn drop_copy(at_ns: u64, report: &Report) -> Option<Vec<u8>> {
    let user_ref = Key { idx: DROP_COPY_IDX, number: report.token() as u32 }.number.into();
    match *report {
        Report::Executed { qty, price, match_number, liquidity, .. } => {
            let copy = OrderExecuted {
                at_ns: at_ns.into(),
                user_ref,
                quantity: qty.into(),
                price: price.0.unsigned_abs().into(),
                liquidity: LiquidityFlag(liquidity.letter()),
                match_number: match_number.into(),
            };
            Some(emit((&copy).into(), DROP_COPY_IDX))
        }
        Report::Broken { match_number, .. } => {
            let (match_number, reason) = (match_number.into(), BrokenTradeReason::ERRONEOUS);
            let copy = BrokenTrade { at_ns: at_ns.into(), user_ref, match_number, reason, cl_ord_id: Text::BLANK };
            Some(emit((&copy).into(), DROP_COPY_IDX))
        }
        _ => None,
    }
}
