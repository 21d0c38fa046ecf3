//! Messages of the venue as what they say about orders.

use market::Price;

use super::cancels::Cancels;
use crate::Text;
use crate::cl_ord_id::id_of;
use crate::ilink3::reject::{business, mass_action};
use crate::ilink3::{
    BusinessReject, CancelRejected, Frame, IlinkError, MassActionReport, NO_PRICE, OrderAccepted, OrderCancelled,
    OrderEliminated, OrderFilled, OrderRejected, OrderReplaced, OrderStatus, ReplaceRejected, TradeAddendum,
};
use crate::orders::{ExecId, OrderKey, StatedTerms, VenueEvent, VenueMessage, VenueStatus};

/// Nine decimals of a price in our four.
const UNIT: i64 = 100_000;

/// What an application message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Message(VenueMessage),
    /// Something of an order that is not read here: spreads, crosses, and what a later version of
    /// the schema has.
    Unknown,
    /// A message of ours had no number that the venue could read, so it did not count it. The next
    /// login tells that it was not applied.
    Uncounted,
}

/// Reads a message.
pub(super) fn read(frame: &Frame<'_>, cancels: &Cancels) -> Result<Said, IlinkError> {
    let message = match frame.template {
        OrderAccepted::KIND => accepted(frame.view()?),
        OrderReplaced::KIND => replaced(frame.view()?),
        OrderFilled::KIND => filled(frame.view()?),
        OrderCancelled::KIND => {
            let it: &OrderCancelled = frame.view()?;
            // 255 says no reason: we asked.
            let reason = if it.restate_reason == u8::MAX { 0 } else { it.restate_reason.into() };
            canceled(&it.cl_ord_id, it.order_id.get(), reason)
        }
        OrderEliminated::KIND => {
            let it: &OrderEliminated = frame.view()?;
            canceled(&it.cl_ord_id, it.order_id.get(), 0)
        }
        OrderRejected::KIND => {
            let it: &OrderRejected = frame.view()?;
            refused(id_of(&it.cl_ord_id), it.reject_reason.get())
        }
        ReplaceRejected::KIND => {
            let it: &ReplaceRejected = frame.view()?;
            refused(id_of(&it.cl_ord_id), it.reject_reason.get())
        }
        CancelRejected::KIND => {
            let it: &CancelRejected = frame.view()?;
            let event = VenueEvent::CancelRefused { reason: it.reject_reason.get() };
            VenueMessage::answer(key_of(&it.cl_ord_id, it.order_id.get()), event)
        }
        OrderStatus::KIND => status(frame.view()?),
        TradeAddendum::KIND => return Ok(addendum(frame.view()?)),
        MassActionReport::KIND => {
            let it: &MassActionReport = frame.view()?;
            let is_refused = matches!(it.response, 0 | b'0');
            if is_refused {
                refused(it.order_request.get(), mass_action(it.reject_reason))
            } else {
                VenueMessage::Other
            }
        }
        BusinessReject::KIND => return Ok(rejected_as_a_whole(frame.view()?, cancels)),
        // Party details, quotes, definitions, and that a cancel or a replace waits: no order is
        // another one by these.
        519 | 538 | 539 | 545 | 546 | 561 | 563 | 564 | 565 => VenueMessage::Other,
        _ => return Ok(Said::Unknown),
    };
    Ok(Said::Message(message))
}

fn accepted(it: &OrderAccepted) -> VenueMessage {
    let (id, event) = (id_of(&it.cl_ord_id), VenueEvent::Accepted { venue_id: it.order_id.get() });
    live(id, event, StatedTerms::Open(it.quantity.get(), price_of(it.price.get())))
}

fn replaced(it: &OrderReplaced) -> VenueMessage {
    let id = id_of(&it.cl_ord_id);
    let event = VenueEvent::Replaced { id, venue_id: it.order_id.get() };
    live(id, event, StatedTerms::Open(it.leaves.get(), price_of(it.price.get())))
}

