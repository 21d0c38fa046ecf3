//! Answers: journal, order states, risk sums, and then the strategy.

use arrayvec::ArrayVec;
use order_entry::journal::{Entry, SessionMark};
use order_entry::orders::{Effect, OrderKey, Outcome, StatedTerms, VenueEvent, VenueStatus};

use super::Core;
use crate::JournalMemory;
use crate::drop_copy::Trade;
use crate::session::{Session, SessionError, SessionEvent};
use crate::strategy::OrderEvent;

/// What a strategy is told of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a box would allocate with each answer")]
pub(crate) enum Told {
    /// Events of one order, in order: at most an answer, its terms and its end.
    Order(ArrayVec<OrderEvent, 3>),
    /// The session takes orders from now on.
    Open,
    /// Nothing.
    Nothing,
}

impl<S: Session, M: JournalMemory> Core<S, M> {
    /// A connection was made.
    pub fn connected(&mut self, now_ns: u64) -> Result<(), SessionError> {
        self.out_len = 0;
        self.write(|session, output| session.connected(now_ns, output))
    }

    /// The connection is gone. Orders live on at the venue, unless it cancels them.
    pub fn disconnected(&mut self) {
        self.out_len = 0;
        self.session.disconnected();
        self.table.restart();
    }

    /// Heartbeats and timeouts of the session.
    pub fn tick_session(&mut self, now_ns: u64) -> Result<(), SessionError> {
        self.write(|session, output| session.tick(now_ns, output))
    }

    /// Takes one message from the front of `input`; `None` where it is used up.
    pub(crate) fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<Told>, SessionError> {
        let Some(event) = self.write(|session, output| session.receive(now_ns, input, output))? else {
            return Ok(None);
        };
        Ok(Some(match event {
            SessionEvent::LoggedIn { session, next_inbound, is_gap } => {
                if is_gap {
                    self.counts.alarms += 1;
                    self.disarm(now_ns);
                }
                let next_id = self.session.next_id();
                self.note(&Entry::Session(SessionMark { session, next_inbound, next_id }), now_ns);
                Told::Nothing
            }
            SessionEvent::Recovered { number, next_id, is_final } => {
                // A restart must not take this answer for that to its own query.
                self.mark(number, now_ns);
                self.settle(next_id, is_final, now_ns);
                Told::Open
            }
            SessionEvent::AnsweredBelow { number, below } => {
                self.mark(number, now_ns);
                self.answered_below(below, now_ns);
                Told::Nothing
            }
            SessionEvent::Answer { number, key, event, terms, is_dead } => {
                Told::Order(self.answer(number, key, event, (terms, is_dead), now_ns))
            }
            SessionEvent::RequestRefused { number, id, reason } => {
                let event = self.refusal_of(id, reason);
                Told::Order(self.answer(number, OrderKey::Client(id), event, (StatedTerms::None, false), now_ns))
            }
            SessionEvent::Other { number } => {
                self.mark(number, now_ns);
                Told::Nothing
            }
            SessionEvent::Ended => Told::Nothing,
        }))
    }

    /// An answer, then what its message stated besides. The message's number stands in the last
    /// record, so that after a crash between them the venue repeats the message.
    fn answer(
        &mut self,
        number: u64,
        key: OrderKey,
        event: VenueEvent,
        (terms, is_dead): (StatedTerms, bool),
        now_ns: u64,
    ) -> ArrayVec<OrderEvent, 3> {
        let mut told = ArrayVec::new();
        let first = self.apply(key, event, now_ns);
        let restated = self.restatement(key, terms);
        let is_last = restated.is_none() && !is_dead;
        self.note(&Entry::Answer { number: if is_last { number } else { 0 }, key, event }, now_ns);
        told.extend([first]);
        if let Some(event) = restated {
            told.extend([self.apply_noted(key, event, if is_dead { 0 } else { number }, now_ns)]);
        }
        if is_dead {
            told.extend([self.apply_noted(key, VenueEvent::Canceled { reason: 0 }, number, now_ns)]);
        }
        told
    }

    /// Writes an event down, applies it, and has the gate follow.
    pub(super) fn apply_noted(&mut self, key: OrderKey, event: VenueEvent, number: u64, now_ns: u64) -> OrderEvent {
        self.note(&Entry::Answer { number, key, event }, now_ns);
        self.apply(key, event, now_ns)
    }

    /// Applies an event, and has the gate follow.
    fn apply(&mut self, key: OrderKey, event: VenueEvent, now_ns: u64) -> OrderEvent {
        self.counts.answers += 1;
        let outcome = self.table.apply(key, &event);
        self.gate.follow(&outcome);
        self.count(&outcome);
        let id = match key {
            OrderKey::Client(id) => id,
            OrderKey::Venue(_) => {
                outcome.slot.and_then(|slot| self.table.get(slot)).map_or(0, |order| order.accepted_id())
            }
        };
        self.book(id, &event, &outcome, now_ns);
        OrderEvent { id, instrument: outcome.instrument, side: outcome.side, event, outcome }
    }

    /// Has a trade or its bust compared with the drop copy's.
    fn book(&mut self, id: u64, event: &VenueEvent, outcome: &Outcome, now_ns: u64) {
        let Some(reconciler) = &mut self.reconciler else { return };
        let trade = match (*event, outcome.effect) {
            (VenueEvent::Filled { exec, qty, price }, Effect::Traded { .. }) => {
                Trade { id, exec, terms: Some((qty, price)) }
            }
            (VenueEvent::Busted { exec }, Effect::Reversed { .. }) => Trade { id, exec, terms: None },
            _ => return,
        };
        reconciler.ours(trade, now_ns);
    }

