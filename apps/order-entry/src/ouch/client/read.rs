//! Messages of OUCH 5.0 as what they say about orders.

use market::Price;

use super::OuchClientError;
use crate::orders::{ExecId, OrderKey, StatedTerms, VenueEvent, VenueMessage};
use crate::ouch::OrderState;
use crate::ouch::v50::{OrderAccepted, OrderReplaced, Outbound};

/// What a message of the venue says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Something of orders, or nothing that concerns them.
    Message(VenueMessage),
    /// The answer to an account query. Which query, the [`Account`](crate::ouch::Account) knows.
    NextNumber {
        /// The index that was asked about.
        idx: u8,
        /// The first UserRefNum of it that the venue has not seen.
        next: u32,
    },
}

/// What a message of the venue says. Orders under another index than 0 are another session's of the
/// account, and of no concern; other options are left aside.
///
/// # Errors
///
/// The bytes are no message, or a price has more than 63 bits.
pub(super) fn read(bytes: &[u8]) -> Result<Said, OuchClientError> {
    let (message, options) = Outbound::parse(bytes)?;
    match (message, options.user_ref_idx()) {
        (Outbound::AccountQueryResponse(told), idx) => Ok(Said::NextNumber { idx, next: told.next_user_ref.get() }),
        (message, 0) => about_orders(message).map(Said::Message),
        _ => Ok(Said::Message(VenueMessage::Other)),
    }
}

fn about_orders(message: Outbound<'_>) -> Result<VenueMessage, OuchClientError> {
    let answer = |user_ref: u32, event| VenueMessage::answer(key(user_ref), event);
    Ok(match message {
        Outbound::OrderAccepted(accepted) => accept(accepted),
        Outbound::OrderReplaced(replaced) => replace(replaced),
        Outbound::OrderCanceled(canceled) => {
            let reason = u16::from(canceled.reason.0);
            answer(canceled.user_ref.get(), VenueEvent::Reduced { by: canceled.quantity.get(), reason })
        }
        Outbound::AiqCanceled(canceled) => {
            let reason = u16::from(canceled.reason.0);
            answer(canceled.user_ref.get(), VenueEvent::Reduced { by: canceled.decrement.get(), reason })
        }
        Outbound::OrderExecuted(executed) => {
            let exec = ExecId::from_number(executed.match_number.get());
            let (qty, price) = (executed.quantity.get(), to_price(executed.price.get())?);
            answer(executed.user_ref.get(), VenueEvent::Filled { exec, qty, price })
        }
        Outbound::BrokenTrade(broken) => {
            let exec = ExecId::from_number(broken.match_number.get());
            answer(broken.user_ref.get(), VenueEvent::Busted { exec })
        }
        Outbound::OrderRejected(rejected) => {
            VenueMessage::Refused { id: u64::from(rejected.user_ref.get()), reason: rejected.reason_code.get() }
        }
        Outbound::CancelReject(refused) => answer(refused.user_ref.get(), VenueEvent::CancelRefused { reason: 0 }),
        Outbound::OrderPriorityUpdate(update) => VenueMessage::Answer {
            key: key(update.user_ref.get()),
            event: VenueEvent::Accepted { venue_id: update.order_ref.get() },
            terms: StatedTerms::Price(to_price(update.price.get())?),
            is_dead: false,
        },
        Outbound::OrderModified(modified) => VenueMessage::Answer {
            key: key(modified.user_ref.get()),
            event: VenueEvent::Reduced { by: 0, reason: 0 },
            terms: StatedTerms::Open(modified.quantity.get(), None),
            is_dead: false,
        },
        _ => VenueMessage::Other,
    })
}

fn key(user_ref: u32) -> OrderKey {
    OrderKey::Client(u64::from(user_ref))
}

fn accept(accepted: &OrderAccepted) -> VenueMessage {
    VenueMessage::Answer {
        key: key(accepted.user_ref.get()),
        event: VenueEvent::Accepted { venue_id: accepted.order_ref.get() },
        terms: to_price(accepted.price.get())
            .map_or(StatedTerms::None, |price| StatedTerms::Total(accepted.quantity.get(), price)),
        is_dead: accepted.state == OrderState::DEAD,
    }
}

fn replace(replaced: &OrderReplaced) -> VenueMessage {
    let id = u64::from(replaced.user_ref.get());
    VenueMessage::Answer {
        // The new id leads to its order as soon as the replace was asked for.
        key: OrderKey::Client(id),
        event: VenueEvent::Replaced { id, venue_id: replaced.order_ref.get() },
        terms: StatedTerms::Open(replaced.quantity.get(), to_price(replaced.price.get()).ok()),
        is_dead: replaced.state == OrderState::DEAD,
    }
}

fn to_price(price: u64) -> Result<Price, OuchClientError> {
    i64::try_from(price).map(Price).map_err(|_| OuchClientError::PriceRange { price })
}
