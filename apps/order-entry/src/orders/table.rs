//! The table of orders: what the client asks, and where an order is found.

use std::collections::VecDeque;
use std::hint::black_box;
use std::{error, fmt};

use market::{Price, Side};

use super::event::Effect;
use super::executions::{Executions, Worth};
use super::id_map::{ExecId, IdMap};
use super::instructions::Instructions;
use super::order::{CHAIN, End, Life, Order, PENDING, PendingReplace, VENUE_IDS};
use crate::risk::{Bitmap, InstrumentIdx, StrategyIdx};

/// Sizes of the table. All memory is allocated at construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderCapacity {
    /// Live orders, and ended ones that can still be found; some 600 bytes each with their ids. By
    /// default 65,536.
    pub orders: usize,
    /// Executions that are known again, 100 bytes each. By default 262,144.
    pub executions: usize,
    /// Instruments that can be blocked. By default 16,384.
    pub instruments: usize,
}

impl Default for OrderCapacity {
    /// 65,536 orders, 262,144 executions, 16,384 instruments.
    fn default() -> Self {
        Self { orders: 1 << 16, executions: 1 << 18, instruments: 1 << 14 }
    }
}

/// How the venue answers where venues differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderRules {
    /// The venue tells what it has of one order (a status request). By default no: a person
    /// compares orders whose reports are lost.
    pub has_status: bool,
    /// A fill of the whole order voids its unanswered replaces without an answer, as OUCH does. By
    /// default no: the order stays live until each greater replace is answered.
    pub full_fill_voids_replaces: bool,
}

/// By what an event names its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKey {
    /// Any client id of its chain.
    Client(u64),
    /// The venue's id.
    Venue(u64),
}

/// A request that the table does not take. Nothing must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// Every slot has a live order.
    Full,
    /// The client id was used before.
    IdUsed,
    /// The instrument is blocked, because the venue's numbers were not ours.
    Blocked,
    /// The order has ended, or never was.
    Ended,
    /// A cancel of the order is not answered.
    CancelPending,
    /// Too many replaces of the order are not answered.
    ReplacesPending,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "every slot has a live order",
            Self::IdUsed => "the client id was used before",
            Self::Blocked => "the instrument is blocked, because the venue's numbers are not ours",
            Self::Ended => "the order has ended",
            Self::CancelPending => "a cancel of the order is not answered",
            Self::ReplacesPending => "four replaces of the order are not answered",
        })
    }
}

impl error::Error for RequestError {}

/// All orders of one session.
#[derive(Clone, Debug)]
pub struct OrderTable {
    pub(super) rules: OrderRules,
    pub(super) orders: Box<[Order]>,
    /// Slots below were used.
    pub(super) used: usize,
    /// Ended orders, the longest ended first; revived ones are skipped when they come up.
    ended: VecDeque<u32>,
    live: usize,
    /// Orders and replaces of live orders without an answer.
    unanswered: usize,
    /// Orders that were ever opened.
    opened: u32,
    by_client: IdMap<u64>,
    /// No client id above was ever used: sessions number them upwards, so a new one is not looked
    /// for.
    id_max: u64,
    by_venue: IdMap<u64>,
    pub(super) executions: Executions,
    pub(super) blocked: Bitmap,
    /// The next slot that [`OrderTable::poll_unanswered`] looks at.
    pub(super) look: usize,
}

impl OrderTable {
    /// A table without orders.
    pub fn new(capacity: OrderCapacity, rules: OrderRules) -> Self {
        let orders = capacity.orders.max(1);
        Self {
            rules,
            orders: vec![Order::default(); orders].into_boxed_slice(),
            used: 0,
            ended: VecDeque::with_capacity(orders),
            live: 0,
            unanswered: 0,
            opened: 0,
            by_client: IdMap::new(orders * CHAIN),
            id_max: 0,
            by_venue: IdMap::new(orders * VENUE_IDS),
            executions: Executions::new(capacity.executions),
            blocked: Bitmap::new(capacity.instruments),
            look: 0,
        }
    }

