//! What one message of a venue says, whatever its protocol.

use market::Price;

use super::event::VenueEvent;
use super::table::OrderKey;

/// Terms that a venue stated with an answer. They may be others than those that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedTerms {
    /// None.
    None,
    /// The intended total with executions, and the price.
    Total(u32, Price),
    /// The open shares, and the price where it may be another one.
    Open(u32, Option<Price>),
    /// The price alone.
    Price(Price),
    /// The price of the execution has more decimals than ours: the event has the nearest.
    Rounded,
}

/// One message of a venue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VenueMessage {
    /// About one order.
    Answer {
        /// The order.
        key: OrderKey,
        /// What happened.
        event: VenueEvent,
        /// Terms that it stated besides.
        terms: StatedTerms,
        /// The order died with the same message.
        is_dead: bool,
    },
    /// A request was refused: an order, or a replace of one.
    Refused {
        /// The request's client id.
        id: u64,
        /// Why.
        reason: u16,
    },
    /// The answers to all that the venue has processed have come: every client id below `next_id`,
    /// and none from there on, because the connection that carried those is gone.
    Settled {
        /// The first client id that the venue has not seen; 1 where its protocol does not tell, and
        /// each id without an answer was not processed.
        next_id: u64,
        /// No answer will come any more to a replace below `next_id` that has none: the venue has
        /// ignored it in silence.
        is_final: bool,
    },
    /// The venue has not processed the client ids from here on that were sent so far, and never
    /// will: it is told to pass over them, once this is written down. More of its answers may be to
    /// come, so nothing else is settled.
    NotProcessed {
        /// The first of them.
        from: u64,
    },
    /// The venue has processed every request that was sent before a question, and its answers came
    /// before this message: what has none was ignored in silence.
    AnsweredBelow {
        /// The first client id that was not used when the question was sent.
        below: u64,
        /// When it was sent, for cancels, which have no ids.
        asked_ns: u64,
    },
    /// A mass cancel is done, and has canceled so many orders, of which each has a message of its
    /// own, before this one or behind it.
    MassCanceled {
        /// The client id of the mass cancel.
        id: u64,
        /// Orders.
        count: u32,
    },
    /// The venue does not know the order. It may not know it yet: a request for a status may
    /// overtake the order within the venue.
    Unknown {
        /// The order.
        key: OrderKey,
    },
    /// Nothing about an order.
    Other,
}

impl VenueMessage {
    /// An answer without terms that leaves its order alive.
    pub const fn answer(key: OrderKey, event: VenueEvent) -> Self {
        Self::Answer { key, event, terms: StatedTerms::None, is_dead: false }
    }
}
