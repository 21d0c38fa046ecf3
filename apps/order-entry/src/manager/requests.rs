//! Requests: state, risk, journal, and only then the caller may send.

use market::{Price, Symbol};

use super::{OrderManager, Refusal};
use crate::journal::{Cursor, Entry, Intent, JournalMemory, Stamp};
use crate::orders::{OrderKey, OrderTable, RequestError, VenueEvent};
use crate::risk::{InstrumentIdx, Limit, Market, NewOrder, Passed, Replace, RiskGate, RiskReject, Route};

/// What a new order passes, of a session or of a [`Rehearsal`](super::rehearsal::Rehearsal).
pub(super) struct Passage<'a> {
    pub(super) table: &'a mut OrderTable,
    pub(super) gate: &'a mut RiskGate,
    pub(super) cursor: &'a mut Cursor,
    pub(super) memory: &'a mut [u8],
}

/// An order that may be sent. Its slot is not opened yet, and the gate has not reserved for it.
pub(super) struct Cleared {
    pub(super) slot: usize,
    pub(super) passed: Passed,
    is_short: bool,
}

impl Passage<'_> {
    /// State, risk checks, journal. Not inlined, so that a rehearsal runs the same instructions,
    /// which is what brings them into the cache.
    #[inline(never)]
    pub(super) fn pass(
        self,
        id: u64,
        symbol: Symbol,
        order: &NewOrder,
        market: &Market,
        (now_ns, stamp): (u64, Stamp),
    ) -> Result<Cleared, Refusal> {
        let Self { table, gate, cursor, memory } = self;
        let NewOrder { instrument, side, qty, strategy, instructions, .. } = *order;
        let slot = table.may_open(id, instrument).map_err(Refusal::State)?;
        let is_short = gate.is_short(order);
        let passed = gate.pass_new(slot, order, market, now_ns).map_err(Refusal::Risk)?;
        let price = passed.price();
        let intent = Intent::New { id, symbol, instrument, side, is_short, qty, price, strategy, instructions };
        cursor.append_intent(memory, &intent, stamp).map_err(Refusal::Journal)?;
        Ok(Cleared { slot, passed, is_short })
    }
}

impl<M: JournalMemory> OrderManager<M> {
    /// Checks an order that is about to be sent as the client id `id`, writes it down and opens it.
    /// Returns its slot. If nothing is sent after all, call [`OrderManager::unsent`]; after
    /// [`Refusal::Disk`] no other request may take the id.
    #[inline]
    pub fn new_order(
        &mut self,
        id: u64,
        symbol: Symbol,
        order: &NewOrder,
        market: &Market,
        now_ns: u64,
    ) -> Result<usize, Refusal> {
        self.send_order(id, symbol, order, market, now_ns, || true)
    }

    /// [`OrderManager::new_order`] with the send in its middle: `send` is called when the order has
    /// passed and stands in the journal, and what its answer needs but nobody waits for is written
    /// behind it. Returns its slot.
    ///
    /// # Errors
    ///
    /// As `new_order`; and [`Refusal::Unsent`] where `send` returned false.
    #[inline]
    pub fn send_order(
        &mut self,
        id: u64,
        symbol: Symbol,
        order: &NewOrder,
        market: &Market,
        now_ns: u64,
        send: impl FnOnce() -> bool,
    ) -> Result<usize, Refusal> {
        self.has_window(order.instrument, now_ns)?;
        let (stamp, from) = (self.stamp(now_ns), self.journal.end());
        let Self { table, gate, journal, .. } = self;
        let (cursor, memory) = journal.parts();
        let passed = Passage { table, gate, cursor, memory }.pass(id, symbol, order, market, (now_ns, stamp));
        let cleared = match passed {
            Ok(cleared) => cleared,
            Err(Refusal::Risk(reject)) => return Err(self.refused(order.instrument, reject, now_ns)),
            Err(refusal) => return Err(refusal),
        };
        if self.journal.memory().before_send(from, self.journal.end() - from).is_err() {
            self.take_back_new(id, now_ns);
            return Err(Refusal::Disk);
        }
        let is_sent = send();
        self.open(&cleared, id, order, now_ns);
        if is_sent {
            Ok(cleared.slot)
        } else {
            self.unsent(id, now_ns);
            Err(Refusal::Unsent)
        }
    }

    /// Reserves for an order that may be sent, and opens it.
    #[inline]
    fn open(&mut self, cleared: &Cleared, id: u64, order: &NewOrder, now_ns: u64) {
        let Cleared { slot, passed, is_short } = cleared;
        self.gate.hold(passed, now_ns);
        self.table.open_in(*slot, id, (order.instrument, order.side), (order.qty, passed.price()), now_ns);
        self.table.assign(*slot, order.strategy);
        if *is_short {
            self.table.mark_short(*slot);
        }
        if !order.instructions.is_plain() {
            self.table.instruct(*slot, &order.instructions);
        }
    }

    /// The order with the client id `id` was not sent after all.
    pub fn unsent(&mut self, id: u64, now_ns: u64) {
        let Some(slot) = self.table.find(OrderKey::Client(id)) else { return };
        if self.table.get(slot).is_some_and(|order| order.is_unacknowledged()) {
            self.note(&Entry::Unsent { id }, now_ns);
            self.table.abandon(slot);
            self.gate.ended(slot);
        }
    }

