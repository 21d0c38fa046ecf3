//! Messages of an account, one at a time.

use market::{Price, Side};
use matching_engine::{CancelReason, Life, NewOrder, OrderId, Owner, ReplaceError, Terms};
use order_entry::ouch::v50::{
    AccountQueryResponse, Appendage, CancelOrder, DisableOrderEntryResponse, EnableOrderEntryResponse, EnterOrder,
    Inbound, MassCancel, MassCancelResponse, ModifyOrder, OrderModified, ReplaceOrder,
};
use order_entry::ouch::{self, OuchError, RejectReason};

use super::account::{Entry, Key};
use super::answers::{emit, rejected};
use super::faults::Fault;
use super::ouch42;
use super::terms::{Fields, Options, terms};
use super::{Effect, Streams, Venue};

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;
/// Shares of the house's order that crosses with a cancel.
const CROSSING_SHARES: u32 = 100;

impl Venue {
    /// Takes one OUCH message of an account. The answers are among its
    /// [`messages`](super::Account::messages) when this returns.
    ///
    /// # Errors
    ///
    /// The bytes are no message of OUCH 5.0: nothing happened, and the caller ends the connection.
    pub fn receive(&mut self, account: usize, message: &[u8], now_ns: u64) -> Result<Effect, OuchError> {
        let (_, options) = Inbound::parse(message).inspect_err(|_| self.counts.malformed += 1)?;
        if options.user_ref_idx() == ouch42::IDX {
            // The index is the venue's own.
            self.counts.ignored += 1;
            return Ok(Effect::None);
        }
        self.take(account, message, now_ns)
    }

    /// Takes a message of OUCH 5.0 with any index.
    pub(super) fn take(&mut self, account: usize, message: &[u8], now_ns: u64) -> Result<Effect, OuchError> {
        let (message, options) = Inbound::parse(message)?;
        self.counts.messages += 1;
        let idx = options.user_ref_idx();
        match message {
            Inbound::EnterOrder(order) => self.enter(account, order, options, now_ns),
            Inbound::ReplaceOrder(replace) => self.replace(account, replace, options, now_ns),
            Inbound::CancelOrder(cancel) => self.cancel(account, cancel, idx, now_ns),
            Inbound::ModifyOrder(modify) => self.modify(account, modify, idx, now_ns),
            Inbound::MassCancel(cancel) => self.mass_cancel(account, cancel, idx, now_ns),
            Inbound::DisableOrderEntry(message) => {
                if self.use_number(account, Key { idx, number: message.user_ref.get() }) {
                    self.accounts[account].may_enter = false;
                    let (user_ref, firm) = (message.user_ref, message.firm);
                    let answer = DisableOrderEntryResponse { at_ns: now_ns.into(), user_ref, firm };
                    self.accounts[account].push(&emit((&answer).into(), idx));
                }
            }
            Inbound::EnableOrderEntry(message) => {
                if self.use_number(account, Key { idx, number: message.user_ref.get() }) {
                    self.accounts[account].may_enter = true;
                    let (user_ref, firm) = (message.user_ref, message.firm);
                    let answer = EnableOrderEntryResponse { at_ns: now_ns.into(), user_ref, firm };
                    self.accounts[account].push(&emit((&answer).into(), idx));
                }
            }
            Inbound::AccountQuery(_) => {
                self.counts.queries += 1;
                let next_user_ref = self.accounts[account].next_number(idx).into();
                let answer = AccountQueryResponse { at_ns: now_ns.into(), next_user_ref };
                self.accounts[account].push(&emit((&answer).into(), idx));
            }
        }
        Ok(self.break_line())
    }

    /// A fault of the connection, once the message is processed.
    pub(super) fn break_line(&mut self) -> Effect {
        if self.faults.draw(Fault::LostAck) {
            self.counts.lost_acks += 1;
            return Effect::Break;
        }
        if self.faults.draw(Fault::HalfOpen) {
            self.counts.half_opens += 1;
            return Effect::GoSilent;
        }
        Effect::None
    }

    /// A message whose number was used is ignored in silence.
    fn use_number(&mut self, account: usize, key: Key) -> bool {
        let is_new = self.accounts[account].use_number(key);
        self.counts.ignored += u64::from(!is_new);
        is_new
    }

