//! The venue's own account of an order, after a silence or a restart.

use super::event::{Alarm, Effect, Outcome, VenueStatus};
use super::order::{End, Life};
use super::table::OrderTable;

impl OrderTable {
    /// Takes the venue's account. Executions that one side lacks, or a live order that we had
    /// ended, block the instrument: no sum of ours is right then. An order that the venue has ended
    /// with the executions that we know is ordinary: it was canceled while nobody listened.
    pub(super) fn reconcile(&mut self, slot: usize, status: &VenueStatus, outcome: &mut Outcome) {
        let order = &mut self.orders[slot];
        let was_unconfirmed = core::mem::take(&mut order.is_unconfirmed);
        if order.cum != status.cum {
            self.differ(slot, outcome);
            return;
        }
        match (order.is_live(), status.is_live) {
            (true, true) => self.reconcile_live(slot, status, was_unconfirmed, outcome),
            (true, false) => {
                let end = if order.life == Life::Sent && order.cum == 0 { End::Rejected } else { End::Canceled };
                let end = if order.cum >= order.qty { End::Filled } else { end };
                self.end_with(slot, end, outcome);
            }
            (false, false) => outcome.is_duplicate = true,
            (false, true) => {
                order.qty = order.cum.saturating_add(status.leaves);
                outcome.effect = self.revive(slot);
                self.differ(slot, outcome);
            }
        }
    }

    fn reconcile_live(&mut self, slot: usize, status: &VenueStatus, was_unconfirmed: bool, outcome: &mut Outcome) {
        let order = &mut self.orders[slot];
        let was_sent = order.life == Life::Sent;
        order.life = Life::Live;
        order.is_in_doubt = false;
        if order.cancel_sent_ns.is_some_and(|sent_ns| sent_ns < order.queried_ns) {
            // The question came behind the cancel, and has the order alive: it may be sent again.
            order.cancel_sent_ns = None;
        }
        if order.leaves() == status.leaves {
            outcome.effect = if was_sent { Effect::Accepted } else { Effect::None };
            return;
        }
        // With a replace under way either total is right; its answer decides.
        let of_replace = |qty: u32| qty.saturating_sub(status.cum) == status.leaves;
        if order.pending.iter().any(|pending| of_replace(pending.qty)) {
            (order.is_in_doubt, order.is_unconfirmed) = (true, was_unconfirmed);
            return;
        }
        order.qty = status.cum.saturating_add(status.leaves);
        outcome.effect = Effect::Restated { leaves: status.leaves, price: order.price };
        self.differ(slot, outcome);
    }

    fn differ(&mut self, slot: usize, outcome: &mut Outcome) {
        let order = &mut self.orders[slot];
        order.is_in_doubt = order.is_live();
        order.queried_ns = 0;
        outcome.alarm = Some(Alarm::Differs);
        let instrument = order.instrument;
        self.block(instrument);
    }
}
