//! The engine's reports as messages of OUCH 5.0.

use market::{Price, Symbol};
use matching_engine::{CancelReason, RejectReason, Report};
use order_entry::Text;
use order_entry::ouch::v50::{
    AiqCanceled, BrokenTrade, Field, OrderAccepted, OrderCanceled, OrderExecuted, OrderModified, OrderPriorityUpdate,
    OrderRejected, OrderReplaced, Outbound,
};
use order_entry::ouch::{self, BrokenTradeReason, CrossType, LiquidityFlag, MARKET_PRICE, OrderState};
use zerocopy::big_endian::U64;

use super::account::{Account, Entry, Key};

/// Bytes of the longest message with the options that the venue adds.
const MESSAGE_LEN_MAX: usize = 96;

/// A message as bytes, with its order's index where it has one.
pub(super) fn emit(message: Outbound<'_>, idx: u8) -> Vec<u8> {
    let mut bytes = [0; MESSAGE_LEN_MAX];
    let own = [Field::UserRefIdx(idx)];
    let fields: &[Field<'_>] = if idx == 0 { &[] } else { &own };
    let len = message.emit(fields, &mut bytes).expect("the buffer has room for the longest message");
    bytes[..len].to_vec()
}

/// Prices of the engine are positive.
fn price8(price: Price) -> U64 {
    price.0.unsigned_abs().into()
}

/// The price of an order. The engine has none of a market order, which is one of a cross.
fn price_of(entry: &Entry, price: Price) -> U64 {
    let is_market = price.0 == 0 && entry.cross_type != CrossType::CONTINUOUS;
    if is_market { u64::from(MARKET_PRICE).into() } else { price8(price) }
}

impl Account {
    /// The message that tells a report; none where OUCH has no word for it.
    pub(super) fn message_of(&mut self, at_ns: u64, report: &Report, symbol: Symbol) -> Option<Vec<u8>> {
        let at_ns = at_ns.into();
        match *report {
            Report::Accepted { order, price } => {
                let (key, entry) = self.entry(order.token)?;
                entry.id = Some(order.id);
                let message = accepted(key, entry, &order, symbol, price, at_ns);
                Some(emit((&message).into(), key.idx))
            }
            Report::Replaced { old, new, price } => {
                let (key, entry) = self.entry(new.token)?;
                entry.id = Some(new.id);
                let message = replaced(Key::of(old.token), key, entry, &new, symbol, price, at_ns);
                Some(emit((&message).into(), key.idx))
            }
            Report::Rejected { token, reason } => {
                let (key, entry) = self.entry(token)?;
                let message = rejected(key, entry.cl_ord_id, code_of(reason), at_ns);
                Some(emit((&message).into(), key.idx))
            }
            Report::Executed { order, qty, price, match_number, liquidity } => {
                let (key, liquidity) = (Key::of(order.token), LiquidityFlag(liquidity.letter()));
                let (user_ref, quantity) = (key.number.into(), qty.into());
                let message = OrderExecuted {
                    at_ns,
                    user_ref,
                    quantity,
                    price: price8(price),
                    liquidity,
                    match_number: match_number.into(),
                };
                Some(emit((&message).into(), key.idx))
            }
            Report::Canceled { .. } => self.canceled(report, at_ns),
            Report::PriorityUpdated { order, price, reference } => {
                let (key, entry) = self.entry(order.token)?;
                let (user_ref, display, order_ref) = (key.number.into(), entry.display, reference.0.into());
                let message = OrderPriorityUpdate { at_ns, user_ref, price: price8(price), display, order_ref };
                Some(emit((&message).into(), key.idx))
            }
            Report::Broken { token, match_number, .. } => {
                let (key, entry) = self.entry(token)?;
                let (match_number, reason) = (match_number.into(), BrokenTradeReason::ERRONEOUS);
                let message = BrokenTrade {
                    at_ns,
                    user_ref: key.number.into(),
                    match_number,
                    reason,
                    cl_ord_id: entry.cl_ord_id,
                };
                Some(emit((&message).into(), key.idx))
            }
            // OUCH has no stops.
            _ => None,
        }
    }

    fn entry(&mut self, token: u64) -> Option<(Key, &mut Entry)> {
        let key = Key::of(token);
        Some((key, self.orders.get_mut(&key)?))
    }

    fn canceled(&mut self, report: &Report, at_ns: U64) -> Option<Vec<u8>> {
        let Report::Canceled { order, decrement, reason, prevented_at } = *report else { return None };
        let modifying = self.modifying;
        let (key, entry) = self.entry(order.token)?;
        let user_ref = key.number.into();
        if let Some(price) = prevented_at {
            let message = AiqCanceled {
                at_ns,
                user_ref,
                decrement: decrement.into(),
                reason: ouch::CancelReason::SELF_MATCH,
                prevented: decrement.into(),
                price: price8(price),
                liquidity: LiquidityFlag::REMOVED,
                strategy: entry.aiq_strategy,
            };
            return Some(emit((&message).into(), key.idx));
        }
        if modifying == Some(key) && order.leaves > 0 {
            let quantity = order.leaves.into();
            let message = OrderModified { at_ns, user_ref, side: entry.side, quantity };
            return Some(emit((&message).into(), key.idx));
        }
        let reason = ouch::CancelReason(reason_letter(reason));
        let message = OrderCanceled { at_ns, user_ref, quantity: decrement.into(), reason };
        Some(emit((&message).into(), key.idx))
    }
}

const fn reason_letter(reason: CancelReason) -> u8 {
    reason.letter()
}

fn accepted(
    key: Key,
    entry: &Entry,
    order: &matching_engine::OrderState,
    symbol: Symbol,
    price: Price,
    at_ns: U64,
) -> OrderAccepted {
    OrderAccepted {
        at_ns,
        user_ref: key.number.into(),
        side: entry.side,
        quantity: order.leaves.into(),
        symbol,
        price: price_of(entry, price),
        time_in_force: entry.time_in_force,
        display: entry.display,
        order_ref: order.reference.0.into(),
        capacity: entry.capacity,
        intermarket_sweep: entry.intermarket_sweep,
        cross_type: entry.cross_type,
        state: OrderState::LIVE,
        cl_ord_id: entry.cl_ord_id,
    }
}

fn replaced(
    old: Key,
    key: Key,
    entry: &Entry,
    order: &matching_engine::OrderState,
    symbol: Symbol,
    price: Price,
    at_ns: U64,
) -> OrderReplaced {
    OrderReplaced {
        at_ns,
        orig_user_ref: old.number.into(),
        user_ref: key.number.into(),
        side: entry.side,
        quantity: order.leaves.into(),
        symbol,
        price: price_of(entry, price),
        time_in_force: entry.time_in_force,
        display: entry.display,
        order_ref: order.reference.0.into(),
        capacity: entry.capacity,
        intermarket_sweep: entry.intermarket_sweep,
        cross_type: entry.cross_type,
        state: if order.leaves > 0 { OrderState::LIVE } else { OrderState::DEAD },
        cl_ord_id: entry.cl_ord_id,
    }
}

pub(super) fn rejected(key: Key, cl_ord_id: Text<14>, reason: ouch::RejectReason, at_ns: U64) -> OrderRejected {
    OrderRejected { at_ns, user_ref: key.number.into(), reason_code: reason.0.into(), cl_ord_id }
}

const fn code_of(reason: RejectReason) -> ouch::RejectReason {
    use ouch::RejectReason as Code;
    match reason {
        RejectReason::Symbol => Code::INVALID_SYMBOL,
        RejectReason::Quantity => Code::INVALID_QUANTITY,
        RejectReason::Price => Code::INVALID_PRICE,
        RejectReason::Closed => Code::DESTINATION_CLOSED,
        RejectReason::Halted => Code::HALTED,
        RejectReason::Display => Code::INVALID_DISPLAY,
        RejectReason::MinQuantity => Code::INVALID_MIN_QUANTITY,
        RejectReason::PostOnly => Code::CROSSED_MARKET,
        RejectReason::Full => Code::PROCESSING_ERROR,
        _ => Code::OTHER,
    }
}
