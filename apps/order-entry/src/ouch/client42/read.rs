//! Messages of OUCH 4.2 as what they say about orders.

use market::Price;
use zerocopy::big_endian::U32;

use super::token;
use crate::Text;
use crate::orders::{ExecId, OrderKey, StatedTerms, VenueEvent, VenueMessage};
use crate::ouch::v42::{OrderAccepted, OrderReplaced, Outbound};
use crate::ouch::{OrderState, OuchError};

/// What a message of the venue says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Something of the order with this client id.
    OfOrder(u64, VenueMessage),
    /// The answer to a probe.
    Probed(Text<14>),
    /// Nothing that concerns orders.
    Nothing,
}

/// What a message of the venue says.
///
/// # Errors
///
/// The bytes are no message.
pub(super) fn read(bytes: &[u8]) -> Result<Said, OuchError> {
    let message = Outbound::parse(bytes)?;
    Ok(match token_of(message) {
        None => Said::Nothing,
        Some(token) if token::is_probe(token) => Said::Probed(*token),
        Some(token) => {
            let id = token::id_of(token);
            Said::OfOrder(id, about(id, message))
        }
    })
}

fn token_of<'a>(message: Outbound<'a>) -> Option<&'a Text<14>> {
    Some(match message {
        Outbound::SystemEvent(_) => return None,
        Outbound::OrderAccepted(it) => &it.token,
        Outbound::OrderReplaced(it) => &it.token,
        Outbound::OrderCanceled(it) => &it.token,
        Outbound::AiqCanceled(it) => &it.token,
        Outbound::Executed(it) => &it.token,
        Outbound::ExecutedWithReferencePrice(it) => &it.token,
        Outbound::BrokenTrade(it) => &it.token,
        Outbound::TradeCorrection(it) => &it.token,
        Outbound::OrderRejected(it) => &it.token,
        Outbound::CancelPending(it) => &it.token,
        Outbound::CancelReject(it) => &it.token,
        Outbound::PriorityUpdate(it) => &it.token,
        Outbound::OrderModified(it) => &it.token,
    })
}

fn about(id: u64, message: Outbound<'_>) -> VenueMessage {
    let key = OrderKey::Client(id);
    let answer = |event| VenueMessage::answer(key, event);
    let live = |event, terms| VenueMessage::Answer { key, event, terms, is_dead: false };
    match message {
        Outbound::OrderAccepted(it) => accepted(key, it),
        Outbound::OrderReplaced(it) => replaced(id, it),
        Outbound::OrderCanceled(it) => {
            answer(VenueEvent::Reduced { by: it.decrement.get(), reason: u16::from(it.reason.0) })
        }
        Outbound::AiqCanceled(it) => {
            answer(VenueEvent::Reduced { by: it.decrement.get(), reason: u16::from(it.reason.0) })
        }
        Outbound::Executed(it) => answer(filled(it.match_number.get(), it.shares, it.price)),
        Outbound::ExecutedWithReferencePrice(it) => answer(filled(it.match_number.get(), it.shares, it.price)),
        Outbound::BrokenTrade(it) => answer(VenueEvent::Busted { exec: ExecId::from_number(it.match_number.get()) }),
        // The match keeps its number.
        Outbound::TradeCorrection(it) => {
            let exec = ExecId::from_number(it.match_number.get());
            answer(VenueEvent::Corrected { exec, new_exec: exec, qty: it.shares.get(), price: price(it.price) })
        }
        Outbound::OrderRejected(it) => VenueMessage::Refused { id, reason: u16::from(it.reason.0) },
        Outbound::CancelReject(_) => answer(VenueEvent::CancelRefused { reason: 0 }),
        Outbound::PriorityUpdate(it) => {
            live(VenueEvent::Accepted { venue_id: it.order_ref.get() }, StatedTerms::Price(price(it.price)))
        }
        Outbound::OrderModified(it) => {
            live(VenueEvent::Reduced { by: 0, reason: 0 }, StatedTerms::Open(it.shares.get(), None))
        }
        // The answer to the cancel follows.
        Outbound::CancelPending(_) | Outbound::SystemEvent(_) => VenueMessage::Other,
    }
}

fn accepted(key: OrderKey, it: &OrderAccepted) -> VenueMessage {
    VenueMessage::Answer {
        key,
        event: VenueEvent::Accepted { venue_id: it.order_ref.get() },
        terms: StatedTerms::Total(it.shares.get(), price(it.price)),
        is_dead: it.state == OrderState::DEAD,
    }
}

fn replaced(id: u64, it: &OrderReplaced) -> VenueMessage {
    VenueMessage::Answer {
        // The new id leads to its order as soon as the replace was asked for.
        key: OrderKey::Client(id),
        event: VenueEvent::Replaced { id, venue_id: it.order_ref.get() },
        terms: StatedTerms::Open(it.shares.get(), Some(price(it.price))),
        is_dead: it.state == OrderState::DEAD,
    }
}

fn filled(match_number: u64, shares: U32, at: U32) -> VenueEvent {
    VenueEvent::Filled { exec: ExecId::from_number(match_number), qty: shares.get(), price: price(at) }
}

fn price(price: U32) -> Price {
    Price(price.get().into())
}
