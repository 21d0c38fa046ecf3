//! Requests by FIX: a new order, a cancel, a replacement.

use market::{Price, Symbol};
use matching_engine::{
    CancelReason, CrossKind, Display, Life, NewOrder, OnHalt, OrderId, Owner, PostOnly, Pricing, ReplaceError, Terms,
};
use order_entry::fix::codec::Decimal;
use order_entry::fix::orders::{
    CancelRequest, CxlRejResponseTo, NewOrderSingle, OrdStatus, OrdType, ReplaceRequest, Side, TimeInForce,
};
use order_entry::ouch;

use super::super::{Effect, Streams, Venue};
use super::answer::{FixAnswer, Refusal};
use super::{DROP_COPY_IDX, Order, TOKEN_BIT, ord_rej_reason};

/// ExecInst (18): participate, do not initiate.
const POST_ONLY: u8 = b'6';

/// CxlRejReason (102).
mod cxl_rej_reason {
    pub(super) const TOO_LATE: u64 = 0;
    pub(super) const UNKNOWN: u64 = 1;
    pub(super) const BROKER: u64 = 2;
    pub(super) const DUPLICATE: u64 = 6;
}

impl Venue {
    /// Takes a new order (D). The answers are among the account's
    /// [`fix_answers`](super::super::Account::fix_answers) when this returns.
    pub fn fix_new(&mut self, account: usize, request: &NewOrderSingle<'_>, now_ns: u64) -> Effect {
        self.counts.messages += 1;
        let fields = Fields {
            qty: request.order_qty,
            ord_type: request.ord_type,
            price: request.price,
            time_in_force: request.time_in_force.unwrap_or(TimeInForce::Day),
            min_qty: request.min_qty,
            is_post_only: request.exec_inst.is_some_and(|codes| codes.contains(&POST_ONLY)),
        };
        let symbol = Symbol::new(&String::from_utf8_lossy(request.symbol)).unwrap_or(Symbol::NONE);
        let order = fields.order(request.cl_ord_id, None, symbol, request.side);
        let orders = &mut self.accounts[account].fix;
        let at = orders.orders.len();
        orders.orders.push(order);
        if orders.cl_ord_ids.contains_key(request.cl_ord_id) {
            orders.reject(at, ord_rej_reason::DUPLICATE, "duplicate ClOrdID (11)");
            return self.break_line();
        }
        orders.cl_ord_ids.insert(request.cl_ord_id.to_vec(), Some(at));
        let admitted = self.admit(account, ouch_side(request.side), now_ns);
        let admitted = admitted.map_err(|reason| (ord_rej_reason::BROKER, reason.name().unwrap_or("refused")));
        let admitted = admitted.and_then(|side| {
            let symbol = *self.locates.get(&symbol).ok_or((ord_rej_reason::SYMBOL, "unknown symbol"))?;
            Ok((side, symbol, fields.terms().map_err(|text| (ord_rej_reason::UNSUPPORTED, text))?))
        });
        match admitted {
            Err((reason, text)) => self.accounts[account].fix.reject(at, reason, text),
            Ok((side, symbol, terms)) => {
                let (owner, token) = (Owner(account as u32 + 1), token(at));
                let new = NewOrder { owner, token, symbol, side, self_trade: None, on_halt: OnHalt::Keep, terms };
                let Self { engine, view, accounts, public, .. } = self;
                // Refused or not, the account has its answer.
                let _ = engine.submit(&new, now_ns, &mut Streams { view, accounts, public });
            }
        }
        self.break_line()
    }