    /// The slot that the next [`OrderTable::open`] takes, for the risk checks before it. `None`
    /// where every slot has a live order.
    pub fn next_slot(&mut self) -> Option<usize> {
        if self.used < self.orders.len() {
            return Some(self.used);
        }
        while let Some(slot) = self.ended.front() {
            let order = &mut self.orders[*slot as usize];
            if !order.is_live() {
                return Some(*slot as usize);
            }
            order.is_queued = false;
            self.ended.pop_front();
        }
        None
    }

    /// The slot that [`OrderTable::open`] would take for an order with `id`, for the risk checks
    /// and the journal before it.
    pub fn may_open(&mut self, id: u64, instrument: InstrumentIdx) -> Result<usize, RequestError> {
        if self.blocked.is_set(instrument) {
            return Err(RequestError::Blocked);
        }
        self.slot_for(id)
    }

    /// The slot for a new order with `id`, whatever its instrument.
    pub(super) fn slot_for(&mut self, id: u64) -> Result<usize, RequestError> {
        if self.is_used(id) {
            return Err(RequestError::IdUsed);
        }
        self.next_slot().ok_or(RequestError::Full)
    }

    /// Reads what [`OrderTable::open`] of `id` will write, so that it is in the cache: slots and
    /// places of ids are those that were not used for the longest time. Returns the slot.
    pub(crate) fn warm(&mut self, id: u64) -> Option<usize> {
        self.by_client.warm(id);
        let slot = self.next_slot()?;
        let order = &self.orders[slot];
        // The two lines that are written.
        black_box((order.life, order.chain.len()));
        Some(slot)
    }

    /// An order that is about to be sent as `id`. Call it before the send, so that no answer can
    /// come before the order is known.
    pub fn open(
        &mut self,
        id: u64,
        (instrument, side): (InstrumentIdx, Side),
        (qty, price): (u32, Price),
        now_ns: u64,
    ) -> Result<usize, RequestError> {
        let slot = self.may_open(id, instrument)?;
        self.open_in(slot, id, (instrument, side), (qty, price), now_ns);
        Ok(slot)
    }

    /// [`OrderTable::open`] after [`OrderTable::may_open`], which gave `slot`.
    pub(crate) fn open_in(
        &mut self,
        slot: usize,
        id: u64,
        (instrument, side): (InstrumentIdx, Side),
        (qty, price): (u32, Price),
        now_ns: u64,
    ) {
        if slot == self.used {
            self.used += 1;
        } else {
            self.ended.pop_front();
            self.forget(slot);
        }
        self.learn_client_id(slot, id);
        // All else is as in an order that never was: new slots are, and `forget` leaves it so.
        let order = &mut self.orders[slot];
        (order.instrument, order.side, order.qty, order.price) = (instrument, side, qty, price);
        (order.accepted, order.sent_ns) = (id, now_ns);
        (order.life, order.serial) = (Life::Sent, self.opened);
        order.chain.push(id);
        self.opened = self.opened.wrapping_add(1);
        (self.live, self.unanswered) = (self.live + 1, self.unanswered + 1);
    }

    /// The order in `slot` is a short sale.
    pub(crate) fn mark_short(&mut self, slot: usize) {
        self.orders[slot].is_short = true;
    }

    /// The order in `slot` is the strategy's.
    pub(crate) fn assign(&mut self, slot: usize, strategy: StrategyIdx) {
        self.orders[slot].strategy = strategy;
    }

    /// The order in `slot` says so. One that says nothing needs no call.
    pub(crate) fn instruct(&mut self, slot: usize, instructions: &Instructions) {
        self.orders[slot].instructions = *instructions;
    }

    /// The order in `slot` was not sent after all.
    pub fn abandon(&mut self, slot: usize) {
        let Some(order) = self.orders.get(slot).filter(|order| order.life == Life::Sent) else { return };
        self.unanswered -= order.unanswered_count();
        self.end(slot, End::Unsent);
    }

