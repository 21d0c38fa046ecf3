//! A client's session of FIX as a [`VenueSession`](crate::session::VenueSession): logon,
//! heartbeats, the question what the venue has processed, and its reports as
//! [`VenueMessage`](crate::orders::VenueMessage)s.
//!
//! A client id is the number of its message (MsgSeqNum) and a base, so each ClOrdID names one
//! message. Behind each Logon a TestRequest asks what the venue has taken:
//!
//! ```text
//!  Logon, number n ─────▶ ◀───── Logon, and ResendRequest from m where m to n - 1 are missing there
//!  SequenceReset to n + 1 ──▶    nothing is sent again: orders from m on have never been
//!  TestRequest ─────────▶ ◀───── Heartbeat: the ids below n were processed, all reports have come
//! ```
//!
//! Nothing is kept to be sent again. A request is passed over with its market, so none can arrive
//! twice.

mod books;
mod climb;
mod numbers;
mod read;
mod too_low;
mod venue;
mod words;

use core::{fmt, mem};

use market::Symbol;

use self::books::{Changes, Templates};
use self::climb::Climb;
use self::numbers::Numbers;
use self::read::{Said, read};
pub(super) use self::read::{shares, to_price};
pub(super) use self::too_low::too_low;
use self::venue::SEQ_MAX;
use super::orders::OrderCapacity;
use super::session::{End, MessageStore, Now, Role, Session, SessionConfig, Version};
use crate::journal::SessionMark;
use crate::orders::{OrderRules, VenueMessage};
use crate::session::{Escaped, SessionError, SessionEvent, Unread};

/// What a [`FixClient`] is made of.
#[derive(Clone, Debug)]
pub struct FixClientConfig {
    /// Names, version, heartbeats, hours. The role is the initiator's, and no message is kept. By
    /// default as [`SessionConfig`].
    pub session: SessionConfig,
    /// Account (1) of orders. By default none.
    pub account: Option<String>,
    /// OrderCapacity (528) of orders and replaces, in FIX 4.2 Rule80A (47). By default none, and
    /// the venue takes what was agreed with it.
    pub capacity: Option<OrderCapacity>,
    /// The instruments of the configuration, by position. By default none, and no order is sent.
    pub instruments: Vec<Symbol>,
    /// Nanoseconds to add to the clock of the calls for UTC. By default 0.
    pub epoch_offset_ns: u64,
}

impl FixClientConfig {
    /// All defaults, with `session`.
    pub const fn new(session: SessionConfig) -> Self {
        Self { session, account: None, capacity: None, instruments: Vec::new(), epoch_offset_ns: 0 }
    }
}

/// How long the answer to a question may take, where no messages of before are to come first.
const ANSWER_TIMEOUT_NS: u64 = 10_000_000_000;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No answer to the Logon has come.
    LoggingOn,
    /// The venue was asked what it has processed.
    Asking {
        /// The question.
        id: u64,
        /// When it was asked, or when a message came that was missing.
        since_ns: u64,
        /// It was asked twice.
        is_again: bool,
    },
    /// It has answered.
    Settled,
}

/// One session of FIX, over any number of connections, one after the other. All memory is allocated
/// at construction: some 2 MiB, and 1,500 bytes for each instrument.
#[derive(Debug)]
pub struct FixClient {
    session: Session<Numbers>,
    templates: Templates,
    changes: Changes,
    has_mass_cancel: bool,
    epoch_offset_ns: u64,
    stage: Stage,
    /// The numbers began anew, or reports were passed over, which the next login is to tell: what
    /// was under way has no answer.
    is_gap: bool,
    /// A question is to be asked behind the answer to a request for a resend.
    is_question_due: bool,
    /// The venue has processed the ids below, but for those that were passed over.
    processed_below: u64,
    /// The number with which the next login begins, because the venue has used those before.
    used_below: Option<u64>,
    /// Of the Logons since the start.
    climb: Climb,
    unread: Unread,
}

impl FixClient {
    /// A session that begins with the day. Allocates.
    pub fn new(config: FixClientConfig) -> Self {
        let FixClientConfig { session, account, capacity, instruments, epoch_offset_ns } = config;
        let templates = Templates::new(&session, (account, capacity), &instruments);
        let has_mass_cancel = session.version != Version::Fix42;
        let session = SessionConfig { role: Role::Initiator, ..session };
        Self {
            session: Session::new(session, Numbers::NEW),
            templates,
            changes: Changes::new(),
            has_mass_cancel,
            epoch_offset_ns,
            stage: Stage::LoggingOn,
            is_gap: false,
            is_question_due: false,
            processed_below: 0,
            used_below: None,
            climb: Climb::default(),
            unread: Unread::default(),
        }
    }