    /// Takes a request to cancel (F), as [`Venue::fix_new`] does an order.
    pub fn fix_cancel(&mut self, account: usize, request: &CancelRequest<'_>, now_ns: u64) -> Effect {
        self.counts.messages += 1;
        let wish =
            Wish { cl_ord_id: request.cl_ord_id, orig_cl_ord_id: request.orig_cl_ord_id, to: CxlRejResponseTo::Cancel };
        if let Some((_, id)) = self.find_fix(account, &wish) {
            self.accounts[account].fix.cl_ord_ids.insert(request.cl_ord_id.to_vec(), None);
            self.cross_with_a_fill(Some(id), now_ns);
            self.accounts[account].fix.canceling = Some(request.cl_ord_id.to_vec());
            let Self { engine, view, accounts, public, .. } = self;
            let canceled = engine.cancel(id, CancelReason::User, now_ns, &mut Streams { view, accounts, public });
            self.accounts[account].fix.canceling = None;
            if canceled.is_err() {
                self.refuse_fix(account, &wish, cxl_rej_reason::TOO_LATE, "too late");
            }
        }
        self.break_line()
    }

    /// Takes a request to replace (G), as [`Venue::fix_new`] does an order. One that is refused
    /// leaves the order as it is.
    pub fn fix_replace(&mut self, account: usize, request: &ReplaceRequest<'_>, now_ns: u64) -> Effect {
        self.counts.messages += 1;
        let wish = Wish {
            cl_ord_id: request.cl_ord_id,
            orig_cl_ord_id: request.orig_cl_ord_id,
            to: CxlRejResponseTo::Replace,
        };
        if let Some((old, id)) = self.find_fix(account, &wish)
            && let Err(text) = self.exchange_fix(account, request, (old, id), now_ns)
        {
            self.refuse_fix(account, &wish, cxl_rej_reason::BROKER, text);
        }
        self.break_line()
    }

    fn exchange_fix(
        &mut self,
        account: usize,
        request: &ReplaceRequest<'_>,
        (old, id): (usize, OrderId),
        now_ns: u64,
    ) -> Result<(), &'static str> {
        let before = &self.accounts[account].fix.orders[old];
        let fields = Fields {
            qty: request.order_qty,
            ord_type: request.ord_type,
            price: request.price,
            time_in_force: request.time_in_force.unwrap_or(before.time_in_force),
            min_qty: None,
            is_post_only: false,
        };
        let (symbol, side, orig) = (before.symbol, before.side, before.cl_ord_id.clone());
        let terms = fields.terms()?;
        self.admit(account, ouch_side(side), now_ns).map_err(|reason| reason.name().unwrap_or("refused"))?;
        self.engine.check_replacement(id, &terms, now_ns).map_err(|error| match error {
            ReplaceError::NotLive => "too late",
            ReplaceError::Terms(reason) => reason.name(),
        })?;
        let orders = &mut self.accounts[account].fix;
        let at = orders.orders.len();
        orders.orders.push(fields.order(request.cl_ord_id, Some(orig), symbol, side));
        orders.cl_ord_ids.insert(request.cl_ord_id.to_vec(), Some(at));
        let Self { engine, view, accounts, public, .. } = self;
        let replaced = engine.replace(id, token(at), &terms, now_ns, &mut Streams { view, accounts, public });
        replaced.map(drop).map_err(|_| "too late")
    }

    /// The live order that a request names. The others are refused here.
    fn find_fix(&mut self, account: usize, wish: &Wish<'_>) -> Option<(usize, OrderId)> {
        let orders = &self.accounts[account].fix;
        let found = orders.cl_ord_ids.get(wish.orig_cl_ord_id).copied().flatten();
        let (reason, text) = if orders.cl_ord_ids.contains_key(wish.cl_ord_id) {
            (cxl_rej_reason::DUPLICATE, "duplicate ClOrdID (11)")
        } else if let Some(at) = found {
            match orders.orders[at].id.filter(|&id| self.engine.order(id).is_some()) {
                Some(id) => return Some((at, id)),
                None => (cxl_rej_reason::TOO_LATE, "too late"),
            }
        } else {
            (cxl_rej_reason::UNKNOWN, "unknown order")
        };
        self.refuse_fix(account, wish, reason, text);
        None
    }

    fn refuse_fix(&mut self, account: usize, wish: &Wish<'_>, reason: u64, text: &'static str) {
        let orders = &mut self.accounts[account].fix;
        let order = orders.cl_ord_ids.get(wish.orig_cl_ord_id).copied().flatten().map(|at| &orders.orders[at]);
        orders.answers.push(FixAnswer::Refusal(Refusal {
            cl_ord_id: wish.cl_ord_id.to_vec(),
            orig_cl_ord_id: wish.orig_cl_ord_id.to_vec(),
            order_id: order.map_or(0, |order| order.order_id),
            status: order.map_or(OrdStatus::Rejected, |order| order.status),
            reason,
            to: wish.to,
            text,
        }));
    }
}

