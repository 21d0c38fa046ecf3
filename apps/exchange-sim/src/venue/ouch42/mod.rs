//! OUCH 4.2: its messages as those of 5.0 under numbers of the venue's own, and the answers back
//! under the client's tokens.

use std::collections::BTreeMap;

use market::Symbol;
use order_entry::Text;
use order_entry::ouch::v42::{
    AiqCanceled, BrokenTrade, CancelOrder, EnterOrder, Executed, IMMEDIATE_OR_CANCEL, Inbound, MARKET_HOURS,
    ModifyOrder, OrderAccepted, OrderCanceled, OrderModified, OrderRejected, OrderReplaced, PriorityUpdate,
    ReplaceOrder, SYSTEM_HOURS,
};
use order_entry::ouch::v50::{self, Field};
use order_entry::ouch::{
    BboWeight, Display, OuchError, PostOnly, PriceType, RejectReason, RejectReason42, TimeInForce,
};

use super::account::Key;
use super::message_log::MessageLog;
use super::{Effect, Venue};

/// The index of these orders. The venue takes it of no client of 5.0.
pub(super) const IDX: u8 = 251;
/// Bytes of the longest message of either version, with the options that are used here.
const MESSAGE_LEN_MAX: usize = 128;

/// What an answer repeats that 5.0 does not have.
#[derive(Clone, Copy, Debug)]
struct Details {
    token: Text<14>,
    time_in_force: u32,
    firm: Text<4>,
    min_quantity: u32,
}

/// The orders that one account has entered by OUCH 4.2.
#[derive(Debug, Default)]
pub(super) struct Orders42 {
    numbers: BTreeMap<Text<14>, u32>,
    /// By number, less one.
    details: Vec<Details>,
    messages: MessageLog,
}

impl Venue {
    /// Takes one message of OUCH 4.2 of an account. The answers are among its
    /// [`messages_42`](super::Account::messages_42) when this returns.
    ///
    /// # Errors
    ///
    /// The bytes are no message of OUCH 4.2: nothing happened, and the caller ends the connection.
    pub fn receive_42(&mut self, account: usize, message: &[u8], now_ns: u64) -> Result<Effect, OuchError> {
        let message = Inbound::parse(message).inspect_err(|_| self.counts.malformed += 1)?;
        let mut bytes = [0; MESSAGE_LEN_MAX];
        let orders = &mut self.accounts[account].ouch42;
        let len = match message {
            Inbound::EnterOrder(order) => orders.enter(order, &mut bytes),
            Inbound::ReplaceOrder(replace) => orders.replace(replace, &mut bytes),
            Inbound::CancelOrder(cancel) => orders.cancel(cancel, &mut bytes),
            Inbound::ModifyOrder(modify) => orders.modify(modify, &mut bytes),
            // No order of this venue waits elsewhere.
            Inbound::TradeNow(_) => None,
        };
        let Some(len) = len else {
            // A token that was used, or one that names no order: silence.
            self.counts.messages += 1;
            self.counts.ignored += 1;
            return Ok(self.break_line());
        };
        let effect = self.take(account, &bytes[..len], now_ns);
        let used = self.accounts[account].next_number(IDX) - 1;
        self.accounts[account].ouch42.keep(used);
        effect
    }
}

impl Orders42 {
    pub(super) fn messages(&self) -> &MessageLog {
        &self.messages
    }

    /// The client's token of an order; none where it did not come by OUCH 4.2.
    pub(super) fn token_of(&self, key: Key) -> Option<&[u8]> {
        (key.idx == IDX).then(|| self.details(key.number))?.map(|details| &details.token.0[..])
    }

    /// Takes the next number for a token; none where that was used.
    fn number(&mut self, details: Details) -> Option<u32> {
        if self.numbers.contains_key(&details.token) {
            return None;
        }
        let number = self.details.len() as u32 + 1;
        self.numbers.insert(details.token, number);
        self.details.push(details);
        Some(number)
    }

    /// Frees the tokens of replacements that were not made: their numbers are above `used`.
    fn keep(&mut self, used: u32) {
        for details in self.details.drain((used as usize).min(self.details.len())..) {
            self.numbers.remove(&details.token);
        }
    }

    fn enter(&mut self, order: &EnterOrder, out: &mut [u8]) -> Option<usize> {
        let (time_in_force, seconds) = life(order.time_in_force.get());
        let details = Details {
            token: order.token,
            time_in_force: order.time_in_force.get(),
            firm: order.firm,
            min_quantity: order.min_quantity.get(),
        };
        let number = self.number(details)?;
        let message = v50::EnterOrder {
            user_ref: number.into(),
            side: order.side,
            quantity: order.shares,
            symbol: order.stock,
            price: u64::from(order.price.get()).into(),
            time_in_force,
            display: order.display,
            capacity: order.capacity,
            intermarket_sweep: order.intermarket_sweep,
            cross_type: order.cross_type,
            cl_ord_id: order.token,
        };
        message.emit(&options(order.min_quantity.get(), seconds, order.display), out)
    }

