//! Messages of FIX as what they say about orders.

use market::Price;

use super::books::{Change, Changes};
use super::numbers::Numbers;
use crate::fix::codec::{Decimal, Message, parse_number};
use crate::fix::orders::{
    CancelReject, CxlRejResponseTo, Defect, ExecType, ExecutionReport, MassCancelReport, OrdStatus, OrderOutcome,
    Reason, RefusedBy, stated,
};
use crate::fix::session::{End, Event};
use crate::fix::tag::tags;
use crate::orders::{ExecId, OrderKey, StatedTerms, VenueEvent, VenueMessage, VenueStatus};

/// What an event of the session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Both sides are logged on.
    LoggedOn,
    /// The numbers began anew.
    Reset,
    /// Messages of the venue from this number on never come.
    Skipped { from: u64 },
    /// The venue has taken what was before this number, and asks for what follows.
    Asked { begin: u64 },
    /// The venue has answered our question.
    Answered,
    /// A message with its number.
    Message { seq: u64, message: VenueMessage },
    /// A message that cannot be read: its number, its type, and what is wrong.
    Broken { seq: u64, msg_type: u8, defect: Defect },
    /// The connection is over.
    End(End),
    /// Nothing.
    Nothing,
}

/// What an event says. `numbers` are those of the session, `changes` our requests that are no
/// orders.
pub(super) fn read(event: &Event<'_>, numbers: &Numbers, changes: &Changes) -> Said {
    match event {
        Event::LoggedOn => Said::LoggedOn,
        Event::Reset => Said::Reset,
        Event::Skipped { from } => Said::Skipped { from: *from },
        Event::ResendRequested { begin } => Said::Asked { begin: *begin },
        Event::Answered { .. } => Said::Answered,
        Event::Message { message, seq, .. } => about_orders(message, *seq, numbers, changes),
        Event::Rejected(message) => {
            let seq = message.number(tags::MSG_SEQ_NUM).unwrap_or(0);
            let by = (RefusedBy::Session, tags::SESSION_REJECT_REASON);
            let message = refused(message, by, numbers, changes);
            Said::Message { seq, message }
        }
        // Of a type that we do not know: nothing that is read of others would stand in it.
        Event::Refused { seq, defect: Defect { reason: Reason::MsgType, .. }, .. } => {
            Said::Message { seq: *seq, message: VenueMessage::Other }
        }
        Event::Refused { msg_type, seq, defect } => Said::Broken { seq: *seq, msg_type: *msg_type, defect: *defect },
        Event::Disconnect(end) => Said::End(*end),
        _ => Said::Nothing,
    }
}

fn about_orders(message: &Message<'_>, seq: u64, numbers: &Numbers, changes: &Changes) -> Said {
    let read = match message.msg_type() {
        b"8" => execution_report(message),
        b"9" => cancel_reject(message),
        b"r" => mass_cancel_report(message),
        b"j" => Ok(refused(message, (RefusedBy::Business, tags::BUSINESS_REJECT_REASON), numbers, changes)),
        _ => Ok(VenueMessage::Other),
    };
    match read {
        Ok(message) => Said::Message { seq, message },
        Err(defect) => Said::Broken { seq, msg_type: message.msg_type()[0], defect },
    }
}

