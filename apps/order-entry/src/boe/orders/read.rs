//! Messages of the venue as what they say about orders.

use market::Price;

use super::super::v2::{Field, Optional};
use super::super::{BoeError, Message, v2, v3};
use crate::Text;
use crate::cl_ord_id::id_of;
use crate::orders::{ExecId, OrderKey, StatedTerms, VenueEvent, VenueMessage};

/// What is said of a client id; `None` where nothing is said of an order.
type Said = Option<(u64, VenueMessage)>;

/// Reads a message of version 2.
pub(super) fn read_v2(message: &Message<'_>) -> Result<Said, BoeError> {
    use v2::Outbound;
    let kind = u8::try_from(message.kind).map_err(|_| BoeError::Unknown { kind: message.kind })?;
    let (outbound, optional) = Outbound::parse(kind, message.body)?;
    Ok(match outbound {
        Outbound::OrderAcknowledgment(it) => {
            live(&it.cl_ord_id, VenueEvent::Accepted { venue_id: it.order_id.get() }, terms(optional))
        }
        Outbound::OrderModified(it) => {
            let id = id_of(&it.cl_ord_id);
            live(&it.cl_ord_id, VenueEvent::Replaced { id, venue_id: it.order_id.get() }, terms(optional))
        }
        Outbound::OrderRestated(it) => {
            let reason = u16::from(it.reason.0);
            live(&it.cl_ord_id, VenueEvent::Reduced { by: 0, reason }, terms(optional))
        }
        Outbound::OrderRejected(it) => refused(&it.cl_ord_id, it.reason.0),
        Outbound::UserModifyRejected(it) => refused(&it.cl_ord_id, it.reason.0),
        Outbound::CancelRejected(it) => {
            said(&it.cl_ord_id, VenueEvent::CancelRefused { reason: u16::from(it.reason.0) })
        }
        Outbound::OrderCancelled(it) => said(&it.cl_ord_id, VenueEvent::Canceled { reason: u16::from(it.reason.0) }),
        Outbound::OrderExecution(it) => {
            said(&it.cl_ord_id, filled(it.exec_id.get(), it.last_shares.get(), it.last_price.get()))
        }
        Outbound::TradeCancelOrCorrect(it) => {
            let terms = (it.last_shares.get(), it.corrected_price.get());
            said(&it.cl_ord_id, revised(it.exec_ref_id.get(), terms))
        }
        Outbound::MassCancelAcknowledgment(_) | Outbound::PurgeRejected(_) => None,
    })
}

/// Reads a message of version 3.
pub(super) fn read_v3(message: &Message<'_>) -> Result<Said, BoeError> {
    use v3::Outbound;
    let (outbound, _) = Outbound::parse(message.kind, message.body)?;
    Ok(match outbound {
        Outbound::OrderAcknowledgment(it) => {
            let terms = StatedTerms::Open(it.leaves.get(), None);
            live(&it.cl_ord_id, VenueEvent::Accepted { venue_id: it.order_id.get() }, terms)
        }
        Outbound::OrderModified(it) => {
            let (id, terms) = (id_of(&it.cl_ord_id), StatedTerms::Open(it.leaves.get(), Some(Price(it.price.get()))));
            live(&it.cl_ord_id, VenueEvent::Replaced { id, venue_id: it.order_id.get() }, terms)
        }
        Outbound::OrderRejected(it) => refused(&it.cl_ord_id, it.reason.0),
        Outbound::ModifyRejected(it) => refused(&it.cl_ord_id, it.reason.0),
        Outbound::CancelRejected(it) => {
            said(&it.cl_ord_id, VenueEvent::CancelRefused { reason: u16::from(it.reason.0) })
        }
        Outbound::OrderCancelled(it) => said(&it.cl_ord_id, VenueEvent::Canceled { reason: u16::from(it.reason.0) }),
        Outbound::OrderExecution(it) => {
            said(&it.cl_ord_id, filled(it.exec_id.get(), it.last_shares.get(), it.last_price.get()))
        }
        Outbound::TradeCancelOrCorrect(it) => {
            let terms = (it.last_shares.get(), it.corrected_price.get());
            said(&it.cl_ord_id, revised(it.exec_ref_id.get(), terms))
        }
        Outbound::MassCancelAcknowledgment(it) => {
            let (id, count) = (id_of(&it.mass_cancel_id), it.cancelled_count.get());
            Some((id, VenueMessage::MassCanceled { id, count }))
        }
        Outbound::MassCancelRejected(it) => refused(&it.mass_cancel_id, it.reason.0),
        // A trade at settlement has shares when it trades; its price, which comes here, is known to
        // whoever clears it.
        Outbound::TasRestatement(_)
        | Outbound::PurgeAcknowledgment(_)
        | Outbound::PurgeRejected(_)
        | Outbound::ResetRiskAcknowledgment(_) => None,
    })
}

fn said(cl_ord_id: &Text<20>, event: VenueEvent) -> Said {
    let id = id_of(cl_ord_id);
    Some((id, VenueMessage::answer(OrderKey::Client(id), event)))
}

/// An answer that leaves the order alive, with the terms that it states.
fn live(cl_ord_id: &Text<20>, event: VenueEvent, terms: StatedTerms) -> Said {
    let id = id_of(cl_ord_id);
    Some((id, VenueMessage::Answer { key: OrderKey::Client(id), event, terms, is_dead: false }))
}

fn refused(cl_ord_id: &Text<20>, reason: u8) -> Said {
    let id = id_of(cl_ord_id);
    Some((id, VenueMessage::Refused { id, reason: reason.into() }))
}

const fn filled(exec_id: u64, qty: u32, price: i64) -> VenueEvent {
    VenueEvent::Filled { exec: ExecId::from_number(exec_id), qty, price: Price(price) }
}

/// A fill that is no more, where the price is 0, or has another price.
const fn revised(exec_ref_id: u64, (qty, price): (u32, i64)) -> VenueEvent {
    let exec = ExecId::from_number(exec_ref_id);
    match price {
        0 => VenueEvent::Busted { exec },
        // The fill keeps its number.
        _ => VenueEvent::Corrected { exec, new_exec: exec, qty, price: Price(price) },
    }
}

/// What the login has the venue state.
fn terms(optional: Optional<'_>) -> StatedTerms {
    let (mut open, mut price) = (None, None);
    for field in optional.fields() {
        match field {
            Field::LeavesQuantity(shares) => open = Some(shares.get()),
            Field::Price(at) => price = Some(Price(at.get())),
            _ => (),
        }
    }
    open.map_or(StatedTerms::None, |open| StatedTerms::Open(open, price))
}
