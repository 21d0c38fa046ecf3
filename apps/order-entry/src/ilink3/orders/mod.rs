//! A client's session of iLink 3 behind the interface of all protocols: negotiation and
//! establishment, the messages that the journal lacks, and the venue's messages as
//! [`VenueMessage`]s.
//!
//! ```text
//!  orders 41, 42 ──▶ the line breaks
//!  Establish, 43 ──▶ ◀── last number 17 ◀── not applied: 42
//!  from 16 on ─────▶ ◀── 16, 17: order 41 accepted
//! ```
//!
//! Client ids are our numbers. The venue tells right behind its acknowledgment which of them it has
//! not applied, but not that it has told all. So a connection begins with a request for messages
//! again, of what the journal lacks or of the last one: its answer comes behind that. What the
//! venue has not applied is skipped, once the journal has it: the venue tells it no more behind
//! that. Nothing is sent meanwhile that the venue could take for the decision to skip.
//!
//! Messages are delivered in order. What comes live behind a hole is dropped and asked for with the
//! hole, since nothing is ordered before the session has settled, and so little comes.

mod cancels;
mod error;
mod read;
mod venue;

use core::fmt;

use self::cancels::Cancels;
pub use self::error::IlinkClientError;
use self::read::Said;
pub use self::venue::IlinkFirm;
use super::{Client, ClientConfig, ClientEvent, Frame, IlinkError, Missing, RETRANSMIT_MAX, TerminateReason};
use crate::journal::SessionMark;
use crate::orders::{OrderRules, VenueMessage};
use crate::session::{Outbox, SECOND_NS, SessionEvent, Unread};

/// Bytes that may wait for the line: orders, a login, keep-alives.
const OUT_LEN: usize = 64 * 1_024;
/// The request behind the login has failed after this time without an answer.
const BEGIN_NS_MAX: u64 = 15 * SECOND_NS;
/// The begin of a session's name in the journal: its identifier follows.
const NAME: [u8; 2] = *b"i3";

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Closed, or the venue has not acknowledged it yet.
    Beginning,
    /// Established since then: what the venue has not applied may still come.
    Established { since_ns: u64 },
    /// All that was not applied is known. Messages of the venue may be missing.
    Told,
    /// Orders may be sent.
    Settled,
}

/// What is to be done before the next message is read, in this order.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    /// The messages of ours from here on were not applied.
    lost: Option<u32>,
    /// The login, and whether there is a gap.
    login: Option<bool>,
    /// The venue is to be told that numbers never come.
    skip: bool,
}

/// One session, over any number of connections, one after the other. Bytes to send wait in
/// [`VenueSession::to_send`](crate::session::VenueSession::to_send). All memory, some 200 KiB, is
/// allocated at construction.
pub struct Ilink3Client {
    client: Client,
    firm: IlinkFirm,
    epoch_offset_ns: u64,
    /// The identifier that was asked for last.
    uuid: u64,
    /// The id that the session begins with: above 1 where the journal has ids of another one.
    first_id: u32,
    state: State,
    owed: Owed,
    /// The venue's next number that is delivered, and the end of those that it has sent.
    delivered: u32,
    sent_to: u32,
    /// Numbers that the venue has not applied: the first, and how many.
    not_applied: Option<Missing>,
    cancels: Cancels,
    unread: Unread,
    out: Outbox,
}

impl fmt::Debug for Ilink3Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ilink3Client")
            .field("firm", &self.firm)
            .field("uuid", &self.uuid)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// What of an event outlives the bytes that it lies in.
enum Taken {
    Negotiated,
    Established {
        last: u32,
    },
    NotApplied(Missing),
    /// An answer to the open request.
    Answered {
        is_refused: bool,
    },
    Message {
        number: u32,
        said: Result<Said, IlinkError>,
        is_passed_over: bool,
    },
    /// Messages of the venue up to here may be missing.
    Heard,
    Over(IlinkClientError),
}

impl Ilink3Client {
    /// A session that begins with the journal. `epoch_offset_ns` is added to the clock of the calls
    /// for the time since 1970. Allocates.
    pub fn new(config: ClientConfig, firm: IlinkFirm, epoch_offset_ns: u64) -> Self {
        Self {
            client: Client::new(config),
            firm,
            epoch_offset_ns,
            uuid: 0,
            first_id: 1,
            state: State::Beginning,
            owed: Owed::default(),
            delivered: 1,
            sent_to: 1,
            not_applied: None,
            cancels: Cancels::new(),
            unread: Unread::default(),
            out: Outbox::new(OUT_LEN),
        }
    }

