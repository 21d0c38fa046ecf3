//! How the gate follows the order table: each outcome moves what the order holds.

use super::gate::RiskGate;
use crate::orders::{Effect, Outcome};

impl RiskGate {
    /// Takes what an event did to an order of the same slots. Call it with each outcome, once.
    /// Returns whether the order's shares are reserved: a revived one has no reservation where its
    /// side rests at too many prices already, and then no check counts what it may still trade.
    #[must_use = "orders must stop where one lives without a reservation"]
    pub fn follow(&mut self, outcome: &Outcome) -> bool {
        let Outcome { slot: Some(slot), instrument, side, .. } = *outcome else { return true };
        let mut is_reserved = true;
        if let Some(id) = outcome.replaced {
            self.replaced(slot, id);
        }
        match outcome.effect {
            Effect::Traded { qty, price } => self.traded(slot, instrument, side, (qty, price)),
            Effect::Restated { leaves, price } => self.restated(slot, leaves, price),
            Effect::ReplaceRefused { id } => self.replace_refused(slot, id),
            Effect::Reversed { qty, price } => self.reverse_trade(instrument, side, qty, price),
            Effect::Corrected { old, new } => {
                self.reverse_trade(instrument, side, old.0, old.1);
                self.book_trade(instrument, side, new.0, new.1);
            }
            Effect::Revived { leaves, price } => {
                is_reserved = self.restore_order(slot, instrument, side, (leaves, price));
            }
            Effect::None | Effect::Accepted => (),
        }
        if outcome.ended.is_some() {
            self.ended(slot);
        }
        is_reserved
    }
}
