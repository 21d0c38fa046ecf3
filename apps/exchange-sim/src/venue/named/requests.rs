//! Requests about orders that their owner names: a new one, a cancel, a replacement, a cancel of
//! all.

use market::{Locate, Price, Side, Symbol};
use matching_engine::{
    CancelReason, NewOrder, OrderId, OrderView, Owner, Pricing, RejectReason, ReplaceError, SelfTrade, Terms,
};
use order_entry::ouch;

use super::super::{Effect, Streams, Venue, self_trade_group};
use super::{Answer, AnswerKind, Canceling, NamedOrder, NamedOrders, OrderRefusal, Protocol, Refused};

/// A new order; of a replacement the terms and the identifier alone count.
#[derive(Clone, Copy, Debug)]
pub struct OrderRequest<'a> {
    /// The client's identifier of it.
    pub cl_ord_id: &'a [u8],
    /// The instrument.
    pub symbol: Symbol,
    /// Buy or sell.
    pub side: Side,
    /// Shares.
    pub qty: u32,
    /// Its limit.
    pub price: Option<Price>,
    /// All that the engine needs; what the protocol or this venue cannot do, in words.
    pub terms: Result<Terms, &'static str>,
    /// Self-trade prevention within a group of the account.
    pub self_trade: Option<SelfTrade>,
    /// What answers repeat, in bytes of the protocol.
    pub echo: &'a [u8],
}

/// Which order a request is about.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// By the client's identifier.
    ClOrdId(&'a [u8]),
    /// By the venue's.
    OrderId(u64),
}

/// A cancel, or the order of a replacement.
#[derive(Clone, Copy, Debug)]
pub struct ChangeRequest<'a> {
    /// The request's own identifier, in protocols that have one.
    pub cl_ord_id: Option<&'a [u8]>,
    /// The order.
    pub target: Target<'a>,
    /// The order is canceled where the request is refused.
    pub cancels_on_refusal: bool,
    /// What answers repeat, in bytes of the protocol.
    pub echo: &'a [u8],
}

/// A cancel of many.
#[derive(Clone, Copy, Debug)]
pub struct MassCancelRequest<'a> {
    /// The request's identifier.
    pub cl_ord_id: &'a [u8],
    /// The instrument; all where there is none.
    pub symbol: Option<Symbol>,
    /// The side; both where there is none.
    pub side: Option<Side>,
    /// What it asks for that this venue does not do, in words: then nothing is canceled.
    pub unsupported: Option<&'static str>,
    /// What answers repeat, in bytes of the protocol.
    pub echo: &'a [u8],
}