    fn replace(&mut self, replace: &ReplaceOrder, out: &mut [u8]) -> Option<usize> {
        let old = *self.numbers.get(&replace.token)?;
        let (time_in_force, seconds) = life(replace.time_in_force.get());
        let details = Details {
            token: replace.new_token,
            time_in_force: replace.time_in_force.get(),
            min_quantity: replace.min_quantity.get(),
            ..*self.details.get(old as usize - 1)?
        };
        let number = self.number(details)?;
        let message = v50::ReplaceOrder {
            orig_user_ref: old.into(),
            user_ref: number.into(),
            quantity: replace.shares,
            price: u64::from(replace.price.get()).into(),
            time_in_force,
            display: replace.display,
            intermarket_sweep: replace.intermarket_sweep,
            cl_ord_id: replace.new_token,
        };
        message.emit(&options(replace.min_quantity.get(), seconds, replace.display), out)
    }

    fn cancel(&self, cancel: &CancelOrder, out: &mut [u8]) -> Option<usize> {
        let user_ref = (*self.numbers.get(&cancel.token)?).into();
        v50::CancelOrder { user_ref, quantity: cancel.shares }.emit(&[Field::UserRefIdx(IDX)], out)
    }

    fn modify(&self, modify: &ModifyOrder, out: &mut [u8]) -> Option<usize> {
        let user_ref = (*self.numbers.get(&modify.token)?).into();
        let message = v50::ModifyOrder { user_ref, side: modify.side, quantity: modify.shares };
        message.emit(&[Field::UserRefIdx(IDX)], out)
    }

    /// Adds an answer of 5.0.
    pub(super) fn push(&mut self, message: &v50::Outbound<'_>) {
        let mut bytes = [0; MESSAGE_LEN_MAX];
        if let Some(len) = self.translate(message, &mut bytes) {
            self.messages.push(&bytes[..len]);
        }
    }

    fn details(&self, number: u32) -> Option<&Details> {
        self.details.get((number as usize).checked_sub(1)?)
    }

    fn translate(&self, message: &v50::Outbound<'_>, out: &mut [u8]) -> Option<usize> {
        let token = |number: u32| self.details(number).map(|details| details.token);
        match *message {
            v50::Outbound::OrderAccepted(it) => accepted(it, self.details(it.user_ref.get())?).emit(out),
            v50::Outbound::OrderReplaced(it) => {
                replaced(it, self.details(it.user_ref.get())?, token(it.orig_user_ref.get())?).emit(out)
            }
            v50::Outbound::OrderCanceled(it) => {
                let token = token(it.user_ref.get())?;
                OrderCanceled { at_ns: it.at_ns, token, decrement: it.quantity, reason: it.reason }.emit(out)
            }
            v50::Outbound::AiqCanceled(it) => {
                let (token, price) = (token(it.user_ref.get())?, price4(it.price.get()));
                let (decrement, reason, prevented) = (it.decrement, it.reason, it.prevented);
                let (at_ns, liquidity) = (it.at_ns, it.liquidity);
                AiqCanceled { at_ns, token, decrement, reason, prevented, price, liquidity }.emit(out)
            }
            v50::Outbound::OrderExecuted(it) => {
                let (token, price) = (token(it.user_ref.get())?, price4(it.price.get()));
                let (at_ns, shares, liquidity, match_number) = (it.at_ns, it.quantity, it.liquidity, it.match_number);
                Executed { at_ns, token, shares, price, liquidity, match_number }.emit(out)
            }
            v50::Outbound::BrokenTrade(it) => {
                let token = token(it.user_ref.get())?;
                BrokenTrade { at_ns: it.at_ns, token, match_number: it.match_number, reason: it.reason }.emit(out)
            }
            v50::Outbound::OrderRejected(it) => {
                let (token, reason) = (token(it.user_ref.get())?, reject_reason(it.reason()));
                OrderRejected { at_ns: it.at_ns, token, reason }.emit(out)
            }
            v50::Outbound::OrderPriorityUpdate(it) => {
                let (token, price) = (token(it.user_ref.get())?, price4(it.price.get()));
                let (at_ns, display, order_ref) = (it.at_ns, it.display, it.order_ref);
                PriorityUpdate { at_ns, token, price, display, order_ref }.emit(out)
            }
            v50::Outbound::OrderModified(it) => {
                let token = token(it.user_ref.get())?;
                OrderModified { at_ns: it.at_ns, token, side: it.side, shares: it.quantity }.emit(out)
            }
            // The others answer what 4.2 cannot ask.
            _ => None,
        }
    }
}

