//! Two small strategies, in the place of one's own.

use market::{Price, Side};
use order_entry::Refusal;
use order_entry::orders::{Effect, Instructions, Order, OrderEvent, OrderField};
use order_entry::risk::{InstrumentIdx, StrategyIdx};
use order_entry::session::SendError;
use order_gateway::{BookEvent, OrderRequest, Orders, Sample, Strategy};

/// Shares of their orders.
const QTY: u32 = 100;
/// A refused order is tried again after this time.
const AGAIN_NS: u64 = 10_000_000;

/// The sample that the configuration names.
#[derive(Debug)]
pub(crate) enum SampleStrategy {
    Joiner(Joiner),
    Taker(Taker),
}

impl SampleStrategy {
    /// `per_second` bounds the orders of the taker.
    pub(crate) fn new(sample: Sample, instruments: usize, per_second: Option<u32>) -> Self {
        match sample {
            Sample::Joiner => Self::Joiner(Joiner::default()),
            Sample::Taker => Self::Taker(Taker::new(instruments, per_second)),
        }
    }
}

impl Strategy for SampleStrategy {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        match self {
            Self::Joiner(joiner) => joiner.on_book(book, orders),
            Self::Taker(taker) => taker.on_book(book, orders),
        }
    }

    fn on_order(&mut self, event: &OrderEvent, orders: &mut Orders<'_>) {
        match self {
            Self::Joiner(joiner) => joiner.on_order(event, orders),
            Self::Taker(taker) => taker.on_order(event, orders),
        }
    }

    fn on_session_open(&mut self, orders: &mut Orders<'_>) {
        match self {
            Self::Joiner(joiner) => joiner.on_session_open(orders),
            Self::Taker(taker) => taker.on_session_open(orders),
        }
    }

    fn on_session_closed(&mut self, orders: &mut Orders<'_>) {
        match self {
            Self::Joiner(joiner) => joiner.on_session_closed(orders),
            Self::Taker(taker) => taker.on_session_closed(orders),
        }
    }

    fn on_timer(&mut self, orders: &mut Orders<'_>) {
        match self {
            Self::Joiner(joiner) => joiner.on_timer(orders),
            Self::Taker(taker) => taker.on_timer(orders),
        }
    }
}

/// The orders of a sample's that live, of this process or of the one before.
fn live<'a>(of: InstrumentIdx, orders: &'a Orders<'_>) -> impl Iterator<Item = &'a Order> {
    orders.live().filter(move |order| order.instrument == of && order.strategy == StrategyIdx(0))
}

/// Rests one bid at the best bid of the first instrument, and follows it. It never takes, where the
/// venue's protocol can say so.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    id: Option<u64>,
    price: Price,
}

impl Joiner {
    fn join(&self, instrument: InstrumentIdx, bid: Price, orders: &mut Orders<'_>) -> Option<u64> {
        let plain = OrderRequest::limit(instrument, Side::Buy, QTY, bid);
        let instructions = Instructions { is_post_only: true, ..Instructions::PLAIN };
        let sent = match orders.send(&OrderRequest { instructions, ..plain }) {
            Err(Refusal::Session(SendError::Field(OrderField::PostOnly))) => orders.send(&plain),
            sent => sent,
        };
        // A refusal by a limit is in the journal and in the counts.
        sent.ok()
    }
}

impl Strategy for Joiner {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        let Some((bid, _)) = book.bid.filter(|_| book.instrument.0 == 0 && !book.is_stale && !book.is_halted) else {
            return;
        };
        if let Some(id) = self.id.filter(|id| orders.get(*id).is_some_and(|order| order.is_live())) {
            if bid != self.price
                && let Ok(id) = orders.replace(id, QTY, bid)
            {
                (self.id, self.price) = (Some(id), bid);
            }
            return;
        }
        self.id = self.join(book.instrument, bid, orders);
        self.price = bid;
    }

    fn on_session_open(&mut self, orders: &mut Orders<'_>) {
        // A sale that followed the bid would cross it.
        let Some(order) = live(InstrumentIdx(0), orders).find(|order| order.side == Side::Buy) else { return };
        // The newest replace decides where it rests, if it was taken.
        self.price = order.pending_replaces().last().map_or(order.price(), |replace| replace.price);
        self.id = Some(order.accepted_id());
    }
}

/// Buys each instrument at the offer and sells it at the bid, in turn, each time the book has moved
/// and its last order has ended. It loses the spread: it is for demonstrations. What the account
/// held before the journal it does not sell.
#[derive(Debug)]
pub(crate) struct Taker {
    legs: Box<[Leg]>,
    pace: Option<Pace>,
}

