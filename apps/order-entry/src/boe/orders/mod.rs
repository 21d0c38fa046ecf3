//! A client's session of BOE, either version, behind the interface of all protocols: login with the
//! last number of each matching unit, the replay, heartbeats, and the venue's messages as
//! [`VenueMessage`]s.
//!
//! ```text
//!  orders 41, 42 ──▶ the line breaks
//!  login, units ───▶ ◀── 41 accepted ◀── Replay Complete: 42 has never been
//! ```
//!
//! The venue replays all but its rejects. So what has no answer at Replay Complete was rejected, or
//! has not arrived: it is not at work, and will not be.

mod error;
mod read;
mod venue;
mod words;

use core::fmt;

pub use self::error::BoeClientError;
pub use self::words::{BoeFirm, OrderWords, SelfMatchRule};
use super::{BoeError, Client, ClientConfig, ClientEvent, LogoutReason, Message, V2, V3};
use crate::journal::{SessionMark, UnitNumbers};
use crate::orders::{OrderRules, VenueMessage};
use crate::session::{Outbox, SessionEvent, Unread};

/// Bytes that may wait for the line: orders, a login, heartbeats.
const OUT_LEN: usize = 64 * 1_024;
/// Bytes of the longest message to the venue, without its header.
const BODY_LEN: usize = 160;

/// A client of version 2.
pub type Boe2Client = BoeOrderClient<V2>;
/// A client of version 3.
pub type Boe3Client = BoeOrderClient<V3>;

/// One port's session, over any number of connections, one after the other. Bytes to send wait in
/// [`VenueSession::to_send`](crate::session::VenueSession::to_send). All memory, some 130 KiB, is
/// allocated at construction.
pub struct BoeOrderClient<W> {
    client: Client<W>,
    firm: BoeFirm,
    next_id: u64,
    /// The journal's numbers are of this protocol.
    has_numbers: bool,
    /// The message behind the gap that was told before it.
    behind_gap: Option<SessionEvent>,
    unread: Unread,
    out: Outbox,
}

impl<W> fmt::Debug for BoeOrderClient<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoeOrderClient")
            .field("firm", &self.firm)
            .field("next_id", &self.next_id)
            .finish_non_exhaustive()
    }
}

/// What becomes of an application message, once it is read.
enum Taken {
    Said(Option<(u64, VenueMessage)>),
    /// It cannot be read, and was passed over.
    PassedOver,
}

impl<W: OrderWords> BoeOrderClient<W> {
    /// A session that begins with the day. Allocates.
    pub fn new(config: ClientConfig, firm: BoeFirm) -> Self {
        Self {
            client: Client::new(config).returning(W::returns()),
            firm,
            next_id: 1,
            has_numbers: false,
            behind_gap: None,
            unread: Unread::default(),
            out: Outbox::new(OUT_LEN),
        }
    }

    /// How a venue of BOE answers: each replace has its answer, and no message asks for an order's
    /// state.
    pub const fn rules() -> OrderRules {
        OrderRules { full_fill_voids_replaces: false, has_status: false }
    }

    fn resume(&mut self, mark: &SessionMark) {
        self.has_numbers = mark.session == W::NAME;
        self.next_id = mark.next_id.max(1);
    }

    /// Units of another protocol's journal say nothing here.
    fn resume_unit(&mut self, unit: u8, sequence: u32) {
        if self.has_numbers {
            self.client.set_received(unit, sequence);
        }
    }

    const fn mark(&self) -> SessionMark {
        SessionMark { session: W::NAME, next_inbound: 0, next_id: self.next_id }
    }

    fn connected(&mut self, now_ns: u64) -> Result<(), BoeClientError> {
        self.forget_connection();
        let Self { client, out, .. } = self;
        Ok(out.write(|output| client.connect(now_ns, output))?)
    }

    fn disconnected(&mut self) {
        self.client.disconnected();
        self.forget_connection();
    }

