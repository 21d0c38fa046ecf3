//! Answers: order states, journal and risk sums, in that order.

use arrayvec::ArrayVec;

use super::OrderManager;
use crate::journal::{Entry, JournalMemory, SessionMark};
use crate::orders::{
    Alarm, Effect, End, Order, OrderEvent, OrderKey, State, StatedTerms, VenueEvent, VenueMessage, VenueStatus,
};

/// Bytes of a message that cannot be read which the journal gets.
const UNREAD_MAX: usize = 16 * 1_024;

/// What one message did: at most an answer, its terms and its end.
pub type OrderEvents = ArrayVec<OrderEvent, 3>;

impl<M: JournalMemory> OrderManager<M> {
    /// Takes a message of the venue, whose number in the session is `number`.
    pub fn take(&mut self, number: u64, message: &VenueMessage, now_ns: u64) -> OrderEvents {
        match *message {
            VenueMessage::Answer { key, event, terms, is_dead } => {
                self.answer(number, key, event, (terms, is_dead), now_ns)
            }
            VenueMessage::Refused { id, reason } => {
                let event = self.refusal_of(id, reason);
                self.answer(number, OrderKey::Client(id), event, (StatedTerms::None, false), now_ns)
            }
            VenueMessage::Settled { next_id, is_final } => {
                // A restart must not take this answer for that to its own query.
                self.note(&Entry::Received { number }, now_ns);
                self.settle(next_id, is_final, now_ns);
                OrderEvents::new()
            }
            VenueMessage::NotProcessed { from } => {
                self.not_processed(from, now_ns);
                OrderEvents::new()
            }
            VenueMessage::AnsweredBelow { below, asked_ns } => {
                self.note(&Entry::Received { number }, now_ns);
                self.answered_below(below, asked_ns, now_ns);
                OrderEvents::new()
            }
            VenueMessage::Unknown { key } => self.unknown(number, key, now_ns),
            VenueMessage::MassCanceled { .. } | VenueMessage::Other => {
                self.note(&Entry::Received { number }, now_ns);
                OrderEvents::new()
            }
        }
    }

    /// The session was accepted, and stands where `mark` says. With `is_gap` messages were lost at
    /// the venue or are no longer there: the gate is disarmed, because a person must compare.
    pub fn logged_in(&mut self, mark: &SessionMark, is_gap: bool, now_ns: u64) {
        if is_gap {
            self.gap(now_ns);
        }
        self.mark(mark, now_ns);
    }

    /// One side does not know what the other has: the gate is disarmed, because a person must
    /// compare, and each live order is in doubt until the venue has told its status. Written down,
    /// so that a restart does not end the doubt.
    pub fn gap(&mut self, now_ns: u64) {
        self.alarms += 1;
        self.table.gap();
        self.note(&Entry::Gap, now_ns);
        self.disarm(now_ns);
    }

    /// The session passed over its message `number`, which cannot be read: what it said of an order
    /// is lost here. The journal gets its `bytes`, because a person must read them; a
    /// [`gap`](OrderManager::gap) it is besides.
    pub fn unread(&mut self, number: u64, bytes: &[u8], now_ns: u64) {
        let entry = Entry::Unread { number };
        let payload = [&entry.encode(), &bytes[..bytes.len().min(UNREAD_MAX)]].concat();
        self.note_bytes(entry.kind(), &payload, now_ns);
        self.gap(now_ns);
    }

    /// Writes down where the session stands: behind requests that are no orders, and take numbers.
    /// It is on the disk as an order would be, so that no number is used twice. Where the disk
    /// fails, the request goes all the same, since it cancels: the gate is disarmed, because a
    /// person must compare.
    pub fn mark(&mut self, mark: &SessionMark, now_ns: u64) {
        let from = self.journal.end();
        self.note(&Entry::Session(*mark), now_ns);
        if self.journal.memory().before_send(from, self.journal.end() - from).is_err() {
            self.alarms += 1;
            self.disk_failed(now_ns);
        }
    }

    /// The same behind cancels of all orders, which wait for no disk: one that hangs when the kill
    /// switch is thrown would keep them back. A sync is due behind them
    /// ([`OrderManager::is_sync_due`]). A power cut before that loses numbers that the venue has
    /// seen: a gap, for a person to compare.
    pub fn mark_cancels(&mut self, mark: &SessionMark, now_ns: u64) {
        self.note(&Entry::Session(*mark), now_ns);
        self.is_sync_due = true;
    }