    fn count(&mut self, outcome: &Outcome) {
        let (totals, side) = (&mut self.counts.trades, outcome.side);
        match outcome.effect {
            Effect::Traded { qty, price } => totals.add(side, qty, price),
            Effect::Reversed { qty, price } => totals.reverse(side, qty, price),
            Effect::Corrected { old, new } => {
                totals.reverse(side, old.0, old.1);
                totals.add(side, new.0, new.1);
            }
            _ => (),
        }
        if outcome.alarm.is_some() {
            self.counts.alarms += 1;
            self.last_alarm = outcome.alarm;
        }
    }

    /// The restatement in `terms`, where they are not the order's already.
    fn restatement(&self, key: OrderKey, terms: StatedTerms) -> Option<VenueEvent> {
        let order = self.table.get(self.table.find(key)?).filter(|order| order.is_live())?;
        let (qty, price) = match terms {
            StatedTerms::None => return None,
            StatedTerms::Total(qty, price) => (qty, price),
            StatedTerms::Open(open, price) => (order.cum().saturating_add(open), price.unwrap_or(order.price())),
            StatedTerms::Price(price) => (order.qty(), price),
        };
        let is_other = (qty, price) != (order.qty(), order.price());
        is_other.then_some(VenueEvent::Restated { qty, price, reason: 0 })
    }

    /// A refused request is a replace where one of this id is unanswered.
    fn refusal_of(&self, id: u64, reason: u16) -> VenueEvent {
        let order = self.table.find(OrderKey::Client(id)).and_then(|slot| self.table.get(slot));
        let is_replace = order.is_some_and(|order| order.pending_replaces().iter().any(|replace| replace.id == id));
        if is_replace { VenueEvent::ReplaceRefused { id, reason } } else { VenueEvent::Rejected { reason } }
    }

    /// The venue has not processed ids from `next_id` on, and never will, because the connection
    /// that carried them is gone. They are not sent again: their market is gone too. What it has
    /// processed and not answered stays in doubt, unless no answer will come.
    fn settle(&mut self, next_id: u64, is_final: bool, now_ns: u64) {
        for slot in 0..self.table.used() {
            let Some(order) = self.table.get(slot).filter(|order| order.is_live()) else { continue };
            let (id, is_sent) = (order.accepted_id(), order.is_unacknowledged());
            let pending = order.pending_replaces().iter().map(|replace| replace.id);
            let lost: ArrayVec<u64, 8> = pending.filter(|id| is_final || *id >= next_id).collect();
            let (key, cancel_is_pending) = (OrderKey::Client(id), order.is_cancel_pending());
            if is_sent && id >= next_id {
                self.note(&Entry::Unsent { id }, now_ns);
                self.table.abandon(slot);
                self.gate.ended(slot);
                continue;
            }
            for id in lost {
                self.apply_noted(key, VenueEvent::ReplaceRefused { id, reason: 0 }, 0, now_ns);
            }
            if cancel_is_pending {
                // It may be sent again, whether or not it arrived.
                self.apply_noted(key, VenueEvent::CancelRefused { reason: 0 }, 0, now_ns);
            }
            self.confirm(slot, now_ns);
        }
    }

    /// The answers to all ids below came before: a replace without one was ignored in silence,
    /// because its order was another one by then. An order without one is for a person.
    fn answered_below(&mut self, below: u64, now_ns: u64) {
        for slot in 0..self.table.used() {
            let Some(order) = self.table.get(slot).filter(|order| order.is_live()) else { continue };
            let (id, is_lost) = (order.accepted_id(), order.is_unacknowledged() && order.accepted_id() < below);
            let pending = order.pending_replaces().iter().map(|replace| replace.id);
            let ignored: ArrayVec<u64, 8> = pending.filter(|id| *id < below).collect();
            self.counts.alarms += u64::from(is_lost);
            for ignored in ignored {
                self.apply_noted(
                    OrderKey::Client(id),
                    VenueEvent::ReplaceRefused { id: ignored, reason: 0 },
                    0,
                    now_ns,
                );
            }
        }
    }

    /// Asks about one request whose answer is overdue. Call it in each turn: a look at 8 orders.
    pub(super) fn poll_unanswered(&mut self, now_ns: u64) {
        if !self.session.is_open() {
            return;
        }
        let Some(query) = self.table.poll_unanswered(now_ns, self.answer_timeout_ns) else { return };
        match self.write(|session, output| session.ask_status(now_ns, &query, output)) {
            Ok(true) => self.counts.queries += 1,
            // No question, or no room for it: a person sees the order in doubt.
            Ok(false) | Err(_) => self.counts.alarms += 1,
        }
    }

    /// Ends the doubt about an order whose every request is answered.
    fn confirm(&mut self, slot: usize, now_ns: u64) {
        let Some(order) = self.table.get(slot).filter(|order| order.is_live()) else { return };
        if order.is_unacknowledged() || !order.pending_replaces().is_empty() {
            return;
        }
        let status = VenueStatus { is_live: true, cum: order.cum(), leaves: order.leaves() };
        self.apply_noted(OrderKey::Client(order.accepted_id()), VenueEvent::Status(status), 0, now_ns);
    }

    /// The session's message `number` was processed, and said nothing new.
    fn mark(&mut self, number: u64, now_ns: u64) {
        self.note(&Entry::Received { number }, now_ns);
    }
}