    /// A cancel is about to be sent. Returns the client id that it must name. An order in doubt may
    /// be canceled again, because the first cancel may be lost.
    pub fn request_cancel(&mut self, slot: usize, now_ns: u64) -> Result<u64, RequestError> {
        let order = self.live_order(slot)?;
        if order.cancel_sent_ns.is_some() && !order.is_in_doubt {
            return Err(RequestError::CancelPending);
        }
        order.cancel_sent_ns = Some(now_ns);
        Ok(order.accepted)
    }

    /// Whether [`OrderTable::request_replace`] would take `id`; for a call before the risk checks.
    pub fn may_replace(&self, slot: usize, id: u64) -> Result<(), RequestError> {
        let order = self.replaceable(slot, id)?;
        if order.cancel_sent_ns.is_some() {
            return Err(RequestError::CancelPending);
        }
        if self.blocked.is_set(order.instrument) { Err(RequestError::Blocked) } else { Ok(()) }
    }

    /// The live order in `slot`, where it has room for another replace, and `id` is a new one.
    pub(super) fn replaceable(&self, slot: usize, id: u64) -> Result<&Order, RequestError> {
        let order = self.get(slot).filter(|order| order.is_live()).ok_or(RequestError::Ended)?;
        if order.pending.len() == PENDING {
            return Err(RequestError::ReplacesPending);
        }
        if self.is_used(id) { Err(RequestError::IdUsed) } else { Ok(order) }
    }

    /// Whether an order that is still found had the client id.
    #[inline]
    fn is_used(&self, id: u64) -> bool {
        id <= self.id_max && self.by_client.find(id).is_some()
    }

    fn learn_client_id(&mut self, slot: usize, id: u64) {
        self.by_client.insert(id, slot as u32);
        self.id_max = self.id_max.max(id);
    }

    /// A replace is about to be sent as `id`, with the intended total `qty`. Returns the client id
    /// that it must name: the last accepted one, also where other replaces are unanswered.
    pub fn request_replace(
        &mut self,
        slot: usize,
        id: u64,
        (qty, price): (u32, Price),
        now_ns: u64,
    ) -> Result<u64, RequestError> {
        self.may_replace(slot, id)?;
        self.push_replace(slot, id, (qty, price), now_ns);
        Ok(self.orders[slot].accepted)
    }

    /// Adds a replace to an order that has room for it.
    pub(super) fn push_replace(&mut self, slot: usize, id: u64, (qty, price): (u32, Price), now_ns: u64) {
        let order = &mut self.orders[slot];
        if order.chain.is_full() {
            let is_old = |old: &u64| *old != order.accepted && order.pending.iter().all(|pending| pending.id != *old);
            // Eight ids less the accepted one and three unanswered ones leave four.
            if let Some(place) = order.chain.iter().position(is_old) {
                self.by_client.remove(order.chain.remove(place));
            }
        }
        order.chain.push(id);
        order.pending.push(PendingReplace { id, qty, price, sent_ns: now_ns });
        self.unanswered += 1;
        self.learn_client_id(slot, id);
    }

    /// The slot of the order that `key` names.
    pub fn find(&self, key: OrderKey) -> Option<usize> {
        let slot = match key {
            OrderKey::Client(id) => self.by_client.find(id),
            OrderKey::Venue(id) => self.by_venue.find(id),
        };
        slot.map(|slot| slot as usize)
    }

    /// The order in `slot`, live or ended; `None` for a slot that was never used.
    pub fn get(&self, slot: usize) -> Option<&Order> {
        self.orders[..self.used].get(slot)
    }

    /// Shares and price of an execution of the order that `key` names, and whether it was busted.
    pub fn execution(&self, key: OrderKey, exec: ExecId) -> Option<(u32, Price, bool)> {
        let order = self.get(self.find(key)?)?;
        match self.executions.find(order.serial, exec)? {
            Worth::Counts(qty, price) => Some((qty, price, false)),
            Worth::Busted(qty, price) => Some((qty, price, true)),
            Worth::Corrected(_) => None,
        }
    }