    /// How a venue of iLink 3 answers: each replace has its answer, and an order's state may be
    /// asked for.
    pub const fn rules() -> OrderRules {
        OrderRules { full_fill_voids_replaces: false, has_status: true }
    }

    fn resume(&mut self, mark: &SessionMark) {
        let next = u32::try_from(mark.next_id.max(1)).unwrap_or(u32::MAX);
        let [a, b, uuid @ ..] = mark.session;
        if [a, b] == NAME {
            self.delivered = u32::try_from(mark.next_inbound.max(1)).unwrap_or(u32::MAX);
            self.uuid = u64::from_le_bytes(uuid);
            self.client.resume(self.uuid, next, self.delivered);
        } else {
            self.first_id = next;
        }
    }

    fn mark(&self) -> SessionMark {
        let (uuid, ..) = self.client.numbers();
        let next_id = self.next_id();
        if uuid == 0 {
            return SessionMark { next_id, ..SessionMark::default() };
        }
        let mut session = [0; 10];
        session[..2].copy_from_slice(&NAME);
        session[2..].copy_from_slice(&uuid.to_le_bytes());
        SessionMark { session, next_inbound: self.delivered.into(), next_id }
    }

    fn next_id(&self) -> u64 {
        let (_, next, _) = self.client.numbers();
        next.max(self.first_id).into()
    }

