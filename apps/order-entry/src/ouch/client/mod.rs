//! A client's session of OUCH 5.0 over SoupBinTCP: login, heartbeats, the question what the venue
//! has processed, and its answers as [`VenueMessage`]s.
//!
//! After a login account queries follow: some about indices that nobody uses, to know the answers
//! of this connection ([`Account`]), and the one about our numbers. An answer is numbered, so it
//! arrives behind the answers to all that the venue had processed, and names the first UserRefNum
//! that it has not seen.

mod error;
mod read;
mod venue;

use self::read::{Said, read};
use super::port::PortFields;
use super::v50::{AccountQuery, CancelOrder, EnterOrder, Field, ReplaceOrder};
use super::{Account, Capacity, PortOptions};
use crate::Text;
use crate::journal::SessionMark;
use crate::orders::{OrderRules, VenueMessage};
use crate::session::{Output, SessionEvent, Unread};
use crate::soupbin::{Client, ClientConfig, ClientEvent, SessionId, StartNumber};

pub use error::OuchClientError;

/// Bytes that may wait for the line: orders that are not prepared, a login, heartbeats.
const OUT_LEN: usize = 64 * 1_024;
/// Bytes of a message's options.
const OPTIONS_MAX: usize = 64;
const _: () = assert!(super::words::OPTIONS_LEN <= OPTIONS_MAX, "an order may say all of them");

/// One account's session, over any number of connections, one after the other. Bytes to send wait
/// in [`OuchClient::to_send`]. All memory, some 130 KiB, is allocated at construction.
#[derive(Debug)]
pub struct OuchClient {
    client: Client,
    account: Account,
    /// The account query was answered on this connection.
    is_settled: bool,
    /// Questions behind the login without an answer.
    questions: u32,
    /// The first number that was not used at the first of them, and its time.
    asked: (u32, u64),
    /// Where the next login goes on.
    resume: (SessionId, u64),
    firm: Text<4>,
    capacity: Capacity,
    /// What each order says, and what each short sale says instead.
    port: [PortFields; 2],
    /// The message behind the gap that was told before it.
    behind_gap: Option<SessionEvent>,
    unread: Unread,
    out: Box<[u8]>,
    out_len: usize,
}