impl Venue {
    /// Takes a new order. The answers are among the account's
    /// [`answers`](super::super::Account::answers) when this returns.
    pub fn enter_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        request: &OrderRequest<'_>,
        now_ns: u64,
    ) -> Effect {
        self.counts.messages += 1;
        let orders = self.named(account, protocol);
        let at = orders.add(request);
        if protocol.has_unique_ids() && orders.cl_ord_ids.contains_key(request.cl_ord_id) {
            orders.reject(now_ns, at, OrderRefusal::Duplicate);
            return self.break_line();
        }
        orders.cl_ord_ids.insert(request.cl_ord_id.to_vec(), Some(at));
        let admitted = self.admit_named(account, request, now_ns);
        let symbol = self.locates.get(&request.symbol).copied();
        match admitted.and_then(|terms| Ok((terms, symbol.ok_or(OrderRefusal::Engine(RejectReason::Symbol))?))) {
            Err(reason) => self.named(account, protocol).reject(now_ns, at, reason),
            Ok((terms, symbol)) => {
                let (owner, token) = (Owner(account as u32 + 1), protocol.token(at));
                let group = |group| self_trade_group(owner, true, group);
                let self_trade = request.self_trade.map(|it| SelfTrade { group: group(it.group), ..it });
                let (side, on_halt) = (request.side, self.accounts[account].settings().on_halt);
                let new = NewOrder { owner, token, symbol, side, self_trade, on_halt, terms };
                let Self { engine, view, accounts, public, .. } = self;
                // Refused or not, the account has its answer.
                let _ = engine.submit(&new, now_ns, &mut Streams { view, accounts, public });
            }
        }
        self.break_line()
    }

    /// Takes a request to cancel, as [`Venue::enter_named`] does an order.
    pub fn cancel_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        request: &ChangeRequest<'_>,
        now_ns: u64,
    ) -> Effect {
        self.counts.messages += 1;
        if let Some((_, id)) = self.find_named(account, protocol, request, Refused::Cancel, now_ns) {
            if let Some(cl_ord_id) = request.cl_ord_id.filter(|_| protocol.has_unique_ids()) {
                self.named(account, protocol).cl_ord_ids.insert(cl_ord_id.to_vec(), None);
            }
            self.cross_with_a_fill(Some(id), now_ns);
            let canceling = Canceling {
                cl_ord_id: request.cl_ord_id.map(<[u8]>::to_vec),
                request: Some(request.echo.into()),
                is_rate: false,
            };
            if !self.end_named(account, protocol, id, canceling, now_ns) {
                self.refuse_named(account, protocol, request, (Refused::Cancel, OrderRefusal::TooLate), now_ns);
            }
        }
        self.break_line()
    }

    /// Takes a request to replace, as [`Venue::enter_named`] does an order. One that is refused
    /// leaves the order as it is.
    pub fn replace_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        (request, order): (&ChangeRequest<'_>, &OrderRequest<'_>),
        now_ns: u64,
    ) -> Effect {
        self.counts.messages += 1;
        if let Some(found) = self.find_named(account, protocol, request, Refused::Replace, now_ns)
            && let Err(reason) = self.exchange_named(account, protocol, order, found, now_ns)
        {
            if reason == OrderRefusal::Rate && protocol.cancels_beyond_rate() {
                let canceling = Canceling { is_rate: true, ..Canceling::default() };
                self.end_named(account, protocol, found.1, canceling, now_ns);
            } else {
                self.refuse_named(account, protocol, request, (Refused::Replace, reason), now_ns);
            }
        }
        self.break_line()
    }

    /// Cancels all orders of an account, or those of an instrument.
    pub fn mass_cancel_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        request: &MassCancelRequest<'_>,
        now_ns: u64,
    ) -> Effect {
        self.counts.messages += 1;
        let locate = request.symbol.map(|symbol| self.locates.get(&symbol).copied());
        let kind = if let Some(words) = request.unsupported {
            AnswerKind::Refused(Refused::MassCancel, OrderRefusal::Terms(words))
        } else if locate == Some(None) {
            AnswerKind::Refused(Refused::MassCancel, OrderRefusal::Engine(RejectReason::Symbol))
        } else {
            let count = self.cancel_side(account, locate.flatten(), request.side, now_ns);
            AnswerKind::MassCanceled { count: count as u32 }
        };
        self.named(account, protocol).push(Answer {
            at_ns: now_ns,
            number: 0,
            kind,
            cl_ord_id: request.cl_ord_id.to_vec(),
            orig_cl_ord_id: None,
            order: None,
            request: Some(request.echo.into()),
        });
        self.break_line()
    }

    /// Cancels the orders of an account, of one instrument and side or of all; how many.
    fn cancel_side(&mut self, account: usize, symbol: Option<Locate>, side: Option<Side>, now_ns: u64) -> usize {
        let Some(side) = side else {
            let Self { engine, view, accounts, public, .. } = self;
            let (owner, mut sink) = (Owner(account as u32 + 1), Streams { view, accounts, public });
            return engine.cancel_all(owner, symbol, CancelReason::User, now_ns, &mut sink);
        };
        self.cancel_if(account, CancelReason::User, now_ns, |order| {
            order.state.side == side && symbol.is_none_or(|it| it == order.symbol)
        })
    }

    /// Cancels those of an account's orders that are meant; how many.
    pub(in crate::venue) fn cancel_if(
        &mut self,
        account: usize,
        reason: CancelReason,
        now_ns: u64,
        is_meant: impl Fn(&OrderView) -> bool,
    ) -> usize {
        let Self { engine, view, accounts, public, .. } = self;
        let named = accounts[account].named.iter().flat_map(|orders| &orders.orders).map(|order| order.id);
        let ids: Vec<_> = named.chain(accounts[account].orders.values().map(|entry| entry.id)).flatten().collect();
        let mut count = 0;
        for id in ids {
            if engine.order(id).is_some_and(|order| is_meant(&order)) {
                // It lives: it was just found.
                let _ = engine.cancel(id, reason, now_ns, &mut Streams { view, accounts, public });
                count += 1;
            }
        }
        count
    }

    /// The terms of a live order, as a change of it starts from. A stop that woke is a stop no
    /// more.
    pub fn terms_of_named(&self, account: usize, protocol: Protocol, target: Target<'_>) -> Option<Terms> {
        let order = self.accounts[account].named[protocol as usize].get(target)?;
        let (terms, live) = (order.terms?, self.engine.order(order.id?)?);
        let is_stop = matches!(terms.pricing, Pricing::Stop { .. });
        Some(Terms { pricing: if is_stop { live.pricing } else { terms.pricing }, ..terms })
    }

    /// Shares that a live order and those whose place it took have traded.
    pub fn traded_of_named(&self, account: usize, protocol: Protocol, target: Target<'_>) -> Option<u32> {
        let order = self.accounts[account].named[protocol as usize].get(target)?;
        Some(self.engine.order(order.id?)?.state.executed)
    }

    /// Refuses a new order without a look at it.
    pub fn refuse_new_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        request: &OrderRequest<'_>,
        reason: OrderRefusal,
        now_ns: u64,
    ) {
        self.counts.messages += 1;
        let orders = self.named(account, protocol);
        let at = orders.add(request);
        orders.reject(now_ns, at, reason);
    }

    /// Refuses a request to change an order.
    pub fn refuse_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        request: &ChangeRequest<'_>,
        (what, reason): (Refused, OrderRefusal),
        now_ns: u64,
    ) {
        let orders = self.named(account, protocol);
        let named = orders.of_target(request.target);
        let order = named.map(|at| orders.orders[at].clone());
        let orig = match request.target {
            Target::ClOrdId(orig) => orig,
            Target::OrderId(_) => order.as_ref().map_or(&[][..], |order| &order.cl_ord_id),
        };
        let orig = orig.to_vec();
        orders.push(Answer {
            at_ns: now_ns,
            number: 0,
            kind: AnswerKind::Refused(what, reason),
            cl_ord_id: request.cl_ord_id.map_or_else(|| orig.clone(), <[u8]>::to_vec),
            orig_cl_ord_id: Some(orig),
            order,
            request: Some(request.echo.into()),
        });
        let id = named.and_then(|at| self.named(account, protocol).orders[at].id);
        if let Some(id) = id.filter(|_| request.cancels_on_refusal && what == Refused::Replace) {
            // One that has ended is gone.
            self.end_named(account, protocol, id, Canceling::default(), now_ns);
        }
    }

    /// Tells an order as it is now; one that is not known was refused.
    pub fn tell_status(
        &mut self,
        account: usize,
        protocol: Protocol,
        (cl_ord_id, symbol, side): (&[u8], Symbol, Side),
        now_ns: u64,
    ) -> Effect {
        self.counts.messages += 1;
        let orders = self.named(account, protocol);
        let named = orders.of_target(Target::ClOrdId(cl_ord_id));
        // Of a chain the newest one is what the order is.
        let newest = named.map(|at| orders.order_ids.get(&orders.orders[at].order_id).copied().unwrap_or(at));
        let known = newest.map(|at| orders.orders[at].clone());
        let order = known.unwrap_or_else(|| NamedOrder::unknown(cl_ord_id, symbol, side));
        orders.push(Answer {
            at_ns: now_ns,
            number: 0,
            kind: AnswerKind::Status,
            cl_ord_id: order.cl_ord_id.clone(),
            orig_cl_ord_id: None,
            order: Some(order),
            request: None,
        });
        self.break_line()
    }

    fn named(&mut self, account: usize, protocol: Protocol) -> &mut NamedOrders {
        &mut self.accounts[account].named[protocol as usize]
    }

    fn admit_named(&mut self, account: usize, request: &OrderRequest<'_>, now_ns: u64) -> Result<Terms, OrderRefusal> {
        let side = if request.side == Side::Buy { ouch::Side::BUY } else { ouch::Side::SELL };
        self.admit(account, side, now_ns).map_err(|reason| match reason {
            ouch::RejectReason::RISK_PORT_RATE => OrderRefusal::Rate,
            _ => OrderRefusal::Disabled,
        })?;
        request.terms.map_err(OrderRefusal::Terms)
    }

    fn exchange_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        request: &OrderRequest<'_>,
        (old, id): (usize, OrderId),
        now_ns: u64,
    ) -> Result<(), OrderRefusal> {
        let terms = self.admit_named(account, request, now_ns)?;
        self.engine.check_replacement(id, &terms, now_ns).map_err(|error| match error {
            ReplaceError::NotLive => OrderRefusal::TooLate,
            ReplaceError::Terms(reason) => OrderRefusal::Engine(reason),
        })?;
        let orders = self.named(account, protocol);
        let (symbol, side) = (orders.orders[old].symbol, orders.orders[old].side);
        let at = orders.add(&OrderRequest { symbol, side, ..*request });
        orders.cl_ord_ids.insert(request.cl_ord_id.to_vec(), Some(at));
        let Self { engine, view, accounts, public, .. } = self;
        let mut sink = Streams { view, accounts, public };
        let replaced = engine.replace(id, protocol.token(at), &terms, now_ns, &mut sink);
        replaced.map(drop).map_err(|_| OrderRefusal::TooLate)
    }

    /// Cancels an order; false where it has ended.
    fn end_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        id: OrderId,
        canceling: Canceling,
        now_ns: u64,
    ) -> bool {
        self.named(account, protocol).canceling = canceling;
        let Self { engine, view, accounts, public, .. } = self;
        let canceled = engine.cancel(id, CancelReason::User, now_ns, &mut Streams { view, accounts, public });
        self.named(account, protocol).canceling = Canceling::default();
        canceled.is_ok()
    }

    /// The live order that a request names. The others are refused here.
    fn find_named(
        &mut self,
        account: usize,
        protocol: Protocol,
        request: &ChangeRequest<'_>,
        what: Refused,
        now_ns: u64,
    ) -> Option<(usize, OrderId)> {
        let orders = &self.accounts[account].named[protocol as usize];
        let is_used = request.cl_ord_id.is_some_and(|id| orders.cl_ord_ids.contains_key(id));
        let reason = if is_used && protocol.has_unique_ids() {
            OrderRefusal::Duplicate
        } else if let Some(at) = orders.of_target(request.target) {
            match orders.orders[at].id.filter(|&id| self.engine.order(id).is_some()) {
                Some(id) => return Some((at, id)),
                None => OrderRefusal::TooLate,
            }
        } else {
            OrderRefusal::Unknown
        };
        self.refuse_named(account, protocol, request, (what, reason), now_ns);
        None
    }
}
