//! The price of an auction: the one at which most shares trade; of several the one that leaves the
//! fewest unmatched; of those the nearest to the reference; the lower of two.
//!
//! Pegged orders and orders with a minimum quantity do not take part, because their terms cannot be
//! kept at one price for all.

use market::levels::{Level, NONE};
use market::{Locate, Price, Side};

use super::{Cx, Engine};
use crate::arena::Slot;
use crate::book::{any_price, lane};
use crate::event::{Body, Imbalance, Sink};
use crate::order::CrossKind;
use crate::queue::Queue;
use crate::ticks;

/// What an auction is bound by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossTerms {
    /// The price that it is nearest to, all else being equal: the last sale, or the midpoint.
    pub reference: Price,
    /// Lowest and highest price; by default any.
    pub collar: Option<(Price, Price)>,
}

impl CrossTerms {
    /// Bound by a tenth of the reference on both sides, the width of Nasdaq's crosses.
    pub const fn within_a_tenth(reference: Price) -> Self {
        let tenth = reference.0 / 10;
        Self { reference, collar: Some((Price(reference.0 - tenth), Price(reference.0 + tenth))) }
    }

    /// The lowest and the highest price that exist within the collar.
    pub(super) fn bounds(&self) -> (Price, Price) {
        let (low, high) = self.collar.unwrap_or((Price(1), ticks::PRICE_MAX));
        (ticks::ceil(low.max(Price(1))), ticks::floor(high.min(ticks::PRICE_MAX)))
    }
}

/// Memory for the prices and quantities of an auction, used again. It grows with the largest
/// auction: the only allocation after construction, and not on the path of orders.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Price and shares of the buys, the lowest price first.
    buys: Vec<(Price, u64)>,
    /// Of the sells, the lowest first.
    sells: Vec<(Price, u64)>,
    candidates: Vec<Price>,
}

/// What an auction would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) price: Price,
    pub(super) paired: u64,
    demand: u64,
    supply: u64,
}

impl Engine {
    /// Tells what an auction would do now, as one event. Costs a sort of the prices in the book.
    pub fn imbalance<S: Sink>(
        &mut self,
        symbol: Locate,
        kind: CrossKind,
        terms: &CrossTerms,
        now_ns: u64,
        sink: &mut S,
    ) -> Result<(), super::states::NoSymbol> {
        let symbol = self.symbol(symbol).ok_or(super::states::NoSymbol)?;
        let mut cx = Cx { now_ns, sink };
        self.expire_due(&mut cx);
        let far = self.auction(symbol, kind, terms, false).map_or(Price(0), |outcome| outcome.price);
        let near = self.auction(symbol, kind, terms, true);
        let imbalance = match near {
            Some(Outcome { price, paired, demand, supply }) => Imbalance {
                kind,
                paired,
                imbalance: demand.abs_diff(supply),
                side: side_of(demand, supply),
                far,
                near: price,
                reference: terms.reference,
            },
            None => {
                let all = |prices: &[(Price, u64)]| prices.iter().map(|&(_, shares)| shares).sum::<u64>();
                let (demand, supply) = (all(&self.auction.buys), all(&self.auction.sells));
                let (imbalance, side) = (demand.abs_diff(supply), side_of(demand, supply));
                Imbalance { kind, paired: 0, imbalance, side, far, near: Price(0), reference: terms.reference }
            }
        };
        cx.emit(symbol, Body::Imbalance(imbalance));
        Ok(())
    }

    /// The price of an auction of the orders for `kind`, and those of the book where `with_book`.
    /// None where nothing would trade.
    pub(super) fn auction(
        &mut self,
        symbol: u16,
        kind: CrossKind,
        terms: &CrossTerms,
        with_book: bool,
    ) -> Option<Outcome> {
        let mut scratch = core::mem::take(&mut self.auction);
        scratch.buys.clear();
        scratch.sells.clear();
        for (side, prices) in [(Side::Buy, &mut scratch.buys), (Side::Sell, &mut scratch.sells)] {
            self.gather(symbol, lane::cross(kind, side), prices);
            if with_book {
                self.gather(symbol, lane::resting(side), prices);
            }
            prices.sort_unstable();
        }
        let best = scratch.best(terms);
        self.auction = scratch;
        best
    }

