//! What each event does to its order. Every race of two messages is decided here.

use market::Price;

use super::event::{Alarm, Effect, Outcome, VenueEvent};
use super::executions::Worth;
use super::id_map::ExecId;
use super::order::{End, Life, Order};
use super::table::{OrderKey, OrderTable};

impl OrderTable {
    /// Applies what the venue said about the order that `key` names. The outcome says what changed;
    /// [`RiskGate::follow`](crate::risk::RiskGate::follow) takes it. Costs two probes of a hash
    /// table at most.
    pub fn apply(&mut self, key: OrderKey, event: &VenueEvent) -> Outcome {
        let Some(slot) = self.find(key) else {
            return Outcome { alarm: Some(Alarm::UnknownOrder), ..Outcome::default() };
        };
        let Order { instrument, side, strategy, .. } = self.orders[slot];
        let (was_live, unanswered) = (self.orders[slot].is_live(), self.orders[slot].unanswered_count());
        let mut outcome = Outcome { slot: Some(slot), instrument, side, strategy, was_live, ..Outcome::default() };
        match *event {
            VenueEvent::Accepted { venue_id } => self.accept(slot, venue_id, &mut outcome),
            VenueEvent::Rejected { .. } => self.reject(slot, &mut outcome),
            VenueEvent::Filled { exec, qty, price } => self.fill(slot, key, (exec, qty, price), &mut outcome),
            VenueEvent::Reduced { by, .. } => self.reduce(slot, by, &mut outcome),
            VenueEvent::Canceled { .. } => self.cancel(slot, &mut outcome),
            VenueEvent::CancelRefused { .. } => self.refuse_cancel(slot, &mut outcome),
            VenueEvent::Replaced { id, venue_id } => self.replace(slot, id, venue_id, &mut outcome),
            VenueEvent::ReplaceRefused { id, .. } => self.refuse_replace(slot, id, &mut outcome),
            VenueEvent::Restated { qty, price, .. } => self.restate(slot, qty, price, &mut outcome),
            VenueEvent::Busted { exec } => self.bust(slot, exec, &mut outcome),
            VenueEvent::Corrected { exec, new_exec, qty, price } => {
                self.correct(slot, (exec, new_exec), (qty, price), &mut outcome);
            }
            VenueEvent::Status(status) => self.reconcile(slot, &status, &mut outcome),
        }
        self.count_unanswered(slot, unanswered);
        let order = &mut self.orders[slot];
        // The last answer ends a doubt of silence. One of a restart ends with the venue's account.
        if order.queried_ns != 0 && !order.is_unconfirmed && order.unanswered_since_ns().is_none() {
            order.queried_ns = 0;
            order.is_in_doubt = false;
        }
        outcome
    }

    /// An acknowledgment that comes after a fill or after the end only adds the venue's id. One of
    /// an order that was taken for one that never lived shows that it does.
    fn accept(&mut self, slot: usize, venue_id: u64, outcome: &mut Outcome) {
        self.learn_venue_id(slot, venue_id);
        let order = &mut self.orders[slot];
        match order.life {
            Life::Sent => {
                order.life = Life::Live;
                outcome.effect = Effect::Accepted;
            }
            Life::Ended(End::Rejected | End::Unsent) if order.cum == 0 => {
                outcome.alarm = Some(Alarm::Revived);
                outcome.effect = self.revive(slot);
            }
            _ => outcome.is_duplicate = true,
        }
    }

    fn reject(&mut self, slot: usize, outcome: &mut Outcome) {
        match self.orders[slot].life {
            Life::Sent => self.end_with(slot, End::Rejected, outcome),
            Life::Live => {
                outcome.alarm = Some(Alarm::RejectOfLive);
                self.end_with(slot, End::Rejected, outcome);
            }
            Life::Free | Life::Ended(_) => outcome.is_duplicate = true,
        }
    }

    /// A fill counts against the total whichever id of the chain it names, and after any end.
    fn fill(&mut self, slot: usize, key: OrderKey, fill: (ExecId, u32, Price), outcome: &mut Outcome) {
        let (exec, qty, price) = fill;
        if self.executions.is_known(self.orders[slot].serial, exec) {
            outcome.is_duplicate = true;
            return;
        }
        self.executions.insert(self.orders[slot].serial, exec, (qty, price));
        outcome.effect = Effect::Traded { qty, price };
        let order = &mut self.orders[slot];
        order.cum = order.cum.saturating_add(qty);
        if !order.is_live() {
            outcome.alarm = Some(Alarm::FillAfterEnd);
            return;
        }
        order.life = Life::Live;
        if let OrderKey::Client(id) = key {
            self.take_replace(slot, id, outcome);
        }
        if let Some(id) = accepted_by_fill(&self.orders[slot]) {
            self.take_replace(slot, id, outcome);
        }
        let order = &self.orders[slot];
        if order.cum > order.qty {
            outcome.alarm = Some(Alarm::Overfill);
        }
        self.end_if_filled(slot, outcome);
    }

    fn reduce(&mut self, slot: usize, by: u32, outcome: &mut Outcome) {
        let order = &mut self.orders[slot];
        if !order.is_live() {
            outcome.is_duplicate = true;
            return;
        }
        order.life = Life::Live;
        // A cancel in part is answered so.
        order.cancel_sent_ns = None;
        order.qty -= by.min(order.leaves());
        let (leaves, price) = (order.leaves(), order.price);
        outcome.effect = Effect::Restated { leaves, price };
        if leaves == 0 && by > 0 {
            self.end_with(slot, End::Canceled, outcome);
        }
    }

    fn cancel(&mut self, slot: usize, outcome: &mut Outcome) {
        if self.orders[slot].is_live() {
            self.end_with(slot, End::Canceled, outcome);
        } else {
            outcome.is_duplicate = true;
        }
    }

