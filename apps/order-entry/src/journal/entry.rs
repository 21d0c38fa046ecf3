//! What an order gateway records, as the payloads of records.

use arrayvec::ArrayVec;
use market::{Price, Side, Symbol};

use super::fields::{Reader, Writer};
use crate::orders::{ExecId, Instructions, OrderKey, VenueEvent, VenueStatus};
use crate::risk::{InstrumentIdx, KillCause, Level, Limit, RiskReject, StrategyIdx};
use crate::text::Text;

/// A payload of an [`Entry`].
pub type EntryBytes = ArrayVec<u8, 64>;

/// The name of a strategy, padded with zeros.
pub type StrategyName = Text<32>;

/// That of a strategy without one.
pub const NO_NAME: StrategyName = Text([0; 32]);

/// What is about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// An order.
    New {
        /// The client id.
        id: u64,
        /// What is traded, by its name: positions of instruments may change between runs.
        symbol: Symbol,
        /// What is traded, by the position of its limits.
        instrument: InstrumentIdx,
        /// Buy or sell.
        side: Side,
        /// A sale is marked short.
        is_short: bool,
        /// Shares.
        qty: u32,
        /// The price, or that at which a market order was valued.
        price: Price,
        /// Whose it is.
        strategy: StrategyIdx,
        /// How it is priced, how long it lives, and what else it says.
        instructions: Instructions,
    },
    /// A replace.
    Replace {
        /// The client id that it names.
        target: u64,
        /// Its own client id.
        id: u64,
        /// The intended total with executions.
        qty: u32,
        /// The new price.
        price: Price,
    },
    /// A cancel.
    Cancel {
        /// The client id that it names.
        target: u64,
    },
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionMark {
    /// The venue's name for the session, padded with spaces; zeros where there is none, and the
    /// next login begins one.
    pub session: [u8; 10],
    /// The number of the next message from the venue; 0 where matching units number, of which
    /// [`UnitNumbers`](super::UnitNumbers) has each.
    pub next_inbound: u64,
    /// The next client id that was not used.
    pub next_id: u64,
}

/// One entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entry {
    /// Before the send.
    Intent(Intent),
    /// The order of this client id was not sent after all.
    Unsent {
        /// The client id.
        id: u64,
    },
    /// What the venue said.
    Answer {
        /// The message's number in the session, where it has one and the record is the last of the
        /// message; else 0.
        number: u64,
        /// By what it named the order.
        key: OrderKey,
        /// What it said.
        event: VenueEvent,
    },
    /// The risk gate refused an order.
    Refused {
        /// What was ordered.
        instrument: InstrumentIdx,
        /// The limit, its value and the order's.
        reject: RiskReject,
    },
    /// A session was accepted, or a position in it is marked.
    Session(SessionMark),
    /// The gate was armed, or disarmed.
    Armed(bool),
    /// Limits of this version are in force.
    Limits {
        /// Their version.
        version: u64,
    },
    /// A person unblocked the instrument.
    Unblocked {
        /// By its name, or [`Symbol::NONE`] in a journal of version 1.
        symbol: Symbol,
        /// By the position of its limits.
        instrument: InstrumentIdx,
    },
    /// The session's message of this number was processed, and said nothing about an order.
    Received {
        /// Its number.
        number: u64,
    },
    /// From now on nothing is sent without the grants of a standby.
    Standby {
        /// Its name; 0 where there is none any more.
        id: u64,
    },
    /// The kill switch was thrown, at the record's time. It holds until [`Entry::Armed`] lifts it.
    Killed(KillCause),
    /// What the venue said may be lost: live orders are in doubt until it has told their status.
    Gap,
    /// What the account held of an instrument before the journal's first order. A later record
    /// takes the place of an earlier one.
    Opening {
        /// The instrument, by its name.
        symbol: Symbol,
        /// By the position of its limits.
        instrument: InstrumentIdx,
        /// Shares; below zero for a short position.
        position: i64,
    },
    /// A message of the venue could not be read, and was passed over. Its bytes follow in the
    /// payload, as many as a record takes.
    Unread {
        /// Its number in the session.
        number: u64,
    },
    /// A strategy was stopped, or goes on. No other record changes it.
    Strategy {
        /// By its name: positions of strategies may change between runs. [`NO_NAME`] where it has
        /// none, as in a journal of an older program.
        name: StrategyName,
        /// By its position in the limits.
        strategy: StrategyIdx,
        /// It was stopped.
        is_stopped: bool,
    },
    /// From here on orders that name this position are the strategy's. Where a journal says nothing
    /// of a position, positions hold, as in one of an older program.
    Declared {
        /// Its name; [`NO_NAME`] where the position has none any more.
        name: StrategyName,
        /// Its position in the limits.
        strategy: StrategyIdx,
    },
    /// A person had all orders canceled that were opened before this record: who goes on from this
    /// journal cancels those that live.
    CanceledAll,
}

