//! Version 3.

use market::{Price, Symbol};
use matching_engine::{Display, Life, Pricing, SelfTrade, SelfTradeRule, Terms};
use order_entry::Text;
use order_entry::boe::v3::{
    CancelRejected, Inbound, MassCancelAcknowledgment, MassCancelInst, MassCancelRejected, ModifyOrder, ModifyRejected,
    NewOrder, OrderAcknowledgment, OrderCancelled, OrderExecution, OrderModified, OrderRejected, PurgeAcknowledgment,
    PurgeOrders, PurgeRejected, TradeCancelOrCorrect,
};
use order_entry::boe::{BoeError, LoginRequest, OrderType, V3};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::super::named::{
    Answer, AnswerKind, ChangeRequest, MassCancelRequest, NamedOrder, OrderRefusal, OrderRequest, Protocol, Refused,
    Target,
};
use super::super::{Effect, Venue};
use super::v2::{life, symbol_of};
use super::{
    BoeWords, NO_FIRM_FILTER, NO_GROUPS, NO_LOCK_OUT, Received, Times, boe_side, cancel_code, liquidity_code,
    prevented, reason_code, side_of, text,
};

impl BoeWords for V3 {
    const PROTOCOL: Protocol = Protocol::Boe3;
    type Returns = ();

    fn returns(_: &LoginRequest<'_>) -> Result<(), BoeError> {
        Ok(())
    }

    fn take(venue: &mut Venue, account: usize, message: Received<'_>, times: Times) -> Result<Effect, BoeError> {
        let (inbound, _) = Inbound::parse(message.kind, message.body)?;
        let during_replay = message.is_during_replay;
        let kind = message.kind.to_le_bytes();
        Ok(match inbound {
            Inbound::NewOrder(order) => take_new(venue, account, order, during_replay, times),
            Inbound::ModifyOrder(modify) => take_modify(venue, account, modify, during_replay, times),
            Inbound::CancelOrder(cancel) => {
                let target = Target::ClOrdId(cancel.orig_cl_ord_id.trimmed());
                let request = ChangeRequest { cl_ord_id: None, target, cancels_on_refusal: false, echo: &[] };
                if during_replay {
                    let why = (Refused::Cancel, OrderRefusal::DuringReplay);
                    venue.refuse_named(account, Self::PROTOCOL, &request, why, times.now_ns);
                    return Ok(Effect::None);
                }
                venue.cancel_named(account, Self::PROTOCOL, &request, times.now_ns)
            }
            // The products of this venue are its instruments, and an account is a firm.
            Inbound::MassCancelOrder(cancel) => {
                let cl_ord_id = cancel.mass_cancel_id.trimmed();
                let (symbol, unsupported) = (product(&cancel.product.0), unsupported_of(cancel.instruction));
                let request = MassCancelRequest { cl_ord_id, symbol, side: None, unsupported, echo: &kind };
                venue.mass_cancel_named(account, Self::PROTOCOL, &request, times.now_ns)
            }
            Inbound::PurgeOrders(purge) => {
                let cl_ord_id = purge.mass_cancel_id.trimmed();
                let groups = (purge.group_count > 0).then_some(NO_GROUPS);
                let unsupported = groups.or(unsupported_of(purge.instruction));
                let symbol = product(&purge.product.0);
                let request = MassCancelRequest { cl_ord_id, symbol, side: None, unsupported, echo: &kind };
                venue.mass_cancel_named(account, Self::PROTOCOL, &request, times.now_ns)
            }
            // Nobody is locked out here.
            Inbound::ResetRisk(_) => Effect::None,
        })
    }

    fn write(answer: &Answer, (): &(), epoch_ns: u64, out: &mut [u8]) -> Option<(u16, usize)> {
        match &answer.order {
            Some(order) => write_of_order(answer, order, epoch_ns, out),
            None => write_refused(answer, epoch_ns, out),
        }
    }
}

/// Which of a cancel's instructions this venue does not follow.
const fn unsupported_of(instruction: MassCancelInst) -> Option<&'static str> {
    match instruction {
        MassCancelInst { firm_filter: b'F', .. } => Some(NO_FIRM_FILTER),
        MassCancelInst { lockout: b'L', .. } => Some(NO_LOCK_OUT),
        _ => None,
    }
}

