//! Two small strategies, in the place of one's own.

use market::{Price, Side};
use order_entry::Refusal;
use order_entry::orders::{Effect, Instructions, OrderEvent, OrderField};
use order_entry::risk::InstrumentIdx;
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
    pub(crate) fn new(sample: Sample) -> Self {
        match sample {
            Sample::Joiner => Self::Joiner(Joiner::default()),
            Sample::Taker => Self::Taker(Taker::default()),
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

    fn on_timer(&mut self, orders: &mut Orders<'_>) {
        match self {
            Self::Joiner(joiner) => joiner.on_timer(orders),
            Self::Taker(taker) => taker.on_timer(orders),
        }
    }
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
        let Some((bid, _)) = book.bid.filter(|_| book.instrument.0 == 0 && !book.is_stale) else { return };
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
}

/// Buys the first instrument at the offer and sells at the bid, in turn, each time the book has
/// moved and its last order has ended. It loses the spread: it is for demonstrations.
#[derive(Debug, Default)]
pub(crate) struct Taker {
    id: Option<u64>,
    owned: u32,
    /// The book, where it has moved since the last order.
    moved: Option<BookEvent>,
}

impl Taker {
    fn act(&mut self, orders: &mut Orders<'_>) {
        if self.id.is_some_and(|id| orders.get(id).is_some_and(|order| order.is_live())) {
            return;
        }
        let Some(book) = self.moved else { return };
        let (side, best) = if self.owned > 0 { (Side::Sell, book.bid) } else { (Side::Buy, book.offer) };
        let Some((price, _)) = best else { return };
        let qty = if self.owned > 0 { self.owned } else { QTY };
        let instructions = Instructions::IMMEDIATE_OR_CANCEL;
        let request = OrderRequest { instructions, ..OrderRequest::limit(book.instrument, side, qty, price) };
        match orders.send(&request) {
            Ok(id) => (self.id, self.moved) = (Some(id), None),
            // Disarmed, or no session yet: the same again later.
            Err(_) => orders.set_timer(Some(book.at_ns.saturating_add(AGAIN_NS))),
        }
    }
}

impl Strategy for Taker {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        if book.instrument == InstrumentIdx(0) && !book.is_stale {
            self.moved = Some(*book);
            self.act(orders);
        }
    }

    fn on_order(&mut self, event: &OrderEvent, orders: &mut Orders<'_>) {
        if let (Effect::Traded { qty, .. }, InstrumentIdx(0)) = (event.outcome.effect, event.outcome.instrument) {
            self.owned = match event.outcome.side {
                Side::Buy => self.owned.saturating_add(qty),
                Side::Sell => self.owned.saturating_sub(qty),
            };
        }
        self.act(orders);
    }

    fn on_timer(&mut self, orders: &mut Orders<'_>) {
        if let Some(book) = &mut self.moved {
            book.at_ns = book.at_ns.saturating_add(AGAIN_NS);
        }
        self.act(orders);
    }
}