impl Entry {
    /// The kind of a new order's record.
    pub(super) const NEW: u16 = 1;

    /// The record's kind.
    pub const fn kind(&self) -> u16 {
        match self {
            Self::Intent(Intent::New { .. }) => Self::NEW,
            Self::Intent(Intent::Replace { .. }) => 2,
            Self::Intent(Intent::Cancel { .. }) => 3,
            Self::Unsent { .. } => 4,
            Self::Answer { .. } => 5,
            Self::Refused { .. } => 6,
            Self::Session(_) => 7,
            Self::Armed(_) => 8,
            Self::Limits { .. } => 9,
            Self::Unblocked { .. } => 10,
            Self::Received { .. } => 11,
            Self::Standby { .. } => 12,
            Self::Killed(_) => 13,
            Self::Gap => 14,
            Self::Unread { .. } => 15,
            Self::Opening { .. } => 16,
            Self::Strategy { .. } => 17,
            Self::Declared { .. } => 18,
            Self::CanceledAll => 19,
        }
    }

    /// The record's payload: at most 64 bytes, on the stack.
    pub fn encode(&self) -> EntryBytes {
        let mut out = Writer(EntryBytes::new());
        match *self {
            Self::Intent(intent) => encode_intent(&intent, &mut out),
            Self::Unsent { id } => out.put(id.to_le_bytes()),
            Self::Answer { number, key, event } => {
                out.put(number.to_le_bytes());
                let (tag, id) = match key {
                    OrderKey::Client(id) => (0, id),
                    OrderKey::Venue(id) => (1, id),
                };
                out.put([tag]);
                out.put(id.to_le_bytes());
                encode_event(&event, &mut out);
            }
            Self::Refused { instrument, reject } => {
                out.put(instrument.0.to_le_bytes());
                out.put([reject.limit as u8]);
                out.put(reject.allowed.to_le_bytes());
                out.put(reject.value.to_le_bytes());
                encode_level(reject.level, &mut out);
            }
            Self::Session(mark) => {
                out.put(mark.session);
                out.put(mark.next_inbound.to_le_bytes());
                out.put(mark.next_id.to_le_bytes());
            }
            Self::Armed(is_armed) => out.put([u8::from(is_armed)]),
            Self::Limits { version } => out.put(version.to_le_bytes()),
            Self::Unblocked { symbol, instrument } => {
                out.put(symbol.0);
                out.put(instrument.0.to_le_bytes());
            }
            Self::Received { number } => out.put(number.to_le_bytes()),
            Self::Standby { id } => out.put(id.to_le_bytes()),
            Self::Killed(cause) => out.put([cause as u8]),
            Self::Gap | Self::CanceledAll => (),
            Self::Unread { number } => out.put(number.to_le_bytes()),
            Self::Opening { symbol, instrument, position } => {
                out.put(symbol.0);
                out.put(instrument.0.to_le_bytes());
                out.put(position.to_le_bytes());
            }
            Self::Strategy { name, strategy, is_stopped } => {
                out.put(strategy.0.to_le_bytes());
                out.put([u8::from(is_stopped)]);
                if name != NO_NAME {
                    out.put(name.0);
                }
            }
            Self::Declared { name, strategy } => {
                out.put(strategy.0.to_le_bytes());
                out.put(name.0);
            }
        }
        out.0
    }