fn execution_report(message: &Message<'_>) -> Result<VenueMessage, Defect> {
    let report = ExecutionReport::parse(message)?;
    let id = id_of(report.cl_ord_id);
    let key = OrderKey::Client(id);
    // The answer to a cancel has the cancel's id, and the order's here.
    let of_order = OrderKey::Client(report.orig_cl_ord_id.map_or(id, |orig| id_of(Some(orig))));
    let exec = |text: Option<&[u8]>| {
        text.map(ExecId::from_text).ok_or(Defect { tag: tags::EXEC_REF_ID, reason: Reason::Missing })
    };
    let status = report.ord_status;
    let is_dead = matches!(status, OrdStatus::Canceled | OrdStatus::Expired | OrdStatus::Rejected);
    let with_terms = |event| -> Result<VenueMessage, Defect> {
        Ok(VenueMessage::Answer { key, event, terms: stated_terms(message, &report)?, is_dead })
    };
    Ok(match report.outcome() {
        OrderOutcome::Fill => {
            let qty = shares(tags::LAST_QTY, report.last_qty)?;
            let (exec, price) = (ExecId::from_text(report.exec_id), to_price(tags::LAST_PX, report.last_px)?);
            let event = VenueEvent::Filled { exec, qty, price };
            VenueMessage::Answer { key, event, terms: terms_of_trade(&report), is_dead }
        }
        OrderOutcome::FillCanceled => VenueMessage::answer(key, VenueEvent::Busted { exec: exec(report.exec_ref_id)? }),
        OrderOutcome::FillCorrected => {
            let qty = shares(tags::LAST_QTY, report.last_qty)?;
            let (exec, price) = (exec(report.exec_ref_id)?, to_price(tags::LAST_PX, report.last_px)?);
            let new_exec = ExecId::from_text(report.exec_id);
            let event = VenueEvent::Corrected { exec, new_exec, qty, price };
            VenueMessage::Answer { key, event, terms: terms_of_trade(&report), is_dead: false }
        }
        // Of the terms before a replace.
        OrderOutcome::Status if status == OrdStatus::Replaced => VenueMessage::Other,
        // No other status is one of an order that never was. A refusal has a reason of its own.
        OrderOutcome::Status if status == OrdStatus::Rejected && is_unknown(&report) => VenueMessage::Unknown { key },
        OrderOutcome::Status => {
            let cum = shares(tags::CUM_QTY, Some(report.cum_qty))?;
            let leaves = shares(tags::LEAVES_QTY, Some(report.leaves_qty))?;
            let is_live = !is_dead && !matches!(status, OrdStatus::Filled | OrdStatus::DoneForDay);
            VenueMessage::answer(key, VenueEvent::Status(VenueStatus { is_live, cum, leaves }))
        }
        OrderOutcome::State(ExecType::New) => with_terms(VenueEvent::Accepted { venue_id: venue_id(report.order_id) })?,
        OrderOutcome::State(ExecType::Replaced) => {
            with_terms(VenueEvent::Replaced { id, venue_id: venue_id(report.order_id) })?
        }
        // No shares less, and the open ones as the report has them.
        OrderOutcome::State(ExecType::Restated) => {
            let reason = stated(report.exec_restatement_reason);
            with_terms(VenueEvent::Reduced { by: 0, reason })?
        }
        OrderOutcome::State(ExecType::Rejected) => VenueMessage::Refused { id, reason: stated(report.ord_rej_reason) },
        OrderOutcome::State(end @ (ExecType::Canceled | ExecType::Expired | ExecType::DoneForDay)) => {
            VenueMessage::answer(of_order, VenueEvent::Canceled { reason: u16::from(end.to_wire()) })
        }
        OrderOutcome::State(_) => VenueMessage::Other,
    })
}

/// Whether OrdRejReason (103) is that of an order that the venue does not know, or left out.
fn is_unknown(report: &ExecutionReport<'_>) -> bool {
    const UNKNOWN_ORDER: u64 = 5;
    report.ord_rej_reason.is_none_or(|reason| reason == UNKNOWN_ORDER)
}

/// The terms in a report of an order that is live by them. An acceptance may come behind a fill, so
/// its total counts; later the open shares do, because CumQty falls when a fill is taken back, and
/// ours does not.
fn stated_terms(message: &Message<'_>, report: &ExecutionReport<'_>) -> Result<StatedTerms, Defect> {
    let leaves = shares(tags::LEAVES_QTY, Some(report.leaves_qty))?;
    // Of a report that may have come before under another number (97=Y) the terms are old.
    if leaves == 0 || message.flag(tags::POSS_RESEND) {
        return Ok(StatedTerms::None);
    }
    let price = report.price.map(|price| to_price(tags::PRICE, Some(price))).transpose()?;
    Ok(match (report.outcome(), price) {
        (OrderOutcome::State(ExecType::New), Some(price)) => {
            let cum = shares(tags::CUM_QTY, Some(report.cum_qty))?;
            StatedTerms::Total(cum.saturating_add(leaves), price)
        }
        (OrderOutcome::State(ExecType::New), None) => StatedTerms::None,
        (_, price) => StatedTerms::Open(leaves, price),
    })
}

