//! What a firm writes: the decisions.

use market::Price;
use order_entry::orders::OrderEvent;
use order_entry::risk::InstrumentIdx;

use crate::orders::Orders;

/// The best prices of one instrument, after an event of its feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookEvent {
    /// The instrument, by its position in the configuration.
    pub instrument: InstrumentIdx,
    /// The best bid and its shares.
    pub bid: Option<(Price, u32)>,
    /// The best offer and its shares.
    pub offer: Option<(Price, u32)>,
    /// The feed has a gap, or is not trusted: orders are refused.
    pub is_stale: bool,
    /// The venue has halted or paused the instrument: orders are refused, and cancels pass. Quotes
    /// of a market-gateway do not tell it.
    pub is_halted: bool,
    /// When its packet arrived, or the time of its poll.
    pub at_ns: u64,
}

impl BookEvent {
    /// The distance between both sides, where there is a reference.
    pub fn spread(&self) -> Price {
        match (self.bid, self.offer) {
            (Some((bid, _)), Some((offer, _))) => Price(offer.0.saturating_sub(bid.0)),
            _ => Price(0),
        }
    }

    /// The price by which the collar judges: the middle of both sides. `None` where one is empty,
    /// or where the book is crossed, because then one of its sides is wrong.
    pub fn reference(&self) -> Option<Price> {
        match (self.bid, self.offer) {
            (Some((bid, _)), Some((offer, _))) if bid <= offer => Some(Price(bid.0.midpoint(offer.0))),
            _ => None,
        }
    }
}

/// A strategy. Every call is on the hot core: it must not allocate, block or call the system. What
/// it sends passes the risk checks and stands in the journal before a byte of it is written.
///
/// Its own memory ends with its process, and its orders and its position do not: a restart, a
/// standby that takes over and a handover all begin with a new strategy and the journal of before.
/// Adopt them in [`Strategy::on_session_open`]; a strategy that does not sends its order twice.
pub trait Strategy {
    /// A book changed.
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>);

    /// The venue said something about an order.
    fn on_order(&mut self, event: &OrderEvent, orders: &mut Orders<'_>) {
        let _ = (event, orders);
    }

    /// The session takes orders from now on, and the venue has said what it did not process. Take
    /// over what lives ([`Orders::live`]) and what is owned ([`Orders::position`]) here: they may
    /// be of the process before, or of trades that the venue tells only now.
    fn on_session_open(&mut self, orders: &mut Orders<'_>) {
        let _ = orders;
    }

    /// The connection is gone: no order passes until the session is open again. Those that live do
    /// so at the venue, unless it cancels them.
    fn on_session_closed(&mut self, orders: &mut Orders<'_>) {
        let _ = orders;
    }

    /// The timer that [`Orders::set_timer`] set is due.
    fn on_timer(&mut self, orders: &mut Orders<'_>) {
        let _ = orders;
    }
}
