//! CME's iLink 3: requests in the venue's words. The number of an instrument (SecurityID) is its
//! position in the listing, from 1 on, as in the feed of MDP 3.0.

mod answers;

use market::{Price, Side, Symbol};
use matching_engine::{Life, Terms};
use order_entry::Text;
use order_entry::ilink3::{CancelOrder, Frame, IlinkError, MassAction, NewOrder, ReplaceOrder, StatusRequest};
use zerocopy::little_endian::{I32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::named::{ChangeRequest, MassCancelRequest, OrderRequest, Protocol, Target};
use super::{Effect, Venue};

pub(crate) use answers::write_answer;

pub(crate) const PROTOCOL: Protocol = Protocol::Ilink3;
/// Nine decimals of a price in our four.
const UNIT: i64 = 100_000;
/// No value, of fields that may have none.
const NONE: u8 = u8::MAX;

/// What answers repeat of a request.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Echo {
    sender: Text<20>,
    party_details: U64,
    order_request: U64,
    location: Text<5>,
    security_id: I32,
    order_type: u8,
    time_in_force: u8,
    /// Of a cancel of many.
    scope: u8,
    /// In-flight mitigation (OFMOverride) of an order's first replace; [`NONE`] before it.
    mitigation: u8,
}

/// Takes a message of a client.
pub(crate) fn take(venue: &mut Venue, account: usize, frame: &Frame<'_>, now_ns: u64) -> Result<Effect, IlinkError> {
    Ok(match frame.template {
        NewOrder::KIND => take_new(venue, account, frame.view()?, now_ns),
        ReplaceOrder::KIND => take_replace(venue, account, frame.view()?, now_ns),
        CancelOrder::KIND => take_cancel(venue, account, frame.view()?, now_ns),
        MassAction::KIND => take_mass_action(venue, account, frame.view()?, now_ns),
        StatusRequest::KIND => take_status(venue, account, frame.view()?, now_ns),
        template => return Err(IlinkError::Unexpected { template, state: "trading here" }),
    })
}

fn take_new(venue: &mut Venue, account: usize, order: &NewOrder, now_ns: u64) -> Effect {
    let (qty, price) = (order.quantity.get(), Price(order.price.get() / UNIT));
    let echo = Echo {
        sender: order.sender,
        party_details: order.party_details,
        order_request: order.order_request,
        location: order.location,
        security_id: order.security_id,
        order_type: order.order_type,
        time_in_force: order.time_in_force,
        scope: 0,
        mitigation: NONE,
    };
    let request = OrderRequest {
        cl_ord_id: order.cl_ord_id.trimmed(),
        symbol: symbol_of(venue, order.security_id.get()).unwrap_or(Symbol::NONE),
        side: side_of(order.side).unwrap_or(Side::Sell),
        qty,
        price: Some(price),
        terms: side_of(order.side)
            .and_then(|_| terms_of(qty, order.price.get(), order.order_type, order.time_in_force)),
        self_trade: None,
        echo: echo.as_bytes(),
    };
    venue.enter_named(account, PROTOCOL, &request, now_ns)
}

fn take_replace(venue: &mut Venue, account: usize, replace: &ReplaceOrder, now_ns: u64) -> Effect {
    let target = Target::OrderId(replace.order_id.get());
    let mitigation = mitigation_of(venue, account, target).unwrap_or(replace.ofm_override);
    let traded = venue.traded_of_named(account, PROTOCOL, target).unwrap_or(0);
    let echo = Echo {
        sender: replace.sender,
        party_details: replace.party_details,
        order_request: replace.order_request,
        location: replace.location,
        security_id: replace.security_id,
        order_type: replace.order_type,
        time_in_force: replace.time_in_force,
        scope: 0,
        mitigation,
    };
    let change = ChangeRequest {
        cl_ord_id: Some(replace.cl_ord_id.trimmed()),
        target,
        cancels_on_refusal: false,
        echo: echo.as_bytes(),
    };
    let (quantity, price) = (replace.quantity.get(), Price(replace.price.get() / UNIT));
    let qty = match mitigation {
        1 if (1..=traded).contains(&quantity) => return venue.cancel_named(account, PROTOCOL, &change, now_ns),
        1 => quantity,
        // All of it is open. The engine takes totals.
        _ => quantity.saturating_add(traded),
    };
    let order = OrderRequest {
        cl_ord_id: replace.cl_ord_id.trimmed(),
        symbol: Symbol::NONE,
        side: Side::Buy,
        qty,
        price: Some(price),
        terms: terms_of(qty, replace.price.get(), replace.order_type, replace.time_in_force),
        self_trade: None,
        echo: echo.as_bytes(),
    };
    venue.replace_named(account, PROTOCOL, (&change, &order), now_ns)
}

