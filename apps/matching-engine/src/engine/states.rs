//! An instrument's day: closed, quoted, trading, halted.

use market::Locate;

use super::{Cx, Engine};
use crate::event::{Body, Sink, TradingState};
use crate::order::OnHalt;
use crate::reason::CancelReason;

/// There is no instrument of this locate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSymbol;

impl Engine {
    /// Collects orders for a cross, without trading: before the opening, and before a halt ends.
    pub fn quote<S: Sink>(&mut self, symbol: Locate, now_ns: u64, sink: &mut S) -> Result<(), NoSymbol> {
        let symbol = self.symbol(symbol).ok_or(NoSymbol)?;
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        self.park_pegs(symbol);
        self.change_state(symbol, TradingState::Quoting, &mut cx);
        Ok(())
    }

    /// Halts an instrument: orders are refused, those that rest are kept or canceled as each says.
    pub fn halt<S: Sink>(&mut self, symbol: Locate, now_ns: u64, sink: &mut S) -> Result<(), NoSymbol> {
        let symbol = self.symbol(symbol).ok_or(NoSymbol)?;
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        self.park_pegs(symbol);
        self.change_state(symbol, TradingState::Halted, &mut cx);
        self.cancel_where(symbol, CancelReason::Halted, |on_halt| on_halt == OnHalt::Cancel, &mut cx);
        Ok(())
    }

    /// Closes an instrument: all of its orders are canceled.
    pub fn close<S: Sink>(&mut self, symbol: Locate, now_ns: u64, sink: &mut S) -> Result<(), NoSymbol> {
        let symbol = self.symbol(symbol).ok_or(NoSymbol)?;
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        self.park_pegs(symbol);
        self.cancel_where(symbol, CancelReason::Closed, |_| true, &mut cx);
        self.change_state(symbol, TradingState::Closed, &mut cx);
        Ok(())
    }

    pub(super) fn change_state<S: Sink>(&mut self, symbol: u16, state: TradingState, cx: &mut Cx<'_, S>) {
        if self.book(symbol).state != state {
            self.book_mut(symbol).state = state;
            cx.emit(symbol, Body::StateChanged(state));
        }
    }
}
