//! A venue's session behind one interface: bytes in, what they say about orders out, requests as
//! bytes.
//!
//! Each protocol answers in its own way which requests it had processed before the line broke. Here
//! the answer is one message, [`VenueMessage::Settled`], behind which orders may be sent. OUCH 5.0
//! ([`OuchClient`](crate::ouch::OuchClient)) makes it of the answer to an account query, OUCH 4.2
//! ([`Ouch42Client`](crate::ouch::Ouch42Client)) of that to an order which must be refused, FIX
//! ([`FixClient`](crate::fix::FixClient)) of the answer to a TestRequest, before which the venue
//! has asked for what it misses, BOE ([`BoeOrderClient`](crate::boe::BoeOrderClient)) of the end of
//! the replay, iLink 3 ([`Ilink3Client`](crate::ilink3::Ilink3Client)) of the answer to a request
//! for messages again.

use core::fmt;

use market::{Price, Side, Symbol};

use crate::ReasonCodes;
use crate::journal::SessionMark;
use crate::orders::{Instructions, OrderField, OrderRules, OrderType, VenueMessage};
use crate::risk::InstrumentIdx;

/// An order as it goes to the venue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireOrder {
    /// The client id, of [`VenueSession::next_id`].
    pub id: u64,
    /// The instrument, by its position in the configuration.
    pub instrument: InstrumentIdx,
    /// The instrument, by the venue's name.
    pub symbol: Symbol,
    /// Buy or sell.
    pub side: Side,
    /// It may be more than the position: a sale is then marked short.
    pub is_short: bool,
    /// Shares; of a replace the intended total with executions.
    pub qty: u32,
    /// The worst price; that of a market order says nothing, and no message has it.
    pub price: Price,
    /// How it is priced, how long it lives, and what else it says; of a replace those of the order.
    pub instructions: Instructions,
}

/// What decides whether a protocol can say an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderTerms {
    /// Shares; of a replace the intended total with executions.
    pub qty: u32,
    /// The worst price; that of a market order says nothing.
    pub price: Price,
    /// How it is priced, how long it lives, and what else it says.
    pub instructions: Instructions,
}

impl OrderTerms {
    /// Those of a limit order that says nothing else.
    pub const fn limit(qty: u32, price: Price) -> Self {
        Self { qty, price, instructions: Instructions::PLAIN }
    }

    /// Whether the price is one of 1 to `max`, or says nothing.
    #[inline]
    pub(crate) fn has_price(&self, max: i64) -> bool {
        self.instructions.order_type == OrderType::Market || (1..=max).contains(&self.price.0)
    }
}

impl WireOrder {
    /// What decides whether a protocol can say it.
    #[inline]
    pub const fn terms(&self) -> OrderTerms {
        OrderTerms { qty: self.qty, price: self.price, instructions: self.instructions }
    }
}

/// The order that a cancel, a replace or a question names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireTarget {
    /// Its last accepted client id.
    pub id: u64,
    /// The venue's id, once it has told one.
    pub venue_id: Option<u64>,
    /// The instrument, by its position in the configuration.
    pub instrument: InstrumentIdx,
    /// The instrument, by the venue's name.
    pub symbol: Symbol,
    /// Buy or sell.
    pub side: Side,
    /// It is a sale that was marked short.
    pub is_short: bool,
    /// The intended total with executions.
    pub qty: u32,
}

/// What a session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The login was accepted. It comes once more where a gap shows behind it.
    LoggedIn {
        /// Where the session stands: for the journal.
        mark: SessionMark,
        /// Messages were lost at the venue, or are no longer there: a person must compare.
        is_gap: bool,
    },
    /// A message of the venue that cannot be read was passed over, after it had come on
    /// [`READ_ATTEMPTS`](super::READ_ATTEMPTS) connections: what it said of an order is lost here,
    /// and a person must compare. [`VenueSession::unread`] has its bytes.
    Unread {
        /// Its number.
        number: u64,
    },
    /// A message of the venue. The session takes orders from [`VenueMessage::Settled`] on.
    Message {
        /// Its number in the session, 0 where it has none; that of a matching unit is a
        /// [`UnitNumbers::number`](crate::journal::UnitNumbers::number).
        number: u64,
        /// What it says.
        message: VenueMessage,
    },
    /// The session is over for good; the next login begins another one.
    Ended,
}

/// The venue, or its line, broke a rule: the connection must be closed. The text names the rule,
/// and is safe for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionError {
    text: String,
    is_gap: bool,
}

impl SessionError {
    /// The sentence of `error`.
    pub fn new(error: impl fmt::Display) -> Self {
        Self { text: error.to_string(), is_gap: false }
    }

    /// The sentence of `error`, by which one side does not know what the other has: no order may
    /// pass until a person has compared.
    pub fn gap(error: impl fmt::Display) -> Self {
        Self { is_gap: true, ..Self::new(error) }
    }