    /// How a venue of FIX answers: a replace that comes behind the last fill is refused.
    pub const fn rules() -> OrderRules {
        OrderRules { full_fill_voids_replaces: false, has_status: true }
    }

    const fn now(&self, now_ns: u64) -> Now {
        Now { steady_ns: now_ns, utc_ns: now_ns.saturating_add(self.epoch_offset_ns) }
    }

    fn is_open(&self) -> bool {
        self.stage == Stage::Settled && self.session.is_logged_on()
    }

    /// The numbers go on at `mark`, that of the journal.
    fn resume(&mut self, mark: &SessionMark) {
        *self.session.store_mut() = Numbers::at(mark);
        self.climb = Climb::default();
    }

    fn connected(&mut self, now: Now) -> Result<(), SessionError> {
        let numbers = self.session.store_mut();
        numbers.begin(now.utc_ns);
        if let Some(next_out) = self.used_below.take() {
            numbers.set_next_out(next_out);
        }
        (self.stage, self.is_question_due) = (Stage::LoggingOn, false);
        self.session.connected(now);
        self.expect_all();
        self.climb.logon(self.processed_below);
        self.tick(now)
    }

    fn disconnected(&mut self) {
        self.session.disconnected();
        (self.stage, self.is_question_due) = (Stage::LoggingOn, false);
    }

    fn tick(&mut self, now: Now) -> Result<(), SessionError> {
        if let Some(end) = self.session.tick(now) {
            return Err(self.ended(end));
        }
        self.check_question(now)
    }

    /// A session that does not settle takes no order and no cancel, so a question without an answer
    /// is asked once more, and then ends the connection.
    fn check_question(&mut self, now: Now) -> Result<(), SessionError> {
        let Stage::Asking { id, since_ns, is_again } = self.stage else { return Ok(()) };
        let timeout_ns = self.session.missing_timeout_ns().unwrap_or(ANSWER_TIMEOUT_NS);
        if !self.session.is_logged_on() || now.steady_ns.saturating_sub(since_ns) < timeout_ns {
            return Ok(());
        }
        // The session itself ends where messages stay missing, and names their rule.
        if is_again && self.session.missing_timeout_ns().is_none() {
            let why = "the venue does not answer the TestRequest (1) behind the Logon";
            return Err(SessionError::new(why));
        }
        self.stage = Stage::Asking { id, since_ns: now.steady_ns, is_again: true };
        self.session.ask(now, id);
        Ok(())
    }

    /// The Logon is the last message that was sent: what was before, the venue has, unless it asks
    /// for it.
    fn expect_all(&mut self) {
        self.processed_below = self.session.store().next_id() - 1;
    }

    fn receive(&mut self, now: Now, input: &mut &[u8]) -> Result<Option<SessionEvent>, SessionError> {
        loop {
            let taken = self.session.receive(now, input);
            *input = &input[taken..];
            let numbers = *self.session.store();
            match self.session.poll(now) {
                Some(event) => {
                    let said = read(&event, &numbers, &self.changes);
                    if let Some(event) = self.take(now, said)? {
                        return Ok(Some(event));
                    }
                }
                None if self.is_question_due => {
                    self.is_question_due = false;
                    self.ask(now);
                }
                None if input.is_empty() => return Ok(None),
                None if taken == 0 => return Err(SessionError::new("the session has no room for a message")),
                None => (),
            }
        }
    }

