//! A drop copy by FIX: execution reports of the trades of another session, by whatever protocol
//! that one enters its orders.
//!
//! ```text
//!  Logon, number 1 ───▶ ◀─── Logon, number n: 1 to n - 1 are missing here
//!  ResendRequest 1 ───▶ ◀─── the day's reports, then each as it happens
//! ```
//!
//! No number is kept from one process to the next: the venue resends the day, and the caller knows
//! which trades it has. Where the venue calls our number too low, the next connection begins with
//! the one that it expects.

use core::fmt;

use market::{Price, Side, Symbol};

use super::client::{shares, to_price, too_low};
use super::codec::{Message, parse_number};
use super::orders::{Defect, ExecutionReport, OrderOutcome, Reason, Side as FixSide};
use super::session::{End, Event, MemoryStore, MessageStore, Now, Role, Session, SessionConfig};
use super::tag::tags;
use crate::orders::ExecId;
use crate::session::{Escaped, SessionError};
use crate::{Text, cl_ord_id, ouch};

/// How far our number rises where the venue calls it too low and names no other: the venue has what
/// is passed over filled as a gap.
const CLIMB: u64 = 10_000;

/// By which protocol the orders were entered whose trades are copied: it says how an order and an
/// execution are called in the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiedSession {
    /// FIX: the same ClOrdID (11) and ExecID (17).
    Fix,
    /// Cboe BOE, each version: the same ClOrdID, and the number of the execution in the digits of
    /// base 36.
    Boe,
    /// CME iLink 3: the same ClOrdID and ExecID.
    Ilink3,
    /// OUCH 4.2: the token, and the match number in decimal digits.
    Ouch42,
}

impl CopiedSession {
    /// The client id of an order; 0, which no order has, where it is not one of ours.
    fn id_of(self, cl_ord_id: &[u8]) -> u64 {
        let text = core::str::from_utf8(cl_ord_id).unwrap_or_default();
        match self {
            Self::Fix => parse_number(cl_ord_id).unwrap_or(0),
            Self::Boe | Self::Ilink3 => Text::zero_padded(text).map_or(0, |text| cl_ord_id::id_of(&text)),
            Self::Ouch42 => Text::new(text).map_or(0, |token| ouch::id_of_token(&token)),
        }
    }

    /// An execution by the name that the session's own messages give it.
    fn exec_of(self, exec_id: &[u8]) -> Option<ExecId> {
        match self {
            Self::Fix | Self::Ilink3 => Some(ExecId::from_text(exec_id)),
            Self::Boe => base_36(exec_id).map(ExecId::from_number),
            Self::Ouch42 => parse_number(exec_id).map(ExecId::from_number),
        }
    }
}

/// A trade, or one that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedTrade {
    /// The client id of its order; 0 where the order is not one of ours. Ids of other sessions, and
    /// of an earlier journal of ours, begin at 1 as well: compare the instrument and the side.
    pub id: u64,
    /// Its instrument; [`Symbol::NONE`] for a name that is longer than ours.
    pub symbol: Symbol,
    /// Its side.
    pub side: Side,
    /// The execution, as the order's own session names it; of a correction the one that it
    /// corrects.
    pub exec: ExecId,
    /// Its shares and price; `None` where it is taken back.
    pub terms: Option<(u32, Price)>,
    /// The terms are those of a correction, and this is its name; that of the execution where the
    /// copy has none that the order's own session would know.
    pub correction: Option<ExecId>,
}

/// Something that happened on the session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropCopyEvent {
    /// Both sides are logged on. The day's trades follow.
    LoggedOn,
    /// The copy of a trade.
    Trade(CopiedTrade),
    /// A copy that cannot be read, or some that the venue has passed over: a trade may be among
    /// them, so a person must compare. The session goes on.
    Unread(SessionError),
    /// The venue has used our number before, as after each start: close the connection, and call
    /// [`FixDropCopy::disconnected`]. The next one begins with the number that the venue expects.
    NumberUsed,
}

/// A session that reads drop copies, over any number of connections, one after the other.
#[derive(Debug)]
pub struct FixDropCopy {
    session: Session<MemoryStore>,
    of: CopiedSession,
    epoch_offset_ns: u64,
    /// The number with which the next connection begins, because the venue has used those before.
    next_out: Option<u64>,
    /// The venue's numbers have begun anew: the next connection reads from the first on.
    is_from_first: bool,
}

impl FixDropCopy {
    /// A session without a connection, for the copies of a session by `of`. The role is the
    /// initiator's. `epoch_offset_ns` is added to the clock of the calls for UTC. Allocates.
    pub fn new(config: SessionConfig, of: CopiedSession, epoch_offset_ns: u64) -> Self {
        let config = SessionConfig { role: Role::Initiator, ..config };
        // No message of the application is sent, so none is kept.
        let session = Session::new(config, MemoryStore::new(0, 0));
        Self { session, of, epoch_offset_ns, next_out: None, is_from_first: false }
    }

    /// The wall clock has stepped: this is added from now on.
    pub const fn set_epoch_offset_ns(&mut self, epoch_offset_ns: u64) {
        self.epoch_offset_ns = epoch_offset_ns;
    }

    const fn now(&self, now_ns: u64) -> Now {
        Now { steady_ns: now_ns, utc_ns: now_ns.saturating_add(self.epoch_offset_ns) }
    }

    /// A connection was made: the Logon is in [`FixDropCopy::to_send`].
    pub fn connected(&mut self, now_ns: u64) {
        let store = self.session.store_mut();
        if let Some(next_out) = self.next_out.take() {
            store.set_next_out(next_out);
        }
        if core::mem::take(&mut self.is_from_first) {
            store.set_next_in(1);
        }
        self.session.connected(self.now(now_ns));
    }

