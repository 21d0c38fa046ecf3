//! What the venue says on a FIX session, before it has a number.

use market::Price;
use order_entry::fix::codec::{Decimal, Writer};
use order_entry::fix::orders::{
    CancelReject, CxlRejResponseTo, ExecTransType, ExecType, ExecutionReport, OrdStatus, OrdType, Side, TimeInForce,
    Utc,
};
use order_entry::fix::session::Version;

use super::Order;

/// A message to the account.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FixAnswer {
    /// What became of an order (8).
    Execution(Execution),
    /// A request to cancel or to replace was refused (9).
    Refusal(Refusal),
}

/// An execution report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    pub(super) kind: ExecType,
    pub(super) cl_ord_id: Vec<u8>,
    pub(super) orig_cl_ord_id: Option<Vec<u8>>,
    pub(super) exec_id: String,
    pub(super) exec_ref_id: Option<String>,
    pub(super) last: Option<(u32, Price)>,
    pub(super) reject_reason: Option<u64>,
    pub(super) text: &'static str,
    order_id: String,
    status: OrdStatus,
    symbol: Vec<u8>,
    side: Side,
    ord_type: OrdType,
    time_in_force: TimeInForce,
    price: Option<Price>,
    qty: u32,
    executed: u32,
    leaves: u32,
    paid: i64,
}

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(super) cl_ord_id: Vec<u8>,
    pub(super) orig_cl_ord_id: Vec<u8>,
    /// 0 where the order is not known.
    pub(super) order_id: u64,
    pub(super) status: OrdStatus,
    pub(super) reason: u64,
    pub(super) to: CxlRejResponseTo,
    pub(super) text: &'static str,
}

impl Execution {
    pub(super) fn of(order: &Order, kind: ExecType, exec_id: u64) -> Self {
        Self {
            kind,
            cl_ord_id: order.cl_ord_id.clone(),
            orig_cl_ord_id: order.orig.clone().filter(|_| kind == ExecType::Replaced),
            exec_id: exec_id.to_string(),
            exec_ref_id: None,
            last: None,
            reject_reason: None,
            text: "",
            order_id: named(order.order_id),
            status: order.status,
            symbol: order.symbol.0.trim_ascii_end().to_vec(),
            side: order.side,
            ord_type: order.ord_type,
            time_in_force: order.time_in_force,
            price: order.price,
            qty: order.qty,
            executed: order.executed,
            leaves: order.leaves,
            paid: order.paid,
        }
    }

    fn write(&self, version: Version, utc_ns: u64, out: &mut Writer<'_>) {
        let (exec_type, exec_trans_type) = match (version, self.kind) {
            // FIX 4.2 says a fill by its state, and a trade that is taken back by 20=1.
            (Version::Fix42, ExecType::Trade | ExecType::TradeCancel) => {
                let is_canceled = self.kind == ExecType::TradeCancel;
                let trans = if is_canceled { ExecTransType::Cancel } else { ExecTransType::New };
                (ExecType::from_wire(self.status.to_wire()).unwrap_or(ExecType::New), Some(trans))
            }
            (Version::Fix42, kind) => (kind, Some(ExecTransType::New)),
            (_, kind) => (kind, None),
        };
        let unit = Decimal::SCALE / Price::SCALE;
        let average = self.paid.checked_div(self.executed.into()).unwrap_or(0);
        let (exec_ref_id, last) = (self.exec_ref_id.as_ref(), self.last);
        let report = ExecutionReport {
            account: None,
            avg_px: Some(Decimal(average.saturating_mul(unit))),
            cl_ord_id: Some(&self.cl_ord_id),
            cum_qty: shares(self.executed),
            exec_id: self.exec_id.as_bytes(),
            exec_ref_id: exec_ref_id.map(String::as_bytes),
            exec_trans_type,
            last_px: last.map(|(_, price)| Decimal::from_price(price)),
            last_qty: last.map(|(qty, _)| shares(qty)),
            order_id: self.order_id.as_bytes(),
            order_qty: Some(shares(self.qty)),
            ord_status: self.status,
            ord_type: Some(self.ord_type),
            orig_cl_ord_id: self.orig_cl_ord_id.as_deref(),
            price: self.price.map(Decimal::from_price),
            side: self.side,
            symbol: &self.symbol,
            text: Some(self.text.as_bytes()).filter(|text| !text.is_empty()),
            time_in_force: Some(self.time_in_force),
            transact_time: Some(Utc(utc_ns)),
            ord_rej_reason: self.reject_reason,
            exec_type,
            leaves_qty: shares(self.leaves),
            exec_restatement_reason: (self.kind == ExecType::Restated).then_some(RESTATED_BY_DECLINE),
        };
        report.write(out);
    }
}

/// ExecRestatementReason (378): a part of the quantity was declined.
const RESTATED_BY_DECLINE: u64 = 5;

fn shares(count: u32) -> Decimal {
    Decimal::whole(count.into())
}

fn named(order_id: u64) -> String {
    if order_id == 0 { "NONE".to_owned() } else { order_id.to_string() }
}

impl FixAnswer {
    /// MsgType (35).
    pub const fn msg_type(&self) -> &'static str {
        match self {
            Self::Execution(_) => "8",
            Self::Refusal(_) => "9",
        }
    }

    /// Writes the fields behind the header, in the words of a version; `utc_ns` is TransactTime.
    pub fn write(&self, version: Version, utc_ns: u64, out: &mut Writer<'_>) {
        match self {
            Self::Execution(execution) => execution.write(version, utc_ns, out),
            Self::Refusal(refusal) => {
                let order_id = named(refusal.order_id);
                let report = CancelReject {
                    account: None,
                    cl_ord_id: &refusal.cl_ord_id,
                    order_id: order_id.as_bytes(),
                    ord_status: refusal.status,
                    orig_cl_ord_id: &refusal.orig_cl_ord_id,
                    text: Some(refusal.text.as_bytes()).filter(|text| !text.is_empty()),
                    transact_time: Some(Utc(utc_ns)),
                    cxl_rej_reason: Some(refusal.reason),
                    cxl_rej_response_to: refusal.to,
                };
                report.write(out);
            }
        }
    }
}