fn product(padded: &[u8; 6]) -> Option<Symbol> {
    let mut symbol = [0; 8];
    symbol[..6].copy_from_slice(padded);
    Some(symbol_of(&symbol)).filter(|&symbol| symbol != Symbol::NONE)
}

fn take_new(venue: &mut Venue, account: usize, order: &NewOrder, during_replay: bool, times: Times) -> Effect {
    let prevent = order.prevent_match;
    let (terms, self_trade) = match prevented(prevent.modifier, prevent.level, prevent.group) {
        // The version has no message for an order that lost a part of its contracts.
        Ok(Some(SelfTrade { rule: SelfTradeRule::Decrement, .. })) => (Err("PreventMatch must be N, O or B"), None),
        Ok(self_trade) => (side_of(order.side).and_then(|_| terms_of_new(order, times.epoch_ns)), self_trade),
        Err(words) => (Err(words), None),
    };
    let request = OrderRequest {
        cl_ord_id: order.cl_ord_id.trimmed(),
        symbol: symbol_of(&order.symbol.0),
        side: side_of(order.side).unwrap_or(market::Side::Sell),
        qty: order.quantity.get(),
        price: Some(Price(order.price.get())),
        terms,
        self_trade,
        echo: order.as_bytes(),
    };
    if during_replay {
        venue.refuse_new_named(account, V3::PROTOCOL, &request, OrderRefusal::DuringReplay, times.now_ns);
        return Effect::None;
    }
    venue.enter_named(account, V3::PROTOCOL, &request, times.now_ns)
}

fn terms_of_new(order: &NewOrder, epoch_ns: u64) -> Result<Terms, &'static str> {
    let pricing = pricing(order.order_type, Price(order.price.get()), Price(order.stop_price.get()))?;
    let life = match life(order.time_in_force, order.expire_ns.get(), epoch_ns)? {
        Life::Cross(_) => return Err("TimeInForce must be 0, 1, 3, 4 or 6"),
        life => life,
    };
    let (qty, min_qty) = (order.quantity.get(), order.min_quantity.get());
    // An order with a minimum rests hidden.
    let display = if min_qty > 0 { Display::Hidden } else { Display::Full };
    Ok(Terms { qty, pricing, display, life, post_only: super::slide(false), min_qty })
}

fn pricing(order_type: OrderType, price: Price, stop: Price) -> Result<Pricing, &'static str> {
    Ok(match order_type {
        OrderType::MARKET => Pricing::Market,
        OrderType::LIMIT => Pricing::Limit(price),
        OrderType::STOP => Pricing::Stop { trigger: stop, limit: None },
        OrderType::STOP_LIMIT => Pricing::Stop { trigger: stop, limit: Some(price) },
        _ => return Err("OrdType must be 1, 2, 3 or 4"),
    })
}

fn take_modify(venue: &mut Venue, account: usize, modify: &ModifyOrder, during_replay: bool, times: Times) -> Effect {
    let target = Target::ClOrdId(modify.orig_cl_ord_id.trimmed());
    let cancels_on_refusal = modify.cancel_orig_on_reject == b'Y';
    let cl_ord_id = Some(modify.cl_ord_id.trimmed());
    let change = ChangeRequest { cl_ord_id, target, cancels_on_refusal, echo: &[] };
    if during_replay {
        let why = (Refused::Replace, OrderRefusal::DuringReplay);
        venue.refuse_named(account, V3::PROTOCOL, &change, why, times.now_ns);
        return Effect::None;
    }
    let (qty, price) = (modify.quantity.get(), Price(modify.price.get()));
    let pricing = pricing(modify.order_type, price, Price(modify.stop_price.get()));
    // What a modify cannot name stays as the order has it.
    let kept = venue.terms_of_named(account, V3::PROTOCOL, target).unwrap_or(Terms::limit(qty, price));
    let order = OrderRequest {
        cl_ord_id: modify.cl_ord_id.trimmed(),
        symbol: Symbol::NONE,
        side: market::Side::Buy,
        qty,
        price: Some(price),
        terms: pricing.map(|pricing| Terms { qty, pricing, ..kept }),
        self_trade: None,
        echo: modify.as_bytes(),
    };
    venue.replace_named(account, V3::PROTOCOL, (&change, &order), times.now_ns)
}