/// The time in force of 5.0 and the seconds of its option.
const fn life(time_in_force: u32) -> (TimeInForce, u32) {
    match time_in_force {
        IMMEDIATE_OR_CANCEL => (TimeInForce::IMMEDIATE_OR_CANCEL, 0),
        MARKET_HOURS => (TimeInForce::DAY, 0),
        SYSTEM_HOURS => (TimeInForce::EXTENDED_HOURS, 0),
        seconds => (TimeInForce::GOOD_TILL_TIME, seconds),
    }
}

/// The options of 5.0 that say the same. 4.2 says post-only and midpoint pegs where it says what is
/// shown.
fn options(min_quantity: u32, seconds: u32, display: Display) -> Vec<Field<'static>> {
    let mut options = vec![Field::UserRefIdx(IDX)];
    let is_midpoint = matches!(display, Display::MIDPOINT | Display::MIDPOINT_POST_ONLY);
    let is_post_only = matches!(display, Display::POST_ONLY | Display::MIDPOINT_POST_ONLY);
    options.extend(is_midpoint.then_some(Field::PriceType(PriceType::MIDPOINT_PEG)));
    options.extend(is_post_only.then_some(Field::PostOnly(PostOnly::POST_ONLY)));
    options.extend((min_quantity > 0).then(|| Field::MinQuantity(min_quantity.into())));
    options.extend((seconds > 0).then(|| Field::ExpireSeconds(seconds.into())));
    options
}

/// Prices of the engine fit in four bytes.
fn price4(price: u64) -> zerocopy::big_endian::U32 {
    u32::try_from(price).unwrap_or(u32::MAX).into()
}

fn accepted(it: &v50::OrderAccepted, details: &Details) -> OrderAccepted {
    OrderAccepted {
        at_ns: it.at_ns,
        token: it.cl_ord_id,
        side: it.side,
        shares: it.quantity,
        stock: Symbol(it.symbol.0),
        price: price4(it.price.get()),
        time_in_force: details.time_in_force.into(),
        firm: details.firm,
        display: it.display,
        order_ref: it.order_ref,
        capacity: it.capacity,
        intermarket_sweep: it.intermarket_sweep,
        min_quantity: details.min_quantity.into(),
        cross_type: it.cross_type,
        state: it.state,
        bbo_weight: BboWeight::UNSPECIFIED,
    }
}

fn replaced(it: &v50::OrderReplaced, details: &Details, previous_token: Text<14>) -> OrderReplaced {
    OrderReplaced {
        at_ns: it.at_ns,
        token: it.cl_ord_id,
        side: it.side,
        shares: it.quantity,
        stock: Symbol(it.symbol.0),
        price: price4(it.price.get()),
        time_in_force: details.time_in_force.into(),
        firm: details.firm,
        display: it.display,
        order_ref: it.order_ref,
        capacity: it.capacity,
        intermarket_sweep: it.intermarket_sweep,
        min_quantity: details.min_quantity.into(),
        cross_type: it.cross_type,
        state: it.state,
        previous_token,
        bbo_weight: BboWeight::UNSPECIFIED,
    }
}

/// 4.2 has fewer reasons, and none for a rate.
const fn reject_reason(reason: RejectReason) -> RejectReason42 {
    match reason {
        RejectReason::INVALID_SYMBOL => RejectReason42::INVALID_STOCK,
        RejectReason::INVALID_PRICE => RejectReason42::INVALID_PRICE,
        RejectReason::INVALID_QUANTITY => RejectReason42::SHARE_THRESHOLD,
        RejectReason::INVALID_DISPLAY => RejectReason42::INVALID_DISPLAY,
        RejectReason::INVALID_MIN_QUANTITY => RejectReason42::INVALID_MIN_QUANTITY,
        RejectReason::INVALID_CROSS_ORDER => RejectReason42::CROSS_NOT_ALLOWED,
        RejectReason::HALTED => RejectReason42::HALTED,
        RejectReason::DESTINATION_CLOSED => RejectReason42::CLOSED,
        RejectReason::CROSSED_MARKET => RejectReason42::CROSSED_MARKET,
        RejectReason::FIRM_NOT_AUTHORIZED => RejectReason42::FIRM_NOT_AUTHORIZED,
        _ => RejectReason42::OTHER,
    }
}

/// An answer of 5.0 for this log; none where it is for that of 5.0.
pub(super) fn own(message: &[u8]) -> Option<v50::Outbound<'_>> {
    let (message, options) = v50::Outbound::parse(message).ok()?;
    (options.user_ref_idx() == IDX).then_some(message)
}

#[cfg(test)]
mod tests;
