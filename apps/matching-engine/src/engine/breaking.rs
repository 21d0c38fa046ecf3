//! Trades are broken after the fact.

use super::{Cx, Engine};
use crate::event::{Body, Broken, Sink};

/// Why a trade was not broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakError {
    /// No trade has this number, or it is older than those that are kept.
    Unknown,
    /// It was broken before.
    Again,
}

impl Engine {
    /// Breaks the trade of this number; of a cross all its executions. Orders stay as they are:
    /// what traded does not come back to the book.
    pub fn break_trade<S: Sink>(&mut self, match_number: u64, now_ns: u64, sink: &mut S) -> Result<(), BreakError> {
        let range = self.trades.find(match_number);
        if range.is_empty() {
            return Err(BreakError::Unknown);
        }
        let mut cx = Cx { now_ns, sink };
        for idx in range.clone() {
            let trade = self.trades.get_mut(idx);
            if trade.is_broken {
                return Err(BreakError::Again);
            }
            trade.is_broken = true;
            let trade = *trade;
            let broken = Broken {
                match_number,
                qty: trade.qty,
                price: trade.price,
                buyer: trade.buyer,
                seller: trade.seller,
                is_first: idx == range.start,
            };
            cx.emit(trade.symbol.0 - 1, Body::Broken(broken));
        }
        Ok(())
    }
}