    fn enter(&mut self, account: usize, order: &EnterOrder, appendage: Appendage<'_>, now_ns: u64) {
        let key = Key { idx: appendage.user_ref_idx(), number: order.user_ref.get() };
        if !self.use_number(account, key) {
            return;
        }
        let options = Options::of(appendage);
        let entry = Entry {
            id: None,
            side: order.side,
            time_in_force: order.time_in_force,
            display: order.display,
            capacity: order.capacity,
            intermarket_sweep: order.intermarket_sweep,
            cross_type: order.cross_type,
            cl_ord_id: order.cl_ord_id,
            aiq_strategy: options.aiq_strategy.unwrap_or(ouch::AiqStrategy(b' ')),
        };
        let fields = Fields {
            quantity: order.quantity.get(),
            price: order.price.get(),
            time_in_force: order.time_in_force,
            display: order.display,
            cross_type: order.cross_type,
        };
        let admitted = self.admit(account, order.side, now_ns).and_then(|side| {
            let symbol = *self.locates.get(&order.symbol).ok_or(RejectReason::INVALID_SYMBOL)?;
            Ok((side, symbol, terms(&fields, &options, now_ns)?))
        });
        let (side, symbol, terms) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => {
                let answer = rejected(key, order.cl_ord_id, reason, now_ns.into());
                self.accounts[account].push(&emit((&answer).into(), key.idx));
                return;
            }
        };
        self.accounts[account].orders.insert(key, entry);
        let (owner, token) = (Owner(account as u32 + 1), key.token());
        let self_trade = options.self_trade(owner);
        let on_halt = self.accounts[account].settings().on_halt;
        let new = NewOrder { owner, token, symbol, side, self_trade, on_halt, terms };
        let Self { engine, view, accounts, public, .. } = self;
        // Refused or not, the account has its answer.
        let _ = engine.submit(&new, now_ns, &mut Streams { view, accounts, public });
    }

    /// What the venue checks before a replacement by OUCH, where the injected fault throttles
    /// orders alone.
    fn admit_change(&mut self, account: usize, now_ns: u64) -> Result<(), RejectReason> {
        if !self.accounts[account].may_enter {
            return Err(RejectReason::FIRM_NOT_AUTHORIZED);
        }
        if self.is_too_fast(account, now_ns) {
            self.counts.throttled += 1;
            return Err(RejectReason::RISK_PORT_RATE);
        }
        Ok(())
    }

    /// What the venue checks before the engine does.
    pub(super) fn admit(&mut self, account: usize, side: ouch::Side, now_ns: u64) -> Result<Side, RejectReason> {
        if !self.accounts[account].may_enter {
            return Err(RejectReason::FIRM_NOT_AUTHORIZED);
        }
        if self.is_too_fast(account, now_ns) || self.faults.draw(Fault::Throttle) {
            self.counts.throttled += 1;
            return Err(RejectReason::RISK_PORT_RATE);
        }
        match side {
            ouch::Side::BUY => Ok(Side::Buy),
            side if side.is_sale() => Ok(Side::Sell),
            _ => Err(RejectReason::INVALID_SIDE),
        }
    }

    fn is_too_fast(&mut self, account: usize, now_ns: u64) -> bool {
        let Some(rate_max) = self.rate_max else { return false };
        let (second, count) = &mut self.accounts[account].rate;
        if *second != now_ns / SECOND_NS {
            (*second, *count) = (now_ns / SECOND_NS, 0);
        }
        *count = count.saturating_add(1);
        *count > rate_max
    }

    fn replace(&mut self, account: usize, replace: &ReplaceOrder, appendage: Appendage<'_>, now_ns: u64) {
        let idx = appendage.user_ref_idx();
        let (old, new) =
            (Key { idx, number: replace.orig_user_ref.get() }, Key { idx, number: replace.user_ref.get() });
        let known = self.accounts[account].orders.get(&old).copied();
        let live = known.and_then(|entry| Some((entry, entry.id.filter(|&id| self.engine.order(id).is_some())?)));
        let is_new = new.number >= self.accounts[account].next_number(idx);
        // A dead order and a number that was used are both ignored, and the number stays free.
        let Some((entry, id)) = live.filter(|_| is_new) else {
            self.counts.ignored += 1;
            return;
        };
        // A refusal takes the number, and leaves the order as it is.
        if let Err(reason) = self.admit_change(account, now_ns) {
            self.accounts[account].use_number(new);
            let answer = rejected(new, replace.cl_ord_id, reason, now_ns.into());
            self.accounts[account].push(&emit((&answer).into(), idx));
            return;
        }
        let fields = Fields {
            quantity: replace.quantity.get(),
            price: replace.price.get(),
            time_in_force: replace.time_in_force,
            display: replace.display,
            cross_type: entry.cross_type,
        };
        let options = Options::of(appendage);
        // Terms that make no sense cancel the order, by an order of no shares.
        let terms = terms(&fields, &options, now_ns).unwrap_or(Terms::limit(0, Price(0)));
        let entry = Entry {
            id: None,
            time_in_force: replace.time_in_force,
            display: replace.display,
            intermarket_sweep: replace.intermarket_sweep,
            cl_ord_id: replace.cl_ord_id,
            ..entry
        };
        self.accounts[account].orders.insert(new, entry);
        let Self { engine, view, accounts, public, .. } = self;
        match engine.replace(id, new.token(), &terms, now_ns, &mut Streams { view, accounts, public }) {
            Ok(_) => drop(accounts[account].use_number(new)),
            Err(ReplaceError::NotLive | ReplaceError::Terms(_)) => drop(accounts[account].orders.remove(&new)),
        }
    }

    fn cancel(&mut self, account: usize, cancel: &CancelOrder, idx: u8, now_ns: u64) {
        let key = Key { idx, number: cancel.user_ref.get() };
        let id = self.accounts[account].orders.get(&key).and_then(|entry| entry.id);
        self.cross_with_a_fill(id, now_ns);
        self.reduce(account, key, cancel.quantity.get(), now_ns);
    }

    fn reduce(&mut self, account: usize, key: Key, qty: u32, now_ns: u64) {
        let id = self.accounts[account].orders.get(&key).and_then(|entry| entry.id);
        let Self { engine, view, accounts, public, counts, .. } = self;
        let mut sink = Streams { view, accounts, public };
        if id.is_none_or(|id| engine.reduce(id, qty, now_ns, &mut sink).is_err()) {
            counts.ignored += 1;
        }
    }

    /// The fault: an order of the house fills a part of the order just before it is canceled.
    pub(super) fn cross_with_a_fill(&mut self, id: Option<OrderId>, now_ns: u64) {
        let Some(order) = id.and_then(|id| self.engine.order(id)) else { return };
        if !self.faults.draw(Fault::CrossingFill) {
            return;
        }
        let (matching_engine::Pricing::Limit(price), Life::Day) = (order.pricing, order.life) else { return };
        self.counts.crossing_fills += 1;
        let side = if order.state.side == Side::Buy { Side::Sell } else { Side::Buy };
        let qty = order.state.leaves.min(CROSSING_SHARES);
        let terms = Terms { life: Life::ImmediateOrCancel, ..Terms::limit(qty, price) };
        self.house(order.symbol, side, terms, now_ns);
    }

    fn modify(&mut self, account: usize, modify: &ModifyOrder, idx: u8, now_ns: u64) {
        let key = Key { idx, number: modify.user_ref.get() };
        let Self { engine, accounts, .. } = self;
        let entry = accounts[account].orders.get_mut(&key);
        let live = entry.and_then(|entry| Some((engine.order(entry.id?)?.state, entry)));
        let Some((state, entry)) = live else {
            self.counts.ignored += 1;
            return;
        };
        if entry.side.may_become(modify.side) {
            entry.side = modify.side;
        }
        if modify.quantity.get() >= state.executed + state.leaves {
            // The side alone changes, and the engine has nothing to tell.
            let (user_ref, side, quantity) = (key.number.into(), entry.side, state.leaves.into());
            let answer = OrderModified { at_ns: now_ns.into(), user_ref, side, quantity };
            self.accounts[account].push(&emit((&answer).into(), idx));
            return;
        }
        self.accounts[account].modifying = Some(key);
        self.reduce(account, key, modify.quantity.get(), now_ns);
        self.accounts[account].modifying = None;
    }

    fn mass_cancel(&mut self, account: usize, cancel: &MassCancel, idx: u8, now_ns: u64) {
        if !self.use_number(account, Key { idx, number: cancel.user_ref.get() }) {
            return;
        }
        let symbol = self.locates.get(&cancel.symbol).copied();
        if symbol.is_some() || cancel.symbol == market::Symbol::NONE {
            let Self { engine, view, accounts, public, .. } = self;
            let mut sink = Streams { view, accounts, public };
            engine.cancel_all(Owner(account as u32 + 1), symbol, CancelReason::User, now_ns, &mut sink);
        }
        let (user_ref, firm, symbol) = (cancel.user_ref, cancel.firm, cancel.symbol);
        let answer = MassCancelResponse { at_ns: now_ns.into(), user_ref, firm, symbol };
        self.accounts[account].push(&emit((&answer).into(), idx));
    }
}