    /// The connection is gone. Orders live on at the venue unless it cancels them, and are in doubt
    /// until it has answered.
    pub fn disconnected(&mut self) {
        self.table.restart();
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
    ) -> OrderEvents {
        let mut events = OrderEvents::new();
        if self.is_stale_status(key, &event) {
            self.note(&Entry::Received { number }, now_ns);
            return events;
        }
        let mut applied = self.apply(key, event, now_ns);
        if terms == StatedTerms::Rounded {
            self.alarm_of_rounded(&mut applied);
        }
        events.push(applied);
        let restated = self.restatement(key, terms);
        let is_last = restated.is_none() && !is_dead;
        self.note(&Entry::Answer { number: if is_last { number } else { 0 }, key, event }, now_ns);
        if let Some(event) = restated {
            events.push(self.apply_noted(key, event, if is_dead { 0 } else { number }, now_ns));
        }
        if is_dead {
            events.push(self.apply_noted(key, VenueEvent::Canceled { reason: 0 }, number, now_ns));
        }
        if is_of_the_unknown(&applied) && self.gate.is_armed() {
            // What nobody knows trades past every limit: a person must compare.
            self.disarm(now_ns);
        }
        events
    }

    /// An execution was booked at another price than the venue's.
    #[cold]
    fn alarm_of_rounded(&mut self, applied: &mut OrderEvent) {
        let outcome = &mut applied.outcome;
        let is_booked = matches!(outcome.effect, Effect::Traded { .. } | Effect::Corrected { .. });
        if is_booked && outcome.alarm.is_none() {
            outcome.alarm = Some(Alarm::RoundedPrice);
            self.alarms += 1;
            self.last_alarm = outcome.alarm;
        }
    }

    /// A status of terms that a replace has ended since says nothing of those in force.
    fn is_stale_status(&self, key: OrderKey, event: &VenueEvent) -> bool {
        let (VenueEvent::Status(_), OrderKey::Client(id)) = (event, key) else { return false };
        let order = self.table.find(key).and_then(|slot| self.table.get(slot));
        order.is_some_and(|order| order.accepted_id() != id)
    }

    /// The venue does not know an order. One that was sent on this connection may still be on its
    /// way within the venue: it stays in doubt, and is asked about again. One of before that has no
    /// answer will have none.
    fn unknown(&mut self, number: u64, key: OrderKey, now_ns: u64) -> OrderEvents {
        let order = self.table.find(key).and_then(|slot| self.table.get(slot));
        if order.is_some_and(|order| order.is_live() && order.is_unacknowledged() && !order.is_settled()) {
            self.alarms += 1;
            self.note(&Entry::Received { number }, now_ns);
            return OrderEvents::new();
        }
        let event = VenueEvent::Status(VenueStatus { is_live: false, cum: 0, leaves: 0 });
        self.answer(number, key, event, (StatedTerms::None, false), now_ns)
    }

    /// Writes an event down and applies it.
    pub(super) fn apply_noted(&mut self, key: OrderKey, event: VenueEvent, number: u64, now_ns: u64) -> OrderEvent {
        self.note(&Entry::Answer { number, key, event }, now_ns);
        self.apply(key, event, now_ns)
    }

    /// Applies an event, and has the gate follow. An order that lives without a reservation stops
    /// orders: a person must compare.
    fn apply(&mut self, key: OrderKey, event: VenueEvent, now_ns: u64) -> OrderEvent {
        self.answers += 1;
        let outcome = self.table.apply(key, &event);
        if !self.gate.follow(&outcome, &self.table) {
            self.table.block(outcome.instrument);
            self.disarm(now_ns);
        }
        let (totals, side, multiplier) = (&mut self.trades, outcome.side, self.gate.multiplier(outcome.instrument));
        match outcome.effect {
            Effect::Traded { qty, price } => totals.add_for(side, qty, multiplier.money(qty, price)),
            Effect::Reversed { qty, price } => totals.reverse_for(side, qty, multiplier.money(qty, price)),
            Effect::Corrected { old, new } => {
                totals.reverse_for(side, old.0, multiplier.money(old.0, old.1));
                totals.add_for(side, new.0, multiplier.money(new.0, new.1));
            }
            _ => (),
        }
        if outcome.alarm.is_some() {
            self.alarms += 1;
            self.last_alarm = outcome.alarm;
        }
        let id = match key {
            OrderKey::Client(id) => id,
            OrderKey::Venue(_) => {
                outcome.slot.and_then(|slot| self.table.get(slot)).map_or(0, |order| order.accepted_id())
            }
        };
        OrderEvent { id, event, outcome }
    }

