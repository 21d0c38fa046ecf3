//! The session: its state and its verbs.

use core::fmt;
use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::config::{HEARTBEAT_S_MAX, Role, SessionConfig};
use super::event::{End, Event, Now, SendError, SessionCounts};
use super::receiver::{Place, Receiver};
use super::recovery::Skipped;
use super::resend::{Hole, Resending, Scratch};
use super::sender::Sender;
use super::store::MessageStore;
use crate::fix::codec::{TemplateError, Writer, parse_number};
use crate::fix::orders::{BusinessReason, Defect};
use crate::fix::tag::tags;

/// Bytes of a Logout's text that are kept.
const LOGOUT_TEXT_MAX: usize = 128;

/// TestReqID (112) of a question; those of silence begin with other letters.
pub(super) struct Question(pub(super) u64);

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ASK{}", self.0)
    }
}

impl Question {
    /// Whether a TestReqID is this question's.
    pub(super) fn is(&self, text: &[u8]) -> bool {
        text.strip_prefix(b"ASK").and_then(parse_number) == Some(self.0)
    }
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There is none.
    Down,
    /// The peer's first Logon is waited for.
    AwaitsLogon,
    /// The answer to our Logon is waited for.
    LogonSent,
    /// Both sides are logged on.
    Up,
    /// The answer to our Logout is waited for; then the connection ends for this reason.
    LogoutSent(End),
}

/// An event without the message's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    LoggedOn,
    Reset,
    Message { place: Place, seq: u64, poss_dup: bool },
    Rejected(Place),
    Refused { msg_type: u8, seq: u64, defect: Defect },
    Skipped { from: u64 },
    NotResent { seq: u64 },
    ResendRequested { begin: u64 },
    Answered { id: u64 },
    Disconnect(End),
}

/// One session of FIX. Memory is allocated when it is constructed.
#[derive(Debug)]
pub struct Session<S> {
    pub(super) config: SessionConfig,
    pub(super) sender: Sender<S>,
    pub(super) receiver: Receiver,
    pub(super) state: State,
    /// When the state began.
    pub(super) since_ns: u64,
    /// When the last bytes of the peer came.
    pub(super) received_ns: u64,
    /// 0 where there are no heartbeats.
    pub(super) heartbeat_ns: u64,
    /// TestRequests since the peer was heard last.
    pub(super) tests_sent: u64,
    /// The span of the schedule in which the connection was opened.
    pub(super) span: Option<u64>,
    pub(super) hole: Option<Hole>,
    pub(super) resending: Option<Resending>,
    pub(super) skipped: Skipped,
    pub(super) scratch: Scratch,
    pub(super) steps: VecDeque<Step>,
    pub(super) closing: Option<End>,
    /// The question that the peer has not answered.
    pub(super) question: Option<u64>,
    /// Text (58) of the peer's Logout.
    pub(super) logout_text: ArrayVec<u8, LOGOUT_TEXT_MAX>,
}

impl<S: MessageStore> Session<S> {
    /// A session without a connection, whose numbers are the store's.
    pub fn new(config: SessionConfig, store: S) -> Self {
        let config = SessionConfig { heartbeat_s: config.heartbeat_s.min(HEARTBEAT_S_MAX), ..config };
        Self {
            sender: Sender::new(&config, store),
            receiver: Receiver::new(&config),
            state: State::Down,
            since_ns: 0,
            received_ns: 0,
            heartbeat_ns: 0,
            tests_sent: 0,
            span: None,
            hole: None,
            resending: None,
            skipped: Skipped::new(),
            scratch: Scratch::new(config.fields_max, config.message_len_max),
            // A message makes three at most.
            steps: VecDeque::with_capacity(8),
            closing: None,
            question: None,
            logout_text: ArrayVec::new(),
            config,
        }
    }

    /// The connection is open. An initiator's Logon is in the output now.
    pub fn connected(&mut self, now: Now) {
        self.disconnected();
        self.logout_text.clear();
        (self.since_ns, self.received_ns) = (now.steady_ns, now.steady_ns);
        self.sender.sent_ns = now.steady_ns;
        self.state = State::AwaitsLogon;
        if !self.begin_span(now) {
            return self.close(End::Schedule);
        }
        if self.config.role == Role::Initiator {
            if self.config.reset_on_logon {
                self.reset_numbers(now);
            }
            self.state = State::LogonSent;
            self.heartbeat_ns = u64::from(self.config.heartbeat_s) * 1_000_000_000;
            self.send_logon(now, self.config.reset_on_logon);
        }
    }