/// Puts a body to the front of `out`.
fn put(kind: u16, body: &[u8], out: &mut [u8]) -> Option<(u16, usize)> {
    out.get_mut(..body.len())?.copy_from_slice(body);
    Some((kind, body.len()))
}

macro_rules! put {
    ($out:expr, $name:ident { $($fields:tt)* }) => {
        put($name::KIND, $name { $($fields)* }.as_bytes(), $out)
    };
}

fn write_of_order(answer: &Answer, order: &NamedOrder, epoch_ns: u64, out: &mut [u8]) -> Option<(u16, usize)> {
    let at_ns = (epoch_ns + answer.at_ns).into();
    match answer.kind {
        AnswerKind::Accepted => write_accepted(answer, order, at_ns, out),
        AnswerKind::Replaced => write_replaced(answer, order, at_ns, out),
        AnswerKind::Executed { qty, price, liquidity, .. } => {
            write_executed(answer, order, at_ns, (qty, price, liquidity_code(liquidity)), out)
        }
        AnswerKind::Canceled { reason, is_rate, .. } if order.leaves == 0 => {
            let (cl_ord_id, clearing_firm) = (text(&answer.cl_ord_id), text(b""));
            let reason = cancel_code(reason, is_rate);
            put!(out, OrderCancelled { at_ns, cl_ord_id, clearing_firm, reason, received_ns: at_ns })
        }
        AnswerKind::Broken { qty, price, fill, .. } => {
            write_broken(answer, order, at_ns, (qty, price, fill.unwrap_or(0)), out)
        }
        // The version has no reserves and no decrements, and nothing asks for a state.
        AnswerKind::Canceled { .. } | AnswerKind::Refreshed { .. } | AnswerKind::Status => None,
        _ => write_refused(answer, epoch_ns, out),
    }
}

fn write_accepted(answer: &Answer, order: &NamedOrder, at_ns: U64, out: &mut [u8]) -> Option<(u16, usize)> {
    let new = NewOrder::ref_from_prefix(&order.request).ok()?.0;
    put!(
        out,
        OrderAcknowledgment {
            at_ns,
            cl_ord_id: text(&answer.cl_ord_id),
            order_id: order.order_id.into(),
            side: boe_side(order.side),
            price: new.price,
            order_type: new.order_type,
            time_in_force: new.time_in_force,
            min_quantity: new.min_quantity,
            symbol: padded(order.symbol),
            capacity: new.capacity,
            account: new.account,
            clearing_firm: new.clearing_firm,
            clearing_account: new.clearing_account,
            quantity: order.qty.into(),
            prevent_match: new.prevent_match,
            maturity_date: new.maturity_date,
            open_close: new.open_close,
            leaves: order.leaves.into(),
            base_liquidity: b'A',
            expire_ns: new.expire_ns,
            sub_liquidity: 0,
            stop_price: new.stop_price,
            cmta_number: new.cmta_number,
            cti_code: new.cti_code,
            manual: new.manual,
            operator: new.operator,
            cumulative: order.executed.into(),
            frequent_trader: new.frequent_trader,
            handling: new.handling,
            received_ns: at_ns,
        }
    )
}

fn write_replaced(answer: &Answer, order: &NamedOrder, at_ns: U64, out: &mut [u8]) -> Option<(u16, usize)> {
    let modify = ModifyOrder::ref_from_prefix(&order.request).ok()?.0;
    put!(
        out,
        OrderModified {
            at_ns,
            cl_ord_id: text(&answer.cl_ord_id),
            orig_cl_ord_id: text(answer.orig_cl_ord_id.as_deref().unwrap_or_default()),
            order_id: order.order_id.into(),
            clearing_firm: modify.clearing_firm,
            price: modify.price,
            order_type: modify.order_type,
            quantity: order.qty.into(),
            leaves: order.leaves.into(),
            base_liquidity: b'A',
            stop_price: modify.stop_price,
            frequent_trader: modify.frequent_trader,
            handling: modify.handling,
            received_ns: at_ns,
        }
    )
}