    /// The entry of a record; `None` where the kind is not known, or the payload is not its own.
    pub fn decode(kind: u16, payload: &[u8]) -> Option<Self> {
        let mut from = Reader(payload);
        let entry = match kind {
            1..=3 => Self::Intent(decode_intent(kind, &mut from)?),
            4 => Self::Unsent { id: from.u64()? },
            5 => {
                let number = from.u64()?;
                let tag = from.u8()?;
                let id = from.u64()?;
                let key = if tag == 0 { OrderKey::Client(id) } else { OrderKey::Venue(id) };
                Self::Answer { number, key, event: decode_event(&mut from)? }
            }
            6 => {
                let instrument = InstrumentIdx(from.u32()?);
                let limit = *Limit::ALL.get(usize::from(from.u8()?))?;
                let (allowed, value) = (from.i64()?, from.i64()?);
                Self::Refused {
                    instrument,
                    reject: RiskReject { limit, allowed, value, level: decode_level(&mut from)? },
                }
            }
            7 => {
                let session = from.take()?;
                Self::Session(SessionMark { session, next_inbound: from.u64()?, next_id: from.u64()? })
            }
            8 => Self::Armed(from.u8()? != 0),
            9 => Self::Limits { version: from.u64()? },
            // Of version 1.
            10 if payload.len() == 4 => {
                Self::Unblocked { symbol: Symbol::NONE, instrument: InstrumentIdx(from.u32()?) }
            }
            10 => Self::Unblocked { symbol: Symbol(from.take()?), instrument: InstrumentIdx(from.u32()?) },
            11 => Self::Received { number: from.u64()? },
            12 => Self::Standby { id: from.u64()? },
            13 => Self::Killed(KillCause::from_wire(from.u8()?)),
            14 => Self::Gap,
            19 => Self::CanceledAll,
            15 => {
                let number = from.u64()?;
                from = Reader(&[]);
                Self::Unread { number }
            }
            16 => {
                let (symbol, instrument) = (Symbol(from.take()?), InstrumentIdx(from.u32()?));
                Self::Opening { symbol, instrument, position: from.i64()? }
            }
            17 => {
                let strategy = StrategyIdx(u16::from_le_bytes(from.take()?));
                let is_stopped = from.u8()? != 0;
                let name = if from.0.is_empty() { NO_NAME } else { Text(from.take()?) };
                Self::Strategy { name, strategy, is_stopped }
            }
            18 => {
                let strategy = StrategyIdx(u16::from_le_bytes(from.take()?));
                Self::Declared { name: Text(from.take()?), strategy }
            }
            _ => return None,
        };
        from.0.is_empty().then_some(entry)
    }
}

/// The side of a short sale. What does not know it reads a sale.
const SHORT: u8 = b'T';

/// The byte of a new order's record for its side.
pub(super) const fn side_byte(side: Side, is_short: bool) -> u8 {
    match side {
        Side::Sell if is_short => SHORT,
        _ => side.to_wire(),
    }
}

fn encode_intent(intent: &Intent, out: &mut Writer) {
    match *intent {
        Intent::New { id, symbol, instrument, side, is_short, qty, price, strategy, instructions } => {
            out.put(id.to_le_bytes());
            out.put(symbol.0);
            out.put(instrument.0.to_le_bytes());
            out.put([side_byte(side, is_short)]);
            out.terms(qty, price);
            if strategy != StrategyIdx(0) || !instructions.is_plain() {
                out.put(strategy.0.to_le_bytes());
            }
            encode_instructions(&instructions, out);
        }
        Intent::Replace { target, id, qty, price } => {
            out.put(target.to_le_bytes());
            out.put(id.to_le_bytes());
            out.terms(qty, price);
        }
        Intent::Cancel { target } => out.put(target.to_le_bytes()),
    }
}

fn decode_intent(kind: u16, from: &mut Reader<'_>) -> Option<Intent> {
    let first = from.u64()?;
    Some(match kind {
        1 => {
            let symbol = Symbol(from.take()?);
            let instrument = InstrumentIdx(from.u32()?);
            let byte = from.u8()?;
            let (side, is_short) = (Side::from_wire(byte), byte == SHORT);
            let (qty, price) = (from.u32()?, from.price()?);
            let strategy = StrategyIdx(if from.0.is_empty() { 0 } else { u16::from_le_bytes(from.take()?) });
            let instructions = decode_instructions(from)?;
            Intent::New { id: first, symbol, instrument, side, is_short, qty, price, strategy, instructions }
        }
        2 => Intent::Replace { target: first, id: from.u64()?, qty: from.u32()?, price: from.price()? },
        _ => Intent::Cancel { target: first },
    })
}

/// Nothing of an order that says nothing, as in a journal of version 2; the offset of a peg and the
/// quantities where it has some.
fn encode_instructions(instructions: &Instructions, out: &mut Writer) {
    if instructions.is_plain() {
        return;
    }
    out.put([instructions.code()]);
    if instructions.peg_offset != 0 {
        out.put(instructions.peg_offset.to_le_bytes());
    }
    let (min_qty, shown) = instructions.quantities();
    if (min_qty, shown) != (0, 0) {
        out.put(min_qty.to_le_bytes());
        out.put(shown.to_le_bytes());
    }
}