    /// Checks a change of the order in `slot` that is about to be sent as the client id `id`, and
    /// writes it down; `qty` is the intended total with executions. Returns the client id that the
    /// replace must name.
    pub fn replace(
        &mut self,
        slot: usize,
        id: u64,
        (qty, price): (u32, Price),
        (market, route): (&Market, Route),
        now_ns: u64,
    ) -> Result<u64, Refusal> {
        self.table.may_replace(slot, id).map_err(Refusal::State)?;
        let order = self.table.get(slot).ok_or(Refusal::State(RequestError::Ended))?;
        let (instrument, cum, target) = (order.instrument, order.cum(), order.accepted_id());
        let replace = Replace { id, qty, cum, price, is_short: order.is_short(), route };
        self.has_window(instrument, now_ns)?;
        if let Err(reject) = self.gate.check_replace(slot, &replace, market, now_ns) {
            return Err(self.refused(instrument, reject, now_ns));
        }
        if let Err(refusal) = self.intend(&Intent::Replace { target, id, qty, price }, now_ns) {
            self.gate.replace_refused(slot, id);
            return Err(refusal);
        }
        self.table.request_replace(slot, id, (qty, price), now_ns).map_err(|error| {
            self.gate.replace_refused(slot, id);
            Refusal::State(error)
        })
    }

    /// The replace with the client id `id` was not sent after all.
    pub fn replace_unsent(&mut self, id: u64, now_ns: u64) {
        self.apply_noted(OrderKey::Client(id), VenueEvent::ReplaceRefused { id, reason: 0 }, 0, now_ns);
    }

    /// A cancel of what is open of the order in `slot` is about to be sent. Returns the client id
    /// that it must name. A full journal does not stop a cancel.
    pub fn cancel(&mut self, slot: usize, route: Route, now_ns: u64) -> Result<u64, Refusal> {
        let order = self.table.get(slot).ok_or(Refusal::State(RequestError::Ended))?;
        let instrument = order.instrument;
        if let Err(reject) = self.gate.check_cancel(instrument, route, now_ns) {
            return Err(self.refused(instrument, reject, now_ns));
        }
        self.cancel_past_rates(slot, now_ns)
    }

    /// The same past the rates of the gate: for the kill switch, and for a person.
    pub fn cancel_past_rates(&mut self, slot: usize, now_ns: u64) -> Result<u64, Refusal> {
        let target = self.table.request_cancel(slot, now_ns).map_err(Refusal::State)?;
        self.note(&Entry::Intent(Intent::Cancel { target }), now_ns);
        Ok(target)
    }

    /// The same for an order that a cancel of all has not ended: its record leaves the journal's
    /// room for answers, and is left out where there is no more, because it changes no sum.
    pub fn cancel_again(&mut self, slot: usize, now_ns: u64) -> Result<u64, Refusal> {
        let target = self.table.request_cancel(slot, now_ns).map_err(Refusal::State)?;
        let entry = Entry::Intent(Intent::Cancel { target });
        let _ = self.journal.append_request(entry.kind(), self.stamp(now_ns), &entry.encode());
        Ok(target)
    }

    /// The cancel that names the client id `target` was not sent after all.
    pub fn cancel_unsent(&mut self, target: u64, now_ns: u64) {
        self.apply_noted(OrderKey::Client(target), VenueEvent::CancelRefused { reason: 0 }, 0, now_ns);
    }

    /// Whether the venue may get another order or replace before it has answered those before.
    #[inline]
    fn has_window(&mut self, instrument: InstrumentIdx, now_ns: u64) -> Result<(), Refusal> {
        let (allowed, value) = (self.in_flight_max, self.table.unanswered_count() + 1);
        if value <= allowed {
            return Ok(());
        }
        let reject = RiskReject { limit: Limit::InFlight, allowed: allowed as i64, value: value as i64, level: None };
        Err(self.refused(instrument, reject, now_ns))
    }

    /// Writes down what is about to be sent.
    #[inline]
    fn intend(&mut self, intent: &Intent, now_ns: u64) -> Result<(), Refusal> {
        let (stamp, from) = (self.stamp(now_ns), self.journal.end());
        self.journal.append_intent(intent, stamp).map_err(Refusal::Journal)?;
        if self.journal.memory().before_send(from, self.journal.end() - from).is_err() {
            self.take_back(intent, now_ns);
            return Err(Refusal::Disk);
        }
        Ok(())
    }

    /// The disk has failed: neither the intent is sent nor any other one. The journal has its
    /// client id, so that no other request may take it.
    #[cold]
    fn take_back(&mut self, intent: &Intent, now_ns: u64) {
        match *intent {
            Intent::New { id, .. } => return self.take_back_new(id, now_ns),
            Intent::Replace { target, id, .. } => {
                let event = VenueEvent::ReplaceRefused { id, reason: 0 };
                self.note(&Entry::Answer { number: 0, key: OrderKey::Client(target), event }, now_ns);
            }
            Intent::Cancel { .. } => return,
        }
        self.disk_failed(now_ns);
    }

    /// The same of a new order.
    #[cold]
    fn take_back_new(&mut self, id: u64, now_ns: u64) {
        self.note(&Entry::Unsent { id }, now_ns);
        self.disk_failed(now_ns);
    }

    /// Writes down why a request was refused. A strategy that repeats itself must not take the room
    /// of what may not be lost: a refusal leaves that for answers, and is written once where
    /// nothing else was written in between.
    #[cold]
    fn refused(&mut self, instrument: InstrumentIdx, reject: RiskReject, now_ns: u64) -> Refusal {
        let entry = Entry::Refused { instrument, reject };
        let (stamp, is_again) = (self.stamp(now_ns), self.last_refused == Some((self.journal.end(), entry)));
        if is_again || self.journal.append_request(entry.kind(), stamp, &entry.encode()).is_err() {
            self.unwritten_refusals += 1;
        } else {
            self.last_refused = Some((self.journal.end(), entry));
        }
        Refusal::Risk(reject)
    }
}
