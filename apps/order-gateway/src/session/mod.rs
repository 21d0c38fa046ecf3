//! The venue's session behind one interface: bytes in, answers out, requests as bytes.

mod ouch50;

use std::{error, fmt};

use market::{Price, Side, Symbol};
use order_entry::orders::{OrderKey, OrderRules, Query, StatedTerms, VenueEvent};
use order_entry::session::Output;

pub use ouch50::{Ouch50, Ouch50Config};

/// An order as it goes to the venue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireOrder {
    /// The client id, of [`Session::next_id`].
    pub id: u64,
    /// The instrument.
    pub symbol: Symbol,
    /// Buy or sell.
    pub side: Side,
    /// It may be more than the position: a sale is then marked short.
    pub is_short: bool,
    /// Shares.
    pub qty: u32,
    /// The limit.
    pub price: Price,
    /// It trades at once or never.
    pub is_ioc: bool,
}

/// What a session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The login was accepted. Answers from `next_inbound` on follow.
    LoggedIn {
        /// The venue's name for the session.
        session: [u8; 10],
        /// The number of the next message.
        next_inbound: u64,
        /// Messages were lost at the venue, or are no longer there: a person must compare.
        is_gap: bool,
    },
    /// All answers were received that the venue had, and it has processed every id below
    /// `next_id`, and none from there on. Orders may be sent.
    Recovered {
        /// The message's number in the session.
        number: u64,
        /// The first id that the venue has not seen.
        next_id: u64,
        /// No answer will come any more to a request below `next_id` that has none: the venue has
        /// ignored it in silence.
        is_final: bool,
    },
    /// The venue has processed every id below `below`, and its answers came before this message.
    AnsweredBelow {
        /// The message's number in the session.
        number: u64,
        /// The first id that the message says nothing about.
        below: u64,
    },
    /// About one order.
    Answer {
        /// The message's number in the session.
        number: u64,
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
    RequestRefused {
        /// The message's number in the session.
        number: u64,
        /// The request's id.
        id: u64,
        /// Why.
        reason: u16,
    },
    /// A message without effect on orders.
    Other {
        /// The message's number in the session.
        number: u64,
    },
    /// The session is over for good.
    Ended,
}

/// The venue, or its line, broke a rule: the connection must be closed. The text names the rule,
/// and is safe for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionError(pub String);

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for SessionError {}

/// Why a request was not written. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The session is not logged in, or has not recovered.
    Closed,
    /// The protocol cannot say it: a price or a quantity is out of its range.
    Range,
    /// The ids of the day are used up.
    Ids,
    /// The output has no room: the line takes less than is sent.
    Room,
}

/// One session of a venue, over any number of connections, one after the other.
pub trait Session: fmt::Debug {
    /// How the venue answers where venues differ.
    fn rules(&self) -> OrderRules;

    /// Where to go on after a restart: the session's name, the next message, the next free id.
    fn resume(&mut self, session: [u8; 10], next_inbound: u64, next_id: u64);

    /// A connection was made: writes the login.
    fn connected(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SessionError>;

    /// The connection is gone.
    fn disconnected(&mut self);

    /// Takes one message from the front of `input`; `None` where it is used up. What must be sent
    /// besides goes to `output`.
    fn receive(
        &mut self,
        now_ns: u64,
        input: &mut &[u8],
        output: &mut Output<'_>,
    ) -> Result<Option<SessionEvent>, SessionError>;

    /// Heartbeats and timeouts.
    fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), SessionError>;

    /// Whether orders may be sent.
    fn is_open(&self) -> bool;

    /// The id that the next order or replace takes, if it is written.
    fn next_id(&self) -> u64;

    /// The next id was written down and is not sent: no request takes it.
    fn skip_id(&mut self);

    /// Whether [`Session::new_order`] could write `order`. Asked before the journal is written, so
    /// that afterwards only a broken line can stop it.
    fn may_send(&self, qty: u32, price: Price, output: &Output<'_>) -> Result<(), SendError>;

    /// Writes an order.
    fn new_order(&mut self, now_ns: u64, order: &WireOrder, output: &mut Output<'_>) -> Result<(), SendError>;

    /// Writes a replace of `target` by `order`.
    fn replace(
        &mut self,
        now_ns: u64,
        target: u64,
        order: &WireOrder,
        output: &mut Output<'_>,
    ) -> Result<(), SendError>;

    /// Writes a cancel of all that is open.
    fn cancel(&mut self, now_ns: u64, target: u64, output: &mut Output<'_>) -> Result<(), SendError>;

    /// Writes a cancel of all orders of the firm, where the protocol has one. `false` where it has
    /// none, and each order must be canceled.
    fn cancel_all(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<bool, SendError>;

    /// Asks the venue what became of an order without an answer. `false` where the protocol has no
    /// such question, and a reconnect must answer it.
    fn ask_status(&mut self, now_ns: u64, query: &Query, output: &mut Output<'_>) -> Result<bool, SendError>;

    /// Asks the venue to end the connection.
    fn logout(&mut self, now_ns: u64, output: &mut Output<'_>);
}
