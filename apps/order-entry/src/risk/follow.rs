//! How the gate follows the order table: each outcome moves what the order holds.

use super::gate::RiskGate;
use crate::orders::{Effect, Order, OrderTable, Outcome};

impl RiskGate {
    /// Takes what an event did to an order of `table`, which has the same slots. Call it with each
    /// outcome, once, before the table's next event.
    /// Returns whether the order's shares are reserved: a revived one has no reservation where its
    /// side rests at too many prices already, and then no check counts what it may still trade.
    #[must_use = "orders must stop where one lives without a reservation"]
    pub fn follow(&mut self, outcome: &Outcome, table: &OrderTable) -> bool {
        let Outcome { slot: Some(slot), instrument, side, strategy, .. } = *outcome else { return true };
        let of = (instrument, side);
        let mut is_reserved = true;
        if let Some(id) = outcome.replaced {
            self.replaced(slot, id);
        }
        match outcome.effect {
            Effect::Traded { qty, price } => {
                self.traded(slot, instrument, side, (qty, price));
                self.book_for(strategy, of, (qty, price), 1);
            }
            Effect::Restated { leaves, price } => self.restated(slot, leaves, price),
            Effect::ReplaceRefused { id } => self.replace_refused(slot, id),
            Effect::Reversed { qty, price } => {
                self.reverse_trade(instrument, side, qty, price);
                self.book_for(strategy, of, (qty, price), -1);
            }
            Effect::Corrected { old, new } => {
                self.reverse_trade(instrument, side, old.0, old.1);
                self.book_trade(instrument, side, new.0, new.1);
                self.book_for(strategy, of, old, -1);
                self.book_for(strategy, of, new, 1);
            }
            Effect::Revived { .. } => is_reserved = table.get(slot).is_some_and(|order| self.revive(slot, order)),
            Effect::None | Effect::Accepted => (),
        }
        if outcome.ended.is_some() {
            self.ended(slot);
        }
        is_reserved
    }

    /// An order that had ended holds its terms again, and those of each replace that the venue may
    /// accept after all: a restatement of the order must not take these away.
    fn revive(&mut self, slot: usize, order: &Order) -> bool {
        let cum = order.cum();
        let (order_type, of) = (order.instructions().order_type, (order.instrument, order.side));
        self.restore_order_of(order.strategy, order_type, slot, of, (order.leaves(), order.price()))
            && order
                .pending_replaces()
                .iter()
                .all(|replace| self.restore_replace(slot, replace.id, (replace.qty.saturating_sub(cum), replace.price)))
    }
}
