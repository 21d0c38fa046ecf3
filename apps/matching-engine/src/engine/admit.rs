//! Whether an order makes sense: before it exists.

use market::Side;

use super::Engine;
use crate::event::TradingState;
use crate::order::{Display, Life, NewOrder, PostOnly, Pricing, Terms};
use crate::reason::RejectReason;
use crate::ticks;

impl Engine {
    /// Checks a new order, and gives its book's index.
    pub(super) fn admit(&self, new: &NewOrder, now_ns: u64) -> Result<u16, RejectReason> {
        let symbol = self.symbol(new.symbol).ok_or(RejectReason::Symbol)?;
        if new.owner.0 as usize >= self.owners {
            return Err(RejectReason::Owner);
        }
        if new.self_trade.is_some_and(|self_trade| self_trade.group == 0) {
            return Err(RejectReason::SelfTradeGroup);
        }
        if self.orders.is_full() {
            return Err(RejectReason::Full);
        }
        self.admit_terms(symbol, &new.terms, now_ns)?;
        Ok(symbol)
    }

    /// Checks what a new order and a replacement have in common.
    #[inline]
    pub(super) fn admit_terms(&self, symbol: u16, terms: &Terms, now_ns: u64) -> Result<(), RejectReason> {
        if terms.qty == 0 || terms.qty > self.qty_max {
            return Err(RejectReason::Quantity);
        }
        if terms.min_qty > terms.qty {
            return Err(RejectReason::MinQuantity);
        }
        check_prices(&terms.pricing)?;
        if terms.is_plain() {
            return self.check_state(symbol, terms);
        }
        check_display(terms)?;
        check_combination(terms)?;
        if let Life::Until(at_ns) = terms.life
            && at_ns <= now_ns
        {
            return Err(RejectReason::Expired);
        }
        self.check_state(symbol, terms)
    }

    #[inline]
    fn check_state(&self, symbol: u16, terms: &Terms) -> Result<(), RejectReason> {
        match self.book(symbol).state {
            TradingState::Trading => Ok(()),
            TradingState::Closed => Err(RejectReason::Closed),
            TradingState::Halted => Err(RejectReason::Halted),
            TradingState::Quoting if is_immediate(terms) => Err(RejectReason::Halted),
            TradingState::Quoting => Ok(()),
        }
    }

    /// A post-only order that must not slide, and would trade.
    pub(super) fn check_post_only(&self, symbol: u16, side: Side, terms: &Terms) -> Result<(), RejectReason> {
        if let (PostOnly::Reject, Pricing::Limit(limit)) = (terms.post_only, terms.pricing)
            && self.book(symbol).state == TradingState::Trading
            && self.would_trade_at(symbol, side, limit, terms.qty).is_some()
        {
            return Err(RejectReason::PostOnly);
        }
        Ok(())
    }
}

/// What does not trade at once is canceled.
fn is_immediate(terms: &Terms) -> bool {
    matches!(terms.life, Life::ImmediateOrCancel | Life::FillOrKill)
        || (terms.pricing == Pricing::Market && !matches!(terms.life, Life::Cross(_)))
}

#[inline]
fn check_prices(pricing: &Pricing) -> Result<(), RejectReason> {
    let is_valid = match *pricing {
        Pricing::Limit(limit) => ticks::is_valid(limit),
        Pricing::Market => true,
        Pricing::Peg(peg) => peg.limit.is_none_or(ticks::is_valid),
        Pricing::Stop { trigger, limit } => ticks::is_valid(trigger) && limit.is_none_or(ticks::is_valid),
    };
    if is_valid { Ok(()) } else { Err(RejectReason::Price) }
}

/// What others see must be firm: a price of its own, and each quantity.
fn check_display(terms: &Terms) -> Result<(), RejectReason> {
    let rests = matches!(terms.life, Life::Day | Life::Until(_));
    let is_firm = matches!(terms.pricing, Pricing::Limit(_) | Pricing::Stop { .. }) && terms.min_qty == 0;
    match terms.display {
        Display::Reserve(0) => Err(RejectReason::Display),
        Display::Full | Display::Reserve(_) if rests && !is_firm && terms.pricing != Pricing::Market => {
            Err(RejectReason::Display)
        }
        _ => Ok(()),
    }
}

fn check_combination(terms: &Terms) -> Result<(), RejectReason> {
    let makes_sense = match terms.pricing {
        Pricing::Limit(_) => {
            let rests = matches!(terms.life, Life::Day | Life::Until(_));
            terms.post_only == PostOnly::No || (rests && terms.min_qty == 0)
        }
        Pricing::Market => terms.post_only == PostOnly::No,
        Pricing::Peg(_) => terms.post_only == PostOnly::No && !matches!(terms.life, Life::Cross(_) | Life::FillOrKill),
        Pricing::Stop { .. } => {
            terms.post_only == PostOnly::No && terms.min_qty == 0 && matches!(terms.life, Life::Day | Life::Until(_))
        }
    };
    let cross_is_plain = !matches!(terms.life, Life::Cross(_)) || terms.min_qty == 0;
    if makes_sense && cross_is_plain { Ok(()) } else { Err(RejectReason::Terms) }
}