    /// Whether a person must compare before the next order.
    pub const fn is_gap(&self) -> bool {
        self.is_gap
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl core::error::Error for SessionError {}

/// Why a request was not written. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The session is not logged in, or has not settled.
    Closed,
    /// The protocol cannot say it: a price or a quantity is out of its range.
    Range,
    /// The protocol cannot say what the order has in this field.
    Field(OrderField),
    /// The ids of the day are used up.
    Ids,
    /// The output has no room: the line takes less than is sent.
    Room,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the session takes no orders now",
            Self::Range => "the venue's protocol has no such price or quantity",
            Self::Field(field) => return write!(f, "the venue's protocol cannot say this {field}"),
            Self::Ids => "the ids of the day are used up",
            Self::Room => "the line takes less than is sent",
        })
    }
}

impl core::error::Error for SendError {}

/// One session of a venue, over any number of connections, one after the other. Bytes to send wait
/// in [`VenueSession::to_send`]. No call allocates after construction, but for an error that ends
/// the connection.
pub trait VenueSession: fmt::Debug {
    /// How the venue answers where venues differ.
    fn rules(&self) -> OrderRules;

    /// Whose codes the reasons of its messages are. By default codes without names.
    fn reason_codes(&self) -> Option<ReasonCodes> {
        None
    }

    /// Has the first login go on at `mark`, that of the journal, instead of at the day's begin.
    fn resume(&mut self, mark: &SessionMark);

    /// Behind [`resume`](VenueSession::resume), where the venue numbers by matching unit: the last
    /// number of `unit` that the journal has. By default nothing, because other venues have one
    /// number.
    fn resume_unit(&mut self, unit: u8, sequence: u32) {
        let _ = (unit, sequence);
    }

    /// The wall clock has stepped: from now on this is added to the clock of the calls for the time
    /// since 1970. By default nothing, because the protocol has no time of day.
    fn set_epoch_offset_ns(&mut self, epoch_offset_ns: u64) {
        let _ = epoch_offset_ns;
    }

    /// Where the session stands. What it sends must not leave before the journal has the mark's
    /// next id.
    fn mark(&self) -> SessionMark;

    /// A connection was made: writes the login.
    ///
    /// # Errors
    ///
    /// There is no room for it, or the session's hours are over.
    fn connected(&mut self, now_ns: u64) -> Result<(), SessionError>;

    /// The connection is gone.
    fn disconnected(&mut self);

    /// Takes one message from the front of `input`; `None` where it is used up. Call it until then.
    ///
    /// # Errors
    ///
    /// The venue broke a rule, or refused the login: the caller closes the connection.
    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, SessionError>;

    /// Heartbeats and timeouts. Call it in each turn.
    ///
    /// # Errors
    ///
    /// The venue has been silent for too long: the caller closes the connection.
    fn tick(&mut self, now_ns: u64) -> Result<(), SessionError>;

    /// Whether orders may be sent.
    fn is_open(&self) -> bool;

    /// The id that the next order or replace takes, if it is written.
    fn next_id(&self) -> u64;

    /// The next id was written down and is not sent: no request takes it.
    fn skip_id(&mut self, now_ns: u64);

    /// Whether [`VenueSession::new_order`] could write such an order. Asked before the journal is
    /// written, so that afterwards only a broken line can stop it.
    fn may_send(&self, terms: &OrderTerms) -> Result<(), SendError>;

    /// Whether a cancel, of one order or of all, could be written. Asked before the journal is
    /// written, so that a line that has stopped reading does not fill it.
    fn may_cancel(&self) -> Result<(), SendError>;

    /// Writes an order.
    fn new_order(&mut self, now_ns: u64, order: &WireOrder) -> Result<(), SendError>;

    /// Writes a replace of `target` by `order`.
    fn replace_order(&mut self, now_ns: u64, target: &WireTarget, order: &WireOrder) -> Result<(), SendError>;

    /// Writes a cancel of all that is open.
    fn cancel_order(&mut self, now_ns: u64, target: &WireTarget) -> Result<(), SendError>;

    /// Writes a cancel of all orders of the firm, where the protocol has one. `false` where it has
    /// none, and each order must be canceled.
    fn cancel_all(&mut self, now_ns: u64) -> Result<bool, SendError>;

    /// Asks the venue what became of an order without an answer. `false` where the protocol has no
    /// such question, and a reconnect must answer it.
    fn ask_status(&mut self, now_ns: u64, target: &WireTarget) -> Result<bool, SendError>;

    /// The bytes of the message that [`SessionEvent::Unread`] told of last. By default none.
    fn unread(&self) -> &[u8] {
        &[]
    }

    /// Asks the venue to end the connection.
    fn log_out(&mut self, now_ns: u64);

    /// Bytes to send, in order. Call [`VenueSession::sent`] with as many as the line took.
    fn to_send(&self) -> &[u8];

    /// The line took `len` bytes of [`VenueSession::to_send`].
    fn sent(&mut self, len: usize);
}
