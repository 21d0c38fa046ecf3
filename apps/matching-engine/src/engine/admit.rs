//! Whether an order makes sense: before it exists.

use market::{Price, Side};

use super::Engine;
use crate::event::TradingState;
use crate::order::{Display, Life, NewOrder, PostOnly, Pricing, Terms};
use crate::reason::RejectReason;
use crate::ticks;

/// An order that makes sense.
#[derive(Clone, Copy)]
pub(super) struct Admitted {
    /// The index of its book.
    pub(super) symbol: u16,
    /// [`Terms::plain_limit`].
    pub(super) plain: Option<Price>,
}

impl Engine {
    /// Checks a new order.
    #[inline(always)]
    pub(super) fn admit(&self, new: &NewOrder, now_ns: u64) -> Result<Admitted, RejectReason> {
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
        let plain = new.terms.plain_limit();
        if let Some(limit) = plain {
            self.admit_plain(symbol, new.terms.qty, limit)?;
        } else {
            self.admit_unusual(symbol, &new.terms, now_ns)?;
            self.check_post_only(symbol, new.side, &new.terms)?;
        }
        Ok(Admitted { symbol, plain })
    }

    /// Checks what a new order and a replacement have in common.
    #[inline]
    pub(super) fn admit_terms(&self, symbol: u16, terms: &Terms, now_ns: u64) -> Result<(), RejectReason> {
        match terms.plain_limit() {
            Some(limit) => self.admit_plain(symbol, terms.qty, limit),
            None => self.admit_unusual(symbol, terms, now_ns),
        }
    }

    /// Checks a displayed limit order for the day.
    #[inline(always)]
    fn admit_plain(&self, symbol: u16, qty: u32, limit: Price) -> Result<(), RejectReason> {
        self.check_qty(qty)?;
        if !ticks::is_valid(limit) {
            return Err(RejectReason::Price);
        }
        self.check_state(symbol, false)
    }

    /// Checks terms that are not plain.
    fn admit_unusual(&self, symbol: u16, terms: &Terms, now_ns: u64) -> Result<(), RejectReason> {
        self.check_qty(terms.qty)?;
        if terms.min_qty > terms.qty {
            return Err(RejectReason::MinQuantity);
        }
        check_prices(&terms.pricing)?;
        check_display(terms)?;
        check_combination(terms)?;
        if let Life::Until(at_ns) = terms.life
            && at_ns <= now_ns
        {
            return Err(RejectReason::Expired);
        }
        self.check_state(symbol, is_immediate(terms))
    }

    #[inline(always)]
    const fn check_qty(&self, qty: u32) -> Result<(), RejectReason> {
        if qty == 0 || qty > self.qty_max { Err(RejectReason::Quantity) } else { Ok(()) }
    }

    /// `is_immediate` is of the terms.
    #[inline(always)]
    fn check_state(&self, symbol: u16, is_immediate: bool) -> Result<(), RejectReason> {
        match self.book(symbol).state {
            TradingState::Trading => Ok(()),
            TradingState::Closed => Err(RejectReason::Closed),
            TradingState::Halted => Err(RejectReason::Halted),
            TradingState::Quoting if is_immediate => Err(RejectReason::Halted),
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