    /// Whether an execution of the order that `key` names was corrected, by one of another name.
    pub fn is_corrected(&self, key: OrderKey, exec: ExecId) -> bool {
        let order = self.find(key).and_then(|slot| self.get(slot));
        order.is_some_and(|order| self.executions.is_corrected(order.serial, exec))
    }

    /// Whether executions were forgotten, because there were more than there is room for: one that
    /// [`OrderTable::execution`] does not find may have been counted.
    pub const fn has_forgotten_executions(&self) -> bool {
        self.executions.has_forgotten()
    }

    /// Slots below this one were used.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Slots and orders that live: a look at each slot that was ever used.
    pub fn live(&self) -> impl Iterator<Item = (usize, &Order)> {
        self.orders[..self.used].iter().enumerate().filter(|(_, order)| order.is_live())
    }

    /// Orders that were ever opened, as [`Order::serial`] counts them: the next one has this.
    pub const fn opened(&self) -> u32 {
        self.opened
    }

    /// How many orders live.
    pub const fn live_count(&self) -> usize {
        self.live
    }

    /// How many orders and replaces of live orders the venue has not answered. One load.
    pub const fn unanswered_count(&self) -> usize {
        self.unanswered
    }

    /// The order in `slot` had so many requests without an answer before an event.
    pub(super) fn count_unanswered(&mut self, slot: usize, before: usize) {
        self.unanswered = self.unanswered + self.orders[slot].unanswered_count() - before;
    }

    /// Adds an id by which the venue names the order.
    pub(super) fn learn_venue_id(&mut self, slot: usize, venue_id: u64) {
        let order = &mut self.orders[slot];
        if order.venue_ids.contains(&venue_id) {
            return;
        }
        let oldest = if order.venue_ids.is_full() { Some(order.venue_ids.remove(0)) } else { None };
        order.venue_ids.push(venue_id);
        if let Some(oldest) = oldest {
            self.forget_venue_id(slot, oldest);
        }
        self.by_venue.insert(venue_id, slot as u32);
    }

    /// Ends a live order. Its unanswered replaces stay, for a venue that accepts one after all.
    pub(super) fn end(&mut self, slot: usize, end: End) {
        let order = &mut self.orders[slot];
        order.life = Life::Ended(end);
        order.cancel_sent_ns = None;
        (order.is_in_doubt, order.is_unconfirmed) = (false, false);
        if !order.is_queued {
            order.is_queued = true;
            self.ended.push_back(slot as u32);
        }
        self.live -= 1;
    }

    /// Makes an ended order live again. Its reservation covers its unanswered replaces too.
    pub(super) fn revive(&mut self, slot: usize) -> Effect {
        self.live += 1;
        let order = &mut self.orders[slot];
        order.life = Life::Live;
        let qty = order.pending.iter().fold(order.qty, |qty, pending| qty.max(pending.qty));
        Effect::Revived { leaves: qty.saturating_sub(order.cum), price: order.price }
    }

    fn live_order(&mut self, slot: usize) -> Result<&mut Order, RequestError> {
        self.orders.get_mut(slot).filter(|order| order.is_live()).ok_or(RequestError::Ended)
    }

    /// Takes the ended order in `slot` out of the table.
    fn forget(&mut self, slot: usize) {
        let order = &mut self.orders[slot];
        order.chain.drain(..).for_each(|id| self.by_client.remove(id));
        for id in core::mem::take(&mut order.venue_ids) {
            self.forget_venue_id(slot, id);
        }
        self.orders[slot] = Order::default();
    }

    /// An id that another order was given since is that order's.
    fn forget_venue_id(&mut self, slot: usize, venue_id: u64) {
        if self.by_venue.find(venue_id) == Some(slot as u32) {
            self.by_venue.remove(venue_id);
        }
    }
}