fn cancel_reject(message: &Message<'_>) -> Result<VenueMessage, Defect> {
    let refused = CancelReject::parse(message)?;
    let reason = stated(refused.cxl_rej_reason);
    Ok(match refused.cxl_rej_response_to {
        CxlRejResponseTo::Cancel => {
            let key = OrderKey::Client(id_of(Some(refused.orig_cl_ord_id)));
            VenueMessage::answer(key, VenueEvent::CancelRefused { reason })
        }
        CxlRejResponseTo::Replace => {
            let id = id_of(Some(refused.cl_ord_id));
            VenueMessage::answer(OrderKey::Client(id), VenueEvent::ReplaceRefused { id, reason })
        }
    })
}

/// What is canceled has a report of its own, so that a report (r) says something new where it is a
/// refusal.
fn mass_cancel_report(message: &Message<'_>) -> Result<VenueMessage, Defect> {
    let MassCancelReport { cl_ord_id, response, reject_reason, .. } = MassCancelReport::parse(message)?;
    Ok(match response {
        0 => {
            let reason = reject_reason.map_or(0, |reason| RefusedBy::MassCancel.reason(reason));
            VenueMessage::Refused { id: id_of(cl_ord_id), reason }
        }
        _ => VenueMessage::Other,
    })
}

/// A Reject (3) or a BusinessMessageReject (j) names the number of our message, or where a j leaves
/// it out the id (379).
fn refused(message: &Message<'_>, (by, tag): (RefusedBy, u32), numbers: &Numbers, changes: &Changes) -> VenueMessage {
    let reason = message.number(tag).map_or(0, |reason| by.reason(reason));
    let id = match message.number(tags::REF_SEQ_NUM) {
        Some(seq) => numbers.id_of(seq),
        None => id_of(message.get(tags::BUSINESS_REJECT_REF_ID)),
    };
    match changes.get(id) {
        Some(Change::Cancel(target)) => {
            VenueMessage::answer(OrderKey::Client(target), VenueEvent::CancelRefused { reason })
        }
        Some(Change::Question) => VenueMessage::Other,
        None => VenueMessage::Refused { id, reason },
    }
}

/// Our client id in a ClOrdID; 0, which no order has, where it is not one of ours.
fn id_of(cl_ord_id: Option<&[u8]>) -> u64 {
    cl_ord_id.and_then(parse_number).unwrap_or(0)
}

/// The venue's id as a number: its own, or that of its text.
fn venue_id(order_id: &[u8]) -> u64 {
    parse_number(order_id).unwrap_or_else(|| {
        let ExecId(text) = ExecId::from_text(order_id);
        (text ^ text >> 64) as u64
    })
}

pub(in crate::fix) fn shares(tag: u32, value: Option<Decimal>) -> Result<u32, Defect> {
    let value = value.ok_or(Defect { tag, reason: Reason::Missing })?;
    let whole = value.integer().and_then(|whole| u32::try_from(whole).ok());
    whole.ok_or(Defect { tag, reason: Reason::Value })
}

/// An execution at a price that four decimals do not hold is one at another price here.
fn terms_of_trade(report: &ExecutionReport<'_>) -> StatedTerms {
    let is_exact = report.last_px.is_none_or(|price| price.price().is_some());
    if is_exact { StatedTerms::None } else { StatedTerms::Rounded }
}

/// The price to the nearest ten-thousandth: an average of a venue may have more decimals.
pub(in crate::fix) fn to_price(tag: u32, value: Option<Decimal>) -> Result<Price, Defect> {
    let Decimal(value) = value.ok_or(Defect { tag, reason: Reason::Missing })?;
    let unit = Decimal::SCALE / Price::SCALE;
    let nearest = value.checked_add(unit / 2).filter(|_| value >= 0).map(|value| Price(value / unit));
    nearest.ok_or(Defect { tag, reason: Reason::Value })
}
