//! A flow of orders of the venue itself, so that its feed has the rate of a market: they come and
//! go around the reference price, at the best prices too, and never cross them.

use std::collections::VecDeque;

use market::{Locate, Price, Side};
use matching_engine::{CancelReason, NewOrder, OrderId, Terms};

use super::{HOUSE, Venue};
use crate::random::Random;

/// Its orders that live at once.
const LIVE_MAX: usize = 2_000;
/// Prices of a side: a tenth of its orders change the best one.
const STEPS: u64 = 10;
/// Shares of an order.
const QTY: u32 = 100;
/// A price step, in hundredths of a cent.
const STEP: i64 = 100;
/// Orders and cancels of one call, so that accounts are served between.
const CALL_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Flow {
    per_second: u64,
    /// When it began; what is due counts from there.
    began_ns: Option<u64>,
    published: u64,
    random: Random,
    live: VecDeque<OrderId>,
}

impl Flow {
    pub(super) fn new(per_second: u64, seed: u64) -> Self {
        let random = Random::new(seed, 0x666c_6f77);
        Self { per_second, began_ns: None, published: 0, random, live: VecDeque::with_capacity(LIVE_MAX) }
    }

    fn due(&mut self, now_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(*self.began_ns.get_or_insert(now_ns));
        (u128::from(since_ns) * u128::from(self.per_second) / 1_000_000_000) as u64
    }
}

impl Venue {
    /// Publishes so many messages a second besides those of the accounts, from the next
    /// [`Venue::flow`] on. The same seed and times give the same messages.
    pub fn set_flow(&mut self, per_second: u64, seed: u64) {
        self.flow = Some(Flow::new(per_second, seed));
    }

    /// Enters and cancels the venue's own orders that are due. Call it in each turn while the
    /// market is open. Returns whether there were any.
    pub fn flow(&mut self, now_ns: u64) -> bool {
        let Some(mut flow) = self.flow.take() else { return false };
        let (due, before) = (flow.due(now_ns), flow.published);
        for _ in 0..CALL_MAX {
            if flow.published >= due {
                break;
            }
            let public = self.public.len();
            self.step(&mut flow, now_ns);
            flow.published += (self.public.len() - public) as u64;
        }
        let is_busy = flow.published > before;
        self.flow = Some(flow);
        is_busy
    }

    /// One order more, or the oldest one less. What accounts have taken of the house's is put back.
    fn step(&mut self, flow: &mut Flow, now_ns: u64) {
        let locate = Locate(flow.random.below(self.listing.len() as u64) as u16 + 1);
        self.refill_house(locate, now_ns);
        if flow.live.len() == LIVE_MAX || (!flow.live.is_empty() && flow.random.below(2) == 0) {
            let oldest = flow.live.pop_front();
            let (engine, mut streams) = self.split();
            // One that an account has taken is not there.
            let _ = oldest.map(|id| engine.cancel(id, CancelReason::User, now_ns, &mut streams));
            return;
        }
        let away = STEP * (flow.random.below(STEPS) as i64 + 1);
        let (side, away) = if flow.random.below(2) == 0 { (Side::Buy, -away) } else { (Side::Sell, away) };
        let order = NewOrder::limit(HOUSE, 0, locate, side, QTY, Price(self.reference(locate).0 + away));
        let (engine, mut streams) = self.split();
        // A price below the lowest of a cheap instrument is refused.
        flow.live.extend(engine.submit(&order, now_ns, &mut streams));
    }

    /// The house's best prices have at least half of their shares.
    fn refill_house(&mut self, locate: Locate, now_ns: u64) {
        let (top, reference, shares) = (self.engine.top(locate), self.reference(locate), self.house_shares);
        for (side, price, best, qty) in [
            (Side::Buy, reference.0 - STEP, top.bid_px, top.bid_qty),
            (Side::Sell, reference.0 + STEP, top.ask_px, top.ask_qty),
        ] {
            if best != Price(price) || qty < u64::from(shares / 2) {
                self.house(locate, side, Terms::limit(shares, Price(price)), now_ns);
            }
        }
    }
}