/// What it has of one instrument.
#[derive(Clone, Debug, Default)]
struct Leg {
    id: Option<u64>,
    /// Shares that were bought since the journal began and are not sold.
    owned: u32,
    /// The book, where it has moved since the last order.
    moved: Option<BookEvent>,
}

impl Taker {
    fn new(instruments: usize, per_second: Option<u32>) -> Self {
        Self { legs: vec![Leg::default(); instruments].into(), pace: per_second.map(Pace::new) }
    }

    fn act(&mut self, of: InstrumentIdx, orders: &mut Orders<'_>) {
        let Self { legs, pace } = self;
        let Some(leg) = legs.get_mut(of.0 as usize) else { return };
        if leg.id.is_some_and(|id| orders.get(id).is_some_and(|order| order.is_live())) {
            return;
        }
        let Some(book) = leg.moved else { return };
        let (side, best) = if leg.owned > 0 { (Side::Sell, book.bid) } else { (Side::Buy, book.offer) };
        let Some((price, _)) = best else { return };
        if pace.as_mut().is_some_and(|pace| !pace.passes(orders.now_ns())) {
            return;
        }
        let qty = if leg.owned > 0 { leg.owned.min(QTY) } else { QTY };
        let instructions = Instructions::IMMEDIATE_OR_CANCEL;
        let request = OrderRequest { instructions, ..OrderRequest::limit(book.instrument, side, qty, price) };
        match orders.send(&request) {
            Ok(id) => (leg.id, leg.moved) = (Some(id), None),
            // Disarmed, or no session yet: the same again later.
            Err(_) => orders.set_timer(Some(book.at_ns.saturating_add(AGAIN_NS))),
        }
    }
}

impl Strategy for Taker {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        if let Some(leg) = self.legs.get_mut(book.instrument.0 as usize).filter(|_| !book.is_stale && !book.is_halted) {
            leg.moved = Some(*book);
            self.act(book.instrument, orders);
        }
    }

    fn on_order(&mut self, event: &OrderEvent, orders: &mut Orders<'_>) {
        let instrument = event.outcome.instrument;
        let leg = self.legs.get_mut(instrument.0 as usize);
        if let (Effect::Traded { qty, .. }, Some(leg)) = (event.outcome.effect, leg) {
            leg.owned = match event.outcome.side {
                Side::Buy => leg.owned.saturating_add(qty),
                Side::Sell => leg.owned.saturating_sub(qty),
            };
        }
        self.act(instrument, orders);
    }

    fn on_session_open(&mut self, orders: &mut Orders<'_>) {
        for (number, leg) in (0..).zip(&mut self.legs) {
            let of = InstrumentIdx(number);
            let opening = orders.opening_position(of).unwrap_or(0);
            let bought = orders.position(of).unwrap_or(0).saturating_sub(opening);
            leg.owned = u32::try_from(bought.max(0)).unwrap_or(u32::MAX);
            leg.id = live(of, orders).next().map(Order::accepted_id);
        }
    }

    fn on_timer(&mut self, orders: &mut Orders<'_>) {
        for number in 0..self.legs.len() {
            if let Some(book) = &mut self.legs[number].moved {
                book.at_ns = book.at_ns.max(orders.now_ns());
            }
            self.act(InstrumentIdx(number as u32), orders);
        }
    }
}

/// So many orders a second. A pause of a moment is made up for.
#[derive(Debug)]
struct Pace {
    interval_ns: u64,
    due_ns: u64,
}

impl Pace {
    /// Orders that a pause may leave for later.
    const LATER: u64 = 64;

    const fn new(per_second: u32) -> Self {
        Self { interval_ns: 1_000_000_000 / if per_second == 0 { 1 } else { per_second as u64 }, due_ns: 0 }
    }

    fn passes(&mut self, now_ns: u64) -> bool {
        let is_due = self.due_ns <= now_ns;
        if is_due {
            self.due_ns = self.due_ns.max(now_ns.saturating_sub(Self::LATER * self.interval_ns)) + self.interval_ns;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_makes_up_for_a_moment_and_not_for_more() {
        let mut pace = Pace::new(1_000);
        let passed = |pace: &mut Pace, now_ns| (0..1_000).filter(|_| pace.passes(now_ns)).count();
        // Time begins behind zero, as that of a run.
        passed(&mut pace, 1_000_000_000);
        assert_eq!([1, 1, 10].map(|ms| ms * 1_000_000).map(|ns| passed(&mut pace, 1_000_000_000 + ns)), [1, 0, 9]);
        assert_eq!(passed(&mut pace, 60_000_000_000), Pace::LATER as usize + 1);
    }
}