    fn take(&mut self, now: Now, said: Said) -> Result<Option<SessionEvent>, SessionError> {
        Ok(match said {
            Said::Reset => {
                self.expect_all();
                self.climb = Climb::OVER;
                self.gap("the numbers began anew within the session")?
            }
            Said::Skipped { from } => {
                if self.stage == Stage::Settled {
                    // The next logon asks for them.
                    self.session.store_mut().set_next_in(from);
                }
                self.gap(format_args!("the venue passes over its messages from number {from} on (SequenceReset)"))?
            }
            Said::LoggedOn => {
                self.climb.logged_on(self.session.missing_count());
                self.ask(now);
                Some(SessionEvent::LoggedIn { mark: self.session.store().mark(), is_gap: mem::take(&mut self.is_gap) })
            }
            Said::Asked { .. } if self.stage == Stage::Settled => {
                let why = "the venue asks for messages within the session, and will not have them in order: the next \
                           logon says which it has";
                return Err(SessionError::new(why));
            }
            Said::Asked { begin } => {
                // The answer covers the question, so it is asked again behind it.
                self.is_question_due = true;
                let from = self.session.store().id_of(begin);
                self.climb.asked_for(from);
                Some(SessionEvent::Message { number: 0, message: VenueMessage::NotProcessed { from } })
            }
            Said::Answered if self.stage == Stage::Settled => None,
            Said::Answered if mem::replace(&mut self.climb, Climb::OVER).hides_numbers() => {
                // The gap comes before the session opens, by the answer to another question.
                self.is_question_due = true;
                Some(SessionEvent::LoggedIn { mark: self.session.store().mark(), is_gap: true })
            }
            Said::Answered => {
                self.stage = Stage::Settled;
                let (next_id, is_final) = (self.processed_below, false);
                Some(SessionEvent::Message { number: 0, message: VenueMessage::Settled { next_id, is_final } })
            }
            Said::Message { seq, message } => {
                if let (Stage::Asking { since_ns, .. }, Some(_)) = (&mut self.stage, self.session.missing_timeout_ns())
                {
                    *since_ns = now.steady_ns;
                }
                Some(SessionEvent::Message { number: seq, message })
            }
            Said::Broken { seq, .. } if self.unread.is_to_be_passed_over(seq, self.session.last_bytes()) => {
                Some(SessionEvent::Unread { number: seq })
            }
            Said::Broken { seq, msg_type, defect } => {
                // It comes again with the next logon: what it says of an order must not be lost.
                self.session.store_mut().set_next_in(seq);
                let msg_type = char::from(msg_type).escape_default();
                return Err(SessionError::new(format_args!("the venue's message {msg_type}: {defect}")));
            }
            Said::End(end) => return Err(self.ended(end)),
            Said::Nothing => None,
        })
    }

    /// Reports are lost. Behind the login it is told by another one, and ends a settled session.
    fn gap(&mut self, why: impl fmt::Display) -> Result<Option<SessionEvent>, SessionError> {
        match self.stage {
            Stage::LoggingOn => {
                self.is_gap = true;
                Ok(None)
            }
            Stage::Asking { .. } => {
                Ok(Some(SessionEvent::LoggedIn { mark: self.session.store().mark(), is_gap: true }))
            }
            Stage::Settled => {
                self.is_gap = true;
                Err(SessionError::gap(why))
            }
        }
    }

    fn ended(&mut self, end: End) -> SessionError {
        match (end, self.session.logout_text()) {
            (End::PeerLoggedOut, text @ [_, ..]) => {
                let words = format!("the venue logged out: {}", Escaped(text));
                let too_low = too_low(text);
                if self.stage == Stage::LoggingOn {
                    self.climb.refused();
                }
                too_low.map_or_else(|| SessionError::new(&words), |expected| self.used(&words, expected))
            }
            (End::NotResent, _) => self.not_resent(),
            (end, _) => SessionError::new(end),
        }
    }

    /// A message of the venue stays missing: the next login asks for it again, or goes on behind
    /// it.
    fn not_resent(&mut self) -> SessionError {
        let number = self.session.store().next_in();
        let words = format!("the venue's message {number}: {}", End::NotResent);
        if !self.unread.is_to_be_passed_over(number, &[]) {
            return SessionError::new(words);
        }
        self.session.store_mut().set_next_in(number + 1);
        self.is_gap = true;
        SessionError::gap(format_args!(
            "{words}: it is passed over; no order passes until a person has compared, and arms"
        ))
    }

    /// The venue has used numbers that the journal does not have, because a power cut took its end:
    /// what was sent in them is unknown here. The next login begins behind them, and tells the gap.
    fn used(&mut self, words: &str, expected: Option<u64>) -> SessionError {
        (self.is_gap, self.climb) = (true, Climb::OVER);
        let ours = self.session.store().next_out();
        self.used_below = expected.filter(|expected| (ours..=SEQ_MAX).contains(expected));
        SessionError::gap(format_args!(
            "{words}: the venue has messages of ours that the journal does not have; no order passes until a person \
             has compared, and arms"
        ))
    }

    fn ask(&mut self, now: Now) {
        let id = self.session.store().next_id();
        if self.stage != Stage::Settled {
            self.stage = Stage::Asking { id, since_ns: now.steady_ns, is_again: false };
        }
        self.session.ask(now, id);
    }
}

#[cfg(test)]
mod tests;