fn decode_instructions(from: &mut Reader<'_>) -> Option<Instructions> {
    if from.0.is_empty() {
        return Some(Instructions::PLAIN);
    }
    let code = from.u8()?;
    let peg_offset = if Instructions::has_offset(code) { i32::from_le_bytes(from.take()?) } else { 0 };
    let quantities = if from.0.is_empty() { None } else { Some((from.u32()?, from.u32()?)) };
    let instructions = Instructions::from_code(code, quantities.unwrap_or_default(), peg_offset)?;
    // What says nothing is left out.
    (quantities != Some((0, 0)) && !instructions.is_plain()).then_some(instructions)
}

/// Whose limit it was. Nothing where no level has it, as in a journal that knew none.
fn encode_level(level: Option<Level>, out: &mut Writer) {
    match level {
        None => (),
        Some(Level::Account) => out.put([1]),
        Some(Level::Firm) => out.put([2]),
        Some(Level::Strategy(StrategyIdx(idx))) => {
            out.put([3]);
            out.put(idx.to_le_bytes());
        }
    }
}

fn decode_level(from: &mut Reader<'_>) -> Option<Option<Level>> {
    if from.0.is_empty() {
        return Some(None);
    }
    Some(Some(match from.u8()? {
        1 => Level::Account,
        2 => Level::Firm,
        3 => Level::Strategy(StrategyIdx(u16::from_le_bytes(from.take()?))),
        _ => return None,
    }))
}

fn encode_event(event: &VenueEvent, out: &mut Writer) {
    match *event {
        VenueEvent::Accepted { venue_id } => out.number(1, venue_id),
        VenueEvent::Rejected { reason } => out.number(2, u64::from(reason)),
        VenueEvent::Filled { exec, qty, price } => out.execution(3, exec, qty, price),
        VenueEvent::Reduced { by, reason } => {
            out.number(4, u64::from(reason));
            out.put(by.to_le_bytes());
        }
        VenueEvent::Canceled { reason } => out.number(5, u64::from(reason)),
        VenueEvent::CancelRefused { reason } => out.number(6, u64::from(reason)),
        VenueEvent::Replaced { id, venue_id } => {
            out.number(7, id);
            out.put(venue_id.to_le_bytes());
        }
        VenueEvent::ReplaceRefused { id, reason } => {
            out.number(8, id);
            out.put(reason.to_le_bytes());
        }
        VenueEvent::Restated { qty, price, reason } => {
            out.number(9, u64::from(reason));
            out.terms(qty, price);
        }
        VenueEvent::Busted { exec } => out.execution(10, exec, 0, Price(0)),
        VenueEvent::Corrected { exec, new_exec, qty, price } => {
            out.execution(13, exec, qty, price);
            out.put(new_exec.0.to_le_bytes());
        }
        VenueEvent::Status(status) => {
            out.number(12, u64::from(status.is_live));
            out.put(status.cum.to_le_bytes());
            out.put(status.leaves.to_le_bytes());
        }
    }
}

fn decode_event(from: &mut Reader<'_>) -> Option<VenueEvent> {
    let tag = from.u8()?;
    if matches!(tag, 3 | 10 | 11 | 13) {
        let exec = ExecId(u128::from_le_bytes(from.take()?));
        let (qty, price) = (from.u32()?, from.price()?);
        return Some(match tag {
            3 => VenueEvent::Filled { exec, qty, price },
            10 => VenueEvent::Busted { exec },
            // Of a journal that did not have the correction's own id.
            11 => VenueEvent::Corrected { exec, new_exec: exec, qty, price },
            _ => VenueEvent::Corrected { exec, new_exec: ExecId(u128::from_le_bytes(from.take()?)), qty, price },
        });
    }
    let number = from.u64()?;
    let reason = number as u16;
    Some(match tag {
        1 => VenueEvent::Accepted { venue_id: number },
        2 => VenueEvent::Rejected { reason },
        4 => VenueEvent::Reduced { reason, by: from.u32()? },
        5 => VenueEvent::Canceled { reason },
        6 => VenueEvent::CancelRefused { reason },
        7 => VenueEvent::Replaced { id: number, venue_id: from.u64()? },
        8 => VenueEvent::ReplaceRefused { id: number, reason: u16::from_le_bytes(from.take()?) },
        9 => VenueEvent::Restated { reason, qty: from.u32()?, price: from.price()? },
        12 => VenueEvent::Status(VenueStatus { is_live: number != 0, cum: from.u32()?, leaves: from.u32()? }),
        _ => return None,
    })
}