    /// The connection is gone.
    pub fn disconnected(&mut self) {
        self.session.disconnected();
    }

    /// Takes received bytes from the front of `input`, up to the next event; `None` where they are
    /// used up.
    ///
    /// # Errors
    ///
    /// The connection is over: close it, and call [`FixDropCopy::disconnected`].
    pub fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<DropCopyEvent>, SessionError> {
        let now = self.now(now_ns);
        loop {
            let taken = self.session.receive(now, input);
            *input = &input[taken..];
            let said = match self.session.poll(now) {
                Some(event) => said(&event, self.of),
                None if input.is_empty() => return Ok(None),
                None if taken == 0 => return Err(SessionError::new("the session has no room for a message")),
                None => continue,
            };
            match said {
                Said::Event(event) => return Ok(Some(event)),
                Said::End(end) => return self.ended(end).map(Some),
                Said::Nothing => (),
            }
        }
    }

    /// Heartbeats and timeouts.
    ///
    /// # Errors
    ///
    /// As [`FixDropCopy::receive`].
    pub fn tick(&mut self, now_ns: u64) -> Result<(), SessionError> {
        match self.session.tick(self.now(now_ns)) {
            Some(end) => self.ended(end).map(drop),
            None => Ok(()),
        }
    }

    /// Bytes to send, in order. Call [`FixDropCopy::sent`] with as many as the line took.
    pub fn to_send(&self) -> &[u8] {
        self.session.output()
    }

    /// The line took `len` bytes.
    pub fn sent(&mut self, len: usize) {
        self.session.consume(len);
    }

    fn ended(&mut self, end: End) -> Result<DropCopyEvent, SessionError> {
        match (end, self.session.logout_text()) {
            (End::PeerLoggedOut, text @ [_, ..]) => {
                let Some(expected) = too_low(text) else {
                    return Err(SessionError::new(format_args!("the venue logged out: {}", Escaped(text))));
                };
                let ours = self.session.store().next_out();
                self.next_out = Some(expected.filter(|it| *it > 0).unwrap_or(ours.saturating_add(CLIMB)));
                Ok(DropCopyEvent::NumberUsed)
            }
            (End::SeqTooLow, _) => {
                self.is_from_first = true;
                Err(SessionError::new(end))
            }
            (end, _) => Err(SessionError::new(end)),
        }
    }
}

/// What an event of the session says.
enum Said {
    Event(DropCopyEvent),
    End(End),
    Nothing,
}

fn said(event: &Event<'_>, of: CopiedSession) -> Said {
    match event {
        Event::LoggedOn => Said::Event(DropCopyEvent::LoggedOn),
        Event::Message { message, seq, .. } if message.msg_type() == b"8" => match trade(message, of) {
            Ok(Some(trade)) => Said::Event(DropCopyEvent::Trade(trade)),
            Ok(None) => Said::Nothing,
            Err(defect) => unread(*seq, defect),
        },
        Event::Refused { msg_type: b'8', seq, defect } => unread(*seq, *defect),
        Event::Skipped { from } => {
            let why = format_args!("the venue passes over its copies from number {from} on (SequenceReset)");
            Said::Event(DropCopyEvent::Unread(SessionError::new(why)))
        }
        Event::Disconnect(end) => Said::End(*end),
        _ => Said::Nothing,
    }
}

fn unread(seq: u64, defect: impl fmt::Display) -> Said {
    let why = format_args!("the venue's report {seq} cannot be read and is passed over: {defect}");
    Said::Event(DropCopyEvent::Unread(SessionError::new(why)))
}

/// The trade in a report; `None` in one about anything else.
fn trade(message: &Message<'_>, of: CopiedSession) -> Result<Option<CopiedTrade>, Defect> {
    let report = ExecutionReport::parse(message)?;
    let exec = |tag, text: Option<&[u8]>| {
        let text = text.ok_or(Defect { tag, reason: Reason::Missing })?;
        of.exec_of(text).ok_or(Defect { tag, reason: Reason::Value })
    };
    let id = of.id_of(report.cl_ord_id.unwrap_or_default());
    let symbol = core::str::from_utf8(report.symbol).ok().and_then(Symbol::new).unwrap_or(Symbol::NONE);
    let side = if report.side == FixSide::Buy { Side::Buy } else { Side::Sell };
    let copy = |exec, terms| CopiedTrade { id, symbol, side, exec, terms, correction: None };
    Ok(match report.outcome() {
        outcome @ (OrderOutcome::Fill | OrderOutcome::FillCorrected) => {
            let terms = (shares(tags::LAST_QTY, report.last_qty)?, to_price(tags::LAST_PX, report.last_px)?);
            let name = exec(tags::EXEC_ID, Some(report.exec_id));
            if outcome == OrderOutcome::Fill {
                return Ok(Some(copy(name?, Some(terms))));
            }
            let corrected = exec(tags::EXEC_REF_ID, report.exec_ref_id)?;
            Some(CopiedTrade { correction: Some(name.unwrap_or(corrected)), ..copy(corrected, Some(terms)) })
        }
        OrderOutcome::FillCanceled => Some(copy(exec(tags::EXEC_REF_ID, report.exec_ref_id)?, None)),
        _ => None,
    })
}

/// A number in the digits of base 36, as Cboe's FIX has those that BOE has in binary.
fn base_36(digits: &[u8]) -> Option<u64> {
    let is_one = !digits.is_empty() && digits.iter().all(|digit| digit.is_ascii_digit() || digit.is_ascii_uppercase());
    let text = core::str::from_utf8(digits).ok().filter(|_| is_one)?;
    u64::from_str_radix(text, 36).ok()
}

#[cfg(test)]
mod tests;