fn filled(it: &OrderFilled) -> VenueMessage {
    let (exec, qty) = (ExecId::from_text(it.exec_id.trimmed()), it.last_quantity.get());
    let event = VenueEvent::Filled { exec, qty, price: nearest(it.last_price.get()) };
    execution(key_of(&it.cl_ord_id, it.order_id.get()), event, it.last_price.get())
}

/// An execution at this price of the venue.
const fn execution(key: OrderKey, event: VenueEvent, price: i64) -> VenueMessage {
    let terms = if price % UNIT == 0 { StatedTerms::None } else { StatedTerms::Rounded };
    VenueMessage::Answer { key, event, terms, is_dead: false }
}

fn addendum(it: &TradeAddendum) -> Said {
    let exec = ExecId::from_text(it.exec_ref_id.trimmed());
    let event = match it.exec_type {
        b'H' => VenueEvent::Busted { exec },
        b'G' => VenueEvent::Corrected {
            exec,
            new_exec: ExecId::from_text(it.exec_id.trimmed()),
            qty: it.last_quantity.get(),
            price: nearest(it.last_price.get()),
        },
        _ => return Said::Unknown,
    };
    let key = key_of(&it.cl_ord_id, it.order_id.get());
    Said::Message(match event {
        VenueEvent::Corrected { .. } => execution(key, event, it.last_price.get()),
        _ => VenueMessage::answer(key, event),
    })
}

fn status(it: &OrderStatus) -> VenueMessage {
    let key = key_of(&it.cl_ord_id, it.order_id.get());
    let is_live = match it.order_status {
        b'U' => return VenueMessage::Unknown { key: OrderKey::Venue(it.order_id.get()) },
        status => matches!(status, b'0' | b'1' | b'5'),
    };
    let status = VenueStatus { is_live, cum: it.cumulative.get(), leaves: it.leaves.get() };
    VenueMessage::answer(key, VenueEvent::Status(status))
}

/// A refusal that names the number of our message, which is the id of an order or a replace.
fn rejected_as_a_whole(it: &BusinessReject, cancels: &Cancels) -> Said {
    let (number, reason) = (it.ref_seq.get(), business(it.reject_reason.get()));
    if number == u32::MAX {
        return Said::Uncounted;
    }
    Said::Message(match it.ref_msg_type.trimmed() {
        b"D" | b"G" | b"CA" => refused(number.into(), reason),
        b"F" => match cancels.get(number) {
            Some(id) => VenueMessage::answer(OrderKey::Client(id), VenueEvent::CancelRefused { reason }),
            None => VenueMessage::Other,
        },
        _ => VenueMessage::Other,
    })
}

fn canceled(cl_ord_id: &Text<20>, order_id: u64, reason: u16) -> VenueMessage {
    VenueMessage::answer(key_of(cl_ord_id, order_id), VenueEvent::Canceled { reason })
}

const fn refused(id: u64, reason: u16) -> VenueMessage {
    VenueMessage::Refused { id, reason }
}

/// An answer that leaves the order alive, with the terms that it states.
const fn live(id: u64, event: VenueEvent, terms: StatedTerms) -> VenueMessage {
    VenueMessage::Answer { key: OrderKey::Client(id), event, terms, is_dead: false }
}

/// By the client's identifier, or by the venue's where no process of ours has written that.
fn key_of(cl_ord_id: &Text<20>, order_id: u64) -> OrderKey {
    match id_of(cl_ord_id) {
        0 => OrderKey::Venue(order_id),
        id => OrderKey::Client(id),
    }
}

/// A limit; none where the field has none.
fn price_of(price: i64) -> Option<Price> {
    (price != NO_PRICE).then(|| nearest(price))
}

/// The price to the nearest ten-thousandth: a fill of a product with finer ticks must count, and
/// its shares count more than its last decimals.
fn nearest(price: i64) -> Price {
    let away = if price < 0 { -UNIT / 2 } else { UNIT / 2 };
    Price(price.saturating_add(away) / UNIT)
}