    /// The connection is gone. What waited to be written is discarded: the peer asks for it later.
    /// A reset of the numbers that was not polled is told with the next connection.
    pub fn disconnected(&mut self) {
        self.state = State::Down;
        self.receiver.clear();
        self.sender.discard_output();
        let is_reset = self.steps.iter().any(|step| matches!(step, Step::Reset));
        self.steps.clear();
        self.steps.extend(is_reset.then_some(Step::Reset));
        (self.hole, self.resending, self.closing, self.question) = (None, None, None, None);
        self.tests_sent = 0;
    }

    /// Takes received bytes, and returns how many: fewer than all where a message waits to be
    /// polled. Offer the rest again after [`Session::poll`] has returned `None`.
    pub fn receive(&mut self, now: Now, bytes: &[u8]) -> usize {
        if self.state == State::Down {
            self.sender.counts.unconnected_bytes += bytes.len() as u64;
            return bytes.len();
        }
        if bytes.is_empty() {
            // No sign of life.
            return 0;
        }
        (self.received_ns, self.tests_sent) = (now.steady_ns, 0);
        self.receiver.receive(bytes)
    }

    /// The next event. Call it until it returns `None`, after bytes came and when a deadline is
    /// reached: timers run and resends go on within.
    pub fn poll(&mut self, now: Now) -> Option<Event<'_>> {
        let step = self.step(now)?;
        Some(match step {
            Step::LoggedOn => Event::LoggedOn,
            Step::Reset => Event::Reset,
            Step::Message { place, seq, poss_dup } => {
                Event::Message { message: self.receiver.message(place), seq, poss_dup }
            }
            Step::Rejected(place) => Event::Rejected(self.receiver.message(place)),
            Step::Refused { msg_type, seq, defect } => Event::Refused { msg_type, seq, defect },
            Step::Skipped { from } => Event::Skipped { from },
            Step::NotResent { seq } => Event::NotResent { seq },
            Step::ResendRequested { begin } => Event::ResendRequested { begin },
            Step::Answered { id } => Event::Answered { id },
            Step::Disconnect(end) => Event::Disconnect(end),
        })
    }

    /// Each turn takes one message, or sends a part of a resend, so it ends.
    fn step(&mut self, now: Now) -> Option<Step> {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Some(step);
            }
            if let Some(end) = self.closing.take() {
                self.state = State::Down;
                return Some(Step::Disconnect(end));
            }
            if self.state == State::Down {
                return None;
            }
            self.run_timers(now);
            self.resend_some(now);
            if self.closing.is_none() && self.steps.is_empty() && !self.take_next(now) {
                return None;
            }
        }
    }

    /// Lets time pass: heartbeats, silence, requests for a resend again, the end of the schedule's
    /// span. Says that the connection is to be closed, and why. For a caller that polls only when
    /// bytes have come; [`Session::poll`] does the same.
    pub fn tick(&mut self, now: Now) -> Option<End> {
        if self.state == State::Down {
            return None;
        }
        self.run_timers(now);
        self.resend_some(now);
        self.check_hole(now);
        let end = self.closing.take()?;
        self.state = State::Down;
        Some(end)
    }

    /// Bytes to write to the peer.
    pub fn output(&self) -> &[u8] {
        self.sender.output()
    }

    /// The first `len` bytes of the output are written.
    pub fn consume(&mut self, len: usize) {
        self.sender.consume(len);
    }

    /// Both sides are logged on.
    pub fn is_logged_on(&self) -> bool {
        self.state == State::Up
    }

    /// Sends an application message, whose fields behind the header `body` writes, and returns its
    /// number. While the session is down the message is kept, and the peer asks for it after the
    /// next Logon; one that would then be filled as a gap is refused.
    pub fn send(&mut self, now: Now, msg_type: &str, body: impl FnOnce(&mut Writer<'_>)) -> Result<u64, SendError> {
        let is_stale = self.config.stale_types.iter().any(|stale| stale == msg_type);
        if !self.is_logged_on() && is_stale {
            return Err(SendError::NotLoggedOn);
        }
        self.sender.send_kept(now, self.is_logged_on(), msg_type.as_bytes(), body)
    }

    /// Sends a message that a template makes: `make` gets its number and the time. The way of an
    /// order: nothing is formatted, and no memory is allocated.
    ///
    /// ```
    /// use order_entry::fix::orders::{NewOrder, OrderTemplates};
    /// use order_entry::fix::session::{MemoryStore, Now, SendError, Session};
    ///
    /// fn buy(
    ///     session: &mut Session<MemoryStore>,
    ///     now: Now,
    ///     templates: &mut OrderTemplates,
    ///     order: &NewOrder,
    /// ) -> Result<u64, SendError> {
    ///     session.send_made(now, |seq, utc_ns| templates.new_order(seq, utc_ns, order))
    /// }
    /// ```
    #[inline]
    pub fn send_made<'t>(
        &mut self,
        now: Now,
        make: impl FnOnce(u64, u64) -> Result<&'t [u8], TemplateError>,
    ) -> Result<u64, SendError> {
        if self.state != State::Up {
            return Err(SendError::NotLoggedOn);
        }
        let seq = self.sender.store.next_out();
        let message = make(seq, now.utc_ns).map_err(SendError::Template)?;
        self.sender.send_made(now, seq, message)?;
        Ok(seq)
    }

    /// Asks the peer (TestRequest) in order to hear when it has taken all that was sent before:
    /// [`Event::Answered`]. An answer to an earlier question is no event any more.
    pub fn ask(&mut self, now: Now, id: u64) {
        if self.state != State::Up {
            return;
        }
        self.question = Some(id);
        let sent = self.sender.send_admin(now, b"1", |out| {
            out.display(tags::TEST_REQ_ID, Question(id));
        });
        self.note(sent.map(drop));
    }

    /// Uses up the next number without a message of the application: a Heartbeat has it, or where
    /// nothing can be sent the peer finds a gap, and is told to pass over it.
    pub fn skip_number(&mut self, now: Now) {
        if self.state != State::Up || self.sender.send_admin(now, b"0", |_| ()).is_err() {
            let next_out = self.sender.store.next_out();
            self.sender.store.set_next_out(next_out + 1);
        }
    }

    /// Bytes that a message may have so that the output takes it.
    pub fn output_room(&self) -> usize {
        self.sender.output_room()
    }

    /// Text (58) of the peer's Logout on this connection, its first bytes; empty where it gave
    /// none.
    pub fn logout_text(&self) -> &[u8] {
        &self.logout_text
    }

    /// Refuses a message of the peer by a rule of the session (3).
    pub fn reject(&mut self, now: Now, msg_type: &[u8], seq: u64, defect: Defect) -> Result<(), SendError> {
        self.sender.reject(now, (msg_type, seq), defect)
    }

    /// Refuses a message of the peer by a rule of the application (j).
    pub fn business_reject(
        &mut self,
        now: Now,
        msg_type: &[u8],
        seq: u64,
        reason: BusinessReason,
    ) -> Result<(), SendError> {
        self.sender.business_reject(now, (msg_type, seq), reason)
    }

    /// Sends Logout, and waits for the peer's. [`Event::Disconnect`] follows.
    pub fn logout(&mut self, now: Now, text: &str) {
        self.begin_logout(now, text, End::LoggedOut);
    }

    /// The bytes of the message that the last event was about.
    pub(in crate::fix) fn last_bytes(&self) -> &[u8] {
        self.receiver.last_bytes()
    }

    /// The numbers and the sent messages.
    pub fn store(&self) -> &S {
        &self.sender.store
    }

    /// The same, to set numbers: of a session that goes on where another one was.
    pub const fn store_mut(&mut self) -> &mut S {
        &mut self.sender.store
    }

    /// What was counted.
    pub fn counts(&self) -> SessionCounts {
        self.sender.counts
    }

    pub(super) fn begin_logout(&mut self, now: Now, text: &str, end: End) {
        if self.state != State::Up {
            return;
        }
        (self.state, self.since_ns) = (State::LogoutSent(end), now.steady_ns);
        self.send_logout(now, text);
    }

    pub(super) fn send_logout(&mut self, now: Now, text: &str) {
        let sent = self.sender.send_admin(now, b"5", |out| {
            if !text.is_empty() {
                out.field(tags::TEXT, text.as_bytes());
            }
        });
        self.note(sent.map(drop));
    }

    /// The connection ends, for the first reason that there is.
    pub(super) fn close(&mut self, end: End) {
        self.closing = self.closing.or(Some(end));
    }

    /// A message of the session that cannot be sent ends the connection: a number without its
    /// message would be a lie.
    pub(super) fn note(&mut self, sent: Result<(), SendError>) {
        match sent {
            Ok(()) => {}
            Err(SendError::Store(_)) => self.close(End::StoreFull),
            Err(_) => self.close(End::OutputFull),
        }
    }
}