    fn forget_connection(&mut self) {
        self.behind_gap = None;
        self.out.clear();
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, BoeClientError> {
        if let Some(event) = self.behind_gap.take() {
            return Ok(Some(event));
        }
        loop {
            let Some(event) = self.client.receive(now_ns, input)? else { return Ok(None) };
            return Ok(Some(match event {
                ClientEvent::LoggedIn { .. } => SessionEvent::LoggedIn { mark: self.mark(), is_gap: false },
                ClientEvent::LoginRejected { status, text } => {
                    return Err(BoeClientError::LoginRejected { status, text });
                }
                // No id is known to be processed but by its own answer, so each that has none was
                // not, or was rejected.
                ClientEvent::ReplayComplete => {
                    let message = VenueMessage::Settled { next_id: 1, is_final: true };
                    SessionEvent::Message { number: 0, message }
                }
                ClientEvent::ReplayIncomplete { .. } => self.replay_was_short(),
                ClientEvent::Message(message) => {
                    let (unit, sequence) = numbered::<W>(&message);
                    let taken = take::<W>(&mut self.unread, &message);
                    self.learn(unit, sequence, taken)?
                }
                ClientEvent::Logout { reason: LogoutReason::END_OF_DAY, .. } => {
                    self.client.begin_day();
                    SessionEvent::Ended
                }
                ClientEvent::Logout { reason, text } => return Err(BoeClientError::Logout { reason, text }),
                ClientEvent::Heartbeat => continue,
            }));
        }
    }

    /// Messages that the login told did not come: a gap. What has no answer stays in doubt, because
    /// the answer may be among them.
    fn replay_was_short(&mut self) -> SessionEvent {
        let message = VenueMessage::Settled { next_id: self.next_id, is_final: false };
        self.behind_gap = Some(SessionEvent::Message { number: 0, message });
        SessionEvent::LoggedIn { mark: self.mark(), is_gap: true }
    }

    fn learn(
        &mut self,
        unit: u8,
        sequence: u32,
        taken: Result<Taken, BoeError>,
    ) -> Result<SessionEvent, BoeClientError> {
        let number = UnitNumbers::number(unit, sequence);
        match taken {
            Ok(Taken::Said(None)) => Ok(SessionEvent::Message { number, message: VenueMessage::Other }),
            Ok(Taken::Said(Some((id, message)))) => Ok(self.of_order(number, id, message)),
            Ok(Taken::PassedOver) => Ok(SessionEvent::Unread { number }),
            Err(error) => {
                if sequence > 0 {
                    // The next login asks for it again.
                    self.client.set_received(unit, sequence - 1);
                }
                Err(error.into())
            }
        }
    }

    /// An answer to an id that was not used yet tells a gap first: a power cut took the journal's
    /// end, or another program has used the port. Ids go on behind it, because the venue refuses
    /// one that it has seen.
    fn of_order(&mut self, number: u64, id: u64, message: VenueMessage) -> SessionEvent {
        let event = SessionEvent::Message { number, message };
        if id < self.next_id {
            return event;
        }
        self.next_id = id.saturating_add(1);
        self.behind_gap = Some(event);
        SessionEvent::LoggedIn { mark: self.mark(), is_gap: true }
    }

    /// Sends a message, and returns whether there was room.
    fn send(&mut self, now_ns: u64, kind: u16, body: &[u8]) -> Result<(), BoeError> {
        let Self { client, out, .. } = self;
        out.write(|output| client.send(now_ns, kind, body, output)).map(drop)
    }
}

/// Unit and number of a message; a number of 0 where it has none.
fn numbered<W: OrderWords>(message: &Message<'_>) -> (u8, u32) {
    (message.unit, if W::is_sequenced(message.kind) { message.sequence } else { 0 })
}

/// Reads a message. One that has no number is not sent again, and is not waited for: the end of the
/// next replay settles what it was about.
fn take<W: OrderWords>(unread: &mut Unread, message: &Message<'_>) -> Result<Taken, BoeError> {
    let (unit, sequence) = numbered::<W>(message);
    match W::read(message) {
        Ok(said) => Ok(Taken::Said(said)),
        Err(_) if sequence > 0 && unread.is_to_be_passed_over(UnitNumbers::number(unit, sequence), message.body) => {
            Ok(Taken::PassedOver)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