    /// Adds the prices of a ladder and the shares of those orders there that take part.
    fn gather(&self, symbol: u16, lane: u8, prices: &mut Vec<(Price, u64)>) {
        let mut at = self.book(symbol).ladders[usize::from(lane)].best();
        while at != NONE {
            let level = self.levels.get(at);
            let shares = self.shares_in_auction(level);
            if shares > 0 {
                prices.push((level.price(), shares));
            }
            at = level.worse();
        }
    }

    fn shares_in_auction(&self, level: &Level<Queue>) -> u64 {
        let mut shares = 0;
        for head in [level.shown_head(), level.hidden_head()] {
            let mut at = head;
            while at != NONE {
                let order = self.orders.get(at);
                if self.takes_part(at) {
                    shares += u64::from(order.leaves);
                }
                at = order.next;
            }
        }
        shares
    }

    /// The first order of a queue that takes part, from `at` on.
    pub(super) fn first_in_auction(&self, mut at: Slot) -> Option<Slot> {
        while at != NONE {
            if self.takes_part(at) {
                return Some(at);
            }
            at = self.orders.get(at).next;
        }
        None
    }

    fn takes_part(&self, slot: Slot) -> bool {
        let order = self.orders.get(slot);
        order.is_plain || (!order.is_pegged && self.orders.terms(slot).min_qty == 0)
    }
}

const fn side_of(demand: u64, supply: u64) -> Option<Side> {
    if demand > supply {
        Some(Side::Buy)
    } else if supply > demand {
        Some(Side::Sell)
    } else {
        None
    }
}

impl Scratch {
    fn best(&mut self, terms: &CrossTerms) -> Option<Outcome> {
        let (low, high) = terms.bounds();
        if low > high {
            return None;
        }
        self.list_candidates(terms.reference, low, high);
        let (mut demand, mut supply) = (self.buys.iter().map(|&(_, shares)| shares).sum::<u64>(), 0);
        let (mut buys, mut sells) = (self.buys.iter().peekable(), self.sells.iter().peekable());
        let mut best: Option<Outcome> = None;
        for &price in &self.candidates {
            while let Some((_, shares)) = buys.next_if(|(limit, _)| *limit < price) {
                demand -= shares;
            }
            while let Some((_, shares)) = sells.next_if(|(limit, _)| *limit <= price) {
                supply += shares;
            }
            let outcome = Outcome { price, paired: demand.min(supply), demand, supply };
            if best.is_none_or(|best| rank(&outcome, terms.reference) < rank(&best, terms.reference)) {
                best = Some(outcome);
            }
        }
        best.filter(|best| best.paired > 0)
    }

    /// All prices at which the outcome may be the best: the limits and their neighbors, between
    /// which nothing changes, the collar, and the reference. In rising order.
    fn list_candidates(&mut self, reference: Price, low: Price, high: Price) {
        self.candidates.clear();
        let limits = self.buys.iter().chain(&self.sells).map(|&(price, _)| price);
        for price in limits.filter(|&price| price != any_price(Side::Buy) && price != any_price(Side::Sell)) {
            let neighbors = [ticks::next_to(Side::Buy, price), price, ticks::next_to(Side::Sell, price)];
            self.candidates.extend(neighbors.map(|price| price.clamp(low, high)));
        }
        self.candidates.extend([low, ticks::floor(reference).clamp(low, high), high]);
        self.candidates.sort_unstable();
        self.candidates.dedup();
    }
}

/// Smaller is better; candidates come in rising order, so the lower of two equals stays.
fn rank(outcome: &Outcome, reference: Price) -> (core::cmp::Reverse<u64>, u64, u64) {
    let imbalance = outcome.demand.abs_diff(outcome.supply);
    (core::cmp::Reverse(outcome.paired), imbalance, outcome.price.0.abs_diff(reference.0))
}