/// What the first replace of an order has said of in-flight mitigation.
fn mitigation_of(venue: &Venue, account: usize, target: Target<'_>) -> Option<u8> {
    let order = venue.accounts()[account].named_order(PROTOCOL, target)?;
    let echo = Echo::read_from_bytes(&order.request).ok()?;
    (echo.mitigation != NONE).then_some(echo.mitigation)
}

fn take_cancel(venue: &mut Venue, account: usize, cancel: &CancelOrder, now_ns: u64) -> Effect {
    let echo = Echo {
        sender: cancel.sender,
        party_details: cancel.party_details,
        order_request: cancel.order_request,
        location: cancel.location,
        security_id: cancel.security_id,
        order_type: 0,
        time_in_force: 0,
        scope: 0,
        mitigation: NONE,
    };
    let request = ChangeRequest {
        cl_ord_id: Some(cancel.cl_ord_id.trimmed()),
        target: Target::OrderId(cancel.order_id.get()),
        cancels_on_refusal: false,
        echo: echo.as_bytes(),
    };
    venue.cancel_named(account, PROTOCOL, &request, now_ns)
}

/// This venue has no segments and product groups, and an account is one operator.
fn take_mass_action(venue: &mut Venue, account: usize, action: &MassAction, now_ns: u64) -> Effect {
    let echo = Echo {
        sender: action.sender,
        party_details: action.party_details,
        order_request: action.order_request,
        location: action.location,
        security_id: action.security_id,
        order_type: action.order_type,
        time_in_force: action.time_in_force,
        scope: action.scope,
        mitigation: NONE,
    };
    let (symbol, unsupported) = match action.scope {
        1 => (Some(symbol_of(venue, action.security_id.get()).unwrap_or(Symbol::NONE)), None),
        7 => (None, None),
        _ => (None, Some("MassActionScope must be 1 or 7")),
    };
    let has_filter = action.order_type != 0 || action.time_in_force != u8::MAX;
    let unsupported = unsupported.or(has_filter.then_some("no filter by type or time in force here"));
    let side = side_of(action.side).ok();
    let request = MassCancelRequest { cl_ord_id: &[], symbol, side, unsupported, echo: echo.as_bytes() };
    venue.mass_cancel_named(account, PROTOCOL, &request, now_ns)
}

fn take_status(venue: &mut Venue, account: usize, question: &StatusRequest, now_ns: u64) -> Effect {
    let order = venue.accounts()[account].named_order(PROTOCOL, Target::OrderId(question.order_id.get()));
    let known = order.map(|order| (order.cl_ord_id.clone(), order.symbol, order.side));
    let (cl_ord_id, symbol, side) = known.unwrap_or((Vec::new(), Symbol::NONE, Side::Buy));
    venue.tell_status(account, PROTOCOL, (&cl_ord_id, symbol, side), now_ns)
}

fn terms_of(qty: u32, price: i64, order_type: u8, time_in_force: u8) -> Result<Terms, &'static str> {
    let life = match time_in_force {
        0 | 1 => Life::Day,
        3 => Life::ImmediateOrCancel,
        4 => Life::FillOrKill,
        _ => return Err("TimeInForce must be 0, 1, 3 or 4"),
    };
    match order_type {
        b'2' if price % UNIT == 0 => Ok(Terms { life, ..Terms::limit(qty, Price(price / UNIT)) }),
        b'2' => Err("Price must have at most four decimals"),
        _ => Err("OrdType must be 2"),
    }
}

const fn side_of(side: u8) -> Result<Side, &'static str> {
    match side {
        1 => Ok(Side::Buy),
        2 => Ok(Side::Sell),
        _ => Err("Side must be 1 or 2"),
    }
}

fn symbol_of(venue: &Venue, security_id: i32) -> Option<Symbol> {
    let at = usize::try_from(security_id).ok()?.checked_sub(1)?;
    venue.listing().get(at).map(|&(symbol, _)| symbol)
}

#[cfg(test)]
mod tests;