/// An execution: shares, price, and the code of its liquidity.
fn write_executed(
    answer: &Answer,
    order: &NamedOrder,
    at_ns: U64,
    (qty, price, base_liquidity): (u32, Price, u8),
    out: &mut [u8],
) -> Option<(u16, usize)> {
    put!(
        out,
        OrderExecution {
            at_ns,
            cl_ord_id: text(&answer.cl_ord_id),
            exec_id: answer.number.into(),
            last_shares: qty.into(),
            last_price: price.0.into(),
            leaves: order.leaves.into(),
            base_liquidity,
            sub_liquidity: 0,
            side: boe_side(order.side),
            symbol: padded(order.symbol),
            clearing_firm: text(b""),
            maturity_date: 0.into(),
            fee_code: text(b""),
            trade_date: 0.into(),
            clearing_size: qty.into(),
            pending: b'N',
            multileg: b'1',
            secondary_exec_id: 0.into(),
        }
    )
}

/// A bust: shares and price of the execution, and its number.
fn write_broken(
    answer: &Answer,
    order: &NamedOrder,
    at_ns: U64,
    (qty, price, exec_ref_id): (u32, Price, u64),
    out: &mut [u8],
) -> Option<(u16, usize)> {
    put!(
        out,
        TradeCancelOrCorrect {
            at_ns,
            cl_ord_id: text(&answer.cl_ord_id),
            exec_ref_id: exec_ref_id.into(),
            side: boe_side(order.side),
            base_liquidity: 0,
            clearing_firm: text(b""),
            clearing_account: text(b""),
            last_shares: qty.into(),
            last_price: price.0.into(),
            corrected_price: 0.into(),
            orig_at_ns: at_ns,
            symbol: padded(order.symbol),
            capacity: order_entry::boe::Capacity::CUSTOMER,
            maturity_date: 0.into(),
            open_close: b'N',
            cmta_number: 0.into(),
        }
    )
}

fn padded(symbol: Symbol) -> Text<8> {
    text(symbol.0.trim_ascii_end())
}

fn write_refused(answer: &Answer, epoch_ns: u64, out: &mut [u8]) -> Option<(u16, usize)> {
    let at_ns: U64 = (epoch_ns + answer.at_ns).into();
    let (cl_ord_id, clearing_firm) = (text(&answer.cl_ord_id), text(b""));
    let orig_cl_ord_id = text(answer.orig_cl_ord_id.as_deref().unwrap_or_default());
    let is_purge = answer.request.as_deref() == Some(&PurgeOrders::KIND.to_le_bytes()[..]);
    let mass_cancel_id = cl_ord_id;
    match answer.kind {
        AnswerKind::MassCanceled { count } => {
            let (cancelled_count, received_ns) = (count.into(), at_ns);
            if is_purge {
                return put!(out, PurgeAcknowledgment { at_ns, mass_cancel_id, cancelled_count, received_ns });
            }
            put!(out, MassCancelAcknowledgment { at_ns, mass_cancel_id, cancelled_count, received_ns })
        }
        AnswerKind::Rejected(why) => {
            let (reason, text) = (reason_code(why), text(why.text().as_bytes()));
            put!(out, OrderRejected { at_ns, cl_ord_id, clearing_firm, reason, text })
        }
        AnswerKind::Refused(what, why) => {
            let (reason, text) = (reason_code(why), text(why.text().as_bytes()));
            match what {
                Refused::Cancel => put!(out, CancelRejected { at_ns, cl_ord_id, clearing_firm, reason, text }),
                Refused::Replace => {
                    put!(out, ModifyRejected { at_ns, cl_ord_id, orig_cl_ord_id, clearing_firm, reason, text })
                }
                Refused::MassCancel if is_purge => {
                    put!(out, PurgeRejected { at_ns, mass_cancel_id, reason, text })
                }
                Refused::MassCancel => put!(out, MassCancelRejected { at_ns, mass_cancel_id, reason, text }),
            }
        }
        _ => None,
    }
}
