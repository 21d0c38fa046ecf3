//! CME's iLink 3: requests in the venue's words. The number of an instrument (SecurityID) is its
//! position in the listing, from 1 on, as in the feed of MDP 3.0.

mod answers;

use market::{Price, Side, Symbol};
use matching_engine::{Display, Life, PRICE_MAX, PostOnly, Pricing, Terms};
use order_entry::Text;
use order_entry::ilink3::{
    CancelOrder, Frame, IlinkError, MassAction, NO_PRICE, NewOrder, ReplaceOrder, StatusRequest,
};
use zerocopy::little_endian::{I32, I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::named::{ChangeRequest, MassCancelRequest, OrderRequest, Protocol, Target};
use super::{Effect, Venue};

pub(crate) use answers::write_answer;

pub(crate) const PROTOCOL: Protocol = Protocol::Ilink3;
/// Nine decimals of a price in our four.
const UNIT: i64 = 100_000;
/// No value, of fields that may have none.
const NONE: u8 = u8::MAX;
/// Protection points of market orders and stops, in parts of the price: they trade no further away.
const PROTECTION: i64 = 100;

/// What answers repeat of a request.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Echo {
    sender: Text<20>,
    party_details: U64,
    order_request: U64,
    location: Text<5>,
    security_id: I32,
    stop_price: I64,
    min_quantity: U32,
    display_quantity: U32,
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
    let fields = Fields {
        side: order.side,
        qty: order.quantity.get(),
        price: order.price.get(),
        stop_price: order.stop_price.get(),
        min_quantity: order.min_quantity.get(),
        display_quantity: order.display_quantity.get(),
        order_type: order.order_type,
        time_in_force: order.time_in_force,
    };
    let symbol = symbol_of(venue, order.security_id.get());
    let terms = fields.terms(venue, symbol);
    let echo = Echo {
        sender: order.sender,
        party_details: order.party_details,
        order_request: order.order_request,
        location: order.location,
        security_id: order.security_id,
        stop_price: order.stop_price,
        min_quantity: order.min_quantity,
        display_quantity: order.display_quantity,
        order_type: order.order_type,
        time_in_force: order.time_in_force,
        scope: 0,
        mitigation: NONE,
    };
    let request = OrderRequest {
        cl_ord_id: order.cl_ord_id.trimmed(),
        symbol: symbol.unwrap_or(Symbol::NONE),
        side: side_of(order.side).unwrap_or(Side::Sell),
        qty: fields.qty,
        price: fields.limit(),
        terms,
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
        stop_price: replace.stop_price,
        min_quantity: replace.min_quantity,
        display_quantity: replace.display_quantity,
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
    let quantity = replace.quantity.get();
    let qty = match mitigation {
        1 if (1..=traded).contains(&quantity) => return venue.cancel_named(account, PROTOCOL, &change, now_ns),
        1 => quantity,
        // All of it is open. The engine takes totals.
        _ => quantity.saturating_add(traded),
    };
    let fields = Fields {
        side: replace.side,
        qty,
        price: replace.price.get(),
        stop_price: replace.stop_price.get(),
        min_quantity: replace.min_quantity.get(),
        display_quantity: replace.display_quantity.get(),
        order_type: replace.order_type,
        time_in_force: replace.time_in_force,
    };
    let symbol = venue.accounts()[account].named_order(PROTOCOL, target).map(|order| order.symbol);
    let order = OrderRequest {
        cl_ord_id: replace.cl_ord_id.trimmed(),
        symbol: Symbol::NONE,
        side: Side::Buy,
        qty,
        price: fields.limit(),
        terms: fields.terms(venue, symbol),
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
        stop_price: NO_PRICE.into(),
        min_quantity: u32::MAX.into(),
        display_quantity: u32::MAX.into(),
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
        stop_price: NO_PRICE.into(),
        min_quantity: u32::MAX.into(),
        display_quantity: u32::MAX.into(),
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
    let has_side = matches!(action.side, 1 | 2 | NONE);
    let unsupported = unsupported.or((!has_side).then_some("Side must be 1, 2 or none"));
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

/// What decides the terms of an order.
#[derive(Clone, Copy, Debug)]
struct Fields {
    side: u8,
    qty: u32,
    price: i64,
    stop_price: i64,
    min_quantity: u32,
    display_quantity: u32,
    order_type: u8,
    time_in_force: u8,
}

impl Fields {
    /// The engine's terms; what CME does not have, or this venue not, is an error in words.
    fn terms(&self, venue: &Venue, symbol: Option<Symbol>) -> Result<Terms, &'static str> {
        let side = side_of(self.side)?;
        let life = match self.time_in_force {
            // Until canceled, or until a date: this venue has one day.
            0 | 1 | 6 => Life::Day,
            3 => Life::ImmediateOrCancel,
            4 => Life::FillOrKill,
            _ => return Err("TimeInForce must be 0, 1, 3, 4 or 6"),
        };
        let min_qty = given(self.min_quantity).unwrap_or(0);
        if min_qty > 0 && life != Life::ImmediateOrCancel {
            return Err("MinQty needs TimeInForce 3");
        }
        let display = given(self.display_quantity).map_or(Display::Full, Display::Reserve);
        let pricing = self.pricing(side, || venue.best_contra(symbol?, side))?;
        Ok(Terms { qty: self.qty, pricing, display, life, post_only: PostOnly::No, min_qty })
    }

    /// Orders without a limit have one of the venue's: `best` is the best price of the other side.
    fn pricing(&self, side: Side, best: impl FnOnce() -> Option<Price>) -> Result<Pricing, &'static str> {
        let best = || best().ok_or("a market order needs a price on the other side");
        Ok(match self.order_type {
            b'1' => Pricing::Limit(protected(best()?, side)),
            b'2' => Pricing::Limit(four_decimals(self.price)?),
            b'3' => {
                let trigger = four_decimals(self.stop_price)?;
                Pricing::Stop { trigger, limit: Some(protected(trigger, side)) }
            }
            b'4' => Pricing::Stop { trigger: four_decimals(self.stop_price)?, limit: Some(four_decimals(self.price)?) },
            b'K' => Pricing::Limit(best()?),
            _ => return Err("OrdType must be 1, 2, 3, 4 or K"),
        })
    }

    /// The limit that answers repeat.
    fn limit(&self) -> Option<Price> {
        (matches!(self.order_type, b'2' | b'4') && self.price != NO_PRICE).then_some(Price(self.price / UNIT))
    }
}

/// A quantity that may be none.
fn given(quantity: u32) -> Option<u32> {
    (quantity != u32::MAX && quantity > 0).then_some(quantity)
}

fn four_decimals(price: i64) -> Result<Price, &'static str> {
    match price {
        NO_PRICE => Err("the order's type needs a price"),
        price if price % UNIT != 0 => Err("a price must have at most four decimals"),
        price => Ok(Price(price / UNIT)),
    }
}

/// The worst price at which a market order or a stop trades: protection points from a price, to
/// whole cents.
fn protected(price: Price, side: Side) -> Price {
    let cent = Price::from_cents(1).0;
    let points = (price.0 / PROTECTION).max(cent);
    match side {
        Side::Buy => Price((price.0 + points) / cent * cent).min(PRICE_MAX),
        Side::Sell => Price((price.0 - points).max(cent) / cent * cent),
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