    const fn wall_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.epoch_offset_ns)
    }

    /// Begins a session where the journal has none, and goes on with it else.
    fn connected(&mut self, now_ns: u64) -> Result<(), IlinkClientError> {
        self.forget_connection();
        let wall_ns = self.wall_ns(now_ns);
        let (uuid, next, _) = self.client.numbers();
        let Self { client, out, delivered, .. } = self;
        if uuid > 0 {
            // What was not delivered is missing.
            client.resume(uuid, next, *delivered);
            return Ok(out.write(|output| client.establish(now_ns, wall_ns, output))?);
        }
        self.uuid = (wall_ns / 1_000).max(self.uuid.saturating_add(1));
        Ok(out.write(|output| client.negotiate(now_ns, wall_ns, self.uuid, output))?)
    }

    fn disconnected(&mut self) {
        self.client.disconnected();
        self.forget_connection();
    }

    fn forget_connection(&mut self) {
        (self.state, self.not_applied, self.sent_to) = (State::Beginning, None, self.delivered);
        // What is skipped is told by the next login, whose answer says it again.
        self.owed = Owed::default();
        self.out.clear();
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, IlinkClientError> {
        let received = self.next_event(now_ns, input);
        if received.is_err() {
            self.say_why(now_ns);
        }
        received
    }

    fn next_event(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, IlinkClientError> {
        loop {
            if let Some(event) = self.pay(now_ns)? {
                return Ok(Some(event));
            }
            self.ask_for_missing(now_ns)?;
            let Some(taken) = self.take(now_ns, input)? else { return Ok(None) };
            match taken {
                Taken::Negotiated => self.establish(now_ns)?,
                Taken::Established { last } => self.established(now_ns, last)?,
                Taken::NotApplied(missing) => self.not_applied(missing)?,
                Taken::Answered { is_refused } => self.answered(is_refused),
                Taken::Message { number, said, is_passed_over } => {
                    if let Some(event) = self.message(number, said, is_passed_over)? {
                        return Ok(Some(event));
                    }
                }
                Taken::Heard => (),
                Taken::Over(error) => return Err(error),
            }
        }
    }

    /// What is owed, one event a call; then whether the session has settled.
    fn pay(&mut self, now_ns: u64) -> Result<Option<SessionEvent>, IlinkClientError> {
        if let Some(from) = self.owed.lost.take() {
            let message = VenueMessage::NotProcessed { from: from.into() };
            return Ok(Some(SessionEvent::Message { number: 0, message }));
        }
        if let Some(is_gap) = self.owed.login.take() {
            return Ok(Some(SessionEvent::LoggedIn { mark: self.mark(), is_gap }));
        }
        self.skip(now_ns)?;
        if self.state == State::Told && self.delivered == self.sent_to {
            self.state = State::Settled;
            let message = VenueMessage::Settled { next_id: self.next_id(), is_final: false };
            return Ok(Some(SessionEvent::Message { number: 0, message }));
        }
        Ok(None)
    }

    /// Tells the venue which numbers never come, where that is owed.
    fn skip(&mut self, now_ns: u64) -> Result<(), IlinkError> {
        let Self { client, out, owed, .. } = self;
        if owed.skip && client.is_established() {
            out.write(|output| client.skip(now_ns, output))?;
            owed.skip = false;
        }
        Ok(())
    }

    fn take(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<Taken>, IlinkError> {
        let Self { client, cancels, unread, delivered, .. } = self;
        let (uuid, next, _) = client.numbers();
        let Some(event) = client.receive(now_ns, input)? else { return Ok(None) };
        Ok(Some(match event {
            ClientEvent::Negotiated { .. } => Taken::Negotiated,
            ClientEvent::Refused { error, reason, next: expected } => {
                let ahead = expected.filter(|&expected| expected > next);
                Taken::Over(IlinkClientError::Refused { error, reason, ahead })
            }
            ClientEvent::Established { previous: (of, last), .. } => {
                Taken::Established { last: if of == uuid { last } else { 0 } }
            }
            ClientEvent::NotApplied(missing) => Taken::NotApplied(missing),
            ClientEvent::Retransmission(_) => Taken::Answered { is_refused: false },
            ClientEvent::RetransmitRejected { .. } => Taken::Answered { is_refused: true },
            // What is no more in turn is not read: it comes again, or came.
            ClientEvent::Message { number, .. } if number != *delivered => {
                Taken::Message { number, said: Ok(Said::Unknown), is_passed_over: false }
            }
            ClientEvent::Message { number, frame, .. } => {
                let said = read::read(&frame, cancels);
                let is_passed_over = is_passed_over(&said, unread, number, &frame);
                Taken::Message { number, said, is_passed_over }
            }
            ClientEvent::KeepAlive { .. } => Taken::Heard,
            ClientEvent::Terminated { error, reason } => Taken::Over(IlinkClientError::Terminated { error, reason }),
        }))
    }

    fn establish(&mut self, now_ns: u64) -> Result<(), IlinkError> {
        let wall_ns = self.wall_ns(now_ns);
        let Self { client, out, .. } = self;
        out.write(|output| client.establish(now_ns, wall_ns, output))
    }

    /// The venue has sent messages up to `last`. A session in which nothing was sent by us has
    /// nothing to tell.
    fn established(&mut self, now_ns: u64, last: u32) -> Result<(), IlinkClientError> {
        let (_, next, _) = self.client.numbers();
        if last.saturating_add(1) < self.delivered {
            return Err(IlinkClientError::Lost { received: self.delivered - 1, sent: last });
        }
        self.sent_to = last.saturating_add(1);
        self.state = State::Established { since_ns: now_ns };
        if next > 1 {
            // What is missing is asked for behind this.
            if self.sent_to == self.delivered {
                self.ask(now_ns, Missing { from: last.max(1), count: 1 })?;
            }
            return Ok(());
        }
        self.told(false);
        if self.first_id > 1 {
            self.client.pass_over(self.first_id);
            self.owed.skip = true;
        }
        Ok(())
    }

    /// Before the session has settled the venue tells what of earlier connections never comes. On
    /// one connection nothing can be missing.
    fn not_applied(&mut self, missing: Missing) -> Result<(), IlinkClientError> {
        if !matches!(self.state, State::Established { .. }) {
            return Err(IlinkClientError::NotApplied { from: missing.from });
        }
        let not_applied = self.not_applied.get_or_insert(Missing { from: u32::MAX, count: 0 });
        // Numbers below the first were passed over, and had no message.
        if missing.from.saturating_add(missing.count) > self.first_id {
            not_applied.from = not_applied.from.min(missing.from);
            not_applied.count = not_applied.count.saturating_add(missing.count);
        }
        Ok(())
    }

    /// The open request is answered, so all that was not applied is told. Where the venue does not
    /// have the messages that are missing, what they said is lost.
    fn answered(&mut self, is_refused: bool) {
        let is_gap = is_refused && self.delivered < self.sent_to;
        if is_gap {
            self.delivered = self.sent_to;
        }
        if matches!(self.state, State::Established { .. }) {
            self.told(is_gap);
        } else if is_gap {
            self.owed.login = Some(true);
        }
    }

    /// What is not applied is the end of what was sent: a line that breaks loses its end. Anything
    /// else is for a person.
    fn told(&mut self, is_gap: bool) {
        let (_, next, _) = self.client.numbers();
        self.state = State::Told;
        let not_applied = self.not_applied.take();
        self.owed.skip |= not_applied.is_some();
        let not_applied = not_applied.filter(|it| it.count > 0);
        let is_end = not_applied.is_none_or(|it| it.from.saturating_add(it.count) == next);
        self.owed.lost = not_applied.filter(|_| is_end).map(|it| it.from);
        self.owed.login = Some(is_gap || !is_end);
    }

    fn message(
        &mut self,
        number: u32,
        said: Result<Said, IlinkError>,
        is_passed_over: bool,
    ) -> Result<Option<SessionEvent>, IlinkClientError> {
        let after = number.saturating_add(1);
        self.sent_to = self.sent_to.max(after);
        if number != self.delivered {
            return Ok(None);
        }
        let event = match said {
            Ok(Said::Message(message)) => SessionEvent::Message { number: number.into(), message },
            _ if is_passed_over => SessionEvent::Unread { number: number.into() },
            // The next login asks for it again.
            Ok(_) => return Err(IlinkClientError::Unreadable),
            Err(error) => return Err(error.into()),
        };
        self.delivered = after;
        Ok(Some(event))
    }

    /// One request at a time, for what is missing first.
    fn ask_for_missing(&mut self, now_ns: u64) -> Result<(), IlinkClientError> {
        let (_, _, expected) = self.client.numbers();
        if !self.client.is_established() {
            return Ok(());
        }
        self.sent_to = self.sent_to.max(expected);
        let count = (self.sent_to - self.delivered).min(RETRANSMIT_MAX.into());
        if count > 0 && !self.client.is_retransmitting() {
            self.ask(now_ns, Missing { from: self.delivered, count })?;
        }
        Ok(())
    }

    fn ask(&mut self, now_ns: u64, missing: Missing) -> Result<(), IlinkError> {
        let wall_ns = self.wall_ns(now_ns);
        let Self { client, out, .. } = self;
        out.write(|output| client.request_retransmit(now_ns, wall_ns, missing, None, output))
    }

    /// Keep-alives and timeouts. Before the venue has told what it has not applied, nothing is
    /// sent: a keep-alive is the decision to skip that.
    fn tick(&mut self, now_ns: u64) -> Result<(), IlinkClientError> {
        if let State::Established { since_ns } = self.state {
            let is_late = now_ns.saturating_sub(since_ns) >= BEGIN_NS_MAX;
            if is_late {
                self.terminate(now_ns, TerminateReason::OTHER.0);
            }
            return if is_late { Err(IlinkClientError::NoAnswer) } else { Ok(()) };
        }
        self.skip(now_ns)?;
        let wall_ns = self.wall_ns(now_ns);
        let Self { client, out, .. } = self;
        Ok(out.write(|output| client.tick(now_ns, wall_ns, output))?)
    }

    /// Writes the termination of a connection whose venue broke a rule, or has ended it: the caller
    /// sends that and closes. The client owes one where it ended the session itself.
    fn say_why(&mut self, now_ns: u64) {
        if self.client.is_established() {
            return self.terminate(now_ns, TerminateReason::OTHER.0);
        }
        let wall_ns = self.wall_ns(now_ns);
        let Self { client, out, .. } = self;
        // Where there is no room, the end of the connection says enough.
        let _ = out.write(|output| client.tick(now_ns, wall_ns, output));
    }

    /// Ends the connection ourselves. One that is not established is closed by its owner alone; and
    /// where there is no room, its end says enough.
    fn terminate(&mut self, now_ns: u64, code: u16) {
        let wall_ns = self.wall_ns(now_ns);
        let Self { client, out, .. } = self;
        let _ = out.write(|output| client.terminate(now_ns, wall_ns, code, output));
    }

    fn log_out(&mut self, now_ns: u64) {
        self.terminate(now_ns, 0);
    }
}

/// Whether a message is passed over because it cannot be read, is not read here, or names no
/// message of ours. Its bytes are kept for a person.
fn is_passed_over(said: &Result<Said, IlinkError>, unread: &mut Unread, number: u32, frame: &Frame<'_>) -> bool {
    if matches!(said, Ok(Said::Message(_))) {
        return false;
    }
    let has_come_often = unread.is_to_be_passed_over(number.into(), frame.block);
    has_come_often || matches!(said, Ok(Said::Unknown))
}

#[cfg(test)]
mod tests;
