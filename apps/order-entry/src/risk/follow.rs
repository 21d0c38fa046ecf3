//! How the gate follows the order table: each outcome moves what the order holds.

use super::gate::RiskGate;
use crate::orders::{Effect, Outcome};

impl RiskGate {
    /// Takes what an event did to an order of the same slots. Call it with each outcome, once.
    pub fn follow(&mut self, outcome: &Outcome) {
        let Outcome { slot: Some(slot), instrument, side, was_live, .. } = *outcome else { return };
        if let Some(id) = outcome.replaced {
            self.replaced(slot, id);
        }
        match outcome.effect {
            Effect::Traded { qty, price } if was_live => self.traded(slot, qty, price),
            Effect::Traded { qty, price } => self.book_trade(instrument, side, qty, price),
            Effect::Restated { leaves, price } => self.restated(slot, leaves, price),
            Effect::ReplaceRefused { id } => self.replace_refused(slot, id),
            Effect::Reversed { qty, price } => self.reverse_trade(instrument, side, qty, price),
            Effect::Corrected { old, new } => {
                self.reverse_trade(instrument, side, old.0, old.1);
                self.book_trade(instrument, side, new.0, new.1);
            }
            Effect::Revived { leaves, price } => {
                self.restore_order(slot, instrument, side, (leaves, price));
            }
            Effect::None | Effect::Accepted => (),
        }
        if outcome.ended.is_some() {
            self.ended(slot);
        }
    }
}