    fn refuse_cancel(&mut self, slot: usize, outcome: &mut Outcome) {
        outcome.is_duplicate = self.orders[slot].cancel_sent_ns.take().is_none();
    }

    fn replace(&mut self, slot: usize, id: u64, venue_id: u64, outcome: &mut Outcome) {
        self.learn_venue_id(slot, venue_id);
        let order = &self.orders[slot];
        if order.pending.iter().all(|pending| pending.id != id) {
            // A fill of its id accepted it before, or a later one did.
            outcome.is_duplicate = true;
            return;
        }
        let is_live = order.is_live();
        self.take_replace(slot, id, outcome);
        let order = &self.orders[slot];
        // After a revival the gate does not know the replace, so it is given the terms as well.
        outcome.effect = Effect::Restated { leaves: order.leaves(), price: order.price };
        if is_live {
            self.end_if_filled(slot, outcome);
        } else if order.qty > order.cum {
            // The order ended here, and lives there: no silence makes it dead.
            outcome.replaced = None;
            outcome.alarm = Some(Alarm::Revived);
            outcome.effect = self.revive(slot);
        }
    }

    fn refuse_replace(&mut self, slot: usize, id: u64, outcome: &mut Outcome) {
        let order = &mut self.orders[slot];
        let Some(place) = order.pending.iter().position(|pending| pending.id == id) else {
            outcome.is_duplicate = true;
            return;
        };
        order.pending.remove(place);
        outcome.effect = Effect::ReplaceRefused { id };
        if self.orders[slot].life == Life::Live {
            self.end_if_filled(slot, outcome);
        }
    }

    fn restate(&mut self, slot: usize, qty: u32, price: Price, outcome: &mut Outcome) {
        let order = &mut self.orders[slot];
        if !order.is_live() {
            outcome.is_duplicate = true;
            return;
        }
        order.life = Life::Live;
        (order.qty, order.price) = (qty, order.worst_price(price));
        outcome.effect = Effect::Restated { leaves: order.leaves(), price: order.price };
        self.end_if_filled(slot, outcome);
    }

    fn bust(&mut self, slot: usize, exec: ExecId, outcome: &mut Outcome) {
        let serial = self.orders[slot].serial;
        let Some(worth) = self.executions.find(serial, exec) else { return self.unknown_execution(slot, outcome) };
        let Worth::Counts(qty, price) = worth else {
            outcome.is_duplicate = true;
            return;
        };
        self.executions.set(serial, exec, Worth::Busted(qty, price));
        let order = &mut self.orders[slot];
        order.busted = order.busted.saturating_add(qty);
        outcome.effect = Effect::Reversed { qty, price };
    }

    fn correct(&mut self, slot: usize, (exec, new_exec): (ExecId, ExecId), new: (u32, Price), outcome: &mut Outcome) {
        let serial = self.orders[slot].serial;
        let Some(worth) = self.executions.find(serial, exec) else { return self.unknown_execution(slot, outcome) };
        let is_repeated = new_exec != exec && self.executions.is_known(serial, new_exec);
        let old = match worth {
            Worth::Counts(qty, price) if !is_repeated => (qty, price),
            _ => {
                outcome.is_duplicate = true;
                return;
            }
        };
        self.executions.correct(serial, (exec, new_exec), new);
        if old == new {
            // The same terms again, perhaps under another id.
            outcome.is_duplicate = true;
            return;
        }
        let order = &mut self.orders[slot];
        order.cum = order.cum.saturating_add(new.0.saturating_sub(old.0));
        order.busted = order.busted.saturating_add(old.0.saturating_sub(new.0));
        outcome.effect = Effect::Corrected { old, new };
        if self.orders[slot].life == Life::Live {
            self.end_if_filled(slot, outcome);
        }
    }

    /// What counts no more, or counts otherwise, is booked here or was never known: either way no
    /// sum of the instrument is right.
    fn unknown_execution(&mut self, slot: usize, outcome: &mut Outcome) {
        outcome.alarm = Some(Alarm::UnknownExecution);
        self.block(self.orders[slot].instrument);
    }

    /// Makes the terms of the replace `id` the order's, if it is unanswered. Those before it are
    /// void.
    fn take_replace(&mut self, slot: usize, id: u64, outcome: &mut Outcome) {
        let order = &mut self.orders[slot];
        let Some(place) = order.pending.iter().position(|pending| pending.id == id) else { return };
        let terms = order.pending[place];
        order.pending.drain(..=place);
        (order.qty, order.price, order.accepted) = (terms.qty, terms.price, terms.id);
        if order.life == Life::Sent {
            order.life = Life::Live;
        }
        outcome.replaced = Some(id);
    }

    /// Ends an order without open shares, unless a replace that gives it some may be accepted.
    fn end_if_filled(&mut self, slot: usize, outcome: &mut Outcome) {
        let order = &mut self.orders[slot];
        if order.cum < order.qty {
            return;
        }
        if !self.rules.full_fill_voids_replaces && order.pending.iter().any(|to| to.qty > order.cum) {
            order.qty = order.cum;
        } else {
            self.end_with(slot, End::Filled, outcome);
        }
    }

    pub(super) fn end_with(&mut self, slot: usize, end: End, outcome: &mut Outcome) {
        self.end(slot, end);
        outcome.ended = Some(end);
    }
}

/// The replace that a fill shows to be accepted, although it does not name it: the first whose
/// total covers what has traded, where the total in force does not.
fn accepted_by_fill(order: &Order) -> Option<u64> {
    if order.cum <= order.qty {
        return None;
    }
    order.pending.iter().find(|pending| pending.qty >= order.cum).map(|pending| pending.id)
}