impl OuchClient {
    /// A session that begins with the day.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            client: Client::new(config),
            account: Account::new(),
            is_settled: false,
            questions: 0,
            asked: (0, 0),
            resume: (SessionId::BLANK, 1),
            firm: Text::BLANK,
            capacity: Capacity::AGENCY,
            port: Default::default(),
            behind_gap: None,
            unread: Unread::default(),
            out: vec![0; OUT_LEN].into_boxed_slice(),
            out_len: 0,
        }
    }

    /// Trades for `firm`, which mass cancels name, in `capacity`. By default a blank firm, whose
    /// mass cancels a venue refuses, as agent.
    pub const fn of_firm(mut self, firm: Text<4>, capacity: Capacity) -> Self {
        (self.firm, self.capacity) = (firm, capacity);
        self
    }

    /// Says `options` with each order and replace. By default none.
    pub fn with_options(mut self, options: &PortOptions) -> Self {
        self.port = [false, true].map(|is_short| options.fields(is_short));
        self
    }

    /// How this venue answers.
    pub const fn rules() -> OrderRules {
        OrderRules { full_fill_voids_replaces: true, has_status: false }
    }

    /// Has the first login go on at `mark`, that of the journal, instead of at the day's begin. A
    /// mark without a number of the venue is of before its first message, or of behind the end of a
    /// session: ids go on all the same, because none of the journal may be used twice.
    pub fn resume(&mut self, mark: &SessionMark) {
        if mark.next_inbound > 0 {
            self.resume = (SessionId::from_wire(mark.session), mark.next_inbound);
        }
        self.account = Account::resumed(u32::try_from(mark.next_id.max(1)).unwrap_or(u32::MAX));
    }

    /// Where the session stands.
    pub const fn mark(&self) -> SessionMark {
        let (session, next_inbound) = self.resume;
        SessionMark { session: session.to_wire(), next_inbound, next_id: self.account.next_number() as u64 }
    }

    /// A connection was made: writes the login.
    pub fn connected(&mut self, now_ns: u64) -> Result<(), OuchClientError> {
        let (session, number) = self.resume;
        (self.is_settled, self.questions, self.out_len) = (false, 0, 0);
        self.write(|client, output| client.connect(now_ns, session, number, output))
    }

    /// The connection is gone.
    pub fn disconnected(&mut self) {
        self.client.disconnected();
        self.account.disconnected();
        (self.is_settled, self.questions, self.out_len) = (false, 0, 0);
        self.behind_gap = None;
    }

    /// Takes one message from the front of `input`; `None` where it is used up. Call it until then.
    ///
    /// # Errors
    ///
    /// The venue broke a rule, or refused the login: the caller closes the connection.
    pub fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, OuchClientError> {
        if let Some(event) = self.behind_gap.take() {
            return Ok(Some(event));
        }
        loop {
            let Some(event) = self.client.receive(now_ns, input)? else { return Ok(None) };
            return Ok(Some(match event {
                ClientEvent::LoggedIn { session, next, start } => {
                    self.resume = (session, next);
                    let mark = self.mark();
                    // Another process that goes on from the same place does it at another time.
                    for idx in self.account.fence(now_ns ^ next << 40) {
                        self.query(now_ns, &[Field::UserRefIdx(idx)])?;
                    }
                    self.query(now_ns, &[])?;
                    let is_gap = matches!(start, StartNumber::ServerLost { .. } | StartNumber::Gap { .. });
                    SessionEvent::LoggedIn { mark, is_gap }
                }
                ClientEvent::LoginRejected(reason) => return Err(OuchClientError::LoginRejected(reason)),
                ClientEvent::Sequenced { number, message } => {
                    let said = match read(message) {
                        Err(error) if !self.unread.is_to_be_passed_over(number, message) => return Err(error),
                        said => said,
                    };
                    // Behind it, so that the venue repeats one that was not read.
                    self.resume.1 = number.saturating_add(1);
                    match said {
                        Ok(said) => self.learn(number, said),
                        Err(_) => SessionEvent::Unread { number },
                    }
                }
                ClientEvent::EndOfSession => {
                    self.resume = (SessionId::BLANK, 1);
                    SessionEvent::Ended
                }
                _ => continue,
            }));
        }
    }

    /// Keeps what a message says about our numbers. An answer behind the first says that all is
    /// answered that was sent before its query, also what the venue has ignored: a replace of an
    /// order that was another one by then takes no number. An answer by which the venue has used
    /// numbers that we have not, because a power cut took the journal's end, tells a gap first.
    fn learn(&mut self, number: u64, said: Said) -> SessionEvent {
        let is_gap = matches!(said, Said::NextNumber { idx: 0, next } if self.account.lacks_below(next));
        let message = self.message_of(said);
        let event = SessionEvent::Message { number, message };
        if !is_gap {
            return event;
        }
        self.behind_gap = Some(event);
        // A restart must not pass over the message before it is taken.
        let mark = SessionMark { next_inbound: number, ..self.mark() };
        SessionEvent::LoggedIn { mark, is_gap }
    }

    fn message_of(&mut self, said: Said) -> VenueMessage {
        match said {
            Said::Message(message) => message,
            Said::NextNumber { idx: 0, next } if self.account.told(next) => {
                self.is_settled = true;
                // A replace of an order that was another one by then is ignored in silence.
                VenueMessage::Settled { next_id: next.into(), is_final: true }
            }
            Said::NextNumber { idx: 0, .. } if self.is_settled => {
                self.questions = self.questions.saturating_sub(1);
                let (below, asked_ns) = self.asked;
                VenueMessage::AnsweredBelow { below: below.into(), asked_ns }
            }
            Said::NextNumber { idx, .. } => {
                if idx != 0 {
                    self.account.other_told(idx);
                }
                VenueMessage::Other
            }
        }
    }

    /// The bytes of the message that [`SessionEvent::Unread`] told of last.
    pub fn unread_bytes(&self) -> &[u8] {
        self.unread.bytes()
    }

    /// Heartbeats and timeouts. Call it once a second or more often.
    ///
    /// # Errors
    ///
    /// The venue has been silent for too long: the caller closes the connection.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), OuchClientError> {
        self.write(|client, output| client.tick(now_ns, output))
    }

    /// Whether orders may be sent.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_settled && self.client.is_logged_in()
    }

    /// Takes the UserRefNum of an order that the caller sends itself, as a prepared packet; `None`
    /// where the session is not open, or the day's numbers are used up. Postpones the heartbeat. A
    /// number that is not used after all is no harm.
    #[inline]
    pub fn take_id(&mut self, now_ns: u64) -> Option<u32> {
        if !self.is_settled || self.client.sent(now_ns).is_err() {
            return None;
        }
        self.account.take()
    }

    /// The number that [`OuchClient::take_id`] gives next, if none is used meanwhile.
    #[inline]
    pub const fn next_id(&self) -> u32 {
        self.account.next_number()
    }

    /// Writes an order that is not prepared, with `options` of 64 bytes at most. Its number is of
    /// [`OuchClient::take_id`].
    pub fn enter(&mut self, now_ns: u64, order: &EnterOrder, options: &[Field<'_>]) -> Result<(), OuchClientError> {
        let mut message = [0; EnterOrder::LEN + 2 + OPTIONS_MAX];
        let len = order.emit(options, &mut message).unwrap_or_default();
        self.write(|client, output| client.send(now_ns, &message[..len], output))
    }

    /// Writes a replace, with `options` of 64 bytes at most. Its number is of
    /// [`OuchClient::take_id`].
    pub fn replace(
        &mut self,
        now_ns: u64,
        replace: &ReplaceOrder,
        options: &[Field<'_>],
    ) -> Result<(), OuchClientError> {
        let mut message = [0; ReplaceOrder::LEN + 2 + OPTIONS_MAX];
        let len = replace.emit(options, &mut message).unwrap_or_default();
        self.write(|client, output| client.send(now_ns, &message[..len], output))
    }

    /// Writes a cancel of all that is open of the order with the number `target`.
    pub fn cancel(&mut self, now_ns: u64, target: u32) -> Result<(), OuchClientError> {
        let cancel = CancelOrder { user_ref: target.into(), quantity: 0.into() };
        let mut message = [0; CancelOrder::LEN];
        let len = cancel.emit(&[], &mut message).unwrap_or_default();
        self.write(|client, output| client.send(now_ns, &message[..len], output))
    }

    /// Asks the venue to close the connection.
    pub fn log_out(&mut self, now_ns: u64) -> Result<(), OuchClientError> {
        self.write(|client, output| client.logout(now_ns, output))
    }

    /// Bytes to send, in order. Call [`OuchClient::sent`] with as many as the line took.
    #[inline]
    pub fn to_send(&self) -> &[u8] {
        &self.out[..self.out_len]
    }

    /// The line took `len` bytes of [`OuchClient::to_send`].
    pub fn sent(&mut self, len: usize) {
        let len = len.min(self.out_len);
        self.out.copy_within(len..self.out_len, 0);
        self.out_len -= len;
    }

    /// Asks, in order to hear when all is answered that was sent before.
    fn ask(&mut self, now_ns: u64) -> Result<(), OuchClientError> {
        self.query(now_ns, &[])?;
        if self.questions == 0 {
            self.asked = (self.account.next_number(), now_ns);
        }
        self.questions += 1;
        Ok(())
    }

    /// Asks for the first UserRefNum that the venue has not seen.
    fn query(&mut self, now_ns: u64, options: &[Field<'_>]) -> Result<(), OuchClientError> {
        let mut message = [0; AccountQuery::LEN + 8];
        let len = AccountQuery {}.emit(options, &mut message).unwrap_or_default();
        self.write(|client, output| client.send(now_ns, &message[..len], output))
    }

    /// Lets the client write behind what waits for the line.
    fn write<E: Into<OuchClientError>>(
        &mut self,
        write: impl FnOnce(&mut Client, &mut Output<'_>) -> Result<(), E>,
    ) -> Result<(), OuchClientError> {
        let mut output = Output::new(&mut self.out[self.out_len..]);
        let written = write(&mut self.client, &mut output);
        self.out_len += output.len();
        written.map_err(Into::into)
    }
}

#[cfg(test)]
mod tests;