    /// The restatement in `terms`, where they are not the order's already.
    fn restatement(&self, key: OrderKey, terms: StatedTerms) -> Option<VenueEvent> {
        let order = self.table.get(self.table.find(key)?).filter(|order| order.is_live())?;
        let (qty, price) = match terms {
            StatedTerms::None | StatedTerms::Rounded => return None,
            StatedTerms::Total(qty, price) => (qty, price),
            StatedTerms::Open(open, price) => (order.cum().saturating_add(open), price.unwrap_or(order.price())),
            StatedTerms::Price(price) => (order.qty(), price),
        };
        let price = order.worst_price(price);
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
    /// processed and not answered stays in doubt, unless no answer will come. Silence about an
    /// order behind a gap says nothing: its answer may be what was lost.
    fn settle(&mut self, next_id: u64, is_final: bool, now_ns: u64) {
        for slot in 0..self.table.used() {
            let Some(order) = self.table.get(slot).filter(|order| order.is_live()) else { continue };
            let (id, is_unacknowledged) = (order.accepted_id(), order.is_unacknowledged());
            let is_known = next_id > 1 || !order.is_unconfirmed();
            let is_lost = |id: &u64, is_final: bool| is_known && (is_final || *id >= next_id);
            let pending = order.pending_replaces().iter().map(|replace| replace.id);
            let lost: ArrayVec<u64, 8> = pending.filter(|id| is_lost(id, is_final)).collect();
            let (key, is_cancel_pending) = (OrderKey::Client(id), order.is_cancel_pending());
            if is_unacknowledged && is_lost(&id, false) {
                self.unsent(id, now_ns);
                continue;
            }
            self.table.settled(slot);
            for id in lost {
                self.replace_unsent(id, now_ns);
            }
            if is_cancel_pending {
                // It may be sent again, whether or not it arrived.
                self.apply_noted(key, VenueEvent::CancelRefused { reason: 0 }, 0, now_ns);
            }
            self.confirm(slot, now_ns);
        }
    }

    /// The venue is told to pass over the ids from `from` on. Where it has answered one of them
    /// before, it has lost its record of the session: nothing is known of any of them, so a person
    /// must compare.
    fn not_processed(&mut self, from: u64, now_ns: u64) {
        let is_answered = |order: &Order| {
            let is_unsent = matches!(order.state(), None | Some(State::Ended(End::Unsent)));
            order.accepted_id() >= from && !order.is_unacknowledged() && !is_unsent
        };
        if (0..self.table.used()).filter_map(|slot| self.table.get(slot)).any(is_answered) {
            self.alarms += 1;
            self.disarm(now_ns);
            return;
        }
        for slot in 0..self.table.used() {
            let Some(order) = self.table.get(slot).filter(|order| order.is_live()) else { continue };
            let pending = order.pending_replaces().iter().map(|replace| replace.id);
            let lost: ArrayVec<u64, 8> = pending.filter(|id| *id >= from).collect();
            if order.is_unacknowledged() && order.accepted_id() >= from {
                self.unsent(order.accepted_id(), now_ns);
                continue;
            }
            for id in lost {
                self.replace_unsent(id, now_ns);
            }
        }
    }

    /// The answers to all ids below, and to all cancels before `asked_ns`, came before: one without
    /// an answer named an order that was another one by then, and was ignored in silence. An order
    /// without one is for a person.
    fn answered_below(&mut self, below: u64, asked_ns: u64, now_ns: u64) {
        for slot in 0..self.table.used() {
            let Some(order) = self.table.get(slot).filter(|order| order.is_live()) else { continue };
            let is_lost = order.is_unacknowledged() && order.accepted_id() < below;
            let pending = order.pending_replaces().iter().map(|replace| replace.id);
            let ignored: ArrayVec<u64, 8> = pending.filter(|id| *id < below).collect();
            let key = OrderKey::Client(order.accepted_id());
            let is_cancel_ignored = order.cancel_sent_ns().is_some_and(|sent_ns| sent_ns < asked_ns);
            self.alarms += u64::from(is_lost);
            for id in ignored {
                self.replace_unsent(id, now_ns);
            }
            if is_cancel_ignored && !is_lost {
                self.apply_noted(key, VenueEvent::CancelRefused { reason: 0 }, 0, now_ns);
            }
        }
    }

    /// Ends the doubt about an order whose every request is answered.
    fn confirm(&mut self, slot: usize, now_ns: u64) {
        let Some(order) = self.table.get(slot).filter(|order| order.is_live()) else { return };
        let is_unanswered = order.is_unacknowledged() || !order.pending_replaces().is_empty();
        if is_unanswered || order.is_unconfirmed() {
            return;
        }
        let status = VenueStatus { is_live: true, cum: order.cum(), leaves: order.leaves() };
        self.apply_noted(OrderKey::Client(order.accepted_id()), VenueEvent::Status(status), 0, now_ns);
    }
}

/// Whether an order that nobody knows lives or has other shares, or shares that nobody knows count
/// no more.
fn is_of_the_unknown(applied: &OrderEvent) -> bool {
    let is_about_shares = || {
        matches!(
            applied.event,
            VenueEvent::Accepted { .. }
                | VenueEvent::Filled { .. }
                | VenueEvent::Busted { .. }
                | VenueEvent::Corrected { .. }
        )
    };
    match applied.outcome.alarm {
        Some(Alarm::UnknownOrder) => is_about_shares(),
        Some(Alarm::UnknownExecution) => true,
        _ => false,
    }
}