/// What a cancel and a replacement have in common.
#[derive(Clone, Copy, Debug)]
struct Wish<'a> {
    cl_ord_id: &'a [u8],
    orig_cl_ord_id: &'a [u8],
    to: CxlRejResponseTo,
}

/// The engine's token of the order at an index.
const fn token(at: usize) -> u64 {
    TOKEN_BIT | (DROP_COPY_IDX as u64) << 32 | at as u32 as u64
}

const fn ouch_side(side: Side) -> ouch::Side {
    match side {
        Side::Buy => ouch::Side::BUY,
        _ => ouch::Side::SELL,
    }
}

/// What decides the terms of an order.
#[derive(Clone, Copy, Debug)]
struct Fields {
    qty: Option<Decimal>,
    ord_type: OrdType,
    price: Option<Decimal>,
    time_in_force: TimeInForce,
    min_qty: Option<Decimal>,
    is_post_only: bool,
}

impl Fields {
    fn order(&self, cl_ord_id: &[u8], orig: Option<Vec<u8>>, symbol: Symbol, side: Side) -> Order {
        Order {
            cl_ord_id: cl_ord_id.to_vec(),
            orig,
            id: None,
            order_id: 0,
            symbol,
            side,
            ord_type: self.ord_type,
            time_in_force: self.time_in_force,
            price: self.price.and_then(Decimal::price),
            qty: whole(self.qty).unwrap_or(0),
            executed: 0,
            leaves: 0,
            paid: 0,
            status: OrdStatus::New,
        }
    }

    /// The engine's terms; what this venue does not do by FIX is an error in words.
    fn terms(&self) -> Result<Terms, &'static str> {
        let life = match self.time_in_force {
            TimeInForce::Day => Life::Day,
            TimeInForce::ImmediateOrCancel => Life::ImmediateOrCancel,
            TimeInForce::FillOrKill => Life::FillOrKill,
            TimeInForce::AtTheOpening => Life::Cross(CrossKind::Opening),
            TimeInForce::AtTheClose => Life::Cross(CrossKind::Closing),
            _ => return Err("TimeInForce (59) must be 0, 2, 3, 4 or 7"),
        };
        let price = || -> Result<Price, &'static str> {
            let price = self.price.ok_or("a limit order needs Price (44)")?;
            price.price().ok_or("Price (44) has more than four decimals")
        };
        let pricing = match self.ord_type {
            OrdType::Market => Pricing::Market,
            OrdType::Limit => Pricing::Limit(price()?),
            _ => return Err("OrdType (40) must be 1 or 2"),
        };
        let qty = whole(self.qty).ok_or("OrderQty (38) must be whole shares")?;
        let min_qty = self.min_qty.map_or(Some(0), |min_qty| whole(Some(min_qty)));
        let min_qty = min_qty.ok_or("MinQty (110) must be whole shares")?;
        let post_only = if self.is_post_only { PostOnly::Slide } else { PostOnly::No };
        Ok(Terms { qty, pricing, display: Display::Full, life, post_only, min_qty })
    }
}

fn whole(shares: Option<Decimal>) -> Option<u32> {
    shares?.integer()?.try_into().ok()
}
